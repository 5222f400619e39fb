"""Metrics of values, and quantiles of errors: oracles on awkward columns, certified bounds, distinct counts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import oracles_values as oracles
import pytest

import streammetrics as sm
from streammetrics.collect.metric_like import states_of
from streammetrics.state.levels import find_buckets

CASES = [(tag, i) for tag in oracles.ORACLES for i in range(len(oracles.ORACLES[tag]))]
N = 400
rng = np.random.default_rng(22)


def columns() -> dict[str, tuple[Any, Any, Any]]:
    """Two columns and weights, multiples of 1/4."""
    v, u = rng.normal(0, 3, N), rng.normal(0, 3, N)
    ones, w = np.ones(N), rng.integers(0, 9, N) / 4
    return {
        "normal": (v, u, ones),
        "weighted": (v, u, w),
        "float32": (v.astype(np.float32), u.astype(np.float32), w),
        "ties, zeros, both signs": (np.round(v), np.round(u), w),
        "integers": (rng.integers(-300, 300, N), rng.integers(1, 9, N), w),
        "all alike": (np.full(N, 0.1), np.full(N, 0.3), ones),
        "far from zero": (1e8 + v, 1e8 + u, w),
        "any size": (v * np.exp2(rng.integers(-390, 390, N)), u * np.exp2(rng.integers(-390, 390, N)), w),
        "two rows": (v[:2], u[:2], ones[:2]),
        "one row": (v[:1], u[:1], ones[:1]),
    }


COLUMNS = columns()


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize(("tag", "i"), CASES)
def test_random_columns(tag: str, i: int, name: str) -> None:
    v, u, w = COLUMNS[name]
    oracle = oracles.ORACLES[tag][i]
    metric = sm.extend.METRICS[tag](**oracle.settings)
    roles = [n.role for n in metric.make_state().needs()]
    given = dict(zip(roles, (v, u), strict=False))
    if tag == "per_unit":
        given = {"unit": np.arange(len(v)) // 3, "outcome": v, "exposed": np.arange(len(v)) % 3 == 0}
    if tag in ("distinct_count", "distinct_sample"):
        given["value"] = v.view(np.int64 if v.dtype.itemsize == 8 else np.int32)
    elif "sample_weight" in roles:
        given["sample_weight"] = w
    wide = [given[r] if r == "value" and tag == "distinct_sample" else given[r].astype(np.float64) for r in roles
            if r != "sample_weight"]  # fmt: skip
    expected = oracle.of(*wide, w)
    metric.update(given)
    value, (low, high) = metric.reading(metric.state).value, metric.bounds()
    if not oracle.bounded:
        np.testing.assert_array_equal([value, low, high], [expected] * 3)
        return
    assert low <= expected <= high
    assert low <= value <= high
    if bits := getattr(metric, "bits", None):
        size = max(abs(low), abs(high))
        assert high - low <= 2.0**-bits * size
    if tag == "distinct_count":
        assert value == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize("seed", range(20))
def test_quantiles_are_numpys(seed: int) -> None:
    r = np.random.default_rng(seed)
    v = np.round(r.normal(0, 50, int(r.integers(1, 60))))  # integers up to 256: certified exact
    w = r.integers(0, 4, len(v)).astype(float)
    w[0] = 1
    for q in (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0):
        metric = sm.Quantile(q=q, bits=9).update(v)
        assert metric.bounds() == (metric.compute(),) * 2 == (np.quantile(v, q, method="averaged_inverted_cdf"),) * 2
        weighted = sm.Quantile(q=q, bits=9).update(v, sample_weight=w)
        repeated = np.quantile(np.repeat(v, w.astype(int)), q, method="averaged_inverted_cdf")
        assert weighted.compute() == repeated


@pytest.mark.slow
def test_buckets_never_decrease_and_hold_what_they_say() -> None:
    r = np.random.default_rng(1)
    near = np.exp2(r.integers(-400, 400, 300)) * (1 + r.integers(0, 8, 300) / 8)
    near = np.concatenate([near, np.nextafter(near, 0), np.nextafter(near, np.inf)])
    near = near[(near >= 2.0**-400) & (near <= 2.0**400)]
    values = np.sort(np.concatenate([near, -near, [0.0, -0.0, 2.0**400, 2.0**-400]]))
    for bits in (1, 3):
        whole = sm.Quantile(bits=bits).update(values).state
        low, high = whole.value_bounds()
        assert (low[1:] >= high[:-1]).all()
        buckets = find_buckets(values, int(whole.level[0]), bits)
        assert (buckets[1:] >= buckets[:-1]).all()
        at = np.searchsorted(whole.occupied_buckets(), buckets)
        assert np.array_equal(np.bincount(at), whole.rows_per_bucket())
        assert ((low[at] <= values) & (values <= high[at])).all()
        assert (high - low <= np.maximum(np.abs(low), np.abs(high)) / 2**bits).all()


def test_coarser_histograms() -> None:
    v, _, w = COLUMNS["any size"]
    for given in (
        {"value": v},
        {"value": v, "sample_weight": w},
        {"value": np.arange(5.0), "sample_weight": [0, 1, 1, 0, 2]},
    ):
        fine = sm.Quantile(bits=9).update(**given)
        for bits in (1, 4, 8, 9):
            assert sm.coarsen(fine, bits).to_bytes() == sm.Quantile(bits=bits).update(**given).to_bytes()
    with pytest.raises(sm.InvalidInputError, match="coarsen"):
        sm.coarsen(fine, 10)


def test_names_positions_and_tasks() -> None:
    assert sm.Mean().update([1, 2, 3]).compute() == sm.Mean().update(value=[1, 2, 3]).compute() == 2.0
    assert sm.Sum().update([1, 2], sample_weight=[0.5, 2]).compute() == 4.5
    table = {"revenue": [1.0, 2.0, 6.0], "clicks": [1, 0, 2], "user": ["a", "b", "a"]}
    metrics = sm.MetricCollection({
        "revenue": sm.Task([sm.Mean(), sm.Sum(), sm.Count(), sm.Variance(), sm.Min(), sm.Max()], value="revenue"),
        "users": sm.Task(sm.DistinctCount(), value="user"),
        "rpc": sm.Ratio(numerator="revenue", denominator="clicks"),
    }).update(table)  # fmt: skip
    assert len(states_of(metrics)) == 4  # sums and extremes of revenue, users, the ratio
    values = metrics.compute()
    assert [values[f"revenue/{n}"] for n in ("mean", "sum", "count", "min", "max")] == [3, 9, 3, 1, 6]
    assert values["rpc"] == 3.0
    assert values["users/distinct_count"] == pytest.approx(2.0, abs=0.001)
    with pytest.raises(TypeError, match="pass these columns by name"):
        sm.Mean().update([1], [2])
    with pytest.raises(ValueError, match="two different columns"):
        sm.Ratio(numerator="a", denominator="a")


def test_undefined() -> None:
    for metric in (sm.Mean(), sm.Min(), sm.Quantile(), sm.Ratio(), sm.MaxError(), sm.MedianAbsoluteError()):
        assert math.isnan(metric.reading(metric.state).value)
        assert metric.explain()["reason"] == "no rows"
    assert sm.Sum().compute() == sm.Count().compute() == sm.DistinctCount().compute() == 0.0
    one = sm.Variance(ddof=1).update([3])
    assert math.isnan(one.reading(one.state).value)
    assert "not above ddof" in one.explain()["reason"]
    zero = sm.Ratio().update([1, 2], [0, 0])
    assert zero.explain()["reason"] == "denominator adds up to 0"
    weightless = sm.Max().update([1], sample_weight=[0])
    assert weightless.explain()["reason"] == "the weights are all zero"


def test_bad_values_are_dropped_under_their_name() -> None:
    metric = sm.Mean(on_invalid="drop").update([1.0, math.nan, 3.0])
    assert metric.compute() == 2.0
    assert metric.explain()["dropped"] == {"value": 1}


@pytest.mark.slow
@pytest.mark.parametrize("precision", [8, 12])
@pytest.mark.parametrize("kind", ["sequence", "random", "strings", "strides"])
def test_distinct_counts_have_their_standard_error(kind: str, precision: int) -> None:
    sizes = (10, 300, 3_000, 40_000) if kind != "strings" else (10, 300, 3_000)
    seeds = 200
    for n in sizes:
        errors, inside = [], 0
        for seed in range(seeds):
            metric = sm.DistinctCount(precision=precision).update(keys(kind, n, seed))
            errors.append(metric.state.estimate() / n - 1)
            low, high = metric.interval(0.95)[:2]
            inside += low <= n <= high
        deviation = math.sqrt(math.fsum(e * e for e in errors) / seeds)
        standard = 1.04 / math.sqrt(1 << precision)
        assert deviation < 1.2 * standard  # 200 seeds: the deviation itself is known to 5 %
        assert abs(math.fsum(errors) / seeds) < 4 * standard / math.sqrt(seeds)
        assert inside >= 0.9 * seeds


def keys(kind: str, n: int, seed: int) -> Any:
    """So many different keys."""
    if kind == "sequence":
        return np.arange(n) + seed * 1_000_003
    if kind == "strides":
        return (np.arange(n) << 20) + seed
    made = np.random.default_rng(seed).integers(-(2**63), 2**63 - 1, n)
    return made if kind == "random" else [f"user-{seed}-{i}" for i in range(n)]


def test_the_union_of_overlapping_logs() -> None:
    a, b = sm.DistinctCount().update(np.arange(3000)), sm.DistinctCount().update(np.arange(2000, 5000))
    both = sm.DistinctCount().update(np.arange(5000))
    union = a.merge(b)
    assert np.array_equal(union.state.registers, both.state.registers)
    assert union.state.estimate() == both.state.estimate() == pytest.approx(5000, rel=0.03)
    assert both.compute() == 5000  # there were no more rows


def test_registers_are_for_ever() -> None:
    metric = sm.DistinctCount(precision=4).update(np.arange(50))
    assert np.maximum(metric.state.registers, 0).tolist() == REGISTERS
    texts = sm.DistinctCount(precision=4).update([f"k{i}" for i in range(50)])
    assert np.maximum(texts.state.registers, 0).tolist() == TEXT_REGISTERS


REGISTERS = [1, 2, 4, 7, 2, 2, 4, 4, 2, 2, 5, 7, 0, 5, 0, 3]
TEXT_REGISTERS = [6, 1, 1, 6, 5, 3, 3, 4, 2, 3, 1, 2, 3, 3, 2, 3]
