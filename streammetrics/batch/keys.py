"""Read columns of keys, such as user ids or countries, without a Python loop over rows.

Keys are integers of any width, strings or bytes, and may be missing. For other kinds of key, see `slice_keys`.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidInputError
from ..numerics.kernel_registry import find_kernel, has_kernels
from ..numerics.slice_keys import decode_key, encode_key, from_stored_key, hash_key, sort_key, to_stored_key
from .convert import (
    arrow_values,
    as_columns,
    check_column,
    find_first_value,
    find_missing,
    shape_error,
    squeeze_column,
    to_native_order,
    unmask,
)

__all__ = [
    "Key",
    "decode_key",
    "encode_key",
    "hash_key",
    "key_column",
    "kind_error",
    "kind_of",
    "normalize_all_null",
    "plain_key",
    "read_column",
    "read_keys",
    "sort_key",
]

Atom = Any
Key = tuple[Atom, ...]
Ints = NDArray[np.int64]
# The first array contains the concatenated bytes of all strings. The second contains the position where each string
# begins, followed by the position where the last one ends.
EncodedTexts = tuple[NDArray[np.uint8], Ints]


# The initial length of the hash table for the distinct strings of a batch.
SLOTS = 1 << 12
# Up to this many strings are encoded by Python, which takes less time than compiling the kernel.
FEW_TEXTS = 256

# The largest number of categorical columns whose categories are cached, and the largest number of categories in each of
# these columns.
MOST_CATEGORICALS, MOST_CATEGORIES = 64, 1 << 20

KEYS = "integers, strings, bytes, booleans, dates, timestamps or decimals"


# -- columns of keys -------------------------------------------------------------------------------------------------


def read_keys(raw: Any, name: str) -> tuple[str, Any]:
    """Return the kind and content of a key column.

    Returns
    -------
    kind : str
        "integer", "string" or "bytes"; an empty string if all rows are null.
    content : tuple or int
        For integers: (values, mask), where the mask marks missing rows or is None. For strings or bytes: ((data,
        offsets), index, mask), where `data` concatenates the distinct strings, `offsets` contains the position
        where each of them begins and then the position where the last one ends, and `index` contains the position of
        each row's string among the distinct strings. If all rows are null: the number of rows.
    """
    return read_column(key_column(raw, name), name)


def read_column(raw: Any, name: str, exact: bool = True) -> tuple[str, Any]:
    """Return the same as `read_keys`, but for a column that `key_column` has already converted.

    With ``exact=False``, integers of more than 64 bits are allowed.
    """
    if isinstance(raw, (list, tuple)):
        raw = _from_list(raw, name)
    return normalize_all_null(_from_numpy(raw, name, exact) if isinstance(raw, np.ndarray) else _from_arrow(raw, name))


def normalize_all_null(keys: tuple[str, Any]) -> tuple[str, Any]:
    """Return `keys` unchanged if at least one row has a key.

    Otherwise return an empty kind and the number of rows. `keys` is a pair (kind, content), as `read_keys` returns it.
    """
    kind, content = keys
    if kind and (not len(content[-2]) or (content[-1] is not None and content[-1].all())):
        return "", len(content[-2])
    return keys


def key_column(raw: Any, name: str) -> Any:
    """Convert a key column to a list, a numpy array in native byte order, or an Arrow array of a type allowed for keys.

    Raises
    ------
    InvalidInputError
        The object has several columns, some rows are masked, or the values have a type that keys cannot have, such as
        float.
    """
    if isinstance(raw, (list, tuple)):
        return raw
    raw = _sole_column(raw, name)
    check_column(raw, name)
    library = type(raw).__module__.partition(".")[0]
    if library in ("pandas", "polars"):
        raw = _from_series(raw, library, name)
        library = type(raw).__module__.partition(".")[0]
    if library == "pyarrow":
        return _plain_arrow(raw, name)
    if library == "torch":
        raw = raw.detach().cpu().numpy()
    if isinstance(raw, np.ma.MaskedArray):
        raw = unmask(raw, name)
    return raw if isinstance(raw, list) else to_native_order(np.asarray(raw))


def _sole_column(raw: Any, name: str) -> Any:
    """Return the only column of a data frame or table; return an object that is not a table unchanged."""
    if isinstance(raw, np.ndarray) or (table := as_columns(raw)) is None:
        return raw
    if len(table) != 1:
        raise InvalidInputError(f"{name}: expected one column, found a table of {len(table)} columns", column=name)
    return next(iter(table.values()))


def _from_series(raw: Any, library: str, name: str) -> Any:
    """Return the content of a pandas or polars series: its numpy array if it has one, otherwise an Arrow array."""
    if isinstance(getattr(raw, "dtype", None), np.dtype):
        return raw.to_numpy()
    # For the dtype Object, Arrow would store the memory addresses of the objects rather than their values.
    if library == "polars" and str(raw.dtype) == "Object":
        return raw.to_list()
    try:
        import pyarrow as pa
    # If pandas is installed without pyarrow, let the series itself convert its values.
    except ImportError:
        return raw.to_numpy()
    try:
        if library == "pandas" and hasattr(raw.dtype, "categories"):
            return _from_categorical(getattr(raw, "array", raw))
        return raw.to_arrow() if library == "polars" else pa.array(raw, from_pandas=True)
    # If Arrow has no type for the values, they cannot be keys.
    except (pa.ArrowException, TypeError, ValueError):
        raise kind_error(name, str(raw.dtype)) from None


def _from_categorical(raw: Any) -> Any:
    """Return a pandas categorical as an Arrow dictionary array.

    If there are more categories than rows, the dictionary contains only the categories that occur, so that later steps
    spend no time on unused categories.
    """
    import pyarrow as pa

    codes, dictionary = raw.codes, _arrow_categories(raw)
    if len(dictionary) > len(codes):
        used, codes = np.unique(codes, return_inverse=True)
        # The code -1, which sorts first, stands for a missing value.
        has_missing = int(used[:1].tolist() == [-1])
        dictionary, codes = dictionary.take(pa.array(used[has_missing:])), codes.reshape(-1) - has_missing
    return pa.DictionaryArray.from_arrays(pa.array(codes, mask=codes < 0), dictionary)


_CATEGORIES: dict[int, tuple[weakref.ref[Any], Any]] = {}
"""The categories of recent categorical columns, by the `id` of the pandas index of categories: a weak reference to this
index, and the categories as an Arrow array."""


def _arrow_categories(raw: Any) -> Any:
    """Return the categories of a pandas categorical as an Arrow array.

    Successive batches often share their categories, so the result is cached as long as the categories exist.
    """
    import pyarrow as pa

    categories = raw.categories
    key = id(categories)
    known = _CATEGORIES.get(key)
    if known is None or known[0]() is not categories:
        dictionary = pa.array(raw[:0], from_pandas=True).dictionary
        if len(dictionary) > MOST_CATEGORIES or len(_CATEGORIES) >= MOST_CATEGORICALS:
            return dictionary
        known = _CATEGORIES[key] = weakref.ref(categories, lambda _: _CATEGORIES.pop(key, None)), dictionary
    return known[1]


def _plain_arrow(raw: Any, name: str) -> Any:
    """Return an Arrow array in a form that `read_column` can read.

    A run-end encoded array is decoded, and an array that contains only nulls is converted to the null type. If the
    values cannot be keys, InvalidInputError is raised.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_run_end_encoded(raw.type):
        chunks = [pc.run_end_decode(chunk) for chunk in (raw.chunks if isinstance(raw, pa.ChunkedArray) else [raw])]
        raw = pa.chunked_array(chunks, raw.type.value_type)
    kind = raw.type.value_type if pa.types.is_dictionary(raw.type) else raw.type
    # Some pyarrow functions crash on a dictionary-encoded array that contains only nulls.
    if raw.null_count == len(raw) or pa.types.is_null(kind):
        return pa.nulls(len(raw))
    if not _can_be_key(kind):
        raise kind_error(name, str(kind))
    return raw


@cache
def _can_be_key(kind: Any) -> bool:
    """Return whether values of this Arrow type may be keys."""
    import pyarrow as pa

    known = (
        "null", "boolean", "integer", "string", "large_string", "binary", "large_binary", "fixed_size_binary", "date",
        "timestamp", "decimal",
    )  # fmt: skip
    return str(kind) in ("string_view", "binary_view") or any(getattr(pa.types, f"is_{one}")(kind) for one in known)


class Numbering(dict[Any, int]):
    """A dictionary that numbers its keys 0, 1, 2, ... in the order in which they are first looked up."""

    def __missing__(self, thing: Any) -> int:
        self[thing] = number = len(self)
        return number


def _read_texts(values: Any, name: str) -> tuple[str, Any] | None:
    """Return the kind and content of an object array of strings, or of bytes, with or without missing values.

    Returns None for any other array. For the kind and content, see `read_keys`.
    """
    if not isinstance(find_first_value(values), (str, bytes)):
        return None
    # This pass over all rows is fast, because looking up a string that already has a number runs no Python code. All
    # later steps handle each distinct string only once.
    numbers = Numbering()
    try:
        index = np.fromiter(map(numbers.__getitem__, values), np.int64, len(values))
    # An object that cannot be hashed is neither a string nor bytes, so another function must read the column.
    except TypeError:
        return None
    distinct = list(numbers)
    null = find_missing(distinct, len(distinct))
    texts = [None if is_null else v for v, is_null in zip(distinct, null.tolist(), strict=True)]
    present = [v for v in texts if v is not None]
    kind = next((k for k, t in (("string", str), ("bytes", bytes)) if all(isinstance(v, t) for v in present)), None)
    if kind is None:
        return None
    return kind, (_concatenate_texts(texts, name), index, null[index] if null.any() else None)


def _concatenate_texts(texts: list[Any], name: str) -> EncodedTexts:
    """Return the concatenated bytes of strings (None counts as empty) and the position where each string begins."""
    try:
        encoded = [b"" if v is None else v.encode() if isinstance(v, str) else bytes(v) for v in texts]
    except UnicodeEncodeError as error:
        raise InvalidInputError(
            f"{name}: expected text, found {error.object[:50]!r}, which cannot be encoded as UTF-8: {error.reason}",
            column=name,
        ) from error
    offsets = np.concatenate([[0], np.cumsum([len(e) for e in encoded], dtype=np.int64)]).astype(np.int64)
    return np.frombuffer(b"".join(encoded), np.uint8), offsets


def _read_fixed_width(values: NDArray[Any], name: str) -> tuple[str, Any]:
    """Return the kind and content (see `read_keys`) of a numpy array of fixed-width strings or bytes."""
    ends = np.arange(len(values) + 1) * values.itemsize
    index, (starts, _) = number_texts(np.ascontiguousarray(values).view(np.uint8), ends[:-1], ends[1:])
    distinct = values[starts // values.itemsize]
    texts = _concatenate_fixed_width(distinct) if len(distinct) > FEW_TEXTS else None
    # The kernel was not used because there are few strings, or it found a string that cannot be encoded. For such a
    # string, `_concatenate_texts` raises an error.
    if texts is None:
        texts = _concatenate_texts(distinct.tolist(), name)
    return "string" if values.dtype.kind == "U" else "bytes", (texts, index, None)


def number_texts(data: NDArray[np.uint8], starts: Ints, stops: Ints) -> tuple[Ints, Ints]:
    """Number the distinct strings among ``data[starts[i]:stops[i]]`` in order of first appearance.

    Returns
    -------
    numbers : int64 array
        The number of each string.
    bounds : int64 matrix of two rows
        The positions where each distinct string begins and ends, in the order of the numbers.
    """
    n, encode = len(starts), find_kernel("keys:encode_texts")
    slots, numbers, bounds = np.full(SLOTS, -1, np.int32), np.empty(n, np.int64), np.empty((2, n), np.int64)
    while (count := encode(data, starts, stops, data, bounds[0], bounds[1], 0, slots, numbers, True)) < 0:
        # The hash table was too small, so try again with a larger one. A table with more than two slots for each row
        # always suffices, so the new length is at most the smallest power of two above twice the number of rows.
        slots = np.full(min(16 * len(slots), 1 << (2 * n).bit_length()), -1, np.int32)
    return numbers, bounds[:, :count]


def _concatenate_fixed_width(values: NDArray[Any]) -> EncodedTexts | None:
    """Return the joined bytes of strings and the position where each begins; None if a string cannot be encoded."""
    is_unicode = values.dtype.kind == "U"
    texts = values.view(np.uint32 if is_unicode else np.uint8).reshape(len(values), -1)
    # numpy stores a code point in four bytes, and UTF-8 needs at most four, so `nbytes` bytes are always enough.
    data, offsets = np.empty(values.nbytes, np.uint8), np.empty(len(values) + 1, np.int64)
    is_invalid = find_kernel("keys:write_texts")(texts, is_unicode, data, offsets)
    return None if is_invalid else (data[: offsets[-1]], offsets)


def _from_list(raw: Any, name: str) -> NDArray[Any]:
    # A NaN among other values is accepted as a missing key. A list that contains only floats is rejected, because
    # floats cannot be keys.
    if len(raw) and all(isinstance(v, (float, np.floating)) for v in raw):
        raise kind_error(name, "float")
    out = np.empty(len(raw), object)
    out[:] = raw
    return out


def _from_arrow(raw: Any, name: str) -> tuple[str, Any]:
    import pyarrow as pa

    if isinstance(raw, pa.ChunkedArray):
        raw = (
            raw.combine_chunks() if not pa.types.is_dictionary(raw.type) else raw.unify_dictionaries().combine_chunks()
        )
        if isinstance(raw, pa.ChunkedArray):
            raw = raw.chunk(0) if raw.num_chunks else pa.array([], raw.type)
    if pa.types.is_null(raw.type) or not len(raw):
        return "", len(raw)
    if pa.types.is_boolean(raw.type):
        raw = raw.cast(pa.uint8())
    missing = arrow_values(raw.is_null()) if raw.null_count else None
    if pa.types.is_dictionary(raw.type) and pa.types.is_integer(raw.type.value_type):
        raw = raw.dictionary_decode()
    if pa.types.is_integer(raw.type):
        return "integer", (arrow_values(raw.fill_null(0) if raw.null_count else raw), missing)
    if not pa.types.is_dictionary(raw.type):
        raw = raw.dictionary_encode()
    texts, kind = raw.dictionary, _arrow_kind(raw.dictionary.type, name)
    if texts.null_count:
        at = raw.dictionary.is_null().take(raw.indices).fill_null(True)
        missing = arrow_values(at)
    index = arrow_values(raw.indices.fill_null(0) if raw.indices.null_count else raw.indices)
    plain = texts.cast(pa.large_binary())
    plain = plain.fill_null(b"") if plain.null_count else plain
    # A slice of an Arrow array shares the buffers of the whole array, so take only the offsets that belong to the
    # slice.
    _, offsets, data = plain.buffers()
    ends = np.frombuffer(offsets, np.int64)[plain.offset : plain.offset + len(plain) + 1]
    values = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    return kind, ((values, np.ascontiguousarray(ends)), index, missing)


def _arrow_kind(kind: Any, name: str) -> str:
    text = str(kind)
    if text in ("string", "large_string", "string_view"):
        return "string"
    if "binary" in text:
        return "bytes"
    raise kind_error(name, text)


def _from_numpy(values: NDArray[Any], name: str, exact: bool) -> tuple[str, Any]:
    values = squeeze_column(values)
    if values.ndim != 1:
        raise shape_error(name, values)
    if not len(values) or (values.dtype.kind not in "biufc" and find_first_value(values) is None):
        return "", len(values)
    if values.dtype.kind in "biu":
        return "integer", (values.astype(np.uint8) if values.dtype.kind == "b" else values, None)
    if values.dtype.kind in "US":
        # An array of empty strings may have the width 0, and `_read_fixed_width` divides by the width.
        if has_kernels() and values.itemsize:
            return _read_fixed_width(values, name)
        values = values.astype(object)
    if values.dtype.kind in "OT":
        return _read_objects(values.astype(object, copy=False), name, exact)
    raise kind_error(name, values.dtype.name)


def _read_objects(values: NDArray[Any], name: str, exact: bool) -> tuple[str, Any]:
    if (texts := _read_texts(values, name)) is not None:
        return texts
    is_null = find_missing(values, len(values))
    types = {type(v) for v in values[~is_null]}
    mask = is_null if is_null.any() else None
    flags = {t for t in types if issubclass(t, (bool, np.bool_))}
    if types - flags and flags:
        raise kind_error(name, "booleans and values of other types")
    if all(issubclass(t, (int, np.integer, np.bool_)) for t in types):
        filled = [0 if m else int(v) for v, m in zip(values, is_null, strict=True)]
        low, high = min(filled), max(filled)
        if exact and (low < -(1 << 63) or high >= 1 << 64):
            raise InvalidInputError(
                f"{name}: expected 64-bit integers, found {low if low < -(1 << 63) else high}; convert the keys to "
                f"strings",
                column=name,
            )
        wide = next((t for t in (np.int64, np.uint64) if np.iinfo(t).min <= low and high <= np.iinfo(t).max), object)
        return "integer", (np.array(filled, wide), mask)
    raise kind_error(name, " and ".join(sorted(t.__name__ for t in types)))


def kind_error(name: str, kind: str) -> InvalidInputError:
    """Return the error to raise for a column of values whose kind is not allowed for keys."""
    floats = "float" in kind or kind == "double"
    hint = (
        "; convert floats to integers or strings, because systems differ in which floats they treat as equal keys"
        if floats
        else ""
    )
    return InvalidInputError(f"{name}: expected keys of one kind ({KEYS}), found {kind}{hint}", column=name)


# -- single keys -----------------------------------------------------------------------------------------------------


def plain_key(value: Any, names: tuple[str, ...]) -> Key:
    """Convert a key, as a caller passed it, to a tuple of values in the form that states store.

    For a key of one column, the caller may pass a single value rather than a tuple. `names` are the column names.
    """
    atoms = value if isinstance(value, tuple) else (value,)
    if len(atoms) != len(names):
        cure = "a single value" if len(names) == 1 else f"a tuple of {len(names)} values"
        raise ValueError(f"expected a key for {', '.join(names)}, found {value!r}; pass {cure}")
    parsed = [None if atom is None else to_stored_key(atom) for atom in atoms]
    for atom, parsed_key in zip(atoms, parsed, strict=True):
        if atom is not None and parsed_key is None:
            raise TypeError(f"keys must be {KEYS}, not {atom!r}")
    return tuple(None if parsed_key is None else from_stored_key(*parsed_key) for parsed_key in parsed)


def kind_of(atoms: Iterable[Atom], name: str) -> str:
    """Return the common kind of all keys: "integer", "string" or "bytes", or an empty string if all are null.

    Raises ValueError if the keys are of different kinds.
    """
    kinds_by_type = {int: "integer", str: "string", bytes: "bytes"}
    kinds = {kind for a in atoms for t, kind in kinds_by_type.items() if isinstance(a, t)}
    if len(kinds) > 1:
        raise ValueError(f"{name}: expected keys of one kind, found {' and '.join(sorted(kinds))}")
    return kinds.pop() if kinds else ""
