"""Write reports: self-contained HTML pages that show results."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ... import __version__
from ...collect.files import atomic_write
from ...inference.verdict import TOO_EARLY
from ..assemble import assemble
from ..page_model import MeasureRow, MeasureTable, NamedSide, Page
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
    confidence: float = 0.95,
) -> Path:
    """Atomically write results as one self-contained HTML page, with the verdict first, followed by the details.

    Parameters
    ----------
    objects : metric, collection, slices, windows, Table, Comparison, Comparisons, Scorecard; or a list or dict of these
        What to show. The page begins with the verdict of a scorecard, or else of the comparisons. If a `Sharded`
        collection contains two models, the second is compared with the first.
    path : path
        The file to write.
    title : str, optional
        The title of the page.
    sides : pair of str
        The names of sides `a` and `b` in comparisons.
    rows_independent : bool
        Whether metrics that were counted without `unit=` get intervals that treat all rows as independent; by default,
        they get no intervals.
    provenance : mapping of str to str or list of str, optional
        The origin of the data: command, files, dates. Rows, weights, filters, digests and the version are added
        automatically.
    sort, min_rows
        The same as for `Sliced.table`.
    confidence : float
        The confidence level of the intervals of values. Comparisons and scorecards have their own confidence levels.

    Returns
    -------
    Path
        The path of the page.

    Raises
    ------
    InvalidInputError
        If there is nothing to show, or an object has a type that a report cannot show.
    ImportError
        If jinja2 is not installed.
    OSError
        If the file cannot be written; an existing file is left unchanged.

    Notes
    -----
    All text from the data is escaped, and the page loads nothing from the network. If there are many slices, the page
    shows those with the largest impact, and counts the others. No value is highlighted as best. A difference is bold if
    its interval, widened by the certified bound, excludes zero.

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
                  sort=sort, min_rows=min_rows, confidence=confidence)  # fmt: skip
    atomic_write(path, lambda file: file.write(html.encode()))
    return Path(path)


def render(objects: Any, title: str, **settings: Any) -> str:
    """Return the report page for `objects` as HTML; the parameters are those of `report`."""
    page = assemble(objects, title, **settings)
    html: str = build_environment().get_template("page.html").render(
        page=page,
        hero_sides=_select_sides(page),
        macro=any(word in text for text in _collect_subtitles(page) for word in AVERAGE_WORDS),
        rates=any(row.change.endswith("%") for row in _collect_rows(page)),
        early=any(row.word == TOO_EARLY for row in _collect_rows(page)),
        one_scale=any(part.kind == "scorecard" and part.data.axis for part in page.parts),
        version=__version__,
        style=read_safe("page.css"),
        script=read_safe("page.js"),
    )  # fmt: skip
    return html


def _select_sides(page: Page) -> tuple[NamedSide, ...]:
    """Return the sides (new, old) of the first comparison on the page; if there is none, the sides of the page."""
    for part in page.parts:
        if part.kind == "scorecard":
            return tuple(part.data.sides)
        if part.kind == "forests":
            return tuple(part.data[0].sides)
    return page.sides


def _collect_rows(page: Page) -> list[MeasureRow]:
    """Return the rows of all tables that compare metrics (`MeasureTable`)."""
    tables = [part.data for part in page.parts if isinstance(part.data, MeasureTable)]
    return [row for table in tables for group in table.groups for row in group.rows]


def _collect_subtitles(page: Page) -> list[str]:
    """Return the small texts below the names of metrics, such as "↑ higher is better"."""
    values = [sub for part in page.parts if part.kind == "values" for _, sub, _ in part.data.rows]
    return [*values, *(row.sub for row in _collect_rows(page))]
