"""Anything that holds states, by slice: an axis of keys before those there are, exact totals and roll-ups."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ..collect.about import best_of
from ..collect.collection import MetricCollection
from ..collect.feed import MEMORY_LIMIT
from ..collect.interval import DEFAULT_CONFIDENCE, check_confidence
from ..collect.metric import Metric, badness
from ..collect.reading import CellReadings
from ..collect.table import Table, values_table
from ..collect.task import Metrics
from ..columns.keys import plain_key
from ..numerics.keys import decode_key, encode_key, fixed_hash, sort_key
from ..numerics.settings import as_int, check_several, check_whole
from ..state.axes import OTHER, Axis
from ..state.policy import settled
from ..state.state import State
from .front import REST, Front, check_dense, plain

__all__ = ["Sliced"]

COUNTS = ("rows", "weight", "positives")
Ints = NDArray[np.int64]


class Sliced(Front):
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
        names = tuple(check_several("by=", by, "a column name, or several"))
        if not names or len(set(names)) != len(names) or not all(isinstance(n, str) for n in names):
            raise ValueError(f"by= takes one or more different column names, not {names!r}")
        limit = as_int(limit)
        if limit is not None and (type(limit) is not int or limit < 0):
            raise ValueError(f"limit must be a number of slices, not {limit!r}")
        if isinstance(values, (str, bytes)):
            raise TypeError(f"values= takes a list of keys, not {values!r}")
        pinned = {plain_key(v, names) for v in values} if limit is not None else set()  # without a limit all are kept
        inner, how = self._holding(metric, on_invalid)
        axis = Axis(names, "key", 0, limit, tuple(sorted(pinned, key=sort_key)))
        self._take(inner, axis, memory_limit=memory_limit, on_invalid=how)
        check_dense(self)

    # -- what it is ---------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The name in a collection."""
        return f"{self.inner.name} by {', '.join(self.axis.names)}"

    @property
    def by(self) -> tuple[str, ...]:
        """The slicing columns."""
        return self.axis.names

    def header(self) -> dict[str, Any]:
        limited = {} if self.axis.limit is None else {"limit": self.axis.limit}
        pinned = {"pinned": [encode_key(k) for k in self.axis.pinned]} if self.axis.pinned else {}
        return {"kind": "sliced", "inner": self.inner.header(), "by": list(self.by), **limited, **pinned}

    @classmethod
    def of_header(cls, header: dict[str, Any], states: Sequence[State]) -> Any:
        pinned = tuple(decode_key(k) for k in header.get("pinned", []))
        return cls._of(cls._inner_of(header, states), Axis(tuple(header["by"]), "key", 0, header.get("limit"), pinned))

    def differences(self, other: Any) -> list[str]:
        found = [f"by is {self.by} here and {other.by} there"] if self.by != other.by else []
        if self.axis.limit != other.axis.limit:
            found.append(f"limit is {self.axis.limit} here and {other.axis.limit} there")
        if self.axis.pinned != other.axis.pinned:
            found.append("values differ")
        return found + self._unlike_inside(other)

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
        parts, states = check_whole("split()", parts, 1), self.states
        found: list[list[list[Ints]]] = [[[] for _ in states] for _ in range(parts)]
        for key, places in self._places(states).items():
            for i, at in enumerate(places):
                found[0 if key == REST else fixed_hash(key) % parts][i].append(at)
        none = np.zeros(0, np.int64)
        chosen = [[np.sort(np.concatenate([none, *at])) for at in some] for some in found]
        return [self.holding([s.select(at) for s, at in zip(states, some, strict=True)]) for some in chosen]

    @property
    def other(self) -> Any:
        """What holds all rows whose key a limit did not keep."""
        states = self.states
        return self._made(self._under(states, [np.flatnonzero(s.cells.keys[:, 0] == OTHER) for s in states]))

    @property
    def left(self) -> float:
        """The share of all rows that is in `other`: of several tasks, of the rows of that which has most."""
        state = max(self.states, key=lambda s: int(s.rows_seen.sum()))
        rows = state.rows_seen
        return float(rows[state.cells.keys[:, 0] == OTHER].sum() / rows.sum()) if rows.sum() else 0.0

    def table(
        self,
        *,
        other: bool = True,
        sort: str | None = None,
        min_rows: int = 0,
        confidence: float | None = DEFAULT_CONFIDENCE,
    ) -> Table:
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
        confidence : float or None
            Confidence level of the intervals. If you pass one, the table prints every interval, or the reason why there is
            none. By default it prints only intervals that come from `Sharded`, because rows of one user are correlated.
            None omits intervals.
        """
        shown = self.shown(other=other, sort=sort, min_rows=min_rows, confidence=check_confidence(confidence))
        return values_table(self.levels, shown, confidence)

    def shown(
        self,
        *,
        other: bool = True,
        sort: str | None = None,
        min_rows: int = 0,
        top: int | None = None,
        confidence: float | None = None,
    ) -> list[dict[str, Any]]:
        """Return the rows of `table`, each with the rows left out by reason ("dropped").

        Parameters
        ----------
        other, sort, min_rows, confidence
            As for `table`; by default without intervals.
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
        return self._records(states, places, confidence)

    def _ordered(self, states: Sequence[State], places: Any, sort: str | None, min_rows: int) -> dict[Any, list[Ints]]:
        """The keys that have so many rows, as `table` orders them; slices without a value come last."""
        alone = self._alone() if sort is not None or min_rows else None
        if alone is not None:
            found = alone._ordered(alone.states, alone._places(alone.states), sort, min_rows)
            return {k: places[k] for k in found if k in places}
        held = self.inner
        while isinstance(held, Front):  # one that fades
            held = held.inner
        known = {n: r.metric for n, r in (held.readers() or {}).items()}
        if isinstance(held, MetricCollection):
            known = {n: e.thing for n, e in held._plan.entries.items()}
        asked = (
            []
            if sort in COUNTS
            else [n for n in known if n == sort] or [n for n in known if n.rpartition("/")[2] == sort]
        )
        if sort is not None and not asked and sort not in COUNTS:
            raise ValueError(f"sort= takes rows, weight, positives or one of {', '.join(known)}, not {sort!r}")
        if any(best_of(known[n]) is None for n in asked):
            raise ValueError(f"sort={sort!r}: nothing says which values of {sort} are better")
        if sort is None and not min_rows:
            return dict(places)
        if sort in (None, "rows"):
            seen = [state.rows_seen for state in states]  # tasks leave out different rows: a slice has those of any
            rows_of = {k: max(int(n[i].sum()) for n, i in zip(seen, at, strict=True)) for k, at in places.items()}
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

    def _alone(self) -> Any:
        """The same slices of all that each holds, where that tells cells apart; else None."""
        return self.across(*self.inner.levels) if isinstance(self.inner, Front) and self.inner.levels else None

    def _graded(
        self, states: Sequence[State], places: Any, sort: str, known: dict[str, Any]
    ) -> Iterator[tuple[Any, int, Any]]:
        """Yield each key, its rows, and what it is sorted by: a metric of all keys at once, where that can be."""
        readers = self._readers(states) if sort in known else None
        if readers is None:
            for key, at in places.items():
                rows = self.inner.records(self._under(states, at), None)
                row = next((r for r in rows if r["metric"] == sort), rows[0])
                yield key, row["rows"] or 0, row["value"] if sort in known else row.get(sort)
            return
        metric, unit, _ = readers[sort]
        values, seen = CellReadings(metric, states[unit]).values, states[unit].rows_seen.tolist()
        for key, at in places.items():
            yield key, seen[int(at[unit][0])], values[int(at[unit][0])]

    def select(self, keys: Iterable[Any] | Callable[[Any], bool]) -> Self:
        """Return the slices of these keys, or those for which a function of the key is true; without `other`.

        Keys that are not there are left out; each is read as in ``sliced[key]``.
        """
        states = self.states
        places = self._places(states)
        places.pop(REST, None)
        if callable(keys):
            chosen = set(filter(keys, map(plain, places)))
        else:
            given = check_several("select()", keys, "keys, or a function of a key")
            chosen = {self._spelt(states, k) for k in given}
        some = [at for k, at in places.items() if plain(k) in chosen]
        new = self._like(self.axis._replace(limit=None, pinned=()))
        held = []
        for i, state in enumerate(states):
            index = np.sort(np.concatenate([np.zeros(0, np.int64), *(at[i] for at in some)]))
            kept = state.select(index)
            held.append(kept.holding(replace(kept.cells, axes=(new.axis, *state.axes[1:]))))
        new.feed.hold(held)
        return new

    def _spelt(self, states: Sequence[State], key: Any) -> Any:
        """A key as it is in `keys`, however it was written; the mark of the rest, which none is, where it is not there."""
        atoms = key if isinstance(key, tuple) else (key,)
        for state in states if len(atoms) == len(self.axis.names) else ():
            words = state.cells.words[: len(atoms)]
            ranks = [rank for w, atom in zip(words, atoms, strict=True) if (rank := w.rank(atom)) is not None]
            if len(ranks) == len(atoms):
                return plain(tuple(w.key(rank) for w, rank in zip(words, ranks, strict=True)))
        return REST

    def top(self, n: int, by: str = "rows") -> Self:
        """Return the n slices with the most "rows", "weight" or "positives", or the highest value of a metric."""
        n = check_whole("top()", n)
        if (alone := self._alone()) is not None:
            return self.select(list(alone.top(n, by)))
        states, found = self.states, {}
        places = self._places(states)
        places.pop(REST, None)
        for key, at in places.items():
            rows = self.inner.records(self._under(states, at), None)
            if by not in COUNTS and by not in [r["metric"] for r in rows]:
                raise ValueError(f'top(by=) takes "rows", "weight", "positives" or a metric, not {by!r}')
            told = [r[by] for r in rows] if by in COUNTS else [r["value"] for r in rows if r["metric"] == by]
            if known := [value for value in told if value is not None and value == value]:
                found[key] = max(known)  # of several tasks, which may leave out different rows
        return self.select([plain(k) for k in sorted(found, key=lambda k: (-found[k], sort_key(k)))[:n]])

    def rollup(self, by: str | Iterable[str]) -> Self:
        """Return the slices by fewer columns: exactly what slicing by those alone would have made.

        Notes
        -----
        With a limit, rows in `other` have no key left to roll up by, and stay in `other`.
        """
        names = tuple(check_several("rollup()", by, "a column name, or several"))
        if not names or not set(names) <= set(self.by) or len(set(names)) < len(names):
            raise ValueError(f"roll up by some of {', '.join(self.by)}, not {by!r}")
        width = len(self.by)
        kept = [self.by.index(n) for n in names]
        pinned = {tuple(key[i] for i in kept) for key in self.axis.pinned}
        new = self._like(self.axis._replace(names=names, pinned=tuple(sorted(pinned, key=sort_key))))
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
