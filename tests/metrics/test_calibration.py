"""Calibration by bins: scikit-learn's curve, certified bounds in fractions, half precision, Paddle's rule, pictures."""

from __future__ import annotations

import decimal
import time
from decimal import Decimal
from fractions import Fraction
from typing import Any

import calibrations as by_bin
import numpy as np
import pytest
from sklearn.calibration import calibration_curve

import streammetrics as sm
from streammetrics.reports.plots import plot

F = Fraction


def log(n: int = 5000, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    p = rng.beta(0.6, 4, n)
    return (rng.random(n) < p**1.2).astype(int), p


@pytest.mark.parametrize("n_bins", [1, 2, 5, 10, 33])
def test_the_curve_is_that_of_scikit_learn(n_bins: int) -> None:
    y, p = log()  # no score is on an edge: there scikit-learn closes bins on the other side
    true, pred = calibration_curve(y, p, n_bins=n_bins)
    curve = sm.CalibrationCurve(n_bins=n_bins).update(y, p).compute()
    held = curve.weight > 0
    np.testing.assert_allclose(curve.prob_true[held], true, rtol=1e-14)
    np.testing.assert_allclose(curve.prob_pred[held], pred, rtol=1e-14)
    assert curve.weight.sum() == len(y)


def truth(y: Any, p: Any, w: Any, bins: Any) -> dict[str, Any]:
    """ECE, its square, MCE and the curve in fractions."""
    sums: dict[int, list[Fraction]] = {}
    for label, x, weight, k in zip(y.tolist(), p.tolist(), w.tolist(), bins.tolist(), strict=True):
        cell = sums.setdefault(k, [Fraction(0)] * 3)
        for i, v in enumerate((1, Fraction(x), label)):
            cell[i] += Fraction(weight) * v
    held = {k: c for k, c in sums.items() if c[0]}
    total = sum(c[0] for c in held.values())
    if not total:
        return {}
    return {
        "l1": sum(abs(c[1] - c[2]) for c in held.values()) / total,
        "l2": sum((c[1] - c[2]) ** 2 / c[0] for c in held.values()) / total,
        "max": max(abs(c[1] - c[2]) / c[0] for c in held.values()),
        "curve": {k: c[1] / c[0] for k, c in held.items()},
    }


def scores(rng: np.random.Generator, n: int, kind: int) -> Any:
    """Scores that share buckets, tie, saturate, or stand at the edges of bins."""
    made = (
        rng.random(n),
        rng.beta(0.05, 0.05, n),
        np.round(rng.random(n), 1),
        0.5 + rng.normal(0, 1e-12, n),
        1 - rng.random(n) * 1e-9,
        rng.choice([0.0, 2.0**-33, 2.0**-34, 1e-300, 0.25, 0.5, 1.0, 1 - 2.0**-53], n),
        2.0 ** -rng.integers(0, 9, n) * (1 - 2.0**-53 * rng.integers(0, 2, n)),
    )[kind % 7]
    return np.clip(made, 0, 1)


@pytest.mark.slow
@pytest.mark.parametrize("group", range(8))
def test_the_truth_is_inside(group: int) -> None:
    rng = np.random.default_rng(group)
    wide = 0
    for case in range(250):
        n, n_bins = int(rng.integers(1, 40)), int(rng.integers(1, 9))
        p = scores(rng, n, case)
        p = (p, p.astype(np.float32), p.astype(np.float16))[case % 3]
        y, w = rng.integers(0, 2, n), rng.integers(0, 8, n) / 4 if case % 5 == 0 else np.ones(n)
        columns = {"y_true": y, "y_score": p} | ({"sample_weight": w} if case % 5 == 0 else {})
        exact = p.astype(float)
        rules = {
            "quantile": lambda: by_bin.quantile(exact, w, n_bins, 8),  # noqa: B023
            "log": lambda: by_bin.log(exact, n_bins),  # noqa: B023
        }
        for strategy, bins in rules.items():
            expected = truth(y, exact, w, bins())
            if not expected:
                continue
            how = {"n_bins": n_bins, "strategy": strategy, "bits": 8}
            curve = sm.CalibrationCurve(**how)
            curve.update(columns)
            metrics = {
                "l1": sm.ExpectedCalibrationError(**how),
                "l2": sm.ExpectedCalibrationError(norm="l2", **how),
                "max": sm.MaximumCalibrationError(**how),
            }
            for name, metric in metrics.items():
                value, (low, high) = metric.reading(curve.state).value, metric.reading(curve.state).bounds
                assert low <= value <= high
                wide += low < high
                power = 2 if name == "l2" else 1
                if low < high:
                    assert Fraction(low) ** power <= expected[name] <= Fraction(high) ** power
                else:
                    assert abs(Fraction(value) ** power - expected[name]) <= Fraction(1, 1 << 52)
            low, high = curve.bounds()
            for k, mean in expected["curve"].items():
                inside = Fraction(low.prob_pred[k]) <= mean <= Fraction(high.prob_pred[k])
                assert inside or abs(Fraction(low.prob_pred[k]) - mean) <= Fraction(1, 1 << 54)
    assert wide > 200  # there was something to certify


@pytest.mark.parametrize("strategy", ["quantile", "log"])
def test_half_precision_is_exact(strategy: str) -> None:
    y, p = log(20_000)
    p = p.astype(np.float16)
    metric = sm.ExpectedCalibrationError(strategy=strategy).update(y, p)
    wide, w = p.astype(float), np.ones(len(p))
    bins = by_bin.quantile(wide, w, 15) if strategy == "quantile" else by_bin.log(wide, 15)
    low, high = metric.bounds()
    assert low == high == metric.compute() == pytest.approx(by_bin.error(y, wide, w, bins), rel=1e-13)
    assert metric.explain()["exact"]


def test_deciles_hold_equal_masses() -> None:
    y, p = log(100_000)
    table = sm.CalibrationTable().update(y, p).compute()
    assert abs(table.weight / 10_000 - 1).max() < 0.02
    assert (np.diff(table.prob_pred) > 0).all()
    np.testing.assert_allclose(table.ratio, table.prob_pred / table.prob_true)
    assert len(str(table).splitlines()) == 1
    assert len(repr(table).splitlines()) == 11


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["f8", "f2"])
@pytest.mark.parametrize("kind", ["none", "even", "any"])
@pytest.mark.parametrize("n_bins", [3, 40, 10_000])
def test_bins_of_equal_weight_in_fractions(n_bins: int, kind: str, dtype: str) -> None:
    """A bucket is of the bin in which the middle of its weight is; of sums of p of any size nothing is lost."""
    rng = np.random.default_rng(n_bins)
    n = 200
    y, p = rng.integers(0, 2, n), rng.integers(0, 64, n) / 64 * 2.0 ** -rng.integers(0, 3, n)
    w = {"none": np.ones(n), "even": rng.integers(0, 3, n) / 2, "any": rng.random(n) + 0.1}[kind]
    p = p.astype(dtype)
    metric = sm.CalibrationCurve(n_bins=n_bins, strategy="quantile")
    metric.update(y, p, **({} if kind == "none" else {"sample_weight": w}))
    before, cells = Fraction(0), [[Fraction(0)] * 3 for _ in range(n_bins)]
    whole = sum(map(Fraction, w.tolist()))
    for v in np.unique(p[w > 0]).tolist():
        rows = [(Fraction(u), int(label)) for u, label in zip(w[p == v].tolist(), y[p == v], strict=True)]
        own = sum(u for u, _ in rows)
        cell = cells[min(int(n_bins * (before + own / 2) / whole), n_bins - 1)]
        for i, x in enumerate((own, own * Fraction(v), sum(u for u, label in rows if label))):
            cell[i] += x
        before += own
    found = metric.compute()
    assert metric.bounds()[0].prob_pred.tobytes() == found.prob_pred.tobytes()
    for got, (weight, predicted, positive) in zip(zip(*found[:3], strict=True), cells, strict=True):
        expected = (predicted / weight, positive / weight) if weight else (np.nan, np.nan)
        assert np.array_equal(got, [*map(float, expected), float(weight)], equal_nan=True)


def test_a_bucket_whose_middle_is_an_ulp_below_an_edge() -> None:
    """Of three buckets the one between is of the lower bin if what is below weighs less than what is above."""
    more = 1 + 2.0**-52
    for below, above in ((1.0, more), (more, 1.0), (1.0, 1.0)):
        metric = sm.CalibrationCurve(n_bins=2, strategy="quantile")
        metric.update([0, 1, 0], [0.25, 0.5, 0.75], sample_weight=[below, 1.0, above])
        assert metric.compute().weight.tolist() == ([below + 1, above] if below < above else [below, 1 + above])


@pytest.mark.slow
def test_time_grows_with_bins_not_with_their_square() -> None:
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 2, 20_000), rng.random(20_000), rng.random(20_000) + 0.1

    def spent(bins: int) -> float:
        metric = sm.ExpectedCalibrationError(n_bins=bins, strategy="quantile")
        metric.update(*rows[:2], sample_weight=rows[2]).state  # noqa: B018 - sorted before it is timed
        begin = time.process_time()
        metric.compute()
        return time.process_time() - begin

    few, many = (min(spent(bins) for _ in range(3)) for bins in (500, 10_000))  # the least: others use the machine, too
    assert many < 50 * max(few, 0.01)


def test_one_histogram_serves_auc_and_quantiles() -> None:
    y, p = log()
    both = sm.MetricCollection(sm.AUC(), sm.CalibrationTable(), sm.ExpectedCalibrationError(strategy="quantile"))
    both.update(y, p)
    assert len(both.plan()) == 1
    assert sm.coarsen(both, 10)["calibration_table"] == sm.CalibrationTable(bits=10).update(y, p)


def test_uniform_bins_have_nothing_to_coarsen() -> None:
    y, p = log()
    assert sm.coarsen(sm.CalibrationCurve().update(y, p), 12) == sm.CalibrationCurve(bits=12).update(y, p)


@pytest.mark.slow
@pytest.mark.parametrize("n", [99, 100, 1000, 12_345])
def test_bucket_error_is_that_of_paddle(n: int) -> None:
    rng = np.random.default_rng(n)
    for case in range(12):
        p = rng.beta(*((1, 20), (2, 2), (0.3, 3))[case % 3], 40_000)
        p = np.round(p, 2) if case % 4 == 0 else p
        y = rng.random(len(p)) < p * 0.9
        w = rng.integers(0, 8, len(p)) / 4 if case % 2 else np.ones(len(p))
        metric = sm.BucketError(n_bins=n).update(y, p, sample_weight=w)
        expected = by_bin.bucket_error(y.astype(int), p, w, n)
        assert np.array_equal(metric.bounds()[0], expected, equal_nan=True)


@pytest.mark.slow
@pytest.mark.parametrize("weights", ["even", "small"])
def test_bucket_error_of_many_groups_is_exact(weights: str) -> None:
    """Each bucket is a group, with a divisor of its own: an exact sum of their quotients has millions of bits."""
    n, rng = 1 << 18, np.random.default_rng(0)
    i = np.arange(n // 4, n)
    y = rng.integers(0, 2, len(i))
    w = rng.integers(2_000, 9_000, len(i)) + (0.0 if weights == "even" else 2.0**-36 * 1.1)
    metric = sm.BucketError(n_bins=n).update(y, i / n, sample_weight=w)
    begin = time.process_time()
    value, (low, high) = metric.compute(), metric.bounds()
    assert time.process_time() - begin < 10  # the exact sum takes some 25 s, and grows as the square
    with decimal.localcontext(prec=60):
        each = zip(i.tolist(), y.tolist(), map(Decimal, w.tolist()), strict=True)
        errors = sum(v * abs(Decimal(u * n) / place - 1) for place, u, v in each)
        truth = errors / sum(map(Decimal, w.tolist()))
    assert Decimal(low) <= truth <= Decimal(high) <= Decimal(low) * (1 + Decimal(2.0**-40)) or low == high
    assert value == float(truth)


@pytest.mark.slow
@pytest.mark.parametrize("weights", ["even", "small"])
def test_sums_over_many_bins_are_exact(weights: str) -> None:
    """ECE of squares and Hosmer-Lemeshow of 700 bins against fractions, with weights that lose bits as well."""
    bins, rng = 700, np.random.default_rng(0)
    p, y = (rng.integers(0, 1 << 20, 5_000) + 0.5) / 2.0**20, rng.integers(0, 2, 5_000)
    w = rng.integers(1, 1_000, 5_000) / 256 if weights == "even" else 2.0**-36 * (1 + rng.random(5_000))
    held = np.zeros((bins, 3), object)
    for place, u, q, v in zip(by_bin.uniform(p, bins).tolist(), y.tolist(), p.tolist(), w.tolist(), strict=True):
        held[place] += np.array([F(v), F(v) * F(q), F(v) * u], object)
    total = sum(held[:, 0])
    squares = sum((c - e) ** 2 / v for v, e, c in held.tolist() if v) / total
    truth = {
        "ece": squares,
        "hl": sum((c - e) ** 2 / (e * (1 - e / v)) for v, e, c in held.tolist() if v),
    }
    found = {
        "ece": sm.ExpectedCalibrationError(n_bins=bins, norm="l2"),
        "hl": sm.HosmerLemeshow(n_bins=bins, strategy="uniform"),
    }
    for name, metric in found.items():
        (low, high), power = metric.update(y, p, sample_weight=w).bounds(), 2 if name == "ece" else 1
        assert low <= metric.compute() <= high
        assert F(np.nextafter(low, 0)) ** power < truth[name] < F(np.nextafter(high, 2 * high)) ** power
        if weights == "small":
            assert F(low) ** power <= truth[name] <= F(high) ** power
        assert high - low <= 0.01 * high


def test_bucket_error_of_too_few_rows_says_why() -> None:
    metric = sm.BucketError(n_bins=1000).update([0, 1], [0.2, 0.7])
    with pytest.warns(sm.UndefinedMetricWarning, match="no group of buckets"):
        assert np.isnan(metric.compute())


def test_the_curve_draws_itself() -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    y, p = log()
    metric = sm.CalibrationCurve(strategy="quantile").update(y, p)
    ax = plot(metric)
    line = ax.lines[-1]
    assert np.array_equal(line.get_xdata(), metric.compute().prob_pred)
    assert np.array_equal(line.get_ydata(), metric.compute().prob_true)
    bars = ax.figure.axes[1].patches
    assert [bar.get_height() for bar in bars] == metric.compute().weight.tolist()
    assert plot(sm.CalibrationCurve(n_bins=3).update(y, p), ax, label="three") is ax
    assert plot(sm.CalibrationCurve().compute()) is not None  # no rows
    pyplot.close("all")


def test_without_matplotlib_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"pip install \"streammetrics\[plot\]\""):
        plot(sm.CalibrationCurve().update([0, 1], [0.1, 0.7]))


def slices() -> Any:
    """Countries of known calibration: c predicts a third, b twice, a exactly what came; tiny has one row."""
    p = np.repeat([0.25, 0.5, 0.125, 0.9], [400, 400, 400, 1])
    y = np.r_[np.tile([1, 0, 0, 0], 100), np.tile([1, 0, 0, 0], 100), np.tile([1, 1, 1, 0, 0, 0, 0, 0], 50), 0]
    metrics = [sm.Calibration(), sm.AUC(bits=8), sm.LogLoss(), sm.CTR()]
    return sm.Sliced(metrics, by="country").update(y, p, country=np.repeat(["a", "b", "c", "tiny"], [400, 400, 400, 1]))


def order(table: Any) -> list[str]:
    return list(dict.fromkeys(r["country"] for r in table))


def test_the_worst_slices_come_first() -> None:
    sliced = slices()
    assert order(sliced.table()) == ["a", "b", "c", "tiny"]
    assert order(sliced.table(sort="calibration")) == ["c", "b", "a", "tiny"]  # a third is farther from 1 than twice
    assert order(sliced.table(sort="calibration", min_rows=2)) == ["c", "b", "a"]
    losses = {k: v["log_loss"] for k, v in sliced.compute().items()}
    assert order(sliced.table(sort="log_loss")) == sorted(losses, key=lambda k: -losses[k])
    assert order(sliced.table(sort="rows", min_rows=400)) == ["a", "b", "c"]
    assert order(sliced.table(min_rows=400)) == ["a", "b", "c"]
    with pytest.raises(
        ValueError, match=r"sort= must be rows, .* or the name of a metric \(calibration, auc, log_loss, ctr\)"
    ):
        sliced.table(sort="auk")
    with pytest.raises(ValueError, match="it is unknown whether high or low values of ctr are better"):
        sliced.table(sort="ctr")


@pytest.mark.parametrize("strategy", ["quantile", "log"])
@pytest.mark.parametrize("bits", [None, 12, 18])
def test_bounds_of_bins_are_narrow(strategy: str, bits: int | None) -> None:
    rng = np.random.default_rng(5)
    p = rng.random(5000)
    y = (rng.random(5000) < p).astype(int)
    curve = sm.CalibrationCurve(strategy=strategy, n_bins=8, bits=bits).update(y, p)
    found, (low, high) = curve.compute(), curve.bounds()
    held = found.weight > 0
    width = 2.0 ** -((bits or 16) - 7)  # of a bucket, relatively, on one side of 1/2
    assert (high.prob_pred[held] - low.prob_pred[held] <= width * np.maximum(found.prob_pred[held], 2.0**-7)).all()
    means = [p[(p >= a) & (p < b)].mean() for a, b in zip(found.edges[:-1][held], found.edges[1:][held], strict=True)]
    if strategy == "log":
        np.testing.assert_allclose(found.prob_pred[held], means, atol=width)
    error = sm.ExpectedCalibrationError(strategy=strategy, n_bins=8, bits=bits).update(y, p)
    assert np.diff(error.bounds())[0] <= 2 * width
