"""From results to the page: the numbers that the tables of the command line have, and the pictures."""

from __future__ import annotations

import math
import os
from importlib import resources
from pathlib import Path
from typing import Any

from ... import __version__
from ...collect.collection import MetricCollection
from ...collect.files import atomic_write
from ...compose.sliced import Sliced
from ..grid import Cell, Grid
from ..records import pieces
from ..several import each_class
from ..tables import BEST, headline, slices
from .pictures import pictures

__all__ = ["render", "write_page"]

SLICES = 1000  # in a table: those with most rows


def render(thing: Any, title: str, sort: str | None = None, min_rows: int = 0) -> str:
    """Return results as one HTML page that needs nothing else.

    Parameters
    ----------
    thing : MetricCollection, Sliced, Metric or Bundle
        The results.
    title : str
        What was read: the headline.
    sort, min_rows
        As for `Sliced.table`.

    Returns
    -------
    str
        The page. Everything from the log is escaped, and nothing is loaded from anywhere.
    """
    try:
        from jinja2 import Environment
        from markupsafe import Markup
    except ImportError as error:
        raise ImportError('a report needs jinja2: pip install "streammetrics[report]"') from error
    found = pieces(thing)
    whole = [(name, piece) for name, piece in found if isinstance(piece, MetricCollection)]
    source = resources.files("streammetrics.report.page")
    template = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string(
        (source / "page.html").read_text(encoding="utf-8")
    )
    return template.render(
        title=title,
        version=__version__,
        style=Markup((source / "page.css").read_text(encoding="utf-8")),
        script=Markup((source / "page.js").read_text(encoding="utf-8")),
        heads=[_table(headline(piece, "" if name == "overall" else name)) for name, piece in whole],
        pictures=[p._replace(svg=Markup(p.svg)) for _, piece in whole for p in pictures(piece)],
        slices=[_table(grid) for _, piece in whole for grid in each_class(piece)]
        + [
            _table(slices(p, SLICES, f"By {', '.join(p.by)}", sort, min_rows))
            for _, p in found
            if isinstance(p, Sliced)
        ],
    )


def write_page(
    thing: Any, path: str | os.PathLike[str], *, title: str, sort: str | None = None, min_rows: int = 0
) -> Path:
    """Write results as one HTML page that needs nothing else, whole or not at all.

    Parameters
    ----------
    thing : MetricCollection, Sliced, Metric or Bundle
        The results.
    path : path
        Where.
    title, sort, min_rows
        As for `render`.

    Raises
    ------
    ImportError
        jinja2 is not installed.
    OSError
        The system refuses; what was there is there.
    """
    page = render(thing, title, sort, min_rows)
    with atomic_write(path) as file:
        file.write(page.encode())
    return Path(path)


def _table(grid: Grid) -> dict[str, Any]:
    """Return a table with the numbers that its columns are sorted by, and the length of their bars."""
    columns = [[_number(c) for c in grid.column(i)] for i in range(len(grid.heads))]
    widest = [max((abs(v) for v in column if v is not None), default=0.0) for column in columns]
    rows: list[list[dict[str, Any]]] = []
    for row in grid.rows:
        if row is not None:
            cells: list[dict[str, Any]] = []
            for i, cell in enumerate(row):
                if i < grid.left and not cell.text and rows:  # named once in print: here every row, to be sorted
                    cell = Cell(rows[-1][i]["text"])
                value = _number(cell) if i >= grid.left else None
                bar = abs(value) / widest[i] * 100 if value is not None and widest[i] else None
                cells.append(
                    {"text": cell.text, "note": cell.note, "best": cell.style == BEST, "sort": value, "bar": bar}
                )
            rows.append(cells)
    return {"title": grid.title, "heads": grid.heads, "left": grid.left, "rows": rows, "remarks": grid.remarks}


def _number(cell: Cell) -> float | None:
    try:
        value = float(cell.text.replace(",", ""))
    except ValueError:  # a text, which has no order
        return None
    return value if math.isfinite(value) else None
