"""Evidence at any look: its formulas against scipy, and what must hold between interval and e-value."""

import math

import numpy as np
import pytest
import scipy.special
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from streammetrics.errors import InvalidInputError
from streammetrics.inference.estimates import ScaledEstimate, interval
from streammetrics.inference.multiple import adjust_p_values, benjamini_hochberg, e_benjamini_hochberg, holm
from streammetrics.inference.sample_ratio import PRIORS, sample_ratio_mismatch, stirling_remainder
from streammetrics.inference.sequential import Look, always_valid, boundary, e_value, p_from_e

DEGREES = [5.0, 15.3, 63.0, math.inf]


def change(value, error=0.01, df=63.0, scale="natural"):
    return ScaledEstimate(value, math.log1p(value) if scale == "relative" else value, error, df, scale)


@pytest.mark.parametrize("df", DEGREES)
@pytest.mark.parametrize("part", [0.05, 0.3, 1.0, 3.0])
def test_half_width(df, part):
    L = math.log(1 / 0.05)
    x = (2 * L + math.log(1 + 2 * L)) * part
    b = math.sqrt((1 + 1 / x) * (math.log(1 + x) + 2 * L))
    width = scipy.stats.t.isf(scipy.stats.norm.sf(b), min(df, 1e12)) if df < math.inf else b
    found = always_valid(change(0.1, df=df), Look(part * 1000, 1000))
    assert found.high - 0.1 == pytest.approx(0.01 * width, rel=1e-6)
    assert found.high - 0.1 == pytest.approx(0.1 - found.low)
    assert found.high > interval(change(0.1, df=df)).high
    assert "all looks" in found.method


@pytest.mark.parametrize("df", DEGREES[:3])
@pytest.mark.parametrize("t", [-4.0, 0.0, 0.7, 2.0, 6.0])
def test_e_value(df, t):
    x = Look(300, 1000).scaled_time
    z = scipy.stats.norm.isf(scipy.stats.t.sf(t, df))
    e = math.exp(x * z * z / (2 + 2 * x)) / math.sqrt(1 + x)
    assert e_value(change(0.01 * t, df=df), Look(300, 1000)) == pytest.approx(e, rel=1e-8)


@pytest.mark.slow
@given(
    st.floats(-0.5, 0.5), st.floats(0.001, 0.3), st.floats(5.0, 200.0), st.floats(0.001, 4.0), st.floats(-0.3, 0.3),
    st.sampled_from(["natural", "relative"]),
)  # fmt: skip
@settings(max_examples=200, deadline=None)
def test_the_interval_leaves_out_what_the_e_value_rejects(value, error, df, part, null, scale):
    estimate, look = change(value, error, df, scale), Look(part * 1e4, 1e4)
    found, e = always_valid(estimate, look), e_value(estimate, look, null)
    assert e >= 0.0
    assert p_from_e(e) == min(1.0, 1.0 / e)
    if not math.isclose(e, 20.0, rel_tol=1e-6):
        assert (e > 20.0) == (found.reason is None and not found.low <= null <= found.high)


def test_ends():
    too_early = always_valid(change(0.1, df=5.0), Look(1, 1e6))
    assert too_early.reason == "too early: 1 user so far"
    assert math.isnan(too_early.low)
    assert always_valid(change(0.1), Look(0, 100)).reason == "too early: 0 users so far"
    assert e_value(change(0.1), Look(0, 100)) == 1.0
    assert e_value(change(1e6), Look(100, 100)) > 1e50
    assert e_value(change(1e6, df=math.inf), Look(100, 100)) == math.inf
    assert e_value(change(0.0, 0.0), Look(100, 100)) == pytest.approx(1 / math.sqrt(1 + Look(100, 100).scaled_time))
    assert p_from_e(math.inf) == 0.0
    refused = ScaledEstimate(0.1, 0.1, math.nan, math.nan, reason="too few")
    assert always_valid(refused, Look(1, 2)).reason == "too few"
    assert math.isnan(e_value(refused, Look(1, 2)))
    assert math.isnan(p_from_e(math.nan))
    assert boundary(0.0, 0.05) == math.inf
    with pytest.raises(InvalidInputError, match="planned"):
        always_valid(change(0.1), Look(10, 0))


def test_boundary_is_narrowest_near_the_plan():
    """What the scale of x is for: half of the plan or twice it is looked at with about the same boundary."""
    widths = [boundary(Look(part, 1).scaled_time, 0.05) for part in (0.01, 0.1, 0.5, 1.0, 2.0)]
    assert widths[0] > widths[1] > widths[2]
    assert max(widths[2:]) / min(widths[2:]) < 1.06


def test_many():
    rng = np.random.default_rng(1)
    for size in (1, 2, 7, 200):
        p = np.round(rng.random(size) ** 3, 2)
        known = scipy.stats.false_discovery_control(p)
        np.testing.assert_allclose(benjamini_hochberg(p), known, rtol=1e-14)
        order = np.argsort(p)
        naive, largest = np.empty(size), 0.0
        for i, at in enumerate(order):
            largest = max(largest, min(1.0, (size - i) * p[at]))
            naive[at] = largest
        np.testing.assert_allclose(holm(p), naive, rtol=1e-14)
        np.testing.assert_array_equal(adjust_p_values(p, "holm"), holm(p))
        e = 1.0 / rng.random(size) ** 2
        for alpha in (0.01, 0.05, 0.3):
            ranks = np.sort(e)[::-1]
            k = max((i for i in range(1, size + 1) if ranks[i - 1] >= size / (alpha * i)), default=0)
            np.testing.assert_array_equal(
                e_benjamini_hochberg(e) <= alpha, e >= ranks[k - 1] if k else np.zeros(size, bool)
            )


def test_refused_comparisons_are_not_counted():
    p = np.array([[0.01, math.nan], [0.04, 0.03]])
    for adjust in ("holm", "bh"):
        found = adjust_p_values(p, adjust)
        assert math.isnan(found[0, 1])
        np.testing.assert_array_equal(found[[0, 1, 1], [0, 0, 1]], adjust_p_values([0.01, 0.04, 0.03], adjust))
    assert math.isnan(e_benjamini_hochberg([math.nan, 50.0])[0])
    assert e_benjamini_hochberg([math.inf, 0.0]).tolist() == [0.0, 1.0]
    assert holm([]).size == 0
    with pytest.raises(InvalidInputError, match="between 0 and 1"):
        holm([1.5])
    with pytest.raises(InvalidInputError, match="negative"):
        e_benjamini_hochberg([-1.0])
    with pytest.raises(InvalidInputError, match="'holm' or 'bh'"):
        adjust_p_values([0.5], "bonferroni")


def log_evidence(counts, shares):
    counts, shares = np.asarray(counts, float), np.asarray(shares, float)

    def beta(a):
        return scipy.special.gammaln(a).sum() - scipy.special.gammaln(a.sum())

    logs = [beta(k * shares + counts) - beta(k * shares) - (counts * np.log(shares)).sum() for k in PRIORS]
    return scipy.special.logsumexp(logs) - math.log(len(PRIORS))


@pytest.mark.parametrize(
    ("counts", "shares"),
    [([0, 0], [0.5, 0.5]), ([510, 490], [0.5, 0.5]), ([9100, 880], [0.9, 0.1]), ([149520, 146201], [0.5, 0.5]),
     ([300, 290, 420], [0.3, 0.3, 0.4]), ([0, 3, 7000], [0.0001, 0.0009, 0.999]), ([50, 0], [0.5, 0.5])],
)  # fmt: skip
def test_sample_ratio(counts, shares):
    arms = dict(zip("abc", counts, strict=False))
    found = sample_ratio_mismatch(arms, {arm: 7 * s for arm, s in zip("abc", shares, strict=False)})
    assert math.log(found.e_value) == pytest.approx(log_evidence(counts, shares), rel=1e-7, abs=1e-7)
    assert found.alarm == (found.e_value >= 100)


@given(st.lists(st.tuples(st.integers(0, 10**6), st.floats(0.01, 1.0)), min_size=2, max_size=4))
@settings(max_examples=100, deadline=None)
def test_sample_ratio_is_a_martingale(arms):
    """Certified: the mean of e over the arm of the next user, as planned, is e."""
    counts = {str(i): n for i, (n, _) in enumerate(arms)}
    planned = {str(i): p for i, (_, p) in enumerate(arms)}
    now = sample_ratio_mismatch(counts, planned)
    after = [now.planned[a] * sample_ratio_mismatch(counts | {a: counts[a] + 1}, planned).e_value for a in counts]
    if now.e_value < 1e300:
        assert sum(after) == pytest.approx(now.e_value, rel=1e-9)


def test_sample_ratio_at_any_size():
    assert not sample_ratio_mismatch({"a": 10**12, "b": 10**12 + 3 * 10**6}).alarm
    assert sample_ratio_mismatch({"a": 10**12, "b": 10**12 + 10**7}).alarm
    assert sample_ratio_mismatch({"a": 10**15, "b": 1}).e_value == math.inf
    assert sample_ratio_mismatch({"a": 3, "b": 1}).shares == {"a": 0.75, "b": 0.25}
    assert math.isnan(sample_ratio_mismatch({"a": 0, "b": 0}).shares["a"])
    for a in (0.1, 1.0, 15.9, 16.0, 1e4):
        exact = scipy.special.gammaln(a) - ((a - 0.5) * math.log(a) - a + 0.5 * math.log(2 * math.pi))
        assert stirling_remainder(a) == pytest.approx(exact, abs=2e-11 if a > 100 else 1e-13)


def test_sample_ratio_of_wrong_input():
    for users, planned, message in (
        ({"a": 1}, None, "at least two"),
        ({"a": 1, "b": 2}, {"a": 1, "c": 2}, "same arms"),
        ({"a": 1, "b": -2}, None, "users of b"),
        ({"a": 1, "b": math.nan}, None, "users of b"),
        ({"a": 1, "b": 2}, {"a": 1, "b": 0}, "share of b"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            sample_ratio_mismatch(users, planned)
