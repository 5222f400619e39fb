"""Always-valid intervals and e-values. They stay valid however often you look at the data and whenever you stop.

The intervals are an asymptotic confidence sequence (Waudby-Smith, Arbour, Sinha, Kennedy, Ramdas 2021, arXiv
2103.06476). The boundary b(x) of the normal mixture satisfies b(x)^2 = (1 + 1/x) * (ln(1 + x) + 2 * ln(1/alpha)). Here
x is the current number of users divided by the planned number, times a constant (`Look.scaled_time`). The boundary is
for normal deviates, but a standard error from few shards is itself uncertain, and the exponential of a squared t
statistic has no finite mean. Each t statistic is therefore first mapped to the normal deviate with the same tail
probability.

Every result depends only on the current look. Intersecting the interval with those of earlier looks would make it
narrower, but late rows can still change the data of earlier looks.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidInputError
from ..numerics.elementary import exp, log, log1p
from ..numerics.student_t import normal_of_t, t_of_normal
from ..reading.interval import Interval, alpha_of
from ..reading.link_functions import unwrap_scalar
from .estimates import ScaledEstimate, build_interval, statistic
from .reasons import add_reasons, build_reasons, unwrap_reasons

__all__ = ["TUNED_USERS", "Look", "always_valid", "boundary", "e_value", "p_from_e"]

NAN = float("nan")
# The maximum logarithm of an e-value; an e-value above exp(700) is reported as inf.
MAX_EXPONENT = 700.0
TUNED_USERS = 10_000.0
"""The number of users at which always-valid intervals are narrowest if no number of users is planned.

The number is a constant, because a number chosen from the data would make the intervals invalid. Compared with an
interval that is narrowest at the final number of users, the last interval of an experiment (95 %, 64 shards) is at most
31 % wider for 1,000 to 10 million users: 30 % at 1,000 users, 7 % at 100,000, and 19 % at 1 million.
"""


class Look(NamedTuple):
    """A look at a running experiment (an interim analysis).

    Parameters
    ----------
    users : float
        Total number of users so far in the compared arms.
    planned : float
        Planned number of users, fixed before the first look; `TUNED_USERS` if there is no plan. It need not be exact:
        if it is wrong by a factor of 2, the time to a result changes by 2 %.
    confidence : float
        The nominal coverage for which the intervals are as narrow as possible, fixed before the first look.
    """

    users: float
    planned: float
    confidence: float = 0.95

    @property
    def scaled_time(self) -> float:
        """The argument x of the boundary: users / planned * (2 * L + ln(1 + 2 * L)).

        L is ln(1 / alpha), and alpha is 1 - `confidence`.
        """
        if not (self.planned > 0.0 and self.users >= 0.0 and math.isfinite(self.planned) and math.isfinite(self.users)):
            raise InvalidInputError(
                f"users must be 0 or more and planned more than 0; found users={self.users} and planned={self.planned}"
            )
        # The factor 2 * L + ln(1 + 2 * L) makes the interval about as narrow as possible at the planned end.
        twice = -2.0 * float(log(alpha_of(self.confidence)))
        return (twice + float(log1p(twice))) * self.users / self.planned


def boundary(x: float, alpha: float) -> float:
    """Return the boundary b(x), the half width of the interval in units of a known standard error; inf for x = 0.

    `x` is `Look.scaled_time`, and `alpha` is one minus the nominal coverage.

    Examples
    --------
    >>> round(boundary(Look(10_000, 10_000).scaled_time, 0.05), 3)
    3.035
    """
    if x <= 0.0:
        return float("inf")
    return math.sqrt((1.0 + 1.0 / x) * (float(log1p(x)) - 2.0 * float(log(alpha))))


def sequential_reach(look: Look, confidence: float, df: Any) -> Any:
    """Return the half width of the always-valid interval in units of the standard error; NaN where `df` is NaN or 0."""
    deviate = boundary(look.scaled_time, alpha_of(confidence))
    if np.ndim(df) == 0:
        return _compute_reach(deviate, float(df))
    freedom = np.asarray(df, np.float64)
    return _compute_reaches(deviate, freedom.tobytes()).reshape(freedom.shape)


@lru_cache(maxsize=64)
def _compute_reaches(deviate: float, df: bytes) -> NDArray[np.float64]:
    """Return the half widths of the intervals for many cells (slices), in standard errors.

    The result is cached, because the interval and the verdict both need it. `deviate` is the half width for a known
    standard error. `df` contains the degrees of freedom as the bytes of a float64 array, because an array itself cannot
    be a cache key.
    """
    freedom = np.frombuffer(df)
    is_known = freedom > 0.0
    reaches = np.where(is_known, t_of_normal(deviate, np.where(is_known, freedom, 1.0)), NAN)
    reaches.flags.writeable = False
    return reaches


@lru_cache(maxsize=1 << 12)
def _compute_reach(deviate: float, df: float) -> float:
    """Return the half width of the interval for a single number, in standard errors.

    The result is cached, because all rows of a table need it. `deviate` is the half width for a known standard error.
    """
    return float(t_of_normal(deviate, df)) if df > 0.0 else NAN


def always_valid(estimate: ScaledEstimate, look: Look, confidence: float | None = None) -> Interval:
    """Return the always-valid interval, which contains the truth at all looks with probability `confidence`.

    Parameters
    ----------
    estimate : ScaledEstimate
        A number with its standard error, or an array of them.
    look : Look
        The current and the planned number of users.
    confidence : float, optional
        Nominal coverage; by default the `confidence` of the look.

    Returns
    -------
    Interval
        The half width is the standard error times T^-1(Phi(b(x))), where b(x) is the boundary, and Phi and T are the
        distribution functions of the normal and the t distribution. While the half width is infinite, the limits are
        NaN and `reason` says why.

    Notes
    -----
    At nominal 95 % and 500 looks, at least one interval excludes the truth in 1 to 2 % of simulated experiments. With
    single-look intervals, this happens in 47 to 50 % (`python -m benchmarks.coverage --only looks`). At the planned
    end, the always-valid interval is 1.6 times as wide as the interval for a single look. The always-valid interval is
    asymptotic: use it only if each arm has about 50 positives or more.

    Examples
    --------
    >>> low, high, *_ = always_valid(ScaledEstimate(0.1, 0.1, 0.01, df=63), Look(5_000, 10_000))
    >>> round(low, 3), round(high, 3)
    (0.068, 0.132)
    """
    confidence = look.confidence if confidence is None else confidence
    width = sequential_reach(look, confidence, estimate.df)
    reasons = build_reasons(estimate.reason, np.shape(estimate.value))
    so_far = f"too early: {look.users:,.0f} user{'' if look.users == 1.0 else 's'} so far"
    add_reasons(reasons, np.isinf(width), lambda i: so_far)
    estimate = estimate._replace(reason=unwrap_reasons(reasons))
    return build_interval(estimate, width, confidence, f"{estimate.method}, valid at all looks")


def e_value(estimate: ScaledEstimate, look: Look, null: float = 0.0) -> Any:
    """Return the e-value against the null hypothesis.

    If this hypothesis is true, the probability that the e-value ever reaches 1 / alpha, over all looks, is at most
    alpha.

    Parameters
    ----------
    estimate : ScaledEstimate
        A number with its standard error, or an array of them.
    look : Look
        The current and the planned number of users.
    null : float
        The value under the null hypothesis, on the natural scale.

    Returns
    -------
    float
        exp(x * z^2 / (2 + 2 * x)) / sqrt(1 + x), where x is `look.scaled_time`, z = Phi^-1(T(t)), and T and Phi are the
        distribution functions of the t and the normal distribution. It is at least 1 / alpha if and only if the
        interval of `always_valid` excludes the null. It is inf above 1e304, and NaN without a standard error.

    Examples
    --------
    >>> round(e_value(ScaledEstimate(0.1, 0.1, 0.02, df=63), Look(5_000, 10_000)), 1)
    1886.0
    """
    # The formula is for a normal deviate, so map t to the normal deviate with the same tail probability.
    t = np.asarray(statistic(estimate, null))
    df = np.asarray(estimate.df, np.float64)
    is_known = ~np.isnan(t) & (df > 0.0)
    z = normal_of_t(np.where(is_known, t, 0.0), np.where(is_known, df, 1.0))
    x = look.scaled_time
    exponent = np.asarray(0.5 * x * z * z / (1.0 + x))
    evidence = np.where(exponent > MAX_EXPONENT, math.inf, exp(np.minimum(exponent, MAX_EXPONENT)) / math.sqrt(1.0 + x))
    return unwrap_scalar(np.where(is_known, evidence, NAN))


def p_from_e(e: Any) -> Any:
    """Convert e-values to always-valid p-values, min(1, 1 / e)."""
    return unwrap_scalar(1.0 / np.maximum(e, 1.0))
