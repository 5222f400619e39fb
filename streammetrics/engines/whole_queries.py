"""Compute ranking metrics of a log whose parts and batches may end in the middle of a query.

A worker counts the complete queries of its part. The first and the last query of a part may continue in another part,
so the worker returns their rows. The driver counts these queries when it has all their rows.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..batch.convert import as_columns, library_of
from ..collect.metric_like import MetricLike, columns_of, without_block_ends
from ..collect.query_columns import compute_query_ids, find_query_column
from ..collect.serialization import merge
from ..errors import InvalidInputError
from . import check_metrics
from .parts import iterate_batches, warn_of_size

__all__ = ["PartQueries", "find_query_columns", "fold_queries", "fold_whole_queries", "merge_queries", "sort_by_query"]

H = TypeVar("H", bound=MetricLike)
Ints = NDArray[np.int64]
Rows = Mapping[str, Any]


class PartQueries(NamedTuple):
    """The result of counting one part of a log.

    Parameters
    ----------
    state : bytes or None
        The state of the complete queries; None if this state is merged separately.
    ids : list of int64 arrays
        The IDs of the complete queries.
    edges : list of (tuple of int, list of mappings)
        The IDs and the rows of the first and the last query of the part, which may continue in other parts.
    """

    state: bytes | None
    ids: list[Ints]
    edges: list[tuple[tuple[int, ...], list[Rows]]]

    def without_state(self) -> PartQueries:
        """Return a copy without the state, which the driver does not need if tasks merge the states."""
        return self._replace(state=None)


def find_query_columns(metrics: MetricLike, present: Iterable[str]) -> list[str]:
    """Return the query columns of ranking metrics.

    The list is empty if no metric has queries. It is also empty if the table lacks a query column: each row of such a
    table contains a whole query as lists.
    """
    check_metrics(metrics)
    column = find_query_column(metrics)
    names = [] if column is None else [*column] if isinstance(column, tuple) else [column]
    return names if {*names} <= {*present} else []


def fold_queries(part: Any, metrics: MetricLike) -> PartQueries:
    """Count one part of a log, in which the rows of each query are adjacent; the tasks of an engine call this function.

    The parameters are those of `fold_part`. A query may continue in the next batch or in the next part.
    """
    check_metrics(metrics)
    copy, column, read = metrics.copy().reset(), find_query_column(metrics), columns_of(metrics)
    ids, edges = list[Ints](), list[tuple[tuple[int, ...], list[Rows]]]()
    # The ID and the rows of the last query so far, which may continue in the next batch.
    last: Ints | None = None
    pending = list[Rows]()
    for table in iterate_batches(part() if callable(part) else part):
        columns = as_columns(table)
        if column is None or columns is None or not find_query_columns(metrics, columns):
            copy.update(table)
            continue
        rows = {name: columns[name] for name in read if name in columns}
        of_row = compute_query_ids(rows, column)
        if not len(of_row):
            continue
        is_start = np.r_[_differ(of_row[0], last), (of_row[1:] != of_row[:-1]).any(axis=1)]
        starts = np.flatnonzero(is_start)
        head = _slice_rows(rows, 0, int(starts[0]) if len(starts) else len(of_row))
        pending += [head] if len(starts) == 0 or starts[0] else []
        if len(starts):
            _check_distinct([of_row[starts]], column)
            before = last if last is not None else of_row[0]
            if not edges:
                edges.append((_as_key(before), pending))
            else:
                ids.append(before[None])
                copy.update(_concat_rows(pending))
            if starts[-1] > starts[0]:
                ids.append(of_row[starts[:-1]])
                copy.update(_slice_rows(rows, int(starts[0]), int(starts[-1])))
            pending = [_slice_rows(rows, int(starts[-1]), len(of_row))]
        last = of_row[-1]
    if last is not None:
        edges.append((_as_key(last), pending))
    edges = [(key, [_copy_arrow(piece) for piece in pieces]) for key, pieces in edges]
    # The state stores the IDs of the first and the last query that it has counted. Remove these IDs, because they are
    # not those of the first and the last query of the part, whose rows are in `edges`.
    return PartQueries(without_block_ends(copy).to_bytes(), ids, edges)


def merge_queries(parts: Iterable[PartQueries], metrics: H) -> H:
    """Merge the results of `fold_queries` into a new object, and count the first and last queries of the parts.

    Raises
    ------
    InvalidInputError
        If the log is not grouped by query, that is, if a seemingly complete query has more rows elsewhere in the log.
    """
    ids, edges = list[Ints](), dict[tuple[int, ...], list[Rows]]()

    def collect_states() -> Iterator[bytes]:
        for part in warn_of_size(parts, _count_received_bytes):
            ids.extend(part.ids)
            for key, pieces in part.edges:
                edges.setdefault(key, []).extend(pieces)
            if part.state is not None:
                yield part.state

    total: H = merge(itertools.chain([metrics.copy().reset()], collect_states()))
    _check_distinct([*ids, *(np.array([key]) for key in edges)], find_query_column(metrics))
    pieces = [piece for of_query in edges.values() for piece in of_query]
    if pieces:
        try:
            total.update(_concat_rows(pieces))
        except InvalidInputError as error:
            raise InvalidInputError(
                f"{error} (rows are counted from the first row of the queries at the ends of parts)",
                column=error.column,
            ) from error
    return total


def _count_received_bytes(part: PartQueries) -> int:
    return len(part.state or b"") + sum(ids.nbytes for ids in part.ids)


def fold_whole_queries(table: Any, metrics: MetricLike, names: Sequence[str]) -> bytes:
    """Count a table that contains all rows of its queries, in any order; return the state as bytes."""
    copy = metrics.copy().reset()
    copy.update(sort_by_query(table, names))
    state: bytes = copy.to_bytes()
    return state


def sort_by_query(table: Any, names: Sequence[str]) -> Any:
    """Sort an Arrow table or a pandas data frame by query; rows of the same query keep their order."""
    ids = compute_query_ids(table, names[0] if len(names) == 1 else tuple(names))
    return table.take(np.lexsort(ids.T[::-1]))


def _check_distinct(ids: Sequence[Ints], column: Any) -> None:
    """Raise InvalidInputError if an ID occurs twice; `ids` contains one ID for each run of adjacent rows of a query."""
    # The ID of a string consists of two integers, and the ID of a number is one integer. IDs of different lengths are
    # never equal, so compare only IDs of the same length.
    for width in {array.shape[1] for array in ids}:
        found = np.concatenate([array for array in ids if array.shape[1] == width])
        repeats = len(found) - len(np.unique(found, axis=0) if width > 1 else np.unique(found[:, 0]))
        if repeats:
            raise InvalidInputError(
                f"{column}: expected the rows of each query to be adjacent, found {repeats:,} queries that occur again "
                f"after other queries; sort the log by {column!r}, or store each query as one row of lists. `evaluate` "
                f"sorts data frames, datasets and relations by itself, unless you pass assume_grouped=True",
                column=str(column),
                count=repeats,
            )


def _differ(one: Ints, other: Ints | None) -> bool:
    return other is not None and (len(one) != len(other) or bool((one != other).any()))


def _as_key(query: Ints) -> tuple[int, ...]:
    return tuple(query.tolist())


def _slice_rows(rows: Rows, start: int, stop: int) -> Rows:
    # Slice a pandas series with `iloc`. Plain slices select by label, not by position, if the labels are floats.
    return {name: (c.iloc if hasattr(c, "iloc") else c)[start:stop] for name, c in rows.items()}


def _copy_arrow(rows: Rows) -> Rows:
    """Return rows with copies of their Arrow columns.

    Without a copy, the whole Arrow column of which these rows are a slice would be sent to the driver.
    """
    return {n: c.take(np.arange(len(c))) if library_of(type(c)) == "pyarrow" else c for n, c in rows.items()}


def _concat_rows(pieces: Sequence[Rows]) -> Rows:
    """Return the rows of all pieces, which must have the same columns."""
    names = dict.fromkeys(name for piece in pieces for name in piece)
    for name in names:
        if any(name not in piece for piece in pieces):
            raise InvalidInputError(
                f"{name}: expected this column in all parts of the log, found a part without it", column=name
            )
    return {name: _concat_columns([piece[name] for piece in pieces]) for name in names}


def _concat_columns(columns: Sequence[Any]) -> Any:
    if len(columns) == 1:
        return columns[0]
    libraries = {library_of(type(column)) for column in columns}
    library = libraries.pop() if len(libraries) == 1 else ""
    if library == "pyarrow":
        arrow = sys.modules["pyarrow"]
        is_dictionary = arrow.types.is_dictionary
        plain = [c.cast(c.type.value_type) if is_dictionary(c.type) else c for c in columns]
        tables = [arrow.table({"column": column}) for column in plain]
        return arrow.concat_tables(tables, promote_options="permissive").combine_chunks().column("column")
    if library in ("pandas", "polars"):
        return sys.modules[library].concat(list(columns))
    return np.concatenate([np.asarray(column) for column in columns])
