"""Exact sums over a block of scored rows: sums of a term, such as log-loss, by label, and the sum of its squares.

Sums are fixed-point numbers that consist of two integers ("limbs"): high * 2**-20 + low * 2**-60. Adding a large
constant (a "magic number") to a float rounds it, so that the low bits of the result form an integer. Sums of integers
do not depend on the order of rows.

A square is rounded once, to a multiple of 2**-52 (score, squared error) or 2**-41 (log-loss). The squares in a block
are summed in one int64, and only this block sum is added to the two limbs. Sums of squares cover rows of both labels,
because no confidence interval needs them by label. A sum of squares that reaches CEILING stays there: it is saturated.

In all functions, `y` holds the labels of a block, `positives` is the number of positives among them, and `loss` says
whether the term is log-loss. A constant such as HIGH_BITS holds the bits of a magic number, interpreted as an integer.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ._jit import inline, outline
from .exact_sums import add_exact, carry
from .score_terms import HIGH, HIGH_BITS, LARGE, LOW, LOW_BITS, add_fixed, may_clip, score_extremes, split_limbs

f8, i8, u8 = np.float64, np.int64, np.uint64

CHUNKS = u8(68)
# A sum of squares consists of two integers ("limbs"). If it is too large for them (2**41 or more), the first limb is
# set to CEILING, which means that the exact sum is unknown.
CEILING = i8(1 << 61)
# Adding ONE to a square below 1 rounds the square to a multiple of 2**-52, the value of the last bit of the result.
# Adding LOSS to a square below 2**11 rounds it to a multiple of 2**-41.
ONE, LOSS = 1.0, 2.0**11
ONE_BITS, LOSS_BITS = i8(0x3FF0000000000000), i8(0x40A0000000000000)
# For an integer in units of 2**-52, this mask selects the lowest 32 bits. They represent values below 2**-20, which
# belong to the second of the two integers ("limbs") in a sum.
UNITS = i8((1 << 32) - 1)
# Rounding a number to a multiple of 2**-20 leaves a remainder. Adding FINE rounds the remainder to a multiple of
# 2**-52, and adding FINE_LOSS (for log-loss) rounds it to a multiple of 2**-41. Because of the factor 1.5, the exponent
# of the result is the same even if the remainder is negative.
FINE, FINE_LOSS = 1.5, 1.5 * 2.0**11
FINE_BITS, FINE_LOSS_BITS = i8(0x3FF8000000000000), i8(0x40A8000000000000)


@inline
def add_saturating(numbers: Any, at: Any, high: Any, low: Any) -> None:
    """Add `high` and `low` to the two integers of the sum at index `at` of `numbers`. The sum saturates at CEILING."""
    add_fixed(numbers, at, high, low)
    if numbers[at] >= CEILING:
        numbers[at], numbers[at + u8(1)] = CEILING, 0


@inline
def add_units(numbers: Any, at: Any, units: Any, loss: Any) -> None:
    """Add `units`, the sum of the rounded squares of a block, to the sum at index `at` of `numbers`.

    `units` is an integer, in units of 2**-41 for log-loss (if `loss` is true), and in units of 2**-52 otherwise. The
    sum saturates: once it reaches CEILING, it stays there.
    """
    if loss:
        add_saturating(numbers, at, units >> i8(21), (units & i8((1 << 21) - 1)) << i8(19))
    else:
        add_saturating(numbers, at, units >> i8(32), (units & i8((1 << 32) - 1)) << i8(8))


@inline
def large_limb(q: Any) -> Any:
    """Return the first limb, in units of 2**-20, of a number q of 2**31 or more; CEILING if q is 2**41 or more.

    The caller uses 0 as the second limb: the last bit of such a float64 is at least 2**-21, so almost nothing is lost.
    """
    return i8(q * 2.0**20) if q < 2.0**41 else CEILING


@inline
def add_number(numbers: Any, at: Any, v: Any) -> None:
    """Add a nonnegative number v of any size to the sum at index `at` of `numbers`. The sum saturates at CEILING."""
    if v >= LARGE:
        add_saturating(numbers, at, large_limb(v), i8(0))
    else:
        high, low = split_limbs(v)
        add_saturating(numbers, at, high, low)


@inline
def add_square(numbers: Any, at: Any, q: Any, loss: Any) -> None:
    """Round a square q to a multiple of 2**-41 (if `loss`) or 2**-52; add it to the sum at index `at` of `numbers`."""
    if q >= LARGE:
        add_saturating(numbers, at, large_limb(q), i8(0))
    else:
        t = q + HIGH
        # t is q, rounded to a multiple of 2**-20, plus the magic number HIGH. The remainder is exact, and a second
        # magic number rounds it to a multiple of 2**-41 or 2**-52.
        rest = q - (t - HIGH)
        fine = f8(rest + FINE_LOSS).view(i8) - FINE_LOSS_BITS if loss else f8(rest + FINE).view(i8) - FINE_BITS
        add_saturating(numbers, at, f8(t).view(i8) - HIGH_BITS, fine << (i8(19) if loss else i8(8)))


@outline
def is_any_from(v: Any, least: Any) -> Any:
    """Return whether any number in the block v is at least `least`."""
    found = i8(0)
    for j in range(v.shape[0]):
        found |= i8(v[j] >= least)
    return found != 0


@inline
def add_bits(x: Any, positive: Any, h: Any, l: Any, h1: Any, l1: Any) -> Any:  # noqa: E741 - first and second limbs
    """Add the limbs of the number x to sums over all rows (h, l) and, if `positive`, to sums over positives (h1, l1).

    Adding the constant HIGH or LOW (a magic number) to a float rounds it, so that its bits are those of the constant
    plus a limb. To save a subtraction per row, the bits of the constants are summed as well, and `subtract_magic`
    removes them once per block. Sums may wrap around at 2**64, which does not change the final result.
    """
    t = x + HIGH
    high, low = f8(t).view(i8), f8((x - (t - HIGH)) + LOW).view(i8)
    return h + high, l + low, h1 + (high if positive else i8(0)), l1 + (low if positive else i8(0))


@inline
def subtract_magic(n: Any, positives: Any, h: Any, l: Any, h1: Any, l1: Any) -> Any:  # noqa: E741
    """Remove the bits of the magic numbers from the sums of `add_bits` over n rows, of which `positives` are positive.

    Return the two limbs of the sum over negatives, then those of the sum over positives.
    """
    h1 -= positives * HIGH_BITS
    l1 -= positives * LOW_BITS
    return h - i8(n) * HIGH_BITS - h1, l - i8(n) * LOW_BITS - l1, h1, l1


@outline
def sum_by_class(y: Any, v: Any, positives: Any) -> Any:
    """Return the sums of the values v in a block over negatives and over positives, each as two limbs.

    The limbs of a sum are integers in units of 2**-20 and 2**-60. The second limb may be 2**40 or more; the caller
    propagates the carry. `y` contains the labels, of which `positives` are positive.
    """
    h, l, h1, l1 = i8(0), i8(0), i8(0), i8(0)  # noqa: E741
    for j in range(v.shape[0]):
        h, l, h1, l1 = add_bits(v[j], y[j] != 0, h, l, h1, l1)  # noqa: E741
    return subtract_magic(v.shape[0], positives, h, l, h1, l1)


@outline
def sum_with_squares(y: Any, v: Any, magic: Any, magic_bits: Any, positives: Any) -> Any:
    """Return the sums of the values v over negatives and over positives, and the sum of all squares.

    `y` contains the labels, of which `positives` are positive. Each of the first two sums has two limbs (see
    `sum_by_class`). Each square is rounded by adding the constant `magic`, whose bits are `magic_bits`. The last bit of
    this constant has the value 2**-52 or 2**-41, which is the unit of the sum of squares.
    """
    h, l, h1, l1, q = i8(0), i8(0), i8(0), i8(0), i8(0)  # noqa: E741
    for j in range(v.shape[0]):
        h, l, h1, l1 = add_bits(v[j], y[j] != 0, h, l, h1, l1)  # noqa: E741
        q += f8(v[j] * v[j] + magic).view(i8)
    h0, l0, h1, l1 = subtract_magic(v.shape[0], positives, h, l, h1, l1)
    return h0, l0, h1, l1, q - i8(v.shape[0]) * magic_bits


@outline
def sum_coarse_scores(y: Any, s: Any, positives: Any) -> Any:
    """Return the same sums as `sum_with_squares`, for scores s that are multiples of 2**-52.

    This function is faster, because such a score is an integer in units of 2**-52 and need not be split into two limbs.
    """
    # Adding 1.0 to such a score is exact, and the low bits of the result are the number of units.
    h, h1, q = i8(0), i8(0), i8(0)
    for j in range(s.shape[0]):
        x = f8(s[j])
        units = f8(x + ONE).view(i8)
        h, h1 = h + units, h1 + (units if y[j] != 0 else i8(0))
        q += f8(x * x + ONE).view(i8)
    n = i8(s.shape[0])
    h1 -= positives * ONE_BITS
    h -= n * ONE_BITS + h1
    # Split each sum, in units of 2**-52, into a limb in units of 2**-20 and a limb in units of 2**-60.
    return h >> i8(32), (h & UNITS) << i8(8), h1 >> i8(32), (h1 & UNITS) << i8(8), q - n * ONE_BITS


@outline
def sum_squares(v: Any, magic: Any, magic_bits: Any) -> Any:
    """Return the sum of the numbers v, which are squares below 2**31, as two integers.

    The unit of the first integer is 2**-20. The unit of the second is the value of the last bit of the constant
    `magic`, which is added to round the squares. `magic_bits` are the bits of this constant.
    """
    h, l = i8(0), i8(0)  # noqa: E741
    for j in range(v.shape[0]):
        t = v[j] + HIGH
        h += f8(t).view(i8)
        l += f8((v[j] - (t - HIGH)) + magic).view(i8)  # noqa: E741
    n = i8(v.shape[0])
    return h - n * HIGH_BITS, l - n * magic_bits


@outline
def sum_weights(y: Any, w: Any, positives: Any, out: Any) -> Any:
    """Write the sums of w and w**2 over a block of rows, by label, to `out`. Each sum consists of two limbs.

    Squares of 2**31 or more are left out. Return whether there are any. `y` contains the labels of the rows, of which
    `positives` are positive.
    """
    h, l, h1, l1, g, k, g1, k1, large = i8(0), i8(0), i8(0), i8(0), i8(0), i8(0), i8(0), i8(0), i8(0)  # noqa: E741
    for j in range(w.shape[0]):
        q, positive = w[j] * w[j], y[j] != 0
        # HIGH splits only numbers below 2**31 correctly. Leave out a larger square, which `add_weights` adds later.
        wide = q >= LARGE
        h, l, h1, l1 = add_bits(w[j], positive, h, l, h1, l1)  # noqa: E741
        g, k, g1, k1 = add_bits(0.0 if wide else q, positive, g, k, g1, k1)
        large |= i8(wide)
    out[0], out[1], out[2], out[3] = subtract_magic(w.shape[0], positives, h, l, h1, l1)
    out[4], out[5], out[6], out[7] = subtract_magic(w.shape[0], positives, g, k, g1, k1)
    return large != 0


@outline
def sum_products(y: Any, v: Any, w: Any, positives: Any, magic: Any, magic_bits: Any, out: Any) -> Any:
    """Write the sums of x = v * w and x * w, by label, and the sum of x**2 to `out`. Each sum consists of two limbs.

    Return whether any of these products is 2**31 or more. If so, the sums are wrong. The unit of the second limb of the
    last sum is the value of the last bit of the constant `magic`, which is added to round the squares. `y` contains the
    labels, of which `positives` are positive.
    """
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
    out[0], out[1], out[2], out[3] = subtract_magic(n, positives, h, l, h1, l1)
    out[4], out[5], out[6], out[7] = subtract_magic(n, positives, g, k, g1, k1)
    out[8], out[9] = a - n * HIGH_BITS, b - n * magic_bits
    return large != 0


@outline
def move_large(v: Any, large: Any, at: Any, squares: Any, square: Any) -> None:
    """Add values v of 2**31 or more to an exact sum of unlimited range, and set these values to 0.

    The exact sum is the superaccumulator at index `at` of `large`. A sum of squares cannot represent the square of such
    a value, so the sum at index `square` of `squares` is set to CEILING.
    """
    for j in range(v.shape[0]):
        if v[j] >= LARGE:
            add_exact(large, at, v[j])
            v[j] = 0.0
    carry(large, at)
    add_saturating(squares, square, CEILING, i8(0))


@outline
def add_squares(v: Any, loss: Any, numbers: Any, at: Any) -> None:
    """Add the squares v, however large, to the sum at index `at` of `numbers`. The sum saturates at CEILING.

    Squares of 2**31 or more are added one by one, and set to 0 in `v`. `loss` says whether the values that were squared
    are log-losses, whose squares are rounded to multiples of 2**-41 rather than 2**-52.
    """
    if is_any_from(v, LARGE):
        for j in range(v.shape[0]):
            if v[j] >= LARGE:
                add_saturating(numbers, at, large_limb(v[j]), i8(0))
                v[j] = 0.0
    if loss:
        high, low = sum_squares(v, FINE_LOSS, FINE_LOSS_BITS)
        add_saturating(numbers, at, high, low << i8(19))
    else:
        high, low = sum_squares(v, FINE, FINE_BITS)
        add_saturating(numbers, at, high, low << i8(8))


@outline
def add_term(y: Any, x: Any, positives: Any, loss: Any, v: Any, t: Any, sums: Any, large: Any, squares: Any) -> None:
    """Add the values x of term number t over a block of rows to `sums` (by label), and their squares to `squares`.

    Values of 2**31 or more are added to `large`, and set to 0 in `x`. `y` contains the labels, of which `positives` are
    positive. `loss` says whether the term is log-loss. `v` is working memory.
    """
    if is_any_from(x, LARGE):
        move_large(x, large, t * CHUNKS, squares, u8(2) * t)
    h0, l0, h1, l1 = sum_by_class(y, x, positives)
    add_fixed(sums, u8(4) * t, h0, l0)
    add_fixed(sums, u8(4) * t + u8(2), h1, l1)
    for j in range(x.shape[0]):
        v[j] = x[j] * x[j]
    add_squares(v, loss, squares, u8(2) * t)


@outline
def add_weights(y: Any, w: Any, positives: Any, parts: Any, excess: Any, w2: Any) -> None:
    """Add the sums of w - 1 over a block, by label, to `excess`, and those of w**2 to `w2`.

    `y` contains the labels, of which `positives` are positive. `parts` is working memory.
    """
    large = sum_weights(y, w, positives, parts)
    add_fixed(excess, u8(0), parts[0] - ((i8(w.shape[0]) - positives) << i8(20)), parts[1])
    add_fixed(excess, u8(2), parts[2] - (positives << i8(20)), parts[3])
    add_saturating(w2, u8(0), parts[4], parts[5])
    add_saturating(w2, u8(2), parts[6], parts[7])
    # Add the squares of large weights, which `sum_weights` leaves out. They are rare.
    for j in range(w.shape[0] if large else 0):
        if w[j] * w[j] >= LARGE:
            add_saturating(w2, u8(2) * u8(y[j]), large_limb(w[j] * w[j]), i8(0))


@outline
def add_weighted_term(
    y: Any, v: Any, w: Any, positives: Any, loss: Any, t: Any,
    parts: Any, sums: Any, large: Any, squares: Any, w2x: Any,
) -> None:  # fmt: skip
    """Add the weighted values w * v of term number t over a block of rows to `sums`, by label.

    Weighted values of 2**31 or more are added to `large`. For standard errors, w**2 * v is added to `w2x`, and
    (w * v)**2 to `squares`. `y` contains the labels, of which `positives` are positive. `loss` says whether the term is
    log-loss. `parts` is working memory.
    """
    magic, magic_bits = (FINE_LOSS, FINE_LOSS_BITS) if loss else (FINE, FINE_BITS)
    # In the rare case that there are products of 2**31 or more, add their rows one by one, and sum the other rows of
    # the block again.
    if sum_products(y, v, w, positives, magic, magic_bits, parts):
        move_large_products(y, v, w, loss, t, sums, large, squares, w2x)
        sum_products(y, v, w, positives, magic, magic_bits, parts)
    add_fixed(sums, u8(4) * t, parts[0], parts[1])
    add_fixed(sums, u8(4) * t + u8(2), parts[2], parts[3])
    add_saturating(w2x, u8(4) * t, parts[4], parts[5])
    add_saturating(w2x, u8(4) * t + u8(2), parts[6], parts[7])
    add_saturating(squares, u8(2) * t, parts[8], parts[9] << (i8(19) if loss else i8(8)))


@outline
def move_large_products(
    y: Any, v: Any, w: Any, loss: Any, t: Any, sums: Any, large: Any, squares: Any, w2x: Any
) -> None:  # fmt: skip
    """Add the rows with any product of 2**31 or more to the sums, one by one, and set their values v to 0.

    The products are v * w, v * w**2 and (v * w)**2; see `add_weighted_term` for the sums and the other parameters.
    """
    for j in range(v.shape[0]):
        x, to = v[j] * w[j], u8(4) * t + u8(2) * u8(y[j])
        z, q = x * w[j], x * x
        if not (x >= LARGE or z >= LARGE or q >= LARGE):
            continue
        v[j] = 0.0
        if x >= LARGE:
            add_exact(large, t * CHUNKS, x)
            add_saturating(squares, u8(2) * t, CEILING, i8(0))
        else:
            high, low = split_limbs(x)
            add_fixed(sums, to, high, low)
            add_number(w2x, to, z)
            add_square(squares, u8(2) * t, q, loss)
    carry(large, t * CHUNKS)


@inline
def may_clip_block(eps: Any, s: Any) -> Any:
    """Return whether any probability in the block may have to be clipped to [eps, 1 - eps] for log-loss."""
    # Only probabilities close to 0 or 1 are clipped, so it is enough to check the lowest and highest scores.
    least, most = score_extremes(s)
    return may_clip(eps, least, most)


@outline
def split_block(v: Any, high: Any, low: Any) -> None:
    """Split each number v, which must be below 2**31, into two integers (limbs): high * 2**-20 + low * 2**-60.

    This loop is separate from the loop that sums the integers, so that the compiler can vectorize it.
    """
    for j in range(v.shape[0]):
        high[j], low[j] = split_limbs(v[j])


@outline
def split_squares(q: Any, loss: Any, high: Any, low: Any) -> None:
    """Round squares q below 2**31 to multiples of 2**-41 (if `loss`) or 2**-52, and split each into two integers.

    The integers (limbs) are written to `high` and `low`. `loss` says whether the squares are squares of log-losses.
    """
    for j in range(q.shape[0]):
        t = q[j] + HIGH
        rest = q[j] - (t - HIGH)
        high[j] = f8(t).view(i8) - HIGH_BITS
        if loss:
            low[j] = (f8(rest + FINE_LOSS).view(i8) - FINE_LOSS_BITS) << i8(19)
        else:
            low[j] = (f8(rest + FINE).view(i8) - FINE_BITS) << i8(8)


@outline
def count_square_units(v: Any, loss: Any, units: Any) -> None:
    """Write the squares of the values v to `units`, as integers in units of 2**-41 (log-loss) or 2**-52 (other terms).

    Squares must be below 2**11 for log-loss, and at most 1 for other terms.
    """
    if loss:
        for j in range(v.shape[0]):
            units[j] = f8(v[j] * v[j] + LOSS).view(i8) - LOSS_BITS
    else:
        for j in range(v.shape[0]):
            units[j] = f8(v[j] * v[j] + ONE).view(i8) - ONE_BITS


@outline
def move_wild_squares(v: Any, here: Any, n_terms: Any, t: Any, squares: Any, units: Any) -> None:
    """Add each square of a log-loss v that is 2**11 or more to its sum in `squares`, and set its `units` to 0.

    `units` holds the squares as integers, computed by `count_square_units`, which cannot represent such large squares.
    `here` holds the cell (such as a slice) of each row. A cell has `n_terms` terms, of which log-loss is number t.
    """
    for j in range(v.shape[0]):
        q = v[j] * v[j]
        if q >= LOSS:
            add_square(squares, u8(2) * (u8(here[j]) * u8(n_terms) + u8(t)), q, True)
            units[j] = 0


@outline
def move_large_rows(v: Any, here: Any, n_terms: Any, t: Any, large: Any, squares: Any) -> None:
    """Add values v of term t that are 2**31 or more to the exact sums `large` of their cells, and set the values to 0.

    `here` holds the cell (such as a slice) of each row, and a cell has `n_terms` terms. In the cells of these values,
    the sums of squares of term t are set to CEILING.
    """
    for j in range(v.shape[0]):
        if v[j] >= LARGE:
            to = u8(here[j]) * u8(n_terms) + u8(t)
            add_exact(large, to * CHUNKS, v[j])
            carry(large, to * CHUNKS)
            add_saturating(squares, u8(2) * to, CEILING, i8(0))
            v[j] = 0.0


@outline
def move_heavy_rows(v: Any, to: Any, numbers: Any) -> None:
    """Add the products in v that are 2**31 or more to the saturating sums in `numbers`, and set these products to 0.

    The product v[j] belongs to sum number to[j], whose two limbs start at index 2 * to[j] of `numbers`.
    """
    for j in range(v.shape[0]):
        if v[j] >= LARGE:
            add_saturating(numbers, u8(2) * to[j], large_limb(v[j]), i8(0))
            v[j] = 0.0
