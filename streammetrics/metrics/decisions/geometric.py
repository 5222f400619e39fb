"""The geometric mean of the recalls of classes."""

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

BITS = 256  # of the numbers below
SURE = Fraction(1, 1 << 110)  # how far from the root, relatively, two steps end at most: see `_root`


class GeometricMeanScore(WholeMatrix, tag="geometric_mean_score"):
    """Geometric mean score: the geometric mean of recall and specificity; of classes, of the recalls of all.

    Formula: sqrt(TP / (TP + FN) TN / (TN + FP)); of K classes the K-th root of the product of c_k / t_k, of t_k rows of
    class k c_k decided rightly.

    Parameters
    ----------
    threshold, num_classes, labels, num_labels, top_k, ignore_class, average, max_labels, on_invalid
        As for Accuracy.

    Notes
    -----
    A class without rows is left out, as in BalancedAccuracy; one of which nothing is found makes it 0 (imbalanced-learn's
    `geometric_mean_score` without `correction`). Exact integers, one root, rounded once. 64 bytes, 8 a pair of classes;
    under 1 ns a row.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.GeometricMeanScore().update([0, 0, 1, 1, 1, 1], [0.1, 0.2, 0.8, 0.3, 0.2, 0.1]).compute()
    0.5
    """

    about = About(formula="sqrt(TP / (TP + FN) TN / (TN + FP))", interval_scale="logit")

    def of(self, margins: Margins) -> Limits | None:
        known = [(right, true) for right, true in zip(margins.right, margins.true, strict=True) if true]
        if not known:
            return None
        if not all(right for right, _ in known):
            return Limits.exactly(0)
        return _root(known)

    def estimate(self, found: Any, method: str) -> Estimate:
        # The gradient is that of the logarithm.
        made = super().estimate(found, method)
        return made._replace(error=made.error * found.value)

    def gradient(self, right: Any, true: Any, predicted: Any) -> Any:
        """Return how the logarithm changes."""
        held = true > 0
        inner = np.eye(len(true)) / np.where(held, right, 1.0)[:, None] - 1 / np.where(held, true, 1.0)[:, None]
        return held[:, None] * inner / np.count_nonzero(held)


def _root(quotients: Sequence[tuple[int, int]]) -> Limits:
    """The geometric mean of quotients of positive integers.

    Newton's steps from a float, of which 40 bits are right: each doubles these, but for the logarithm of their number.
    """
    k = len(quotients)
    product = _narrowed(Fraction(math.prod(a for a, _ in quotients), math.prod(b for _, b in quotients)))
    size = product.numerator.bit_length() - product.denominator.bit_length()
    rest = float(product * Fraction(1 << max(-size, 0), 1 << max(size, 0)))
    root = Fraction(float(exp((log(rest) + size * float(log(2.0))) / k)))
    for _ in range(2):
        root = _narrowed(((k - 1) * root + product / _power(root, k - 1)) / k)
    return Limits(root * (1 - SURE), root, root * (1 + SURE)) if root != 1 else Limits(root, root, root)


def _power(x: Fraction, k: int) -> Fraction:
    """A power, to BITS bits but for a few."""
    made = Fraction(1)
    for bit in f"{k:b}":
        made = _narrowed(made * made * (x if bit == "1" else 1))
    return made


def _narrowed(x: Fraction) -> Fraction:
    """The first BITS bits of a number."""
    shift = BITS - x.numerator.bit_length() + x.denominator.bit_length()
    up, down = max(shift, 0), max(-shift, 0)
    return Fraction((x.numerator << up) // (x.denominator << down) << down, 1 << up)
