"""Sections: the uncompressed canonical encoding of the content of a state.

::

    header              u32 sizes of all variable-length pieces (see `SectionLayout.header_names`)
    small numbers       of all parts, one after the other, in the variable-length encoding of `varint`
    rest                bytes: strings of keys, IDs of groups, large words of sums, high bytes of wide places
    noise               low bytes of wide places, which frames do not compress

A state has one front cell for each slice. It may have inner cells, one for each group or class within a slice. A cell has
two kinds of parts. A flat has a fixed number of integers, such as sums. A tally has sorted entries; each entry is a place,
such as a score bucket, and the number of rows there. The keys of slices are stored as ranks in the vocabulary of their
column, which is the sorted list of its distinct keys.

The small numbers are, in this order:

- the ranks of the keys, column by column, as differences between adjacent cells;
- for each vocabulary, the gaps between its integers or the lengths of its strings;
- the number of inner cells of each front cell, and the classes of the inner cells;
- the flats, cell by cell;
- for each tally, the number of entries of each cell, the gaps between adjacent places, and the numbers of rows minus one.

A flat with at least 32 numbers per cell is written sparsely if less than a quarter of its numbers differ from the neutral
element (0 for sums). A sparse flat stores only these numbers and the gaps between their positions.

A wide place has more than 48 bits, such as an exact score with its label. It is split. Its last bit (the label) becomes
the last bit of the number of rows. The gaps between the other bits of adjacent places are shifted right by the number of
trailing zero bits that they share, which is 29 for scores that were float32. The gaps are then written as planes: the
first bytes of all gaps, then the second bytes, and so on. A place of more than 65 bits contains the number of an output
label in its highest bits; the numbers of entries are then stored for each cell and output label.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any

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
    "SectionLayout",
    "compute_gaps",
    "count_noise_planes",
    "is_sparse",
    "pack_section",
    "pack_state",
    "split_last_bits",
    "to_unsigned",
]

Array = NDArray[Any]
Ints = NDArray[np.int64]

HEADER = np.dtype("<u4")
LIMB = 5
"""The bytes of the second of the two integers (limbs) of a fixed-point number. It is below 2**40."""
SPARSE = 32
"""A flat, such as the sums of a cell, may be written sparsely if it has at least this many numbers per cell."""
NAMES = [*KINDS, *SHARDS.values()]
MAX_HEADER_NUMBER = (1 << 32) - 1


class SectionLayout:
    """The order and the shapes of the pieces of a section, which follow from its schema.

    Both the writer and the reader of a section use the layout.
    """

    def __init__(self, schema: Schema) -> None:
        like = schema.like
        self.schema, self.like = schema, like
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
        """Whether a flat has numbers for each front cell (a slice) rather than each inner cell (a group or class)."""
        return flat.front or not self.has_inner

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
    """Whether a flat is written sparsely: less than a quarter of its numbers differ from the neutral element, such as 0.

    `some` is the number of those that differ, and `total` is the number of all numbers.
    """
    return 4 * some < total


def to_unsigned(form: str, values: Array) -> Array:
    """Map the numbers of a flat to nonnegative integers, so that the variable-length encoding can store them.

    `form` says how the numbers are merged: "low", for example, is a minimum. The neutral element of merging, such as 0
    for a sum, maps to 0.
    """
    if form in ("low", "least"):
        # The neutral element of a minimum is the largest int64, and that of a maximum the smallest int64. The additions
        # below wrap around, so that these two become 0.
        return zigzag(values) + np.uint64(2)
    if form in ("high", "largest"):
        return zigzag(values) + np.uint64(1)
    if form in ("signed", "fixed"):
        return zigzag(values)
    return values.astype(np.uint64) if values.dtype != np.uint8 else values


def pack_state(state: State) -> bytes:
    """Return the canonical encoding of a state: equal contents have equal bytes."""
    return pack_section(state)[0]


def pack_section(state: State, schema: Schema | None = None) -> tuple[bytes, int]:
    """Return the canonical encoding of a state, and the number of incompressible bytes (noise) at its end."""
    layout = SectionLayout(schema or build_schema(state))
    writer = _Writer(layout, state)
    header: dict[str, int] = writer.header
    header["two"], header["three"], small = encode_tiers(writer.small)
    values = [header.get(n, 0) for n in layout.header_names]
    if max(values) > MAX_HEADER_NUMBER:
        raise ValueError(
            "the state has more than 2**32 entries and cannot be saved; use a smaller bits=, or fewer slices"
        )
    pieces = [np.array(values, HEADER).tobytes(), *small, *writer.rest, *writer.noise]
    return b"".join(pieces), sum(map(len, writer.noise))


class _Writer:
    """Collects the pieces of the encoding of a state.

    `small` is an iterator over the small numbers. While it is consumed, it fills `header`, `rest` and `noise`, so they are
    complete only when it is exhausted.
    """

    def __init__(self, layout: SectionLayout, state: State) -> None:
        self.layout, self.state = layout, state
        self.header: dict[str, int] = {"fronts": len(state), "cells": len(state.cells)}
        self.rest: list[bytes] = []
        self.noise: list[bytes] = []
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
            letters = b"".join(vocabulary.values)
            self.header[f"letters {i}"] = len(letters)
            self.rest.append(letters)
            yield np.array([len(v) for v in vocabulary.values], np.uint64)
            return
        # Negative integers v are written first, as -1 - v. The header field "letters", which stores the length of the
        # strings in a vocabulary of strings, here stores the number of negative integers.
        values = vocabulary.values
        below = int(np.searchsorted(values, 0))
        self.header[f"letters {i}"] = below
        yield compute_gaps((-1 - values[:below])[::-1].astype(np.uint64))
        yield compute_gaps(values[below:].astype(np.uint64))

    def _encode_inner_keys(self, inner: Ints, *, ids: bool) -> Iterator[Array]:
        if ids:
            self.rest.append(np.ascontiguousarray(inner[:, 1:], "<i8").tobytes())
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
            self.rest.append(words.tobytes())
            yield places
            yield lengths
            return
        if flat.limbs:
            self.rest.append(_encode_low_limbs(numbers[:, 1]))
            numbers = numbers[:, 0]
        yield to_unsigned(flat.form, numbers)

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
        if name in self.layout.plane_tallies:
            yield from self._encode_wide(name, e, starts[:-1][entry_counts > 0])
        else:
            yield self._encode_places(tally, e, starts[:-1][entry_counts > 0])
            yield e.counts - e.counts.dtype.type(1)
        if e.excess is not None:
            self.rest.append(_encode_low_limbs(e.excess[:, 1]))
            yield zigzag(e.excess[:, 0])

    def _encode_places(self, tally: Tally, e: Entries, begins: Ints) -> Array:
        # A function of its own, so that the places, which may be large, are freed before the result is encoded.
        places = e.places
        if tally.level is not None:
            zeros = self.header[f"zeros {tally.name}"] = _count_common_zeros(places)
            places = places >> np.uint64(zeros)
        return compute_gaps(places, begins)

    def _encode_wide(self, name: str, e: Entries, begins: Ints) -> Iterator[Array]:
        keys, last = split_last_bits(e)
        zeros = _count_common_zeros(keys)
        gaps = np.diff(keys, prepend=np.uint64(0))
        gaps[begins] = keys[begins]
        gaps >>= np.uint64(zeros)
        width = (int(gaps.max(initial=0)).bit_length() + 7) // 8
        self.header[f"zeros {name}"], self.header[f"width {name}"] = zeros, width
        # Plane k holds byte k of every gap. High planes compress well. The low planes hold the last bits of scores, which
        # do not compress, so they are stored as noise.
        planes = np.ascontiguousarray(np.ascontiguousarray(gaps, "<u8").view(np.uint8).reshape(-1, 8)[:, :width].T)
        low = int(count_noise_planes(width, zeros))
        self.rest.append(planes[low:].tobytes())
        self.noise.append(planes[:low].tobytes())
        yield (e.counts.astype(np.uint64) - np.uint64(1)) << np.uint64(1) | last


def _count_common_zeros(words: Array) -> int:
    """Return the number of trailing zero bits that all `words` share; 0 if all words are 0."""
    union = int(np.bitwise_or.reduce(words)) if len(words) else 0
    return (union & -union).bit_length() - 1 if union else 0


def split_last_bits(e: Entries) -> tuple[Array, Array]:
    """Split off the last bit of each place of wide entries, whose places have more than 48 bits.

    Returns two arrays: the low 65 bits of each place without the last one, and the last bit of each place.
    """
    keys = e.codes >> np.uint64(1)
    if e.high is not None and e.high_place_bits:
        keys |= (e.high & np.uint32(1)).astype(np.uint64) << np.uint64(63)
    return keys, e.codes & np.uint64(1)


def count_noise_planes(width: Any, zeros: Any) -> Any:
    """Return how many of the low byte planes of gaps between places are not worth compressing.

    Plane k holds byte k of every gap, which has `width` bytes. Only the two highest planes are worth compressing, unless
    at least 16 trailing zero bits (`zeros`) were removed from the gaps: then all planes are.
    """
    return (zeros < 16) * (width > 2) * (width - 2)


def compute_gaps(places: Array, begins: Ints | None = None) -> Array:
    """Return the differences between adjacent ascending numbers, minus one.

    At index 0 and at each index in `begins`, the result contains the number itself.
    """
    gaps = np.empty_like(places)
    gaps[:1] = places[:1]
    gaps[1:] = places[1:] - places[:-1] - places.dtype.type(1)
    if begins is not None:
        gaps[begins] = places[begins]
    return gaps


def _encode_low_limbs(values: Array) -> bytes:
    """Encode the second of the two integers (limbs) of each fixed-point number, which is below 2**40, as five bytes."""
    return np.ascontiguousarray(values, "<i8").view(np.uint8).reshape(-1, 8)[:, :LIMB].tobytes()


def require(condition: Any, message: str) -> None:
    """Raise StateFormatError, which says that the state is corrupt and why, unless a condition holds."""
    if not condition:
        raise StateFormatError(f"the state is corrupt: {message}")
