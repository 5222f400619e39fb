"""Parts of a log as engines hand them out: the batches of one, the columns that are read of it, the total of all."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from ..batch.ids import Ids
from ..collect.accumulator import definition_of
from ..collect.collection import MetricCollection
from ..collect.metric import Metric
from ..collect.metric_like import MetricLike, answer_of, columns_of
from ..collect.serialization import from_bytes, merge
from ..errors import InvalidInputError
from . import check_metrics, fold

__all__ = ["fold_part", "read_columns", "total", "value_of"]

H = TypeVar("H", bound=MetricLike)


def fold_part(part: Any, metrics: MetricLike) -> bytes:
    """Count one part of a log: what a task of an engine does.

    Parameters
    ----------
    part : table, iterator or list of tables, or callable that returns these
        A callable is called where the rows are counted, so that only it travels: such as ``part.batches`` of
        `streammetrics.io.logs.Log.parts`.
    metrics : Metric, MetricCollection or Sliced
        What is counted; it stays as it is.

    Returns
    -------
    bytes
        The state of these rows alone.

    Raises
    ------
    InvalidInputError
        A batch is bad; nothing is returned.
    """
    return fold(_batches(part() if callable(part) else part), metrics)


def _batches(part: Any) -> Iterable[Any]:
    """A table is a batch; iterators (readers of Arrow streams are some) and lists hold batches."""
    return part if isinstance(part, (Iterator, list, tuple)) else (part,)


def read_columns(metrics: MetricLike, there: Iterable[str]) -> list[str]:
    """Return the columns that `update` would read of a table: no others need be fetched.

    Raises
    ------
    InvalidInputError
        One that must be there is not. Groups and queries are left to `update`: a row that holds lists is a query itself.
    """
    check_metrics(metrics)
    names, keys, columns = list(there), _ids(metrics), columns_of(metrics)
    for name, must in columns.items():
        if must and name not in names and name not in keys:
            found = ", ".join(map(repr, names)) or "none"
            raise InvalidInputError(f"there is no column {name!r}; the table has {found}", column=name)
    return [name for name in columns if name in names]


def _ids(metrics: MetricLike) -> set[str]:
    found = [
        binding.column(need.role)
        for state, binding, *_ in definition_of(metrics).reads
        for need in state.needs()
        if isinstance(need.kind, Ids)
    ]
    return {name for column in found for name in (column if isinstance(column, tuple) else (column,))}


def total(states: Iterable[Any], metrics: H) -> H:
    """Merge what workers returned, in any order, into a new object with the settings of `metrics`; none is no rows."""
    merged: H = merge(itertools.chain([metrics.copy().reset()], states))
    return merged


def value_of(state: bytes, name: str | None = None) -> float:
    """Return the value of a saved metric, or of one of a collection: what SQL asks of a column of states.

    Parameters
    ----------
    state : bytes
        What `to_bytes` wrote.
    name : str, optional
        Which metric of a collection.

    Returns
    -------
    float
        The value; NaN where it is undefined.

    Raises
    ------
    InvalidInputError
        There is no metric of that name, or its value is not one number.
    """
    thing = from_bytes(state)
    if not isinstance(thing, (Metric, MetricCollection)):
        raise InvalidInputError(
            f"the state is one of {type(thing).__name__}, which has no single value: read it in Python"
        )
    names = [thing.name] if isinstance(thing, Metric) else list(thing)
    asked = names[0] if name is None and len(names) == 1 else name
    if asked not in names:
        raise InvalidInputError(f"there is no metric {asked!r} in this state; there are {', '.join(names)}")
    metric = thing if isinstance(thing, Metric) else thing[asked]
    value = answer_of(metric).value
    if not isinstance(value, float):
        raise InvalidInputError(
            f"the value of {asked} is no single number but a {type(value).__name__}: read it in Python"
        )
    return value
