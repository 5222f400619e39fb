"""Accumulator: counts batches in states, merges them, takes rows away again, and is saved."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

from numpy import ndarray

from ..batch.columns import Batch
from ..batch.convert import COLUMNS, as_columns
from ..count.batch_updater import Feed, StateChange, change, hold
from ..count.reads import MEMORY_LIMIT
from ..errors import IncompatibleStateError
from ..format import frame
from ..numerics.canonical import canonical_json
from ..reading.answers import Answer
from ..state.state import State
from .definition import Definition

__all__ = ["Accumulator", "accumulate", "accumulator_of", "definition_of", "select", "unknown_column"]


class Accumulator:
    """The states of a metric, a collection or a wrapper, and all that happens to them.

    Parameters
    ----------
    definition : Definition
        What is counted, and how the states are read.
    states : sequence of State, optional
        The states to go on from; by default empty ones.
    """

    def __init__(self, definition: Definition, states: Sequence[State] | None = None) -> None:
        self.definition = definition
        self.warned: set[str] = set()
        self.warned_wide: set[str] = set()
        self._columns: tuple[tuple[str, ...], tuple[str, ...]] | None = None
        self._pair: tuple[Any, Any] | None = None
        if states is not None:
            self.hold(states)

    # -- the states ---------------------------------------------------------------------------------------------------

    @property
    def feed(self) -> Feed:
        """The feed that counts batches."""
        held = self.__dict__
        feed: Feed | None = held.get("_feed")
        if feed is None:
            definition = self.definition
            # A metric may have a memory_limit setting that is None.
            limit = MEMORY_LIMIT if definition.memory_limit is None else definition.memory_limit
            made = Feed(definition.reads, memory_limit=limit, on_invalid=definition.on_invalid)
            # One call, because several threads may bring the first rows.
            feed = held.setdefault("_feed", made)
        return feed

    @property
    def feeds(self) -> tuple[Feed, ...]:
        """The feeds that count its rows."""
        return (self.feed,)

    @property
    def states(self) -> tuple[State, ...]:
        """The states, in canonical form."""
        feed: Feed = self.__dict__.get("_feed") or self.feed
        return feed.states

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the states take, room for growth included."""
        return self.feed.nbytes

    def hold(self, states: Sequence[State]) -> None:
        """Replace what was counted by these states."""
        hold(self.feeds, states)

    def reset(self) -> None:
        """Forget every row, and which warnings were given of undefined values."""
        self.hold([r.state for r in self.definition.reads])
        self.forget_warnings()

    def forget_warnings(self) -> None:
        """Warn of undefined values again."""
        self.warned.clear()

    def copy(self) -> Self:
        """Return an independent copy."""
        return type(self)(self.definition, [state for feed in self.feeds for state in feed.states])

    # -- the rows in --------------------------------------------------------------------------------------------------

    def update(self, first: Any, second: Any, columns: dict[str, Any]) -> None:
        """Count a batch, given as the `update` of the public object is given it."""
        # One function and not several, because for a small batch the calls are most of the cost.
        if first is not None and type(first) is not ndarray:
            table = as_columns(first)
            if table is not None:
                if columns or second is not None:
                    raise TypeError(f"{self.definition.type_name}.update() takes a table or columns, not both")
                batch = Batch(table)
                self.feed.count_batch(batch)
                return
        if type(first) in COLUMNS and second is not None and not columns and (pair := self._pair):
            pair[1](pair[0], (first, second))
            return
        names, roles = self._columns or known_columns(self)
        if (second is not None and len(roles) < 2) or (first is not None and not roles):
            raise TypeError(f"{self.definition.type_name} reads {', '.join(names)}: give columns by name, or a table")
        given: tuple[str, ...]
        arrays: tuple[Any, ...]
        if second is None:
            given, arrays = ((), ()) if first is None else (roles[:1], (first,))
        else:
            given, arrays = (roles[1:2], (second,)) if first is None else (roles[:2], (first, second))
        if columns:
            given, arrays = with_named(self.definition, given, arrays, columns, names)
        feed = self.__dict__.get("_feed") or self.feed
        if len(given) == 2 and not columns:
            self._pair = given, feed.count_arrays
        feed.count_arrays(given, arrays)

    def count_batch(self, batch: Batch) -> None:
        """Count a batch whose columns other accumulators may share."""
        self.feed.count_batch(batch)

    # -- merging ------------------------------------------------------------------------------------------------------

    def merge(self, other: Any) -> None:
        """Add what another accumulator has counted; see `MetricLike.merge`."""
        if other is self:
            raise IncompatibleStateError(
                f"merging a {self.definition.type_name} with itself counts its rows twice; merge a copy() if you mean it"
            )
        change(self.adding(self.fitting(other)))

    def subtract(self, other: Any) -> None:
        """Take away what another accumulator has counted; see `MetricLike.subtract`."""
        name = self.definition.type_name
        if not self.definition.adds:
            raise IncompatibleStateError(f"a {name} holds a total of wholes: no rows can be taken away")
        if other is self:
            raise IncompatibleStateError(f"a {name} less itself has seen nothing: that is what reset() is for")
        change(self.taking(self.fitting(other, "subtract", "from")))

    def adding(self, other: Any) -> list[StateChange]:
        """Return the changes that add the states of a fitting accumulator."""
        return [self.feed.adding(other.feed.states)]

    def taking(self, other: Any) -> list[StateChange]:
        """Return the changes that take the states of a fitting accumulator away."""
        return [self.feed.taking(other.feed.states)]

    def fitting(self, other: Any, verb: str = "merge", preposition: str = "into") -> Any:
        """Return another accumulator with its metrics in the order of these; raise if it has other settings."""
        found = other.in_order(self.definition) if isinstance(other, Accumulator) else other
        self.check_fits(found, verb, preposition)
        return found

    def in_order(self, like: Definition) -> Accumulator:
        """Return the same with its metrics in the order of another definition, if only their order differs."""
        names, wanted = self.definition.names, like.names
        if self.definition.kind != like.kind or names == wanted or sorted(names) != sorted(wanted):
            return self
        return select(self, {name: name for name in wanted})

    def check_fits(self, other: Any, verb: str = "merge", preposition: str = "into") -> None:
        """Raise what `merge` would raise for other settings."""
        ours = self.definition
        if not isinstance(other, Accumulator) or other.definition.kind != ours.kind:
            theirs = other.definition.type_name if isinstance(other, Accumulator) else type(other).__name__
            raise IncompatibleStateError(f"cannot {verb} a {theirs} {preposition} a {ours.type_name}")
        if found := ours.differences(other.definition):
            hint = "; coarsen(bits) brings histograms to the same resolution" if "bits" in " ".join(found) else ""
            raise IncompatibleStateError(f"cannot {verb} this {ours.type_name}: {'; '.join(found)}{hint}")

    # -- the answers --------------------------------------------------------------------------------------------------

    def answer(self) -> Answer:
        """Return what the definition says about the states as they are now."""
        return self.definition.read(self.states)

    # -- identity -----------------------------------------------------------------------------------------------------

    def digest(self) -> str:
        """Return the SHA-256 of settings and states, the same on every machine."""
        sha = hashlib.sha256(canonical_json(self.definition.header()).encode())
        for state in self.states:
            sha.update(bytes.fromhex(frame.digest(state)))
        return sha.hexdigest()

    def to_bytes(self) -> bytes:
        """Encode settings and states (see `streammetrics.format.frame`)."""
        return frame.write(self.states, self.definition.header())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Accumulator) or other.definition.kind != self.definition.kind:
            return False
        same = canonical_json(self.definition.header()) == canonical_json(other.definition.header())
        return other is self or (same and self.states == other.states)

    __hash__ = None  # type: ignore[assignment]


def accumulate(definition: Definition, states: Sequence[State] | None = None) -> Any:
    """Return a new accumulator of a definition, which goes on from these states; by default from empty ones."""
    return (definition.accumulator_type or Accumulator)(definition, states)


def accumulator_of(thing: Any) -> Any:
    """Return the accumulator of a metric, a collection or a wrapper; of anything else the thing itself."""
    return getattr(thing, "_accumulator", thing)


def definition_of(thing: Any) -> Any:
    """Return the definition of a metric, a collection or a wrapper."""
    return thing._accumulator.definition


def known_columns(accumulator: Accumulator) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the columns that `update` takes, and those that it takes by position; the accumulator keeps them."""
    definition = accumulator.definition
    roles = definition.positional_columns()
    accumulator._columns = tuple(dict.fromkeys((*roles, *definition.columns))), roles
    return accumulator._columns


def with_named(
    definition: Definition,
    given: tuple[str, ...],
    arrays: tuple[Any, ...],
    columns: dict[str, Any],
    names: tuple[str, ...],
) -> tuple[tuple[str, ...], tuple[Any, ...]]:
    """Return the names and values of columns, those given by name behind those given by position."""
    for name, column in columns.items():
        if name not in names:
            raise unknown_column(definition.type_name, name, names)
        if name in given:
            raise TypeError(f"{definition.type_name}.update() was given {name} twice")
        if column is not None:
            given, arrays = (*given, name), (*arrays, column)
    return given, arrays


def select(accumulator: Accumulator, names: Mapping[str, str]) -> Accumulator:
    """Return some metrics of a collection in the order of `names`, which gives each its new name, with their states."""
    definition, places = accumulator.definition.selected(names)
    states = accumulator.states
    kept = [states[place].narrow(read.state) for place, read in zip(places, definition.reads, strict=True)]
    made: Accumulator = accumulate(definition, kept)
    return made


def unknown_column(owner: str, name: str, known: Iterable[str]) -> TypeError:
    """Return the error for a column that is not read."""
    known = list(known)
    message = f"{owner}.update() does not know {name!r}; it reads {', '.join(known)}"
    if name == "y_pred" and "y_score" in known:
        message += ": scores are y_score, and predicted classes y_pred, which metrics read that have threshold=None"
    return TypeError(message)
