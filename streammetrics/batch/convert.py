"""From whatever users pass to numpy: arrays, lists, series, Arrow, tensors; data frames and tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date
from decimal import Decimal
from functools import partial
from numbers import Number, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidInputError

__all__ = [
    "COLUMNS",
    "arrow_values",
    "as_array",
    "as_columns",
    "as_rows",
    "check_column",
    "first_of",
    "is_bfloat16",
    "is_listed",
    "is_scalar",
    "is_tensor",
    "library_of",
    "missing",
    "native",
    "of_tensor",
    "one_column",
    "python_time",
    "text_of",
    "wrong_shape",
]

Array = NDArray[Any]
TENSORS = {"torch", "jaxlib", "tensorflow"}


def as_array(raw: Any, name: str, ndim: int = 1) -> Array:
    """Make a numpy array of one dimension, or of two (rows x columns), without copying where that is possible.

    Takes numpy arrays, lists, pandas and polars series, Arrow arrays and chunked arrays, tensors of torch, JAX and
    TensorFlow, and anything with DLPack or `__array__`; for two dimensions also columns of lists, and data frames.
    Missing values become NaN, for the checks to find; so does a column of nothing else, whatever its type. Decimals
    become the nearest float64.
    """
    values = raw if type(raw) is np.ndarray else _foreign(raw, name)
    if values.dtype == object:
        values = _of_decimals(values)
    if values.dtype.kind == "V" and is_bfloat16(values):
        values = values.astype(np.float32)
    if ndim == 2 and values.ndim == 1 and (values.dtype == object or not len(values)):
        values = _stacked(values, name)
    if ndim == 1:
        values = one_column(values)
    if values.ndim != ndim:
        raise wrong_shape(name, values, "one dimension" if ndim == 1 else "two dimensions, rows x columns")
    if values.dtype.kind not in "biufc" and first_of(values.flat) is None:  # no value, so its type says nothing
        return np.full(values.shape, np.nan)
    return native(values)


SCALARS = (Number, str, bytes, date, np.generic, type(None))


def is_scalar(raw: Any) -> bool:
    """Return whether this is one value, not a column: a number, a text, a date, None, or an array without dimensions."""
    if isinstance(raw, SCALARS):
        return True
    return getattr(raw, "ndim", 1) == 0 and getattr(getattr(raw, "dtype", None), "kind", "") != "O"


def as_rows(raw: Any) -> Any:
    """Return the value of one event as a column of one row; columns as they are."""
    if not is_scalar(raw):
        return raw
    return raw.reshape(1) if hasattr(raw, "reshape") else [raw]


def native(values: Array) -> Array:
    """An array in the byte order of this machine, as kernels and comparisons of dtypes want it."""
    return values if values.dtype.isnative else values.astype(values.dtype.newbyteorder("="))


def wrong_shape(name: str, values: Array, expected: str = "one dimension") -> InvalidInputError:
    """What to say of an array that is no column, or no matrix."""
    hint = ""
    if values.ndim == 0:
        inside = values.item()
        some = values.dtype == object and hasattr(inside, "__iter__")  # numpy looks into no iterator, set or view
        hint = f"; a {type(inside).__name__} is no column: pass a list" if some else "; pass a list or array of one row"
    return InvalidInputError(f"{name}: expected {expected}, got shape {values.shape}{hint}", column=name)


def one_column(values: Array) -> Array:
    """A matrix of one column, as models return them, as a column; everything else as it is."""
    return values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values


def is_listed(raw: Any) -> bool:
    """Whether a column holds a list in each row: a matrix, a list of lists, a column of lists."""
    if hasattr(raw, "type") and "list<" in str(raw.type):
        return True
    if str(getattr(raw, "dtype", "")).startswith(("List", "Array")):
        return True
    if len(getattr(raw, "shape", ())) == 2:  # a data frame or table, too
        return True
    first = raw[0] if isinstance(raw, (list, tuple)) and len(raw) else None
    if getattr(getattr(raw, "dtype", None), "kind", "") == "O" and len(raw):
        first = next(iter(raw))
    return isinstance(first, (list, tuple, np.ndarray))


def _foreign(raw: Any, name: str) -> Array:
    library = library_of(type(raw))
    if isinstance(raw, np.ma.MaskedArray):
        if np.ma.getmaskarray(raw).any():
            raise InvalidInputError(
                f"{name}: masked rows would be read through their mask; drop or fill them", column=name
            )
        return np.asarray(raw.data)
    check_column(raw, name)
    convert = _from_list if isinstance(raw, (list, tuple)) else _FROM.get(library)
    if convert is None:
        return _from_anything(raw)  # what a class of its own raises there is its own
    try:
        return convert(raw)
    except (TypeError, ValueError, RuntimeError) as error:  # how libraries say that a column is no array
        cause = str(error).splitlines()[0]
        raise InvalidInputError(
            f"{name}: a {type(raw).__name__} does not convert to an array: {cause}", column=name
        ) from error


def check_column(raw: Any, name: str) -> None:
    """Raise for what holds no rows although it is of a library of columns."""
    library, kind = library_of(type(raw)), type(raw).__name__
    if library in ("pandas", "polars", "pyarrow") and not hasattr(raw, "__len__"):
        lazy = "; collect() it first" if hasattr(raw, "collect") else ""
        raise InvalidInputError(f"{name}: a {kind} of {library} is no column{lazy}", column=name)


def is_tensor(raw: Any) -> bool:
    """Whether a column is a tensor, which may lie on a device: each is copied from there once."""
    return library_of(type(raw)) in TENSORS


def library_of(kind: type) -> str:
    """The library of a class: the one whose tensors it extends, or its own."""
    if kind not in _LIBRARIES:
        named = [c.__module__.partition(".")[0] for c in kind.__mro__]
        _LIBRARIES[kind] = next((n for n in named if n in TENSORS), named[0])
    return _LIBRARIES[kind]


_LIBRARIES: dict[type, str] = {}


def of_tensor(raw: Any, name: str) -> Array:
    """The values of a tensor, in its own dtype and shape; of bfloat16, which numpy lacks, the same values in float32."""
    values = _foreign(raw, name)
    return values.astype(np.float32) if values.dtype.kind == "V" and is_bfloat16(values) else values


def is_bfloat16(raw: Any) -> bool:
    """Whether an array or tensor, of any library, holds bfloat16."""
    return "bfloat16" in str(raw.dtype)


def missing(values: Iterable[Any], n: int) -> NDArray[np.bool_]:
    """Which of n objects stand for no value: None, NaN of any kind, pandas.NA, NaT."""
    return np.fromiter(map(_is_missing, values), bool, n)


def first_of(values: Iterable[Any]) -> Any:
    """The first of some objects that stands for a value; None if none does."""
    return next((v for v in values if not _is_missing(v)), None)


def _is_missing(value: Any) -> bool:
    if value is None:
        return True
    if isinstance(value, Decimal):
        return value.is_nan()
    if isinstance(value, (float, np.floating, np.datetime64)):
        return bool(value != value)
    return type(value).__name__ in ("NAType", "NaTType")  # of pandas, which need not be there


def _stacked(rows: Array, name: str) -> Array:
    """Make a matrix of an array of rows; a missing row is NaN throughout."""
    given = [np.asarray(row) for row in rows if row is not None]
    widths = sorted({row.shape for row in given})
    if not given:
        return np.full((len(rows), 0 if not len(rows) else 1), np.nan)
    if len(widths) > 1 or len(widths[0]) != 1:
        raise InvalidInputError(f"{name}: expected rows of one length, got rows of shapes {widths[:5]}", column=name)
    missing = np.full(widths[0], np.nan)
    return np.stack([missing if row is None else np.asarray(row) for row in rows])


def _from_list(raw: Any) -> Array:
    values = np.asarray(raw) if len(raw) else np.zeros(0)
    return _with_nan(values) if values.dtype == object else values


def _with_nan(values: Array) -> Array:
    """Numbers among which some are None, these as NaN; what else there is in a list stays, for the checks to name."""
    gone = missing(values.flat, values.size).reshape(values.shape)
    there = values[~gone]
    if len(there) == values.size or not all(isinstance(v, (Real, np.bool_)) for v in there):
        return values
    made = np.full(values.shape, np.nan)
    made[~gone] = there
    return made if (made[~gone] == there).all() else values  # an integer may be more than float64 holds


def _of_decimals(values: Array) -> Array:
    """Convert an array of decimals to float64, missing ones to NaN; return any other array of objects as it is."""
    if not isinstance(first_of(values.flat), Decimal):
        return values
    gone = missing(values.flat, values.size).reshape(values.shape)
    if not all(isinstance(value, Decimal) for value in values[~gone]):
        return values
    made = np.full(values.shape, np.nan)
    made[~gone] = values[~gone].astype(np.float64)
    return made


def _from_anything(raw: Any) -> Array:
    if hasattr(raw, "__array__") or not hasattr(raw, "__dlpack__"):
        return np.asarray(raw)
    return np.from_dlpack(raw)


def _from_torch(raw: Any) -> Array:
    if is_bfloat16(raw):
        raw = raw.detach().cpu().float()  # half the bytes go from device to host, and no value is rounded
    array: Array = raw.numpy(force=True)
    return array


def _from_pandas(raw: Any) -> Array:
    if hasattr(type(raw), "columns"):  # a data frame, for a matrix; a series has its rows as attributes
        return np.asarray(raw.to_numpy())
    if isinstance(getattr(raw, "dtype", None), np.dtype):
        return np.asarray(raw.to_numpy())
    # of a dictionary of nulls pyarrow crashes if it is asked isna()
    if hasattr(getattr(raw, "dtype", None), "pyarrow_dtype"):
        return _from_arrow(getattr(raw, "array", raw).__arrow_array__())
    if not hasattr(raw, "isna") or not raw.isna().any():
        plain = getattr(raw.dtype, "numpy_dtype", None)
        return np.asarray(
            raw.to_numpy(plain) if isinstance(plain, np.dtype) and plain.kind in "biuf" else raw.to_numpy()
        )
    wanted = getattr(raw.dtype, "numpy_dtype", None)
    if isinstance(wanted, np.dtype) and wanted.kind in "biuf":
        return np.asarray(raw.to_numpy(wanted if wanted.kind == "f" else np.float64, na_value=np.nan))
    return np.asarray(raw.to_numpy())


def _from_polars(raw: Any) -> Array:
    if hasattr(type(raw), "columns"):
        return np.asarray(raw.to_numpy())
    if str(raw.dtype).startswith(("List", "Decimal")):
        return _from_arrow(raw.to_arrow())
    if str(raw.dtype) == "Boolean" and raw.null_count():
        raw = raw.cast(int)
    return np.asarray(raw.to_numpy())


def _from_arrow(raw: Any) -> Array:
    if hasattr(type(raw), "schema"):  # a table or record batch, for a matrix
        return np.column_stack([_from_arrow(column) for column in raw.columns])
    kind = str(raw.type)
    if "list<" in kind:
        return _from_lists(raw)
    if kind.startswith("dictionary"):
        raw = raw.cast(raw.type.value_type)
        kind = str(raw.type)
    if kind == "bool" and raw.null_count:
        raw = raw.cast("uint8")
    if kind.startswith("decimal"):  # by way of text, which is rounded once
        raw = raw.cast("string").cast("float64")
    return arrow_values(raw)


def _from_lists(raw: Any) -> Array:
    """Read a column of lists: a matrix if all are of one length, else an array of rows."""
    chunks = raw.chunks if hasattr(raw, "chunks") else [raw]
    matrices = [_from_list_chunk(chunk) for chunk in chunks if len(chunk)]
    if not matrices:
        return np.zeros(0)
    if len({m.shape[1:] for m in matrices}) == 1 and all(m.ndim == 2 for m in matrices):
        return np.concatenate(matrices)
    rows = np.empty(len(raw), object)
    rows[:] = [row for m in matrices for row in m]
    return rows


def _from_list_chunk(chunk: Any) -> Array:
    fixed = str(chunk.type).startswith("fixed_size_list")
    sizes = {chunk.type.list_size} if fixed else set(np.diff(arrow_values(chunk.offsets)).tolist())
    if chunk.null_count or len(sizes) > 1:
        rows = np.empty(len(chunk), object)
        rows[:] = [None if row is None else np.asarray(row) for row in chunk.to_pylist()]
        return rows
    return _from_arrow(chunk.flatten()).reshape(len(chunk), sizes.pop())


_PLAIN = {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)} | {"halffloat", "float", "double"}


def arrow_values(raw: Any) -> Array:
    """Return the values of an Arrow array, by DLPack where there is nothing to convert: `to_numpy` imports pandas."""
    if str(raw.type) == "bool" and not raw.null_count:
        return arrow_values(raw.cast("uint8")).view(bool)
    if not raw.null_count and hasattr(raw, "__dlpack__") and str(raw.type) in _PLAIN:
        return np.from_dlpack(raw)
    return np.asarray(raw.to_numpy() if hasattr(raw, "chunks") else raw.to_numpy(zero_copy_only=False))


_FROM: dict[str, Callable[[Any], Array]] = {
    "jaxlib": _from_anything,
    "tensorflow": _from_anything,
    "torch": _from_torch,
    "pandas": _from_pandas,
    "polars": _from_polars,
    "pyarrow": _from_arrow,
}


def text_of(value: Any) -> str:
    """Return the text of a value; for a time that has no date, its number and its unit."""
    try:
        return str(value)
    except OverflowError:  # numpy 2.5 and later
        return f"{value.view(np.int64)} ({value.dtype})"


def python_time(value: Any) -> Any:
    """Convert a time of numpy to one of Python; None where 64 bits hold too few microseconds."""
    try:
        return value.astype("M8[us]").item()
    except OverflowError:  # numpy 2.5 and later
        return None


def as_columns(table: Any) -> Mapping[str, Any] | None:
    """Read a mapping, data frame, Arrow table or record batch as columns by name; None if it is none of these."""
    kind = type(table)  # asked for what it has: a series looks an attribute that it lacks up among its rows
    if kind in COLUMNS:
        return None
    if issubclass(kind, Mapping):
        return table  # type: ignore[no-any-return]
    if kind is list:
        return _of_events(table) if table and isinstance(table[0], Mapping) else None
    library = kind.__module__.partition(".")[0]
    if library == "pyarrow" and hasattr(kind, "schema") and hasattr(kind, "column"):
        return _Lazy(table.schema.names, partial(_arrow_column, table))
    if library == "pyarrow" and hasattr(kind, "__array__"):
        COLUMNS.add(kind)
        return None
    if library in ("pandas", "polars"):
        if hasattr(kind, "columns") and not hasattr(kind, "collect"):
            return _Lazy([c for c in table.columns if isinstance(c, str)], table.__getitem__)
        COLUMNS.add(kind)
        return None
    if hasattr(kind, "__arrow_c_stream__") and not hasattr(kind, "__array__") and not hasattr(table, "dtype"):
        import pyarrow

        return as_columns(pyarrow.RecordBatchReader.from_stream(table).read_all())
    return None


def _of_events(events: Sequence[Any]) -> Mapping[str, Any]:
    """Read a list of events, each a mapping from name to value, as columns; a value that an event lacks is None."""
    other = next((i for i, event in enumerate(events) if not isinstance(event, Mapping)), None)
    if other is not None:
        kind = type(events[other]).__name__
        raise InvalidInputError(f"expected a list of mappings, one for each event, found a {kind} in row {other:,}")
    names = dict.fromkeys(name for event in events for name in event)
    return _Lazy([*names], lambda name: [event.get(name) for event in events])


COLUMNS: set[type] = {np.ndarray}
"""Classes that are no tables, as far as they have been asked for what they have."""


def _arrow_column(table: Any, name: str) -> Any:
    if (several := table.schema.names.count(name)) > 1:
        raise InvalidInputError(f"{name}: expected one column, the table has {several} of that name", column=name)
    return table.column(name)


class _Lazy(Mapping[str, Any]):
    """Columns of a table, fetched when asked for."""

    def __init__(self, names: Sequence[str], get: Callable[[str], Any]) -> None:
        self._names, self._get = list(names), get

    def __getitem__(self, name: str) -> Any:
        if name not in self._names:
            raise KeyError(name)
        return self._get(name)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)
