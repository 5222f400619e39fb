"""One line or more for every ranking metric: its definition, read aloud in Python, on one query in one order.

Ties are averaged by trying all orders of the tied documents; queries by a weighted mean.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple


class Query(NamedTuple):
    """A query: the grades of what was returned, by score; of what was not; how many are relevant in all; its weight."""

    grades: Sequence[float]
    scores: Sequence[float]
    absent: Sequence[float] = ()
    relevant: int | None = None
    weight: float = 1.0


class Seen(NamedTuple):
    """One order of a query: grades from the first place on, the ideal order, how many are relevant, which is relevant.

    `absent` are the grades of documents that were judged and not returned.
    """

    order: Sequence[float]
    ideal: Sequence[float]
    R: int
    level: float
    absent: Sequence[float] = ()

    def hits(self, k: int | None) -> int:
        return sum(g >= self.level for g in self.order[:k])


class Oracle(NamedTuple):
    """A reference for a metric of these settings: the value of one order of one query."""

    settings: dict[str, Any]
    value: Callable[[Seen], float]


def orders(query: Query, ties: str) -> Iterator[Sequence[float]]:
    """Every order of a query in which equal scores could stand; or the one of its rows."""
    sign = {"optimistic": -1, "pessimistic": 1}.get(ties, 0)
    falling = sorted(range(len(query.scores)), key=lambda i: (-query.scores[i], sign * query.grades[i]))
    if ties != "average":
        yield [query.grades[i] for i in falling]
        return
    groups = [list(g) for _, g in itertools.groupby(falling, key=lambda i: query.scores[i])]
    for chosen in itertools.product(*(itertools.permutations(g) for g in groups)):
        yield [query.grades[i] for i in itertools.chain(*chosen)]


def expected(oracle: Oracle, queries: Sequence[Query], ties: str = "average") -> float:
    """The weighted mean over queries of the mean over orders."""
    level = oracle.settings.get("relevance_level") or 5e-324
    empty = oracle.settings.get("empty", 0)
    total = weights = 0.0
    for query in queries:
        judged = [*query.grades, *query.absent]
        found = sum(g >= level for g in judged)
        R = found if query.relevant is None else query.relevant
        ideal = sorted([*judged, *[max(level, 1)] * (R - found)], reverse=True)
        if not R and empty == "skip":
            continue
        values = [oracle.value(Seen(order, ideal, R, level)) for order in orders(query, ties)]
        total += query.weight * (empty if not R and empty else math.fsum(values) / len(values))
        weights += query.weight
    return total / weights if weights else float("nan")


def linear(grade: float) -> float:
    return grade


def exponential(grade: float) -> float:
    return 2.0**grade - 1


def dcg(grades: Sequence[float], k: int | None, gain: Callable[[float], float] = linear) -> float:
    return math.fsum(gain(g) / math.log2(i + 2) for i, g in enumerate(grades[:k]))


def ndcg(seen: Seen, k: int | None = None, gain: Callable[[float], float] = linear) -> float:
    best = dcg(seen.ideal, k, gain)
    return dcg(seen.order, k, gain) / best if best else 0.0


def precision(seen: Seen, k: int | None) -> float:
    return seen.hits(k) / (k or len(seen.order) or 1)


def recall(seen: Seen, k: int | None) -> float:
    return seen.hits(k) / seen.R if seen.R else 0.0


def average_precision(seen: Seen, k: int | None, denominator: str) -> float:
    places = range(1, len(seen.order[:k]) + 1)
    total = math.fsum(seen.hits(i) / i for i in places if seen.order[i - 1] >= seen.level)
    below = {"min": min(seen.R, k or seen.R), "relevant": seen.R, "hits": seen.hits(k)}[denominator]
    return total / below if below else 0.0


def reciprocal_rank(seen: Seen, k: int | None) -> float:
    return next((1 / i for i, g in enumerate(seen.order[:k], 1) if g >= seen.level), 0.0)


def err(seen: Seen, k: int | None, top: int) -> float:
    total, going = 0.0, 1.0
    for i, grade in enumerate(seen.order[:k], 1):
        stop = (2.0**grade - 1) / 2.0**top
        total, going = total + going * stop / i, going * (1 - stop)
    return total


def rbp(seen: Seen, k: int | None, p: float) -> float:
    return (1 - p) * math.fsum(p**i for i, g in enumerate(seen.order[:k]) if g >= seen.level)


K, ALL = {"k": 3}, {"k": None}
EXPONENTIAL = {"gain": "exponential"}
GAINS = [(k | g, k["k"], exponential if g else linear) for k in (K, ALL) for g in ({}, EXPONENTIAL)]
LEVEL = {"relevance_level": 2.0}


def lines(of: Callable[..., float], **fixed: Any) -> list[Oracle]:
    """A line at a cut-off and without, and at more settings, of which the reference only takes k."""
    settings = (K, ALL, {"k": 1}, K | LEVEL, K | {"empty": "skip"}, ALL | {"empty": 1.0})
    return [Oracle(s, partial(of, k=s["k"], **fixed)) for s in settings]


def at_multiple(q: Seen, multiple: float) -> float:
    cut = int(multiple * q.R + 0.9)
    return q.hits(cut) / cut if cut and q.R else 0.0


ORACLES: dict[str, list[Oracle]] = {
    "cumulative_gain": [Oracle(s, lambda q, k=k, gain=gain: math.fsum(map(gain, q.order[:k]))) for s, k, gain in GAINS],
    "dcg": [Oracle(s, lambda q, k=k, gain=gain: dcg(q.order, k, gain)) for s, k, gain in GAINS],
    "ndcg": [
        *(Oracle(s, lambda q, k=k, gain=gain: ndcg(q, k, gain)) for s, k, gain in GAINS),
        Oracle(K | {"empty": "skip"}, lambda q: ndcg(q, 3)),
        Oracle({"empty": 1.0}, ndcg),
    ],
    "precision_at_k": lines(precision),
    "recall_at_k": lines(recall),
    "r_precision": [
        *(Oracle(s, lambda q: recall(q, q.R) if q.R else 0.0) for s in ({}, LEVEL, {"empty": 1.0})),
        *(Oracle({"multiple": m}, partial(at_multiple, multiple=m)) for m in (0.05, 0.4, 1.0, 2.5)),
    ],
    "hit_rate": [
        *lines(lambda q, k: float(q.hits(k) > 0)),
    ],
    "mrr": lines(reciprocal_rank),
    "map": [
        Oracle(o.settings | {"denominator": d}, o.value)
        for d in ("min", "relevant", "hits")
        for o in lines(average_precision, denominator=d)
    ],
    "err": [
        Oracle({"k": k, "max_grade": top, "empty": empty}, partial(err, k=k, top=top))
        for k, top, empty in ((3, 4, 0.0), (None, 4, "skip"), (None, 7, 0.0), (3, 4, 1.0))
    ],
    "rbp": [
        *lines(rbp, p=0.8),
        Oracle(K | {"p": 0.5}, lambda q: rbp(q, 3, 0.5)),
    ],
}
