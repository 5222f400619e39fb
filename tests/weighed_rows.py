"""Rows with weights of every size, and what lies above their thresholds, in fractions."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

F = Fraction
Rows = list[tuple[int, float, Fraction]]
"""Label, score and weight of each row."""

WEIGHTS = ("none", "dyadic", "ordinary", "small", "wide", "mixed")


def weights_of(rng: np.random.Generator, n: int, kind: str) -> Any:
    if kind == "dyadic":
        return rng.integers(0, 9, n) / 8
    if kind == "small":
        return 2.0**-36 * (1 + rng.random(n))
    if kind == "wide":
        return 2.0 ** rng.uniform(-35.9, 30.9, n)
    if kind == "mixed":
        return rng.choice([0.0, 1.0, 2.0**-36, 2.0**-36 * (1 + 2.0**-30), 0.3, 1e-3], n)
    return rng.uniform(0.1, 10, n)


def cuts(rows: Rows) -> list[tuple[float, Fraction, Fraction]]:
    """Threshold, TP and FP of every threshold that is a score, from the highest down."""
    return [
        (t, sum((w for y, s, w in rows if y and s >= t), F(0)), sum((w for y, s, w in rows if not y and s >= t), F(0)))
        for t in sorted({s for _, s, w in rows if w}, reverse=True)
    ]


def totals(rows: Rows) -> tuple[Fraction, Fraction]:
    return sum((w for y, _, w in rows if y), F(0)), sum((w for y, _, w in rows if not y), F(0))
