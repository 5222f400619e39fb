"""The minimum and maximum of the values in each cell (such as a slice), encoded as integers.

The integers sort in the same order as the numbers that they encode.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ._jit import choose_by_dtype, inline, kernel

f4, f8, i4, i8, u8 = np.float32, np.float64, np.int32, np.int64, np.uint64

SIZE_MASK = i8(0x7FFFFFFFFFFFFFFF)


@inline
def ordered_bits(v: Any) -> Any:
    """Encode a number as an int64, so that larger numbers become larger integers. -0.0 becomes 0.0."""
    bits = f8(v + 0.0).view(i8)
    # As integers, negative numbers sort in reverse order, so flip all of their bits but the sign.
    return bits ^ ((bits >> i8(63)) & SIZE_MASK)


def _ordered_word32(z: Any) -> Any:
    word = f4(z).view(i4)
    # numba computes with int64 here. Converting back to int32 allows vector instructions to process twice as many
    # numbers at once.
    return i4(word ^ ((word >> i4(31)) & i4(0x7FFFFFFF)))


def _ordered_word64(z: Any) -> Any:
    word = f8(z).view(i8)
    return word ^ ((word >> i8(63)) & SIZE_MASK)


def _signed_bits32(z: Any) -> Any:
    return f4(z).view(i4)


def _signed_bits64(z: Any) -> Any:
    return f8(z).view(i8)


def _float_of_word32(z: Any) -> Any:
    return f8(i4(z ^ ((z >> i4(31)) & i4(0x7FFFFFFF))).view(f4))


def _float_of_word64(z: Any) -> Any:
    return i8(z ^ ((z >> i8(63)) & SIZE_MASK)).view(f8)


ordered_word = choose_by_dtype(float32=_ordered_word32, float64=_ordered_word64)
"""Encode a float as an integer of the same size, int32 or int64, so that a larger float has a larger integer."""

signed_bits = choose_by_dtype(float32=_signed_bits32, float64=_signed_bits64)
"""Return the bits of a float as a signed integer of the same size, int32 or int64."""

float_of_word32, float_of_word64 = inline(_float_of_word32), inline(_float_of_word64)


@inline
def update_cell(v: Any, cell: Any, low: Any, high: Any) -> None:
    """Update the minimum `low` and maximum `high` of one cell with the value v."""
    low[cell], high[cell] = min(low[cell], ordered_bits(v)), max(high[cell], ordered_bits(v))


@inline
def update_by_values(values: Any, low: Any, high: Any) -> None:
    """Update the minimum `low` and maximum `high` of a state with one cell, given the values of a batch.

    Values are compared as integers of the same size, int32 or int64, in a loop that vectorizes.
    """
    if values.shape[0]:
        least = most = ordered_word(values[0])
        for j in range(values.shape[0]):
            word = ordered_word(values[j])
            least, most = min(least, word), max(most, word)
        # numba converts both integers to int64, so the dtype of the values determines how to decode them.
        for word in (least, most):
            update_cell(float_of_word32(word) if values.itemsize == 4 else float_of_word64(word), u8(0), low, high)


@inline
def update_by_differences(first: Any, second: Any, low: Any, high: Any) -> None:
    """Update the minimum `low` and maximum `high` of a state with one cell, given |second - first| for each row.

    The absolute differences are nonnegative, so their bits, read as integers, have the same order as the differences.
    """
    least, most = low[0], high[0]
    for j in range(first.shape[0]):
        bits = f8(abs(f8(second[j]) - f8(first[j]))).view(i8)
        least, most = min(least, bits), max(most, bits)
    low[0], high[0] = least, most


@kernel(out=("rows", "low", "high"))
def update_extremes(
    first: Any, second: Any, w: Any, at: Any, width: Any, pair: Any, rows: Any, low: Any, high: Any
) -> Any:  # fmt: skip
    """Update the minimum and maximum of each output in each cell, and count rows.

    `at` holds the cell (such as a slice) of each row; if it is empty, there is one cell. The values are `first` or, if
    `pair` is true, |second - first|. A row has `width` values, one for each output, so `first` and `second` have one or
    two dimensions. `low` and `high` are flat arrays of cells x outputs. `rows` is empty if another kernel counts rows.
    The values of rows with weight 0 are ignored.
    """
    ff, ss = first.reshape(first.size), second.reshape(second.size)
    n, lone, weighted = ff.shape[0] // width, at.shape[0] == 0, w.shape[0] != 0
    if lone and rows.shape[0]:
        rows[0] += n
    for j in range(at.shape[0] if rows.shape[0] else 0):
        rows[u8(at[j])] += 1
    if lone and width == 1 and not weighted:
        if pair:
            update_by_differences(ff, ss, low, high)
        else:
            update_by_values(ff, low, high)
        return 0
    for j in range(n):
        if weighted and w[j] == 0.0:
            continue
        cell = (u8(0) if lone else u8(at[j])) * u8(width)
        for c in range(width):
            k = u8(j) * u8(width) + u8(c)
            update_cell(abs(f8(ss[k]) - f8(ff[k])) if pair else f8(ff[k]), cell + u8(c), low, high)
    return 0
