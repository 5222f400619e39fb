"""Queries kept whole: rows of one query come in one batch, wherever the edges of files, parts and batches cut them.

Where they do not stand side by side, `scattered` puts them in order on disk.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streammetrics.batch.columns import Batch
from streammetrics.batch.convert import as_columns
from streammetrics.batch.ids import Ids
from streammetrics.collect.accumulator import definition_of
from streammetrics.collect.metric_like import MetricLike
from streammetrics.errors import InvalidInputError
from streammetrics.io.logs import LogPart
from streammetrics.io.readers import decoded, one_table

__all__ = ["Ints", "Piece", "Queries", "query_column", "query_ids", "together"]

Ints = NDArray[np.int64]


def query_column(metrics: MetricLike) -> str | tuple[str, ...] | None:
    """Return the column whose equal rows must come together; None if no metric asks for that."""
    asked = [read for read in definition_of(metrics).reads if read.state.together is not None]
    names = list(dict.fromkeys(binding.column(state.together or "") for state, binding, *_ in asked))
    if len(names) > 1:
        raise InvalidInputError(f"one pass keeps the rows of one column together, not of {names[0]!r} and {names[1]!r}")
    return names[0] if names else None


class Piece(NamedTuple):
    """Some neighbouring rows of a log.

    Parameters
    ----------
    rows : pyarrow.Table
        The rows.
    file : str
        Where they are.
    first_row : int
        The row of the file that the first one is.
    """

    rows: pa.Table
    file: str
    first_row: int

    def place(self, row: int) -> tuple[str, int]:
        """File and row of one of them."""
        return self.file, self.first_row + row


class Queries:
    """Cuts parts of a log between queries, as long as the rows of each stand side by side.

    Each part gives its whole queries at once. Its first and its last one may go on in the part before or after: they are
    kept, and `joined` in the order of the parts in the end. What a query is known by is kept, too (8 or 16 bytes), to
    find out whether one returned.

    Parameters
    ----------
    column : str or tuple of str
        What a query is known by.
    """

    def __init__(self, column: str | tuple[str, ...]) -> None:
        self.column = column
        self.scattered = False
        self._ends: dict[int, list[Piece]] = {}
        self._runs: dict[int, list[Ints]] = {}

    def whole(self, number: int, part: LogPart, batches: Iterator[pa.RecordBatch]) -> Iterator[Piece]:
        """Yield the rows of a part whose queries certainly lie in it, a batch at a time; end where one returns."""
        ends, runs = self._ends.setdefault(number, []), self._runs.setdefault(number, [])
        held: list[pa.RecordBatch] = []  # the query that may go on
        last: Ints | None = None
        first_row = row = part.first_row
        for batch in batches:
            ids = query_ids(batch, self.column)
            if not len(ids):
                continue
            starts = np.flatnonzero(
                np.r_[last is None or bool((ids[0] != last).any()), (ids[1:] != ids[:-1]).any(axis=1)]
            )
            runs += [ids[starts]] if len(starts) else []
            if _returns(np.concatenate(runs[-2:])):
                self.scattered = True
                return
            last = ids[-1]
            if len(starts) and (held or len(starts) > 1):
                cut = int(starts[-1])
                before = pa.Table.from_batches([*held, batch.slice(0, cut)])
                if not ends:
                    size = int(starts[0] if held else starts[1]) + sum(h.num_rows for h in held)
                    ends.append(Piece(before.slice(0, size), part.file, first_row))
                    before, first_row = before.slice(size), first_row + size
                if before.num_rows:
                    yield Piece(before, part.file, first_row)
                held, first_row = [batch.slice(cut)], row + cut
            else:
                held.append(batch)
            row += batch.num_rows
        if held:
            ends.append(Piece(pa.Table.from_batches(held), part.file, first_row))

    def returned(self) -> bool:
        """Whether a query returned after others, anywhere in the log."""
        runs = [run for _, several in sorted(self._runs.items()) for run in several]
        for width in () if self.scattered else {run.shape[1] for run in runs}:  # texts and numbers are never one
            ids = np.concatenate([run for run in runs if run.shape[1] == width])
            again = np.r_[False, (ids[1:] == ids[:-1]).all(axis=1)]  # one that was cut in two by parts
            self.scattered = self.scattered or _returns(ids[~again])
        return self.scattered

    def joined(self) -> list[Piece]:
        """Return the first and last queries of all parts, in their order; those cut in two stand together."""
        return [piece for _, ends in sorted(self._ends.items()) for piece in ends]


def together(pieces: list[Piece]) -> pa.Table:
    """Return pieces as one table, whatever the types of their files."""
    rows = [piece.rows for piece in pieces]
    return one_table([pa.table(list(map(decoded, one.columns)), names=one.schema.names) for one in rows])


def query_ids(batch: Any, column: str | tuple[str, ...]) -> Ints:
    """What the query of each row is known by: one or two numbers."""
    ids: Ints = Batch(_columns(batch)).column(column, Ids()).values
    return ids.reshape(batch.num_rows, -1)


def _returns(ids: Ints) -> bool:
    """Whether one of some queries is there twice."""
    return len(np.unique(ids, axis=0) if ids.shape[1] > 1 else np.unique(ids[:, 0])) < len(ids)


def _columns(batch: Any) -> Any:
    columns = as_columns(batch)
    assert columns is not None
    return columns
