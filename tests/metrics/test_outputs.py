"""Means over outputs: of each output's value as it is before rounding, and rounded once, by fractions."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from oracles_regression import spread

import streammetrics as sm
from streammetrics.numerics.exact import FEW_TERMS, Limits

F = Fraction
Column = list[Fraction]


def mean(of: Callable[[Fraction, Fraction], Fraction]) -> Callable[[Column, Column, Column], Fraction]:
    return lambda y, p, w: sum((u * of(a, b) for a, b, u in zip(y, p, w, strict=True)), F(0)) / sum(w)


def r2(y: Column, p: Column, w: Column) -> Fraction | None:
    value = spread(y, y, w)
    return 1 - sum(((b - a) ** 2 * u for a, b, u in zip(y, p, w, strict=True)), F(0)) / value if value else None


def explained(y: Column, p: Column, w: Column) -> Fraction | None:
    value, errors = spread(y, y, w), [b - a for a, b in zip(y, p, strict=True)]
    return 1 - spread(errors, errors, w) / value if value else None


def root(square: Fraction) -> Fraction:
    """The square root, to 400 bits."""
    return F(math.isqrt((square.numerator << 800) // square.denominator), 1 << 400)


def pearson(y: Column, p: Column, w: Column) -> Fraction | None:
    both = spread(y, p, w)
    found = spread(y, y, w) * spread(p, p, w)
    return root(both**2 / found) * (-1 if both < 0 else 1) if found else None


def share(of: Callable[[Fraction], Fraction]) -> Callable[[Column, Column, Column], Fraction | None]:
    """Relative errors, of targets that are powers of two, which make terms exact."""

    def value(y: Column, p: Column, w: Column) -> Fraction | None:
        some = [(of(b - a) / abs(a), u) for a, b, u in zip(y, p, w, strict=True) if a]
        return sum((t * u for t, u in some), F(0)) / sum(u for _, u in some) if some else None

    return value


def squares(y: Column, p: Column, w: Column) -> Fraction:
    return sum(((b - a) ** 2 * u for a, b, u in zip(y, p, w, strict=True)), F(0))


def concordance(y: Column, p: Column, w: Column) -> Fraction | None:
    below = spread(y, y, w) + spread(p, p, w) + sum(w) * mean(lambda a, b: b - a)(y, p, w) ** 2
    return 2 * spread(y, p, w) / below if below else None


def hits(y: Column, p: Column, w: Column) -> Fraction | None:
    """Of what reaches 1/2 in targets or predictions, the share that does in both."""
    some = [(min(a, b) >= F(1, 2), u) for a, b, u in zip(y, p, w, strict=True) if max(a, b) >= F(1, 2)]
    return sum((u for both, u in some if both), F(0)) / sum(u for _, u in some) if some else None


def saved(y: Column, p: Column, w: Column) -> Fraction | None:
    """What is saved of the absolute error of the best constant; some target is one."""
    losses = [
        sum((u * abs(a - b) for a, b, u in zip(y, q, w, strict=True)), F(0)) for q in (p, *([a] * len(y) for a in y))
    ]
    return 1 - losses[0] / min(losses[1:]) if min(losses[1:]) else None


def over_mean(y: Column, p: Column, w: Column) -> Fraction | None:
    """The root mean squared error over the mean of the targets."""
    middle = mean(lambda a, b: a)(y, p, w)
    return root(squares(y, p, w) / sum(w) / middle**2) * (-1 if middle < 0 else 1) if middle else None


TRUTHS: dict[str, Callable[[Column, Column, Column], Fraction | None]] = {
    "mae": mean(lambda a, b: abs(b - a)),
    "wmae": mean(lambda a, b: abs(b - a)),
    "mse": mean(lambda a, b: (b - a) ** 2),
    "rmse": lambda y, p, w: root(mean(lambda a, b: (b - a) ** 2)(y, p, w)),
    "pinball_loss": mean(lambda a, b: abs(b - a) / 2),
    "huber_loss": mean(lambda a, b: (b - a) ** 2 / 2 if abs(b - a) <= 1 else abs(b - a) - F(1, 2)),
    "mean_error": mean(lambda a, b: b - a),
    "max_error": lambda y, p, w: max(abs(b - a) for a, b, u in zip(y, p, w, strict=True) if u),
    "mape": share(abs),
    "mean_relative_error": share(lambda e: e),
    "wmape": lambda y, p, w: mean(lambda a, b: abs(b - a))(y, p, w) * sum(w)
    / sum((u * abs(a) for a, u in zip(y, w, strict=True)), F(0)),
    "r2": r2,
    "explained_variance": explained,
    "pearson_correlation": pearson,
    "concordance_correlation": concordance,
    "critical_success_index": hits,
    "quantile_coverage": mean(lambda a, b: F(a <= b)),
    "minkowski_distance": lambda y, p, w: root(squares(y, p, w)),
    "relative_squared_error": lambda y, p, w: squares(y, p, w) / spread(y, y, w) if spread(y, y, w) else None,
    "nmse": lambda y, p, w: squares(y, p, w) / sum((u * a * a for a, u in zip(y, w, strict=True)), F(0)),
    "nrmse": over_mean,
    "d2_pinball": saved,
    "d2_absolute_error": saved,
}  # fmt: skip
FLOATS = {"smape", "msle", "rmsle", "poisson_deviance", "gamma_deviance", "tweedie_deviance", "log_cosh"}
"""Metrics of terms that no float holds, and whose sums are averaged by the same code."""
BUCKETS = {"error_quantile", "residual_quantile", "median_absolute_error"}


def test_every_metric_of_outputs_is_here() -> None:
    averaged = {tag for tag, cls in sm.extend.METRICS.items() if "multioutput" in cls.__dataclass_fields__}
    assert averaged == {*TRUTHS, *FLOATS, *BUCKETS}


@pytest.mark.slow
@pytest.mark.parametrize("outputs", [2, 3, 7, FEW_TERMS + 4])
@pytest.mark.parametrize("tag", TRUTHS)
def test_the_mean_over_outputs_is_rounded_once(tag: str, outputs: int) -> None:
    for seed in range(8):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(3, 9))
        y = 2.0 ** rng.integers(-1, 3, (n, outputs)) * rng.choice([-1, 1], (n, outputs))
        p, w = y + rng.integers(-9, 9, (n, outputs)) / 8, rng.integers(1, 99, n) / 8
        y[:, 0] = 2.0 if seed % 2 else y[:, 0]  # an output without spread is left out
        values = [
            TRUTHS[tag](*([F(x) for x in column.tolist()] for column in (y[:, i], p[:, i], w))) for i in range(outputs)
        ]
        known = [v for v in values if v is not None]
        metric = sm.extend.METRICS[tag](num_outputs=outputs).update(y, p, sample_weight=w)
        assert metric.compute() == float(sum(known, F(0)) / len(known))
        assert metric.bounds() == (metric.compute(),) * 2
        each = sm.extend.METRICS[tag](num_outputs=outputs, multioutput="raw_values").reading(metric.state).value
        assert np.array_equal(each, [math.nan if v is None else float(v) for v in values], equal_nan=True)


@pytest.mark.parametrize("tag", sorted(BUCKETS))
def test_the_mean_of_quantiles_is_rounded_once(tag: str) -> None:
    for seed in range(5):
        rng = np.random.default_rng(seed)
        y, p = np.zeros((5, 3)), rng.integers(-200, 200, (5, 3)) / 64  # each has a bucket of its own
        metric = sm.extend.METRICS[tag](num_outputs=3).update(y, p)
        each = sm.extend.METRICS[tag](num_outputs=3, multioutput="raw_values").reading(metric.state).value
        assert metric.compute() == float(sum(map(F, each.tolist())) / 3)
        low, high = metric.bounds()
        assert low <= metric.compute() <= high


def test_ties_of_many_are_decided_exactly() -> None:
    """The mean of thirds that add up to the middle between two floats."""
    half = F(1) + F(1, 1 << 53)
    numbers = [half + s * F(k, 3) for k in range(1, 20) for s in (-1, 1)]
    found = Limits.mean([Limits.exactly(x) for x in numbers])
    assert found is not None
    assert found.to_float() == float(half) == 1.0
    above = Limits.mean([Limits.exactly(x) for x in [*numbers[:-1], numbers[-1] + F(1, 1 << 200)]])
    assert above is not None
    assert above.to_float() == 1 + 2.0**-52
    assert Limits.mean([None, None]) is Limits.mean([]) is None


def test_thousands_of_outputs_are_averaged_soon() -> None:
    """Each has a divisor of hundreds of digits, of which the exact sum would have the product."""
    rng = np.random.default_rng(0)
    y = rng.normal(0, 1, (6, 2000))
    metric: Any = sm.R2(num_outputs=2000).update(y, y + 0.1)
    begin = time.process_time()
    metric.compute()
    assert time.process_time() - begin < 5
