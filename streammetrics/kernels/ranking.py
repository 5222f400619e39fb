"""Rankings: the documents of each query in the order of their scores, and every measure of that order.

A query is one row of uint64 keys, [falling score 32 | place 24 | grade 8], that numpy sorts: equal scores stay in the
order of their rows. Of float64 scores the key holds the leading half; what it leaves undecided is settled afterwards.
Documents that were judged but not returned come last, padding after them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from . import ties
from ._jit import by_dtype, inline, kernel, outline

f4, f8, i4, i8, u4, u8 = np.float32, np.float64, np.int32, np.int64, np.uint32, np.uint64

PADDING = u8(0xFFFFFFFFFFFFFFFF)
ABSENT = u8(0xFFFFFFFF)  # above the key of every finite score: judged, but not returned
PLACE = u8(0xFFFFFF)


def _falling4(z: Any) -> Any:
    b = f4(z + f4(0.0)).view(i4)  # -0.0 is 0.0
    return u8(u4(b ^ (~(b >> i4(31)) & i4(0x7FFFFFFF))))


def _falling8(z: Any) -> Any:
    b = f8(z + 0.0).view(i8)
    return u8(b ^ (~(b >> i8(63)) & i8(0x7FFFFFFFFFFFFFFF))) >> u8(32)


falling = by_dtype(float32=_falling4, float64=_falling8)
sort_falling = outline(ties.sort_falling)
spread = outline(ties.spread)


@kernel(out=("keys",))
def pack(grades: Any, s: Any, kept: Any, which: Any, starts: Any, keys: Any) -> None:
    """Write the keys of some queries, a row each; `grades` and `kept` (1 for returned) may be empty."""
    for j in range(which.shape[0]):
        q = which[j]
        a, n = starts[q], starts[q + 1] - starts[q]
        row, score = keys[j], s[a : a + n]
        for i in range(n):
            row[i] = (falling(score[i]) << u8(32)) | (u8(i) << u8(8))
        if grades.shape[0]:
            grade = grades[a : a + n]
            for i in range(n):
                row[i] |= u8(grade[i])
        for i in range(n if kept.shape[0] else 0):
            if not kept[a + i]:
                row[i] |= ABSENT << u8(32)
        for i in range(n, row.shape[0]):
            row[i] = PADDING


@inline
def tied(row: Any, i: Any, score: Any) -> Any:
    """Whether places i and i + 1 of a ranking have one score."""
    same = (row[i] >> u8(32)) == (row[i + 1] >> u8(32))
    return same and score[(row[i] >> u8(8)) & PLACE] == score[(row[i + 1] >> u8(8)) & PLACE]


@outline
def settle(row: Any, n: Any, score: Any) -> None:
    """Order by the whole score what the leading half left undecided: Shell's sort of each run of equal halves."""
    a = 0
    while a < n - 1:
        b = a + 1
        while b < n and (row[b] >> u8(32)) == (row[a] >> u8(32)):
            b += 1
        gap = (b - a) // 2
        while gap:
            for i in range(a + gap, b):
                key = row[i]
                mine, at = score[(key >> u8(8)) & PLACE], i
                while at >= a + gap:
                    other = score[(row[at - gap] >> u8(8)) & PLACE]
                    if other > mine or (other == mine and row[at - gap] < key):
                        break
                    row[at] = row[at - gap]
                    at -= gap
                row[at] = key
            gap //= 2
        a = b


@inline
def worthy(row: Any, length: Any, small: Any, values: Any, place: Any, gain: Any) -> Any:
    """Find the documents that are worth something: write their places and gains, and return how many there are."""
    c = i8(0)
    if small:
        for i in range(length):
            place[c] = i
            c += i8((row[i] & u8(255)) != u8(0))
        for i in range(c):
            gain[i] = f8(i8(row[place[i]] & u8(255)))
        return c
    for i in range(length):
        place[c] = i
        gain[c] = values[(row[i] >> u8(8)) & PLACE]
        c += i8(gain[c] > 0)
    return c


@inline
def best_first(gain: Any, n: Any, extra: Any, extra_gain: Any, small: Any, pool: Any, count: Any, best: Any) -> Any:
    """Write the ideal order of n gains above 0, and `extra` more of one gain, while there is room; return how many.

    Small integers are counted, others sorted.
    """
    room, m = best.shape[0], i8(0)
    if small:
        top = i8(extra_gain) if extra else i8(0)
        for i in range(n):
            g: Any = i8(gain[i])
            count[g] += 1
            top = max(top, g)
        count[i8(extra_gain)] += extra
        for g in range(top, 0, -1):
            c = min(count[g], room - m)
            for i in range(m, m + c):
                best[i] = g
            m += c
            count[g] = 0
        return m
    for i in range(n):
        pool[i] = gain[i]
    sort_falling(pool, 0, n)
    i = 0
    while m < room and (i < n or extra):
        if extra and (i == n or pool[i] < extra_gain):
            best[m] = extra_gain
            extra -= 1
        else:
            best[m] = pool[i]
            i += 1
        m += 1
    return m


@outline
def widen(worth: Any, place: Any, c: Any, n: Any) -> None:
    """Spread the worth of c documents to their places, 0 elsewhere."""
    j = c - 1
    for i in range(n - 1, -1, -1):
        if j >= 0 and place[j] == i:
            worth[i] = worth[j]
            j -= 1
        else:
            worth[i] = 0.0


@outline
def by_ties(row: Any, n: Any, score: Any, rel: Any, end: Any, hit: Any) -> None:
    """Find the groups of tied documents: where each that begins at a place ends, and its relevant ones."""
    a = 0
    while a < n:
        b, r = a + 1, i8(rel[a])
        while b < n and tied(row, b - 1, score):
            r += i8(rel[b])
            b += 1
        end[a], hit[a] = b, r
        a = b


@outline
def spread_groups(worth: Any, n: Any, end: Any) -> None:
    """Give every document the mean of its group."""
    a = i8(0)
    while a < n:
        spread(worth, a, end[a])
        a = end[a]
