"""More measures of a ranked query, from its documents by place: what metrics of rankings ask for less often.

Documents of equal score are a group, sorted by worth; where an order decides, each is a group of its own. What a cut-off
leaves of a group is worth that share of it: the mean over all orders.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ._jit import inline, kernel, outline
from ._memory import scratch
from .by_ideal import (
    gain_over_cost,
    hits_by_misses,
    late_gain,
    late_ideal,
    ndcg_of_hits,
    ndcg_of_levels,
    smoothed_precision,
)
from .by_place import bpref, eleven_points, inferred_precision, interpolated_precision, q_measure
from .measures import total_of
from .pairs import count_pairs
from .ranking import ABSENT, PLACE, best_first, sort_falling, tied, worthy

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

ALL = 1 << 40  # the cut-off of a measure without one


@inline
def worth_of(key: Any, a: Any, small: Any, values: Any) -> Any:
    """The worth of a document, from its key: of its grade if these are small integers, else of its row."""
    return values[key & u8(255)] if small else values[u8(a) + ((key >> u8(8)) & PLACE)]


@inline
def quotient(a: Any, b: Any) -> Any:
    """Return a / b, at most 1; 0 where b is 0."""
    return min(a / b, 1.0) if b > 0 else 0.0


@outline
def among(held: Any, end: Any, n: Any, m: Any) -> Any:
    """What the first m of n places hold, where groups hold so much."""
    total, a = 0.0, i8(0)
    while a < m:
        b = end[a]
        total += held[a] if b <= m else held[a] * (m - a) / (b - a)
        a = b
    return total


@outline
def place_sum(sums: Any, end: Any, n: Any) -> Any:
    """The sum of place times gain."""
    total, a = 0.0, i8(0)
    while a < n:
        b = end[a]
        total += sums[a] * (a + (b - a + 1) / 2.0)
        a = b
    return total


@outline
def first_place(hit: Any, end: Any, n: Any) -> Any:
    """The place of the first relevant document; 0 without."""
    a = i8(0)
    while a < n:
        b = end[a]
        if hit[a] > 0:
            return a + (b - a + 1.0) / (hit[a] + 1.0)
        a = b
    return 0.0


@outline
def of_counts(
    code: Any, k: Any, p: Any, n: Any, R: Any, irrelevant: Any, hit: Any, seen: Any, sums: Any, info: Any, end: Any
) -> Any:
    """Return a measure of how many of the first k are relevant, irrelevant or judged, or of sums over them."""
    m = min(k, n)
    if code == IRRELEVANT:
        return f8(irrelevant > 0)
    if code == PLACES:
        return place_sum(sums, end, n)
    if code in (MEAN_PLACE, ANY_GAIN):
        total = among(sums, end, n, n)
        if code == ANY_GAIN:
            return f8(total > 0)
        return place_sum(sums, end, n) / total if total > 0 else 0.0
    if code == FIRST:
        return first_place(hit, end, n)
    if code in (MEAN_GAIN, SURPRISE):
        return among(sums if code == MEAN_GAIN else info, end, n, m) / m if m else 0.0
    if code == JUDGED:
        return quotient(among(seen, end, n, m), f8(m))
    hits = among(hit, end, n, m)
    if code == FALL_OUT:
        return quotient(max(m - hits, 0.0), f8(irrelevant))
    if code == RELATIVE:
        return quotient(hits, f8(min(m if k == ALL else k, R)))
    if code == SET_AP:
        return quotient(hits, f8(n)) * quotient(hits, f8(R))
    return quotient((1.0 + p) * hits, p * R + (k if k < ALL else n))


@outline
def ideal_gain(best: Any, n: Any, discount: Any) -> Any:
    """The discounted gain of the first n of an ideal order."""
    total = 0.0
    for i in range(n):
        total += best[i] * discount[i]
    return total


@outline
def of_pairs(code: Any, pairs: Any, right: Any) -> Any:
    """Return a measure of pairs, and of those in the right order."""
    if code in (PAIRS, RIGHT):
        return pairs if code == PAIRS else right
    return quotient(right, pairs) if code == OPA else f8(pairs > 0)


@outline
def of_places(
    code: Any, k: Any, p: Any, n: Any, R: Any, N: Any, worth: Any, level: Any, un: Any, hit: Any, sums: Any, end: Any,
    best: Any, n_best: Any,
) -> Any:  # fmt: skip
    """Return a measure that goes from place to place."""
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
    cut = i8(p * R + 0.9)  # as trec_eval rounds
    return quotient(among(hit, end, n, min(cut, n)), f8(cut))


@outline
def of_ideal(
    code: Any, k: Any, n: Any, R: Any, worth: Any, level: Any, sums: Any, end: Any, best: Any, n_best: Any,
    discount: Any,
) -> Any:  # fmt: skip
    """Return a measure beside the ideal order."""
    if R == 0 or n_best == 0:
        return 0.0
    if code == GAIN_OVER_COST:
        return quotient(gain_over_cost(worth, n, best, n_best), total_of(best, n_best))
    if code == HITS_BY_MISSES:
        return quotient(hits_by_misses(worth, level, n, discount), f8(R))
    if code == NDCG_OF_HITS:
        return min(ndcg_of_hits(worth, n, best, n_best, discount), 1.0)
    if code == NDCG_OF_LEVELS:
        return min(ndcg_of_levels(worth, n, best, n_best, discount), 1.0)
    if code == LATE_NDCG:
        return quotient(late_gain(sums, end, min(k, n), discount), late_ideal(best, min(k, n_best), discount))
    return smoothed_precision(worth, level, n, R)


@kernel(out=("numbers", "places", "out"))
def order(
    keys: Any, which: Any, starts: Any, s: Any, small: Any, values: Any, powers: Any, infos: Any, unjudged: Any,
    level: Any, average: Any, relevant: Any, extra_gain: Any, extra_power: Any, discount: Any, codes: Any, ks: Any,
    parameters: Any, numbers: Any, places: Any, out: Any,
) -> None:  # fmt: skip
    """Write these measures of some queries, whose rows of keys are in order (see `query_sums.rank`).

    `numbers` and `places` are scratch: eight rows and five, longer than a query and than `discount`, and zero. `infos`
    (-log2 of a share; may be empty) is as `powers`. `unjudged` (by row; may be empty) is 1 for a document of the pool
    that nobody judged, 2 for one outside.
    """
    n_terms = codes.shape[0]
    worth, info, sums, infosum = numbers[0], numbers[1], numbers[2], numbers[3]
    gain, pool, best, most = numbers[4], numbers[5], numbers[6], numbers[7]
    place, end, hit, seen, un = places[0], places[1], places[2], places[3], places[4]
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
        c = worthy(row, length, small, values[a:] if not small else values, place, gain)
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
            n_best = best_first(gain, c, R - judged, extra_gain, small, pool, count, best)
        if wants_most and small:
            n_most = best_first(gain, c, R - judged, extra_gain, small, pool, count, most)
            for i in range(n_most):
                most[i] = powers[i8(most[i])]
        elif wants_most:
            for i in range(c):
                gain[i] = worth_of(row[place[i]], a, small, powers)
            n_most = best_first(gain, c, R - judged, extra_power, small, pool, count, most)
        for i in range(n):
            worth[i] = worth_of(row[i], a, small, values)
            info[i] = worth_of(row[i], a, small, infos) if infos.shape[0] else 0.0
            un[i] = i8(unjudged[a + i8((row[i] >> u8(8)) & PLACE)]) if unjudged.shape[0] else i8(0)
        first = i8(0)
        while first < n:
            b = first + 1
            while average and b < n and tied(row, b - 1, score):
                b += 1
            if b > first + 1:
                sort_falling(worth, first, b)
                sort_falling(info, first, b)
            end[first], hit[first], seen[first], sums[first], infosum[first] = b, i8(0), i8(0), 0.0, 0.0
            for at in range(first, b):
                hit[first] += i8(worth[at] >= level)
                seen[first] += i8(un[at] == 0)
                sums[first] += worth[at]
                infosum[first] += info[at]
            first = b
        if wants_pairs:
            for i in range(n, length):
                worth[i] = worth_of(row[i], a, small, values)
            count_pairs(worth, end, n, length, pool, info, pairs)
        irrelevant = length - judged
        for t in range(n_terms):
            code, k, p = codes[t], ks[t], parameters[t]
            if code <= SURPRISE:
                v = of_counts(code, k, p, n, R, irrelevant, hit, seen, sums, infosum, end)
            elif code == IDCG:
                v = ideal_gain(best, min(k, n_best), discount)
            elif code == IDCG_EXP:
                v = ideal_gain(most, min(k, n_most), discount)
            elif code <= ANY_PAIR:
                v = of_pairs(code, pairs[2 * i8(p)], pairs[2 * i8(p) + 1])
            elif code >= GAIN_OVER_COST:
                v = of_ideal(code, k, n, R, worth, level, sums, end, best, n_best, discount)
            else:
                N = irrelevant - blank
                v = of_places(code, k, p, n, R, N, worth, level, un, hit, sums, end, best, n_best)
            out[q * n_terms + t] = v
