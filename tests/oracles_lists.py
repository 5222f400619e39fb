"""Metrics of lists, by what their items are: their definitions in plain Python, on lists of (item, what it is about)."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple


class List(NamedTuple):
    """A list: of each document, by place, what it is about; of those not returned; and by name, for the ideal."""

    shown: Sequence[frozenset[int]]
    by_name: Sequence[frozenset[int]]
    weight: float = 1.0

    @property
    def topics(self) -> int:
        return len(frozenset().union(*self.by_name))


def gains(order: Sequence[frozenset[int]], alpha: float) -> list[float]:
    seen: Counter[int] = Counter()
    made = []
    for about in order:
        made.append(math.fsum((1 - alpha) ** seen[s] for s in about))
        seen.update(about)
    return made


def greedy(documents: Sequence[frozenset[int]], alpha: float) -> list[frozenset[int]]:
    left, order = list(documents), list[frozenset[int]]()
    while left:
        worth = [gains([*order, d], alpha)[-1] for d in left]
        order.append(left.pop(worth.index(max(worth))))
    return order


def logs(values: Sequence[float]) -> float:
    return math.fsum(v / math.log2(i + 2) for i, v in enumerate(values))


def harmonic(values: Sequence[float]) -> float:
    return math.fsum(v / (i + 1) for i, v in enumerate(values))


def over(top: float, bottom: float) -> float:
    return top / bottom if bottom else 0.0


def alpha_ndcg(q: List, k: int = 3, alpha: float = 0.5, sums: Any = logs) -> float:
    return over(sums(gains(q.shown[:k], alpha)), sums(gains(greedy(q.by_name, alpha)[:k], alpha)))


def bounded(q: List, k: int = 3, alpha: float = 0.5, sums: Any = logs) -> float:
    return over(sums(gains(q.shown[:k], alpha)), sums([q.topics * (1 - alpha) ** i for i in range(k)]))


def recall(q: List, k: int = 3) -> float:
    return over(len(frozenset().union(*q.shown[:k])), q.topics)


def diversity(q: List, k: int = 3) -> float | None:
    pairs = list(itertools.combinations(q.shown[:k], 2))
    return math.fsum(1 - len(a & b) / len(a | b) for a, b in pairs) / len(pairs) if pairs else None


def entropy(shown: Sequence[Sequence[int]]) -> float:
    counts = Counter(itertools.chain(*shown))
    return -math.fsum(c / counts.total() * math.log(c / counts.total()) for c in counts.values())


def gini(shown: Sequence[Sequence[int]], n: int) -> float:
    x = sorted(Counter(itertools.chain(*shown)).values())
    x = [0] * (n - len(x)) + x
    return sum((2 * i - n - 1) * c for i, c in enumerate(x, 1)) / (n * sum(x))


def tail(shown: Sequence[Sequence[int]], head: float) -> float:
    x = sorted(Counter(itertools.chain(*shown)).values(), reverse=True)
    return sum(x[math.ceil(head * len(x)) :]) / sum(x)


def personalisation(shown: Sequence[Sequence[int]], k: int) -> float:
    pairs = list(itertools.combinations(map(set, shown), 2))
    return 1 - math.fsum(len(a & b) / k for a, b in pairs) / len(pairs)


Line = tuple[dict[str, Any], Callable[..., Any]]
K3 = {"k": 3}
SUBTOPICS: dict[str, list[Line]] = {
    "alpha_ndcg": [
        (K3, alpha_ndcg),
        (K3 | {"alpha": 0.9}, lambda q: alpha_ndcg(q, alpha=0.9)),
        (K3 | {"ideal": "bound"}, bounded),
    ],
    "err_ia": [
        (K3, lambda q: bounded(q, sums=harmonic)),
        (K3 | {"norm": "ideal"}, lambda q: alpha_ndcg(q, sums=harmonic)),
        (K3 | {"norm": "none"}, lambda q: over(0.5 * harmonic(gains(q.shown[:3], 0.5)), q.topics)),
    ],
    "subtopic_recall": [(K3, recall)],
    "intra_list_diversity": [(K3, diversity)],
}
EXPOSURE: dict[str, list[Line]] = {
    "catalogue_coverage": [(K3 | {"n_items": 20}, lambda shown: len(frozenset().union(*shown)) / 20)],
    "exposure_gini": [
        (K3, lambda shown: gini(shown, len(frozenset().union(*shown)))),
        (K3 | {"n_items": 20}, lambda shown: gini(shown, 20)),
    ],
    "exposure_entropy": [(K3, entropy), (K3 | {"base": 2}, lambda shown: entropy(shown) / math.log(2))],
    "tail_share": [(K3, lambda shown: tail(shown, 0.2)), (K3 | {"head": 0.5}, lambda shown: tail(shown, 0.5))],
    "personalisation": [(K3, lambda shown: personalisation(shown, 3))],
}
POPULARITY: dict[str, list[Line]] = {
    "average_popularity": [(K3, lambda p: math.fsum(p[:3]) / len(p[:3]))],
    "novelty": [(K3, lambda p: math.fsum(-math.log2(v) for v in p[:3]) / len(p[:3]))],
}
ORACLES: dict[str, list[Line]] = SUBTOPICS | EXPOSURE | POPULARITY
