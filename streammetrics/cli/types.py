"""Types of tasks on the command line: what a model's column is, and what an unasked question about it gets."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["TYPES", "TaskType"]


class TaskType(NamedTuple):
    """A type of task.

    Parameters
    ----------
    role : str
        What the columns of --score play.
    screen : tuple of str
        Metrics by default.
    hard : tuple of str
        Metrics by default of --pred: of decisions instead of scores.
    ks : tuple of int
        Cut-offs by default.
    """

    role: str
    screen: tuple[str, ...]
    hard: tuple[str, ...] = ()
    ks: tuple[int, ...] = ()


TYPES = {
    "binary": TaskType(
        role="y_score",
        screen=("auc", "average_precision", "log_loss", "normalized_entropy", "calibration", "ctr", "predicted_ctr"),
        hard=("accuracy", "precision", "recall", "f1", "matthews_corrcoef"),
    ),
    "regression": TaskType(
        role="y_pred",
        screen=("mae", "rmse", "r2", "mean_error", "pearson_correlation", "median_absolute_error"),
    ),
    "ranking": TaskType(
        role="y_score",
        screen=("ndcg", "map", "mrr", "hit_rate", "precision_at_k", "recall_at_k"),
        ks=(10,),
    ),
}
