"""The four decision counts as metrics: true and false positives, and true and false negatives."""

from __future__ import annotations

from typing import Any, ClassVar

from ...reading.about import About
from ...reading.reading import Quotient, Reading
from ...statistics.classes import PairCounts
from .base_decisions import AveragedDecision, OfDecisions, read_decisions_side_by_side

__all__ = ["FalseNegatives", "FalsePositives", "TrueNegatives", "TruePositives"]


class CellCount(AveragedDecision):
    """Base class for metrics that are one of the four counts TN, FP, FN and TP of a class against the rest.

    Parameters
    ----------
    average : {"macro", "micro", "weighted", None}
        How to combine the counts of several classes or labels: "micro" adds them, "macro" takes their mean, "weighted"
        takes their mean weighted by the number of positives, and None returns an array with one count for each class or
        label.
    """

    about = About(
        extensive=True,
        read_cells=read_decisions_side_by_side,
        no_interval_reason=("a count grows with the number of rows; rates such as Recall and Precision have intervals"),
    )

    cell: ClassVar[int] = 0
    """The index of the cell in the order TN, FP, FN, TP."""

    _by_class = True

    def of(self, state: Any) -> Quotient:
        count = state.cells_at(self._cut)[self.cell]
        return Quotient(count, getattr(state, "unit", 1) + 0 * count)

    def read(self, state: Any) -> Reading:
        return OfCell(self, state)

    def reading(self, state: Any) -> Reading:
        found = super().reading(state)
        return _in_rows(found, state.unit if isinstance(state, PairCounts) else 1) if self._class_settings else found


class OfCell(OfDecisions):
    """The reading (value and bounds) of a count. Without rows, the count is 0 rather than undefined."""

    def _reason(self) -> None:
        return None


def _in_rows(reading: Reading, unit: int) -> Reading:
    """Convert the value and bounds of a count from units to rows.

    If rows are weighted, the state measures weights in small units; a weight of 1 equals `unit` of these units.
    """

    def bounds() -> tuple[Any, Any]:
        low, high = reading.bounds
        return low / unit, high / unit

    # The unit is a power of two, so the division is exact.
    value, details = lambda: reading.value / unit, lambda: reading.details
    return Reading(reading.state, value, bounds=bounds, reason=lambda: None, details=details)


class TruePositives(CellCount, tag="true_positives"):
    """True positives: the number of positives that are predicted positive.

    Notes
    -----
    The value is the number of rows, or their total weight if rows are weighted; it is 0 without rows. Sums are exact
    integers, and only the result is rounded.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.TruePositives().update([0, 0, 0, 1, 1, 1], [0.1, 0.2, 0.6, 0.8, 0.9, 0.7]).compute()
    3.0
    """

    about = About(best="high", formula="TP")

    cell = 3


class FalsePositives(CellCount, tag="false_positives"):
    """False positives: the number of negatives that are predicted positive.

    Notes
    -----
    The value is the number of rows, or their total weight if rows are weighted; it is 0 without rows. Sums are exact
    integers, and only the result is rounded.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.FalsePositives().update([0, 0, 0, 1, 1, 1], [0.1, 0.2, 0.6, 0.8, 0.9, 0.7]).compute()
    1.0
    """

    about = About(best="low", formula="FP")

    cell = 1


class TrueNegatives(CellCount, tag="true_negatives"):
    """True negatives: the number of negatives that are predicted negative.

    Notes
    -----
    The value is the number of rows, or their total weight if rows are weighted; it is 0 without rows. Sums are exact
    integers, and only the result is rounded.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.TrueNegatives().update([0, 0, 0, 1, 1, 1], [0.1, 0.2, 0.6, 0.8, 0.9, 0.7]).compute()
    2.0
    """

    about = About(best="high", formula="TN")

    cell = 0


class FalseNegatives(CellCount, tag="false_negatives"):
    """False negatives: the number of positives that are predicted negative.

    Notes
    -----
    The value is the number of rows, or their total weight if rows are weighted; it is 0 without rows. Sums are exact
    integers, and only the result is rounded.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.FalseNegatives().update([0, 0, 0, 1, 1, 1], [0.1, 0.2, 0.6, 0.8, 0.9, 0.7]).compute()
    0.0
    """

    about = About(best="low", formula="FN")

    cell = 2
