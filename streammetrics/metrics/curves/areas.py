"""Metrics of how well scores rank positives above negatives: AUC, Gini, average precision, KS.

All are computed from one `ScoreHistogram`, which does not record the order of the scores inside a bucket. The certified
bounds are therefore the smallest and largest values over all possible orders inside the buckets.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any, ClassVar

from ...numerics.exact import Limits, Mass, to_float
from ...numerics.settings import setting
from ...reading.about import About
from ...reading.interval import Estimate
from ...reading.reading import NAN, Reading
from ...statistics.pair_scores import PAIR_BITS, PairScores, default_pair_limit
from ...statistics.row_means import LabelRows
from ...statistics.score_errors import area_error, area_errors, average_precision_error, average_precision_errors
from ...statistics.score_readouts import (
    CellBounds,
    area,
    areas,
    average_precision,
    average_precisions,
    ks_distance,
    ks_distances,
)
from ...statistics.scores import ScoreHistogram, ScoresByLabel
from ..averages import AVERAGES
from ..standard_errors import delta
from .scored_metric import ScoredValue, no_positives

__all__ = ["AUC", "KS", "AveragePrecision", "Gini"]

BY_ROWS = "samples"


class ByRows(ScoredValue):
    """Base class for metrics that can also be computed for each row and averaged over rows (`average="samples"`)."""

    _row_terms: ClassVar[tuple[str, str]]
    """The names of two quantities that the state sums over rows: the value of the row (0 if undefined), and an indicator
    that is 1 if that value is defined and 0 otherwise."""

    @property
    def undefined_value(self) -> float:
        """The number that replaces a row's undefined value. If it is NaN, the mean leaves out rows without a value."""
        return NAN

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.average == BY_ROWS and self.num_labels is None:
            raise ValueError(
                f'{type(self).__name__}: average="samples" averages over rows with several 0/1 labels; pass the number '
                f"of labels as num_labels="
            )

    def make_state(self) -> Any:
        if self.average != BY_ROWS:
            return super().make_state()
        assert self.num_labels is not None
        return LabelRows(terms=self._row_terms, num_labels=self.num_labels)

    def reading(self, state: Any) -> Reading:
        return mean_over_rows(self, state) if isinstance(state, LabelRows) else super().reading(state)


def mean_over_rows(metric: ByRows, state: LabelRows) -> Reading:
    """Return the reading (value and interval) for `average="samples"`, the mean of one value per row."""
    total, weight = _sums(metric, state)
    value = to_float(total, weight)

    def reason() -> str | None:
        if not state.facts()["rows"]:
            return "no rows"
        return None if weight else "undefined for every row"

    return Reading(state, value, reason=reason, estimate=lambda method: _estimate(metric, state, value))


def _sums(metric: ByRows, state: LabelRows) -> tuple[Fraction, Fraction]:
    """Return the sum of the row values and the total weight of the rows in that sum."""
    found, known = (state.total(term) for term in metric._row_terms)
    if math.isnan(metric.undefined_value):
        return found, known
    whole = Fraction(state.weight())
    return found + Fraction(metric.undefined_value) * (whole - known), whole


def _estimate(metric: ByRows, state: LabelRows, value: float) -> Estimate:
    """Return the mean over rows with its standard error, computed by the delta method."""

    def gradient(mean: Any, defined: Any) -> tuple[Any, Any]:
        """Return the partial derivatives of the value with respect to two means over rows.

        `mean` is the mean of the row values, with undefined values counted as 0. `defined` is the share of rows with a
        defined value.
        """
        if math.isnan(metric.undefined_value):
            return 1 / defined, -mean / defined**2
        return 1.0, -metric.undefined_value

    return delta(value, state.estimate_defined_means(*metric._row_terms), gradient, "logit", "delta", (0, 1))


def standardise_area(area: Fraction, low: Fraction, high: Fraction) -> Fraction:
    """Return the area under the part of a ROC curve between two false positive rates, rescaled as in McClish (1989).

    The rescaled area is 1/2 for random scores and 1 for a perfect ranking.
    """
    chance = (high**2 - low**2) / 2
    return (1 + (area - chance) / (high - low - chance)) / 2


def area_between(state: ScoresByLabel, low: Fraction, high: Fraction) -> Limits | None:
    """Return the standardized ROC area between the FPRs `low` and `high`, or None if a class has no rows."""
    positives, negatives = state.positives, state.negatives
    P, N = positives.total(), negatives.total()
    if not P or not N:
        return None
    a, c = Mass(positives.digits[:, ::-1]), Mass(negatives.digits[:, ::-1])
    parts = [
        upper - lower for lower, upper in zip(_area_up_to(a, c, low * N), _area_up_to(a, c, high * N), strict=True)
    ]
    found = Limits(*(standardise_area(part / (P * N), low, high) for part in parts))
    return Limits(found.value, found.value, found.value) if state.is_exact else found


def _area_up_to(a: Mass, c: Mass, cut: Fraction) -> tuple[Fraction, Fraction, Fraction]:
    """Return the area under the ROC curve up to `cut` false positives: its smallest, estimated and largest values.

    `a` and `c` are the weights of the positives and negatives in each bucket, from the highest scores down. Both axes
    of the curve are weights rather than shares, so the area is not divided by the totals.
    """
    above, before = a.sums_before(), c.sums_before()
    k = _crossing(before, cut)
    base, ties = c[slice(k)].dot(above[slice(k)]), c[slice(k)].dot(a[slice(k)])
    # The cut lies inside bucket k. `part` is the weight of the negatives in this bucket that come before the cut.
    part = cut - before.cell(k)
    share = part / c.cell(k) if c.cell(k) else Fraction(0)
    low = base + part * above.cell(k)
    return low, low + Fraction(ties, 2) + part * share * a.cell(k) / 2, low + ties + part * a.cell(k)


def _crossing(before: Mass, cut: Fraction) -> int:
    """Return the index of the bucket that contains `cut`, by binary search.

    `before` is the cumulative weight before each bucket. The result is the index of the last bucket for which this
    weight is below `cut`, or 0 if there is no such bucket.
    """
    low, high = 0, before.digits.shape[1] - 1
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if before.cell(middle) < cut else (low, middle - 1)
    return low


ZERO = Fraction(0)


def _area_of_pairs(negatives: Any, positives: Any, twice: Any) -> tuple[Any, Any]:
    return twice, 2 * negatives * positives


def _gini_of_pairs(negatives: Any, positives: Any, twice: Any) -> tuple[Any, Any]:
    return twice - negatives * positives, negatives * positives


class AUC(ByRows, tag="auc"):
    """Area under the ROC curve: the probability that a positive scores above a negative; ties count one half.

    Formula: (pairs where the positive scores higher + half the pairs with equal scores) / (P * N), for P positives and
    N negatives. From buckets with `a` positives and `c` negatives each, it is sum(a * (C + c / 2)) / (P * N), where C
    is the number of negatives in lower buckets. It is computed with exact integers and rounded once.

    Parameters
    ----------
    max_fpr : float, optional
        Use only the part of the curve up to this false positive rate, and standardize the area as in McClish (1989),
        like scikit-learn's `roc_auc_score(max_fpr=)`.
    min_fpr : float
        Use only the part of the curve from this false positive rate onwards, and standardize the area in the same way:
        1/2 for random scores, 1 for a perfect ranking. The value can be negative if this part of the curve is low.
    multi_class : {"ovr", "ovo"}
        How to compare several classes. "ovr": each class with all others. "ovo": each pair of classes, on the rows of
        these two classes only (Hand and Till 2001), for at most 256 classes. By default, "ovo" keeps the scores of up
        to 65,536 rows exactly, or of up to 2**22 / C**2 rows for C classes if that is fewer (at most 64 MiB). With more
        rows it uses histograms of 2**10 buckets.
    average : {"macro", "micro", "weighted", "samples", None}
        How to combine the values of several classes or labels. "macro": their mean. "micro": one value for the rows of
        all classes or labels together. "weighted": their mean, weighted by the number of positives of each class or
        label (for "ovo", by the number of rows of both classes). "samples", for labels only: the mean over rows of a
        value computed from the labels of each row. None: an array with one value for each class or label. Means leave
        out undefined values, and `explain()` counts them.

    Notes
    -----
    The bounds are value ± sum(a * c) / (2 * P * N). The value is exact if each bucket stands for a single score, as
    with float16 and bfloat16 scores, or if there are at most `limit` rows. For float32 scores at 16 bits, the bounds
    are typically value ± 2e-5 to 7e-5, whereas the true error is about 1e-6. All probabilities below 2**-33 share
    one bucket, and all probabilities within 2**-33 of 1 share another. More bits do not split these two buckets. If
    most scores that share a bucket are in these two buckets, `explain()` recommends passing logits, with
    `scale="logit"`. Weights are rounded to multiples of 2**-60, which affects only weights below 2**-8; the bounds
    allow for that.

    An update takes about 1 ns per row (10 ns with `exact=True`), and `compute()` takes 1 ms. The definition matches
    scikit-learn's `roc_auc_score`. The value is undefined if all rows have the same class. `interval()` returns DeLong's
    interval. It is computed on the logit scale, so it lies within (0, 1) and is not symmetric. It is valid if rows are
    independent.

    Examples
    --------
    >>> import streammetrics as sm
    >>> auc = sm.AUC().update([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8])
    >>> auc.compute()
    0.75
    >>> auc.merge(sm.AUC().update([1, 0], [0.9, 0.2])).compute()
    0.8888888888888888
    """

    about = About(
        interval_methods=("delong",),
        formula="(pairs where the positive scores higher + half the pairs with equal scores) / (P N)",
        bound=(
            "± half the share of pairs of a positive and a negative that lie in the same bucket; exact for "
            "half-precision scores"
        ),
        interval_scale=About.per_instance(lambda metric: "natural" if metric.min_fpr else "logit"),
        value_range=About.per_instance(lambda metric: (metric._least, 1)),
        pair_statistic=About.per_instance(lambda metric: _area_of_pairs if metric._full else None),
    )

    max_fpr: float | None = setting(default=None, above=0.0, high=1.0)
    min_fpr: float = setting(default=0.0, low=0.0, high=1.0)
    multi_class: str = setting(default="ovr", choices=("ovr", "ovo"))
    average: str | None = setting(default="macro", choices=(*AVERAGES, BY_ROWS))

    _row_terms = ("auc", "both")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.min_fpr < self._rate:
            raise ValueError(f"AUC: min_fpr={self.min_fpr:g} must be below max_fpr={float(self._rate):g}")
        if self.average == BY_ROWS and not self._full:
            raise ValueError(
                'AUC: average="samples" does not support min_fpr= and max_fpr=; leave them out, or choose another average='
            )
        if self.multi_class == "ovo" and (
            not self._class_settings or self.num_labels or self.average not in ("macro", "weighted")
        ):
            raise ValueError('AUC: multi_class="ovo" needs num_classes= or labels=, and average="macro" or "weighted"')

    def make_state(self) -> Any:
        if self.multi_class == "ovr":
            return super().make_state()
        how = {
            "scale": self.scale,
            "softmax": self.scale == "logit",
            "memory_limit": self.memory_limit,
            **self._class_settings,
        }
        if self.exact:
            return PairScores(bits=None, **how)
        if self.bits is not None:
            return PairScores(bits=self.bits, limit=self.limit, **how)
        classes = self.num_classes or len(self.labels or ())
        limit = default_pair_limit(classes) if self.limit is None else self.limit
        return PairScores(bits=PAIR_BITS, limit=limit, **how)

    @property
    def _read_all_cells(self) -> Callable[[ScoreHistogram], CellBounds] | None:
        return areas if self._full else None

    @property
    def _standard_error(self) -> Callable[[Any], Any] | None:
        return area_error if self._full else None

    @property
    def _standard_errors(self) -> Callable[[ScoreHistogram], Any] | None:
        return area_errors if self._full else None

    @property
    def name(self) -> str:
        low, high = (f"{x:g}" for x in (self.min_fpr, self.max_fpr or 1.0))
        part = "" if self._full else f"@{high}" if not self.min_fpr else f"@{low}-{high}"
        return self._with_average(("auc" if self.multi_class == "ovr" else "auc_ovo") + part)

    @property
    def _full(self) -> bool:
        return not self.min_fpr and self.max_fpr in (None, 1.0)

    @property
    def _least(self) -> Fraction:
        """The smallest possible value: 0 for the full area; for a standardized part, it can be above or below 0."""
        return ZERO if self._full else standardise_area(ZERO, Fraction(self.min_fpr), self._rate)

    def of(self, state: ScoresByLabel) -> Limits | None:
        return area(state) if self._full else area_between(state, Fraction(self.min_fpr), self._rate)

    def slack(self, state: Any, limits: Limits, rounding: Fraction) -> Fraction:
        low, high = Fraction(self.min_fpr), self._rate
        return 8 * rounding if self._full else 8 * rounding / (high - low - (high**2 - low**2) / 2)

    @property
    def _rate(self) -> Fraction:
        return Fraction(self.max_fpr or 1.0)


class Gini(ScoredValue, tag="gini"):
    """Gini coefficient of a classifier: 2 * AUC - 1, from -1 to 1. Also called accuracy ratio or Somers' D.

    Notes
    -----
    State, memory and time are the same as for AUC. The bounds are twice as wide.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.Gini().update([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8]).compute()
    0.5
    """

    about = About(
        interval_methods=("delong",),
        interval_scale="fisher",
        formula="2 AUC - 1",
        bound="2 b - 1 for each bound b of AUC",
        value_range=(-1, 1),
        pair_statistic=_gini_of_pairs,
    )

    @staticmethod
    def _standard_error(state: Any) -> Any:
        return 2 * area_error(state)

    @staticmethod
    def _standard_errors(state: ScoreHistogram) -> Any:
        return 2 * area_errors(state)

    def of(self, state: Any) -> Limits | None:
        found = area(state)
        return None if found is None else Limits(*(2 * x - 1 for x in found))

    def slack(self, state: Any, limits: Limits, rounding: Fraction) -> Fraction:
        return 16 * rounding


class AveragePrecision(ByRows, tag="average_precision"):
    """Average precision: the area under the precision-recall curve as a step function; equal scores form one step.

    Formula: sum over distinct scores, descending, of (change of recall) x precision, as in scikit-learn's
    `average_precision_score`. It is not the trapezoidal area, which is too optimistic.

    Parameters
    ----------
    zero_division : {nan, 0.0, 1.0}
        The value for a class, a label or (with `average="samples"`) a row that has no positives. By default it is
        undefined, and averages leave it out; scikit-learn returns 0.

    Notes
    -----
    The value treats the scores of a bucket as equal. The bounds are sums over buckets. For a bucket with `a` positives
    and `c` negatives, TP and FP are the counts above it, S = TP + FP + c and x = a / S. The upper bound is the sum of
    (a / P) * (TP + a) / (TP + FP + a), which assumes that the positives of each bucket come first. The lower bound is
    the sum of (a * TP / S + (FP + c) * (x - log(1 + x))) / P. It assumes that the positives come last, and replaces
    the sum over rows with an integral. Without weights, the precision at a positive is at least its mean from half a
    row before to half a row after the positive. The integral can therefore start half a row later, which adds 1/2 to TP
    and S. Bounds are rounded outward. Memory and time are the same as for AUC.

    Examples
    --------
    >>> import streammetrics as sm
    >>> round(sm.AveragePrecision().update([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8]).compute(), 4)
    0.8333
    """

    about = About(
        formula="sum over distinct scores, descending, of precision times the increase of recall",
        bound=(
            "lower bound: at most the value of the worst order of rows in each bucket; upper bound: the value if "
            "positives come first"
        ),
    )

    zero_division: float = setting(default=NAN, choices=(NAN, 0.0, 1.0))
    average: str | None = setting(default="macro", choices=(*AVERAGES, BY_ROWS))

    _row_terms = ("average_precision", "relevant")
    _standard_error = staticmethod(average_precision_error)
    _standard_errors = staticmethod(average_precision_errors)

    @property
    def _read_all_cells(self) -> Callable[[ScoreHistogram], CellBounds] | None:
        return None if self._stands_in else average_precisions

    def of(self, state: ScoresByLabel) -> Limits | None:
        found = average_precision(state)
        return Limits.exactly(Fraction(self.undefined_value)) if found is None and self._stands_in else found

    @property
    def undefined_value(self) -> float:
        return self.zero_division

    @property
    def _stands_in(self) -> bool:
        return not math.isnan(self.undefined_value)

    def reason(self, state: ScoresByLabel) -> str | None:
        return None if self._stands_in else no_positives(state)


class KS(ScoredValue, tag="ks"):
    """Kolmogorov-Smirnov statistic: the largest distance between the score distributions of the two classes.

    Formula: max over thresholds of |TPR - FPR|. It equals `scipy.stats.ks_2samp(pos, neg).statistic`.

    Notes
    -----
    The value is the largest distance at any bucket edge, so some threshold attains this distance. The upper bound is
    the largest of |D + a/P| and |D - c/N| over all buckets. Here `a` and `c` are the numbers of positives and negatives
    in a bucket, and D is the distance at its lower edge. The bound is rounded outward. Memory and time are the same as
    for AUC.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.KS().update([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8]).compute()
    0.5
    """

    about = About(
        no_interval_reason=(
            "the largest of many gaps is biased upward by chance; AUC, and Recall and FalsePositiveRate at a "
            "fixed threshold, have intervals"
        ),
        formula="max over thresholds of |TPR - FPR|",
        bound="from the largest distance at an edge of a bucket to the largest possible distance inside a bucket",
    )

    _read_all_cells = staticmethod(ks_distances)

    def of(self, state: ScoresByLabel) -> Limits | None:
        return ks_distance(state)

    def slack(self, state: Any, limits: Limits, rounding: Fraction) -> Fraction:
        return 8 * rounding
