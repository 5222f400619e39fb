"""Provide the decompressed bytes of a text file to Arrow.

The bytes are checked for mistakes, such as stray quotation marks, that would make Arrow read wrong values without an
error.
"""

from __future__ import annotations

import gzip
import io
import zlib
from typing import Any

import pyarrow as pa

from streammetrics.io.pipes import open_source
from streammetrics.io.quotes import QuoteCheck
from streammetrics.io.readers import make_log_error
from streammetrics.io.sources import LogError, LogFile

__all__ = ["SEPARATOR", "TextStream", "open_decompressed"]

SEPARATOR = "\x1f"
"""The character that replaces a delimiter of several characters. Arrow supports only delimiters of one character."""

_HEAD_BYTES = 64
_MAGIC = (
    (b"\x1f\x8b", "gzip compression; add .gz to the file name"),
    (b"\x28\xb5\x2f\xfd", "zstd compression; add .zst to the file name"),
    (b"BZh", "bzip2 compression; add .bz2 to the file name"),
    (b"PAR1", "a Parquet file; change its suffix to .parquet"),
    (b"ARROW1", "an Arrow IPC file; change its suffix to .arrow"),
    (b"\xff\xfe", "UTF-16; convert the file with iconv -f UTF-16 -t UTF-8"),
    (b"\xfe\xff", "UTF-16; convert the file with iconv -f UTF-16 -t UTF-8"),
)


def open_decompressed(source: LogFile, file: pa.NativeFile) -> Any:
    """Return a stream of the decompressed content of a file.

    For gzip, this is a Python stream: Arrow raises an error for a file that is padded with zeros, but Python does not.
    """
    if source.compression == "gzip":
        return gzip.GzipFile(fileobj=file)
    return pa.CompressedInputStream(file, source.compression) if source.compression else file


class TextStream(io.RawIOBase):
    """A stream of a text file's decompressed content, for Arrow to read.

    Parameters
    ----------
    source : LogFile
        The file to read.
    file : pyarrow.NativeFile, optional
        The file, if it is already open.
    delimiter : str
        The separator of values. If it is longer than one byte, which Arrow does not support, SEPARATOR replaces it.
    quotes : QuoteCheck, optional
        The check for stray quotation marks; None for no check.
    """

    def __init__(
        self,
        source: LogFile,
        file: pa.NativeFile | None = None,
        delimiter: str = "",
        quotes: QuoteCheck | None = None,
    ) -> None:
        self._file = source.file
        self._raw = open_decompressed(source, open_source(source) if file is None else file)
        self._delimiter = delimiter.encode() if len(delimiter.encode()) > 1 else b""
        self._quotes, self._pending, self._head_checked = quotes, b"", False

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        """Read up to `size` bytes, but keep an incomplete delimiter at the end for the next call.

        Raises
        ------
        LogError
            The content is damaged or has another format, or a stray quotation mark would turn several rows into one
            cell.
        """
        while True:
            # Arrow does not accept more bytes than it requests. `_pending` may contain the start of a delimiter from
            # the previous call. These bytes are returned first, so read fewer bytes now.
            block = self._read_decompressed(size if size < 0 else max(size - len(self._pending), 1))
            if not self._head_checked:
                self._head_checked = True
                self._check_head(block[:_HEAD_BYTES])
            text = self._replace_delimiters(block) if self._delimiter else block
            # If the block ends inside a delimiter, there may be no text to return yet. Empty text would mean the end of
            # the file, so read on.
            if text or not block:
                break
        if self._quotes is not None:
            self._quotes.check_block(text)
        return text

    def _read_decompressed(self, size: int) -> bytes:
        try:
            data: bytes = self._raw.read(size)
        except (EOFError, OSError, zlib.error) as error:
            raise make_log_error(self._file, error) from None
        return data

    def _check_head(self, head: bytes) -> None:
        for magic, what in _MAGIC:
            if head.startswith(magic):
                raise LogError(f"{self._file}: expected text in UTF-8, found {what}")
        if b"\0" in head:
            raise LogError(
                f"{self._file}: expected text in UTF-8, found a zero byte; if the file is in UTF-16, convert the file "
                f"with iconv -f UTF-16LE -t UTF-8"
            )

    def _replace_delimiters(self, block: bytes) -> bytes:
        if SEPARATOR.encode() in block:
            raise LogError(
                f"{self._file}: the file contains the character {SEPARATOR!r}, which is reserved to replace delimiters "
                f"of several characters; remove the character, or use a delimiter of one character"
            )
        data = self._pending + block
        keep = 0 if not block else self._count_partial_delimiter(data)
        self._pending = data[len(data) - keep :]
        return data[: len(data) - keep].replace(self._delimiter, SEPARATOR.encode())

    def _count_partial_delimiter(self, data: bytes) -> int:
        """Return how many bytes at the end of `data` may be the start of a delimiter that the next block completes."""
        at = 0
        while (position := data.find(self._delimiter, at)) >= 0:
            at = position + len(self._delimiter)
        longest = min(len(self._delimiter) - 1, len(data) - at)
        return next((n for n in range(longest, 0, -1) if data.endswith(self._delimiter[:n])), 0)
