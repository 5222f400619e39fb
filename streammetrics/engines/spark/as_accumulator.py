"""What is counted, as it travels to workers: metrics, with the settings that no state has."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...collect.collection import MetricCollection
from ...collect.metric_like import MetricLike
from ...compose.bundle import Bundle
from ...compose.sliced import Sliced

__all__ = ["make_empty_metrics"]


def make_empty_metrics(metrics: Any, by: str | Iterable[str] = ()) -> MetricLike:
    """Return metrics, or slices of them, that have seen nothing.

    Raises
    ------
    TypeError
        A bundle counts nothing itself.
    """
    if isinstance(metrics, Bundle):
        raise TypeError("a bundle is made of what has counted: give metrics, a collection or slices")
    names = (by,) if isinstance(by, str) else tuple(by)
    if names:
        return Sliced(metrics, by=names)
    return metrics.copy().reset() if isinstance(metrics, MetricLike) else MetricCollection(metrics)
