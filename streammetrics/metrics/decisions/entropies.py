"""Entropies of two labelings, what they have in common, and what they would have by chance; with certified limits."""

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
from ...statistics.found_classes import Contingency

__all__ = ["MOST_ROWS", "Entropies", "averaged", "expected", "less", "over"]

Floats = NDArray[np.float64]
Sizes = tuple[tuple[int, int], ...]
ROUNDED = Fraction(1, 1 << 50)  # how far, relatively, terms are off by roundings: of a share, a quotient, a logarithm

MOST_ROWS = 1 << 32
"""Of more of them `expected` takes long: a few of their roots for each pair of classes."""


class Entropies(NamedTuple):
    """What two labelings have in common, and each of them, in nats."""

    mutual: Limits
    true: Limits
    predicted: Limits

    @classmethod
    def of(cls, found: Contingency) -> Entropies:
        """Compute them."""
        total, true, predicted, slip = found.total, found.true, found.predicted, found.slip
        chance = true[found.row] * predicted[found.column]
        return cls(
            _mean_log(found.both, total, total * found.both, chance, slip),
            _mean_log(true, total, np.full(len(true), total, object), true, slip),
            _mean_log(predicted, total, np.full(len(predicted), total, object), predicted, slip),
        )


def _mean_log(parts: Any, total: int, tops: Any, bottoms: Any, slip: Fraction) -> Limits:
    """The mean of the logarithms of some quotients, of which each is a part of all rows; not negative.

    Each term keeps its digits. If parts are off by a share e each, the sum moves by 2 e of the terms: what moves the
    quotients adds up to nothing, as the parts stay all rows; but for e**2 of the rows that are not in the largest part.
    """
    shares, logs = (parts / total).astype(np.float64), _log_quotients(tops, bottoms)
    if len(parts) == 1 or not (slip or logs.any()):
        return Limits(Fraction(0), Fraction(0), Fraction(0))
    terms, rest = shares * logs, 1 - Fraction(int(parts.max()), total)
    error = (ROUNDED + 8 * slip) * Fraction(math.fsum(np.abs(terms))) + 64 * slip * slip * rest
    return _not_negative(Fraction(max(math.fsum(terms), 0.0)), error)


def _not_negative(value: Fraction, error: Fraction) -> Limits:
    """A number that is not negative, and may be so far off."""
    return Limits(max(value - error, Fraction(0)), value, value + error)


def _log_quotients(tops: Any, bottoms: Any) -> Floats:
    """The logarithm of quotients of integers, of which those near 1 keep their digits."""
    above = ((tops - bottoms) / bottoms).astype(np.float64)
    near = above > -0.5
    far = np.where(near, 1.0, (tops / bottoms).astype(np.float64))
    return np.asarray(np.where(near, log1p(np.where(near, above, 0.0)), log(far)))


def expected(found: Contingency) -> Limits | None:
    """The mean of the mutual information over all permutations of one of the labelings; None of more than MOST_ROWS.

    Source: Vinh, Epps and Bailey (2010). Each pair of classes adds the mean of a function of a hypergeometric number.
    """
    true, predicted = (Counter((part // found.unit).tolist()) for part in (found.true, found.predicted))
    total = found.total // found.unit
    return None if total > MOST_ROWS else _expected(tuple(true.items()), tuple(predicted.items()), total)


@lru_cache(maxsize=4)  # two metrics, or two readings of one, ask one after the other
def _expected(true: Sizes, predicted: Sizes, total: int) -> Limits:
    """The same of classes by their size, and how many there are of each."""
    terms, errors = [], []
    for a, many in true:
        for b, times in predicted:
            mean, error = _expected_term(a, b, total)
            terms.append(many * times * mean)
            errors.append(many * times * error)
    return _not_negative(Fraction(max(math.fsum(terms), 0.0)), Fraction(math.fsum(errors)) * Fraction(1001, 1000))


def _expected_term(a: int, b: int, n: int) -> tuple[float, float]:
    """The mean of k/n log(n k / (a b)) over the number k of rows that classes of a and b rows share, and its error.

    Probabilities are multiplied up from the most likely k, each from its neighbour, as far as any of them counts: beyond
    12 standard deviations and 64 more all of them together are less than 2**-100 (Bernstein).
    """
    mode = (a + 1) * (b + 1) // (n + 2)
    reach = 64 + math.isqrt(144 * (a * b * (n - a) * (n - b)) // (n * n * max(n - 1, 1))) + 12
    low, high = max(0, a + b - n, mode - reach), min(a, b, mode + reach)
    k = np.arange(low, high, dtype=np.float64)  # the odds of k + 1 to k
    odds = ((a - k) / (k + 1.0)) * ((b - k) / (n - a - b + k + 1.0))
    up = np.multiply.accumulate(odds[mode - low :])
    down = np.multiply.accumulate(1.0 / odds[: mode - low][::-1])[::-1]
    likely = np.concatenate([down, [1.0], up])
    k = np.arange(low, high + 1, dtype=np.float64)
    logs = log(np.maximum(k, 1.0) * float(n) / (float(a) * float(b)))
    whole, terms = math.fsum(likely.tolist()), k * logs * likely
    error = (8.0 * len(k) + 16.0) * 2.0**-52 * (math.fsum(np.abs(terms).tolist()) + math.fsum((k * likely).tolist()))
    return math.fsum(terms.tolist()) / whole / n, error / whole / n


def over(a: Limits, b: Limits) -> Limits | None:
    """A quotient by what is certainly positive; otherwise None."""
    if b.low <= 0:
        return None
    ends = [x / y for x in (a.low, a.high) for y in (b.low, b.high)]
    return Limits(min(ends), a.value / b.value, max(ends))


def averaged(a: Limits, b: Limits, method: str) -> Limits:
    """The mean of two entropies."""
    pairs = list(zip(a, b, strict=True))
    if method == "geometric":
        low, value, high = (Limits.root(x * y) for x, y in pairs)
        return Limits(low.low, value.value, high.high)
    if method == "arithmetic":
        return Limits(*((x + y) / 2 for x, y in pairs))
    return Limits(*(min(pair) if method == "min" else max(pair) for pair in pairs))


def less(a: Limits, b: Limits) -> Limits:
    """A difference."""
    return Limits(a.low - b.high, a.value - b.value, a.high - b.low)
