"""Metrics for CatBoost: `eval_metric` returns an object for the `eval_metric` parameter of CatBoost models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import catboost  # noqa: F401 - fail at import if CatBoost is missing
import numpy as np

from ..collect.metric_like import MetricLike
from .boosting import RoundScorer

__all__ = ["eval_metric"]


def eval_metric(metrics: MetricLike, *, link: str, maximize: bool | None = None) -> EvalMetric:
    """Return a metric for the `eval_metric` parameter of `CatBoost`, `CatBoostClassifier` and `CatBoostRegressor`.

    Parameters
    ----------
    metrics : Metric
        The metric to compute after each round; it must have one value.
    link : {"probability", "logit", "log", "identity"}
        The scale of the predictions. CatBoost always passes raw scores: "logit" with the losses `Logloss`, `CrossEntropy`
        and `MultiClass`, "log" with `Poisson` and `Tweedie`, "identity" with other regression and ranking losses.
    maximize : bool, optional
        Whether higher is better, if the metric does not define this itself (`About.best`).

    Raises
    ------
    ValueError
        The link does not fit the metric; the metric has several values, or reads columns that CatBoost does not pass;
        or the metric does not define whether higher is better, and `maximize` is missing.

    Notes
    -----
    The weights of the Pool are used. CatBoost's own `AUC` ignores them unless it is written ``AUC:use_weights=true``, so
    its value differs from that of `streammetrics.AUC` if rows have weights. CatBoost evaluates custom metrics on the CPU.

    Examples
    --------
    >>> import catboost, numpy as np, streammetrics as sm
    >>> from streammetrics.hooks.catboost import eval_metric
    >>> x = np.arange(100.0)[:, None]
    >>> rows = catboost.Pool(x, (x[:, 0] % 70 > 30).astype(int))
    >>> auc = eval_metric(sm.AUC(), link="logit")
    >>> model = catboost.CatBoostClassifier(iterations=3, eval_metric=auc, verbose=0, allow_writing_files=False)
    >>> _ = model.fit(rows, eval_set=rows, early_stopping_rounds=2)
    >>> sorted(model.get_evals_result()["validation"])
    ['Logloss', 'auc']
    """
    if link == "probability":
        raise ValueError(
            'CatBoost passes raw scores, not probabilities; with Logloss, CrossEntropy or MultiClass, pass link="logit"'
        )
    return build_eval_metric(metrics, link, maximize)


class EvalMetric:
    """A custom CatBoost metric. CatBoost calls its methods after each round to show values and to stop early."""

    # Without this attribute, CatBoost tries to compile the methods with numba, and warns when that fails.
    no_jit = True

    def __init__(self, metrics: MetricLike, link: str, maximize: bool | None) -> None:
        self._arguments = metrics, link, maximize
        self._rounds = RoundScorer(metrics, link, maximize, queries=False)
        self.name = self._rounds.require_single_name()

    def is_max_optimal(self) -> bool:
        """Return whether higher values are better, which CatBoost needs to know for early stopping."""
        return self._rounds.directions[self.name]

    def evaluate(self, approxes: Sequence[Any], target: Any, weight: Any) -> tuple[float, float]:
        """Return the value of the metric, and a total weight of 1, which `get_final_error` ignores.

        Parameters
        ----------
        approxes : sequence of array-like
            The raw scores: one array, or one for each class.
        target : array-like
            The labels.
        weight : array-like or None
            The weights of the rows.
        """
        scores = np.column_stack([np.asarray(a) for a in approxes]) if len(approxes) > 1 else np.asarray(approxes[0])
        weights = None if weight is None else np.asarray(weight)
        return self._rounds.values(np.asarray(target), scores, weights)[self.name], 1.0

    def get_final_error(self, error: float, weight: float) -> float:
        """Return `error`, the value of `evaluate`, unchanged: it is already final, and is not divided by `weight`."""
        return error

    def __reduce__(self) -> Any:
        return build_eval_metric, self._arguments


def build_eval_metric(metrics: MetricLike, link: str, maximize: bool | None) -> EvalMetric:
    """Return the metric as an object whose class has the name of the metric, because CatBoost displays the class name."""
    metric = EvalMetric(metrics, link, maximize)
    metric.__class__ = type(metric.name, (EvalMetric,), {})
    return metric
