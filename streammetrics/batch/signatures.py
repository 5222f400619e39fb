"""Signatures of batches: the dtypes and strides of their columns, by which a batch finds its draft.

The functions here run for each batch, so their source is generated for each number of columns: without loops, they take a
fraction of a microsecond.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidInputError
from .columns import Batch
from .convert import TENSORS, convert_tensor, is_bfloat16, is_scalar, library_of
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


def _signature(n: int) -> Callable[..., Any]:
    """Return the function that computes the signature of n columns: whether lengths are equal, then dtypes and strides.

    The signature is None if a column is not a numpy array of one dimension.
    """
    names = [f"c{i}" for i in range(n)]
    types = " is ".join(f"type({c})" for c in names)
    lengths = " == ".join(f"len({c})" for c in names) if n > 1 else "True"
    facts = ", ".join(f"{c}.dtype, {c}.strides" for c in names)
    flat = " == ".join(f"{c}.ndim" for c in names)
    text = f"lambda {', '.join(names)}: ({lengths}, {facts}) if {types} is array and {flat} == 1 else None"
    # The source consists of numbers only, so `eval` never sees text of the user.
    function: Callable[..., Any] = eval(text, {"array": np.ndarray})
    return function


SIGNATURES = [None, *map(_signature, range(1, 17))]


def matrix_signature(arrays: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Return the signature of columns and matrices: dtype, strides and width of each; None for columns of other types."""
    if not all(type(a) is np.ndarray and a.ndim in (1, 2) for a in arrays):
        return None
    facts = [fact for a in arrays for fact in (a.dtype, a.strides, a.shape[1:])]
    return len({len(a) for a in arrays}) == 1, *facts


@cache
def make_matcher(ndims: tuple[int, ...]) -> Callable[..., Callable[..., bool]]:
    """Return a factory that turns dtypes, strides and widths into a function that checks whether columns match them.

    Most batches match the last one. The check takes half the time of computing a signature and comparing it.
    """
    names, expected, same = [f"c{i}" for i in range(len(ndims))], list[str](), list[str]()
    for i, c in enumerate(names):
        expected.append(f"d{i}, s{i}" + f", w{i}" * (ndims[i] - 1))
        same.append(f"type({c}) is array and {c}.dtype is d{i} and {c}.strides == s{i}")
        same += [f"{c}.shape[1] == w{i}"] * (ndims[i] - 1)
    lengths = [" == ".join(f"len({c})" for c in names)] if len(ndims) > 1 else []
    text = f"lambda {', '.join(expected)}: lambda {', '.join(names)}: {' and '.join(same + lengths)}"
    # The source consists of numbers only, so `eval` never sees text of the user.
    factory: Callable[..., Callable[..., bool]] = eval(text, {"array": np.ndarray})
    return factory


def to_plain_array(column: Any, name: str) -> Any:
    """Return a column as a numpy array if the conversion is fast (pandas columns, tensors); otherwise unchanged.

    A tensor on a device is copied here, and not again.
    """
    convert = _find_converter(type(column))  # type: ignore[arg-type]  # a class can be hashed
    return column if convert is None else convert(column, name)


@cache
def _find_converter(kind: type) -> Callable[[Any, str], Any] | None:
    """Return the fast conversion of columns of a class to arrays; None if there is none."""
    library = library_of(kind)
    if library in TENSORS:
        return convert_tensor
    if library == "pyarrow":
        return _from_arrow
    if kind in (int, float, bool) or issubclass(kind, np.number):
        return _from_value
    plain = library in ("numpy", "pandas") and kind is not np.ndarray and not issubclass(kind, np.ndarray)
    return _from_numpy if plain and hasattr(kind, "__array__") else None


@cache
def _has_tensor(*kinds: type) -> bool:
    """Return whether any of the classes is a tensor class."""
    return not TENSORS.isdisjoint(map(library_of, kinds))


def _from_value(column: Any, name: str) -> Array:
    """Return a scalar as a column of one row."""
    return np.array([column])


def _from_numpy(column: Any, name: str) -> Any:
    """Return a column with a numpy dtype as an array, without a copy; any other column unchanged."""
    return column.__array__() if isinstance(getattr(column, "dtype", None), np.dtype) else column


@cache
def _arrow_numbers() -> frozenset[int]:
    """Return the Arrow type ids of the number types."""
    import pyarrow

    names = [*(f"{u}int{bits}" for u in ("", "u") for bits in (8, 16, 32, 64)), "float16", "float32", "float64"]
    return frozenset(getattr(pyarrow, name)().id for name in names)


def _from_arrow(column: Any, name: str) -> Any:
    """Return an Arrow column of numbers, in one chunk without nulls, as an array without a copy; any other unchanged."""
    chunks = getattr(column, "num_chunks", None)
    if chunks not in (None, 1) or not hasattr(column, "null_count") or column.null_count:
        return column
    if column.type.id not in _arrow_numbers():
        return column
    return (column if chunks is None else column.chunk(0)).to_numpy(zero_copy_only=True)


def make_batch(names: tuple[str, ...], columns: tuple[Any, ...], widened: frozenset[str] = NONE_WIDENED) -> Batch:
    """Return columns as a batch; raise InvalidInputError if lengths differ, even of columns that no state reads."""
    known = [(name, n) for name, c in zip(names, columns, strict=True) if (n := _count_rows(c)) is not None]
    for name, n in known[1:]:
        if n != known[0][1]:
            raise InvalidInputError(f"{name} has {n:,} rows, {known[0][0]} has {known[0][1]:,}", column=name)
    return Batch(dict(zip(names, columns, strict=True)), widened=widened)


def _count_rows(column: Any) -> int | None:
    """Return the number of rows of a column; None for a tuple of columns, or for a scalar, which may hold for all rows."""
    if isinstance(column, (str, bytes)):
        return 1
    return len(column) if hasattr(column, "__len__") and not is_scalar(column) and not is_column_tuple(column) else None


def find_widened_columns(names: tuple[str, ...], columns: tuple[Any, ...]) -> frozenset[str]:
    """Return the names of the bfloat16 columns, which are converted to float32."""
    if not _has_tensor(*map(type, columns)):
        return NONE_WIDENED
    return frozenset(
        n for n, c in zip(names, columns, strict=True) if library_of(type(c)) in TENSORS and is_bfloat16(c)
    )
