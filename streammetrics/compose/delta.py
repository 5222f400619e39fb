"""Delta: corrections of what was counted: rows that came since, and rows that are to go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self, TypeVar

from ..collect.accumulator import accumulate, accumulator_of, definition_of
from ..collect.definition import Definition, definition_of_header, number_of_states
from ..collect.metric_like import MetricLike, states_of
from ..count.batch_updater import change
from ..state.state import State
from .bundle import Bundle, BundleDefinition

__all__ = ["Delta", "DeltaDefinition"]

M = TypeVar("M", bound=MetricLike)


class DeltaDefinition(BundleDefinition):
    """The definition of rows that were added and rows that were retracted."""

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
    """What was added and what was retracted since something was counted.

    A click is counted with label 0, and converts days later; an order is cancelled. A delta holds the new rows and the old
    ones apart, so deltas are saved and merged in any order, without the total, and applied to it when it suits.

    Parameters
    ----------
    metric : Metric, MetricCollection, Sliced or Windowed
        What the total is of. It stays as it is; rows that it has seen are in neither part.

    Attributes
    ----------
    added, retracted : of the kind of `metric`
        What was counted on each side, also as ``delta["added"]`` and ``delta["retracted"]``.

    Notes
    -----
    Each side costs what the metric does for its rows, and applying it what a merge does. Rows are retracted with all that
    they were counted with: label, score, weight, slice, unit and time. To take away a whole part there is `subtract`.

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
                f"a delta is of a metric, a collection, slices or windows, not of a {type(metric).__name__}"
            )
        self._accumulator = accumulate(DeltaDefinition({"added": definition, "retracted": definition}))

    @property
    def added(self) -> Any:
        """What has counted the rows that came."""
        return self["added"]

    @property
    def retracted(self) -> Any:
        """What has counted the rows that are to go."""
        return self["retracted"]

    def update(self, y_true: Any = None, y_score: Any = None, /, **columns: Any) -> Self:
        """Count a batch of rows that came; takes, and raises, what `update` of the metric does."""
        self.added.update(y_true, y_score, **columns)
        return self

    def retract(self, y_true: Any = None, y_score: Any = None, /, **columns: Any) -> Self:
        """Count a batch of rows that are to go, each with the label, score and weight with which it was counted."""
        self.retracted.update(y_true, y_score, **columns)
        return self

    def apply_to(self, total: M) -> M:
        """Change what was counted to what it would be had the retracted rows never come; return it.

        Parameters
        ----------
        total : of the kind of the metric
            What counted the retracted rows, unless this delta added them; it is changed as one. The delta stays as it is.

        Raises
        ------
        IncompatibleStateError
            The total is of something else; rows were retracted that are in neither; or no row can be taken away (see
            `subtract`). Nothing was changed.
        """
        if not isinstance(total, MetricLike):
            raise TypeError(f"a delta is applied to what counts, not to a {type(total).__name__}")
        accumulator = accumulator_of(total)
        added, retracted = (accumulator.fitting(side) for side in self._accumulator.parts.values())
        change([accumulator.feed.correcting(added.states, retracted.states)])
        return total

    def __repr__(self) -> str:
        sides = [f"{_rows(thing)} {name}" for name, thing in self.items()]
        return f"Delta of {type(self.added).__name__}: {', '.join(sides)}"


DeltaDefinition.public = Delta


def _rows(thing: MetricLike) -> str:
    """Return how many rows an object has counted, in words."""
    rows = max(int(state.rows_seen.sum()) for state in states_of(thing))
    return f"{rows:,} row{'s' if rows != 1 else ''}"
