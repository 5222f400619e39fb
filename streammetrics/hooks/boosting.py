"""Compute metrics after each boosting round. The modules for CatBoost, LightGBM and XGBoost use this module."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from ..collect.metric_like import MetricLike, columns_of
from .scorer import Scorer, find_directions

__all__ = ["RoundScorer", "mark_builtin_name"]


class RoundScorer:
    """Computes metrics after each boosting round, from the predictions of that round only.

    Parameters
    ----------
    metrics : Metric or MetricCollection
        The metrics to compute. They are copied, so the originals do not change.
    link : {"probability", "logit", "log", "identity"}
        The scale of predictions.
    maximize : bool, optional
        Whether higher values are better, for metrics that do not define this themselves (`About.best`).
    queries : bool
        Whether the booster can pass the query of each row, as ranking metrics require.
    name : str, optional
        The name to report for the value, if there is only one; by default the name of the metric.
    build_name : callable
        Takes a name and whether higher values are better, and returns the name to report. If `name` is passed,
        `build_name` must return it unchanged.

    Attributes
    ----------
    directions : dict of str to bool
        Whether higher values are better, keyed by reported name.

    Raises
    ------
    ValueError
        A metric does not define whether higher values are better and `maximize` is None; no metric has a value that is
        a single number; `name` is passed although there are several values; or `build_name` would change `name`.
    """

    def __init__(
        self,
        metrics: MetricLike,
        link: str,
        maximize: bool | None,
        queries: bool,
        name: str | None = None,
        build_name: Callable[[str, bool], str] = lambda name, _: name,
    ) -> None:
        # Validate the arguments first, because the next line calls methods that an invalid `metrics` does not have.
        Scorer(metrics, link, ("query",) if queries else ())
        self._scorer = Scorer(metrics.copy().reset(), link, ("query",) if queries else ())
        self._by_query = "query" in columns_of(metrics)
        if not self._scorer.names:
            raise ValueError(f"{metrics!r} has no value that is a single number; for several classes, set average=")
        if name is not None and len(self._scorer.names) > 1:
            raise ValueError(
                f"name= names one value, but the metrics return several ({', '.join(self._scorer.names)}); name them with "
                "MetricCollection({name: metric, ...})"
            )
        self.directions = {
            build_name(own if name is None else name, is_high): is_high
            for own, is_high in self._find_known_directions(maximize).items()
        }
        if name is not None and name not in self.directions:
            raise ValueError(
                f"name={name!r} is the name of a built-in metric of the booster, or a name from which the booster infers "
                f"the wrong direction; use for example name={next(iter(self.directions))!r}"
            )

    def _find_known_directions(self, maximize: bool | None) -> dict[str, bool]:
        """Return whether higher is better for each named value; raise ValueError if this is unknown for any of them."""
        known = find_directions(self._scorer.metrics, maximize)
        directions = {own: known.get(own, maximize) for own in self._scorer.names}
        if unknown := [own for own, is_high in directions.items() if is_high is None]:
            raise ValueError(
                f"{', '.join(unknown)}: early stopping must know whether high or low values are better; pass "
                "maximize=True or maximize=False"
            )
        return {own: bool(is_high) for own, is_high in directions.items()}

    def values(self, y_true: Any, predictions: Any, weight: Any, sizes: Any = None) -> dict[str, float]:
        """Return the values of the metrics, keyed by reported name.

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
        return dict(zip(self.directions, scorer.values().values(), strict=True))

    def require_single_name(self) -> str:
        """Return the name of the only value, for boosters that accept just one; raise ValueError if there are more."""
        if len(self.directions) > 1:
            raise ValueError(
                f"this booster takes one value, but the metrics return several ({', '.join(self.directions)}); pass a "
                f"single metric"
            )
        return next(iter(self.directions))


def mark_builtin_name(name: str, builtin: Collection[str]) -> str:
    """Insert "_sm" into a name if the booster has a built-in metric with that name ("ndcg@5" becomes "ndcg_sm@5").

    A booster appends values with equal names to one list, which would then contain two values for each round.
    """
    base, at, cutoff = name.partition("@")
    return f"{base}_sm{at}{cutoff}" if base in builtin else name
