"""Convert columns to the dtypes that kernels accept. Invalid values become other invalid values, such as NaN."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._jit import kernel

f4, i8, u1, u2, u4, u8 = np.float32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64


@kernel(out=("out",))
def convert_labels(labels: Any, out: Any) -> Any:
    """Convert the labels 0 and 1 to integers, and any other value to 2."""
    for i in range(labels.shape[0]):
        v = labels[i]
        out[i] = u1(v == 1) | (u1((v != 0) & (v != 1)) << u1(1))
    return 0


@kernel(out=("out",))
def convert_half_labels(bits: Any, out: Any) -> Any:
    """Convert the labels 0 and 1, given as float16 bits, to integers, and any other value to 2."""
    for i in range(bits.shape[0]):
        v = bits[i]
        # The bits of 1.0 are 0x3C00. The bits of 0.0 and -0.0, except the sign bit, are 0.
        out[i] = u1(v == 0x3C00) | (u1((v & u2(0x7FFF) != 0) & (v != 0x3C00)) << u1(1))
    return 0


@kernel(out=("out",))
def convert_half_floats(halves: Any, out: Any) -> Any:
    """Convert float16 values, given as bits, to float32. Values that are not finite become NaN."""
    for i in range(halves.shape[0]):
        h = u4(halves[i])
        # Shift the exponent and the fraction to their positions in a float32. Multiplying by 2**112 corrects the
        # exponent bias, which is 15 in a float16 and 127 in a float32. The product is exact even for subnormal numbers,
        # so they need no branch.
        size = h & u4(0x7FFF)
        v = f4(u4(size << u4(13)).view(f4) * f4(2.0**112))
        bits = f4(v).view(u4) | ((h & u4(0x8000)) << u4(16))
        out[i] = u4(u4(0x7FC00000) if size >= u4(0x7C00) else bits).view(f4)
    return 0


@kernel(out=("matches", "others"))
def split_by_flag(flags: Any, matches: Any, others: Any) -> Any:
    """Write the indices of rows with flag 1 to `matches`, and those of all other rows to `others`.

    Return the number of matches.
    """
    m = u8(0)
    for i in range(flags.shape[0]):
        # Write every row to both arrays, and advance only one index. A branch would be mispredicted for random flags.
        one = u8(flags[i] == 1)
        matches[m], others[u8(i) - m] = i, i
        m += one
    return i8(m)
