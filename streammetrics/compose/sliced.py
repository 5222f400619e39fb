"""Sliced: a metric for every value of some columns, with exact totals and roll-ups."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ..batch.keys import plain_key
from ..collect.accumulator import accumulate, definition_of
from ..collect.collection import CollectionDefinition
from ..collect.metric_like import with_states
from ..collect.task import Metrics
from ..count.reads import MEMORY_LIMIT
from ..numerics.keys import decode_key, encode_key, fixed_hash, sort_key
from ..numerics.settings import as_int, check_several, check_whole
from ..reading.about import best_of
from ..reading.interval import DEFAULT_CONFIDENCE, check_confidence
from ..reading.reading import CellReadings
from ..reading.records import badness
from ..reading.table import Table, values_table
from ..state.axes import OTHER, Axis
from ..state.retention import settled
from ..state.state import State
from .axis_wrapper import AxisDefinition, AxisWrapper, object_of_cells
from .cell_answers import REST, CellAnswers, Places, plain

__all__ = ["Sliced", "SlicedDefinition"]

COUNTS = ("rows", "weight", "positives")
Ints = NDArray[np.int64]


class SlicedDefinition(AxisDefinition):
    """The definition of slices."""

    kind = "sliced"

    @property
    def name(self) -> str:
        return f"{self.inner.name} by {', '.join(self.axis.names)}"

    def header(self) -> dict[str, Any]:
        limited = {} if self.axis.limit is None else {"limit": self.axis.limit}
        pinned = {"pinned": [encode_key(k) for k in self.axis.pinned]} if self.axis.pinned else {}
        return {"kind": "sliced", "inner": self.inner.header(), "by": list(self.axis.names), **limited, **pinned}

    @classmethod
    def of_header(cls, header: dict[str, Any], states: Sequence[State]) -> Self:
        pinned = tuple(decode_key(k) for k in header.get("pinned", []))
        axis = Axis(tuple(header["by"]), "key", 0, header.get("limit"), pinned)
        return cls(cls.inner_of_header(header, states), axis)

    def differences(self, other: Any) -> list[str]:
        ours, theirs = self.axis, other.axis
        found = [f"by is {ours.names} here and {theirs.names} there"] if ours.names != theirs.names else []
        if ours.limit != theirs.limit:
            found.append(f"limit is {ours.limit} here and {theirs.limit} there")
        if ours.pinned != theirs.pinned:
            found.append("values differ")
        return found + self.inner_differences(other)


class Sliced(AxisWrapper):
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
        axis = Axis(names, "key", 0, limit, tuple(sorted(pinned, key=sort_key)))
        self._accumulator = accumulate(SlicedDefinition.around(metric, axis, on_invalid, memory_limit))

    @property
    def by(self) -> tuple[str, ...]:
        """The slicing columns."""
        names: tuple[str, ...] = definition_of(self).axis.names
        return names

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
        parts, states = check_whole("split()", parts, 1), self._accumulator.states
        found: list[list[list[Ints]]] = [[[] for _ in states] for _ in range(parts)]
        for key, places in definition_of(self).places(states).items():
            for i, at in enumerate(places):
                found[0 if key == REST else fixed_hash(key) % parts][i].append(at)
        none = np.zeros(0, np.int64)
        chosen = [[np.sort(np.concatenate([none, *at])) for at in some] for some in found]
        return [with_states(self, [s.select(at) for s, at in zip(states, some, strict=True)]) for some in chosen]

    @property
    def other(self) -> Any:
        """The object of all rows whose key a limit did not keep."""
        states = self._accumulator.states
        at = [np.flatnonzero(s.cells.keys[:, 0] == OTHER) for s in states]
        return object_of_cells(definition_of(self), [s.under(p, 1) for s, p in zip(states, at, strict=True)])

    @property
    def left(self) -> float:
        """The share of all rows that is in `other`: of several tasks, of the rows of that which has most."""
        state = max(self._accumulator.states, key=lambda s: int(s.rows_seen.sum()))
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
        return values_table(definition_of(self).levels, shown, confidence)

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
        definition = definition_of(self)
        answers = CellAnswers(definition, self._accumulator.states)
        places = definition.places(answers.states)
        rest = places.pop(REST, None)
        if top is not None and len(places) > top and sort is None and not min_rows:
            most = set(list(_ordered(self, places, "rows", 0))[:top])
            places = {k: at for k, at in places.items() if k in most}
        places = _ordered(self, places, sort, min_rows)
        places = dict(list(places.items())[:top])
        if other and definition.axis.limit is not None:
            places[REST] = rest or [np.zeros(0, np.int64)] * len(answers.states)
        return answers.records_of(places, confidence)

    def select(self, keys: Iterable[Any] | Callable[[Any], bool]) -> Self:
        """Return the slices of these keys, or those for which a function of the key is true; without `other`.

        Keys that are not there are left out; each is read as in ``sliced[key]``.
        """
        definition, states = definition_of(self), self._accumulator.states
        places = definition.places(states)
        places.pop(REST, None)
        if callable(keys):
            chosen = set(filter(keys, map(plain, places)))
        else:
            given = check_several("select()", keys, "keys, or a function of a key")
            chosen = {_spelled_key(definition, states, k) for k in given}
        some = [at for k, at in places.items() if plain(k) in chosen]
        new = definition.having(axis=definition.axis._replace(limit=None, pinned=()))
        held = []
        for i, state in enumerate(states):
            index = np.sort(np.concatenate([np.zeros(0, np.int64), *(at[i] for at in some)]))
            kept = state.select(index)
            held.append(kept.holding(replace(kept.cells, axes=(new.axis, *state.axes[1:]))))
        made: Self = new.wrap(accumulate(new, held))
        return made

    def top(self, n: int, by: str = "rows") -> Self:
        """Return the n slices with the most "rows", "weight" or "positives", or the highest value of a metric."""
        n = check_whole("top()", n)
        if (alone := _alone(self)) is not None:
            return self.select(list(alone.top(n, by)))
        answers, found = CellAnswers(definition_of(self), self._accumulator.states), {}
        for key, at in answers.places.items():
            rows = answers.under(at).records(None)
            if by not in COUNTS and by not in [r["metric"] for r in rows]:
                raise ValueError(f'top(by=) takes "rows", "weight", "positives" or a metric, not {by!r}')
            values = [r[by] for r in rows] if by in COUNTS else [r["value"] for r in rows if r["metric"] == by]
            if known := [value for value in values if value is not None and value == value]:
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
        definition, width = definition_of(self), len(self.by)
        kept = [self.by.index(n) for n in names]
        pinned = {tuple(key[i] for i in kept) for key in definition.axis.pinned}
        new = definition.having(axis=definition.axis._replace(names=names, pinned=tuple(sorted(pinned, key=sort_key))))
        held = []
        for state in self._accumulator.states:
            columns = [*kept, *range(width, state.cells.keys.shape[1])]
            words = tuple(state.cells.words[i] for i in columns)
            keys = np.ascontiguousarray(state.cells.keys[:, columns])
            held.append(settled(state.moved(keys, (new.axis, *state.axes[1:]), words)))
        made: Self = new.wrap(accumulate(new, held))
        return made

    def __repr__(self) -> str:
        definition = definition_of(self)
        limit = f", limit={definition.axis.limit}" if definition.axis.limit is not None else ""
        return f"Sliced({', '.join(definition.names)}; by={', '.join(self.by)}{limit}): {self._summary('slices')}"


SlicedDefinition.public = Sliced


def _ordered(slices: Sliced, places: Places, sort: str | None, min_rows: int) -> Places:
    """Return the keys that have so many rows, as `table` orders them; slices without a value come last."""
    alone = _alone(slices) if sort is not None or min_rows else None
    if alone is not None:
        found = _ordered(alone, CellAnswers(definition_of(alone), alone._accumulator.states).places, sort, min_rows)
        return {k: places[k] for k in found if k in places}
    known = _sortable(definition_of(slices).inner)
    asked = (
        [] if sort in COUNTS else [n for n in known if n == sort] or [n for n in known if n.rpartition("/")[2] == sort]
    )
    if sort is not None and not asked and sort not in COUNTS:
        raise ValueError(f"sort= takes rows, weight, positives or one of {', '.join(known)}, not {sort!r}")
    if any(best_of(known[n]) is None for n in asked):
        raise ValueError(f"sort={sort!r}: nothing says which values of {sort} are better")
    if sort is None and not min_rows:
        return dict(places)
    states = slices._accumulator.states
    if sort in (None, "rows"):
        seen = [state.rows_seen for state in states]  # tasks leave out different rows: a slice has those of any
        rows_of = {k: max(int(n[i].sum()) for n, i in zip(seen, at, strict=True)) for k, at in places.items()}
        many = [k for k, n in rows_of.items() if n >= min_rows]
        return {k: places[k] for k in (many if sort is None else sorted(many, key=lambda k: -rows_of[k]))}
    faults: dict[Any, float] = {}
    for name in asked or [sort]:
        for key, rows, value in _graded(slices, places, str(name), known):
            if rows >= min_rows:
                fault = badness(known[name], value) if asked else float(value or 0)
                worst = math.inf if fault != fault else -fault
                faults[key] = min(faults.get(key, math.inf), worst)  # of several models the worst
    return {k: places[k] for k in sorted(faults, key=faults.__getitem__)}


def _sortable(inner: Any) -> dict[str, Any]:
    """Return the metrics that slices can be sorted by, and None for other entries of a collection, by name."""
    while isinstance(inner, AxisDefinition):  # one that fades
        inner = inner.inner
    if isinstance(inner, CollectionDefinition):
        return {n: getattr(e.definition, "metric", None) for n, e in inner.plan.entries.items()}
    return {n: m.metric for n, m in (inner.metric_reads() or {}).items()}


def _alone(slices: Sliced) -> Any:
    """Return the same slices of the total of each, where what is in a slice tells cells apart; else None."""
    inner = definition_of(slices).inner
    return slices.across(*inner.levels) if isinstance(inner, AxisDefinition) and inner.levels else None


def _graded(slices: Sliced, places: Places, sort: str, known: dict[str, Any]) -> Iterator[tuple[Any, int, Any]]:
    """Yield each key, its rows, and the value to sort by: of all keys at once, where that can be."""
    answers = CellAnswers(definition_of(slices), slices._accumulator.states)
    metrics = answers.metrics if sort in known else None
    if metrics is None:
        for key, at in places.items():
            rows = answers.under(at).records(None)
            row = next((r for r in rows if r["metric"] == sort), rows[0])
            yield key, row["rows"] or 0, row["value"] if sort in known else row.get(sort)
        return
    metric, place, _ = metrics[sort]
    state = answers.states[place]
    values, seen = CellReadings(metric, state).values, state.rows_seen.tolist()
    for key, at in places.items():
        yield key, seen[int(at[place][0])], values[int(at[place][0])]


def _spelled_key(definition: SlicedDefinition, states: Sequence[State], key: Any) -> Any:
    """Return a key as it is in `keys`, however it was written; `REST`, which is no key, where it is not there."""
    atoms = key if isinstance(key, tuple) else (key,)
    for state in states if len(atoms) == len(definition.axis.names) else ():
        words = state.cells.words[: len(atoms)]
        ranks = [rank for w, atom in zip(words, atoms, strict=True) if (rank := w.rank(atom)) is not None]
        if len(ranks) == len(atoms):
            return plain(tuple(w.key(rank) for w, rank in zip(words, ranks, strict=True)))
    return REST
