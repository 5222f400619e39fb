"""Samples for inference: the values of a metric in many cells (such as slices), with leave-one-shard-out replicates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..state.state import State
from ..statistics.value_order import value_below
from .about import about_of
from .flatten import named_numbers
from .interval import Estimate
from .reading import CellReadings, estimate_of

__all__ = ["Sample", "Shards", "keys_of", "numbers_of", "samples_of"]

NAN = float("nan")
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Shards:
    """Leave-one-shard-out values of n cells (such as slices) and K shards of units (users).

    Parameters
    ----------
    plan : tuple
        The column of the unit, the number of shards, and the kind of the keys ("" without rows). Two samples have the same
        units in each shard only if these agree.
    leave_one_out : float64, shape (K, n)
        The value without shard k; NaN where it is undefined. For an empty shard it is the value of all shards, at the
        resolution of the shards.
    weights : float64, shape (K, n)
        The weight of each shard; 0 for empty shards.
    events : float64, shape (K, n)
        The positives of each shard; the rows if the metric has no positives.
    below : float64, shape (K, n), optional
        For a quantile: the weight of the values up to the quantile, by shard.
    """

    plan: tuple[Any, ...]
    leave_one_out: Floats
    weights: Floats
    events: Floats
    below: Floats | None = None

    def matches(self, other: Shards) -> bool:
        """Return whether every unit is in the same shard of both."""
        kinds = {plan[2] for plan in (self.plan, other.plan) if plan[2]}
        return self.plan[:2] == other.plan[:2] and len(kinds) < 2


@dataclass(frozen=True, eq=False)
class Sample:
    """One number of a metric in n cells, such as slices.

    Parameters
    ----------
    name : str
        The name in the collection.
    metric : Metric
        The metric; inference reads its scale and which values are better.
    keys : sequence of tuple
        The values of the slicing columns of each cell; one empty tuple without slices.
    values : float64, shape (n,)
        The values, from states at full resolution (all histogram buckets).
    low, high : float64, shape (n,)
        The certified bounds of the values.
    rows : int64, shape (n,)
        The rows of each cell.
    estimates : callable
        Returns the estimate of each cell, assuming independent rows, queries or groups; it takes no arguments.
    shards : Shards, optional
        The leave-one-shard-out values; None without units.
    quantile : callable, optional
        For a quantile: takes a cell and a share, and returns the value below which this share of the weight lies.
    """

    name: str
    metric: Any
    keys: Sequence[tuple[Any, ...]]
    values: Floats
    low: Floats
    high: Floats
    rows: NDArray[np.int64]
    estimates: Callable[[], Sequence[Estimate]]
    shards: Shards | None = None
    quantile: Callable[[int, float], float] | None = None


def keys_of(state: State) -> list[tuple[Any, ...]]:
    """Return the key of each cell: the values of the columns of all axes, as plain Python values."""
    words, keys = state.cells.vocabularies, state.cells.keys
    if not len(words):
        return [()] * len(state)
    columns = [[words[i].read_key(rank) for rank in keys[:, i].tolist()] for i in range(len(words))]
    return list(zip(*columns, strict=True))


def numbers_of(name: str, values: Sequence[Any]) -> dict[str, Floats]:
    """Return the numbers of a metric by name, each an array over cells. Cells without such an element have NaN."""
    if all(isinstance(v, float) for v in values):
        return {name: np.array(values, np.float64)}
    each = [dict(named_numbers(name, v)) for v in values]
    return {n: np.array([e.get(n, NAN) for e in each]) for n in dict.fromkeys(n for e in each for n in e)}


def samples_of(name: str, metric: Any, state: State) -> list[Sample]:
    """Return one sample for each number of a metric, with all cells of a state."""
    # Without axes there is one cell, whether or not it has rows.
    is_single_cell = not state.axes
    whole = metric.reading(state) if is_single_cell else None
    cells = CellReadings(metric, state)
    values = [whole.value] if whole else cells.values
    limits = [whole.bounds] if whole else cells.bounds
    numbers = numbers_of(name, values)
    # A state without cells has no limits.
    low, high = ([numbers_of(name, side) for side in zip(*limits, strict=True)]) or ({}, {})
    keys, rows = ([()] if is_single_cell else keys_of(state)), state.row_counts
    rows = np.zeros(1, np.int64) if is_single_cell and not len(rows) else rows
    many = not all(isinstance(v, float) for v in values)

    # Estimates are computed on request: comparisons by unit need the shards only.
    def estimates(at: int) -> list[Estimate]:
        each = [estimate_of(metric, one) for one in ([whole] if whole else cells)]
        return [_element_estimate(e, at) for e in each] if many else each

    def quantile(cell: int, share: float) -> float:
        one: Any = state if is_single_cell else state.read_cell(cell)
        return value_below(one, share)

    below = None if about_of(metric).quantile is None else quantile
    return [
        Sample(n, metric, keys, v, low.get(n, v), high.get(n, v), rows, partial(estimates, at), None, below)
        for at, (n, v) in enumerate(numbers.items())
    ]


def _element_estimate(estimate: Estimate, at: int) -> Estimate:
    """Return the estimate of one class, label or output from a stacked estimate."""
    if estimate.reason is not None or np.ndim(estimate.value) == 0:
        return estimate
    one = {n: v[at] for n in ("value", "error", "degrees", "size") if np.ndim(v := getattr(estimate, n)) == 1}

    def ends(confidence: float) -> tuple[float, float]:
        low, high = estimate.limits(confidence)
        return float(low[at]), float(high[at])

    return estimate._replace(**one, ends=ends)
