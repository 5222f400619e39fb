"""Small numbers as bytes: a byte each; those from 255 on go on, less 255, as u16; 65,535 there says that a u64 has it all.

One stream holds all small numbers of a section, so that reading one takes few steps. Of many sections each part comes out
as one array, section after section, and no step loops over them in Python.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import getitem
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import StateFormatError

__all__ = ["BLOCK", "Pieces", "VarintStreams", "per_section", "ranges", "running", "tiers", "unzigzag", "zigzag"]

Ints = NDArray[np.int64]
Array = NDArray[Any]

BLOCK = 1 << 16
FIRST, SECOND = 255, 65535
LEAST = FIRST + SECOND  # of the third tier


def zigzag(values: Array) -> Array:
    """Signed numbers as small ones: 0, -1, 1, -2."""
    wide = values.astype(np.int64, copy=False)
    return ((wide << 1) ^ (wide >> 63)).view(np.uint64)


def unzigzag(values: Array) -> Ints:
    """Undo `zigzag`."""
    wide = values.astype(np.uint64, copy=False)
    return (wide >> np.uint64(1)).view(np.int64) ^ -(wide & np.uint64(1)).view(np.int64)


def tiers(parts: Iterable[Array]) -> tuple[int, int, list[bytes]]:
    """Write numbers that are not negative: members of the further tiers, and the bytes."""
    firsts, seconds, thirds, two, three = [], [], [], 0, 0
    for values in parts:
        first = np.minimum(values, values.dtype.type(FIRST)).astype(np.uint8, copy=False)
        firsts.append(first.tobytes())
        large = values[first == FIRST]
        if len(large):
            large = large.astype(np.uint64)
            second = np.minimum(large - np.uint64(FIRST), np.uint64(SECOND)).astype("<u2")
            third = large[second == SECOND].astype("<u8")
            two, three = two + len(second), three + len(third)
            seconds.append(second.tobytes())
            thirds.append(third.tobytes())
    return two, three, firsts + seconds + thirds


def ranges(starts: Ints, lengths: Ints) -> Ints:
    """The indices of some ranges, one after the other."""
    out = np.arange(int(lengths.sum()))
    out += np.repeat(starts - (np.cumsum(lengths) - lengths), lengths)
    return out


def running(steps: Array, counts: Ints, out: Array | None = None) -> Array:
    """Sums of what came before within the section, and this; `out` may be the steps."""
    begins = (np.cumsum(counts) - counts)[counts > 0]
    firsts = steps[begins]
    run: Array = np.cumsum(steps, dtype=steps.dtype, out=out)
    if len(counts) > 1 and len(run):
        before = run[begins] - firsts
        run -= np.repeat(before, counts[counts > 0])
    return run


def per_section(where: Array, lengths: Ints) -> Ints:
    """How many of some places, in an array that has so many members of every section, lie in each."""
    if len(lengths) == 1:
        return np.array([len(where)])
    return np.diff(np.searchsorted(where, np.concatenate([[0], np.cumsum(lengths)])))


class Pieces:
    """The bytes of some sections, cut off piece by piece, of all sections alike.

    Parameters
    ----------
    plains : sequence of bytes
        The sections.
    at : int64, or int of one section
        Where to begin in each.
    """

    def __init__(self, plains: Sequence[bytes], at: Any) -> None:
        self.plains, self.at, self.one = plains, at, len(plains) == 1

    def cut(self, lengths: Ints, dtype: Any = np.uint8) -> Array:
        """The next bytes of every section."""
        begin = self.at
        if self.one:
            n = int(lengths[0])
            self.at = begin + n
            return np.frombuffer(self.plains[0], np.uint8, n, begin).view(dtype)
        self.at = begin + lengths
        if not lengths.any():
            return np.zeros(0, dtype)
        cuts = map(slice, begin.tolist(), self.at.tolist())
        pieces: Iterable[bytes] = map(getitem, self.plains, cuts)  # type: ignore[arg-type]
        return np.frombuffer(b"".join(pieces), dtype)

    def ahead(self, length: int) -> Array:
        """So many bytes of one section, which are not cut off yet."""
        return np.frombuffer(self.plains[0], np.uint8, length, self.at)

    def done(self, ends: Any) -> bool:
        """Whether all was cut off."""
        return bool(self.at == ends) if self.one else np.array_equal(self.at, ends)


class VarintStreams:
    """The streams of small numbers of some sections.

    Parameters
    ----------
    plains : sequence of bytes
        The sections.
    at, small, two, three : int64, or int of one section
        Where the stream of each begins, and how many members its tiers have; these lie within the section.
    """

    def __init__(self, plains: Sequence[bytes], at: Any, small: Any, two: Any, three: Any) -> None:
        self.first = Pieces(plains, at)
        self.second = Pieces(plains, at + small)
        self.third = Pieces(plains, at + small + 2 * two)
        self.ends = (at + small, at + small + 2 * two, at + small + 2 * two + 8 * three)
        self.deep = bool(np.any(three))
        self.bare = len(plains) == 1 and plains[0].find(b"\xff", at, at + small) < 0

    def next(self, lengths: Ints) -> Array:
        """The next so many numbers of every section, in the narrowest type that is at hand."""
        n = int(lengths[0])
        if self.bare or not self.first.one or n <= BLOCK or not (self.first.ahead(n) == FIRST).any():
            return self.first.cut(lengths) if self.bare else self._next(lengths)
        out = np.empty(n, np.uint64 if self.deep else np.uint32)  # block by block: what is worked in stays small
        for i in range(0, n, BLOCK):
            out[i : i + BLOCK] = self._next(np.array([min(BLOCK, n - i)]))
        return out

    def _next(self, lengths: Ints) -> Array:
        first = self.first.cut(lengths)
        large = np.flatnonzero(first == FIRST)
        if not len(large):
            return first
        many = per_section(large, lengths)
        more = self._within(self.second, 2 * many, self.ends[1], "<u2")
        last = np.flatnonzero(more == SECOND)
        if not len(last):
            out = first.astype(np.uint32)
            out[large] += more
            return out
        most = self._within(self.third, 8 * per_section(last, many), self.ends[2], "<u8")
        if int(most.min()) < LEAST:
            raise StateFormatError("a small number is written as a large one")
        values = more.astype(np.uint64)
        values += np.uint64(FIRST)
        values[last] = most
        out = first.astype(np.uint64)
        out[large] = values
        return out

    def finish(self) -> None:
        """Raise unless all was read."""
        for pieces, end in zip((self.first, self.second, self.third), self.ends, strict=True):
            if not pieces.done(end):
                raise StateFormatError("the tiers of the small numbers do not fit")

    def _within(self, pieces: Pieces, lengths: Ints, ends: Ints, dtype: str) -> Array:
        if np.any(pieces.at + lengths > ends):
            raise StateFormatError("the tiers of the small numbers do not fit")
        return pieces.cut(lengths, dtype)
