"""AUC group by group: rows partitioned by a hash of their group, numbered within a partition, and compared in pairs.

A group is told from others by its whole id: the hash only spreads groups over partitions and tables.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ._jit import inline, kernel, outline
from ._memory import fetch, scratch
from .exact_sums import BLOCK, add_block
from .hashes import finish

f4, f8, i4, i8, u4, u8 = np.float32, np.float64, np.int32, np.int64, np.uint32, np.uint64

TOGETHER = 256  # rows that are fetched at once
RARE = 64  # rows of a label that those of the other are compared with, one by one
ROOM = RARE + 1  # one more is written to no avail
AHEAD = 1024  # how far ahead they are fetched: hashing takes longer than they take to come
SPREAD = u8(0x9E3779B97F4A7C15)  # tells the hash that spreads rows from those that sample and shard


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


@inline
def ends(counts: Any) -> None:
    """Turn counts into where each partition ends; placing the rows from the last to the first makes that its start."""
    for p in range(1, counts.shape[0]):
        counts[p] += counts[p - 1]


@kernel(out=("places", "starts"))
def partition_rows(hashes: Any, bits: Any, places: Any, starts: Any) -> Any:
    """Write where each row goes if partitions (leading bits of the hash) stand one after the other; where each begins."""
    shift = u8(64) - u8(bits)
    for j in range(hashes.shape[0]):
        starts[hashes[j] >> shift] += 1
    ends(starts)
    for j in range(hashes.shape[0] - 1, -1, -1):
        p = hashes[j] >> shift
        starts[p] -= 1
        places[j] = starts[p]
    return starts.shape[0] - 1


@inline
def order32(x: Any) -> Any:
    """Return 32 bits that order as the float32 does; -0.0 is 0.0."""
    bits = f4(x + f4(0)).view(i4)
    return u4(bits) ^ (u4(0x80000000) if bits >= i4(0) else u4(0xFFFFFFFF))


@kernel(out=("where", "counts"))
def find_partitions(a: Any, bits: Any, where: Any, counts: Any) -> Any:
    """Write the partition of each row, and add to the rows of each."""
    shift, n = u8(64) - u8(bits), a.shape[0]
    for start in range(0, n, TOGETHER):
        fetch(a, start + AHEAD, TOGETHER)
        for j in range(start, min(start + TOGETHER, n)):
            p = u4(spread(a[j], i8(0)) >> shift)
            where[j] = p
            counts[p] += 1
    return n


@kernel(out=("ends", "out_a", "out_keys"))
def scatter_rows(where: Any, a: Any, s: Any, y: Any, ends: Any, out_a: Any, out_keys: Any) -> Any:
    """Copy rows before the ends of their partitions, which move: the id; score and label as an integer in their order."""
    n = a.shape[0]
    for start in range(0, n, TOGETHER):
        fetch(a, start + AHEAD, TOGETHER)
        fetch(s, start + AHEAD, TOGETHER)
        fetch(y, start + AHEAD, TOGETHER)
        for j in range(start, min(start + TOGETHER, n)):
            ends[where[j]] -= 1
            k = ends[where[j]]
            out_a[k] = a[j]
            out_keys[k] = (u8(order32(s[j])) << u8(1)) | u8(y[j])
    return n


@kernel(out=("slots", "known", "numbers"))
def number_groups(a: Any, b: Any, bits: Any, have: Any, slots: Any, known: Any, numbers: Any) -> Any:
    """Write the number of each row's group, in the order in which they are met; return how many there are.

    `slots` is a table of numbers, -1 where free, its length a power of two; `known` takes the id of each number, both
    halves; `have` of them are there; `bits` of the hash are used up by partitions. Returns -1 where more than half the
    slots would be taken.
    """
    two, mask, count = b.shape[0] > 0, u8(slots.shape[0] - 1), i4(have)
    room = i4(slots.shape[0] // 2)
    for j in range(a.shape[0]):
        first, second = a[j], b[j] if two else i8(0)
        hashed = spread(first, second) if two else spread(first, i8(0))  # of which a constant saves half the work
        at = ((hashed << u8(bits)) >> u8(20)) & mask
        number = slots[at]
        while number >= 0 and ((two and known[2 * number + 1] != second) or known[2 * number] != first):
            at = (at + u8(1)) & mask
            number = slots[at]
        if number < 0:
            if count == room:
                return i8(-1)
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


@kernel(out=("starts", "out"))
def side_by_side(numbers: Any, keys: Any, starts: Any, out: Any) -> Any:
    """Copy rows so that those of a group lie side by side, in the order of groups; write where each begins."""
    for j in range(keys.shape[0]):
        starts[numbers[j]] += 1
    ends(starts)
    for j in range(keys.shape[0] - 1, -1, -1):
        starts[numbers[j]] -= 1
        out[starts[numbers[j]]] = keys[j]
    return keys.shape[0]


@outline
def twice_won(keys: Any, rare: Any, found: Any, label: Any) -> Any:
    """Count the scores of a group, not of this label, below those of a list, each twice, and those equal to one once."""
    twice = i8(0)
    for j in range(keys.shape[0]):
        if keys[j] & u8(1) != label:
            score, mine = u4(keys[j] >> u8(1)), i4(0)
            for q in range(found):
                mine += i4(score < rare[q]) + i4(score <= rare[q])
            twice += i8(mine)
    return twice


@kernel(out=("negatives", "positives", "wins"))
def compare_rows(keys: Any, starts: Any, negatives: Any, positives: Any, wins: Any) -> Any:
    """Write the rows of each label and the pairs won (ties one half) of every group, whose rows lie side by side.

    Every two rows of unlike labels are compared: quicker than to sort them, where one of the labels is rare. Where neither
    is, `wins` is -1: see `scan_rows`.
    """
    rare = scratch(ROOM, u4)
    for g in range(wins.shape[0]):
        mine = keys[starts[g] : starts[g + 1]]
        positive = i8(0)
        for j in range(mine.shape[0]):
            positive += i8(mine[j] & u8(1))
        negative = i8(mine.shape[0]) - positive
        negatives[g], positives[g] = f8(negative), f8(positive)
        if min(negative, positive) > RARE:
            wins[g] = -1.0
            continue
        label, found = u8(positive <= negative), i8(0)
        for j in range(mine.shape[0]):
            rare[found] = u4(mine[j] >> u8(1))
            found += i8(mine[j] & u8(1) == label)
        twice = twice_won(mine, rare, found, label) if found else i8(0)
        wins[g] = f8(twice if label else i8(2) * negative * positive - twice) * 0.5
    return wins.shape[0]


@kernel(out=("wins",))
def scan_rows(keys: Any, starts: Any, which: Any, wins: Any) -> Any:
    """Write the pairs won (ties one half) of some groups, the rows of each of which are sorted.

    Of equal scores negatives come first: those before a positive are the pairs it wins, and `tied` of them half.
    """
    for i in range(which.shape[0]):
        mine = keys[starts[which[i]] : starts[which[i] + 1]]
        last, neg, tied, twice = ~mine[0] >> u8(1), i8(0), i8(0), i8(0)
        for j in range(mine.shape[0]):
            score, one = mine[j] >> u8(1), i8(mine[j] & u8(1))
            tied = (tied if score == last else i8(0)) + (i8(1) - one)
            neg += i8(1) - one
            twice += (i8(2) * neg - tied) * one
            last = score
        wins[which[i]] = f8(twice) * 0.5
    return which.shape[0]


@outline
def add_product(v: Any, factor: Any, numbers: Any, at: Any) -> None:
    """Add up to 1,024 products, rounded, to one superaccumulator."""
    product = scratch(BLOCK, f8)
    for j in range(v.shape[0]):
        product[j] = v[j] * factor[j]
    add_block(product[: v.shape[0]], numbers, at)
