"""Plottable: the `plot` method that metrics, collections and results share."""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["Plottable"]


class Plottable:
    """An object with a `plot` method, which draws the chart that a report shows for the object."""

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
            The axes of the chart, or an array of axes if a new figure has several charts.

        Raises
        ------
        TypeError
            The object has no chart.
        """
        # The plots module imports the metric classes, which derive from this class. Importing it only on demand avoids
        # a circular import.
        return import_module("streammetrics.reports.plots").plot(self, ax, label=label)
