"""What is shown, as files: tables as CSV, pictures as PNG."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ...reports.charts import Chart
from ...reports.plots import drawn, rows_of
from ..evaluation.evaluation import Evaluation, Row
from ..store.part_keys import hour_text
from .scene import Scene

__all__ = ["PICTURES", "TABLES", "csv_of", "png_of"]

FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
NUMBERS = ("control_value", "value", "change", "low", "high", "once_low", "once_high", "bound")
Table = tuple[Sequence[str], Iterable[Sequence[Any]]]


def csv_of(evaluation: Evaluation, name: str) -> str:
    """Return a table of an evaluation, every figure in full.

    Texts that a spreadsheet would take for a formula have an apostrophe in front.
    """
    heads, rows = TABLES[name](evaluation)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow([_cell(head) for head in heads])
    writer.writerows([_cell(value) for value in row] for row in rows)
    return out.getvalue()


def _cell(value: Any) -> Any:
    """Return what is written: of numbers all digits, of texts none that begins a formula.

    Examples
    --------
    >>> [_cell(v) for v in ("=1+1", "-x", -1.5, None, "a")]
    ["'=1+1", "'-x", '-1.5', '', 'a']
    """
    if value is None:
        return ""
    if isinstance(value, (int, float)):
        return repr(value)
    return f"'{value}" if str(value).startswith(FORMULA) else str(value)


def _rows(rows: Sequence[Row]) -> Table:
    columns = list(dict.fromkeys(column for row in rows for column in row.slice))
    heads = [*columns, "treatment", "metric", "role", "better", "margin", *NUMBERS, "word", "reason", "rows", "share"]
    body = (
        [row.slice.get(c, "") for c in columns]
        + [row.treatment, row.metric, row.role, row.better, row.margin]
        + [getattr(row, n) for n in NUMBERS]
        + [row.word, row.reason, row.rows, row.share]
        for row in rows
    )
    return heads, body


def _points(points: Sequence[Any]) -> Table:
    heads = ["hour", "metric", "arm", "value", "rows", "change", "low", "high", "provisional"]
    return heads, ([hour_text(p.hour), *p[1:8], "yes" if p.provisional else "no"] for p in points)


def _plain(rows: Sequence[Any], heads: Sequence[str]) -> Table:
    return heads, ([getattr(row, head) for head in heads] for row in rows)


TABLES: dict[str, Callable[[Evaluation], Table]] = {
    "scorecard": lambda e: _rows(e.table),
    "slices": lambda e: _rows(e.slices),
    "hours": lambda e: _points(e.series),
    "days": lambda e: _points(e.days),
    "arms": lambda e: _plain(e.arms, ("arm", "planned", "users", "share", "rows", "positives", "value")),
    "sources": lambda e: _plain(e.sources, ("source", "state", "behind", "parts", "late", "conflicts", "rows")),
}


def _chart(place: int) -> Callable[[Scene, Any], Any]:
    return lambda scene, ax: drawn(scene.charts[place], ax) if place < len(scene.charts) else None


def _band(scene: Scene, ax: Any) -> Any:
    return drawn(scene.band, ax) if isinstance(scene.band, Chart) else None


def _card(scene: Scene, ax: Any) -> Any:
    if scene.card is None:
        return None
    return rows_of([r for g in scene.card.groups for r in g.rows], scene.card.axis, ax, "difference")


def _slices(scene: Scene, ax: Any) -> Any:
    if scene.forest is None:
        return None
    return rows_of([r for g in scene.forest.groups for r in g.rows], scene.forest.axis, ax, scene.forest.axis.title)


PICTURES: dict[str, Callable[[Scene, Any], Any]] = {
    "looks": _band,
    "scorecard": _card,
    "slices": _slices,
    "windows": _chart(0),
    "arms": _chart(1),
}


def png_of(scene: Scene, name: str) -> bytes | None:
    """Return a picture of a page; None where it has none.

    Raises
    ------
    ImportError
        matplotlib is not installed.
    """
    from matplotlib.figure import Figure  # not pyplot, which is not for threads

    tall = 0.32 * sum(len(g.rows) for g in scene.forest.groups) if name == "slices" and scene.forest else 0.0
    figure = Figure(figsize=(8.0, min(max(4.5, tall), 40.0)), layout="constrained")
    if PICTURES[name](scene, figure.subplots()) is None:
        return None
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=150)
    return out.getvalue()
