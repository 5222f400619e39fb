"""Read-outs of all cells at once are those of each cell alone, to the bit."""

from __future__ import annotations

import numpy as np
import pytest

import streammetrics as sm
from streammetrics.batch.column_binding import PLAIN
from streammetrics.count.batch_updater import BatchUpdater
from streammetrics.count.reads import Read
from streammetrics.numerics import kernel_registry
from streammetrics.state.axes import Axis
from streammetrics.statistics.score_readouts import areas, average_precisions, ks_distances
from streammetrics.statistics.scores import ScoreHistogram

READS = ((areas, sm.AUC), (average_precisions, sm.AveragePrecision), (ks_distances, sm.KS))


def drawn(rng, settings, weights, n=4000):
    s = np.round(rng.random(n), rng.integers(1, 8)).astype(rng.choice([np.float32, np.float64]))
    y = (rng.random(n) < s * 0.3).astype(np.uint8)
    g = rng.choice(12, n, p=rng.dirichlet(np.ones(12) * 0.4))
    y[g == 3], y[g == 5] = 0, 1
    columns = {"y_true": y, "y_score": s, "g": g}
    if weights is not None:
        columns["sample_weight"] = np.where((g % 3 == 0) & (rng.random(n) < 0.5), weights(n), 1.0)
    feed = BatchUpdater([Read(ScoreHistogram(**settings).empty_copy((Axis(("g",)),)), PLAIN)])
    feed.count(columns)
    return feed.states[0]


@pytest.mark.parametrize("numba", [True, False])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("settings", [{}, {"bits": 8}, {"bits": 12, "limit": 300}, {"scale": "real", "limit": 0}])
def test_of_all_cells_as_of_each(settings, weighted, numba, monkeypatch):
    rng = np.random.default_rng(1)
    for _ in range(3):
        state = drawn(rng, settings, (lambda n: rng.integers(0, 3, n) * 0.37) if weighted else None)
        if not numba:
            monkeypatch.setattr(kernel_registry, "_FIND", [])
        for read, metric in READS:
            made = read(state)
            for i in range(len(state)):
                cell = state.read_cell(i)
                value, (low, high) = metric().reading(cell).value, metric().reading(cell).bounds
                found = [array[i] for array in made]
                assert np.array_equal(found, [value, low, high], equal_nan=True), (metric, i)
        monkeypatch.undo()


def test_no_cells():
    for read, _ in READS:
        assert len(read(ScoreHistogram(bits=12)).value) == 0
