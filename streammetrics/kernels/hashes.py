"""MurmurHash3 (x64, 128 bits, seed 0) of texts: the identity of a group or query, the same everywhere and for ever."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._jit import inline, kernel

i8, u8 = np.int64, np.uint64

C1, C2 = u8(0x87C37B91114253D5), u8(0x4CF5AD432745937F)


@inline
def rotate(x: Any, by: Any) -> Any:
    """Rotate 64 bits to the left."""
    return (x << u8(by)) | (x >> u8(64 - by))


@inline
def finish(x: Any) -> Any:
    """Scatter 64 bits: the finaliser of MurmurHash3, a bijection."""
    x = (x ^ (x >> u8(33))) * u8(0xFF51AFD7ED558CCD)
    x = (x ^ (x >> u8(33))) * u8(0xC4CEB9FE1A85EC53)
    return x ^ (x >> u8(33))


@inline
def word(data: Any, at: Any, stop: Any) -> Any:
    """Read up to eight bytes, little-endian, as 64 bits."""
    out = u8(0)
    for k in range(min(stop - at, 8)):
        out |= u8(data[at + k]) << u8(8 * k)
    return out


@kernel(out=("hashes",))
def hash_texts(data: Any, offsets: Any, hashes: Any) -> Any:
    """Write the 128 bits of each text, `data[offsets[j]:offsets[j + 1]]`, as two integers."""
    for j in range(offsets.shape[0] - 1):
        at, stop = offsets[j], offsets[j + 1]
        size = stop - at
        a, b = u8(0), u8(0)
        while stop - at >= 16:
            a ^= rotate(word(data, at, stop) * C1, 31) * C2
            a = (rotate(a, 27) + b) * u8(5) + u8(0x52DCE729)
            b ^= rotate(word(data, at + 8, stop) * C2, 33) * C1
            b = (rotate(b, 31) + a) * u8(5) + u8(0x38495AB5)
            at += 16
        if stop - at > 8:
            b ^= rotate(word(data, at + 8, stop) * C2, 33) * C1
        if stop > at:
            a ^= rotate(word(data, at, stop) * C1, 31) * C2
        a ^= u8(size)
        b ^= u8(size)
        a += b
        b += a
        a, b = finish(a), finish(b)
        a += b
        b += a
        hashes[j, 0], hashes[j, 1] = i8(a), i8(b)
    return hashes.shape[0]
