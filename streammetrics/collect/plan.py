"""The plan of a collection: what reads which state, decided from settings and columns alone, before any data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from ..columns.columns import Need
from ..numerics.canonical import canonical_json
from ..state.state import State
from .binding import PLAIN, Binding
from .definition import Definition
from .feed import Read

__all__ = ["Entry", "Plan"]


class Entry(NamedTuple):
    """A definition of a collection, and the places of its states among those of the collection."""

    definition: Any
    units: tuple[int, ...]


class Plan:
    """What reads which state: equal reads share one, widened where they ask for different read-outs.

    Parameters
    ----------
    named : iterable of (name, definition, binding)
        What the collection contains.
    """

    def __init__(self, named: Iterable[tuple[str, Definition, Binding]]) -> None:
        self.entries: dict[str, Entry] = {}
        self.units: list[Read] = []
        for name, definition, binding in named:
            if name in self.entries:
                raise ValueError(f"two metrics are called {name!r}; name them with a dict")
            reads = [_bound(definition, read, binding) for read in definition.reads]
            self.entries[name] = Entry(definition, tuple(map(self._unit, reads)))
        if not self.entries:
            raise ValueError("a collection needs at least one metric")
        limits: dict[Any, Any] = {}
        for axis, kind in (time for unit in self.units for time in unit.times):
            if limits.setdefault(axis, kind) != kind:
                raise ValueError(f"windows of {axis.names[0]} in one collection have one max_time")

    def _unit(self, wanted: Read) -> int:
        needs = _needs(wanted)
        for i, unit in enumerate(self.units):
            same = (unit.binding, unit.latest) == (wanted.binding, wanted.latest) and _needs(unit) == needs
            if same and (wide := unit.state.widen(wanted.state)) is not None:
                self.units[i] = unit._replace(state=wide)
                return i
        self.units.append(wanted)
        return len(self.units) - 1

    def entry(self, name: str) -> Entry:
        """Return an entry by name."""
        if name not in self.entries:
            raise KeyError(f"there is no metric {name!r}; there are {', '.join(self.entries)}")
        return self.entries[name]

    def of(self, entry: Entry, states: Sequence[State]) -> list[State]:
        """Return the states of an entry among those of all units, narrowed to what it asks for."""
        wanted = [read.state for read in entry.definition.reads]
        return [s.narrow(w) for s, w in zip(self.wide(entry, states), wanted, strict=True)]

    def wide(self, entry: Entry, states: Sequence[State]) -> list[State]:
        """Return the states of an entry with all that others ask of them: what values are read from."""
        return [self.units[u].binding.read(states[u]) for u in entry.units]

    def named(self) -> list[tuple[str, Any, Binding]]:
        """Return what a plan is made of."""
        return [(n, e.definition, self.binding(e)) for n, e in self.entries.items()]

    def binding(self, entry: Entry) -> Binding:
        """The columns that an entry is bound to by a task: all that it reads, or, as it has tasks of its own, none."""
        own = [read.binding for read in entry.definition.reads]
        return PLAIN if any(b != PLAIN for b in own) else self.units[entry.units[0]].binding

    def header(self) -> list[dict[str, Any]]:
        """Describe the entries as plain data."""
        return [
            {"name": n, "thing": e.definition.header()} | ({"task": b} if (b := self.binding(e).header()) else {})
            for n, e in self.entries.items()
        ]

    def units_header(self) -> list[list[int]]:
        """Which units each entry reads, by their number."""
        return [list(e.units) for e in self.entries.values()]

    def differences(self, other: Plan) -> list[str]:
        """Say in words how another plan differs."""
        found = [f"it has no {n!r}" for n in self.entries if n not in other.entries]
        found += [f"it has {n!r}, this one has not" for n in other.entries if n not in self.entries]
        for name in [n for n in self.entries if n in other.entries]:
            ours, theirs = self.entries[name], other.entries[name]
            found += [
                f"{d} of {name!r}" if " is " not in d else _named(d, name)
                for d in ours.definition.differences(theirs.definition)
            ]
            here, there = self.binding(ours).header(), other.binding(theirs).header()
            found += [
                f"the task's {what} of {name!r} is {here.get(what)!r} here and {there.get(what)!r} there"
                for what in dict.fromkeys([*here, *there])
                if canonical_json(here.get(what)) != canonical_json(there.get(what))
            ]
        if not found and [*self.entries] != [*other.entries]:  # states are found by their place
            orders = (", ".join(plan.entries) for plan in (self, other))
            found.append("the order of metrics is {} here and {} there".format(*orders))
        return found


def _needs(read: Read) -> list[Need]:
    """What a read needs; what it can do without is there where another one shares the state."""
    needs = [replace(n, optional=False, derived=False) if n.derived else n for n in read.state.needs()]
    return [read.binding.need(n) for n in needs]


def _named(difference: str, name: str) -> str:
    what, _, rest = difference.partition(" is ")
    return f"{what} of {name!r} is {rest}"


def _bound(definition: Definition, read: Read, binding: Binding) -> Read:
    """A read as a task binds it to columns."""
    if binding == PLAIN:
        return read
    if read.binding != PLAIN:
        raise TypeError(f"a task inside a task: say in one how {definition.name} is bound to columns")
    given = getattr(getattr(definition, "metric", None), "scale", None)
    if binding.corrects_scores and given not in (None, binding.scale):
        raise ValueError(f"{definition.name} has scale={given!r}, its task scale={binding.scale!r}")
    ranks = binding.ranks if read.ranks is None else read.ranks
    return read._replace(binding=replace(binding, ranks=bool(ranks) and binding.corrects_scores))
