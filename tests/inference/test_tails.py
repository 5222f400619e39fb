"""Student's t as a normal deviate and back, where tails are no floats, too."""

import math

import mpmath
import numpy as np
import pytest

from streammetrics.numerics.student_t import NORMAL, normal_of_t, t_of_normal, t_quantile, t_tail

DEGREES = (1.0, 2.5, 5.0, 15.3, 63.0, 200.7, 1e4)
DEVIATES = (1e-8, 0.01, 0.3, 0.499, 0.5, 0.51, 1.0, 1.96, 3.0, 5.0, 8.0, 11.0, 15.0, 25.0, 38.0, 60.0, 90.0)


def exact_tail(t, df):
    t, df = mpmath.mpf(t), mpmath.mpf(df)
    if t < 1:
        return 0.5 - mpmath.betainc(0.5, df / 2, 0, t * t / (df + t * t), regularized=True) / 2
    return mpmath.betainc(df / 2, 0.5, 0, df / (df + t * t), regularized=True) / 2


def slope(z):
    """How fast ln P falls with ln z: what an error of P is worth."""
    z = mpmath.mpf(z)
    return z * mpmath.npdf(z) / (mpmath.erfc(z / mpmath.sqrt(2)) / 2)


@pytest.mark.parametrize("df", DEGREES)
def test_same_tail(df):
    with mpmath.workdps(200):
        for z in DEVIATES:
            t = t_of_normal(z, df)
            if math.isinf(t):
                assert mpmath.erfc(z / mpmath.sqrt(2)) / 2 < exact_tail(1e149, df)
                continue
            exact = mpmath.erfc(mpmath.mpf(z) / mpmath.sqrt(2)) / 2
            # the error of P, as one of t: d ln P = -(t f / P) d ln t, and t f / P is at most df
            size = min(mpmath.mpf(df), slope(z)) if z > 1 else slope(z)
            assert abs(mpmath.log(exact_tail(t, df) / exact)) / size < 1e-12 * (1 if z >= 0.01 else 10)
            assert normal_of_t(t, df) == pytest.approx(z, rel=1e-13)
            assert t_of_normal(-z, df) == -t


@pytest.mark.slow
@pytest.mark.parametrize("df", [5.0, 63.0])
def test_order_is_kept(df):
    grid = [0.01 * i for i in range(-3000, 3001)]
    found = [t_of_normal(z, df) for z in grid[::10]]
    assert found == sorted(found)
    found = [normal_of_t(t, df) for t in [*grid[::10], 1e3, 1e10, 1e100, 1e149]]
    assert found == sorted(found)


def test_ends():
    assert t_of_normal(0.0, 5.0) == 0.0
    assert normal_of_t(0.0, 5.0) == 0.0
    assert normal_of_t(2.5, math.inf) == 2.5
    assert t_of_normal(2.5, NORMAL) == 2.5
    assert math.isfinite(normal_of_t(math.inf, 63.0))
    assert normal_of_t(-math.inf, 63.0) == -normal_of_t(1e150, 63.0)


@pytest.mark.parametrize("of", [t_of_normal, normal_of_t, t_tail, t_quantile])
def test_side_by_side_is_each_alone(of):
    """To the bit: what has converged waits for the rest."""
    rng = np.random.default_rng(1)
    df = np.concatenate([rng.uniform(1, 70, 300), [1.0, 5.0, 1e4, NORMAL, math.inf]])
    x = rng.uniform(0, 1, df.size) if of is t_quantile else rng.normal(0.0, 3.0, df.size)
    x[:3] = (0.5, 1e-30, 0.975) if of is t_quantile else (0.0, -0.1, 40.0)
    found = of(x.reshape(5, -1), df.reshape(5, -1))
    alone = [of(a, d) for a, d in zip(x.tolist(), df.tolist(), strict=True)]
    assert found.tobytes() == np.array(alone).tobytes()
    assert isinstance(alone[0], float)
    assert of(np.zeros(0) + 0.5, 5.0).shape == (0,)
