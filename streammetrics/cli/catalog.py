"""`streammetrics catalog`: list all metrics, or describe one, from the docstrings and descriptions of their classes."""

from __future__ import annotations

import inspect
from typing import Any

from streammetrics.cli.specs import default_settings, find_at_setting, metric_names, unknown_metric_error
from streammetrics.collect.metric import METRICS, Metric
from streammetrics.reports.text_table import Cell, Grid, is_terminal, print_grid, print_line

__all__ = ["list_metrics", "show_metric"]


EXAMPLES = {"k": 10, "q": 0.9, "n_bins": 15}
"""Examples of the number after @ (as in `ndcg@10`), keyed by setting. For most other settings, the example is 0.1."""


def list_metrics() -> None:
    """Print all metrics. On a terminal, each metric takes several lines, because formulas are too wide for a table."""
    metrics_by_name = {
        f"{tag}[@{at}]" if (at := find_at_setting(METRICS[tag])) else tag: METRICS[tag] for tag in metric_names()
    }
    if is_terminal():
        for name, metric in metrics_by_name.items():
            print_line(f"{name}{f', {better}' if (better := _describe_best(metric.about.best)) else ''}", "bold")
            print_line(f"  {metric.about.formula}")
            print_line(f"  {metric.about.bound}; {metric.about.cost}", "dim")
        print_line()
    else:
        abouts = {name: metric.about for name, metric in metrics_by_name.items()}
        cells = [[name, str(a.best or ""), a.formula, a.bound, a.cost] for name, a in abouts.items()]
        rows: list[list[Cell] | None] = [[Cell(text) for text in line] for line in cells]
        print_grid(Grid("", ["metric", "best", "formula", "bound", "cost"], rows, left_columns=5, unbroken_lines=True))
    print_line(
        "Short names: f2 or f0.5 for fbeta, copc for calibration:inverse=true. To change a setting: name:setting=value.",
        "dim",
    )
    print_line("One metric in full: streammetrics catalog auc", "dim")
    print_line("The equivalent of another library's metric: streammetrics catalog --from sklearn roc_auc_score", "dim")


def _describe_best(best: str | float | None) -> str:
    return f"{best} is better" if isinstance(best, str) else "" if best is None else f"{best:g} is best"


def _find_example(metric: type[Metric[Any, Any]], at: str) -> float:
    """Return an example of the number that users write after @ for the setting `at`, such as 10 in `ndcg@10`."""
    default = default_settings(metric)[at]
    return EXAMPLES.get(at, default if isinstance(default, int) else 0.1)


def show_metric(tag: str) -> None:
    """Print the documentation of one metric; `tag` is its name on the command line or its class name."""
    tag = {cls.__name__: name for name, cls in METRICS.items()}.get(tag, tag)
    if tag not in METRICS:
        raise unknown_metric_error(tag)
    metric = METRICS[tag]
    print_line(f"{tag}  (sm.{metric.__name__})", "bold cyan")
    print_line()
    for line in (inspect.getdoc(metric) or "").splitlines():
        print_line(line)
    print_line()
    defaults = ", ".join(f"{name}={value!r}" for name, value in default_settings(metric).items())
    at = find_at_setting(metric)
    print_line(f"On the command line: {tag}" + (f", {tag}@{_find_example(metric, at)} ({at})" if at else ""))
    if defaults:
        print_line(f"Settings: {defaults}")
