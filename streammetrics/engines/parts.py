"""Functions shared by all engine modules, which compute the state of a part of a log, find columns and merge states."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from ..batch.columns import ROLES, suggest_column
from ..collect.collection import MetricCollection
from ..collect.metric import Metric
from ..collect.metric_like import MetricLike, answer_of, columns_of, without_block_ends
from ..collect.query_columns import find_query_column
from ..collect.serialization import from_bytes, merge
from ..errors import InvalidInputError
from . import check_metrics, fold

__all__ = ["find_read_columns", "fold_part", "iterate_batches", "merge_results", "read_value", "warn_of_size"]

H = TypeVar("H", bound=MetricLike)
R = TypeVar("R")

# A warning is issued when the states and query IDs that the workers have sent to the driver exceed this many bytes.
DRIVER_BYTES = 1 << 30


def fold_part(part: Any, metrics: MetricLike) -> bytes:
    """Compute the state of one part of a log; the tasks of an engine call this function.

    Parameters
    ----------
    part : table, iterator or list of tables, or callable that returns these
        The rows. A callable runs in the worker and reads the rows there, so that no rows are sent to the worker. An
        example is the method ``batches`` of an item of `streammetrics.io.logs.Log.parts`.
    metrics : Metric, MetricCollection or Sliced
        The metrics to compute; the object itself does not change.

    Returns
    -------
    bytes
        The state of these rows.

    Raises
    ------
    InvalidInputError
        If a batch contains invalid values.
    """
    return fold(iterate_batches(part() if callable(part) else part), metrics)


def iterate_batches(part: Any) -> Iterable[Any]:
    """Return the batches of a part, which is an iterator (such as an Arrow reader), a list, a tuple or one table."""
    return part if isinstance(part, (Iterator, list, tuple)) else (part,)


def find_read_columns(metrics: MetricLike, present: Iterable[str]) -> list[str]:
    """Return the columns of a table that `update` reads, so that an engine fetches no others.

    Raises
    ------
    InvalidInputError
        If a required column is missing. Missing query columns are not an error, because a table does not need them if
        each row contains a whole query as lists.
    """
    check_metrics(metrics)
    names, query, columns = list(present), find_query_column(metrics), columns_of(metrics)
    for name, required in columns.items():
        if required and name not in names and name not in (query if isinstance(query, tuple) else (query,)):
            listed = ", ".join(map(repr, names)) or "none"
            renamed = f"; if the column has another name, pass {name}= to Task"
            hint = renamed if name in ROLES else suggest_column(name, names)
            raise InvalidInputError(f"there is no column {name!r}; the table has {listed}{hint}", column=name)
    return [name for name in columns if name in names]


def merge_results(states: Iterable[Any], metrics: H) -> H:
    """Merge the states of workers, in any order, into a new object with the settings of `metrics`.

    The result does not store which query was first and which was last, because engines count queries in any order.
    """
    merged: H = without_block_ends(merge(itertools.chain([metrics.copy().reset()], warn_of_size(states))))
    return merged


def warn_of_size(results: Iterable[R], count_bytes: Callable[[Any], int] | None = None) -> Iterator[R]:
    """Yield the results that the driver collects; warn once if their total size exceeds DRIVER_BYTES.

    The function `count_bytes` returns the size of a result. By default, only results of type bytes are counted.
    """
    before = size = 0
    for result in results:
        size += count_bytes(result) if count_bytes else len(result) if isinstance(result, bytes) else 0
        if before <= DRIVER_BYTES < size:
            warnings.warn(
                f"the workers have sent more than {DRIVER_BYTES / 2**30:g} GiB of states and query IDs to the driver, "
                f"which merges them alone; use fewer parts, fewer slices or fewer bits (such as AUC(bits=12)), merge on "
                f"the workers, or store each query as one row of lists",
                RuntimeWarning,
                stacklevel=2,
            )
        before = size
        yield result


def read_value(state: bytes, name: str | None = None) -> float:
    """Return the value of a metric from a saved state; the SQL functions of the engines call this function.

    Parameters
    ----------
    state : bytes
        The bytes returned by `to_bytes`.
    name : str, optional
        The name of the metric; not needed if the state has only one.

    Returns
    -------
    float
        The value; NaN if it is undefined.

    Raises
    ------
    InvalidInputError
        If the state has no metric of that name, or the value of the metric is not a single number.
    """
    metrics = from_bytes(state)
    if not isinstance(metrics, (Metric, MetricCollection)):
        raise InvalidInputError(
            f"expected the state of a metric or a collection, found a state of class {type(metrics).__name__}, which "
            f"has no single value; read the state in Python"
        )
    names = [metrics.name] if isinstance(metrics, Metric) else list(metrics)
    metric_name = names[0] if name is None and len(names) == 1 else name
    if metric_name not in names:
        problem = "expected the name of a metric" if name is None else f"there is no metric {name!r} in this state"
        raise InvalidInputError(f"{problem}; the metrics are {', '.join(names)}")
    metric = metrics if isinstance(metrics, Metric) else metrics[metric_name]
    value = answer_of(metric).value
    if not isinstance(value, float):
        raise InvalidInputError(
            f"expected a single number as the value of {metric_name}, found an object of class {type(value).__name__}; "
            f"read the state in Python"
        )
    return value
