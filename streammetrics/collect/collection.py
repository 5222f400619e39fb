"""Many metrics over one pass: metrics that ask for the same state from the same columns share it."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, Self

from ..columns.columns import Batch
from ..errors import IncompatibleStateError, UndefinedMetricWarning
from ..state.state import State
from .binding import Binding
from .feed import Read
from .holder import Holder, Reader, blank_of
from .interval import DEFAULT_CONFIDENCE, check_confidence
from .metric import Metric
from .parted import Parted
from .plan import Plan
from .sample import Sample
from .scalars import Named, named_numbers, prefixed
from .table import Table, values_table
from .task import Metrics, agreed, flatten
from .wide_bounds import WideValue, warn

__all__ = ["Content", "MetricCollection"]


class Content(NamedTuple):
    """One thing of a collection.

    Parameters
    ----------
    name : str
        Its full name.
    thing : Metric, Sliced or MetricCollection
        What answers.
    states : tuple of State
        What was seen of what it reads, with all that others ask of these states.
    binding : Binding
        The columns that play its roles.
    """

    name: str
    thing: Any
    states: tuple[State, ...]
    binding: Binding


class MetricCollection(Parted):
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

    sort = "collection"

    def __init__(self, *metrics: Metrics, on_invalid: str | None = None) -> None:
        named = list(flatten(list(metrics)))
        self._plan, self.on_invalid = Plan(named), agreed(on_invalid, (thing for _, thing, _ in named))

    @classmethod
    def _of(cls, plan: Plan, on_invalid: str = "raise") -> Self:
        new = cls.__new__(cls)
        new._plan, new.on_invalid = plan, on_invalid
        return new

    @classmethod
    def _named(cls, named: list[tuple[str, Any, Binding]], on_invalid: str) -> Self:
        return cls._of(Plan(named), on_invalid)

    # -- what it is ---------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The name in another collection."""
        return "metrics"

    @property
    def names(self) -> list[str]:
        """The names of the metrics."""
        return list(self._plan.entries)

    def reads(self) -> tuple[Read, ...]:
        return tuple(self._plan.units)

    def blank(self) -> Self:
        return self._of(Plan(self._plan.named()), self.on_invalid)

    def recipe(self) -> Callable[[], Holder]:
        return partial(type(self)._named, self._plan.named(), self.on_invalid)

    def header(self) -> dict[str, Any]:
        return {"kind": "collection", "items": self._plan.header(), "units": self._plan.units_header()}

    @classmethod
    def of_header(cls, header: dict[str, Any], states: Sequence[State]) -> Any:
        named = []
        for item, units in zip(header["items"], header["units"], strict=True):
            about = item["thing"]
            thing = blank_of(about, [states[u] for u in units])
            named.append((item["name"], thing, Binding.of(item.get("task", {}))))
        if len({n for n, _, _ in named}) != len(named) or not all(isinstance(n, str) for n, _, _ in named):
            raise ValueError("two metrics have one name, or one has none")
        return cls._of(Plan(named))

    @classmethod
    def state_count(cls, header: dict[str, Any]) -> int:
        return 1 + max(int(unit) for units in header["units"] for unit in units)

    def check_states(self, states: Sequence[State]) -> None:
        for entry in self._plan.entries.values():
            entry.thing.check_states([states[u] for u in entry.units])

    def differences(self, other: Any) -> list[str]:
        found = self._plan.differences(other._plan)
        ours, theirs = set(self.names), set(other.names)
        if found and ours != theirs and ours & theirs:
            found[-1] += '; sm.merge(parts, metrics="common") merges what they share'
        return found

    # -- rows in ------------------------------------------------------------------------------------------------------

    def by_position(self) -> tuple[str, ...]:
        """Those of what it holds, as far as all agree; a column that a task names is not taken by position."""
        found: list[str] = []
        things = [(e.thing, e.thing.by_position(), self._plan.binding(e).bound) for e in self._plan.entries.values()]
        while roles := [(r[len(found)], t) for t, r, bound in things if len(r) > len(found) and not bound.keys() & r]:
            read = {role for role, thing in roles if role in thing.columns} or {role for role, _ in roles}
            if len(read) > 1:
                break
            found += read
        return tuple(found)

    def absorb(self, batch: Batch) -> Self:
        """Count a batch whose columns other collections may share."""
        self.feed.count_batch(batch)
        return self

    # -- results ------------------------------------------------------------------------------------------------------

    def value(self, states: Sequence[State]) -> dict[str, Any]:
        return {n: e.thing.value(self._plan.wide(e, states)) for n, e in self._plan.entries.items()}

    def value_with_wide(self, states: Sequence[State]) -> tuple[dict[str, Any], list[WideValue]]:
        values: dict[str, Any] = {}
        wide: list[WideValue] = []
        for name, entry in self._plan.entries.items():
            values[name], found = entry.thing.value_with_wide(self._plan.wide(entry, states))
            lone = isinstance(entry.thing, Metric)
            wide += [one._replace(name=name if lone else f"{name}/{one.name}") for one in found]
        return values, wide

    def numbers(self, value: Any) -> Named:
        for name, entry in self._plan.entries.items():
            one = entry.thing
            yield from (
                named_numbers(name, value[name])
                if isinstance(one, Metric)
                else prefixed(name, one.numbers(value[name]))
            )

    def limits(self, states: Sequence[State]) -> dict[str, Any]:
        return {n: e.thing.limits(self._plan.wide(e, states)) for n, e in self._plan.entries.items()}

    def explained(self, states: Sequence[State]) -> dict[str, Any]:
        found = {n: e.thing.explained(self._plan.of(e, states)) for n, e in self._plan.entries.items()}
        return {n: {**x, "metric": n} if isinstance(x, dict) and "metric" in x else x for n, x in found.items()}

    def chances(self, states: Sequence[State], confidence: float, method: str | None) -> dict[str, Any]:
        entries = self._plan.entries.items()
        return {n: e.thing.chances(self._plan.wide(e, states), confidence, method) for n, e in entries}

    def readers(self) -> dict[str, Reader] | None:
        entries, units = self._plan.entries, self._plan.units
        if not all(isinstance(e.thing, Metric) for e in entries.values()):
            return None
        return {n: Reader(e.thing, e.units[0], units[e.units[0]].binding) for n, e in entries.items()}

    def samples(self, states: Sequence[State]) -> list[Sample]:
        out = []
        for name, entry in self._plan.entries.items():
            found = entry.thing.samples(self._plan.wide(entry, states))
            out += [replace(one, name=renamed(one.name, entry.thing, name)) for one in found]
        return out

    def records(self, states: Sequence[State], confidence: float | None = 0.95) -> list[dict[str, Any]]:
        out = []
        for name, entry in self._plan.entries.items():
            rows = entry.thing.records(self._plan.wide(entry, states), confidence)
            out += [r | {"metric": name if isinstance(entry.thing, Metric) else f"{name}/{r['metric']}"} for r in rows]
        return out

    def compute(self) -> dict[str, Any]:
        """Return the value of every metric by name; with a warning where it is undefined, or its bounds are too wide."""
        states = self.feed.states
        values, wide = self.value_with_wide(states)
        warn(wide, self.warned_wide, stacklevel=2)
        warned: set[str] = self.__dict__.setdefault("_warned", set())
        for name, value in values.items():
            if isinstance(value, float) and math.isnan(value) and name not in warned:
                warned.add(name)
                entry = self._plan.entries[name]
                reason = entry.thing.records(self._plan.wide(entry, states), None)[0]["reason"] or "0/0"
                warnings.warn(f"{name} is undefined: {reason}", UndefinedMetricWarning, stacklevel=2)
        return values

    def bounds(self) -> dict[str, tuple[Any, Any]]:
        """Return certified limits of every metric by name."""
        return self.limits(self.feed.states)

    def explain(self) -> dict[str, dict[str, Any]]:
        """Return every value with what is behind it (see `Metric.explain`)."""
        return self.explained(self.feed.states)

    @property
    def levels(self) -> tuple[str, ...]:  # type: ignore[override]
        """The columns that tell apart what it answers, those of everything in it."""
        return tuple(dict.fromkeys(n for e in self._plan.entries.values() for n in e.thing.levels))

    def table(self, *, confidence: float | None = DEFAULT_CONFIDENCE) -> Table:
        """Return values, bounds, intervals and counts as one table.

        Parameters
        ----------
        confidence : float or None
            Confidence level of the intervals. If you pass one, the table prints every interval, or the reason why there is
            none. By default it prints only intervals that come from `Sharded`, because rows of one user are correlated.
            None omits intervals.
        """
        return values_table(self.levels, self.records(self.feed.states, check_confidence(confidence)), confidence)

    def contents(self) -> list[Content]:
        """Return everything in it, with the states that it reads and the columns of these."""
        plan, states = self._plan, self.feed.states
        return [
            Content(n, e.thing, tuple(plan.wide(e, states)), plan.units[e.units[0]].binding)
            for n, e in plan.entries.items()
        ]

    def __getitem__(self, name: str) -> Any:
        if name not in self._plan.entries and any(n.startswith(f"{name}/") for n in self._plan.entries):
            return self.task(name)
        entry = self._plan.entry(name)
        made = entry.thing.blank().heeding(self.on_invalid)
        made.feed.hold(self._plan.of(entry, self.states))
        return made

    def __contains__(self, name: str) -> bool:
        return name in self._plan.entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._plan.entries)

    def __len__(self) -> int:
        return len(self._plan.entries)

    def plan(self) -> list[dict[str, Any]]:
        """Return which metrics share which state, what it reads, and the bytes it takes."""
        out = []
        for i, (unit, size) in enumerate(zip(self._plan.units, self.feed.sizes, strict=True)):
            reads = {n.role: _spelled(unit.binding.column(n.role)) for n in unit.state.needs() if not n.optional}
            names = [n for n, e in self._plan.entries.items() if i in e.units]
            by = {"by": [n for a in unit.state.axes for n in a.names]} if unit.state.axes else {}
            out.append({"state": unit.state.tag, "columns": reads, **by, "metrics": names, "bytes": size})
        return out

    def __repr__(self) -> str:
        plan = self.plan()
        lines = [f"MetricCollection: {len(self)} metrics over {len(plan)} states"]
        for p in plan:
            by = f" by {', '.join(p['by'])}" if "by" in p else ""
            lines.append(f"  {p['state']}[{', '.join(p['columns'].values())}]{by}: {', '.join(p['metrics'])}")
        return "\n".join(lines)

    def chosen(self, names: Mapping[str, str]) -> tuple[Self, list[int]]:
        ours = self._plan.entries
        known = {n: (t, b) for n, t, b in self._plan.named()}
        new = self._of(Plan((names[n], *known[n]) for n in names if n in known), self.on_invalid)
        units = [0] * len(new._plan.units)
        for name in (n for n in ours if n in names):
            for unit, old in zip(new._plan.entries[names[name]].units, ours[name].units, strict=True):
                units[unit] = old
        return new, units

    def closing(self, parts: int | None = None) -> Self:
        new = self._of(Plan((n, t.closing(parts), b) for n, t, b in self._plan.named()), self.on_invalid)
        if len(new._plan.units) < len(self._plan.units):
            raise IncompatibleStateError(
                "closed groups do not say by which scale= and missing= they were counted, so metrics that differ in these "
                "cannot be sealed in one collection"
            )
        return new

    def coarser(self, bits: int) -> Self:
        named = [(n, thing.coarser_within(bits), b) for n, thing, b in self._plan.named()]
        return self._of(Plan(named), self.on_invalid)

    def brought_down(self, new: Any, states: Sequence[State], bits: int) -> list[State]:
        held = [r.state for r in new._plan.units]
        for name, entry in new._plan.entries.items():
            old = self._plan.entries[name]
            made = old.thing.brought_down(entry.thing, self._plan.of(old, states), bits)
            for unit, i, state in zip(entry.units, old.thing.sources(entry.thing), made, strict=True):
                if held[unit].settings != state.settings:  # a widened one without bits, which all that read it share
                    state = states[old.units[i]].narrow(held[unit])
                held[unit] = state
        return held

    def sources(self, new: Any) -> list[int]:
        found: dict[int, int] = {}
        for name, entry in new._plan.entries.items():
            old = self._plan.entries[name]
            found |= {u: old.units[i] for u, i in zip(entry.units, old.thing.sources(entry.thing), strict=True)}
        return [found[unit] for unit in range(len(found))]


def renamed(number: str, thing: Any, name: str) -> str:
    """The name of a number of something that is called `name` here."""
    return name + number.removeprefix(thing.name) if isinstance(thing, Metric) else f"{name}/{number}"


def _spelled(column: Any) -> str:
    return " x ".join(column) if isinstance(column, tuple) else str(column)
