"""Exact sums of per-row terms, such as log-loss, over rows whose target is a number from 0 to 1 (a soft label).

The log-loss of target t is t * L(1) + (1 - t) * L(0), where L(y) is the loss for the label y. A target of 0 or 1
therefore gives the same terms as the label 0 or 1 in `score_sums`, bit for bit. If there is only one cell (such as a
slice), rows are added block by block; otherwise, they are added one by one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ._jit import inline, kernel, outline
from ._memory import scratch
from .block_sums import (
    FINE,
    FINE_BITS,
    FINE_LOSS,
    FINE_LOSS_BITS,
    add_saturating,
    is_any_from,
    may_clip_block,
    move_heavy_rows,
    move_large_rows,
    sum_squares,
)
from .multilabel import slice_label, slice_label_weights
from .score_terms import (
    BRIER,
    HIGH,
    HIGH_BITS,
    LARGE,
    LOG_LOSS,
    LOW,
    LOW_BITS,
    PART,
    SCORE,
    add_fixed,
    fill_term,
    is_clipped,
)

f8, i8, u1, u8 = np.float64, np.int64, np.uint8, np.uint64

TARGET = 3


@outline
def fill_soft_term(
    term: Any, logit: Any, eps: Any, clip: Any, y: Any, s: Any, labels: Any, k: Any, f: Any, other: Any, out: Any
) -> None:  # fmt: skip
    """Write one term (target, score, log-loss or squared error) to `out` for rows with targets y (0 to 1) and scores s.

    `labels` holds a row of ones and a row of zeros: the labels for which log-loss is computed. If `logit` is true,
    scores are logits. Otherwise, they are probabilities, which are clipped to [eps, 1 - eps] for log-loss if `clip` is
    true. `k`, `f` and `other` are working memory.
    """
    n = s.shape[0]
    if term == TARGET:
        for j in range(n):
            out[j] = y[j]
    elif term == LOG_LOSS:
        # Compute the losses for both labels in every row, even if the target is 0 or 1. In that case, one of the losses
        # is multiplied by 0. This loss is finite, so it adds exactly 0.
        fill_term(term, logit, eps, clip, labels[0, :n], s, k, f, out)
        fill_term(term, logit, eps, clip, labels[1, :n], s, k, f, other)
        for j in range(n):
            out[j] = y[j] * out[j] + (1.0 - y[j]) * other[j]
    else:
        fill_term(SCORE, logit, eps, clip, labels[0, :n], s, k, f, out)
        if term == BRIER:
            for j in range(n):
                d = out[j] - y[j]
                out[j] = d * d


@inline
def add_number(numbers: Any, at: Any, high: Any, low: Any, stops: Any) -> None:
    """Add a number with the limbs `high` and `low` to the fixed-point sum at index `at` of `numbers`.

    If `stops` is true, a sum that reaches CEILING (see `block_sums`) stays there.
    """
    if stops:
        add_saturating(numbers, at, high, low)
    else:
        add_fixed(numbers, at, high, low)


@outline
def add_rows(v: Any, at: Any, lone: Any, magic: Any, magic_bits: Any, shift: Any, stops: Any, numbers: Any) -> None:
    """Round each number in v, which must be below 2**31, and add it to a fixed-point sum.

    v[j] is added to sum number at[j], whose two limbs start at index 2 * at[j] of `numbers`. Adding the constant
    `magic`, whose bits are `magic_bits`, rounds a number to a multiple of the value of the constant's last bit.
    Shifting such a multiple left by `shift` converts it to units of 2**-60. If `lone` is true, there is only one sum.
    If `stops` is true, a sum that reaches CEILING stays there.
    """
    # With one cell, sum the block as integers first, and add the result once.
    if lone:
        high, low = sum_squares(v, magic, magic_bits)
        add_number(numbers, u8(2) * at[0], high, low << i8(shift), stops)
    else:
        for j in range(v.shape[0]):
            t = v[j] + HIGH
            low = f8((v[j] - (t - HIGH)) + magic).view(i8) - magic_bits
            add_number(numbers, u8(2) * at[j], f8(t).view(i8) - HIGH_BITS, low << i8(shift), stops)


@outline
def add_product_rows(v: Any, at: Any, lone: Any, numbers: Any) -> None:
    """Add each product in v, rounded to a multiple of 2**-60, to the sum whose number is in `at` (see `add_rows`).

    A sum that reaches CEILING stays there. Products of 2**31 or more are added one by one and set to 0 in `v`. If
    `lone` is true, there is only one sum.
    """
    if is_any_from(v, LARGE):
        move_heavy_rows(v, at, numbers)
    add_rows(v, at, lone, LOW, LOW_BITS, 0, True, numbers)


@outline
def add_square_rows(v: Any, at: Any, lone: Any, loss: Any, numbers: Any) -> None:
    """Add each square in v, rounded to a multiple of a step (2**-41 or 2**-52), to the sum whose number is in `at`.

    The step is 2**-41 if `loss` is true (the squares of log-losses) and 2**-52 otherwise. A sum that reaches CEILING
    stays there. Squares of 2**31 or more are added one by one and set to 0 in `v`. If `lone` is true, there is only one
    sum.
    """
    if is_any_from(v, LARGE):
        move_heavy_rows(v, at, numbers)
    if loss:
        add_rows(v, at, lone, FINE_LOSS, FINE_LOSS_BITS, 19, True, numbers)
    else:
        add_rows(v, at, lone, FINE, FINE_BITS, 8, True, numbers)


@outline
def count_rows(w: Any, at: Any, lone: Any, v: Any, rows: Any, excess: Any, w2: Any) -> None:
    """Count the rows of each cell (such as a slice). If there are weights, also add w - 1 to `excess` and w**2 to `w2`.

    `at` holds the cell of each row. If `lone` is true, there is only one cell. `v` is working memory.
    """
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
        add_product_rows(v, at, lone, w2)


@outline
def add_soft(
    y: Any, s: Any, w: Any, at: Any, terms: Any, logit: Any, eps: Any,
    rows: Any, excess: Any, sums: Any, large: Any, squares: Any, crossed: Any, w2: Any, w2x: Any, clipped: Any,
) -> Any:  # fmt: skip
    """Add the terms of rows with soft labels to the sums of their cells. `sum_soft` describes the parameters."""
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
        clip = not logit and may_clip_block(eps, ss)
        for t in range(n_terms):
            loss = terms[t] == LOG_LOSS
            fill_soft_term(terms[t], logit, eps, clip, yy, ss, labels, k, f, other, xx)
            for j in range(m if weighted else 0):
                xx[j] *= ww[j]
            if is_any_from(xx, LARGE):
                move_large_rows(xx, here, n_terms, t, large, squares)
            for j in range(m):
                to[j] = here[j] * u8(n_terms) + u8(t)
                vv[j] = xx[j] * xx[j]
            add_rows(xx, to, lone, LOW, LOW_BITS, 0, False, sums)
            add_square_rows(vv, to, lone, loss, squares)
            for j in range(m if weighted else 0):
                xx[j] *= ww[j]
            for j in range(m):
                vv[j] = xx[j] * yy[j]
            add_product_rows(vv, to, lone, crossed)
            if weighted:
                add_product_rows(xx, to, lone, w2x)
            for j in range(m if loss and clip else 0):
                # The log-loss of target t gives label 1 the weight t and label 0 the weight 1 - t. A row counts as
                # clipped if the probability of a label with a weight above 0 is clipped.
                is_outside = is_clipped(eps, 1, ss[j]) if yy[j] > 0.0 else i8(0)
                is_outside |= is_clipped(eps, 0, ss[j]) if yy[j] < 1.0 else i8(0)
                clipped[to[j]] += is_outside
    return 0


@kernel(out=("rows", "excess", "sums", "large", "squares", "crossed", "w2", "w2x", "clipped"))
def sum_soft(
    y: Any, s: Any, w: Any, at: Any, terms: Any, logit: Any, eps: Any,
    rows: Any, excess: Any, sums: Any, large: Any, squares: Any, crossed: Any, w2: Any, w2x: Any, clipped: Any,
) -> Any:  # fmt: skip
    """Add the terms (such as log-loss) of rows with soft labels to the sums of their cells.

    The caller has checked all values. Without weights, `w` is empty; with one cell, `at` is empty. For a term x and a
    target t, the sums of w * x, (w * x)**2, w**2 * x * t, w**2 and w**2 * x are added to `sums`, `squares`, `crossed`,
    `w2` and `w2x`, respectively. Values of 2**31 or more are added to `large`, which is empty if no term can be that
    large. `rows` counts all rows, `clipped` counts the rows with a clipped probability, and the sums of w - 1 are added
    to `excess`. Sums are stored in flat arrays, cell by cell.
    """
    return add_soft(y, s, w, at, terms, logit, eps, rows, excess, sums, large, squares, crossed, w2, w2x, clipped)


@kernel(out=("rows", "excess", "sums", "large", "squares", "crossed", "w2", "w2x", "clipped"))
def sum_soft_multilabel(
    width: Any, y: Any, s: Any, w: Any, at: Any, terms: Any, logit: Any, eps: Any,
    rows: Any, excess: Any, sums: Any, large: Any, squares: Any, crossed: Any, w2: Any, w2x: Any, clipped: Any,
) -> Any:  # fmt: skip
    """Add the terms of rows as `sum_soft` does, but separately for each of the `width` soft labels of a row."""
    for i in range(width):
        yy, ss = slice_label(y, i, width), slice_label(s, i, width)
        total, wide, square, cross = (
            slice_label(sums, i, width),
            slice_label(large, i, width),
            slice_label(squares, i, width),
            slice_label(crossed, i, width),
        )
        add_soft(
            yy, ss, slice_label_weights(w, i, yy.shape[0]), at, terms, logit, eps, slice_label(rows, i, width),
            slice_label(excess, i, width), total, wide, square, cross, slice_label(w2, i, width),
            slice_label(w2x, i, width), slice_label(clipped, i, width),
        )  # fmt: skip
    return 0
