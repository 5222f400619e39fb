"""Numbers of 106 bits against fractions."""

from __future__ import annotations

import operator
from fractions import Fraction

import numpy as np
import pytest

from streammetrics.numerics.double_double import ERROR, DoubleDouble
from streammetrics.numerics.exact import Limits, Mass, ratios, to_float, weight_rounding


def whole(x: DoubleDouble) -> list[Fraction]:
    return [Fraction(a) + Fraction(b) for a, b in zip(x.high.tolist(), x.low.tolist(), strict=True)]


def drawn(rng: np.random.Generator, n: int) -> tuple[Mass, list[int]]:
    """Integers of up to 102 bits, of all sizes."""
    made = [
        int(rng.integers(1, 1 << 51)) * int(rng.integers(1, 1 << 51)) >> int(rng.integers(0, 100)) for _ in range(n)
    ]
    return Mass(np.array([[v >> 20 * i & 0xFFFFF for v in made] for i in range(6)], np.int64)), made


@pytest.mark.parametrize("name", ["add", "mul", "truediv"])
def test_operations_are_within_their_error(name: str) -> None:
    rng = np.random.default_rng(5)
    (x, a), (y, b) = drawn(rng, 3000), drawn(rng, 3000)
    y, b = (y, b) if name != "truediv" else (Mass(np.maximum(y.digits, np.eye(6, 1, dtype=np.int64))), b)
    assert whole(x.to_double_double()) == a
    b = [int(v) for v in whole(y.to_double_double())]
    found = whole(getattr(operator, name)(x.to_double_double(), y.to_double_double()))
    for p, q, r in zip(a, b, found, strict=True):
        truth = getattr(operator, name)(Fraction(p), Fraction(q))
        assert abs(r - truth) <= truth * Fraction(ERROR)


def test_integers_of_62_bits_and_ratios_are_right() -> None:
    rng = np.random.default_rng(6)
    some = rng.integers(0, 1 << 62, 1000) >> rng.integers(0, 62, 1000)
    assert whole(DoubleDouble.from_ints(some)) == some.tolist()
    x, a = drawn(rng, 500)
    total = x.total()
    assert ratios(x, Mass.from_int(total)).tolist() == [to_float(v, total) for v in a]
    assert np.isnan(ratios(x, Mass.from_int(0))).all()
    assert x.sums_through().cells(np.arange(500)) == np.cumsum(np.array(a, object)).tolist()


def test_roots_are_rounded_once_and_limits_outward() -> None:
    rng = np.random.default_rng(7)
    for _ in range(300):
        square = Fraction(int(rng.integers(0, 1 << 40)), int(rng.integers(1, 1 << 40)))
        low, value, high = Limits.root(square)
        assert low * low <= square <= high * high
        assert (high - low) <= value * Fraction(2) ** -100
    assert Limits.root(Fraction(9, 4)) == (Fraction(3, 2),) * 3
    assert to_float(1 << 2000) == float("inf")
    assert to_float(-(1 << 2000)) == -float("inf")


def test_the_slip_of_weights() -> None:
    rows, excess = np.array([3, 0, 5]), np.zeros((3, 2), np.int64)
    assert weight_rounding(rows, None) == 0
    assert Fraction(1, 1 << 61) <= weight_rounding(rows, excess) <= Fraction(11, 10 << 61)
    excess[2, 0] = -5 << 20  # rows of weight 0 alone
    excess[0] = (-2 << 20) - (1 << 20), 3 << 24  # three rows of the smallest weight
    assert Fraction(1, 1 << 25) <= weight_rounding(rows, excess) <= Fraction(11, 10 << 25)
