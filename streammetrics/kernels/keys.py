"""Find the code (number) of each key, such as a slice value, with a hash table of integers or strings.

Strings in a numpy array have a fixed width: each string is padded with zeros.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ._jit import inline, kernel
from ._memory import load_word
from .hashes import read_word, rotate_left

i4, i8, u1, u8 = np.int32, np.int64, np.uint8, np.uint64

# The last Unicode code point, and the first and last surrogates, which UTF-8 cannot encode.
LAST_POINT, FIRST_SURROGATE, LAST_SURROGATE = u8(0x10FFFF), u8(0xD800), u8(0xDFFF)
# An odd number with random bits. Multiplying a word by this number spreads its bits.
FACTOR = u8(0x9E3779B97F4A7C15)
# A mask that selects all bits except the highest in each byte of a word.
LOW_BITS = u8(0x7F7F7F7F7F7F7F7F)
BYTE_NUMBERS = u8(0x0001020304050607)


@inline
def mix_bits(x: Any) -> Any:
    """Mix 64 bits with the finalizer of SplitMix64, which maps different inputs to different outputs."""
    x = (x ^ (x >> u8(30))) * u8(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> u8(27))) * u8(0x94D049BB133111EB)
    return x ^ (x >> u8(31))


@inline
def find_slot(value: Any, stored: Any, slots: Any) -> Any:
    """Return the slot of the hash table `slots` that holds the code of a value, or the free slot to insert it in."""
    mask = u8(slots.shape[0] - 1)
    at = mix_bits(u8(value)) & mask
    while slots[at] >= i8(0) and stored[slots[at]] != value:
        at = (at + u8(1)) & mask
    return at


@kernel(out=("slots", "numbers"))
def encode_ints(values: Any, stored: Any, count: Any, slots: Any, numbers: Any, learn: Any) -> Any:
    """Write the code of each value to `numbers`, and return the number of codes.

    A value without a code gets -1 or, if `learn` is true, the next code. `stored` holds the values of all existing
    codes; their number is `count`. `slots` is a hash table of codes, with -1 in free slots; its length is a power of
    two. If `learn` is true, all values must be new and distinct, and the table must have enough free slots.
    """
    for j in range(values.shape[0]):
        at = find_slot(values[j], stored, slots)
        number = slots[at]
        if learn and number < i8(0):
            number = i8(count)
            slots[at] = i4(number)
            count += 1
        numbers[j] = number
    return count


@inline
def hash_text(data: Any, start: Any, stop: Any) -> Any:
    """Return a hash of data[start:stop]. Hashes are never saved, so a later version can change the hash function."""
    size = stop - start
    if size < 8:
        return mix_bits(u8(size) ^ (read_word(data, start, stop) * FACTOR if size else u8(0)))
    # Compute two hashes, one of the even and one of the odd words. This takes half the time of a single hash of all
    # words, because the processor computes the two hashes in parallel.
    g, h = u8(size), load_word(data, stop - 8)
    for at in range(start, stop - 15, 16):
        g = (rotate_left(g, 5) ^ load_word(data, at)) * FACTOR
        h = (rotate_left(h, 5) ^ load_word(data, at + 8)) * FACTOR
    # The last two words always have eight bytes, so they may overlap words that the loop reads.
    return mix_bits((rotate_left(g, 5) ^ load_word(data, max(start, stop - 16))) * FACTOR + h)


@inline
def are_equal(data: Any, start: Any, stop: Any, others: Any, other: Any) -> Any:
    """Return whether two byte strings of the same size are equal: data[start:stop] and others[other:other + size]."""
    size = stop - start
    if size < 8:
        return size == 0 or read_word(data, start, stop) == read_word(others, other, other + size)
    # Usually the strings are equal, so a loop that vectorizes is faster than one that ends at the first difference.
    differ = load_word(data, stop - 8) ^ load_word(others, other + size - 8)
    for k in range(0, size - 8, 8):
        differ |= load_word(data, start + k) ^ load_word(others, other + k)
    return differ == u8(0)


@kernel(out=("stored_starts", "stored_stops", "slots", "numbers"))
def encode_texts(
    data: Any, starts: Any, stops: Any, stored: Any, stored_starts: Any, stored_stops: Any, count: Any, slots: Any,
    numbers: Any, learn: Any,
) -> Any:  # fmt: skip
    """Write the code of each string, `data[starts[j]:stops[j]]`, to `numbers`, and return the number of codes.

    A string without a code gets -1 or, if `learn` is true, the next code. The string of code i is the part of `stored`
    from `stored_starts[i]` to `stored_stops[i]`; for a new code, these are set to the bounds of the string in `data`,
    so `data` must be `stored` if `learn` is true. `slots` is a hash table as in `encode_ints`. If more than half of its
    slots would be used, return -1.
    """
    mask = u8(slots.shape[0] - 1)
    for j in range(starts.shape[0]):
        start, stop = starts[j], stops[j]
        at = hash_text(data, start, stop) & mask
        number = slots[at]
        while number >= i8(0):
            other = stored_starts[number]
            if stored_stops[number] - other == stop - start and are_equal(data, start, stop, stored, other):
                break
            at = (at + u8(1)) & mask
            number = slots[at]
        if learn and number < i8(0):
            if 2 * (count + 1) > slots.shape[0]:
                return i8(-1)
            number = i8(count)
            slots[at], stored_starts[count], stored_stops[count] = i4(number), start, stop
            count += 1
        numbers[j] = number
    return count


@inline
def find_size(texts: Any, row: Any) -> Any:
    """Return the length of the string in a row of `texts`, without the zeros that pad it to a fixed width."""
    size = texts.shape[1]
    while size > 0 and texts[row, size - 1] == 0:
        size -= 1
    return size


@kernel(out=("data", "offsets"))
def write_texts(texts: Any, is_unicode: Any, data: Any, offsets: Any) -> Any:
    """Write fixed-width strings one after another, without their padding. Return 1 if a string is invalid, else 0.

    Parameters
    ----------
    texts : matrix
        The characters or bytes of each string.
    is_unicode : bool
        Whether `texts` contains Unicode code points, which are written as UTF-8, rather than bytes.
    data, offsets : uint8 array, int64 array
        The output: the bytes of all strings, and the start position of each string, followed by the end of the last.
    """
    end = i8(0)
    offsets[0] = 0
    for i in range(texts.shape[0]):
        for k in range(find_size(texts, i)):
            c = u8(texts[i, k])
            if not is_unicode or c < u8(0x80):
                data[end] = u1(c)
                end += 1
                continue
            if c > LAST_POINT or FIRST_SURROGATE <= c <= LAST_SURROGATE:
                return 1
            # In UTF-8, the first byte of a character indicates how many bytes follow. Each of the following bytes holds
            # six bits of the code point.
            more = i8(1) + i8(c >= u8(0x800)) + i8(c >= u8(0x10000))
            data[end] = u1((u8(0xF00) >> u8(more + 1)) & u8(0xFF)) | u1(c >> u8(6 * more))
            for m in range(more):
                data[end + 1 + m] = u1(0x80) | u1((c >> u8(6 * (more - 1 - m))) & u8(0x3F))
            end += more + 1
        offsets[i + 1] = end
    return 0


@kernel(out=("starts", "stops"))
def find_joined_texts(data: Any, starts: Any, stops: Any) -> Any:
    """Find where each string begins and ends in `data`, which contains strings separated by zero bytes.

    Return the number of strings, or -1 if there are more strings than `starts` has elements.
    """
    m, size = i8(0), i8(data.shape[0])
    starts[0] = 0
    for at in range(0, size, 8):
        word = read_word(data, at, size)
        # The highest bit of each byte in `zeros` is 1 if the corresponding byte in `word` is 0. Bytes after the end of
        # the data are also read as 0.
        zeros = ~(((word & LOW_BITS) + LOW_BITS) | word | LOW_BITS)
        while zeros:
            # Find the position k of the byte that contains the lowest set bit of `zeros`. Move this bit to the lowest
            # position in its byte and multiply by BYTE_NUMBERS. The highest byte of the product is the index (0 to 7)
            # of the byte in the word.
            k = at + i8((((zeros & (~zeros + u8(1))) >> u8(7)) * BYTE_NUMBERS) >> u8(56))
            if k >= size:
                break
            if m == starts.shape[0] - 1:
                return i8(-1)
            stops[m], starts[m + 1] = k, k + 1
            m += 1
            zeros &= zeros - u8(1)
    stops[m] = size
    return m + 1


@kernel(out=("starts", "stops"))
def find_view_bounds(sizes: Any, first: Any, step: Any, starts: Any, stops: Any) -> Any:
    """Find where the string in each Arrow string view begins and ends. Return the size of the longest string.

    Each row of `sizes` is a view, and its first column is the size of the string. A view contains its string only if
    the string is short, so the caller must check the returned size. The string of the first view begins at `first`, and
    each subsequent string begins `step` bytes after the previous one.
    """
    at, longest = i8(first), i8(0)
    for j in range(starts.shape[0]):
        size = i8(sizes[j, 0])
        starts[j], stops[j] = at, at + size
        longest = max(longest, size)
        at += i8(step)
    return longest
