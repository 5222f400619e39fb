"""What has one axis in front: cells told apart by it, each of which answers as what is behind it would."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from ..collect.collection import MetricCollection
from ..collect.feed import Read
from ..collect.holder import Holder, Reader, blank_of, states_of
from ..collect.metric import record
from ..collect.parted import Parted
from ..collect.reading import CellReadings, known_reading
from ..collect.sample import Sample
from ..collect.scalars import Named, prefixed
from ..collect.table import check_levels
from ..collect.task import Metrics, agreed
from ..collect.wide_bounds import WideValue, together, warn, wide_of_cells
from ..columns.columns import Batch
from ..errors import MemoryLimitError
from ..numerics.keys import sort_key
from ..state.axes import EPOCHS, EXPIRED, OTHER, Axis
from ..state.declare import Flat
from ..state.policy import settled
from ..state.state import State

__all__ = ["REST", "Front", "check_dense", "plain"]

REST: tuple[Any, ...] = ()
"""What stands, among keys, for all that is not kept: no key is without columns."""
Ints = NDArray[np.int64]


class Front(Parted):
    """A metric, a collection, or anything else that holds states, in every cell of an axis in front."""

    operational: ClassVar[tuple[str, ...]] = ("memory_limit", "on_invalid")
    """What is set when it is made, and is no part of what it is."""

    rest: ClassVar[str] = "(other)"
    """How tables call what is not kept."""

    noun: ClassVar[str] = "slice"

    inner: Any
    axis: Axis
    on_invalid: str = "raise"

    def _take(self, inner: Any, axis: Axis, **operational: Any) -> None:
        self.inner, self.axis = inner, axis
        self.__dict__.update(operational)

    def _holding(self, metric: Metrics, on_invalid: str | None) -> tuple[Any, str]:
        """What is behind the axis, and what becomes of bad rows."""
        held = isinstance(metric, Holder)
        inner = self._checked(metric if held else MetricCollection(metric, on_invalid=on_invalid)).blank()
        return inner, agreed(on_invalid, [inner])

    @classmethod
    def _checked(cls, inner: Any) -> Any:
        """What is to be behind the axis, if it may be there."""
        if not (inner.adds and inner.counts):
            raise TypeError(f"a {cls.__name__} holds metrics, collections and slices, not a {type(inner).__name__}")
        return inner

    @classmethod
    def _of(cls, inner: Any, axis: Axis, operational: dict[str, Any] | None = None) -> Self:
        new = cls.__new__(cls)
        new._take(inner, axis, **(operational or {}))
        return new

    def _like(self, axis: Axis | None = None, inner: Any = None) -> Self:
        """Make one of other settings that has seen nothing."""
        # of slices that have seen nothing there are none, so they are false
        behind = self.inner if inner is None else inner
        return self._of(behind.blank(), self.axis if axis is None else axis, self._given())

    def _given(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.operational}

    # -- what it is ---------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The name in a collection."""
        raise NotImplementedError

    def reads(self) -> tuple[Read, ...]:
        return self._reads

    @cached_property
    def _reads(self) -> tuple[Read, ...]:
        return tuple(map(self._fronted, self.inner.reads()))

    def _fronted(self, read: Read) -> Read:
        """What is read behind the axis, with it."""
        known = {name for axis in read.state.axes if axis.kind == "key" for name in axis.names}
        if self.axis in read.state.axes or (self.axis.kind == "key" and known & set(self.axis.names)):
            raise ValueError(f"{', '.join(self.axis.names)}: what is behind tells rows apart by this already")
        return read._replace(state=read.state.empty((self.axis, *read.state.axes)))

    def blank(self) -> Self:
        return self._like()

    def recipe(self) -> Callable[[], Holder]:
        return partial(type(self)._of, self.inner.blank(), self.axis, self._given())

    def check_states(self, states: Sequence[State]) -> None:
        self.inner.check_states(states)

    def by_position(self) -> tuple[str, ...]:
        made: tuple[str, ...] = self.inner.by_position()
        return made

    @property
    def levels(self) -> tuple[str, ...]:  # type: ignore[override]
        """The columns that tell cells apart, the outermost first."""
        return tuple(dict.fromkeys((*self.axis.names, *self.inner.levels)))

    def coarser(self, bits: int) -> Self:
        return self._like(inner=self.inner.coarser_within(bits))

    def closing(self, parts: int | None = None) -> Self:
        return self._like(inner=self.inner.closing(parts))

    def absorb(self, batch: Batch) -> Self:
        """Count a batch whose columns other collections may share."""
        self.feed.count_batch(batch)
        return self

    @classmethod
    def _inner_of(cls, header: dict[str, Any], states: Sequence[State]) -> Any:
        """What a header says is behind the axis in front."""
        return cls._checked(blank_of(header["inner"], [s.empty(s.axes[1:]) for s in states]))

    @classmethod
    def state_count(cls, header: dict[str, Any]) -> int:
        return states_of(header["inner"])

    def brought_down(self, new: Any, states: Sequence[State], bits: int) -> list[State]:
        made: list[State] = self.inner.brought_down(new.inner, states, bits)
        return made

    def sources(self, new: Any) -> list[int]:
        found: list[int] = self.inner.sources(new.inner)
        return found

    def _unlike_inside(self, other: Any) -> list[str]:
        """Say how what is behind the axis of another one differs."""
        if self.inner.sort != other.inner.sort:
            return [f"it holds a {other.inner.sort}, this one a {self.inner.sort}"]
        return list(self.inner.differences(other.inner))

    def chosen(self, names: Mapping[str, str]) -> tuple[Self, list[int]]:
        inner, units = self.inner.chosen(names)
        return self._like(inner=inner), units

    @property
    def names(self) -> list[str]:
        """The names of the metrics of every cell."""
        found: list[str] = getattr(self.inner, "names", [self.inner.name])
        return found

    # -- results of states --------------------------------------------------------------------------------------------

    def _places(self, states: Sequence[State]) -> dict[Any, list[Ints]]:
        """The front cells of each key, one array for each state; keys sorted, marks left out but for OTHER."""
        kept: dict[Any, Any] = states[0].__dict__.setdefault("_places", {})  # goes with the state, which never changes
        asked = (type(self), len(self.axis.names), *map(id, states[1:]))  # each spells keys its way
        if asked not in kept:
            kept[asked] = states[1:], self._found(states)  # no other state can have their ids meanwhile
        return dict(kept[asked][1])  # which callers take from

    def _found(self, states: Sequence[State]) -> dict[Any, list[Ints]]:
        width, none = len(self.axis.names), np.zeros(0, np.int64)
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
        """Keys as users write them; REST for what is not kept."""
        columns = []
        for i in range(keys.shape[1]):
            words = state.cells.words[i]
            columns.append([words.key(rank) if rank >= -1 else rank for rank in keys[:, i].tolist()])
        return [
            REST if first in (OTHER, EXPIRED) else k
            for k, first in zip(zip(*columns, strict=True), keys[:, 0].tolist(), strict=True)
        ]

    def _under(self, states: Sequence[State], places: Sequence[Ints]) -> list[State]:
        """The states of one cell, as what is in it holds them."""
        return [s.under(p, 1) for s, p in zip(states, places, strict=True)]

    def _by_key(self, states: Sequence[State], how: Callable[[Sequence[State]], Any]) -> dict[Any, Any]:
        places = self._places(states)
        return {plain(k): how(self._under(states, p)) for k, p in places.items() if k != REST}

    def _cells(self, states: Sequence[State], readers: dict[str, Reader]) -> dict[str, CellReadings]:
        """What each metric says about all cells."""
        return {n: CellReadings(r.metric, states[r.unit]) for n, r in readers.items()}

    def _readers(self, states: Sequence[State]) -> dict[str, Reader] | None:
        """The metrics by name, if they have one cell for each key: then they are read of all at once."""
        readers = self.inner.readers()
        if readers is None or any(len(states[r.unit].axes) != 1 for r in readers.values()):
            return None
        units = {r.unit for r in readers.values()}
        alone = all(len(at[u]) == 1 for at in self._places(states).values() for u in units)
        return readers if alone else None

    def _laid_out(
        self, states: Sequence[State], readers: dict[str, Reader], found: dict[str, list[Any]]
    ) -> dict[Any, Any]:
        """What was found of all cells, by key and, of several metrics, by name."""
        places = {k: at for k, at in self._places(states).items() if k != REST}
        if self.inner.single:
            ((name, reader),) = readers.items()
            return {plain(k): found[name][int(at[reader.unit][0])] for k, at in places.items()}
        units = {n: r.unit for n, r in readers.items()}
        return {plain(k): {n: found[n][int(at[u][0])] for n, u in units.items()} for k, at in places.items()}

    def _all(self, states: Sequence[State], what: str, one: Callable[[Sequence[State]], Any]) -> dict[Any, Any]:
        readers = self._readers(states)
        if readers is None:
            return self._by_key(states, one)
        found = {n: getattr(cells, what) for n, cells in self._cells(states, readers).items()}
        return self._laid_out(states, readers, found)

    def value(self, states: Sequence[State]) -> dict[Any, Any]:
        return self._all(states, "values", self.inner.value)

    def value_with_wide(self, states: Sequence[State]) -> tuple[dict[Any, Any], list[WideValue]]:
        readers, wide = self._readers(states), list[WideValue]()
        if readers is None:
            values = {}
            for key, at in self._places(states).items():
                if key != REST:
                    values[plain(key)], found = self.inner.value_with_wide(self._under(states, at))
                    wide += found
            return values, together(wide)
        of_cells = {}
        for name, cells in self._cells(states, readers).items():
            of_cells[name] = cells.values
            wide += wide_of_cells(name, cells)
        return self._laid_out(states, readers, of_cells), wide

    def numbers(self, value: Any) -> Named:
        for key, found in value.items():
            yield from prefixed(key, self.inner.numbers(found))

    def limits(self, states: Sequence[State]) -> dict[Any, Any]:
        return self._all(states, "bounds", self.inner.limits)

    def explained(self, states: Sequence[State]) -> dict[Any, Any]:
        return self._by_key(states, self.inner.explained)

    def samples(self, states: Sequence[State]) -> list[Sample]:
        found: list[Sample] = self.inner.samples(states)
        return found  # of which slices and windows the cells are, their keys say

    def chances(self, states: Sequence[State], confidence: float, method: str | None) -> dict[Any, Any]:
        readers = self._readers(states)
        found = self.inner.chances_of_cells(states, confidence) if readers and method is None else None
        if readers is None or found is None:
            return self._by_key(states, lambda under: self.inner.chances(under, confidence, method))
        return self._laid_out(states, readers, found)

    def records(self, states: Sequence[State], confidence: float | None = 0.95) -> list[dict[str, Any]]:
        return self._records(states, self._places(states), confidence)

    def _records(
        self, states: Sequence[State], places: dict[Any, list[Ints]], confidence: float | None
    ) -> list[dict[str, Any]]:
        check_levels(self.axis.names)
        readers = self._readers(states) or {}
        cells = self._cells(states, readers)
        values, bounds = {n: c.values for n, c in cells.items()}, {n: c.bounds for n, c in cells.items()}
        chances = {} if confidence is None or not readers else self._chances(states, cells, confidence)
        out = []
        for key, at in places.items():
            at_once = readers and all(len(at[r.unit]) for r in readers.values())  # not where a limit left nothing over
            if at_once:
                rows = self._rows(readers, states, (values, bounds, chances), at)
            else:
                rows = self.inner.records(self._under(states, at), confidence)
            out += [self._named(key) | row for row in rows]
        return out

    def _chances(
        self, states: Sequence[State], cells: dict[str, CellReadings], confidence: float
    ) -> dict[str, list[Any]]:
        """The statistical interval of every cell, by metric."""
        found = self.inner.chances_of_cells(states, confidence)
        return {n: c.intervals(confidence) for n, c in cells.items()} if found is None else found

    def _named(self, key: tuple[Any, ...]) -> dict[str, Any]:
        """What the rows of a cell have in the columns of the axis."""
        names = self.axis.names
        return dict.fromkeys(names, self.rest) | {"other": True} if key == REST else dict(zip(names, key, strict=True))

    def _rows(
        self, readers: dict[str, Reader], states: Sequence[State], found: tuple[Any, Any, Any], at: Sequence[Ints]
    ) -> list[dict[str, Any]]:
        """Rows of one cell, whose values, certified limits and intervals were found with those of all."""
        values, bounds, chances = found
        under = {u: states[u].under(at[u], 1) for u in {r.unit for r in readers.values()}}
        out = []
        for name, (metric, unit, _) in readers.items():
            i = int(at[unit][0])
            one = chances[name][i] if name in chances else None
            of_metric = record(metric, known_reading(metric, under[unit], values[name][i], bounds[name][i]), one)
            out.append(of_metric | {"metric": name, "unit": self.inner.unit})
        return out

    # -- results ------------------------------------------------------------------------------------------------------

    @property
    def keys(self) -> list[Any]:
        """The keys kept, sorted: tuples if there are several columns."""
        return [plain(k) for k in self._places(self.states) if k != REST]

    def __len__(self) -> int:
        return len(self.keys)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.keys)

    def __contains__(self, key: Any) -> bool:
        return self._at(self.states, key) is not None

    def _at(self, states: Sequence[State], key: Any) -> list[Ints] | None:
        """The front cells of a key in each state; None if there are none."""
        atoms = key if isinstance(key, tuple) else (key,)
        if len(atoms) != len(self.axis.names):
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
            raise KeyError(f"there is no {self.noun} {key!r}; there are {len(self)}, such as {self.keys[:5]}")
        return self._made(self._under(states, at))

    def _made(self, states: Sequence[State]) -> Any:
        made = self.inner.blank().heeding(self.on_invalid)
        made.feed.hold([s.present() for s in states])  # what only others have is absent here
        return made

    @property
    def total(self) -> Any:
        """What holds all rows: exactly what it would be without the axis."""
        return self._made([settled(s.rollup(*s.axes[1:])) for s in self.states])

    def across(self, *names: str) -> Self:
        """Return the same, what is told apart by some columns within added up: slices of windows as slices alone.

        Parameters
        ----------
        *names : str
            The columns of slices and windows within; others are ignored.
        """
        new = without(self, set(names))
        held = []
        for state, read in zip(self.states, new.reads(), strict=True):
            kept: list[int] = []
            at = 0
            for i, axis in enumerate(state.axes):
                if not i or axis.kind == "shard" or not set(axis.names) <= set(names):
                    kept += range(at, at + len(axis.names))
                at += len(axis.names)
            keys, words = state.cells.keys, state.cells.words
            kept += range(at, keys.shape[1])
            moved = np.ascontiguousarray(keys[:, np.array(kept)])
            held.append(settled(state.moved(moved, read.state.axes, tuple(words[i] for i in kept))))
        made: Self = new.holding(held)
        return made

    def compute(self) -> dict[Any, Any]:
        """Return the value (or the values by name) of every cell by key."""
        values, wide = self.value_with_wide(self.feed.states)
        warn(wide, self.warned_wide, stacklevel=2)
        return values

    def bounds(self) -> dict[Any, Any]:
        """Return certified limits of every cell by key."""
        return self.limits(self.feed.states)

    def explain(self) -> dict[Any, Any]:
        """Return every value with what is behind it, by key."""
        return self.explained(self.feed.states)


def without(thing: Any, names: set[str], first: bool = True) -> Any:
    """What would tell apart the same but for some columns within; it has seen nothing."""
    if not isinstance(thing, Front):
        return thing
    inner = without(thing.inner, names, False)
    return inner if not first and set(thing.axis.names) <= names else thing._like(inner=inner)


def plain(key: tuple[Any, ...]) -> Any:
    """A key as users write it: of one column, not as a tuple."""
    return key[0] if len(key) == 1 else key


def _alike(a: State, b: State) -> bool:
    """Whether two states have cells of the same keys."""
    words = zip(a.cells.words, b.cells.words, strict=True)
    return np.array_equal(a.cells.keys, b.cells.keys) and all(x.kind == y.kind and x.same(y) for x, y in words)


def _in_order(key: tuple[Any, ...]) -> tuple[Any, ...]:
    return (1, ()) if key == REST else (0, sort_key(key))


def check_dense(thing: Any) -> None:
    """Raise MemoryLimitError if what is dense is too large once all epochs that are kept, and all shards, have rows."""
    size = sum(_dense(r.state) for r in thing.reads())
    if thing.memory_limit is not None and size > thing.memory_limit:
        raise MemoryLimitError(
            f"{thing.name} would take {size:,} bytes once every window kept and every shard has rows; memory_limit "
            f"is {thing.memory_limit:,}: keep fewer, use fewer bins, classes or shards, or raise memory_limit"
        )


def _dense(state: State) -> int:
    """Bytes of what every cell of a state has, in all epochs that are kept and all shards; not of what is in them."""
    cells = 1
    for axis in state.axes:
        cells *= axis.size if axis.kind == "shard" else 1 + (axis.keep or 0) if axis.kind in EPOCHS else 1
    flats = [p for p in state.parts().values() if isinstance(p, Flat) and not p.optional]
    return cells * sum(p.empty(state, 1).nbytes for p in flats if state.behind is None or p.front)
