"""Orders of two numbers: correlations of ranks, and the share of pairs of rows that predictions put in the right order.

All read one `JointHistogram`: exact within a limit of rows; beyond, what rows of one bucket may do bounds the value.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from ...collect.metric import Metric, nothing_counted
from ...numerics.exact import Limits
from ...numerics.settings import setting
from ...reading.about import About
from ...reading.reading import OwnReading, Reading
from ...statistics.joint import JointHistogram
from ...statistics.pairs import Pairs

__all__ = ["XAUC", "KendallCorrelation", "RegressionAUC", "SpearmanCorrelation"]

Array = NDArray[Any]


def ranks(masses: Array) -> Array:
    """The middle of the ranks of each of some values in ascending order: Python's integers."""
    through = np.cumsum(masses)
    return 2 * through - masses - (through[-1] if len(through) else 0)


def variance(pairs: Pairs, side: int) -> tuple[int, int, int]:
    """The sum of the squares of the ranks of x (0), or y (1): at least, by the table, and at most."""
    fine, table = pairs.fine[side], (pairs.by_x, pairs.by_y)[side]
    masses = fine.totals(np.arange(fine.digits.shape[1] + 1))
    least = _total(masses * ranks(masses) ** 2)
    return (
        least,
        _total(table * ranks(table) ** 2),
        least + (0 if pairs.sharp[side] else _total(_within(pairs, masses))),
    )


def _within(pairs: Pairs, masses: Array) -> Array:
    """What the ranks of each bucket have at most beyond its middle: n (n**2 - 1) / 3, for rows of different values."""
    cubes = masses**3 - (0 if pairs.weighted else masses)
    return -(-cubes // 3)


def covariance(pairs: Pairs) -> tuple[int, int]:
    """The sum of the products of ranks, by the table, and how far it can be off."""
    cells = pairs.mass.totals(np.arange(len(pairs.x) + 1))
    a, b = ranks(pairs.by_x), ranks(pairs.by_y)
    found = _total(cells * a[pairs.x] * b[pairs.y])
    off, spread = 0, [0, 0]
    for side, (own, other, near) in enumerate(((pairs.x, pairs.y, b), (pairs.y, pairs.x, a))):
        if not pairs.sure[side]:
            off += _sorted_within(own, other, cells, near)
            spread[side] = _total(_within(pairs, (pairs.by_x, pairs.by_y)[side]))
    return found, off + (math.isqrt(spread[0] * spread[1]) + 1 if all(spread) else 0)


def _sorted_within(own: Array, other: Array, cells: Array, near: Array) -> int:
    """The sum of products of ranks within buckets and ranks of the others, if these give the order within a bucket."""
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


SLIPS = 8  # what rounded weights can move at most: two in each of a numerator and two divisors, and some room
NO_PAIRS = "weights count rows, of which there are no two"


class RankMetric(Metric[JointHistogram, float]):
    """A metric of the order of targets (x) and predictions (y): `of` is of the pairs of rows."""

    about = About(
        best="high",
        value_range=(-1.0, 1.0),
        no_interval_reason="its standard error asks for what each row does to all others: Sharded(..., unit=) has one",
        cost="64 bytes a row up to the limit; beyond 16 bytes a bucket of both that holds rows; some 100 ns a row",
        bound="exact within the limit, and for few different numbers; else what rows of one bucket may do",
    )

    bits: int = setting(default=7, low=1, high=11)
    limit: int = setting(default=1 << 14, low=0, high=1 << 24)
    memory_limit: int = setting(default=1 << 32, low=0, operational=True)

    def update(self, y_true: Any = None, y_pred: Any = None, /, **columns: Any) -> Self:
        """Count a batch.

        Parameters
        ----------
        y_true : array-like of shape (n,)
            Targets. Or a mapping, data frame or Arrow table that holds the columns by name.
        y_pred : array-like of shape (n,)
            Predictions.
        **columns : array-like of shape (n,)
            `sample_weight`: 0, or between 2**-36 and 2**31. Both others may be given by name, too.

        Raises
        ------
        InvalidInputError
            A value is not finite, or other than 0 and not between 2**-400 and 2**400 in size, or lengths differ; the
            message names column, row and count, and nothing was counted.
        MemoryLimitError
            Buckets would pass `memory_limit`; nothing was counted.
        """
        return super().update(y_true, y_pred, **columns)

    def make_state(self) -> JointHistogram:
        return JointHistogram(bits=self.bits, limit=self.limit, memory_limit=self.memory_limit)

    def of(self, pairs: Pairs) -> Limits | None:
        """Return the value with its limits; None where it is undefined."""
        raise NotImplementedError(f"{type(self).__name__} does not say what it computes")

    def slack(self, state: Any, found: Limits, rounding: Fraction) -> Fraction:
        return SLIPS * rounding

    def read(self, state: JointHistogram) -> Reading:
        return OfPairs(self, state)

    def reason(self, state: JointHistogram) -> str | None:
        alike = "predictions" if state.pairs.apart(0)[2] else "targets"
        return nothing_counted(state) or f"the {alike} are all alike"


class OfPairs(OwnReading):
    """The reading of pairs of rows; value and bounds stay within the range of the metric."""

    def _found(self) -> Limits | None:
        pairs: Pairs = self.state.pairs
        found = self.metric.of(pairs) if pairs.total else None
        if found is None:
            return None
        least, most = map(Fraction, self.value_range)
        low, high = max(found.low, least), min(found.high, most)
        if low > high:  # of weights below 1, which are no rows; or of bytes that no rows made
            low, high = least, most
        return Limits(low, min(max(found.value, low), high), high)

    def _reason(self) -> str | None:
        return super()._reason() if self.limits is None else None


def quotient(top: int, low: int, here: int, high: int, unknown: int = 0, estimate: Fraction | None = None) -> Limits:
    """Limits of top / sqrt(square), where the square is between two, and the top known but for so much.

    The value is that of the top, or of an estimate of it.
    """

    def root(number: int | Fraction, square: int) -> Limits:
        found = Limits.root(Fraction(number * number) / square) if square else Limits(*[Fraction(2 * bool(number))] * 3)
        return -found if number < 0 else found

    least, most = top - unknown, top + unknown
    value = root(top if estimate is None else estimate, here or high).value
    return Limits(root(least, low if least < 0 else high).low, value, root(most, high if most < 0 else low).high)


class SpearmanCorrelation(RankMetric, tag="spearman_correlation"):
    """Spearman's correlation of ranks: how far predictions rise with targets, by whatever curve.

    Formula: Pearson's correlation of the ranks of y and p, equal ones having the mean of their ranks.

    Parameters
    ----------
    bits : int
        The resolution beyond the limit: up to 2**(bits + 3) buckets of targets, and as many of predictions.
    limit : int
        Rows of which the value is exact; with more all go to buckets of both numbers.
    memory_limit : int
        Bytes that rows and buckets may take (4 GiB); MemoryLimitError beyond, and nothing was counted.
    on_invalid : {"raise", "drop"}
        Whether a bad row raises, or is left out and counted.

    Notes
    -----
    Bound: the best and the worst order of the rows within each row and column of buckets; exact while these hold one
    value each. Buckets have the widths that the data need, wherever they lie: 7 bits certify some 0.01, while the value
    itself is off by less than 0.001. A weight counts as so many equal rows. 64 bytes a row up to the limit, then 16 a
    bucket of both that holds rows; some 100 ns a row. Definition as scipy's
    `spearmanr`. Undefined if the targets or the predictions are all alike.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.SpearmanCorrelation().update([1, 2, 3, 4], [10, 30, 20, 400]).compute()
    0.8
    """

    about = About(formula="Pearson's correlation of ranks")

    def of(self, pairs: Pairs) -> Limits | None:
        x, y = variance(pairs, 0), variance(pairs, 1)
        if not x[2] or not y[2]:
            return None
        top, unknown = covariance(pairs)
        return quotient(top, x[0] * y[0], x[1] * y[1], x[2] * y[2], unknown)


class KendallCorrelation(RankMetric, tag="kendall_correlation"):
    """Kendall's tau: by how much more pairs of rows are in the same order by target and prediction than in the other.

    Formula: (C - D) / sqrt((P - T_y)(P - T_p)), over pairs of rows: in the same order C, in the other D, all P, of equal
    targets T_y, of equal predictions T_p. Variant "a" divides by P; "c" by n**2 (m - 1) / (2 m), m being the number of
    different targets, or of different predictions if these are fewer.

    Parameters
    ----------
    variant : {"b", "a", "c"}
        What the difference is divided by: b allows for ties, a does not, c for tables that are not square.
    bits, limit, memory_limit, on_invalid
        As for SpearmanCorrelation.

    Notes
    -----
    Bound: pairs of one bucket of targets, or of predictions, may be in any order. 7 bits certify some 0.02, while the
    value itself is off by less than 0.001. State, cost and weights as SpearmanCorrelation. Definition as scipy's
    `kendalltau`. Undefined for fewer than two rows; "b" and "c" also if the targets or the predictions are all alike.

    Examples
    --------
    >>> import streammetrics as sm
    >>> round(sm.KendallCorrelation().update([1, 2, 3, 4], [10, 30, 20, 400]).compute(), 6)
    0.666667
    """

    about = About(formula="(C - D) / sqrt((P - T_y)(P - T_p))")

    variant: str = setting(default="b", choices=("a", "b", "c"))

    @property
    def name(self) -> str:
        return "kendall_correlation" + ("" if self.variant == "b" else f"_{self.variant}")

    def of(self, pairs: Pairs) -> Limits | None:
        top, x, y = pairs.concordant - pairs.discordant, pairs.apart(0), pairs.apart(1)
        whole = pairs.total * pairs.total
        rest = estimate_unresolved(pairs)
        likely = top + rest.alike - rest.opposite
        if self.variant == "a":
            return _share(top - pairs.unknown, likely, top + pairs.unknown, whole - pairs.twins)
        if x[2] <= 0 or y[2] <= 0:
            return None
        if self.variant == "b":
            least = max(x[0], 0) * max(y[0], 0)  # below 0 are those of bytes that no rows made
            return quotient(top, least, least, x[2] * y[2], pairs.unknown, likely)
        m = max(min(pairs.values()), 2)
        far = max(abs(top - pairs.unknown), abs(top + pairs.unknown))  # more values than are seen make it smaller
        slack = 0 if pairs.sharp.all() else far
        return _share(m * (top - pairs.unknown) - slack, m * likely, m * (top + pairs.unknown) + slack, whole * (m - 1))

    def reason(self, state: JointHistogram) -> str | None:
        return nothing_counted(state) or NO_PAIRS if self.variant == "a" else super().reason(state)


class UnresolvedPairs(NamedTuple):
    """What pairs are, probably, whose order the table does not tell.

    Parameters
    ----------
    alike, opposite : Fraction
        Pairs in the order of the targets, and in the other.
    equal : Fraction
        Pairs of equal targets and equal predictions.
    """

    alike: Fraction
    opposite: Fraction
    equal: Fraction


def estimate_unresolved(pairs: Pairs) -> UnresolvedPairs:
    """Estimate what pairs are whose order the table does not tell."""
    x, y, both = pairs.same
    (a, b), (lean_x, lean_y) = pairs.differing_share, pairs.local_order
    cell = max(both - pairs.twins, 0)
    parts = ((a * (x - both), lean_x), (b * (y - both), lean_y), (a * b * cell, (lean_x + lean_y) / 2))
    alike = sum((n * (1 + lean) / 2 for n, lean in parts), Fraction(0))
    opposite = sum((n * (1 - lean) / 2 for n, lean in parts), Fraction(0))
    return UnresolvedPairs(alike, opposite, (1 - a) * (1 - b) * cell)


def _share(low: int, value: int | Fraction, high: int, divisor: int) -> Limits | None:
    return Limits(*(Fraction(v, divisor) for v in (low, value, high))) if divisor > 0 else None


class XAUC(RankMetric, tag="xauc"):
    """XAUC: the share of pairs of rows that predictions put in the order of their targets, over all rows.

    Formula: (C + B) / P, over pairs of rows: in the same order C, of equal targets and equal predictions B, all P.

    Parameters
    ----------
    bits, limit, memory_limit, on_invalid
        As for SpearmanCorrelation.

    Notes
    -----
    Bound, state and cost as KendallCorrelation. Source: Zhan et al., "Deconfounding duration bias in watch-time
    prediction" (KDD 2022). Definition as torchrec's `XAUC`, which however sees pairs within a batch alone, so that its
    value depends on how rows are cut. A weight counts as so many equal rows, torchrec's as one whose pairs weigh the
    product. Undefined for less than two rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> round(sm.XAUC().update([1, 2, 3, 3], [10, 30, 20, 20]).compute(), 6)
    0.666667
    """

    about = About(value_range=(0.0, 1.0), extensive=True, formula="(C + B) / P")

    def of(self, pairs: Pairs) -> Limits | None:
        both, certain, sure = pairs.same[2], pairs.concordant, bool(pairs.sure.all())
        equal = max(both - pairs.twins, 0)
        low = certain + (equal if sure else 0)
        high = low + pairs.beside + (0 if sure else both - pairs.alone)
        rest = estimate_unresolved(pairs)
        value = certain + rest.alike + rest.equal
        return _share(low, value, high, pairs.total * pairs.total - pairs.twins)

    def reason(self, state: JointHistogram) -> str | None:
        return nothing_counted(state) or NO_PAIRS


class RegressionAUC(RankMetric, tag="regression_auc"):
    """Regression AUC: the share of pairs of different targets that predictions put in their order; ties count half.

    Formula: (C + T / 2) / (P - T_y), over pairs of rows: in the same order C, of equal predictions and different targets
    T, all P, of equal targets T_y. With `pairs="all"`: 1 - D / P, pairs in the other order being D.

    Parameters
    ----------
    pairs : {"different", "all"}
        Of which pairs: of different targets, as AUC, to which it is equal for targets of 0 and 1, and as the concordance
        index; or of all, with ties right, as torchrec's `RAUC`.
    bits, limit, memory_limit, on_invalid
        As for SpearmanCorrelation.

    Notes
    -----
    Bound, state, cost and weights as XAUC; torchrec's weighs nothing, and keeps a window of 100 rows. Source of the
    concordance index: Harrell et al. (1982), without censoring. Undefined if the targets are all alike, with
    `pairs="all"` for fewer than two rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> auc = sm.RegressionAUC().update([1, 2, 3, 3], [10, 30, 20, 20])
    >>> auc.compute(), round(sm.RegressionAUC(pairs="all").reading(auc.state).value, 6)
    (0.6, 0.666667)
    """

    about = About(value_range=(0.0, 1.0), formula="(C + T / 2) / (P - T_y)")

    pairs: str = setting(default="different", choices=("different", "all"))

    @property
    def name(self) -> str:
        return "regression_auc" + ("" if self.pairs == "different" else "_all")

    def of(self, pairs: Pairs) -> Limits | None:
        whole, unknown = pairs.total * pairs.total, pairs.unknown
        if self.pairs == "all":
            right = whole - pairs.twins - pairs.discordant
            value = right - estimate_unresolved(pairs).opposite
            return _share(right - unknown, value, right, whole - pairs.twins)
        some, here, most = pairs.apart(0)
        if not most:
            return None
        _, y, both = pairs.same
        ties, more = y - both, most - here
        half = Fraction(ties, 2)
        low = pairs.concordant + (half if pairs.sure[1] else 0)
        high = pairs.concordant + (half if pairs.sure[1] else ties) + more
        known = max(some, here)  # pairs of targets that are different by their own buckets
        lean = (known - here) * pairs.local_order[0] / 2 + ties * pairs.differing_share[1] * pairs.local_order[1] / 2
        value = (pairs.concordant + half + Fraction(known - here, 2) + lean) / known if known else Fraction(1, 2)
        return Limits(Fraction(low) / most, value, Fraction(high) / most)

    def reason(self, state: JointHistogram) -> str | None:
        return nothing_counted(state) or (NO_PAIRS if self.pairs == "all" else "the targets are all alike")
