"""Student's t and the normal: tails, quantiles, and the deviate of one with the tail of the other.

Of one number or of arrays of them side by side, each with the bits that it has alone: what has converged stays as it is
while the others go on. As in `elementary`, only operations that every machine rounds in one way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .elementary import exp, log, log1p

__all__ = ["NORMAL", "normal_of_t", "normal_quantile", "normal_tail", "t_of_normal", "t_quantile", "t_tail"]

Numbers = Any
"""A float64 of numpy, or an array of them without more axes than one."""

GAMMA1 = 1.0 / 64.0  # Gamma(w + 3/4) / Gamma(w + 1/4) = sqrt(w) (1 + GAMMA1 / w^2 + GAMMA2 / w^4 + ...)
GAMMA2 = -19.0 / 8192.0
GAMMA3 = 631.0 / 524288.0
GAMMA4 = -174317.0 / 134217728.0
PI = 3.14159265358979323846
NORMAL = 2.0**80  # degrees of freedom with which Student's t is the normal to the last bit of a float64
STEPS = 100  # Newton takes 4 to 10
MOST_T = 1e150  # its square is a float64
MOST_LOG = 345.0  # log(MOST_T)


def _each(of: Callable[[Numbers, Numbers], Numbers], x: Any, df: Any) -> Any:
    """Apply a function of flat arrays to numbers or arrays of any shape, which are brought to one; a float for numbers."""
    first, second = np.broadcast_arrays(np.asarray(x, np.float64), np.asarray(df, np.float64))
    with np.errstate(all="ignore"):  # what has converged is worked on along with the rest
        if first.ndim:
            return of(first.reshape(-1), np.minimum(second.reshape(-1), NORMAL)).reshape(first.shape)
        return float(of(first[()], np.minimum(second[()], NORMAL)))  # as numbers of numpy: ten times as fast as arrays


def _where(true: Any, here: Any, there: Any) -> Any:
    """What np.where returns; of one number without its detour."""
    return np.where(true, here, there) if true.ndim else here if true else there


def _some(true: Any) -> bool:
    """Whether any is."""
    return bool(true.any() if true.ndim else true)


def _parts(near: Any, here: Callable[..., Numbers], there: Callable[..., Numbers], *given: Numbers) -> Numbers:
    """One function of the numbers near, another one of the rest."""
    if not _some(near):
        return there(*given)
    if not _some(~near):
        return here(*given)
    found = np.zeros(near.shape)
    found[near] = here(*(g[near] for g in given))
    found[~near] = there(*(g[~near] for g in given))
    return found


def _gamma_ratio(a: Numbers) -> Numbers:
    """Return Gamma(a + 1/2) / Gamma(a) for a > 0: the series of Tricomi and Erdelyi (1951) in (a - 1/4)^-2."""
    factor = 1.0 + 0.0 * a
    while _some(low := a < 32.0):
        factor = _where(low, factor * (a / (a + 0.5)), factor)
        a = _where(low, a + 1.0, a)
    z = 1.0 / ((a - 0.25) * (a - 0.25))
    return factor * np.sqrt(a - 0.25) * (1.0 + z * (GAMMA1 + z * (GAMMA2 + z * (GAMMA3 + z * GAMMA4))))


def _peak(df: Numbers) -> Numbers:
    """Return the density at 0."""
    return _gamma_ratio(0.5 * df) / np.sqrt(PI * df)


def _density(t: Numbers, df: Numbers, peak: Numbers) -> Numbers:
    """Return the density of Student's t."""
    return peak * exp(-0.5 * (df + 1.0) * log1p(t * t / df))


def _centre(t: Numbers, df: Numbers) -> Numbers:
    """Return P(0 < T < t) / (t density): the hypergeometric series, all terms positive (DLMF 8.17.8).

    Terms rise, then fall; those below 1e-17 of their sum no longer change it.
    """
    y = t * t / (df + t * t)
    half = 0.5 * (df + 1.0)
    total = term = 1.0 + 0.0 * t
    n = 0.0
    while _some(term > 1e-17 * total):
        term = term * (y * (half + n) / (1.5 + n))
        total = total + term
        n += 1.0
    return total


def _fraction(t: Numbers, df: Numbers) -> Numbers:
    """Return P(T > t) / (t density) for t > 0: an even continued fraction (DLMF 8.17.22), by Lentz's method.

    The usual fraction loses digits like 1 / df; in this one 1 - x appears only as itself. Near 0 it converges slowly.
    """
    a = 0.5 * df
    x = df / (df + t * t)
    slope = a * (t * t / (df + t * t)) - 0.5 * x + 1.0
    value = c = a * slope / (a + 1.0)
    d: Any = 0.0
    m = 1.0
    going = t > 0.0
    while _some(going) and m < 1e4:
        odd = a + 2.0 * m - 1.0
        numerator = (m * (a + m - 1.0) / odd) * ((a + m - 0.5) / odd) * ((0.5 - m) * x * x)
        denominator = m + m * (0.5 - m) * x / odd + (a + m) * (slope + m * (2.0 - x)) / (odd + 2.0)
        d = 1.0 / (denominator + numerator * d)
        c = denominator + numerator / c
        change = c * d
        value = _where(going, value * change, value)
        going = going & (abs(change - 1.0) > 4e-16)
        m += 1.0
    return 0.5 / value


def _mills(t: Numbers, df: Numbers, peak: Numbers) -> Numbers:
    """Return P(T > t) / (t density) for t > 0."""

    def near(t: Numbers, df: Numbers, peak: Numbers) -> Numbers:
        return 0.5 / (t * _density(t, df, peak)) - _centre(t, df)

    return _parts((t < 2.0) & (t * t < 4.0 * df), near, lambda t, df, _: _fraction(t, df), t, df, peak)


def _tail(t: Numbers, df: Numbers) -> Numbers:
    size = abs(t)
    peak = _peak(df)
    tail = size * _density(size, df, peak) * _mills(size, df, peak)
    return _where(t == 0.0, 0.5, _where(t > 0.0, tail, 1.0 - tail))


def t_tail(t: Any, df: Any) -> Any:
    """Return P(T > t) of Student's t for df >= 1; relative error below 1e-13 for P > 1e-100."""
    return _each(_tail, t, df)


def _solve_centre(d: Numbers, df: Numbers) -> Numbers:
    """Return t with P(0 < T < t) = d: Newton from the left, where the tangent never oversteps."""
    peak = _peak(df)
    t = d / peak
    going = d > 0.0
    for _ in range(STEPS):
        if not _some(going):
            break
        step = d / _density(t, df, peak) - t * _centre(t, df)
        t = _where(going, t + step, t)
        going = going & ~(abs(step) < 1e-15 * t)
    return t


def _solve_tail(log_q: Numbers, df: Numbers, t: Numbers) -> Numbers:
    """Return t with log P(T > t) = log_q: Newton in log t, a concave curve, nearly straight for heavy tails.

    From a start; inf where t leaves the floats.
    """
    peak = _peak(df)
    going = t > 0.0
    for _ in range(STEPS):
        if not _some(going):
            break
        mills = _mills(t, df, peak)
        step = mills * (_log_tail(t, df, peak, mills) - log_q)
        beyond = going & (step + log(t) > MOST_LOG)
        t = _where(beyond, np.inf, _where(going, t * exp(step), t))
        going = going & ~beyond & ~(abs(step) < 1e-9)  # the next one would be its square
    return t


def _log_tail(t: Numbers, df: Numbers, peak: Numbers, mills: Numbers) -> Numbers:
    """Return log P(T > t) for t > 0: the density by its logarithm, so that nothing is lost where P leaves the floats."""
    return log(t * peak * mills) - 0.5 * (df + 1.0) * _log1p_square(t, df)


def _log1p_square(t: Numbers, df: Numbers) -> Numbers:
    """Return log(1 + t^2 / df), also where t^2 leaves the floats."""
    root = t / np.sqrt(df)
    near = root < 1e100
    return _where(near, log1p(_where(near, root * root, 0.0)), 2.0 * log(_where(near, 1.0, root)))


def _quantile(p: Numbers, df: Numbers) -> Numbers:
    q = np.minimum(p, 1.0 - p)

    def far(q: Numbers, df: Numbers) -> Numbers:
        log_q = log(q)
        return _solve_tail(log_q, df, np.sqrt(-2.0 * log_q))

    t = _parts(q > 0.2, lambda q, df: _solve_centre(0.5 - q, df), far, q, df)
    return _where(p >= 0.5, t, -t)


def t_quantile(p: Any, df: Any) -> Any:
    """Return the p-quantile of Student's t for df >= 1 and p, 1 - p > 1e-100; relative error below 1e-13."""
    return _each(_quantile, p, df)


def normal_quantile(p: Any) -> Any:
    """Return the p-quantile of the standard normal, Student's t in the limit; relative error below 1e-14."""
    return t_quantile(p, NORMAL)


def normal_tail(x: Any) -> Any:
    """Return P(X > x) of the standard normal; relative error below 1e-13 for P > 1e-100."""
    return t_tail(x, NORMAL)


def _same_tail(x: Numbers, df: Numbers, other: Numbers) -> Numbers:
    """Return y with P(T_other > y) = P(T_df > x): between the centres near 0, else by the logarithms of the tails."""
    size = np.minimum(abs(x), MOST_T)

    def near(size: Numbers, df: Numbers, other: Numbers) -> Numbers:
        return _solve_centre(size * _density(size, df, _peak(df)) * _centre(size, df), other)

    def far(size: Numbers, df: Numbers, other: Numbers) -> Numbers:
        peak = _peak(df)
        log_q = _log_tail(size, df, peak, _mills(size, df, peak))
        return _solve_tail(log_q, other, _start(size, df, other, log_q))

    y = _parts(size < 0.5, near, far, size, df, other)
    return _where((size == 0.0) | (df == other), x, _where(x > 0.0, y, -y))


def _start(x: Numbers, df: Numbers, other: Numbers, log_q: Numbers) -> Numbers:
    """Return nearly what `_same_tail` looks for, by Wallace (1959): z is about c sqrt(df log(1 + t^2 / df))."""
    z = np.sqrt(df * _log1p_square(x, df)) * (8.0 * df + 1.0) / (8.0 * df + 3.0)
    z_other = z * (8.0 * other + 3.0) / (8.0 * other + 1.0)
    power = z_other * z_other / other
    known = _where(power > 1e-9, np.sqrt(other * (exp(np.minimum(power, 600.0)) - 1.0)), z)
    return _where(power > 600.0, np.sqrt(-2.0 * log_q), known)


def normal_of_t(t: Any, df: Any) -> Any:
    """Return z with Phi(z) = T(t), Student's t as a normal deviate; relative error below 1e-13, as at 1e150 beyond."""
    return _each(lambda t, df: _same_tail(t, df, np.full(t.shape, NORMAL)[()]), t, df)


def t_of_normal(z: Any, df: Any) -> Any:
    """Return t with T(t) = Phi(z), df >= 1; relative error below 1e-12 also where 1 - Phi(z) is no float; inf beyond."""
    return _each(lambda z, df: _same_tail(z, np.full(z.shape, NORMAL)[()], df), z, df)
