"""Power analysis: the users needed to detect a difference, the smallest detectable difference, and the days to go.

For a single look at the end, the usual rule holds: the detectable difference is t_(1 - alpha/2) + t_power standard errors.

With repeated looks, the estimate is modeled as a Brownian motion whose drift is the true difference. A difference is
detected when the motion crosses the boundary of the always-valid interval before the planned end. The module searches
for the drift at which the probability of crossing equals the requested power. This probability comes from the integral
equation of the first passage time. A motion that is observed only at discrete looks crosses less often than one that is
observed continuously. Siegmund's correction accounts for this by raising the boundary by 0.583 standard deviations of
the change between looks.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..collect.accumulator import definition_of
from ..collect.metric_like import MetricLike, states_of
from ..errors import InvalidInputError
from ..numerics.elementary import exp, log1p
from ..numerics.student_t import normal_quantile, t_quantile
from ..reading.about import about_of
from ..reading.interval import alpha_of, critical_value
from ..reading.link_functions import scale_of
from ..reading.replicates import Sample
from .differences import estimate_sample
from .estimates import ScaledEstimate
from .sequential import Look, boundary, sequential_reach

__all__ = [
    "PowerPlan",
    "check_range",
    "days_to_go",
    "power",
    "read_estimate",
    "smallest_effect",
    "users_needed",
    "users_to_decide",
    "users_to_hold",
]

Floats = NDArray[np.float64]
EVEN = (0.5, 0.5)
# The number of grid points for the integral equation. With 64, the error in the number of users is below 0.1 %.
STEPS = 64
HALVINGS = 40
# Siegmund's correction: a process that is observed only at discrete looks crosses the boundary less often than one that
# is observed continuously. Raising the boundary by this many standard deviations of the change between two looks has
# the same effect.
OVERSHOOT = 0.5826
ROOT_2_PI = 2.5066282746310005024
# If an experiment needs more than this multiple of its current number of users, the number needed is reported as inf.
MAX_MULTIPLE = 1e9


class PowerPlan(NamedTuple):
    """The size of an experiment that detects a difference with a given power: the result of a power analysis.

    Parameters
    ----------
    users : float
        Total number of users in both arms.
    mean_users : float
        Mean number of users if the experiment stops at the first look that shows the difference.
    relative : float
        The detectable relative difference.
    power : float
        Probability of detecting the difference.
    """

    users: float
    mean_users: float
    relative: float
    power: float

    @property
    def sentence(self) -> str:
        """The plan in one sentence."""
        sooner = f" ({self.mean_users:,.0f} on average with early stopping)" if self.mean_users < self.users else ""
        return (
            f"An experiment with {self.users:,.0f} users in both arms together{sooner} detects a difference of "
            f"{100.0 * self.relative:+.3g} % with a power of {100.0 * self.power:g} %"
        )


def power(
    holder: MetricLike,
    metric: str | None = None,
    *,
    relative: float = 0.01,
    users: float | None = None,
    planned: float | None = None,
    power: float = 0.8,
    confidence: float = 0.95,
    shares: tuple[float, float] = EVEN,
    sequential: bool = False,
    looks: int = 100,
) -> PowerPlan:
    """Return the number of users needed to detect a difference, or the difference that `planned` users can detect.

    Parameters
    ----------
    holder : metric or collection, usually Sharded
        Metric of one population that will be split into two arms, for example the log of the past few weeks.
    metric : str, optional
        Name of the metric, if `holder` has several.
    relative : float
        The relative difference to detect: 0.01 is 1 % more, -0.01 is 1 % less.
    users : float, optional
        Number of units (users) in the data. It is required for metrics with shards. For other metrics, the default is
        the number of counted rows.
    planned : float, optional
        Planned total number of users in both arms. If it is passed, the function returns the smallest increase that
        this number can detect, and `relative` is not used.
    power, confidence : float
        Probability that the interval excludes 0 if the difference exists, and nominal coverage of the interval.
    shares : tuple of two floats
        Share of all users in each arm. For example, (0.1, 0.1) puts 10 % of all users in each arm. Only the ratio of the
        shares matters, because users outside the experiment are not counted.
    sequential : bool
        Whether the experiment uses always-valid intervals at every look rather than a single look at the end.
    looks : int
        Number of looks until the end.

    Returns
    -------
    PowerPlan
        The total number of users in both arms, the mean number of users if the experiment stops at the first look that
        shows the difference, the relative difference, and the power.

    Raises
    ------
    InvalidInputError
        If the metric does not exist or has no standard error, `users` is missing, or the difference would take the
        metric above its maximum, such as an AUC above 1.

    Notes
    -----
    users = (t_(1 - alpha / 2) + t_power)^2 * V * (1 / s + 1 / (1 - s)) / ln(1 + relative)^2. Here V is the number of
    units times the squared standard error of the logarithm of the value, and s is the share of one arm among the users
    in both arms. A sequential experiment needs 1.6 to 1.8 times as many users at the end as a single look, and stops
    after 1.0 to 1.2 times as many on average. A call takes 30 ms, and the first sequential call 0.2 s.

    Examples
    --------
    >>> import numpy as np, streammetrics as sm
    >>> user = np.arange(50_000) % 5_000
    >>> click = np.random.default_rng(1).random(50_000) < 0.1
    >>> rate = sm.Sharded(sm.CTR(), unit="user").update(y_true=click, user=user)
    >>> plan = sm.power(rate, users=5_000, relative=0.05)
    >>> 8_000 < plan.users < 16_000
    True
    >>> round(sm.power(rate, users=5_000, planned=plan.users).relative, 4)
    0.05
    """
    samples = {s.name: s for s in definition_of(holder).samples(states_of(holder))}
    if metric is None and len(samples) == 1:
        metric = next(iter(samples))
    if metric not in samples:
        raise InvalidInputError(f"metric= must be one of {', '.join(samples)}, not {metric!r}")
    sample = samples[metric]
    estimate, counted = read_estimate(sample, users)
    options: dict[str, Any] = {"power": power, "confidence": confidence, "shares": shares}
    options["looks"] = looks if sequential else None
    if planned is not None:
        plan = smallest_effect(estimate, counted, planned, **options)
        subject = f"{planned:,.0f} users are too few: the smallest detectable difference"
        check_range(sample, plan.relative, f"{subject} of {100.0 * plan.relative:+,.4g} %", "planned= with more users")
    else:
        plan = users_needed(estimate, counted, relative=relative, **options)
        subject = f"relative={relative} is too large: a difference of {100.0 * relative:+,.4g} %"
        check_range(sample, relative, subject, "a smaller relative=")
    return plan


def read_estimate(sample: Sample, users: float | None) -> tuple[ScaledEstimate, float]:
    """Return the estimate of a metric on the scale "log", and the number of units (users) that it was computed from.

    `users` is the number of units. It may be None for a metric without shards, whose units are rows, queries or groups.
    """
    if len(sample.keys) != 1:
        raise InvalidInputError(
            f"expected a metric without slices, found {len(sample.keys):,} slices; pass one slice, or their `total`"
        )
    if users is None and sample.shards is not None:
        raise InvalidInputError(
            f"users= is missing: pass the number of distinct values of {sample.shards.plan[0]} in the data"
        )
    counted = float(sample.rows[0]) if users is None else float(users)
    return next(estimate_sample(sample, "log").split_cells()), counted


def check_range(sample: Sample, relative: float, subject: str, remedy: str) -> None:
    """Raise InvalidInputError if a relative difference would take the value of a metric above its maximum.

    The message begins with `subject` and ends with `remedy`, an argument that the user should pass.
    """
    value, most = float(sample.values[0]), about_of(sample.metric).value_range[1]
    if most is not None and value * (1.0 + relative) > most:
        raise InvalidInputError(
            f"{subject} would take {sample.name} from {value:.4g} to {value * (1.0 + relative):.4g}, but its maximum is "
            f"{most:g}; pass {remedy}"
        )


def users_needed(
    estimate: ScaledEstimate,
    users: float,
    relative: float = 0.01,
    *,
    power: float = 0.8,
    confidence: float = 0.95,
    shares: tuple[float, float] = EVEN,
    looks: int | None = None,
) -> PowerPlan:
    """Return the number of users needed to detect a relative difference, from an estimate and its number of users.

    Parameters
    ----------
    estimate : ScaledEstimate
        Either the metric of one population that will be split into arms, on the scale "log"; or an observed difference
        between two arms, on the scale "relative".
    users : float
        Number of users that the estimate was computed from; for a difference, the total of both arms.
    relative : float
        The relative difference to detect: 0.01 is 1 % more, -0.01 is 1 % less.
    power : float
        Probability of detecting the difference.
    confidence : float
        Nominal coverage of the two-sided interval, which must exclude 0.
    shares : tuple of two floats
        Share of all users in each arm.
    looks : int, optional
        Number of looks until the end, with `always_valid` intervals; by default one look at the end.

    Raises
    ------
    InvalidInputError
        If the estimate has no error, or a parameter is out of range.

    Notes
    -----
    At 80 % power, a sequential experiment needs 1.6 to 1.8 times as many users as a single look, and stops after 1.0 to
    1.2 times as many on average.

    Examples
    --------
    >>> ctr = ScaledEstimate(0.02, -3.912, 0.01, df=63, scale="log")
    >>> once = users_needed(ctr, 100_000, relative=0.02)
    >>> daily = users_needed(ctr, 100_000, relative=0.02, looks=28)
    >>> f"{once.users:,.0f}", round(daily.users / once.users, 2), round(daily.mean_users / once.users, 2)
    ('826,027', 1.74, 1.1)
    """
    if not relative > -1.0 or relative == 0.0 or math.isinf(relative):
        raise InvalidInputError(f"relative must be above -1 and not 0, such as 0.01 for 1 % more; found {relative!r}")
    unit = _variance_per_user(estimate, users, shares)
    drift, stop = _find_drift(estimate.df, alpha_of(confidence), power, looks)
    ratio = drift / float(log1p(np.float64(relative)))
    needed = unit * ratio * ratio
    return PowerPlan(float(math.ceil(needed)), float(math.ceil(needed * stop)), relative, power)


def users_to_hold(
    estimate: ScaledEstimate,
    users: float,
    margin: float,
    *,
    is_ratio: bool = False,
    confidence: float = 0.95,
    power: float = 0.8,
    shares: tuple[float, float] = EVEN,
    looks: int | None = None,
) -> PowerPlan:
    """Return the number of users needed to show that a guardrail is met, if the treatment does not change the metric.

    A guardrail is a metric that must not become worse by more than a margin.

    Parameters
    ----------
    estimate, users, confidence, power, shares, looks
        The same as for `users_needed`.
    margin : float
        The relative difference that the interval must exclude: negative if high values are better, otherwise positive.
    is_ratio : bool
        Whether the metric is a calibration ratio, whose best value is 1.

    Examples
    --------
    >>> ctr = ScaledEstimate(0.02, -3.912, 0.01, df=63, scale="log")
    >>> users_to_hold(ctr, 100_000, -0.02).users == users_needed(ctr, 100_000, -0.02).users
    True
    """
    if margin == 0.0:
        raise InvalidInputError(
            "a guardrail with a margin of 0 is held only if it becomes better; pass a larger margin"
        )
    # For a calibration ratio, either of two contrasts can show that the guardrail is met: the difference or the sum of
    # the logarithms of the two ratios. Each contrast is therefore tested at alpha / 2 (see `is_not_worse`). Plan for
    # ratios far from 1, where the power is lowest because only the difference can show it.
    own = 0.5 * (1.0 + confidence) if is_ratio else confidence
    return users_needed(estimate, users, margin, power=power, confidence=own, shares=shares, looks=looks)


def smallest_effect(
    estimate: ScaledEstimate,
    users: float,
    planned: float,
    *,
    power: float = 0.8,
    confidence: float = 0.95,
    shares: tuple[float, float] = EVEN,
    looks: int | None = None,
) -> PowerPlan:
    """Return the smallest relative increase that `planned` users can detect.

    The other parameters are the same as for `users_needed`.

    Parameters
    ----------
    planned : float
        Planned total number of users in both arms.

    Examples
    --------
    >>> ctr = ScaledEstimate(0.02, -3.912, 0.01, df=63, scale="log")
    >>> round(smallest_effect(ctr, 100_000, 826_027).relative, 4)
    0.02
    """
    if not planned > 0.0:
        raise InvalidInputError(f"planned, the number of users, must be more than 0, not {planned!r}")
    unit = _variance_per_user(estimate, users, shares)
    drift, stop = _find_drift(estimate.df, alpha_of(confidence), power, looks)
    return PowerPlan(planned, planned * stop, scale_of("relative").value(drift * math.sqrt(unit / planned)), power)


def days_to_go(users: float, planned: float, per_day: float) -> float:
    """Return the number of days until `planned` users are reached, with `per_day` new users a day; inf means never.

    Examples
    --------
    >>> days_to_go(70_000, 100_000, 4_000)
    8.0
    """
    if users >= planned:
        return 0.0
    return float(math.ceil((planned - users) / per_day)) if per_day > 0.0 and math.isfinite(planned) else math.inf


def users_to_decide(
    estimate: ScaledEstimate, users: float, null: float = 0.0, *, planned: float | None = None, confidence: float = 0.95
) -> float:
    """Return the total number of users at which the interval would exclude `null` if the estimate stayed the same.

    Parameters
    ----------
    estimate : ScaledEstimate
        The current estimate of the difference.
    users : float
        Number of users so far, from which the estimate was computed.
    null : float
        The value that the interval must exclude: 0, or the change at which a guardrail is breached.
    planned : float, optional
        Planned number of users, for the always-valid interval; by default, the interval for a single look is used.
    confidence : float
        Nominal coverage of the interval.

    Returns
    -------
    float
        `users` if the interval already excludes `null`; inf if the estimate equals `null` or has no standard error.

    Examples
    --------
    >>> change = ScaledEstimate(-0.027, -0.027, 0.0278, df=63)
    >>> round(users_to_decide(change, 7.0, -0.05), 1)
    40.8
    """
    alpha_of(confidence)
    distance = abs(estimate.point - scale_of(estimate.scale).point(null))
    # The interval of a quantile that jumps between stored values does not shrink with the square root of the number of
    # users, so the number needed is unknown.
    if estimate.reason or estimate.sets is not None or not distance:
        return math.inf

    def covers_null(times: float) -> bool:
        if planned is None:
            width = critical_value(confidence, estimate.df)
        else:
            width = sequential_reach(Look(users * times, planned, confidence), confidence, estimate.df)
        return bool(width * estimate.standard_error / math.sqrt(times) > distance)

    if not covers_null(1.0):
        return users
    # Find the smallest multiple of the current number of users at which the interval excludes `null`, by doubling and
    # bisection.
    high = 2.0
    while covers_null(high):
        high *= 2.0
        if high > MAX_MULTIPLE:
            return math.inf
    low = high / 2.0
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if covers_null(middle) else (low, middle)
    return users * high


def _variance_per_user(estimate: ScaledEstimate, users: float, shares: tuple[float, float]) -> float:
    """Return the variance of log a - log b, times the total number of users in the experiment.

    a and b are the values of the metric in the two arms. To get the variance for an experiment of another size, divide
    the result by its number of users. `users` is the number of users that the estimate was computed from, and `shares`
    contains the share of users in each arm.
    """
    if estimate.reason:
        raise InvalidInputError(f"a power analysis needs a standard error, which is missing: {estimate.reason}")
    if estimate.sets is not None:
        raise InvalidInputError(
            "a power analysis needs a standard error, which a quantile that jumps between stored values does not have; "
            "use a mean or a share of the values"
        )
    if estimate.scale not in ("log", "relative"):
        raise InvalidInputError(
            f"expected an estimate on the scale 'log' or 'relative', found the scale {estimate.scale!r}"
        )
    if not (users > 0.0 and min(shares) > 0.0 and math.fsum(shares) <= 1.0):
        raise InvalidInputError(
            f"users must be more than 0, and shares must be positive and add up to at most 1; "
            f"found users={users} and shares={shares}"
        )
    # Divide the shares by their sum, because users outside the experiment are not counted.
    split = math.fsum(shares) * (1.0 / shares[0] + 1.0 / shares[1]) if estimate.scale == "log" else 1.0
    return float(estimate.standard_error * estimate.standard_error * users * split)


def _find_drift(df: float, alpha: float, power: float, looks: int | None) -> tuple[float, float]:
    """Return the detectable difference, in multiples of the standard error at the planned end, and the mean stopping time.

    The mean stopping time is expressed as a share of the planned users; it is 1 for a single look (`looks` is None).
    `df` is the number of degrees of freedom.
    """
    if not alpha / 2.0 < power < 1.0:
        raise InvalidInputError(f"power must be between {alpha / 2.0:g} (half of 1 - confidence) and 1, not {power!r}")
    once = t_quantile(1.0 - alpha / 2.0, df) + t_quantile(power, df)
    if looks is None:
        return once, 1.0
    if looks < 1:
        raise InvalidInputError(f"looks must be 1 or more, not {looks}")
    # The sequential drift assumes that the standard error is known. To account for few degrees of freedom, multiply the
    # drift by the ratio of the t quantiles to the normal quantiles.
    drift, stop = _find_sequential_drift(alpha, power, looks)
    return drift * once / (normal_quantile(1.0 - alpha / 2.0) + normal_quantile(power)), stop


@lru_cache(maxsize=64)
def _find_sequential_drift(alpha: float, power: float, looks: int) -> tuple[float, float]:
    """Return the smallest drift that repeated looks detect with the given power, and the mean stopping time.

    The drift is the true difference divided by its standard error at the planned end. This error is assumed to be
    known.
    """
    low, high = 0.0, 64.0
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if crossing_probability(middle, alpha, looks)[0] < power else (low, middle)
    return high, crossing_probability(high, alpha, looks)[1]


def crossing_probability(drift: float, alpha: float, looks: int) -> tuple[float, float]:
    """Return the probability that an always-valid interval excludes 0 before the end, and the mean stopping time.

    Parameters
    ----------
    drift : float
        The true difference, in units of the standard error at the planned end.
    alpha : float
        One minus the nominal coverage of the interval.
    looks : int
        Number of evenly spaced looks until the end.

    Returns
    -------
    tuple of float
        The probability, and the mean stopping time as a share of the planned users.

    Notes
    -----
    For a Brownian motion W and a boundary c, the density f of the first passage time satisfies P(W(t) > c(t)) =
    integral of f(s) * P(W(t) - W(s) > c(t) - c(s)) ds (Peskir 2002). The equation is solved step by step on a grid.
    """
    end = Look(1.0, 1.0, 1.0 - alpha).scaled_time
    times = end * np.arange(1, STEPS + 1) / STEPS
    middles = times - 0.5 * end / STEPS
    step = math.sqrt(end / looks)
    slope = drift / math.sqrt(end)

    def boundary_at(t: Floats) -> Floats:
        heights = [boundary(x, alpha) * math.sqrt(x) for x in t.tolist()]
        return np.array(heights) + OVERSHOOT * step - slope * t

    at_times, at_middles = boundary_at(times), boundary_at(middles)
    above = normal_tail(at_times / np.sqrt(times))
    gaps = times[:, None] - middles[None, :]
    later = gaps > 0.0
    passage = np.zeros(gaps.shape)
    passage[later] = normal_tail((at_times[:, None] - at_middles[None, :])[later] / np.sqrt(gaps[later]))
    # The equations on the grid form a lower triangular system. Solve it by forward substitution.
    first: list[float] = []
    for i in range(STEPS):
        reached = math.fsum(f * p for f, p in zip(first, passage[i].tolist(), strict=False))
        first.append((float(above[i]) - reached) / float(passage[i, i]))
    total = math.fsum(first)
    mean = math.fsum(f * t for f, t in zip(first, middles.tolist(), strict=True)) / end
    return total, mean + (1.0 - total)


def normal_tail(z: Floats) -> Floats:
    """Return the upper tail P(Z > z) of the standard normal distribution for each element; the error is below 1e-12."""
    # For |z| below 3, use the series of the distribution function, which converges fast there. Otherwise, use the
    # continued fraction of the tail.
    size = np.abs(z)
    density = exp(-0.5 * size * size) / ROOT_2_PI
    near = np.minimum(size, 3.0)
    term = total = near
    for n in range(1, 50):
        term = term * near * near / (2.0 * n + 1.0)
        total = total + term
    far = np.maximum(size, 3.0)
    fraction = far
    for n in range(60, 0, -1):
        fraction = far + n / fraction
    tail = np.where(size < 3.0, 0.5 - density * total, density / fraction)
    return np.asarray(np.where(z >= 0.0, tail, 1.0 - tail))
