"""One line for every metric of several classes or labels: what it must equal, from outside.

`SEVERAL` has the metrics of two classes as they are with `num_classes=` and `num_labels=`: references take true classes
(or a matrix of labels), float64 scores and weights.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from oracles import Oracle, ks
from scipy import special, stats
from sklearn import metrics as sk

Array = Any


def one_hot(y: Array, width: int) -> Array:
    """Each class against the rest."""
    return (y[:, None] == np.arange(width)).astype(int) if y.ndim == 1 else y


def mean(values: Array, w: Array) -> float:
    """A weighted mean."""
    return float(np.average(values, weights=w))


def each(binary: Callable[[Array, Array, Array], float], average: str | None = "macro") -> Callable[..., Any]:
    """A reference for two classes, of each column; averaged."""

    def of(y: Array, s: Array, w: Array) -> Any:
        Y, width = one_hot(y, s.shape[1]), s.shape[1]
        if average == "micro":
            return binary(Y.reshape(-1), s.reshape(-1), np.repeat(w, width))
        values = np.array([binary(Y[:, k], s[:, k], w) for k in range(width)])
        if average is None:
            return values
        weights = (Y * w[:, None]).sum(axis=0) if average == "weighted" else np.ones(width)
        known = ~np.isnan(values)
        return float(np.average(values[known], weights=weights[known]))

    return of


def averages(binary: Callable[[Array, Array, Array], float], **settings: Any) -> list[Oracle]:
    """The same with every average."""
    return [Oracle(settings | {"average": a}, each(binary, a)) for a in ("macro", "micro", "weighted", None)]


def decided(of: Callable[..., Any], **more: Any) -> Callable[[Array, Array, Array], Any]:
    """A scikit-learn metric of predicted classes, or of decisions on labels."""

    def value(y: Array, s: Array, w: Array) -> Any:
        return of(y, s.argmax(axis=1) if y.ndim == 1 else s >= 0.5, sample_weight=w, **more)

    return value


def ratio(of: Callable[..., Any], **more: Any) -> list[Oracle]:
    """A scikit-learn ratio with every average."""
    zero = {"zero_division": 0.0}

    def value(average: str | None) -> Callable[[Array, Array, Array], Any]:
        return lambda y, s, w: decided(of, average=average, labels=range(s.shape[1]), **zero, **more)(y, s, w)

    return [Oracle({"average": a} | zero | more, value(a)) for a in ("macro", "micro", "weighted", None)]


def by_cells(of: Callable[[Array], Array]) -> list[Oracle]:
    """A ratio of the cells [[tn, fp], [fn, tp]] of each class."""

    def value(average: str | None) -> Callable[..., Any]:
        def compute(y: Array, s: Array, w: Array) -> Any:
            width = s.shape[1]
            p = one_hot(s.argmax(axis=1), width) if y.ndim == 1 else s >= 0.5
            cells = sk.multilabel_confusion_matrix(one_hot(y, width), p, sample_weight=w).astype(float)
            if average == "micro":
                return float(of(cells.sum(axis=0)[None])[0])
            values = of(cells)
            known = values[~np.isnan(values)]
            return values if average is None else float(np.average(known)) if len(known) else np.nan

        return compute

    return [Oracle({"average": a}, value(a)) for a in ("macro", "micro", None)]


def quiet(a: Array, b: Array) -> Array:
    """A quotient that may be undefined."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(b == 0, np.nan, a / b)


def auc(y: Array, s: Array, w: Array) -> float:
    """AUC of two classes."""
    return sk.roc_auc_score(y, s, sample_weight=w) if 0 < (y * (w > 0)).sum() < (w > 0).sum() else np.nan


def precision(y: Array, s: Array, w: Array) -> float:
    """Average precision of two classes."""
    return sk.average_precision_score(y, s, sample_weight=w) if (y * w).sum() else np.nan


def log_loss(y: Array, p: Array, w: Array, eps: float = 2.0**-52) -> float:
    """The mean of minus the log of the probability of the true class."""
    return mean(-np.log(np.clip(p[np.arange(len(y)), y], eps, 1 - eps)), w)


def softmax_loss(y: Array, z: Array, w: Array) -> float:
    """The same from logits."""
    return mean(special.logsumexp(z, axis=1) - z[np.arange(len(y)), y], w)


def binary_loss(y: Array, p: Array, w: Array) -> float:
    """Log-loss of two classes."""
    return mean(-np.log(np.clip(np.where(y == 1, p, 1 - p), 2.0**-52, 1 - 2.0**-52)), w)


def brier(y: Array, p: Array, w: Array) -> float:
    """The sum of squared differences over classes."""
    return mean(((p - one_hot(y, p.shape[1])) ** 2).sum(axis=1), w)


def entropy(y: Array, p: Array, w: Array) -> float:
    """Normalized entropy of two classes."""
    b = mean(y, w)
    return binary_loss(y, p, w) / stats.entropy([b, 1 - b]) if 0 < b < 1 else np.nan


def gap(y: Array, p: Array, w: Array, n: int = 15, largest: bool = False) -> float:
    """Calibration error of two classes in bins of equal width."""
    bins = np.minimum((p * n).astype(int), n - 1)
    W, P, Y = (np.bincount(bins, w * v, n) for v in (np.ones(len(p)), p, y))
    gaps = np.abs(P - Y)
    return float((gaps[W > 0] / W[W > 0]).max() if largest else gaps.sum() / W.sum())


def top(largest: bool) -> Callable[[Array, Array, Array], float]:
    """Calibration error of the class with the highest probability."""
    return lambda y, p, w: gap((p.argmax(axis=1) == y).astype(int), p.max(axis=1), w, largest=largest)


def calibrated(y: Array, p: Array, w: Array) -> float:
    """Predicted over observed."""
    return (w * p).sum() / (w * y).sum() if (w * y).sum() else np.nan


def agreement(of: Callable[..., Any], **settings: Any) -> tuple[list[Oracle], list[Oracle]]:
    """A number of the whole matrix: of classes by scikit-learn, of labels the mean over them."""

    def value(y: Array, s: Array, w: Array) -> float:
        if y.ndim == 1:
            return of(y, s.argmax(axis=1), sample_weight=w)
        return float(np.nanmean([of(y[:, k], s[:, k] >= 0.5, sample_weight=w) for k in range(s.shape[1])]))

    return [Oracle(settings, value)], [Oracle(settings, value)]


def top_k(k: int) -> Callable[[Array, Array, Array], float]:
    """Rows whose true class has fewer than k before it, lower numbers first among ties."""

    def of(y: Array, s: Array, w: Array) -> float:
        order = np.argsort(-s, axis=1, kind="stable")[:, :k]
        return mean((order == y[:, None]).any(axis=1), w)

    return of


def matrix(normalize: str | None = None) -> Callable[..., Array]:
    """The confusion matrix, or those of labels."""

    def of(y: Array, s: Array, w: Array) -> Array:
        if y.ndim == 1:
            return sk.confusion_matrix(
                y, s.argmax(axis=1), sample_weight=w, labels=range(s.shape[1]), normalize=normalize
            )
        return sk.multilabel_confusion_matrix(y, s >= 0.5, sample_weight=w)

    return of


SEVERAL: dict[str, tuple[list[Oracle], list[Oracle]]] = {
    "auc": (averages(auc), averages(auc)),
    "gini": ([Oracle({}, each(lambda *a: 2 * auc(*a) - 1))],) * 2,
    "average_precision": (averages(precision), averages(precision)),
    "ks": ([Oracle({}, each(ks))],) * 2,
    "log_loss": (
        [Oracle({}, log_loss), Oracle({"scale": "logit"}, softmax_loss, "logit")],
        averages(binary_loss),
    ),
    "normalized_entropy": ([], [Oracle({}, each(entropy))]),
    "brier_score": (
        [
            Oracle({}, brier),
            Oracle({"scale": "logit"}, lambda y, z, w: brier(y, special.softmax(z, axis=1), w), "logit"),
        ],
        averages(lambda y, p, w: mean((p - y) ** 2, w)),
    ),
    "calibration": (averages(calibrated), averages(calibrated)),
    "ctr": (averages(lambda y, p, w: mean(y, w)),) * 2,
    "predicted_ctr": (averages(lambda y, p, w: mean(p, w)),) * 2,
    "expected_calibration_error": (
        [
            Oracle({}, top(False)),
            Oracle({"scale": "logit"}, lambda y, z, w: top(False)(y, special.softmax(z, axis=1), w), "logit"),
        ],
        averages(gap),
    ),
    "maximum_calibration_error": ([Oracle({}, top(True))], [Oracle({}, each(lambda *a: gap(*a, largest=True)))]),
    "confusion_matrix": (
        [Oracle({"normalize": n}, matrix(n)) for n in (None, "true", "pred", "all")],
        [Oracle({}, matrix())],
    ),
    "accuracy": agreement(sk.accuracy_score),
    "error_rate": agreement(sk.zero_one_loss),
    "balanced_accuracy": agreement(sk.balanced_accuracy_score),
    "matthews_corrcoef": agreement(sk.matthews_corrcoef, zero_division=0.0),
    "cohen_kappa": agreement(sk.cohen_kappa_score),
    "hamming_loss": ([Oracle({}, decided(sk.hamming_loss))],) * 2,
    "precision": (ratio(sk.precision_score),) * 2,
    "recall": (ratio(sk.recall_score),) * 2,
    "f1": (ratio(sk.f1_score),) * 2,
    "fbeta": (ratio(sk.fbeta_score, beta=2.0),) * 2,
    "jaccard": (ratio(sk.jaccard_score),) * 2,
    "specificity": (by_cells(lambda c: quiet(c[:, 0, 0], c[:, 0].sum(axis=1))),) * 2,
    "false_positive_rate": (by_cells(lambda c: quiet(c[:, 0, 1], c[:, 0].sum(axis=1))),) * 2,
    "top_k_accuracy": ([Oracle({"k": k}, top_k(k)) for k in (1, 2, 3)], []),
    "coverage_error": ([], [Oracle({}, lambda y, s, w: sk.coverage_error(y, s, sample_weight=w))]),
    "label_ranking_average_precision": (
        [],
        [Oracle({}, lambda y, s, w: sk.label_ranking_average_precision_score(y, s, sample_weight=w))],
    ),
    "label_ranking_loss": ([], [Oracle({}, lambda y, s, w: sk.label_ranking_loss(y, s, sample_weight=w))]),
    "subset_accuracy": ([], [Oracle({}, decided(sk.accuracy_score))]),
}
"""By tag: for classes, and for labels."""

ORACLES = {
    tag: SEVERAL[tag]
    for tag in (
        "top_k_accuracy",
        "coverage_error",
        "label_ranking_average_precision",
        "label_ranking_loss",
        "subset_accuracy",
        "hamming_loss",
    )
}
