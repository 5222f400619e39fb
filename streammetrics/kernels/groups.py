"""AUC by group: rows are partitioned by a hash of their group, numbered within the partition, and compared in pairs.

Groups are distinguished by their whole ID; the hash only distributes them over partitions and table slots.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ._jit import inline, kernel, outline
from ._memory import prefetch, scratch
from .exact_sums import BLOCK, add_block
from .hashes import finalize_hash

f4, f8, i4, i8, u4, u8 = np.float32, np.float64, np.int32, np.int64, np.uint32, np.uint64

# The number of rows that are prefetched together.
FETCH_ROWS = 256
# For groups with at most this many positives or negatives, pairs are counted by comparing every pair of rows.
MAX_RARE = 64
# One more element than rare rows, because the loop without branches also writes after the last rare row.
RARE_SIZE = MAX_RARE + 1
# Rows are prefetched this many rows ahead. Hashing them takes longer than loading them from memory.
AHEAD = 1024
# This salt makes the hash independent of the hashes that choose samples and shards of users.
HASH_SALT = u8(0x9E3779B97F4A7C15)


@inline
def hash_id(a: Any, b: Any) -> Any:
    """Hash an ID of two words; if the second is 0, the hash is a bijection of the first."""
    return finalize_hash(u8(a) ^ HASH_SALT ^ finalize_hash(u8(b)))


@kernel(out=("hashes",))
def hash_ids(a: Any, b: Any, salt: Any, hashes: Any) -> Any:
    """Write the salted hash of each ID; `b` is empty for IDs of one integer."""
    two = b.shape[0] > 0
    for j in range(a.shape[0]):
        hashes[j] = hash_id(i8(u8(a[j]) ^ u8(salt)), b[j] if two else i8(0))
    return a.shape[0]


@inline
def accumulate_counts(counts: Any) -> None:
    """Replace the row count of each partition by the end of the partition, in place.

    Filling the partitions from the last row to the first moves each end to the start of its partition.
    """
    for p in range(1, counts.shape[0]):
        counts[p] += counts[p - 1]


@kernel(out=("places", "starts"))
def partition_rows(hashes: Any, bits: Any, places: Any, starts: Any) -> Any:
    """Write the position of each row among rows sorted by partition, and the start of each partition.

    Partitions are the leading bits of the hash.
    """
    shift = u8(64) - u8(bits)
    for j in range(hashes.shape[0]):
        starts[hashes[j] >> shift] += 1
    accumulate_counts(starts)
    for j in range(hashes.shape[0] - 1, -1, -1):
        p = hashes[j] >> shift
        starts[p] -= 1
        places[j] = starts[p]
    return starts.shape[0] - 1


@inline
def ordered_bits32(x: Any) -> Any:
    """Encode a float32 as a 32-bit integer that sorts like the number; -0.0 becomes 0.0."""
    bits = f4(x + f4(0)).view(i4)
    return u4(bits) ^ (u4(0x80000000) if bits >= i4(0) else u4(0xFFFFFFFF))


@kernel(out=("where", "counts"))
def find_partitions(a: Any, bits: Any, where: Any, counts: Any) -> Any:
    """Write the partition of each row, and count the rows of each partition."""
    shift, n = u8(64) - u8(bits), a.shape[0]
    for start in range(0, n, FETCH_ROWS):
        prefetch(a, start + AHEAD, FETCH_ROWS)
        for j in range(start, min(start + FETCH_ROWS, n)):
            p = u4(hash_id(a[j], i8(0)) >> shift)
            where[j] = p
            counts[p] += 1
    return n


@kernel(out=("ends", "out_a", "out_keys"))
def scatter_rows(where: Any, a: Any, s: Any, y: Any, ends: Any, out_a: Any, out_keys: Any) -> Any:
    """Copy rows into their partitions, from the end of each partition: the ID, and a key of score and label."""
    n = a.shape[0]
    for start in range(0, n, FETCH_ROWS):
        prefetch(a, start + AHEAD, FETCH_ROWS)
        prefetch(s, start + AHEAD, FETCH_ROWS)
        prefetch(y, start + AHEAD, FETCH_ROWS)
        for j in range(start, min(start + FETCH_ROWS, n)):
            ends[where[j]] -= 1
            k = ends[where[j]]
            out_a[k] = a[j]
            out_keys[k] = (u8(ordered_bits32(s[j])) << u8(1)) | u8(y[j])
    return n


@kernel(out=("slots", "ids", "numbers"))
def number_groups(a: Any, b: Any, bits: Any, n_known: Any, slots: Any, ids: Any, numbers: Any) -> Any:
    """Write the number of each row's group, in order of appearance; return the number of groups.

    `slots` is a hash table of group numbers, -1 where free, with a power of two as length. `ids` has both words of the ID
    of each group, of which `n_known` exist already. `bits` leading bits of the hash are the same within the partition.
    Returns -1 where more than half of the slots would be used.
    """
    two, mask, count = b.shape[0] > 0, u8(slots.shape[0] - 1), i4(n_known)
    room = i4(slots.shape[0] // 2)
    for j in range(a.shape[0]):
        first, second = a[j], b[j] if two else i8(0)
        # If the second word is constant, the compiler removes half of the hash computation.
        hashed = hash_id(first, second) if two else hash_id(first, i8(0))
        # The leading bits are the same for the whole partition, so the slot is taken from the bits below them.
        at = ((hashed << u8(bits)) >> u8(20)) & mask
        number = slots[at]
        while number >= 0 and ((two and ids[2 * number + 1] != second) or ids[2 * number] != first):
            at = (at + u8(1)) & mask
            number = slots[at]
        if number < 0:
            if count == room:
                return i8(-1)
            number = count
            slots[at] = number
            ids[2 * number], ids[2 * number + 1] = first, second
            count += i4(1)
        numbers[j] = number
    return i8(count)


@kernel(out=("keys",))
def pack_scores(s: Any, y: Any, keys: Any) -> Any:
    """Write score and label of each row as one integer, so that integers sort by score and then by label."""
    for j in range(s.shape[0]):
        keys[j] = (u8(ordered_bits32(s[j])) << u8(1)) | u8(y[j])
    return s.shape[0]


@kernel(out=("starts", "out"))
def sort_by_group(numbers: Any, keys: Any, starts: Any, out: Any) -> Any:
    """Write a copy of the rows sorted by group, and the start of each group."""
    for j in range(keys.shape[0]):
        starts[numbers[j]] += 1
    accumulate_counts(starts)
    for j in range(keys.shape[0] - 1, -1, -1):
        starts[numbers[j]] -= 1
        out[starts[numbers[j]]] = keys[j]
    return keys.shape[0]


@outline
def count_twice_won(keys: Any, rare: Any, n_rare: Any, label: Any) -> Any:
    """Count, for each rare row, rows of the other label: twice if their score is lower, once if it is equal."""
    twice = i8(0)
    for j in range(keys.shape[0]):
        if keys[j] & u8(1) != label:
            score, mine = u4(keys[j] >> u8(1)), i4(0)
            for q in range(n_rare):
                mine += i4(score < rare[q]) + i4(score <= rare[q])
            twice += i8(mine)
    return twice


@kernel(out=("negatives", "positives", "wins"))
def compare_rows(keys: Any, starts: Any, negatives: Any, positives: Any, wins: Any) -> Any:
    """Write negatives, positives and concordant pairs (ties count one half) of every group, by comparing all pairs.

    Rows are sorted by group. Comparing pairs is faster than sorting a group whose positives or negatives are rare. If
    neither are rare, `wins` is -1, and `scan_sorted_rows` counts the pairs.
    """
    rare = scratch(RARE_SIZE, u4)
    for g in range(wins.shape[0]):
        mine = keys[starts[g] : starts[g + 1]]
        positive = i8(0)
        for j in range(mine.shape[0]):
            positive += i8(mine[j] & u8(1))
        negative = i8(mine.shape[0]) - positive
        negatives[g], positives[g] = f8(negative), f8(positive)
        if min(negative, positive) > MAX_RARE:
            wins[g] = -1.0
            continue
        label, n_rare = u8(positive <= negative), i8(0)
        for j in range(mine.shape[0]):
            # Write every row, but advance the index only for rare rows. With random labels, a branch would be
            # mispredicted.
            rare[n_rare] = u4(mine[j] >> u8(1))
            n_rare += i8(mine[j] & u8(1) == label)
        twice = count_twice_won(mine, rare, n_rare, label) if n_rare else i8(0)
        wins[g] = f8(twice if label else i8(2) * negative * positive - twice) * 0.5
    return wins.shape[0]


@kernel(out=("wins",))
def scan_sorted_rows(keys: Any, starts: Any, which: Any, wins: Any) -> Any:
    """Write the concordant pairs (ties count one half) of some groups, whose rows are sorted.

    Negatives come before positives of the same score. So a positive is concordant with all negatives before it, except
    that the `tied` negatives of the same score count one half.
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
def add_rounded_products(v: Any, factor: Any, numbers: Any, at: Any) -> None:
    """Add up to 1,024 products to one superaccumulator; each product is rounded to float64 first."""
    product = scratch(BLOCK, f8)
    for j in range(v.shape[0]):
        product[j] = v[j] * factor[j]
    add_block(product[: v.shape[0]], numbers, at)
