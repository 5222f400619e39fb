"""Less common measures of a ranked query, computed from its documents in rank order.

Documents with equal scores form a tie group, which is sorted by gain. If a measure does not average over ties, every
document is a group of its own. If a cut-off k lies within a group, the group counts in proportion to the fraction of
its documents up to rank k. This gives the mean over all orders of the group.

In all functions, a tie group that starts at index `a` ends before index end[a]. Arrays with one number per group, such
as `sums` and `hit`, hold this number at index `a`. R is the number of relevant documents, and N the number of documents
judged irrelevant.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ._jit import inline, kernel, outline
from ._memory import scratch
from .document_pairs import count_pairs
from .ideal_measures import (
    gain_over_cost,
    hits_by_misses,
    late_gain,
    late_ideal,
    ndcg_of_hits,
    ndcg_of_levels,
    smoothed_precision,
)
from .measures import bounded_ratio, sum_first
from .position_measures import bpref, eleven_points, inferred_precision, interpolated_precision, q_measure
from .ranking import ABSENT, PLACE, build_ideal_order, find_gains, is_tied, sort_descending

f8, i8, u8 = np.float64, np.int64, np.uint64

MEASURES = (
    "fall_out", "irrelevant", "relative_precision", "fbeta", "set_ap", "judged", "places", "mean_place", "any_gain",
    "first", "mean_gain", "surprise", "idcg", "idcg_exp", "pairs", "right_pairs", "opa", "any_pair", "q", "iprec",
    "eleven_points", "bpref", "inf_ap", "r_precision_at", "gain_over_cost", "hits_by_misses", "ndcg_of_hits",
    "ndcg_of_levels", "late_ndcg", "smoothed_ap",
)  # fmt: skip
FALL_OUT, IRRELEVANT, RELATIVE, FBETA, SET_AP, JUDGED, PLACES, MEAN_PLACE, ANY_GAIN = range(9)
FIRST, MEAN_GAIN, SURPRISE, IDCG, IDCG_EXP, PAIRS, RIGHT, OPA, ANY_PAIR, Q, IPREC, ELEVEN, BPREF, INF_AP = range(9, 23)
R_PRECISION, GAIN_OVER_COST, HITS_BY_MISSES, NDCG_OF_HITS, NDCG_OF_LEVELS, LATE_NDCG, SMOOTHED_AP = range(23, 30)

# The value of the cut-off k that represents the whole ranking. It exceeds the length of any ranking.
ALL = 1 << 40


@inline
def read_worth(key: Any, a: Any, small: Any, values: Any) -> Any:
    """Return the gain of the document with this key, in the query that starts at row `a`.

    If `small` is true, grades are small integers, and `values` holds the gain of each grade. Otherwise, `values` holds
    the gain of each row.
    """
    return values[key & u8(255)] if small else values[u8(a) + ((key >> u8(8)) & PLACE)]


@outline
def sum_within_cutoff(sums: Any, end: Any, n: Any, m: Any) -> Any:
    """Return the sum of values at the first m ranks, given the sum of values in each tie group.

    A group that is cut off at rank m counts in proportion to the fraction of its ranks up to m. A group that starts at
    `a` ends before end[a].
    """
    total, a = 0.0, i8(0)
    while a < m:
        b = end[a]
        total += sums[a] if b <= m else sums[a] * (m - a) / (b - a)
        a = b
    return total


@outline
def sum_place_gain(sums: Any, end: Any, n: Any) -> Any:
    """Return the sum of rank times gain over n documents, given the sum of gains in each tie group.

    Each document in a group has the mean rank of the group. A group that starts at `a` ends before end[a].
    """
    total, a = 0.0, i8(0)
    while a < n:
        b = end[a]
        total += sums[a] * (a + (b - a + 1) / 2.0)
        a = b
    return total


@outline
def first_relevant_place(hit: Any, end: Any, n: Any) -> Any:
    """Return the expected rank of the first relevant document over all orders of tied documents, or 0 if there is none.

    The tie group that starts at `a` ends before end[a] and contains hit[a] relevant documents.
    """
    a = i8(0)
    while a < n:
        b = end[a]
        if hit[a] > 0:
            # The relevant documents are at random ranks within the group. Return the expected value of the first of
            # these ranks.
            return a + (b - a + 1.0) / (hit[a] + 1.0)
        a = b
    return 0.0


@outline
def count_measure(
    code: Any, k: Any, p: Any, n: Any, R: Any, irrelevant: Any, hit: Any, judged: Any, sums: Any, info: Any, end: Any
) -> Any:
    """Return a measure that depends only on counts of documents or sums over documents.

    `code` is the measure, k its cut-off, p its parameter, and n the number of returned documents. The query has R
    relevant documents and `irrelevant` other documents. For each group of documents with tied scores, `hit` and
    `judged` hold the numbers of relevant and judged documents. `sums` holds the sum of gains, and `info` the sum of
    self-information (-log2 of the share of users who know a document).
    """
    m = min(k, n)
    if code == IRRELEVANT:
        return f8(irrelevant > 0)
    if code == PLACES:
        return sum_place_gain(sums, end, n)
    if code in (MEAN_PLACE, ANY_GAIN):
        total = sum_within_cutoff(sums, end, n, n)
        if code == ANY_GAIN:
            return f8(total > 0)
        return sum_place_gain(sums, end, n) / total if total > 0 else 0.0
    if code == FIRST:
        return first_relevant_place(hit, end, n)
    if code in (MEAN_GAIN, SURPRISE):
        return sum_within_cutoff(sums if code == MEAN_GAIN else info, end, n, m) / m if m else 0.0
    if code == JUDGED:
        return bounded_ratio(sum_within_cutoff(judged, end, n, m), f8(m))
    hits = sum_within_cutoff(hit, end, n, m)
    if code == FALL_OUT:
        return bounded_ratio(max(m - hits, 0.0), f8(irrelevant))
    if code == RELATIVE:
        return bounded_ratio(hits, f8(min(m if k == ALL else k, R)))
    if code == SET_AP:
        return bounded_ratio(hits, f8(n)) * bounded_ratio(hits, f8(R))
    return bounded_ratio((1.0 + p) * hits, p * R + (k if k < ALL else n))


@outline
def ideal_dcg(best: Any, n: Any, discount: Any) -> Any:
    """Return the DCG of the first n documents in the ideal order. `best` holds the gains in this order."""
    total = 0.0
    for i in range(n):
        total += best[i] * discount[i]
    return total


@outline
def pair_measure(code: Any, pairs: Any, right: Any) -> Any:
    """Return a measure based on pairs of documents with different gains.

    `pairs` is the number of such pairs, and `right` the number of pairs in the right order.
    """
    if code in (PAIRS, RIGHT):
        return pairs if code == PAIRS else right
    return bounded_ratio(right, pairs) if code == OPA else f8(pairs > 0)


@outline
def position_measure(
    code: Any, k: Any, p: Any, n: Any, R: Any, N: Any, worth: Any, level: Any, un: Any, hit: Any, sums: Any, end: Any,
    best: Any, n_best: Any,
) -> Any:  # fmt: skip
    """Return a measure that is computed rank by rank (see module `position_measures`).

    `code` is the measure, k its cut-off, p its parameter, and n the number of returned documents. `worth` holds the
    gains in rank order, and `best` those in the ideal order. A document is relevant if its gain is at least `level`.
    `un` marks unjudged documents. R is the number of relevant documents, and N the number of documents judged
    irrelevant.
    """
    if R == 0:
        return 0.0
    if code == Q:
        return min(q_measure(hit, sums, end, n, min(k, n), p, best, n_best) / min(R, k), 1.0)
    if code == IPREC:
        return interpolated_precision(worth, level, n, i8(np.floor(p * R + 0.9)))
    if code == ELEVEN:
        return min(eleven_points(worth, level, n, R), 1.0)
    if code == BPREF:
        return min(bpref(worth, level, un, n, R, N) / R, 1.0)
    if code == INF_AP:
        return min(inferred_precision(worth, level, un, n) / R, 1.0)
    # The remaining measure is R-precision at the rank p * R. Adding 0.9 before the conversion to an integer rounds this
    # rank as trec_eval does.
    cut = i8(p * R + 0.9)
    return bounded_ratio(sum_within_cutoff(hit, end, n, min(cut, n)), f8(cut))


@outline
def ideal_measure(
    code: Any, k: Any, n: Any, R: Any, worth: Any, level: Any, sums: Any, end: Any, best: Any, n_best: Any,
    discount: Any,
) -> Any:  # fmt: skip
    """Return a measure that compares the ranking with the ideal order (see module `ideal_measures`).

    `code` is the measure, k its cut-off, and n the number of returned documents. `worth` holds the gains in rank order,
    and `best` those in the ideal order. A document is relevant if its gain is at least `level`.
    """
    if R == 0 or n_best == 0:
        return 0.0
    if code == GAIN_OVER_COST:
        return bounded_ratio(gain_over_cost(worth, n, best, n_best), sum_first(best, n_best))
    if code == HITS_BY_MISSES:
        return bounded_ratio(hits_by_misses(worth, level, n, discount), f8(R))
    if code == NDCG_OF_HITS:
        return min(ndcg_of_hits(worth, n, best, n_best, discount), 1.0)
    if code == NDCG_OF_LEVELS:
        return min(ndcg_of_levels(worth, n, best, n_best, discount), 1.0)
    if code == LATE_NDCG:
        return bounded_ratio(late_gain(sums, end, min(k, n), discount), late_ideal(best, min(k, n_best), discount))
    return smoothed_precision(worth, level, n, R)


@kernel(out=("numbers", "places", "out"))
def compute_extended_measures(
    keys: Any, which: Any, starts: Any, s: Any, small: Any, values: Any, powers: Any, infos: Any, unjudged: Any,
    level: Any, average: Any, relevant: Any, extra_gain: Any, extra_power: Any, discount: Any, codes: Any, ks: Any,
    parameters: Any, numbers: Any, places: Any, out: Any,
) -> None:  # fmt: skip
    """Write the requested measures (`codes`) of some queries (`which`) to `out`.

    `keys` has a row for each of these queries, which contains the sorted keys of its documents (see module `ranking`).
    The arguments are those of `query_sums.compute_measures`, apart from these:

    - `infos` holds the self-information of documents (-log2 of the share of users who know a document), by grade or by
      row, like `powers`. It may be empty.
    - `unjudged`, unless it is empty, holds a number for each row: 0 for a judged document, 1 for an unjudged document
      in the pool, and 2 for a document outside the pool.
    - `numbers` and `places` are working memory: arrays of zeros with eight and five rows, respectively. Each row is
      longer than any query and longer than `discount`.
    """
    n_terms = codes.shape[0]
    worth, info, sums, infosum = numbers[0], numbers[1], numbers[2], numbers[3]
    gain, pool, best, most = numbers[4], numbers[5], numbers[6], numbers[7]
    place, end, hit, n_judged, un = places[0], places[1], places[2], places[3], places[4]
    count, pairs = scratch(256, i8), scratch(6, f8)
    count[:] = 0
    wants_best, wants_most, wants_pairs = False, False, False
    for t in range(n_terms):
        wants_best |= (codes[t] == IDCG) | (codes[t] == Q) | (codes[t] >= GAIN_OVER_COST)
        wants_most |= codes[t] == IDCG_EXP
        wants_pairs |= (codes[t] >= PAIRS) & (codes[t] <= ANY_PAIR)
    for j in range(which.shape[0]):
        q = which[j]
        a, length = starts[q], starts[q + 1] - starts[q]
        row, score = keys[j], s[a : a + length]
        n = length
        while n > 0 and (row[n - 1] >> u8(32)) == ABSENT:
            n -= 1
        c = find_gains(row, length, small, values[a:] if not small else values, place, gain)
        R, blank = i8(0), i8(0)
        for i in range(c):
            R += i8(gain[i] >= level)
        judged = R
        for i in range(a, a + length if unjudged.shape[0] else a):
            blank += i8(unjudged[i] > 0)
        if relevant.shape[0]:
            R = relevant[q]
        n_best, n_most = i8(0), i8(0)
        if wants_best:
            n_best = build_ideal_order(gain, c, R - judged, extra_gain, small, pool, count, best)
        if wants_most and small:
            n_most = build_ideal_order(gain, c, R - judged, extra_gain, small, pool, count, most)
            for i in range(n_most):
                most[i] = powers[i8(most[i])]
        elif wants_most:
            for i in range(c):
                gain[i] = read_worth(row[place[i]], a, small, powers)
            n_most = build_ideal_order(gain, c, R - judged, extra_power, small, pool, count, most)
        for i in range(n):
            worth[i] = read_worth(row[i], a, small, values)
            info[i] = read_worth(row[i], a, small, infos) if infos.shape[0] else 0.0
            un[i] = i8(unjudged[a + i8((row[i] >> u8(8)) & PLACE)]) if unjudged.shape[0] else i8(0)
        first = i8(0)
        while first < n:
            b = first + 1
            while average and b < n and is_tied(row, b - 1, score):
                b += 1
            if b > first + 1:
                sort_descending(worth, first, b)
                sort_descending(info, first, b)
            end[first], hit[first], n_judged[first], sums[first], infosum[first] = b, i8(0), i8(0), 0.0, 0.0
            for at in range(first, b):
                hit[first] += i8(worth[at] >= level)
                n_judged[first] += i8(un[at] == 0)
                sums[first] += worth[at]
                infosum[first] += info[at]
            first = b
        if wants_pairs:
            # Pairs include documents that were not returned, which rank below all others.
            for i in range(n, length):
                worth[i] = read_worth(row[i], a, small, values)
            count_pairs(worth, end, n, length, pool, info, pairs)
        irrelevant = length - judged
        for t in range(n_terms):
            code, k, p = codes[t], ks[t], parameters[t]
            if code <= SURPRISE:
                v = count_measure(code, k, p, n, R, irrelevant, hit, n_judged, sums, infosum, end)
            elif code == IDCG:
                v = ideal_dcg(best, min(k, n_best), discount)
            elif code == IDCG_EXP:
                v = ideal_dcg(most, min(k, n_most), discount)
            elif code <= ANY_PAIR:
                v = pair_measure(code, pairs[2 * i8(p)], pairs[2 * i8(p) + 1])
            elif code >= GAIN_OVER_COST:
                v = ideal_measure(code, k, n, R, worth, level, sums, end, best, n_best, discount)
            else:
                N = irrelevant - blank
                v = position_measure(code, k, p, n, R, N, worth, level, un, hit, sums, end, best, n_best)
            out[q * n_terms + t] = v
