"""Rankings whose rows stand anywhere: put in order on disk, a share of the queries at a time in memory."""

from __future__ import annotations

import io
import tempfile
import threading
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.ipc as ipc

from streammetrics.io.parts import LogPart
from streammetrics.io.queries import Ints, Piece, query_ids, together
from streammetrics.io.readers import one_table
from streammetrics.statistics.groups.spill import SpillFile

__all__ = ["Gathered", "QueryShare", "Shares", "shares_of"]

SHARE_BYTES = 16 << 20  # of the log as it lies on disk; a share is some times that in memory
MOST_SHARES = 256
ORDER = "streammetrics: where the row stood"
ROWS = 40  # bits of the row in its part; the others are the number of the part
PIECE = 1 << 16  # bytes written at a time
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
    parts: Sequence[LogPart]

    def place(self, row: int) -> tuple[str, int]:
        """File and row of one of them."""
        number, at = divmod(int(self.order[row]), 1 << ROWS)
        return self.parts[number].file, self.parts[number].first_row + at


class Stream(io.RawIOBase):
    """What Arrow writes of a share, in a file without a name, to be read once."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        self.file, self.check = SpillFile(folder, "make room, or point TMPDIR to another folder"), 0
        self.waiting, self.size = list[bytes](), 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.waiting.append(bytes(data))
        self.size += len(data)
        if self.size > PIECE:
            self.settle()
        return len(data)

    def settle(self) -> None:
        """Let nothing wait."""
        data = b"".join(self.waiting)
        if data:
            self.file.write([[np.frombuffer(data, np.uint8)]])
        self.check, self.waiting, self.size = zlib.crc32(data, self.check), [], 0

    def table(self) -> pa.Table:
        """Read the rows, and give the disk back."""
        data = self.file.read(0, self.file.end)
        if zlib.crc32(data) != self.check:
            raise self.file.damaged("a checksum differs")
        self.file.close()
        return ipc.open_stream(pa.py_buffer(data)).read_all()


class Shares:
    """Rows of a log on disk, all those of a query in one of some files: a share is what is in memory at a time.

    The folder is the system's for temporary files (TMPDIR); what is there holds the columns that are counted, and goes
    with the process, however it ends.

    Parameters
    ----------
    column : str or tuple of str
        What a query is known by.
    parts : sequence of Part
        The parts of the log.
    count : int
        How many shares.
    """

    def __init__(self, column: str | tuple[str, ...], parts: Sequence[LogPart], count: int) -> None:
        self.column, self.parts, self.count = column, parts, count
        self._lock = threading.Lock()
        self._streams: dict[tuple[int, Any], tuple[Stream, Any]] = {}

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
        if (share, schema) not in self._streams:
            stream = Stream(tempfile.gettempdir())
            self._streams[share, schema] = stream, ipc.new_stream(stream, schema)
        return self._streams[share, schema][1]

    def close(self) -> list[QueryShare]:
        """End writing; return the shares that have rows."""
        found: dict[int, list[Stream]] = {}
        for (share, _), (stream, writer) in self._streams.items():
            writer.close()
            stream.settle()
            found.setdefault(share, []).append(stream)
        self._streams.clear()
        return [QueryShare(self, found[share]) for share in sorted(found)]


class QueryShare:
    """A share of the queries, to be counted as a part of a log is."""

    read_bytes = 0

    def __init__(self, shares: Shares, streams: Sequence[Stream]) -> None:
        self._shares, self._streams = shares, streams

    def pieces(self) -> Iterator[Gathered]:
        """Yield its queries, whole and in the order of the log."""
        tables = [stream.table() for stream in self._streams]
        table = one_table(tables).combine_chunks()
        stood = table.column(ORDER).to_numpy()
        table = table.drop_columns([ORDER])
        order = np.lexsort([stood, *query_ids(table, self._shares.column).T])
        yield Gathered(table.take(pa.array(order)), stood[order], self._shares.parts)
