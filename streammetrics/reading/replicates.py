"""What a metric says of cells side by side, and what it would say without each shard of units: what inference reads."""

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
    """What n cells say without each of K shards of units.

    Parameters
    ----------
    plan : tuple
        The column of the unit, how many shards, and the kind of the keys ("" without rows): shards of two samples hold the
        same units only if these agree.
    deleted : float64, shape (K, n)
        The value without shard k, NaN where it is undefined; where no unit fell into a shard, the value of all shards at
        their resolution.
    weights : float64, shape (K, n)
        What every shard weighs; 0 where no unit fell.
    events : float64, shape (K, n)
        Positives by shard; rows, of a metric that knows none.
    below : float64, shape (K, n), optional
        Of a quantile, the weight of the values up to it, by shard.
    """

    plan: tuple[Any, ...]
    deleted: Floats
    weights: Floats
    events: Floats
    below: Floats | None = None

    def alike(self, other: Shards) -> bool:
        """Whether a unit is in the same shard of both."""
        kinds = {plan[2] for plan in (self.plan, other.plan) if plan[2]}
        return self.plan[:2] == other.plan[:2] and len(kinds) < 2


@dataclass(frozen=True, eq=False)
class Sample:
    """One number of a metric in n cells side by side.

    Parameters
    ----------
    name : str
        As the collection names it.
    metric : Metric
        Whose scale, and which values are better, inference reads.
    keys : sequence of tuple
        Of each cell, the values of its slicing columns; of no slices one, empty.
    values : float64, shape (n,)
        At full resolution.
    low, high : float64, shape (n,)
        Certified limits of the values.
    rows : int64, shape (n,)
        Rows of each cell.
    estimates : callable
        Without arguments: the estimate of each cell, if rows (queries, groups) are independent.
    shards : Shards, optional
        What it is without each shard of units; None without units.
    quantile : callable, optional
        Of a quantile: (cell, share) -> the value below which that share of the weight of the cell lies.
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
    """The key of each front cell on the columns of all axes, as users write it."""
    words, keys = state.cells.words, state.cells.keys
    if not len(words):
        return [()] * len(state)
    columns = [[words[i].key(rank) for rank in keys[:, i].tolist()] for i in range(len(words))]
    return list(zip(*columns, strict=True))


def numbers_of(name: str, values: Sequence[Any]) -> dict[str, Floats]:
    """The numbers of some values of a metric, each of all cells: of arrays by place, NaN in cells that have no such."""
    if all(isinstance(v, float) for v in values):
        return {name: np.array(values, np.float64)}
    each = [dict(named_numbers(name, v)) for v in values]
    return {n: np.array([e.get(n, NAN) for e in each]) for n in dict.fromkeys(n for e in each for n in e)}


def samples_of(name: str, metric: Any, state: State) -> list[Sample]:
    """Each number of a metric, of all front cells of a state."""
    lone = not state.axes  # one cell, whether or not it has rows
    whole = metric.reading(state) if lone else None
    cells = CellReadings(metric, state)
    values = [whole.value] if whole else cells.values
    limits = [whole.bounds] if whole else cells.bounds
    found = numbers_of(name, values)
    low, high = ([numbers_of(name, side) for side in zip(*limits, strict=True)]) or ({}, {})
    keys, rows = ([()] if lone else keys_of(state)), state.rows_seen
    rows = np.zeros(1, np.int64) if lone and not len(rows) else rows
    many = not all(isinstance(v, float) for v in values)

    def estimates(at: int) -> list[Estimate]:
        each = [estimate_of(metric, one) for one in ([whole] if whole else cells)]
        return [_component(e, at) for e in each] if many else each

    def quantile(cell: int, share: float) -> float:
        one: Any = state if lone else state.cell(cell)
        return value_below(one, share)

    below = None if about_of(metric).quantile is None else quantile
    return [
        Sample(n, metric, keys, v, low.get(n, v), high.get(n, v), rows, partial(estimates, at), None, below)
        for at, (n, v) in enumerate(found.items())
    ]


def _component(found: Estimate, at: int) -> Estimate:
    """The estimate of one of several classes, labels or outputs."""
    if found.reason is not None or np.ndim(found.value) == 0:
        return found
    one = {n: v[at] for n in ("value", "error", "degrees", "size") if np.ndim(v := getattr(found, n)) == 1}

    def ends(confidence: float) -> tuple[float, float]:
        low, high = found.limits(confidence)
        return float(low[at]), float(high[at])

    return found._replace(**one, ends=ends)
