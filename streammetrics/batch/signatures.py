"""Signatures of columns: dtypes, strides and lengths, which say whether a batch is counted like the one before."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidInputError
from .columns import Batch
from .convert import TENSORS, is_bfloat16, is_scalar, library_of, of_tensor
from .ids import are_several

__all__ = ["NONE_WIDENED", "SIGNATURES", "as_plain", "batch_of", "likeness", "signature_of_rows", "widened_columns"]

Array = NDArray[Any]
NONE_WIDENED: frozenset[str] = frozenset()


def _signature(n: int) -> Callable[..., Any]:
    """Make the function that sums n columns up: whether all are as long, and of each its dtype and strides.

    None if one is no plain array of one dimension.
    """
    names = [f"c{i}" for i in range(n)]
    types = " is ".join(f"type({c})" for c in names)
    lengths = " == ".join(f"len({c})" for c in names) if n > 1 else "True"
    facts = ", ".join(f"{c}.dtype, {c}.strides" for c in names)
    flat = " == ".join(f"{c}.ndim" for c in names)
    text = f"lambda {', '.join(names)}: ({lengths}, {facts}) if {types} is array and {flat} == 1 else None"
    made: Callable[..., Any] = eval(text, {"array": np.ndarray})  # made of numbers alone
    return made


SIGNATURES = [None, *map(_signature, range(1, 17))]


def signature_of_rows(arrays: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Sum columns up of which some are of rows of several values: three facts of each."""
    if not all(type(a) is np.ndarray and a.ndim in (1, 2) for a in arrays):
        return None
    facts = [fact for a in arrays for fact in (a.dtype, a.strides, a.shape[1:])]
    return len({len(a) for a in arrays}) == 1, *facts


@cache
def likeness(ndims: tuple[int, ...]) -> Callable[..., Callable[..., bool]]:
    """Make what makes, of dtypes, strides and widths, the function that says whether columns of one length are like these.

    That is to compare two signatures in half the time: most batches are like the one before.
    """
    names, held, same = [f"c{i}" for i in range(len(ndims))], list[str](), list[str]()
    for i, c in enumerate(names):
        held.append(f"d{i}, s{i}" + f", w{i}" * (ndims[i] - 1))
        same.append(f"type({c}) is array and {c}.dtype is d{i} and {c}.strides == s{i}")
        same += [f"{c}.shape[1] == w{i}"] * (ndims[i] - 1)
    lengths = [" == ".join(f"len({c})" for c in names)] if len(ndims) > 1 else []
    text = f"lambda {', '.join(held)}: lambda {', '.join(names)}: {' and '.join(same + lengths)}"
    made: Callable[..., Callable[..., bool]] = eval(text, {"array": np.ndarray})  # made of numbers alone
    return made


def as_plain(given: Any, name: str) -> Any:
    """Return a column as a plain array where that is quick, such as a pandas column or a tensor; else as it was given.

    A tensor on a device is copied here, and not again.
    """
    how = _plain_by(type(given))  # type: ignore[arg-type]  # a class can be hashed
    return given if how is None else how(given, name)


@cache
def _plain_by(kind: type) -> Callable[[Any, str], Any] | None:
    """What makes plain arrays of things of a class, where that is quick."""
    library = library_of(kind)
    if library in TENSORS:
        return of_tensor
    if library == "pyarrow":
        return _of_arrow
    if kind in (int, float, bool) or issubclass(kind, np.number):  # one event
        return _of_value
    plain = library in ("numpy", "pandas") and kind is not np.ndarray and not issubclass(kind, np.ndarray)
    return _of_numpy if plain and hasattr(kind, "__array__") else None


@cache
def _any_tensor(*kinds: type) -> bool:
    """Whether one of some classes is of tensors."""
    return not TENSORS.isdisjoint(map(library_of, kinds))


def _of_value(given: Any, name: str) -> Array:
    """A column of one row."""
    return np.array([given])


def _of_numpy(given: Any, name: str) -> Any:
    """The memory of a column of a dtype of numpy; else what was given."""
    return given.__array__() if isinstance(getattr(given, "dtype", None), np.dtype) else given


@cache
def _arrow_numbers() -> frozenset[int]:
    """The numbers by which Arrow knows its types of numbers."""
    import pyarrow

    names = [*(f"{u}int{bits}" for u in ("", "u") for bits in (8, 16, 32, 64)), "float16", "float32", "float64"]
    return frozenset(getattr(pyarrow, name)().id for name in names)


def _of_arrow(given: Any, name: str) -> Any:
    """The memory of an Arrow column in one piece, without nulls, of numbers; else what was given."""
    chunks = getattr(given, "num_chunks", None)
    if chunks not in (None, 1) or not hasattr(given, "null_count") or given.null_count:
        return given
    if given.type.id not in _arrow_numbers():
        return given
    return (given if chunks is None else given.chunk(0)).to_numpy(zero_copy_only=True)


def batch_of(names: tuple[str, ...], given: tuple[Any, ...], widened: frozenset[str] = NONE_WIDENED) -> Batch:
    """Columns by name, all of one length, whoever reads them."""
    known = [(name, n) for name, c in zip(names, given, strict=True) if (n := _rows(c)) is not None]
    for name, n in known[1:]:
        if n != known[0][1]:
            raise InvalidInputError(f"{name} has {n:,} rows, {known[0][0]} has {known[0][1]:,}", column=name)
    return Batch(dict(zip(names, given, strict=True)), widened=widened)


def _rows(column: Any) -> int | None:
    """How many rows a column has; None for several columns, and for a value, which may be a time for all rows."""
    if isinstance(column, (str, bytes)):
        return 1
    return len(column) if hasattr(column, "__len__") and not is_scalar(column) and not are_several(column) else None


def widened_columns(names: tuple[str, ...], given: tuple[Any, ...]) -> frozenset[str]:
    """The columns that were bfloat16, and became float32."""
    if not _any_tensor(*map(type, given)):
        return NONE_WIDENED
    return frozenset(n for n, c in zip(names, given, strict=True) if library_of(type(c)) in TENSORS and is_bfloat16(c))
