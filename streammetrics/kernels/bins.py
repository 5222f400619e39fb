"""Counting scores by bins of equal width, each bin exactly where its edges say.

Bin i of n holds i/n <= p < (i + 1)/n, the last one 1 as well. The product p n may round up to i although p lies below
i/n; so it is formed in two halves that are exact, and compared with i as it is.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ._jit import inline, kernel, outline
from ._memory import scratch
from .each import each, each_weights
from .elementary import sigmoid
from .sums import add_fixed, bad_values, split

f8, i8, u8 = np.float64, np.int64, np.uint64

BLOCK = 1024
HIGH_HALF = i8(-(1 << 29))  # of a float64: 24 significant bits, so that a product with n <= 2**24 is exact


@inline
def bin_of(p: Any, n: Any) -> Any:
    """Return the bin of p in [0, 1], as a float64; n, the number of bins, is one too."""
    high = i8(f8(p).view(i8) & HIGH_HALF).view(f8)
    k = f8(i8(p * n))  # right, or one too many
    below = (high * n - k) < -((p - high) * n)  # all three exact: the first is a difference of neighbours
    return min(k - f8(below), n - f8(1))


@outline
def add(
    y: Any, s: Any, w: Any, at: Any, logit: Any, n_bins: Any, rows: Any, excess: Any, sums: Any
) -> Any:  # fmt: skip
    """Do what `count` does."""
    n, width = f8(n_bins), u8(n_bins)
    weighted, apart, summed = w.shape[0] != 0, at.shape[0] != 0, sums.shape[0] != 0
    if (not apart) and (not weighted) and bad_values(logit, y, s):
        return 1
    probabilities = scratch(BLOCK, f8)
    for a in range(0, s.shape[0], BLOCK):
        m = min(BLOCK, s.shape[0] - a)
        ss = s[a : a + m]
        for j in range(m):
            probabilities[j] = f8(ss[j])
        for j in range(m if logit else 0):  # loops of their own vectorise
            probabilities[j] = sigmoid(probabilities[j])
        yy, ww, here = y[a : a + m], w[a : a + m], at[a : a + m]
        for j in range(m):
            p = probabilities[j]
            k = u8(bin_of(p, n))
            place = u8(here[j]) if apart else u8(0)
            cell = (u8(2) * place + u8(yy[j])) * width + k
            rows[cell] += 1
            term = p
            if weighted:
                high, low = split(ww[j])
                add_fixed(excess, u8(2) * cell, high - i8(1 << 20), low)
                term = p * ww[j]
            if summed:
                high, low = split(term)
                add_fixed(sums, u8(2) * (place * width + k), high, low)
    return 0


@kernel(out=("rows", "excess", "sums"))
def count(
    y: Any, s: Any, w: Any, at: Any, logit: Any, n_bins: Any, rows: Any, excess: Any, sums: Any
) -> Any:  # fmt: skip
    """Count each row in its bin, and add its score.

    `rows` and `excess` are flat: cell, label, bin; `sums`: cell, bin, or empty if nobody asks. `w` and `at` are empty for
    no weights and a lone cell; which without weights is checked here: 1, and nothing counted, if a value is bad.
    """
    return add(y, s, w, at, logit, n_bins, rows, excess, sums)


@kernel(out=("rows", "excess", "sums"))
def each_count(
    width: Any, y: Any, s: Any, w: Any, at: Any, logit: Any, n_bins: Any, rows: Any, excess: Any, sums: Any
) -> Any:  # fmt: skip
    """Count rows of one label after the other (see `kernels.each`)."""
    for i in range(width):
        counts, extra, scores = each(rows, i, width), each(excess, i, width), each(sums, i, width)
        yy, ss = each(y, i, width), each(s, i, width)
        add(yy, ss, each_weights(w, i, yy.shape[0]), at, logit, n_bins, counts, extra, scores)
    return 0
