"""Count rows by exact score, without buckets, in cells (such as slices) with few rows.

Each row is encoded as two integers. The low word holds 63 bits of the score and, as its last bit, the label. The high
word holds the cell, the index of the label (if rows have several labels), and the first bit of the score (if scores can
be negative). A buffer collects these codes until they are sorted and merged into the sorted codes and counts of the
cells. Cells that count scores in buckets do not use the buffer.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ._jit import inline, kernel
from .multilabel import slice_label_weights

f8, i4, i8, u1, u4, u8 = np.float64, np.int32, np.int64, np.uint8, np.uint32, np.uint64

TOP = u8(1 << 63)
MULTIPLIER = u8(0x9E3779B97F4A7C15)


@inline
def encode_score(x: Any, real: Any) -> Any:
    """Encode a float32 or float64 score as a 64-bit integer, preserving the order of scores. -0.0 becomes 0.0.

    If `real` is true, scores can be negative. Otherwise, they are probabilities, whose bits already sort correctly when
    read as integers.
    """
    word = f8(x + 0.0).view(u8)
    if real:
        # As integers, negative numbers sort in reverse order, so invert all of their bits. Set the first bit of
        # positive numbers, so that they sort above negative numbers.
        return ~word if word >> u8(63) else word | TOP
    return word


@inline
def decode_score(key: Any, high: Any, real: Any) -> Any:
    """Decode a score from `key`, which holds the lower 63 bits of its encoding.

    If `real` is true (scores can be negative), the first bit of the encoding is the last bit of `high`.
    """
    if real:
        word = key | (u8(high & u4(1)) << u8(63))
        return u8(word & ~TOP if word >> u8(63) else ~word).view(f8)
    return u8(key).view(f8)


@kernel(out=("folded", "high", "low", "weights", "used"))
def buffer_lone_rows(
    y: Any, s: Any, w: Any, real: Any, folded: Any, high: Any, low: Any, weights: Any, used: Any
) -> Any:  # fmt: skip
    """Append the rows of a state with one cell to the buffer. If a value is invalid, append nothing and return 1.

    A cell is a part of the data, such as a slice. If `real` is true, scores are real numbers; otherwise, they are
    probabilities. `high`, `low` and `weights` are the buffer, and used[0] is its length. `folded` is not used; it is a
    parameter because all kernels that append to the buffer are passed the same arrays.
    """
    m, n = u8(used[0]), u8(s.shape[0])
    # Write and check rows in one pass. If a row is invalid, the length of the buffer is not increased, so the rows just
    # written are ignored.
    lows, bad, most = low[m : m + n], i4(0), u1(0)
    if real:
        highs = high[m : m + n]
        for i in range(s.shape[0]):
            x = f8(s[i])
            bad |= i4(not (abs(x) < np.inf))
            most = max(most, y[i])
            key = encode_score(x, True)
            lows[i] = (key << u8(1)) | u8(y[i])
            highs[i] = u4(key >> u8(63))
    else:
        for i in range(s.shape[0]):
            x = s[i]
            bad |= i4(not (x >= 0)) | i4(not (x <= 1))
            most = max(most, y[i])
            lows[i] = (f8(f8(x) + 0.0).view(u8) << u8(1)) | u8(y[i])
    if bad or most > 1:
        return 1
    for i in range(s.shape[0] if weights.shape[0] else 0):
        weights[m + u8(i)] = w[i] if w.shape[0] else 1.0
    used[0] = i8(m + n)
    return 0


@kernel(out=("folded", "high", "low", "weights", "used"))
def buffer_rows_multilabel(
    width: Any, y: Any, s: Any, w: Any, real: Any, folded: Any, high: Any, low: Any, weights: Any, used: Any
) -> Any:  # fmt: skip
    """Append valid rows with `width` labels to the buffer (see `buffer_lone_rows`), one label after another."""
    n = s.shape[0] // width
    for i in range(width):
        m, own = u8(used[0]), slice_label_weights(w, i, n)
        lows, highs = low[m : m + u8(n)], high[m : m + u8(n)]
        yy, ss = y[i * n : (i + 1) * n], s[i * n : (i + 1) * n]
        for j in range(n):
            key = encode_score(f8(ss[j]), real)
            lows[j] = (key << u8(1)) | u8(yy[j])
            highs[j] = (u4(i) << u4(1)) | u4(key >> u8(63))
        for j in range(n if weights.shape[0] else 0):
            weights[m + u8(j)] = own[j] if w.shape[0] else 1.0
        used[0] = i8(m + u8(n))
    return 0


@inline
def buffer_rows(
    y: Any, s: Any, w: Any, at: Any, a: Any, n: Any, real: Any, high: Any, low: Any, weights: Any, used: Any
) -> None:
    """Append n valid rows, which start at row `a`, to the buffer `high`, `low` and `weights` of length used[0].

    `at` holds the cell (such as a slice) of each row. If `real` is true, scores can be negative.
    """
    m = u8(used[0])
    for j in range(n):
        key = encode_score(f8(s[a + j]), real)
        low[m + u8(j)] = (key << u8(1)) | u8(y[a + j])
        high[m + u8(j)] = (u4(at[a + j]) << u4(1)) | u4(key >> u8(63)) if real else u4(at[a + j])
    for j in range(n if weights.shape[0] else 0):
        weights[m + u8(j)] = w[a + j] if w.shape[0] else 1.0
    used[0] = i8(m + u8(n))


@kernel(out=("starts", "out"))
def scatter_low_words(high: Any, low: Any, starts: Any, out: Any) -> Any:
    """Write the low words of codes to `out`, sorted by their high words.

    `starts` holds the position in `out` of the first code with each high word. The function increases these positions.
    """
    for i in range(high.shape[0]):
        k = u8(starts[high[i]])
        out[k] = low[i]
        starts[high[i]] = i8(k + u8(1))
    return 0


@kernel(out=("highs", "lows", "counts"))
def count_few_codes(high: Any, low: Any, highs: Any, lows: Any, counts: Any) -> Any:
    """Count the occurrences of each code with a hash table, and return the number of distinct codes.

    A code consists of a high word in `high` and a low word in `low`. An empty `high` means that all high words are 0.
    The hash table consists of `highs`, `lows` and `counts`. On return, its first elements are the distinct codes and
    their counts. Return -1 if the codes would use more than half of the slots.
    """
    size, used = u8(lows.shape[0]), u8(0)
    for k in range(size):
        counts[k] = u4(0)
    for i in range(low.shape[0]):
        x, h = low[i], high[i] if high.shape[0] else u4(0)
        # This is multiplicative hashing: the upper 11 bits of the product depend on all bits of the code.
        k = ((x ^ (u8(h) << u8(32))) * MULTIPLIER >> u8(53)) & (size - u8(1))
        while counts[k] and (lows[k] != x or highs[k] != h):
            k = (k + u8(1)) & (size - u8(1))
        if not counts[k]:
            used += u8(1)
            if u8(2) * used > size:
                return -1
            lows[k], highs[k] = x, h
        counts[k] += u4(1)
    m = u8(0)
    for k in range(size):
        if counts[k]:
            lows[m], highs[m], counts[m] = lows[k], highs[k], counts[k]
            m += u8(1)
    return i8(m)


@kernel(out=("high", "lows", "counts"))
def count_sorted_codes(low: Any, ends: Any, high_of: Any, high: Any, lows: Any, counts: Any) -> Any:
    """Count the occurrences of each code, given low words sorted within segments. Return the number of distinct codes.

    Segment k ends before ends[k], and all of its codes have the high word high_of[k]. The distinct codes are written to
    `high` and `lows`, and the number of times each occurs to `counts`.
    """
    m, i = u8(0), 0
    for k in range(ends.shape[0]):
        first = True
        while i < ends[k]:
            x = low[i]
            fresh = first or x != lows[m - u8(1)]
            # To avoid a branch, write the result for every code, but advance the index only when a new code begins.
            m += u8(fresh)
            lows[m - u8(1)], high[m - u8(1)] = x, high_of[k]
            counts[m - u8(1)] = u4(1) if fresh else counts[m - u8(1)] + u4(1)
            first = False
            i += 1
    return i8(m)


@kernel(out=("l", "c"))
def insert_sorted(la: Any, ca: Any, lb: Any, cb: Any, l: Any, c: Any) -> Any:  # noqa: E741 - low words, and counts
    """Merge a long sorted array of codes (`la`) and a short one (`lb`), and add the counts (`ca`, `cb`) of equal codes.

    Write the merged codes and counts to `l` and `c`, and return the number of merged codes.
    """
    i, m, na = 0, 0, la.shape[0]
    for j in range(lb.shape[0]):
        x = lb[j]
        # Find the position in the long array of the next code of the short array by binary search. Copy all codes of
        # the long array before this position as a block.
        first, last = i, na
        while first < last:
            mid = (first + last) >> 1
            if la[u8(mid)] < x:
                first = mid + 1
            else:
                last = mid
        for k in range(first - i):
            l[m + k], c[m + k] = la[i + k], ca[i + k]
        m += first - i
        i = first
        same = i < na and la[u8(i)] == x
        l[m], c[m] = x, cb[j] + (ca[u8(i)] if same else u4(0))
        m += 1
        i += 1 if same else 0
    for k in range(na - i):
        l[m + k], c[m + k] = la[i + k], ca[i + k]
    return m + na - i


@kernel(out=("out",))
def count_pair_wins(low: Any, starts: Any, counts: Any, out: Any) -> Any:
    """Write to `out` the numbers of rows and pairs in each cell (such as a slice), from which AUC is computed.

    The four counts of a cell are negatives, positives, twice the concordant pairs (a tie counts one half) and tied
    pairs. The codes of cell i, low[starts[i]:starts[i + 1]], are sorted; their last bit is the label. A cell can have
    up to 2**31 rows.
    """
    for cell in range(starts.shape[0] - 1):
        negatives, positives, twice, ties, here = i8(0), i8(0), i8(0), i8(0), i8(0)
        last = u8(1)
        for i in range(starts[cell], starts[cell + 1]):
            x, n = u8(low[u8(i)]), i8(counts[u8(i)])
            positive = i8(x & u8(1))
            # Codes with the same score differ only in the last bit, the label. A positive is tied only with negatives
            # whose code directly precedes its own. `here` is the number of such negatives.
            here = here if x == last + u8(1) else i8(0)
            twice += positive * n * (i8(2) * negatives - here)
            ties += positive * n * here
            here = i8(0) if positive else n
            last = u8(1) if positive else x
            negatives += (i8(1) - positive) * n
            positives += positive * n
        out[4 * cell], out[4 * cell + 1], out[4 * cell + 2], out[4 * cell + 3] = negatives, positives, twice, ties
    return 0


@kernel(out=("gain", "total", "rest"))
def count_pair_wins_without(
    places: Any, starts: Any, counts: Any, firsts: Any, gain: Any, total: Any, rest: Any
) -> Any:  # fmt: skip
    """Count the rows and pairs in each group of cells: with all of its cells, and then without each cell in turn.

    A group can be a slice whose cells are shards. The three counts, from which AUC is computed, are negatives,
    positives, and twice the concordant pairs (a tie counts one half). The counts of whole groups are written to
    `total`, and the counts without each cell to `rest`. `firsts` holds the index of the first cell of each group.
    `places` holds the place of each count, which is twice its score bucket plus its label.

    Let U(x, y) be the number of concordant pairs of a positive in x and a negative in y. Leaving cell k out of the
    whole group T needs no second pass over the other cells: U(T - k, T - k) = U(T, T) - U(k, T) - U(T, k) + U(k, k).
    For each place, the array `gain` (working memory) holds twice the number of rows with the other label and a lower
    score (a tie counts one half).
    """
    for group in range(firsts.shape[0] - 1):
        first, last = firsts[group], firsts[group + 1]
        for i in range(gain.shape[0]):
            gain[i] = 0
        for i in range(starts[first], starts[last]):
            gain[places[i]] += i8(counts[i])
        negatives, positives, twice = i8(0), i8(0), i8(0)
        for i in range(0, gain.shape[0], 2):
            n, p = gain[i], gain[i + 1]
            gain[i], gain[i + 1] = i8(2) * positives + p, i8(2) * negatives + n
            twice += p * gain[i + 1]
            negatives, positives = negatives + n, positives + p
        total[3 * group], total[3 * group + 1], total[3 * group + 2] = negatives, positives, twice
        for cell in range(first, last):
            below, above, own, won, here, before = i8(0), i8(0), i8(0), i8(0), i8(0), u8(1)
            for i in range(starts[cell], starts[cell + 1]):
                x, n = u8(places[i]), i8(counts[i])
                if x & u8(1):
                    here = here if x == before + u8(1) else i8(0)
                    own += n * (i8(2) * below - here)
                    won += n * gain[x]
                    above, here, before = above + n, i8(0), u8(1)
                else:
                    won += n * (i8(2) * positives - gain[x])
                    below, here, before = below + n, n, x
            rest[3 * cell], rest[3 * cell + 1] = negatives - below, positives - above
            rest[3 * cell + 2] = twice - won + own
    return 0
