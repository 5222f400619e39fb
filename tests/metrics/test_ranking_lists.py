"""Queries given as rows of a matrix, as lists of any length, or as ranked lists beside what is relevant."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import streammetrics as sm
from streammetrics.collect.metric_like import empty_copy

METRICS = [sm.NDCG(2), sm.MeanAveragePrecision(denominator="relevant"), sm.MeanReciprocalRank(), sm.HitRate(1)]
Y = [[3, 0, 1], [0, 0, 2], [0, 1, 9]]
S = [[0.2, 0.9, 0.5], [0.1, 0.3, 0.2], [0.7, 0.6, np.nan]]
MASK = [[1, 1, 1], [1, 1, 1], [1, 1, 0]]
LONG = {
    "y_true": [3, 0, 1, 0, 0, 2, 0, 1],
    "y_score": [0.2, 0.9, 0.5, 0.1, 0.3, 0.2, 0.7, 0.6],
    "query": [1, 1, 1, 2, 2, 2, 3, 3],
}


def family() -> sm.MetricCollection:
    return sm.MetricCollection(*METRICS)


def test_a_matrix_with_a_mask_is_the_long_form() -> None:
    expected = family().update(LONG).digest()
    assert family().update(np.array(Y), np.array(S), mask=np.array(MASK)).digest() == expected
    assert family().update({"y_true": Y, "y_score": S, "mask": MASK}).digest() == expected
    long = {"y_true": np.ravel(Y), "y_score": np.ravel(S), "query": np.repeat([1, 2, 3], 3), "mask": np.ravel(MASK)}
    assert family().update(long).digest() == expected
    for metric in METRICS:
        alone = empty_copy(metric).update(np.array(Y), np.array(S), mask=np.array(MASK, bool))
        assert alone == empty_copy(metric).update(LONG)


def test_columns_of_lists_are_the_long_form() -> None:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

    ragged = {"y_true": [Y[0], Y[1], Y[2][:2]], "y_score": [S[0], S[1], S[2][:2]], "sample_weight": [1.0, 0.5, 3.0]}
    expected = family().update(LONG | {"sample_weight": [1, 1, 1, 0.5, 0.5, 0.5, 3, 3]}).digest()
    for table in (
        ragged,
        pa.table(ragged),
        pa.table(ragged).to_batches()[0],
        pd.DataFrame(ragged),
        pl.DataFrame(ragged),
    ):
        assert family().update(table).digest() == expected
    fixed = pa.array(Y[:2], pa.list_(pa.int64(), 3)), pa.array(S[:2], pa.list_(pa.float64(), 3))
    few = {k: v[:6] for k, v in LONG.items()}
    assert family().update(pa.table({"y_true": fixed[0], "y_score": fixed[1]})) == family().update(few)


def test_matrices_of_one_update_and_the_next_are_other_queries() -> None:
    y, s = np.array(Y)[:2], np.array(S)[:2]
    once = family().update(y, s)
    assert family().update(y[:1], s[:1]).update(y[1:], s[1:]) == once
    assert family().update(y, s).update(y, s).compute() == once.compute()


def test_a_query_without_documents_counts() -> None:
    none = sm.HitRate(2).update([[1, 0], [5, 5]], [[0.5, 0.2], [1.0, 1.0]], mask=[[1, 1], [0, 0]])
    assert none.compute() == 0.5
    assert none.explain()["empty"] == 1
    assert sm.HitRate(2).update({"y_true": [[1, 0], []], "y_score": [[0.5, 0.2], []]}) == none


def test_slices_of_matrices() -> None:
    sliced = sm.Sliced(sm.NDCG(), by="country").update(np.array(Y), np.array(S), mask=MASK, country=["a", "b", "a"])
    long = sm.Sliced(sm.NDCG(), by="country").update(LONG | {"country": list("aaabbbaa")})
    assert sliced.digest() == long.digest()


def refused(match: str, row: int | None = None, **columns: Any) -> None:
    metric = family()
    with pytest.raises(sm.InvalidInputError, match=match) as caught:
        metric.update(columns)
    assert row is None or caught.value.row == row
    assert metric == family()


def test_what_does_not_fit_is_refused() -> None:
    refused("row 1 has 2 documents", 1, y_true=Y, y_score=[S[0], S[1][:2], [1.0, 2.0, 3.0]])
    refused("y_score: expected a finite number, found nan in row 2", 2, y_true=Y, y_score=S)
    refused("y_true: expected a grade", 1, y_true=[[1, 0], [0, -1]], y_score=[[0.1, 0.2], [0.3, 0.4]])
    refused("mask: expected 0 or 1", 0, y_true=Y[:2], y_score=S[:2], mask=[[1, 2, 1], [1, 1, 1]])
    refused("there is no column 'query'", y_true=[1, 0], y_score=[0.1, 0.2])
    refused("y_score", y_true=Y[:2], y_score=[0.1, 0.2])


def test_bad_cells_are_dropped_and_counted() -> None:
    metric = sm.NDCG(on_invalid="drop").update(np.array(Y), np.array(S))
    assert metric.explain()["dropped"] == {"y_score": 1}
    assert metric.compute() == sm.NDCG().update(LONG).compute()


def test_ranked_lists() -> None:
    rows = sm.ranked_lists(
        [["a", "b", "c"], ["d", "e"], []], [{"b", "z"}, {"d": 3, "q": 2}, set()], sample_weight=[1, 1, 2]
    )
    got = sm.MetricCollection(sm.NDCG(), sm.RecallAtK(3), sm.PrecisionAtK(2)).update(rows).compute()
    first = (1 / np.log2(3)) / (1 + 1 / np.log2(3))
    second = 3 / (3 + 2 / np.log2(3))
    assert got["ndcg"] == pytest.approx((first + second) / 4)
    assert got["recall_at_k@3"] == 0.25
    assert got["precision_at_k@2"] == 0.25
    metric = sm.RecallAtK(3).update_lists([["a"]], [["a", "b"]]).update_lists([[5, 4]], [[4]])
    assert metric.compute() == 0.75
    for bad in (lambda: sm.ranked_lists([[1]], []), lambda: sm.ranked_lists([[1, 1]], [{1}])):
        with pytest.raises(sm.InvalidInputError):
            bad()
    ranked, relevant = {"ann": ["a", "b"]}, {"ann": {"a", "x"}}
    with pytest.raises(
        sm.InvalidInputError, match=r"ranked: list 0 is 7; .* \[relevant\.get\(user, \(\)\) for user in users\]"
    ):
        sm.ranked_lists({7: ["a"]}, {7: {"a"}})
    for lists, sets, side in ((ranked, relevant, "ranked"), (ranked.values(), relevant, "relevant")):
        with pytest.raises(
            sm.InvalidInputError,
            match=rf"{side}: list 0 is 'ann'; .* \[relevant\.get\(user, \(\)\) for user in users\]",
        ):
            sm.ranked_lists(lists, sets)
    assert sm.RecallAtK(3).update(sm.ranked_lists(ranked.values(), relevant.values())).compute() == 0.5
    with pytest.raises(sm.InvalidInputError, match=r"array of strings; .*sm\.ranked_lists\(ranked, relevant\)$"):
        sm.RecallAtK(3).update(y_true=[["a", "b"]], y_score=[["a", "x"]])
