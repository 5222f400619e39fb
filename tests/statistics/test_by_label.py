"""One statistic for each label: what it counted always, and what each label alone would have made."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

import streammetrics as sm
from streammetrics.collect.metric_like import empty_copy
from streammetrics.statistics.bins import ScoreBins
from streammetrics.statistics.by_label import TopBins, make_label_statistic
from streammetrics.statistics.decision_counts import DecisionCounts
from streammetrics.statistics.sums import ScoreSums
from tests.statistics.batches import WEIGHTS, batches_of, bell, counted, fed, flats, one_of, shares
from tests.statistics.test_sums import MOMENTS

PAIRS = [
    (ScoreSums, {"terms": ("score", "log_loss")}),
    (ScoreSums, {}),
    (ScoreBins, {"n_bins": 5}),
    (DecisionCounts, {"thresholds": (0.3, 0.6)}),
]
IDS = ["sums", "labels", "bins", "decisions"]
WIDTH = 4
NAMES = ("no", "maybe", "yes", "certainly")


def rows(which, rng, n):
    if which == "labels":
        y, score = rng.integers(0, 2, (n, WIDTH)), rng.random((n, WIDTH))
    else:
        y = rng.integers(0, WIDTH, n)
        y = np.array(NAMES)[y] if which == "names" else y
        score = shares(rng, n, WIDTH)
    return {"y_true": y, "y_score": score.astype(one_of(rng, (np.float32, np.float64)))}


def told(which):
    return {"labels": {"num_labels": WIDTH}, "classes": {"num_classes": WIDTH}, "names": {"labels": NAMES}}[which]


def classes_together(state):
    """Sums of both classes together, and no moments."""
    arrays = {name: a for name, a in flats(state).items() if name not in MOMENTS}
    if "sums" in arrays:
        total = arrays["sums"].sum(axis=-2)
        total[..., 0] += total[..., 1] >> 40
        total[..., 1] &= (1 << 40) - 1
        arrays["sums"] = total
    return arrays


def bad(columns):
    score = columns["y_score"].copy()
    score[-1, -1] = np.nan
    return columns | {"y_score": score}


@pytest.mark.parametrize("how", WEIGHTS)
@pytest.mark.parametrize("which", ["labels", "classes", "names"])
@pytest.mark.parametrize(("new", "settings"), PAIRS, ids=IDS)
def test_as_frozen(new, settings, which, how):
    ours = make_label_statistic(new(**settings), **told(which))
    wrong = bad if "y_score" in [n.role for n in ours.needs()] else None
    counted(ours, partial(rows, which), seed=3, how=how, bad=wrong, view=classes_together)


def without_notes(state):
    """The state but for the flag of weights that lost bits, which is of all labels together."""
    flats = {n: a for n, a in state.cells.flats.items() if n != "rounded"}
    return state.with_cells(replace(state.cells, flats=flats))


@pytest.mark.parametrize("how", WEIGHTS)
@pytest.mark.parametrize(("new", "settings"), PAIRS, ids=IDS)
def test_each_label_as_if_it_were_alone(new, settings, how):
    one = new(**settings)
    batches = batches_of(partial(rows, "labels"), 9, how)
    state = fed(make_label_statistic(one, num_labels=WIDTH), *batches)
    alone = [
        [{name: v[:, i] if v.ndim == 2 else v for name, v in columns.items()} for columns in batches]
        for i in range(WIDTH)
    ]
    assert state.split_classes() == [without_notes(fed(one, *mine)) for mine in alone]
    assert state.pool_classes() == without_notes(fed(one, *(columns for mine in alone for columns in mine)))
    empty = make_label_statistic(one, num_labels=WIDTH)
    assert empty.split_classes() == [one] * WIDTH
    assert empty.pool_classes() == one


@pytest.mark.parametrize("how", WEIGHTS)
@pytest.mark.parametrize("logits", [False, True])
def test_the_highest_class_as_frozen(logits, how):
    def make(rng, n):
        made = rows("classes", rng, n)
        return made | {"y_score": bell(rng, (n, WIDTH)) * 3} if logits else made

    settings = {"n_bins": 6, "num_classes": WIDTH, "logits": logits}
    counted(TopBins(**settings), make, seed=5, how=how, bad=bad)


@pytest.mark.filterwarnings("ignore::streammetrics.errors.UndefinedMetricWarning")
@pytest.mark.parametrize("cls", [sm.LogLoss, sm.CTR, sm.F1, sm.AUC, sm.ExpectedCalibrationError])
def test_weights_by_label_come_back_and_slices_of_labels_answer(cls):
    metric = cls(num_labels=2)
    rows = {"y_true": np.array([[0, 1], [1, 1], [1, 0]]), "y_score": np.array([[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]])}
    rows |= {"sample_weight": np.array([[1, 2], [0.5, 1], [3, 0.25]]), "k": np.array([1, 2, 2])}
    slices = sm.Sliced(metric, by="k").update(rows)
    assert sm.from_bytes(slices.to_bytes()) == slices
    for key, value in slices.compute().items():
        alone = empty_copy(metric).update({n: c[rows["k"] == key] for n, c in rows.items()})
        assert sm.from_bytes(alone.to_bytes()) == alone
        assert np.array_equal(value, alone.compute(), equal_nan=True)
