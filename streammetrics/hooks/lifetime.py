"""Values of a recent window and of the whole run, side by side, as torchrec names them."""

from __future__ import annotations

from typing import Any, NamedTuple, Self

from ..collect.accumulator import definition_of
from ..collect.metric_like import MetricLike, answer_of, empty_copy
from ..collect.serialization import merge
from ..compose.axis_wrapper import AxisWrapper
from ..compose.bundle import Bundle
from ..reading.flatten import settled_names

__all__ = ["Lifetime"]


class Lifetime:
    """Metrics of the whole run, and of its last updates.

    Parameters
    ----------
    metrics : Metric or MetricCollection
        What is counted. The lifetime goes on from what it has seen; the object itself stays as it is.
    window : int, optional
        How many updates a window has at most, a multiple of `panes`. Without it a window is what came since the last
        `compute`.
    panes : int
        In how many steps a window moves on: it holds more than ``(panes - 1) / panes`` of `window` updates, and at most
        all. More panes move smoothly, and each takes the memory of the metrics.

    Attributes
    ----------
    lifetime : Metric or MetricCollection
        The metrics of all updates, a copy: to save, or to merge with those of other workers.

    Examples
    --------
    >>> import streammetrics as sm
    >>> from streammetrics.hooks.lifetime import Lifetime
    >>> metrics = Lifetime(sm.CTR(), window=2, panes=2)
    >>> for label in (0, 0, 1, 1):
    ...     _ = metrics.update([label])
    >>> metrics.compute()
    {'window_ctr': 1.0, 'lifetime_ctr': 0.5}
    """

    # One tuple holds all that changes, and is replaced as one: an interrupt leaves what was before, or what is after.

    def __init__(self, metrics: MetricLike, window: int | None = None, panes: int = 10) -> None:
        if not isinstance(metrics, MetricLike) or isinstance(metrics, (Bundle, AxisWrapper)):
            raise TypeError(f"metrics is a metric or a MetricCollection, not a {type(metrics).__name__}")
        fits = window is None or (type(window) is int and window > 0 and window % max(panes, 1) == 0)
        if type(panes) is not int or panes < 2 or not fits:
            raise ValueError(
                f"window= is some updates for each of panes=, of which there are at least 2; not {window!r} and {panes!r}"
            )
        self.window, self.panes = window, panes
        self._held = _Held(metrics.copy(), (empty_copy(metrics),), 0)

    def update(self, y_true: Any = None, y_score: Any = None, /, **columns: Any) -> Self:
        """Count a batch in both; takes, and raises, what `update` of the metrics does."""
        held = self._held
        if self.window is not None and held.updates >= self.window // self.panes:
            held = held.turned(self.panes)
        held.panes[-1].update(y_true, y_score, **columns)
        self._held = held._replace(updates=held.updates + 1)
        return self

    @property
    def lifetime(self) -> Any:
        return self._held.all()

    def _values(self) -> list[tuple[str, MetricLike]]:
        return [("window", self._held.recent()), ("lifetime", self._held.all())]

    def _told(self, values: Any) -> Any:
        """These values, behind which a window without a size ends."""
        if self.window is None:
            self._held = self._held.turned(1)
        return values

    def compute(self) -> dict[str, Any]:
        """Return both values of every metric by name: "window_auc", "lifetime_auc"; of a task "ctr/window_auc".

        Without `window`, the next window begins here.
        """
        return self._told({_under(s, n): value for s, made in self._values() for n, value in _named(made).items()})

    def flat(self, undefined: str = "omit") -> dict[str, float]:
        """Return what `compute` does as plain floats for a logger (see `streammetrics.flat`)."""
        numbers = [(_under(s, n), x) for s, made in self._values() for n, x in answer_of(made).numbers()]
        return self._told(settled_names(numbers, undefined))

    def reset(self) -> Self:
        """Forget every row, of both."""
        self._held = self._held.reset()
        return self


class _Held(NamedTuple):
    """What came before the last pane, the panes of the window, and how many updates the last of them has."""

    before: MetricLike
    panes: tuple[MetricLike, ...]
    updates: int

    def all(self) -> MetricLike:
        """The metrics of every row."""
        return self.before.copy().merge(self.panes[-1])

    def recent(self) -> MetricLike:
        """The metrics of the window."""
        return merge(self.panes)

    def turned(self, most: int) -> _Held:
        """With a new pane behind the last; the oldest falls out of a full window."""
        return _Held(self.all(), (*self.panes, empty_copy(self.before))[-most:], 0)

    def reset(self) -> _Held:
        return _Held(empty_copy(self.before), (empty_copy(self.before),), 0)


def _named(metrics: Any) -> dict[str, Any]:
    value: Any = answer_of(metrics).value
    return {metrics.name: value} if definition_of(metrics).is_single else value


def _under(span: str, name: str) -> str:
    """The name of a metric with the span in front of its last part."""
    task, slash, last = name.rpartition("/")
    return f"{task}{slash}{span}_{last}"
