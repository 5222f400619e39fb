"""From what was counted and compared to one HTML page that needs nothing else."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ... import __version__
from ...collect.files import atomic_write
from ..assemble import assemble
from ..page_model import Figures, NamedSide, Page
from .templates import environment, safe

__all__ = ["render", "report"]

AVERAGED = ("macro:", "micro:", "weighted by")


def report(
    objects: Any,
    path: str | os.PathLike[str],
    *,
    title: str | None = None,
    sides: tuple[str, str] = ("a", "b"),
    rows_independent: bool = False,
    provenance: Mapping[str, Any] | None = None,
    sort: str | None = None,
    min_rows: int = 0,
) -> Path:
    """Write results as one HTML page that needs nothing else, whole or not at all: the verdict first, then why.

    Parameters
    ----------
    objects : metric, collection, slices, windows, Table, Comparison, Comparisons, Scorecard; or a list or dict of them
        What to show. The page begins with the verdict of a scorecard, else with what comparisons say. Of two models that
        were counted in one collection by units (`Sharded`) the second is compared with the first.
    path : path
        Where.
    title : str, optional
        What was read.
    sides : pair of str
        What a and b of comparisons are called.
    rows_independent : bool
        Whether values that were not counted by units have intervals as if every row were a unit of its own; else none.
    provenance : mapping of str to str or list of str, optional
        Where it comes from: the command, files, dates. Rows, weights, filters, digests and the version are added.
    sort, min_rows
        As for `Sliced.table`.

    Returns
    -------
    Path
        The page.

    Raises
    ------
    InvalidInputError
        There is nothing to show, or it is of another kind.
    ImportError
        jinja2 is not installed.
    OSError
        The system refuses; what was there is there.

    Notes
    -----
    Everything from the log is escaped, and nothing is loaded from anywhere. Of many slices those of the largest impact are
    shown, and of the rest how many there are. No value is marked as best; a difference is bold where it leaves zero out
    beyond both kinds of error, sampling and certified bounds.

    Examples
    --------
    >>> import tempfile, streammetrics as sm
    >>> metrics = sm.MetricCollection(sm.AUC(), sm.LogLoss()).update([0, 1, 0, 1], [0.2, 0.7, 0.4, 0.3])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     page = sm.report(metrics, f"{folder}/page.html", title="four rows")
    ...     "AUC 0.7500" in page.read_text()
    True
    """
    made = render(objects, title or "Report", sides=sides, rows_independent=rows_independent, provenance=provenance,
                  sort=sort, min_rows=min_rows)  # fmt: skip
    atomic_write(path, lambda file: file.write(made.encode()))
    return Path(path)


def render(objects: Any, title: str, **settings: Any) -> str:
    """Return the page as a text; parameters as for `report`."""
    page = assemble(objects, title, **settings)
    made: str = environment().get_template("page.html").render(
        page=page,
        hero_sides=_sides_of(page),
        macro=any(word in text for text in _remarks(page) for word in AVERAGED),
        one_scale=any(part.kind == "scorecard" and part.data.axis for part in page.parts),
        version=__version__,
        style=safe("page.css"),
        script=safe("page.js"),
    )  # fmt: skip
    return made


def _sides_of(page: Page) -> tuple[NamedSide, ...]:
    """The new side and the old one of what the page says first."""
    for part in page.parts:
        if part.kind == "scorecard":
            return tuple(part.data.sides)
        if part.kind == "forests":
            return tuple(part.data[0].sides)
    return page.sides


def _remarks(page: Page) -> list[str]:
    """What stands below the names of measures."""
    told = []
    for part in page.parts:
        if part.kind == "values":
            told += [sub for _, sub, _ in part.data.rows]
        elif isinstance(part.data, Figures):
            told += [row.sub for group in part.data.groups for row in group.rows]
    return told
