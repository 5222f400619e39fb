"""The score histogram: rows by label and bucket of the score, enough for every metric of the ranking of two classes."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import Array, added, highest
from ..columns import Column, Need, label, score, weight
from ..errors import InvalidInputError, StateFormatError
from ..exact import UNIT, Mass, carry_fixed
from ..settings import setting
from ..state import State

__all__ = ["ScoreHistogram", "ScoresByLabel"]

NOTHING = np.zeros(0, np.int64)
NO_WEIGHTS = np.zeros(0)


class ScoresByLabel(State):
    """Rows of negatives and positives in ascending order of score: what every metric of ranking reads."""

    @property
    def negatives(self) -> Mass:
        """Rows (or weight) of negatives by score, in ascending order."""
        raise NotImplementedError

    @property
    def positives(self) -> Mass:
        """Rows (or weight) of positives by score, in ascending order."""
        raise NotImplementedError

    def pairs(self) -> tuple[int, int, int, int]:
        """Return all negatives and positives, twice the pairs that positives win (ties half), and those in one cell."""
        positives, negatives = self.positives, self.negatives
        return negatives.total(), positives.total(), *positives.above(negatives)

    @property
    def is_exact(self) -> bool:
        """Whether every cell is known to hold one score."""
        raise NotImplementedError

    @property
    def counts(self) -> NDArray[np.int64]:
        """Rows of negatives and positives, 2 x cells, whatever their weight."""
        raise NotImplementedError

    @property
    def weighted(self) -> bool:
        """Whether a weight other than 1 was seen."""
        return getattr(self, "excess", None) is not None

    def thresholds(self, index: NDArray[np.int64]) -> NDArray[np.float64]:
        """The smallest score of some cells: rows with `score >= threshold` are those of the cell and of all above."""
        raise NotImplementedError

    def support(self) -> Fraction:
        """What the positives weigh."""
        return Fraction(self.positives.total(), UNIT if self.weighted else 1)

    def facts(self) -> dict[str, Any]:
        counts = self.counts
        total = self.negatives.total() + self.positives.total()
        return {
            "rows": int(counts.sum()),
            "positives": int(counts[1].sum()),
            "weight": Fraction(total, UNIT if self.weighted else 1),
            "off_grid": not self.is_exact,
        }


class ScoreHistogram(ScoresByLabel, tag="scores"):
    """Rows of negatives and positives in each bucket of the score.

    A bucket is the leading bits of the score, truncated: the map never decreases, whatever the scores.

    Parameters
    ----------
    scale : {"probability", "real", "logit"}
        `probability` has 32 octaves of p below 1/2 and of 1 - p above it, mirrored, and a bucket for 1/2 itself:
        2**bits + 1 buckets. `real` and `logit` take the leading bits of the float32: 2**bits buckets.
    bits : int
        log2 of the number of buckets. Fewer bits nest in more.

    Notes
    -----
    `off_grid` is 1 if a score had bits that its bucket does not show, or lay beyond the last octave. While it is 0 every
    bucket holds one value, and what is read from the histogram is exact: so for float16 and bfloat16 scores.
    """

    scale: str = setting(default="probability", choices=("probability", "real", "logit"))
    bits: int = setting(default=16, low=8, high=24)

    rows: Array = added(2, "buckets")
    excess: Array = added(2, "buckets", form="fixed", optional=True)
    off_grid: Array = highest(form="flag")

    checks_itself = True

    @property
    def buckets(self) -> int:
        """The number of buckets."""
        return (1 << self.bits) + (self.scale == "probability")

    def needs(self) -> tuple[Need, ...]:
        return label(), score(scale=self.scale), weight()

    def absorb(
        self,
        at: NDArray[np.int64] | None,
        /,
        y_true: Column,
        y_score: Column,
        sample_weight: Column | None = None,
    ) -> bool:
        from ..kernels.scores import count_probabilities, count_reals

        y, s = y_true.values, y_score.values
        before = self.off_grid.copy() if at is None else self.off_grid
        if at is None and sample_weight is None:
            count = count_probabilities if self.scale == "probability" else count_reals
            done = count(y, s, self.rows.reshape(-1), self.off_grid.reshape(-1), self.bits)
        else:
            done = self._count_cells(y, s, sample_weight.values if sample_weight is not None else NO_WEIGHTS, at, 1)
        if done == len(s):
            return True
        weights = sample_weight.values[:done] if sample_weight is not None else NO_WEIGHTS
        self._count_cells(y[:done], s[:done], weights, None, -1)  # a bad block: take those before it back
        self.off_grid[...] = before
        return False

    def _count_cells(self, y: Array, s: Array, w: Array, at: NDArray[np.int64] | None, step: int) -> int:
        from ..kernels.scores import count_cells

        rows, off_grid, real = self.rows.reshape(-1), self.off_grid.reshape(-1), self.scale != "probability"
        excess = self.need("excess").reshape(-1) if len(w) else NOTHING
        places = NOTHING if at is None else at
        return int(count_cells(y, s, w, places, rows, excess, off_grid, real, self.bits, 2 * self.buckets, step))

    def quick(self) -> Callable[[Array, Array], bool]:
        from ..kernels.scores import count_probabilities, count_reals

        count = count_probabilities if self.scale == "probability" else count_reals
        rows, off_grid, bits = self.rows.reshape(-1), self.off_grid.reshape(-1), self.bits

        def add(y: Array, s: Array) -> bool:
            before = off_grid[0]
            done = count.dispatcher(y, s, rows, off_grid, bits)
            if done == len(s):
                return True
            self._count_cells(y[:done], s[:done], NO_WEIGHTS, None, -1)
            off_grid[0] = before
            return False

        return add

    def check(self) -> None:
        if self.excess is not None and negative_weight(self.rows, self.excess):
            raise StateFormatError("ScoreHistogram.excess makes a weight negative")

    @property
    def negatives(self) -> Mass:
        return Mass.of(self.rows[0], None if self.excess is None else self.excess[0])

    @property
    def positives(self) -> Mass:
        return Mass.of(self.rows[1], None if self.excess is None else self.excess[1])

    @property
    def masses(self) -> Mass:
        """Rows (or weight) of both classes by bucket."""
        if self.excess is None:
            return Mass.of(self.rows.sum(axis=0))
        excess = self.excess.sum(axis=0)
        carry_fixed(excess)
        return Mass.of(self.rows.sum(axis=0), excess)

    def ends(self) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Return a number that no score of a bucket is below, the one whose bits it shows, and one that none is above."""
        half = 1 << (self.bits - 1)
        step = np.arange(half + 1, dtype=np.int64)
        if self.scale == "probability":
            shift = 29 - self.bits
            z = (((94 << 23) + (step << shift)).astype(np.uint32)).view(np.float32).astype(np.float64)
            z[0] = 0.0  # the bottom bucket has everything from 0 on
            up = 1 - z[::-1]
            return np.r_[z, up[:-1]], np.r_[z, up[1:]], np.r_[z[1:], 0.5, up[1:]]
        infinite = 0x7F800000
        z = np.minimum(step << (32 - self.bits), infinite).astype(np.uint32).view(np.float32).astype(np.float64)
        return np.r_[-z[:0:-1], z[:-1]], np.r_[-z[-2::-1], z[:-1]], np.r_[-z[-2::-1], z[1:]]

    @property
    def is_exact(self) -> bool:
        return not bool(self.off_grid)

    @property
    def counts(self) -> NDArray[np.int64]:
        return self.rows

    def thresholds(self, index: NDArray[np.int64]) -> NDArray[np.float64]:
        index = np.asarray(index, np.int64)
        half = self.buckets // 2
        if self.scale == "probability":
            mirror = self.buckets - 1 - index  # p above 1/2 has the bucket of 1 - p, mirrored
            first = _float(np.minimum(index, mirror), 94 << 23, 29 - self.bits)
            if self.is_exact:  # one value a bucket
                return np.where(index <= half, first, 1.0 - first)
            return np.where(index <= half, first, np.nextafter(1.0 - _float(mirror + 1, 94 << 23, 29 - self.bits), 2.0))
        magnitude = np.where(index >= half, index - half, half - 1 - index)
        first = _float(magnitude, 0, 32 - self.bits)
        if self.is_exact:
            return np.where(index >= half, first, -first)
        beyond = _float(magnitude + 1, 0, 32 - self.bits)
        last = np.where(np.isfinite(beyond), np.nextafter(beyond, 0.0), np.finfo(np.float64).max)
        return np.where(index >= half, first, -last)

    def coarsen(self, bits: int) -> ScoreHistogram:
        """Return the histogram of the same rows with fewer bits: what they would have made there, to the bit."""
        drop = self.bits - bits
        new = self._with(self.settings | {"bits": bits})
        if drop < 0:
            raise InvalidInputError(f"a histogram of {self.bits} bits cannot be refined to {bits}; coarsen() goes down")
        if drop == 0:
            return self.copy()
        to = self._coarser(drop)
        arrays = {"dropped": self.dropped.copy()}
        firsts = np.flatnonzero(np.diff(to, prepend=-1))  # buckets that become one stand side by side
        arrays["rows"] = np.add.reduceat(self.rows, firsts, axis=-1)
        if self.excess is not None:
            arrays["excess"] = np.add.reduceat(self.excess, firsts, axis=-2)
            carry_fixed(arrays["excess"])
        off = np.flatnonzero(self._off_coarser_grid(drop))
        seen = self._weighs()[..., off].any(axis=(-1, -2))
        arrays["off_grid"] = self.off_grid | seen.astype(np.int64)
        new.__dict__["_slices"] = self.slices
        new._take(arrays)
        return new

    def _weighs(self) -> NDArray[np.bool_]:
        """Return which cells hold more than rows of weight 0, which show nothing of where they lie."""
        if self.excess is None:
            return np.asarray(self.rows != 0)
        return np.asarray((self.excess[..., 0] != -(self.rows << 20)) | (self.excess[..., 1] != 0))

    def _coarser(self, drop: int) -> NDArray[np.int64]:
        """Return the bucket of each bucket when `drop` bits fewer are kept."""
        bucket = np.arange(self.buckets)
        if self.scale != "probability":
            return np.asarray(bucket >> drop)
        top = self.buckets - 1  # p above 1/2 mirrors 1 - p below it
        return np.where(bucket <= top // 2, bucket >> drop, (top >> drop) - ((top - bucket) >> drop))

    def _off_coarser_grid(self, drop: int) -> NDArray[np.bool_]:
        """Return which buckets hold values that have bits to lose when `drop` bits fewer are kept."""
        bucket = np.arange(self.buckets)
        if self.scale == "probability":
            step = np.minimum(bucket, self.buckets - 1 - bucket)
            # the bottom bucket is on the grid for 0 alone: what moves into it from above is off
            return np.asarray((step & ((1 << drop) - 1) != 0) | ((step > 0) & (step >> drop == 0)))
        half = self.buckets // 2
        magnitude = np.where(bucket >= half, bucket - half, half - 1 - bucket)
        return np.asarray(magnitude & ((1 << drop) - 1) != 0)


def _float(bucket: NDArray[np.int64], base: int, shift: int) -> NDArray[np.float64]:
    """Return the smallest number of a bucket of leading bits; 0 for the bottom one."""
    words = np.where(bucket > 0, ((base >> shift) + bucket) << shift, 0)
    return np.minimum(words, 0x7F800000).astype(np.int32).view(np.float32).astype(np.float64)


def negative_weight(rows: Array, excess: Array) -> bool:
    """Whether rows + excess is below zero in some cell."""
    return bool(((excess[..., 0].astype(np.float64) / (1 << 20)) + rows < -1e-6).any())
