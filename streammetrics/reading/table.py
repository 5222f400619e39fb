"""One table for every result: what collections and slices return, and the command line and dashboards print."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..errors import InvalidInputError
from ..numerics.keys import shown, visible
from .interval import DefaultConfidence
from .wide_bounds import MARK, warn_of_table

__all__ = ["Table", "TableLayout", "check_levels", "values_table"]

RESULT = (
    "metric",
    "value",
    "bound_low",
    "bound_high",
    "interval_low",
    "interval_high",
    "unit",
    "rows",
    "weight",
    "positives",
    "reason",
)
SHOWN = ("metric", "value", "bound", "interval", "rows", "positives", "reason")
MANY = 60  # rows that the repr shows
WORDS = (
    "metric",
    "reason",
    "no interval because",
    "treatment",
    "role",
    "better",
    "",
)  # columns of words, as a person reads them


OTHERS = ("interval_reason", "dropped", "other")
"""What rows have besides."""


def check_levels(levels: Sequence[str]) -> None:
    """Raise where the columns of slices are called as those of results are: a row would have one of the two."""
    if clash := [name for name in levels if name in (*RESULT, *OTHERS)]:
        raise InvalidInputError(
            f"slices by {clash[0]!r} cannot be listed: results have a column of that name; rename that of the keys, such "
            f"as to 'by_{clash[0]}'"
        )


class TableLayout(NamedTuple):
    """What a table shows.

    Parameters
    ----------
    columns : tuple of str
        What a row has, behind its slice columns.
    head : tuple of str
        The columns as a person reads them; the first is of words, as is the reason.
    texts : callable
        From a row to its texts, one for each of these.
    spare : tuple of str
        Those of them that are left out where all are empty.
    note : callable
        From the rows to a line that is printed below them; empty for none.
    """

    columns: tuple[str, ...]
    head: tuple[str, ...]
    texts: Callable[[dict[str, Any]], list[str]]
    spare: tuple[str, ...]
    note: Callable[[Sequence[dict[str, Any]]], str] = lambda records: ""


class Table:
    """Values with their bounds, one row for each slice and metric; or comparisons.

    Parameters
    ----------
    by : sequence of str
        The slice columns, which come first.
    records : sequence of dict
        A value for each column.
    layout : Layout
        What the other columns are; by default those of values.

    Notes
    -----
    Columns of values: the slice columns; `metric`; `value`; `bound_low`, `bound_high` (certified); `interval_low`,
    `interval_high` (statistical; NaN where none can be given); `unit` (the column of the units that the interval takes as
    independent; None where it takes rows, queries or groups so, and then it is printed only if the call of `table` gave
    a confidence); `rows`, `weight`, `positives`; `reason` (why a value is undefined, or that its certified bounds
    are too wide); with a confidence given, `interval_reason` (why there is no interval).
    """

    def __init__(self, by: Sequence[str], records: Sequence[dict[str, Any]], layout: TableLayout | None = None) -> None:
        self.by, self.layout = tuple(by), layout or VALUES
        self.columns = (*self.by, *self.layout.columns)
        self.records = [{c: r.get(c) for c in self.columns} for r in records]

    def __len__(self) -> int:
        return len(self.records)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.records)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Table) and repr(self.to_dict()) == repr(other.to_dict())

    __hash__ = None  # type: ignore[assignment]

    def to_dict(self) -> dict[str, list[Any]]:
        """Return the table as lists by column."""
        return {c: [_plain(r[c]) for r in self.records] for c in self.columns}

    def to_pandas(self) -> Any:
        """Return a pandas data frame."""
        import pandas  # type: ignore[import-untyped, unused-ignore]

        return pandas.DataFrame(self.to_dict(), columns=list(self.columns))

    def to_polars(self) -> Any:
        """Return a polars data frame. Keys beside a word such as "(other)" are texts, as the table prints them."""
        import polars

        return polars.DataFrame(self._uniform(), strict=False)

    def to_arrow(self) -> Any:
        """Return an Arrow table. Keys beside a word such as "(other)" are texts, as the table prints them."""
        import pyarrow

        return pyarrow.table({name: _arrow(values) for name, values in self._uniform().items()})

    def _uniform(self) -> dict[str, list[Any]]:
        """The table as lists by column, keys of one kind in each."""
        return {c: _of_one_kind(v) if c in self.by else v for c, v in self.to_dict().items()}

    def texts(self) -> tuple[list[str], list[list[str]]]:
        """Return head and cells as a person reads them: the bound beside the value, empty columns left out."""
        head = [*self.by, *self.layout.head]
        rows = [[*(visible(shown(r[c])) for c in self.by), *self.layout.texts(r)] for r in self.records]
        kept = [i for i, name in enumerate(head) if name not in self.layout.spare or any(r[i] for r in rows)]
        return [head[i] for i in kept], [[row[i] for i in kept] for row in rows]

    def __repr__(self) -> str:
        head, rows = self.texts()
        cut = rows if len(rows) <= MANY else [*rows[: MANY // 2], ["…"] * len(head), *rows[-MANY // 2 :]]
        widths = [max(len(line[i]) for line in [head, *cut]) for i in range(len(head))]
        right = [i >= len(self.by) + 1 and name not in ("reason", "no interval because") for i, name in enumerate(head)]
        lines = [
            "  ".join(t.rjust(w) if r else t.ljust(w) for t, w, r in zip(line, widths, right, strict=True)).rstrip()
            for line in [head, *cut]
        ]
        return "\n".join([*lines, *filter(None, [self.layout.note(self.records)])])

    def _repr_html_(self) -> str:
        head, rows = self.texts()
        cut = rows if len(rows) <= MANY else [*rows[: MANY // 2], ["…"] * len(head), *rows[-MANY // 2 :]]
        styles = [f' style="text-align:{"right" if r else "left"}"' for r in self._right(head)]
        top = "".join(f'<th scope="col"{s}>{html.escape(h)}</th>' for h, s in zip(head, styles, strict=True))
        lines = (zip(row, styles, strict=True) for row in cut)
        body = "".join(f"<tr>{''.join(f'<td{s}>{html.escape(c)}</td>' for c, s in line)}</tr>" for line in lines)
        said = filter(None, ["" if cut is rows else f"{len(rows):,} rows", self.layout.note(self.records)])
        caption = html.escape("; ".join(said))
        more = f"<caption>{caption}</caption>" if caption else ""
        return f"<table>{more}<thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"

    def _right(self, head: Sequence[str]) -> list[bool]:
        """Which columns are of numbers."""
        words = (*self.by, *WORDS)
        return [name not in words for name in head]


def values_table(by: Sequence[str], records: Sequence[dict[str, Any]], confidence: float | None) -> Table:
    """Return the table of values; with every interval that there is, or why there is none, if a confidence was given.

    A warning about wide bounds points to the caller of the function that calls this one.
    """
    warn_of_table(records, by, stacklevel=3)
    asked = confidence is not None and not isinstance(confidence, DefaultConfidence)
    return Table(by, records, INTERVALS if asked else VALUES)


def _shown(record: dict[str, Any]) -> list[str]:
    rows, positives = (f"{record[c]:,}" if record[c] is not None else "" for c in ("rows", "positives"))
    return [
        record["metric"],
        show(record["value"]),
        bound(record),
        between(record),
        rows,
        positives,
        record["reason"] or "",
    ]


def _with_intervals(record: dict[str, Any]) -> list[str]:
    shown = _shown(record)
    undefined = record["interval_low"] is None or math.isnan(record["interval_low"])
    shown[3] = "" if undefined else f"{show(record['interval_low'])} to {show(record['interval_high'])}"
    known = isinstance(record["value"], float) and not math.isnan(record["value"])
    why = "" if record["reason"] and not known else record["interval_reason"] or "an array of values has no interval"
    return [*shown, why if undefined else ""]


def _resting(records: Sequence[dict[str, Any]]) -> str:
    """Say what intervals without units rest on."""
    loose = any(r["unit"] is None and r["interval_low"] == r["interval_low"] for r in records)
    said = "Intervals assume independent rows, queries or groups; Sharded(..., unit=) assumes independent units only."
    return said if loose else ""


SPARE = ("bound", "interval", "positives", "reason")
VALUES = TableLayout(RESULT, SHOWN, _shown, SPARE)
INTERVALS = TableLayout(
    (*RESULT, "interval_reason"),
    (*SHOWN, "no interval because"),
    _with_intervals,
    (*SPARE, "no interval because"),
    _resting,
)


def show(value: Any) -> str:
    """A value in the digits that matter."""
    if isinstance(value, float):
        if math.isnan(value):
            return "NaN"
        return f"{value:.6f}" if 1e-3 <= abs(value) < 1e6 or value == 0 else f"{value:.6g}"
    if isinstance(value, np.ndarray):
        return " ".join(str(value.tolist()).split())
    if isinstance(value, tuple) and hasattr(value, "_fields"):  # a curve: its numbers are for plots
        points = max((len(part) for part in value if isinstance(part, np.ndarray)), default=0)
        return f"{points:,} points: {', '.join(value._fields)}"
    if isinstance(value, tuple):
        return f"{len(value):,} curves"
    return "" if value is None else str(value)


def marked(record: dict[str, Any]) -> str:
    """The value of a record, with a mark if its certified bounds are too wide."""
    return show(record["value"]) + (MARK if record.get("wide") else "")


def bound(record: dict[str, Any]) -> str:
    """The certified bound as half its width; "exact" where it is a histogram's, and zero."""
    low, high = record["bound_low"], record["bound_high"]
    if low is None or math.isnan(low):
        return ""
    return f"±{(high - low) / 2:.1e}" if high > np.nextafter(low, np.inf) else "exact"


def between(record: dict[str, Any]) -> str:
    """The statistical interval, where it is by units."""
    low, high = record["interval_low"], record["interval_high"]
    return "" if record["unit"] is None or math.isnan(low) else f"{show(low)} to {show(high)}"


def _of_one_kind(keys: list[Any]) -> list[Any]:
    """Keys as they are; as texts where a word stands beside others for what is not kept: columns of data have one type."""
    worded = any(isinstance(k, str) for k in keys) and not all(k is None or isinstance(k, str) for k in keys)
    return [None if k is None else shown(k) for k in keys] if worded else keys


def _arrow(values: list[Any]) -> Any:
    """A column; of integers of which some are beyond int64 as keys may be."""
    import pyarrow as pa

    whole = [v for v in values if type(v) is int]
    if not whole or max(whole) < 1 << 63:
        return pa.array(values)
    return pa.array(values, pa.uint64() if min(whole) >= 0 else pa.decimal128(20))


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value
