"""The data model of a page: headline, rows, tables and forest plots, which the templates only lay out."""

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
    """A model or arm: its name, and the index of its colour."""

    name: str
    number: int


class Fact(NamedTuple):
    """A remark below the headline, where `kind` ("ci", "proof", "tag" or "but") sets the style of the label."""

    kind: str
    label: str
    text: str


class Headline(NamedTuple):
    """The headline of a page.

    Parameters
    ----------
    parts : list of (text, number)
        The main sentence in parts; the number is the colour of a model or arm, or None.
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
        """The main sentence as one text."""
        return "".join(text for text, _ in self.parts)


class IntervalBar(NamedTuple):
    """The position of an interval on its axis, in percent of the width.

    Parameters
    ----------
    low, mid, high : float
        Lower limit, estimate and upper limit, clipped to the axis.
    zero : float
        Position of no difference.
    extends_left, extends_right : bool
        Whether the interval was clipped on that side.
    overall : float or None
        Position of the difference over all rows.
    limit : float or None
        Position of the limit of a guardrail.
    is_upper_limit : bool
        Whether values to the right of the limit are forbidden, instead of those to the left.
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
    """The axis of several rows: its title, and ticks in percent of the width."""

    title: str
    ticks: list[tuple[float, str]]


@dataclass
class MeasureRow:
    """One row of a table or forest plot: a metric or a slice.

    Parameters
    ----------
    name, sub : str
        Name, and a remark below it.
    a, b : str
        Values of the new and of the old side.
    change, relative, half, between, p, proof, limit : str
        The difference, the relative difference, the half width, the interval, the p-value, the certified bound and the
        limit of a guardrail as text; empty if there is none.
    bold : bool
        Whether the difference excludes zero beyond sampling error and certified bound.
    word : str
        Reading of the difference: "better", "unclear", "worse" or "too few"; for a guardrail "held", "undecided" or
        "breached"; "withheld"; or empty.
    reason : str
        Why there is no interval.
    ends : tuple of float
        Lower limit, estimate and upper limit, mirrored if lower is better, so that right is better; NaN without a value.
    direction : float
        -1 if the ends are mirrored, else 1.
    margin : float or None
        Limit of a guardrail, on the axis of `ends`.
    is_upper_limit : bool
        Whether values above the margin are forbidden, instead of those below.
    rows : int
        Number of rows of both sides.
    part : float
        Share of all rows.
    share, impact : str
        The share of all rows, and share times difference, as text.
    order : dict
        Sort keys of the row.
    span : IntervalBar or None
        Position on the axis.
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
        """Whether there is too little data for an interval."""
        return self.word == "too few"


class RowGroup(NamedTuple):
    """Rows below a common heading."""

    title: str
    note: str
    rows: list[MeasureRow]
    more: str = ""


class PagePart(NamedTuple):
    """A section of a page: its template, heading, anchor and data."""

    kind: str
    title: str
    anchor: str
    data: Any
    note: str = ""


class MeasureTable(NamedTuple):
    """A table with one row for each metric: values, difference, interval and reading."""

    caption: str
    sides: tuple[NamedSide, NamedSide]
    groups: list[RowGroup]
    axis: RowAxis | None
    interval: str
    limits: bool
    notes: list[str]


class Forest(NamedTuple):
    """A forest plot: one row for each slice, on one axis."""

    metric: str
    caption: str
    sides: tuple[NamedSide, NamedSide]
    groups: list[RowGroup]
    axis: RowAxis
    interval: str
    open: bool


class ValueCell(NamedTuple):
    """One value of a table of models: its text, interval and certified bound."""

    text: str
    interval: str = ""
    proof: str = ""
    reason: str = ""
    number: int = 0


class ValueGrid(NamedTuple):
    """A table of metrics (rows) by model (columns), followed by counts of rows."""

    caption: str
    sides: list[NamedSide]
    rows: list[tuple[str, str, list[ValueCell]]]
    counts: list[tuple[str, list[str]]]
    notes: list[str]
    badge: str


@dataclass
class Page:
    """A page as plain data.

    Parameters
    ----------
    title : str
        Title of the page.
    headline : Headline
        The main sentence and facts.
    sides : tuple of NamedSide
        The compared models or arms; empty without a comparison.
    hero : (MeasureRow, RowAxis) or None
        The deciding difference, with its axis.
    parts : list of PagePart
        The sections, in order.
    provenance : list of (term, text)
        Origin of the data: command, files, digests.
    badge : str
        Confidence of the intervals, such as 95 %.
    """

    title: str
    headline: Headline
    sides: tuple[NamedSide, ...] = ()
    hero: tuple[MeasureRow, RowAxis] | None = None
    parts: list[PagePart] = field(default_factory=list)
    provenance: list[tuple[str, str]] = field(default_factory=list)
    badge: str = ""

    @property
    def kinds(self) -> set[str]:
        """The kinds of sections, which decide what the page explains."""
        return {p.kind for p in self.parts}
