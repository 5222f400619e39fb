"""Metrics of two classes, for several classes and labels, too: a value for each, and their average.

A metric says what it is for two classes (`of_binary`, and where it has more to say `bounds_of_binary` and so on). With
`num_classes=` or `labels=` each class is set against the rest, with `num_labels=` each label stands for itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np

from ..collect.metric import Interval, ScoredLabels
from ..columns.classes import check_labels, plain
from ..numerics.exact import enclose
from ..numerics.settings import setting
from ..state.state import State
from ..statistics.by_label import ByLabel, by_label
from ..statistics.classes import PairCounts
from .outputs import average

__all__ = ["AVERAGES", "OfClasses", "Several", "averaged", "of_each"]

S = TypeVar("S", bound=State)
T = TypeVar("T")
NAN = float("nan")
AVERAGES = ("macro", "micro", "weighted", None)


class OfClasses(ScoredLabels[S, T]):
    """A metric of rows of one of two classes, or of one of several."""

    num_classes: int | None = setting(default=None, low=2, high=1 << 15)
    labels: tuple[Any, ...] | str | None = setting(default=None)

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.which) > 1:
            raise ValueError(f"{type(self).__name__}: give one of {', '.join(self.which)}")
        if isinstance(self.labels, tuple):
            object.__setattr__(self, "labels", tuple(map(plain, self.labels)))
        if self.labels is not None and not (self.labels == "discover" and self._discovers):
            check_labels(type(self).__name__, self.labels)

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

    def of_binary(self, state: Any) -> float:
        """Compute the value for two classes."""
        raise NotImplementedError(f"{type(self).__name__} does not say what it computes")

    def bounds_of_binary(self, state: Any) -> tuple[float, float]:
        """Return certified limits of the value for two classes."""
        value = self.of_binary(state)
        return value, value

    def reason_of_binary(self, state: Any) -> str | None:
        """Say why the value for two classes is undefined."""
        return "no rows" if not state.facts().get("rows", 1) else None

    def interval_of_binary(self, state: Any, confidence: float) -> Interval:
        """Return the statistical interval of the value for two classes."""
        return super().interval_of(state, confidence)

    # -- each of several, and their average ---------------------------------------------------------------------------

    def of(self, state: Any) -> Any:
        if not _is_several(state):
            return self.of_binary(state)
        if self.average == "micro":
            return self.of_binary(state.pooled())
        parts = state.each()
        values = of_each(self.of_binary, parts)
        return np.array(values) if self.average is None else averaged(values, self._weights(parts))

    def _weights(self, parts: Sequence[Any]) -> list[Fraction] | None:
        """What each value counts in the average; None for one."""
        return of_each(lambda part: Fraction(part.support()), parts) if self.average == "weighted" else None

    def bounds_of(self, state: Any) -> tuple[Any, Any]:
        if not _is_several(state):
            return self.bounds_of_binary(state)
        if self.average == "micro":
            return self.bounds_of_binary(state.pooled())
        parts = state.each()
        lows, highs = zip(*of_each(self.bounds_of_binary, parts), strict=True) if parts else ((), ())
        if self.average is None:
            return np.array(lows), np.array(highs)
        value = self.of(state)
        if lows == highs or value != value:
            return value, value
        low, high = (_exactly(side, self._weights(parts)) for side in (lows, highs))
        return enclose(low, high)

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

    def interval_of(self, state: Any, confidence: float) -> Interval:
        if not _is_several(state):
            return self.interval_of_binary(state, confidence)
        return Interval(NAN, NAN, confidence, "no interval is known for several classes or labels at once")

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
    found = {id(part): part for part in parts}
    known = {i: read(part) for i, part in found.items()}
    return [known[id(part)] for part in parts]


def _is_several(state: Any) -> bool:
    return isinstance(state, (ByLabel, PairCounts))


def _exactly(values: Sequence[float], weights: Sequence[Fraction] | None) -> Fraction:
    """Return the mean of the values that are defined, as a fraction."""
    pairs = [(Fraction(v), w) for v, w in zip(values, weights or [Fraction(1)] * len(values), strict=True) if v == v]
    return sum((v * w for v, w in pairs), Fraction(0)) / sum(w for _, w in pairs)


def averaged(values: Sequence[float], weights: Sequence[Fraction] | None = None) -> float:
    """Return the mean of the values that are defined; NaN if none is, or none has weight."""
    if weights is None:
        return average(list(values))
    known = [(v, float(w)) for v, w in zip(values, weights, strict=True) if v == v and w]
    return math.fsum(v * w for v, w in known) / math.fsum(w for _, w in known) if known else NAN
