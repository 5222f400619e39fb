"""Signatures of batches: the dtypes and strides of the columns. Plans for counting batches are cached by signature.

The functions in this module run for each batch, so they must be fast. Some are generated as loop-free source code for a
given number of columns, so that a call takes a fraction of a microsecond.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .columns import Batch, length_error
from .convert import TENSORS, LazyColumns, convert_tensor, from_nullable, is_bfloat16, is_scalar, library_of
from .ids import is_column_tuple

__all__ = [
    "NONE_WIDENED",
    "SIGNATURES",
    "find_widened_columns",
    "make_batch",
    "make_matcher",
    "matrix_signature",
    "to_plain_array",
]

Array = NDArray[Any]
NONE_WIDENED: frozenset[str] = frozenset()
# The names of the numeric polars dtypes that also exist in numpy.
POLARS_NUMBERS = {f"{u}Int{bits}" for u in ("", "U") for bits in (8, 16, 32, 64)} | {"Float32", "Float64"}


def _signature(n: int) -> Callable[..., Any]:
    """Return the function that computes the signature of n columns.

    The signature is a tuple: whether the columns have equal lengths, then the dtype and strides of each column. It is
    None if a column is not a one-dimensional numpy array.
    """
    names = [f"c{i}" for i in range(n)]
    types = " is ".join(f"type({c})" for c in names)
    lengths = " == ".join(f"len({c})" for c in names) if n > 1 else "True"
    facts = ", ".join(f"{c}.dtype, {c}.strides" for c in names)
    flat = " == ".join(f"{c}.ndim" for c in names)
    text = f"lambda {', '.join(names)}: ({lengths}, {facts}) if {types} is array and {flat} == 1 else None"
    # `eval` is safe here: the source contains only names and numbers that this function has generated.
    function: Callable[..., Any] = eval(text, {"array": np.ndarray})
    return function


SIGNATURES = [None, *map(_signature, range(1, 17))]


def matrix_signature(arrays: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Return the signature of columns and matrices: whether their lengths are equal, then the layout of each.

    The layout is the dtype, the strides and, for a matrix, the width. The signature is None if a column is not a numpy
    array of one or two dimensions.
    """
    if not all(type(a) is np.ndarray and a.ndim in (1, 2) for a in arrays):
        return None
    facts = [fact for a in arrays for fact in (a.dtype, a.strides, a.shape[1:])]
    return len({len(a) for a in arrays}) == 1, *facts


@cache
def make_matcher(ndims: tuple[int, ...]) -> Callable[..., Callable[..., bool]]:
    """Return a function that takes a layout and returns a matcher, which checks whether columns have this layout.

    The layout of a batch consists of each column's dtype and strides and, for a matrix, its width. Most batches have
    the same layout as the one before, and a matcher checks this in half the time needed to compute and compare a
    signature. `ndims` contains the number of dimensions (1 or 2) of each column.
    """
    names, expected, same = [f"c{i}" for i in range(len(ndims))], list[str](), list[str]()
    for i, c in enumerate(names):
        expected.append(f"d{i}, s{i}" + f", w{i}" * (ndims[i] - 1))
        same.append(f"type({c}) is array and {c}.dtype is d{i} and {c}.strides == s{i}")
        same += [f"{c}.shape[1] == w{i}"] * (ndims[i] - 1)
    lengths = [" == ".join(f"len({c})" for c in names)] if len(ndims) > 1 else []
    text = f"lambda {', '.join(expected)}: lambda {', '.join(names)}: {' and '.join(same + lengths)}"
    # `eval` is safe here: the source contains only names and numbers that this function has generated.
    factory: Callable[..., Callable[..., bool]] = eval(text, {"array": np.ndarray})
    return factory


def to_plain_array(column: Any, name: str) -> Any:
    """Convert a column to a numpy array if a fast conversion exists, as for pandas columns and tensors.

    Any other column is returned unchanged. A tensor is copied from its device, so that later steps need not copy it.
    """
    convert = _find_converter(type(column))  # type: ignore[arg-type]  # a class can be hashed
    return column if convert is None else convert(column, name)


@cache
def _find_converter(kind: type) -> Callable[[Any, str], Any] | None:
    """Return the fast conversion to an array for columns of class `kind`; None if there is none."""
    library = library_of(kind)
    if library == "torch":
        return _from_torch_tensor
    if library in TENSORS:
        return convert_tensor
    if library == "pyarrow":
        return _from_arrow
    if library == "polars" and hasattr(kind, "dtype"):
        return _from_polars
    if kind in (int, float, bool) or issubclass(kind, np.number):
        return _from_value
    plain = library in ("numpy", "pandas") and kind is not np.ndarray and not issubclass(kind, np.ndarray)
    return _from_numpy if plain and hasattr(kind, "__array__") else None


@cache
def _has_tensor(*kinds: type) -> bool:
    """Return whether at least one of the classes is a tensor class."""
    return not TENSORS.isdisjoint(map(library_of, kinds))


def _from_torch_tensor(column: Any, name: str) -> Array:
    """Return a torch tensor as an array, without a copy where possible."""
    try:
        array: Array = column.numpy()
    # The tensor is on another device, requires gradients or has dtype bfloat16, so it needs a slower conversion.
    except (TypeError, RuntimeError):
        return convert_tensor(column, name)
    return array


def _from_value(column: Any, name: str) -> Array:
    """Return a scalar as a column of one row."""
    return np.array([column])


def _from_numpy(column: Any, name: str) -> Any:
    """Return a column with a numpy dtype, or a nullable pandas column without missing values, as an array.

    Return any other column unchanged.
    """
    if isinstance(getattr(column, "dtype", None), np.dtype):
        return column.__array__()
    numbers = from_nullable(column)
    return column if numbers is None else numbers


@cache
def _arrow_numbers() -> frozenset[int]:
    """Return the ids (`DataType.id`) of the numeric Arrow types."""
    import pyarrow

    names = [*(f"{u}int{bits}" for u in ("", "u") for bits in (8, 16, 32, 64)), "float16", "float32", "float64"]
    return frozenset(getattr(pyarrow, name)().id for name in names)


def _from_arrow(column: Any, name: str) -> Any:
    """Return a numeric Arrow column as an array, without a copy.

    A column with nulls, with several chunks or of another type is returned unchanged.
    """
    chunks = getattr(column, "num_chunks", None)
    if chunks not in (None, 1) or not hasattr(column, "null_count") or column.null_count:
        return column
    if column.type.id not in _arrow_numbers():
        return column
    return (column if chunks is None else column.chunk(0)).to_numpy(zero_copy_only=True)


def _from_polars(column: Any, name: str) -> Any:
    """Return a numeric polars column without nulls as an array. Return any other column unchanged."""
    return column.to_numpy() if str(column.dtype) in POLARS_NUMBERS and not column.null_count() else column


def make_batch(
    names: tuple[str, ...],
    columns: tuple[Any, ...],
    table: Mapping[str, Any] | None = None,
    widened: frozenset[str] = NONE_WIDENED,
) -> Batch:
    """Return columns as a batch. If `table` is passed, the batch also contains the table's other columns.

    `widened` contains the names of the columns that were converted from bfloat16. Raises InvalidInputError if columns
    that do not come from a table have different lengths, even if no state reads them.
    """
    if table is not None:
        read = dict(zip(names, columns, strict=True))
        return Batch(LazyColumns([*table], lambda n: read[n] if n in read else table[n]), widened=widened)
    known = [(name, n) for name, c in zip(names, columns, strict=True) if (n := _count_rows(c)) is not None]
    for name, n in known[1:]:
        if n != known[0][1]:
            raise length_error(name, n, *known[0])
    return Batch(dict(zip(names, columns, strict=True)), widened=widened)


def _count_rows(column: Any) -> int | None:
    """Return the number of rows of a column.

    Returns None for a tuple of columns, and for a scalar, which may stand for all rows.
    """
    if type(column) is np.ndarray and column.ndim:
        return len(column)
    if isinstance(column, (str, bytes)):
        return 1
    return len(column) if hasattr(column, "__len__") and not is_scalar(column) and not is_column_tuple(column) else None


def find_widened_columns(names: tuple[str, ...], columns: tuple[Any, ...]) -> frozenset[str]:
    """Return the names of the bfloat16 columns, which `to_plain_array` converts to float32."""
    if not _has_tensor(*map(type, columns)):
        return NONE_WIDENED
    widened = [n for n, c in zip(names, columns, strict=True) if library_of(type(c)) in TENSORS and is_bfloat16(c)]
    return frozenset(widened) if widened else NONE_WIDENED
