"""The four counts of decisions, as metrics: true and false, positives and negatives."""

from __future__ import annotations

from typing import Any, ClassVar

from ...reading.about import About
from ...reading.reading import Quotient, Reading
from ...statistics.classes import PairCounts
from .base_decisions import AveragedDecision, OfDecisions, read_decisions_side_by_side

__all__ = ["FalseNegatives", "FalsePositives", "TrueNegatives", "TruePositives"]


class CellCount(AveragedDecision):
    """What a cell of the confusion matrix of one class against the rest holds."""

    about = About(
        extensive=True,
        read_cells=read_decisions_side_by_side,
        no_interval_reason=(
            "a count grows with the rows: Recall, Precision and their kin are shares, which have intervals"
        ),
    )

    cell: ClassVar[int] = 0
    """Its place in TN, FP, FN, TP."""

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
    """The reading of a count of two classes, which is 0 without rows."""

    def _reason(self) -> None:
        return None


def _in_rows(found: Reading, unit: int) -> Reading:
    """Return a reading of several classes or labels in rows, which count so much; a count of no rows is 0."""

    def bounds() -> tuple[Any, Any]:
        low, high = found.bounds
        return low / unit, high / unit

    # The unit of classes is a power of two: nothing is rounded again.
    value, details = lambda: found.value / unit, lambda: found.details
    return Reading(found.state, value, bounds=bounds, reason=lambda: None, details=details)


class TruePositives(CellCount, tag="true_positives"):
    """True positives: the positives that are called positive.

    Parameters
    ----------
    threshold, num_classes, labels, num_labels, top_k, ignore_class, max_labels, on_invalid
        As for FalsePositiveRate.
    average : {"macro", "micro", "weighted", None}
        Of classes or labels: "micro" adds them up, None has each, "macro" is their mean.

    Notes
    -----
    Rows, or their weight; 0 without rows. Exact integers, rounded once. 64 bytes, 8 a pair of classes; under 1 ns a row.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.TruePositives().update([0, 0, 0, 1, 1, 1], [0.1, 0.2, 0.6, 0.8, 0.9, 0.7]).compute()
    3.0
    """

    about = About(best="high", formula="TP")

    cell = 3


class FalsePositives(CellCount, tag="false_positives"):
    """False positives: the negatives that are called positive.

    Parameters
    ----------
    threshold, num_classes, labels, num_labels, top_k, ignore_class, max_labels, on_invalid
        As for FalsePositiveRate.
    average : {"macro", "micro", "weighted", None}
        Of classes or labels: "micro" adds them up, None has each, "macro" is their mean.

    Notes
    -----
    Rows, or their weight; 0 without rows. Exact integers, rounded once. 64 bytes, 8 a pair of classes; under 1 ns a row.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.FalsePositives().update([0, 0, 0, 1, 1, 1], [0.1, 0.2, 0.6, 0.8, 0.9, 0.7]).compute()
    1.0
    """

    about = About(best="low", formula="FP")

    cell = 1


class TrueNegatives(CellCount, tag="true_negatives"):
    """True negatives: the negatives that are called negative.

    Parameters
    ----------
    threshold, num_classes, labels, num_labels, top_k, ignore_class, max_labels, on_invalid
        As for FalsePositiveRate.
    average : {"macro", "micro", "weighted", None}
        Of classes or labels: "micro" adds them up, None has each, "macro" is their mean.

    Notes
    -----
    Rows, or their weight; 0 without rows. Exact integers, rounded once. 64 bytes, 8 a pair of classes; under 1 ns a row.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.TrueNegatives().update([0, 0, 0, 1, 1, 1], [0.1, 0.2, 0.6, 0.8, 0.9, 0.7]).compute()
    2.0
    """

    about = About(best="high", formula="TN")

    cell = 0


class FalseNegatives(CellCount, tag="false_negatives"):
    """False negatives: the positives that are called negative.

    Parameters
    ----------
    threshold, num_classes, labels, num_labels, top_k, ignore_class, max_labels, on_invalid
        As for FalsePositiveRate.
    average : {"macro", "micro", "weighted", None}
        Of classes or labels: "micro" adds them up, None has each, "macro" is their mean.

    Notes
    -----
    Rows, or their weight; 0 without rows. Exact integers, rounded once. 64 bytes, 8 a pair of classes; under 1 ns a row.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.FalseNegatives().update([0, 0, 0, 1, 1, 1], [0.1, 0.2, 0.6, 0.8, 0.9, 0.7]).compute()
    0.0
    """

    about = About(best="low", formula="FN")

    cell = 2
