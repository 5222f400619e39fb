"""Build the empty metrics that are sent to workers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...collect.collection import MetricCollection
from ...collect.metric_like import MetricLike
from ...compose.bundle import Bundle
from ...compose.sliced import Sliced

__all__ = ["make_empty_metrics"]


def make_empty_metrics(metrics: Any, by: str | Iterable[str] = ()) -> MetricLike:
    """Return an empty object with the settings of `metrics`, sliced by the columns in `by`, if there are any.

    Raises
    ------
    TypeError
        If `metrics` is a bundle, which cannot be updated.
    """
    if isinstance(metrics, Bundle):
        raise TypeError("a bundle cannot be updated: pass metrics, a collection or slices instead")
    names = (by,) if isinstance(by, str) else tuple(by)
    if names:
        return Sliced(metrics, by=names)
    return metrics.copy().reset() if isinstance(metrics, MetricLike) else MetricCollection(metrics)
