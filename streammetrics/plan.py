"""The plan of a collection: which metric reads which state, and what comes of merging and reading them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .convert import as_columns
from .intake import Binding, Rows, Unit
from .metric import Metric, encode_settings
from .settings import canonical_json, encode_setting
from .state import State

__all__ = ["Entry", "Plan", "count_units", "merge_units", "records"]


class Entry(NamedTuple):
    """A metric of a collection, by name, and the number of the unit that it reads."""

    metric: Metric[Any, Any]
    unit: int


class Plan:
    """Which metric reads which state, decided from settings and columns alone, before any data."""

    def __init__(self, named: Iterable[tuple[str, Metric[Any, Any], Binding]]) -> None:
        self.entries: dict[str, Entry] = {}
        self.units: list[Unit] = []
        for name, metric, binding in named:
            if name in self.entries:
                raise ValueError(f"two metrics are called {name!r}; name them with a dict")
            self.entries[name] = Entry(metric, self._unit(metric, binding))
        if not self.entries:
            raise ValueError("a collection needs at least one metric")

    def _unit(self, metric: Metric[Any, Any], binding: Binding) -> int:
        wanted = Unit(metric.make_state(), binding)
        given = getattr(metric, "scale", None)
        if binding.corrects in ("score", "both") and given not in (None, binding.scale):
            raise ValueError(f"{metric.name} has scale={given!r}, its task scale={binding.scale!r}")
        for i, unit in enumerate(self.units):
            if unit.binding == binding and unit.needs == wanted.needs and (wide := unit.state.widen(wanted.state)):
                self.units[i] = Unit(wide, binding)
                return i
        self.units.append(wanted)
        return len(self.units) - 1

    @cached_property
    def columns(self) -> dict[str, bool]:
        """The columns read, and whether each must be there."""
        found: dict[str, bool] = {}
        for unit in self.units:
            for need in unit.needs:
                name = unit.binding.column(need.role)
                must = not need.optional or need.role in unit.binding.bound
                for one in name if isinstance(name, tuple) else (name,):
                    found[one] = found.get(one, False) or must
            if unit.binding.where is not None:
                found[unit.binding.where] = True
        return found

    def mapping(
        self, owner: str, given: tuple[Any, Any], columns: Mapping[str, Any], also: Iterable[str] = ()
    ) -> Mapping[str, Any]:
        """Return positional and named columns, or a table, as one mapping."""
        first, second = given
        if first is not None and (table := as_columns(first)) is not None:
            if columns or second is not None:
                raise TypeError(f"{owner}.update() takes a table or columns, not both")
            return table
        known = [*self.columns, *also]
        out = {name: column for name, column in columns.items() if column is not None}
        for name in columns:
            if name not in known:
                raise TypeError(f"{owner}.update() does not know {name!r}; it reads {', '.join(known)}")
        scores = [c for c in ("y_score", "y_pred") if c in known]
        for names, value in ((("y_true",), first), (scores[:1], second)):
            if value is None:
                continue
            if not names or names[0] not in known:
                raise TypeError(f"{owner} reads {', '.join(known)}: give columns by name, or a table")
            if names[0] in out:
                raise TypeError(f"{owner}.update() was given {names[0]} twice")
            out[names[0]] = value
        return out

    def header(self) -> dict[str, Any]:
        """Describe metrics and units as plain data."""
        return {
            "metrics": [
                {"name": n, "tag": e.metric.tag, "settings": e.metric.written, "unit": e.unit}
                for n, e in self.entries.items()
            ],
            "units": [{"binding": u.binding.header(), "state": u.state.header()} for u in self.units],
        }

    @classmethod
    def of(cls, header: dict[str, Any], read: Any) -> Plan:
        """Read what `header` wrote."""
        from .opaque import make_metric

        plan = cls.__new__(cls)
        heads = header["units"]
        plan.units = [Unit(read(u["state"]), Binding.of(u["binding"])) for u in heads]
        plan.entries = {
            m["name"]: Entry(make_metric(m["tag"], m["settings"], heads[m["unit"]]["state"]), m["unit"])
            for m in header["metrics"]
        }
        if len(plan.entries) != len(header["metrics"]):
            raise ValueError("two metrics have one name")
        fresh = cls((name, e.metric, plan.units[e.unit].binding) for name, e in plan.entries.items())
        if fresh._shape() != plan._shape():
            raise ValueError("the metrics do not read the states that they are given")
        return plan

    def differences(self, other: Plan) -> list[str]:
        """Say in words how another plan differs."""
        mine, theirs = self._identity(), other._identity()
        found = [f"it has no {n!r}" for n in mine if n not in theirs]
        found += [f"it has {n!r}, this one has not" for n in theirs if n not in mine]
        for name in [n for n in mine if n in theirs]:
            here, there = mine[name], theirs[name]
            found += [
                f"{what} of {name!r} is {here.get(what)!r} here and {there.get(what)!r} there"
                for what in dict.fromkeys([*here, *there])
                if canonical_json(here.get(what)) != canonical_json(there.get(what))
            ]
        return found

    def _shape(self) -> str:
        """Which metric reads which unit, and what the units are."""
        units = [
            [u.binding.header(), u.state.tag, {k: encode_setting(v) for k, v in u.state.settings.items()}]
            for u in self.units
        ]
        return canonical_json([units, [[n, e.unit] for n, e in self.entries.items()]])

    def _identity(self) -> dict[str, dict[str, Any]]:
        """What makes each metric what it is, one by one: its tag, its settings, and its task."""
        out = {}
        for name, (metric, unit) in self.entries.items():
            task = self.units[unit].binding.header()
            out[name] = {
                "the tag": metric.tag,
                **encode_settings(metric),
                **{f"the task's {k}": v for k, v in task.items()},
            }
        return out

    def state(self, name: str) -> State:
        """The state that a metric reads, narrowed to what it asks for, as a copy."""
        entry = self._entry(name)
        return self.units[entry.unit].state.narrow(entry.metric.make_state())

    def _entry(self, name: str) -> Entry:
        if name not in self.entries:
            raise KeyError(f"there is no metric {name!r}; there are {', '.join(self.entries)}")
        return self.entries[name]

    def restrict(self, names: Iterable[str]) -> Plan:
        """Return a plan of some of the metrics, holding what has been seen."""
        chosen = [n for n in self.entries if n in set(names)]
        plan = Plan((n, self.entries[n].metric, self.units[self.entries[n].unit].binding) for n in chosen)
        for name in chosen:
            new, old = plan.units[plan.entries[name].unit], self.units[self.entries[name].unit]
            new.state = old.state.narrow(new.state)
        return plan


def count_units(units: list[Unit], prepared: list[Rows], at: NDArray[np.int64] | None = None) -> None:
    """Count rows in every state, or in none.

    A state that grows may run out of memory while it counts. So it counts in a copy without rows, which is merged once
    all have found room; the others cannot fail.
    """
    for unit, rows in zip(units, prepared, strict=True):
        unit.admit(rows, at)
    staged = []
    for unit, rows in zip(units, prepared, strict=True):
        if unit.state.grows:
            fresh = Unit(unit.state.empty(unit.state.slices), unit.binding)
            fresh.absorb(rows, at)
            staged.append((unit, fresh.state, unit.state.check_merge(fresh.state)))
    for unit, state, grown in staged:
        unit.state.add(state, grown)
    for unit, rows in zip(units, prepared, strict=True):
        if not unit.state.grows:
            unit.absorb(rows, at)


def merge_units(ours: list[Unit], theirs: list[Unit]) -> None:
    """Merge the states of equal plans; nothing changes unless all of them can."""
    partners = [next(t for t in theirs if t.binding == o.binding and not o.state.differences(t.state)) for o in ours]
    grown = [o.state.check_merge(t.state) for o, t in zip(ours, partners, strict=True)]
    for o, t, g in zip(ours, partners, grown, strict=True):
        o.state.add(t.state, g)


def records(plan: Plan, i: int | None) -> list[dict[str, Any]]:
    """Return a record for the table of every metric, of slice i or of a lone collection."""
    states = [u.state if i is None else u.state.slice(i) for u in plan.units]
    facts = [s.facts() for s in states]
    out = []
    for name, (metric, unit) in plan.entries.items():
        state, known = states[unit], facts[unit]
        low, high = metric.bounds_of(state)
        interval = metric.interval_of(state, 0.95)
        value = metric.of(state)
        scalar = isinstance(value, float)
        out.append({
            "metric": name,
            "value": value,
            # only a histogram has something to certify; counts and sums are exact as they stand
            "bound_low": low if scalar and "off_grid" in known else None,
            "bound_high": high if scalar and "off_grid" in known else None,
            "interval_low": interval.low if interval.reason is None else math.nan,
            "interval_high": interval.high if interval.reason is None else math.nan,
            "rows": known.get("rows"),
            "weight": float(known["weight"]) if "weight" in known else None,
            "positives": known.get("positives"),
            "reason": metric.reason_of(state),
        })  # fmt: skip
    return out
