"""One line for every metric of probabilities that has rows of its own: what it must equal, from outside.

References take the columns by name, as `LOGS` of test_probabilities.py has them, and weights.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from oracles_classes import Oracle as Several
from oracles_classes import averages
from scipy import optimize, special, stats
from scipy.spatial import distance
from sklearn import metrics as sk

Array = Any
Columns = dict[str, Array]


class Oracle(NamedTuple):
    """A reference for a metric of these settings on these columns; `near` is how close both must come."""

    settings: dict[str, Any]
    log: str
    of: Callable[[Columns, Array], Any]
    near: float = 1e-12


def mean(values: Array, w: Array) -> Any:
    return np.average(values, weights=w, axis=0)


def clip(p: Array, eps: float = 2.0**-52) -> Array:
    return np.clip(p, eps, 1 - eps)


def loss(y: Array, p: Array, w: Array) -> float:
    return sk.log_loss(y, clip(p), sample_weight=w, labels=[0, 1])


def smoothed(y: Array, p: Array, s: float, eps: float = 2.0**-52) -> Array:
    """Keras' BinaryCrossentropy, row by row."""
    t = y * (1 - s) + 0.5 * s
    return -(t * np.log(clip(p, eps)) + (1 - t) * np.log1p(-clip(p, eps)))


def smoothed_classes(y: Array, log_p: Array, s: float) -> Array:
    """Keras' CategoricalCrossentropy, row by row."""
    width = log_p.shape[1]
    t = np.eye(width)[y] * (1 - s) + s / width
    return -(t * log_p).sum(axis=1)


def focal(y: Array, p: Array, gamma: float, alpha: float | None = None) -> Array:
    """Keras' BinaryFocalCrossentropy, row by row, from the probabilities of both classes."""
    q = np.where(y == 1, clip(p), 1 - clip(p))
    a = 1.0 if alpha is None else np.where(y == 1, alpha, 1 - alpha)
    return -a * (1 - q) ** gamma * np.log(q)


def hinge_each(y: Array, s: Array, w: Array, power: int = 1) -> Array:
    """torchmetrics' multiclass_mode="one-vs-all"."""
    t = np.where(np.eye(s.shape[1])[y] == 1, 1, -1)
    return mean(np.maximum(1 - t * s, 0) ** power, w)


def poisson(y: Array, p: Array, full: bool = False, eps: float = 1e-8) -> Array:
    """PyTorch's PoissonNLLLoss(log_input=False), row by row."""
    out = p - y * np.log(p + eps)
    ys = np.maximum(y, 1)
    return out + np.where(y > 1, ys * np.log(ys) - ys + 0.5 * np.log(2 * np.pi * ys), 0) if full else out


def saved(model: float, reference: float) -> float:
    return 1 - model / reference


def constant(value: float, like: Array) -> Array:
    return np.full(len(like), value)


def brier(y: Array, p: Array, w: Array) -> float:
    return sk.brier_score_loss(y, p, sample_weight=w, pos_label=1)


def ne_positive(y: Array, p: Array, w: Array) -> float:
    """torchrec's ne_positive."""
    b = mean(y, w)
    norm = -(w * y).sum() * np.log2(b) - (w * (1 - y)).sum() * np.log2(1 - b)
    return -(w * y * np.log2(clip(p))).sum() / norm


def free_ne(y: Array, p: Array, w: Array) -> float:
    """The log-loss over that of the mean prediction."""
    return loss(y, p, w) / loss(y, constant(mean(p, w), y), w)


def tjur(y: Array, p: Array, w: Array) -> float:
    """The mean prediction of positives less that of negatives."""
    return mean(p, w * y) - mean(p, w * (1 - y))


def spiegelhalter(y: Array, p: Array, w: Array) -> float:
    return (w * (y - p) * (1 - 2 * p)).sum() / np.sqrt((w * (1 - 2 * p) ** 2 * p * (1 - p)).sum())


def hosmer_lemeshow(y: Array, p: Array, w: Array, n: int, quantile: bool) -> float:
    """By loop over bins: a score is of the bin in which the middle of its rows is, or of the bin of its width."""
    bins = np.minimum((p * n).astype(int), n - 1)
    if quantile:
        _, at = np.unique(p, return_inverse=True)
        weight = np.bincount(at, w)
        middle = np.cumsum(weight) - weight / 2
        bins = np.minimum(np.floor(n * middle / weight.sum()).astype(int), n - 1)[at]
    total = 0.0
    for k in np.unique(bins[w > 0]):
        rows = bins == k
        gap, expected, rest = ((w * x)[rows].sum() for x in (y - p, p, 1 - p))  # what is near 0 is not a difference
        variance = expected * rest / (expected + rest)
        total += gap**2 / variance if variance else np.inf if gap else 0.0
    return total


def recalibrated(y: Array, p: Array, w: Array, free: bool = True) -> Array:
    """Intercept and slope by scipy's solver."""
    x, sign = special.logit(np.clip(p, 2.0**-23, 1 - 2.0**-23)), np.where(y == 1, -1, 1)

    def minus(t: Array) -> tuple[float, Array]:
        z = t[0] + (t[1] if free else 1.0) * x
        pull = sign * special.expit(sign * z)
        slopes = [mean(pull, w), mean(pull * x, w) if free else 0.0]
        return mean(np.logaddexp(0, sign * z), w), np.array(slopes)

    return optimize.minimize(minus, [0.0, 1.0], jac=True, method="BFGS", options={"gtol": 1e-11}).x


def rows_of(pair: Callable[[Array, Array], float]) -> Callable[[Columns, Array], float]:
    """The mean over rows of a function of two vectors."""
    return lambda c, w: mean([pair(a, b) for a, b in zip(c["y_true"], c["y_pred"], strict=True)], w)


def binary(of: Callable[..., Any], *more: Any) -> Callable[[Columns, Array], Any]:
    """A function of label, score and weight."""
    return lambda c, w: of(c["y_true"], c["y_score"], w, *more)


def rows(of: Callable[..., Array], *more: Any) -> Callable[[Columns, Array], Any]:
    """The mean over rows of a function of label and score, or of target and prediction."""
    return lambda c, w: mean(of(c["y_true"], c["y_score"] if "y_score" in c else c["y_pred"], *more), w)


def two(of: Callable[[Array, Array], Array]) -> Callable[[Columns, Array], Any]:
    """The mean over rows of a function of two scores."""
    return lambda c, w: mean(of(c["y_score"], c["baseline"]), w)


def against(of: Callable[..., float], rate: float | None = None) -> Callable[[Columns, Array], float]:
    """The share that is saved of the loss of a column, of a rate, or of the average."""

    def value(c: Columns, w: Array) -> float:
        y, reference = c["y_true"], c.get("baseline")
        if reference is None:
            reference = constant(mean(y, w) if rate is None else rate, y)
        return saved(of(y, c["y_score"], w), of(y, reference, w))

    return value


CLASSES = {"num_classes": 3}

ORACLES: dict[str, list[Oracle]] = {
    "focal_loss": [
        Oracle({}, "binary", rows(focal, 2.0)),
        Oracle({"gamma": 0.5, "alpha": 0.25}, "binary", rows(focal, 0.5, 0.25)),
        Oracle({"scale": "logit", "alpha": 0.3}, "logits", rows(lambda y, z: focal(y, special.expit(z), 2.0, 0.3))),
        Oracle(
            CLASSES | {"alpha": 0.25},
            "classes",
            rows(lambda y, p: 0.25 * focal(np.ones(len(y)), p[np.arange(len(y)), y], 2.0)),
        ),
        Oracle(
            CLASSES | {"scale": "logit", "gamma": 1.0},
            "class logits",
            rows(lambda y, z: focal(np.ones(len(y)), special.softmax(z, axis=1)[np.arange(len(y)), y], 1.0)),
            1e-9,
        ),
    ],
    "hinge_loss": [
        Oracle({}, "logits", lambda c, w: sk.hinge_loss(c["y_true"], c["y_score"], sample_weight=w)),
        Oracle(
            CLASSES,
            "class logits",
            lambda c, w: sk.hinge_loss(c["y_true"], c["y_score"], labels=[0, 1, 2], sample_weight=w),
        ),
        Oracle(CLASSES | {"multiclass": "one-vs-rest", "average": None}, "class logits", binary(hinge_each)),
    ],
    "squared_hinge_loss": [
        Oracle({}, "logits", rows(lambda y, s: np.maximum(1 - np.where(y == 1, s, -s), 0) ** 2)),
        Oracle(
            CLASSES | {"multiclass": "one-vs-rest"},
            "class logits",
            lambda c, w: hinge_each(c["y_true"], c["y_score"], w, 2).mean(),
        ),
    ],
    "poisson_log_loss": [
        Oracle({}, "rates", rows(poisson)),
        Oracle({"full": True, "eps": 1e-7}, "rates", rows(poisson, True, 1e-7)),
        Oracle({"log_input": True}, "logs", rows(lambda y, x: np.exp(x) - y * x)),
    ],
    "d2_log_loss": [
        Oracle({}, "binary", binary(lambda y, p, w: sk.d2_log_loss_score(y, p, sample_weight=w, labels=[0, 1]))),
        Oracle(
            CLASSES, "classes", binary(lambda y, p, w: sk.d2_log_loss_score(y, p, sample_weight=w, labels=[0, 1, 2]))
        ),
    ],
    "d2_brier": [
        Oracle({}, "binary", binary(lambda y, p, w: sk.d2_brier_score(y, p, sample_weight=w, pos_label=1))),
        Oracle(CLASSES, "classes", binary(lambda y, p, w: sk.d2_brier_score(y, p, sample_weight=w, labels=[0, 1, 2]))),
    ],
    "log_loss_skill_score": [
        Oracle({}, "binary", against(loss)),
        Oracle({"base_rate": 0.2}, "binary", against(loss, 0.2)),
        Oracle({"baseline": True}, "baselines", against(loss)),
    ],
    "brier_skill_score": [
        Oracle({}, "binary", against(brier)),
        Oracle({"base_rate": 0.2}, "binary", against(brier, 0.2)),
        Oracle({"baseline": True}, "baselines", against(brier)),
    ],
    "ne_positive": [Oracle({}, "binary", binary(ne_positive))],
    "calibration_free_ne": [
        Oracle({}, "binary", binary(free_ne)),
    ],
    "tjur_discrimination": [
        Oracle({}, "binary", binary(tjur)),
        Oracle({"relative": True}, "binary", binary(lambda y, p, w: mean(p, w * y) / mean(p, w * (1 - y)))),
    ],
    "prediction_difference": [
        Oracle({}, "models", two(lambda a, b: np.abs(a - b))),
        Oracle({"kind": "signed"}, "models", two(lambda a, b: a - b)),
        Oracle({"kind": "symmetric"}, "models", two(lambda a, b: 2 * np.abs(a - b) / (a + b))),
    ],
    "flip_rate": [
        Oracle({}, "models", two(lambda a, b: (a >= 0.5) != (b >= 0.5))),
        Oracle({"threshold": 0.3, "direction": "up"}, "models", two(lambda a, b: (a >= 0.3) & (b < 0.3))),
        Oracle({"direction": "down"}, "models", two(lambda a, b: (a < 0.5) & (b >= 0.5))),
        Oracle({"direction": "both"}, "models", two(lambda a, b: (a >= 0.5) & (b >= 0.5))),
        Oracle({"direction": "neither"}, "models", two(lambda a, b: (a < 0.5) & (b < 0.5))),
    ],
    "d2_tweedie": [
        Oracle(
            {"power": k}, log, lambda c, w, k=k: sk.d2_tweedie_score(c["y_true"], c["y_pred"], power=k, sample_weight=w)
        )
        for k, log in ((1.0, "rates"), (1.5, "rates"), (2.0, "amounts"), (3.0, "amounts"))
    ],
    "spiegelhalter_z": [
        Oracle({}, "binary", binary(spiegelhalter)),
        Oracle({"scale": "logit"}, "logits", lambda c, w: spiegelhalter(c["y_true"], special.expit(c["y_score"]), w)),
    ],
    "hosmer_lemeshow": [
        Oracle({}, "binary", binary(hosmer_lemeshow, 10, True)),
        Oracle({"n_bins": 4, "strategy": "uniform"}, "binary", binary(hosmer_lemeshow, 4, False)),
    ],
    "calibration_slope": [Oracle({}, "binary", binary(lambda y, p, w: recalibrated(y, p, w)[1]), 1e-6)],
    "calibration_intercept": [
        Oracle({}, "binary", binary(lambda y, p, w: recalibrated(y, p, w, free=False)[0]), 1e-6),
        Oracle({"slope": "fitted"}, "binary", binary(lambda y, p, w: recalibrated(y, p, w)[0]), 1e-6),
    ],
    "kl_divergence": [Oracle({"width": 4}, "distributions", rows_of(stats.entropy))],
    "jensen_shannon_divergence": [
        Oracle({"width": 4}, "distributions", rows_of(lambda p, q: distance.jensenshannon(p, q) ** 2), 1e-10),
    ],
    "cosine_similarity": [Oracle({"width": 4}, "vectors", rows_of(lambda a, b: 1 - distance.cosine(a, b)))],
}


def of_top(y: Array, p: Array, w: Array) -> float:
    """Hosmer and Lemeshow's statistic of the class with the highest probability."""
    return hosmer_lemeshow((p.argmax(axis=1) == y).astype(int), p.max(axis=1), w, 10, True)


def skill(of: Callable[..., float]) -> Callable[[Array, Array, Array], float]:
    """The share that is saved of the loss of the average, of two classes."""
    return lambda y, p, w: saved(of(y, p, w), of(y, constant(mean(y, w), y), w))


def together(of: Callable[..., float]) -> list[Several]:
    """A scikit-learn metric of the probabilities of all classes."""

    def value(y: Array, p: Array, w: Array) -> float:
        with warnings.catch_warnings():  # it says that narrow floats do not sum to one, and takes them as they are
            warnings.filterwarnings("ignore", "The y_prob values do not sum to one")
            return of(y, p, sample_weight=w, labels=range(p.shape[1]))

    return [Several({}, value)]


D2_LOSS, D2_BRIER = together(sk.d2_log_loss_score), together(sk.d2_brier_score)
SEVERAL: dict[str, tuple[list[Several], list[Several]]] = {
    "calibration_free_ne": ([], averages(free_ne)),
    "tjur_discrimination": (averages(tjur), averages(tjur)),
    "hosmer_lemeshow": ([Several({}, of_top)], averages(lambda y, p, w: hosmer_lemeshow(y, p, w, 10, True))),
    "focal_loss": ([Several({}, lambda y, p, w: mean(focal(np.ones(len(y)), p[np.arange(len(y)), y], 2.0), w))], []),
    "hinge_loss": (
        [
            Several({}, lambda y, s, w: sk.hinge_loss(y, s, labels=range(s.shape[1]), sample_weight=w)),
            Several({"multiclass": "one-vs-rest", "average": None}, hinge_each),
        ],
        [],
    ),
    "squared_hinge_loss": (
        [Several({"multiclass": "one-vs-rest"}, lambda y, s, w: hinge_each(y, s, w, 2).mean())],
        [],
    ),
    "d2_log_loss": (D2_LOSS, averages(skill(loss))),
    "log_loss_skill_score": (D2_LOSS, averages(skill(loss))),
    "d2_brier": (D2_BRIER, averages(skill(brier))),
    "brier_skill_score": (D2_BRIER, averages(skill(brier))),
}
"""By tag: for classes, and for labels, as `oracles_classes.SEVERAL`."""
