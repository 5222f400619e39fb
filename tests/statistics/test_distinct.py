"""Distinct keys: registers and estimates as always, and runs as a loop over bits finds them."""

from __future__ import annotations

import numpy as np
import pytest

from streammetrics.kernels import registers
from streammetrics.statistics.distinct import DistinctKeys
from tests.statistics.batches import counted, flats


def view(state):
    return flats(state) | {"used": state.used, "estimate": state.estimate()}


MAKERS = {
    "integers": lambda rng, n: {"value": rng.integers(0, 5000, n)},
    "bytes": lambda rng, n: {"value": rng.integers(0, 5000, n).astype("S")},
    "texts": lambda rng, n: {"value": rng.integers(0, 300, n).astype("U")},
    "wide": lambda rng, n: {"value": rng.integers(0, 1 << 64, n, np.uint64)},
}


@pytest.mark.parametrize("keys", MAKERS)
@pytest.mark.parametrize("precision", [4, 10, 14, 18])
def test_as_frozen(keys, precision):
    counted(DistinctKeys(precision=precision), MAKERS[keys], seed=1, how="none", view=view)


@pytest.mark.parametrize("precision", [4, 11, 18])
def test_every_run(precision):
    """Runs are counted by the exponent of a float: as the loop over bits does it, rare ones, too."""
    rng = np.random.default_rng(0)
    rest = rng.integers(0, 1 << 63, 4000, np.uint64) >> rng.integers(0, 64, 4000).astype(np.uint64)
    rest = (rest >> np.uint64(precision)) << np.uint64(precision)
    for bits in np.r_[rest, 0, 1 << 63, 1 << precision].astype(np.uint64).tolist():
        run = 1
        while run <= 64 - precision and not (bits << (run - 1)) >> 63 & 1:
            run += 1
        assert int(registers.run_of(np.uint64(bits), precision)) == run
    assert registers.SALT == registers.SALT
