"""Metrics of the shape of a column, of keys and bins, and correlations: oracles, peers, and what they refuse."""

from __future__ import annotations

import datetime
import math
from fractions import Fraction
from typing import Any

import numpy as np
import oracles_columns as oracles
import pandas as pd
import pytest
from scipy import stats

import streammetrics as sm
from streammetrics.collect.metric_like import states_of
from streammetrics.statistics.key_counts import KeyCounts

CASES = [(tag, i) for tag in oracles.ORACLES for i in range(len(oracles.ORACLES[tag]))]
N = 300
rng = np.random.default_rng(31)


def columns() -> dict[str, tuple[Any, Any]]:
    """Three columns, and weights that are multiples of 1/4."""
    table, w = rng.normal(0, 1.5, (3, N)), rng.integers(0, 9, N) / 4
    return {
        "normal": (table, np.ones(N)),
        "weighted": (table, w),
        "float32": (table.astype(np.float32), w),
        "ties": (np.round(table), w),
        "alike": (np.full((3, N), 0.25), w),
        "far from zero": (1e8 + table, w),
        "any size": (table * np.exp2(rng.integers(-190, 190, (3, N))), w),
        "four rows": (table[:, :4], np.ones(4)),
        "two rows": (table[:, :2], np.ones(2)),
        "one row": (table[:, :1], np.ones(1)),
    }


COLUMNS = columns()


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize(("tag", "i"), CASES)
def test_random_columns(tag: str, i: int, name: str) -> None:
    table, w = COLUMNS[name]
    oracle = oracles.ORACLES[tag][i]
    given: dict[str, Any] = {
        "columns": dict(zip("xyz", table, strict=True)),
        "positive": {"value": np.abs(table[0]) + 0.25},
        "keys": {"value": np.round(table[0].astype(np.float64)).clip(-1e9, 1e9).astype(np.int64)},
        "numbers": {"value": table[0]},
    }[oracle.over]
    metric = sm.extend.METRICS[tag](**oracle.settings).update(given | {"sample_weight": w})
    expected = oracle.of(*given.values(), w)
    value = metric.reading(metric.state).value
    if isinstance(expected, dict):
        assert list(value.items()) == list(expected.items())
        return
    np.testing.assert_allclose(value, expected, rtol=oracle.close, atol=1e-15 if oracle.close else 0)
    if isinstance(value, float) and math.isnan(value):
        assert metric.reading(metric.state).reason


@pytest.mark.parametrize("name", ["normal", "float32", "far from zero", "four rows"])
def test_peers(name: str) -> None:
    v = COLUMNS[name][0][0].astype(np.float64)
    near = {"rel": 1e-6, "abs": 1e-9} if name == "far from zero" else {"rel": 1e-12}
    assert sm.Skewness().update(v).compute() == pytest.approx(stats.skew(v), **near)
    assert sm.Skewness(bias=False).update(v).compute() == pytest.approx(pd.Series(v).skew(), **near)
    assert sm.Kurtosis().update(v).compute() == pytest.approx(stats.kurtosis(v), **near)
    assert sm.Kurtosis(bias=False).update(v).compute() == pytest.approx(pd.Series(v).kurt(), **near)
    assert sm.StandardDeviation(ddof=1).update(v).compute() == pytest.approx(v.std(ddof=1), **near)


def test_powers_are_summed_without_rounding() -> None:
    v = rng.normal(0, 1, 200) * np.exp2(rng.integers(-190, 190, 200))
    w = rng.random(200)
    v[:5] = [2.0**-200, -(2.0**200), 2.0**200, 0, 2.0**-199 * (2 - 2.0**-52)]
    w[:5] = [2.0**-36, 2.0**31 * (1 - 2.0**-53), 2.0**-36 * (1 + 2.0**-52), 1, 2.0**-35 * (1 - 2.0**-53)]
    slices = sm.Sliced(sm.Kurtosis(), by="g").update(value=v, sample_weight=w, g=np.arange(200) % 3)
    whole = sm.Kurtosis().update(v, sample_weight=w)
    for state, some in [(whole.state, slice(None)), *((slices[g].state, slice(g, None, 3)) for g in range(3))]:
        rows = [(Fraction(a), Fraction(b)) for a, b in zip(v[some].tolist(), w[some].tolist(), strict=True)]
        for k in (1, 2, 3, 4):
            assert state.total("x" * k) == sum(a**k * b for a, b in rows)
    for value in (2.0**-201, 2.0**201):
        with pytest.raises(sm.InvalidInputError, match=r"between 2\*\*-200 and 2\*\*200"):
            sm.Skewness().update([value])


KEYS = {
    "integers": ([-1, 2**64 - 1, 5, 5], None),
    "texts": (["é", "a", "é", "a" * 200], None),
    "bytes": ([b"\xff", b"", b"", b"a"], None),
    "booleans": ([True, False, True, True], None),
    "dates": ([datetime.date(2024, 5, d) for d in (1, 1, 2, 3)], None),
    "nulls": (["a", None, "b", "a"], "skip"),
}


@pytest.mark.parametrize(("keys", "missing"), KEYS.values(), ids=KEYS)
def test_keys_of_every_kind(keys: list[Any], missing: str | None) -> None:
    metric = sm.HeavyHitters(9, missing=missing or "raise").update(value=keys)
    expected = {k: float(keys.count(k)) for k in sorted(keys, key=lambda k: (-keys.count(k), str(k))) if k is not None}
    assert metric.compute() == expected
    assert sm.from_bytes(metric.to_bytes()).merge(metric).compute() == {k: 2 * n for k, n in expected.items()}
    sketch = sm.KeyFrequency("a", missing=missing or "raise").update(value=keys)
    assert sketch.compute() == float(keys.count("a"))


def test_heavy_hitters_of_weights_that_are_rounded_lie_between_their_bounds() -> None:
    metric = sm.HeavyHitters(2).update([1, 1, 2], sample_weight=[2.0**-36 * (1 + 2.0**-30)] * 3)
    low, high = metric.bounds()
    assert all(low[key] < mass < high[key] for key, mass in metric.compute().items())


def test_stand_ins_are_no_keys() -> None:
    metric = sm.HeavyHitters(missing="skip", missing_values=(0, "?")).update([0, 7, 7])
    assert metric.compute() == {7: 2.0}
    assert metric.explain()["dropped"] == {"value": 1}
    assert sm.Entropy(missing="skip", missing_values=(0, "?")).update(["?", "a"]).compute() == 0.0


def test_too_many_keys() -> None:
    metric = sm.Entropy(limit=3).update(["a", "b", "c"])
    before = metric.to_bytes()
    with pytest.raises(sm.MemoryLimitError, match="4 different keys, but limit is 3; nothing was counted"):
        metric.update(["a", "d"])
    with pytest.raises(sm.MemoryLimitError, match="4 different keys"):
        metric.merge(sm.Entropy().update(["d"]))
    assert metric.to_bytes() == before
    assert metric.update(["c"]).state.mass_of("c") == 2
    with pytest.raises(sm.InvalidInputError, match="expected keys of one kind, found integer and string"):
        metric.update([1])
    with pytest.raises(sm.IncompatibleStateError, match="string here and integer there"):
        metric.merge(sm.Entropy().update([1]))


def test_read_outs_of_counted_keys() -> None:
    state = sm.HeavyHitters().update(["a"] * 5 + ["b"] * 2 + ["c"], sample_weight=[1] * 7 + [0]).state
    assert (state.masses, state.total, state.weight()) == ([2 << 60, 5 << 60], 7 << 60, 7)
    even = KeyCounts().merge(sm.Entropy().update([1, 2, 3, 4]).state)
    assert (even.gini(), even.gini(8), even.tail_share(1)) == (0.0, 0.5, 0.75)
    uneven = sm.Entropy().update([1] * 6 + [2] * 2).state
    x = np.array([2, 6])
    gaps = np.abs(x[:, None] - x[None, :]).sum() / (2 * len(x) ** 2 * x.mean())
    assert (uneven.gini(), uneven.tail_share(1), uneven.tail_share(9)) == (gaps, 0.25, 0.0)
    none = KeyCounts()
    assert all(math.isnan(x) for x in (none.gini(), none.gini(5), none.entropy(), none.tail_share(1)))


def test_entropy_of_nearly_one_key() -> None:
    state = sm.Entropy().update(["a", "b"], sample_weight=[2.0**30, 2.0**-36])
    p = 2.0**-66 / (1 + 2.0**-66)
    assert state.compute() == pytest.approx(p - p * math.log(p), rel=1e-14)


@pytest.mark.slow
def test_the_interval_of_entropy_covers() -> None:
    p = np.array([0.5, 0.3, 0.15, 0.05])
    true, hits = float(-(p * np.log(p)).sum()), 0
    for seed in range(200):
        found = sm.Entropy().update(np.random.default_rng(seed).choice(4, 500, p=p)).interval()
        hits += found.low <= true <= found.high
    assert hits >= 180


def test_a_sketch_is_never_too_low() -> None:
    keys = rng.zipf(1.3, 20000).clip(0, 10**6)
    sketch = sm.KeyFrequency(1, bits=8, depth=3).update(keys)
    counts = np.bincount(keys)
    for key in (1, 2, 77, 5000, 999_999):
        one = sm.KeyFrequency(key, bits=8, depth=3)
        low, high = one.reading(sketch.state).bounds
        assert low == 0.0
        assert counts[key] <= one.reading(sketch.state).value == high
    excess = sketch.explain()["expected_excess"]
    beyond = [
        sm.KeyFrequency(k, bits=8, depth=3).reading(sketch.state).value - counts[k] > excess for k in range(1, 200)
    ]
    assert np.mean(beyond) < 0.1
    both = sm.MetricCollection(sm.KeyFrequency(1), sm.KeyFrequency(2))
    assert len(states_of(both)) == 1


def test_what_lies_outside_of_a_histogram() -> None:
    metric = sm.Histogram((0.0, 1.0, 2.0)).update([-1, 0, 1, 2, 3, 4], sample_weight=[1, 2, 3, 4, 5, 0.5])
    np.testing.assert_array_equal(metric.compute(), [2, 7])
    assert {k: metric.explain()[k] for k in ("below", "above")} == {"below": 1.0, "above": 5.5}
    for edges in ((), (1.0,), (1.0, 1.0), (2.0, 1.0)):
        with pytest.raises(ValueError, match="edges=: expected at least two numbers in ascending order"):
            sm.Histogram(edges)
    empty = sm.Histogram((0.0, 1.0), density=True).update([5.0])
    assert np.isnan(empty.compute()).all()
    assert empty.explain()["reason"] == "no rows between the edges"


@pytest.mark.parametrize("last", [0.1, 0.7, 1e39])
def test_edges_are_not_rounded_to_the_dtype_of_the_values(last: float) -> None:
    values = np.array([0.05, 0.1, 0.7], np.float32)
    with np.errstate(all="raise"):
        found = sm.Histogram((0.0, 0.04, last)).update(values).compute()
    assert found.tolist() == np.histogram(values.astype(np.float64), (0.0, 0.04, last))[0].tolist()


def test_a_density_that_is_no_float_is_infinite() -> None:
    with np.errstate(all="raise"):
        found = sm.Histogram((0.0, 5e-324, 1.0), density=True).update([0.0, 0.5]).compute()
    assert found.tolist() == [np.inf, 0.5]


def test_columns_of_a_correlation_matrix() -> None:
    with pytest.raises(ValueError, match="expected two or more different columns"):
        sm.CorrelationMatrix(("a", "a"))
    with pytest.raises(sm.InvalidInputError, match="there is no column 'b'"):
        sm.CorrelationMatrix(("a", "b")).update(a=[1.0, 2.0])
    table = pd.DataFrame(rng.normal(size=(50, 4)), columns=list("abcd"))
    found = sm.CorrelationMatrix(tuple("abcd")).update(table).compute()
    np.testing.assert_allclose(found, table.corr().to_numpy(), rtol=1e-12)
    np.testing.assert_array_equal(found, found.T)


@pytest.mark.slow
def test_means_of_positive_values() -> None:
    for metric in (sm.GeometricMean(), sm.HarmonicMean()):
        with pytest.raises(sm.InvalidInputError, match="greater than 0"):
            metric.update([1.0, 0.0])
        v = rng.exponential(1, 400) + 0.1
        spread = [type(metric)().update(rng.choice(v, 400)).compute() for _ in range(300)]
        error = type(metric)().update(v).interval().standard_error
        assert error == pytest.approx(np.std(spread), rel=0.2)
