"""Fold, the common operation on states: each cell gets a key in a new table, and cells with equal keys are added up.

Merging, subtraction, roll-up, selection, totals, key limits and the expiry of epochs are all folds. They differ in the
new keys that they assign to the cells.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..errors import CounterOverflowError, IncompatibleStateError
from ..numerics.array_rows import put_rows
from . import tally
from .axes import Axis, Vocabulary, merge_vocabularies
from .cell_table import CellTable
from .cells import Cells
from .declare import CEILING, FORMS, LIMIT, UNKNOWN_EXTREME, Array, Flat, Tally, carry
from .levels import raise_levels
from .pair_levels import SIDES, find_needed_levels, raise_part_levels, split_sides
from .tally import Entries

__all__ = [
    "align_vocabularies",
    "check_capacity",
    "find_sort_order",
    "fold",
    "regroup",
    "regroup_states",
    "unite_rows",
    "unite_sorted_rows",
]

Ints = NDArray[np.int64]
MAX_CARRY_FREE_SUMS = 1 << 22
"""The number of sums that are added before carries are propagated. A sum is stored as two integers, and the second one is
below 2**40, so adding this many of them cannot overflow an int64."""
FOLD_BLOCK = 1 << 17
"""The number of exact rows that are converted to buckets at a time."""
S = TypeVar("S", bound="CellTable")


def fold(states: Sequence[S], *, sign: int = 1) -> S:
    """Add up states of one statistic; if `sign` is -1, subtract the second of two states from the first.

    Raises
    ------
    IncompatibleStateError
        Keys have different types, a part does not support subtraction, two states contain something that only one of
        them may contain (such as a given partition of groups), or the rows to subtract were not counted.
    CounterOverflowError
        A count or a sum would leave its range.
    """
    states = states[0].unify_parts(states)
    first = states[0]
    if sign > 0:
        names = ("approximate_rows", "weight_excess_bound", "approximate_dropped_rows")
        check_capacity(first, *(sum(getattr(s, n) for s in states) for n in names))
    vocabularies, keys = align_vocabularies(states)
    return _fold_by_keys(states, keys, first.cells.axes, vocabularies, sign=sign, ordered=True)


def check_capacity(state: CellTable, rows: float, excess: float, dropped: float = 0.0) -> None:
    """Raise an error if the numbers of rows, or their total weight, would exceed the range of a state's counters.

    Parameters
    ----------
    state : CellTable
        A state of the statistic that counts the rows.
    rows, excess : float
        The number of rows, and an upper bound on the difference between their total weight and their number.
    dropped : float
        The number of dropped rows.

    Raises
    ------
    CounterOverflowError
        The total number of counted and dropped rows, times `counts_per_row`, is at least 2**62; or, if there are
        weights, the bound on the total weight is at least 2**42.
    """
    name = type(state).__name__
    if (rows + dropped) * state.counts_per_row >= LIMIT:
        raise CounterOverflowError(f"{name} would exceed 2**62 rows; start a new state")
    if excess and rows + excess >= 2.0**42:
        raise CounterOverflowError(f"{name} would exceed a total weight of 2**42; scale the weights down")


def regroup(state: S, keys: Ints, axes: tuple[Axis, ...], vocabularies: tuple[Vocabulary, ...]) -> S:
    """Replace the key of each front cell (such as a slice) with the one in `keys`, and add up cells with equal keys."""
    return _fold_by_keys([state], [keys], axes, vocabularies, sign=1, ordered=False)


def regroup_states(states: Sequence[S], keys: Sequence[Ints]) -> S:
    """Replace the keys of all front cells in states whose vocabularies (key values) are equal, and add up the states.

    `keys` contains the new keys of each state, which may be unsorted.
    """
    cells = states[0].cells
    return _fold_by_keys(states, keys, cells.axes, cells.vocabularies, sign=1, ordered=False)


def _fold_by_keys(
    states: Sequence[S],
    keys: Sequence[Ints],
    axes: tuple[Axis, ...],
    vocabularies: tuple[Vocabulary, ...],
    *,
    sign: int,
    ordered: bool,
) -> S:
    """Add or subtract states after replacing the keys of their front cells; `keys` contains the new keys of each state.

    If `ordered` is true, the caller guarantees that the new keys of each state are sorted and unique.
    """
    first = states[0]
    parts = _collect_parts(states)
    table, fronts = unite_sorted_rows(keys) if ordered else unite_rows(keys)
    inner, inner_at, classes = _align_inner_keys(states, fronts)
    cells = len(table) if inner is None else len(inner)
    if sign < 0:
        _check_subtractable(states, parts)
    # at[i] contains, for each cell of state i, the index of the cell in the new table to which it is added.
    at = fronts if inner is None else inner_at
    leveled = first.folding is not None and _is_level_part(parts[first.folding[2]])
    # A small cell stores exact rows: numbers that are not in buckets. If a new cell is too large for that, convert its
    # exact rows to buckets before aligning the bucket widths (levels), because these rows may need wider buckets.
    if leveled:
        states = _fold_cells_with_levels(states, at, cells, sign)
    flats = {}
    for name, flat in parts.items():
        if isinstance(flat, Flat):
            maps, size = (fronts, len(table)) if flat.front or inner is None else (inner_at, cells)
            if (array := _fold_flat(states, flat, maps, size, sign)) is not None:
                flats[name] = array
    tallies: dict[str, Entries] = {}
    states = _raise_to_common_levels(states, parts, flats, at, cells, sign)
    entries_by_tally = {
        name: [_move_entries(s, name, m) for s, m in zip(states, at, strict=True)]
        for name, t in parts.items()
        if isinstance(t, Tally)
    }
    exact = None if first.folding is None or leveled else first.folding[0]
    for name, entries in entries_by_tally.items():
        if name != exact:
            entries_by_tally[name] = _canonicalize_entries(entries, at)
    # First convert the exact rows of large cells to buckets, so that only the remaining exact rows have to be sorted.
    if first.folding is not None and exact is not None:
        _fold_exact_rows(states, at, entries_by_tally, flats, cells, sign)
        entries_by_tally[exact] = _canonicalize_entries(entries_by_tally[exact], at)
    for name, aligned in entries_by_tally.items():
        tallies[name] = tally.sum_entries(aligned) if sign > 0 else tally.add_entries(aligned[0], aligned[1], -1)
    # The flag of a cell indicates that its buckets have lost precision. If a subtraction empties all of its buckets,
    # clear the flag.
    if first.folding is not None and sign < 0:
        _, rows, flag = first.folding
        if flag in flats:
            flats[flag] = flats[flag].copy()
            flats[flag][np.diff(tallies[rows].cell_starts(cells)) == 0] = 0
    return first.with_cells(Cells(axes, table, vocabularies, inner, classes, flats, tallies)).canonicalize(parts)


def _raise_to_common_levels(
    states: Sequence[S],
    parts: dict[str, Flat | Tally],
    flats: dict[str, Array],
    at: Sequence[Ints],
    cells: int,
    sign: int,
) -> Sequence[S]:
    """Widen the buckets of each cell to the bucket width (level) of its new cell, so that histograms can be added.

    For each state, `at` contains the indices of the new cells to which its cells are added; `cells` is the number of
    new cells.
    """
    for name, part in parts.items():
        if not isinstance(part, Tally) or part.level is None:
            continue
        bits = getattr(states[0], part.bits)
        if part.pairs and sign > 0:
            flats[part.level] = _find_common_levels(states, name, part, flats.get(part.level), at, cells)
        if part.level not in flats:
            continue
        raised = []
        for state, to in zip(states, at, strict=True):
            entries = raise_part_levels(
                part, state.cells.tallies[name], state.read_cells_named(part.level), flats[part.level][to], bits
            )
            tallies = {**state.cells.tallies, name: entries}
            raised.append(state.with_cells(replace(state.cells, tallies=tallies)))
        states = raised
    return states


def _find_common_levels(
    states: Sequence[S], name: str, part: Tally, common: Array | None, at: Sequence[Ints], cells: int
) -> Array:
    """Return the levels at which the sum of all states has few enough buckets, for histograms of pairs of numbers.

    A level determines a bucket width. `common` contains, for each new cell, the highest level of the cells that are
    added to it; it may be None. For each state, `at` contains the indices of the new cells to which its cells are
    added; `cells` is the number of new cells.
    """
    assert part.level is not None
    bits, sides_by_state = getattr(states[0], part.bits), []
    common = states[0].parts()[part.level].empty(states[0], cells) if common is None else common
    for state, to in zip(states, at, strict=True):
        sides, _ = split_sides(state.cells.tallies[name])
        own, new = state.read_cells_named(part.level)[:, :SIDES], common[to][:, :SIDES]
        sides = raise_levels(sides, own.reshape(-1), new.reshape(-1), bits, SIDES)
        sides_by_state.append(sides.move_cells(to, sides.cell_starts(len(state.cells)), ascending=_is_ascending(to)))
    return find_needed_levels(tally.sum_entries(sides_by_state), common, bits)


def _move_entries(state: CellTable, name: str, to: Ints) -> Entries:
    """Move the entries of each cell i to the cell with the index `to[i]`.

    The result is unsorted if the new cells are not in ascending order.
    """
    entries = state.cells.tallies[name]
    if _is_ascending(to):
        return entries.move_cells(to, state.entry_starts(name), ascending=True)
    return entries.assign_cells(np.repeat(to, np.diff(state.entry_starts(name))), int(to.max()) + 1)


def _canonicalize_entries(entries: Sequence[Entries], at: Sequence[Ints]) -> list[Entries]:
    """Sort the entries that `_move_entries` returned, and bring them to canonical form (see `tally.canonicalize`)."""
    return [
        tally.canonicalize(e) if _is_ascending(m) else tally.sort_entries(e) for e, m in zip(entries, at, strict=True)
    ]


def _is_ascending(at: Ints) -> bool:
    return len(at) < 2 or bool((at[1:] > at[:-1]).all())


def _collect_parts(states: Sequence[CellTable]) -> dict[str, Flat | Tally]:
    """Return the union of the parts of all states.

    All states of a class have the same parts if the class is imported. Otherwise, a state knows only the parts that its
    own bytes contain.
    """
    parts: dict[str, Flat | Tally] = {}
    for state in states:
        parts |= state.parts()
    return parts


def _check_subtractable(states: Sequence[CellTable], parts: dict[str, Flat | Tally]) -> None:
    for name, part in parts.items():
        is_present = any(name in s.cells.flats for s in states)
        if isinstance(part, Flat) and not FORMS[part.form].can_subtract and is_present:
            raise IncompatibleStateError(
                f"rows cannot be subtracted from a state that keeps a minimum, a maximum or entries of single states "
                f"({states[0].tag}: {name}); count the remaining rows again"
            )


# -- flats -----------------------------------------------------------------------------------------------------------


def _fold_flat(states: Sequence[CellTable], flat: Flat, maps: Sequence[Ints], cells: int, sign: int) -> Array | None:
    """Add or subtract one fixed-size part of all states; return None if no state has this part.

    `maps` contains, for each state, the indices of the new cells to which its cells are added.
    """
    name = flat.name
    if not any(name in s.cells.flats for s in states):
        return None
    form, rule = flat.form, FORMS[flat.form]
    arrays = [s.read_cells(flat) for s in states]
    out = np.full((cells, *arrays[0].shape[1:]), rule.identity, arrays[0].dtype)
    for i, (values, at) in enumerate(zip(arrays, maps, strict=True)):
        if not len(at):
            continue
        combine = np.subtract if i and sign < 0 and rule.combine is np.add else rule.combine
        is_ascending = _is_ascending(at)
        # Several cells of this state may have the same new key. Combine them first.
        if not is_ascending:
            values, at = _combine_rows(values, at, form)
        before = out if is_ascending and len(at) == cells else out.take(at, axis=0)
        if form in UNKNOWN_EXTREME and i and sign < 0:
            # If both states have the same minimum (or maximum), the row with that value may be one of the subtracted
            # rows. The minimum (or maximum) of the remaining rows is then unknown.
            after = np.where(before == values, UNKNOWN_EXTREME[form], before)
        elif form == "square" and combine is np.subtract:
            after = _subtract_squares(before, values)
        else:
            after = carry(form, combine(before, values))
        if before is out:
            out = after
        else:
            put_rows(out, at, after)
    _check_range(flat, out, sign)
    return out


def _combine_rows(values: Array, at: Ints, form: str) -> tuple[Array, Ints]:
    """Combine array rows that belong to the same new cell: add them up, or take their maximum or minimum.

    `at` contains the new cell of each array row. Return the combined rows and their cells, sorted by cell.
    """
    rule = FORMS[form]
    if rule.limbs and len(values) > MAX_CARRY_FREE_SUMS:
        step = MAX_CARRY_FREE_SUMS
        parts = [_combine_rows(values[i : i + step], at[i : i + step], form) for i in range(0, len(values), step)]
        values, at = np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts])
    order = np.argsort(at, kind="stable")
    ordered, to = values.take(order, axis=0), at[order]
    begins = np.flatnonzero(np.diff(to, prepend=-1))
    combined = carry(form, rule.combine.reduceat(ordered, begins))
    if rule.combine is np.add and ordered.size:
        _check_overflow(form, combined, ordered, begins)
    return combined, to[begins]


def _check_overflow(form: str, sums: Array, values: Array, begins: Ints) -> None:
    """Raise an error if a sum has exceeded its range; if it is a sum of squares, set it to CEILING instead."""
    top = values if not FORMS[form].limbs else values[..., -1 if form == "exact" else 0]
    if max(int(top.max()), -int(top.min())) * len(top) < LIMIT:
        return
    large = np.abs(np.add.reduceat(top.astype(np.float64), begins)) >= LIMIT
    if form == "square":
        sums[large] = (CEILING, 0)
    elif large.any():
        raise CounterOverflowError("a sum would leave its range (2**62 rows, or a total of 2**42); start a new state")


def _subtract_squares(ours: Array, theirs: Array) -> Array:
    """Subtract sums of squares; a difference is CEILING if either operand has reached CEILING."""
    saturated = (ours[..., 0] >= CEILING) | (theirs[..., 0] >= CEILING)
    difference = carry("fixed", ours - theirs)
    difference[saturated] = (CEILING, 0)
    return difference


def _check_range(flat: Flat, out: Array, sign: int) -> None:
    if not out.size:
        return
    if flat.form == "once" and out.max() > 1:
        where = np.argwhere(out > 1)[0][1:].tolist()
        raise IncompatibleStateError(
            f"{flat.name}: entry {', '.join(map(str, where))} is in both states, but must be in only one state"
        )
    if flat.form in ("count", "once", "square") and sign < 0:
        top = out if flat.form != "square" else out[..., 0]
        if top.min() < 0:
            raise IncompatibleStateError(
                f"{flat.name} would fall below zero: some of the subtracted rows were not counted here"
            )
    if flat.form in ("count", "signed"):
        top = out
    elif flat.form in ("fixed", "exact"):
        top = out[..., 0] if flat.form == "fixed" else out[..., -1]
    else:
        return
    if (out.size and int(top.max()) >= LIMIT) or int(top.min()) <= -LIMIT:
        raise CounterOverflowError(
            f"{flat.name} would leave its range (2**62 rows, or a total of 2**42); start a new state"
        )


# -- folding exact rows into buckets ---------------------------------------------------------------------------------


def _is_level_part(part: Flat | Tally) -> bool:
    return isinstance(part, Flat) and part.form == "level"


def _find_folded_cells(states: Sequence[CellTable], at: Sequence[Ints], cells: int, sign: int) -> Array:
    """Return a mask of the new cells in which exact rows (stored outside the buckets) must be converted to buckets.

    These are the cells with too many exact rows, and the cells that have buckets in any of the states. For each state,
    `at` contains the indices of the new cells to which its cells are added; `cells` is the number of new cells.
    """
    first = states[0]
    assert first.folding is not None
    exact, rows, _ = first.folding
    rows_of = np.zeros(cells, np.int64)
    folded = np.zeros(cells, bool)
    for state, to in zip(states, at, strict=True):
        coarse = state.rows_by_cell(rows)
        np.add.at(rows_of, to, state.rows_by_cell(exact) + coarse)
        folded[to[coarse > 0]] = True
    # A subtraction cannot make a cell larger, so only cells that have buckets in one of the states need buckets.
    if first.exact_rows_limit is None or sign < 0:
        return folded
    many = (rows_of > first.exact_rows_limit) & ~folded
    if many.any() and not first.folds_by_rows:
        many = first.select_folded_cells(_collect_exact_entries(states, at, many), many)
    return folded | many


def _collect_exact_entries(states: Sequence[CellTable], at: Sequence[Ints], mask: Array) -> Entries:
    """Return, as sorted entries, the exact rows (stored outside the buckets) in the new cells that `mask` selects."""
    assert states[0].folding is not None
    selected = []
    for state, to in zip(states, at, strict=True):
        entries = state.cells.tallies[state.folding[0]]  # type: ignore[index]
        cells = to[entries.cells]
        kept = mask[cells]
        moved = entries.select(kept).assign_cells(cells[kept], len(mask))
        selected.append(tally.canonicalize(moved) if _is_ascending(to) else tally.sort_entries(moved))
    return tally.sum_entries(selected)


def _fold_cells_with_levels(states: Sequence[S], at: Sequence[Ints], cells: int, sign: int) -> Sequence[S]:
    """Return the states, with exact rows converted to buckets of adaptive width in the cells that need buckets.

    The parameters are the same as for `_find_folded_cells`.
    """
    first = states[0]
    assert first.folding is not None
    exact, rows, level = first.folding
    folded = _find_folded_cells(states, at, cells, sign)
    if not folded.any():
        return states
    states_with_buckets = []
    for state, to in zip(states, at, strict=True):
        fine = state.cells.tallies[exact]
        is_folded = folded[to][fine.cells]
        if is_folded.any():
            buckets, levels = first.bucket_entries(fine.select(is_folded))
            own = state.read_cells_named(level).copy()
            own[: len(levels)] = np.maximum(own[: len(levels)], levels)
            tallies = {
                **state.cells.tallies,
                exact: tally.canonicalize(fine.select(~is_folded)),
                rows: tally.add_entries(state.cells.tallies[rows], buckets),
            }
            state = state.with_cells(replace(state.cells, flats={**state.cells.flats, level: own}, tallies=tallies))
        states_with_buckets.append(state)
    return states_with_buckets


def _fold_exact_rows(
    states: Sequence[CellTable],
    at: Sequence[Ints],
    entries_by_tally: dict[str, list[Entries]],
    flats: dict[str, Array],
    cells: int,
    sign: int,
) -> None:
    """Convert exact rows to buckets of fixed width in the cells that need buckets.

    Change `entries_by_tally` and `flats` in place. The other parameters are the same as for `_find_folded_cells`.
    """
    first = states[0]
    assert first.folding is not None
    exact, rows, flag = first.folding
    folded = _find_folded_cells(states, at, cells, sign)
    if not folded.any():
        return
    flats[flag] = flats[flag].copy()
    for i, (state, fine) in enumerate(zip(states, entries_by_tally[exact], strict=True)):
        buckets, kept = list[Entries](), list[Entries]()
        for block in _cut_between_cells(fine, state.entry_starts(exact)):
            is_folded = folded[block.cells]
            if is_folded.any():
                whole = slice(None) if is_folded.all() else is_folded
                bucketed, inexact = first.bucket_entries(block.select(whole))
                flats[flag][inexact] = 1
                buckets.append(bucketed)
                block = block.select(~is_folded)
            kept.append(block)
        if buckets:
            entries_by_tally[rows][i] = tally.add_entries(entries_by_tally[rows][i], tally.sum_entries(buckets))
            entries_by_tally[exact][i] = tally.concatenate(kept)


def _cut_between_cells(entries: Entries, starts: Ints) -> Iterator[Entries]:
    """Yield blocks of entries, to limit the memory for temporary arrays. All entries of a cell are in the same block.

    `starts` contains the index of the first entry of each cell, followed by the number of entries.
    """
    first = 0
    while first < len(entries):
        last = int(starts[min(int(np.searchsorted(starts, first + FOLD_BLOCK)), len(starts) - 1)])
        yield entries.select(slice(first, last))
        first = last


# -- keys ------------------------------------------------------------------------------------------------------------


def align_vocabularies(states: Sequence[CellTable]) -> tuple[tuple[Vocabulary, ...], list[Ints]]:
    """Return vocabularies that contain the keys of all states, and each state's keys as ranks in these vocabularies.

    The new ranks preserve the order of the keys, so sorted keys remain sorted.
    """
    keys = [s.cells.keys for s in states]
    vocabularies = list(states[0].cells.vocabularies)
    names = [n for a in states[0].cells.axes for n in a.names]
    for i, name in enumerate(names):
        vocabularies[i], new_ranks = merge_vocabularies(name, [s.cells.vocabularies[i] for s in states])
        for k, ranks in enumerate(new_ranks):
            if ranks is not None:
                column = keys[k][:, i]
                keys[k] = keys[k].copy()
                keys[k][:, i] = np.where(column < 0, column, ranks[np.maximum(column, 0)] if len(ranks) else column)
    return tuple(vocabularies), keys


def _align_inner_keys(
    states: Sequence[CellTable], fronts: Sequence[Ints]
) -> tuple[Ints | None, list[Ints], Vocabulary | None]:
    """Return the keys of the new inner cells, the new indices of each state's inner cells, and the class vocabulary.

    An inner cell is a group or class within a front cell (such as a slice). The keys are None if the statistic has no
    inner axis. The vocabulary is None unless the inner axis has classes.
    """
    if states[0].cells.inner_keys is None:
        return None, [], None
    tables, classes = [], states[0].cells.class_vocabulary
    ranks: list[Any] = [None] * len(states)
    if classes is not None:
        axis = states[0].inner_axis
        assert axis is not None
        classes, ranks = merge_vocabularies(
            ", ".join(axis.names), [s.cells.class_vocabulary or Vocabulary() for s in states]
        )
    ordered = True
    for state, to, rank in zip(states, fronts, ranks, strict=True):
        inner = state.cells.inner_keys
        assert inner is not None
        keys = inner.copy() if len(inner) else inner
        keys[:, 0] = to[inner[:, 0]] if len(to) else keys[:, 0]
        if rank is not None:
            keys[:, 1:] = rank[inner[:, 1:]]
        ordered &= _is_ascending(to)
        tables.append(keys)
    table, at = unite_sorted_rows(tables) if ordered else unite_rows(tables)
    return table, at, classes


def encode_rows(keys: Sequence[Ints]) -> list[Ints] | None:
    """Encode each row of several tables as one integer, so that the integers sort in the same order as the rows.

    Return None if the number of possible integers is 2**62 or more.
    """
    nonempty = [k for k in keys if len(k)]
    if not nonempty or not keys[0].shape[1]:
        return [np.zeros(len(k), np.int64) for k in keys]
    columns = range(keys[0].shape[1])
    low = [min(int(k[:, i].min()) for k in nonempty) for i in columns]
    extents = [max(int(k[:, i].max()) for k in nonempty) - low[i] + 1 for i in columns]
    if math.prod(extents) >= 1 << 62:
        return None
    out = [np.zeros(len(k), np.int64) for k in keys]
    for one, table in zip(out, keys, strict=True):
        for i, extent in enumerate(extents):
            one *= extent
            one += table[:, i] - low[i]
    return out


def find_sort_order(table: Ints) -> Ints:
    """Return the permutation that sorts the rows of a table."""
    # If possible, sort one integer per row, which is many times faster than a lexicographic sort of several columns.
    some = [c for c in table.T if len(c) and (c != c[0]).any()]
    ones = some[:1] if len(some) == 1 else encode_rows([table])
    return np.lexsort(table.T[::-1]) if ones is None else np.argsort(ones[0])


def unite_sorted_rows(keys: Sequence[Ints]) -> tuple[Ints, list[Ints]]:
    """Return the sorted union of tables with sorted, unique rows, and the position of each table's rows in it."""
    if all(np.array_equal(k, keys[0]) for k in keys[1:]):
        return keys[0], [np.arange(len(keys[0]))] * len(keys)
    ones = encode_rows(keys)
    if len(keys) != 2 or ones is None:
        return unite_rows(keys)
    union, *at = tally.unite_codes(*(one.view(np.uint64) for one in ones))
    table = np.empty((len(union), keys[0].shape[1]), np.int64)
    for where, rows in zip(at, keys, strict=True):
        put_rows(table, where, rows)
    return table, [where.astype(np.int64) for where in at]


def unite_rows(keys: Sequence[Ints]) -> tuple[Ints, list[Ints]]:
    """Return the sorted union of tables with rows in any order, and the position of each table's rows in it."""
    ones, table = encode_rows(keys), np.concatenate(keys)
    splits = np.cumsum([len(k) for k in keys])[:-1]
    if ones is not None:
        _, first, at = np.unique(np.concatenate(ones), return_index=True, return_inverse=True)
        return table[first], np.split(at.reshape(-1), splits)
    order = find_sort_order(table)
    ordered = table.take(order, axis=0)
    new = np.concatenate([[True], (ordered[1:] != ordered[:-1]).any(axis=1)])
    at = np.empty(len(table), np.int64)
    at[order] = np.cumsum(new) - 1
    return ordered[new], np.split(at, splits)
