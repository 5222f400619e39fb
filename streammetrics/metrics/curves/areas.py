"""Metrics of how well a score ranks positives above negatives: AUC, Gini, average precision, KS.

All read one `ScoreHistogram`, and carry a certified bound: what any scores inside the buckets could have made of it.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any, ClassVar, TypeVar

import numpy as np

from ...collect.interval import Estimate
from ...collect.metric import ScoredLabels
from ...numerics.exact import Limits, Mass
from ...numerics.settings import setting
from ...statistics.score_errors import area_error, area_errors, average_precision_error, average_precision_errors
from ...statistics.score_readouts import (
    Bounded,
    area,
    areas,
    average_precision,
    average_precisions,
    gap,
    gaps,
    pairs_without,
    quotients,
)
from ...statistics.scores import BITS, ScoreHistogram, ScoresByLabel
from ..averages import Several
from ..chance import WEIGHTED

__all__ = ["AUC", "KS", "AveragePrecision", "Gini"]

T = TypeVar("T")
NAN = float("nan")
SATURATED = (
    "most scores that share a bucket are below 2**-33 or above 1 - 2**-33, where more bits= change nothing: give logits "
    '(of classes the log-odds of each against the rest), with scale="logit"'
)


class RankingMetric(ScoredLabels[ScoresByLabel, T]):
    """A metric that reads the rows of each label by score: of a histogram, or exact."""

    scale: str = setting(default="probability", choices=("probability", "real", "logit"))
    bits: int | None = setting(default=None, low=8, high=24)
    limit: int | None = setting(default=None, low=0, high=1 << 31)
    exact: bool = setting(default=False)
    memory_limit: int = setting(default=1 << 32, low=0, operational=True)

    ranks = True
    best: ClassVar[str | None] = "high"
    cost = "1 MiB a label at 16 bits; about 1 ns a row, 4 of each of several labels; 1 ms to compute"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.exact and (self.bits is not None or self.limit is not None):
            raise ValueError(f"{type(self).__name__}: bits= and limit= are of a histogram; exact=True has none")

    def make_state(self) -> ScoresByLabel:
        if self.exact:
            return ScoreHistogram(scale=self.scale, bits=None, memory_limit=self.memory_limit)
        bits = self.bits if self.bits is not None else BITS[self.scale]
        return ScoreHistogram(scale=self.scale, bits=bits, limit=self.limit)

    def details(self, state: Any) -> dict[str, Any]:
        return super().details(state) | ({"hint": SATURATED} if getattr(state, "saturated", False) else {})

    within: ClassVar[tuple[int | None, int | None]] = (0, 1)

    def limits_binary(self, state: ScoresByLabel) -> Limits | None:
        """Return the value and its certified limits, before anything is rounded; None if undefined."""
        raise NotImplementedError

    def slack(self, state: ScoresByLabel, found: Limits, slip: Fraction) -> Fraction:
        """Return how much wider the limits are if each weight is off by `slip`, relatively."""
        return 8 * slip

    def of(self, state: ScoresByLabel) -> Any:
        found = self.limits_binary(state)
        return NAN if found is None else found.rounded()

    def bounds_of(self, state: ScoresByLabel) -> tuple[Any, Any]:
        found = self.limits_binary(state)
        if found is None:
            return NAN, NAN
        slip = state.slip
        return (found.widened(self.slack(state, found, slip), *self.within) if slip else found).outward()

    def reason_of(self, state: ScoresByLabel) -> str | None:
        negatives, positives = state.negatives.total(), state.positives.total()
        if not negatives and not positives:
            return "no rows"
        return None if negatives and positives else f"one class: no {'positives' if negatives else 'negatives'}"


class RankingValue(Several[ScoresByLabel], RankingMetric[Any]):
    """A number that is read from the rows of each label by score, of two classes or of several."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.exact and self.which:
            raise ValueError(f"{type(self).__name__}: exact=True is for two classes; give bits= for a finer histogram")

    def make_state(self) -> Any:
        return self.spread(super().make_state())

    @property
    def name(self) -> str:
        return self.suffixed(self.tag)

    within = (0, 1)

    def reason_of_binary(self, state: ScoresByLabel) -> str | None:
        return RankingMetric.reason_of(self, state)

    interval_scale = "logit"

    def error(self, state: ScoresByLabel) -> float | None:
        """Return the standard error of the value for two classes, of independent rows; None if it is not known."""
        return None

    def errors(self, state: ScoreHistogram) -> Any:
        """Return the standard error of every cell at once; None if it is read from each."""
        return None

    def estimate_of_binary(self, state: ScoresByLabel, method: str) -> Estimate:
        error = None if self.instead else self.error(state)
        if error is None:
            return super().estimate_of_binary(state, method)
        reason = WEIGHTED if state.weighted else self.reason_of_binary(state)
        return Estimate(self.of_binary(state), error, self.interval_scale, method, reason=reason)

    def estimate_of_stacked(self, state: Any) -> Estimate | None:
        errors = self.errors(state) if type(state) is ScoreHistogram and not self.instead else None
        if errors is None:
            return None
        return Estimate(np.array(self.of_cells(state)), errors, self.interval_scale, self.methods[0])

    all_cells: ClassVar[Callable[[ScoreHistogram], Bounded] | None] = None
    """Reads all cells of a histogram at once: to the bit what `of` and `bounds_of` read from each."""

    def _all_cells(self, state: ScoresByLabel) -> Bounded | None:
        read = type(self).all_cells
        if read is None or type(state) is not ScoreHistogram:
            return None
        weighted = any(e.excess is not None for e in state.cells.tallies.values())  # whose pairs fit no int64
        return None if weighted else read(state)

    def of_cells(self, state: ScoresByLabel) -> list[Any]:
        found = self._all_cells(state)
        return super().of_cells(state) if found is None else found.value.tolist()

    def limits_of_cells(self, state: ScoresByLabel) -> list[tuple[Any, Any]]:
        found = self._all_cells(state)
        if found is None:
            return super().limits_of_cells(state)
        return list(zip(found.low.tolist(), found.high.tolist(), strict=True))


class AUC(RankingValue, tag="auc"):
    """Area under the ROC curve: the chance that a positive scores above a negative, ties counting one half.

    Formula: (sum over pairs of [p > n] + [p = n] / 2) / (P N), from bucket counts a (positives) and c (negatives):
    sum a (C + c / 2) / (P N), with C the negatives in the buckets below. Exact integers, rounded once.

    Parameters
    ----------
    scale : {"probability", "real", "logit"}
        `probability`: scores in [0, 1]. `real` and `logit`: any finite score.
    bits : int, optional
        log2 of the number of buckets; 16 for probabilities (1 MiB), 19 otherwise (8 MiB, mostly untouched).
    limit : int, optional
        Rows that keep their exact scores, those of every class or label; with more all go to buckets. 65,536 from 16
        bits on, 0 below.
    exact : bool
        Keep every score instead of a histogram: no bound is needed, and memory grows by 24 bytes for every different
        score (float32 models have few millions).
    memory_limit : int
        Bytes that exact scores may take (4 GiB); MemoryLimitError beyond, and nothing was counted.
    max_fpr : float, optional
        Only the part up to this false positive rate, standardised as in McClish (1989): what scikit-learn's
        `roc_auc_score(max_fpr=)` returns.
    num_classes, labels : int, or tuple
        Rows are of one of several classes, 0, 1, ... or these, and `y_score` has a probability (or score) of each, rows x
        classes: each class against the rest.
    num_labels : int
        Rows have so many 0/1 labels, and a score of each: both columns are rows x labels.
    average : {"macro", "micro", "weighted", None}
        Of classes or labels: the mean of their values, the value of all of them as one, the mean weighted by positives, or
        an array of each. Undefined values are left out, and counted in `explain()`.
    on_invalid : {"raise", "drop"}
        Whether a bad row raises, or is left out and counted.

    Notes
    -----
    Bound: value ± sum a c / (2 P N). It is 0, and the value exact, if no score had bits beyond its bucket's: float16 and
    bfloat16 scores, of each scale. Typical for float32 at 16 bits: 2e-5 to 7e-5; true error 1e-6. Probabilities below
    2**-33, and above 1 - 2**-33, share a bucket; where that decides, as with softmax of a sure model, more bits change
    nothing, and `explain()` has a hint: give logits (of classes the log-odds of each against the rest), with
    `scale="logit"`. Up to `limit` rows nothing shares a bucket. Weights below 2**-8 may have bits below 2**-60, where they
    are rounded: then the bound has room for that, too.
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

    max_fpr: float | None = setting(default=None, above=0.0, high=1.0)

    methods = ("delong",)
    formula = "(sum over pairs of [p > n] + [p = n]/2) / (P N)"
    bound = "± sum a c / (2 P N) over buckets; 0 for half-precision scores"
    all_cells = areas

    def _all_cells(self, state: ScoresByLabel) -> Bounded | None:
        return super()._all_cells(state) if self._full else None

    @property
    def name(self) -> str:
        return self.suffixed("auc" if self._full else f"auc@{self.max_fpr:g}")

    @property
    def _full(self) -> bool:
        return self.max_fpr is None or self.max_fpr == 1.0

    def limits_binary(self, state: ScoresByLabel) -> Limits | None:
        return area(state) if self._full else self._partial(state)

    def without_of(self, shards: Any, at: Any, cells: int) -> tuple[Any, Any] | None:
        return _each_without(shards, at, cells, lambda n, p, twice: (twice, 2 * n * p)) if self._full else None

    def slack(self, state: ScoresByLabel, found: Limits, slip: Fraction) -> Fraction:
        return 8 * slip if self._full else 8 * slip / (self._rate - self._rate**2 / 2)

    @property
    def _rate(self) -> Fraction:
        return Fraction(self.max_fpr or 1.0)

    def _partial(self, state: ScoresByLabel) -> Limits | None:
        """Area up to max_fpr; the ROC inside a bucket lies between its two corners."""
        positives, negatives = state.positives, state.negatives
        P, N = positives.total(), negatives.total()
        if not P or not N:
            return None
        a, c = Mass(positives.digits[:, ::-1]), Mass(negatives.digits[:, ::-1])
        above = a.before()
        cut = self._rate * N
        k = _crossing(c.before(), cut)
        base, ties = c[slice(k)].dot(above[slice(k)]), c[slice(k)].dot(a[slice(k)])
        part = cut - c.before().cell(k)  # negatives of the bucket that max_fpr cuts
        share = part / c.cell(k) if c.cell(k) else Fraction(0)
        low = Fraction(base) + part * above.cell(k)
        high = low + ties + part * a.cell(k)
        middle = low + Fraction(ties, 2) + part * share * a.cell(k) / 2
        chance = self._rate**2 / 2

        def standard(part: Fraction) -> Fraction:
            return (1 + (part / (P * N) - chance) / (self._rate - chance)) / 2

        found = Limits(standard(low), standard(middle), standard(high))
        return Limits(found.value, found.value, found.value) if state.is_exact else found

    def error(self, state: ScoresByLabel) -> float | None:
        return area_error(state) if self._full else None

    def errors(self, state: ScoreHistogram) -> Any:
        return area_errors(state) if self._full else None


def _each_without(shards: Any, at: Any, cells: int, form: Callable[..., Any]) -> tuple[Any, Any] | None:
    """What numerator and denominator that are formed of pairs make, of cells and of each without each of its shards."""
    found = pairs_without(shards, at, cells) if type(shards) is ScoreHistogram else None
    return None if found is None else (quotients(*form(*found[0].T)), quotients(*form(*found[1].T)))


def _crossing(before: Mass, cut: Fraction) -> int:
    """Return the last cell that begins before `cut`."""
    low, high = 0, before.digits.shape[1] - 1
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if before.cell(middle) < cut else (low, middle - 1)
    return low


class Gini(RankingValue, tag="gini"):
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

    methods, interval_scale = ("delong",), "fisher"
    formula = "2 AUC - 1"
    bound = "twice that of AUC"

    within = (-1, 1)

    def limits_binary(self, state: ScoresByLabel) -> Limits | None:
        found = area(state)
        return None if found is None else Limits(*(2 * x - 1 for x in found))

    def without_of(self, shards: Any, at: Any, cells: int) -> tuple[Any, Any] | None:
        return _each_without(shards, at, cells, lambda n, p, twice: (twice - n * p, n * p))

    def slack(self, state: ScoresByLabel, found: Limits, slip: Fraction) -> Fraction:
        return 16 * slip

    def error(self, state: ScoresByLabel) -> float | None:
        return 2 * area_error(state)

    def errors(self, state: ScoreHistogram) -> Any:
        return 2 * area_errors(state)


class AveragePrecision(RankingValue, tag="average_precision"):
    """Average precision: the area under the precision-recall curve as a step function, ties taken together.

    Formula: sum over distinct scores, descending, of (change of recall) x precision. Not the trapezoid, which is
    optimistic. Definition as scikit-learn's `average_precision_score`.

    Parameters
    ----------
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

    formula = "sum over distinct scores, descending, of (R_i - R_(i-1)) P_i"
    bound = "positives first, and below the worst order, inside each bucket"
    all_cells = average_precisions

    def error(self, state: ScoresByLabel) -> float | None:
        return average_precision_error(state)

    def errors(self, state: ScoreHistogram) -> Any:
        return average_precision_errors(state)

    def limits_binary(self, state: ScoresByLabel) -> Limits | None:
        return average_precision(state)

    def reason_of_binary(self, state: ScoresByLabel) -> str | None:
        return None if state.positives.total() else "no positives"


class KS(RankingValue, tag="ks"):
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

    instead = (
        "the largest of many gaps is drawn upward; AUC, or Recall and FalsePositiveRate at a threshold, have intervals"
    )
    formula = "max over thresholds of |TPR - FPR|"
    bound = "from the edges of a bucket to its corners"
    all_cells = gaps

    def limits_binary(self, state: ScoresByLabel) -> Limits | None:
        return gap(state)

    def slack(self, state: ScoresByLabel, found: Limits, slip: Fraction) -> Fraction:
        return 8 * slip
