"""AxisWrapper: the base of slices, windows and the other wrappers that put one axis in front of a metric."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from ..collect.accumulator import accumulate, definition_of
from ..collect.collection import MetricCollection
from ..collect.definition import Definition, definition_of_header, number_of_states
from ..collect.metric_container import MetricContainer
from ..collect.metric_like import MetricLike
from ..collect.task import Metrics, agreed
from ..count.reads import MEMORY_LIMIT, Read
from ..errors import MemoryLimitError
from ..numerics.keys import sort_key
from ..reading.replicates import Sample
from ..state.axes import EPOCHS, EXPIRED, OTHER, Axis
from ..state.declare import Flat
from ..state.retention import settled
from ..state.state import State
from .cell_answers import REST, CellAnswers, Places, plain

__all__ = ["AxisDefinition", "AxisWrapper", "check_dense", "inner_of"]

Ints = NDArray[np.int64]


class AxisDefinition(Definition):
    """The definition of a metric, a collection or a wrapper in every cell of one more axis.

    A subclass sets `kind`, says how its `header` is written and read, and has a `name`.

    Parameters
    ----------
    inner : Definition
        What is in every cell.
    axis : Axis
        The axis that is put in front.
    on_invalid : {"raise", "drop"}
        Whether a bad row raises, or is left out and counted.
    memory_limit : int
        The bytes that cells may take.
    """

    rest: ClassVar[str] = "(other)"
    """The name of the row for everything that is not kept, in tables."""

    noun: ClassVar[str] = "slice"
    """The word for one cell, in messages."""

    def __init__(
        self, inner: Any, axis: Axis, on_invalid: str = "raise", memory_limit: int | None = MEMORY_LIMIT
    ) -> None:
        self.inner, self.axis = self.checked_inner(inner), axis
        self.on_invalid, self.memory_limit = on_invalid, memory_limit

    @classmethod
    def around(cls, metric: Metrics, axis: Axis, on_invalid: str | None, memory_limit: int | None) -> Self:
        """Return the definition around metrics as a user gives them, and check what it will take."""
        inner = inner_of(metric, on_invalid)
        made = cls(inner, axis, agreed(on_invalid, [inner]), memory_limit)
        check_dense(made)
        return made

    @classmethod
    def checked_inner(cls, inner: Any) -> Any:
        """Return what is to be in every cell; raise TypeError if it cannot be there."""
        if not (inner.adds and inner.counts):
            name = cls.public.__name__
            raise TypeError(f"a {name} holds metrics, collections and slices, not a {inner.type_name}")
        return inner

    def having(self, **parts: Any) -> Self:
        """Return the same definition with another `inner` or `axis`."""
        made = object.__new__(type(self))
        made.__dict__.update(self.__getstate__() | parts)
        return made

    # -- the settings -------------------------------------------------------------------------------------------------

    @property
    def names(self) -> list[str]:
        found: list[str] = self.inner.names
        return found

    @property
    def levels(self) -> tuple[str, ...]:  # type: ignore[override]
        return tuple(dict.fromkeys((*self.axis.names, *self.inner.levels)))

    @cached_property
    def reads(self) -> tuple[Read, ...]:
        return tuple(map(self.in_front, self.inner.reads))

    def in_front(self, read: Read) -> Read:
        """Return what is read in a cell with the axis in front."""
        known = {name for axis in read.state.axes if axis.kind == "key" for name in axis.names}
        if self.axis in read.state.axes or (self.axis.kind == "key" and known & set(self.axis.names)):
            raise ValueError(f"{', '.join(self.axis.names)}: what is behind tells rows apart by this already")
        return read._replace(state=read.state.empty((self.axis, *read.state.axes)))

    def positional_columns(self) -> tuple[str, ...]:
        found: tuple[str, ...] = self.inner.positional_columns()
        return found

    @classmethod
    def inner_of_header(cls, header: dict[str, Any], states: Sequence[State]) -> Any:
        """Return the definition of what a header says is in every cell."""
        return definition_of_header(header["inner"], [s.empty(s.axes[1:]) for s in states])

    @classmethod
    def number_of_states(cls, header: dict[str, Any]) -> int:
        return number_of_states(header["inner"])

    def differences(self, other: Any) -> list[str]:
        ours, theirs = self.header(), other.header()
        names = [name for name in dict.fromkeys([*ours, *theirs]) if name not in ("kind", "inner")]
        pairs = [(name, ours.get(name), theirs.get(name)) for name in names]
        return [f"{n} is {a!r} here and {b!r} there" for n, a, b in pairs if a != b] + self.inner_differences(other)

    def inner_differences(self, other: Any) -> list[str]:
        """Say how what is in the cells of another definition differs."""
        if self.inner.kind != other.inner.kind:
            return [f"it holds a {other.inner.kind}, this one a {self.inner.kind}"]
        return list(self.inner.differences(other.inner))

    # -- the answers --------------------------------------------------------------------------------------------------

    def read(self, states: Sequence[State]) -> Any:
        return CellAnswers(self, states)

    def samples(self, states: Sequence[State]) -> list[Sample]:
        found: list[Sample] = self.inner.samples(states)
        return found  # the keys of the cells say which slices and windows they are

    def check_states(self, states: Sequence[State]) -> None:
        self.inner.check_states(states)

    def places(self, states: Sequence[State]) -> Places:
        """Return the front cells of each key, an array for each state; keys sorted, `REST` last.

        Callers may change the dict.
        """
        # The state never changes, so it keeps them.
        kept: dict[Any, Any] = states[0].__dict__.setdefault("_places", {})
        # Every kind of wrapper spells keys in its way.
        asked = (type(self), len(self.axis.names), *map(id, states[1:]))
        if asked not in kept:
            # With the states, so that no other state can have their ids meanwhile.
            kept[asked] = states[1:], self.find_places(states)
        return dict(kept[asked][1])

    def find_places(self, states: Sequence[State]) -> Places:
        """Return what `places` keeps."""
        width, none = len(self.axis.names), np.zeros(0, np.int64)
        found: Places = {}
        first = 0  # how many keys the first state has
        names: list[tuple[Any, ...]] = []
        pieces: list[Ints] = []
        for i, state in enumerate(states):
            if not i or not _have_same_keys(states[i - 1], state):
                keys = state.cells.keys[:, :width]
                starts = np.flatnonzero(np.r_[len(keys) > 0, (keys[1:] != keys[:-1]).any(axis=1)][: len(keys)])
                ends, places = np.append(starts[1:], len(keys))[: len(starts)], np.arange(len(keys))
                names = _spelled(state, keys[starts])
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

    def place_of(self, states: Sequence[State], key: Any) -> list[Ints] | None:
        """Return the front cells of a key in each state; None if there are none."""
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

    # -- other definitions --------------------------------------------------------------------------------------------

    def selected(self, names: Mapping[str, str]) -> tuple[Self, list[int]]:
        inner, places = self.inner.selected(names)
        return self.having(inner=inner), places

    def sealed(self, parts: int | None = None) -> Self:
        return self.having(inner=self.inner.sealed(parts))

    def coarser(self, bits: int) -> Self:
        return self.having(inner=self.inner.coarser(bits) if self.inner.can_coarsen else self.inner)

    def coarsened(self, new: Any, states: Sequence[State], bits: int) -> list[State]:
        found: list[State] = self.inner.coarsened(new.inner, states, bits)
        return found

    def sources(self, new: Any) -> list[int]:
        found: list[int] = self.inner.sources(new.inner)
        return found


class AxisWrapper(MetricContainer):
    """A metric, a collection or a wrapper in every cell of one more axis; a mapping of keys to such objects."""

    @property
    def memory_limit(self) -> int | None:
        """The bytes that cells may take."""
        return self._accumulator.definition.memory_limit

    @property
    def inner(self) -> Any:
        """An empty copy of what is in every cell."""
        inner = definition_of(self).inner
        return inner.wrap(accumulate(inner))

    @property
    def keys(self) -> list[Any]:
        """The keys kept, sorted: tuples if there are several columns."""
        return [plain(k) for k in definition_of(self).places(self._accumulator.states) if k != REST]

    def __len__(self) -> int:
        return len(self.keys)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.keys)

    def __contains__(self, key: Any) -> bool:
        return definition_of(self).place_of(self._accumulator.states, key) is not None

    def __getitem__(self, key: Any) -> Any:
        definition, states = definition_of(self), self._accumulator.states
        at = definition.place_of(states, key)
        if at is None:
            raise KeyError(f"there is no {definition.noun} {key!r}; there are {len(self)}, such as {self.keys[:5]}")
        return object_of_cells(definition, [s.under(p, 1) for s, p in zip(states, at, strict=True)])

    @property
    def total(self) -> Any:
        """The object of all rows: exactly what it would be without the axis."""
        states = self._accumulator.states
        return object_of_cells(definition_of(self), [settled(s.rollup(*s.axes[1:])) for s in states])

    def across(self, *names: str) -> Self:
        """Return the same with some columns within added up: slices of windows become slices alone.

        Parameters
        ----------
        *names : str
            The columns of slices and windows within; others are ignored.
        """
        new = _without(definition_of(self), set(names))
        held = []
        for state, read in zip(self._accumulator.states, new.reads, strict=True):
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
        made: Self = new.wrap(accumulate(new, held))
        return made

    def _summary(self, cells: str) -> str:
        """Return what `repr` says about the cells and the memory."""
        return f"{len(self)} {cells}, {self._accumulator.nbytes / 2**20:.1f} MiB"


def inner_of(metric: Metrics, on_invalid: str | None) -> Any:
    """Return the definition of metrics as a user gives them; of several that of a collection."""
    made = metric if isinstance(metric, MetricLike) else MetricCollection(metric, on_invalid=on_invalid)
    return definition_of(made)


def object_of_cells(definition: AxisDefinition, states: Sequence[State]) -> Any:
    """Return the object of what is in the cells of an axis, with these states."""
    inner = definition.inner.with_on_invalid(definition.on_invalid)
    # What only other cells have is absent here.
    return inner.wrap(accumulate(inner, [s.present() for s in states]))


def _without(definition: Any, names: set[str], first: bool = True) -> Any:
    """Return the definition without the axes of some columns within."""
    if not isinstance(definition, AxisDefinition):
        return definition
    inner = _without(definition.inner, names, False)
    return inner if not first and set(definition.axis.names) <= names else definition.having(inner=inner)


def _spelled(state: State, keys: Ints) -> list[tuple[Any, ...]]:
    """Return keys as users write them; `REST` for what is not kept."""
    columns = []
    for i in range(keys.shape[1]):
        words = state.cells.words[i]
        columns.append([words.key(rank) if rank >= -1 else rank for rank in keys[:, i].tolist()])
    return [
        REST if first in (OTHER, EXPIRED) else k
        for k, first in zip(zip(*columns, strict=True), keys[:, 0].tolist(), strict=True)
    ]


def _have_same_keys(a: State, b: State) -> bool:
    """Return whether two states have cells of the same keys."""
    words = zip(a.cells.words, b.cells.words, strict=True)
    return np.array_equal(a.cells.keys, b.cells.keys) and all(x.kind == y.kind and x.same(y) for x, y in words)


def _in_order(key: tuple[Any, ...]) -> tuple[Any, ...]:
    return (1, ()) if key == REST else (0, sort_key(key))


def check_dense(definition: Any) -> None:
    """Raise MemoryLimitError if the dense parts are too large once all epochs that are kept, and all shards, have rows."""
    size = sum(_dense(r.state) for r in definition.reads)
    if definition.memory_limit is not None and size > definition.memory_limit:
        raise MemoryLimitError(
            f"{definition.name} would take {size:,} bytes once every window kept and every shard has rows; memory_limit "
            f"is {definition.memory_limit:,}: keep fewer, use fewer bins, classes or shards, or raise memory_limit"
        )


def _dense(state: State) -> int:
    """Return the bytes of the parts that every cell has, in all epochs that are kept and all shards."""
    cells = 1
    for axis in state.axes:
        cells *= axis.size if axis.kind == "shard" else 1 + (axis.keep or 0) if axis.kind in EPOCHS else 1
    flats = [p for p in state.parts().values() if isinstance(p, Flat) and not p.optional]
    return cells * sum(p.empty(state, 1).nbytes for p in flats if state.behind is None or p.front)
