"""Flats of sections."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import StateFormatError
from ..state.declare import CEILING, LIMIT, Flat, identity
from ..state.levels import HIGHEST
from ..state.state import State
from .section import LIMB, need, sparse
from .section_header import Lead
from .superaccumulator_codec import WORDS, unpack_exact
from .varint import per_section, running, unzigzag

__all__ = ["limbs", "read_flat", "says_nothing"]

Ints = NDArray[np.int64]
Array = NDArray[Any]


def read_flat(lead: Lead, flat: Flat) -> Array:
    """One part of all sections: a row for every cell."""
    rows, total = lead.of(flat)
    stored, places = lead.stored(flat)
    extent = lead.layout.extents[flat.name]
    at = lead.next(places) if places.any() else None
    numbers = _numbers(lead, flat, stored)
    shape = lead.layout.shapes[flat.name]
    if f"some {flat.name}" in lead.said:
        numbers = _spread(flat, numbers, at, (stored, places), rows * extent)
    made = numbers.reshape(total, *shape, *numbers.shape[1:])
    if flat.name == "dropped":
        said = per_reason(made, rows)
        need(said.all(), "a reason is said for which no rows were dropped")
    return made


def per_reason(dropped: Array, rows: Ints) -> Array:
    """Whether each section has rows that were dropped for each reason."""
    out = np.zeros((len(rows), dropped.shape[1]), bool)
    np.logical_or.at(out, np.repeat(np.arange(len(rows)), rows), dropped != 0)
    return out


def _numbers(lead: Lead, flat: Flat, stored: Ints) -> Array:
    """The numbers that are written, of every section, checked one by one."""
    form, name = flat.form, flat.name
    if form == "exact":
        places, lengths, words = lead.next(stored), lead.next(stored), lead.said[f"chunks {name}"]
        need(int(lengths.max(initial=0)) <= WORDS, "a sum has words beyond its last")
        need(lead.fits(lengths.astype(np.int64), stored, words), "the words of a sum do not fit")
        return unpack_exact(places, lengths, lead.rest.cut(4 * words, "<u4"))
    said = lead.next(stored)
    if form in ("low", "high", "least", "largest"):
        return unzigzag(said.astype(np.uint64) - np.uint64(2 if form in ("low", "least") else 1))
    if form == "level":
        need(int(said.max(initial=0)) <= HIGHEST, f"{name} is out of range")
        return said.astype(flat.dtype)
    if form in ("flag", "once", "register"):
        need(int(said.max(initial=0)) <= (255 if form == "register" else 1), f"{name} is out of range")
        return said.astype(flat.dtype)
    if form in ("signed", "fixed"):
        values = unzigzag(said)
        need(int(values.max(initial=0)) < LIMIT and int(values.min(initial=0)) > -LIMIT, f"{name} is out of range")
    else:
        need(int(said.max(initial=0)) < LIMIT, f"{name} is out of range")
        values = said.astype(np.int64)
    if not flat.limbs:
        return values
    low = limbs(lead.rest.cut(LIMB * stored))
    if form == "square":
        need(not (values > CEILING).any() and not (low[values == CEILING]).any(), f"{name} is out of range")
    return np.stack([values, low], axis=1)


def limbs(raw: Array) -> Ints:
    """Second limbs, below 2**40."""
    out = np.zeros((len(raw) // LIMB, 8), np.uint8)
    out[:, :LIMB] = raw.reshape(-1, LIMB)
    return out.view("<i8").ravel().astype(np.int64, copy=False)


def _spread(flat: Flat, numbers: Array, at: Array | None, counts: tuple[Ints, Ints], whole: Ints) -> Array:
    """Put numbers where they belong; whether a section is written in full follows from what it says."""
    stored, places = counts
    blank = _blank(flat, numbers)
    alone = len(stored) == 1  # an index of all that is said would be larger than flags are
    said = np.array([len(blank) - np.count_nonzero(blank)]) if alone else per_section(np.flatnonzero(~blank), stored)
    few = places > 0
    none = stored != whole  # written as places, of which there may be none
    if (few & (said != stored)).any() or (~none & sparse(said, whole)).any():
        raise StateFormatError(f"{flat.name} is not written in its shortest form")
    if not none.any():
        return numbers
    out = np.empty((int(whole.sum()), *numbers.shape[1:]), flat.dtype)
    out[...] = identity(flat.form)
    index = np.arange(len(numbers))
    base = np.cumsum(whole) - whole
    index += np.repeat(base - (np.cumsum(stored) - stored), stored)
    if at is not None:
        steps = at.astype(np.uint64) + np.uint64(1)
        need(int(at.max()) < 1 << 62 and not (steps == 0).any(), "a place is not there")
        where = running(steps.astype(np.int64), places) - 1
        need(
            (where >= 0).all() and (where < np.repeat(whole, places)).all(),
            f"{flat.name} has a place that is not there",
        )
        need(_up(where, places), f"{flat.name} has a place that is not there")
        index[np.repeat(none, stored)] = where + np.repeat(base, places)
    out[index] = numbers
    return out


def _up(where: Ints, counts: Ints) -> bool:
    up = where[1:] > where[:-1]
    begins = np.cumsum(counts)[:-1]
    up[begins[(begins > 0) & (begins < len(where))] - 1] = True
    return bool(up.all())


def _blank(flat: Flat, numbers: Array) -> Array:
    same: Array = numbers == identity(flat.form)
    return np.asarray(same.all(axis=1)) if same.ndim > 1 else same


def says_nothing(made: State, flat: Flat, rows: Ints) -> bool:
    """Whether a section has an optional part that says no more than that it is absent."""
    array = made.cells.flats[flat.name]
    if flat.like is None:
        said = array != 0
    else:
        bare = {n: a for n, a in made.cells.flats.items() if n != flat.name}
        said = array != made.holding(replace(made.cells, flats=bare)).spelled(flat)
    some = said.reshape(len(array), -1).any(axis=1) if len(array) else np.zeros(0, bool)
    return bool((per_section(np.flatnonzero(some), rows) == 0).any())
