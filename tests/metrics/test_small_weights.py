"""Weights with bits below 2**-60, which sums of weights do not have: whatever a metric is, its bounds hold the truth.

The truth is what the same rows give with weights 2**28 times as large: these enter without rounding, and a metric either
does not ask how large weights are, or says here how it grows with them. So every metric that takes weights is tried, and
a new one cannot escape. Where a decision hangs on weights, what it is to be is computed in fractions besides.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path
from typing import Any

import draws
import numpy as np
import oracles_values
import pytest

import streammetrics as sm
from streammetrics.collect.metric_like import empty_copy
from streammetrics.laws.case import numbers, without_warnings
from streammetrics.laws.specimens import make_consistent, sample
from streammetrics.reading.about import about_of
from streammetrics.statistics.groups.closed_sums import GROUP_WEIGHTS

F = Fraction
TIMES = 2.0**28
LEAST = 2.0**-36
KINDS = ("smallest", "small", "mixed", "even")
GROWS = {"hosmer_lemeshow": 1.0, "spiegelhalter_z": 0.5, "nrmse": -0.5} | dict.fromkeys(
    (
        *("sum", "count", "confusion_matrix", "heavy_hitters", "key_frequency", "histogram"),
        *("true_positives", "false_positives", "true_negatives", "false_negatives"),
    ),
    1.0,
)
"""Metrics that ask how large weights are, and the power by which they grow."""
IN_FLOATS = {"bedroc"}  # whose bounds have room for the rounding of floats, at any weight
IN_FRACTIONS = {"bucket_error", "skewness", "kurtosis", "uplift_curve"}
"""Others, whose truth is below, or in test_columns; or of which a tolerance leaves points out."""


def weights_of(rng: np.random.Generator, shape: Any, kind: str) -> Any:
    """Weights that lose bits, alone and beside others that lose none."""
    if kind == "smallest":  # no bits of their own, but some of w x
        return np.full(shape, LEAST)
    if kind == "even":  # x and x and x weigh as much as 3 x, and a unit less once they are rounded
        return LEAST * (1 + 2.0**-26) * rng.integers(1, 4, shape)
    small = LEAST * (1 + rng.random(shape))
    if kind == "mixed":
        others = rng.choice([0.0, 0.3, 1.0, 7.0, 2.0**-9 * (1 + 2.0**-52)], shape)
        return np.where(rng.random(shape) < 0.5, small, others)
    return small


def larger(metric: Any) -> Any:
    """The metric for weights that are TIMES as large."""
    if metric.settings.get("ddof"):
        return type(metric)(**metric.settings | {"ddof": metric.ddof * TIMES})
    return empty_copy(metric)


def as_small(metric: Any, value: Any) -> Any:
    """What a value for large weights says of small ones: all its numbers."""
    if isinstance(value, tuple) and "weight" in getattr(value, "_fields", ()):
        value = value._replace(weight=value.weight / TIMES)
    power = GROWS.get(metric.about.tag, 0.0) if about_of(metric).extensive else 0.0
    return numbers(value) / TIMES**power


def columns_of(metric: Any, rng: np.random.Generator, style: str, kind: str) -> Any:
    state = metric.make_state()
    columns = make_consistent(state, sample(state.needs(), rng, 14, style, weighted=True))
    made = weights_of(rng, np.shape(columns["sample_weight"]), kind)
    if state.block_column is not None:  # a weight for each block
        made = made[np.unique(columns[state.block_column], return_inverse=True)[1]]
    return columns | {"sample_weight": made}


def against(columns: Any) -> Any:
    """The rows with their labels turned against their scores: what is below chance is far below it here."""
    if "y_true" not in columns or any(np.ndim(columns[n]) != 1 for n in ("y_true", "y_score") if n in columns):
        return columns
    turned = {n: np.sort(columns[n]) for n in ("y_score", "y_pred") if n in columns and np.ndim(columns[n]) == 1}
    return columns | turned | {"y_true": np.sort(columns["y_true"])[::-1]}


WEIGHTED = [m for m in draws.VARIANTS if "sample_weight" in {n.role for n in m.make_state().needs()}]


def test_only_distinct_keys_take_no_weights() -> None:
    assert {m.about.tag for m in draws.VARIANTS} - {m.about.tag for m in WEIGHTED} == {
        "distinct_count",
        "distinct_sample",
    }


LOGS = [(kind, style) for kind in KINDS for style in ("plain", "ties", "saturated", "against")]


@pytest.mark.parametrize("metric", WEIGHTED, ids=repr)
def test_bounds_hold_the_truth_at_some_weights(metric: Any) -> None:
    check_bounds(metric, [zlib.crc32(repr(metric).encode()) % len(LOGS)])


@pytest.mark.slow
@pytest.mark.parametrize("metric", WEIGHTED, ids=repr)
def test_bounds_hold_the_truth_at_any_weight(metric: Any) -> None:
    check_bounds(metric, range(len(LOGS)))


def check_bounds(metric: Any, logs: Iterable[int]) -> None:
    """Compare the bounds of a metric with its value at larger weights, which lose no bits, on some of the logs."""
    tag = metric.about.tag
    for i in logs:
        kind, style = LOGS[i]
        columns = columns_of(metric, np.random.default_rng(i), "plain" if style == "against" else style, kind)
        if style == "against" and metric.make_state().block_column is None:
            columns = against(columns)
        fed = empty_copy(metric).update(columns)
        value, (low, high) = numbers(without_warnings(fed.compute)), map(numbers, without_warnings(fed.bounds))
        assert ((low <= value) & (value <= high) | np.isnan(low) | np.isnan(value) | np.isnan(high)).all(), (
            kind,
            style,
        )
        assert (np.isnan(low) == np.isnan(value)).all()
        assert (np.isnan(high) == np.isnan(value)).all()
        # Such a value does not grow as a power of the weights.
        if tag in IN_FRACTIONS or (about_of(metric).extensive and tag not in GROWS):
            continue
        true = larger(metric).update(columns | {"sample_weight": columns["sample_weight"] * TIMES})
        sides = (without_warnings(true.compute),) * 2 if tag in IN_FLOATS else without_warnings(true.bounds)
        least, most = (as_small(metric, side) for side in sides)
        none = np.isnan(least) & (np.isnan(value) | (low == -np.inf) & (high == np.inf))
        assert ((low <= least) & (most <= high) | none).all(), (kind, style, low, least)


def test_weights_below_the_smallest_are_refused() -> None:
    for w in (2.0**-50, np.nextafter(LEAST, 0)):
        with pytest.raises(sm.InvalidInputError, match="sample_weight"):
            sm.AUC().update([0, 1], [0.1, 0.2], sample_weight=[1.0, w])


# -- decisions that hang on weights ----------------------------------------------------------------------------------


def test_recall_where_a_precision_is_just_large_enough() -> None:
    """Of two queries one has a precision of 1 and one of 0: their mean is as large as asked if weights are."""
    open_ends = 0
    for heavier in (0, 1, 2, 1 << 20):
        first, other = LEAST * (1 + 2.0**-26 * (1 + heavier)), LEAST * (1 + 2.0**-26)
        metric = sm.RecallAtFixedPrecision(1, precision=0.5)
        metric.update([1, 0, 0, 1], [2, 1, 2, 1], query=[0, 0, 1, 1], sample_weight=[first, first, other, other])
        low, high = metric.bounds()
        assert low <= F(first) / (F(first) + F(other)) <= high
        assert low <= metric.compute() <= high
        open_ends += low == 0
    assert open_ends == 3


def test_keys_whose_weight_is_about_one() -> None:
    for parts in ([0.5, 0.5], [1 - 1.5 * LEAST, 1.5 * LEAST], [1 - LEAST, LEAST * (1 + 2.0**-26)], [1 - LEAST, LEAST]):
        weights = [*parts, 2.0, 3.5]
        metric = sm.UniqueShare().update(["a", "a", "b", "c"], sample_weight=weights)
        truth = F(1) / sum(map(F, weights)) if sum(map(F, parts)) == 1 else F(0)
        (low, high), value = metric.bounds(), metric.compute()
        assert low <= value <= high
        assert value == float(truth) if low == high else F(low) <= truth <= F(high)


@pytest.mark.slow
@pytest.mark.parametrize("q", ["0.25", "0.5", "0.9"])
def test_quantiles_where_weights_are_even(q: str) -> None:
    """The truth is the mean of two values wherever the weights below and above are equal, which rounding ends."""
    between = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(2, 9))
        v, w = rng.integers(0, 256, n).astype(float), weights_of(rng, n, "even")
        truth = oracles_values.quantile(q)(v, w)
        made = [
            sm.Quantile(q=float(q)).update(v, sample_weight=w),
            sm.ErrorQuantile(q=float(q)).update(v * 0, v, sample_weight=w),
            sm.ResidualQuantile(q=float(q), num_outputs=1).update(v[:, None] * 0, v[:, None], sample_weight=w),
        ]
        for metric in made:
            low, high = metric.bounds()
            assert low <= truth <= high
            assert low <= metric.compute() <= high
            between += low < high
    assert between or q == "0.9"


def group_auc(columns: dict[str, Any], by: str) -> Fraction | None:
    """GAUC in fractions."""
    total, weights = F(0), F(0)
    for g in np.unique(columns["group"]).tolist():
        here = columns["group"] == g
        rows = list(zip(*(columns[n][here].tolist() for n in ("y_true", "y_score", "sample_weight")), strict=True))
        P, N = (sum((F(w) for y, _, w in rows if y == label), F(0)) for label in (1, 0))
        if P and N:
            wins = sum(F(w) * F(v) * F(1 + (s > t) - (s < t), 2) for y, s, w in rows for z, t, v in rows if y > z)
            weight = {"impressions": P + N, "uniform": F(1), "positives": P, "pairs": P * N}[by]
            total, weights = total + weight * wins / (P * N), weights + weight
    return total / weights if weights else None


@pytest.mark.parametrize("by", GROUP_WEIGHTS)
@pytest.mark.parametrize("kind", KINDS)
def test_gauc_whoever_holds_the_rows(kind: str, by: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(KINDS.index(kind))
    n = 60
    columns = {"y_true": rng.integers(0, 2, n), "y_score": rng.integers(0, 6, n) / 8, "group": np.arange(n) // 6}
    columns["sample_weight"] = weights_of(rng, n, kind)
    truth = group_auc(columns, by)
    assert truth is not None
    whole = sm.GroupAUC(group_weight=by).update(columns)
    odd = np.arange(n) % 2 == 1
    halves = [sm.GroupAUC(group_weight=by).update({k: v[some] for k, v in columns.items()}) for some in (odd, ~odd)]
    with sm.GroupAUC(group_weight=by, memory_limit=600, spill_dir=str(tmp_path)) as spilled:
        for some in (odd, ~odd):
            spilled.update({k: v[some] for k, v in columns.items()})
        assert spilled.explain()["spilled_rows"]
        limits = {spilled.bounds()}
    made = [
        whole, sm.seal(whole), sm.merge(halves), sm.from_bytes(whole.to_bytes()), sm.from_bytes(sm.seal(whole).to_bytes()),
        sm.GroupAUC(group_weight=by, grouped="sorted").update(columns),
        sm.merge([sm.seal(sm.GroupAUC(group_weight=by, partition=(i, 2)).update(
            {k: v[sm.group_partition(columns["group"], 2) == i] for k, v in columns.items()})) for i in (0, 1)]),
        sm.Sliced(sm.GroupAUC(group_weight=by), by="k").update(columns | {"k": odd}).total,
    ]  # fmt: skip
    limits |= {m.bounds() for m in made}
    assert len(limits) == 1
    (low, high), value = limits.pop(), whole.compute()
    if kind == "smallest":  # its products are exact
        assert (low, high) == (value, value)
        assert value == pytest.approx(float(truth), rel=1e-15)
    else:
        assert F(low) <= truth <= F(high) <= 1
        assert low <= value <= high < low + 1e-5


def bucket_error(y: Any, s: Any, w: Any, n: int) -> Fraction | None:
    """Paddle's bucket error in fractions."""
    total, errors, start, group = F(0), F(0), 0, [F(0)] * 3
    weights = [F(x) for x in w.tolist()]
    places = [min(int(F(x) * n), n - 1) for x in s.tolist()]
    for i in sorted(set(places)):
        if i - start > n // 100:
            start, group = start + (i - start) // (n // 100 + 1) * (n // 100 + 1), [F(0)] * 3
        here = [(v, int(u)) for v, u, p in zip(weights, y, places, strict=True) if p == i]
        mine = sum(v for v, _ in here), sum(v for v, u in here if u), i * sum(v for v, _ in here)
        group = [a + b for a, b in zip(group, mine, strict=True)]
        weight, positives, sums = group
        if 400 * (n * weight - sums) < sums * weight:
            total, errors = total + weight, errors + weight * abs(positives * n / sums - 1)
            start, group = i + 1, [F(0)] * 3
    return errors / total if total else None


def test_bucket_error_where_a_group_is_just_large_enough() -> None:
    """A group of one bucket at 1/2 is closed by more than 400; bits that are lost decide."""
    opened = 0
    for more in (0, 1, 2):
        for seed in range(5):
            rng = np.random.default_rng(seed)
            w = np.r_[
                np.full(7, 50.0), 50 - 3 * LEAST, np.full(3, LEAST * (1 + 2.0**-26 * more)), 800.0, rng.random(4) + 1
            ]
            y, s = rng.integers(0, 2, len(w)), np.r_[np.full(11, 0.5), np.full(5, 0.75)]
            metric = sm.BucketError(n_bins=8).update(y, s, sample_weight=w)
            truth, value, (low, high) = bucket_error(y, s, w, 8), metric.compute(), metric.bounds()
            assert truth is not None
            assert value == float(truth) if low == high else low <= truth <= high
            assert low <= value <= high
            opened += math.isinf(high)
    assert opened == 10


# -- what numpy counts -----------------------------------------------------------------------------------------------


class Masses(sm.extend.State, tag="small.masses"):
    """Weight by label, in a part of a name of its own, counted in numpy."""

    rows = sm.extend.Flat()
    mass = sm.extend.Flat(2, form="fixed")

    def needs(self) -> Any:
        return sm.extend.label(), sm.extend.weight()

    def absorb(self, into: Any, at: Any, **columns: Any) -> None:
        np.add.at(into["rows"], at, 1)
        units = [round(F(w) * (1 << 60)) for w in columns["sample_weight"].values.tolist()]
        limbs = np.array([(u >> 40, u & ((1 << 40) - 1)) for u in units], np.int64).reshape(-1, 2)
        np.add.at(into["mass"], (at, columns["y_true"].values.astype(np.int64)), limbs)

    def facts(self) -> dict[str, Any]:
        return {"rows": int(self.rows)}


class Share(sm.extend.Metric[Masses, float]):
    """Weighted share of positives."""

    def make_state(self) -> Masses:
        return Masses()

    def of(self, state: Masses) -> float:
        negative, positive = (F((int(high) << 40) + int(low)) for high, low in state.mass)
        return float(positive / (negative + positive)) if negative + positive else math.nan


@pytest.mark.parametrize("kind", KINDS)
def test_what_numpy_counts_is_noted_as_what_kernels_count(kind: str) -> None:
    rng = np.random.default_rng(1)
    y, w = np.arange(9) % 2, weights_of(rng, 9, kind)
    truth = sum(F(x) for x in w[y == 1].tolist()) / sum(F(x) for x in w.tolist())
    table = {"y_true": y, "sample_weight": w, "k": y * 0}
    for fed in (Share().update(table), sm.Sliced(Share(), by="k").update(table).total):
        low, high = fed.bounds()
        assert F(low) <= truth <= F(high)
        assert fed.state.rounded == 1
