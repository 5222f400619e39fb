"""Base classes for metrics of models with one or more numeric outputs; the values are averaged or form an array."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import cached_property, partial
from typing import Any, Self, TypeVar

import numpy as np

from ...collect.metric import Metric, no_weight_reason
from ...numerics.exact import Limits
from ...numerics.settings import setting
from ...reading.about import About
from ...reading.interval import Estimate, stack_estimates
from ...reading.reading import NAN, OwnReading, Quotient, Reading, estimate_of, widen_for_rounding
from ...state.state import State

__all__ = ["BoundedOutputMetric", "OutputMetric", "Outputs", "is_undefined", "root"]

S = TypeVar("S", bound=State)

MULTIOUTPUT = ("uniform_average", "raw_values")
DEPENDENT = (
    'outputs of the same rows are not independent; multioutput="raw_values" has an interval for each output, and '
    "Sharded(..., unit=) has an interval for the average"
)


class OutputMetric(Metric[S, Any]):
    """Base class for metrics of numeric targets and predictions, with one or several outputs (columns).

    The methods `of`, `read` and `estimate` handle a single output.

    Parameters
    ----------
    num_outputs : int, optional
        The number of columns in the targets and in the predictions, which must then be matrices. By default, each is a
        single column.
    multioutput : {"uniform_average", "raw_values"}
        How to combine the values of several outputs. "uniform_average": their mean, rounded only once. "raw_values": an
        array with one value for each output.
    """

    about = About(best="low")

    num_outputs: int | None = setting(default=None, low=1, high=1 << 16)
    multioutput: str = setting(default="uniform_average", choices=MULTIOUTPUT)

    def update(self, y_true: Any = None, y_pred: Any = None, /, **columns: Any) -> Self:
        """Count the rows of a batch.

        Parameters
        ----------
        y_true : array-like of shape (n,), or (n, num_outputs)
            Targets; or a mapping, data frame or Arrow table that contains the columns by name.
        y_pred : array-like of the same shape
            Predictions.
        **columns : array-like of shape (n,)
            `sample_weight`: 0, or between 2**-36 and 2**31. Targets and predictions can also be passed by name.

        Raises
        ------
        InvalidInputError
            A value is not finite, a nonzero value is not between 2**-400 and 2**400 in absolute value, or the columns
            differ in length. No rows are counted. The message names the column, the first invalid row and the number of
            invalid rows.
        """
        return super().update(y_true, y_pred, **columns)

    def of(self, state: Any, output: int = 0) -> Limits | Quotient | float | None:
        """Return the unrounded value of one output, or None or NaN if it is undefined."""
        raise NotImplementedError(f"{type(self).__name__} does not define of(); override of() to return the value")

    def read(self, state: S, output: int = 0) -> Reading:
        """Return the value and the bounds of one output, as a `Reading`."""
        return ExactOutput(self, state, output)

    def reading(self, state: S) -> Reading:
        return Outputs(self, state) if self._has_several else self.read(state)

    @property
    def _has_several(self) -> bool:
        """Whether the value is an array, or the average of several outputs."""
        return self.multioutput == "raw_values" or (self.num_outputs or 1) > 1

    def reason(self, state: S) -> str | None:
        return no_weight_reason(state)


class OfOutput(OwnReading):
    """The value and bounds of one output (column) of a metric."""

    def __init__(self, metric: OutputMetric[Any], state: State, output: int) -> None:
        self.metric, self.state, self.output = metric, state, output

    def _raw_value(self) -> Any:
        return self.metric.of(self.state, self.output)


class ExactOutput(OfOutput):
    """The exact value of one output; the bounds allow only for the rounding of weights."""

    def _bounds(self) -> tuple[Any, Any]:
        return widen_for_rounding(self.value, self.state)


class Outputs(Reading):
    """The mean of the values of several outputs, or an array of the values, with bounds.

    The mean is computed before rounding. The values are exact, so the bounds allow only for the rounding of weights.
    """

    def __init__(self, metric: OutputMetric[Any], state: State) -> None:
        super().__init__(state, None, reason=partial(metric.reason, state))
        self.metric = metric

    @cached_property
    def parts(self) -> list[Limits | None]:
        """The unrounded value of each output with its certified bounds, or None if the value is undefined."""
        return [one.limits for one in self._readings()]

    def _readings(self) -> Iterator[Reading]:
        """Yield a `Reading` with the value and the bounds of each output."""
        # This is an iterator because a list of thousands of `Reading` objects would slow down garbage collection.
        return map(partial(self.metric.read, self.state), range(self.metric.num_outputs or 1))

    @property
    def is_each(self) -> bool:
        """Whether the value is an array with one value for each output, rather than their mean."""
        return self.metric.multioutput == "raw_values"

    @cached_property
    def value(self) -> Any:
        if self.is_each:
            return np.array([NAN if one is None else one.to_float() for one in self.parts])
        return NAN if self.limits is None else self.limits.to_float()

    @cached_property
    def limits(self) -> Limits | None:
        return Limits.mean(self.parts)

    @cached_property
    def bounds(self) -> tuple[Any, Any]:
        return widen_for_rounding(self.value, self.state)

    def estimate(self, method: str) -> Estimate:
        if self.is_each:
            return stack_estimates([estimate_of(self.metric, one, method) for one in self._readings()])
        return Estimate(self.value, reason=DEPENDENT)

    @property
    def is_certain(self) -> bool:
        return True


class BoundedOutputMetric(OutputMetric[S]):
    """Base class for metrics of numeric targets whose certified bounds already allow for the rounding of weights."""

    def slack(self, state: S, limits: Limits, rounding: Fraction) -> Fraction:
        return Fraction(0)

    def read(self, state: S, output: int = 0) -> Reading:
        return OfOutput(self, state, output)

    def reading(self, state: S) -> Reading:
        return BoundedOutputs(self, state) if self._has_several else self.read(state)


class BoundedOutputs(Outputs):
    """The mean of the values of several outputs, or an array of the values, with certified bounds."""

    @cached_property
    def bounds(self) -> tuple[Any, Any]:
        pairs = [(NAN, NAN) if one is None else one.round_outward() for one in self.numbers]
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
    """Return whether the value is undefined for every output."""
    return all(metric.read(state, i).limits is None for i in range(state.outputs))


def root(numerator: Fraction, denominator: Fraction) -> Limits | None:
    """Return the square root of a quotient with lower and upper bounds, or None if the denominator is 0."""
    found = Limits.exactly(numerator, denominator)
    return None if found is None else Limits.root(found.value)
