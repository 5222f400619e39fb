"""What metrics that read rows by label and score have in common: a histogram, or exact scores; limits; several classes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import numpy as np

from ...collect.metric import ScoredLabels, nothing_counted
from ...numerics.settings import setting
from ...reading.about import About, about_of
from ...reading.interval import Estimate
from ...reading.reading import CellReadings, Reading
from ...state.state import State
from ...statistics.by_label import by_label
from ...statistics.score_readouts import Bounded
from ...statistics.scores import BITS, ScoreHistogram, ScoresByLabel
from ..averages import Several
from ..standard_errors import WEIGHTED

__all__ = ["ScoredMetric", "ScoredValue", "no_positives", "one_class"]

T = TypeVar("T")


def no_positives(state: ScoresByLabel) -> str | None:
    """Say why a share of the positives is undefined; None if there are some."""
    return None if state.positives.total() else nothing_counted(state) or "no positives"


def one_class(state: ScoresByLabel) -> str | None:
    """Say why nothing compares positives and negatives; None if there are some of both."""
    if (nothing := nothing_counted(state)) is not None:
        return nothing
    negatives, positives = state.negatives.total(), state.positives.total()
    return None if negatives and positives else f"one class: no {'positives' if negatives else 'negatives'}"


class ScoredMetric(ScoredLabels[ScoresByLabel, T]):
    """A metric that reads the rows of each label by score: of a histogram, or exact."""

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
    """Return the reading of all cells of a histogram as arrays."""
    if type(state) is not ScoreHistogram:
        return None
    # The products of weights of pairs do not fit into int64.
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
    """A number that is read from the rows of each label by score, of two classes or of several."""

    about = About(value_range=(0, 1), interval_scale="logit", read_cells=_read_histograms)

    @property
    def _read_all_cells(self) -> Callable[[ScoreHistogram], Bounded] | None:
        """What reads all cells of a histogram at once: to the bit what `of` reads from each."""
        return None

    @property
    def _standard_error(self) -> Callable[[Any], Any] | None:
        """What returns the standard error of the value for two classes, of independent rows."""
        return None

    @property
    def _standard_errors(self) -> Callable[[ScoreHistogram], Any] | None:
        """What returns the standard errors of all cells at once."""
        return None

    def make_state(self) -> Any:
        one = super().make_state()
        return by_label(one, memory_limit=self.memory_limit, **self._class_settings) if self._class_settings else one

    @property
    def name(self) -> str:
        return self._with_average(self.about.tag)

    def estimate(self, found: Reading, method: str) -> Estimate | None:
        state: Any = found.state
        if self._standard_error is None:
            return None
        reason = WEIGHTED if state.weighted else self.reason(state)
        return Estimate(found.value, self._standard_error(state), about_of(self).interval_scale, method, reason=reason)

    def _estimates(self, found: Reading, method: str) -> Estimate:
        assert self._standard_errors is not None
        state: Any = found.state
        return Estimate(found.value, self._standard_errors(state), about_of(self).interval_scale, method)


def _bounds_of_each(metric: ScoredValue, state: State) -> tuple[Any, Any]:
    low, high = zip(*(one.bounds for one in CellReadings(metric, state)), strict=True)
    return np.array(low), np.array(high)
