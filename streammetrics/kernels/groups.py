"""AUC group by group: rows partitioned by a hash of their group, numbered within a partition, sorted, and scanned.

A group is told from others by its whole id: the hash only spreads groups over partitions and tables.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ._jit import inline, kernel
from .hashes import finish

f4, f8, i4, i8, u4, u8 = np.float32, np.float64, np.int32, np.int64, np.uint32, np.uint64

SPREAD = u8(0x9E3779B97F4A7C15)  # tells the hash that spreads rows from those that sample and shard
LABEL_BITS = 1


@inline
def spread(a: Any, b: Any) -> Any:
    """Hash an id; without its second half (0) a bijection."""
    return finish(u8(a) ^ SPREAD ^ finish(u8(b)))


@kernel(out=("hashes",))
def hash_ids(a: Any, b: Any, salt: Any, hashes: Any) -> Any:
    """Write the salted hash of each id; `b` is empty for ids of one integer."""
    two = b.shape[0] > 0
    for j in range(a.shape[0]):
        hashes[j] = spread(i8(u8(a[j]) ^ u8(salt)), b[j] if two else i8(0))
    return a.shape[0]


@kernel(out=("places", "starts"))
def partition_rows(hashes: Any, bits: Any, places: Any, starts: Any) -> Any:
    """Write where each row goes if partitions (leading bits of the hash) stand one after the other; where each begins."""
    shift = u8(64) - u8(bits)
    parts = starts.shape[0] - 1
    for j in range(hashes.shape[0]):
        starts[i8(hashes[j] >> shift) + 1] += 1
    for p in range(parts):
        starts[p + 1] += starts[p]
    at = starts[:parts].copy()
    for j in range(hashes.shape[0]):
        p = hashes[j] >> shift
        places[j] = at[p]
        at[p] += 1
    return parts


@inline
def order32(x: Any) -> Any:
    """Return 32 bits that order as the float32 does; -0.0 is 0.0."""
    bits = f4(x + f4(0)).view(i4)
    return u4(bits) ^ (u4(0x80000000) if bits >= i4(0) else u4(0xFFFFFFFF))


@kernel(out=("out_a", "out_keys", "starts"))
def scatter_rows(a: Any, s: Any, y: Any, bits: Any, out_a: Any, out_keys: Any, starts: Any) -> Any:
    """Copy rows by partition: the id, and score and label in one integer that orders as they do."""
    shift = u8(64) - u8(bits)
    parts, n = starts.shape[0] - 1, a.shape[0]
    where = np.empty(n, np.uint32)
    for j in range(n):
        p = u4(spread(a[j], i8(0)) >> shift)
        where[j] = p
        starts[i8(p) + 1] += 1
    for p in range(parts):
        starts[p + 1] += starts[p]
    at = starts[:parts].copy()
    for j in range(n):
        k = at[where[j]]
        at[where[j]] += 1
        out_a[k] = a[j]
        out_keys[k] = (u8(order32(s[j])) << u8(1)) | u8(y[j])
    return n


@kernel(out=("slots", "known", "numbers"))
def number_groups(a: Any, b: Any, bits: Any, have: Any, slots: Any, known: Any, numbers: Any) -> Any:
    """Write the number of each row's group, in the order in which they are met; return how many there are.

    `slots` is a table of numbers, -1 where free, its length a power of two; `known` takes the id of each number, both
    halves; `have` of them are there; `bits` of the hash are used up by partitions.
    """
    two, mask, count = b.shape[0] > 0, u8(slots.shape[0] - 1), i4(have)
    for j in range(a.shape[0]):
        first, second = a[j], b[j] if two else i8(0)
        at = ((spread(first, second) << u8(bits)) >> u8(20)) & mask
        number = slots[at]
        while number >= 0 and (known[2 * number] != first or known[2 * number + 1] != second):
            at = (at + u8(1)) & mask
            number = slots[at]
        if number < 0:
            number = count
            slots[at] = number
            known[2 * number], known[2 * number + 1] = first, second
            count += i4(1)
        numbers[j] = number
    return i8(count)


@kernel(out=("keys",))
def pack_scores(s: Any, y: Any, keys: Any) -> Any:
    """Write score and label of each row as one integer that orders as they do."""
    for j in range(s.shape[0]):
        keys[j] = (u8(order32(s[j])) << u8(1)) | u8(y[j])
    return s.shape[0]


@kernel(out=("keys",))
def pack(numbers: Any, keys: Any) -> Any:
    """Put the number of its group before score and label of each row."""
    for j in range(keys.shape[0]):
        keys[j] |= u8(numbers[j]) << u8(33)
    return keys.shape[0]


@kernel(out=("negatives", "positives", "wins"))
def scan_packed(keys: Any, negatives: Any, positives: Any, wins: Any) -> Any:
    """Write the rows of each label and the pairs won (ties one half) of every group, from sorted keys."""
    n, j = keys.shape[0], i8(0)
    while j < n:
        group = keys[j] >> u8(33)
        neg, pos, twice = i8(0), i8(0), i8(0)
        while j < n and keys[j] >> u8(33) == group:
            score = keys[j] >> u8(1)
            c, a = i8(0), i8(0)
            while j < n and keys[j] >> u8(1) == score:
                one = i8(keys[j] & u8(1))
                a += one
                c += i8(1) - one
                j += 1
            twice += a * (i8(2) * neg + c)
            neg += c
            pos += a
        negatives[group], positives[group], wins[group] = f8(neg), f8(pos), f8(twice) * 0.5
    return n


@kernel(out=("negatives", "positives", "wins"))
def scan_rows(numbers: Any, scores: Any, labels: Any, weights: Any, negatives: Any, positives: Any, wins: Any) -> Any:
    """Do the same from rows sorted by group, score, label and weight; without weights these are empty."""
    n, j, weighted = numbers.shape[0], i8(0), weights.shape[0] > 0
    while j < n:
        group = numbers[j]
        neg, pos, won = 0.0, 0.0, 0.0
        while j < n and numbers[j] == group:
            score, c, a = scores[j], 0.0, 0.0
            while j < n and numbers[j] == group and scores[j] == score:
                w = weights[j] if weighted else 1.0
                a += w if labels[j] else 0.0
                c += 0.0 if labels[j] else w
                j += 1
            won += a * (neg + 0.5 * c)
            neg += c
            pos += a
        negatives[group], positives[group], wins[group] = neg, pos, won
    return n
