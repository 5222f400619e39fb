"""What is counted, as it travels to workers: metrics, with the settings that no state has."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from ...collect.collection import MetricCollection
from ...collect.holder import Holder
from ...compose.bundle import Bundle
from ...compose.sliced import Sliced

__all__ = ["Recipe", "holder_of"]


def holder_of(metrics: Any, by: str | Iterable[str] = ()) -> Holder:
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
    return metrics.blank() if isinstance(metrics, Holder) else MetricCollection(metrics)


class Recipe(NamedTuple):
    """What a worker makes its own empty metrics of.

    Parameters
    ----------
    metrics : Metric, MetricCollection or Sliced
        What is counted, which has seen nothing; it is pickled as bytes of the library's format.
    on_invalid : {"raise", "drop"}
        Whether a bad row raises, or is left out and counted.
    memory_limit : int
        Bytes that cells may take.
    """

    metrics: Holder
    on_invalid: str
    memory_limit: int

    @classmethod
    def of(cls, metrics: Holder) -> Recipe:
        """Return the recipe of some metrics."""
        return cls(metrics.blank(), metrics.feed.on_invalid, metrics.feed.memory_limit)

    def fresh(self) -> Any:
        """Make metrics that have seen nothing."""
        made = self.metrics.blank()
        made.feed.on_invalid, made.feed.memory_limit = self.on_invalid, self.memory_limit
        return made
