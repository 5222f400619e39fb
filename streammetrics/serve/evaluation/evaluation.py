"""The evaluation of an experiment as plain data, for pages, alerts, Prometheus and the store.

It can be written to JSON and read back unchanged; unknown numbers are None.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple, Self

__all__ = [
    "ArmRow",
    "Evaluation",
    "MetricRow",
    "PowerEstimate",
    "RatioCheck",
    "ScoreDrift",
    "ShownLook",
    "SourceStatus",
    "TreatmentVerdict",
    "WindowPoint",
]


class TreatmentVerdict(NamedTuple):
    """The verdict of one treatment.

    The decision is "ship", "do not", "keep running", "nothing shown" or "withheld". `more_users` and `more_days` estimate
    what is needed until open questions are decided.
    """

    treatment: str
    decision: str
    sentence: str
    more_users: float | None = None
    more_days: float | None = None


class PowerEstimate(NamedTuple):
    """The statistical power (80 %) of the primary metric of a treatment.

    A `relative` difference (0.01 is 1 %) is detected with `users` users in both arms together, who are reached in
    `more_days` days. `at_end` is the smallest relative difference that the planned number of users detects.
    """

    treatment: str
    relative: float
    users: float
    more_days: float | None
    at_end: float | None


class MetricRow(NamedTuple):
    """A metric of a treatment compared with the control, over all rows or in a slice.

    Parameters
    ----------
    treatment, metric : str
        The names of the arm and the metric.
    role : str
        "primary", "guardrail", "secondary", or "model" for a metric of each arm's own traffic, which is no effect of the
        treatment.
    better : str
        The good direction: "high", "low" or "one".
    margin : float or None
        The margin of a guardrail.
    control_value, value : float or None
        The values of the control and the treatment.
    change, low, high : float or None
        The relative difference with its always-valid interval.
    once_low, once_high : float or None
        The interval of a single look, which is valid only if the experiment is looked at once.
    bound : float or None
        The error bound of `change` that comes from the approximation of the state, without sampling error.
    word, reason : str
        The conclusion, such as "better"; and the reason if there is no conclusion.
    rows : int
        The rows of both arms.
    slice : dict
        The column and key of the slice; empty for all rows.
    share : float or None
        The share of all rows that are in the slice.
    tag : str
        The tag of the metric, by which pages choose percent or plain numbers; if empty, the name is used.
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
    """The check for a sample ratio mismatch: e-value, alarm, a sentence, and users and planned shares by arm."""

    e_value: float
    alarm: bool
    sentence: str
    users: dict[str, float]
    planned: dict[str, float]


class ArmRow(NamedTuple):
    """The figures of an arm: planned share, users, their share, rows, positives and value of the primary metric."""

    arm: str
    planned: float
    users: float | None
    share: float | None
    rows: int
    positives: int | None
    value: float | None


class ShownLook(NamedTuple):
    """An earlier look at a treatment: decision, primary metric with its interval, users, and their shares by arm."""

    at: float
    treatment: str
    decision: str
    change: float | None
    low: float | None
    high: float | None
    users: float | None
    shares: dict[str, float] | None = None


class WindowPoint(NamedTuple):
    """A metric of an arm in one window, an hour or a day, which begins at `hour`.

    For a treatment it also has the relative difference from the control in this window, with its interval of a single
    look.
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
    """The status of a source, whose state is "fresh", "late" or "silent".

    `counted_to` is its last hour with a part, `behind` how many seconds its next part is overdue, and `late` the number of
    late parts. `missing` lists the latest hours without a part, at most 24, as strings.
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
    """The drift of the scores of an arm from the control: the population stability index, and a word for it."""

    metric: str
    arm: str
    stability: float | None
    word: str


@dataclass(frozen=True)
class Evaluation:
    """All data that the dashboard shows of an experiment.

    Parameters
    ----------
    experiment, title : str
        The ID and the title.
    version : int
        The version of the definition.
    at : float
        The time of the evaluation, in seconds since 1970.
    state : str
        "no data", "running" or "ended".
    digest : str
        The digest of the total.
    parts, rows : int
        The number of parts and rows in the total.
    hours : (int, int) or None
        The first and the last hour with a part.
    day : float
        The days since the start.
    withheld : str
        The reason why all verdicts are withheld; empty if they are not.
    verdicts, table, slices, arms, series, days, sources, drift
        See their classes. `series` is by hour, `days` by day; `table` covers all rows.
    users, planned, per_day : float or None
        The current users, those at the planned end, and new users a day.
    final_to : int or None
        The last final hour: verdicts, table and slices cover the rows up to it, arms and sources cover all rows.
    changes, notes : list of str
        The changes of the definition since the start; other remarks.
    power, looks : list
        See their classes. `looks` are a selection of the earlier ones.
    dropped : dict
        The dropped rows by reason; in each arm, of the metric that dropped most.
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
    verdicts: list[TreatmentVerdict] = field(default_factory=list)
    table: list[MetricRow] = field(default_factory=list)
    slices: list[MetricRow] = field(default_factory=list)
    arms: list[ArmRow] = field(default_factory=list)
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
    power: list[PowerEstimate] = field(default_factory=list)
    looks: list[ShownLook] = field(default_factory=list)
    dropped: dict[str, int] = field(default_factory=dict)

    def to_json(self) -> str:
        """Return the evaluation as JSON."""
        # `asdict` would keep named tuples, which JSON writes as arrays without names.
        lists = {name: [row._asdict() for row in getattr(self, name)] for name in ROW_CLASSES}
        ratio = None if self.ratio is None else self.ratio._asdict()
        return json.dumps(asdict(self) | lists | {"ratio": ratio}, allow_nan=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read an evaluation from the JSON that `to_json` returned."""
        fields: dict[str, Any] = json.loads(text)
        for name, kind in ROW_CLASSES.items():
            fields[name] = [kind(**row) for row in fields[name]]
        fields["ratio"] = None if fields["ratio"] is None else RatioCheck(**fields["ratio"])
        fields["hours"] = None if fields["hours"] is None else tuple(fields["hours"])
        return cls(**fields)


ROW_CLASSES: dict[str, Any] = {
    "verdicts": TreatmentVerdict,
    "table": MetricRow,
    "slices": MetricRow,
    "arms": ArmRow,
    "series": WindowPoint,
    "days": WindowPoint,
    "sources": SourceStatus,
    "drift": ScoreDrift,
    "power": PowerEstimate,
    "looks": ShownLook,
}
