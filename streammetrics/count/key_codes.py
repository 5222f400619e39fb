"""Numbers for keys, in the order in which they are met: integers, texts, and the columns that hold either."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..batch.convert import arrow_values
from ..batch.slice_keys import read_slice_keys
from ..errors import InvalidInputError
from ..kernels.keys import number_ints, number_texts
from ..state.axes import KINDS, NULL, Vocabulary

__all__ = ["KeyNumbers"]

Ints = NDArray[np.int64]

FREE = 1 << 10
BIG = 1 << 40  # where the numbers of integers beyond int64 begin: so that -1 and 2**64 - 1 stay different


def longer(array: NDArray[Any], size: int, used: int) -> NDArray[Any]:
    """Return an array with room, at least doubled, so that what is copied in all is a multiple of what there is."""
    if size <= len(array):
        return array
    new = np.empty((max(size, 2 * len(array)), *array.shape[1:]), array.dtype)
    new[:used] = array[:used]
    return new


class KeyTable:
    """Numbers for keys, by a table of hashes.

    While the table is written to it is in doubt: should an interrupt come then, it is made again, of the keys that count.
    """

    def __init__(self) -> None:
        self.count, self.slots, self.doubt = 0, np.full(FREE, -1, np.int64), False

    def enter(self, count: int) -> None:
        """Enter keys in the table, up to this one."""
        first = 0 if self.doubt or 2 * count > len(self.slots) else self.count
        self.doubt = True
        if not first:
            self.slots = np.full(max(FREE, 1 << (4 * count - 1).bit_length()), -1, np.int64)
        self._number(first, count)
        self.count, self.doubt = count, False

    def _number(self, first: int, count: int) -> None:
        """Give the stored keys from one to another their numbers."""
        raise NotImplementedError


class IntNumbers(KeyTable):
    """Numbers for int64 values."""

    def __init__(self) -> None:
        super().__init__()
        self.stored = np.zeros(FREE // 2, np.int64)

    def of(self, values: Ints) -> Ints:
        """Return the number of each value; new values get the next numbers."""
        if self.doubt:
            self.enter(self.count)
        numbers = np.empty(len(values), np.int64)
        number_ints(values, self.stored, self.count, self.slots, numbers, False)
        new = numbers < 0
        if new.any():
            self._learn(np.unique(values[new]))
            number_ints(values, self.stored, self.count, self.slots, numbers, False)
        return numbers

    def _learn(self, values: Ints) -> None:
        before, count = self.count, self.count + len(values)
        self.stored = longer(self.stored, count, before)
        self.stored[before:count] = values
        self.enter(count)

    def _number(self, first: int, count: int) -> None:
        rest = self.stored[first:count].copy()
        number_ints(rest, self.stored, first, self.slots, np.empty(len(rest), np.int64), True)

    @property
    def values(self) -> Ints:
        """The value of each number."""
        return self.stored[: self.count]


class TextNumbers(KeyTable):
    """Numbers for strings of bytes, compared in full."""

    def __init__(self) -> None:
        super().__init__()
        self.stored, self.offsets = np.zeros(FREE, np.uint8), np.zeros(FREE, np.int64)

    def of(self, data: NDArray[np.uint8], offsets: Ints) -> Ints:
        """Return the number of each text; new texts get the next numbers."""
        if self.doubt:
            self.enter(self.count)
        numbers = np.empty(len(offsets) - 1, np.int64)
        number_texts(data, offsets, self.stored, self.offsets, self.count, self.slots, numbers, False)
        new = np.flatnonzero(numbers < 0)
        if len(new):
            self._learn(sorted({data[offsets[i] : offsets[i + 1]].tobytes() for i in new}))
            number_texts(data, offsets, self.stored, self.offsets, self.count, self.slots, numbers, False)
        return numbers

    def _learn(self, texts: list[bytes]) -> None:
        before, count, size = self.count, self.count + len(texts), self.size
        ends = size + np.cumsum([len(t) for t in texts])
        self.stored = longer(self.stored, int(ends[-1]), size)
        self.stored[size : ends[-1]] = np.frombuffer(b"".join(texts), np.uint8)
        self.offsets = longer(self.offsets, count + 1, before + 1)
        self.offsets[before + 1 : count + 1] = ends
        self.enter(count)

    def _number(self, first: int, count: int) -> None:
        rest = self.offsets[first : count + 1].copy()
        number_texts(
            self.stored, rest, self.stored, self.offsets, first, self.slots, np.empty(count - first, np.int64), True
        )

    @property
    def size(self) -> int:
        """Bytes of all texts."""
        return int(self.offsets[self.count])

    @property
    def values(self) -> list[bytes]:
        """The text of each number."""
        text = self.stored[: self.size].tobytes()
        return [text[a:b] for a, b in pairwise(self.offsets[: self.count + 1].tolist())]


class KeyNumbers:
    """The keys of one column: their kind, fixed by the first that is not null, and a number for each.

    Parameters
    ----------
    name : str
        The column, for messages.
    """

    def __init__(self, name: str) -> None:
        self.name, self.kind = name, ""
        self._ints, self._big, self._texts = IntNumbers(), IntNumbers(), TextNumbers()
        self._last: tuple[Any, str, Ints] | None = None  # an Arrow dictionary, its kind, and the numbers of its texts

    def of(self, raw: Any) -> Ints:
        """Return the number of the key of each row; NULL for none.

        Raises
        ------
        InvalidInputError
            Keys are of another kind than those before.
        """
        whole = type(raw).__name__ == "DictionaryArray" and not raw.null_count
        if whole and self._last is not None and raw.dictionary.equals(self._last[0]):  # as in the batch before
            self.accept(self._last[1])
            return self._last[2].take(arrow_values(raw.indices))
        kind, made = read_slice_keys(raw, self.name)
        if not kind:
            return np.full(int(made), NULL)
        self.accept(kind)
        if not KINDS[kind]:
            return self._numbered(*made)
        (data, offsets), index, missing = made
        numbers = self._texts.of(data, offsets)
        if missing is None and whole and kind in ("string", "bytes"):  # decimals are read in an order of their own
            self._last = raw.dictionary, kind, numbers
        if missing is not None:
            numbers, index = np.append(numbers, NULL), np.where(missing, len(numbers), index)
        return np.asarray(numbers.take(index), np.int64)

    def of_integers(self, kind: str, values: Ints, missing: Any) -> Ints:
        """Return the number of each key of a kind that is held as integers; NULL for none."""
        if not len(values) or (missing is not None and missing.all()):
            return np.full(len(values), NULL)
        self.accept(kind)
        return self._numbered(values, missing)

    def _numbered(self, values: NDArray[Any], missing: Any) -> Ints:
        codes = self._integers(values)
        return codes if missing is None else np.where(missing, NULL, codes)

    @property
    def count(self) -> int:
        """How many keys have a number."""
        return self._ints.count + self._big.count + self._texts.count

    def accept(self, kind: str) -> None:
        """Raise unless keys of this kind belong here."""
        if self.kind and self.kind != kind:
            before, now = (k.removeprefix("shard of ") for k in (self.kind, kind))
            raise InvalidInputError(
                f"{self.name}: the keys so far are of kind {before}, these are of kind {now}; convert one of them",
                column=self.name,
            )
        self.kind = kind

    def _integers(self, values: NDArray[Any]) -> Ints:
        if values.dtype not in (np.uint64, object) or not len(values) or values.max() < 1 << 63:
            return self._ints.of(np.ascontiguousarray(values, np.int64))
        big = np.asarray(values >= 1 << 63, bool)
        codes = np.empty(len(values), np.int64)
        codes[~big] = self._ints.of(values[~big].astype(np.int64))
        codes[big] = BIG + self._big.of(values[big].astype(np.uint64).view(np.int64))
        return codes

    # -- to finished states and back -----------------------------------------------------------------------------------

    def ranked(self, codes: Ints) -> tuple[Vocabulary, Ints]:
        """Return the vocabulary of the keys with these numbers, and the rank of each; marks stay."""
        keys = codes >= 0
        if not keys.any():
            return Vocabulary(), codes  # content alone says the kind
        used, at = _distinct(codes[keys])
        if KINDS[self.kind]:
            texts = self._texts.values
            held: Any = [texts[i] for i in used.tolist()]
            vocabulary = Vocabulary.of(self.kind, held)
        else:
            held = self._ints.values[used[used < BIG]]
            if used[-1] >= BIG:
                big = self._big.values[used[used >= BIG] - BIG].view(np.uint64)
                held = np.array([*held.tolist(), *big.tolist()], object)
            vocabulary = Vocabulary.of(self.kind, held)
        ranks = vocabulary.ranks(held)
        out = codes.copy()
        out[keys] = ranks[at]
        return vocabulary, out

    def learn(self, vocabulary: Vocabulary) -> Ints:
        """Return the number of each key of a vocabulary."""
        if not len(vocabulary):
            return np.zeros(0, np.int64)
        self.kind = vocabulary.kind
        if not vocabulary.texts:
            return self._integers(np.asarray(vocabulary.values))
        ends = np.cumsum([0, *(len(t) for t in vocabulary.values)], dtype=np.int64)
        return self._texts.of(np.frombuffer(b"".join(vocabulary.values), np.uint8), ends)


def _distinct(codes: Ints) -> tuple[Ints, Ints]:
    """The numbers that occur, ascending, and the place of each among them; by a table, as most are small."""
    if int(codes.max()) >= 4 * len(codes) + 64:
        used, at = np.unique(codes, return_inverse=True)
        return used, at.reshape(-1)
    there = np.zeros(int(codes.max()) + 1, bool)
    there[codes] = True
    return np.flatnonzero(there), (np.cumsum(there) - 1)[codes]
