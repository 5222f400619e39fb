"""The parts of a page as plain data: rows of a scorecard, slices of a forest, sentences. Templates only place them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

__all__ = [
    "Fact",
    "Figure",
    "Figures",
    "Forest",
    "Group",
    "Headline",
    "IntervalBar",
    "NamedSide",
    "Page",
    "PagePart",
    "RowAxis",
    "Value",
    "ValueGrid",
]  # fmt: skip


class NamedSide(NamedTuple):
    """A model or arm: what it is called, and which of the page's colours it has."""

    name: str
    number: int


class Fact(NamedTuple):
    """A remark below the verdict: `kind` is "ci", "proof", "tag" or "but"."""

    kind: str
    label: str
    text: str


class Headline(NamedTuple):
    """What a page says first.

    Parameters
    ----------
    parts : list of (text, number)
        The sentence; a number colours the name of a model or arm.
    lead : str
        What stands below.
    facts : list of Fact
        At most four.
    alert : str
        Why nothing below can be trusted; empty where all is well.
    """

    parts: list[tuple[str, int | None]]
    lead: str
    facts: list[Fact]
    alert: str = ""

    @property
    def text(self) -> str:
        """The sentence."""
        return "".join(text for text, _ in self.parts)


class IntervalBar(NamedTuple):
    """Where an interval is on its axis, in percent of the width; right is better.

    Parameters
    ----------
    low, mid, high : float
        Cut off at the ends.
    zero : float
        No difference.
    before, beyond : bool
        Whether the interval goes on to the left, and to the right.
    whole : float or None
        The difference of all rows.
    limit : float or None
        Of a guardrail.
    over : bool
        Whether what is to its right is forbidden, not what is to its left.
    """

    low: float
    mid: float
    high: float
    zero: float
    before: bool = False
    beyond: bool = False
    whole: float | None = None
    limit: float | None = None
    over: bool = False


class RowAxis(NamedTuple):
    """The axis that rows share: ticks in percent of the width, and what it is of."""

    title: str
    ticks: list[tuple[float, str]]


@dataclass
class Figure:
    """One measure, or one slice.

    Parameters
    ----------
    name, sub : str
        What it is, and a remark.
    a, b : str
        The values of both sides; a is the new one.
    change, relative, half, between, p, proof, limit : str
        The difference; as a share; half its interval; the interval; and so on. Empty where there is none.
    bold : bool
        Whether the difference excludes zero beyond both kinds of error.
    word : str
        What it says: "better", "unclear", "worse", "too few"; "held", "undecided", "breached"; "withheld"; or nothing.
    reason : str
        Why it is not read.
    ends : tuple of float
        Low, middle and high of the difference, in such units that right is better; NaN where there are none.
    turned : float
        -1 where lower is better, else 1.
    margin : float or None
        Of a guardrail: the end of what is allowed, on the axis of the ends.
    over : bool
        Whether what is above the margin is forbidden, not what is below.
    rows : int
        Of both sides.
    share, impact : str
        Of all rows; and what the slice adds to the whole.
    order : dict
        By what the table is sorted.
    span : Span or None
        Its place on the axis.
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
    turned: float = 1.0
    margin: float | None = None
    over: bool = False
    rows: int = 0
    part: float = math.nan
    share: str = ""
    impact: str = ""
    order: dict[str, float] = field(default_factory=dict)
    span: IntervalBar | None = None

    @property
    def few(self) -> bool:
        """Whether there is too little to read it."""
        return self.word == "too few"


class Group(NamedTuple):
    """Rows that belong together, below a heading."""

    title: str
    note: str
    rows: list[Figure]
    more: str = ""


class PagePart(NamedTuple):
    """A part of a page: which template shows it, its heading and anchor, and its data."""

    kind: str
    title: str
    anchor: str
    data: Any
    note: str = ""


class Figures(NamedTuple):
    """A scorecard: measures down, what is known of each across."""

    caption: str
    sides: tuple[NamedSide, NamedSide]
    groups: list[Group]
    axis: RowAxis | None
    interval: str
    limits: bool
    notes: list[str]


class Forest(NamedTuple):
    """Slices down, on one axis."""

    metric: str
    caption: str
    sides: tuple[NamedSide, NamedSide]
    groups: list[Group]
    axis: RowAxis
    interval: str
    open: bool


class Value(NamedTuple):
    """One value in a table of models: its text, interval, and certified bound."""

    text: str
    interval: str = ""
    proof: str = ""
    reason: str = ""
    number: int = 0


class ValueGrid(NamedTuple):
    """What every model has: measures down, models across; then counts of rows."""

    caption: str
    sides: list[NamedSide]
    rows: list[tuple[str, str, list[Value]]]
    counts: list[tuple[str, list[str]]]
    notes: list[str]
    badge: str


@dataclass
class Page:
    """A page as plain data.

    Parameters
    ----------
    title : str
        What was read.
    words : Words
        What is said first.
    sides : tuple of Side
        What is compared; empty where nothing is.
    hero : Figure or None
        The difference that decides, with its axis.
    parts : list of Part
        The rest, in order.
    provenance : list of (term, text)
        Where it comes from.
    """

    title: str
    words: Headline
    sides: tuple[NamedSide, ...] = ()
    hero: tuple[Figure, RowAxis] | None = None
    parts: list[PagePart] = field(default_factory=list)
    provenance: list[tuple[str, str]] = field(default_factory=list)
    badge: str = ""

    @property
    def has(self) -> set[str]:
        """Which kinds of parts there are: what has to be explained."""
        return {p.kind for p in self.parts}
