"""Entropies and mutual information of two labelings, and the mutual information expected by chance.

All results come with certified bounds that allow for their rounding errors.
"""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...numerics.elementary import log, log1p
from ...numerics.exact import Limits
from ...statistics.discovered_classes import Contingency

__all__ = ["MOST_ROWS", "Entropies", "average_entropies", "divide_by_positive", "expect_mutual_information", "less"]

Floats = NDArray[np.float64]
Sizes = tuple[tuple[int, int], ...]
# An upper bound on the relative error, due to float64 rounding, of a share times the logarithm of a quotient.
ROUNDED = Fraction(1, 1 << 50)

MOST_ROWS = 1 << 32
"""The largest number of rows for which `expect_mutual_information` computes a result. The time it takes for each pair of
classes grows with the square root of the number of rows."""


class Entropies(NamedTuple):
    """The mutual information of two labelings and the entropy of each, in nats."""

    mutual: Limits
    true: Limits
    predicted: Limits

    @classmethod
    def of(cls, contingency: Contingency) -> Entropies:
        """Compute the mutual information and both entropies from a contingency table."""
        total, true, predicted, slip = (
            contingency.total,
            contingency.true,
            contingency.predicted,
            contingency.weight_rounding,
        )
        chance = true[contingency.row] * predicted[contingency.column]
        return cls(
            _mean_log(contingency.joint, total, total * contingency.joint, chance, slip),
            _mean_log(true, total, np.full(len(true), total, object), true, slip),
            _mean_log(predicted, total, np.full(len(predicted), total, object), predicted, slip),
        )


def _mean_log(parts: Any, total: int, tops: Any, bottoms: Any, slip: Fraction) -> Limits:
    """Return the weighted mean of the logarithms of `tops` / `bottoms`, with its bounds; the mean is at least 0.

    `parts` are the weights, `total` is their sum, and `slip` is the largest relative error of a weight. Each term (a
    share times a logarithm) is computed with full relative precision. If the weights have relative errors of up to e =
    `slip`, the mean changes by about 2 * e times the sum of the absolute terms. Other first-order changes cancel,
    because the shares always sum to 1. Second-order changes are about e**2 * (1 - s), where s is the largest share.
    """
    shares, logs = (parts / total).astype(np.float64), _log_quotients(tops, bottoms)
    if len(parts) == 1 or not (slip or logs.any()):
        return Limits(Fraction(0), Fraction(0), Fraction(0))
    terms, rest = shares * logs, 1 - Fraction(int(parts.max()), total)
    error = (ROUNDED + 8 * slip) * Fraction(math.fsum(np.abs(terms))) + 64 * slip * slip * rest
    return _not_negative(Fraction(max(math.fsum(terms), 0.0)), error)


def _not_negative(value: Fraction, error: Fraction) -> Limits:
    """Return `value` with bounds that allow for an error of up to `error`; the lower bound is at least 0."""
    return Limits(max(value - error, Fraction(0)), value, value + error)


def _log_quotients(tops: Any, bottoms: Any) -> Floats:
    """Return the logarithms of `tops` / `bottoms`, with full relative precision even if a quotient is close to 1."""
    # For quotients above 1/2, log1p of the difference from 1 is used, because rounding the quotient itself would lose
    # digits of a logarithm that is close to 0.
    above = ((tops - bottoms) / bottoms).astype(np.float64)
    near = above > -0.5
    far = np.where(near, 1.0, (tops / bottoms).astype(np.float64))
    return np.asarray(np.where(near, log1p(np.where(near, above, 0.0)), log(far)))


def expect_mutual_information(contingency: Contingency) -> Limits | None:
    """Return the mean mutual information over all permutations of one labeling, or None for more than MOST_ROWS rows.

    The formula is from Vinh, Epps and Bailey (2010): a sum over pairs of classes, one from each labeling. The number of
    rows that the two classes share has a hypergeometric distribution, and each term is the expected value of a function of
    this number.
    """
    true, predicted = (
        Counter((part // contingency.unit).tolist()) for part in (contingency.true, contingency.predicted)
    )
    total = contingency.total // contingency.unit
    return None if total > MOST_ROWS else _expect_by_size(tuple(true.items()), tuple(predicted.items()), total)


# The result is cached, because the value and the bounds of a metric both need it, and so do other metrics on the same
# data.
@lru_cache(maxsize=4)
def _expect_by_size(true: Sizes, predicted: Sizes, total: int) -> Limits:
    """Return the mean mutual information over all permutations, with its bounds.

    `true` and `predicted` contain pairs of a class size and the number of classes of that size. `total` is the number
    of rows.
    """
    terms, errors = [], []
    for a, many in true:
        for b, times in predicted:
            mean, error = _expected_term(a, b, total)
            terms.append(many * times * mean)
            errors.append(many * times * error)
    return _not_negative(Fraction(max(math.fsum(terms), 0.0)), Fraction(math.fsum(errors)) * Fraction(1001, 1000))


def _expected_term(a: int, b: int, n: int) -> tuple[float, float]:
    """Return the expected value of k / n * log(n * k / (a * b)) and an upper bound on its error.

    Here n is the number of rows, and a and b are the sizes of two classes. The number k of rows that the two classes
    share has a hypergeometric distribution. The probability of each k is computed from that of the neighboring k,
    starting at the most likely k. Values of k that are farther than 12 standard deviations plus 64 from the most likely
    k are left out. By Bernstein's inequality, their total probability is less than 2**-100.
    """
    mode = (a + 1) * (b + 1) // (n + 2)
    reach = 64 + math.isqrt(144 * (a * b * (n - a) * (n - b)) // (n * n * max(n - 1, 1))) + 12
    low, high = max(0, a + b - n, mode - reach), min(a, b, mode + reach)
    # `odds` contains, for each k, the probability of k + 1 divided by that of k. Starting at the most likely k,
    # products of these ratios (upward) and of their inverses (downward) are probabilities relative to the largest one.
    # They are at most 1, so nothing overflows.
    k = np.arange(low, high, dtype=np.float64)
    odds = ((a - k) / (k + 1.0)) * ((b - k) / (n - a - b + k + 1.0))
    up = np.multiply.accumulate(odds[mode - low :])
    down = np.multiply.accumulate(1.0 / odds[: mode - low][::-1])[::-1]
    likely = np.concatenate([down, [1.0], up])
    k = np.arange(low, high + 1, dtype=np.float64)
    logs = log(np.maximum(k, 1.0) * float(n) / (float(a) * float(b)))
    whole, terms = math.fsum(likely.tolist()), k * logs * likely
    # A term is a product of up to `len(k)` ratios, and each of these adds a few rounding errors. In addition, k
    # multiplies the absolute error of the logarithm.
    error = (8.0 * len(k) + 16.0) * 2.0**-52 * (math.fsum(np.abs(terms).tolist()) + math.fsum((k * likely).tolist()))
    return math.fsum(terms.tolist()) / whole / n, error / whole / n


def divide_by_positive(a: Limits, b: Limits) -> Limits | None:
    """Return `a` / `b` with its bounds, or None if `b` could be 0 or negative."""
    if b.low <= 0:
        return None
    ends = [x / y for x in (a.low, a.high) for y in (b.low, b.high)]
    return Limits(min(ends), a.value / b.value, max(ends))


def average_entropies(a: Limits, b: Limits, method: str) -> Limits:
    """Return a mean of two entropies with its bounds.

    `method` is "arithmetic", "geometric", "min" or "max", as in the `average_method` setting.
    """
    pairs = list(zip(a, b, strict=True))
    if method == "geometric":
        low, value, high = (Limits.root(x * y) for x, y in pairs)
        return Limits(low.low, value.value, high.high)
    if method == "arithmetic":
        return Limits(*((x + y) / 2 for x, y in pairs))
    return Limits(*(min(pair) if method == "min" else max(pair) for pair in pairs))


def less(a: Limits, b: Limits) -> Limits:
    """Return `a` - `b` with its bounds."""
    return Limits(a.low - b.high, a.value - b.value, a.high - b.low)
