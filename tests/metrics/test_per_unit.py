"""Means per exposed unit: two tables in updates of their own, units without outcome, what is refused."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import streammetrics as sm
from streammetrics.collect.metric_like import empty_copy

N, ARMS = 4000, ("a", "b")
rng = np.random.default_rng(5)
USERS = rng.permutation(N)
ARM = np.array(ARMS)[rng.integers(0, 2, N)]
ORDERS = rng.integers(0, N // 3, 900)  # two of three users never buy
SPENT = np.round(rng.pareto(1.2, 900) * 10, 2)
EXPOSED = {"user": USERS, "arm": ARM[USERS], "exposed": np.ones(N, np.int8)}
BOUGHT = {"user": ORDERS, "arm": ARM[ORDERS], "revenue": SPENT}


def revenue(**settings):
    return sm.Sliced(sm.PerUnit("revenue", unit="user", **settings), by="arm")


def test_units_without_outcome_count():
    metric = revenue().update(EXPOSED).update(BOUGHT)
    capped = revenue(cap=25).update(EXPOSED).update(BOUGHT)
    for arm in ARMS:
        spent, users = SPENT[ARM[ORDERS] == arm], int((arm == ARM).sum())
        assert metric.compute()[arm] == float(sum(map(Fraction, spent.tolist())) / users)
        assert capped.compute()[arm] == float(sum(map(Fraction, np.minimum(spent, 25.0).tolist())) / users)
        assert metric.explain()[arm]["exposures"] == users


def test_one_table_and_two_in_any_order_are_the_same():
    two = revenue().update(EXPOSED).update(BOUGHT)
    assert revenue().update(BOUGHT).update(EXPOSED).digest() == two.digest()
    assert sm.merge([revenue().update(BOUGHT), revenue().update(EXPOSED)]).digest() == two.digest()
    both = {n: np.concatenate([EXPOSED[n], BOUGHT[n]]) for n in ("user", "arm")}
    both |= {"exposed": np.repeat([1, 0], [N, 900]), "revenue": np.concatenate([np.zeros(N), SPENT])}
    order = rng.permutation(N + 900)
    assert revenue().update({n: c[order] for n, c in both.items()}).digest() == two.digest()


def test_several_outcomes_share_one_exposure_table():
    metrics = sm.MetricCollection(sm.PerUnit("revenue", unit="user"), sm.PerUnit("clicks", unit="user"))
    metrics.update({"user": [1, 2], "exposed": [1, 1]}).update({"user": [2], "clicks": [3]})
    metrics.update({"user": [1, 1], "revenue": [1.5, 2.5]})
    assert metrics.compute() == {"revenue_per_user": 2.0, "clicks_per_user": 1.5}
    alone = sm.PerUnit("revenue", unit="user").update({"user": [1, 2], "exposed": [1, 1]})
    alone.update({"user": [1, 1], "revenue": [1.5, 2.5]})
    assert metrics["revenue_per_user"].digest() == alone.digest()
    with pytest.raises(sm.InvalidInputError, match="at least one of the columns 'revenue', 'exposed', 'clicks'"):
        metrics.update({"user": [1]})


def test_a_batch_with_neither_column_raises():
    metric = sm.PerUnit("revenue", unit="user").update({"user": [1], "exposed": [1]})
    before = metric.digest()
    with pytest.raises(sm.InvalidInputError, match=r"at least one of the columns 'revenue', 'exposed'.*'revenu'"):
        metric.update({"user": [1], "revenu": [3.0]})
    with pytest.raises(sm.InvalidInputError, match="'user'"):
        metric.update({"revenue": [3.0]})
    with pytest.raises(sm.InvalidInputError, match="exposed"):
        metric.update({"user": [1], "exposed": [1700000000]})
    with pytest.raises(sm.InvalidInputError, match="user: expected a key"):
        metric.update({"user": [1, None], "revenue": [3.0, 4.0]})
    assert metric.digest() == before
    skips = sm.PerUnit("revenue", unit="user", missing="skip", missing_values=(0,))
    skips.update({"user": [1, None, 0], "exposed": [1, 1, 1], "revenue": [3.0, 4.0, 5.0]})
    assert skips.compute() == 3.0
    assert skips.explain()["dropped"] == {"user": 2}


def test_no_exposures_is_no_value_and_says_why():
    metric = sm.PerUnit("revenue", unit="user").update({"user": [1], "revenue": [3.0]})
    with pytest.warns(sm.UndefinedMetricWarning, match="rows in which exposed is 1"):
        assert np.isnan(metric.compute())


def test_alone_it_refuses_an_interval():
    found = sm.PerUnit("revenue", unit="user").update(EXPOSED | {"revenue": np.arange(float(N))}).interval()
    assert "not independent" in found.reason
    assert 'Sharded(..., unit="user")' in found.reason


def test_columns_differ():
    with pytest.raises(ValueError, match=r"PerUnit: expected three different columns .* found \('user', 'user'"):
        sm.PerUnit("user", unit="user")


def clustered(top, bottom):
    """The standard error of sum(top) / sum(bottom) over users who are independent: the delta method on users."""
    ratio = top.sum() / bottom.sum()
    apart = top - ratio * bottom
    return float(np.sqrt(len(top) / (len(top) - 1) * (apart**2).sum()) / bottom.sum())


def users_and_rows(seed):
    """Users who click and spend more or less, and see more or less."""
    rng = np.random.default_rng(seed)
    user = np.repeat(np.arange(1500), 1 + rng.poisson(8, 1500))
    taste = rng.beta(1, 5, 1500)[user]
    return rng.integers(0, 1 << 62, 1500), user, (rng.random(len(user)) < taste).astype(float)


@pytest.mark.slow
def test_intervals_by_shard_are_those_of_users():
    """Jackknife over 64 shards against the delta method on users: alike on average, and in each log nearly so."""
    found = {"per_unit": [], "ratio": [], "ctr": [], "rows": []}
    for seed in range(25):
        ids, user, click = users_and_rows(seed)
        by_user = [np.bincount(user, v) for v in (click, np.ones(len(user)))]
        row = {"user": ids[user], "click": click, "shown": np.ones(len(user)), "y_true": click}
        per_unit = sm.Sharded(sm.PerUnit("click", unit="user"), unit="user")
        per_unit.update({"user": ids, "exposed": np.ones(1500)}).update({"user": row["user"], "click": click})
        ratio = sm.Sharded(sm.Ratio("click", "shown", squares=True), unit="user").update(row)
        ctr = sm.Sharded(sm.CTR(), unit="user").update(row)
        whole = {"per_unit": (per_unit, (by_user[0], np.ones(1500))), "ratio": (ratio, by_user), "ctr": (ctr, by_user)}
        for name, (metric, sides) in whole.items():
            found[name].append(metric.interval().standard_error / clustered(*sides))
            assert metric.interval().estimate == metric.compute()
        found["rows"].append(empty_copy(ratio.inner).update(click=click, shown=row["shown"]).interval().standard_error)
        found["rows"][-1] /= clustered(*by_user)
    for name in ("per_unit", "ratio", "ctr"):
        assert abs(np.mean(found[name]) - 1) < 0.06
        assert np.abs(np.log(found[name])).max() < 0.35
    assert np.mean(found["rows"]) < 0.8  # rows as units are too sure


@pytest.mark.slow
def test_arms_are_compared_by_exposures():
    arms = sm.Sliced(sm.Sharded(sm.PerUnit("revenue", unit="user", cap=100), unit="user"), by="arm")
    arms.update(EXPOSED).update(BOUGHT)
    found = sm.compare(arms["a"], arms["b"])
    assert "revenue_per_user_capped" in str(found)
    values = arms.compute()
    assert arms["a"].interval().low < values["a"] < arms["a"].interval().high
