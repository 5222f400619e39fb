"""Metrics for LightGBM: for `lightgbm.train(feval=)`, and for `eval_metric` of its scikit-learn estimators."""

from __future__ import annotations

from typing import Any

import lightgbm
import numpy as np

from ..collect.metric_like import MetricLike
from .boosting import RoundScorer, mark_builtin_name

__all__ = ["eval_metric", "feval"]

Results = list[tuple[str, float, bool]]

BUILTIN_NAMES = frozenset([
    "l1", "l2", "rmse", "quantile", "mape", "huber", "fair", "poisson", "gamma", "gamma_deviance", "tweedie",
    "r2", "ndcg", "map", "auc", "average_precision", "binary_logloss", "binary_error", "auc_mu",
    "multi_logloss", "multi_error", "cross_entropy", "cross_entropy_lambda", "kullback_leibler",
])  # fmt: skip
"""The names that the built-in metrics of LightGBM report, without their cutoffs."""


class RoundMetrics:
    """Metrics that are computed after each round, in the form that LightGBM expects of custom metrics."""

    def __init__(
        self, metrics: MetricLike, *, link: str, maximize: bool | None = None, name: str | None = None
    ) -> None:
        self._rounds = RoundScorer(
            metrics, link, maximize, True, name, lambda metric, _: mark_builtin_name(metric, BUILTIN_NAMES)
        )

    def results(self, y_true: Any, predictions: Any, weight: Any, sizes: Any) -> Results:
        """Return (name, value, whether higher is better) for every metric.

        Parameters
        ----------
        y_true, predictions : array-like
            The labels and predictions of all rows.
        weight : ndarray or None
            The weight of each row. If rows are grouped by query, one weight for each query is also allowed.
        sizes : ndarray or None
            The number of rows of each query, if rows are grouped by query.
        """
        scores = np.asarray(predictions)
        # LightGBM before release 4 passes the scores of several classes as a flat array, in column-major order.
        if scores.ndim == 1 and len(scores) > len(y_true):
            scores = scores.reshape(len(y_true), -1, order="F")
        values = self._rounds.values(y_true, scores, weight, sizes)
        return [(name, value, self._rounds.directions[name]) for name, value in values.items()]


class feval(RoundMetrics):  # noqa: N801 - named after the argument that it is passed to
    """Metrics for the `feval` of `lightgbm.train` and `lightgbm.cv`.

    Parameters
    ----------
    metrics : Metric or MetricCollection
        The metrics to compute after each round on each of `valid_sets`. Ranking metrics read the groups of the Dataset.
    link : {"probability", "logit", "log", "identity"}
        The scale of the predictions. With built-in objectives it is "probability" for `binary`, `multiclass` and
        `multiclassova`, and "identity" for regression and ranking. With a custom objective, LightGBM passes the raw
        score; use "logit" for a logistic loss.
    maximize : bool, optional
        Whether higher is better, for metrics that do not define this themselves (in `About.best`). Early stopping uses
        all metrics.
    name : str, optional
        The name to report for a single metric. By default, the name of the metric, with "_sm" added if LightGBM has a
        built-in metric with the same name ("auc_sm").

    Raises
    ------
    ValueError
        The link does not fit the metrics; the metrics read columns that a Dataset does not contain; a metric does not
        define whether higher is better, and `maximize` is missing; or `name` is the name of a built-in metric.

    Notes
    -----
    The weights of the Dataset are used. In distributed training, each worker evaluates only its own rows.

    Examples
    --------
    >>> import lightgbm as lgb, numpy as np, streammetrics as sm
    >>> from streammetrics.hooks.lightgbm import feval
    >>> x, log = np.arange(200.0)[:, None], {}
    >>> rows = lgb.Dataset(x, x[:, 0] % 70 > 30)
    >>> _ = lgb.train(
    ...     {"objective": "binary", "metric": "None", "verbose": -1},
    ...     rows,
    ...     num_boost_round=3,
    ...     valid_sets=[rows],
    ...     feval=feval(sm.MetricCollection(sm.AUC(), sm.NormalizedEntropy()), link="probability"),
    ...     callbacks=[lgb.early_stopping(2, verbose=False), lgb.record_evaluation(log)],
    ... )
    >>> list(log["training"])
    ['auc_sm', 'normalized_entropy']
    """

    def __call__(self, predictions: Any, data: lightgbm.Dataset) -> Results:
        """Return (name, value, whether higher is better) for every metric; LightGBM calls this after each round."""
        return self.results(data.get_label(), predictions, data.get_weight(), data.get_group())


class eval_metric(RoundMetrics):  # noqa: N801 - named after the argument that it is passed to
    """Metrics for the `eval_metric` argument of `LGBMClassifier.fit`, `LGBMRegressor.fit` and `LGBMRanker.fit`.

    Parameters
    ----------
    metrics, link, maximize, name
        The same as for `feval`.

    Raises
    ------
    ValueError
        The same as for `feval`.

    Examples
    --------
    >>> import lightgbm as lgb, numpy as np, streammetrics as sm
    >>> from streammetrics.hooks.lightgbm import eval_metric
    >>> x, auc = np.arange(200.0)[:, None], eval_metric(sm.AUC(), link="probability")
    >>> y = x[:, 0] % 70 > 30
    >>> model = lgb.LGBMClassifier(n_estimators=3, metric="None", verbose=-1)
    >>> model = model.fit(x, y, eval_X=x, eval_y=y, eval_metric=auc)
    >>> len(model.evals_result_["valid_0"]["auc_sm"])
    3
    """

    def __call__(self, y_true: Any, predictions: Any, weight: Any, group: Any) -> Results:
        """Return (name, value, whether higher is better) for every metric; LightGBM calls this after each round."""
        return self.results(y_true, predictions, weight, group)
