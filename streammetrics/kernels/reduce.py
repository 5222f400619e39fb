"""What tallies share: rows to codes, codes to sorted entries, and two sorted sets to one.

A tally that is being counted is seven arguments of a kernel (`count.tallies.HotTally.target`): bits of a place and
places of a cell; a byte for each place of each cell, or none, and the excess of weights; codes, and weights, that wait
to be sorted in, and how many do. A byte that overflows sends its code to wait: for 256 rows, not for one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ._jit import inline, kernel
from .sums import add_fixed, split

i8, u1, u4, u8 = np.int64, np.uint8, np.uint32, np.uint64


@inline
def emit(
    place: Any, a: Any, n: Any, at: Any, w: Any,
    shift: Any, stride: Any, low: Any, excess: Any, codes: Any, weights: Any, waiting: Any,
) -> None:  # fmt: skip
    """Reduce n rows by cell and place: into the bytes of a tally, or to the end of the codes that wait."""
    lone, m = at.shape[0] == 0, u8(waiting[0])
    if low.shape[0]:
        for j in range(n):
            here = u8(place[j]) if lone else u8(at[a + j]) * u8(stride) + u8(place[j])
            rows = u1(low[here] + u1(1))
            low[here] = rows
            if rows == u1(0):
                codes[m] = u8(place[j]) if lone else (u8(at[a + j]) << u8(shift)) | u8(place[j])
                m += u8(1)
        for j in range(n if w.shape[0] else 0):
            here = u8(place[j]) if lone else u8(at[a + j]) * u8(stride) + u8(place[j])
            high, part = split(w[a + j])
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


@kernel(out=("codes", "counts"))
def sweep(low: Any, stride: Any, shift: Any, cells: Any, codes: Any, counts: Any) -> Any:
    """Write the places whose byte is not 0, and the bytes; return how many (and write none if there is no room)."""
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
def occupied(rows: Any, codes: Any, counts: Any) -> Any:
    """Write the places whose counter is not 0, and the counters; return how many, or -1 if one has more than 32 bits."""
    m, most = u8(0), i8(0)
    # Every place is written, and the next one overwrites it if it is empty: a branch would often be mispredicted.
    for i in range(rows.shape[0]):
        x = rows[i]
        codes[m], counts[m] = i, x
        most |= x
        m += u8(x != 0)
    return -1 if most >> i8(32) else i8(m)


@kernel(out=("codes", "counts"))
def runs(fresh: Any, codes: Any, counts: Any) -> Any:
    """Unite equal ones among sorted codes, of which there is one at least, and count each; return how many are left."""
    m, first = u8(0), 0
    last = fresh[0]
    for i in range(fresh.shape[0]):
        c = fresh[i]
        new = c != last
        counts[m] = i - first
        first = i if new else first
        m += u8(new)
        codes[m] = c
        last = c
    counts[m] = fresh.shape[0] - first
    return i8(m) + 1


@kernel(out=("codes", "counts"))
def add_sorted(old: Any, rows: Any, fresh: Any, codes: Any, counts: Any) -> Any:
    """Write entries, of which there is one at least, with one row more for each of some sorted codes; return how many."""
    i, j, m, na, nb = u8(0), u8(0), u8(0), u8(old.shape[0]), u8(fresh.shape[0])
    last, run = min(old[0], fresh[0]), u4(0)
    # Both candidates are computed and the smaller one is taken, again without a branch.
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
def union(a: Any, b: Any, out: Any, in_a: Any, in_b: Any) -> Any:
    """Write the union of two sorted unique arrays and where in it the members of each are; return its length."""
    i, j, m, na, nb = u8(0), u8(0), u8(0), u8(a.shape[0]), u8(b.shape[0])
    while i < na and j < nb:
        x, y = a[i], b[j]
        in_a[i], in_b[j] = m, m  # of the one whose turn it is not, written again
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
def union_wide(ha: Any, la: Any, hb: Any, lb: Any, high: Any, low: Any, in_a: Any, in_b: Any) -> Any:
    """Write the union of two sorted unique sets of codes of two words, as `union` does."""
    i, j, m, na, nb = u8(0), u8(0), u8(0), u8(la.shape[0]), u8(lb.shape[0])
    while i < na and j < nb:
        p, q, x, y = ha[i], hb[j], la[i], lb[j]
        ours = u8(p < q) | (u8(p == q) & u8(x <= y))
        theirs = u8(q < p) | (u8(p == q) & u8(y <= x))
        in_a[i], in_b[j] = m, m
        high[m], low[m] = min(p, q), y ^ ((x ^ y) & (u8(0) - ours))  # a choice without a branch
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
def spread(at: Any, values: Any, out: Any) -> Any:
    """Add values at their places."""
    for i in range(at.shape[0]):
        out[at[i]] += values[i]
    return 0


@kernel(out=("out",))
def gather(source: Any, starts: Any, order: Any, shift: Any, out: Any) -> Any:
    """Copy the runs of a flat array in another order; of codes (a shift of 0 is for others) with their new cells."""
    k = u8(0)
    for cell in range(order.shape[0]):
        for i in range(starts[order[cell]], starts[order[cell] + 1]):
            out[k] = (source[i] & ((u8(1) << u8(shift)) - u8(1))) | (u8(cell) << u8(shift)) if shift else source[i]
            k += u8(1)
    return 0


@inline
def deal(source: Any, to: Any, counts: Any, shift: Any) -> None:
    """Place codes by one digit, those of one digit as they stood."""
    for k in range(2048):
        counts[k] = 0
    for i in range(source.shape[0]):
        counts[(u8(source[i]) >> shift) & u8(2047)] += 1
    run = i8(0)
    for k in range(2048):
        here = i8(counts[k])
        counts[k] = run
        run += here
    for i in range(source.shape[0]):
        x = source[i]
        k = (u8(x) >> shift) & u8(2047)
        at = u8(counts[k])
        to[at] = x
        counts[k] = i8(at + u8(1))


@kernel(out=("codes", "other", "counts"))
def sort_codes(codes: Any, other: Any, counts: Any) -> Any:
    """Sort in place, by digits of 11 bits, of those bits that differ, from one array to the other and back.

    `counts` has room for 2048. No branch depends on the codes, and the bits that floats do not use cost nothing.
    """
    n, differ, first = codes.shape[0], u8(0), u8(codes[0])
    for i in range(n):
        differ |= u8(codes[i]) ^ first
    shift, turned = u8(0), False
    while shift < u8(64) and differ >> shift:
        if not (differ >> shift) & u8(1):
            shift += u8(1)
            continue
        if turned:
            deal(other, codes, counts, shift)
        else:
            deal(codes, other, counts, shift)
        turned = not turned
        shift += u8(11)
    for i in range(n if turned else 0):
        codes[i] = other[i]
    return n
