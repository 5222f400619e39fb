"""Statistics of equal-width score bins: the row counts by label and the sum of the scores in every bin.

Reliability diagrams and calibration errors are computed from these statistics.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..batch.kinds import Need, label, score, weight
from ..errors import StateFormatError
from ..numerics.array_rows import row_sums
from ..numerics.exact import FRACTION_BITS, LOW_BITS, UNIT, fixed_to_int, to_python_int, units_to_fraction
from ..numerics.settings import setting
from ..state.consistency import read_row_weight
from ..state.declare import Flat
from ..state.state import State
from .step import NOTHING, Like, Step

__all__ = ["ScoreBins"]


class ScoreBins(State, tag="score_bins"):
    """The numbers of negatives and positives, and the exact sum of the scores, in each of n bins of equal width.

    Parameters
    ----------
    n_bins : int
        Bin i contains the rows with i/n <= p < (i + 1)/n, where p is the score; the last bin also contains p = 1. The
        comparison is exact, without rounding of i/n.
    scale : {"probability", "logit"}
        The scale of the score; a logit is first converted to a probability, with an error of at most 3 ulp.
    sums : bool
        Whether the state keeps the sum of the scores in each bin.

    Notes
    -----
    The product of the weight and the score of each row is rounded to a multiple of 2**-60. The sums of these products
    are therefore exact integers. A bin takes 32 bytes, or 16 bytes if the state keeps no sums of scores.
    """

    n_bins: int = setting(default=15, low=1, high=1 << 24)
    scale: str = setting(default="probability", choices=("probability", "logit"))
    sums: bool = setting(default=True)

    rows = Flat(2, "n_bins")
    excess = Flat(2, "n_bins", form="fixed", excess_of="rows")
    scores = Flat("summed_bins", form="fixed")

    @property
    def summed_bins(self) -> int:
        """The number of bins that keep a sum of scores: `n_bins`, or 0 if the state keeps none."""
        return self.n_bins if self.sums else 0

    def needs(self) -> tuple[Need, ...]:
        return label(), score(scale=self.scale), weight()

    def steps(self, like: Like) -> Iterable[Step]:
        own = type(self)
        how = self.scale == "logit", self.n_bins
        into = own.rows, own.excess if like.has_weights else NOTHING, own.scores
        return [Step("score_bins:count_bins", "y_true", "y_score", "sample_weight", "at", *how, *into, checks=True)]

    def check(self) -> None:
        scores = self.read_cells_named("scores")
        if self.sums and read_row_weight(self, "rows").sum(-2).is_exceeded_by(scores, 1):
            raise StateFormatError(
                f"the state is corrupt: a sum in {type(self).__name__}.scores is impossible for the weight of its rows"
            )

    @property
    def positive_counts(self) -> NDArray[np.int64]:
        return row_sums(self.read_cells_named("rows")[..., 1, :])

    def facts(self) -> dict[str, Any]:
        extra = 0 if self.excess is None else sum(fixed_to_int(np.moveaxis(self.excess, -1, 0)).ravel().tolist())
        return {
            "rows": int(self.rows.sum()),
            "positives": int(self.rows[1].sum()),
            "weight": int(self.rows.sum()) + Fraction(extra, UNIT),
        }

    def support(self) -> Fraction:
        """Return the total weight of the positive rows."""
        return Fraction(sum(self.masses(np.arange(self.n_bins))[1]), self.unit)

    @property
    def can_vectorize(self) -> bool:
        return True

    def mass(self, label: int, i: int) -> Any:
        """Return the exact total weight of the rows with this label in bin `i`."""
        units = to_python_int(self.rows[label, i]) << FRACTION_BITS
        return units_to_fraction(units if self.excess is None else units + fixed_to_int(self.excess[label, i]))

    @property
    def unit(self) -> int:
        """The integer that represents a weight of 1 in `masses`: 1, or 2**60 if rows have weights."""
        return 1 if self.excess is None else UNIT

    def masses(self, bins: NDArray[np.int64]) -> tuple[list[int], list[int]]:
        """Return the total weights of the negatives and of the positives in each of `bins`, in units of 1 / `unit`."""
        rows = self.rows[:, bins].tolist()
        if self.excess is not None:
            extra = self.excess[:, bins].tolist()
            # `excess` contains sums of (weight - 1). Each sum is stored as two integers, which represent
            # high * 2**-20 + low * 2**-60.
            rows = [
                [r * UNIT + (high << LOW_BITS) + low for r, (high, low) in zip(*pair, strict=True)]
                for pair in zip(rows, extra, strict=True)
            ]
        return rows[0], rows[1]

    def predicted_units(self) -> list[int]:
        """Return the weighted sum of the scores in each bin, as an integer in units of 2**-60."""
        return [(high << LOW_BITS) + low for high, low in self.scores.tolist()]

    def predicted_sum(self, i: int) -> Any:
        """Return the exact sum of the weighted scores in bin `i`; each of them was rounded when it was counted."""
        return units_to_fraction(fixed_to_int(self.scores[i]))
