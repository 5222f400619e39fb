"""Values of a recent window and of the whole run, side by side, as torchrec names them."""

from __future__ import annotations

from collections import deque
from typing import Any, Self

from ..collect.holder import Holder
from ..collect.saved import merge
from ..collect.scalars import settled_names
from ..compose.bundle import Bundle
from ..compose.front import Front

__all__ = ["Lifetime"]


class Lifetime:
    """Metrics of the whole run, and of its last updates.

    Parameters
    ----------
    metrics : Metric or MetricCollection
        What is counted; this object becomes the lifetime's, and goes on from what it has seen.
    window : int, optional
        How many updates a window has at most, a multiple of `panes`. Without it a window is what came since the last
        `compute`.
    panes : int
        In how many steps a window moves on: it holds between ``(panes - 1) / panes`` and all of `window` updates. More
        panes move smoothly, and each takes the memory of the metrics.

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

    def __init__(self, metrics: Holder, window: int | None = None, panes: int = 10) -> None:
        if not isinstance(metrics, Holder) or isinstance(metrics, (Bundle, Front)):
            raise TypeError(f"metrics is a metric or a MetricCollection, not a {type(metrics).__name__}")
        fits = window is None or (type(window) is int and window > 0 and window % max(panes, 1) == 0)
        if type(panes) is not int or panes < 2 or not fits:
            raise ValueError(
                f"window= is some updates for each of panes=, of which there are at least 2; not {window!r} and {panes!r}"
            )
        self.lifetime, self.window, self.panes = metrics, window, panes
        self._recent: deque[Holder] = deque([metrics.blank()], panes)  # of these, the last is not yet in the lifetime
        self._size = 0 if window is None else window // panes
        self._updates = 0

    def update(self, y_true: Any = None, y_score: Any = None, /, **columns: Any) -> Self:
        """Count a batch in both; takes, and raises, what `update` of the metrics does."""
        self._recent[-1].update(y_true, y_score, **columns)
        self._updates += 1
        if self._size and self._updates >= self._size:
            self._turn()
        return self

    def _turn(self) -> None:
        """Begin a new pane; the oldest falls out of a full window."""
        self.lifetime.merge(self._recent[-1])
        self._recent.append(self.lifetime.blank())
        self._updates = 0

    def _values(self) -> list[tuple[str, Holder]]:
        recent = merge([pane.copy() for pane in self._recent])
        whole = self.lifetime.copy().merge(self._recent[-1])
        if self.window is None:
            self._turn()
            self._recent.popleft()
        return [("window", recent), ("lifetime", whole)]

    def compute(self) -> dict[str, Any]:
        """Return both values of every metric by name: "window_auc", "lifetime_auc"; of a task "ctr/window_auc".

        Without `window`, the next window begins here.
        """
        return {_under(span, name): value for span, made in self._values() for name, value in _named(made).items()}

    def flat(self, undefined: str = "omit") -> dict[str, float]:
        """Return what `compute` does as plain floats for a logger (see `flat` of the metrics)."""
        numbers = [(_under(s, n), x) for s, made in self._values() for n, x in made.numbers(made.value(made.states))]
        return settled_names(numbers, undefined)

    def reset(self) -> Self:
        """Forget every row, of both."""
        self.lifetime.reset()
        self._recent = deque([self.lifetime.blank()], self.panes)
        self._updates = 0
        return self


def _named(metrics: Any) -> dict[str, Any]:
    value = metrics.value(metrics.states)
    return value if hasattr(metrics, "names") else {metrics.name: value}


def _under(span: str, name: str) -> str:
    """The name of a metric with the span in front of its last part."""
    task, slash, last = name.rpartition("/")
    return f"{task}{slash}{span}_{last}"
