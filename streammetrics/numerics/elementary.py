"""Logarithm, exponential and related functions, with bit-identical results on every machine.

The functions of libm and numpy give different last bits on different processors. The functions here use only + - * /,
whose results IEEE 754 defines exactly, and integer operations on the bits of a float64. Python calls these functions
with float64 scalars and arrays, and the numba kernels compile and inline the same source. The functions have no
branches, so that loops can be vectorized, and cause no warnings about integer overflow. The module does not import
numba.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Real = Any
"""The type of arguments and results: a float64, or an array of them. A function of a scalar returns a scalar."""

LN2 = 0.6931471805599453
# log(2) as the sum of a high and a low part. The last 20 bits of the high part are zero, so that k * LN2_HIGH is exact for
# every exponent k of a float64.
LN2_HIGH = 6.93147180369123816490e-01
LN2_LOW = 1.90821492927058770002e-10
LOG2_E = 1.44269504088896338700e00

# Minimax coefficients of log, from fdlibm e_log.c (Sun Microsystems 1993).
LOG1 = 6.666666666666735130e-01
LOG2 = 3.999999999940941908e-01
LOG3 = 2.857142874366239149e-01
LOG4 = 2.222219843214978396e-01
LOG5 = 1.818357216161805012e-01
LOG6 = 1.531383769920937332e-01
LOG7 = 1.479819860511658591e-01

# Minimax coefficients of exp, from fdlibm e_exp.c.
EXP1 = 1.66666666666666019037e-01
EXP2 = -2.77777777770155933842e-03
EXP3 = 6.61375632143793436117e-05
EXP4 = -1.65339022054652515390e-06
EXP5 = 4.13813679705723846039e-08

# The factor 2^27 + 1 of Dekker's algorithm, which splits a float64 into two halves.
SPLIT = 134217729.0
# `power` computes y * log(x) as the sum of a high and a low part. If x^y neither overflows nor underflows, the absolute
# value of the low part is at most TINY.
TINY = 2.0**-30

# The bits of the float64 number 1.0.
ONE = 0x3FF0000000000000
# The bits of sqrt(1/2). Mantissas are chosen from [sqrt(1/2), sqrt(2)), so that numbers near 1 have the exponent 0.
ROOT_HALF = 0x3FE6A09E667F3BCD
MANTISSA = 0x000FFFFFFFFFFFFF
EXPONENT = 0x7FF
# The bits of 2^52. Their bitwise OR with a small integer k gives the bits of the float 2^52 + k. This converts k to a
# float with operations that AVX2 can vectorize.
TWO_52_BITS = 0x4330000000000000
TWO_52_BIASED = 4503599627370496.0 + 1023.0
# 1.5 * 2^52. Adding this number rounds a float to an integer, and the low bits of the sum contain that integer.
ROUND = 6755399441055744.0
ROUND_BITS = 0x4338000000000000


def real(x: Any) -> Real:
    """Convert a number to np.float64, or an array to a float64 array. In kernels, numba compiles `real` as np.float64.

    Outside kernels, np.float64 cannot be used, because before numpy 2.2 it converts a one-element array to a scalar.
    """
    return np.asarray(x, np.float64)[()]


def bits_of(x: Real) -> Any:
    """Return the bits of a float64 as int64. In kernels, numba compiles `np.float64(x).view(np.int64)` instead."""
    return x.view(np.int64)


def _exponent(u: Real) -> Real:
    """Return the exponent k of u as a float, where u = 2^k * m and m is in [sqrt(1/2), sqrt(2))."""
    bits = bits_of(u) + (ONE - ROOT_HALF)
    # The mask removes the copies of the sign bit that an arithmetic shift would insert. The compiler can therefore use
    # a logical shift, which AVX2 supports for 64-bit integers.
    k = (bits >> 52) & EXPONENT
    return np.int64(k | TWO_52_BITS).view(np.float64) - TWO_52_BIASED


def _fraction(u: Real) -> Real:
    """Return f = m - 1, where u = 2^k * m and m is in [sqrt(1/2), sqrt(2)). The result is exact."""
    bits = bits_of(u) + (ONE - ROOT_HALF)
    return np.int64((bits & MANTISSA) + ROOT_HALF).view(np.float64) - 1.0


def _series(s: Real) -> Real:
    """Return R(s^2) = log((1 + s) / (1 - s)) / s - 2, the polynomial in the formula of the logarithm, for |s| < 0.172.

    The polynomial is evaluated with Estrin's scheme, which lets a processor run several operations at the same time.
    """
    z = s * s
    w = z * z
    return z * ((LOG1 + z * LOG2) + w * (LOG3 + z * LOG4) + w * w * ((LOG5 + z * LOG6) + w * LOG7))


def _deficit(f: Real, s: Real, low: Real) -> Real:
    """Return f - log(1 + f) - low, a small number that the logarithm functions subtract from f.

    The result is f^2 / 2 - (s * (f^2 / 2 + R(s^2)) + low) with s = f / (2 + f) and R from `_series`. `low` is the sum
    of the small corrections to the other terms of the logarithm.
    """
    half_square = 0.5 * f * f
    return half_square - (s * (half_square + _series(s)) + low)


def _rest(x: Real, u: Real) -> Real:
    """Return the rounding error 1 + x - u exactly, where u is 1 + x rounded to float64 (Knuth's two-sum)."""
    part = u - 1.0
    return (1.0 - (u - part)) + (x - part)


def log_parts(x: Real) -> tuple[Real, Real, Real]:
    """Return (k, f, s) with x = 2^k * (1 + f) and s = f / (2 + f), the first half of the computation of log(x).

    `minus_log` is the second half. Kernels compute the two halves in separate loops. In a single loop, the chain of
    dependent operations for a row would be so long that the processor could not overlap several rows.
    """
    u = real(x)
    f = _fraction(u)
    return _exponent(u), f, f / (2.0 + f)


def minus_log(k: Real, f: Real, s: Real) -> Real:
    """Return -log(x), given the results (k, f, s) of `log_parts` for x. The error is below 1.25 ulp.

    The formula -k * log(2) - (f - s * (f - R(s^2))), with R from `_series`, has three fewer operations than the formula
    of `log`, which saves a tenth of the time needed to compute log-loss.
    """
    return (s * (f - _series(s)) - k * LN2_LOW - f) - k * LN2_HIGH


def log(x: Real) -> Real:
    """Return the natural logarithm of a positive, normal, finite float64.

    The reduction (x = 2^k * m, log(x) = k * log(2) + log(m)) and the coefficients are from fdlibm. The error is below 1
    ulp, and log(1) is exactly 0. The result is meaningless for zero, negative, subnormal and infinite x.
    """
    k, f, s = log_parts(x)
    return k * LN2_HIGH - (_deficit(f, s, k * LN2_LOW) - f)


def log1p(x: Real) -> Real:
    """Return log(1 + x) for a finite x > -1. The error is below 1 ulp, even near 0.

    The result is log(u) + c / u, where u is 1 + x rounded to float64, and c is the rounding error.
    """
    x = real(x)
    u = 1.0 + x
    k = _exponent(u)
    f = _fraction(u)
    return k * LN2_HIGH - (_deficit(f, f / (2.0 + f), k * LN2_LOW + _rest(x, u) / u) - f)


def x_minus_log1p(x: Real) -> Real:
    """Return x - log(1 + x) for a finite x >= 0. The error is below 6 ulp, even near 0, where the result is about x^2 / 2.

    With 1 + x = 2^k * (1 + f), the result is (x - f - k * log(2)) + (f - log(1 + f)), a sum of two non-negative terms.
    For x below 0.4, k is 0 and f is set to x, because f computed from the rounded 1 + x would lack the last bits of x.
    """
    x = real(x)
    near = real(x < 0.4)
    far = 1.0 - near
    u = 1.0 + x
    k = _exponent(u)
    f = near * x + far * _fraction(u)
    return (x - f - k * LN2_HIGH) + _deficit(f, f / (2.0 + f), k * LN2_LOW + far * (_rest(x, u) / u))


def near_deviance(x: Real, power: Real) -> Real:
    """Return half the Tweedie deviance of a target 1 + x and a prediction 1 for |x| <= 1/32, with an error below 8 ulp.

    For such x, the usual formula would subtract nearly equal numbers and lose precision. The function sums the series
    x^2 / 2 - k * x^3 / 6 + k * (k + 1) * x^4 / 24 - ..., where k is `power`. Fifteen terms suffice for powers up to 10.
    """
    rest = 1.0
    for j in range(14, -1, -1):
        rest = 1.0 - x * ((power + j) / (j + 3.0)) * rest
    return 0.5 * x * x * rest


def _exp_of_sum(x: Real, rest: Real) -> Real:
    """Return e^(x + rest), where rest is far smaller than 1.

    With x = k * log(2) + r, the result is 2^k * e^r. Here e^r is 1 + r + r * c / (2 - c), where c is a polynomial in r.
    The factor 2^k is the product of two powers of 2, because 2^k itself may lie outside the range of float64.
    """
    x = np.minimum(np.maximum(x, -746.0), 710.0)
    rounded = x * LOG2_E + ROUND
    k = rounded - ROUND
    high = x - k * LN2_HIGH
    low = k * LN2_LOW - rest
    r = high - low
    z = r * r
    c = r - z * (EXP1 + z * (EXP2 + z * (EXP3 + z * (EXP4 + z * EXP5))))
    y = 1.0 - ((low - (r * c) / (2.0 - c)) - high)
    # Split the exponent k into two halves. The constant 2046 is twice 1023, the exponent bias of a float64.
    biased = bits_of(rounded) - (ROUND_BITS - 2046)
    half = (biased >> 1) & EXPONENT
    return y * np.int64(half << 52).view(np.float64) * np.int64((biased - half) << 52).view(np.float64)


def exp(x: Real) -> Real:
    """Return e^x: 0 if x is below -745.2, inf (with a numpy warning, as for np.exp) if it is above 709.8, NaN for NaN.

    The reduction and the coefficients are from fdlibm. The error is below 1 ulp, or below 2^-1073 if the result is
    subnormal.
    """
    return _exp_of_sum(real(x), 0.0)


def sigmoid(x: Real) -> Real:
    """Return 1 / (1 + e^-x) with an error below 3 ulp for every x."""
    x = real(x)
    e = exp(-abs(x))
    return np.maximum(e, real(x >= 0.0)) / (1.0 + e)


def softplus(x: Real) -> Real:
    """Return log(1 + e^x) = max(x, 0) + log1p(e^-|x|) with an error below 3 ulp for every x."""
    x = real(x)
    return np.maximum(x, 0.0) + log1p(exp(-abs(x)))


def _product_error(a: Real, b: Real, product: Real) -> Real:
    """Return the exact rounding error `a * b - product`, where `product` is `a * b` rounded to float64.

    The function uses Dekker's splitting, because a fused multiply-add is not available on every machine.
    """
    t = SPLIT * a
    a_high = t - (t - a)
    a_low = a - a_high
    t = SPLIT * b
    b_high = t - (t - b)
    b_low = b - b_high
    return ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low


def power(x: Real, y: Real) -> Real:
    """Return x^y for a positive, normal, finite x and |y| < 2^900.

    It is computed as e^(y * log(x)), where y * log(x) is precise to about 60 bits. The error is below
    (1 + |y * log(x)| / 16) ulp. The result is exact if x is a power of two and y is an integer.
    """
    u = real(x)
    y = real(y)
    k = _exponent(u)
    f = _fraction(u)
    t = 2.0 + f
    s = f / t
    st = s * t
    s_rest = ((f - st) - _product_error(s, t, st) - s * (f - (t - 2.0))) / t
    head = k * LN2_HIGH + 2.0 * s
    head_rest = (k * LN2_HIGH - head) + 2.0 * s
    tail = head_rest + (k * LN2_LOW + (2.0 * s_rest + s * _series(s)))
    log_x = head + tail
    log_rest = tail - (log_x - head)
    product = y * log_x
    rest = _product_error(y, log_x, product) + y * log_rest
    return _exp_of_sum(product, np.minimum(np.maximum(rest, -TINY), TINY))
