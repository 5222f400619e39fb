"""Sliced: a metric for every combination of values of some columns (GROUP BY), with exact totals and roll-ups."""

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
from ..numerics.settings import check_integer, check_list, to_python_int
from ..numerics.slice_keys import decode_key, encode_key, hash_key, sort_key
from ..reading.about import best_of
from ..reading.interval import DEFAULT_CONFIDENCE, check_confidence
from ..reading.reading import CellReadings
from ..reading.records import badness
from ..reading.table import Table, values_table
from ..state.axes import OTHER, Axis
from ..state.retention import apply_retention
from ..state.state import State
from .axis_wrapper import AxisDefinition, AxisWrapper, object_of_cells
from .cell_answers import REST, CellAnswers, Places, unwrap_key

__all__ = ["Sliced", "SlicedDefinition"]

COUNTS = ("rows", "weight", "positives")
Ints = NDArray[np.int64]


class SlicedDefinition(AxisDefinition):
    """The definition of a metric by slice; see `Sliced`."""

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
        differences = [f"by is {ours.names} here and {theirs.names} there"] if ours.names != theirs.names else []
        if ours.limit != theirs.limit:
            differences.append(f"limit is {ours.limit} here and {theirs.limit} there")
        if ours.pinned != theirs.pinned:
            differences.append("the keys in values= differ")
        return differences + self.inner_differences(other)


class Sliced(AxisWrapper):
    """A metric, a collection, or other slices, for every combination of values of some columns.

    Parameters
    ----------
    metric : metric, Task, MetricCollection, Sliced, or list or dict of metrics
        The metrics to compute in every slice.
    by : str or sequence of str
        The slicing columns; with several columns, each combination of their values is a slice. Keys are integers,
        strings, bytes, booleans, dates, timestamps or decimals. Null forms its own slice.
    limit : int, optional
        The maximum number of slices. Slices whose keys have the smallest hashes are kept, so the choice does not depend
        on the order of rows. All others are merged exactly into `other`. In nested slices, the limit applies within each
        outer slice.
    values : list, optional
        Keys that are always kept and do not count toward the limit.
    memory_limit : int
        The maximum total size of all slices in bytes; exceeding it raises MemoryLimitError.
    on_invalid : {"raise", "drop"}
        Whether an invalid row raises an error, or is left out and reported.

    Notes
    -----
    The memory used by a slice depends on its rows: 5 to 8 bytes for each occupied histogram bucket, and about 100 bytes
    for sums.

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
        names = tuple(check_list("by=", by, "a column name, or several"))
        if not names or len(set(names)) != len(names) or not all(isinstance(n, str) for n in names):
            raise ValueError(f"by= must be one or more different column names, not {names!r}")
        limit = to_python_int(limit)
        if limit is not None and (type(limit) is not int or limit < 0):
            raise ValueError(f"limit must be a whole number of slices, 0 or more, not {limit!r}")
        if isinstance(values, (str, bytes)):
            raise TypeError(f"values= must be a list of keys, such as [{values!r}], not {values!r}")
        pinned = {plain_key(v, names) for v in values} if limit is not None else set()
        axis = Axis(names, "key", 0, limit, tuple(sorted(pinned, key=sort_key)))
        self._accumulator = accumulate(SlicedDefinition.from_metrics(metric, axis, on_invalid, memory_limit))

    @property
    def by(self) -> tuple[str, ...]:
        """The slicing columns."""
        names: tuple[str, ...] = definition_of(self).axis.names
        return names

    def split(self, parts: int) -> list[Self]:
        """Split the slices into several objects; the hash of a key determines its part.

        Merging the parts gives the original. On every machine, a given key is in the part with the same index.

        Parameters
        ----------
        parts : int
            The number of parts. `other` is in the first part.

        Examples
        --------
        >>> import streammetrics as sm
        >>> arms = sm.Sliced(sm.CTR(), by="variant").update(y_true=[0, 1, 1], variant=["A", "A", "B"])
        >>> sm.merge(arms.split(2)) == arms
        True
        """
        parts, states = check_integer("split()", parts, 1), self._accumulator.states
        cells: list[list[list[Ints]]] = [[[] for _ in states] for _ in range(parts)]
        for key, places in definition_of(self).places(states).items():
            for i, at in enumerate(places):
                cells[0 if key == REST else hash_key(key) % parts][i].append(at)
        none = np.zeros(0, np.int64)
        chosen = [[np.sort(np.concatenate([none, *at])) for at in some] for some in cells]
        return [with_states(self, [s.select(at) for s, at in zip(states, some, strict=True)]) for some in chosen]

    @property
    def other(self) -> Any:
        """The object that counts all rows whose slices are not kept because of the limit."""
        states = self._accumulator.states
        at = [np.flatnonzero(s.cells.keys[:, 0] == OTHER) for s in states]
        return object_of_cells(
            definition_of(self), [s.drop_leading_axes(p, 1) for s, p in zip(states, at, strict=True)]
        )

    @property
    def left(self) -> float:
        """The fraction of all rows that are in `other`, between 0 and 1.

        If there are several tasks, each may leave out different rows: invalid ones, or those that `where` excludes. The
        result is then the fraction for the task with the most rows.
        """
        state = max(self._accumulator.states, key=lambda s: int(s.row_counts.sum()))
        rows = state.row_counts
        return float(rows[state.cells.keys[:, 0] == OTHER].sum() / rows.sum()) if rows.sum() else 0.0

    def table(
        self,
        *,
        other: bool = True,
        sort: str | None = None,
        min_rows: int = 0,
        confidence: float | None = DEFAULT_CONFIDENCE,
    ) -> Table:
        """Return a table with one row per slice and metric; `other` comes last, if there is a limit.

        Parameters
        ----------
        other : bool
            Whether to include `other`.
        sort : str, optional
            The name of a metric, to sort slices from worst to best, or "rows", "weight" or "positives", to sort from
            largest to smallest. By default, slices are sorted by key. For "calibration", the worst value is the one
            farthest from 1, as a ratio. If several tasks include the metric, a slice is sorted by the worst of its
            values, unless `sort` includes the name of a task, as in "task/auc".
        min_rows : int
            Omit slices with fewer rows, whose values are mostly noise.
        confidence : float or None
            Confidence level of the intervals. If you pass one, the table prints every interval, or the reason why there is
            none. By default it prints only intervals that come from `Sharded`, because other intervals are too narrow
            if rows of one user are correlated. None omits intervals.
        """
        records = self.table_records(other=other, sort=sort, min_rows=min_rows, confidence=check_confidence(confidence))
        return values_table(definition_of(self).levels, records, confidence)

    def table_records(
        self,
        *,
        other: bool = True,
        sort: str | None = None,
        min_rows: int = 0,
        top: int | None = None,
        confidence: float | None = None,
    ) -> list[dict[str, Any]]:
        """Return the rows of `table` as dicts. The key "dropped" contains the number of invalid rows by reason.

        Parameters
        ----------
        other, sort, min_rows, confidence
            The same as for `table`, but by default without intervals.
        top : int, optional
            The number of slices to return: the first slices of the table if `sort` or `min_rows` is given, or else
            those with the most rows. `other` is returned in addition.
        """
        definition = definition_of(self)
        answers = CellAnswers(definition, self._accumulator.states)
        places = definition.places(answers.states)
        rest = places.pop(REST, None)
        if top is not None and len(places) > top and sort is None and not min_rows:
            most = set(list(_sort_places(self, places, "rows", 0))[:top])
            places = {k: at for k, at in places.items() if k in most}
        places = _sort_places(self, places, sort, min_rows)
        places = dict(list(places.items())[:top])
        if other and definition.axis.limit is not None:
            places[REST] = rest or [np.zeros(0, np.int64)] * len(answers.states)
        return answers.records_of(places, confidence)

    def select(self, keys: Iterable[Any] | Callable[[Any], bool]) -> Self:
        """Return the slices with the given keys, or the slices whose key makes the function `keys` return True.

        Keys are written as in ``sliced[key]``, and keys without a slice are ignored. The result does not include `other`.
        """
        definition, states = definition_of(self), self._accumulator.states
        places = definition.places(states)
        places.pop(REST, None)
        if callable(keys):
            chosen = set(filter(keys, map(unwrap_key, places)))
        else:
            wanted = check_list("select()", keys, "keys, or a function of a key")
            chosen = {_stored_key(definition, states, k) for k in wanted}
        some = [at for k, at in places.items() if unwrap_key(k) in chosen]
        new = definition.having(axis=definition.axis._replace(limit=None, pinned=()))
        new_states = []
        for i, state in enumerate(states):
            index = np.sort(np.concatenate([np.zeros(0, np.int64), *(at[i] for at in some)]))
            kept = state.select(index)
            new_states.append(kept.with_cells(replace(kept.cells, axes=(new.axis, *state.axes[1:]))))
        slices: Self = new.wrap(accumulate(new, new_states))
        return slices

    def top(self, n: int, by: str = "rows") -> Self:
        """Return the n slices with the most "rows", "weight" or "positives", or with the highest value of a metric."""
        n = check_integer("top()", n)
        if (outer := _sum_inner_cells(self)) is not None:
            return self.select(list(outer.top(n, by)))
        answers, values_by_key = CellAnswers(definition_of(self), self._accumulator.states), {}
        for key, at in answers.places.items():
            rows = answers.cell_answer(at).records(None)
            if by not in COUNTS and by not in [r["metric"] for r in rows]:
                raise ValueError(f'top(): by= must be "rows", "weight", "positives" or a metric, not {by!r}')
            values = [r[by] for r in rows] if by in COUNTS else [r["value"] for r in rows if r["metric"] == by]
            if known := [value for value in values if value is not None and value == value]:
                values_by_key[key] = max(known)
        return self.select(
            [unwrap_key(k) for k in sorted(values_by_key, key=lambda k: (-values_by_key[k], sort_key(k)))[:n]]
        )

    def rollup(self, by: str | Iterable[str]) -> Self:
        """Return slices by only some of the columns, bit-for-bit equal to slicing by these columns from the start.

        Notes
        -----
        With a limit, rows in `other` have no keys, so they stay in `other`.
        """
        names = tuple(check_list("rollup()", by, "a column name, or several"))
        if not names or not set(names) <= set(self.by) or len(set(names)) < len(names):
            raise ValueError(f"rollup(): expected some of the columns {', '.join(self.by)}, found {by!r}")
        definition, width = definition_of(self), len(self.by)
        indices = [self.by.index(n) for n in names]
        pinned = {tuple(key[i] for i in indices) for key in definition.axis.pinned}
        new = definition.having(axis=definition.axis._replace(names=names, pinned=tuple(sorted(pinned, key=sort_key))))
        new_states = []
        for state in self._accumulator.states:
            columns = [*indices, *range(width, state.cells.keys.shape[1])]
            words = tuple(state.cells.vocabularies[i] for i in columns)
            keys = np.ascontiguousarray(state.cells.keys[:, columns])
            new_states.append(apply_retention(state.move_cells(keys, (new.axis, *state.axes[1:]), words)))
        slices: Self = new.wrap(accumulate(new, new_states))
        return slices

    def __repr__(self) -> str:
        definition = definition_of(self)
        limit = f", limit={definition.axis.limit}" if definition.axis.limit is not None else ""
        return f"Sliced({', '.join(definition.names)}; by={', '.join(self.by)}{limit}): {self._summary('slices')}"


SlicedDefinition.public = Sliced


def _sort_places(slices: Sliced, places: Places, sort: str | None, min_rows: int) -> Places:
    """Sort and filter the slices for `table`: drop slices with fewer than `min_rows` rows, and sort the others.

    `places` maps each key to the indices of its cells. Slices whose value is undefined come last.
    """
    outer = _sum_inner_cells(slices) if sort is not None or min_rows else None
    if outer is not None:
        sorted_keys = _sort_places(
            outer, CellAnswers(definition_of(outer), outer._accumulator.states).places, sort, min_rows
        )
        return {k: places[k] for k in sorted_keys if k in places}
    metrics_by_name = _sortable(definition_of(slices).inner)
    wanted = (
        []
        if sort in COUNTS
        else [n for n in metrics_by_name if n == sort] or [n for n in metrics_by_name if n.rpartition("/")[2] == sort]
    )
    if sort is not None and not wanted and sort not in COUNTS:
        raise ValueError(
            f"sort= must be rows, weight, positives or the name of a metric ({', '.join(metrics_by_name)}), not "
            f"{sort!r}"
        )
    if any(best_of(metrics_by_name[n]) is None for n in wanted):
        raise ValueError(
            f"sort={sort!r}: it is unknown whether high or low values of {sort} are better; sort by rows, weight, "
            f"positives or another metric"
        )
    if sort is None and not min_rows:
        return dict(places)
    states = slices._accumulator.states
    if sort in (None, "rows"):
        # Tasks may leave out different rows, so the number of rows of a slice is the maximum over all tasks.
        rows_by_cell = [state.row_counts for state in states]
        rows_of = {k: max(int(n[i].sum()) for n, i in zip(rows_by_cell, at, strict=True)) for k, at in places.items()}
        many = [k for k, n in rows_of.items() if n >= min_rows]
        return {k: places[k] for k in (many if sort is None else sorted(many, key=lambda k: -rows_of[k]))}
    faults: dict[Any, float] = {}
    for name in wanted or [sort]:
        for key, rows, value in _sort_values(slices, places, str(name), metrics_by_name):
            if rows >= min_rows:
                fault = badness(metrics_by_name[name], value) if wanted else float(value or 0)
                worst = math.inf if fault != fault else -fault
                # If several tasks have this metric, sort a slice by the worst of its values.
                faults[key] = min(faults.get(key, math.inf), worst)
    return {k: places[k] for k in sorted(faults, key=faults.__getitem__)}


def _sortable(inner: Any) -> dict[str, Any]:
    """Return all metrics by which slices can be sorted, keyed by name.

    Entries of a collection that are not metrics, such as wrappers, have the value None.
    """
    # The metrics of a wrapper, such as `Decayed`, are in its inner definition.
    while isinstance(inner, AxisDefinition):
        inner = inner.inner
    if isinstance(inner, CollectionDefinition):
        return {n: getattr(e.definition, "metric", None) for n, e in inner.plan.entries.items()}
    return {n: m.metric for n, m in (inner.metric_reads() or {}).items()}


def _sum_inner_cells(slices: Sliced) -> Any:
    """Return a copy in which each slice is the sum of its inner slices or windows; None if slices have neither."""
    inner = definition_of(slices).inner
    return slices.across(*inner.levels) if isinstance(inner, AxisDefinition) and inner.levels else None


def _sort_values(
    slices: Sliced, places: Places, sort: str, metrics_by_name: dict[str, Any]
) -> Iterator[tuple[Any, int, Any]]:
    """Yield each key with its number of rows and the value to sort by.

    The values of all slices are computed together if possible, which is faster.
    """
    answers = CellAnswers(definition_of(slices), slices._accumulator.states)
    metrics = answers.metrics if sort in metrics_by_name else None
    if metrics is None:
        for key, at in places.items():
            rows = answers.cell_answer(at).records(None)
            row = next((r for r in rows if r["metric"] == sort), rows[0])
            yield key, row["rows"] or 0, row["value"] if sort in metrics_by_name else row.get(sort)
        return
    metric, place, _ = metrics[sort]
    state = answers.states[place]
    values, row_counts = CellReadings(metric, state).values, state.row_counts.tolist()
    for key, at in places.items():
        yield key, row_counts[int(at[place][0])], values[int(at[place][0])]


def _stored_key(definition: SlicedDefinition, states: Sequence[State], key: Any) -> Any:
    """Convert a key to the Python types that `Sliced.keys` returns, such as int rather than a numpy integer.

    If a value of the key occurs in no slice, return `REST`, which is never the key of a slice.
    """
    atoms = key if isinstance(key, tuple) else (key,)
    for state in states if len(atoms) == len(definition.axis.names) else ():
        words = state.cells.vocabularies[: len(atoms)]
        ranks = [rank for w, atom in zip(words, atoms, strict=True) if (rank := w.find_rank(atom)) is not None]
        if len(ranks) == len(atoms):
            return unwrap_key(tuple(w.read_key(rank) for w, rank in zip(words, ranks, strict=True)))
    return REST
