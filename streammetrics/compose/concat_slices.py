"""Several of the same slices as one, with a column more that says which: to be read all at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..collect.accumulator import accumulate, definition_of
from ..collect.metric_like import states_of
from ..errors import InvalidInputError
from ..numerics.keys import raw
from ..state.axes import Axis, Vocabulary
from ..state.state import State
from .sliced import Sliced, SlicedDefinition

__all__ = ["stacked"]


def stacked(slices: Mapping[Any, Sliced], by: str) -> Sliced:
    """Return the slices of several, by their columns and, behind these, by a column of the keys given.

    Reading many cells side by side takes a fraction of the time of each alone.

    Parameters
    ----------
    slices : mapping of key to Sliced
        Such as hours; of the same metrics and columns, without a limit.
    by : str
        What the new column is called.

    Examples
    --------
    >>> import streammetrics as sm
    >>> hours = {h: sm.Sliced(sm.CTR(), by="arm").update(y_true=[0, h], arm=["a", "a"]) for h in (0, 1)}
    >>> stacked(hours, "hour").compute()
    {('a', 0): 0.0, ('a', 1): 0.5}
    """
    first = definition_of(next(iter(slices.values())))
    if first.axis.limit is not None:
        raise InvalidInputError(f"slices with a limit have an other, which {by} cannot tell apart")
    axis = first.axis._replace(names=(*first.axis.names, by))
    parts = [[_with_column(s, axis, key) for s in states_of(one)] for key, one in slices.items()]
    made = [states[0].merge(*states[1:]) for states in zip(*parts, strict=True)]
    definition = SlicedDefinition(first.inner, axis)
    found: Sliced = definition.wrap(accumulate(definition, made))
    return found


def _with_column(state: State, axis: Axis, key: Any) -> State:
    """The same with a column more in front of what is behind the first axis."""
    held = raw(key)
    assert held is not None
    at, cells = len(axis.names) - 1, state.cells
    words = (*cells.words[:at], Vocabulary.of(held[0], [held[1]]), *cells.words[at:])
    keys = np.ascontiguousarray(np.insert(cells.keys, at, 0, axis=1))
    return state.moved(keys, (axis, *state.axes[1:]), words)
