"""What is known of an experiment now: a function of its definition, what was counted, and the time."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from ...collect.metric_like import MetricLike
from ...errors import InvalidInputError, StreamMetricsError
from ...inference.drift import population_stability_index
from ...inference.sample_ratio import SampleRatio, sample_ratio_mismatch
from ...inference.verdict import Progress
from ..store.part_keys import HOUR, hour_text
from .card import TreatmentSide, adjusted, number
from .cells import Samples, by_arm, by_slice, in_phase, last_phase, left_out, narrowed, only, phases, positives
from .evaluation import Arm, Evaluation, RatioCheck, Row, ScoreDrift, ShownLook, SourceStatus
from .experiment import Experiment, shares_changed
from .part_index import OfSource, Posted
from .series import DAY, Series
from .windows import ExperimentWindow

__all__ = ["evaluate", "looks_of"]


@dataclass(frozen=True)
class EvaluationInput:
    """What is read of an experiment.

    Parameters
    ----------
    experiment : Experiment
        Its definition.
    now : float
        When.
    arms : Samples
        The numbers of each arm, of all rows.
    final : Samples
        The same of the rows that count for verdicts.
    ratio : SampleRatio or None
        Whether users fell to arms as planned, of all rows.
    users : dict
        Users by arm, of the rows that count for verdicts; empty where nobody counts them.
    counted_to : int
        The hour after the last that counts for verdicts.
    over : bool
        Whether it has ended, and all rows count for verdicts.
    since : int
        The hour since which days are counted.
    """

    experiment: Experiment
    now: float
    arms: Samples
    final: Samples
    ratio: SampleRatio | None
    users: dict[str, float]
    counted_to: int
    over: bool
    since: int

    @property
    def days(self) -> float:
        """Days of data that count for verdicts."""
        return max(0.0, (self.counted_to - self.since) / DAY)

    def withheld(self, changes: Sequence[str]) -> str:
        """Return why there is no verdict on any treatment; empty if there may be one."""
        one = self.experiment
        if shares_changed(changes) and one.phase is None:
            return "planned shares were changed, and parts do not say in which phase users were first exposed"
        if self.ratio is not None and self.ratio.alarm:
            return self.ratio.sentence
        if one.users is None:
            return "the definition does not say the planned users, which intervals that hold at all looks are made for"
        if not self.users:
            return "nobody counts users, which intervals that hold at all looks need"
        if self.days < one.min_days:
            return f"{self.days:.1f} of at least {one.min_days:g} days are counted"
        return ""

    def progress(self, treatment: str) -> Progress | None:
        """Return how far a treatment and the control are; None where nobody knows."""
        one = self.experiment
        both = treatment, one.control
        if one.users is None or any(arm not in self.users for arm in both):
            return None
        users = math.fsum(self.users[arm] for arm in both)
        planned = one.users * math.fsum(one.arms[arm] for arm in both)
        return Progress(users, planned, self.per_day(users), True, self.over)

    def per_day(self, users: float) -> float | None:
        """Return new users a day, on average since the start."""
        return users / self.days if self.days else None

    def sides(self) -> list[TreatmentSide]:
        """Return each treatment beside the control."""
        return [
            TreatmentSide(self.experiment, arm, self.final, self.progress(arm), self.ratio)
            for arm in self.experiment.treatments
        ]


UNLISTED = 1.0
"""Hours after its end at which an hour is expected of a source that the definition does not name."""
SILENT = 3 * HOUR
LISTED = 24


def sources_of(experiment: Experiment, posted: Posted, now: float) -> list[SourceStatus]:
    """Return how every source does that is expected, or has posted, in the order of their names.

    An hour is due its source's delay after its end. A source is late from then on, silent three hours later.
    """
    names = sorted({*experiment.sources, *posted.sources})
    return [_source(experiment, name, posted.sources.get(name, OfSource()), now) for name in names]


def _source(experiment: Experiment, name: str, mine: OfSource, now: float) -> SourceStatus:
    delay = experiment.sources.get(name, UNLISTED)
    span = mine.hours.span
    first = experiment.start if name in experiment.sources or span is None else span[0]
    due = math.floor(now / HOUR - delay)  # hours before it have to be there
    if experiment.end is not None:
        due = min(due, experiment.end)
    awaited = first if span is None else max(span[1] + 1, first)
    behind = max(0.0, now - (awaited + 1 + delay) * HOUR) if awaited < due else 0.0
    return SourceStatus(
        name,
        None if span is None else span[1],
        behind,
        mine.parts,
        mine.later_than(delay),
        [hour_text(hour) for hour in islice(mine.hours.lacking(first, due), LISTED)][::-1],
        mine.conflicts,
        mine.rows,
        dict(mine.dropped),
        "fresh" if not behind else "late" if behind < SILENT else "silent",
    )


def drift_of(experiment: Experiment, arms: Any) -> list[ScoreDrift]:
    """Return how far the scores of each treatment are from those of the control, of slices by arm.

    Metrics of the same scores are told once, by the first of them.
    """
    keys = {str(key): key for key in arms}
    if experiment.control not in keys:
        return []
    found: dict[Any, ScoreDrift] = {}
    for metric in experiment.metrics:
        try:
            scores = only(arms, metric)
            reference = scores[keys[experiment.control]]
            for arm in experiment.treatments:
                if arm in keys:
                    one = population_stability_index(scores[keys[arm]], reference)
                    same = arm, one.shares, one.reference, one.edges
                    found.setdefault(same, ScoreDrift(metric, arm, number(one.value), one.word))
        except InvalidInputError:  # no metric of scores
            continue
    return list(found.values())


LOOKS = 240
"""Earlier looks of a treatment that are shown."""
LARGEST = sys.float_info.max


def evaluate(
    experiment: Experiment,
    total: MetricLike | None,
    *,
    version: int,
    now: float,
    hours: Mapping[int, ExperimentWindow],
    days: Mapping[int, ExperimentWindow],
    posted: Posted,
    looks: Sequence[ShownLook] = (),
    changes: Sequence[str] = (),
    shared_at: Sequence[float] = (),
    series: Series | None = None,
) -> Evaluation:
    """Return what is known of an experiment: verdicts, figures, windows, and whether the data can be trusted.

    Parameters
    ----------
    experiment : Experiment
        Its definition.
    total : MetricLike or None
        All that was counted: sliced by the arm in front, alone or with other columns. None before the first part.
    version : int
        Of the definition.
    now : float
        Seconds since 1970.
    hours, days : mapping of int to Window
        What was counted in each recent hour, and in each day (UTC), by their first hour.
    posted : Posted
        The parts.
    looks : sequence of Look
        What was shown before, oldest first.
    changes : sequence of str
        How the definition was changed since the start, as `changes` says it.
    shared_at : sequence of float
        When planned shares were changed since the start: of each of these times there is to be a phase.
    series : Series, optional
        What to remember of windows until the next evaluation.

    Returns
    -------
    Evaluation
        Whatever is missing has a reason; nothing that was counted makes this raise.

    Notes
    -----
    Verdicts read intervals that hold at all looks, made for the planned users of the two arms compared, at 5 % over all
    treatments. With `mature_after`, verdicts, table and slices are of the hours that ended so long ago, from the folds of
    days and hours; arms, sample ratio and drift are of all rows. Days since the start are counted up to the last hour
    that counts. With phases all of it is of the last one, and days begin where shares were changed last.
    """
    series = Series() if series is None else series
    span = posted.span or _span(hours, days)
    made = Evaluation(
        experiment.id,
        experiment.title,
        version,
        now,
        "no data",
        parts=posted.parts,
        hours=span,
        day=max(0.0, (now / HOUR - experiment.start) / DAY),
        changes=list(changes),
        looks=thinned(looks),
        sources=sources_of(experiment, posted, now),
        planned=experiment.users,
    )
    if total is None or span is None:
        return _without(made, experiment, "nothing was counted yet")
    try:
        return _read(made, experiment, total, hours, days, changes, shared_at, series)
    except StreamMetricsError as error:  # the page says it
        return _without(replace(made, digest=total.digest(), state="running"), experiment, str(error))


def _without(made: Evaluation, experiment: Experiment, reason: str) -> Evaluation:
    """An evaluation of what cannot be read."""
    told = [TreatmentSide(experiment, arm, {}, None).withheld(reason) for arm in experiment.treatments]
    return replace(made, withheld=reason, verdicts=told)


def _read(
    made: Evaluation,
    experiment: Experiment,
    total: Any,
    hours: Mapping[int, ExperimentWindow],
    days: Mapping[int, ExperimentWindow],
    changes: Sequence[str],
    shared_at: Sequence[float],
    series: Series,
) -> Evaluation:
    assert made.hours is not None
    phase = last_phase(total, experiment)
    of_arms = narrowed(in_phase(total, experiment, phase), experiment)
    arms = by_arm(of_arms, experiment)
    if not any(_rows(some) for some in arms.values()):
        return _without(made, experiment, "nothing was counted yet")
    before = min(made.hours[1] + 1, math.floor(made.at / HOUR - experiment.mature_after))
    whole = before > made.hours[1] or not experiment.mature_after
    final = total if whole else series.final(hours, days, before)
    if final is not None:
        final = in_phase(final, experiment, phase)
    counted = made.hours[1] + 1 if whole else before
    notes = _notes(experiment, arms)
    users, ratio = _users(experiment, of_arms, notes)
    early = _early(experiment, total, shared_at)
    ratio = None if early else ratio
    decided = users if whole or final is None else _users(experiment, narrowed(final, experiment), [])[0]
    over = _over(experiment, made.at, users)
    closed = _over(experiment, made.at - experiment.mature_after * HOUR, decided)
    samples = {} if final is None else arms if whole else by_arm(final, experiment)
    begins = [math.floor(at / HOUR) for at in shared_at] if experiment.phase is not None else []
    since = max([experiment.start, *begins])
    seen = EvaluationInput(experiment, made.at, arms, samples, ratio, decided, counted, closed, since)
    withheld = early or seen.withheld(changes) or ("" if samples else "no hour is final yet")
    sides = seen.sides()
    per_day = seen.per_day(math.fsum(decided.values()))
    return replace(
        made,
        state="ended" if over else "running",
        digest=total.digest(),
        rows=sum(_rows(some) for some in arms.values()),
        withheld=withheld,
        verdicts=[side.withheld(withheld) if withheld else side.told() for side in sides],
        table=[row for side in sides for row in side.rows()],
        slices=[] if final is None else _slices(experiment, final, sides, notes),
        arms=_arms(experiment, of_arms, arms, users),
        ratio=None if ratio is None else _ratio(experiment, ratio),
        series=series.points(experiment, phase, "hour", hours, before),
        days=series.points(experiment, phase, "day", days, before),
        drift=drift_of(experiment, of_arms),
        users=math.fsum(users.values()) if users else None,
        per_day=per_day,
        final_to=counted - 1 if samples else None,
        notes=notes,
        power=[found for side in sides if (found := side.power()) is not None],
        dropped=left_out(of_arms),
    )


def _over(experiment: Experiment, now: float, users: dict[str, float]) -> bool:
    """Whether the planned end, or as many users as were planned, is reached."""
    ended = experiment.end is not None and now >= experiment.end * HOUR
    return ended or (experiment.users is not None and math.fsum(users.values()) >= experiment.users)


def _early(experiment: Experiment, total: Any, shared_at: Sequence[float]) -> str:
    """Why users are not those of the planned shares yet: these were changed more often than there are phases after one."""
    if experiment.phase is None or not shared_at or len(phases(total, experiment)) > len(shared_at):
        return ""
    return "planned shares were changed, and there are no rows yet of the phase that has them"


def _span(hours: Mapping[int, ExperimentWindow], days: Mapping[int, ExperimentWindow]) -> tuple[int, int] | None:
    """The first and the last hour of folds, where there is no ledger."""
    if not hours and not days:
        return None
    last = max(hours) if hours else max(days) + DAY - 1
    return min([*hours, *days]), last


def _rows(samples: Sequence[Any]) -> int:
    """Rows of an arm: of the metric that has most."""
    return max((int(s.rows.sum()) for s in samples), default=0)


def _notes(experiment: Experiment, arms: Samples) -> list[str]:
    unknown = [arm for arm in arms if arm not in experiment.arms]
    found = [f"{arm} is no arm of the definition: {_rows(arms[arm]):,} rows are left out" for arm in unknown]
    return found + [f"{arm} has no rows" for arm in experiment.arms if arm not in arms]


def _users(experiment: Experiment, arms: Any, notes: list[str]) -> tuple[dict[str, float], SampleRatio | None]:
    """Users by arm, and whether they fell as planned; what cannot be counted becomes a note."""
    if not experiment.counts:
        return {}, None
    try:
        counter = only(arms, experiment.counts)
        names = {key: str(key) for key in counter if str(key) in experiment.arms}
        shares = {key: experiment.arms[name] for key, name in names.items()}
        absent = {arm: share for arm, share in experiment.arms.items() if arm not in names.values()}
        found = sample_ratio_mismatch(counter.select(names), shares | absent)
    except StreamMetricsError as error:  # the page says it
        notes.append(f"users: {error}")
        return {}, None
    return {str(arm): count for arm, count in found.users.items()}, found


def _ratio(experiment: Experiment, found: SampleRatio) -> RatioCheck:
    users = {str(arm): count for arm, count in found.users.items()}
    return RatioCheck(min(found.e_value, LARGEST), found.alarm, found.sentence, users, dict(experiment.arms))


def _arms(experiment: Experiment, of_arms: Any, arms: Samples, users: dict[str, float]) -> list[Arm]:
    total = math.fsum(users.values())
    try:
        known = positives(of_arms, experiment.primary)
    except StreamMetricsError:  # a metric without positives
        known = {}
    found = []
    for arm, planned in experiment.arms.items():
        mine = next((s for s in arms.get(arm, ()) if s.name == experiment.primary), None)
        value = None if mine is None or not math.isfinite(mine.values[0]) else float(mine.values[0])
        count = users.get(arm)
        share = count / total if count is not None and total else None
        found.append(Arm(arm, planned, count, share, _rows(arms.get(arm, ())), known.get(arm), value))
    return found


def _slices(experiment: Experiment, final: Any, sides: Sequence[TreatmentSide], notes: list[str]) -> list[Row]:
    """Every metric by the keys of each slice column; words hold for all rows of a treatment together."""
    read: dict[str, Samples] = {}
    for column in experiment.slices:
        try:
            read[column] = by_slice(final, experiment, column)
        except StreamMetricsError as error:  # the page says it
            notes.append(f"slices by {column}: {error}")
    found = []
    for side in sides:
        rows = [row for column, arms in read.items() for row in side.slices(column, arms)]
        found += adjusted(rows, side.share)
    return found


def thinned(looks: Sequence[ShownLook]) -> list[ShownLook]:
    """Return so many looks of each treatment at most, the last among them."""
    of: dict[str, list[ShownLook]] = {}
    for look in looks:
        of.setdefault(look.treatment, []).append(look)
    return [look for some in of.values() for look in some[:: -max(1, math.ceil(len(some) / LOOKS))][::-1]]


def looks_of(found: Evaluation) -> list[ShownLook]:
    """Return what an evaluation shows of the primary metric, and of who is in which arm, for the log of looks."""
    rows = {row.treatment: row for row in found.table if row.role == "primary"}
    shares = {arm.arm: arm.share for arm in found.arms if arm.share is not None} or None
    made = []
    for told in found.verdicts:
        row = rows.get(told.treatment)
        figures = (None, None, None) if row is None else (row.change, row.low, row.high)
        made.append(ShownLook(found.at, told.treatment, told.decision, *figures, found.users, shares))
    return made
