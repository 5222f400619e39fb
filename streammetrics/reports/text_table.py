"""Print text tables: to a terminal in color and fitted to its width, or to a pipe as plain aligned text."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

from ..numerics.slice_keys import escape_unprintable

__all__ = ["Cell", "Grid", "is_terminal", "print_grid", "print_line"]

GAP, INDENT = 2, 2
NARROW, WIDE, PIPED = 40, 160, 120


@dataclass(frozen=True)
class Cell:
    """A cell of a text table.

    Parameters
    ----------
    text : str
        The text.
    note : str
        A dim remark beside the text, such as a bound.
    style : str
        The style of the text on a terminal, as understood by rich.
    """

    text: str
    note: str = ""
    style: str = ""


SAME_AS_ABOVE = Cell("")
"""A cell that stands for the same text as the cell above it. It is printed empty."""


@dataclass
class Grid:
    """A table of text cells, printed by `print_grid`.

    Parameters
    ----------
    title : str
        The title above the table.
    heads : list of str
        The column names.
    rows : list of list of Cell
        The rows; None stands for a horizontal rule.
    key_columns : int
        The number of columns that identify a row. These columns are repeated if the table is split to fit the width.
    left_columns : int
        The number of left-aligned columns.
    remarks : list of str
        The remarks below the table.
    unbroken_lines : bool
        Whether each row is written to a pipe as a single line, however long, for use with `grep`.
    """

    title: str
    heads: list[str]
    rows: list[list[Cell] | None]
    key_columns: int = 1
    left_columns: int = 1
    remarks: list[str] = field(default_factory=list)
    unbroken_lines: bool = False

    def column(self, i: int) -> list[Cell]:
        """Return the cells of a column."""
        return [row[i] for row in self.rows if row is not None]


def is_terminal() -> bool:
    """Return whether standard output is a terminal that understands control sequences, such as those for colors."""
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def _escape_cell(cell: Cell) -> Cell:
    return cell if cell.text.isprintable() else replace(cell, text=escape_unprintable(cell.text))


def print_line(text: str = "", style: str = "") -> None:
    """Print a line of text; on a terminal, it is indented and printed in the given style."""
    text = escape_unprintable(text)
    if is_terminal():
        _build_painter()([(" " * INDENT if text else "", ""), (text, style)])
    else:
        print(text)


def print_grid(grid: Grid) -> None:
    """Print a table with its title and remarks. A table that is too wide is split into several blocks."""
    grid, terminal = replace(grid, rows=[row and list(map(_escape_cell, row)) for row in grid.rows]), is_terminal()
    if grid.title:
        print_line(grid.title, "bold cyan")
    for chosen in (
        _fit_columns(grid, terminal) if terminal or not grid.unbroken_lines else [list(range(len(grid.heads)))]
    ):
        _print_columns(grid, chosen, terminal)
    for remark in grid.remarks:
        print_line(remark, "dim")
    print_line()


def _print_columns(grid: Grid, columns: Sequence[int], terminal: bool) -> None:
    layouts = [_ColumnLayout(grid.heads[i], grid.column(i), i < grid.left_columns, terminal) for i in columns]
    paint = _build_painter() if terminal else _print_plain
    height = max(len(layout.heads) for layout in layouts)
    for line in range(height):
        paint(_join_cells([layout.head(line - height) for layout in layouts], terminal))
    rule = "─" * (sum(layout.width for layout in layouts) + GAP * (len(layouts) - 1))
    if terminal:
        paint([(" " * INDENT + rule, "dim")])
    # Skip rows that have no text in these columns. In each row, print only the keys that differ from those in the row
    # above. If rows are skipped, the next printed row also shows the keys that it shares with them.
    named: dict[int, Cell] = {}
    for row in grid.rows:
        if row is None:
            if terminal:
                paint([(" " * INDENT + rule, "dim")])
            continue
        named |= {i: row[i] for i in range(grid.key_columns) if row[i] is not SAME_AS_ABOVE}
        if len(columns) == len(grid.heads) or any(row[i].text for i in columns if i >= grid.key_columns):
            cells = [named.get(i, SAME_AS_ABOVE) if row[i] is SAME_AS_ABOVE else row[i] for i in columns]
            paint(_join_cells([layout.cell(cell) for cell, layout in zip(cells, layouts, strict=True)], terminal))
            named = {}


class _ColumnLayout:
    """The width and alignment of one printed column, and its padded cells."""

    def __init__(self, head: str, cells: Sequence[Cell], left_aligned: bool, terminal: bool) -> None:
        self.left_aligned = left_aligned
        body = max((len(c.text) for c in cells), default=0)
        self.heads = _break_head(head, body) if terminal and not left_aligned else [head]
        self.texts = max(body, *map(len, self.heads))
        self.notes = max((len(c.note) for c in cells), default=0)
        self.width = self.texts + (1 + self.notes if self.notes else 0)

    def head(self, line: int) -> list[tuple[str, str]]:
        """Return one line of the column name. Lines are counted from the bottom, where -1 is the lowest line."""
        text = self.heads[line] if -line <= len(self.heads) else ""
        return self._pad(Cell(text, style="bold"))

    def cell(self, cell: Cell) -> list[tuple[str, str]]:
        return self._pad(cell)

    def _pad(self, cell: Cell) -> list[tuple[str, str]]:
        text = cell.text.ljust(self.texts) if self.left_aligned else cell.text.rjust(self.texts)
        return [(text, cell.style), (f" {cell.note:{self.notes}}" if self.notes else "", "dim")]


def _break_head(head: str, body: int) -> list[str]:
    """Split a column name at underscores into lines that are, if possible, no wider than the values (`body`).

    If the values are narrower than eight characters, lines of up to eight characters are allowed.
    """
    lines: list[str] = []
    for word in head.split("_"):
        if lines and len(lines[-1]) + len(word) < max(body, 8):
            lines[-1] += f"_{word}"
        else:
            lines.append(word)
    return lines


def _fit_columns(grid: Grid, terminal: bool) -> list[list[int]]:
    """Split the columns into blocks that fit the terminal width, or PIPED characters if the output is piped.

    A block is a list of column indices that begins with the key columns.
    """
    room = min(max(shutil.get_terminal_size().columns, NARROW), WIDE) - INDENT if terminal else PIPED
    widths = [
        _ColumnLayout(h, grid.column(i), i < grid.left_columns, terminal).width + GAP for i, h in enumerate(grid.heads)
    ]
    lead = list(range(grid.key_columns))
    taken = sum(widths[: grid.key_columns]) - GAP
    # Each block begins with the key columns. Further columns are added until the line is full.
    blocks, used = [[*lead]], taken
    for i in range(grid.key_columns, len(widths)):
        if used + widths[i] > room and len(blocks[-1]) > grid.key_columns:
            blocks.append([*lead])
            used = taken
        blocks[-1].append(i)
        used += widths[i]
    return blocks


def _join_cells(cells: Sequence[list[tuple[str, str]]], terminal: bool) -> list[tuple[str, str]]:
    parts: list[tuple[str, str]] = [(" " * INDENT, "")] if terminal else []
    for i, cell in enumerate(cells):
        parts += ([(" " * GAP, "")] if i else []) + cell
    return parts


def _print_plain(parts: Sequence[tuple[str, str]]) -> None:
    print("".join(text for text, _ in parts).rstrip())


@cache
def _build_painter() -> Callable[[Sequence[tuple[str, str]]], None]:
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False, soft_wrap=True)

    def paint(parts: Sequence[tuple[str, str]]) -> None:
        line = Text()
        for text, style in parts:
            line.append(text, style or None)
        line.rstrip()
        console.print(line)

    return paint
