"""Counts of known classes: what they counted always, however the rows come."""

from __future__ import annotations

import numpy as np
import pytest

from streammetrics.statistics.classes import ClassCounts
from tests.statistics.batches import WEIGHTS, counted, flats, one_of

NAMED = {"labels": ("b", "a", "é")}
NUMBERED = {"labels": (7, 1 << 40, -1)}
CASES = [
    {"num_classes": 3},
    NAMED,
    {"num_classes": 3, "column": "y_pred"},
    NAMED | {"column": "y_pred"},
    NUMBERED | {"column": "y_pred"},
    {"num_classes": 300, "column": "y_pred"},
]


def view(state):
    each = [tuple(one) for one in state.split_classes()]
    read = {"margins": state.margins(), "unit": state.unit, "names": state.class_names(), "each": each}
    return flats(state) | read | {"pooled": tuple(state.pool_classes())}


@pytest.mark.parametrize("settings", CASES, ids=str)
@pytest.mark.parametrize("how", WEIGHTS)
def test_as_frozen(settings, how):
    known = settings.get("labels") or range(settings["num_classes"])
    names, scored = np.array(known), settings.get("column", "y_score") == "y_score"

    def make(rng, n):
        true = names[rng.integers(0, len(names), n)]
        predicted = rng.integers(0, 4, (n, 3)) / 3 if scored else names[rng.integers(0, len(names), n)]
        if not scored and names.dtype.kind == "i" and max(known) < 1000 and rng.random() < 0.5:
            predicted = predicted.astype(one_of(rng, ["i4", "u2", "f4"]))
        return {"y_true": true, "y_score" if scored else "y_pred": predicted}

    def bad(columns):
        role = "y_true" if scored else "y_pred"
        values = columns[role].astype("U9" if names.dtype.kind == "U" else "i8")
        values[-1] = "zz" if names.dtype.kind == "U" else 5000
        return columns | {role: values}

    for seed in range(2):
        counted(ClassCounts(**settings), make, seed=seed, how=how, bad=bad, view=view)
