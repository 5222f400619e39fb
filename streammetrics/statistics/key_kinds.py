"""The kind of key that a statistic counts, such as integer or string.

Statistics of hashed keys record the kind, because an integer key and a string key could have the same hash.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from ..errors import IncompatibleStateError, InvalidInputError
from ..state.declare import Array, Flat
from ..state.state import State
from .step import Like, Step

__all__ = ["KINDS", "KeyKinds", "check_key_kinds", "kind_number", "seen_kinds_of"]

# State files contain the index of a kind in this tuple, so the order must never change.
KINDS = ("integer", "string", "bytes", "several", "bool", "date", "timestamp", "decimal")


class KeyKinds(State):
    """The base class for statistics of hashed keys, all of which must be of one kind, such as integer or string.

    A batch or a merged state with keys of another kind raises an error.
    """

    kinds = Flat(len(KINDS), form="flag", front=True)

    key_role: ClassVar[str] = "value"
    """The name of the column that contains the keys."""

    def kind_step(self, like: Like) -> Step:
        """Return the kernel call that records the key kind of a batch in the state."""
        kind = kind_number(like.source(self.key_role), np.zeros(0), self.key_role)
        return Step("cells:set_cell_flags", self.key_role, "front", len(KINDS), kind, type(self).kinds)

    def check_sources(self, flats: Mapping[str, Array], sources: Mapping[str, str]) -> None:
        if source := sources.get(self.key_role):
            kind_number(source, np.asarray(flats["kinds"].any(axis=0)), self.key_role)

    def unify_parts(self, states: Sequence[Self]) -> Sequence[Self]:
        some = [s for s in states if seen_kinds_of(s).any()]
        for state in some[1:]:
            check_key_kinds(some[0], state)
        return states


def check_key_kinds(ours: State, theirs: State) -> None:
    """Raise IncompatibleStateError if the keys of two states are of different kinds, such as integer and string."""
    a, b = seen_kinds_of(ours), seen_kinds_of(theirs)
    if a.any() and b.any() and not (a & b).any():
        x, y = (KINDS[int(k.argmax())] for k in (a, b))
        name = getattr(ours, "key_role", "group")
        raise IncompatibleStateError(f"keys of {name} are of kind {x} here and {y} there; convert the keys of one side")


def seen_kinds_of(state: State) -> NDArray[np.bool_]:
    """Return, for each kind in KINDS, whether the state contains keys of this kind."""
    # A `GroupRows` state whose rows are not sorted yet keeps the kinds in its attribute `waiting`. Reading its
    # attribute `cells` would sort the rows.
    waiting: Any = state.__dict__.get("waiting")
    if waiting is not None:
        return np.asarray(waiting.kinds > 0)
    kinds = state.cells.flats["kinds"]
    return np.asarray(kinds.max(axis=0) > 0) if len(kinds) else np.zeros(len(KINDS), bool)


def kind_number(source: str, seen_kinds: NDArray[Any], name: str = "group") -> int:
    """Return the index in KINDS of the kind of a key column.

    Parameters
    ----------
    source : str
        The kind, such as "integer". Any name that is not in KINDS means keys from several columns.
    seen_kinds : bool array
        For each kind, whether earlier keys are of this kind; may be empty.
    name : str
        The name of the column, for the error message.

    Raises
    ------
    InvalidInputError
        All earlier keys are of a different kind.
    """
    kind = KINDS.index(source if source in KINDS else "several")
    if seen_kinds.any() and not seen_kinds[kind]:
        known = KINDS[int(seen_kinds.argmax())]
        raise InvalidInputError(
            f"{name}: expected keys of kind {known}, as in earlier rows, found keys of kind {KINDS[kind]}; convert the "
            f"column",
            column=name,
        )
    return kind
