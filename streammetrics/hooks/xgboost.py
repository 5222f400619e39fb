"""Metrics for XGBoost: for `xgboost.train(custom_metric=)`, and for the `eval_metric` of its scikit-learn estimators."""

from __future__ import annotations

from typing import Any

import numpy as np
import xgboost

from ..collect.metric_like import MetricLike
from .boosting import RoundScorer

__all__ = ["custom_metric", "eval_metric"]


class custom_metric:  # noqa: N801 - named after the argument that it is passed to
    """Metrics for the `custom_metric` of `xgboost.train` and `xgboost.cv`.

    Parameters
    ----------
    metrics : Metric or MetricCollection
        The metrics to compute after each round on each of `evals`. Ranking metrics read the queries of the DMatrix.
    link : {"probability", "logit", "log", "identity"}
        The scale of the predictions. With built-in objectives it is "probability" for `binary:logistic` and
        `multi:softprob`, "logit" for `binary:logitraw`, and "identity" for regression and ranking. With a custom objective
        (`obj=`), XGBoost passes the margin: "logit" for a logistic loss.
    maximize : bool, optional
        Whether higher is better, if the metric does not define it.

    Attributes
    ----------
    maximize : bool or None
        Whether higher is better for the last value, which XGBoost uses for early stopping. Pass this attribute to
        `train(maximize=)`, because XGBoost otherwise minimizes every metric that it does not know.

    Raises
    ------
    ValueError
        The link does not fit the metrics, or they read columns that a DMatrix does not have.

    Notes
    -----
    The weights of the DMatrix are used. XGBoost writes values with 6 decimals into `evals_result`. In distributed
    training, each worker evaluates its rows, and XGBoost shows the mean of the values, which is not the AUC of all rows.

    Examples
    --------
    >>> import numpy as np, xgboost as xgb, streammetrics as sm
    >>> from streammetrics.hooks.xgboost import custom_metric
    >>> x = np.arange(100.0)[:, None]
    >>> rows = xgb.DMatrix(x, x[:, 0] % 7 > 3)
    >>> ne = custom_metric(sm.NormalizedEntropy(), link="probability")
    >>> log = {}
    >>> _ = xgb.train(
    ...     {"objective": "binary:logistic"},
    ...     rows,
    ...     num_boost_round=3,
    ...     evals=[(rows, "train")],
    ...     custom_metric=ne,
    ...     maximize=ne.maximize,
    ...     early_stopping_rounds=2,
    ...     evals_result=log,
    ...     verbose_eval=False,
    ... )
    >>> list(log["train"]), len(log["train"]["normalized_entropy"])
    (['logloss', 'normalized_entropy'], 3)
    """

    def __init__(self, metrics: MetricLike, *, link: str, maximize: bool | None = None) -> None:
        self._rounds = RoundScorer(metrics, link, maximize, queries=True)
        self.maximize = list(self._rounds.directions.values())[-1]

    def __call__(self, predictions: Any, data: xgboost.DMatrix) -> list[tuple[str, float]]:
        """Return (name, value) for every metric; XGBoost calls this after each round."""
        bounds = data.get_uint_info("group_ptr")
        sizes = np.diff(bounds) if len(bounds) > 1 else None
        return list(self._rounds.values(data.get_label(), predictions, data.get_weight(), sizes).items())


class eval_metric:  # noqa: N801 - named after the argument that it is passed to
    """A metric for the `eval_metric` of `XGBClassifier` and `XGBRegressor`.

    Parameters
    ----------
    metrics : Metric
        The metric to compute after each round; it must have one value.
    link : {"probability", "logit", "log", "identity"}
        The scale of the predictions; see `custom_metric`.
    maximize : bool, optional
        Whether higher is better, if the metric does not define it.

    Attributes
    ----------
    maximize : bool or None
        Whether higher is better, for ``xgboost.callback.EarlyStopping(rounds, maximize=)``. Do not use the argument
        `early_stopping_rounds` of the estimators instead: it minimizes every metric that XGBoost does not know.

    Raises
    ------
    ValueError
        The link does not fit the metric, the metric has several values, or it is a ranking metric. (`XGBRanker` calls
        custom metrics for each query separately.)

    Examples
    --------
    >>> import numpy as np, xgboost as xgb, streammetrics as sm
    >>> from streammetrics.hooks.xgboost import eval_metric
    >>> x, auc = np.arange(100.0)[:, None], eval_metric(sm.AUC(), link="probability")
    >>> stop = xgb.callback.EarlyStopping(rounds=2, maximize=auc.maximize)
    >>> model = xgb.XGBClassifier(n_estimators=3, eval_metric=auc, callbacks=[stop])
    >>> model = model.fit(x, x[:, 0] % 7 > 3, eval_set=[(x, x[:, 0] % 7 > 3)], verbose=False)
    >>> list(model.evals_result()["validation_0"])
    ['logloss', 'auc']
    """

    def __init__(self, metrics: MetricLike, *, link: str, maximize: bool | None = None) -> None:
        self._rounds = RoundScorer(metrics, link, maximize, queries=False)
        self.__name__ = self._rounds.require_single_name()
        self.maximize = self._rounds.directions[self.__name__]

    def __call__(self, y_true: Any, y_score: Any, sample_weight: Any = None) -> float:
        """Return the value of the metric over all rows; XGBoost calls this after each round."""
        return self._rounds.values(y_true, y_score, sample_weight)[self.__name__]
