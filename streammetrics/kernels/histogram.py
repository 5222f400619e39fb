"""Histograms of rows by score bucket and label, from which AUC, average precision and KS are computed.

The bucket of a score consists of the leading bits of the score. The other bits are dropped, never rounded, so a higher
score never has a lower bucket, and equal scores have the same bucket in float32 and float64. The place of a row is the
index of its counter: twice its bucket plus its label. A score is called off the grid if its bucket drops bits that are
not 0. A histogram with such scores is inexact: it gives only bounds on the metrics.

Each block of rows is first converted to places, in a loop that vectorizes, and then counted. Rows of a single cell
(such as a slice) are checked while they are counted. If a value is invalid, all counts are undone.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ._jit import choose_by_dtype, inline, kernel, outline
from ._memory import flatten, prefetch, scratch
from .exact_rows import buffer_rows, decode_score, encode_score
from .multilabel import slice_label_weights
from .score_terms import add_fixed, score_bits, score_of_bits, split_limbs
from .tally_codes import add_rows

f4, f8, i4, i8 = np.float32, np.float64, np.int32, np.int64
u1, u4, u8 = np.uint8, np.uint32, np.uint64

# Blocks are short so that the processor can overlap the scalar loop that counts one block with the vector loop that
# converts the next block.
BLOCK = 128
# Rows are prefetched this many rows ahead. Counting this many rows takes longer than loading a row from memory.
AHEAD = 1024
# This bit is set in the place of a row whose score is off the grid (its bucket drops bits that are not 0). The bit is
# cleared once the cell of the row has been marked as inexact.
OFF_GRID = u4(1 << 31)
# The bits of the largest float32 number, as an integer.
LARGEST = i4(0x7F7FFFFF)


def _half_word32(z: Any) -> Any:
    """Return the bits of the float32 z, and 0 to indicate that no bits were dropped."""
    return f4(z).view(i4), i4(0)


def _half_word64(z: Any) -> Any:
    """Return the bits of the float64 z truncated to float32, and whether this drops bits that are not 0."""
    bits = f8(z).view(i8)
    top = (bits >> i8(29)) - i8(896 << 23)
    # A number below the normal range of float32 belongs to the lowest bucket, like 0. If it is not 0, its bits are
    # dropped.
    tiny = top <= i8(0)
    lost = i4((bits & i8(0x1FFFFFFF)) != 0) | i4(tiny & (bits != 0))
    return i4(i8(0) if tiny else top), lost


def _real_word32(z: Any) -> Any:
    """Return the bits of the absolute value of a float32, and 0 to indicate that no bits were dropped."""
    return f4(z).view(i4) & i4(0x7FFFFFFF), i4(0)


def _real_word64(z: Any) -> Any:
    """Return the bits of a float64's absolute value truncated to float32, and whether this drops bits that are not 0.

    A number that is subnormal in float32 is also truncated correctly. A number above the largest float32 becomes the
    largest float32.
    """
    bits = f8(z).view(i8) & i8(0x7FFFFFFFFFFFFFFF)
    top = (bits >> i8(29)) - i8(896 << 23)
    below, above = top < i8(1 << 23), top > i8(LARGEST)
    # Below 2**-126, float32 can represent only multiples of 2**-149, so count these multiples.
    scaled = abs(z) * f8(2.0**149) if below else f8(0.0)
    small = i8(scaled)
    lost = (f8(small) != scaled) if below else (((bits & i8(0x1FFFFFFF)) != 0) | above)
    return i4(small if below else (i8(LARGEST) if above else top)), i4(lost)


real_word = choose_by_dtype(float32=_real_word32, float64=_real_word64)
half_word = choose_by_dtype(float32=_half_word32, float64=_half_word64)


@inline
def smaller_probability(p: Any) -> Any:
    """Return the smaller of a probability p and 1 - p, and whether p is above 1/2. In that case, 1 - p is exact."""
    up = p > f4(0.5)
    # Adding 0 turns -0.0 into 0.0.
    return (f4(1) - p if up else p) + f4(0), up


@inline
def find_probability_places(y: Any, s: Any, a: Any, n: Any, bits: Any, mark: Any, place: Any) -> Any:
    """Write the places (twice the bucket plus the label) of the rows a to a + n - 1, whose scores are probabilities.

    A bucket has `bits` bits. If it drops bits of the score that are not 0, the score is off the grid, and `mark` is
    added to its place. Return whether any value is invalid, and whether any score is off the grid.
    """
    shift = i4(23 - (bits - 6))
    base = i4(94 << 23) >> shift  # the bits of 2**-33
    top = i4(1) << i4(bits)
    mask = (i4(1) << shift) - i4(1)
    labels, off = u4(0), i4(0)
    prefetch(y, a + AHEAD, n)
    prefetch(s, a + AHEAD, n)
    yy, ss = y[a : a + n], s[a : a + n]
    most = score_bits(smaller_probability(ss[0])[0])
    for j in range(n):
        # For a probability p above 1/2, find the bucket of 1 - p, and mirror it at the end of the loop (`top - b`).
        # Buckets close to 1 are thus as narrow as buckets close to 0.
        z, up = smaller_probability(ss[j])
        w, lost = half_word(z)
        labels |= u4(yy[j])
        # As unsigned integers, the bits of negative numbers, NaN and numbers above 1/2 exceed those of 1/2. The maximum
        # of the bits therefore shows whether any score is invalid.
        most = max(most, score_bits(z))
        b = (w >> shift) - base
        low = b <= i4(0)
        # All numbers in the lowest bucket count as 0, so the bits of those that are not 0 are dropped.
        lost |= (w & mask) | (w if low else i4(0))
        off |= lost
        b = i4(0) if low else b
        b = top - b if up else b
        place[j] = (u4(b) << u4(1)) + u4(yy[j]) + (mark if lost != i4(0) else u4(0))
    return i4(labels > u4(1)) | i4(not (f4(0) <= score_of_bits(most) <= f4(0.5))), off


@inline
def find_real_places(y: Any, s: Any, a: Any, n: Any, bits: Any, mark: Any, place: Any) -> Any:
    """Write the places (twice the bucket plus the label) of the rows a to a + n - 1, whose scores are real numbers.

    The parameters and the result are the same as for `find_probability_places`. A score is invalid if it is not finite.
    """
    shift = i4(32 - bits)
    half = i4(1) << i4(bits - 1)
    mask = (i4(1) << shift) - i4(1)
    bad, off = i4(0), i4(0)
    prefetch(y, a + AHEAD, n)
    prefetch(s, a + AHEAD, n)
    yy, ss = y[a : a + n], s[a : a + n]
    for j in range(n):
        x = ss[j]
        bad |= i4(yy[j] > 1) | i4(not (abs(x) < np.inf))
        w, lost = real_word(x)
        lost |= w & mask
        off |= lost
        b = w >> shift
        # Negative scores have lower buckets than positive ones, in reverse order of their absolute values.
        b = half - i4(1) - b if x < f4(0) else half + b
        place[j] = (u4(b) << u4(1)) + u4(yy[j]) + (mark if lost != i4(0) else u4(0))
    return bad, off


@outline
def find_probability_places_outlined(y: Any, s: Any, a: Any, n: Any, bits: Any, place: Any) -> Any:
    """Call `find_probability_places` with `mark` = 0, in a separate function that is not inlined.

    To speed up compilation, a kernel inlines `find_probability_places` only where it must run fast, and calls this
    function elsewhere.
    """
    return find_probability_places(y, s, a, n, bits, u4(0), place)


@outline
def find_real_places_outlined(y: Any, s: Any, a: Any, n: Any, bits: Any, place: Any) -> Any:
    """Call `find_real_places` with `mark` = 0, in a separate function that is not inlined, to speed up compilation."""
    return find_real_places(y, s, a, n, bits, u4(0), place)


@outline
def find_places(y: Any, s: Any, a: Any, n: Any, real: Any, bits: Any, mark: Any, place: Any) -> Any:
    """Write the places (twice the bucket plus the label) of the rows a to a + n - 1.

    If `real` is true, scores are real numbers; otherwise, they are probabilities. See `find_probability_places` for the
    other arguments and the result.
    """
    if real:
        return find_real_places(y, s, a, n, bits, mark, place)
    return find_probability_places(y, s, a, n, bits, mark, place)


@inline
def count_places(place: Any, n: Any, rows: Any) -> None:
    """Increment the counter of each row's place (bucket and label), for n rows."""
    # Eight increments per iteration reduce the loop overhead.
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
    """Count rows of a single cell by place (bucket and label), for scores that are probabilities.

    If a value is invalid, undo the counts of all earlier blocks and return 1. Buckets have `bits` bits. If any score is
    off the grid (its bucket drops bits that are not 0), off_grid[0] is set to 1. `excess` is not used, because rows
    have no weights.
    """
    place, before = scratch(BLOCK, u4), off_grid[0]
    for a in range(0, s.shape[0], BLOCK):
        n = min(BLOCK, s.shape[0] - a)
        # Once off_grid[0] is set, usually after one block, ignore `off`, so that the compiler removes its computation
        # from this call.
        if off_grid[0]:
            bad, _ = find_probability_places(y, s, a, n, bits, u4(0), place)
        else:
            bad, off = find_probability_places_outlined(y, s, a, n, bits, place)
            off_grid[0] = u1(off != 0)
        # Invalid values are rare, so undoing the counts of earlier blocks takes less time than checking all rows first.
        if bad:
            for b in range(0, a, BLOCK):
                find_probability_places_outlined(y, s, b, i8(BLOCK), bits, place)
                for j in range(BLOCK):
                    rows[place[j]] -= 1
            off_grid[0] = before
            return 1
        count_places(place, n, rows)
    return 0


@kernel(out=("rows", "excess", "off_grid"))
def count_reals(y: Any, s: Any, bits: Any, rows: Any, excess: Any, off_grid: Any) -> Any:
    """Count rows of a single cell by place (bucket and label), like `count_probabilities`, for finite real scores."""
    place, before = scratch(BLOCK, u4), off_grid[0]
    for a in range(0, s.shape[0], BLOCK):
        n = min(BLOCK, s.shape[0] - a)
        if off_grid[0]:
            bad, _ = find_real_places(y, s, a, n, bits, u4(0), place)
        else:
            bad, off = find_real_places_outlined(y, s, a, n, bits, place)
            off_grid[0] = u1(off != 0)
        if bad:
            for b in range(0, a, BLOCK):
                find_real_places_outlined(y, s, b, i8(BLOCK), bits, place)
                for j in range(BLOCK):
                    rows[place[j]] -= 1
            off_grid[0] = before
            return 1
        count_places(place, n, rows)
    return 0


@outline
def count_weighted_rows(y: Any, s: Any, w: Any, real: Any, bits: Any, rows: Any, excess: Any, off_grid: Any) -> None:
    """Count valid rows of one cell, and add each row's weight minus 1 to `excess`, both by place (bucket and label).

    off_grid[0] is set to 1 if any row with a weight other than 0 has a score off the grid (its bucket drops bits that
    are not 0).
    """
    place, highs, lows = scratch(BLOCK, u4), scratch(BLOCK, i8), scratch(BLOCK, i8)
    for a in range(0, s.shape[0], BLOCK):
        n = min(BLOCK, s.shape[0] - a)
        ww = w[a : a + n]
        prefetch(w, a + AHEAD, n)
        mark = u4(0) if off_grid[0] else OFF_GRID
        _, off = find_places(y, s, a, n, real, bits, mark, place)
        # Mark the cell as inexact if a score is off the grid. Rows with weight 0 do not matter.
        for j in range(n if mark and off else 0):
            off_grid[0] |= u1(place[j] >> u4(31)) & u1(ww[j] != 0)
            place[j] &= ~OFF_GRID
        for j in range(n):
            high, low = split_limbs(ww[j])
            highs[j], lows[j] = high - i8(1 << 20), low
        for j in range(n):
            here = u8(place[j])
            rows[here] += 1
            add_fixed(excess, u8(2) * here, highs[j], lows[j])


@kernel(out=("rows", "excess", "off_grid"))
def count_weighted_scores(y: Any, s: Any, w: Any, real: Any, bits: Any, rows: Any, excess: Any, off_grid: Any) -> Any:
    """Count valid rows of one cell, and add each row's weight minus 1 to `excess`, both by place (bucket and label)."""
    count_weighted_rows(y, s, w, real, bits, rows, excess, off_grid)
    return 0


@kernel(out=("rows", "excess", "off_grid"))
def count_weighted_scores_multilabel(
    width: Any, y: Any, s: Any, w: Any, real: Any, bits: Any, rows: Any, excess: Any, off_grid: Any
) -> Any:  # fmt: skip
    """Count valid weighted rows by place (score bucket and label value), for each of `width` labels in turn."""
    n, m = u8(s.shape[0]) // u8(width), u8(rows.shape[0]) // u8(width)
    for i in range(u8(width)):
        a, b = i * n, i * m
        c = u8(2) * b
        count_weighted_rows(
            y[a : a + n], s[a : a + n], slice_label_weights(w, i8(i), i8(n)), real, bits,
            rows[b : b + m], excess[c : c + u8(2) * m], off_grid[i : i + u8(1)],
        )  # fmt: skip
    return 0


@kernel(out=("rows", "excess", "off_grid"))
def count_scores_multilabel(
    width: Any, y: Any, s: Any, real: Any, bits: Any, rows: Any, excess: Any, off_grid: Any
) -> Any:  # fmt: skip
    """Count valid rows without weights by place (score bucket and label value), for each of `width` labels in turn."""
    place = scratch(BLOCK, u4)
    n, m = s.shape[0] // width, rows.shape[0] // width
    for i in range(width):
        yy, ss, here = y[i * n : (i + 1) * n], s[i * n : (i + 1) * n], rows[i * m : (i + 1) * m]
        for a in range(0, n, BLOCK):
            k = min(BLOCK, n - a)
            _, off = find_places(yy, ss, a, k, real, bits, u4(0), place)
            count_places(place, k, here)
            off_grid[i] |= u1(off != 0)
    return 0


@inline
def are_all_marked(last: Any, rows: Any, marks: Any) -> Any:
    """Return whether the flags of all cells from 0 to `last` are set; `marks` holds a flag for each cell.

    If they are, which is usual after a few batches, the caller need not access the flag for each row. `rows` is the
    number of rows in the batch. If there are more cells than rows, checking the flags would take longer than it saves,
    so the result is False.
    """
    sure = last < rows
    for i in range(last + 1 if sure else 0):
        sure &= marks[u8(i)] != 0
    return sure


@kernel(out=("high", "low", "weights", "used", "bytes_", "excess", "codes", "ws", "waiting", "off_grid"))
def count_scores(
    y: Any, s: Any, w: Any, at: Any, real: Any, bits: Any,
    folded: Any, high: Any, low: Any, weights: Any, used: Any,
    shift: Any, stride: Any, bytes_: Any, excess: Any, codes: Any, ws: Any, waiting: Any, off_grid: Any,
) -> Any:  # fmt: skip
    """Count valid rows of several cells (such as slices), by score bucket or by exact score.

    If a cell is folded (counts scores in buckets), its rows are counted by bucket in the tally that consists of the
    arguments from `shift` to `waiting` (see module `tally_codes`). Otherwise, its exact scores are appended to the
    buffer that consists of the arguments from `high` to `used` (see module `exact_rows`). An empty `folded` means that
    all cells are folded.
    """
    place, cell, heavy = scratch(BLOCK, u4), scratch(BLOCK, i8), scratch(BLOCK, f8)
    lone, weighted, last = at.shape[0] == 0, w.shape[0] != 0, i8(0)
    for j in range(at.shape[0]):
        last = max(last, at[j])
    all_folded = folded.shape[0] == 0 or (not lone and are_all_marked(last, s.shape[0], folded))
    simple = all_folded and not lone
    # Marking rows that are off the grid takes time, so do not mark them if all cells are already marked as inexact.
    mark = u4(0) if simple and are_all_marked(last, s.shape[0], off_grid) else OFF_GRID
    for a in range(0, s.shape[0], BLOCK):
        n, sealed = min(BLOCK, s.shape[0] - a), i8(0)
        if not lone:
            prefetch(at, a + AHEAD, n)
        for j in range(0 if all_folded else n):
            sealed += i8(folded[u8(0) if lone else u8(at[a + j])])
        if not all_folded and sealed == 0:
            buffer_rows(y, s, w, at, a, n, real, high, low, weights, used)
            continue
        _, off = find_places(y, s, a, n, real, bits, mark, place)
        off = off if mark else i4(0)
        for j in range(n if off and simple else 0):
            off_grid[u8(at[a + j])] |= u1(place[j] >> u4(31)) & u1(not weighted or w[a + j] != 0)
            place[j] &= ~OFF_GRID
        for j in range(n if off and not simple else 0):
            if place[j] >> u4(31):
                place[j] &= ~OFF_GRID
                i = u8(0) if lone else u8(at[a + j])
                counted = all_folded or folded[i] != 0
                if counted and not off_grid[i] and (not weighted or w[a + j] != 0):
                    off_grid[i] = u1(1)
        # Usually, either all cells in a block are folded (have buckets) or none are. Such a block need not be split.
        if all_folded or sealed == n:
            add_rows(place, a, n, at, w, shift, stride, bytes_, excess, codes, ws, waiting)
            continue
        # Only some cells are folded. Collect the rows of these cells and append all other rows to the buffer.
        k = u8(0)
        for j in range(n):
            i = at[a + j]
            if folded[i]:
                place[k], cell[k], heavy[k] = place[j], i, w[a + j] if weighted else 1.0
                k += u8(1)
            else:
                m, key = u8(used[0]), encode_score(f8(s[a + j]), real)
                low[m] = (key << u8(1)) | u8(y[a + j])
                high[m] = (u4(i) << u4(1)) | u4(key >> u8(63)) if real else u4(i)
                if weights.shape[0]:
                    weights[m] = w[a + j] if weighted else 1.0
                used[0] = i8(m + u8(1))
        # `flatten` returns read-only views. They have the types of `at` and `w`, so numba compiles `add_rows` only once.
        cells, ww = flatten(cell), flatten(heavy if weighted else heavy[:0])
        add_rows(place, i8(0), i8(k), cells, ww, shift, stride, bytes_, excess, codes, ws, waiting)
    return 0


@inline
def find_coarse_places(
    place: Any, n: Any, at: Any, a: Any, real: Any, bits: Any, down: Any, stride: Any, here: Any
) -> Any:
    """Convert places (buckets and labels) to places in a histogram with `down` fewer bits per bucket.

    The result, `here`, includes the offset of the row's cell, which is `stride` times the cell index. The cells of the
    n rows are at[a:a + n]. Return the largest cell index.
    """
    # The bucket of a probability p above 1/2 is the mirror image of the bucket of 1 - p. If bits of 1 - p are dropped,
    # the bucket of p is therefore rounded up.
    half, up = u4(1) << u4(bits - 1), u4(0) if real else (u4(1) << u4(down)) - u4(1)
    cells, last = at[a : a + n], i8(0)
    for j in range(n):
        last = max(last, cells[j])
        bucket = place[j] >> u4(1)
        bucket = (bucket + (up if bucket > half else u4(0))) >> u4(down)
        here[j] = u4(cells[j]) * u4(stride) + (bucket << u4(1)) + (place[j] & u4(1))
    return last


@outline
def mark_off_grid(y: Any, s: Any, at: Any, real: Any, bits: Any, off_grid: Any) -> None:
    """Mark cells as inexact if they contain a score that is off the grid (its bucket drops bits that are not 0)."""
    place = scratch(BLOCK, u4)
    for a in range(0, s.shape[0], BLOCK):
        n = min(BLOCK, s.shape[0] - a)
        _, off = find_places(y, s, a, n, real, bits, OFF_GRID, place)
        for j in range(n if off else 0):
            off_grid[u8(at[a + j])] |= u1(place[j] >> u4(31))


@outline
def undo_counts(
    y: Any, s: Any, at: Any, stop: Any, real: Any, bits: Any, down: Any, rows: Any, stride: Any, low: Any
) -> None:
    """Subtract the rows before `stop` from the counts in `rows`, and from the byte counters of the shards in `low`.

    Codes that were appended to the buffer need not be removed: the caller sets the length of the buffer only if all
    rows are valid.
    """
    place, here = scratch(BLOCK, u4), scratch(BLOCK, u4)
    for a in range(0, stop, BLOCK):
        find_places(y, s, a, i8(BLOCK), real, bits, u4(0), place)
        find_coarse_places(place, BLOCK, at, a, real, bits, down, stride, here)
        for j in range(BLOCK):
            rows[place[j]] -= 1
        for j in range(BLOCK if low.shape[0] else 0):
            low[here[j]] -= u1(1)


@kernel(out=("rows", "excess", "off_grid", "low", "excess2", "codes", "ws", "waiting", "off_grid2"))
def count_with_shards(
    y: Any, s: Any, at: Any, real: Any, bits: Any, fewer: Any, rows: Any, excess: Any, off_grid: Any,
    shift: Any, stride: Any, low: Any, excess2: Any, codes: Any, ws: Any, waiting: Any, off_grid2: Any,
) -> Any:  # fmt: skip
    """Count rows twice: in a single cell with buckets of `bits` bits, and by shard with buckets of `fewer` bits.

    `at` holds the shard of each row. If a value is invalid, undo all counts and return 1. The arguments from `shift` to
    `waiting` are the tally that counts the rows of the shards (see module `tally_codes`).
    """
    place, here, full = scratch(BLOCK, u4), scratch(BLOCK, u4), scratch(BLOCK, u4)
    down, m, before, last = bits - fewer, u8(waiting[0]), off_grid[0], i8(0)
    for a in range(0, s.shape[0], BLOCK):
        n, k = min(BLOCK, s.shape[0] - a), u8(0)
        if real:
            bad, off = find_real_places(y, s, a, n, bits, u4(0), place)
        else:
            bad, off = find_probability_places(y, s, a, n, bits, u4(0), place)
        if bad:
            undo_counts(y, s, at, a, real, bits, down, rows, stride, low)
            off_grid[0] = before
            return 1
        last = max(last, find_coarse_places(place, n, at, a, real, bits, down, stride, here))
        off_grid[0] |= u1(off != 0)
        for j in range(n if low.shape[0] else 0):
            rows[place[j]] += 1
            count = u1(low[here[j]] + u1(1))
            low[here[j]] = count
            full[k] = j
            # Collect the rows at which a byte counter overflows; their codes are appended to `codes` below. To avoid a
            # branch, write every row but advance the index only at an overflow.
            k += u8(count == u1(0))
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
    if not are_all_marked(last, s.shape[0], off_grid2):
        mark_off_grid(y, s, at, real, fewer, off_grid2)
    return 0


@inline
def count_label_bits(width: Any) -> Any:
    """Return the number of bits needed to represent a label index below `width`."""
    count, rest = u4(0), u4(width - 1)
    while rest:
        count += u4(1)
        rest >>= u4(1)
    return count


@kernel(out=("folded", "high", "low", "weights", "used", "bytes_", "excess", "codes", "ws", "waiting", "off_grid"))
def count_label_scores(
    y: Any, s: Any, w: Any, at: Any, width: Any, real: Any, bits: Any,
    folded: Any, high: Any, low: Any, weights: Any, used: Any,
    shift: Any, stride: Any, bytes_: Any, excess: Any, codes: Any, ws: Any, waiting: Any, off_grid: Any,
) -> Any:  # fmt: skip
    """Count valid rows of each label, by score bucket or by exact score, as `count_scores` does for one label.

    For each score, `at` holds the cell index times `width` (the number of labels) plus the label index. The counters
    for all labels of a cell are contiguous. An empty `folded` means that all cells are folded, that is, they count
    scores by bucket.
    """
    here, place, cell, heavy = scratch(BLOCK, u4), scratch(BLOCK, u8), scratch(BLOCK, i8), scratch(BLOCK, f8)
    places_per_label, weighted, all_folded = u8(stride) // u8(width), w.shape[0] != 0, folded.shape[0] == 0
    top = count_label_bits(width) + u4(1)
    for a in range(0, s.shape[0], BLOCK):
        n, k = min(BLOCK, s.shape[0] - a), u8(0)
        prefetch(at, a + AHEAD, n)
        _, off = find_places(y, s, a, n, real, bits, OFF_GRID, here)
        for j in range(n):
            i = u8(at[a + j]) // u8(width)
            label = u8(at[a + j]) - i * u8(width)
            if all_folded or folded[i]:
                cell[k], place[k] = i8(i), label * places_per_label + u8(here[j] & ~OFF_GRID)
                heavy[k] = w[a + j] if weighted else 1.0
                if off and here[j] >> u4(31) and heavy[k] != 0:
                    off_grid[u8(at[a + j])] = u1(1)
                k += u8(1)
            else:
                m, key = u8(used[0]), encode_score(f8(s[a + j]), real)
                low[m] = (key << u8(1)) | u8(y[a + j])
                high[m] = (u4(i) << top) | (u4(label) << u4(1)) | u4(key >> u8(63))
                if weights.shape[0]:
                    weights[m] = w[a + j] if weighted else 1.0
                used[0] = i8(m + u8(1))
        # `flatten` returns read-only views. They have the types of `at` and `w`, so numba compiles `add_rows` only once.
        cells, ww = flatten(cell), flatten(heavy if weighted else heavy[:0])
        add_rows(place, i8(0), i8(k), cells, ww, shift, stride, bytes_, excess, codes, ws, waiting)
    return 0


@kernel(out=("place", "is_lossy"))
def find_buckets(high: Any, low: Any, real: Any, bits: Any, place: Any, is_lossy: Any) -> Any:
    """Convert codes of exact scores and labels to places (bucket and label).

    Write to `is_lossy` whether the bucket of each score drops bits that are not 0.
    """
    y, s, here = scratch(BLOCK, u1), scratch(BLOCK, f8), scratch(BLOCK, u4)
    # Pass read-only views. All kernels pass read-only arrays, so numba compiles `find_places` only once for each dtype.
    yy, ss = flatten(y), flatten(s)
    for a in range(0, low.shape[0], BLOCK):
        n = min(BLOCK, low.shape[0] - a)
        for j in range(n):
            code = low[a + j]
            y[j] = u1(code & u8(1))
            s[j] = decode_score(code >> u8(1), high[a + j], real)
        find_places(yy, ss, i8(0), n, real, bits, OFF_GRID, here)
        for j in range(n):
            place[a + j], is_lossy[a + j] = here[j] & ~OFF_GRID, u1(here[j] >> u4(31))
    return 0
