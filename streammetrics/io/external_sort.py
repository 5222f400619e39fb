"""External sort of a log by query: partition its rows by query on disk, then sort each partition in memory."""

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

from streammetrics.collect.query_columns import compute_query_ids
from streammetrics.io.parts import LogPart
from streammetrics.io.queries import Ints, LogPiece, concat_pieces
from streammetrics.io.readers import concat_tables
from streammetrics.statistics.groups.spill import SpillFile

__all__ = ["QueryPartition", "QueryPartitions", "SortedRows", "count_partitions"]

# The size of a partition, measured in bytes of the log files. In memory, a partition takes up several times as many
# bytes, because the log is compressed.
PARTITION_BYTES = 16 << 20
MAX_PARTITIONS = 256
POSITION_COLUMN = "streammetrics: position of the row"
# The low 40 bits of a position are the row number within its part; the high bits are the part number.
ROW_BITS = 40
WRITE_BYTES = 1 << 16
HASH_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


def count_partitions(size: int | None) -> int:
    """Return the number of partitions for a log of `size` bytes, or of unknown size if `size` is None."""
    return MAX_PARTITIONS if size is None else min(max(size // PARTITION_BYTES, 1), MAX_PARTITIONS)


class SortedRows(NamedTuple):
    """Rows of whole queries, and their positions in the log.

    Parameters
    ----------
    rows : pyarrow.Table
        The rows, grouped by query; rows of the same query are in log order.
    positions : int64 array
        The position of each row: its part number and its row number within the part, packed into one integer.
    parts : sequence of LogPart
        The parts of the log.
    """

    rows: pa.Table
    positions: Ints
    parts: Sequence[LogPart]

    def locate(self, row: int) -> tuple[str, int]:
        """Return the file that contains a row, and the row number within the file."""
        number, at = divmod(int(self.positions[row]), 1 << ROW_BITS)
        return self.parts[number].file, self.parts[number].first_row + at


class PartitionStream(io.RawIOBase):
    """A stream that Arrow writes a partition to. The bytes go to an unnamed temporary file, which is read only once."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        self.file, self.check = SpillFile(folder, "free disk space, or set TMPDIR to another folder"), 0
        self.pending, self.size = list[bytes](), 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.pending.append(bytes(data))
        self.size += len(data)
        if self.size > WRITE_BYTES:
            self.write_pending()
        return len(data)

    def write_pending(self) -> None:
        """Write all pending bytes to the file."""
        data = b"".join(self.pending)
        if data:
            self.file.write([[np.frombuffer(data, np.uint8)]])
        self.check, self.pending, self.size = zlib.crc32(data, self.check), [], 0

    def read_table(self) -> pa.Table:
        """Read the rows, and delete the file."""
        data = self.file.read(0, self.file.end)
        if zlib.crc32(data) != self.check:
            raise self.file.damage_error("a checksum is wrong")
        self.file.close()
        return ipc.open_stream(pa.py_buffer(data)).read_all()


class QueryPartitions:
    """Partitions of the rows of a log, on disk. All rows of a query are in the same partition.

    The files are in the folder for temporary files (TMPDIR) and contain only the columns that counting needs. The files
    have no names, so they disappear when the process ends, however it ends.

    Parameters
    ----------
    column : str or tuple of str
        The columns that identify a query.
    parts : sequence of LogPart
        The parts of the log.
    count : int
        Number of partitions.
    """

    def __init__(self, column: str | tuple[str, ...], parts: Sequence[LogPart], count: int) -> None:
        self.column, self.parts, self.count = column, parts, count
        self._lock = threading.Lock()
        self._streams: dict[tuple[int, Any], tuple[PartitionStream, Any]] = {}

    def add_part(self, number: int, batches: Iterable[pa.RecordBatch]) -> None:
        """Append the rows of part `number` to their partitions. Several threads can call this method at once."""
        row = 0
        for batch in batches:
            ids = compute_query_ids(batch, self.column)
            # A Fibonacci hash of the query ID selects the partition. Use the high bits of the hash, because they depend
            # on more bits of the ID than the low bits do.
            partition = (ids[:, 0].view(np.uint64) * HASH_MULTIPLIER >> np.uint64(32)).astype(np.int64) % self.count
            order = np.argsort(partition, kind="stable")
            positions = pa.array((number << ROW_BITS) + row + np.arange(len(ids)))
            table = (
                concat_pieces([LogPiece(pa.Table.from_batches([batch]), "", 0)])
                .append_column(POSITION_COLUMN, positions)
                .take(pa.array(order))
            )
            ends = np.cumsum(np.bincount(partition, minlength=self.count))
            with self._lock:
                for i, (start, end) in enumerate(zip(np.r_[0, ends[:-1]].tolist(), ends.tolist(), strict=True)):
                    if end > start:
                        self._open_writer(i, table.schema).write_table(table.slice(start, end - start))
            row += len(ids)

    def _open_writer(self, partition: int, schema: pa.Schema) -> Any:
        """Return the writer for a partition and schema. The files of a log may have different schemas."""
        if (partition, schema) not in self._streams:
            stream = PartitionStream(tempfile.gettempdir())
            self._streams[partition, schema] = stream, ipc.new_stream(stream, schema)
        return self._streams[partition, schema][1]

    def close(self) -> list[QueryPartition]:
        """Finish writing all partition files; return the partitions that contain rows."""
        streams: dict[int, list[PartitionStream]] = {}
        for (partition, _), (stream, writer) in self._streams.items():
            writer.close()
            stream.write_pending()
            streams.setdefault(partition, []).append(stream)
        self._streams.clear()
        return [QueryPartition(self, streams[partition]) for partition in sorted(streams)]


class QueryPartition:
    """One partition of the rows of a log. It contains whole queries and is processed like a part of the log."""

    read_bytes = 0

    def __init__(self, partitions: QueryPartitions, streams: Sequence[PartitionStream]) -> None:
        self._partitions, self._streams = partitions, streams

    def read_pieces(self) -> Iterator[SortedRows]:
        """Yield the rows of the partition as one table, grouped by query. Rows of the same query are in log order."""
        tables = [stream.read_table() for stream in self._streams]
        table = concat_tables(tables).combine_chunks()
        positions = table.column(POSITION_COLUMN).to_numpy()
        table = table.drop_columns([POSITION_COLUMN])
        # Sort by query, then by position. The last key of `lexsort` is the primary one.
        order = np.lexsort([positions, *compute_query_ids(table, self._partitions.column).T])
        yield SortedRows(table.take(pa.array(order)), positions[order], self._partitions.parts)
