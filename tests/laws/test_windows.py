"""The laws of objects on windows, alone and nested, and on corrections."""

from __future__ import annotations

import draws
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import streammetrics as sm
from streammetrics.collect.metric_like import columns_of
from streammetrics.laws import OBJECT_LAWS, Case, run


def windowed(inner, **settings):
    return sm.Windowed(inner, width=5, time="step", **settings)


SUBJECTS = {
    "windows": lambda: windowed(sm.AUC(bits=8), keep=2),
    "of a collection": lambda: windowed([sm.KS(bits=8), sm.Task([sm.CTR(), sm.Recall()], where="click")]),
    "of groups": lambda: windowed(sm.GroupAUC(), keep=3),
    "of slices": lambda: windowed(sm.Sliced([sm.LogLoss(), sm.CTR()], by="key", limit=2), keep=2),
    "of slices that fold": lambda: windowed(sm.Sliced(sm.AUC(limit=2), by="key", limit=2), keep=1),
    "in slices": lambda: sm.Sliced(windowed(sm.AUC(bits=8), keep=1), by="key", limit=2),
    "that fold, in slices": lambda: sm.Sliced(windowed(sm.AUC(limit=2), keep=1), by="key", limit=2),
    "in a collection": lambda: sm.MetricCollection({"w": windowed(sm.CTR(), keep=2), "all": sm.CTR()}),
    "that fade": lambda: sm.Decayed([sm.AUC(bits=8), sm.CTR()], half_life=5, keep=3),
    "that fade, in slices": lambda: sm.Sliced(sm.Decayed(sm.GroupAUC(), half_life=5), by="key", limit=2),
    "that fade, of slices": lambda: sm.Decayed(sm.Sliced(sm.CTR(), by="key", limit=2), half_life=5),
    "that fade, in a collection": lambda: sm.MetricCollection(
        {"d": sm.Decayed(sm.CTR(), half_life=5), "all": sm.CTR()}
    ),
    "in a bundle's place": lambda: sm.Delta(windowed([sm.AUC(bits=8), sm.CTR()], keep=2)),
    "corrections": lambda: sm.Delta(sm.MetricCollection(sm.AUC(bits=8), sm.LogLoss())),
}
BAD = {"y_true": 2, "y_score": np.inf, "sample_weight": -1.0}


@pytest.mark.slow
@pytest.mark.parametrize("subject", SUBJECTS.values(), ids=SUBJECTS.keys())
def test_every_law_of_objects(subject):
    @draws.short(4)
    @given(st.integers(0, 25), st.integers(0, 2**32))
    def hold(n, seed):
        rng = np.random.default_rng(seed)
        drawn = {
            "y_true": rng.integers(0, 2, n).astype(np.uint8),
            "y_score": rng.choice([0.1, 0.25, 0.7, rng.random()], n),
            "sample_weight": rng.choice([1.0, 0.5, 2.0], n),
            "click": rng.integers(0, 2, n).astype(bool),
            "group": rng.integers(0, 4, n),
            "key": rng.choice(["a", "b", "c", "é"], n),
            "step": rng.choice([-3, 0, 4, 5, 11, 12, 40], n),
        }
        read = {name: column for name, column in drawn.items() if name in columns_of(subject())}
        case = Case(subject, read, np.random.default_rng(seed), {k: v for k, v in BAD.items() if k in read})
        for law in OBJECT_LAWS:
            run(law, case)

    hold()
