"""One table for every result: what collections and slices return, and the command line and dashboards print."""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..numerics.keys import shown

__all__ = ["Table"]

RESULT = (
    "metric",
    "value",
    "bound_low",
    "bound_high",
    "interval_low",
    "interval_high",
    "rows",
    "weight",
    "positives",
    "reason",
)
SHOWN = ("metric", "value", "bound", "rows", "positives", "reason")
MANY = 60  # rows that the repr shows


class Table:
    """Values with their bounds, one row for each slice and metric.

    Parameters
    ----------
    by : sequence of str
        The slice columns, which come first.
    records : sequence of dict
        A value for each column.

    Notes
    -----
    Columns: the slice columns; `metric`; `value`; `bound_low`, `bound_high` (certified); `interval_low`, `interval_high`
    (statistical, NaN where none can be given); `rows`, `weight`, `positives`; `reason` (why a value is undefined).
    """

    def __init__(self, by: Sequence[str], records: Sequence[dict[str, Any]]) -> None:
        self.by = tuple(by)
        self.columns = (*self.by, *RESULT)
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
        """Return a polars data frame."""
        import polars

        return polars.DataFrame(self.to_dict(), strict=False)

    def to_arrow(self) -> Any:
        """Return an Arrow table."""
        import pyarrow

        return pyarrow.table(self.to_dict())

    def texts(self) -> tuple[list[str], list[list[str]]]:
        """Return head and cells as a person reads them: the bound beside the value, empty columns left out."""
        head = [*self.by, *SHOWN]
        rows = [[*(shown(r[c]) for c in self.by), *_shown(r)] for r in self.records]
        kept = [
            i for i, name in enumerate(head) if name not in ("bound", "reason", "positives") or any(r[i] for r in rows)
        ]
        return [head[i] for i in kept], [[row[i] for i in kept] for row in rows]

    def __repr__(self) -> str:
        head, rows = self.texts()
        cut = rows if len(rows) <= MANY else [*rows[: MANY // 2], ["…"] * len(head), *rows[-MANY // 2 :]]
        widths = [max(len(line[i]) for line in [head, *cut]) for i in range(len(head))]
        right = [i >= len(self.by) + 1 and name != "reason" for i, name in enumerate(head)]
        lines = [
            "  ".join(t.rjust(w) if r else t.ljust(w) for t, w, r in zip(line, widths, right, strict=True)).rstrip()
            for line in [head, *cut]
        ]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        head, rows = self.texts()
        top = "".join(f"<th>{html.escape(h)}</th>" for h in head)
        body = "".join("<tr>" + "".join(f"<td>{html.escape(c)}</td>" for c in row) + "</tr>" for row in rows)
        return f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"


def _shown(record: dict[str, Any]) -> list[str]:
    value = record["value"]
    rows, positives = (f"{record[c]:,}" if record[c] is not None else "" for c in ("rows", "positives"))
    return [record["metric"], show(value), bound(record), rows, positives, record["reason"] or ""]


def show(value: Any) -> str:
    """A value in the digits that matter."""
    if isinstance(value, float):
        if math.isnan(value):
            return "NaN"
        return f"{value:.6f}" if 1e-3 <= abs(value) < 1e6 or value == 0 else f"{value:.6g}"
    if isinstance(value, np.ndarray):
        return " ".join(str(value.tolist()).split())
    return "" if value is None else str(value)


def bound(record: dict[str, Any]) -> str:
    """The certified bound as half its width; "exact" where it is a histogram's, and zero."""
    low, high = record["bound_low"], record["bound_high"]
    if low is None or math.isnan(low):
        return ""
    return f"±{(high - low) / 2:.1e}" if high > np.nextafter(low, np.inf) else "exact"


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value
