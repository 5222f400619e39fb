"""Reports: one self-contained HTML page of results."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ... import __version__
from ...collect.files import atomic_write
from ..assemble import assemble
from ..page_model import MeasureTable, NamedSide, Page
from .templates import build_environment, read_safe

__all__ = ["render", "report"]

AVERAGE_WORDS = ("macro:", "micro:", "weighted by")


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
    """Write results as one self-contained HTML page, atomically: the verdict first, then the details.

    Parameters
    ----------
    objects : metric, collection, slices, windows, Table, Comparison, Comparisons, Scorecard; or a list or dict of them
        What to show. The page begins with the verdict of a scorecard, or else of the comparisons. Two models in one
        `Sharded` collection are compared: the second with the first.
    path : path
        The file to write.
    title : str, optional
        Title of the page.
    sides : pair of str
        Names of sides a and b of comparisons.
    rows_independent : bool
        Whether metrics without units have intervals that treat all rows as independent; by default they have none.
    provenance : mapping of str to str or list of str, optional
        Origin of the data: command, files, dates. Rows, weights, filters, digests and the version are added.
    sort, min_rows
        As for `Sliced.table`.

    Returns
    -------
    Path
        Path of the page.

    Raises
    ------
    InvalidInputError
        If there is nothing to show, or an object has another type.
    ImportError
        If jinja2 is not installed.
    OSError
        If the file cannot be written; an existing file is unchanged.

    Notes
    -----
    All text from the log is escaped, and the page loads nothing. Of many slices, those with the largest impact are shown,
    and the number of the others. No value is highlighted as best; a difference is bold if it excludes zero beyond sampling
    error and certified bounds.

    Examples
    --------
    >>> import tempfile, streammetrics as sm
    >>> metrics = sm.MetricCollection(sm.AUC(), sm.LogLoss()).update([0, 1, 0, 1], [0.2, 0.7, 0.4, 0.3])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     page = sm.report(metrics, f"{folder}/page.html", title="four rows")
    ...     "AUC 0.7500" in page.read_text()
    True
    """
    html = render(objects, title or "Report", sides=sides, rows_independent=rows_independent, provenance=provenance,
                  sort=sort, min_rows=min_rows)  # fmt: skip
    atomic_write(path, lambda file: file.write(html.encode()))
    return Path(path)


def render(objects: Any, title: str, **settings: Any) -> str:
    """Return the page as HTML text; parameters as for `report`."""
    page = assemble(objects, title, **settings)
    html: str = build_environment().get_template("page.html").render(
        page=page,
        hero_sides=_select_sides(page),
        macro=any(word in text for text in _collect_subtitles(page) for word in AVERAGE_WORDS),
        one_scale=any(part.kind == "scorecard" and part.data.axis for part in page.parts),
        version=__version__,
        style=read_safe("page.css"),
        script=read_safe("page.js"),
    )  # fmt: skip
    return html


def _select_sides(page: Page) -> tuple[NamedSide, ...]:
    """Return the new and the old side of the first comparison on the page."""
    for part in page.parts:
        if part.kind == "scorecard":
            return tuple(part.data.sides)
        if part.kind == "forests":
            return tuple(part.data[0].sides)
    return page.sides


def _collect_subtitles(page: Page) -> list[str]:
    """Return the texts below the names of metrics."""
    subtitles = []
    for part in page.parts:
        if part.kind == "values":
            subtitles += [sub for _, sub, _ in part.data.rows]
        elif isinstance(part.data, MeasureTable):
            subtitles += [row.sub for group in part.data.groups for row in group.rows]
    return subtitles
