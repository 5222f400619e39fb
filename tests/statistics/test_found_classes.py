"""Pairs of classes found in the log: the matrix as always, and refusals."""

from __future__ import annotations

import numpy as np
import pytest

from streammetrics.batch.column_binding import PLAIN, Binding
from streammetrics.count.batch_updater import BatchUpdater
from streammetrics.count.reads import Read
from streammetrics.errors import IncompatibleStateError, InvalidInputError, MemoryLimitError
from streammetrics.statistics.discovered_classes import DiscoveredPairs
from tests.statistics.batches import BY, WEIGHTS, counted, fed

CLASSES = {
    "near": np.array([3, -4, 7, 2000]),
    "far": np.array([-(1 << 63), 0, 5, (1 << 63) - 1]),
    "texts": np.array(["b", "a", "é", "a longer name"]),
    "bytes": np.array([b"b", b"a", b"\xff", b""]),
}


def view(state):
    rows, excess = state.confusion_matrix()
    read = {
        "names": state.class_names(),
        "unit": state.unit,
        "margins": state.margins(),
        "square": rows,
        "excess": excess,
    }
    return read | {"pairs": len(state.counts), "rows": int(state.counts.sum())}


@pytest.mark.parametrize("classes", CLASSES)
@pytest.mark.parametrize("how", WEIGHTS)
def test_as_frozen(classes, how):
    names = CLASSES[classes]

    def make(rng, n):
        most = rng.integers(1, len(names) + 1)
        return {r: names[rng.integers(0, most, n)] for r in ("y_true", "y_pred")}

    def bad(columns):
        given = columns["y_pred"].astype(object)
        given[-1] = None
        return columns | {"y_pred": given}

    for seed in range(2):
        counted(DiscoveredPairs(), make, seed=seed, how=how, bad=bad, view=view)


def test_too_many_classes():
    feed = BatchUpdater([Read(DiscoveredPairs(max_labels=3), PLAIN)])
    feed.count({"y_true": [1, 2], "y_pred": [2, 1]})
    before = feed.states[0]
    for _ in range(2):
        with pytest.raises(MemoryLimitError, match=r"4 different classes, but max_labels is 3; nothing was counted"):
            feed.count({"y_true": [1, 2], "y_pred": [8, 9]})
        assert feed.states[0] == before
    feed.count({"y_true": [3], "y_pred": [3]})  # a third, though 8 and 9 were seen
    assert feed.states[0].class_names() == [1, 2, 3]
    other = fed(DiscoveredPairs(max_labels=3), {"y_true": [4], "y_pred": [1]})
    with pytest.raises(MemoryLimitError, match="4 different classes"):
        feed.states[0].merge(other)
    sliced = BatchUpdater([Read(DiscoveredPairs(max_labels=3).empty_copy((BY,)), PLAIN)])
    sliced.count({"y_true": [1, 2], "y_pred": [2, 1], "k": [0, 1]})
    with pytest.raises(MemoryLimitError):
        sliced.count({"y_true": [3, 4], "y_pred": [3, 4], "k": [5, 6]})
    assert len(sliced.states[0]) == 2


def test_kinds_do_not_mix():
    feed = BatchUpdater([Read(DiscoveredPairs(), PLAIN)])
    with pytest.raises(InvalidInputError, match="y_pred: expected classes of one kind, found integer and string"):
        feed.count({"y_true": [1, 2], "y_pred": ["a", "b"]})
    feed.count({"y_true": ["a"], "y_pred": ["b"]})  # the failed batch has fixed no kind
    with pytest.raises(InvalidInputError, match="y_true: expected classes of one kind"):
        feed.count({"y_true": [b"a"], "y_pred": [b"b"]})
    assert feed.states[0].facts()["rows"] == 1
    with pytest.raises(IncompatibleStateError, match="kind"):
        feed.states[0].merge(fed(DiscoveredPairs(), {"y_true": [1], "y_pred": [1]}))


def test_statistics_of_one_feed_have_classes_of_their_own():
    other = Binding(columns=(("y_true", "kind"), ("y_pred", "guess")))
    feed = BatchUpdater([Read(DiscoveredPairs(), PLAIN), Read(DiscoveredPairs(), other)])
    for _ in range(2):
        feed.count({"y_true": [1, 2, 2], "y_pred": [1, 2, 1], "kind": ["x", "y", "y"], "guess": ["y", "y", "y"]})
    a, b = feed.states
    assert a == fed(DiscoveredPairs(), *2 * [{"y_true": [1, 2, 2], "y_pred": [1, 2, 1]}])
    assert b == fed(DiscoveredPairs(), *2 * [{"y_true": ["x", "y", "y"], "y_pred": ["y", "y", "y"]}])


def test_rows_of_no_weight_make_no_class():
    given = {"y_true": ["a", "b"], "y_pred": ["a", "c"], "sample_weight": [2.0, 0.0]}
    state = fed(DiscoveredPairs(), given)
    assert state.class_names() == ["a"]
    assert state.facts()["rows"] == 2
    assert fed(state, {"y_true": ["c"], "y_pred": ["c"]}).class_names() == ["a", "c"]


def test_texts_are_not_too_long():
    with pytest.raises(InvalidInputError, match="40 bytes"):
        fed(DiscoveredPairs(), {"y_true": ["a" * 41], "y_pred": ["a"]})
    assert fed(DiscoveredPairs(), {"y_true": ["a" * 40], "y_pred": ["a"]}).class_names() == ["a", "a" * 40]
