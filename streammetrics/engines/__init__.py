"""Distributed engines: workers compute the states of their batches as bytes, and the engine merges these bytes.

There is one module for each engine, such as `dask`; importing the module imports the engine. All modules count batches
as `fold` does, and merge states as `streammetrics.merge` does. The result therefore has the same digest as a state that
one process computes in one pass over the whole log.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..collect.metric_like import MetricLike

__all__ = ["fold"]


def fold(batches: Iterable[Any], metrics: MetricLike) -> bytes:
    """Update an empty copy of `metrics` with batches, and return its state as bytes; workers call this function.

    Parameters
    ----------
    batches : iterable of tables
        The tables to pass to `update`: mappings of columns, data frames, Arrow tables or record batches.
    metrics : Metric, MetricCollection, Sliced or Bundle
        The metrics to compute. The object itself does not change, and its own rows are not included.

    Returns
    -------
    bytes
        The state of these rows; `streammetrics.merge` merges such states in any order.

    Raises
    ------
    InvalidInputError
        If a batch contains invalid values.

    Examples
    --------
    >>> import streammetrics as sm
    >>> from streammetrics.engines import fold
    >>> parts = [fold([{"y_true": [0, 1]}], sm.CTR()), fold([{"y_true": [1, 1]}], sm.CTR())]
    >>> sm.merge(parts).compute()
    0.75
    """
    check_metrics(metrics)
    copy = metrics.copy().reset()
    for batch in batches:
        copy.update(batch)
    return copy.to_bytes()


def check_metrics(metrics: Any) -> None:
    """Raise TypeError unless `metrics` can be updated; a task, for example, cannot be updated."""
    if not isinstance(metrics, MetricLike):
        raise TypeError(
            f"expected a metric, MetricCollection or Sliced object, found an object of class "
            f"{type(metrics).__name__}; wrap a list or a task in MetricCollection(...)"
        )
