"""The feed: the one way a batch is counted.

What is known of a batch before its values, the dtypes and strides of its columns, leads to a draft: how each column
becomes what kernels read, and one call that counts in all statistics or in none. The draft is made once, so small
batches are quick. Rows that a task selects, keys and rankings are prepared by columns, batch by batch; they are counted
by the same call.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from itertools import islice
from operator import is_not
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..columns.columns import Batch, Column
from ..columns.convert import TENSORS, is_bfloat16, is_scalar, library_of, of_tensor, one_column
from ..columns.flat import check_of, flat_of
from ..columns.ids import IdColumn, Ids, are_several
from ..columns.times import EventTime, Latest, TimeColumn
from ..errors import CounterOverflowError, InvalidInputError, MemoryLimitError
from ..numerics.compiled import kernel
from ..numerics.keys import SHARDS
from ..numerics.once import at_once, holding, undivided
from ..state.axes import EPOCHS, Axis
from ..state.state import State
from ..statistics.step import NO_WEIGHTS, NOTHING, Beside, Step, Typed
from .binding import Binding
from .blocks import check_slices, whole_blocks
from .rows import Rows, check_either, prepare

if TYPE_CHECKING:
    from ..count.counter import Counter
    from ..count.index import Index

__all__ = ["Change", "Feed", "Read", "change"]

Array = NDArray[Any]
Ints = NDArray[np.int64]
MOST_DRAFTS = 256
NONE_WIDENED: frozenset[str] = frozenset()
MEMORY_LIMIT = 4 << 30


@cache
def counting() -> Any:
    """What counts: loaded at the first row, so that merging and reading need no kernels.

    Numba that a Ctrl-C had left half imported could not be imported again.
    """

    def load() -> Any:
        from .. import count

        return count

    return undivided(load)


class Read(NamedTuple):
    """What is counted.

    Parameters
    ----------
    state : State
        What has seen nothing, or some rows.
    binding : Binding
        The columns that it is counted from.
    ranks : bool, optional
        Whether of the scores only the order matters; None if nobody knows.
    latest : tuple of (axis, Latest)
        Of axes of event time, what time is too late.
    """

    state: State
    binding: Binding
    ranks: bool | None = False
    latest: tuple[tuple[Axis, Latest], ...] = ()

    @property
    def times(self) -> tuple[tuple[Axis, EventTime], ...]:
        """The axes of event time, and what their columns hold."""
        latest = dict(self.latest)
        epochs = [a for a in self.state.axes if a.kind in EPOCHS]
        return tuple((a, EventTime(EPOCHS[a.kind], a.size, latest.get(a))) for a in epochs)


class Draft(NamedTuple):
    """How batches of some dtypes are counted.

    Parameters
    ----------
    makes : tuple of (column, callable or None)
        How each flat column is made of those given.
    commit : callable
        Counts flat columns; returns 1, and leaves everything as it was, on a bad value. Of prepared columns, all good, the
        calls that count them, to be taken as one with others.
    cells : callable, optional
        Turns the last flat column, of units, into the cell of each row; None if one is new.
    """

    makes: tuple[tuple[int, Callable[[Array], Array] | None], ...] | None
    commit: Callable[..., Any]
    cells: Callable[[Array], Ints | None] | None = None


class Last(NamedTuple):
    """How the batch before was counted: columns of these names that are like its columns are counted alike."""

    names: tuple[str, ...]
    like: Callable[..., bool]
    commit: Callable[..., Any]
    makes: tuple[tuple[int, Callable[[Array], Array] | None], ...] | None


class Held(NamedTuple):
    """All that a feed holds while rows come, on one attribute; for how many rows is `left` (see `_room`).

    `last` has how the batch before was counted, or None.
    """

    counters: tuple[Counter, ...]
    index: Index  # type: ignore[assignment]
    mass: Array
    drafts: dict[Any, Draft]
    recent: dict[int, Ints]
    left: list[int]
    last: list[Last | None]


class Given:
    """Arrays that kernels are given, each once, however many read it."""

    def __init__(self) -> None:
        self.flats: list[Array] = []
        self.typed: list[Typed] = []
        self.ndims: list[int] = []
        self._places: dict[int, tuple[Array, int]] = {}  # with the array, lest another gets its number

    def place(self, values: Array, source: str) -> int:
        """Say where an array stands."""
        known = self._places.get(id(values))
        if known is None:
            known = values, len(self.flats)
            self._places[id(values)] = known
            self.flats.append(values if values.flags.c_contiguous else np.ascontiguousarray(values))
            self.typed.append(Typed(values.dtype, source))
            self.ndims.append(values.ndim)
        return known[1]


def _signature(n: int) -> Callable[..., Any]:
    """Make the function that sums n columns up: whether all are as long, and of each its dtype and strides.

    None if one is no plain array of one dimension.
    """
    names = [f"c{i}" for i in range(n)]
    types = " is ".join(f"type({c})" for c in names)
    lengths = " == ".join(f"len({c})" for c in names) if n > 1 else "True"
    facts = ", ".join(f"{c}.dtype, {c}.strides" for c in names)
    flat = " == ".join(f"{c}.ndim" for c in names)
    text = f"lambda {', '.join(names)}: ({lengths}, {facts}) if {types} is array and {flat} == 1 else None"
    made: Callable[..., Any] = eval(text, {"array": np.ndarray})  # made of numbers alone
    return made


SIGNATURES = [None, *map(_signature, range(1, 17))]


def _signature_of_rows(arrays: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Sum columns up of which some are of rows of several values: three facts of each."""
    if not all(type(a) is np.ndarray and a.ndim in (1, 2) for a in arrays):
        return None
    facts = [fact for a in arrays for fact in (a.dtype, a.strides, a.shape[1:])]
    return len({len(a) for a in arrays}) == 1, *facts


@cache
def _likeness(ndims: tuple[int, ...]) -> Callable[..., Callable[..., bool]]:
    """Make what makes, of dtypes, strides and widths, the function that says whether columns of one length are like these.

    That is to compare two signatures in half the time: most batches are like the one before.
    """
    names, held, same = [f"c{i}" for i in range(len(ndims))], list[str](), list[str]()
    for i, c in enumerate(names):
        held.append(f"d{i}, s{i}" + f", w{i}" * (ndims[i] - 1))
        same.append(f"type({c}) is array and {c}.dtype is d{i} and {c}.strides == s{i}")
        same += [f"{c}.shape[1] == w{i}"] * (ndims[i] - 1)
    lengths = [" == ".join(f"len({c})" for c in names)] if len(ndims) > 1 else []
    text = f"lambda {', '.join(held)}: lambda {', '.join(names)}: {' and '.join(same + lengths)}"
    made: Callable[..., Callable[..., bool]] = eval(text, {"array": np.ndarray})  # made of numbers alone
    return made


def as_plain(given: Any, name: str) -> Any:
    """A plain array of what says that it is one; of a pandas column without the four protocols it is asked for first.

    A tensor is copied here, if it lies on a device, and not again.
    """
    how = _plain_by(type(given))  # type: ignore[arg-type]  # a class can be hashed
    return given if how is None else how(given, name)


@cache
def _plain_by(kind: type) -> Callable[[Any, str], Any] | None:
    """What makes plain arrays of things of a class, where that is quick."""
    library = library_of(kind)
    if library in TENSORS:
        return of_tensor
    if library == "pyarrow":
        return _of_arrow
    if kind in (int, float, bool) or issubclass(kind, np.number):  # one event
        return _of_value
    plain = library in ("numpy", "pandas") and kind is not np.ndarray and not issubclass(kind, np.ndarray)
    return _of_numpy if plain and hasattr(kind, "__array__") else None


@cache
def _any_tensor(*kinds: type) -> bool:
    """Whether one of some classes is of tensors."""
    return not TENSORS.isdisjoint(map(library_of, kinds))


def _of_value(given: Any, name: str) -> Array:
    """A column of one row."""
    return np.array([given])


def _of_numpy(given: Any, name: str) -> Any:
    """The memory of a column of a dtype of numpy; else what was given."""
    return given.__array__() if isinstance(getattr(given, "dtype", None), np.dtype) else given


@cache
def _arrow_numbers() -> frozenset[int]:
    """The numbers by which Arrow knows its types of numbers."""
    import pyarrow

    names = [*(f"{u}int{bits}" for u in ("", "u") for bits in (8, 16, 32, 64)), "float16", "float32", "float64"]
    return frozenset(getattr(pyarrow, name)().id for name in names)


def _of_arrow(given: Any, name: str) -> Any:
    """The memory of an Arrow column in one piece, without nulls, of numbers; else what was given."""
    chunks = getattr(given, "num_chunks", None)
    if chunks not in (None, 1) or not hasattr(given, "null_count") or given.null_count:
        return given
    if given.type.id not in _arrow_numbers():
        return given
    return (given if chunks is None else given.chunk(0)).to_numpy(zero_copy_only=True)


class Feed:
    """States that are counted together.

    Parameters
    ----------
    reads : sequence of Read
        What is counted, of which columns; states may have seen rows.
    memory_limit : int
        Bytes that cells may take.
    on_invalid : {"raise", "drop"}
        Whether a bad row raises, or is left out and counted.
    """

    def __init__(self, reads: Sequence[Read], *, memory_limit: int = MEMORY_LIMIT, on_invalid: str = "raise") -> None:
        self.reads, self.memory_limit = tuple(reads), memory_limit
        self.lock = threading.Lock()
        self._needs = [tuple(map(r.binding.need, r.state.needs())) for r in self.reads]
        self._times = [r.times for r in self.reads]
        self._held_times = dict(t for times in self._times for t in times)
        asked = [
            (r.binding, n, t, r.state.together and i)
            for i, (r, n, t) in enumerate(zip(self.reads, self._needs, self._times, strict=True))
        ]
        self._first = [asked.index(a) for a in asked]  # which read is prepared for all that ask for the same
        self._content: tuple[tuple[State, ...] | None, Held | None] = (tuple(r.state for r in self.reads), None)
        self.on_invalid = on_invalid

    @property
    def on_invalid(self) -> str:
        """Whether a bad row raises, or is left out and counted."""
        return self._on_invalid

    @on_invalid.setter
    def on_invalid(self, how: str) -> None:
        self._on_invalid = how
        if (held := self._content[1]) is not None:
            held.last[0] = None
        self._drafts = how != "drop" and all(map(_drafts, self.reads))

    # -- content ------------------------------------------------------------------------------------------------------

    @property
    def states(self) -> tuple[State, ...]:
        """What was seen, in canonical form."""
        with self.lock:
            return self._settled()

    def _settled(self) -> tuple[State, ...]:
        states, held = self._content
        if states is None:
            assert held is not None
            states = tuple(c.state() for c in held.counters)
            self._content = states, held
        return states

    def hold(self, states: Sequence[State]) -> None:
        """Go on from these states; all that was held is replaced as one."""
        with self.lock:
            self._content = tuple(states), None

    def adding(self, theirs: Sequence[State]) -> Change:
        """To add what others have seen.

        Raises
        ------
        IncompatibleStateError
            Kinds of keys differ, or rows refuse to be there twice.
        MemoryLimitError
            Both together take more than the memory limit.
        """
        return Change(self, lambda ours: self._within([a.merge(b) for a, b in zip(ours, theirs, strict=True)]))

    def taking(self, gone: Sequence[State]) -> Change:
        """To take away what some rows made; raises as `State.subtract` does."""
        return Change(self, lambda ours: self._within([a.subtract(b) for a, b in zip(ours, gone, strict=True)]))

    def correcting(self, added: Sequence[State], gone: Sequence[State]) -> Change:
        """To add what some rows made, and take away what others did, as one; raises as both do."""
        return Change(
            self,
            lambda ours: self._within([a.merge(b).subtract(c) for a, b, c in zip(ours, added, gone, strict=True)]),
        )

    def _within(self, made: list[State]) -> list[State]:
        """Return states that are within the memory limit; or raise."""
        size = sum(s.nbytes for s in made) if any(s.axes for s in made) else 0
        if size > self.memory_limit:
            raise MemoryLimitError(
                f"{max(map(len, made)):,} slices of together {size:,} bytes pass the memory_limit of "
                f"{self.memory_limit:,}; use fewer bits, limit= to keep some slices and merge the others, or raise it"
            )
        return made

    def _hot(self) -> Held:
        """Counters that go on from the states; the caller has the lock."""
        states, held = self._content
        if held is None:
            count = counting()
            index = count.Index()
            assert states is not None
            counters = tuple(count.counter_of(s, index) for s in states)
            held = Held(counters, index, np.array([_mass(states), 0.0]), {}, {}, [0], [None])
            self._content = states, held
        return held

    @property
    def sizes(self) -> list[int]:
        """Bytes of memory of each state."""
        states, held = self._content
        return [c.nbytes for c in held.counters] if held is not None else [s.nbytes for s in states or ()]

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return sum(self.sizes)

    # -- rows in ------------------------------------------------------------------------------------------------------

    def count(self, columns: Mapping[str, Any]) -> None:
        """Count a batch in all states, or raise, and leave everything as it was."""
        self.count_arrays(tuple(columns), tuple(columns.values()))

    def count_arrays(self, names: tuple[str, ...], given: tuple[Any, ...]) -> None:
        """Count a batch, given as the names and the values of its columns."""
        held = self._content[1]
        if held is None or (last := held.last[0]) is None or names != last[0] or not last[1](*given):
            return self._count_arrays(names, given)
        return self._count_again(held, last, given)

    def _count_again(self, held: Held, last: Last, given: tuple[Array, ...]) -> None:
        """Count a batch like the one before."""
        rows, left, counted = len(given[0]), held.left, False
        flat = given if last[3] is None else [given[i] if make is None else make(given[i]) for i, make in last[3]]
        with self.lock:
            if left[0] >= rows and self._content[1] is held:
                left[0] -= rows  # before: what is not counted after all leaves more room, not less
                self._content = None, held
                found, counted = last[2](*flat), True
        if not counted:  # there was no room, or somebody else was there
            return self._count_arrays(last.names, given)
        if found:
            self._explain(_batch(last.names, given), held)
        return None

    def _count_arrays(self, names: tuple[str, ...], given: tuple[Any, ...]) -> None:
        """Do what `count_arrays` does, of columns that are not like those before."""
        arrays, widened = given, NONE_WIDENED
        if not self._drafts or not 0 < len(arrays) <= 16:
            return self.count_batch(_batch(names, given))
        key = SIGNATURES[len(arrays)](*arrays)  # type: ignore[misc]
        if key is None:
            widened = _widened(names, given)
            arrays = tuple(map(as_plain, given, names))
            made, held = any(map(is_not, arrays, given)), self._content[1]
            # Outside a draft a value stays one: a list beside it is then the row of a matrix.
            given = tuple([g if is_scalar(g) else a for g, a in zip(given, arrays, strict=True)])
            last = None if held is None or widened or not made else held.last[0]
            if last is not None and names == last.names and last.like(*arrays):
                assert held is not None
                return self._count_again(held, last, arrays)
            key = SIGNATURES[len(arrays)](*arrays)  # type: ignore[misc]
            if key is None:  # where a matrix is not meant
                flats = tuple([one_column(a) if type(a) is np.ndarray else a for a in arrays])
                key = SIGNATURES[len(flats)](*flats)  # type: ignore[misc]
                arrays, key = (flats, key) if key is not None else (arrays, _signature_of_rows(arrays))
            key = None if key is None else (*key, widened)
        if key is None or not key[0]:
            return self.count_batch(_batch(names, given, widened))
        held = self._content[1]
        draft = held.drafts.get((names, key)) if held is not None else None
        if held is None or draft is None:
            with self.lock:
                held, draft = self._ready(names, key, arrays, widened)
            if draft is None:
                return self.count_batch(_batch(names, given, widened))
        flat, makes = arrays, draft.makes
        if makes is not None:
            flat = tuple([arrays[i] if make is None else make(arrays[i]) for i, make in makes])
        rows = len(flat[0])
        with self.lock:
            if held.left[0] < rows or self._content[1] is not held:
                held, draft = self._ready(names, key, arrays, widened)
            if draft is not None and draft.cells is not None:
                at = draft.cells(flat[-1])
                flat, draft = (*flat[:-1], at), None if at is None else draft
            if draft is not None:
                held.left[0] -= rows
                self._content = None, held
                if draft.cells is None and not widened:
                    like = _likeness(tuple([a.ndim for a in arrays]))(
                        *(fact for a in arrays for fact in (a.dtype, a.strides, *a.shape[1:]))
                    )
                    held.last[0] = Last(names, like, draft.commit, draft.makes)
                found = draft.commit(*flat)
        if draft is None:
            return self.count_batch(_batch(names, given, widened))
        if found:
            self._explain(_batch(names, given, widened), held)
        return None

    def _ready(
        self, names: tuple[str, ...], key: Any, arrays: tuple[Array, ...], widened: frozenset[str]
    ) -> tuple[Held, Draft | None]:
        """Make room, and say how plain columns are counted; None if they have to be prepared. The caller has the lock."""
        held, rows = self._hot(), len(arrays[0])
        if any(c.folds_with(rows) for c in held.counters):
            return held, None
        held = self._room(held, rows, weighted=self._weighs(names))
        held.left[0] = min((c.left for c in held.counters), default=1 << 62)
        return held, held.drafts.get((names, key)) or self._drafted(held, names, key, arrays, widened)

    def _weighs(self, names: tuple[str, ...]) -> bool:
        return any(r.binding.column("sample_weight") in names for r in self.reads)

    def _room(self, held: Held, rows: int, *, weighted: bool) -> Held:
        """Make room in all counters, and forget drafts that are bound to arrays that are no more.

        `left` is negative meanwhile: should this be interrupted, drafts are not trusted again.
        """
        unsure, held.left[0] = held.left[0] < 0, -1
        changed = [c.room(rows, weighted=weighted) for c in held.counters]
        if held.index.levels:
            self._check_memory(held, rows)
        if unsure or any(changed):
            held = held._replace(drafts={}, last=[None])
            self._content = self._content[0], held
        held.left[0] = 0
        return held

    def _check_memory(self, held: Held, rows: int) -> None:
        need = sum(c.need(rows) for c in held.counters)
        if need > self.memory_limit:
            cells = max(held.index.count(c.inner) for c in held.counters)
            raise MemoryLimitError(
                f"{cells:,} slices would need up to {need:,} bytes, memory_limit is {self.memory_limit:,}; use fewer "
                f"bits, limit= to keep some slices and merge the others, or raise memory_limit"
            )

    # -- drafts -------------------------------------------------------------------------------------------------------

    def _drafted(
        self, held: Held, names: tuple[str, ...], key: Any, arrays: tuple[Array, ...], widened: frozenset[str]
    ) -> Draft | None:
        """Say how plain columns like these are counted; None if they have to be prepared. The caller has the lock."""
        like = dict(zip(names, arrays, strict=True))
        batch = Batch(like)
        units = {r.binding.unit: c.front for r, c in zip(self.reads, held.counters, strict=True) if c.front}
        unit, path = next(iter(units.items()), (None, ()))
        if len(units) > 1 or any(r.binding.unit != unit for r in self.reads):
            return None
        reads: list[tuple[str, Any]] = []
        flats: list[Any] = []
        bound: list[dict[str, int]] = []
        for read, needs, counter in zip(self.reads, self._needs, held.counters, strict=True):
            binding = read.binding
            if counter.weighed and binding.column("sample_weight") not in like:
                return None  # rows without weights are rows of weight 1
            mine: dict[str, int] = {}
            for need in needs:
                name = binding.column(need.role)
                if name not in like:
                    if need.optional and need.role not in binding.bound and not need.derived:
                        continue
                    return None  # what is missing is said there
                kind = need.kind.variant(batch, name)
                flat = flat_of(kind, like[name])
                if flat is None or (need.role != "sample_weight" and check_of(kind) is None):
                    return None
                if name in widened and flat.source == "float32":
                    flat = flat._replace(source="bfloat16")
                if (name, kind) not in reads:
                    reads.append((name, kind))
                    flats.append(flat)
                mine[need.role] = reads.index((name, kind))
            try:
                counter.statistic.admit_beside(counter.flats, {role: flats[i].source for role, i in mine.items()})
            except InvalidInputError:
                return None  # it is raised there
            bound.append(mine)
        cells, given = None, list(reads)
        if unit is not None:
            flat = flat_of(unit.kind, like[unit.column]) if unit.column in like else None
            if flat is None or held.index.numbers(unit.column, "shard").kind not in ("", SHARDS["integer"]):
                return None  # units of another kind are refused there
            for mine, counter in zip(bound, held.counters, strict=True):
                mine |= {"at": len(reads), "front": len(reads)} if counter.front else {}
            given.append(unit)
            flats.append(flat)
            cells = _cells_of(held.index, path)
        commit = self._bind(held, bound, [Typed(f.dtype, f.source) for f in flats], reads, [f.ndim for f in flats])
        makes = tuple((names.index(n), f.make) for (n, _), f in zip(given, flats, strict=True))
        as_is = [i for i, _ in makes] == list(range(len(names))) and not any(m for _, m in makes)
        if len(held.drafts) >= MOST_DRAFTS:  # of strides that never come again
            held.drafts.clear()
        draft = Draft(None if as_is else makes, commit, cells)
        held.drafts[names, key] = draft
        return draft

    def _bind(
        self, held: Held, bound: Sequence[Mapping[str, int]], typed: Sequence[Typed], reads: Sequence[Any] | None,
        ndims: Sequence[int],
    ) -> Callable[..., Any]:  # fmt: skip
        """Return the call that counts flat columns; `bound` says for each state which column plays which role.

        With `reads`, what the columns hold, all that nothing else checks is checked first.
        """
        count = counting()
        columns = [np.zeros((0,) * d, t.dtype) for t, d in zip(typed, ndims, strict=True)]
        steps: list[tuple[Step, dict[str, int], Counter]] = []
        beside: dict[int, Counter] = {}  # by the number of a step, what it counts besides
        for counter, mine in zip(held.counters, bound, strict=True):
            if not mine or counter in beside.values() or _absorbs(counter.statistic):
                continue
            like = counter.like({role: typed[i] for role, i in mine.items() if role not in ("at", "front", "ones")})
            other = None if reads is None else _same_by_shard(counter, mine, held.counters, bound, like)
            if other is not None:
                step, fellow, columns_of = other
                beside[id(step)] = fellow
                steps.append((step, columns_of, counter))
                continue
            steps += [(step, dict(mine), counter) for step in counter.statistic.steps(like)]
            if reads is not None and like.weighted and counter.statistic.fixed_weights:
                terms = counter.statistic.fixed_terms
                step = Step("checks:note_rounding", "sample_weight", "front", terms, held.mass, State.rounded)
                steps.append((step, {r: mine[r] for r in ("sample_weight", "front") if r in mine}, counter))
        if reads is not None:
            steps.sort(key=lambda s: not s[0].checks or bool(s[2].front))
        made = [] if reads is None else self._checks(held, steps, reads, bound)
        for step, mine, counter in steps:
            arguments: list[Any] = []
            for argument in step.arguments:
                if isinstance(argument, Beside):
                    arguments += beside[id(step)].held(argument.part)
                elif isinstance(argument, str):
                    arguments.append(count.Place(mine[argument]) if argument in mine else _absent(argument))
                elif hasattr(argument, "name") and argument.name in counter.statistic.parts():
                    arguments += counter.held(argument)
                else:
                    arguments.append(argument)
            made.append((step.kernel, arguments))
        bound_steps = [(count.bound(k, a, columns), a) for k, a in made]
        made_of: Callable[..., Any] = (
            count.calls_of(bound_steps) if reads is None else count.commit_of(bound_steps, len(columns))
        )
        return made_of

    def _checks(
        self, held: Held, steps: Sequence[tuple[Step, dict[str, int], Counter]], reads: Sequence[Any], bound: Any
    ) -> list[tuple[str, list[Any]]]:
        """The checks of what the first counter does not check itself; of weights last, as their total is kept."""
        place = counting().Place
        weights = sorted({mine["sample_weight"] for mine in bound if "sample_weight" in mine})
        done: set[int] = set()
        if steps and steps[0][0].checks and not weights:
            done = {steps[0][1][a] for a in steps[0][0].arguments if isinstance(a, str) and a in steps[0][1]}
        left = [i for i in range(len(reads)) if i not in done and i not in weights]
        checks = [(i, check_of(reads[i][1])) for i in left]
        named = [c.kernel for _, c in checks if c is not None]
        if named == ["checks:labels", "checks:probabilities"]:
            pair = [place(i) for i in left]
            if len(weights) == 1:
                return [("checks:weighted_pairs", [*pair, place(weights[0]), held.mass])]
            return [("checks:pairs", pair)]
        made: list[tuple[str, list[Any]]] = [(c.kernel, [place(i), *c.arguments]) for i, c in checks if c is not None]
        return made + [("checks:weights", [place(i), held.mass]) for i in weights]

    # -- batches that have to be prepared -----------------------------------------------------------------------------

    def count_batch(self, batch: Batch) -> None:
        """Count a batch whose columns are converted and checked here, and may be shared with other feeds."""
        counting()  # columns and derivations look for kernels
        check_either(((r.binding, n) for r, n in zip(self.reads, self._needs, strict=True)), batch)
        prepared: list[Rows] = []
        for i, first in enumerate(self._first):
            prepared.append(prepared[first] if first < i else self._prepared(batch, i))
        derived = [
            rows.columns if _absorbs(read.state) else read.state.derive(rows.columns)
            for read, rows in zip(self.reads, prepared, strict=True)
        ]
        with self.lock:
            held = self._compressed(self._hot())
            mark, marks = held.index.mark(), [c.mark() for c in held.counters]
            done: list[bool] = []  # an interrupt may come when all is counted
            try:
                self._count(held, batch, prepared, derived, done)
            except BaseException as error:
                if not done:
                    held.index.restore(mark)
                    for counter, was in zip(held.counters, marks, strict=True):
                        counter.restore(was)
                if isinstance(error, MemoryLimitError):  # the room that was made meanwhile is given back
                    self._content = self._settled(), None
                raise

    def _compressed(self, held: Held) -> Held:
        """Go on from the cells that limits keep, once there are many more."""
        for counter in held.counters:
            for i, (_, axis) in enumerate(counter.front):
                most = axis.limit if axis.limit is not None else axis.keep
                if most is not None and held.index.count(counter.front[: i + 1]) > 4 * (most + 64) * max(
                    held.index.count(counter.front[:i]), 1
                ):
                    self._content = self._settled(), None
                    return self._hot()
        return held

    def _prepared(self, batch: Batch, i: int) -> Rows:
        read, needs = self.reads[i], self._needs[i]
        times = tuple((axis.names[0], kind) for axis, kind in self._times[i])
        if read.state.together is None:
            return prepare(batch, read.binding, needs, self.on_invalid, times=times)
        held = self._content[1]
        recent = None if held is None else held.recent.get(i)
        return whole_blocks(batch, read.state, read.binding, needs, self.on_invalid, recent, times)

    def _count(
        self,
        held: Held,
        batch: Batch,
        prepared: Sequence[Rows],
        derived: Sequence[Mapping[str, Column]],
        done: list[bool],
    ) -> None:
        made: dict[Any, Ints] = {}
        places = [self._placed(held, batch, c, rows, made) for c, rows in zip(held.counters, prepared, strict=True)]
        for counter, rows, (front, _) in zip(held.counters, prepared, places, strict=True):
            fronts = _fronts(front, rows)
            if len(fronts) and (role := counter.statistic.together):
                check_slices(rows, role, fronts)
            counter.admit_rows(rows.columns, fronts)
        _check_mass(held, prepared)
        held.left[0] = min(held.left[0], 0)
        for counter, rows, (_, at) in zip(held.counters, prepared, places, strict=True):
            counter.fold_ahead(at, rows.n, rows.columns)
        most = max((r.n * c.statistic.spread for c, r in zip(held.counters, prepared, strict=True)), default=0)
        held = self._room(held, most, weighted=any("sample_weight" in r.columns for r in prepared))
        given = Given()
        bound: list[dict[str, int]] = []
        extra: list[Callable[[], Any]] = []
        for counter, rows, columns, (front, at) in zip(held.counters, prepared, derived, places, strict=True):
            mine: dict[str, int] = {}
            bound.append(mine)
            fronts = _fronts(front, rows)
            if rows.left_out:
                extra += self._left_out(counter, rows, front)
            extra += self._rounded(counter, rows, fronts, held.mass)
            if _absorbs(counter.statistic):
                extra += counter.absorbed(rows.columns, at, rows.n)
                continue
            for role, column in columns.items():
                if isinstance(column.values, np.ndarray) and column.values.dtype != object:
                    mine[role] = given.place(column.values, column.source)
            ones = np.ones(rows.n * counter.statistic.spread) if counter.weighed else NO_WEIGHTS
            for role, values in (("at", at), ("front", fronts), ("ones", ones)):
                if len(values):
                    mine[role] = given.place(values, "")
        flats, typed, ndims = given.flats, given.typed, given.ndims
        key = tuple(typed), tuple(ndims), tuple([tuple(m.items()) for m in bound])
        draft = held.drafts.get(key)
        if draft is None:
            draft = Draft(None, self._bind(held, bound, typed, None, ndims))
            held.drafts[key] = draft
        self._commit(held, draft, flats, prepared, extra, done)

    def _commit(
        self,
        held: Held,
        draft: Draft,
        flats: Sequence[Array],
        prepared: Sequence[Rows],
        extra: list[Callable[[], Any]],
        done: list[bool],
    ) -> None:
        extra[:0] = [_compiled("checks:weights", w, held.mass) for w in _weights(prepared)]
        if any(r.columns["sample_weight"].values.ndim > 1 for r in prepared if "sample_weight" in r.columns):
            extra.insert(0, partial(held.mass.__setitem__, 1, 1.0))  # a small one may be beside the largest of its row
        for i, rows in enumerate(prepared):
            if rows.n and rows.ids is not None:
                extra.append(partial(held.recent.__setitem__, i, rows.ids))
        extra.append(partial(done.append, True))
        self._content = None, held
        at_once([*draft.commit(*flats), *extra])

    def _placed(
        self, held: Held, batch: Batch, counter: Counter, rows: Rows, made: dict[Any, Ints]
    ) -> tuple[Ints, Ints]:
        """Return the front cell of each row of the batch, and the cell of each row that is counted."""
        index = held.index

        def codes(step: Any) -> Ints:
            name, axis = step
            if axis.kind == "key":
                values = batch.make(("codes", id(index), name), partial(index.numbers(name).of, batch.raw(name)))
                batch.same_length(len(values), name)
                return values  # type: ignore[no-any-return]
            if axis.kind == "shard":
                if kind := batch.column(name, Ids()).source:
                    index.numbers(name, "shard").accept(SHARDS.get(kind, SHARDS["several"]))
                return batch.make(("codes", step), lambda: shard_codes(batch, name, axis))  # type: ignore[no-any-return]
            times = batch.column(name, self._held_times[axis])
            assert isinstance(times, TimeColumn)
            return index.numbers(name, axis.kind).of_integers(times.source, times.values, times.wrong)

        front = index.locate(counter.front, codes, made)
        at = _fronts(front, rows)
        if counter.inner is not counter.front:
            at = self._behind(index, counter, rows, at)
        if (width := counter.statistic.spread) > 1:
            base = np.zeros(rows.n, np.int64) if not len(at) else at
            at = (base[:, None] * width + np.arange(width)).reshape(-1)
        return front, at

    def _behind(self, index: Index, counter: Counter, rows: Rows, at: Ints) -> Ints:
        axis = counter.inner[-1][1]
        made: dict[Any, Ints] = {counter.front: at} if len(counter.front) else {}
        if axis.kind == "class":
            numbers = counter.statistic.class_codes(rows.columns, index.numbers(counter.classes))
            first = len(counter.front)
            return index.locate(counter.inner, lambda step: numbers[counter.inner.index(step) - first], made)
        ids = rows.columns[axis.names[0]].values
        return index.locate(counter.inner, lambda _: ids, made)

    def _rounded(self, counter: Counter, rows: Rows, fronts: Ints, mass: Array) -> list[Callable[[], Any]]:
        """The call that notes weights with bits that their sums do not have."""
        column = rows.columns.get("sample_weight")
        if column is None or not len(column.values) or not counter.statistic.fixed_weights:
            return []
        at = fronts
        if len(at) and len(at) != len(column.values):  # one weight for each block of rows
            keys = rows.columns[counter.statistic.together or ""]
            assert isinstance(keys, IdColumn)
            at = np.ascontiguousarray(at[keys.starts])
        values = np.ascontiguousarray(column.values).reshape(-1)
        if len(at) and len(values) != len(at):  # one for each row and label
            at = np.repeat(at, len(values) // len(at))
        noted = counter.held(State.rounded)[0]
        return [_compiled("checks:note_rounding", values, at, counter.statistic.fixed_terms, mass, noted)]

    def _left_out(self, counter: Counter, rows: Rows, front: Ints) -> list[Callable[[], Any]]:
        """The calls that note the rows that are not counted, by the reason."""
        out: list[Callable[[], Any]] = []
        statistic = counter.statistic
        for reason, gone in rows.left_out:
            if len(gone):
                at = front[gone] if len(front) else NOTHING
                dropped, numbers = counter.held(type(statistic).dropped)[0], statistic.reason_numbers
                out.append(_compiled("cells:drop_rows", dropped, at, len(numbers), numbers[reason], len(gone)))
        return out

    def _explain(self, batch: Batch, held: Held) -> None:
        """Raise the error that names the first bad row."""
        held.drafts.clear()  # that were made for keys of a kind that did not come
        held.last[0] = None
        for read, needs in zip(self.reads, self._needs, strict=True):
            prepare(batch, read.binding, needs, self.on_invalid)
        raise _overflow()


class Change(NamedTuple):
    """A feed, and what makes of its states those that it is to have."""

    feed: Feed
    how: Callable[[tuple[State, ...]], Sequence[State]]


def change(changes: Sequence[Change]) -> None:
    """Replace what feeds, each of them once, have seen: all of them, or none if one raises.

    No row that comes meanwhile is lost, and nobody who asks one of them for its states finds it half changed.
    """
    feeds = [one.feed for one in changes]
    _replace(feeds, lambda: [tuple(one.how(one.feed._settled())) for one in changes])


def hold(feeds: Sequence[Feed], states: Iterable[State]) -> None:
    """Go on from these states, those of each feed in turn; all that was held is replaced as one."""
    rest = iter(states)
    made = [tuple(islice(rest, len(feed.reads))) for feed in feeds]
    _replace(feeds, lambda: made)


def _replace(feeds: Sequence[Feed], make: Callable[[], Sequence[tuple[State, ...]]]) -> None:
    """Put in each feed what is made for it while nobody else counts, or asks for states."""
    in_order = sorted(feeds, key=id)  # as others do who lock some of them
    holding([feed.lock for feed in in_order], lambda: _put(feeds, make()))


def _put(feeds: Sequence[Feed], states: Sequence[tuple[State, ...]]) -> None:
    each = zip(feeds, states, strict=True)
    at_once([partial(feed.__dict__.__setitem__, "_content", (mine, None)) for feed, mine in each])


def _batch(names: tuple[str, ...], given: tuple[Any, ...], widened: frozenset[str] = NONE_WIDENED) -> Batch:
    """Columns by name, all of one length, whoever reads them."""
    known = [(name, n) for name, c in zip(names, given, strict=True) if (n := _rows(c)) is not None]
    for name, n in known[1:]:
        if n != known[0][1]:
            raise InvalidInputError(f"{name} has {n:,} rows, {known[0][0]} has {known[0][1]:,}", column=name)
    return Batch(dict(zip(names, given, strict=True)), widened=widened)


def _rows(column: Any) -> int | None:
    """How many rows a column has; None for several columns, and for a value, which may be a time for all rows."""
    if isinstance(column, (str, bytes)):
        return 1
    return len(column) if hasattr(column, "__len__") and not is_scalar(column) and not are_several(column) else None


def _widened(names: tuple[str, ...], given: tuple[Any, ...]) -> frozenset[str]:
    """The columns that were bfloat16, and became float32."""
    if not _any_tensor(*map(type, given)):
        return NONE_WIDENED
    return frozenset(n for n, c in zip(names, given, strict=True) if library_of(type(c)) in TENSORS and is_bfloat16(c))


def _compiled(name: str, *arguments: Any) -> Callable[[], Any]:
    """A call of the compiled function itself: no Python runs in it, so no interrupt comes between it and its like."""
    return partial(counting().bound(name, arguments, ()), *arguments)


def _weights(prepared: Sequence[Rows]) -> list[Array]:
    """The columns of weights, each once."""
    found = [r.columns["sample_weight"] for r in prepared if "sample_weight" in r.columns]
    distinct = {id(c): c.values for c in found}.values()
    return [w if w.ndim == 1 else w.max(axis=1, initial=0.0) for w in distinct]  # a weight for each label of a row


def _check_mass(held: Held, prepared: Sequence[Rows]) -> None:
    for w in _weights(prepared):
        if len(w) and held.mass[0] + float(w.sum()) * 1.000001 >= 2.0**42:
            raise _overflow()


def _overflow() -> CounterOverflowError:
    return CounterOverflowError("a total weight of 2**42 would be passed; start a new state, or scale the weights down")


def _fronts(front: Ints, rows: Rows) -> Ints:
    """The front cell of each row that is counted; empty where there is one."""
    return front if rows.index is None or not len(front) else front[rows.index]


def _absent(role: str) -> Array:
    return NOTHING if role in ("at", "front") else NO_WEIGHTS


def _absorbs(state: State) -> bool:
    return type(state).absorb is not State.absorb


def _drafts(read: Read) -> bool:
    """Whether plain columns may be counted as they come: every row, in one cell, by kernels alone."""
    state, binding = read.state, read.binding
    by_shard = [a.kind for a in state.axes] == ["shard"] and (state.folds is None or state.most == 0)
    lone = (not state.axes or by_shard) and state.behind is None and state.spread <= 1
    as_is = not state.derives and type(state).admit_rows is State.admit_rows
    return lone and as_is and not (_absorbs(state) or state.together or binding.where or binding.corrects)


def _same_by_shard(
    counter: Counter,
    mine: Mapping[str, int],
    counters: Sequence[Counter],
    bound: Sequence[Mapping[str, int]],
    like: Any,
) -> tuple[Step, Counter, dict[str, int]] | None:
    """The step that counts a lone cell and the same rows by shard at once, the counter of these, and its columns."""
    for other, theirs in zip(counters, bound, strict=True):
        same = type(other.statistic) is type(counter.statistic) and mine.items() <= theirs.items()
        if counter.lone and other.front and same:
            step = counter.statistic.step_with_shards(like, other.statistic)
            if step is not None:
                return step, other, dict(theirs)
    return None


def _cells_of(index: Index, path: Any) -> Callable[[Array], Ints | None]:
    """What turns units into the cells of their shards."""
    return lambda units: index.shards(path, units, SHARD_SALT)


def _mass(states: Sequence[State]) -> float:
    """An upper limit of the total weight that was counted."""
    return max((s.weight_limit() for s in states), default=0.0)


def shard_codes(batch: Batch, name: str, axis: Any) -> Ints:
    """The shard of each row; rows without a unit are raised for, or left out and counted in the first one."""
    ids = batch.column(name, Ids())
    assert isinstance(ids, IdColumn)
    words = (
        [ids.values, NOTHING] if ids.values.ndim == 1 else [np.ascontiguousarray(ids.values[:, i]) for i in range(2)]
    )
    out = np.empty(len(ids.values), np.int64)
    kernel("cells:shard_units")(*words, SHARD_SALT, axis.size, out)
    if ids.missing is not None:
        out[ids.missing] = 0
    return out


SHARD_SALT = np.uint64(0x5348415244000001)
