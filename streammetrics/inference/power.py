"""How many users a difference takes to show, which difference so many would show, and how long that is.

For one look at the end the usual rule: (t_(1 - alpha/2) + t_power)^2 variances. For looks all along, the drift with which
a Brownian motion crosses the boundary of `sequential` before the planned end, from the integral equation of its first
passage; few looks cross less often than many (Siegmund's 0.583 of a step).
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
from ..numerics.student import normal_quantile, t_quantile
from ..reading.interval import alpha_of, reach
from ..reading.link_functions import scale_of
from .differences import side
from .estimates import Measured
from .sequential import Look, boundary, reach_of_all

__all__ = ["PowerPlan", "days_to_go", "power", "smallest_effect", "users_needed", "users_to_decide"]

Floats = NDArray[np.float64]
EVEN = (0.5, 0.5)
STEPS = 64  # of the integral equation: the users are right to 0.1 %
HALVINGS = 40
OVERSHOOT = 0.5826  # Siegmund: by how many steps a boundary looked at in steps is higher
ROOT_2_PI = 2.5066282746310005024
MOST = 1e9  # times the users there are: beyond, never


class PowerPlan(NamedTuple):
    """What an experiment takes.

    Parameters
    ----------
    users : float
        In both arms together.
    mean_users : float
        On average, if it is stopped at the first look that shows the difference.
    relative : float
        The difference that shows.
    power : float
        With which probability.
    """

    users: float
    mean_users: float
    relative: float
    power: float

    @property
    def sentence(self) -> str:
        """What it means, in words."""
        sooner = f", {self.mean_users:,.0f} on average," if self.mean_users < self.users else ""
        return (
            f"{self.users:,.0f} users in both arms together{sooner} show a difference of {100.0 * self.relative:+.3g} % "
            f"in {100.0 * self.power:g} % of experiments that have it"
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
    """Return how many users show a difference in what was counted; or which one those planned show.

    Parameters
    ----------
    holder : metric or collection, usually Sharded
        One population, which is to be split into two arms: the log of the last weeks, say.
    metric : str, optional
        Which number of it, if it has several.
    relative : float
        The difference to find: 0.01 is 1 % more, -0.01 less.
    users : float, optional
        How many units there are in what was counted. Of metrics without shards the units are rows, queries or groups, and
        their number of rows is taken.
    planned : float, optional
        How many there will be, in both arms together: then the smallest increase that they show is returned.
    power, confidence : float
        With which probability the difference shows, as an interval that leaves 0 out.
    shares : tuple of two floats
        Which parts of the users the arms get.
    sequential : bool
        Whether it is looked at all along, by intervals that hold at all looks; else once, at the end.
    looks : int
        How often until the end.

    Returns
    -------
    Plan
        Users in both arms together, how many on average if it is stopped at the first look that shows the difference, the
        difference, and the power.

    Raises
    ------
    InvalidInputError
        There is no such number, it has no error, or users are not known.

    Notes
    -----
    users = (t_(1 - alpha / 2) + t_power)^2 V (1 / s + 1 / (1 - s)) / ln(1 + relative)^2, with V the squared error of the
    logarithm of the value times the units behind it, and s the share of an arm. Looks all along take 1.6 to 1.8 times as
    many at the end, and stop after 1.0 to 1.2 times on average. 30 ms; the first with looks 0.2 s.

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
    found = {s.name: s for s in definition_of(holder).samples(states_of(holder))}
    if metric is None and len(found) == 1:
        metric = next(iter(found))
    if metric not in found:
        raise InvalidInputError(f"metric= takes one of {', '.join(found)}, not {metric!r}")
    sample = found[metric]
    if len(sample.keys) != 1:
        raise InvalidInputError(f"there are {len(sample.keys)} slices: give one of them, or their total")
    if users is None and sample.shards is not None:
        raise InvalidInputError(f"users= is needed: how many units of {sample.shards.plan[0]} were counted")
    counted = float(sample.rows[0]) if users is None else float(users)
    estimate = next(side(sample, "log").cells())
    how: dict[str, Any] = {"power": power, "confidence": confidence, "shares": shares}
    how["looks"] = looks if sequential else None
    if planned is not None:
        return smallest_effect(estimate, counted, planned, **how)
    return users_needed(estimate, counted, relative=relative, **how)


def users_needed(
    estimate: Measured,
    users: float,
    *,
    relative: float = 0.01,
    power: float = 0.8,
    confidence: float = 0.95,
    shares: tuple[float, float] = EVEN,
    looks: int | None = None,
) -> PowerPlan:
    """Return how many users show a relative difference, from what so many users have shown.

    Parameters
    ----------
    estimate : Measured
        On the scale "log": the metric today, one population that is to be split. On "relative": a difference measured.
    users : float
        Behind the estimate; in both arms, if it is a difference.
    relative : float
        The difference to find: 0.01 is 1 % more, -0.01 less.
    power : float
        With which probability.
    confidence : float
        Of the two-sided interval that must leave 0 out.
    shares : tuple of two floats
        Which parts of the users the arms get.
    looks : int, optional
        How often it is looked at until the end, by `always_valid`; once, at the end, if not given.

    Raises
    ------
    InvalidInputError
        If the estimate has no error, or a figure is out of range.

    Notes
    -----
    Looks all along take 1.6 to 1.8 times the users of one look, and stop after 1.0 to 1.2 times on average, at 80 % power.

    Examples
    --------
    >>> ctr = Measured(0.02, -3.912, 0.01, df=63, scale="log")
    >>> once = users_needed(ctr, 100_000, relative=0.02)
    >>> daily = users_needed(ctr, 100_000, relative=0.02, looks=28)
    >>> f"{once.users:,.0f}", round(daily.users / once.users, 2), round(daily.mean_users / once.users, 2)
    ('826,027', 1.74, 1.1)
    """
    if not relative > -1.0 or relative == 0.0 or math.isinf(relative):
        raise InvalidInputError(f"relative must be above -1 and not 0: 0.01 is 1 % more; it is {relative!r}")
    unit = _variance_of_one_user(estimate, users, shares)
    drift, stop = _drift(estimate.df, alpha_of(confidence), power, looks)
    ratio = drift / float(log1p(np.float64(relative)))
    needed = unit * ratio * ratio
    return PowerPlan(float(math.ceil(needed)), float(math.ceil(needed * stop)), relative, power)


def smallest_effect(
    estimate: Measured,
    users: float,
    planned: float,
    *,
    power: float = 0.8,
    confidence: float = 0.95,
    shares: tuple[float, float] = EVEN,
    looks: int | None = None,
) -> PowerPlan:
    """Return the smallest increase that so many users show; parameters as for `users_needed`.

    Parameters
    ----------
    planned : float
        How many users there will be, in both arms together.

    Examples
    --------
    >>> ctr = Measured(0.02, -3.912, 0.01, df=63, scale="log")
    >>> round(smallest_effect(ctr, 100_000, 826_027).relative, 4)
    0.02
    """
    if not planned > 0.0:
        raise InvalidInputError(f"planned users must be more than 0, not {planned!r}")
    unit = _variance_of_one_user(estimate, users, shares)
    drift, stop = _drift(estimate.df, alpha_of(confidence), power, looks)
    return PowerPlan(planned, planned * stop, scale_of("relative").value(drift * math.sqrt(unit / planned)), power)


def days_to_go(users: float, planned: float, per_day: float) -> float:
    """Return how many days are left until the planned users, at so many new ones a day; inf without new ones.

    Examples
    --------
    >>> days_to_go(70_000, 100_000, 4_000)
    8.0
    """
    if users >= planned:
        return 0.0
    return float(math.ceil((planned - users) / per_day)) if per_day > 0.0 and math.isfinite(planned) else math.inf


def users_to_decide(
    estimate: Measured, users: float, null: float = 0.0, *, planned: float | None = None, confidence: float = 0.95
) -> float:
    """Return with how many users, in all, the interval would leave the null out, if the estimate stays as it is.

    Parameters
    ----------
    estimate : Measured
        A difference, and its error by now.
    users : float
        Behind it.
    null : float
        0, or the limit of a guardrail.
    planned : float, optional
        Users at the planned end, for the interval valid at all looks; without, it is that of one look.
    confidence : float
        Of the interval.

    Returns
    -------
    float
        `users` where it is left out already; inf where the estimate is the null, or has no error.

    Examples
    --------
    >>> change = Measured(-0.027, -0.027, 0.0278, df=63)
    >>> round(users_to_decide(change, 7.0, -0.05), 1)
    40.8
    """
    alpha_of(confidence)
    distance = abs(estimate.point - scale_of(estimate.scale).point(null))
    if estimate.reason or not distance:
        return math.inf

    def missing(times: float) -> bool:
        if planned is None:
            width = reach(confidence, estimate.df)
        else:
            width = reach_of_all(Look(users * times, planned, confidence), confidence, estimate.df)
        return bool(width * estimate.standard_error / math.sqrt(times) > distance)

    if not missing(1.0):
        return users
    high = 2.0
    while missing(high):
        high *= 2.0
        if high > MOST:
            return math.inf
    low = high / 2.0
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if missing(middle) else (low, middle)
    return users * high


def _variance_of_one_user(estimate: Measured, users: float, shares: tuple[float, float]) -> float:
    """The variance of a difference of logarithms, times the users in both arms."""
    if estimate.reason:
        raise InvalidInputError(f"no power without an error: {estimate.reason}")
    if estimate.scale not in ("log", "relative"):
        raise InvalidInputError(f"an estimate on the scale 'log' or 'relative' is needed, not on {estimate.scale!r}")
    if not (users > 0.0 and min(shares) > 0.0 and math.fsum(shares) <= 1.0):
        raise InvalidInputError(f"users must be more than 0, shares positive and at most 1 in all: {users}, {shares}")
    split = 1.0 / shares[0] + 1.0 / shares[1] if estimate.scale == "log" else 1.0
    return float(estimate.standard_error * estimate.standard_error * users * split)


def _drift(df: float, alpha: float, power: float, looks: int | None) -> tuple[float, float]:
    """How many standard errors, at the end, a difference must be; and at which part of the users it stops on average."""
    if not alpha / 2.0 < power < 1.0:
        raise InvalidInputError(f"power must lie between half of alpha and 1; it is {power!r}")
    once = t_quantile(1.0 - alpha / 2.0, df) + t_quantile(power, df)
    if looks is None:
        return once, 1.0
    if looks < 1:
        raise InvalidInputError(f"looks must be 1 or more, not {looks}")
    drift, stop = _sequential_drift(alpha, power, looks)
    return drift * once / (normal_quantile(1.0 - alpha / 2.0) + normal_quantile(power)), stop


@lru_cache(maxsize=64)
def _sequential_drift(alpha: float, power: float, looks: int) -> tuple[float, float]:
    """The same for an error that is known, by halving."""
    low, high = 0.0, 64.0
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if crossing(middle, alpha, looks)[0] < power else (low, middle)
    return high, crossing(high, alpha, looks)[1]


def crossing(drift: float, alpha: float, looks: int) -> tuple[float, float]:
    """Return the probability to leave 0 out until the planned end, and the mean time of the stop, as a part of it.

    Parameters
    ----------
    drift : float
        The true difference in standard errors of the planned end.
    alpha : float
        Of the sequential interval.
    looks : int
        Evenly spread until the end.

    Notes
    -----
    Time runs to x*, that of the planned users. P(W(t) > c(t)) = integral of f(s) P(W(t) - W(s) > c(t) - c(s)) ds gives
    the density f of the first passage, step by step (Peskir 2002).
    """
    end = Look(1.0, 1.0, 1.0 - alpha).x
    times = end * np.arange(1, STEPS + 1) / STEPS
    middles = times - 0.5 * end / STEPS
    step = math.sqrt(end / looks)
    slope = drift / math.sqrt(end)

    def level(t: Floats) -> Floats:
        heights = [boundary(x, alpha) * math.sqrt(x) for x in t.tolist()]
        return np.array(heights) + OVERSHOOT * step - slope * t

    at_times, at_middles = level(times), level(middles)
    above = upper(at_times / np.sqrt(times))
    gaps = times[:, None] - middles[None, :]
    later = gaps > 0.0
    passed = np.zeros(gaps.shape)
    passed[later] = upper((at_times[:, None] - at_middles[None, :])[later] / np.sqrt(gaps[later]))
    first: list[float] = []
    for i in range(STEPS):
        reached = math.fsum(f * p for f, p in zip(first, passed[i].tolist(), strict=False))
        first.append((float(above[i]) - reached) / float(passed[i, i]))
    total = math.fsum(first)
    mean = math.fsum(f * t for f, t in zip(first, middles.tolist(), strict=True)) / end
    return total, mean + (1.0 - total)


def upper(z: Floats) -> Floats:
    """Return P(Z > z) of the normal, elementwise, to 1e-12: its series near 0, its continued fraction beyond 3."""
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
