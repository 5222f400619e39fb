"""Compute metrics of the parts of a log in threads or processes on one machine.

For log files, the command `streammetrics eval` is simpler.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterable
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from ..collect.metric_like import MetricLike
from ..collect.query_columns import find_query_column
from . import check_metrics
from .parts import fold_part, merge_results
from .whole_queries import fold_queries, merge_queries

__all__ = ["evaluate"]

H = TypeVar("H", bound=MetricLike)


def evaluate(parts: Iterable[Any], metrics: H, *, workers: int | None = None, processes: bool = False) -> H:
    """Compute metrics of the parts of a log in parallel.

    Parameters
    ----------
    parts : iterable of tables, iterators of tables, or callables that return these
        The log. A callable runs in the worker, where it can open a file and read it in batches, so that no rows are
        sent to the worker. Tables, which are already in memory, are copied to the workers if `processes` is True.
    metrics : Metric, MetricCollection or Sliced
        The metrics to compute; the object itself does not change.
    workers : int, optional
        The number of workers; by default the number of processors.
    processes : bool
        Whether to use processes rather than threads. Processes are faster if reading the rows holds the global
        interpreter lock. They are spawned, so a script needs ``if __name__ == "__main__":``, and callables must be
        picklable.

    Returns
    -------
    Metric, MetricCollection or Sliced
        A new object with the state of all parts.

    Raises
    ------
    InvalidInputError
        If a batch contains invalid values, in which case the remaining parts are not read, or if the rows of a query
        are not adjacent (for ranking metrics).

    Notes
    -----
    Parts and batches can end in the middle of a query. The rows of the first and the last query of each part are joined
    with those of other parts before they are counted. The IDs of all queries are kept until the end (8 or 16 bytes
    each), to find queries whose rows are not adjacent. If there are any, sort the log by query first, or use the
    command `streammetrics eval`, which sorts it on disk.

    Each part needs memory for one state, so do not divide the log into more than a few parts per worker.

    Examples
    --------
    >>> import streammetrics as sm
    >>> from streammetrics.engines import local
    >>> def read(hour):
    ...     yield {"y_true": [0, 1, 1], "y_score": [0.1 * hour, 0.4, 0.9]}
    >>> hours = [lambda hour=hour: read(hour) for hour in range(3)]
    >>> local.evaluate(hours, sm.MetricCollection(sm.AUC(), sm.CTR())).compute()["auc"]
    1.0
    """
    check_metrics(metrics)
    with _build_pool(workers, processes) as pool:
        if find_query_column(metrics) is not None:
            return merge_queries(pool.map(partial(fold_queries, metrics=metrics), parts), metrics)
        return merge_results(pool.map(partial(fold_part, metrics=metrics), parts), metrics)


def _build_pool(workers: int | None, processes: bool) -> Executor:
    if not processes:
        return ThreadPoolExecutor(workers or multiprocessing.cpu_count(), "streammetrics")
    # Spawn processes rather than fork them, because a forked process would lack the threads of numba and other
    # libraries.
    return ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"))
