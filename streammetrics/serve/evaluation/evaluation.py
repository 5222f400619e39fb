"""What is known of an experiment at one look, as plain data: what pages, alerts and Prometheus show, and the store keeps.

All of it goes through JSON unchanged; numbers that are not known are None.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple, Self

__all__ = [
    "Arm",
    "Evaluation",
    "Power",
    "RatioCheck",
    "Row",
    "ScoreDrift",
    "ShownLook",
    "SourceStatus",
    "Told",
    "WindowPoint",
]


class Told(NamedTuple):
    """The verdict of one treatment.

    The decision is "ship", "do not", "keep running", "nothing shown" or "withheld"; then the sentence, and what is missing
    until what is open is decided.
    """

    treatment: str
    decision: str
    sentence: str
    more_users: float | None = None
    more_days: float | None = None


class Power(NamedTuple):
    """What a treatment can show of the primary metric, in 80 of 100 experiments that have it.

    The users of both arms, and the days until then, that show a relative difference (0.01 is 1 %); and the smallest that
    the planned end shows.
    """

    treatment: str
    relative: float
    users: float
    more_days: float | None
    at_end: float | None


class Row(NamedTuple):
    """One metric of a treatment beside the control, of all rows or of a slice.

    Parameters
    ----------
    treatment, metric : str
        What is read.
    role : str
        "primary", "guardrail", "secondary", or "model": of each arm's own traffic, and so no effect of the treatment.
    better : str
        "high", "low" or "one".
    margin : float or None
        Of a guardrail.
    control_value, value : float or None
        Of the arms.
    change, low, high : float or None
        The relative difference with its interval, which holds at all looks.
    once_low, once_high : float or None
        The interval of one look, which must not be looked at twice.
    bound : float or None
        By how much the change may be off by what was counted alone.
    word, reason : str
        What it says; and why it does not.
    rows : int
        Of both arms.
    slice : dict
        Column and key of the slice; empty for all rows.
    share : float or None
        Of all rows.
    tag : str
        Of the metric, which says whether values are read in percent; if empty, its name does.
    """

    treatment: str
    metric: str
    role: str
    better: str
    margin: float | None
    control_value: float | None
    value: float | None
    change: float | None
    low: float | None
    high: float | None
    once_low: float | None
    once_high: float | None
    bound: float | None
    word: str
    reason: str
    rows: int
    slice: dict[str, str]
    share: float | None = None
    tag: str = ""


class RatioCheck(NamedTuple):
    """Whether users fell to arms as planned: the e-value, whether it alarms, the sentence, users and shares by arm."""

    e_value: float
    alarm: bool
    sentence: str
    users: dict[str, float]
    planned: dict[str, float]


class Arm(NamedTuple):
    """An arm so far: planned share, users, their share, rows, positives of the primary metric and its value."""

    arm: str
    planned: float
    users: float | None
    share: float | None
    rows: int
    positives: int | None
    value: float | None


class ShownLook(NamedTuple):
    """What was shown at an earlier evaluation of the primary metric of a treatment, and the shares of users by arm."""

    at: float
    treatment: str
    decision: str
    change: float | None
    low: float | None
    high: float | None
    users: float | None
    shares: dict[str, float] | None = None


class WindowPoint(NamedTuple):
    """A metric in one window, an hour or a day, which begins at `hour`.

    The value of an arm, and, of a treatment beside the control, the relative difference of this window alone, with the
    interval of one look.
    """

    hour: int
    metric: str
    arm: str
    value: float | None
    rows: int
    change: float | None = None
    low: float | None = None
    high: float | None = None
    provisional: bool = False


class SourceStatus(NamedTuple):
    """A source, whose state is "fresh", "late" or "silent".

    The last hour counted, seconds behind what was expected, parts, late ones, hours missing (written as in a key, the last
    24), conflicts; rows, and rows dropped by reason.
    """

    source: str
    counted_to: int | None
    behind: float | None
    parts: int
    late: int
    missing: list[str]
    conflicts: int
    rows: int
    dropped: dict[str, int]
    state: str


class ScoreDrift(NamedTuple):
    """How far the scores of an arm are from those of the control: the population stability index, and its word."""

    metric: str
    arm: str
    stability: float | None
    word: str


@dataclass(frozen=True)
class Evaluation:
    """Everything shown of an experiment.

    Parameters
    ----------
    experiment, title : str
        Which one.
    version : int
        Of its definition.
    at : float
        When it was read: seconds since 1970.
    state : str
        "no data", "running" or "ended".
    digest : str
        Of the total that was read.
    parts, rows : int
        What it is of.
    hours : (int, int) or None
        The first and the last hour counted.
    day : float
        Since the start.
    withheld : str
        Why there is no verdict yet; empty if there is one.
    verdicts, table, slices, arms, series, days, sources, drift
        See the classes. `series` is by hour, `days` by day; `table` is of all rows.
    users, planned, per_day : float or None
        So far, at the planned end, and new ones a day.
    final_to : int or None
        The last hour that is final: verdicts, table and slices are of the rows up to it, arms and sources of all.
    changes, notes : list of str
        How the definition was changed since the start; what else there is to know.
    power, looks : list
        See the classes. `looks` are earlier ones, thinned.
    dropped : dict
        Rows left out by reason, those of the metric that left out most.
    """

    experiment: str
    title: str
    version: int
    at: float
    state: str
    digest: str = ""
    parts: int = 0
    rows: int = 0
    hours: tuple[int, int] | None = None
    day: float = 0.0
    withheld: str = ""
    verdicts: list[Told] = field(default_factory=list)
    table: list[Row] = field(default_factory=list)
    slices: list[Row] = field(default_factory=list)
    arms: list[Arm] = field(default_factory=list)
    ratio: RatioCheck | None = None
    series: list[WindowPoint] = field(default_factory=list)
    days: list[WindowPoint] = field(default_factory=list)
    sources: list[SourceStatus] = field(default_factory=list)
    drift: list[ScoreDrift] = field(default_factory=list)
    users: float | None = None
    planned: float | None = None
    per_day: float | None = None
    final_to: int | None = None
    changes: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    power: list[Power] = field(default_factory=list)
    looks: list[ShownLook] = field(default_factory=list)
    dropped: dict[str, int] = field(default_factory=dict)

    def to_json(self) -> str:
        """Return it as text."""
        lists = {name: [row._asdict() for row in getattr(self, name)] for name in LISTS}
        ratio = None if self.ratio is None else self.ratio._asdict()
        return json.dumps(asdict(self) | lists | {"ratio": ratio}, allow_nan=False, separators=(",", ":"))

    @classmethod
    def of_json(cls, text: str) -> Self:
        """Return what `to_json` wrote."""
        given: dict[str, Any] = json.loads(text)
        for name, kind in LISTS.items():
            given[name] = [kind(**row) for row in given[name]]
        given["ratio"] = None if given["ratio"] is None else RatioCheck(**given["ratio"])
        given["hours"] = None if given["hours"] is None else tuple(given["hours"])
        return cls(**given)


LISTS: dict[str, Any] = {
    "verdicts": Told,
    "table": Row,
    "slices": Row,
    "arms": Arm,
    "series": WindowPoint,
    "days": WindowPoint,
    "sources": SourceStatus,
    "drift": ScoreDrift,
    "power": Power,
    "looks": ShownLook,
}
