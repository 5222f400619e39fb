"""Queries given whole: a row of a matrix each, with padding, or a list of what was returned beside what is relevant."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidInputError
from .columns import Array, Batch, Column, Kind, Mask
from .convert import as_array, is_listed
from .ids import IdColumn, Ids
from .kinds import kind_word

__all__ = ["ListedRows", "listed", "ranked_lists"]

Ints = NDArray[np.int64]

_QUERIES = itertools.count()  # no two lists of a process go by one number: `ranked_lists` of one batch and the next


class ListedRows(Batch):
    """The documents of a batch that has a row for each query, one after the other; or those of one with a mask.

    Where a mask is 0 there is no document. A query without any keeps one that was not returned and is worth nothing, and
    for which `mask` is 0: so it counts, as a query in which nothing was found.

    Parameters
    ----------
    parent : Batch
        What was given: matrices and columns of lists for what documents have, columns for what queries have.
    lengths : int64 array, optional
        How many documents each row has; None if rows are documents.
    query : str or tuple
        The column of queries, which the rows are if it is not there.
    blank : tuple of str
        Columns whose values do not matter where `mask` is 0.
    """

    def __init__(self, parent: Batch, lengths: Ints | None, query: Any, blank: tuple[Any, ...]) -> None:
        self._lengths, self._query, self._blank = lengths, query, blank
        if lengths is None:
            keys = parent.column(query, Ids())
            assert isinstance(keys, IdColumn)
            sizes = np.diff(keys.starts, append=len(keys.values))
        else:
            sizes = lengths
        super().__init__({}, parent, np.zeros(0, np.int64))
        owner = np.repeat(np.arange(len(sizes)), sizes)
        self._there: Mask | None = None
        if "mask" not in parent and sizes.all():  # every cell is a document
            self._index = owner
            return
        kept = self._marks() if "mask" in parent else np.ones(len(owner), bool)
        bare = np.bincount(owner[kept], minlength=len(sizes)) == 0
        cells = np.concatenate([np.flatnonzero(kept), np.full(int(bare.sum()), -1)])
        owner = np.concatenate([owner[kept], np.flatnonzero(bare)])
        order = np.argsort(owner, kind="stable")
        self._cells = cells[order]
        self._there = there = self._cells >= 0
        first = np.cumsum(sizes) - sizes  # in the long form a query is where its rows are
        self._index = owner[order] if lengths is not None else np.where(there, self._cells, first[owner[order]])

    def _marks(self) -> Mask:
        """Which documents the mask keeps."""
        marks = self._flat("mask")
        if marks.dtype.kind not in "biuf":
            raise InvalidInputError(f"mask: expected 0 or 1, got an array of {marks.dtype}", column="mask")
        return np.asarray(marks != 0)

    @property
    def numbered(self) -> bool:
        """Whether queries have no names: then they are the rows."""
        names = self._query if isinstance(self._query, tuple) else (self._query,)
        return not all(self._parent is not None and name in self._parent for name in names)

    def __contains__(self, name: str) -> bool:
        return (name == "mask" and self._there is not None) or super().__contains__(name)

    def array(self, name: Any, ndim: int = 1) -> Array:
        if (name, ndim) not in self._arrays:
            if name == "mask" and self._there is not None:
                given = self._taken(name) if self._parent is not None and name in self._parent else np.ones(1, bool)
                values = np.where(self._there, given, given.dtype.type(0))
            else:
                values = self._taken(name)
                if name in self._blank and self._there is not None and not self._there.all():
                    values = np.where(self._there, values, values.dtype.type(0))
            self._arrays[name, ndim] = values
        return self._arrays[name, ndim]

    def _taken(self, name: str) -> Array:
        if not self._is_listed(name):
            if self._lengths is not None and name in self._blank:
                raise InvalidInputError(f"{name}: expected a list in each row, as in {self._blank[0]}", column=name)
            assert self._parent is not None
            return self._parent.array(name)[self.index]
        flat = self._flat(name)
        if self._there is None:
            return flat
        return flat[np.maximum(self._cells, 0)] if len(flat) else np.zeros(len(self._cells))

    def column(self, name: Any, kind: Kind) -> Column:
        if not isinstance(kind, Ids):
            return super().column(name, kind)

        def read() -> Column:
            assert self._parent is not None
            if name == self._query and self.numbered:
                return IdColumn(self.index, "integer")
            if isinstance(name, str) and self._is_listed(name):
                return kind._one(self._taken(name), name)
            whole = self._parent.column(name, kind)
            assert isinstance(whole, IdColumn)
            return whole.take(self.index)

        made: Column = self.make((name, kind), read)
        return made

    def _is_listed(self, name: str) -> bool:
        assert self._parent is not None
        return self._lengths is not None and is_listed(self._parent.raw(name))

    def _flat(self, name: str) -> Array:
        """Return a column by documents, those that the mask leaves out among them."""
        assert self._parent is not None
        if not self._is_listed(name):
            whole = self._parent.array(name)
            return whole if self._lengths is None else np.repeat(whole, self._lengths)
        flat, lengths = flattened(self._parent.raw(name), name)
        self._parent.same_length(len(lengths), name)
        assert self._lengths is not None
        if (lengths != self._lengths).any():
            row = int((lengths != self._lengths).argmax())
            raise InvalidInputError(
                f"{name}: row {row:,} has {lengths[row]:,} documents, other columns have {self._lengths[row]:,}",
                column=name,
                row=row,
            )
        return flat


def listed(batch: Batch, bound: Callable[[str], Any]) -> Batch:
    """Return a batch by documents, whether it is by queries, has a mask, or is by documents already."""
    roles, query = ("y_true", "popularity", "y_score"), bound("query")
    y_true = next((n for n in map(bound, roles[:2]) if isinstance(n, str) and n in batch), None)
    by_query = y_true is not None and is_listed(batch.raw(y_true))
    if not by_query and "mask" not in batch:
        return batch
    blank = tuple(dict.fromkeys((y_true or bound("y_true"), *map(bound, (*roles, "position")))))

    def make() -> Batch:
        lengths = flattened(batch.raw(y_true), y_true)[1] if y_true is not None and by_query else None
        if lengths is not None and y_true is not None:
            batch.same_length(len(lengths), y_true)
        return ListedRows(batch, lengths, query, blank)

    made: Batch = batch.make(("listed", query, blank), make)
    return made


def flattened(raw: Any, name: str) -> tuple[Array, Ints]:
    """Return all values one after the other, and how many each row has."""
    if getattr(raw, "ndim", 1) == 2:
        matrix = as_array(raw, name, 2)
        return np.ascontiguousarray(matrix).reshape(-1), np.full(len(matrix), matrix.shape[1])
    if not isinstance(raw, (list, tuple)):
        raw = raw.to_pylist() if hasattr(raw, "to_pylist") else list(raw)
    rows = [np.asarray(row if row is not None else ()) for row in raw]
    lengths = np.array([len(row) for row in rows], np.int64)
    full = [row for row in rows if len(row)]
    return np.concatenate(full) if full else np.zeros(0), lengths


def ranked_lists(
    ranked: Iterable[Sequence[Any]],
    relevant: Iterable[Iterable[Any] | Mapping[Any, float]],
    *,
    sample_weight: Any = None,
) -> dict[str, Array]:
    """Return ranked lists and what is relevant as columns, a row a document, for the `update` of any ranking metric.

    Parameters
    ----------
    ranked : iterable of sequences
        For each query or user, the documents returned, the best first.
    relevant : iterable of sets, or of mappings from document to grade
        For each, what is relevant, returned or not.
    sample_weight : array-like of shape (n_queries,), optional
        The weight of each.

    Raises
    ------
    InvalidInputError
        There are not as many lists as sets, a list has a document twice, or some documents are numbers and others
        texts.

    Examples
    --------
    >>> import streammetrics as sm
    >>> rows = sm.ranked_lists([["a", "b", "c"], ["d"]], [{"b", "x"}, {"d"}])
    >>> sm.MetricCollection(sm.RecallAtK(3), sm.MeanReciprocalRank()).update(rows).compute()
    {'recall_at_k@3': 0.75, 'mrr': 0.75}
    """
    lists, truths = list(ranked), [known if isinstance(known, Mapping) else list(known) for known in relevant]
    if len(lists) != len(truths):
        raise InvalidInputError(
            f"there are {len(lists):,} ranked lists, and {len(truths):,} sets of relevant documents"
        )
    _check_kinds({"ranked": lists, "relevant": truths})
    grades: list[float] = []
    lengths, returned = np.zeros((2, len(lists)), np.int64)
    for i, (documents, truth) in enumerate(zip(lists, truths, strict=True)):
        known = dict(truth) if isinstance(truth, Mapping) else dict.fromkeys(truth, 1)
        met = dict.fromkeys(documents)
        if len(met) < len(documents):
            raise InvalidInputError(f"ranked: list {i:,} has a document twice", column="ranked", row=i)
        missed = [grade for document, grade in known.items() if document not in met]
        missed = missed or ([] if met else [0])  # a query of which nothing is known, and nothing returned, is one too
        grades += [known.get(document, 0) for document in met]
        grades += missed
        returned[i], lengths[i] = len(met), len(met) + len(missed)
    place = np.arange(len(grades)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    numbers = np.array([next(_QUERIES) for _ in lists], np.int64)
    columns: dict[str, Array] = {
        "query": np.repeat(numbers, lengths),
        "y_true": np.array(grades, np.float64),
        "y_score": -place.astype(np.float64),
        "retrieved": (place < np.repeat(returned, lengths)).astype(np.uint8),
    }
    if sample_weight is not None:
        weights = as_array(sample_weight, "sample_weight")
        if len(weights) != len(lists):
            raise InvalidInputError(
                f"sample_weight has {len(weights):,} rows, and there are {len(lists):,} ranked lists"
            )
        columns["sample_weight"] = np.repeat(weights, lengths)
    return columns


def _check_kinds(sides: Mapping[str, Sequence[Iterable[Any]]]) -> None:
    """Raise where documents are numbers here and texts there: those would never be found."""
    first: dict[str, tuple[str, int, Any]] = {}
    for side, rows in sides.items():
        for i, row in enumerate(rows):
            for kind, document in {type(d): d for d in row}.items():
                first.setdefault(kind_word(kind), (side, i, document))
    if len(first) > 1:
        said = ", ".join(f"{document!r} in list {i:,} of {side}" for side, i, document in first.values())
        raise InvalidInputError(f"documents are {' and '.join(first)} ({said}): call them alike", column="relevant")
