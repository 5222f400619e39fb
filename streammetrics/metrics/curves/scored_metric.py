"""Base classes for metrics that are computed from the number of positives and negatives at each score.

The counts are kept in a histogram of the scores, or for each distinct score.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import numpy as np

from ...collect.metric import ScoredLabels, no_weight_reason
from ...numerics.settings import setting
from ...reading.about import About, about_of
from ...reading.answers import identity_of
from ...reading.interval import Estimate
from ...reading.reading import CellReadings, Reading
from ...state.state import State
from ...statistics.by_label import make_label_statistic
from ...statistics.score_readouts import CellBounds
from ...statistics.scores import BITS, ScoreHistogram, ScoresByLabel
from ..averages import Several
from ..standard_errors import WEIGHTED

__all__ = ["ScoredMetric", "ScoredValue", "no_positives", "one_class"]

T = TypeVar("T")


def no_positives(state: ScoresByLabel) -> str | None:
    """Return the reason why a share of the positives is undefined, or None if there are positives."""
    return None if state.positives.total() else no_weight_reason(state) or "no positives"


def one_class(state: ScoresByLabel) -> str | None:
    """Return the reason why positives and negatives cannot be compared, or None if there are both."""
    if (nothing := no_weight_reason(state)) is not None:
        return nothing
    negatives, positives = state.negatives.total(), state.positives.total()
    return None if negatives and positives else f"one class: no {'positives' if negatives else 'negatives'}"


class ScoredMetric(ScoredLabels[ScoresByLabel, T]):
    """Base class for metrics that are computed from the number of positives and negatives at each score.

    Parameters
    ----------
    scale : {"probability", "real", "logit"}
        The scale of the scores: numbers in [0, 1] ("probability") or any finite numbers ("real", "logit"). Logits for
        several classes are ranked by the softmax of their row, and logits for labels separately in each column.
    bits : int, optional
        The base-2 logarithm of the number of histogram buckets: by default 16 for probabilities (1 MiB) and 19 otherwise
        (8 MiB of address space, most of which is usually never touched).
    limit : int, optional
        The largest number of rows, counted over all classes or labels, for which every score is kept exactly. With more
        rows, all scores are moved to the histogram. The default is 65,536 if `bits` is at least 16, and 0 otherwise.
        With two classes, there is one exception: up to 2**20 distinct real scores stay exact (40 MB) if they are far from
        0 and so close together that they would fall into only a few buckets.
    exact : bool
        Whether to keep every distinct score rather than a histogram. The value is then exact, and memory grows by 16
        bytes for each distinct score of a label, or 32 with weights. A model with float32 scores has a few million
        distinct scores.
    memory_limit : int
        The maximum memory for exact scores, in bytes (4 GiB by default). An update that would exceed it raises
        MemoryLimitError, and none of its rows are counted.
    """

    about = About(
        rank_based=True,
        best="high",
        cost="1 MiB per label at 16 bits; about 1 ns per row, or 4 ns per row and label; 1 ms to compute",
        value_range=(0, 1),
    )

    scale: str = setting(default="probability", choices=("probability", "real", "logit"))
    bits: int | None = setting(default=None, low=8, high=24)
    limit: int | None = setting(default=None, low=0, high=1 << 31)
    exact: bool = setting(default=False)
    memory_limit: int = setting(default=1 << 32, low=0, operational=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.exact and (self.bits is not None or self.limit is not None):
            raise ValueError(
                f"{type(self).__name__}: exact=True keeps all scores and does not use bits= or limit=; leave out these "
                f"settings, or exact=True"
            )

    def make_state(self) -> ScoresByLabel:
        if self.exact:
            return ScoreHistogram(scale=self.scale, bits=None, memory_limit=self.memory_limit)
        bits = self.bits if self.bits is not None else BITS[self.scale]
        return ScoreHistogram(scale=self.scale, bits=bits, limit=self.limit)

    def reason(self, state: ScoresByLabel) -> str | None:
        return one_class(state)


def _read_histograms(metric: ScoredValue, state: Any) -> Reading | None:
    """Return one `Reading` with arrays of the values of all cells (such as slices) of a histogram.

    Return None if the values have to be computed one by one. This is the case if the state is not a `ScoreHistogram`,
    or if the metric has no function that handles all cells together. There are two such functions: `_read_all_cells`
    (used only for rows without weights) and `_standard_errors`.
    """
    if type(state) is not ScoreHistogram:
        return None
    # The functions that compute all cells together use int64. A product of two weights would overflow it, so weighted
    # cells are computed one by one.
    weighted = any(e.excess is not None for e in state.cells.tallies.values())
    if metric._read_all_cells is not None and not weighted:
        # A state never changes, so the values computed from it are cached for later calls, such as bounds() after
        # compute().
        cache: dict[Any, CellBounds] = state.__dict__.setdefault("_limits_of_cells", {})
        key = identity_of(metric)
        if key not in cache:
            cache[key] = metric._read_all_cells(state)
        value, low, high = cache[key]
        found = Reading(state, value, bounds=lambda: (low, high))
    elif metric._standard_errors is not None:
        values = np.array([one.value for one in CellReadings(metric, state)])
        found = Reading(state, values, bounds=partial(_bounds_of_each, metric, state))
    else:
        return None
    return found if metric._standard_errors is None else found.having(estimate=partial(metric._estimates, found))


class ScoredValue(Several[ScoresByLabel], ScoredMetric[Any]):
    """Base class for metrics whose value is one number, computed from the positives and negatives at each score.

    With several classes or labels, each has its own value, and `average` determines how these values are combined.
    """

    about = About(value_range=(0, 1), interval_scale="logit", read_cells=_read_histograms)

    @property
    def _read_all_cells(self) -> Callable[[ScoreHistogram], CellBounds] | None:
        """A function that computes the values and bounds of all cells (such as slices), or None if there is none.

        Each value is equal, bit for bit, to the value that `of` computes for the cell alone.
        """
        return None

    @property
    def _standard_error(self) -> Callable[[Any], Any] | None:
        """A function that returns the standard error for two classes, or None if the metric has no standard error.

        The function assumes that rows are independent.
        """
        return None

    @property
    def _standard_errors(self) -> Callable[[ScoreHistogram], Any] | None:
        """A function that returns the standard errors of all cells (such as slices), or None if there is none."""
        return None

    def make_state(self) -> Any:
        one = super().make_state()
        return (
            make_label_statistic(one, memory_limit=self.memory_limit, **self._class_settings)
            if self._class_settings
            else one
        )

    @property
    def name(self) -> str:
        return self._with_average(self.about.tag)

    def estimate(self, reading: Reading, method: str) -> Estimate | None:
        state: Any = reading.state
        if self._standard_error is None:
            return None
        reason = WEIGHTED if state.has_weights else self.reason(state)
        return Estimate(
            reading.value, self._standard_error(state), about_of(self).interval_scale, method, reason=reason
        )

    def _estimates(self, reading: Reading, method: str) -> Estimate:
        assert self._standard_errors is not None
        state: Any = reading.state
        return Estimate(reading.value, self._standard_errors(state), about_of(self).interval_scale, method)


def _bounds_of_each(metric: ScoredValue, state: State) -> tuple[Any, Any]:
    low, high = zip(*(one.bounds for one in CellReadings(metric, state)), strict=True)
    return np.array(low), np.array(high)
