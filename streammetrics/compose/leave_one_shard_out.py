"""Leave-one-shard-out values: a metric computed with each shard left out in turn, for the delete-one-group jackknife.

The total of all shards is computed once and copied for each shard. Each shard is then subtracted from its copy, all in
one operation. If the states do not support subtraction, all other shards are merged instead, which takes longer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import StateFormatError
from ..numerics.array_rows import expand_ranges
from ..reading.about import about_of
from ..reading.reading import CellReadings
from ..reading.replicates import ShardStates, numbers_of
from ..state.axes import Vocabulary
from ..state.cell_table import CellTable
from ..state.state import State
from ..statistics.bins import ScoreBins
from ..statistics.groups.closed_sums import SealedGroups
from ..statistics.groups.group_rows import GroupRows
from ..statistics.score_readouts import count_pairs_without, divide_integers
from ..statistics.scores import ScoreHistogram
from ..statistics.sums import ScoreSums

__all__ = [
    "check_cells",
    "count_events",
    "fold_shards",
    "leave_one_out",
    "reduce_groups",
    "shard_of",
    "split_by_cell",
    "table_by_shard",
]

NAN = float("nan")
MAX_BYTES = 1 << 24
"""The largest number of bytes of the leave-one-out states (all shards but one) that are computed at the same time."""
NEED_NEGATIVES = (ScoreSums, ScoreBins, ScoreHistogram, SealedGroups, GroupRows)
"""The statistics whose metrics are as imprecise with few negatives as with few positives."""
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def shard_of(state: State) -> Ints:
    """Return the shard number of each cell of a state whose last axis is the shard axis."""
    words, column = state.cells.vocabularies[-1], state.cells.keys[:, -1]
    return np.asarray(words.values, np.int64)[column] if len(column) else column


def merge_shards(shards: State) -> State:
    """Sum the shards of each slice, and return the sums as a state without the last axis (the shard)."""
    return shards.rollup(*shards.axes[:-1])


def fold_shards(shards: State, count: int) -> State:
    """Reduce the number of shards to `count`, which must divide the current number, by summing adjacent shards.

    The result equals a state built with `count` shards from the start: with K shards, the shard of a unit is the
    integer part of K * h, where h is the hash of the unit, scaled to a fraction below 1.
    """
    axes, words, keys = shards.axes, shards.cells.vocabularies, shards.cells.keys.copy()
    if axes[-1].size == count or not len(keys):
        return shards
    numbers = np.asarray(words[-1].values, np.int64) // (axes[-1].size // count)
    folded = Vocabulary.from_values(words[-1].kind, numbers)
    keys[:, -1] = folded.find_ranks(numbers)[keys[:, -1]]
    return shards.move_cells(keys, (*axes[:-1], axes[-1]._replace(size=count)), (*words[:-1], folded))


def reduce_groups(metric: Any, shards: Any, *, is_group: bool) -> Any:
    """Replace the rows of groups by sums over groups if possible, so that a shard can be subtracted from the total.

    Two conditions must hold. All rows of a group must be in the same shard, which is the case if the unit is the group
    (`is_group`). The metric must be computable from sums over groups alone; it then has the method `sealed_metric`.
    """
    return shards.to_subtractable() if is_group and hasattr(metric, "sealed_metric") else shards


def cells_of_shards(shards: State) -> Ints:
    """Return, for each cell (slice and shard), the index of its slice in the result of `merge_shards`."""
    keys = shards.cells.keys[:, :-1]
    if not len(keys) or not keys.shape[1]:
        return np.zeros(len(keys), np.int64)
    # Keys are sorted, with the shard as the last column, so cells with equal other columns are adjacent.
    new = np.append(False, (keys[1:] != keys[:-1]).any(axis=1))
    return np.cumsum(new)


def split_by_cell(shards: State, cells: int) -> ShardStates:
    """Return the shards of each slice; `cells` is the number of slices."""
    starts = np.searchsorted(cells_of_shards(shards), np.arange(cells + 1))
    return ShardStates(shards, np.stack([starts[:-1], starts[1:]], axis=1))


def count_events(counted: Any, shards: State, count: int, cells: int) -> tuple[Floats, NDArray[np.str_]]:
    """Return the number of events in each shard and slice, and the kind of event in each slice (such as "positives").

    The precision of an interval depends on the number of events. Events are the positives, with two exceptions: they
    are the negatives if the metric needs both classes and the slice has fewer negatives than positives, and the rows
    if the state does not count positives. `counted` is the state of `shards` before `reduce_groups`, `count` the
    number of shards, and `cells` the number of slices.
    """
    rows, positives = (
        table_by_shard(shards, each, count, cells) for each in (counted.row_counts, counted.positive_counts)
    )
    if type(counted).positive_counts is CellTable.positive_counts:
        return positives, np.full(cells, "rows")
    negatives = rows - positives
    is_rarer = isinstance(counted, NEED_NEGATIVES) & (negatives.sum(axis=0) < positives.sum(axis=0))
    return np.where(is_rarer, negatives, positives), np.where(is_rarer, "negatives", "positives")


def table_by_shard(shards: State, numbers: NDArray[Any], count: int, cells: int) -> Floats:
    """Arrange `numbers`, which has one element for each cell (slice and shard), as a table of shape (shards, slices).

    A shard without rows gets 0. `count` is the number of shards, and `cells` the number of slices.
    """
    out = np.zeros((count, cells))
    out[shard_of(shards), cells_of_shards(shards)] = numbers
    return out


def check_cells(whole: State, shards: State) -> None:
    """Raise StateFormatError unless `whole` (without shards) has the same keys and row counts as the merged shards."""
    at, total = cells_of_shards(shards), np.zeros(len(whole), np.int64)
    fits = not whole.axes or _have_same_keys(whole, shards, np.flatnonzero(np.diff(at, prepend=-1)))
    if fits:
        np.add.at(total, at, shards.row_counts)
    if not fits or not np.array_equal(total, whole.row_counts):
        raise StateFormatError("the state is corrupt: the rows of the shards do not add up to the rows of the total")


def _have_same_keys(whole: State, shards: State, firsts: Ints) -> bool:
    """Return whether `whole`, a state without shards, has the same keys as `shards` (apart from the shard number).

    `firsts` holds the index of the first shard of each key.
    """
    same = np.array_equal(shards.cells.keys[firsts, :-1], whole.cells.keys)
    return same and all(map(Vocabulary.equals, shards.cells.vocabularies[:-1], whole.cells.vocabularies))


def leave_one_out(name: str, metric: Any, binding: Any, shards: State, count: int) -> dict[str, Floats]:
    """Compute the leave-one-out values of a metric: for each shard, its value from all other shards.

    Parameters
    ----------
    name : str
        The name of the metric, used as the prefix of the keys of the result.
    metric : Metric
        The metric.
    binding : Binding
        The columns of the state. The binding also corrects each state from which values are read (`correct_state`).
    shards : State
        The state split by shard; its last axis is the shard.
    count : int
        The number of shards.

    Returns
    -------
    dict of str to array
        An array for each number that the metric returns. Element (k, i) is the value of slice i without shard k, or
        NaN if it is undefined.
    """
    # For each cell of `shards`, `of` is its shard (the row of the result) and `at` its slice (the column).
    of, at = shard_of(shards), cells_of_shards(shards)
    cells = int(at.max(initial=-1)) + 1 if len(shards.axes) > 1 else 1
    statistic = about_of(metric).pair_statistic
    if statistic is not None and type(shards) is ScoreHistogram:
        # AUC and similar metrics are ratios of pair counts. One pass over the histogram counts the pairs that remain
        # without each shard.
        pairs = count_pairs_without(shards, at, cells)
        if pairs is not None:
            all_shards, less_one = (divide_integers(*statistic(*each.T)) for each in pairs)
            table = np.repeat(all_shards[None], count, axis=0)
            table[of, at] = less_one
            return {name: table}
    # For all other metrics, compute one state for each shard that is left out, a few at a time to limit memory.
    total = merge_shards(shards)
    # Leaving out a shard without rows does not change the value, so start with the value of all shards.
    tables = {n: np.repeat(x[None], count, axis=0) for n, x in _read_numbers(name, metric, binding, total).items()}
    # If one shard contains all rows of a slice, leaving it out makes the value of the slice undefined. In a metric
    # without slices, leaving out a shard that contains all rows gives the value of the metric before any rows.
    is_only = shards.total_row_counts == total.total_row_counts[at]
    of_no_rows = _read_numbers(name, metric, binding, total.empty_copy()) if is_only.any() and not total.axes else {}
    for number, table in tables.items():
        table[of, at] = of_no_rows.get(number, NAN)
    others = np.flatnonzero(~is_only)
    for group in _group_shards(of[others], total.nbytes if total.can_subtract else shards.nbytes):
        some = others[group]
        rest = _without_each(shards, total, at, some)
        for number, numbers in _read_numbers(name, metric, binding, rest).items():
            tables.setdefault(number, np.full((count, cells), NAN))[of[some], at[some]] = numbers
    return tables


def _read_numbers(name: str, metric: Any, binding: Any, state: State) -> dict[str, Floats]:
    """Return the value of a metric in every cell (such as a slice) of a state, keyed by the name of the metric.

    If the value is a vector, each element has a name of its own. A state without axes has one cell.
    """
    state = binding.correct_state(state)
    return numbers_of(name, CellReadings(metric, state).values if state.axes else [metric.reading(state).value])


def _group_shards(of: Ints, nbytes: int) -> Iterator[Ints]:
    """Split the cells into groups of whole shards that can be processed within `MAX_BYTES`; yield the cell indices.

    `of` is the shard of each cell, and `nbytes` the memory needed to leave out one shard. A group contains at least one
    shard, even if that takes more memory.
    """
    group = of // max(MAX_BYTES // max(nbytes, 1), 1)
    for number in np.unique(group).tolist():
        yield np.flatnonzero(group == number)


def _without_each(shards: State, total: State, at: Ints, cells: Ints) -> State:
    """Sum, for each of the given cells (a slice and a shard), the other shards of the slice.

    Return a state in which each sum has the key of its cell. `cells` contains the indices of the given cells. `total`
    contains the sum of all shards of each slice. For each cell of `shards`, `at` is the index of its slice in `total`.
    """
    own, words = shards.cells.keys[cells], shards.cells.vocabularies
    if total.can_subtract:
        whole = total.take_fronts(at[cells])
        whole = whole.with_cells(replace(whole.cells, axes=shards.axes, keys=own, vocabularies=words))
        return whole.subtract(shards.take_fronts(cells))
    # This state does not support subtraction, so add up all other shards, which takes longer.
    starts = np.searchsorted(at, np.arange(len(total) + 1))
    counts = np.diff(starts)[at[cells]]
    others, which = expand_ranges(starts[at[cells]], counts), np.repeat(np.arange(len(cells)), counts)
    is_other = others != cells[which]
    return shards.take_fronts(others[is_other]).move_cells(own[which[is_other]])
