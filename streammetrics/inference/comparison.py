"""Comparisons as users read them: one line each, or a table of them."""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..collect.plottable import Plottable
from ..reading.interval import Interval
from ..reading.table import Table, TableLayout, show
from .estimates import each
from .interpretation import BOUND, SAMPLING, ComparisonSettings, Interpretation, better_side, limits_of
from .number_format import digits, p_text, spelled
from .pairs import Left

__all__ = ["Comparison", "Comparisons", "comparisons_of"]

CURES = {SAMPLING: "more units", BOUND: "more bits="}
Key = tuple[Any, ...]
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class Comparison(Plottable):
    """How one number differs between two sides, and whether that can be trusted.

    Parameters
    ----------
    name : str
        Of the number.
    keys : tuple
        Of the slice; empty where there is none.
    a, b : float
        The values of both sides.
    difference : Interval
        Of a - b.
    relative : Interval
        Of a / b - 1.
    p_value : float
        That so much comes about where nothing differs; NaN where it is refused. Of all looks, if it was asked for.
    adjusted : float
        The same for all rows of the table together, as `adjust=` says; else the p-value.
    better : "a", "b" or None
        Which side is, if the difference is beyond both kinds of error, sampling and certified bounds.
    limited_by : "sampling", "certified bound" or None
        Which of the two is the larger.
    cure : str or None
        What would make it smaller.
    reason : str or None
        Why there is no interval.
    reduction : float
        By which share covariates made the variance smaller.
    always : bool
        Whether intervals and p-values hold at all looks together.
    metric : Metric, optional
        What was compared: which of its values are better, it says itself.
    bound : float
        By how much the difference may be off by what was counted alone: half the width of both certified bounds together.
    rows : int
        Of both sides.
    """

    name: str
    keys: Key
    a: float
    b: float
    difference: Interval
    relative: Interval
    p_value: float
    adjusted: float
    better: str | None
    limited_by: str | None
    cure: str | None
    reason: str | None
    reduction: float = 0.0
    always: bool = False
    metric: Any = None
    bound: float = math.nan
    rows: int = 0

    def __repr__(self) -> str:
        """One line: auc: a 0.7841, b 0.7792, +0.0049 (95 % +0.0031 to +0.0067), p = 2e-07."""
        name = ", ".join([*map(str, self.keys), self.name])
        decimals = digits(self.difference, False).decimals
        a, b = (f"{v:.{decimals}f}" if math.isfinite(v) else show(v) for v in (self.a, self.b))
        if self.reason:
            return f"{name}: a {a}, b {b}; no interval: {self.reason}"
        p = p_text(self.p_value)
        told = [f"{name}: a {a}, b {b}, {spelled(self.difference, False, self.always)}"]
        told.append(f"p {p}" if p.startswith("<") else f"p = {p}")
        if self.reduction > 0.0:
            told.append(f"covariates took {100.0 * self.reduction:.0f} % of the variance")
        if self.limited_by == BOUND:
            told.append(f"limited by the certified bound: {self.cure}")
        return ", ".join(told)

    def _repr_html_(self) -> str:
        return f"<p>{html.escape(repr(self))}</p>"

    def record(self) -> dict[str, Any]:
        """Return it as a row of a table, without its keys."""
        return {
            "metric": self.name,
            "a": self.a,
            "b": self.b,
            "difference": self.difference.estimate,
            "low": self.difference.low,
            "high": self.difference.high,
            "relative": self.relative.estimate,
            "relative_low": self.relative.low,
            "relative_high": self.relative.high,
            "p_value": self.p_value,
            "adjusted": self.adjusted,
            "better": self.better,
            "limited_by": self.limited_by,
            "reason": self.reason,
        }


def _texts(row: dict[str, Any]) -> list[str]:
    """A row as a person reads it."""
    found = Interval(row["low"], row["high"], row["difference"], math.nan, "", "", 0.0, row["reason"])
    other = found._replace(low=row["relative_low"], high=row["relative_high"], estimate=row["relative"])
    cells = [row["metric"], show(row["a"]), show(row["b"])]
    for one, percent in ((found, False), (other, True)):
        write = digits(one, percent)
        some = math.isfinite(one.low) and math.isfinite(one.high)
        cells += [write(one.estimate) if math.isfinite(one.estimate) else ""]
        cells += [f"{write(one.low)} to {write(one.high)}" if some else ""]
    changed = "" if row["adjusted"] == row["p_value"] else p_text(row["adjusted"])
    return [*cells, p_text(row["p_value"]), changed, row["better"] or "", row["reason"] or ""]


HEAD = ("metric", "a", "b", "a - b", "interval", "a / b - 1", "its interval", "p", "adjusted", "better", "reason")
COLUMNS = (
    "metric", "a", "b", "difference", "low", "high", "relative", "relative_low", "relative_high", "p_value", "adjusted",
    "better", "limited_by", "reason",
)  # fmt: skip
COMPARED = TableLayout(COLUMNS, HEAD, _texts, ("its interval", "interval", "adjusted", "better", "reason"))


def comparisons_of(reading: Interpretation, p: Floats, settings: ComparisonSettings) -> list[Comparison]:
    """Return the comparison of each cell."""
    pair = reading.changes.pair
    reduction = np.broadcast_to(np.asarray(reading.changes.difference.reduction), p.shape).tolist()
    columns = (
        pair.keys,
        pair.a.values.tolist(),
        pair.b.values.tolist(),
        each(reading.difference),
        each(reading.relative),
        reading.p.tolist(),
        p.tolist(),
        better_side(reading, p, settings).tolist(),
        limits_of(reading).tolist(),
        reduction,
        (0.5 * ((pair.a.high - pair.a.low) + (pair.b.high - pair.b.low))).tolist(),
        (pair.a.rows + pair.b.rows).tolist(),
    )
    always = settings.look is not None
    return [
        Comparison(
            pair.name,
            key,
            a,
            b,
            d,
            r,
            q,
            adj,
            side,
            limit,
            CURES.get(limit),
            d.reason,
            share,
            always,
            pair.metric,
            width,
            n,
        )
        for key, a, b, d, r, q, adj, side, limit, share, width, n in zip(*columns, strict=True)
    ]


class Comparisons(Mapping[Any, Comparison], Plottable):
    """Comparisons by name; of slices, by their keys and the name: ``found["auc"]``, ``found["DE", "auc"]``.

    Parameters
    ----------
    by : sequence of str
        The slice columns.
    readings : sequence of Reading
        What was found, number by number.
    left : sequence of Left
        What only one side has.
    settings : Settings
        How it was asked.
    """

    def __init__(
        self, by: Sequence[str], readings: Sequence[Interpretation], left: Sequence[Left], settings: ComparisonSettings
    ) -> None:
        self.by, self.left, self.settings = tuple(by), tuple(left), settings
        self.readings = tuple(readings)
        self._adjusted = settings.adjusted(self.readings)

    @cached_property
    def _rows(self) -> dict[Any, Comparison]:
        """All of them, slice by slice; made when they are asked for."""
        slices: dict[Key, list[Comparison]] = {}
        for reading, p in zip(self.readings, self._adjusted, strict=True):
            for one in comparisons_of(reading, p, self.settings):
                slices.setdefault(one.keys, []).append(one)
        return {(*c.keys, c.name) if c.keys else c.name: c for some in slices.values() for c in some}

    def __getitem__(self, key: Any) -> Comparison:
        rows = self._rows
        if key not in rows:
            raise KeyError(f"there is no comparison {key!r}; there are {len(rows)}, such as {list(rows)[:5]}")
        return rows[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = None  # type: ignore[assignment]

    def table(self) -> Table:
        """Return all of it as one table, what only one side has at its end."""
        rows = [dict(zip(self.by, c.keys, strict=False)) | c.record() for c in self.values()]
        nothing = dict.fromkeys(COLUMNS, math.nan) | {"better": None, "limited_by": None}
        rows += [
            dict(zip(self.by, x.key, strict=False)) | nothing | {"metric": x.name, "reason": x.reason}
            for x in self.left
        ]
        return Table(self.by, rows, COMPARED)

    def to_pandas(self) -> Any:
        """Return a pandas data frame."""
        return self.table().to_pandas()

    def to_polars(self) -> Any:
        """Return a polars data frame."""
        return self.table().to_polars()

    def to_arrow(self) -> Any:
        """Return an Arrow table."""
        return self.table().to_arrow()

    def to_dict(self) -> dict[str, list[Any]]:
        """Return the table as lists by column."""
        return self.table().to_dict()

    def __repr__(self) -> str:
        return repr(self.table())

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()
