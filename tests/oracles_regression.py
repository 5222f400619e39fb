"""One line for every metric of predicted numbers: what it must equal, as a function of targets, predictions, weights.

All take matrices, rows x outputs, of float64, and give one value an output. scikit-learn where it has the metric; exact
fractions for what is a ratio of moments; else a line of numpy.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from sklearn import metrics as sk

Array = Any


class Oracle(NamedTuple):
    """A reference for a metric of these settings, and the rows it is for."""

    settings: dict[str, Any]
    of: Callable[[Array, Array, Array], Any]
    domain: str = "real"
    rtol: float = 1e-14


def sklearn(function: Callable[..., Any], **more: Any) -> Callable[[Array, Array, Array], Any]:
    """A metric of scikit-learn that takes several outputs."""
    return lambda y, p, w: function(y, p, sample_weight=w, multioutput="raw_values", **more)


def each(function: Callable[..., float]) -> Callable[[Array, Array, Array], Any]:
    """A function of one output, for every output."""
    return lambda y, p, w: np.array([function(y[:, c], p[:, c], w) for c in range(y.shape[1])])


def mean(term: Callable[[Array, Array], Array]) -> Callable[[Array, Array, Array], Any]:
    """The weighted mean of a term, summed without rounding."""
    return each(lambda y, p, w: math.fsum(w * term(y, p)) / math.fsum(w))


def fractions(values: Array) -> list[Fraction]:
    """Floats as they are."""
    return [Fraction(v) for v in values.tolist()]


def moments(y: Array, p: Array, w: Array) -> dict[str, Fraction]:
    """Weighted means and central sums, exactly."""
    Y, P, W = fractions(y), fractions(p), fractions(w)
    total = sum(W)
    my, mp = (sum(a * b for a, b in zip(W, v, strict=True)) / total for v in (Y, P))
    rows = list(zip(Y, P, W, strict=True))
    return {
        "bias": mp - my,
        "left": sum(b * (y - p) ** 2 for y, p, b in rows),
        "yy": sum(b * (y - my) ** 2 for y, p, b in rows),
        "pp": sum(b * (p - mp) ** 2 for y, p, b in rows),
        "yp": sum(b * (y - my) * (p - mp) for y, p, b in rows),
    }


def r2(y: Array, p: Array, w: Array) -> float:
    """R2 in fractions."""
    m = moments(y, p, w)
    return float(1 - m["left"] / m["yy"]) if m["yy"] else math.nan


def explained(y: Array, p: Array, w: Array) -> float:
    """Explained variance in fractions."""
    m = moments(y, p, w)
    return float(1 - (m["yy"] - 2 * m["yp"] + m["pp"]) / m["yy"]) if m["yy"] else math.nan


def pearson(y: Array, p: Array, w: Array) -> float:
    """Correlation in fractions, the root to 400 bits."""
    m = moments(y, p, w)
    if not m["yy"] or not m["pp"]:
        return math.nan
    square = m["yp"] ** 2 / (m["yy"] * m["pp"])
    root = Fraction(math.isqrt((square.numerator << 800) // square.denominator), 1 << 400)
    return math.copysign(float(root), m["yp"])


def mape(y: Array, p: Array, w: Array) -> float:
    """The mean over the targets that are not 0."""
    y, p, w = y[y != 0], p[y != 0], w[y != 0]
    return math.fsum(w * np.abs((p - y) / y)) / math.fsum(w)


def huber(delta: float) -> Callable[[Array, Array], Array]:
    """The loss of one row."""
    return lambda y, p: np.where(np.abs(p - y) <= delta, (p - y) ** 2 / 2, delta * (np.abs(p - y) - delta / 2))


def symmetric(y: Array, p: Array) -> Array:
    """The symmetric percentage error of one row."""
    return np.where(y == p, 0.0, 2 * np.abs(p - y) / np.where(y == p, 1.0, np.abs(y) + np.abs(p)))


def tweedie(power: float) -> Callable[[Array, Array, Array], Any]:
    """scikit-learn's deviance of every output."""
    return each(lambda y, p, w: sk.mean_tweedie_deviance(y, p, sample_weight=w, power=power))


ORACLES: dict[str, list[Oracle]] = {
    "mae": [Oracle({}, sklearn(sk.mean_absolute_error))],
    "mse": [Oracle({}, sklearn(sk.mean_squared_error))],
    "rmse": [Oracle({}, sklearn(sk.root_mean_squared_error))],
    "wmae": [
        Oracle({}, sklearn(sk.mean_absolute_error)),
        Oracle({"divisor": "rows"}, each(lambda y, p, w: math.fsum(w * np.abs(p - y)) / len(y))),
    ],
    "pinball_loss": [
        Oracle({"alpha": a}, sklearn(sk.mean_pinball_loss, alpha=a), rtol=1e-13) for a in (0.0, 0.1, 0.5, 1.0)
    ],
    "huber_loss": [Oracle({"delta": d}, mean(huber(d))) for d in (0.1, 1.0, 1e9)],
    "mape": [
        Oracle({}, each(mape)),
        Oracle({"percent": True}, each(lambda *row: 100 * mape(*row))),
        Oracle({"zero": "epsilon"}, sklearn(sk.mean_absolute_percentage_error)),
    ],
    "smape": [
        Oracle({}, mean(symmetric)),
        Oracle({"percent": True}, mean(lambda y, p: 100 * symmetric(y, p))),
    ],
    "wmape": [Oracle({}, each(lambda y, p, w: math.fsum(w * np.abs(p - y)) / math.fsum(w * np.abs(y))))],
    "msle": [Oracle({}, sklearn(sk.mean_squared_log_error), "log1p", 1e-13)],
    "rmsle": [Oracle({}, sklearn(sk.root_mean_squared_log_error), "log1p", 1e-13)],
    "poisson_deviance": [
        Oracle({}, each(lambda y, p, w: sk.mean_poisson_deviance(y, p, sample_weight=w)), "nonnegative", 1e-11)
    ],
    "gamma_deviance": [
        Oracle({}, each(lambda y, p, w: sk.mean_gamma_deviance(y, p, sample_weight=w)), "positive", 1e-11)
    ],
    "tweedie_deviance": [
        Oracle({}, tweedie(0.0)),
        Oracle({"power": -1.0}, tweedie(-1.0), "positive_pred", 1e-10),
        Oracle({"power": 1.0}, tweedie(1.0), "nonnegative", 1e-11),
        Oracle({"power": 1.5}, tweedie(1.5), "nonnegative", 1e-11),
        Oracle({"power": 2.0}, tweedie(2.0), "positive", 1e-11),
        Oracle({"power": 3.0}, tweedie(3.0), "positive", 1e-10),
    ],
    "mean_error": [Oracle({}, each(lambda *row: float(moments(*row)["bias"])), rtol=0.0)],
    "r2": [Oracle({}, each(r2), rtol=0.0)],
    "explained_variance": [Oracle({}, each(explained), rtol=0.0)],
    "pearson_correlation": [Oracle({}, each(pearson), rtol=0.0)],
}


def spread(a: list[Fraction], b: list[Fraction], w: list[Fraction]) -> Fraction:
    """The sum of w (a - mean)(b - mean)."""
    p, q = (sum((x * u for x, u in zip(v, w, strict=True)), Fraction(0)) / sum(w) for v in (a, b))
    return sum(((x - p) * (y - q) * u for x, y, u in zip(a, b, w, strict=True)), Fraction(0))
