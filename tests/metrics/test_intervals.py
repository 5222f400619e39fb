"""Intervals of independent rows, queries and groups against short formulas, other implementations, and simulations."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import draws
import numpy as np
import pytest

import streammetrics as sm
from streammetrics.collect.metric_like import empty_copy
from streammetrics.laws import example_case
from streammetrics.reading.about import about_of
from streammetrics.reading.interval import FEW, Estimate
from streammetrics.reading.link_functions import SCALES
from streammetrics.reading.reading import estimate_of

stats = pytest.importorskip("scipy.stats")
DATA = Path(os.environ.get("STREAMMETRICS_DATA", Path(__file__).parents[3] / "shared" / "data"))
BINARY = ("binary_flights", "ctr_fashion_men", "ctr_video")


def log(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Independent rows of a click and its probability."""
    rng = np.random.default_rng(seed)
    s = rng.beta(1, 9, n)
    return (rng.random(n) < s).astype(np.uint8), s


# -- formulas --------------------------------------------------------------------------------------------------------


def wilson(k: int, n: int, confidence: float) -> tuple[float, float]:
    z, p = stats.norm.ppf((1 + confidence) / 2), k / n
    middle = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return middle - half, middle + half


@pytest.mark.parametrize(("k", "n"), [(0, 5), (5, 5), (1, 1), (3, 40), (977, 12_345)])
@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.999])
def test_shares_are_wilsons(k: int, n: int, confidence: float) -> None:
    y = np.repeat([1, 0], [k, n - k])
    found = [sm.CTR().update(y_true=y), sm.Recall().update(np.ones(n), y), sm.Accuracy().update(np.ones(n), y)]
    for metric in found:
        interval = metric.interval(confidence)
        if isinstance(metric, sm.CTR) and n == 1:
            assert "fewer than two rows" in interval.reason
            continue
        assert interval.method == "wilson"
        assert interval[:2] == pytest.approx(wilson(k, n, confidence), rel=1e-12, abs=1e-15)
        assert interval.standard_error == pytest.approx(math.sqrt(k / n * (1 - k / n) / n), rel=1e-9, abs=1e-12)


def test_wilson_is_scipys() -> None:
    found = sm.Precision().update([1] * 30 + [0] * 70, [1.0] * 100).interval(0.9)
    low, high = stats.binomtest(30, 100).proportion_ci(0.9, method="wilson")
    assert found[:2] == pytest.approx((low, high), rel=1e-12)


def test_weighted_shares_have_degrees_of_freedom() -> None:
    rng = np.random.default_rng(1)
    y, w = rng.random(30) < 0.3, rng.lognormal(size=30)
    for soft in (False, True):
        metric = sm.CTR(soft_labels=soft)
        found = empty_copy(metric).update(y_true=y.astype(float) if soft else y, sample_weight=w).interval()
        p = np.average(y, weights=w)
        variance = (w * w * (y - p) ** 2).sum() / w.sum() ** 2
        kish = w.sum() ** 2 / (w * w).sum()
        t = stats.t.ppf(0.975, kish / (2 * (30 / kish - 1)))
        n, square = p * (1 - p) / variance, t * t
        middle, half = (p + square / (2 * n)) / (1 + square / n), t / (1 + square / n)
        half *= math.sqrt(p * (1 - p) / n + square / (4 * n * n))
        assert found[:2] == pytest.approx((middle - half, middle + half), rel=1e-9)
        assert found.method == f"wilson {FEW}"
        # With equal weights the variance follows from the share, as without weights.
        equal = empty_copy(metric).update(y_true=y.astype(float) if soft else y, sample_weight=[0.1] * 30).interval()
        assert equal[:2] == pytest.approx(wilson(int(y.sum()), 30, 0.95), rel=1e-9)
        assert equal.method == "wilson"


@pytest.mark.parametrize("n", [30, 150])
def test_intervals_of_few_units_are_labelled(n: int) -> None:
    rng = np.random.default_rng(2)
    rows = {"y_true": rng.integers(0, 2, 2 * n), "y_score": rng.random(2 * n), "value": rng.exponential(size=2 * n)}
    rows |= {"query": np.arange(2 * n), "key": np.repeat([0, 1], n)}
    metrics = [sm.LogLoss(), sm.NDCG(), sm.CTR(), sm.AUC(), sm.Mean(squares=True), sm.Quantile(q=0.5)]
    labelled = {"log_loss", "ndcg", "mean"} if n < 100 else set()
    found = sm.Sliced(metrics, by="key").update(rows).interval()
    for key in (0, 1):
        alone = sm.MetricCollection(metrics).update({k: v[rows["key"] == key] for k, v in rows.items() if k != "key"})
        assert repr(alone.interval()) == repr(found[key])
        assert {name for name, one in found[key].items() if FEW in one.method} == labelled
        assert all(one.reason is None for one in found[key].values())
    each = sm.MAE(num_outputs=2, multioutput="raw_values", squares=True)
    several = each.update(rng.random((n, 2)), rng.random((n, 2))).interval()
    assert (several.method == f"delta {FEW}") == (n < 100)


def naive_means(x: np.ndarray, w: np.ndarray | None = None) -> tuple[float, float]:
    """A weighted mean, and its standard error by the residuals."""
    w = np.ones(len(x)) if w is None else w
    mean, size = np.average(x, weights=w), w.sum() ** 2 / (w * w).sum()
    return mean, math.sqrt((w * w * (x - mean) ** 2).sum() / w.sum() ** 2 * size / (size - 1))


@pytest.mark.parametrize("weighted", [False, True])
def test_means_have_the_error_of_their_residuals(weighted: bool) -> None:
    y, s = log(4_000, 1)
    w = np.random.default_rng(2).choice([0.25, 1.0, 3.0], len(y)) if weighted else None
    ones = np.ones(len(y)) if w is None else w
    loss = -np.log(np.where(y == 1, s, 1 - s))
    b, level = np.average(y, weights=ones), np.average(loss, weights=ones)
    entropy = -(b * np.log(b) + (1 - b) * np.log(1 - b))
    over = np.average(s, weights=ones) / b
    residuals = [
        (sm.LogLoss(), loss),
        (sm.BrierScore(), (s - y) ** 2),
        (sm.PredictedCTR(), s),
        (sm.Calibration(), (s - over * y) / b),
        (sm.Calibration(inverse=True), (y - s / over) / (b * over)),
        (sm.NormalizedEntropy(), (loss - level / entropy * np.log((1 - b) / b) * y) / entropy),
        (sm.NormalizedEntropy(base_rate=0.2), loss / -(0.2 * np.log(0.2) + 0.8 * np.log(0.8))),
    ]
    for metric, x in residuals:
        found = metric.update(y, s, sample_weight=w).interval()
        assert found.estimate == metric.compute()
        assert found.standard_error == pytest.approx(naive_means(x, w)[1], rel=1e-6), metric
        soft = type(metric)(**metric.settings | {"soft_labels": True}).update(y, s, sample_weight=w).interval()
        assert soft.standard_error == pytest.approx(found.standard_error, rel=1e-5), metric


@pytest.mark.parametrize("weighted", [False, True])
def test_means_over_rows_of_classes_and_labels(weighted: bool) -> None:
    rng = np.random.default_rng(3)
    p = rng.dirichlet([1, 2, 3], 900)
    y = (p.cumsum(axis=1) > rng.random(900)[:, None]).argmax(axis=1)
    w = rng.choice([0.5, 1, 2], 900) if weighted else None
    loss = -np.log(p[np.arange(900), y])
    found = sm.LogLoss(num_classes=3).update(y, p, sample_weight=w).interval()
    assert found.standard_error == pytest.approx(naive_means(loss, w)[1], rel=1e-6)
    top = sm.TopKAccuracy(k=1, num_classes=3).update(y, p).interval()
    assert top[:2] == pytest.approx(wilson(int((p.argmax(axis=1) == y).sum()), 900, 0.95), rel=1e-9)
    labels = rng.random((900, 4)) < 0.4
    made = sm.LabelRankingLoss(num_labels=4).update(labels, rng.random((900, 4)), sample_weight=w)
    assert made.interval().low < made.compute() < made.interval().high


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("empty", [0.0, "skip", 1.0])
def test_means_over_queries(weighted: bool, empty: Any) -> None:
    rng = np.random.default_rng(4)
    queries = np.sort(rng.integers(0, 150, 1_000))
    y, s = (rng.random(1_000) < 0.15).astype(int), rng.random(1_000)
    weights = rng.choice([0.5, 1.0, 4.0], 150)[queries]
    each, of = [], []
    for q in np.unique(queries):
        mine = queries == q
        if y[mine].any() or empty != "skip":
            each.append(sm.NDCG(3, empty=empty).update(y[mine], s[mine], query=queries[mine]).compute())
            of.append(weights[mine][0])
    given = weights if weighted else None
    found = sm.NDCG(3, empty=empty).update(y, s, query=queries, sample_weight=given).interval()
    mean, error = naive_means(np.array(each), np.array(of) if weighted else None)
    assert found.assumption == "queries are independent"
    assert (found.estimate, found.standard_error) == pytest.approx((mean, error), rel=1e-6)
    if not weighted:
        reach = stats.t.ppf(0.975, len(each) - 1) * error
        assert found[:2] == pytest.approx((mean - reach, mean + reach), rel=1e-6)


def test_means_and_ratios_of_columns() -> None:
    rng = np.random.default_rng(5)
    d = rng.lognormal(1e-3, 1, 500)
    n = d * rng.random(500)
    found = sm.Mean(squares=True).update(1e8 + d).interval()
    assert found.standard_error == pytest.approx(stats.sem(1e8 + d), rel=1e-6)
    ratio = sm.Ratio(squares=True).update(numerator=n, denominator=d).interval()
    error = math.sqrt(((n - n.sum() / d.sum() * d) ** 2).sum() * 500 / 499) / d.sum()
    assert ratio.standard_error == pytest.approx(error, rel=1e-9)
    reach = math.exp(stats.t.ppf(0.975, 499) * error / ratio.estimate)
    assert ratio[:2] == pytest.approx((ratio.estimate / reach, ratio.estimate * reach), rel=1e-9)
    bias = sm.MeanError(squares=True).update(d, n).interval()
    assert bias.standard_error == pytest.approx(stats.sem(n - d), rel=1e-9)
    assert "squares=True" in sm.Mean().update(d).interval().reason
    both = sm.MetricCollection(sm.Mean(), sm.Variance()).update(value=d)  # of which the state has squares
    assert repr(both.interval()["mean"]) == repr(both["mean"].interval()) == repr(sm.Mean().update(d).interval())
    assert "weights" in sm.Mean(squares=True).update(d, sample_weight=n).interval().reason


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_means_of_losses_of_numbers(dtype: Any) -> None:
    rng = np.random.default_rng(15)
    y = rng.gamma(2.0, 3.0, 700).astype(dtype)
    y[:50] = 0
    p = (y * rng.gamma(8.0, 0.125, 700) + 0.5).astype(dtype)
    a, b = y.astype(float), p.astype(float)
    d, some = b - a, a > 0
    cases = [
        (sm.MAE, {}, np.abs(d)),
        (sm.MSE, {}, d * d),
        (sm.RMSE, {}, d * d / (2 * math.sqrt((d * d).mean()))),
        (sm.HuberLoss, {}, np.where(np.abs(d) <= 1, d * d / 2, np.abs(d) - 0.5)),
        (sm.PinballLoss, {"alpha": 0.9}, np.where(d < 0, -0.9 * d, 0.1 * d)),
        (sm.SMAPE, {"percent": True}, 200 * np.abs(d) / (a + b)),
        (sm.MSLE, {}, (np.log1p(b) - np.log1p(a)) ** 2),
        (sm.PoissonDeviance, {}, 2 * (np.where(some, a * np.log(np.where(some, a, 1) / b), 0) - a + b)),
    ]
    for metric, settings, x in cases:
        found = metric(**settings, squares=True).update(y, p).interval()
        assert found.standard_error == pytest.approx(stats.sem(x), rel=1e-6), metric
        assert found.estimate == metric(**settings).update(y, p).compute()
        assert "squares=True" in metric(**settings).update(y, p).interval().reason
    mape = sm.MAPE(squares=True).update(y, p).interval()
    x = np.where(some, np.abs(d) / np.where(some, a, 1), 0)
    error = math.sqrt(((x - mape.estimate * some) ** 2).sum() * 700 / 699) / some.sum()
    assert mape.standard_error == pytest.approx(error, rel=1e-6)
    assert "MAE and MAPE" in sm.WMAPE().update(y, p).interval().reason
    with pytest.raises(sm.InvalidInputError, match=r"2\*\*240"):
        sm.MSE(squares=True).update([1e80], [0.0])


# -- DeLong ----------------------------------------------------------------------------------------------------------


def delong(y: np.ndarray, s: np.ndarray) -> tuple[float, float]:
    """AUC and DeLong's standard error from mid-ranks of raw rows (Sun and Xu 2014)."""
    positive = y == 1
    m, n = int(positive.sum()), int((~positive).sum())
    ranks = stats.rankdata(s)
    of_positives = (ranks[positive] - stats.rankdata(s[positive])) / n
    of_negatives = 1 - (ranks[~positive] - stats.rankdata(s[~positive])) / m
    variance = of_positives.var(ddof=1) / m + of_negatives.var(ddof=1) / n
    return of_positives.mean(), math.sqrt(variance)


@pytest.mark.parametrize("settings", [{}, {"bits": 12}, {"exact": True}], ids=str)
@pytest.mark.parametrize("n", [12, 3_000])
def test_delong_of_the_histogram_is_that_of_the_rows(n: int, settings: dict[str, Any]) -> None:
    y, s = log(n, 3)
    y[:2], y[2:4], s = 1, 0, np.round(s, 3)
    found, (auc, error) = sm.AUC(**settings).update(y, s).interval(), delong(y, s)
    close = {"rel": 1e-9} if "bits" not in settings else {"rel": 0.01}
    assert (found.estimate, found.standard_error) == pytest.approx((auc, error), **close)
    z = stats.norm.ppf(0.975) * error / (auc * (1 - auc))
    limits = [1 / (1 + math.exp(-(math.log(auc / (1 - auc)) + side * z))) for side in (-1, 1)]
    assert found[:2] == pytest.approx(limits, **close)
    gini = sm.Gini(**settings).update(y, s).interval()
    assert gini[:4] == pytest.approx([2 * x - 1 for x in found[:3]] + [2 * found.standard_error], rel=1e-12)


def test_delong_of_many_rows_is_that_of_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond 2**20 rows floats take over from integers."""
    from streammetrics.statistics import score_errors

    y, s = log(5_000, 9)
    few = sm.AUC(bits=12).update(y, s).interval()
    monkeypatch.setattr(score_errors, "FEW", 100)
    assert sm.AUC(bits=12).update(y, s).interval()[:4] == pytest.approx(few[:4], rel=1e-13)


@pytest.mark.parametrize("name", BINARY)
def test_delong_on_the_tables(name: str) -> None:
    path = DATA / f"{name}.parquet"
    if not path.exists():
        pytest.skip(f"{path} is not here")
    table = pytest.importorskip("pyarrow.parquet").read_table(path)
    y = table.column("label" if "label" in table.column_names else "y_true").to_numpy()
    tried = 0
    for column in table.column_names:
        s = table.column(column)
        if str(s.type) not in ("float", "double") or column in ("y_true", "label", "sample_weight", "weight"):
            continue
        s = s.to_numpy()
        if not (np.isfinite(s).all() and s.min() >= 0 and s.max() <= 1):
            continue
        found, (auc, error) = sm.AUC().update(y, s).interval(), delong(y, s)
        assert found.estimate == pytest.approx(auc, abs=1e-4)
        assert found.standard_error == pytest.approx(error, rel=0.01)
        tried += 1
    assert tried, table.column_names


# -- bootstrap -------------------------------------------------------------------------------------------------------


def bootstrap(metric: sm.extend.Metric[Any, Any], rows: tuple[np.ndarray, ...], times: int = 300) -> float:
    """The standard deviation of the value over rows drawn again."""
    rng, n = np.random.default_rng(6), len(rows[0])
    values = []
    for _ in range(times):
        at = rng.integers(0, n, n)
        values.append(empty_copy(metric).update(*(column[at] for column in rows)).compute())
    return float(np.std(values))


@pytest.mark.slow
@pytest.mark.parametrize(
    "metric",
    [
        sm.AUC(bits=12),
        sm.AveragePrecision(bits=12),
        sm.NormalizedEntropy(),
        sm.F1(threshold=0.15),
        sm.FBeta(beta=2.0, threshold=0.15),
        sm.Jaccard(threshold=0.15),
        sm.MatthewsCorrcoef(threshold=0.15),
        sm.CohenKappa(threshold=0.15),
        sm.BalancedAccuracy(threshold=0.15),
    ],
    ids=repr,
)
def test_errors_are_those_of_the_bootstrap(metric: sm.extend.Metric[Any, Any]) -> None:
    rows = log(2_000, 7)
    found = empty_copy(metric).update(*rows).interval()
    assert found.standard_error == pytest.approx(bootstrap(metric, rows), rel=0.13)  # three of its own errors


@pytest.mark.parametrize("metric", [sm.MatthewsCorrcoef, sm.CohenKappa, sm.BalancedAccuracy])
def test_errors_of_several_classes_are_those_of_the_bootstrap(metric: Any) -> None:
    rng = np.random.default_rng(8)
    y = rng.choice(3, 1_500, p=[0.6, 0.3, 0.1])
    decided = np.where(rng.random(1_500) < 0.6, y, rng.integers(0, 3, 1_500))
    made = metric(num_classes=3, threshold=None)
    found = empty_copy(made).update(y, decided).interval()
    assert found.standard_error == pytest.approx(bootstrap(made, (y, decided)), rel=0.13)


# -- coverage --------------------------------------------------------------------------------------------------------

RUNS = 400
RATE, TOP = 0.1, 0.01


def cover(metric: sm.extend.Metric[Any, Any], truth: float, draw: Any, runs: int = RUNS) -> None:
    """The interval holds the truth as often as it says: 93 to 97 %, beside three errors of the count."""
    hit = 0
    for seed in range(runs):
        low, high, *_ = empty_copy(metric).update(**draw(np.random.default_rng(seed))).interval()
        hit += low <= truth <= high
    slack = 3 * math.sqrt(0.95 * 0.05 / runs)
    assert 0.93 - slack / 2 <= hit / runs <= 0.97 + slack / 2, (metric, hit / runs)


def clicks(n: int) -> Any:
    def draw(rng: np.random.Generator) -> dict[str, Any]:
        s = rng.beta(1, 9, n)
        return {"y_true": (rng.random(n) < s).astype(np.uint8), "y_score": s}

    return draw


TRUTHS = [sm.CTR(), sm.AUC(bits=12), sm.AveragePrecision(bits=12), sm.LogLoss(), sm.NormalizedEntropy(),
          sm.Calibration(), sm.BrierScore(), sm.PredictedCTR(), sm.Recall(threshold=0.15), sm.F1(threshold=0.15),
          sm.MatthewsCorrcoef(threshold=0.15)]  # fmt: skip


@pytest.fixture(scope="module")
def truths() -> dict[str, Any]:
    """The values of a log of two million rows."""
    return sm.MetricCollection({repr(m): m for m in TRUTHS}).update(*log(2_000_000, 12)).compute()


@pytest.mark.slow
@pytest.mark.parametrize("metric", TRUTHS, ids=repr)
def test_intervals_of_rows_cover(metric: sm.extend.Metric[Any, Any], truths: dict[str, Any]) -> None:
    cover(metric, truths[repr(metric)], clicks(1_000))


@pytest.mark.slow
def test_intervals_of_queries_cover() -> None:
    def draw(rng: np.random.Generator, queries: int = 80) -> dict[str, Any]:
        ids = np.repeat(np.arange(queries), 6)
        s = rng.random(len(ids))
        return {"y_true": (rng.random(len(ids)) < s / 2).astype(int), "y_score": s, "query": ids}

    many = draw(np.random.default_rng(99), 200_000)
    for metric in (sm.NDCG(3), sm.MeanReciprocalRank(), sm.HitRate(1)):
        cover(metric, empty_copy(metric).update(**many).compute(), draw, 300)


@pytest.mark.slow
@pytest.mark.parametrize("q", [0.5, 0.95])
@pytest.mark.parametrize("bits", [3, 7])
def test_intervals_of_quantiles_cover(q: float, bits: int) -> None:
    truth = float(stats.lognorm(1).ppf(q))
    cover(sm.Quantile(q=q, bits=bits), truth, lambda rng: {"value": rng.lognormal(0, 1, 800)})


@pytest.mark.slow
def test_intervals_of_means_cover() -> None:
    cover(sm.Mean(squares=True), 0.5, lambda rng: {"value": rng.random(12)})
    cover(sm.DistinctCount(precision=8), 5_000, lambda rng: {"value": rng.integers(0, 1 << 62, 5_000)}, 300)


# -- everything beside -----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_weighted_intervals_cover() -> None:
    """Weights that go with the click: the usual n would be wrong."""

    def draw(rng: np.random.Generator, n: int = 800) -> dict[str, Any]:
        y = (rng.random(n) < 0.2).astype(int)
        return {"y_true": y, "sample_weight": np.where(y == 1, rng.choice([1.0, 8.0], n), rng.choice([0.5, 2.0], n))}

    truth = 0.2 * 4.5 / (0.2 * 4.5 + 0.8 * 1.25)
    cover(sm.CTR(), truth, draw)


@pytest.mark.parametrize(
    ("metric", "use"),
    [
        (sm.Max(), "Quantile"),
        (sm.MaxError(), "ErrorQuantile"),
        (sm.ExpectedCalibrationError(), "Calibration"),
        (sm.KS(), "AUC"),
        (sm.MaxFBeta(), "FBeta"),
        (sm.ROCCurve(), "AUC"),
        (sm.ConfusionMatrix(), "Recall"),
        (sm.Sum(), "Mean"),
        (sm.R2(), "Sharded"),
        (sm.AUC(max_fpr=0.1), "Sharded"),
        (sm.AUC(num_labels=2), "average=None"),
    ],
    ids=repr,
)
def test_refusals_name_what_to_use(metric: sm.extend.Metric[Any, Any], use: str) -> None:
    found = example_case(metric, None, 1, 0).build().interval()
    assert use in found.reason
    assert np.isnan([found.low, found.high, found.standard_error]).all()
    assert found.method == found.assumption == ""


def test_small_and_flat_data_is_refused_with_a_reason() -> None:
    assert "fewer than two rows" in sm.LogLoss().update([1], [0.5]).interval().reason
    assert "undefined" in sm.LogLoss().interval().reason
    assert "one class" in sm.AUC().update([1, 1], [0.5, 0.75]).interval().reason
    assert "end of its range" in sm.AUC().update([1, 1, 0, 0], [0.5, 0.75, 0.25, 0.25]).interval().reason
    assert "fewer than 5 rows" in sm.Quantile(q=0.99).update(np.arange(100)).interval().reason


def test_extreme_settings() -> None:
    y, s = log(200, 30)
    recall = sm.Recall(threshold=0.1).update(y, s)
    for beta, like in ((1e100, recall), (1e-100, sm.Precision(threshold=0.1).update(y, s))):
        found = sm.FBeta(beta=beta, threshold=0.1).update(y, s).interval()
        assert found[:4] == pytest.approx(like.interval(method="delta")[:4], rel=0.02)


def test_each_class_and_output_has_its_own() -> None:
    rng = np.random.default_rng(1)
    y, s = rng.integers(0, 2, (300, 2)), rng.random((300, 2))
    found = sm.AUC(num_labels=2, average=None).update(y, s).interval()
    for i in range(2):
        alone = sm.AUC().update(y[:, i], s[:, i]).interval()
        assert (found.low[i], found.high[i], found.estimate[i], found.standard_error[i]) == alone[:4]
    pair = sm.ErrorQuantile(q=0.5, num_outputs=2, multioutput="raw_values").update(y, s).interval()
    assert pair.low.shape == (2,)


def test_arguments_are_checked() -> None:
    auc = sm.AUC().update([0, 1, 0, 1], [0.1, 0.4, 0.35, 0.8])
    for bad in (0, 1, 95, math.nan):
        with pytest.raises(ValueError, match="between 0 and 1"):
            auc.interval(bad)
    with pytest.raises(ValueError, match="auc: expected 'delong' as method= of the interval, found 'wilson'"):
        auc.interval(method="wilson")
    ctr = sm.CTR().update(y_true=[0, 1, 1, 0, 0])
    assert ctr.interval(method="delta").method == f"delta {FEW}"
    assert ctr.interval(method="delta")[:2] != ctr.interval()[:2]


def test_tables_collections_and_slices_have_them() -> None:
    y, s = log(3_000, 20)
    k = np.arange(3_000) % 7
    metrics = {m.name: m for m in (sm.AUC(), sm.LogLoss(), sm.Calibration(), sm.CTR(), sm.F1(threshold=0.1), sm.KS(),
                                   sm.Precision(threshold=0.1), sm.Accuracy(), sm.AveragePrecision())}  # fmt: skip
    whole = sm.MetricCollection(metrics).update(y, s)
    found = whole.interval(0.9)
    for name, metric in metrics.items():
        assert repr(found[name]) == repr(empty_copy(metric).update(y, s).interval(0.9)), name
    for row in whole.table(confidence=0.9):
        assert repr((row["interval_low"], row["interval_high"])) == repr(found[row["metric"]][:2])
    assert all(math.isnan(row["interval_low"]) for row in whole.table(confidence=None))
    sliced = sm.Sliced(list(metrics.values()), by="k").update(y, s, k=k)
    each = sliced.interval()
    for row in sliced.table():
        one = each[row["k"]][row["metric"]]
        assert repr((row["interval_low"], row["interval_high"])) == repr((one.low, one.high)), row
        assert repr(one) == repr(sliced[row["k"]][row["metric"]].interval())
    assert sm.Bundle({"all": whole}).interval(0.9)["all"].keys() == found.keys()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::streammetrics.errors.WideBoundsWarning")  # of few rows in few buckets
def test_slices_of_all_sizes_have_what_they_have_alone() -> None:
    """Where the errors of all cells are read at once, to the bit, whatever the cells hold."""
    rng = np.random.default_rng(21)
    k = np.repeat(np.arange(60), rng.integers(1, 60, 60))
    s = np.round(rng.random(len(k)), 2)
    y = (rng.random(len(k)) < s / 3).astype(np.uint8)
    w = np.where(k % 5 == 0, rng.choice([1.0, 2.5], len(k)), 1.0)
    metrics = [sm.AUC(bits=8), sm.Gini(), sm.AveragePrecision(), sm.LogLoss(), sm.NormalizedEntropy(), sm.Calibration(),
               sm.CTR(), sm.F1(), sm.Recall(), sm.Accuracy()]  # fmt: skip
    for weights in (None, w):
        sliced = sm.Sliced(metrics, by="k").update(y, s, k=k, sample_weight=weights)
        each = sliced.interval()
        for row in sliced.table():
            one = each[row["k"]][row["metric"]]
            assert repr((row["interval_low"], row["interval_high"])) == repr((one.low, one.high)), (row, one)
    ranked = sm.Sliced(sm.NDCG(2), by="k").update(y, s, k=k, query=np.arange(len(k)) // 3 + 1000 * k)
    for row in ranked.table():
        assert repr((row["interval_low"], row["interval_high"])) == repr(ranked.interval()[row["k"]][:2])


def test_errors_of_quantiles_are_as_uncertain_as_the_rows_near_them() -> None:
    """For differences: a standard error from the limits at 95 %, and half the rows between these as degrees of freedom."""
    n, q, z = 2000, 0.9, stats.norm.ppf(0.975)
    metric = sm.Quantile(q=q, bits=14).update(np.arange(n))  # exact: every integer has a bucket
    found = estimate_of(metric, metric.reading(metric.state), "woodruff")
    middle = (q + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(q * (1 - q) / n + z * z / (4 * n * n))
    limits = metric.interval()
    assert found.degrees == pytest.approx(half * n)
    assert found.error == pytest.approx((limits.high - limits.low) / (2 * z))
    assert (limits.low, limits.high) == pytest.approx((n * (middle - half), n * (middle + half)), abs=1.0)


@pytest.mark.parametrize("scale", SCALES)
def test_scales_hold_the_value_and_turn_over(scale: str) -> None:
    """Limits of 1 - p are those of p, turned over; of 1 / x, one over."""
    one = Estimate(0.3, 0.05, scale).limits(0.95)
    assert one[0] < 0.3 < one[1]
    if scale == "logit":
        assert Estimate(0.7, 0.05, scale).limits(0.95) == pytest.approx((1 - one[1], 1 - one[0]))
    if scale == "log":
        assert Estimate(1 / 0.3, 0.05 / 0.09, scale).limits(0.95) == pytest.approx((1 / one[1], 1 / one[0]))
    if scale == "fisher":
        z = math.atanh(0.3) + np.array([-1, 1]) * stats.norm.ppf(0.975) * 0.05 / (1 - 0.09)
        assert one == pytest.approx(tuple(np.tanh(z)))


def test_every_metric_says_how() -> None:
    for metric in draws.VARIANTS:
        assert about_of(metric).interval_scale in SCALES, metric
        assert about_of(metric).interval_methods, metric


def test_an_area_below_zero_has_an_interval() -> None:
    """From a rate on, an area that is worse than chance may be below 0, where logits end."""
    rng = np.random.default_rng(0)
    y, user = rng.integers(0, 2, 20_000), rng.integers(0, 2_000, 20_000)
    area = sm.Sharded(sm.AUC(min_fpr=0.5), unit="user").update(y, rng.random(20_000) * (1 - 0.6 * y), user=user)
    low, high, value, *_ = area.interval()
    assert low < value < high < 0
