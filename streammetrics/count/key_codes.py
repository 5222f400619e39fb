"""Integer codes for the keys of columns. Each new key gets the next code.

Kernels use codes as table indices, so they need not compare keys. A finished state contains no codes, because codes
depend on the order of the rows. Instead, it contains a sorted vocabulary of keys, and the ranks of keys in that
vocabulary (see `KeyCodes.rank_codes`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..batch.convert import arrow_values
from ..batch.keys import number_texts
from ..batch.slice_keys import read_slice_column
from ..batch.texts import Texts, read_text_blocks
from ..errors import InvalidInputError
from ..kernels.keys import encode_ints, encode_texts
from ..state.axes import KINDS, NULL, Vocabulary

__all__ = ["DictionaryCodes", "KeyCodes"]

Ints = NDArray[np.int64]

# The number of slots in a new hash table.
FREE = 1 << 10
# The first code for integers of 2**63 or more. Such an integer is stored as the int64 with the same bits: 2**64 - 1,
# for example, as -1. To avoid confusion with negative integers, these integers have a separate table, whose codes begin
# at this number.
BIG_CODE_BASE = 1 << 40


def ensure_capacity(array: NDArray[Any], size: int, used: int) -> NDArray[Any]:
    """Return an array of at least `size` items that begins with the first `used` items of `array`.

    A new array is at least twice as large as the old one, so the total cost of all copies is linear in the final size.
    """
    if size <= len(array):
        return array
    new = np.empty((max(size, 2 * len(array)), *array.shape[1:]), array.dtype)
    new[:used] = array[:used]
    return new


class KeyTable:
    """A list of keys, and a hash table (open addressing) from each key to its code, which is its index in the list.

    `count`, the number of valid keys, is updated after the hash table. `is_stale` is True while the hash table is being
    written. If an interrupt leaves it True, the next call rebuilds the table from the first `count` keys.
    """

    def __init__(self) -> None:
        self.count, self.slots, self.is_stale = 0, np.full(FREE, -1, np.int32), False

    def insert_up_to(self, count: int) -> None:
        """Insert all keys with codes below `count` into the hash table; enlarge it if it would be over half full."""
        first = 0 if self.is_stale or 2 * count > len(self.slots) else self.count
        self.is_stale = True
        if not first:
            self.slots = np.full(max(FREE, 1 << (4 * count - 1).bit_length()), -1, np.int32)
        self._insert(first, count)
        self.count, self.is_stale = count, False

    def _insert(self, first: int, count: int) -> None:
        """Insert the keys with codes from `first` to `count` (exclusive) into the hash table."""
        raise NotImplementedError


class IntegerCodes(KeyTable):
    """Codes for int64 keys."""

    def __init__(self) -> None:
        super().__init__()
        self.stored = np.zeros(FREE // 2, np.int64)

    def encode(self, values: Ints) -> Ints:
        """Return the code of each value. New values, in ascending order, get the next codes."""
        if self.is_stale:
            self.insert_up_to(self.count)
        numbers = np.empty(len(values), np.int64)
        encode_ints(values, self.stored, self.count, self.slots, numbers, False)
        new = numbers < 0
        if new.any():
            self._add(_sort_distinct(values[new]))
            encode_ints(values, self.stored, self.count, self.slots, numbers, False)
        return numbers

    def _add(self, values: Ints) -> None:
        before, count = self.count, self.count + len(values)
        self.stored = ensure_capacity(self.stored, count, before)
        self.stored[before:count] = values
        self.insert_up_to(count)

    def _insert(self, first: int, count: int) -> None:
        rest = self.stored[first:count].copy()
        encode_ints(rest, self.stored, first, self.slots, np.empty(len(rest), np.int64), True)

    @property
    def values(self) -> Ints:
        """The values in code order."""
        return self.stored[: self.count]


class TextCodes(KeyTable):
    """Codes for byte-string keys. Keys are compared in full, so hash collisions are harmless."""

    def __init__(self) -> None:
        super().__init__()
        self.stored, self.offsets = np.zeros(FREE, np.uint8), np.zeros(FREE, np.int64)

    def encode(self, data: NDArray[np.uint8], starts: Ints, stops: Ints) -> Ints:
        """Return the code of each string, `data[starts[i]:stops[i]]`.

        New strings, in ascending order, get the next codes.
        """
        if self.is_stale:
            self.insert_up_to(self.count)
        numbers = self._find(data, starts, stops)
        new = np.flatnonzero(numbers < 0)
        if len(new):
            starts, stops = starts[new], stops[new]
            _, bounds = number_texts(data, starts, stops)
            self._add(sorted(data[a:b].tobytes() for a, b in bounds.T.tolist()))
            numbers[new] = self._find(data, starts, stops)
        return numbers

    def _find(self, data: NDArray[np.uint8], starts: Ints, stops: Ints) -> Ints:
        """Return the code of each string, or -1 if it has none."""
        numbers, own = np.empty(len(starts), np.int64), self.offsets
        encode_texts(data, starts, stops, self.stored, own[:-1], own[1:], self.count, self.slots, numbers, False)
        return numbers

    def _add(self, texts: list[bytes]) -> None:
        before, count, size = self.count, self.count + len(texts), self.size
        ends = size + np.cumsum([len(t) for t in texts])
        self.stored = ensure_capacity(self.stored, int(ends[-1]), size)
        self.stored[size : ends[-1]] = np.frombuffer(b"".join(texts), np.uint8)
        self.offsets = ensure_capacity(self.offsets, count + 1, before + 1)
        self.offsets[before + 1 : count + 1] = ends
        self.insert_up_to(count)

    def _insert(self, first: int, count: int) -> None:
        rest, own = self.offsets[first : count + 1].copy(), self.offsets
        numbers = np.empty(count - first, np.int64)
        # The kernel also writes the offsets of each string that it inserts. This changes nothing, because the strings
        # come from `stored`, where they have the same offsets.
        encode_texts(self.stored, rest[:-1], rest[1:], self.stored, own[:-1], own[1:], first, self.slots, numbers, True)

    @property
    def size(self) -> int:
        """The total length of all strings in bytes."""
        return int(self.offsets[self.count])

    @property
    def values(self) -> list[bytes]:
        """The strings in code order."""
        text = self.stored[: self.size].tobytes()
        return [text[a:b] for a, b in pairwise(self.offsets[: self.count + 1].tolist())]


@dataclass(frozen=True)
class DictionaryCodes:
    """The codes of a dictionary-encoded column: row i has the code `codes[indices[i]]`.

    Parameters
    ----------
    codes : int64 array
        The codes of the keys in the dictionary.
    indices : int32 array
        For each row, the position of its key in the dictionary.
    """

    codes: Ints
    indices: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.indices)


class KeyCodes:
    """Codes for the keys of one column. All keys must have the same kind (such as integer or date) as the first key.

    Parameters
    ----------
    name : str
        The name of the column, for error messages.
    """

    def __init__(self, name: str) -> None:
        self.name, self.kind = name, ""
        self._ints, self._big, self._texts = IntegerCodes(), IntegerCodes(), TextCodes()
        # The Arrow dictionary of the last batch, its kind, and the codes of its strings. Successive batches often share
        # a dictionary, so its strings need not be looked up again.
        self._last: tuple[Any, str, Ints] | None = None

    def encode(self, raw: Any) -> Ints | DictionaryCodes:
        """Return the code of the key of each row; a missing key gets the code `NULL`.

        `raw` is the column as the user passed it. For a dictionary-encoded column, the result may be `DictionaryCodes`.
        The kernel that finds cells then looks up the code of each row.

        Raises
        ------
        InvalidInputError
            If the keys are of a different kind from those of earlier batches.
        """
        column, blocks = read_text_blocks(raw, self.name)
        whole = type(column).__name__ == "DictionaryArray" and not column.null_count
        if whole and self._last is not None and column.dictionary.equals(self._last[0]):
            self.accept_kind(self._last[1])
            return _select_codes(self._last[2], arrow_values(column.indices))
        if blocks and (codes := self._encode_rows(len(column), blocks)) is not None:
            return codes
        kind, content = read_slice_column(column, self.name)
        if not kind:
            return np.full(int(content), NULL)
        self.accept_kind(kind)
        if not KINDS[kind]:
            return self._encode_with_nulls(*content)
        (data, offsets), index, missing = content
        numbers = self._texts.encode(data, offsets[:-1], offsets[1:])
        # Store the codes only for strings and bytes. Decimals have been converted to strings whose order differs from
        # that of the Arrow dictionary, so their codes do not match its indices.
        if missing is None and whole and kind in ("string", "bytes"):
            self._last = column.dictionary, kind, numbers
        if missing is not None:
            numbers, index = np.append(numbers, NULL), np.where(missing, len(numbers), index)
        return np.asarray(numbers.take(index), np.int64)

    def _encode_rows(self, n: int, blocks: Iterable[tuple[slice, Texts | None]]) -> Ints | None:
        """Return the codes of a column of n strings, read block by block; None if a block does not contain strings."""
        codes, kind = np.empty(n, np.int64), ""
        for rows, texts in blocks:
            if texts is None:
                return None
            # Check the kind before new strings get codes, so that a batch with keys of the wrong kind adds no codes.
            if self.kind:
                self.accept_kind(texts.kind)
            some = slice(None) if texts.missing is None else ~texts.missing
            kind, block = texts.kind, np.full(len(texts.starts), NULL)
            block[some] = self._texts.encode(texts.data, texts.starts[some], texts.stops[some])
            codes[rows] = block
        self.accept_kind(kind)
        return codes

    def encode_integers(self, kind: str, values: Ints, missing: Any) -> Ints:
        """Return the codes of keys that are stored as integers, such as dates; a missing key gets the code `NULL`."""
        if not len(values) or (missing is not None and missing.all()):
            return np.full(len(values), NULL)
        self.accept_kind(kind)
        return self._encode_with_nulls(values, missing)

    def find_integer_table(self, kind: str) -> IntegerCodes | None:
        """Return the table of integer keys; None if their kind is not `kind`, or if the table must be rebuilt first."""
        return None if self.kind != kind or self._ints.is_stale else self._ints

    def _encode_with_nulls(self, values: NDArray[Any], missing: Any) -> Ints:
        codes = self._encode_any_integers(values)
        return codes if missing is None else np.where(missing, NULL, codes)

    @property
    def count(self) -> int:
        """The number of distinct keys that have codes."""
        return self._ints.count + self._big.count + self._texts.count

    def accept_kind(self, kind: str) -> None:
        """Raise InvalidInputError if earlier keys have a different kind; otherwise store `kind`."""
        if self.kind and self.kind != kind:
            before, now = (k.removeprefix("shard of ") for k in (self.kind, kind))
            raise InvalidInputError(
                f"{self.name}: expected keys of kind {before}, as in earlier rows, found keys of kind {now}; convert "
                f"the column",
                column=self.name,
            )
        self.kind = kind

    def _encode_any_integers(self, values: NDArray[Any]) -> Ints:
        if values.dtype.kind not in "uO" or not len(values) or values.max() < 1 << 63:
            return self._ints.encode(np.ascontiguousarray(values, np.int64))
        big = np.asarray(values >= 1 << 63, bool)
        codes = np.empty(len(values), np.int64)
        codes[~big] = self._ints.encode(values[~big].astype(np.int64))
        codes[big] = BIG_CODE_BASE + self._big.encode(values[big].astype(np.uint64).view(np.int64))
        return codes

    # -- conversion between codes and finished states ------------------------------------------------------------------

    def rank_codes(self, codes: Ints) -> tuple[Vocabulary, Ints]:
        """Return the sorted keys with these codes, as a vocabulary, and convert the codes to ranks in it.

        A negative code stands for a special key, such as a missing one, and is returned unchanged.
        """
        keys = codes >= 0
        if not keys.any():
            # A vocabulary without keys has no kind.
            return Vocabulary(), codes
        used, at = _find_distinct(codes[keys])
        if KINDS[self.kind]:
            texts = self._texts.values
            values: Any = [texts[i] for i in used.tolist()]
            vocabulary = Vocabulary.from_values(self.kind, values)
        else:
            values = self._ints.values[used[used < BIG_CODE_BASE]]
            if used[-1] >= BIG_CODE_BASE:
                big = self._big.values[used[used >= BIG_CODE_BASE] - BIG_CODE_BASE].view(np.uint64)
                values = np.array([*values.tolist(), *big.tolist()], object)
            vocabulary = Vocabulary.from_values(self.kind, values)
        ranks = vocabulary.find_ranks(values)
        out = codes.copy()
        out[keys] = ranks[at]
        return vocabulary, out

    def add_vocabulary(self, vocabulary: Vocabulary) -> Ints:
        """Assign codes to the keys of a vocabulary, and return these codes in vocabulary order."""
        if not len(vocabulary):
            return np.zeros(0, np.int64)
        self.kind = vocabulary.kind
        if not vocabulary.is_text:
            return self._encode_any_integers(np.asarray(vocabulary.values))
        ends = np.cumsum([0, *(len(t) for t in vocabulary.values)], dtype=np.int64)
        return self._texts.encode(np.frombuffer(b"".join(vocabulary.values), np.uint8), ends[:-1], ends[1:])


def _select_codes(codes: Ints, indices: NDArray[Any]) -> Ints | DictionaryCodes:
    """Return the codes at these indices: as `DictionaryCodes` if a kernel can look them up, otherwise as an array."""
    # Kernels do not check indices, so return `DictionaryCodes` only if all indices are in range. The unsigned view
    # detects negative indices, too, because they become large numbers. If the dictionary has more codes than the batch
    # has rows, return an array, because `Level.locate` would examine all codes of the dictionary.
    if indices.dtype != np.int32 or len(codes) > len(indices) or indices.view(np.uint32).max() >= len(codes):
        return codes.take(indices)
    return DictionaryCodes(codes, indices)


def _sort_distinct(values: Ints) -> Ints:
    """Return the distinct values in ascending order.

    `np.unique` does the same with a hash table, which takes ten times as long if there are a million distinct values.
    """
    # Repeated values are dropped before sorting, too. This saves time if, for example, rows are in time order and the
    # values are time windows, because there are then long runs of equal values.
    return _drop_repeated(np.sort(_drop_repeated(values)))


def _drop_repeated(values: Ints) -> Ints:
    """Return the values, but drop each value that equals the value directly before it."""
    is_first = np.empty(len(values), bool)
    is_first[:1] = True
    np.not_equal(values[1:], values[:-1], out=is_first[1:])
    return values[is_first]


def _find_distinct(codes: Ints) -> tuple[Ints, Ints]:
    """Return the distinct codes in ascending order, and the position of each item of `codes` among them."""
    if int(codes.max()) >= 4 * len(codes) + 64:
        used, at = np.unique(codes, return_inverse=True)
        return used, at.reshape(-1)
    # The codes are small numbers, so a table with a flag for each code is faster than `np.unique`, which sorts the
    # codes to find the positions.
    occurs = np.zeros(int(codes.max()) + 1, bool)
    occurs[codes] = True
    return np.flatnonzero(occurs), (np.cumsum(occurs) - 1)[codes]
