"""The heaviest matching, against scipy's: of tables of any shape, with gaps, ties, and numbers beyond int64."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from streammetrics.numerics.linear_assignment import max_matching_weight

BEYOND = 3**45
"""Times this no table is int64; and its sums are no powers of two."""


def table(rng: np.random.Generator) -> np.ndarray:
    """Some pairs of each row and column, of few different weights or of many."""
    rows, columns = rng.integers(1, 9, 2)
    made = rng.integers(1, rng.choice([2, 5, 1 << 40]), (rows, columns)) * (rng.random((rows, columns)) < rng.random())
    made[made.sum(axis=1) == 0, rng.integers(columns)] = 1
    made[rng.integers(rows), made.sum(axis=0) == 0] = 1
    return made


@pytest.mark.parametrize("first", range(0, 400, 50))
def test_no_matching_is_heavier(first: int) -> None:
    for seed in range(first, first + 50):
        check_heaviest(np.random.default_rng(seed))


def check_heaviest(rng: np.random.Generator) -> None:
    made = table(rng)
    row, column = rng.permutation(np.argwhere(made)).T
    best = int(made[linear_sum_assignment(made, maximize=True)].sum())
    weight = made[row, column].astype(object)
    assert max_matching_weight(row, column, weight) == max_matching_weight(column, row, weight) == best
    assert max_matching_weight(row, column, weight * BEYOND) == best * BEYOND
    beside = weight * BEYOND + np.arange(len(row))  # no common divisor: Python's integers, and of ties the later pairs
    least = best * BEYOND
    assert least <= max_matching_weight(row, column, beside) < least + len(row) ** 2


def test_what_is_shorter_is_taken_back() -> None:
    """The first row takes the only column, and gives it to the second, which is heavier."""
    assert max_matching_weight(np.array([0, 1]), np.array([0, 0]), np.array([3, 5], object)) == 5
    assert max_matching_weight(np.array([0, 0, 1]), np.array([0, 1, 0]), np.array([9, 8, 5], object)) == 13
