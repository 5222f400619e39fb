"""What the parts of a state say of one another: weights that no rows have, and sums that they cannot add up to.

Rows and weights say what a sum of their values can be at most. Sums are checked without rounding, as whole arrays.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import StateFormatError
from ..numerics.exact import CHUNK_BASE, CHUNKS, LOW_BITS, about, carry_exact, carry_fixed
from .cell_table import CellTable
from .declare import LIMIT, Array, Flat
from .fold import check_room

__all__ = ["RowWeight", "all_within", "check_totals", "weight_of"]

Ints = NDArray[np.int64]

HEAVIEST = 1 << 31
"""No row weighs so much."""
ONE = CHUNK_BASE // 32  # the chunk of a superaccumulator that counts ones
SURE = 1 << 42  # rows beyond are as good as so many: a fixed sum stays below
BLOCK = 1 << 9  # superaccumulators that are worked on at a time
FAR = 1 << 32  # of a last chunk: beyond what any limit comes to


@dataclass(frozen=True)
class RowWeight:
    """What some numbers of rows weigh.

    Parameters
    ----------
    rows : int64
        The rows.
    excess : int64 with one more axis, optional
        The sums of w - 1: fixed numbers, or superaccumulators.
    """

    rows: Ints
    excess: Array | None = None

    def __getitem__(self, at: tuple[Any, ...]) -> RowWeight:
        """Some of them, or with more axes; `at` begins with an ellipsis."""
        return RowWeight(self.rows[at], None if self.excess is None else self.excess[(*at, slice(None))])

    def sum(self, axis: int) -> RowWeight:
        """Those of an axis, counted from the last, together."""
        if self.excess is None:
            return RowWeight(self.rows.sum(axis=axis))
        total = self.excess.sum(axis=axis - 1)
        (carry_fixed if total.shape[-1] == 2 else carry_exact)(total)
        return RowWeight(self.rows.sum(axis=axis), total)

    def same(self, other: RowWeight) -> bool:
        """Whether rows and excess are those of another, which may have fewer axes."""
        if self.excess is None or other.excess is None:
            return bool((self.rows == other.rows).all())
        return bool((self.rows == other.rows).all() and (self.excess == other.excess).all())

    def wrong(self) -> bool:
        """Whether rows would weigh less than nothing, or more than rows can."""
        if self.excess is None:
            return False
        most = self.rows.astype(np.float64) * HEAVIEST
        if self.excess.shape[-1] == 2:
            high = self.excess[..., 0]
            least = -(np.minimum(self.rows, SURE) << 20)
            return bool((high < least).any() or (high * 2.0**-20 > most).any())
        return bool((self.exact()[..., -1] < 0).any()) or _beyond(self.excess, RowWeight(self.rows), HEAVIEST)

    def exact(self) -> Ints:
        """Rows and excess together, as superaccumulators."""
        return _exact(self.rows, self.excess)

    def mass(self) -> Array:
        """Rows and excess together, as fixed numbers."""
        rows = np.minimum(self.rows, SURE) << 20
        none = np.zeros((*rows.shape, 2), np.int64) if self.excess is None else self.excess.copy()
        none[..., 0] += rows
        return none

    def fall_short(self, sums: Array, most: float = math.inf, *, signed: bool = False) -> bool:
        """Whether some sum of values, each times its weight, is more than `most` times all weight, or else negative."""
        exact = sums.shape[-1] == CHUNKS
        negative = sums[..., -1 if exact else 0] < 0
        if negative.any():
            if not signed:
                return True
            sums = np.where(negative[..., None], -sums, sums)
            carry_exact(sums)
        return _beyond(sums, self, most) if exact else self._fixed_beyond(sums, most)

    def _fixed_beyond(self, sums: Array, most: float) -> bool:
        high: Any = np.minimum(self.rows, SURE) << 20
        low: Any = 0
        if self.excess is not None:
            high, low = high + self.excess[..., 0], self.excess[..., 1]
        top, rest = sums[..., 0], sums[..., 1]
        if most == 1:
            return bool(((top > high) | ((top == high) & (rest > low))).any())
        nothing = (high == 0) & (low == 0)
        if (nothing & ((top != 0) | (rest != 0))).any():
            return True
        if most >= HEAVIEST:  # no term of a fixed sum is larger, whatever the weight
            return False
        limit = most * (high + low * 2.0**-LOW_BITS) + self.rows * 2.0**-30
        return bool(np.asarray(top + rest * 2.0**-LOW_BITS > limit).any())


def all_within(less: Ints, more: Ints, *, rounded: bool = True) -> bool:
    """Whether sums are not negative, and none is beyond another; but, where it can be, for the rounding of their terms."""
    left = more - less
    if rounded:
        left[..., :-1] += np.minimum(more[..., 1:], FAR) << 3  # relatively 2**-29
    carry_exact(left)
    return not ((less[..., -1] < 0).any() or (left[..., -1] < 0).any())


def weight_of(state: CellTable, name: str) -> RowWeight:
    """What the rows weigh that a part counts, of all cells."""
    beside = next((f.name for f in state.parts().values() if isinstance(f, Flat) and f.beside == name), None)
    cells = state.cells
    return RowWeight(cells.flats[name], cells.flats.get(beside) if beside is not None else None)


def _beyond(sums: Array, weight: RowWeight, most: float) -> bool:
    """Whether some superaccumulator is more than `most` times its weight."""
    shape = sums.shape[:-1]
    some = np.flatnonzero(sums.any(axis=-1))  # what is zero is within all limits
    flat = sums.reshape(-1, sums.shape[-1])
    rows = np.broadcast_to(weight.rows, shape)
    excess = None if weight.excess is None else np.broadcast_to(weight.excess, (*shape, weight.excess.shape[-1]))
    for begin in range(0, len(some), BLOCK):
        which = some[begin : begin + BLOCK]
        block = np.unravel_index(which, shape)
        if excess is None:  # a first look is enough for nearly all
            with np.errstate(over="ignore"):
                which = which[~(about(flat[which]) < most * (1 - 2.0**-20) * rows[block])]
            block = np.unravel_index(which, shape)
            if not len(which):
                continue
        left, scale = _limit(rows[block], None if excess is None else excess[block], most)
        if (flat[which, -1] >= FAR).any() and most < math.inf:
            return True
        left -= flat[which] << scale
        carry_exact(left)
        if (left[:, -1] < 0).any():
            return True
    return False


def _limit(rows: Array, excess: Array | None, most: float) -> tuple[Ints, int]:
    """So many times a weight, as superaccumulators, and by which power of two they are too large."""
    out = _exact(rows, excess)
    if most == math.inf:  # all that there is, if there is anything
        there = out.any(axis=-1)
        out[...] = 0
        out[..., -1] = np.where(there, LIMIT, 0)
        return out, 0
    shift = max(0, (math.frexp(most)[1] + 2) // 32)  # whole chunks, so that what is left fits beside a chunk
    times = Fraction(most) / (1 << (32 * shift))
    scale = max(0, 29 - math.ceil(times).bit_length())
    if shift:
        out = np.concatenate([np.zeros((*out.shape[:-1], shift), np.int64), out[..., :-shift]], axis=-1)
    out *= math.ceil(times * (1 << scale))
    return out, scale


def _exact(rows: Array, excess: Array | None) -> Ints:
    out = np.zeros((*np.shape(rows), CHUNKS), np.int64)
    out[..., ONE] = rows
    if excess is not None and excess.shape[-1] == 2:
        high, low = excess[..., 0], excess[..., 1]
        out[..., ONE] += high >> 20
        out[..., ONE - 1] += (high & 0xFFFFF) << 12
        out[..., ONE - 2] += low << 4
    elif excess is not None:
        out += excess
    carry_exact(out)
    return out


def check_totals(state: CellTable) -> None:
    """Raise unless rows and weights are in range, and the same wherever a row is counted several times."""
    name = type(state).__name__
    held = state.cells.flats
    check_room(state, state.rows_about, state.weight_beside, state.gone_about)
    for part in state.parts().values():
        there = isinstance(part, Flat) and part.beside is not None and part.name in held
        if there and weight_of(state, part.beside).wrong():
            raise StateFormatError(f"{name}.{part.name} makes a weight negative, or larger than rows weigh")
    if state.times > 1 and len(state.cells) and not all(_alike(state, n) for n in state.counted):
        raise StateFormatError(f"{name} has not seen the same rows in each of {state.times}")


def _alike(state: CellTable, name: str) -> bool:
    """Whether each of what a row is counted for has seen as many rows; a row may weigh otherwise for another label."""
    cells, times = state.cells, state.times
    if name in cells.flats:
        rows = cells.flats[name].reshape(len(cells.flats[name]), times, -1).sum(axis=-1)
        return bool((rows == rows[:, :1]).all())
    e, part = cells.tallies[name], state.parts()[name]
    held = np.flatnonzero(np.diff(state.starts(name))).astype(np.uint64)
    if not len(held) or (e.high is not None and e.top < 2):
        return True
    if len(held) * times > len(e):  # some have seen none
        return False
    # of wide places the label is what is beyond 65 bits
    share, shift = (part.count(state) // times, e.shift) if e.high is None else (1, e.top - 1)
    codes = e.codes if e.high is None else e.high >> np.uint32(1)
    firsts = (held << np.uint64(shift))[:, None] + np.arange(times, dtype=np.uint64) * np.uint64(share)
    begins = np.searchsorted(codes, firsts.reshape(-1))
    if (np.diff(begins, append=len(e)) == 0).any():
        return False
    rows = np.add.reduceat(e.counts, begins, dtype=np.int64).reshape(len(held), times)
    return bool((rows == rows[:, :1]).all())
