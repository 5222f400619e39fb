"""Groups that are complete: what each holds and wins, weights included, exactly; and sums over groups.

Weights are integers, multiples of 2**-60, in four digits of 26 bits; products of two of them in eight. So what a group
holds, and the pairs that its positives win, are rounded once.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ._jit import inline, kernel
from ._memory import scratch
from .exact_sums import BLOCK, CHUNKS, FULL, carry_all
from .groups import add_product, spread

f8, i4, i8, u8 = np.float64, np.int32, np.int64, np.uint64

DIGIT = i8(26)
MASK = i8((1 << 26) - 1)


@inline
def digits(high: Any, low: Any, out: Any) -> None:
    """Write high * 2**40 + low, not negative, as four digits."""
    out[0] = low & MASK
    out[1] = (low >> DIGIT) | ((high & i8(0xFFF)) << i8(14))
    out[2] = (high >> i8(12)) & MASK
    out[3] = high >> i8(38)


@inline
def carried(numbers: Any) -> None:
    """Bring digits to canonical form; the first one keeps what is too much."""
    for k in range(numbers.shape[0] - 1):
        numbers[k + 1] += numbers[k] >> DIGIT
        numbers[k] &= MASK


@inline
def add_digits(a: Any, b: Any, out: Any) -> None:
    """Add a product of two numbers of four digits."""
    for i in range(4):
        for j in range(4):
            out[i + j] += a[i] * b[j]
    carried(out)


@inline
def rounded(numbers: Any, units: Any) -> Any:
    """Return digits, in units of 2**units, as the nearest float64."""
    top = numbers.shape[0] - 1
    while top > 0 and numbers[top] == 0:
        top -= 1
    word = numbers[top]
    bits = i8(0)
    while word >> bits:
        bits += i8(1)
    taken, place = bits, i8(top) * DIGIT
    k, rest = top - 1, i8(0)
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
    word |= i8(rest != 0)  # below the 53 bits that stay
    power = i8((place + i8(units) + i8(1023)) << i8(52)).view(f8)
    return f8(word) * power


@kernel(out=("negatives", "positives", "wins"))
def scan_counted(
    numbers: Any, keys: Any, labels: Any, counts: Any, negatives: Any, positives: Any, wins: Any
) -> Any:  # fmt: skip
    """Write what each group holds and wins (ties one half), of counts sorted by group, key and label."""
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
def scan_weighted(
    numbers: Any, keys: Any, labels: Any, high: Any, low: Any, negatives: Any, positives: Any, wins: Any, pairs: Any
) -> Any:  # fmt: skip
    """Do the same of weights, high * 2**-20 + low * 2**-60, and of all pairs; each of the four is rounded once."""
    neg, pos, here, tied = scratch(4, i8), scratch(4, i8), scratch(4, i8), scratch(4, i8)
    above, won = scratch(4, i8), scratch(8, i8)
    n, j = numbers.shape[0], i8(0)
    while j < n:
        group = numbers[j]
        neg[:], pos[:], tied[:], won[:] = 0, 0, 0, 0
        while j < n and numbers[j] == group:
            if not (j > 0 and numbers[j - 1] == group and keys[j - 1] == keys[j]):
                tied[:] = 0
            digits(high[j], low[j], here)
            if labels[j]:
                for k in range(4):
                    pos[k] += here[k]
                    above[k] = i8(2) * neg[k] - tied[k]
                carried(pos)
                carried(above)
                add_digits(here, above, won)
            else:
                for k in range(4):
                    neg[k] += here[k]
                    tied[k] += here[k]
                carried(neg)
                carried(tied)
            j += 1
        negatives[group], positives[group] = rounded(neg, -60), rounded(pos, -60)
        wins[group] = rounded(won, -121)
        won[:] = 0
        add_digits(neg, pos, won)
        pairs[group] = rounded(won, -120)
    return n


@kernel(out=("counts", "sums", "weights", "lone", "moments"))
def close(
    negatives: Any, positives: Any, wins: Any, pairs: Any, counts: Any, sums: Any, weights: Any, lone: Any, moments: Any
) -> Any:  # fmt: skip
    """Add closed groups: how many have both classes, one, none; weight times AUC and weight of the former; the second's.

    Each by what a group weighs, in the order of GROUP_WEIGHTS: its rows, one, its positives, its pairs. The moments are
    sums of squares of weight times AUC, of its products with the weight, of squares of the weight, and those of one class.
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
            add_product(x[:m], single[:m], lone, at)
            add_product(x[:m], x[:m], moments, at + u8(12) * CHUNKS)
            for j in range(m):
                w[j] = w[j] * full[j]
                x[j] = w[j] * auc[j]
            add_product(w[:m], full[:m], weights, at)
            add_product(x[:m], full[:m], sums, at)
            add_product(x[:m], x[:m], moments, at)
            add_product(x[:m], w[:m], moments, at + u8(4) * CHUNKS)
            add_product(w[:m], w[:m], moments, at + u8(8) * CHUNKS)
        if a + m == n or (a // BLOCK) % FULL == FULL - 1:
            carry_all(sums)
            carry_all(weights)
            carry_all(lone)
            carry_all(moments)
    counts[2] += n - counts[0] - counts[1]
    return n


@kernel(out=("found",))
def count_zeros(a: Any, b: Any, salt: Any, found: Any) -> Any:
    """Count ids by the zeros that their salted hash begins with; `b` is empty for ids of one integer."""
    two = b.shape[0] > 0
    for j in range(a.shape[0]):
        h = spread(i8(u8(a[j]) ^ u8(salt)), b[j] if two else i8(0))
        z = i8(0)
        while z < 64 and (h >> u8(63 - z)) == u8(0):
            z += i8(1)
        found[z] += 1
    return 0
