"""One line for every metric of a column of values, and of errors: what it must equal, or have within its bounds.

References take the columns a metric reads, as float64, and weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from sklearn import metrics as sk

Array = Any


class Oracle(NamedTuple):
    """A reference for a metric of these settings; exact unless bounds are to contain it."""

    settings: dict[str, Any]
    of: Callable[..., float]
    bounded: bool = False


def fractions(values: Array) -> list[Fraction]:
    """Numbers as they are."""
    return [Fraction(v) for v in values.tolist()]


def total(v: Array, w: Array) -> Fraction:
    """The weighted sum, exactly."""
    return sum((a * b for a, b in zip(fractions(v), fractions(w), strict=True)), Fraction(0))


def variance(ddof: float) -> Callable[[Array, Array], float]:
    """The weighted variance in fractions."""

    def of(v: Array, w: Array) -> float:
        weight = sum(fractions(w))
        mean = total(v, w) / weight
        left = weight - Fraction(ddof)
        spread = sum(b * (a - mean) ** 2 for a, b in zip(fractions(v), fractions(w), strict=True))
        return float(spread / left) if left > 0 else math.nan

    return of


def quantile(q: str) -> Callable[[Array, Array], float]:
    """numpy's `averaged_inverted_cdf`, with weights, in fractions."""

    def of(v: Array, w: Array) -> float:
        order = np.argsort(v, kind="stable")
        rows = [(Fraction(v[i]), Fraction(w[i])) for i in order.tolist() if w[i] > 0]
        target, upto = Fraction(q) * sum(b for _, b in rows), Fraction(0)
        for k, (a, b) in enumerate(rows):
            upto += b
            if upto > target or k + 1 == len(rows):
                return float(a)
            if upto == target and upto > 0:
                return float((a + rows[k + 1][0]) / 2)
        raise AssertionError

    return of


def error(reference: Callable[[Array, Array], float]) -> Callable[[Array, Array, Array], float]:
    """A reference of values, for absolute errors."""
    return lambda y, p, w: reference(np.abs(p - y), w)


ORACLES: dict[str, list[Oracle]] = {
    "mean": [Oracle({}, lambda v, w: float(total(v, w) / sum(fractions(w))))],
    "sum": [Oracle({}, lambda v, w: float(total(v, w)))],
    "count": [Oracle({}, lambda v, w: float(sum(fractions(w))))],
    "variance": [Oracle({"ddof": d}, variance(d)) for d in (0.0, 1.0, 0.5)],
    "ratio": [Oracle({}, lambda n, d, w: float(total(n, w) / total(d, w)))],
    "per_unit": [
        Oracle({}, lambda unit, v, e, w: float(total(v, w) / total(e, w)) if total(e, w) else math.nan),
        Oracle({"cap": 2.5}, lambda unit, v, e, w: float(total(np.minimum(v, 2.5), w) / total(e, w))),
    ],
    "min": [Oracle({}, lambda v, w: v[w > 0].min())],
    "max": [Oracle({}, lambda v, w: v[w > 0].max())],
    "quantile": [
        *(Oracle({"q": float(q)}, quantile(q), True) for q in ("0", "0.1", "0.25", "0.5", "0.99", "1")),
        *(Oracle({"q": 0.3, "bits": bits}, quantile("0.3"), True) for bits in (1, 4, 12)),
    ],
    "error_quantile": [Oracle({"q": float(q)}, error(quantile(q)), True) for q in ("0", "0.5", "0.9", "1")],
    "residual_quantile": [
        Oracle({"q": float(q)}, lambda y, p, w, q=q: quantile(q)(p - y, w), True) for q in ("0", "0.05", "0.5", "0.9", "1")
    ],
    "median_absolute_error": [
        Oracle({}, error(quantile("0.5")), True),
        Oracle({"bits": 10}, lambda y, p, w: sk.median_absolute_error(np.repeat(y, counts(w)), np.repeat(p, counts(w))),
               True),
    ],
    "max_error": [Oracle({}, lambda y, p, w: sk.max_error(y[w > 0], p[w > 0]))],
    "distinct_sample": [
        Oracle({}, lambda v, w: len(np.unique(v))),
        Oracle({"limit": 64}, lambda v, w: len(np.unique(v)), True),
    ],
    "distinct_count": [Oracle({"precision": 16}, lambda v, w: len(np.unique(v)), True)],
}  # fmt: skip


def counts(w: Array) -> Array:
    """Weights that are multiples of 1/4 as numbers of rows."""
    return np.rint(w * 4).astype(int)
