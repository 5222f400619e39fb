"""Concatenate `Sliced` objects with equal settings (for example, one object for each hour) to compute them together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..collect.accumulator import accumulate, definition_of
from ..collect.metric_like import states_of
from ..errors import InvalidInputError
from ..numerics.slice_keys import to_stored_key
from ..state.axes import Axis, Vocabulary
from ..state.state import State
from .sliced import Sliced, SlicedDefinition

__all__ = ["concat_slices"]


def concat_slices(slices: Mapping[Any, Sliced], by: str) -> Sliced:
    """Concatenate several `Sliced` objects into one.

    The result has one more slicing column, `by`, whose values are the keys of the mapping. Computing all slices
    together is much faster than computing the objects one by one.

    Parameters
    ----------
    slices : mapping of key to Sliced
        The objects, keyed by a value such as the hour. They must have equal metrics and slicing columns, and no
        `limit`.
    by : str
        The name of the new column.

    Examples
    --------
    >>> import streammetrics as sm
    >>> hours = {h: sm.Sliced(sm.CTR(), by="arm").update(y_true=[0, h], arm=["a", "a"]) for h in (0, 1)}
    >>> concat_slices(hours, "hour").compute()
    {('a', 0): 0.0, ('a', 1): 0.5}
    """
    first = definition_of(next(iter(slices.values())))
    if first.axis.limit is not None:
        raise InvalidInputError(
            f"slices with a limit cannot be concatenated by {by!r}, because the rows beyond the limit are merged "
            f"into `other`, without keys; use slices without limit="
        )
    axis = first.axis._replace(names=(*first.axis.names, by))
    parts = [[_with_column(s, axis, key) for s in states_of(one)] for key, one in slices.items()]
    merged = [states[0].merge(*states[1:]) for states in zip(*parts, strict=True)]
    definition = SlicedDefinition(first.inner, axis)
    result: Sliced = definition.wrap(accumulate(definition, merged))
    return result


def _with_column(state: State, axis: Axis, key: Any) -> State:
    """Return the state with one more key column, whose value is `key` in every cell (such as a slice).

    The column comes last in the first axis; `axis` is that axis including the new column.
    """
    stored_key = to_stored_key(key)
    assert stored_key is not None
    at, cells = len(axis.names) - 1, state.cells
    words = (*cells.vocabularies[:at], Vocabulary.from_values(stored_key[0], [stored_key[1]]), *cells.vocabularies[at:])
    keys = np.ascontiguousarray(np.insert(cells.keys, at, 0, axis=1))
    return state.move_cells(keys, (axis, *state.axes[1:]), words)
