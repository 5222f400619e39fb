"""HyperLogLog registers, from which the number of distinct keys is estimated.

The first bits of a key's hash select a register, and the leading zeros in the remaining bits are counted. A register
holds 1 plus the largest of these counts over its keys.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ._jit import inline, kernel
from ._memory import prefetch, scratch
from .hashes import finalize_hash

f8, i8, u1, u8 = np.float64, np.int64, np.uint8, np.uint64

# Rows are hashed in blocks of this size, in a loop that vectorizes. Their registers are then updated one by one.
BLOCK = 256
# Never change the salt. With a different salt, registers would differ and could not be merged with saved ones.
SALT = u8(0x5D1A3C7E9B2F4861)


@inline
def leading_run_of_top(top: Any) -> Any:
    """Return 1 plus the number of leading zeros of the hash whose upper 53 bits are `top`, which must not be 0."""
    # Converting an integer below 2**53 to float64 is exact, and the exponent is the position of its leading bit.
    return i8(1 + 1023 + 52) - (f8(top).view(i8) >> i8(52))


@inline
def leading_run(rest: Any, precision: Any) -> Any:
    """Return 1 plus the number of leading zeros in `rest`, the bits of a hash that follow its register number.

    The first `precision` bits of the hash are the register number. The remaining bits are the upper 64 - `precision`
    bits of `rest`.
    """
    top = i8(rest >> u8(11))
    if top:
        return leading_run_of_top(top)
    run = i8(54)
    low = rest << u8(53)
    while run <= 64 - precision and not low >> u8(63):
        low <<= u8(1)
        run += 1
    return min(run, i8(65 - precision))


@kernel(out=("rows", "registers"))
def update_registers(words: Any, at: Any, precision: Any, rows: Any, registers: Any) -> Any:
    """Update the register for the key of each row, and count rows.

    `words` is a matrix with one or two integers (the key) in each row. `at` holds the cell (such as a slice) of each
    row; if it is empty, there is one cell. `registers` is a flat array with 2**precision registers for each cell.
    """
    n, width, known = words.shape[0], words.shape[1], at.shape[0] > 0
    hashes, runs = scratch((BLOCK,), u8), scratch((BLOCK,), u1)
    bits, shift = u8(precision), u8(64 - precision)
    if not known:
        rows[0] += n
    for start in range(0, n, BLOCK):
        count = min(BLOCK, n - start)
        prefetch(words, (start + BLOCK) * width, BLOCK * width)
        for j in range(count):
            hashes[j] = finalize_hash(u8(words[start + j, 0]) ^ SALT)
        for k in range(1, width):
            for j in range(count):
                hashes[j] = finalize_hash(hashes[j] + u8(words[start + j, k]))
        # This loop vectorizes, but it requires a 1 among the first 53 bits after the register number (or among all
        # of them, if there are fewer). Nearly every hash has one. If any hash has none, the whole block is computed
        # again below.
        long = i8(0)
        for j in range(count):
            top = i8((hashes[j] << bits) >> u8(11))
            long += i8(top == 0)
            runs[j] = u1(leading_run_of_top(top))
        if long:
            for j in range(count):
                runs[j] = u1(leading_run(hashes[j] << bits, precision))
        for j in range(count):
            place = hashes[j] >> shift
            if known:
                rows[u8(at[start + j])] += 1
                place += u8(at[start + j]) << bits
            if registers[place] < runs[j]:
                registers[place] = runs[j]
    return 0
