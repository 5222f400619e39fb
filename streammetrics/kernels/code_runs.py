"""Group rows with scores by cell (such as a slice), and sort and merge the rows of each cell.

Usually, rows are not sorted when they arrive, but only when a caller reads them. A row is encoded as two integers
("words"): the low word holds its exact score and label, and the high word its cell (see module `exact_rows`). A run is
a range of low words with the same high word. A cell receives rows from many batches, so its runs are spread over
several arrays until they are merged.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ._jit import kernel
from .score_terms import LOW_MASK, split_limbs

i8, u4, u8 = np.int64, np.uint32, np.uint64


@kernel(out=("used", "counts"))
def count_high_words(high: Any, used: Any, counts: Any) -> Any:
    """Count how often each high word occurs from index used[1] to used[0] of a buffer, and set used[1] to used[0].

    The high word of a row identifies its cell (such as a slice). used[0] is the length of the buffer, and the high
    words before index used[1] have already been counted.
    """
    for i in range(used[1], used[0]):
        counts[u8(high[u8(i)])] += 1
    used[1] = used[0]
    return 0


@kernel(out=("starts", "out", "out_weights"))
def scatter_codes(high: Any, low: Any, weights: Any, starts: Any, out: Any, out_weights: Any) -> Any:
    """Write the low words of codes to `out`, and any weights to `out_weights`, both sorted by high word.

    `starts` holds the position in `out` of the first code with each high word. The function increases these positions.
    """
    for i in range(high.shape[0]):
        k = u8(starts[high[i]])
        out[k] = low[i]
        if weights.shape[0]:
            out_weights[k] = weights[i]
        starts[high[i]] = i8(k + u8(1))
    return 0


@kernel(out=("out",))
def move_runs(values: Any, first: Any, last: Any, order: Any, to: Any, out: Any) -> Any:
    """Copy the values of each high word in `order` to `out`, where those of order[k] begin at index to[k].

    The values of the high word h are values[first[h]:last[h]]. A high word beyond the end of `first` has no values.
    """
    for k in range(order.shape[0]):
        h = u8(order[k])
        if h < u8(first.shape[0]):
            a, b = u8(first[h]), u8(to[k])
            for i in range(last[h] - first[h]):
                out[b + u8(i)] = values[a + u8(i)]
    return 0


@kernel(out=("low", "weights"))
def sort_short_runs(low: Any, weights: Any, ends: Any, longest: Any) -> Any:
    """Sort each run of at most `longest` codes, along with any weights, in place by insertion sort.

    Run k ends before ends[k], where run k + 1 begins.
    """
    a = i8(0)
    for k in range(ends.shape[0]):
        b = ends[k]
        for i in range(a + 1, b if b - a <= longest else a):
            x, w, j = low[u8(i)], weights[u8(i)] if weights.shape[0] else 0.0, i
            while j > a and low[u8(j - 1)] > x:
                low[u8(j)] = low[u8(j - 1)]
                if weights.shape[0]:
                    weights[u8(j)] = weights[u8(j - 1)]
                j -= 1
            low[u8(j)] = x
            if weights.shape[0]:
                weights[u8(j)] = w
        a = b
    return 0


@kernel(out=("fresh", "high", "lows", "counts", "sums", "bounds"))
def unite_runs(
    old: Any, rows: Any, excess: Any, first: Any, last: Any, order: Any, fresh: Any, weights: Any, ends: Any,
    high: Any, lows: Any, counts: Any, sums: Any, bounds: Any,
) -> Any:  # fmt: skip
    """Merge sorted entries (distinct codes with row counts) and sorted codes of single rows, one run at a time.

    Run k of the result has the high word k and merges two ranges:

    - The entries old[first[h]:last[h]], where h = order[k] is their old high word. `rows` holds their row counts.
      `excess` holds their sums of w - 1 (weight minus 1), or is empty.
    - The codes of single rows in `fresh`, from ends[k - 1] (from 0 if k is 0) to ends[k]. `weights` holds their
      weights, or is empty.

    The result is written to `high`, `lows`, `counts` and `sums`; bounds[k] is the end of run k in these arrays. If
    there are no entries, `lows` may be the same array as `fresh`.
    """
    m, j = u8(0), u8(0)
    for k in range(order.shape[0]):
        h, end, i, stop = u8(order[k]), u8(ends[k]), u8(0), u8(0)
        if h < u8(first.shape[0]):
            i, stop = u8(first[h]), u8(last[h])
        # Each iteration copies the entries below the next code x, then adds the rows with this code. In the last
        # iteration of a run, no code is left, so the remaining entries are copied.
        while True:
            x, begin = u8(0), i
            if j < end:
                x = fresh[j]
                while i < stop and old[i] < x:
                    i += u8(1)
            else:
                i = stop
            for n in range(i - begin):
                lows[m + n], counts[m + n], high[m + n] = old[begin + n], rows[begin + n], u4(k)
            for n in range(u8(2) * (i - begin) if sums.shape[0] else u8(0)):
                sums[u8(2) * m + n] = excess[u8(2) * begin + n] if excess.shape[0] else i8(0)
            m += i - begin
            if j == end:
                break
            same = i < stop and old[i] == x
            count, more, part = i8(rows[i]) if same else i8(0), i8(0), i8(0)
            if same and excess.shape[0]:
                more, part = excess[u8(2) * i], excess[u8(2) * i + u8(1)]
            i += u8(same)
            while j < end and fresh[j] == x:
                if weights.shape[0]:
                    one, rest = split_limbs(weights[j])
                    more, part = more + one - i8(1 << 20) + ((part + rest) >> i8(40)), (part + rest) & LOW_MASK
                count += 1
                j += u8(1)
            lows[m], counts[m], high[m] = x, count, u4(k)
            if sums.shape[0]:
                sums[u8(2) * m], sums[u8(2) * m + u8(1)] = more, part
            m += u8(1)
        bounds[k] = i8(m)
    return 0
