"""Quotation marks that swallow rows: a cell that begins with one that is no quote reaches to the next such cell."""

from __future__ import annotations

import csv
import re
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streammetrics.io.sources import LogError

__all__ = ["QuoteCheck"]

_QUOTE, _NEWLINE, _RETURN = b'"'[0], b"\n"[0], b"\r"[0]
_CONTENT = re.compile(rb'[^"]*+(?:""[^"]*+)*+"')  # possessive: a doubled mark is never the end
_FIRST_ROWS = 100
_FIRST_BYTES = 1 << 16
CURE = "quotes=False reads quotation marks as ordinary characters"

Ints = NDArray[np.int64]


class _Cells(NamedTuple):
    """Quoted cells of a block.

    Parameters
    ----------
    opens, closes : int array
        Where their quotation marks are.
    torn : bool array
        Whether something else than a delimiter or the end of the line follows.
    unclosed : int
        Where a cell begins that does not end in this block; the length of the block if there is none.
    """

    opens: Ints
    closes: Ints
    torn: NDArray[np.bool_]
    unclosed: int


class QuoteCheck:
    """Reads a text file along with Arrow, and raises where a quoted cell is none.

    A cell may hold line breaks. It is refused if something follows its closing quotation mark, and if each of its lines
    is a row by itself.

    Parameters
    ----------
    file : str
        Path of the file.
    delimiter : str
        What separates values, one character.
    """

    def __init__(self, file: str, delimiter: str) -> None:
        self._file, self._delimiter = file, delimiter.encode()
        self._rest, self._line, self._columns = b"", 1, 0
        self._numbers: list[int] = []
        self._edges = np.zeros(256, bool)  # what may stand before an opening mark, or behind a closing one
        self._edges[[_NEWLINE, _RETURN, _QUOTE, self._delimiter[0]]] = True

    def take(self, block: bytes) -> None:
        """Check the next block; an empty one is the end of the file.

        Raises
        ------
        LogError
            A quotation mark swallows rows, or is left open.
        """
        data = self._rest + block
        if not self._columns and block and len(data) < _FIRST_BYTES and data.count(b"\n") <= _FIRST_ROWS:
            # The check waits for the first rows, so that the size of blocks does not decide which columns hold numbers.
            self._rest = data
            return
        if not self._columns and b"\n" in data:
            header = data.lstrip(b"\r\n").partition(b"\n")[0].decode(errors="replace")
            self._columns = len(next(csv.reader([header], delimiter=self._delimiter.decode()), [""]))
            self._numbers = self._find_numbers(data)
        safe = self._checked(data, last=not block) if b'"' in data else data.rfind(b"\n") + 1
        self._line += data.count(b"\n", 0, safe)
        self._rest = data[safe:]

    def _checked(self, data: bytes, last: bool) -> int:
        """Check the complete rows of some bytes that begin with a row; return where the first incomplete one begins."""
        values = np.frombuffer(data, np.uint8)
        if self._are_single_lines(values) and not last:
            return data.rfind(b"\n") + 1
        cells = self._well_formed(values, last) or self._scanned(data, values, last)
        newlines = np.flatnonzero(values == _NEWLINE)
        inside = np.searchsorted(cells.opens, newlines) - np.searchsorted(cells.closes, newlines)
        ends = newlines[(inside == 0) & (newlines < cells.unclosed)]
        if last and cells.unclosed < len(data):
            line = self._line + data.count(b"\n", 0, cells.unclosed)
            raise LogError(f"{self._file}: line {line:,}: a quotation mark is left open; {CURE}")
        safe = len(data) if last else int(ends[-1]) + 1 if len(ends) else 0
        broken = np.searchsorted(newlines, cells.closes) > np.searchsorted(newlines, cells.opens)
        before = values[cells.closes - 1] if len(cells.closes) else values[:0]
        begins = (before == _NEWLINE) | (before == self._delimiter[0])
        for i in np.flatnonzero(broken & (cells.opens < safe)):
            opening, closing = int(cells.opens[i]), int(cells.closes[i])
            if cells.torn[i] or self._are_rows(data, opening, closing, begins=bool(begins[i])):
                raise self._swallowed(data, opening, closing)
        return safe

    def _are_single_lines(self, values: NDArray[np.uint8]) -> bool:
        """Whether each quotation mark opens, closes or is doubled, and no quoted cell has a line break, as usual."""
        marks, newlines = np.flatnonzero(values == _QUOTE), np.flatnonzero(values == _NEWLINE)
        opens, closes = marks[::2], marks[1::2]
        before, after = values[opens - 1], values[np.minimum(closes + 1, len(values) - 1)]
        good = self._edges[before]
        good[0] = good[0] or opens[0] == 0
        return bool(good.all() and self._edges[after].all() and not (np.searchsorted(marks, newlines) & 1).any())

    def _well_formed(self, values: NDArray[np.uint8], last: bool) -> _Cells | None:
        """Return the cells where every quotation mark opens, closes or is doubled, which is quick to see; else None."""
        marks = np.flatnonzero(values == _QUOTE)
        padded = np.concatenate([[_NEWLINE], values, [_NEWLINE]]).astype(np.uint8)
        complete = len(marks) // 2 * 2
        opens, closes = marks[:complete:2], marks[1:complete:2]
        before, after = padded[marks[::2]], padded[closes + 2]
        if not (self._edges[before].all() and self._edges[after].all()):
            return None
        doubled = np.flatnonzero(opens[1:] == closes[:-1] + 1)
        first, final = np.delete(opens, doubled + 1), np.delete(closes, doubled)
        unclosed = len(values)
        if len(marks) > complete:  # which may go on from a cell that seemed to end
            unclosed = int(marks[-1])
            if len(final) and int(final[-1]) + 1 == unclosed:
                first, final, unclosed = first[:-1], final[:-1], int(first[-1])
        elif len(final) and int(final[-1]) == len(values) - 1 and not last:  # its next mark may be in the next block
            first, final, unclosed = first[:-1], final[:-1], int(first[-1])
        return _Cells(first, final, np.zeros(len(first), bool), unclosed)

    def _scanned(self, data: bytes, values: NDArray[np.uint8], last: bool) -> _Cells:
        """Return the cells of a block with quotation marks anywhere: those that begin with one, one after the other."""
        marks = np.flatnonzero(values == _QUOTE)
        before = np.concatenate([[_NEWLINE], values])[marks]
        begins = (before == _NEWLINE) | (before == _RETURN) | (before == self._delimiter[0])
        ends = (self._delimiter, b"\n", b"\r")
        found: list[tuple[int, int, bool]] = []
        at = 0
        for opening in marks[begins].tolist():
            if opening < at:  # within the cell before
                continue
            content = _CONTENT.match(data, opening + 1)
            if content is None or (content.end() == len(data) and not last):
                return _cells(found, opening)
            at = content.end()
            found.append((opening, at - 1, at < len(data) and data[at : at + 1] not in ends))
        return _cells(found, len(data))

    def _are_rows(self, data: bytes, opening: int, closing: int, begins: bool) -> bool:
        """Whether each line that a cell touches is a row by itself: as many columns, and numbers where others have them.

        If the opening mark is a cell of its own, and the closing mark stands where a cell begins, the number of columns
        is enough.
        """
        start, end = data.rfind(b"\n", 0, opening) + 1, data.find(b"\n", closing)
        lines = data[start : len(data) if end < 0 else end].split(b"\n")
        if self._columns < 2 or any(line.count(self._delimiter) != self._columns - 1 for line in lines):
            return False
        if begins and data[opening + 1 : opening + 2] in (self._delimiter, b"\r", b"\n"):
            return True
        rows = [line.split(self._delimiter) for line in lines]
        return bool(self._numbers) and all(_is_number(row[i]) for row in rows for i in self._numbers)

    def _find_numbers(self, data: bytes) -> list[int]:
        """Return which columns hold numbers in the first rows without quotation marks."""
        lines = [line for line in data.split(b"\n", _FIRST_ROWS)[:-1] if b'"' not in line]
        rows = [row for line in lines if len(row := line.split(self._delimiter)) == self._columns]
        return [i for i in range(self._columns) if rows[1:] and all(_is_number(row[i]) for row in rows[1:])]

    def _swallowed(self, data: bytes, opening: int, closing: int) -> LogError:
        first, final = (self._line + data.count(b"\n", 0, at) for at in (opening, closing))
        shown: Any = data[opening : data.find(b"\n", opening)][:30].decode(errors="replace")
        return LogError(
            f"{self._file}: lines {first:,} to {final:,}: a cell that begins with a lone quotation mark, {shown!r}, "
            f"swallows the rows up to the next such cell; {CURE}. "
            "If the cell is correct, convert the log to Parquet."
        )


def _is_number(cell: bytes) -> bool:
    try:
        float(cell)
    except ValueError:  # it is a text
        return False
    return True


def _cells(found: list[tuple[int, int, bool]], unclosed: int) -> _Cells:
    table = np.array(found, np.int64).reshape(-1, 3)
    return _Cells(table[:, 0], table[:, 1], table[:, 2].astype(bool), unclosed)
