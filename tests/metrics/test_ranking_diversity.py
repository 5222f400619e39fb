"""Diversity, exposure and popularity equal their definitions; what ndeval says of the same rows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from oracles_lists import EXPOSURE, POPULARITY, SUBTOPICS, List

import streammetrics as sm

Rows = dict[str, list[Any]]


def drawn(rng: np.random.Generator, about: str, weighted: bool) -> tuple[list[List], Rows]:
    """Lists of documents, some not returned, some tied; and their rows, a row for each thing a document is about."""
    names = ["document", about, "y_score", "query", "retrieved"]
    rows: Rows = {name: [] for name in names + ["y_true"] * (about == "subtopic") + ["sample_weight"] * weighted}
    lists = []
    for query in range(25):
        n, weight = int(rng.integers(1, 8)), float(rng.choice([0.0, 0.5, 3.0])) if weighted else 1.0
        documents = rng.permutation(30)[:n].tolist()
        scores = {d: float(rng.integers(0, 4)) for d in documents}
        there = {d: int(rng.random() < 0.8) for d in documents}
        topics: dict[int, frozenset[int]] = {}
        for d in documents:
            found = rng.choice(5, int(rng.integers(1, 4)), replace=False).tolist()
            good = {s: about == "category" or rng.random() < 0.5 for s in found}
            topics[d] = frozenset(s for s in found if good[s])
            for s in found:
                row = {"document": d, about: s, "y_score": scores[d], "query": query, "retrieved": there[d]}
                for name, value in (row | {"y_true": int(good[s]), "sample_weight": weight}).items():
                    if name in rows:
                        rows[name].append(value)
        ranked = sorted((d for d in documents if there[d]), key=lambda d: (-scores[d], d))
        named = [topics[d] for d in sorted(documents, reverse=True)]
        lists.append(List([topics[d] for d in ranked], named, weight))
    return lists, rows


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("tag", "i"), [(tag, i) for tag in SUBTOPICS for i in range(len(SUBTOPICS[tag]))])
def test_subtopics(tag: str, i: int, weighted: bool) -> None:
    settings, value = SUBTOPICS[tag][i]
    about = "category" if tag == "intra_list_diversity" else "subtopic"
    lists, rows = drawn(np.random.default_rng(i), about, weighted)
    values = [(value(q), q.weight) for q in lists]
    told = [(v, w) for v, w in values if v is not None]
    metric = sm.extend.METRICS[tag](**settings).update(rows)
    wanted = math.fsum(v * w for v, w in told) / math.fsum(w for _, w in told)
    assert metric.compute() == pytest.approx(wanted, rel=1e-12)
    assert metric.interval().reason is None
    shuffled = np.random.default_rng(1).permutation(len(rows["query"]))
    shuffled = shuffled[np.argsort(np.array(rows["query"])[shuffled], kind="stable")]
    again = sm.extend.METRICS[tag](**settings).update({n: np.array(v)[shuffled] for n, v in rows.items()})
    assert again.to_bytes() == metric.to_bytes()


def test_as_ndeval() -> None:
    # pyndeval 0.0.8, five judged documents of three subtopics, one not judged
    qrels = [("a", 0), ("a", 1), ("b", 0), ("c", 2), ("e", 0)]
    scores = {"b": 5, "e": 4, "a": 3, "z": 2, "c": 1}
    rows = {
        "document": [d for d, _ in qrels] + ["z", "d"],
        "subtopic": [s for _, s in qrels] + [0, 1],
        "y_true": [1] * 5 + [0, 0],
        "y_score": [scores[d] for d, _ in qrels] + [2, 0],
        "retrieved": [1] * 6 + [0],
        "query": [1] * 7,
    }
    said = [
        (sm.IntentAwareERR(5), 0.45184064548663644),
        (sm.IntentAwareERR(5, norm="ideal"), 0.683969465648855),
        (sm.AlphaNDCG(5, ideal="bound"), 0.5108883306813392),
        (sm.AlphaNDCG(5), 0.7787320303843582),
        (sm.SubtopicRecall(5), 1.0),
    ]
    for metric, value in said:
        assert metric.update(rows).compute() == pytest.approx(value, rel=1e-14)


def test_rows_of_a_document_agree() -> None:
    rows = {"document": [1, 1], "subtopic": [0, 1], "y_true": [1, 1], "y_score": [2, 1], "query": [7, 7]}
    with pytest.raises(sm.InvalidInputError, match="another row of this document"):
        sm.AlphaNDCG().update(rows)
    with pytest.raises(sm.InvalidInputError, match="two rows with this subtopic"):
        sm.AlphaNDCG().update(rows | {"subtopic": [0, 0], "y_score": [1, 1]})


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize(("tag", "i"), [(tag, i) for tag in EXPOSURE for i in range(len(EXPOSURE[tag]))])
def test_exposure(tag: str, i: int, times: int) -> None:
    settings, value = EXPOSURE[tag][i]
    rng, shown = np.random.default_rng([i, times]), []
    rows: Rows = {"item": [], "y_score": [], "query": [], "sample_weight": []}
    for query in range(30):
        items = rng.permutation(12)[: rng.integers(2, 9)].tolist()
        scores = {item: float(rng.integers(0, 3)) for item in items}
        ranked = sorted(items, key=lambda item: (-scores[item], item))
        shown += [ranked[:3]] * times
        for item in items:
            for name, v in zip(rows, (item, scores[item], query, times), strict=True):
                rows[name].append(v)
    wanted = value(shown)
    assert sm.extend.METRICS[tag](**settings).update(rows).compute() == pytest.approx(wanted, rel=1e-12)
    texts = rows | {"item": [f"i{item:02d}" for item in rows["item"]]}
    assert sm.extend.METRICS[tag](**settings).update(texts).compute() == pytest.approx(wanted, rel=1e-12)


def test_items_beyond_the_first_k_are_not_kept() -> None:
    rows = {"item": list(range(1000)), "y_score": list(range(1000)), "query": [1] * 1000}
    metric = sm.CatalogueCoverage(2, n_items=1000, limit=2).update(rows)
    assert metric.compute() == 0.002
    with pytest.raises(sm.MemoryLimitError, match="limit"):
        metric.update(rows | {"query": [2] * 1000, "y_score": [-s for s in range(1000)]})
    for few in (sm.CatalogueCoverage(2, n_items=1), sm.ExposureGini(2, n_items=1), sm.TailShare(2, n_items=1)):
        with pytest.warns(sm.UndefinedMetricWarning, match="items, n_items is 1"):
            assert math.isnan(few.update(rows).compute())
    assert (
        sm.CatalogueCoverage(1000, n_items=1000).update(rows).compute() == 1.0
    )  # every item is shown, and nothing is amiss
    with pytest.raises(sm.InvalidInputError, match="the list contains this item twice"):
        sm.ExposureGini().update(item=[1, 1], y_score=[1, 2], query=[1, 1])


@pytest.mark.parametrize("tag", POPULARITY)
def test_popularity(tag: str) -> None:
    settings, value = POPULARITY[tag][0]
    rng = np.random.default_rng(2)
    lists = [(rng.integers(1, 9, n) / 8).tolist() for n in rng.integers(1, 9, 20)]
    weights = rng.integers(0, 4, 20).tolist()
    rows = {
        "popularity": [p for one in lists for p in one],
        "y_score": [-i for one in lists for i in range(len(one))],
        "query": [q for q, one in enumerate(lists) for _ in one],
        "sample_weight": [weights[q] for q, one in enumerate(lists) for _ in one],
    }
    wanted = sum(w * value(one) for w, one in zip(weights, lists, strict=True)) / sum(weights)
    assert sm.extend.METRICS[tag](**settings).update(rows).compute() == pytest.approx(wanted, rel=1e-13)
    one = [p[:1] * 2 for p in lists[:2]]  # a matrix with a row a list
    table = sm.extend.METRICS[tag](2).update(popularity=np.array(one), y_score=np.ones((2, 2)), query=[0, 1])
    assert table.compute() == pytest.approx(np.mean([value(p) for p in one]), rel=1e-13)


def test_no_self_information_of_nothing() -> None:
    with pytest.raises(sm.InvalidInputError, match="share"):
        sm.Novelty(2).update(popularity=[0.5, 0.0], y_score=[1, 2], query=[1, 1])
