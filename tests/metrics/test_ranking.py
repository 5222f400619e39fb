"""Ranking metrics equal their definitions, read aloud in Python, on every kind of query."""

from __future__ import annotations

import numpy as np
import pytest
from oracles_ranking import ORACLES, expected, orders
from ranked import KINDS, columns, random_queries
from scipy import stats

import streammetrics as sm
from streammetrics.kernels import extended_measures, measures
from streammetrics.statistics import query_sums, ranking

CASES = [(tag, i) for tag in ORACLES for i in range(len(ORACLES[tag]))]


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
            metric = sm.extend.METRICS[tag](**oracle.settings, ties=ties).update(columns(queries, dtype))
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


def test_kernels_and_states_number_measures_alike() -> None:
    assert measures.MEASURES == ranking.MEASURES
    assert extended_measures.MEASURES == ranking.ORDERS
    assert {measures.MEASURES[i] for i in measures.UNBOUNDED} == set(ranking.UNBOUNDED)
    assert query_sums.NO_CUTOFF == measures.ALL == extended_measures.ALL
