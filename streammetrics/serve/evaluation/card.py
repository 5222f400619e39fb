"""The scorecard of an experiment: each treatment beside the control, by intervals that hold at all looks."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from ...errors import InvalidInputError, StreamMetricsError
from ...inference.differences import changes_of
from ...inference.multiple import benjamini_hochberg
from ...inference.pairs import paired
from ...inference.power import days_to_go, smallest_effect, users_needed
from ...inference.sample_ratio import SampleRatio
from ...inference.scorecard import Question, Scorecard, ScorecardOptions, question_of
from ...inference.verdict import Progress
from ...reading.replicates import Sample
from .cells import Samples
from .evaluation import Power, Row, Told
from .experiment import Experiment

__all__ = ["ALPHA", "TreatmentSide", "adjusted", "number", "share_of"]

ALPHA = 0.05
"""Of all treatments together."""
ONCE = Progress()
RELATIVE = 0.01
LOOKS = 100
DECIDING = ("primary", "guardrail")
Figures = Mapping[str, Any]
UNSHOWN = {"better": "unclear", "worse": "unclear", "breached": "undecided"}


def number(value: float | None) -> float | None:
    """Return a number as JSON has it: None where there is none."""
    return None if value is None or not math.isfinite(value) else float(value)


def share_of(experiment: Experiment) -> float:
    """Return the confidence of one of the treatments, which share what is left of that of all."""
    return 1.0 - ALPHA / len(experiment.treatments)


class MissingMetric(NamedTuple):
    """A metric that cannot be compared, and why."""

    metric: str
    reason: str


@dataclass(frozen=True)
class TreatmentSide:
    """A treatment beside the control.

    Parameters
    ----------
    experiment : Experiment
        What is asked.
    treatment : str
        The arm.
    arms : dict
        The numbers of each arm, each of one cell.
    progress : Progress or None
        How far both arms are; None where nobody knows, and only intervals of one look can be shown.
    ratio : SampleRatio or None
        Whether users fell to arms as planned.
    """

    experiment: Experiment
    treatment: str
    arms: Samples
    progress: Progress | None
    ratio: SampleRatio | None = None

    @property
    def share(self) -> float:
        """The confidence of one treatment."""
        return share_of(self.experiment)

    def told(self) -> Told:
        """Return the verdict; withheld where something that it needs is not there."""
        questions, missing = self.questions
        roles = self.experiment.metrics
        if lacking := [m for m in missing if roles[m.metric] in DECIDING]:
            return self.withheld(f"{lacking[0].metric}: {lacking[0].reason}")
        assert self.progress is not None
        try:
            found = self._card(questions, self.progress).verdicts[self.treatment]
        except StreamMetricsError as error:  # it is the reason
            return self.withheld(str(error))
        return Told(self.treatment, found.decision, found.sentence, number(found.more_users), number(found.more_days))

    def withheld(self, reason: str) -> Told:
        """Return that there is no verdict, and why."""
        return Told(self.treatment, "withheld", f"No verdict on {self.treatment}: {reason}.")

    def rows(self) -> list[Row]:
        """Return every metric, of all rows."""
        return [row for row, _ in self._figures((), self.arms, {})]

    def slices(self, column: str, arms: Samples) -> list[tuple[Row, float]]:
        """Return every metric by the keys of a column, each with its p-value."""
        whole = Counter(dict.fromkeys(self.experiment.metrics, 0))
        for arm in self._both():
            whole.update({s.name: int(s.rows.sum()) for s in self._samples(arm)})
        return self._figures((column,), arms, whole)

    def power(self) -> Power | None:
        """Return what the primary metric can show; None where nobody knows."""
        questions, _ = self.questions
        progress, name = self.progress, self.experiment.primary
        if progress is None or not progress.users or name not in [q.name for q in questions if q.better != "one"]:
            return None
        try:
            ((pair,), _) = paired(*([s for s in self._samples(arm) if s.name == name] for arm in self._both()))
            change: Any = next(changes_of(pair).relative.cells())
            planned = [self.experiment.arms[arm] for arm in self._both()]
            shares = planned[0] / sum(planned), planned[1] / sum(planned)
            how: dict[str, Any] = {"confidence": self.share, "shares": shares, "looks": LOOKS}
            needed = users_needed(change, progress.users, relative=RELATIVE, **how).users
            end = None if progress.planned is None else smallest_effect(change, progress.users, progress.planned, **how)
        except StreamMetricsError:  # too little data for an error
            return None
        days = None if progress.per_day is None else days_to_go(progress.users, needed, progress.per_day)
        return Power(self.treatment, RELATIVE, needed, number(days), None if end is None else number(end.relative))

    # -- what can be asked --------------------------------------------------------------------------------------------

    @cached_property
    def questions(self) -> tuple[tuple[Question, ...], list[MissingMetric]]:
        """Return what both arms can answer, and what not."""
        there = [{s.name: s.metric for s in self._samples(arm) if s.keys} for arm in self._both()]
        found, missing = [], []
        for name, role in self.experiment.metrics.items():
            lacking = [arm for arm, metrics in zip(self._both(), there, strict=True) if name not in metrics]
            if lacking:
                missing.append(MissingMetric(name, f"there are no rows of it in {' and '.join(reversed(lacking))}"))
                continue
            try:
                margin = self.experiment.guardrails.get(name)
                found.append(question_of(name, role, there[0], self.experiment.better, margin))
            except InvalidInputError as error:  # it is said of the metric
                missing.append(MissingMetric(name, str(error)))
        return tuple(found), missing

    def _both(self) -> tuple[str, str]:
        return self.treatment, self.experiment.control

    def _samples(self, arm: str) -> Sequence[Sample]:
        return self.arms.get(arm, ())

    def _card(self, questions: tuple[Question, ...], progress: Progress) -> Scorecard:
        totals = {arm: [s for s in self._samples(arm) if s.keys] for arm in self._both()}
        asked = ScorecardOptions(questions, self.share, True, False, len(self.experiment.guardrails))
        return Scorecard({}, self.experiment.control, asked, {self.treatment: progress}, self.ratio, totals)

    # -- rows ---------------------------------------------------------------------------------------------------------

    def _figures(self, by: tuple[str, ...], arms: Samples, whole: Mapping[str, int]) -> list[tuple[Row, float]]:
        questions, missing = self.questions
        samples = {arm: arms.get(arm, []) for arm in self._both()}
        found: list[tuple[Row, float]] = []
        try:
            once = always = list(self._card(questions, ONCE).tabled(by, samples))
            if self.progress is not None:
                always = list(self._card(questions, self.progress).tabled(by, samples))
            found = [(self._row(by, a, b, whole), b["p_word"]) for a, b in zip(once, always, strict=True)]
        except StreamMetricsError as error:  # it is said of the metrics
            missing = [MissingMetric(name, str(error)) for name in self.experiment.metrics]
        alone = (self._alone(lacking, by, samples, whole) for lacking in missing)
        return [*found, *((row, math.nan) for rows in alone for row in rows)]

    def _row(self, by: tuple[str, ...], once: Figures, always: Figures, whole: Mapping[str, int]) -> Row:
        """One row of two tables: by the interval of one look, and by that of all."""
        known = self.progress is not None
        reason = always["reason"] or ("" if known else "users so far, or planned, are not known")
        return self._made(always["metric"], by, always, whole)._replace(
            control_value=number(always["control_value"]),
            value=number(always["value"]),
            change=number(always["change"]),
            low=number(always["low"]) if known else None,
            high=number(always["high"]) if known else None,
            once_low=number(once["low"]),
            once_high=number(once["high"]),
            bound=number(always["bound"]),
            word=always["word"] if known else "",
            reason=self._spelled(reason),
        )

    def _alone(
        self, lacking: MissingMetric, by: tuple[str, ...], samples: Samples, whole: Mapping[str, int]
    ) -> list[Row]:
        """The values of a metric that cannot be compared."""
        sides = [{k: i for s in samples[a] if s.name == lacking.metric for i, k in enumerate(s.keys)} for a in samples]
        named = [next((s for s in samples[a] if s.name == lacking.metric), None) for a in samples]
        found = []
        for key in dict.fromkeys([*sides[0], *sides[1]]) or ([] if by else [()]):
            at = [
                None if s is None or key not in side else (s, side[key]) for s, side in zip(named, sides, strict=True)
            ]
            value, control = (None if one is None else number(float(one[0].values[one[1]])) for one in at)
            rows = sum(0 if one is None else int(one[0].rows[one[1]]) for one in at)
            row = self._made(lacking.metric, by, dict(zip(by, key, strict=True)) | {"rows": rows}, whole)
            found.append(row._replace(value=value, control_value=control, reason=lacking.reason))
        return found

    def _made(self, metric: str, by: tuple[str, ...], figures: Figures, whole: Mapping[str, int]) -> Row:
        """A row that says nothing yet."""
        asked = {q.name: q.better for q in self.questions[0]}
        role, rows = self.experiment.metrics[metric], int(figures["rows"])
        key = {column: str(figures[column]) for column in by}
        share = rows / whole[metric] if by and whole.get(metric) else None
        margin = self.experiment.guardrails.get(metric)
        numbers = (None,) * 8
        return Row(self.treatment, metric, role, asked.get(metric, ""), margin, *numbers, "", "", rows, key, share)

    def _spelled(self, reason: str) -> str:
        """A reason that names the arms."""
        sides = ("the first side", self.treatment), ("the second side", self.experiment.control)
        for side, arm in sides:
            reason = reason.replace(side, arm)
        return reason


def adjusted(rows: Sequence[tuple[Row, float]], share: float) -> list[Row]:
    """Return rows of many slices, whose words must hold for all of them together: e-BH, as p is 1 / e.

    Model measures are a family of their own: they are no effects of the treatment.
    """
    found: list[Row] = [row for row, _ in rows]
    for model in (False, True):
        places = [i for i, (row, _) in enumerate(rows) if (row.role == "model") == model]
        passed = benjamini_hochberg([rows[i][1] for i in places]) <= 1.0 - share
        for i, shown in zip(places, passed.tolist(), strict=True):
            if not shown:
                found[i] = found[i]._replace(word=UNSHOWN.get(found[i].word, found[i].word))
    return found
