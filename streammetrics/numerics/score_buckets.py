"""Score buckets: scores as integers of the same order, the bucket of a score, and the range of scores in a bucket.

A bucket is found by truncating bits, never by rounding, so the map never decreases. `kernels.histogram` has the compiled
version.

On the scale `probability`, p below 1/2 has buckets in 32 octaves, p above 1/2 has the mirrored buckets of 1 - p, and 1/2
has one bucket. On the scale `real`, the bucket of any finite number has the leading bits of its float32, truncated.
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

# The bits of 2**-33, where the lowest octave of probabilities begins.
FIRST = 94 << 23
INFINITE = 0x7F800000
LARGEST = 0x7F7FFFFF  # the bits of the largest float32
TOP = U8(1 << 63)


# -- exact scores ----------------------------------------------------------------------------------------------------


def count_exact_bits(real: bool) -> int:
    """Return the number of bits of an exact code: the score (probabilities have no sign bit), plus one for the label."""
    return 65 if real else 64


def encode_scores(scores: Array, real: bool) -> Words:
    """Encode float32 or float64 scores as 64-bit integers of the same order; -0.0 becomes 0.0."""
    words = (np.asarray(scores, np.float64) + 0.0).view(U8)
    return np.where(words >> U8(63), ~words, words | TOP) if real else words


def decode_scores(keys: Words, real: bool) -> Floats:
    """Decode the integers that `encode_scores` returns."""
    words = np.where(keys >> U8(63), keys & ~TOP, ~keys) if real else keys
    return np.ascontiguousarray(words, U8).view(np.float64)


def are_score_keys(keys: Words, real: bool) -> bool:
    """Whether all keys are encoded scores: finite, within [0, 1] for probabilities, and not -0.0."""
    if not len(keys):
        return True
    if not real:
        return bool(keys.max() <= encode_scores(np.ones(1), False)[0])
    low, high = encode_scores(np.array([-np.finfo(np.float64).max, np.finfo(np.float64).max]), True)
    return bool(keys.min() >= low and keys.max() <= high and not (keys == TOP - U8(1)).any())


# -- buckets ---------------------------------------------------------------------------------------------------------


def count_buckets(bits: int, real: bool) -> int:
    """Return the number of buckets of a scale."""
    return (1 << bits) + (not real)


def find_buckets(scores: Floats, real: bool, bits: int) -> tuple[Ints, NDArray[np.bool_]]:
    """Return the bucket of each score, and whether the score has bits that its bucket does not show."""
    x = np.asarray(scores, np.float64) + 0.0
    if real:
        return _find_real_buckets(x, bits)
    up, shift = x > 0.5, 58 - bits
    word = np.where(up, 1.0 - x, x).view(I8)
    bucket = (word >> shift) - (((896 << 23) + FIRST) << 29 >> shift)
    lost = (word & ((1 << shift) - 1)) != 0
    # The lowest bucket represents only 0 exactly.
    lost |= (bucket <= 0) & (word != 0)
    np.maximum(bucket, 0, out=bucket)
    return np.where(up, (1 << bits) - bucket, bucket), lost


def _find_real_buckets(x: Floats, bits: int) -> tuple[Ints, NDArray[np.bool_]]:
    size = np.abs(x)
    word = size.view(I8)
    top = (word >> 29) - (896 << 23)
    tiny, over = top < 1 << 23, top > LARGEST
    # Below 2**-126 the float32 numbers are the multiples of 2**-149.
    scaled = np.where(tiny, size, 0.0) * 2.0**149
    small = scaled.astype(I8)
    lost = np.where(tiny, small != scaled, ((word & 0x1FFFFFFF) != 0) | over)
    top = np.where(tiny, small, np.where(over, LARGEST, top))
    shift, half = 32 - bits, 1 << (bits - 1)
    bucket = top >> shift
    return np.where(x < 0, half - 1 - bucket, half + bucket), lost | ((top & ((1 << shift) - 1)) != 0)


def coarsen(bucket: Ints, real: bool, bits: int, drop: int) -> tuple[Ints, NDArray[np.bool_]]:
    """Map buckets to wider ones with `drop` bits fewer; also return whether a score at the bucket's edge loses bits."""
    mask = (1 << drop) - 1
    if real:
        half = 1 << (bits - 1)
        magnitude = np.where(bucket >= half, bucket - half, half - 1 - bucket)
        return bucket >> drop, magnitude & mask != 0
    # Buckets above 1/2 mirror the buckets below it, so their numbers are rounded up.
    top = 1 << bits
    step = np.minimum(bucket, top - bucket)
    to = np.where(bucket <= top >> 1, bucket >> drop, (top >> drop) - ((top - bucket) >> drop))
    # The lowest bucket represents only 0 exactly, so scores that move into it from higher buckets lose bits.
    return to, (step & mask != 0) | ((step > 0) & (step >> drop == 0))


def bucket_bounds(bucket: Ints, real: bool, bits: int) -> tuple[Floats, Floats, Floats]:
    """Return a lower bound of the scores in a bucket, the score that the bucket represents exactly, and an upper bound."""
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
    """Return the smallest score in a bucket; with `exact`, the score that the bucket represents exactly."""
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
    """Return the smallest number with the leading bits of a bucket, or 0 for the lowest bucket."""
    words = np.where(bucket > 0, ((base >> shift) + bucket) << shift, 0)
    return np.minimum(words, INFINITE).astype(np.int32).view(np.float32).astype(np.float64)
