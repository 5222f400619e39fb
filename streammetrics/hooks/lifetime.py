"""Metrics of the most recent updates (the window) and of the whole run (the lifetime), named as in torchrec."""

from __future__ import annotations

from typing import Any, NamedTuple, Self

from ..collect.accumulator import definition_of
from ..collect.metric_like import MetricLike, answer_of, empty_copy
from ..collect.serialization import merge
from ..compose.axis_wrapper import AxisWrapper
from ..compose.bundle import Bundle
from ..reading.flatten import logger_names

__all__ = ["Lifetime"]


class Lifetime:
    """Computes each metric twice: over the whole run (its lifetime), and over the most recent updates (its window).

    Parameters
    ----------
    metrics : Metric or MetricCollection
        The metrics to compute. The lifetime starts with their state; the object itself does not change.
    window : int, optional
        The maximum number of updates in the window, a multiple of `panes`. By default, the window has the updates since
        the last `compute`.
    panes : int
        The number of equal parts of the window. When the newest part is full, the oldest part is dropped, so after the
        start the window always has more than ``window * (panes - 1) / panes`` updates. With more panes, its size varies
        less, but it needs more memory.

    Attributes
    ----------
    lifetime : Metric or MetricCollection
        A copy of the metrics of all updates, to save or to merge with the metrics of other workers.

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

    # All state is in one tuple, which is replaced in one assignment. After a Ctrl-C, the state is therefore consistent.

    def __init__(self, metrics: MetricLike, window: int | None = None, panes: int = 10) -> None:
        if not isinstance(metrics, MetricLike) or isinstance(metrics, (Bundle, AxisWrapper)):
            raise TypeError(
                f"expected a metric or a MetricCollection, found an object of class {type(metrics).__name__}"
            )
        fits = window is None or (type(window) is int and window > 0 and window % max(panes, 1) == 0)
        if type(panes) is not int or panes < 2 or not fits:
            raise ValueError(
                f"window= must be a multiple of panes=, which must be at least 2; found window={window!r} and "
                f"panes={panes!r}"
            )
        self.window, self.panes = window, panes
        self._state = _WindowState(metrics.copy(), (empty_copy(metrics),), 0)

    def update(self, y_true: Any = None, y_score: Any = None, /, **columns: Any) -> Self:
        """Update the window and the lifetime with a batch. Arguments and errors are those of `update` of the metrics."""
        state = self._state
        if self.window is not None and state.updates >= self.window // self.panes:
            state = state.add_pane(self.panes)
        state.panes[-1].update(y_true, y_score, **columns)
        self._state = state._replace(updates=state.updates + 1)
        return self

    @property
    def lifetime(self) -> Any:
        return self._state.merge_all()

    def _values(self) -> list[tuple[str, MetricLike]]:
        return [("window", self._state.merge_window()), ("lifetime", self._state.merge_all())]

    def _end_window(self, values: Any) -> Any:
        """Begin the next window if `window` was not set; return `values`, computed before this call, unchanged."""
        if self.window is None:
            self._state = self._state.add_pane(1)
        return values

    def compute(self) -> dict[str, Any]:
        """Return the values of every metric over the window and over the lifetime, by name.

        The names are "window_auc" and "lifetime_auc", for example, or "ctr/window_auc" for the task "ctr".

        Without `window`, this call begins the next window.
        """
        return self._end_window(
            {_prefix_name(s, n): value for s, metrics in self._values() for n, value in _read_values(metrics).items()}
        )

    def flat(self, undefined: str = "omit") -> dict[str, float]:
        """Return the values of `compute` as plain floats for a logger (see `streammetrics.flat`)."""
        numbers = [(_prefix_name(s, n), x) for s, metrics in self._values() for n, x in answer_of(metrics).numbers()]
        return self._end_window(logger_names(numbers, undefined))

    def reset(self) -> Self:
        """Reset the window and the lifetime."""
        self._state = self._state.reset()
        return self


class _WindowState(NamedTuple):
    """The state of a `Lifetime`.

    `panes` has the metrics of each part of the window, oldest first; new batches update the last one. `earlier` has the
    metrics of all updates before the last pane, and `updates` is the number of updates of the last pane.
    """

    earlier: MetricLike
    panes: tuple[MetricLike, ...]
    updates: int

    def merge_all(self) -> MetricLike:
        """Return the metrics over all updates, as a new object."""
        return self.earlier.copy().merge(self.panes[-1])

    def merge_window(self) -> MetricLike:
        """Return the metrics over the updates of the window, as a new object."""
        return merge(self.panes)

    def add_pane(self, max_panes: int) -> _WindowState:
        """Return a state with a new, empty pane, without the oldest pane if there would be more than `max_panes`."""
        return _WindowState(self.merge_all(), (*self.panes, empty_copy(self.earlier))[-max_panes:], 0)

    def reset(self) -> _WindowState:
        return _WindowState(empty_copy(self.earlier), (empty_copy(self.earlier),), 0)


def _read_values(metrics: Any) -> dict[str, Any]:
    value: Any = answer_of(metrics).value
    return {metrics.name: value} if definition_of(metrics).is_single else value


def _prefix_name(prefix: str, name: str) -> str:
    """Return a metric name with a prefix before its last part: "ctr/auc" becomes "ctr/window_auc"."""
    task, slash, last = name.rpartition("/")
    return f"{task}{slash}{prefix}_{last}"
