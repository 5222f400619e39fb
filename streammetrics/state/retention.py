"""Limits and expiry: which keys (such as slices) and which epochs (such as hours) a state keeps.

The rows of all other keys are not lost. They are counted under two special keys, OTHER and EXPIRED.

Which keys are kept depends on the set of keys, not on the order of rows. A limit keeps the keys with the smallest
hashes. If the hash of a key is among the smallest of all keys, it is also among the smallest in every part of a log
that contains the key, so limits can be applied to the parts before they are merged. Axes are processed in order, each
within the cells of the axes before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..numerics.slice_keys import encode_atom_text, hash_text
from .axes import EXPIRED, MARKS, OTHER, Axis, Vocabulary
from .cell_table import CellTable
from .fold import align_vocabularies, regroup, regroup_states

__all__ = ["apply_limits", "apply_retention", "expire_epochs", "match_retention"]

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]
S = TypeVar("S", bound="CellTable")


def apply_limits(state: S) -> S:
    """Limit the number of keys of each axis, and count the rows of all keys beyond the limit under the key OTHER.

    The pinned keys are kept, and so are the `axis.limit` keys with the smallest hashes among those not pinned.
    """
    return _apply(state, limits=True, keeps=False)


def expire_epochs(state: S) -> S:
    """Keep the newest `axis.keep` epochs of each axis (empty epochs count too); combine older ones as EXPIRED."""
    return _apply(state, limits=False, keeps=True)


def apply_retention(state: S) -> S:
    """Apply the key limit of each axis, and expire its old epochs."""
    return _apply(state, limits=True, keeps=True)


def _apply(state: S, *, limits: bool, keeps: bool) -> S:
    bounded = [a for a in state.axes if (limits and a.limit is not None) or (keeps and a.keep is not None)]
    if not bounded or not len(state):
        return state
    keys, column = state.cells.keys.copy(), 0
    for axis in state.axes:
        columns = slice(column, column + len(axis.names))
        if limits and axis.limit is not None:
            _apply_limit(axis, keys, columns, state.cells.vocabularies[columns])
        if keeps and axis.keep is not None:
            _expire_epochs(axis, keys, column, state.cells.vocabularies[column])
        column = columns.stop
    return state if np.array_equal(keys, state.cells.keys) else regroup_states([state], [keys])


def match_retention(state: S, whole: S) -> S:
    """Move rows of a state to the key OTHER or EXPIRED if `whole` does not keep their keys.

    The state can then be subtracted from `whole`, which must include all of its rows.
    """
    if all(a.limit is None and a.keep is None for a in state.axes) or not len(state):
        return state
    vocabularies, (kept, keys) = align_vocabularies([whole, state])
    keys, column = keys.copy(), 0
    for axis in state.axes:
        columns = slice(column, column + len(axis.names))
        if axis.limit is not None:
            keys[~_is_in_table(keys[:, : columns.stop], kept[:, : columns.stop]), columns] = OTHER
        if axis.keep is not None:
            _expire_epochs(axis, keys, column, vocabularies[column], kept)
        column = columns.stop
    return regroup(state, keys, state.axes, vocabularies)


def _is_in_table(keys: Ints, table: Ints) -> Mask:
    """Return a mask of the rows of `keys` that are also rows of `table`."""
    at = _number_outer_cells(np.concatenate([table, keys]), keys.shape[1])
    return np.isin(at[len(table) :], at[: len(table)])


# -- limits ----------------------------------------------------------------------------------------------------------


def _number_outer_cells(keys: Ints, columns: int) -> Ints:
    """Number the keys so that keys with equal values in the first `columns` columns have the same number."""
    if not columns:
        return np.zeros(len(keys), np.int64)
    return np.unique(keys[:, :columns], axis=0, return_inverse=True)[1].reshape(-1)


def _apply_limit(axis: Axis, keys: Ints, columns: slice, vocabularies: Sequence[Vocabulary]) -> None:
    """Replace the keys beyond the limit of an axis with OTHER, in place."""
    assert axis.limit is not None
    outer = _number_outer_cells(keys, columns.start)
    table, at = np.unique(keys[:, columns], axis=0, return_inverse=True)
    at = at.reshape(-1)
    # The limit applies separately to each outer cell (each combination of keys of the axes before this one). Encode an
    # outer cell and a key within it as one integer. OTHER and EXPIRED do not count toward the limit.
    free: Mask = np.asarray(~(table <= OTHER).any(axis=1))
    pairs = np.unique(outer * len(table) + at)
    pairs = pairs[free[pairs % len(table)]]
    most = np.bincount(pairs // len(table)).max(initial=0)
    if most <= axis.limit:
        return
    free &= ~_find_pinned(axis, table, vocabularies)
    rank = _rank_by_hash(table, free, vocabularies)
    # Sort the keys in each outer cell by hash, and exclude all but the first `limit` keys.
    order = np.lexsort((rank[pairs % len(table)], pairs // len(table)))
    pairs = pairs[order][free[pairs[order] % len(table)]]
    cell = pairs // len(table)
    place = np.arange(len(pairs)) - np.searchsorted(cell, cell)
    beyond = pairs[place >= axis.limit]
    keys[np.isin(outer * len(table) + at, beyond), columns] = OTHER


def _find_pinned(axis: Axis, table: Ints, vocabularies: Sequence[Vocabulary]) -> Mask:
    """Return a mask of the pinned keys, which are exempt from the limits."""
    is_pinned = np.zeros(len(table), bool)
    for key in axis.pinned:
        ranks = [w.find_rank(k) for w, k in zip(vocabularies, key, strict=True)]
        if None not in ranks:
            is_pinned |= (table == np.array(ranks)).all(axis=1)
    return is_pinned


def _rank_by_hash(table: Ints, free: Mask, vocabularies: Sequence[Vocabulary]) -> Ints:
    """Rank the keys by hash; keys with equal hashes are ranked by key.

    Hashes are the same on every machine. Only the keys in the mask `free` are hashed; the ranks of the other keys are
    meaningless.
    """
    columns = [_format_keys(w, table[:, i]) for i, w in enumerate(vocabularies)]
    hashes = np.zeros(len(table), np.uint64)
    some = np.flatnonzero(free)
    rows: list[Any] = table[some].tolist()
    hashes[some] = np.array([hash_text(_format_row(columns, row)) for row in rows], np.uint64)
    # The table is sorted by key, so a stable sort keeps keys with equal hashes in order.
    order = np.argsort(hashes, kind="stable")
    rank = np.empty(len(table), np.int64)
    rank[order] = np.arange(len(table))
    return rank


def _format_keys(vocabulary: Vocabulary, used: Ints) -> dict[int, str]:
    return {
        r: encode_atom_text(vocabulary.read_key(r)) for r in np.unique(used).tolist() if r not in MARKS or r > OTHER
    }


def _format_row(columns: Sequence[dict[int, str]], row: Sequence[int]) -> str:
    return "[" + ",".join([c[r] for c, r in zip(columns, row, strict=True)]) + "]"


# -- expiry ----------------------------------------------------------------------------------------------------------


def _expire_epochs(axis: Axis, keys: Ints, column: int, vocabulary: Vocabulary, others: Ints | None = None) -> None:
    """Replace epochs with EXPIRED, in place, if they are at least `axis.keep` epochs older than the newest epoch.

    The newest epoch is determined from `keys` and `others`, separately for each outer cell (each combination of keys of
    the axes before this one). The keys of later axes stay unchanged.
    """
    assert axis.keep is not None
    own, keys = keys, keys if others is None else np.concatenate([keys, others])
    has_epoch = keys[:, column] >= 0
    if not has_epoch.any():
        return
    epochs = np.zeros(len(keys), np.int64)
    epochs[has_epoch] = vocabulary.values[keys[has_epoch, column]] // axis.size
    outer = _number_outer_cells(keys, column)
    newest = np.full(int(outer.max()) + 1, np.iinfo(np.int64).min)
    np.maximum.at(newest, outer[has_epoch], epochs[has_epoch])
    # Compute the age as an unsigned difference, which is correct even if a signed difference would overflow.
    age = newest[outer].view(np.uint64) - epochs.view(np.uint64)
    is_expired = has_epoch & (age >= np.uint64(axis.keep))
    own[is_expired[: len(own)], column] = EXPIRED
