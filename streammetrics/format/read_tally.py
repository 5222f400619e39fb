"""Decode the tallies of sections, and check their buckets.

A tally counts the rows of each cell (such as a slice) by place, which may be a score or a score bucket. Its entries are
sorted by place. Each entry is a place with its number of rows. In some tallies, the width of the buckets depends on the
numbers in the cell. This width is given by an integer, the level of the cell.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..state import levels
from ..state.declare import LIMIT, Tally
from ..state.pair_levels import are_pairs, fit_part_levels
from ..state.state import State
from ..state.tally import MANY, WIDEST, Entries, find_code_type, find_count_type
from ..state.unknown_state import OpaqueState
from .read_flat import decode_low_limbs
from .section import LIMB, count_noise_planes, require
from .section_header import SectionReader
from .varint import BLOCK, cumsum_by_section, is_below, is_single, total, unzigzag

__all__ = ["check_folding", "check_levels", "read_tally"]

Ints = NDArray[np.int64]
MAX_UINT64 = (1 << 64) - 1
Array = NDArray[Any]


def read_tally(reader: SectionReader, tally: Tally) -> Entries:
    """Read the entries of a tally from all sections (encoded states).

    An entry is a place, such as a score or a score bucket, with its number of rows. Raises an error unless the places
    are sorted and unique in every cell (such as a slice).
    """
    header, name = reader.header, tally.name
    entries, excess = header[f"entries {name}"], header[f"excess {name}"]
    runs = reader.cells * reader.layout.label_slots[name]
    counted, n = reader.read_numbers(runs), total(entries)
    require(is_below(counted, n + 1), f"entries of {name} do not fit")
    _, shift, wide = reader.layout.places[name]
    if not n:
        require(not total(excess), f"entries of {name} do not fit")
        numbers = [header[f"{what} {name}"] for what in ("zeros", "width") if f"{what} {name}" in header]
        require(not any(map(total, numbers)), "a number in the header is out of range")
        return Entries.empty(shift, wide=wide)
    require(reader.adds_up(counted, runs, entries), f"entries of {name} do not fit")
    entry_counts = counted.astype(np.int64)
    if tally.level is not None:
        decoded = _read_buckets(reader, tally, entry_counts)
    else:
        decoded = _read_wide(reader, tally, entry_counts, n) if wide else _read_narrow(reader, tally, entry_counts)
    rows = float(decoded.counts.sum(dtype=np.float64))
    require(rows < LIMIT and is_below(decoded.counts, LIMIT), f"{name} has too many rows")
    return _read_excess(reader, tally, decoded, excess) if total(excess) else decoded


def _read_narrow(reader: SectionReader, tally: Tally, entry_counts: Ints) -> Entries:
    places, shift, _ = reader.layout.places[tally.name]
    entries = reader.header[f"entries {tally.name}"]
    gaps = reader.read_numbers(entries)
    require(is_below(gaps, places), f"{tally.name} has a place out of range")
    nonempty = np.flatnonzero(entry_counts)
    starts = (np.cumsum(entry_counts) - entry_counts)[nonempty]
    wide = find_code_type(len(entry_counts) << shift)
    # The last place of each cell, which must be in range, is computed from the sum of its gaps. Choose a type in which
    # the sum cannot overflow. If possible, choose the type of the gaps, because otherwise numpy copies the gaps. The
    # type float64 is exact for every sum in range, because a narrow place has at most 48 bits.
    bound = int(entry_counts.max()) * int(gaps.max())
    kind = np.uint32 if bound < MANY else np.int64 if bound < 1 << 63 else np.float64
    reach = np.add.reduceat(gaps, starts, dtype=kind) + entry_counts[nonempty]
    require(int(reach.max()) <= places, f"{tally.name} has a place out of range")
    # The following lines change the gaps in place, so copy them if they share memory with another array.
    codes: Array = gaps.astype(wide, copy=gaps.base is not None)
    del gaps
    # A code consists of a cell and a place. Convert the gaps to differences between adjacent codes, and add up these
    # differences to get the codes. The difference between the first code of a cell and the last code of the previous
    # cell may wrap around modulo 2**32 or 2**64. The sum then wraps around as well, so the code is correct.
    base = nonempty.astype(np.uint64) << np.uint64(shift)
    codes += wide(1)
    codes[starts] += (base - np.uint64(1)).astype(wide)
    codes[starts[1:]] -= (base + reach.astype(np.uint64) - np.uint64(1))[:-1].astype(wide)
    np.cumsum(codes, out=codes)
    return Entries(shift, codes, _decode_counts(reader.read_numbers(entries)))


def _read_buckets(reader: SectionReader, tally: Tally, entry_counts: Ints) -> Entries:
    """Read the entries of a tally whose places are buckets of numbers.

    Each entry of the result has a code of two words: the low word is the bucket, and the high word contains the
    indices of the cell (such as a slice) and of the output label.
    """
    places, shift, _ = reader.layout.places[tally.name]
    runs, entries = reader.layout.label_slots[tally.name], reader.header[f"entries {tally.name}"]
    if runs > 1:
        require(
            not entry_counts.reshape(-1, runs)[:, places // WIDEST :].any(), f"{tally.name} has a label out of range"
        )
    gaps = reader.read_numbers(entries).astype(np.uint64)
    nonempty = entry_counts > 0
    starts = (np.cumsum(entry_counts) - entry_counts)[nonempty]
    steps = gaps + np.uint64(1)
    steps[starts] -= np.uint64(1)
    buckets = cumsum_by_section(steps, entry_counts)
    ascends = np.append(True, buckets[1:] > buckets[:-1])
    ascends[starts] = True
    require(bool(ascends.all()), f"{tally.name} has an impossible bucket")
    counts = _decode_counts(reader.read_numbers(entries))
    entries, zeros = np.atleast_1d(entries), np.atleast_1d(reader.header[f"zeros {tally.name}"])
    require(
        not zeros[entries == 0].any() and _is_without_common_zeros(buckets, entries, zeros),
        "buckets have more trailing zeros than the header says",
    )
    zero_bits = np.repeat(zeros, entries).astype(np.uint64)
    # Check that the left shift below loses no bits. Otherwise the buckets might no longer be in ascending order.
    require(bool((buckets <= np.uint64(MAX_UINT64) >> zero_bits).all()), f"{tally.name} has an impossible bucket")
    buckets <<= zero_bits
    high = _encode_cells(entry_counts, min(max(shift - 64, 0), 1))
    return Entries(shift, buckets, counts, None, high)


def _encode_cells(entry_counts: Ints, shift: int) -> Array:
    """Return the high word of the code of each entry: the index of its cell, shifted to the left by `shift` bits.

    `entry_counts` contains the number of entries in each cell (such as a slice).
    """
    require(len(entry_counts) << shift < 1 << 32, "there are more cells than the format allows")
    if len(entry_counts) == 1:
        return np.zeros(entry_counts[0], np.uint32)
    high = np.repeat(np.arange(len(entry_counts), dtype=np.uint32), entry_counts)
    high <<= np.uint32(shift)
    return high


def _decode_counts(rows_less_one: Array) -> Array:
    """Return the number of rows of each entry: the stored number plus 1, because an entry has at least one row."""
    require(is_below(rows_less_one, LIMIT - 1), "a place has too many rows")
    kind = find_count_type(1 if is_below(rows_less_one, MANY - 1) else MANY)
    counts: Array = rows_less_one.astype(kind, copy=rows_less_one.base is not None)
    counts += counts.dtype.type(1)
    return counts


def _read_wide(reader: SectionReader, tally: Tally, entry_counts: Ints, n: int) -> Entries:
    name = tally.name
    places, shift, _ = reader.layout.places[name]
    if (runs := reader.layout.label_slots[name]) > 1:
        require(not entry_counts.reshape(-1, runs)[:, places // WIDEST :].any(), f"{name} has a label out of range")
        places = WIDEST
    entries = reader.header[f"entries {name}"]
    zeros, width = reader.header[f"zeros {name}"], reader.header[f"width {name}"]
    # Each stored number combines two values. Its last bit is the last bit of the place (the label of a score). The
    # other bits are the number of rows minus one.
    mixed = reader.read_numbers(entries)
    last = (mixed & mixed.dtype.type(1)).astype(np.uint8, copy=False)
    counts = _decode_counts(mixed >> mixed.dtype.type(1))
    del mixed
    keys = _read_gaps(reader, entries, width, zeros)
    # The key of an entry is its place without the last bit. The entries of a cell ascend if each key is larger than the
    # previous key, or if the two keys are equal (a gap of 0) and the later entry has the larger last bit. If a sum of
    # gaps overflows, a key is smaller than the previous key.
    wrong = keys[1:] == 0
    wrong &= last[1:] <= last[:-1]
    cumsum_by_section(keys, entry_counts)
    wrong |= keys[1:] < keys[:-1]
    if len(entry_counts) > 1:
        begins = (np.cumsum(entry_counts) - entry_counts)[entry_counts > 0]
        wrong[begins[1:] - 1] = False
    require(not wrong.any(), f"places of {name} are not sorted and unique")
    end = (places - 1) >> 1
    # Check that every place is in range. Also check that the keys of a section do not all end with a zero bit (unless
    # all keys are 0), because the writer removes the trailing zero bits that all keys have in common, and stores their
    # number as `zeros` in the header.
    if is_single(entries):
        shifts: Any = np.uint64(zeros)
        union, most = int(np.bitwise_or.reduce(keys)), int(keys[-1] if len(entry_counts) == 1 else keys.max())
        room = most <= end >> zeros
        bare: Any = union & 1 or (not union and not zeros)
    else:
        require(not (zeros[entries == 0].any() or width[entries == 0].any()), "a number in the header is out of range")
        shifts = np.repeat(zeros, entries).astype(np.uint64)
        room = not (keys > (np.uint64(end) >> shifts)).any()
        bare = _is_without_common_zeros(keys, entries, zeros)
    require(room, f"{name} has a place out of range")
    require(bare, f"places of {name} have more trailing zeros than the header says")
    keys <<= shifts
    if places % 2:
        require(not ((keys == end) & (last == 1)).any(), f"{name} has a place out of range")
    top = min(max(shift - 64, 0), 1)
    high = _encode_cells(entry_counts, top)
    for i in range(0, n if top else 0, BLOCK):
        high[i : i + BLOCK] |= (keys[i : i + BLOCK] >> np.uint64(63)).astype(np.uint32)
    keys <<= np.uint64(1)
    keys |= last
    return Entries(shift, keys, counts, None, high)


def _is_without_common_zeros(keys: Array, entries: Ints, zeros: Ints) -> bool:
    """Return whether, in every section, the writer removed all trailing zero bits that the places have in common.

    `keys` contains the stored places of all sections, `entries` the number of places in each section, and `zeros` the
    number of bits that the writer removed from each place. If all places of a section are 0, this number must be 0.
    """
    nonempty = entries > 0
    union = np.bitwise_or.reduceat(keys, (np.cumsum(entries) - entries)[nonempty])
    return bool((((union & np.uint64(1)) == 1) | ((union == 0) & (zeros[nonempty] == 0))).all())


def _read_gaps(reader: SectionReader, entries: Any, width: Any, zeros: Any) -> Array:
    """Read the gaps between the places of a tally from all sections.

    A section stores gaps of `width` bytes in planes: the first bytes of all gaps, then the second bytes, and so on. Low
    planes that compression would not shorten are stored separately. The number of these planes depends on `zeros`, the
    number of common trailing zero bits that the writer removed from the gaps.
    """
    low = count_noise_planes(width, zeros)
    rest, last = reader.rest.cut((width - low) * entries), reader.noise.cut(low * entries)
    out = np.zeros((total(entries), 8), np.uint8)
    begin = a = b = 0
    wider = False
    # A loop over sections takes 2 microseconds per section, which is faster than masks over all sections.
    sizes = [[c] if is_single(c) else c.tolist() for c in (entries, width, low)]
    for n, w, k in zip(*sizes, strict=True):
        if n and w:
            some = out[begin : begin + n]
            top = rest[a : a + n * (w - k)].reshape(w - k, n)
            # Copy each plane separately, which takes a third of the time of copying a transposed array.
            for i, plane in enumerate((*last[b : b + n * k].reshape(k, n), *top)):
                some[:, i] = plane
            wider |= not top[-1].any()
            a, b = a + n * (w - k), b + n * k
        begin += n
    require(not wider, "gaps take a byte more than necessary")
    return out.view("<u8").ravel().astype(np.uint64, copy=False)


def _read_excess(reader: SectionReader, tally: Tally, decoded: Entries, has_excess: Any) -> Entries:
    entries = reader.header[f"entries {tally.name}"]
    counts = entries * has_excess
    excess = np.zeros((len(decoded), 2), np.int64)
    is_whole = is_single(has_excess) or has_excess.all()
    index: Any = range(len(decoded)) if is_whole else np.flatnonzero(np.repeat(has_excess > 0, entries))
    # If there is a single section, read its numbers block by block to keep temporary arrays small.
    size = BLOCK if is_single(counts) else max(len(index), 1)
    for i in range(0, len(index), size):
        some: Any = index[i : i + size]
        numbers = len(some) if is_single(counts) else counts
        block = np.empty((len(some), 2), np.int64)
        block[:, 0] = unzigzag(reader.read_numbers(numbers))
        decode_low_limbs(reader.rest.cut(LIMB * numbers), block[:, 1])
        excess[slice(some.start, some.stop) if is_whole else some] = block
    if is_single(entries):
        redundant = not excess.any()
    else:
        marks = np.cumsum(entries) - entries
        nonzero = np.logical_or.reduceat(np.append(excess.any(axis=1), False), marks) & (entries > 0)
        redundant = (has_excess.astype(bool) & ~nonzero).any()
    require(not redundant, f"{tally.name} stores an excess of zeros, which should be absent")
    for i in range(0, len(decoded), BLOCK):
        rows, top = decoded.counts[i : i + BLOCK].astype(np.int64), excess[i : i + BLOCK, 0]
        good = (top >= -(np.minimum(rows, 1 << 41) << 20)) & (top * 2.0**-20 <= rows * float(1 << 31))
        require(good.all(), f"{tally.name} has a weight out of range")
    return Entries(decoded.shift, decoded.codes, decoded.counts, excess, decoded.high)


def check_folding(state: State) -> None:
    """Raise an error unless every cell has either exact rows or buckets, as its number of rows requires.

    A cell (such as a slice) keeps the exact scores of its rows until their number exceeds a limit. From then on, it
    keeps only the number of rows in each score bucket.
    """
    if state.folding is None:
        return
    exact, rows, flag = state.folding
    tallies, flats = state.cells.tallies, state.cells.flats
    fine, coarse = state.rows_by_cell(exact), state.rows_by_cell(rows)
    if len(tallies[exact]) and len(tallies[rows]):
        require(not ((fine > 0) & (coarse > 0)).any(), "a cell has both exact rows and buckets")
    if state.exact_rows_limit is None:
        require(not len(tallies[rows]), "a cell that should keep all rows exactly has buckets")
    elif (many := fine > state.exact_rows_limit).any():
        # For some classes of states, other conditions besides the number of rows decide which cells must have buckets.
        # Let the class check them. An `OpaqueState`, whose class is unknown, is not checked.
        if not state.folds_by_rows:
            many &= not isinstance(state, OpaqueState) and state.select_folded_cells(tallies[exact], many)
        require(not many.any(), "a cell has too many exact rows")
    if flag in flats and flats[flag].any():
        require(not flats[flag][coarse == 0].any(), "an exact cell has the flag of lost precision")


def check_levels(state: State) -> None:
    """Raise an error if a bucket is impossible at the level of its cell, or if a cell needs a higher level.

    The level of a cell (such as a slice) determines the width of its buckets. A cell needs a higher level, with wider
    buckets, if its numbers lie in too many buckets.
    """
    for name, part in state.parts().items():
        if isinstance(part, Tally) and part.level is not None:
            entries, level, bits = (
                state.cells.tallies[name],
                state.read_cells_named(part.level),
                getattr(state, part.bits),
            )
            require(_are_buckets(part, entries, level, bits), f"{name} has an impossible bucket")
            require(fit_part_levels(part, entries, level, bits)[0] is entries, f"{name} has too many buckets")


def _are_buckets(part: Tally, entries: Entries, level: Array, bits: int) -> bool:
    if not part.pairs:
        entry_levels = level.reshape(-1)[levels.number_groups(entries, level[:1].size or 1)]
        return levels.are_buckets(entries.codes, entry_levels, bits)
    return are_pairs(entries, level, bits)
