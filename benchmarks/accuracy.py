"""The table at the top of the README: a rare-event log, the exact AUC, and what fixed thresholds make of it."""

from __future__ import annotations

import numpy as np

import streammetrics as sm
from benchmarks.data import cached_clicks
from benchmarks.report import table, verdict

ROWS = 2_000_000
RATE = 0.001


def exact_auc(labels: np.ndarray, scores: np.ndarray) -> float:
    """Count the pairs that are in order, ties as half, in integers; divide once."""
    values, value = np.unique(scores, return_inverse=True)
    negatives, positives = (np.bincount(value[labels == y], minlength=len(values)) for y in (0, 1))
    below = np.cumsum(negatives) - negatives
    twice_the_pairs = int((positives * (2 * below + negatives)).sum())
    return twice_the_pairs / (2 * int(negatives.sum()) * int(positives.sum()))


def keras_auc(labels: np.ndarray, scores: np.ndarray, num_thresholds: int = 200) -> float:
    """Compute what keras.metrics.AUC(num_thresholds=200) computes, by its rules, with float64 for its float32.

    Even thresholds, `score > threshold`, and the trapezoids between the points of the ROC curve.
    """
    epsilon = 1e-7
    thresholds = np.arange(num_thresholds) / (num_thresholds - 1)
    thresholds[0], thresholds[-1] = -epsilon, 1 + epsilon

    def rate(of: np.ndarray) -> np.ndarray:
        above = len(of) - np.searchsorted(np.sort(of), thresholds, side="right")
        return above / len(of)

    recall, fallout = rate(scores[labels == 1]), rate(scores[labels == 0])
    return float(((fallout[:-1] - fallout[1:]) * (recall[:-1] + recall[1:]) / 2).sum())


def main() -> None:
    """Print the AUC of one log at float32 and at float16: exact, by 200 thresholds, and ours with its bound."""
    labels, scores = cached_clicks(ROWS, RATE)
    rows = []
    for dtype in (np.float32, np.float16):
        typed = scores.astype(dtype)
        exact, keras = exact_auc(labels, typed), keras_auc(labels, typed)
        auc = sm.AUC().update(labels, typed)
        ours, (low, high) = auc.compute(), auc.bounds()
        certified = low <= exact <= high and (dtype == np.float32 or low == high == exact)
        name = dtype.__name__
        rows.append([f"{name}, exact (sort)", f"{exact:.7f}", "", "", ""])
        rows.append([f"{name}, 200 thresholds (Keras)", f"{keras:.7f}", f"{keras - exact:+.1e}", "none", ""])
        bound = f"{low:.7f} .. {high:.7f}" if low < high else "exact"
        rows.append([f"{name}, streammetrics", f"{ours:.7f}", f"{ours - exact:+.1e}", bound, verdict(name, certified)])
    title = f"AUC of {ROWS:,} rows, {labels.mean():.2%} clicks"
    table(title, ["scores, method", "AUC", "error", "certified", ""], rows)


if __name__ == "__main__":
    main()
