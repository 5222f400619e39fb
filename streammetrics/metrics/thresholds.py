"""What the best threshold reaches, and which one that is; lift among the highest scores.

All read the rows by score. The value is that of a threshold which exists: the smallest score of a bucket, so that
`score >= threshold` has the counts reported. No threshold inside a bucket can do better than if its positives came first.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..numerics.exact import Mass, enclose
from ..numerics.settings import setting
from ..statistics.scores import ScoresByLabel
from .scores import RankingMetric

__all__ = ["Lift", "MaxFBeta", "PrecisionAtRecall", "RecallAtPrecision", "SensitivityAtSpecificity"]

Floats = NDArray[np.float64]
NAN = float("nan")
ROUNDING = 2.0**-50  # more than the few float64 steps of a ratio can lose, relatively


class Cuts(NamedTuple):
    """Counts above every threshold, from infinity down to the smallest score."""

    tp: Floats
    fp: Floats
    P: float
    N: float


class BestThreshold(RankingMetric[float]):
    """The best value that a threshold reaches."""

    cost = "that of AUC"
    bound = "at least at the edges of buckets; at most with positives first inside each"

    def score(self, cuts: Cuts) -> Floats:
        """Compute the value at each cut; -1 where a cut does not qualify. It rises with TP and falls with FP."""
        raise NotImplementedError

    def of(self, state: ScoresByLabel) -> float:
        edges = _edges(state)
        return float(self.score(edges).max()) if self.reason_of(state) is None else NAN

    def bounds_of(self, state: ScoresByLabel) -> tuple[float, float]:
        value = self.of(state)
        if state.is_exact or value != value:
            return value, value
        edges = _edges(state)
        corners = Cuts(np.r_[0.0, edges.tp[1:]], np.r_[0.0, edges.fp[:-1]], edges.P, edges.N)
        high = max(value, float(self.score(corners).max()))
        return value * (1 - ROUNDING), min(1.0, high * (1 + ROUNDING))

    def threshold(self) -> float:
        """Return the threshold that reaches the value: of several the highest; infinity if it selects nothing."""
        return self.threshold_of(self.state)

    def threshold_of(self, state: ScoresByLabel) -> float:
        """Return the threshold, from a state."""
        if self.reason_of(state) is not None:
            return NAN
        best = int(self.score(_edges(state)).argmax())
        return float(state.thresholds(_occupied(state)[best - 1 : best])[0]) if best else float("inf")

    def details(self, state: ScoresByLabel) -> dict[str, Any]:
        return {"threshold": self.threshold_of(state)}


def _occupied(state: ScoresByLabel) -> NDArray[np.int64]:
    """The cells that hold rows, from the highest score down."""
    return np.flatnonzero(state.positives.digits.any(axis=0) | state.negatives.digits.any(axis=0))[::-1]


def _edges(state: ScoresByLabel) -> Cuts:
    """Counts at the edges of the occupied cells, infinity first."""
    cells = _occupied(state)
    above, totals = [], []
    for mass in (state.positives, state.negatives):
        down, total = Mass(mass.digits[:, cells]), float(mass.total())
        upto = np.r_[0.0, down.before().floats() + down.floats()]  # which are rounded twice, and the total once
        above.append(np.minimum(upto, total))
        totals.append(total)
    return Cuts(*above, *totals)


class MaxFBeta(BestThreshold, tag="max_fbeta"):
    """The largest F-beta that a threshold reaches.

    Formula: max over thresholds of (1 + beta^2) TP / (beta^2 P + TP + FP).

    Parameters
    ----------
    beta : float
        How much more recall counts than precision; 1 for F1.
    scale, bits, exact, memory_limit, on_invalid
        As for AUC.

    Notes
    -----
    `threshold()` is the threshold: the smallest score of its bucket. It was chosen on these rows: its F on others will be
    lower. Bound: at most that of positives first inside each bucket. Cost as AUC.

    Examples
    --------
    >>> import streammetrics as sm
    >>> best = sm.MaxFBeta().update([0, 0, 1, 1], [0.125, 0.5, 0.25, 0.75])
    >>> best.compute(), best.threshold()
    (0.8, 0.25)
    """

    beta: float = setting(default=1.0, above=0.0, high=1e100)

    formula = "max over thresholds of (1 + beta^2) TP / (beta^2 P + TP + FP)"

    @property
    def name(self) -> str:
        return "max_f1" if self.beta == 1 else f"max_f{self.beta:g}"

    def score(self, cuts: Cuts) -> Floats:
        b = self.beta * self.beta
        return (1 + b) * cuts.tp / (b * cuts.P + cuts.tp + cuts.fp)

    def reason_of(self, state: ScoresByLabel) -> str | None:
        return None if state.positives.total() else "no positives"


class RecallAtPrecision(BestThreshold, tag="recall_at_precision"):
    """The largest recall that a threshold reaches at this precision, or a higher one.

    Formula: max TP / P over thresholds with TP / (TP + FP) >= precision; 0 if there is none.

    Parameters
    ----------
    precision : float
        The precision to keep.
    scale, bits, exact, memory_limit, on_invalid
        As for AUC.

    Notes
    -----
    Where no threshold is that precise the value is 0, and `threshold()` infinity, as torchmetrics has it. Bound: at most
    that of positives first inside each bucket. Cost as AUC.

    Examples
    --------
    >>> import streammetrics as sm
    >>> recall = sm.RecallAtPrecision(precision=0.6).update([0, 0, 1, 1], [0.125, 0.5, 0.25, 0.75])
    >>> recall.compute(), recall.threshold()
    (1.0, 0.25)
    """

    precision: float = setting(default=0.9, low=0.0, high=1.0)

    formula = "max of TP / P where TP / (TP + FP) >= precision"

    @property
    def name(self) -> str:
        return f"recall_at_precision@{self.precision:g}"

    def score(self, cuts: Cuts) -> Floats:
        above = cuts.tp + cuts.fp
        reached = np.divide(cuts.tp, above, out=np.full(len(above), -1.0), where=above > 0) >= self.precision
        return np.where(reached, cuts.tp / cuts.P, np.where(above > 0, -1.0, 0.0))

    def reason_of(self, state: ScoresByLabel) -> str | None:
        return None if state.positives.total() else "no positives"


class PrecisionAtRecall(BestThreshold, tag="precision_at_recall"):
    """The largest precision that a threshold reaches at this recall, or a higher one.

    Formula: max TP / (TP + FP) over thresholds with TP / P >= recall.

    Parameters
    ----------
    recall : float
        The recall to keep.
    scale, bits, exact, memory_limit, on_invalid
        As for AUC.

    Notes
    -----
    A threshold that selects nothing has no precision. Bound: at most that of positives first inside each bucket. Cost as
    AUC.

    Examples
    --------
    >>> import streammetrics as sm
    >>> precision = sm.PrecisionAtRecall(recall=0.5).update([0, 0, 1, 1], [0.125, 0.5, 0.25, 0.75])
    >>> precision.compute(), precision.threshold()
    (1.0, 0.75)
    """

    recall: float = setting(default=0.9, low=0.0, high=1.0)

    formula = "max of TP / (TP + FP) where TP / P >= recall"

    @property
    def name(self) -> str:
        return f"precision_at_recall@{self.recall:g}"

    def score(self, cuts: Cuts) -> Floats:
        above = cuts.tp + cuts.fp
        precision = np.divide(cuts.tp, above, out=np.full(len(above), -1.0), where=above > 0)
        return np.where(cuts.tp / cuts.P >= self.recall, precision, -1.0)

    def reason_of(self, state: ScoresByLabel) -> str | None:
        return None if state.positives.total() else "no positives"


class SensitivityAtSpecificity(BestThreshold, tag="sensitivity_at_specificity"):
    """The largest sensitivity (recall) that a threshold reaches at this specificity, or a higher one.

    Formula: max TP / P over thresholds with TN / N >= specificity.

    Parameters
    ----------
    specificity : float
        The specificity to keep.
    scale, bits, exact, memory_limit, on_invalid
        As for AUC.

    Notes
    -----
    Also: true positive rate at a false positive rate of 1 - specificity. Bound: at most that of positives first inside
    each bucket. Cost as AUC.

    Examples
    --------
    >>> import streammetrics as sm
    >>> best = sm.SensitivityAtSpecificity(specificity=0.5).update([0, 0, 1, 1], [0.125, 0.5, 0.25, 0.75])
    >>> best.compute(), best.threshold()
    (1.0, 0.25)
    """

    specificity: float = setting(default=0.9, low=0.0, high=1.0)

    formula = "max of TP / P where TN / N >= specificity"

    @property
    def name(self) -> str:
        return f"sensitivity_at_specificity@{self.specificity:g}"

    def score(self, cuts: Cuts) -> Floats:
        return np.where((cuts.N - cuts.fp) / cuts.N >= self.specificity, cuts.tp / cuts.P, -1.0)


class Lift(RankingMetric[float], tag="lift"):
    """Lift or cumulative gain among the highest scores: how many more positives than in as many rows at random.

    Formula: gain = TP / P of the `fraction` of rows (or weight) with the highest scores; lift = gain / fraction.

    Parameters
    ----------
    fraction : float
        Share of rows looked at, such as 0.1 for the top decile.
    kind : {"lift", "gain"}
        Lift, or the share of positives found.
    scale, bits, exact, memory_limit, on_invalid
        As for AUC.

    Notes
    -----
    Equal scores (and those of one bucket) at the cut count with the share of them that is within. Bound: negatives first,
    and positives first, in the bucket that the cut goes through. Cost as AUC.

    Examples
    --------
    >>> import streammetrics as sm
    >>> lift = sm.Lift(fraction=0.25).update([0, 0, 0, 1], [0.125, 0.5, 0.25, 0.75])
    >>> lift.compute()
    4.0
    """

    fraction: float = setting(default=0.1, above=0.0, high=1.0)
    kind: str = setting(default="lift", choices=("lift", "gain"))

    formula = "TP / P of the highest-scored fraction of rows, over the fraction"
    cost = "that of AUC"
    bound = "negatives first, positives first, in the bucket of the cut"

    @property
    def name(self) -> str:
        return f"{self.kind}@{self.fraction:g}"

    def of(self, state: ScoresByLabel) -> float:
        return self._limits(state)[1]

    def bounds_of(self, state: ScoresByLabel) -> tuple[float, float]:
        low, value, high = self._limits(state)
        return (value, value) if state.is_exact else (low, high)

    def reason_of(self, state: ScoresByLabel) -> str | None:
        return None if state.positives.total() else "no positives"

    def _limits(self, state: ScoresByLabel) -> tuple[float, float, float]:
        cells = _occupied(state)
        a, c = (Mass(m.digits[:, cells]) for m in (state.positives, state.negatives))
        P, whole = a.total(), a.total() + c.total()
        if not P:
            return NAN, NAN, NAN
        cut = Fraction(self.fraction) * whole
        above_a, above_c = a.before(), c.before()
        k = int(np.searchsorted(above_a.floats() + above_c.floats(), float(cut), side="right")) - 1
        while k > 0 and above_a.cell(k) + above_c.cell(k) > cut:
            k -= 1
        found, held, others = above_a.cell(k), a.cell(k), c.cell(k)
        inside = min(cut - found - above_c.cell(k), Fraction(held + others))
        middle = found + inside * Fraction(held, held + others) if held + others else Fraction(found)
        unit = P * (Fraction(self.fraction) if self.kind == "lift" else 1)
        least, most = max(inside - others, Fraction(0)), min(inside, Fraction(held))
        low, high = enclose((found + least) / unit, (found + most) / unit)
        return low, float(middle / unit), high
