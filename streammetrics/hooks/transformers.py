"""Hugging Face: metrics for the `compute_metrics` of a `Trainer`, batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from transformers import EvalPrediction

from ..batch.convert import as_array
from ..collect.metric_like import MetricLike
from .scorer import Scorer

__all__ = ["compute_metrics"]


class compute_metrics:  # noqa: N801 - named as the argument that it is given to
    """Metrics for `Trainer(compute_metrics=)` with ``TrainingArguments(batch_eval_metrics=True)``.

    Each batch of an evaluation is counted when it comes, so predictions are not kept; the last one gives the values, and
    the next evaluation starts from nothing. Without `batch_eval_metrics` all rows come at once: that works, too.

    Parameters
    ----------
    metrics : Metric or MetricCollection
        What is counted, in this very object. With a lone 0/1 label two logits are taken for its negatives and positives.
    link : {"logit", "probability", "identity", "log"}
        What the model puts out. Models of the library put out logits: "logit"; of regression it is "identity".
    ignore_index : int
        Labels of this value are padding: such rows or tokens are not counted.
    columns : callable, optional
        Makes of an `EvalPrediction` the further columns that metrics read, by name, `sample_weight` among them:
        ``lambda p: {"group": p.inputs["user"]}``, with ``TrainingArguments(include_for_metrics=["inputs"])``. The inputs
        are those of one process.

    Raises
    ------
    ValueError
        The link does not fit the metrics, or they read columns that nobody hands over.

    Notes
    -----
    The Trainer gathers the predictions of all processes before it calls: nothing is to be synced, every process counts all
    rows. An evaluation that was interrupted leaves its rows behind: `reset()` forgets them.

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
        self.metrics, self.ignore_index, self.columns = metrics, ignore_index, columns
        self._done = False

    def __call__(self, pred: EvalPrediction, compute_result: bool = True) -> dict[str, float]:
        """Count a batch; return the values by name after the last one, before it nothing."""
        if self._done:
            self.reset()
        self._done = True  # an evaluation ends where a batch is bad, too
        predictions, labels = pred.predictions, pred.label_ids
        if isinstance(predictions, (tuple, list)):  # logits come first, before hidden states and the like
            predictions = predictions[0]
        if isinstance(labels, (tuple, list)):
            raise TypeError("the model has several labels: TrainingArguments(label_names=[...]) says which to evaluate")
        self._scorer.update(**self._rows(labels, predictions, self.columns(pred) if self.columns else {}))
        self._done = compute_result
        return self._scorer.values() if compute_result else {}

    def reset(self) -> None:
        """Forget every row; a finished evaluation is forgotten when the next one begins."""
        self.metrics.reset()
        self._done = False

    def _rows(self, labels: Any, predictions: Any, columns: Mapping[str, Any]) -> dict[str, Any]:
        """Columns by row; of sequences by token, without those that are padding."""
        y_true = as_array(labels, "y_true", labels.ndim)
        scores = as_array(predictions, "predictions", predictions.ndim)
        if y_true.shape != scores.shape[: y_true.ndim] or y_true.shape == scores.shape != (len(y_true),):
            return {"y_true": y_true, "predictions": scores, **columns}  # of several labels, or what `update` refuses
        keep = y_true != self.ignore_index if y_true.dtype.kind in "iu" else np.full(y_true.shape, True)
        further = {name: as_array(c, name, getattr(c, "ndim", 1)) for name, c in columns.items()}
        further = {name: c[keep] if c.shape == keep.shape else c for name, c in further.items()}
        return {"y_true": y_true[keep], "predictions": scores[keep], **further}
