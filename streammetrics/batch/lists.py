"""Batches of lists or padded matrices for ranking metrics, and the function `ranked_lists`."""

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
from .kinds import describe_dtype, kind_word

__all__ = ["ListedRows", "ranked_lists", "split_into_documents"]

Ints = NDArray[np.int64]

# Numbers that serve as query ids in `ranked_lists`. Each is used only once in a process, so a query never appears to
# continue one from an earlier batch.
_QUERIES = itertools.count()


class ListedRows(Batch):
    """A batch with one row for each document, made from a batch with one row for each query, or from a padded batch.

    Padding, which the parent marks with a 0 in the column `mask`, is removed. A query without documents gets one row with
    `mask` 0, which counts as a document that is neither retrieved nor relevant, so that the metric counts the query.

    Parameters
    ----------
    parent : Batch
        The user's batch. If each row is a query, a column with a value for each document is a matrix or a column of
        lists, and a column with a value for each query, such as a weight, is a plain column.
    lengths : int64 array, optional
        The number of documents in each row of the parent; None if each row of the parent is one document.
    query : str or tuple
        The column of query keys. If the parent has no such column, each of its rows is a query.
    blank : tuple of str
        Columns whose values are ignored where `mask` is 0.
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
        self._is_document: Mask | None = None
        # If there is neither padding nor an empty list, each row is a document, and no row needs to be moved.
        if "mask" not in parent and sizes.all():
            self._index = owner
            return
        kept = self._read_mask() if "mask" in parent else np.ones(len(owner), bool)
        # `cells` contains the position of each document, followed by one -1 for each query without documents. Sorting
        # `cells` by query moves each -1 to where the documents of its query would be.
        bare = np.bincount(owner[kept], minlength=len(sizes)) == 0
        cells = np.concatenate([np.flatnonzero(kept), np.full(int(bare.sum()), -1)])
        owner = np.concatenate([owner[kept], np.flatnonzero(bare)])
        order = np.argsort(owner, kind="stable")
        self._cells = cells[order]
        self._is_document = self._cells >= 0
        # `_index` maps each row of this batch to a row of the parent. If each row of the parent is a query, this is the
        # row of the query. If each row of the parent is a document, this is the row of the document or, for a
        # query without documents, the first row of the query.
        first = np.cumsum(sizes) - sizes
        self._index = (
            owner[order] if lengths is not None else np.where(self._is_document, self._cells, first[owner[order]])
        )

    def _read_mask(self) -> Mask:
        """Return a mask of the documents that are not padding."""
        marks = self._flat("mask")
        if marks.dtype.kind not in "biuf":
            raise InvalidInputError(f"mask: expected 0 or 1, found an array of {describe_dtype(marks)}", column="mask")
        return np.asarray(marks != 0)

    @property
    def rows_are_queries(self) -> bool:
        """Whether each row of the parent is a query, which is the case if the parent has no column of query keys."""
        names = self._query if isinstance(self._query, tuple) else (self._query,)
        return not all(self._parent is not None and name in self._parent for name in names)

    def __contains__(self, name: str) -> bool:
        return (name == "mask" and self._is_document is not None) or super().__contains__(name)

    def array(self, name: Any, ndim: int = 1) -> Array:
        if (name, ndim) not in self._arrays:
            if name == "mask" and self._is_document is not None:
                mask = (
                    self._take_documents(name)
                    if self._parent is not None and name in self._parent
                    else np.ones(1, bool)
                )
                values = np.where(self._is_document, mask, mask.dtype.type(0))
            else:
                values = self._take_documents(name)
                if name in self._blank and self._is_document is not None and not self._is_document.all():
                    values = np.where(self._is_document, values, values.dtype.type(0))
            self._arrays[name, ndim] = values
        return self._arrays[name, ndim]

    def _take_documents(self, name: str) -> Array:
        if not self._is_listed(name):
            if self._lengths is not None and name in self._blank:
                raise InvalidInputError(
                    f"{name}: expected a list in each row, as in {self._blank[0]}, found a single value", column=name
                )
            assert self._parent is not None
            return self._parent.array(name)[self.index]
        flat = self._flat(name)
        if self._is_document is None:
            return flat
        return flat[np.maximum(self._cells, 0)] if len(flat) else np.zeros(len(self._cells))

    def column(self, name: Any, kind: Kind) -> Column:
        if not isinstance(kind, Ids):
            return super().column(name, kind)

        def read() -> Column:
            assert self._parent is not None
            if name == self._query and self.rows_are_queries:
                return IdColumn(self.index, "integer")
            if isinstance(name, str) and self._is_listed(name):
                return kind._read_one(self._take_documents(name), name)
            whole = self._parent.column(name, kind)
            assert isinstance(whole, IdColumn)
            return whole.take(self.index)

        column: Column = self.memoize((name, kind), read)
        return column

    def _is_listed(self, name: str) -> bool:
        assert self._parent is not None
        return self._lengths is not None and is_listed(self._parent.raw(name))

    def _flat(self, name: str) -> Array:
        """Return a column of the parent with one value for each document, including padding."""
        assert self._parent is not None
        if not self._is_listed(name):
            whole = self._parent.array(name)
            return whole if self._lengths is None else np.repeat(whole, self._lengths)
        flat, lengths = flatten_lists(self._parent.raw(name), name)
        self._parent.check_length(len(lengths), name)
        assert self._lengths is not None
        if (lengths != self._lengths).any():
            row = int((lengths != self._lengths).argmax())
            raise InvalidInputError(
                f"{name}: row {row:,} has {lengths[row]:,} documents, but other columns have {self._lengths[row]:,}; "
                f"pass lists of equal length in each row",
                column=name,
                row=row,
            )
        return flat


def split_into_documents(batch: Batch, bound: Callable[[str], Any]) -> Batch:
    """Return a batch with one row for each document.

    In the given batch, each row may be a query with a list of documents. If there is a column `mask`, documents whose
    mask is 0 are padding. A batch that has neither lists nor a mask is returned unchanged. `bound` is a function that
    takes a role and returns the name of the column that has this role.
    """
    roles, query = ("y_true", "popularity", "y_score"), bound("query")
    y_true = next((n for n in map(bound, roles[:2]) if isinstance(n, str) and n in batch), None)
    by_query = y_true is not None and is_listed(batch.raw(y_true))
    if not by_query and "mask" not in batch:
        return batch
    blank = tuple(dict.fromkeys((y_true or bound("y_true"), *map(bound, (*roles, "position")))))

    def make() -> Batch:
        lengths = flatten_lists(batch.raw(y_true), y_true)[1] if y_true is not None and by_query else None
        if lengths is not None and y_true is not None:
            batch.check_length(len(lengths), y_true)
        return ListedRows(batch, lengths, query, blank)

    documents: Batch = batch.memoize(("split_into_documents", query, blank), make)
    return documents


def flatten_lists(raw: Any, name: str) -> tuple[Array, Ints]:
    """Return the concatenated values of a column of lists, and the length of each list."""
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
    """Convert ranked lists and sets of relevant documents to columns that any ranking metric's `update` accepts.

    Parameters
    ----------
    ranked : iterable of sequences
        For each query or user, the documents returned, best first.
    relevant : iterable of sets, or of mappings from document to grade
        For each query or user, in the same order, the relevant documents, whether returned or not.
    sample_weight : array-like of shape (n_queries,), optional
        The weight of each query or user.

    Returns
    -------
    dict of str to array
        Columns with one row for each document: `query`, `y_true`, `y_score`, `retrieved` and, if passed,
        `sample_weight`.

    Raises
    ------
    InvalidInputError
        The numbers of lists and sets differ, a list contains a document twice or is a string, or some documents are
        numbers and others are strings.

    Examples
    --------
    >>> import streammetrics as sm
    >>> rows = sm.ranked_lists([["a", "b", "c"], ["d"]], [{"b", "x"}, {"d"}])
    >>> sm.MetricCollection(sm.RecallAtK(3), sm.MeanReciprocalRank()).update(rows).compute()
    {'recall_at_k@3': 0.75, 'mrr': 0.75}
    """
    lists, sets = list(ranked), list(relevant)
    _check_lists({"ranked": lists, "relevant": sets})
    truths = [known if isinstance(known, Mapping) else list(known) for known in sets]
    if len(lists) != len(truths):
        raise InvalidInputError(
            f"expected as many sets of relevant documents as ranked lists ({len(lists):,}), found {len(truths):,}"
        )
    _check_kinds({"ranked": lists, "relevant": truths})
    grades: list[float] = []
    lengths, returned = np.zeros((2, len(lists)), np.int64)
    for i, (documents, truth) in enumerate(zip(lists, truths, strict=True)):
        known = dict(truth) if isinstance(truth, Mapping) else dict.fromkeys(truth, 1)
        distinct = dict.fromkeys(documents)
        if len(distinct) < len(documents):
            raise InvalidInputError(
                f"ranked: list {i:,} contains a document more than once; remove the duplicates", column="ranked", row=i
            )
        missed = [grade for document, grade in known.items() if document not in distinct]
        # A query with neither returned nor relevant documents must count too. It gets one row with grade 0, because a
        # query without rows would disappear.
        missed = missed or ([] if distinct else [0])
        grades += [known.get(document, 0) for document in distinct]
        grades += missed
        returned[i], lengths[i] = len(distinct), len(distinct) + len(missed)
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
                f"sample_weight: expected as many weights as ranked lists ({len(lists):,}), found {len(weights):,}"
            )
        columns["sample_weight"] = np.repeat(weights, lengths)
    return columns


def _check_lists(sides: Mapping[str, Sequence[Any]]) -> None:
    """Raise InvalidInputError if an item of `ranked` or `relevant` is not a list of documents.

    A string is not accepted, because Python would iterate over its characters. If the user passed two dicts by
    mistake, iterating over them yields keys, not lists, so the message also says how to convert dicts.
    """
    for side, rows in sides.items():
        for i, row in enumerate(rows):
            if isinstance(row, (str, bytes)) or not isinstance(row, Iterable):
                raise InvalidInputError(
                    f"{side}: list {i:,} is {row!r}; pass a list of documents for each query; "
                    f"for two dicts with a list for each user, pass [ranked[user] for user in users] and "
                    f"[relevant.get(user, ()) for user in users]",
                    column=side,
                    row=i,
                )


def _check_kinds(sides: Mapping[str, Sequence[Iterable[Any]]]) -> None:
    """Raise InvalidInputError if some documents are numbers and others strings, because a number never equals a string."""
    first: dict[str, tuple[str, int, Any]] = {}
    for side, rows in sides.items():
        for i, row in enumerate(rows):
            for kind, document in {type(d): d for d in row}.items():
                first.setdefault(kind_word(kind), (side, i, document))
    if len(first) > 1:
        examples = ", ".join(f"{document!r} in list {i:,} of {side}" for side, i, document in first.values())
        raise InvalidInputError(
            f"expected documents of one type, found {' and '.join(first)} ({examples}); convert the documents to one type",
            column="relevant",
        )
