"""Several classes and labels: every metric against scikit-learn or naive code, whatever is tied, absent or weighted."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import oracles_classes
import oracles_curves
import oracles_decisions  # noqa: F401 - adds to oracles_classes.SEVERAL
import oracles_probabilities
import pandas as pd
import pytest
from sklearn import metrics as sk

import streammetrics as sm
from streammetrics.laws.case import numbers, without_warnings
from streammetrics.metrics.averages import OfClasses
from streammetrics.metrics.probabilities.calibration import ExpectedCalibrationError, MaximumCalibrationError
from streammetrics.metrics.probabilities.losses import SummedMetric

DATA = Path(os.environ.get("STREAMMETRICS_DATA", Path(__file__).parents[3] / "shared" / "data"))
K = 4
CURVES = ("calibration_curve", "calibration_table")
POINTS = ("roc_curve", "pr_curve", "det_curve", "gain_curve")
FLOATS = ("bedroc", "h_measure", "log_auc", "thresholded_auc")
"""Sums of logarithms and powers, which bounds leave room for."""
CUT = (SummedMetric, ExpectedCalibrationError, MaximumCalibrationError)
"""Their terms are multiples of 2**-60, which bounds have room for where means are small: `test_small_terms.py`."""
ROUNDED = oracles_curves.SEVERAL | oracles_probabilities.SEVERAL
"""Metrics whose references round many times."""
SEVERAL = oracles_classes.SEVERAL | ROUNDED


def logs() -> dict[str, tuple[Any, Any, Any]]:
    """Classes, probabilities of each, weights."""
    rng = np.random.default_rng(7)
    n = 600
    y = rng.integers(0, K, n)
    p = rng.dirichlet(np.ones(K), n) * 0.7 + 0.3 * np.eye(K)[y]
    ones, w = np.ones(n), rng.integers(0, 9, n) / 4
    tied = rng.integers(1, 3, (n, K)).astype(float)
    sure = np.where(rng.random(n) < 0.7, y, rng.integers(0, K, n))
    return {
        "plain": (y, p, ones),
        "weighted": (y, p, w),
        "fractional weights": (y, p, rng.random(n) * 10 + 2**-30),
        "float32": (y, p.astype(np.float32), w),
        "tied": (y, tied / tied.sum(axis=1, keepdims=True), w),
        "sure": (y, np.eye(K)[sure], ones),
        "never predicted": (y, np.eye(K)[np.minimum(sure, K - 2)], w),
        "few": (np.r_[0:K, 0:K], p[: 2 * K], w[: 2 * K] + 1),
    }


def label_logs() -> dict[str, tuple[Any, Any, Any]]:
    """Matrices of labels and scores, rows with none and with all, weights."""
    rng = np.random.default_rng(8)
    n = 500
    Y = (rng.random((n, K)) < [0.5, 0.2, 0.8, 0.1]).astype(np.int64)
    Y[:30], Y[30:50] = 0, 1
    s = np.clip(0.5 * rng.random((n, K)) + 0.4 * Y, 0, 1)
    ones, w = np.ones(n), rng.integers(0, 9, n) / 4
    return {
        "plain": (Y, s, ones),
        "weighted": (Y, s, w),
        "float32": (Y, s.astype(np.float32), w),
        "tied": (Y, np.round(s * 4) / 4, ones),
        "constant": (Y, np.full((n, K), 0.5), w),
        "few": (Y[40:70], s[40:70], w[40:70] + 1),
    }


LOGS = (logs(), label_logs())
CASES = [
    (tag, i, kind, log)
    for tag in SEVERAL
    for kind in (0, 1)
    for i in range(len(SEVERAL[tag][kind]))
    for log in LOGS[kind]
]


@pytest.mark.parametrize(("tag", "i", "kind", "log"), CASES)
def test_as_others(tag: str, i: int, kind: int, log: str) -> None:
    check(SEVERAL[tag][kind][i], tag, {"num_classes": K} if kind == 0 else {"num_labels": K}, *LOGS[kind][log])


def check(oracle: Any, tag: str, which: dict[str, int], y: Any, p: Any, w: Any) -> None:
    s = np.log(np.maximum(p.astype(float), 1e-6)).astype(p.dtype) if oracle.scale == "logit" else p
    wide, eps = s.astype(np.float64), 2.0**-52 if p.dtype == np.float64 else 2.0**-23
    if tag == "log_loss" and oracle.scale != "logit":
        wide = np.clip(wide, eps, 1 - eps)
    expected = numbers(oracle.of(y, wide, w))
    metric = sm.extend.METRICS[tag](**which, **oracle.settings)
    metric.update({"y_true": y, "y_score": s} | ({} if (w == 1).all() else {"sample_weight": w}))
    value, (low, high) = numbers(without_warnings(metric.compute)), map(numbers, metric.bounds())
    if metric.explain().get("off_grid"):
        good = (low - 1e-14 <= expected) & (expected <= high + 1e-14) & (low <= value) & (value <= high)
        assert (good | (np.isnan(expected) & np.isnan(value))).all()
    else:
        known = np.where(np.isnan(value) & ~np.isnan(expected), 0.0, value)  # scikit-learn's 0 for 0/0
        np.testing.assert_allclose(known, expected, rtol=1e-12 if tag in ROUNDED else 1e-14, atol=1e-14)
        if isinstance(metric, CUT):
            assert ((high - low <= 1e-13) | (np.isnan(low) & np.isnan(high))).all()
        elif tag not in FLOATS:
            assert np.array_equal(low, high, equal_nan=True)


def test_every_metric_of_classes_and_labels_is_compared() -> None:
    for tag, metric in sm.extend.METRICS.items():
        if (
            not metric.__module__.startswith("streammetrics.")
            or not issubclass(metric, OfClasses)
            or tag in CURVES + POINTS
        ):
            continue
        for kind, which in enumerate(({"num_classes": K}, {"num_labels": K})):
            try:
                metric(**which)
            except (TypeError, ValueError):
                continue
            assert SEVERAL.get(tag, ((), ()))[kind], f"{tag} has no reference for {which}"


@pytest.mark.parametrize("tag", ["accuracy", "f1", "matthews_corrcoef", "confusion_matrix"])
def test_classes_by_name_by_number_and_found_are_the_same(tag: str) -> None:
    y, p, w = LOGS[0]["weighted"]
    names = np.array(["ant", "bee", "cat", "dög"])
    expected = sm.extend.METRICS[tag](num_classes=K).update(y, p, sample_weight=w).compute()
    guess = p.argmax(axis=1)
    others = [
        sm.extend.METRICS[tag](labels=tuple(names)).update(names[y], p, sample_weight=w),
        sm.extend.METRICS[tag](labels=tuple(names), threshold=None).update(
            list(names[y]), names[guess], sample_weight=w
        ),
        sm.extend.METRICS[tag](labels="discover").update(names[y].astype(object), names[guess], sample_weight=w),
        sm.extend.METRICS[tag](labels="discover").update(
            [s.encode() for s in names[y]], [s.encode() for s in names[guess]], sample_weight=w
        ),
        sm.extend.METRICS[tag](labels=(7, 1 << 40, 1 << 50, 1 << 60), threshold=None).update(
            np.array([7, 1 << 40, 1 << 50, 1 << 60])[y],
            np.array([7, 1 << 40, 1 << 50, 1 << 60])[guess],
            sample_weight=w,
        ),
        sm.extend.METRICS[tag](num_classes=K, threshold=None).update(
            y.astype(np.uint8), guess.astype(np.float32), sample_weight=w
        ),
    ]
    for other in others:
        assert np.array_equal(other.compute(), expected), other


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("width", [31, 32, 513, 1100])
def test_the_highest_of_many_classes(width: int, dtype: Any) -> None:
    """Of either sign, with ties, and with zeros of both signs, which are equal."""
    rng = np.random.default_rng(width)
    real = rng.normal(size=(24, width)).astype(dtype)
    rare = rng.random(real.shape) < 2 / width
    for s in (real, -abs(real), np.rint(real), np.where(rare, -0.0 * real, -abs(real)).astype(dtype)):
        best = s.argmax(axis=1)
        matrix = sm.ConfusionMatrix(num_classes=width).update(best, s).compute()
        assert (matrix == np.diag(np.bincount(best, minlength=width))).all()
        y = rng.integers(0, width, len(s))
        ahead = [np.lexsort((np.arange(width), -row)).tolist().index(t) for row, t in zip(s, y, strict=True)]
        for k in (1, 3, width // 2):
            top = sm.TopKAccuracy(k=k, num_classes=width).update(y, s).compute()
            assert top == np.mean(np.array(ahead) < k), (k, ahead)
    for bad in (np.nan, np.inf, -np.inf, np.copysign(np.nan, -1)):
        for s in (real.copy(), -abs(real)):
            s[-1, rng.integers(width)] = bad
            with pytest.raises(sm.InvalidInputError):
                sm.Accuracy(num_classes=width).update(np.zeros(len(s), int), s)


def test_labels_give_the_order() -> None:
    y, guess = ["b", "a", "b"], ["a", "a", "b"]
    assert sm.Recall(labels=("b", "a"), threshold=None, average=None).update(y, guess).compute().tolist() == [0.5, 1.0]
    assert sm.Recall(labels=("a", "b"), threshold=None, average=None).update(y, guess).compute().tolist() == [1.0, 0.5]
    absent = sm.Recall(labels=("a", "b", "c"), threshold=None, average=None).update(y, guess)
    assert np.array_equal(absent.compute(), [1.0, 0.5, np.nan], equal_nan=True)
    assert absent.explain()["undefined"] == 1


def test_curves_of_the_highest_class() -> None:
    y, p, w = LOGS[0]["float32"]
    right, top = (p.argmax(axis=1) == y).astype(int), p.max(axis=1)
    for tag in CURVES:
        for scale in ({}, {"strategy": "quantile"}):
            several = sm.extend.METRICS[tag](num_classes=K, **scale).update(y, p, sample_weight=w).compute()
            plain = sm.extend.METRICS[tag](**scale).update(right, top, sample_weight=w).compute()
            for ours, theirs in zip(several, plain, strict=True):
                assert np.array_equal(ours, theirs, equal_nan=True)


def test_one_state_serves_many_metrics() -> None:
    y, p, _ = LOGS[0]["plain"]
    C = sm.MetricCollection(
        sm.Accuracy(num_classes=K), sm.F1(num_classes=K), sm.F1(num_classes=K, average=None), sm.AUC(num_classes=K),
        sm.AveragePrecision(num_classes=K), sm.LogLoss(num_classes=K), sm.BrierScore(num_classes=K),
    )  # fmt: skip
    assert len(C.plan()) == 3
    C.update(y, p)
    assert C.compute()["accuracy"] == sk.accuracy_score(y, p.argmax(axis=1))
    assert sm.MatthewsCorrcoef(num_classes=K).reading(C["accuracy"].state).value == pytest.approx(
        sk.matthews_corrcoef(y, p.argmax(axis=1))
    )
    assert sm.KS().reading(C["auc"].state).value == sm.KS(num_classes=K).update(y, p).compute()


@pytest.mark.slow
def test_a_thousand_labels() -> None:
    rng = np.random.default_rng(3)
    Y, s = (rng.random((300, 1000)) < 0.03).astype(np.uint8), rng.random((300, 1000)).astype(np.float16)
    Y[0] = 1
    metrics = [sm.AUC, sm.AveragePrecision]
    for metric, theirs in zip(metrics, (sk.roc_auc_score, sk.average_precision_score), strict=True):
        found = metric(num_labels=1000, bits=12).update(Y, s)
        assert found.compute() == pytest.approx(theirs(Y, s.astype(float), average="macro"), abs=2e-3)
        low, high = found.bounds()
        assert low <= theirs(Y, s.astype(float), average="macro") <= high
    assert sm.F1(num_labels=1000, zero_division=0.0).update(Y, s).compute() == pytest.approx(
        sk.f1_score(Y, s >= 0.5, average="macro"), abs=1e-14
    )
    ranks = sm.LabelRankingLoss(num_labels=1000).update(Y, s)
    assert ranks.compute() == pytest.approx(sk.label_ranking_loss(Y, s.astype(float)), abs=1e-14)


@pytest.mark.parametrize("log", ["plain", "weighted", "float32"])
@pytest.mark.parametrize("which", [{"num_classes": K}, {"num_labels": K}])
@pytest.mark.parametrize(
    "make",
    [
        sm.AUC,
        sm.Calibration,
        lambda **w: sm.LogLoss(**w, scale="logit"),
        sm.ExpectedCalibrationError,
        sm.F1,
        sm.ConfusionMatrix,
    ],
)
def test_many_rows_at_once_are_as_few_at_a_time(make: Any, which: Any, log: str) -> None:
    y, s, w = LOGS["num_labels" in which][log]
    whole, few = make(**which).update(y, s, sample_weight=w), make(**which)
    for a in range(0, len(y), 50):
        rows = slice(a, a + 50)
        few.update(y[rows], s[rows], **({} if log == "plain" else {"sample_weight": w[rows]}))
    assert few == whole
    assert few.to_bytes() == whole.to_bytes()
    assert (
        whole.copy().merge(few).compute() == pytest.approx(whole.compute(), nan_ok=True) or make is sm.ConfusionMatrix
    )


def test_ndcg_of_the_labels_of_a_row() -> None:
    Y, s, _ = LOGS[1]["plain"]
    kept = Y.any(axis=1)
    found = sm.NDCG().update(Y[kept], s[kept]).compute()
    assert found == pytest.approx(sk.ndcg_score(Y[kept], s[kept]), abs=1e-14)


@pytest.mark.parametrize("model", ["a", "b"])
@pytest.mark.parametrize("table", ["multiclass_digits", "multilabel_yeast", "multilabel_scene", "multilabel_bibtex"])
def test_real_logs(table: str, model: str) -> None:
    if not (DATA / f"{table}.parquet").exists():
        pytest.skip("the real logs are not here: set STREAMMETRICS_DATA to their folder")
    import pyarrow.parquet as pq

    log, kind = pq.read_table(DATA / f"{table}.parquet"), int(table.startswith("multilabel"))
    if kind:
        y, s = (np.array(log[name].to_pylist()) for name in ("y", f"score_{model}"))
    else:
        names = [n for n in log.column_names if n.startswith(f"prob_{model}_")]
        y, s = log["label"].to_numpy(), np.column_stack([log[n].to_numpy() for n in names])
    which, ones = {("num_classes", "num_labels")[kind]: s.shape[1]}, np.ones(len(y))
    for tag, lines in SEVERAL.items():
        for oracle in lines[kind]:
            if not (tag.startswith("normal") or oracle.scale == "logit"):
                check(oracle, tag, which, y.astype(np.int64), s, ones)


def test_worked_examples() -> None:
    y, s = [[1, 0, 0], [0, 0, 1]], [[0.75, 0.5, 1], [1, 0.2, 0.1]]
    assert sm.CoverageError(num_labels=3).update(y, s).compute() == 2.5
    assert sm.LabelRankingAveragePrecision(num_labels=3).update(y, s).compute() == pytest.approx(5 / 12, abs=1e-16)
    assert sm.LabelRankingLoss(num_labels=3).update(y, s).compute() == 0.75
    assert sm.LabelRankingLoss(num_labels=3).update(y, [[1.0, 0.1, 0.2], [0.1, 0.2, 0.9]]).compute() == 0
    scores = np.array([[0.5, 0.2, 0.2], [0.3, 0.4, 0.2], [0.2, 0.4, 0.3], [0.7, 0.2, 0.1]])
    assert sm.TopKAccuracy(k=2, num_classes=3).update([0, 1, 2, 2], scores).compute() == 0.75


def refused(metric: Any, *columns: Any) -> str:
    before = metric.to_bytes()
    with pytest.raises(sm.StreamMetricsError) as caught:
        metric.update(*columns)
    assert metric.to_bytes() == before
    return str(caught.value)


def test_bad_classes_are_told() -> None:
    hard = {"threshold": None}
    assert "found 3 in row 2 (2 of 4 rows" in refused(sm.Accuracy(num_classes=3, **hard), [0, 1, 3, -1], [0, 1, 2, 2])
    assert "found 0.5 in row 0" in refused(sm.Accuracy(num_classes=3, **hard), [0.5, 1.0], [0, 1])
    assert "one of 'cat', 'dog', found 'cow' in row 1" in refused(
        sm.F1(labels=("cat", "dog"), **hard), ["cat", "cow"], ["cat", "dog"]
    )
    assert "classes of kind integer instead of string" in refused(sm.F1(labels=("cat", "dog"), **hard), [0, 1], [0, 1])
    assert "for named classes, pass labels=(...)" in refused(
        sm.F1(num_classes=2, **hard), ["cat", "cow"], ["cat", "dog"]
    )
    assert "found a null in row 1" in refused(sm.F1(labels="discover"), np.array(["cat", None], object), ["cat", "dog"])
    assert "of up to 40 bytes" in refused(sm.F1(labels="discover"), ["cat", "c" * 41], ["cat", "dog"])
    assert "one kind, found integer and string" in refused(sm.F1(labels="discover"), ["cat", "dog"], [0, 1])
    assert "max_labels is 2" in refused(sm.F1(labels="discover", max_labels=2), ["a", "b"], ["a", "c"])
    assert "sum to 1" in refused(sm.AUC(num_classes=2), [0, 1], [[0.5, 0.5], [0.5, 0.6]])
    assert "a sum of 1.1 in row 1" in refused(sm.AUC(num_classes=2), [0, 1], [[0.5, 0.5], [0.5, 0.6]])
    assert "2 in row 0, column 1" in refused(sm.HammingLoss(num_labels=2), [[0, 2]], [[0.1, 0.1]])
    assert "to pass predicted classes, pass one integer or string for each row" in refused(
        sm.Accuracy(num_classes=2), [0, 1], [0.2, 0.7]
    )
    assert "rows of 3" in refused(sm.AUC(num_labels=3), [[0, 1]], [[0.1, 0.1]])


FORMS: dict[str, Any] = {
    "array": np.asarray,
    "list": np.ndarray.tolist,
    "int16": lambda v: v.astype("i2"),
    "uint8": lambda v: v.astype("u1"),
    "one column": lambda v: v[:, None],
    "series": pd.Series,
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_predicted_classes_in_place_of_scores(form: Any) -> None:
    """As in scikit-learn, integers of one dimension are classes: the state is that of scores that predict them."""
    rng = np.random.default_rng(3)
    y, predicted = rng.integers(0, 3, 200), rng.integers(0, 3, 200)
    for make, oracle in (
        (sm.Accuracy, sk.accuracy_score),
        (sm.BalancedAccuracy, sk.balanced_accuracy_score),
        (sm.MatthewsCorrcoef, sk.matthews_corrcoef),
        (sm.F1, partial(sk.f1_score, average="macro")),
    ):
        metric = make(num_classes=3)
        for rows in (slice(0, 1), slice(1, 90), slice(90, 200)):
            metric.update(y[rows], form(predicted[rows]))
        assert metric.compute() == pytest.approx(oracle(y, predicted), abs=1e-12)
        assert metric == make(num_classes=3).update(y, np.eye(3)[predicted])
        sliced = sm.Sliced(make(num_classes=3), by="k").update(y, form(predicted), k=y % 2)
        assert sliced.total.compute() == metric.compute()
    mixed = sm.F1(num_classes=3).update(y, np.eye(3)[predicted]).update(y, form(predicted))
    assert mixed.compute() == pytest.approx(sk.f1_score(y, predicted, average="macro"), abs=1e-12)


def test_predicted_names_in_place_of_scores() -> None:
    y, predicted = ["a", "b", "c", "a"], ["a", "c", "c", "b"]
    metric = sm.F1(labels=("a", "b", "c")).update(y, predicted)
    assert metric.compute() == pytest.approx(sk.f1_score(y, predicted, average="macro"), abs=1e-12)
    assert "one of 'a', 'b', 'c', found 'd' in row 1" in refused(metric, ["a", "b"], ["a", "d"])
    assert "found 3 in row 0" in refused(sm.F1(num_classes=3), [0, 1], [3, 1])
    assert sm.F1(num_classes=3).update([0, 1, 2], [0, 2, 2]).compute() == pytest.approx(5 / 9)


def test_k_by_position() -> None:
    assert sm.TopKAccuracy(3, num_classes=5) == sm.TopKAccuracy(k=3, num_classes=5)
    assert sm.PrecisionAtKRows(3) == sm.PrecisionAtKRows(k=3)
    with pytest.raises(ValueError, match="TopKAccuracy: num_classes= or labels= is required"):
        sm.TopKAccuracy(3)


def test_kinds_of_found_classes_do_not_merge() -> None:
    one, two = sm.F1(labels="discover").update(["a"], ["b"]), sm.F1(labels="discover").update([1], [2])
    before = one.to_bytes()
    with pytest.raises(sm.IncompatibleStateError, match="of kind string here and integer there"):
        one.merge(two)
    many = sm.F1(labels="discover").update(list("abc"), list("abd"))
    few = sm.F1(labels="discover", max_labels=2).update(["a"], ["b"])
    with pytest.raises(sm.MemoryLimitError, match="4 different classes"):
        few.merge(many)
    assert one.to_bytes() == before


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: sm.AUC(num_classes=3, num_labels=3),
        lambda: sm.AUC(labels=("a",)),
        lambda: sm.AUC(labels=("a", "a")),
        lambda: sm.AUC(labels=("a", 1)),
        lambda: sm.AUC(labels="discover"),
        lambda: sm.AUC(average="micro"),
        lambda: sm.AUC(num_classes=3, exact=True, bits=9),
        lambda: sm.AUC(multi_class="ovo"),
        lambda: sm.AUC(multi_class="ovo", num_labels=3),
        lambda: sm.AUC(multi_class="ovo", num_classes=3, average="micro"),
        lambda: sm.AUC(average="samples", num_classes=3),
        lambda: sm.AUC(average="samples", num_labels=3, max_fpr=0.5),
        lambda: sm.AUC(min_fpr=0.5, max_fpr=0.5),
        lambda: sm.Gini(average="samples", num_labels=3),
        lambda: sm.LogAUC(min_fpr=0.5, max_fpr=0.1),
        lambda: sm.ThresholdedAUC(scale="logit"),
        lambda: sm.F1(average="samples", num_classes=3),
        lambda: sm.Accuracy(num_classes=3, average="micro"),
        lambda: sm.LogLoss(num_classes=3, average="micro"),
        lambda: sm.Accuracy(num_classes=3, threshold=0.7),
        lambda: sm.NormalizedEntropy(num_classes=3),
        lambda: sm.Calibration(num_classes=3, scale="logit"),
        lambda: sm.TopKAccuracy(),
        lambda: sm.CoverageError(),
    ],
)
def test_settings_that_make_no_sense(wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"^\w+: "):
        wrong()


def test_names_of_averages() -> None:
    metrics = [sm.F1(num_classes=3, average=a) for a in ("macro", "micro", "weighted", None)]
    assert [m.name for m in metrics] == ["f1", "f1_micro", "f1_weighted", "f1_each"]
    assert sm.AUC(num_labels=3, max_fpr=0.1, average="micro").name == "auc@0.1_micro"


def test_predicted_classes_of_which_some_are_missing() -> None:
    pa = pytest.importorskip("pyarrow")
    given = pa.array([0, None, 2])
    assert sm.Accuracy(num_classes=3, on_invalid="drop").update([0, 1, 2], given).compute() == 1.0
    with pytest.raises(sm.InvalidInputError, match="row 1"):
        sm.Accuracy(num_classes=3).update([0, 1, 2], given)
