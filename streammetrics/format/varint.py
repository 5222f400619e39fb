"""Variable-length encoding of nonnegative integers in three streams, called tiers.

A number below 255 is one byte in the first tier. For a larger number, this byte is 255, and the number minus 255 is a u16
in the second tier. If the difference is 65,535 or more, the u16 is 65,535, and the third tier contains the number itself
as a u64.

A section has one set of tiers for all its small numbers, so reading them takes only a few numpy calls. The numbers of
many sections are read as one array, section after section, without a Python loop over sections.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import getitem
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import StateFormatError

__all__ = [
    "BLOCK",
    "Pieces",
    "VarintStreams",
    "count_by_section",
    "cumsum_by_section",
    "encode_tiers",
    "is_below",
    "is_single",
    "sum_up",
    "total",
    "unzigzag",
    "zigzag",
]

Ints = NDArray[np.int64]
Array = NDArray[Any]

BLOCK = 1 << 16
"""The number of integers that are decoded at a time, to limit temporary memory."""
FIRST, SECOND = 255, 65535
"""The values in the first and the second tier that mean that the number continues in the next tier."""
LARGE = bytes([FIRST])
LEAST = FIRST + SECOND
"""The smallest number of the third tier."""
FEW = 64
"""For up to this many numbers, Python computes a maximum or sum faster than numpy, which takes 2 us for each call."""


def zigzag(values: Array) -> Array:
    """Map signed integers to unsigned ones, so that small absolute values stay small: 0, -1, 1, -2 become 0, 1, 2, 3."""
    wide = values.astype(np.int64, copy=False)
    return ((wide << 1) ^ (wide >> 63)).view(np.uint64)


def unzigzag(values: Array) -> Ints:
    """Return the signed integers that `zigzag` encoded."""
    wide = values.astype(np.uint64, copy=False)
    return (wide >> np.uint64(1)).view(np.int64) ^ -(wide & np.uint64(1)).view(np.int64)


def encode_tiers(parts: Iterable[Array]) -> tuple[int, int, list[Array]]:
    """Encode arrays of nonnegative integers, one array after the other.

    Returns
    -------
    two, three : int
        How many numbers the second and third tiers contain.
    pieces : list of arrays
        The contents of the three tiers, to be concatenated.
    """
    firsts: list[Array] = []
    seconds: list[Array] = []
    thirds: list[Array] = []
    # The tiers are separate, so that the first tier has one byte for every number. Most numbers are small, and numpy
    # finds the large ones by comparing these bytes with 255.
    for values in parts:
        first = np.minimum(values, values.dtype.type(FIRST)).astype(np.uint8, copy=False)
        firsts.append(first)
        large = values[first == FIRST]
        if len(large):
            large = large.astype(np.uint64)
            second = np.minimum(large - np.uint64(FIRST), np.uint64(SECOND)).astype("<u2")
            seconds.append(second)
            thirds.append(large[second == SECOND].astype("<u8"))
    return sum(map(len, seconds)), sum(map(len, thirds)), firsts + seconds + thirds


def cumsum_by_section(steps: Array, counts: Any) -> Array:
    """Replace the elements of `steps` with their running sums, which restart in each section; return the array.

    `counts` gives the number of steps of each section.
    """
    if not (is_single(counts) or len(counts) == 1) and len(steps):
        # Subtract the sum of each section from the first step of the next one, so that a single running sum over all
        # sections starts again in each of them. The unsigned difference may wrap around; the running sum undoes this.
        begins = (np.cumsum(counts) - counts)[counts > 0]
        steps[begins[1:]] -= np.add.reduceat(steps, begins, dtype=steps.dtype)[:-1]
    return steps.cumsum(out=steps)


def count_by_section(index: Array, lengths: Any) -> Any:
    """Return how many elements of `index`, a list of ascending positions in an array, lie in each section of the array.

    The array contains one section after the other, and `lengths` gives the length of each section.
    """
    if is_single(lengths):
        return len(index)
    return np.diff(np.searchsorted(index, np.concatenate([[0], np.cumsum(lengths)])))


def is_single(counts: Any) -> bool:
    """Return whether `counts` belongs to a single section, and is therefore a Python integer.

    For several sections, `counts` is an array with one element for each section.
    """
    return isinstance(counts, int)


def total(counts: Any) -> int:
    """Return the sum of `counts` over all sections."""
    return counts if is_single(counts) else int(counts.sum())


def is_below(numbers: Array, limit: int) -> bool:
    """Return whether all `numbers`, which are nonnegative integers, are below `limit`."""
    if limit >> 8 * numbers.dtype.itemsize:
        return True
    if len(numbers) <= FEW:
        return max(numbers.tolist(), default=0) < limit
    return int(numbers.max()) < limit


def sum_up(numbers: Array) -> int:
    """Return the sum of nonnegative integers, which must fit into an int64."""
    return sum(numbers.tolist()) if len(numbers) <= FEW else int(numbers.sum(dtype=np.int64))


class Pieces:
    """A reader that takes the bytes of many sections together, one piece of every section at a time.

    Parameters
    ----------
    plains : sequence of bytes
        The sections.
    at : int64, or int for one section
        The offset in each section at which the first piece begins.
    """

    def __init__(self, plains: Sequence[bytes | memoryview], at: Any) -> None:
        self.plains, self.at, self.one = plains, at, len(plains) == 1

    def cut(self, lengths: Any, dtype: Any = np.uint8) -> Array:
        """Read the next piece of every section into one array of `dtype`; `lengths` gives the piece sizes in bytes."""
        begin = self.at
        self.at = begin + lengths
        if self.one:
            out = np.frombuffer(self.plains[0], np.uint8, lengths, begin) if lengths else np.zeros(0, np.uint8)
            return out if dtype is np.uint8 else out.view(dtype)
        if not lengths.any():
            return np.zeros(0, dtype)
        cuts = map(slice, begin.tolist(), self.at.tolist())
        pieces: Iterable[Any] = map(getitem, self.plains, cuts)
        return np.frombuffer(b"".join(pieces), dtype)

    def is_at(self, ends: Any) -> bool:
        """Return whether every section was read exactly up to its offset in `ends`."""
        return bool(self.at == ends) if self.one else np.array_equal(self.at, ends)


class VarintStreams:
    """A reader that decodes the variable-length numbers of many sections together.

    Parameters
    ----------
    plains : sequence of bytes
        The sections.
    at : int64, or int for one section
        The offset in each section at which the first tier begins. The other tiers follow; all must lie within the section.
    small, two, three : int64, or int for one section
        How many numbers the first, second and third tiers contain.
    """

    def __init__(self, plains: Sequence[bytes], at: Any, small: Any, two: Any, three: Any) -> None:
        self._section, self.first = plains[0], Pieces(plains, at)
        self.second = Pieces(plains, at + small)
        self.third = Pieces(plains, at + small + 2 * two)
        self.ends = (at + small, at + small + 2 * two, at + small + 2 * two + 8 * three)
        self.deep = is_single(three) and three > 0
        # A numpy call has a fixed cost, so decode all numbers of a small section at once.
        self.decoded: Array | None = None
        self.used = 0
        if self.first.one and small <= BLOCK:
            self.decoded = self.read(small)

    def read(self, lengths: Any) -> Array:
        """Read the next `lengths` numbers of every section as one array, whose dtype is wide enough for all of them.

        The dtype is uint8, uint32 or uint64: at least uint32 if any of the numbers is in the second tier, and uint64 if
        any is in the third. The array may be a view that shares its memory with other arrays.
        """
        if self.decoded is not None:
            begin, self.used = self.used, self.used + lengths
            return self.decoded[begin : self.used]
        if not self.first.one:
            return self._decode(lengths)
        at = self.first.at
        if self._section.find(LARGE, at, at + lengths) < 0:
            return self.first.cut(lengths)
        if lengths <= BLOCK:
            return self._decode(lengths)
        # Decode block by block, so that temporary arrays stay small.
        out = np.empty(lengths, np.uint64 if self.deep else np.uint32)
        for i in range(0, lengths, BLOCK):
            out[i : i + BLOCK] = self._decode(min(BLOCK, lengths - i))
        return out

    def _decode(self, lengths: Any) -> Array:
        first = self.first.cut(lengths)
        (large,) = (first == FIRST).nonzero()
        if not len(large):
            return first
        many = count_by_section(large, lengths)
        more = self._cut_within(self.second, 2 * many, self.ends[1], "<u2")
        (last,) = (more == SECOND).nonzero()
        if not len(last):
            out = first.astype(np.uint32)
            out[large] += more
            return out
        most = self._cut_within(self.third, 8 * count_by_section(last, many), self.ends[2], "<u8")
        # Only the shortest encoding of a number is valid, so that equal contents have equal bytes.
        if int(most.min()) < LEAST:
            raise StateFormatError("the state is corrupt: a number takes more bytes than necessary")
        values = more.astype(np.uint64)
        values += np.uint64(FIRST)
        values[last] = most
        out = first.astype(np.uint64)
        out[large] = values
        return out

    def check_finished(self) -> None:
        """Raise an error unless all tiers have been read to the end."""
        finished = self.decoded is None or self.used == len(self.decoded)
        tiers = zip((self.first, self.second, self.third), self.ends, strict=True)
        if not (finished and all(pieces.is_at(end) for pieces, end in tiers)):
            raise StateFormatError("the state is corrupt: the numbers do not fill their part of the section")

    def _cut_within(self, pieces: Pieces, lengths: Any, ends: Any, dtype: str) -> Array:
        beyond = pieces.at + lengths > ends
        if beyond if pieces.one else beyond.any():
            raise StateFormatError("the state is corrupt: the numbers do not fill their part of the section")
        return pieces.cut(lengths, dtype)
