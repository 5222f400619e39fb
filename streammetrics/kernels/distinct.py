"""HyperLogLog registers: the longest run of zeros with which the hash of a key began."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._jit import kernel
from .hashes import finish

u8 = np.uint64

SALT = u8(0x5D1A3C7E9B2F4861)  # for ever: another salt makes other registers


@kernel(out=("registers",))
def note_keys(words: Any, at: Any, precision: Any, registers: Any) -> Any:
    """Raise the register of every key; `words` is rows x 1 or rows x 2, `registers` slices x 2**precision, flat."""
    for j in range(words.shape[0]):
        x = finish(u8(words[j, 0]) ^ SALT)
        for k in range(1, words.shape[1]):
            x = finish(x + u8(words[j, k]))
        rest, rank = x << u8(precision), 1
        while rank <= 64 - precision and not rest >> u8(63):
            rest <<= u8(1)
            rank += 1
        place = (u8(at[j]) << u8(precision) if at.shape[0] else u8(0)) + (x >> u8(64 - precision))
        registers[place] = max(registers[place], rank)
    return words.shape[0]
