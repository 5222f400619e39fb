"""Exact sums over scored rows: rows and weight by label, terms by class, and the squares that standard errors need.

A square is rounded once, to a multiple of 2**-52 (score, squared error) or 2**-41 (log-loss), by adding a magic
number: its bits, added up for a block of rows, fit an int64, and only the sum of a block goes to two limbs. Squares of
all rows are enough, as no interval multiplies one by the label. A sum of squares stops at CEILING, in whatever order
rows come.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ._jit import inline, kernel, outline
from ._memory import fetch, scratch
from .each import each, each_weights
from .exact_sums import add_exact, carry
from .sums import (
    AHEAD,
    BLOCK,
    HIGH,
    HIGH_BITS,
    LARGE,
    LOG_LOSS,
    LOW,
    LOW_BITS,
    MOST,
    PART,
    SCORE,
    add_fixed,
    bad_scores,
    bad_values,
    clipped_row,
    coarse,
    extremes,
    fill,
    may_clip,
    split,
    survey,
    suspect,
)  # fmt: skip

f8, i8, u8 = np.float64, np.int64, np.uint64

CHUNKS = u8(68)
CEILING = i8(1 << 61)  # of the first limb of a sum of squares: 2**41, and it is lost
ONE, LOSS = 1.0, 2.0**11  # adding them rounds squares below 1, or 2**11, to 2**-52, or 2**-41
ONE_BITS, LOSS_BITS = i8(0x3FF0000000000000), i8(0x40A0000000000000)
UNITS = i8((1 << 32) - 1)  # of multiples of 2**-52, those that are below 2**-20
FINE, FINE_LOSS = 1.5, 1.5 * 2.0**11  # the same of what the first limb has left
FINE_BITS, FINE_LOSS_BITS = i8(0x3FF8000000000000), i8(0x40A8000000000000)

LANES = 4
LANE_CELLS = 4096  # more lanes than that would not stay in the cache, and with so many cells rows seldom collide
NEAR = (
    1 << 16
)  # numbers of rows by cell that stay in the cache; of more, those of a part are fetched before they are added to
OFTEN = 18  # parts after which lanes are poured: 2**11 squares, or limbs, of a lane fit an int64


@outline
def add_labels(y: Any, w: Any, at: Any, rows: Any, excess: Any) -> Any:
    """Do what `count_labels` does."""
    if at.shape[0] == 0:
        positives, bad = survey(y)
        if bad:
            return 1
        rows[0] += y.shape[0] - positives
        rows[1] += positives
    for j in range(at.shape[0]):
        rows[u8(2) * u8(at[j]) + u8(y[j])] += 1
    for j in range(w.shape[0]):
        cell = u8(0) if at.shape[0] == 0 else u8(at[j])
        high, low = split(w[j])
        add_fixed(excess, u8(2) * (u8(2) * cell + u8(y[j])), high - i8(1 << 20), low)
    return 0


@kernel(out=("rows", "excess"))
def count_labels(y: Any, w: Any, at: Any, rows: Any, excess: Any) -> Any:
    """Count rows by label; a lone cell checks them, and returns 1, with everything as it was, on a bad one."""
    return add_labels(y, w, at, rows, excess)


@kernel(out=("rows", "excess"))
def each_count_labels(width: Any, y: Any, w: Any, at: Any, rows: Any, excess: Any) -> Any:
    """Count rows of one label after the other (see `kernels.each`)."""
    for i in range(width):
        yy = each(y, i, width)
        add_labels(yy, each_weights(w, i, yy.shape[0]), at, each(rows, i, width), each(excess, i, width))
    return 0


# -- adding squares --------------------------------------------------------------------------------------------------


@inline
def put(numbers: Any, at: Any, high: Any, low: Any) -> None:
    """Add to one number of a flat array, and stop at the ceiling."""
    add_fixed(numbers, at, high, low)
    if numbers[at] >= CEILING:
        numbers[at], numbers[at + u8(1)] = CEILING, 0


@inline
def put_units(numbers: Any, at: Any, units: Any, loss: Any) -> None:
    """Add so many multiples of 2**-41 for log-loss, of 2**-52 for all else."""
    if loss:
        put(numbers, at, units >> i8(21), (units & i8((1 << 21) - 1)) << i8(19))
    else:
        put(numbers, at, units >> i8(32), (units & i8((1 << 32) - 1)) << i8(8))


@inline
def large_part(q: Any) -> Any:
    """The first limb of a number of 2**31 or more; the second is 0."""
    return i8(q * 2.0**20) if q < 2.0**41 else CEILING


@inline
def put_number(numbers: Any, at: Any, v: Any) -> None:
    """Add a number that is not negative, of whatever size, to one that stops at the ceiling."""
    if v >= LARGE:
        put(numbers, at, large_part(v), i8(0))
    else:
        high, low = split(v)
        put(numbers, at, high, low)


@inline
def put_square(numbers: Any, at: Any, q: Any, loss: Any) -> None:
    """Add one square on its grid, of whatever size."""
    if q >= LARGE:
        put(numbers, at, large_part(q), i8(0))
    else:
        t = q + HIGH
        rest = q - (t - HIGH)
        fine = f8(rest + FINE_LOSS).view(i8) - FINE_LOSS_BITS if loss else f8(rest + FINE).view(i8) - FINE_BITS
        put(numbers, at, f8(t).view(i8) - HIGH_BITS, fine << (i8(19) if loss else i8(8)))


# -- sums of a block -------------------------------------------------------------------------------------------------


@outline
def any_from(v: Any, least: Any) -> Any:
    """Whether a number is at least so large."""
    found = i8(0)
    for j in range(v.shape[0]):
        found |= i8(v[j] >= least)
    return found != 0


@inline
def add_bits(x: Any, positive: Any, h: Any, l: Any, h1: Any, l1: Any) -> Any:  # noqa: E741 - first and second limbs
    """Add the bits of both limbs of a number to sums over all and over positives, as they are, modulo 2**64."""
    t = x + HIGH
    high, low = f8(t).view(i8), f8((x - (t - HIGH)) + LOW).view(i8)
    return h + high, l + low, h1 + (high if positive else i8(0)), l1 + (low if positive else i8(0))


@inline
def parted(n: Any, positives: Any, h: Any, l: Any, h1: Any, l1: Any) -> Any:  # noqa: E741
    """Take out what the magic numbers put in; return the sums over negatives, then over positives."""
    h1 -= positives * HIGH_BITS
    l1 -= positives * LOW_BITS
    return h - i8(n) * HIGH_BITS - h1, l - i8(n) * LOW_BITS - l1, h1, l1


@outline
def by_class(y: Any, v: Any, positives: Any) -> Any:
    """Return the sums of a block over negatives and over positives, in two limbs each, not carried."""
    h, l, h1, l1 = i8(0), i8(0), i8(0), i8(0)  # noqa: E741
    for j in range(v.shape[0]):
        h, l, h1, l1 = add_bits(v[j], y[j] != 0, h, l, h1, l1)  # noqa: E741
    return parted(v.shape[0], positives, h, l, h1, l1)


@outline
def with_squares(y: Any, v: Any, magic: Any, magic_bits: Any, positives: Any) -> Any:
    """Return the same, and the sum of the squares of all, in units of the magic number's last bit."""
    h, l, h1, l1, q = i8(0), i8(0), i8(0), i8(0), i8(0)  # noqa: E741
    for j in range(v.shape[0]):
        h, l, h1, l1 = add_bits(v[j], y[j] != 0, h, l, h1, l1)  # noqa: E741
        q += f8(v[j] * v[j] + magic).view(i8)
    h0, l0, h1, l1 = parted(v.shape[0], positives, h, l, h1, l1)
    return h0, l0, h1, l1, q - i8(v.shape[0]) * magic_bits


@outline
def of_coarse(y: Any, s: Any, positives: Any) -> Any:
    """Return what `with_squares` does of scores that are multiples of 2**-52: one magic number takes them whole."""
    h, h1, q = i8(0), i8(0), i8(0)
    for j in range(s.shape[0]):
        x = f8(s[j])
        units = f8(x + ONE).view(i8)
        h, h1 = h + units, h1 + (units if y[j] != 0 else i8(0))
        q += f8(x * x + ONE).view(i8)
    n = i8(s.shape[0])
    h1 -= positives * ONE_BITS
    h -= n * ONE_BITS + h1
    return h >> i8(32), (h & UNITS) << i8(8), h1 >> i8(32), (h1 & UNITS) << i8(8), q - n * ONE_BITS


@outline
def sum_squares(v: Any, magic: Any, magic_bits: Any) -> Any:
    """Return the sum of a block of squares below 2**31: the first limb, and what is left in units of the magic number."""
    h, l = i8(0), i8(0)  # noqa: E741
    for j in range(v.shape[0]):
        t = v[j] + HIGH
        h += f8(t).view(i8)
        l += f8((v[j] - (t - HIGH)) + magic).view(i8)  # noqa: E741
    n = i8(v.shape[0])
    return h - n * HIGH_BITS, l - n * magic_bits


@outline
def sum_weights(y: Any, w: Any, positives: Any, out: Any) -> Any:
    """Write the sums of a block of weights and of their squares, as `by_class` does.

    Return whether a square is large: those are left out.
    """
    h, l, h1, l1, g, k, g1, k1, large = i8(0), i8(0), i8(0), i8(0), i8(0), i8(0), i8(0), i8(0), i8(0)  # noqa: E741
    for j in range(w.shape[0]):
        q, positive = w[j] * w[j], y[j] != 0
        wide = q >= LARGE
        h, l, h1, l1 = add_bits(w[j], positive, h, l, h1, l1)  # noqa: E741
        g, k, g1, k1 = add_bits(0.0 if wide else q, positive, g, k, g1, k1)
        large |= i8(wide)
    out[0], out[1], out[2], out[3] = parted(w.shape[0], positives, h, l, h1, l1)
    out[4], out[5], out[6], out[7] = parted(w.shape[0], positives, g, k, g1, k1)
    return large != 0


@outline
def sum_products(y: Any, v: Any, w: Any, positives: Any, magic: Any, magic_bits: Any, out: Any) -> Any:
    """Write the sums of a block of x = v w and x w, as `by_class` does, and of x x; return whether one is large."""
    h, l, h1, l1, g, k, g1, k1, large = i8(0), i8(0), i8(0), i8(0), i8(0), i8(0), i8(0), i8(0), i8(0)  # noqa: E741
    a, b = i8(0), i8(0)
    for j in range(w.shape[0]):
        x, positive = v[j] * w[j], y[j] != 0
        z, q = x * w[j], x * x
        h, l, h1, l1 = add_bits(x, positive, h, l, h1, l1)  # noqa: E741
        g, k, g1, k1 = add_bits(z, positive, g, k, g1, k1)
        r = q + HIGH
        a += f8(r).view(i8)
        b += f8((q - (r - HIGH)) + magic).view(i8)
        large |= i8(x >= LARGE) | i8(z >= LARGE) | i8(q >= LARGE)
    n = i8(w.shape[0])
    out[0], out[1], out[2], out[3] = parted(n, positives, h, l, h1, l1)
    out[4], out[5], out[6], out[7] = parted(n, positives, g, k, g1, k1)
    out[8], out[9] = a - n * HIGH_BITS, b - n * magic_bits
    return large != 0


@outline
def take_large(v: Any, large: Any, at: Any, squares: Any, square: Any) -> None:
    """Move terms of 2**31 and more to a superaccumulator; the sum of their squares is lost."""
    for j in range(v.shape[0]):
        if v[j] >= LARGE:
            add_exact(large, at, v[j])
            v[j] = 0.0
    carry(large, at)
    put(squares, square, CEILING, i8(0))


@outline
def put_squares(v: Any, loss: Any, numbers: Any, at: Any) -> None:
    """Add a block of squares of any size to one sum; large ones are set to 0."""
    if any_from(v, LARGE):
        for j in range(v.shape[0]):
            if v[j] >= LARGE:
                put(numbers, at, large_part(v[j]), i8(0))
                v[j] = 0.0
    if loss:
        high, low = sum_squares(v, FINE_LOSS, FINE_LOSS_BITS)
        put(numbers, at, high, low << i8(19))
    else:
        high, low = sum_squares(v, FINE, FINE_BITS)
        put(numbers, at, high, low << i8(8))


@outline
def put_any(y: Any, x: Any, positives: Any, loss: Any, v: Any, t: Any, sums: Any, large: Any, squares: Any) -> None:
    """Add a block of one term of any size; `v` is scratch."""
    if any_from(x, LARGE):
        take_large(x, large, t * CHUNKS, squares, u8(2) * t)
    h0, l0, h1, l1 = by_class(y, x, positives)
    add_fixed(sums, u8(4) * t, h0, l0)
    add_fixed(sums, u8(4) * t + u8(2), h1, l1)
    for j in range(x.shape[0]):
        v[j] = x[j] * x[j]
    put_squares(v, loss, squares, u8(2) * t)


@outline
def add_weights(y: Any, w: Any, positives: Any, found: Any, excess: Any, w2: Any) -> None:
    """Add a block of weights less one, and of their squares, by class."""
    large = sum_weights(y, w, positives, found)
    add_fixed(excess, u8(0), found[0] - ((i8(w.shape[0]) - positives) << i8(20)), found[1])
    add_fixed(excess, u8(2), found[2] - (positives << i8(20)), found[3])
    put(w2, u8(0), found[4], found[5])
    put(w2, u8(2), found[6], found[7])
    for j in range(w.shape[0] if large else 0):
        if w[j] * w[j] >= LARGE:
            put(w2, u8(2) * u8(y[j]), large_part(w[j] * w[j]), i8(0))


@outline
def add_products(
    y: Any, v: Any, w: Any, positives: Any, loss: Any, t: Any,
    found: Any, sums: Any, large: Any, squares: Any, w2x: Any,
) -> None:  # fmt: skip
    """Add a block of one weighted term, and its second moments, by class."""
    magic, magic_bits = (FINE_LOSS, FINE_LOSS_BITS) if loss else (FINE, FINE_BITS)
    if sum_products(y, v, w, positives, magic, magic_bits, found):
        take_large_products(y, v, w, loss, t, sums, large, squares, w2x)
        sum_products(y, v, w, positives, magic, magic_bits, found)
    add_fixed(sums, u8(4) * t, found[0], found[1])
    add_fixed(sums, u8(4) * t + u8(2), found[2], found[3])
    put(w2x, u8(4) * t, found[4], found[5])
    put(w2x, u8(4) * t + u8(2), found[6], found[7])
    put(squares, u8(2) * t, found[8], found[9] << (i8(19) if loss else i8(8)))


@outline
def take_large_products(
    y: Any, v: Any, w: Any, loss: Any, t: Any, sums: Any, large: Any, squares: Any, w2x: Any
) -> None:  # fmt: skip
    """Add the rows of which a product is large, one by one, and set their terms to 0."""
    for j in range(v.shape[0]):
        x, to = v[j] * w[j], u8(4) * t + u8(2) * u8(y[j])
        z, q = x * w[j], x * x
        if not (x >= LARGE or z >= LARGE or q >= LARGE):
            continue
        v[j] = 0.0
        if x >= LARGE:
            add_exact(large, t * CHUNKS, x)
            put(squares, u8(2) * t, CEILING, i8(0))
        else:
            high, low = split(x)
            add_fixed(sums, to, high, low)
            put_number(w2x, to, z)
            put_square(squares, u8(2) * t, q, loss)
    carry(large, t * CHUNKS)


@inline
def clips(eps: Any, s: Any) -> Any:
    """Whether a row of a block could be clipped."""
    least, most = extremes(s)
    return may_clip(eps, least, most)


# -- one cell --------------------------------------------------------------------------------------------------------


@outline
def add_scores(y: Any, s: Any, terms: Any, eps: Any, rows: Any, sums: Any, squares: Any, clipped: Any) -> Any:
    """Do what `sum_scores` does."""
    n_terms, n = terms.shape[0], s.shape[0]
    k, f, out = scratch(PART, f8), scratch(PART, f8), scratch(BLOCK, f8)
    total, square, counts, hits = scratch(12, i8), scratch(6, i8), scratch(2, i8), scratch(MOST, i8)
    for so_far in (total, square, counts, hits):
        so_far[:] = 0
    for a in range(0, n, BLOCK):
        m = min(BLOCK, n - a)
        yy, ss = y[a : a + m], s[a : a + m]
        positives, bad = survey(yy)
        least, most = extremes(ss)
        if bad or (suspect(most) and bad_scores(False, ss)):
            return 1
        counts[1] += positives
        counts[0] += m - positives
        clip = may_clip(eps, least, most)
        for t in range(n_terms):
            loss, at = terms[t] == LOG_LOSS, u8(4 * t)
            if terms[t] == SCORE and coarse(least):
                fetch(y, a + AHEAD, m)
                fetch(s, a + AHEAD, m)
                h0, l0, h1, l1, q = of_coarse(yy, ss, i8(positives))
            else:
                fill(terms[t], False, eps, clip, yy, ss, k, f, out)
                magic, magic_bits = (LOSS, LOSS_BITS) if loss else (ONE, ONE_BITS)
                h0, l0, h1, l1, q = with_squares(yy, out[:m], magic, magic_bits, i8(positives))
            add_fixed(total, at, h0, l0)
            add_fixed(total, at + u8(2), h1, l1)
            put_units(square, u8(2 * t), q, loss)
            if loss and clip:
                for j in range(m):
                    hits[t] += clipped_row(eps, yy[j], ss[j])
    rows[0] += counts[0]
    rows[1] += counts[1]
    for t in range(n_terms):
        clipped[t] += hits[t]
        put(squares, u8(2 * t), square[2 * t], square[2 * t + 1])
        for c in range(2):
            at = u8(4 * t + 2 * c)
            add_fixed(sums, at, total[at], total[at + u8(1)])
    return 0


@outline
def add_any(
    y: Any, s: Any, terms: Any, logit: Any, eps: Any, rows: Any, sums: Any, large: Any, squares: Any, clipped: Any
) -> Any:  # fmt: skip
    """Do what `sum_any` does."""
    if bad_values(logit, y, s):  # large terms are added as they come: check before
        return 1
    k, f, out, v = scratch(PART, f8), scratch(PART, f8), scratch(BLOCK, f8), scratch(BLOCK, f8)
    for a in range(0, y.shape[0], BLOCK):
        m = min(BLOCK, y.shape[0] - a)
        yy, ss = y[a : a + m], s[a : a + m]
        positives = i8(survey(yy)[0])
        rows[0] += m - positives
        rows[1] += positives
        clip = terms.shape[0] > 0 and not logit and clips(eps, ss)
        for t in range(terms.shape[0]):
            fill(terms[t], logit, eps, clip, yy, ss, k, f, out)
            loss = terms[t] == LOG_LOSS
            put_any(yy, out[:m], positives, loss, v[:m], u8(t), sums, large, squares)
            if loss and clip:
                for j in range(m):
                    clipped[t] += clipped_row(eps, yy[j], ss[j])
    return 0


@outline
def add_weighted(
    y: Any, s: Any, w: Any, terms: Any, logit: Any, eps: Any,
    rows: Any, excess: Any, sums: Any, large: Any, squares: Any, w2: Any, w2x: Any, clipped: Any,
) -> Any:  # fmt: skip
    """Do what `sum_weighted` does."""
    k, f, out, found = scratch(PART, f8), scratch(PART, f8), scratch(BLOCK, f8), scratch(10, i8)
    for a in range(0, y.shape[0], BLOCK):
        m = min(BLOCK, y.shape[0] - a)
        yy, ss, ww = y[a : a + m], s[a : a + m], w[a : a + m]
        positives = i8(survey(yy)[0])
        rows[0] += m - positives
        rows[1] += positives
        add_weights(yy, ww, positives, found, excess, w2)
        clip = terms.shape[0] > 0 and not logit and clips(eps, ss)
        for t in range(terms.shape[0]):
            fill(terms[t], logit, eps, clip, yy, ss, k, f, out)
            loss = terms[t] == LOG_LOSS
            add_products(yy, out[:m], ww, positives, loss, u8(t), found, sums, large, squares, w2x)
            if loss and clip:
                for j in range(m):
                    clipped[t] += clipped_row(eps, yy[j], ss[j])
    return 0


@kernel(out=("rows", "sums", "squares", "clipped"))
def sum_scores(y: Any, s: Any, terms: Any, eps: Any, rows: Any, sums: Any, squares: Any, clipped: Any) -> Any:
    """Add the terms of probabilities, without weights, no loss above 45; return 1, nothing added, if a value is bad."""
    return add_scores(y, s, terms, eps, rows, sums, squares, clipped)


@kernel(out=("rows", "sums", "squares", "clipped"))
def each_sum_scores(
    width: Any, y: Any, s: Any, terms: Any, eps: Any, rows: Any, sums: Any, squares: Any, clipped: Any
) -> Any:  # fmt: skip
    """Add the terms of one label after the other."""
    for i in range(width):
        yy, ss = each(y, i, width), each(s, i, width)
        counts, total, square = each(rows, i, width), each(sums, i, width), each(squares, i, width)
        add_scores(yy, ss, terms, eps, counts, total, square, each(clipped, i, width))
    return 0


@kernel(out=("rows", "sums", "large", "squares", "clipped"))
def sum_any(
    y: Any, s: Any, terms: Any, logit: Any, eps: Any, rows: Any, sums: Any, large: Any, squares: Any, clipped: Any
) -> Any:  # fmt: skip
    """Add terms of any size, without weights; return 1, nothing added, if a value is bad."""
    return add_any(y, s, terms, logit, eps, rows, sums, large, squares, clipped)


@kernel(out=("rows", "sums", "large", "squares", "clipped"))
def each_sum_any(
    width: Any, y: Any, s: Any, terms: Any, logit: Any, eps: Any,
    rows: Any, sums: Any, large: Any, squares: Any, clipped: Any,
) -> Any:  # fmt: skip
    """Add the terms of one label after the other."""
    for i in range(width):
        yy, ss, counts, total = each(y, i, width), each(s, i, width), each(rows, i, width), each(sums, i, width)
        wide, square, hits = each(large, i, width), each(squares, i, width), each(clipped, i, width)
        add_any(yy, ss, terms, logit, eps, counts, total, wide, square, hits)
    return 0


@kernel(out=("rows", "excess", "sums", "large", "squares", "w2", "w2x", "clipped"))
def sum_weighted(
    y: Any, s: Any, w: Any, terms: Any, logit: Any, eps: Any,
    rows: Any, excess: Any, sums: Any, large: Any, squares: Any, w2: Any, w2x: Any, clipped: Any,
) -> Any:  # fmt: skip
    """Add weighted terms of any size, and their second moments; all values have been checked."""
    return add_weighted(y, s, w, terms, logit, eps, rows, excess, sums, large, squares, w2, w2x, clipped)


@kernel(out=("rows", "excess", "sums", "large", "squares", "w2", "w2x", "clipped"))
def each_sum_weighted(
    width: Any, y: Any, s: Any, w: Any, terms: Any, logit: Any, eps: Any,
    rows: Any, excess: Any, sums: Any, large: Any, squares: Any, w2: Any, w2x: Any, clipped: Any,
) -> Any:  # fmt: skip
    """Add the weighted terms of one label after the other; all values have been checked."""
    for i in range(width):
        yy, ss, counts, weights = each(y, i, width), each(s, i, width), each(rows, i, width), each(excess, i, width)
        total, wide, square = each(sums, i, width), each(large, i, width), each(squares, i, width)
        second, cross, hits = each(w2, i, width), each(w2x, i, width), each(clipped, i, width)
        ww = each_weights(w, i, yy.shape[0])
        add_weighted(yy, ss, ww, terms, logit, eps, counts, weights, total, wide, square, second, cross, hits)
    return 0


# -- many cells ------------------------------------------------------------------------------------------------------


@outline
def limbs(v: Any, high: Any, low: Any) -> None:
    """Write the two limbs of each number below 2**31: a loop of its own, which vectorises."""
    for j in range(v.shape[0]):
        high[j], low[j] = split(v[j])


@outline
def limbs_of_squares(q: Any, loss: Any, high: Any, low: Any) -> None:
    """Write the two limbs of each square below 2**31, on its grid."""
    for j in range(q.shape[0]):
        t = q[j] + HIGH
        rest = q[j] - (t - HIGH)
        high[j] = f8(t).view(i8) - HIGH_BITS
        if loss:
            low[j] = (f8(rest + FINE_LOSS).view(i8) - FINE_LOSS_BITS) << i8(19)
        else:
            low[j] = (f8(rest + FINE).view(i8) - FINE_BITS) << i8(8)


@outline
def units_of_squares(v: Any, loss: Any, units: Any) -> None:
    """Write each square, below 2**11 or 1, in multiples of its grid."""
    if loss:
        for j in range(v.shape[0]):
            units[j] = f8(v[j] * v[j] + LOSS).view(i8) - LOSS_BITS
    else:
        for j in range(v.shape[0]):
            units[j] = f8(v[j] * v[j] + ONE).view(i8) - ONE_BITS


@outline
def pour(lanes: Any, cells: Any, terms: Any, rows: Any, sums: Any, squares: Any) -> None:
    """Add what the lanes hold to rows, sums and squares, and empty them."""
    n_terms = terms.shape[0]
    width = 1 + 3 * n_terms
    for k in range(2 * LANES * cells):
        i, lane = k % (2 * cells), k * width  # cell and label
        rows[i] += lanes[lane]
        for t in range(n_terms):
            first, to = lane + 1 + 3 * t, u8((i >> 1) * n_terms + t)
            add_fixed(sums, u8(4) * to + u8(2) * u8(i & 1), lanes[first], lanes[first + 1])
            put_units(squares, u8(2) * to, lanes[first + 2], terms[t] == LOG_LOSS)
        lanes[lane : lane + width] = 0


@outline
def take_wild(v: Any, here: Any, n_terms: Any, t: Any, squares: Any, units: Any) -> None:
    """Move squares of losses that are too large to be added up in units to their sums."""
    for j in range(v.shape[0]):
        q = v[j] * v[j]
        if q >= LOSS:
            put_square(squares, u8(2) * (u8(here[j]) * u8(n_terms) + u8(t)), q, True)
            units[j] = 0


@outline
def take_large_rows(v: Any, here: Any, n_terms: Any, t: Any, large: Any, squares: Any) -> None:
    """Move terms of 2**31 and more to the superaccumulators of their cells."""
    for j in range(v.shape[0]):
        if v[j] >= LARGE:
            to = u8(here[j]) * u8(n_terms) + u8(t)
            add_exact(large, to * CHUNKS, v[j])
            carry(large, to * CHUNKS)
            put(squares, u8(2) * to, CEILING, i8(0))
            v[j] = 0.0


@inline
def fetch_cells(here: Any, n_terms: Any, rows: Any, sums: Any, squares: Any) -> None:
    """Ask for what the rows of a part will be added to."""
    if rows.shape[0] > NEAR:
        for j in range(here.shape[0]):
            fetch(rows, u8(2) * u8(here[j]), 1)
            fetch(sums, u8(4 * n_terms) * u8(here[j]), u8(4 * n_terms))
            fetch(squares, u8(2 * n_terms) * u8(here[j]), 1)


@kernel(out=("rows", "sums", "large", "squares", "clipped"))
def sum_cells(
    y: Any, s: Any, at: Any, terms: Any, logit: Any, eps: Any,
    rows: Any, sums: Any, large: Any, squares: Any, clipped: Any,
) -> Any:  # fmt: skip
    """Add the terms to the cell of each row, without weights; all values have been checked.

    Arrays are flat, cells first; `large` is empty where terms cannot be. With few cells rows take turns on four lanes of
    private sums, because adding to one place again has to wait for the time before.
    """
    n_terms, n, cells = terms.shape[0], y.shape[0], rows.shape[0] // 2
    width = 1 + 3 * n_terms
    lanes = scratch(LANE_CELLS, i8)
    laned = n >= 8 * cells and 2 * LANES * cells * width <= LANE_CELLS
    lanes[: 2 * LANES * cells * width if laned else 0] = 0
    k, f, out, place = scratch(PART, f8), scratch(PART, f8), scratch(PART, f8), scratch(PART, u8)
    highs, lows, units = scratch(PART, i8), scratch(PART, i8), scratch(PART, i8)
    for a in range(0, n, PART):
        m = min(PART, n - a)
        fetch(at, a + AHEAD, m)
        yy, ss, here = y[a : a + m], s[a : a + m], at[a : a + m]
        fetch_cells(here, n_terms, rows, sums, squares)
        if laned:
            for j in range(m):
                place[j] = u8((((j & (LANES - 1)) * cells + here[j]) * 2 + yy[j]) * width)
            for j in range(m):
                lanes[place[j]] += 1
        else:
            for j in range(m):
                place[j] = u8(here[j]) * u8(2) + u8(yy[j])
            for j in range(m):
                rows[place[j]] += 1
        clip = terms.shape[0] > 0 and not logit and clips(eps, ss)
        for t in range(n_terms):
            fill(terms[t], logit, eps, clip, yy, ss, k, f, out)
            loss = terms[t] == LOG_LOSS
            if large.shape[0] and any_from(out[:m], LARGE):
                take_large_rows(out[:m], here, n_terms, t, large, squares)
            limbs(out[:m], highs, lows)
            units_of_squares(out[:m], loss, units)
            if loss and (logit or eps < 2.0**-52) and any_from(out[:m], 45.0):
                take_wild(out[:m], here, n_terms, t, squares, units)
            if laned:
                first = u8(1 + 3 * t)
                for j in range(m):
                    to = place[j] + first
                    lanes[to] += highs[j]
                    lanes[to + u8(1)] += lows[j]
                    lanes[to + u8(2)] += units[j]
            else:
                for j in range(m):
                    to = u8(here[j]) * u8(n_terms) + u8(t)
                    add_fixed(sums, u8(4) * to + u8(2) * u8(yy[j]), highs[j], lows[j])
                    put_units(squares, u8(2) * to, units[j], loss)
            if loss and clip:
                for j in range(m):
                    clipped[u8(here[j]) * u8(n_terms) + u8(t)] += clipped_row(eps, yy[j], ss[j])
        if laned and (a + m == n or (a // PART) % OFTEN == OFTEN - 1):
            pour(lanes, cells, terms, rows, sums, squares)
    return 0


@outline
def pour_weighted(
    lanes: Any, cells: Any, n_terms: Any, rows: Any, excess: Any, sums: Any, squares: Any, w2: Any, w2x: Any
) -> None:
    """Add what the lanes of weighted rows hold to all parts, and empty them."""
    width = 5 + 6 * n_terms
    for k in range(2 * LANES * cells):
        i, lane = k % (2 * cells), k * width  # cell and label
        count = lanes[lane]
        rows[i] += count
        add_fixed(excess, u8(2 * i), lanes[lane + 1] - (count << i8(20)), lanes[lane + 2])
        put(w2, u8(2 * i), lanes[lane + 3], lanes[lane + 4])
        for t in range(n_terms):
            first, to = lane + 5 + 6 * t, u8((i >> 1) * n_terms + t)
            one = u8(4) * to + u8(2) * u8(i & 1)
            add_fixed(sums, one, lanes[first], lanes[first + 1])
            put(w2x, one, lanes[first + 2], lanes[first + 3])
            put(squares, u8(2) * to, lanes[first + 4], lanes[first + 5])
        lanes[lane : lane + width] = 0


@outline
def take_heavy_rows(v: Any, to: Any, numbers: Any) -> None:
    """Move products of 2**31 and more to the sums that they belong to."""
    for j in range(v.shape[0]):
        if v[j] >= LARGE:
            put(numbers, u8(2) * to[j], large_part(v[j]), i8(0))
            v[j] = 0.0


@kernel(out=("rows", "excess", "sums", "large", "squares", "w2", "w2x", "clipped"))
def sum_weighted_cells(
    y: Any, s: Any, w: Any, at: Any, terms: Any, logit: Any, eps: Any,
    rows: Any, excess: Any, sums: Any, large: Any, squares: Any, w2: Any, w2x: Any, clipped: Any,
) -> Any:  # fmt: skip
    """Add the weighted terms, and their second moments, to the cell of each row; all values have been checked."""
    n_terms, n, cells = terms.shape[0], y.shape[0], rows.shape[0] // 2
    width = 5 + 6 * n_terms
    lanes = scratch(LANE_CELLS, i8)
    laned = n >= 8 * cells and 2 * LANES * cells * width <= LANE_CELLS
    lanes[: 2 * LANES * cells * width if laned else 0] = 0
    k, f, out, v, place = scratch(PART, f8), scratch(PART, f8), scratch(PART, f8), scratch(PART, f8), scratch(PART, u8)
    one, two, lane = scratch(PART, u8), scratch(PART, u8), scratch(PART, u8)
    h1, l1, h2, l2, h3, l3 = (
        scratch(PART, i8), scratch(PART, i8), scratch(PART, i8), scratch(PART, i8), scratch(PART, i8), scratch(PART, i8)
    )  # fmt: skip
    for a in range(0, n, PART):
        m = min(PART, n - a)
        fetch(at, a + AHEAD, m)
        fetch(w, a + AHEAD, m)
        yy, ss, ww, here = y[a : a + m], s[a : a + m], w[a : a + m], at[a : a + m]
        fetch_cells(here, n_terms, rows, sums, squares)
        for j in range(m):
            place[j] = u8(here[j]) * u8(2) + u8(yy[j])
            v[j] = ww[j] * ww[j]
        if any_from(v[:m], LARGE):
            take_heavy_rows(v[:m], place, w2)
        limbs(ww, h1, l1)
        limbs(v[:m], h2, l2)
        if laned:
            for j in range(m):
                lane[j] = u8(((j & (LANES - 1)) * 2 * cells + i8(place[j])) * width)
            for j in range(m):
                to = lane[j]
                lanes[to] += 1
                lanes[to + u8(1)] += h1[j]
                lanes[to + u8(2)] += l1[j]
                lanes[to + u8(3)] += h2[j]
                lanes[to + u8(4)] += l2[j]
        else:
            for j in range(m):
                rows[place[j]] += 1
                add_fixed(excess, u8(2) * place[j], h1[j] - i8(1 << 20), l1[j])
                put(w2, u8(2) * place[j], h2[j], l2[j])
        clip = terms.shape[0] > 0 and not logit and clips(eps, ss)
        for t in range(n_terms):
            fill(terms[t], logit, eps, clip, yy, ss, k, f, out)
            loss = terms[t] == LOG_LOSS
            for j in range(m):
                out[j] *= ww[j]
            if any_from(out[:m], LARGE):
                take_large_rows(out[:m], here, n_terms, t, large, squares)
            for j in range(m):
                two[j] = u8(here[j]) * u8(n_terms) + u8(t)
                one[j] = u8(2) * two[j] + u8(yy[j])
                v[j] = out[j] * ww[j]
            if any_from(v[:m], LARGE):
                take_heavy_rows(v[:m], one, w2x)
            limbs(out[:m], h1, l1)
            limbs(v[:m], h2, l2)
            for j in range(m):
                v[j] = out[j] * out[j]
            if any_from(v[:m], LARGE):
                take_heavy_rows(v[:m], two, squares)
            limbs_of_squares(v[:m], loss, h3, l3)
            if laned:
                first = u8(5 + 6 * t)
                for j in range(m):
                    to = lane[j] + first
                    lanes[to] += h1[j]
                    lanes[to + u8(1)] += l1[j]
                    lanes[to + u8(2)] += h2[j]
                    lanes[to + u8(3)] += l2[j]
                    lanes[to + u8(4)] += h3[j]
                    lanes[to + u8(5)] += l3[j]
            else:
                for j in range(m):
                    add_fixed(sums, u8(2) * one[j], h1[j], l1[j])
                    put(w2x, u8(2) * one[j], h2[j], l2[j])
                    put(squares, u8(2) * two[j], h3[j], l3[j])
            if loss and clip:
                for j in range(m):
                    clipped[two[j]] += clipped_row(eps, yy[j], ss[j])
        if laned and (a + m == n or (a // PART) % OFTEN == OFTEN - 1):
            pour_weighted(lanes, cells, n_terms, rows, excess, sums, squares, w2, w2x)
    return 0
