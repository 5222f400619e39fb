"""Averages of ranking measures over all possible orders of tied documents.

In all functions, a group consists of `n` tied documents, of which `r` are relevant. `c` documents rank above the group,
and `h` of these are relevant. The first `m` places in the group are within the cut-off of the measure. Every mean is
computed exactly, from a formula or a sum of positive terms; no orders are sampled. See McSherry and Najork, "Computing
information retrieval performance measures efficiently in the presence of tied scores" (2008).
"""

from __future__ import annotations

from typing import Any


def sort_descending(values: Any, a: Any, b: Any) -> None:
    """Sort values[a:b] in place, in descending order, with Shellsort."""
    gap = (b - a) // 2
    while gap:
        for i in range(a + gap, b):
            mine, at = values[i], i
            while at >= a + gap and values[at - gap] < mine:
                values[at] = values[at - gap]
                at -= gap
            values[at] = mine
        gap //= 2


def average_group(values: Any, a: Any, b: Any) -> None:
    """Replace the value of every document in a tie group with the mean of the group.

    The values are sorted first, so that the sum does not depend on the row order.
    """
    sort_descending(values, a, b)
    total = 0.0
    for i in range(a, b):
        total += values[i]
    for i in range(a, b):
        values[i] = total / (b - a)


def probability_of_no_hit(n: Any, r: Any, m: Any) -> Any:
    """Return the probability that none of the first m of n tied documents is relevant, if r of them are relevant."""
    none = 1.0
    for i in range(m):
        none *= (n - r - i) / (n - i)
    return max(none, 0.0)


def mean_reciprocal_rank(c: Any, n: Any, r: Any, m: Any) -> Any:
    """Return the expected reciprocal rank of the first relevant document, which is in a group of n tied documents.

    The group contains r relevant documents, and c documents rank above it. If there is no relevant document among the
    first m places in the group, the reciprocal rank is 0.
    """
    total, none = 0.0, 1.0
    for i in range(m):
        if none <= 0:
            break
        total += none * (r / (n - i)) / (c + i + 1.0)
        none *= (n - r - i) / (n - i)
    return total


def mean_precision_sum(c: Any, h: Any, n: Any, r: Any, m: Any) -> Any:
    """Return the expected sum of precision at relevant documents among the first m places in a group.

    The group has n documents, of which r are relevant; c documents, of which h are relevant, rank above it. The
    document at a given place is relevant with probability r / n. If it is, each document at an earlier place in the
    group is relevant with probability (r - 1) / (n - 1).
    """
    before = (r - 1.0) / (n - 1.0) if n > 1 else 0.0
    total = 0.0
    for i in range(m if r > 0 else 0):
        total += (h + 1.0 + i * before) / (c + i + 1.0)
    return total * (r / n)


def mean_precision_per_hit(sums: Any, c: Any, h: Any, n: Any, r: Any, m: Any) -> Any:
    """Return the expected mean of precision at the relevant documents found, for a cut-off within a tie group.

    `sums` is the sum of precision above the group; the other parameters are those of `mean_precision_sum`. For each
    possible number x of relevant documents among the first m places in the group, the average precision is
    (sums + expected sum of precision in the group) / (h + x). The result is the mean of these values over x, which has
    a hypergeometric distribution. Probabilities are computed relative to that of the most probable x, so that the
    probabilities that matter do not underflow, and are normalized at the end.
    """
    low, high = max(0, m - (n - r)), min(m, r)
    # Start at the most probable x and go up, then start there again and go down. Each probability is computed from that
    # of the preceding x.
    mode = min(max(((m + 1) * (r + 1)) // (n + 2), low), high)
    total, weight = 0.0, 0.0
    for side in range(2):
        x, p = mode, 1.0
        while low <= x <= high and p > 0:
            if h + x > 0 and (side == 0 or x != mode):
                total += p * (sums + mean_precision_sum(c, h, m, x, m)) / (h + x)
            if side == 0 or x != mode:
                weight += p
            if side == 0:
                p *= ((r - x) * (m - x)) / ((x + 1.0) * (n - r - m + x + 1.0))
                x += 1
            else:
                p *= (x * (n - r - m + x)) / ((r - x + 1.0) * (m - x + 1.0))
                x -= 1
    return total / weight


def mean_reciprocal_stop(stop: Any, top: Any, a: Any, b: Any, m: Any, mean: Any) -> Any:
    """Return the expected reciprocal of the rank at which a user who reaches a tie group stops.

    The reciprocal is 0 unless the user stops at one of the first m places in the group. The group consists of the
    documents `a` to `b` - 1. A user who looks at document i stops there with probability stop[i] / top. The function
    sets mean[i] to the probability that a user continues after i documents in the group, averaged over all choices of i
    documents. If m is b - a, mean[b - a] is the probability that the user continues after the group.
    """
    sort_descending(stop, a, b)
    n = b - a
    longest = m + 1 if m < n else n
    for i in range(longest + 1):
        mean[i] = 0.0
    mean[0] = 1.0
    for t in range(1, n + 1):
        on = 1.0 - stop[a + t - 1] / top
        # Include document t in the means. Start with the largest i, so that mean[i - 1] is still the mean without it.
        for i in range(min(t, longest), 0, -1):
            mean[i] = ((t - i) * mean[i] + i * (on * mean[i - 1])) / t
    total = 0.0
    for i in range(m):
        total += (mean[i] - mean[i + 1]) / (a + i + 1.0)
    return total
