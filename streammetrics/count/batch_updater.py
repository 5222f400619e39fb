"""The feed: the one way a batch is counted.

What is known of a batch before its values, the dtypes and strides of its columns, leads to a draft: how each column
becomes what kernels read, and one call that counts in all statistics or in none. The draft is made once, so small
batches are quick. Rows that a task selects, keys and rankings are prepared by columns, batch by batch; they are counted
by the same call.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from operator import is_not
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..batch.columns import Batch, Column
from ..batch.convert import is_scalar, one_column
from ..batch.ids import IdColumn, Ids
from ..batch.prepared_batch import Rows, check_either, prepare
from ..batch.query_blocks import check_slices, whole_blocks
from ..batch.signatures import (
    NONE_WIDENED,
    SIGNATURES,
    as_plain,
    batch_of,
    likeness,
    signature_of_rows,
    widened_columns,
)
from ..batch.times import TimeColumn
from ..errors import CounterOverflowError, MemoryLimitError
from ..numerics.kernel_registry import kernel
from ..numerics.keys import SHARDS
from ..numerics.signal_safety import at_once, holding
from ..state.state import State
from ..statistics.step import NO_WEIGHTS, NOTHING
from .drafts import SHARD_SALT, Draft, Given, Held, Last, absorbs, bind, can_draft, counting, draft_of
from .reads import MEMORY_LIMIT, Read

if TYPE_CHECKING:
    from .counter import Counter
    from .index import Index

__all__ = ["Feed", "StateChange", "change", "hold", "shard_codes"]

Array = NDArray[Any]
Ints = NDArray[np.int64]


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
        self._needs_by_binding = [(r.binding, n) for r, n in zip(self.reads, self._needs, strict=True)]
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
        self._drafts = how != "drop" and all(map(can_draft, self.reads))

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

    def adding(self, theirs: Sequence[State]) -> StateChange:
        """To add what others have seen.

        Raises
        ------
        IncompatibleStateError
            Kinds of keys differ, or rows refuse to be there twice.
        MemoryLimitError
            Both together take more than the memory limit.
        """
        return StateChange(self, lambda ours: self._within([a.merge(b) for a, b in zip(ours, theirs, strict=True)]))

    def taking(self, gone: Sequence[State]) -> StateChange:
        """To take away what some rows made; raises as `State.subtract` does."""
        return StateChange(self, lambda ours: self._within([a.subtract(b) for a, b in zip(ours, gone, strict=True)]))

    def correcting(self, added: Sequence[State], gone: Sequence[State]) -> StateChange:
        """To add what some rows made, and take away what others did, as one; raises as both do."""
        return StateChange(
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
            self._explain(batch_of(last.names, given), held)
        return None

    def _count_arrays(self, names: tuple[str, ...], given: tuple[Any, ...]) -> None:
        """Do what `count_arrays` does, of columns that are not like those before."""
        arrays, widened = given, NONE_WIDENED
        if not self._drafts or not 0 < len(arrays) <= 16:
            return self.count_batch(batch_of(names, given))
        key = SIGNATURES[len(arrays)](*arrays)  # type: ignore[misc]
        if key is None:
            widened = widened_columns(names, given)
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
                arrays, key = (flats, key) if key is not None else (arrays, signature_of_rows(arrays))
            key = None if key is None else (*key, widened)
        if key is None or not key[0]:
            return self.count_batch(batch_of(names, given, widened))
        held = self._content[1]
        draft = held.drafts.get((names, key)) if held is not None else None
        if held is None or draft is None:
            with self.lock:
                held, draft = self._ready(names, key, arrays, widened)
            if draft is None:
                return self.count_batch(batch_of(names, given, widened))
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
                    like = likeness(tuple([a.ndim for a in arrays]))(
                        *(fact for a in arrays for fact in (a.dtype, a.strides, *a.shape[1:]))
                    )
                    held.last[0] = Last(names, like, draft.commit, draft.makes)
                found = draft.commit(*flat)
        if draft is None:
            return self.count_batch(batch_of(names, given, widened))
        if found:
            self._explain(batch_of(names, given, widened), held)
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
        return held, held.drafts.get((names, key)) or draft_of(
            self.reads, self._needs, held, names, key, arrays, widened
        )

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

    # -- batches that have to be prepared -----------------------------------------------------------------------------

    def count_batch(self, batch: Batch) -> None:
        """Count a batch whose columns are converted and checked here, and may be shared with other feeds."""
        counting()  # columns and derivations look for kernels
        check_either(self._needs_by_binding, batch)
        prepared: list[Rows] = []
        for i, first in enumerate(self._first):
            prepared.append(prepared[first] if first < i else self._prepared(batch, i))
        derived = [
            rows.columns if absorbs(read.state) else read.state.derive(rows.columns)
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
            if len(fronts) and (role := counter.together):
                check_slices(rows, role, fronts)
            counter.admit_rows(rows.columns, fronts)
        _check_mass(held, prepared)
        held.left[0] = min(held.left[0], 0)
        for counter, rows, (_, at) in zip(held.counters, prepared, places, strict=True):
            counter.fold_ahead(at, rows.n, rows.columns)
        most = max((r.n * c.spread for c, r in zip(held.counters, prepared, strict=True)), default=0)
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
            if absorbs(counter.statistic):
                extra += counter.absorbed(rows.columns, at, rows.n)
                continue
            for role, column in columns.items():
                if isinstance(column.values, np.ndarray) and column.values.dtype != object:
                    mine[role] = given.place(column.values, column.source)
            ones = np.ones(rows.n * counter.spread) if counter.weighed else NO_WEIGHTS
            for role, values in (("at", at), ("front", fronts), ("ones", ones)):
                if len(values):
                    mine[role] = given.place(values, "")
        flats, typed, ndims = given.flats, given.typed, given.ndims
        key = tuple(typed), tuple(ndims), tuple([tuple(m.items()) for m in bound])
        draft = held.drafts.get(key)
        if draft is None:
            draft = Draft(None, bind(held, bound, typed, None, ndims))
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
        if (width := counter.spread) > 1:
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
        if column is None or not len(column.values) or not counter.fixed_weights:
            return []
        at = fronts
        if len(at) and len(at) != len(column.values):  # one weight for each block of rows
            keys = rows.columns[counter.together or ""]
            assert isinstance(keys, IdColumn)
            at = np.ascontiguousarray(at[keys.starts])
        values = np.ascontiguousarray(column.values).reshape(-1)
        if len(at) and len(values) != len(at):  # one for each row and label
            at = np.repeat(at, len(values) // len(at))
        noted = counter.held(State.rounded)[0]
        return [_compiled("checks:note_rounding", values, at, counter.fixed_terms, mass, noted)]

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


class StateChange(NamedTuple):
    """A feed, and what makes of its states those that it is to have."""

    feed: Feed
    how: Callable[[tuple[State, ...]], Sequence[State]]


def change(changes: Sequence[StateChange]) -> None:
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
