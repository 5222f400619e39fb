"""Distinct keys: registers and estimates as always, and runs as a loop over bits finds them."""

from __future__ import annotations

import numpy as np
import pytest
from steps import callable_step

import streammetrics as sm
from streammetrics.kernels import registers
from streammetrics.statistics.distinct import DistinctKeys
from tests.statistics.batches import counted, flats


def view(state):
    return flats(state) | {"used": state.used_registers, "estimate": state.estimate()}


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
    run_of, rng = callable_step(registers.leading_run), np.random.default_rng(0)
    rest = rng.integers(0, 1 << 63, 4000, np.uint64) >> rng.integers(0, 64, 4000).astype(np.uint64)
    rest = (rest >> np.uint64(precision)) << np.uint64(precision)
    for bits in np.r_[rest, 0, 1 << 63, 1 << precision].astype(np.uint64).tolist():
        run = 1
        while run <= 64 - precision and not (bits << (run - 1)) >> 63 & 1:
            run += 1
        assert int(run_of(np.uint64(bits), precision)) == run
    assert registers.SALT == registers.SALT


FIRST, SECOND, ALL = 0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53, (1 << 64) - 1


def hashed(key):
    """The hash of an integer, as the source of MurmurHash3 has it."""
    x = (key & ALL) ^ int(registers.SALT)
    for factor in (FIRST, SECOND):
        x = ((x ^ (x >> 33)) * factor) & ALL
    return x ^ (x >> 33)


def key_of(x):
    """The integer of a hash."""
    for factor in (SECOND, FIRST):
        x = ((x ^ (x >> 33)) * pow(factor, -1, 1 << 64)) & ALL
    x = (x ^ (x >> 33)) ^ int(registers.SALT)
    return x - (1 << 64) if x >> 63 else x


@pytest.mark.parametrize("precision", [4, 14])
@pytest.mark.parametrize("n", [1, 255, 256, 257, 3000])
def test_registers_of_a_loop(precision, n):
    """In blocks or one by one, alone or in slices: among others of hashes that end in nothing but zeros."""
    rng = np.random.default_rng(n)
    keys = rng.integers(-(1 << 63), 1 << 63, n)
    rare = [
        key_of((int(x) << (64 - precision)) | (1 << int(low) >> 1)) for x, low in rng.integers(0, 12, (n // 100 + 1, 2))
    ]
    keys[rng.integers(0, n, len(rare))] = rare
    slices = rng.integers(0, 3, n)
    wanted = np.zeros((3, 1 << precision), np.uint8)
    for key, which in zip(keys.tolist(), slices.tolist(), strict=True):
        bits = format(hashed(key), "064b")
        place, rest = int(bits[:precision], 2), bits[precision:]
        wanted[which, place] = max(wanted[which, place], len(rest) - len(rest.lstrip("0")) + 1)
    lone = sm.DistinctCount(precision=precision).update(keys)
    assert lone.state.registers.tolist() == wanted.max(axis=0).tolist()
    sliced = sm.Sliced(sm.DistinctCount(precision=precision), by="k").update(keys, k=slices)
    for which in {*slices.tolist()}:
        assert sliced[which].state.registers.tolist() == wanted[which].tolist()
