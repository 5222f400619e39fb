"""Sums of two columns, their squares and their products, weighted, without any rounding.

A product of two float64 is the float64 nearest to it and another: the error, which is exact (Dekker's splitting). With a
weight each of the two is a product again: four float64 a row, all of which go to the superaccumulator.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from . import elementary
from ._jit import inline, kernel
from ._memory import scratch
from .exact_sums import BLOCK, FULL, add_block, add_rows, carry_all
from .regression import gather

f8, u8 = np.float64, np.uint64

product_error = inline(elementary._product_error)


@inline
def multiply(v: Any, factor: Any, error: Any) -> None:
    """Multiply a block in place, and write what rounding has lost."""
    for j in range(v.shape[0]):
        product = v[j] * factor[j]
        error[j] = product_error(v[j], factor[j], product)
        v[j] = product


@kernel(out=("sums",))
def sum_products(
    first: Any, second: Any, w: Any, at: Any, width: Any, left: Any, right: Any, sums: Any
) -> Any:  # fmt: skip
    """Add for every term the product of two columns, to one state if `at` is empty, or else to the slice of each row.

    `left` and `right` name the columns of each term: 0 for `first`, 1 for `second`, -1 (only right) for none. Rows are
    `width` values side by side; `sums` is slices x terms x outputs, flat; all was checked.
    """
    n_terms = left.shape[0]
    n, cells = first.shape[0] // width, n_terms * width
    often = at.shape[0] > 0 and n * 68 < sums.shape[0]
    columns, parts = scratch((2, BLOCK), f8), scratch((4, BLOCK), f8)
    for a in range(0, n, BLOCK):
        m = min(BLOCK, n - a)
        for c in range(width):
            gather(first, a, width, c, columns[0, :m])
            gather(second, a, width, c, columns[1, :m])
            for t in range(n_terms):
                cell, count = t * width + c, 1
                for j in range(m):
                    parts[0, j] = columns[left[t], j]
                if right[t] >= 0:
                    multiply(parts[0, :m], columns[right[t], :m], parts[1, :m])
                    count = 2
                for q in range(count if w.shape[0] else 0):
                    multiply(parts[q, :m], w[a : a + m], parts[count + q, :m])
                count = 2 * count if w.shape[0] else count
                for q in range(count):
                    if at.shape[0]:
                        add_rows(parts[q, :m], at[a : a + m], cells, cell, sums, often)
                    else:
                        add_block(parts[q, :m], sums, u8(cell) * u8(68))
        if (not often) and (a + m == n or (a // BLOCK) % FULL == FULL - 1):
            carry_all(sums)
    return n
