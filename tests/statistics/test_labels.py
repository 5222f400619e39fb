"""Decisions: what they counted always, however the rows come."""

from __future__ import annotations

import numpy as np
import pytest

from streammetrics.statistics.decision_counts import DecisionCounts
from tests.statistics.batches import WEIGHTS, bell, counted, one_of


def scores(rng, n):
    dtype = one_of(rng, (np.float16, np.float32, np.float64, np.int64))
    return {"y_true": rng.integers(0, 2, n), "y_score": (bell(rng, n) + 0.3).round(1).astype(dtype)}


def decisions(rng, n):
    return {"y_true": rng.random(n) < 0.3, "y_pred": rng.integers(0, 2, n).astype(one_of(rng, (np.uint8, float)))}


@pytest.mark.parametrize("how", WEIGHTS)
@pytest.mark.parametrize("thresholds", [(0.5,), (0.1, 0.3, 0.7, 1e300)])
def test_scores_as_frozen(thresholds, how):
    def bad(columns):
        score = columns["y_score"].astype(float)
        score[-1] = np.inf
        return columns | {"y_score": score}

    counted(DecisionCounts(thresholds=thresholds), scores, seed=2, how=how, bad=bad)


@pytest.mark.parametrize("how", WEIGHTS)
def test_decisions_as_frozen(how):
    def bad(columns):
        return columns | {"y_pred": columns["y_pred"].astype(float) + 0.5}

    new = DecisionCounts(column="y_pred")
    lone = counted(new, decisions, seed=3, how=how, bad=bad)
    tn, fp, fn, tp = lone.cells_at(0.5)
    assert lone.facts()["weight"] == (lone.support() * (tn + fp + fn + tp) / (fn + tp))
