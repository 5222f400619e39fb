"""The geometric mean score, computed from the recall of each class."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from ...numerics.elementary import exp, log
from ...numerics.exact import Limits
from ...reading.about import About
from ...reading.interval import Estimate
from ...statistics.classes import Margins
from .multiclass import WholeMatrix

__all__ = ["GeometricMeanScore"]

# The precision, in bits, to which each intermediate result of Newton's method is rounded.
BITS = 256
# An upper bound on the relative error of the root. `_root` starts with 40 correct bits, and each of its two Newton
# steps about doubles their number.
SURE = Fraction(1, 1 << 110)


class GeometricMeanScore(WholeMatrix, tag="geometric_mean_score"):
    """Geometric mean score: the geometric mean of recall and specificity, or of the recalls of several classes.

    Formula: sqrt(TP * TN / ((TP + FN) * (TN + FP))). For several classes, it is the K-th root of the product of
    c_k / t_k over K classes, where t_k rows belong to class k and c_k of them are predicted correctly.

    Notes
    -----
    A class without rows is left out, as in BalancedAccuracy. A class with a recall of 0 makes the value 0 (as in
    imbalanced-learn's `geometric_mean_score` without `correction`). The value is computed from exact integer counts,
    with a single root, and rounded once.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.GeometricMeanScore().update([0, 0, 1, 1, 1, 1], [0.1, 0.2, 0.8, 0.3, 0.2, 0.1]).compute()
    0.5
    """

    about = About(formula="sqrt(TP TN / ((TP + FN) (TN + FP)))", interval_scale="logit")

    def of(self, margins: Margins) -> Limits | None:
        known = [(right, true) for right, true in zip(margins.correct, margins.true, strict=True) if true]
        if not known:
            return None
        if not all(right for right, _ in known):
            return Limits.exactly(0)
        return _root(known)

    def estimate(self, reading: Any, method: str) -> Estimate:
        # `gradient` returns the gradient of the logarithm of the value. The standard error computed from it is
        # therefore relative, so it is multiplied by the value.
        estimate = super().estimate(reading, method)
        return estimate._replace(error=estimate.error * reading.value)

    def gradient(self, right: Any, true: Any, predicted: Any) -> Any:
        """Return the derivative of log(value) with respect to each confusion-matrix count, times the number of rows.

        The parameters are the same as for `WholeMatrix.gradient`.
        """
        occurs = true > 0
        inner = np.eye(len(true)) / np.where(occurs, right, 1.0)[:, None] - 1 / np.where(occurs, true, 1.0)[:, None]
        return occurs[:, None] * inner / np.count_nonzero(occurs)


def _root(quotients: Sequence[tuple[int, int]]) -> Limits:
    """Return the geometric mean of quotients of positive integers, with its bounds.

    Each quotient is a pair (numerator, denominator). Newton's method starts from a float with 40 correct bits. With k
    quotients, a step turns b correct bits into about 2 * b - log2(k).
    """
    k = len(quotients)
    product = _round_to_bits(Fraction(math.prod(a for a, _ in quotients), math.prod(b for _, b in quotients)))
    # The product can be too large or too small for a float. It is therefore written as `rest` * 2**`size`, with `rest`
    # near 1, and the logarithms of the two factors are added.
    size = product.numerator.bit_length() - product.denominator.bit_length()
    rest = float(product * Fraction(1 << max(-size, 0), 1 << max(size, 0)))
    root = Fraction(float(exp((log(rest) + size * float(log(2.0))) / k)))
    for _ in range(2):
        root = _round_to_bits(((k - 1) * root + product / _power(root, k - 1)) / k)
    return Limits(root * (1 - SURE), root, root * (1 + SURE)) if root != 1 else Limits(root, root, root)


def _power(x: Fraction, k: int) -> Fraction:
    """Return x to the power k, with every product rounded down to BITS bits."""
    power = Fraction(1)
    for bit in f"{k:b}":
        power = _round_to_bits(power * power * (x if bit == "1" else 1))
    return power


def _round_to_bits(x: Fraction) -> Fraction:
    """Round a positive number down to its leading BITS bits."""
    shift = BITS - x.numerator.bit_length() + x.denominator.bit_length()
    up, down = max(shift, 0), max(-shift, 0)
    return Fraction((x.numerator << up) // (x.denominator << down) << down, 1 << up)
