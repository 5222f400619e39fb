"""Keys of sections: ranks by column, the words they stand for, and the cells behind front ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import IncompatibleStateError, StateFormatError
from ..numerics.keys import SHARDS, fits
from ..state.axes import EPOCHS, EXPIRED, NULL, OTHER, Axis, Vocabulary, integers
from .section import NAMES, need
from .section_header import Lead
from .varint import ranges, running, unzigzag

__all__ = ["ColumnWords", "check_axes", "read_inner", "read_keys", "read_words"]

Ints = NDArray[np.int64]
Array = NDArray[Any]


def read_keys(lead: Lead) -> Ints:
    """The ranks of the keys of front cells; sorted and unique in every section."""
    columns = len(lead.layout.like.cells.columns)
    keys = np.empty((lead.total, columns), np.int64)
    for i in range(columns):
        keys[:, i] = running(unzigzag(lead.next(lead.fronts)), lead.fronts)
    need(columns or lead.fronts.max() <= 1, "there are several cells, and nothing to tell them apart by")
    _rising(keys, lead, lead.fronts)
    return keys


def _rising(keys: Ints, lead: Lead, counts: Ints) -> None:
    """Raise unless rows are sorted and unique within each section."""
    if len(keys) < 2 or not keys.shape[1]:
        return
    up = np.zeros(len(keys) - 1, bool)
    for i in reversed(range(keys.shape[1])):
        a, b = keys[:-1, i], keys[1:, i]
        up = (b > a) | ((b == a) & up)
    if lead.many > 1:
        begins = np.cumsum(counts)[:-1]
        up[begins[(begins > 0) & (begins < len(keys))] - 1] = True
    need(up.all(), "keys are not sorted and unique")


@dataclass
class ColumnWords:
    """The words of a column: one vocabulary, and of every section the ranks in it."""

    name: str
    whole: Vocabulary
    counts: Ints
    ranks: Ints | None

    def placed(self, keys: Ints, column: int, rows: Ints) -> Vocabulary:
        """Let keys hold ranks in the whole vocabulary; each word of a section is one of its keys."""
        held = keys[:, column]
        marks = held < 0
        counts = np.repeat(self.counts, rows) if len(rows) > 1 else self.counts[0]
        need(not (held >= counts).any() and held.min(initial=0) >= EXPIRED, f"{self.name} has keys without words")
        base = np.repeat(np.cumsum(self.counts) - self.counts, rows) if len(rows) > 1 else 0
        said = (held + base)[~marks] if marks.any() else held + base
        used = np.zeros(int(self.counts.sum()), bool)
        used[said] = True
        need(used.all(), f"{self.name} has words that no key is")
        if self.ranks is not None:
            held[~marks] = self.ranks[said]
        return self.whole


def read_words(lead: Lead, i: int) -> ColumnWords:
    """The words of a column; sorted and unique in every section."""
    name = lead.layout.columns[i]
    counts, extra, kinds = (lead.said[f"{what} {i}"] for what in ("words", "letters", "kind"))
    found = np.unique(kinds[kinds > 0])
    numbers = lead.next(counts)
    if len(found) > 1:
        a, b = (NAMES[k - 1] for k in found[:2])
        raise IncompatibleStateError(f"keys of {name} are of kind {a} here and {b} there")
    if not len(found):
        need(not extra.any(), "there are letters without words")
        return ColumnWords(name, Vocabulary(), counts, None)
    kind = NAMES[int(found[0]) - 1]
    texts = Vocabulary(kind).texts
    values: Any = _texts(lead, name, counts, extra, numbers) if texts else _integers(name, counts, extra, numbers)
    if not fits(kind, values):
        raise StateFormatError(f"{name} has a key that is no {kind}")
    if lead.many == 1:
        return ColumnWords(name, Vocabulary(kind, values), counts, None)
    whole = Vocabulary.of(kind, values)
    return ColumnWords(name, whole, counts, whole.ranks(values))


def check_axes(axes: Sequence[Axis], words: Sequence[ColumnWords], keys: Ints) -> None:
    """Raise unless the keys of epochs are starts of epochs, and those of shards as many as there are, or fewer."""
    column = 0
    for axis in axes:
        held = words[column].whole
        if axis.kind in EPOCHS and len(held):
            good = held.kind == EPOCHS[axis.kind] and held.values.dtype == np.int64
            need(
                good and not (held.values % axis.size).any(), f"{axis.names[0]} has a key that is no start of an epoch"
            )
        if axis.kind == "shard":
            good = not len(held) or (
                held.kind in SHARDS.values() and held.values.min() >= 0 and held.values.max() < axis.size
            )
            need(good and keys[:, column].min(initial=0) >= 0, f"{axis.names[0]} has a key that is no shard")
        _check_marks(axis, keys[:, column : column + len(axis.names)])
        column += len(axis.names)


def _check_marks(axis: Axis, keys: Ints) -> None:
    """Raise where keys say that a limit left them over, or that they expired, and the axis knows no such thing."""
    if keys.min(initial=0) >= NULL:
        return
    other, name = keys == OTHER, axis.names[0]
    need(axis.keep is not None or not (keys == EXPIRED).any(), f"{name} has epochs that expired, and keeps all")
    whole = np.array_equal(other.all(axis=1), other.any(axis=1))
    need(whole and (axis.limit is not None or not other.any()), f"{name} has keys that no limit left over")


def _texts(lead: Lead, name: str, counts: Ints, letters: Ints, lengths: Array) -> tuple[bytes, ...]:
    lengths = lengths.astype(np.int64)
    need(lengths.min() >= 0 and lengths.max(initial=0) <= letters.sum(), "letters do not fit")
    ends = np.cumsum(lengths)
    marks = np.concatenate([[0], ends])[lead.ends(counts)]
    need(np.array_equal(np.diff(marks), letters), "letters do not fit")
    data = lead.rest.cut(letters).tobytes()
    cuts = ends.tolist()
    out = tuple(data[a:b] for a, b in zip([0, *cuts], cuts, strict=False))
    begins = set(lead.ends(counts)[1:-1].tolist()) if lead.many > 1 else ()
    up = all(a < b or i in begins for i, (a, b) in enumerate(pairwise(out), 1))
    need(up, f"the words of {name} are not sorted and unique")
    return out


def _integers(name: str, counts: Ints, below: Ints, gaps: Array) -> Array:
    need((below <= counts).all(), "there are more words below zero than words")
    halves = np.stack([below, counts - below], axis=1).ravel()  # of every section those below zero, and the others
    begins = (np.cumsum(halves) - halves)[halves > 0]
    steps = gaps.astype(np.uint64) + np.uint64(1)
    values = running(steps, halves) - np.uint64(1)
    up = values[1:] > values[:-1]
    up[begins[begins > 0] - 1] = True
    first = np.zeros(len(values), bool)
    first[begins] = True
    need(up.all() and not ((steps == 0) & ~first).any(), f"the words of {name} are not sorted and unique")
    if not below.any():
        return values.view(np.int64) if int(values.max()) < 1 << 63 else integers(values)
    negative = np.repeat(np.tile([True, False], len(counts)), halves)
    need(int(values[negative].max()) < 1 << 63, f"{name} has a word out of range")
    large = ~negative & (values >= np.uint64(1 << 63))
    out: Array = values.astype(object) if large.any() else values.view(np.int64).copy()
    ends = np.cumsum(halves)[::2]
    backward = ranges(ends - below, below)
    mirror = np.repeat(2 * ends - below - 1, below) - backward
    out[backward] = -1 - out[mirror]
    return integers(out)


def read_inner(lead: Lead, words: list[ColumnWords]) -> tuple[Ints | None, Vocabulary | None]:
    """The cells behind front ones; sorted and unique in every section."""
    axis = lead.layout.like.behind
    if axis is None:
        return None, None
    each = lead.next(lead.fronts).astype(np.int64)
    need(each.min(initial=0) >= 0 and each.max(initial=0) <= lead.behind, "cells behind do not fit")
    need(lead.fits(each, lead.fronts, lead.cells), "cells behind do not fit")
    inner = np.empty((lead.behind, 1 + axis.width), np.int64)
    inner[:, 0] = np.repeat(np.arange(lead.total), each)
    if axis.kind == "group":
        inner[:, 1:] = lead.rest.cut(8 * axis.width * lead.cells, "<i8").reshape(-1, axis.width)
        _rising(inner, lead, lead.cells)
        return inner, None
    for i in range(1, 1 + axis.width):
        inner[:, i] = running(unzigzag(lead.next(lead.cells)), lead.cells)
    _rising(inner, lead, lead.cells)
    classes = words[-1]
    _classes(classes, inner, lead)
    return inner, classes.whole


def _classes(classes: ColumnWords, inner: Ints, lead: Lead) -> None:
    """Let the columns of classes hold ranks in their one vocabulary; they have no marks."""
    width = inner.shape[1] - 1
    need(inner[:, 1:].min(initial=0) >= 0, "a class is none")
    flat = inner[:, 1:].reshape(-1, 1)  # cell by cell, so section by section
    flat = np.ascontiguousarray(flat)
    classes.placed(flat, 0, lead.cells * width)
    inner[:, 1:] = flat.reshape(-1, width)
