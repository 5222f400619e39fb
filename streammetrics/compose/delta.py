"""Delta: corrections to a previously counted total, as rows to add and rows to retract."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self, TypeVar

from ..collect.accumulator import accumulate, accumulator_of, definition_of
from ..collect.definition import Definition, definition_of_header, number_of_states
from ..collect.metric_like import MetricLike, states_of
from ..count.state_changes import apply_changes
from ..state.state import State
from .bundle import Bundle, BundleDefinition

__all__ = ["Delta", "DeltaDefinition"]

M = TypeVar("M", bound=MetricLike)


class DeltaDefinition(BundleDefinition):
    """The definition of a delta: a bundle of two objects with the same settings, "added" and "retracted"."""

    kind = "delta"

    @property
    def name(self) -> str:
        return "delta"

    def positional_columns(self) -> tuple[str, ...]:
        return self.definitions["added"].positional_columns()

    def header(self) -> dict[str, Any]:
        return {"kind": "delta", "of": self.definitions["added"].header()}

    @classmethod
    def of_header(cls, header: dict[str, Any], states: Sequence[State]) -> Self:
        half = len(states) // 2
        parts = {"added": states[:half], "retracted": states[half:]}
        return cls({name: definition_of_header(header["of"], some) for name, some in parts.items()})

    @classmethod
    def number_of_states(cls, header: dict[str, Any]) -> int:
        return 2 * number_of_states(header["of"])


class Delta(Bundle):
    """Rows to add to a previously counted total, and rows to retract from it.

    For example, a click that was counted with label 0 converts days later, or an order is canceled. A delta counts added
    and retracted rows separately. Deltas can therefore be saved and merged in any order, and applied to the total later.

    Parameters
    ----------
    metric : Metric, MetricCollection, Sliced or Windowed
        An object with the settings of the total. It is unchanged, and its rows are not part of the delta.

    Attributes
    ----------
    added, retracted : object of the same class as `metric`
        The objects that count the two kinds of rows; also ``delta["added"]`` and ``delta["retracted"]``.

    Notes
    -----
    A delta takes as much memory as two metrics, and applying it takes as long as a merge. Retract a row with exactly
    the values with which it was counted: label, score, weight, slice, unit and time. To remove all rows of a part that
    was merged, such as a faulty partition, use `subtract`.

    Examples
    --------
    >>> import streammetrics as sm
    >>> total = sm.AUC().update([0, 0, 1, 0], [0.2, 0.4, 0.7, 0.9])
    >>> delta = sm.Delta(total)
    >>> delta.retract([0], [0.9]).update([1], [0.9])  # the last one converted after all
    Delta of AUC: 1 row added, 1 row retracted
    >>> delta.apply_to(total) == sm.AUC().update([0, 0, 1, 1], [0.2, 0.4, 0.7, 0.9])
    True
    """

    def __init__(self, metric: MetricLike) -> None:
        definition: Definition | None = definition_of(metric) if isinstance(metric, MetricLike) else None
        if definition is None or not (definition.adds and definition.counts):
            raise TypeError(
                f"Delta: expected a metric, a collection, slices or windows, found an object of class "
                f"{type(metric).__name__}"
            )
        self._accumulator = accumulate(DeltaDefinition({"added": definition, "retracted": definition}))

    @property
    def added(self) -> Any:
        """The object that counts the added rows."""
        return self["added"]

    @property
    def retracted(self) -> Any:
        """The object that counts the retracted rows."""
        return self["retracted"]

    def update(self, y_true: Any = None, y_score: Any = None, /, **columns: Any) -> Self:
        """Count a batch of added rows; see the metric's `update` method."""
        self.added.update(y_true, y_score, **columns)
        return self

    def retract(self, y_true: Any = None, y_score: Any = None, /, **columns: Any) -> Self:
        """Count a batch of retracted rows, each with the label, score and weight with which it was counted before."""
        self.retracted.update(y_true, y_score, **columns)
        return self

    def apply_to(self, total: M) -> M:
        """Add the added rows to a total, subtract the retracted rows, and return the total.

        Parameters
        ----------
        total : object of the same class as the metric
            The object to change; after an error, it is unchanged. It must have counted the retracted rows, unless this
            delta adds them. The delta itself is not changed.

        Raises
        ------
        IncompatibleStateError
            The total has different settings, a retracted row is neither in the total nor added, or rows cannot be
            subtracted (see `subtract`).
        """
        if not isinstance(total, MetricLike):
            raise TypeError(
                f"apply_to(): expected a metric, a collection, slices or windows, found an object of class "
                f"{type(total).__name__}"
            )
        accumulator = accumulator_of(total)
        added, retracted = (accumulator.align(side) for side in self._accumulator.parts.values())
        apply_changes([accumulator.updater.correction(added.states, retracted.states)])
        return total

    def __repr__(self) -> str:
        sides = [f"{_row_count_text(thing)} {name}" for name, thing in self.items()]
        return f"Delta of {type(self.added).__name__}: {', '.join(sides)}"


DeltaDefinition.public = Delta


def _row_count_text(thing: MetricLike) -> str:
    """Return the number of rows in an object as text."""
    rows = max(int(state.row_counts.sum()) for state in states_of(thing))
    return f"{rows:,} row{'s' if rows != 1 else ''}"
