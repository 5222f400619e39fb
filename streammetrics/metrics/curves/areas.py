"""Metrics of how well a score ranks positives above negatives: AUC, Gini, average precision, KS.

All read one `ScoreHistogram`, and carry a certified bound: what any scores inside the buckets could have made of it.
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
from ...statistics.pair_scores import PAIR_BITS, PairScores, pair_limit
from ...statistics.row_means import LabelRows
from ...statistics.score_errors import area_error, area_errors, average_precision_error, average_precision_errors
from ...statistics.score_readouts import (
    Bounded,
    area,
    areas,
    average_precision,
    average_precisions,
    gap,
    gaps,
)
from ...statistics.scores import ScoreHistogram, ScoresByLabel
from ..averages import AVERAGES
from ..standard_errors import delta
from .scored import ScoredValue, no_positives

__all__ = ["AUC", "KS", "AveragePrecision", "Gini"]

BY_ROWS = "samples"


class ByRows(ScoredValue):
    """A metric of two classes that rows of several labels have, too."""

    _row_terms: ClassVar[tuple[str, str]]
    """The terms of `LabelRows`: the value of a row, 0 where it is undefined; and whether it is defined."""

    @property
    def undefined(self) -> float:
        """What stands for a value that is not defined; NaN if nothing does."""
        return NAN

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.average == BY_ROWS and self.num_labels is None:
            raise ValueError(
                f'{type(self).__name__}: average="samples" is the mean over rows of labels: give num_labels='
            )

    def make_state(self) -> Any:
        if self.average != BY_ROWS:
            return super().make_state()
        assert self.num_labels is not None
        return LabelRows(terms=self._row_terms, num_labels=self.num_labels)

    def reading(self, state: Any) -> Reading:
        return mean_over_rows(self, state) if isinstance(state, LabelRows) else super().reading(state)


def mean_over_rows(metric: ByRows, state: LabelRows) -> Reading:
    """Return what a metric of the labels of a row says about all rows."""
    total, weight = _sums(metric, state)
    value = to_float(total, weight)

    def reason() -> str | None:
        if not state.facts()["rows"]:
            return "no rows"
        return None if weight else "undefined for every row"

    return Reading(state, value, reason=reason, estimate=lambda method: _estimate(metric, state, value))


def _sums(metric: ByRows, state: LabelRows) -> tuple[Fraction, Fraction]:
    """The sum over rows, and what the rows weigh that it is of."""
    found, known = (state.total(term) for term in metric._row_terms)
    if math.isnan(metric.undefined):
        return found, known
    whole = Fraction(state.weight())
    return found + Fraction(metric.undefined) * (whole - known), whole


def _estimate(metric: ByRows, state: LabelRows, value: float) -> Estimate:
    """Return the mean over rows with its standard error."""

    def gradient(mean: Any, known: Any) -> tuple[Any, Any]:
        """Return how the value changes with the mean of the term, and the share of rows that are defined."""
        if math.isnan(metric.undefined):
            return 1 / known, -mean / known**2
        return 1.0, -metric.undefined

    return delta(value, state.spread_of_parts(*metric._row_terms), gradient, "logit", "delta", (0, 1))


def standardised(area: Fraction, low: Fraction, high: Fraction) -> Fraction:
    """An area between two false positive rates, so that chance has 1/2 and the largest 1 (McClish 1989)."""
    chance = (high**2 - low**2) / 2
    return (1 + (area - chance) / (high - low - chance)) / 2


def area_between(state: ScoresByLabel, low: Fraction, high: Fraction) -> Limits | None:
    """The standardised area between two false positive rates; None of one class."""
    positives, negatives = state.positives, state.negatives
    P, N = positives.total(), negatives.total()
    if not P or not N:
        return None
    a, c = Mass(positives.digits[:, ::-1]), Mass(negatives.digits[:, ::-1])
    parts = [upper - lower for lower, upper in zip(_upto(a, c, low * N), _upto(a, c, high * N), strict=True)]
    found = Limits(*(standardised(part / (P * N), low, high) for part in parts))
    return Limits(found.value, found.value, found.value) if state.is_exact else found


def _upto(a: Mass, c: Mass, cut: Fraction) -> tuple[Fraction, Fraction, Fraction]:
    """The area up to so many negatives, below, within and above the curve inside buckets: between their two corners."""
    above, before = a.before(), c.before()
    k = _crossing(before, cut)
    base, ties = c[slice(k)].dot(above[slice(k)]), c[slice(k)].dot(a[slice(k)])
    part = cut - before.cell(k)  # negatives of the bucket that the rate cuts
    share = part / c.cell(k) if c.cell(k) else Fraction(0)
    low = base + part * above.cell(k)
    return low, low + Fraction(ties, 2) + part * share * a.cell(k) / 2, low + ties + part * a.cell(k)


def _crossing(before: Mass, cut: Fraction) -> int:
    """Return the last cell that begins before `cut`."""
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
    """Area under the ROC curve: the chance that a positive scores above a negative, ties counting one half.

    Formula: (sum over pairs of [p > n] + [p = n] / 2) / (P N), from bucket counts a (positives) and c (negatives):
    sum a (C + c / 2) / (P N), with C the negatives in the buckets below. Exact integers, rounded once.

    Parameters
    ----------
    scale : {"probability", "real", "logit"}
        `probability`: scores in [0, 1]. `real` and `logit`: any finite score; logits of classes rank by the softmax of
        the row, those of labels by their own column.
    bits : int, optional
        log2 of the number of buckets; 16 for probabilities (1 MiB), 19 otherwise (8 MiB, mostly untouched).
    limit : int, optional
        Rows that keep their exact scores, those of every class or label; with more all go to buckets. 65,536 from 16
        bits on, 0 below. Real scores of two classes that lie so close together, far from 0, that few buckets would hold
        them stay exact up to 2**20 different ones (40 MB).
    exact : bool
        Keep every score instead of a histogram: no bound is needed, and memory grows by 24 bytes for every different
        score (float32 models have few millions).
    memory_limit : int
        Bytes that exact scores may take (4 GiB); MemoryLimitError beyond, and nothing was counted.
    max_fpr : float, optional
        Only the part up to this false positive rate, standardised as in McClish (1989): what scikit-learn's
        `roc_auc_score(max_fpr=)` returns.
    min_fpr : float
        Only the part from this false positive rate on, standardised alike: 1/2 is chance, 1 the best there is. A curve
        that is low there can have less than 0.
    num_classes, labels : int, or tuple
        Rows are of one of several classes, 0, 1, ... or these, and `y_score` has a probability (or score) of each, rows x
        classes: each class against the rest.
    multi_class : {"ovr", "ovo"}
        Of classes: each against the rest; or each against each other, of the rows of both (Hand and Till 2001), for at
        most 256 classes. By default "ovo" keeps 65,536 rows exactly (of C classes at most 2**22 / C**2, which takes
        64 MiB), and beyond that has 10 bits.
    num_labels : int
        Rows have so many 0/1 labels, and a score of each: both columns are rows x labels.
    average : {"macro", "micro", "weighted", "samples", None}
        Of classes or labels: the mean of their values, the value of all of them as one, the mean weighted by positives
        (one against one by the rows of both), or an array of each. Undefined values are left out, and counted in
        `explain()`. "samples", of labels: the mean over rows of the value of the labels of a row, of rows that have one.
    on_invalid : {"raise", "drop"}
        Whether a bad row raises, or is left out and counted.

    Notes
    -----
    Bound: value ± sum a c / (2 P N). It is 0, and the value exact, if no score had bits beyond its bucket's: float16 and
    bfloat16 scores, of each scale. Typical for float32 at 16 bits: 2e-5 to 7e-5; true error 1e-6. Probabilities below
    2**-33, and above 1 - 2**-33, share a bucket; where that decides, as with softmax of a sure model, more bits change
    nothing, and `explain()` has a hint: give logits, with `scale="logit"`. Logits of classes (`num_classes=`, `labels=`)
    rank by the softmax of the row: they are counted as its log-odds, in float64. Up to `limit` rows nothing shares a
    bucket. Weights below 2**-8 may have bits below 2**-60, where they are rounded: then the bound has room for that, too.
    Cost: about 1 ns a row; `compute` 1 ms. Exact: about 10 ns a row. Definition as scikit-learn's `roc_auc_score`;
    undefined for one class. `interval()` is DeLong's, made on the logit scale: within (0, 1), and not symmetric about the
    value; right if rows are independent.

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
        formula="(sum over pairs of [p > n] + [p = n]/2) / (P N)",
        bound="± sum a c / (2 P N) over buckets; 0 for half-precision scores",
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
            raise ValueError(f"AUC: min_fpr={self.min_fpr:g} has to be below max_fpr={float(self._rate):g}")
        if self.average == BY_ROWS and not self._full:
            raise ValueError('AUC: average="samples" is of whole rows; it has no min_fpr= or max_fpr=')
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
        limit = pair_limit(classes) if self.limit is None else self.limit
        return PairScores(bits=PAIR_BITS, limit=limit, **how)

    @property
    def _read_all_cells(self) -> Callable[[ScoreHistogram], Bounded] | None:
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
        """The smallest value: standardised, a part of the area can be negative."""
        return ZERO if self._full else standardised(ZERO, Fraction(self.min_fpr), self._rate)

    def of(self, state: ScoresByLabel) -> Limits | None:
        return area(state) if self._full else area_between(state, Fraction(self.min_fpr), self._rate)

    def slack(self, state: Any, found: Limits, rounding: Fraction) -> Fraction:
        low, high = Fraction(self.min_fpr), self._rate
        return 8 * rounding if self._full else 8 * rounding / (high - low - (high**2 - low**2) / 2)

    @property
    def _rate(self) -> Fraction:
        return Fraction(self.max_fpr or 1.0)


class Gini(ScoredValue, tag="gini"):
    """Gini coefficient of a classifier: 2 AUC - 1, from -1 to 1.

    Parameters
    ----------
    scale, bits, limit, exact, memory_limit, num_classes, labels, num_labels, average, on_invalid
        As for AUC.

    Notes
    -----
    State, bound (twice AUC's) and cost as AUC. Also called accuracy ratio, Somers' D.

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
        bound="twice that of AUC",
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

    def slack(self, state: Any, found: Limits, rounding: Fraction) -> Fraction:
        return 16 * rounding


class AveragePrecision(ByRows, tag="average_precision"):
    """Average precision: the area under the precision-recall curve as a step function, ties taken together.

    Formula: sum over distinct scores, descending, of (change of recall) x precision. Not the trapezoid, which is
    optimistic. Definition as scikit-learn's `average_precision_score`.

    Parameters
    ----------
    zero_division : {nan, 0.0, 1.0}
        The value without positives, of a class, a label or (with `average="samples"`) a row: undefined, and left out of
        averages; or this. scikit-learn has 0.
    scale, bits, limit, exact, memory_limit, num_classes, labels, num_labels, average, on_invalid
        As for AUC.

    Notes
    -----
    Value: each bucket as one tie. Bound, with a positives and c negatives in a bucket, TP and FP above it and
    S = TP + FP + c: at most sum a/P (TP + a) / (TP + FP + a); at least sum [a TP/S + (FP + c)(x - log(1 + x))] / P with
    x = a/S, the integral below the worst order (TP and S half a row higher if rows are not weighted). Rounded outward.
    Cost as AUC.

    Examples
    --------
    >>> import streammetrics as sm
    >>> round(sm.AveragePrecision().update([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8]).compute(), 4)
    0.8333
    """

    about = About(
        formula="sum over distinct scores, descending, of (R_i - R_(i-1)) P_i",
        bound="positives first, and below the worst order, inside each bucket",
    )

    zero_division: float = setting(default=NAN, choices=(NAN, 0.0, 1.0))
    average: str | None = setting(default="macro", choices=(*AVERAGES, BY_ROWS))

    _row_terms = ("average_precision", "relevant")
    _standard_error = staticmethod(average_precision_error)
    _standard_errors = staticmethod(average_precision_errors)

    @property
    def _read_all_cells(self) -> Callable[[ScoreHistogram], Bounded] | None:
        return None if self._stands_in else average_precisions

    def of(self, state: ScoresByLabel) -> Limits | None:
        found = average_precision(state)
        return Limits.exactly(Fraction(self.undefined)) if found is None and self._stands_in else found

    @property
    def undefined(self) -> float:
        return self.zero_division

    @property
    def _stands_in(self) -> bool:
        return not math.isnan(self.undefined)

    def reason(self, state: ScoresByLabel) -> str | None:
        return None if self._stands_in else no_positives(state)


class KS(ScoredValue, tag="ks"):
    """Kolmogorov-Smirnov statistic: the largest gap between the score distributions of the two classes.

    Formula: max over thresholds of |TPR - FPR|. Equals `scipy.stats.ks_2samp(pos, neg).statistic`.

    Parameters
    ----------
    scale, bits, limit, exact, memory_limit, num_classes, labels, num_labels, average, on_invalid
        As for AUC.

    Notes
    -----
    Value: the largest gap at a bucket edge, which is reached. Bound: at most the largest of |D + a/P| and |D - c/N|, D
    the gap below a bucket of a positives and c negatives. Rounded outward. Cost as AUC.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.KS().update([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8]).compute()
    0.5
    """

    about = About(
        no_interval_reason=(
            "the largest of many gaps is drawn upward; "
            "AUC, or Recall and FalsePositiveRate at a threshold, have intervals"
        ),
        formula="max over thresholds of |TPR - FPR|",
        bound="from the edges of a bucket to its corners",
    )

    _read_all_cells = staticmethod(gaps)

    def of(self, state: ScoresByLabel) -> Limits | None:
        return gap(state)

    def slack(self, state: Any, found: Limits, rounding: Fraction) -> Fraction:
        return 8 * rounding
