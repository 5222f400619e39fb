"""Wide integers against Python's own, sizes that wrap an int64 around included."""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest

from streammetrics.numerics.exact import Limits, Mass


@pytest.mark.parametrize("top", [10, 1 << 29, 1 << 30, 1 << 45, 1 << 60])
@pytest.mark.parametrize("cells", [1, 7, 4097, 70_000])
def test_masses_are_integers(top: int, cells: int) -> None:
    rng = np.random.default_rng(cells)
    a, b = (rng.integers(0, top, cells, endpoint=True) for _ in range(2))
    x, y = Mass.from_rows(a), Mass.from_rows(b)
    whole, other = a.tolist(), b.tolist()
    assert x.total() == sum(whole)
    assert x.dot(y) == sum(i * j for i, j in zip(whole, other, strict=True))
    assert x.sums_before().cell(cells - 1) == sum(whole[:-1])
    np.testing.assert_allclose(x.to_floats(), np.array(whole, float), rtol=1e-15)
    below = equal = twice = 0
    for i, j in zip(whole, other, strict=True):
        twice, equal, below = twice + i * (2 * below + j), equal + i * j, below + j
    assert x.count_pairs_above(y) == (twice, equal)


def test_sums_through_cells_of_which_only_the_last_is_large() -> None:
    rows = [3, 0, 1, 0, 1 << 31]
    mass = Mass(Mass.from_rows(np.array(rows[::-1])).digits[:, ::-1])  # as read from the highest score down
    assert [mass.sums_through().cell(i) for i in range(5)] == [sum(rows[: i + 1]) for i in range(5)]


def test_weights_of_more_rows_than_fit_120_bits() -> None:
    """Rows may be 2**62 all told, and a weight is in units of 2**-60."""
    rows, excess = np.array([3, 1 << 61, 5]), np.array([[0, 1], [0, 0], [0, 7]])
    mass = Mass.from_rows(rows, excess)
    whole = [(3 << 60) + 1, 1 << 121, (5 << 60) + 7]
    assert mass.cells(np.arange(3)) == whole
    assert mass.total() == sum(whole)
    assert [mass.sums_through().cell(i) for i in range(3)] == [whole[0], whole[0] + whole[1], sum(whole)]
    assert mass.plus(mass).cells(np.arange(3)) == [2 * w for w in whole]
    assert Mass.from_int(sum(whole)).cell(0) == sum(whole)
    doubled = mass.to_double_double()
    for i, w in enumerate(whole):
        assert abs(int(doubled.high[i]) + int(doubled.low[i]) - w) <= w >> 104


@pytest.mark.parametrize("many", [1, 2, 63, 64, 65, 400, 20_000])
@pytest.mark.parametrize("sizes", [(1, 10), (3, 200), (200, 3), (1, 900)])
def test_sums_of_quotients_are_rounded_once(many: int, sizes: tuple[int, int]) -> None:
    rng = np.random.default_rng(many)
    pairs = [
        (int(a) << int(x), int(b) << int(y))
        for a, b, x, y in zip(
            *rng.integers(1, 1 << 62, (2, many)).tolist(),
            rng.integers(0, sizes[0], many).tolist(),
            rng.integers(0, sizes[1], many).tolist(),
            strict=True,
        )
    ]
    pairs[0] = 0, 7
    total = Fraction(many, 3)
    with localcontext(prec=1200):
        truth = sum((Decimal(a) / Decimal(b) for a, b in pairs), Decimal(0)) * 3 / many
    made = Limits.quotients(pairs, total)
    assert made.to_float() == float(truth)
    assert made.round_outward() == (float(truth), float(truth))
    if many <= 65:
        exact = sum((Fraction(*pair) for pair in pairs), Fraction(0)) / total
        assert made.low <= exact <= made.high
