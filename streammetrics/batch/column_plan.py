"""The plan of a column: its conversion and the kernel that checks it, both of which follow from its dtype and strides."""

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
    """How a column is converted to an array that kernels read.

    Parameters
    ----------
    convert : callable, optional
        The conversion; None if kernels read the column without one.
    dtype : dtype
        The dtype that kernels read.
    source : str
        The name of the dtype of the user.
    ndim : int
        1, or 2 for a matrix.
    """

    convert: Converter | None
    dtype: np.dtype[Any]
    source: str
    ndim: int = 1


class Check(NamedTuple):
    """A kernel that finds bad values of a column, and the arguments that it takes after the column."""

    kernel: str
    arguments: tuple[Any, ...] = ()


def plan_column(kind: Kind, like: Array) -> FlatColumn | None:
    """Return the plan for columns of this dtype, shape and strides; None if values decide it, or the column is invalid."""
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
    """Return the plan for matrices with contiguous rows."""
    # Strides decide, not flags: an array of one row is contiguous by its flags, whatever its strides are, but the same
    # plan serves later arrays of more rows.
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
    # An int64 may not fit float64.
    return FlatColumn(_as_float64, F8, source) if dtype.itemsize < 8 else None


def _choose_narrowing(dtype: np.dtype[Any]) -> Converter:
    # For bool and int8, kernels read -1 as 255, which is an invalid label.
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
    """Return a conversion that first copies a strided or byte-swapped column."""
    if make is None:
        return lambda values: values.astype(dtype, "C")
    return lambda values: make(values.astype(dtype, "C"))


def _make_kernel_converter(name: str, dtype: np.dtype[Any], to: np.dtype[Any]) -> Converter:
    """Return a conversion by a kernel that reads one dtype (or integers with the same bits) and writes another."""
    run = find_kernel(name).find_entry_point(np.zeros(0, dtype), np.zeros(0, to))  # type: ignore[attr-defined]

    def make(values: Array) -> Array:
        out = np.empty(len(values), to)
        run(values.view(dtype), out)
        return out

    return make


def find_check(kind: Kind) -> Check | None:
    """Return the kernel that checks columns of a kind; None if the kind has none."""
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
