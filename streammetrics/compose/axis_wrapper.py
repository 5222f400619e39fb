"""AxisWrapper, the base class of `Sliced`, `Windowed` and other wrappers that compute a metric for many cells.

An axis defines the cells: for example, a cell for each slice, or a cell for each time window.
"""

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
from ..collect.task import Metrics, resolve_on_invalid
from ..count.reads import MEMORY_LIMIT, Read
from ..errors import MemoryLimitError
from ..numerics.slice_keys import sort_key
from ..reading.replicates import Sample
from ..state.axes import EPOCHS, EXPIRED, OTHER, Axis
from ..state.declare import Flat
from ..state.retention import apply_retention
from ..state.state import State
from .cell_answers import REST, CellAnswers, Places, unwrap_key

__all__ = ["AxisDefinition", "AxisWrapper", "check_dense_size", "inner_of"]

Ints = NDArray[np.int64]


class AxisDefinition(Definition):
    """The definition of a metric, collection or wrapper for every cell of an axis, such as every slice.

    A subclass sets `kind`, its name in saved files. It implements `name`, as well as `header` and `of_header`, which
    convert the definition to and from the header of a saved file.

    Parameters
    ----------
    inner : Definition
        The definition in every cell.
    axis : Axis
        The axis; it precedes the axes of `inner`.
    on_invalid : {"raise", "drop"}
        Whether an invalid row raises an error, or is left out and reported.
    memory_limit : int
        The maximum number of bytes that all cells together may use.
    """

    rest: ClassVar[str] = "(other)"
    """The key that tables print for the sum of all cells that are not kept, such as slices beyond a limit."""

    noun: ClassVar[str] = "slice"
    """The word for a cell in error messages, such as "slice" or "window"."""

    def __init__(
        self, inner: Any, axis: Axis, on_invalid: str = "raise", memory_limit: int | None = MEMORY_LIMIT
    ) -> None:
        self.inner, self.axis = self.check_inner(inner), axis
        self.on_invalid, self.memory_limit = on_invalid, memory_limit

    @classmethod
    def from_metrics(cls, metric: Metrics, axis: Axis, on_invalid: str | None, memory_limit: int | None) -> Self:
        """Return the definition of this wrapper around the metrics that a user passed.

        Raise MemoryLimitError if arrays whose size is known in advance would exceed the memory limit.
        """
        inner = inner_of(metric, on_invalid)
        definition = cls(inner, axis, resolve_on_invalid(on_invalid, [inner]), memory_limit)
        check_dense_size(definition)
        return definition

    @classmethod
    def check_inner(cls, inner: Any) -> Any:
        """Return `inner` unchanged; raise TypeError if this wrapper cannot contain it (a bundle, for example)."""
        if not (inner.adds and inner.counts):
            name = cls.public.__name__
            raise TypeError(
                f"{name}: expected a metric, a collection or slices, found an object of class {inner.type_name}"
            )
        return inner

    def having(self, **parts: Any) -> Self:
        """Return a copy with a different `inner` or `axis`."""
        copy = object.__new__(type(self))
        copy.__dict__.update(self.__getstate__() | parts)
        return copy

    # -- the settings -------------------------------------------------------------------------------------------------

    @property
    def names(self) -> list[str]:
        names: list[str] = self.inner.names
        return names

    @property
    def levels(self) -> tuple[str, ...]:  # type: ignore[override]
        return tuple(dict.fromkeys((*self.axis.names, *self.inner.levels)))

    @cached_property
    def reads(self) -> tuple[Read, ...]:
        return tuple(map(self.add_axis, self.inner.reads))

    def add_axis(self, read: Read) -> Read:
        """Return `read` (a state of the inner definition and its columns) with this axis before the state's other axes.

        Raise ValueError if the inner object is already sliced by the same column.
        """
        known = {name for axis in read.state.axes if axis.kind == "key" for name in axis.names}
        if self.axis in read.state.axes or (self.axis.kind == "key" and known & set(self.axis.names)):
            raise ValueError(
                f"{', '.join(self.axis.names)}: the inner object is already split by this column; use another column"
            )
        return read._replace(state=read.state.empty_copy((self.axis, *read.state.axes)))

    def positional_columns(self) -> tuple[str, ...]:
        columns: tuple[str, ...] = self.inner.positional_columns()
        return columns

    @classmethod
    def inner_of_header(cls, header: dict[str, Any], states: Sequence[State]) -> Any:
        """Build the inner definition from a saved wrapper's header and states."""
        return definition_of_header(header["inner"], [s.empty_copy(s.axes[1:]) for s in states])

    @classmethod
    def number_of_states(cls, header: dict[str, Any]) -> int:
        return number_of_states(header["inner"])

    def differences(self, other: Any) -> list[str]:
        ours, theirs = self.header(), other.header()
        names = [name for name in dict.fromkeys([*ours, *theirs]) if name not in ("kind", "inner")]
        pairs = [(name, ours.get(name), theirs.get(name)) for name in names]
        return [f"{n} is {a!r} here and {b!r} there" for n, a, b in pairs if a != b] + self.inner_differences(other)

    def inner_differences(self, other: Any) -> list[str]:
        """Describe each difference between the inner definitions of this object and `other`, for error messages."""
        if self.inner.kind != other.inner.kind:
            return [f"the inner object is {self.inner.type_name} here and {other.inner.type_name} there"]
        return list(self.inner.differences(other.inner))

    # -- the answers --------------------------------------------------------------------------------------------------

    def read(self, states: Sequence[State]) -> Any:
        return CellAnswers(self, states)

    def samples(self, states: Sequence[State]) -> list[Sample]:
        samples: list[Sample] = self.inner.samples(states)
        # The samples of the inner definition have the keys of all axes, including this one, so they need no change.
        return samples

    def check_states(self, states: Sequence[State]) -> None:
        self.inner.check_states(states)

    def places(self, states: Sequence[State]) -> Places:
        """Return a dict that maps each key to the indices of its cells: a list with one array for each state.

        The keys are sorted. `REST`, which stands for all cells that are not kept, is last. Callers may change the dict.
        """
        # States are immutable, so the result can be cached. The first state contains the cache.
        cache: dict[Any, Any] = states[0].__dict__.setdefault("_places", {})
        # Wrappers of different classes return different keys for the same states, so the cache key includes the class.
        cache_key = (type(self), len(self.axis.names), *map(id, states[1:]))
        if cache_key not in cache:
            # The cache also keeps the states alive. Otherwise, a new state could receive the `id` of a deleted one.
            cache[cache_key] = states[1:], self.find_places(states)
        return dict(cache[cache_key][1])

    def find_places(self, states: Sequence[State]) -> Places:
        """Find the indices of the cells of each key in each state; `places` calls this method and caches the result."""
        width, none = len(self.axis.names), np.zeros(0, np.int64)
        cells: Places = {}
        # The number of keys found in the first state. If later states add keys, the keys must be sorted again.
        first = 0
        names: list[tuple[Any, ...]] = []
        pieces: list[Ints] = []
        for i, state in enumerate(states):
            if not i or not _have_same_keys(states[i - 1], state):
                keys = state.cells.keys[:, :width]
                starts = np.flatnonzero(np.r_[len(keys) > 0, (keys[1:] != keys[:-1]).any(axis=1)][: len(keys)])
                ends, indices = np.append(starts[1:], len(keys))[: len(starts)], np.arange(len(keys))
                names = _user_keys(state, keys[starts])
                pieces = [indices[a:b] for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]
            for key, piece in zip(names, pieces, strict=True):
                if key not in cells:
                    cells[key] = [none] * len(states)
                cells[key][i] = piece
            first = first or len(cells)
        if len(cells) > first:
            return {k: cells[k] for k in sorted(cells, key=_key_order)}
        # Cells are sorted by key, and `REST`, which stands for all cells that are not kept, comes first. Move it to the
        # end.
        if REST in cells:
            cells[REST] = cells.pop(REST)
        return cells

    def place_of(self, states: Sequence[State], key: Any) -> list[Ints] | None:
        """Return, for each state, the indices of the cells with a key; None if no state has such a cell."""
        atoms = key if isinstance(key, tuple) else (key,)
        if len(atoms) != len(self.axis.names):
            return None
        out = [state.cells.find_cells(atoms) for state in states]
        return out if any(map(len, out)) else None

    # -- other definitions --------------------------------------------------------------------------------------------

    def select_metrics(self, names: Mapping[str, str]) -> tuple[Self, list[int]]:
        inner, places = self.inner.select_metrics(names)
        return self.having(inner=inner), places

    def find_entry(self, name: str) -> tuple[Self, list[int]] | None:
        found = self.inner.find_entry(name)
        return None if found is None else (self.having(inner=found[0]), found[1])

    def seal(self, parts: int | None = None) -> Self:
        return self.having(inner=self.inner.seal(parts))

    def coarsen(self, bits: int) -> Self:
        return self.having(inner=self.inner.coarsen(bits) if self.inner.can_coarsen else self.inner)

    def coarsen_states(self, new: Any, states: Sequence[State], bits: int) -> list[State]:
        coarse: list[State] = self.inner.coarsen_states(new.inner, states, bits)
        return coarse

    def sources(self, new: Any) -> list[int]:
        sources: list[int] = self.inner.sources(new.inner)
        return sources


class AxisWrapper(MetricContainer):
    """A metric, collection or wrapper for every cell of an axis; a mapping from the keys of the cells to these objects.

    If no cell has the key `name`, ``wrapper[name]`` returns all cells of the metric or task with this name. Use `task`
    for a task whose name may also be the key of a cell.
    """

    @property
    def memory_limit(self) -> int | None:
        """The maximum number of bytes that all cells (such as slices) may use together."""
        return self._accumulator.definition.memory_limit

    @property
    def inner(self) -> Any:
        """An empty object with the settings that the objects in all cells share."""
        inner = definition_of(self).inner
        return inner.wrap(accumulate(inner))

    @property
    def keys(self) -> list[Any]:
        """The sorted keys of the cells; each key is a tuple if there are several columns."""
        return [unwrap_key(k) for k in definition_of(self).places(self._accumulator.states) if k != REST]

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
            metrics = self._find_metrics(key) if isinstance(key, str) else None
            if metrics is not None:
                return metrics
            some = ", ".join(map(repr, self.keys[:5])) + (", ..." if len(self) > 5 else "")
            raise KeyError(
                f"there is no {definition.noun} {key!r}; this object has {len(self):,} "
                f"key{'s' if len(self) != 1 else ''}{f': {some}' if some else ''}, and the metrics {', '.join(self.names)}"
            )
        return object_of_cells(definition, [s.drop_leading_axes(p, 1) for s, p in zip(states, at, strict=True)])

    @property
    def total(self) -> Any:
        """The object for all rows, equal bit for bit to the same metrics without slices or windows."""
        states = self._accumulator.states
        return object_of_cells(definition_of(self), [apply_retention(s.rollup(*s.axes[1:])) for s in states])

    def across(self, *names: str) -> Self:
        """Return a copy without the inner slices or windows by the columns `names`; their cells are summed.

        For example, slices that contain windows of the column "time" become plain slices with ``across("time")``.

        Parameters
        ----------
        *names : str
            The columns of inner slices and windows to remove. Names of other columns are ignored.
        """
        new = _drop_axes(definition_of(self), set(names))
        new_states = []
        for state, read in zip(self._accumulator.states, new.reads, strict=True):
            columns: list[int] = []
            at = 0
            for i, axis in enumerate(state.axes):
                if not i or axis.kind == "shard" or not set(axis.names) <= set(names):
                    columns += range(at, at + len(axis.names))
                at += len(axis.names)
            keys, words = state.cells.keys, state.cells.vocabularies
            columns += range(at, keys.shape[1])
            moved = np.ascontiguousarray(keys[:, np.array(columns)])
            new_states.append(
                apply_retention(state.move_cells(moved, read.state.axes, tuple(words[i] for i in columns)))
            )
        wrapper: Self = new.wrap(accumulate(new, new_states))
        return wrapper

    def _summary(self, cells: str) -> str:
        """Format the number of cells and the memory use, for `repr`."""
        return f"{len(self)} {cells}, {self._accumulator.nbytes / 2**20:.1f} MiB"


def inner_of(metric: Metrics, on_invalid: str | None) -> Any:
    """Return the definition of the metrics that a user passed. A list or dict of metrics becomes a collection."""
    thing = metric if isinstance(metric, MetricLike) else MetricCollection(metric, on_invalid=on_invalid)
    return definition_of(thing)


def object_of_cells(definition: AxisDefinition, states: Sequence[State]) -> Any:
    """Return a new object of the inner definition, whose states are those of one cell or the sums of several cells."""
    inner = definition.inner.with_on_invalid(definition.on_invalid)
    # Some arrays exist only because another cell needs them. `canonicalize` removes those that this cell does not
    # need. The result then equals an object that counted only the rows of this cell.
    return inner.wrap(accumulate(inner, [s.canonicalize() for s in states]))


def _drop_axes(definition: Any, names: set[str], first: bool = True) -> Any:
    """Return the definition without inner slices and windows by the columns `names`; the outermost axis remains.

    `first` says whether this definition's axis is the outermost.
    """
    if not isinstance(definition, AxisDefinition):
        return definition
    inner = _drop_axes(definition.inner, names, False)
    return inner if not first and set(definition.axis.names) <= names else definition.having(inner=inner)


def _user_keys(state: State, keys: Ints) -> list[tuple[Any, ...]]:
    """Convert stored keys to tuples of Python values, or to `REST` for the sum of all cells that are not kept."""
    columns = []
    for i in range(keys.shape[1]):
        words = state.cells.vocabularies[i]
        columns.append([words.read_key(rank) if rank >= -1 else rank for rank in keys[:, i].tolist()])
    return [
        REST if first in (OTHER, EXPIRED) else k
        for k, first in zip(zip(*columns, strict=True), keys[:, 0].tolist(), strict=True)
    ]


def _have_same_keys(a: State, b: State) -> bool:
    """Return whether two states have the same keys, in the same order."""
    words = zip(a.cells.vocabularies, b.cells.vocabularies, strict=True)
    return np.array_equal(a.cells.keys, b.cells.keys) and all(x.kind == y.kind and x.equals(y) for x, y in words)


def _key_order(key: tuple[Any, ...]) -> tuple[Any, ...]:
    return (1, ()) if key == REST else (0, sort_key(key))


def check_dense_size(definition: Any) -> None:
    """Raise MemoryLimitError if the arrays of all windows and shards together would exceed the memory limit.

    Only arrays whose size does not depend on the number of rows are included, such as the counts of a confusion matrix.
    """
    size = sum(_dense_bytes(r.state) for r in definition.reads)
    if definition.memory_limit is not None and size > definition.memory_limit:
        raise MemoryLimitError(
            f"{definition.name} would take {size:,} bytes when all windows and shards have rows, more than the "
            f"memory_limit of {definition.memory_limit:,}; use fewer windows, shards, bins or classes, or raise "
            f"memory_limit"
        )


def _dense_bytes(state: State) -> int:
    """Return the size in bytes of a state that has rows in all windows and shards.

    Arrays that grow with the number of rows are not included.
    """
    cells = 1
    for axis in state.axes:
        cells *= axis.size if axis.kind == "shard" else 1 + (axis.keep or 0) if axis.kind in EPOCHS else 1
    flats = [p for p in state.parts().values() if isinstance(p, Flat) and not p.optional]
    return cells * sum(p.empty(state, 1).nbytes for p in flats if state.inner_axis is None or p.front)
