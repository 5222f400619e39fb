"""Counting scores by bucket and label: the histogram behind AUC, average precision and KS.

A bucket is the leading bits of the score, truncated, never rounded: so the map is non-decreasing, and float32 and float64
scores of equal value fall in the same bucket. The place of a row is twice its bucket, plus its label. Each block of rows
is turned into places first (the loop vectorises) and counted after; a lone cell checks while it counts, and takes back.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ._jit import by_dtype, inline, kernel, outline
from ._memory import fetch, scratch
from .each import each_weights
from .exact_rows import key_of, score_of, wait
from .reduce import emit
from .sums import add_fixed, split

f4, f8, i4, i8 = np.float32, np.float64, np.int32, np.int64
u1, u4, u8 = np.uint8, np.uint32, np.uint64

BLOCK = 256  # short: the scalar bumps of one block overlap with the vector loop of the next
AHEAD = 1024  # how far ahead rows are fetched: bumping takes longer than they take to come
OFF_GRID = u4(1 << 31)  # rides on the place of a row to its cell
LARGEST = i4(0x7F7FFFFF)  # the bits of the largest float32


def _half_word32(z: Any) -> Any:
    """Return the bits of z, that none were dropped, and whether z is not in [0, 1/2]."""
    bits = f4(z + f4(0)).view(i4)  # -0.0 + 0 is 0; as an unsigned number, negatives and NaN are large
    return bits, i4(0), u4(bits) > u4(0x3F000000)


def _half_word64(z: Any) -> Any:
    """Return the float32 bits of z, truncated, whether bits were dropped, and whether z is not in [0, 1/2]."""
    bits = f8(z + f8(0)).view(i8)
    top = (bits >> i8(29)) - i8(896 << 23)
    tiny = top <= i8(0)  # below float32's normal range, and so below the last octave; 2**-127 would look like 0
    lost = i4((bits & i8(0x1FFFFFFF)) != 0) | i4(tiny & (bits != 0))
    return i4(i8(0) if tiny else top), lost, u8(bits) > u8(0x3FE0000000000000)


def _real_word32(z: Any) -> Any:
    """Return the bits of a number's magnitude, and that none were dropped."""
    return f4(z).view(i4) & i4(0x7FFFFFFF), i4(0)


def _real_word64(z: Any) -> Any:
    """Return the float32 bits of any magnitude, truncated: denormals to the bit, what is beyond clamped to the end."""
    bits = f8(z).view(i8) & i8(0x7FFFFFFFFFFFFFFF)
    top = (bits >> i8(29)) - i8(896 << 23)
    below, above = top < i8(1 << 23), top > i8(LARGEST)
    scaled = abs(z) * f8(2.0**149) if below else f8(0.0)  # below 2**-126 float32 is a grid of 2**-149
    small = i8(scaled)
    lost = (f8(small) != scaled) if below else (((bits & i8(0x1FFFFFFF)) != 0) | above)
    return i4(small if below else (i8(LARGEST) if above else top)), i4(lost)


real_word = by_dtype(float32=_real_word32, float64=_real_word64)
half_word = by_dtype(float32=_half_word32, float64=_half_word64)


@inline
def probability_places(y: Any, s: Any, a: Any, n: Any, bits: Any, mark: Any, place: Any) -> Any:
    """Write the places of n rows from a, plus `mark` if off the grid; return (any bad value, any off the grid)."""
    shift = i4(23 - (bits - 6))
    base = i4(94 << 23) >> shift  # the bits of 2**-33
    top = i4(1) << i4(bits)
    mask = (i4(1) << shift) - i4(1)
    bad, off = i4(0), i4(0)
    fetch(y, a + AHEAD, n)
    fetch(s, a + AHEAD, n)
    yy, ss = y[a : a + n], s[a : a + n]
    for j in range(n):
        p = ss[j]
        up = p > f4(0.5)
        z = f4(1) - p if up else p
        w, lost, outside = half_word(z)
        bad |= i4(yy[j] >> 1) | i4(outside)
        b = (w >> shift) - base
        low = b <= i4(0)
        lost |= (w & mask) | (w if low else i4(0))  # the bottom bucket is on the grid for 0 alone
        off |= lost
        b = i4(0) if low else b
        b = top - b if up else b
        place[j] = (u4(b) << u4(1)) + u4(yy[j]) + (mark if lost != i4(0) else u4(0))
    return bad, off


@inline
def real_places(y: Any, s: Any, a: Any, n: Any, bits: Any, mark: Any, place: Any) -> Any:
    """Write what `probability_places` writes, for scores of any size."""
    shift = i4(32 - bits)
    half = i4(1) << i4(bits - 1)
    mask = (i4(1) << shift) - i4(1)
    bad, off = i4(0), i4(0)
    fetch(y, a + AHEAD, n)
    fetch(s, a + AHEAD, n)
    yy, ss = y[a : a + n], s[a : a + n]
    for j in range(n):
        x = ss[j]
        bad |= i4(yy[j] > 1) | i4(not (abs(x) < np.inf))
        w, lost = real_word(x)
        lost |= w & mask
        off |= lost
        b = w >> shift
        b = half - i4(1) - b if x < f4(0) else half + b
        place[j] = (u4(b) << u4(1)) + u4(yy[j]) + (mark if lost != i4(0) else u4(0))
    return bad, off


@outline
def places(y: Any, s: Any, a: Any, n: Any, real: Any, bits: Any, mark: Any, place: Any) -> Any:
    """Write the places of rows of either scale."""
    if real:
        return real_places(y, s, a, n, bits, mark, place)
    return probability_places(y, s, a, n, bits, mark, place)


@inline
def bump(place: Any, n: Any, rows: Any) -> None:
    """Count n rows by their place."""
    j, whole = u8(0), u8(n) & u8(0xFFFFFFFFFFFFFFF8)
    while j < whole:
        rows[place[j]] += 1
        rows[place[j + u8(1)]] += 1
        rows[place[j + u8(2)]] += 1
        rows[place[j + u8(3)]] += 1
        rows[place[j + u8(4)]] += 1
        rows[place[j + u8(5)]] += 1
        rows[place[j + u8(6)]] += 1
        rows[place[j + u8(7)]] += 1
        j += u8(8)
    while j < u8(n):
        rows[place[j]] += 1
        j += u8(1)


@kernel(out=("rows", "excess", "off_grid"))
def count_probabilities(y: Any, s: Any, bits: Any, rows: Any, excess: Any, off_grid: Any) -> Any:
    """Count rows of a lone cell; at a bad block take back those before it, and return 1."""
    place, before = scratch(BLOCK, u4), off_grid[0]
    for a in range(0, s.shape[0], BLOCK):
        n = min(BLOCK, s.shape[0] - a)
        bad, off = probability_places(y, s, a, n, bits, u4(0), place)
        if bad:
            for b in range(0, a, BLOCK):
                probability_places(y, s, b, i8(BLOCK), bits, u4(0), place)
                for j in range(BLOCK):
                    rows[place[j]] -= 1
            off_grid[0] = before
            return 1
        bump(place, n, rows)
        off_grid[0] |= u1(off != 0)
    return 0


@kernel(out=("rows", "excess", "off_grid"))
def count_reals(y: Any, s: Any, bits: Any, rows: Any, excess: Any, off_grid: Any) -> Any:
    """Do what `count_probabilities` does, for scores of any size."""
    place, before = scratch(BLOCK, u4), off_grid[0]
    for a in range(0, s.shape[0], BLOCK):
        n = min(BLOCK, s.shape[0] - a)
        bad, off = real_places(y, s, a, n, bits, u4(0), place)
        if bad:
            for b in range(0, a, BLOCK):
                real_places(y, s, b, i8(BLOCK), bits, u4(0), place)
                for j in range(BLOCK):
                    rows[place[j]] -= 1
            off_grid[0] = before
            return 1
        bump(place, n, rows)
        off_grid[0] |= u1(off != 0)
    return 0


@outline
def weigh(y: Any, s: Any, w: Any, real: Any, bits: Any, rows: Any, excess: Any, off_grid: Any) -> None:
    """Count good rows of one cell with their weights."""
    place, highs, lows = scratch(BLOCK, u4), scratch(BLOCK, i8), scratch(BLOCK, i8)
    for a in range(0, s.shape[0], BLOCK):
        n = min(BLOCK, s.shape[0] - a)
        ww = w[a : a + n]
        fetch(w, a + AHEAD, n)
        mark = u4(0) if off_grid[0] else OFF_GRID
        _, off = places(y, s, a, n, real, bits, mark, place)
        for j in range(n if mark and off else 0):
            off_grid[0] |= u1(place[j] >> u4(31)) & u1(ww[j] != 0)
            place[j] &= ~OFF_GRID
        for j in range(n):
            high, low = split(ww[j])
            highs[j], lows[j] = high - i8(1 << 20), low
        for j in range(n):
            here = u8(place[j])
            rows[here] += 1
            add_fixed(excess, u8(2) * here, highs[j], lows[j])


@kernel(out=("rows", "excess", "off_grid"))
def weigh_scores(y: Any, s: Any, w: Any, real: Any, bits: Any, rows: Any, excess: Any, off_grid: Any) -> Any:
    """Count good rows of a lone cell with their weights; `excess` holds the sum of w - 1 of each place."""
    weigh(y, s, w, real, bits, rows, excess, off_grid)
    return 0


@kernel(out=("rows", "excess", "off_grid"))
def each_weigh_scores(
    width: Any, y: Any, s: Any, w: Any, real: Any, bits: Any, rows: Any, excess: Any, off_grid: Any
) -> Any:  # fmt: skip
    """Do that for one label after the other, whose columns and counters lie one behind the other."""
    n, m = u8(s.shape[0]) // u8(width), u8(rows.shape[0]) // u8(width)
    for i in range(u8(width)):
        a, b = i * n, i * m
        c = u8(2) * b
        weigh(
            y[a : a + n], s[a : a + n], each_weights(w, i8(i), i8(n)), real, bits,
            rows[b : b + m], excess[c : c + u8(2) * m], off_grid[i : i + u8(1)],
        )  # fmt: skip
    return 0


@kernel(out=("rows", "excess", "off_grid"))
def each_count_scores(
    width: Any, y: Any, s: Any, real: Any, bits: Any, rows: Any, excess: Any, off_grid: Any
) -> Any:  # fmt: skip
    """Count good rows without weights, one label after the other."""
    place = scratch(BLOCK, u4)
    n, m = s.shape[0] // width, rows.shape[0] // width
    for i in range(width):
        yy, ss, here = y[i * n : (i + 1) * n], s[i * n : (i + 1) * n], rows[i * m : (i + 1) * m]
        for a in range(0, n, BLOCK):
            k = min(BLOCK, n - a)
            _, off = places(yy, ss, a, k, real, bits, u4(0), place)
            bump(place, k, here)
            off_grid[i] |= u1(off != 0)
    return 0


@inline
def all_off(last: Any, rows: Any, off_grid: Any) -> Any:
    """Whether all cells up to the last are off the grid, as most soon are; False if there are more of them than rows."""
    sure = last < rows
    for i in range(last + 1 if sure else 0):
        sure &= off_grid[u8(i)] != 0
    return sure


@kernel(out=("high", "low", "weights", "used", "bytes_", "excess", "codes", "ws", "waiting", "off_grid"))
def count_scores(
    y: Any, s: Any, w: Any, at: Any, real: Any, bits: Any,
    folded: Any, high: Any, low: Any, weights: Any, used: Any,
    shift: Any, stride: Any, bytes_: Any, excess: Any, codes: Any, ws: Any, waiting: Any, off_grid: Any,
) -> Any:  # fmt: skip
    """Count good rows: those of folded cells by bucket, all others wait as they are. `folded` is empty if all are."""
    place, cell, heavy = scratch(BLOCK, u4), scratch(BLOCK, i8), scratch(BLOCK, f8)
    lone, weighted, all_folded = at.shape[0] == 0, w.shape[0] != 0, folded.shape[0] == 0
    simple = all_folded and not weighted and not lone
    last = i8(0)
    for j in range(at.shape[0] if simple else 0):
        last = max(last, at[j])
    mark = u4(0) if simple and all_off(last, s.shape[0], off_grid) else OFF_GRID
    for a in range(0, s.shape[0], BLOCK):
        n, sealed = min(BLOCK, s.shape[0] - a), i8(0)
        if not lone:
            fetch(at, a + AHEAD, n)
        for j in range(0 if all_folded else n):
            sealed += i8(folded[u8(0) if lone else u8(at[a + j])])
        if not all_folded and sealed == 0:
            wait(y, s, w, at, a, n, real, high, low, weights, used)
            continue
        _, off = places(y, s, a, n, real, bits, mark, place)
        off = off if mark else i4(0)
        for j in range(n if off and simple else 0):
            off_grid[u8(at[a + j])] |= u1(place[j] >> u4(31))
            place[j] &= ~OFF_GRID
        for j in range(n if off and not simple else 0):
            if place[j] >> u4(31):
                place[j] &= ~OFF_GRID
                i = u8(0) if lone else u8(at[a + j])
                counted = all_folded or folded[i] != 0
                if counted and not off_grid[i] and (not weighted or w[a + j] != 0):
                    off_grid[i] = u1(1)
        if all_folded or sealed == n:
            emit(place, a, n, at, w, shift, stride, bytes_, excess, codes, ws, waiting)
            continue
        k = u8(0)
        for j in range(n):
            i = at[a + j]
            if folded[i]:
                place[k], cell[k], heavy[k] = place[j], i, w[a + j] if weighted else 1.0
                k += u8(1)
            else:
                m, key = u8(used[0]), key_of(f8(s[a + j]), real)
                low[m] = (key << u8(1)) | u8(y[a + j])
                high[m] = (u4(i) << u4(1)) | u4(key >> u8(63)) if real else u4(i)
                if weights.shape[0]:
                    weights[m] = w[a + j] if weighted else 1.0
                used[0] = i8(m + u8(1))
        ww = heavy if weighted else heavy[:0]
        emit(place, i8(0), i8(k), cell, ww, shift, stride, bytes_, excess, codes, ws, waiting)
    return 0


@inline
def coarse_places(place: Any, n: Any, at: Any, a: Any, real: Any, bits: Any, down: Any, stride: Any, here: Any) -> Any:
    """Write which place of all cells, of histograms of `down` bits fewer, is that of each row; return the last cell."""
    half, up = u4(1) << u4(bits - 1), u4(0) if real else (u4(1) << u4(down)) - u4(1)  # mirrored: truncated from above
    cells, last = at[a : a + n], i8(0)
    for j in range(n):
        last = max(last, cells[j])
        bucket = place[j] >> u4(1)
        bucket = (bucket + (up if bucket > half else u4(0))) >> u4(down)
        here[j] = u4(cells[j]) * u4(stride) + (bucket << u4(1)) + (place[j] & u4(1))
    return last


@outline
def note_off(y: Any, s: Any, at: Any, real: Any, bits: Any, off_grid: Any) -> None:
    """Note the cells of rows that are off the grid."""
    place = scratch(BLOCK, u4)
    for a in range(0, s.shape[0], BLOCK):
        n = min(BLOCK, s.shape[0] - a)
        _, off = places(y, s, a, n, real, bits, OFF_GRID, place)
        for j in range(n if off else 0):
            off_grid[u8(at[a + j])] |= u1(place[j] >> u4(31))


@outline
def take_back(
    y: Any, s: Any, at: Any, stop: Any, real: Any, bits: Any, down: Any, rows: Any, stride: Any, low: Any
) -> None:
    """Take whole blocks of rows back, up to one; those that wait are forgotten by who calls."""
    place, here = scratch(BLOCK, u4), scratch(BLOCK, u4)
    for a in range(0, stop, BLOCK):
        places(y, s, a, i8(BLOCK), real, bits, u4(0), place)
        coarse_places(place, BLOCK, at, a, real, bits, down, stride, here)
        for j in range(BLOCK):
            rows[place[j]] -= 1
        for j in range(BLOCK if low.shape[0] else 0):
            low[here[j]] -= u1(1)


@kernel(out=("rows", "excess", "off_grid", "low", "excess2", "codes", "ws", "waiting", "off_grid2"))
def count_with_shards(
    y: Any, s: Any, at: Any, real: Any, bits: Any, fewer: Any, rows: Any, excess: Any, off_grid: Any,
    shift: Any, stride: Any, low: Any, excess2: Any, codes: Any, ws: Any, waiting: Any, off_grid2: Any,
) -> Any:  # fmt: skip
    """Count rows of a lone cell, and with fewer bits in the cells `at`; at a bad block take all back, and return 1."""
    place, here, full = scratch(BLOCK, u4), scratch(BLOCK, u4), scratch(BLOCK, u4)
    down, m, before, last = bits - fewer, u8(waiting[0]), off_grid[0], i8(0)
    for a in range(0, s.shape[0], BLOCK):
        n, k = min(BLOCK, s.shape[0] - a), u8(0)
        if real:
            bad, off = real_places(y, s, a, n, bits, u4(0), place)
        else:
            bad, off = probability_places(y, s, a, n, bits, u4(0), place)
        if bad:
            take_back(y, s, at, a, real, bits, down, rows, stride, low)
            off_grid[0] = before
            return 1
        last = max(last, coarse_places(place, n, at, a, real, bits, down, stride, here))
        off_grid[0] |= u1(off != 0)
        for j in range(n if low.shape[0] else 0):
            rows[place[j]] += 1
            count = u1(low[here[j]] + u1(1))
            low[here[j]] = count
            full[k] = j
            k += u8(count == u1(0))  # without a branch
        for j in range(0 if low.shape[0] else n):
            rows[place[j]] += 1
            full[j] = j
        for i in range(k if low.shape[0] else u8(n)):
            cell = u4(at[a + full[i]])
            codes[m] = (u8(cell) << u8(shift)) | u8(here[full[i]] - cell * u4(stride))
            if ws.shape[0]:
                ws[m] = 1.0
            m += u8(1)
    waiting[0] = i8(m)
    if not all_off(last, s.shape[0], off_grid2):
        note_off(y, s, at, real, fewer, off_grid2)
    return 0


@inline
def bits_of(width: Any) -> Any:
    """How many bits tell so many labels apart."""
    found, left = u4(0), u4(width - 1)
    while left:
        found += u4(1)
        left >>= u4(1)
    return found


@kernel(out=("folded", "high", "low", "weights", "used", "bytes_", "excess", "codes", "ws", "waiting", "off_grid"))
def count_label_scores(
    y: Any, s: Any, w: Any, at: Any, width: Any, real: Any, bits: Any,
    folded: Any, high: Any, low: Any, weights: Any, used: Any,
    shift: Any, stride: Any, bytes_: Any, excess: Any, codes: Any, ws: Any, waiting: Any, off_grid: Any,
) -> Any:  # fmt: skip
    """Count good rows by label: those of folded cells by bucket, all others wait. `folded` is empty if all are.

    `at` is of cells and labels; a cell has the places of one label behind those of another.
    """
    here, place, cell, heavy = scratch(BLOCK, u4), scratch(BLOCK, u8), scratch(BLOCK, i8), scratch(BLOCK, f8)
    each, weighted, all_folded = u8(stride) // u8(width), w.shape[0] != 0, folded.shape[0] == 0
    top = bits_of(width) + u4(1)
    for a in range(0, s.shape[0], BLOCK):
        n, k = min(BLOCK, s.shape[0] - a), u8(0)
        fetch(at, a + AHEAD, n)
        _, off = places(y, s, a, n, real, bits, OFF_GRID, here)
        for j in range(n):
            i = u8(at[a + j]) // u8(width)
            label = u8(at[a + j]) - i * u8(width)
            if all_folded or folded[i]:
                cell[k], place[k] = i8(i), label * each + u8(here[j] & ~OFF_GRID)
                heavy[k] = w[a + j] if weighted else 1.0
                if off and here[j] >> u4(31) and heavy[k] != 0:
                    off_grid[u8(at[a + j])] = u1(1)
                k += u8(1)
            else:
                m, key = u8(used[0]), key_of(f8(s[a + j]), real)
                low[m] = (key << u8(1)) | u8(y[a + j])
                high[m] = (u4(i) << top) | (u4(label) << u4(1)) | u4(key >> u8(63))
                if weights.shape[0]:
                    weights[m] = w[a + j] if weighted else 1.0
                used[0] = i8(m + u8(1))
        ww = heavy if weighted else heavy[:0]
        emit(place, i8(0), i8(k), cell, ww, shift, stride, bytes_, excess, codes, ws, waiting)
    return 0


@kernel(out=("place", "lost"))
def buckets_of(high: Any, low: Any, real: Any, bits: Any, place: Any, lost: Any) -> Any:
    """Write where exact codes lie among buckets, and whether bits are lost there."""
    y, s, here = scratch(BLOCK, u1), scratch(BLOCK, f8), scratch(BLOCK, u4)
    for a in range(0, low.shape[0], BLOCK):
        n = min(BLOCK, low.shape[0] - a)
        for j in range(n):
            code = low[a + j]
            y[j] = u1(code & u8(1))
            s[j] = score_of(code >> u8(1), high[a + j], real)
        places(y, s, i8(0), n, real, bits, OFF_GRID, here)
        for j in range(n):
            place[a + j], lost[a + j] = here[j] & ~OFF_GRID, u1(here[j] >> u4(31))
    return 0
