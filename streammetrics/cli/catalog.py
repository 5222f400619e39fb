"""`streammetrics catalog`: every metric, from what the classes say of themselves."""

from __future__ import annotations

import inspect

from streammetrics.cli.grid import Cell, Grid, say, show
from streammetrics.cli.messages import nearest
from streammetrics.cli.specs import at_setting, metric_names, settings_of
from streammetrics.metric import METRICS

__all__ = ["list_all", "tell_one"]


def list_all() -> None:
    """Print one line for every metric."""
    rows: list[list[Cell] | None] = []
    for tag in metric_names():
        metric = METRICS[tag]
        at = at_setting(metric)
        name = f"{tag}[@{at}]" if at else tag
        rows.append([Cell(name), Cell(metric.best or ""), Cell(metric.formula), Cell(metric.bound), Cell(metric.cost)])
    show(Grid("", ["metric", "best", "formula", "bound", "cost"], rows, left=5))
    say("Also f2 or f0.5 for fbeta, copc for calibration:inverse=true; any setting as name:setting=value.", "dim")
    say("One metric in full: streammetrics catalog auc", "dim")


def tell_one(tag: str) -> None:
    """Print the documentation of one metric."""
    if tag not in METRICS:
        raise nearest("metric", tag, metric_names())
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
