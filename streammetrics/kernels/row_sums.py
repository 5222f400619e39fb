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
    UNITS,
    add_below,
    add_block,
    add_exact,
    add_integer,
    add_products,
    carry_all,
    largest,
)
from .regression import RELATIVE, SIGNED_RELATIVE, SQUARE, fill, fill_square, gather

f8, i8, u8 = np.float64, np.int64, np.uint64

SPLITTER = 2.0**27 + 1.0
WEIGHT, BOTH, SPARE, COLUMNS = 6, 7, 9, 11  # what a block has beside its columns and their powers; two each
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


@kernel(out=("rows", "excess", "sums", "skipped"))
def sum_losses(
    y: Any, p: Any, w: Any, at: Any, width: Any, terms: Any, parameters: Any,
    rows: Any, excess: Any, sums: Any, skipped: Any,
) -> Any:  # fmt: skip
    """Add the terms asked for of every row and output, and count rows.

    Rows are `width` values side by side, in one dimension or two. `sums` and `skipped` are cells x terms x outputs, flat.
    """
    yy, pp = y.reshape(y.size), p.reshape(p.size)
    n, n_terms = yy.shape[0] // width, terms.shape[0]
    stride, lone = n_terms * width, at.shape[0] == 0
    often = not lone and n * 68 < sums.shape[0]
    target, guess, out = scratch(BLOCK, f8), scratch(BLOCK, f8), scratch(BLOCK, f8)
    weigh(n, w, at, rows, excess)
    for a in range(0, n, BLOCK):
        m = min(BLOCK, n - a)
        for c in range(width):
            gather(yy, a, width, c, target[:m])
            gather(pp, a, width, c, guess[:m])
            for t in range(n_terms):
                cell = t * width + c
                if terms[t] < SQUARE:
                    fill(terms[t], parameters[t], target[:m], guess[:m], out[:m])
                else:
                    fill_square(terms[t], parameters[t], target[:m], guess[:m], out[:m])
                for j in range(m if w.shape[0] else 0):
                    out[j] *= w[a + j]
                if lone:
                    add_block(out[:m], sums, u8(cell) * CHUNKS)
                else:
                    add_to_cells(out[:m], at[a : a + m], stride, cell, sums, often)
                for j in range(m if terms[t] == RELATIVE or terms[t] == SIGNED_RELATIVE else 0):
                    if target[j] == 0.0:
                        skipped[(u8(0) if lone else u8(at[a + j]) * u8(stride)) + u8(cell)] += 1
        if not often and is_full(a, n):
            carry_all(sums)
    return 0


@kernel(out=("rows", "excess", "sums"))
def sum_products(
    first: Any, second: Any, w: Any, at: Any, width: Any, products: Any, rows: Any, excess: Any, sums: Any
) -> Any:  # fmt: skip
    """Add the products of two columns, each to the sum of its term, and count rows.

    Two numbers of a product name its columns: 0 for `first`, 1 for `second`, -1 (of the second) for none; 2 for `first`
    times SCALE, of whose square 3 is the rounded and 4 the rest, so that products of these add up to its third and fourth
    power; 5 is twice 4. A third says to which term it belongs, in their order. Rows are `width` values side by side, in
    one dimension or two; `sums` is cells x terms x outputs, flat.
    """
    ff, ss = first.reshape(first.size), second.reshape(second.size)
    n, count = ff.shape[0] // width, products.shape[0]
    stride, lone = (products[count - 1, 2] + 1 if count else 0) * width, at.shape[0] == 0
    often, weighted, powers = not lone and n * 68 < sums.shape[0], w.shape[0] != 0, False
    for q in range(count):
        powers |= products[q, 0] > 1
    weigh(n, w, at, rows, excess)
    if lone and not weighted and width == 1 and count == 1 and products[0, 0] == 0 and products[0, 1] < 0:
        add_column(ff, sums)
        return 0
    columns, sizes = scratch((COLUMNS, BLOCK), f8), scratch(COLUMNS, i8)
    for a in range(0, n if count else 0, BLOCK):
        m = min(BLOCK, n - a)
        if weighted:
            gather(w, a, 1, 0, columns[WEIGHT, :m])
        for c in range(width):
            gather(ff, a, width, c, columns[0, :m])
            gather(ss, a, width, c, columns[1, :m])
            for j in range(m if powers else 0):
                columns[2, j] = columns[0, j] * SCALE
                columns[3, j] = columns[2, j]
            if powers:
                multiply(columns[3, :m], columns[2, :m], columns[4, :m])
            for j in range(m if powers else 0):
                columns[5, j] = 2.0 * columns[4, j]
            for q in range(BOTH if lone else 0):
                if q < 2 or (weighted if q == WEIGHT else powers):
                    sizes[q] = largest(columns[q, :m])
            for t in range(count):
                left, right, cell = products[t, 0], products[t, 1], products[t, 2] * width + c
                if right < 0 and not weighted and lone:
                    add_below(columns[left, :m], sizes[left], sums, u8(cell) * CHUNKS)
                elif right < 0 and not weighted:
                    add_to_cells(columns[left, :m], at[a : a + m], stride, cell, sums, often)
                elif right < 0:
                    add_times(columns, sizes, left, WEIGHT, m, at, a, stride, cell, sums, often)
                elif not weighted:
                    add_times(columns, sizes, left, right, m, at, a, stride, cell, sums, often)
                else:
                    write_product(columns, sizes, left, right, m, BOTH)
                    add_times(columns, sizes, BOTH, WEIGHT, m, at, a, stride, cell, sums, often)
                    add_times(columns, sizes, BOTH + 1, WEIGHT, m, at, a, stride, cell, sums, often)
        if not often and is_full(a, n):
            carry_all(sums)
    return 0


@outline
def add_column(v: Any, sums: Any) -> None:
    """Add a column to one superaccumulator, from where it lies."""
    n = v.shape[0]
    for a in range(0, n, BLOCK):
        add_block(v[a : a + BLOCK], sums, u8(0))
        if is_full(a, n):
            carry_all(sums)


@outline
def write_product(columns: Any, sizes: Any, left: Any, right: Any, m: Any, to: Any) -> None:
    """Multiply two columns of a block: write the products, rounded, and behind them what rounding has lost."""
    for j in range(m):
        columns[to, j] = columns[left, j]
    multiply(columns[to, :m], columns[right, :m], columns[to + 1, :m])
    sizes[to], sizes[to + 1] = largest(columns[to, :m]), largest(columns[to + 1, :m])


@outline
def add_times(
    columns: Any, sizes: Any, left: Any, right: Any, m: Any, at: Any, a: Any, stride: Any, cell: Any, sums: Any, often: Any
) -> None:  # fmt: skip
    """Add the products of two columns of a block of rows from a, of one cell or of several."""
    if at.shape[0] == 0:
        e = max(
            sizes[left] + sizes[right] - i8(1022), LEAST
        )  # a product is below the powers of two that these are below
        add_products(columns[left, :m], columns[right, :m], e, sums, u8(cell) * CHUNKS)
    else:
        write_product(columns, sizes, left, right, m, SPARE)
        add_to_cells(columns[SPARE, :m], at[a : a + m], stride, cell, sums, often)
        add_to_cells(columns[SPARE + 1, :m], at[a : a + m], stride, cell, sums, often)


@outline
def add_some(v: Any, at: Any, a: Any, stride: Any, cell: Any, numbers: Any, often: Any) -> None:
    """Add a block of rows from a, of one cell or of several."""
    if at.shape[0]:
        add_to_cells(v, at[a : a + v.shape[0]], stride, cell, numbers, often)
    else:
        add_block(v, numbers, u8(cell) * CHUNKS)


@outline
def multiply(v: Any, factor: Any, error: Any) -> None:
    """Multiply a block in place, and write what rounding has lost: the error, which is a float64 (Dekker's splitting).

    Times a weight each of the two is a product again: four float64 a row, all of which go to the superaccumulator.
    """
    for j in range(v.shape[0]):
        product = v[j] * factor[j]
        error[j] = product_error(v[j], factor[j], product)
        v[j] = product


@inline
def short(x: Any) -> Any:
    """Round to 26 bits (Veltkamp): sums of such numbers seldom need more than two integers a block."""
    c = x * SPLITTER
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
                multiply(xx, w[a : a + m], ee)
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
