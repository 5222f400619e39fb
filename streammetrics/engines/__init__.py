"""Engines that read a log in many places: each folds its batches into bytes, and merges bytes.

An adapter is one module, named after its engine, and imports it at the top. All of them are a few lines over `fold`
and `streammetrics.merge`, so all of them end in the same digest, which is that of one pass over the whole log.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..collect.metric_like import MetricLike

__all__ = ["fold"]


def fold(batches: Iterable[Any], metrics: MetricLike) -> bytes:
    """Count batches into a fresh copy of `metrics`, and return its bytes: what a worker does.

    Parameters
    ----------
    batches : iterable of tables
        What `update` takes: mappings, data frames, Arrow tables or record batches, with columns by name.
    metrics : Metric, MetricCollection, Sliced or Bundle
        What is counted. It stays as it is: rows that it has seen are not counted again.

    Returns
    -------
    bytes
        The state of these rows alone, in the library's format; `streammetrics.merge` takes them in any order.

    Raises
    ------
    InvalidInputError
        A batch is bad; nothing is returned.

    Examples
    --------
    >>> import streammetrics as sm
    >>> from streammetrics.engines import fold
    >>> parts = [fold([{"y_true": [0, 1]}], sm.CTR()), fold([{"y_true": [1, 1]}], sm.CTR())]
    >>> sm.merge(parts).compute()
    0.75
    """
    check_metrics(metrics)
    counted = metrics.copy().reset()
    for batch in batches:
        counted.update(batch)
    return counted.to_bytes()


def check_metrics(metrics: Any) -> None:
    """Raise TypeError for what cannot count by itself, such as a task."""
    if not isinstance(metrics, MetricLike):
        raise TypeError(
            f"metrics is a metric, a MetricCollection or Sliced; of a {type(metrics).__name__} make one first"
        )
