"""Plottable: the `plot` method that metrics, collections and results share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["Plottable", "drawing"]

drawing: dict[str, Callable[..., Any]] = {}
"""The function that draws with matplotlib. `reports.plots` puts it here, so that this module need not import `plots`."""


class Plottable:
    """An object with a method `plot`, which draws the chart that a report shows for the object."""

    def plot(self, ax: Any = None, *, label: str | None = None) -> Any:
        """Draw the chart that a report shows for this object, with matplotlib.

        Parameters
        ----------
        ax : matplotlib axes, optional
            The axes to draw in; by default the axes of a new figure.
        label : str, optional
            The name of a curve in the legend.

        Returns
        -------
        matplotlib axes
            The axes of the chart; or an array of axes if a new figure has several charts. An object without a chart
            raises TypeError.
        """
        return drawing["plot"](self, ax, label=label)
