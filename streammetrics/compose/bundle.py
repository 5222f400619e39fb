"""Bundle: several objects in one file, such as the overall metrics and the slices of one pass over a log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from typing import Any, Self

from ..collect.accumulator import Accumulator, accumulate, accumulator_of, definition_of
from ..collect.definition import Definition, definition_of_header, number_of_states
from ..collect.metric_like import MetricLike
from ..count.batch_updater import BatchUpdater
from ..count.reads import Read
from ..count.state_changes import StateChange
from ..errors import IncompatibleStateError
from ..reading.answers import Answer, NamedAnswers
from ..reading.flatten import NamedNumbers, prefix_names
from ..state.state import State

__all__ = ["Bundle", "BundleAccumulator", "BundleDefinition"]


class BundleAnswers(NamedAnswers):
    """The values, intervals and tables of all objects in a bundle, keyed by name."""

    def numbers(self) -> NamedNumbers:
        for name, answer in self.answers.items():
            yield from prefix_names(name, answer.numbers())


class BundleAccumulator(Accumulator):
    """The accumulators of the objects in a bundle, merged and saved as one.

    Parameters
    ----------
    definition : BundleDefinition
        The definition of each object, keyed by name.
    states : sequence of State, optional
        The initial states of all objects, concatenated in the order of the objects.
    parts : mapping of str to Accumulator, optional
        The accumulators, keyed by name; by default, new ones.
    """

    def __init__(
        self,
        definition: Any,
        states: Sequence[State] | None = None,
        parts: Mapping[str, Accumulator] | None = None,
    ) -> None:
        self.parts = {n: accumulate(d) for n, d in definition.definitions.items()} if parts is None else dict(parts)
        super().__init__(definition, states)

    def _start_with(self, states: Iterable[State]) -> None:
        rest = iter(states)
        for part in self.parts.values():
            part._start_with(islice(rest, len(part.definition.reads)))

    @property
    def updaters(self) -> tuple[BatchUpdater, ...]:
        return tuple(updater for part in self.parts.values() for updater in part.updaters)

    @property
    def states(self) -> tuple[State, ...]:
        return tuple(state for part in self.parts.values() for state in part.states)

    @property
    def all_states(self) -> tuple[State, ...]:
        return tuple(state for part in self.parts.values() for state in part.all_states)

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in self.parts.values())

    def reset_warnings(self) -> None:
        super().reset_warnings()
        for part in self.parts.values():
            part.reset_warnings()

    def update(self, first: Any, second: Any, columns: dict[str, Any]) -> None:
        raise TypeError("a bundle has no metrics of its own to update: update the objects in the bundle")

    def reorder_like(self, like: Definition) -> Accumulator:
        if like.kind != self.definition.kind or set(like.names) != set(self.parts):
            return self
        wanted: Any = like
        parts = {name: self.parts[name].reorder_like(wanted.definitions[name]) for name in like.names}
        ours: Any = self.definition
        definition = ours.having({name: part.definition for name, part in parts.items()})
        return type(self)(definition, None, parts)

    def merge_changes(self, other: Any) -> list[StateChange]:
        return [
            _add_name_to_errors(name, one)
            for name, part in self.parts.items()
            for one in part.merge_changes(other.parts[name])
        ]

    def subtract_changes(self, other: Any) -> list[StateChange]:
        return [
            _add_name_to_errors(name, one)
            for name, part in self.parts.items()
            for one in part.subtract_changes(other.parts[name])
        ]


class BundleDefinition(Definition):
    """The definition of a bundle: the definitions of its objects.

    Parameters
    ----------
    definitions : mapping of str to Definition
        The definition of each object, keyed by name.
    """

    kind = "bundle"
    accumulator_type = BundleAccumulator
    counts = False

    def __init__(self, definitions: Mapping[str, Definition]) -> None:
        self.definitions = dict(definitions)

    def having(self, definitions: Mapping[str, Definition]) -> Self:
        """Return a definition of the same class that contains `definitions` instead."""
        return type(self)(definitions)

    @property
    def name(self) -> str:
        return "bundle"

    @property
    def names(self) -> list[str]:
        return list(self.definitions)

    @cached_property
    def reads(self) -> tuple[Read, ...]:
        return tuple(r for definition in self.definitions.values() for r in definition.reads)

    def header(self) -> dict[str, Any]:
        things = [definition.header() for definition in self.definitions.values()]
        return {"kind": "bundle", "names": self.names, "things": things}

    @classmethod
    def of_header(cls, header: dict[str, Any], states: Sequence[State]) -> Definition:
        names, heads = header["names"], header["things"]
        if len(set(names)) != len(names) or not all(isinstance(n, str) and n for n in names) or not names:
            raise ValueError("each object of a bundle must have a different, non-empty name")
        definitions, rest = {}, list(states)
        for name, head in zip(names, heads, strict=True):
            n = number_of_states(head)
            definitions[name] = definition_of_header(head, rest[:n])
            rest = rest[n:]
            if not definitions[name].adds:
                raise ValueError(f"a bundle cannot contain an object of class {definitions[name].type_name}")
        return cls(definitions)

    @classmethod
    def number_of_states(cls, header: dict[str, Any]) -> int:
        return sum(map(number_of_states, header["things"]))

    def differences(self, other: Any) -> list[str]:
        ours, theirs = self.definitions, other.definitions
        differences = [f"the other object has no {n!r}" for n in ours if n not in theirs]
        differences += [f"this object has no {n!r}" for n in theirs if n not in ours]
        for name in [n for n in ours if n in theirs]:
            if ours[name].kind != theirs[name].kind:
                differences.append(f"{name} is {ours[name].type_name} here and {theirs[name].type_name} there")
            else:
                differences += [f"{name}: {d}" for d in ours[name].differences(theirs[name])]
        return differences

    def read(self, states: Sequence[State]) -> Answer:
        return BundleAnswers({n: d.read(mine) for (n, d), mine in self._pair_with_states(states)})

    def check_states(self, states: Sequence[State]) -> None:
        for (_, definition), mine in self._pair_with_states(states):
            definition.check_states(mine)

    def _pair_with_states(self, states: Sequence[State]) -> Iterator[tuple[tuple[str, Definition], list[State]]]:
        """Yield the name and definition of each object, together with the elements of `states` that belong to it."""
        rest = list(states)
        for item in self.definitions.items():
            n = len(item[1].reads)
            yield item, rest[:n]
            rest = rest[n:]

    def seal(self, parts: int | None = None) -> Self:
        return self.having({n: d.seal(parts) for n, d in self.definitions.items()})

    def coarsen(self, bits: int) -> Self:
        return self.having({n: d.coarsen(bits) if d.can_coarsen else d for n, d in self.definitions.items()})

    def coarsen_states(self, new: Any, states: Sequence[State], bits: int) -> list[State]:
        return [
            state
            for (name, definition), mine in self._pair_with_states(states)
            for state in (
                definition.coarsen_states(new.definitions[name], mine, bits) if definition.can_coarsen else mine
            )
        ]


class Bundle(Mapping[str, Any], MetricLike):
    """Named metrics, collections and slices, saved and merged as one.

    Parameters
    ----------
    things : mapping of str to Metric, MetricCollection, Sliced or Bundle
        The objects, keyed by name. The bundle contains the objects themselves, not copies, so each may occur only once.

    Examples
    --------
    >>> import streammetrics as sm
    >>> arms = sm.Sliced(sm.CTR(), by="variant").update(y_true=[0, 1, 1], variant=["A", "A", "B"])
    >>> day = sm.Bundle({"overall": arms.total, "by variant": arms})
    >>> week = sm.merge([day, day.to_bytes()])
    >>> week["by variant"]["A"].compute()
    0.5
    """

    _accumulator: BundleAccumulator

    def __init__(self, things: Mapping[str, Any]) -> None:
        if not isinstance(things, Mapping):
            what = type(things).__name__
            raise TypeError(
                f'Bundle: expected a mapping from names to objects, such as {{"overall": sm.CTR()}}, found an object '
                f"of class {what}"
            )
        for name, thing in things.items():
            if not isinstance(name, str) or not name:
                raise TypeError(f"the names in a bundle must be non-empty strings, not {name!r}")
            if not isinstance(thing, MetricLike) or not definition_of(thing).adds:
                raise TypeError(
                    f"{name}: expected a metric, a collection or slices, found an object of class "
                    f"{type(thing).__name__}"
                )
        if not things:
            raise ValueError("Bundle: expected at least one object, found an empty mapping")
        self._things = dict(things)
        leaves = list(self._leaves())
        if twice := [n for i, (n, one) in enumerate(leaves) if any(one is other for _, other in leaves[:i])]:
            raise ValueError(f"{twice[0]}: this object is already in the bundle under another name; pass a copy()")
        parts = {name: accumulator_of(thing) for name, thing in self._things.items()}
        definition = BundleDefinition({name: part.definition for name, part in parts.items()})
        self._accumulator = BundleAccumulator(definition, None, parts)

    def _leaves(self) -> Iterator[tuple[str, MetricLike]]:
        """Yield the name and object of each entry that is not a bundle, including the entries of nested bundles."""
        for name, thing in self.items():
            if isinstance(thing, Bundle):
                yield from ((f"{name}: {of}", one) for of, one in thing._leaves())
            else:
                yield name, thing

    def __getitem__(self, name: str) -> Any:
        things = self.__dict__.get("_things")
        if things is None:
            parts = self._accumulator.parts
            things = self.__dict__.setdefault("_things", {n: p.definition.wrap(p) for n, p in parts.items()})
        if name not in things:
            raise KeyError(f"there is no {name!r} in this bundle; the names are {', '.join(map(repr, things))}")
        return things[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.__dict__.get("_things") or self._accumulator.parts)

    def __len__(self) -> int:
        return len(list(iter(self)))

    def update(self, y_true: Any = None, y_score: Any = None, /, **columns: Any) -> Any:
        """Raise TypeError. A bundle has no metrics of its own to update; update the objects in it instead."""
        raise TypeError("a bundle has no metrics of its own to update: update the objects in the bundle")

    def __eq__(self, other: object) -> bool:
        return MetricLike.__eq__(self, other)

    __hash__ = None

    def __repr__(self) -> str:
        lines = [f"{name}: {thing!r}".replace("\n", "\n  ") for name, thing in self.items()]
        return "\n".join([f"Bundle of {len(self)}", *(f"  {line}" for line in lines)])


BundleDefinition.public = Bundle


def _add_name_to_errors(name: str, change: StateChange) -> StateChange:
    """Return `change` (a merge or subtraction of states) with error messages that start with the object's `name`."""

    def how(states: tuple[State, ...]) -> Sequence[State]:
        try:
            return change.how(states)
        except IncompatibleStateError as error:
            raise IncompatibleStateError(f"{name}: {error}") from error

    return change._replace(how=how)
