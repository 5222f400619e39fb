"""Metrics of decisions against scikit-learn and naive code: at many thresholds, of classes, labels, rows and groups."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import oracles_decisions as of
import pytest
from sklearn import metrics as sk

import streammetrics as sm
from streammetrics.collect.metric_like import empty_copy, states_of
from streammetrics.collect.parameter_docs import settable_names
from streammetrics.laws.case import without_warnings
from streammetrics.metrics.decisions.geometric import _root

RNG = np.random.default_rng(3)
# -- several thresholds ------------------------------------------------------------------------------------------------

CUTS = (0.7, 0.2, 0.5)


@pytest.mark.parametrize("which", [{}, {"num_labels": 3}, {"num_labels": 3, "average": None}], ids=str)
@pytest.mark.parametrize(
    "cls",
    [sm.Precision, sm.Accuracy, sm.MatthewsCorrcoef, sm.TruePositives, sm.FowlkesMallows],
    ids=lambda c: c.about.tag,
)
def test_thresholds_in_one_pass_are_each_alone(cls: Any, which: dict[str, Any]) -> None:
    y, s = RNG.integers(0, 2, (90, 3)), RNG.random((90, 3))
    columns = {"y_true": y, "y_score": s} if which else {"y_true": y[:, 0], "y_score": s[:, 0]}
    many = cls(threshold=CUTS, **which).update(columns)
    alone = [cls(threshold=t, **which).update(columns) for t in CUTS]
    np.testing.assert_array_equal(many.compute(), np.array([m.compute() for m in alone]))
    np.testing.assert_array_equal(many.bounds(), np.array([m.bounds() for m in alone]).swapaxes(0, 1))
    if which.get("average", "macro") is None or cls is sm.TruePositives or which:
        assert many.interval().reason
    else:
        np.testing.assert_array_equal(many.interval().low, [m.interval().low for m in alone])
    sliced = sm.Sliced(cls(threshold=CUTS, **which), by="k").update(**columns, k=np.arange(90) % 2)
    even = {name: column[::2] for name, column in columns.items()}
    np.testing.assert_array_equal(sliced[0].compute(), cls(threshold=CUTS, **which).update(even).compute())


def test_bounds_of_what_is_worse_than_chance() -> None:
    """Adjusted, it is below 0, and so is its lower bound, with weights so small that they were rounded."""
    metric = sm.BalancedAccuracy(num_classes=3, threshold=None, adjusted=True)
    weights = 1.2345e-9 * np.sqrt(np.arange(1, 8))
    metric.update([0, 0, 1, 1, 2, 2, 1], [1, 2, 1, 2, 0, 1, 2], sample_weight=weights)
    low, high = metric.bounds()
    assert low < metric.compute() < high < 0


def test_matrices_at_thresholds() -> None:
    y, s = RNG.integers(0, 2, 60), RNG.random(60)
    found = sm.ConfusionMatrix(threshold=CUTS).update(y, s).compute()
    np.testing.assert_array_equal(found, [sk.confusion_matrix(y, s >= t) for t in CUTS])


def test_one_state_serves_thresholds_of_several_metrics() -> None:
    both = sm.MetricCollection({"a": sm.Precision(threshold=(0.1, 0.6)), "b": sm.Recall(threshold=0.3)})
    assert len(states_of(both.update([0, 1, 1], [0.2, 0.4, 0.9]))) == 1
    assert both.compute()["b"] == 1.0


# -- what is left out, what is 0/0 -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["number", "chosen", "name", "found", "top"])
def test_a_class_that_is_ignored(kind: str) -> None:
    y, p = RNG.integers(0, 4, 200), RNG.random((200, 4))
    keep, names = y != 1, np.array(list("abcd"))
    made = {
        "number": lambda: sm.F1(num_classes=4, ignore_class=1).update(y, p),
        "chosen": lambda: sm.F1(num_classes=4, ignore_class=1, threshold=None).update(y, p.argmax(axis=1)),
        "name": lambda: sm.F1(labels=tuple(names), ignore_class="b").update(names[y], p),
        "found": lambda: sm.F1(labels="discover", ignore_class=1).update(y, p.argmax(axis=1)),
        "top": lambda: sm.F1(num_classes=4, top_k=2, ignore_class=1).update(y, p),
    }[kind]()
    alone = {
        "number": lambda: sm.F1(num_classes=4).update(y[keep], p[keep]),
        "chosen": lambda: sm.F1(num_classes=4, threshold=None).update(y[keep], p[keep].argmax(axis=1)),
        "name": lambda: sm.F1(labels=tuple(names)).update(names[y[keep]], p[keep]),
        "found": lambda: sm.F1(labels="discover").update(y[keep], p[keep].argmax(axis=1)),
        "top": lambda: sm.F1(num_classes=4, top_k=2).update(y[keep], p[keep]),
    }[kind]()
    assert made.compute() == alone.compute()
    assert made.explain()["dropped"] == {"y_true": int((~keep).sum())}


def test_a_class_beside_the_others_is_ignored_and_no_other() -> None:
    far = sm.Accuracy(num_classes=3, threshold=None, ignore_class=-2)
    assert far.update([0, -2, 2], [0, 1, 1]).compute() == 0.5
    with pytest.raises(sm.InvalidInputError, match="found -1 in row 1"):
        far.update([0, -1], [0, 0])
    found = sm.Accuracy(labels="discover", ignore_class=None).update([0, -2], [0, 1])
    assert found.compute() == 0.5
    with pytest.raises(ValueError, match="where= of a Task"):
        sm.Accuracy(ignore_class=0)
    top = sm.TopKAccuracy(k=1, num_classes=2, ignore_class=255).update([0, 255], [[0.9, 0.1], [0.1, 0.9]])
    assert top.compute() == 1.0


def test_settings_that_contradict_each_other() -> None:
    for match, make in (
        ("needs a score for each label", lambda: sm.Recall(top_k=1)),
        ("TopKAccuracy", lambda: sm.MatthewsCorrcoef(num_classes=3, top_k=1)),
        ("needs a score for each label", lambda: sm.Recall(labels="discover", top_k=1)),
        ("expected at least one threshold", lambda: sm.Recall(threshold=())),
        ("as num_labels=", lambda: sm.Recall(num_classes=3, average="samples")),
        ("average must be one of", lambda: sm.Specificity(num_labels=3, average="samples")),
        ("the class with the highest score is predicted", lambda: sm.Recall(num_classes=3, threshold=(0.1, 0.2))),
        ("num_outputs= and num_classes=", lambda: sm.SubsetAccuracy(num_outputs=3)),
        ("apply only to num_labels=", lambda: sm.SubsetAccuracy(num_outputs=3, num_classes=2, top_k=1)),
        ("needs num_classes=", lambda: sm.HammingLoss(num_outputs=2)),
    ):
        with pytest.raises(ValueError, match=match):
            make()


@pytest.mark.parametrize("zero", [0.0, 1.0])
@pytest.mark.parametrize(
    "cls",
    [c for c in sm.extend.METRICS.values() if c.about.tag in of.RATIOS and "zero_division" in settable_names(c)],
    ids=lambda c: c.about.tag,
)
def test_zero_division(cls: Any, zero: float) -> None:
    metric = cls(zero_division=zero)
    assert metric.compute() == zero
    assert np.isnan(without_warnings(cls().compute))


def test_scikit_learns_likelihood_ratios() -> None:
    y, s = RNG.integers(0, 2, 80), RNG.random(80)
    found = [cls().update(y, s).compute() for cls in (sm.PositiveLikelihoodRatio, sm.NegativeLikelihoodRatio)]
    np.testing.assert_allclose(found, sk.class_likelihood_ratios(y, s >= 0.5), rtol=1e-14)


# -- roots -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [2, 3, 17, 1000])
def test_geometric_means_are_rounded_once(k: int) -> None:
    rng = np.random.default_rng(k)
    for most in (3, 10**6, 2**61):
        pairs = [(a, a + b) for a, b in zip(*rng.integers(1, most, (2, k)).tolist(), strict=True)]
        found = _root(pairs)
        product = np.prod([Fraction(*pair) for pair in pairs])
        assert found.low**k <= product <= found.high**k
        assert found.round_outward() == (found.to_float(),) * 2
    same = _root([(3, 4)] * k)
    assert same.to_float() == 0.75
    assert same.round_outward() == (0.75, 0.75)


# -- rows of several decisions -----------------------------------------------------------------------------------------


def test_criteria_of_rows_of_labels() -> None:
    y, s = RNG.integers(0, 2, (300, 3)), RNG.random((300, 3))
    d = s >= 0.5
    expected = {
        "exact_match": (y == d).all(axis=1),
        "overlap": ((y == 1) & d).any(axis=1) | ((y == 0) & ~d).all(axis=1),
        "contain": (d >= y).all(axis=1),
        "belong": (d <= y).all(axis=1),
    }
    for criteria, right in expected.items():
        assert sm.SubsetAccuracy(num_labels=3, criteria=criteria).update(y, s).compute() == right.mean()
    chosen = np.argsort(np.argsort(-s, axis=1, kind="stable"), axis=1) < 2
    found = sm.SubsetAccuracy(num_labels=3, top_k=2).update(y, s)
    assert found.compute() == (chosen == y).all(axis=1).mean()


def of_keras(s: Any, k: int, threshold: float) -> Any:
    """Labels as Keras predicts them with `top_k=` and `thresholds=`: scores below the k highest are minus infinity."""
    kept = np.argsort(np.argsort(-s, axis=1, kind="stable"), axis=1) < k
    return np.where(kept, s, -np.inf) >= threshold  # Keras has >, here a score at the threshold is positive everywhere


@pytest.mark.parametrize("threshold", [0.5, 0.25, -1e300, (0.25, 0.5), (-1e300, 0.5)])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_a_label_is_among_the_highest_and_above_the_threshold(dtype: Any, threshold: Any) -> None:
    rng = np.random.default_rng(4)
    y, s = rng.integers(0, 2, (300, 5)), (rng.integers(0, 9, (300, 5)) / 8).astype(dtype)
    w = rng.integers(1, 5, 300) / 2
    given = {"num_labels": 5, "top_k": 2, "threshold": threshold, "zero_division": 0.0}
    for make, oracle in ((sm.Precision, sk.precision_score), (sm.Recall, sk.recall_score), (sm.F1, sk.f1_score)):
        for average in ("macro", "micro", "samples"):
            metric = make(average=average, **given)
            sliced = sm.Sliced(make(average=average, **given), by="k")
            for rows in (slice(0, 1), slice(1, 300)):
                metric.update(y[rows], s[rows], sample_weight=w[rows])
                sliced.update(y[rows], s[rows], sample_weight=w[rows], k=y[rows, 0])
            cuts = threshold if isinstance(threshold, tuple) else (threshold,)
            wanted = [
                oracle(y, of_keras(s.astype(float), 2, t), average=average, sample_weight=w, zero_division=0)
                for t in cuts
            ]
            assert metric.compute() == pytest.approx(np.squeeze(wanted), abs=1e-12)
            assert sliced.total.compute() == pytest.approx(metric.compute(), abs=1e-15)
    if not isinstance(threshold, tuple):
        subset = sm.SubsetAccuracy(num_labels=5, top_k=2, threshold=threshold).update(y, s)
        assert subset.compute() == (of_keras(s.astype(float), 2, threshold) == y).all(axis=1).mean()


def test_a_threshold_beside_the_highest_of_classes_and_in_bytes() -> None:
    y, s = np.array([0, 1, 2]), np.array([[0.5, 0.4, 0.1], [0.6, 0.3, 0.1], [0.2, 0.2, 0.6]])
    both = sm.Recall(num_classes=3, top_k=2, threshold=0.35, average=None).update(y, s)
    assert both.compute().tolist() == [1.0, 0.0, 1.0]
    assert sm.Recall(num_classes=3, top_k=2, average=None).update(y, s).compute().tolist() == [1.0, 1.0, 1.0]
    alone, cut = sm.Precision(num_labels=3, top_k=2), sm.Precision(num_labels=3, top_k=2, threshold=0.5)
    assert (alone.threshold, cut.threshold) == (None, 0.5)
    assert (alone.name, cut.name) == ("precision_top_2", "precision_top_2@0.5")
    assert repr(cut) == "Precision(threshold=0.5, num_labels=3, top_k=2)"
    for metric in (both, alone, cut):
        assert repr(sm.from_bytes(metric.to_bytes())) == repr(metric)
        assert empty_copy(metric).settings == metric.settings
    with pytest.raises(sm.IncompatibleStateError, match=r"threshold is None here and 0\.5 there"):
        alone.merge(cut)


def test_outputs_of_several_classes() -> None:
    y = RNG.integers(0, 3, (200, 4))
    p, w = np.where(RNG.random(y.shape) < 0.8, y, 0), RNG.integers(0, 5, 200) / 2
    exact = sm.SubsetAccuracy(num_classes=3, num_outputs=4).update(y, p, sample_weight=w)
    wrong = sm.HammingLoss(num_classes=3, num_outputs=4).update(y, p, sample_weight=w)
    assert exact.compute() == pytest.approx(np.average((y == p).all(axis=1), weights=w), rel=1e-15)
    assert wrong.compute() == pytest.approx(np.average((y != p).mean(axis=1), weights=w), rel=1e-15)
    assert exact.interval().low < exact.compute() < exact.interval().high
    with pytest.raises(sm.InvalidInputError, match="found 3 in row 1, column 0"):
        exact.update([[0, 0, 0, 0], [3, 0, 0, 0]], p[:2])


# -- groups ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("tag", "i"), [(tag, i) for tag in of.FAIRNESS for i in range(len(of.FAIRNESS[tag]))])
def test_between_groups(tag: str, i: int) -> None:
    settings, expected = of.FAIRNESS[tag][i]
    for seed, weighted in itertools.product(range(4), (False, True)):
        rng = np.random.default_rng(seed)
        y, s, group = rng.integers(0, 2, 150), rng.random(150), rng.choice(["a", "b", "unsaid"], 150)
        w = rng.integers(1, 9, 150) / 4 if weighted else np.ones(150)
        metric = sm.extend.METRICS[tag](**settings).update(y, s, group=group, sample_weight=w)
        assert metric.compute() == pytest.approx(expected(y, s >= 0.5, group, w), rel=1e-14)
        assert metric.bounds() == (metric.compute(),) * 2
        assert set(metric.explain()[next(iter(metric.rates))]) == {"a", "b", "unsaid"}


def test_groups_without_a_rate_are_left_out_and_counted() -> None:
    metric = sm.EqualOpportunityRatio(threshold=None)
    metric.update([1, 1, 1, 0], [1, 1, 1, 1], group=[1, 1, 2, 3])
    assert metric.compute() == 1.0
    assert metric.explain()["undefined"] == 1
    none = sm.DemographicParityRatio(threshold=None).update([1, 0], [0, 0], group=[1, 2])
    assert np.isnan(without_warnings(none.compute))
    assert "0 in every group" in none.explain()["reason"]
    assert sm.DemographicParityRatio(threshold=None, zero_division=1.0).reading(none.state).value == 1.0
    with pytest.raises(sm.MemoryLimitError, match="3 different groups, but max_groups is 2"):
        sm.DemographicParityRatio(max_groups=2).update([1, 1, 1], [0.1, 0.2, 0.3], group=[1, 2, 3])


# -- labelings ---------------------------------------------------------------------------------------------------------


def labelings() -> dict[str, tuple[Any, Any]]:
    rng = np.random.default_rng(5)
    a = rng.integers(0, 20, 2000)
    return {
        "independent": (rng.integers(0, 5, 300), rng.integers(0, 9, 300)),
        "alike": (a, np.where(rng.random(2000) < 0.3, a % 7, rng.integers(0, 30, 2000))),
        "renamed": (a, (a * 7) % 20 + 100),
        "one class": (np.zeros(6, int), np.arange(6) // 2),
        "one each": (np.zeros(6, int), np.ones(6, int)),
        "crossed": (np.arange(12) % 3, np.arange(12) // 3),
        "few": (np.array([0, 0, 1, 1]), np.array([0, 0, 1, 2])),
    }


@pytest.mark.parametrize("log", labelings())
@pytest.mark.parametrize(("tag", "i"), [(tag, i) for tag in of.LABELINGS for i in range(len(of.LABELINGS[tag]))])
def test_two_labelings(tag: str, i: int, log: str) -> None:
    settings, expected = of.LABELINGS[tag][i]
    a, b = labelings()[log]
    metric = sm.extend.METRICS[tag](**settings).update(a, b)
    value, (low, high) = without_warnings(metric.compute), metric.bounds()
    np.testing.assert_allclose(value, expected(a, b), rtol=1e-10, atol=1e-12)
    assert np.all((low <= value) & (value <= high)) or np.isnan(value).all()
    np.testing.assert_allclose(low, high, rtol=1e-10, atol=1e-10)
    swapped = sm.extend.METRICS[tag](**settings).update(
        np.array(list("abcdefghijklmnopqrstuvwxyzäöüß"))[b % 30], np.char.mod("%d", a)
    )
    if log != "renamed" and tag not in ("homogeneity", "completeness", "v_measure", "pair_confusion_matrix"):
        assert np.array_equal(without_warnings(swapped.compute), value, equal_nan=True)  # names and sides do not matter


def test_labelings_where_peers_differ() -> None:
    each = sm.FowlkesMallowsIndex().update([1, 2, 3], [4, 5, 6])
    assert each.compute() == 1.0  # scikit-learn's 0: no two rows are together
    half = sm.AdjustedMutualInformation(average_method="min").update([0, 0, 1, 1], [0, 1, 2, 3])
    assert np.isnan(without_warnings(half.compute))
    assert half.explain()["reason"] == "0/0"
    assert sm.AdjustedMutualInformation().reading(half.state).value == 0.0


def test_weights_of_labelings() -> None:
    whole = sm.AdjustedRandScore().update([0, 0, 1, 1], [0, 0, 1, 2], sample_weight=[2, 1, 1, 3])
    assert whole.compute() == sk.adjusted_rand_score([0, 0, 0, 1, 1, 1, 1], [0, 0, 0, 1, 2, 2, 2])
    part = sm.AdjustedRandScore().update([0, 0, 1], [0, 0, 1], sample_weight=[0.5, 1, 1])
    assert np.isnan(without_warnings(part.compute))
    assert part.explain()["reason"] == "weights are not whole numbers of rows"
    shares = sm.MutualInformation().update([0, 1], [0, 1], sample_weight=[0.25, 0.75])
    assert shares.compute() == pytest.approx(-(0.25 * np.log(0.25) + 0.75 * np.log(0.75)), rel=1e-15)
    heavy = sm.ClusterAccuracy().update([0, 0, 1], [5, 6, 6], sample_weight=[0.5, 1.75, 1.5])
    assert heavy.compute() == 2 / 3.75  # and not the single heaviest pair
    low, high = sm.ClusterAccuracy().update([0, 1], [5, 5], sample_weight=[1 / 3, 2 / 3]).bounds()
    assert low <= 2 / 3 <= high < low + 1e-15


def test_expected_information_is_within_its_limits() -> None:
    """Against sums of fractions, whose logarithms are of 60 digits."""
    import decimal
    import math

    decimal.getcontext().prec = 60
    a, b = np.repeat([0, 1, 2], [9, 4, 1]), np.repeat([0, 1], [8, 6])
    n, total = 14, decimal.Decimal(0)
    for x, z in itertools.product((9, 4, 1), (8, 6)):
        for k in range(max(1, x + z - n), min(x, z) + 1):
            p = Fraction(math.comb(z, k) * math.comb(n - z, x - k), math.comb(n, x)) * k / n
            share = decimal.Decimal(p.numerator) / p.denominator
            total += share * (decimal.Decimal(n * k) / (x * z)).ln()
    metric = sm.ExpectedMutualInformation().update(a, b)
    low, high = metric.bounds()
    assert decimal.Decimal(low) <= total <= decimal.Decimal(high)
    assert high - low < 1e-13


# -- many raters -------------------------------------------------------------------------------------------------------

FLEISS = [
    [0, 0, 0, 0, 14], [0, 2, 6, 4, 2], [0, 0, 3, 5, 6], [0, 3, 9, 2, 0], [2, 2, 8, 1, 1],
    [7, 7, 0, 0, 0], [3, 2, 6, 3, 0], [2, 5, 3, 2, 2], [6, 5, 2, 1, 0], [0, 2, 2, 3, 7],
]  # fmt: skip
"""14 raters of 10 items, whose kappa is 0.21."""


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("raters", [5, None], ids=["as many each", "different"])
def test_every_pair_of_raters(raters: int | None, weighted: bool) -> None:
    (settings, expected), rng = of.RATERS["fleiss_kappa"][0], np.random.default_rng(4)
    each = np.full(60, raters) if raters else rng.integers(0, 7, 60)
    ratings = np.array([rng.multinomial(n, rng.dirichlet(np.ones(4))) for n in each])
    w = rng.integers(0, 9, 60) / 4 if weighted else np.ones(60)
    metric = sm.FleissKappa(**settings)
    for rows in (slice(0, 20), slice(20, 60)):
        metric.update(ratings[rows], **({"sample_weight": w[rows]} if weighted else {}))
    assert metric.compute() == pytest.approx(expected(ratings, w), rel=1e-12)
    assert metric.bounds() == (metric.compute(), metric.compute())


def test_the_kappa_of_the_textbook() -> None:
    found = sm.FleissKappa(num_classes=5).update(FLEISS).compute()
    table = np.array(FLEISS)
    agreed = Fraction(int((table * (table - 1)).sum()), 10 * 14 * 13)
    chance = sum(Fraction(int(n), 140) ** 2 for n in table.sum(axis=0))
    assert found == float((agreed - chance) / (1 - chance)) == pytest.approx(0.20993, abs=1e-5)


@pytest.mark.parametrize(
    ("ratings", "weights", "reason"),
    [
        (np.zeros((0, 2), int), np.zeros(0), "no rows"),
        ([[1, 1]], [0.0], "the weights are all zero"),
        ([[1, 0], [0, 1]], [1.0, 1.0], "no item has two raters"),
        ([[3, 0], [1, 0]], [1.0, 1.0], "all raters chose the same class"),
    ],
)
def test_raters_who_say_nothing(ratings: Any, weights: Any, reason: str) -> None:
    metric = sm.FleissKappa(num_classes=2).update(ratings, sample_weight=weights)
    assert np.isnan(without_warnings(metric.compute))
    assert metric.explain()["reason"] == reason


def test_a_rating_is_a_count() -> None:
    for bad in (0.5, -1, 2**24 + 1):
        with pytest.raises(sm.InvalidInputError, match="a count"):
            sm.FleissKappa(num_classes=2).update([[1, bad]])
