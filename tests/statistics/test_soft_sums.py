"""Soft labels: sums of every term to the bit, labels of 0 and 1 as hard ones, errors, and what is refused."""

from __future__ import annotations

from fractions import Fraction
from functools import partial

import numpy as np
import pytest

import streammetrics as sm
from streammetrics.collect.metric_like import states_of
from streammetrics.laws.case import value_of, without_warnings
from streammetrics.numerics.exact import UNIT, fixed_to_int
from streammetrics.state.declare import CEILING
from streammetrics.statistics.soft_sums import SoftSums
from streammetrics.statistics.sums import ScoreSums
from tests.statistics.batches import BY, WEIGHTS, bell, counted, fed, one_of

DTYPES = (np.float16, np.float32, np.float64)
METRICS = (sm.LogLoss, sm.NormalizedEntropy, sm.BrierScore, sm.Calibration, sm.CTR, sm.PredictedCTR)
ALL = ("brier", "log_loss", "score", "target")


def rows(scale, rng, n):
    target, score = rng.random(n), rng.random(n)
    target[rng.random(n) < 0.2] = one_of(rng, [0.0, 1.0, 0.25, 1e-30])
    score[rng.random(n) < 0.1] = one_of(rng, [0.0, 1.0, 0.5])
    if scale == "logit":
        score = bell(rng, n) * 4
        score[rng.random(n) < 0.02] *= 300
    return {"y_true": target.astype(one_of(rng, DTYPES)), "y_score": score.astype(one_of(rng, DTYPES))}


def bad(columns):
    target = columns["y_true"].copy()
    target[-1] = 1.25
    return columns | {"y_true": target}


@pytest.mark.parametrize("how", WEIGHTS)
@pytest.mark.parametrize(
    "settings",
    [{"terms": ALL}, {"terms": ("log_loss",), "eps": 0.0}, {"terms": ("log_loss", "target"), "scale": "logit"}],
    ids=str,
)
def test_as_frozen(settings, how):
    make = partial(rows, settings.get("scale", "probability"))
    counted(SoftSums(**settings), make, seed=3 + len(how), how=how, bad=bad)


@pytest.mark.parametrize("how", WEIGHTS)
def test_targets_alone(how):
    def make(rng, n):
        return {"y_true": rows("probability", rng, n)["y_true"]}

    counted(SoftSums(terms=("target",)), make, seed=1, how=how, bad=bad)


# -- naive references --------------------------------------------------------------------------------------------------


def naive(metric, t, p, w):
    """What a metric of soft labels is, in numpy."""
    p = 1 / (1 + np.exp(-p)) if metric.scale == "logit" else p
    q = np.clip(p, 2.0**-52, 1 - 2.0**-52)
    cross = -(np.where(t > 0, t * np.log(q), 0) + np.where(t < 1, (1 - t) * np.log1p(-q), 0))  # xlogy
    loss, base = (w * cross).sum() / w.sum(), (w * t).sum() / w.sum()
    return {
        "log_loss": loss,
        "normalized_entropy": loss / -(base * np.log(base) + (1 - base) * np.log1p(-base)),
        "brier_score": (w * (p - t) ** 2).sum() / w.sum(),
        "calibration": (w * p).sum() / (w * t).sum(),
        "ctr": base,
        "predicted_ctr": (w * p).sum() / w.sum(),
    }[metric.about.tag]


def made(cls, t, p, w=None, **settings):
    """A metric that has seen rows."""
    metric = cls(soft_labels=True, **settings)
    score = {} if cls is sm.CTR else {"y_score": p}
    return metric.update({"y_true": t} | score | ({} if w is None else {"sample_weight": w}))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("scale", ["probability", "logit"])
@pytest.mark.parametrize("cls", METRICS)
def test_against_numpy(cls, scale, weighted):
    rng = np.random.default_rng(7)
    n = 4000
    t, w = rng.random(n) ** 3, rng.random(n) * 5 if weighted else None
    t[::7], t[::11] = 0.0, 1.0
    p = rng.normal(-1, 2, n) if scale == "logit" else np.where(np.arange(n) % 97 < 3, t.round(), rng.random(n) ** 2)
    metric = made(cls, t, p, w, scale=scale)
    assert metric.compute() == pytest.approx(naive(metric, t, p, np.ones(n) if w is None else w), rel=1e-13)
    low, high = metric.bounds()
    assert low <= metric.compute() <= high
    keys = np.arange(n) % 3
    score, weight = {} if cls is sm.CTR else {"y_score": p}, {} if w is None else {"sample_weight": w}
    sliced = sm.Sliced(cls(soft_labels=True, scale=scale), by="k").update({"y_true": t, "k": keys} | score | weight)
    for k in range(3):
        mine = keys == k
        assert sliced[k].compute() == made(cls, t[mine], p[mine], None if w is None else w[mine], scale=scale).compute()
    assert sliced.total.compute() == metric.compute()


def on_grid(value, bits=60):
    return Fraction(round(Fraction(value) * 2**bits), 2**bits)


@pytest.mark.slow
@pytest.mark.parametrize("sliced", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_sums_to_the_bit(weighted, sliced):
    """Each product is computed in float64, rounded to its grid once, and summed without rounding."""
    rng = np.random.default_rng(8)
    n = 3000
    t, p, w = rng.random(n) ** 4, rng.random(n), rng.random(n) * 1e3 if weighted else np.ones(n)
    state = SoftSums(terms=ALL).empty_copy((BY,)) if sliced else SoftSums(terms=ALL)
    columns = {"y_true": t, "y_score": p} | ({"sample_weight": w} if weighted else {})
    found = fed(state, columns | ({"k": rng.integers(0, 5, n)} if sliced else {})).without_axes
    for term, x in (("target", t), ("score", p), ("brier", (p - t) * (p - t))):
        assert found.total(term) == sum(map(on_grid, x * w))
        i = found.terms.index(term)
        assert number(found.squares[i]) == sum(on_grid(v, 52) for v in (x * w) * (x * w))
        assert number(found.crossed[i]) == sum(map(on_grid, x * w * w * t))
        assert number(found.read_cells(SoftSums.w2x)[0][i]) == sum(map(on_grid, x * w * w))
    assert number(found.read_cells(SoftSums.w2)[0]) == sum(map(on_grid, w * w))
    assert found.weight() == sum(map(on_grid, w))


def number(pair):
    return Fraction(fixed_to_int(pair), UNIT)


def test_a_row_is_a_share_of_a_positive_and_the_rest_of_a_negative():
    rng = np.random.default_rng(9)
    t, p, w = rng.integers(0, 257, 500) / 256, rng.random(500), rng.integers(1, 9, 500) / 4  # products are exact
    labels, twice, shares = np.repeat([1, 0], 500), np.tile(p, 2), np.r_[w * t, w * (1 - t)]
    for cls in (sm.LogLoss, sm.NormalizedEntropy, sm.Calibration, sm.PredictedCTR):
        hard = cls().update(labels, twice, sample_weight=shares)
        assert made(cls, t, p, w).compute() == pytest.approx(hard.compute(), rel=1e-15)


# -- hard labels -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "settings",
    [{}, {"scale": "logit"}, {"eps": 0.0}, {"eps": 1e-17}, {"eps": 0.1}, {"num_labels": 2, "average": "weighted"}],
    ids=str,
)
def test_hard_labels_have_the_value_of_hard_labels(settings, dtype, weighted):
    rng = np.random.default_rng(4)
    shape = (2000, 2) if "num_labels" in settings else 2000
    y, w = rng.integers(0, 2, shape), {"sample_weight": 10 ** rng.uniform(-9, 9, 2000)} if weighted else {}
    s = rng.normal(0, 9, shape) if "scale" in settings else np.clip(rng.normal(0.5, 0.5, shape), 0, 1)
    for cls in METRICS:
        if set(settings) <= set(cls().settings):
            score = {} if cls is sm.CTR else {"y_score": s.astype(dtype)}
            hard, soft = (cls(**settings, soft_labels=b).update({"y_true": y} | score | w) for b in (False, True))
            assert value_of(hard) == value_of(soft)
            assert hard.explain().get("clipped", 0) == soft.explain().get("clipped", 0)


@pytest.mark.parametrize("scale", ["probability", "logit"])
def test_hard_labels_have_the_moments_of_hard_labels(scale):
    rng = np.random.default_rng(5)
    z = rng.normal(0, 3, 2000)
    z[::100] *= 1e12  # whose losses go to the superaccumulator
    s = z if scale == "logit" else np.abs(np.tanh(z))
    columns = {"y_true": rng.integers(0, 2, 2000), "y_score": s, "sample_weight": 10 ** rng.uniform(-6, 2, 2000)}
    terms = ("brier", "log_loss", "score")
    hard, soft = (fed(kind(terms=terms, scale=scale), columns) for kind in (ScoreSums, SoftSums))
    assert [hard.total(t) for t in terms] == [soft.total(t) for t in terms]
    assert hard.squares.tolist() == soft.squares.tolist()
    assert (hard.large is None) == (soft.large is None) == (scale == "probability")
    for i, _ in enumerate(terms):
        assert sum(number(v) for v in hard.w2x[i]) == number(soft.w2x[i])
        assert number(hard.w2x[i, 1]) == number(soft.crossed[i])
    assert sum(number(v) for v in hard.w2) == number(soft.w2)


def test_heavy_rows_stop_their_squares():
    t, p, w = np.array([0.5, 1.0]), np.array([1.0, 1.0]), np.full(2, 2e6)
    lone = fed(SoftSums(terms=("score", "target")), {"y_true": t, "y_score": p, "sample_weight": w})
    assert lone.squares[0].tolist() == lone.w2.tolist() == lone.w2x[0].tolist() == [CEILING, 0]
    few = fed(SoftSums(terms=("score", "target")), {"y_true": t, "y_score": p})
    assert lone.merge(few) == few.merge(lone)
    assert few.merge(lone).squares[0].tolist() == [CEILING, 0]


def standard_error(a, b, aa, ab, bb):
    return float(aa / b**2 - 2 * a * ab / b**3 + a * a * bb / b**4) ** 0.5


@pytest.mark.parametrize("weighted", [False, True])
def test_standard_errors(weighted):
    rng = np.random.default_rng(11)
    n = 20_000
    t, p, w = rng.beta(1, 9, n), rng.beta(1, 8, n), rng.random(n) * 4 + 0.1 if weighted else np.ones(n)
    state = fed(
        SoftSums(terms=("score", "target")),
        {"y_true": t, "y_score": p} | ({"sample_weight": w} if weighted else {}),
    )
    predicted, observed = state.total("score"), state.total("target")
    aa, bb = map(number, state.squares)
    ratio = (w * p).sum() / (w * t).sum()
    wanted = np.sqrt((w * w * (p - ratio * t) ** 2).sum()) / (w * t).sum()
    assert standard_error(predicted, observed, aa, number(state.crossed[0]), bb) == pytest.approx(wanted, rel=1e-9)
    w2, w2x = number(state.read_cells(SoftSums.w2)[0]), number(state.read_cells(SoftSums.w2x)[0][1])
    mean = (w * t).sum() / w.sum()
    wanted = np.sqrt((w * w * (t - mean) ** 2).sum()) / w.sum()
    assert standard_error(observed, state.weight(), bb, w2x, w2) == pytest.approx(wanted, rel=1e-9)


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [np.nan, 1.0000000000000002, -1e-300, np.inf])
@pytest.mark.parametrize("cls", METRICS)
def test_a_bad_target_raises_or_is_dropped(cls, wrong):
    t = np.full(9, 0.25)
    t[[4, 6]] = wrong
    text = (
        rf"y_true: expected a soft label in \[0, 1\], found {wrong} in row 4 \(2 of 9 rows in this batch are invalid\)"
    )
    with pytest.raises(sm.InvalidInputError, match=text.replace("+", r"\+")) as caught:
        made(cls, t, np.full(9, 0.5))
    assert (caught.value.column, caught.value.row, caught.value.count) == ("y_true", 4, 2)
    metric = made(cls, t, np.full(9, 0.5), on_invalid="drop")
    assert metric.explain()["dropped"] == {"y_true": 2}
    assert metric.explain()["rows"] == 7


def test_other_columns_of_targets():
    for given in ([0.2, 0.9], (1, 0), np.array([True, False]), np.float16([0.5, 0.25])):
        assert made(sm.CTR, given, None).compute() == float(np.mean(np.float64(given)))
    for wrong in (["yes", "no"], [0.5, None], np.array([0.5, 1j])):
        with pytest.raises(sm.InvalidInputError, match="y_true"):
            made(sm.CTR, wrong, None)
    with pytest.raises(sm.InvalidInputError, match=r"y_true: expected 0 or 1, found 0\.5 in row 0"):
        sm.LogLoss().update([0.5], [0.5])


@pytest.mark.parametrize("cls", METRICS)
def test_settings_that_make_no_sense(cls):
    for which in ({"num_classes": 3}, {"labels": ("a", "b")}):
        with pytest.raises(ValueError, match=r"soft_labels=True does not support|entropy"):
            cls(soft_labels=True, **which)
    with pytest.raises(ValueError, match="negative_rate= requires a metric that reads one 0/1 label"):
        sm.MetricCollection(sm.Task(cls(soft_labels=True), negative_rate=0.1, corrects="rows"))
    with pytest.raises(sm.IncompatibleStateError):
        cls().merge(cls(soft_labels=True))


def test_without_positives_there_is_a_reason():
    nothing = np.zeros(3)
    for cls, reason in ((sm.Calibration, "no positives"), (sm.NormalizedEntropy, "one class")):
        metric = made(cls, nothing, np.full(3, 0.5))
        assert np.isnan(value_of(metric))
        assert reason in without_warnings(metric.explain)["reason"]


def test_metrics_share_one_state():
    soft = [cls(soft_labels=True) for cls in METRICS if cls is not sm.CTR]
    whole = sm.MetricCollection(*soft).update([0.5, 0.25, 1], [0.5, 0.75, 0.9])
    assert len(states_of(whole)) == 1
    for metric in soft:
        assert whole[metric.name] == metric.update([0.5, 0.25, 1], [0.5, 0.75, 0.9])
