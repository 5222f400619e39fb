"""The evaluation of an experiment as plain data, for pages, alerts, Prometheus and the store.

An evaluation can be written to JSON and read back unchanged. Unknown numbers are None.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self

from ... import __version__

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
    "is_too_wide",
]

MAX_WIDTH = 2.0
"""The largest width of an interval that pages show: ±100 % of the control."""


def is_too_wide(low: float | None, high: float | None) -> bool:
    """Return whether the interval of a relative difference is too wide to be informative.

    In the first hours of an experiment, an always-valid interval can range from -100 % to +1e28 %.
    """
    return low is not None and high is not None and high - low > MAX_WIDTH


class TreatmentVerdict(NamedTuple):
    """The verdict on one treatment: a decision, and a sentence that explains it.

    The decision is "ship", "do not", "keep running", "inconclusive" or "withheld". `more_users` and `more_days`
    estimate how many more users and days are needed for a decision.
    """

    treatment: str
    decision: str
    sentence: str
    more_users: float | None = None
    more_days: float | None = None


class PowerEstimate(NamedTuple):
    """The number of users that an experiment needs to detect a difference in the primary metric with a power of 80 %.

    To detect the relative difference `relative` (0.01 means 1 %), treatment and control together need `users` users and
    `more_days` more days. `at_end` is the smallest relative difference that the planned number of users can detect.
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
        "primary", "guardrail", "secondary" or "model". A "model" metric, such as AUC, describes the model on the
        traffic of each arm. A difference in such a metric is not a treatment effect.
    better : str
        Which values are better: "high", "low" or "one" (closer to 1).
    margin : float or None
        The relative margin by which a guardrail may become worse; 0.02 means 2 % of the control's value.
    control_value, value : float or None
        The values of the control and the treatment.
    change, low, high : float or None
        The relative difference with its always-valid interval.
    once_low, once_high : float or None
        The interval for a single look. It is valid only if people look at the experiment just once.
    bound : float or None
        The largest error of `change` that is due to approximations in the metric, such as histograms. Sampling error is
        not included.
    word, reason : str
        The conclusion, such as "better", and the reason if there is no conclusion. The conclusion is "too early" while
        the interval is wider than ±100 %.
    rows : int
        The number of rows in both arms together.
    slice : dict
        The column and key of the slice; empty for all rows.
    share : float or None
        The slice's share of all rows.
    tag : str
        The tag of the metric. Pages use it (or the name, if the tag is empty) to choose between percentages and plain
        numbers.
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
    """The check of whether the arms have the planned shares of users.

    If they do not (a sample ratio mismatch), `alarm` is true, and the arms are not comparable. `users` and `planned`
    are the numbers of users and the planned shares by arm. `e_value` measures the evidence for a mismatch.
    """

    e_value: float
    alarm: bool
    sentence: str
    users: dict[str, float]
    planned: dict[str, float]


class ArmRow(NamedTuple):
    """The figures of an arm.

    `planned` and `share` are the planned and the actual share of users. `positives` is the number of positive labels,
    and `value` is the value of the primary metric.
    """

    arm: str
    planned: float
    users: float | None
    share: float | None
    rows: int
    positives: int | None
    value: float | None


class ShownLook(NamedTuple):
    """An earlier look at the results of a treatment, as people saw them.

    It contains the decision, the difference in the primary metric with its interval, the number of users, and each
    arm's share of users.
    """

    at: float
    treatment: str
    decision: str
    change: float | None
    low: float | None
    high: float | None
    users: float | None
    shares: dict[str, float] | None = None


class WindowPoint(NamedTuple):
    """The value of a metric in one arm and one time window.

    The window is an hour or a day that begins at `hour`. For a treatment, `change` is the relative difference from the
    control in this window, and `low` and `high` are its interval. The point is `provisional` if outcomes of the window
    may still arrive.
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
    """The status of a source.

    A source that the definition does not name is "unlisted". A listed source is "late" while its next part is overdue,
    and "silent" once the part is overdue by three hours or more. Otherwise, the source is "closed" if the definition
    closes it, or "fresh" if not.

    `counted_to` is the last hour for which the source posted a part. `behind` is the number of seconds by which its
    next part is overdue. `late` is the number of parts that arrived late. `missing` lists the latest hours without a
    part (at most 24) as strings, oldest first. `conflicts` is the number of undecided conflicts (parts that repeat the
    key of an earlier part with different content).
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

    @property
    def is_behind(self) -> bool:
        """Whether the next part of the source is overdue."""
        return self.state in ("late", "silent")


class ScoreDrift(NamedTuple):
    """The difference between the scores of an arm and the scores of the control.

    `stability` is the population stability index, and `word` describes its size.
    """

    metric: str
    arm: str
    stability: float | None
    word: str


@dataclass(frozen=True)
class Evaluation:
    """All data that the dashboard shows about an experiment.

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
        The digest of the total (all parts merged).
    parts, rows : int
        The number of parts and rows in the total.
    hours : (int, int) or None
        The first and the last hour with a part.
    day : float
        The fractional number of days since the start.
    timezone : str
        The IANA name of the time zone that defines days.
    withheld : str
        The reason for withholding all verdicts; empty if they are not withheld.
    verdicts, table, slices, arms, series, days, sources, drift
        Lists of named tuples, such as `TreatmentVerdict`. `table` contains the metrics over all rows, and `slices`
        those in each slice. `series` contains the values by hour, and `days` those by day.
    ratio : RatioCheck or None
        The check of whether the arms have the planned shares of users; None if there was no check.
    users, planned, per_day : float or None
        The current number of users, the planned number, and the average number of new users per day.
    final_to : int or None
        The last final hour (an hour is final once its outcomes are complete). `verdicts`, `table` and `slices` cover
        the rows up to this hour; `arms` and `sources` cover all rows.
    changes, late_changes, notes : list of str
        `changes` lists the changes to the definition since the start. `late_changes` lists those that could bias the
        verdict because they were made after the first data arrived. `notes` lists other remarks.
    warnings : dict of str to list
        For each treatment, warnings about its comparison with the control, such as Simpson's paradox, as sentences.
    power, looks : list
        Lists of `PowerEstimate` and `ShownLook` objects. `looks` contains a selection of the earlier looks.
    dropped : dict
        The number of dropped rows by reason. If metrics dropped different numbers of rows, this is the largest number.
    position : (int, int) or None
        The number of the last part that was read, and the epoch, which increases when older parts change.
    due : float or None
        The time, in seconds since 1970, at which the evaluation must be recomputed even without new parts.
    release : str
        The release of this package that computed the evaluation.
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
    late_changes: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    warnings: dict[str, list[str]] = field(default_factory=dict)
    power: list[PowerEstimate] = field(default_factory=list)
    looks: list[ShownLook] = field(default_factory=list)
    dropped: dict[str, int] = field(default_factory=dict)
    position: tuple[int, int] | None = None
    due: float | None = None
    timezone: str = "UTC"
    release: str = __version__

    def advance(self, now: float) -> Self:
        """Return the evaluation as of the later time `now`, with longer delays for sources that are behind.

        Without new data, nothing else in an evaluation changes before the time `due`.
        """
        delays = [s._replace(behind=s.behind + now - self.at) if s.behind else s for s in self.sources]
        return replace(self, at=now, sources=delays)

    def to_json(self) -> str:
        """Return the evaluation as JSON."""
        # Convert named tuples to dicts. Otherwise, they would become JSON arrays, without field names.
        lists = {name: [row._asdict() for row in getattr(self, name)] for name in ROW_CLASSES}
        ratio = None if self.ratio is None else self.ratio._asdict()
        return json.dumps(vars(self) | lists | {"ratio": ratio}, allow_nan=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read an evaluation from the JSON that `to_json` returned."""
        fields: dict[str, Any] = json.loads(text)
        for name, kind in ROW_CLASSES.items():
            fields[name] = [kind(**row) for row in fields[name]]
        fields["ratio"] = None if fields["ratio"] is None else RatioCheck(**fields["ratio"])
        for name in ("hours", "position"):
            fields[name] = None if fields.get(name) is None else tuple(fields[name])
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
