"""One line for every metric: what it must equal, from outside, as a function of labels, float64 scores and weights.

`exact` values must agree to 1e-14; the others must lie inside the metric's certified bounds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import calibrations as by_bin
import numpy as np
from scipy import special, stats
from sklearn import metrics as sk

Array = Any
NAN = float("nan")


class Oracle(NamedTuple):
    """A reference for a metric of these settings."""

    settings: dict[str, Any]
    of: Callable[[Array, Array, Array], Any]
    scale: str = "probability"


def clipped(p: Array, eps: float = 2.0**-52) -> Array:
    """Scores as scikit-learn's log-loss takes them."""
    return np.clip(p, eps, 1 - eps)


def log_loss(y: Array, p: Array, w: Array, eps: float = 2.0**-52) -> float:
    """scikit-learn's log-loss."""
    return sk.log_loss(y, clipped(p, eps), sample_weight=w, labels=[0, 1])


def logit_loss(y: Array, z: Array, w: Array) -> float:
    """Log-loss from logits."""
    return np.average(np.logaddexp(0, np.where(y, -z, z)), weights=w)


def entropy(b: float) -> float:
    """Entropy of a base rate, in nats."""
    return stats.entropy([b, 1 - b])


def ks(y: Array, s: Array, w: Array) -> float:
    """The two-sample statistic, with weights."""
    if (w == 1).all():
        return stats.ks_2samp(s[y == 1], s[y == 0]).statistic
    order = np.argsort(s, kind="stable")
    ends = np.r_[np.diff(s[order]) != 0, True]
    rates = [np.cumsum(np.where(y[order] == c, w[order], 0))[ends] / w[y == c].sum() for c in (0, 1)]
    return np.abs(rates[1] - rates[0]).max()


def decided(
    function: Callable[..., float], threshold: float = 0.5, **more: Any
) -> Callable[[Array, Array, Array], float]:
    """A scikit-learn metric of decisions at a threshold."""
    return lambda y, s, w: function(y, (s >= threshold).astype(int), sample_weight=w, **more)


def matrix(y: Array, s: Array, w: Array, normalize: str | None = None) -> Array:
    """scikit-learn's confusion matrix."""
    return sk.confusion_matrix(y, s >= 0.5, sample_weight=w, labels=[0, 1], normalize=normalize)


def halves(n: int) -> list[float]:
    """Edges of the bins of strategy="log"."""
    return [0.0, *(2.0**k for k in range(1 - n, 1))]


def by_torch(y: Array, p: Array, w: Array) -> float:
    """ECE as torchmetrics computes it, on bins whose edges are exact."""
    bins = np.minimum(np.searchsorted(np.arange(17) / 16, p, side="right") - 1, 15)
    sums = [np.bincount(bins, w * v, 16) for v in (np.ones(len(p)), p, y)]
    return np.abs(sums[1] - sums[2]).sum() / sums[0].sum()


def counted(y: Array, s: Array, w: Array) -> tuple[Array, Array, Array]:
    """Weight of positives and negatives at or above every distinct score, descending, infinity first."""
    y, s, w = y[w > 0], s[w > 0], w[w > 0]
    order = np.argsort(-s, kind="stable")
    ends = np.flatnonzero(np.r_[np.diff(s[order]) != 0, True])
    tp, fp = (np.r_[0, np.cumsum(np.where(y[order] == c, w[order], 0), dtype=np.longdouble)[ends]] for c in (1, 0))
    return tp, fp, np.r_[np.inf, s[order][ends]]


def roc(y: Array, s: Array, w: Array) -> tuple[Array, ...]:
    """scikit-learn's ROC curve; recounted, as its float32 scores and sums of weights round."""
    tp, fp, thresholds = counted(y, s, w)
    found = fp / fp[-1], tp / tp[-1], thresholds
    for ours, theirs in zip(found, sk.roc_curve(y, s, sample_weight=w, drop_intermediate=False), strict=True):
        np.testing.assert_allclose(ours.astype(float), theirs, rtol=1e-9, atol=1e-12)
    return found


def precision_recall(y: Array, s: Array, w: Array) -> tuple[Array, ...]:
    """scikit-learn's precision-recall curve, recounted."""
    tp, fp, thresholds = counted(y, s, w)
    found = np.r_[(tp[1:] / (tp + fp)[1:])[::-1], 1], np.r_[(tp[1:] / tp[-1])[::-1], 0], thresholds[:0:-1]
    kept = s[w > 0], y[w > 0], w[w > 0]
    for ours, theirs in zip(found, sk.precision_recall_curve(kept[1], kept[0], sample_weight=kept[2]), strict=True):
        np.testing.assert_allclose(ours.astype(float), theirs, rtol=1e-9, atol=1e-12)
    return found


def gains(y: Array, s: Array, w: Array) -> tuple[Array, ...]:
    """Share of positives over share of rows."""
    tp, fp, thresholds = counted(y, s, w)
    return (tp + fp) / (tp + fp)[-1], tp / tp[-1], thresholds


def best(value: Callable[..., Array]) -> Callable[[Array, Array, Array], float]:
    """The largest value over all thresholds."""

    def of(y: Array, s: Array, w: Array) -> float:
        tp, fp, _ = counted(y, s, w)
        with np.errstate(invalid="ignore", divide="ignore"):
            return float(np.nanmax(value(tp, fp, tp[-1], fp[-1])))

    return of


def reached(ok: Array, value: Array) -> Array:
    """The value where a condition holds."""
    return np.where(ok, value, -1)


def near(x: Array) -> Array:
    """Ratios as a float64 user compares them."""
    return x.astype(np.float64)


def lift(y: Array, s: Array, w: Array, fraction: float, kind: str = "lift") -> float:
    """Positives among the highest fraction, ties in part, by interpolating counts."""
    tp, fp, _ = counted(y, s, w)
    gain = np.interp(fraction * (tp + fp)[-1], (tp + fp).astype(float), tp.astype(float)) / float(tp[-1])
    return float(gain) / (fraction if kind == "lift" else 1)


def at_thresholds(settings: dict[str, Any], of: Callable[..., Any]) -> list[Oracle]:
    """The same of exact scores, of a histogram, and of logits."""
    return [
        Oracle(settings | {"exact": True}, of),
        Oracle(settings, of),
        Oracle(settings | {"scale": "real", "bits": 9}, of, "logit"),
    ]


ZERO = {"zero_division": 0.0}
ORACLES: dict[str, list[Oracle]] = {
    "auc": [
        Oracle({}, lambda y, s, w: sk.roc_auc_score(y, s, sample_weight=w)),
        Oracle({"bits": 10}, lambda y, s, w: sk.roc_auc_score(y, s, sample_weight=w)),
        Oracle({"exact": True}, lambda y, s, w: sk.roc_auc_score(y, s, sample_weight=w)),
        Oracle({"exact": True, "max_fpr": 0.1}, lambda y, s, w: sk.roc_auc_score(y, s, sample_weight=w, max_fpr=0.1)),
        Oracle({"max_fpr": 0.1}, lambda y, s, w: sk.roc_auc_score(y, s, sample_weight=w, max_fpr=0.1)),
        Oracle({"scale": "logit"}, lambda y, s, w: sk.roc_auc_score(y, s, sample_weight=w), "logit"),
    ],
    "gini": [Oracle({}, lambda y, s, w: 2 * sk.roc_auc_score(y, s, sample_weight=w) - 1)],
    "average_precision": [
        Oracle({}, lambda y, s, w: sk.average_precision_score(y, s, sample_weight=w)),
        Oracle({"exact": True}, lambda y, s, w: sk.average_precision_score(y, s, sample_weight=w)),
        Oracle({"scale": "real"}, lambda y, s, w: sk.average_precision_score(y, s, sample_weight=w), "logit"),
    ],
    "ks": [
        Oracle({}, ks),
        Oracle({"exact": True, "scale": "logit"}, ks, "logit"),
        Oracle({"scale": "real", "bits": 12}, ks, "logit"),
    ],
    "roc_curve": [Oracle({"exact": True, "tolerance": 0.0}, roc)],
    "pr_curve": [Oracle({"exact": True, "tolerance": 0.0}, precision_recall)],
    "gain_curve": [Oracle({"exact": True, "tolerance": 0.0}, gains)],
    "max_fbeta": [
        *at_thresholds({}, best(lambda tp, fp, P, N: 2 * tp / (P + tp + fp))),
        *at_thresholds({"beta": 2.0}, best(lambda tp, fp, P, N: 5 * tp / (4 * P + tp + fp))),
    ],
    "recall_at_precision": [
        Oracle(
            s | {"precision": r}, best(lambda tp, fp, P, N, r=r: np.r_[0, reached(near(tp / (tp + fp)) >= r, tp / P)])
        )
        for r in (0.5, 0.9)
        for s in ({}, {"exact": True}, {"bits": 9})
    ],
    "precision_at_recall": at_thresholds(
        {"recall": 0.5}, best(lambda tp, fp, P, N: reached(near(tp / P) >= 0.5, tp / (tp + fp)))
    ),
    "sensitivity_at_specificity": at_thresholds(
        {"specificity": 0.8}, best(lambda tp, fp, P, N: reached(near((N - fp) / N) >= 0.8, tp / P))
    ),
    "lift": [
        *at_thresholds({}, lambda y, s, w: lift(y, s, w, 0.1)),
        *at_thresholds({"fraction": 0.3, "kind": "gain"}, lambda y, s, w: lift(y, s, w, 0.3, "gain")),
    ],
    "log_loss": [
        Oracle({}, log_loss),
        Oracle({"eps": 1e-3}, lambda y, p, w: log_loss(y, p, w, 1e-3)),
        Oracle({"soft_labels": True}, log_loss),
        Oracle({"scale": "logit"}, logit_loss, "logit"),
    ],
    "normalized_entropy": [
        *(
            Oracle(soft, lambda y, p, w: log_loss(y, p, w) / entropy(np.average(y, weights=w)))
            for soft in ({}, {"soft_labels": True})
        ),
        Oracle({"base_rate": 0.02}, lambda y, p, w: log_loss(y, p, w) / entropy(0.02)),
    ],
    "brier_score": [
        Oracle({}, lambda y, p, w: sk.brier_score_loss(y, p, sample_weight=w)),
        Oracle({"soft_labels": True}, lambda y, p, w: sk.mean_squared_error(y, p, sample_weight=w)),
        Oracle({"scale": "logit"}, lambda y, z, w: np.average((special.expit(z) - y) ** 2, weights=w), "logit"),
    ],
    "calibration": [
        Oracle({}, lambda y, p, w: (w @ p) / (w @ y)),
        Oracle({"inverse": True}, lambda y, p, w: (w @ y) / (w @ p)),
        Oracle({"scale": "logit"}, lambda y, z, w: (w @ special.expit(z)) / (w @ y), "logit"),
    ],
    "expected_calibration_error": [
        Oracle({}, lambda y, p, w: by_bin.error(y, p, w, by_bin.uniform(p, 15))),
        Oracle({"n_bins": 16}, by_torch),
        Oracle({"n_bins": 7, "norm": "l2"}, lambda y, p, w: by_bin.error(y, p, w, by_bin.uniform(p, 7), "l2")),
        Oracle({"strategy": "quantile"}, lambda y, p, w: by_bin.error(y, p, w, by_bin.quantile(p, w, 15))),
        Oracle({"strategy": "log", "norm": "l2"}, lambda y, p, w: by_bin.error(y, p, w, by_bin.log(p, 15), "l2")),
        Oracle(
            {"scale": "logit"},
            lambda y, z, w: by_bin.error(y, special.expit(z), w, by_bin.uniform(special.expit(z), 15)),
            "logit",
        ),
    ],
    "maximum_calibration_error": [
        Oracle({}, lambda y, p, w: by_bin.error(y, p, w, by_bin.uniform(p, 15), "max")),
        Oracle(
            {"strategy": "quantile", "bits": 9},
            lambda y, p, w: by_bin.error(y, p, w, by_bin.quantile(p, w, 15, 9), "max"),
        ),
    ],
    "calibration_curve": [
        Oracle({}, lambda y, p, w: by_bin.curve(y, p, w, by_bin.uniform(p, 10), np.arange(11) / 10)),
        Oracle(
            {"strategy": "log", "n_bins": 12},
            lambda y, p, w: by_bin.curve(y, p, w, by_bin.log(p, 12), halves(12)),
        ),
    ],
    "calibration_table": [
        Oracle({"strategy": "log"}, lambda y, p, w: by_bin.curve(y, p, w, by_bin.log(p, 10), halves(10))),
    ],
    "bucket_error": [
        Oracle({"n_bins": n}, lambda y, p, w, n=n: by_bin.bucket_error(y, p, w, n)) for n in (100, 950, 10_000)
    ],
    "ctr": [Oracle({}, lambda y, p, w: np.average(y, weights=w))],
    "predicted_ctr": [Oracle({}, lambda y, p, w: np.average(p, weights=w))],
    "confusion_matrix": [
        Oracle({}, matrix),
        *(Oracle({"normalize": n}, lambda y, s, w, n=n: matrix(y, s, w, n)) for n in ("true", "pred", "all")),
    ],
    "accuracy": [Oracle({}, decided(sk.accuracy_score))],
    "error_rate": [Oracle({}, decided(sk.zero_one_loss))],
    "precision": [
        Oracle({"zero_division": 0.0}, decided(sk.precision_score, zero_division=0)),
        Oracle({"threshold": 0.9, "zero_division": 1.0}, decided(sk.precision_score, 0.9, zero_division=1)),
        Oracle({"threshold": -1.5, **ZERO}, decided(sk.precision_score, -1.5, zero_division=0), "logit"),
    ],
    "recall": [Oracle(ZERO, decided(sk.recall_score, zero_division=0))],
    "fbeta": [
        Oracle({"beta": 0.5, **ZERO}, decided(sk.fbeta_score, beta=0.5, zero_division=0)),
        Oracle({"beta": 2.0, "threshold": 0.1, **ZERO}, decided(sk.fbeta_score, 0.1, beta=2, zero_division=0)),
    ],
    "f1": [Oracle(ZERO, decided(sk.f1_score, zero_division=0))],
    "false_positive_rate": [Oracle({}, lambda y, s, w: w[(s >= 0.5) & (y == 0)].sum() / w[y == 0].sum())],
    "specificity": [Oracle({}, decided(sk.recall_score, pos_label=0))],
    "balanced_accuracy": [Oracle({}, decided(sk.balanced_accuracy_score))],
    "matthews_corrcoef": [Oracle(ZERO, decided(sk.matthews_corrcoef))],
    "cohen_kappa": [Oracle({}, decided(sk.cohen_kappa_score))],
    "jaccard": [Oracle(ZERO, decided(sk.jaccard_score, zero_division=0))],
}
