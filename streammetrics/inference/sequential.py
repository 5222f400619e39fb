"""Always-valid intervals and e-values: valid at any number of looks and at any stopping time.

The intervals are an asymptotic confidence sequence (Waudby-Smith, Arbour, Sinha, Kennedy, Ramdas 2021, arXiv 2103.06476).
With x the scaled share of the planned users, the boundary of the normal mixture is
b(x)^2 = (1 + 1/x) (ln(1 + x) + 2 ln(1/alpha)). The standard error from few shards is itself uncertain, so the t statistic
is first mapped to the normal deviate with the same tail probability: the exponential of a squared t statistic has no
finite mean. Every result depends on the current look only. A running intersection of intervals would depend on earlier
looks, whose data late rows still change.
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

__all__ = ["Look", "always_valid", "boundary", "e_value", "p_from_e"]

NAN = float("nan")
# An e-value above e^700 is reported as inf.
MAX_EXPONENT = 700.0


class Look(NamedTuple):
    """A look at a running experiment.

    Parameters
    ----------
    users : float
        Number of users so far, in the compared arms together.
    planned : float
        Planned number of users, fixed before the first look. Planning half or twice as many users changes
        the time to a result by 2 %.
    confidence : float
        Coverage at which the interval is narrowest, fixed before the first look.
    """

    users: float
    planned: float
    confidence: float = 0.95

    @property
    def scaled_time(self) -> float:
        """The share of planned users so far, times 2 L + ln(1 + 2 L), where L = ln(1 / alpha)."""
        if not (self.planned > 0.0 and self.users >= 0.0 and math.isfinite(self.planned) and math.isfinite(self.users)):
            raise InvalidInputError(f"users must be finite, planned ones more than 0: {self.users}, {self.planned}")
        # This scale makes the interval about as narrow as possible at the planned end.
        twice = -2.0 * float(log(alpha_of(self.confidence)))
        return (twice + float(log1p(twice))) * self.users / self.planned


def boundary(x: float, alpha: float) -> float:
    """Return the boundary b(x) in standard errors, for a known standard error; inf for x = 0.

    Examples
    --------
    >>> round(boundary(Look(10_000, 10_000).scaled_time, 0.05), 3)
    3.035
    """
    if x <= 0.0:
        return float("inf")
    return math.sqrt((1.0 + 1.0 / x) * (float(log1p(x)) - 2.0 * float(log(alpha))))


def sequential_reach(look: Look, confidence: float, df: Any) -> Any:
    """Return the half width of the always-valid interval in standard errors; NaN without degrees of freedom."""
    deviate = boundary(look.scaled_time, alpha_of(confidence))
    if np.ndim(df) == 0:
        return _compute_reach(deviate, float(df))
    freedom = np.asarray(df, np.float64)
    return _compute_reaches(deviate, freedom.tobytes()).reshape(freedom.shape)


@lru_cache(maxsize=64)
def _compute_reaches(deviate: float, df: bytes) -> NDArray[np.float64]:
    """Return the half widths of many cells; cached, because the interval and the verdict both need them."""
    freedom = np.frombuffer(df)
    is_known = freedom > 0.0
    reaches = np.where(is_known, t_of_normal(deviate, np.where(is_known, freedom, 1.0)), NAN)
    reaches.flags.writeable = False
    return reaches


@lru_cache(maxsize=1 << 12)
def _compute_reach(deviate: float, df: float) -> float:
    """Return the half width of one number; cached, because all rows of a table need it."""
    return float(t_of_normal(deviate, df)) if df > 0.0 else NAN


def always_valid(estimate: ScaledEstimate, look: Look, confidence: float | None = None) -> Interval:
    """Return the always-valid interval: with probability `confidence`, it contains the truth at all looks.

    Parameters
    ----------
    estimate : ScaledEstimate
        A number with its error, or an array of them.
    look : Look
        Users so far and planned.
    confidence : float, optional
        Nominal coverage; by default the `confidence` of the look.

    Returns
    -------
    Interval
        The half width is error * T^-1(Phi(b(x))). Limits are NaN, with the reason, while the half width is infinite.

    Notes
    -----
    At nominal 95 % and 500 looks, 1 to 2 % of runs ever miss the truth; the interval for one look misses in 47 to 50 %
    (`python -m benchmarks.coverage --only looks`). At the planned end it is 1.6 times as wide as that for one look. It is
    asymptotic: use it from about 50 positives in each arm on.

    Examples
    --------
    >>> low, high, *_ = always_valid(ScaledEstimate(0.1, 0.1, 0.01, df=63), Look(5_000, 10_000))
    >>> round(low, 3), round(high, 3)
    (0.068, 0.132)
    """
    confidence = look.confidence if confidence is None else confidence
    width = sequential_reach(look, confidence, estimate.df)
    reasons = build_reasons(estimate.reason, np.shape(estimate.value))
    add_reasons(reasons, np.isinf(width), lambda i: f"too early: {look.users:,.0f} of {look.planned:,.0f} users")
    estimate = estimate._replace(reason=unwrap_reasons(reasons))
    return build_interval(estimate, width, confidence, f"{estimate.method}, valid at all looks")


def e_value(estimate: ScaledEstimate, look: Look, null: float = 0.0) -> Any:
    """Return the e-value against the null: under the null it ever reaches 1 / alpha with probability at most alpha.

    Parameters
    ----------
    estimate : ScaledEstimate
        A number with its error, or an array of them.
    look : Look
        Users so far and planned.
    null : float
        The null hypothesis, on the natural scale.

    Returns
    -------
    float
        exp(x z^2 / (2 + 2 x)) / sqrt(1 + x) with z = Phi^-1(T(t)); it is at least 1 / alpha exactly when `always_valid`
        excludes the null. inf beyond 1e304; NaN without an error.

    Examples
    --------
    >>> round(e_value(ScaledEstimate(0.1, 0.1, 0.02, df=63), Look(5_000, 10_000)), 1)
    1886.0
    """
    # The mixture martingale needs a normal deviate: t is mapped to the deviate of the same tail probability.
    t = np.asarray(statistic(estimate, null))
    df = np.asarray(estimate.df, np.float64)
    is_known = ~np.isnan(t) & (df > 0.0)
    z = normal_of_t(np.where(is_known, t, 0.0), np.where(is_known, df, 1.0))
    x = look.scaled_time
    exponent = np.asarray(0.5 * x * z * z / (1.0 + x))
    evidence = np.where(exponent > MAX_EXPONENT, math.inf, exp(np.minimum(exponent, MAX_EXPONENT)) / math.sqrt(1.0 + x))
    return unwrap_scalar(np.where(is_known, evidence, NAN))


def p_from_e(e: Any) -> Any:
    """Return min(1, 1 / e), an always-valid p-value."""
    return unwrap_scalar(1.0 / np.maximum(e, 1.0))
