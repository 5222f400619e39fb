"""What rankings take and refuse: whole queries, rows that agree, documents that were not returned, slices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import streammetrics as sm

ROWS = {"y_true": [1, 0, 2, 0, 1], "y_score": [0.5, 0.4, 0.1, 0.9, 0.2], "query": [7, 7, 7, 9, 9]}


def refused(metric: Any, match: str, row: int, **changes: Any) -> None:
    before = metric.to_bytes()
    with pytest.raises(sm.InvalidInputError, match=match) as caught:
        metric.update(ROWS | changes)
    assert caught.value.row == row
    assert metric.to_bytes() == before


@pytest.mark.parametrize("keys", [[7, 7, 9, 9, 7], ["a", "a", "b", "b", "a"], [7, 7, 9, 8, 7]])
def test_a_query_that_returns_in_a_batch_raises(keys: list[Any]) -> None:
    refused(sm.NDCG(), "query: row 4: this query already occurred", 4, query=keys)
    with pytest.raises(sm.InvalidInputError, match="row 4"):
        sm.MetricCollection(sm.NDCG(), sm.MeanReciprocalRank()).update(ROWS | {"query": keys})


def test_a_query_that_returns_in_the_next_batch_raises() -> None:
    metric = sm.NDCG().update(ROWS)
    refused(metric, "already occurred", 2, query=[1, 1, 9, 9, 3])
    refused(metric, "already occurred", 0)
    metric.update(ROWS | {"query": [1, 1, 2, 2, 3]}).update(ROWS)  # further back, it is up to the caller
    assert metric.explain()["queries"] == 7
    metric.reset().update(ROWS)
    metric.copy().update(ROWS)
    metric.update({k: v[:0] for k, v in ROWS.items()})
    refused(metric, "already occurred", 0)


def test_what_a_query_has_once_must_agree_in_its_rows() -> None:
    refused(sm.NDCG(), "sample_weight: row 2: the value differs", 2, sample_weight=[1, 1, 2, 3, 3])
    refused(sm.RecallAtK(1), "relevant: row 4: the value differs", 4, relevant=[3, 3, 3, 2, 1])
    refused(sm.RecallAtK(1), "relevant: row 0: this query has more relevant rows", 0, relevant=[1, 1, 1, 2, 2])
    refused(sm.RecallAtK(1), "relevant: expected a count", 1, relevant=[2, 0.5, 2, 2, 2])
    refused(sm.NDCG(ties="document"), "document: row 2: .*twice", 2, document=["b", "a", "b", "a", "b"])
    refused(sm.NDCG(), "y_true: expected a grade", 1, y_true=[1, -1, 2, 0, 1])
    refused(sm.ExpectedReciprocalRank(max_grade=1), "y_true: row 2: the grade is above 1", 2)
    refused(sm.DCG(gain="exponential"), "the grade is above 1000", 0, y_true=[1001, 0, 0, 0, 0])


def test_slices_take_queries_whole() -> None:
    sliced = sm.Sliced([sm.NDCG(), sm.PrecisionAtK(1)], by="country")
    with pytest.raises(sm.InvalidInputError, match="row 1 is in a different slice"):
        sliced.update(ROWS | {"country": ["x", "y", "x", "x", "x"]})
    assert sliced.keys == []
    sliced.update(ROWS | {"country": ["x", "x", "x", "y", "y"]})
    assert sliced["x"]["precision_at_k@1"].compute() == 1.0
    assert sliced["y"]["precision_at_k@1"].compute() == 0.0


def test_one_ranking_serves_all() -> None:
    family = sm.MetricCollection(
        sm.NDCG(10),
        sm.NDCG(5),
        sm.MeanAveragePrecision(),
        sm.MeanReciprocalRank(3),
        {"exp": sm.DCG(gain="exponential")},
    )
    assert [p["metrics"] for p in family.plan()] == [["ndcg@10", "ndcg@5", "map", "mrr@3", "exp"]]
    assert len(sm.MetricCollection(sm.NDCG(), {"by id": sm.NDCG(ties="document")}).plan()) == 2
    assert len(sm.MetricCollection(sm.MeanReciprocalRank(), {"2": sm.HitRate(relevance_level=2)}).plan()) == 2


def test_explain_counts() -> None:
    found = sm.NDCG().update(ROWS | {"y_true": [1, 0, 2, 0, 0], "retrieved": [1, 1, 0, 1, 1]}).explain()
    assert (found["queries"], found["empty"], found["rows"], found["documents"], found["positives"]) == (2, 1, 5, 4, 2)


def test_undefined_has_a_reason() -> None:
    for metric, rows, reason in (
        (sm.NDCG(), {k: v[:0] for k, v in ROWS.items()}, "no queries"),
        (sm.NDCG(empty="skip"), ROWS | {"y_true": [0] * 5}, "no query has a relevant document"),
        (sm.NDCG(), ROWS | {"sample_weight": [0] * 5}, "the weights are all zero"),
        (sm.HitRate(average="pooled"), ROWS | {"y_true": [0] * 5}, "no relevant documents"),
    ):
        with pytest.warns(sm.UndefinedMetricWarning, match=reason):
            assert np.isnan(metric.update(rows).compute())


def test_scores_are_not_rounded() -> None:
    near = np.array([1.0, 1.0 + 2.0**-52, 1.0 - 2.0**-53, 1.0 + 2.0**-51])
    rows = {"y_true": [0, 0, 0, 1], "query": [1] * 4}
    assert sm.MeanReciprocalRank().update(y_score=near, **rows).compute() == 1.0
    assert sm.MeanReciprocalRank().update(y_score=-near, **rows).compute() == 0.25
    assert sm.MeanReciprocalRank().update(y_score=[0.0, -0.0, 0.0, -0.0], **rows).compute() == pytest.approx(25 / 48)


def test_long_runs_of_near_scores_are_settled() -> None:
    rng = np.random.default_rng(0)
    scores = 1.0 + rng.permutation(3000) * 2.0**-50
    best = int(scores.argmax())
    y = np.zeros(3000)
    y[best] = 1
    assert sm.MeanReciprocalRank().update(y, scores, query=np.ones(3000, int)).compute() == 1.0
    y = np.argsort(np.argsort(scores)) % 7
    ranked = sm.DCG().update(y, scores, query=np.ones(3000, int)).compute()
    assert ranked == pytest.approx(np.sum(y[np.argsort(-scores)] / np.log2(np.arange(3000) + 2)), rel=1e-13)


def test_ties_by_position_and_by_document() -> None:
    rows = {"y_true": [0, 0, 1], "y_score": [1, 1, 1], "query": [1, 1, 1]}
    assert sm.MeanReciprocalRank(ties="order").update(rows).compute() == 1 / 3
    by_position = sm.MeanReciprocalRank(ties="order").update(rows | {"position": [2.5, 3, 1]})
    assert by_position.compute() == 1.0
    for names in (["a", "B", "b"], [1, -5, 2], [b"a", b"", b"a\x00"]):
        assert sm.MeanReciprocalRank(ties="document").update(rows | {"document": names}).compute() == 1.0
