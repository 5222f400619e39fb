"""Limits and expiry: which keys and epochs a state keeps.

They depend on what was seen, not on its order, so applying them on the way changes nothing: whatever is among the first
of the whole is among the first of each part. Axes are taken from the outermost on, each within the cell above.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..numerics.keys import atom_text, hash_of
from .axes import EXPIRED, MARKS, OTHER, Axis, Vocabulary
from .cell_table import CellTable
from .fold import common_words, gathered, regroup

__all__ = ["kept_as", "limited", "retained", "settled"]

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]
S = TypeVar("S", bound="CellTable")


def limited(state: S) -> S:
    """Keep, within the limit of each axis, the pinned keys and those of smallest hash; add the others to OTHER."""
    return _applied(state, limits=True, keeps=False)


def retained(state: S) -> S:
    """Keep the newest epochs; add the older ones to EXPIRED."""
    return _applied(state, limits=False, keeps=True)


def settled(state: S) -> S:
    """Apply all that the axes ask for."""
    return _applied(state, limits=True, keeps=True)


def _applied(state: S, *, limits: bool, keeps: bool) -> S:
    asked = [a for a in state.axes if (limits and a.limit is not None) or (keeps and a.keep is not None)]
    if not asked or not len(state):
        return state
    keys, column = state.cells.keys.copy(), 0
    for axis in state.axes:
        mine = slice(column, column + len(axis.names))
        if limits and axis.limit is not None:
            _limit(axis, keys, mine, state.cells.words[mine])
        if keeps and axis.keep is not None:
            _expire(axis, keys, column, state.cells.words[column])
        column = mine.stop
    return state if np.array_equal(keys, state.cells.keys) else gathered([state], [keys])


def kept_as(state: S, whole: S) -> S:
    """Add, of rows that are among those of a whole, what that does not keep to OTHER and EXPIRED."""
    if all(a.limit is None and a.keep is None for a in state.axes) or not len(state):
        return state
    words, (ours, keys) = common_words([whole, state])
    keys, column = keys.copy(), 0
    for axis in state.axes:
        mine = slice(column, column + len(axis.names))
        if axis.limit is not None:
            keys[~_among(keys[:, : mine.stop], ours[:, : mine.stop]), mine] = OTHER
        if axis.keep is not None:
            _expire(axis, keys, column, words[column], ours)
        column = mine.stop
    return regroup(state, keys, state.axes, words)


def _among(keys: Ints, table: Ints) -> Mask:
    """Which keys are in a table."""
    at = _above(np.concatenate([table, keys]), keys.shape[1])
    return np.isin(at[len(table) :], at[: len(table)])


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


def _expire(axis: Axis, keys: Ints, column: int, words: Vocabulary, beside: Ints | None = None) -> None:
    """Give epochs that are too old to EXPIRED, in place; what is behind stays told apart. Others beside may be newer."""
    assert axis.keep is not None
    mine, keys = keys, keys if beside is None else np.concatenate([keys, beside])
    held = keys[:, column] >= 0
    if not held.any():
        return
    epochs = np.zeros(len(keys), np.int64)
    epochs[held] = words.values[keys[held, column]] // axis.size
    above = _above(keys, column)
    newest = np.full(int(above.max()) + 1, np.iinfo(np.int64).min)
    np.maximum.at(newest, above[held], epochs[held])
    # newest - epoch as an unsigned number: it cannot overflow
    age = newest[above].view(np.uint64) - epochs.view(np.uint64)
    gone = held & (age >= np.uint64(axis.keep))
    mine[gone[: len(mine)], column] = EXPIRED
