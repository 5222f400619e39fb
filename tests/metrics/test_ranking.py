"""Ranking metrics equal their definitions, read aloud in Python, on every kind of query."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from oracles_ranking import ORACLES, Query, expected, orders
from scipy import stats

import streammetrics as sm
from streammetrics.kernels import measures
from streammetrics.kernels import orders as placed
from streammetrics.metrics.ranking.gains import RankingMetric
from streammetrics.statistics import query_sums, ranking

CASES = [(tag, i) for tag in ORACLES for i in range(len(ORACLES[tag]))]


def columns(queries: list[Query], dtype: Any = np.float64) -> dict[str, np.ndarray]:
    """The rows of queries, documents that were not returned among them."""
    out: dict[str, list[Any]] = {
        n: [] for n in ("query", "y_true", "y_score", "retrieved", "sample_weight", "relevant")
    }
    for i, q in enumerate(queries):
        n, absent = len(q.grades), len(q.absent)
        out["query"] += [i] * (n + absent)
        out["y_true"] += [*q.absent, *q.grades]
        out["y_score"] += [9.0] * absent + list(q.scores)
        out["retrieved"] += [0] * absent + [1] * n
        out["sample_weight"] += [q.weight] * (n + absent)
        found = sum(g > 0 for g in (*q.grades, *q.absent))
        out["relevant"] += [found if q.relevant is None else q.relevant] * (n + absent)
    made = {name: np.array(values) for name, values in out.items()}
    made["y_score"] = made["y_score"].astype(dtype)
    if not any(q.absent for q in queries):
        del made["retrieved"]
    if all(q.relevant is None for q in queries):
        del made["relevant"]
    if all(q.weight == 1 for q in queries):
        del made["sample_weight"]
    return made


def random_queries(rng: np.random.Generator, kind: str, n: int = 40) -> list[Query]:
    """Queries of 1 to 9 documents."""
    made = []
    for _ in range(n):
        m = int(rng.integers(1, 9))
        scores = rng.normal(size=m)
        if "ties" in kind:
            scores = np.concatenate([rng.choice([0.5, -0.0, 0.0, 2.0], min(m, 5)), scores[5:]])
        grades = rng.integers(0, 5, m) * (rng.random(m) < 0.6)
        if "fractions" in kind:
            grades = grades * 0.7
        absent = tuple(rng.integers(0, 3, rng.integers(0, 4))) if "absent" in kind else ()
        relevant = None
        if "relevant" in kind:
            relevant = int(sum(g > 0 for g in (*grades, *absent)) + rng.integers(0, 3))
        weight = float(rng.choice([0.0, 1.0, 0.25, 3.7])) if "weights" in kind else 1.0
        made.append(Query(tuple(grades.tolist()), tuple(scores.tolist()), absent, relevant, weight))
    return made


KINDS = (
    "plain",
    "ties",
    "ties weights",
    "ties absent",
    "absent relevant weights",
    "ties fractions weights",
    "fractions absent relevant ties",
)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("tag", "i"), CASES)
def test_random_queries(tag: str, i: int, kind: str) -> None:
    oracle = ORACLES[tag][i]
    if "relevance_level" in oracle.settings and "relevant" in kind:
        pytest.skip("what is relevant here is not counted at this level")
    queries = random_queries(np.random.default_rng([KINDS.index(kind), i]), kind)
    for ties in ("average", "order"):
        for dtype in (np.float32, np.float64):
            rounded = [q._replace(scores=np.array(q.scores, dtype).tolist()) for q in queries]
            metric = sm.METRICS[tag](**oracle.settings, ties=ties).update(columns(queries, dtype))
            np.testing.assert_allclose(metric.compute(), expected(oracle, rounded, ties), rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("k", [None, 1, 4])
def test_pooled_hit_rate(kind: str, k: int | None) -> None:
    queries = random_queries(np.random.default_rng(8), kind)
    hits = relevant = 0.0
    for query in queries:
        found = [sum(g > 0 for g in order[:k]) for order in orders(query, "average")]
        hits += query.weight * sum(found) / len(found)
        judged = sum(g > 0 for g in (*query.grades, *query.absent))
        relevant += query.weight * (judged if query.relevant is None else query.relevant)
    metric = sm.HitRate(k, average="pooled").update(columns(queries))
    assert metric.compute() == pytest.approx(hits / relevant, rel=1e-13)


def test_a_large_group_of_ties() -> None:
    n, r, k = 4000, 2000, 1000  # the ends of the distribution of hits among the first k underflow
    y = np.arange(n) < r
    got = sm.MeanAveragePrecision(k, denominator="hits").update(y, np.zeros(n), query=np.zeros(n, int)).compute()
    x, places = np.arange(1, k + 1), np.arange(k)
    of_hits = [(1 + places * (h - 1) / (k - 1)) / (places + 1) @ np.full(k, h / k) / h for h in x]
    assert got == pytest.approx(stats.hypergeom(n, r, k).pmf(x) @ of_hits, rel=1e-11)


def test_every_ranking_metric_has_its_line() -> None:
    assert set(ORACLES) == {tag for tag, metric in sm.METRICS.items() if issubclass(metric, RankingMetric)}


def test_kernels_and_states_number_measures_alike() -> None:
    assert measures.MEASURES == ranking.MEASURES
    assert placed.MEASURES == ranking.ORDERS
    assert {measures.MEASURES[i] for i in measures.UNBOUNDED} == set(ranking.UNBOUNDED)
    assert query_sums.ALL == measures.ALL == placed.ALL
