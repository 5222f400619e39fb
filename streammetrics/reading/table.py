"""Tables of the results of collections, slices and comparisons, for printing and for conversion to data frames."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..errors import InvalidInputError
from ..numerics.slice_keys import escape_unprintable, format_atom
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
MANY = 60
"""The largest number of rows that `repr` shows in full. For longer tables, it shows only the first and the last rows."""
WORDS = (
    "metric",
    "reason",
    "no interval because",
    "treatment",
    "role",
    "better",
    "",
)
"""The headings of columns that contain words. All other columns contain numbers, which are right-aligned."""

OTHERS = ("interval_reason", "dropped", "other")
"""Further names that a slicing column must not have, in addition to those of result columns, because rows also have these
fields."""


def check_levels(levels: Sequence[str]) -> None:
    """Raise InvalidInputError if a slicing column has the same name as a result column, which it would overwrite.

    `levels` are the names of the slicing columns.
    """
    if clash := [name for name in levels if name in (*RESULT, *OTHERS)]:
        raise InvalidInputError(
            f"slices by {clash[0]!r} cannot be listed: the table of results has a column of the same name; rename the "
            f"slicing column, for example to 'by_{clash[0]}'"
        )


class TableLayout(NamedTuple):
    """The columns that follow the slicing columns of a table, and how to print them.

    Parameters
    ----------
    columns : tuple of str
        The fields of a row, which are the columns of data frames.
    head : tuple of str
        The headings of the printed columns.
    texts : callable
        A function that takes a row and returns the text of each printed column.
    spare : tuple of str
        The headings of columns that are omitted if all their cells are empty.
    note : callable
        A function that takes all rows and returns a line to print below them; "" for no line.
    """

    columns: tuple[str, ...]
    head: tuple[str, ...]
    texts: Callable[[dict[str, Any]], list[str]]
    spare: tuple[str, ...]
    note: Callable[[Sequence[dict[str, Any]]], str] = lambda records: ""


class Table:
    """A table of results: values with their bounds and intervals, or comparisons of values.

    A table of values has one row for each slice and metric.

    Parameters
    ----------
    by : sequence of str
        The slicing columns, which come first in the table.
    records : sequence of dict
        The rows: dicts that map each column to its value.
    layout : TableLayout
        The other columns. By default they are those of a table of values.

    Notes
    -----
    A table of values consists of the slicing columns, followed by these columns:

    - `metric` and `value`;
    - `bound_low` and `bound_high`: the certified bounds;
    - `interval_low` and `interval_high`: the confidence interval, or NaN if there is none;
    - `unit`: the column of the units that the interval assumes to be independent. It is None if the interval assumes
      independent rows, queries or groups. Such an interval is printed only if a confidence was passed to `table`;
    - `rows`, `weight` and `positives`;
    - `reason`: why the value is undefined, or that its certified bounds are too wide;
    - `interval_reason`, if a confidence was passed: why there is no interval.
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
        """Return a dict from the name of each column to the list of its values."""
        return {c: [_to_list(r[c]) for r in self.records] for c in self.columns}

    def to_pandas(self) -> Any:
        """Return a pandas data frame."""
        import pandas  # type: ignore[import-untyped, unused-ignore]

        return pandas.DataFrame(self.to_dict(), columns=list(self.columns))

    def to_polars(self) -> Any:
        """Return a polars data frame.

        If a slicing column contains a string such as "(other)" among keys of another type, all its keys are converted to
        strings.
        """
        import polars

        return polars.DataFrame(self._uniform(), strict=False)

    def to_arrow(self) -> Any:
        """Return an Arrow table.

        If a slicing column contains a string such as "(other)" among keys of another type, all its keys are converted to
        strings.
        """
        import pyarrow

        return pyarrow.table({name: _arrow_array(values) for name, values in self._uniform().items()})

    def _uniform(self) -> dict[str, list[Any]]:
        """Return a dict from column names to values, with keys of only one type in each slicing column."""
        return {c: _unify_key_types(v) if c in self.by else v for c, v in self.to_dict().items()}

    def texts(self) -> tuple[list[str], list[list[str]]]:
        """Return the headings, and the printed cells of each row. Empty columns in `layout.spare` are omitted."""
        head = [*self.by, *self.layout.head]
        rows = [
            [*(escape_unprintable(format_atom(r[c])) for c in self.by), *self.layout.texts(r)] for r in self.records
        ]
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
        styles = [f' style="text-align:{"right" if r else "left"}"' for r in self._is_numeric(head)]
        top = "".join(f'<th scope="col"{s}>{html.escape(h)}</th>' for h, s in zip(head, styles, strict=True))
        lines = (zip(row, styles, strict=True) for row in cut)
        body = "".join(f"<tr>{''.join(f'<td{s}>{html.escape(c)}</td>' for c, s in line)}</tr>" for line in lines)
        notes = filter(None, ["" if cut is rows else f"{len(rows):,} rows", self.layout.note(self.records)])
        caption = html.escape("; ".join(notes))
        more = f"<caption>{caption}</caption>" if caption else ""
        return f"<table>{more}<thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"

    def _is_numeric(self, head: Sequence[str]) -> list[bool]:
        """Return a list that says, for each heading, whether the column contains numbers."""
        words = (*self.by, *WORDS)
        return [name not in words for name in head]


def values_table(by: Sequence[str], records: Sequence[dict[str, Any]], confidence: float | None) -> Table:
    """Return a table of values, and warn if some have wide bounds.

    With the default confidence, only intervals that assume independent units are printed. If the caller passed a
    confidence, the table shows every interval, or the reason why there is none. The warning points to the code that called
    `table`, that is, to the caller of the function that calls this one.
    """
    warn_of_table(records, by, stacklevel=3)
    with_intervals = confidence is not None and not isinstance(confidence, DefaultConfidence)
    return Table(by, records, INTERVALS if with_intervals else VALUES)


def _record_texts(record: dict[str, Any]) -> list[str]:
    rows, positives = (f"{record[c]:,}" if record[c] is not None else "" for c in ("rows", "positives"))
    return [
        record["metric"],
        format_value(record["value"]),
        format_bound(record),
        format_interval(record),
        rows,
        positives,
        record["reason"] or "",
    ]


def _record_texts_with_interval(record: dict[str, Any]) -> list[str]:
    texts = _record_texts(record)
    undefined = record["interval_low"] is None or math.isnan(record["interval_low"])
    texts[3] = "" if undefined else f"{format_value(record['interval_low'])} to {format_value(record['interval_high'])}"
    known = isinstance(record["value"], float) and not math.isnan(record["value"])
    why = "" if record["reason"] and not known else record["interval_reason"] or "an array of values has no interval"
    return [*texts, why if undefined else ""]


def _assumption_note(records: Sequence[dict[str, Any]]) -> str:
    """Return the note that is printed below a table if some of its intervals assume independent rows; otherwise ""."""
    assumes_rows = any(r["unit"] is None and r["interval_low"] == r["interval_low"] for r in records)
    note = "Intervals assume independent rows, queries or groups; Sharded(..., unit=) assumes independent units only."
    return note if assumes_rows else ""


SPARE = ("bound", "interval", "positives", "reason")
VALUES = TableLayout(RESULT, SHOWN, _record_texts, SPARE)
INTERVALS = TableLayout(
    (*RESULT, "interval_reason"),
    (*SHOWN, "no interval because"),
    _record_texts_with_interval,
    (*SPARE, "no interval because"),
    _assumption_note,
)


def format_value(value: Any) -> str:
    """Return a value as text. Floats have six decimals, or six significant digits if they are very small or large."""
    if isinstance(value, float):
        if math.isnan(value):
            return "NaN"
        return f"{value:.6f}" if 1e-3 <= abs(value) < 1e6 or value == 0 else f"{value:.6g}"
    if isinstance(value, np.ndarray):
        return " ".join(str(value.tolist()).split())
    # A named tuple is a curve. Its many numbers are meant for plots, so only the number of points is shown.
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        points = max((len(part) for part in value if isinstance(part, np.ndarray)), default=0)
        return f"{points:,} points: {', '.join(value._fields)}"
    if isinstance(value, tuple):
        return f"{len(value):,} curves"
    return "" if value is None else str(value)


def format_marked_value(record: dict[str, Any]) -> str:
    """Return the value of a record as text, followed by `MARK` if its certified bounds are too wide."""
    return format_value(record["value"]) + (MARK if record.get("wide") else "")


def format_bound(record: dict[str, Any]) -> str:
    """Return half the width of the certified bounds as text, such as "±1.5e-05".

    The result is "exact" if the width is zero, and "" if there are no bounds.
    """
    low, high = record["bound_low"], record["bound_high"]
    if low is None or math.isnan(low):
        return ""
    return f"±{(high - low) / 2:.1e}" if high > np.nextafter(low, np.inf) else "exact"


def format_interval(record: dict[str, Any]) -> str:
    """Return the confidence interval as text; "" if there is none, or if it does not assume independent units.

    A unit, such as a user, is identified by a value of the unit column.
    """
    low, high = record["interval_low"], record["interval_high"]
    return "" if record["unit"] is None or math.isnan(low) else f"{format_value(low)} to {format_value(high)}"


def _unify_key_types(keys: list[Any]) -> list[Any]:
    """Return keys of one type: if a string such as "(other)" is among keys of another type, all become strings."""
    worded = any(isinstance(k, str) for k in keys) and not all(k is None or isinstance(k, str) for k in keys)
    return [None if k is None else format_atom(k) for k in keys] if worded else keys


def _arrow_array(values: list[Any]) -> Any:
    """Return an Arrow array. Its type is wider than int64 if a value is an integer that is too large for int64."""
    import pyarrow as pa

    whole = [v for v in values if type(v) is int]
    if not whole or max(whole) < 1 << 63:
        return pa.array(values)
    return pa.array(values, pa.uint64() if min(whole) >= 0 else pa.decimal128(20))


def _to_list(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value
