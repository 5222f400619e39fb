"""The class `Read`: a state, and the columns whose values are added to it."""

from __future__ import annotations

from typing import NamedTuple

from ..batch.column_binding import Binding
from ..batch.times import EventTime, Latest
from ..state.axes import EPOCHS, Axis
from ..state.state import State

__all__ = ["MEMORY_ADVICE", "MEMORY_LIMIT", "Read"]

MEMORY_LIMIT = 4 << 30
"""The default limit on the memory of all cells of an object, such as a metric, in bytes."""

MEMORY_ADVICE = "use fewer bits, pass limit= to keep some slices and merge the others, or raise memory_limit"
"""The advice in the error message that is raised if slices need more memory than the limit."""


class Read(NamedTuple):
    """A state, and the columns whose values are added to it.

    Parameters
    ----------
    state : State
        The state to which rows are added. It may be empty.
    binding : Binding
        The column of each role that the state reads, such as "y_score", and the column that selects rows, if any.
    ranks : bool, optional
        Whether only the order of the scores matters; None if this is unknown.
    latest : tuple of (axis, Latest)
        The latest time that a batch may contain, for each event-time axis with such a limit.
    """

    state: State
    binding: Binding
    ranks: bool | None = False
    latest: tuple[tuple[Axis, Latest], ...] = ()

    @property
    def block_column(self) -> str:
        """The name of the column that identifies queries (or other blocks), for error messages."""
        return str(self.binding.column(self.state.block_column or "query"))

    @property
    def times(self) -> tuple[tuple[Axis, EventTime], ...]:
        """The window axes (windows of time or of steps), each with the `EventTime` that converts its column."""
        latest = dict(self.latest)
        epochs = [a for a in self.state.axes if a.kind in EPOCHS]
        return tuple((a, EventTime(EPOCHS[a.kind], a.size, latest.get(a))) for a in epochs)
