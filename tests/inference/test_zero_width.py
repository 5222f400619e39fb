"""Data without variation, such as arms without any failure: no interval without width, and no decision from one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.stats

import streammetrics as sm
from streammetrics.inference.estimates import build_estimate, build_interval
from streammetrics.inference.reasons import build_reasons
from streammetrics.inference.user_shares import difference_limits

USERS = 1000


def arm(metrics: Any, first: int, rows_per_user: int = 1, **columns: Any) -> Any:
    """An arm of users from number `first` on, with equal rows for each user."""
    users = np.repeat(np.arange(USERS) + first, rows_per_user * len(next(iter(columns.values()))))
    repeated = {n: np.tile(c, USERS * rows_per_user) for n, c in columns.items()}
    return sm.Sharded(metrics, unit="user").update(user=users, **repeated)


def test_limits_are_in_the_range_of_the_metric() -> None:
    """Of 50 queries, three have the relevant document second: an interval without limits would end above 1."""
    query, relevant = np.repeat(np.arange(50), 2), np.tile([1, 0], 50)
    columns = {"y_true": relevant, "y_score": np.where(query < 3, 0.5 - relevant, relevant), "query": query}
    found = sm.Sharded(sm.MeanReciprocalRank(), unit="query").update(**columns).interval()
    assert found.estimate == pytest.approx(0.97)
    assert 0.9 < found.low < found.estimate < found.high == 1.0


def test_one_event_is_not_called_events() -> None:
    one = sm.Sliced(sm.Sharded(sm.CTR(), unit="user"), by="arm")
    one.update(y_true=np.arange(400) == 7, user=np.arange(400), arm=np.arange(400) % 2)
    assert "too few: 1 positive in 1 of" in sm.compare(one[1], one[0]).reason


@pytest.mark.parametrize("rows_per_user", [1, 50])
def test_arms_without_a_failure_are_not_certainly_equal(rows_per_user: int) -> None:
    revenue = {"revenue": sm.Mean(), "click": sm.CTR()}
    columns = {"value": np.zeros(2), "y_true": np.array([0, 1])}
    sides = {n: arm(revenue, i * USERS, rows_per_user, **columns) for i, n in enumerate("ab")}
    found = sm.compare(sides["b"], sides["a"])
    assert found["revenue"].reason.startswith("nothing varies")
    assert np.isnan([found["revenue"].p_value, found["revenue"].difference.low]).all()
    # Each user clicks half of the time, so the click rate does not vary either.
    assert found["click"].reason.startswith("nothing varies")


def test_an_infinite_width_without_an_error_is_no_warning() -> None:
    """Early looks have an infinite width. Slices in which nothing varies have no error."""
    zeros, errors = np.zeros(2), np.array([0.0, 1.0])
    estimate = build_estimate(zeros, zeros, errors, np.full(2, 9.0), "natural", "", reasons=build_reasons(None, (2,)))
    found = build_interval(estimate, np.inf, 0.95, "")
    assert (found.low.tolist(), found.high.tolist()) == ([0.0, -np.inf], [0.0, np.inf])


def test_the_same_state_on_both_sides_is_certainly_equal() -> None:
    rng = np.random.default_rng(0)
    one = arm(sm.CTR(), 0, y_true=rng.integers(0, 2, 5))
    found = sm.compare(one, one.copy())
    assert (found.difference.low, found.difference.high, found.p_value) == (0.0, 0.0, 1.0)
    sliced = sm.Sliced(sm.Sharded(sm.Mean(), unit="user"), by="k")
    sliced.update(value=np.ones(200), user=np.arange(200), k=np.arange(200) % 2)
    other = sm.Sliced(sm.Sharded(sm.Mean(), unit="user"), by="k")
    # The users of slice 1 are others, with the same values.
    other.update(value=np.ones(200), user=np.arange(200) + np.where(np.arange(200) % 2, 1000, 0), k=np.arange(200) % 2)
    rows = sm.compare(sliced, other)
    assert rows[0, "mean"].p_value == 1.0
    assert np.isnan(rows[1, "mean"].p_value)


def test_a_guardrail_without_variation_is_not_held() -> None:
    rng = np.random.default_rng(1)

    def side(first: int, mean: float) -> Any:
        users = np.repeat(np.arange(USERS) + first, 4)
        made = sm.Sharded({"revenue": sm.Mean(), "errors": sm.Ratio("error", "row")}, unit="user")
        rows = {"value": rng.normal(mean, 1, len(users)), "error": np.zeros(len(users)), "row": np.ones(len(users))}
        return made.update(user=users, **rows)

    card = sm.scorecard(
        {"a": side(0, 1.0), "b": side(USERS, 1.5)},
        control="a", primary="revenue", guardrails={"errors": 0.001}, better={"revenue": "high", "errors": "low"},
        relative=False, sequential=True, users=2 * USERS,
    )  # fmt: skip
    verdict = card.verdicts["b"]
    assert verdict.primary.word == "better"
    assert verdict.guardrails[0].word == "not shown"
    assert verdict.decision == "keep running"
    assert "revenue is better, but the guardrail errors has no interval: nothing varies" in verdict.sentence
    assert card.table().to_dict()["word"] == ["better", "not shown"]


def test_few_failures_near_one_are_too_few() -> None:
    rng = np.random.default_rng(2)
    n = 4000
    for _ in range(20):
        a, b = (
            sm.Sharded(sm.CTR(), unit="user").update(y_true=rng.random(n) < 0.9999, user=np.arange(n) + first)
            for first in (0, n)
        )
        assert "negatives in 32 groups are needed" in sm.compare(a, b).reason
    many = [
        sm.Sharded(sm.CTR(), unit="user").update(y_true=rng.random(n) < 0.9, user=np.arange(n) + first)
        for first in (0, n)
    ]
    assert sm.compare(*many).reason is None


@pytest.mark.parametrize(
    ("metric", "key", "units"),
    [
        (sm.NDCG(), "query", "queries"), (sm.MeanReciprocalRank(), "query", "queries"), (sm.GroupAUC(), "group", "groups"),
    ],
)  # fmt: skip
def test_perfect_data_have_no_interval_of_their_own(metric: Any, key: str, units: str) -> None:
    metric.update([0, 1] * 500, [0.2, 0.8] * 500, **{key: np.repeat(np.arange(500), 2)})
    found = metric.interval()
    assert found.estimate == 1.0
    assert np.isnan([found.low, found.high]).all()
    assert found.reason == f"nothing varies: all {units} have the same value, so the variation cannot be estimated"


@pytest.mark.parametrize("counts", [((0, 0), (0, 0)), ((3, 3), (0, 1)), ((400, 400), (398, 400)), ((1, 7), (2, 9))])
def test_limits_of_shares_of_users_are_those_of_clopper_and_pearson(counts: Any) -> None:
    users = 400, 300
    counts = [tuple(min(x, n) for x in pair) for pair, n in zip(counts, users, strict=True)]
    exact = [
        [scipy.stats.binomtest(x, n).proportion_ci(0.975, "exact")[end] for end, x in enumerate(pair)]
        for pair, n in zip(counts, users, strict=True)
    ]
    found = difference_limits(*counts, users, 0.95)
    assert found == pytest.approx((exact[0][0] - exact[1][1], exact[0][1] - exact[1][0]), abs=1e-12)


@pytest.mark.parametrize("rows_per_user", [1, 50])
@pytest.mark.parametrize("relative", [True, False])
@pytest.mark.parametrize("kind", ["positive", "negative"])
def test_a_guardrail_without_failures_gives_the_share_of_users(kind: str, relative: bool, rows_per_user: int) -> None:
    label = float(kind == "negative")
    arms = {n: arm({"fail": sm.CTR()}, i * USERS, rows_per_user, y_true=np.array([label])) for i, n in enumerate("ab")}
    how = {"control": "a", "primary": "fail", "better": {"fail": "low"}, "relative": relative}
    known = sm.scorecard(arms, users={"a": USERS, "b": USERS}, **how)
    # 1 - (0.05 / 4)**(1 / 1000) is the upper limit of Clopper and Pearson for none of 1,000 users.
    text = (
        f"the share of users with a {kind} differs by -0.44 % to +0.44 % of all users (exact 95 % interval: 0 of 1,000 "
        f"users in b, 0 of 1,000 in a)"
    )
    assert text in known.verdicts["b"].sentence
    assert known.verdicts["b"].primary.word == "too few"
    assert text.replace("in b", "in the first side")[:60] in next(iter(known.table()))["reason"]
    assert "share of users" not in sm.scorecard(arms, **how).verdicts["b"].sentence
    looks = sm.scorecard(arms, users={"a": USERS, "b": USERS}, planned=9000, sequential=True, **how)
    assert "share of users" not in looks.verdicts["b"].sentence
