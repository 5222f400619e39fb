"""One line for every metric of the shape of a column, of its keys and bins, and of correlations: scipy, numpy, fractions.

References take a column and weights that are multiples of 1/4, or several columns and weights.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

Array = Any


class Oracle(NamedTuple):
    """A reference for a metric of these settings, relatively within `close` of it; `over` what the column is."""

    settings: dict[str, Any]
    of: Callable[..., Any]
    over: str = "numbers"
    close: float = 1e-13


def central(v: Array, w: Array, k: int) -> Fraction:
    """The weighted mean of (v - mean)**k, in fractions."""
    rows = [(Fraction(a), Fraction(b)) for a, b in zip(v.tolist(), w.tolist(), strict=True)]
    weight = sum(b for _, b in rows)
    mean = sum(a * b for a, b in rows) / weight
    return sum((b * (a - mean) ** k for a, b in rows), Fraction(0)) / weight


def root(square: Fraction) -> float:
    """A square root of 60 digits, rounded."""
    return float(Fraction(math.isqrt(int(square * 10**120)), 10**60))


def deviation(ddof: int) -> Callable[[Array, Array], float]:
    """The standard deviation by its definition."""

    def of(v: Array, w: Array) -> float:
        weight = sum(map(Fraction, w.tolist()))
        return root(central(v, w, 2) * weight / (weight - ddof)) if weight > ddof else math.nan

    return of


def skewness(bias: bool) -> Callable[[Array, Array], float]:
    """Skewness by its definition."""

    def of(v: Array, w: Array) -> float:
        n, second, third = float(w.sum()), central(v, w, 2), central(v, w, 3)
        if not second or (not bias and n <= 2):
            return math.nan
        return math.copysign(root(third**2 / second**3), third) * (1 if bias else math.sqrt(n * (n - 1)) / (n - 2))

    return of


def kurtosis(fisher: bool, bias: bool) -> Callable[[Array, Array], float]:
    """Kurtosis by its definition."""

    def of(v: Array, w: Array) -> float:
        n, second = sum(map(Fraction, w.tolist())), central(v, w, 2)
        if not second or (not bias and n <= 3):
            return math.nan
        value = central(v, w, 4) / second**2
        if not bias:
            value = (n - 1) / ((n - 2) * (n - 3)) * ((n + 1) * value - 3 * (n - 1)) + 3
        return float(value - (3 if fisher else 0))

    return of


def weighed(v: Array, w: Array) -> Counter[Any]:
    """What each key weighs."""
    found: Counter[Any] = Counter()
    for key, weight in zip(v.tolist(), w.tolist(), strict=True):
        found[key] += weight
    return found


def hitters(k: int) -> Callable[[Array, Array], dict[Any, float]]:
    """The heaviest keys."""
    return lambda v, w: dict(sorted(((a, b) for a, b in weighed(v, w).items() if b), key=lambda p: (-p[1], p[0]))[:k])


def entropy(base: int | None) -> Callable[[Array, Array], float]:
    """Scipy's entropy of the weights."""
    return lambda v, w: stats.entropy(list(weighed(v, w).values()), base=base) if w.sum() else math.nan


def unique(v: Array, w: Array) -> float:
    """Keys of weight 1 by all weight."""
    return sum(m == 1 for m in weighed(v, w).values()) / w.sum() if w.sum() else math.nan


def histogram(edges: tuple[float, ...], density: bool) -> Callable[[Array, Array], Array]:
    """numpy's histogram."""

    def of(v: Array, w: Array) -> Array:
        with np.errstate(invalid="ignore"):
            return np.histogram(v.astype(np.float64), bins=edges, weights=w, density=density)[0].astype(np.float64)

    return of


def correlations(*columns: Array) -> Array:
    """Each correlation by its definition, in fractions."""
    *given, w = columns
    weights = [Fraction(b) for b in w.tolist()]
    moved = []
    for column in given:
        values = [Fraction(a) for a in column.tolist()]
        mean = sum(a * b for a, b in zip(values, weights, strict=True)) / (sum(weights) or 1)
        moved.append([a - mean for a in values])
    both = [[sum(x * y * b for x, y, b in zip(p, q, weights, strict=True)) for q in moved] for p in moved]

    def one(i: int, j: int) -> float:
        spread = both[i][i] * both[j][j]
        return math.copysign(root(both[i][j] ** 2 / spread), both[i][j]) if spread else math.nan

    return np.array([[one(i, j) for j in range(len(given))] for i in range(len(given))])


EDGES = (-1.0, 0.0, 0.5, 3.0)
ORACLES: dict[str, list[Oracle]] = {
    "standard_deviation": [Oracle({"ddof": float(d)}, deviation(d), close=2e-16) for d in (0, 1)],
    "skewness": [Oracle({"bias": b}, skewness(b), close=4e-16) for b in (True, False)],
    "kurtosis": [
        Oracle({"fisher": f, "bias": b}, kurtosis(f, b), close=0) for f in (True, False) for b in (True, False)
    ],
    "geometric_mean": [Oracle({}, lambda v, w: stats.gmean(v.astype(float), weights=w), "positive")],
    "harmonic_mean": [Oracle({}, lambda v, w: stats.hmean(v, weights=w), "positive")],
    "heavy_hitters": [Oracle({"k": k}, hitters(k), "keys", 0) for k in (1, 5, 1000)],
    "key_frequency": [Oracle({"key": k}, lambda v, w, k=k: float(weighed(v, w)[k]), "keys", 0) for k in (0, 3, 10**9)],
    "entropy": [Oracle({"base": b}, entropy(b), "keys") for b in (None, 2, 10)],
    "unique_share": [Oracle({}, unique, "keys", 1e-15)],
    "histogram": [Oracle({"edges": EDGES, "density": d}, histogram(EDGES, d), close=1e-15) for d in (False, True)],
    "correlation_matrix": [Oracle({"variables": ("x", "y", "z")}, correlations, "columns", 2e-16)],
}
