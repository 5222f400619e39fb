"""Keys of slices: integers of any width, strings, bytes and nulls, numbered in the order in which they are met.

Numbers live in one process; what is saved and compared is the keys. No step loops over rows, or over the keys of a
batch, in Python: only a key that was never met before costs a few microseconds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import partial
from typing import Any, NamedTuple, Union

import numpy as np
from numpy.typing import NDArray

from .columns import Batch
from .convert import arrow_values
from .errors import InvalidInputError
from .settings import canonical_json

__all__ = [
    "Key",
    "KeyColumns",
    "decode_key",
    "encode_key",
    "fixed_hash",
    "kind_of",
    "plain_key",
    "read_keys",
    "sort_key",
]

Atom = Union[int, str, bytes, None]  # noqa: UP007 - evaluated at run time on Python 3.10
Key = tuple[Atom, ...]
Codes = NDArray[np.int64]

NULL = 0  # the number of a missing key in its column
FREE = 1 << 10
GRID = 1 << 14  # pairs of dictionary entries that are numbered before they are met


class Coded(NamedTuple):
    """The number of each row's key: `numbers[entries]`, or `numbers` itself without entries."""

    numbers: Codes
    entries: NDArray[Any] | None

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return len(self.numbers if self.entries is None else self.entries)

    def expand(self) -> Codes:
        """The number of each row's key."""
        return self.numbers if self.entries is None else self.numbers[self.entries]


class IntNumbers:
    """Numbers for int64 values."""

    def __init__(self) -> None:
        self.count, self.stored, self.slots = 0, np.zeros(FREE // 2, np.int64), np.full(FREE, -1, np.int64)

    def of(self, values: Codes) -> Codes:
        """Return the number of each value; new values get the next numbers."""
        from .kernels.keys import number_ints

        numbers = np.empty(len(values), np.int64)
        number_ints(values, self.stored, self.count, self.slots, numbers, False)
        new = numbers < 0
        if new.any():
            self._learn(np.unique(values[new]))
            number_ints(values, self.stored, self.count, self.slots, numbers, False)
        return numbers

    def _learn(self, values: Codes) -> None:
        from .kernels.keys import number_ints

        self.stored = np.concatenate([self.stored[: self.count], values, np.zeros(len(values) + self.count, np.int64)])
        count, self.count = self.count, self.count + len(values)
        if 2 * self.count > len(self.slots):
            self.slots = np.full(1 << (4 * self.count - 1).bit_length(), -1, np.int64)
            count = 0
        rest = self.stored[count : self.count]
        number_ints(rest, self.stored, count, self.slots, np.empty(len(rest), np.int64), True)


class TextNumbers:
    """Numbers for strings of bytes, compared in full."""

    def __init__(self) -> None:
        self.count, self.slots = 0, np.full(FREE, -1, np.int64)
        self.stored, self.offsets = np.zeros(0, np.uint8), np.zeros(1, np.int64)

    def of(self, data: NDArray[np.uint8], offsets: Codes) -> Codes:
        """Return the number of each text; new texts get the next numbers."""
        from .kernels.keys import number_texts

        numbers = np.empty(len(offsets) - 1, np.int64)
        number_texts(data, offsets, self.stored, self.offsets, self.count, self.slots, numbers, False)
        new = np.flatnonzero(numbers < 0)
        if len(new):
            self._learn(sorted({data[offsets[i] : offsets[i + 1]].tobytes() for i in new}))
            number_texts(data, offsets, self.stored, self.offsets, self.count, self.slots, numbers, False)
        return numbers

    def _learn(self, texts: list[bytes]) -> None:
        from .kernels.keys import number_texts

        self.stored = np.concatenate([self.stored, np.frombuffer(b"".join(texts), np.uint8)])
        self.offsets = np.concatenate([self.offsets, self.offsets[-1] + np.cumsum([len(t) for t in texts])])
        count, self.count = self.count, self.count + len(texts)
        if 2 * self.count > len(self.slots):
            self.slots = np.full(1 << (4 * self.count - 1).bit_length(), -1, np.int64)
            count = 0
        rest = self.offsets[count : self.count + 1]
        numbers = np.empty(len(rest) - 1, np.int64)
        number_texts(self.stored, rest, self.stored, self.offsets, count, self.slots, numbers, True)

    def text(self, number: int) -> bytes:
        """The text of a number."""
        return self.stored[self.offsets[number] : self.offsets[number + 1]].tobytes()


class KeyColumn:
    """One slicing column: its kind, fixed by the first key that is not null, and the numbers of its keys."""

    def __init__(self, name: str) -> None:
        self.name, self.kind = name, ""
        self._ints, self._big, self._texts = IntNumbers(), IntNumbers(), TextNumbers()
        self._last: tuple[Any, str, Codes] | None = None  # an Arrow dictionary, its kind, and the numbers of its texts

    def coded(self, raw: Any) -> Coded:
        """Return the numbers of the keys, from 1; 0 for null."""
        whole = type(raw).__name__ == "DictionaryArray" and not raw.null_count
        if whole and self._last is not None and raw.dictionary.equals(self._last[0]):  # as in the batch before
            self.accept(self._last[1])
            return Coded(self._last[2], arrow_values(raw.indices))
        kind, made = read_keys(raw, self.name)
        nulls = _only_nulls(kind, made)
        if nulls is not None:  # whatever their type: it says nothing about the keys
            return Coded(np.zeros(1, np.int64), np.zeros(nulls, np.int64))
        self.accept(kind)
        if kind == "integer":
            values, missing = made
            codes = self._integers(values)
            if missing is not None:
                codes[missing] = NULL
            return Coded(codes, None)
        (data, offsets), index, missing = made
        numbers = self._texts.of(data, offsets) + 1
        if missing is None:
            if whole:
                self._last = raw.dictionary, kind, numbers
            return Coded(numbers, index)
        return Coded(np.append(numbers, NULL), np.where(missing, len(numbers), index))

    def accept(self, kind: str) -> None:
        """Raise unless keys of this kind belong here."""
        if self.kind and self.kind != kind:
            raise InvalidInputError(
                f"{self.name}: the keys so far are of kind {self.kind}, these are of kind {kind}; convert one of them",
                column=self.name,
            )
        self.kind = kind

    def _integers(self, values: NDArray[Any]) -> Codes:
        if values.dtype not in (np.uint64, object) or not len(values) or values.max() < 1 << 63:
            numbers = self._ints.of(np.ascontiguousarray(values, np.int64))
            numbers *= 2
            numbers += 1
            return numbers
        big = np.asarray(
            values >= 1 << 63, bool
        )  # beyond int64: numbered apart, so that -1 and 2**64 - 1 stay different
        codes = np.empty(len(values), np.int64)
        codes[~big] = 2 * self._ints.of(values[~big].astype(np.int64)) + 1
        codes[big] = 2 * self._big.of(values[big].astype(np.uint64).view(np.int64)) + 2
        return codes

    def key(self, code: int) -> Atom:
        """The key of a number."""
        if code == NULL:
            return None
        if self.kind == "integer":
            table = self._ints if code % 2 else self._big
            value = int(table.stored[(code - 1) // 2])
            return value if code % 2 else value + (1 << 64)
        text = self._texts.text(code - 1)
        return text.decode() if self.kind == "string" else text


class KeyColumns:
    """The columns that make up a key, and a number for every key met."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.columns = [KeyColumn(n) for n in names]
        self._pairs = [IntNumbers() for _ in names[1:]]

    def numbers(self, batch: Batch) -> Coded:
        """Return the numbers of the keys."""
        made: list[Coded] = []
        for column in self.columns:
            coded = batch.make(column, partial(_coded, column, batch))
            batch.same_length(coded.rows, column.name)
            made.append(coded)
        out = made[0]
        for pairs, coded in zip(self._pairs, made[1:], strict=True):
            out = _cross(out, coded, pairs)
        return out

    def key(self, number: int) -> Key:
        """The key of a number."""
        codes: list[int] = []
        for pairs in reversed(self._pairs):
            pair = int(pairs.stored[number])
            number, code = pair >> 32, pair & 0xFFFFFFFF
            codes.append(code)
        codes.append(number)
        return tuple(c.key(code) for c, code in zip(self.columns, reversed(codes), strict=True))

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kind of each column's keys."""
        return tuple(c.kind for c in self.columns)


def _coded(column: KeyColumn, batch: Batch) -> Coded:
    return column.coded(batch.raw(column.name))


def _cross(a: Coded, b: Coded, pairs: IntNumbers) -> Coded:
    """Return the numbers of pairs of keys; of all pairs of two small dictionaries at once."""
    if a.entries is None or b.entries is None or len(a.numbers) * len(b.numbers) > GRID:
        return Coded(pairs.of((a.expand() << 32) | b.expand()), None)
    grid = (a.numbers[:, None] << 32) | b.numbers[None, :]
    return Coded(pairs.of(grid.reshape(-1)), a.entries.astype(np.int64) * len(b.numbers) + b.entries)


# -- what users pass ---------------------------------------------------------------------------------------------------


def read_keys(raw: Any, name: str) -> tuple[str, Any]:
    """Return the kind of keys, and integers or (texts, index) with a mask of missing rows; "" and n if all are null."""
    library = type(raw).__module__.partition(".")[0]
    if library in ("pandas", "polars"):
        raw = _arrow_or_numpy(raw, library)
        library = type(raw).__module__.partition(".")[0]
    if library == "pyarrow":
        return _from_arrow(raw, name)
    if library == "torch":
        raw = raw.detach().cpu().numpy()
    if isinstance(raw, np.ma.MaskedArray) and np.ma.getmaskarray(raw).any():
        raise InvalidInputError(f"{name}: masked rows would be read through their mask; drop or fill them", column=name)
    return _from_numpy(np.asarray(raw) if not isinstance(raw, (list, tuple)) else _from_list(raw), name)


def _only_nulls(kind: str, made: Any) -> int | None:
    """Return how many rows there are if no row has a key; None if one has."""
    if not kind:
        return int(made)
    *_, index, missing = made
    n = len(index)
    return n if not n or (missing is not None and missing.all()) else None


def _from_list(raw: Any) -> NDArray[Any]:
    out = np.empty(len(raw), object)
    out[:] = raw
    return out


def _arrow_or_numpy(raw: Any, library: str) -> Any:
    try:
        import pyarrow
    except ImportError:
        return raw.to_numpy()
    if library == "polars":
        return raw.to_arrow()
    return pyarrow.array(raw, from_pandas=True)


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
    raise _wrong_kind(name, text)


def _from_numpy(values: NDArray[Any], name: str) -> tuple[str, Any]:
    if values.ndim != 1:
        raise InvalidInputError(f"{name}: expected one dimension, got shape {values.shape}", column=name)
    if not len(values):
        return "", 0
    if values.dtype.kind in "biu":
        return "integer", (values.astype(np.uint8) if values.dtype.kind == "b" else values, None)
    if values.dtype.kind in "US":
        return _texts(values, "string" if values.dtype.kind == "U" else "bytes", name, None)
    if values.dtype.kind in "OT":
        return _objects(values.astype(object), name)
    raise _wrong_kind(name, values.dtype.name)


def _objects(values: NDArray[Any], name: str) -> tuple[str, Any]:
    missing = np.fromiter(map(_missing, values), bool, len(values))
    found = {type(v) for v in values[~missing]}
    mask = missing if missing.any() else None
    if not found:
        return "", len(values)
    if all(issubclass(t, (int, np.integer, np.bool_)) for t in found):
        filled = [0 if m else int(v) for v, m in zip(values, missing, strict=True)]
        low, high = min(filled), max(filled)
        if low < -(1 << 63) or high >= 1 << 64:
            raise InvalidInputError(
                f"{name}: keys are integers of 64 bits; {low if low < 0 else high} is not", column=name
            )
        wide: Any = np.int64 if high < 1 << 63 else np.uint64 if low >= 0 else object
        return "integer", (np.array(filled, wide), mask)
    for kind, empty, types in (("string", "", str), ("bytes", b"", bytes)):
        if all(issubclass(t, types) for t in found):
            return _texts(
                np.array([empty if m else v for v, m in zip(values, missing, strict=True)], object), kind, name, mask
            )
    raise _wrong_kind(name, " and ".join(sorted(t.__name__ for t in found)))


def _missing(value: Any) -> bool:
    try:
        return value is None or bool(value != value)
    except (TypeError, ValueError):  # pandas.NA is neither equal to itself nor not
        return type(value).__name__ == "NAType"


def _texts(values: NDArray[Any], kind: str, name: str, missing: NDArray[np.bool_] | None) -> tuple[str, Any]:
    distinct, index = np.unique(values, return_inverse=True)
    try:
        encoded = [v.encode() if kind == "string" else bytes(v) for v in distinct.tolist()]
    except UnicodeEncodeError as error:
        raise InvalidInputError(f"{name}: {error.object[:50]!r} is not text: {error.reason}", column=name) from error
    offsets = np.concatenate([[0], np.cumsum([len(e) for e in encoded], dtype=np.int64)]).astype(np.int64)
    return kind, ((np.frombuffer(b"".join(encoded), np.uint8), offsets), index.reshape(-1), missing)


def _wrong_kind(name: str, found: str) -> InvalidInputError:
    floats = "float" in found or found == "double"
    hint = "; round or format them first: equal floats are not equal keys everywhere" if floats else ""
    return InvalidInputError(f"{name}: keys are integers, strings or bytes, not {found}{hint}", column=name)


# -- keys as such ------------------------------------------------------------------------------------------------------


def plain_key(value: Any, names: tuple[str, ...]) -> Key:
    """Return a key that a user gave: of integers of any width, strings, bytes and None."""
    atoms = value if isinstance(value, tuple) else (value,)
    if len(atoms) != len(names):
        raise ValueError(f"keys have {len(names)} columns, {', '.join(names)}; {value!r} is none")
    for atom in atoms:
        if not (atom is None or isinstance(atom, (int, str, bytes, np.integer, np.bool_))):
            raise TypeError(f"keys are integers, strings, bytes or None, not {atom!r}")
    return tuple(int(a) if isinstance(a, (int, np.integer, np.bool_)) else a for a in atoms)


def kind_of(atoms: Iterable[Atom], name: str) -> str:
    """Return the kind of keys, "" if all are null; raise if there are several."""
    kinds = {int: "integer", str: "string", bytes: "bytes"}
    found = {kind for a in atoms for t, kind in kinds.items() if isinstance(a, t)}
    if len(found) > 1:
        raise ValueError(f"keys of {name} are of one kind, not {' and '.join(sorted(found))}")
    return found.pop() if found else ""


def encode_key(key: Key) -> list[Any]:
    """Write a key as JSON holds it."""
    return [{"bytes": a.hex()} if isinstance(a, bytes) else a for a in key]


def decode_key(value: Any) -> Key:
    """Read what `encode_key` wrote."""
    key = tuple(bytes.fromhex(a["bytes"]) if isinstance(a, dict) else a for a in value)
    if not all(a is None or type(a) in (int, str, bytes) for a in key):
        raise ValueError("a key is of no known kind")
    return key


def fixed_hash(key: Key) -> int:
    """64 bits of a key, the same everywhere and for ever: which keys a limit keeps depends on it."""
    text = b"streammetrics slice" + canonical_json(encode_key(key)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


def sort_key(key: Key) -> tuple[Any, ...]:
    """Order keys: null first, then integers, then text by its bytes."""
    ranked = (
        (0, 0) if a is None else (1, a) if isinstance(a, int) else (2, a.encode() if isinstance(a, str) else a)
        for a in key
    )
    return tuple(ranked)
