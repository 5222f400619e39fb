"""One line for every metric of numbers that came after the first: scikit-learn, or the formula in numpy, of one output."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from sklearn import metrics as sk

Array = Any


class Oracle(NamedTuple):
    """A reference for a metric of these settings: of its columns, by name, and of weights."""

    settings: dict[str, Any]
    of: Any
    rtol: float = 1e-13
    bounded: bool = False


def mean(term: Any) -> Any:
    """The weighted mean of a term of rows."""
    return lambda c, w: math.fsum(w * term(c)) / math.fsum(w)


def errors(c: dict[str, Array]) -> Array:
    """What predictions are off."""
    return c["y_pred"] - c["y_true"]


def moment(c: dict[str, Array], w: Array) -> tuple[Fraction, ...]:
    """Squared error, and sums over targets: w, w y, w y^2, and of predictions."""
    Y, P, W = ([Fraction(v) for v in a.tolist()] for a in (c["y_true"], c["y_pred"], w))
    rows = list(zip(Y, P, W, strict=True))
    sums = lambda f: sum((u * f(y, p) for y, p, u in rows), Fraction(0))  # noqa: E731
    return tuple(
        sums(f)
        for f in (
            lambda y, p: (p - y) ** 2, lambda y, p: 1, lambda y, p: y, lambda y, p: y * y, lambda y, p: p,
            lambda y, p: p * p, lambda y, p: y * p,
        )
    )  # fmt: skip


def root(value: Fraction) -> float:
    """A square root."""
    return math.sqrt(value)


def nrmse(norm: str) -> Any:
    """The root mean squared error over a norm of the targets."""

    def of(c: dict[str, Array], w: Array) -> float:
        d, n, y, yy, *_ = moment(c, w)
        seen = c["y_true"][w > 0]
        by = {
            "mean": float(y / n),
            "range": float(seen.max() - seen.min()) if len(seen) else 0.0,
            "std": root(yy / n - (y / n) ** 2),
            "l2": root(yy),
        }[norm]
        return root(d / n) / by if by else math.nan

    return of


def relative(c: dict[str, Array], w: Array) -> float:
    """The squared error over that of the mean."""
    d, n, y, yy, *_ = moment(c, w)
    return float(d / (yy - y * y / n)) if yy * n != y * y else math.nan


def concordance(ddof: int) -> Any:
    """Lin's concordance."""

    def of(c: dict[str, Array], w: Array) -> float:
        _, n, y, yy, p, pp, yp = moment(c, w)
        m = n - ddof
        parts = (yy - y * y / n) / m, (pp - p * p / n) / m, 2 * (yp - y * p / n) / m
        return float(parts[2] / (parts[0] + parts[1] + ((y - p) / n) ** 2))

    return of


def pinball(c: dict[str, Array], quantiles: Any) -> Array:
    """Twice the mean pinball loss over quantiles."""
    d = c["y_true"][:, None] - c["y_pred"]
    a = np.array(quantiles)
    return 2 * np.where(d >= 0, a * d, (a - 1) * d).mean(axis=1)


def ensemble(c: dict[str, Array], fair: bool) -> Array:
    """As properscoring's `crps_ensemble` over all pairs of members; fair over those of two."""
    x, m = c["y_pred"], c["y_pred"].shape[1]
    apart = np.abs(x[:, :, None] - x[:, None, :]).sum(axis=(1, 2))
    return np.abs(x - c["y_true"][:, None]).mean(axis=1) - apart / (2 * m * (m - 1) if fair else 2 * m * m)


def winkler(c: dict[str, Array], alpha: float) -> Array:
    """The interval score."""
    y, low, high = c["y_true"], c["lower"], c["upper"]
    return (high - low) + 2 / alpha * ((low - y) * (y < low) + (y - high) * (y > high))


def sklearn(function: Any, **more: Any) -> Any:
    """A metric of scikit-learn."""
    return lambda c, w: function(c["y_true"], c["y_pred"], sample_weight=w, **more)


def nonzero(c: dict[str, Array], w: Array) -> float:
    """The mean relative error of targets that are not 0."""
    held = c["y_true"] != 0
    d, y, w = errors(c)[held], np.abs(c["y_true"][held]), w[held]
    return math.fsum(w * (d / y)) / math.fsum(w) if math.fsum(w) else math.nan


def largest(c: dict[str, Array], w: Array) -> float:
    """The largest relative error."""
    held = (c["y_true"] != 0) & (w > 0)
    return float((np.abs(errors(c)[held]) / np.abs(c["y_true"][held])).max()) if held.any() else math.nan


def success(threshold: float) -> Any:
    """Hits over all that reach the threshold in targets or predictions."""

    def of(c: dict[str, Array], w: Array) -> float:
        a, b = c["y_true"] >= threshold, c["y_pred"] >= threshold
        return math.fsum(w * (a & b)) / math.fsum(w * (a | b)) if (w * (a | b)).any() else math.nan

    return of


QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)

ORACLES: dict[str, list[Oracle]] = {
    "log_cosh": [Oracle({}, mean(lambda c: np.logaddexp(errors(c), -errors(c)) - math.log(2)), 1e-9)],
    "minkowski_distance": [
        Oracle({"p": p}, lambda c, w, p=p: math.fsum(w * np.abs(errors(c)) ** p) ** (1 / p))
        for p in (1.0, 2.0, 3.0, 4.5)
    ],
    "critical_success_index": [Oracle({"threshold": t}, success(t)) for t in (0.5, 0.0, -2.0)],
    "mean_relative_error": [
        Oracle({}, nonzero),
        Oracle({"percent": True}, lambda c, w: 100 * nonzero(c, w)),
    ],
    "max_relative_error": [Oracle({}, largest)],
    "nrmse": [Oracle({"normalization": n}, nrmse(n), 1e-11) for n in ("mean", "range", "std", "l2")],
    "nmse": [
        Oracle({}, lambda c, w: float(moment(c, w)[0] / moment(c, w)[3])),
        Oracle(
            {"normalization": "means"},
            lambda c, w: float(moment(c, w)[0] * moment(c, w)[1] / (moment(c, w)[2] * moment(c, w)[4])),
        ),
        Oracle(
            {"normalization": "constant"},  # as torchrec's `get_norm_mse_states`
            lambda c, w: math.fsum(w * errors(c) ** 2) / math.fsum(w * (c["y_true"] - 1) ** 2),
        ),
    ],
    "relative_squared_error": [
        Oracle({}, relative),
        Oracle({"squared": False}, lambda c, w: math.sqrt(relative(c, w))),
    ],
    "concordance_correlation": [Oracle({}, concordance(0)), Oracle({"ddof": 1.0}, concordance(1))],
    "d2_pinball": [
        Oracle({"alpha": a}, sklearn(sk.d2_pinball_score, alpha=a), 1e-12, bounded=True) for a in (0.1, 0.5, 0.9)
    ],
    "d2_absolute_error": [Oracle({}, sklearn(sk.d2_absolute_error_score), 1e-12, bounded=True)],
    "quantile_coverage": [Oracle({}, mean(lambda c: c["y_true"] <= c["y_pred"]))],
    "interval_score": [Oracle({"alpha": a}, mean(lambda c, a=a: winkler(c, a))) for a in (0.1, 0.5)],
    "interval_coverage": [Oracle({}, mean(lambda c: (c["lower"] <= c["y_true"]) & (c["y_true"] <= c["upper"])))],
    "interval_width": [Oracle({}, mean(lambda c: c["upper"] - c["lower"]))],
    "crps_quantiles": [Oracle({"quantiles": QUANTILES}, mean(lambda c: pinball(c, QUANTILES)))],
    "crps_ensemble": [
        Oracle({"members": 5, "estimator": e}, mean(lambda c, f=e == "fair": ensemble(c, f)), 1e-12)
        for e in ("energy", "fair")
    ],
    "mase": [Oracle({}, lambda c, w: math.fsum(w * np.abs(errors(c))) / math.fsum(w * np.abs(c["lag"] - c["y_true"])))],
}
