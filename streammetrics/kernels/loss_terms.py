"""Per-row terms of regression losses, such as |d|, where d = y_pred - y_true.

Terms are computed in float64, and each operation is rounded once. Module `row_sums` adds the terms without rounding.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ._jit import inline, outline
from .elementary import exp, log1p, near_deviance, power, x_minus_log1p
from .exact_sums import LEAST, largest_exponent

f8, i8, u8 = np.float64, np.int64, np.uint64

(ABSOLUTE, SQUARED, TARGET, NONZERO, RELATIVE, GUARDED, SYMMETRIC, LOG_SQUARED, PINBALL, HUBER, TWEEDIE) = range(11)
LOG_COSH, SIGNED_RELATIVE, MINKOWSKI, HIT, EITHER, BELOW = range(11, 17)
LOG_2 = 0.6931471805599453
# Add this number to the code of a term to get the code of its square.
SQUARE = 32
EPSILON = 2.0**-52


@inline
def poisson(y: Any, p: Any) -> Any:
    """Return y * log(y / p) - y + p, half the Poisson unit deviance, without cancellation if y is close to p."""
    if y == 0.0:
        return p
    # Unless y is much larger than p, compute the result from s - log(1 + s) for a suitable s >= 0. A separate function
    # computes this difference without cancellation.
    if p >= y:
        return y * x_minus_log1p((p - y) / y)
    s = (y - p) / p
    if s > 1.0:
        return y * log1p(s) - (y - p)
    return p * (s * s - (1.0 + s) * x_minus_log1p(s))


@inline
def gamma(y: Any, p: Any) -> Any:
    """Return log(p / y) + y / p - 1, half the gamma unit deviance, without cancellation if y is close to p."""
    if y >= p:
        return x_minus_log1p((y - p) / p)
    s = (p - y) / y
    if s > 1.0:
        return log1p(s) - s / (1.0 + s)
    return s * s / (1.0 + s) - x_minus_log1p(s)


@inline
def tweedie(y: Any, p: Any, k: Any) -> Any:
    """Return half the Tweedie unit deviance of a target y and a prediction p, for a power k that is not 0, 1 or 2."""
    # If y is close to p, the terms in the usual formula would cancel, so use another formula.
    if abs(y - p) * 32.0 <= p:
        return near_deviance((y - p) / p, k) * power(p, 2.0 - k)
    first = power(y, 2.0 - k) / ((1.0 - k) * (2.0 - k)) if y > 0.0 else 0.0
    return first - y * power(p, 1.0 - k) / (1.0 - k) + power(p, 2.0 - k) / (2.0 - k)


@outline
def fill_deviance(k: Any, y: Any, p: Any, out: Any) -> None:
    """Write the Tweedie unit deviance, with power k, of targets y and predictions p.

    Negative results, which are rounding errors, become 0.
    """
    if k == 0.0:
        for j in range(out.shape[0]):
            out[j] = (y[j] - p[j]) * (y[j] - p[j])
    elif k == 1.0:
        for j in range(out.shape[0]):
            out[j] = 2.0 * max(poisson(y[j], p[j]), 0.0)
    elif k == 2.0:
        for j in range(out.shape[0]):
            out[j] = 2.0 * max(gamma(y[j], p[j]), 0.0)
    else:
        for j in range(out.shape[0]):
            out[j] = 2.0 * max(tweedie(y[j], p[j], k), 0.0)


@inline
def log_cosh(d: Any) -> Any:
    """Return log(cosh(d)). Close to 0, the power series is used, because the general formula would lose digits."""
    x, s = abs(d), d * d
    if x < 0.05:
        return s * (0.5 - s * (1.0 / 12.0 - s * (1.0 / 45.0 - s * (17.0 / 2520.0 - s * (31.0 / 14175.0)))))
    return (x - LOG_2) + log1p(exp(-2.0 * x))


@outline
def fill_rare_term(term: Any, k: Any, y: Any, p: Any, out: Any) -> None:
    """Write a less common term for every row in a block. k is the parameter of the term, such as an exponent.

    y holds the targets and p the predictions. Three terms are 1 or 0: HIT is 1 if the target and the prediction are
    both at least k, EITHER is 1 if at least one of them is, and BELOW is 1 if the target is at most the prediction.
    """
    n = out.shape[0]
    if term == LOG_COSH:
        for j in range(n):
            out[j] = log_cosh(p[j] - y[j])
    elif term == SIGNED_RELATIVE:
        for j in range(n):
            out[j] = (p[j] - y[j]) / abs(y[j]) if y[j] != 0.0 else 0.0
    elif term == MINKOWSKI:
        for j in range(n):
            x = abs(p[j] - y[j])
            out[j] = x if k == 1.0 else x * x if k == 2.0 else power(x, k) if x > 0.0 else 0.0
    elif term == HIT:
        for j in range(n):
            out[j] = f8(y[j] >= k) * f8(p[j] >= k)
    elif term == EITHER:
        for j in range(n):
            out[j] = max(f8(y[j] >= k), f8(p[j] >= k))
    else:
        for j in range(n):
            out[j] = f8(y[j] <= p[j])


@outline
def fill_term(term: Any, k: Any, y: Any, p: Any, out: Any) -> Any:
    """Write the term with the code `term`, such as |p - y|, for every row in a block. k is the parameter of the term.

    y holds the targets and p the predictions. Return the biased exponent of the largest value, which is needed to add
    the values without rounding.
    """
    if term == ABSOLUTE:
        top = i8(0)
        for j in range(out.shape[0]):
            x = abs(p[j] - y[j])
            size = f8(x).view(i8)
            out[j] = x
            top = size if size > top else top
        return max(top >> i8(52), LEAST)
    if term == SQUARED:
        top = i8(0)
        for j in range(out.shape[0]):
            d = p[j] - y[j]
            x = d * d
            size = f8(x).view(i8)
            out[j] = x
            top = size if size > top else top
        return max(top >> i8(52), LEAST)
    fill_other_term(term, k, y, p, out)
    return largest_exponent(out)


@outline
def fill_other_term(term: Any, k: Any, y: Any, p: Any, out: Any) -> None:
    """Write a term other than |p - y| and (p - y)**2 for every row in a block. k is the parameter of the term.

    y holds the targets and p the predictions.
    """
    n = out.shape[0]
    if term == TARGET:
        for j in range(n):
            out[j] = abs(y[j])
    elif term == NONZERO:
        for j in range(n):
            out[j] = f8(y[j] != 0.0)
    elif term == RELATIVE:
        for j in range(n):
            # The relative error is undefined for a target of 0; `sum_losses` counts such rows.
            out[j] = abs(p[j] - y[j]) / abs(y[j]) if y[j] != 0.0 else 0.0
    elif term == GUARDED:
        for j in range(n):
            out[j] = abs(p[j] - y[j]) / max(abs(y[j]), EPSILON)
    elif term == SYMMETRIC:
        for j in range(n):
            size = abs(p[j]) + abs(y[j])
            out[j] = 2.0 * abs(p[j] - y[j]) / size if size != 0.0 else 0.0
    elif term == LOG_SQUARED:
        for j in range(n):
            d = log1p(p[j]) - log1p(y[j])
            out[j] = d * d
    elif term == PINBALL:
        for j in range(n):
            d = y[j] - p[j]
            out[j] = k * d if d >= 0.0 else (k - 1.0) * d
    elif term == HUBER:
        for j in range(n):
            d = abs(p[j] - y[j])
            out[j] = 0.5 * d * d if d <= k else k * (d - 0.5 * k)
    elif term == TWEEDIE:
        fill_deviance(k, y, p, out)
    else:
        fill_rare_term(term, k, y, p, out)


@outline
def fill_squared_term(term: Any, k: Any, y: Any, p: Any, out: Any) -> Any:
    """Write the square of a term for every row in a block. Return the biased exponent of the largest square."""
    fill_term(term - SQUARE, k, y, p, out)
    top = i8(0)
    for j in range(out.shape[0]):
        x = out[j] * out[j]
        size = f8(x).view(i8)
        out[j] = x
        top = size if size > top else top
    return max(top >> i8(52), LEAST)


@outline
def gather_column(values: Any, first: Any, width: Any, c: Any, out: Any) -> None:
    """Copy column c of a block, which starts at row `first`, to `out` as float64. Each row has `width` values."""
    if width == 1:
        block = values[first : first + out.shape[0]]
        for j in range(out.shape[0]):
            out[j] = f8(block[j])
    else:
        for j in range(out.shape[0]):
            out[j] = f8(values[u8(first + j) * u8(width) + u8(c)])
