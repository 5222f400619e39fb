"""Bins of equal width: rows by label and the sum of the scores in each, enough for a reliability diagram."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..batch.kinds import Need, label, score, weight
from ..errors import StateFormatError
from ..numerics.exact import FRACTION_BITS, LOW_BITS, UNIT, fixed_to_int, of_units, whole
from ..numerics.rows import row_sums
from ..numerics.settings import setting
from ..state.consistency import weight_of
from ..state.declare import Flat
from ..state.state import State
from .step import NOTHING, Like, Step

__all__ = ["ScoreBins"]


class ScoreBins(State, tag="score_bins"):
    """Rows of negatives and positives, and the exact sum of p, in each of n bins of equal width.

    Parameters
    ----------
    n_bins : int
        Bin i holds i/n <= p < (i + 1)/n, and the last one 1: decided exactly, whatever the float.
    scale : {"probability", "logit"}
        What the score is; a logit is turned into the probability (within 3 ulp) first.
    sums : bool
        Whether the scores in each bin are summed.

    Notes
    -----
    Each w p is a float64, rounded to a multiple of 2**-60; sums are integers. 32 bytes a bin, 16 without sums.
    """

    n_bins: int = setting(default=15, low=1, high=1 << 24)
    scale: str = setting(default="probability", choices=("probability", "logit"))
    sums: bool = setting(default=True)

    rows = Flat(2, "n_bins")
    excess = Flat(2, "n_bins", form="fixed", beside="rows")
    scores = Flat("summed", form="fixed")

    @property
    def summed(self) -> int:
        """How many bins have a sum."""
        return self.n_bins if self.sums else 0

    def needs(self) -> tuple[Need, ...]:
        return label(), score(scale=self.scale), weight()

    def steps(self, like: Like) -> Iterable[Step]:
        own = type(self)
        how = self.scale == "logit", self.n_bins
        into = own.rows, own.excess if like.weighted else NOTHING, own.scores
        return [Step("bins:count", "y_true", "y_score", "sample_weight", "at", *how, *into, checks=True)]

    def check(self) -> None:
        scores = self.flat("scores")
        if self.sums and weight_of(self, "rows").sum(-2).fall_short(scores, 1):
            raise StateFormatError(f"{type(self).__name__}.scores holds a sum that rows of this weight cannot have")

    @property
    def positives_seen(self) -> NDArray[np.int64]:
        return row_sums(self.flat("rows")[..., 1, :])

    def facts(self) -> dict[str, Any]:
        extra = 0 if self.excess is None else sum(fixed_to_int(np.moveaxis(self.excess, -1, 0)).ravel().tolist())
        return {
            "rows": int(self.rows.sum()),
            "positives": int(self.rows[1].sum()),
            "weight": int(self.rows.sum()) + Fraction(extra, UNIT),
        }

    def support(self) -> Fraction:
        """What the positives weigh."""
        return Fraction(sum(self.masses(np.arange(self.n_bins))[1]), self.unit)

    @property
    def stacks(self) -> bool:
        return True

    def mass(self, label: int, i: int) -> Any:
        """Rows of one label, or their weight, in a bin; exact."""
        units = whole(self.rows[label, i]) << FRACTION_BITS
        return of_units(units if self.excess is None else units + fixed_to_int(self.excess[label, i]))

    @property
    def unit(self) -> int:
        """What a row counts in `masses`: 1, or 2**60 where rows are weighted."""
        return 1 if self.excess is None else UNIT

    def masses(self, of: NDArray[np.int64]) -> tuple[list[int], list[int]]:
        """Rows, or weight in units of 2**-60, of negatives and of positives in these bins."""
        rows = self.rows[:, of].tolist()
        if self.excess is not None:
            extra = self.excess[:, of].tolist()
            rows = [
                [r * UNIT + (high << LOW_BITS) + low for r, (high, low) in zip(*pair, strict=True)]
                for pair in zip(rows, extra, strict=True)
            ]
        return rows[0], rows[1]

    def predicted_units(self) -> list[int]:
        """The weighted sums of p of all bins, in units of 2**-60."""
        return [(high << LOW_BITS) + low for high, low in self.scores.tolist()]

    def predicted(self, i: int) -> Any:
        """The weighted sum of p in a bin; exact over the rounded terms."""
        return of_units(fixed_to_int(self.scores[i]))
