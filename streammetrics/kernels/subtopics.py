"""Measures of ranked lists whose documents are about several things, each of which is worth less the next time."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._jit import kernel, outline

f8, i8 = np.float64, np.int64

MEASURES = ("alpha_ndcg", "alpha_dcg", "err_ia", "err_ia_ideal", "err_ia_plain", "subtopic_recall", "diversity")
ALPHA_NDCG, ALPHA_DCG, ERR_IA, ERR_IDEAL, ERR_PLAIN, RECALL, DIVERSITY = range(7)


@outline
def taken(topic: Any, a: Any, b: Any, left: Any, alpha: Any) -> Any:
    """What a document, whose rows these are, is worth now; what it is about is worth less from now on."""
    total = 0.0
    for i in range(a, b):
        if topic[i] >= 0:
            total += left[topic[i]]
            left[topic[i]] *= 1.0 - alpha
    return total


@outline
def worth_now(topic: Any, a: Any, b: Any, left: Any) -> Any:
    """What a document is worth now."""
    total = 0.0
    for i in range(a, b):
        if topic[i] >= 0:
            total += left[topic[i]]
    return total


@outline
def as_ranked(topic: Any, bounds: Any, m: Any, alpha: Any, discount: Any, left: Any) -> Any:
    """The sum of worth times discount of the first m documents."""
    left[:] = 1.0
    total = 0.0
    for d in range(m):
        total += taken(topic, bounds[d], bounds[d + 1], left, alpha) * discount[d]
    return total


@outline
def at_best(
    topic: Any, bounds: Any, named: Any, docs: Any, m: Any, alpha: Any, discount: Any, left: Any, used: Any
) -> Any:
    """That of m documents, each the worthiest that is left; of several the first of `named`."""
    left[:] = 1.0
    used[:] = 0
    total = 0.0
    for place in range(min(m, docs)):
        best, most = i8(-1), 0.0
        for i in range(docs):
            d = named[i]
            if not used[d]:
                worth = worth_now(topic, bounds[d], bounds[d + 1], left)
                if worth > most:
                    best, most = d, worth
        if best < 0:
            break
        used[best] = 1
        total += taken(topic, bounds[best], bounds[best + 1], left, alpha) * discount[place]
    return total


@outline
def found_share(topic: Any, end: Any, topics: Any, left: Any) -> Any:
    """The share of the subtopics that the rows before `end` are about."""
    left[:] = 0.0
    found = 0
    for i in range(end):
        if topic[i] >= 0 and left[topic[i]] == 0:
            left[topic[i]] = 1.0
            found += 1
    return found / topics


@outline
def unlike(topic: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
    """One less the share of what either of two documents is about that both are: rows a to b, and c to d, in order."""
    both, either, i, j = 0, (b - a) + (d - c), a, c
    while i < b and j < d:
        if topic[i] == topic[j]:
            both += 1
            i += 1
            j += 1
        elif topic[i] < topic[j]:
            i += 1
        else:
            j += 1
    return 1.0 - both / f8(either - both)


@outline
def mean_unlike(topic: Any, bounds: Any, m: Any) -> Any:
    """The mean of that over all pairs of the first m documents."""
    total = 0.0
    for i in range(m):
        for j in range(i + 1, m):
            total += unlike(topic, bounds[i], bounds[i + 1], bounds[j], bounds[j + 1])
    return total / (m * (m - 1) / 2.0) if m > 1 else 0.0


@kernel(out=("left", "used", "out"))
def subtopics(
    topic: Any, bounds: Any, named: Any, starts: Any, returned: Any, topics: Any, codes: Any, ks: Any, alphas: Any,
    logs: Any, places: Any, left: Any, used: Any, out: Any,
) -> None:  # fmt: skip
    """Write every measure of some queries.

    `topic` is what each row is about, by number in its query, -1 for nothing; the rows of document d, in the order of the
    ranking, are bounds[d] to bounds[d + 1], and the documents of query q are starts[q] to starts[q + 1], of which so many
    were returned, and are about so many `topics`; `named` are their numbers in the query, in the order of their names.
    `logs` and `places` are discounts, `left` and `used` scratch.
    """
    n_terms = codes.shape[0]
    for q in range(returned.shape[0]):
        mine = bounds[starts[q] : starts[q + 1] + 1]
        docs, count = starts[q + 1] - starts[q], topics[q]
        now = left[: max(count, 1)]
        for t in range(n_terms):
            code, k, alpha = codes[t], ks[t], alphas[t]
            m, v = min(k, returned[q]), 0.0
            if code == DIVERSITY:
                v = mean_unlike(topic, mine, m)
            elif count > 0 and code == RECALL:
                v = found_share(topic[mine[0] :], mine[m] - mine[0], count, now)
            elif count > 0:
                discount = logs if code <= ALPHA_DCG else places
                v, most = as_ranked(topic, mine, m, alpha, discount, now), 0.0
                if code in (ALPHA_NDCG, ERR_IDEAL):
                    most = at_best(topic, mine, named[starts[q] :], docs, k, alpha, discount, now, used)
                elif code == ERR_PLAIN:
                    v, most = alpha * v, f8(count)
                else:
                    going = f8(count)
                    for i in range(k):
                        most += going * discount[i]
                        going *= 1.0 - alpha
                v = min(v / most, 1.0) if most > 0 else 0.0
            out[q * n_terms + t] = v
