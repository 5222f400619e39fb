"""Base classes of metrics that are computed from counts by label and score: a histogram, or exact scores."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import numpy as np

from ...collect.metric import ScoredLabels, no_weight_reason
from ...numerics.settings import setting
from ...reading.about import About, about_of
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
    """Return the reason why a share of the positives is undefined; None if there are positives."""
    return None if state.positives.total() else no_weight_reason(state) or "no positives"


def one_class(state: ScoresByLabel) -> str | None:
    """Return the reason why positives and negatives cannot be compared; None if there are both."""
    if (nothing := no_weight_reason(state)) is not None:
        return nothing
    negatives, positives = state.negatives.total(), state.positives.total()
    return None if negatives and positives else f"one class: no {'positives' if negatives else 'negatives'}"


class ScoredMetric(ScoredLabels[ScoresByLabel, T]):
    """A metric that is computed from the counts of each label by score: a histogram, or exact scores.

    Parameters
    ----------
    scale : {"probability", "real", "logit"}
        What the scores are: numbers in [0, 1] ("probability") or any finite numbers. Logits of classes are ranked by
        the softmax of the row, logits of labels column by column.
    bits : int, optional
        The logarithm, to base 2, of the number of histogram buckets: by default 16 for probabilities (1 MiB) and 19
        otherwise (8 MiB, of which most stays untouched).
    limit : int, optional
        The number of rows up to which every score is kept exactly, counted over all classes or labels. Further rows
        move all scores to the buckets. By default 65,536 from 16 bits on, and 0 below. Real scores of two classes stay
        exact up to 2**20 different ones (40 MB) where they lie so far from 0, and so close together, that few buckets
        would hold them.
    exact : bool
        Keep every different score instead of a histogram. The value needs no bound then, and memory grows by 24 bytes
        for each different score (a float32 model has a few millions).
    memory_limit : int
        The bytes that exact scores may take (4 GiB). An update beyond it raises MemoryLimitError and counts nothing.
    """

    about = About(
        rank_based=True,
        best="high",
        cost="1 MiB a label at 16 bits; about 1 ns a row, 4 of each of several labels; 1 ms to compute",
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
            raise ValueError(f"{type(self).__name__}: bits= and limit= are of a histogram; exact=True has none")

    def make_state(self) -> ScoresByLabel:
        if self.exact:
            return ScoreHistogram(scale=self.scale, bits=None, memory_limit=self.memory_limit)
        bits = self.bits if self.bits is not None else BITS[self.scale]
        return ScoreHistogram(scale=self.scale, bits=bits, limit=self.limit)

    def reason(self, state: ScoresByLabel) -> str | None:
        return one_class(state)


def _read_histograms(metric: ScoredValue, state: Any) -> Reading | None:
    """Return one `Reading` with arrays of the values of all cells (such as slices) of a histogram."""
    if type(state) is not ScoreHistogram:
        return None
    # Products of two weights do not fit into int64, so weighted cells are computed one by one.
    weighted = any(e.excess is not None for e in state.cells.tallies.values())
    if metric._read_all_cells is not None and not weighted:
        value, low, high = metric._read_all_cells(state)
        found = Reading(state, value, bounds=lambda: (low, high))
    elif metric._standard_errors is not None:
        values = np.array([one.value for one in CellReadings(metric, state)])
        found = Reading(state, values, bounds=partial(_bounds_of_each, metric, state))
    else:
        return None
    return found if metric._standard_errors is None else found.having(estimate=partial(metric._estimates, found))


class ScoredValue(Several[ScoresByLabel], ScoredMetric[Any]):
    """A metric with one number, computed from the counts of positives and negatives at each score.

    It works for two classes, and for several classes or labels by averaging.
    """

    about = About(value_range=(0, 1), interval_scale="logit", read_cells=_read_histograms)

    @property
    def _read_all_cells(self) -> Callable[[ScoreHistogram], CellBounds] | None:
        """A function that computes all cells at once, with the same bits as `of` for each; None if there is none."""
        return None

    @property
    def _standard_error(self) -> Callable[[Any], Any] | None:
        """A function that returns the standard error for two classes and independent rows; None if there is none."""
        return None

    @property
    def _standard_errors(self) -> Callable[[ScoreHistogram], Any] | None:
        """A function that returns the standard errors of all cells at once; None if there is none."""
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
