"""Integer codes for keys, in order of first appearance: for integers, for texts, and for columns of either.

Kernels index tables of cells by codes instead of comparing keys. A finished state has no codes. It has a sorted
vocabulary and the ranks of keys in it, which do not depend on the order of the rows (see `KeyCodes.rank_codes`).
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..batch.convert import arrow_values
from ..batch.slice_keys import read_slice_keys
from ..errors import InvalidInputError
from ..kernels.keys import encode_ints, encode_texts
from ..state.axes import KINDS, NULL, Vocabulary

__all__ = ["KeyCodes"]

Ints = NDArray[np.int64]

# The number of slots of a new table.
FREE = 1 << 10
# Integers from 2**63 on are stored as int64 with the same bits, in a table of their own, and their codes start here.
# In one table -1 and 2**64 - 1, which have the same bits, would be one key.
BIG_CODE_BASE = 1 << 40


def ensure_capacity(array: NDArray[Any], size: int, used: int) -> NDArray[Any]:
    """Return an array of at least `size` items that begins with the first `used`.

    The size at least doubles, so the cost of all copies together is linear in the final size.
    """
    if size <= len(array):
        return array
    new = np.empty((max(size, 2 * len(array)), *array.shape[1:]), array.dtype)
    new[:used] = array[:used]
    return new


class KeyTable:
    """Codes for keys: an array of keys by code, and a hash table with open addressing that maps a key to its code.

    `count` is the number of valid stored keys; it is set last. `is_stale` is True while the hash table is written. After
    an interrupt during that time, the next call builds the table again from the first `count` keys.
    """

    def __init__(self) -> None:
        self.count, self.slots, self.is_stale = 0, np.full(FREE, -1, np.int64), False

    def insert_up_to(self, count: int) -> None:
        """Insert the stored keys up to this code in the hash table, which is at most half full."""
        first = 0 if self.is_stale or 2 * count > len(self.slots) else self.count
        self.is_stale = True
        if not first:
            self.slots = np.full(max(FREE, 1 << (4 * count - 1).bit_length()), -1, np.int64)
        self._insert(first, count)
        self.count, self.is_stale = count, False

    def _insert(self, first: int, count: int) -> None:
        """Insert the stored keys with codes from `first` to `count` in the hash table."""
        raise NotImplementedError


class IntegerCodes(KeyTable):
    """Codes for int64 values."""

    def __init__(self) -> None:
        super().__init__()
        self.stored = np.zeros(FREE // 2, np.int64)

    def encode(self, values: Ints) -> Ints:
        """Return the code of each value; new values get the next codes, in ascending order of the values."""
        if self.is_stale:
            self.insert_up_to(self.count)
        numbers = np.empty(len(values), np.int64)
        encode_ints(values, self.stored, self.count, self.slots, numbers, False)
        new = numbers < 0
        if new.any():
            self._add(np.unique(values[new]))
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
        """The value of each code."""
        return self.stored[: self.count]


class TextCodes(KeyTable):
    """Codes for byte strings, which are compared in full: two strings with equal hashes are two keys."""

    def __init__(self) -> None:
        super().__init__()
        self.stored, self.offsets = np.zeros(FREE, np.uint8), np.zeros(FREE, np.int64)

    def encode(self, data: NDArray[np.uint8], offsets: Ints) -> Ints:
        """Return the code of each text; new texts get the next codes, in ascending order of the texts."""
        if self.is_stale:
            self.insert_up_to(self.count)
        numbers = np.empty(len(offsets) - 1, np.int64)
        encode_texts(data, offsets, self.stored, self.offsets, self.count, self.slots, numbers, False)
        new = np.flatnonzero(numbers < 0)
        if len(new):
            self._add(sorted({data[offsets[i] : offsets[i + 1]].tobytes() for i in new}))
            encode_texts(data, offsets, self.stored, self.offsets, self.count, self.slots, numbers, False)
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
        rest = self.offsets[first : count + 1].copy()
        encode_texts(
            self.stored, rest, self.stored, self.offsets, first, self.slots, np.empty(count - first, np.int64), True
        )

    @property
    def size(self) -> int:
        """The total number of bytes of all texts."""
        return int(self.offsets[self.count])

    @property
    def values(self) -> list[bytes]:
        """The text of each code."""
        text = self.stored[: self.size].tobytes()
        return [text[a:b] for a, b in pairwise(self.offsets[: self.count + 1].tolist())]


class KeyCodes:
    """Codes for the keys of one column, all of one kind: the kind of the first key that is not null.

    Parameters
    ----------
    name : str
        The name of the column, for error messages.
    """

    def __init__(self, name: str) -> None:
        self.name, self.kind = name, ""
        self._ints, self._big, self._texts = IntegerCodes(), IntegerCodes(), TextCodes()
        # The Arrow dictionary of the last batch, its kind and the codes of its texts, because successive batches often
        # share it.
        self._last: tuple[Any, str, Ints] | None = None

    def encode(self, raw: Any) -> Ints:
        """Return the code of the key of each row, NULL for a missing key.

        Raises
        ------
        InvalidInputError
            The keys are of another kind than the keys of earlier batches.
        """
        whole = type(raw).__name__ == "DictionaryArray" and not raw.null_count
        if whole and self._last is not None and raw.dictionary.equals(self._last[0]):
            self.accept_kind(self._last[1])
            return self._last[2].take(arrow_values(raw.indices))
        kind, content = read_slice_keys(raw, self.name)
        if not kind:
            return np.full(int(content), NULL)
        self.accept_kind(kind)
        if not KINDS[kind]:
            return self._encode_with_nulls(*content)
        (data, offsets), index, missing = content
        numbers = self._texts.encode(data, offsets)
        # Codes of decimals are not in the order of the Arrow dictionary, so they are not kept.
        if missing is None and whole and kind in ("string", "bytes"):
            self._last = raw.dictionary, kind, numbers
        if missing is not None:
            numbers, index = np.append(numbers, NULL), np.where(missing, len(numbers), index)
        return np.asarray(numbers.take(index), np.int64)

    def encode_integers(self, kind: str, values: Ints, missing: Any) -> Ints:
        """Return the code of each key that is stored as an integer, such as a date; NULL for a missing key."""
        if not len(values) or (missing is not None and missing.all()):
            return np.full(len(values), NULL)
        self.accept_kind(kind)
        return self._encode_with_nulls(values, missing)

    def _encode_with_nulls(self, values: NDArray[Any], missing: Any) -> Ints:
        codes = self._encode_any_integers(values)
        return codes if missing is None else np.where(missing, NULL, codes)

    @property
    def count(self) -> int:
        """The number of keys that have a code."""
        return self._ints.count + self._big.count + self._texts.count

    def accept_kind(self, kind: str) -> None:
        """Raise InvalidInputError if earlier keys are of another kind; otherwise remember this kind."""
        if self.kind and self.kind != kind:
            before, now = (k.removeprefix("shard of ") for k in (self.kind, kind))
            raise InvalidInputError(
                f"{self.name}: the keys so far are of kind {before}, these are of kind {now}; convert one of them",
                column=self.name,
            )
        self.kind = kind

    def _encode_any_integers(self, values: NDArray[Any]) -> Ints:
        if values.dtype not in (np.uint64, object) or not len(values) or values.max() < 1 << 63:
            return self._ints.encode(np.ascontiguousarray(values, np.int64))
        big = np.asarray(values >= 1 << 63, bool)
        codes = np.empty(len(values), np.int64)
        codes[~big] = self._ints.encode(values[~big].astype(np.int64))
        codes[big] = BIG_CODE_BASE + self._big.encode(values[big].astype(np.uint64).view(np.int64))
        return codes

    # -- conversion between codes and finished states ------------------------------------------------------------------

    def rank_codes(self, codes: Ints) -> tuple[Vocabulary, Ints]:
        """Return a vocabulary of the keys with these codes, and the rank of each key; negative marks such as NULL stay."""
        keys = codes >= 0
        if not keys.any():
            # Without keys the vocabulary has no kind.
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
        """Add the keys of a vocabulary, and return their codes."""
        if not len(vocabulary):
            return np.zeros(0, np.int64)
        self.kind = vocabulary.kind
        if not vocabulary.is_text:
            return self._encode_any_integers(np.asarray(vocabulary.values))
        ends = np.cumsum([0, *(len(t) for t in vocabulary.values)], dtype=np.int64)
        return self._texts.encode(np.frombuffer(b"".join(vocabulary.values), np.uint8), ends)


def _find_distinct(codes: Ints) -> tuple[Ints, Ints]:
    """Return the distinct codes in ascending order, and the position of each code among them."""
    if int(codes.max()) >= 4 * len(codes) + 64:
        used, at = np.unique(codes, return_inverse=True)
        return used, at.reshape(-1)
    # Codes are dense, so a table of flags replaces the sort of `np.unique`.
    occurs = np.zeros(int(codes.max()) + 1, bool)
    occurs[codes] = True
    return np.flatnonzero(occurs), (np.cumsum(occurs) - 1)[codes]
