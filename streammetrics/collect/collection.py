"""Many metrics over one pass: metrics that ask for the same state from the same columns share it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple, Self

from ..batch.column_binding import PLAIN, Binding
from ..batch.kinds import Need
from ..count.reads import Read
from ..errors import IncompatibleStateError
from ..numerics.canonical import canonical_json
from ..reading.answers import Answer, NamedAnswers
from ..reading.replicates import Sample
from ..state.state import State
from .accumulator import accumulate
from .definition import Definition, MetricRead, definition_of_header
from .metric import MetricDefinition
from .metric_container import MetricContainer
from .task import Metrics, agreed, flatten

__all__ = ["CollectionDefinition", "CollectionEntry", "MetricCollection", "contents_of"]


class PlanEntry(NamedTuple):
    """A definition in a collection, and the places of its states in the list of all states of the collection."""

    definition: Any
    units: tuple[int, ...]


class StatePlan:
    """What reads which state: equal reads share one, widened where they ask for different read-outs.

    Parameters
    ----------
    named : iterable of (name, definition, binding)
        What the collection contains.
    """

    def __init__(self, named: Iterable[tuple[str, Definition, Binding]]) -> None:
        self.entries: dict[str, PlanEntry] = {}
        self.units: list[Read] = []
        for name, definition, binding in named:
            if name in self.entries:
                raise ValueError(f"two metrics are called {name!r}; name them with a dict")
            reads = [_bound(definition, read, binding) for read in definition.reads]
            self.entries[name] = PlanEntry(definition, tuple(map(self._unit, reads)))
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

    def entry(self, name: str) -> PlanEntry:
        """Return an entry by name."""
        if name not in self.entries:
            raise KeyError(f"there is no metric {name!r}; there are {', '.join(self.entries)}")
        return self.entries[name]

    def of(self, entry: PlanEntry, states: Sequence[State]) -> list[State]:
        """Return the states of an entry, without the parts that only other entries read."""
        wanted = [read.state for read in entry.definition.reads]
        return [s.narrow(w) for s, w in zip(self.wide(entry, states), wanted, strict=True)]

    def wide(self, entry: PlanEntry, states: Sequence[State]) -> list[State]:
        """Return the states of an entry with all that others ask of them: what values are read from."""
        return [self.units[u].binding.read(states[u]) for u in entry.units]

    def named(self) -> list[tuple[str, Any, Binding]]:
        """Return what a plan is made of."""
        return [(n, e.definition, self.binding(e)) for n, e in self.entries.items()]

    def binding(self, entry: PlanEntry) -> Binding:
        """Return the binding of the task of an entry; an entry that has its own tasks has a plain binding."""
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

    def differences(self, other: StatePlan) -> list[str]:
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


class CollectionEntry(NamedTuple):
    """One entry of a collection.

    Parameters
    ----------
    name : str
        Its full name.
    metric : Metric or None
        The metric; None for slices and other wrappers.
    states : tuple of State
        The states that it reads, with all that others ask of these states.
    binding : Binding
        The columns that play its roles.
    definition : Definition
        Its definition.
    """

    name: str
    metric: Any
    states: tuple[State, ...]
    binding: Binding
    definition: Definition


class CollectionAnswers(NamedAnswers):
    """What the metrics of a collection say about its states.

    Parameters
    ----------
    plan : Plan
        The metrics, and the states that each reads.
    states : sequence of State
        The states of the collection, of one cell.
    """

    def __init__(self, plan: StatePlan, states: Sequence[State]) -> None:
        super().__init__({n: e.definition.read(plan.wide(e, states)) for n, e in plan.entries.items()})
        self._plan, self._states = plan, states

    @property
    def explanation(self) -> dict[str, Any]:
        plan = self._plan
        # The facts that it shows are those of the state that each metric alone would have.
        alone = {n: e.definition.read(plan.of(e, self._states)) for n, e in plan.entries.items()}
        return NamedAnswers(alone).explanation


class CollectionDefinition(Definition):
    """The definition of a collection.

    Parameters
    ----------
    plan : Plan
        The metrics, and the states that each reads.
    on_invalid : {"raise", "drop"}
        Whether a bad row raises, or is left out and counted.
    """

    kind = "collection"

    def __init__(self, plan: StatePlan, on_invalid: str = "raise") -> None:
        self.plan, self.on_invalid = plan, on_invalid

    @property
    def name(self) -> str:
        return "metrics"

    @property
    def names(self) -> list[str]:
        return list(self.plan.entries)

    @cached_property
    def levels(self) -> tuple[str, ...]:  # type: ignore[override]
        return tuple(dict.fromkeys(n for e in self.plan.entries.values() for n in e.definition.levels))

    @cached_property
    def reads(self) -> tuple[Read, ...]:
        return tuple(self.plan.units)

    def __reduce__(self) -> Any:
        return _definition, (self.plan.named(), self.on_invalid)

    def header(self) -> dict[str, Any]:
        return {"kind": "collection", "items": self.plan.header(), "units": self.plan.units_header()}

    @classmethod
    def of_header(cls, header: dict[str, Any], states: Sequence[State]) -> Definition:
        named = []
        for item, units in zip(header["items"], header["units"], strict=True):
            definition = definition_of_header(item["thing"], [states[u] for u in units])
            named.append((item["name"], definition, Binding.of(item.get("task", {}))))
        if len({n for n, _, _ in named}) != len(named) or not all(isinstance(n, str) for n, _, _ in named):
            raise ValueError("two metrics have one name, or one has none")
        return cls(StatePlan(named))

    @classmethod
    def number_of_states(cls, header: dict[str, Any]) -> int:
        return 1 + max(int(unit) for units in header["units"] for unit in units)

    def check_states(self, states: Sequence[State]) -> None:
        for entry in self.plan.entries.values():
            entry.definition.check_states([states[u] for u in entry.units])

    def differences(self, other: Any) -> list[str]:
        found = self.plan.differences(other.plan)
        ours, theirs = set(self.names), set(other.names)
        if found and ours != theirs and ours & theirs:
            found[-1] += '; sm.merge(parts, metrics="common") merges what they share'
        return found

    def positional_columns(self) -> tuple[str, ...]:
        """Return those of its metrics, as far as all agree; a column that a task names is not given by position."""
        found: list[str] = []
        entries = [
            (e.definition, e.definition.positional_columns(), self.plan.binding(e).bound)
            for e in self.plan.entries.values()
        ]
        while roles := [(r[len(found)], d) for d, r, bound in entries if len(r) > len(found) and not bound.keys() & r]:
            read = {role for role, definition in roles if role in definition.columns} or {role for role, _ in roles}
            if len(read) > 1:
                break
            found += read
        return tuple(found)

    def read(self, states: Sequence[State]) -> Answer:
        return CollectionAnswers(self.plan, states)

    def metric_reads(self) -> dict[str, MetricRead] | None:
        entries, units = self.plan.entries, self.plan.units
        if not all(isinstance(e.definition, MetricDefinition) for e in entries.values()):
            return None
        return {n: MetricRead(e.definition.metric, e.units[0], units[e.units[0]].binding) for n, e in entries.items()}

    def samples(self, states: Sequence[State]) -> list[Sample]:
        out = []
        for name, entry in self.plan.entries.items():
            found = entry.definition.samples(self.plan.wide(entry, states))
            out += [replace(one, name=renamed(one.name, entry.definition, name)) for one in found]
        return out

    def selected(self, names: Mapping[str, str]) -> tuple[Self, list[int]]:
        ours = self.plan.entries
        known = {n: (d, b) for n, d, b in self.plan.named()}
        new = type(self)(StatePlan((names[n], *known[n]) for n in names if n in known), self.on_invalid)
        units = [0] * len(new.plan.units)
        for name in (n for n in ours if n in names):
            for unit, old in zip(new.plan.entries[names[name]].units, ours[name].units, strict=True):
                units[unit] = old
        return new, units

    def sealed(self, parts: int | None = None) -> Self:
        new = type(self)(StatePlan((n, d.sealed(parts), b) for n, d, b in self.plan.named()), self.on_invalid)
        if len(new.plan.units) < len(self.plan.units):
            raise IncompatibleStateError(
                "closed groups do not say by which scale= and missing= they were counted, so metrics that differ in these "
                "cannot be sealed in one collection"
            )
        return new

    def coarser(self, bits: int) -> Self:
        named = [(n, d.coarser(bits) if d.can_coarsen else d, b) for n, d, b in self.plan.named()]
        return type(self)(StatePlan(named), self.on_invalid)

    def coarsened(self, new: Any, states: Sequence[State], bits: int) -> list[State]:
        held = [r.state for r in new.plan.units]
        for name, entry in new.plan.entries.items():
            old = self.plan.entries[name]
            made = old.definition.coarsened(entry.definition, self.plan.of(old, states), bits)
            for unit, i, state in zip(entry.units, old.definition.sources(entry.definition), made, strict=True):
                # A state without bits that others widened: all its metrics share it.
                if held[unit].settings != state.settings:
                    state = states[old.units[i]].narrow(held[unit])
                held[unit] = state
        return held

    def sources(self, new: Any) -> list[int]:
        found: dict[int, int] = {}
        for name, entry in new.plan.entries.items():
            old = self.plan.entries[name]
            sources = old.definition.sources(entry.definition)
            found |= {u: old.units[i] for u, i in zip(entry.units, sources, strict=True)}
        return [found[unit] for unit in range(len(found))]


class MetricCollection(MetricContainer):
    """Many metrics over one pass.

    Metrics that ask for the same state from the same columns share it: decided here, from settings, never from data.
    For every metric m of a collection C, ``C[m]`` equals m used alone, bytes included.

    Parameters
    ----------
    *metrics : metric, Task, Sliced, MetricCollection, list or dict of these
        What to compute. Dicts name and nest: ``{"ctr": Task(...)}`` gives "ctr/auc".
    on_invalid : {"raise", "drop"}
        Whether a bad row raises, or is left out and counted; by default it is left out if all metrics say so.

    Examples
    --------
    >>> import streammetrics as sm
    >>> metrics = sm.MetricCollection(sm.AUC(), sm.LogLoss(), sm.Calibration())
    >>> metrics.update([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.75]).compute()["auc"]
    0.75
    >>> metrics
    MetricCollection: 3 metrics over 2 states
      scores[y_true, y_score]: auc
      score_sums[y_true, y_score]: log_loss, calibration
    """

    def __init__(self, *metrics: Metrics, on_invalid: str | None = None) -> None:
        named = list(flatten(list(metrics)))
        how = agreed(on_invalid, (definition for _, definition, _ in named))
        self._accumulator = accumulate(CollectionDefinition(StatePlan(named), how))

    def plan(self) -> list[dict[str, Any]]:
        """Return which metrics share which state, which columns it reads, and the bytes that it takes."""
        definition: Any = self._accumulator.definition
        out = []
        for i, (unit, size) in enumerate(zip(definition.reads, self._accumulator.feed.sizes, strict=True)):
            reads = {n.role: _spelled(unit.binding.column(n.role)) for n in unit.state.needs() if not n.optional}
            names = [n for n, e in definition.plan.entries.items() if i in e.units]
            by = {"by": [n for a in unit.state.axes for n in a.names]} if unit.state.axes else {}
            out.append({"state": unit.state.tag, "columns": reads, **by, "metrics": names, "bytes": size})
        return out

    def __getitem__(self, name: str) -> Any:
        definition: Any = self._accumulator.definition
        plan: StatePlan = definition.plan
        if name not in plan.entries and any(n.startswith(f"{name}/") for n in plan.entries):
            return self.task(name)
        entry = plan.entry(name)
        alone = entry.definition.with_on_invalid(definition.on_invalid)
        return alone.wrap(accumulate(alone, plan.of(entry, self._accumulator.states)))

    def __contains__(self, name: str) -> bool:
        return name in self.names

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        plan = self.plan()
        lines = [f"MetricCollection: {len(self)} metrics over {len(plan)} states"]
        for p in plan:
            by = f" by {', '.join(p['by'])}" if "by" in p else ""
            lines.append(f"  {p['state']}[{', '.join(p['columns'].values())}]{by}: {', '.join(p['metrics'])}")
        return "\n".join(lines)


CollectionDefinition.public = MetricCollection


def contents_of(collection: MetricCollection) -> list[CollectionEntry]:
    """Return every entry of a collection, with the states that it reads and the columns of these."""
    definition: Any = collection._accumulator.definition
    plan, states = definition.plan, collection._accumulator.states
    return [
        CollectionEntry(
            n,
            getattr(e.definition, "metric", None),
            tuple(plan.wide(e, states)),
            plan.units[e.units[0]].binding,
            e.definition,
        )
        for n, e in plan.entries.items()
    ]


def _definition(named: Sequence[tuple[str, Definition, Binding]], on_invalid: str) -> CollectionDefinition:
    return CollectionDefinition(StatePlan(named), on_invalid)


def renamed(number: str, definition: Definition, name: str) -> str:
    """Return the name of a number of a definition that is called `name` here."""
    alone = isinstance(definition, MetricDefinition)
    return name + number.removeprefix(definition.name) if alone else f"{name}/{number}"


def _spelled(column: Any) -> str:
    return " x ".join(column) if isinstance(column, tuple) else str(column)
