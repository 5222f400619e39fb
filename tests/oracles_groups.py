"""What metrics within groups must equal: one group after the other, by scikit-learn."""

from __future__ import annotations

from typing import Any

from sklearn.metrics import log_loss, roc_auc_score


def group_auc(u: Any, y: Any, s: Any, w: Any, by: str = "impressions", one_class: Any = "skip") -> float:
    """AUC of every group, averaged."""
    total = weights = 0.0
    for g in dict.fromkeys(u.tolist()):
        mine = (u == g) & (w > 0)
        P, N = w[mine & (y == 1)].sum(), w[mine & (y == 0)].sum()
        weight = {"impressions": P + N, "uniform": 1.0, "positives": P, "pairs": P * N}[by]
        if P and N:
            auc = roc_auc_score(y[mine], s[mine], sample_weight=w[mine])
        elif one_class != "skip" and P + N:
            auc = one_class
        else:
            continue
        total, weights = total + weight * auc, weights + weight
    return total / weights


def group_log_loss(u: Any, y: Any, s: Any, w: Any, by: str = "uniform") -> float:
    """Log-loss of every group, averaged."""
    total = weights = 0.0
    for g in dict.fromkeys(u.tolist()):
        mine = (u == g) & (w > 0)
        if mine.any():
            count = {"uniform": 1.0, "impressions": w[mine].sum(), "positives": (w * y)[mine].sum()}[by]
            total += count * log_loss(y[mine], s[mine], sample_weight=w[mine], labels=[0, 1])
            weights += count
    return total / weights


def group_calibration_error(u: Any, y: Any, s: Any, w: Any, relative: bool = False) -> float:
    """The distance between predicted and observed positives of every group."""
    total = weights = 0.0
    for g in dict.fromkeys(u.tolist()):
        mine = u == g
        gap, all_, seen = abs((w * (s - y))[mine].sum()), w[mine].sum(), (w * y)[mine].sum()
        if relative and seen:
            total, weights = total + all_ * gap / seen, weights + all_
        elif not relative:
            total, weights = total + gap, weights + all_
    return total / weights


ORACLES = {
    "group_auc": group_auc,
    "group_log_loss": group_log_loss,
    "group_calibration_error": group_calibration_error,
}
