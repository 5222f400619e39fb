"""Decode the keys of cells, such as the slices of a state.

A section (an encoded state) stores each key as a rank in the vocabulary of its column: the sorted list of the distinct
keys of the column in this section. If several sections are read together, these ranks are replaced by ranks in a common
vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import IncompatibleStateError, StateFormatError
from ..numerics.array_rows import expand_ranges
from ..numerics.slice_keys import SHARDS, are_stored_keys
from ..state.axes import EPOCHS, EXPIRED, NULL, OTHER, Axis, Vocabulary, as_integers
from .section import NAMES, require
from .section_header import SectionReader
from .varint import cumsum_by_section, is_below, is_single, total, unzigzag

__all__ = ["ColumnVocabulary", "check_axes", "read_inner", "read_keys", "read_vocabulary"]

Ints = NDArray[np.int64]
Array = NDArray[Any]


def read_keys(reader: SectionReader) -> Ints:
    """Read the keys of front cells (slices) as a matrix of ranks, with a row for each cell and a column per key column.

    A rank is the position of a key in the vocabulary (the sorted distinct keys) of its column. Raises an error unless
    the keys of every section are sorted and unique.
    """
    columns = reader.layout.key_columns
    keys = np.empty((reader.front_total, columns), np.int64)
    if not columns:
        most = reader.fronts if is_single(reader.fronts) else reader.fronts.max()
        require(most <= 1, "there are several cells without an axis")
        return keys
    for i in range(columns):
        keys[:, i] = cumsum_by_section(unzigzag(reader.read_numbers(reader.fronts)), reader.fronts)
    _check_ascending(keys, reader.fronts)
    return keys


def _check_ascending(keys: Ints, counts: Any) -> None:
    """Raise an error unless keys are sorted and unique in each section; `counts` is the number of keys in each."""
    if len(keys) < 2:
        return
    # Compare adjacent keys lexicographically. Go from the last column to the first, so that earlier columns take
    # precedence.
    up = np.zeros(len(keys) - 1, bool)
    for i in reversed(range(keys.shape[1])):
        a, b = keys[:-1, i], keys[1:, i]
        up = (b > a) | ((b == a) & up)
    if not is_single(counts):
        begins = np.cumsum(counts)[:-1]
        up[begins[(begins > 0) & (begins < len(keys))] - 1] = True
    require(up.all(), "keys are not sorted and unique")


@dataclass
class ColumnVocabulary:
    """The sorted distinct keys of a column (its vocabulary), both in each section and in all sections together.

    Parameters
    ----------
    name : str
        The name of the column.
    vocabulary : Vocabulary
        The common vocabulary: the keys of all sections.
    counts : int64, or int for a single section
        The number of keys in the vocabulary of each section.
    ranks : int64, optional
        For each key in the vocabularies of the sections, in section order, its position in the common vocabulary. None
        if there is a single section.
    """

    name: str
    vocabulary: Vocabulary
    counts: Any
    ranks: Ints | None

    def rank_keys(self, keys: Ints, column: int, rows: Any) -> Vocabulary:
        """Replace the ranks in one column of keys with ranks in the common vocabulary; return this vocabulary.

        `keys` is changed in place. Before the call, each rank refers to the vocabulary of its section. `rows` is the
        number of keys in each section. Raises an error if a rank is outside the vocabulary of its section, or if the
        vocabulary of a section contains a key to which no rank refers.
        """
        ranks = keys[:, column]
        marks = ranks < 0
        counts = self.counts if is_single(rows) else np.repeat(self.counts, rows)
        require(
            not (ranks >= counts).any() and ranks.min(initial=0) >= EXPIRED,
            f"{self.name} has ranks beyond its vocabulary",
        )
        base = 0 if is_single(rows) else np.repeat(np.cumsum(self.counts) - self.counts, rows)
        positions = (ranks + base)[~marks] if marks.any() else ranks + base
        used = np.zeros(total(self.counts), bool)
        used[positions] = True
        require(used.all(), f"{self.name} has unused keys in its vocabulary")
        if self.ranks is not None:
            ranks[~marks] = self.ranks[positions]
        return self.vocabulary


def read_vocabulary(reader: SectionReader, i: int) -> ColumnVocabulary:
    """Read the distinct keys of column `i` in every section; raise an error unless they are sorted and unique."""
    name = reader.layout.columns[i]
    counts, extra, kinds = (reader.header[f"{what} {i}"] for what in ("words", "letters", "kind"))
    used_kinds = sorted({kinds} - {0} if is_single(kinds) else set(kinds.tolist()) - {0})
    numbers = reader.read_numbers(counts)
    if len(used_kinds) > 1:
        a, b = (NAMES[k - 1] for k in used_kinds[:2])
        raise IncompatibleStateError(f"keys of {name} are of kind {a} here and {b} there; convert the keys of one side")
    if not used_kinds:
        require(not total(extra), "there is text without keys")
        return ColumnVocabulary(name, Vocabulary(), counts, None)
    kind = NAMES[used_kinds[0] - 1]
    texts = Vocabulary(kind).is_text
    values: Any = (
        _read_texts(reader, name, counts, extra, numbers) if texts else _decode_integers(name, counts, extra, numbers)
    )
    if not are_stored_keys(kind, values):
        raise StateFormatError(f"the state is corrupt: {name} has a key that is not of kind {kind}")
    if is_single(counts):
        return ColumnVocabulary(name, Vocabulary(kind, values), counts, None)
    union = Vocabulary.from_values(kind, values)
    return ColumnVocabulary(name, union, counts, union.find_ranks(values))


def check_axes(axes: Sequence[Axis], vocabularies: Sequence[ColumnVocabulary], keys: Ints) -> None:
    """Raise an error unless all keys are valid for their axis.

    The keys of epochs (time windows) must be starts of epochs, and the keys of shards must be shard numbers. Two
    negative ranks have a special meaning. OTHER stands for the slices that were merged because the axis limits the
    number of slices; it is an error if the axis has no limit. EXPIRED stands for expired epochs; it is an error if the
    epochs of the axis do not expire.
    """
    column = 0
    for axis in axes:
        vocabulary = vocabularies[column].vocabulary
        if axis.kind in EPOCHS and len(vocabulary):
            good = vocabulary.kind == EPOCHS[axis.kind] and vocabulary.values.dtype == np.int64
            require(
                good and not (vocabulary.values % axis.size).any(),
                f"{axis.names[0]} has a key that is not the start of an epoch",
            )
        if axis.kind == "shard":
            good = not len(vocabulary) or (
                vocabulary.kind in SHARDS.values()
                and vocabulary.values.min() >= 0
                and vocabulary.values.max() < axis.size
            )
            require(good and keys[:, column].min(initial=0) >= 0, f"{axis.names[0]} has a key that is not a shard")
        _check_marks(axis, keys[:, column : column + len(axis.names)])
        column += len(axis.names)


def _check_marks(axis: Axis, keys: Ints) -> None:
    """Raise an error if keys have a negative rank whose special meaning is impossible for the axis.

    The rank OTHER stands for the slices that were merged because the axis limits the number of slices; it is impossible
    without a limit. The rank EXPIRED stands for expired epochs; it is impossible if the epochs of the axis do not
    expire.
    """
    if keys.min(initial=0) >= NULL:
        return
    other, name = keys == OTHER, axis.names[0]
    require(
        axis.keep is not None or not (keys == EXPIRED).any(), f"{name} has expired epochs, although it keeps all epochs"
    )
    whole = np.array_equal(other.all(axis=1), other.any(axis=1))
    require(
        whole and (axis.limit is not None or not other.any()),
        f"{name} has a merged remainder of keys, although it has no limit",
    )


def _read_texts(reader: SectionReader, name: str, counts: Any, letters: Any, lengths: Array) -> tuple[bytes, ...]:
    fits = is_below(lengths, total(letters) + 1) and reader.adds_up(lengths, counts, letters)
    require(fits, "the lengths of the text keys do not add up")
    data = reader.rest.cut(letters).tobytes()
    ends = list(accumulate(lengths.tolist()))
    out = tuple(data[a:b] for a, b in zip([0, *ends], ends, strict=False))
    begins = () if is_single(counts) else set(reader.find_boundaries(counts)[1:-1].tolist())
    up = all(a < b or i in begins for i, (a, b) in enumerate(pairwise(out), 1))
    require(up, f"the vocabulary of {name} is not sorted and unique")
    return out


def _decode_integers(name: str, counts: Any, below: Any, gaps: Array) -> Array:
    counts, below = np.atleast_1d(counts), np.atleast_1d(below)
    require((below <= counts).all(), "there are more negative keys than keys")
    # Every section has two parts (`halves`). The first contains the negative integers v, stored as -1 - v in ascending
    # order of the stored numbers. The second contains the other integers.
    halves = np.stack([below, counts - below], axis=1).ravel()
    begins = (np.cumsum(halves) - halves)[halves > 0]
    steps = gaps.astype(np.uint64) + np.uint64(1)
    values = cumsum_by_section(steps.copy(), halves) - np.uint64(1)
    up = values[1:] > values[:-1]
    up[begins[begins > 0] - 1] = True
    first = np.zeros(len(values), bool)
    first[begins] = True
    require(up.all() and not ((steps == 0) & ~first).any(), f"the vocabulary of {name} is not sorted and unique")
    if not below.any():
        return values.view(np.int64) if int(values.max()) < 1 << 63 else as_integers(values)
    negative = np.repeat(np.tile([True, False], len(counts)), halves)
    require(int(values[negative].max()) < 1 << 63, f"{name} has a key out of range")
    large = ~negative & (values >= np.uint64(1 << 63))
    out: Array = values.astype(object) if large.any() else values.view(np.int64).copy()
    ends = np.cumsum(halves)[::2]
    # Each negative integer v is stored as -1 - v, and the stored numbers are in ascending order. To restore the integers
    # in ascending order, convert each number back and reverse the order.
    backward = expand_ranges(ends - below, below)
    mirror = np.repeat(2 * ends - below - 1, below) - backward
    out[backward] = -1 - out[mirror]
    return as_integers(out)


def read_inner(reader: SectionReader, vocabularies: list[ColumnVocabulary]) -> tuple[Ints | None, Vocabulary | None]:
    """Read the keys of inner cells, which are groups or classes within a slice, and the vocabulary of the classes.

    The keys have one row for each inner cell: the index of its front cell (slice), then the ID of the group or the
    ranks of the classes. Both results are None if the state has no inner cells, and the vocabulary is None for groups.
    Raises an error unless the keys of every section are sorted and unique.
    """
    axis = reader.layout.like.inner_axis
    if axis is None:
        return None, None
    inner_counts = reader.read_numbers(reader.fronts)
    fits = is_below(inner_counts, reader.cell_total + 1) and reader.adds_up(inner_counts, reader.fronts, reader.cells)
    require(fits, "the numbers of inner cells do not fit")
    inner = np.empty((reader.cell_total, 1 + axis.key_width), np.int64)
    inner[:, 0] = np.repeat(np.arange(reader.front_total), inner_counts.astype(np.int64))
    if axis.kind == "group":
        inner[:, 1:] = reader.rest.cut(8 * axis.key_width * reader.cells, "<i8").reshape(-1, axis.key_width)
        _check_ascending(inner, reader.cells)
        return inner, None
    for i in range(1, 1 + axis.key_width):
        inner[:, i] = cumsum_by_section(unzigzag(reader.read_numbers(reader.cells)), reader.cells)
    _check_ascending(inner, reader.cells)
    classes = vocabularies[-1]
    _rank_classes(classes, inner, reader)
    return inner, classes.vocabulary


def _rank_classes(classes: ColumnVocabulary, inner: Ints, reader: SectionReader) -> None:
    """Replace the ranks of classes with ranks in the common vocabulary of all sections, in place.

    Before the call, each rank refers to the vocabulary of its section. Raises an error if a rank is negative, which is
    allowed only for slices.
    """
    width = inner.shape[1] - 1
    require(inner[:, 1:].min(initial=0) >= 0, "a class has a negative rank")
    # All class columns have the same vocabulary, so flatten them to a single column. The order of the sections stays
    # the same.
    flat = np.ascontiguousarray(inner[:, 1:].reshape(-1, 1))
    classes.rank_keys(flat, 0, reader.cells * width)
    inner[:, 1:] = flat.reshape(-1, width)
