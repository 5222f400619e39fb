"""What metrics of one or several numeric targets have in common: a value for each output, and their average."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import cached_property, partial
from typing import Any, Self, TypeVar

import numpy as np

from ...collect.metric import Metric, nothing_counted
from ...numerics.exact import Limits
from ...numerics.settings import setting
from ...reading.about import About
from ...reading.interval import Estimate, side_by_side
from ...reading.reading import NAN, OwnReading, Quotient, Reading, estimate_of, widened
from ...state.state import State

__all__ = ["BoundedOutputMetric", "OutputMetric", "Outputs", "is_undefined", "root"]

S = TypeVar("S", bound=State)

MULTIOUTPUT = ("uniform_average", "raw_values")
DEPENDENT = (
    'outputs of the same rows are not independent: multioutput="raw_values" has an interval for each, '
    "Sharded(..., unit=) one of the average"
)


class OutputMetric(Metric[S, Any]):
    """A metric of numeric targets and predictions: `of`, `read` and `estimate` are of one output (`found.output`)."""

    about = About(best="low")

    num_outputs: int | None = setting(default=None, low=1, high=1 << 16)
    multioutput: str = setting(default="uniform_average", choices=MULTIOUTPUT)

    def update(self, y_true: Any = None, y_pred: Any = None, /, **columns: Any) -> Self:
        """Count a batch.

        Parameters
        ----------
        y_true : array-like of shape (n,), or (n, num_outputs)
            Targets. Or a mapping, data frame or Arrow table that holds the columns by name.
        y_pred : array-like of the same shape
            Predictions.
        **columns : array-like of shape (n,)
            `sample_weight`: 0, or between 2**-36 and 2**31. Both others may be given by name, too.

        Raises
        ------
        InvalidInputError
            A value is not finite, or other than 0 and not between 2**-400 and 2**400 in size, or lengths differ; the
            message names column, row and count, and nothing was counted.
        """
        return super().update(y_true, y_pred, **columns)

    def of(self, state: Any, output: int = 0) -> Limits | Quotient | float | None:
        """Return the value of one output before it is rounded; None or NaN where it is undefined."""
        raise NotImplementedError(f"{type(self).__name__} does not say what it computes")

    def read(self, state: S, output: int = 0) -> Reading:
        """Return what this metric says about one output."""
        return ExactOutput(self, state, output)

    def reading(self, state: S) -> Reading:
        return Outputs(self, state) if self._has_several else self.read(state)

    @property
    def _has_several(self) -> bool:
        """Whether the value is made of those of several outputs, or an array."""
        return self.multioutput == "raw_values" or (self.num_outputs or 1) > 1

    def reason(self, state: S) -> str | None:
        return nothing_counted(state)


class OfOutput(OwnReading):
    """The reading of one output."""

    def __init__(self, metric: OutputMetric[Any], state: State, output: int) -> None:
        self.metric, self.state, self.output = metric, state, output

    def _found(self) -> Any:
        return self.metric.of(self.state, self.output)


class ExactOutput(OfOutput):
    """The reading of one output whose value is exact: only rounded weights widen the bounds."""

    def _bounds(self) -> tuple[Any, Any]:
        return widened(self.value, self.state)


class Outputs(Reading):
    """The reading of several outputs: the mean of their values before rounding, or an array of the values.

    The values are exact; only rounded weights widen the bounds.
    """

    def __init__(self, metric: OutputMetric[Any], state: State) -> None:
        super().__init__(state, None, reason=partial(metric.reason, state))
        self.metric = metric

    @cached_property
    def parts(self) -> list[Limits | None]:
        """The value of each output with its limits, before it is rounded."""
        return [one.limits for one in self._readings()]

    def _readings(self) -> Iterator[Reading]:
        """Read one output after the other."""
        # Those of thousands of outputs would keep the garbage collector busy.
        return map(partial(self.metric.read, self.state), range(self.metric.num_outputs or 1))

    @property
    def is_each(self) -> bool:
        """Whether the value is an array of the values of the outputs."""
        return self.metric.multioutput == "raw_values"

    @cached_property
    def value(self) -> Any:
        if self.is_each:
            return np.array([NAN if one is None else one.rounded() for one in self.parts])
        return NAN if self.limits is None else self.limits.rounded()

    @cached_property
    def limits(self) -> Limits | None:
        return Limits.mean(self.parts)

    @cached_property
    def bounds(self) -> tuple[Any, Any]:
        return widened(self.value, self.state)

    def estimate(self, method: str) -> Estimate:
        if self.is_each:
            return side_by_side([estimate_of(self.metric, one, method) for one in self._readings()])
        return Estimate(self.value, reason=DEPENDENT)

    @property
    def is_certain(self) -> bool:
        return True


class BoundedOutputMetric(OutputMetric[S]):
    """A metric of numeric targets and predictions whose limits hold by the weights as they were given."""

    def slack(self, state: S, found: Limits, rounding: Fraction) -> Fraction:
        return Fraction(0)

    def read(self, state: S, output: int = 0) -> Reading:
        return OfOutput(self, state, output)

    def reading(self, state: S) -> Reading:
        return BoundedOutputs(self, state) if self._has_several else self.read(state)


class BoundedOutputs(Outputs):
    """The reading of several outputs, each with certified bounds."""

    @cached_property
    def bounds(self) -> tuple[Any, Any]:
        pairs = [(NAN, NAN) if one is None else one.outward() for one in self.numbers]
        if not self.is_each:
            return pairs[0]
        low, high = np.array(pairs).T
        return low.copy(), high.copy()

    @property
    def is_certain(self) -> bool:
        return False

    @property
    def numbers(self) -> list[Limits | None]:
        return self.parts if self.is_each else [self.limits]


def is_undefined(metric: OutputMetric[Any], state: Any) -> bool:
    """Return whether no output has a value."""
    return all(metric.read(state, i).limits is None for i in range(state.outputs))


def root(numerator: Fraction, denominator: Fraction) -> Limits | None:
    """Return the square root of a quotient; None for 0/0."""
    found = Limits.exactly(numerator, denominator)
    return None if found is None else Limits.root(found.value)
