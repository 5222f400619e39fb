"""Compute all measures of each query, and sum the measures and their squares over queries.

A query is represented by one row of uint64 keys, one key for each document. A key consists of 32 bits for the score, 24
bits for the index of the document in the query, and 8 bits for its grade. Sorting the keys yields the ranking (see
`ranking.pack_keys`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ._jit import kernel
from ._memory import scratch
from .block_sums import add_number, add_square
from .exact_sums import add_exact, carry, carry_all
from .measures import (
    CG_EXP,
    NDCG,
    NDCG_EXP,
    RBP,
    RELEVANT,
    count_before,
    linear_measure,
    rank_biased_precision,
    tied_measure,
    untied_measure,
)
from .ranking import (
    ABSENT,
    PLACE,
    average_groups,
    build_ideal_order,
    find_gains,
    find_tie_groups,
    is_tied,
    scatter_worth,
    sort_by_full_score,
)
from .score_terms import add_fixed, split_limbs

f8, i8, u8 = np.float64, np.int64, np.uint64

CHUNKS = u8(68)


@kernel(out=("keys", "numbers", "places", "facts", "out"))
def compute_measures(
    keys: Any, which: Any, starts: Any, s: Any, halves: Any, small: Any, values: Any, powers: Any, level: Any,
    average: Any, relevant: Any, extra_gain: Any, extra_power: Any, discount: Any, codes: Any, ks: Any, parameters: Any,
    numbers: Any, places: Any, facts: Any, out: Any,
) -> None:  # fmt: skip
    """Write the requested measures of some queries (`which`), whose rows of keys are sorted, to `out`.

    Measures are specified by `codes`, cut-offs `ks` and `parameters`. The other arguments:

    - If `small` is true, grades are small integers, and `values` holds the gain of each grade. Otherwise, `values`
      holds the gain of each row. `powers` holds the corresponding 2**g - 1 for each gain g; it may be empty. A document
      is relevant if its gain is at least `level`.
    - `average` indicates whether measures are averaged over the orders of tied documents.
    - `relevant`, unless it is empty, holds the number of relevant documents for each query. This number includes
      documents without a row, whose gain is `extra_gain`; `extra_power` is 2**extra_gain - 1.
    - `discount` holds the discount for each rank.
    - If `halves` is true, a key contains only the upper half of the bits of the score; `s` holds the full scores.
    - Five numbers are written to `facts` for each query: the numbers of returned irrelevant, returned relevant, missing
      irrelevant and missing relevant documents (missing means judged but not returned), and whether the query has no
      relevant document.
    - `numbers` and `places` are working memory: arrays of zeros with eight and three rows, respectively. Each row is
      longer than any query and longer than `discount`.
    """
    n_terms, exponential = codes.shape[0], powers.shape[0] > 0
    gain, power, rel, stop = numbers[0], numbers[1], numbers[2], numbers[3]
    pool, mean, best, most = numbers[4], numbers[5], numbers[6], numbers[7]
    place, end, hit, count = places[0], places[1], places[2], scratch(256, i8)
    count[:] = 0
    wants_best, wants_most = False, False
    for t in range(n_terms):
        wants_best |= codes[t] == NDCG
        wants_most |= codes[t] == NDCG_EXP
    for j in range(which.shape[0]):
        q = which[j]
        a, length = starts[q], starts[q + 1] - starts[q]
        row, score = keys[j], s[a : a + length]
        n = length
        while n > 0 and (row[n - 1] >> u8(32)) == ABSENT:
            n -= 1
        has_ties = i8(0)
        for i in range(n - 1):
            # Check for ties among the upper halves of scores, in a loop without branches.
            has_ties |= i8(((row[i] ^ row[i + 1]) >> u8(32)) == u8(0))
        # Scores with equal upper halves may differ in the lower half, so sort them by the full score.
        if halves and has_ties:
            sort_by_full_score(row, n, score)
        c = find_gains(row, length, small, values[a:] if not small else values, place, gain)
        everything, returned = i8(0), i8(0)
        for i in range(c):
            rel[i] = gain[i] >= level
            everything += i8(gain[i] >= level)
            returned += i8((gain[i] >= level) & (place[i] < n))
        for i in range(c if exponential else 0):
            at_row = row[place[i]]
            power[i] = powers[at_row & u8(255) if small else u8(a) + ((at_row >> u8(8)) & PLACE)]
            stop[i] = power[i]
        judged = everything
        if relevant.shape[0]:
            everything = relevant[q]
        extra, n_best, n_most = everything - judged, i8(0), i8(0)
        if wants_best:
            n_best = build_ideal_order(gain, c, extra, extra_gain, small, pool, count, best)
        if wants_most and small:
            n_most = build_ideal_order(gain, c, extra, extra_gain, small, pool, count, most)
            for i in range(n_most):
                most[i] = powers[i8(most[i])]
        elif wants_most:
            n_most = build_ideal_order(power, c, extra, extra_power, small, pool, count, most)
        c, mixed = count_before(place, c, n), False
        # If there are ties, write the gain at every rank, even where it is 0, so that tied documents can be assigned
        # their mean gain. Averaging is needed only if some tied documents have different gains (`mixed`).
        if average and has_ties:
            for worth in (gain, rel, power, stop):
                scatter_worth(worth, place, c, n)
            for i in range(n):
                place[i] = i
                mixed |= i + 1 < n and gain[i] != gain[i + 1] and is_tied(row, i, score)
            c = n
        if mixed:
            find_tie_groups(row, n, score, rel, end, hit)
            for worth in (gain, rel, power):
                average_groups(worth, n, end)
        facts[5 * q] = n - returned
        facts[5 * q + 1] = returned
        facts[5 * q + 2] = length - n - (judged - returned)
        facts[5 * q + 3] = judged - returned
        facts[5 * q + 4] = i8(everything == 0)
        for t in range(n_terms):
            code, k = codes[t], ks[t]
            if code <= RELEVANT:
                exp = CG_EXP <= code <= NDCG_EXP
                worth, ideal = power if exp else gain, most[:n_most] if exp else best[:n_best]
                v = linear_measure(code - 3 if exp else code, k, n, everything, rel, worth, place, c, discount, ideal)
            elif code == RBP:
                v = rank_biased_precision(rel, place, count_before(place, c, min(k, n)), parameters[t])
            elif mixed:
                v = tied_measure(code, k, n, everything, end, hit, stop, parameters[t], mean)
            else:
                v = untied_measure(code, k, n, everything, rel, stop, parameters[t], place, c)
            out[q * n_terms + t] = v


@kernel(out=("rows", "queries", "excess", "sums", "large", "squares", "large_squares", "w2", "w2x", "more"))
def add_queries(
    values: Any, facts: Any, w: Any, at: Any, starts: Any, unbounded: Any,
    rows: Any, queries: Any, excess: Any, sums: Any, large: Any, squares: Any, large_squares: Any,
    w2: Any, w2x: Any, more: Any,
) -> Any:  # fmt: skip
    """Add the measures of each query to the sums of its cell.

    `values` holds the measures of each query, and `facts` the five numbers that `compute_measures` wrote for it. `at`
    holds the cell (such as a slice) of each document and `w` the weight of each query; both may be empty. For a measure
    x between 0 and 1, w * x is added to `sums`, and (w * x)**2 to `squares`. For a measure that can exceed 1
    (`unbounded`), they are added to `large` and `large_squares` instead. For standard errors, `w2` and `w2x` hold the
    sums of w**2 and w**2 * x, or are empty while all weights are 1. `more` holds the sum of w**2 * x - w * x for
    measures that can exceed 1.
    """
    n_terms = unbounded.shape[0]
    heavy, lone = w2.shape[0] > 0, at.shape[0] == 0
    for q in range(starts.shape[0]):
        i = u8(at[starts[q]]) if at.shape[0] else u8(0)
        weight, empty = w[q] if w.shape[0] else 1.0, u8(facts[5 * q + 4])
        for k in range(4):
            rows[u8(4) * i + u8(k)] += facts[5 * q + k]
        mine = u8(2) * i + empty
        queries[mine] += 1
        if w.shape[0]:
            high, low = split_limbs(weight)
            add_fixed(excess, u8(2) * mine, high - i8(1 << 20), low)
        if heavy:
            add_number(w2, u8(2) * mine, weight * weight)
        for t in range(n_terms):
            v = values[q * n_terms + t] * weight
            cell = i * u8(n_terms) + u8(t)
            if unbounded[t]:
                add_exact(large, cell * CHUNKS, v)
                add_exact(large_squares, cell * CHUNKS, v * v)
                if w.shape[0]:
                    add_exact(more, cell * CHUNKS, v * weight)
                    add_exact(more, cell * CHUNKS, -v)
                # With several cells, propagate carries after each addition, but only in the changed sums. With one
                # cell, it is enough to propagate them at the end.
                if not lone:
                    carry(large, cell * CHUNKS)
                    carry(large_squares, cell * CHUNKS)
                    if w.shape[0]:
                        carry(more, cell * CHUNKS)
            else:
                high, low = split_limbs(v)
                add_fixed(sums, u8(2) * cell, high, low)
                add_square(squares, u8(2) * cell, v * v, False)
                if heavy:
                    add_number(w2x, u8(2) * cell, v * weight)
    if lone:
        carry_all(large)
        carry_all(large_squares)
        carry_all(more)
    return 0
