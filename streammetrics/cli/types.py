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
    width : str, optional
        The setting that says how many columns a matrix of scores has.
    ks : tuple of int
        Cut-offs by default.
    """

    role: str
    screen: tuple[str, ...]
    hard: tuple[str, ...] = ()
    width: str | None = None
    ks: tuple[int, ...] = ()


TYPES = {
    "binary": TaskType(
        role="y_score",
        screen=("auc", "average_precision", "log_loss", "normalized_entropy", "calibration", "ctr", "predicted_ctr"),
        hard=("accuracy", "precision", "recall", "f1", "matthews_corrcoef"),
    ),
    "multiclass": TaskType(
        role="y_score",
        screen=("accuracy", "top_k_accuracy", "balanced_accuracy", "f1", "auc", "log_loss", "brier_score"),
        hard=("accuracy", "balanced_accuracy", "precision", "recall", "f1", "matthews_corrcoef", "cohen_kappa"),
        width="num_classes",
    ),
    "multilabel": TaskType(
        role="y_score",
        screen=("label_ranking_average_precision", "label_ranking_loss", "coverage_error", "auc", "average_precision"),
        hard=("hamming_loss", "subset_accuracy", "precision", "recall", "f1"),
        width="num_labels",
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
