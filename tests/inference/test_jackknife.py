"""The jackknife over shards, against naive code, identities, and scipy."""

import math
import statistics

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from streammetrics.errors import InvalidInputError
from streammetrics.inference.estimates import (
    ScaledEstimate,
    estimate_from_error,
    interval,
    p_value,
    split_intervals,
    welch,
)
from streammetrics.inference.jackknife import (
    Replicates,
    add_replicates,
    build_contrast,
    describe_shortage,
    effective_shards,
    jackknife,
    solve_cholesky,
    subtract_replicates,
    sum_shards,
)
from streammetrics.reading.link_functions import SCALES


def of_ratio(top, bottom):
    """sum top / sum bottom, with each shard deleted."""
    top, bottom = np.asarray(top, float), np.asarray(bottom, float)
    return Replicates(top.sum() / bottom.sum(), (top.sum() - top) / (bottom.sum() - bottom), bottom)


def some(rng, shards=64, rate=0.1, rows=100):
    n = rng.poisson(rows, shards)
    return of_ratio(rng.binomial(n, rate), n)


def naive(replicates, scale):
    """Degrees and error as the formulas say, in plain Python."""
    forward = {"natural": lambda v: v, "log": math.log, "logit": lambda v: math.log(v / (1 - v))}[scale]
    each = [forward(v) for v, w in zip(replicates.leave_one_out, replicates.weights, strict=True) if w]
    mean = statistics.fmean(each)
    variance = (len(each) - 1) / len(each) * sum((x - mean) ** 2 for x in each)
    w = replicates.weights
    return w.sum() ** 2 / (w * w).sum() - 1, math.sqrt(variance)


@pytest.mark.parametrize("scale", ["natural", "log", "logit"])
def test_one_number(scale):
    one = some(np.random.default_rng(1))
    found, (df, error) = jackknife(one, scale=scale), naive(one, scale)
    assert found.df == pytest.approx(df, rel=1e-13)
    assert found.standard_error == pytest.approx(error, rel=1e-10)
    assert found.value == one.value
    reach = scipy.stats.t.ppf(0.975, df) * error
    ends = interval(found)
    back = {"natural": lambda x: x, "log": math.exp, "logit": lambda x: 1 / (1 + math.exp(-x))}[scale]
    assert (ends.low, ends.high) == pytest.approx((back(found.point - reach), back(found.point + reach)), rel=1e-10)
    assert (ends.estimate, ends.confidence, ends.reason) == (one.value, 0.95, None)
    slope = {"natural": 1.0, "log": one.value, "logit": one.value * (1 - one.value)}[scale]
    assert ends.standard_error == pytest.approx(error * slope)


def test_of_a_mean_it_is_the_standard_error():
    x = np.random.default_rng(2).normal(size=40)
    found = jackknife(of_ratio(x, np.ones(40)))
    assert found.standard_error == pytest.approx(statistics.stdev(x) / math.sqrt(40), rel=1e-12)
    assert p_value(found) == pytest.approx(scipy.stats.ttest_1samp(x, 0.0).pvalue, rel=1e-10)


def test_shards_that_weigh_nothing_count_for_nothing():
    full = some(np.random.default_rng(3), 20)
    holes = Replicates(
        full.value, np.append(full.leave_one_out, [full.value, np.nan]), np.append(full.weights, [0.0, 0.0])
    )
    assert jackknife(holes)._replace(method="") == jackknife(full)._replace(method="")


@pytest.mark.parametrize(
    ("replicates", "scale", "reason"),
    [
        (Replicates(0.5, [0.5] * 5, [1] * 5), "natural", "number of groups of units is 5.0"),
        (Replicates(0.5, np.linspace(0.4, 0.6, 64), [1000, *[1] * 63]), "natural", "number of groups of units is 1.1"),
        (Replicates(0.5, [], []), "natural", "number of groups of units is 0.0"),
        (Replicates(math.nan, np.linspace(0.4, 0.6, 9), [1] * 9), "natural", "is undefined"),
        (Replicates(0.5, [math.nan, *np.linspace(0.4, 0.6, 8)], [1] * 9), "natural", "without one group of units"),
        (Replicates(0.1, [0.0, *np.linspace(0.1, 0.2, 8)], [1] * 9), "log", "the value is 0 without some of the units"),
        (
            Replicates(0.9, [1.0, *np.linspace(0.8, 0.9, 8)], [1] * 9),
            "logit",
            "the value is 1 without some of the units",
        ),
        (Replicates(1.0, np.linspace(0.8, 0.9, 9), [1] * 9), "logit", "at the end of its range (1)"),
        (Replicates(0.5, [0.5] * 9, [1] * 9), "natural", "nothing varies"),
    ],
)
def test_refused_with_a_reason(replicates, scale, reason):
    found = jackknife(replicates, scale=scale)
    assert reason in found.reason
    ends = interval(found)
    assert math.isnan(ends.low)
    assert math.isnan(ends.high)
    assert math.isnan(p_value(found))
    assert ends.reason == found.reason
    if scale == "natural" and replicates.leave_one_out.size == 9 and "varies" not in reason:
        other = some(np.random.default_rng(1), 9)
        assert "second side" in jackknife(subtract_replicates(other, replicates)).reason
        assert reason in jackknife(subtract_replicates(other, replicates)).reason


def test_wrong_input_raises():
    good = some(np.random.default_rng(1), 10)
    with pytest.raises(InvalidInputError, match="one weight for each shard"):
        Replicates(0.5, [0.1, 0.2], [1.0])
    with pytest.raises(InvalidInputError, match="not negative"):
        Replicates(0.5, [0.1, 0.2], [1.0, -1.0])
    with pytest.raises(InvalidInputError, match="shards differ: 10 on one side and 11 on the other"):
        subtract_replicates(good, some(np.random.default_rng(1), 11))
    with pytest.raises(InvalidInputError, match="there is no scale 'cubic'"):
        jackknife(good, scale="cubic")
    with pytest.raises(InvalidInputError, match="confidence"):
        interval(jackknife(good), 95)


def test_replicates_do_not_follow_their_arrays():
    deleted = np.linspace(0.4, 0.6, 9)
    one = Replicates(0.5, deleted, np.ones(9))
    deleted[:] = 7.0
    assert one.leave_one_out.max() < 1.0


def test_effective_shards():
    assert effective_shards([3.0] * 64) == pytest.approx(64.0)
    assert effective_shards([1e300] * 8) == pytest.approx(8.0)
    assert effective_shards([]) == effective_shards([0.0]) == 0.0
    w = np.random.default_rng(0).pareto(1.2, 64)
    assert effective_shards(w) == pytest.approx(w.sum() ** 2 / (w * w).sum())


def test_too_few():
    assert describe_shortage([2] * 32 + [0] * 32) is None
    assert (
        describe_shortage([2] * 31 + [0] * 33)
        == "too few: 62 positives in 31 of 64 groups of units; 50 positives in 32 groups are needed; collect more "
        "units, or count with shards=16"
    )
    assert "49 positives" in describe_shortage([1] * 49 + [0] * 15)
    assert describe_shortage([30, 30, 0, 0], shards=2) is None


@pytest.mark.parametrize("relative", [False, True])
def test_difference(relative):
    rng = np.random.default_rng(4)
    a, b = some(rng), some(rng, rows=20)
    found = jackknife(subtract_replicates(a, b, relative=relative))
    scale = "log" if relative else "natural"
    (df_a, se_a), (df_b, se_b) = naive(a, scale), naive(b, scale)
    df = (se_a**2 + se_b**2) ** 2 / (se_a**4 / df_a + se_b**4 / df_b)
    assert found.df == pytest.approx(min(df, 63.0), rel=1e-10)
    x = (np.log(a.leave_one_out) - np.log(b.leave_one_out)) if relative else a.leave_one_out - b.leave_one_out
    assert found.standard_error == pytest.approx(math.sqrt(63 / 64 * ((x - x.mean()) ** 2).sum()), rel=1e-9)
    assert found.value == pytest.approx(a.value / b.value - 1 if relative else a.value - b.value, rel=1e-10)
    ends = interval(found)
    swapped = interval(jackknife(subtract_replicates(b, a, relative=relative)))
    if relative:
        assert (1 + ends.low) * (1 + swapped.high) == pytest.approx(1.0)
    else:
        assert ends.low == -swapped.high
    assert found.method == "jackknife over 64 shards"


def test_of_the_same_rows_what_both_share_drops_out():
    rng = np.random.default_rng(5)
    a = some(rng)
    b = Replicates(a.value + 0.01, a.leave_one_out + 0.01 + rng.normal(0, 1e-6, 64), a.weights)
    assert jackknife(subtract_replicates(a, b)).standard_error < 0.1 * jackknife(a).standard_error
    same = jackknife(subtract_replicates(a, a), same=True)
    assert interval(same)[:3] == (0.0, 0.0, 0.0)
    assert p_value(same) == 1.0
    shifted = Replicates(a.value + 1.0, a.leave_one_out, a.weights)
    assert "nothing varies" in jackknife(subtract_replicates(shifted, a)).reason
    assert "shard" not in jackknife(subtract_replicates(shifted, a)).reason
    # Two sides may have equal values although their states differ, as two arms without any failure.
    assert "nothing varies" in jackknife(subtract_replicates(a, a)).reason


def test_a_side_without_units_in_a_shard():
    rng = np.random.default_rng(6)
    a, b = some(rng, 20), some(rng, 20)
    deleted, weights = b.leave_one_out.copy(), b.weights.copy()
    deleted[3], weights[3] = b.value, 0.0
    assert jackknife(subtract_replicates(a, Replicates(b.value, deleted, weights))).reason is None
    deleted[3] = np.nan
    assert (
        "without one group of units" in jackknife(subtract_replicates(a, Replicates(b.value, deleted, weights))).reason
    )


def test_welch_is_that_of_scipy():
    rng = np.random.default_rng(7)
    x, y = rng.normal(1.0, 1.0, 30), rng.normal(0.5, 2.0, 12)
    sides = [ScaledEstimate(v.mean(), v.mean(), v.std(ddof=1) / math.sqrt(v.size), v.size - 1) for v in (x, y)]
    found, known = welch(*sides), scipy.stats.ttest_ind(x, y, equal_var=False)
    assert p_value(found) == pytest.approx(known.pvalue, rel=1e-10)
    assert found.df == pytest.approx(known.df, rel=1e-12)
    assert interval(found)[:2] == pytest.approx(tuple(known.confidence_interval()), rel=1e-10)
    assert "independent" in found.assumption


def test_welch_of_logarithms_and_refusals():
    a, b = estimate_from_error(0.12, 0.001, "log"), estimate_from_error(0.10, 0.001, "log")
    found = welch(a, b)
    assert found.value == pytest.approx(0.2)
    assert found.scale == "relative"
    assert found.df == math.inf
    assert interval(found).low == pytest.approx(1.2 * math.exp(-1.959963985 * math.hypot(0.01, 1 / 120)) - 1)
    with pytest.raises(InvalidInputError, match="'logit' and 'logit'"):
        welch(estimate_from_error(0.5, 0.1, "logit"), estimate_from_error(0.5, 0.1, "logit"))
    assert "no standard error" in welch(a, estimate_from_error(0.1, math.nan, "log")).reason
    assert "not on the log scale" in estimate_from_error(0.0, 0.1, "log").reason


def regressed(y, x):
    """Slopes and the residual sum of squares of a regression with an intercept."""
    design = np.column_stack([np.ones(len(y)), *x])
    beta, *_ = np.linalg.lstsq(design, y, rcond=None)
    return beta[1:], ((y - design @ beta) ** 2).sum()


@pytest.mark.parametrize("q", [1, 2, 3])
def test_covariates_against_regression_on_pseudo_values(q):
    rng = np.random.default_rng(8)
    K = 64
    before = [rng.normal(0.0, 1.0, K) for _ in range(2 * q)]
    extra = 3.0 * sum(before[:q]), 2.0 * sum(before[q:])
    sides = [of_ratio(100 + rng.normal(0, 1, K) + e, np.ones(K)) for e in extra]
    covariates = tuple(
        subtract_replicates(of_ratio(50 + before[i], np.ones(K)), of_ratio(50 + before[q + i], np.ones(K)))
        for i in range(q)
    )
    change = subtract_replicates(*sides)
    found = jackknife(change, covariates)
    pseudo = [K * c.leave_one_out.mean() - (K - 1) * c.leave_one_out for c in (change, *covariates)]
    theta, rest = regressed(pseudo[0], pseudo[1:])
    assert found.value == pytest.approx(change.point - sum(t * c.point for t, c in zip(theta, covariates, strict=True)))
    variance = rest / (K * (K - 1 - q)) * (K - 2) / (K - 2 - q)
    assert found.standard_error == pytest.approx(math.sqrt(variance), rel=1e-9)
    assert found.df == pytest.approx(change.df - q)
    plain = jackknife(change)
    assert found.reduction == pytest.approx(1 - variance / plain.standard_error**2)
    assert found.reduction > 0.5
    assert "randomised" in found.assumption


@pytest.mark.slow
@pytest.mark.parametrize("q", [1, 3])
def test_covariates_cover(q):
    """Nominal 95 %; without the factor for q, or with the degrees that it costs, it covers less."""
    rng = np.random.default_rng(11)
    K, runs, held = 16, 1500, 0
    ones = np.ones(K)
    for _ in range(runs):
        x = rng.normal(size=(q, K))
        covariates = tuple(subtract_replicates(of_ratio(9 + row, ones), of_ratio(9 * ones, ones)) for row in x)
        change = subtract_replicates(of_ratio(5 + x.sum(0) + rng.normal(size=K), ones), of_ratio(5 * ones, ones))
        ends = interval(jackknife(change, covariates))
        held += ends.low <= 0.0 <= ends.high
    assert 0.93 <= held / runs <= 0.97


def cells(count, rng, shards=64):
    """Replicates of one number each, some of which have no error for one reason or another."""
    found = [some(rng, shards, rng.uniform(0.01, 0.5), rng.integers(20, 200)) for _ in range(count)]
    for i, one in enumerate(found):
        deleted, weights, value = one.leave_one_out.copy(), one.weights.copy(), one.value
        match i % 11:
            case 3:
                deleted[7] = math.nan
            case 5:
                weights[: shards - 3] = 0.0
            case 6:
                weights[9] = 0.0
            case 7:
                deleted[4] = 0.0
            case 8:
                value = math.nan
            case 9:
                deleted[:] = value
        found[i] = Replicates(value, deleted, weights)
    return found


def beside(each):
    """The same side by side, once in an odd layout of memory."""
    empty = [np.zeros((64, 0))]
    deleted, weights = (
        np.hstack(empty + [getattr(one, name)[:, None] for one in each]) for name in ("leave_one_out", "weights")
    )
    return Replicates([one.value for one in each], np.asfortranarray(deleted), weights)


def same(found, alone):
    """Whether each of several is to the bit what it is alone."""
    return repr(list(found.split_cells())) == repr(alone)


@pytest.mark.parametrize("count", [0, 1, 2, 3, 40])
def test_side_by_side_is_each_alone(count):
    rng = np.random.default_rng(14)
    a, b, c, d = (cells(count, rng) for _ in range(4))
    for scale in ("natural", "log", "logit"):
        assert same(jackknife(beside(a), scale=scale), [jackknife(one, scale=scale) for one in a])
    for relative in (False, True):
        change = subtract_replicates(beside(a), beside(b), relative=relative)
        alone = [subtract_replicates(x, y, relative=relative) for x, y in zip(a, b, strict=True)]
        found, each_one = jackknife(change), [jackknife(x) for x in alone]
        assert same(found, each_one)
        assert repr(list(split_intervals(interval(found)))) == repr([interval(x) for x in each_one])
        assert repr(p_value(found).tolist()) == repr([p_value(x) for x in each_one])
        before = subtract_replicates(beside(c), beside(d), relative=relative)
        past = [subtract_replicates(x, y, relative=relative) for x, y in zip(c, d, strict=True)]
        adjusted = [jackknife(x, (y,)) for x, y in zip(alone, past, strict=True)]
        assert same(jackknife(change, (before,)), adjusted)
        sides = [[jackknife(build_contrast(x, "log" if relative else "natural")) for x in side] for side in (a, b)]
        whole = [jackknife(build_contrast(beside(side), "log" if relative else "natural")) for side in (a, b)]
        assert same(welch(*whole), [welch(x, y) for x, y in zip(*sides, strict=True)])
    events = rng.poisson(0.8, (64, count))
    assert list(describe_shortage(events)) == [describe_shortage(events[:, i]) for i in range(count)]


def test_sums_go_from_the_first_shard_to_the_last():
    rng = np.random.default_rng(15)
    for count in (1, 2, 3, 8, 100):
        x = rng.normal(size=(64, count)) * 10.0 ** rng.integers(-8, 8, (64, count))
        plain = x[0].copy()
        for row in x[1:]:
            plain += row
        assert sum_shards(x).tobytes() == sum_shards(np.asfortranarray(x)).tobytes() == plain.tobytes()
        assert float(sum_shards(x[:, 0])) == plain[0]
    assert sum_shards(np.zeros((0, 3))).tolist() == [0.0] * 3


def test_values_at_the_ends_of_the_floats():
    rng = np.random.default_rng(13)
    a = some(rng)
    for size in (1e-150, 1e140):
        one = Replicates(a.value * size, a.leave_one_out * size, a.weights)
        assert jackknife(one).standard_error == pytest.approx(jackknife(a).standard_error * size)
        assert jackknife(subtract_replicates(one, one), same=True).df == pytest.approx(63.0, rel=0.05)
    assert "too large" in jackknife(Replicates(1e300, 1e300 * a.leave_one_out, a.weights)).reason


def test_covariates_that_do_not_fit():
    rng = np.random.default_rng(9)
    change, other = (subtract_replicates(some(rng), some(rng)) for _ in range(2))
    flat = subtract_replicates(*[of_ratio(np.full(64, 2.0), np.ones(64))] * 2)
    assert "collinear or constant" in jackknife(change, (other, other)).reason
    assert "collinear or constant" in jackknife(change, (flat,)).reason
    with pytest.raises(InvalidInputError, match="at most 3"):
        jackknife(change, (other,) * 4)
    with pytest.raises(InvalidInputError, match="shards"):
        jackknife(change, (subtract_replicates(some(rng, 32), some(rng, 32)),))
    few = [some(rng, 7) for _ in range(4)]
    df = jackknife(subtract_replicates(few[0], few[1])).df
    if df < 8:
        assert (
            "too few for 3"
            in jackknife(subtract_replicates(few[0], few[1]), (subtract_replicates(few[2], few[3]),) * 3).reason
        )


@given(st.integers(1, 3), st.integers(0, 2**32 - 1))
@settings(max_examples=50, deadline=None)
def test_equations(n, seed):
    a = np.random.default_rng(seed).normal(size=(n, n + 2))
    matrix, right = a @ a.T, np.random.default_rng(seed + 1).normal(size=n)
    found, alike = solve_cholesky(matrix.tolist(), right.tolist())
    if not alike:
        np.testing.assert_allclose(matrix @ found, right, atol=1e-6 * np.abs(right).max() * np.linalg.cond(matrix))
    assert solve_cholesky([[1.0, 1.0], [1.0, 1.0]], [1.0, 1.0])[1]


@pytest.mark.slow
@given(
    st.lists(st.tuples(st.integers(1, 50), st.integers(60, 500)), min_size=8, max_size=64),
    st.floats(0.5, 0.98),
    st.sampled_from(["natural", "log", "logit"]),
)
@settings(max_examples=100, deadline=None)
def test_intervals_hold_their_estimate_and_grow(cells, confidence, scale):
    one = of_ratio([c for c, _ in cells], [n for _, n in cells])
    found = jackknife(one, scale=scale)
    if found.reason is None:
        narrow, wide = interval(found, confidence), interval(found, 0.99)
        assert wide.low <= narrow.low <= one.value * (1 + 1e-12)
        assert one.value * (1 - 1e-12) <= narrow.high <= wide.high
        assert SCALES[scale].low <= narrow.low


@given(st.floats(1e-6, 1 - 1e-6), st.sampled_from(sorted(SCALES)))
def test_scales_go_there_and_back(value, scale):
    on = SCALES[scale]
    assert on.value(on.point(value)) == pytest.approx(value, rel=1e-9)
    h = 1e-6
    steep = (on.value(on.point(value) + h) - on.value(on.point(value) - h)) / (2 * h)
    assert float(on.slope(value)) == pytest.approx(steep, rel=1e-4, abs=1e-9)


def test_calibrations_contrasts():
    rng = np.random.default_rng(10)
    a, b = some(rng), some(rng)
    total = jackknife(add_replicates(a, b))
    assert total.point == pytest.approx(math.log(a.value) + math.log(b.value))
    x = np.log(a.leave_one_out) + np.log(b.leave_one_out)
    assert total.standard_error == pytest.approx(math.sqrt(63 / 64 * ((x - x.mean()) ** 2).sum()), rel=1e-9)
    assert build_contrast(a, "log").value == pytest.approx(a.value)


def test_covariates_that_say_all_leave_no_error():
    rng = np.random.default_rng(4)
    ones, K = np.full(32, 100.0), 32
    before = subtract_replicates(of_ratio(9 + rng.random(K), ones), of_ratio(9 * ones, ones))
    found = jackknife(before, (before,))
    assert "nothing varies" in str(found.reason)
    assert math.isnan(found.standard_error)
