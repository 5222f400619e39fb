"""The population stability index: that of plain code on the scores themselves."""

import math

import numpy as np
import pytest

import streammetrics as sm
from streammetrics.errors import InvalidInputError

GRID = 256  # scores that are bucket edges, so that plain code makes the same bins


def plainly(scores, reference, weight=None, before=None):
    """PSI of raw scores, by the textbook: deciles of the reference, (lowest, top]; a heavy score is a bin of its own."""
    weight = np.ones(len(scores)) if weight is None else weight
    before = np.ones(len(reference)) if before is None else before
    values = np.unique(reference)
    upto = np.array([before[reference <= v].sum() for v in values])
    tops = sorted({values[upto >= before.sum() * i / 10 - 1e-9][0] for i in range(1, 10)})
    heavy = [v for v in values if before[reference == v].sum() * 10 > before.sum()]
    tops = sorted({*tops, *heavy, *(math.nextafter(v, -math.inf) for v in heavy)})
    total = 0.0
    for low, high in zip([-math.inf, *tops], [*tops, math.inf], strict=True):
        p = weight[(scores > low) & (scores <= high)].sum() / weight.sum()
        q = before[(reference > low) & (reference <= high)].sum() / before.sum()
        p, q = max(p, 1e-4), max(q, 1e-4)
        total += (p - q) * math.log(p / q)
    return total


def counted(scores, weight=None, **settings):
    label = np.arange(len(scores)) % 2
    how = {} if weight is None else {"sample_weight": weight}
    return sm.AUC(**settings).update(label, scores, **how)


def drawn(rng, n, power=1.0):
    return np.ceil(rng.random(n) ** power * (GRID - 1)) / GRID


@pytest.mark.parametrize("settings", [{}, {"bits": 12}, {"bits": None}, {"scale": "real"}])
@pytest.mark.parametrize("power", [1.0, 1.3, 3.0])
def test_as_plain_code(settings, power):
    rng = np.random.default_rng(1)
    a, b = drawn(rng, 5_000, power), drawn(rng, 7_000)
    found = sm.population_stability_index(counted(a, **settings), counted(b, **settings))
    assert found.value == pytest.approx(plainly(a, b), rel=1e-12)
    assert math.fsum(found.shares) == pytest.approx(1.0)
    assert len(found.edges) + 1 == len(found.shares) == len(found.reference) == 10
    assert all(np.mean(b >= e) == pytest.approx(math.fsum(found.reference[i + 1 :])) for i, e in enumerate(found.edges))


def test_weights_count():
    rng = np.random.default_rng(2)
    a, b = drawn(rng, 4_000), drawn(rng, 4_000)
    w, v = rng.integers(1, 9, 4_000) / 4.0, 1.0 + (b > 0.5)
    found = sm.population_stability_index(counted(a, w), counted(b, v))
    assert found.value == pytest.approx(plainly(a, b, w, v), rel=1e-12)


def test_exact_and_folded_states_are_brought_to_the_same_bins():
    rng = np.random.default_rng(3)
    few, many = drawn(rng, 3_000, 1.4), drawn(rng, 70_000)
    found = sm.population_stability_index(counted(few), counted(many))
    assert found.value == pytest.approx(plainly(few, many), rel=1e-12)
    assert sm.population_stability_index(counted(few, bits=12), counted(many)).value == pytest.approx(found.value)


def test_few_values_make_fewer_bins_and_empty_ones_have_a_floor():
    a, b = np.repeat([0.25, 0.75], 50), np.repeat([0.25, 0.5], [80, 20])
    found = sm.population_stability_index(counted(a), counted(b))
    assert len(found.shares) == 5  # 0.25 and 0.5 alone, and three around them
    assert found.value == pytest.approx(plainly(a, b))
    assert found.word == "moved"


@pytest.mark.parametrize("settings", [{}, {"bits": 12}, {"bits": None}, {"scale": "real"}], ids=str)
def test_a_total_shift_is_no_stability(settings):
    """Whichever way it goes; with the lowest and the highest score, too."""
    for low, high in ((0.1, 0.9), (0.0, 1.0), (0.5, 0.75), (0.0, 2.0**-30)):
        a, b = counted(np.full(1_000, low), **settings), counted(np.full(1_000, high), **settings)
        for one, other in ((a, b), (b, a)):
            found = sm.population_stability_index(one, other)
            assert found.value == pytest.approx(2 * (1 - 1e-4) * math.log(1e4))
            assert found.word == sm.drift(one, other).word == "moved"
            assert sm.drift(one, other).js == pytest.approx(math.log(2))
            assert sm.population_stability_index(one, one).value == 0.0


@pytest.mark.parametrize("share", [0.95, 0.5, 0.2])
@pytest.mark.parametrize("to", [0.25, 0.75])
def test_a_default_score_that_moves(share, to):
    rng = np.random.default_rng(6)
    reference = drawn(rng, 2_000)
    reference[: int(share * 2_000)] = 0.5
    scores = np.where(reference == 0.5, to, reference)
    found = sm.population_stability_index(counted(scores), counted(reference))
    assert found.value == pytest.approx(plainly(scores, reference), rel=1e-12)
    assert found.word == "moved"
    weights = np.where(reference == 0.5, 4.0, 1.0)  # heavy by weight
    found = sm.population_stability_index(counted(scores, weights), counted(reference, weights))
    assert found.value == pytest.approx(plainly(scores, reference, weights, weights), rel=1e-12)


@pytest.mark.parametrize(("power", "word"), [(1.0, "stable"), (1.5, "shifted"), (2.0, "moved")])
def test_words(power, word):
    rng = np.random.default_rng(4)
    found = sm.population_stability_index(counted(rng.random(20_000) ** power), counted(rng.random(20_000)))
    assert found.word == word
    same = counted(rng.random(100))
    assert sm.population_stability_index(same, same).value == 0.0


def test_shards_stay_out_of_it_and_batches_do_not_matter():
    rng = np.random.default_rng(5)
    p, q, label, user = rng.random(2_000), rng.random(2_000), np.arange(2_000) % 2, rng.integers(0, 99, 2_000)
    whole = sm.population_stability_index(counted(p), counted(q))
    parts = [sm.Sharded(sm.AUC(), unit="user").update(label, x, user=user) for x in (p, q)]
    assert sm.population_stability_index(*parts) == whole
    halves = sm.merge([counted(p[1_000:]), counted(p[:1_000])])
    assert sm.population_stability_index(halves, counted(q)) == whole


def test_too_little_and_unlike():
    found = sm.population_stability_index(sm.AUC(), counted(np.array([0.5])))
    assert math.isnan(found.value)
    assert found.word == ""
    with pytest.raises(InvalidInputError, match="different scales, real and probability"):
        sm.population_stability_index(sm.AUC(scale="real"), sm.AUC())
    with pytest.raises(InvalidInputError, match="a metric without slices that counts scores"):
        sm.population_stability_index(sm.CTR(), sm.AUC())
    with pytest.raises(InvalidInputError, match="a metric without slices that counts scores"):
        sm.population_stability_index(sm.Sliced(sm.AUC(), by="arm"), sm.AUC())
