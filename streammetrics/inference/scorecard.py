"""The scorecard of an experiment: the verdict on each treatment, and the numbers behind it, overall and by slice."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..collect.metric_like import MetricLike
from ..collect.plottable import Plottable
from ..errors import InvalidInputError
from ..reading.interval import Interval, alpha_of
from ..reading.replicates import Sample
from ..reading.table import Table, TableLayout, format_value
from .calibration import CalibrationContrasts
from .caveats import Note, describe_caveats
from .compare import (
    collect_arms,
    collect_slice_columns,
    merge_slices,
    select_arm_covariates,
    select_covariates,
)
from .differences import MetricDifferences, check_balance, compute_differences, compute_half_bounds
from .estimates import split_intervals
from .interpretation import ComparisonSettings, Interpretation, build_effect, interpret
from .number_format import choose_format, format_p_value
from .pairs import UnmatchedCell, pair_samples
from .questions import (
    GUARDRAIL,
    PRIMARY,
    SECONDARY,
    Question,
    build_question,
    check_arms,
    check_roles,
    read_margins,
)
from .reasons import has_reason
from .sample_ratio import SampleRatio, sample_ratio_mismatch
from .sentences import name_sides
from .sequential import p_from_e
from .user_shares import MOST_USERS, add_user_shares
from .verdict import (
    TOO_EARLY,
    MetricEffect,
    Progress,
    Verdict,
    build_verdict,
    choose_missing_word,
    is_not_worse,
    is_worse,
)

__all__ = ["Scorecard", "scorecard"]

# The exit code when a guardrail is breached, so that a script can stop the experiment.
BREACHED_EXIT_CODE = 3
WAYS_OF_LOOKING = (
    "For a decision, state how you look: planned (once, at a planned number of users), final (once, after the experiment) "
    "or sequential (repeatedly)."
)
Floats = NDArray[np.float64]
SamplesByArm = Mapping[Any, Sequence[Sample]]
Changes = Mapping[Any, tuple[dict[str, MetricDifferences], list[UnmatchedCell]]]
"""For each treatment, the differences of each metric, and the cells (slices) that only one arm has."""


class ScorecardOptions(NamedTuple):
    """Settings of a scorecard.

    Parameters
    ----------
    questions : tuple of Question
        The metrics: the primary one first, then the guardrails, then the secondary ones.
    confidence : float
        Nominal confidence over all treatments together.
    relative : bool
        Whether changes and margins are relative.
    independent : bool
        Whether arms without common shards are assumed to have no unit in common.
    guardrail_count : int
        Number of guardrails in the whole experiment, if `questions` lacks some of them because they have no data yet.
    """

    questions: tuple[Question, ...]
    confidence: float
    relative: bool
    independent: bool
    guardrail_count: int = 0

    @property
    def guardrails(self) -> int:
        """The number of questions with the role "guardrail"."""
        return [q.role for q in self.questions].count(GUARDRAIL)


@dataclass(frozen=True, eq=False, repr=False)
class Scorecard(Plottable):
    """The verdict on each treatment, and the numbers behind it.

    Parameters
    ----------
    arms : mapping
        The metrics of each arm.
    control : key
        The arm that the others are compared with.
    options : ScorecardOptions
        The questions and settings.
    progress : mapping
        The current and the planned number of users, for each treatment (every arm except the control).
    ratio : SampleRatio or None
        Result of the sample ratio test.
    totals : mapping
        Samples of each arm, with all slices merged.
    covariates : tuple of mappings
        The metrics of the same arms before the treatment, for variance reduction (CUPED).
    covariate_totals : sequence of mappings
        The samples of each covariate by arm, with all slices merged.
    users : mapping or None
        The number of users of each arm; None if unknown.
    """

    arms: Mapping[Any, MetricLike]
    control: Any
    options: ScorecardOptions
    progress: Mapping[Any, Progress]
    ratio: SampleRatio | None
    totals: SamplesByArm
    covariates: tuple[Mapping[Any, MetricLike], ...] = ()
    covariate_totals: Sequence[SamplesByArm] = ()
    users: Mapping[Any, float] | None = None

    @cached_property
    def changes(self) -> Changes:
        """The differences of each treatment from the control, with all slices merged."""
        return self.compute_changes(self.totals, self.covariate_totals)

    @cached_property
    def verdicts(self) -> dict[Any, Verdict]:
        """The verdict on each treatment, keyed by arm, from the metrics with all slices merged."""
        verdicts = {}
        for arm, progress in self.progress.items():
            changes, _ = self.changes[arm]
            settings = self._build_settings(progress)
            readings = (self._interpret(q, changes[q.name], settings) for q in self.options.questions)
            single = [_select_only_cell(r.effect) for r in readings]
            last = 1 + self.options.guardrails
            verdict = build_verdict(
                single[0],
                single[1:last],
                progress,
                confidence=self.options.confidence,
                treatments=len(self.progress),
                treatment=str(arm),
                sample_ratio=self.ratio,
            )
            verdicts[arm] = verdict._replace(sentence=name_sides(verdict.sentence, str(arm), str(self.control)))
        return verdicts

    @property
    def sentences(self) -> list[str]:
        """The sentences of the verdicts, followed by advice on how to get a decision if a verdict is only "one look".

        A sentence that applies to all treatments, such as one about a sample ratio mismatch, appears only once.
        """
        hints = [WAYS_OF_LOOKING for v in self.verdicts.values() if v.decision == "one look"]
        return list(dict.fromkeys([*(v.sentence for v in self.verdicts.values()), *hints]))

    @cached_property
    def notes(self) -> dict[Any, list[Note]]:
        """Notes on each treatment, keyed by arm: the effect of covariates, and metrics that show Simpson's paradox."""
        by = collect_slice_columns(self.arms[self.control])
        return self.build_notes(by, collect_arms(self.arms)[0] if by else {})

    def build_notes(self, by: tuple[str, ...], samples: SamplesByArm) -> dict[Any, list[Note]]:
        """Return notes on the comparison of each treatment with the control, over all rows and by slice, keyed by arm.

        Parameters
        ----------
        by : tuple of str
            The slice columns; empty for notes about all rows only.
        samples : mapping of arm to samples
            The metrics of each arm by slice.
        """
        notes = {}
        for arm, progress in self.progress.items():
            whole, _ = self.changes[arm]
            parts = self._compute_differences(arm, samples, ())[0] if by else {}
            settings, names = replace(self._build_settings(progress), relative=False), (str(arm), str(self.control))
            notes[arm] = describe_caveats(whole.values(), parts.values(), by, names, settings)
        return notes

    @property
    def exit_code(self) -> int:
        """The exit code for scripts: 3 if a guardrail of any treatment is breached, otherwise 0.

        It is also 0 while verdicts are withheld because of a sample ratio mismatch and, unless the experiment is
        sequential, until the planned number of users is reached. A breach counts even if the decision is "one look",
        because a script that compares two models looks once.
        """
        decided = [v for v in self.verdicts.values() if v.decision != "withheld"]
        is_breached = (r.word == "breached" for v in decided for r in v.guardrails)
        return BREACHED_EXIT_CODE if any(is_breached) else 0

    def __repr__(self) -> str:
        """Return the sentences of the verdicts, the notes and the table as text."""
        notes = [note.sentence for some in self.notes.values() for note in some]
        return "\n".join([*self.sentences, *notes, "", repr(self.table())])

    def _repr_html_(self) -> str:
        sentences = "".join(f"<p><strong>{html.escape(s)}</strong></p>" for s in self.sentences)
        return sentences + self.table()._repr_html_()

    def table(self) -> Table:
        """Return a table with a row for every treatment and metric, with all slices merged.

        The columns are:

        - `treatment`, `metric` and `role`;
        - `control_value` and `value` (of the treatment);
        - `change`, with the limits `low` and `high` of its interval, and `relative` (whether these are relative);
        - `p_value` (of the hypothesis of no change) and `adjusted` (the p-value after the multiplicity correction);
        - `word` (such as "better") and `p_word` (the p-value of this claim; for a guardrail, of a breach);
        - `reason` (why there is no interval), `bound` (how far the certified bounds may shift the change) and `rows`
          (in both arms).
        """
        return self.build_table((), self.changes)

    def slices(self, adjust: str | None = None) -> Table:
        """Return a table with a row for every slice, treatment and metric.

        Parameters
        ----------
        adjust : {"holm", "bh"}, optional
            Multiplicity correction over all rows of a treatment. The words "better", "worse" and "breached" then
            require support from both the interval and the adjusted p-value.
        """
        return self._slice_table(self.arms, adjust)

    def _slice_table(self, arms: Mapping[Any, MetricLike], adjust: str | None) -> Table:
        by = collect_slice_columns(arms[self.control])
        samples, before = collect_arms(arms, select_arm_covariates(self.covariates, arms, by))
        return self.build_table(by, self.compute_changes(samples, before), adjust)

    def compute_changes(self, samples: SamplesByArm, covariates: Sequence[SamplesByArm] = ()) -> Changes:
        """Return the differences of each treatment from the control.

        `samples` contains the samples of each arm, and `covariates` contains the samples of each covariate by arm.
        """
        return {arm: self._compute_differences(arm, samples, covariates) for arm in self.progress}

    def build_table(self, by: tuple[str, ...], changes: Changes, adjust: str | None = None) -> Table:
        """Return a table of the changes from the control to each treatment.

        Parameters
        ----------
        by : tuple of str
            The slice columns; empty for the table with all slices merged.
        changes : mapping
            The result of `compute_changes` for this scorecard, or for a scorecard that differs only in `progress`.
        adjust : {"holm", "bh"}, optional
            Multiplicity correction over all rows of a treatment.
        """
        rows: dict[Any, list[dict[str, Any]]] = {}
        for arm, progress in self.progress.items():
            differences, unmatched = changes[arm]
            missing = [(one.key, EMPTY_ROW | {"metric": one.name, "reason": one.reason}) for one in unmatched]
            for key, row in [*self._build_rows(differences, progress, adjust), *missing]:
                rows.setdefault(key, []).append(dict(zip(by, key, strict=False)) | {"treatment": arm} | row)
        return Table(by, [row for some in rows.values() for row in some], LAYOUT)

    def _compute_differences(
        self, treatment: Any, samples: SamplesByArm, covariates: Sequence[SamplesByArm]
    ) -> tuple[dict[str, MetricDifferences], list[UnmatchedCell]]:
        """Return the differences of each metric in the scorecard, and the cells (slices) that exist in only one arm.

        `samples` contains the samples of each arm, and `covariates` contains the samples of each covariate by arm.
        """
        names, control = {q.name for q in self.options.questions}, samples[self.control]
        pairs, unmatched = pair_samples(
            [s for s in samples[treatment] if s.name in names], [s for s in control if s.name in names]
        )
        before = [p for sides in covariates for p in pair_samples(sides[treatment], sides[self.control])[0]]
        how = self.options.independent
        differences = {
            p.name: compute_differences(p, independent=how, covariates=select_covariates(p, before)) for p in pairs
        }
        check_balance(before)
        if missing := [q.name for q in self.options.questions if q.name not in differences]:
            available = ", ".join(dict.fromkeys(s.name for s in control))
            raise InvalidInputError(f"expected the metric {missing[0]!r} in both arms; the control has {available}")
        # Compare the shares of users with an event only if all slices are merged, because the number of users in each
        # slice is unknown. Do not compare them in a sequential experiment, because their interval is valid only for a
        # single look.
        counts, progress = self.users or {}, self.progress[treatment]
        if counts and samples is self.totals and not progress.sequential and max(counts.values()) <= MOST_USERS:
            users, share = (counts[treatment], counts[self.control]), self._build_settings(progress).confidence
            differences = {name: add_user_shares(one, users, share) for name, one in differences.items()}
        return differences, unmatched

    def _build_rows(
        self, changes: dict[str, MetricDifferences], progress: Progress, adjust: str | None
    ) -> Iterable[Any]:
        """Yield (slice key, table row) for each metric of a treatment and each cell (slice)."""
        settings = self._build_settings(progress, adjust)
        readings = [self._interpret(q, changes[q.name], settings) for q in self.options.questions]
        margins = [q.margin or 0.0 if q.role == GUARDRAIL else None for q in self.options.questions]
        adjusted = settings.adjust_p_values(readings, margins)
        for question, reading, margin, p in zip(self.options.questions, readings, margins, adjusted, strict=True):
            words = self._choose_words(question, reading, p, progress, settings)
            evidence = settings.compute_evidence(reading, margin)
            pair, interval = reading.differences.pair, reading.relative if self.options.relative else reading.difference
            columns = (
                pair.b.values.tolist(),
                pair.a.values.tolist(),
                split_intervals(interval),
                reading.p_values.tolist(),
                p.tolist(),
                np.asarray(evidence if progress.look is None else p_from_e(evidence)).tolist(),
                words,
                reading.notes.tolist(),
                compute_half_bounds(pair, self.options.relative).tolist(),
                (pair.a.rows + pair.b.rows).tolist(),
            )
            about = {"metric": question.name, "role": question.role, "relative": self.options.relative}
            for key, before, after, one, plain, together, own, word, note, bound, rows in zip(
                pair.keys, *columns, strict=True
            ):
                figures = {
                    "control_value": before,
                    "value": after,
                    "change": one.estimate,
                    "low": one.low,
                    "high": one.high,
                }
                outcome = {"p_value": plain, "adjusted": together, "p_word": own, "word": word}
                outcome["reason"] = one.reason or note
                yield key, about | figures | outcome | {"bound": bound, "rows": rows}

    def _build_settings(self, progress: Progress, adjust: str | None = None) -> ComparisonSettings:
        """Return the settings of the comparison of one treatment with the control."""
        # As in the verdicts, divide alpha by the number of treatments (Bonferroni).
        share = 1.0 - alpha_of(self.options.confidence) / len(self.progress)
        return ComparisonSettings(share, progress.look, self.options.relative, adjust)

    def _interpret(
        self, question: Question, changes: MetricDifferences, settings: ComparisonSettings
    ) -> Interpretation:
        """Return the intervals and p-values of a metric, interpreted with the direction and margin of the question."""
        reading = interpret(changes, settings)
        effect = build_effect(changes, settings.relative, question.better, question.margin)
        return replace(reading, effect=effect._replace(note=reading.notes))

    def _choose_words(
        self, question: Question, reading: Interpretation, p: Floats, progress: Progress, settings: ComparisonSettings
    ) -> list[str]:
        """Return a word such as "better" or "held" for each cell (slice), by the same rules as the verdict.

        Parameters
        ----------
        question : Question
            The role, direction and margin of the metric.
        reading : Interpretation
            The intervals and p-values of the metric.
        p : float64 array
            The p-value of each cell after the multiplicity correction.
        progress : Progress
            The current and the planned number of users for the treatment.
        settings : ComparisonSettings
            The confidence level and the multiplicity correction.
        """
        guardrail = question.role == GUARDRAIL
        good, bad, neither = ("held", "breached", "undecided") if guardrail else ("better", "worse", "unclear")
        compared = reading.effect
        alpha, margin = alpha_of(settings.confidence), question.margin or 0.0
        # A word that claims a difference ("better", "worse", "breached") must also pass the multiplicity correction. The
        # word "held" claims no difference, so it needs no correction.
        passes = settings.adjust is None or p <= alpha
        guardrail_count = max(self.options.guardrails, self.options.guardrail_count) if guardrail else 1
        is_bad = is_worse(compared, progress, alpha / guardrail_count, margin) & passes
        is_good = is_not_worse(compared, progress, alpha, margin) & (guardrail or passes)
        out = np.full(p.shape, neither, object)
        out[is_good], out[is_bad] = good, bad
        # Until the planned number of users is reached, the interval for a single look is not valid.
        if progress.is_early:
            out[:] = TOO_EARLY
        unknown = np.isnan(reading.p_values) & ~has_reason(reading.notes)
        reasons = reading.differences.reasons
        for i in np.flatnonzero(unknown | has_reason(reasons)):
            out[i] = "not shown" if guardrail else choose_missing_word(reasons[i])
        words: list[str] = out.tolist()
        return words


def _select_only_cell(effect: MetricEffect) -> MetricEffect:
    """Convert an effect whose arrays have a single element to an effect whose fields are scalars."""
    change: Any = effect.change
    reason, note = np.asarray(effect.too_few_reason), np.asarray(effect.note)
    one = (
        CalibrationContrasts(*(next(m.split_cells()) for m in change))
        if isinstance(change, CalibrationContrasts)
        else next(change.split_cells())
    )
    down, up = (float(s[0]) for s in effect.slack)
    return effect._replace(change=one, too_few_reason=reason[0], slack=(down, up), note=note[0])


def _format_row(row: dict[str, Any]) -> list[str]:
    """Return the text of each column for a row of the table."""
    interval = Interval(row["low"], row["high"], row["change"], math.nan, "", "", 0.0, row["reason"])
    write = choose_format(interval, row["relative"])
    is_finite = math.isfinite(interval.low) and math.isfinite(interval.high)
    values = [
        str(row["treatment"]),
        row["metric"],
        row["role"],
        format_value(row["control_value"]),
        format_value(row["value"]),
    ]
    change = write(interval.estimate) if math.isfinite(interval.estimate) else ""
    between = f"{write(interval.low)} to {write(interval.high)}" if is_finite else ""
    adjusted = "" if row["adjusted"] == row["p_value"] else format_p_value(row["adjusted"])
    return [*values, change, between, format_p_value(row["p_value"]), adjusted, row["word"], row["reason"] or ""]


COLUMNS = (
    "treatment", "metric", "role", "control_value", "value", "change", "low", "high", "p_value", "adjusted", "p_word",
    "word", "reason", "relative", "bound", "rows",
)  # fmt: skip
HEADS = ("treatment", "metric", "role", "control", "value", "change", "interval", "p", "adjusted", "", "reason")
EMPTY_ROW = dict.fromkeys(COLUMNS, math.nan) | {"role": "", "word": "", "relative": True, "rows": 0}
LAYOUT = TableLayout(COLUMNS, HEADS, _format_row, ("adjusted", "reason", "interval"))


def scorecard(
    arms: Any,
    *,
    control: Any,
    primary: str,
    guardrails: Mapping[str, float] | None = None,
    secondary: Iterable[str] = (),
    better: Mapping[str, str] | None = None,
    planned: float | None = None,
    users: float | Mapping[Any, float] | None = None,
    per_day: float | None = None,
    final: bool = False,
    sequential: bool = False,
    confidence: float = 0.95,
    relative: bool = True,
    independent: bool = False,
    sample_ratio: SampleRatio | Mapping[Any, float] | None = None,
    covariates: Any = (),
) -> Scorecard:
    """Return the verdict on each treatment of an experiment, and the numbers behind it.

    The decision is "ship" if the primary metric is better and every guardrail is met, and "do not" (ship) if the
    primary metric is worse or a guardrail is breached. Otherwise it is "keep running", with the number of users and
    days to go, or, at the end of the experiment, "inconclusive". A decision needs `planned`, `final` or `sequential`.
    Without them, it is "one look": the intervals are valid only if you look once.

    Parameters
    ----------
    arms : Sliced by arm, or dict
        The metrics of each arm. Slices within arms are merged for the verdict, and shown by `Scorecard.slices`.
    control : key
        The arm that the others are compared with.
    primary : str
        The deciding metric.
    guardrails : dict of str to float, optional
        Metrics that must not become worse by more than a margin, as a dict from name to margin. A margin of 0.02 is 2 %
        of the control or, with `relative=False`, 0.02 units of the metric. For a calibration ratio, the margin is how
        much farther from 1 the ratio may be.
    secondary : iterable of str
        Metrics that are shown but do not decide.
    better : dict of str to {"high", "low"}, optional
        Which values are better, for metrics that do not define this, such as a click rate or a latency quantile.
    planned : float, optional
        Planned number of users in the two compared arms; needs `users`. Without `sequential`, there is no decision
        until this number is reached, and only the first look after that is valid.
    users : float, or dict by arm, optional
        Number of users so far, in total over the two compared arms or by arm.
    per_day : float, optional
        New users per day in the two compared arms, to estimate the number of days to go.
    final : bool
        Whether the experiment is over, so that no more users will be added. The intervals are for this single look. If
        you have looked at the experiment before, pass `sequential`, too; the intervals are then always-valid.
    sequential : bool
        Whether to use always-valid intervals, for repeated looks; needs `users`. They are about 1.6 times as wide as
        intervals for a single look if the experiment ends at `planned` users. Without `planned`, they are narrowest at
        10,000 users: 30 % wider than with `planned` if the experiment has 1,000 users, and 7 % wider if it has 100,000.
    confidence : float
        Nominal confidence over all treatments together: the error rate of 1 - confidence is divided among them.
    relative : bool
        Whether changes and margins are relative (treatment / control - 1) rather than absolute differences. A relative
        change is not computed unless the control is clearly above 0.
    independent : bool
        See `compare`.
    sample_ratio : SampleRatio, or dict by arm, optional
        Result of `sample_ratio_mismatch`, or the planned shares if `users` is a dict by arm. If the test raises an
        alarm, verdicts are withheld.
    covariates : Sliced by arm or dict, or list of these, optional
        The metrics of the same arms before the treatment, each in the form of `arms`, for variance reduction (CUPED) as
        in `compare`. Slices are adjusted only by covariates with the same slices. Conclusions about calibration ratios
        are not adjusted.

    Returns
    -------
    Scorecard
        `verdicts` by treatment, each with its `decision` ("ship", "do not", "keep running", "inconclusive", "one look" or
        "withheld"), `sentence`, users and days to go; `table()` and `slices(adjust=)`, the numbers; `exit_code`, 3 if a
        guardrail of any treatment is breached, otherwise 0.

    Raises
    ------
    InvalidInputError
        If an arm or metric does not exist, `better` is missing for a metric, `users` is missing, `planned` and `final`
        contradict each other, or `compare` would raise an error.

    Notes
    -----
    "Ship" needs all conditions to hold, so it is wrong with probability at most (1 - confidence) / 2 for any number of
    guardrails (intersection-union test, Berger 1982). "Do not ship" needs only one of its conditions to hold, so each
    guardrail is tested at (1 - confidence) / number of guardrails. With several treatments, 1 - confidence is divided
    among them. Each metric and treatment is one comparison (see `compare`).

    Examples
    --------
    >>> import numpy as np, streammetrics as sm
    >>> rng = np.random.default_rng(1)
    >>> user = rng.integers(0, 4000, 80_000)
    >>> arm = np.where(user % 2, "new", "old")
    >>> click = rng.random(80_000) < np.where(user % 2, 0.12, 0.10)
    >>> arms = sm.Sliced(sm.Sharded(sm.CTR(), unit="user"), by="variant").update(y_true=click, user=user, variant=arm)
    >>> card = sm.scorecard(arms, control="old", primary="ctr", better={"ctr": "high"}, final=True)
    >>> card.verdicts["new"].decision, card.exit_code
    ('ship', 0)
    """
    sides = {key: arms[key] for key in arms}
    check_arms(sides, control)
    before = (covariates,) if isinstance(covariates, Mapping | MetricLike) else tuple(covariates)
    merged = {arm: merge_slices(side) for arm, side in sides.items()}
    totals, covariate_totals = collect_arms(merged, select_arm_covariates(before, sides))
    metrics = {s.name: s.metric for s in totals[control]}
    margins = read_margins(guardrails, relative)
    roles = [(primary, PRIMARY), *((name, GUARDRAIL) for name in margins), *((name, SECONDARY) for name in secondary)]
    check_roles(roles, better or {})
    questions = tuple(build_question(n, role, metrics, better or {}, margins.get(n)) for n, role in roles)
    options = ScorecardOptions(questions, confidence, relative, independent)
    progress = {
        arm: Progress(count_users(users, control, arm), planned, per_day, sequential, final, confidence)
        for arm in sides
        if arm != control
    }
    ratio, by_arm = build_sample_ratio(sample_ratio, users), users if isinstance(users, Mapping) else None
    card = Scorecard(sides, control, options, progress, ratio, totals, before, covariate_totals, by_arm)
    # Compute the verdicts now, so that errors are raised here rather than on first access.
    _ = card.verdicts
    return card


def count_users(users: Any, control: Any, arm: Any) -> float | None:
    """Return the total number of users in an arm and the control, or None if `users` is None.

    `users` is this total, or a dict of users by arm.
    """
    if users is None or not isinstance(users, Mapping):
        return None if users is None else float(users)
    if missing := [a for a in (control, arm) if a not in users]:
        raise InvalidInputError(f"users= has no arm {missing[0]!r}; its arms are {', '.join(map(str, users))}")
    return float(users[control]) + float(users[arm])


def build_sample_ratio(ratio: Any, users: Any) -> SampleRatio | None:
    """Return the result of the sample ratio test, or None if `ratio` is None.

    `ratio` is either this result, or the planned shares of the arms. In the latter case, `users` is tested against
    them.
    """
    if ratio is None or isinstance(ratio, SampleRatio):
        return ratio
    if not isinstance(users, Mapping):
        raise InvalidInputError(
            "planned shares in sample_ratio= need a dict of users by arm in users=; or pass the result of "
            "sample_ratio_mismatch"
        )
    return sample_ratio_mismatch(users, ratio)
