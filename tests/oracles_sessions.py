"""What average precision by group, and the first rows of sessions, must equal: one group after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.metrics import average_precision_score


def group_average_precision(u: Any, y: Any, s: Any, w: Any, by: str = "uniform") -> float:
    """scikit-learn's of every group with positives, averaged."""
    total = weights = 0.0
    for g in np.unique(u):
        mine = (u == g) & (w > 0)
        if (w * y)[mine].sum():
            count = {"uniform": 1.0, "impressions": w[mine].sum(), "positives": (w * y)[mine].sum()}[by]
            total += count * average_precision_score(y[mine], s[mine], sample_weight=w[mine])
            weights += count
    return total / weights


def first(u: Any, y: Any, s: Any, w: Any, k: int) -> tuple[float, float, float]:
    """Positives among the first k of sessions, rows among them, all positives; ties by their share, as if in any order."""
    hits = shown = 0.0
    for g in np.unique(u):
        left = float(k)
        for score in np.unique(s[u == g])[::-1]:
            mine = (u == g) & (s == score)
            block = w[mine].sum()
            taken = min(left, block)
            hits += taken * (w * y)[mine].sum() / block if block else 0.0
            shown, left = shown + taken, left - taken
    return hits, shown, float((w * y).sum())


def session_precision(u: Any, y: Any, s: Any, w: Any, k: int) -> float:
    """Pooled precision."""
    hits, shown, _ = first(u, y, s, w, k)
    return hits / shown


def session_recall(u: Any, y: Any, s: Any, w: Any, k: int) -> float:
    """Pooled recall."""
    hits, _, positives = first(u, y, s, w, k)
    return hits / positives


def torchrec_session(u: Any, y: Any, s: Any, w: Any, k: int) -> tuple[float, float]:
    """Pooled precision and recall as `ranking_within_session` of torchrec makes them, of one batch without ties."""
    top = np.array([(s[(u == u[i])] > s[i]).sum() < k for i in range(len(y))])
    hits = (w * y * top).sum()
    return hits / (w * top).sum(), hits / (w * y).sum()


ORACLES = {
    "group_average_precision": group_average_precision,
    "session_precision_at_k": session_precision,
    "session_recall_at_k": session_recall,
}
