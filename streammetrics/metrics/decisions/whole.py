"""Metrics of a whole confusion matrix: of all classes together, or of each label."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from ...collect.interval import Estimate
from ...numerics.exact import Limits, to_float
from ...statistics.classes import Margins, PairCounts, Table
from ..chance import from_counts
from .counted import AveragedDecision

__all__ = ["WholeMatrix"]


class WholeMatrix(AveragedDecision):
    """A number read from a whole confusion matrix: of all classes together, or of each label."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self._of_classes and self.average != "macro":
            raise ValueError(
                f"{type(self).__name__}: classes have one value together; average= is for num_labels=, and for metrics of "
                f"a class such as Recall"
            )

    within: ClassVar[tuple[int | None, int | None]] = (0, 1)
    methods: ClassVar[tuple[str, ...]] = ("delta",)

    def influence(self, right: Any, true: Any, predicted: Any) -> Any:
        """Return what a row of each true and predicted class adds to the value, times all rows.

        Parameters
        ----------
        right, true, predicted : float64 arrays
            Shares of all rows: right of each class, of each true class, of each predicted class.

        Returns
        -------
        float64 array of shape (true classes, predicted classes)
        """
        raise NotImplementedError

    def chance(self, state: Any, value: Any, method: str) -> Estimate:
        rows = state.square()[0] if isinstance(state, PairCounts) else state.at_threshold(self._cut)[0]
        if math.isnan(value):
            return Estimate(value)
        total = int(rows.sum())
        shares = (np.array([to_float(n, total) for n in part]) for part in self._margins(state))
        with np.errstate(divide="ignore", invalid="ignore"):
            return from_counts(value, rows, self.influence(*shares), self.interval_scale)

    def estimate_of(self, state: Any, method: str) -> Estimate:
        if isinstance(state, PairCounts) and state.square()[1] is None:
            return self.estimate_of_binary(state, method)
        return super().estimate_of(state, method)

    def limits_of_margins(self, margins: Margins) -> Limits | None:
        """Return the value that the margins of a confusion matrix make, before rounding; None if it is undefined."""
        raise NotImplementedError

    def slack_of_margins(self, margins: Margins, found: Limits, slip: Fraction) -> Fraction:
        """Return how much wider the limits are if each weight is off by `slip`, relatively."""
        return 8 * slip * max(abs(found.low), abs(found.high))

    def reason_of_margins(self, margins: Margins) -> str:
        """Say why it is undefined."""
        return "0/0: no such rows"

    def of(self, state: Any) -> Any:
        return self.of_binary(state) if isinstance(state, PairCounts) else super().of(state)

    def bounds_of(self, state: Any) -> tuple[Any, Any]:
        return self.bounds_of_binary(state) if isinstance(state, PairCounts) else super().bounds_of(state)

    def reason_of(self, state: Any) -> str | None:
        return self._why(state, state.margins()) if isinstance(state, PairCounts) else super().reason_of(state)

    def details(self, state: Any) -> dict[str, Any]:
        return {} if isinstance(state, PairCounts) else super().details(state)

    def _margins(self, state: Any) -> Margins:
        return state.margins() if isinstance(state, PairCounts) else Table(*state.cells_at(self._cut)).margins()

    def limits_binary(self, state: Any) -> Limits | None:
        return self.limits_of_margins(self._margins(state))

    def slack(self, state: Any, found: Limits, slip: Fraction) -> Fraction:
        return self.slack_of_margins(self._margins(state), found, slip)

    def reason_of_binary(self, state: Any) -> str | None:
        return self._why(state, self._margins(state))

    def _why(self, state: Any, margins: Margins) -> str | None:
        if not state.facts()["rows"]:
            return "no rows"
        return self.reason_of_margins(margins) if self.limits_of_margins(margins) is None else None
