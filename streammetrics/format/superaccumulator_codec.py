"""Superaccumulators as bytes: a sum of ordinary numbers has a few words that are neither zero nor only its sign.

One is 69 words of 32 bits in two's complement: chunks 0 to 66, and the two halves of the last. It is written as the place
of its first word that is not zero (and, in the last bit, its sign), how many words there are up to those that repeat the
sign, and these words.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import StateFormatError
from ..numerics.exact import CHUNKS
from .varint import ranges

__all__ = ["WORDS", "pack_exact", "unpack_exact"]

Array = NDArray[Any]
Ints = NDArray[np.int64]

WORDS = CHUNKS + 1
ALL = np.uint32(0xFFFFFFFF)
BLOCK = 1 << 10  # numbers: what is worked in stays small


def pack_exact(numbers: Array) -> tuple[Array, Array, Array]:
    """Write numbers of shape (n, chunks): places with signs, lengths, and words."""
    made = [_pack(numbers[i : i + BLOCK]) for i in range(0, max(len(numbers), 1), BLOCK)]
    places, lengths, words = (np.concatenate(m) for m in zip(*made, strict=True))
    return places, lengths, words


def _pack(numbers: Array) -> tuple[Array, Array, Array]:
    n = len(numbers)
    words = np.empty((n, WORDS), "<u4")
    words[:, :CHUNKS] = numbers & 0xFFFFFFFF
    words[:, CHUNKS] = (numbers[:, -1] >> 32) & 0xFFFFFFFF
    negative = numbers[:, -1] < 0
    some, other = words != 0, words != np.where(negative, ALL, np.uint32(0))[:, None]
    first = np.where(some.any(axis=1), some.argmax(axis=1), 0)
    end = np.where(other.any(axis=1), WORDS - other[:, ::-1].argmax(axis=1), 0)
    lengths = np.maximum(end - first, 0)
    kept = words.reshape(-1)[ranges(np.arange(n) * WORDS + first, lengths)]
    return (first << 1 | negative).astype(np.uint64), lengths.astype(np.uint64), kept


def unpack_exact(places: Array, lengths: Array, words: Array) -> Ints:
    """Read what `pack_exact` wrote, and nothing else."""
    if int(places.max(initial=0)) >= 2 * WORDS or int(lengths.max(initial=0)) > WORDS:
        raise StateFormatError("a sum has words beyond its last")
    places, lengths = places.astype(np.int64), lengths.astype(np.int64)
    first, negative = places >> 1, (places & 1).astype(bool)
    if (first + lengths > WORDS).any():
        raise StateFormatError("a sum has words beyond its last")
    _canonical(first, lengths, negative, words)
    out = np.empty((len(places), CHUNKS), np.int64)
    ends = np.cumsum(lengths)
    for i in range(0, len(places), BLOCK):
        block = slice(i, i + BLOCK)
        begin = int(ends[i] - lengths[i])
        spread = _spread(first[block], lengths[block], negative[block], words[begin:])
        out[block, :-1] = spread[:, : CHUNKS - 1]
        out[block, -1] = spread[:, CHUNKS - 1 :].copy().view("<i8")[:, 0]
    if np.abs(out[:, -1] >> 1).max(initial=0) >= 1 << 61:
        raise StateFormatError("a sum is out of range")
    return out


def _canonical(first: Ints, lengths: Ints, negative: Array, words: Array) -> None:
    none = lengths == 0
    if int(lengths.sum()) != len(words) or (none & ~negative & (first > 0)).any():
        raise StateFormatError("the words of a sum do not fit")
    held = np.flatnonzero(~none)
    if not len(held):
        return
    ends = np.cumsum(lengths)[held]
    low, high = words[ends - lengths[held]], words[ends - 1]
    whole = first[held] + lengths[held] == WORDS
    if (low == 0).any() or (high == np.where(negative[held], ALL, np.uint32(0))).any():
        raise StateFormatError("a sum has words that say nothing")
    if (whole & ((high >> np.uint32(31) != 0) != negative[held])).any():
        raise StateFormatError("a sum has another sign than it says")


def _spread(first: Ints, lengths: Ints, negative: Array, words: Array) -> Array:
    n = len(first)
    out = np.zeros((n, WORDS), "<u4")
    if negative.any():
        place = np.arange(WORDS)
        out[negative] = np.where(place >= (first + lengths)[negative, None], ALL, np.uint32(0))
    at = ranges(np.arange(n) * WORDS + first, lengths)
    out.reshape(-1)[at] = words[: len(at)]
    return out
