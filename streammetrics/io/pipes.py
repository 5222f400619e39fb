"""Standard input as a file of a log: read once, but for its beginning, which tells format and types first."""

from __future__ import annotations

import io
import sys
import threading
from typing import Any

import pyarrow as pa

from streammetrics.io.remote import open_file
from streammetrics.io.sources import LogError, LogFile

__all__ = ["STDIN", "Pipe", "opened", "standard_input"]

STDIN = "-"
_MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bz2"}
_PEEK = 1 << 12
_MARK = b"\xef\xbb\xbf"  # with which some programs begin text


class Pipe:
    """A stream of which readers begin at its beginning, until the last reader is made.

    Each reader has its own place: Arrow reads ahead in threads of its own, also for a reader that is closed.

    Parameters
    ----------
    raw : binary stream
        The stream, which is read once.
    """

    def __init__(self, raw: Any) -> None:
        self._raw, self._head = raw, bytearray()
        self._last: PipeReader | None = None
        self._lock = threading.Lock()

    def reader(self) -> PipeReader:
        """Return a reader at the beginning."""
        return PipeReader(self)

    def last_reader(self) -> PipeReader:
        """Return the last reader at the beginning: nothing is kept for others, and earlier ones find no more bytes."""
        with self._lock:
            self._last = made = PipeReader(self)
        return made

    def read_some(self, reader: PipeReader, at: int, size: int) -> bytes:
        """Return some of the bytes from a place on, none at the end."""
        with self._lock:
            if self._last not in (None, reader):
                return b""
            if at < len(self._head):
                return bytes(self._head[at:] if size < 0 else self._head[at : at + size])
            found: bytes = self._raw.read(size)
            if self._last is None:
                self._head += found
            elif self._head:
                self._head = bytearray()
            return found


class PipeReader(io.RawIOBase):
    """A reader of a pipe.

    Parameters
    ----------
    pipe : Pipe
        The pipe.
    """

    def __init__(self, pipe: Pipe) -> None:
        self._pipe, self._at = pipe, 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        """Read so many bytes, fewer only at the end, because Arrow asks once."""
        found = b""
        while size < 0 or len(found) < size:
            more = self._pipe.read_some(self, self._at, size - len(found) if size >= 0 else -1)
            if not more:
                break
            self._at += len(more)
            found += more
        return found


def opened(source: LogFile, *, last: bool = False) -> pa.NativeFile:
    """Open a file, wherever it is, or standard input at its beginning; `last` if nobody opens that again."""
    if source.pipe is None:
        return open_file(source.file)
    return pa.PythonFile(source.pipe.last_reader() if last else source.pipe.reader(), "r")


def standard_input() -> LogFile:
    """Find out what standard input holds: an Arrow IPC stream, JSON lines, or CSV.

    Raises
    ------
    LogError
        It is a format whose end has to be read first.
    """
    if sys.stdin is None:
        raise LogError(f"{STDIN}: standard input is closed")
    pipe = Pipe(sys.stdin.buffer)
    head = pipe.reader().read(_PEEK)
    compression = next((name for magic, name in _MAGIC.items() if head.startswith(magic)), None)
    if compression is not None:
        with pa.CompressedInputStream(pa.PythonFile(pipe.reader(), "r"), compression) as plain:
            head = plain.read(_PEEK)
    if head.startswith((b"PAR1", b"ARROW1")):
        raise LogError(
            f"{STDIN}: a Parquet or Arrow IPC file ends with what is read first, so not from a pipe; name it"
        )
    line = head.removeprefix(_MARK).lstrip().partition(b"\n")[0]
    format_ = "ipc" if head.startswith(b"\xff\xff\xff\xff") else "json" if line.startswith((b"{", b"[{")) else "text"
    if format_ == "ipc" and compression is not None:
        raise LogError(f"{STDIN}: an Arrow IPC stream is compressed by itself; pipe it as it is")
    delimiter = "\t" if b"\t" in line and b"," not in line else ","
    return LogFile(STDIN, format_, compression, delimiter, 0, {}, pipe)
