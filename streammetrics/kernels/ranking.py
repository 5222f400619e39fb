"""Sort the documents of each query by score, and find the ideal order and the groups of tied documents.

A query is represented by one row of uint64 keys, one key for each document. From the highest bit down, a key consists
of 32 bits that encode the score (a smaller number for a higher score), 24 bits for the document's index in the query,
and 8 bits for its grade. numpy sorts the keys, so documents with equal scores stay in row order. The encoding of a
float64 score has 64 bits, but the key contains only the upper half, so `sort_by_full_score` completes the sort.
Documents that were judged but not returned come last, followed by padding.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from . import ties
from ._jit import choose_by_dtype, inline, kernel, outline

f4, f8, i4, i8, u4, u8 = np.float32, np.float64, np.int32, np.int64, np.uint32, np.uint64

PADDING = u8(0xFFFFFFFFFFFFFFFF)
# The upper 32 bits of the key of a document that was judged but not returned. They exceed those of every finite score.
ABSENT = u8(0xFFFFFFFF)
PLACE = u8(0xFFFFFF)


def _falling_key32(z: Any) -> Any:
    """Encode a float32 score as a 32-bit integer that is smaller for a higher score."""
    b = f4(z + f4(0.0)).view(i4)  # -0.0 becomes 0.0
    return u8(u4(b ^ (~(b >> i4(31)) & i4(0x7FFFFFFF))))


def _falling_key64(z: Any) -> Any:
    """Encode a float64 score as a 64-bit integer that is smaller for a higher score, and return its upper 32 bits."""
    b = f8(z + 0.0).view(i8)
    return u8(b ^ (~(b >> i8(63)) & i8(0x7FFFFFFFFFFFFFFF))) >> u8(32)


falling_key = choose_by_dtype(float32=_falling_key32, float64=_falling_key64)
sort_descending = outline(ties.sort_descending)
average_group = outline(ties.average_group)


@kernel(out=("keys",))
def pack_keys(grades: Any, s: Any, returned: Any, which: Any, starts: Any, keys: Any) -> None:
    """Write, for each query in `which`, the keys of its documents to a row of `keys`.

    `starts` holds the index of the first document of each query. `grades` holds the grade of each document if grades
    are small integers; otherwise it is empty. `returned` is 0 for documents that were not returned; it is empty if all
    documents were returned.
    """
    for j in range(which.shape[0]):
        q = which[j]
        a, n = starts[q], starts[q + 1] - starts[q]
        row, score = keys[j], s[a : a + n]
        for i in range(n):
            row[i] = (falling_key(score[i]) << u8(32)) | (u8(i) << u8(8))
        if grades.shape[0]:
            grade = grades[a : a + n]
            for i in range(n):
                row[i] |= u8(grade[i])
        for i in range(n if returned.shape[0] else 0):
            if not returned[a + i]:
                row[i] |= ABSENT << u8(32)
        for i in range(n, row.shape[0]):
            row[i] = PADDING


@inline
def is_tied(row: Any, i: Any, score: Any) -> Any:
    """Return whether the documents at positions i and i + 1 in a ranking have the same score.

    `row` holds the sorted keys of a query's documents, and `score` holds the scores in the original document order.
    """
    same = (row[i] >> u8(32)) == (row[i + 1] >> u8(32))
    return same and score[(row[i] >> u8(8)) & PLACE] == score[(row[i + 1] >> u8(8)) & PLACE]


@outline
def sort_by_full_score(row: Any, n: Any, score: Any) -> None:
    """Sort each run of documents whose scores have equal upper halves by the full scores.

    `row` holds the sorted keys of a query's documents, and `score` holds the scores in the original document order. The
    algorithm is Shellsort, which needs no extra memory.
    """
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
def find_gains(row: Any, length: Any, small: Any, values: Any, place: Any, gain: Any) -> Any:
    """Find the documents with a gain above 0: write their ranks (from 0) and their gains, and return their number.

    `row` holds the sorted keys of the query. If `small` is true, grades are small integers, and the gain is the grade.
    Otherwise, `values` holds the gain of each document.
    """
    c = i8(0)
    if small:
        # Write the rank of every document, but advance the index only if the document has a gain above 0. This avoids a
        # branch that is often mispredicted.
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
def build_ideal_order(
    gain: Any, n: Any, extra: Any, extra_gain: Any, small: Any, pool: Any, count: Any, best: Any
) -> Any:
    """Fill `best` with the largest gains, in the ideal (descending) order, and return their number.

    There are n documents with a `gain` above 0, and `extra` more documents with the gain `extra_gain`. If `small` is
    true, gains are small integers, which are sorted by counting sort. `pool` and `count` are working memory.
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
    sort_descending(pool, 0, n)
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
def scatter_worth(worth: Any, place: Any, c: Any, n: Any) -> None:
    """Move the first c of n elements of `worth` (gains) to the indices in `place` (ranks), and set all others to 0."""
    # Start with the last gain, because gains move only to higher indices and must not overwrite other gains.
    j = c - 1
    for i in range(n - 1, -1, -1):
        if j >= 0 and place[j] == i:
            worth[i] = worth[j]
            j -= 1
        else:
            worth[i] = 0.0


@outline
def find_tie_groups(row: Any, n: Any, score: Any, rel: Any, end: Any, hit: Any) -> None:
    """Find the groups of documents with equal scores in a ranking of n documents.

    For a group that starts at position `a`, write the position after its last document to end[a], and the number of its
    relevant documents to hit[a].
    """
    a = 0
    while a < n:
        b, r = a + 1, i8(rel[a])
        while b < n and is_tied(row, b - 1, score):
            r += i8(rel[b])
            b += 1
        end[a], hit[a] = b, r
        a = b


@outline
def average_groups(worth: Any, n: Any, end: Any) -> None:
    """Replace each document's value with the mean of its tie group. A group that starts at `a` ends before end[a]."""
    a = i8(0)
    while a < n:
        average_group(worth, a, end[a])
        a = end[a]
