"""Documents of equal score: what a measure is worth on average over all orders in which they could stand.

A group of `n` tied documents, `r` of them relevant, stands after `c` others, of which `h` are relevant; a cut-off leaves
its first `m` places. Every mean is a closed form or a sum of `m` terms, all positive: no order is drawn, none tried.
After McSherry and Najork, "Computing information retrieval performance measures efficiently in the presence of tied
scores" (2008).
"""

from __future__ import annotations

from typing import Any


def sort_falling(values: Any, a: Any, b: Any) -> None:
    """Sort values[a:b], the largest first, in place: Shell's sort."""
    gap = (b - a) // 2
    while gap:
        for i in range(a + gap, b):
            mine, at = values[i], i
            while at >= a + gap and values[at - gap] < mine:
                values[at] = values[at - gap]
                at -= gap
            values[at] = mine
        gap //= 2


def spread(values: Any, a: Any, b: Any) -> None:
    """Give every document of a group the mean of the group; the order of its rows plays no part."""
    sort_falling(values, a, b)
    total = 0.0
    for i in range(a, b):
        total += values[i]
    for i in range(a, b):
        values[i] = total / (b - a)


def no_hit(n: Any, r: Any, m: Any) -> Any:
    """Return the probability that none of the first m places is relevant."""
    none = 1.0
    for i in range(m):
        none *= (n - r - i) / (n - i)
    return max(none, 0.0)


def first_hit(c: Any, n: Any, r: Any, m: Any) -> Any:
    """Return the mean of one over the place of the first relevant document, 0 where it is not among m places."""
    total, none = 0.0, 1.0
    for i in range(m):
        if none <= 0:
            break
        total += none * (r / (n - i)) / (c + i + 1.0)
        none *= (n - r - i) / (n - i)
    return total


def precision_sum(c: Any, h: Any, n: Any, r: Any, m: Any) -> Any:
    """Return the mean of the sum of precisions at the relevant ones of the first m places of a group.

    A place is relevant with probability r / n, and then each place of the group before it with (r - 1) / (n - 1).
    """
    before = (r - 1.0) / (n - 1.0) if n > 1 else 0.0
    total = 0.0
    for i in range(m if r > 0 else 0):
        total += (h + 1.0 + i * before) / (c + i + 1.0)
    return total * (r / n)


def precision_mean(sums: Any, c: Any, h: Any, n: Any, r: Any, m: Any) -> Any:
    """Return the mean of (sums + precision sum) / hits, where m places of a group take x of its relevant documents.

    x has the hypergeometric distribution: found from its mode outwards, so that nothing underflows, and normalised.
    """
    low, high = max(0, m - (n - r)), min(m, r)
    mode = min(max(((m + 1) * (r + 1)) // (n + 2), low), high)
    total, weight = 0.0, 0.0
    for side in range(2):
        x, p = mode, 1.0
        while low <= x <= high and p > 0:
            if h + x > 0 and (side == 0 or x != mode):
                total += p * (sums + precision_sum(c, h, m, x, m)) / (h + x)
            if side == 0 or x != mode:
                weight += p
            if side == 0:
                p *= ((r - x) * (m - x)) / ((x + 1.0) * (n - r - m + x + 1.0))
                x += 1
            else:
                p *= (x * (n - r - m + x)) / ((r - x + 1.0) * (m - x + 1.0))
                x -= 1
    return total / weight


def stop_group(stop: Any, top: Any, a: Any, b: Any, m: Any, mean: Any) -> Any:
    """Return the mean of one over the place at which a reader stops within the first m places of a group.

    `stop` over `top` is the probability to stop at a document.
    mean[i] becomes the mean, over all choices of i documents, of the probability to go on after them, built one document
    at a time: mean[b - a] is that of going on behind the group.
    """
    sort_falling(stop, a, b)
    n = b - a
    longest = m + 1 if m < n else n
    for i in range(longest + 1):
        mean[i] = 0.0
    mean[0] = 1.0
    for t in range(1, n + 1):
        on = 1.0 - stop[a + t - 1] / top
        for i in range(min(t, longest), 0, -1):
            mean[i] = ((t - i) * mean[i] + i * (on * mean[i - 1])) / t
    total = 0.0
    for i in range(m):
        total += (mean[i] - mean[i + 1]) / (a + i + 1.0)
    return total
