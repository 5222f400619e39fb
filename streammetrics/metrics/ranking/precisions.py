"""Variants of precision: at recall levels, at every k, combined with gains, or as a geometric mean over queries."""

from __future__ import annotations

import math
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...numerics import elementary
from ...numerics.exact import to_float
from ...numerics.settings import setting
from ...reading.about import About, about_of
from ...reading.interval import QUERIES, Estimate
from ...reading.reading import OwnReading, Reading
from ...statistics.ranking import RankingSums
from ..standard_errors import delta
from .gains import RankingMetric
from .judged_documents import OneOrder
from .mean import Empty
from .relevance import RelevanceMetric

__all__ = [
    "ElevenPointPrecision",
    "GeometricBPref",
    "GeometricMAP",
    "InterpolatedPrecision",
    "PrecisionRecallAtK",
    "PrecisionsAndRecalls",
    "QMeasure",
    "RecallAtFixedPrecision",
]

Floats = NDArray[np.float64]


class InterpolatedPrecision(OneOrder, tag="interpolated_precision"):
    """Interpolated precision: the highest precision where recall is at least a given level, averaged over queries.

    Formula: max of hits@i / i over ranks i with hits@i >= floor(recall * R + 0.9), where R is the number of relevant
    documents. The value is 0 if there is no such rank.

    Parameters
    ----------
    recall : float
        The recall level, in [0, 1].

    Notes
    -----
    With `ties="document"`, the definition matches trec_eval's `iprec_at_recall`, including its rounding: with three
    relevant documents, recall 0.7 requires two of them, because 0.7 * 3 + 0.9 is just below 3 in float64. The value is
    undefined without queries.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.InterpolatedPrecision(0.5).update([0, 1, 1, 0], [4, 3, 2, 1], query=[1] * 4).compute()
    0.6666666666666666
    """

    about = About(formula="mean over queries of the largest hits@i / i where recall is at least the level")

    recall: float = setting(default=0.5, low=0.0, high=1.0, kw_only=False)

    measure = "iprec"

    @property
    def terms(self) -> tuple[tuple[Any, ...], ...]:
        return ((self.measure, None, self.recall),)

    @property
    def name(self) -> str:
        return f"{self.about.tag}@{self.recall:g}"


class ElevenPointPrecision(OneOrder, tag="eleven_point_precision"):
    """Eleven-point average precision: the mean interpolated precision at recall 0, 0.1, ..., 1, averaged over queries.

    Formula: (1 / 11) * (sum over j = 0, ..., 10 of the interpolated precision at recall j / 10).

    Notes
    -----
    With `ties="document"`, the definition matches trec_eval's `11pt_avg`. The value is undefined without queries.

    Examples
    --------
    >>> import streammetrics as sm
    >>> round(sm.ElevenPointPrecision().update([1, 0, 1, 0], [4, 3, 2, 1], query=[1] * 4).compute(), 4)
    0.8485
    """

    about = About(formula="mean over queries of the mean interpolated precision at recall 0, 0.1, ..., 1")

    measure = "eleven_points"


class QMeasure(RankingMetric, tag="q_measure"):
    """Q-measure: an average precision in which documents also count by their gains, averaged over queries.

    Formula: (1 / min(R, k)) * (sum of (hits@i + b * cg@i) / (i + b * icg@i) over the ranks i <= k that hold relevant
    documents), where b is beta, R is the number of relevant documents, and cg and icg are the cumulative gains of the
    actual and ideal rankings.

    Parameters
    ----------
    beta : float
        The weight of gains relative to hits; 0 gives average precision.
    empty : {0, "skip", 1}
        The value of a query without a relevant document: 0 or 1; "skip" leaves the query out.

    Notes
    -----
    The value is undefined without queries. Source: Sakai, "New performance metrics based on multigrade relevance"
    (2004), and his NTCIREVAL program.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.QMeasure().update([1, 0, 3], [3, 2, 1], query=[1] * 3).compute()
    0.6785714285714286
    """

    about = About(
        formula=(
            "mean over queries of (1 / min(R, k)) sum over ranks i <= k of relevant documents of "
            "(hits@i + beta cg@i) / (i + beta icg@i), cg and icg the actual and ideal cumulative gain"
        )
    )

    beta: float = setting(default=1.0, low=0.0, high=1e6)
    empty: Empty = setting(default=0.0, choices=(0.0, "skip", 1.0))

    measure = "q"

    @property
    def terms(self) -> tuple[tuple[Any, ...], ...]:
        return ((self.measure, self.k, self.beta),)


class GeometricQueryMean(RelevanceMetric):
    """Base class for geometric means of a measure over queries; values below a floor are replaced with the floor."""

    about = About(
        bound="the logarithms are summed exactly; with the default floor, the relative error is at most 1e-14",
        interval_scale="log",
        read_cells=None,
    )

    floor: float = setting(default=1e-5, above=0.0, high=0.5)

    @property
    def terms(self) -> tuple[tuple[Any, ...], ...]:
        return ((self.measure, self.k, self.floor),)

    @property
    def _others(self) -> float | None:
        """The term that a query without a relevant document adds to the sum; None leaves the query out.

        The term of a query is log(value) / log(floor): 0 for the value 1, and 1 for values up to the floor.
        """
        return {"skip": None, 0.0: 1.0, 1.0: 0.0}[self.empty]

    def of(self, state: RankingSums) -> Any:
        # The state sums log(measure) / log(floor), which lies in [0, 1], so multiply the mean by log(floor) before taking
        # `exp`.
        mean = super().of(state)
        if not mean.denominator:
            return math.nan
        return float(elementary.exp(elementary.log(self.floor) * to_float(*mean)))

    def read(self, state: RankingSums) -> Reading:
        return OfLogs(self, state)

    def estimate(self, reading: Reading, method: str) -> Estimate:
        state: Any = reading.state
        spread = state.estimate_means(self._others, *self.terms[0])
        slope = float(elementary.log(self.floor)) * reading.value
        return delta(
            reading.value, spread, lambda _: (slope,), about_of(self).interval_scale, method, (0.0, 1.0), QUERIES
        )


class OfLogs(OwnReading):
    """The value and bounds of a geometric mean; the bounds allow for the rounding of weights."""

    def _bounds(self) -> tuple[float, float]:
        # Rounded weights change the mean of log(measure) / log(floor) by at most 8 times the rounding error of a weight.
        # The relative change of the value is about this change times -log(floor). The factor 1.01 covers the curvature of
        # the exponential.
        value, slip = self.value, self.state.weight_rounding
        off = float(8 * slip) * -math.log(self.metric.floor) * 1.01 + (2.0**-50 if slip else 0.0)
        return value * (1 - off), value * (1 + off)


class GeometricMAP(GeometricQueryMean, tag="geometric_map"):
    """Geometric mean of average precision over queries, which emphasizes queries with low values.

    Formula: exp(mean over queries of log(max(AP, floor))), where AP is the average precision, whose denominator is the
    total number of relevant documents.

    Parameters
    ----------
    floor : float
        The smallest value of a query: a lower average precision is raised to it. The default, 0.00001, matches
        trec_eval.

    Notes
    -----
    The definition matches trec_eval's `gm_map`. Logarithms in float64 are summed exactly; with the default floor,
    the relative error of the value is at most about 1e-14. The value is undefined without queries. Source: Robertson,
    "On GMAP and other transformations" (2006).

    Examples
    --------
    >>> import streammetrics as sm
    >>> rows = dict(y_true=[1, 0, 0, 0, 0, 1], y_score=[3, 2, 1] * 2, query=[1, 1, 1, 2, 2, 2])
    >>> round(sm.GeometricMAP().update(rows).compute(), 12)
    0.57735026919
    """

    about = About(formula="exp(mean over queries of log(max(AP, floor))), floor a small positive number")

    measure = "log_ap"


class GeometricBPref(OneOrder, GeometricQueryMean, tag="geometric_bpref"):
    """Geometric mean of binary preference (bpref) over queries, which emphasizes queries with low values.

    Formula: exp(mean over queries of log(max(bpref, floor))).

    Parameters
    ----------
    floor : float
        The smallest value of a query: lower values are raised to it, so that the geometric mean is not 0.

    Notes
    -----
    State and cost are the same as for `GeometricMAP`. With `ties="document"`, the definition matches trec_eval's
    `gm_bpref`. The value is undefined without queries.

    Examples
    --------
    >>> import streammetrics as sm
    >>> rows = dict(y_true=[1, 0, 1, 0, 1, 0], y_score=[3, 2, 1] * 2, query=[1, 1, 1, 2, 2, 2])
    >>> round(sm.GeometricBPref().update(rows).compute(), 5)
    0.00224
    """

    about = About(formula="exp(mean over queries of log(max(bpref, floor))), floor a small positive number")

    missing: str = setting(default="unjudged", choices=("unjudged", "raise"))

    measure = "log_bpref"


class PrecisionsAndRecalls(NamedTuple):
    """Precision and recall of the first k documents, for each k.

    Parameters
    ----------
    k : int64 array
        The numbers of documents at the top of the ranking: 1, 2, and so on.
    precision, recall : float64 arrays
        The precision and recall of the first k documents, averaged over queries.
    """

    k: NDArray[np.int64]
    precision: Floats
    recall: Floats


class PrecisionRecallAtK(RelevanceMetric, tag="precision_recall_at_k"):
    """Precision and recall of the first 1, 2, ..., k documents of a query, averaged over queries.

    Formula: precision@i and recall@i for i = 1, ..., k.

    Parameters
    ----------
    k : int
        The largest cut-off i, the number of documents at the top of the ranking.

    Notes
    -----
    An update takes about 7 ns per document, as for `CumulativeGain`, and the state takes 64 bytes for each i. The
    definition matches torchmetrics' `RetrievalPrecisionRecallCurve`. The values are NaN without queries.

    Examples
    --------
    >>> import streammetrics as sm
    >>> curve = sm.PrecisionRecallAtK(2).update([1, 0, 0, 1], [4, 3, 2, 1], query=[7] * 4).compute()
    >>> curve.precision.tolist(), curve.recall.tolist()
    ([1.0, 0.5], [0.5, 0.5])
    """

    about = About(
        read_cells=None,
        formula="means over queries of precision@i and recall@i, for each i <= k",
        no_interval_reason="a curve has no single standard error; PrecisionAtK(k) and RecallAtK(k) have intervals",
    )

    k: int = setting(default=10, low=1, high=1000, kw_only=False)

    @property
    def terms(self) -> tuple[tuple[Any, ...], ...]:
        return tuple((what, i) for what in ("precision", "recall") for i in range(1, self.k + 1))

    def _precisions_and_recalls(self, state: RankingSums) -> Floats:
        # `weight` is the denominator of the mean. It includes queries without a relevant document unless they are skipped.
        # If the value of these queries is 1, they also add their weight to each sum.
        empty = state.weight(empty=True)
        weight, more = state.weight() + (0 if self.empty == "skip" else empty), empty if self.empty == 1.0 else 0
        return np.array([to_float(state.total(*t) + more, weight) for t in self.terms]).reshape(2, self.k)

    def of(self, state: RankingSums) -> Any:
        return PrecisionsAndRecalls(np.arange(1, self.k + 1), *self._precisions_and_recalls(state))

    def read(self, state: RankingSums) -> Reading:
        return super().read(state).having(bounds=partial(self._bounds, state))

    def _bounds(self, state: RankingSums) -> tuple[PrecisionsAndRecalls, PrecisionsAndRecalls]:
        low, high = (PrecisionsAndRecalls(np.arange(1, self.k + 1), *side) for side in self._sides(state))
        return low, high

    def _sides(self, state: RankingSums) -> tuple[Floats, Floats]:
        """Return the lower and upper bounds of all precisions and recalls, as two arrays of shape (2, k).

        The bounds allow only for the rounding of weights.
        """
        both, off = self._precisions_and_recalls(state), float(16 * state.weight_rounding)
        return (np.maximum(both - off, 0.0), both + off) if off else (both, both)


class RecallAtFixedPrecision(PrecisionRecallAtK, tag="recall_at_fixed_precision"):
    """Recall at a fixed precision: the largest recall at a cut-off up to k where precision is at least a given value.

    Formula: max of recall@i over i <= k with precision@i >= precision, where both are means over queries.

    Parameters
    ----------
    k : int
        The largest cut-off i, the number of documents at the top of the ranking.
    precision : float
        The lowest precision allowed.

    Notes
    -----
    An update takes about 7 ns per document, as for `CumulativeGain`, and the state takes 64 bytes for each i. The
    definition matches torchmetrics' `RetrievalRecallAtFixedPrecision`. `explain()` gives the cut-off i that has this
    recall. The value is undefined without queries.

    Examples
    --------
    >>> import streammetrics as sm
    >>> rows = dict(y_true=[1, 0, 0, 1], y_score=[4, 3, 2, 1], query=[7] * 4)
    >>> sm.RecallAtFixedPrecision(4, precision=0.5).update(rows).compute()
    1.0
    """

    about = About(
        formula="largest recall@i with i <= k and precision@i >= precision, both means over queries; otherwise 0",
        no_interval_reason="a maximum over k has no standard error; RecallAtK(k) for a fixed k has an interval",
    )

    precision: float = setting(default=0.5, low=0.0, high=1.0)

    def of(self, state: RankingSums) -> Any:
        return self._greatest(*self._precisions_and_recalls(state))

    def _greatest(self, precision: Any, recall: Any) -> float:
        """Return the largest recall among the cut-offs whose precision is at least the required precision.

        The result is 0 if there is no such cut-off, and NaN without queries.
        """
        return math.nan if np.isnan(precision[0]) else float(np.where(precision >= self.precision, recall, 0.0).max())

    def read(self, state: RankingSums) -> Reading:
        return super().read(state).having(bounds=partial(self._limits, state), details=partial(self._details, state))

    def _limits(self, state: RankingSums) -> tuple[float, float]:
        """Return the bounds on the value.

        Rounded weights change precisions as well as recalls, so they also affect which cut-offs reach the required
        precision.
        """
        low, high = (self._greatest(*side) for side in self._sides(state))
        return low, high

    def _details(self, state: RankingSums) -> dict[str, Any]:
        precision, recall = self._precisions_and_recalls(state)
        good = np.where(precision >= self.precision, recall, -1.0)
        return {"k": int(good.argmax()) + 1 if good.max() >= 0 else None}
