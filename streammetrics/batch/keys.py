"""Keys in: integers of any width, strings, bytes and nulls, read without a loop over rows in Python."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidInputError
from ..numerics.keys import decode_key, encode_key, fixed_hash, plain, raw, sort_key
from .convert import arrow_values, as_columns, check_column, first_of, missing, native, one_column, wrong_shape

__all__ = [
    "Key",
    "decode_key",
    "encode_key",
    "fixed_hash",
    "key_column",
    "kind_of",
    "or_none",
    "plain_key",
    "read_column",
    "read_keys",
    "sort_key",
    "wrong_kind",
]

Atom = Any
Key = tuple[Atom, ...]


KEYS = "integers, strings, bytes, booleans, dates, timestamps or decimals, of one kind"


# -- what users pass -------------------------------------------------------------------------------------------------


def read_keys(raw: Any, name: str) -> tuple[str, Any]:
    """Return the kind of keys, and integers or (texts, index) with a mask of missing rows; "" and n if all are null."""
    return read_column(key_column(raw, name), name)


def read_column(raw: Any, name: str, exact: bool = True) -> tuple[str, Any]:
    """Do what `read_keys` does, of what `key_column` returned; integers of any size, unless they must be `exact`."""
    if isinstance(raw, (list, tuple)):
        raw = _from_list(raw, name)
    return or_none(_from_numpy(raw, name, exact) if isinstance(raw, np.ndarray) else _from_arrow(raw, name))


def or_none(found: tuple[str, Any]) -> tuple[str, Any]:
    """What was read; of no rows, and of nothing but nulls, whose type says nothing, no kind and their number."""
    kind, made = found
    if kind and (not len(made[-2]) or (made[-1] is not None and made[-1].all())):
        return "", len(made[-2])
    return found


def key_column(raw: Any, name: str) -> Any:
    """Return what holds keys as a list, a native numpy array, or an Arrow array of a type that keys may have.

    Raises
    ------
    InvalidInputError
        There are several columns, rows are masked, or it holds what no key is.
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
    if isinstance(raw, np.ma.MaskedArray) and np.ma.getmaskarray(raw).any():
        raise InvalidInputError(f"{name}: masked rows would be read through their mask; drop or fill them", column=name)
    return raw if isinstance(raw, list) else native(np.asarray(raw))


def _sole_column(raw: Any, name: str) -> Any:
    """The column of a data frame or table of one."""
    if isinstance(raw, np.ndarray) or (table := as_columns(raw)) is None:
        return raw
    if len(table) != 1:
        raise InvalidInputError(f"{name}: expected one column, got a table of {len(table)}", column=name)
    return next(iter(table.values()))


def _from_series(raw: Any, library: str, name: str) -> Any:
    """A series of pandas or polars: its numpy array where it is one, else an Arrow array."""
    if isinstance(getattr(raw, "dtype", None), np.dtype):
        return raw.to_numpy()
    if library == "polars" and str(raw.dtype) == "Object":  # whose bytes would be addresses
        return raw.to_list()
    try:
        import pyarrow as pa
    except ImportError:  # pandas works without it
        return raw.to_numpy()
    try:
        return raw.to_arrow() if library == "polars" else pa.array(raw, from_pandas=True)
    except (pa.ArrowException, TypeError, ValueError):  # how it says that it has no such type
        raise wrong_kind(name, str(raw.dtype)) from None


def _plain_arrow(raw: Any, name: str) -> Any:
    """An Arrow array, or chunked array, that may hold keys: as it is, but runs written out, and nulls alone untyped."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_run_end_encoded(raw.type):
        chunks = [pc.run_end_decode(chunk) for chunk in (raw.chunks if isinstance(raw, pa.ChunkedArray) else [raw])]
        raw = pa.chunked_array(chunks, raw.type.value_type)
    kind = raw.type.value_type if pa.types.is_dictionary(raw.type) else raw.type
    if raw.null_count == len(raw) or pa.types.is_null(kind):  # of a dictionary of nulls pyarrow crashes if asked more
        return pa.nulls(len(raw))
    if not _may_be_key(kind):
        raise wrong_kind(name, str(kind))
    return raw


@cache
def _may_be_key(kind: Any) -> bool:
    """Whether values of an Arrow type may be keys."""
    import pyarrow as pa

    known = (
        "null", "boolean", "integer", "string", "large_string", "binary", "large_binary", "fixed_size_binary", "date",
        "timestamp", "decimal",
    )  # fmt: skip
    return str(kind) in ("string_view", "binary_view") or any(getattr(pa.types, f"is_{one}")(kind) for one in known)


class Numbered(dict[Any, int]):
    """Things numbered as they are met."""

    def __missing__(self, thing: Any) -> int:
        self[thing] = number = len(self)
        return number


def _texts(values: Any, name: str) -> tuple[str, Any] | None:
    """Read objects that are all texts, or all bytes, or null: each distinct one is looked at once. None of any others."""
    if not isinstance(first_of(values), (str, bytes)):
        return None
    numbers = Numbered()
    try:
        index = np.fromiter(map(numbers.__getitem__, values), np.int64, len(values))
    except TypeError:  # of what cannot be a key, and has no hash
        return None
    distinct = list(numbers)
    null = missing(distinct, len(distinct))
    texts = [None if gone else v for v, gone in zip(distinct, null.tolist(), strict=True)]
    held = [v for v in texts if v is not None]
    kind = next((k for k, t in (("string", str), ("bytes", bytes)) if all(isinstance(v, t) for v in held)), None)
    if kind is None:
        return None
    try:
        encoded = [b"" if v is None else v.encode() if kind == "string" else bytes(v) for v in texts]
    except UnicodeEncodeError as error:
        raise InvalidInputError(f"{name}: {error.object[:50]!r} is not text: {error.reason}", column=name) from error
    offsets = np.concatenate([[0], np.cumsum([len(e) for e in encoded], dtype=np.int64)]).astype(np.int64)
    held_in = np.frombuffer(b"".join(encoded), np.uint8), offsets
    return kind, (held_in, index, null[index] if null.any() else None)


def _from_list(raw: Any, name: str) -> NDArray[Any]:
    if len(raw) and all(
        isinstance(v, (float, np.floating)) for v in raw
    ):  # NaN beside keys is null, alone it is a float
        raise wrong_kind(name, "float")
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
    raise wrong_kind(name, text)


def _from_numpy(values: NDArray[Any], name: str, exact: bool) -> tuple[str, Any]:
    values = one_column(values)
    if values.ndim != 1:
        raise wrong_shape(name, values)
    if not len(values) or (values.dtype.kind not in "biufc" and first_of(values) is None):
        return "", len(values)
    if values.dtype.kind in "biu":
        return "integer", (values.astype(np.uint8) if values.dtype.kind == "b" else values, None)
    if values.dtype.kind in "US":
        values = values.astype(object)
    if values.dtype.kind in "OT":
        return _objects(values.astype(object, copy=False), name, exact)
    raise wrong_kind(name, values.dtype.name)


def _objects(values: NDArray[Any], name: str, exact: bool) -> tuple[str, Any]:
    if (found := _texts(values, name)) is not None:
        return found
    gone = missing(values, len(values))
    types = {type(v) for v in values[~gone]}
    mask = gone if gone.any() else None
    flags = {t for t in types if issubclass(t, (bool, np.bool_))}
    if types - flags and flags:
        raise wrong_kind(name, "booleans and others")
    if all(issubclass(t, (int, np.integer, np.bool_)) for t in types):
        filled = [0 if m else int(v) for v, m in zip(values, gone, strict=True)]
        low, high = min(filled), max(filled)
        if exact and (low < -(1 << 63) or high >= 1 << 64):
            raise InvalidInputError(
                f"{name}: keys are integers of 64 bits; {low if low < 0 else high} is not", column=name
            )
        wide = next((t for t in (np.int64, np.uint64) if np.iinfo(t).min <= low and high <= np.iinfo(t).max), object)
        return "integer", (np.array(filled, wide), mask)
    raise wrong_kind(name, " and ".join(sorted(t.__name__ for t in types)))


def wrong_kind(name: str, found: str) -> InvalidInputError:
    """Return what to raise where a column holds what no key is."""
    floats = "float" in found or found == "double"
    hint = "; round or format them first: equal floats are not equal keys everywhere" if floats else ""
    return InvalidInputError(f"{name}: keys are {KEYS}, not {found}{hint}", column=name)


# -- keys as such ----------------------------------------------------------------------------------------------------


def plain_key(value: Any, names: tuple[str, ...]) -> Key:
    """Return a key that a user gave, of atoms of any kind, as it is kept."""
    atoms = value if isinstance(value, tuple) else (value,)
    if len(atoms) != len(names):
        raise ValueError(f"keys have {len(names)} columns, {', '.join(names)}; {value!r} is none")
    found = [None if atom is None else raw(atom) for atom in atoms]
    for atom, held in zip(atoms, found, strict=True):
        if atom is not None and held is None:
            raise TypeError(f"keys are {KEYS}, not {atom!r}")
    return tuple(None if held is None else plain(*held) for held in found)


def kind_of(atoms: Iterable[Atom], name: str) -> str:
    """Return the kind of keys, "" if all are null; raise if there are several."""
    kinds = {int: "integer", str: "string", bytes: "bytes"}
    found = {kind for a in atoms for t, kind in kinds.items() if isinstance(a, t)}
    if len(found) > 1:
        raise ValueError(f"keys of {name} are of one kind, not {' and '.join(sorted(found))}")
    return found.pop() if found else ""
