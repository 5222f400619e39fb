"""Sums over rows without any rounding: rows and weights, terms of losses, products of columns, values of rows.

Every sum is a superaccumulator (module `exact_sums`). Of one cell a block of rows is added at a time; of several, row by
row, and what was added to is carried at once where the cells are more than the rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ._jit import inline, kernel, outline
from ._memory import fetch, scratch
from .elementary import product_error
from .exact_sums import (
    BLOCK,
    CHUNK_MASK,
    CHUNKS,
    FULL,
    LEAST,
    SPLIT,
    UNITS,
    add_below,
    add_block,
    add_exact,
    add_integer,
    add_products,
    carry_all,
    copy_within,
    halve,
    largest,
    largest_within,
    lost,
    reach,
)
from .regression import RELATIVE, SIGNED_RELATIVE, SQUARE, fill, fill_square, gather

f8, i8, u8 = np.float64, np.int64, np.uint64

WEIGHT, BOTH, SPARE, COLUMNS = 6, 7, 9, 11  # what a block has beside its columns and their powers
MOST_CHECKED = 16  # terms whose sums are kept while rows are checked, in case one is bad
CHECKED_CHUNKS = MOST_CHECKED * 68
PART = 384  # rows of a block of columns and their halves: of 2**k rows, all would fall on the same lines of a cache
SCALE = 2.0**25  # of what is raised to the fourth power: a product with a small weight has no bit below 2**-1074


@inline
def carry_up(numbers: Any, at: Any, first: Any) -> None:
    """Bring a superaccumulator that was canonical before three chunks from `first` were added to to canonical form."""
    k, end, over = at + u8(first), at + CHUNKS - u8(1), i8(0)
    near = min(k + u8(3), end)
    while k < near or (over != 0 and k < end):
        over = numbers[k] >> i8(32)
        numbers[k] &= CHUNK_MASK
        k += u8(1)
        numbers[k] += over


@outline
def add_to_cells(v: Any, here: Any, stride: Any, offset: Any, numbers: Any, often: Any) -> None:
    """Add every float64 to the superaccumulator of its cell; with `often`, carried at once."""
    for j in range(v.shape[0]):
        at = (u8(here[j]) * u8(stride) + u8(offset)) * CHUNKS
        add_exact(numbers, at, v[j])
        if often:
            exponent = (f8(v[j]).view(i8) >> i8(52)) & i8(0x7FF)
            carry_up(numbers, at, (max(exponent, i8(1)) + i8(13)) >> i8(5))


@inline
def is_full(a: Any, n: Any) -> Any:
    """Whether what was added has to be carried after the block of rows from a: the last, or one of many."""
    return a + BLOCK >= n or (a // BLOCK) % FULL == FULL - 1


@outline
def weigh(n: Any, w: Any, at: Any, rows: Any, excess: Any) -> None:
    """Count n rows in their cells, and add w - 1 of each."""
    lone = at.shape[0] == 0
    if lone:
        rows[0] += n
    for j in range(at.shape[0]):
        rows[u8(at[j])] += 1
    often = not lone and n < u8(excess.shape[0]) // CHUNKS
    for a in range(0, w.shape[0], BLOCK):
        b = min(a + BLOCK, n)
        if lone:
            add_block(w[a:b], excess, u8(0))
            add_integer(excess, u8(0), i8(a - b), UNITS)
        else:
            add_to_cells(w[a:b], at[a:b], 1, 0, excess, often)
            for j in range(a, b):
                add_integer(excess, u8(at[j]) * CHUNKS, i8(-1), UNITS)
                if often:
                    carry_up(excess, u8(at[j]) * CHUNKS, UNITS >> i8(5))
        if not often and is_full(a, n):
            carry_all(excess)


@inline
def copy_numbers(numbers: Any, to: Any, n: Any) -> None:
    """Copy n numbers."""
    for j in range(n):
        to[j] = numbers[j]


@kernel(out=("rows", "excess", "sums", "skipped"))
def sum_losses(
    y: Any, p: Any, w: Any, at: Any, width: Any, terms: Any, parameters: Any, limits: Any,
    rows: Any, excess: Any, sums: Any, skipped: Any,
) -> Any:  # fmt: skip
    """Add the terms asked for of every row and output, and count rows.

    Rows are `width` values side by side, in one dimension or two. `sums` and `skipped` are cells x terms x outputs, flat.
    With `limits`, values are checked as they are read (see `largest_within`), of one cell, one output and few terms: if
    one is bad, nothing is counted, and 1 returned.
    """
    yy, pp = y.reshape(y.size), p.reshape(p.size)
    n, n_terms = yy.shape[0] // width, terms.shape[0]
    stride, lone = n_terms * width, at.shape[0] == 0
    often = not lone and n * 68 < sums.shape[0]
    target, guess, out = scratch(PART, f8), scratch(PART, f8), scratch(PART, f8)
    checks, before, skipped_before = limits.shape[0] != 0, scratch(CHECKED_CHUNKS, i8), scratch(MOST_CHECKED, i8)
    if checks:
        copy_numbers(sums, before, sums.shape[0])
        copy_numbers(skipped, skipped_before, skipped.shape[0])
    for a in range(0, n, PART):
        m = min(PART, n - a)
        for c in range(width):
            if not checks:
                gather(yy, a, width, c, target[:m])
                gather(pp, a, width, c, guess[:m])
            elif not (gather_within(yy, a, target[:m], limits[0]) and gather_within(pp, a, guess[:m], limits[1])):
                copy_numbers(before, sums, sums.shape[0])
                copy_numbers(skipped_before, skipped, skipped.shape[0])
                return 1
            for t in range(n_terms):
                cell = t * width + c
                if terms[t] < SQUARE:
                    size = fill(terms[t], parameters[t], target[:m], guess[:m], out[:m])
                else:
                    size = fill_square(terms[t], parameters[t], target[:m], guess[:m], out[:m])
                for j in range(m if w.shape[0] else 0):
                    out[j] *= w[a + j]
                if lone:
                    add_below(out[:m], size if w.shape[0] == 0 else largest(out[:m]), sums, u8(cell) * CHUNKS)
                else:
                    add_to_cells(out[:m], at[a : a + m], stride, cell, sums, often)
                for j in range(m if terms[t] == RELATIVE or terms[t] == SIGNED_RELATIVE else 0):
                    if target[j] == 0.0:
                        skipped[(u8(0) if lone else u8(at[a + j]) * u8(stride)) + u8(cell)] += 1
        if not often and is_full(a, n):
            carry_all(sums)
    weigh(n, w, at, rows, excess)
    return 0


@kernel(out=("rows", "excess", "sums"))
def sum_products(
    first: Any, second: Any, w: Any, at: Any, width: Any, products: Any, limits: Any,
    rows: Any, excess: Any, sums: Any,
) -> Any:  # fmt: skip
    """Add the products of two columns, each to the sum of its term, and count rows.

    Two numbers of a product name its columns: 0 for `first`, 1 for `second`, -1 (of the second) for none; 2 for `first`
    times SCALE, of whose square 3 is the rounded and 4 the rest, so that products of these add up to its third and fourth
    power; 5 is twice 4. A third says to which term it belongs, in their order. Rows are `width` values side by side, in
    one dimension or two; `sums` is cells x terms x outputs, flat. With `limits`, values are checked as they are read, as
    `sum_losses` does it.
    """
    ff, ss = first.reshape(first.size), second.reshape(second.size)
    n, count = ff.shape[0] // width, products.shape[0]
    stride, lone = (products[count - 1, 2] + 1 if count else 0) * width, at.shape[0] == 0
    often, weighted, powers = not lone and n * 68 < sums.shape[0], w.shape[0] != 0, False
    for q in range(count):
        powers |= products[q, 0] > 1
    checks, before = limits.shape[0] != 0, scratch(CHECKED_CHUNKS, i8)
    if checks:
        copy_numbers(sums, before, sums.shape[0])
    if checks and count == 1 and products[0, 0] == 0 and products[0, 1] < 0:
        if not add_column(ff, limits, sums):
            copy_numbers(before, sums, sums.shape[0])
            return 1
        weigh(n, w, at, rows, excess)
        return 0
    block, sizes = scratch((3, COLUMNS, PART), f8), scratch(COLUMNS, i8)
    for a in range(0, n if count else 0, PART):
        m = min(PART, n - a)
        share = m * width // count
        if weighted:
            take(w, a, 1, 0, block, sizes, WEIGHT, m, limits[:0])
        for c in range(width):
            take(ff, a, width, c, block, sizes, 0, m, limits[:1])
            take(ss, a, width, c, block, sizes, 1, m, limits[1:])
            if checks and (sizes[0] < 0 or sizes[1] < 0):
                copy_numbers(before, sums, sums.shape[0])
                return 1
            if powers:
                take_powers(block, sizes, m)
            for t in range(count):  # the next block comes while this one is added up
                fetch(ff, (a + PART) * width + t * share, share)
                fetch(ss, (a + PART) * width + t * share, share)
                left, right, cell = products[t, 0], products[t, 1], products[t, 2] * width + c
                if right < 0 and not weighted and lone:
                    add_below(block[0, left, :m], sizes[left], sums, u8(cell) * CHUNKS)
                elif right < 0 and not weighted:
                    add_to_cells(block[0, left, :m], at[a : a + m], stride, cell, sums, often)
                elif right < 0:
                    add_times(block, sizes, left, WEIGHT, m, at, a, stride, cell, sums, often)
                elif not weighted:
                    add_times(block, sizes, left, right, m, at, a, stride, cell, sums, often)
                else:
                    multiply(block, left, right, m, BOTH)
                    for q in range(BOTH, BOTH + 2):
                        sizes[q] = halve(block[0, q, :m], block[0, q], block[1, q], block[2, q], 0.0, np.inf)
                        add_times(block, sizes, q, WEIGHT, m, at, a, stride, cell, sums, often)
        if not often and is_full(a, n):
            carry_all(sums)
    weigh(n, w, at, rows, excess)
    return 0


@outline
def take(values: Any, a: Any, width: Any, c: Any, block: Any, sizes: Any, q: Any, m: Any, limits: Any) -> None:
    """Put column c of the rows from a into a block, with its halves, and note how large it is; -1 if one is bad."""
    out, high, low = block[0, q], block[1, q], block[2, q]
    if limits.shape[0]:
        sizes[q] = halve(values[a : a + m], out, high, low, limits[0, 0], limits[0, 1])
        if not reach(out[:m], limits[0, 2], limits[0, 3] != 0.0):
            sizes[q] = -1
    elif width == 1:
        sizes[q] = halve(values[a : a + m], out, high, low, 0.0, np.inf)
    else:
        gather(values, a, width, c, out[:m])
        sizes[q] = halve(out[:m], out, high, low, 0.0, np.inf)


@outline
def gather_within(values: Any, a: Any, out: Any, limits: Any) -> Any:
    """Write a block of rows from a as float64, and say whether all are within limits."""
    size = copy_within(values[a : a + out.shape[0]], out, limits[0], limits[1])
    return size >= 0 and reach(out, limits[2], limits[3] != 0.0)


@outline
def take_powers(block: Any, sizes: Any, m: Any) -> None:
    """Put what a third and a fourth power are made of into a block."""
    for j in range(m):
        block[0, 2, j] = block[0, 0, j] * SCALE
    sizes[2] = halve(block[0, 2, :m], block[0, 2], block[1, 2], block[2, 2], 0.0, np.inf)
    multiply(block, 2, 2, m, 3)
    for j in range(m):
        block[0, 5, j] = 2.0 * block[0, 4, j]
    for q in range(3, 6):
        sizes[q] = halve(block[0, q, :m], block[0, q], block[1, q], block[2, q], 0.0, np.inf)


@outline
def multiply(block: Any, left: Any, right: Any, m: Any, to: Any) -> None:
    """Multiply two columns of a block: write the products, rounded, and behind them what rounding has lost."""
    x, x_high, x_low = block[0, left], block[1, left], block[2, left]
    y, y_high, y_low = block[0, right], block[1, right], block[2, right]
    for j in range(m):
        product = x[j] * y[j]
        block[0, to + 1, j] = lost(product, x_high[j], x_low[j], y_high[j], y_low[j])
        block[0, to, j] = product


@outline
def add_column(v: Any, limits: Any, sums: Any) -> Any:
    """Add a column to one superaccumulator, from where it lies; say whether all its values are in range, or stop."""
    n = v.shape[0]
    for a in range(0, n, BLOCK):
        vv = v[a : a + BLOCK]
        size = largest_within(vv, limits[0, 0], limits[0, 1])
        if size < 0 or not reach(vv, limits[0, 2], limits[0, 3] != 0.0):
            return False
        add_below(vv, size, sums, u8(0))
        if is_full(a, n):
            carry_all(sums)
    return True


@outline
def add_times(
    block: Any, sizes: Any, left: Any, right: Any, m: Any, at: Any, a: Any, stride: Any, cell: Any, sums: Any, often: Any
) -> None:  # fmt: skip
    """Add the products of two columns of a block of rows from a, of one cell or of several."""
    if at.shape[0] == 0:
        e = sizes[left] + sizes[right] - i8(1022)  # what is below 2**i times what is below 2**k is below 2**(i + k)
        add_products(block, left, right, m, max(e, LEAST), sums, u8(cell) * CHUNKS)
    else:
        multiply(block, left, right, m, SPARE)
        for q in range(SPARE, SPARE + 2):
            add_to_cells(block[0, q, :m], at[a : a + m], stride, cell, sums, often)


@outline
def add_some(v: Any, at: Any, a: Any, stride: Any, cell: Any, numbers: Any, often: Any) -> None:
    """Add a block of rows from a, of one cell or of several."""
    if at.shape[0]:
        add_to_cells(v, at[a : a + v.shape[0]], stride, cell, numbers, often)
    else:
        add_block(v, numbers, u8(cell) * CHUNKS)


@outline
def multiply_in_place(v: Any, factor: Any, error: Any) -> None:
    """Multiply a block in place, and write what rounding has lost: the error, which is a float64 (Dekker's splitting)."""
    for j in range(v.shape[0]):
        product = v[j] * factor[j]
        error[j] = product_error(v[j], factor[j], product)
        v[j] = product


@inline
def short(x: Any) -> Any:
    """Round to 26 bits (Veltkamp): sums of such numbers seldom need more than two integers a block."""
    c = x * SPLIT
    return c - (c - x)


@kernel(out=("rows", "excess", "sums", "squares", "more_w2", "more_w2x"))
def sum_values(
    values: Any, w: Any, at: Any, width: Any,
    rows: Any, excess: Any, sums: Any, squares: Any, more_w2: Any, more_w2x: Any,
) -> Any:  # fmt: skip
    """Add values x, so many a row, and what standard errors need, and count rows.

    `sums` has w x without rounding; `squares` (w x)^2, `more_w2` (w - 1)(w + 1) and `more_w2x` (w - 1) w x, each rounded
    to 26 bits: the last two are 0 for weights of 1. All but `more_w2`, which is of cells, are cells x width, flat.
    """
    n, lone, weighted = values.shape[0] // width, at.shape[0] == 0, w.shape[0] != 0
    often, seldom = not lone and n * 68 < sums.shape[0], not lone and n * 68 < more_w2.shape[0]
    x, v, error = scratch(BLOCK, f8), scratch(BLOCK, f8), scratch(BLOCK, f8)
    weigh(n, w, at, rows, excess)
    for a in range(0, n, BLOCK):
        m = min(BLOCK, n - a)
        xx, vv, ee = x[:m], v[:m], error[:m]
        fetch(values, (a + BLOCK) * width, m * width)  # the next block comes while this one is added up
        for j in range(m if weighted else 0):
            vv[j] = short((w[a + j] - 1.0) * (w[a + j] + 1.0))
        if weighted:
            add_some(vv, at, a, 1, 0, more_w2, seldom)
        for c in range(width):
            gather(values, a, width, c, xx)
            if weighted:
                multiply_in_place(xx, w[a : a + m], ee)
                add_some(ee, at, a, width, c, sums, often)
                for j in range(m):
                    vv[j] = short((w[a + j] - 1.0) * xx[j])
                add_some(vv, at, a, width, c, more_w2x, often)
            add_some(xx, at, a, width, c, sums, often)
            for j in range(m):
                vv[j] = short(xx[j] * xx[j])
            add_some(vv, at, a, width, c, squares, often)
        if is_full(a, n):
            if not often:
                carry_all(sums)
                carry_all(squares)
                carry_all(more_w2x)
            if not seldom:
                carry_all(more_w2)
    return 0
