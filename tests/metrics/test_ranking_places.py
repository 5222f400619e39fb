"""More ranking metrics equal their definitions, read aloud in Python, on every kind of query; and what peers say."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from oracles_lists import ORACLES as LISTS
from oracles_places import ORACLES, Pooled, Within, expected_of, geometric
from oracles_ranking import ORACLES as FIRST
from oracles_ranking import Oracle, Query, expected
from ranked import KINDS, columns, random_queries

import streammetrics as sm
from streammetrics.metrics.ranking.gains import ORDERS, RankingMetric

CASES = [(tag, i) for tag in ORACLES for i in range(len(ORACLES[tag]))]


def reference(oracle: Any, tag: str, queries: list[Query], ties: str) -> Any:
    if isinstance(oracle, (Within, Pooled)):
        return expected_of(oracle, queries, ties)
    if tag.startswith("geometric_"):
        return geometric(oracle, queries, ties)
    if tag not in ("precision_recall_at_k", "recall_at_fixed_precision"):
        return expected(oracle, queries, ties)
    k = oracle.settings["k"]
    both = [expected(Oracle(oracle.settings, lambda q, i=i: oracle.value(q)[i]), queries, ties) for i in range(2 * k)]
    if tag == "precision_recall_at_k":
        return both
    return max(r if p >= oracle.settings["precision"] else 0.0 for p, r in zip(both[:k], both[k:], strict=True))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("tag", "i"), CASES)
def test_random_queries(tag: str, i: int, kind: str) -> None:
    oracle, metric = ORACLES[tag][i], sm.extend.METRICS[tag]
    if "relevance_level" in oracle.settings and "relevant" in kind:
        pytest.skip("what is relevant here is not counted at this level")
    queries = random_queries(np.random.default_rng([KINDS.index(kind), i]), kind)
    alone = metric().ties != "average"
    for ties in ("average", "order", "optimistic", "pessimistic")[alone:]:
        for dtype in (np.float32, np.float64):
            rounded = [q._replace(scores=np.array(q.scores, dtype).tolist()) for q in queries]
            value: Any = metric(**oracle.settings, ties=ties).update(columns(queries, dtype)).compute()
            value = np.concatenate(value[1:]) if isinstance(value, tuple) else value
            np.testing.assert_allclose(value, reference(oracle, tag, rounded, ties), rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("ties", ["optimistic", "pessimistic"])
@pytest.mark.parametrize("tag", FIRST)
def test_ties_at_best_and_at_worst(tag: str, ties: str) -> None:
    oracle = FIRST[tag][0]
    queries = random_queries(np.random.default_rng(4), "ties weights")
    got = sm.extend.METRICS[tag](**oracle.settings, ties=ties).update(columns(queries)).compute()
    assert got == pytest.approx(expected(oracle, queries, ties), rel=1e-12)


def test_every_ranking_metric_has_its_line() -> None:
    tags = {tag for tag, metric in sm.extend.METRICS.items() if issubclass(metric, RankingMetric)}
    assert {*FIRST, *ORACLES, *LISTS} >= tags


def test_pairs_of_a_long_query() -> None:
    rng = np.random.default_rng(3)
    grades, scores = rng.random(700).round(2), rng.random(700).round(1)
    a, b = np.sign(grades[:, None] - grades), np.sign(scores[:, None] - scores)
    right = ((a > 0) * (0.5 + 0.5 * b)).sum() / (a > 0).sum()
    got = sm.OrderedPairAccuracy().update(grades, scores, query=np.zeros(700, int)).compute()
    assert got == pytest.approx(right, rel=1e-14)


JUDGED = {  # as pytrec_eval has them: b, a, z, c, f were returned in this order, z was judged by nobody, e not returned
    "document": ["b", "a", "z", "c", "f", "e"],
    "y_true": [0, 1, None, 2, 0, 1],
    "y_score": [5, 4, 3, 2, 1, 0],
    "retrieved": [1, 1, 1, 1, 1, 0],
    "pooled": [1, 1, 0, 1, 1, 1],
    "query": [1] * 6,
}


def test_as_trec_eval() -> None:
    # pytrec_eval 0.5.11 of {a: 1, b: 0, c: 2, e: 1, f: 0}, returned b 5, a 4, z 3, c 2, f 1
    said: list[tuple[sm.extend.Metric[Any, Any], float]] = [
        (sm.BPref(ties="document"), 0.3333333333333333),
        (sm.InferredAP(ties="document"), 0.3333349999666673),
        (sm.ElevenPointPrecision(ties="document", missing="unjudged"), 0.36363636363636365),
        (sm.InterpolatedPrecision(0.7, missing="unjudged"), 0.5),
        (sm.InterpolatedPrecision(0.8, missing="unjudged"), 0.0),
        (sm.FBetaAtK(missing="unjudged"), 0.5),
        (sm.SetAveragePrecision(missing="unjudged"), 0.26666666666666666),
        (sm.RelativePrecision(missing="unjudged"), 0.6666666666666666),
        (sm.NDCG(missing="unjudged", ties="document"), 0.47662611018851303),
        (sm.GeometricMAP(missing="unjudged"), math.exp(-1.0986122886681098)),
        (sm.JudgedAtK(), 0.8),
    ]
    for metric, value in said:
        assert metric.update(JUDGED).compute() == pytest.approx(value, rel=1e-13)
    # of {a: 1, b: 0, c: 1, e: -1, f: 0, z: -1}, returned b 5, a 4, z 3, y 2.5, c 2, f 1
    rows = {
        "y_true": np.array([0, 1, np.nan, np.nan, 1, 0, np.nan]),
        "y_score": [5, 4, 3, 2.5, 2, 1, 0],
        "retrieved": [1] * 6 + [0],
        "pooled": [1, 1, 1, 0, 1, 1, 1],
        "query": [1] * 7,
    }
    assert sm.BPref().update(rows).compute() == 0.5
    assert sm.InferredAP().update(rows).compute() == pytest.approx(0.500002499950001, rel=1e-14)


def test_nobody_is_asked_silently() -> None:
    with pytest.raises(sm.InvalidInputError, match="y_true"):
        sm.NDCG().update({n: v for n, v in JUDGED.items() if n != "pooled"})
    with pytest.raises(sm.InvalidInputError, match="null for a document without a judgement"):
        sm.BPref().update(JUDGED | {"y_true": [0, 1, None, -2, 0, 1]})


def test_no_mean_over_orders_where_one_decides() -> None:
    with pytest.raises(ValueError, match="pessimistic"):
        sm.BPref(ties="average")
    with pytest.raises(ValueError, match="single order"):
        sm.extend.RankingSums(terms=("bpref",))
    assert set(ORDERS) == {"order", "document", "optimistic", "pessimistic"}


def test_intervals_of_means_within() -> None:
    rng = np.random.default_rng(1)
    queries = random_queries(rng, "weights", 300)
    values, weights = [], []
    for q in queries:
        order = [g for _, g in sorted(zip(q.scores, q.grades, strict=True), reverse=True)]
        if any(order):
            values.append(1 + next(i for i, g in enumerate(order) if g))
            weights.append(q.weight)
    found = sm.MeanRank().update(columns(queries)).interval()
    w, x = np.array(weights), np.array(values)
    mean = (w * x).sum() / w.sum()
    n = w.sum() ** 2 / (w * w).sum()
    error = math.sqrt((w * w * (x - mean) ** 2).sum() / w.sum() ** 2 * n / (n - 1))
    assert found.standard_error == pytest.approx(error, rel=1e-9)
    shares = sm.FallOutAtK(2, empty=1.0).update(columns(queries)).interval()
    assert shares.low < shares.estimate < shares.high
