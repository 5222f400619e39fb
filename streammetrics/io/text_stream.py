"""The bytes of a text file as Arrow is to read them: decompressed, and checked for what Arrow misreads silently."""

from __future__ import annotations

import gzip
import io
import zlib
from typing import Any

import pyarrow as pa

from streammetrics.io.pipes import opened
from streammetrics.io.quotes import QuoteCheck
from streammetrics.io.readers import broken
from streammetrics.io.sources import LogError, LogFile

__all__ = ["SEPARATOR", "TextStream", "open_bytes"]

SEPARATOR = "\x1f"
"""What Arrow, which knows delimiters of one character only, gets in the place of a longer one."""

_HEAD = 64
_CONTENTS = (
    (b"\x1f\x8b", "compressed with gzip; let its name end in .gz"),
    (b"\x28\xb5\x2f\xfd", "compressed with zstd; let its name end in .zst"),
    (b"BZh", "compressed with bzip2; let its name end in .bz2"),
    (b"PAR1", "a Parquet file; let its name end in .parquet"),
    (b"ARROW1", "an Arrow IPC file; let its name end in .arrow"),
    (b"\xff\xfe", "UTF-16; convert it: iconv -f UTF-16 -t UTF-8"),
    (b"\xfe\xff", "UTF-16; convert it: iconv -f UTF-16 -t UTF-8"),
)


def open_bytes(source: LogFile, plain: pa.NativeFile) -> Any:
    """Return a stream of what a file holds, decompressed.

    Python's gzip reads what Arrow refuses: files that are padded with zeros.
    """
    if source.compression == "gzip":
        return gzip.GzipFile(fileobj=plain)
    return pa.CompressedInputStream(plain, source.compression) if source.compression else plain


class TextStream(io.RawIOBase):
    """A text file as Arrow is to read it.

    Parameters
    ----------
    source : Source
        The file.
    plain : pyarrow.NativeFile, optional
        The open file.
    delimiter : str
        What separates its values; a longer one than a character is replaced by SEPARATOR.
    quotes : QuoteCheck, optional
        What checks quotation marks.
    """

    def __init__(
        self,
        source: LogFile,
        plain: pa.NativeFile | None = None,
        delimiter: str = "",
        quotes: QuoteCheck | None = None,
    ) -> None:
        self._file = source.file
        self._raw = open_bytes(source, opened(source) if plain is None else plain)
        self._delimiter = delimiter.encode() if len(delimiter.encode()) > 1 else b""
        self._quotes, self._rest, self._begun = quotes, b"", False

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        """Read about so many bytes.

        Raises
        ------
        LogError
            The content is damaged, or of another format; or a quotation mark swallows rows.
        """
        while True:
            # Arrow takes no more bytes than it asks for, and some may be left from the last time.
            block = self._decompressed(size if size < 0 else max(size - len(self._rest), 1))
            if not self._begun:
                self._begun = True
                self._check_head(block[:_HEAD])
            text = self._with_separators(block) if self._delimiter else block
            # A block within a delimiter gives no text yet, and no text would be the end of the file.
            if text or not block:
                break
        if self._quotes is not None:
            self._quotes.take(text)
        return text

    def _decompressed(self, size: int) -> bytes:
        try:
            found: bytes = self._raw.read(size)
        except (EOFError, OSError, zlib.error) as error:
            raise broken(self._file, error) from None
        return found

    def _check_head(self, head: bytes) -> None:
        for magic, what in _CONTENTS:
            if head.startswith(magic):
                raise LogError(f"{self._file}: expected text in UTF-8, found that the content is {what}")
        if b"\0" in head:
            raise LogError(
                f"{self._file}: expected text in UTF-8, found a byte 0; if it is UTF-16, convert it: "
                f"iconv -f UTF-16LE -t UTF-8"
            )

    def _with_separators(self, block: bytes) -> bytes:
        if SEPARATOR.encode() in block:
            raise LogError(
                f"{self._file}: holds the character {SEPARATOR!r}, which stands for delimiters of several characters"
            )
        data = self._rest + block
        keep = 0 if not block else self._begun_delimiter(data)
        self._rest = data[len(data) - keep :]
        return data[: len(data) - keep].replace(self._delimiter, SEPARATOR.encode())

    def _begun_delimiter(self, data: bytes) -> int:
        """Return how many bytes at the end may belong to a delimiter that goes on in the next block."""
        at = 0
        while (found := data.find(self._delimiter, at)) >= 0:
            at = found + len(self._delimiter)
        longest = min(len(self._delimiter) - 1, len(data) - at)
        return next((n for n in range(longest, 0, -1) if data.endswith(self._delimiter[:n])), 0)
