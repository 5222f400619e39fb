"""Extremes: what they were always, however the rows come."""

from __future__ import annotations

import math

import numpy as np
import pytest

from streammetrics.statistics.extremes import Extremes
from tests.statistics.batches import WEIGHTS, bell, counted, fed, one_of, tens

PAIR = ("y_true", "y_pred")
CASES = [{}, {"columns": PAIR}, {"columns": PAIR, "num_outputs": 3}, {"num_outputs": 1}]


@pytest.mark.parametrize("settings", CASES, ids=str)
@pytest.mark.parametrize("how", WEIGHTS)
def test_as_frozen(settings, how):
    roles, outputs = settings.get("columns", ("value",)), settings.get("num_outputs")

    def make(rng, n):
        shape = n if outputs is None else (n, outputs)
        dtypes = [one_of(rng, ["f2", "f4", "f8", "i8"]) for _ in roles]
        return {r: (bell(rng, shape) * tens(rng, -3, 4, shape)).astype(d) for r, d in zip(roles, dtypes, strict=True)}

    def bad(columns):
        v = columns[roles[-1]].astype(float)
        v[0] = np.inf
        return columns | {roles[-1]: v}

    for seed in range(2):
        made = counted(Extremes(**settings), make, seed=seed, how=how, bad=bad)
        assert made.least() <= made.largest()


def test_zeros_and_nothing():
    for values in ([-0.0], [0.0, -0.0], [-0.0, -1.0]):
        state = fed(Extremes(), {"value": np.array(values)})
        assert math.copysign(1, state.largest()) == 1
    state = fed(Extremes(), {"value": np.array([3.0, 4.0]), "sample_weight": np.zeros(2)})
    assert math.isnan(state.least())
    assert math.isnan(state.largest())
    assert state.facts() == {"rows": 2}
    assert fed(state, {"value": np.array([-2.5])}).least() == -2.5
