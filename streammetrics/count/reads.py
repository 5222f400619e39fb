"""Read: the state that is counted and the columns that it is counted from."""

from __future__ import annotations

from typing import NamedTuple

from ..batch.column_binding import Binding
from ..batch.times import EventTime, Latest
from ..state.axes import EPOCHS, Axis
from ..state.state import State

__all__ = ["MEMORY_LIMIT", "Read"]

MEMORY_LIMIT = 4 << 30
"""The bytes that the cells of one object may take, if it sets no limit of its own."""


class Read(NamedTuple):
    """What is counted.

    Parameters
    ----------
    state : State
        What has seen nothing, or some rows.
    binding : Binding
        The columns that it is counted from.
    ranks : bool, optional
        Whether of the scores only the order matters; None if nobody knows.
    latest : tuple of (axis, Latest)
        Of axes of event time, what time is too late.
    """

    state: State
    binding: Binding
    ranks: bool | None = False
    latest: tuple[tuple[Axis, Latest], ...] = ()

    @property
    def times(self) -> tuple[tuple[Axis, EventTime], ...]:
        """The axes of event time, and what their columns hold."""
        latest = dict(self.latest)
        epochs = [a for a in self.state.axes if a.kind in EPOCHS]
        return tuple((a, EventTime(EPOCHS[a.kind], a.size, latest.get(a))) for a in epochs)
