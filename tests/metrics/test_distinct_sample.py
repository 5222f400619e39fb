"""Samples of keys: exact below the limit, the same however keys came, with the error they state, on both sides."""

from __future__ import annotations

import numpy as np
import pytest

import streammetrics as sm
from streammetrics.batch.columns import Batch
from streammetrics.batch.ids import Ids
from streammetrics.kernels import cells, registers
from streammetrics.statistics.groups import group_rows as rows
from streammetrics.statistics.groups import partitions as solve
from streammetrics.statistics.key_sample import SALT


def naive(keys, limit):
    """The hashes of the keys that stay, and the level: by definition."""
    ids = Batch({"k": keys}).column("k", Ids()).values
    hashes = sorted(set(solve.hashes_of(ids, SALT).tolist()))
    level = 0
    while len(kept := [h for h in hashes if h < 1 << (64 - level)]) > limit:
        level += 1
    return kept, level if kept else 0


KEYS = {
    "integers": lambda rng, n: rng.integers(-(2**40), 2**40, n),
    "in sequence": lambda rng, n: np.arange(n),
    "texts": lambda rng, n: rng.integers(0, n, n).astype("U"),
}


@pytest.mark.parametrize("keys", KEYS)
@pytest.mark.parametrize("n", [0, 16, 17, 500, pytest.param(200_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("limit", [16, 1000])
def test_what_is_kept_is_a_function_of_the_set_of_keys(keys, n, limit):
    rng = np.random.default_rng(n)
    column = KEYS[keys](rng, n)
    kept, level = naive(column, limit)
    whole = sm.DistinctSample(limit=limit).update(column)
    assert whole.state.keys.codes.tolist() == kept
    if n:
        assert int(whole.state.level) == level
    assert whole.compute() == min(len(kept) * 2.0**level, n)  # no more keys than rows
    pieces = np.array_split(rng.permutation(np.concatenate([column, column])), 7)
    again, parts = sm.DistinctSample(limit=limit), []
    for piece in pieces:
        again.update(piece)
        parts.append(sm.DistinctSample(limit=limit).update(piece))
    assert again.digest() == sm.merge(parts).digest() == sm.merge(parts[::-1]).digest()
    assert again.state.keys.codes.tolist() == kept
    assert again.explain()["rows"] == 2 * n


def test_memory_is_that_of_the_limit():
    rng = np.random.default_rng(1)
    metric = sm.DistinctSample(limit=4096)
    sizes = []
    for _ in range(60):
        metric.update(rng.integers(0, 1 << 62, 100_000))
        sizes.append(sm.nbytes(metric))
        metric.compute()
    assert max(sizes[30:]) <= max(sizes[:30])
    assert len(metric.to_bytes()) < 4096 * 12 + 500
    assert metric.compute() == pytest.approx(6e6, rel=0.1)


def test_slices_have_levels_of_their_own_and_a_total():
    rng = np.random.default_rng(2)
    keys, arm = rng.integers(0, 30_000, 200_000), rng.choice(["a", "b", "b", "b"], 200_000)
    keys = np.where(arm == "a", keys % 50, keys)
    sliced = sm.Sliced(sm.DistinctSample(limit=100), by="arm")
    for piece in np.array_split(np.arange(200_000), 9):
        sliced.update(keys[piece], arm=arm[piece])
    for name in ("a", "b"):
        assert sliced[name].digest() == sm.DistinctSample(limit=100).update(keys[arm == name]).digest()
    assert sliced.total.digest() == sm.DistinctSample(limit=100).update(keys).digest()
    assert sliced.compute()["a"] == 50
    loaded = sm.from_bytes(sliced.to_bytes())
    assert loaded.update(keys, arm=arm).compute() == sliced.compute()


@pytest.mark.slow
@pytest.mark.parametrize("limit", [16, 64, 1024])
def test_intervals_cover_the_number_of_keys(limit):
    """And of those on both sides; the share of runs is within four standard errors of 95 %, or, of few keys, above."""
    runs, n, both = 300, 3000, 900
    hit = {"keys": 0, "both": 0, "none": 0}
    errors = []
    for run in range(runs):
        rng = np.random.default_rng([limit, run])
        keys = rng.integers(0, 1 << 62, 2 * n - both)
        a, b = (sm.DistinctSample(limit=limit).update(np.tile(k, 3)) for k in (keys[:n], keys[n - both :]))
        shared, apart = a.intersection(b), a.intersection(sm.DistinctSample(limit=limit).update(-keys))
        found = a.interval()
        errors.append((found.estimate - n) / found.standard_error)
        hit["keys"] += found.low <= n <= found.high
        hit["both"] += shared.low <= both <= shared.high
        hit["none"] += apart.low <= 0 <= apart.high
        assert sm.DistinctSample(limit=limit).intersection(a).high == 0
    assert hit["none"] == runs
    assert min(hit.values()) / runs > 0.95 - 4 * (0.95 * 0.05 / runs) ** 0.5
    assert abs(np.mean(errors)) < 0.35
    assert 0.8 < np.std(errors) < 1.25


def test_sides_of_other_limits_are_brought_to_one_share():
    keys = np.arange(50_000)
    large, small = sm.DistinctSample().update(keys), sm.DistinctSample(limit=500).update(keys[:20_000])
    found = large.intersection(small)
    assert (found.estimate, found.low <= 20_000 <= found.high) == (small.compute(), True)
    assert large.intersection(sm.DistinctSample().update(keys[7:])).estimate == 49_993
    with pytest.raises(TypeError, match="DistinctCount"):
        large.intersection(sm.DistinctCount())


def test_salts_differ():
    salts = {SALT, rows.SAMPLE, solve.SHARE, int(registers.SALT), 0x5348415244000001}
    assert len(salts) == 5
    ids = np.arange(100_000)
    shard = np.empty(len(ids), np.int64)
    cells.find_unit_shards(ids, np.zeros(0, np.int64), np.uint64(0x5348415244000001), 64, shard)
    kept = solve.hashes_of(ids, SALT) >> np.uint64(61) == 0
    each = np.bincount(shard[kept], minlength=64)
    assert abs(each - len(ids) / 8 / 64).max() < 6 * (len(ids) / 8 / 64) ** 0.5


def test_bad_keys():
    metric = sm.DistinctSample().update([1, 2])
    before = metric.digest()
    with pytest.raises(sm.InvalidInputError):
        metric.update([1, None])
    assert metric.digest() == before
    skips = sm.DistinctSample(missing="skip").update([1, None, 2])
    assert (skips.compute(), skips.explain()["dropped"]) == (2.0, {"value": 1})
    with pytest.raises(sm.IncompatibleStateError, match="rows cannot be subtracted"):
        metric.state.subtract(sm.DistinctSample().update([1]).state)
