"""Histograms of labels and of the top class: their arrays as always, and what each alone makes."""

from __future__ import annotations

import numpy as np
import pytest

import streammetrics as sm
from streammetrics.collect.binding import PLAIN
from streammetrics.collect.feed import Feed, Read
from streammetrics.count import tallies
from streammetrics.state.axes import Axis
from streammetrics.statistics import by_label_scores
from streammetrics.statistics.by_label_scores import LabelScores, TopScores
from streammetrics.statistics.scores import ScoreHistogram
from tests.statistics import frozen
from tests.statistics.batches import one_of


def fed(state, *batches):
    feed = Feed([Read(state, PLAIN)])
    for columns in batches:
        feed.count(columns)
    return feed.states[0]


def drawn(rng, n, scale, kind, weighted):
    s = rng.random((n, 3))
    if kind == "num_classes" and scale == "probability":
        s = s / ((s[:, 0] + s[:, 1]) + s[:, 2])[:, None]
    s = (s * 8 - 4 if scale == "real" else s).astype(one_of(rng, (np.float32, np.float64)))
    y = rng.integers(0, 2, (n, 3)) if kind == "num_labels" else rng.integers(0, 3, n)
    return {"y_true": y, "y_score": s} | ({"sample_weight": rng.integers(0, 3, n) * 0.7} if weighted else {})


def sliced_off(columns, rows):
    return {name: a[rows] for name, a in columns.items()}


def dense(state):
    rows, excess = np.zeros(state.places, np.int64), np.zeros((state.places, 2), np.int64)
    rows[state.rows.places] = state.rows.mass
    if state.rows.excess is not None:
        excess[state.rows.places] = state.rows.excess
    turned = rows.reshape(-1, state.buckets, 2), excess.reshape(-1, state.buckets, 2, 2)
    return tuple(np.moveaxis(a, 2, 1) for a in turned)


def pooled(state, scale):
    metrics = (sm.AUC(scale=scale), sm.KS(scale=scale), sm.AveragePrecision(scale=scale))
    return {type(m).__name__: (m.of(state.pooled()), m.bounds_of(state.pooled())) for m in metrics}


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("scale", ["probability", "real"])
@pytest.mark.parametrize("kind", ["num_labels", "num_classes"])
@pytest.mark.parametrize("few", [False, True])
def test_labels_as_frozen(kind, scale, weighted, few, monkeypatch):
    if few:  # as if there were very many places
        monkeypatch.setattr(tallies, "LONE", 10)
        monkeypatch.setattr(by_label_scores, "LONE", 10)
    rng = np.random.default_rng(1)
    columns = drawn(rng, 700, scale, kind, weighted)
    weights = {"sample_weight": columns["sample_weight"]} if weighted else {}
    empty = LabelScores(scale=scale, bits=10, **{kind: 3})
    new = fed(empty, *(sliced_off(columns, slice(a, a + 100)) for a in range(0, 700, 100)))
    rows, excess = dense(new)
    coarse = new.coarsen(8)
    frozen.check({
        "rows": rows, "excess": excess, "off_grid": new.off_grid, "facts": new.facts(),
        "coarse rows": dense(coarse)[0], "coarse off_grid": coarse.off_grid,
    } | pooled(new, scale))  # fmt: skip
    assert new.facts()["rows"] == 700
    for i, one in enumerate(new.each()):
        y = columns["y_true"][:, i] if kind == "num_labels" else columns["y_true"] == i
        direct = {"y_true": y, "y_score": columns["y_score"][:, i]} | weights
        assert one == fed(ScoreHistogram(scale=scale, bits=10), direct)
    assert coarse == fed(LabelScores(scale=scale, bits=8, **{kind: 3}), columns)
    g = rng.integers(0, 4, 700)
    parts = fed(empty.empty((Axis(("g",)),)), *(sliced_off(columns | {"g": g}, slice(a, a + 350)) for a in (0, 350)))
    assert parts.whole == new
    for i in range(4):
        assert parts.cell(i) == fed(empty, sliced_off(columns, g == i))
    assert parts.coarsen(8).whole == new.coarsen(8)
    half = fed(empty, sliced_off(columns, slice(0, 350)))
    assert new.subtract(half) == fed(empty, sliced_off(columns, slice(350, 700))) or new.off_grid.any()
    assert half.merge(fed(empty, sliced_off(columns, slice(350, 700)))) == new


def test_the_top_class_as_frozen():
    rng = np.random.default_rng(2)
    for weighted in (False, True):
        columns = drawn(rng, 900, "probability", "num_classes", weighted)
        s = columns["y_score"].astype(np.float32)
        columns["y_score"] = s / ((s[:, 0] + s[:, 1]) + s[:, 2])[:, None]
        new = fed(TopScores(bits=12, num_classes=3), *(sliced_off(columns, slice(a, a + 300)) for a in (0, 300, 600)))
        rows, excess = dense(new)
        seen = {"rows": rows[0], "excess": excess[0], "off_grid": int(new.off_grid), "facts": new.facts()}
        frozen.check(seen, what="weighted" if weighted else "")
        exact = fed(TopScores(bits=12, num_classes=3, limit=1000), columns)
        assert not exact.folded
        assert exact.coarsen(12, 0) == new


def test_what_is_always_said():
    assert LabelScores(num_labels=2).written == {"limit": 0, "num_labels": 2}
    assert LabelScores(num_labels=2, limit=7).limit == 0
    assert by_label_scores.LONE == tallies.LONE
    assert list(LabelScores.declared) == ["rows", "off_grid", "dropped", "rounded"]
    with pytest.raises(ValueError, match="bits"):
        LabelScores(num_labels=2, bits=None)
