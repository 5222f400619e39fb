"""Paddle's bucket error: the calibration error of groups of buckets that have enough rows."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from ...collect.metric import ScoredLabels
from ...numerics.exact import Limits
from ...numerics.settings import setting
from ...reading.about import About
from ...reading.reading import NAN, Reading
from ...statistics.bins import ScoreBins
from .calibration import CalibrationError

__all__ = ["BucketError"]


class BucketError(ScoredLabels[ScoreBins, float], tag="bucket_error"):
    """Bucket error: the relative calibration error in groups of buckets just wide enough to be trusted.

    Formula: sum over groups of W_g |CTR_g / p_g - 1| / sum of W_g. Buckets i/n, ascending, are joined until
    sqrt((1 - p_g) / (p_g W_g)) < 0.05, p_g the mean of i/n; a group that grows wider than 0.01 before is left out.

    Parameters
    ----------
    n_bins : int
        Buckets of equal width; Paddle's table has 1,000,000.
    scale : {"probability", "logit"}
        A logit is turned into the probability first.
    on_invalid : {"raise", "drop"}
        Whether a bad row raises, or is left out and counted.

    Notes
    -----
    Definition as Paddle's `BasicAucCalculator::calculate_bucket_error`, both limits decided in exact integers, so that
    Paddle's rounding may close a group one bucket later. Exact counts, rounded once. 16 bytes a bucket: 16 MB, as there;
    4 ns a row; a second or two to compute with a million filled. Undefined, where Paddle says 0, if no group is large
    enough.

    Examples
    --------
    >>> import numpy as np
    >>> import streammetrics as sm
    >>> y = np.arange(8000) % 4 == 0
    >>> sm.BucketError().update(y, np.full(8000, 0.5)).compute()
    0.5
    """

    about = About(
        best="low",
        no_interval_reason=CalibrationError.about.no_interval_reason,
        formula="sum over groups of W_g |CTR_g / p_g - 1| / sum of W_g",
        cost="16 bytes a bucket: 16 MB; 4 ns a row",
        bound="exact: counts, rounded once",
        example={"n_bins": 1000},
    )

    n_bins: int = setting(default=1_000_000, low=1, high=1 << 24)
    scale: str = setting(default="probability", choices=("probability", "logit"))

    def make_state(self) -> ScoreBins:
        return ScoreBins(n_bins=self.n_bins, scale=self.scale, sums=False)

    def of(self, state: ScoreBins) -> float:
        n, groups = state.n_bins, list(_groups(state))
        if not groups:
            return NAN
        errors = [(weight * abs(positives * n - places), places) for weight, positives, places, _ in groups]
        return Limits.quotients(errors, Fraction(sum(weight for weight, *_ in groups))).rounded()

    def read(self, state: ScoreBins) -> Reading:
        found = super().read(state)
        return found.having(bounds=lambda: _bounds_of_groups(state, found.value))

    def reason(self, state: ScoreBins) -> str | None:
        if not state.facts()["rows"]:
            return "no rows"
        return (
            None if any(_groups(state)) else "no group of buckets within 0.01 holds enough rows for an error below 5 %"
        )


def _bounds_of_groups(state: ScoreBins, value: float) -> tuple[float, float]:
    """Return the bounds of a value: anything is possible if weights, before they were rounded, may make other groups."""
    slip = 8 * state.slip
    if not slip or value != value:
        return value, value
    ends = ((end for *_, end in _groups(state, tilt)) for tilt in (-slip, Fraction(0), slip))
    if any(len(set(some)) > 1 for some in itertools.zip_longest(*ends)):
        return 0.0, math.inf
    reach = float(slip) * (value + 1)
    return max(0.0, value - reach), value + reach


def _groups(state: ScoreBins, tilt: Fraction = Fraction(0)) -> Iterator[tuple[int, int, int, int]]:
    """Yield weight, positives, sum of bucket numbers and last bucket of each group that is large enough, ascending.

    With `tilt` groups are large enough that lack, or have more than, such a share.
    """
    n, (more, of) = state.n_bins, (1 + tilt).as_integer_ratio()
    needed = 400 * state.unit * of
    span = n // 100  # buckets i and j are within 0.01 if i - j <= n / 100
    filled = np.flatnonzero(state.rows.any(axis=0))
    start = weight = positives = places = 0
    for i, c, a in zip(filled.tolist(), *state.masses(filled), strict=True):
        if i - start > span:  # a group that is too wide gives way to one at the first bucket beyond it, empty or not
            start += (i - start) // (span + 1) * (span + 1)
            weight = positives = places = 0
        weight, positives, places = weight + a + c, positives + a, places + i * (a + c)
        # (1 - p) / (p W) < 0.05**2, with p = places / (n weight) and W = weight / unit
        if needed * (n * weight - places) < places * weight * more:
            yield weight, positives, places, i
            start = i + 1
            weight = positives = places = 0
