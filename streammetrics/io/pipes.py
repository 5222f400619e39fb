"""Standard input as a log, which can be read only once.

The format and the column types are inferred from the first bytes. These bytes are kept in memory so that they can be
read again with the rest of the log.
"""

from __future__ import annotations

import io
import sys
import threading
from typing import Any

import pyarrow as pa

from streammetrics.io.remote import open_file
from streammetrics.io.sources import LogError, LogFile

__all__ = ["STDIN", "Pipe", "open_source", "open_standard_input"]

STDIN = "-"
_MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bz2"}
_PEEK = 1 << 12
# Some programs write these bytes at the start of UTF-8 text.
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class Pipe:
    """A stream that several readers can read, each from the start.

    After `open_last_reader`, only the reader that it returned can read the stream.

    Arrow reads ahead in its own threads, even for a reader that is already closed. So each reader keeps its own
    position, the bytes read so far are kept for other readers, and a lock protects the stream.

    Parameters
    ----------
    raw : binary stream
        The stream, which is read only once.
    """

    def __init__(self, raw: Any) -> None:
        self._raw, self._head = raw, bytearray()
        self._last: PipeReader | None = None
        self._lock = threading.Lock()

    def open_reader(self) -> PipeReader:
        """Return a reader at the start of the stream."""
        return PipeReader(self)

    def open_last_reader(self) -> PipeReader:
        """Return a reader at the start of the stream. It must be the last reader to be opened.

        The bytes that it reads are not kept in memory. Earlier readers behave as if the stream had ended.
        """
        with self._lock:
            self._last = reader = PipeReader(self)
        return reader

    def read_at(self, reader: PipeReader, at: int, size: int) -> bytes:
        """Return up to `size` bytes from position `at` for a reader, or no bytes at the end of the stream."""
        with self._lock:
            if self._last not in (None, reader):
                return b""
            # `_head` contains the bytes read so far. Beyond them, read from the stream, and keep the new bytes unless
            # this is the last reader.
            if at < len(self._head):
                return bytes(self._head[at:] if size < 0 else self._head[at : at + size])
            data: bytes = self._raw.read(size)
            if self._last is None:
                self._head += data
            elif self._head:
                self._head = bytearray()
            return data


class PipeReader(io.RawIOBase):
    """A reader with its own position in a pipe.

    Parameters
    ----------
    pipe : Pipe
        The pipe to read from.
    """

    def __init__(self, pipe: Pipe) -> None:
        self._pipe, self._at = pipe, 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        """Read exactly `size` bytes unless the stream ends first, because Arrow treats a short read as the end."""
        data = b""
        while size < 0 or len(data) < size:
            more = self._pipe.read_at(self, self._at, size - len(data) if size >= 0 else -1)
            if not more:
                break
            self._at += len(more)
            data += more
        return data


def open_source(source: LogFile, *, last: bool = False) -> pa.NativeFile:
    """Open a local or remote file, or standard input at its start.

    `last` says whether standard input is opened for the last time. If so, its bytes are not kept in memory.
    """
    if source.pipe is None:
        return open_file(source.file)
    return pa.PythonFile(source.pipe.open_last_reader() if last else source.pipe.open_reader(), "r")


def open_standard_input() -> LogFile:
    """Open standard input and detect its format: an Arrow IPC stream, JSON lines, or CSV.

    Raises
    ------
    LogError
        Standard input is closed, or its format cannot be read from a stream, as in the case of Parquet, whose footer
        must be read first.
    """
    if sys.stdin is None:
        raise LogError(f"{STDIN}: standard input is closed; pipe a log into the process, or name a file")
    pipe = Pipe(sys.stdin.buffer)
    head = pipe.open_reader().read(_PEEK)
    compression = next((name for magic, name in _MAGIC.items() if head.startswith(magic)), None)
    if compression is not None:
        with pa.CompressedInputStream(pa.PythonFile(pipe.open_reader(), "r"), compression) as decompressed:
            head = decompressed.read(_PEEK)
    if head.startswith((b"PAR1", b"ARROW1")):
        raise LogError(
            f"{STDIN}: a Parquet or Arrow IPC file cannot be read from a pipe, because reading starts at the footer; "
            f"name the file instead of {STDIN!r}"
        )
    line = head.removeprefix(_BYTE_ORDER_MARK).lstrip().partition(b"\n")[0]
    format_ = "ipc" if head.startswith(b"\xff\xff\xff\xff") else "json" if line.startswith((b"{", b"[{")) else "text"
    if format_ == "ipc" and compression is not None:
        raise LogError(
            f"{STDIN}: expected an uncompressed Arrow IPC stream, found {compression} compression; decompress the "
            f"stream, or use the compression of the IPC format itself"
        )
    delimiter = "\t" if b"\t" in line and b"," not in line else ","
    return LogFile(STDIN, format_, compression, delimiter, 0, {}, pipe)
