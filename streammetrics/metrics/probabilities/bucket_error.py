"""The bucket error of the Paddle library: a calibration error over groups of neighboring buckets with enough rows."""

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
    """Bucket error: the mean relative calibration error of groups of neighboring buckets that have enough rows.

    Formula: (sum over groups g of W_g * |CTR_g / p_g - 1|) / (sum of W_g), where CTR_g is the share of positives. There
    are n buckets, and bucket i contains the scores from i/n to (i + 1)/n. Buckets are added to a group, in ascending
    order, until sqrt((1 - p_g) / (p_g * W_g)) < 0.05. Here p_g is the mean of i/n over the rows of the group, and W_g
    is their weight. A group that becomes wider than 0.01 before it meets this condition is left out.

    Parameters
    ----------
    n_bins : int
        The number of equal-width buckets. Paddle's table has 1,000,000.
    scale : {"probability", "logit"}
        Whether the scores are probabilities or logits, which are converted by the sigmoid.

    Notes
    -----
    The definition matches Paddle's `BasicAucCalculator::calculate_bucket_error`. Here, the conditions that involve 0.05
    and 0.01 are tested with exact integers; in Paddle, a group may end one bucket later because of rounding. Counts are
    exact, and the value is rounded once.

    The state takes 16 bytes per bucket (16 MB, the same as in Paddle); an update takes 4 ns per row. `compute()` takes 1
    to 2 seconds if a million buckets contain rows. The value is undefined if no group is large enough, whereas Paddle
    returns 0.

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
        formula=(
            "weighted mean over groups g of |CTR_g / p_g - 1|, for click-through rate CTR_g and mean lower bucket edge "
            "p_g"
        ),
        cost="16 bytes per bucket, 16 MB in total; 4 ns per row",
        bound="exact: the value is computed from counts and rounded once",
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
        return Limits.quotients(errors, Fraction(sum(weight for weight, *_ in groups))).to_float()

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
    """Return the bounds on `value`, or 0 and infinity if the rounding of weights could have changed the groups."""
    # The groups are formed again with a slightly smaller and a slightly larger minimum weight. If any group ends at a
    # different bucket, the rounding of weights could have changed the groups.
    slip = 8 * state.weight_rounding
    if not slip or value != value:
        return value, value
    ends = ((end for *_, end in _groups(state, tilt)) for tilt in (-slip, Fraction(0), slip))
    if any(len(set(some)) > 1 for some in itertools.zip_longest(*ends)):
        return 0.0, math.inf
    reach = float(slip) * (value + 1)
    return max(0.0, value - reach), value + reach


def _groups(state: ScoreBins, tilt: Fraction = Fraction(0)) -> Iterator[tuple[int, int, int, int]]:
    """Form groups of neighboring buckets, in ascending order, and yield the groups that have enough rows.

    Each item is a tuple: the weight of the group, its positives, the sum over its rows of their bucket indexes, and the
    index of its last bucket. To test how rounded weights affect the groups, the weight that a group needs is divided by
    1 + `tilt`.
    """
    n, (more, of) = state.n_bins, (1 + tilt).as_integer_ratio()
    needed = 400 * state.unit * of
    # Buckets i and j are within 0.01 of each other if i - j <= n / 100.
    span = n // 100
    filled = np.flatnonzero(state.rows.any(axis=0))
    start = weight = positives = places = 0
    for i, c, a in zip(filled.tolist(), *state.masses(filled), strict=True):
        # A group that would be too wide is dropped. As in Paddle, the next group starts at the first bucket after it,
        # even if that bucket is empty. If many consecutive buckets are empty, several groups are dropped at once.
        if i - start > span:
            start += (i - start) // (span + 1) * (span + 1)
            weight = positives = places = 0
        weight, positives, places = weight + a + c, positives + a, places + i * (a + c)
        # The group has enough rows if (1 - p) / (p * W) < 0.05**2. Here p is places / (n * weight), and W is weight /
        # unit. Both sides are multiplied by the denominators, so that all numbers are integers.
        if needed * (n * weight - places) < places * weight * more:
            yield weight, positives, places, i
            start = i + 1
            weight = positives = places = 0
