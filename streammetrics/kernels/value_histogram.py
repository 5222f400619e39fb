"""Counts of numbers in buckets of a level (see `state.levels`): in a window of counters, or as buckets that wait.

The numbers of one column of a block of rows are turned into buckets first (the loop vectorises) and counted after.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ._jit import inline, kernel
from ._memory import scratch
from .extremes import key_of, note
from .sums import add_fixed, split

f8, i8, u4, u8 = np.float64, np.int64, np.uint32, np.uint64

BLOCK = 256
ZERO = i8(1 << 62)
OFFSET = i8(1 << 53)
FIRST = i8(1023 - 512)  # the biased exponent of the width at level 0
FRACTION = i8(52)
MASK = i8((1 << 52) - 1)
HIDDEN = i8(1 << 52)
SIZE = i8((1 << 63) - 1)
TOP = i8(-(1 << 63))
LEVELS = 1024
MAGIC = f8(1.5 * 2.0**52)  # added to a whole number, it shows this in its last bits
MAGIC_BITS = i8(0x4338000000000000)
FAR = f8(2.0**51)
KNOWN = i8(2)  # in place of whether a window is strict: counters are those of known numbers
SLOT_BITS = 12
HIGHEST, NEVER = i8(914), i8(1023)


@inline
def bucket(v: Any, level: Any, bits: Any) -> Any:
    """Return the bucket of a number, as `state.levels.bucket_of` does."""
    word = f8(v).view(i8)
    size = word & SIZE
    if size == 0:
        return ZERO
    octave = (size >> FRACTION) - FIRST - level
    steps = ((size & MASK) | HIDDEN) >> (FRACTION - min(max(octave, bits), FRACTION))
    steps += ((min(octave, bits) - bits) << bits) + ((max(octave, FRACTION) - FRACTION) << FRACTION) + OFFSET
    return ZERO - steps if word < 0 else ZERO + steps


@inline
def number(place: Any, level: Any, bits: Any) -> Any:
    """Return the edge of a bucket that is closer to 0, as bits."""
    signed = i8(place) - ZERO
    if signed == 0:
        return i8(0)
    steps = abs(signed) - OFFSET
    if steps > MASK:
        octave, fraction = (steps >> FRACTION) + FRACTION - i8(1), steps & MASK
    elif steps < i8(1) << bits:
        octave, fraction = (steps >> bits) + bits - i8(1), (steps & ((i8(1) << bits) - i8(1))) << (FRACTION - bits)
    else:
        octave = (f8(steps).view(i8) >> FRACTION) - i8(1023)
        fraction = (steps - (i8(1) << octave)) << (FRACTION - octave)
    word = ((octave + level + FIRST) << FRACTION) | fraction
    return word | TOP if signed < 0 else word


@inline
def lost_bits(word: Any, level: Any, bits: Any) -> Any:
    """Return the bits of a number, given by its bits, by which it lies behind the beginning of its bucket."""
    size = i8(word) & SIZE
    kept = min(max((size >> FRACTION) - FIRST - level, bits), FRACTION)
    return size & ((i8(1) << (FRACTION - kept)) - i8(1))


@inline
def read(
    first: Any, second: Any, a: Any, n: Any, width: Any, c: Any, pair: Any, signed: Any, value: Any
) -> None:  # fmt: skip
    """Write the values of column c of n rows from a."""
    for j in range(n):
        k = u8(a + j) * u8(width) + u8(c)
        v = f8(first[k])
        if pair:
            v = f8(second[k]) - v
            v = v if signed else abs(v)
        value[j] = v


@inline
def note_extremes(value: Any, w: Any, at: Any, a: Any, n: Any, width: Any, c: Any, least: Any, largest: Any) -> None:
    """Note the extremes of rows whose weight is not 0."""
    if at.shape[0]:
        for j in range(n):
            if not w.shape[0] or w[a + j] != 0.0:
                note(value[j], u8(at[a + j]) * u8(width) + u8(c), least, largest)
        return
    low, high = least[c], largest[c]
    for j in range(0 if w.shape[0] else n):
        key = key_of(value[j])
        low, high = min(low, key), max(high, key)
    for j in range(n if w.shape[0] else 0):
        key, weighs = key_of(value[j]), w[a + j] != 0.0
        low, high = min(low, key if weighs else low), max(high, key if weighs else high)
    least[c], largest[c] = low, high


@inline
def find_known(value: Any, n: Any, multiplier: Any, known: Any, place: Any) -> Any:
    """Write where each of n values is among the known ones, or -1; return a negative number if one is not there."""
    outside = i8(0)
    for j in range(n):
        word = f8(value[j] + 0.0).view(i8)
        slot = (u8(word) * u8(multiplier)) >> u8(64 - SLOT_BITS)
        place[j] = i8(slot) if known[slot] == word else i8(-1)
        outside |= place[j]
    return outside


@inline
def find_in_window(value: Any, n: Any, own: Any, bits: Any, place: Any) -> Any:
    """Write the counter of each of n values, or -1 outside the window; return a negative number if one is outside.

    Beyond 2**bits times their width buckets are the whole numbers of the width, below that leading bits.
    """
    strict = own[1] != 0
    scale = i8((i8(1023 + 512) - own[0]) << FRACTION).view(f8)
    up, ups, down, downs = own[2], own[3], own[4], own[5]
    near, less = f8(i8(1) << bits), i8(FRACTION - bits)
    before = (i8(1022 + bits) << bits) - OFFSET
    outside = i8(0)
    for j in range(n):
        v = value[j]
        size = abs(v) * scale
        whole = (np.floor(size) + MAGIC).view(i8) - MAGIC_BITS + OFFSET
        steps = whole if size >= near else (size.view(i8) >> less) - before
        begin, most, first = (down, downs, ups) if v < 0.0 else (up, ups, i8(0))
        here = steps - begin
        # From 2**51 on the sum with MAGIC would be rounded.
        out = (here < i8(0)) | (here >= most) | (size >= FAR)
        here = i8(-1) if out else here + first + i8(1)
        here = i8(0) if v == 0.0 else here
        place[j] = here
        outside |= here
    for j in range(n if strict else 0):
        size = abs(value[j]) * scale
        lost = np.floor(size) != size if size >= near else (size.view(i8) & ((i8(1) << less) - i8(1))) != i8(0)
        place[j] = i8(-1) if lost else place[j]
        outside |= place[j]
    return outside


@inline
def count_or_wait(
    value: Any, place: Any, w: Any, a: Any, n: Any, c: Any, bits: Any, level: Any, counters: Any, excess: Any, room: Any,
    high: Any, low: Any, weights: Any, m: Any,
) -> Any:  # fmt: skip
    """Count values that have a counter; others wait from m on; return how many wait now."""
    start = u8(c) * u8(room)
    for j in range(n):
        if place[j] >= i8(0):
            counters[start + u8(place[j])] += 1
            continue
        low[m] = u8(bucket(value[j], level[c], i8(bits)))
        if high.shape[0]:
            high[m] = u4(c) << u4(1)
        if weights.shape[0]:
            weights[m] = w[a + j] if w.shape[0] else 1.0
        m += u8(1)
    for j in range(n if w.shape[0] else 0):
        if place[j] >= i8(0):
            whole, part = split(w[a + j])
            add_fixed(excess, u8(2) * (start + u8(place[j])), whole - i8(1 << 20), part)
    return m


@kernel(out=("least", "largest", "counters", "excess", "high", "low", "weights", "used"))
def count_values(
    first: Any, second: Any, w: Any, at: Any, width: Any, pair: Any, signed: Any, bits: Any, top: Any, level: Any,
    least: Any, largest: Any, windows: Any, known: Any, counters: Any, excess: Any, high: Any, low: Any, weights: Any,
    used: Any,
) -> Any:  # fmt: skip
    """Count values, or |second - first| of a pair (second - first if `signed`).

    Rows are `width` values side by side, in one dimension or two. A lone cell has a window of counters for each of them,
    side by side: for 0, for buckets of positive numbers, and of negative ones. `windows` has the level of these buckets,
    whether only numbers at which one begins belong there, because this level is higher than that of the cell, and of
    either sign the first bucket and how many there are. Instead, of a cell of few different numbers, counters are those of
    `known` numbers, each in the slot of its hash. What has no counter waits, at the level of the cell.
    """
    ff, ss = first.reshape(first.size), second.reshape(second.size)
    value, place = scratch(BLOCK, f8), scratch(BLOCK, i8)
    n_rows, lone, room = ff.shape[0] // width, at.shape[0] == 0, counters.shape[0] // width
    for a in range(0, n_rows, BLOCK):
        n = min(BLOCK, n_rows - a)
        for c in range(width):
            read(ff, ss, a, n, width, c, pair, signed, value)
            note_extremes(value, w, at, a, n, width, c, least, largest)
            m = u8(used[0])
            if room:
                own = windows[u8(6) * u8(c) : u8(6) * u8(c) + u8(6)]
                if own[1] == KNOWN:
                    slots = known[(u8(c) << u8(SLOT_BITS)) : ((u8(c) + u8(1)) << u8(SLOT_BITS))]
                    outside = find_known(value, n, own[2], slots, place)
                else:
                    outside = find_in_window(value, n, own, bits, place)
                if outside >= i8(0) and not w.shape[0]:
                    start = u8(c) * u8(room)
                    for j in range(n):
                        counters[start + u8(place[j])] += 1
                else:
                    m = count_or_wait(
                        value, place, w, a, n, c, bits, level, counters, excess, room, high, low, weights, m
                    )
            else:
                for j in range(n):
                    cell = u8(0) if lone else u8(at[a + j])
                    low[m + u8(j)] = u8(bucket(value[j], level[cell * u8(width) + u8(c)], i8(bits)))
                    if high.shape[0]:
                        high[m + u8(j)] = (u4(cell) << u4(top)) | (u4(c) << u4(1))
                for j in range(n if weights.shape[0] else 0):
                    weights[m + u8(j)] = w[a + j] if w.shape[0] else 1.0
                m += u8(n)
            used[0] = i8(m)
    return 0


@inline
def joining_level(a: Any, b: Any, bits: Any) -> Any:
    """Return the level from which on two different numbers, given by their bits, share a bucket if all have one width.

    Beside it, the level at which they do so in fact.
    """
    differ = a ^ b
    ours, theirs = ((a & SIZE) >> FRACTION) - FIRST, ((b & SIZE) >> FRACTION) - FIRST
    if differ >> FRACTION:
        return min(max(max(ours, theirs) + i8(1), i8(0)), HIGHEST), NEVER
    top = (f8(differ & MASK).view(i8) >> FRACTION) - i8(1023)
    level = ours - (FRACTION - i8(1)) + top
    return min(max(level, i8(0)), HIGHEST), max(level, i8(0)) if FRACTION - i8(1) - top >= bits else NEVER


@inline
def highest(counts: Any, most: Any) -> Any:
    """Return the level of the pair of numbers before which `most` - 1 come, the highest level first; clear the counts."""
    seen, found = i8(0), i8(0)
    for k in range(LEVELS - 1, -1, -1):
        before, seen = seen, seen + counts[k]
        counts[k] = i8(0)
        found = i8(k) if before < most and seen >= most else found
    return found


@kernel(out=("found",))
def lowest_levels(
    codes: Any, starts: Any, levels: Any, bits: Any, few: Any, less: Any, most: Any, floor: Any, lossless: Any,
    found: Any,
) -> Any:  # fmt: skip
    """Write the level that the numbers of each group need, as `state.levels.lowest_levels` does."""
    linear, limited = scratch(LEVELS, i8), scratch(LEVELS, i8)
    for k in range(LEVELS):
        linear[k] = limited[k] = i8(0)
    for g in range(starts.shape[0] - 1):
        first, last, level = starts[g], starts[g + 1], i8(levels[g])
        found[g] = i8(0)
        several, many = last - first > few, last - first > most
        if not (several or many):
            continue
        before = number(codes[first], level, i8(bits))
        for i in range(first + 1, last):
            word = number(codes[i], level, i8(bits))
            one, other = joining_level(before, word, i8(floor))
            linear[one] += i8(1)
            if many:
                limited[other] += i8(1)
            before = word
        need = max(highest(linear, i8(few)) - i8(less), i8(0))
        if many:
            need = max(need, min(highest(limited, i8(most)), HIGHEST))
        if level or not lossless:
            found[g] = need
            continue
        for i in range(first, last):
            if lost_bits(number(codes[i], level, i8(bits)), need, i8(bits)):
                found[g] = need
                break
    return 0


@kernel(out=("buckets",))
def buckets_of(numbers: Any, levels: Any, bits: Any, buckets: Any) -> Any:
    """Write the bucket of each number at its level."""
    for i in range(numbers.shape[0]):
        buckets[i] = u8(bucket(numbers[i], levels[i], i8(bits)))
    return 0


@kernel(out=("numbers",))
def near_edges(buckets: Any, levels: Any, bits: Any, numbers: Any) -> Any:
    """Write the edge of each bucket that is closer to 0."""
    for i in range(buckets.shape[0]):
        numbers[i] = i8(number(buckets[i], levels[i], i8(bits))).view(f8)
    return 0


@kernel(out=("codes", "high", "counts"))
def raise_levels(codes: Any, high: Any, counts: Any, starts: Any, old: Any, new: Any, bits: Any) -> Any:
    """Bring the buckets of each group to another level, and unite those that become one; return how many are left."""
    m = u8(0)
    for g in range(starts.shape[0] - 1):
        begin = m
        for i in range(starts[g], starts[g + 1]):
            code, rows = codes[i], counts[i]
            if old[g] != new[g]:
                word = number(code, i8(old[g]), i8(bits))
                code = u8(bucket(i8(word).view(f8), i8(new[g]), i8(bits)))
            if m > begin and codes[m - u8(1)] == code:
                counts[m - u8(1)] += rows
            else:
                codes[m], high[m], counts[m] = code, high[i], rows
                m += u8(1)
    return i8(m)
