"""Find the code (number) of each key, such as a slice value, with a hash table of integers or of strings."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._jit import inline, kernel

i8, u1, u8 = np.int64, np.uint8, np.uint64


@inline
def mix_bits(x: Any) -> Any:
    """Mix 64 bits with the finaliser of SplitMix64, which maps different inputs to different outputs."""
    x = (x ^ (x >> u8(30))) * u8(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> u8(27))) * u8(0x94D049BB133111EB)
    return x ^ (x >> u8(31))


@inline
def find_slot(value: Any, stored: Any, slots: Any) -> Any:
    """Return the slot of the hash table of `encode_ints` that holds the code of a value, or that is free for it."""
    mask = u8(slots.shape[0] - 1)
    at = mix_bits(u8(value)) & mask
    while slots[at] >= i8(0) and stored[slots[at]] != value:
        at = (at + u8(1)) & mask
    return at


@kernel(out=("slots", "numbers"))
def encode_ints(values: Any, stored: Any, count: Any, slots: Any, numbers: Any, learn: Any) -> Any:
    """Write the code of each value, and return the number of codes.

    A value without a code gets -1 or, if `learn`, the next code. `stored` holds the value of each of the `count` codes so
    far. `slots` is a hash table of codes, -1 where free; its length is a power of two. A call with `learn` may pass only
    new, distinct values, and the table must have enough free slots.
    """
    for j in range(values.shape[0]):
        at = find_slot(values[j], stored, slots)
        number = slots[at]
        if learn and number < i8(0):
            number = i8(count)
            slots[at] = number
            count += 1
        numbers[j] = number
    return count


@inline
def hash_text(data: Any, start: Any, stop: Any) -> Any:
    """Return the FNV-1a hash of a byte string, mixed by `mix_bits`."""
    h = u8(0xCBF29CE484222325)
    for k in range(start, stop):
        h = (h ^ u8(data[k])) * u8(0x100000001B3)
    return mix_bits(h)


@kernel(out=("slots", "numbers"))
def encode_texts(
    data: Any, offsets: Any, stored: Any, stored_offsets: Any, count: Any, slots: Any, numbers: Any, learn: Any
) -> Any:
    """Write the code of each string, `data[offsets[j]:offsets[j + 1]]`; see `encode_ints` for the other arguments.

    `stored` and `stored_offsets` hold the bytes of the string of each code in the same form.
    """
    mask = u8(slots.shape[0] - 1)
    for j in range(offsets.shape[0] - 1):
        start, size = offsets[j], offsets[j + 1] - offsets[j]
        at = hash_text(data, start, start + size) & mask
        while slots[at] >= i8(0):
            other = stored_offsets[slots[at]]
            # Two strings are equal if they have the same length and the same bytes.
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
