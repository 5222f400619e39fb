"""Threads and processes of one machine; logs in files are better scored by `streammetrics eval`, which cuts them."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterable
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from ..collect.metric_like import MetricLike
from .parts import fold_part, total

__all__ = ["evaluate"]

H = TypeVar("H", bound=MetricLike)


def evaluate(parts: Iterable[Any], metrics: H, *, workers: int | None = None, processes: bool = False) -> H:
    """Count the parts of a log side by side.

    Parameters
    ----------
    parts : iterable of tables, iterators of tables, or callables that return these
        A callable is called in the worker: what opens a file there and reads it, batch by batch, so that nothing but the
        callable itself travels. Tables take part in memory, and are copied to processes.
    metrics : Metric, MetricCollection or Sliced
        What to compute; it stays as it is.
    workers : int, optional
        How many at once; as many as there are processors by default.
    processes : bool
        Whether processes count instead of threads: where reading holds Python's lock. Each starts afresh ("spawn"), so a
        script needs ``if __name__ == "__main__":``, and callables must pickle.

    Returns
    -------
    Metric, MetricCollection or Sliced
        A new object that has seen all parts.

    Raises
    ------
    InvalidInputError
        A batch is bad; parts that have not begun are left.

    Notes
    -----
    Each part costs one state; a few parts for each worker are enough.

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
    with _pool(workers, processes) as pool:
        return total(pool.map(partial(fold_part, metrics=metrics), parts), metrics)


def _pool(workers: int | None, processes: bool) -> Executor:
    if not processes:
        return ThreadPoolExecutor(workers or multiprocessing.cpu_count(), "streammetrics")
    return ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"))  # threads of others do not survive a fork
