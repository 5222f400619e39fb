"""What metrics that read rows by label and score have in common: a histogram, or exact scores; limits; several classes."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any, ClassVar, TypeVar

import numpy as np

from ...collect.interval import Estimate
from ...collect.metric import ScoredLabels, nothing_counted
from ...collect.wide_bounds import WideValue, are_wide, kept, wide_values
from ...numerics.exact import Limits
from ...numerics.settings import setting
from ...statistics.by_label import by_label
from ...statistics.score_readouts import Bounded, one_cell
from ...statistics.scores import BITS, ScoreHistogram, ScoresByLabel
from ..averages import Several
from ..chance import WEIGHTED

__all__ = ["ScoredMetric", "ScoredValue", "no_positives"]

T = TypeVar("T")


def no_positives(state: ScoresByLabel) -> str | None:
    """Say why a share of the positives is undefined; None if there are some."""
    return None if state.positives.total() else nothing_counted(state) or "no positives"


NAN = float("nan")
SATURATED = (
    "most scores that share a bucket are below 2**-33 or above 1 - 2**-33, where more bits= change nothing: give logits, "
    'with scale="logit"'
)


class ScoredMetric(ScoredLabels[ScoresByLabel, T]):
    """A metric that reads the rows of each label by score: of a histogram, or exact."""

    scale: str = setting(default="probability", choices=("probability", "real", "logit"))
    bits: int | None = setting(default=None, low=8, high=24)
    limit: int | None = setting(default=None, low=0, high=1 << 31)
    exact: bool = setting(default=False)
    memory_limit: int = setting(default=1 << 32, low=0, operational=True)

    ranks = True
    read_outs = ("limits_binary",)
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
        if (nothing := nothing_counted(state)) is not None:
            return nothing
        negatives, positives = state.negatives.total(), state.positives.total()
        return None if negatives and positives else f"one class: no {'positives' if negatives else 'negatives'}"


class ScoredValue(Several[ScoresByLabel], ScoredMetric[Any]):
    """A number that is read from the rows of each label by score, of two classes or of several."""

    def make_state(self) -> Any:
        one = super().make_state()
        return by_label(one, memory_limit=self.memory_limit, **self.which) if self.which else one

    @property
    def name(self) -> str:
        return self.suffixed(self.tag)

    within: ClassVar[tuple[int | None, int | None]] = (0, 1)

    def reason_of_binary(self, state: ScoresByLabel) -> str | None:
        return ScoredMetric.reason_of(self, state)

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
        return None if weighted else self._read_all_cells(state)

    @kept
    def _read_all_cells(self, state: ScoresByLabel) -> Bounded:
        read: Any = type(self).all_cells
        found: Bounded = read(state)
        return found

    def wide_of_cells(self, name: str, state: ScoresByLabel) -> tuple[list[Any], list[WideValue]]:
        if self._all_cells(state) is None or not self.may_be_wide(state):
            return super().wide_of_cells(name, state)
        all_cells: Any = state
        limits = self._read_all_cells(state)
        places = np.flatnonzero(are_wide(self, *limits))
        if not len(places):
            return self.of_cells(state), []
        value, low, high = (float(each[places[0]]) for each in limits)
        found = wide_values(self, name, one_cell(all_cells, places[0]), value, (low, high))
        return self.of_cells(state), [found[0]._replace(size=len(places))]

    def of_cells(self, state: ScoresByLabel) -> list[Any]:
        found = self._all_cells(state)
        return super().of_cells(state) if found is None else found.value.tolist()

    def limits_of_cells(self, state: ScoresByLabel) -> list[tuple[Any, Any]]:
        found = self._all_cells(state)
        if found is None:
            return super().limits_of_cells(state)
        return list(zip(found.low.tolist(), found.high.tolist(), strict=True))
