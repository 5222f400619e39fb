"""What has an axis of steps in front, the cells of which are read as one: recent rows, and rows that fade."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..collect.interval import DEFAULT_CONFIDENCE, check_confidence
from ..collect.sample import Sample
from ..collect.scalars import Named
from ..collect.table import Table, values_table
from ..collect.wide_bounds import WideValue, warn
from ..state.policy import settled
from ..state.state import State
from .front import Front

__all__ = ["Pooled", "newest", "starts"]

Ints = NDArray[np.int64]


class Pooled(Front):
    """Something that answers as what is behind its axis would, from what `pooled` makes of the cells."""

    def pooled(self, states: Sequence[State]) -> list[State]:
        """One state without the axis for each."""
        raise NotImplementedError

    def _alone(self, state: State, cells: Ints) -> State:
        """Some front cells of a state added up, without the axis."""
        return settled(state.select(cells).rollup(*state.axes[1:]))

    def differences(self, other: Any) -> list[str]:
        pairs = {n: (v, other.header().get(n)) for n, v in self.header().items() if n not in ("kind", "inner")}
        return [f"{n} is {a!r} here and {b!r} there" for n, (a, b) in pairs.items() if a != b] + self._unlike_inside(
            other
        )

    @property
    def levels(self) -> tuple[str, ...]:  # type: ignore[override]
        """The columns that tell apart what it answers: not those of its axis."""
        found: tuple[str, ...] = self.inner.levels
        return found

    @property
    def single(self) -> bool:  # type: ignore[override]
        return bool(self.inner.single)

    @property
    def unit(self) -> str | None:  # type: ignore[override]
        """The column of the units that intervals take as independent, if not rows."""
        found: str | None = self.inner.unit
        return found

    # -- results of states --------------------------------------------------------------------------------------------

    def value(self, states: Sequence[State]) -> Any:
        return self.inner.value(self.pooled(states))

    def value_with_wide(self, states: Sequence[State]) -> tuple[Any, list[WideValue]]:
        found: tuple[Any, list[WideValue]] = self.inner.value_with_wide(self.pooled(states))
        return found

    def limits(self, states: Sequence[State]) -> Any:
        return self.inner.limits(self.pooled(states))

    def explained(self, states: Sequence[State]) -> Any:
        return self.inner.explained(self.pooled(states))

    def numbers(self, value: Any) -> Named:
        made: Named = self.inner.numbers(value)
        return made

    def samples(self, states: Sequence[State]) -> list[Sample]:
        found: list[Sample] = self.inner.samples(self.pooled(states))
        return found

    def chances(self, states: Sequence[State], confidence: float, method: str | None) -> Any:
        return self.inner.chances(self.pooled(states), confidence, method)

    def records(self, states: Sequence[State], confidence: float | None = 0.95) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.inner.records(self.pooled(states), confidence)
        return rows

    # -- results ------------------------------------------------------------------------------------------------------

    def compute(self) -> Any:
        """Return the value, or the values by name, as what is behind has them."""
        value, wide = self.value_with_wide(self.states)
        warn(wide, self.warned_wide, stacklevel=2)
        return value

    def bounds(self) -> Any:
        """Return certified limits of the values."""
        return self.limits(self.states)

    def explain(self) -> Any:
        """Return the values with what is behind them."""
        return self.explained(self.states)

    def table(self, *, confidence: float | None = DEFAULT_CONFIDENCE) -> Table:
        """Return values, bounds, intervals and counts as one table.

        Parameters
        ----------
        confidence : float or None
            Confidence level of the intervals. If you pass one, the table prints every interval, or the reason why there is
            none. By default it prints only intervals that come from `Sharded`, because rows of one user are correlated.
            None omits intervals.
        """
        return values_table(self.levels, self.records(self.states, check_confidence(confidence)), confidence)


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
