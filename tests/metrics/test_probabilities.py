"""Metrics of probabilities that have rows of their own: against references from outside, and what they refuse."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
import oracles_probabilities as outside
import pytest
from scipy import special, stats

import streammetrics as sm
from streammetrics.collect.accumulator import definition_of
from streammetrics.errors import InvalidInputError
from streammetrics.numerics.chi_square import chi2_tail

ORACLES = outside.ORACLES
CASES = [(tag, i) for tag in ORACLES for i in range(len(ORACLES[tag]))]


def log(name: str, n: int = 300) -> dict[str, Any]:
    """Columns by name: scores of one model that is too sure, ties, and every class."""
    rng = np.random.default_rng(7)
    z = np.round(rng.normal(-0.5, 1.5, n), 1)
    y, p = (rng.random(n) < special.expit(0.3 + 0.7 * z)).astype(int), special.expit(z)
    y[:4] = 0, 1, 0, 1
    other = np.round(special.expit(z + rng.normal(0, 1, n)), 2).clip(0.01, 0.99)
    classes = np.where(np.arange(n) < 6, np.arange(n) % 3, rng.integers(0, 3, n))
    two = rng.dirichlet(np.ones(4), (2, n))
    two[0, :3, 1] = 0.0
    two[0, :3] /= two[0, :3].sum(axis=1, keepdims=True)
    return {
        "binary": {"y_true": y, "y_score": p},
        "logits": {"y_true": y, "y_score": z},
        "classes": {"y_true": classes, "y_score": rng.dirichlet(np.ones(3), n)},
        "class logits": {"y_true": classes, "y_score": np.round(rng.normal(0, 2, (n, 3)), 1)},
        "baselines": {"y_true": y, "y_score": p, "baseline": other},
        "models": {"y_score": np.round(p, 2), "baseline": other},
        "rates": {"y_true": rng.poisson(2.0, n), "y_pred": rng.gamma(2.0, 1.0, n)},
        "amounts": {"y_true": rng.gamma(1.0, 2.0, n) + 0.01, "y_pred": rng.gamma(2.0, 1.0, n) + 0.01},
        "logs": {"y_true": rng.poisson(2.0, n), "y_pred": rng.normal(0, 1, n)},
        "distributions": {"y_true": two[0], "y_pred": two[1]},
        "vectors": {"y_true": rng.normal(size=(n, 4)), "y_pred": rng.normal(size=(n, 4))},
    }[name]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("tag", "i"), CASES)
def test_as_from_outside(tag: str, i: int, weighted: bool) -> None:
    oracle = ORACLES[tag][i]
    columns = log(oracle.log)
    n = len(next(iter(columns.values())))
    w = np.random.default_rng(1).integers(0, 9, n) / 4 if weighted else np.ones(n)
    metric = sm.extend.METRICS[tag](**oracle.settings)
    for rows in (slice(0, 20), slice(20, n)):
        part = {name: column[rows] for name, column in columns.items()}
        metric.update(part | ({"sample_weight": w[rows]} if weighted else {}))
    value, (low, high) = metric.compute(), metric.bounds()
    np.testing.assert_allclose(value, oracle.of(columns, w), rtol=oracle.near, atol=oracle.near / 10)
    assert (np.asarray(low) <= value).all()
    assert (value <= np.asarray(high)).all()


@pytest.mark.parametrize("scale", ["probability", "logit"])
def test_label_smoothing_as_keras(scale: str) -> None:
    c = log("binary" if scale == "probability" else "logits")
    p = c["y_score"] if scale == "probability" else special.expit(c["y_score"])
    value = sm.LogLoss(label_smoothing=0.1, scale=scale).update(c["y_true"], c["y_score"]).compute()
    assert value == pytest.approx(outside.smoothed(c["y_true"], p, 0.1).mean(), rel=1e-12)
    c = log("classes" if scale == "probability" else "class logits")
    log_p = np.log(c["y_score"]) if scale == "probability" else special.log_softmax(c["y_score"], axis=1)
    metric = sm.LogLoss(label_smoothing=0.2, scale=scale, num_classes=3).update(c["y_true"], c["y_score"])
    assert metric.compute() == pytest.approx(outside.smoothed_classes(c["y_true"], log_p, 0.2).mean(), rel=1e-12)
    assert metric.interval().standard_error > 0


def test_label_smoothing_of_labels_is_that_of_each() -> None:
    rng = np.random.default_rng(0)
    y, p = rng.integers(0, 2, (50, 3)), rng.random((50, 3))
    found = sm.LogLoss(label_smoothing=0.3, num_labels=3, average=None).update(y, p).compute()
    alone = [sm.LogLoss(label_smoothing=0.3).update(y[:, k], p[:, k]).compute() for k in range(3)]
    assert found.tolist() == alone
    sliced = sm.Sliced(sm.LogLoss(label_smoothing=0.3, num_labels=3), by="k").update(
        {"y_true": y, "y_score": p, "k": np.zeros(50, int)}
    )
    assert sliced[0].compute() == pytest.approx(np.mean(alone), rel=1e-15)


def test_no_smoothing_is_log_loss() -> None:
    c = log("classes")
    plain, smooth = sm.LogLoss(num_classes=3), sm.LogLoss(num_classes=3, label_smoothing=1e-300)
    assert smooth.update(**c).compute() == pytest.approx(plain.update(**c).compute(), rel=1e-15)


def test_gamma_zero_is_log_loss() -> None:
    c = log("logits")
    focal, plain = (
        m.update(**c).compute() for m in (sm.FocalLoss(gamma=0.0, scale="logit"), sm.LogLoss(scale="logit"))
    )
    assert focal == pytest.approx(plain, rel=1e-15)


@pytest.mark.parametrize("tag", ["d2_log_loss", "d2_brier", "log_loss_skill_score", "tjur_discrimination"])
def test_standard_errors_are_those_of_the_jackknife(tag: str) -> None:
    c = log("binary", 200)
    metric = sm.extend.METRICS[tag]
    n = len(c["y_true"])
    without = [metric().update({k: np.delete(v, i) for k, v in c.items()}).compute() for i in range(n)]
    error = math.sqrt((n - 1) * np.var(without))
    assert metric().update(**c).interval().standard_error == pytest.approx(error, rel=0.03)


def test_skill_of_the_average_is_none() -> None:
    y = np.array([0, 0, 0, 1])
    for metric in (sm.D2Brier(), sm.BrierSkillScore(), sm.BrierSkillScore(base_rate=0.25)):
        assert metric.update(y, np.full(4, 0.25)).compute() == 0.0
    assert sm.BrierSkillScore(baseline=True).update(y, y * 1.0, baseline=np.full(4, 0.25)).compute() == 1.0


def test_a_free_ne_forgives_what_ne_does_not() -> None:
    rng = np.random.default_rng(3)
    p = rng.beta(2, 8, 20_000)
    y = rng.random(20_000) < p
    right, wrong = (
        sm.MetricCollection(sm.CalibrationFreeNE(), sm.NormalizedEntropy()).update(y, q) for q in (p, p * 0.8)
    )
    a, b = right.compute(), wrong.compute()
    assert a["calibration_free_ne"] == pytest.approx(a["normalized_entropy"], abs=1e-3)
    assert b["normalized_entropy"] - a["normalized_entropy"] > 2 * abs(
        b["calibration_free_ne"] - a["calibration_free_ne"]
    )


def test_torchrec_recalibrates_by_the_rate_of_negatives() -> None:
    c = log("binary")
    y, p, rate = c["y_true"], c["y_score"], 0.1
    task = sm.Task([sm.NormalizedEntropy()], negative_rate=rate, corrects="score")
    q = p / (p + (1 - p) / rate)
    found = sm.MetricCollection(task).update(c).compute()["normalized_entropy"]
    assert found == pytest.approx(sm.NormalizedEntropy().update(y, q).compute(), rel=1e-12)


def test_p_values() -> None:
    for x, df in [(0.5, 1), (3.0, 2), (10.0, 5), (9000.0, 8998), (300.0, 7), (0.0, 3)]:
        assert chi2_tail(x, df) == pytest.approx(stats.chi2.sf(x, df), rel=1e-10)
    assert (chi2_tail(math.inf, 3), math.isnan(chi2_tail(math.nan, 3))) == (0.0, True)
    c = log("binary")
    z, test = sm.SpiegelhalterZ().update(**c), sm.HosmerLemeshow().update(**c)
    assert z.explain()["p_value"] == pytest.approx(2 * stats.norm.sf(abs(z.compute())), rel=1e-12)
    assert test.explain()["degrees_of_freedom"] == 8
    assert test.explain()["p_value"] == pytest.approx(stats.chi2.sf(test.compute(), 8), rel=1e-10)


def test_the_surprise_is_a_standard_normal() -> None:
    rng = np.random.default_rng(5)
    found = []
    for _ in range(300):
        p = rng.beta(1, 3, 100)
        found.append(sm.SpiegelhalterZ().update(rng.random(100) < p, p).compute())
    assert abs(np.mean(found)) < 4 / math.sqrt(300)
    assert 0.85 < np.std(found) < 1.15


# The histograms have few bits, and the truth has to be within their wide bounds.
@pytest.mark.filterwarnings("ignore::streammetrics.errors.WideBoundsWarning")
@pytest.mark.parametrize("bits", [11, 13])
@pytest.mark.parametrize("metric", [sm.CalibrationSlope, sm.CalibrationIntercept, sm.HosmerLemeshow])
def test_bounds_hold_the_truth_of_folded_scores(metric: Any, bits: int) -> None:
    rng = np.random.default_rng(bits)
    z = rng.normal(-1, 1.3, 3000)
    y, p = rng.random(3000) < special.expit(0.2 + 0.8 * z), special.expit(z)
    coarse, fine = metric(bits=bits).update(y, p), metric().update(y, p)
    low, high = coarse.bounds()
    assert low <= coarse.compute() <= high
    assert math.isfinite(high - low)
    if metric is not sm.HosmerLemeshow:  # whose bins are of other buckets then
        assert low <= fine.compute() <= high
        assert high - low < 4 / 2 ** (bits - 6)
        assert fine.bounds()[1] - fine.bounds()[0] < 1e-9


@pytest.mark.slow
def test_the_robust_error_of_a_slope_is_that_of_the_jackknife() -> None:
    c = log("binary", 150)
    without = [sm.CalibrationSlope().update({k: np.delete(v, i) for k, v in c.items()}).compute() for i in range(150)]
    error = math.sqrt(149 * np.var(without))
    assert sm.CalibrationSlope().update(**c).interval().standard_error == pytest.approx(error, rel=0.06)


@pytest.mark.parametrize(
    ("metric", "y", "p", "reason"),
    [
        (sm.CalibrationSlope(), [0, 0, 1], [0.1, 0.2, 0.3], "the slope is infinite"),
        (sm.CalibrationIntercept(), [1, 1], [0.1, 0.2], "one class"),
        (sm.CalibrationSlope(), [], [], "no rows"),
        (sm.SpiegelhalterZ(), [0, 1], [0.0, 0.5], "0, 1/2 or 1"),
        (sm.D2Brier(), [1, 1], [0.5, 0.5], "one class"),
        (sm.LogLossSkillScore(), [], [], "no rows"),
        (sm.TjurDiscrimination(), [1, 1], [0.5, 0.5], "one class"),
        (sm.NEPositive(), [0, 0], [0.5, 0.5], "one class"),
        (sm.CalibrationFreeNE(), [0, 1], [0.0, 0.0], "the mean prediction is 0 or 1"),
        (sm.HingeLoss(), [], [], "no rows"),
    ],
)
def test_undefined_has_a_reason(metric: Any, y: list[int], p: list[float], reason: str) -> None:
    metric.update(y, np.array(p))
    with pytest.warns(sm.UndefinedMetricWarning):
        assert math.isnan(metric.compute())
    assert reason in metric.explain()["reason"]


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: sm.HingeLoss(multiclass="one-vs-rest"), "num_classes="),
        (lambda: sm.HingeLoss(num_classes=3, average=None), "one-vs-rest"),
        (lambda: sm.KLDivergence(), "width="),
        (lambda: sm.D2Brier(soft_labels=True), "R2"),
        (lambda: sm.BrierSkillScore(baseline=True, base_rate=0.1), "replaces base_rate="),
        (lambda: sm.LogLossSkillScore(base_rate=0.1, num_classes=3), "base_rate= does not support num_classes="),
        (lambda: sm.LogLossSkillScore(baseline=True, eps=0.0), "eps= above 0"),
        (lambda: sm.extend.RowTerms(terms=("focal@2.0",), over="models"), "not available with over='models'"),
        (lambda: sm.extend.RowTerms(terms=("kl",), over="distributions"), "width="),
        (lambda: sm.extend.RowTerms(terms=("nonsense",)), "has no term"),
    ],
)
def test_settings_that_make_no_sense(make: Any, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        make()


def test_losses_of_logits_beside_the_rarest_base_rate() -> None:
    for made in (sm.NormalizedEntropy, sm.NEPositive):
        metric = made(scale="logit", base_rate=2.0**-1022).update([1, 0], [-1e30, -1e30])
        assert (metric.compute(), *metric.bounds()) == (math.inf,) * 3
    both = sm.NormalizedEntropy(num_labels=2, scale="logit", base_rate=2.0**-1022).update([[1, 0]], [[-1e30, 1.0]])
    assert (both.compute(), *both.bounds()) == (math.inf,) * 3  # not the mean of the other label
    assert sm.KLDivergence(width=2, eps=2.0**-1022).update([[1, 0]], [[0, 1]]).compute() == 1022 * math.log(2)


def test_columns_that_make_no_sense() -> None:
    with pytest.raises(InvalidInputError, match="at most 256"):
        sm.PoissonLogLoss(log_input=True).update([1, 2], [0.0, 300.0])
    with pytest.raises(InvalidInputError, match="at least 0"):
        sm.PoissonLogLoss().update([1, -2], [0.5, 3.0])
    with pytest.raises(InvalidInputError, match="sum to 1"):
        sm.KLDivergence(width=2).update([[0.5, 0.5]], [[0.5, 0.6]])


def test_a_threshold_of_flips_is_rounded_to_the_scores() -> None:
    scores = np.array([0.3, 0.1], np.float32)
    assert sm.FlipRate(threshold=0.3).update(y_score=scores, baseline=np.zeros(2)).compute() == 0.5


def test_vectors_of_zeros_and_of_any_size() -> None:
    metric = sm.CosineSimilarity(width=2).update(
        [[0, 0], [2.0**190, 0], [1e-50, 1e-50]], [[1, 1], [2.0**-190, 0], [1, 1]]
    )
    assert metric.compute() == pytest.approx(2 / 3, rel=1e-15)


# -- drift -----------------------------------------------------------------------------------------------------------


def test_drift_is_made_of_the_shares() -> None:
    rng = np.random.default_rng(2)
    a, b = (sm.AUC().update(rng.random(n) < 0.5, rng.beta(*shape, n)) for n, shape in ((3000, (2, 3)), (5000, (2, 4))))
    found = sm.drift(a, b, bins=5, floor=1e-3)
    p, q = np.array(found.shares), np.array(found.reference)
    assert len(p) == len(q) == len(found.edges) + 1 == 5
    assert found.kl == pytest.approx(stats.entropy(p, q), rel=1e-12)
    assert found.psi == pytest.approx(stats.entropy(p, q) + stats.entropy(q, p), rel=1e-12)
    m = (p + q) / 2
    assert found.js == pytest.approx((stats.entropy(p, m) + stats.entropy(q, m)) / 2, rel=1e-12)
    assert sm.population_stability_index(a, b).value == sm.drift(a, b).psi


def test_drift_has_a_floor_for_empty_bins() -> None:
    rng = np.random.default_rng(2)
    a = sm.AUC().update(rng.random(100) < 0.5, np.full(100, 0.9))
    b = sm.AUC().update(rng.random(1000) < 0.5, rng.random(1000) / 2)
    small, large = (sm.drift(a, b, floor=f) for f in (1e-4, 1e-2))
    assert math.inf > small.psi > large.psi > 1
    assert small.js == large.js <= math.log(2)
    with pytest.raises(InvalidInputError, match="floor"):
        sm.drift(a, b, floor=0.0)


def test_nothing_drifts_from_itself_or_from_nothing() -> None:
    a = sm.AUC().update([0, 1, 1], [0.1, 0.2, 0.3])
    assert sm.drift(a, a)[:4] == (0.0, 0.0, 0.0, "stable")
    assert math.isnan(sm.drift(a, sm.AUC()).psi)


# -- what peers answered on a small log, where their lines of the table are not run ----------------------------------

Y5, P5, Z5 = np.array([1, 0, 0, 1, 0]), [0.7, 0.2, 0.4, 0.55, 0.1], [0.7, -2.0, 0.4, 0.55, -1.0]
C4, S4 = [0, 2, 1, 2], [[0.5, 0.3, 0.2], [0.1, 0.2, 0.7], [0.3, 0.6, 0.1], [0.6, 0.1, 0.3]]
W5 = {"sample_weight": [1.0, 2.0, 0.5, 3.0, 1.0]}
PEERS = {  # torcheval 0.0.7, PyTorch, Keras 3 (in float32)
    "torcheval.BinaryNormalizedEntropy": (sm.NormalizedEntropy(), (Y5, P5), W5, 0.5706849248458149),
    "torcheval.BinaryNormalizedEntropy(from_logits=True)": (
        sm.NormalizedEntropy(scale="logit"),
        (Y5, Z5),
        W5,
        0.539044645799881,
    ),
    "torcheval.ClickThroughRate": (sm.CTR(), (Y5,), W5, 0.5333333333333333),
    "torch.PoissonNLLLoss(log_input=False, full=True)": (
        sm.PoissonLogLoss(full=True),
        ([2, 0, 1, 4], [0.5, 0.5, 2.0, 2.0]),
        {},
        1.6824070090422203,
    ),
    "torch.PoissonNLLLoss(full=True)": (
        sm.PoissonLogLoss(log_input=True, full=True),
        ([2, 0, 1, 4], [0.5, -0.5, 1.0, 1.0]),
        {},
        1.375221307544892,
    ),
    "keras.CategoricalCrossentropy(label_smoothing=0.1)": (
        sm.LogLoss(num_classes=3, label_smoothing=0.1),
        (C4, S4),
        {},
        0.7537897825241089,
    ),
    "keras.CategoricalHinge": (sm.HingeLoss(num_classes=3), (C4, S4), {}, 0.824999988079071),
    "keras.BinaryFocalCrossentropy": (sm.FocalLoss(eps=1e-7), (Y5, P5), {}, 0.04897483438253403),
    "keras.BinaryFocalCrossentropy(apply_class_balancing=True)": (
        sm.FocalLoss(alpha=0.25, eps=1e-7),
        (Y5, P5),
        {},
        0.021414851769804955,
    ),
    "keras.BinaryFocalCrossentropy(from_logits=True)": (sm.FocalLoss(scale="logit"), (Y5, Z5), {}, 0.0914144292473793),
    "keras.CategoricalFocalCrossentropy": (
        sm.FocalLoss(num_classes=3, alpha=0.25),
        (C4, S4),
        {},
        0.05481664091348648,
    ),
}


@pytest.mark.parametrize("peer", PEERS)
def test_values_that_peers_gave(peer: str) -> None:
    metric, columns, weights, expected = PEERS[peer]
    near = 1e-6 if peer.startswith("keras") else 1e-12
    named = dict(zip(definition_of(metric).positional_columns(), columns, strict=False))
    assert metric.copy().update(named | weights).compute() == pytest.approx(expected, rel=near)


@pytest.mark.parametrize(("scores", "bits"), [
    ([0, 1], 52), ([False, True], 52), (np.float64([0, 1]), 52), (np.float32([0, 1]), 23), (np.float16([0, 1]), 23),
])  # fmt: skip
def test_every_log_loss_keeps_certain_scores_as_far_from_0_and_1(scores: Any, bits: int) -> None:
    """Whichever state counts them; of integers as far as scikit-learn does, which reads them as float64."""
    for metric in (sm.LogLoss(), sm.FocalLoss(gamma=0.0), sm.LogLoss(label_smoothing=0.0)):
        assert metric.update([1, 1], scores).compute() == pytest.approx(bits * math.log(2) / 2, rel=1e-6)


@pytest.mark.parametrize("probability", [0.0, 5e-324, 2.0**-1030, 2.0**-1022])
def test_without_eps_the_least_probability_is_the_least_normal_number(probability: float) -> None:
    """Of less there is no logarithm here, and none of 0 anywhere."""
    rows = [
        (sm.LogLoss(eps=0.0), [probability]),
        (sm.LogLoss(eps=0.0, num_labels=1), [[probability]]),
        (sm.LogLoss(eps=0.0, num_classes=2), [[1.0, probability]]),
        (sm.LogLoss(eps=0.0, soft_labels=True), [probability]),
        (sm.LogLoss(eps=0.0, label_smoothing=0.0), [probability]),
    ]
    for metric, score in rows:
        y = [[1]] if metric.num_labels else [1]
        assert metric.update(y, score).compute() == pytest.approx(1022 * math.log(2), rel=1e-15)


@pytest.mark.parametrize("soft", [False, True])
def test_smoothed_labels_do_not_tell_their_positives(soft: bool) -> None:
    with pytest.raises(
        ValueError, match=r'LogLoss.*average="weighted" needs the positives of each label, which are unknown'
    ):
        sm.LogLoss(num_labels=2, average="weighted", label_smoothing=0.1, soft_labels=soft)


def test_a_statistic_of_very_many_bins_is_answered_soon() -> None:
    """Each bin has a divisor of its own: their exact sum would have the product of thousands."""
    p = (np.arange(10_000) + 0.5) / 10_000
    y = (np.arange(10_000) * 7919 % 10_000) / 10_000 < p
    test = sm.HosmerLemeshow(n_bins=10_000, strategy="uniform").update(y, p)
    begin = time.process_time()
    value = test.compute()
    assert time.process_time() - begin < 5
    assert value == pytest.approx(np.sum((y - p) ** 2 / (p * (1 - p))), rel=1e-9)
    low, high = test.bounds()  # p below 0.001 may have had bits below 2**-60
    assert low <= value <= high
    assert high - low < 1e-9 * value


@pytest.mark.parametrize("apart", [1e-10, 1e-5, 0.01, 0.1])
def test_divergences_of_distributions_that_are_close(apart: float) -> None:
    """Their terms add up to nearly 0: computed one by one they are lost, and were negative."""
    from mpmath import fsum, log, mp, mpf

    mp.prec = 200
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(4), 20)
    q = p * (1 + apart * rng.normal(size=p.shape))
    q /= q.sum(axis=1, keepdims=True)
    kl = js = mpf(0)
    for row, other in zip(p, q, strict=True):
        a, b = ([mpf(x) / fsum(map(mpf, r)) for x in r] for r in (row, other))
        middle = [(x + y) / 2 for x, y in zip(a, b, strict=True)]
        kl += fsum(x * log(x / y) for x, y in zip(a, b, strict=True)) / 20
        js += fsum(x * log(x / m) / 2 for r in (a, b) for x, m in zip(r, middle, strict=True)) / 20
    rel = max(1e-15 / apart, 1e-12)
    assert sm.KLDivergence(width=4).update(p, q).compute() == pytest.approx(float(kl), rel=rel)
    assert sm.JensenShannonDivergence(width=4).update(p, q).compute() == pytest.approx(float(js), rel=rel)
