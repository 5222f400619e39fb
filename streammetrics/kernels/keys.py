"""Finding the code of a key: hash tables over int64, or over the bytes of strings."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._jit import inline, kernel

i8, u1, u8 = np.int64, np.uint8, np.uint64


@inline
def mix_bits(x: Any) -> Any:
    """Scramble 64 bits with the finaliser of SplitMix64, a bijection."""
    x = (x ^ (x >> u8(30))) * u8(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> u8(27))) * u8(0x94D049BB133111EB)
    return x ^ (x >> u8(31))


@kernel(out=("slots", "numbers"))
def encode_ints(values: Any, stored: Any, count: Any, slots: Any, numbers: Any, learn: Any) -> Any:
    """Write the code of each value, and return the number of codes.

    An unknown value gets -1, or with `learn` the next code.

    `stored[code]` is the value. `slots` is a table of codes, -1 where free, with a power of two as length. A call with
    `learn` passes only new values, for which there is room.
    """
    mask = u8(slots.shape[0] - 1)
    for j in range(values.shape[0]):
        v = values[j]
        at = mix_bits(u8(v)) & mask
        number = slots[at]
        while number >= i8(0) and stored[number] != v:
            at = (at + u8(1)) & mask
            number = slots[at]
        if learn and number < i8(0):
            number = i8(count)
            slots[at] = number
            count += 1
        numbers[j] = number
    return count


@inline
def hash_text(data: Any, start: Any, stop: Any) -> Any:
    """Return the FNV-1a hash of a string of bytes, mixed by `mix_bits`."""
    h = u8(0xCBF29CE484222325)
    for k in range(start, stop):
        h = (h ^ u8(data[k])) * u8(0x100000001B3)
    return mix_bits(h)


@kernel(out=("slots", "numbers"))
def encode_texts(
    data: Any, offsets: Any, stored: Any, stored_offsets: Any, count: Any, slots: Any, numbers: Any, learn: Any
) -> Any:
    """Write the code of each text, `data[offsets[j]:offsets[j + 1]]`, as `encode_ints` does for integers."""
    mask = u8(slots.shape[0] - 1)
    for j in range(offsets.shape[0] - 1):
        start, size = offsets[j], offsets[j + 1] - offsets[j]
        at = hash_text(data, start, start + size) & mask
        while slots[at] >= i8(0):
            other = stored_offsets[slots[at]]
            # Texts are compared by length first, then byte by byte.
            same = stored_offsets[slots[at] + 1] - other == size
            k = i8(0)
            while same and k < size:
                same = data[start + k] == stored[other + k]
                k += 1
            if same:
                break
            at = (at + u8(1)) & mask
        if slots[at] < i8(0) and learn:
            slots[at] = count
            count += 1
        numbers[j] = slots[at]
    return count
