"""The encoding of superaccumulators, which stores only their significant words.

A superaccumulator is a fixed-point number that has enough bits for an exact sum of float64 numbers. In memory it
consists of 68 chunks of type int64. In this encoding it is a two's complement number of 69 words of 32 bits. Each
chunk takes one word, except the last, which may be larger and takes two words. In a sum of ordinary numbers, nearly all
words are zero or only repeat the sign.

The stored words begin with the first nonzero word (from the low end), and end before the highest words that only repeat
the sign. The encoding of a superaccumulator consists of:

- twice the index of its first nonzero word, plus 1 if the superaccumulator is negative;
- the number of its stored words;
- the stored words themselves.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import StateFormatError
from ..numerics.array_rows import expand_ranges
from ..numerics.exact import CHUNKS
from .varint import is_below

__all__ = ["WORDS", "pack_superaccumulators", "unpack_superaccumulators"]

Array = NDArray[Any]
Ints = NDArray[np.int64]

WORDS = CHUNKS + 1
ALL = np.uint32(0xFFFFFFFF)
BLOCK = 1 << 10
"""The number of superaccumulators that are converted at a time, to limit temporary memory."""


def pack_superaccumulators(numbers: Array) -> tuple[Array, Array, Array]:
    """Encode n superaccumulators (exact sums), given as an array of shape (n, chunks).

    Returns
    -------
    places : uint64 of shape (n,)
        Twice the index of the first nonzero word of each number, plus 1 for a negative number.
    lengths : uint64 of shape (n,)
        The number of stored words of each number: from the first nonzero word on, without the highest words that only
        repeat the sign.
    words : uint32
        The stored words of all numbers, one number after the other, each with its lowest word first.
    """
    blocks = [_pack_block(numbers[i : i + BLOCK]) for i in range(0, max(len(numbers), 1), BLOCK)]
    places, lengths, words = (np.concatenate(m) for m in zip(*blocks, strict=True))
    return places, lengths, words


def _pack_block(numbers: Array) -> tuple[Array, Array, Array]:
    n = len(numbers)
    words = np.empty((n, WORDS), "<u4")
    words[:, :CHUNKS] = numbers & 0xFFFFFFFF
    words[:, CHUNKS] = (numbers[:, -1] >> 32) & 0xFFFFFFFF
    negative = numbers[:, -1] < 0
    some, other = words != 0, words != np.where(negative, ALL, np.uint32(0))[:, None]
    first = np.where(some.any(axis=1), some.argmax(axis=1), 0)
    end = np.where(other.any(axis=1), WORDS - other[:, ::-1].argmax(axis=1), 0)
    lengths = np.maximum(end - first, 0)
    kept = words.reshape(-1)[expand_ranges(np.arange(n) * WORDS + first, lengths)]
    return (first << 1 | negative).astype(np.uint64), lengths.astype(np.uint64), kept


def unpack_superaccumulators(places: Array, lengths: Array, words: Array) -> Ints:
    """Decode the output of `pack_superaccumulators`; raise StateFormatError for any other input."""
    if not (is_below(places, 2 * WORDS) and is_below(lengths, WORDS + 1)):
        raise StateFormatError("the state is corrupt: a sum has too many digits")
    places, lengths = places.astype(np.int64), lengths.astype(np.int64)
    first, negative = places >> 1, (places & 1).astype(bool)
    if (first + lengths > WORDS).any():
        raise StateFormatError("the state is corrupt: a sum has too many digits")
    _check_canonical(first, lengths, negative, words)
    out = np.empty((len(places), CHUNKS), np.int64)
    ends = np.cumsum(lengths)
    for i in range(0, len(places), BLOCK):
        block = slice(i, i + BLOCK)
        begin = int(ends[i] - lengths[i])
        spread = _expand_words(first[block], lengths[block], negative[block], words[begin:])
        out[block, :-1] = spread[:, : CHUNKS - 1]
        out[block, -1] = spread[:, CHUNKS - 1 :].copy().view("<i8")[:, 0]
    if np.abs(out[:, -1] >> 1).max(initial=0) >= 1 << 61:
        raise StateFormatError("the state is corrupt: a sum is out of range")
    return out


def _check_canonical(first: Ints, lengths: Ints, negative: Array, words: Array) -> None:
    none = lengths == 0
    if int(lengths.sum()) != len(words) or (none & ~negative & (first > 0)).any():
        raise StateFormatError("the state is corrupt: the lengths of the sums do not add up")
    nonempty = lengths.nonzero()[0]
    if not len(nonempty):
        return
    ends = np.cumsum(lengths)[nonempty]
    low, high = words[ends - lengths[nonempty]], words[ends - 1]
    reaches_last = first[nonempty] + lengths[nonempty] == WORDS
    # Only the shortest encoding is valid: its first word is not zero, and its last word does not merely repeat the sign.
    if (low == 0).any() or (high == np.where(negative[nonempty], ALL, np.uint32(0))).any():
        raise StateFormatError("the state is corrupt: a sum is not stored in its shortest form")
    # The highest bit of the last of the 69 words is a sign bit. If this word is stored, this bit must agree with the
    # stored sign.
    if (reaches_last & ((high >> np.uint32(31) != 0) != negative[nonempty])).any():
        raise StateFormatError("the state is corrupt: the stored sign of a sum contradicts its digits")


def _expand_words(first: Ints, lengths: Ints, negative: Array, words: Array) -> Array:
    n = len(first)
    out = np.zeros((n, WORDS), "<u4")
    if negative.any():
        place = np.arange(WORDS)
        out[negative] = np.where(place >= (first + lengths)[negative, None], ALL, np.uint32(0))
    at = expand_ranges(np.arange(n) * WORDS + first, lengths)
    out.reshape(-1)[at] = words[: len(at)]
    return out
