"""Find the code (number) of each key, such as a slice value, with a hash table of integers or of strings.

The strings of a numpy array have a fixed width: each row is padded with zeros.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ._jit import inline, kernel

i4, i8, u1, u8 = np.int32, np.int64, np.uint8, np.uint64

# The last Unicode code point, and the first and the last of the surrogates, which UTF-8 cannot encode.
LAST_POINT, FIRST_SURROGATE, LAST_SURROGATE = u8(0x10FFFF), u8(0xD800), u8(0xDFFF)


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
    """Return the FNV-1a hash of a string of bytes or words, mixed by `mix_bits`."""
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


@inline
def find_size(texts: Any, row: Any) -> Any:
    """Return the length of a string of fixed width, in characters or words, without the zeros that pad it."""
    size = texts.shape[1]
    while size > 0 and texts[row, size - 1] == 0:
        size -= 1
    return size


@kernel(out=("slots", "firsts", "numbers"))
def number_texts(words: Any, slots: Any, firsts: Any, numbers: Any) -> Any:
    """Number the distinct strings of fixed width in order of appearance; return their number.

    Parameters
    ----------
    words : uint64 matrix
        The bytes of each string, as words of eight bytes.
    slots : int32 array
        A hash table of numbers, all of which are -1; its length is a power of two.
    firsts, numbers : int64 arrays
        The row in which each number first appears, and the number of each row. They are written.

    Returns
    -------
    int
        The number of distinct strings; -1 if there are more than half as many as slots.
    """
    mask, count = u8(slots.shape[0] - 1), i8(0)
    for j in range(words.shape[0]):
        at = hash_text(words[j], i8(0), find_size(words, j)) & mask
        while slots[at] >= 0:
            first, differ = firsts[slots[at]], u8(0)
            for k in range(words.shape[1]):
                differ |= words[first, k] ^ words[j, k]
            if not differ:
                break
            at = (at + u8(1)) & mask
        if slots[at] < 0:
            if 2 * (count + 1) > slots.shape[0]:
                return -1
            slots[at], firsts[count] = i4(count), j
            count += 1
        numbers[j] = slots[at]
    return count


@kernel(out=("data", "offsets"))
def write_texts(texts: Any, rows: Any, is_unicode: Any, data: Any, offsets: Any) -> Any:
    """Write strings of fixed width one after another, without their padding; return 1 if one is invalid, else 0.

    Parameters
    ----------
    texts : matrix
        The characters or bytes of each string.
    rows : int64 array
        The strings to write.
    is_unicode : bool
        Whether `texts` contains Unicode code points, which are written as UTF-8, rather than bytes.
    data, offsets : uint8 array, int64 array
        The written bytes, and the position where each string begins, followed by the end of the last one.
    """
    end = i8(0)
    offsets[0] = 0
    for i in range(rows.shape[0]):
        j = rows[i]
        for k in range(find_size(texts, j)):
            c = u8(texts[j, k])
            if not is_unicode or c < u8(0x80):
                data[end] = u1(c)
                end += 1
                continue
            if c > LAST_POINT or FIRST_SURROGATE <= c <= LAST_SURROGATE:
                return 1
            # The first byte says how many bytes follow; each of these has six bits of the code point.
            more = i8(1) + i8(c >= u8(0x800)) + i8(c >= u8(0x10000))
            data[end] = u1((u8(0xF00) >> u8(more + 1)) & u8(0xFF)) | u1(c >> u8(6 * more))
            for m in range(more):
                data[end + 1 + m] = u1(0x80) | u1((c >> u8(6 * (more - 1 - m))) & u8(0x3F))
            end += more + 1
        offsets[i + 1] = end
    return 0
