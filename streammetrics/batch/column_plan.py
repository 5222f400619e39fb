"""What is known of a column before its values: how it becomes one that kernels read, and which kernel checks it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..numerics.kernel_registry import kernel
from .classes import Classes
from .columns import Kind
from .ids import Ids, integer_ids
from .kinds import Label, Matrix, Score, Target, Weight
from .numbers import Number

__all__ = ["Check", "FlatColumn", "check_of", "flat_of"]

Array = NDArray[Any]
Make = Callable[[Array], Array]
U1, U2, F4, F8 = np.dtype(np.uint8), np.dtype(np.uint16), np.dtype(np.float32), np.dtype(np.float64)
I8 = np.dtype(np.int64)


class FlatColumn(NamedTuple):
    """How a column becomes one that kernels read.

    Parameters
    ----------
    make : callable, optional
        What makes it so; None if it is.
    dtype : dtype
        What kernels read.
    source : str
        The name of the dtype that was given.
    ndim : int
        2 of rows of several values.
    """

    make: Make | None
    dtype: np.dtype[Any]
    source: str
    ndim: int = 1


class Check(NamedTuple):
    """The kernel that finds a bad value, and what it is given behind the column."""

    kernel: str
    arguments: tuple[Any, ...] = ()


def flat_of(kind: Kind, like: Array) -> FlatColumn | None:
    """Say how columns like one become what kernels read; None if that depends on their values, or is refused."""
    if type(kind) is Matrix:
        return _rows(kind, like)
    if like.ndim != 1 or like.dtype.kind not in "biuf" or like.dtype.itemsize > 8:
        return None
    if like.strides != (like.itemsize,) or not like.dtype.isnative:
        dtype = like.dtype.newbyteorder("=")
        after = flat_of(kind, np.zeros(2, dtype))
        return None if after is None else after._replace(make=_then(dtype, after.make))
    source = like.dtype.name
    if type(kind) is Label and kind.labels is None and kind.pos_label is None:
        if like.dtype == U1:
            return FlatColumn(None, U1, source)
        return FlatColumn(_narrowing(like.dtype), U1, source)
    if type(kind) in (Score, Number):
        return _score(like.dtype, source)
    if type(kind) is Classes and isinstance(kind.names, int) and not kind.skips and np.can_cast(like.dtype, I8):
        return FlatColumn(None if like.dtype == I8 else _as_int64, I8, source)
    if type(kind) is Ids and not kind.missing_values and like.dtype.kind in "iu":
        return FlatColumn(None if like.dtype == I8 else integer_ids, I8, "integer")
    if type(kind) is Weight or (type(kind) is Target and kind.named is None):
        return FlatColumn(None if like.dtype == F8 else _as_float64, F8, source)
    return None


def _rows(kind: Matrix, like: Array) -> FlatColumn | None:
    """Of rows that lie one behind the other: the flags of an array of one row do not say that those to come will."""
    if like.shape[1:] != (kind.width,) or like.strides != (kind.width * like.itemsize, like.itemsize):
        return None
    flat = flat_of(kind.kind, np.zeros(2, like.dtype))
    return None if flat is None else flat._replace(make=_each(flat.make), ndim=2)


def _each(make: Make | None) -> Make | None:
    if make is None:
        return None
    return lambda given: make(given.reshape(-1)).reshape(given.shape)


def _score(dtype: np.dtype[Any], source: str) -> FlatColumn | None:
    if dtype in (F4, F8):
        return FlatColumn(None, dtype, source)
    if dtype == np.float16:
        return FlatColumn(_through("convert:widen", U2, F4), F4, source)
    return FlatColumn(_as_float64, F8, source) if dtype.itemsize < 8 else None  # larger integers may not fit


def _narrowing(dtype: np.dtype[Any]) -> Make:
    if dtype.itemsize == 1:  # bool, int8: the kernels see -1 as 255
        return _as_bytes
    if dtype == np.float16:
        return _through("convert:narrow_half", U2, U1)
    return _through("convert:narrow", dtype, U1)


def _as_bytes(given: Array) -> Array:
    return given.view(U1)


def _as_float64(given: Array) -> Array:
    return given.astype(F8)


def _as_int64(given: Array) -> Array:
    return given.astype(I8)


def _then(dtype: np.dtype[Any], make: Make | None) -> Make:
    """Copy a column that is strided, or byte-swapped, first."""
    if make is None:
        return lambda given: given.astype(dtype, "C")
    return lambda given: make(given.astype(dtype, "C"))


def _through(name: str, dtype: np.dtype[Any], to: np.dtype[Any]) -> Make:
    """Convert by a kernel that reads one dtype (or bits of that size) and writes another."""
    run = kernel(name).entry(np.zeros(0, dtype), np.zeros(0, to))  # type: ignore[attr-defined]

    def make(given: Array) -> Array:
        out = np.empty(len(given), to)
        run(given.view(dtype), out)
        return out

    return make


def check_of(kind: Kind) -> Check | None:
    """Return the compiled check of a kind; None if it has none."""
    if type(kind) is Matrix:
        return check_of(kind.kind)
    if type(kind) is Label:
        return Check("checks:labels")
    if type(kind) is Number:
        return Check("checks:numbers", (kind.smallest, kind.largest, float(kind.low), kind.above))
    if type(kind) is Classes:
        return Check("class_counts:classes", (kind.width,))
    if type(kind) is Target or (type(kind) is Score and kind.scale == "probability"):
        return Check("checks:probabilities")
    if type(kind) is Score:
        return Check("checks:finite")
    return None
