"""Rank correlations of two columns, and the share of pairs of rows that the predictions put in the right order.

All are computed from one `JointHistogram`, a table that counts rows by target and prediction. For up to `limit` rows,
the table is exact. With more rows, it counts them in buckets, and the bounds allow for any order of the rows within a
bucket.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from ...collect.metric import Metric, no_weight_reason
from ...numerics.exact import Limits
from ...numerics.settings import setting
from ...reading.about import About
from ...reading.reading import OwnReading, Reading
from ...statistics.joint import JointHistogram
from ...statistics.pairs import Pairs

__all__ = ["XAUC", "KendallCorrelation", "RegressionAUC", "SpearmanCorrelation"]

Array = NDArray[Any]


def ranks(masses: Array) -> Array:
    """Return twice the ranks of values in ascending order, centered at 0; equal values share their mean rank.

    `masses` contains the number of rows, or their total weight, for each value. The factor 2 makes all ranks integers.
    """
    through = np.cumsum(masses)
    return 2 * through - masses - (through[-1] if len(through) else 0)


def variance(pairs: Pairs, side: int) -> tuple[int, int, int]:
    """Return the smallest, the estimated and the largest possible sum of squared ranks in one column.

    `side` selects the column: 0 for the targets (x), 1 for the predictions (y).
    """
    fine, table = pairs.fine[side], (pairs.by_x, pairs.by_y)[side]
    masses = fine.segment_sums(np.arange(fine.digits.shape[1] + 1))
    least = _total(masses * ranks(masses) ** 2)
    return (
        least,
        _total(table * ranks(table) ** 2),
        least + (0 if pairs.sharp[side] else _total(_most_within_buckets(pairs, masses))),
    )


def _most_within_buckets(pairs: Pairs, masses: Array) -> Array:
    """Return, for each bucket, how much larger the sum of squared ranks can be if the values in the bucket differ.

    For a bucket of n rows, the increase is at most n * (n**2 - 1) / 3, since `ranks` returns doubled ranks. The result
    is rounded up.
    """
    # If rows have weights below 1, a bucket can have more rows than its weight n, and the bound is n**3 / 3.
    cubes = masses**3 - (0 if pairs.weighted else masses)
    return -(-cubes // 3)


def covariance(pairs: Pairs) -> tuple[int, int]:
    """Estimate the sum over rows of (rank of x) * (rank of y) from the ranks of buckets; also return an error bound."""
    cells = pairs.mass.segment_sums(np.arange(len(pairs.x) + 1))
    a, b = ranks(pairs.by_x), ranks(pairs.by_y)
    found = _total(cells * a[pairs.x] * b[pairs.y])
    # The rank of a row is the rank of its bucket plus its rank within the bucket, which is unknown. The product of two
    # such ranks has four terms, and three of them are unknown. Two of the unknown terms are a rank within a bucket
    # times the rank of a bucket; `off` bounds their sums. The third is the product of two ranks within buckets; the
    # Cauchy-Schwarz inequality bounds its sum by the root of the product of the two entries of `spread`.
    off, spread = 0, [0, 0]
    for side, (own, other, near) in enumerate(((pairs.x, pairs.y, b), (pairs.y, pairs.x, a))):
        if not pairs.sure[side]:
            off += _sorted_within(own, other, cells, near)
            spread[side] = _total(_most_within_buckets(pairs, (pairs.by_x, pairs.by_y)[side]))
    return found, off + (math.isqrt(spread[0] * spread[1]) + 1 if all(spread) else 0)


def _sorted_within(own: Array, other: Array, cells: Array, near: Array) -> int:
    """Return the largest possible sum over rows of (rank within a bucket) * (bucket rank in the other column).

    A cell is a pair of buckets, one from each column. For each cell, `own` and `other` are the indices of its two
    buckets, and `cells` is its row count. `near` contains the rank of each bucket in the other column.
    """
    # The sum is largest if the rows within each bucket have the same order as in the other column, so sort them by that
    # column. The ranks within a bucket are doubled and centered at 0, as in `ranks`.
    order = np.lexsort((other, own))
    mass, value, at = cells[order], near[other[order]], own[order]
    first = np.flatnonzero(np.append(True, at[1:] != at[:-1])[: len(at)])
    through = np.cumsum(mass)
    begin = (through - mass)[first]
    size = np.add.reduceat(mass, first) if len(first) else mass
    each = np.diff(np.append(first, len(at)))
    within = 2 * (through - np.repeat(begin, each)) - mass - np.repeat(size, each)
    return _total(mass * within * value)


def _total(numbers: Array) -> int:
    return int(sum(numbers.tolist()))


# Rounding the weights changes a value by at most this many times the relative rounding error of a weight: 2 for the
# numerator, 2 for each of the two factors of the denominator, and a margin of 2.
SLIPS = 8
NO_PAIRS = "the weights amount to fewer than two rows, so there are no pairs"


class RankMetric(Metric[JointHistogram, float]):
    """Base class for metrics of the order of targets (x) and predictions (y), computed from counts of pairs of rows.

    Parameters
    ----------
    bits : int
        The resolution beyond `limit` rows: up to 2**(bits + 3) buckets of targets, and the same number of buckets of
        predictions.
    limit : int
        The number of rows up to which the value is exact. Beyond it, all rows are counted in buckets of targets and of
        predictions.
    memory_limit : int
        The maximum memory for rows and buckets, in bytes (4 GiB by default). An update that would exceed it raises
        MemoryLimitError, and none of its rows are counted.
    """

    about = About(
        best="high",
        value_range=(-1.0, 1.0),
        no_interval_reason=(
            "the standard error would need the pairs of each row with all others; Sharded(..., unit=) has an interval"
        ),
        cost=(
            "64 bytes per row up to `limit` rows, then 16 bytes per pair of buckets that contains rows; about "
            "100 ns per row"
        ),
        bound=(
            "exact for up to `limit` rows and for few distinct numbers; otherwise the range over all orders of rows "
            "inside a bucket"
        ),
    )

    bits: int = setting(default=7, low=1, high=11)
    limit: int = setting(default=1 << 14, low=0, high=1 << 24)
    memory_limit: int = setting(default=1 << 32, low=0, operational=True)

    def update(self, y_true: Any = None, y_pred: Any = None, /, **columns: Any) -> Self:
        """Count the rows of a batch.

        Parameters
        ----------
        y_true : array-like of shape (n,)
            Targets; or a mapping, data frame or Arrow table that contains the columns by name.
        y_pred : array-like of shape (n,)
            Predictions.
        **columns : array-like of shape (n,)
            `sample_weight`: 0, or between 2**-36 and 2**31. Targets and predictions can also be passed by name.

        Raises
        ------
        InvalidInputError
            A value is not finite, a nonzero value is not between 2**-400 and 2**400 in absolute value, or the columns
            differ in length. No rows are counted. The message names the column, the first invalid row and the number of
            invalid rows.
        MemoryLimitError
            The rows and buckets would need more than `memory_limit` bytes; no rows are counted.
        """
        return super().update(y_true, y_pred, **columns)

    def make_state(self) -> JointHistogram:
        return JointHistogram(bits=self.bits, limit=self.limit, memory_limit=self.memory_limit)

    def of(self, pairs: Pairs) -> Limits | None:
        """Return the value of the metric with its certified bounds, or None if the value is undefined."""
        raise NotImplementedError(f"{type(self).__name__} does not define of(); override of() to return the value")

    def slack(self, state: Any, limits: Limits, rounding: Fraction) -> Fraction:
        return SLIPS * rounding

    def read(self, state: JointHistogram) -> Reading:
        return OfPairs(self, state)

    def reason(self, state: JointHistogram) -> str | None:
        alike = "predictions" if state.pairs.differing_pairs(0)[2] else "targets"
        return no_weight_reason(state) or f"the {alike} are all alike"


class OfPairs(OwnReading):
    """The value and bounds of a `RankMetric`, clipped to the range of the metric."""

    def _raw_value(self) -> Limits | None:
        pairs: Pairs = self.state.pairs
        found = self.metric.of(pairs) if pairs.total else None
        if found is None:
            return None
        least, most = map(Fraction, self.value_range)
        low, high = max(found.low, least), min(found.high, most)
        # The lower bound can exceed the upper one if weights are below 1, or if a state was decoded from manipulated
        # bytes. Fall back to the range of the metric.
        if low > high:
            low, high = least, most
        return Limits(low, min(max(found.value, low), high), high)

    def _reason(self) -> str | None:
        return super()._reason() if self.limits is None else None


def quotient(top: int, low: int, here: int, high: int, unknown: int = 0, estimate: Fraction | None = None) -> Limits:
    """Return `top` / sqrt(s) with bounds, where s is estimated as `here` and lies between `low` and `high`.

    The true numerator lies between `top` - `unknown` and `top` + `unknown`. The value is computed from `estimate` rather
    than `top`, unless `estimate` is None.
    """

    def root(number: int | Fraction, square: int) -> Limits:
        found = Limits.root(Fraction(number * number) / square) if square else Limits(*[Fraction(2 * bool(number))] * 3)
        return -found if number < 0 else found

    # The smallest quotient has the smallest numerator. If it is negative, divide it by sqrt(low); otherwise, by
    # sqrt(high). The largest quotient has the largest numerator. If it is negative, divide it by sqrt(high);
    # otherwise, by sqrt(low).
    least, most = top - unknown, top + unknown
    value = root(top if estimate is None else estimate, here or high).value
    return Limits(root(least, low if least < 0 else high).low, value, root(most, high if most < 0 else low).high)


class SpearmanCorrelation(RankMetric, tag="spearman_correlation"):
    """Spearman's rank correlation: how close the relation between targets and predictions is to monotone, in [-1, 1].

    Formula: Pearson's correlation of the ranks of y and p, where equal values share their mean rank.

    Notes
    -----
    The bounds allow for any order of the rows within each bucket of targets and of predictions. The value is exact as
    long as each bucket contains only one value. Bucket widths adapt to the data: with `bits=7`, the bounds are within
    about 0.01 of the value, while the true error is less than 0.001. A row of weight k counts as k equal rows. The
    state takes 64 bytes per row up to `limit`, and beyond it 16 bytes for each pair of a target bucket and a prediction
    bucket that contains rows. Processing a row takes about 100 ns. The definition is that of scipy's `spearmanr`. The
    value is undefined if all targets or all predictions are equal.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.SpearmanCorrelation().update([1, 2, 3, 4], [10, 30, 20, 400]).compute()
    0.8
    """

    about = About(formula="Pearson's correlation of the ranks of y and p")

    def of(self, pairs: Pairs) -> Limits | None:
        x, y = variance(pairs, 0), variance(pairs, 1)
        if not x[2] or not y[2]:
            return None
        top, unknown = covariance(pairs)
        return quotient(top, x[0] * y[0], x[1] * y[1], x[2] * y[2], unknown)


class KendallCorrelation(RankMetric, tag="kendall_correlation"):
    """Kendall's tau: the share of pairs that targets and predictions order alike, minus the share ordered oppositely.

    Formula: (C - D) / sqrt((P - T_y) * (P - T_p)). Of P pairs of rows, C are in the same order by target and by
    prediction, D are in opposite orders, T_y have equal targets, and T_p have equal predictions. Variant "a" divides by
    P; "c" divides by n**2 * (m - 1) / (2 * m), where n is the number of rows, and m is the number of different targets
    or of different predictions, whichever is smaller.

    Parameters
    ----------
    variant : {"b", "a", "c"}
        The denominator: "b" corrects for ties, "a" does not, and "c" is for non-square tables.

    Notes
    -----
    The bounds allow for any order of pairs of rows within one bucket of targets or of predictions. With `bits=7`, they
    are within about 0.02 of the value, while the true error is less than 0.001. The state, the cost and the meaning of
    weights are the same as for `SpearmanCorrelation`. The definition is that of scipy's `kendalltau`. The value is
    undefined for fewer than two rows; "b" and "c" are also undefined if all targets or all predictions are equal.

    Examples
    --------
    >>> import streammetrics as sm
    >>> round(sm.KendallCorrelation().update([1, 2, 3, 4], [10, 30, 20, 400]).compute(), 6)
    0.666667
    """

    about = About(
        formula=(
            "(C - D) / sqrt((P - T_y) (P - T_p)), where of P pairs, C are concordant, D discordant, T_y tied in y, and "
            "T_p tied in p"
        )
    )

    variant: str = setting(default="b", choices=("a", "b", "c"))

    @property
    def name(self) -> str:
        return "kendall_correlation" + ("" if self.variant == "b" else f"_{self.variant}")

    def of(self, pairs: Pairs) -> Limits | None:
        top, x, y = pairs.concordant - pairs.discordant, pairs.differing_pairs(0), pairs.differing_pairs(1)
        whole = pairs.total * pairs.total
        rest = estimate_unresolved(pairs)
        likely = top + rest.alike - rest.opposite
        if self.variant == "a":
            return _share(
                top - pairs.undetermined_pairs, likely, top + pairs.undetermined_pairs, whole - pairs.self_pairs
            )
        if x[2] <= 0 or y[2] <= 0:
            return None
        if self.variant == "b":
            # Pair counts can be negative in a state decoded from manipulated bytes; replace negative counts with 0.
            least = max(x[0], 0) * max(y[0], 0)
            return quotient(top, least, least, x[2] * y[2], pairs.undetermined_pairs, likely)
        m = max(min(pairs.distinct_values()), 2)
        # `m` is at most the true number of values M, since a bucket may contain several values. So the true factor
        # M / (M - 1) lies between 1 and m / (m - 1), and the two factors differ by at most 1 / (m - 1). The denominator
        # below contains m - 1, so the numerator changes by at most |C - D|, which `far` bounds.
        far = max(abs(top - pairs.undetermined_pairs), abs(top + pairs.undetermined_pairs))
        slack = 0 if pairs.sharp.all() else far
        return _share(
            m * (top - pairs.undetermined_pairs) - slack,
            m * likely,
            m * (top + pairs.undetermined_pairs) + slack,
            whole * (m - 1),
        )

    def reason(self, state: JointHistogram) -> str | None:
        return no_weight_reason(state) or NO_PAIRS if self.variant == "a" else super().reason(state)


class UnresolvedPairs(NamedTuple):
    """Estimated numbers of concordant, discordant and equal pairs, among the pairs of rows whose order is unknown.

    The order of two rows is unknown if they share a bucket.

    Parameters
    ----------
    alike, opposite : Fraction
        The number of pairs in the same order by target and by prediction, and of pairs in opposite orders.
    equal : Fraction
        The number of pairs with equal targets and equal predictions.
    """

    alike: Fraction
    opposite: Fraction
    equal: Fraction


def estimate_unresolved(pairs: Pairs) -> UnresolvedPairs:
    """Estimate how many of the pairs whose order is unknown are concordant, discordant, or equal in both columns."""
    # The order of two rows is unresolved if they share a bucket of targets (x), of predictions (y), or of both. `a` is
    # the estimated share of pairs with different targets among the pairs that share a bucket of targets, and `b` is the
    # same for predictions. For the pairs that differ, `lean_x` (in a bucket of targets) and `lean_y` (in a bucket of
    # predictions) are the share of pairs in the same order minus the share in opposite orders.
    x, y, both = pairs.tied_pairs
    (a, b), (lean_x, lean_y) = pairs.differing_share, pairs.local_order
    cell = max(both - pairs.self_pairs, 0)
    parts = ((a * (x - both), lean_x), (b * (y - both), lean_y), (a * b * cell, (lean_x + lean_y) / 2))
    alike = sum((n * (1 + lean) / 2 for n, lean in parts), Fraction(0))
    opposite = sum((n * (1 - lean) / 2 for n, lean in parts), Fraction(0))
    return UnresolvedPairs(alike, opposite, (1 - a) * (1 - b) * cell)


def _share(low: int, value: int | Fraction, high: int, divisor: int) -> Limits | None:
    return Limits(*(Fraction(v, divisor) for v in (low, value, high))) if divisor > 0 else None


class XAUC(RankMetric, tag="xauc"):
    """XAUC: the share of all pairs of rows that the predictions put in the order of their targets.

    Formula: (C + B) / P. Of P pairs of rows, C are in the same order by target and by prediction, and B have equal
    targets and equal predictions.

    Notes
    -----
    The bounds, the state and the cost are the same as for `KendallCorrelation`. Source: Zhan et al., "Deconfounding
    duration bias in watch-time prediction" (KDD 2022). The definition is that of torchrec's `XAUC`, but torchrec compares
    only rows of the same batch, so its value depends on the batches. Here, a row of weight k counts as k equal rows; in
    torchrec, the weight of a pair is the product of the weights of its rows. The value is undefined for fewer than two
    rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> round(sm.XAUC().update([1, 2, 3, 3], [10, 30, 20, 20]).compute(), 6)
    0.666667
    """

    about = About(
        value_range=(0.0, 1.0),
        extensive=True,
        formula="(C + B) / P, where of P pairs, C are concordant, and B are tied in y and in p",
    )

    def of(self, pairs: Pairs) -> Limits | None:
        both, certain, sure = pairs.tied_pairs[2], pairs.concordant, bool(pairs.sure.all())
        # If each cell (pair of buckets) contains a single target and a single prediction, pairs of rows in one cell are
        # equal in both columns. Otherwise their order is unknown, like the order of pairs in one bucket of targets or
        # of predictions.
        equal = max(both - pairs.self_pairs, 0)
        low = certain + (equal if sure else 0)
        high = low + pairs.half_tied_pairs + (0 if sure else both - pairs.min_self_pairs)
        rest = estimate_unresolved(pairs)
        value = certain + rest.alike + rest.equal
        return _share(low, value, high, pairs.total * pairs.total - pairs.self_pairs)

    def reason(self, state: JointHistogram) -> str | None:
        return no_weight_reason(state) or NO_PAIRS


class RegressionAUC(RankMetric, tag="regression_auc"):
    """Regression AUC: the share of pairs with different targets that predictions order correctly; ties count as half.

    Formula: (C + T / 2) / (P - T_y). Of P pairs of rows, C are in the same order by target and by prediction, T have
    equal predictions and different targets, and T_y have equal targets. With `pairs="all"`: 1 - D / P, where D pairs
    are in opposite orders.

    Parameters
    ----------
    pairs : {"different", "all"}
        The pairs that count. "different": pairs with different targets, which gives the concordance index (and the AUC if
        targets are 0 and 1). "all": all pairs, where ties count as correct (torchrec's `RAUC`).

    Notes
    -----
    The bounds, the state, the cost and the meaning of weights are the same as for `XAUC`. torchrec's `RAUC` has no
    weights, and compares only rows within a window of 100. Source of the concordance index: Harrell et al. (1982), without
    censoring. The value is undefined if all targets are equal; with `pairs="all"`, for fewer than two rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> auc = sm.RegressionAUC().update([1, 2, 3, 3], [10, 30, 20, 20])
    >>> auc.compute(), round(sm.RegressionAUC(pairs="all").reading(auc.state).value, 6)
    (0.6, 0.666667)
    """

    about = About(
        value_range=(0.0, 1.0),
        formula="(C + T / 2) / (P - T_y), where of P pairs, C are concordant, T tied in p only, and T_y tied in y",
    )

    pairs: str = setting(default="different", choices=("different", "all"))

    @property
    def name(self) -> str:
        return "regression_auc" + ("" if self.pairs == "different" else "_all")

    def of(self, pairs: Pairs) -> Limits | None:
        whole, unknown = pairs.total * pairs.total, pairs.undetermined_pairs
        # In the worst case, all pairs of unknown order are discordant; in the best case, none are.
        if self.pairs == "all":
            right = whole - pairs.self_pairs - pairs.discordant
            value = right - estimate_unresolved(pairs).opposite
            return _share(right - unknown, value, right, whole - pairs.self_pairs)
        some, here, most = pairs.differing_pairs(0)
        if not most:
            return None
        _, y, both = pairs.tied_pairs
        # A pair of rows in the same prediction bucket, but in different target buckets, counts as 1/2 if the two
        # predictions are known to be equal, and otherwise as a number from 0 to 1. Two rows in the same target bucket
        # may also have different targets; such a pair counts as at most 1.
        ties, more = y - both, most - here
        half = Fraction(ties, 2)
        low = pairs.concordant + (half if pairs.sure[1] else 0)
        high = pairs.concordant + (half if pairs.sure[1] else ties) + more
        # `known` counts the pairs whose targets are known to differ, because they are in different buckets.
        known = max(some, here)
        lean = (known - here) * pairs.local_order[0] / 2 + ties * pairs.differing_share[1] * pairs.local_order[1] / 2
        value = (pairs.concordant + half + Fraction(known - here, 2) + lean) / known if known else Fraction(1, 2)
        return Limits(Fraction(low) / most, value, Fraction(high) / most)

    def reason(self, state: JointHistogram) -> str | None:
        return no_weight_reason(state) or (NO_PAIRS if self.pairs == "all" else "all targets are equal")
