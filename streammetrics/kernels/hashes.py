"""MurmurHash3 (x64, 128 bits, seed 0) of strings. The hash identifies a group or query whose ID is a string.

The hash never changes, so that states from all machines and releases can be merged.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ._jit import inline, kernel, outline
from ._memory import load_word

i8, u8 = np.int64, np.uint64

ALL_BITS = u8(0xFFFFFFFFFFFFFFFF)

C1, C2 = u8(0x87C37B91114253D5), u8(0x4CF5AD432745937F)


@inline
def rotate_left(x: Any, by: Any) -> Any:
    """Rotate the 64 bits of x to the left by `by` bits."""
    return (x << u8(by)) | (x >> u8(64 - by))


@inline
def finalize_hash(x: Any) -> Any:
    """Mix 64 bits with the finalizer of MurmurHash3, which maps different inputs to different outputs."""
    x = (x ^ (x >> u8(33))) * u8(0xFF51AFD7ED558CCD)
    x = (x ^ (x >> u8(33))) * u8(0xC4CEB9FE1A85EC53)
    return x ^ (x >> u8(33))


@outline
def read_bytes(data: Any, at: Any, size: Any) -> Any:
    """Read `size` bytes, at most eight, as a little-endian 64-bit integer."""
    out = u8(0)
    for k in range(size):
        out |= u8(data[at + k]) << u8(8 * k)
    return out


@inline
def read_word(data: Any, at: Any, stop: Any) -> Any:
    """Read at most eight bytes from `at` to `stop` (exclusive) as a little-endian 64-bit integer."""
    size = min(stop - at, 8)
    # Loading eight bytes at once and clearing the bytes from `stop` on is much faster than a loop over the bytes.
    return (
        load_word(data, at) & (ALL_BITS >> u8(64 - 8 * size)) if at + 8 <= data.shape[0] else read_bytes(data, at, size)
    )


@kernel(out=("hashes",))
def hash_texts(data: Any, starts: Any, stops: Any, hashes: Any) -> Any:
    """Write the 128-bit hash of each string, `data[starts[j]:stops[j]]`, to a row of `hashes` as two integers."""
    for j in range(starts.shape[0]):
        at, stop = starts[j], stops[j]
        size = stop - at
        a, b = u8(0), u8(0)
        # Read 16 bytes per iteration. Up to 15 remaining bytes are read after the loop.
        while stop - at >= 16:
            a ^= rotate_left(load_word(data, at) * C1, 31) * C2
            a = (rotate_left(a, 27) + b) * u8(5) + u8(0x52DCE729)
            b ^= rotate_left(load_word(data, at + 8) * C2, 33) * C1
            b = (rotate_left(b, 31) + a) * u8(5) + u8(0x38495AB5)
            at += 16
        if stop - at > 8:
            b ^= rotate_left(read_word(data, at + 8, stop) * C2, 33) * C1
        if stop > at:
            a ^= rotate_left(read_word(data, at, stop) * C1, 31) * C2
        a ^= u8(size)
        b ^= u8(size)
        a += b
        b += a
        a, b = finalize_hash(a), finalize_hash(b)
        a += b
        b += a
        hashes[j, 0], hashes[j, 1] = i8(a), i8(b)
    return hashes.shape[0]
