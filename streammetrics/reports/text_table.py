"""Tables of text: coloured and fitted to its width on a terminal, plain aligned text in a pipe."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

from ..numerics.keys import visible

__all__ = ["Cell", "Grid", "is_terminal", "say", "show"]

GAP, INDENT = 2, 2
NARROW, WIDE, PIPED = 40, 160, 120


@dataclass(frozen=True)
class Cell:
    """A text with a small remark beside it.

    Parameters
    ----------
    text : str
        What is read first.
    note : str
        What is read second, such as a bound.
    style : str
        How a terminal shows the text, in the words of rich.
    """

    text: str
    note: str = ""
    style: str = ""


ABOVE = Cell("")
"""What is named in the row above, and once is enough in print."""


@dataclass
class Grid:
    """A table.

    Parameters
    ----------
    title : str
        What stands above it.
    heads : list of str
        Names of the columns.
    rows : list of list of Cell
        The body; None is a rule.
    lead : int
        How many columns name the row: repeated where the others do not fit side by side.
    left : int
        How many columns are aligned to the left.
    remarks : list of str
        What stands below it.
    whole : bool
        Whether a line stays one in a pipe, however long it is: for what is looked up by `grep`.
    """

    title: str
    heads: list[str]
    rows: list[list[Cell] | None]
    lead: int = 1
    left: int = 1
    remarks: list[str] = field(default_factory=list)
    whole: bool = False

    def column(self, i: int) -> list[Cell]:
        """The cells of a column."""
        return [row[i] for row in self.rows if row is not None]


def is_terminal() -> bool:
    """Whether a person reads along."""
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def _visible(cell: Cell) -> Cell:
    return cell if cell.text.isprintable() else replace(cell, text=visible(cell.text))


def say(text: str = "", style: str = "") -> None:
    """Print a line."""
    text = visible(text)
    if is_terminal():
        _painter()([(" " * INDENT if text else "", ""), (text, style)])
    else:
        print(text)


def show(grid: Grid) -> None:
    """Print a table."""
    grid, terminal = replace(grid, rows=[row and list(map(_visible, row)) for row in grid.rows]), is_terminal()
    if grid.title:
        say(grid.title, "bold cyan")
    for chosen in _fitted(grid, terminal) if terminal or not grid.whole else [list(range(len(grid.heads)))]:
        _show(grid, chosen, terminal)
    for remark in grid.remarks:
        say(remark, "dim")
    say()


def _show(grid: Grid, chosen: Sequence[int], terminal: bool) -> None:
    layouts = [_Layout(grid.heads[i], grid.column(i), i < grid.left, terminal) for i in chosen]
    paint = _painter() if terminal else _print
    height = max(len(layout.heads) for layout in layouts)
    for line in range(height):
        paint(_joined([layout.head(line - height) for layout in layouts], terminal))
    rule = "─" * (sum(layout.width for layout in layouts) + GAP * (len(layouts) - 1))
    if terminal:
        paint([(" " * INDENT + rule, "dim")])
    named: dict[int, Cell] = {}  # in rows that are not printed, and stands above those that are
    for row in grid.rows:
        if row is None:
            if terminal:
                paint([(" " * INDENT + rule, "dim")])
            continue
        named |= {i: row[i] for i in range(grid.lead) if row[i] is not ABOVE}
        if len(chosen) == len(grid.heads) or any(row[i].text for i in chosen if i >= grid.lead):
            cells = [named.get(i, ABOVE) if row[i] is ABOVE else row[i] for i in chosen]
            paint(_joined([layout.cell(cell) for cell, layout in zip(cells, layouts, strict=True)], terminal))
            named = {}


class _Layout:
    """One column: how wide it is, and its texts filled up to that."""

    def __init__(self, head: str, cells: Sequence[Cell], left: bool, terminal: bool) -> None:
        self.left = left
        body = max((len(c.text) for c in cells), default=0)
        self.heads = _broken(head, body) if terminal and not left else [head]
        self.texts = max(body, *map(len, self.heads))
        self.notes = max((len(c.note) for c in cells), default=0)
        self.width = self.texts + (1 + self.notes if self.notes else 0)

    def head(self, line: int) -> list[tuple[str, str]]:
        """Line -1 of the head, or a line above it."""
        text = self.heads[line] if -line <= len(self.heads) else ""
        return self._filled(Cell(text, style="bold"))

    def cell(self, cell: Cell) -> list[tuple[str, str]]:
        return self._filled(cell)

    def _filled(self, cell: Cell) -> list[tuple[str, str]]:
        text = cell.text.ljust(self.texts) if self.left else cell.text.rjust(self.texts)
        return [(text, cell.style), (f" {cell.note:{self.notes}}" if self.notes else "", "dim")]


def _broken(head: str, body: int) -> list[str]:
    """Break a name at its underscores where it is wider than what stands below it."""
    lines: list[str] = []
    for word in head.split("_"):
        if lines and len(lines[-1]) + len(word) < max(body, 8):
            lines[-1] += f"_{word}"
        else:
            lines.append(word)
    return lines


def _fitted(grid: Grid, terminal: bool) -> list[list[int]]:
    """Split the columns into as many tables as the terminal needs; in a pipe lines are of PIPED characters at most."""
    room = min(max(shutil.get_terminal_size().columns, NARROW), WIDE) - INDENT if terminal else PIPED
    widths = [_Layout(h, grid.column(i), i < grid.left, terminal).width + GAP for i, h in enumerate(grid.heads)]
    lead = list(range(grid.lead))
    taken = sum(widths[: grid.lead]) - GAP
    blocks, used = [[*lead]], taken
    for i in range(grid.lead, len(widths)):
        if used + widths[i] > room and len(blocks[-1]) > grid.lead:
            blocks.append([*lead])
            used = taken
        blocks[-1].append(i)
        used += widths[i]
    return blocks


def _joined(cells: Sequence[list[tuple[str, str]]], terminal: bool) -> list[tuple[str, str]]:
    parts: list[tuple[str, str]] = [(" " * INDENT, "")] if terminal else []
    for i, cell in enumerate(cells):
        parts += ([(" " * GAP, "")] if i else []) + cell
    return parts


def _print(parts: Sequence[tuple[str, str]]) -> None:
    print("".join(text for text, _ in parts).rstrip())


@cache
def _painter() -> Callable[[Sequence[tuple[str, str]]], None]:
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
