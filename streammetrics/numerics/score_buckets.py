"""Mapping of scores to the buckets of a histogram, and of buckets to the range of their scores.

Scores are mapped to buckets by truncating bits, never by rounding. Truncation preserves order, so a higher score never
falls into a lower bucket. `kernels.histogram` contains the compiled version.

The functions take the scale of the scores as `real`, and the resolution as `bits`, the base-2 logarithm of the number
of buckets. On the "probability" scale (`real` is False), buckets divide the 32 octaves (factors of 2) below 1/2. The
buckets of p above 1/2 mirror those of 1 - p, and 1/2 has its own bucket. On the "real" scale (`real` is True), scores
can be any finite numbers, and a bucket contains the scores whose float32 values have the same leading bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "are_score_keys",
    "bucket_bounds",
    "coarsen",
    "count_buckets",
    "count_exact_bits",
    "decode_scores",
    "encode_scores",
    "find_buckets",
    "smallest_scores",
]

Array = NDArray[Any]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Words = NDArray[np.uint64]
I8, U8 = np.int64, np.uint64

# The float32 bits of 2**-33, which is the start of the lowest octave of probabilities.
FIRST = 94 << 23
INFINITE = 0x7F800000
# The bits of the largest float32.
LARGEST = 0x7F7FFFFF
TOP = U8(1 << 63)


# -- exact scores ----------------------------------------------------------------------------------------------------


def count_exact_bits(real: bool) -> int:
    """Return the number of bits that encode a row exactly: the bits of its score, plus one bit for its label.

    A probability takes 63 bits, because it needs no sign bit.
    """
    return 65 if real else 64


def encode_scores(scores: Array, real: bool) -> Words:
    """Encode float32 or float64 scores as 64-bit integers that sort in the same order; -0.0 becomes 0.0."""
    words = (np.asarray(scores, np.float64) + 0.0).view(U8)
    return np.where(words >> U8(63), ~words, words | TOP) if real else words


def decode_scores(keys: Words, real: bool) -> Floats:
    """Decode the integers that `encode_scores` returns."""
    words = np.where(keys >> U8(63), keys & ~TOP, ~keys) if real else keys
    return np.ascontiguousarray(words, U8).view(np.float64)


def are_score_keys(keys: Words, real: bool) -> bool:
    """Return whether all keys are encoded scores: finite, within [0, 1] for probabilities, and not -0.0."""
    if not len(keys):
        return True
    if not real:
        return bool(keys.max() <= encode_scores(np.ones(1), False)[0])
    low, high = encode_scores(np.array([-np.finfo(np.float64).max, np.finfo(np.float64).max]), True)
    return bool(keys.min() >= low and keys.max() <= high and not (keys == TOP - U8(1)).any())


# -- buckets ---------------------------------------------------------------------------------------------------------


def count_buckets(bits: int, real: bool) -> int:
    """Return the number of buckets: 2**bits, plus one for the score 1/2 on the "probability" scale."""
    return (1 << bits) + (not real)


def find_buckets(scores: Floats, real: bool, bits: int) -> tuple[Ints, NDArray[np.bool_]]:
    """Return the bucket of each score, and a mask of the scores that lose bits.

    A score loses bits if its bucket represents a different score.
    """
    x = np.asarray(scores, np.float64) + 0.0
    if real:
        return _find_real_buckets(x, bits)
    up, shift = x > 0.5, 58 - bits
    word = np.where(up, 1.0 - x, x).view(I8)
    # Bucket 0 begins at 2**-33. FIRST has the bits of this number as a float32. A float64 has 29 more fraction bits,
    # and its exponent bias is larger by 896.
    bucket = (word >> shift) - (((896 << 23) + FIRST) << 29 >> shift)
    lost = (word & ((1 << shift) - 1)) != 0
    # The lowest bucket represents the score 0, so all other scores in it lose bits.
    lost |= (bucket <= 0) & (word != 0)
    np.maximum(bucket, 0, out=bucket)
    return np.where(up, (1 << bits) - bucket, bucket), lost


def _find_real_buckets(x: Floats, bits: int) -> tuple[Ints, NDArray[np.bool_]]:
    size = np.abs(x)
    word = size.view(I8)
    # Convert the bits of the float64 to those of a float32, which has 29 fewer fraction bits and an exponent bias that
    # is smaller by 896.
    top = (word >> 29) - (896 << 23)
    tiny, over = top < 1 << 23, top > LARGEST
    # Below 2**-126, float32 numbers are subnormal, and their bits are the score in units of 2**-149.
    scaled = np.where(tiny, size, 0.0) * 2.0**149
    small = scaled.astype(I8)
    lost = np.where(tiny, small != scaled, ((word & 0x1FFFFFFF) != 0) | over)
    top = np.where(tiny, small, np.where(over, LARGEST, top))
    shift, half = 32 - bits, 1 << (bits - 1)
    bucket = top >> shift
    return np.where(x < 0, half - 1 - bucket, half + bucket), lost | ((top & ((1 << shift) - 1)) != 0)


def coarsen(bucket: Ints, real: bool, bits: int, drop: int) -> tuple[Ints, NDArray[np.bool_]]:
    """Map the buckets of a histogram with `bits` bits to the wider buckets of one with `drop` fewer bits.

    Also return a mask of the buckets that lose bits: their wider bucket represents a different score.
    """
    mask = (1 << drop) - 1
    if real:
        half = 1 << (bits - 1)
        magnitude = np.where(bucket >= half, bucket - half, half - 1 - bucket)
        return bucket >> drop, magnitude & mask != 0
    # Buckets above 1/2 mirror those below 1/2. For a bucket above 1/2, truncate its distance from the top bucket
    # instead of its number.
    top = 1 << bits
    step = np.minimum(bucket, top - bucket)
    to = np.where(bucket <= top >> 1, bucket >> drop, (top >> drop) - ((top - bucket) >> drop))
    # The lowest bucket represents the score 0, so scores that move into it from higher buckets lose bits.
    return to, (step & mask != 0) | ((step > 0) & (step >> drop == 0))


def bucket_bounds(bucket: Ints, real: bool, bits: int) -> tuple[Floats, Floats, Floats]:
    """Return three scores for each bucket: a lower bound, the score that the bucket represents, and an upper bound."""
    if real:
        half = 1 << (bits - 1)
        up = bucket >= half
        magnitude = np.where(up, bucket - half, half - 1 - bucket)
        near, far = (_bucket_floor(magnitude + i, 0, 32 - bits) for i in (0, 1))
        return np.where(up, near, -far), np.where(up, near, -near), np.where(up, far, -near)
    half, top = 1 << (bits - 1), 1 << bits
    up = bucket > half
    step = np.where(up, top - bucket, bucket)
    near, far = (_bucket_floor(np.minimum(step + i, half), FIRST, 29 - bits) for i in (0, 1))
    return np.where(up, 1 - far, near), np.where(up, 1 - near, near), np.where(up, 1 - near, far)


def smallest_scores(bucket: Ints, real: bool, bits: int, *, exact: bool) -> Floats:
    """Return the smallest score in each bucket; if `exact`, return the score that each bucket represents."""
    bucket = np.asarray(bucket, I8)
    if real:
        half = 1 << (bits - 1)
        magnitude = np.where(bucket >= half, bucket - half, half - 1 - bucket)
        first = _bucket_floor(magnitude, 0, 32 - bits)
        if exact:
            return np.where(bucket >= half, first, -first)
        beyond = _bucket_floor(magnitude + 1, 0, 32 - bits)
        last = np.where(np.isfinite(beyond), np.nextafter(beyond, 0.0), np.finfo(np.float64).max)
        return np.where(bucket >= half, first, -last)
    half, mirror = 1 << (bits - 1), (1 << bits) - bucket
    first = _bucket_floor(np.minimum(bucket, mirror), FIRST, 29 - bits)
    if exact:
        return np.where(bucket <= half, first, 1.0 - first)
    return np.where(bucket <= half, first, np.nextafter(1.0 - _bucket_floor(mirror + 1, FIRST, 29 - bits), 2.0))


def _bucket_floor(bucket: Ints, base: int, shift: int) -> Floats:
    """Return the smallest number in each bucket: its leading bits identify the bucket, and all other bits are 0.

    The number is 0 for the lowest bucket. `base` contains the bits of the smallest number on the scale, and `shift` is
    the number of bits that buckets omit.
    """
    words = np.where(bucket > 0, ((base >> shift) + bucket) << shift, 0)
    return np.minimum(words, INFINITE).astype(np.int32).view(np.float32).astype(np.float64)
