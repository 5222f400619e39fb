"""Sections: the one plain encoding of the content of a state.

::

    u32 lead            how many of everything (see `lead_names`)
    small numbers       of all parts, one after the other, in tiers (`numbers`)
    the rest            letters, ids of groups, words and low limbs of sums, high planes of wide places, as bytes
    low planes          of wide places: noise, which frames leave as it is

What is small: ranks of keys, as differences by column; words, as gaps or lengths; of cells behind how many a front cell
has, and their classes; flats, cell by cell; of tallies the entries of each cell, gaps between places, rows less one. Flats
of 32 numbers a cell and more, of which less than a quarter say anything, are gaps and what is there. Of wide places the
last bit goes with the rows, and gaps are without the zeros that all end in: 29 of scores that were float32. Of places of
more than 65 bits the bits above say of which label they are, and entries are counted by cell and label.
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
from ..numerics.keys import KINDS, SHARDS
from ..state.axes import Vocabulary
from ..state.declare import FORMS, Flat, Tally
from ..state.state import State
from ..state.tally import WIDEST, Entries
from .schema import Schema, schema_of
from .superaccumulator_codec import pack_exact
from .varint import tiers, zigzag

__all__ = [
    "LEAD",
    "LIMB",
    "SPARSE",
    "SectionLayout",
    "gaps_of",
    "keys_of",
    "noise",
    "pack",
    "packed",
    "sparse",
    "unmarked",
]

Array = NDArray[Any]
Ints = NDArray[np.int64]

LEAD = np.dtype("<u4")
LIMB = 5  # bytes of a second limb, below 2**40
SPARSE = 32  # numbers a cell, from which a flat may be written as what is not zero
NAMES = [*KINDS, *SHARDS.values()]
MOST_LEAD = (1 << 32) - 1


class SectionLayout:
    """What a section of a schema has, in order."""

    def __init__(self, schema: Schema) -> None:
        like = schema.like
        self.schema, self.like = schema, like
        self.columns = [*like.cells.columns, *(["behind"] if like.cells.behind is not None else [])]
        self.inner = like.cells.inner is not None
        self.flats = [p for p in schema.parts.values() if isinstance(p, Flat)]
        self.tallies = [p for p in schema.parts.values() if isinstance(p, Tally)]
        self.places = {t.name: (t.count(like), t.shift(like), t.wide(like)) for t in self.tallies}
        self.planes = {t.name for t in self.tallies if t.wide(like) and t.level is None}
        if any(shift > 65 and count % WIDEST for count, shift, _ in self.places.values()):
            raise ValueError("a place has at most 65 bits, and those of a label")
        self.runs = {n: 1 << max(shift - 65, 0) for n, (_, shift, _) in self.places.items()}
        self.shapes = {f.name: self._shape(f) for f in self.flats}
        self.extents = {n: math.prod(s) for n, s in self.shapes.items()}

    def _shape(self, flat: Flat) -> tuple[int, ...]:
        if flat.name == "dropped":
            return (len(self.schema.reasons),)
        shape = flat.extents(self.like)
        return shape[:-1] if flat.limbs else shape

    def fronts(self, flat: Flat) -> bool:
        """Whether a flat has a row for every front cell, and not for those behind."""
        return flat.front or not self.inner

    @cached_property
    def lead_names(self) -> list[str]:
        """What the numbers of the lead are."""
        out = ["fronts", *(["cells"] if self.inner else []), "two", "three"]
        for i in range(len(self.columns)):
            out += [f"kind {i}", f"words {i}", f"letters {i}"]
        for flat in self.flats:
            out += [f"some {flat.name}"] if self.extents[flat.name] >= SPARSE else []
            out += [f"chunks {flat.name}"] if flat.form == "exact" else []
        for tally in self.tallies:
            out += [f"entries {tally.name}", f"excess {tally.name}"]
            out += [f"zeros {tally.name}"] if tally.name in self.planes or tally.level is not None else []
            out += [f"width {tally.name}"] if tally.name in self.planes else []
        return out


def sparse(some: Any, total: Any) -> Any:
    """Whether so few numbers of a flat say anything that they are written with their places."""
    return 4 * some < total


def unmarked(form: str, values: Array) -> Array:
    """Numbers of a flat as numbers that are not negative; what says nothing is 0."""
    if form in ("low", "least"):
        return zigzag(values) + np.uint64(2)  # modulo 2**64, as below
    if form in ("high", "largest"):
        return zigzag(values) + np.uint64(1)
    if form in ("signed", "fixed"):
        return zigzag(values)
    return values.astype(np.uint64) if values.dtype != np.uint8 else values


def pack(state: State) -> bytes:
    """The canonical encoding of a state: equal content, equal bytes."""
    return packed(state)[0]


def packed(state: State, schema: Schema | None = None) -> tuple[bytes, int]:
    """The canonical encoding of a state, and how many bytes at its end are noise."""
    layout = SectionLayout(schema or schema_of(state))
    writer = _Writer(layout, state)
    lead: dict[str, int] = writer.lead
    lead["two"], lead["three"], small = tiers(writer.small)
    values = [lead.get(n, 0) for n in layout.lead_names]
    if max(values) > MOST_LEAD:
        raise ValueError("a state of more than 2**32 entries cannot be written")
    head = np.array(values, LEAD).tobytes()
    return b"".join([head, *small, *writer.rest, *writer.last]), sum(map(len, writer.last))


class _Writer:
    """Takes a state apart."""

    def __init__(self, layout: SectionLayout, state: State) -> None:
        self.layout, self.state = layout, state
        self.lead: dict[str, int] = {"fronts": len(state), "cells": len(state.cells)}
        self.rest: list[bytes] = []
        self.last: list[bytes] = []
        self.small = self._small()

    def _small(self) -> Iterator[Array]:
        cells = self.state.cells
        for i in range(len(cells.columns)):
            yield zigzag(np.diff(cells.keys[:, i], prepend=0))
        for i, words in enumerate([*cells.words, *([] if cells.behind is None else [cells.behind])]):
            yield from self._words(i, words)
        if cells.inner is not None:
            yield np.bincount(cells.inner[:, 0], minlength=len(cells.keys)).astype(np.uint64)
            yield from self._inner(cells.inner, ids=cells.behind is None)
        for flat in self.layout.flats:
            yield from self._flat(flat)
        for tally in self.layout.tallies:
            yield from self._tally(tally)

    def _words(self, i: int, words: Vocabulary) -> Iterator[Array]:
        if not len(words):
            return
        self.lead[f"kind {i}"], self.lead[f"words {i}"] = 1 + NAMES.index(words.kind), len(words)
        if words.texts:
            letters = b"".join(words.values)
            self.lead[f"letters {i}"] = len(letters)
            self.rest.append(letters)
            yield np.array([len(v) for v in words.values], np.uint64)
            return
        values = words.values
        below = int(np.searchsorted(values, 0))
        self.lead[f"letters {i}"] = below
        yield gaps_of((-1 - values[:below])[::-1].astype(np.uint64))
        yield gaps_of(values[below:].astype(np.uint64))

    def _inner(self, inner: Ints, *, ids: bool) -> Iterator[Array]:
        if ids:
            self.rest.append(np.ascontiguousarray(inner[:, 1:], "<i8").tobytes())
            return
        for i in range(1, inner.shape[1]):
            yield zigzag(np.diff(inner[:, i], prepend=0))

    def _flat(self, flat: Flat) -> Iterator[Array]:
        name, layout = flat.name, self.layout
        array = self.state.cells.flats[name]
        if name == "dropped":
            array = array[:, [self.state.reasons.index(r) for r in layout.schema.reasons]]
        numbers = array.reshape(len(array) * layout.extents[name], *array.shape[array.ndim - bool(flat.limbs) :])
        if layout.extents[name] >= SPARSE:
            said = numbers != FORMS[flat.form].identity
            some = np.flatnonzero(said.any(axis=1) if flat.limbs else said)
            self.lead[f"some {name}"] = len(numbers)
            if sparse(len(some), len(numbers)):
                self.lead[f"some {name}"] = len(some)
                yield gaps_of(some.astype(np.uint64))
                numbers = numbers[some]
        if flat.form == "exact":
            places, lengths, words = pack_exact(numbers)
            self.lead[f"chunks {name}"] = len(words)
            self.rest.append(words.tobytes())
            yield places
            yield lengths
            return
        if flat.limbs:
            self.rest.append(_limbs(numbers[:, 1]))
            numbers = numbers[:, 0]
        yield unmarked(flat.form, numbers)

    def _tally(self, tally: Tally) -> Iterator[Array]:
        name = tally.name
        e = self.state.cells.tallies[name]
        self.lead[f"entries {name}"], self.lead[f"excess {name}"] = len(e), int(e.excess is not None)
        runs = self.layout.runs[name]
        starts = self.state.starts(name) if runs == 1 else replace(e, shift=65).starts(runs * len(self.state.cells))
        each = np.diff(starts)
        yield each.astype(np.uint64)
        if name in self.layout.planes:
            yield from self._wide(name, e, starts[:-1][each > 0])
        else:
            places = e.places
            if tally.level is not None:
                zeros = self.lead[f"zeros {name}"] = _zeros(places)
                places = places >> np.uint64(zeros)
            yield gaps_of(places, starts[:-1][each > 0])
            yield e.counts - e.counts.dtype.type(1)
        if e.excess is not None:
            self.rest.append(_limbs(e.excess[:, 1]))
            yield zigzag(e.excess[:, 0])

    def _wide(self, name: str, e: Entries, begins: Ints) -> Iterator[Array]:
        keys, last = keys_of(e)
        zeros = _zeros(keys)
        gaps = np.diff(keys, prepend=np.uint64(0))
        gaps[begins] = keys[begins]
        gaps >>= np.uint64(zeros)
        width = (int(gaps.max(initial=0)).bit_length() + 7) // 8
        self.lead[f"zeros {name}"], self.lead[f"width {name}"] = zeros, width
        planes = np.ascontiguousarray(np.ascontiguousarray(gaps, "<u8").view(np.uint8).reshape(-1, 8)[:, :width].T)
        low = int(noise(width, zeros))
        self.rest.append(planes[low:].tobytes())
        self.last.append(planes[:low].tobytes())
        yield (e.counts.astype(np.uint64) - np.uint64(1)) << np.uint64(1) | last


def _zeros(words: Array) -> int:
    """How many zeros all words end in; 0 if they are all 0."""
    union = int(np.bitwise_or.reduce(words)) if len(words) else 0
    return (union & -union).bit_length() - 1 if union else 0


def keys_of(e: Entries) -> tuple[Array, Array]:
    """The places of wide entries less their last bit, and this bit."""
    keys = e.codes >> np.uint64(1)
    if e.high is not None and e.top:
        keys |= (e.high & np.uint32(1)).astype(np.uint64) << np.uint64(63)
    return keys, e.codes & np.uint64(1)


def noise(width: Any, zeros: Any) -> Any:
    """How many planes of gaps are noise, which deflate would only be slow on: of float64, all but the first two."""
    return (zeros < 16) * (width > 2) * (width - 2)


def gaps_of(places: Array, begins: Ints | None = None) -> Array:
    """Ascending numbers as what is between them; anew from each of some places on."""
    gaps = np.empty_like(places)
    gaps[:1] = places[:1]
    gaps[1:] = places[1:] - places[:-1] - places.dtype.type(1)
    if begins is not None:
        gaps[begins] = places[begins]
    return gaps


def _limbs(values: Array) -> bytes:
    """Numbers below 2**40, five bytes each."""
    return np.ascontiguousarray(values, "<i8").view(np.uint8).reshape(-1, 8)[:, :LIMB].tobytes()


def need(condition: Any, what: str) -> None:
    """Raise unless a condition holds."""
    if not condition:
        raise StateFormatError(what)
