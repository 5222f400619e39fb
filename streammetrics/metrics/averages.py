"""Base classes that extend a two-class metric to several classes or labels and average the values.

A metric's `read` method handles two classes. With `num_classes=` or `labels=`, each class is compared with the rest;
with `num_labels=`, each label is treated as a separate two-class problem.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from ..batch.classes import check_ignored, check_labels
from ..collect.metric import ScoredLabels
from ..numerics.exact import Limits
from ..numerics.settings import setting
from ..reading.about import About, about_of
from ..reading.interval import Estimate, stack_estimates
from ..reading.reading import NAN, OwnNumber, Reading, estimate_of
from ..state.state import State
from ..statistics.by_label import ByLabel, count_distinct_states, make_label_statistic
from ..statistics.classes import PairCounts
from .standard_errors import WEIGHTED

__all__ = ["AVERAGES", "OfClasses", "Several", "of_each"]

S = TypeVar("S", bound=State)
T = TypeVar("T")

AVERAGES = ("macro", "micro", "weighted", None)
DEPENDENT = (
    "values of classes or labels of the same rows are not independent; average=None has an interval for each value, and "
    "Sharded(..., unit=) has an interval for the average"
)


class OfClasses(ScoredLabels[S, T]):
    """Base class for metrics where each row belongs to exactly one of two or more classes.

    If neither `num_classes` nor `labels` is passed, there are two classes, 0 and 1.

    Parameters
    ----------
    num_classes : int, optional
        The number of classes 0, 1, ..., num_classes - 1. `y_score` is then a matrix with one column per class.
    labels : tuple of int, str or bytes, optional
        The classes, in the order of the `y_score` columns, if they are not 0, 1, 2, and so on. They are integers,
        strings or bytes.
    """

    num_classes: int | None = setting(default=None, low=2, high=1 << 15)
    labels: tuple[int | str | bytes, ...] | str | None = setting(default=None)

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self._class_settings) > 1:
            found = " and ".join(f"{n}=" for n in self._class_settings)
            raise ValueError(f"{type(self).__name__}: found {found}; pass only one of these settings")
        if self.labels is not None and not (self.labels == "discover" and self._discovers):
            check_labels(type(self).__name__, self.labels)
        for classes in self._class_settings.values():
            check_ignored(type(self).__name__, classes, getattr(self, "ignore_class", None))

    _discovers = False

    @property
    def _class_settings(self) -> dict[str, Any]:
        """The setting that defines the classes or labels, as a dict {name: value}; empty for two classes."""
        names = ("num_classes", "labels", "num_labels")
        return {n: getattr(self, n) for n in names if getattr(self, n, None) is not None}

    def spread(self, state: Any) -> Any:
        """Return `state` unchanged if there are two classes.

        Otherwise, return a state that keeps the same statistic for each class or label.
        """
        return make_label_statistic(state, **self._class_settings) if self._class_settings else state


class Several(OfClasses[S, Any]):
    """Base class for metrics that handle two classes, several classes or several labels, and can average their values.

    A subclass defines `read` for two classes only. This class applies it to each class or label.

    Parameters
    ----------
    num_labels : int, optional
        The number of labels, if each row has several 0/1 labels and a score for each of them. `y_true` and `y_score` are
        then matrices with one column per label.
    average : {"macro", "micro", "weighted", None}
        How to combine the values of several classes or labels. "macro": their mean. "micro": one value for the rows of
        all classes or labels together. "weighted": their mean, weighted by the number of positives of each class or
        label. None: an array with one value for each class or label. Means leave out undefined values, and `explain()`
        counts them.
    """

    about = About(value_range=(0, None))

    num_labels: int | None = setting(default=None, low=1, high=1 << 16)
    average: str | None = setting(default="macro", choices=AVERAGES)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self._class_settings and self.average != "macro":
            raise ValueError(
                f"{type(self).__name__}: average={self.average!r} combines classes or labels; pass num_classes=, labels= "
                f"or num_labels= as well, or leave average= out"
            )

    def read(self, state: Any) -> Reading:
        return OwnNumber(self, state)

    def reading(self, state: Any) -> Reading:
        return average_of(self, state) if isinstance(state, (ByLabel, PairCounts)) else self.read(state)

    def _with_average(self, name: str) -> str:
        """Return `name`, followed by the kind of average (such as "_micro") unless that is "macro"."""
        return {"macro": name, None: f"{name}_each"}.get(self.average, f"{name}_{self.average}")


def average_of(metric: Any, state: Any) -> Reading:
    """Return one reading (value, bounds and interval) for several classes or labels.

    The metric's `average` setting determines how the values of the classes or labels are combined.
    """
    kinds: dict[str | None, type[OfLabels]] = {"micro": PooledLabels, None: EachLabel}
    return kinds.get(metric.average, MeanOfClasses)(metric, state)


class OfLabels(OwnNumber):
    """Base class for readings (values with bounds) that combine the readings of several classes or labels."""

    @cached_property
    def parts(self) -> Sequence[Any]:
        """A two-class state for each class or label."""
        states: Sequence[Any] = self.state.split_classes()
        return states

    @cached_property
    def readings(self) -> list[Reading]:
        """The reading (value and bounds) of each class or label."""
        return of_each(self.metric.read, self.parts)

    def certified_parts(self, rounding: Fraction) -> list[Limits | None]:
        """Return certified bounds on the value of each class or label, or None for an undefined value.

        `rounding` is the largest relative rounding error of a weight.
        """
        known = {id(one): one.certified_limits(rounding) for one in {id(r): r for r in self.readings}.values()}
        return [known[id(one)] for one in self.readings]

    @cached_property
    def reason(self) -> str | None:
        if not self.state.facts()["rows"]:
            return "no rows"
        values = np.atleast_1d(self.value)
        if (values == values).any():
            return None
        if not self.state.split_classes():
            return "the weights are all zero"
        return self._why(self.readings[0].reason or "0/0")

    def _why(self, reason: str) -> str:
        return f"undefined for every class: {reason}"

    @cached_property
    def details(self) -> dict[str, Any]:
        return {**self._counts(), **super().details}

    def _counts(self) -> dict[str, int]:
        return {"undefined": sum(one.value != one.value for one in self.readings)}

    def _estimate(self, method: str) -> Estimate:
        return Estimate(self.value, reason=WEIGHTED if self._is_weighted else DEPENDENT)

    @property
    def _is_weighted(self) -> bool:
        """Whether the state is a confusion matrix of weighted rows.

        Such a matrix does not contain the squares of the weights, which a confidence interval needs.
        """
        state: Any = self.state
        return isinstance(state, PairCounts) and getattr(state, "excess", None) is not None

    @property
    def is_certain(self) -> bool:
        return False


class EachLabel(OfLabels):
    """A reading whose value is an array with one element for each class or label (`average=None`)."""

    def _raw_value(self) -> Any:
        return np.array([one.value for one in self.readings])

    @property
    def numbers(self) -> list[Limits | None]:
        return self.certified_parts(Fraction(0))

    @cached_property
    def bounds(self) -> tuple[Any, Any]:
        pairs = [
            (NAN, NAN) if e is None else e.round_outward() for e in self.certified_parts(self.state.weight_rounding)
        ]
        return np.array([p[0] for p in pairs]), np.array([p[1] for p in pairs])

    def _estimate(self, method: str) -> Estimate:
        if self._is_weighted:
            return super()._estimate(method)
        from_each = {
            id(one): estimate_of(self.metric, one, method) for one in {id(r): r for r in self.readings}.values()
        }
        return stack_estimates([from_each[id(one)] for one in self.readings])


class MeanOfClasses(OfLabels):
    """A reading whose value is the mean over classes or labels (`average="macro"` or `"weighted"`).

    Undefined values are left out. The mean is computed from exact values and rounded once.
    """

    def _raw_value(self) -> Limits | None:
        return self._mean(Fraction(0))

    def certified_limits(self, rounding: Fraction) -> Limits | None:
        return self._mean(rounding) if rounding else self.limits

    def _mean(self, rounding: Fraction) -> Limits | None:
        each, certified = count_distinct_states(self.parts), self.certified_parts(rounding)
        limits = {id(part): one for part, one in zip(self.parts, certified, strict=True)}
        weighted = self.metric.average == "weighted"
        values = [limits[id(part)] for part, _ in each]
        supports = [Fraction(part.support()) if weighted else Fraction(1) for part, _ in each]
        mean = Limits.mean(values, [w * times for w, (_, times) in zip(supports, each, strict=True)])
        if mean is None or not rounding or not weighted:
            return mean
        return mean.widen(
            4 * rounding * max(abs(x) for v in values if v is not None for x in v), *about_of(self.metric).value_range
        )


class PooledLabels(OfLabels):
    """A reading whose value is computed from the pooled rows of all classes or labels (`average="micro"`)."""

    @cached_property
    def parts(self) -> Sequence[Any]:
        return [self.state.pool_classes()]

    def _raw_value(self) -> Any:
        return self.readings[0].raw_value

    def certified_limits(self, rounding: Fraction) -> Limits | None:
        return self.readings[0].certified_limits(rounding)

    def _why(self, reason: str) -> str:
        return reason

    def _counts(self) -> dict[str, int]:
        return {}


def of_each(read: Callable[[Any], Any], parts: Sequence[Any]) -> list[Any]:
    """Return `read(part)` for each state in `parts`.

    If the same state object occurs several times, `read` is called on it only once.
    """
    known = {id(part): read(part) for part, _ in count_distinct_states(parts)}
    return [known[id(part)] for part in parts]
