"""Results of `compare`: one comparison, or a mapping of comparisons with a table."""

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
from ..reading.table import Table, TableLayout, format_value
from .estimates import split_intervals
from .interpretation import BOUND, SAMPLING, ComparisonSettings, Interpretation, find_better_side, find_limiting_error
from .number_format import choose_format, format_interval, format_p_value
from .pairs import UnmatchedCell

__all__ = ["Comparison", "Comparisons", "build_comparisons"]

REMEDIES = {SAMPLING: "more units", BOUND: "more bits="}
Key = tuple[Any, ...]
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class Comparison(Plottable):
    """The difference of one metric between two sides, with intervals and a p-value.

    Parameters
    ----------
    name : str
        Name of the metric.
    keys : tuple
        Key of the slice; empty for all rows.
    a, b : float
        The values of the two sides.
    difference : Interval
        Interval for a - b.
    relative : Interval
        Interval for a / b - 1.
    p_value : float
        Two-sided p-value of the null hypothesis that there is no difference; NaN without an interval. It is
        always-valid if `always` is True.
    adjusted : float
        The p-value after the multiplicity correction `adjust=` over all rows of the table; without a correction, it
        equals `p_value`.
    better : "a", "b" or None
        The better side if sampling error and certified bounds together cannot explain the difference; otherwise None.
    limited_by : "sampling", "certified bound" or None
        Whether the sampling error or the certified bound is larger; None without an interval.
    cure : str or None
        What the user can do to reduce the error that `limited_by` names.
    reason : str or None
        Why there is no interval.
    reduction : float
        Share of the variance that the covariates removed.
    always : bool
        Whether intervals and p-values are valid at every look at a running experiment (always-valid).
    metric : Metric, optional
        The metric, which defines whether high or low values are better.
    bound : float
        The largest shift of the difference that the bucketing of scores may cause: half the total width of the
        certified bounds of both sides.
    rows : int
        Total number of rows on both sides.
    note : str or None
        A sentence that replaces the p-value where the quantiles of both sides are certainly equal.
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
    note: str | None = None

    def __repr__(self) -> str:
        """Return one line, such as ``auc: a 0.7841, b 0.7792, +0.0049 (95 % +0.0031 to +0.0067), p = 2e-07``."""
        name = ", ".join([*map(str, self.keys), self.name])
        decimals = choose_format(self.difference, False).decimals
        a, b = (f"{v:.{decimals}f}" if math.isfinite(v) else format_value(v) for v in (self.a, self.b))
        if self.reason:
            return f"{name}: a {a}, b {b}; no interval: {self.reason}"
        if self.note:
            return f"{name}: {self.note}"
        p = format_p_value(self.p_value)
        parts = [f"{name}: a {a}, b {b}, {format_interval(self.difference, False, self.always)}"]
        parts.append(f"p {p}" if p.startswith("<") else f"p = {p}")
        if self.reduction > 0.0:
            parts.append(f"covariates removed {100.0 * self.reduction:.0f} % of the variance")
        if self.limited_by == BOUND:
            parts.append(f"the certified bound limits the precision: use {self.cure}")
        return ", ".join(parts)

    def _repr_html_(self) -> str:
        return f"<p>{html.escape(repr(self))}</p>"

    def record(self) -> dict[str, Any]:
        """Return the comparison as a row of a table: a dict from column to value, without the slice columns."""
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
            "reason": self.reason or self.note,
        }


def _format_row(row: dict[str, Any]) -> list[str]:
    """Return the text of each column for a row from `Comparison.record`."""
    difference = Interval(row["low"], row["high"], row["difference"], math.nan, "", "", 0.0, row["reason"])
    relative = difference._replace(low=row["relative_low"], high=row["relative_high"], estimate=row["relative"])
    cells = [row["metric"], format_value(row["a"]), format_value(row["b"])]
    for interval, percent in ((difference, False), (relative, True)):
        write = choose_format(interval, percent)
        is_finite = math.isfinite(interval.low) and math.isfinite(interval.high)
        cells += [write(interval.estimate) if math.isfinite(interval.estimate) else ""]
        cells += [f"{write(interval.low)} to {write(interval.high)}" if is_finite else ""]
    adjusted = "" if row["adjusted"] == row["p_value"] else format_p_value(row["adjusted"])
    return [*cells, format_p_value(row["p_value"]), adjusted, row["better"] or "", row["reason"] or ""]


HEADS = ("metric", "a", "b", "a - b", "interval", "a / b - 1", "its interval", "p", "adjusted", "better", "reason")
COLUMNS = (
    "metric", "a", "b", "difference", "low", "high", "relative", "relative_low", "relative_high", "p_value", "adjusted",
    "better", "limited_by", "reason",
)  # fmt: skip
LAYOUT = TableLayout(COLUMNS, HEADS, _format_row, ("its interval", "interval", "adjusted", "better", "reason"))


def build_comparisons(reading: Interpretation, p: Floats, settings: ComparisonSettings) -> list[Comparison]:
    """Return a `Comparison` for each cell (slice) of one metric.

    Parameters
    ----------
    reading : Interpretation
        The intervals and p-values of the metric.
    p : float64 array
        The p-value of each cell after the multiplicity correction.
    settings : ComparisonSettings
        The settings of the comparison.
    """
    pair = reading.differences.pair
    reduction = np.broadcast_to(np.asarray(reading.differences.difference.reduction), p.shape).tolist()
    columns = (
        pair.keys,
        pair.a.values.tolist(),
        pair.b.values.tolist(),
        split_intervals(reading.difference),
        split_intervals(reading.relative),
        reading.p_values.tolist(),
        p.tolist(),
        find_better_side(reading, p, settings).tolist(),
        find_limiting_error(reading).tolist(),
        reduction,
        (0.5 * ((pair.a.high - pair.a.low) + (pair.b.high - pair.b.low))).tolist(),
        (pair.a.rows + pair.b.rows).tolist(),
        reading.notes.tolist(),
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
            REMEDIES.get(limit),
            d.reason or (r.reason if settings.relative else None),
            share,
            always,
            pair.metric,
            width,
            n,
            note,
        )
        for key, a, b, d, r, q, adj, side, limit, share, width, n, note in zip(*columns, strict=True)
    ]


class Comparisons(Mapping[Any, Comparison], Plottable):
    """Comparisons keyed by metric name, or by slice keys and name: ``result["auc"]``, ``result["DE", "auc"]``.

    Parameters
    ----------
    by : sequence of str
        The slice columns.
    readings : sequence of Interpretation
        The intervals and p-values of each metric, as arrays with one element for each slice.
    unmatched : sequence of UnmatchedCell
        Metrics and slices that cannot be compared, such as those that exist on only one side.
    settings : ComparisonSettings
        Confidence level, look and multiplicity correction.
    """

    def __init__(
        self,
        by: Sequence[str],
        readings: Sequence[Interpretation],
        unmatched: Sequence[UnmatchedCell],
        settings: ComparisonSettings,
    ) -> None:
        self.by, self.unmatched, self.settings = tuple(by), tuple(unmatched), settings
        self.readings = tuple(readings)
        self._adjusted_p_values = settings.adjust_p_values(self.readings)

    @cached_property
    def _by_key(self) -> dict[Any, Comparison]:
        """All comparisons by key, ordered by slice. They are built on first access."""
        slices: dict[Key, list[Comparison]] = {}
        for reading, p in zip(self.readings, self._adjusted_p_values, strict=True):
            for one in build_comparisons(reading, p, self.settings):
                slices.setdefault(one.keys, []).append(one)
        return {(*c.keys, c.name) if c.keys else c.name: c for some in slices.values() for c in some}

    def __getitem__(self, key: Any) -> Comparison:
        rows = self._by_key
        if key not in rows:
            raise KeyError(f"there is no comparison {key!r}; pass a key such as {', '.join(map(repr, list(rows)[:5]))}")
        return rows[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._by_key)

    def __len__(self) -> int:
        return len(self._by_key)

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = None  # type: ignore[assignment]

    def table(self) -> Table:
        """Return a table with a row for each comparison.

        Metrics and slices that cannot be compared, for example because only one side has them, have rows at the end.
        """
        rows = [dict(zip(self.by, c.keys, strict=False)) | c.record() for c in self.values()]
        nothing = dict.fromkeys(COLUMNS, math.nan) | {"better": None, "limited_by": None}
        rows += [
            dict(zip(self.by, x.key, strict=False)) | nothing | {"metric": x.name, "reason": x.reason}
            for x in self.unmatched
        ]
        return Table(self.by, rows, LAYOUT)

    def to_pandas(self) -> Any:
        """Return the table as a pandas data frame."""
        return self.table().to_pandas()

    def to_polars(self) -> Any:
        """Return the table as a polars data frame."""
        return self.table().to_polars()

    def to_arrow(self) -> Any:
        """Return the table as an Arrow table."""
        return self.table().to_arrow()

    def to_dict(self) -> dict[str, list[Any]]:
        """Return the table as a dict from column names to lists of values."""
        return self.table().to_dict()

    def __repr__(self) -> str:
        if not self.by or self.settings.adjust is not None or len(self) < 2:
            return repr(self.table())
        return (
            f"{self.table()!r}\n"
            f'the p-values are not corrected for the number of comparisons ({len(self):,}); pass adjust="bh" or "holm"'
        )

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()
