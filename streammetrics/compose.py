"""Any metric, by slice: one pass, one state with a leading axis of slices, exact totals and roll-ups."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .arrays import Array
from .codec import decoders
from .collection import MetricCollection
from .columns import Batch
from .encodable import Encodable
from .errors import IncompatibleStateError, MemoryLimitError
from .intake import Binding, Unit
from .keys import Coded, Key, KeyColumns, decode_key, encode_key, fixed_hash, kind_of, plain_key, sort_key
from .metric import Metric, badness
from .plan import Plan, count_units, records
from .settings import canonical_json
from .state import State
from .table import Table
from .task import Metrics, flatten

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Sliced"]

OTHER = 0  # the slice of everything that a limit does not keep
UNMET = -1
MEMORY_LIMIT = 4 << 30


class Sliced(Encodable):
    """A metric, or a collection, for every value of some columns.

    Parameters
    ----------
    metric : metric, Task, MetricCollection, or list or dict of metrics
        What to compute in every slice.
    by : str or sequence of str
        The slicing columns; several make their cross. Keys are integers, strings or bytes; null is a slice of its own.
    limit : int, optional
        Keep at most so many slices: those whose key has the smallest fixed hash, whatever the order of rows. The others
        are merged, exactly, into `other`.
    values : list, optional
        Keys that are always kept, beyond the limit.
    memory_limit : int
        Raise MemoryLimitError rather than take more bytes than this.
    on_invalid : {"raise", "drop"}
        Whether a bad row raises, or is left out and counted.

    Notes
    -----
    A slice costs what the states of the metrics cost: 1 MiB for an AUC of 16 bits, 64 KiB at 12 bits (of which only what
    is touched becomes resident), 100 bytes for sums. A row costs 2 to 5 ns more than without slices, with keys as Arrow
    dictionaries least.

    Examples
    --------
    >>> import streammetrics as sm
    >>> arms = sm.Sliced(sm.AUC(), by="variant")
    >>> arms.update([0, 1, 0, 1], [0.1, 0.9, 0.6, 0.4], variant=["A", "A", "B", "B"]).compute()
    {'A': 1.0, 'B': 0.0}
    >>> arms.total.compute()
    0.75
    """

    def __init__(
        self,
        metric: Metrics | MetricCollection,
        *,
        by: str | Iterable[str],
        limit: int | None = None,
        values: Iterable[Any] = (),
        memory_limit: int = MEMORY_LIMIT,
        on_invalid: str | None = None,
    ) -> None:
        names = (by,) if isinstance(by, str) else tuple(by)
        inner = metric if isinstance(metric, MetricCollection) else MetricCollection(*flat(metric))
        lone = isinstance(metric, Metric)
        self.memory_limit = memory_limit
        self.on_invalid: str = on_invalid or str(getattr(metric, "on_invalid", "raise"))
        if isinstance(values, (str, bytes)):
            raise TypeError(f"values= takes a list of keys, not {values!r}")
        pinned = {plain_key(v, names) for v in values}
        kept = frozenset(pinned) if limit is not None else frozenset()  # without a limit all are kept
        self._hold(inner._plan.restrict(inner.names), names, lone, limit, kept)
        for unit in self._plan.units:
            unit.state = unit.state.empty(1)

    def _guard(self) -> threading.Lock:
        return self._lock

    def _hold(self, plan: Plan, by: tuple[str, ...], lone: bool, limit: int | None, pinned: frozenset[Key]) -> None:
        if not by or len(set(by)) != len(by) or not all(isinstance(n, str) for n in by):
            raise ValueError(f"by= takes one or more different column names, not {by!r}")
        if limit is not None and (type(limit) is not int or limit < 0):
            raise ValueError(f"limit must be a number of slices, not {limit!r}")
        if any(len(key) != len(by) for key in pinned):
            raise ValueError(f"values= takes keys of {len(by)} columns, {', '.join(by)}")
        self._plan, self._by, self._lone, self._limit, self._pinned = plan, by, lone, limit, pinned
        self._lock = threading.Lock()
        self._kept: list[Key] = []  # slice i + 1 holds key i
        self._hashes: dict[Key, int] = {}
        self._columns = KeyColumns(by)
        for i, column in enumerate(self._columns.columns):
            column.kind = kind_of((key[i] for key in pinned), column.name)
        self._slot = np.zeros(0, np.int64)  # of each key number: its slice, OTHER or UNMET

    # -- rows in -------------------------------------------------------------------------------------------------------

    def update(self, y_true: Any = None, y_score: Any = None, /, **columns: Any) -> Self:
        """Count a batch, each row in its slice.

        Parameters
        ----------
        y_true : array-like of shape (n,), or table
            Labels; or a mapping, data frame, Arrow table or record batch that holds all columns by name.
        y_score : array-like of shape (n,)
            Scores.
        **columns : array-like of shape (n,)
            The slicing columns, and the others by name.

        Raises
        ------
        InvalidInputError
            A column is missing, of another length, or holds a bad value. Nothing was counted.
        MemoryLimitError
            The slices would take more than `memory_limit`; nothing was counted.
        """
        return self.absorb(Batch(self._plan.mapping("Sliced", (y_true, y_score), columns, self._by)))

    def absorb(self, batch: Batch) -> Self:
        """Count a batch whose columns other collections may share."""
        units = self._plan.units
        prepared = [unit.prepare(batch, self.on_invalid) for unit in units]
        with self._lock:
            before = self._held()
            try:
                count_units(units, prepared, self._place(self._columns.numbers(batch)))
            except BaseException:
                self._put_back(*before)
                raise
        return self

    def _held(self) -> tuple[Any, ...]:
        """Everything that changes before rows are counted; none of it is written to in place."""
        states = [(u, u.state, dict(u.state.__dict__)) for u in self._plan.units]
        return states, self._kept, self._slot, self._columns.kinds

    def _put_back(self, states: Any, kept: list[Key], slot: NDArray[np.int64], kinds: tuple[str, ...]) -> None:
        for unit, state, held in states:
            unit.state = state
            state.__dict__.update(held)
        self._kept, self._slot = kept, slot
        for column, kind in zip(self._columns.columns, kinds, strict=True):
            column.kind = kind

    def _place(self, coded: Coded) -> NDArray[np.int64]:
        """Return the slice of each row, made room for."""
        numbers, index = coded
        most = int(numbers.max()) + 1 if len(numbers) else 0
        if most > len(self._slot):
            self._slot = np.concatenate([self._slot, np.full(most, UNMET)])
        at = self._slot.take(numbers)  # quicker than indexing
        if len(at) and at.min() < 0:
            self._admit([(int(n), self._columns.key(int(n))) for n in self._unmet(coded, at)])
            at = self._slot.take(numbers)
        return at if index is None else at.take(index)

    def _unmet(self, coded: Coded, at: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the numbers without a slice that some row has; a dictionary may hold entries that none has."""
        seen = at < 0
        if coded.entries is not None:
            used = np.zeros(len(at), bool)
            used[coded.entries] = True
            seen &= used
        return np.unique(coded.numbers[seen])

    def _admit(self, new: list[tuple[int, Key]]) -> None:
        """Give new keys a slice, or send them to `other`; keys met before may have to make way."""
        known = {key: i + 1 for i, key in enumerate(self._kept)}
        kept = self._chosen([*self._kept, *(k for _, k in new)])
        fresh = [key for _, key in new if key in kept and key not in known]
        leaving = [key for key in self._kept if key not in kept]
        self._check_memory(len(self._kept) - len(leaving) + len(fresh) + 1)
        self._kept, self._slot = list(self._kept), self._slot.copy()  # see `_held`
        if leaving:
            self._rearrange([key for key in self._kept if key in kept])
            known = {key: i + 1 for i, key in enumerate(self._kept)}
        for key in fresh:
            self._kept.append(key)
            known[key] = len(self._kept)
        self._grow(len(self._kept) + 1)
        for number, key in new:
            self._slot[number] = known.get(key, OTHER)

    def _chosen(self, keys: Iterable[Key]) -> set[Key]:
        """Return the keys that stay within the limit: the pinned ones, and those of smallest hash."""
        keys = list(keys)
        if self._limit is None:
            return set(keys)
        for key in keys:
            if key not in self._hashes:
                self._hashes[key] = fixed_hash(key)
        free = sorted((k for k in set(keys) if k not in self._pinned), key=lambda k: (self._hashes[k], sort_key(k)))
        chosen = {k for k in keys if k in self._pinned} | set(free[: self._limit])
        self._hashes = {k: h for k, h in self._hashes.items() if k in chosen}
        return chosen

    def _rearrange(self, keys: list[Key]) -> None:
        """Keep these keys, in this order; add every other slice to `other`."""
        place = {key: i + 1 for i, key in enumerate(keys)}
        to = np.array([OTHER, *(place.get(key, OTHER) for key in self._kept)], np.int64)
        for unit in self._plan.units:
            unit.state = unit.state.regroup(to, len(keys) + 1)
        self._kept = keys
        met = self._slot >= 0
        self._slot[met] = to[self._slot[met]]

    def _grow(self, slices: int) -> None:
        for unit in self._plan.units:
            have = unit.state.slices or 0
            if slices > have:
                unit.state.resize(max(slices, min(2 * have, self._affordable(unit, slices))))

    def _affordable(self, unit: Unit, slices: int) -> int:
        """Return how many slices the memory limit allows to set aside for growth."""
        per = sum(u.state.nbytes // max(u.state.slices or 1, 1) for u in self._plan.units)
        return max(slices, self.memory_limit // max(per, 1))

    def _check_memory(self, slices: int) -> None:
        per = sum(u.state.nbytes // max(u.state.slices or 1, 1) for u in self._plan.units)
        if slices * per > self.memory_limit:
            raise MemoryLimitError(
                f"{slices:,} slices of {per:,} bytes pass the memory_limit of {self.memory_limit:,}; use fewer bits, "
                f"limit= to keep some slices and merge the others, or raise memory_limit"
            )

    # -- merging -------------------------------------------------------------------------------------------------------

    def merge(self, other: Sliced) -> Self:
        """Add what another worker has seen; `other` stays as it is.

        Raises
        ------
        IncompatibleStateError
            Metrics, columns, limits or kinds of keys differ; both are as they were.
        MemoryLimitError
            The slices together would take more than `memory_limit`.
        """
        if other is self:
            raise IncompatibleStateError(
                "merging slices with themselves counts rows twice; merge a copy() if you mean it"
            )
        if found := self._differences(other):
            raise IncompatibleStateError(f"cannot merge these slices: {'; '.join(found)}")
        with self._lock:
            union = [*self._kept, *(k for k in other._kept if k not in set(self._kept))]
            chosen = self._chosen(union)
            keys = [k for k in union if k in chosen]
            self._check_memory(len(keys) + 1)
            place = {key: i + 1 for i, key in enumerate(keys)}
            ours, theirs = (np.array([OTHER, *(place.get(k, OTHER) for k in s._kept)], np.int64) for s in (self, other))
            pairs = [
                (u, next(t for t in other._plan.units if t.binding == u.binding and _alike(t, u)))
                for u in self._plan.units
            ]
            made = [
                (u, u.state.regroup(ours, len(keys) + 1).merge(t.state.regroup(theirs, len(keys) + 1)))
                for u, t in pairs
            ]
            for unit, state in made:
                unit.state = state
            self._take_keys(keys, other._columns)
        return self

    def _take_keys(self, keys: list[Key], columns: KeyColumns) -> None:
        """Hold these keys; they are numbered as rows meet them again, so that a merge server needs no kernel."""
        kinds = [a or b for a, b in zip(self._columns.kinds, columns.kinds, strict=True)]
        self._kept, self._columns, self._slot = keys, KeyColumns(self._by), np.zeros(0, np.int64)
        for column, kind in zip(self._columns.columns, kinds, strict=True):
            column.kind = kind

    def _differences(self, other: object) -> list[str]:
        if not isinstance(other, Sliced):
            return [f"it is a {type(other).__name__}"]
        found = [f"by is {self._by} here and {other._by} there"] if self._by != other._by else []
        if self._limit != other._limit:
            found.append(f"limit is {self._limit} here and {other._limit} there")
        if self._pinned != other._pinned:
            found.append("values differ")
        if not found:
            pairs = zip(self._by, self._columns.kinds, other._columns.kinds, strict=True)
            found += [f"keys of {n} are of kind {a} here and {b} there" for n, a, b in pairs if a and b and a != b]
        return found + self._plan.differences(other._plan)

    # -- results -------------------------------------------------------------------------------------------------------

    @property
    def by(self) -> tuple[str, ...]:
        """The slicing columns."""
        return self._by

    @property
    def keys(self) -> list[Any]:
        """The keys kept, sorted: tuples if there are several columns."""
        ordered = sorted(self._kept, key=sort_key)
        return [k[0] for k in ordered] if len(self._by) == 1 else list(ordered)

    def __len__(self) -> int:
        return len(self._kept)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.keys)

    def __contains__(self, key: Any) -> bool:
        return self._key(key) in self._kept

    def _key(self, key: Any) -> Key:
        return key if isinstance(key, tuple) else (key,)

    def __getitem__(self, key: Any) -> Any:
        try:
            return self._at(self._kept.index(self._key(key)) + 1)
        except ValueError:
            raise KeyError(f"there is no slice {key!r}; there are {len(self)}, such as {self.keys[:5]}") from None

    def _at(self, i: int) -> Any:
        with self._lock:
            return self._lone_or_all([u.state.slice(i) for u in self._plan.units])

    def _lone_or_all(self, states: list[State]) -> Any:
        plan = Plan((n, m, self._plan.units[u].binding) for n, (m, u) in self._plan.entries.items())
        for unit, state in zip(plan.units, states, strict=True):
            unit.state = state
        made = MetricCollection.__new__(MetricCollection)._hold(plan, self.on_invalid)
        return made[made.names[0]] if self._lone else made

    @property
    def other(self) -> Any:
        """The metric of all rows whose key a limit did not keep."""
        return self._at(OTHER)

    @property
    def total(self) -> Any:
        """The metric of all rows: exactly what it would be without slices."""
        with self._lock:
            to = np.zeros(len(self._kept) + 1, np.int64)
            return self._lone_or_all([u.state.regroup(to, 1).slice(0) for u in self._plan.units])

    def compute(self) -> dict[Any, Any]:
        """Return the value (or the values by name) of every slice by key."""
        out = {}
        with self._lock:
            for i, key in sorted(enumerate(self._kept, 1), key=lambda place: sort_key(place[1])):
                states = [u.state.slice(i) for u in self._plan.units]
                found = {n: m.of(states[u]) for n, (m, u) in self._plan.entries.items()}
                out[key[0] if len(key) == 1 else key] = next(iter(found.values())) if self._lone else found
        return out

    def _records(self, key: Key) -> list[dict[str, Any]]:
        with self._lock:
            return records(self._plan, self._kept.index(key) + 1 if key else OTHER)

    def table(self, *, other: bool = True, sort: str | None = None, min_rows: int = 0) -> Table:
        """Return a row for every slice and metric; `other` comes last, where there is one.

        Parameters
        ----------
        other : bool
            Whether `other` is shown.
        sort : str, optional
            By key unless this names a metric, worst slices first ("calibration": farthest from 1 as a ratio), or "rows",
            "weight" or "positives", most first.
        min_rows : int
            Leave out slices of fewer rows, whose values are chance.
        """
        rows = []
        with self._lock:
            places = {key: i + 1 for i, key in enumerate(self._kept)}
            for key in self._order(sort, min_rows):
                named = dict(zip(self._by, key, strict=True))
                rows += [named | r for r in records(self._plan, places[key])]
            if other and self._limit is not None:
                rows += [dict.fromkeys(self._by, "(other)") | r for r in records(self._plan, OTHER)]
        return Table(self._by, rows)

    def _order(self, sort: str | None, min_rows: int = 0) -> list[Key]:
        """Return the keys kept that have so many rows, as `table` orders them; slices without a value come last."""
        keys = sorted(self._kept, key=sort_key)
        counts = ("rows", "weight", "positives")
        known = self._plan.entries
        if sort is not None and sort not in known and sort not in counts:
            raise ValueError(f"sort= takes rows, weight, positives or one of {', '.join(known)}, not {sort!r}")
        if sort is not None and sort in known and known[sort].metric.best is None:
            raise ValueError(f"sort={sort!r}: nothing says which values of {sort} are better")
        if sort is None and not min_rows:
            return keys
        entry = known.get(sort or "")
        unit = self._plan.units[entry.unit] if entry else min(self._plan.units, key=lambda u: u.state.nbytes)
        places, faults = {key: i + 1 for i, key in enumerate(self._kept)}, {}
        for key in keys:
            state = unit.state.slice(places[key])
            facts = state.facts()
            if facts.get("rows", 0) >= min_rows:
                value = badness(entry.metric, entry.metric.of(state)) if entry else float(facts.get(sort or "", 0))
                faults[key] = math.inf if value != value else -value
        return sorted(faults, key=faults.__getitem__) if sort is not None else list(faults)

    def select(self, keys: Iterable[Any] | Callable[[Any], bool]) -> Self:
        """Return the slices of these keys, or those for which a function of the key is true; without `other`."""
        chosen = set(filter(keys, self.keys)) if callable(keys) else set(keys)
        wanted = [k for k in sorted(self._kept, key=sort_key) if (k if len(k) > 1 else k[0]) in chosen]
        with self._lock:
            to = {key: i + 1 for i, key in enumerate(wanted)}
            at = np.array([OTHER, *(to.get(k, OTHER) for k in self._kept)], np.int64)
            states = [u.state.regroup(at, len(wanted) + 1) for u in self._plan.units]
            return self._with(states, self._by, wanted, drop_other=True)

    def top(self, n: int, by: str = "rows") -> Self:
        """Return the n slices with the most "rows", "weight" or "positives", or the highest value of a metric."""
        found = {key: self._size(key, by) for key in self.keys}
        finite = [k for k, v in found.items() if v is not None and v == v]
        return self.select(sorted(finite, key=lambda k: (-found[k], sort_key(self._key(k))))[:n])

    def _size(self, key: Any, by: str) -> Any:
        rows = self._records(self._key(key))
        if by in ("rows", "weight", "positives"):
            return rows[0][by]
        if by not in self._plan.entries:
            raise ValueError(f'top(by=) takes "rows", "weight", "positives" or a metric, not {by!r}')
        return next(r["value"] for r in rows if r["metric"] == by)

    def rollup(self, by: str | Iterable[str]) -> Self:
        """Return the slices by fewer columns: exactly what slicing by those alone would have made.

        Notes
        -----
        With a limit, rows in `other` have no key left to roll up by, and stay in `other`.
        """
        names = (by,) if isinstance(by, str) else tuple(by)
        if not names or not set(names) <= set(self._by):
            raise ValueError(f"roll up by some of {', '.join(self._by)}, not {by!r}")
        with self._lock:
            reduced = [tuple(k[self._by.index(n)] for n in names) for k in self._kept]
            keys = sorted(set(reduced), key=sort_key)
            place = {key: i + 1 for i, key in enumerate(keys)}
            to = np.array([OTHER, *(place[k] for k in reduced)], np.int64)
            states = [u.state.regroup(to, len(keys) + 1) for u in self._plan.units]
            return self._with(states, names, keys)

    def _with(self, states: list[State], by: tuple[str, ...], keys: list[Key], *, drop_other: bool = False) -> Self:
        """Return slices that hold these states; pinned keys only make sense for the same columns."""
        new = type(self).__new__(type(self))
        new.memory_limit, new.on_invalid = self.memory_limit, self.on_invalid
        plan = Plan((n, m, self._plan.units[u].binding) for n, (m, u) in self._plan.entries.items())
        for unit, state in zip(plan.units, states, strict=True):
            unit.state = state
        limit = None if drop_other else self._limit
        new._hold(plan, by, self._lone, limit, self._pinned if by == self._by and limit is not None else frozenset())
        kinds = KeyColumns(by)
        for column in kinds.columns:
            column.kind = self._columns.columns[self._by.index(column.name)].kind
        new._take_keys(keys, kinds)
        if drop_other:
            for unit in plan.units:
                unit.state.clear(OTHER)
        return new

    # -- like every other object ---------------------------------------------------------------------------------------

    def copy(self) -> Self:
        """Return an independent copy."""
        with self._lock:
            return self._with([s.copy() for s in self._canonical()], self._by, sorted(self._kept, key=sort_key))

    def reset(self) -> Self:
        """Forget every row and every key."""
        with self._lock:
            self._hold(self._plan, self._by, self._lone, self._limit, self._pinned)
            for unit in self._plan.units:
                unit.state = unit.state.empty(1)
        return self

    def coarsen(self, bits: int) -> Self:
        """Return the slices with their histograms brought down to `bits`."""
        with self._lock:
            states = [s.coarsen(bits) if hasattr(s, "coarsen") else s for s in self._canonical()]
            new = self._with(states, self._by, sorted(self._kept, key=sort_key))
        metrics = {
            n: (m.coarsen(bits) if "bits" in m.settings else m, new._plan.units[u].binding)
            for n, (m, u) in new._plan.entries.items()
        }
        new._plan = Plan((n, m, b) for n, (m, b) in metrics.items())
        for unit, state in zip(new._plan.units, states, strict=True):
            unit.state = state
        return new

    def _canonical(self) -> list[State]:
        """Return the states with slices in the order of their keys."""
        place = {key: i + 1 for i, key in enumerate(sorted(self._kept, key=sort_key))}
        to = np.array([OTHER, *(place[k] for k in self._kept)], np.int64)
        return [u.state.regroup(to, len(to)) for u in self._plan.units]

    @property
    def nbytes(self) -> int:
        """Bytes of memory the states take, room for growth included."""
        return sum(u.state.nbytes for u in self._plan.units)

    def __repr__(self) -> str:
        metrics = ", ".join(self._plan.entries)
        limit = f", limit={self._limit}" if self._limit is not None else ""
        return f"Sliced({metrics}; by={', '.join(self._by)}{limit}): {len(self)} slices, {self.nbytes / 2**20:.1f} MiB"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sliced):
            return NotImplemented
        return not self._differences(other) and self.keys == other.keys and self._canonical() == other._canonical()

    __hash__ = None  # type: ignore[assignment]

    def header(self) -> dict[str, Any]:
        """Describe metrics, columns, keys and states as plain data: what the bytes format writes."""
        plan = self._plan.header()
        for unit, state in zip(plan["units"], self._canonical(), strict=True):
            unit["state"] = state.header()
        return {
            "kind": "sliced",
            "by": list(self._by),
            "lone": self._lone,
            "limit": self._limit,
            "pinned": [encode_key(k) for k in sorted(self._pinned, key=sort_key)],
            "kinds": list(self._columns.kinds),
            "keys": [len(self._kept), len(self._key_text())],
            **plan,
        }

    def states(self) -> list[State]:
        """The states whose arrays the bytes hold."""
        return self._canonical()

    def _key_text(self) -> bytes:
        return canonical_json([encode_key(k) for k in sorted(self._kept, key=sort_key)]).encode()

    def extra_arrays(self) -> list[Array]:
        """The keys, as JSON text in int64 words: they have no limit that a header has."""
        text = self._key_text()
        return [np.frombuffer(text.ljust(-(-len(text) // 8) * 8), "<i8").astype(np.int64)]

    def take_extra(self, header: dict[str, Any], read: Callable[[list[int]], Array]) -> None:
        """Read what `extra_arrays` wrote."""
        count, size = header["keys"]
        text = read([-(-size // 8)]).astype("<i8").tobytes()[:size]
        keys = [decode_key(k) for k in json.loads(text)]
        if len(keys) != count or keys != sorted(set(keys), key=sort_key) or any(len(k) != len(self._by) for k in keys):
            raise ValueError("the keys of the slices are not sorted and unique")
        if any(u.state.slices != count + 1 for u in self._plan.units):
            raise ValueError("the number of keys is not the number of slices")
        self._take_keys(keys, self._columns)


def flat(metric: Any) -> list[Any]:
    """Return what a collection takes as its arguments."""
    list(flatten(metric, Binding()))  # says what is wrong
    return [metric]


def _alike(a: Unit, b: Unit) -> bool:
    return a.state.tag == b.state.tag and a.state.settings == b.state.settings


def _decode_sliced(header: dict[str, Any], read: Any) -> Sliced:
    made = Sliced.__new__(Sliced)
    made.memory_limit, made.on_invalid = MEMORY_LIMIT, "raise"
    plan = Plan.of(header, read)
    if header["lone"] not in (True, False) or (header["lone"] and len(plan.entries) != 1):
        raise ValueError("the slices do not say what they hold")
    pinned = frozenset(decode_key(k) for k in header["pinned"])
    made._hold(plan, tuple(header["by"]), header["lone"], header["limit"], pinned)
    for column, kind in zip(made._columns.columns, header["kinds"], strict=True):
        if kind not in ("", "integer", "string", "bytes"):
            raise ValueError("keys are of an unknown kind")
        column.kind = kind
    return made


decoders["sliced"] = _decode_sliced
