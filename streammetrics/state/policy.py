"""Limits and expiry: which keys and epochs a state keeps.

They depend on what was seen, not on its order, so applying them on the way changes nothing: whatever is among the first
of the whole is among the first of each part. Axes are taken from the outermost on, each within the cell above.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..numerics.keys import atom_text, hash_of
from .axes import EXPIRED, MARKS, OTHER, Axis, Vocabulary
from .content import Content
from .declare import Flat
from .fold import gathered
from .tally import Entries

__all__ = ["limited", "retained", "settled"]

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]
S = TypeVar("S", bound="Content")


def limited(state: S) -> S:
    """Keep, within the limit of each axis, the pinned keys and those of smallest hash; add the others to OTHER."""
    return _applied(state, limits=True, keeps=False)


def retained(state: S) -> S:
    """Keep the newest epochs; of the rows of older ones only the number is known, in the cell EXPIRED."""
    return _applied(state, limits=False, keeps=True)


def settled(state: S) -> S:
    """Apply all that the axes ask for."""
    return _applied(state, limits=True, keeps=True)


def _applied(state: S, *, limits: bool, keeps: bool) -> S:
    asked = [a for a in state.axes if (limits and a.limit is not None) or (keeps and a.keep is not None)]
    if not asked or not len(state):
        return state
    keys, gone, column = state.cells.keys.copy(), np.zeros(len(state), bool), 0
    for axis in state.axes:
        mine = slice(column, column + len(axis.names))
        if limits and axis.limit is not None:
            _limit(axis, keys, mine, state.cells.words[mine])
        if keeps and axis.keep is not None:
            gone |= _expire(axis, keys, column, state.cells.words[column])
        column = mine.stop
    if np.array_equal(keys, state.cells.keys) and not gone.any():
        return state
    if not gone.any():
        return gathered([state], [keys])
    knows = state.reasoned("expired")
    kept, old = np.flatnonzero(~gone), np.flatnonzero(gone)
    return gathered([knows.take_fronts(kept), _counted(knows, old)], [keys[kept], keys[old]])


# -- limits ----------------------------------------------------------------------------------------------------------


def _above(keys: Ints, columns: int) -> Ints:
    """A number for the cell above of each key."""
    if not columns:
        return np.zeros(len(keys), np.int64)
    return np.unique(keys[:, :columns], axis=0, return_inverse=True)[1].reshape(-1)


def _limit(axis: Axis, keys: Ints, mine: slice, words: Sequence[Vocabulary]) -> None:
    """Give the keys that an axis does not keep to OTHER, in place."""
    assert axis.limit is not None
    above = _above(keys, mine.start)
    table, at = np.unique(keys[:, mine], axis=0, return_inverse=True)
    at = at.reshape(-1)
    free: Mask = np.asarray(~(table <= OTHER).any(axis=1))
    pairs = np.unique(above * len(table) + at)
    pairs = pairs[free[pairs % len(table)]]
    most = np.bincount(pairs // len(table)).max(initial=0)
    if most <= axis.limit:
        return
    free &= ~_pinned(axis, table, words)
    rank = _ranking(table, free, words)
    order = np.lexsort((rank[pairs % len(table)], pairs // len(table)))
    pairs = pairs[order][free[pairs[order] % len(table)]]
    cell = pairs // len(table)
    place = np.arange(len(pairs)) - np.searchsorted(cell, cell)
    lost = pairs[place >= axis.limit]
    keys[np.isin(above * len(table) + at, lost), mine] = OTHER


def _pinned(axis: Axis, table: Ints, words: Sequence[Vocabulary]) -> Mask:
    """Which keys are kept beyond the limit."""
    found = np.zeros(len(table), bool)
    for key in axis.pinned:
        ranks = [w.rank(k) for w, k in zip(words, key, strict=True)]
        if None not in ranks:
            found |= (table == np.array(ranks)).all(axis=1)
    return found


def _ranking(table: Ints, free: Mask, words: Sequence[Vocabulary]) -> Ints:
    """The order of keys by their fixed hash; of equal hashes by key, as ranks are."""
    columns = [_texts(w, table[:, i]) for i, w in enumerate(words)]
    hashes = np.zeros(len(table), np.uint64)
    some = np.flatnonzero(free)
    rows: list[Any] = table[some].tolist()
    hashes[some] = np.array([hash_of(_text(columns, row)) for row in rows], np.uint64)
    order = np.argsort(hashes, kind="stable")  # the table is sorted: equal hashes stay in the order of keys
    rank = np.empty(len(table), np.int64)
    rank[order] = np.arange(len(table))
    return rank


def _texts(words: Vocabulary, used: Ints) -> dict[int, str]:
    return {r: atom_text(words.key(r)) for r in np.unique(used).tolist() if r not in MARKS or r > OTHER}


def _text(columns: Sequence[dict[int, str]], row: Sequence[int]) -> str:
    return "[" + ",".join([c[r] for c, r in zip(columns, row, strict=True)]) + "]"


# -- expiry ----------------------------------------------------------------------------------------------------------


def _expire(axis: Axis, keys: Ints, column: int, words: Vocabulary) -> Mask:
    """Give what is too old to EXPIRED, with all columns behind, in place; say which cells these are."""
    assert axis.keep is not None
    held = keys[:, column] >= 0
    if not held.any():
        return held
    epochs = np.zeros(len(keys), np.int64)
    epochs[held] = words.values[keys[held, column]]
    above = _above(keys, column)
    newest = np.full(int(above.max()) + 1, np.iinfo(np.int64).min)
    np.maximum.at(newest, above[held], epochs[held])
    # newest - epoch as an unsigned number: it cannot overflow
    age = newest[above].view(np.uint64) - epochs.view(np.uint64)
    gone: Mask = held & (age >= np.uint64(axis.keep))
    keys[gone, column:] = EXPIRED
    return gone


def _counted(state: S, old: Ints) -> S:
    """Cells of which only the rows are known."""
    cells = state.cells
    dropped = state.spelled(state.parts()["dropped"])[old]
    dropped[:, state.reasons.index("expired")] += state.rows_seen[old]
    flats = {n: p.empty(state, len(old)) for n, p in state.parts().items() if isinstance(p, Flat) and not p.optional}
    if cells.inner is not None:
        flats |= {n: a[:0] for n, a in flats.items() if not state.parts()[n].front}
    tallies = {n: Entries.none(e.shift, wide=e.wide) for n, e in cells.tallies.items()}
    inner = None if cells.inner is None else cells.inner[:0]
    made = replace(cells, keys=cells.keys[old], inner=inner, flats=flats | {"dropped": dropped}, tallies=tallies)
    return state.holding(made)
