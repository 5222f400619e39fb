"""The decision about a treatment (such as "ship"), and a sentence that explains it.

"Ship" requires all conditions together: the primary metric is better and every guardrail is met. Such an
intersection-union test needs no multiplicity correction: the decision is wrong with probability at most alpha / 2.
For "do not ship", a single condition suffices, so each of n guardrails is tested for a breach at level alpha / n. With
several treatments, alpha is divided by their number.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..errors import InvalidInputError
from ..numerics.student_t import normal_quantile
from ..reading.interval import Interval, alpha_of
from ..reading.link_functions import scale_of
from .calibration import CalibrationContrasts
from .estimates import ScaledEstimate, interval, p_value
from .number_format import choose_format, format_interval
from .power import days_to_go, users_to_decide
from .sample_ratio import SampleRatio
from .sequential import TUNED_USERS, Look, always_valid, e_value

__all__ = [
    "POWER_QUANTILE",
    "ComparisonReading",
    "MetricEffect",
    "Progress",
    "Verdict",
    "build_verdict",
    "choose_missing_word",
    "compute_evidence",
    "interpret_effect",
]

BETTER = ("high", "low", "one")
TOO_EARLY = "too early"
POWER_QUANTILE = normal_quantile(0.8)
"""The normal quantile for 80 % power.

If the true difference is the half width of the interval plus this many standard errors, the interval excludes 0 in 80 % of
experiments.
"""


class MetricEffect(NamedTuple):
    """The effect of a treatment on one metric, as the input to a verdict. Fields are arrays for several cells (slices).

    Parameters
    ----------
    name : str
        Name of the metric.
    change : ScaledEstimate or CalibrationContrasts
        Treatment minus control; for a calibration ratio, the difference and the sum of the two logarithms.
    better : {"high", "low", "one"}
        Which values are better; "one" requires the contrasts of a calibration ratio.
    margin : float or None
        For a guardrail, how much worse the metric may be: relative to the control if `change` is a relative difference,
        otherwise in units of the metric. For a calibration ratio, how much farther from 1 the ratio may be. With a
        margin of 0, a guardrail is met only if the metric is better.
    too_few_reason : str or None
        Why there is too little data for an interval; None if there is enough.
    slack : tuple of float
        How far the true change may lie below and above the estimate, according to the certified bounds of both sides.
        For a calibration ratio, these amounts are on the scale of the contrasts.
    note : str or None
        A sentence that replaces the change where the quantiles of both sides are certainly equal.
    """

    name: str
    change: ScaledEstimate | CalibrationContrasts
    better: str = "high"
    margin: float | None = None
    too_few_reason: str | None = None
    slack: tuple[Any, Any] = (0.0, 0.0)
    note: Any = None

    @property
    def estimate(self) -> ScaledEstimate:
        """The estimate of the difference; for a calibration ratio, between the logarithms of the two ratios."""
        return self.change.log_difference if isinstance(self.change, CalibrationContrasts) else self.change


class Progress(NamedTuple):
    """The progress of an experiment, and when it is analyzed: at a planned number of users, at its end, or repeatedly.

    Without `planned`, `sequential` and `final`, it is unknown whether this is the only look, so there is no decision.

    Parameters
    ----------
    users : float or None
        Number of users so far, in both arms.
    planned : float or None
        Planned number of users. Unless the experiment is sequential, there is no decision until this number is reached.
    per_day : float or None
        Observed number of new users per day.
    sequential : bool
        Whether to use always-valid intervals, for repeated looks; they need `users`.
    final : bool
        Whether the experiment is over, so that no more users will be added.
    tuned_confidence : float
        Coverage at which the always-valid intervals are narrowest.
    tuned_users : float or None
        Number of users at which the always-valid intervals are narrowest, if it is not `planned`. It must be chosen before
        the first look.
    """

    users: float | None = None
    planned: float | None = None
    per_day: float | None = None
    sequential: bool = False
    final: bool = False
    tuned_confidence: float = 0.95
    tuned_users: float | None = None

    def check(self) -> None:
        """Raise InvalidInputError if `users` is required but None, or if `planned` contradicts `final`."""
        if self.users is None and (self.planned is not None or self.sequential):
            raise InvalidInputError(
                "planned= and sequential=True need users=, the number of users so far; pass it, too"
            )
        if self.final and self.planned is not None and not self.sequential:
            raise InvalidInputError(
                "planned= and final=True contradict each other: with planned=, the only look is at the planned number of "
                "users, and with final=True it is now; leave out one of them"
            )

    @property
    def allows_decision(self) -> bool:
        """Whether `planned`, `sequential` or `final` is set; a decision requires one of them.

        Otherwise, the current look may be one of several, for which the interval for a single look is not valid.
        """
        return self.planned is not None or self.sequential or self.final

    @property
    def is_finished(self) -> bool:
        """Whether the planned number of users has been reached, or the experiment is over."""
        return self.final or (self.users is not None and self.planned is not None and self.users >= self.planned)

    @property
    def look(self) -> Look | None:
        """The current look at a sequential experiment; None if the experiment is not sequential."""
        if not self.sequential:
            return None
        self.check()
        assert self.users is not None
        tuned_users = self.tuned_users or self.planned
        return Look(self.users, TUNED_USERS if tuned_users is None else tuned_users, self.tuned_confidence)

    @property
    def is_early(self) -> bool:
        """Whether it is too early for a decision: the interval for a single look is valid only at the planned end."""
        return not self.sequential and self.users is not None and self.planned is not None and not self.is_finished


def choose_missing_word(reason: object) -> str:
    """Return the text shown instead of an interval: "too few" if more data would help, and "not shown" otherwise."""
    return "too few" if any(words in str(reason) for words in ("too few", "more units", "more users")) else "not shown"


class ComparisonReading(NamedTuple):
    """The conclusion about one metric: a word such as "better", and the interval that supports it.

    Parameters
    ----------
    name : str
        Name of the metric.
    word : str
        "better", "worse" or "unclear", or "too few" or "not shown" if there is no interval; for a guardrail, "held",
        "breached", "undecided" or "not shown". The word is "too early" if the experiment is not sequential and has not
        reached its planned number of users.
    interval : Interval
        Interval for the change; for a breached guardrail, its confidence level is corrected for the number of
        guardrails.
    reason : str or None
        Why there is no interval, if the word is "too few" or "not shown".
    """

    name: str
    word: str
    interval: Interval
    reason: str | None = None


class Verdict(NamedTuple):
    """The decision about a treatment.

    Parameters
    ----------
    decision : str
        "ship", "do not", "keep running", "inconclusive" (at the end), "one look" (if the settings do not say when the
        experiment is analyzed), or "withheld".
    sentence : str
        The decision in words, with the numbers that decide.
    primary : ComparisonReading
        Conclusion about the primary metric.
    guardrails : tuple of ComparisonReading
        Conclusions about the guardrails, in the order of the input.
    more_users, more_days : float or None
        How many more users and days it takes to decide the metrics that are still undecided, if the estimates do not
        change. Neither number goes beyond the planned end; each is None if it is unknown.
    """

    decision: str
    sentence: str
    primary: ComparisonReading
    guardrails: tuple[ComparisonReading, ...]
    more_users: float | None
    more_days: float | None


def _compute_interval(estimate: ScaledEstimate, progress: Progress, alpha: float) -> Interval:
    """Return the 1 - alpha interval: always-valid if the experiment is sequential, otherwise for a single look."""
    look = progress.look
    return interval(estimate, 1.0 - alpha) if look is None else always_valid(estimate, look, 1.0 - alpha)


def _compute_limits(
    estimate: ScaledEstimate, progress: Progress, alpha: float, slack: tuple[Any, Any]
) -> tuple[Any, Any]:
    """Return the limits of the interval on the scale of the estimate, widened by `slack` (see `MetricEffect`).

    The confidence level of the interval is 1 - alpha.
    """
    limits = _compute_interval(estimate, progress, alpha)
    scale = scale_of(estimate.scale)
    return scale.point(limits.low) - slack[0], scale.point(limits.high) + slack[1]


def is_worse(effect: MetricEffect, progress: Progress, alpha: float, margin: float = 0.0) -> Any:
    """Return, for each cell (slice), whether the interval shows that the metric is worse by more than the margin.

    The confidence of the interval is 1 - alpha, and `progress` decides whether it is always-valid.
    """
    change = effect.change
    if isinstance(change, CalibrationContrasts):
        limit = scale_of("relative").point(margin)
        (low, high), (low2, high2) = (_compute_limits(e, progress, alpha, effect.slack) for e in change)
        return ((low > limit) & (low2 > limit)) | ((high < -limit) & (high2 < -limit))
    limits, (down, up) = _compute_interval(change, progress, alpha), effect.slack
    return limits.high + up < -margin if effect.better == "high" else limits.low - down > margin


def is_not_worse(effect: MetricEffect, progress: Progress, alpha: float, margin: float = 0.0) -> Any:
    """Return, for each cell (slice), whether the interval shows that the metric is not worse by more than the margin.

    With a margin of 0, this means that the metric is better. The confidence of the interval is 1 - alpha, and `progress`
    decides whether it is always-valid.
    """
    change = effect.change
    if isinstance(change, CalibrationContrasts):
        limit = scale_of("relative").point(margin)
        # The ratio of the treatment is closer to 1 than that of the control if the difference and the sum of the
        # logarithms of the two ratios (the contrasts) have opposite signs.
        if not margin:
            (low, high), (low2, high2) = (_compute_limits(e, progress, alpha, effect.slack) for e in change)
            return ((low > 0.0) & (high2 < 0.0)) | ((high < 0.0) & (low2 > 0.0))
        # The metric is not worse by more than the margin if at least one of the two contrasts is below the limit and at
        # least one is above minus the limit. As there are two chances to show this, test each contrast at alpha / 2.
        halves = (_compute_limits(e, progress, alpha / 2.0, effect.slack) for e in change)
        (low, high), (low2, high2) = halves
        return ((high < limit) | (high2 < limit)) & ((low > -limit) | (low2 > -limit))
    limits, (down, up) = _compute_interval(change, progress, alpha), effect.slack
    return limits.low - down > -margin if effect.better == "high" else limits.high + up < margin


def compute_evidence(effect: MetricEffect, progress: Progress, margin: float | None = None) -> Any:
    """Return the evidence for the claim about each cell (slice), as the input to a multiplicity correction.

    The evidence is a p-value or, for a sequential experiment, an e-value.

    Parameters
    ----------
    effect : MetricEffect
        The effect, with arrays over cells.
    progress : Progress
        Defines whether the experiment is sequential.
    margin : float, optional
        The margin of a guardrail: the claim is that the metric is worse by more than the margin. Without a margin, the
        claim is that the metric is better or worse.

    Returns
    -------
    array
        The p-values or e-values. A claim about a calibration ratio needs evidence about both the difference and the sum
        of the logarithms of the two ratios, so the weaker evidence decides. If the estimate itself does not support the
        claim, the p-value is 1 or the e-value is 0.
    """
    # Because of the certified bounds, the null hypothesis is an interval rather than a point. The evidence is computed
    # against the end of this interval that is nearer to the estimate.
    look, change, (down, up) = progress.look, effect.change, effect.slack
    nothing = 1.0 if look is None else 0.0
    limit = margin or 0.0

    def test(one: ScaledEstimate, above: Any, below: Any) -> tuple[Any, Any]:
        """Return the evidence (p-values or e-values) that the value is above `above`, and that it is below `below`."""
        value = np.asarray(one.value)
        nulls = np.where(value > 0.0, above, below)
        values = np.asarray(p_value(one, nulls) if look is None else e_value(one, look, nulls))
        unknown = np.isnan(value) | np.isnan(values)
        return tuple(np.where(unknown | side, values, nothing) for side in (value > above, value < below))  # type: ignore[return-value]

    if isinstance(change, CalibrationContrasts):
        scale = scale_of("relative")
        limit_point = scale.point(limit)
        nulls = scale.value(limit_point + down), scale.value(-limit_point - up)
        weaker = np.maximum if look is None else np.minimum
        stronger = np.minimum if look is None else np.maximum
        (high, low), (high2, low2) = (test(one, *nulls) for one in change)
        worse_by = stronger(weaker(high, high2), weaker(low, low2))
        return worse_by if margin is not None else stronger(worse_by, stronger(weaker(high, low2), weaker(low, high2)))
    high, low = test(change, limit + down, -limit - up)
    if margin is not None:
        return low if effect.better == "high" else high
    return np.minimum(high, low) if look is None else np.maximum(high, low)


def interpret_effect(
    effect: MetricEffect, progress: Progress, *, confidence: float = 0.95, guardrails: int | None = None
) -> ComparisonReading:
    """Return the conclusion about one metric, such as "better" or "held", with its interval.

    Parameters
    ----------
    effect : MetricEffect
        The effect in one cell (slice).
    progress : Progress
        Defines whether the interval is always-valid or for a single look.
    confidence : float
        Nominal coverage of the interval.
    guardrails : int, optional
        If the metric is a guardrail, the total number of guardrails; None for other metrics.

    Raises
    ------
    InvalidInputError
        If `better` is unknown or does not fit the change, the margin is negative, or a metric that is not a guardrail has
        a margin.
    """
    if effect.better not in BETTER or (effect.better == "one") != isinstance(effect.change, CalibrationContrasts):
        raise InvalidInputError(
            f"{effect.name}: better must be 'one' for a change of class CalibrationContrasts, and 'high' or 'low' "
            f"for all others, not {effect.better!r}"
        )
    margin = effect.margin or 0.0
    if not 0.0 <= margin < math.inf:
        raise InvalidInputError(
            f"{effect.name}: the margin, by which the metric may be worse, must be 0 or more, not {margin!r}"
        )
    if margin and guardrails is None:
        raise InvalidInputError(
            f"{effect.name}: the primary metric takes no margin, because margins are for guardrails; leave out the margin"
        )
    alpha = alpha_of(confidence)
    shown = _compute_interval(effect.estimate, progress, alpha)
    total = effect.change.log_sum.reason if isinstance(effect.change, CalibrationContrasts) else None
    if reason := effect.too_few_reason or shown.reason or total:
        word = choose_missing_word(reason) if guardrails is None else "not shown"
        return ComparisonReading(effect.name, word, shown, reason)
    good, bad, neither = ("better", "worse", "unclear") if guardrails is None else ("held", "breached", "undecided")
    # If the number of users is planned, the interval for a single look is valid only once that number is reached.
    if progress.is_early:
        return ComparisonReading(effect.name, TOO_EARLY, shown)
    # A single breached guardrail decides "do not ship", so alpha is divided by the number of guardrails (Bonferroni).
    # "Ship" requires that all guardrails are met, so "held" needs no correction.
    strict = alpha / (guardrails or 1)
    if is_worse(effect, progress, strict, margin):
        return ComparisonReading(effect.name, bad, _compute_interval(effect.estimate, progress, strict))
    return ComparisonReading(effect.name, good if is_not_worse(effect, progress, alpha, margin) else neither, shown)


def build_verdict(
    primary: MetricEffect,
    guardrails: Sequence[MetricEffect] = (),
    progress: Progress = Progress(),  # noqa: B008 - a tuple of constants
    *,
    confidence: float = 0.95,
    treatments: int = 1,
    treatment: str = "treatment",
    sample_ratio: SampleRatio | None = None,
) -> Verdict:
    """Return the decision about a treatment, and a sentence that explains it.

    Parameters
    ----------
    primary : MetricEffect
        Effect on the deciding metric.
    guardrails : sequence of MetricEffect
        Effects on the metrics that must not become worse by more than their margins.
    progress : Progress
        The current, planned and daily numbers of users, and when the experiment is analyzed.
    confidence : float
        Nominal confidence over all treatments together.
    treatments : int
        Number of treatments that are compared with the control.
    treatment : str
        Name of the treatment, for the sentence.
    sample_ratio : SampleRatio, optional
        Result of the sample ratio test. If it has raised an alarm, the verdict is withheld.

    Returns
    -------
    Verdict
        The decision is "ship" if the primary metric is better and every guardrail is met, and "do not" if the primary
        metric is worse or a guardrail is breached. Otherwise it is "keep running", or "inconclusive" at the end. With
        `planned` alone, it is always "keep running" before the planned number of users. It is "one look" if `progress`
        does not say when the experiment is analyzed.

    Raises
    ------
    InvalidInputError
        In the same cases as for `interpret_effect`, if the number of users so far is missing, or if `planned` and
        `final` contradict each other.

    Examples
    --------
    >>> def change(d, se=0.01):
    ...     return ScaledEstimate(d, scale_of("relative").point(d), se, df=63, scale="relative")
    >>> result = build_verdict(
    ...     MetricEffect("ctr", change(0.057)),
    ...     [MetricEffect("latency", change(0.016, 0.004), better="low", margin=0.05)],
    ...     Progress(final=True),
    ... )
    >>> result.decision, result.sentence
    ('ship', 'Ship treatment: ctr +5.7 % (95 % +3.6 % to +7.8 %), and the guardrail is held.')
    >>> build_verdict(MetricEffect("ctr", change(0.01)), (), Progress(70_000, 100_000, 10_000, sequential=True)).sentence
    'Keep running treatment: ctr is unclear, +1.0 % (95 % always -2.2 % to +4.3 %); about 3 days and 30,000 users to go.'
    """
    if treatments < 1:
        raise InvalidInputError(f"treatments must be 1 or more, not {treatments}")
    progress.check()
    share = 1.0 - alpha_of(confidence) / treatments
    primary_reading = interpret_effect(primary, progress, confidence=share)
    guardrail_readings = tuple(
        interpret_effect(g, progress, confidence=share, guardrails=len(guardrails)) for g in guardrails
    )
    if sample_ratio is not None and sample_ratio.alarm:
        return Verdict("withheld", _describe_mismatch(sample_ratio), primary_reading, guardrail_readings, None, None)
    decision = _choose_decision(primary_reading, guardrail_readings, progress)
    users = days = None
    if decision == "keep running":
        open_ones = [
            (c, r)
            for c, r in zip((primary, *guardrails), (primary_reading, *guardrail_readings), strict=True)
            if r.word in OPEN_WORDS
        ]
        users, days = _estimate_remaining([c for c, _ in open_ones], progress, share)
    compared, readings = (primary, *guardrails), (primary_reading, *guardrail_readings)
    sentence = _describe_decision(decision, treatment, compared, readings, progress, users, days)
    return Verdict(decision, sentence, primary_reading, guardrail_readings, users, days)


OPEN_WORDS = ("unclear", "undecided", "too few", "not shown", TOO_EARLY)


def _choose_decision(primary: ComparisonReading, guardrails: tuple[ComparisonReading, ...], progress: Progress) -> str:
    if not progress.allows_decision:
        return "one look"
    if progress.is_early:
        return "keep running"
    if primary.word == "worse" or any(r.word == "breached" for r in guardrails):
        return "do not"
    if primary.word == "better" and all(r.word == "held" for r in guardrails):
        return "ship"
    return "inconclusive" if progress.is_finished else "keep running"


def _estimate_remaining(
    effects: list[MetricEffect], progress: Progress, confidence: float
) -> tuple[float | None, float | None]:
    """Return how many more users and days it takes to decide all undecided metrics, limited by the planned end.

    `effects` are the effects on the undecided metrics. Either number is None if it is unknown.
    """
    if progress.users is None:
        return None, None
    needed = progress.users
    for one in effects:
        # The number of users needed cannot be estimated for a metric with too little data, or for a calibration ratio,
        # where either contrast may decide. Assume that such metrics are decided at the planned end.
        if one.too_few_reason or isinstance(one.change, CalibrationContrasts):
            needed = math.inf
            continue
        limit = (one.margin or 0.0) * (-1.0 if one.better == "high" else 1.0)
        distance, slack = one.change.value - limit, one.slack[0] if one.change.value > limit else one.slack[1]
        # If the certified bounds alone leave the metric undecided, more users do not help, because the bounds do not
        # become narrower.
        if abs(distance) <= slack:
            needed = math.inf
            continue
        limit += math.copysign(slack, distance)
        planned = None if progress.look is None else progress.look.planned
        users = users_to_decide(one.change, progress.users, limit, planned=planned, confidence=confidence)
        needed = max(needed, users)
    if progress.planned is not None:
        needed = progress.planned if progress.is_early else min(needed, progress.planned)
    if math.isinf(needed):
        return None, None
    days = None if progress.per_day is None else days_to_go(progress.users, needed, progress.per_day)
    return float(math.ceil(needed - progress.users)), None if days is None or math.isinf(days) else days


def _format_effect(reading: ComparisonReading, effect: MetricEffect, progress: Progress) -> str:
    """Return the change and its interval as text, such as "+5.7 % (95 % always +3.8 % to +7.6 %)"."""
    return format_interval(reading.interval, effect.estimate.is_relative, progress.sequential)


def _describe_reading(reading: ComparisonReading, effect: MetricEffect, progress: Progress) -> str:
    """Return the conclusion about a metric as a predicate, such as "is better, +5.7 % (95 % +3.6 % to +7.8 %)"."""
    if reading.reason:
        return f"has no interval: {reading.reason}"
    if effect.note:
        return f"is {reading.word}: {effect.note}"
    limit = f"; {_describe_margin(effect)}" if reading.word == "breached" else ""
    return f"is {reading.word}, {_format_effect(reading, effect, progress)}{limit}"


def _describe_mismatch(ratio: SampleRatio) -> str:
    arm = max(ratio.planned, key=lambda a: abs(ratio.shares[a] - ratio.planned[a]))
    return (
        f"No verdict: the arms are not comparable. {arm} has {100.0 * ratio.shares[arm]:.2f} % of the users, but "
        f"{100.0 * ratio.planned[arm]:.2f} % were planned ({ratio.evidence})."
    )


def _describe_decision(
    decision: str,
    treatment: str,
    effects: tuple[MetricEffect, ...],
    readings: tuple[ComparisonReading, ...],
    progress: Progress,
    users: float | None,
    days: float | None,
) -> str:
    primary, kept_guardrails = readings[0], _format_guardrails(len(readings) - 1)
    claims = [_describe_reading(r, c, progress) for r, c in zip(readings, effects, strict=True)]
    names = [primary.name, *(f"the guardrail {r.name}" for r in readings[1:])]
    if decision == "ship":
        return f"Ship {treatment}: {primary.name} {_format_effect(primary, effects[0], progress)}{kept_guardrails}."
    if decision == "do not":
        decisive = next(i for i, r in enumerate(readings) if r.word in ("worse", "breached"))
        return f"Do not ship {treatment}: {names[decisive]} {claims[decisive]}."
    if decision == "one look":
        # If several guardrails are not met, name a breached one first.
        worst = [i for words in (("breached",), OPEN_WORDS) for i, r in enumerate(readings) if i and r.word in words]
        guarded = f", and {names[worst[0]]} {claims[worst[0]]}" if worst else kept_guardrails
        return f"{primary.name} of {treatment} {claims[0]}{guarded}. This is valid only if you look once."
    first = next((i for i, r in enumerate(readings) if r.word in OPEN_WORDS), 0)
    what = f"{names[first]} {claims[first]}"
    if first:
        what = f"{primary.name} is {primary.word}, but {what}"
    if decision == "inconclusive":
        end = "end" if progress.final else "planned end"
        return f"Inconclusive for {treatment} at the {end}: {what}{_describe_detectable(primary, effects[0])}."
    if progress.is_early:
        what = (
            f"{progress.users:,.0f} of {progress.planned:,.0f} users so far, and a single look is valid only at the end"
        )
    return f"Keep running {treatment}: {what}{_format_remaining(users, days)}."


def _describe_margin(effect: MetricEffect) -> str:
    """Return a clause with the change that a guardrail allows, in percent of the control or in units of the metric."""
    margin = effect.margin or 0.0
    size = f"{100.0 * margin:.4g} %" if effect.estimate.is_relative else f"{margin:.4g}"
    if effect.better == "one":
        return f"it may be at most {size} farther from 1"
    return f"it may {'fall' if effect.better == 'high' else 'rise'} by at most {size}"


def _format_guardrails(count: int) -> str:
    if count < 2:
        return ", and the guardrail is held" if count else ""
    return f", and {'both' if count == 2 else f'all {count}'} guardrails are held"


def _describe_detectable(primary: ComparisonReading, effect: MetricEffect) -> str:
    """Return a clause with the difference detectable with 80 % power; "" unless the primary metric is "unclear"."""
    limits, change = primary.interval, effect.estimate
    if limits.reason or effect.note or primary.word != "unclear":
        return ""
    scale = scale_of(change.scale)
    half = max(scale.point(limits.high) - change.point, change.point - scale.point(limits.low))
    shown = scale.value(half + POWER_QUANTILE * change.standard_error) + max(effect.slack)
    text = choose_format(limits, change.is_relative)(shown, "")
    return f"; a difference over {text} would most likely have been detected"


def _format_remaining(users: float | None, days: float | None) -> str:
    parts = []
    if days is not None:
        parts.append(f"{days:,.0f} day{'' if days == 1.0 else 's'}")
    if users is not None:
        parts.append(f"{users:,.0f} users")
    return f"; about {' and '.join(parts)} to go" if parts else ""
