"""Kernels that count numbers in buckets whose width adapts to the numbers in each cell (such as a slice).

The level of a cell, an integer L, determines the width of its buckets, 2**(L - 512). Buckets close to 0 are narrower,
because no bucket may be wider than 2**-bits times the absolute values of its numbers. A state with one cell has a
counter for each bucket in a range (a window). The buckets of numbers without a counter, and all buckets in states with
several cells, are appended to a buffer. In each block of rows, the numbers in a column are first converted to buckets,
in a loop that vectorizes, and then counted.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ._jit import inline, kernel
from ._memory import scratch
from .extremes import ordered_bits, update_cell
from .score_terms import add_fixed, split_limbs

f8, i8, u4, u8 = np.float64, np.int64, np.uint32, np.uint64

BLOCK = 256
# ZERO is the bucket of the number 0. The bucket of a positive number is ZERO plus a number of steps, and that of a
# negative number is ZERO minus a number of steps. Every number of steps includes OFFSET, because without it, the number
# of steps would be negative for numbers close to 0.
ZERO = i8(1 << 62)
OFFSET = i8(1 << 53)
# The biased exponent of 2**-512, the bucket width at level 0.
FIRST = i8(1023 - 512)
FRACTION = i8(52)
MASK = i8((1 << 52) - 1)
HIDDEN = i8(1 << 52)
SIZE = i8((1 << 63) - 1)
TOP = i8(-(1 << 63))
LEVELS = 1024
# If this magic number is added to a float that is an integer below 2**51, the last bits of the sum are this integer.
MAGIC = f8(1.5 * 2.0**52)
MAGIC_BITS = i8(0x4338000000000000)
FAR = f8(2.0**51)
# If the second of the six numbers that describe a window of counters (see `count_values`) has this value, the counters
# are for exact numbers rather than buckets.
EXACT_NUMBERS = i8(2)
SLOT_BITS = 12
HIGHEST, NEVER = i8(914), i8(1023)


@inline
def find_bucket(v: Any, level: Any, bits: Any) -> Any:
    """Return the bucket of a number v at a given level. A higher level has wider buckets.

    A bucket is never wider than 2**-bits times the absolute value of any number in it.
    """
    word = f8(v).view(i8)
    size = word & SIZE
    if size == 0:
        return ZERO
    # Numbers of at least 2**bits times the width of the level are in buckets of this width. Closer to 0, buckets are
    # narrower: the bucket of a number is given by its exponent and the first `bits` bits of its fraction.
    octave = (size >> FRACTION) - FIRST - level
    steps = ((size & MASK) | HIDDEN) >> (FRACTION - min(max(octave, bits), FRACTION))
    steps += ((min(octave, bits) - bits) << bits) + ((max(octave, FRACTION) - FRACTION) << FRACTION) + OFFSET
    return ZERO - steps if word < 0 else ZERO + steps


@inline
def edge_bits(place: Any, level: Any, bits: Any) -> Any:
    """Return the near edge (the edge closer to 0) of the bucket `place`, as the bits of a float64."""
    signed = i8(place) - ZERO
    if signed == 0:
        return i8(0)
    steps = abs(signed) - OFFSET
    if steps > MASK:
        octave, fraction = (steps >> FRACTION) + FRACTION - i8(1), steps & MASK
    elif steps < i8(1) << bits:
        octave, fraction = (steps >> bits) + bits - i8(1), (steps & ((i8(1) << bits) - i8(1))) << (FRACTION - bits)
    else:
        # The edge is `steps` times the width. The position of the leading bit of `steps` is the exponent of `steps` as
        # a float64.
        octave = (f8(steps).view(i8) >> FRACTION) - i8(1023)
        fraction = (steps - (i8(1) << octave)) << (FRACTION - octave)
    word = ((octave + level + FIRST) << FRACTION) | fraction
    return word | TOP if signed < 0 else word


@inline
def lost_bits(word: Any, level: Any, bits: Any) -> Any:
    """Return, as an integer, the bits of a number that are lost if the number is replaced by its bucket.

    `word` holds the bits of the number. The result is 0 if the number is the near edge of its bucket (see `edge_bits`).
    """
    size = i8(word) & SIZE
    kept = min(max((size >> FRACTION) - FIRST - level, bits), FRACTION)
    return size & ((i8(1) << (FRACTION - kept)) - i8(1))


@inline
def read_values(
    first: Any, second: Any, a: Any, n: Any, width: Any, c: Any, pair: Any, signed: Any, value: Any
) -> None:  # fmt: skip
    """Copy the values in column c of n rows, which start at row `a`, to `value`.

    The values are `first` or, if `pair` is true, |second - first| (second - first if `signed` is true).
    """
    for j in range(n):
        k = u8(a + j) * u8(width) + u8(c)
        v = f8(first[k])
        if pair:
            v = f8(second[k]) - v
            v = v if signed else abs(v)
        value[j] = v


@inline
def update_value_extremes(
    value: Any, w: Any, at: Any, a: Any, n: Any, width: Any, c: Any, least: Any, largest: Any
) -> None:
    """Use n values in column c to update the minimum (`least`) and the maximum (`largest`) of each cell.

    Rows with weight 0 are ignored. The rows start at element `a` of `at` and `w`.
    """
    if at.shape[0]:
        for j in range(n):
            if not w.shape[0] or w[a + j] != 0.0:
                update_cell(value[j], u8(at[a + j]) * u8(width) + u8(c), least, largest)
        return
    low, high = least[c], largest[c]
    if w.shape[0]:
        for j in range(n):
            key, weighs = ordered_bits(value[j]), w[a + j] != 0.0
            low, high = min(low, key if weighs else low), max(high, key if weighs else high)
    else:
        for j in range(n):
            key = ordered_bits(value[j])
            low, high = min(low, key), max(high, key)
    least[c], largest[c] = low, high


@inline
def find_exact_slots(value: Any, n: Any, multiplier: Any, slot_words: Any, rest: Any, place: Any) -> Any:
    """Write, for each of n values, its slot in a hash table of exact numbers, or `rest` if it is not in the table.

    `slot_words` holds the bits of the number in each slot. The bits of a number, read as an integer, are multiplied by
    `multiplier`, and the highest bits of the product are the slot of the number. Return the largest number written to
    `place`.
    """
    most = i8(0)
    for j in range(n):
        # Adding 0.0 turns -0.0 into 0.0, so that both zeros have the same slot.
        word = f8(value[j] + 0.0).view(i8)
        slot = (u8(word) * u8(multiplier)) >> u8(64 - SLOT_BITS)
        place[j] = i8(slot) if slot_words[slot] == word else i8(rest)
        most = max(most, place[j])
    return most


@inline
def find_in_window(value: Any, n: Any, own: Any, bits: Any, rest: Any, place: Any) -> Any:
    """Write the index of the counter of each of n values, or `rest` if the window has no counter for the value.

    A window is a range of buckets that have counters. `own` holds the six numbers that describe it (see
    `count_values`). Return the largest index.

    Numbers of at least 2**bits times the width of the level are in buckets of this width. Closer to 0, the bucket of a
    number is given by its leading bits.
    """
    # If the level of the window is higher than that of the cell, count only numbers that are the edge of a bucket,
    # because other numbers would lose bits.
    strict = own[1] != 0
    scale = i8((i8(1023 + 512) - own[0]) << FRACTION).view(f8)
    # Adding MAGIC is exact only for numbers below 2**51. Larger numbers are replaced by 2**51, which has no counter.
    up, down = own[2] - OFFSET, own[4] - OFFSET
    ups, downs = u8(max(min(own[3], i8(FAR) - up), i8(0))), u8(max(min(own[5], i8(FAR) - down), i8(0)))
    up_first, down_first = i8(1) - up, i8(1) + own[3] - down
    near, less = f8(i8(1) << bits), u8(FRACTION - bits)
    before = i8(1022 + bits) << bits
    most = i8(0)
    if ups and downs:
        for j in range(n):
            size = min(abs(value[j]) * scale, FAR)
            whole = (np.floor(size) + MAGIC).view(i8) - MAGIC_BITS
            steps = whole if size >= near else i8(size.view(u8) >> less) - before
            begin, count, first = (down, downs, down_first) if value[j] < 0.0 else (up, ups, up_first)
            here = steps + first if u8(steps - begin) < count else i8(rest)
            place[j] = i8(0) if value[j] == 0.0 else here
            most = max(most, place[j])
    else:
        # All buckets of the window are on one side of 0. The size of a number on the other side is set to 0, which is
        # below all of these buckets, so the number has no counter.
        begin, count, first, signed = (down, downs, down_first, -scale) if downs else (up, ups, up_first, scale)
        for j in range(n):
            size = min(max(value[j] * signed, 0.0), FAR)
            whole = (np.floor(size) + MAGIC).view(i8) - MAGIC_BITS
            steps = whole if size >= near else i8(size.view(u8) >> less) - before
            here = steps + first if u8(steps - begin) < count else i8(rest)
            place[j] = i8(0) if value[j] == 0.0 else here
            most = max(most, place[j])
    for j in range(n if strict else 0):
        size = abs(value[j]) * scale
        lost = np.floor(size) != size if size >= near else (size.view(i8) & ((i8(1) << i8(less)) - i8(1))) != i8(0)
        place[j] = i8(rest) if lost else place[j]
        most = max(most, place[j])
    return most


@inline
def buffer_rest(
    value: Any, place: Any, rest: Any, w: Any, a: Any, n: Any, c: Any, bits: Any, level: Any, high: Any, low: Any,
    weights: Any, m: Any,
) -> Any:  # fmt: skip
    """Among n values in column c, find those without a counter, and append their buckets to the buffer.

    `place` holds the index of each value's counter, or `rest` if it has none. `high`, `low` and `weights` are the
    buffer, and m is its length. Return its new length.
    """
    for j in range(n):
        if place[j] == rest:
            low[m] = u8(find_bucket(value[j], level[c], i8(bits)))
            if high.shape[0]:
                high[m] = u4(c) << u4(1)
            if weights.shape[0]:
                weights[m] = w[a + j] if w.shape[0] else 1.0
            m += u8(1)
    return m


@kernel(out=("least", "largest", "counters", "excess", "high", "low", "weights", "used"))
def count_values(
    first: Any, second: Any, w: Any, at: Any, width: Any, pair: Any, signed: Any, bits: Any, top: Any, level: Any,
    least: Any, largest: Any, windows: Any, slot_words: Any, counters: Any, excess: Any, high: Any, low: Any, weights: Any,
    used: Any,
) -> Any:  # fmt: skip
    """Count values in buckets, and update the minimum and maximum of each cell.

    The values are `first` or, if `pair` is true, |second - first| (second - first if `signed` is true). A row has
    `width` values, one for each column. `level` holds the level (bucket width) for each cell and column.

    A state with one cell may have a window of counters for each column: a counter for 0, then counters for buckets of
    positive numbers, then for buckets of negative numbers. `windows` holds six numbers per column: the level of these
    buckets; 1 if the window counts only numbers that are the edge of a bucket, because its level is above that of the
    cell; and the first bucket and the number of buckets, for positive and for negative numbers. If a cell has few
    distinct numbers, it has counters for these exact numbers instead, in slots determined by their hashes.

    Each value increments a counter: the last counter of a column counts all values without a counter of their own. The
    buckets of these values are appended to the buffer `high`, `low` and `weights`, whose length is used[0]. An
    element of `high` contains the column in its lowest `top` bits, and the cell above them.
    """
    ff, ss = first.reshape(first.size), second.reshape(second.size)
    value, place = scratch(BLOCK, f8), scratch(BLOCK, i8)
    n_rows, lone, room = ff.shape[0] // width, at.shape[0] == 0, counters.shape[0] // width
    rest = i8(room) - i8(1)
    for a in range(0, n_rows, BLOCK):
        n = min(BLOCK, n_rows - a)
        for c in range(width):
            read_values(ff, ss, a, n, width, c, pair, signed, value)
            update_value_extremes(value, w, at, a, n, width, c, least, largest)
            m = u8(used[0])
            if room:
                own = windows[u8(6) * u8(c) : u8(6) * u8(c) + u8(6)]
                if own[1] == EXACT_NUMBERS:
                    slots = slot_words[(u8(c) << u8(SLOT_BITS)) : ((u8(c) + u8(1)) << u8(SLOT_BITS))]
                    most = find_exact_slots(value, n, own[2], slots, rest, place)
                else:
                    most = find_in_window(value, n, own, bits, rest, place)
                start = u8(c) * u8(room)
                for j in range(n):
                    counters[start + u8(place[j])] += 1
                for j in range(n if w.shape[0] else 0):
                    whole, part = split_limbs(w[a + j])
                    add_fixed(excess, u8(2) * (start + u8(place[j])), whole - i8(1 << 20), part)
                if most == rest:
                    m = buffer_rest(value, place, rest, w, a, n, c, bits, level, high, low, weights, m)
            else:
                for j in range(n):
                    cell = u8(0) if lone else u8(at[a + j])
                    low[m + u8(j)] = u8(find_bucket(value[j], level[cell * u8(width) + u8(c)], i8(bits)))
                    if high.shape[0]:
                        high[m + u8(j)] = (u4(cell) << u4(top)) | (u4(c) << u4(1))
                for j in range(n if weights.shape[0] else 0):
                    weights[m + u8(j)] = w[a + j] if w.shape[0] else 1.0
                m += u8(n)
            used[0] = i8(m)
    return 0


@kernel(out=("positions", "buckets"))
def list_counted_buckets(counters: Any, own: Any, positions: Any, buckets: Any) -> Any:
    """Write the position and bucket of each nonzero counter in a window, in ascending order of value.

    `own` holds the six numbers that describe the window (see `count_values`). Return the number of nonzero counters.
    The outputs have one more element than the window has counters.
    """
    up, ups, down, downs = own[2], own[3], own[4], own[5]
    m = u8(0)
    # Write every counter, but advance the index only if the counter is not 0. A branch would often be mispredicted.
    for i in range(ups + downs, ups, -1):
        positions[m], buckets[m] = i, u8(ZERO - (i - i8(1) - ups + down))
        m += u8(counters[i] != 0)
    positions[m], buckets[m] = i8(0), u8(ZERO)
    m += u8(counters[0] != 0)
    for i in range(i8(1), ups + i8(1)):
        positions[m], buckets[m] = i, u8(ZERO + (i - i8(1) + up))
        m += u8(counters[i] != 0)
    return i8(m)


@inline
def joining_level(a: Any, b: Any, bits: Any) -> Any:
    """Return the lowest level (bucket width) at which two different numbers share a bucket, for two kinds of buckets.

    The first result is for buckets that all have the width of the level. The second result is for buckets that are
    narrower close to 0, because they keep the exponent and the first `bits` bits of the fraction. This second result is
    NEVER if the numbers differ in these bits and therefore are in different buckets at every level. `a` and `b` are the
    bits of the numbers.
    """
    differ = a ^ b
    ours, theirs = ((a & SIZE) >> FRACTION) - FIRST, ((b & SIZE) >> FRACTION) - FIRST
    if differ >> FRACTION:
        return min(max(max(ours, theirs) + i8(1), i8(0)), HIGHEST), NEVER
    top = (f8(differ & MASK).view(i8) >> FRACTION) - i8(1023)
    level = ours - (FRACTION - i8(1)) + top
    return min(max(level, i8(0)), HIGHEST), max(level, i8(0)) if FRACTION - i8(1) - top >= bits else NEVER


@inline
def select_level(counts: Any, most: Any) -> Any:
    """Return the lowest level (bucket width) at which sorted numbers are in at most `most` buckets.

    Any two adjacent numbers share a bucket from some level on; counts[L] is the number of adjacent pairs that do so
    from level L on. There are at most `most` buckets if fewer than `most` adjacent pairs are in different buckets. The
    lowest level at which this holds is the `most`-th highest of the levels of all pairs. If there are fewer than `most`
    pairs, return 0. The counts are set to 0.
    """
    passed, level = i8(0), i8(0)
    for k in range(LEVELS - 1, -1, -1):
        before, passed = passed, passed + counts[k]
        counts[k] = i8(0)
        level = i8(k) if before < most and passed >= most else level
    return level


@kernel(out=("out",))
def find_lowest_levels(
    codes: Any, starts: Any, levels: Any, bits: Any, few: Any, less: Any, most: Any, floor: Any, lossless: Any,
    out: Any,
) -> Any:  # fmt: skip
    """Write, for each group, the lowest level (bucket width) that satisfies two rules.

    The numbers in group g are represented by their buckets, codes[starts[g]:starts[g + 1]], at the current level of the
    group, levels[g]. The rules are:

    - The numbers must be in at most `most` buckets, each of which is no wider than 2**-floor times the absolute values
      of its numbers.
    - If a group has more than `few` different numbers, they must be in at most `few` buckets that are 2**less times as
      wide as the buckets of the level.

    If `lossless` is true, a group at level 0 stays there if all of its numbers are bucket edges at the new level.
    """
    linear, limited = scratch(LEVELS, i8), scratch(LEVELS, i8)
    for k in range(LEVELS):
        linear[k] = limited[k] = i8(0)
    for g in range(starts.shape[0] - 1):
        first, last, level = starts[g], starts[g + 1], i8(levels[g])
        out[g] = i8(0)
        several, many = last - first > few, last - first > most
        if not (several or many):
            continue
        before = edge_bits(codes[first], level, i8(bits))
        for i in range(first + 1, last):
            word = edge_bits(codes[i], level, i8(bits))
            one, other = joining_level(before, word, i8(floor))
            linear[one] += i8(1)
            if many:
                limited[other] += i8(1)
            before = word
        need = max(select_level(linear, i8(few)) - i8(less), i8(0))
        if many:
            need = max(need, min(select_level(limited, i8(most)), HIGHEST))
        # A group at level 0 is exact. If `lossless` is true, raise its level only if a number would lose bits.
        if level or not lossless:
            out[g] = need
            continue
        for i in range(first, last):
            if lost_bits(edge_bits(codes[i], level, i8(bits)), need, i8(bits)):
                out[g] = need
                break
    return 0


@kernel(out=("buckets",))
def find_buckets(numbers: Any, levels: Any, bits: Any, buckets: Any) -> Any:
    """Write the bucket of each number, given its level (bucket width)."""
    for i in range(numbers.shape[0]):
        buckets[i] = u8(find_bucket(numbers[i], levels[i], i8(bits)))
    return 0


@kernel(out=("numbers",))
def find_near_edges(buckets: Any, levels: Any, bits: Any, numbers: Any) -> Any:
    """Write, for each bucket, the edge that is closer to 0, given the level (bucket width) of the bucket."""
    for i in range(buckets.shape[0]):
        numbers[i] = i8(edge_bits(buckets[i], levels[i], i8(bits))).view(f8)
    return 0


@kernel(out=("codes", "high", "counts"))
def raise_levels(codes: Any, high: Any, counts: Any, starts: Any, old: Any, new: Any, bits: Any) -> Any:
    """Convert the buckets of each group, in place, from its old level to its new, higher level (a larger bucket width).

    `codes` holds the buckets, `high` the high words of their codes, and `counts` their row counts. The buckets of a
    group are sorted. Buckets that become equal are merged, and their counts are added. Return the number of remaining
    buckets.
    """
    m = u8(0)
    for g in range(starts.shape[0] - 1):
        begin = m
        for i in range(starts[g], starts[g + 1]):
            code, rows = codes[i], counts[i]
            if old[g] != new[g]:
                word = edge_bits(code, i8(old[g]), i8(bits))
                code = u8(find_bucket(i8(word).view(f8), i8(new[g]), i8(bits)))
            if m > begin and codes[m - u8(1)] == code:
                counts[m - u8(1)] += rows
            else:
                codes[m], high[m], counts[m] = code, high[i], rows
                m += u8(1)
    return i8(m)
