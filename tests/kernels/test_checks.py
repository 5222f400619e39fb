"""Checks of weights by their bits: every limit, alone and among others, in every place of a block."""

from __future__ import annotations

import numpy as np
import pytest

from streammetrics.kernels import checks

SMALLEST, LARGEST, WHOLE = 2.0**-36, 2.0**31, 2.0**-8
BAD = [
    -1.0, -SMALLEST, -5e-324, -1e308, -np.inf, np.nan, -np.nan, np.inf, 1e308, LARGEST, np.nextafter(SMALLEST, 0), 5e-324,
]  # fmt: skip
GOOD = [0.0, -0.0, SMALLEST, np.nextafter(WHOLE, 0), WHOLE, 1.0, 3.7, np.nextafter(LARGEST, 0)]


@pytest.mark.parametrize("n", [1, 5, 300, 5000])
@pytest.mark.parametrize("value", BAD + GOOD, ids=repr)
def test_weights(value: float, n: int) -> None:
    weights, kept = np.ones(n), np.zeros(2)
    weights[n // 2] = value
    found = checks.find_bad_weight(weights, kept)
    assert found == (value != value or value in BAD)
    if found:
        assert not kept.any()
    else:
        assert kept[0] >= weights.sum()
        assert kept[1] == (0 < value < WHOLE)
