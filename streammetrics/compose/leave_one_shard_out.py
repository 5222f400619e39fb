"""Leave-one-shard-out values: the value of a metric without each shard of units, for the delete-one-group jackknife.

The total of all shards is computed once, and one shard at a time is subtracted from it. States that cannot subtract are
merged again from all other shards, which takes longer.
"""

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
from ..statistics.score_readouts import count_pairs_without, divide_integers
from ..statistics.scores import ScoreHistogram

__all__ = ["check_cells", "leave_one_out", "shard_of", "table_by_shard"]

NAN = float("nan")
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def shard_of(state: State) -> Ints:
    """Return the shard number of each cell of a state whose last axis is the shard."""
    words, column = state.cells.vocabularies[-1], state.cells.keys[:, -1]
    return np.asarray(words.values, np.int64)[column] if len(column) else column


def merge_shards(shards: State) -> State:
    """Return the state without the shard axis: the shards of each cell are added up."""
    return shards.rollup(*shards.axes[:-1])


def cells_of_shards(shards: State) -> Ints:
    """Return, for each sharded cell, the index of its cell in the result of `merge_shards`."""
    keys = shards.cells.keys[:, :-1]
    if not len(keys) or not keys.shape[1]:
        return np.zeros(len(keys), np.int64)
    # Keys are sorted, with the shard as the last column, so cells with equal other columns are adjacent.
    new = np.append(False, (keys[1:] != keys[:-1]).any(axis=1))
    return np.cumsum(new)


def table_by_shard(shards: State, numbers: NDArray[Any], count: int, cells: int) -> Floats:
    """Return numbers of sharded cells as a table of shape (count, cells), with 0 for empty shards."""
    out = np.zeros((count, cells))
    out[shard_of(shards), cells_of_shards(shards)] = numbers
    return out


def check_cells(whole: State, shards: State) -> None:
    """Raise StateFormatError unless the shards add up to the keys and row counts of `whole`, the state without shards."""
    at, total = cells_of_shards(shards), np.zeros(len(whole), np.int64)
    fits = not whole.axes or _have_same_keys(whole, shards, np.flatnonzero(np.diff(at, prepend=-1)))
    if fits:
        np.add.at(total, at, shards.row_counts)
    if not fits or not np.array_equal(total, whole.row_counts):
        raise StateFormatError("the shards do not contain the rows of the state at full resolution")


def _have_same_keys(whole: State, shards: State, firsts: Ints) -> bool:
    """Return whether shards and state have the same keys; `firsts` are the first sharded cells of each key."""
    same = np.array_equal(shards.cells.keys[firsts, :-1], whole.cells.keys)
    return same and all(map(Vocabulary.equals, shards.cells.vocabularies[:-1], whole.cells.vocabularies))


def leave_one_out(name: str, metric: Any, binding: Any, shards: State, count: int) -> dict[str, Floats]:
    """Return each number of a metric without each shard, by name: arrays of shape (count, cells), NaN if undefined.

    Parameters
    ----------
    name : str
        The name of the metric, from which the names of its numbers follow.
    metric : Metric
        The metric.
    binding : Binding
        The binding with which its state is read.
    shards : State
        The sharded state; the shard is its last axis.
    count : int
        The number of shards.
    """
    # For each sharded cell, `of` is its shard (a row of the result), and `at` its cell without shards (a column).
    of, at = shard_of(shards), cells_of_shards(shards)
    cells = int(at.max(initial=-1)) + 1 if len(shards.axes) > 1 else 1
    statistic = about_of(metric).pair_statistic
    if statistic is not None and type(shards) is ScoreHistogram:
        # Metrics of pairs, such as AUC: one pass over the histogram counts the pairs without each shard.
        pairs = count_pairs_without(shards, at, cells)
        if pairs is not None:
            all_shards, less_one = (divide_integers(*statistic(*each.T)) for each in pairs)
            table = np.repeat(all_shards[None], count, axis=0)
            table[of, at] = less_one
            return {name: table}
    # All other metrics: subtract one shard at a time from the total.
    total = merge_shards(shards)
    rows_of_cells, subtracts = total.total_row_counts, total.can_subtract
    out: dict[str, Floats] = {}
    for k in range(count):
        cells_of_shard = np.flatnonzero(of == k)
        rows_left = rows_of_cells.copy()
        rows_left[at[cells_of_shard]] -= shards.total_row_counts[cells_of_shard]
        rest = total
        if len(cells_of_shard) and subtracts:
            rest = total.subtract(merge_shards(shards.select(cells_of_shard)))
        elif len(cells_of_shard):
            # Slower: merge all other shards.
            rest = merge_shards(shards.select(np.flatnonzero(of != k)))
        rest = binding.correct_state(rest)
        values = CellReadings(metric, rest).values if rest.axes else [metric.reading(rest).value]
        # Cells without any row outside of the shard are missing in `rest`; their values stay NaN.
        for number, numbers in numbers_of(name, values).items():
            has_rows = rows_left > 0 if rest.axes else slice(None)
            out.setdefault(number, np.full((count, cells), NAN))[k, has_rows] = numbers
    return out
