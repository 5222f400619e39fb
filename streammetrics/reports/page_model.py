"""Define the data of a report page: headline, tables and forest plots as plain strings and numbers.

The templates only arrange this data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

__all__ = [
    "Fact",
    "Forest",
    "Headline",
    "IntervalBar",
    "MeasureRow",
    "MeasureTable",
    "NamedSide",
    "Page",
    "PagePart",
    "RowAxis",
    "RowGroup",
    "ValueCell",
    "ValueGrid",
]  # fmt: skip


class NamedSide(NamedTuple):
    """A model or arm on a page: its name and its color index."""

    name: str
    number: int


class Fact(NamedTuple):
    """A remark below the headline: a short label and a sentence.

    `kind` sets the style of the label: "ci" for a confidence interval, "proof" for a certified bound, "but" for a
    warning, and "tag" for anything else.
    """

    kind: str
    label: str
    text: str


class Headline(NamedTuple):
    """The headline of a page: a main sentence, and remarks below it.

    Parameters
    ----------
    parts : list of (text, number)
        The main sentence in parts. If a part is the name of a model or arm, the number is its color index; otherwise,
        it is None.
    lead : str
        The text below the main sentence.
    facts : list of Fact
        Remarks below the text.
    alert : str
        Why the numbers cannot be trusted; empty if they can.
    """

    parts: list[tuple[str, int | None]]
    lead: str
    facts: list[Fact]
    alert: str = ""

    @property
    def text(self) -> str:
        """The main sentence as one string."""
        return "".join(text for text, _ in self.parts)


class IntervalBar(NamedTuple):
    """The position of an interval on its axis, in percent of the axis width.

    Parameters
    ----------
    low, mid, high : float
        The lower limit, the estimate and the upper limit, clipped to the axis.
    zero : float
        The position of zero, which means no difference.
    extends_left, extends_right : bool
        Whether the interval was clipped on that side.
    overall : float or None
        The position of the difference over all rows.
    limit : float or None
        The position of the limit of a guardrail.
    is_upper_limit : bool
        Whether values to the right of the limit are forbidden, rather than those to the left.
    """

    low: float
    mid: float
    high: float
    zero: float
    extends_left: bool = False
    extends_right: bool = False
    overall: float | None = None
    limit: float | None = None
    is_upper_limit: bool = False


class RowAxis(NamedTuple):
    """An axis that several rows share: its title, and its ticks as pairs of a position (in % of the width) and a label."""

    title: str
    ticks: list[tuple[float, str]]


@dataclass
class MeasureRow:
    """One row of a table or forest plot, with all texts and positions: a metric or a slice.

    Parameters
    ----------
    name, sub : str
        The name, and a remark below it.
    a, b : str
        The values of the new side and of the old side.
    change, relative, half, between, p, proof, limit : str
        The difference, the relative difference, the half width, the interval, the p-value, the certified bound and the
        limit of a guardrail as text; empty if there is none.
    bold : bool
        Whether the interval of the difference, widened by the certified bound, excludes zero.
    word : str
        The conclusion about the difference: "better", "unclear" or "worse"; without an interval, "too few" (too little
        data) or "not shown". A guardrail is "held", "undecided", "breached" or "not shown". The word is "too early"
        before the planned end of an experiment that is not sequential, "withheld" if the verdict is withheld, and empty
        if the metric does not define which values are better.
    reason : str
        The reason why there is no interval.
    ends : tuple of float
        The lower limit, the estimate and the upper limit of the difference; NaN if there is no value. Their signs are
        reversed if lower values are better, so that better results are always on the right.
    direction : float
        -1 if the signs of `ends` are reversed, else 1.
    margin : float or None
        The limit of a guardrail, on the same scale as `ends`.
    is_upper_limit : bool
        Whether values above the margin are forbidden, rather than those below.
    rows : int
        The number of rows on both sides together.
    part : float
        The rows of the slice as a share of all rows, from 0 to 1.
    share, impact : str
        `part`, and the product of `part` and the difference, as text.
    order : dict
        The numbers by which the page can sort rows: "rows", "diff" (difference) and "imp" (absolute impact).
    span : IntervalBar or None
        The position of the interval on its axis.
    """

    name: str
    sub: str = ""
    a: str = ""
    b: str = ""
    change: str = ""
    relative: str = ""
    half: str = ""
    between: str = ""
    p: str = ""
    proof: str = ""
    limit: str = ""
    bold: bool = False
    word: str = ""
    reason: str = ""
    ends: tuple[float, float, float] = (math.nan, math.nan, math.nan)
    direction: float = 1.0
    margin: float | None = None
    is_upper_limit: bool = False
    rows: int = 0
    part: float = math.nan
    share: str = ""
    impact: str = ""
    order: dict[str, float] = field(default_factory=dict)
    span: IntervalBar | None = None

    @property
    def is_too_few(self) -> bool:
        """Whether the row has no interval, for example because of too little data."""
        return self.word in ("too few", "too early", "not shown")


class RowGroup(NamedTuple):
    """A group of rows below a common heading, such as the guardrails of a scorecard.

    `note` is a remark beside the heading, and `more` is a remark about rows that are not shown.
    """

    title: str
    note: str
    rows: list[MeasureRow]
    more: str = ""


class PagePart(NamedTuple):
    """A section of a page.

    `kind` selects the template, `anchor` is the target of links to the section, and `data` is what the template shows.
    """

    kind: str
    title: str
    anchor: str
    data: Any
    note: str = ""


class MeasureTable(NamedTuple):
    """A table with one row for each metric: the values of both sides, the difference, its interval and a conclusion.

    `axis` is the common axis of all rows, or None if each row has its own. `interval` is the label of the intervals,
    such as "95 %". `limits` says whether any row has a guardrail limit.
    """

    caption: str
    sides: tuple[NamedSide, NamedSide]
    groups: list[RowGroup]
    axis: RowAxis | None
    interval: str
    limits: bool
    notes: list[str]


class Forest(NamedTuple):
    """A forest plot: for each slice, the difference in one metric, drawn as an interval on a common axis.

    `interval` is the label of the intervals, such as "95 %". `open` says whether the page shows the plot expanded.
    """

    metric: str
    caption: str
    sides: tuple[NamedSide, NamedSide]
    groups: list[RowGroup]
    axis: RowAxis
    interval: str
    open: bool


class ValueCell(NamedTuple):
    """One value in a table of models, as text, with its interval and certified bound.

    `reason` says why there is no value, and `number` is the color index of the model.
    """

    text: str
    interval: str = ""
    proof: str = ""
    reason: str = ""
    number: int = 0


class ValueGrid(NamedTuple):
    """A table of metrics (rows) by models (columns).

    `rows` contains the name, the subtitle and the cells of each metric. `counts` are further lines with row counts, and
    `badge` is the confidence level of the intervals.
    """

    caption: str
    sides: list[NamedSide]
    rows: list[tuple[str, str, list[ValueCell]]]
    counts: list[tuple[str, list[str]]]
    notes: list[str]
    badge: str


@dataclass
class Page:
    """All data of a report page, without HTML.

    Parameters
    ----------
    title : str
        The title of the page.
    headline : Headline
        The main sentence and the remarks below it.
    sides : tuple of NamedSide
        The compared models or arms; empty if there is no comparison.
    hero : (MeasureRow, RowAxis) or None
        The most important difference, with its axis, for the large picture at the top of the page.
    parts : list of PagePart
        The sections, in order.
    provenance : list of (term, text)
        The origin of the data, such as the command, the files and the digests of the states.
    badge : str
        The confidence level of the intervals, such as "95 %".
    joint : str
        Sentences that say why intervals have a higher confidence level than requested (several treatments, or a
        breached guardrail among several); empty if no interval does.
    """

    title: str
    headline: Headline
    sides: tuple[NamedSide, ...] = ()
    hero: tuple[MeasureRow, RowAxis] | None = None
    parts: list[PagePart] = field(default_factory=list)
    provenance: list[tuple[str, str]] = field(default_factory=list)
    badge: str = ""
    joint: str = ""

    @property
    def kinds(self) -> set[str]:
        """The kinds of sections on the page.

        The glossary at the end of the page explains only the terms of these sections.
        """
        return {p.kind for p in self.parts}
