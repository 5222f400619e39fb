"""CatBoost: a metric for the `eval_metric` of its models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import catboost  # noqa: F401 - without it there is nobody to evaluate for
import numpy as np

from ..collect.metric_like import MetricLike
from .boosting import Rounds

__all__ = ["eval_metric"]


def eval_metric(metrics: MetricLike, *, link: str, maximize: bool | None = None) -> EvalMetric:
    """A metric for the `eval_metric` of `CatBoost`, `CatBoostClassifier` and `CatBoostRegressor`.

    Parameters
    ----------
    metrics : Metric
        What to compute after each round, one value.
    link : {"probability", "logit", "log", "identity"}
        What CatBoost hands over: always raw scores, whatever the loss. That is "logit" of `Logloss`, `CrossEntropy` and
        `MultiClass`, "log" of `Poisson` and `Tweedie`, "identity" of other regression and ranking.
    maximize : bool, optional
        Whether higher is better, where the metric does not say (`About.best`).

    Raises
    ------
    ValueError
        The link does not fit the metric, it has several values or reads columns that CatBoost does not hand over, or it
        is not known whether higher is better.

    Notes
    -----
    Weights of the Pool are counted. CatBoost evaluates metrics that are not its own on the CPU.

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
        raise ValueError('CatBoost hands over raw scores: link="logit" of Logloss, CrossEntropy and MultiClass')
    return named(metrics, link, maximize)


class EvalMetric:
    """A metric as CatBoost asks for it."""

    no_jit = True  # else CatBoost tries to compile the methods with numba, and warns that it cannot

    def __init__(self, metrics: MetricLike, link: str, maximize: bool | None) -> None:
        self._given = metrics, link, maximize
        self._rounds = Rounds(metrics, link, maximize, queries=False)
        self.name = self._rounds.only()
        self._rounds.check_directions()

    def is_max_optimal(self) -> bool:
        """Return whether higher is better."""
        return bool(self._rounds.directions[self.name])

    def evaluate(self, approxes: Sequence[Any], target: Any, weight: Any) -> tuple[float, float]:
        """Return the value of all rows, and 1."""
        scores = np.column_stack([np.asarray(a) for a in approxes]) if len(approxes) > 1 else np.asarray(approxes[0])
        weights = None if weight is None else np.asarray(weight)
        return self._rounds.values(np.asarray(target), scores, weights)[self.name], 1.0

    def get_final_error(self, error: float, weight: float) -> float:
        """Return what `evaluate` has: the value is no mean over rows."""
        return error

    def __reduce__(self) -> Any:
        return named, self._given


def named(metrics: MetricLike, link: str, maximize: bool | None) -> EvalMetric:
    """Make it of a class of the metric's name, which is what CatBoost shows."""
    made = EvalMetric(metrics, link, maximize)
    made.__class__ = type(made.name, (EvalMetric,), {})
    return made
