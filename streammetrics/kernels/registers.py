"""HyperLogLog registers: the longest run of zeros with which the hash of a key began."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._jit import inline, kernel
from ._memory import fetch, scratch
from .hashes import finish

f8, i8, u1, u8 = np.float64, np.int64, np.uint8, np.uint64

BLOCK = 256  # rows that are hashed together, before registers are looked at one after the other
SALT = u8(0x5D1A3C7E9B2F4861)  # for ever: another salt makes other registers


@inline
def run_of_top(top: Any) -> Any:
    """Return the same of the first 53 of them, not all 0: their float64 is exact, and has the place of the first."""
    return i8(1 + 1023 + 52) - (f8(top).view(i8) >> i8(52))


@inline
def run_of(rest: Any, precision: Any) -> Any:
    """Return 1 and the zeros that some bits begin with, of which there are 64 - precision."""
    top = i8(rest >> u8(11))
    if top:
        return run_of_top(top)
    run = i8(54)
    low = rest << u8(53)
    while run <= 64 - precision and not low >> u8(63):
        low <<= u8(1)
        run += 1
    return min(run, i8(65 - precision))


@kernel(out=("rows", "registers"))
def note_keys(words: Any, at: Any, precision: Any, rows: Any, registers: Any) -> Any:
    """Raise the register of every key; `words` is rows x 1 or rows x 2, `registers` cells x 2**precision, flat."""
    n, width, known = words.shape[0], words.shape[1], at.shape[0] > 0
    hashes, runs = scratch((BLOCK,), u8), scratch((BLOCK,), u1)
    bits, shift = u8(precision), u8(64 - precision)
    if not known:
        rows[0] += n
    for start in range(0, n, BLOCK):
        count = min(BLOCK, n - start)
        fetch(words, (start + BLOCK) * width, BLOCK * width)
        for j in range(count):
            hashes[j] = finish(u8(words[start + j, 0]) ^ SALT)
        for k in range(1, width):
            for j in range(count):
                hashes[j] = finish(hashes[j] + u8(words[start + j, k]))
        long = i8(0)
        for j in range(count):
            top = i8((hashes[j] << bits) >> u8(11))
            long += i8(top == 0)
            runs[j] = u1(run_of_top(top))
        if long:
            for j in range(count):
                runs[j] = u1(run_of(hashes[j] << bits, precision))
        for j in range(count):
            place = hashes[j] >> shift
            if known:
                rows[u8(at[start + j])] += 1
                place += u8(at[start + j]) << bits
            if registers[place] < runs[j]:
                registers[place] = runs[j]
    return 0
