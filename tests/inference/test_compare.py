"""Comparisons of holders, against naive loops over shards and scipy."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest
import scipy.stats
from sides import PLAN, Side, ratio, some

import streammetrics as sm
from streammetrics.errors import InvalidInputError
from streammetrics.inference.jackknife import describe_shortage
from streammetrics.inference.multiple import e_benjamini_hochberg
from streammetrics.inference.sentences import describe_comparison
from streammetrics.inference.sequential import Look, e_value
from streammetrics.inference.shard_counts import choose_count

AUC, LOSS, CALIBRATION, CTR = sm.AUC(), sm.LogLoss(), sm.Calibration(), sm.CTR()


def naive(a, b, cell, relative=False):
    """Difference, error, degrees and p-value of one cell, in plain loops."""
    f = math.log if relative else lambda v: v
    shards = range(len(a.shards.weights))
    x = [f(a.shards.leave_one_out[k, cell]) - f(b.shards.leave_one_out[k, cell]) for k in shards]

    def variance(points):
        mean = sum(points) / len(points)
        return (len(points) - 1) / len(points) * sum((p - mean) ** 2 for p in points)

    parts = []
    for side in (a, b):
        w = side.shards.weights[:, cell]
        parts.append((variance([f(v) for v in side.shards.leave_one_out[:, cell]]), w.sum() ** 2 / (w * w).sum() - 1))
    (va, da), (vb, db) = parts
    df = min((va + vb) ** 2 / (va**2 / da + vb**2 / db), len(shards) - 1)
    point = f(a.values[cell]) - f(b.values[cell])
    error = math.sqrt(variance(x))
    return point, error, df, 2 * scipy.stats.t.sf(abs(point) / error, df)


@pytest.mark.parametrize("relative", [False, True])
def test_against_a_naive_jackknife(relative):
    rng = np.random.default_rng(1)
    keys = [("DE",), ("FR",), ("US",)]
    a, b = (some(rng, "auc", AUC, r, 3, keys=keys) for r in (0.1, 0.11))
    found = sm.compare(Side(a, by=("country",)), Side(b), relative=relative)
    assert list(found) == [(*key, "auc") for key in keys]
    for cell, one in enumerate(found.values()):
        for of, ends in ((False, one.difference), (True, one.relative)):
            point, error, df, p = naive(a, b, cell, of)
            far = scipy.stats.t.ppf(0.975, df) * error
            back = math.expm1 if of else lambda v: v
            assert (ends.low, ends.high) == pytest.approx((back(point - far), back(point + far)), rel=1e-9)
            if of == relative:
                assert one.p_value == pytest.approx(p, rel=1e-9)
        assert (one.a, one.b, one.keys) == (a.values[cell], b.values[cell], keys[cell])
        assert one.adjusted == one.p_value


def test_cells_beside_others_are_as_alone():
    rng = np.random.default_rng(2)
    top, bottom = (rng.integers(low, high, (2, 16, 5)) for low, high in ((10, 50), (300, 400)))
    keys = [(i,) for i in range(5)]
    sides = [Side(ratio("auc", AUC, top[i], bottom[i], keys=keys)) for i in range(2)]
    found = sm.compare(*sides)
    for i in range(5):
        alone = [Side(ratio("auc", AUC, top[s][:, [i]], bottom[s][:, [i]], keys=[(i,)])) for s in range(2)]
        assert repr(vars(found[i, "auc"])) == repr(vars(sm.compare(*alone)[i, "auc"]))


def users(rng, rows=20_000):
    user = rng.integers(0, 1000, rows)
    return {"user": user, "y_true": rng.random(rows) < 0.1 + 0.1 * (user % 2)}


def test_two_models_of_one_log():
    rng = np.random.default_rng(3)
    log = users(rng)
    score = np.clip(0.1 + 0.1 * log["y_true"] + 0.2 * rng.random(20_000), 0, 1)
    worse = np.clip(score + 0.2 * rng.random(20_000), 0, 1)
    sides = [sm.Sharded(sm.AUC(), unit="user").update(**log, y_score=s) for s in (score, worse)]
    found = sm.compare(*sides)
    assert found.better == "a"
    assert found.a == sides[0].compute()
    assert found.limited_by == "sampling"
    swapped = sm.compare(*sides[::-1])
    assert swapped.better == "b"
    assert swapped.difference.low == -found.difference.high
    same = sm.compare(sides[0], sides[0].copy())
    assert (same.better, same.p_value, same.difference.low) == (None, 1.0, 0.0)
    loss = [sm.Sharded(sm.LogLoss(), unit="user").update(**log, y_score=s) for s in (score, worse)]
    assert sm.compare(*loss).better == "a"


def test_models_of_one_log_in_one_pass():
    rng = np.random.default_rng(17)
    log = users(rng)
    scores = {"p_new": rng.random(20_000) * 0.5 + 0.2 * log["y_true"], "p_old": rng.random(20_000) * 0.5}
    tasks = {m: sm.Task([sm.AUC(), sm.LogLoss(), sm.CTR()], y_score=f"p_{m}") for m in ("new", "old")}
    both = sm.Sharded(tasks, unit="user").update(**log, **scores)
    found = sm.compare(both["new"], both["old"])
    assert list(found) == ["auc", "log_loss", "ctr"]
    alone = [sm.Sharded(sm.AUC(), unit="user").update(**log, y_score=scores[f"p_{m}"]) for m in ("new", "old")]
    assert repr(vars(found["auc"])) == repr(vars(sm.compare(*alone)))
    assert found["auc"].better == "a"
    plain = sm.MetricCollection(tasks).update(log | scores)
    assert plain["new"].compute() == {n: plain[f"new/{n}"].compute() for n in ("auc", "log_loss", "ctr")}
    assert plain["new"].digest() == sm.MetricCollection(tasks["new"]).update(log | scores).digest()
    with pytest.raises(KeyError, match="no metric 'ne'"):
        both["ne"]


def test_one_line():
    rng = np.random.default_rng(4)
    a, b = some(rng, "auc", AUC, 0.3), some(rng, "auc", AUC, 0.2)
    line = repr(sm.compare(Side(a), Side(b))["auc"])
    assert line.startswith(f"auc: a {a.values[0]:.3f}, b {b.values[0]:.3f}, +0.1")
    assert "(95 % +0." in line
    assert re.search(r"\), p = \de-\d\d$", line)
    few = some(rng, "auc", AUC, events=np.ones((16, 1)))
    told = sm.compare(Side(few), Side(b))["auc"]
    assert repr(told).endswith(
        "no interval: the first side: too few: 16 positives in 16 of 16 groups of units; 50 positives in 8 groups are "
        "needed; collect more units"
    )
    assert math.isnan(told.difference.low)
    assert told.better is told.limited_by is None


def test_refused_without_common_shards():
    rng = np.random.default_rng(5)
    log = users(rng)
    plain = sm.CTR().update(log["y_true"])
    by_user = sm.Sharded(sm.CTR(), unit="user").update(y_true=log["y_true"], user=log["user"])
    message = r"ctr: a has 64 shards of user, b has no shards of units.*unit=\"user\", shards=64.*independent=True"
    with pytest.raises(InvalidInputError, match=message):
        sm.compare(by_user, plain)
    with pytest.raises(InvalidInputError, match="ctr: neither side has shards of units, so"):
        sm.compare(plain, plain.copy())
    fewer = sm.Sharded(sm.CTR(), unit="user", shards=32).update(y_true=log["y_true"], user=log["user"])
    with pytest.raises(InvalidInputError, match="64 shards of user, b has 32 shards of user"):
        sm.compare(by_user, fewer)
    assert sm.compare(by_user, fewer, independent=True).reason is None
    with pytest.raises(InvalidInputError, match="covariates need shards"):
        sm.compare(by_user, fewer, independent=True, covariates=(by_user, fewer))


def test_independent_rows_are_compared_by_welch():
    rng = np.random.default_rng(6)
    y, z = rng.random((2, 300)), rng.random((2, 70))
    x1, x2 = np.abs(y[0] - y[1]), np.abs(z[0] - z[1])
    error = sm.MAE(squares=True)
    found = sm.compare(error.copy().update(*y), error.copy().update(*z), independent=True)
    known = scipy.stats.ttest_ind(x1, x2, equal_var=False)
    assert found.p_value == pytest.approx(known.pvalue, rel=1e-8)
    assert (found.difference.low, found.difference.high) == pytest.approx(tuple(known.confidence_interval()), rel=1e-8)
    assert "independent" in found.difference.assumption
    one = sm.compare(error.copy().update([1.0], [2.0]), error.copy().update(*z), independent=True)
    assert one.reason == "the value has no standard error; count more rows, or another metric"
    none = sm.compare(sm.MAE().update(*y), sm.MAE().update(*z), independent=True)
    assert "squares=True" in none.reason


def test_shards_of_each_by_welch():
    rng = np.random.default_rng(7)
    a, b = some(rng, "auc", AUC, 0.1), some(rng, "auc", AUC, 0.12)
    other = ratio("auc", AUC, b.values * b.shards.weights, b.shards.weights, plan=("device", 16, ""))
    object.__setattr__(other.shards, "leave_one_out", b.shards.leave_one_out)
    found = sm.compare(Side(a), Side(other), independent=True)["auc"]
    errors = []
    for side in (a, b):
        x = side.shards.leave_one_out[:, 0]
        errors.append(15 / 16 * ((x - x.mean()) ** 2).sum())
    assert found.difference.standard_error == pytest.approx(math.sqrt(sum(errors)), rel=1e-9)


@pytest.mark.parametrize(
    ("a", "b", "better"), [(0.9, 1.2, "a"), (1.2, 0.9, "b"), (1.3, 1.1, "b"), (0.95, 1.05, None), (0.7, 0.8, "b")]
)
@pytest.mark.parametrize("apart", [False, True])
def test_calibration_is_better_closer_to_one(a, b, better, apart):
    rng = np.random.default_rng(8)
    n = rng.poisson(400, (16, 1)).astype(float)
    sides = []
    for value in (a, b):
        p = n * value * (1 + 0.02 * rng.normal(size=n.shape))
        plan = ("user", 16, "") if apart and value == b else PLAN
        sides.append(Side(ratio("calibration", CALIBRATION, p, n, plan=plan)))
    assert sm.compare(*sides, independent=apart)["calibration"].better == better


def test_the_certified_bound_may_limit():
    rng = np.random.default_rng(9)
    a, b = some(rng, "auc", AUC, 0.3, bound=0.2), some(rng, "auc", AUC, 0.1)
    found = sm.compare(Side(a), Side(b))["auc"]
    assert found.p_value < 1e-6
    assert found.limited_by == "certified bound"
    assert found.better is None
    assert "the certified bound limits the precision: use more bits=" in repr(found)
    assert sm.compare(Side(b), Side(a))["auc"].better is None
    for name, away, better in (("low", -0.3, (None, None)), ("high", 0.3, ("a", "b"))):  # towards the other, or not
        loose = some(rng, "auc", AUC, 0.3)
        object.__setattr__(loose, name, loose.values + away)
        assert (
            sm.compare(Side(loose), Side(b))["auc"].better,
            sm.compare(Side(b), Side(loose))["auc"].better,
        ) == better
    for name, away, better in (("low", -0.3, ("a", "b")), ("high", 0.3, (None, None))):
        loose = some(rng, "auc", AUC, 0.1)
        object.__setattr__(loose, name, loose.values + away)
        strong = some(rng, "auc", AUC, 0.3)
        found = sm.compare(Side(strong), Side(loose))["auc"], sm.compare(Side(loose), Side(strong))["auc"]
        assert tuple(one.better for one in found) == better
    close = some(rng, "auc", AUC, 0.3, bound=1e-4)
    assert sm.compare(Side(close), Side(b))["auc"].better == "a"
    assert sm.compare(Side(close), Side(b), relative=True)["auc"].better == "a"
    assert sm.compare(Side(a), Side(b), relative=True)["auc"].better is None


def test_adjusted_for_all_rows_together():
    rng = np.random.default_rng(10)
    keys = [(i,) for i in range(6)]
    sides = [Side(*(some(rng, n, m, r, 6, keys=keys) for n, m in (("auc", AUC), ("ll", LOSS)))) for r in (0.1, 0.115)]
    plain = sm.compare(*sides)
    p = np.array([c.p_value for c in plain.values()])
    for adjust in ("holm", "bh"):
        found = sm.compare(*sides, adjust=adjust)
        order = np.argsort(p)
        naive = np.empty(12)
        if adjust == "holm":
            naive[order] = np.maximum.accumulate(np.minimum(np.sort(p) * np.arange(12, 0, -1), 1))
        else:
            naive[order] = np.minimum.accumulate((np.sort(p) * 12 / np.arange(1, 13))[::-1])[::-1]
        assert [c.adjusted for c in found.values()] == pytest.approx(np.minimum(naive, 1).tolist())
        assert [c.p_value for c in found.values()] == p.tolist()
        for c in found.values():
            assert c.better is None or c.adjusted <= 0.05
    assert any(c.better for c in plain.values())
    with pytest.raises(InvalidInputError, match="'holm' or 'bh'"):
        sm.compare(*sides, adjust="bonferroni")


def test_looking_all_day():
    rng = np.random.default_rng(11)
    keys = [(i,) for i in range(4)]
    a, b = (some(rng, "auc", AUC, r, 4, keys=keys) for r in (0.1, 0.13))
    found = sm.compare(Side(a), Side(b), sequential=True, planned=10_000, users=5_000, adjust="bh")
    once = sm.compare(Side(a), Side(b))
    look = Look(5_000, 10_000)
    e = [e_value(sm.inference.jackknife.jackknife(_contrast(a, b, i)), look) for i in range(4)]
    assert [c.p_value for c in found.values()] == pytest.approx([min(1.0, 1 / x) for x in e])
    assert [c.adjusted for c in found.values()] == pytest.approx(e_benjamini_hochberg(e).tolist())
    for wide, narrow in zip(found.values(), once.values(), strict=True):
        assert wide.difference.low < narrow.difference.low
        assert "95 % always" in repr(wide)
    untuned = sm.compare(Side(a), Side(b), sequential=True, users=5_000, adjust="bh")
    assert list(untuned) == list(found)
    for one, tuned in zip(untuned.values(), found.values(), strict=True):
        assert one.difference[:2] == tuned.difference[:2]  # tuned at 10,000 users, which is the plan of `found`
    with pytest.raises(InvalidInputError, match="need users="):
        sm.compare(Side(a), Side(b), sequential=True, planned=10_000)


def _contrast(a, b, cell):
    from streammetrics.inference.jackknife import Replicates, subtract_replicates

    one, two = (Replicates(s.values[cell], s.shards.leave_one_out[:, cell], s.shards.weights[:, cell]) for s in (a, b))
    return subtract_replicates(one, two)


def test_covariates():
    rng = np.random.default_rng(12)
    n = rng.poisson(400, (2, 16, 2)).astype(float)
    habit = rng.normal(size=(2, 16, 2))
    keys = [("x",), ("y",)]
    before = [Side(ratio("auc", AUC, n[i] * (0.5 + 0.02 * habit[i]), n[i], keys=keys)) for i in range(2)]
    noise = 0.002 * rng.normal(size=(2, 16, 2))
    after = [Side(ratio("auc", AUC, n[i] * (0.5 + 0.02 * habit[i] + noise[i]), n[i], keys=keys)) for i in range(2)]
    plain, found = sm.compare(*after), sm.compare(*after, covariates=tuple(before))
    for key, one in found.items():
        assert one.reduction > 0.8
        assert one.difference.standard_error < 0.4 * plain[key].difference.standard_error
        assert "covariates removed" in repr(one)
    assert sm.compare(*after, covariates=[before])["x", "auc"].p_value == found["x", "auc"].p_value
    half = [Side(ratio("auc", AUC, s.given[0].shards.weights[:, :1] / 2, s.given[0].shards.weights[:, :1], keys=keys[:1]))
            for s in before]  # fmt: skip
    assert sm.compare(*after, covariates=half)["y", "auc"].reason.startswith("a covariate: ")
    same = [Side(some(np.random.default_rng(1), "auc", AUC, r)) for r in (0.1, 0.1)]
    with pytest.raises(InvalidInputError, match="two models on one log"):
        sm.compare(*same, covariates=tuple(same))
    with pytest.raises(InvalidInputError, match="pair"):
        sm.compare(*after, covariates=[before[0]])
    other = [Side(ratio("auc", AUC, n[i], n[i] + 1, keys=keys, plan=("device", 16, ""))) for i in range(2)]
    with pytest.raises(InvalidInputError, match="expected 16 shards of user_id, found 16 shards of device"):
        sm.compare(*after, covariates=other)


def test_what_one_side_alone_has_is_listed():
    rng = np.random.default_rng(13)
    a = Side(some(rng, "auc", AUC, cells=3, keys=[(1,), (2,), (3,)]), some(rng, "only", LOSS, keys=[(1,)]),
             some(rng, "x", LOSS, keys=[(1,)]))  # fmt: skip
    b = Side(some(rng, "auc", AUC, cells=2, keys=[(3,), (9,)]), some(rng, "x", AUC, keys=[(1,)]))
    found = sm.compare(a, b)
    assert list(found) == [(3, "auc")]
    assert [(x.name, x.key) for x in found.unmatched] == [
        ("auc", (1,)), ("auc", (2,)), ("auc", (9,)), ("only", (1,)), ("x", (1,)),
    ]  # fmt: skip
    reasons = [x.reason for x in found.unmatched]
    assert reasons[0] == "only the first side has this slice"
    assert reasons[2] == "only the second side has this slice"
    assert reasons[3] == "only the first side has this metric"
    assert reasons[4] == "the first side has log_loss under this name, the second side auc"
    assert len(found.table()) == 6
    with pytest.raises(InvalidInputError, match="nothing to compare: a has only; b has auc"):
        sm.compare(Side(a.given[1]), Side(b.given[0]))
    with pytest.raises(InvalidInputError, match="expected metrics, collections"):
        sm.compare(1.0, b)
    with pytest.raises(KeyError, match="such as"):
        found["none"]


@pytest.mark.slow
def test_slices_of_arms_and_their_table():
    rng = np.random.default_rng(14)
    log = users(rng, 60_000)
    log |= {"country": rng.choice(["DE", "US", "FR"], 60_000, p=[0.6, 0.398, 0.002])}
    log |= {"variant": np.where(log["user"] % 3, "new", "old"), "y_score": rng.random(60_000)}
    metrics = [sm.AUC(), sm.CTR(), sm.Calibration()]
    arms = sm.Sliced(sm.Sliced(sm.Sharded(metrics, unit="user"), by="country"), by="variant").update(**log)
    found = sm.compare(arms["new"], arms["old"])
    assert list(found) == [(c, m) for c in ("DE", "FR", "US") for m in ("auc", "ctr", "calibration")]
    assert "too few" in found["FR", "auc"].reason
    alone = sm.compare(arms["new"]["DE"], arms["old"]["DE"])
    assert repr(alone["auc"].difference) == repr(found["DE", "auc"].difference)
    table = found.table()
    assert table.columns[:3] == ("country", "metric", "a")
    assert len(table) == 9
    frame = found.to_pandas()
    assert frame["difference"].tolist() == [c.difference.estimate for c in found.values()]
    assert "too few" in repr(found)
    assert "<table>" in found._repr_html_()
    assert found.to_arrow().num_rows == 9


def test_quantiles():
    rng = np.random.default_rng(15)
    rows = {"user": rng.integers(0, 900, 30_000), "variant": rng.choice(["a", "b"], 30_000)}
    value = np.exp(rng.normal(3, 0.5, 30_000) + 0.2 * (rows["variant"] == "b"))
    arms = sm.Sliced(sm.Sharded(sm.Quantile(q=0.95), unit="user"), by="variant").update(value=value, **rows)
    found = sm.compare(arms["b"], arms["a"])
    assert found.relative.low < math.expm1(0.2) < found.relative.high
    assert 0.02 < found.relative.high - found.relative.low < 0.2
    assert found.better is None  # nothing says which values are good


def test_metrics_without_an_error_say_what_to_use():
    rng = np.random.default_rng(16)
    log = users(rng)
    sides = [
        sm.Sharded(sm.ExpectedCalibrationError(), unit="user").update(**log, y_score=rng.random(20_000)) for _ in "ab"
    ]
    found = sm.compare(*sides)
    assert found.reason == sm.ExpectedCalibrationError.about.no_interval_reason
    assert math.isnan(found.p_value)


def test_no_slices_at_all():
    empty = sm.Sliced(sm.Sharded(sm.AUC(), unit="user"), by="k")
    found = sm.compare(empty, empty.copy())
    assert len(found) == 0
    assert len(found.table()) == 0


def test_a_change_from_zero_is_undefined():
    """A relative change from a control of 0 is NaN, with its reason."""
    users = np.arange(200)
    low, zero = (
        sm.Sharded(sm.CTR(), unit="user").update(y_true=clicks, user=users)
        for clicks in ((users % 50 == 0).astype(np.uint8), np.zeros(200, np.uint8))
    )
    for independent in (False, True):
        for treatment in (low, zero):
            found = sm.compare(treatment, zero, independent=independent).relative
            assert math.isnan(found.estimate)
            assert found.reason.startswith("the control is 0, so a relative difference is undefined; the ")
    assert sm.compare(zero, low).relative.estimate == -1.0
    cards = [
        sm.scorecard({"old": zero, "new": low}, control="old", primary="ctr", better={"ctr": "high"}, relative=relative)
        for relative in (True, False)
    ]
    row, absolute = (next(iter(card.table())) for card in cards)
    assert math.isnan(row["change"])
    assert row["reason"].startswith("the control is 0")
    assert "ctr of new has no interval: the control is 0, so" in cards[0].verdicts["new"].sentence
    assert absolute["change"] == 0.02
    assert absolute["reason"].startswith("the first side: too few: 4 positives")


def test_a_quantile_of_zero_has_no_relative_change():
    users = np.arange(400)
    sides = [
        sm.Sharded(sm.ErrorQuantile(q=0.5), unit="user").update(y_true=users * 0.0, y_pred=error, user=users)
        for error in (users % 2 + 1.0, users % 3 // 2)
    ]
    found = sm.compare(*sides)
    assert (found.difference.low, found.b) == (1.0, 0.0)
    assert math.isnan(found.relative.estimate)
    assert found.relative.reason.startswith("the control is 0, so a relative difference is undefined; use the absolute")


# -- few units ---------------------------------------------------------------------------------------------------------

NAMES = ("ndcg", "auc", "quantile@0.5")


def rankings(noise, *, units=50, first=0, shards=64, by=None):
    """Two models of search results, 20 documents for each query; fifty queries are the usual size of a test collection."""
    rng = np.random.default_rng(1)
    y, query = rng.integers(0, 2, 20 * units), first + np.repeat(np.arange(units), 20)
    score = 1.0 / (1.0 + np.exp(-y - noise * rng.normal(size=y.size)))
    metrics = sm.Sharded([sm.NDCG(), sm.AUC(), sm.Quantile(q=0.5)], unit="query", shards=shards)
    rows = {"y_true": y, "y_score": score, "value": np.exp(score), "query": query}
    if by is not None:
        metrics, rows = sm.Sliced(metrics, by="day"), rows | {"day": by(query)}
    return metrics.update(rows)


@pytest.mark.parametrize("first", [0, 1000])
def test_fifty_queries_are_compared(first):
    a, b = rankings(2.0), rankings(1.0, first=first)
    digests = a.digest(), b.digest()
    found = sm.compare(a, b)
    assert list(found) == list(NAMES)
    for one in found.values():
        assert one.reason is None
        assert one.difference.low < one.a - one.b < one.difference.high
    # Both models have the same fifty queries, or fifty queries each.
    assert found["ndcg"].difference.method == f"jackknife over {32 if first else 16} shards"
    # The state keeps 64 shards.
    assert (a.digest(), b.digest()) == digests
    assert a.shards == 64


@pytest.mark.parametrize(("units", "count"), [(40, 16), (90, 32), (400, 64)])
def test_folded_shards_are_those_counted_with_fewer(units, count):
    found = sm.compare(*(rankings(noise, units=units) for noise in (2.0, 1.0)))
    few = sm.compare(*(rankings(noise, units=units, shards=count) for noise in (2.0, 1.0)))
    for name in NAMES:
        assert repr(found[name]) == repr(few[name])
        assert found[name].difference[:4] == few[name].difference[:4]
    assert found["auc"].difference.method == f"jackknife over {count} shards"


def methods(found):
    """The methods of all comparisons that have an interval."""
    return {c.difference.method for c in found.values() if c.reason is None}


def test_shards_are_folded_alike_in_arms_slices_and_covariates():
    # A slice of few units is not folded if there are many units in all slices.
    slices = [rankings(noise, units=600, by=lambda q: np.where(q < 60, "few", "many")) for noise in (2.0, 1.0)]
    assert methods(sm.compare(*slices)) == {"jackknife over 64 shards"}
    # One arm of few units is not folded if the other one has many.
    few, many = rankings(2.0, units=60), rankings(1.0, units=600, first=1000)
    assert methods(sm.compare(few, many)) == {"jackknife over 64 shards"}
    # Two arms of fifty units together have one hundred.
    one, two = rankings(2.0), rankings(1.0, first=1000)
    before = rankings(2.0), rankings(1.5, first=1000)
    found = sm.compare(one["auc"], two["auc"], covariates=(before[0]["auc"], before[1]["auc"]))
    assert found.difference.method.startswith("jackknife over 32 shards, 1 covariate")


def test_intervals_of_one_side_keep_their_shards():
    slices = rankings(2.0, units=80, by=lambda q: q % 2)
    assert {i.method for some in slices.interval().values() for i in some.values()} == {
        "jackknife over 64 shards", "woodruff",
    }  # fmt: skip


def test_other_numbers_of_shards():
    assert [choose_count(np.arange(n) < 10) for n in (8, 16, 24, 32, 48, 50, 4096)] == [8, 16, 24, 16, 24, 25, 16]
    a, b = rankings(2.0), rankings(1.0, shards=16)
    with pytest.raises(sm.InvalidInputError, match="a has 64 shards of query, b has 16 shards"):
        sm.compare(a, b)


def test_too_few_has_no_interval_anywhere():
    slices = [rankings(noise, units=400, by=lambda q: np.where(q < 3, "few", "many")) for noise in (2.0, 1.0)]
    found = sm.compare(*slices, adjust="bh")
    few = {name: found["few", name] for name in NAMES}
    for one in few.values():
        assert one.reason.startswith("the first side: too few: ")
        assert one.reason.endswith(" are needed; collect more units")
        assert np.isnan([*one.difference[:2], *one.relative[:2], one.p_value, one.adjusted]).all()
        assert one.difference.reason == one.relative.reason == one.reason
        assert " to " not in repr(one)
    rows = [r for r in found.table().records if r["day"] == "few"]
    assert all(math.isnan(r[name]) for r in rows for name in ("low", "high", "relative_low", "relative_high"))
    assert all(c.reason is None for key, c in found.items() if key[0] == "many")
    card = sm.scorecard({"new": slices[0], "old": slices[1]}, control="old", primary="auc", secondary=["ndcg"])
    for row in card.slices().records:
        assert (row["word"] == "too few") == (row["day"] == "few") == math.isnan(row["low"]) == math.isnan(row["high"])


def test_refusals_name_the_cure():
    positives = np.zeros(64)
    positives[:20] = 10.0
    assert describe_shortage(positives).endswith("; collect more units, or count with shards=16")
    assert describe_shortage(positives / 10.0).endswith("; collect more units")
    assert describe_shortage(50.0 * positives[:16] * (np.arange(16) < 5)).endswith("; collect more units")


def test_a_sentence_names_few_metrics():
    rng = np.random.default_rng(1)
    a, b = (some(rng, "auc", AUC, rate, 1) for rate in (0.3, 0.1))
    one = sm.compare(Side(a), Side(b))["auc"]
    assert one.better is not None
    for count, end in ((6, "m4, m5."), (9, "m4, m5 and 3 more metrics.")):
        text = describe_comparison(one, [replace(one, name=f"m{i}") for i in range(count)])
        assert text.endswith(f"; also {'better' if one.better == 'a' else 'worse'}: m0, m1, m2, m3, {end}")
