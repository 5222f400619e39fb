"""Speed of rankings: NDCG@10, MAP and MRR of 100,000 queries of 100 documents, beside libraries where installed."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from itertools import pairwise

import numpy as np

import streammetrics as sm
from benchmarks.report import in_time, table
from benchmarks.timing import INCREMENTS, increments, interleave, pace_of

QUERIES, DOCUMENTS = 100_000, 100
BATCH = 65_536 // DOCUMENTS * DOCUMENTS
TARGET = 7.5  # nanoseconds a document


def search_log() -> tuple[np.ndarray, np.ndarray]:
    """Draw scores (float32) and grades 0 to 3 (uint8) of every document: about a sixth are relevant."""
    rng = np.random.default_rng(2)
    scores = rng.normal(0, 1, (QUERIES, DOCUMENTS)).astype(np.float32)
    grades = np.clip(np.floor(scores * 0.6 + rng.normal(0, 1, scores.shape) - 0.9), 0, 3).astype(np.uint8)
    return scores, grades


def family() -> sm.MetricCollection:
    return sm.MetricCollection(sm.NDCG(10), sm.MeanAveragePrecision(), sm.MeanReciprocalRank())


def rows_of(scores: np.ndarray, grades: np.ndarray, query: np.ndarray) -> Callable[[], list[float]]:
    """Return what counts a log a row a document."""
    y, s = grades.reshape(-1), scores.reshape(-1)

    def count() -> list[float]:
        metrics = family()
        for a in range(0, len(y), BATCH):
            metrics.update(y[a : a + BATCH], s[a : a + BATCH], query=query[a : a + BATCH])
        return list(metrics.compute().values())

    return count


def matrix_of(scores: np.ndarray, grades: np.ndarray) -> Callable[[], list[float]]:
    """Return what counts a log a row a query."""

    def count() -> list[float]:
        metrics = family()
        for a in range(0, len(grades), BATCH // DOCUMENTS):
            metrics.update(grades[a : a + BATCH // DOCUMENTS], scores[a : a + BATCH // DOCUMENTS])
        return list(metrics.compute().values())

    return count


def peers(scores: np.ndarray, grades: np.ndarray) -> dict[str, tuple[int, Callable[[], list[float]]]]:
    """Libraries that are here: on how many queries, and what they do."""
    found: dict[str, tuple[int, Callable[[], list[float]]]] = {}
    if find_spec("ranx"):
        from ranx.metrics import average_precision, ndcg, reciprocal_rank

        n = 10_000
        ideal, order = np.argsort(-grades[:n].astype(float), axis=1), np.argsort(-scores[:n], axis=1)
        qrels, run = (
            np.stack([o, np.take_along_axis(v[:n], o, 1)], 2).astype(float)
            for o, v in ((ideal, grades), (order, scores))
        )

        def of_ranx() -> list[float]:
            parts = ndcg(qrels, run, 10, 1), average_precision(qrels, run, 0, 1), reciprocal_rank(qrels, run, 0, 1)
            return [float(np.mean(part)) for part in parts]

        found["ranx, sorted lists ready"] = n, of_ranx
    if find_spec("sklearn"):
        from sklearn.metrics import ndcg_score
        from threadpoolctl import threadpool_limits

        def of_sklearn() -> list[float]:
            with threadpool_limits(1):  # its threads would go on spinning, in the time of whoever comes next
                return [float(ndcg_score(grades[:5_000], scores[:5_000], k=10))]

        found["scikit-learn, NDCG@10 alone"] = 5_000, of_sklearn
    if find_spec("pytrec_eval"):
        import pytrec_eval

        n = 1_000
        qrels_of = {f"q{q}": {f"d{d}": int(g) for d, g in enumerate(grades[q])} for q in range(n)}
        run_of = {f"q{q}": {f"d{d}": float(s) for d, s in enumerate(scores[q])} for q in range(n)}

        def of_pytrec() -> list[float]:
            asked = ("ndcg_cut_10", "map", "recip_rank")
            printed = pytrec_eval.RelevanceEvaluator(qrels_of, set(asked)).evaluate(run_of)
            return [float(np.mean([v[name] for v in printed.values()])) for name in asked]

        found["pytrec_eval, dicts ready"] = n, of_pytrec
    return found


def main() -> None:
    """Print time a document of one ranking for three metrics, in every form, beside what else there is."""
    scores, grades = search_log()
    query = np.repeat(np.arange(QUERIES), DOCUMENTS)
    ragged = np.repeat(np.arange(QUERIES), np.random.default_rng(3).integers(2, 2 * DOCUMENTS - 1, QUERIES))
    ragged = np.concatenate([ragged, np.full(query.size, ragged[-1])])[: query.size]
    wide = scores.astype(np.float64) + np.float64(1e-9)
    cases: dict[str, tuple[int, Callable[[], list[float]]]] = {
        "ours, rows": (QUERIES, rows_of(scores, grades, query)),
        "ours, matrix": (QUERIES, matrix_of(scores, grades)),
        "ours, rows of float64": (QUERIES, rows_of(wide, grades, query)),
        "ours, lists of 2 to 198": (QUERIES, whole_queries(scores, grades, ragged)),
        **peers(scores, grades),
    }
    timed = interleave({"": increments} | {name: call for name, (_, call) in cases.items()}, rounds=5)
    lines, most = [], TARGET * pace_of(min(timed[""].cpu) / INCREMENTS)
    for name, (queries, call) in cases.items():
        least = min(timed[name].cpu) / (queries * DOCUMENTS) * 1e9
        judged = in_time("ranking", least, most) if name == "ours, rows" else ""
        target = f"{most:.1f}" if judged else ""
        values = ", ".join(f"{value:.9f}" for value in call())
        lines.append([name, timed[name].nanoseconds(queries * DOCUMENTS), target, judged, values])
    head = ["who", "CPU, ns/document", "target", "", "values"]
    table(
        f"NDCG@10, MAP and MRR, {QUERIES:,} queries of {DOCUMENTS} documents (peers on fewer), one thread", head, lines
    )


def whole_queries(scores: np.ndarray, grades: np.ndarray, query: np.ndarray) -> Callable[[], list[float]]:
    """Return what counts queries of different lengths, in batches that end between queries."""
    y, s = grades.reshape(-1), scores.reshape(-1)
    starts = np.flatnonzero(np.diff(query)) + 1
    cuts = [0, *starts[np.searchsorted(starts, np.arange(BATCH, y.size - BATCH, BATCH))].tolist(), y.size]

    def count() -> list[float]:
        metrics = family()
        for a, b in pairwise(cuts):
            metrics.update(y[a:b], s[a:b], query=query[a:b])
        return list(metrics.compute().values())

    return count


if __name__ == "__main__":
    main()
