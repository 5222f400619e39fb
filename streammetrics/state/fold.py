"""Fold: the one operation on finished states. Say where each cell goes; cells that meet are added.

Merge, subtract, roll-up, selection, total, limits and expiry are each a choice of keys.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..errors import CounterOverflowError, IncompatibleStateError
from ..numerics.rows import put
from . import tally
from .axes import Axis, Vocabulary, common
from .cell_table import CellTable
from .cells import Cells
from .declare import CEILING, FORMS, LIMIT, UNKNOWN, Array, Flat, Tally, carry
from .levels import raised
from .pair_levels import SIDES, at_levels, needed_levels, sides_of
from .tally import Entries

__all__ = ["aligned", "ascending", "check_room", "common_words", "fold", "gathered", "regroup"]

Ints = NDArray[np.int64]
MANY = 1 << 22
S = TypeVar("S", bound="CellTable")


def fold(states: Sequence[S], *, sign: int = 1) -> S:
    """Add states of one statistic; with a `sign` of -1 the others are taken away from the first.

    Raises
    ------
    IncompatibleStateError
        Keys are of different kinds; a part refuses to be taken away, or to be there twice; or rows are taken away that
        were not counted.
    CounterOverflowError
        A count, or a sum, would leave its range.
    """
    states = states[0].alike(states)
    first = states[0]
    if sign > 0:
        sums = (sum(getattr(s, n) for s in states) for n in ("rows_about", "weight_beside", "gone_about"))
        check_room(first, *sums)
    words, keys = common_words(states)
    return _folded(states, keys, first.cells.axes, words, sign=sign, ordered=True)


def check_room(state: CellTable, rows: float, beside: float, gone: float = 0.0) -> None:
    """Raise unless so many rows, whose weight is so far from their number, can be counted, and others be left out.

    Raises
    ------
    CounterOverflowError
        There would be 2**62 rows; or with weights a total weight of 2**42.
    """
    name = type(state).__name__
    if (rows + gone) * state.times >= LIMIT:  # so often each of them is counted
        raise CounterOverflowError(f"{name} would pass 2**62 rows; start a new state")
    if beside and rows + beside >= 2.0**42:
        raise CounterOverflowError(f"{name} would pass a total weight of 2**42; scale the weights down")


def regroup(state: S, keys: Ints, axes: tuple[Axis, ...], words: tuple[Vocabulary, ...]) -> S:
    """Give every front cell another key, in any order; cells whose keys meet are added."""
    return _folded([state], [keys], axes, words, sign=1, ordered=False)


def gathered(states: Sequence[S], keys: Sequence[Ints]) -> S:
    """Add states of the same words, whose cells get other keys, in any order."""
    cells = states[0].cells
    return _folded(states, keys, cells.axes, cells.words, sign=1, ordered=False)


def _folded(
    states: Sequence[S],
    keys: Sequence[Ints],
    axes: tuple[Axis, ...],
    words: tuple[Vocabulary, ...],
    *,
    sign: int,
    ordered: bool,
) -> S:
    first = states[0]
    parts = _opaque_parts(states)
    table, fronts = aligned(keys) if ordered else distinct(keys)
    inner, lasts, behind = _inner(states, fronts)
    cells = len(table) if inner is None else len(inner)
    if sign < 0:
        _may_subtract(states, parts)
    at = fronts if inner is None else lasts
    leveled = first.folds is not None and _is_leveled(parts[first.folds[2]])
    if leveled:
        states = _with_buckets(states, at, cells, sign)
    flats = {}
    for name, flat in parts.items():
        if isinstance(flat, Flat):
            maps, size = (fronts, len(table)) if flat.front or inner is None else (lasts, cells)
            if (made := _flat(states, flat, maps, size, sign)) is not None:
                flats[name] = made
    tallies: dict[str, Entries] = {}
    states = _at_common_levels(states, parts, flats, at, cells, sign)
    moved = {
        name: [_moved(s, name, m) for s, m in zip(states, at, strict=True)]
        for name, t in parts.items()
        if isinstance(t, Tally)
    }
    exact = None if first.folds is None or leveled else first.folds[0]
    for name, entries in moved.items():
        if name != exact:
            moved[name] = _placed(entries, at)
    if first.folds is not None and exact is not None:
        _fold_exact(states, at, moved, flats, cells, sign)
        moved[exact] = _placed(moved[exact], at)
    for name, placed in moved.items():
        tallies[name] = tally.united(placed) if sign > 0 else tally.add(placed[0], placed[1], -1)
    if first.folds is not None and sign < 0:
        _, rows, flag = first.folds
        if flag in flats:
            flats[flag] = flats[flag].copy()
            flats[flag][np.diff(tallies[rows].starts(cells)) == 0] = 0
    return first.holding(Cells(axes, table, words, inner, behind, flats, tallies)).present(parts)


def _at_common_levels(
    states: Sequence[S],
    parts: dict[str, Flat | Tally],
    flats: dict[str, Array],
    at: Sequence[Ints],
    cells: int,
    sign: int,
) -> Sequence[S]:
    """Bring the buckets of each cell to the level of the cell that they go to."""
    for name, part in parts.items():
        if not isinstance(part, Tally) or part.level is None:
            continue
        bits = getattr(states[0], part.bits)
        if part.pairs and sign > 0:
            flats[part.level] = _levels_of_all(states, name, part, flats.get(part.level), at, cells)
        if part.level not in flats:
            continue
        made = []
        for state, to in zip(states, at, strict=True):
            entries = at_levels(part, state.cells.tallies[name], state.flat(part.level), flats[part.level][to], bits)
            tallies = {**state.cells.tallies, name: entries}
            made.append(state.holding(replace(state.cells, tallies=tallies)))
        states = made
    return states


def _levels_of_all(
    states: Sequence[S], name: str, part: Tally, common: Array | None, at: Sequence[Ints], cells: int
) -> Array:
    """Return the levels of all states together: pairs must reach them before they are added."""
    assert part.level is not None
    bits, found = getattr(states[0], part.bits), []
    common = states[0].parts()[part.level].empty(states[0], cells) if common is None else common
    for state, to in zip(states, at, strict=True):
        sides, _ = sides_of(state.cells.tallies[name])
        own, new = state.flat(part.level)[:, :SIDES], common[to][:, :SIDES]
        sides = raised(sides, own.reshape(-1), new.reshape(-1), bits, SIDES)
        found.append(sides.moved(to, sides.starts(len(state.cells)), ascending=_rises(to)))
    return needed_levels(tally.united(found), common, bits)


def _moved(state: CellTable, name: str, to: Ints) -> Entries:
    """Give the entries of each cell to another; not in order yet if cells are not: many of them may go to buckets."""
    entries = state.cells.tallies[name]
    if _rises(to):
        return entries.moved(to, state.starts(name), ascending=True)
    return entries.in_cells(np.repeat(to, np.diff(state.starts(name))), int(to.max()) + 1)


def _placed(entries: Sequence[Entries], at: Sequence[Ints]) -> list[Entries]:
    """Bring entries that were moved to canonical form."""
    return [tally.canonical(e) if _rises(m) else tally.reduce(e) for e, m in zip(entries, at, strict=True)]


def _rises(at: Ints) -> bool:
    return len(at) < 2 or bool((at[1:] > at[:-1]).all())


def _opaque_parts(states: Sequence[CellTable]) -> dict[str, Flat | Tally]:
    """The parts of all states: of a class that is not here, each state knows those that it holds."""
    parts: dict[str, Flat | Tally] = {}
    for state in states:
        parts |= state.parts()
    return parts


def _may_subtract(states: Sequence[CellTable], parts: dict[str, Flat | Tally]) -> None:
    for name, part in parts.items():
        there = any(name in s.cells.flats for s in states)
        if isinstance(part, Flat) and not FORMS[part.form].subtracts and there:
            raise IncompatibleStateError(
                f"{states[0].tag}: {name} keeps the extreme, or is there once: rows cannot be taken away; count again "
                f"those that stay"
            )


# -- flats -----------------------------------------------------------------------------------------------------------


def _flat(states: Sequence[CellTable], flat: Flat, maps: Sequence[Ints], cells: int, sign: int) -> Array | None:
    """Add one part of all states; None where it is absent."""
    name = flat.name
    if not any(name in s.cells.flats for s in states):
        return None
    form, rule = flat.form, FORMS[flat.form]
    arrays = [s.spelled(flat) for s in states]
    out = np.full((cells, *arrays[0].shape[1:]), rule.identity, arrays[0].dtype)
    for i, (values, at) in enumerate(zip(arrays, maps, strict=True)):
        if not len(at):
            continue
        combine = np.subtract if i and sign < 0 and rule.combine is np.add else rule.combine
        rises = _rises(at)
        if not rises:  # cells that meet
            values, at = _met(values, at, form)
        before = out if rises and len(at) == cells else out.take(at, axis=0)
        if form in UNKNOWN and i and sign < 0:
            made = np.where(before == values, UNKNOWN[form], before)
        elif form == "square" and combine is np.subtract:
            made = _unsquared(before, values)
        else:
            made = carry(form, combine(before, values))
        if before is out:
            out = made
        else:
            put(out, at, made)
    _check(flat, out, sign)
    return out


def _met(values: Array, at: Ints, form: str) -> tuple[Array, Ints]:
    """Combine the rows of cells that become one."""
    rule = FORMS[form]
    if rule.limbs and len(values) > MANY:  # second limbs are below 2**40: so many of them stay in an int64
        parts = [_met(values[i : i + MANY], at[i : i + MANY], form) for i in range(0, len(values), MANY)]
        values, at = np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts])
    order = np.argsort(at, kind="stable")
    ordered, to = values.take(order, axis=0), at[order]
    begins = np.flatnonzero(np.diff(to, prepend=-1))
    made = carry(form, rule.combine.reduceat(ordered, begins))
    if rule.combine is np.add and ordered.size:
        _not_wrapped(form, made, ordered, begins)
    return made, to[begins]


def _not_wrapped(form: str, made: Array, values: Array, begins: Ints) -> None:
    """Raise where a sum of many has left int64; squares stop at their ceiling instead."""
    top = values if not FORMS[form].limbs else values[..., -1 if form == "exact" else 0]
    if max(int(top.max()), -int(top.min())) * len(top) < LIMIT:
        return
    large = np.abs(np.add.reduceat(top.astype(np.float64), begins)) >= LIMIT
    if form == "square":
        made[large] = (CEILING, 0)
    elif large.any():
        raise CounterOverflowError("a sum would leave its range: 2**62 rows, or a total of 2**42")


def _unsquared(ours: Array, theirs: Array) -> Array:
    """Take squares away; what is lost stays lost."""
    lost = (ours[..., 0] >= CEILING) | (theirs[..., 0] >= CEILING)
    made = carry("fixed", ours - theirs)
    made[lost] = (CEILING, 0)
    return made


def _check(flat: Flat, out: Array, sign: int) -> None:
    if not out.size:
        return
    if flat.form == "once" and out.max() > 1:
        where = np.argwhere(out > 1)[0][1:].tolist()
        raise IncompatibleStateError(f"{flat.name}: {', '.join(map(str, where))} is there on both sides")
    if flat.form in ("count", "once", "square") and sign < 0:
        top = out if flat.form != "square" else out[..., 0]
        if top.min() < 0:
            raise IncompatibleStateError(f"{flat.name} would fall below zero: these rows were not counted here")
    if flat.form in ("count", "signed"):
        top = out
    elif flat.form in ("fixed", "exact"):
        top = out[..., 0] if flat.form == "fixed" else out[..., -1]
    else:
        return
    if (out.size and int(top.max()) >= LIMIT) or int(top.min()) <= -LIMIT:
        raise CounterOverflowError(f"{flat.name} would leave its range: 2**62 rows, or a total of 2**42")


# -- exact rows that become buckets ----------------------------------------------------------------------------------


def _is_leveled(part: Flat | Tally) -> bool:
    return isinstance(part, Flat) and part.form == "level"


def _folded_cells(states: Sequence[CellTable], at: Sequence[Ints], cells: int, sign: int) -> Array:
    """Which cells hold too many rows to be exact, or are folded on another side."""
    first = states[0]
    assert first.folds is not None
    exact, rows, _ = first.folds
    rows_of = np.zeros(cells, np.int64)
    folded = np.zeros(cells, bool)
    for state, to in zip(states, at, strict=True):
        coarse = state.by_cell(rows)
        np.add.at(rows_of, to, state.by_cell(exact) + coarse)
        folded[to[coarse > 0]] = True
    if first.most is None or sign < 0:  # what is taken away makes no cell larger
        return folded
    many = (rows_of > first.most) & ~folded
    if many.any() and not first.folds_by_rows:
        many = first.outgrown(_exact_in(states, at, many), many)
    return folded | many


def _exact_in(states: Sequence[CellTable], at: Sequence[Ints], chosen: Array) -> Entries:
    """Return the exact entries of some cells, of all states together."""
    assert states[0].folds is not None
    found = []
    for state, to in zip(states, at, strict=True):
        entries = state.cells.tallies[state.folds[0]]  # type: ignore[index]
        cells = to[entries.cells]
        kept = chosen[cells]
        found.append(tally.reduce(entries.where(kept).in_cells(cells[kept], len(chosen))))
    return tally.united(found)


def _with_buckets(states: Sequence[S], at: Sequence[Ints], cells: int, sign: int) -> Sequence[S]:
    """Turn the exact rows of cells that become folded into buckets, where these have levels."""
    first = states[0]
    assert first.folds is not None
    exact, rows, level = first.folds
    folded = _folded_cells(states, at, cells, sign)
    if not folded.any():
        return states
    made = []
    for state, to in zip(states, at, strict=True):
        fine = state.cells.tallies[exact]
        apart = folded[to][fine.cells]
        if apart.any():
            buckets, levels = first.bucketed(fine.where(apart))
            own = state.flat(level).copy()
            own[: len(levels)] = np.maximum(own[: len(levels)], levels)
            both = {exact: tally.canonical(fine.where(~apart)), rows: tally.add(state.cells.tallies[rows], buckets)}
            held = replace(
                state.cells, flats={**state.cells.flats, level: own}, tallies={**state.cells.tallies, **both}
            )
            state = state.holding(held)
        made.append(state)
    return made


def _fold_exact(
    states: Sequence[CellTable],
    at: Sequence[Ints],
    moved: dict[str, list[Entries]],
    flats: dict[str, Array],
    cells: int,
    sign: int,
) -> None:
    """Turn the exact rows of cells that hold too many, or are folded on another side, into buckets.

    Rows that are taken away are taken from those that are there: they do not make a cell larger.
    """
    first = states[0]
    assert first.folds is not None
    exact, rows, flag = first.folds
    folded = _folded_cells(states, at, cells, sign)
    if not folded.any():
        return
    for i, fine in enumerate(moved[exact]):
        if not len(fine):
            continue
        apart = folded[fine.cells]
        if apart.any():
            made, off = first.bucketed(fine.where(apart))
            flats[flag] = flats[flag].copy()
            flats[flag][off] = 1
            moved[rows][i] = tally.add(moved[rows][i], made)
            moved[exact][i] = fine.where(~apart)


# -- keys ------------------------------------------------------------------------------------------------------------


def common_words(states: Sequence[CellTable]) -> tuple[tuple[Vocabulary, ...], list[Ints]]:
    """Rank the keys of all states alike; ranks keep their order, so keys stay sorted."""
    keys = [s.cells.keys for s in states]
    words = list(states[0].cells.words)
    names = [n for a in states[0].cells.axes for n in a.names]
    for i, name in enumerate(names):
        words[i], to = common(name, [s.cells.words[i] for s in states])
        for k, ranks in enumerate(to):
            if ranks is not None:
                column = keys[k][:, i]
                keys[k] = keys[k].copy()
                keys[k][:, i] = np.where(column < 0, column, ranks[np.maximum(column, 0)] if len(ranks) else column)
    return tuple(words), keys


def _inner(states: Sequence[CellTable], fronts: Sequence[Ints]) -> tuple[Ints | None, list[Ints], Vocabulary | None]:
    """Align the cells behind the front ones: the table, where the cells of each state are in it, their vocabulary."""
    if states[0].cells.inner is None:
        return None, [], None
    tables, behind = [], states[0].cells.behind
    ranks: list[Any] = [None] * len(states)
    if behind is not None:
        axis = states[0].behind
        assert axis is not None
        behind, ranks = common(", ".join(axis.names), [s.cells.behind or Vocabulary() for s in states])
    ordered = True
    for state, to, rank in zip(states, fronts, ranks, strict=True):
        inner = state.cells.inner
        assert inner is not None
        made = inner.copy() if len(inner) else inner
        made[:, 0] = to[inner[:, 0]] if len(to) else made[:, 0]
        if rank is not None:
            made[:, 1:] = rank[inner[:, 1:]]
        ordered &= _rises(to)
        tables.append(made)
    table, at = aligned(tables) if ordered else distinct(tables)
    return table, at, behind


def numbers(keys: Sequence[Ints]) -> list[Ints] | None:
    """Every row of some tables as one number in the same order; None if they are too far apart for that."""
    held = [k for k in keys if len(k)]
    if not held or not keys[0].shape[1]:
        return [np.zeros(len(k), np.int64) for k in keys]
    columns = range(keys[0].shape[1])
    low = [min(int(k[:, i].min()) for k in held) for i in columns]
    extents = [max(int(k[:, i].max()) for k in held) - low[i] + 1 for i in columns]
    if math.prod(extents) >= 1 << 62:
        return None
    out = [np.zeros(len(k), np.int64) for k in keys]
    for one, table in zip(out, keys, strict=True):
        for i, extent in enumerate(extents):
            one *= extent
            one += table[:, i] - low[i]
    return out


def ascending(table: Ints) -> Ints:
    """An order in which the rows of a table ascend; one number is sorted many times as quickly as some are."""
    some = [c for c in table.T if len(c) and (c != c[0]).any()]
    ones = some[:1] if len(some) == 1 else numbers([table])
    return np.lexsort(table.T[::-1]) if ones is None else np.argsort(ones[0])


def aligned(keys: Sequence[Ints]) -> tuple[Ints, list[Ints]]:
    """The union of tables with sorted unique rows, and where in it the rows of each are."""
    if all(np.array_equal(k, keys[0]) for k in keys[1:]):
        return keys[0], [np.arange(len(keys[0]))] * len(keys)
    ones = numbers(keys)
    if len(keys) != 2 or ones is None:
        return distinct(keys)
    union, *at = tally.unite(*(one.view(np.uint64) for one in ones))
    table = np.empty((len(union), keys[0].shape[1]), np.int64)
    for where, rows in zip(at, keys, strict=True):
        put(table, where, rows)
    return table, [where.astype(np.int64) for where in at]


def distinct(keys: Sequence[Ints]) -> tuple[Ints, list[Ints]]:
    """The sorted unique rows of tables in any order, and where in them each row is."""
    ones, table = numbers(keys), np.concatenate(keys)
    splits = np.cumsum([len(k) for k in keys])[:-1]
    if ones is not None:
        _, first, at = np.unique(np.concatenate(ones), return_index=True, return_inverse=True)
        return table[first], np.split(at.reshape(-1), splits)
    order = ascending(table)
    ordered = table.take(order, axis=0)
    new = np.concatenate([[True], (ordered[1:] != ordered[:-1]).any(axis=1)])
    at = np.empty(len(table), np.int64)
    at[order] = np.cumsum(new) - 1
    return ordered[new], np.split(at, splits)
