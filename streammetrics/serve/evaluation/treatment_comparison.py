"""Compare a treatment with the control and compute its verdict, scorecard, slices and power.

The verdict uses always-valid intervals, which hold however often people look at the results.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

from ...errors import InvalidInputError, StreamMetricsError
from ...inference.differences import compute_differences
from ...inference.multiple import benjamini_hochberg
from ...inference.pairs import pair_samples
from ...inference.power import days_to_go, smallest_effect, users_needed
from ...inference.questions import Question, build_question
from ...inference.sample_ratio import SampleRatio
from ...inference.scorecard import Scorecard, ScorecardOptions
from ...inference.verdict import TOO_EARLY, Progress
from ...reading.replicates import Sample
from .arm_samples import ArmSamples
from .evaluation import MetricRow, PowerEstimate, TreatmentVerdict, is_too_wide
from .experiment import Experiment

__all__ = ["ALPHA", "TreatmentComparison", "confidence_of_one", "correct_slice_words", "finite_or_none"]

ALPHA = 0.05
"""The error rate of all treatments together. Each treatment gets an equal share of it."""
SINGLE_LOOK = Progress()
RELATIVE = 0.01
LOOKS = 100
DECIDING = ("primary", "guardrail")
Figures = Mapping[str, Any]
NOT_IN_ALL_PARTS = (
    "not every part has this metric; a metric that is added during an experiment is counted from the first day on which "
    "all parts have it, and cannot be the primary metric"
)
UNCORRECTED_WORDS = {"better": "unclear", "worse": "unclear", "breached": "undecided"}


def finite_or_none(value: float | None) -> float | None:
    """Return `value` as a float, or None if it is missing or not finite, because JSON has no NaN or infinity."""
    return None if value is None or not math.isfinite(value) else float(value)


def confidence_of_one(experiment: Experiment) -> float:
    """Return the confidence level for a single treatment; for example, 0.975 if there are two treatments.

    The treatments share the error rate ALPHA equally (Bonferroni).
    """
    return 1.0 - ALPHA / len(experiment.treatments)


class MissingMetric(NamedTuple):
    """A metric that cannot be compared, and the reason."""

    metric: str
    reason: str


@dataclass(frozen=True)
class TreatmentComparison:
    """The comparison of one treatment with the control: its verdict, its table rows and its power.

    Parameters
    ----------
    experiment : Experiment
        The definition of the experiment.
    treatment : str
        The name of the treatment arm.
    arms : dict
        The samples (metric values and their replicates) of each arm, computed over all of its rows.
    progress : Progress or None
        The current and the planned number of users in the two arms combined. If it is None, only intervals for a single
        look can be computed.
    ratio : SampleRatio or None
        The result of the sample ratio check, if there is one.
    """

    experiment: Experiment
    treatment: str
    arms: ArmSamples
    progress: Progress | None
    ratio: SampleRatio | None = None

    @property
    def confidence(self) -> float:
        """The confidence level for this treatment, corrected for the number of treatments."""
        return confidence_of_one(self.experiment)

    def build_verdict(self) -> TreatmentVerdict:
        """Return the verdict on the treatment. It is withheld if a deciding metric cannot be compared.

        The deciding metrics are the primary metric and the guardrails.
        """
        _, missing = self.questions
        roles = self.experiment.metrics
        if missing_deciding := [m for m in missing if roles[m.metric] in DECIDING]:
            return self.withhold(f"{missing_deciding[0].metric}: {missing_deciding[0].reason}")
        assert self.progress is not None
        try:
            verdict = self._scorecard.verdicts[self.treatment]
        # If the verdict cannot be computed, it is withheld, and the error message is the reason.
        except StreamMetricsError as error:
            return self.withhold(str(error))
        primary = verdict.primary
        is_early = primary.reason is None and is_too_wide(primary.interval.low, primary.interval.high)
        if verdict.decision == "keep running" and is_early:
            sentence = f"Keep running {self.treatment}: it is too early to say how {self.experiment.primary} differs."
            return TreatmentVerdict(self.treatment, verdict.decision, sentence)
        return TreatmentVerdict(
            self.treatment,
            verdict.decision,
            verdict.sentence,
            finite_or_none(verdict.more_users),
            finite_or_none(verdict.more_days),
        )

    def withhold(self, reason: str) -> TreatmentVerdict:
        """Return a verdict whose decision is "withheld", with the reason."""
        return TreatmentVerdict(self.treatment, "withheld", f"No verdict on {self.treatment}: {reason}.")

    def build_rows(self) -> list[MetricRow]:
        """Return one table row for each metric, computed over all data."""
        return [row for row, _ in self._build_table((), self.arms, {})]

    def build_slice_rows(self, column: str, arms: ArmSamples) -> list[tuple[MetricRow, float]]:
        """Return a table row and a p-value for each metric in each slice of `column`, for example in each country.

        `arms` contains the samples of each arm; a sample contains one metric value for each slice.
        """
        all_rows = Counter(dict.fromkeys(self.experiment.metrics, 0))
        for arm in self._compared_arms():
            all_rows.update({s.name: int(s.rows.sum()) for s in self._samples_of(arm)})
        return self._build_table((column,), arms, all_rows)

    def find_warnings(self, slices: Mapping[str, ArmSamples]) -> list[str]:
        """Return a sentence for each metric that shows Simpson's paradox across the slices of a column.

        `slices` contains the samples of each arm by slice column; a sample has one metric value for each slice. The
        result is empty if there are no always-valid intervals.
        """
        questions, _ = self.questions
        if self.progress is None or not questions:
            return []
        try:
            sides = {column: {a: arms.get(a, []) for a in self._compared_arms()} for column, arms in slices.items()}
            notes = [self._scorecard.build_notes((column,), arms)[self.treatment] for column, arms in sides.items()]
        # If the scorecard cannot be computed, there are no warnings. The table shows the error in every row.
        except StreamMetricsError:
            return []
        return [note.sentence for some in notes for note in some if note.is_warning]

    def compute_power(self) -> PowerEstimate | None:
        """Return an estimate of the number of users needed to detect a difference in the primary metric.

        Return None if the number of users or the standard error is unknown, if the metric cannot be compared, or if
        values closer to 1 are better.
        """
        questions, _ = self.questions
        progress, name = self.progress, self.experiment.primary
        if progress is None or not progress.users or name not in [q.name for q in questions if q.better != "one"]:
            return None
        try:
            ((pair,), _) = pair_samples(
                *([s for s in self._samples_of(arm) if s.name == name] for arm in self._compared_arms())
            )
            change: Any = next(compute_differences(pair).relative.split_cells())
            planned = [self.experiment.arms[arm] for arm in self._compared_arms()]
            shares = planned[0] / sum(planned), planned[1] / sum(planned)
            how: dict[str, Any] = {"confidence": self.confidence, "shares": shares, "looks": LOOKS}
            needed = users_needed(change, progress.users, relative=RELATIVE, **how).users
            end = None if progress.planned is None else smallest_effect(change, progress.users, progress.planned, **how)
        # This error means that there is too little data for a standard error.
        except StreamMetricsError:
            return None
        days = None if progress.per_day is None else days_to_go(progress.users, needed, progress.per_day)
        return PowerEstimate(
            self.treatment,
            RELATIVE,
            needed,
            finite_or_none(days),
            None if end is None else finite_or_none(end.relative),
        )

    # -- questions ----------------------------------------------------------------------------------------------------

    @cached_property
    def questions(self) -> tuple[tuple[Question, ...], list[MissingMetric]]:
        """The metrics that can be compared, each as a `Question`, and the metrics that cannot be compared."""
        metrics_of_arms = [{s.name: s.metric for s in self._samples_of(arm) if s.keys} for arm in self._compared_arms()]
        questions, missing = [], []
        for name, role in self.experiment.metrics.items():
            lacking = [
                arm for arm, metrics in zip(self._compared_arms(), metrics_of_arms, strict=True) if name not in metrics
            ]
            if len(lacking) == 2 and all(metrics_of_arms):
                missing.append(MissingMetric(name, NOT_IN_ALL_PARTS))
                continue
            if lacking:
                missing.append(
                    MissingMetric(name, f"there are no rows with this metric in {' and '.join(reversed(lacking))}")
                )
                continue
            try:
                margin = self.experiment.guardrails.get(name)
                questions.append(build_question(name, role, metrics_of_arms[0], self.experiment.better, margin))
            # If the metric cannot be compared, its row in the table shows the error message.
            except InvalidInputError as error:
                missing.append(MissingMetric(name, str(error)))
        return tuple(questions), missing

    def _compared_arms(self) -> tuple[str, str]:
        return self.treatment, self.experiment.control

    def _samples_of(self, arm: str) -> Sequence[Sample]:
        return self.arms.get(arm, ())

    @cached_property
    def _scorecard(self) -> Scorecard:
        """The scorecard with always-valid intervals, or with intervals for a single look if the progress is unknown."""
        questions, _ = self.questions
        totals = {arm: [s for s in self._samples_of(arm) if s.keys] for arm in self._compared_arms()}
        # The multiplicity correction counts all guardrails in the definition, even those without data. Otherwise, the
        # intervals would change when the first data for a guardrail arrives.
        options = ScorecardOptions(questions, self.confidence, True, False, len(self.experiment.guardrails))
        progress = {self.treatment: self.progress or SINGLE_LOOK}
        return Scorecard({}, self.experiment.control, options, progress, self.ratio, totals)

    # -- rows ---------------------------------------------------------------------------------------------------------

    def _build_table(
        self, by: tuple[str, ...], arms: ArmSamples, all_rows: Mapping[str, int]
    ) -> list[tuple[MetricRow, float]]:
        _, missing = self.questions
        samples = {arm: arms.get(arm, []) for arm in self._compared_arms()}
        result: list[tuple[MetricRow, float]] = []
        try:
            # Compute the differences only once, because this takes most of the time. Single-look and always-valid
            # intervals use the same differences.
            card = self._scorecard
            changes = card.compute_changes(samples) if by else card.changes
            all_looks = list(card.build_table(by, changes))
            single_look = list(replace(card, progress={self.treatment: SINGLE_LOOK}).build_table(by, changes))
            result = [
                (self._build_row(by, a, b, all_rows), b["p_word"]) for a, b in zip(single_look, all_looks, strict=True)
            ]
        # If the scorecard cannot be computed, every row of the table shows the error message.
        except StreamMetricsError as error:
            missing = [MissingMetric(name, str(error)) for name in self.experiment.metrics]
        missing_rows = (self._build_missing_rows(metric, by, samples, all_rows) for metric in missing)
        return [*result, *((row, math.nan) for rows in missing_rows for row in rows)]

    def _build_row(
        self, by: tuple[str, ...], single_look: Figures, all_looks: Figures, all_rows: Mapping[str, int]
    ) -> MetricRow:
        """Return a table row for one metric.

        `single_look` contains the metric's figures with the interval for a single look. `all_looks` contains them with
        the always-valid interval and the conclusion.
        """
        has_progress = self.progress is not None
        reason = all_looks["reason"] or (
            "" if has_progress else "the current or the planned number of users is unknown"
        )
        low, high = (finite_or_none(all_looks[name]) if has_progress else None for name in ("low", "high"))
        word = all_looks["word"] if has_progress else ""
        if is_too_wide(low, high):
            word, reason = TOO_EARLY, "it is too early to say; the interval is wider than ±100 %"
        return self._build_empty_row(all_looks["metric"], by, all_looks, all_rows)._replace(
            control_value=finite_or_none(all_looks["control_value"]),
            value=finite_or_none(all_looks["value"]),
            change=finite_or_none(all_looks["change"]),
            low=low,
            high=high,
            once_low=finite_or_none(single_look["low"]),
            once_high=finite_or_none(single_look["high"]),
            bound=finite_or_none(all_looks["bound"]),
            word=word,
            reason=self._name_arms(reason),
        )

    def _build_missing_rows(
        self, missing: MissingMetric, by: tuple[str, ...], samples: ArmSamples, all_rows: Mapping[str, int]
    ) -> list[MetricRow]:
        """Return the table rows of a metric that cannot be compared: its values and a reason, but no differences."""
        sides = [{k: i for s in samples[a] if s.name == missing.metric for i, k in enumerate(s.keys)} for a in samples]
        named = [next((s for s in samples[a] if s.name == missing.metric), None) for a in samples]
        rows_of_metric = []
        for key in dict.fromkeys([*sides[0], *sides[1]]) or ([] if by else [()]):
            at = [
                None if s is None or key not in side else (s, side[key]) for s, side in zip(named, sides, strict=True)
            ]
            value, control = (None if one is None else finite_or_none(float(one[0].values[one[1]])) for one in at)
            rows = sum(0 if one is None else int(one[0].rows[one[1]]) for one in at)
            row = self._build_empty_row(missing.metric, by, dict(zip(by, key, strict=True)) | {"rows": rows}, all_rows)
            rows_of_metric.append(row._replace(value=value, control_value=control, reason=missing.reason))
        return rows_of_metric

    def _build_empty_row(
        self, metric: str, by: tuple[str, ...], figures: Figures, all_rows: Mapping[str, int]
    ) -> MetricRow:
        """Return a table row with the names, role, margin, slice and row counts; the caller adds the values.

        `figures` contains the key of the slice and the number of rows in it. `all_rows` contains, for each metric, the
        total number of rows in all slices.
        """
        better = {q.name: q.better for q in self.questions[0]}
        role, rows = self.experiment.metrics[metric], int(figures["rows"])
        key = {column: str(figures[column]) for column in by}
        share = rows / all_rows[metric] if by and all_rows.get(metric) else None
        margin = self.experiment.guardrails.get(metric)
        numbers = (None,) * 8
        return MetricRow(
            self.treatment, metric, role, better.get(metric, ""), margin, *numbers, "", "", rows, key, share
        )

    def _name_arms(self, reason: str) -> str:
        """Replace "the first side" and "the second side" in a reason with the names of the arms."""
        sides = ("the first side", self.treatment), ("the second side", self.experiment.control)
        for side, arm in sides:
            reason = reason.replace(side, arm)
        return reason


def correct_slice_words(rows: Sequence[tuple[MetricRow, float]], confidence: float) -> list[MetricRow]:
    """Return the rows of slices without the conclusions that a correction for multiple comparisons does not support.

    A removed "better" or "worse" becomes "unclear", and a removed "breached" becomes "undecided". `rows` contains pairs
    of a row and its p-value, and 1 - `confidence` is the target false discovery rate.

    The correction is e-BH: the Benjamini-Hochberg procedure with p-values 1 / e, where e is the e-value of an
    always-valid interval. It controls the false discovery rate even if the slices are dependent. Model metrics are
    corrected separately, because their differences are not treatment effects.
    """
    # The p-values come from a sequential test and are valid at every look. Hence the remaining conclusions are also
    # valid at every look.
    result: list[MetricRow] = [row for row, _ in rows]
    for model in (False, True):
        positions = [i for i, (row, _) in enumerate(rows) if (row.role == "model") == model]
        rejected = benjamini_hochberg([rows[i][1] for i in positions]) <= 1.0 - confidence
        for i, is_rejected in zip(positions, rejected.tolist(), strict=True):
            if not is_rejected:
                result[i] = result[i]._replace(word=UNCORRECTED_WORDS.get(result[i].word, result[i].word))
    return result
