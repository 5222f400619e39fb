"""Plottable: the `plot` method of metrics, collections and results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["Plottable", "drawing"]

drawing: dict[str, Callable[..., Any]] = {}
"""The function that draws with matplotlib. `reports.plots` registers it here, so that this module need not import it."""


class Plottable:
    """An object that a report shows as a chart."""

    def plot(self, ax: Any = None, *, label: str | None = None) -> Any:
        """Draw the chart of the report with matplotlib.

        Parameters
        ----------
        ax : matplotlib axes, optional
            The axes to draw in; by default those of a new figure.
        label : str, optional
            The name of a curve in the legend.

        Returns
        -------
        matplotlib axes
            For several charts in a new figure, an array of axes.

        Raises
        ------
        TypeError
            The object has no chart.
        ImportError
            matplotlib is not installed.
        """
        return drawing["plot"](self, ax, label=label)
