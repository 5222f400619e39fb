"""Moments: what they counted always, however the rows come."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import streammetrics as sm
from streammetrics.state import frame
from streammetrics.statistics.moments import Moments
from tests.statistics.batches import WEIGHTS, bell, counted, one_of, tens

PAIR = ("y_true", "y_pred")
CASES = [
    {"terms": ()},
    {"terms": ("x",)},
    {"terms": ("x", "xx")},
    {"columns": PAIR, "terms": ("x", "y", "xx", "xy", "yy")},
    {"columns": PAIR, "terms": ("xy", "y"), "num_outputs": 2},
]


@pytest.mark.parametrize("settings", CASES, ids=str)
@pytest.mark.parametrize("how", WEIGHTS)
def test_as_frozen(settings, how):
    roles, outputs = settings.get("columns", ("value",)), settings.get("num_outputs")

    def make(rng, n):
        shape = n if outputs is None else (n, outputs)
        return {
            r: (1e8 + bell(rng, shape) * tens(rng, -6, 7, shape)).astype(one_of(rng, ["f4", "f8", "i8"])) for r in roles
        }

    def bad(columns):
        return columns | {roles[0]: np.full(len(columns[roles[0]]), 1e300)}

    for seed in range(2):
        made = counted(Moments(**settings), make, seed=seed, how=how, bad=bad)
        if "xx" in made.terms:
            assert made.covariance("x", "x") >= 0


def test_squares_that_are_too_small_are_found_behind_a_part_that_is_sound():
    sound = sm.Variance().update(value=[1.0, 2.0, 4.0]).state
    sums = sound.cells.flats["sums"].copy()
    sums[:, sound.terms.index("xx")] = 0
    flats = {**sound.cells.flats, "sums": sums}
    bad = frame.write([sound.holding(replace(sound.cells, flats=flats))], {})
    for parts in ([bad], [frame.write([sound], {}), bad]):
        with pytest.raises(sm.StateFormatError, match="squares that are less"):
            frame.merge_frames(parts)


def test_columns_have_names_of_their_own():
    for columns in (("a", "a"), ("at",), ("sample_weight", "b"), ()):
        with pytest.raises(ValueError, match="two different ones"):
            Moments(columns=columns)
