"""Compute the AUC of each complete group, such as a user, and sums over groups.

A group is complete when all of its rows have been collected. Weights are integers in units of 2**-60, so that each
result is rounded only once. Such an integer is stored as four 26-bit digits, and the product of two such integers as
eight digits.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ._jit import inline, kernel
from ._memory import scratch
from .exact_sums import BLOCK, CHUNKS, FULL, carry_all
from .groups import add_rounded_products, hash_id

f8, i4, i8, u8 = np.float64, np.int32, np.int64, np.uint64

DIGIT = i8(26)
MASK = i8((1 << 26) - 1)


@inline
def split_digits(high: Any, low: Any, out: Any) -> None:
    """Write the nonnegative integer high * 2**40 + low as four 26-bit digits, lowest digit first."""
    out[0] = low & MASK
    out[1] = (low >> DIGIT) | ((high & i8(0xFFF)) << i8(14))
    out[2] = (high >> i8(12)) & MASK
    out[3] = high >> i8(38)


@inline
def carry_digits(numbers: Any) -> None:
    """Propagate carries upward from the lowest digit, so that all digits but the highest are below 2**26."""
    for k in range(numbers.shape[0] - 1):
        numbers[k + 1] += numbers[k] >> DIGIT
        numbers[k] &= MASK


@inline
def add_digit_product(a: Any, b: Any, out: Any) -> None:
    """Add the product of the four-digit numbers `a` and `b` to the eight-digit number `out`."""
    for i in range(4):
        for j in range(4):
            out[i + j] += a[i] * b[j]
    carry_digits(out)


@inline
def round_digits(numbers: Any, units: Any) -> Any:
    """Return the float64 nearest to 2**units times the integer whose 26-bit digits are `numbers`, lowest first."""
    top = numbers.shape[0] - 1
    while top > 0 and numbers[top] == 0:
        top -= 1
    word = numbers[top]
    bits = i8(0)
    while word >> bits:
        bits += i8(1)
    taken, place = bits, i8(top) * DIGIT
    k, rest = top - 1, i8(0)
    # Collect the leading 62 bits in one word. To round correctly to 53 bits, it is enough to know whether any lower bit
    # is set.
    while k >= 0:
        room = min(i8(62) - taken, DIGIT)
        if room > 0:
            word = (word << room) | (numbers[k] >> (DIGIT - room))
            rest |= numbers[k] & ((i8(1) << (DIGIT - room)) - i8(1))
            taken += room
            place -= room
        else:
            rest |= numbers[k]
        k -= 1
    word |= i8(rest != 0)
    power = i8((place + i8(units) + i8(1023)) << i8(52)).view(f8)
    return f8(word) * power


@kernel(out=("negatives", "positives", "wins"))
def count_group_wins(
    numbers: Any, keys: Any, labels: Any, counts: Any, negatives: Any, positives: Any, wins: Any
) -> Any:  # fmt: skip
    """Write the numbers of negatives, positives and concordant pairs (a tie counts one half) of each group.

    Element j of the inputs consists of a group number (`numbers`), a score as an integer (`keys`), a label, and the
    number of rows with this combination (`counts`). The elements are sorted by group, score and label.
    """
    n, j = numbers.shape[0], i8(0)
    while j < n:
        group, neg, pos, twice, tied = numbers[j], i8(0), i8(0), i8(0), i8(0)
        while j < n and numbers[j] == group:
            same = j > 0 and numbers[j - 1] == group and keys[j - 1] == keys[j]
            m = i8(counts[j])
            tied = tied if same else i8(0)
            if labels[j]:
                twice += m * (i8(2) * neg - tied)
                pos += m
            else:
                neg += m
                tied += m
            j += 1
        negatives[group], positives[group], wins[group] = f8(neg), f8(pos), f8(twice) * 0.5
    return n


@kernel(out=("negatives", "positives", "wins", "pairs"))
def sum_group_wins(
    numbers: Any, keys: Any, labels: Any, high: Any, low: Any, negatives: Any, positives: Any, wins: Any, pairs: Any
) -> Any:  # fmt: skip
    """Write the total weights of the negatives, positives, concordant pairs and all pairs of each group.

    A tied pair counts one half. The elements of the inputs are those of `count_group_wins`, but with the total weight
    of the rows instead of their number. The weight of element j is high[j] * 2**-20 + low[j] * 2**-60. Each of the four
    results is rounded once.
    """
    neg, pos, here, tied = scratch(4, i8), scratch(4, i8), scratch(4, i8), scratch(4, i8)
    above, won = scratch(4, i8), scratch(8, i8)
    n, j = numbers.shape[0], i8(0)
    while j < n:
        group = numbers[j]
        neg[:], pos[:], tied[:], won[:] = 0, 0, 0, 0
        while j < n and numbers[j] == group:
            # `tied` is the weight of the negatives with the same score. Reset it when a new score begins.
            if not (j > 0 and numbers[j - 1] == group and keys[j - 1] == keys[j]):
                tied[:] = 0
            split_digits(high[j], low[j], here)
            if labels[j]:
                for k in range(4):
                    pos[k] += here[k]
                    # This positive forms a concordant pair with each negative that has a lower score, and half a pair
                    # with each negative that has the same score. Count every pair twice to get integers.
                    above[k] = i8(2) * neg[k] - tied[k]
                carry_digits(pos)
                carry_digits(above)
                add_digit_product(here, above, won)
            else:
                for k in range(4):
                    neg[k] += here[k]
                    tied[k] += here[k]
                carry_digits(neg)
                carry_digits(tied)
            j += 1
        negatives[group], positives[group] = round_digits(neg, -60), round_digits(pos, -60)
        wins[group] = round_digits(won, -121)
        won[:] = 0
        add_digit_product(neg, pos, won)
        pairs[group] = round_digits(won, -120)
    return n


@kernel(out=("counts", "sums", "weights", "lone", "moments"))
def add_groups(
    negatives: Any, positives: Any, wins: Any, pairs: Any, counts: Any, sums: Any, weights: Any, lone: Any, moments: Any
) -> Any:  # fmt: skip
    """Add the AUC and the weights of each complete group to the sums over groups.

    A group has four kinds of weights v: its number of rows, the constant 1, its number of positives, and its number of
    pairs. All output arrays except `counts` hold sums for each kind:

    - `counts` holds the numbers of groups with both classes, with one class and with no rows.
    - `sums` holds the sums of v * AUC over groups with both classes, and `weights` the sums of v over the same groups.
    - `lone` holds the sums of v over groups with one class, whose AUC is undefined.
    - `moments` holds the sums of (v * AUC)**2, v**2 * AUC and v**2 over groups with both classes, and the sum of v**2
      over groups with one class.
    """
    n = negatives.shape[0]
    auc, full, single = scratch(BLOCK, f8), scratch(BLOCK, f8), scratch(BLOCK, f8)
    w, x = scratch(BLOCK, f8), scratch(BLOCK, f8)
    for a in range(0, n, BLOCK):
        m = min(BLOCK, n - a)
        neg, pos, won, all_pairs = negatives[a : a + m], positives[a : a + m], wins[a : a + m], pairs[a : a + m]
        for j in range(m):
            both = (neg[j] > 0.0) & (pos[j] > 0.0)
            one = (neg[j] > 0.0) ^ (pos[j] > 0.0)
            full[j], single[j] = (1.0 if both else 0.0), (1.0 if one else 0.0)
            auc[j] = won[j] / all_pairs[j] if both else 0.0
            counts[0] += i8(both)
            counts[1] += i8(one)
        for by in range(4):
            at = u8(by) * CHUNKS
            for j in range(m):
                rows = neg[j] + pos[j]
                w[j] = rows if by == 0 else (1.0 if by == 1 else (pos[j] if by == 2 else all_pairs[j]))
                x[j] = w[j] * single[j]
            add_rounded_products(x[:m], single[:m], lone, at)
            add_rounded_products(x[:m], x[:m], moments, at + u8(12) * CHUNKS)
            for j in range(m):
                w[j] = w[j] * full[j]
                x[j] = w[j] * auc[j]
            add_rounded_products(w[:m], full[:m], weights, at)
            add_rounded_products(x[:m], full[:m], sums, at)
            add_rounded_products(x[:m], x[:m], moments, at)
            add_rounded_products(x[:m], w[:m], moments, at + u8(4) * CHUNKS)
            add_rounded_products(w[:m], w[:m], moments, at + u8(8) * CHUNKS)
        # Propagate carries before any integer in a sum can overflow, and after the last block.
        if a + m == n or (a // BLOCK) % FULL == FULL - 1:
            carry_all(sums)
            carry_all(weights)
            carry_all(lone)
            carry_all(moments)
    counts[2] += n - counts[0] - counts[1]
    return n


@kernel(out=("counts",))
def count_leading_zeros(a: Any, b: Any, salt: Any, counts: Any) -> Any:
    """Count IDs by the number of leading zero bits in their salted hash, which determines whether a sample keeps an ID.

    An ID consists of the integer a[j] and, unless `b` is empty, the integer b[j]. counts[z] is the number of IDs whose
    hash begins with exactly z zero bits.
    """
    two = b.shape[0] > 0
    for j in range(a.shape[0]):
        h = hash_id(i8(u8(a[j]) ^ u8(salt)), b[j] if two else i8(0))
        z = i8(0)
        while z < 64 and (h >> u8(63 - z)) == u8(0):
            z += i8(1)
        counts[z] += 1
    return 0
