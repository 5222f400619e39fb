"""Base classes of `Recent` and `Decayed`, which combine several windows into one value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..reading.answers import InnerAnswer
from ..reading.replicates import Sample
from ..state.retention import apply_retention
from ..state.state import State
from .axis_wrapper import AxisDefinition, AxisWrapper

__all__ = [
    "PooledAnswer",
    "PooledDefinition",
    "PooledWrapper",
    "cell_starts",
    "map_values",
    "newest_start",
    "sum_cells",
]

Ints = NDArray[np.int64]


class PooledAnswer(InnerAnswer):
    """Values, bounds and intervals of all windows together.

    Parameters
    ----------
    definition : PooledDefinition
        The definition, which combines the windows with `pool_states`.
    states : sequence of State
        The states of all metrics. Their first axis is the window axis.
    """

    def __init__(self, definition: Any, states: Sequence[State]) -> None:
        super().__init__(definition, states, definition.inner.read(definition.pool_states(states)))


class PooledDefinition(AxisDefinition):
    """The definition of a wrapper that combines windows into one value.

    A subclass implements `pool_states`, which combines the windows.
    """

    def pool_states(self, states: Sequence[State]) -> list[State]:
        """Combine the windows of each state, and return the combined states, which no longer have the window axis."""
        raise NotImplementedError

    @property
    def levels(self) -> tuple[str, ...]:  # type: ignore[override]
        levels: tuple[str, ...] = self.inner.levels
        return levels

    @property
    def is_single(self) -> bool:  # type: ignore[override]
        return bool(self.inner.is_single)

    @property
    def unit(self) -> str | None:  # type: ignore[override]
        unit: str | None = self.inner.unit
        return unit

    def read(self, states: Sequence[State]) -> PooledAnswer:
        return PooledAnswer(self, states)

    def samples(self, states: Sequence[State]) -> list[Sample]:
        samples: list[Sample] = self.inner.samples(self.pool_states(states))
        return samples


class PooledWrapper(AxisWrapper):
    """A wrapper that combines several windows into one value; the base class of `Recent` and `Decayed`."""


def sum_cells(state: State, cells: Ints) -> State:
    """Return the sum of the cells (such as windows) with the given indices, as a state without the first axis."""
    return apply_retention(state.select(cells).rollup(*state.axes[1:]))


def cell_starts(state: State) -> tuple[Ints, Ints]:
    """Return the indices of the cells that belong to a window, and the start of each cell's window."""
    # The first element of a key is the rank of its window. The cells of expired rows, and of rows without a time, have
    # a negative rank.
    ranks = state.cells.keys[:, 0]
    cells = np.flatnonzero(ranks >= 0)
    values = state.cells.vocabularies[0].values
    return cells, np.asarray(values, np.int64)[ranks[cells]] if len(cells) else cells


def newest_start(states: Sequence[State]) -> int | None:
    """Return the start of the newest window; None if there are no windows."""
    starts = [int(begin.max()) for _, begin in map(cell_starts, states) if len(begin)]
    return max(starts, default=None)


def map_values(value: Any, how: Callable[[Any], Any]) -> Any:
    """Apply the function `how` to every value of nested dicts, and return the results as dicts with the same keys."""
    return {key: map_values(one, how) for key, one in value.items()} if isinstance(value, dict) else how(value)
