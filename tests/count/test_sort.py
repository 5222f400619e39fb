"""Codes are sorted alike by numpy and by digits, whichever is quicker on this machine."""

from __future__ import annotations

import numpy as np
import pytest

from streammetrics.count import tallies


@pytest.mark.parametrize("numpy_is_quicker", [True, False])
@pytest.mark.parametrize("most", [1, 2, 2048, 1 << 20, 1 << 32])
@pytest.mark.parametrize("dtype", [np.uint32, np.uint64])
def test_both_ways_sort(monkeypatch, dtype, most, numpy_is_quicker):
    monkeypatch.setattr(tallies, "numpy_sorts_quicker", lambda: numpy_is_quicker)
    given = np.random.default_rng(most).integers(0, most, 2 * tallies.FEW_CODES).astype(dtype)
    made, codes = tallies.sorted_copy(given), given.copy()
    tallies.sort(codes)
    assert (made == np.sort(given)).all()
    assert (codes == made).all()
