"""Plottable: objects that draw the picture that a report shows of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["Plottable", "drawing"]

drawing: dict[str, Callable[..., Any]] = {}
"""How to draw with matplotlib. The reports register it here, because they know the pictures."""


class Plottable:
    """An object of which a report has a picture."""

    def plot(self, ax: Any = None, *, label: str | None = None) -> Any:
        """Draw the picture that a report shows, with matplotlib.

        Parameters
        ----------
        ax : matplotlib axes, optional
            Where to draw; by default in a new figure.
        label : str, optional
            The name of a curve in the legend.

        Returns
        -------
        matplotlib axes
            Or, of several pictures in a new figure, an array of axes.

        Raises
        ------
        TypeError
            There is no picture of it.
        ImportError
            matplotlib is not installed.
        """
        return drawing["plot"](self, ax, label=label)
