"""Entropies and mutual information of two labelings, and their mutual information by chance, with certified limits."""

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
# The largest relative error of a term, from the rounding of a share, a quotient and a logarithm.
ROUNDED = Fraction(1, 1 << 50)

MOST_ROWS = 1 << 32
"""With more rows `expect_mutual_information` takes too long: a few times their root for each pair of classes."""


class Entropies(NamedTuple):
    """Mutual information of two labelings and the entropy of each of them, in nats."""

    mutual: Limits
    true: Limits
    predicted: Limits

    @classmethod
    def of(cls, contingency: Contingency) -> Entropies:
        """Compute the entropies from a contingency table."""
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
    """Return the weighted mean of logarithms of quotients, which is not negative.

    `parts` are the weights, and `total` their sum. Each term has full relative precision. If each weight has a relative
    error e, the sum changes by about 2 e times the terms: the other first-order changes cancel, because the weights still
    sum to the total. The rest is about e**2 times the share of rows outside the largest part.
    """
    shares, logs = (parts / total).astype(np.float64), _log_quotients(tops, bottoms)
    if len(parts) == 1 or not (slip or logs.any()):
        return Limits(Fraction(0), Fraction(0), Fraction(0))
    terms, rest = shares * logs, 1 - Fraction(int(parts.max()), total)
    error = (ROUNDED + 8 * slip) * Fraction(math.fsum(np.abs(terms))) + 64 * slip * slip * rest
    return _not_negative(Fraction(max(math.fsum(terms), 0.0)), error)


def _not_negative(value: Fraction, error: Fraction) -> Limits:
    """Return limits around a number that is not negative and may be off by `error`."""
    return Limits(max(value - error, Fraction(0)), value, value + error)


def _log_quotients(tops: Any, bottoms: Any) -> Floats:
    """Return the logarithms of quotients of integers, with full precision near 1, too."""
    # Above 1/2 the logarithm is computed from the difference from 1, which keeps all digits near 1.
    above = ((tops - bottoms) / bottoms).astype(np.float64)
    near = above > -0.5
    far = np.where(near, 1.0, (tops / bottoms).astype(np.float64))
    return np.asarray(np.where(near, log1p(np.where(near, above, 0.0)), log(far)))


def expect_mutual_information(contingency: Contingency) -> Limits | None:
    """Return the mean mutual information over all permutations of a labeling; None beyond MOST_ROWS rows.

    Source: Vinh, Epps and Bailey (2010). Each pair of classes adds the mean of a function of a hypergeometric number.
    """
    true, predicted = (
        Counter((part // contingency.unit).tolist()) for part in (contingency.true, contingency.predicted)
    )
    total = contingency.total // contingency.unit
    return None if total > MOST_ROWS else _expect_by_size(tuple(true.items()), tuple(predicted.items()), total)


# The result is cached, because several metrics, or value and bounds of one metric, need it in turn.
@lru_cache(maxsize=4)
def _expect_by_size(true: Sizes, predicted: Sizes, total: int) -> Limits:
    """Return the mean mutual information, from the distinct class sizes and the number of classes of each size."""
    terms, errors = [], []
    for a, many in true:
        for b, times in predicted:
            mean, error = _expected_term(a, b, total)
            terms.append(many * times * mean)
            errors.append(many * times * error)
    return _not_negative(Fraction(max(math.fsum(terms), 0.0)), Fraction(math.fsum(errors)) * Fraction(1001, 1000))


def _expected_term(a: int, b: int, n: int) -> tuple[float, float]:
    """Return the mean of k/n log(n k / (a b)) and its error, where k rows are in both of two classes of a and b rows.

    The number k has a hypergeometric distribution. Each probability is computed from that of the neighbouring k, relative
    to the most likely k. The k that differ from it by more than 12 standard deviations plus 64 are left out: the sum of
    their probabilities is less than 2**-100 (Bernstein).
    """
    mode = (a + 1) * (b + 1) // (n + 2)
    reach = 64 + math.isqrt(144 * (a * b * (n - a) * (n - b)) // (n * n * max(n - 1, 1))) + 12
    low, high = max(0, a + b - n, mode - reach), min(a, b, mode + reach)
    # `odds` are the probabilities of k + 1 over those of k. Products upward and downward from the mode are at most 1, so
    # nothing overflows.
    k = np.arange(low, high, dtype=np.float64)
    odds = ((a - k) / (k + 1.0)) * ((b - k) / (n - a - b + k + 1.0))
    up = np.multiply.accumulate(odds[mode - low :])
    down = np.multiply.accumulate(1.0 / odds[: mode - low][::-1])[::-1]
    likely = np.concatenate([down, [1.0], up])
    k = np.arange(low, high + 1, dtype=np.float64)
    logs = log(np.maximum(k, 1.0) * float(n) / (float(a) * float(b)))
    whole, terms = math.fsum(likely.tolist()), k * logs * likely
    # Each step of a product adds a few rounding errors, and the logarithm adds an absolute error with weight k.
    error = (8.0 * len(k) + 16.0) * 2.0**-52 * (math.fsum(np.abs(terms).tolist()) + math.fsum((k * likely).tolist()))
    return math.fsum(terms.tolist()) / whole / n, error / whole / n


def divide_by_positive(a: Limits, b: Limits) -> Limits | None:
    """Return the limits of a quotient; None if the divisor can be 0 or negative."""
    if b.low <= 0:
        return None
    ends = [x / y for x in (a.low, a.high) for y in (b.low, b.high)]
    return Limits(min(ends), a.value / b.value, max(ends))


def average_entropies(a: Limits, b: Limits, method: str) -> Limits:
    """Return a mean of two entropies by one of the methods of `average_method`."""
    pairs = list(zip(a, b, strict=True))
    if method == "geometric":
        low, value, high = (Limits.root(x * y) for x, y in pairs)
        return Limits(low.low, value.value, high.high)
    if method == "arithmetic":
        return Limits(*((x + y) / 2 for x, y in pairs))
    return Limits(*(min(pair) if method == "min" else max(pair) for pair in pairs))


def less(a: Limits, b: Limits) -> Limits:
    """Return the difference of two numbers with its limits."""
    return Limits(a.low - b.high, a.value - b.value, a.high - b.low)
