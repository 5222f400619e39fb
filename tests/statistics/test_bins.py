"""Bins of equal width: what they counted always, however the rows come."""

from __future__ import annotations

import numpy as np
import pytest

from streammetrics.errors import StateFormatError
from streammetrics.statistics.bins import ScoreBins
from tests.statistics.batches import WEIGHTS, bell, counted, fed, one_of


@pytest.mark.parametrize("how", WEIGHTS)
@pytest.mark.parametrize(
    "settings", [{}, {"n_bins": 100, "sums": False}, {"n_bins": 7, "scale": "logit"}, {"n_bins": 1}], ids=str
)
def test_as_frozen(settings, how):
    logit = settings.get("scale") == "logit"

    def make(rng, n):
        score = bell(rng, n) * 3 if logit else rng.integers(0, 21, n) / 20
        return {
            "y_true": rng.integers(0, 2, n),
            "y_score": score.astype(one_of(rng, (np.float16, np.float32, np.float64))),
        }

    def bad(columns):
        score = columns["y_score"].copy()
        score[-1] = np.nan
        return columns | {"y_score": score}

    lone = counted(ScoreBins(**settings), make, seed=7, how=how, bad=bad)
    assert sum(lone.masses(np.arange(lone.n_bins))[1]) == lone.support() * lone.unit


def test_hostile_values():
    state = fed(ScoreBins(n_bins=2), {"y_true": np.array([0, 1]), "y_score": np.array([0.2, 0.7])})
    state.cells.flats["scores"][0, 0, 0] = -1
    with pytest.raises(StateFormatError, match="impossible for the weight of its rows"):
        state.check()
