"""HyperLogLog registers: each has the longest run of leading zero bits among the hashes of its keys."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._jit import inline, kernel
from ._memory import prefetch, scratch
from .hashes import finalize_hash

f8, i8, u1, u8 = np.float64, np.int64, np.uint8, np.uint64

# Rows are hashed in a loop that vectorises, before their registers are updated one by one.
BLOCK = 256
# This salt never changes: with another salt, registers would differ and could not be merged with saved states.
SALT = u8(0x5D1A3C7E9B2F4861)


@inline
def leading_run_of_top(top: Any) -> Any:
    """Return what `leading_run` returns, computed from the upper 53 bits, which must not all be 0."""
    # An integer below 2**53 is exact as a float64, whose exponent is the position of the leading bit.
    return i8(1 + 1023 + 52) - (f8(top).view(i8) >> i8(52))


@inline
def leading_run(rest: Any, precision: Any) -> Any:
    """Return 1 plus the number of leading zeros of the 64 - precision remaining bits of a hash."""
    top = i8(rest >> u8(11))
    if top:
        return leading_run_of_top(top)
    run = i8(54)
    low = rest << u8(53)
    while run <= 64 - precision and not low >> u8(63):
        low <<= u8(1)
        run += 1
    return min(run, i8(65 - precision))


@kernel(out=("rows", "registers"))
def update_registers(words: Any, at: Any, precision: Any, rows: Any, registers: Any) -> Any:
    """Update the register of every key; `words` is rows x 1 or rows x 2, `registers` cells x 2**precision, flat."""
    n, width, known = words.shape[0], words.shape[1], at.shape[0] > 0
    hashes, runs = scratch((BLOCK,), u8), scratch((BLOCK,), u1)
    bits, shift = u8(precision), u8(64 - precision)
    if not known:
        rows[0] += n
    for start in range(0, n, BLOCK):
        count = min(BLOCK, n - start)
        prefetch(words, (start + BLOCK) * width, BLOCK * width)
        for j in range(count):
            hashes[j] = finalize_hash(u8(words[start + j, 0]) ^ SALT)
        for k in range(1, width):
            for j in range(count):
                hashes[j] = finalize_hash(hashes[j] + u8(words[start + j, k]))
        # Nearly always one of the upper 53 bits is 1, and this loop vectorises. The other hashes are recomputed below.
        long = i8(0)
        for j in range(count):
            top = i8((hashes[j] << bits) >> u8(11))
            long += i8(top == 0)
            runs[j] = u1(leading_run_of_top(top))
        if long:
            for j in range(count):
                runs[j] = u1(leading_run(hashes[j] << bits, precision))
        for j in range(count):
            place = hashes[j] >> shift
            if known:
                rows[u8(at[start + j])] += 1
                place += u8(at[start + j]) << bits
            if registers[place] < runs[j]:
                registers[place] = runs[j]
    return 0
