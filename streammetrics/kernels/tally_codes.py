"""Kernels for tallies, which count rows by code: a number that encodes a cell (such as a slice) and a place.

A place consists of a bucket and a label. A tally keeps sorted distinct codes with their counts (its entries). New rows
are first counted in byte counters, one for each place in each cell. When a byte overflows, its code is appended to a
buffer, where it represents 256 rows. In a tally without byte counters, the code of every row is appended to the buffer.

A kernel that counts rows in a tally takes seven arguments for the tally. `shift` is the number of bits in a place, and
`stride` the number of places in a cell. The others are the byte counters (or an empty array), the sums of w - 1 (w is
the weight of a row), and the codes, weights and length of the buffer.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ._jit import inline, kernel, outline
from ._memory import prefetch, scratch
from .score_terms import add_fixed, split_limbs

f4, f8, i8, u1, u4, u8 = np.float32, np.float64, np.int64, np.uint8, np.uint32, np.uint64

# The largest number of bits in a digit of the radix sort. The sort writes to one memory location for each value of a
# digit. With 11 bits, there are too many locations for the fastest cache, and the sort takes 1.5 times as long.
DIGIT = 10
DIGITS = 1 << DIGIT
# The largest number of bits in a digit for codes with weights. Codes and weights go to different arrays, so the sort
# writes to twice as many memory locations. With 11 bits, these are on more memory pages than the processor can look up
# quickly, and the sort takes twice as long.
WEIGHTED_DIGIT = 8
# Codes are converted to 32 bits in blocks of this size. If a code does not fit into 32 bits, the conversion ends after
# the block that contains this code.
BLOCK = 1024

# Counters are prefetched this many rows before they are changed.
SOON = i8(16)


@inline
def count_row(low: Any, here: Any, code: Any, codes: Any, m: Any) -> Any:
    """Add 1 to the byte counter `here`, and return the new length of the buffer.

    The length remains `m` unless the byte overflows. A byte that overflows becomes 0, and its code is appended to the
    buffer, where it represents 256 rows.
    """
    rows = u1(low[here] + u1(1))
    low[here] = rows
    if rows == u1(0):
        codes[m] = code
        m += u8(1)
    return m


@inline
def add_rows(
    place: Any, a: Any, n: Any, at: Any, w: Any,
    shift: Any, stride: Any, low: Any, excess: Any, codes: Any, weights: Any, waiting: Any,
) -> None:  # fmt: skip
    """Add n rows to the byte counters `low` of a tally or, if it has none, to its buffer of codes.

    Element j of `place` and element `a + j` of `at` and `w` are the place, cell and weight of a row. The lower `shift`
    bits of a code are the place, and the bits above are the cell. The module docstring describes the other parameters.
    """
    lone, m, weighted = at.shape[0] == 0, u8(waiting[0]), w.shape[0] > 0
    if low.shape[0]:
        for j in range(0 if weighted else n):
            cell = u8(0) if lone else u8(at[a + j])
            m = count_row(low, cell * u8(stride) + u8(place[j]), (cell << u8(shift)) | u8(place[j]), codes, m)
        for j in range(n if weighted else 0):
            # The counters of a row are often not in the cache, so prefetch those of a later row.
            i = min(j + SOON, n - 1)
            later = u8(place[i]) if lone else u8(at[a + i]) * u8(stride) + u8(place[i])
            prefetch(low, later, 1)
            prefetch(excess, u8(2) * later, 2)
            cell = u8(0) if lone else u8(at[a + j])
            here = cell * u8(stride) + u8(place[j])
            m = count_row(low, here, (cell << u8(shift)) | u8(place[j]), codes, m)
            high, part = split_limbs(w[a + j])
            add_fixed(excess, u8(2) * here, high - i8(1 << 20), part)
    else:
        out = codes[m : m + u8(n)]
        for j in range(n if lone else 0):
            out[j] = place[j]
        for j in range(0 if lone else n):
            out[j] = (u8(at[a + j]) << u8(shift)) | u8(place[j])
        for j in range(n if weights.shape[0] else 0):
            weights[m + u8(j)] = w[a + j] if w.shape[0] else 1.0
        m += u8(n)
    waiting[0] = i8(m)


@kernel(out=("low", "excess", "codes", "weights", "waiting"))
def add_places(
    place: Any, at: Any, w: Any,
    shift: Any, stride: Any, low: Any, excess: Any, codes: Any, weights: Any, waiting: Any,
) -> Any:  # fmt: skip
    """Add rows to a tally, which counts rows by cell and place (bucket and label).

    Row j has the place place[j], the cell at[j] and the weight w[j]. `at` is empty if there is one cell, and `w` is
    empty if all weights are 1. The module docstring describes the other parameters.
    """
    add_rows(place, i8(0), i8(place.shape[0]), at, w, shift, stride, low, excess, codes, weights, waiting)
    return 0


@kernel(out=("codes", "counts"))
def collect_bytes(low: Any, stride: Any, shift: Any, cells: Any, codes: Any, counts: Any) -> Any:
    """Write the code and count of each byte counter that is not 0, and return how many there are.

    If `codes` is empty, only return this number.
    """
    m = u8(0)
    write = codes.shape[0] > 0
    for cell in range(cells):
        for place in range(min(stride, low.shape[0] - cell * stride)):
            rows = low[u8(cell) * u8(stride) + u8(place)]
            if rows:
                if write:
                    codes[m], counts[m] = (u8(cell) << u8(shift)) | u8(place), rows
                m += u8(1)
    return i8(m)


@kernel(out=("codes", "counts"))
def collect_counters(rows: Any, codes: Any, counts: Any) -> Any:
    """Write the index and count of each counter that is not 0, and return how many there are.

    If a count has more than 32 bits, return -1.
    """
    m, most = u8(0), i8(0)
    # Write every counter, but overwrite it with the next one if it is 0. A branch would often be mispredicted.
    for i in range(rows.shape[0]):
        x = rows[i]
        codes[m], counts[m] = i, x
        most |= x
        m += u8(x != 0)
    return -1 if most >> i8(32) else i8(m)


@kernel(out=("codes", "counts"))
def count_runs(fresh: Any, codes: Any, counts: Any) -> Any:
    """Count the occurrences of each code in a sorted, nonempty array. Return the number of distinct codes."""
    m, first = u8(0), 0
    last = fresh[0]
    for i in range(fresh.shape[0]):
        c = fresh[i]
        new = c != last
        # To avoid a branch, write the count so far at every code. In a run of equal codes, the last count remains.
        counts[m] = i - first
        first = i if new else first
        m += u8(new)
        codes[m] = c
        last = c
    counts[m] = fresh.shape[0] - first
    return i8(m) + 1


@kernel(out=("codes", "counts"))
def add_sorted(old: Any, rows: Any, fresh: Any, codes: Any, counts: Any) -> Any:
    """Merge the sorted codes of single rows into sorted codes with counts. Return the number of merged codes.

    `old` and `rows` are the codes and their counts. `fresh` holds the codes of single rows, which may repeat. Neither
    `old` nor `fresh` may be empty. The result is written to `codes` and `counts`.
    """
    i, j, m, na, nb = u8(0), u8(0), u8(0), u8(old.shape[0]), u8(fresh.shape[0])
    last, run = min(old[0], fresh[0]), u4(0)
    # Take the smaller of the next two codes. `ours` is 1 if the code comes from `old`, else 0. Multiplying by it avoids
    # a branch.
    while i < na and j < nb:
        x, y = old[i], fresh[j]
        code, ours = min(x, y), u4(x <= y)
        m += u8(code != last)
        run = run * u4(code == last) + ours * rows[i] + (u4(1) - ours)
        codes[m], counts[m], last = code, run, code
        i += u8(ours)
        j += u8(u4(1) - ours)
    while i < na:
        m += u8(old[i] != last)
        run = run * u4(old[i] == last) + rows[i]
        codes[m], counts[m], last = old[i], run, old[i]
        i += u8(1)
    while j < nb:
        m += u8(fresh[j] != last)
        run = run * u4(fresh[j] == last) + u4(1)
        codes[m], counts[m], last = fresh[j], run, fresh[j]
        j += u8(1)
    return i8(m) + 1


@kernel(out=("out", "in_a", "in_b"))
def merge_codes(a: Any, b: Any, out: Any, in_a: Any, in_b: Any) -> Any:
    """Write the union of two sorted arrays of distinct codes, and return its length.

    The indices of the codes of `a` and `b` in the union are written to `in_a` and `in_b`, respectively.
    """
    i, j, m, na, nb = u8(0), u8(0), u8(0), u8(a.shape[0]), u8(b.shape[0])
    while i < na and j < nb:
        x, y = a[i], b[j]
        # Write the index for both codes. If one of them is not taken now, its index is overwritten later.
        in_a[i], in_b[j] = m, m
        out[m] = min(x, y)
        i += u8(x <= y)
        j += u8(y <= x)
        m += u8(1)
    while i < na:
        out[m], in_a[i] = a[i], m
        i += u8(1)
        m += u8(1)
    while j < nb:
        out[m], in_b[j] = b[j], m
        j += u8(1)
        m += u8(1)
    return i8(m)


@kernel(out=("high", "low", "in_a", "in_b"))
def merge_two_word_codes(ha: Any, la: Any, hb: Any, lb: Any, high: Any, low: Any, in_a: Any, in_b: Any) -> Any:
    """Write the union of two sorted arrays of distinct two-word codes, and return its length.

    `ha` and `la` are the high and low words of the first array, and `hb` and `lb` are those of the second. Codes are
    sorted by the high word, then by the low word. The indices of the codes of the first and second arrays in the union
    are written to `in_a` and `in_b`, respectively.
    """
    i, j, m, na, nb = u8(0), u8(0), u8(0), u8(la.shape[0]), u8(lb.shape[0])
    while i < na and j < nb:
        p, q, x, y = ha[i], hb[j], la[i], lb[j]
        ours = u8(p < q) | (u8(p == q) & u8(x <= y))
        theirs = u8(q < p) | (u8(p == q) & u8(y <= x))
        in_a[i], in_b[j] = m, m
        # In the number `0 - ours`, either all bits are set or none are. It serves as a mask that selects x or y without
        # a branch.
        high[m], low[m] = min(p, q), y ^ ((x ^ y) & (u8(0) - ours))
        i += ours
        j += theirs
        m += u8(1)
    while i < na:
        high[m], low[m], in_a[i] = ha[i], la[i], m
        i += u8(1)
        m += u8(1)
    while j < nb:
        high[m], low[m], in_b[j] = hb[j], lb[j], m
        j += u8(1)
        m += u8(1)
    return i8(m)


@kernel(out=("out",))
def scatter_add(at: Any, values: Any, out: Any) -> Any:
    """Add values[i] to out[at[i]] for every i. The indices in `at` may repeat."""
    for i in range(at.shape[0]):
        out[at[i]] += values[i]
    return 0


@kernel(out=("out",))
def gather_runs(source: Any, starts: Any, order: Any, shift: Any, out: Any) -> Any:
    """Copy the elements of each cell to `out`, with the cells in a new order.

    The elements of cell c are source[starts[c]:starts[c + 1]], and `order` holds the old number of each new cell. If
    `shift` is not 0, elements are codes, in which the bits above the lowest `shift` bits are the cell number. In the
    copy, these bits are the new cell number.
    """
    k = u8(0)
    for cell in range(order.shape[0]):
        for i in range(starts[order[cell]], starts[order[cell] + 1]):
            out[k] = (source[i] & ((u8(1) << u8(shift)) - u8(1))) | (u8(cell) << u8(shift)) if shift else source[i]
            k += u8(1)
    return 0


@outline
def move_by_digit(codes: Any, weights: Any, to: Any, to_weights: Any, starts: Any, shift: Any, width: Any) -> None:
    """Copy codes and their weights (if any) to `to` and `to_weights`, sorted by one digit of the codes.

    The digit consists of the `width` bits that start at bit `shift`. Codes with equal digits keep their order. On
    return, starts[d] is the end of the codes with digit d.
    """
    mask, n, weighted = (u8(1) << width) - u8(1), codes.shape[0], weights.shape[0] > 0
    for k in range(mask + u8(1)):
        starts[k] = 0
    for i in range(n):
        starts[(u8(codes[i]) >> shift) & mask] += 1
    run = i8(0)
    for k in range(mask + u8(1)):
        here = i8(starts[k])
        starts[k] = run
        run += here
    for i in range(n):
        k = (u8(codes[i]) >> shift) & mask
        at = u8(starts[k])
        to[at] = codes[i]
        if weighted:
            to_weights[at] = weights[i]
        starts[k] = i8(at + u8(1))


@kernel(out=("codes", "weights", "other", "other_weights"))
def sort_codes(codes: Any, weights: Any, other: Any, other_weights: Any) -> Any:
    """Sort codes, together with their weights (if any), in place by radix sort.

    The sort skips low and high bits that are equal in all codes. No loop has a branch that depends on a code. `other`
    and `other_weights` are working memory of the same lengths.
    """
    n, differ, first, starts = codes.shape[0], u8(0), u8(codes[0]), scratch(DIGITS, i8)
    for i in range(n):
        differ |= u8(codes[i]) ^ first
    shift, end, turned, most = u8(0), u8(0), False, u8(WEIGHTED_DIGIT if weights.shape[0] else DIGIT)
    while end < u8(64) and differ >> end:
        end += u8(1)
    while shift < end and not (differ >> shift) & u8(1):
        shift += u8(1)
    # Use as few digits as possible, of about equal width.
    digits = (end - shift + most - u8(1)) // most
    width = (end - shift + digits - u8(1)) // max(digits, u8(1))
    # Each pass moves the codes to the other array. After an odd number of passes, copy them back.
    while shift < end:
        if not (differ >> shift) & u8(1):
            shift += u8(1)
            continue
        if turned:
            move_by_digit(other, other_weights, codes, weights, starts, shift, width)
        else:
            move_by_digit(codes, weights, other, other_weights, starts, shift, width)
        turned = not turned
        shift += width
    for i in range(n if turned else 0):
        codes[i] = other[i]
    for i in range(weights.shape[0] if turned else 0):
        weights[i] = other_weights[i]
    return n


@inline
def inverted_bits(code: Any) -> Any:
    """Return a mask of the bits that are inverted in the code of a score: all if the score is negative, else none.

    If the score is a float32, the 29 bits above the label in its code are all 0 or, if inverted, all 1. It is therefore
    enough to look at one of these bits.
    """
    return u8(0) - ((u8(code) >> u8(29)) & u8(1))


@kernel(out=("words",))
def narrow_codes(codes: Any, words: Any) -> Any:
    """Convert the codes of rows with float32 scores to 32-bit integers that preserve the order of the codes.

    All scores must have the same sign. An integer holds the score as a float32 without its sign, and the label as the
    last bit. Return 1 if a score cannot be represented as a float32, and 0 otherwise.
    """
    inverted = inverted_bits(codes[0])
    for a in range(0, codes.shape[0], BLOCK):
        some, to, lost = codes[a : a + BLOCK], words[a : a + BLOCK], u8(0)
        for j in range(some.shape[0]):
            bits = u8((some[j] ^ inverted) >> u8(1))
            short = f4(bits.view(f8))
            lost |= f8(short).view(u8) ^ bits
            to[j] = ((u8(short.view(u4)) ^ inverted) << u8(1)) | (some[j] & u8(1))
        if lost:
            return 1
    return 0


@kernel(out=("codes",))
def widen_codes(words: Any, like: Any, codes: Any) -> Any:
    """Convert 32-bit integers back to codes (the inverse of `narrow_codes`). `like` is any of the original codes."""
    inverted = inverted_bits(like)
    for i in range(words.shape[0]):
        short = u4((words[i] ^ u4(inverted)) >> u4(1)) & u4(0x7FFFFFFF)
        codes[i] = ((f8(u4(short).view(f4)).view(u8) ^ inverted) << u8(1)) | u8(words[i] & u4(1))
    return 0
