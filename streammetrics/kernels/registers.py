"""HyperLogLog registers: the longest run of zeros with which the hash of a key began."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._jit import inline, kernel
from .hashes import finish

f8, i8, u1, u8 = np.float64, np.int64, np.uint8, np.uint64

SALT = u8(0x5D1A3C7E9B2F4861)  # for ever: another salt makes other registers


@inline
def run_of(rest: Any, precision: Any) -> Any:
    """Return 1 and the zeros that some bits begin with, of which there are 64 - precision."""
    top = i8(rest >> u8(11))  # its float64 is exact, and has the place of its first bit
    if top:
        return i8(1 + 1023 + 52) - (f8(top).view(i8) >> i8(52))
    run = i8(54)
    low = rest << u8(53)
    while run <= 64 - precision and not low >> u8(63):
        low <<= u8(1)
        run += 1
    return min(run, i8(65 - precision))


@kernel(out=("rows", "registers"))
def note_keys(words: Any, at: Any, precision: Any, rows: Any, registers: Any) -> Any:
    """Raise the register of every key; `words` is rows x 1 or rows x 2, `registers` cells x 2**precision, flat."""
    n = words.shape[0]
    if at.shape[0] == 0:
        rows[0] += n
    for j in range(n):
        x = finish(u8(words[j, 0]) ^ SALT)
        for k in range(1, words.shape[1]):
            x = finish(x + u8(words[j, k]))
        place = x >> u8(64 - precision)
        if at.shape[0]:
            rows[u8(at[j])] += 1
            place += u8(at[j]) << u8(precision)
        run = u1(run_of(x << u8(precision), precision))
        registers[place] = max(registers[place], run)
    return 0
