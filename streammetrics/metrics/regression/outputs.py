"""What metrics of one or several numeric targets have in common: a value for each output, and their average."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...collect.interval import Estimate, side_by_side
from ...collect.metric import Metric, nothing_counted
from ...numerics.exact import Limits
from ...numerics.settings import setting
from ...state.state import State

__all__ = ["OutputMetric", "root"]


S = TypeVar("S", bound=State)
MULTIOUTPUT = ("uniform_average", "raw_values")


class OutputMetric(Metric[S, Any]):
    """A metric of numeric targets and predictions."""

    num_outputs: int | None = setting(default=None, low=1, high=1 << 16)
    multioutput: str = setting(default="uniform_average", choices=MULTIOUTPUT)

    best: ClassVar[str | None] = "low"

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

    def of_output(self, state: S, output: int) -> Limits | None:
        """Return the value of one output before it is rounded, with its limits; None where it is undefined."""
        raise NotImplementedError

    def of(self, state: S) -> float | NDArray[np.float64]:
        values = [self.of_output(state, i) for i in range(self.num_outputs or 1)]
        if self.multioutput == "raw_values":
            return np.array([math.nan if v is None else v.rounded() for v in values])
        found = Limits.mean(values)
        return math.nan if found is None else found.rounded()

    def estimate_of_output(self, state: S, output: int, value: float, method: str) -> Estimate:
        """Return the value of one output with its standard error."""
        return super().estimate_of(state, method)

    def estimate_of(self, state: S, method: str) -> Estimate:
        value = self.of(state)
        if self.instead:
            return super().estimate_of(state, method)
        if self.multioutput == "raw_values":
            each = [self.estimate_of_output(state, i, v, method) for i, v in enumerate(np.asarray(value).tolist())]
            return side_by_side(each)
        if (self.num_outputs or 1) == 1:
            return self.estimate_of_output(state, 0, float(value), method)
        why = 'outputs of the same rows are not independent: multioutput="raw_values" has an interval for each, '
        return Estimate(value, reason=why + "Sharded(..., unit=) one of the average")

    def reason_of(self, state: S) -> str | None:
        return nothing_counted(state)


def root(numerator: Fraction, denominator: Fraction) -> Limits | None:
    """Return the square root of a quotient; None for 0/0."""
    found = Limits.exactly(numerator, denominator)
    return None if found is None else Limits.root(found.value)
