"""MetricCollection: many metrics in one pass over the data. Metrics that read the same columns can share a state."""

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
from .task import Metrics, flatten, resolve_on_invalid

__all__ = ["CollectionDefinition", "CollectionEntry", "MetricCollection", "contents_of"]


class PlanEntry(NamedTuple):
    """A member of a collection: its definition, and the indices (`places`) of its states among the plan's states."""

    definition: Any
    places: tuple[int, ...]


class StatePlan:
    """A plan that determines which members of a collection share a state.

    Members that read the same kind of state from the same columns share one state. For example, two metrics may need
    different sums of the same scores. The shared state then contains the sums for both (see `State.widen`).

    Parameters
    ----------
    items : iterable of (name, definition, binding)
        The members of the collection.
    """

    def __init__(self, items: Iterable[tuple[str, Definition, Binding]]) -> None:
        self.entries: dict[str, PlanEntry] = {}
        self.reads: list[Read] = []
        for name, definition, binding in items:
            if name in self.entries:
                raise ValueError(f"two metrics have the name {name!r}; pass a dict to give each metric its own name")
            reads = [_bind_read(definition, read, binding) for read in definition.reads]
            self.entries[name] = PlanEntry(definition, tuple(map(self._add_read, reads)))
        if not self.entries:
            raise ValueError("a collection needs at least one metric")
        limits: dict[Any, Any] = {}
        for axis, kind in (time for unit in self.reads for time in unit.times):
            if limits.setdefault(axis, kind) != kind:
                raise ValueError(
                    f"all windows over the column {axis.names[0]!r} in a collection must have the same max_time="
                )

    def _add_read(self, wanted: Read) -> int:
        """Return the index of the plan's state for `wanted` (a state that a member needs, and its columns).

        If the plan already has a state that reads the same columns and can also contain what this member needs, that
        state is shared and, if necessary, widened. Otherwise a new state is added.
        """
        needs = _bound_needs(wanted)
        for i, read in enumerate(self.reads):
            same = (read.binding, read.latest) == (wanted.binding, wanted.latest) and _bound_needs(read) == needs
            if same and (wide := read.state.widen(wanted.state)) is not None:
                self.reads[i] = read._replace(state=wide)
                return i
        self.reads.append(wanted)
        return len(self.reads) - 1

    def own_states(self, entry: PlanEntry, states: Sequence[State]) -> list[State]:
        """Return the states of a member, without the content that only other members need."""
        wanted = [read.state for read in entry.definition.reads]
        return [s.narrow(w) for s, w in zip(self.shared_states(entry, states), wanted, strict=True)]

    def shared_states(self, entry: PlanEntry, states: Sequence[State]) -> list[State]:
        """Return the shared states that a member reads, including content that only other members need."""
        return [self.reads[u].binding.correct_state(states[u]) for u in entry.places]

    def items(self) -> list[tuple[str, Any, Binding]]:
        """Return a list with (name, definition, binding) for each member, from which an equal plan can be built."""
        return [(n, e.definition, self.binding(e)) for n, e in self.entries.items()]

    def binding(self, entry: PlanEntry) -> Binding:
        """Return the binding (columns and options) of the task that contains a member.

        A member that itself contains tasks, such as slices of tasks, cannot be in a task, so its binding is empty.
        """
        own = [read.binding for read in entry.definition.reads]
        return PLAIN if any(b != PLAIN for b in own) else self.reads[entry.places[0]].binding

    def header(self) -> list[dict[str, Any]]:
        """Return the members as JSON-compatible data."""
        return [
            {"name": n, "thing": e.definition.header()} | ({"task": b} if (b := self.binding(e).header()) else {})
            for n, e in self.entries.items()
        ]

    def places_header(self) -> list[list[int]]:
        """Return, for each member, the indices of its states. Headers contain this list under the key "units"."""
        return [list(e.places) for e in self.entries.values()]

    def differences(self, other: StatePlan) -> list[str]:
        """Describe each difference between this plan and another one, for error messages."""
        differences = [f"the other object has no {n!r}" for n in self.entries if n not in other.entries]
        differences += [f"this object has no {n!r}" for n in other.entries if n not in self.entries]
        for name in [n for n in self.entries if n in other.entries]:
            ours, theirs = self.entries[name], other.entries[name]
            differences += [
                f"{d} of {name!r}" if " is " not in d else _insert_metric_name(d, name)
                for d in ours.definition.differences(theirs.definition)
            ]
            here, there = self.binding(ours).header(), other.binding(theirs).header()
            differences += [
                f"{what} in the task of {name!r} is {here.get(what)!r} here and {there.get(what)!r} there"
                for what in dict.fromkeys([*here, *there])
                if canonical_json(here.get(what)) != canonical_json(there.get(what))
            ]
        # The states of two collections are matched by index, so the metrics must also be in the same order.
        if not differences and [*self.entries] != [*other.entries]:
            orders = (", ".join(plan.entries) for plan in (self, other))
            differences.append("the order of metrics is {} here and {} there".format(*orders))
        return differences


def _bound_needs(read: Read) -> list[Need]:
    """Return the columns that the state of `read` needs, with the label values and score scale of its task.

    A column that the state can compute itself is marked as required, so that the state can be shared with a metric that
    requires this column.
    """
    needs = [replace(n, optional=False, derived=False) if n.derived else n for n in read.state.needs()]
    return [read.binding.adapt_need(n) for n in needs]


def _insert_metric_name(difference: str, name: str) -> str:
    what, _, rest = difference.partition(" is ")
    return f"{what} of {name!r} is {rest}"


def _bind_read(definition: Definition, read: Read, binding: Binding) -> Read:
    """Return `read` with its roles bound to the columns of a task.

    Raise an error if the read already belongs to a task, or if the task corrects scores on a different scale from the
    metric's.
    """
    if binding == PLAIN:
        return read
    if read.binding != PLAIN:
        raise TypeError(
            f"{definition.name} is in a task inside another task; name its columns in only one of these tasks"
        )
    metric_scale = getattr(getattr(definition, "metric", None), "scale", None)
    if binding.corrects_scores and metric_scale not in (None, binding.scale):
        raise ValueError(
            f"{definition.name} has scale={metric_scale!r}, but its task has scale={binding.scale!r}; pass the same "
            f"scale= to both"
        )
    ranks = binding.ranks if read.ranks is None else read.ranks
    return read._replace(binding=replace(binding, ranks=bool(ranks) and binding.corrects_scores))


class CollectionEntry(NamedTuple):
    """A member of a collection, as `contents_of` returns it.

    Parameters
    ----------
    name : str
        The full name of the member, such as "ctr/auc".
    metric : Metric or None
        The metric; None for slices and other wrappers.
    states : tuple of State
        The states that the member reads, including content that only other members need.
    binding : Binding
        The column of each role of the member, and the options of its task.
    definition : Definition
        The settings of the member.
    """

    name: str
    metric: Any
    states: tuple[State, ...]
    binding: Binding
    definition: Definition


class CollectionAnswers(NamedAnswers):
    """The values, bounds and intervals of the metrics of a collection.

    Parameters
    ----------
    plan : StatePlan
        The members of the collection, and the states that each of them reads.
    states : sequence of State
        The states of the collection, which have no slices.
    """

    def __init__(self, plan: StatePlan, states: Sequence[State]) -> None:
        super().__init__({n: e.definition.read(plan.shared_states(e, states)) for n, e in plan.entries.items()})
        self._plan, self._states = plan, states

    @property
    def explanation(self) -> dict[str, Any]:
        plan = self._plan
        # `explain` shows facts about the state (`State.facts`), such as its row count. The facts of a shared state may
        # differ from those of the metric's own state, so explain each metric with only the content that it needs.
        alone = {n: e.definition.read(plan.own_states(e, self._states)) for n, e in plan.entries.items()}
        return NamedAnswers(alone).explanation


class CollectionDefinition(Definition):
    """The settings of a collection.

    Parameters
    ----------
    plan : StatePlan
        The members of the collection, and the states that each of them reads.
    on_invalid : {"raise", "drop"}
        What to do with an invalid row: raise an error, or leave the row out and report how many were left out.
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
        return tuple(self.plan.reads)

    def __reduce__(self) -> Any:
        return _rebuild_definition, (self.plan.items(), self.on_invalid)

    def header(self) -> dict[str, Any]:
        return {"kind": "collection", "items": self.plan.header(), "units": self.plan.places_header()}

    @classmethod
    def of_header(cls, header: dict[str, Any], states: Sequence[State]) -> Definition:
        items = []
        for item, units in zip(header["items"], header["units"], strict=True):
            definition = definition_of_header(item["thing"], [states[u] for u in units])
            items.append((item["name"], definition, Binding.from_header(item.get("task", {}))))
        if len({n for n, _, _ in items}) != len(items) or not all(isinstance(n, str) for n, _, _ in items):
            raise ValueError("two metrics have the same name, or a metric has no name")
        return cls(StatePlan(items))

    @classmethod
    def number_of_states(cls, header: dict[str, Any]) -> int:
        return 1 + max(int(unit) for units in header["units"] for unit in units)

    def check_states(self, states: Sequence[State]) -> None:
        for entry in self.plan.entries.values():
            entry.definition.check_states([states[u] for u in entry.places])

    def differences(self, other: Any) -> list[str]:
        differences = self.plan.differences(other.plan)
        ours, theirs = set(self.names), set(other.names)
        if differences and ours != theirs and ours & theirs:
            differences[-1] += '; sm.merge(parts, metrics="common") merges the metrics that all parts have'
        return differences

    def positional_columns(self) -> tuple[str, ...]:
        """Return the roles that `update` accepts by position: the longest common prefix of all metrics' role lists.

        Metrics whose task binds one of these roles to a column by name are not considered.
        """
        roles_so_far: list[str] = []
        entries = [
            (e.definition, e.definition.positional_columns(), self.plan.binding(e).columns_by_role)
            for e in self.plan.entries.values()
        ]
        while roles := [
            (r[len(roles_so_far)], d) for d, r, bound in entries if len(r) > len(roles_so_far) and not bound.keys() & r
        ]:
            read = {role for role, definition in roles if role in definition.columns} or {role for role, _ in roles}
            if len(read) > 1:
                break
            roles_so_far += read
        return tuple(roles_so_far)

    def read(self, states: Sequence[State]) -> Answer:
        return CollectionAnswers(self.plan, states)

    def metric_reads(self) -> dict[str, MetricRead] | None:
        entries, reads = self.plan.entries, self.plan.reads
        if not all(isinstance(e.definition, MetricDefinition) for e in entries.values()):
            return None
        return {n: MetricRead(e.definition.metric, e.places[0], reads[e.places[0]].binding) for n, e in entries.items()}

    def samples(self, states: Sequence[State]) -> list[Sample]:
        out = []
        for name, entry in self.plan.entries.items():
            samples = entry.definition.samples(self.plan.shared_states(entry, states))
            out += [replace(one, name=rename_number(one.name, entry.definition, name)) for one in samples]
        return out

    def select_metrics(self, names: Mapping[str, str]) -> tuple[Self, list[int]]:
        ours = self.plan.entries
        items = {n: (d, b) for n, d, b in self.plan.items()}
        new = type(self)(StatePlan((names[n], *items[n]) for n in names if n in items), self.on_invalid)
        places = [0] * len(new.plan.reads)
        for name in (n for n in ours if n in names):
            for place, old in zip(new.plan.entries[names[name]].places, ours[name].places, strict=True):
                places[place] = old
        return new, places

    def find_entry(self, name: str) -> tuple[Any, list[int]] | None:
        entry = self.plan.entries.get(name)
        return None if entry is None else (entry.definition.with_on_invalid(self.on_invalid), list(entry.places))

    def seal(self, parts: int | None = None) -> Self:
        new = type(self)(StatePlan((n, d.seal(parts), b) for n, d, b in self.plan.items()), self.on_invalid)
        if len(new.plan.reads) < len(self.plan.reads):
            raise IncompatibleStateError(
                "cannot seal a collection whose metrics differ in scale= or missing=, because sealed groups do not "
                "contain these settings; put the metrics into separate collections"
            )
        return new

    def coarsen(self, bits: int) -> Self:
        items = [(n, d.coarsen(bits) if d.can_coarsen else d, b) for n, d, b in self.plan.items()]
        return type(self)(StatePlan(items), self.on_invalid)

    def coarsen_states(self, new: Any, states: Sequence[State], bits: int) -> list[State]:
        new_states = [r.state for r in new.plan.reads]
        for name, entry in new.plan.entries.items():
            old = self.plan.entries[name]
            coarse_states = old.definition.coarsen_states(entry.definition, self.plan.own_states(old, states), bits)
            for place, i, state in zip(
                entry.places, old.definition.sources(entry.definition), coarse_states, strict=True
            ):
                # If several metrics share a state, `own_states` keeps only the content that this metric needs, so the
                # settings of `state` may differ from those of the new state. In that case, `state` has no setting
                # `bits`, so coarsening has not changed it, and the shared state can take its place.
                if new_states[place].settings != state.settings:
                    state = states[old.places[i]].narrow(new_states[place])
                new_states[place] = state
        return new_states

    def sources(self, new: Any) -> list[int]:
        places: dict[int, int] = {}
        for name, entry in new.plan.entries.items():
            old = self.plan.entries[name]
            sources = old.definition.sources(entry.definition)
            places |= {u: old.places[i] for u, i in zip(entry.places, sources, strict=True)}
        return [places[place] for place in range(len(places))]


class MetricCollection(MetricContainer):
    """Many metrics, counted in one pass over the data.

    Metrics that need the same state of the same columns share one state. Which metrics share a state depends only on
    their settings. For every name m in a collection C, ``C[m]`` equals the same metric used alone, down to its saved
    bytes.

    Parameters
    ----------
    *metrics : metric, Task, Sliced, MetricCollection, list or dict of these
        The metrics to compute. Dicts assign names and can be nested: ``{"ctr": Task(...)}`` gives "ctr/auc". A
        collection starts empty: it takes the settings of the metrics, not the rows that they have counted.
    on_invalid : {"raise", "drop"}
        What to do with an invalid row: raise an error, or leave the row out and report how many were left out. The
        default is "drop" if all metrics have "drop", otherwise "raise".

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
        items = list(flatten(list(metrics)))
        on_invalid_rule = resolve_on_invalid(on_invalid, (definition for _, definition, _ in items))
        self._accumulator = accumulate(CollectionDefinition(StatePlan(items), on_invalid_rule))

    def plan(self) -> list[dict[str, Any]]:
        """Return a dict for each state: its columns, the metrics that share it, and its size in bytes."""
        definition: Any = self._accumulator.definition
        out = []
        for i, (read, size) in enumerate(zip(definition.reads, self._accumulator.updater.sizes, strict=True)):
            reads = {n.role: _format_column(read.binding.column(n.role)) for n in read.state.needs() if not n.optional}
            names = [n for n, e in definition.plan.entries.items() if i in e.places]
            by = {"by": [n for a in read.state.axes for n in a.names]} if read.state.axes else {}
            out.append({"state": read.state.tag, "columns": reads, **by, "metrics": names, "bytes": size})
        return out

    def __getitem__(self, name: str) -> Any:
        found = self._find_metrics(name)
        if found is None:
            raise KeyError(f"there is no metric {name!r}; the metrics are {', '.join(self.names)}")
        return found

    def __contains__(self, name: str) -> bool:
        return name in self.names

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        plan = self.plan()
        metrics, states = (f"{n} {noun}{'s' * (n != 1)}" for n, noun in ((len(self), "metric"), (len(plan), "state")))
        lines = [f"MetricCollection: {metrics} over {states}"]
        for p in plan:
            by = f" by {', '.join(p['by'])}" if "by" in p else ""
            lines.append(f"  {p['state']}[{', '.join(p['columns'].values())}]{by}: {', '.join(p['metrics'])}")
        return "\n".join(lines)


CollectionDefinition.public = MetricCollection


def contents_of(collection: MetricCollection) -> list[CollectionEntry]:
    """Return every member of a collection, with its states and its binding (columns and options)."""
    definition: Any = collection._accumulator.definition
    plan, states = definition.plan, collection._accumulator.states
    return [
        CollectionEntry(
            n,
            getattr(e.definition, "metric", None),
            tuple(plan.shared_states(e, states)),
            plan.reads[e.places[0]].binding,
            e.definition,
        )
        for n, e in plan.entries.items()
    ]


def _rebuild_definition(items: Sequence[tuple[str, Definition, Binding]], on_invalid: str) -> CollectionDefinition:
    return CollectionDefinition(StatePlan(items), on_invalid)


def rename_number(number: str, definition: Definition, name: str) -> str:
    """Return the full name of one of the values of a member, such as "ctr/recall_each/0".

    `number` is the value's name when the member is used alone, such as "recall_each/0", and `name` is the member's name
    in the collection.
    """
    alone = isinstance(definition, MetricDefinition)
    return name + number.removeprefix(definition.name) if alone else f"{name}/{number}"


def _format_column(column: Any) -> str:
    return " x ".join(column) if isinstance(column, tuple) else str(column)
