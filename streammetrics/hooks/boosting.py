"""What a booster asks for after each round: all predictions in, values out, and whether higher ones are better."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..collect.metric_like import MetricLike, columns_of
from .scorer import Scorer, directions

__all__ = ["Rounds"]


class Rounds:
    """Metrics of the predictions of each round, from nothing every time.

    Parameters
    ----------
    metrics : Metric or MetricCollection
        What to compute; the object itself counts nothing.
    link : {"probability", "logit", "log", "identity"}
        What predictions are.
    maximize : bool, optional
        Whether higher is better where a metric does not say (`About.best`).
    queries : bool
        Whether the booster knows which rows are of one query.
    """

    def __init__(self, metrics: MetricLike, link: str, maximize: bool | None, queries: bool) -> None:
        Scorer(metrics, link, ("query",) if queries else ())  # raise before anything is copied
        self._scorer = Scorer(metrics.copy().reset(), link, ("query",) if queries else ())
        self._by_query = "query" in columns_of(metrics)
        self.names = self._scorer.names
        if not self.names:
            raise ValueError(f"{metrics!r} has no value that is one number: average= makes one of several")
        known = directions(metrics, maximize)
        self.directions = {name: known.get(name, maximize) for name in self.names}

    def values(self, y_true: Any, predictions: Any, weight: Any, sizes: Any = None) -> dict[str, float]:
        """Return the values by name.

        Parameters
        ----------
        y_true, predictions : ndarray
            Of all rows.
        weight : ndarray or None
            Of rows or, where rows come by query, of queries; empty means none.
        sizes : ndarray or None
            How many rows each query has, one after the other.
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
            raise ValueError(f"{scorer.metrics!r} reads queries, and the data says not which rows are of one")
        scorer.metrics.reset()
        scorer.update(y_true, predictions, weight, **columns)
        return scorer.values()

    def only(self) -> str:
        """The name of the value, of a booster that takes one."""
        if len(self.names) > 1:
            raise ValueError(f"this booster takes one value, not {', '.join(self.names)}: give one of the metrics")
        return self.names[0]

    def check_directions(self) -> None:
        """Raise unless of every value it is known whether higher is better."""
        if unknown := [name for name, up in self.directions.items() if up is None]:
            raise ValueError(
                f"{', '.join(unknown)}: neither high nor low values are best, and the booster stops early by one of them; "
                "say maximize=True or maximize=False"
            )
