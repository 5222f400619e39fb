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
    several: str = ""
    """What several of a row are called: classes, or labels; empty for one."""
    drawn: tuple[str, ...] = ()
    """Metrics that the pictures of a report read besides."""


TYPES = {
    "binary": TaskType(
        role="y_score",
        screen=("auc", "average_precision", "log_loss", "normalized_entropy", "calibration", "ctr", "predicted_ctr"),
        hard=("accuracy", "precision", "recall", "f1", "matthews_corrcoef"),
    ),
    "multiclass": TaskType(
        role="y_score",
        screen=("accuracy", "balanced_accuracy", "f1", "auc", "log_loss", "brier_score", "expected_calibration_error"),
        hard=("accuracy", "balanced_accuracy", "f1", "matthews_corrcoef", "cohen_kappa"),
        several="classes",
    ),
    "multilabel": TaskType(
        role="y_score",
        screen=(
            "auc",
            "average_precision",
            "f1",
            "label_ranking_average_precision",
            "coverage_error",
            "label_ranking_loss",
            "hamming_loss",
            "subset_accuracy",
        ),
        hard=("precision", "recall", "f1", "hamming_loss", "subset_accuracy"),
        several="labels",
    ),
    "regression": TaskType(
        role="y_pred",
        screen=("mae", "rmse", "r2", "mean_error", "pearson_correlation", "median_absolute_error"),
        drawn=("residual_quantile@0.05", "residual_quantile@0.95"),
    ),
    "ranking": TaskType(
        role="y_score",
        screen=("ndcg", "map", "mrr", "hit_rate", "precision_at_k", "recall_at_k"),
        ks=(10,),
        drawn=("ndcg@1", "ndcg@3", "ndcg@5", "ndcg@20"),
    ),
}
