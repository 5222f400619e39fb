"""A state and the columns that it is counted from."""

from __future__ import annotations

from typing import NamedTuple

from ..batch.column_binding import Binding
from ..batch.times import EventTime, Latest
from ..state.axes import EPOCHS, Axis
from ..state.state import State

__all__ = ["MEMORY_LIMIT", "Read"]

MEMORY_LIMIT = 4 << 30
"""Default limit, in bytes, of the cells of one object."""


class Read(NamedTuple):
    """A state and the columns that it is counted from.

    Parameters
    ----------
    state : State
        The state to start from, empty or not.
    binding : Binding
        The columns that play the roles of the state.
    ranks : bool, optional
        Whether only the order of the scores matters; None if this is unknown.
    latest : tuple of (axis, Latest)
        For axes of event time, the latest time that is accepted.
    """

    state: State
    binding: Binding
    ranks: bool | None = False
    latest: tuple[tuple[Axis, Latest], ...] = ()

    @property
    def times(self) -> tuple[tuple[Axis, EventTime], ...]:
        """The axes of event time, each with the kind of its column."""
        latest = dict(self.latest)
        epochs = [a for a in self.state.axes if a.kind in EPOCHS]
        return tuple((a, EventTime(EPOCHS[a.kind], a.size, latest.get(a))) for a in epochs)
