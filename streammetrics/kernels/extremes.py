"""The least and the largest number, as integers in the order of the numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._jit import by_dtype, inline, kernel

f4, f8, i4, i8, u8 = np.float32, np.float64, np.int32, np.int64, np.uint64

SIZE_MASK = i8(0x7FFFFFFFFFFFFFFF)


@inline
def key_of(v: Any) -> Any:
    """Turn the bits of a number into an integer of the same order; no zero but 0.0."""
    bits = f8(v + 0.0).view(i8)
    return bits ^ ((bits >> i8(63)) & SIZE_MASK)


def _order4(z: Any) -> Any:
    word = f4(z).view(i4)
    return i4(word ^ ((word >> i4(31)) & i4(0x7FFFFFFF)))  # numba makes int64 of what is done to int32


def _order8(z: Any) -> Any:
    word = f8(z).view(i8)
    return word ^ ((word >> i8(63)) & SIZE_MASK)


def _number4(z: Any) -> Any:
    return f8(i4(z ^ ((z >> i4(31)) & i4(0x7FFFFFFF))).view(f4))


def _number8(z: Any) -> Any:
    return i8(z ^ ((z >> i8(63)) & SIZE_MASK)).view(f8)


order = by_dtype(float32=_order4, float64=_order8)
"""The bits of a number, turned so that integers are in the order of the numbers."""

number4, number8 = inline(_number4), inline(_number8)


@inline
def note(v: Any, cell: Any, low: Any, high: Any) -> None:
    """Lower and raise the extremes of one cell."""
    low[cell], high[cell] = min(low[cell], key_of(v)), max(high[cell], key_of(v))


@inline
def note_all(values: Any, low: Any, high: Any) -> None:
    """Lower and raise the extremes of the only cell by all values: integers of their size, which vectorise."""
    if values.shape[0]:
        least = most = order(values[0])
        for j in range(values.shape[0]):
            word = order(values[j])
            least, most = min(least, word), max(most, word)
        for word in (least, most):  # numba widens words, so their type does not tell what they were made of
            note(number4(word) if values.itemsize == 4 else number8(word), u8(0), low, high)


@inline
def note_differences(first: Any, second: Any, low: Any, high: Any) -> None:
    """Lower and raise the extremes of the only cell by all |second - first|: the bits of these are in their order."""
    least, most = low[0], high[0]
    for j in range(first.shape[0]):
        bits = f8(abs(f8(second[j]) - f8(first[j]))).view(i8)
        least, most = min(least, bits), max(most, bits)
    low[0], high[0] = least, most


@kernel(out=("rows", "low", "high"))
def note_extremes(
    first: Any, second: Any, w: Any, at: Any, width: Any, pair: Any, rows: Any, low: Any, high: Any
) -> Any:  # fmt: skip
    """Lower and raise the extremes of every cell and output by rows whose weight is not 0, and count rows.

    `rows` is empty where another kernel counts them. A value is that of `first`, or of a pair |second - first|. Rows are
    `width` values side by side, in one dimension or two; `low` and `high` are cells x width, flat.
    """
    ff, ss = first.reshape(first.size), second.reshape(second.size)
    n, lone, weighted = ff.shape[0] // width, at.shape[0] == 0, w.shape[0] != 0
    if lone and rows.shape[0]:
        rows[0] += n
    for j in range(at.shape[0] if rows.shape[0] else 0):
        rows[u8(at[j])] += 1
    if lone and width == 1 and not weighted:
        if pair:
            note_differences(ff, ss, low, high)
        else:
            note_all(ff, low, high)
        return 0
    for j in range(n):
        if weighted and w[j] == 0.0:
            continue
        cell = (u8(0) if lone else u8(at[j])) * u8(width)
        for c in range(width):
            k = u8(j) * u8(width) + u8(c)
            note(abs(f8(ss[k]) - f8(ff[k])) if pair else f8(ff[k]), cell + u8(c), low, high)
    return 0
