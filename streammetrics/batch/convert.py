"""Convert lists, series, Arrow arrays, tensors, data frames and tables to numpy arrays."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from datetime import date
from decimal import Decimal
from functools import cache, partial
from numbers import Number, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidInputError

__all__ = [
    "COLUMNS",
    "LazyColumns",
    "arrow_values",
    "as_array",
    "as_columns",
    "as_rows",
    "check_column",
    "convert_tensor",
    "find_first_value",
    "find_missing",
    "format_value",
    "from_nullable",
    "is_bfloat16",
    "is_listed",
    "is_null",
    "is_scalar",
    "is_tensor",
    "library_of",
    "shape_error",
    "squeeze_column",
    "to_native_order",
    "to_python_time",
    "unmask",
]

Array = NDArray[Any]
TENSORS = {"torch", "jaxlib", "tensorflow"}


def as_array(raw: Any, name: str, ndim: int = 1) -> Array:
    """Convert a column to a numpy array of one or two dimensions, without a copy if possible.

    The column may be a numpy array, a list, a pandas or polars series, an Arrow array or chunked array, a torch, JAX or
    TensorFlow tensor, or an object that supports DLPack or `__array__`. For two dimensions it may also be a column of
    lists or a data frame. Missing values become NaN, which later checks report. A column that contains only missing
    values becomes a column of NaN, whatever its type. Each decimal becomes the nearest float64.
    """
    values = raw if type(raw) is np.ndarray else _from_library(raw, name)
    if values.dtype == object:
        values = _of_decimals(values)
    if values.dtype.kind == "V" and is_bfloat16(values):
        values = values.astype(np.float32)
    if ndim == 2 and values.ndim == 1 and (values.dtype == object or not len(values)):
        values = _stack_rows(values, name)
    if ndim == 1:
        values = squeeze_column(values)
    if values.ndim != ndim:
        raise shape_error(name, values, "one dimension" if ndim == 1 else "two dimensions (rows x columns)")
    # A column that contains only missing values may have a dtype that is not numeric. It becomes a column of NaN, so
    # that later checks report the missing values.
    if values.dtype.kind not in "biufc" and find_first_value(values.flat) is None:
        return np.full(values.shape, np.nan)
    return to_native_order(values)


SCALARS = (Number, str, bytes, date, np.generic, type(None))


def is_scalar(raw: Any) -> bool:
    """Return whether `raw` is a scalar (a number, string, date, None or 0-dimensional array) rather than a column."""
    if isinstance(raw, SCALARS):
        return True
    return getattr(raw, "ndim", 1) == 0 and getattr(getattr(raw, "dtype", None), "kind", "") != "O"


def as_rows(raw: Any) -> Any:
    """Return a scalar as a column of one row, and a column unchanged."""
    if not is_scalar(raw):
        return raw
    return raw.reshape(1) if hasattr(raw, "reshape") else [raw]


def to_native_order(values: Array) -> Array:
    """Return an array in native byte order, which the kernels and dtype comparisons require."""
    return values if values.dtype.isnative else values.astype(values.dtype.newbyteorder("="))


def shape_error(name: str, values: Array, expected: str = "one dimension") -> InvalidInputError:
    """Return the error to raise for an array of the wrong shape."""
    hint = ""
    if values.ndim == 0:
        inside = values.item()
        # numpy wraps an iterator, a set or a dict view in a 0-dimensional array rather than reading its items.
        is_iterable = values.dtype == object and hasattr(inside, "__iter__")
        hint = (
            f"; convert the {type(inside).__name__} to a list"
            if is_iterable
            else "; pass a list or an array of one row"
        )
    return InvalidInputError(f"{name}: expected {expected}, found an array of shape {values.shape}{hint}", column=name)


def squeeze_column(values: Array) -> Array:
    """Reshape an array of shape (n, 1), such as the output of a model, to (n,); return any other array unchanged."""
    return values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values


def is_listed(raw: Any) -> bool:
    """Return whether each row of a column is a list, as in a matrix, a list of lists, or a column of lists."""
    if hasattr(raw, "type") and "list<" in str(raw.type):
        return True
    if str(getattr(raw, "dtype", "")).startswith(("List", "Array")):
        return True
    # An object with a two-dimensional shape is a matrix, a data frame or a table.
    if len(getattr(raw, "shape", ())) == 2:
        return True
    first = raw[0] if isinstance(raw, (list, tuple)) and len(raw) else None
    if getattr(getattr(raw, "dtype", None), "kind", "") == "O" and len(raw):
        first = next(iter(raw))
    return isinstance(first, (list, tuple, np.ndarray))


def unmask(raw: np.ma.MaskedArray[Any, Any], name: str) -> Array:
    """Return the values of a masked array; raise InvalidInputError if any value is masked."""
    if masked := int(np.ma.getmaskarray(raw).sum()):
        raise InvalidInputError(
            f"{name}: expected no masked values, found {masked:,}; drop or fill these values", column=name
        )
    return np.asarray(raw.data)


def _from_library(raw: Any, name: str) -> Array:
    library = library_of(type(raw))
    if isinstance(raw, np.ma.MaskedArray):
        return unmask(raw, name)
    check_column(raw, name)
    convert = _from_list if isinstance(raw, (list, tuple)) else _FROM.get(library)
    if convert is None:
        # Only errors from known libraries become InvalidInputError. An error from an unknown library is not caught.
        return _from_anything(raw)
    try:
        return convert(raw)
    # If a library cannot convert the column, it raises one of these errors. Report it as an InvalidInputError.
    except (TypeError, ValueError, RuntimeError) as error:
        cause = str(error).splitlines()[0]
        raise InvalidInputError(
            f"{name}: cannot convert an object of class {type(raw).__name__} to an array: {cause}", column=name
        ) from error


def check_column(raw: Any, name: str) -> None:
    """Raise InvalidInputError for an object without a length, such as a lazy frame, from a data-frame library."""
    library, kind = library_of(type(raw)), type(raw).__name__
    if library in ("pandas", "polars", "pyarrow") and not hasattr(raw, "__len__"):
        cure = "call collect() first" if hasattr(raw, "collect") else "pass a Series, an array or a list"
        raise InvalidInputError(f"{name}: expected a column, found {library}.{kind}; {cure}", column=name)


def is_tensor(raw: Any) -> bool:
    """Return whether a column is a torch, JAX or TensorFlow tensor."""
    return library_of(type(raw)) in TENSORS


def library_of(kind: type) -> str:
    """Return the name of the library that a class belongs to, such as "pandas".

    A subclass of a tensor class belongs to the library of that tensor class. Any other class belongs to the package
    that defines it.
    """
    if kind not in _LIBRARIES:
        named = [c.__module__.partition(".")[0] for c in kind.__mro__]
        _LIBRARIES[kind] = next((n for n in named if n in TENSORS), named[0])
    return _LIBRARIES[kind]


_LIBRARIES: dict[type, str] = {}


def convert_tensor(raw: Any, name: str) -> Array:
    """Return a tensor as an array of the same shape and dtype.

    numpy has no bfloat16, so a bfloat16 tensor becomes a float32 array with the same values.
    """
    values = _from_library(raw, name)
    return values.astype(np.float32) if values.dtype.kind == "V" and is_bfloat16(values) else values


def is_bfloat16(raw: Any) -> bool:
    """Return whether an array or tensor from any library has dtype bfloat16."""
    return _is_bfloat16_type(raw.dtype)


@cache
def _is_bfloat16_type(dtype: Hashable) -> bool:
    return "bfloat16" in str(dtype)


def find_missing(values: Iterable[Any], n: int) -> NDArray[np.bool_]:
    """Return a mask of the missing values (None, NaN of any type, pandas.NA or NaT) among n objects."""
    return np.fromiter(map(_is_missing, values), bool, n)


def is_null(column: Any, row: int) -> bool:
    """Return whether a column contains null, rather than NaN, in row `row`; `as_array` converts null to NaN."""
    with contextlib.suppress(TypeError, IndexError, KeyError):
        # Indexing a pandas series with an integer selects by label, not by position.
        value = (column.iloc if hasattr(column, "iloc") else column)[row]
        return value is None or type(value).__name__ == "NAType" or getattr(value, "is_valid", True) is False
    return False


def find_first_value(values: Iterable[Any]) -> Any:
    """Return the first object that is not a missing value; None if all are missing."""
    return next((v for v in values if not _is_missing(v)), None)


def _is_missing(value: Any) -> bool:
    if value is None:
        return True
    if isinstance(value, Decimal):
        return value.is_nan()
    if isinstance(value, (float, np.floating, np.datetime64)):
        return bool(value != value)
    # Compare the name of the class, not the class itself, because pandas may not be installed.
    return type(value).__name__ in ("NAType", "NaTType")


def _stack_rows(rows: Array, name: str) -> Array:
    """Stack an array of rows into a matrix. A missing row becomes a row of NaN."""
    present = [np.asarray(row) for row in rows if row is not None]
    widths = sorted({row.shape for row in present})
    if not present:
        return np.full((len(rows), 0 if not len(rows) else 1), np.nan)
    if len(widths) > 1 or len(widths[0]) != 1:
        raise InvalidInputError(
            f"{name}: expected rows of equal length, found rows of shapes {widths[:5]}", column=name
        )
    missing = np.full(widths[0], np.nan)
    return np.stack([missing if row is None else np.asarray(row) for row in rows])


def _from_list(raw: Any) -> Array:
    values = np.asarray(raw) if len(raw) else np.zeros(0)
    return _with_nan(values) if values.dtype == object else values


def _with_nan(values: Array) -> Array:
    """Convert an array of numbers and missing values to float64, with NaN for the missing values.

    Return any other array unchanged; a later check reports it.
    """
    null = find_missing(values.flat, values.size).reshape(values.shape)
    present = values[~null]
    if len(present) == values.size or not all(isinstance(v, (Real, np.bool_)) for v in present):
        return values
    numbers = np.full(values.shape, np.nan)
    numbers[~null] = present
    # float64 cannot represent every large integer. If a value would change, keep the objects.
    return numbers if (numbers[~null] == present).all() else values


def _of_decimals(values: Array) -> Array:
    """Convert an array of decimals to float64, with NaN for missing values; return any other array unchanged."""
    if not isinstance(find_first_value(values.flat), Decimal):
        return values
    null = find_missing(values.flat, values.size).reshape(values.shape)
    if not all(isinstance(value, Decimal) for value in values[~null]):
        return values
    numbers = np.full(values.shape, np.nan)
    numbers[~null] = values[~null].astype(np.float64)
    return numbers


def _from_anything(raw: Any) -> Array:
    if hasattr(raw, "__array__") or not hasattr(raw, "__dlpack__"):
        return np.asarray(raw)
    return np.from_dlpack(raw)


def _from_torch(raw: Any) -> Array:
    if is_bfloat16(raw):
        # Copy the tensor from its device as bfloat16, which takes half as many bytes as float32. The conversion to
        # float32 afterwards is exact.
        raw = raw.detach().cpu().float()
    array: Array = raw.numpy(force=True)
    return array


def _from_pandas(raw: Any) -> Array:
    # Look at the class, not the object: pandas exposes the row labels of a series as attributes, and a label may be
    # "columns".
    if hasattr(type(raw), "columns"):
        return np.asarray(raw.to_numpy())
    if isinstance(getattr(raw, "dtype", None), np.dtype):
        return np.asarray(raw.to_numpy())
    # Convert Arrow columns without pandas, which would call a pyarrow function that crashes on a dictionary-encoded
    # column that contains only nulls.
    if hasattr(getattr(raw, "dtype", None), "pyarrow_dtype"):
        return _from_arrow(getattr(raw, "array", raw).__arrow_array__())
    if (numbers := from_nullable(raw)) is not None:
        return numbers
    wanted = getattr(raw.dtype, "numpy_dtype", None)
    if isinstance(wanted, np.dtype) and wanted.kind in "biuf":
        return np.asarray(raw.to_numpy(wanted if wanted.kind == "f" else np.float64, na_value=np.nan))
    return np.asarray(raw.to_numpy())


def from_nullable(raw: Any) -> Array | None:
    """Return a pandas column of a nullable dtype, such as Int64, as an array if no value is missing; otherwise None."""
    dtype = getattr(raw, "dtype", None)
    plain = getattr(dtype, "numpy_dtype", None)
    if not isinstance(plain, np.dtype) or plain.kind not in "biuf" or hasattr(dtype, "pyarrow_dtype"):
        return None
    # A series' array has no row labels, so pandas converts it faster than the series itself.
    values = getattr(raw, "array", raw)
    return None if np.count_nonzero(values.isna()) else np.asarray(values.to_numpy(plain))


def _from_polars(raw: Any) -> Array:
    if hasattr(type(raw), "columns"):
        return np.asarray(raw.to_numpy())
    if str(raw.dtype).startswith(("List", "Decimal")):
        return _from_arrow(raw.to_arrow())
    if str(raw.dtype) == "Boolean" and raw.null_count():
        raw = raw.cast(int)
    return np.asarray(raw.to_numpy())


def _from_arrow(raw: Any) -> Array:
    # Tables and record batches have a schema; arrays have none.
    if hasattr(type(raw), "schema"):
        return np.column_stack([_from_arrow(column) for column in raw.columns])
    kind = str(raw.type)
    if "list<" in kind:
        return _from_lists(raw)
    if kind.startswith("dictionary"):
        raw = raw.cast(raw.type.value_type)
        kind = str(raw.type)
    if kind == "bool" and raw.null_count:
        raw = raw.cast("uint8")
    # A direct cast may round a decimal more than once. Casting via strings yields the nearest float64.
    if kind.startswith("decimal"):
        raw = raw.cast("string").cast("float64")
    return arrow_values(raw)


def _from_lists(raw: Any) -> Array:
    """Return a column of lists as a matrix if all lists have the same length.

    Otherwise return an object array that contains one array for each row.
    """
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
    """Return the values of an Arrow array. DLPack is preferred because the Arrow method `to_numpy` imports pandas."""
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


def format_value(value: Any) -> str:
    """Return a value as a string. A datetime64 that numpy cannot format is shown as a number and its unit."""
    try:
        return str(value)
    # numpy 2.5 and later raise this error for a datetime64 outside Python's range of years.
    except OverflowError:
        return f"{value.view(np.int64)} ({value.dtype})"


def to_python_time(value: Any) -> Any:
    """Convert a numpy datetime64 to a Python datetime, or to microseconds if Python does not support its year.

    Return None for NaT, or if numpy reports that the number of microseconds does not fit into 64 bits.
    """
    try:
        return value.astype("M8[us]").item()
    # numpy 2.5 and later raise this error if the number of microseconds does not fit into 64 bits.
    except OverflowError:
        return None


def as_columns(table: Any) -> Mapping[str, Any] | None:
    """Return a data frame, table, record batch or list of events as columns, keyed by name.

    A mapping is returned unchanged. For any other object, the result is None.
    """
    # Look at the class, not the object: pandas exposes the row labels of a series as attributes, and a label may be any
    # name.
    kind = type(table)
    if kind in COLUMNS:
        return None
    if issubclass(kind, Mapping):
        return table  # type: ignore[no-any-return]
    if kind is list:
        return _of_events(table) if table and isinstance(table[0], Mapping) else None
    library = kind.__module__.partition(".")[0]
    if library == "pyarrow" and hasattr(kind, "schema") and hasattr(kind, "column"):
        return LazyColumns(table.schema.names, partial(_arrow_column, table))
    if library == "pyarrow" and hasattr(kind, "__array__"):
        COLUMNS.add(kind)
        return None
    if library in ("pandas", "polars"):
        if hasattr(kind, "columns") and not hasattr(kind, "collect"):
            return LazyColumns([c for c in table.columns if isinstance(c, str)], table.__getitem__)
        COLUMNS.add(kind)
        return None
    if hasattr(kind, "__arrow_c_stream__") and not hasattr(kind, "__array__") and not hasattr(table, "dtype"):
        import pyarrow

        return as_columns(pyarrow.RecordBatchReader.from_stream(table).read_all())
    return None


def _of_events(events: Sequence[Any]) -> Mapping[str, Any]:
    """Return a list of events (mappings from name to value) as columns. Absent values become None."""
    other = next((i for i, event in enumerate(events) if not isinstance(event, Mapping)), None)
    if other is not None:
        kind = type(events[other]).__name__
        raise InvalidInputError(
            f"expected a list of mappings, one for each event, found an object of class {kind} in row {other:,}"
        )
    names = dict.fromkeys(name for event in events for name in event)
    return LazyColumns([*names], lambda name: [event.get(name) for event in events])


COLUMNS: set[type] = {np.ndarray}
"""Classes that `as_columns` has found not to be tables, so that it need not inspect them again."""


def _arrow_column(table: Any, name: str) -> Any:
    if (several := table.schema.names.count(name)) > 1:
        raise InvalidInputError(
            f"{name}: expected one column, found {several} columns with this name; rename or drop the others",
            column=name,
        )
    return table.column(name)


class LazyColumns(Mapping[str, Any]):
    """The columns of a table, keyed by name. A column is read from the table only when it is used."""

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
