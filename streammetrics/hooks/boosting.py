"""Compute metrics after each round of a boosting library. The modules for CatBoost, LightGBM and XGBoost use this one."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..collect.metric_like import MetricLike, columns_of
from .scorer import Scorer, find_directions

__all__ = ["RoundScorer"]


class RoundScorer:
    """Computes metrics after each boosting round, from the predictions of that round only.

    Parameters
    ----------
    metrics : Metric or MetricCollection
        The metrics to compute; the object itself does not change.
    link : {"probability", "logit", "log", "identity"}
        The scale of predictions.
    maximize : bool, optional
        Whether higher values are better, for metrics that do not define it (`About.best`).
    queries : bool
        Whether the booster can pass the query of each row, which ranking metrics read.
    """

    def __init__(self, metrics: MetricLike, link: str, maximize: bool | None, queries: bool) -> None:
        # Validate the arguments first, because the next line calls methods that an invalid `metrics` does not have.
        Scorer(metrics, link, ("query",) if queries else ())
        self._scorer = Scorer(metrics.copy().reset(), link, ("query",) if queries else ())
        self._by_query = "query" in columns_of(metrics)
        self.names = self._scorer.names
        if not self.names:
            raise ValueError(f"{metrics!r} has no value that is a single number; for several classes, set average=")
        known = find_directions(metrics, maximize)
        self.directions = {name: known.get(name, maximize) for name in self.names}

    def values(self, y_true: Any, predictions: Any, weight: Any, sizes: Any = None) -> dict[str, float]:
        """Return the values of the metrics by name.

        Parameters
        ----------
        y_true, predictions : ndarray
            The labels and predictions of all rows, with predictions on the scale of `link`.
        weight : ndarray or None
            The weight of each row, or of each query if rows are grouped by query. None or an empty array means no weights.
        sizes : ndarray or None
            The number of rows of each query if rows are grouped by query, otherwise None.
        """
        scorer, columns = self._scorer, {}
        if weight is not None and not len(weight):
            weight = None
        if sizes is not None and len(sizes):
            if weight is not None and len(weight) == len(sizes) != len(y_true):
                weight = np.repeat(weight, sizes)
            if self._by_query:
                columns["query"] = np.repeat(np.arange(len(sizes)), sizes)
        elif self._by_query:
            raise ValueError(
                f"{scorer.metrics!r} reads queries, but the data has no query groups; set group= or qid= of the data"
            )
        scorer.metrics.reset()
        scorer.update(y_true, predictions, weight, **columns)
        return scorer.values()

    def require_single_name(self) -> str:
        """Return the name of the value, for boosters that accept one value; raise ValueError if there are several."""
        if len(self.names) > 1:
            raise ValueError(
                f"this booster takes one value, but the metrics return several ({', '.join(self.names)}); pass a "
                f"single metric"
            )
        return self.names[0]

    def check_directions(self) -> None:
        """Raise ValueError if a metric does not define whether higher values are better, and `maximize` is None."""
        if unknown := [name for name, up in self.directions.items() if up is None]:
            raise ValueError(
                f"{', '.join(unknown)}: early stopping must know whether high or low values are better; pass "
                "maximize=True or maximize=False"
            )
