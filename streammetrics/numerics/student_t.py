"""Student's t and normal distributions: tail probabilities, quantiles, and conversion between t and normal deviates.

Functions take numbers or arrays. Each element of an array result equals the scalar result bit for bit, because an element
that has converged does not change while iterations for other elements continue. As in `elementary`, all operations give
the same bits on every machine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .elementary import exp, log, log1p

__all__ = ["NORMAL", "normal_of_t", "normal_quantile", "normal_tail", "t_of_normal", "t_quantile", "t_tail"]

Numbers = Any
"""The type of arguments and results: a np.float64, or an array of float64 with one axis."""

# Coefficients of the series Gamma(w + 3/4) / Gamma(w + 1/4) = sqrt(w) * (1 + GAMMA1 / w^2 + GAMMA2 / w^4 + ...).
GAMMA1 = 1.0 / 64.0
GAMMA2 = -19.0 / 8192.0
GAMMA3 = 631.0 / 524288.0
GAMMA4 = -174317.0 / 134217728.0
PI = 3.14159265358979323846
# The number of degrees of freedom at which Student's t equals the normal distribution to the last bit of a float64.
NORMAL = 2.0**80
# The maximum number of Newton steps; 4 to 10 usually suffice.
STEPS = 100
# The largest t for which results are computed. Its square does not overflow.
MOST_T = 1e150
# The largest log(t) for which results are computed: log(MOST_T), rounded down.
MOST_LOG = 345.0


def _apply_elementwise(function: Callable[[Numbers, Numbers], Numbers], x: Any, df: Any) -> Any:
    """Apply a function to two numbers or arrays, which are broadcast together; return a float if both are numbers.

    The function itself receives either two single numbers or two one-dimensional arrays.
    """
    first, second = np.broadcast_arrays(np.asarray(x, np.float64), np.asarray(df, np.float64))
    # Suppress warnings. Iterations also compute elements that have already converged, and these may overflow.
    with np.errstate(all="ignore"):
        if first.ndim:
            return function(first.reshape(-1), np.minimum(second.reshape(-1), NORMAL)).reshape(first.shape)
        # Pass numpy scalars, because operations on them are ten times as fast as operations on one-element arrays.
        return float(function(first[()], np.minimum(second[()], NORMAL)))


def _select(condition: Any, here: Any, there: Any) -> Any:
    """Return np.where(condition, here, there), but without the overhead of np.where for a single number."""
    return np.where(condition, here, there) if condition.ndim else here if condition else there


def _is_any(condition: Any) -> bool:
    """Return whether any element of an array, or the single value, is true."""
    return bool(condition.any() if condition.ndim else condition)


def _apply_piecewise(
    near: Any, near_function: Callable[..., Numbers], far_function: Callable[..., Numbers], *arguments: Numbers
) -> Numbers:
    """Apply `near_function` to the elements of `arguments` where `near` is true, and `far_function` to the others."""
    if not _is_any(near):
        return far_function(*arguments)
    if not _is_any(~near):
        return near_function(*arguments)
    out = np.zeros(near.shape)
    out[near] = near_function(*(g[near] for g in arguments))
    out[~near] = far_function(*(g[~near] for g in arguments))
    return out


def _gamma_ratio(a: Numbers) -> Numbers:
    """Return Gamma(a + 1/2) / Gamma(a) for a > 0, from the series of Tricomi and Erdelyi (1951) in 1 / (a - 1/4)^2."""
    factor = 1.0 + 0.0 * a
    while _is_any(low := a < 32.0):
        factor = _select(low, factor * (a / (a + 0.5)), factor)
        a = _select(low, a + 1.0, a)
    z = 1.0 / ((a - 0.25) * (a - 0.25))
    return factor * np.sqrt(a - 0.25) * (1.0 + z * (GAMMA1 + z * (GAMMA2 + z * (GAMMA3 + z * GAMMA4))))


def _peak(df: Numbers) -> Numbers:
    """Return the density of Student's t at 0."""
    return _gamma_ratio(0.5 * df) / np.sqrt(PI * df)


def _density(t: Numbers, df: Numbers, peak: Numbers) -> Numbers:
    """Return the density of Student's t at `t`, where `peak` is its density at 0."""
    return peak * exp(-0.5 * (df + 1.0) * log1p(t * t / df))


def _centre(t: Numbers, df: Numbers) -> Numbers:
    """Return P(0 < T < t) / (t * density(t)) for Student's t, from the hypergeometric series (DLMF 8.17.8).

    All terms of the series are positive, so none cancel. The terms may increase at first. The sum ends when a term is
    below 1e-17 times the sum.
    """
    y = t * t / (df + t * t)
    half = 0.5 * (df + 1.0)
    total = term = 1.0 + 0.0 * t
    n = 0.0
    while _is_any(term > 1e-17 * total):
        term = term * (y * (half + n) / (1.5 + n))
        total = total + term
        n += 1.0
    return total


def _fraction(t: Numbers, df: Numbers) -> Numbers:
    """Return P(T > t) / (t * density(t)) for Student's t and t > 0, from a continued fraction, by Lentz's method.

    The fraction is the even part of DLMF 8.17.22, with x = df / (df + t^2). The full fraction loses digits for small
    df. In its even part, 1 - x is computed directly, so that no digits cancel. The fraction converges slowly for t near
    0.
    """
    a = 0.5 * df
    x = df / (df + t * t)
    slope = a * (t * t / (df + t * t)) - 0.5 * x + 1.0
    value = c = a * slope / (a + 1.0)
    d: Any = 0.0
    m = 1.0
    going = t > 0.0
    while _is_any(going) and m < 1e4:
        odd = a + 2.0 * m - 1.0
        numerator = (m * (a + m - 1.0) / odd) * ((a + m - 0.5) / odd) * ((0.5 - m) * x * x)
        denominator = m + m * (0.5 - m) * x / odd + (a + m) * (slope + m * (2.0 - x)) / (odd + 2.0)
        d = 1.0 / (denominator + numerator * d)
        c = denominator + numerator / c
        change = c * d
        value = _select(going, value * change, value)
        going = going & (abs(change - 1.0) > 4e-16)
        m += 1.0
    return 0.5 / value


def _mills(t: Numbers, df: Numbers, peak: Numbers) -> Numbers:
    """Return P(T > t) / (t * density(t)) for t > 0, by the series near 0 and by the continued fraction elsewhere.

    `peak` is the density at 0.
    """

    def near(t: Numbers, df: Numbers, peak: Numbers) -> Numbers:
        return 0.5 / (t * _density(t, df, peak)) - _centre(t, df)

    return _apply_piecewise((t < 2.0) & (t * t < 4.0 * df), near, lambda t, df, _: _fraction(t, df), t, df, peak)


def _tail(t: Numbers, df: Numbers) -> Numbers:
    size = abs(t)
    peak = _peak(df)
    tail = size * _density(size, df, peak) * _mills(size, df, peak)
    return _select(t == 0.0, 0.5, _select(t > 0.0, tail, 1.0 - tail))


def t_tail(t: Any, df: Any) -> Any:
    """Return P(T > t) for Student's t with df >= 1. The relative error is below 1e-13 for P > 1e-100."""
    return _apply_elementwise(_tail, t, df)


def _solve_centre(d: Numbers, df: Numbers) -> Numbers:
    """Solve P(0 < T < t) = d for t by Newton's method.

    The iteration starts below the solution and never exceeds it, because the distribution function is concave for
    t > 0.
    """
    peak = _peak(df)
    t = d / peak
    going = d > 0.0
    for _ in range(STEPS):
        if not _is_any(going):
            break
        step = d / _density(t, df, peak) - t * _centre(t, df)
        t = _select(going, t + step, t)
        going = going & ~(abs(step) < 1e-15 * t)
    return t


def _solve_tail(log_q: Numbers, df: Numbers, t: Numbers) -> Numbers:
    """Solve log P(T > t) = log_q for t by Newton's method; the argument `t` is the starting point.

    The iteration is in log t, because log P is a concave function of log t, and nearly linear for heavy tails. The result
    is inf where t exceeds MOST_T.
    """
    peak = _peak(df)
    going = t > 0.0
    for _ in range(STEPS):
        if not _is_any(going):
            break
        mills = _mills(t, df, peak)
        step = mills * (_log_tail(t, df, peak, mills) - log_q)
        beyond = going & (step + log(t) > MOST_LOG)
        t = _select(beyond, np.inf, _select(going, t * exp(step), t))
        # Convergence is quadratic. After a step below 1e-9, the next step would change nothing, so stop.
        going = going & ~beyond & ~(abs(step) < 1e-9)
    return t


def _log_tail(t: Numbers, df: Numbers, peak: Numbers, mills: Numbers) -> Numbers:
    """Return log P(T > t) for t > 0, computed from the log-density, so that it is accurate even where P underflows.

    `peak` is the density at 0, and `mills` is the result of `_mills`.
    """
    return log(t * peak * mills) - 0.5 * (df + 1.0) * _log1p_square(t, df)


def _log1p_square(t: Numbers, df: Numbers) -> Numbers:
    """Return log(1 + t^2 / df), even where t^2 overflows."""
    root = t / np.sqrt(df)
    near = root < 1e100
    return _select(near, log1p(_select(near, root * root, 0.0)), 2.0 * log(_select(near, 1.0, root)))


def _quantile(p: Numbers, df: Numbers) -> Numbers:
    q = np.minimum(p, 1.0 - p)

    def far(q: Numbers, df: Numbers) -> Numbers:
        log_q = log(q)
        return _solve_tail(log_q, df, np.sqrt(-2.0 * log_q))

    t = _apply_piecewise(q > 0.2, lambda q, df: _solve_centre(0.5 - q, df), far, q, df)
    return _select(p >= 0.5, t, -t)


def t_quantile(p: Any, df: Any) -> Any:
    """Return the p-quantile of Student's t for df >= 1.

    The relative error is below 1e-13 if p and 1 - p exceed 1e-100.
    """
    return _apply_elementwise(_quantile, p, df)


def normal_quantile(p: Any) -> Any:
    """Return the p-quantile of the standard normal distribution (Student's t with infinite degrees of freedom).

    The relative error is below 1e-14.
    """
    return t_quantile(p, NORMAL)


def normal_tail(x: Any) -> Any:
    """Return P(X > x) for a standard normal variable X. The relative error is below 1e-13 for P > 1e-100."""
    return t_tail(x, NORMAL)


def _same_tail(x: Numbers, df: Numbers, other: Numbers) -> Numbers:
    """Return the t deviate for `other` degrees of freedom with the same tail probability as the t deviate `x` for `df`.

    For x near 0, the function equates P(0 < T < t) of the two distributions; elsewhere, it equates the logarithms of
    their tail probabilities.
    """
    size = np.minimum(abs(x), MOST_T)

    def near(size: Numbers, df: Numbers, other: Numbers) -> Numbers:
        return _solve_centre(size * _density(size, df, _peak(df)) * _centre(size, df), other)

    def far(size: Numbers, df: Numbers, other: Numbers) -> Numbers:
        peak = _peak(df)
        log_q = _log_tail(size, df, peak, _mills(size, df, peak))
        return _solve_tail(log_q, other, _start(size, df, other, log_q))

    y = _apply_piecewise(size < 0.5, near, far, size, df, other)
    return _select((size == 0.0) | (df == other), x, _select(x > 0.0, y, -y))


def _start(x: Numbers, df: Numbers, other: Numbers, log_q: Numbers) -> Numbers:
    """Return an approximation of `_same_tail`, from which Newton's method starts.

    `log_q` is the logarithm of the tail probability of x. The function converts x to a normal deviate z, and z to a t
    deviate with `other` degrees of freedom. It uses the approximation of Wallace (1959):
    z = c * sqrt(df * log(1 + t^2 / df)) with c = (8 * df + 1) / (8 * df + 3).
    """
    z = np.sqrt(df * _log1p_square(x, df)) * (8.0 * df + 1.0) / (8.0 * df + 3.0)
    z_other = z * (8.0 * other + 3.0) / (8.0 * other + 1.0)
    power = z_other * z_other / other
    known = _select(power > 1e-9, np.sqrt(other * (exp(np.minimum(power, 600.0)) - 1.0)), z)
    return _select(power > 600.0, np.sqrt(-2.0 * log_q), known)


def normal_of_t(t: Any, df: Any) -> Any:
    """Return the normal deviate with the same tail probability as `t` with `df` degrees of freedom.

    The relative error is below 1e-13. Values of |t| above 1e150 are treated as 1e150.
    """
    return _apply_elementwise(lambda t, df: _same_tail(t, df, np.full(t.shape, NORMAL)[()]), t, df)


def t_of_normal(z: Any, df: Any) -> Any:
    """Return the t deviate for `df` >= 1 that has the same tail probability as the normal deviate `z`.

    The relative error is below 1e-12, even where the tail probability underflows. If t exceeds about 1e150, the result is
    inf.
    """
    return _apply_elementwise(lambda z, df: _same_tail(z, np.full(z.shape, NORMAL)[()], df), z, df)
