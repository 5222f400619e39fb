"""PooledDefinition: the base of wrappers whose cells are read as one: recent rows, and rows that fade."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..reading.answers import InnerAnswer
from ..reading.replicates import Sample
from ..state.retention import settled
from ..state.state import State
from .axis_wrapper import AxisDefinition, AxisWrapper

__all__ = ["PooledAnswer", "PooledDefinition", "PooledWrapper", "alone", "mapped", "newest", "starts"]

Ints = NDArray[np.int64]


class PooledAnswer(InnerAnswer):
    """The answer of what is in the cells, about the states that `pooled` makes of all cells.

    Parameters
    ----------
    definition : PooledDefinition
        The axis, and what is in every cell.
    states : sequence of State
        The states, with the axis in front.
    """

    def __init__(self, definition: Any, states: Sequence[State]) -> None:
        super().__init__(definition, states, definition.inner.read(definition.pooled(states)))


class PooledDefinition(AxisDefinition):
    """The definition of an axis of steps whose cells are read as one.

    A subclass says which states they make together.
    """

    def pooled(self, states: Sequence[State]) -> list[State]:
        """Return a state without the axis for each state."""
        raise NotImplementedError

    @property
    def levels(self) -> tuple[str, ...]:  # type: ignore[override]
        found: tuple[str, ...] = self.inner.levels
        return found

    @property
    def is_single(self) -> bool:  # type: ignore[override]
        return bool(self.inner.is_single)

    @property
    def unit(self) -> str | None:  # type: ignore[override]
        found: str | None = self.inner.unit
        return found

    def read(self, states: Sequence[State]) -> PooledAnswer:
        return PooledAnswer(self, states)

    def samples(self, states: Sequence[State]) -> list[Sample]:
        found: list[Sample] = self.inner.samples(self.pooled(states))
        return found


class PooledWrapper(AxisWrapper):
    """A metric, a collection or a wrapper whose cells along one axis are read as one."""


def alone(state: State, cells: Ints) -> State:
    """Return some front cells of a state added up, without the axis."""
    return settled(state.select(cells).rollup(*state.axes[1:]))


def starts(state: State) -> tuple[Ints, Ints]:
    """The front cells that are told apart by the first axis, and at which step each begins."""
    ranks = state.cells.keys[:, 0]
    held = np.flatnonzero(ranks >= 0)
    values = state.cells.words[0].values
    return held, np.asarray(values, np.int64)[ranks[held]] if len(held) else held


def newest(states: Sequence[State]) -> int | None:
    """At which step the newest cell begins."""
    found = [int(begin.max()) for _, begin in map(starts, states) if len(begin)]
    return max(found, default=None)


def mapped(value: Any, how: Callable[[Any], Any]) -> Any:
    """Values, by whatever keys there are, each as something else."""
    return {key: mapped(one, how) for key, one in value.items()} if isinstance(value, dict) else how(value)
