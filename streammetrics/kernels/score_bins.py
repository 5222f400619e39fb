"""Count scores in bins of equal width, with exact bin edges.

Bin i of n contains the scores p with i/n <= p < (i + 1)/n. The last bin also contains the score 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ._jit import inline, kernel, outline
from ._memory import scratch
from .elementary import sigmoid
from .multilabel import slice_label, slice_label_weights
from .score_terms import add_fixed, has_bad_value, split_limbs

f8, i8, u8 = np.float64, np.int64, np.uint64

BLOCK = 1024
# A mask that clears the lower 29 bits of a float64. The upper half of the number, which remains, has 24 significant
# bits, so its product with n <= 2**24 is exact.
HIGH_HALF = i8(-(1 << 29))


@inline
def find_bin(p: Any, n: Any) -> Any:
    """Return the bin of the probability p among n bins of equal width. Both the bin number and n are float64."""
    high = i8(f8(p).view(i8) & HIGH_HALF).view(f8)
    # If p is slightly below k / n, the product p * n may be rounded up to k, although the correct bin is k - 1. To
    # detect this reliably, split p into two halves, whose products with n are exact. The difference high * n - k is
    # also exact, because the two numbers are close to each other.
    k = f8(i8(p * n))
    below = (high * n - k) < -((p - high) * n)
    return min(k - f8(below), n - f8(1))


@outline
def add_to_bins(
    y: Any, s: Any, w: Any, at: Any, logit: Any, n_bins: Any, rows: Any, excess: Any, sums: Any
) -> Any:  # fmt: skip
    """Count each row in its bin, and add its score to the sum for the bin. See `count_bins` for the parameters."""
    n, width = f8(n_bins), u8(n_bins)
    weighted, apart, summed = w.shape[0] != 0, at.shape[0] != 0, sums.shape[0] != 0
    if (not apart) and (not weighted) and has_bad_value(logit, y, s):
        return 1
    probabilities = scratch(BLOCK, f8)
    for a in range(0, s.shape[0], BLOCK):
        m = min(BLOCK, s.shape[0] - a)
        ss = s[a : a + m]
        for j in range(m):
            probabilities[j] = f8(ss[j])
        # Apply the sigmoid in a separate loop, which vectorizes.
        for j in range(m if logit else 0):
            probabilities[j] = sigmoid(probabilities[j])
        yy, ww, here = y[a : a + m], w[a : a + m], at[a : a + m]
        for j in range(m):
            p = probabilities[j]
            k = u8(find_bin(p, n))
            place = u8(here[j]) if apart else u8(0)
            cell = (u8(2) * place + u8(yy[j])) * width + k
            rows[cell] += 1
            term = p
            if weighted:
                high, low = split_limbs(ww[j])
                add_fixed(excess, u8(2) * cell, high - i8(1 << 20), low)
                term = p * ww[j]
            if summed:
                high, low = split_limbs(term)
                add_fixed(sums, u8(2) * (place * width + k), high, low)
    return 0


@kernel(out=("rows", "excess", "sums"))
def count_bins(
    y: Any, s: Any, w: Any, at: Any, logit: Any, n_bins: Any, rows: Any, excess: Any, sums: Any
) -> Any:  # fmt: skip
    """Count each row in the bin of its score, and add the score to the sum for the bin.

    If `logit` is true, scores are logits, and their sigmoid is used. `at` holds the cell (such as a slice) of each row.
    `rows` and `excess` (sums of w - 1) are flat arrays of cells x labels x bins. `sums` is a flat array
    of cells x bins, or empty if no sums are needed. Without weights, `w` is empty; with one cell, `at` is empty. In the
    case of one cell and no weights, rows are also checked: if a label or score is invalid, return 1 and count nothing.
    """
    return add_to_bins(y, s, w, at, logit, n_bins, rows, excess, sums)


@kernel(out=("rows", "excess", "sums"))
def count_bins_multilabel(
    width: Any, y: Any, s: Any, w: Any, at: Any, logit: Any, n_bins: Any, rows: Any, excess: Any, sums: Any
) -> Any:  # fmt: skip
    """Count rows and add scores by bin, like `count_bins`, separately for each of `width` labels."""
    for i in range(width):
        counts, extra, scores = slice_label(rows, i, width), slice_label(excess, i, width), slice_label(sums, i, width)
        yy, ss = slice_label(y, i, width), slice_label(s, i, width)
        add_to_bins(yy, ss, slice_label_weights(w, i, yy.shape[0]), at, logit, n_bins, counts, extra, scores)
    return 0
