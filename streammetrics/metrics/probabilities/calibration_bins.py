"""Bins of scores, with the sum of the predictions p in each bin.

The sum is exact if the state counts rows by bin. If a bin is a union of histogram buckets, the sum is known only within
bounds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...numerics import elementary
from ...numerics.exact import UNIT, Ints, Mass, enclose, to_float
from ...statistics.bins import ScoreBins
from ...statistics.scores import ScoreHistogram

__all__ = [
    "SMALL",
    "Bin",
    "Binned",
    "find_cut_ranges",
    "find_equal_cuts",
    "read_bins",
    "read_buckets",
    "sum_exactly",
    "unite_buckets",
    "widen_for_quantization",
]

Floats = NDArray[np.float64]
Binned = ScoreBins | ScoreHistogram
# The first bucket of a bin is found by comparing sums of weights. If the relative difference of two float64 sums is
# smaller than this, exact integers are compared instead.
NEAR = 2.0**-50
# The products of weight and p are rounded to multiples of 2**-60. For the mean of p, this error matters (exceeds 2 ulp)
# only if the mean is below 1 / SMALL.
SMALL = 1 << 10


class Bin(NamedTuple):
    """A bin of scores.

    Parameters
    ----------
    weight : Fraction
        The number of rows, or their total weight.
    positives : Fraction
        The number of positives, or their total weight.
    low, predicted, high : Fraction
        The lower bound, estimate and upper bound of the sum over rows of the predicted probability p.
    """

    weight: Fraction
    positives: Fraction
    low: Fraction
    predicted: Fraction
    high: Fraction

    @property
    def is_exact(self) -> bool:
        """Whether the sum of p is known exactly."""
        return self.low is self.high or self.low == self.high

    @property
    def small(self) -> bool:
        """Whether the mean of p is so small that rounding weight * p to multiples of 2**-60 matters (see `SMALL`)."""
        # Integers are compared rather than fractions, because that is faster and there can be thousands of bins.
        (p, of), (w, unit) = self.predicted.as_integer_ratio(), self.weight.as_integer_ratio()
        return p * unit * SMALL < w * of

    def gap(self) -> Fraction:
        """Return the absolute difference between the predicted and observed numbers of positives (or their weights)."""
        return abs(self.predicted - self.positives)

    def gaps(self) -> tuple[Fraction, Fraction]:
        """Return the smallest and largest values of `gap` that the bounds on the sum of p allow."""
        if self.is_exact:
            return (gap := self.gap()), gap
        above, below = self.low - self.positives, self.positives - self.high
        return max(Fraction(0), above, below), max(abs(above), abs(below))

    def wider(self, off: Fraction) -> Bin:
        """Return a copy of the bin with bounds that allow for an additional error of `off` in the sum of p."""
        return self._replace(low=max(self.low - off, Fraction(0)), high=min(self.high + off, self.weight))

    def means(self) -> tuple[float, float]:
        """Return the smallest and largest possible means of p, which are NaN if the bin has no rows."""
        if self.is_exact:
            value: float = to_float(self.predicted, self.weight)
            return value, value
        return enclose(self.low / self.weight, self.high / self.weight)


def read_buckets(state: ScoreHistogram) -> tuple[Mass, Mass, Floats, Floats, Floats]:
    """Return five arrays: each bucket's weight and positives, and the lower bound, estimate and upper bound of p."""
    low, grid, high = _probabilities(state)
    masses, positives = state.masses, state.positives
    # As long as scores are exact, each score is a bucket of its own. Scores whose rows all have weight 0 are removed, so
    # that they do not become bin edges.
    if not state.has_buckets:
        some = masses.digits.any(axis=0)
        low, grid, high = low[some], grid[some], high[some]
        masses, positives = Mass(masses.digits[:, some]), Mass(positives.digits[:, some])
    return masses, positives, low, grid, high


def read_bins(state: ScoreBins) -> list[Bin]:
    """Return the bins of a state that counts rows by bin, with exact sums."""
    # For a state with one cell (slice), all bins are read together, which is faster if there are thousands of them.
    if state.rows.ndim == 2:
        unit, sums = state.unit, state.predicted_units()
        columns = zip(*state.masses(np.arange(state.n_bins)), sums, strict=True)
        return [
            Bin(Fraction(no + yes, unit), Fraction(yes, unit), p := Fraction(of_p, UNIT), p, p)
            for no, yes, of_p in columns
        ]
    bins = []
    for i in range(state.n_bins):
        positives, p = state.mass(1, i), state.predicted_sum(i)
        bins.append(Bin(state.mass(0, i) + positives, positives, p, p, p))
    return bins


def widen_for_quantization(bins: list[Bin], state: Binned) -> list[Bin]:
    """Return the bins with bounds that allow for the rounding of each product of weight and p to a multiple of 2**-60.

    Only bins with a small mean of p are changed. For the others, this error is less than the rounding error of p itself.
    """
    if not isinstance(state, ScoreBins):
        return bins
    rows = state.rows.sum(axis=0).tolist()
    return [b.wider(Fraction(n, UNIT)) if b.small else b for b, n in zip(bins, rows, strict=True)]


def _probabilities(state: ScoreHistogram) -> tuple[Floats, Floats, Floats]:
    """Return three arrays: the lower bound, estimate and upper bound of the probability p of each bucket.

    For logits, the bounds allow for the rounding error of the sigmoid.
    """
    low, grid, high = state.value_bounds()
    if state.scale == "probability":
        return low, grid, high
    low, grid, high = (elementary.sigmoid(np.clip(z, -800.0, 800.0)) for z in (low, grid, high))
    return low * (1 - 2.0**-50), grid, np.minimum(high * (1 + 2.0**-50), 1.0)


def find_equal_cuts(masses: Mass, n_bins: int) -> list[int]:
    """Return, for each bin of equal weight except the first, the index of its first bucket.

    `masses` contains the weights of the buckets. A bucket belongs to the bin that contains its median row. The position
    of this row is the weight before the bucket plus half the bucket's weight, as a share of the total weight. Bin i of
    n contains the positions from i/n to below (i + 1)/n.
    """
    # Sums in float64 leave only a few candidates for the first bucket of a bin. A binary search with exact integers
    # decides between them.
    first, last = find_cut_ranges(masses, n_bins, NEAR)
    before, total = masses.sums_before(), masses.total()

    def begins(i: int) -> int:
        low, high = int(first[i - 1]), int(last[i - 1])
        while low < high:
            k = (low + high) // 2
            middle = 2 * before.cell(k) + masses.cell(k)
            low, high = (low, k) if n_bins * middle >= 2 * total * i else (k + 1, high)
        return low

    bins: list[int] = first.tolist()
    for i in (np.flatnonzero(first < last) + 1).tolist():
        bins[i - 1] = begins(i)
    return bins


def find_cut_ranges(masses: Mass, n_bins: int, slack: float) -> tuple[Ints, Ints]:
    """Return the smallest and largest possible indexes of the first bucket of each bin of equal weight.

    The two indexes differ if a relative error of `slack` in the weights can change the first bucket. The first bin,
    which begins at bucket 0, is left out.
    """
    own = masses.to_floats()
    middles = np.cumsum(own) - own / 2
    shares = np.arange(1, n_bins) / n_bins * float(masses.total())
    # Each addition in the cumulative sum also has a rounding error.
    slack += len(own) * 2.0**-51
    return np.searchsorted(middles, shares * (1 - slack)), np.searchsorted(middles, shares * (1 + slack))


def unite_buckets(
    state: ScoreHistogram,
    masses: Mass,
    positives: Mass,
    cuts: Sequence[int],
    low: Floats,
    grid: Floats,
    high: Floats,
) -> list[Bin]:
    """Return bins that are unions of neighboring buckets.

    Bin i contains the buckets `cuts[i]` to `cuts[i + 1] - 1`. The parameters `masses`, `positives`, `low`, `grid` and
    `high` are the five arrays that `read_buckets` returns.
    """
    unit, at = UNIT if state.has_weights else 1, np.array(cuts)
    if state.is_exact:
        least = most = _sums(masses, grid, at)
    else:
        least, most = (
            masses.segment_dots(Mass.from_rows(_round_to_units(p, up)), at) * Fraction(1, UNIT)
            for p, up in ((low, False), (high, True))
        )
    columns = (x.tolist() for x in (masses.segment_sums(at), positives.segment_sums(at), least, most))
    bins = []
    for weight, positive, a, b in zip(*columns, strict=True):
        if unit != 1:
            a, b = a / unit, b / unit
        bins.append(Bin(Fraction(weight, unit), Fraction(positive, unit), a, a if a == b else (a + b) / 2, b))
    return bins


def _sums(masses: Mass, p: Floats, cuts: Ints) -> NDArray[Any]:
    """Return the exact sum of weight times probability for each bin, as an array of fractions.

    `p` is the probability of each bucket. Bin i contains the buckets `cuts[i]` to `cuts[i + 1] - 1`.
    """
    # Buckets are sorted by bin and exponent. All buckets with the same bin and exponent need only one integer dot product,
    # scaled by a power of two, and thus a single fraction rather than one for each bucket.
    mantissas, exponents = np.frexp(p)
    bins = np.repeat(np.arange(len(cuts) - 1), np.diff(cuts))
    order = np.lexsort([exponents, bins])
    bins, exponents = bins[order], exponents[order]
    fresh = np.flatnonzero((np.diff(bins, prepend=-1) != 0) | (np.diff(exponents, prepend=0) != 0))
    whole = Mass.from_rows((mantissas[order] * 2.0**53).astype(np.int64))
    found = masses[order].segment_dots(whole, np.append(fresh, len(order)))
    out = np.full(len(cuts) - 1, Fraction(0))
    for i, e, x in zip(bins[fresh].tolist(), exponents[fresh].tolist(), found.tolist(), strict=True):
        out[i] += x * Fraction(2) ** (e - 53)
    return out


def _round_to_units(p: Floats, up: bool) -> Ints:
    """Return probabilities as integers in units of 2**-60, rounded up if `up` is true, or down otherwise.

    Bucket edges on the probability scale are multiples of this unit, so rounding does not change them.
    """
    scaled = p * float(UNIT)
    whole = np.ceil(scaled) if up else np.floor(scaled)
    return whole.astype(np.int64)


def sum_exactly(parts: Iterable[Fraction]) -> Fraction:
    """Return the sum of fractions. For speed, the numerators of fractions with equal denominators are added first."""
    sums: dict[int, int] = {}
    for part in parts:
        top, bottom = part.as_integer_ratio()
        sums[bottom] = sums.get(bottom, 0) + top
    return sum((Fraction(top, bottom) for bottom, top in sums.items()), Fraction(0))
