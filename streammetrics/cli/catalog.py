"""`streammetrics catalog`: every metric, from what the classes say of themselves."""

from __future__ import annotations

import inspect

from streammetrics.cli.specs import at_setting, metric_names, no_metric, settings_of
from streammetrics.collect.metric import METRICS
from streammetrics.reports.text_table import Cell, Grid, is_terminal, say, show

__all__ = ["list_all", "tell_one"]


def list_all() -> None:
    """Print every metric: a table in a pipe, some lines each on a terminal, where the formulas would not fit a row."""
    named = {f"{tag}[@{at}]" if (at := at_setting(METRICS[tag])) else tag: METRICS[tag] for tag in metric_names()}
    if is_terminal():
        for name, metric in named.items():
            say(f"{name}{f', {better}' if (better := _better(metric.about.best)) else ''}", "bold")
            say(f"  {metric.about.formula}")
            say(f"  {metric.about.bound}; {metric.about.cost}", "dim")
        say()
    else:
        abouts = {name: metric.about for name, metric in named.items()}
        cells = [[name, str(a.best or ""), a.formula, a.bound, a.cost] for name, a in abouts.items()]
        rows: list[list[Cell] | None] = [[Cell(text) for text in line] for line in cells]
        show(Grid("", ["metric", "best", "formula", "bound", "cost"], rows, left=5, whole=True))
    say("Also f2 or f0.5 for fbeta, copc for calibration:inverse=true; any setting as name:setting=value.", "dim")
    say("One metric in full: streammetrics catalog auc", "dim")
    say("What another library's is here: streammetrics catalog --from sklearn roc_auc_score", "dim")


def _better(best: str | float | None) -> str:
    return f"{best} is better" if isinstance(best, str) else "" if best is None else f"{best:g} is best"


def tell_one(tag: str) -> None:
    """Print the documentation of one metric."""
    if tag not in METRICS:
        raise no_metric(tag)
    metric = METRICS[tag]
    say(f"{tag}  (sm.{metric.__name__})", "bold cyan")
    say()
    for line in (inspect.getdoc(metric) or "").splitlines():
        say(line)
    say()
    defaults = ", ".join(f"{name}={value!r}" for name, value in settings_of(metric).items())
    say(f"On the command line: {tag}" + (f", {tag}@0.1 ({at_setting(metric)})" if at_setting(metric) else ""))
    if defaults:
        say(f"Settings: {defaults}")
