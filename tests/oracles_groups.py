"""What metrics within groups must equal: one group after the other, by scikit-learn."""

from __future__ import annotations

from typing import Any

from sklearn.metrics import roc_auc_score


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


ORACLES = {"group_auc": group_auc}
