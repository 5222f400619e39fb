"""The accumulator inside every metric, collection and wrapper (such as `Sliced`).

It holds the states, adds batches to them, and merges, subtracts and saves them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

from numpy import ndarray

from ..batch.columns import Batch, suggest_column
from ..batch.convert import COLUMNS, as_columns
from ..count.batch_updater import BatchUpdater
from ..count.reads import MEMORY_LIMIT
from ..count.state_changes import StateChange, apply_changes, replace_states
from ..errors import IncompatibleStateError
from ..format import frame
from ..numerics.canonical import canonical_json
from ..reading.answers import Answer
from ..state.state import State
from .definition import Definition

__all__ = [
    "Accumulator",
    "accumulate",
    "accumulator_of",
    "definition_of",
    "select",
    "table_and_columns_error",
    "unknown_column",
]


class Accumulator:
    """The states of a metric, a collection or a wrapper (such as `Sliced`), and the operations on these states.

    Parameters
    ----------
    definition : Definition
        The settings: which states to keep, and how to compute values from them.
    states : sequence of State, optional
        The initial states; by default they are empty.
    """

    def __init__(self, definition: Definition, states: Sequence[State] | None = None) -> None:
        self.definition = definition
        self.warned: set[str] = set()
        self.warned_wide: set[str] = set()
        self._columns: tuple[tuple[str, ...], tuple[str, ...]] | None = None
        self._pair: tuple[Any, Any] | None = None
        self._initial_states: tuple[State, ...] | None = None
        if states is not None:
            self._start_with(states)

    def _start_with(self, states: Iterable[State]) -> None:
        """Store the initial states until the updater is created.

        Creating an updater takes longer than decoding small states. Most loaded objects never need one, because they
        are only read or merged into others.
        """
        self._initial_states = tuple(states)

    # -- the states ---------------------------------------------------------------------------------------------------

    @property
    def updater(self) -> BatchUpdater:
        """The object that adds batches to the states. It is created when it is first used."""
        attributes = self.__dict__
        updater: BatchUpdater | None = attributes.get("_updater")
        if updater is None:
            definition = self.definition
            # The setting `memory_limit` of a metric can be None, which means the default limit.
            limit = MEMORY_LIMIT if definition.memory_limit is None else definition.memory_limit
            new = BatchUpdater(definition.reads, memory_limit=limit, on_invalid=definition.on_invalid)
            if (initial := self._initial_states) is not None:
                new.replace_states(initial)
            # Two threads may count their first rows at the same time. `setdefault` is atomic, so both get the same
            # updater.
            updater = attributes.setdefault("_updater", new)
            # The updater now has the states, so free the memory of the initial states.
            self._initial_states = None
        return updater

    @property
    def updaters(self) -> tuple[BatchUpdater, ...]:
        """All updaters of this accumulator. A subclass that consists of several parts has one updater for each part."""
        return (self.updater,)

    @property
    def states(self) -> tuple[State, ...]:
        """The states in canonical form: states of the same rows are equal, whatever the order of the rows."""
        return self.all_states

    @property
    def all_states(self) -> tuple[State, ...]:
        """The states with all stored rows, including those that `states` omits, such as old rows in `Recent`."""
        updater: BatchUpdater | None = self.__dict__.get("_updater")
        # Another thread may create the updater after the line above has found none. That thread stores the updater
        # before it deletes the initial states, so if they are gone, `self.updater` returns the stored updater.
        if updater is None and (initial := self._initial_states) is not None:
            return initial
        return (updater or self.updater).states

    @property
    def nbytes(self) -> int:
        """The memory that the states use, in bytes, including memory reserved for more rows."""
        return self.updater.nbytes

    def set_states(self, states: Sequence[State]) -> None:
        """Replace the states."""
        replace_states(self.updaters, states)

    def reset(self) -> None:
        """Replace the states with empty ones, and allow warnings to be issued again."""
        self.set_states([r.state for r in self.definition.reads])
        self.reset_warnings()

    def reset_warnings(self) -> None:
        """Allow warnings about undefined values to be issued again, as if none had been issued yet."""
        self.warned.clear()

    def copy(self) -> Self:
        """Return an independent copy."""
        return type(self)(self.definition, self.all_states)

    # -- counting ----------------------------------------------------------------------------------------------------

    def update(self, first: Any, second: Any, columns: dict[str, Any]) -> None:
        """Count a batch of rows; the parameters are the same as those of `MetricLike.update`."""
        # For a small batch, function calls take most of the time, so this method is one long function. A call with two
        # arrays stores their roles and the counting method in `_pair`, so that the next such call can skip all checks.
        if first is not None and type(first) is not ndarray:
            table = as_columns(first)
            if table is not None:
                if columns or second is not None:
                    raise table_and_columns_error(self.definition.type_name, table)
                updater = self.__dict__.get("_updater") or self.updater
                updater.count_table(table, (self._columns or input_columns(self))[0])
                return
        if type(first) in COLUMNS and second is not None and not columns and (pair := self._pair):
            pair[1](pair[0], (first, second))
            return
        names, roles = self._columns or input_columns(self)
        if (second is not None and len(roles) < 2) or (first is not None and not roles):
            raise TypeError(
                f"{self.definition.type_name} reads {', '.join(names)}; pass these columns by name, or pass a table"
            )
        names_passed: tuple[str, ...]
        arrays: tuple[Any, ...]
        if second is None:
            names_passed, arrays = ((), ()) if first is None else (roles[:1], (first,))
        else:
            names_passed, arrays = (roles[1:2], (second,)) if first is None else (roles[:2], (first, second))
        if columns:
            names_passed, arrays = add_named_columns(self.definition, names_passed, arrays, columns, names)
        updater = self.__dict__.get("_updater") or self.updater
        if len(names_passed) == 2 and not columns:
            self._pair = names_passed, updater.count_arrays
        updater.count_arrays(names_passed, arrays)

    def count_batch(self, batch: Batch) -> None:
        """Count a batch. If several accumulators count the same `Batch` object, each column is read only once."""
        self.updater.count_batch(batch)

    # -- merging ------------------------------------------------------------------------------------------------------

    def merge(self, other: Any) -> None:
        """Add the states of another accumulator; see `MetricLike.merge`."""
        if other is self:
            raise IncompatibleStateError(
                f"cannot merge this {self.definition.type_name} with itself, because its rows would count twice; merge a "
                f"copy() to count the rows twice on purpose"
            )
        apply_changes(self.merge_changes(self.align(other)))

    def subtract(self, other: Any) -> None:
        """Subtract the states of another accumulator; see `MetricLike.subtract`."""
        name = self.definition.type_name
        if not self.definition.adds:
            raise IncompatibleStateError(
                f"cannot subtract from this {name}, because rows cannot be removed from a total of whole partitions; "
                f"build a new {name} without these rows"
            )
        if other is self:
            raise IncompatibleStateError(
                f"cannot subtract this {name} from itself, because no rows would be left; call reset() instead"
            )
        apply_changes(self.subtract_changes(self.align(other, "subtract", "from")))

    def merge_changes(self, other: Any) -> list[StateChange]:
        """Return the changes that add the states of `other`, an accumulator that `align` has returned."""
        return [self.updater.merge_change(other.all_states)]

    def subtract_changes(self, other: Any) -> list[StateChange]:
        """Return the changes that subtract the states of `other`, an accumulator that `align` has returned."""
        return [self.updater.subtract_change(other.all_states)]

    def align(self, other: Any, verb: str = "merge", preposition: str = "into") -> Any:
        """Return the accumulator `other` with its metrics in the same order as in this accumulator.

        Raise IncompatibleStateError if the settings differ. `verb` and `preposition` are words for the error message,
        as in "cannot merge AUC into CTR".
        """
        aligned = other.reorder_like(self.definition) if isinstance(other, Accumulator) else other
        self.check_compatible(aligned, verb, preposition)
        return aligned

    def reorder_like(self, like: Definition) -> Accumulator:
        """Return this accumulator with its metrics in the same order as in the definition `like`.

        If the definitions differ in more than the order of their metrics, return this accumulator unchanged.
        """
        names, wanted = self.definition.names, like.names
        if self.definition.kind != like.kind or names == wanted or sorted(names) != sorted(wanted):
            return self
        return select(self, {name: name for name in wanted})

    def check_compatible(self, other: Any, verb: str = "merge", preposition: str = "into") -> None:
        """Raise IncompatibleStateError if the other accumulator has a different type or different settings.

        `verb` and `preposition` are words for the error message, as in "cannot merge AUC into CTR".
        """
        ours = self.definition
        if not isinstance(other, Accumulator) or other.definition.kind != ours.kind:
            theirs = other.definition.type_name if isinstance(other, Accumulator) else type(other).__name__
            raise IncompatibleStateError(f"cannot {verb} {theirs} {preposition} {ours.type_name}")
        if differences := ours.differences(other.definition):
            coarsen = "; sm.coarsen(thing, bits) brings histograms to the same resolution"
            hint = coarsen if "bits" in " ".join(differences) else ""
            raise IncompatibleStateError(f"cannot {verb} this {ours.type_name}: {'; '.join(differences)}{hint}")

    # -- the answers --------------------------------------------------------------------------------------------------

    def answer(self) -> Answer:
        """Compute the values, bounds and intervals of the current states."""
        return self.definition.read(self.states)

    # -- identity -----------------------------------------------------------------------------------------------------

    def digest(self) -> str:
        """Return the SHA-256 hash of the settings and states. It is the same on every machine."""
        sha = hashlib.sha256(canonical_json(self.definition.header()).encode())
        for state in self.states:
            sha.update(bytes.fromhex(frame.compute_digest(state)))
        return sha.hexdigest()

    def to_bytes(self) -> bytes:
        """Return the settings and states as bytes in the library's file format (`streammetrics.format.frame`)."""
        return frame.write_frame(self.states, self.definition.header())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Accumulator) or other.definition.kind != self.definition.kind:
            return False
        same = canonical_json(self.definition.header()) == canonical_json(other.definition.header())
        return other is self or (same and self.states == other.states)

    __hash__ = None  # type: ignore[assignment]


def accumulate(definition: Definition, states: Sequence[State] | None = None) -> Any:
    """Return a new accumulator for a definition, with `states` or, by default, empty states."""
    return (definition.accumulator_type or Accumulator)(definition, states)


def accumulator_of(thing: Any) -> Any:
    """Return the accumulator of a metric, a collection or a wrapper; return any other object unchanged."""
    return getattr(thing, "_accumulator", thing)


def definition_of(thing: Any) -> Any:
    """Return the settings (the `Definition`) of a metric, a collection or a wrapper."""
    return thing._accumulator.definition


def input_columns(accumulator: Accumulator) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of all columns that `update` accepts, and those that can be passed by position.

    The accumulator caches the result for the next call to `update`.
    """
    definition = accumulator.definition
    roles = definition.positional_columns()
    accumulator._columns = tuple(dict.fromkeys((*roles, *definition.columns))), roles
    return accumulator._columns


def add_named_columns(
    definition: Definition,
    positional: tuple[str, ...],
    arrays: tuple[Any, ...],
    columns: dict[str, Any],
    names: tuple[str, ...],
) -> tuple[tuple[str, ...], tuple[Any, ...]]:
    """Return the names and values of all columns: first those passed by position, then those passed by name."""
    for name, column in columns.items():
        if name not in names:
            raise unknown_column(definition.type_name, name, names)
        if name in positional:
            raise TypeError(f"{definition.type_name}.update(): {name} is passed twice, by position and by name")
        if column is not None:
            positional, arrays = (*positional, name), (*arrays, column)
    return positional, arrays


def select(accumulator: Accumulator, names: Mapping[str, str]) -> Accumulator:
    """Return an accumulator with only some metrics of a collection and their states.

    `names` maps the old name of each metric to its new name. The result contains the metrics in the order of `names`.
    """
    definition, places = accumulator.definition.select_metrics(names)
    states = accumulator.states
    selected_states = [states[place].narrow(read.state) for place, read in zip(places, definition.reads, strict=True)]
    selection: Accumulator = accumulate(definition, selected_states)
    return selection


def table_and_columns_error(owner: str, table: Mapping[str, Any]) -> TypeError:
    """Return the error to raise if `update` received both a table and columns."""
    name = next(iter(table)) if len(table) == 1 else None
    hint = f"; pass df[{name!r}] rather than df[[{name!r}]]" if name is not None else ""
    return TypeError(f"{owner}.update(): pass either a table or columns, not both{hint}")


def unknown_column(owner: str, name: str, columns: Iterable[str]) -> TypeError:
    """Return the error to raise for a column that no metric reads; `columns` are the columns that metrics read."""
    columns = list(columns)
    message = f"{owner}.update(): unknown column {name!r}; the columns are {', '.join(columns)}"
    if name == "y_pred" and "y_score" in columns:
        message += "; pass scores as y_score, and pass predicted classes as y_pred to a metric with threshold=None"
    else:
        message += suggest_column(name, columns)
    return TypeError(message)
