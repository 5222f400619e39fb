"""The rule for values whose certified bounds are too wide, and the mark, the sentence and the warning for them."""

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
    "range_length_of",
    "remedy_of",
    "sentence_of",
    "together",
    "warn",
    "warn_of_table",
    "wide_of",
    "wide_of_cells",
]

MARK = "*"
"""What follows a wide value in a table; the sentence is printed below it."""

MOST = 0.05  # of the range, or of the value
ROUGHLY = 0.8
"""The share of the widest bounds that are not wide, up to which limits are not looked at after rounding."""
NARROW_BITS = 5  # a bucket is then at most 3 % of its value wide
NEGLIGIBLE = 2.0**-40
"""Bounds of a metric without a range that are narrower than this come from rounding: they never count as wide."""

RANGES = {"logit": 1.0, "fisher": 2.0}
"""How long the range is of metrics whose intervals are made on these scales."""


class WideValue(NamedTuple):
    """Values of one metric whose certified bounds are too wide.

    Parameters
    ----------
    name : str
        The name of the metric.
    size : int
        How many of its values there are.
    value, low, high : float
        The first of them, and its certified bounds.
    sentence : str
        What is said of such a value (`sentence_of`).
    remedy : str
        How to get narrower bounds.
    """

    name: str
    size: int
    value: float
    low: float
    high: float
    sentence: str
    remedy: str

    def message(self) -> str:
        """Return the text of the warning."""
        bounds = f"{self.low:.6g} to {self.high:.6g}"
        if self.size == 1:
            return f"{self.name} is {self.value:.6g}, but {self.sentence}: {bounds}. {self.remedy}"
        return (
            f"{self.name}: {self.sentence} for {self.size:,} values, such as {self.value:.6g} ({bounds}). {self.remedy}"
        )


def range_length_of(metric: Any) -> float | None:
    """Return the length of the range of a metric; None if a limit of its values is not known."""
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
    """Return which bounds are wider than 5 % of the metric's range, or of the value where it has no range.

    A value that is undefined or infinite is not wide.
    """
    value, low, high = (np.asarray(numbers, np.float64) for numbers in (values, lows, highs))
    known = np.isfinite(value)
    wide: NDArray[np.bool_] = np.zeros(value.shape, bool)
    wide[known] = high[known] - low[known] > most_of(metric, np.abs(value[known]))
    return wide


def most_of(metric: Any, size: Any) -> Any:
    """Return how wide the bounds of a value of some size may be."""
    length = range_length_of(metric)
    if length is not None:
        return MOST * length
    # A calibration slope of 0.01 that is known to 0.001 says as much as one of 1.
    best = about_of(metric).best
    least = abs(best) if isinstance(best, float) else 0.0
    return np.maximum(MOST * np.maximum(size, least), NEGLIGIBLE)


def sentence_of(metric: Any) -> str:
    """Return the sentence that repr, tables, terminal, page and warnings have for a value with wide bounds."""
    what = "value" if range_length_of(metric) is None else "metric's range"
    return f"the certified bounds are wider than 5 % of the {what}"


def wide_values(metric: Any, name: str, state: Any, value: Any, bounds: tuple[Any, Any]) -> list[WideValue]:
    """Return what is wide of a value of one cell: one `WideValue`, or nothing.

    Parameters
    ----------
    metric : Metric
        The metric that the value is of.
    name : str
        What the metric is called.
    state : State
        The state that the value is of.
    value, bounds
        A number or a vector of numbers, with its bounds. Curves are ignored: they have no one value to rely on.
    """
    if isinstance(value, float):
        if not math.isfinite(value) or not bounds[1] - bounds[0] > most_of(metric, abs(value)):
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
    """Return how to get narrower bounds, the likeliest way first."""
    known = {f.name: getattr(metric, f.name) for f in fields(metric)}
    ways = []
    bits, given = getattr(state, "bits", None), known.get("bits")
    saturated = getattr(state, "saturated", False)
    coarse = given is not None and _default(metric, "bits") is None
    if coarse:
        ways.append(f"the default bits= in place of {given}")
    if saturated:
        ways.append('scale="logit" and the logits in place of the probabilities, most of which are near 0 or 1')
    if known.get("exact") is False:
        ways.append("exact=True, which keeps every different score")
    rows = state.facts().get("rows")
    if "limit" in known and rows:
        ways.append(f"limit={rows}, which keeps so many rows of each cell exactly")
    if "bits" in known and bits is not None and not coarse and not saturated:
        ways.append(f"more bits= than {bits}")
    if not ways:
        return getattr(state, "when_wide", "")
    return f"Count the rows again with {', or with '.join(ways)}."


def _default(metric: Any, name: str) -> Any:
    """The default of a setting."""
    return next(f.default for f in fields(metric) if f.name == name)


# -- warnings ---------------------------------------------------------------------------------------------------------


def warn(found: Sequence[WideValue], warned: set[str], stacklevel: int) -> None:
    """Warn of the metrics that the object has not warned of."""
    new = [one for one in found if one.name not in warned]
    if new:
        warned.update(one.name for one in new)
        warnings.warn("\n".join(one.message() for one in new), WideBoundsWarning, stacklevel=stacklevel + 1)


def together(found: Sequence[WideValue]) -> list[WideValue]:
    """Return wide values of many cells, one for each metric."""
    by_name: dict[str, WideValue] = {}
    for one in found:
        first = by_name.get(one.name)
        by_name[one.name] = one if first is None else first._replace(size=first.size + one.size)
    return list(by_name.values())


def warn_of_table(records: Sequence[Mapping[str, Any]], by: Sequence[str], stacklevel: int) -> None:
    """Warn once of all wide values of a table, and say how many there are."""
    wide = [r for r in records if r.get("wide")]
    if not wide:
        return
    first = wide[0]
    have = "has" if len(wide) == 1 else "have"
    place = ", ".join(f"{name}={first[name]!r}" for name in by if name in first)
    bounds = f"{first['bound_low']:.6g} to {first['bound_high']:.6g}"
    one = f"{first['metric']}{f' of {place}' if place else ''} is {first['value']:.6g}, but {first['wide'].sentence}"
    many = f'{len(wide):,} of {len(records):,} values of this table {have} wide bounds (see its column "reason")'
    warnings.warn(f"{many}: {one}: {bounds}. {first['wide'].remedy}", WideBoundsWarning, stacklevel=stacklevel + 1)


# -- which bounds may be wide -----------------------------------------------------------------------------------------


def wide_of(metric: Any, name: str, found: Reading) -> list[WideValue]:
    """Return what is wide of the value of one cell, under a name.

    Bounds are computed only where they may be wide: most values are exact, or the limits before rounding are narrow.
    """
    if not may_be_wide(metric, found.state) or found.is_certain or not _is_roughly_wide(metric, found):
        return []
    return wide_values(metric, name, found.state, found.value, found.bounds)


def wide_of_cells(name: str, cells: CellReadings) -> list[WideValue]:
    """Return what is wide of the values of all front cells."""
    metric, state = cells.metric, cells.state
    if not may_be_wide(metric, state):
        return []
    whole = cells.at_once
    if whole is None or not whole.has_bounds:
        return together([wide for one in cells for wide in wide_of(metric, name, one)])
    numbers = whole.value, *whole.bounds
    places = np.flatnonzero(are_wide(metric, *numbers))
    if not len(places):
        return []
    value, low, high = (float(each[places[0]]) for each in numbers)
    found = wide_values(metric, name, state.cell(int(places[0])), value, (low, high))
    return [found[0]._replace(size=len(places))]


def may_be_wide(metric: Any, state: State) -> bool:
    """Return whether the bounds of a value, or of one cell, may be wide: a check that costs next to nothing.

    Bounds are narrow where every bucket holds one number. Those of a quantile are the edges of a bucket, which are at
    most 2**-bits of the value apart. Bounds that hold the rounding of weights alone are narrow, too.
    """
    name = exactness_part(state)
    if not name:
        return bool(getattr(state, "when_wide", ""))
    if not is_off_grid(state):
        return False
    return not (about_of(metric).quantile is not None and getattr(state, "bits", 0) >= NARROW_BITS)


def _is_roughly_wide(metric: Any, found: Reading) -> bool:
    """Return whether bounds may be wide once they are rounded, from the limits before that, which are there."""
    if found.has_bounds or "rounded" in found.state.cells.flats:
        return True
    for limits in found.numbers:
        if limits is None:
            continue
        try:
            low, high = float(limits.low), float(limits.high)
        except OverflowError:
            # A limit beyond all float64 stands for one that does not exist.
            return True
        if high - low > ROUGHLY * float(most_of(metric, min(abs(low), abs(high)))):
            return True
    return False


def exactness_part(state: Any) -> str:
    """Return the name of the part that says whether a cell is exact, a flag or the level of buckets; "" if none does."""
    kind: Any = type(state)
    return _exactness_part(kind)


@functools.cache
def _exactness_part(kind: Any) -> str:
    named = [n for n, p in kind.declared.items() if n == "off_grid" or getattr(p, "form", "") == "level"]
    return named[0] if named else ""


def is_off_grid(state: Any) -> bool:
    """Return whether a cell of a state has numbers that its buckets do not show exactly."""
    # Groups that wait on disk have no cells to look at, and declare no such part.
    name = exactness_part(state)
    if not name:
        return False
    held = state.cells.flats[name]
    return bool(held.item() if held.size == 1 else held.any())
