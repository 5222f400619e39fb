"""Metrics for Hugging Face transformers, to pass to a `Trainer` as `compute_metrics`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from transformers import EvalPrediction

from ..batch.convert import as_array
from ..collect.metric_like import MetricLike
from .scorer import Scorer

__all__ = ["compute_metrics"]


class compute_metrics:  # noqa: N801 - named after the argument that it is passed to
    """Metrics for `Trainer(compute_metrics=)` with ``TrainingArguments(batch_eval_metrics=True)``.

    Each batch of an evaluation is counted immediately, so predictions are not stored. The call for the last batch
    returns the values, and the next evaluation starts from zero. Without `batch_eval_metrics`, all rows come in one
    batch; this works, too.

    Parameters
    ----------
    metrics : Metric or MetricCollection
        The metrics to update in place. If a model has two logits for one binary label, they belong to the negative and
        the positive class, in that order.
    link : {"logit", "probability", "identity", "log"}
        The scale of the predictions. Models of the transformers library return logits, so use "logit", or "identity" for
        regression.
    ignore_index : int
        The label of padding; rows or tokens with this label are not counted.
    columns : callable, optional
        Takes an `EvalPrediction`, and returns the other columns that the metrics read, such as `sample_weight` or
        `group`: ``lambda p: {"group": p.inputs["user"]}`` with ``TrainingArguments(include_for_metrics=["inputs"])``.
        The Trainer does not gather inputs: each process gets only its own. Use inputs only with a single process.

    Raises
    ------
    ValueError
        The link does not fit the metrics, or the metrics read columns that are not passed.

    Notes
    -----
    The Trainer gathers the predictions of all processes first, so every process counts all rows, and no sync is needed.
    After an interrupted evaluation, call `reset()`.

    Examples
    --------
    >>> import torch, streammetrics as sm
    >>> from transformers import EvalPrediction
    >>> from streammetrics.hooks.transformers import compute_metrics
    >>> metric = compute_metrics(sm.MetricCollection(sm.AUC(), sm.LogLoss()), link="logit")
    >>> metric(EvalPrediction(torch.tensor([[0.5, -0.5], [0.0, 1.0]]), torch.tensor([0, 1])), compute_result=False)
    {}
    >>> values = metric(EvalPrediction(torch.tensor([[-1.0, 0.0]]), torch.tensor([0])), compute_result=True)
    >>> values["auc"]
    0.75
    """

    def __init__(
        self,
        metrics: MetricLike,
        *,
        link: str,
        ignore_index: int = -100,
        columns: Callable[[EvalPrediction], Mapping[str, Any]] | None = None,
    ) -> None:
        self._scorer = Scorer(metrics, link, None if columns is not None else ())
        self._scorer.compile_kernels()
        self.metrics, self.ignore_index, self.columns = metrics, ignore_index, columns
        self._is_finished = False

    def __call__(self, pred: EvalPrediction, compute_result: bool = True) -> dict[str, float]:
        """Update the metrics with a batch. Return the values after the last batch (`compute_result`), otherwise {}."""
        if self._is_finished:
            self.reset()
        # Set this flag before the update: if the update raises an error, the evaluation is over, and the next call must
        # start from an empty state.
        self._is_finished = True
        predictions, labels = pred.predictions, pred.label_ids
        # Models return the logits first, followed by other outputs such as hidden states.
        if isinstance(predictions, (tuple, list)):
            predictions = predictions[0]
        if isinstance(labels, (tuple, list)):
            raise TypeError(
                "the model has several labels; pass TrainingArguments(label_names=[...]) to choose the one to evaluate"
            )
        self._scorer.update(**self._select_rows(labels, predictions, self.columns(pred) if self.columns else {}))
        self._is_finished = compute_result
        return self._scorer.values() if compute_result else {}

    def reset(self) -> None:
        """Reset the metrics. The first batch after a finished evaluation does this automatically."""
        self.metrics.reset()
        self._is_finished = False

    def _select_rows(self, labels: Any, predictions: Any, columns: Mapping[str, Any]) -> dict[str, Any]:
        """Return the columns with one row for each example or, in sequence tasks, for each token that is not padding."""
        y_true = as_array(labels, "y_true", labels.ndim)
        scores = as_array(predictions, "predictions", predictions.ndim)
        if y_true.shape != scores.shape[: y_true.ndim] or y_true.shape == scores.shape != (len(y_true),):
            # Either this is a multi-label task, which has no padding, or the shapes are invalid and `update` will raise
            # an error.
            return {"y_true": y_true, "predictions": scores, **columns}
        keep = y_true != self.ignore_index if y_true.dtype.kind in "iu" else np.full(y_true.shape, True)
        further = {name: as_array(c, name, getattr(c, "ndim", 1)) for name, c in columns.items()}
        further = {name: c[keep] if c.shape == keep.shape else c for name, c in further.items()}
        return {"y_true": y_true[keep], "predictions": scores[keep], **further}
