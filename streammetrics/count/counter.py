"""One statistic in all cells, while rows come: arrays that kernels write to, made from a state, and a state made of them.

What can fail happens before: `room` makes room and changes nothing that a state shows, `bind` compiles.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property, partial
from operator import is_not
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import MemoryLimitError
from ..kernels import reduce
from ..numerics.rows import put
from ..state import retention as policy
from ..state import tally
from ..state.axes import Axis, Vocabulary
from ..state.cells import Cells
from ..state.declare import Flat, Tally, carry
from ..state.fold import ascending
from ..state.state import State
from ..state.tally import Entries
from ..statistics.step import Like
from .index import Index
from .tallies import HotExact, HotTally, weights_less_one, zeros_behind

__all__ = ["Counter", "path_of"]

Array = NDArray[Any]
Ints = NDArray[np.int64]


def path_of(axes: tuple[Axis, ...]) -> tuple[tuple[str, Axis], ...]:
    """The columns that lead to a cell, outermost first, each with its axis."""
    return tuple((name, axis) for axis in axes for name in axis.names)


SAMPLE = 1 << 13  # rows of a batch that are looked at before it is counted


class Counter:
    """A statistic that is being counted.

    Parameters
    ----------
    state : State
        What was seen before.
    index : Index
        Where cells are numbered, shared by all counters of a feed.
    """

    def __init__(self, state: State, index: Index) -> None:
        self.statistic, self.index = state.empty(), index
        self.classes = f"classes {id(self)}"  # of its own: two statistics may read classes of different kinds
        self.front = path_of(state.axes)
        self.inner = self.front if state.behind is None else (*self.front, *self._behind(state))
        self.lone = not self.inner
        self.flats: dict[str, Array] = {}
        self.hot: dict[str, Any] = {}
        self.folded = np.zeros(0, np.uint8)
        self.read_facts()
        self.most = self.exact_rows_limit
        self._load(state)

    def read_facts(self) -> None:
        """Keep what the statistic says about itself, which never changes: batches need not go back to it."""
        statistic = self.statistic
        self.parts, self.folds, self.folds_by_rows = statistic.parts(), statistic.folds, statistic.folds_by_rows
        self.spread, self.times, self.exact_rows_limit = statistic.spread, statistic.times, statistic.most
        self.together, self.open_ended = statistic.together, statistic.open_ended
        self.fixed_weights, self.fixed_terms = statistic.fixed_weights, statistic.fixed_terms

    def _behind(self, state: State) -> tuple[tuple[str, Axis], ...]:
        axis = state.behind
        assert axis is not None
        if axis.kind == "class":
            return tuple((f"{name} {self.classes}", axis) for name in axis.names)
        return ((axis.names[0], axis),)

    # -- from a state -------------------------------------------------------------------------------------------------

    def _load(self, state: State) -> None:
        cells, index = state.cells, self.index
        keys = np.empty_like(cells.keys)
        for i, (name, axis) in enumerate(self.front):
            keys[:, i] = _learned(index, name, axis, cells.words[i], cells.keys[:, i])
        at = _located(index, self.front, keys, np.zeros(len(keys), np.int64))
        places = at
        if cells.inner is not None:
            axis = self.inner[-1][1]
            below = cells.inner[:, 1:]
            if axis.kind == "class":
                codes = index.numbers(self.classes).learn(cells.behind or Vocabulary())
                below = codes[below] if len(codes) else below
            places = _located(index, self.inner, below, at[cells.inner[:, 0]], len(self.front))
        fronts, count = max(index.count(self.front), 1), max(index.count(self.inner), 1)
        for name, part in self.parts.items():
            if isinstance(part, Flat):
                if name in cells.flats:
                    size, where = (fronts, at) if part.front or cells.inner is None else (count, places)
                    self.flats[name] = part.empty(self.statistic, size)
                    put(self.flats[name], where, cells.flats[name])
                elif not part.optional:
                    self.flats[name] = part.empty(self.statistic, count)
            else:
                entries = cells.tallies[name]
                if not _is_identity(places):
                    entries = entries.moved(places, state.starts(name), ascending=False)
                self._take(name, part, entries, count)

    def _take(self, name: str, part: Tally, entries: Entries, cells: int) -> None:
        shift = part.shift(self.statistic)
        folds = self.folds
        if part.wide(self.statistic):
            hot: Any = HotExact(shift, lone=self.lone)
            hot.take(entries)
        else:
            folds_here = folds is not None and name == folds[1] and not self._all_folded
            awake = not folds_here or len(entries) > 0
            hot = HotTally(shift, part.count(self.statistic), lone=self.lone, awake=awake)
            hot.take(entries, cells)
            if folds_here:
                self.folded = np.zeros(cells, np.uint8)
                self.folded[entries.cells] = 1
        self.hot[name] = hot

    # -- room ---------------------------------------------------------------------------------------------------------

    @property
    def left(self) -> int:
        """Rows for which there is room in the cells there are, whatever their weights; 0 if somebody has to look."""
        if not (self.lone or self._all_folded):
            return 0
        room, cells = 1 << 62, max(self.index.count(self.inner), 1)
        for hot in self.hot.values():
            if isinstance(hot, HotTally):
                room = min(room, hot.left(cells))
            elif not self._folded_alone:
                room = min(room, hot.left(self.most) // self.times)
        return room

    @property
    def _folded_alone(self) -> bool:
        """Whether all rows that come go to buckets."""
        return self._all_folded or (self.lone and bool(self.folded.any()))

    @cached_property
    def _all_folded(self) -> bool:
        return self.folds is None or self.exact_rows_limit == 0

    @property
    def present(self) -> frozenset[str]:
        """Optional parts that are there."""
        return frozenset(n for n in self.flats if self.parts[n].optional)

    @property
    def dense(self) -> frozenset[str]:
        """Tallies that have a counter for each place, and all of whose rows go there."""
        folds = self.folds
        found = {n for n, h in self.hot.items() if isinstance(h, HotTally) and h.dense}
        if folds is not None and not self._folded_alone:
            found.discard(folds[1])
        return frozenset(found)

    def like(self, columns: Mapping[str, Any]) -> Like:
        """What is known of rows of such columns, before their values."""
        return Like(columns, self.lone, self.dense, self.present)

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return int(sum(a.nbytes for a in self.flats.values()) + sum(h.nbytes for h in self.hot.values()))

    def need(self, rows: int) -> int:
        """An upper limit of the bytes that are held when so many more rows have come."""
        cells = max(self.index.count(self.inner), 1)
        fronts = max(self.index.count(self.front), 1)
        parts = self.parts
        flats = sum(a[:1].nbytes * (fronts if parts[n].front else cells) for n, a in self.flats.items())
        placed = rows * self._places
        hot = sum(
            h.need(cells, placed) if isinstance(h, HotTally) else h.nbytes + 13 * placed for h in self.hot.values()
        )
        return flats + hot

    @property
    def _places(self) -> int:
        """In how many places of its cell a row is counted: several outputs have one each."""
        return max(self.times // max(self.spread, 1), 1)

    def room(self, rows: int, *, weighted: bool) -> bool:
        """Make room for so many rows in all cells there are; return whether an array is another one now.

        Raises
        ------
        MemoryLimitError
            The statistic has a limit of its own.
        """
        if not self.lone:
            cells, fronts = self.index.count(self.inner), self.index.count(self.front)
            self._check_classes()
            for name, array in self.flats.items():
                part = self.parts[name]
                size = fronts if part.front else cells
                if size > len(array):
                    new = part.empty(self.statistic, max(size, 2 * len(array)))
                    new[: len(array)] = array
                    self.flats[name] = new
            if not self._all_folded and cells > len(self.folded):
                self.folded = zeros_behind(self.folded, 2 * cells)
        limit = getattr(self.statistic, "memory_limit", None)
        if limit is not None and self.open_ended and self.need(rows) > limit:
            self._check_limit(rows, limit)
        if weighted or self.left < rows:
            self._room_in_tallies(rows, weighted=weighted)
        fresh = weighted and self._weigh()
        if fresh or self._moved:
            self.given = {}
            return True
        return False

    @property
    def _moved(self) -> bool:
        """Whether an array that kernels were bound to is another one now."""
        return any(any(map(is_not, held, self._arrays(name))) for name, held in self.given.items())

    def admit_rows(self, columns: Mapping[str, Any], at: Ints) -> None:
        """Raise unless checked rows, each in its front cell, may be counted, together and with those before."""
        sources = {role: c.source for role, c in columns.items() if len(c.values)}
        self.statistic.admit_rows(columns, at)
        self.statistic.admit_beside(self.flats, sources)

    def _check_classes(self) -> None:
        if self.inner[-1][1].kind == "class":
            count = self.index.numbers(self.classes).count
            try:
                self.statistic.admit_classes(count)
            except MemoryLimitError:  # those of batches that failed are numbered, too
                self.statistic.admit_classes(len(np.unique(self.index.codes(self.inner)[:, len(self.front) :])))

    def _check_limit(self, rows: int, limit: int) -> None:
        for hot in self.hot.values():
            if isinstance(hot, HotExact):
                hot.take(hot.settle())  # what waited gives its room back
        if (found := self.need(rows)) > limit:
            raise MemoryLimitError(
                f"{type(self.statistic).__name__} would need up to {found:,} bytes; its memory_limit is {limit:,}"
            )

    def _room_in_tallies(self, rows: int, *, weighted: bool) -> None:
        cells, most = max(self.index.count(self.inner), 1), self.most
        for hot in self.hot.values():
            if isinstance(hot, HotExact) and not self._folded_alone and hot.full(rows * self._places):
                self._settle_folding()
        for hot in self.hot.values():
            if isinstance(hot, HotTally):
                hot.room(cells, rows * self._places, weighted=weighted)
            elif not self._folded_alone:
                hot.room(rows * self._places, most, weighted=weighted)

    # -- exact rows that become buckets -------------------------------------------------------------------------------

    def folds_with(self, rows: int) -> bool:
        """Whether so many more rows in a lone cell make it too large to be exact: they are checked before they come."""
        if self._all_folded or not self.lone or self.most is None or self._folded_alone:
            return False
        more = rows * self.times
        return any(isinstance(h, HotExact) and h.rows + more > self.most for h in self.hot.values())

    def fold_ahead(self, at: Ints, rows: int, columns: Mapping[str, Any]) -> None:
        """Fold the cells that rows, which are good, make too large: so they go to buckets at once."""
        most, spread = self.exact_rows_limit, self.spread
        if self._all_folded or most is None:
            return
        if self.lone:
            if self.folds_with(rows) and self._outgrown(rows, columns):
                self._fold(np.ones(1, bool))
        elif not self.folds_by_rows:
            return  # `_settle_folding` decides when the rows that wait are sorted
        elif max(rows, len(at)) * self._places > most:
            cells = at if spread == 1 else at // spread
            many = np.bincount(cells, minlength=len(self.folded)) * self._places > most
            if (many > zeros_behind(self.folded, len(many))).any():  # some cells may be new
                self._fold(many)

    def _outgrown(self, rows: int = 0, columns: Mapping[str, Any] | None = None) -> bool:
        """Return whether a lone cell with so many more rows goes to buckets; if not, let twice as many rows wait."""
        statistic, hot = self.statistic, self.hot[self.folds[0]]  # type: ignore[index]
        if self.folds_by_rows:
            return True
        more = None if columns is None else statistic.sample(columns, SAMPLE)
        known = hot.settle() if more is None else tally.united([hot.settle(), more])
        if statistic.outgrown(known, np.ones(1, bool)).any():
            return True
        self.most = 2 * (hot.rows + rows)
        return False

    def mark(self) -> Any:
        """What to come back to with `restore`, should rows for which cells were folded not be counted after all."""
        return self.folded, self.flats, self.hot

    def restore(self, mark: Any) -> None:
        """Go back to cells that were exact."""
        folded, flats, hot = mark
        if self.hot is not hot:
            given = {name: arrays for name, arrays in self.given.items() if name in flats or name in hot}
            self.__dict__.update(folded=folded, flats=flats, hot=hot, given=given)

    def _settle_folding(self) -> None:
        """Turn the exact rows of cells that hold too many into buckets."""
        statistic = self.statistic
        if self._all_folded or self.exact_rows_limit is None:
            return
        hot, cells = self.hot[self.folds[0]], max(self.index.count(self.inner), 1)  # type: ignore[index]
        if self.lone:
            if hot.rows > self.exact_rows_limit and self._outgrown():
                self._fold(np.ones(1, bool))
            return
        entries = hot.settle()
        starts = entries.starts(cells)
        run = np.concatenate([[0], np.cumsum(entries.mass)])
        folded = zeros_behind(self.folded, cells)[:cells] != 0
        many = np.diff(run[starts]) > self.exact_rows_limit
        if many.any() and not self.folds_by_rows:
            many = statistic.outgrown(entries, many)
        many |= folded & (np.diff(starts) > 0)
        if many.any():
            self._fold(many)

    def _fold(self, many: NDArray[np.bool_]) -> None:
        """Turn the exact rows of some cells into buckets; all of them, or, should this be interrupted, none."""
        statistic = self.statistic
        assert self.folds is not None
        exact, rows, flag = self.folds
        old, coarse, cells = self.hot[exact], self.hot[rows], max(self.index.count(self.inner), 1)
        folded, off_grid = zeros_behind(self.folded, len(many)).copy(), self.flats[flag].copy()
        folded[np.flatnonzero(many)] = 1
        new, fine = HotTally(coarse.shift, coarse.places, lone=self.lone), HotExact(old.shift, lone=self.lone)
        if self.lone:
            made, off = statistic.bucketed(old.everything())
        else:
            entries = old.settle()
            apart = folded[entries.cells] != 0
            made, off = statistic.bucketed(entries.where(apart))
            fine.take(tally.canonical(entries.where(~apart)))
        off_grid[off] = 1
        new.take(tally.add(coarse.settled(), made), cells)
        update = {"folded": folded, "flats": self.flats | {flag: off_grid}, "hot": self.hot | {rows: new, exact: fine}}
        self.__dict__.update(update)

    # -- what kernels are given ---------------------------------------------------------------------------------------

    def held(self, part: Any) -> tuple[Any, ...]:
        """The arrays that stand for a part among the arguments of a kernel."""
        name = part.name
        if isinstance(part, Flat):
            if name not in self.flats:
                self.flats[name] = self._made(part)
            self.given[name] = self._arrays(name)
            return (self.flats[name].reshape(-1),)
        hot = self.hot[name]
        self.given[name] = self._arrays(name)
        if isinstance(hot, HotExact):
            return (self.folded, *hot.target())
        target: tuple[Any, ...] = hot.target()
        return target

    @cached_property
    def given(self) -> dict[str, tuple[Array, ...]]:
        """What kernels were bound to."""
        return {}

    def _arrays(self, name: str) -> tuple[Array, ...]:
        """The arrays behind a part: while they are the same, what was bound to them is good."""
        if name in self.flats:
            return (self.flats[name],)
        target = self.hot[name].target()
        return (self.folded, *(a for a in target if isinstance(a, np.ndarray)))

    def _made(self, part: Flat) -> Array:
        """An optional part, spelled out as it was while it was absent; kernels go over all cells that have room."""
        parts = self.parts
        rooms = [len(a) for n, a in self.flats.items() if parts[n].front == part.front]
        made = part.empty(self.statistic, max([self.index.count(self.front if part.front else self.inner), 1, *rooms]))
        if part.like is None:
            return made
        source = self.flats[part.like]
        if made.ndim == source.ndim:
            made[: len(source)] = source
        else:
            made[: len(source), ..., 0] = source << 20
        return carry(part.form, made)

    @property
    def weighed(self) -> bool:
        """Whether there are parts that only weights make: rows without them feed these, too, as rows of weight 1."""
        return not self._of_weights.isdisjoint(self.flats)

    @cached_property
    def _of_weights(self) -> frozenset[str]:
        return frozenset(part.name for part in self._optional if part.like is not None)

    @property
    def _optional(self) -> list[Flat]:
        return [p for p in self.parts.values() if isinstance(p, Flat) and p.optional]

    def _weigh(self) -> bool:
        """Make the parts that weights make; return whether one is new."""
        fresh = [p for p in self._optional if p.like is not None and p.name not in self.flats]
        for part in fresh:
            self.held(part)
        return bool(fresh)

    def absorbed(self, columns: Mapping[str, Any], at: Ints, rows: int) -> list[Callable[[], Any]]:
        """Count rows aside, by the statistic's own numpy; return the calls that put the result in place."""
        statistic, parts = self.statistic, self.parts
        if not rows:
            return []
        into: dict[str, Any] = {}
        for name, part in parts.items():
            if isinstance(part, Flat) and name not in ("dropped", "rounded"):
                if name not in self.flats and part.optional:
                    into[name] = self._made(part)
                else:
                    into[name] = self.flats[name].copy()
            elif isinstance(part, Tally):
                into[name] = []
        statistic.absorb(into, at if len(at) else np.zeros(rows, np.int64), **columns)
        calls: list[Callable[[], Any]] = []
        fresh, hot = dict(self.flats), dict(self.hot)
        for name, made in into.items():
            part = parts[name]
            if isinstance(part, Flat):
                fresh[name] = carry(part.form, made)
            elif made:
                hot[name] = self._retaken(part, made)
        calls.append(partial(self.__dict__.update, {"flats": fresh, "hot": hot}))
        return calls

    def _retaken(self, part: Tally, given: list[Any]) -> Any:
        """A tally with more entries."""
        shift, cells = part.shift(self.statistic), max(self.index.count(self.inner), 1)
        old, more = self.hot[part.name], []
        for at, places, weights in given:
            high = at.astype(np.uint32) << np.uint32(max(shift - 64, 0)) if part.wide(self.statistic) else None
            kind = np.uint64 if high is not None else tally.code_type(cells << shift)
            codes = places.astype(kind) if high is not None else (at.astype(kind) << kind(shift)) | places.astype(kind)
            excess = None if weights is None else weights_less_one(np.asarray(weights, np.float64))
            more.append(tally.reduce(Entries(shift, codes, np.ones(len(codes), np.uint32), excess, high)))
        if isinstance(old, HotExact):
            fresh: Any = HotExact(shift, lone=self.lone)
            fresh.take(tally.united([old.settle(), *more]))
        else:
            fresh = HotTally(shift, old.places, lone=self.lone)
            fresh.take(tally.united([old.settled(), *more]), cells)
        return fresh

    # -- to a state ---------------------------------------------------------------------------------------------------

    def state(self) -> State:
        """What was counted, in canonical form."""
        self._settle_folding()
        statistic, index = self.statistic, self.index
        fronts, cells = (index.count(p) if p else 1 for p in (self.front, self.inner))
        names = [n for n, _ in self.front]
        words, keys = _ranked(index, self.front, index.codes(self.front)[:, : len(names)])
        order = ascending(keys) if len(names) else np.zeros(1, np.int64)
        inner = behind = None
        below = order
        if statistic.behind is not None:
            inner, behind = self._inner_table(order)
            below = ascending(inner)
            inner = inner.take(below, axis=0)
        flats = {}
        for name, array in self.flats.items():
            front = self.parts[name].front or inner is None
            flats[name] = array[: fronts if front else cells].take(order if front else below, axis=0)
        tallies = {n: self._in_order(h, below) for n, h in self.hot.items()}
        made = statistic.holding(Cells(statistic.axes, keys[order], words, inner, behind, flats, tallies))
        if self.lone and self.folds is not None and not self._folded_alone:  # known, and slow to add up
            made.__dict__["rows_behind"] = np.array([self.hot[self.folds[0]].rows // self.times])
        return policy.settled(made.present())

    def _inner_table(self, order: Ints) -> tuple[Ints, Vocabulary | None]:
        """The cells behind front ones, with these in their new order."""
        index, axis = self.index, self.inner[-1][1]
        to = np.empty(len(order), np.int64)
        to[order] = np.arange(len(order))
        codes = index.codes(self.inner)[:, len(self.front) :]
        above = index.parents(self.inner)
        for path in [self.inner[:i] for i in range(len(self.inner) - 1, len(self.front), -1)]:
            above = index.parents(path)[above]
        behind = None
        if axis.kind == "class":
            behind, flat = index.numbers(self.classes).ranked(np.ascontiguousarray(codes.reshape(-1)))
            codes = flat.reshape(codes.shape)
        fronts = to[above] if self.front else np.zeros(len(codes), np.int64)
        return np.column_stack([fronts, codes]), behind

    def _in_order(self, hot: Any, order: Ints) -> Entries:
        entries: Entries = hot.settle() if isinstance(hot, HotExact) else hot.settled()
        if self.lone or _is_identity(order) or not len(entries):
            return entries
        return _gathered(entries, order)


def _gathered(entries: Entries, order: Ints) -> Entries:
    """Entries with cells in another order."""
    starts = entries.starts(len(order))
    if entries.excess is not None:
        return entries.take(order, starts)
    counts, high = np.empty_like(entries.counts), None
    reduce.gather(entries.counts, starts, order, 0, counts)
    if entries.high is not None:
        codes: Array = np.empty_like(entries.codes)
        reduce.gather(entries.codes, starts, order, 0, codes)
        high = np.repeat(np.arange(len(order), dtype=np.uint32), np.diff(starts)[order])
        if entries.top:
            labels = entries.high & np.uint32((1 << entries.top) - 1)
            moved = np.empty_like(labels)
            reduce.gather(labels, starts, order, 0, moved)
            high = (high << np.uint32(entries.top)) | moved
        return replace(entries, codes=codes, counts=counts, high=high)
    kind = tally.code_type(len(order) << entries.shift)
    codes = np.empty(len(entries), kind)
    reduce.gather(entries.codes.astype(kind, copy=False), starts, order, entries.shift, codes)
    return tally.canonical(replace(entries, codes=codes, counts=counts))


def _is_identity(order: Ints) -> bool:
    return bool(np.array_equal(order, np.arange(len(order))))


def _learned(index: Index, name: str, axis: Axis, words: Vocabulary, ranks: Ints) -> Ints:
    """The codes of keys of a finished state; marks stay."""
    if axis.kind == "shard":  # which are numbers themselves
        codes = np.asarray(words.values, np.int64)
        if len(codes):
            index.numbers(name, axis.kind).kind = words.kind
    else:
        codes = index.numbers(name, axis.kind).learn(words)
    return np.where(ranks < 0, ranks, codes[np.maximum(ranks, 0)]) if len(codes) else ranks


def _located(index: Index, path: Any, codes: Ints, above: Ints, first: int = 0) -> Ints:
    """The cells of keys, each column of which is a step of the path."""
    if len(path) <= first:
        return above
    at = above if first else above[:0]
    step = first
    while step < len(path):
        column = step - first
        name_axis = path[step]
        wide = name_axis[1].kind == "group"
        given = codes if wide else np.ascontiguousarray(codes[:, column])
        made: dict[Any, Ints] = {path[:step]: at} if step else {}
        at = index.locate(path[: step + 1], _given(given), made)
        step += 1
    return at


def _given(codes: Ints) -> Callable[[Any], Ints]:
    return lambda _: codes


def _ranked(index: Index, path: Any, codes: Ints) -> tuple[tuple[Vocabulary, ...], Ints]:
    """The vocabulary of each column, and keys as ranks in them."""
    out, words = np.empty_like(codes), []
    for i, (name, axis) in enumerate(path):
        if axis.kind != "shard":
            vocabulary, out[:, i] = index.numbers(name, axis.kind).ranked(codes[:, i])
        else:
            vocabulary = Vocabulary.of(index.numbers(name, axis.kind).kind, codes[:, i][codes[:, i] >= 0])
            out[:, i] = np.where(codes[:, i] < 0, codes[:, i], vocabulary.ranks(np.maximum(codes[:, i], 0)))
        words.append(vocabulary)
    return tuple(words), out
