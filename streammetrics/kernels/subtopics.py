"""Measures such as alpha-NDCG and ERR-IA, for rankings whose documents cover subtopics of a query.

Every subtopic starts with the value 1. Each document that covers a subtopic reduces the value of this subtopic for the
documents ranked below.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ._jit import kernel, outline

f8, i8 = np.float64, np.int64

MEASURES = ("alpha_ndcg", "alpha_dcg", "err_ia", "err_ia_ideal", "err_ia_plain", "subtopic_recall", "diversity")
ALPHA_NDCG, ALPHA_DCG, ERR_IA, ERR_IDEAL, ERR_PLAIN, RECALL, DIVERSITY = range(7)


@outline
def take_worth(topic: Any, a: Any, b: Any, remaining: Any, alpha: Any) -> Any:
    """Return the sum of the remaining values of a document's subtopics, and multiply these values by 1 - alpha.

    topic[a:b] are the subtopics of the document, and `remaining` holds the remaining value of each subtopic.
    """
    total = 0.0
    for i in range(a, b):
        if topic[i] >= 0:
            total += remaining[topic[i]]
            remaining[topic[i]] *= 1.0 - alpha
    return total


@outline
def current_worth(topic: Any, a: Any, b: Any, remaining: Any) -> Any:
    """Return the sum of the remaining values of a document's subtopics, which are topic[a:b]."""
    total = 0.0
    for i in range(a, b):
        if topic[i] >= 0:
            total += remaining[topic[i]]
    return total


@outline
def ranked_gain(topic: Any, bounds: Any, m: Any, alpha: Any, discount: Any, remaining: Any) -> Any:
    """Return the discounted gain of the first m documents.

    The gain of a document is the sum of the remaining values of its subtopics. The rows of document d are bounds[d] to
    bounds[d + 1] - 1.
    """
    remaining[:] = 1.0
    total = 0.0
    for d in range(m):
        total += take_worth(topic, bounds[d], bounds[d + 1], remaining, alpha) * discount[d]
    return total


@outline
def greedy_ideal_gain(
    topic: Any, bounds: Any, by_name: Any, docs: Any, m: Any, alpha: Any, discount: Any, remaining: Any, used: Any
) -> Any:
    """Return the discounted gain of a greedy ideal ranking of m documents.

    At each rank, the greedy ranking places the remaining document with the largest gain or, among documents with equal
    gains, the first in `by_name`, which lists the `docs` documents in name order. `remaining` and `used` are working
    memory.
    """
    remaining[:] = 1.0
    used[:] = 0
    total = 0.0
    for place in range(min(m, docs)):
        # Compare with `>`, so that the first of several documents with equal gains is chosen.
        best, most = i8(-1), 0.0
        for i in range(docs):
            d = by_name[i]
            if not used[d]:
                worth = current_worth(topic, bounds[d], bounds[d + 1], remaining)
                if worth > most:
                    best, most = d, worth
        if best < 0:
            break
        used[best] = 1
        total += take_worth(topic, bounds[best], bounds[best + 1], remaining, alpha) * discount[place]
    return total


@outline
def subtopic_recall(topic: Any, end: Any, topics: Any, is_covered: Any) -> Any:
    """Return subtopic recall: the fraction of all subtopics that the rows before row `end` cover.

    `topics` is the total number of subtopics in the query. `is_covered` is working memory.
    """
    is_covered[:] = 0.0
    found = 0
    for i in range(end):
        if topic[i] >= 0 and is_covered[topic[i]] == 0:
            is_covered[topic[i]] = 1.0
            found += 1
    return found / topics


@outline
def jaccard_distance(topic: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
    """Return one minus the Jaccard similarity of the subtopics of two documents, topic[a:b] and topic[c:d]."""
    both, either, i, j = 0, (b - a) + (d - c), a, c
    # The subtopics of each document are sorted, so one pass over both lists finds the common subtopics.
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
def mean_jaccard_distance(topic: Any, bounds: Any, m: Any) -> Any:
    """Return the mean Jaccard distance over all pairs of the first m documents.

    The subtopics of document i are topic[bounds[i]:bounds[i + 1]].
    """
    total = 0.0
    for i in range(m):
        for j in range(i + 1, m):
            total += jaccard_distance(topic, bounds[i], bounds[i + 1], bounds[j], bounds[j + 1])
    return total / (m * (m - 1) / 2.0) if m > 1 else 0.0


@kernel(out=("remaining", "used", "out"))
def compute_subtopic_measures(
    topic: Any, bounds: Any, by_name: Any, starts: Any, returned: Any, topics: Any, codes: Any, ks: Any, alphas: Any,
    logs: Any, places: Any, remaining: Any, used: Any, out: Any,
) -> None:  # fmt: skip
    """Write the requested subtopic measures of some queries.

    Measures are specified by `codes`, cut-offs `ks` and `alphas`, and are written to `out`. The other arguments:

    - `topic` holds the subtopic of each row as an index within its query, or -1 for none.
    - The rows of document d are bounds[d] to bounds[d + 1] - 1; documents are in rank order.
    - The documents of query q are starts[q] to starts[q + 1] - 1. The first returned[q] of these were returned. All
      documents of the query together cover topics[q] subtopics. `by_name` holds the indices of all these documents
      within the query, sorted by name.
    - `logs` holds the discount of each rank for alpha-DCG, and `places` the discount of each rank for ERR-IA.
      `remaining` and `used` are working memory.
    """
    n_terms = codes.shape[0]
    for q in range(returned.shape[0]):
        mine = bounds[starts[q] : starts[q + 1] + 1]
        docs, count = starts[q + 1] - starts[q], topics[q]
        now = remaining[: max(count, 1)]
        for t in range(n_terms):
            code, k, alpha = codes[t], ks[t], alphas[t]
            m, v = min(k, returned[q]), 0.0
            if code == DIVERSITY:
                v = mean_jaccard_distance(topic, mine, m)
            elif count > 0 and code == RECALL:
                v = subtopic_recall(topic[mine[0] :], mine[m] - mine[0], count, now)
            elif count > 0:
                discount = logs if code <= ALPHA_DCG else places
                v, most = ranked_gain(topic, mine, m, alpha, discount, now), 0.0
                if code in (ALPHA_NDCG, ERR_IDEAL):
                    most = greedy_ideal_gain(topic, mine, by_name[starts[q] :], docs, k, alpha, discount, now, used)
                elif code == ERR_PLAIN:
                    v, most = alpha * v, f8(count)
                else:
                    going = f8(count)
                    for i in range(k):
                        most += going * discount[i]
                        going *= 1.0 - alpha
                v = min(v / most, 1.0) if most > 0 else 0.0
            out[q * n_terms + t] = v
