"""More ranking metrics as `oracles_ranking` has them: their definition, read aloud, on one query in one order.

A value is None for a query in which the metric says nothing. Of a pooled metric it is numerator and denominator.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from oracles_ranking import ALL, EXPONENTIAL, LEVEL, K, Oracle, Query, Seen, dcg, exponential, linear, lines, orders


class Within(NamedTuple):
    """A mean over queries in which the value is not None; the others count `empty`, if that is no "skip"."""

    settings: dict[str, Any]
    value: Callable[[Seen], Any]


class Pooled(NamedTuple):
    """A quotient of sums over queries."""

    settings: dict[str, Any]
    value: Callable[[Seen], tuple[float, float]]


def seen(query: Query, level: float, ties: str) -> list[Seen]:
    """Every order of a query."""
    judged = [*query.grades, *query.absent]
    found = sum(g >= level for g in judged)
    R = found if query.relevant is None else query.relevant
    ideal = sorted([*judged, *[max(level, 1)] * (R - found)], reverse=True)
    return [Seen(order, ideal, R, level, query.absent) for order in orders(query, ties)]


def expected_of(oracle: Within | Pooled, queries: Sequence[Query], ties: str) -> float:
    """The value over queries of a mean over orders."""
    level = oracle.settings.get("relevance_level") or 5e-324
    empty = oracle.settings.get("empty", "skip")
    top = bottom = 0.0
    for query in queries:
        values = [oracle.value(one) for one in seen(query, level, ties)]
        if isinstance(oracle, Pooled):
            top += query.weight * math.fsum(a for a, _ in values) / len(values)
            bottom += query.weight * values[0][1]
        elif values[0] is not None:
            top += query.weight * math.fsum(values) / len(values)
            bottom += query.weight
        elif empty != "skip":
            top, bottom = top + query.weight * empty, bottom + query.weight
    return top / bottom if bottom else math.nan


def geometric(oracle: Oracle, queries: Sequence[Query], ties: str) -> float:
    """exp of the mean log of a measure, which is a mean over orders."""
    top = bottom = 0.0
    for query in queries:
        orders_seen = seen(query, oracle.settings.get("relevance_level") or 5e-324, ties)
        ap = math.fsum(map(oracle.value, orders_seen)) / len(orders_seen)
        if not orders_seen[0].R:
            if oracle.settings.get("empty", 0) == "skip":
                continue
            ap = oracle.settings.get("empty", 0.0)
        top += query.weight * math.log(max(ap, oracle.settings.get("floor", 1e-5)))
        bottom += query.weight
    return math.exp(top / bottom) if bottom else math.nan


def fall_out(q: Seen, k: int | None) -> float | None:
    irrelevant = sum(g < q.level for g in q.ideal)
    return sum(g < q.level for g in q.order[:k]) / irrelevant if irrelevant else None


def relative(q: Seen, k: int | None) -> float:
    below = min(q.R, k or len(q.order))
    return q.hits(k) / below if below else 0.0


def fbeta(q: Seen, k: int | None, beta: float = 1.0) -> float:
    p, r = q.hits(k) / (k or len(q.order) or 1), q.hits(k) / (q.R or 1)
    return (1 + beta**2) * p * r / (beta**2 * p + r) if p and r else 0.0


def first(q: Seen) -> float | None:
    return next((float(i) for i, g in enumerate(q.order, 1) if g >= q.level), None)


def positions(q: Seen) -> tuple[float, float]:
    return math.fsum(i * g for i, g in enumerate(q.order, 1)), math.fsum(q.order)


def pairs(q: Seen) -> tuple[float, float]:
    both = [(a, b) for a, b in itertools.combinations(q.order, 2) if a != b]
    return float(sum(a > b for a, b in both)), float(len(both))


def all_pairs(q: Seen, unreturned: str) -> tuple[float, float]:
    """Pairs of returned documents; and of these with others, which stand below all; and of others, which are wrong."""
    right, both = pairs(q)
    across = [(a, b) for a in q.order for b in q.absent if a != b]
    wrong = [(a, b) for a, b in itertools.combinations(q.absent, 2) if a != b] if unreturned == "wrong" else []
    return right + sum(a > b for a, b in across), both + len(across) + len(wrong)


def per_query(of: Callable[[Seen], tuple[float, float]]) -> Callable[[Seen], float | None]:
    return lambda q: of(q)[0] / of(q)[1] if of(q)[1] else None


def interpolated(q: Seen, recall: float) -> float:
    places = range(1, len(q.order) + 1)
    return max((q.hits(i) / i for i in places if q.hits(i) >= math.floor(recall * q.R + 0.9)), default=0) if q.R else 0


def eleven(q: Seen) -> float:
    return math.fsum(interpolated(q, j / 10) for j in range(11)) / 11


def q_measure(q: Seen, k: int | None, beta: float = 1.0) -> float:
    total = 0.0
    for i, g in enumerate(q.order[:k], 1):
        gained, ideal = math.fsum(q.order[:i]), math.fsum(q.ideal[:i])
        total += (q.hits(i) + beta * gained) / (i + beta * ideal) if g >= q.level else 0
    return total / min(q.R, k or q.R) if q.R else 0.0


def bpref(q: Seen) -> float:
    N = sum(g < q.level for g in q.ideal)
    above = [i - q.hits(i) for i, g in enumerate(q.order) if g >= q.level]
    return math.fsum(1 - min(n, q.R) / min(N, q.R) if n else 1 for n in above) / q.R if q.R else 0.0


def inferred(q: Seen, e: float = 1e-5) -> float:
    total = 0.0
    for i, g in enumerate(q.order):
        if g >= q.level:
            r = q.hits(i)
            total += 1 / (i + 1) + (i / (i + 1)) * (r + e) / (i + 2 * e)
    return total / q.R if q.R else 0.0


def ndcg_at(q: Seen, i: int) -> float:
    return dcg(q.order, i, linear) / dcg(q.ideal, i, linear)


def ndcg_of_hits(q: Seen) -> float:
    places = [i for i, g in enumerate(q.order, 1) if g > 0]
    all_of_them = sum(g > 0 for g in q.ideal)
    places += [max(len(q.order), len(q.ideal))] * (all_of_them - len(places))
    return math.fsum(ndcg_at(q, i) for i in places) / len(places) if places else 0.0


def ndcg_of_levels(q: Seen) -> float:
    gains = [g for g in q.ideal if g > 0]
    places = [i for i in range(1, len(gains) + 1) if i == len(gains) or gains[i] < gains[i - 1]]
    places += [len(q.order)] * (len(q.order) > len(gains) + 1)
    return math.fsum(ndcg_at(q, i) for i in places) / len(places) if gains else 0.0


def normalized_gain(q: Seen) -> float:
    total = 0.0
    for i, g in enumerate(q.order, 1):
        could = math.fsum(max(b, 1) for b in [*q.ideal, *[0] * i][:i])
        total += g / math.log2(2 + could - math.fsum(q.order[:i]))
    return total / math.fsum(q.ideal) if any(q.ideal) else 0.0


def binary_gain(q: Seen) -> float:
    above = [i - q.hits(i) for i, g in enumerate(q.order) if g >= q.level]
    return math.fsum(1 / math.log2(2 + n) for n in above) / q.R if q.R else 0.0


def smoothed(q: Seen) -> float:
    found = math.fsum(q.hits(i) / i for i, g in enumerate(q.order, 1) if g >= q.level)
    return math.log((1 + found) / (1 + q.R - found))


def original_ndcg(q: Seen, k: int | None) -> float:
    first, second = (
        math.fsum(g / max(1, math.log2(i)) for i, g in enumerate(order[:k], 1)) for order in (q.order, q.ideal)
    )
    return first / second if second else 0.0


def average_precision(q: Seen, k: int | None) -> float:
    found = [i for i, g in enumerate(q.order[:k], 1) if g >= q.level]
    return math.fsum(q.hits(i) / i for i in found) / q.R if q.R else 0.0


def precisions_and_recalls(q: Seen, k: int) -> list[float]:
    return [q.hits(i) / i for i in range(1, k + 1)] + [q.hits(i) / (q.R or 1) for i in range(1, k + 1)]


def whole(of: Callable[[Seen], float]) -> list[Oracle]:
    """Lines of a metric without a cut-off."""
    return [Oracle(s, of) for s in ({}, LEVEL, {"empty": "skip"}, {"empty": 1.0})]


def graded(of: Callable[[Seen], float]) -> list[Oracle]:
    """Lines of a metric of grades."""
    return [Oracle(s, of) for s in ({}, {"empty": "skip"}, {"empty": 1.0})]


ORACLES: dict[str, list[Any]] = {
    "hits_at_k": [Oracle(s, lambda q, k=s["k"]: q.hits(k)) for s in (K, ALL, K | LEVEL)],
    "relative_precision": lines(relative),
    "fbeta_at_k": [*lines(fbeta), Oracle(K | {"beta": 2.0}, partial(fbeta, k=3, beta=2.0))],
    "set_average_precision": whole(lambda q: q.hits(None) ** 2 / (len(q.order) or 1) / (q.R or 1)),
    "fall_out_at_k": [
        Within(s, partial(fall_out, k=s["k"])) for s in (K, ALL, K | LEVEL, K | {"empty": 0.0}, ALL | {"empty": 1.0})
    ],
    "idcg": [
        Oracle(k | g, lambda q, k=k["k"], gain=gain: dcg(q.ideal, k, gain))
        for k in (K, ALL)
        for g, gain in (({}, linear), (EXPONENTIAL, exponential))
    ],
    "mean_rank": [Within(s, first) for s in ({}, LEVEL)],
    "average_relevance_position": [
        Pooled({}, positions),
        Within({"average": "queries"}, per_query(positions)),
    ],
    "ordered_pair_accuracy": [
        Pooled({}, pairs),
        Within({"average": "queries"}, per_query(pairs)),
        *(Pooled({"unreturned": what}, partial(all_pairs, unreturned=what)) for what in ("below", "wrong")),
        *(
            Within({"unreturned": what, "average": "queries"}, per_query(partial(all_pairs, unreturned=what)))
            for what in ("below", "wrong")
        ),
    ],
    "original_ndcg": [Oracle(s, partial(original_ndcg, k=s["k"])) for s in (K, ALL, K | {"empty": "skip"})],
    "ndcg_at_relevant": graded(ndcg_of_hits),
    "ndcg_at_levels": graded(ndcg_of_levels),
    "normalized_gain": graded(normalized_gain),
    "binary_gain": whole(binary_gain),
    "smoothed_ap": whole(smoothed)[:3],
    "geometric_bpref": [Oracle(s, bpref) for s in ({}, LEVEL, {"empty": "skip"}, {"empty": 1.0}, {"floor": 0.01})],
    "judged_at_k": [Oracle(s, lambda q: 1.0 if q.order else 0.0) for s in (K, ALL)],
    "bpref": whole(bpref),
    "inferred_ap": whole(inferred),
    "interpolated_precision": [
        *(Oracle({"recall": r}, partial(interpolated, recall=r)) for r in (0.0, 0.3, 0.7, 1.0)),
        Oracle({"recall": 0.5} | LEVEL, partial(interpolated, recall=0.5)),
    ],
    "eleven_point_precision": whole(eleven),
    "q_measure": [
        *(Oracle(s, partial(q_measure, k=s["k"])) for s in (K, ALL, ALL | {"empty": "skip"})),
        Oracle(K | {"beta": 2.0}, partial(q_measure, k=3, beta=2.0)),
    ],
    "geometric_map": [
        Oracle(s, partial(average_precision, k=s.get("k")))
        for s in ({}, K, LEVEL, {"empty": "skip"}, {"empty": 1.0}, {"floor": 0.01})
    ],
    "precision_recall_at_k": [Oracle({"k": 4} | s, partial(precisions_and_recalls, k=4)) for s in ({}, LEVEL)],
    "recall_at_fixed_precision": [Oracle({"k": 4, "precision": 0.41}, partial(precisions_and_recalls, k=4))],
}
