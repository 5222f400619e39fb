"""Exact multinomial or chi-square test, at a single look, of whether the counts of the arms fit the planned shares."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..numerics.chi_square import chi2_tail
from ..numerics.elementary import exp, log

__all__ = ["multinomial_p_value"]

# The largest number of outcomes for which the test is exact. It allows 1,048,575 users in two arms, or 1,446 in three.
MAX_OUTCOMES = 1 << 20
# Outcomes whose probabilities differ by less than this relative tolerance count as equally probable.
TIE = 1e-7
Floats = NDArray[np.float64]


def multinomial_p_value(counts: Sequence[float], shares: Sequence[float]) -> float:
    """Return the p-value of the arm counts `counts` under the hypothesis that `shares` are the arm probabilities.

    An outcome is a list of arm counts with the same total as `counts`. If there are at most `MAX_OUTCOMES` possible
    outcomes, the test is the exact multinomial test. Its p-value is the total probability of all outcomes that are at
    most as probable as `counts`. Otherwise, and for counts that are not whole numbers, the test is the chi-square test.
    """
    total = math.fsum(counts)
    is_whole = all(count == math.floor(count) for count in counts)
    if is_whole and total < MAX_OUTCOMES and math.comb(int(total) + len(counts) - 1, int(total)) <= MAX_OUTCOMES:
        return _exact_p_value([int(count) for count in counts], shares)
    expected = [total * share for share in shares]
    distance = math.fsum((count - mean) * (count - mean) / mean for count, mean in zip(counts, expected, strict=True))
    return chi2_tail(distance, len(counts) - 1)


def _exact_p_value(counts: Sequence[int], shares: Sequence[float]) -> float:
    total = sum(counts)
    # Element n is the logarithm of n! (n factorial).
    factorials = np.concatenate([[0.0], np.add.accumulate(log(np.arange(1.0, total + 1.0)))])
    logs = [float(log(np.float64(share))) for share in shares]
    # List all possible counts of users, one arm after the other. For each combination of counts in the arms so far,
    # `left` contains the number of users that remain for the later arms. `odds` contains the logarithm of the factors
    # that these counts contribute to the probability.
    left, odds = np.array([total]), factorials[-1:]
    for share in logs[:-1]:
        before = np.repeat(np.arange(len(left)), left + 1)
        count = np.arange(len(before)) - np.repeat(np.add.accumulate(left + 1) - (left + 1), left + 1)
        odds = odds[before] + count * share - factorials[count]
        left = left[before] - count
    odds = odds + left * logs[-1] - factorials[left]
    own = factorials[-1] + math.fsum(c * share - factorials[c] for c, share in zip(counts, logs, strict=True))
    return min(math.fsum(exp(odds[odds <= own + TIE])), 1.0)
