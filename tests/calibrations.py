"""Calibration by the definitions, row by row, in plain numpy and fractions: what tests compare with."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

Array = Any


def uniform(p: Array, n: int) -> Array:
    """The bin of each p, i/n <= p < (i + 1)/n, in fractions."""
    return np.array([min(int(Fraction(x) * n), n - 1) for x in p.tolist()], np.int64)


def log(p: Array, n: int) -> Array:
    """The bin of each p between 0, 2**-(n - 1), ..., 1/2, 1."""
    return np.array([0 if x == 0 else max(n - 1 if x == 1 else n - 1 + math.frexp(x)[1], 0) for x in p.tolist()])


def bucket(x: float, bits: int) -> tuple[int, int]:
    """What a bucket of probabilities is known by, in ascending order: the leading bits of p, or of 1 - p above 1/2."""
    z = x if x <= 0.5 else 1 - x
    mantissa, exponent = math.frexp(z)
    steps = 1 << (bits - 6)  # to an octave; there are 32
    k = 0 if exponent <= -33 else (exponent + 32) * steps + int((mantissa - 0.5) * 2 * steps)
    k = 0 if z < math.ldexp(1 + 1 / steps, -33) else k
    return (0, k) if x <= 0.5 else (1, -k)


def quantile(p: Array, w: Array, n: int, bits: int = 16) -> Array:
    """The bin of each p: that in which the middle row of its bucket is, or of its equals while rows are few."""
    keys = p.tolist() if bits >= 16 and len(p) <= 1 << 16 else [bucket(x, bits) for x in p.tolist()]
    mass: dict[Any, Fraction] = {}
    for key, weight in zip(keys, w.tolist(), strict=True):
        mass[key] = mass.get(key, Fraction(0)) + Fraction(weight)
    total, before, bins = sum(mass.values()), Fraction(0), {}
    for key in sorted(mass):
        middle = before + mass[key] / 2
        bins[key] = min(int(n * middle / total), n - 1) if total else 0
        before += mass[key]
    return np.array([bins[key] for key in keys])


def curve(y: Array, p: Array, w: Array, bins: Array, edges: Sequence[float]) -> tuple[Any, ...]:
    """What a reliability diagram shows."""
    rows = [np.flatnonzero((bins == k) & (w > 0)) for k in range(len(edges) - 1)]

    def mean(v: Array) -> Array:
        return np.array([math.fsum(v[r] * w[r]) / math.fsum(w[r]) if len(r) else np.nan for r in rows])

    return mean(p), mean(y), np.array([math.fsum(w[r]) for r in rows]), np.array(edges)


def error(y: Array, p: Array, w: Array, bins: Array, norm: str = "l1") -> float:
    """ECE and MCE of these bins."""
    pred, true, weight, _ = curve(y, p, w, bins, range(int(bins.max()) + 2))
    gap, share = np.nan_to_num(np.abs(pred - true)), weight / weight.sum()
    return {"l1": gap @ share, "l2": math.sqrt(gap**2 @ share), "max": gap.max()}[norm]


def bucket_error(y: Array, p: Array, w: Array, n: int) -> float:
    """Paddle's BasicAucCalculator::calculate_bucket_error, line by line, in fractions instead of doubles."""
    table = [[Fraction(0)] * n, [Fraction(0)] * n]
    for label, k, weight in zip(y.tolist(), uniform(p, n).tolist(), w.tolist(), strict=True):
        table[label][k] += Fraction(weight)
    last = Fraction(-1)
    impressions = ctr_sum = clicks = error_sum = error_count = Fraction(0)
    for i in range(n):
        click, show = table[1][i], table[0][i] + table[1][i]
        ctr = Fraction(i, n)
        if abs(ctr - last) > Fraction(1, 100):
            last, impressions, ctr_sum, clicks = ctr, Fraction(0), Fraction(0), Fraction(0)
        impressions, ctr_sum, clicks = impressions + show, ctr_sum + ctr * show, clicks + click
        if not ctr_sum:
            continue  # a relative error of infinity
        adjusted = ctr_sum / impressions
        if (1 - adjusted) / (adjusted * impressions) < Fraction(1, 400):
            error_sum += abs(clicks / impressions / adjusted - 1) * impressions
            error_count += impressions
            last = Fraction(-1)
    return float(error_sum / error_count) if error_count else math.nan
