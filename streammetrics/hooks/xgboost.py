"""Metrics for XGBoost: for `xgboost.train(custom_metric=)`, and for `eval_metric` of its scikit-learn estimators."""

from __future__ import annotations

from typing import Any

import numpy as np
import xgboost

from ..collect.metric_like import MetricLike
from .boosting import RoundScorer, mark_builtin_name

__all__ = ["custom_metric", "eval_metric"]

BUILTIN_NAMES = frozenset([
    "rmse", "rmsle", "mae", "mape", "mphe", "logloss", "error", "merror", "mlogloss", "quantile", "expectile",
    "poisson-nloglik", "gamma-nloglik", "gamma-deviance", "tweedie-nloglik", "cox-nloglik", "aft-nloglik",
    "interval-regression-accuracy", "auc", "aucpr", "pre", "map", "ndcg", "ams",
])  # fmt: skip
"""The names of the built-in metrics of XGBoost, without their cutoffs."""
MAXIMIZED_PREFIXES = ("auc", "pre", "map", "ndcg")
"""`xgboost.callback.EarlyStopping` maximizes metrics whose names begin with these, except "mape", and minimizes others."""


def build_name(name: str, is_high: bool) -> str:
    """Return a name that no built-in metric has and that lets XGBoost infer the direction of the metric.

    Parameters
    ----------
    name : str
        The name of the metric.
    is_high : bool
        Whether higher values are better.
    """
    marked = mark_builtin_name(name, BUILTIN_NAMES)
    if marked.startswith(MAXIMIZED_PREFIXES) == is_high:
        return marked
    return f"map_sm_{name}" if is_high else f"sm_{name}"


class custom_metric:  # noqa: N801 - named after the argument that it is passed to
    """Metrics for the `custom_metric` argument of `xgboost.train` and `xgboost.cv`.

    Parameters
    ----------
    metrics : Metric or MetricCollection
        The metrics to compute after each round on each of `evals`. Ranking metrics read the queries of the DMatrix.
    link : {"probability", "logit", "log", "identity"}
        The scale of the predictions. With built-in objectives it is "probability" for `binary:logistic` and
        `multi:softprob`, "logit" for `binary:logitraw`, and "identity" for regression and ranking. With a custom
        objective (`obj=`), XGBoost passes the margin; use "logit" for a logistic loss.
    maximize : bool, optional
        Whether higher is better, for metrics that do not define this themselves (in `About.best`).
    name : str, optional
        The name to report for a single metric. It must fit the naming rule in the notes.

    Attributes
    ----------
    maximize : bool
        Whether higher is better for the last reported value, which XGBoost uses for early stopping.

    Raises
    ------
    ValueError
        The link does not fit the metrics; the metrics read columns that a DMatrix does not contain; a metric does not
        define whether higher is better, and `maximize` is missing; or `name` does not fit the rule.

    Notes
    -----
    For early stopping, XGBoost infers the direction from the name of a metric: it maximizes metrics whose names begin with
    "auc", "pre", "map" or "ndcg", except "mape", and minimizes all others. This class reports names that fit this rule and
    that no built-in metric has. "auc" becomes "auc_sm", and "accuracy" becomes "map_sm_accuracy"; "log_loss" does not
    change. Values are not negated.

    The weights of the DMatrix are used. XGBoost writes values with 6 decimals to `evals_result`. In distributed
    training, each worker evaluates its own rows, and XGBoost shows the mean of the values. The mean of AUCs is not the
    AUC of all rows.

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
    ...     early_stopping_rounds=2,
    ...     evals_result=log,
    ...     verbose_eval=False,
    ... )
    >>> list(log["train"]), len(log["train"]["normalized_entropy"])
    (['logloss', 'normalized_entropy'], 3)
    """

    def __init__(
        self, metrics: MetricLike, *, link: str, maximize: bool | None = None, name: str | None = None
    ) -> None:
        self._rounds = RoundScorer(metrics, link, maximize, True, name, build_name)
        self.maximize = list(self._rounds.directions.values())[-1]

    def __call__(self, predictions: Any, data: xgboost.DMatrix) -> list[tuple[str, float]]:
        """Return (name, value) for every metric; XGBoost calls this after each round."""
        bounds = data.get_uint_info("group_ptr")
        sizes = np.diff(bounds) if len(bounds) > 1 else None
        return list(self._rounds.values(data.get_label(), predictions, data.get_weight(), sizes).items())


class eval_metric:  # noqa: N801 - named after the argument that it is passed to
    """A metric for the `eval_metric` argument of `XGBClassifier` and `XGBRegressor`.

    Parameters
    ----------
    metrics : Metric
        The metric to compute after each round; it must have one value.
    link : {"probability", "logit", "log", "identity"}
        The scale of the predictions; see `custom_metric`.
    maximize, name
        The same as for `custom_metric`.

    Attributes
    ----------
    maximize : bool
        Whether higher is better.

    Raises
    ------
    ValueError
        Raised in the same cases as for `custom_metric`; also if the metric has several values, or is a ranking metric.
        (`XGBRanker` calls custom metrics for each query separately.)

    Examples
    --------
    >>> import numpy as np, xgboost as xgb, streammetrics as sm
    >>> from streammetrics.hooks.xgboost import eval_metric
    >>> x, auc = np.arange(100.0)[:, None], eval_metric(sm.AUC(), link="probability")
    >>> model = xgb.XGBClassifier(n_estimators=3, eval_metric=auc, early_stopping_rounds=2)
    >>> model = model.fit(x, x[:, 0] % 7 > 3, eval_set=[(x, x[:, 0] % 7 > 3)], verbose=False)
    >>> list(model.evals_result()["validation_0"])
    ['logloss', 'auc_sm']
    """

    def __init__(
        self, metrics: MetricLike, *, link: str, maximize: bool | None = None, name: str | None = None
    ) -> None:
        self._rounds = RoundScorer(metrics, link, maximize, False, name, build_name)
        self.__name__ = self._rounds.require_single_name()
        self.maximize = self._rounds.directions[self.__name__]

    def __call__(self, y_true: Any, y_score: Any, sample_weight: Any = None) -> float:
        """Return the value of the metric over all rows; XGBoost calls this after each round."""
        return self._rounds.values(y_true, y_score, sample_weight)[self.__name__]
