"""Evaluate an experiment: compute its verdicts, figures and checks from its definition, its data and the time."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, NamedTuple

from ...collect.metric_like import MetricLike
from ...errors import InvalidInputError, StreamMetricsError
from ...inference.drift import population_stability_index
from ...inference.sample_ratio import SampleRatio, sample_ratio_mismatch
from ...inference.verdict import Progress
from ..calendar_days import add_days, count_days, find_next_day
from ..part_keys import HOUR, format_hour
from .arm_samples import (
    ArmSamples,
    collect_arm_samples,
    collect_slice_samples,
    count_dropped_rows,
    count_positives,
    find_last_phase,
    find_phases,
    roll_up,
    select_metric,
    select_phase,
)
from .evaluation import ArmRow, Evaluation, MetricRow, RatioCheck, ScoreDrift, ShownLook, SourceStatus
from .experiment import Experiment, has_share_change
from .late_changes import DefinitionHistory
from .late_metrics import collect_late_metrics
from .part_index import PartIndex, SourceIndex
from .treatment_comparison import TreatmentComparison, correct_slice_words, finite_or_none
from .window_series import WindowSeries
from .windows import ExperimentWindow

__all__ = ["build_looks", "evaluate"]


COVERED_SHARE = 0.9
"""The share of hours that must have parts for a day to be complete."""


class Coverage(NamedTuple):
    """The number of complete days of data, and a phrase about missing parts to append to a sentence."""

    days: float
    gaps: str


def compute_coverage(experiment: Experiment, index: PartIndex, first: int, end: int) -> Coverage:
    """Return the number of complete days from the hour `first` up to, but not including, the hour `end`.

    Each day begins at the same time of day as the hour `first`. In a complete day, at least 90 % of the hours have a
    part from each source that the definition names; if it names none, any part is enough. If the last day is not over,
    it counts as a fraction of a day.
    """
    ends = {name: experiment.closed.get(name, end) for name in experiment.sources}
    missing = index.find_missing(ends, first, end)
    days, number, begin = 0.0, 0, first
    while begin < end:
        number += 1
        next_day = add_days(first, number, experiment.timezone)
        hours = range(begin, min(next_day, end))
        if hours and sum(hour not in missing for hour in hours) >= COVERED_SHARE * len(hours):
            days += len(hours) / (next_day - begin)
        begin = next_day
    # Do not mention gaps of less than a tenth of a day. Often, only the parts of the last hours are missing, and a
    # source is about to post them.
    if count_days(first, end, experiment.timezone) - days < 1.0 - COVERED_SHARE:
        return Coverage(days, "")
    if not ends:
        return Coverage(days, f"; {len(missing):,} hours have no part, and a day counts if 90 % of its hours have one")
    counts = {name: len(index.find_missing({name: own_end}, first, end)) for name, own_end in ends.items()}
    lacking = ", ".join(f"{name} lacks {n:,} hour{'s' if n > 1 else ''}" for name, n in counts.items() if n)
    return Coverage(
        days,
        f"; {lacking}, and a day counts if 90 % of its hours have a part of each source; an owner can close a source "
        f"that no longer posts, on this page or with closed in the definition",
    )


@dataclass(frozen=True)
class EvaluationInput:
    """The data of an experiment from which the verdicts on its treatments are computed.

    An hour is final once its outcomes, such as late conversions, are complete. Verdicts use only final hours.

    Parameters
    ----------
    experiment : Experiment
        The definition of the experiment.
    now : float
        The time, in seconds since 1970.
    arms : ArmSamples
        The samples (the values of each metric) of each arm, over all rows.
    final_arms : ArmSamples
        The samples of each arm, over the rows of final hours.
    ratio : SampleRatio or None
        The sample ratio check over all rows.
    users : dict
        The number of users in final hours, by arm; empty if no metric counts users.
    counted_to : int
        The hour after the last final hour, in hours since 1970.
    has_ended : bool
        Whether the planned end is at least `mature_after` hours ago, or the final hours contain the planned number of
        users.
    first_hour : int
        The hour from which the duration is counted.
    coverage : Coverage
        The complete days from `first_hour` to `counted_to`.
    tuned_users : float or None
        The total number of users, over all arms, for which the always-valid intervals are tuned.
    """

    experiment: Experiment
    now: float
    arms: ArmSamples
    final_arms: ArmSamples
    ratio: SampleRatio | None
    users: dict[str, float]
    counted_to: int
    has_ended: bool
    first_hour: int
    coverage: Coverage
    tuned_users: float | None

    @property
    def days(self) -> float:
        """The time from `first_hour` to the end of the last final hour, in days."""
        return max(0.0, count_days(self.first_hour, self.counted_to, self.experiment.timezone))

    def find_withhold_reason(self, history: DefinitionHistory) -> str:
        """Return the reason for withholding all verdicts, or an empty string if there is none.

        `history` contains the changes to the definition.
        """
        experiment = self.experiment
        if has_share_change(history.changes) and experiment.phase is None:
            return (
                "the planned shares were changed, but the definition names no phase column; set phase in the "
                "definition, or restart with new users"
            )
        for change in history.late:
            if not change.reason:
                return (
                    f"{change.sentence}, after the first data had arrived. The result could then be chosen after the "
                    f"fact. An owner can accept the change: set accepted_changes in the definition to "
                    f"{{{change.version} = 'why'}}"
                )
            if change.needs_new_users and experiment.phase is None:
                return (
                    f"{change.sentence}, after the first data had arrived. Only users who were first exposed after the "
                    f"change can decide, but the definition names no phase column; set phase in the definition, or "
                    f"restart with new users"
                )
        if self.ratio is not None and self.ratio.alarm:
            return self.ratio.sentence
        if experiment.users is None:
            return "always-valid intervals need the planned number of users; set users in the definition"
        if not self.users:
            return "always-valid intervals need a metric that counts users; set counts in the definition to its name"
        if self.coverage.days < experiment.min_days:
            return (
                f"only {self.coverage.days:.1f} days are counted so far, and the definition requires at least "
                f"{experiment.min_days:g}{self.coverage.gaps}"
            )
        return ""

    def compute_progress(self, treatment: str) -> Progress | None:
        """Return the actual and the planned number of users in a treatment and the control together.

        Return None if one of these numbers is unknown.
        """
        experiment = self.experiment
        arms = treatment, experiment.control
        if experiment.users is None or any(arm not in self.users for arm in arms):
            return None
        users = math.fsum(self.users[arm] for arm in arms)
        share = math.fsum(experiment.arms[arm] for arm in arms)
        tuned_users = None if self.tuned_users is None else self.tuned_users * share
        per_day = self.compute_users_per_day(users)
        return Progress(users, experiment.users * share, per_day, True, self.has_ended, tuned_users=tuned_users)

    def compute_users_per_day(self, users: float) -> float | None:
        """Return the average number of new users per day since `first_hour`; None if no hour is final yet."""
        return users / self.days if self.days else None

    def build_comparisons(self) -> list[TreatmentComparison]:
        """Return the comparison of each treatment with the control."""
        return [
            TreatmentComparison(self.experiment, arm, self.final_arms, self.compute_progress(arm), self.ratio)
            for arm in self.experiment.treatments
        ]


DEFAULT_DELAY = 1.0
"""The expected delay, in hours, of a source that the definition does not name."""
SILENT_SECONDS = 3 * HOUR
MAX_MISSING_HOURS = 24


def evaluate_sources(experiment: Experiment, index: PartIndex, now: float) -> list[SourceStatus]:
    """Return the status of every source that the definition names or that has posted, sorted by name.

    A source that the definition names must post a part for every hour. The part may arrive after the end of the hour,
    within the delay allowed for the source. Otherwise, the source is "late", and three hours later, "silent".
    """
    # Sources that the definition does not name are also listed, but they are not expected to post.
    names = sorted({*experiment.sources, *index.sources})
    return [_evaluate_source(experiment, name, index.sources.get(name, SourceIndex()), now) for name in names]


def _evaluate_source(experiment: Experiment, name: str, index: SourceIndex, now: float) -> SourceStatus:
    delay = experiment.sources.get(name, DEFAULT_DELAY)
    span = index.hours.span
    first, is_listed = experiment.start, name in experiment.sources
    # The parts for all hours before the hour `due` should have arrived by now.
    due = math.floor(now / HOUR - delay) if is_listed else first
    due = min([due, *(end for end in (experiment.end, experiment.closed.get(name)) if end is not None)])
    awaited = first if span is None else max(span[1] + 1, first)
    behind = max(0.0, now - (awaited + 1 + delay) * HOUR) if awaited < due else 0.0
    return SourceStatus(
        name,
        None if span is None else span[1],
        behind,
        index.parts,
        index.count_late(delay),
        [format_hour(hour) for hour in islice(index.hours.find_missing(first, due), MAX_MISSING_HOURS)][::-1],
        index.conflicts,
        index.rows,
        dict(index.dropped),
        _name_state(is_listed, name in experiment.closed, behind),
    )


def _name_state(is_listed: bool, is_closed: bool, behind: float) -> str:
    if not is_listed:
        return "unlisted"
    if behind:
        return "late" if behind < SILENT_SECONDS else "silent"
    return "closed" if is_closed else "fresh"


def compute_drift(experiment: Experiment, arms: Any) -> list[ScoreDrift]:
    """Return how much the scores of each treatment differ from the scores of the control.

    The measure is the population stability index. If several metrics use the same scores, the result contains a single
    entry for them, under the name of the first metric.
    """
    keys = {str(key): key for key in arms}
    if experiment.control not in keys:
        return []
    drifts: dict[Any, ScoreDrift] = {}
    for metric in experiment.metrics:
        try:
            scores = select_metric(arms, metric)
            reference = scores[keys[experiment.control]]
            for arm in experiment.treatments:
                if arm in keys:
                    one = population_stability_index(scores[keys[arm]], reference)
                    identity = arm, one.shares, one.reference, one.edges
                    drifts.setdefault(identity, ScoreDrift(metric, arm, finite_or_none(one.value), one.word))
        # This error means that the metric has no scores to compare.
        except InvalidInputError:
            continue
    return list(drifts.values())


MAX_LOOKS = 240
"""The largest number of earlier looks that an evaluation contains for each treatment."""
LARGEST_FLOAT = sys.float_info.max


def evaluate(
    experiment: Experiment,
    total: MetricLike | None,
    *,
    version: int,
    now: float,
    hours: Mapping[int, ExperimentWindow],
    days: Mapping[int, ExperimentWindow],
    index: PartIndex,
    looks: Sequence[ShownLook] = (),
    history: DefinitionHistory = DefinitionHistory(),  # noqa: B008 - a tuple of constants
    series: WindowSeries | None = None,
) -> Evaluation:
    """Return the evaluation of an experiment: verdicts, figures, windows, and checks of the data.

    Parameters
    ----------
    experiment : Experiment
        The definition.
    total : MetricLike or None
        The merged parts, sliced by arm, or by arm and other columns; None before the first part.
    version : int
        The version of the definition.
    now : float
        The time, in seconds since 1970.
    hours, days : mapping of int to ExperimentWindow
        The merged parts of each recent hour and of each day. A key is the first hour of its window, in hours
        since 1970.
    index : PartIndex
        The index of the posted parts: which hours of which sources have parts.
    looks : sequence of ShownLook
        The earlier looks (verdicts and figures as people saw them), oldest first.
    history : DefinitionHistory
        The changes to the definition.
    series : WindowSeries, optional
        A cache of windows, which the next evaluation can reuse.

    Returns
    -------
    Evaluation
        The evaluation. If a figure is missing, the evaluation contains the reason. Invalid posted data does not raise
        an error.

    Notes
    -----
    Verdicts use always-valid intervals, which keep their coverage however often people look. The intervals are tuned
    for the planned number of users in the two compared arms, with an error rate of 5 % over all treatments. If the
    definition sets `mature_after`, an hour is final only `mature_after` hours after its end, when its outcomes are
    complete. The verdicts, the metrics and the slices cover final hours. The users of each arm, the check of the sample
    ratio and the drift cover all rows. The duration runs to the end of the last final hour. If the definition has
    phases, all figures cover only the last phase, and the duration is counted from the start of that phase.
    """
    series = WindowSeries() if series is None else series
    span = index.span or _find_span(hours, days, experiment.timezone)
    evaluation = Evaluation(
        experiment.id,
        experiment.title,
        version,
        now,
        "no data",
        parts=index.parts,
        hours=span,
        day=max(0.0, count_days(experiment.start, now / HOUR, experiment.timezone)),
        timezone=experiment.timezone,
        changes=list(history.changes),
        late_changes=[change.text for change in history.late],
        looks=thin_looks(looks),
        sources=evaluate_sources(experiment, index, now),
        planned=experiment.users,
    )
    if total is None or span is None:
        return _withhold_all(evaluation, experiment, "no rows have been counted yet")
    try:
        return _evaluate_total(evaluation, experiment, total, hours, days, history, series, index)
    # If the data cannot be evaluated, all verdicts are withheld, and the page shows the message as the reason.
    except StreamMetricsError as error:
        return _withhold_all(replace(evaluation, digest=total.digest(), state="running"), experiment, str(error))


def _withhold_all(evaluation: Evaluation, experiment: Experiment, reason: str) -> Evaluation:
    """Return an evaluation without figures, with all verdicts withheld."""
    verdicts = [TreatmentComparison(experiment, arm, {}, None).withhold(reason) for arm in experiment.treatments]
    return replace(evaluation, withheld=reason, verdicts=verdicts)


def _evaluate_total(
    evaluation: Evaluation,
    experiment: Experiment,
    total: Any,
    hours: Mapping[int, ExperimentWindow],
    days: Mapping[int, ExperimentWindow],
    history: DefinitionHistory,
    series: WindowSeries,
    index: PartIndex,
) -> Evaluation:
    assert evaluation.hours is not None
    phase = find_last_phase(total, experiment)
    arm_slices = roll_up(select_phase(total, experiment, phase), experiment)
    arms = collect_arm_samples(arm_slices, experiment)
    if not any(_count_rows(some) for some in arms.values()):
        return _withhold_all(evaluation, experiment, "no rows have been counted yet")
    # Verdicts use only hours with complete outcomes. If the outcomes of all hours are complete, use the total.
    final_before = min(evaluation.hours[1] + 1, math.floor(evaluation.at / HOUR - experiment.mature_after))
    all_final = final_before > evaluation.hours[1] or not experiment.mature_after
    final_slices = total if all_final else series.merge_final(hours, days, final_before, experiment.timezone)
    if final_slices is not None:
        final_slices = select_phase(final_slices, experiment, phase)
    counted_to = evaluation.hours[1] + 1 if all_final else final_before
    notes = _describe_unexpected_arms(experiment, arms)
    users, ratio = _count_users(experiment, arm_slices, notes)
    # A new phase begins when the planned shares change. As long as the new phase has no rows, the counted users were
    # split by the old shares. Compared with the new shares, they would look like a sample ratio mismatch.
    missing_phase = _explain_missing_phase(experiment, total, history.phases_at)
    ratio = None if missing_phase else ratio
    final_users = (
        users
        if all_final or final_slices is None
        else _count_users(experiment, roll_up(final_slices, experiment), [])[0]
    )
    has_ended = _has_ended(experiment, evaluation.at, users)
    final_ended = _has_ended(experiment, evaluation.at - experiment.mature_after * HOUR, final_users)
    samples = {} if final_slices is None else arms if all_final else collect_arm_samples(final_slices, experiment)
    # If there are phases, the samples cover only the last one, so the duration is counted from its start.
    phase_starts = [math.floor(at / HOUR) for at in history.phases_at] if experiment.phase is not None else []
    first_hour = max([experiment.start, *phase_starts])
    coverage = compute_coverage(experiment, index, first_hour, counted_to)
    day_points = series.build_points(experiment, phase, "day", days, final_before)
    late = collect_late_metrics(experiment, phase, arms, day_points, series, hours, days, counted_to)
    data = EvaluationInput(
        experiment, evaluation.at, arms, samples, ratio, final_users, counted_to, final_ended, first_hour, coverage,
        history.tuned_users,
    )  # fmt: skip
    slices = {} if final_slices is None else _collect_slices(experiment, final_slices, notes)
    withheld = (
        missing_phase or data.find_withhold_reason(history) or ("" if samples else "no hour has complete outcomes yet")
    )
    comparisons = replace(data, final_arms=late.add_to(samples)).build_comparisons()
    # Slices exist only for metrics that all parts contain. The comparisons of slices therefore leave out metrics that
    # were added later.
    comparisons_of_slices = data.build_comparisons()
    per_day = data.compute_users_per_day(math.fsum(final_users.values()))
    return replace(
        evaluation,
        state="ended" if has_ended else "running",
        digest=total.digest(),
        rows=sum(_count_rows(some) for some in arms.values()),
        withheld=withheld,
        verdicts=[
            comparison.withhold(withheld) if withheld else comparison.build_verdict() for comparison in comparisons
        ],
        table=[late.describe(row) for comparison in comparisons for row in comparison.build_rows()],
        slices=_build_slice_rows(slices, comparisons_of_slices),
        warnings={c.treatment: c.find_warnings(slices) for c in comparisons_of_slices},
        arms=_build_arm_rows(experiment, arm_slices, arms, users),
        ratio=None if ratio is None else _build_ratio_check(experiment, ratio),
        series=series.build_points(experiment, phase, "hour", hours, final_before),
        days=day_points,
        drift=compute_drift(experiment, arm_slices),
        users=math.fsum(users.values()) if users else None,
        per_day=per_day,
        final_to=counted_to - 1 if samples else None,
        notes=notes,
        power=[power for comparison in comparisons if (power := comparison.compute_power()) is not None],
        dropped=count_dropped_rows(arm_slices),
    )


def _has_ended(experiment: Experiment, now: float, users: dict[str, float]) -> bool:
    """Return whether the planned end or the planned number of users has been reached."""
    ended = experiment.end is not None and now >= experiment.end * HOUR
    return ended or (experiment.users is not None and math.fsum(users.values()) >= experiment.users)


def _explain_missing_phase(experiment: Experiment, total: Any, phases_at: Sequence[float]) -> str:
    """Return a reason to withhold verdicts if the current phase has no rows yet; otherwise ""."""
    if experiment.phase is None or not phases_at or len(find_phases(total, experiment)) > len(phases_at):
        return ""
    return "the planned shares or the metrics that decide were changed, and the phase after the change has no rows yet"


def _find_span(
    hours: Mapping[int, ExperimentWindow], days: Mapping[int, ExperimentWindow], time_zone: str
) -> tuple[int, int] | None:
    """Return the first and the last hour of the windows, or None if there are no windows.

    The caller uses this range if the part index is empty and therefore has no time range.
    """
    if not hours and not days:
        return None
    last = max(hours) if hours else find_next_day(max(days), time_zone) - 1
    return min([*hours, *days]), last


def _count_rows(samples: Sequence[Any]) -> int:
    """Return the number of rows in an arm, given the samples of all its metrics.

    Metrics may drop or ignore rows, so the result is the largest number that any metric counted.
    """
    return max((int(s.rows.sum()) for s in samples), default=0)


def _describe_unexpected_arms(experiment: Experiment, arms: ArmSamples) -> list[str]:
    unknown = [arm for arm in arms if arm not in experiment.arms]
    notes = [
        f"{arm} is not an arm of the definition; its {_count_rows(arms[arm]):,} rows are left out" for arm in unknown
    ]
    return notes + [f"{arm} has no rows" for arm in experiment.arms if arm not in arms]


def _count_users(experiment: Experiment, arms: Any, notes: list[str]) -> tuple[dict[str, float], SampleRatio | None]:
    """Return the number of users by arm, and a check of whether the arms have the planned shares of users.

    If users cannot be counted, the error is added to `notes`, and the result is empty.
    """
    if not experiment.counts:
        return {}, None
    try:
        counter = select_metric(arms, experiment.counts)
        names = {key: str(key) for key in counter if str(key) in experiment.arms}
        shares = {key: experiment.arms[name] for key, name in names.items()}
        absent = {arm: share for arm, share in experiment.arms.items() if arm not in names.values()}
        ratio = sample_ratio_mismatch(counter.select(names), shares | absent)
    # If users cannot be counted, the page shows the message as a note.
    except StreamMetricsError as error:
        notes.append(f"users: {error}")
        return {}, None
    return {str(arm): count for arm, count in ratio.users.items()}, ratio


def _build_ratio_check(experiment: Experiment, ratio: SampleRatio) -> RatioCheck:
    users = {str(arm): count for arm, count in ratio.users.items()}
    return RatioCheck(min(ratio.e_value, LARGEST_FLOAT), ratio.alarm, ratio.sentence, users, dict(experiment.arms))


def _build_arm_rows(experiment: Experiment, of_arms: Any, arms: ArmSamples, users: dict[str, float]) -> list[ArmRow]:
    total = math.fsum(users.values())
    try:
        positives = count_positives(of_arms, experiment.primary)
    # This error means that the primary metric does not count positive labels.
    except StreamMetricsError:
        positives = {}
    result = []
    for arm, planned in experiment.arms.items():
        sample = next((s for s in arms.get(arm, ()) if s.name == experiment.primary), None)
        value = None if sample is None or not math.isfinite(sample.values[0]) else float(sample.values[0])
        count = users.get(arm)
        share = count / total if count is not None and total else None
        result.append(ArmRow(arm, planned, count, share, _count_rows(arms.get(arm, ())), positives.get(arm), value))
    return result


def _collect_slices(experiment: Experiment, final: Any, notes: list[str]) -> dict[str, ArmSamples]:
    """Return, for each slice column, the samples of each arm.

    `final` contains the metrics of the final hours. If a column cannot be read, the error is added to `notes`.
    """
    samples: dict[str, ArmSamples] = {}
    for column in experiment.slices:
        try:
            samples[column] = collect_slice_samples(final, experiment, column)
        # If the slices of this column cannot be read, the page shows the message as a note.
        except StreamMetricsError as error:
            notes.append(f"slices by {column}: {error}")
    return samples


def _build_slice_rows(slices: Mapping[str, ArmSamples], comparisons: Sequence[TreatmentComparison]) -> list[MetricRow]:
    """Return a row for each treatment, metric and slice.

    Conclusions such as "better" are corrected for the number of slices.
    """
    rows_of_slices = []
    for comparison in comparisons:
        rows = [row for column, arms in slices.items() for row in comparison.build_slice_rows(column, arms)]
        rows_of_slices += correct_slice_words(rows, comparison.confidence)
    return rows_of_slices


def thin_looks(looks: Sequence[ShownLook]) -> list[ShownLook]:
    """Return at most MAX_LOOKS evenly spaced looks (shown verdicts) for each treatment, including the last one."""
    by_treatment: dict[str, list[ShownLook]] = {}
    for look in looks:
        by_treatment.setdefault(look.treatment, []).append(look)
    # Step backwards from the last look, so that it is always included.
    return [look for some in by_treatment.values() for look in some[:: -max(1, math.ceil(len(some) / MAX_LOOKS))][::-1]]


def build_looks(evaluation: Evaluation) -> list[ShownLook]:
    """Return the looks to save in the store, one for each treatment.

    A look contains the decision, the difference in the primary metric, the number of users, and each arm's share of
    users.
    """
    rows = {row.treatment: row for row in evaluation.table if row.role == "primary"}
    shares = {arm.arm: arm.share for arm in evaluation.arms if arm.share is not None} or None
    looks = []
    for verdict in evaluation.verdicts:
        row = rows.get(verdict.treatment)
        figures = (None, None, None) if row is None else (row.change, row.low, row.high)
        looks.append(ShownLook(evaluation.at, verdict.treatment, verdict.decision, *figures, evaluation.users, shares))
    return looks
