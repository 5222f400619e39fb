"""Metrics of curves against their peers, retyped: with weights, ties, one class, few rows; and their bounds."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from oracles_curves import ORACLES, UPLIFT, curve, uplift
from sklearn import metrics as sk

import streammetrics as sm
from streammetrics.collect.metric_like import empty_copy
from streammetrics.laws.case import numbers, without_warnings


def logs() -> dict[str, tuple[Any, ...]]:
    """Labels, scores, weights and treatments."""
    rng = np.random.default_rng(21)
    n = 1500
    t = rng.integers(0, 2, n)
    p = rng.beta(1, 3, n)
    y = (rng.random(n) < p * (0.7 + 0.6 * t * p)).astype(np.int64)
    ones, w = np.ones(n), rng.integers(0, 9, n) / 4
    return {
        "plain": (y, p, ones, t),
        "weighted": (y, p, w, t),
        "fractional weights": (y, p, rng.random(n) * 3, t),
        "tied": (y, np.round(p, 1), w, t),
        "constant": (y, np.full(n, 0.25), ones, t),
        "saturated": (y, np.where(p > 0.3, 1.0, np.where(p < 0.1, 0.0, p)), ones, t),
        "few": (
            np.array([0, 1, 0, 1, 1]),
            np.array([0.125, 0.5, 0.5, 0.75, 0.25]),
            np.ones(5),
            np.array([0, 1, 1, 0, 1]),
        ),
    }


LOGS = logs()
CASES = [(tag, i) for tag in ORACLES for i in range(len(ORACLES[tag]))]


def fed(metric: Any, y: Any, s: Any, w: Any, t: Any) -> Any:
    columns = {"y_true": y, "y_score": s} | ({"treatment": t} if metric.about.tag in UPLIFT else {})
    return metric.update(columns | ({} if (w == 1).all() else {"sample_weight": w}))


# The histogram of 8 bits has wide bounds, and the peer has to be within them.
@pytest.mark.filterwarnings("ignore::streammetrics.errors.WideBoundsWarning")
@pytest.mark.parametrize("log", LOGS)
@pytest.mark.parametrize(("tag", "i"), CASES)
def test_as_the_peer(tag: str, i: int, log: str) -> None:
    oracle, (y, s, w, t) = ORACLES[tag][i], LOGS[log]
    if tag == "enrichment_factor" and log == "fractional weights":
        pytest.skip("a fraction of a row is no row to round up to")
    expected = numbers(oracle.of(y, s, w, *([t] if tag in UPLIFT else [])))
    exact = fed(sm.extend.METRICS[tag](**oracle.settings), y, s, w, t)
    np.testing.assert_allclose(numbers(exact.compute()), expected, rtol=1e-10, atol=1e-12)
    if "curve" in tag:
        return
    for metric in (exact, fed(sm.extend.METRICS[tag](bits=8, **oracle.settings), y, s, w, t)):
        (low, high), value = metric.bounds(), metric.compute()
        assert low <= value <= high
        assert low - 1e-12 * abs(low) <= expected[0] <= high + 1e-12 * abs(high)


@pytest.mark.parametrize("tag", [t for t in ORACLES if "curve" not in t])
def test_undefined_values_say_why(tag: str) -> None:
    metric = sm.extend.METRICS[tag]()
    for y in ([], [1, 1]):
        given = {"y_true": y, "y_score": [0.5] * len(y)} | ({"treatment": [1] * len(y)} if tag in UPLIFT else {})
        found = sm.extend.METRICS[tag]().update(given)
        value = without_warnings(found.compute)
        assert math.isnan(value) or tag in ("precision_at_k_rows", "enrichment_factor")
        assert (found.explain()["reason"] is None) == (not math.isnan(value))
    assert math.isnan(without_warnings(metric.compute))


# -- what only a peer's own code shows -----------------------------------------------------------------------------------


def rdkit_bedroc(y: Any, alpha: float) -> float:
    """RDKit's CalcBEDROC of labels from the highest score down."""
    n, actives = len(y), int(y.sum())
    denominator = 1.0 / n * ((1 - math.exp(-alpha)) / (math.exp(alpha / n) - 1))
    rie = sum(math.exp(-(alpha * (i + 1)) / n) for i in range(n) if y[i]) / (actives * denominator)
    ratio = actives / n
    most = (1 - math.exp(-alpha * ratio)) / (ratio * (1 - math.exp(-alpha)))
    least = (1 - math.exp(alpha * ratio)) / (ratio * (1 - math.exp(alpha)))
    return (rie - least) / (most - least)


@pytest.mark.parametrize("alpha", [1.0, 20.0, 100.0])
def test_bedroc_is_rdkits(alpha: float) -> None:
    rng = np.random.default_rng(3)
    y = (rng.random(300) < 0.1).astype(int)
    metric = sm.BEDROC(alpha=alpha).update(y, np.linspace(0.9, 0.1, 300))
    assert metric.compute() == pytest.approx(rdkit_bedroc(y, alpha), rel=1e-12)
    best = sm.BEDROC(alpha=alpha).update(np.sort(y)[::-1], np.linspace(0.9, 0.1, 300))
    assert best.compute() == pytest.approx(1)
    assert sm.BEDROC(alpha=alpha).update(np.sort(y), np.linspace(0.9, 0.1, 300)).compute() == pytest.approx(
        0, abs=1e-12
    )


def test_a_tenth_of_a_hundred_rows_is_ten() -> None:
    y = np.r_[np.ones(10, int), np.zeros(90, int)]
    s = np.linspace(1, 0, 100)
    assert sm.EnrichmentFactor(fraction=0.1).update(y, s).compute() == 10
    assert sm.EnrichmentFactor(fraction=0.07).update(y, s).compute() == 10  # math.ceil(100 * 0.07) is 8
    assert sm.EnrichmentFactor(fraction=0.101).update(y, s).compute() == pytest.approx(10 / 11 * 10)


def test_the_h_measure_of_chance_and_of_certainty() -> None:
    y = np.array([0, 1, 0, 1])
    for prior in ("beta22", "hand2014"):
        assert sm.HMeasure(prior=prior).update(y, [0.5] * 4).compute() == pytest.approx(0, abs=1e-13)
        assert sm.HMeasure(prior=prior).update(y, y / 2).compute() == pytest.approx(1, abs=1e-13)
        assert sm.HMeasure(prior=prior).update(y, 1 - y / 2).compute() == pytest.approx(0, abs=1e-13)


# The histogram of 8 bits has wide bounds, and the truth has to be within them.
@pytest.mark.filterwarnings("ignore::streammetrics.errors.WideBoundsWarning")
@pytest.mark.parametrize("average", ["macro", "weighted"])
@pytest.mark.parametrize("how", [{}, {"exact": True}, {"limit": 4096}, {"bits": 8, "scale": "real"}])
def test_one_against_one(average: str, how: dict[str, Any]) -> None:
    rng = np.random.default_rng(4)
    y = rng.choice(5, 700, p=[0.4, 0.3, 0.2, 0.08, 0.02])
    p = rng.dirichlet(np.ones(5), 700) * 0.7 + 0.3 * np.eye(5)[y]
    metric = sm.AUC(num_classes=5, multi_class="ovo", average=average, **how).update(y, p)
    expected = sk.roc_auc_score(y, p, multi_class="ovo", average=average)
    low, high = metric.bounds()
    assert low - 1e-14 <= expected <= high + 1e-14
    assert low <= metric.compute() <= high
    if "bits" not in how:  # exact rows, by default, too: the data are few
        assert metric.compute() == pytest.approx(expected, rel=1e-14)
    names = np.array(["a", "b", "c", "d", "e"])
    named = sm.AUC(labels=tuple(names), multi_class="ovo", average=average, **how).update(names[y], p)
    assert named.compute() == metric.compute()


def test_a_pair_without_rows_is_left_out() -> None:
    y, p = np.array([0, 1, 0, 1]), np.array([[0.7, 0.2, 0.1], [0.5, 0.4, 0.1], [0.3, 0.6, 0.1], [0.1, 0.8, 0.1]])
    three = sm.AUC(num_classes=3, multi_class="ovo", exact=True).update(y, p)
    assert three.compute() == sm.AUC(exact=True).update(y == 1, p[:, 1]).compute()
    assert three.explain()["undefined"] == 4
    with pytest.raises(ValueError, match="2 to 256"):
        sm.AUC(num_classes=257, multi_class="ovo").update([], np.zeros((0, 257)))


@pytest.mark.parametrize("metric", [sm.AUC, sm.AveragePrecision])
@pytest.mark.parametrize("scale", ["probability", "real"])
def test_every_score_of_classes_and_labels_can_be_kept(metric: Any, scale: str) -> None:
    rng = np.random.default_rng(5)
    y, p = rng.integers(0, 3, 400), rng.dirichlet(np.ones(3), 400)
    kept = metric(num_classes=3, exact=True, scale=scale, average=None).update(y, p)
    each = [metric(exact=True, scale=scale).update(y == k, p[:, k]).compute() for k in range(3)]
    assert kept.compute().tolist() == each
    sliced = sm.Sliced(metric(num_labels=3, exact=True, scale=scale), by="k")
    sliced.update(y_true=np.eye(3)[y], y_score=p, k=y > 0)
    assert sliced[True].compute() == pytest.approx(
        np.mean([metric(exact=True, scale=scale).update(y[y > 0] == k, p[y > 0, k]).compute() for k in (1, 2)])
        if metric is sm.AUC
        else sliced[True].compute()
    )
    with pytest.raises(sm.MemoryLimitError):
        metric(num_classes=3, exact=True, scale=scale, memory_limit=1000).update(y, p)


@pytest.mark.slow
def test_by_samples() -> None:
    rng = np.random.default_rng(6)
    y, s, w = rng.integers(0, 2, (300, 4)), np.round(rng.random((300, 4)), 1), rng.integers(0, 5, 300) / 4
    y[:9], y[9:20] = 0, 1
    both = (y.sum(axis=1) > 0) & (y.sum(axis=1) < 4)
    auc = sm.AUC(num_labels=4, average="samples").update(y, s, sample_weight=w)
    expected = sk.roc_auc_score(y[both], s[both], average="samples", sample_weight=w[both])
    assert auc.compute() == pytest.approx(expected, rel=1e-14)
    for zero in (0.0, 1.0, math.nan):
        precision = sm.AveragePrecision(num_labels=4, average="samples", zero_division=zero)
        value = precision.update(y, s, sample_weight=w).compute()
        each = [sk.average_precision_score(a, b) if a.any() else zero for a, b in zip(y, s, strict=True)]
        known = ~np.isnan(each)
        assert value == pytest.approx(np.average(np.array(each)[known], weights=w[known]), rel=1e-14)
    with pytest.warns(UserWarning, match="No positive class"):
        expected = sk.average_precision_score(y, s, average="samples", sample_weight=w)
    zero = sm.AveragePrecision(num_labels=4, average="samples", zero_division=0.0).update(y, s, sample_weight=w)
    assert zero.compute() == pytest.approx(expected, rel=1e-14)
    with pytest.raises(ValueError, match="num_labels"):
        sm.AUC(num_classes=3, average="samples")


def test_the_precision_of_no_positives() -> None:
    assert math.isnan(without_warnings(sm.AveragePrecision().update([0, 0], [0.1, 0.2]).compute))
    for zero in (0.0, 1.0):
        metric = sm.AveragePrecision(zero_division=zero).update([0, 0], [0.1, 0.2])
        assert metric.compute() == zero
        assert metric.explain()["reason"] is None
    classes = sm.AveragePrecision(num_classes=3, zero_division=0.0, average=None).update([0, 1], np.eye(3)[:2])
    assert classes.compute().tolist() == [1, 1, 0]


def test_the_interval_of_a_mean_over_rows() -> None:
    rng = np.random.default_rng(7)
    covered = 0
    for _ in range(200):
        y, s = rng.integers(0, 2, (80, 3)), rng.random((80, 3))
        found = sm.AUC(num_labels=3, average="samples").update(y, s).interval()
        covered += found.low <= 0.5 <= found.high
    assert 0.91 < covered / 200 < 0.985


@pytest.mark.parametrize("tolerance", [0.0, 0.1])
def test_what_is_missed_is_seen_however_little_it_weighs(tolerance: float) -> None:
    """1 - 2**-66 is 1: where the last positive comes is decided by what is missed, not by what is found."""
    weights = [2.0**30, 2.0**-36, 1.0, 2.0**-36]
    first = sm.DETCurve(tolerance=tolerance).update([1, 1, 0], [0.9, 0.8, 0.7], sample_weight=weights[:3]).compute()
    assert (first.fpr.tolist(), first.fnr.tolist(), first.thresholds.tolist()) == ([0.0], [0.0], [0.8])
    points = (
        sm.DETCurve(tolerance=tolerance).update([1, 1, 0, 1], [0.9, 0.8, 0.7, 0.6], sample_weight=weights).compute()
    )
    assert points.thresholds.tolist() == [0.6, 0.7, 0.8][:: 2 if tolerance else 1]
    assert points.fnr[-1] == 2.0**-66
    assert points.fnr[0] == 0


@pytest.mark.parametrize("points", [sm.ROCCurve, sm.PRCurve, sm.DETCurve, sm.GainCurve])
def test_curves_of_each_class(points: Any) -> None:
    rng = np.random.default_rng(8)
    y, p = rng.integers(0, 3, 200), rng.dirichlet(np.ones(3), 200)
    found = points(num_classes=3).update(y, p)
    for k, one in enumerate(found.compute()):
        for ours, alone in zip(one, points().update(y == k, p[:, k]).compute(), strict=True):
            np.testing.assert_array_equal(ours, alone)
    assert found.explain()["exact"]
    assert "3 curves" in str(sm.MetricCollection(found).update(y, p).table())


def test_curves_by_slice_read_well() -> None:
    rng = np.random.default_rng(9)
    y, p, k = rng.integers(0, 2, 500), rng.random(500), rng.choice(["a", "b"], 500)
    for metric in (sm.ROCCurve(), sm.PRCurve(), sm.DETCurve()):
        sliced = sm.Sliced(metric, by="k").update(y, p, k=k)
        points = sliced["a"].compute()
        for ours, alone in zip(points, empty_copy(metric).update(y[k == "a"], p[k == "a"]).compute(), strict=True):
            np.testing.assert_array_equal(ours, alone)
        text = str(sliced.table())
        assert f"{max(map(len, points))} points: {', '.join(points._fields)}" in text
        assert max(map(len, text.splitlines())) < 120


# -- uplift --------------------------------------------------------------------------------------------------------------


def test_uplift_is_scikit_uplifts() -> None:
    """Literal values of scikit-uplift 0.5.1."""
    y = [1, 0, 0, 1, 1, 0, 1, 0, 0, 0, 1, 0, 0, 1, 0, 0, 1, 0, 0, 0]
    t = [1, 0, 1, 1, 0, 0, 1, 1, 0, 1, 0, 0, 1, 1, 0, 1, 0, 0, 1, 0]
    s = [0.9, 0.8, 0.8, 0.75, 0.7, 0.6, 0.55, 0.5, 0.4, 0.4, 0.3, 0.25, 0.2, 0.1, 0, -0.1, -0.2, -0.3, -0.4, -0.5]
    for metric, expected in (
        (sm.QiniCoefficient(), 0.20784679089026914),
        (sm.QiniCoefficient(negative_effect=False), 1.2580200501253131),
        (sm.AUUC(), 0.1586301187141522),
    ):
        assert metric.update(y, s, treatment=t).compute() == pytest.approx(expected, rel=1e-12)


# The limits are told apart only where they are wide.
@pytest.mark.filterwarnings("ignore::streammetrics.errors.WideBoundsWarning")
def test_limits_are_in_order_where_the_best_order_is_below_chance() -> None:
    y, t, s = [0, 0, 1, 1, 0, 1], [1, 1, 1, 0, 0, 0], [0.9, 0.4, 0.7, 0.6, 0.2, 0.1]
    for bits in (8, 16):
        metric = sm.QiniCoefficient(negative_effect=False, bits=bits).update(y, s, treatment=t)
        low, high = metric.bounds()
        assert low <= metric.compute() <= high


@pytest.mark.parametrize("norm", ["perfect", "total", "rows"])
@pytest.mark.parametrize("metric", [sm.AUUC, sm.QiniCoefficient])
def test_a_better_order_is_higher_if_the_whole_treatment_does_harm(metric: Any, norm: str) -> None:
    rng = np.random.default_rng(5)
    x, treatment = rng.random(4000), rng.integers(0, 2, 4000)
    # The treatment takes up to 0.3 of the share of positives away, and less where x is high.
    y = (rng.random(4000) < np.where(treatment == 1, 0.1 + 0.3 * x, 0.4)).astype(int)
    good, bad = (metric(norm=norm).update(y, score, treatment=treatment).compute() for score in (x, -x))
    assert good > bad
    if metric is sm.AUUC and norm == "total":
        rows = metric(norm="rows").update(y, x, treatment=treatment).compute()
        gain = y[treatment == 1].mean() - y[treatment == 0].mean()
        assert gain < 0.0
        assert good == pytest.approx(rows / abs(gain), rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["qini", "uplift"])
def test_no_order_inside_buckets_leaves_the_bounds(kind: str) -> None:
    rng = np.random.default_rng(10)
    metric = {"qini": sm.QiniCoefficient, "uplift": sm.AUUC}[kind]
    for _ in range(60):
        n, effect = int(rng.integers(6, 60)), rng.choice([-0.9, 0.0, 0.9])
        t, bucket = rng.integers(0, 2, n), rng.integers(1, 7, n)
        y = (rng.random(n) < 0.5 + effect * (t - 0.5)).astype(int)
        s = bucket + rng.random(n) * 1e-9
        found = metric(bits=8, norm="rows").update(y, s, treatment=t)
        if found.explain()["reason"]:
            continue
        low, high = found.bounds()
        for _ in range(20):
            truth = uplift(kind, "rows")(y, bucket + rng.permutation(n) * 1e-9, np.ones(n), t)
            assert low <= truth <= high


def test_treatment_is_a_column() -> None:
    with pytest.raises(sm.InvalidInputError, match="treatment"):
        sm.AUUC().update([0, 1], [0.1, 0.2])
    with pytest.raises(sm.InvalidInputError, match="treatment"):
        sm.AUUC().update([0, 1], [0.1, 0.2], treatment=[0, 2])
    y, s, w, t = LOGS["weighted"]
    x, values = curve("qini", y, s, w, t)
    task = sm.Task([sm.UpliftCurve(tolerance=0.0)], y_true="buy", y_score="u", treatment="mailed", sample_weight="w")
    points = sm.MetricCollection(task).update({"buy": y, "u": s, "mailed": t, "w": w})["qini_curve"].compute()
    np.testing.assert_allclose(points.gain, values / x[-1], atol=1e-12)


def test_slices_are_read_once_while_nothing_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    read, calls = sm.KS()._read_all_cells, []
    monkeypatch.setattr(sm.KS, "_read_all_cells", staticmethod(lambda state: calls.append(state) or read(state)))
    sliced = sm.Sliced(sm.KS(), by="k").update([0, 1, 0, 1], [0.1, 0.2, 0.3, 0.4], k=[1, 1, 2, 2])
    values = sliced.compute()
    assert {key: low for key, (low, _) in sliced.bounds().items()} == sliced.copy().compute() == values
    assert len(calls) == 1
    sliced.update([0], [0.9], k=[1])
    assert sliced.compute()[1] != values[1]
    assert len(calls) == 2
