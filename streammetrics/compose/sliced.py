"""Anything that holds states, by slice: an axis of keys before those there are, exact totals and roll-ups."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ..collect.collection import MetricCollection
from ..collect.feed import Read
from ..collect.holder import Holder, kinds
from ..collect.metric import Metric, badness, record
from ..collect.scalars import Named, prefixed
from ..collect.table import Table
from ..collect.task import Metrics
from ..columns.columns import Batch
from ..columns.keys import plain_key
from ..numerics.keys import decode_key, encode_key, fixed_hash, sort_key
from ..state.axes import EXPIRED, OTHER, Axis
from ..state.policy import settled
from ..state.state import State

__all__ = ["Sliced"]

MEMORY_LIMIT = 4 << 30
COUNTS = ("rows", "weight", "positives")
REST: tuple[Any, ...] = ()
"""What stands, among keys, for all that a limit does not keep: no key is without columns."""
Ints = NDArray[np.int64]


class Sliced(Holder):
    """A metric, a collection, or slices again, for every value of some columns.

    Parameters
    ----------
    metric : metric, Task, MetricCollection, Sliced, or list or dict of metrics
        What to compute in every slice.
    by : str or sequence of str
        The slicing columns; several make their cross. Keys are integers, strings, bytes, booleans, dates, timestamps or
        decimals; null is a slice of its own.
    limit : int, optional
        Keep at most so many slices: those whose key has the smallest fixed hash, whatever the order of rows. The others
        are merged, exactly, into `other`. In slices of slices it acts within each slice above.
    values : list, optional
        Keys that are always kept, beyond the limit.
    memory_limit : int
        Raise MemoryLimitError rather than take more bytes than this.
    on_invalid : {"raise", "drop"}
        Whether a bad row raises, or is left out and counted.

    Notes
    -----
    A slice costs what its rows touch: a histogram holds the buckets that occur, 5 to 8 bytes each; sums take 100 bytes.

    Examples
    --------
    >>> import streammetrics as sm
    >>> arms = sm.Sliced(sm.AUC(), by="variant")
    >>> arms.update([0, 1, 0, 1], [0.1, 0.9, 0.6, 0.4], variant=["A", "A", "B", "B"]).compute()
    {'A': 1.0, 'B': 0.0}
    >>> arms.total.compute()
    0.75
    """

    sort = "sliced"

    def __init__(
        self,
        metric: Metrics,
        *,
        by: str | Iterable[str],
        limit: int | None = None,
        values: Iterable[Any] = (),
        memory_limit: int = MEMORY_LIMIT,
        on_invalid: str | None = None,
    ) -> None:
        names = (by,) if isinstance(by, str) else tuple(by)
        if not names or len(set(names)) != len(names) or not all(isinstance(n, str) for n in names):
            raise ValueError(f"by= takes one or more different column names, not {names!r}")
        if limit is not None and (type(limit) is not int or limit < 0):
            raise ValueError(f"limit must be a number of slices, not {limit!r}")
        if isinstance(values, (str, bytes)):
            raise TypeError(f"values= takes a list of keys, not {values!r}")
        pinned = {plain_key(v, names) for v in values} if limit is not None else set()  # without a limit all are kept
        inner = metric if isinstance(metric, Holder) else MetricCollection(metric)
        self._take(inner.blank(), Axis(names, "key", 0, limit, tuple(sorted(pinned, key=sort_key))))
        self.memory_limit = memory_limit
        self.on_invalid = on_invalid or str(getattr(metric, "on_invalid", "raise"))

    def _take(self, inner: Any, axis: Axis) -> None:
        self.inner, self.axis = inner, axis

    @classmethod
    def _of(cls, inner: Any, axis: Axis, memory_limit: int | None = MEMORY_LIMIT, on_invalid: str = "raise") -> Self:
        new = cls.__new__(cls)
        new._take(inner, axis)
        new.memory_limit, new.on_invalid = memory_limit, on_invalid
        return new

    def _like(self, axis: Axis | None = None, inner: Any = None) -> Self:
        """Make slices of other settings that have seen nothing."""
        return self._of((inner or self.inner).blank(), axis or self.axis, self.memory_limit, self.on_invalid)

    # -- what it is ---------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The name in a collection."""
        return f"{self.inner.name} by {', '.join(self.axis.names)}"

    @property
    def by(self) -> tuple[str, ...]:
        """The slicing columns."""
        return self.axis.names

    def reads(self) -> tuple[Read, ...]:
        return self._reads

    @cached_property
    def _reads(self) -> tuple[Read, ...]:
        return tuple(r._replace(state=r.state.empty((self.axis, *r.state.axes))) for r in self.inner.reads())

    def blank(self) -> Self:
        return self._like()

    def recipe(self) -> Callable[[], Holder]:
        return partial(type(self)._of, self.inner.blank(), self.axis, self.memory_limit, self.on_invalid)

    def by_position(self) -> tuple[str, ...]:
        made: tuple[str, ...] = self.inner.by_position()
        return made

    def header(self) -> dict[str, Any]:
        limited = {} if self.axis.limit is None else {"limit": self.axis.limit}
        pinned = {"pinned": [encode_key(k) for k in self.axis.pinned]} if self.axis.pinned else {}
        return {"kind": "sliced", "inner": self.inner.header(), "by": list(self.by), **limited, **pinned}

    @classmethod
    def of_header(cls, header: dict[str, Any], states: Sequence[State]) -> Any:
        inner = kinds[header["inner"]["kind"]](header["inner"], [s.empty(s.axes[1:]) for s in states])
        pinned = tuple(decode_key(k) for k in header.get("pinned", []))
        return cls._of(inner, Axis(tuple(header["by"]), "key", 0, header.get("limit"), pinned))

    def differences(self, other: Any) -> list[str]:
        found = [f"by is {self.by} here and {other.by} there"] if self.by != other.by else []
        if self.axis.limit != other.axis.limit:
            found.append(f"limit is {self.axis.limit} here and {other.axis.limit} there")
        if self.axis.pinned != other.axis.pinned:
            found.append("values differ")
        if self.inner.sort != other.inner.sort:
            return [*found, f"it holds a {other.inner.sort}, this one a {self.inner.sort}"]
        return found + list(self.inner.differences(other.inner))

    def coarser(self, bits: int) -> Self:
        inner = self.inner
        return self._like(
            inner=inner.coarser(bits) if not isinstance(inner, Metric) or "bits" in inner.settings else inner
        )

    def closing(self, parts: int | None = None) -> Self:
        return self._like(inner=self.inner.closing(parts))

    def split(self, parts: int) -> list[Self]:
        """Return the slices in so many parts: which one a key is in depends on its fixed hash alone.

        Merged, they are the whole again, and parts of one number, made anywhere, have the same keys.

        Parameters
        ----------
        parts : int
            How many. What a limit did not keep is in the first.

        Examples
        --------
        >>> import streammetrics as sm
        >>> arms = sm.Sliced(sm.CTR(), by="variant").update(y_true=[0, 1, 1], variant=["A", "A", "B"])
        >>> sm.merge(arms.split(2)) == arms
        True
        """
        states = self.states
        found: list[list[list[Ints]]] = [[[] for _ in states] for _ in range(parts)]
        for key, places in self._places(states).items():
            for i, at in enumerate(places):
                found[0 if key == REST else fixed_hash(key) % parts][i].append(at)
        none = np.zeros(0, np.int64)
        chosen = [[np.sort(np.concatenate([none, *at])) for at in some] for some in found]
        return [self.holding([s.select(at) for s, at in zip(states, some, strict=True)]) for some in chosen]

    def absorb(self, batch: Batch) -> Self:
        """Count a batch whose columns other collections may share."""
        self.feed.count_batch(batch)
        return self

    # -- results of states --------------------------------------------------------------------------------------------

    def _places(self, states: Sequence[State]) -> dict[Any, list[Ints]]:
        """The front cells of each key, one array for each state; keys sorted, marks left out but for OTHER."""
        kept: dict[Any, Any] = states[0].__dict__.setdefault("_places", {})  # goes with the state, which never changes
        asked = (len(self.by), *map(id, states[1:]))
        if asked not in kept:
            kept[asked] = states[1:], self._found(states)  # no other state can have their ids meanwhile
        return dict(kept[asked][1])  # which callers take from

    def _found(self, states: Sequence[State]) -> dict[Any, list[Ints]]:
        width, none = len(self.by), np.zeros(0, np.int64)
        found: dict[tuple[Any, ...], list[Ints]] = {}
        first = 0  # how many keys the first state has
        names: list[tuple[Any, ...]] = []
        pieces: list[Ints] = []
        for i, state in enumerate(states):
            if not i or not _alike(states[i - 1], state):
                keys = state.cells.keys[:, :width]
                starts = np.flatnonzero(np.r_[len(keys) > 0, (keys[1:] != keys[:-1]).any(axis=1)][: len(keys)])
                ends, places = np.append(starts[1:], len(keys))[: len(starts)], np.arange(len(keys))
                names = self._spelled(state, keys[starts])
                pieces = [places[a:b] for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]
            for key, piece in zip(names, pieces, strict=True):
                if key not in found:
                    found[key] = [none] * len(states)
                found[key][i] = piece
            first = first or len(found)
        if len(found) > first:
            return {k: found[k] for k in sorted(found, key=_in_order)}
        if REST in found:  # cells are in the order of keys, marks before all
            found[REST] = found.pop(REST)
        return found

    def _spelled(self, state: State, keys: Ints) -> list[tuple[Any, ...]]:
        """Keys as users write them; REST for what a limit does not keep."""
        columns = []
        for i in range(keys.shape[1]):
            words = state.cells.words[i]
            columns.append([words.key(rank) if rank >= -1 else rank for rank in keys[:, i].tolist()])
        return [
            REST if first in (OTHER, EXPIRED) else k
            for k, first in zip(zip(*columns, strict=True), keys[:, 0].tolist(), strict=True)
        ]

    def _under(self, states: Sequence[State], places: Sequence[Ints]) -> list[State]:
        """The states of one slice, as what is in it holds them."""
        return [s.under(p, 1) for s, p in zip(states, places, strict=True)]

    def _by_key(self, states: Sequence[State], how: Callable[[Sequence[State]], Any]) -> dict[Any, Any]:
        places = self._places(states)
        return {_plain(k): how(self._under(states, p)) for k, p in places.items() if k != REST}

    def _cells(self, states: Sequence[State], how: str, only: str | None = None) -> dict[Any, list[Any]] | None:
        """Results of all slices at once, by metric, or of one metric; None where slices hold slices."""
        inner = self.inner
        if isinstance(inner, Metric):
            entries = {"": (inner, states[0])}
        elif isinstance(inner, MetricCollection) and all(
            isinstance(e.thing, Metric) for e in inner._plan.entries.values()
        ):
            entries = {n: (e.thing, states[e.units[0]]) for n, e in inner._plan.entries.items()}
        else:
            return None
        if any(len(s.axes) != 1 for _, s in entries.values()):
            return None
        return {n: getattr(m, how)(s) for n, (m, s) in entries.items() if only is None or n in ("", only)}

    def _all(self, states: Sequence[State], how: str, one: Callable[[Sequence[State]], Any]) -> dict[Any, Any]:
        found = self._cells(states, how)
        places = self._places(states)
        if found is None or any(len(p) != 1 for ps in places.values() for p in ps):
            return self._by_key(states, one)
        numbers = {k: int(ps[0][0]) for k, ps in places.items() if k != REST}
        if isinstance(self.inner, Metric):
            return {_plain(k): found[""][i] for k, i in numbers.items()}
        return {_plain(k): {n: v[i] for n, v in found.items()} for k, i in numbers.items()}

    def value(self, states: Sequence[State]) -> dict[Any, Any]:
        return self._all(states, "of_cells", self.inner.value)

    def numbers(self, value: Any) -> Named:
        for key, found in value.items():
            yield from prefixed(key, self.inner.numbers(found))

    def limits(self, states: Sequence[State]) -> dict[Any, Any]:
        return self._all(states, "limits_of_cells", self.inner.limits)

    def explained(self, states: Sequence[State]) -> dict[Any, Any]:
        return self._by_key(states, self.inner.explained)

    def records(self, states: Sequence[State]) -> list[dict[str, Any]]:
        return self._records(states, self._places(states))

    def _records(self, states: Sequence[State], places: dict[Any, list[Ints]]) -> list[dict[str, Any]]:
        out = []
        values, limits = (self._cells(states, how) for how in ("of_cells", "limits_of_cells"))
        for key, at in places.items():
            other = dict.fromkeys(self.by, "(other)") | {"other": True}
            named = other if key == REST else dict(zip(self.by, key, strict=True))
            under = self._under(states, at)
            if values is None or limits is None or any(len(a) != 1 for a in at):
                out += [named | r for r in self.inner.records(under)]
            else:
                out += [named | r for r in self._rows(under, values, limits, [int(a[0]) for a in at])]
        return out

    def _rows(self, under: list[State], values: Any, limits: Any, at: list[int]) -> list[dict[str, Any]]:
        """Rows of one slice, whose values were computed with those of all."""
        if isinstance(self.inner, Metric):
            return [record(self.inner, under[0], values[""][at[0]], limits[""][at[0]])]
        out = []
        for name, (metric, units) in self.inner._plan.entries.items():
            i = at[units[0]]
            out.append(record(metric, under[units[0]], values[name][i], limits[name][i]) | {"metric": name})
        return out

    # -- results ------------------------------------------------------------------------------------------------------

    @property
    def keys(self) -> list[Any]:
        """The keys kept, sorted: tuples if there are several columns."""
        return [_plain(k) for k in self._places(self.states) if k != REST]

    def __len__(self) -> int:
        return len(self.keys)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.keys)

    def __contains__(self, key: Any) -> bool:
        return self._at(self.states, key) is not None

    def _at(self, states: Sequence[State], key: Any) -> list[Ints] | None:
        """The front cells of a key in each state; None if there are none."""
        atoms = key if isinstance(key, tuple) else (key,)
        if len(atoms) != len(self.by):
            return None
        out = []
        for state in states:
            mask = np.ones(len(state), bool)
            for i, atom in enumerate(atoms):
                rank = state.cells.words[i].rank(atom)
                mask &= False if rank is None else state.cells.keys[:, i] == rank
            out.append(np.flatnonzero(mask))
        return out if any(len(o) for o in out) else None

    def __getitem__(self, key: Any) -> Any:
        states = self.states
        at = self._at(states, key)
        if at is None:
            raise KeyError(f"there is no slice {key!r}; there are {len(self)}, such as {self.keys[:5]}")
        return self._made(self._under(states, at))

    def _made(self, states: Sequence[State]) -> Any:
        made = self.inner.blank()
        made.feed.on_invalid = self.on_invalid
        made.feed.hold([s.present() for s in states])  # what only other slices have is absent here
        return made

    @property
    def other(self) -> Any:
        """What holds all rows whose key a limit did not keep."""
        states = self.states
        return self._made(self._under(states, [np.flatnonzero(s.cells.keys[:, 0] == OTHER) for s in states]))

    @property
    def left(self) -> float:
        """The share of all rows that is in `other`."""
        state = self.states[0]
        rows = state.rows_seen
        return float(rows[state.cells.keys[:, 0] == OTHER].sum() / rows.sum()) if rows.sum() else 0.0

    @property
    def total(self) -> Any:
        """What holds all rows: exactly what it would be without slices."""
        return self._made([settled(s.rollup(*s.axes[1:])) for s in self.states])

    def compute(self) -> dict[Any, Any]:
        """Return the value (or the values by name) of every slice by key."""
        return self.value(self.feed.states)

    def bounds(self) -> dict[Any, Any]:
        """Return certified limits of every slice by key."""
        return self.limits(self.feed.states)

    def explain(self) -> dict[Any, Any]:
        """Return every value with what is behind it, by key."""
        return self.explained(self.feed.states)

    def table(self, *, other: bool = True, sort: str | None = None, min_rows: int = 0) -> Table:
        """Return a row for every slice and metric; `other` comes last, where there is one.

        Parameters
        ----------
        other : bool
            Whether `other` is shown.
        sort : str, optional
            By key unless this names a metric, worst slices first ("calibration": farthest from 1 as a ratio; of several
            tasks the worst, if it does not say which), or "rows", "weight" or "positives", most first.
        min_rows : int
            Leave out slices of fewer rows, whose values are chance.
        """
        return Table(self.levels, self.shown(other=other, sort=sort, min_rows=min_rows))

    def shown(
        self, *, other: bool = True, sort: str | None = None, min_rows: int = 0, top: int | None = None
    ) -> list[dict[str, Any]]:
        """Return the rows of `table`, each with the rows left out by reason ("dropped").

        Parameters
        ----------
        other, sort, min_rows
            As for `table`.
        top : int, optional
            Keep so many slices: the first, or, where nothing else is asked for, those with most rows. `other` is kept.
        """
        states = self.feed.states
        places = self._places(states)
        rest = places.pop(REST, None)
        if top is not None and len(places) > top and sort is None and not min_rows:
            most = set(list(self._ordered(states, places, "rows", 0))[:top])
            places = {k: at for k, at in places.items() if k in most}
        places = self._ordered(states, places, sort, min_rows)
        places = dict(list(places.items())[:top])
        if other and self.axis.limit is not None:
            places[REST] = rest or [np.zeros(0, np.int64)] * len(states)
        return self._records(states, places)

    @property
    def levels(self) -> tuple[str, ...]:
        """The slicing columns, of slices in slices the outermost first."""
        return tuple(dict.fromkeys(n for r in self.reads() for a in r.state.axes for n in a.names))

    def _ordered(self, states: Sequence[State], places: Any, sort: str | None, min_rows: int) -> dict[Any, list[Ints]]:
        """The keys that have so many rows, as `table` orders them; slices without a value come last."""
        known = {self.inner.name: self.inner} if isinstance(self.inner, Metric) else {}
        if isinstance(self.inner, MetricCollection):
            known = {n: e.thing for n, e in self.inner._plan.entries.items()}
        asked = (
            []
            if sort in COUNTS
            else [n for n in known if n == sort] or [n for n in known if n.rpartition("/")[2] == sort]
        )
        if sort is not None and not asked and sort not in COUNTS:
            raise ValueError(f"sort= takes rows, weight, positives or one of {', '.join(known)}, not {sort!r}")
        if any(getattr(known[n], "best", None) is None for n in asked):
            raise ValueError(f"sort={sort!r}: nothing says which values of {sort} are better")
        if sort is None and not min_rows:
            return dict(places)
        if sort in (None, "rows"):
            rows_of = {k: int(states[0].rows_seen[at[0]].sum()) for k, at in places.items()}
            many = [k for k, n in rows_of.items() if n >= min_rows]
            return {k: places[k] for k in (many if sort is None else sorted(many, key=lambda k: -rows_of[k]))}
        faults: dict[Any, float] = {}
        for name in asked or [sort]:
            for key, rows, value in self._graded(states, places, name, known):
                if rows >= min_rows:
                    fault = badness(known[name], value) if asked else float(value or 0)
                    worst = math.inf if fault != fault else -fault
                    faults[key] = min(faults.get(key, math.inf), worst)  # of several models the worst
        return {k: places[k] for k in sorted(faults, key=faults.__getitem__)}

    def _graded(
        self, states: Sequence[State], places: Any, sort: str, known: dict[str, Any]
    ) -> Iterator[tuple[Any, int, Any]]:
        """Yield each key, its rows, and what it is sorted by: a metric of all keys at once, where that can be."""
        found = self._cells(states, "of_cells", sort) if sort in known else None
        if found is None or any(len(p) != 1 for ps in places.values() for p in ps):
            for key, at in places.items():
                rows = self.inner.records(self._under(states, at))
                row = next((r for r in rows if r["metric"] == sort), rows[0])
                yield key, row["rows"] or 0, row["value"] if sort in known else row.get(sort)
            return
        unit = 0 if isinstance(self.inner, Metric) else self.inner._plan.entries[sort].units[0]
        (values,), seen = found.values(), states[unit].rows_seen.tolist()
        for key, at in places.items():
            yield key, seen[int(at[unit][0])], values[int(at[unit][0])]

    def only(self, names: Iterable[str]) -> Self:
        """Return the slices of a collection of some of its metrics, with what they have seen."""
        if not isinstance(self.inner, MetricCollection):
            raise TypeError(f"only() is for slices of a collection, not of {self.inner.name}")
        new = self._like(inner=self.inner.only(names))
        ours, theirs, held = self.inner._plan.entries, new.inner._plan.entries, [r.state for r in new.reads()]
        states = self.states
        for name, entry in theirs.items():
            for unit, old in zip(entry.units, ours[name].units, strict=True):
                held[unit] = states[old].narrow(held[unit])
        new.feed.hold(held)
        return new

    def select(self, keys: Iterable[Any] | Callable[[Any], bool]) -> Self:
        """Return the slices of these keys, or those for which a function of the key is true; without `other`."""
        states = self.states
        places = self._places(states)
        places.pop(REST, None)
        chosen = set(filter(keys, map(_plain, places))) if callable(keys) else set(keys)
        some = [at for k, at in places.items() if _plain(k) in chosen]
        new = self._like(self.axis._replace(limit=None, pinned=()))
        held = []
        for i, state in enumerate(states):
            index = np.sort(np.concatenate([np.zeros(0, np.int64), *(at[i] for at in some)]))
            kept = state.select(index)
            held.append(kept.holding(replace(kept.cells, axes=(new.axis, *state.axes[1:]))))
        new.feed.hold(held)
        return new

    def top(self, n: int, by: str = "rows") -> Self:
        """Return the n slices with the most "rows", "weight" or "positives", or the highest value of a metric."""
        states, found = self.states, {}
        places = self._places(states)
        places.pop(REST, None)
        for key, at in places.items():
            rows = self.inner.records(self._under(states, at))
            if by not in COUNTS and by not in [r["metric"] for r in rows]:
                raise ValueError(f'top(by=) takes "rows", "weight", "positives" or a metric, not {by!r}')
            value = rows[0][by] if by in COUNTS else next(r["value"] for r in rows if r["metric"] == by)
            if value is not None and value == value:
                found[key] = value
        return self.select([_plain(k) for k in sorted(found, key=lambda k: (-found[k], sort_key(k)))[:n]])

    def rollup(self, by: str | Iterable[str]) -> Self:
        """Return the slices by fewer columns: exactly what slicing by those alone would have made.

        Notes
        -----
        With a limit, rows in `other` have no key left to roll up by, and stay in `other`.
        """
        names = (by,) if isinstance(by, str) else tuple(by)
        if not names or not set(names) <= set(self.by):
            raise ValueError(f"roll up by some of {', '.join(self.by)}, not {by!r}")
        new = self._like(self.axis._replace(names=names, pinned=self.axis.pinned if names == self.by else ()))
        width = len(self.by)
        kept = [self.by.index(n) for n in names]
        held = []
        for state in self.states:
            columns = [*kept, *range(width, state.cells.keys.shape[1])]
            words = tuple(state.cells.words[i] for i in columns)
            keys = np.ascontiguousarray(state.cells.keys[:, columns])
            held.append(settled(state.moved(keys, (new.axis, *state.axes[1:]), words)))
        new.feed.hold(held)
        return new

    def __repr__(self) -> str:
        inner = self.inner
        metrics = inner.name if isinstance(inner, Metric) else ", ".join(getattr(inner, "names", [inner.name]))
        limit = f", limit={self.axis.limit}" if self.axis.limit is not None else ""
        return f"Sliced({metrics}; by={', '.join(self.by)}{limit}): {len(self)} slices, {self.nbytes / 2**20:.1f} MiB"


def _plain(key: tuple[Any, ...]) -> Any:
    return key[0] if len(key) == 1 else key


def _alike(a: State, b: State) -> bool:
    """Whether two states have cells of the same keys."""
    words = zip(a.cells.words, b.cells.words, strict=True)
    return np.array_equal(a.cells.keys, b.cells.keys) and all(x.kind == y.kind and x.same(y) for x, y in words)


def _in_order(key: tuple[Any, ...]) -> tuple[Any, ...]:
    return (1, ()) if key == REST else (0, sort_key(key))
