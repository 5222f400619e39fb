"""Render the tables of a page as CSV, and its charts as PNG, for download."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ...reports.charts import Chart
from ...reports.plots import draw_chart, draw_rows
from ..calendar_days import to_datetime
from ..evaluation.evaluation import Evaluation, MetricRow
from ..part_keys import format_hour
from .page_data import PageData

__all__ = ["PICTURES", "TABLES", "render_csv", "render_png"]

FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n")
NUMBER_FIELDS = ("control_value", "value", "change", "low", "high", "once_low", "once_high", "bound")
Table = tuple[Sequence[str], Iterable[Sequence[Any]]]


def render_csv(evaluation: Evaluation, name: str) -> str:
    """Return the table `name` of an evaluation as CSV. Numbers are written with full precision.

    Text that a spreadsheet would read as a formula, such as "=1+1", gets a leading apostrophe.
    """
    heads, rows = TABLES[name](evaluation)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow([_format_cell(head) for head in heads])
    writer.writerows([_format_cell(value) for value in row] for row in rows)
    return out.getvalue()


def _format_cell(value: Any) -> Any:
    """Return a value as a CSV cell: a number with full precision, or text (with an apostrophe before a formula).

    Examples
    --------
    >>> [_format_cell(v) for v in ("=1+1", "-x", -1.5, None, "a")]
    ["'=1+1", "'-x", '-1.5', '', 'a']
    """
    if value is None:
        return ""
    if isinstance(value, (int, float)):
        return repr(value)
    return f"'{value}" if str(value).startswith(FORMULA_STARTS) else str(value)


def _build_metric_table(rows: Sequence[MetricRow]) -> Table:
    columns = list(dict.fromkeys(column for row in rows for column in row.slice))
    heads = [
        *columns,
        "treatment",
        "metric",
        "role",
        "better",
        "margin",
        *NUMBER_FIELDS,
        "word",
        "reason",
        "rows",
        "share",
    ]
    body = (
        [row.slice.get(c, "") for c in columns]
        + [row.treatment, row.metric, row.role, row.better, row.margin]
        + [getattr(row, n) for n in NUMBER_FIELDS]
        + [row.word, row.reason, row.rows, row.share]
        for row in rows
    )
    return heads, body


def _build_window_table(points: Sequence[Any]) -> Table:
    heads = ["hour", "metric", "arm", "value", "rows", "change", "low", "high", "provisional"]
    return heads, ([format_hour(p.hour), *p[1:8], "yes" if p.provisional else "no"] for p in points)


def _build_day_table(points: Sequence[Any], time_zone: str) -> Table:
    """Return the table of daily windows: the columns of the hourly table, plus the date of each day in `time_zone`."""
    heads, rows = _build_window_table(points)
    dates = (to_datetime(p.hour, time_zone).date().isoformat() for p in points)
    return [*heads, "day"], ([*row, date] for row, date in zip(rows, dates, strict=True))


def _build_field_table(rows: Sequence[Any], fields: Sequence[str]) -> Table:
    return fields, ([getattr(row, head) for head in fields] for row in rows)


TABLES: dict[str, Callable[[Evaluation], Table]] = {
    "scorecard": lambda e: _build_metric_table(e.table),
    "slices": lambda e: _build_metric_table(e.slices),
    "hours": lambda e: _build_window_table(e.series),
    "days": lambda e: _build_day_table(e.days, e.timezone),
    "arms": lambda e: _build_field_table(e.arms, ("arm", "planned", "users", "share", "rows", "positives", "value")),
    "sources": lambda e: _build_field_table(
        e.sources, ("source", "state", "behind", "parts", "late", "conflicts", "rows")
    ),
}


def _chart_drawer(number: int) -> Callable[[PageData, Any], Any]:
    return lambda page, ax: draw_chart(page.charts[number], ax) if number < len(page.charts) else None


def _draw_looks(page: PageData, ax: Any) -> Any:
    return draw_chart(page.band, ax) if isinstance(page.band, Chart) else None


def _draw_scorecard(page: PageData, ax: Any) -> Any:
    if page.card is None:
        return None
    return draw_rows([r for g in page.card.groups for r in g.rows], page.card.axis, ax, "difference")


def _draw_slices(page: PageData, ax: Any) -> Any:
    if page.forest is None:
        return None
    return draw_rows([r for g in page.forest.groups for r in g.rows], page.forest.axis, ax, page.forest.axis.title)


PICTURES: dict[str, Callable[[PageData, Any], Any]] = {
    "looks": _draw_looks,
    "scorecard": _draw_scorecard,
    "slices": _draw_slices,
    "windows": _chart_drawer(0),
    "arms": _chart_drawer(1),
}


def render_png(page: PageData, name: str) -> bytes | None:
    """Return the chart `name` of a page as PNG, or None if there is nothing to draw yet.

    Raises
    ------
    ImportError
        matplotlib is not installed.
    """
    # Use `Figure` directly, because pyplot is not thread-safe.
    from matplotlib.figure import Figure

    tall = 0.32 * sum(len(g.rows) for g in page.forest.groups) if name == "slices" and page.forest else 0.0
    figure = Figure(figsize=(8.0, min(max(4.5, tall), 40.0)), layout="constrained")
    if PICTURES[name](page, figure.subplots()) is None:
        return None
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=150)
    return out.getvalue()
