"""Metrics of precision on the way down a ranking: at levels of recall, at every k, beside gain; a geometric mean."""

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
from .judged import OneOrder
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
    """Interpolated precision at a recall: the highest precision at any place from which on recall is reached.

    Formula: max of hits@i / i over places i with hits@i >= floor(recall R + 0.9), 0 if there is none.

    Parameters
    ----------
    recall : float
        The level of recall, in [0, 1].
    ties, missing, relevance_level, empty, on_invalid
        As for BPref, but a null grade is an error by default.

    Notes
    -----
    Cost as CumulativeGain, 120 bytes. As trec_eval's `iprec_at_recall` with `ties="document"`, its way to round included:
    of three relevant documents recall 0.7 asks for two. Undefined without queries.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.InterpolatedPrecision(0.5).update([0, 1, 1, 0], [4, 3, 2, 1], query=[1] * 4).compute()
    0.6666666666666666
    """

    about = About(formula="mean over queries of max of hits@i / i where recall is reached")

    recall: float = setting(default=0.5, low=0.0, high=1.0, kw_only=False)

    measure = "iprec"

    @property
    def terms(self) -> tuple[tuple[Any, ...], ...]:
        return ((self.measure, None, self.recall),)

    @property
    def name(self) -> str:
        return f"{self.about.tag}@{self.recall:g}"


class ElevenPointPrecision(OneOrder, tag="eleven_point_precision"):
    """Eleven-point average precision: the interpolated precision at recall 0, 0.1, ..., 1, a mean over these and queries.

    Formula: (1/11) sum of interpolated precision at recall j/10.

    Parameters
    ----------
    ties, missing, relevance_level, empty, on_invalid
        As for InterpolatedPrecision.

    Notes
    -----
    Cost as CumulativeGain, 120 bytes. As trec_eval's `11pt_avg` with `ties="document"`. Undefined without queries.

    Examples
    --------
    >>> import streammetrics as sm
    >>> round(sm.ElevenPointPrecision().update([1, 0, 1, 0], [4, 3, 2, 1], query=[1] * 4).compute(), 4)
    0.8485
    """

    about = About(formula="mean over queries of the mean interpolated precision at recall 0, 0.1, ..., 1")

    measure = "eleven_points"


class QMeasure(RankingMetric, tag="q_measure"):
    """Q-measure: average precision in which a document counts by its gain, too.

    Formula: (1 / min(R, k)) sum over relevant places i <= k of (hits@i + b cg@i) / (i + b ideal cg@i).

    Parameters
    ----------
    k, ties, missing, on_invalid
        As for CumulativeGain; documents of a grade above 0 are relevant.
    beta : float
        How much gain counts beside hits; 0 makes it average precision.
    empty : {0, "skip", 1}
        As for PrecisionAtK.

    Notes
    -----
    Cost as CumulativeGain, 120 bytes. Undefined without queries. Source: Sakai, "New performance metrics based on
    multigrade relevance" (2004); NTCIREVAL.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.QMeasure().update([1, 0, 3], [3, 2, 1], query=[1] * 3).compute()
    0.6785714285714286
    """

    about = About(formula="mean over queries of (1/min(R, k)) sum of (hits@i + b cg@i) / (i + b icg@i)")

    beta: float = setting(default=1.0, low=0.0, high=1e6)
    empty: Empty = setting(default=0.0, choices=(0.0, "skip", 1.0))

    measure = "q"

    @property
    def terms(self) -> tuple[tuple[Any, ...], ...]:
        return ((self.measure, self.k, self.beta),)


class GeometricQueryMean(RelevanceMetric):
    """A geometric mean over queries of a measure, no less than a floor."""

    about = About(bound="exact sums of logs; then an exponential, 2 ulp", interval_scale="log", read_cells=None)

    floor: float = setting(default=1e-5, above=0.0, high=0.5)

    @property
    def terms(self) -> tuple[tuple[Any, ...], ...]:
        return ((self.measure, self.k, self.floor),)

    @property
    def _others(self) -> float | None:
        """What a query without a relevant document adds to the sum of logs over log(floor)."""
        return {"skip": None, 0.0: 1.0, 1.0: 0.0}[self.empty]

    def of(self, state: RankingSums) -> Any:
        mean = super().of(state)  # of logs over log(floor)
        if not mean.denominator:
            return math.nan
        return float(elementary.exp(elementary.log(self.floor) * to_float(*mean)))

    def read(self, state: RankingSums) -> Reading:
        return OfLogs(self, state)

    def estimate(self, found: Reading, method: str) -> Estimate:
        state: Any = found.state
        spread = state.spread_of(self._others, *self.terms[0])
        slope = float(elementary.log(self.floor)) * found.value
        return delta(
            found.value, spread, lambda _: (slope,), about_of(self).interval_scale, method, (0.0, 1.0), QUERIES
        )


class OfLogs(OwnReading):
    """The reading of a geometric mean: rounded weights change its logarithm."""

    def _bounds(self) -> tuple[float, float]:
        value, slip = self.value, self.state.slip
        off = float(8 * slip) * -math.log(self.metric.floor) * 1.01 + (2.0**-50 if slip else 0.0)
        return value * (1 - off), value * (1 + off)


class GeometricMAP(GeometricQueryMean, tag="geometric_map"):
    """Geometric mean average precision: what queries that fail pull down; each counts no less than a floor.

    Formula: exp(mean over queries of log(max(AP, floor))), with AP divided by all relevant documents.

    Parameters
    ----------
    k, ties, missing, relevance_level, empty, on_invalid
        As for PrecisionAtK; ties are averaged within AP.
    floor : float
        What a query counts whose average precision is less: 0.00001 (trec_eval).

    Notes
    -----
    Cost as CumulativeGain, 150 bytes. As trec_eval's `gm_map`. Exact sums of logs in float64, then one exponential, an ulp
    or two off. Undefined without queries. Source: Robertson, "On GMAP and other transformations" (2006).

    Examples
    --------
    >>> import streammetrics as sm
    >>> rows = dict(y_true=[1, 0, 0, 0, 0, 1], y_score=[3, 2, 1] * 2, query=[1, 1, 1, 2, 2, 2])
    >>> round(sm.GeometricMAP().update(rows).compute(), 12)
    0.57735026919
    """

    about = About(formula="exp(mean over queries of log(max(AP, floor)))")

    measure = "log_ap"


class GeometricBPref(OneOrder, GeometricQueryMean, tag="geometric_bpref"):
    """Geometric mean of binary preference: queries that fail pull it down; each counts no less than a floor.

    Formula: exp(mean over queries of log(max(bpref, floor))).

    Parameters
    ----------
    ties, missing, relevance_level, empty, on_invalid
        As for BPref.
    floor
        As for GeometricMAP.

    Notes
    -----
    Cost as GeometricMAP. As trec_eval's `gm_bpref` with `ties="document"`. Undefined without queries.

    Examples
    --------
    >>> import streammetrics as sm
    >>> rows = dict(y_true=[1, 0, 1, 0, 1, 0], y_score=[3, 2, 1] * 2, query=[1, 1, 1, 2, 2, 2])
    >>> round(sm.GeometricBPref().update(rows).compute(), 5)
    0.00224
    """

    about = About(formula="exp(mean over queries of log(max(bpref, floor)))")

    missing: str = setting(default="unjudged", choices=("unjudged", "raise"))

    measure = "log_bpref"


class PrecisionsAndRecalls(NamedTuple):
    """Precision and recall of the first k documents, for each k.

    Parameters
    ----------
    k : int64 array
        1, 2, and so on.
    precision, recall : float64 arrays
        Means over queries.
    """

    k: NDArray[np.int64]
    precision: Floats
    recall: Floats


class PrecisionRecallAtK(RelevanceMetric, tag="precision_recall_at_k"):
    """Precision and recall of the first k documents for every k up to a greatest, means over queries.

    Formula: precision@i and recall@i for i = 1, ..., k.

    Parameters
    ----------
    k : int
        The greatest.
    ties, missing, relevance_level, empty, on_invalid
        As for PrecisionAtK.

    Notes
    -----
    Cost as CumulativeGain, 64 bytes for each k. As torchmetrics' `RetrievalPrecisionRecallCurve`. NaN without queries.

    Examples
    --------
    >>> import streammetrics as sm
    >>> curve = sm.PrecisionRecallAtK(2).update([1, 0, 0, 1], [4, 3, 2, 1], query=[7] * 4).compute()
    >>> curve.precision.tolist(), curve.recall.tolist()
    ([1.0, 0.5], [0.5, 0.5])
    """

    about = About(
        read_cells=None,
        formula="precision@i, recall@i, i <= k",
        no_interval_reason="a curve has no interval of its own: PrecisionAtK(k) and RecallAtK(k) have",
    )

    k: int = setting(default=10, low=1, high=1000, kw_only=False)

    @property
    def terms(self) -> tuple[tuple[Any, ...], ...]:
        return tuple((what, i) for what in ("precision", "recall") for i in range(1, self.k + 1))

    def _both(self, state: RankingSums) -> Floats:
        empty = state.weight(empty=True)
        weight, more = state.weight() + (0 if self.empty == "skip" else empty), empty if self.empty == 1.0 else 0
        return np.array([to_float(state.total(*t) + more, weight) for t in self.terms]).reshape(2, self.k)

    def of(self, state: RankingSums) -> Any:
        return PrecisionsAndRecalls(np.arange(1, self.k + 1), *self._both(state))

    def read(self, state: RankingSums) -> Reading:
        return super().read(state).having(bounds=partial(self._bounds, state))

    def _bounds(self, state: RankingSums) -> tuple[PrecisionsAndRecalls, PrecisionsAndRecalls]:
        low, high = (PrecisionsAndRecalls(np.arange(1, self.k + 1), *side) for side in self._sides(state))
        return low, high

    def _sides(self, state: RankingSums) -> tuple[Floats, Floats]:
        """The least and the most of both: a share is as far off as weights are, however small it is."""
        both, off = self._both(state), float(16 * state.slip)
        return (np.maximum(both - off, 0.0), both + off) if off else (both, both)


class RecallAtFixedPrecision(PrecisionRecallAtK, tag="recall_at_fixed_precision"):
    """The greatest recall of the first i documents, i <= k, where precision is at least so much; 0 if it never is.

    Formula: max of recall@i over i <= k with precision@i >= precision, both means over queries.

    Parameters
    ----------
    k : int
        The greatest i.
    precision : float
        The least precision.
    ties, missing, relevance_level, empty, on_invalid
        As for PrecisionAtK.

    Notes
    -----
    Cost as CumulativeGain, 64 bytes for each i. As torchmetrics' `RetrievalRecallAtFixedPrecision`; `explain()` says the
    i. Undefined without queries.

    Examples
    --------
    >>> import streammetrics as sm
    >>> rows = dict(y_true=[1, 0, 0, 1], y_score=[4, 3, 2, 1], query=[7] * 4)
    >>> sm.RecallAtFixedPrecision(4, precision=0.5).update(rows).compute()
    1.0
    """

    about = About(
        formula="max of recall@i, i <= k, with precision@i >= precision",
        no_interval_reason="a maximum over k has no standard error: fix k, and take RecallAtK(k)",
    )

    precision: float = setting(default=0.5, low=0.0, high=1.0)

    def of(self, state: RankingSums) -> Any:
        return self._greatest(*self._both(state))

    def _greatest(self, precision: Any, recall: Any) -> float:
        """The greatest recall of those that are precise enough; NaN if nothing is known."""
        return math.nan if np.isnan(precision[0]) else float(np.where(precision >= self.precision, recall, 0.0).max())

    def read(self, state: RankingSums) -> Reading:
        return super().read(state).having(bounds=partial(self._limits, state), details=partial(self._details, state))

    def _limits(self, state: RankingSums) -> tuple[float, float]:
        """Return the bounds: weights that were rounded decide which precisions are large enough, too."""
        low, high = (self._greatest(*side) for side in self._sides(state))
        return low, high

    def _details(self, state: RankingSums) -> dict[str, Any]:
        precision, recall = self._both(state)
        good = np.where(precision >= self.precision, recall, -1.0)
        return {"k": int(good.argmax()) + 1 if good.max() >= 0 else None}
