"""Columns of other dtypes as kernels read them: what is bad stays bad."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._jit import kernel

f4, i8, u1, u2, u4, u8 = np.float32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64


@kernel(out=("out",))
def narrow(given: Any, out: Any) -> Any:
    """Write labels as 0 and 1, and 2 for everything else."""
    for i in range(given.shape[0]):
        v = given[i]
        out[i] = u1(v == 1) | (u1((v != 0) & (v != 1)) << u1(1))
    return 0


@kernel(out=("out",))
def narrow_half(given: Any, out: Any) -> Any:
    """Do that for the bits of float16."""
    for i in range(given.shape[0]):
        v = given[i]
        out[i] = u1(v == 0x3C00) | (u1((v & u2(0x7FFF) != 0) & (v != 0x3C00)) << u1(1))
    return 0


@kernel(out=("out",))
def widen(given: Any, out: Any) -> Any:
    """Write the float32 of the bits of float16, in integers and one product: exact, denormals too; NaN if not finite."""
    for i in range(given.shape[0]):
        h = u4(given[i])
        size = h & u4(0x7FFF)
        v = f4(u4(size << u4(13)).view(f4) * f4(2.0**112))
        bits = f4(v).view(u4) | ((h & u4(0x8000)) << u4(16))
        out[i] = u4(u4(0x7FC00000) if size >= u4(0x7C00) else bits).view(f4)
    return 0


@kernel(out=("chosen", "others"))
def choose(flags: Any, chosen: Any, others: Any) -> Any:
    """Write the rows whose flag is 1, and the others; return how many are chosen. Without branches."""
    m = u8(0)
    for i in range(flags.shape[0]):
        one = u8(flags[i] == 1)
        chosen[m], others[u8(i) - m] = i, i
        m += one
    return i8(m)
