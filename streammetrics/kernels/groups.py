"""Compute AUC by group, such as by user: partition rows by the hash of their group, number the groups, and count pairs.

Hashes only distribute groups over partitions and over the slots of hash tables. Whole IDs are compared, so two groups
with the same hash stay separate.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ._jit import inline, kernel, outline
from ._memory import prefetch, scratch
from .exact_sums import BLOCK, add_block
from .hashes import finalize_hash

f4, f8, i4, i8, u4, u8 = np.float32, np.float64, np.int32, np.int64, np.uint32, np.uint64

# Rows are prefetched in blocks of this size.
FETCH_ROWS = 256
# A group with at most this many positives or at most this many negatives is not sorted. Instead, all pairs of rows are
# compared.
MAX_RARE = 64
# The length of the array for the rows with the rarer label. It is one more than MAX_RARE, because a loop without
# branches also writes after the last of these rows.
RARE_SIZE = MAX_RARE + 1
# Rows are prefetched this many rows ahead. Hashing this many rows takes longer than loading a row from memory.
AHEAD = 1024
# A salt that makes the hash independent of the hashes that determine samples and shards of users.
HASH_SALT = u8(0x9E3779B97F4A7C15)


@inline
def hash_id(a: Any, b: Any) -> Any:
    """Hash an ID of two integers. If the second integer is 0, different IDs always have different hashes."""
    return finalize_hash(u8(a) ^ HASH_SALT ^ finalize_hash(u8(b)))


@kernel(out=("hashes",))
def hash_ids(a: Any, b: Any, salt: Any, hashes: Any) -> Any:
    """Write the salted hash of each ID, which consists of the integers a[j] and, unless `b` is empty, b[j]."""
    two = b.shape[0] > 0
    for j in range(a.shape[0]):
        hashes[j] = hash_id(i8(u8(a[j]) ^ u8(salt)), b[j] if two else i8(0))
    return a.shape[0]


@inline
def accumulate_counts(counts: Any) -> None:
    """Replace the number of rows of each partition (or group) in `counts` with the position after its last row.

    The caller fills each partition from its end, and decreases this position with every row. After all rows, the
    position is the start of the partition.
    """
    for p in range(1, counts.shape[0]):
        counts[p] += counts[p - 1]


@kernel(out=("places", "starts"))
def partition_rows(hashes: Any, bits: Any, places: Any, starts: Any) -> Any:
    """Write the position of each row in partition order to `places`, and the start of each partition to `starts`.

    The partition of a row is given by the first `bits` bits of its hash. On entry, `starts` holds zeros.
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
    """Encode a float32 as a 32-bit integer, so that larger numbers become larger integers. -0.0 becomes 0.0."""
    bits = f4(x + f4(0)).view(i4)
    return u4(bits) ^ (u4(0x80000000) if bits >= i4(0) else u4(0xFFFFFFFF))


@kernel(out=("where", "counts"))
def find_partitions(ids: Any, bits: Any, where: Any, counts: Any) -> Any:
    """Write the partition of each row to `where`, and count the rows in each partition.

    The partition is given by the first `bits` bits of the hash of the ID. `ids` is a matrix with one or two
    integers (the ID) in each row.
    """
    shift, n, width = u8(64) - u8(bits), ids.shape[0], ids.shape[1]
    for start in range(0, n, FETCH_ROWS):
        prefetch(ids, (start + AHEAD) * width, FETCH_ROWS * width)
        for j in range(start, min(start + FETCH_ROWS, n)):
            # Pass the constant 0 if there is no second integer, so that the compiler removes half of the computation.
            hashed = hash_id(ids[j, 0], ids[j, 1]) if width == 2 else hash_id(ids[j, 0], i8(0))
            p = u4(hashed >> shift)
            where[j] = p
            counts[p] += 1
    return n


@kernel(out=("ends", "out_a", "out_b", "out_keys"))
def scatter_rows(where: Any, ids: Any, s: Any, y: Any, ends: Any, out_a: Any, out_b: Any, out_keys: Any) -> Any:
    """Copy rows into their partitions: IDs to `out_a` and `out_b`, and keys made of score and label to `out_keys`.

    `where` holds the partition of each row, and `ends` the position after the last row of each partition. Partitions
    are filled from the end, so on return, `ends` contains their starts. If IDs have one integer, `out_b` is empty.
    """
    n, width = ids.shape[0], ids.shape[1]
    for start in range(0, n, FETCH_ROWS):
        prefetch(ids, (start + AHEAD) * width, FETCH_ROWS * width)
        prefetch(s, start + AHEAD, FETCH_ROWS)
        prefetch(y, start + AHEAD, FETCH_ROWS)
        for j in range(start, min(start + FETCH_ROWS, n)):
            ends[where[j]] -= 1
            k = ends[where[j]]
            out_a[k] = ids[j, 0]
            if width == 2:
                out_b[k] = ids[j, 1]
            out_keys[k] = (u8(ordered_bits32(s[j])) << u8(1)) | u8(y[j])
    return n


@kernel(out=("slots", "ids", "numbers"))
def number_groups(a: Any, b: Any, bits: Any, n_known: Any, slots: Any, ids: Any, numbers: Any) -> Any:
    """Number the groups in order of appearance, write the group number of each row, and return the number of groups.

    An ID consists of the integer a[j] and, unless `b` is empty, the integer b[j]. `slots` is a hash table of group
    numbers, with -1 in free slots; its length is a power of two. `ids` holds both integers of each group ID. Before the
    call, `n_known` groups already have numbers. The first `bits` bits of all hashes are equal. If more than half of the
    slots would be used, return -1.
    """
    two, mask, count = b.shape[0] > 0, u8(slots.shape[0] - 1), i4(n_known)
    room = i4(slots.shape[0] // 2)
    for j in range(a.shape[0]):
        first, second = a[j], b[j] if two else i8(0)
        # Pass the constant 0 if there is no second integer, so that the compiler removes half of the computation.
        hashed = hash_id(first, second) if two else hash_id(first, i8(0))
        # The leading bits of the hash are the same in the whole partition, so use the bits below them to find the slot.
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
    """Write a key for each row: its score and label as one integer. Sorted keys are in order of score, then label."""
    for j in range(s.shape[0]):
        keys[j] = (u8(ordered_bits32(s[j])) << u8(1)) | u8(y[j])
    return s.shape[0]


@kernel(out=("starts", "out"))
def sort_by_group(numbers: Any, keys: Any, starts: Any, out: Any) -> Any:
    """Write the keys of rows, sorted by group number, to `out`, and the start of each group to `starts`."""
    for j in range(keys.shape[0]):
        starts[numbers[j]] += 1
    accumulate_counts(starts)
    for j in range(keys.shape[0] - 1, -1, -1):
        starts[numbers[j]] -= 1
        out[starts[numbers[j]]] = keys[j]
    return keys.shape[0]


@outline
def count_twice_won(keys: Any, rare: Any, n_rare: Any, label: Any) -> Any:
    """Return twice the number of pairs in which the row with the rarer label has the higher score.

    A tie counts one half. `label` is the rarer label, and `rare` holds the scores of the rows with this label. Each of
    these rows forms a pair with every row with the other label in `keys`.
    """
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
    """Write the numbers of negatives, positives and concordant pairs (a tie counts one half) of each group.

    Rows are sorted by group, and `keys` holds their scores and labels. If a group has few positives or few negatives,
    comparing all pairs is faster than sorting. Otherwise, the function sets the `wins` of the group to -1, and
    `scan_sorted_rows` counts its pairs later.
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
            # Write every row, but advance the index only for rows with the rarer label. With random labels, a branch
            # would be mispredicted.
            rare[n_rare] = u4(mine[j] >> u8(1))
            n_rare += i8(mine[j] & u8(1) == label)
        twice = count_twice_won(mine, rare, n_rare, label) if n_rare else i8(0)
        wins[g] = f8(twice if label else i8(2) * negative * positive - twice) * 0.5
    return wins.shape[0]


@kernel(out=("wins",))
def scan_sorted_rows(keys: Any, starts: Any, which: Any, wins: Any) -> Any:
    """Write to `wins` the number of concordant pairs (a tie counts one half) of each group in `which`.

    The rows of these groups are sorted by key. Negatives come before positives with the same score. A positive
    therefore forms a concordant pair with every negative before it; the `tied` negatives, which have the same score,
    count one half.
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
    """Add up to 1,024 products of v and `factor`, each rounded to float64, to the exact sum at index `at`."""
    product = scratch(BLOCK, f8)
    for j in range(v.shape[0]):
        product[j] = v[j] * factor[j]
    add_block(product[: v.shape[0]], numbers, at)
