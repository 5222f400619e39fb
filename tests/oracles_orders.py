"""One line for every metric of the order of two numbers: over all pairs of rows, in fractions.

A weight counts as so many equal rows, so a pair weighs the product, and a row pairs with itself as often as it can.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

Array = Any


def pairs(y: Array, p: Array, w: Array) -> dict[str, Fraction]:
    """What pairs of rows weigh, by their order: the same C, the other D, equal targets X, equal predictions Y, both B."""
    W = [Fraction(v) for v in w.tolist()]
    order = np.sign(y[:, None] - y), np.sign(p[:, None] - p)
    total = sum(W)

    def weigh(which: Array) -> Fraction:
        return (
            sum(
                (W[i] * sum((W[j] for j in np.flatnonzero(row)), Fraction(0)) for i, row in enumerate(which)),
                Fraction(0),
            )
            / 2
        )

    both = (order[0] == 0) & (order[1] == 0)
    return {
        "C": weigh(order[0] * order[1] > 0),
        "D": weigh(order[0] * order[1] < 0),
        "X": weigh((order[0] == 0) & ~both),
        "Y": weigh((order[1] == 0) & ~both),
        "B": weigh(both) - total / 2,
        "P": (total * total - total) / 2,
        "n": total,
    }


def root(square: Fraction) -> float:
    """A square root, rounded once, of a fraction that may have any number of digits."""
    return math.sqrt(square.numerator / square.denominator)


def kendall(variant: str) -> Any:
    """Kendall's tau."""

    def of(y: Array, p: Array, w: Array) -> float:
        m, held = pairs(y, p, w), w > 0
        top = m["C"] - m["D"]
        least = min(len(np.unique(y[held])), len(np.unique(p[held])))
        if variant == "a":
            return float(top / m["P"]) if m["P"] > 0 else math.nan
        if least < 2:
            return math.nan
        if variant == "c":
            return float(2 * top * least / (m["n"] ** 2 * (least - 1)))
        square = top * top / ((m["C"] + m["D"] + m["X"]) * (m["C"] + m["D"] + m["Y"]))
        return math.copysign(root(square), top)

    return of


def ranks(values: Array, w: Array) -> list[Fraction]:
    """The middle of the ranks of each row, all less their mean."""
    W = [Fraction(v) for v in w.tolist()]
    below = [sum((b for b, less in zip(W, values < v, strict=True) if less), Fraction(0)) for v in values]
    equal = [sum((b for b, same in zip(W, values == v, strict=True) if same), Fraction(0)) for v in values]
    return [b + e / 2 - sum(W) / 2 for b, e in zip(below, equal, strict=True)]


def spearman(y: Array, p: Array, w: Array) -> float:
    """The correlation of ranks."""
    a, b, W = ranks(y, w), ranks(p, w), [Fraction(v) for v in w.tolist()]
    ab, aa, bb = (
        sum((c * i * j for c, i, j in zip(W, u, v, strict=True)), Fraction(0)) for u, v in ((a, b), (a, a), (b, b))
    )
    return math.copysign(root(ab * ab / (aa * bb)), ab) if aa and bb else math.nan


def xauc(y: Array, p: Array, w: Array) -> float:
    """The share of pairs in the right order."""
    m = pairs(y, p, w)
    return float((m["C"] + m["B"]) / m["P"]) if m["P"] > 0 else math.nan


def regression_auc(which: str) -> Any:
    """The share of pairs of different targets in the right order, or of all pairs in no wrong one."""

    def of(y: Array, p: Array, w: Array) -> float:
        m = pairs(y, p, w)
        if which == "all":
            return float(1 - m["D"] / m["P"]) if m["P"] > 0 else math.nan
        some = m["C"] + m["D"] + m["Y"]
        return float((m["C"] + m["Y"] / 2) / some) if some else math.nan

    return of


ORACLES: dict[str, list[tuple[dict[str, Any], Any]]] = {
    "spearman_correlation": [({}, spearman)],
    "kendall_correlation": [({"variant": v}, kendall(v)) for v in ("b", "a", "c")],
    "xauc": [({}, xauc)],
    "regression_auc": [({"pairs": v}, regression_auc(v)) for v in ("different", "all")],
}
