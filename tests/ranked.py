"""Queries of all kinds, made up, and their rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from oracles_ranking import Query


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
            relevant = int(sum(g > 0 for g in (*grades, *absent)) + rng.choice([0, 1, 2, 30]))  # far more than rows
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
