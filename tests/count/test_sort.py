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


@pytest.mark.parametrize("exact", [False, True])
def test_what_is_united_holds_no_more_than_it_says(exact):
    """Half of what waits is there already: a view would hold room for all of it."""
    rng = np.random.default_rng(1)
    held = tallies.HotExact(32, lone=True) if exact else tallies.HotTally(12, 4096, lone=False)
    for _ in range(4):
        fresh = rng.integers(0, 40_000_000, 400_000)
        if exact:
            held.room(len(fresh), None, weighted=False)
            held.low[: len(fresh)], held.used[0] = fresh % 600_000, len(fresh)
            held.settle()
        else:
            held.room(10_000, len(fresh), weighted=False)
            held.codes[: len(fresh)], held.waiting[0] = fresh % 600_000, len(fresh)
            held.settled()
    for array in (held.entries.codes, held.entries.counts):
        assert len(array) > 400_000
        assert array.base is None
