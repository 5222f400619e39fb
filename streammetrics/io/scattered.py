"""Rankings whose rows stand anywhere: put in order on disk, a share of the queries at a time in memory."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.ipc as ipc

from streammetrics.io.parts import Part
from streammetrics.io.queries import Ints, Piece, query_ids, together

__all__ = ["Gathered", "Share", "Shares", "shares_of"]

SHARE_BYTES = 16 << 20  # of the log as it lies on disk; a share is some times that in memory
MOST_SHARES = 256
ORDER = "streammetrics: where the row stood"
ROWS = 40  # bits of the row in its part; the others are the number of the part
MIX = np.uint64(0x9E3779B97F4A7C15)


def shares_of(size: int | None) -> int:
    """How many shares a log of so many bytes is put in; None where nobody knows."""
    return MOST_SHARES if size is None else min(max(size // SHARE_BYTES, 1), MOST_SHARES)


class Gathered(NamedTuple):
    """Whole queries, and where each row stood.

    Parameters
    ----------
    rows : pyarrow.Table
        The rows, those of a query side by side in the order of the log.
    order : int64 array
        The part and the row of it that each was.
    parts : sequence of Part
        The parts of the log.
    """

    rows: pa.Table
    order: Ints
    parts: Sequence[Part]

    def place(self, row: int) -> tuple[str, int]:
        """File and row of one of them."""
        number, at = divmod(int(self.order[row]), 1 << ROWS)
        return self.parts[number].file, self.parts[number].first_row + at


class Shares:
    """Rows of a log on disk, all those of a query in one of some files: a share is what is in memory at a time.

    The folder is one of the system's for temporary files (TMPDIR); it holds the columns that are counted, and goes with
    this object.

    Parameters
    ----------
    column : str or tuple of str
        What a query is known by.
    parts : sequence of Part
        The parts of the log.
    count : int
        How many shares.
    """

    def __init__(self, column: str | tuple[str, ...], parts: Sequence[Part], count: int) -> None:
        self.column, self.parts, self.count = column, parts, count
        self.folder = tempfile.TemporaryDirectory(prefix="streammetrics-")
        self._lock = threading.Lock()
        self._writers: dict[tuple[int, Any], Any] = {}
        self._files: list[list[Path]] = [[] for _ in range(count)]

    def take(self, number: int, batches: Iterable[pa.RecordBatch]) -> None:
        """Put the rows of a part where they belong."""
        row = 0
        for batch in batches:
            ids = query_ids(batch, self.column)
            share = (ids[:, 0].view(np.uint64) * MIX >> np.uint64(32)).astype(np.int64) % self.count
            order = np.argsort(share, kind="stable")
            stood = pa.array((number << ROWS) + row + np.arange(len(ids)))
            table = (
                together([Piece(pa.Table.from_batches([batch]), "", 0)])
                .append_column(ORDER, stood)
                .take(pa.array(order))
            )
            ends = np.cumsum(np.bincount(share, minlength=self.count))
            with self._lock:
                for i, (start, end) in enumerate(zip(np.r_[0, ends[:-1]].tolist(), ends.tolist(), strict=True)):
                    if end > start:
                        self._writer(i, table.schema).write_table(table.slice(start, end - start))
            row += len(ids)

    def _writer(self, share: int, schema: pa.Schema) -> Any:
        """What writes rows of these types to a share."""
        if (share, schema) not in self._writers:
            path = Path(self.folder.name) / f"{share}-{len(self._files[share])}.arrow"
            self._files[share].append(path)
            self._writers[share, schema] = ipc.new_stream(str(path), schema)
        return self._writers[share, schema]

    def close(self) -> list[Share]:
        """End writing; return the shares that have rows."""
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()
        return [Share(self, files) for files in self._files if files]


class Share:
    """A share of the queries, to be counted as a part of a log is."""

    read_bytes = 0

    def __init__(self, shares: Shares, files: Sequence[Path]) -> None:
        self._shares, self._files = shares, files

    def pieces(self) -> Iterator[Gathered]:
        """Yield its queries, whole and in the order of the log."""
        tables = []
        for file in self._files:
            with ipc.open_stream(str(file)) as reader:
                tables.append(reader.read_all())
            file.unlink()
        table = pa.concat_tables(tables, promote_options="permissive").combine_chunks()
        stood = table.column(ORDER).to_numpy()
        table = table.drop_columns([ORDER])
        order = np.lexsort([stood, *query_ids(table, self._shares.column).T])
        yield Gathered(table.take(pa.array(order)), stood[order], self._shares.parts)
