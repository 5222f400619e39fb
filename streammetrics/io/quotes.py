"""Detect stray quotation marks in text files.

A cell that starts with a stray quotation mark extends to the next mark, so it would swallow all rows in between.
"""

from __future__ import annotations

import csv
import re
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streammetrics.io.sources import LogError

__all__ = ["QuoteCheck"]

_QUOTE, _NEWLINE, _RETURN = b'"'[0], b"\n"[0], b"\r"[0]
# The content of a quoted cell and its closing mark. The possessive quantifiers make sure that a doubled mark, which
# represents a quotation mark in the content, never ends the cell.
_CONTENT = re.compile(rb'[^"]*+(?:""[^"]*+)*+"')
_FIRST_ROWS = 100
_FIRST_BYTES = 1 << 16
NO_QUOTES_HINT = "pass quotes=False to read quotation marks as ordinary characters"

Ints = NDArray[np.int64]


class _QuotedCells(NamedTuple):
    """The quoted cells of a block of bytes.

    Parameters
    ----------
    opens, closes : int array
        The positions of the opening and the closing quotation mark of each cell.
    has_trailing_text : bool array
        Whether text other than a delimiter or the end of the line follows the closing mark of each cell.
    unclosed : int
        The position of the opening mark of the last cell, if that cell does not end in this block; otherwise the length
        of the block.
    """

    opens: Ints
    closes: Ints
    has_trailing_text: NDArray[np.bool_]
    unclosed: int


class QuoteCheck:
    """A check that runs while Arrow reads a text file and raises an error if a cell seems to be quoted by mistake.

    A quoted cell may contain line breaks. A cell that spans several lines causes an error if text follows its closing
    mark, or if each of its lines is a valid row.

    Parameters
    ----------
    file : str
        Path of the file.
    delimiter : str
        The separator of values, a single character.
    """

    def __init__(self, file: str, delimiter: str) -> None:
        self._file, self._delimiter = file, delimiter.encode()
        self._unchecked, self._first_line, self._column_count = b"", 1, 0
        self._number_columns: list[int] = []
        # For each byte value, whether the byte can precede an opening mark or follow a closing mark.
        self._edges = np.zeros(256, bool)
        self._edges[[_NEWLINE, _RETURN, _QUOTE, self._delimiter[0]]] = True

    def check_block(self, block: bytes) -> None:
        """Check the next block of bytes. An empty block means the end of the file.

        Raises
        ------
        LogError
            A stray quotation mark would turn several rows into one cell, or a quotation mark is not closed.
        """
        data = self._unchecked + block
        if not self._column_count and block and len(data) < _FIRST_BYTES and data.count(b"\n") <= _FIRST_ROWS:
            # The first rows decide which columns are numeric. Wait until enough rows have arrived, so that the result
            # does not depend on the block size.
            self._unchecked = data
            return
        if not self._column_count and b"\n" in data:
            header = data.lstrip(b"\r\n").partition(b"\n")[0].decode(errors="replace")
            self._column_count = len(next(csv.reader([header], delimiter=self._delimiter.decode()), [""]))
            self._number_columns = self._find_numbers(data)
        safe = self._check_rows(data, last=not block) if b'"' in data else data.rfind(b"\n") + 1
        self._first_line += data.count(b"\n", 0, safe)
        self._unchecked = data[safe:]

    def _check_rows(self, data: bytes, last: bool) -> int:
        """Check all complete rows in `data`; return the position of the first incomplete row.

        `last` says whether `data` extends to the end of the file.
        """
        values = np.frombuffer(data, np.uint8)
        if self._are_single_lines(values) and not last:
            return data.rfind(b"\n") + 1
        cells = self._find_well_formed_cells(values, last) or self._scan_cells(data, values, last)
        # A line break preceded by more opening than closing marks is inside a cell. All other line breaks end a row.
        newlines = np.flatnonzero(values == _NEWLINE)
        inside = np.searchsorted(cells.opens, newlines) - np.searchsorted(cells.closes, newlines)
        ends = newlines[(inside == 0) & (newlines < cells.unclosed)]
        if last and cells.unclosed < len(data):
            line = self._first_line + data.count(b"\n", 0, cells.unclosed)
            raise LogError(f"{self._file}: line {line:,}: a quotation mark is never closed; {NO_QUOTES_HINT}")
        safe = len(data) if last else int(ends[-1]) + 1 if len(ends) else 0
        broken = np.searchsorted(newlines, cells.closes) > np.searchsorted(newlines, cells.opens)
        before = values[cells.closes - 1] if len(cells.closes) else values[:0]
        begins = (before == _NEWLINE) | (before == self._delimiter[0])
        for i in np.flatnonzero(broken & (cells.opens < safe)):
            opening, closing = int(cells.opens[i]), int(cells.closes[i])
            if cells.has_trailing_text[i] or self._are_rows(data, opening, closing, begins=bool(begins[i])):
                raise self._swallowed_rows_error(data, opening, closing)
        return safe

    def _are_single_lines(self, values: NDArray[np.uint8]) -> bool:
        """Return whether all quotation marks open or close a cell or are doubled, and no quoted cell has a line break.

        This check is faster than finding the cells.
        """
        marks, newlines = np.flatnonzero(values == _QUOTE), np.flatnonzero(values == _NEWLINE)
        opens, closes = marks[::2], marks[1::2]
        before, after = values[opens - 1], values[np.minimum(closes + 1, len(values) - 1)]
        good = self._edges[before]
        good[0] = good[0] or opens[0] == 0
        return bool(good.all() and self._edges[after].all() and not (np.searchsorted(marks, newlines) & 1).any())

    def _find_well_formed_cells(self, values: NDArray[np.uint8], last: bool) -> _QuotedCells | None:
        """Return the quoted cells if every quotation mark opens a cell, closes a cell, or is doubled.

        Return None if there are other marks. In that case, `_scan_cells` finds the cells, which is slower.
        """
        # In well-formed data, opening and closing marks alternate if a doubled mark counts as a closing mark followed
        # by an opening mark.
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
        # If the number of marks is odd, the last mark opens a cell, or it is the second half of a doubled mark in the
        # last cell. In either case, the last quoted cell does not end in this block.
        if len(marks) > complete:
            unclosed = int(marks[-1])
            if len(final) and int(final[-1]) + 1 == unclosed:
                first, final, unclosed = first[:-1], final[:-1], int(first[-1])
        # A closing mark at the end of the block may be the first half of a doubled mark whose second half is in the
        # next block. The cell is therefore not complete yet.
        elif len(final) and int(final[-1]) == len(values) - 1 and not last:
            first, final, unclosed = first[:-1], final[:-1], int(first[-1])
        return _QuotedCells(first, final, np.zeros(len(first), bool), unclosed)

    def _scan_cells(self, data: bytes, values: NDArray[np.uint8], last: bool) -> _QuotedCells:
        """Scan a block cell by cell and return the quoted cells. Quotation marks may occur anywhere in the block.

        `values` are the bytes of `data` as an array, and `last` says whether `data` extends to the end of the file.
        """
        marks = np.flatnonzero(values == _QUOTE)
        before = np.concatenate([[_NEWLINE], values])[marks]
        begins = (before == _NEWLINE) | (before == _RETURN) | (before == self._delimiter[0])
        ends = (self._delimiter, b"\n", b"\r")
        spans: list[tuple[int, int, bool]] = []
        at = 0
        for opening in marks[begins].tolist():
            # Skip a mark that is inside the previous cell.
            if opening < at:
                continue
            content = _CONTENT.match(data, opening + 1)
            if content is None or (content.end() == len(data) and not last):
                return _build_cells(spans, opening)
            at = content.end()
            spans.append((opening, at - 1, at < len(data) and data[at : at + 1] not in ends))
        return _build_cells(spans, len(data))

    def _are_rows(self, data: bytes, opening: int, closing: int, begins: bool) -> bool:
        """Return whether all lines that a quoted cell spans would be valid rows if its marks were ordinary characters.

        A valid row has the right number of columns and contains numbers in numeric columns. `begins` says whether a
        delimiter or line break precedes the closing mark, as it would precede an opening mark. If so, and if a
        delimiter or line break follows the opening mark, the numbers are not checked.
        """
        start, end = data.rfind(b"\n", 0, opening) + 1, data.find(b"\n", closing)
        lines = data[start : len(data) if end < 0 else end].split(b"\n")
        if self._column_count < 2 or any(line.count(self._delimiter) != self._column_count - 1 for line in lines):
            return False
        if begins and data[opening + 1 : opening + 2] in (self._delimiter, b"\r", b"\n"):
            return True
        rows = [line.split(self._delimiter) for line in lines]
        return bool(self._number_columns) and all(_is_number(row[i]) for row in rows for i in self._number_columns)

    def _find_numbers(self, data: bytes) -> list[int]:
        """Return the indices of columns that are numeric in the first rows. Ignore rows with quotation marks."""
        lines = [line for line in data.split(b"\n", _FIRST_ROWS)[:-1] if b'"' not in line]
        rows = [row for line in lines if len(row := line.split(self._delimiter)) == self._column_count]
        return [i for i in range(self._column_count) if rows[1:] and all(_is_number(row[i]) for row in rows[1:])]

    def _swallowed_rows_error(self, data: bytes, opening: int, closing: int) -> LogError:
        first, final = (self._first_line + data.count(b"\n", 0, at) for at in (opening, closing))
        excerpt: Any = data[opening : data.find(b"\n", opening)][:30].decode(errors="replace")
        return LogError(
            f"{self._file}: lines {first:,} to {final:,}: a cell begins with an unpaired quotation mark, {excerpt!r}, "
            f"and would swallow the rows up to the next such cell; {NO_QUOTES_HINT}. "
            "If the cell is correct, convert the log to Parquet."
        )


def _is_number(cell: bytes) -> bool:
    try:
        float(cell)
    except ValueError:
        # The conversion fails for a cell that is not a number.
        return False
    return True


def _build_cells(spans: list[tuple[int, int, bool]], unclosed: int) -> _QuotedCells:
    table = np.array(spans, np.int64).reshape(-1, 3)
    return _QuotedCells(table[:, 0], table[:, 1], table[:, 2].astype(bool), unclosed)
