"""Keep queries whole: collect all rows of a query in one batch, even if they are in several files or batches.

The rows of a query must be adjacent in the log. If they are not, the log is sorted first (module `external_sort`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streammetrics.collect.query_columns import compute_query_ids
from streammetrics.io.logs import LogPart
from streammetrics.io.readers import concat_tables, decode_dictionary

__all__ = ["Ints", "LogPiece", "QuerySplitter", "concat_pieces"]

Ints = NDArray[np.int64]


class LogPiece(NamedTuple):
    """Adjacent rows of a log.

    Parameters
    ----------
    rows : pyarrow.Table
        The rows.
    file : str
        The file that contains the rows.
    first_row : int
        Number of the first of these rows within the file.
    """

    rows: pa.Table
    file: str
    first_row: int

    def locate(self, row: int) -> tuple[str, int]:
        """Return the file of a row and its row number in that file."""
        return self.file, self.first_row + row


class QuerySplitter:
    """A splitter that cuts parts of a log between queries, provided that the rows of each query are adjacent.

    All queries of a part except the first and the last are complete and can be counted immediately. The first and last
    queries may have more rows in the previous or next part. Their rows are kept, and `collect_edge_pieces` returns them
    at the end. The IDs of all queries are kept as well (8 or 16 bytes each), to detect a query that occurs again after
    other queries.

    Parameters
    ----------
    column : str or tuple of str
        The column, or columns, that identify a query.
    """

    def __init__(self, column: str | tuple[str, ...]) -> None:
        self.column = column
        self.is_scattered = False
        self._ends: dict[int, list[LogPiece]] = {}
        self._runs: dict[int, list[Ints]] = {}

    def split_part(self, number: int, part: LogPart, batches: Iterator[pa.RecordBatch]) -> Iterator[LogPiece]:
        """Yield the rows of the complete queries in part `number`, at most one piece per batch.

        If a query occurs again after other queries, stop and set `is_scattered`.
        """
        ends, runs = self._ends.setdefault(number, []), self._runs.setdefault(number, [])
        # The rows of the last query that was read. This query may continue in the next batch.
        pending: list[pa.RecordBatch] = []
        last: Ints | None = None
        first_row = row = part.first_row
        for batch in batches:
            ids = compute_query_ids(batch, self.column)
            if not len(ids):
                continue
            starts = np.flatnonzero(
                np.r_[last is None or bool((ids[0] != last).any()), (ids[1:] != ids[:-1]).any(axis=1)]
            )
            runs += [ids[starts]] if len(starts) else []
            if _has_duplicates(np.concatenate(runs[-2:])):
                self.is_scattered = True
                return
            last = ids[-1]
            # The last element of `starts` is the first row of the last query, which may continue in the next batch. All
            # rows before it belong to complete queries, with one exception: the first query of the part may begin in
            # the previous part.
            if len(starts) and (pending or len(starts) > 1):
                cut = int(starts[-1])
                before = pa.Table.from_batches([*pending, batch.slice(0, cut)])
                if not ends:
                    size = int(starts[0] if pending else starts[1]) + sum(h.num_rows for h in pending)
                    ends.append(LogPiece(before.slice(0, size), part.file, first_row))
                    before, first_row = before.slice(size), first_row + size
                if before.num_rows:
                    yield LogPiece(before, part.file, first_row)
                pending, first_row = [batch.slice(cut)], row + cut
            else:
                pending.append(batch)
            row += batch.num_rows
        if pending:
            ends.append(LogPiece(pa.Table.from_batches(pending), part.file, first_row))

    def has_scattered_query(self) -> bool:
        """Return whether the rows of at least one query in the log are not adjacent."""
        runs = [run for _, several in sorted(self._runs.items()) for run in several]
        # The ID of a string consists of two integers, and the ID of a number is one integer. IDs of different lengths
        # are never equal, so look for duplicates among IDs of the same length.
        for width in () if self.is_scattered else {run.shape[1] for run in runs}:
            ids = np.concatenate([run for run in runs if run.shape[1] == width])
            # Two equal IDs in succession are not duplicates: the query continues in the next part of the log.
            again = np.r_[False, (ids[1:] == ids[:-1]).all(axis=1)]
            self.is_scattered = self.is_scattered or _has_duplicates(ids[~again])
        return self.is_scattered

    def collect_edge_pieces(self) -> list[LogPiece]:
        """Return the rows of the first and last queries of every part.

        The pieces are in log order, so the pieces of a query that continues in the next part are adjacent.
        """
        return [piece for _, ends in sorted(self._ends.items()) for piece in ends]


def concat_pieces(pieces: list[LogPiece]) -> pa.Table:
    """Return the pieces as one table, even if the column types of their files differ."""
    rows = [piece.rows for piece in pieces]
    return concat_tables([pa.table(list(map(decode_dictionary, one.columns)), names=one.schema.names) for one in rows])


def _has_duplicates(ids: Ints) -> bool:
    """Return whether any ID occurs more than once."""
    return len(np.unique(ids, axis=0) if ids.shape[1] > 1 else np.unique(ids[:, 0])) < len(ids)
