"""Corrections of what was counted: rows that came since, and rows that are to go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self, TypeVar

from ..collect.feed import change
from ..collect.holder import Holder, blank_of, states_of
from ..state.state import State
from .bundle import Bundle

__all__ = ["Delta"]

H = TypeVar("H", bound=Holder)


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

    sort = "delta"

    def __init__(self, metric: Holder) -> None:
        if not isinstance(metric, Holder) or not (metric.adds and metric.counts):
            raise TypeError(
                f"a delta is of a metric, a collection, slices or windows, not of a {type(metric).__name__}"
            )
        self._things = {"added": metric.copy().reset(), "retracted": metric.copy().reset()}

    @property
    def added(self) -> Any:
        """What has counted the rows that came."""
        return self["added"]

    @property
    def retracted(self) -> Any:
        """What has counted the rows that are to go."""
        return self["retracted"]

    def by_position(self) -> tuple[str, ...]:
        made: tuple[str, ...] = self.added.by_position()
        return made

    def update(self, y_true: Any = None, y_score: Any = None, /, **columns: Any) -> Self:
        """Count a batch of rows that came; takes, and raises, what `update` of the metric does."""
        self.added.update(y_true, y_score, **columns)
        return self

    def retract(self, y_true: Any = None, y_score: Any = None, /, **columns: Any) -> Self:
        """Count a batch of rows that are to go, each with the label, score and weight with which it was counted."""
        self.retracted.update(y_true, y_score, **columns)
        return self

    def apply_to(self, total: H) -> H:
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
        if not isinstance(total, Holder):
            raise TypeError(f"a delta is applied to what counts, not to a {type(total).__name__}")
        added, retracted = (total.fitting(side) for side in (self.added, self.retracted))
        change([total.feed.correcting(added.states, retracted.states)])
        return total

    def __repr__(self) -> str:
        sides = [f"{_rows(thing)} {name}" for name, thing in self.items()]
        return f"Delta of {type(self.added).__name__}: {', '.join(sides)}"

    def header(self) -> dict[str, Any]:
        return {"kind": "delta", "of": self.added.header()}

    @classmethod
    def of_header(cls, header: dict[str, Any], states: Sequence[State]) -> Any:
        half = len(states) // 2
        parts = {"added": states[:half], "retracted": states[half:]}
        return cls._of({name: blank_of(header["of"], some) for name, some in parts.items()})

    @classmethod
    def state_count(cls, header: dict[str, Any]) -> int:
        return 2 * states_of(header["of"])


def _rows(thing: Holder) -> str:
    """How many rows a thing has counted, as people say it."""
    rows = max(int(state.rows_seen.sum()) for state in thing.states)
    return f"{rows:,} row{'s' if rows != 1 else ''}"
