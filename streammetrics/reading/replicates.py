"""The input to statistical inference: values of a metric in many cells (such as slices), with jackknife replicates.

Units, such as users, are split into shards. A replicate is the value computed without one of the shards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..state.state import State
from ..statistics.value_order import BucketWeights, bucket_weights, value_below
from .about import about_of
from .flatten import named_numbers
from .interval import Estimate
from .reading import CellReadings, estimate_of

__all__ = ["Sample", "ShardStates", "Shards", "keys_of", "numbers_of", "samples_of"]

NAN = float("nan")
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ShardStates:
    """The states of the shards (groups of users, for example) in each of n cells (such as slices).

    Comparing these states shows whether two samples contain the same data.

    Parameters
    ----------
    state : State
        A state whose last axis is the shard axis, with the shards of all cells.
    bounds : int64, shape (n, 2)
        The shards of cell i are at the positions bounds[i, 0] up to, but not including, bounds[i, 1] of `state`. Each
        position holds a complete shard, including (for example) all of its classes.
    """

    state: State
    bounds: NDArray[np.int64]

    def find_equal(self, other: ShardStates, candidates: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return a mask of those cells in the mask `candidates` whose shards have the same states in both samples."""
        # First compare all cells at once, which is much faster. If they are all equal, the cells need not be compared
        # one by one.
        if np.array_equal(self.bounds, other.bounds) and self.state == other.state:
            return candidates
        equal = np.zeros(len(candidates), bool)
        for i in np.flatnonzero(candidates).tolist():
            equal[i] = self._of_cell(i) == other._of_cell(i)
        return equal

    def _of_cell(self, cell: int) -> State:
        return self.state.drop_leading_axes(np.arange(*self.bounds[cell]), len(self.state.axes) - 1)


@dataclass(frozen=True, eq=False)
class Shards:
    """Jackknife replicates of n cells (such as slices), with units (such as users) split into K shards.

    Parameters
    ----------
    plan : tuple
        How units are split into shards: the column of the unit, the number of shards, and the type of the column's
        values ("" if there are no rows). Two samples have the same units in each shard only if these three agree.
    replicate : callable
        A function that takes a number of shards (K or a divisor of K) and returns `leave_one_out` for the shards folded
        to this number (see `fold`).
    weights : float64, shape (K, n)
        The weight of each shard; 0 for empty shards.
    events : float64, shape (K, n)
        The number of events in each shard, on which the precision of an interval depends. Events are the positives of a
        cell, or its negatives if the metric needs both and the cell has fewer negatives. If the metric has no
        positives, events are rows.
    below : float64, shape (K, n), optional
        Only for a quantile: the weight of the values up to the quantile in each shard.
    edges : float64, shape (2, K, n), optional
        Only for a quantile: for each shard, the weight of the values below the bucket that contains the quantile, and
        the weight of the values up to the end of this bucket.
    events_names : array of str, shape (n,), or str
        "positives", "negatives" or "rows": what the events of each cell are.
    states : ShardStates, optional
        The states of the shards. They are never folded.
    """

    plan: tuple[Any, ...]
    replicate: Callable[[int], Floats]
    weights: Floats
    events: Floats
    below: Floats | None = None
    edges: Floats | None = None
    events_names: Any = "positives"
    states: ShardStates | None = None

    @cached_property
    def leave_one_out(self) -> Floats:
        """The values without each shard in turn, as an array of shape (K, n); NaN where they are undefined.

        Row k contains the values of the n cells without the rows of shard k. If shard k is empty, these are the values
        of all shards together. All values come from the histogram buckets of the shards, which may be wider than the
        buckets from which `Sample.values` were computed. The array is computed when it is first needed.
        """
        return self.replicate(len(self.weights))

    def fold(self, count: int) -> Shards:
        """Return the data of the same units as if they had been split into `count` shards from the start.

        `count` must be a divisor of K.
        """
        unit, _, kind = self.plan
        fold = partial(_fold_rows, count=count)
        below, edges = (None if x is None else fold(x) for x in (self.below, self.edges))
        return replace(
            self,
            plan=(unit, count, kind),
            weights=fold(self.weights),
            events=fold(self.events),
            below=below,
            edges=edges,
        )

    def matches(self, other: Shards) -> bool:
        """Return whether each unit is in the same shard in both samples, so that their replicates can be paired."""
        kinds = {plan[2] for plan in (self.plan, other.plan) if plan[2]}
        return self.plan[:2] == other.plan[:2] and len(kinds) < 2


def _fold_rows(table: Floats, count: int) -> Floats:
    """Sum groups of adjacent rows of a table, or of each table in a stack, so that `count` rows remain."""
    *stack, shards, cells = table.shape
    folded: Floats = np.add.reduce(table.reshape(*stack, count, shards // count, cells), axis=-2)
    return folded


@dataclass(frozen=True, eq=False)
class Sample:
    """The values of one scalar (a metric, or one element of a vector metric) in n cells, such as slices.

    Parameters
    ----------
    name : str
        The name of the scalar in the collection.
    metric : Metric
        The metric. It declares the scale for intervals, and whether high or low values are better.
    keys : sequence of tuple
        The values of the slicing columns for each cell. Without slices there is one empty tuple.
    values : float64, shape (n,)
        The values of the scalar, computed from all histogram buckets of the state.
    low, high : float64, shape (n,)
        The certified bounds of the values.
    rows : int64, shape (n,)
        The number of rows in each cell.
    estimates : callable
        A function without arguments that returns, for each cell, the value with its standard error for independent rows
        (or queries or groups).
    shards : Shards, optional
        The jackknife replicates; None if no unit was declared.
    quantile : callable, optional
        Only for a quantile: a function that takes a cell and a share, and returns the value below which this share of
        the weight lies.
    buckets : callable, optional
        Only for a quantile: a function that takes a cell and returns the weight of each bucket of its values.
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
    buckets: Callable[[int], BucketWeights] | None = None


def keys_of(state: State) -> list[tuple[Any, ...]]:
    """Return the key of each cell (slice): a tuple of values of the slicing columns, such as a country and a day."""
    words, keys = state.cells.vocabularies, state.cells.keys
    if not len(words):
        return [()] * len(state)
    columns = [[words[i].read_key(rank) for rank in keys[:, i].tolist()] for i in range(len(words))]
    return list(zip(*columns, strict=True))


def numbers_of(name: str, values: Sequence[Any]) -> dict[str, Floats]:
    """Return a dict from the name of each scalar of a metric to the array of its values in all cells (such as slices).

    `name` is the name of the metric, and `values` contains its value in each cell. A scalar metric has one entry. A
    vector metric has one for each element, such as "f1_each/0", which is NaN in cells whose vector lacks this element.
    """
    if all(isinstance(v, float) for v in values):
        return {name: np.array(values, np.float64)}
    each = [dict(named_numbers(name, v)) for v in values]
    return {n: np.array([e.get(n, NAN) for e in each]) for n in dict.fromkeys(n for e in each for n in e)}


def samples_of(name: str, metric: Any, state: State) -> list[Sample]:
    """Return one `Sample` of all cells (slices) for a scalar metric, or one for each element of a vector metric."""
    # A state without axes (such as slices) is treated as one cell, even if it has no rows.
    is_single_cell = not state.axes
    whole = metric.reading(state) if is_single_cell else None
    cells = CellReadings(metric, state)
    values = [whole.value] if whole else cells.values
    limits = [whole.bounds] if whole else cells.bounds
    numbers = numbers_of(name, values)
    # If there are no cells, `limits` is empty, so `zip` yields neither lower nor upper bounds.
    low, high = ([numbers_of(name, side) for side in zip(*limits, strict=True)]) or ({}, {})
    keys, rows = ([()] if is_single_cell else keys_of(state)), state.row_counts
    rows = np.zeros(1, np.int64) if is_single_cell and not len(rows) else rows
    many = not all(isinstance(v, float) for v in values)

    # Standard errors for independent rows are computed only on request, because comparisons of sharded metrics do not
    # need them.
    def estimates(at: int) -> list[Estimate]:
        each = [estimate_of(metric, one) for one in ([whole] if whole else cells)]
        return [_element_estimate(e, at) for e in each] if many else each

    def cell_state(cell: int) -> Any:
        return state if is_single_cell else state.read_cell(cell)

    def quantile(cell: int, share: float) -> float:
        return value_below(cell_state(cell), share)

    def buckets(cell: int) -> BucketWeights:
        return bucket_weights(cell_state(cell))

    has_quantile = about_of(metric).quantile is not None and not many
    of_quantile = (quantile, buckets) if has_quantile else ()
    return [
        Sample(n, metric, keys, v, low.get(n, v), high.get(n, v), rows, partial(estimates, at), None, *of_quantile)
        for at, (n, v) in enumerate(numbers.items())
    ]


def _element_estimate(estimate: Estimate, at: int) -> Estimate:
    """Return the estimate for the class, label or output at index `at` of an estimate whose fields are arrays."""
    if estimate.reason is not None or np.ndim(estimate.value) == 0:
        return estimate
    one = {n: v[at] for n in ("value", "error", "degrees", "size") if np.ndim(v := getattr(estimate, n)) == 1}

    def ends(confidence: float) -> tuple[float, float]:
        low, high = estimate.limits(confidence)
        return float(low[at]), float(high[at])

    return estimate._replace(**one, ends=ends)
