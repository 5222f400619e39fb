"""Sections: the uncompressed canonical encoding of the content of a state.

::

    header              u32 sizes of all variable-length pieces (see `SectionLayout.header_names`)
    small numbers       of all parts, one after the other, in the variable-length encoding of `varint`
    rest                bytes: key strings, group IDs, words of exact sums, low limbs of fixed-point numbers, high bytes
                        of wide places
    noise               low bytes of wide places, which frames do not compress

A state has one front cell for each slice. It may also have inner cells, one for each group or class within a slice.
There are two kinds of parts. A flat, such as the sums of a metric, has the same number of integers in every cell. A
tally has sorted entries in each cell; an entry is a place, such as a score bucket, with its number of rows. The keys of
slices are stored as ranks in the vocabulary of their column, which is the sorted list of the distinct keys.

The small numbers are, in this order:

- the ranks of the keys, column by column, as differences between adjacent cells;
- for each vocabulary, the gaps between its integers or the lengths of its strings;
- the number of inner cells of each front cell, and the classes of the inner cells;
- the flats, cell by cell;
- for each tally, the number of entries in each cell, the gaps between adjacent places, and the numbers of rows minus
one.

A flat with at least 32 numbers per cell is written sparsely if fewer than a quarter of its numbers differ from the
neutral element (0 for sums). Only these numbers and the gaps between their positions are then written.

A wide place has more than 48 bits. An example is an exact score with its label. A wide place is split. Its last bit
(the label) is appended to the number of rows as the last bit. The gaps between the other bits of adjacent places are
shifted right by the number of trailing zero bits that all gaps have in common. This number is 29 for scores that were
float32. The gaps are then written as planes: the first bytes of all gaps, then the second bytes, and so on. In a place
of more than 65 bits, the highest bits are the number of an output label. In this case, the number of entries is stored
for each combination of cell and output label.
"""

from __future__ import annotations

import math
import struct
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import StateFormatError
from ..numerics.slice_keys import KINDS, SHARDS
from ..state.axes import Vocabulary
from ..state.declare import FORMS, Flat, Tally
from ..state.state import State
from ..state.tally import WIDEST, Entries
from .schema import Schema, build_schema
from .superaccumulator_codec import pack_superaccumulators
from .varint import encode_tiers, zigzag

__all__ = [
    "HEADER",
    "LIMB",
    "SPARSE",
    "PackedSection",
    "Section",
    "SectionLayout",
    "compute_gaps",
    "count_noise_planes",
    "is_sparse",
    "pack_state",
    "split_last_bits",
    "to_unsigned",
]

Array = NDArray[Any]
Ints = NDArray[np.int64]

HEADER = np.dtype("<u4")
LIMB = 5
"""The number of bytes of the second of the two integers (limbs) of a fixed-point number, which is below 2**40."""
SPARSE = 32
"""A flat, such as the sums of a cell, may be written sparsely if it has at least this many numbers per cell."""
NAMES = [*KINDS, *SHARDS.values()]
BLOCK = 1 << 14
"""The number of integers that are encoded at a time, to limit temporary memory."""
MAX_HEADER_NUMBER = (1 << 32) - 1


class SectionLayout:
    """The order and the shapes of the pieces of a section (an encoded state), derived from its schema.

    Both the writer and the reader of a section use this layout.
    """

    def __init__(self, schema: Schema) -> None:
        like = schema.like
        self.schema, self.like = schema, like
        self.key_columns = len(like.cells.column_names)
        self.columns = [*like.cells.column_names, *(["behind"] if like.cells.class_vocabulary is not None else [])]
        self.has_inner = like.cells.inner_keys is not None
        self.flats = [p for p in schema.parts.values() if isinstance(p, Flat)]
        self.tallies = [p for p in schema.parts.values() if isinstance(p, Tally)]
        self.places = {t.name: (t.place_count(like), t.shift(like), t.is_wide(like)) for t in self.tallies}
        self.plane_tallies = {t.name for t in self.tallies if t.is_wide(like) and t.level is None}
        if any(shift > 65 and count % WIDEST for count, shift, _ in self.places.values()):
            raise ValueError("a tally of over 2**65 places must have 2**65 places for each label; declare fewer places")
        self.label_slots = {n: 1 << max(shift - 65, 0) for n, (_, shift, _) in self.places.items()}
        self.shapes = {f.name: self._shape(f) for f in self.flats}
        self.extents = {n: math.prod(s) for n, s in self.shapes.items()}

    def _shape(self, flat: Flat) -> tuple[int, ...]:
        if flat.name == "dropped":
            return (len(self.schema.reasons),)
        shape = flat.extents(self.like)
        return shape[:-1] if flat.limbs else shape

    def is_by_front(self, flat: Flat) -> bool:
        """Return whether `flat` has numbers for front cells (slices), rather than inner cells (groups or classes)."""
        return flat.front or not self.has_inner

    @cached_property
    def irregular_flats(self) -> list[Flat]:
        """The flats (parts such as sums) whose number of stored integers varies between sections.

        The header of each section therefore stores these numbers.
        """
        return [f for f in self.flats if self.extents[f.name] >= SPARSE or f.form == "exact"]

    @cached_property
    def regular_sizes(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """The counts of variable-length numbers and of low limbs per cell, in all flats except `irregular_flats`.

        The first pair is for a front cell (a slice), the second for an inner cell (a group or class). A low limb is the
        lower part of a fixed-point number.
        """
        sizes = [[0, 0], [0, 0]]
        for flat in self.flats:
            if flat not in self.irregular_flats:
                size, extent = sizes[not self.is_by_front(flat)], self.extents[flat.name]
                size[0] += extent
                size[1] += extent * (flat.limbs > 0)
        return tuple(sizes[0]), tuple(sizes[1])  # type: ignore[return-value]

    @cached_property
    def flat_bytes(self) -> tuple[int, int]:
        """The memory in bytes that all flats take per front cell (a slice) and per inner cell (a group or class).

        A flat is a part of a state, such as its sums.
        """
        sizes = [0, 0]
        for flat in self.flats:
            numbers = self.extents[flat.name] * max(flat.limbs, 1)
            sizes[not self.is_by_front(flat)] += flat.dtype.itemsize * numbers
        return sizes[0], sizes[1]

    def read_header(self, section: bytes) -> dict[str, int]:
        """Return the numbers in the header of a section, keyed by name."""
        return dict(zip(self.header_names, self._header_format.unpack_from(section), strict=True))

    @cached_property
    def _header_format(self) -> struct.Struct:
        return struct.Struct(f"<{len(self.header_names)}I")

    @cached_property
    def header_names(self) -> list[str]:
        """The names of the integers in the header of a section, in order.

        Most of them are sizes of pieces that follow, such as "words 0", the number of keys in the first vocabulary.
        """
        out = ["fronts", *(["cells"] if self.has_inner else []), "two", "three"]
        for i in range(len(self.columns)):
            out += [f"kind {i}", f"words {i}", f"letters {i}"]
        for flat in self.flats:
            out += [f"some {flat.name}"] if self.extents[flat.name] >= SPARSE else []
            out += [f"chunks {flat.name}"] if flat.form == "exact" else []
        for tally in self.tallies:
            out += [f"entries {tally.name}", f"excess {tally.name}"]
            out += [f"zeros {tally.name}"] if tally.name in self.plane_tallies or tally.level is not None else []
            out += [f"width {tally.name}"] if tally.name in self.plane_tallies else []
        return out


def is_sparse(some: Any, total: Any) -> Any:
    """Return whether a flat (a part of a state, such as its sums) is written sparsely.

    This is the case if fewer than a quarter of its elements must be stored. `some` is the number of its elements that
    differ from the neutral element (0 for sums), and `total` the number of all its elements.
    """
    return 4 * some < total


def to_unsigned(form: str, values: Array) -> Array:
    """Map the numbers of a flat to nonnegative integers, so that the variable-length encoding can store them.

    `form` defines how the numbers of two states are merged: "low", for example, keeps the minimum. The neutral element
    of merging, such as 0 for a sum, maps to 0.
    """
    if form in ("low", "least"):
        # The neutral element of a minimum is the largest int64, and that of a maximum the smallest int64. Both become
        # 0, because the additions below wrap around.
        return zigzag(values) + np.uint64(2)
    if form in ("high", "largest"):
        return zigzag(values) + np.uint64(1)
    if form in ("signed", "fixed"):
        return zigzag(values)
    return values.astype(np.uint64) if values.dtype != np.uint8 else values


def pack_state(state: State) -> bytes:
    """Return the canonical encoding of a state. States with equal contents have equal encodings."""
    return b"".join(PackedSection(state).take_blocks())


class Section(NamedTuple):
    """An uncompressed section: its compressible bytes (`plain`), followed by its incompressible bytes (`noise`).

    If the section was read from a frame, `noise` may be a view of the bytes of the frame.
    """

    plain: bytes
    noise: bytes | memoryview = b""

    @property
    def size(self) -> int:
        """The number of bytes."""
        return len(self.plain) + len(self.noise)


class PackedSection:
    """The canonical encoding of a state, which the caller takes block by block.

    Each piece of the encoding is freed as soon as its bytes have been taken. This limits memory use: the whole encoding
    and its compressed form are never in memory together.

    Parameters
    ----------
    state : State
        The state to encode.
    schema : Schema, optional
        The result of `build_schema` for this state; by default it is computed.

    Attributes
    ----------
    size, noise_size : int
        The number of bytes in the section, and the number of incompressible bytes (noise) at its end.
    """

    def __init__(self, state: State, schema: Schema | None = None) -> None:
        layout = SectionLayout(schema or build_schema(state))
        writer = _Writer(layout, state)
        header: dict[str, int] = writer.header
        header["two"], header["three"], small = encode_tiers(writer.small)
        values = [header.get(n, 0) for n in layout.header_names]
        if max(values) > MAX_HEADER_NUMBER:
            raise ValueError(
                "the state has more than 2**32 entries and cannot be saved; use a smaller bits=, or fewer slices"
            )
        self._pieces = deque([np.array(values, HEADER), *small, *writer.rest])
        self._noise: deque[Array | _LowLimbs] = deque(writer.noise)
        self.noise_size = sum(piece.nbytes for piece in self._noise)
        self.size = sum(piece.nbytes for piece in self._pieces) + self.noise_size

    def take_blocks(self) -> Iterator[bytes]:
        """Yield the bytes of the section in blocks, and free them; this method can be called only once."""
        yield from self.take_compressible_blocks()
        yield from self.take_noise_blocks()

    def take_compressible_blocks(self) -> Iterator[bytes]:
        """Yield the compressible bytes in blocks, and free them."""
        return _take_blocks(self._pieces)

    def take_noise_blocks(self) -> Iterator[bytes]:
        """Yield the incompressible bytes (noise) in blocks, and free them."""
        return _take_blocks(self._noise)


def _take_blocks(pieces: deque[Array | _LowLimbs]) -> Iterator[bytes]:
    """Remove all pieces, first to last, and yield their bytes in blocks of at least BLOCK bytes (except the last)."""
    some: list[Any] = []
    size = 0
    while pieces:
        piece = pieces.popleft()
        for i in range(0, len(piece), BLOCK):
            some.append(piece[i : i + BLOCK])
            size += some[-1].nbytes
            if size >= BLOCK:
                yield b"".join(some)
                some, size = [], 0
    if some:
        yield b"".join(some)


class _LowLimbs:
    """The low limbs of an array of fixed-point numbers, encoded as five bytes each.

    A fixed-point number consists of two integers (limbs). The second, the low limb, is below 2**40. Limbs are encoded
    only when a slice of this object is taken, so that the bytes of only one block are in memory at a time.
    """

    def __init__(self, values: Ints) -> None:
        self.values, self.nbytes = values, LIMB * len(values)

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, at: slice) -> Array:
        return np.ascontiguousarray(
            np.ascontiguousarray(self.values[at], "<i8").view(np.uint8).reshape(-1, 8)[:, :LIMB]
        )


class _Writer:
    """An encoder that turns a state into the pieces of a section.

    `small` is an iterator that yields the numbers to be stored with a variable length. Consume it first, because it
    also fills `header`, `rest` and `noise`, which are complete only when it is exhausted. Large arrays are encoded
    block by block, to limit temporary memory.
    """

    def __init__(self, layout: SectionLayout, state: State) -> None:
        self.layout, self.state = layout, state
        self.header: dict[str, int] = {"fronts": len(state), "cells": len(state.cells)}
        self.rest: list[Array | _LowLimbs] = []
        self.noise: list[Array] = []
        self.small = self._encode_small_numbers()

    def _encode_small_numbers(self) -> Iterator[Array]:
        cells = self.state.cells
        for i in range(len(cells.column_names)):
            yield zigzag(np.diff(cells.keys[:, i], prepend=0))
        classes = [] if cells.class_vocabulary is None else [cells.class_vocabulary]
        for i, vocabulary in enumerate([*cells.vocabularies, *classes]):
            yield from self._encode_vocabulary(i, vocabulary)
        if cells.inner_keys is not None:
            yield np.bincount(cells.inner_keys[:, 0], minlength=len(cells.keys)).astype(np.uint64)
            yield from self._encode_inner_keys(cells.inner_keys, ids=cells.class_vocabulary is None)
        for flat in self.layout.flats:
            yield from self._encode_flat(flat)
        for tally in self.layout.tallies:
            yield from self._encode_tally(tally)

    def _encode_vocabulary(self, i: int, vocabulary: Vocabulary) -> Iterator[Array]:
        if not len(vocabulary):
            return
        self.header[f"kind {i}"], self.header[f"words {i}"] = 1 + NAMES.index(vocabulary.kind), len(vocabulary)
        if vocabulary.is_text:
            letters = np.frombuffer(b"".join(vocabulary.values), np.uint8)
            self.header[f"letters {i}"] = len(letters)
            self.rest.append(letters)
            yield np.array([len(v) for v in vocabulary.values], np.uint64)
            return
        # Negative integers v are written first, as -1 - v. For a vocabulary of strings, the header field "letters"
        # stores the total length of the strings. For integers, it stores the number of negative integers.
        values = vocabulary.values
        below = int(np.searchsorted(values, 0))
        self.header[f"letters {i}"] = below
        yield compute_gaps((-1 - values[:below])[::-1].astype(np.uint64))
        yield compute_gaps(values[below:].astype(np.uint64))

    def _encode_inner_keys(self, inner: Ints, *, ids: bool) -> Iterator[Array]:
        if ids:
            self.rest.append(np.ascontiguousarray(inner[:, 1:], "<i8"))
            return
        for i in range(1, inner.shape[1]):
            yield zigzag(np.diff(inner[:, i], prepend=0))

    def _encode_flat(self, flat: Flat) -> Iterator[Array]:
        name, layout = flat.name, self.layout
        array = self.state.cells.flats[name]
        if name == "dropped":
            array = array[:, [self.state.reasons.index(r) for r in layout.schema.reasons]]
        numbers = array.reshape(len(array) * layout.extents[name], *array.shape[array.ndim - bool(flat.limbs) :])
        if layout.extents[name] >= SPARSE:
            informative = numbers != FORMS[flat.form].identity
            some = np.flatnonzero(informative.any(axis=1) if flat.limbs else informative)
            self.header[f"some {name}"] = len(numbers)
            if is_sparse(len(some), len(numbers)):
                self.header[f"some {name}"] = len(some)
                yield compute_gaps(some.astype(np.uint64))
                numbers = numbers[some]
        if flat.form == "exact":
            places, lengths, words = pack_superaccumulators(numbers)
            self.header[f"chunks {name}"] = len(words)
            self.rest.append(words)
            yield places
            yield lengths
            return
        if flat.limbs:
            self.rest.append(_LowLimbs(numbers[:, 1]))
            numbers = numbers[:, 0]
        for at in _cut_blocks(len(numbers)):
            yield to_unsigned(flat.form, numbers[at])

    def _encode_tally(self, tally: Tally) -> Iterator[Array]:
        name = tally.name
        e = self.state.cells.tallies[name]
        self.header[f"entries {name}"], self.header[f"excess {name}"] = len(e), int(e.excess is not None)
        runs = self.layout.label_slots[name]
        starts = (
            self.state.entry_starts(name)
            if runs == 1
            else replace(e, shift=65).cell_starts(runs * len(self.state.cells))
        )
        entry_counts = np.diff(starts)
        yield entry_counts.astype(np.uint64)
        begins = starts[:-1][entry_counts > 0]
        if name in self.layout.plane_tallies:
            yield from self._encode_wide(name, e, begins)
        else:
            yield from self._encode_places(tally, e, begins)
            for at in _cut_blocks(len(e)):
                yield e.counts[at] - e.counts.dtype.type(1)
        if e.excess is not None:
            self.rest.append(_LowLimbs(e.excess[:, 1]))
            for at in _cut_blocks(len(e)):
                yield zigzag(e.excess[at, 0])

    def _encode_places(self, tally: Tally, e: Entries, begins: Ints) -> Iterator[Array]:
        zeros = 0
        if tally.level is not None:
            zeros = self.header[f"zeros {tally.name}"] = _count_common_zeros(e.places)
        for at in _cut_blocks(len(e)):
            # Include the last entry of the previous block, because the first gap of this block is measured from that
            # entry.
            first = max(at.start - 1, 0)
            places = e.select(slice(first, at.stop)).places
            places = places >> places.dtype.type(zeros) if zeros else places
            yield compute_gaps(places, _select_within(begins, at) - first)[at.start - first :]

    def _encode_wide(self, name: str, e: Entries, begins: Ints) -> Iterator[Array]:
        union = most = 0
        # The gaps are needed twice: to find their size, and to store them. If there are several blocks, compute the
        # gaps twice rather than keeping all of them in memory.
        blocks = list(_iterate_wide_gaps(e, begins)) if len(e) <= BLOCK else None
        for _, keys, gaps in blocks or _iterate_wide_gaps(e, begins):
            union, most = union | int(np.bitwise_or.reduce(keys)), max(most, int(gaps.max()))
        zeros = _count_trailing_zeros(union)
        width = ((most >> zeros).bit_length() + 7) // 8
        self.header[f"zeros {name}"], self.header[f"width {name}"] = zeros, width
        # Plane k consists of byte k of every gap. High planes compress well. The low planes contain the last bits of
        # scores, which are practically random and do not compress, so these planes are stored uncompressed (as noise).
        planes = [np.empty(len(e), np.uint8) for _ in range(width)]
        for at, _, gaps in blocks or _iterate_wide_gaps(e, begins):
            gaps >>= np.uint64(zeros)
            octets = np.ascontiguousarray(gaps, "<u8").view(np.uint8).reshape(-1, 8)
            for k, plane in enumerate(planes):
                plane[at] = octets[:, k]
        low = int(count_noise_planes(width, zeros))
        self.noise += planes[:low]
        self.rest += planes[low:]
        for at in _cut_blocks(len(e)):
            last = e.codes[at] & np.uint64(1)
            yield (e.counts[at].astype(np.uint64) - np.uint64(1)) << np.uint64(1) | last


def _cut_blocks(length: int) -> Iterator[slice]:
    """Yield slices that divide a range into blocks of BLOCK elements."""
    return (slice(i, min(i + BLOCK, length)) for i in range(0, length, BLOCK))


def _select_within(begins: Ints, at: slice) -> Ints:
    """Return the items of `begins`, an array of ascending indices, that lie within the slice `at`."""
    if not at.start and len(begins) and begins[-1] < at.stop:
        return begins
    first, last = np.searchsorted(begins, (at.start, at.stop))
    return begins[first:last]


def _iterate_wide_gaps(e: Entries, begins: Ints) -> Iterator[tuple[slice, Array, Array]]:
    """Yield, for each block of wide entries, its slice, its places without their last bits, and the gaps between them.

    A wide entry has a place of more than 48 bits. `begins` contains the index of the first entry of each cell; the gap
    of this entry is its place itself.
    """
    before = np.uint64(0)
    for at in _cut_blocks(len(e)):
        keys, _ = split_last_bits(e.select(at))
        gaps = np.empty_like(keys)
        gaps[:1] = keys[:1] - before
        np.subtract(keys[1:], keys[:-1], out=gaps[1:])
        starts = _select_within(begins, at) - at.start
        gaps[starts] = keys[starts]
        before = keys[-1]
        yield at, keys, gaps


def _count_common_zeros(words: Array) -> int:
    """Return the number of trailing zero bits that all `words` have in common; 0 if all words are 0."""
    return _count_trailing_zeros(int(np.bitwise_or.reduce(words)) if len(words) else 0)


def _count_trailing_zeros(union: int) -> int:
    return (union & -union).bit_length() - 1 if union else 0


def split_last_bits(e: Entries) -> tuple[Array, Array]:
    """Split off the last bit of the place of each wide entry (an entry whose place has more than 48 bits).

    Returns two arrays: the 64 bits above the last bit of each place, and the last bit of each place.
    """
    keys = e.codes >> np.uint64(1)
    if e.high is not None and e.high_place_bits:
        keys |= (e.high & np.uint32(1)).astype(np.uint64) << np.uint64(63)
    return keys, e.codes & np.uint64(1)


def count_noise_planes(width: Any, zeros: Any) -> Any:
    """Return the number of low-order byte planes that are not worth compressing.

    Plane k contains byte k of every difference between successive places. A difference has `width` bytes after `zeros`
    trailing zero bits have been removed. If at least 16 bits have been removed, all planes are worth compressing.
    Otherwise only the two highest planes are.
    """
    return (zeros < 16) * (width > 2) * (width - 2)


def compute_gaps(places: Array, begins: Ints | None = None) -> Array:
    """Return the differences between adjacent ascending numbers, each reduced by one.

    At index 0 and at each index in `begins`, the result contains the element of `places` itself.
    """
    gaps = np.empty_like(places)
    gaps[:1] = places[:1]
    gaps[1:] = places[1:] - places[:-1] - places.dtype.type(1)
    if begins is not None:
        gaps[begins] = places[begins]
    return gaps


def require(condition: Any, message: str) -> None:
    """Raise StateFormatError unless a condition is true; `message` says why the state is corrupt."""
    if not condition:
        raise StateFormatError(f"the state is corrupt: {message}")
