"""Decode flats: parts of a state, such as its sums, with the same number of integers in every cell (slice or group)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import StateFormatError
from ..state.declare import CEILING, LIMIT, Flat, identity
from ..state.levels import HIGHEST
from ..state.state import State
from .section import LIMB, SPARSE, is_sparse, require
from .section_header import SectionReader
from .superaccumulator_codec import WORDS, unpack_superaccumulators
from .varint import count_by_section, cumsum_by_section, is_below, is_single, total, unzigzag

__all__ = ["decode_low_limbs", "is_redundant", "read_flat"]

Ints = NDArray[np.int64]
Array = NDArray[Any]


def read_flat(reader: SectionReader, flat: Flat) -> Array:
    """Read a flat (a part with the same number of integers in every slice or group) from all sections (encoded states).

    Return an array with a row for each cell (slice or group). The cells of the first section come first, and so on.
    """
    rows, row_count = reader.count_rows(flat)
    layout, name = reader.layout, flat.name
    if layout.extents[name] < SPARSE:
        numbers = _read_numbers(reader, flat, rows * layout.extents[name])
    else:
        stored_counts, places = reader.count_written(flat)
        at = reader.read_numbers(places) if total(places) else None
        numbers = _read_numbers(reader, flat, stored_counts)
        numbers = _place_numbers(flat, numbers, at, (stored_counts, places), rows * layout.extents[name])
    array = numbers.reshape(row_count, *layout.shapes[name], *numbers.shape[1:])
    if name == "dropped":
        require(find_reasons(array, rows).all(), "a reason is listed for which no rows were dropped")
    return array


def find_reasons(dropped: Array, rows: Any) -> Array:
    """Return a boolean array: element (i, j) says whether section i has rows that were dropped for reason j.

    `dropped` contains the number of dropped rows by cell and reason, and `rows` the number of cells in each section.
    """
    rows = np.atleast_1d(rows)
    out = np.zeros((len(rows), dropped.shape[1]), bool)
    np.logical_or.at(out, np.repeat(np.arange(len(rows)), rows), dropped != 0)
    return out


def _read_numbers(reader: SectionReader, flat: Flat, stored_counts: Any) -> Array:
    """Read the stored numbers of a flat (a part of a state, such as the sums of its cells) from every section.

    `stored_counts` says how many numbers each section stores. A sparse section omits some numbers, such as zeros.
    Raises an error if a number is out of range.
    """
    form, name = flat.form, flat.name
    if form == "exact":
        places, lengths, words = (
            reader.read_numbers(stored_counts),
            reader.read_numbers(stored_counts),
            reader.header[f"chunks {name}"],
        )
        require(is_below(lengths, WORDS + 1), "a sum has too many digits")
        require(reader.adds_up(lengths, stored_counts, words), "the lengths of the sums do not add up")
        return unpack_superaccumulators(places, lengths, reader.rest.cut(4 * words, "<u4"))
    codes = reader.read_numbers(stored_counts)
    if form in ("low", "high", "least", "largest"):
        return unzigzag(codes.astype(np.uint64) - np.uint64(2 if form in ("low", "least") else 1))
    if form in ("level", "flag", "once", "register"):
        most = HIGHEST if form == "level" else 255 if form == "register" else 1
        require(is_below(codes, most + 1), f"{name} is out of range")
        return codes.astype(flat.dtype)
    signed = form in ("signed", "fixed")
    # A signed number v is stored as 2 * v if it is nonnegative, otherwise as -1 - 2 * v, so the codes have twice the
    # range.
    require(is_below(codes, 2 * LIMIT - 1 if signed else LIMIT), f"{name} is out of range")
    if not flat.limbs:
        return unzigzag(codes) if signed else codes.astype(np.int64)
    out = np.zeros((len(codes), 2), np.int64)
    out[:, 0] = unzigzag(codes) if signed else codes
    decode_low_limbs(reader.rest.cut(LIMB * stored_counts), out[:, 1])
    if form == "square" and not is_below(codes, CEILING):
        high, low = out.T
        require(not (high > CEILING).any() and not low[high == CEILING].any(), f"{name} is out of range")
    return out


def decode_low_limbs(raw: Array, out: Ints) -> None:
    """Decode into `out` the second integer (limb) of each fixed-point number, which `raw` stores in five bytes."""
    limbs = np.zeros((len(out), 8), np.uint8)
    limbs[:, :LIMB] = raw.reshape(-1, LIMB)
    out[:] = limbs.view("<i8")[:, 0]


def _place_numbers(flat: Flat, numbers: Array, at: Array | None, counts: tuple[Any, Any], whole: Any) -> Array:
    """Return the numbers of all sections; insert the neutral element (usually 0) for those that sparse sections omit.

    Raises an error if a section is not stored in its shorter form (sparse or full).

    Parameters
    ----------
    flat : Flat
        The part of the state to which the numbers belong.
    numbers : array
        The stored numbers of all sections.
    at : array, optional
        The gaps between the positions of the numbers in sparse sections; None if no section stores positions.
    counts : tuple of two int64, or int for a single section
        How many numbers and how many positions each section stores.
    whole : int64, or int for a single section
        How many numbers each section has, including those that it does not store.
    """
    stored_counts, places, whole = map(np.atleast_1d, (*counts, whole))
    neutral = _is_identity(flat, numbers)
    # For each section, count the numbers that differ from the neutral element. If there is only one section, avoid
    # computing the indices of these numbers, which would take eight times the memory of the boolean array.
    if len(stored_counts) == 1:
        informative = np.array([len(neutral) - np.count_nonzero(neutral)])
    else:
        informative = count_by_section(np.flatnonzero(~neutral), stored_counts)
    # Find the sparse sections by how many numbers they store, not by whether they store positions. If all numbers of a
    # sparse section are neutral, it stores no positions.
    has_places = places > 0
    sparse = stored_counts != whole
    if (has_places & (informative != stored_counts)).any() or (~sparse & is_sparse(informative, whole)).any():
        raise StateFormatError(f"the state is corrupt: {flat.name} is not written in its shortest form")
    if not sparse.any():
        return numbers
    out = np.empty((int(whole.sum()), *numbers.shape[1:]), flat.dtype)
    out[...] = identity(flat.form)
    index = np.arange(len(numbers))
    base = np.cumsum(whole) - whole
    index += np.repeat(base - (np.cumsum(stored_counts) - stored_counts), stored_counts)
    if at is not None:
        steps = at.astype(np.uint64) + np.uint64(1)
        require(int(at.max()) < 1 << 62 and not (steps == 0).any(), f"{flat.name} has a place out of range")
        where = cumsum_by_section(steps.astype(np.int64), places) - 1
        in_range = (where >= 0).all() and (where < np.repeat(whole, places)).all()
        require(in_range, f"{flat.name} has a place out of range")
        require(_is_ascending(where, places), f"{flat.name} has unsorted places")
        index[np.repeat(sparse, stored_counts)] = where + np.repeat(base, places)
    out[index] = numbers
    return out


def _is_ascending(where: Ints, counts: Ints) -> bool:
    """Return whether the positions ascend within each section; `counts` is the number of positions in each section."""
    up = where[1:] > where[:-1]
    begins = np.cumsum(counts)[:-1]
    up[begins[(begins > 0) & (begins < len(where))] - 1] = True
    return bool(up.all())


def _is_identity(flat: Flat, numbers: Array) -> Array:
    same: Array = numbers == identity(flat.form)
    return np.asarray(same.all(axis=1)) if same.ndim > 1 else same


def is_redundant(state: State, flat: Flat, rows: Any) -> bool:
    """Return whether any section stores `flat`, an optional part of a state, when it should have omitted it.

    A section must omit an optional flat if all its numbers are zero or, for some flats, equal to those of another part
    of the state. If all weights are 1, for example, the sums of squared weights equal the numbers of rows. `rows` is
    the number of cells in each section.
    """
    array = state.cells.flats[flat.name]
    if flat.like is None:
        differs = array != 0
    else:
        bare = {n: a for n, a in state.cells.flats.items() if n != flat.name}
        differs = array != state.with_cells(replace(state.cells, flats=bare)).read_cells(flat)
    if is_single(rows):
        return not differs.any()
    some = differs.reshape(len(array), -1).any(axis=1) if len(array) else np.zeros(0, bool)
    return bool((count_by_section(np.flatnonzero(some), rows) == 0).any())
