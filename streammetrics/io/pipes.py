"""Standard input as a file of a log: read once, but for its beginning, which tells format and types first."""

from __future__ import annotations

import io
import sys
from typing import Any

import pyarrow as pa

from streammetrics.io.remote import open_file
from streammetrics.io.sources import LogError, Source

__all__ = ["STDIN", "Pipe", "opened", "standard_input"]

STDIN = "-"
_MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bz2"}
_PEEK = 1 << 12
_MARK = b"\xef\xbb\xbf"  # with which some programs begin text


class Pipe(io.RawIOBase):
    """A stream that can go back to its beginning, until `forget`.

    Parameters
    ----------
    raw : binary stream
        What is read, once.
    """

    def __init__(self, raw: Any) -> None:
        self._raw, self._head, self._at, self._keeps = raw, bytearray(), 0, True

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        """Stay open: who reads types closes, and rows are read after that."""

    def rewind(self) -> Pipe:
        """Go back to the beginning."""
        self._at = 0
        return self

    def forget(self) -> Pipe:
        """Go back for the last time: what is read from now on is not kept."""
        self._keeps = False
        return self.rewind()

    def read(self, size: int = -1) -> bytes:
        """Read so many bytes, fewer only at the end: Arrow asks once."""
        found = b""
        while (size < 0 or len(found) < size) and (more := self._some(size - len(found) if size >= 0 else -1)):
            found += more
        return found

    def _some(self, size: int) -> bytes:
        if self._at < len(self._head):
            again = bytes(self._head[self._at :] if size < 0 else self._head[self._at : self._at + size])
            self._at += len(again)
            if not self._keeps and self._at == len(self._head):
                self._head, self._at = bytearray(), 0
            return again
        found: bytes = self._raw.read(size)
        if self._keeps:
            self._head += found
            self._at += len(found)
        return found


def opened(source: Source) -> pa.NativeFile:
    """Open a file, wherever it is, or standard input at its beginning."""
    return open_file(source.file) if source.pipe is None else pa.PythonFile(source.pipe.rewind(), "r")


def standard_input() -> Source:
    """Find out what standard input holds: an Arrow IPC stream, JSON lines, or CSV.

    Raises
    ------
    LogError
        It is a format whose end has to be read first.
    """
    if sys.stdin is None:
        raise LogError(f"{STDIN}: standard input is closed")
    pipe = Pipe(sys.stdin.buffer)
    head = pipe.read(_PEEK)
    compression = next((name for magic, name in _MAGIC.items() if head.startswith(magic)), None)
    if compression is not None:
        with pa.CompressedInputStream(pa.PythonFile(pipe.rewind(), "r"), compression) as plain:
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
    return Source(STDIN, format_, compression, delimiter, 0, {}, pipe)
