"""XGBoost: metrics for `xgboost.train(custom_metric=)` and for the `eval_metric` of its estimators."""

from __future__ import annotations

from typing import Any

import numpy as np
import xgboost

from ..collect.metric_like import MetricLike
from .boosting import Rounds

__all__ = ["custom_metric", "eval_metric"]


class custom_metric:  # noqa: N801 - named as the argument that it is given to
    """Metrics for the `custom_metric` of `xgboost.train` and `xgboost.cv`.

    Parameters
    ----------
    metrics : Metric or MetricCollection
        What to compute after each round, on each of `evals`. Metrics of rankings read the queries of the DMatrix.
    link : {"probability", "logit", "log", "identity"}
        What XGBoost hands over. With an objective of its own that is the prediction: "probability" of `binary:logistic`
        and `multi:softprob`, "identity" of regression and ranking; "logit" of `binary:logitraw`. With an objective of
        yours (`obj=`) it is the margin: "logit" for a logistic loss.
    maximize : bool, optional
        Whether higher is better, where the metric does not say.

    Attributes
    ----------
    maximize : bool or None
        Whether higher is better, of the last value, by which XGBoost stops early: give it on. XGBoost knows that of its
        own names alone, and takes all others for losses.

    Raises
    ------
    ValueError
        The link does not fit the metrics, or they read columns that a DMatrix has not.

    Notes
    -----
    Weights of the DMatrix are counted. XGBoost writes values with 6 decimals into `evals_result`. In distributed training
    each worker evaluates its rows, and XGBoost shows the mean of the values: that is no AUC of all rows.

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
        self._rounds = Rounds(metrics, link, maximize, queries=True)
        self.maximize = list(self._rounds.directions.values())[-1]

    def __call__(self, predictions: Any, data: xgboost.DMatrix) -> list[tuple[str, float]]:
        """Return the name and the value of every metric."""
        bounds = data.get_uint_info("group_ptr")
        sizes = np.diff(bounds) if len(bounds) > 1 else None
        return list(self._rounds.values(data.get_label(), predictions, data.get_weight(), sizes).items())


class eval_metric:  # noqa: N801 - named as the argument that it is given to
    """A metric for the `eval_metric` of `XGBClassifier` and `XGBRegressor`.

    Parameters
    ----------
    metrics : Metric
        What to compute after each round, one value.
    link : {"probability", "logit", "log", "identity"}
        What XGBoost hands over: see `custom_metric`.
    maximize : bool, optional
        Whether higher is better, where the metric does not say.

    Attributes
    ----------
    maximize : bool or None
        Whether higher is better: for ``xgboost.callback.EarlyStopping(rounds, maximize=)``. The argument
        `early_stopping_rounds` of the estimators takes all but XGBoost's own names for losses.

    Raises
    ------
    ValueError
        The link does not fit the metric, it has several values, or reads queries: those of `XGBRanker` come one by one.

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
        self._rounds = Rounds(metrics, link, maximize, queries=False)
        self.__name__ = self._rounds.only()
        self.maximize = self._rounds.directions[self.__name__]

    def __call__(self, y_true: Any, y_score: Any, sample_weight: Any = None) -> float:
        """Return the value."""
        return self._rounds.values(y_true, y_score, sample_weight)[self.__name__]
