"""Single events: values in place of columns, mappings from name to value, and lists of these."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pytest

import streammetrics as sm
from streammetrics.collect.accumulator import accumulator_of

ROWS = [{"click": 1, "p": 0.3, "w": 2.0, "user": "a"}, {"click": 0, "p": 0.4, "w": 1.0, "user": "b"}]
COLUMNS = {name: [row[name] for row in ROWS] for name in ROWS[0]}


def tasks() -> sm.MetricCollection:
    task = sm.Task([sm.AUC(), sm.LogLoss(), sm.CTR()], y_true="click", y_score="p", sample_weight="w")
    return sm.MetricCollection({"ctr": task})


AROUND = {
    "collection": tasks,
    "slices": lambda: sm.Sliced(tasks(), by="user"),
    "shards": lambda: sm.Sharded(tasks(), unit="user", shards=8),
}


@pytest.mark.parametrize("around", AROUND.values(), ids=AROUND)
def test_events_count_as_columns_do(around: Any) -> None:
    whole, alone, several = around().update(COLUMNS), around(), around().update(ROWS)
    for row in ROWS:
        alone.update(row)
    assert alone.digest() == several.digest() == whole.digest()


@pytest.mark.parametrize("kind", [int, float, np.int8, np.float32, np.bool_, np.array, bool])
def test_values_by_position(kind: Any) -> None:
    metric = sm.AUC()
    for label, score in ((1, 0.25), (0, 0.5), (1, 0.75)):
        metric.update(kind(label), score).update(kind(label), np.float64(score))
    assert metric.compute() == 0.5
    assert metric.state.facts()["rows"] == 6
    assert metric == sm.AUC().update([1, 1, 0, 0, 1, 1], [0.25, 0.25, 0.5, 0.5, 0.75, 0.75])


def test_an_event_of_classes_and_its_weight() -> None:
    one = sm.Accuracy(num_classes=3).update(1, [0.2, 0.5, 0.3], sample_weight=2.0).update(0, 2)
    assert one == sm.Accuracy(num_classes=3).update([1, 0], [1, 2], sample_weight=[2.0, 1.0])
    assert one.compute() == pytest.approx(2 / 3)


def test_an_event_in_a_window_and_among_the_last() -> None:
    hours = sm.Windowed(sm.CTR(), width="1h", time="t").update(
        {"y_true": 1, "t": dt.datetime(2024, 5, 1, tzinfo=dt.UTC)}
    )
    assert hours.lifetime().compute() == 1.0
    last = sm.Recent(sm.CTR(), rows=2)
    for y in (1, 1, 0):
        last.update(y)
    assert last.compute() == 0.5


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([{"y_true": 1, "y_score": 0.5}, {"y_true": 0}], "y_score: .*found a null in row 1"),
        (
            [{"y_true": 1, "y_score": 0.5}, 3],
            "a list of mappings, one for each event, found an object of class int in row 1",
        ),
        ([{"y_true": 1}], "there is no column 'y_score'"),
        ({"y_true": 3, "y_score": 0.5}, "y_true: expected 0 or 1, found 3 in row 0"),
        ({"y_true": [1, 0], "y_score": 0.5}, "y_score has 1 row, but y_true has 2"),
    ],
)
def test_bad_events(rows: Any, said: str) -> None:
    metric = sm.AUC().update(1, 0.5)
    before = metric.digest()
    with pytest.raises(sm.InvalidInputError, match=said):
        metric.update(rows)
    assert metric.digest() == before


def test_a_row_costs_microseconds() -> None:
    """A value goes the way of a small array, which is drafted once."""
    metric = sm.AUC().update(1, 0.5)
    last = accumulator_of(metric).updater._content[1].last[0]  # type: ignore[union-attr]
    metric.update(0, 0.25)
    assert last is not None
    assert accumulator_of(metric).updater._content[1].last[0] is last  # type: ignore[union-attr]


def test_a_list_is_a_row_of_scores_only_beside_a_value():
    for y in (1, np.int64(1)):
        assert sm.LogLoss(num_classes=3).update({"y_true": y, "y_score": [0.1, 0.2, 0.7]}).state.rows.sum() == 1
    with pytest.raises(sm.InvalidInputError, match="two dimensions"):
        sm.LogLoss(num_classes=3).update({"y_true": [1], "y_score": [0.1, 0.2, 0.7]})
