"""Sum weights, loss terms, column products and values over rows, without rounding.

Every sum is a superaccumulator: an array of 68 integers, each of which holds 32 bits of one long number (see
`exact_sums`). With one cell, rows are added block by block; with several cells (such as slices), one by one. If there
are more sums than rows, carries are propagated after each row, because propagating them in all sums at the end would
take longer.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ._jit import inline, kernel, outline
from ._memory import prefetch, scratch
from .elementary import product_error
from .exact_sums import (
    BLOCK,
    CHUNK_MASK,
    CHUNKS,
    FULL,
    LEAST,
    SPLIT,
    UNITS,
    add_block,
    add_bounded_block,
    add_checked_block,
    add_exact,
    add_integer,
    add_products,
    are_all_from,
    carry_all,
    copy_in_range,
    halves_product_error,
    largest_exponent,
    split_halves,
)
from .loss_terms import RELATIVE, SIGNED_RELATIVE, SQUARE, fill_squared_term, fill_term, gather_column

f8, i8, u8 = np.float64, np.int64, np.uint64

# The indices of columns of a block in `sum_products`. Column WEIGHT holds weights, column BOTH a product, and the next
# column its rounding error. Column SPARE and the next are working memory. COLUMNS is the number of columns.
WEIGHT, BOTH, SPARE, COLUMNS = 6, 7, 9, 11
# With at most this many sums, rows are checked while they are added. The sums are copied beforehand, which is fast for
# a few sums, and are restored if a row is invalid.
MOST_CHECKED = 16
CHECKED_CHUNKS = MOST_CHECKED * 68
# The number of rows in a block. If it were a power of two, all columns of a block would compete for the same sets of
# the CPU cache.
PART = 384
# The factor by which values are multiplied before their fourth power is computed. Without it, products with weights
# could have bits below 2**-1074, the smallest positive float64 number.
SCALE = 2.0**25


@inline
def carry_from(numbers: Any, at: Any, first: Any) -> None:
    """Propagate carries in the superaccumulator at index `at`, in which only three adjacent integers have changed.

    `first` is the position of the first of these integers in the superaccumulator.
    """
    k, end, over = at + u8(first), at + CHUNKS - u8(1), i8(0)
    # After these three integers, continue only while the carry is not 0. It usually becomes 0 soon.
    near = min(k + u8(3), end)
    while k < near or (over != 0 and k < end):
        over = numbers[k] >> i8(32)
        numbers[k] &= CHUNK_MASK
        k += u8(1)
        numbers[k] += over


@outline
def add_to_cells(v: Any, here: Any, stride: Any, offset: Any, numbers: Any, often: Any) -> None:
    """Add every number in v to a superaccumulator of its cell (such as a slice).

    `here` holds the cell of each number. A cell has `stride` superaccumulators, of which the one at index `offset` is
    used. If `often` is true, carries are propagated after each addition; otherwise, the caller propagates them.
    """
    for j in range(v.shape[0]):
        at = (u8(here[j]) * u8(stride) + u8(offset)) * CHUNKS
        add_exact(numbers, at, v[j])
        if often:
            exponent = (f8(v[j]).view(i8) >> i8(52)) & i8(0x7FF)
            carry_from(numbers, at, (max(exponent, i8(1)) + i8(13)) >> i8(5))


@inline
def is_carry_due(a: Any, n: Any) -> Any:
    """Return whether to propagate carries after the block that starts at row `a` of n rows.

    Carries are due after the last block and after every FULL blocks, before a sum can overflow.
    """
    return a + BLOCK >= n or (a // BLOCK) % FULL == FULL - 1


@outline
def count_rows(n: Any, w: Any, at: Any, rows: Any, excess: Any) -> None:
    """Count n rows by cell (such as a slice), and add each row's weight minus 1 to the superaccumulators `excess`."""
    lone = at.shape[0] == 0
    if lone:
        rows[0] += n
    for j in range(at.shape[0]):
        rows[u8(at[j])] += 1
    # If there are more cells than rows, propagating carries after each row takes less time than propagating them in all
    # cells at the end.
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
                    carry_from(excess, u8(at[j]) * CHUNKS, UNITS >> i8(5))
        if not often and is_carry_due(a, n):
            carry_all(excess)


@inline
def copy_numbers(numbers: Any, to: Any, n: Any) -> None:
    """Copy the first n elements of `numbers` to `to`."""
    for j in range(n):
        to[j] = numbers[j]


@kernel(out=("rows", "excess", "sums", "skipped"))
def sum_losses(
    y: Any, p: Any, w: Any, at: Any, width: Any, terms: Any, parameters: Any, limits: Any,
    rows: Any, excess: Any, sums: Any, skipped: Any,
) -> Any:  # fmt: skip
    """Add, for each row and output, the requested loss terms to the sums of the row's cell, and count rows.

    `at` holds the cell (such as a slice) of each row. `y` and `p` are targets and predictions; a row has `width`
    values, one for each output. `terms` are the codes of the terms, and `parameters` their parameters. `sums` and
    `skipped` (the number of rows whose relative error is undefined) are flat arrays of cells x terms x outputs.

    If `limits` is not empty, which requires one cell, one output and few terms, values are checked while they are
    added. The two rows of `limits` are the bounds for targets and predictions (see `gather_in_range`). If a value is
    out of bounds, add nothing and return 1.
    """
    yy, pp = y.reshape(y.size), p.reshape(p.size)
    n, n_terms = yy.shape[0] // width, terms.shape[0]
    stride, lone = n_terms * width, at.shape[0] == 0
    often = not lone and n * 68 < sums.shape[0]
    target, guess, out = scratch(PART, f8), scratch(PART, f8), scratch(PART, f8)
    checks, before, skipped_before = limits.shape[0] != 0, scratch(CHECKED_CHUNKS, i8), scratch(MOST_CHECKED, i8)
    # If values are checked while they are added, copy the sums first, so that they can be restored if a value is
    # invalid.
    if checks:
        copy_numbers(sums, before, sums.shape[0])
        copy_numbers(skipped, skipped_before, skipped.shape[0])
    for a in range(0, n, PART):
        m = min(PART, n - a)
        for c in range(width):
            if not checks:
                gather_column(yy, a, width, c, target[:m])
                gather_column(pp, a, width, c, guess[:m])
            elif not (gather_in_range(yy, a, target[:m], limits[0]) and gather_in_range(pp, a, guess[:m], limits[1])):
                copy_numbers(before, sums, sums.shape[0])
                copy_numbers(skipped_before, skipped, skipped.shape[0])
                return 1
            for t in range(n_terms):
                cell = t * width + c
                if terms[t] < SQUARE:
                    size = fill_term(terms[t], parameters[t], target[:m], guess[:m], out[:m])
                else:
                    size = fill_squared_term(terms[t], parameters[t], target[:m], guess[:m], out[:m])
                for j in range(m if w.shape[0] else 0):
                    out[j] *= w[a + j]
                if lone:
                    add_bounded_block(
                        out[:m], size if w.shape[0] == 0 else largest_exponent(out[:m]), sums, u8(cell) * CHUNKS
                    )
                else:
                    add_to_cells(out[:m], at[a : a + m], stride, cell, sums, often)
                for j in range(m if terms[t] == RELATIVE or terms[t] == SIGNED_RELATIVE else 0):
                    if target[j] == 0.0:
                        skipped[(u8(0) if lone else u8(at[a + j]) * u8(stride)) + u8(cell)] += 1
        if not often and is_carry_due(a, n):
            carry_all(sums)
    count_rows(n, w, at, rows, excess)
    return 0


@kernel(out=("rows", "excess", "sums"))
def sum_products(
    first: Any, second: Any, w: Any, at: Any, width: Any, products: Any, limits: Any,
    rows: Any, excess: Any, sums: Any,
) -> Any:  # fmt: skip
    """Add the products of columns in each row, such as x * y or x**4, to the sums of their terms, and count rows.

    Each row of `products` holds three numbers: two columns to multiply, and the term to which the product is added.
    These rows are sorted by term. If the second column is -1, there is no second factor. The columns are:

    - Column 0 is `first`, and column 1 is `second`.
    - Column 2 is `first` times SCALE. Its square is column 3 (rounded) plus column 4 (the rounding error), and column 5
      is twice column 4. With these columns, third and fourth powers are summed exactly.

    `at` holds the cell (such as a slice) of each row. A row of data has `width` values, one for each output. `sums` is
    a flat array of cells x terms x outputs. If `limits` is not empty, values are checked while they are added, as in
    `sum_losses`.
    """
    ff, ss = first.reshape(first.size), second.reshape(second.size)
    n, count = ff.shape[0] // width, products.shape[0]
    stride, lone = (products[count - 1, 2] + 1 if count else 0) * width, at.shape[0] == 0
    often, weighted, powers = not lone and n * 68 < sums.shape[0], w.shape[0] != 0, False
    for q in range(count):
        # Columns 2 to 5, which hold powers of the first column, are computed only if some product uses them.
        powers |= products[q, 0] > 1
    checks, before = limits.shape[0] != 0, scratch(CHECKED_CHUNKS, i8)
    if checks:
        copy_numbers(sums, before, sums.shape[0])
    # If only the sum of one column is needed, add its values without copying them to a block.
    if checks and count == 1 and products[0, 0] == 0 and products[0, 1] < 0:
        if not add_column(ff, limits, sums):
            copy_numbers(before, sums, sums.shape[0])
            return 1
        count_rows(n, w, at, rows, excess)
        return 0
    block, sizes = scratch((3, COLUMNS, PART), f8), scratch((2, COLUMNS), i8)
    for a in range(0, n if count else 0, PART):
        m = min(PART, n - a)
        share = m * width // count
        if weighted:
            load_column(w, a, 1, 0, block, sizes, WEIGHT, m, limits[:0])
        for c in range(width):
            load_column(ff, a, width, c, block, sizes, 0, m, limits[:1])
            load_column(ss, a, width, c, block, sizes, 1, m, limits[1:])
            if checks and (sizes[0, 0] < 0 or sizes[0, 1] < 0):
                copy_numbers(before, sums, sums.shape[0])
                return 1
            if powers:
                fill_powers(block, sizes, m)
            # Prefetch the next block while adding this block. Each iteration prefetches an equal share of the next
            # block.
            for t in range(count):
                prefetch(ff, (a + PART) * width + t * share, share)
                prefetch(ss, (a + PART) * width + t * share, share)
                x_column, y_column, cell = products[t, 0], products[t, 1], products[t, 2] * width + c
                if y_column < 0 and not weighted and lone:
                    add_bounded_block(block[0, x_column, :m], sizes[0, x_column], sums, u8(cell) * CHUNKS)
                elif y_column < 0 and not weighted:
                    add_to_cells(block[0, x_column, :m], at[a : a + m], stride, cell, sums, often)
                elif y_column < 0:
                    add_column_products(block, sizes, x_column, WEIGHT, m, at, a, stride, cell, sums, often)
                elif not weighted:
                    add_column_products(block, sizes, x_column, y_column, m, at, a, stride, cell, sums, often)
                else:
                    # There are three factors: two columns and the weight. Multiply the weight by the product of the two
                    # columns and, separately, by the rounding error of that product. Add both results.
                    multiply_columns(block, x_column, y_column, m, BOTH)
                    for q in range(BOTH, BOTH + 2):
                        split_column(block, sizes, q, m)
                        add_column_products(block, sizes, q, WEIGHT, m, at, a, stride, cell, sums, often)
        if not often and is_carry_due(a, n):
            carry_all(sums)
    count_rows(n, w, at, rows, excess)
    return 0


@outline
def load_column(values: Any, a: Any, width: Any, c: Any, block: Any, sizes: Any, q: Any, m: Any, limits: Any) -> None:
    """Copy column c of m rows, which start at row `a`, to column q of a block, and split the numbers into halves.

    Store the largest and smallest exponents of the column in sizes[:, q]. `limits`, unless it is empty, holds the
    bounds for the column (see `gather_in_range`). If a value is out of bounds, store -1 as the largest exponent.
    """
    out, high, low = block[0, q], block[1, q], block[2, q]
    if limits.shape[0]:
        sizes[0, q], sizes[1, q] = split_halves(values[a : a + m], out, high, low, limits[0, 0], limits[0, 1])
        if not are_all_from(out[:m], limits[0, 2], limits[0, 3] != 0.0):
            sizes[0, q] = -1
    elif width == 1:
        sizes[0, q], sizes[1, q] = split_halves(values[a : a + m], out, high, low, 0.0, np.inf)
    else:
        gather_column(values, a, width, c, out[:m])
        split_column(block, sizes, q, m)


@outline
def split_column(block: Any, sizes: Any, q: Any, m: Any) -> None:
    """Split the numbers in column q of a block of m rows into halves, and store exponents as `load_column` does."""
    v = block[0, q, :m]
    sizes[0, q], sizes[1, q] = split_halves(v, block[0, q], block[1, q], block[2, q], 0.0, np.inf)


@outline
def gather_in_range(values: Any, a: Any, out: Any, limits: Any) -> Any:
    """Copy rows, starting at row `a`, to `out` as float64, and return whether all values are within `limits`.

    `limits` holds four numbers: the smallest and largest absolute values allowed for numbers other than 0, the lowest
    value allowed, and whether this lowest value itself is excluded.
    """
    size = copy_in_range(values[a : a + out.shape[0]], out, limits[0], limits[1])
    return size >= 0 and are_all_from(out, limits[2], limits[3] != 0.0)


@outline
def fill_powers(block: Any, sizes: Any, m: Any) -> None:
    """Compute columns 2 to 5 of a block of m rows, from which `sum_products` derives third and fourth powers."""
    for j in range(m):
        block[0, 2, j] = block[0, 0, j] * SCALE
    split_column(block, sizes, 2, m)
    multiply_columns(block, 2, 2, m, 3)
    for j in range(m):
        block[0, 5, j] = 2.0 * block[0, 4, j]
    for q in range(3, 6):
        split_column(block, sizes, q, m)


@outline
def multiply_columns(block: Any, x_column: Any, y_column: Any, m: Any, to: Any) -> None:
    """Multiply two columns of a block. Write the products to column `to`, and the rounding errors to the next one."""
    x, x_high, x_low = block[0, x_column], block[1, x_column], block[2, x_column]
    y, y_high, y_low = block[0, y_column], block[1, y_column], block[2, y_column]
    for j in range(m):
        product = x[j] * y[j]
        block[0, to + 1, j] = halves_product_error(product, x_high[j], x_low[j], y_high[j], y_low[j])
        block[0, to, j] = product


@outline
def add_column(v: Any, limits: Any, sums: Any) -> Any:
    """Add all numbers in a column to one superaccumulator. Return False if a value is outside `limits`, else True.

    If the result is False, the caller must restore the sums, because earlier blocks have already been added.
    """
    n, size = v.shape[0], LEAST
    for a in range(0, n, BLOCK):
        vv = v[a : a + BLOCK]
        size = add_checked_block(vv, size, limits[0, 0], limits[0, 1], sums, u8(0))
        if size < 0 or not are_all_from(vv, limits[0, 2], limits[0, 3] != 0.0):
            return False
        if is_carry_due(a, n):
            carry_all(sums)
    return True


@outline
def add_column_products(
    block: Any, sizes: Any, x_column: Any, y_column: Any, m: Any, at: Any, a: Any, stride: Any, cell: Any, sums: Any,
    often: Any,
) -> None:  # fmt: skip
    """Multiply two columns of a block of m rows, and add each product to the sum of its cell.

    `at` holds the cell (such as a slice) of each row, starting at index `a` for this block; if it is empty, there is
    one cell. A cell has `stride` sums, of which the one at index `cell` is used. `sizes` holds the largest and smallest
    exponents of each column.
    """
    if at.shape[0] == 0:
        # Compute an upper bound on the exponents of products from the largest exponents of the two columns.
        e, low = max(sizes[0, x_column] + sizes[0, y_column] - i8(1022), LEAST), sizes[1, x_column] + sizes[1, y_column]
        add_products(block, x_column, y_column, m, e, low, sums, u8(cell) * CHUNKS)
    else:
        multiply_columns(block, x_column, y_column, m, SPARE)
        for q in range(SPARE, SPARE + 2):
            add_to_cells(block[0, q, :m], at[a : a + m], stride, cell, sums, often)


@outline
def add_values(v: Any, at: Any, a: Any, stride: Any, cell: Any, numbers: Any, often: Any) -> None:
    """Add the numbers v, one for each row in a block, to the sums of their cells.

    `at` holds the cell (such as a slice) of each row, starting at index `a` for this block; if it is empty, there is
    one cell. A cell has `stride` sums, of which the one at index `cell` is used.
    """
    if at.shape[0]:
        add_to_cells(v, at[a : a + v.shape[0]], stride, cell, numbers, often)
    else:
        add_block(v, numbers, u8(cell) * CHUNKS)


@outline
def multiply_in_place(v: Any, factor: Any, error: Any) -> None:
    """Multiply v by `factor` elementwise, in place, and write the rounding errors to `error` (Dekker's algorithm)."""
    for j in range(v.shape[0]):
        product = v[j] * factor[j]
        error[j] = product_error(v[j], factor[j], product)
        v[j] = product


@inline
def round_to_26_bits(x: Any) -> Any:
    """Round a number to 26 significant bits (Veltkamp's algorithm).

    Such numbers have few bits, so `add_bounded_block` rarely has to add the lowest bits of each number separately.
    """
    c = x * SPLIT
    return c - (c - x)


@kernel(out=("rows", "excess", "sums", "squares", "more_w2", "more_w2x"))
def sum_values(
    values: Any, w: Any, at: Any, width: Any,
    rows: Any, excess: Any, sums: Any, squares: Any, more_w2: Any, more_w2x: Any,
) -> Any:  # fmt: skip
    """Count rows, and add each row's `width` values x and its terms for standard errors to the sums of its cell.

    `sums` holds the sums of w * x without rounding. For standard errors, `squares` holds the sums of (w * x)**2,
    `more_w2` those of w**2 - 1, and `more_w2x` those of w**2 * x - w * x; in these three sums, each number is rounded
    to 26 bits before it is added. If all weights are 1, `more_w2` and `more_w2x` are 0. `more_w2` holds one sum per
    cell, and the other arrays are flat arrays of cells x width.
    """
    n, lone, weighted = values.shape[0] // width, at.shape[0] == 0, w.shape[0] != 0
    often, seldom = not lone and n * 68 < sums.shape[0], not lone and n * 68 < more_w2.shape[0]
    x, v, error = scratch(BLOCK, f8), scratch(BLOCK, f8), scratch(BLOCK, f8)
    count_rows(n, w, at, rows, excess)
    for a in range(0, n, BLOCK):
        m = min(BLOCK, n - a)
        xx, vv, ee = x[:m], v[:m], error[:m]
        # Prefetch the next block while adding this block.
        prefetch(values, (a + BLOCK) * width, m * width)
        for j in range(m if weighted else 0):
            # Compute w**2 - 1 as (w - 1) * (w + 1) to avoid cancellation for weights close to 1.
            vv[j] = round_to_26_bits((w[a + j] - 1.0) * (w[a + j] + 1.0))
        if weighted:
            add_values(vv, at, a, 1, 0, more_w2, seldom)
        for c in range(width):
            gather_column(values, a, width, c, xx)
            if weighted:
                multiply_in_place(xx, w[a : a + m], ee)
                add_values(ee, at, a, width, c, sums, often)
                for j in range(m):
                    vv[j] = round_to_26_bits((w[a + j] - 1.0) * xx[j])
                add_values(vv, at, a, width, c, more_w2x, often)
            add_values(xx, at, a, width, c, sums, often)
            for j in range(m):
                vv[j] = round_to_26_bits(xx[j] * xx[j])
            add_values(vv, at, a, width, c, squares, often)
        if is_carry_due(a, n):
            if not often:
                carry_all(sums)
                carry_all(squares)
                carry_all(more_w2x)
            if not seldom:
                carry_all(more_w2)
    return 0
