"""The short way of a collection: the same states as the long one, and just as careful."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import streammetrics as sm
from streammetrics.arrays import ROW_LIMIT
from streammetrics.intake import Unit

LABELS = ("u1", "i1", "?", "f4", "f8", "i8")
SCORES = ("f2", "f4", "f8")


def collection():
    second = {"real": sm.AUC(scale="real"), "accuracy": sm.Accuracy(threshold=0.3)}
    tasks = {"b": sm.Task([sm.AUC(), sm.LogLoss()], y_true="label", y_score="other")}
    return sm.MetricCollection(
        [sm.AUC(), sm.LogLoss(), sm.Calibration(), sm.BrierScore(), sm.ExpectedCalibrationError()], second, tasks
    )


def batch(rows, label="u1", score="f4", seed=0):
    rng = np.random.default_rng(seed)
    p = rng.random(rows).astype(score)
    special = np.array([0.0, -0.0, 1.0, 2.0**-24, 0.5, 1 - 2.0**-11], score)
    p[: len(special)] = special[:rows]
    y = rng.integers(0, 2, rows).astype(label)
    return {"y_true": y, "y_score": p, "label": y[::-1].copy(), "other": p[::-1].copy()}


def long_way(batches):
    """Each batch in a collection of its own, whose first batch it is."""
    return sm.merge([collection().update(b) for b in batches])


@settings(deadline=None)
@given(
    kinds=st.lists(st.tuples(st.sampled_from(LABELS), st.sampled_from(SCORES)), min_size=1, max_size=5),
    rows=st.sampled_from([1, 7, 448, 3000]),
)
def test_same_states(kinds, rows):
    batches = [batch(rows, label, score, i) for i, (label, score) in enumerate(kinds)]
    fed = collection()
    for one in batches:
        fed.update(one)
    assert fed.digest() == long_way(batches).digest()


def test_it_is_taken(monkeypatch):
    fed = collection().update(batch(10))
    monkeypatch.setattr(Unit, "prepare", lambda *_, **__: pytest.fail("rows were prepared"))
    fed.update(batch(10, seed=1)).update(batch(10, "?", "f4", seed=2))
    monkeypatch.undo()
    assert fed.digest() == long_way([batch(10), batch(10, seed=1), batch(10, seed=2)]).digest()


@pytest.mark.parametrize("name", ["y_true", "label", "y_score", "other"])
@pytest.mark.parametrize("bad", [2, -1, float("nan"), float("inf"), 1.5, 1 + 2.0**-23])
@pytest.mark.parametrize("row", [0, 700, 1499])
def test_a_bad_value_changes_nothing(name, bad, row):
    fed = collection().update(batch(1500))
    before = fed.digest()
    worse = batch(1500, "f4", seed=3)
    worse[name][row] = bad
    with pytest.raises(sm.InvalidInputError, match=rf"^{name}: .* in row {row:,}") as caught:
        fed.update(worse)
    assert (caught.value.column, caught.value.row) == (name, row)
    assert fed.digest() == before


def test_what_is_missing_or_too_short_changes_nothing():
    fed = collection().update(batch(10))
    before = fed.digest()
    with pytest.raises(sm.InvalidInputError, match="there is no column 'other'"):
        fed.update({k: v for k, v in batch(10).items() if k != "other"})
    with pytest.raises(sm.InvalidInputError, match="other has 9 rows"):
        fed.update(batch(10) | {"other": batch(9)["other"]})
    assert fed.digest() == before
    assert fed.update(batch(0)).digest() == before


def test_weights_and_dropped_rows_go_the_long_way():
    weighted = batch(10, seed=1) | {"sample_weight": np.linspace(0, 3, 10)}
    assert collection().update(batch(10)).update(weighted).digest() == long_way([batch(10), weighted]).digest()
    fed = sm.MetricCollection(sm.AUC(), sm.LogLoss(), on_invalid="drop")
    fed.update([0, 1], [0.1, 0.9]).update([0, 1, 1], [0.2, np.nan, 0.8])
    assert fed["auc"].explain()["rows"] == 4


def test_a_kernel_that_cannot_be_called_now():
    """Another thread may be compiling it: its state counts the long way."""
    fed = collection().update(batch(10))

    def busy(*_):
        raise RuntimeError("compilation disabled")

    fed._shortcut.steps[1] = fed._shortcut.steps[1]._replace(quick=busy)
    assert fed.update(batch(10, seed=1)).digest() == long_way([batch(10), batch(10, seed=1)]).digest()


def test_rows_beyond_the_limit():
    fed = collection().update(batch(10))
    fed._plan.units[1].state.__dict__["_load"] = ROW_LIMIT - 5
    before = fed.digest()
    with pytest.raises(sm.CounterOverflowError):
        fed.update(batch(10))
    assert fed.digest() == before


def test_it_survives_what_else_is_done_to_a_collection():
    fed = collection().update(batch(10)).update(batch(10, seed=1))
    for other in (pickle.loads(pickle.dumps(fed)), copy.deepcopy(fed), fed.copy(), sm.from_bytes(fed.to_bytes())):
        assert (
            other.update(batch(10, seed=2)).update(batch(10, seed=3)).digest()
            == long_way([batch(10, seed=i) for i in range(4)]).digest()
        )
    fed.merge(long_way([batch(10, seed=2)])).update(batch(10, seed=3))
    assert fed.digest() == long_way([batch(10, seed=i) for i in range(4)]).digest()
    assert (
        fed.reset().update(batch(10)).update(batch(10, seed=1)).digest()
        == long_way([batch(10), batch(10, seed=1)]).digest()
    )
