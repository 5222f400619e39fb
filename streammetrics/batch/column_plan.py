"""Plans for converting columns of a given dtype and strides, and the choice of the kernel that finds invalid values.

A plan does not depend on the values, so the plan for one batch serves all later batches with the same layout.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..numerics.kernel_registry import find_kernel
from .classes import Classes
from .columns import Kind
from .ids import Ids, integer_ids
from .kinds import Label, Matrix, Score, Target, Weight
from .numbers import Number

__all__ = ["Check", "FlatColumn", "find_check", "plan_column"]

Array = NDArray[Any]
Converter = Callable[[Array], Array]
U1, U2, F4, F8 = np.dtype(np.uint8), np.dtype(np.uint16), np.dtype(np.float32), np.dtype(np.float64)
I8 = np.dtype(np.int64)


class FlatColumn(NamedTuple):
    """A plan for converting a user's column to an array that kernels can read.

    Parameters
    ----------
    convert : callable, optional
        Converts the column; None if kernels can read it unchanged.
    dtype : dtype
        The dtype of the converted column.
    source : str
        The name of the dtype of the user's column.
    ndim : int
        1 for a column, 2 for a matrix.
    """

    convert: Converter | None
    dtype: np.dtype[Any]
    source: str
    ndim: int = 1


class Check(NamedTuple):
    """The name of a kernel that looks for invalid values in a column, and its arguments other than the column."""

    kernel: str
    arguments: tuple[Any, ...] = ()


def plan_column(kind: Kind, like: Array) -> FlatColumn | None:
    """Return the conversion plan for columns with the dtype, shape and strides of `like`.

    Returns None if there is no such plan, for example because the conversion depends on the values.
    """
    if type(kind) is Matrix:
        return _plan_matrix(kind, like)
    if like.ndim != 1 or like.dtype.kind not in "biuf" or like.dtype.itemsize > 8:
        return None
    if like.strides != (like.itemsize,) or not like.dtype.isnative:
        dtype = like.dtype.newbyteorder("=")
        after = plan_column(kind, np.zeros(2, dtype))
        return None if after is None else after._replace(convert=_copy_first(dtype, after.convert))
    source = like.dtype.name
    if type(kind) is Label and kind.labels is None and kind.pos_label is None:
        if like.dtype == U1:
            return FlatColumn(None, U1, source)
        return FlatColumn(_choose_narrowing(like.dtype), U1, source)
    if type(kind) in (Score, Number):
        return _plan_score(like.dtype, source)
    if type(kind) is Classes and isinstance(kind.names, int) and not kind.skips and np.can_cast(like.dtype, I8):
        return FlatColumn(None if like.dtype == I8 else _as_int64, I8, source)
    if type(kind) is Ids and not kind.missing_values and like.dtype.kind in "iu":
        return FlatColumn(None if like.dtype == I8 else integer_ids, I8, "integer")
    if type(kind) is Weight or (type(kind) is Target and kind.hard_label is None):
        return FlatColumn(None if like.dtype == F8 else _as_float64, F8, source)
    return None


def _plan_matrix(kind: Matrix, like: Array) -> FlatColumn | None:
    """Return the conversion plan for matrices laid out as `like`; None if `like` is not contiguous or has no plan."""
    # Flags such as `C_CONTIGUOUS` do not suffice: they are set for every one-row array, whatever its strides. The plan
    # also serves later arrays with more rows, so the strides themselves must be those of a contiguous array.
    if like.shape[1:] != (kind.width,) or like.strides != (kind.width * like.itemsize, like.itemsize):
        return None
    flat = plan_column(kind.kind, np.zeros(2, like.dtype))
    return None if flat is None else flat._replace(convert=_apply_elementwise(flat.convert), ndim=2)


def _apply_elementwise(make: Converter | None) -> Converter | None:
    if make is None:
        return None
    return lambda values: make(values.reshape(-1)).reshape(values.shape)


def _plan_score(dtype: np.dtype[Any], source: str) -> FlatColumn | None:
    if dtype in (F4, F8):
        return FlatColumn(None, dtype, source)
    if dtype == np.float16:
        return FlatColumn(_make_kernel_converter("convert:convert_half_floats", U2, F4), F4, source)
    # float64 represents all integers of up to 32 bits exactly, but not all 64-bit integers. Whether it can represent
    # the integers in a 64-bit column depends on their values, so such a column has no conversion plan.
    return FlatColumn(_as_float64, F8, source) if dtype.itemsize < 8 else None


def _choose_narrowing(dtype: np.dtype[Any]) -> Converter:
    # View the bytes of a bool or int8 column as uint8. An invalid label -1 then becomes 255, which is also invalid.
    if dtype.itemsize == 1:
        return _as_bytes
    if dtype == np.float16:
        return _make_kernel_converter("convert:convert_half_labels", U2, U1)
    return _make_kernel_converter("convert:convert_labels", dtype, U1)


def _as_bytes(values: Array) -> Array:
    return values.view(U1)


def _as_float64(values: Array) -> Array:
    return values.astype(F8)


def _as_int64(values: Array) -> Array:
    return values.astype(I8)


def _copy_first(dtype: np.dtype[Any], make: Converter | None) -> Converter:
    """Return a converter that copies a strided or byte-swapped column to a contiguous array, then applies `make`."""
    if make is None:
        return lambda values: values.astype(dtype, "C")
    return lambda values: make(values.astype(dtype, "C"))


def _make_kernel_converter(name: str, dtype: np.dtype[Any], to: np.dtype[Any]) -> Converter:
    """Return a converter from `dtype` to `to` that runs the kernel `name`.

    The column may have a different dtype of the same size: the kernel reads its bits as `dtype`.
    """
    run = find_kernel(name).find_entry_point(np.zeros(0, dtype), np.zeros(0, to))  # type: ignore[attr-defined]

    def make(values: Array) -> Array:
        out = np.empty(len(values), to)
        run(values.view(dtype), out)
        return out

    return make


def find_check(kind: Kind) -> Check | None:
    """Return the kernel that looks for invalid values in columns of this kind; None if there is no such kernel."""
    if type(kind) is Matrix:
        return find_check(kind.kind)
    if type(kind) is Label:
        return Check("checks:find_bad_label")
    if type(kind) is Number:
        return Check("checks:find_bad_number", (kind.smallest, kind.largest, float(kind.low), kind.above))
    if type(kind) is Classes:
        return Check("class_counts:find_bad_class", (kind.width,))
    if type(kind) is Target or (type(kind) is Score and kind.scale == "probability"):
        return Check("checks:find_bad_probability")
    if type(kind) is Score:
        return Check("checks:find_nonfinite")
    return None
