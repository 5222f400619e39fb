"""The score histogram: arrays and values as always once folded, exact before, one form however made."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest

import streammetrics as sm
from streammetrics.batch.column_binding import PLAIN
from streammetrics.count.batch_updater import BatchUpdater
from streammetrics.count.reads import Read
from streammetrics.errors import InvalidInputError, MemoryLimitError
from streammetrics.kernels import histogram
from streammetrics.numerics import kernel_registry, score_buckets
from streammetrics.numerics.settings import encode_changed_settings
from streammetrics.state.axes import Axis
from streammetrics.statistics.scores import ScoreHistogram
from tests.statistics import frozen
from tests.statistics.batches import bell, one_of, tens

SCALES = ("probability", "real")
GROUPS = Axis(("g",))


def fed(state, *batches):
    """Count batches of (label, score, weight or None, group or None)."""
    feed = BatchUpdater([Read(state, PLAIN)])
    for y, s, w, g in batches:
        columns = {"y_true": y, "y_score": s}
        if w is not None:
            columns["sample_weight"] = w
        if g is not None:
            columns["g"] = g
        feed.count(columns)
    return feed.states[0]


def sliced(state):
    return state.empty_copy((GROUPS,))


def cut(rng, y, s, w=None, g=None, pieces=4):
    ends = np.sort(rng.integers(0, len(y) + 1, pieces - 1))
    return list(zip(*([None] * pieces if a is None else np.split(a, ends) for a in (y, s, w, g)), strict=True))


def drawn(rng, n, scale, dtype=np.float32, whole=False):
    y = rng.integers(0, 2, n).astype(np.uint8)
    s = rng.random(n) if scale == "probability" else bell(rng, n) * tens(rng, -3, 4)
    s[rng.random(n) < 0.1] = one_of(rng, [0.0, -0.0, 0.5, 1.0, 2.0**-127, 2.0**-33])
    w = (rng.integers(0, 4, n) if whole else rng.integers(0, 4, n) * rng.random(n)).astype(float)
    return y, s.astype(dtype), np.where(w < 2.0**-30, 0, w)


def arrays(state):
    """Rows and excess by label and bucket, and the flag."""
    size, held = state.buckets, state.rows
    rows, excess = np.zeros((2, size), np.int64), np.zeros((2, size, 2), np.int64)
    places = held.places.astype(np.int64)
    rows[places & 1, places >> 1] = held.int64_counts
    if held.excess is not None:
        excess[places & 1, places >> 1] = held.excess
    return rows, excess, int(state.off_grid)


# -- the map -----------------------------------------------------------------------------------------------------------


def adversarial(real, bits):
    every = np.arange(score_buckets.count_buckets(bits, real))[:: max(1, (1 << bits) // 4096)]
    low, grid, high = score_buckets.bucket_bounds(every, real, bits)
    found = [low, grid, high, score_buckets.smallest_scores(every, real, bits, exact=False)]
    found = np.concatenate([f[np.isfinite(f)] for f in found])
    tiny = np.array([0.0, -0.0, 5e-324, 2.0**-1022, 2.0**-150, 2.0**-149, 2.0**-127, 2.0**-126, 2.0**-34, 2.0**-33])
    large = np.array([3.4028234e38, 3.4028236e38, 1e300, 1.7976931348623157e308]) if real else np.ones(1)
    found = np.r_[found, tiny, large, 0.5, 1.0, 1 - 2.0**-53, 0.5 + 2.0**-53]
    found = np.r_[found, np.nextafter(found, 2), np.nextafter(found, -2)]
    found = np.r_[found, -found] if real else found[(found >= 0) & (found <= 1)]
    with np.errstate(over="ignore"):
        return np.unique(np.r_[found, found.astype(np.float32).astype(np.float64)])


@pytest.mark.slow
@pytest.mark.parametrize(("scale", "bits"), list(itertools.product(SCALES, (8, 12, 16, 18, 24))))
def test_the_map_in_numpy_is_the_compiled_one(scale, bits):
    real = scale == "real"
    x = adversarial(real, bits)
    x = x[np.isfinite(x)]
    bucket, lost = score_buckets.find_buckets(x, real, bits)
    assert (np.diff(bucket) >= 0).all()
    assert bucket.min() >= 0
    assert bucket.max() < score_buckets.count_buckets(bits, real)
    keys = score_buckets.encode_scores(x, real)
    assert (keys[1:] > keys[:-1]).all()  # both zeros were made one
    assert np.array_equal(score_buckets.decode_scores(keys, real), x + 0.0)
    high, low = (keys >> np.uint64(63)).astype(np.uint32), (keys << np.uint64(1)) | np.uint64(1)
    place, gone = np.empty(len(x), np.uint32), np.empty(len(x), np.uint8)
    histogram.find_buckets(high, low, real, bits, place, gone)
    assert np.array_equal(place >> 1, bucket)
    assert (place & 1).all()
    assert np.array_equal(gone, lost)
    with np.errstate(over="ignore"):
        short = np.unique(x.astype(np.float32))
    short = short[np.isfinite(short)]
    ones = np.ones(1, np.uint8)
    for one, b, off in zip(short[::7], *(a[::7] for a in score_buckets.find_buckets(short, real, bits)), strict=True):
        rows, flag = np.zeros(2 * score_buckets.count_buckets(bits, real), np.int64), np.zeros(1, np.uint8)
        kernel = histogram.count_reals if real else histogram.count_probabilities
        kernel(ones, np.array([one]), bits, rows[: 2 * int(b) + 2], np.zeros(0, np.int64), flag)
        assert rows[2 * b + 1] == 1
        assert flag[0] == off
        if bits > 16:
            break


@pytest.mark.parametrize(("scale", "bits"), list(itertools.product(SCALES, (8, 12, 16))))
def test_edges_and_thresholds(scale, bits):
    real = scale == "real"
    every = np.arange(score_buckets.count_buckets(bits, real))
    seen = dict(zip(("low", "grid", "high"), score_buckets.bucket_bounds(every, real, bits), strict=True))
    seen |= {
        f"first, {exact=}": score_buckets.smallest_scores(every, real, bits, exact=exact) for exact in (False, True)
    }
    for drop in range(bits - 8 + 1):
        seen[f"{drop} bits less"], seen[f"off without {drop}"] = score_buckets.coarsen(every, real, bits, drop)
    frozen.check(seen)
    low, _, high = score_buckets.bucket_bounds(every, real, bits)
    every = every[(low > -(2.0**128)) & (high < 2.0**128 + real)]  # others are for numbers that are not finite
    first = score_buckets.smallest_scores(every, real, bits, exact=False)
    assert np.array_equal(score_buckets.find_buckets(first, real, bits)[0], every)
    before = np.nextafter(first[1:], -np.inf)
    assert np.array_equal(score_buckets.find_buckets(before, real, bits)[0], every[:-1])


# -- folded ------------------------------------------------------------------------------------------------------------


def flat(value):
    return np.concatenate([np.ravel(v) for v in (value if isinstance(value, tuple) else (value,))])


def all_of(metric, state):
    """What a metric says of a state: the value, where it lies and at which threshold."""
    value = metric.reading(state).value
    read = [flat(value)] if isinstance(value, tuple) else [flat(value), metric.reading(state).bounds]
    return [*read, metric.threshold_of(state)] if hasattr(metric, "threshold_of") else read


@pytest.mark.parametrize("on_grid", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scale", SCALES)
def test_an_invalid_row_leaves_no_counts(scale, dtype, on_grid):
    """Whether scores are still all on the grid decides which loop checks a block."""
    rng = np.random.default_rng(4)
    s = (rng.integers(0, 65, 1000) / 64).astype(dtype)
    metric = sm.AUC(scale=scale, limit=0).update(np.tile([0, 1], 500), s if on_grid else s / dtype(3))
    before = metric.digest()
    for at in (0, 127, 128, 700, 999):
        for bad in (np.nan, -np.nan, np.inf, -np.inf, *([-(2.0**-30), 1 + 2.0**-23] if scale == "probability" else [])):
            t = s.copy()
            t[at] = bad
            with pytest.raises(sm.InvalidInputError, match=f"in row {at}"):
                metric.update(np.ones(1000, np.uint8), t)
            assert metric.digest() == before
        y = np.ones(1000, np.uint8)
        y[at] = 2
        with pytest.raises(sm.InvalidInputError, match=f"in row {at}"):
            metric.update(y, s)
        assert metric.digest() == before


CASES = list(itertools.product(SCALES, (np.float16, np.float32, np.float64), (False, True)))


@pytest.mark.parametrize(("scale", "dtype", "weighted"), CASES)
def test_folded_arrays_as_frozen(scale, dtype, weighted):
    rng = np.random.default_rng(1)
    y, s, w = drawn(rng, 3000, scale, dtype)
    labels = (np.uint8, np.int64, bool, np.float32)
    made = []
    for k, label in enumerate(labels):
        batches = cut(rng, y.astype(label), s, w if weighted else None)
        if k == 1:
            batches = [(np.repeat(a, 2)[::2], np.repeat(b, 2)[::2], c, d) for a, b, c, d in batches]  # strided
        for limit in (0, 700, 2999):
            made.append(fed(ScoreHistogram(scale=scale, bits=12, limit=limit), *batches).coarsen(12, 0))  # noqa: PERF401
    unlimited = fed(ScoreHistogram(scale=scale, bits=None), *cut(rng, y, s, w if weighted else None))
    made.append(unlimited.coarsen(12))
    rows, excess, off = arrays(made[0])
    frozen.check({"rows": rows, "excess": excess, "off_grid": off})
    assert all(m == made[0] for m in made)


def metrics(scale):
    found = [
        sm.AUC(scale=scale), sm.AUC(scale=scale, max_fpr=0.2), sm.Gini(scale=scale), sm.AveragePrecision(scale=scale),
        sm.KS(scale=scale), sm.MaxFBeta(scale=scale), sm.RecallAtPrecision(scale=scale, precision=0.6),
        sm.PrecisionAtRecall(scale=scale), sm.SensitivityAtSpecificity(scale=scale), sm.Lift(scale=scale),
        sm.ROCCurve(scale=scale), sm.PRCurve(scale=scale), sm.GainCurve(scale=scale),
    ]  # fmt: skip
    scale = "logit" if scale == "real" else scale
    for strategy in ("quantile", "log"):
        found += [sm.CalibrationCurve(scale=scale, strategy=strategy, n_bins=n) for n in (3, 10, 40)]
        found += [sm.ExpectedCalibrationError(scale=scale, strategy=strategy)]
    return found


@pytest.mark.parametrize(("scale", "dtype", "weighted"), CASES)
def test_every_metric_reads_what_is_frozen(scale, dtype, weighted):
    rng = np.random.default_rng(2)
    seen = []
    for n in (0, 1, 7, 300, 5000):
        y, s, w = drawn(rng, n, scale, dtype)
        new = fed(ScoreHistogram(scale=scale, bits=12), (y, s, w if weighted else None, None))
        exact = fed(ScoreHistogram(scale=scale, bits=None), (y, s, w if weighted else None, None))
        seen.append({"facts": new.facts()})
        for i, metric in enumerate(metrics(scale)):
            seen[-1][f"{type(metric).__name__} {i}"] = read = all_of(metric, new)
            if len(read) > 1 and "Calibration" not in type(metric).__name__:  # whose bins are of other scores
                value, (low, high) = metric.reading(exact).value, read[1]
                assert not value < low - 1e-15, metric
                assert not value > high + 1e-15, metric
        assert exact.facts()["off_grid"] is False
    frozen.check(*seen)


def test_exact_states_read_as_frozen():
    rng = np.random.default_rng(3)
    for weighted, scale in itertools.product((False, True), SCALES):
        y, s, w = drawn(rng, 2000, scale, np.float64)
        w = w if weighted else None
        new = fed(ScoreHistogram(scale=scale, bits=18), *cut(rng, y, s, w))
        assert not new.has_buckets
        assert new.is_exact
        of = {f"{type(m).__name__} {i}": flat(m.reading(new).value) for i, m in enumerate(metrics(scale))}
        read = {name: value for name, value in of.items() if "Calibration" not in name}
        frozen.check(read, what=f"{scale}{' weighted' if weighted else ''}")


# -- exact -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
def test_auc_of_few_rows_is_the_fraction(weighted):
    rng = np.random.default_rng(4)
    for _ in range(20):
        y, s, w = drawn(rng, 40, "probability", np.float64, whole=True)
        s = np.where(rng.random(40) < 0.5, 0.5 + rng.integers(-2, 3, 40) * 2.0**-50, s)
        w = w if weighted else None
        new = fed(ScoreHistogram(), *cut(rng, y, s, w))
        weights = [Fraction(1)] * 40 if w is None else list(map(Fraction, w))
        won = sum(
            weights[i] * weights[j] * (Fraction(1) if s[i] > s[j] else Fraction(1, 2) if s[i] == s[j] else 0)
            for i, j in itertools.product(np.flatnonzero(y == 1), np.flatnonzero(y == 0))
        )
        P, N = (sum(x for x, label in zip(weights, y, strict=True) if label == k) for k in (1, 0))
        if P and N:
            assert sm.AUC().reading(new).value == float(won / (P * N))
            assert sm.AUC().reading(new).bounds == (float(won / (P * N)),) * 2


@pytest.mark.slow
@pytest.mark.parametrize(("limit", "scale"), list(itertools.product((None, 0, 50, 400, 2500), SCALES)))
def test_one_form_however_it_was_made(limit, scale):
    rng = np.random.default_rng(5)
    y, s, w = drawn(rng, 2400, scale, np.float64)
    g = rng.choice(6, 2400, p=[0.5, 0.3, 0.1, 0.05, 0.04, 0.01])
    one = ScoreHistogram(scale=scale, bits=14, limit=limit)
    for keys in (None, g, np.array(["a", "bb", "c", "d", "e", "f"])[g]):
        empty = one if keys is None else sliced(one)
        for weights in (None, w):
            whole = fed(empty, (y, s, weights, keys))
            at = rng.permutation(len(y))
            rest = [None if a is None else a[at] for a in (weights, keys)]
            batches = cut(rng, y[at], s[at], *rest, pieces=9)
            assert fed(empty, *batches) == whole
            parts = [fed(empty, b) for b in batches]
            assert parts[0].merge(*parts[1:]) == whole
            left = parts[0].merge(*parts[1:4])
            assert parts[8].merge(*parts[4:8]).merge(left) == whole
            feed = BatchUpdater([Read(left, PLAIN)])  # go on from a state
            for part in parts[4:]:
                feed.replace_states([feed.states[0].merge(part)])
            assert feed.states[0] == whole
            resumed = fed(left, *batches[4:])
            assert resumed == whole
            for bits, less in ((14, 0), (12, None), (9, 0), (14, limit)):
                to = whole.coarsen(bits, less)
                settings = {"scale": scale, "bits": bits, "limit": to.limit}
                direct = ScoreHistogram(**settings)
                direct = direct if keys is None else sliced(direct)
                assert to == fed(direct, (y, s, weights, keys))
                assert parts[0].coarsen(bits, less).merge(*(p.coarsen(bits, less) for p in parts[1:])) == to
            if keys is not None:
                assert whole.without_axes == fed(one, (y, s, weights, None))


def test_mixed_weights_and_weights_of_one():
    rng = np.random.default_rng(6)
    y, s, w = drawn(rng, 900, "probability", np.float32)
    g = rng.integers(0, 3, 900)
    for state, keys in itertools.product((ScoreHistogram(limit=k) for k in (0, 200, 5000)), (None, g)):
        empty = state if keys is None else sliced(state)
        piece = [None if keys is None else keys[i::3] for i in range(3)]
        mixed = fed(empty, *((y[i::3], s[i::3], w[i::3] if i == 1 else None, piece[i]) for i in range(3)))
        spelled = np.where(np.arange(900) % 3 == 1, w, 1.0)
        assert mixed == fed(empty, (y, s, spelled, keys))
        assert fed(empty, (y, s, np.ones(900), keys)) == fed(empty, (y, s, None, keys))


def test_subtracting():
    rng = np.random.default_rng(7)
    y, s, w = drawn(rng, 900, "probability", np.float64)
    for limit, weights in itertools.product((0, 5000, 500), (None, w)):
        state = ScoreHistogram(limit=limit)
        some, more = (
            (y[a], s[a], None if weights is None else weights[a], None) for a in (slice(0, 300), slice(300, 900))
        )
        whole = fed(state, some, more)
        rest = whole.subtract(fed(state, more))
        if limit != 500:
            assert rest == fed(state, some)
        else:  # scores do not come back
            assert rest.has_buckets
            assert rest.coarsen(16, 0) == fed(state, some).coarsen(16, 0)
        assert not len(rest.subtract(fed(state, some)))
        with pytest.raises(ValueError, match="below zero"):
            fed(state, some).subtract(fed(state, more))


def test_some_slices_fold_and_some_do_not():
    rng = np.random.default_rng(8)
    y, s, _ = drawn(rng, 6000, "probability", np.float32)
    g = rng.choice(4, 6000, p=[0.8, 0.15, 0.04, 0.01])
    state = sliced(ScoreHistogram(bits=12, limit=300))
    made = fed(state, *cut(rng, y, s, None, g, pieces=30))
    for i in range(4):
        cell = made.read_cell(i)
        assert cell == fed(ScoreHistogram(bits=12, limit=300), (y[g == i], s[g == i], None, None))
        assert cell.has_buckets == ((g == i).sum() > 300)


def test_limits_and_memory():
    assert ScoreHistogram().exact_rows_limit == ScoreHistogram(bits=24).exact_rows_limit == 1 << 16
    assert ScoreHistogram(bits=15).exact_rows_limit == 0
    assert ScoreHistogram(bits=None).exact_rows_limit is None
    assert ScoreHistogram(bits=16, limit=1 << 16) == ScoreHistogram()
    assert encode_changed_settings(ScoreHistogram(limit=1 << 16)) == {}
    with pytest.raises(ValueError, match="limit="):
        ScoreHistogram(bits=None, limit=5)
    with pytest.raises(InvalidInputError, match="expected at most"):
        ScoreHistogram(bits=12).coarsen(13)
    with pytest.raises(InvalidInputError, match="limit="):
        ScoreHistogram(bits=12, limit=5).coarsen(12, 6)
    assert ScoreHistogram(bits=20, limit=0).coarsen(16).exact_rows_limit == 0
    assert ScoreHistogram(bits=None).coarsen(16).exact_rows_limit == 1 << 16
    rng = np.random.default_rng(9)
    y, s, _ = drawn(rng, 3000, "probability", np.float64)
    feed = BatchUpdater([Read(ScoreHistogram(bits=None, memory_limit=100_000), PLAIN)])
    feed.count({"y_true": y, "y_score": s})
    before = feed.states[0]
    with pytest.raises(MemoryLimitError, match="memory_limit"):  # noqa: PT012
        for _ in range(5):
            feed.count({"y_true": y, "y_score": rng.random(3000)})
            before = feed.states[0]
    assert feed.states[0] == before


@pytest.mark.parametrize("where", ["lone", "sliced"])
def test_a_failed_batch_at_the_folding_step_changes_nothing(where):
    rng = np.random.default_rng(10)
    y, s, w = drawn(rng, 1000, "probability", np.float32)
    g = np.zeros(1000, int) if where == "sliced" else None
    state = ScoreHistogram(limit=1500) if g is None else sliced(ScoreHistogram(limit=1500))
    for weights in (None, w):
        feed = BatchUpdater([Read(state, PLAIN)])
        columns = {"y_true": y, "y_score": s} | ({} if g is None else {"g": g})
        columns |= {} if weights is None else {"sample_weight": weights}
        feed.count(columns)
        before = feed.states[0]
        for role, bad in (("y_true", 2), ("y_score", np.nan), ("y_score", 1.5)):
            wrong = columns[role].copy()
            wrong[777] = bad
            for _ in range(2):
                with pytest.raises(InvalidInputError, match="row 777"):
                    feed.count(columns | {role: wrong})
            assert feed.states[0] == before
        feed.count(columns)
        assert feed.states[0] == before.merge(before)
        for role, bad in (("y_true", 2), ("y_score", np.nan)):  # folded now
            wrong, held = columns[role].copy(), feed.states[0]
            wrong[777] = bad
            with pytest.raises(InvalidInputError, match="row 777"):
                feed.count(columns | {role: wrong})
            assert feed.states[0] == held


def test_numpy_alone_makes_the_same(monkeypatch):
    rng = np.random.default_rng(12)
    for scale in SCALES:
        y, s, w = drawn(rng, 900, scale, np.float64)
        a, b = (fed(ScoreHistogram(scale=scale, limit=1000), (y[i::2], s[i::2], w[i::2], None)) for i in (0, 1))
        c = fed(ScoreHistogram(scale=scale, limit=1000), (y, s, None, None))
        both = [f(x) for x in (a.merge(b), c, c.merge(a)) for f in (lambda x: x.coarsen(16, 0), lambda x: x.pairs())]
        with monkeypatch.context() as m:
            m.setattr(kernel_registry, "_FIND", [])
            alone = [
                f(x) for x in (a.merge(b), c, c.merge(a)) for f in (lambda x: x.coarsen(16, 0), lambda x: x.pairs())
            ]
        assert all(x == y for x, y in zip(both, alone, strict=True))


@pytest.mark.parametrize(
    "metric",
    [
        sm.AUC(limit=2),
        sm.AUC(limit=2, bits=8, scale="real"),
        sm.AUC(limit=2, num_labels=2),
        sm.KendallCorrelation(limit=2),
    ],
    ids=repr,
)
def test_every_slice_that_rolls_up_to_buckets_says_what_it_lost(metric):
    """Cells that become one stand apart before: the first and the last are of the same device."""
    rng = np.random.default_rng(0)
    country, device = np.divmod(np.arange(14) % 7, 3)
    rows = {"country": country, "device": device}
    shape = (14, 2) if metric.settings.get("num_labels") else 14
    if isinstance(metric, sm.KendallCorrelation):
        rows |= {"y_true": rng.random(14), "y_pred": rng.random(14)}
    else:
        rows |= {"y_true": rng.integers(0, 2, shape), "y_score": rng.random(shape)}
    cells = sm.Sliced(metric, by=("country", "device")).update(rows)
    assert cells.rollup("device").to_bytes() == sm.Sliced(metric, by="device").update(rows).to_bytes()
