"""Values whose certified bounds are too wide to be useful.

This module contains the rule for "too wide", and the texts and warnings that tell the user about such values.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import WideBoundsWarning
from ..state.state import State
from .about import About, about_of
from .reading import CellReadings, Reading

__all__ = [
    "MARK",
    "WideValue",
    "is_off_grid",
    "may_be_wide",
    "merge_wide_values",
    "range_length_of",
    "remedy_of",
    "sentence_of",
    "warn_of_table",
    "warn_of_wide_values",
    "wide_of",
    "wide_of_cells",
]

MARK = "*"
"""The mark after a value with wide bounds in a table. A sentence below the table explains the mark."""

LARGEST_SHARE = 0.05
"""Bounds are too wide if their width exceeds this share of the range of the metric, or of the value if it has no range."""
ROUGHLY = 0.8
"""A quick check uses the bounds before rounding. If their width is below this share of the largest allowed width,
rounding cannot make them too wide, so the final bounds are not computed."""
NARROW_BITS = 5
"""If a histogram has at least this many `bits`, the width of a bucket is at most about 3 % of the values in it, so the
bounds of quantiles are never too wide."""
NEGLIGIBLE = 2.0**-40
"""For a metric without a range, bounds narrower than this are due to rounding errors, so they never count as too wide."""

RANGES = {"logit": 1.0, "fisher": 2.0}
"""The length of the range of a metric that declares no range, derived from the scale of its intervals: proportions and
areas ("logit") lie between 0 and 1, and correlations ("fisher") between -1 and 1."""


class WideValue(NamedTuple):
    """A record of those values of one metric whose certified bounds are too wide, for marks in tables and for warnings.

    Parameters
    ----------
    name : str
        The name of the metric.
    size : int
        The number of values whose bounds are too wide.
    value, low, high : float
        The first of these values and its certified bounds.
    sentence : str
        The sentence that explains the mark in a table (see `sentence_of`).
    remedy : str
        Advice on how to get narrower bounds.
    """

    name: str
    size: int
    value: float
    low: float
    high: float
    sentence: str
    remedy: str

    def message(self) -> str:
        """Return the text of the warning about these values."""
        bounds = f"{self.low:.6g} to {self.high:.6g}"
        if self.size == 1:
            return f"{self.name} is {self.value:.6g}, but {self.sentence}: {bounds}. {self.remedy}"
        return (
            f"{self.name}: {self.sentence} for {self.size:,} values, such as {self.value:.6g} ({bounds}). {self.remedy}"
        )


def range_length_of(metric: Any) -> float | None:
    """Return the length of the range of a metric, such as 1 for AUC; None if the range is not bounded."""
    known = metric.__dict__
    if "_range_length" not in known:
        known["_range_length"] = _range_length(about_of(metric))
    length: float | None = known["_range_length"]
    return length


def _range_length(about: About) -> float | None:
    ends = about.nominal_range or about.value_range
    if ends == (None, None):
        return RANGES.get(about.interval_scale)
    low, high = ends
    return None if low is None or high is None else float(high - low)


def are_wide(metric: Any, values: Any, lows: Any, highs: Any) -> NDArray[np.bool_]:
    """Return a mask of the values whose bounds are too wide.

    Bounds are too wide if their width exceeds 5 % of the metric's range, or of the value if this range is unbounded
    (see `largest_width`). Bounds of undefined and infinite values never count as too wide.
    """
    value, low, high = (np.asarray(numbers, np.float64) for numbers in (values, lows, highs))
    known = np.isfinite(value)
    wide: NDArray[np.bool_] = np.zeros(value.shape, bool)
    wide[known] = high[known] - low[known] > largest_width(metric, np.abs(value[known]))
    return wide


def largest_width(metric: Any, size: Any) -> Any:
    """Return the largest width at which bounds are not too wide. `size` is |value|, as a number or an array."""
    length = range_length_of(metric)
    if length is not None:
        return LARGEST_SHARE * length
    # The largest width is a share of the value or of the best value (such as 1 for a calibration slope), whichever is
    # larger.
    best = about_of(metric).best
    least = abs(best) if isinstance(best, float) else 0.0
    return np.maximum(LARGEST_SHARE * np.maximum(size, least), NEGLIGIBLE)


def sentence_of(metric: Any) -> str:
    """Return the part of a message that says why the certified bounds of a value are too wide."""
    what = "value" if range_length_of(metric) is None else "metric's range"
    return f"the certified bounds are wider than 5 % of the {what}"


def wide_values(metric: Any, name: str, state: Any, value: Any, bounds: tuple[Any, Any]) -> list[WideValue]:
    """Return a list with one `WideValue` if the bounds of a value are too wide, otherwise an empty list.

    Parameters
    ----------
    metric : Metric
        The metric.
    name : str
        The name of the metric.
    state : State
        The state.
    value, bounds
        A number or a vector of numbers, with its bounds. Curves are ignored.
    """
    if isinstance(value, float):
        if not math.isfinite(value) or not bounds[1] - bounds[0] > largest_width(metric, abs(value)):
            return []
        return [WideValue(name, 1, value, *bounds, sentence_of(metric), remedy_of(metric, state))]
    if not (isinstance(value, np.ndarray) and value.ndim == 1):
        return []
    numbers = value, *bounds
    places = np.flatnonzero(are_wide(metric, *numbers))
    if not len(places):
        return []
    value, low, high = (float(each[places[0]]) for each in numbers)
    return [WideValue(name, len(places), value, low, high, sentence_of(metric), remedy_of(metric, state))]


def remedy_of(metric: Any, state: Any) -> str:
    """Return advice on how to get narrower bounds, with the most likely remedy first."""
    known = {f.name: getattr(metric, f.name) for f in fields(metric)}
    ways = []
    bits, bits_setting = getattr(state, "bits", None), known.get("bits")
    saturated = getattr(state, "is_saturated", False)
    coarse = bits_setting is not None and _default(metric, "bits") is None
    if coarse:
        ways.append(f"the default bits= in place of {bits_setting}")
    if saturated:
        ways.append('scale="logit" and the logits in place of the probabilities, most of which are near 0 or 1')
    if known.get("exact") is False:
        ways.append("exact=True, which keeps every distinct score")
    rows = state.facts().get("rows")
    if "limit" in known and rows:
        ways.append(f"limit={rows}, which keeps up to {rows:,} rows (of each slice) exactly")
    if "bits" in known and bits is not None and not coarse and not saturated:
        ways.append(f"bits= above {bits}")
    if not ways:
        return getattr(state, "when_wide", "")
    return f"Count the rows again with {', or with '.join(ways)}."


def _default(metric: Any, name: str) -> Any:
    """Return the default of the setting `name` of a metric."""
    return next(f.default for f in fields(metric) if f.name == name)


# -- warnings ---------------------------------------------------------------------------------------------------------


def warn_of_wide_values(values: Sequence[WideValue], warned: set[str], stacklevel: int) -> None:
    """Warn about values with wide bounds, but only once for each metric.

    Metrics whose names are in `warned` are skipped. The names of the other metrics are added to `warned`. `stacklevel`
    has the same meaning as if the caller called `warnings.warn` itself.
    """
    new = [one for one in values if one.name not in warned]
    if new:
        warned.update(one.name for one in new)
        warnings.warn("\n".join(one.message() for one in new), WideBoundsWarning, stacklevel=stacklevel + 1)


def merge_wide_values(values: Sequence[WideValue]) -> list[WideValue]:
    """Merge the `WideValue` records of many cells (such as slices) into one record for each metric."""
    by_name: dict[str, WideValue] = {}
    for one in values:
        first = by_name.get(one.name)
        by_name[one.name] = one if first is None else first._replace(size=first.size + one.size)
    return list(by_name.values())


def warn_of_table(records: Sequence[Mapping[str, Any]], by: Sequence[str], stacklevel: int) -> None:
    """Issue one warning if any values in a table have wide bounds.

    The warning contains the number of these values, and the first of them as an example. `stacklevel` has the same
    meaning as if the caller called `warnings.warn` itself.
    """
    wide = [r for r in records if r.get("wide")]
    if not wide:
        return
    first = wide[0]
    have = "has" if len(wide) == 1 else "have"
    place = ", ".join(f"{name}={first[name]!r}" for name in by if name in first)
    bounds = f"{first['bound_low']:.6g} to {first['bound_high']:.6g}"
    one = f"{first['metric']}{f' for {place}' if place else ''} is {first['value']:.6g}, but {first['wide'].sentence}"
    many = f'{len(wide):,} of {len(records):,} values of this table {have} wide bounds (see the column "reason")'
    warnings.warn(
        f"{many}. For example, {one}: {bounds}. {first['wide'].remedy}", WideBoundsWarning, stacklevel=stacklevel + 1
    )


# -- which bounds may be wide -----------------------------------------------------------------------------------------


def wide_of(metric: Any, name: str, reading: Reading) -> list[WideValue]:
    """Return a list with one `WideValue` if the bounds of a reading are wide, otherwise an empty list.

    Cheap checks come first. They usually suffice, because most values are exact, or their unrounded bounds are narrow.
    The bounds are computed only if these checks do not rule out wide bounds.
    """
    if not may_be_wide(metric, reading.state) or reading.is_certain or not _is_roughly_wide(metric, reading):
        return []
    return wide_values(metric, name, reading.state, reading.value, reading.bounds)


def wide_of_cells(name: str, cells: CellReadings) -> list[WideValue]:
    """Return a list with a single `WideValue` for all cells (such as slices) with wide bounds, or an empty list."""
    metric, state = cells.metric, cells.state
    if not may_be_wide(metric, state):
        return []
    whole = cells.stacked_reading
    if whole is None or not whole.has_bounds:
        return merge_wide_values([wide for one in cells for wide in wide_of(metric, name, one)])
    numbers = whole.value, *whole.bounds
    places = np.flatnonzero(are_wide(metric, *numbers))
    if not len(places):
        return []
    value, low, high = (float(each[places[0]]) for each in numbers)
    first_wide = wide_values(metric, name, state.read_cell(int(places[0])), value, (low, high))
    return [first_wide[0]._replace(size=len(places))]


def may_be_wide(metric: Any, state: State) -> bool:
    """Return whether any bounds may be too wide, according to a cheap check of the state and the metric.

    Bounds cannot be too wide in three cases:

    - Every bucket contains only one distinct number.
    - The metric is a quantile with enough bits. Its bounds are the edges of a bucket, which differ by at most 2**-bits
      times the value.
    - The bounds allow only for the rounding of weights.
    """
    name = exactness_part(state)
    if not name:
        return bool(getattr(state, "when_wide", ""))
    if not is_off_grid(state):
        return False
    return not (about_of(metric).quantile is not None and getattr(state, "bits", 0) >= NARROW_BITS)


def _is_roughly_wide(metric: Any, reading: Reading) -> bool:
    """Return whether bounds may be too wide, judging by the unrounded bounds, which are already known."""
    if reading.has_bounds or "rounded" in reading.state.cells.flats:
        return True
    for limits in reading.numbers:
        if limits is None:
            continue
        try:
            low, high = float(limits.low), float(limits.high)
        except OverflowError:
            # A bound that is too large for a float stands for "unknown", so the bounds are infinitely wide.
            return True
        if high - low > ROUGHLY * float(largest_width(metric, min(abs(low), abs(high)))):
            return True
    return False


def exactness_part(state: Any) -> str:
    """Return the name of the array that tells which cells (such as slices) are exact; "" if the state has none.

    The array is either "off_grid", which contains 1 for a cell in which a number was rounded to its bucket, or an array
    of levels. The level of a cell is 0 as long as all numbers are exact, and rises when its buckets become wider.
    """
    kind: Any = type(state)
    return _exactness_part(kind)


@functools.cache
def _exactness_part(kind: Any) -> str:
    named = [n for n, p in kind.declared_parts.items() if n == "off_grid" or getattr(p, "form", "") == "level"]
    return named[0] if named else ""


def is_off_grid(state: Any) -> bool:
    """Return whether any cell (such as a slice) contains numbers that its buckets do not represent exactly."""
    # A state without buckets, such as one whose rows are on disk, has no array that tells which cells are exact.
    name = exactness_part(state)
    if not name:
        return False
    flags = state.cells.flats[name]
    return bool(flags.item() if flags.size == 1 else flags.any())
