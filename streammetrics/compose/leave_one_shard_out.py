"""What metrics say without each shard of units: all shards together, less one after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import StateFormatError
from ..reading.about import about_of
from ..reading.reading import CellReadings
from ..reading.replicates import numbers_of
from ..state.axes import Vocabulary
from ..state.state import State
from ..statistics.score_readouts import pairs_without, quotients
from ..statistics.scores import ScoreHistogram

__all__ = ["by_shard", "check_cells", "deleted", "shard_of"]

NAN = float("nan")
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def shard_of(state: State) -> Ints:
    """The shard of each front cell; shards are the last axis."""
    words, column = state.cells.words[-1], state.cells.keys[:, -1]
    return np.asarray(words.values, np.int64)[column] if len(column) else column


def together(shards: State) -> State:
    """The shards of each cell as one."""
    return shards.rollup(*shards.axes[:-1])


def places(shards: State) -> Ints:
    """Which cell of `together` each cell of the shards belongs to."""
    keys = shards.cells.keys[:, :-1]
    if not len(keys) or not keys.shape[1]:
        return np.zeros(len(keys), np.int64)
    new = np.append(False, (keys[1:] != keys[:-1]).any(axis=1))  # keys are sorted, shards last
    return np.cumsum(new)


def by_shard(shards: State, numbers: NDArray[Any], count: int, cells: int) -> Floats:
    """Numbers of the cells of shards as a table, (count, cells); 0 where no unit fell."""
    out = np.zeros((count, cells))
    out[shard_of(shards), places(shards)] = numbers
    return out


def check_cells(whole: State, shards: State) -> None:
    """Raise unless shards have the cells, by key, and the rows that the state beside them has."""
    at, total = places(shards), np.zeros(len(whole), np.int64)
    fits = not whole.axes or _same_keys(whole, shards, np.flatnonzero(np.diff(at, prepend=-1)))
    if fits:
        np.add.at(total, at, shards.rows_seen)
    if not fits or not np.array_equal(total, whole.rows_seen):
        raise StateFormatError("the shards of units have not the rows of the state beside them")


def _same_keys(whole: State, shards: State, firsts: Ints) -> bool:
    """Whether the first shards of each cell are of the cells that a state has; ranks of keys are of the same words."""
    same = np.array_equal(shards.cells.keys[firsts, :-1], whole.cells.keys)
    return same and all(map(Vocabulary.same, shards.cells.words[:-1], whole.cells.words))


def deleted(name: str, metric: Any, binding: Any, shards: State, count: int) -> dict[str, Floats]:
    """Return each number of a metric without each shard, (count, cells) by name; NaN where it is undefined.

    Parameters
    ----------
    name : str
        Of the metric: its numbers are called by it.
    metric : Metric
        What computes.
    binding : Binding
        How its state is read.
    shards : State
        What was seen, by any axes and, last, by shard.
    count : int
        How many shards there are.
    """
    of, at = shard_of(shards), places(shards)
    cells = int(at.max(initial=-1)) + 1 if len(shards.axes) > 1 else 1
    statistic = about_of(metric).pair_statistic
    if statistic is not None and type(shards) is ScoreHistogram:
        pairs = pairs_without(shards, at, cells)
        if pairs is not None:
            all_shards, less_one = (quotients(*statistic(*each.T)) for each in pairs)
            table = np.repeat(all_shards[None], count, axis=0)
            table[of, at] = less_one
            return {name: table}
    total = together(shards)
    seen, subtracts = total.seen, total.subtracts
    out: dict[str, Floats] = {}
    for k in range(count):
        mine = np.flatnonzero(of == k)
        left = seen.copy()
        left[at[mine]] -= shards.seen[mine]
        rest = total
        if len(mine) and subtracts:
            rest = total.subtract(together(shards.select(mine)))
        elif len(mine):  # all others together, which takes longer
            rest = together(shards.select(np.flatnonzero(of != k)))
        rest = binding.read(rest)
        values = CellReadings(metric, rest).values if rest.axes else [metric.reading(rest).value]
        for number, found in numbers_of(name, values).items():
            kept = left > 0 if rest.axes else slice(None)
            out.setdefault(number, np.full((count, cells), NAN))[k, kept] = found
    return out
