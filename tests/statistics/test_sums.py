"""Sums of scored rows: what they counted always, by class, and second moments, which give standard errors."""

from __future__ import annotations

from fractions import Fraction
from functools import partial

import numpy as np
import pytest

from streammetrics.batch.column_binding import PLAIN
from streammetrics.count.batch_updater import BatchUpdater
from streammetrics.count.reads import Read
from streammetrics.errors import InvalidInputError
from streammetrics.kernels.score_terms import BLOCK
from streammetrics.numerics.exact import UNIT, carry_fixed, fixed_to_int
from streammetrics.state.declare import CEILING
from streammetrics.statistics.sums import ScoreSums
from tests.statistics.batches import BY, WEIGHTS, bell, counted, fed, flats, one_of

LABELS = (np.uint8, np.int64, bool, np.float32)
SCORES = (np.float16, np.float32, np.float64)
MOMENTS = ("squares", "w2", "w2x")


def rows(scale, rng, n):
    score = rng.random(n)
    score = score * score * score
    score[rng.random(n) < 0.1] = one_of(rng, [0.0, 1.0, 0.5])
    if scale == "logit":
        score = bell(rng, n) * 4
        score[rng.random(n) < 0.02] *= 300  # whose squares leave the grid of the fast path
    dtype, kind = one_of(rng, SCORES), one_of(rng, LABELS)
    return {"y_true": (rng.random(n) < 0.3).astype(kind), "y_score": score.astype(dtype)}


def classes_together(state):
    """Both classes together, and no moments, which have oracles of their own."""
    arrays = {name: a for name, a in flats(state).items() if name not in MOMENTS}
    arrays["sums"] = arrays["sums"].sum(axis=1)
    carry_fixed(arrays["sums"])
    return arrays


def bad(columns):
    score = columns["y_score"].copy()
    score[-1] = np.nan
    return columns | {"y_score": score}


@pytest.mark.parametrize("how", WEIGHTS)
@pytest.mark.parametrize(
    "settings",
    [
        {"terms": ("log_loss",)},
        {"terms": ("score",)},
        {"terms": ("score", "log_loss", "brier")},
        {"terms": ("log_loss", "brier"), "eps": 1e-3},
        {"terms": ("log_loss",), "eps": 0.0},
        {"terms": ("log_loss", "score"), "scale": "logit"},
    ],
    ids=str,
)
def test_as_frozen(settings, how):
    make = partial(rows, settings.get("scale", "probability"))
    counted(ScoreSums(**settings), make, seed=3 + len(how), how=how, bad=bad, view=classes_together)


@pytest.mark.parametrize("how", WEIGHTS)
def test_labels_alone(how):
    def make(rng, n):
        return {"y_true": rng.integers(0, 2, n).astype(one_of(rng, LABELS))}

    def bad(columns):
        return columns | {"y_true": columns["y_true"].astype(float) + 0.5}

    counted(ScoreSums(), make, seed=1, how=how, bad=bad, view=classes_together)


def test_labels_alone_have_squares_of_weights():
    y, w = np.array([0, 1, 1]), np.array([2.0, 3.0, 0.5])
    state = fed(ScoreSums(), {"y_true": y}, {"y_true": y, "sample_weight": w}, {"y_true": y})
    assert [fixed_to_int(v) / UNIT for v in state.w2] == [1 + 4 + 1, 2 + 9.25 + 2]


def test_wild_terms_lie_in_a_superaccumulator():
    y, z = np.array([1, 0, 1, 0, 1]), np.array([-1e12, 3.0, -(2.0**40), 1e300, 0.0])
    state = ScoreSums(terms=("log_loss",), scale="logit")

    def make(rng, n):
        which = rng.integers(0, len(y), n)
        return {"y_true": y[which], "y_score": z[which]}

    for how in WEIGHTS:
        lone = counted(state, make, seed=5 + WEIGHTS.index(how), how=how, view=classes_together)
        assert lone.squares[0, 0] == CEILING
    with pytest.raises(ValueError, match="both labels together"):
        lone.total("log_loss", 1)


# -- second moments ----------------------------------------------------------------------------------------------------


def on_grid(value, bits):
    """A float64 rounded to a multiple of 2**-bits, to even."""
    return Fraction(round(Fraction(value) * 2**bits), 2**bits)


def number(pair):
    return Fraction(fixed_to_int(pair), UNIT)


@pytest.mark.slow
@pytest.mark.parametrize("sliced", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_squares_are_rounded_once(dtype, sliced):
    rng = np.random.default_rng(8)
    n = 3000
    y, s, w = rng.integers(0, 2, n), rng.random(n).astype(dtype), rng.random(n) * 1e3
    state = ScoreSums(terms=("brier", "score"))
    state = state.empty_copy((BY,)) if sliced else state
    batches = [{"y_true": y, "y_score": s}, {"y_true": y, "y_score": s, "sample_weight": w}]
    found = fed(state, *(b | ({"k": rng.integers(0, 4, n)} if sliced else {}) for b in batches)).without_axes
    terms = (s.astype(float) - y) ** 2, s.astype(float)
    for i, x in enumerate(terms):
        squares = [on_grid(v * v, 52) for v in (*x, *(x * w))]
        assert number(found.squares[i]) == sum(squares)
        for c in (0, 1):
            assert number(found.sums[i, c]) == sum(on_grid(v, 60) for v in (*x[y == c], *(x * w)[y == c]))
            assert number(found.w2x[i, c]) == sum(on_grid(v, 60) for v in (*x[y == c], *(x * w * w)[y == c]))
    for c in (0, 1):
        assert number(found.w2[c]) == sum(on_grid(v, 60) for v in (w * w)[y == c]) + int((y == c).sum())


def test_sums_of_squares_stop():
    y, s = np.array([0, 1, 1]), np.array([0.5, 1.0, 1.0])
    state = ScoreSums(terms=("score",))
    heavy = fed(state, {"y_true": y, "y_score": s, "sample_weight": np.full(3, 1e5)})
    assert [float(number(v)) for v in heavy.w2] == [1e10, 2e10]
    assert float(number(heavy.squares[0])) == 2.25e10
    assert [float(number(v)) for v in heavy.w2x[0]] == [0.5e10, 2e10]
    lost = fed(state, {"y_true": y, "y_score": s, "sample_weight": np.full(3, 2e6)})
    assert lost.w2.tolist() == [[CEILING, 0], [CEILING, 0]]
    assert lost.squares.tolist() == [[CEILING, 0]]
    assert (
        lost.merge(heavy)
        == heavy.merge(lost)
        == fed(state, {"y_true": np.tile(y, 2), "y_score": np.tile(s, 2), "sample_weight": np.repeat([1e5, 2e6], 3)})
    )
    assert lost.merge(heavy).squares.tolist() == [[CEILING, 0]]


def standard_error(a, b, aa, ab, bb):
    """Of sum a / sum b, by the delta method, from sums and second moments in integers."""
    numerator = aa * b * b - 2 * a * b * ab + a * a * bb
    return float(Fraction(numerator, b**4)) ** 0.5


def moments(state, term):
    """Sum, weight, and the sums of w^2 x^2, w^2 x and w^2."""
    i = state.terms.index(term)
    w2, w2x = (
        number(state.read_cells(part)[0][k].sum(axis=0)) for part, k in ((ScoreSums.w2, ...), (ScoreSums.w2x, i))
    )
    return state.total(term), state.weight(), number(state.squares[i]), w2x, w2


def wanted(x, w):
    x, w = x.astype(np.longdouble), w.astype(np.longdouble)
    mean = (w * x).sum() / w.sum()
    return float(np.sqrt((w * w * (x - mean) ** 2).sum()) / w.sum())


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("rate", [0.001, 0.02, 0.4])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_standard_errors(rate, dtype, weighted):
    rng = np.random.default_rng(11)
    n = 50_000
    y = (rng.random(n) < rate).astype(np.uint8)
    s = np.clip(rng.beta(2, 2 / rate, n), 1e-6, 1 - 1e-6).astype(dtype)
    w = rng.random(n) * 4 + 0.1 if weighted else np.ones(n)
    state = fed(
        ScoreSums(terms=("score", "log_loss")), {"y_true": y, "y_score": s} | ({"sample_weight": w} if weighted else {})
    )
    p = s.astype(np.longdouble)
    for term, x in (("score", p), ("log_loss", -np.log(np.where(y == 1, p, 1 - p)))):
        assert standard_error(*moments(state, term)) == pytest.approx(wanted(x, w), rel=1e-9)
    w2 = [number(v) for v in state.read_cells(ScoreSums.w2)[0]]
    ctr = standard_error(state.weight(1), state.weight(), w2[1], w2[1], sum(w2))
    assert ctr == pytest.approx(wanted(y.astype(float), w), rel=1e-9)
    calibration = standard_error(
        state.total("score"),
        state.weight(1),
        number(state.squares[1]),
        number(state.read_cells(ScoreSums.w2x)[0][1, 1]),
        w2[1],
    )
    ratio = float((w * p).sum() / (w * y).sum())
    d = w.astype(np.longdouble) * (p - ratio * y)
    assert calibration == pytest.approx(float(np.sqrt((d * d).sum()) / (w * y).sum()), rel=1e-9)


def test_classes_together_are_the_total():
    rng = np.random.default_rng(2)
    state = fed(ScoreSums(terms=("brier", "log_loss")), rows("probability", rng, 5000))
    for term in state.terms:
        assert state.total(term, 0) + state.total(term, 1) == state.total(term)


def test_a_bad_row_of_weighted_rows_changes_nothing():
    rng = np.random.default_rng(4)
    good = rows("probability", rng, 5000) | {"sample_weight": rng.random(5000)}
    feed = BatchUpdater([Read(ScoreSums(terms=("log_loss",)), PLAIN)])
    for name, value in (("y_true", 2), ("y_score", 1.5), ("sample_weight", -1.0)):
        wrong = good | {name: np.where(np.arange(5000) == 4999, value, good[name].astype(float))}
        with pytest.raises(InvalidInputError, match="row 4,999"):
            feed.count(wrong)
    feed.count(good)
    assert feed.states[0] == fed(ScoreSums(terms=("log_loss",)), good)


@pytest.mark.parametrize("least", [2.0**-29, np.nextafter(np.float32(2.0**-29), np.float32(0)), 0.0])
@pytest.mark.parametrize("most", [1.0, 0.75])
def test_scores_that_one_magic_number_takes(most, least):
    """Blocks of float32 above 2**-29 have a quicker loop, with the bits of float64."""
    rng = np.random.default_rng(4)
    s = np.float32(most) * (1 - rng.random(3 * BLOCK + 5, np.float32)) ** 4
    s[:BLOCK], s[-1], s[BLOCK + 7] = most, least, 2.0**-28
    s = np.maximum(s, np.float32(least))
    y = (rng.random(len(s)) < s).astype(np.uint8)
    narrow, wide = (fed(ScoreSums(terms=("score",)), {"y_true": y, "y_score": s.astype(d)}) for d in ("f4", "f8"))
    for name, array in flats(wide).items():
        assert (flats(narrow)[name] == array).all(), name
    for label in (0, 1) if least else ():
        assert narrow.total("score", label) == sum(map(Fraction, s[y == label].tolist()))
