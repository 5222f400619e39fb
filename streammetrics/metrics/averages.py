"""Metrics of two classes, for several classes and labels, too: a value for each, and their average.

A metric says what it is for two classes (`of_binary`, and where it has more to say `bounds_of_binary` and so on). With
`num_classes=` or `labels=` each class is set against the rest, with `num_labels=` each label stands for itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, ClassVar, TypeVar

import numpy as np

from ..collect.interval import Estimate, side_by_side
from ..collect.metric import ScoredLabels
from ..collect.wide_bounds import is_off_grid, kept, most_of
from ..columns.classes import check_ignored, check_labels
from ..numerics.exact import BEYOND, Limits, to_float
from ..numerics.settings import setting
from ..state.state import State
from ..statistics.by_label import ByLabel, by_label, counted
from ..statistics.classes import PairCounts

__all__ = ["AVERAGES", "OfClasses", "Several", "of_each"]

S = TypeVar("S", bound=State)
T = TypeVar("T")
NAN = float("nan")
ROUGHLY = 0.8
"""The share of the widest bounds that are not wide, up to which limits are not looked at after rounding."""

AVERAGES = ("macro", "micro", "weighted", None)


class OfClasses(ScoredLabels[S, T]):
    """A metric of rows of one of two classes, or of one of several."""

    num_classes: int | None = setting(default=None, low=2, high=1 << 15)
    labels: tuple[int | str | bytes, ...] | str | None = setting(default=None)

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.which) > 1:
            raise ValueError(f"{type(self).__name__}: give one of {', '.join(self.which)}")
        if self.labels is not None and not (self.labels == "discover" and self._discovers):
            check_labels(type(self).__name__, self.labels)
        for classes in self.which.values():
            check_ignored(type(self).__name__, classes, getattr(self, "ignore_class", None))

    _discovers = False

    @property
    def which(self) -> dict[str, Any]:
        """The setting that says which classes or labels there are; empty for two classes."""
        names = ("num_classes", "labels", "num_labels")
        return {n: getattr(self, n) for n in names if getattr(self, n, None) is not None}

    def spread(self, state: Any) -> Any:
        """Return the state itself for two classes; one that holds it for each of several."""
        return by_label(state, **self.which) if self.which else state


class Several(OfClasses[S, Any]):
    """A metric of two classes, several classes, or several labels."""

    num_labels: int | None = setting(default=None, low=1, high=1 << 16)
    average: str | None = setting(default="macro", choices=AVERAGES)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.which and self.average != "macro":
            raise ValueError(f"{type(self).__name__}: average= needs num_classes=, labels= or num_labels=")

    # -- two classes --------------------------------------------------------------------------------------------------

    within: ClassVar[tuple[int | None, int | None]] = (0, None)
    """How far the value can go."""

    def quotient_of(self, state: Any) -> tuple[Any, Any] | None:
        """Return numerator and denominator of a value for two classes that is one; of cells side by side, arrays."""
        return None

    def of_stacked(self, state: Any) -> Any:
        quotient = self.quotient_of(state)
        return self.of_binary(state) if quotient is None else to_float(*quotient)

    def limits_binary(self, state: Any) -> Limits | None:
        """Return the value for two classes and its certified limits, before anything is rounded; None if undefined."""
        quotient = self.quotient_of(state)
        if quotient is not None:
            return Limits.exactly(*quotient)
        value = self.of_binary(state)
        if math.isinf(value):
            return Limits.exactly(BEYOND if value > 0 else -BEYOND)
        return None if math.isnan(value) else Limits.exactly(Fraction(value))

    def of_binary(self, state: Any) -> float:
        """Compute the value for two classes."""
        found = self.limits_binary(state)
        return NAN if found is None else found.rounded()

    def slack(self, state: Any, found: Limits, slip: Fraction) -> Fraction:
        """Return how much wider the limits are if each weight is off by `slip`, relatively: as a quotient is."""
        return 8 * slip * max(abs(found.low), abs(found.high))

    def _certified(self, state: Any, slip: Fraction) -> Limits | None:
        """Return the limits for two classes, those of weights included."""
        found = self.limits_binary(state)
        if found is None:
            return None
        return found.widened(self.slack(state, found, slip) if slip else self.grain(state, found), *self.within)

    def grain(self, state: Any, found: Limits) -> Fraction:
        """Return how much wider the limits are without weights, as terms are multiples of 2**-60."""
        return Fraction(0)

    def limits_of_cells(self, state: Any) -> list[tuple[Any, Any]]:
        found = super().limits_of_cells(state)
        if not self.certain or "rounded" in state.cells.flats:  # each was asked already
            return found
        grainy = self.grainy(state, found)
        if not grainy.any():
            return found
        each = zip(state.each_cell(), grainy.tolist(), found, strict=True)
        return [self.bounds_of(cell) if some else limits for cell, some, limits in each]

    def grainy(self, state: Any, found: Sequence[tuple[Any, Any]]) -> Any:
        """In which cells, whose values were found, `grain` may be more than nothing."""
        return np.zeros(len(state), bool)

    def bounds_of_binary(self, state: Any) -> tuple[float, float]:
        """Return certified limits of the value for two classes."""
        found = self._certified(state, state.slip)
        return (NAN, NAN) if found is None else found.outward()

    def reason_of_binary(self, state: Any) -> str | None:
        """Say why the value for two classes is undefined."""
        return "no rows" if not state.facts().get("rows", 1) else None

    def estimate_of_binary(self, state: Any, method: str) -> Estimate:
        """Return the value for two classes with its standard error."""
        return super().estimate_of(state, method)

    @property
    def certain(self) -> bool:
        return self.stacks

    # -- each of several, and their average ---------------------------------------------------------------------------

    def of(self, state: Any) -> Any:
        if not _is_several(state):
            return self.of_binary(state)
        if self.average not in ("micro", None):
            found = self._mean_limits(state, Fraction(0))
            return NAN if found is None else found.rounded()
        if is_off_grid(state):
            values = [NAN if one is None else one.rounded() for one in self._parts(state, Fraction(0))]
        else:
            values = of_each(self.of_binary, self._parted(state))
        return values[0] if self.average == "micro" else np.array(values)

    def _parted(self, state: Any) -> Sequence[Any]:
        """The states of two classes that are read: of the labels, or of all of them as one."""
        return [state.pooled()] if self.average == "micro" else state.each()

    @kept
    def _parts(self, state: Any, slip: Fraction) -> list[Limits | None]:
        """Return the limits of each label, or of all of them as one."""
        return of_each(lambda part: self._certified(part, slip), self._parted(state))

    @kept
    def _mean_limits(self, state: Any, slip: Fraction) -> Limits | None:
        """Return the limits of the mean over classes or labels."""
        return self._averaged(state, state.each(), slip)

    def _averaged(self, state: Any, parts: Sequence[Any], slip: Fraction) -> Limits | None:
        """Return the mean of the values that are defined, each as it is before rounding; None if none is."""
        each = counted(parts)
        values = [self._certified(part, slip) for part, _ in each]
        supports = [Fraction(part.support()) if self.average == "weighted" else Fraction(1) for part, _ in each]
        made = Limits.mean(values, [w * times for w, (_, times) in zip(supports, each, strict=True)])
        if made is None or not slip or self.average != "weighted":
            return made
        return made.widened(4 * slip * max(abs(x) for v in values if v is not None for x in v), *self.within)

    def may_be_wide(self, state: Any) -> bool:
        if not super().may_be_wide(state):
            return False
        if state.axes or "rounded" in state.cells.flats:
            return True
        # The limits before rounding are there, since the value was read from them.
        if not _is_several(state):
            found = self.limits_binary(state)
            return found is not None and self._is_roughly_wide(found)
        if self.average in ("micro", None):
            limits = self._parts(state, Fraction(0))
        else:
            limits = [self._mean_limits(state, Fraction(0))]
        return any(one is not None and self._is_roughly_wide(one) for one in limits)

    def _is_roughly_wide(self, found: Limits) -> bool:
        """Return whether limits may be wide once they are rounded."""
        try:
            low, high = float(found.low), float(found.high)
        except OverflowError:
            # A limit beyond all float64 stands for one that does not exist.
            return True
        return high - low > ROUGHLY * float(most_of(self, min(abs(low), abs(high))))

    def bounds_of(self, state: Any) -> tuple[Any, Any]:
        if not _is_several(state):
            return self.bounds_of_binary(state)
        if self.average not in ("micro", None):
            found = self._mean_limits(state, state.slip)
            return (NAN, NAN) if found is None else found.outward()
        pairs = [(NAN, NAN) if e is None else e.outward() for e in self._parts(state, state.slip)]
        if self.average == "micro":
            return pairs[0]
        return np.array([p[0] for p in pairs]), np.array([p[1] for p in pairs])

    def reason_of(self, state: Any) -> str | None:
        if not _is_several(state):
            return self.reason_of_binary(state)
        if not state.facts()["rows"]:
            return "no rows"
        values = np.atleast_1d(self.of(state))
        if (values == values).any():
            return None
        parts = state.each()
        if not parts:
            return "the weights are all zero"
        reason = self.reason_of_binary(state.pooled() if self.average == "micro" else parts[0]) or "0/0"
        return reason if self.average == "micro" else f"undefined for every class: {reason}"

    def estimate_of(self, state: Any, method: str) -> Estimate:
        if not _is_several(state):
            return self.estimate_of_binary(state, method)
        if self.instead:
            return super().estimate_of(state, method)
        if self.average is None:
            return side_by_side(of_each(lambda part: self.estimate_of_binary(part, method), state.each()))
        why = (
            "values of classes or labels of the same rows are not independent: average=None has an interval for each, "
        )
        return Estimate(self.of(state), reason=why + "Sharded(..., unit=) one of the average")

    def details(self, state: Any) -> dict[str, Any]:
        if not _is_several(state) or self.average == "micro":
            return super().details(state)
        values = of_each(self.of_binary, state.each())
        return super().details(state) | {"undefined": sum(v != v for v in values)}

    def suffixed(self, name: str) -> str:
        """Return the name with the average, where it is not the usual one."""
        return {"macro": name, None: f"{name}_each"}.get(self.average, f"{name}_{self.average}")


def of_each(read: Callable[[Any], Any], parts: Sequence[Any]) -> list[Any]:
    """What is read of each of some states, of those that are one state once."""
    known = {id(part): read(part) for part, _ in counted(parts)}
    return [known[id(part)] for part in parts]


def _is_several(state: Any) -> bool:
    return isinstance(state, (ByLabel, PairCounts))
