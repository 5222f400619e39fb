"""Which kind of keys a statistic has seen: 5 and "5" are two keys, and which of them a hash stands for cannot be told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from ..errors import IncompatibleStateError, InvalidInputError
from ..state.declare import Array, Flat
from ..state.state import State
from .step import Like, Step

__all__ = ["KINDS", "KeyKinds", "check_key_kinds", "kind_of", "kinds_of"]

# For ever: it is in the bytes.
KINDS = ("integer", "string", "bytes", "several", "bool", "date", "timestamp", "decimal")


class KeyKinds(State):
    """A statistic of keys that it does not keep as they came: it refuses keys of another kind, and states of them."""

    kinds = Flat(len(KINDS), form="flag", front=True)

    keyed: ClassVar[str] = "value"
    """The role of the keys."""

    def note_kind(self, like: Like) -> Step:
        """Return the step that records the kind of the keys."""
        kind = kind_of(like.source(self.keyed), np.zeros(0), self.keyed)
        return Step("cells:mark_rows", self.keyed, "front", len(KINDS), kind, type(self).kinds)

    def admit_beside(self, flats: Mapping[str, Array], sources: Mapping[str, str]) -> None:
        if source := sources.get(self.keyed):
            kind_of(source, np.asarray(flats["kinds"].any(axis=0)), self.keyed)

    def alike(self, states: Sequence[Self]) -> Sequence[Self]:
        some = [s for s in states if kinds_of(s).any()]
        for state in some[1:]:
            check_key_kinds(some[0], state)
        return states


def check_key_kinds(ours: State, theirs: State) -> None:
    """Raise unless the keys of two states are of one kind."""
    a, b = kinds_of(ours), kinds_of(theirs)
    if a.any() and b.any() and not (a & b).any():
        x, y = (KINDS[int(k.argmax())] for k in (a, b))
        name = getattr(ours, "keyed", "group")
        raise IncompatibleStateError(f"keys of {name} are of kind {x} here and {y} there; convert one of them")


def kinds_of(state: State) -> NDArray[np.bool_]:
    """Which kinds of keys were seen."""
    held: Any = state.__dict__.get("waiting")
    if held is not None:
        return np.asarray(held.kinds > 0)
    kinds = state.cells.flats["kinds"]
    return np.asarray(kinds.max(axis=0) > 0) if len(kinds) else np.zeros(len(KINDS), bool)


def kind_of(source: str, seen: NDArray[Any], name: str = "group") -> int:
    """Return the number of the kind of keys, or raise if those so far are of another."""
    kind = KINDS.index(source if source in KINDS else "several")
    if seen.any() and not seen[kind]:
        known = KINDS[int(seen.argmax())]
        raise InvalidInputError(
            f"{name}: the keys so far are of kind {known}, these are of kind {KINDS[kind]}; convert one of them",
            column=name,
        )
    return kind
