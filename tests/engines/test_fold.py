"""What every engine's adapter is made of."""

from __future__ import annotations

import pytest

import streammetrics as sm
from streammetrics.engines import fold
from streammetrics.engines.parts import find_read_columns

ROWS = {"y_true": [0, 1, 1, 0, 1], "y_score": [0.1, 0.8, 0.4, 0.5, 0.9]}


def cut(start: int, stop: int) -> dict[str, list[float]]:
    return {name: column[start:stop] for name, column in ROWS.items()}


def test_parts_in_any_order_are_the_whole() -> None:
    metrics = sm.MetricCollection(sm.AUC(), sm.LogLoss())
    whole = metrics.copy().update(ROWS)
    parts = [fold([cut(0, 1), cut(1, 3)], metrics), fold([], metrics), fold([cut(3, 5)], metrics)]
    for order in (parts, parts[::-1]):
        assert sm.merge(order).digest() == whole.digest()


def test_a_column_that_the_table_lacks() -> None:
    metrics = sm.MetricCollection(sm.Task(sm.AUC(), y_true="click"))
    assert find_read_columns(metrics, ["click", "y_score", "more"]) == ["click", "y_score"]
    for names, expected in (
        (
            ["clicks", "y_score"],
            "there is no column 'click'; the table has 'clicks', 'y_score'; did you mean 'clicks'?",
        ),
        (
            ["click", "y_sore"],
            "there is no column 'y_score'; the table has 'click', 'y_sore'; if the column has another name, pass "
            "y_score= to Task",
        ),
    ):
        with pytest.raises(sm.InvalidInputError) as caught:
            find_read_columns(metrics, names)
        assert str(caught.value) == expected


def test_a_group_column_that_the_table_lacks_is_no_query_column() -> None:
    """Rows with lists need no query column, and engines fetch the columns that metrics read alone."""
    names = ["y_true", "y_score", "user_id"]
    assert find_read_columns(sm.NDCG(), names) == ["y_true", "y_score"]
    with pytest.raises(
        sm.InvalidInputError, match=r"no column 'group'; the table has .*'user_id'; .* pass group= to Task"
    ):
        find_read_columns(sm.MetricCollection(sm.AUC(), sm.GroupAUC()), names)
    with pytest.raises(sm.InvalidInputError, match=r"no column 'user'; the table has .*; did you mean 'user_id'"):
        find_read_columns(sm.Sharded(sm.AUC(), unit="user"), names)


def test_what_was_seen_before_is_not_counted_again() -> None:
    seen = sm.CTR().update(y_true=[1, 1, 1])
    before = seen.digest()
    assert sm.merge([fold([{"y_true": [0, 1]}], seen)]).compute() == 0.5
    assert seen.digest() == before


def test_a_bad_batch_raises() -> None:
    with pytest.raises(sm.InvalidInputError, match="y_true"):
        fold([cut(0, 2), {"y_true": [2], "y_score": [0.1]}], sm.AUC())
