"""Sums of every group: what they counted always; keys of one kind."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from streammetrics.batch.column_binding import PLAIN
from streammetrics.count.batch_updater import BatchUpdater
from streammetrics.count.reads import Read
from streammetrics.errors import IncompatibleStateError, InvalidInputError, MemoryLimitError
from streammetrics.numerics.exact import carry_fixed
from streammetrics.statistics.groups.sums import GroupSums
from streammetrics.statistics.sums import ScoreSums
from tests.statistics.batches import BY, WEIGHTS, batches_of, bell, counted, fed, one_of, rows_of, tens
from tests.statistics.test_sums import MOMENTS

TERMS = ("score", "log_loss")


def rows(kind, scale, rng, n):
    score = rng.random(n) if scale == "probability" else bell(rng, n) * tens(rng, 0, 12, n)
    keys = rng.integers(-5, 60, n)
    made = {"integer": keys, "string": np.char.add("u", keys.astype(str)), "pair": (keys, keys % 3)}[kind]
    return {
        "y_true": rng.integers(0, 2, n),
        "y_score": score.astype(one_of(rng, (np.float32, np.float64))),
        "group": made,
    }


def view(state):
    """Classes together, no moments, and what is read of every group."""
    held = {
        name: state.read_part(part)
        for name, part in state.parts().items()
        if name not in (*MOMENTS, "dropped", "clipped")
    }
    held = {name: array for name, array in held.items() if array is not None} | {"keys": state.cells.inner_keys[:, 1:]}
    held["kinds"] = held["kinds"][..., :4]  # as many as there were
    held["sums"] = held["sums"].sum(axis=2)
    carry_fixed(held["sums"])
    totals = {f"total {term}": state.totals(term) for term in state.terms}
    return held | totals | {"weights": state.weights()}


@pytest.mark.parametrize("how", WEIGHTS)
@pytest.mark.parametrize(
    ("kind", "scale"), [("integer", "probability"), ("string", "probability"), ("integer", "logit")]
)
def test_as_frozen(kind, scale, how):
    def bad(columns):
        return columns | {"y_score": columns["y_score"] * np.nan}

    state = GroupSums(terms=TERMS, scale=scale)
    counted(state, partial(rows, kind, scale), seed=4, how=how, bad=bad, view=view)


@pytest.mark.parametrize("how", WEIGHTS)
def test_a_group_is_a_cell_of_sums(how):
    batches = batches_of(partial(rows, "integer", "probability"), 6, how)
    state = fed(GroupSums(terms=TERMS), *batches)
    for i in (0, 7, len(state.rows) - 1):
        key = int(state.cells.inner_keys[i, 1])
        mine = fed(
            ScoreSums(terms=TERMS), *(rows_of(c, c["group"] == key) for c in batches if (c["group"] == key).any())
        )
        for name in ("rows", "sums", "squares", "clipped", "w2", "w2x"):
            assert np.array_equal(state.read_cells_named(name)[i], mine.read_cells_named(name)[0]), name


def test_keys_are_of_one_kind():
    rng = np.random.default_rng(0)
    integers, texts = (rows(kind, "probability", rng, 50) for kind in ("integer", "string"))
    feed = BatchUpdater([Read(GroupSums(terms=TERMS), PLAIN)])
    feed.count(integers)
    before = feed.states[0]
    with pytest.raises(InvalidInputError, match="expected keys of kind integer, as in earlier rows"):
        feed.count(texts)
    assert feed.states[0] == before
    other = fed(GroupSums(terms=TERMS), texts)
    with pytest.raises(IncompatibleStateError, match="kind integer here and string there"):
        before.merge(other)
    sliced = BatchUpdater([Read(GroupSums(terms=TERMS).empty_copy((BY,)), PLAIN)])
    sliced.count(integers | {"k": np.repeat([1, 2], 25)})
    with pytest.raises(InvalidInputError, match="of kind integer"):
        sliced.count(texts | {"k": np.full(50, 3)})
    assert sliced.states[0].without_axes == before


def test_rows_without_a_group_are_left_out():
    like = GroupSums(terms=TERMS, missing="skip", missing_values=(0,))
    made = rows("integer", "probability", np.random.default_rng(1), 500)
    none = {name: values[:2] for name, values in made.items()} | {"group": np.zeros(2, int)}
    state = fed(like, none, made, none)
    assert state.dropped.sum() == 4 + (made["group"] == 0).sum()
    ours, others = view(state), view(fed(like, rows_of(made, made["group"] != 0)))
    assert sorted(ours) == sorted(others)
    for name, array in ours.items():
        assert np.array_equal(array, others[name]), name


def test_memory_limit():
    made = rows("integer", "probability", np.random.default_rng(1), 500)
    feed = BatchUpdater([Read(GroupSums(terms=TERMS, memory_limit=2000), PLAIN)])
    with pytest.raises(MemoryLimitError):
        feed.count(made)
    assert len(feed.states[0]) == 0
