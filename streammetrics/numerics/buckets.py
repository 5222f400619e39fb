"""Where a score lies: its exact place, all its bits in order, and its bucket, the leading ones.

A bucket is found by truncating bits, never by rounding: the map never decreases. `kernels.histogram` has it compiled.

`probability` has 32 octaves of p below 1/2 and of 1 - p above it, mirrored, and a bucket for 1/2 itself. Other scores are
`real`: the leading bits of the float32, truncated too, of any finite number.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["all_scores", "bucket_of", "buckets", "coarser", "ends", "exact_bits", "first_of", "key_of", "score_of"]

Array = NDArray[Any]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Words = NDArray[np.uint64]
I8, U8 = np.int64, np.uint64

FIRST = 94 << 23  # the bits of 2**-33, where the lowest octave of probabilities begins
INFINITE = 0x7F800000
LARGEST = 0x7F7FFFFF  # the bits of the largest float32
TOP = U8(1 << 63)


# -- exact places ----------------------------------------------------------------------------------------------------


def exact_bits(real: bool) -> int:
    """Bits of an exact place: those of a score (a probability has no sign), and the label behind them."""
    return 65 if real else 64


def key_of(scores: Array, real: bool) -> Words:
    """Return 64 bits in the order of the scores, whatever their dtype; -0.0 is 0.0."""
    words = (np.asarray(scores, np.float64) + 0.0).view(U8)
    return np.where(words >> U8(63), ~words, words | TOP) if real else words


def score_of(keys: Words, real: bool) -> Floats:
    """Return the score of each key."""
    words = np.where(keys >> U8(63), keys & ~TOP, ~keys) if real else keys
    return np.ascontiguousarray(words, U8).view(np.float64)


def all_scores(keys: Words, real: bool) -> bool:
    """Whether all keys are those of scores: finite, within [0, 1] if they are probabilities, and -0.0 is 0.0."""
    if not len(keys):
        return True
    if not real:
        return bool(keys.max() <= key_of(np.ones(1), False)[0])
    low, high = key_of(np.array([-np.finfo(np.float64).max, np.finfo(np.float64).max]), True)
    return bool(keys.min() >= low and keys.max() <= high and not (keys == TOP - U8(1)).any())


# -- buckets ---------------------------------------------------------------------------------------------------------


def buckets(bits: int, real: bool) -> int:
    """How many buckets there are."""
    return (1 << bits) + (not real)


def bucket_of(scores: Floats, real: bool, bits: int) -> tuple[Ints, NDArray[np.bool_]]:
    """Return the bucket of each score, and whether it has bits that the bucket does not show."""
    x = np.asarray(scores, np.float64) + 0.0
    if real:
        return _bucket_of_real(x, bits)
    up, shift = x > 0.5, 58 - bits
    word = np.where(up, 1.0 - x, x).view(I8)
    bucket = (word >> shift) - (((896 << 23) + FIRST) << 29 >> shift)
    lost = (word & ((1 << shift) - 1)) != 0
    lost |= (bucket <= 0) & (word != 0)  # the bottom bucket is on the grid for 0 alone
    np.maximum(bucket, 0, out=bucket)
    return np.where(up, (1 << bits) - bucket, bucket), lost


def _bucket_of_real(x: Floats, bits: int) -> tuple[Ints, NDArray[np.bool_]]:
    size = np.abs(x)
    word = size.view(I8)
    top = (word >> 29) - (896 << 23)
    tiny, over = top < 1 << 23, top > LARGEST
    scaled = np.where(tiny, size, 0.0) * 2.0**149  # below 2**-126 float32 is a grid of 2**-149
    small = scaled.astype(I8)
    lost = np.where(tiny, small != scaled, ((word & 0x1FFFFFFF) != 0) | over)
    top = np.where(tiny, small, np.where(over, LARGEST, top))
    shift, half = 32 - bits, 1 << (bits - 1)
    bucket = top >> shift
    return np.where(x < 0, half - 1 - bucket, half + bucket), lost | ((top & ((1 << shift) - 1)) != 0)


def coarser(bucket: Ints, real: bool, bits: int, drop: int) -> tuple[Ints, NDArray[np.bool_]]:
    """Return buckets of `drop` bits fewer, and whether what lies in them loses bits thereby."""
    mask = (1 << drop) - 1
    if real:
        half = 1 << (bits - 1)
        magnitude = np.where(bucket >= half, bucket - half, half - 1 - bucket)
        return bucket >> drop, magnitude & mask != 0
    top = 1 << bits  # p above 1/2 mirrors 1 - p below it
    step = np.minimum(bucket, top - bucket)
    to = np.where(bucket <= top >> 1, bucket >> drop, (top >> drop) - ((top - bucket) >> drop))
    # the bottom bucket is on the grid for 0 alone: what moves into it from above is off
    return to, (step & mask != 0) | ((step > 0) & (step >> drop == 0))


def ends(bucket: Ints, real: bool, bits: int) -> tuple[Floats, Floats, Floats]:
    """Return a number that no score of a bucket is below, the one whose bits it shows, and one that none is above."""
    if real:
        half = 1 << (bits - 1)
        up = bucket >= half
        magnitude = np.where(up, bucket - half, half - 1 - bucket)
        near, far = (_float(magnitude + i, 0, 32 - bits) for i in (0, 1))
        return np.where(up, near, -far), np.where(up, near, -near), np.where(up, far, -near)
    half, top = 1 << (bits - 1), 1 << bits
    up = bucket > half
    step = np.where(up, top - bucket, bucket)
    near, far = (_float(np.minimum(step + i, half), FIRST, 29 - bits) for i in (0, 1))
    return np.where(up, 1 - far, near), np.where(up, 1 - near, near), np.where(up, 1 - near, far)


def first_of(bucket: Ints, real: bool, bits: int, *, exact: bool) -> Floats:
    """Return the smallest score that a bucket can hold; if each holds one score, that one."""
    bucket = np.asarray(bucket, I8)
    if real:
        half = 1 << (bits - 1)
        magnitude = np.where(bucket >= half, bucket - half, half - 1 - bucket)
        first = _float(magnitude, 0, 32 - bits)
        if exact:
            return np.where(bucket >= half, first, -first)
        beyond = _float(magnitude + 1, 0, 32 - bits)
        last = np.where(np.isfinite(beyond), np.nextafter(beyond, 0.0), np.finfo(np.float64).max)
        return np.where(bucket >= half, first, -last)
    half, mirror = 1 << (bits - 1), (1 << bits) - bucket
    first = _float(np.minimum(bucket, mirror), FIRST, 29 - bits)
    if exact:
        return np.where(bucket <= half, first, 1.0 - first)
    return np.where(bucket <= half, first, np.nextafter(1.0 - _float(mirror + 1, FIRST, 29 - bits), 2.0))


def _float(bucket: Ints, base: int, shift: int) -> Floats:
    """Return the smallest number of a bucket of leading bits; 0 for the bottom one."""
    words = np.where(bucket > 0, ((base >> shift) + bucket) << shift, 0)
    return np.minimum(words, INFINITE).astype(np.int32).view(np.float32).astype(np.float64)
