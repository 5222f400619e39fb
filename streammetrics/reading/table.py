"""Table: the results of collections, slices and comparisons, as the command line and dashboards print them."""

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
"""The largest number of rows that `repr` shows."""
WORDS = (
    "metric",
    "reason",
    "no interval because",
    "treatment",
    "role",
    "better",
    "",
)
"""The headings of columns that contain words."""

OTHERS = ("interval_reason", "dropped", "other")
"""Further fields of rows. A slicing column must not have one of these names."""


def check_levels(levels: Sequence[str]) -> None:
    """Raise InvalidInputError if a slicing column has the name of a result column, which would overwrite it."""
    if clash := [name for name in levels if name in (*RESULT, *OTHERS)]:
        raise InvalidInputError(
            f"slices by {clash[0]!r} cannot be listed: results have a column of that name; rename that of the keys, such "
            f"as to 'by_{clash[0]}'"
        )


class TableLayout(NamedTuple):
    """The columns of a table, and their texts.

    Parameters
    ----------
    columns : tuple of str
        The fields of a row, after its slicing columns.
    head : tuple of str
        The headings of the printed columns. The first column and the reason contain words.
    texts : callable
        Converts a row to its printed cells, one for each heading.
    spare : tuple of str
        The headings of columns that are omitted if all of their cells are empty.
    note : callable
        Returns a line to print below the rows; empty for none.
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
        The slicing columns, which come first.
    records : sequence of dict
        The rows: dicts from column to value.
    layout : TableLayout
        The other columns; by default those of values.

    Notes
    -----
    A table of values has these columns: the slicing columns; `metric`; `value`; `bound_low` and `bound_high` (certified
    bounds); `interval_low` and `interval_high` (statistical interval, NaN if there is none); `unit` (the column of the
    units that the interval assumes to be independent; None if it assumes independent rows, queries or groups, and then it
    is printed only if a confidence was passed to `table`); `rows`, `weight`, `positives`; `reason` (why a value is
    undefined, or that its certified bounds are too wide); and, if a confidence was passed, `interval_reason` (why there
    is no interval).
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
        """Return a polars data frame. In a column with a word such as "(other)", all keys are converted to text."""
        import polars

        return polars.DataFrame(self._uniform(), strict=False)

    def to_arrow(self) -> Any:
        """Return an Arrow table. In a column with a word such as "(other)", all keys are converted to text."""
        import pyarrow

        return pyarrow.table({name: _arrow_array(values) for name, values in self._uniform().items()})

    def _uniform(self) -> dict[str, list[Any]]:
        """Return a dict from column to values; the keys of each column have one type."""
        return {c: _unify_key_types(v) if c in self.by else v for c, v in self.to_dict().items()}

    def texts(self) -> tuple[list[str], list[list[str]]]:
        """Return the headings and the printed cells; empty columns are omitted."""
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
        """Return which columns contain numbers."""
        words = (*self.by, *WORDS)
        return [name not in words for name in head]


def values_table(by: Sequence[str], records: Sequence[dict[str, Any]], confidence: float | None) -> Table:
    """Return the table of values. If the caller passed a confidence, it shows every interval or why there is none.

    A warning about wide bounds points to the caller of the function that calls this one.
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
    """Return the note below a table with intervals that assume independent rows; empty if there are none."""
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
    """Return a value as text, with six significant digits or decimals."""
    if isinstance(value, float):
        if math.isnan(value):
            return "NaN"
        return f"{value:.6f}" if 1e-3 <= abs(value) < 1e6 or value == 0 else f"{value:.6g}"
    if isinstance(value, np.ndarray):
        return " ".join(str(value.tolist()).split())
    # A curve: its numbers are for plots.
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        points = max((len(part) for part in value if isinstance(part, np.ndarray)), default=0)
        return f"{points:,} points: {', '.join(value._fields)}"
    if isinstance(value, tuple):
        return f"{len(value):,} curves"
    return "" if value is None else str(value)


def format_marked_value(record: dict[str, Any]) -> str:
    """Return the value of a record as text, with a mark if its certified bounds are too wide."""
    return format_value(record["value"]) + (MARK if record.get("wide") else "")


def format_bound(record: dict[str, Any]) -> str:
    """Return half the width of the certified bounds as text; "exact" if it is zero; empty if there are none."""
    low, high = record["bound_low"], record["bound_high"]
    if low is None or math.isnan(low):
        return ""
    return f"±{(high - low) / 2:.1e}" if high > np.nextafter(low, np.inf) else "exact"


def format_interval(record: dict[str, Any]) -> str:
    """Return the statistical interval as text if it comes from units; otherwise an empty text."""
    low, high = record["interval_low"], record["interval_high"]
    return "" if record["unit"] is None or math.isnan(low) else f"{format_value(low)} to {format_value(high)}"


def _unify_key_types(keys: list[Any]) -> list[Any]:
    """Return keys of one type: if a word such as "(other)" occurs beside keys of another type, convert all to text."""
    worded = any(isinstance(k, str) for k in keys) and not all(k is None or isinstance(k, str) for k in keys)
    return [None if k is None else format_atom(k) for k in keys] if worded else keys


def _arrow_array(values: list[Any]) -> Any:
    """Return an Arrow array; integers beyond int64, which keys may be, need a wider type."""
    import pyarrow as pa

    whole = [v for v in values if type(v) is int]
    if not whole or max(whole) < 1 << 63:
        return pa.array(values)
    return pa.array(values, pa.uint64() if min(whole) >= 0 else pa.decimal128(20))


def _to_list(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value
