"""Exact sums over rows of a score and a target in [0, 1]: the terms of `score_sums`, for labels that are shares.

The log-loss of target t is t L(1) + (1 - t) L(0), each L as a row of that label has it: so a target of 0 or 1 has the
terms of its label, to the bit. Rows of one cell are added up block by block, of several one by one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ._jit import inline, kernel, outline
from ._memory import scratch
from .each import each, each_weights
from .score_sums import (
    FINE,
    FINE_BITS,
    FINE_LOSS,
    FINE_LOSS_BITS,
    any_from,
    clips,
    put,
    sum_squares,
    take_heavy_rows,
    take_large_rows,
)
from .sums import BRIER, HIGH, HIGH_BITS, LARGE, LOG_LOSS, LOW, LOW_BITS, PART, SCORE, add_fixed, clipped_row, fill_part

f8, i8, u1, u8 = np.float64, np.int64, np.uint8, np.uint64

TARGET = 3


@outline
def fill_soft(
    term: Any, logit: Any, eps: Any, clip: Any, y: Any, s: Any, labels: Any, k: Any, f: Any, other: Any, out: Any
) -> None:  # fmt: skip
    """Write one term of some rows; `labels` are as many ones, then zeros; `k`, `f` and `other` are scratch."""
    n = s.shape[0]
    if term == TARGET:
        for j in range(n):
            out[j] = y[j]
    elif term == LOG_LOSS:
        fill_part(term, logit, eps, clip, labels[0, :n], s, k, f, out)
        fill_part(term, logit, eps, clip, labels[1, :n], s, k, f, other)
        for j in range(n):
            out[j] = y[j] * out[j] + (1.0 - y[j]) * other[j]
    else:
        fill_part(SCORE, logit, eps, clip, labels[0, :n], s, k, f, out)
        if term == BRIER:
            for j in range(n):
                d = out[j] - y[j]
                out[j] = d * d


@inline
def add_one(numbers: Any, at: Any, high: Any, low: Any, stops: Any) -> None:
    """Add to one number, which may be one that stops at the ceiling."""
    if stops:
        put(numbers, at, high, low)
    else:
        add_fixed(numbers, at, high, low)


@outline
def add_rows(v: Any, at: Any, lone: Any, magic: Any, magic_bits: Any, shift: Any, stops: Any, numbers: Any) -> None:
    """Add numbers below 2**31 each to its place, rounded to the grid of the magic number; `shift` makes it 2**-60."""
    if lone:
        high, low = sum_squares(v, magic, magic_bits)
        add_one(numbers, u8(2) * at[0], high, low << i8(shift), stops)
    else:
        for j in range(v.shape[0]):
            t = v[j] + HIGH
            low = f8((v[j] - (t - HIGH)) + magic).view(i8) - magic_bits
            add_one(numbers, u8(2) * at[j], f8(t).view(i8) - HIGH_BITS, low << i8(shift), stops)


@outline
def put_rows(v: Any, at: Any, lone: Any, numbers: Any) -> None:
    """Add products, multiples of 2**-60, to sums that stop at the ceiling; large ones are set to 0."""
    if any_from(v, LARGE):
        take_heavy_rows(v, at, numbers)
    add_rows(v, at, lone, LOW, LOW_BITS, 0, True, numbers)


@outline
def put_square_rows(v: Any, at: Any, lone: Any, loss: Any, numbers: Any) -> None:
    """Add squares on their grid to sums that stop at the ceiling; large ones are set to 0."""
    if any_from(v, LARGE):
        take_heavy_rows(v, at, numbers)
    if loss:
        add_rows(v, at, lone, FINE_LOSS, FINE_LOSS_BITS, 19, True, numbers)
    else:
        add_rows(v, at, lone, FINE, FINE_BITS, 8, True, numbers)


@outline
def count_rows(w: Any, at: Any, lone: Any, v: Any, rows: Any, excess: Any, w2: Any) -> None:
    """Count some rows, and with weights add w - 1 and w**2; `v` is scratch."""
    n = at.shape[0]
    for j in range(0 if lone else n):
        rows[at[j]] += 1
    rows[0] += n if lone else 0
    if w.shape[0]:
        add_rows(w, at, lone, LOW, LOW_BITS, 0, False, excess)
        for j in range(0 if lone else n):
            excess[u8(2) * at[j]] -= i8(1 << 20)
        excess[0] -= i8(n) << i8(20) if lone else i8(0)
        for j in range(n):
            v[j] = w[j] * w[j]
        put_rows(v, at, lone, w2)


@outline
def add_soft(
    y: Any, s: Any, w: Any, at: Any, terms: Any, logit: Any, eps: Any,
    rows: Any, excess: Any, sums: Any, large: Any, squares: Any, crossed: Any, w2: Any, w2x: Any, clipped: Any,
) -> Any:  # fmt: skip
    """Do what `sum_soft` does."""
    n_terms, lone, weighted = terms.shape[0], at.shape[0] == 0, w.shape[0] != 0
    k, f, other = scratch(PART, f8), scratch(PART, f8), scratch(PART, f8)
    x, v, cell, place = scratch(PART, f8), scratch(PART, f8), scratch(PART, u8), scratch(PART, u8)
    labels = scratch((2, PART), u1)
    labels[0, :], labels[1, :] = 1, 0
    for a in range(0, y.shape[0], PART):
        m = min(PART, y.shape[0] - a)
        yy, ss, ww, xx, vv, here, to = y[a : a + m], s[a : a + m], w[a : a + m], x[:m], v[:m], cell[:m], place[:m]
        for j in range(m):
            here[j] = u8(0) if lone else u8(at[a + j])
        count_rows(ww, here, lone, vv, rows, excess, w2)
        clip = not logit and clips(eps, ss)
        for t in range(n_terms):
            loss = terms[t] == LOG_LOSS
            fill_soft(terms[t], logit, eps, clip, yy, ss, labels, k, f, other, xx)
            for j in range(m if weighted else 0):
                xx[j] *= ww[j]
            if any_from(xx, LARGE):
                take_large_rows(xx, here, n_terms, t, large, squares)
            for j in range(m):
                to[j] = here[j] * u8(n_terms) + u8(t)
                vv[j] = xx[j] * xx[j]
            add_rows(xx, to, lone, LOW, LOW_BITS, 0, False, sums)
            put_square_rows(vv, to, lone, loss, squares)
            for j in range(m if weighted else 0):
                xx[j] *= ww[j]
            for j in range(m):
                vv[j] = xx[j] * yy[j]
            put_rows(vv, to, lone, crossed)
            if weighted:
                put_rows(xx, to, lone, w2x)
            for j in range(m if loss and clip else 0):
                gone = clipped_row(eps, 1, ss[j]) if yy[j] > 0.0 else i8(0)
                gone |= clipped_row(eps, 0, ss[j]) if yy[j] < 1.0 else i8(0)
                clipped[to[j]] += gone
    return 0


@kernel(out=("rows", "excess", "sums", "large", "squares", "crossed", "w2", "w2x", "clipped"))
def sum_soft(
    y: Any, s: Any, w: Any, at: Any, terms: Any, logit: Any, eps: Any,
    rows: Any, excess: Any, sums: Any, large: Any, squares: Any, crossed: Any, w2: Any, w2x: Any, clipped: Any,
) -> Any:  # fmt: skip
    """Add the terms to the cell of each row; `w` is empty without weights, `at` for a lone cell. Values are checked.

    Arrays are flat, cells first; `large` is empty where terms cannot be. `crossed` has w**2 x t.
    """
    return add_soft(y, s, w, at, terms, logit, eps, rows, excess, sums, large, squares, crossed, w2, w2x, clipped)


@kernel(out=("rows", "excess", "sums", "large", "squares", "crossed", "w2", "w2x", "clipped"))
def each_sum_soft(
    width: Any, y: Any, s: Any, w: Any, at: Any, terms: Any, logit: Any, eps: Any,
    rows: Any, excess: Any, sums: Any, large: Any, squares: Any, crossed: Any, w2: Any, w2x: Any, clipped: Any,
) -> Any:  # fmt: skip
    """Add the terms of one label after the other (see `kernels.each`)."""
    for i in range(width):
        yy, ss = each(y, i, width), each(s, i, width)
        total, wide, square, cross = (
            each(sums, i, width),
            each(large, i, width),
            each(squares, i, width),
            each(crossed, i, width),
        )
        add_soft(
            yy, ss, each_weights(w, i, yy.shape[0]), at, terms, logit, eps, each(rows, i, width),
            each(excess, i, width), total, wide, square, cross, each(w2, i, width), each(w2x, i, width),
            each(clipped, i, width),
        )  # fmt: skip
    return 0
