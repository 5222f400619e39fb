"""Task types on the command line, each with its default metrics and the argument of `update` for its scores."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["TASK_TYPES", "TaskType"]


class TaskType(NamedTuple):
    """A task type, such as binary classification, with its defaults.

    Parameters
    ----------
    role : str
        The name of the argument of `update` that receives the columns of --score, such as "y_score".
    default_metrics : tuple of str
        The metrics computed for scores if the user names none.
    decision_metrics : tuple of str
        The metrics computed for decisions (--pred), such as predicted classes, if the user names none.
    cutoffs : tuple of int
        The default cutoffs k of ranking metrics.
    output_kind : str
        Whether a row has one score for each class ("classes") or for each label ("labels"). Empty if it has one score.
    report_metrics : tuple of str
        Additional metrics that the charts of a report need.
    """

    role: str
    default_metrics: tuple[str, ...]
    decision_metrics: tuple[str, ...] = ()
    cutoffs: tuple[int, ...] = ()
    output_kind: str = ""
    report_metrics: tuple[str, ...] = ()


TASK_TYPES = {
    "binary": TaskType(
        role="y_score",
        default_metrics=(
            "auc",
            "average_precision",
            "log_loss",
            "normalized_entropy",
            "calibration",
            "ctr",
            "predicted_ctr",
        ),
        decision_metrics=("accuracy", "precision", "recall", "f1", "matthews_corrcoef"),
    ),
    "multiclass": TaskType(
        role="y_score",
        default_metrics=(
            "accuracy",
            "balanced_accuracy",
            "f1",
            "auc",
            "log_loss",
            "brier_score",
            "expected_calibration_error",
        ),
        decision_metrics=("accuracy", "balanced_accuracy", "f1", "matthews_corrcoef", "cohen_kappa"),
        output_kind="classes",
    ),
    "multilabel": TaskType(
        role="y_score",
        default_metrics=(
            "auc",
            "average_precision",
            "f1",
            "label_ranking_average_precision",
            "coverage_error",
            "label_ranking_loss",
            "hamming_loss",
            "subset_accuracy",
        ),
        decision_metrics=("precision", "recall", "f1", "hamming_loss", "subset_accuracy"),
        output_kind="labels",
    ),
    "regression": TaskType(
        role="y_pred",
        default_metrics=("mae", "rmse", "r2", "mean_error", "pearson_correlation", "median_absolute_error"),
        report_metrics=("residual_quantile@0.05", "residual_quantile@0.95"),
    ),
    "ranking": TaskType(
        role="y_score",
        default_metrics=("ndcg", "map", "mrr", "hit_rate", "precision_at_k", "recall_at_k"),
        cutoffs=(10,),
        report_metrics=("ndcg@1", "ndcg@3", "ndcg@5", "ndcg@20"),
    ),
}
