"""The one decision of an experiment, and the sentence that says it: a function of the comparisons alone.

Ship asks for all at once: the primary metric better and every guardrail held. Such a claim is false with half of alpha
at most, uncorrected (intersection-union). Do not ship asks for any one: so what breaches a guardrail is shown at alpha
divided by their number. Each of several treatments has its share of alpha.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..errors import InvalidInputError
from ..numerics.student import normal_quantile
from ..reading.interval import Interval, alpha_of
from ..reading.link_functions import scale_of
from .calibration import Calibrations
from .estimates import Measured, interval, p_value
from .number_format import digits, spelled
from .power import days_to_go, users_to_decide
from .sample_ratio import SampleRatio
from .sequential import Look, always_valid, e_value

__all__ = ["LIKELY", "Compared", "ComparisonReading", "Progress", "Verdict", "evidence", "read", "verdict"]

BETTER = ("high", "low", "one")
LIKELY = normal_quantile(0.8)
"""How many standard errors beyond the half width of its interval a difference is shown four times in five."""


class Compared(NamedTuple):
    """One metric of the treatment against the control.

    Parameters
    ----------
    name : str
        Of the metric.
    change : Measured or Calibrations
        Treatment minus control; for a calibration, both contrasts.
    better : {"high", "low", "one"}
        Which values are good; "one" asks for the contrasts of a calibration.
    margin : float or None
        For a guardrail: by how much it may be worse, as a relative difference where the change is one, else in units of
        the metric; for a calibration, by how much farther from 1. One of 0 is held only by what is better.
    few : str or None
        Why there is too little data to read it.
    slack : tuple of float
        How far below and above the estimate the change may lie for what was counted alone, by the certified bounds of
        both sides; of a calibration on the scale of its contrasts, to either side of both.
    """

    name: str
    change: Measured | Calibrations
    better: str = "high"
    margin: float | None = None
    few: str | None = None
    slack: tuple[Any, Any] = (0.0, 0.0)

    @property
    def estimate(self) -> Measured:
        """The difference itself."""
        return self.change.change if isinstance(self.change, Calibrations) else self.change


class Progress(NamedTuple):
    """How far the experiment is.

    Parameters
    ----------
    users : float or None
        Counted so far, in both arms.
    planned : float or None
        At the planned end.
    per_day : float or None
        New users a day, as observed.
    sequential : bool
        Whether intervals are those valid at all looks; that needs both users and planned ones.
    over : bool
        Whether it has ended, with as many users as there are.
    tuned : float
        The confidence for which such intervals are narrowest.
    """

    users: float | None = None
    planned: float | None = None
    per_day: float | None = None
    sequential: bool = False
    over: bool = False
    tuned: float = 0.95

    @property
    def ended(self) -> bool:
        """Whether the planned users are there, or no more will come."""
        return self.over or (self.users is not None and self.planned is not None and self.users >= self.planned)

    @property
    def look(self) -> Look | None:
        """Which look this is, of what is looked at all along; None for one look."""
        if not self.sequential:
            return None
        if self.users is None or self.planned is None:
            raise InvalidInputError("sequential intervals need users=, those so far, and planned=")
        return Look(self.users, self.planned, self.tuned)

    @property
    def early(self) -> bool:
        """Whether it is too early for the interval of one look."""
        return not self.sequential and self.users is not None and self.planned is not None and not self.ended


class ComparisonReading(NamedTuple):
    """What one comparison says.

    Parameters
    ----------
    name : str
        Of the metric.
    word : str
        "better", "worse", "unclear", "too few"; of a guardrail "held", "breached", "undecided", "too few".
    interval : Interval
        Of the change, as it was read; at the confidence that allows for the other guardrails, if it is breached.
    reason : str or None
        Why it is too few.
    """

    name: str
    word: str
    interval: Interval
    reason: str | None = None


class Verdict(NamedTuple):
    """What to do.

    Parameters
    ----------
    decision : str
        "ship", "do not", "keep running", "nothing shown" (at the planned end), or "withheld".
    sentence : str
        The same in words, with the figures that decide.
    primary : Reading
        Of the primary metric.
    guardrails : tuple of Reading
        In the order given.
    more_users, more_days : float or None
        Until what is open would be decided, if estimates stay as they are, at most until the planned end; None where it
        cannot be said.
    """

    decision: str
    sentence: str
    primary: ComparisonReading
    guardrails: tuple[ComparisonReading, ...]
    more_users: float | None
    more_days: float | None


def _between(estimate: Measured, progress: Progress, alpha: float) -> Interval:
    """The interval that is read, at the confidence asked for."""
    look = progress.look
    return interval(estimate, 1.0 - alpha) if look is None else always_valid(estimate, look, 1.0 - alpha)


def _ends(estimate: Measured, progress: Progress, alpha: float, slack: tuple[Any, Any]) -> tuple[Any, Any]:
    """The limits as points on the scale, as far apart as the certified bounds put them."""
    found = _between(estimate, progress, alpha)
    scale = scale_of(estimate.scale)
    return scale.point(found.low) - slack[0], scale.point(found.high) + slack[1]


def worse(compared: Compared, progress: Progress, alpha: float, margin: float = 0.0) -> Any:
    """Return whether the interval shows it to be worse by more than the margin; of cells side by side, each."""
    change = compared.change
    if isinstance(change, Calibrations):
        limit = scale_of("relative").point(margin)
        (low, high), (low2, high2) = (_ends(e, progress, alpha, compared.slack) for e in change)
        return ((low > limit) & (low2 > limit)) | ((high < -limit) & (high2 < -limit))
    found, (down, up) = _between(change, progress, alpha), compared.slack
    return found.high + up < -margin if compared.better == "high" else found.low - down > margin


def not_worse(compared: Compared, progress: Progress, alpha: float, margin: float = 0.0) -> Any:
    """Return whether it shows it to be worse by less than the margin; with a margin of 0, to be better."""
    change = compared.change
    if isinstance(change, Calibrations):
        limit = scale_of("relative").point(margin)
        if not margin:  # the contrasts on opposite sides of 0
            (low, high), (low2, high2) = (_ends(e, progress, alpha, compared.slack) for e in change)
            return ((low > 0.0) & (high2 < 0.0)) | ((high < 0.0) & (low2 > 0.0))
        halves = (_ends(e, progress, alpha / 2.0, compared.slack) for e in change)  # either may be the one
        (low, high), (low2, high2) = halves
        return ((high < limit) | (high2 < limit)) & ((low > -limit) | (low2 > -limit))
    found, (down, up) = _between(change, progress, alpha), compared.slack
    return found.low - down > -margin if compared.better == "high" else found.high + up < margin


def evidence(compared: Compared, progress: Progress, margin: float | None = None) -> Any:
    """Return the p-value, or at all looks the e-value, of what is said of each cell: what `adjust` is about.

    Parameters
    ----------
    compared : Compared
        Of cells side by side.
    progress : Progress
        Which test it is.
    margin : float, optional
        Of a guardrail: then that it is worse by more. Without, that it is better, or worse.

    Returns
    -------
    array
        Of the contrasts of a calibration, which are both needed, the weaker one. Where nothing is said, because the
        estimate does not say it, 1, or 0 of e-values.
    """
    look, change, (down, up) = progress.look, compared.change, compared.slack
    nothing = 1.0 if look is None else 0.0
    limit = margin or 0.0

    def test(one: Measured, above: Any, below: Any) -> tuple[Any, Any]:
        """The evidence for being above the one null, and for being below the other: two-sided, of the one that is."""
        value = np.asarray(one.value)
        nulls = np.where(value > 0.0, above, below)
        found = np.asarray(p_value(one, nulls) if look is None else e_value(one, look, nulls))
        past = np.isnan(value) | np.isnan(found)
        return tuple(np.where(past | side, found, nothing) for side in (value > above, value < below))  # type: ignore[return-value]

    if isinstance(change, Calibrations):
        scale = scale_of("relative")
        far = scale.point(limit)
        nulls = scale.value(far + down), scale.value(-far - up)
        weaker = np.maximum if look is None else np.minimum
        stronger = np.minimum if look is None else np.maximum
        (high, low), (high2, low2) = (test(one, *nulls) for one in change)
        worse_by = stronger(weaker(high, high2), weaker(low, low2))
        return worse_by if margin is not None else stronger(worse_by, stronger(weaker(high, low2), weaker(low, high2)))
    high, low = test(change, limit + down, -limit - up)
    if margin is not None:
        return low if compared.better == "high" else high
    return np.minimum(high, low) if look is None else np.maximum(high, low)


def read(
    compared: Compared, progress: Progress, *, confidence: float = 0.95, guardrails: int | None = None
) -> ComparisonReading:
    """Return what one comparison says.

    Parameters
    ----------
    compared : Compared
        The comparison.
    progress : Progress
        Which interval to read.
    confidence : float
        Of the interval.
    guardrails : int, optional
        How many guardrails there are, if it is one of them.

    Raises
    ------
    InvalidInputError
        If `better` is unknown or does not fit, or the margin is negative, or not that of a guardrail.
    """
    if compared.better not in BETTER or (compared.better == "one") != isinstance(compared.change, Calibrations):
        raise InvalidInputError(
            f"{compared.name}: better must be 'high' or 'low', or 'one' with the contrasts of a calibration, "
            f"not {compared.better!r}"
        )
    margin = compared.margin or 0.0
    if not 0.0 <= margin < math.inf:
        raise InvalidInputError(f"{compared.name}: a margin says how much worse it may be, 0 or more; it is {margin!r}")
    if margin and guardrails is None:
        raise InvalidInputError(f"{compared.name}: the primary metric must be better; margins are for guardrails")
    alpha = alpha_of(confidence)
    shown = _between(compared.estimate, progress, alpha)
    total = compared.change.total.reason if isinstance(compared.change, Calibrations) else None
    if reason := compared.few or shown.reason or total:
        return ComparisonReading(compared.name, "too few", shown, reason)
    good, bad, neither = ("better", "worse", "unclear") if guardrails is None else ("held", "breached", "undecided")
    if progress.early:  # the interval of one look is for the end
        return ComparisonReading(compared.name, neither, shown)
    strict = alpha / (guardrails or 1)
    if worse(compared, progress, strict, margin):
        return ComparisonReading(compared.name, bad, _between(compared.estimate, progress, strict))
    return ComparisonReading(compared.name, good if not_worse(compared, progress, alpha, margin) else neither, shown)


def verdict(
    primary: Compared,
    guardrails: Sequence[Compared] = (),
    progress: Progress = Progress(),  # noqa: B008 - a tuple of constants
    *,
    confidence: float = 0.95,
    treatments: int = 1,
    treatment: str = "treatment",
    sample_ratio: SampleRatio | None = None,
) -> Verdict:
    """Return what to do with a treatment, and the sentence that says it.

    Parameters
    ----------
    primary : Compared
        The metric that decides.
    guardrails : sequence of Compared
        The metrics that must not become worse than their margins.
    progress : Progress
        Users so far, planned, and a day.
    confidence : float
        Nominal: of the whole, over all treatments.
    treatments : int
        How many are compared with the control.
    treatment : str
        Its name, for the sentence.
    sample_ratio : SampleRatio, optional
        Whether users fell to arms as planned: at its alarm the verdict is withheld.

    Returns
    -------
    Verdict
        Ship: primary better and every guardrail held. Do not: primary worse or a guardrail breached. Else keep running,
        or at the planned end nothing shown. With the interval of one look nothing is said before the planned end.

    Raises
    ------
    InvalidInputError
        As `read`; or if `sequential` is asked for without users, so far and planned.

    Examples
    --------
    >>> def change(d, se=0.01):
    ...     return Measured(d, scale_of("relative").point(d), se, df=63, scale="relative")
    >>> found = verdict(
    ...     Compared("ctr", change(0.057)),
    ...     [Compared("latency", change(0.016, 0.004), better="low", margin=0.05)],
    ... )
    >>> found.decision, found.sentence
    ('ship', 'Ship treatment: ctr +5.7 % (95 % +3.6 % to +7.8 %), and the guardrail is held.')
    >>> verdict(Compared("ctr", change(0.01)), (), Progress(70_000, 100_000, 10_000, sequential=True)).sentence
    'Keep running: ctr is unclear, +1.0 % (95 % always -2.2 % to +4.3 %); about 3 more days, 30,000 users.'
    """
    if treatments < 1:
        raise InvalidInputError(f"treatments must be 1 or more, not {treatments}")
    share = 1.0 - alpha_of(confidence) / treatments
    main = read(primary, progress, confidence=share)
    kept = tuple(read(g, progress, confidence=share, guardrails=len(guardrails)) for g in guardrails)
    if sample_ratio is not None and sample_ratio.alarm:
        return Verdict("withheld", _mismatch(sample_ratio), main, kept, None, None)
    decision = _decision(main, kept, progress)
    users = days = None
    if decision == "keep running":
        open_ones = [(c, r) for c, r in zip((primary, *guardrails), (main, *kept), strict=True) if r.word in OPEN]
        users, days = _to_go([c for c, _ in open_ones], progress, share)
    compared, readings = (primary, *guardrails), (main, *kept)
    told = _sentence(decision, treatment, compared, readings, progress, users, days)
    return Verdict(decision, told, main, kept, users, days)


OPEN = ("unclear", "undecided", "too few")


def _decision(main: ComparisonReading, kept: tuple[ComparisonReading, ...], progress: Progress) -> str:
    if progress.early:
        return "keep running"
    if main.word == "worse" or any(r.word == "breached" for r in kept):
        return "do not"
    if main.word == "better" and all(r.word == "held" for r in kept):
        return "ship"
    return "nothing shown" if progress.ended else "keep running"


def _to_go(compared: list[Compared], progress: Progress, confidence: float) -> tuple[float | None, float | None]:
    """Users and days until what is open is decided, or until the end."""
    if progress.users is None:
        return None, None
    needed = progress.users
    for one in compared:
        if one.few or isinstance(
            one.change, Calibrations
        ):  # who knows; or two contrasts, either may decide: at the end
            needed = math.inf
            continue
        limit = (one.margin or 0.0) * (-1.0 if one.better == "high" else 1.0)
        apart, slack = one.change.value - limit, one.slack[0] if one.change.value > limit else one.slack[1]
        if abs(apart) <= slack:  # no user makes a certified bound narrower
            needed = math.inf
            continue
        limit += math.copysign(slack, apart)
        planned = progress.planned if progress.sequential else None
        found = users_to_decide(one.change, progress.users, limit, planned=planned, confidence=confidence)
        needed = max(needed, found)
    if progress.planned is not None:
        needed = progress.planned if progress.early else min(needed, progress.planned)
    if math.isinf(needed):
        return None, None
    days = None if progress.per_day is None else days_to_go(progress.users, needed, progress.per_day)
    return float(math.ceil(needed - progress.users)), None if days is None or math.isinf(days) else days


def _figures(reading: ComparisonReading, compared: Compared, progress: Progress) -> str:
    """The change with its interval: +5.7 % (95 % always +3.8 % to +7.6 %)."""
    return spelled(reading.interval, compared.estimate.scale == "relative", progress.sequential)


def _mismatch(ratio: SampleRatio) -> str:
    arm = max(ratio.planned, key=lambda a: abs(ratio.shares[a] - ratio.planned[a]))
    return (
        f"No verdict: the arms are not comparable. {arm} has {100.0 * ratio.shares[arm]:.2f} % of the users where "
        f"{100.0 * ratio.planned[arm]:.2f} % were planned (e = {ratio.e_value:.2g}, the alarm is at 100)."
    )


def _sentence(
    decision: str,
    treatment: str,
    compared: tuple[Compared, ...],
    readings: tuple[ComparisonReading, ...],
    progress: Progress,
    users: float | None,
    days: float | None,
) -> str:
    told = [_figures(r, c, progress) for r, c in zip(readings, compared, strict=True)]
    main = readings[0]
    if decision == "ship":
        return f"Ship {treatment}: {main.name} {told[0]}{_all_held(len(readings) - 1)}."
    if decision == "do not":
        bad = next(i for i, r in enumerate(readings) if r.word in ("worse", "breached"))
        limit = f"; {_allowed(compared[bad])} is allowed" if bad else ""
        return f"Do not ship {treatment}: {readings[bad].name} is {readings[bad].word}, {told[bad]}{limit}."
    first = next((i for i, r in enumerate(readings) if r.word in OPEN), 0)
    what = f"{readings[first].name} is {readings[first].word}, {told[first]}"
    if readings[first].reason:
        what = f"{readings[first].name}: {readings[first].reason}"
    if first:
        what = f"{main.name} is {main.word}, but {what}"
    if decision == "nothing shown":
        return f"Nothing shown at the planned end: {what}{_would_have_shown(main, compared[0])}."
    if progress.early:
        what = f"{progress.users:,.0f} of {progress.planned:,.0f} users, and one look is for the end"
    return f"Keep running: {what}{_until(users, days)}."


def _allowed(compared: Compared) -> str:
    margin = compared.margin or 0.0
    return f"{100.0 * margin:.4g} %" if compared.estimate.scale == "relative" else f"{margin:.4g}"


def _all_held(count: int) -> str:
    if count < 2:
        return ", and the guardrail is held" if count else ""
    return f", and {'both' if count == 2 else f'all {count}'} guardrails are held"


def _would_have_shown(main: ComparisonReading, compared: Compared) -> str:
    """What the primary metric would have shown four times in five."""
    found, change = main.interval, compared.estimate
    if found.reason or main.word != "unclear":
        return ""
    scale = scale_of(change.scale)
    half = max(scale.point(found.high) - change.point, change.point - scale.point(found.low))
    shown = scale.value(half + LIKELY * change.standard_error) + max(compared.slack)
    return f"; a difference over {digits(found, change.scale == 'relative')(shown, '')} would most likely have shown"


def _until(users: float | None, days: float | None) -> str:
    parts = []
    if days is not None:
        parts.append(f"{days:,.0f} more day{'' if days == 1.0 else 's'}")
    if users is not None:
        parts.append(f"{users:,.0f} {'' if parts else 'more '}users")
    return f"; about {', '.join(parts)}" if parts else ""
