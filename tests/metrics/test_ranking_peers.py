"""Ranking metrics beside the libraries whose variants they name, on toy logs, random ones and a real one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn import metrics as sk

import streammetrics as sm

HERE = Path(__file__).parent.parent
WEB = Path(os.environ.get("STREAMMETRICS_DATA", HERE.parent.parent / "shared" / "data")) / "ranking_web.parquet"

# two users, five items each in the order they were shown
SHOWN = {
    "y_true": [1, 0, 1, 0, 1, 0, 0, 1, 1, 0],
    "y_score": [0.9, 0.8, 0.7, 0.6, 0.5] * 2,
    "query": [1] * 5 + [2] * 5,
}
GRADED = {
    "y_true": [3, 2, 3, 0, 1, 0, 1, 3, 2, 3, 0, 0, 0],
    "y_score": [5, 4, 3, 2, 1] * 2 + [3, 2, 1],
    "query": [1] * 5 + [2] * 5 + [3] * 3,
}


def one(order: list[float]) -> dict[str, Any]:
    return {"y_true": order, "y_score": range(len(order), 0, -1), "query": [0] * len(order)}


def rounded(metric: sm.extend.Metric[Any, Any], order: list[float]) -> float:
    return round(metric.update({k: list(v) for k, v in one(order).items()}).compute(), 4)


def test_worked_examples() -> None:
    first, second = [1, 0, 1, 0, 1], [0, 1, 0, 1, 0]
    assert rounded(sm.MeanAveragePrecision(5), first) == 0.7556  # (1/1 + 2/3 + 3/5) / 3
    assert rounded(sm.MeanAveragePrecision(5), second) == 0.5  # (1/2 + 2/4) / 2
    both = {"y_true": first + second, "y_score": [5, 4, 3, 2, 1] * 2, "query": [1] * 5 + [2] * 5}
    assert round(sm.MeanAveragePrecision(5).update(both).compute(), 4) == 0.6278
    assert rounded(sm.DCG(), [3, 2, 3, 0, 1, 2]) == 6.8611
    assert rounded(sm.CumulativeGain(), [3, 2, 3, 0, 1, 2]) == 11
    judged = one([3, 2, 3, 0, 1, 2, 3]) | {"retrieved": [1] * 6 + [0]}  # one more document of grade 3 was not returned
    assert round(sm.DCG(6).update(judged).compute(), 4) == 6.8611
    assert rounded(sm.DCG(6), [3, 3, 3, 2, 2, 1, 0]) == 8.3841
    assert sm.NDCG(6).update(judged).compute() == pytest.approx(0.8184, abs=1e-4)
    assert rounded(sm.NDCG(), [3, 2, 3, 0, 1]) == 0.9724
    assert rounded(sm.NDCG(), [0, 1, 3, 2, 3]) == 0.6567
    assert rounded(sm.NDCG(5, gain="exponential"), [3, 3, 2, 1, 0]) == 1.0


def test_average_precision_as_its_libraries() -> None:
    # of user 1, the hits among the first 3 are at 1 and 3, of three relevant; of user 2 at 3, of two
    spark = sm.MeanAveragePrecision(3, denominator="min")  # meanAveragePrecisionAt(3)
    trec = sm.MeanAveragePrecision(3, denominator="relevant")  # map_cut_3
    torchmetrics = sm.MeanAveragePrecision(3, denominator="hits")  # RetrievalMAP(top_k=3)
    assert spark.update(SHOWN).compute() == pytest.approx(((1 + 2 / 3) / 3 + (1 / 3) / 2) / 2, rel=1e-15)
    assert trec.update(SHOWN).compute() == pytest.approx(((1 + 2 / 3) / 3 + (1 / 3) / 2) / 2, rel=1e-15)
    assert torchmetrics.update(SHOWN).compute() == pytest.approx(((1 + 2 / 3) / 2 + 1 / 3) / 2, rel=1e-15)
    at_two = [sm.MeanAveragePrecision(2, denominator=d).update(SHOWN).compute() for d in ("min", "relevant", "hits")]
    assert at_two == [0.25, pytest.approx(1 / 6), 0.5]  # what Spark, trec_eval and torchmetrics 1.9 return


def test_ndcg_as_its_libraries() -> None:
    sklearn = sm.NDCG(3).update(GRADED).compute()
    lightgbm = sm.NDCG(3, gain="exponential", ties="order", empty=1).update(GRADED).compute()
    names = [f"d{i}" for i in range(13)]
    trec = sm.NDCG(3, ties="document").update(GRADED | {"document": names}).compute()
    matrix = np.array(GRADED["y_true"][:10]).reshape(2, 5)
    scores = np.array(GRADED["y_score"][:10]).reshape(2, 5)
    assert sklearn == pytest.approx(sk.ndcg_score(matrix, scores, k=3) * 2 / 3, rel=1e-14)
    assert lightgbm == pytest.approx(0.7597571175967465, rel=1e-15)  # the metric ndcg@3 of LightGBM 4.7
    assert trec == pytest.approx(sklearn, rel=1e-14)  # without ties they agree; with ties they do not:
    tied = {"y_true": [2, 0, 1], "y_score": [1, 1, 1], "query": [1, 1, 1], "document": ["a", "b", "c"]}
    discounts = 1 / np.log2([2, 3, 4])
    best = 2 * discounts[0] + discounts[1]
    assert sm.NDCG(ties="document").update(tied).compute() == pytest.approx((discounts[0] + 1) / best, rel=1e-15)
    del tied["document"]
    assert sm.NDCG().update(tied).compute() == pytest.approx(discounts.sum() / best, rel=1e-15)
    assert sm.NDCG(ties="order").update(tied).compute() == pytest.approx((2 + discounts[2]) / best, rel=1e-15)


@pytest.mark.parametrize("k", [None, 1, 3, 10, 40])
@pytest.mark.parametrize("style", ["smooth", "tied", "float32", "fractions"])
def test_scikit_learn(style: str, k: int | None) -> None:
    rng = np.random.default_rng(3)
    y, s = rng.integers(0, 4, (200, 25)) * (rng.random((200, 25)) < 0.4), rng.normal(size=(200, 25))
    s = np.round(s) if style == "tied" else s.astype(np.float32) if style == "float32" else s
    y = y * 0.3 if style == "fractions" else y
    y[7] = 0
    w = rng.choice([0, 1, 0.5, 2.25], 200)
    for weights in ({}, {"sample_weight": w}):
        family = sm.MetricCollection(sm.NDCG(k), sm.DCG(k))
        found = list(family.update(y, s, **weights).compute().values())
        wanted = [sk.ndcg_score(y, s, k=k, **weights), sk.dcg_score(y, s, k=k, **weights)]
        np.testing.assert_allclose(found, wanted, rtol=1e-13)
        untied = sm.NDCG(k, ties="order").update(y, s, **weights).compute()
        if style != "tied":
            assert untied == found[0]


def test_pytrec_eval() -> None:
    pytrec_eval = pytest.importorskip("pytrec_eval")
    rng = np.random.default_rng(5)
    qrels = {f"q{q}": {f"d{d}": int(g) for d, g in enumerate(rng.integers(0, 3, 30))} for q in range(50)}
    run = {
        q: {f"d{d}": float(s) for d, s in zip(rng.permutation(60)[:25], rng.normal(size=25).round(1), strict=True)}
        for q in qrels
    }
    from streammetrics.io.trec import trec_rows

    by_document = {"ties": "document"}
    family = sm.MetricCollection({
        "map": sm.MeanAveragePrecision(**by_document),
        "map_cut_5": sm.MeanAveragePrecision(5, denominator="relevant", **by_document),
        "ndcg": sm.NDCG(**by_document),
        "ndcg_cut_10": sm.NDCG(10, **by_document),
        "recip_rank": sm.MeanReciprocalRank(**by_document),
        "P_10": sm.PrecisionAtK(10, **by_document),
        "recall_10": sm.RecallAtK(10, **by_document),
        "success_1": sm.HitRate(1, **by_document),
        "Rprec": sm.RPrecision(**by_document),
    })  # fmt: skip
    asked = {"map", "map_cut_5", "ndcg", "ndcg_cut_10", "recip_rank", "P_10", "recall_10", "success_1", "Rprec"}
    printed = pytrec_eval.RelevanceEvaluator(qrels, asked).evaluate(run)
    for name, value in family.update(trec_rows(qrels, run)).compute().items():
        assert value == pytest.approx(np.mean([of_query[name] for of_query in printed.values()]), rel=1e-13), name


@pytest.mark.parametrize("model", ["score_a", "score_b"])
def test_a_real_log(model: str) -> None:
    if not WEB.exists():
        pytest.skip("the real logs are not here: set STREAMMETRICS_DATA to their folder")
    import pyarrow.parquet as pq

    log = pq.read_table(WEB)
    query, y, s = (log[name].to_numpy() for name in ("query_id", "relevance", model))
    family = sm.MetricCollection(sm.NDCG(10), sm.NDCG(), sm.DCG(5), sm.MeanAveragePrecision())
    got = family.update(y, s, query=query).compute()
    starts = np.flatnonzero(np.r_[True, query[1:] != query[:-1]])
    queries = [(y[rows], s[rows]) for rows in np.split(np.arange(len(y)), starts[1:])]
    many = [(a, b) for a, b in queries if len(a) > 1]
    lone = [float(a[0] > 0) for a, _ in queries if len(a) == 1]
    for name, k in (("ndcg@10", 10), ("ndcg", None)):
        values = [sk.ndcg_score([a], [b], k=k) for a, b in many] + lone
        assert got[name] == pytest.approx(np.mean(values), rel=1e-13)
    if all(len(set(b.tolist())) == len(b) for _, b in queries):
        precision = [sk.average_precision_score(a > 0, b) if (a > 0).any() else 0.0 for a, b in queries]
        assert got["map"] == pytest.approx(np.mean(precision), rel=1e-13)
