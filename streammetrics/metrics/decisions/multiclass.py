"""The base class for metrics that are computed from the whole confusion matrix, such as accuracy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...numerics.exact import to_float
from ...reading.about import About, about_of
from ...reading.interval import Estimate
from ...reading.reading import Reading
from ...statistics.classes import ClassTable, PairCounts
from ..standard_errors import from_counts, share
from .base_decisions import AveragedDecision

__all__ = ["WholeMatrix"]


class WholeMatrix(AveragedDecision):
    """Base class for metrics that are computed from the whole confusion matrix.

    With several classes, there is a single value. With several labels, each label has its own confusion matrix, and the
    values are averaged.
    """

    about = About(value_range=(0, 1), interval_methods=("delta",))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self._of_classes and self.average != "macro":
            raise ValueError(
                f"{type(self).__name__}: average={self.average!r} needs num_labels=; for classes, the metric has a "
                f"single value: leave average= out, or use a metric of each class such as Recall"
            )

    def gradient(self, right: Any, true: Any, predicted: Any) -> Any:
        """Return the derivative of the value with respect to each confusion-matrix count, times the number of rows.

        Parameters
        ----------
        right, true, predicted : float64 arrays
            For each class, three shares of all rows: those that belong to the class and are predicted correctly
            (`right`), those that belong to it (`true`), and those that are predicted to belong to it (`predicted`).

        Returns
        -------
        float64 array of shape (true classes, predicted classes)
        """
        raise NotImplementedError

    def _view(self, state: Any) -> Any:
        return state.margins() if isinstance(state, PairCounts) else ClassTable(*state.cells_at(self._cut)).margins()

    def estimate(self, reading: Any, method: str) -> Estimate:
        state, margins = reading.state, reading.view
        if "wilson" in about_of(self).interval_methods:
            return share(margins.total, reading.value, method)
        if math.isnan(reading.value):
            return Estimate(reading.value)
        rows = state.confusion_matrix()[0] if isinstance(state, PairCounts) else state.counts_at(self._cut)[0]
        total = int(rows.sum())
        shares = (np.array([to_float(n, total) for n in part]) for part in margins)
        with np.errstate(divide="ignore", invalid="ignore"):
            return from_counts(reading.value, rows, self.gradient(*shares), about_of(self).interval_scale)

    def reading(self, state: Any) -> Reading:
        return self.read(state) if isinstance(state, PairCounts) else super().reading(state)
