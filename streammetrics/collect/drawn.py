"""What has a picture draws itself: reports know how, and say so when they are loaded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["Drawn", "drawing"]

drawing: dict[str, Callable[..., Any]] = {}
"""How to draw with matplotlib; reports, which know the pictures, put it here."""


class Drawn:
    """Something that has a picture."""

    def plot(self, ax: Any = None, *, label: str | None = None) -> Any:
        """Draw what a report shows of it, with matplotlib.

        Parameters
        ----------
        ax : matplotlib axes, optional
            Where; by default in a new figure.
        label : str, optional
            What a curve is called in the legend.

        Returns
        -------
        matplotlib axes
            Or, of several pictures in a new figure, an array of them.

        Raises
        ------
        TypeError
            It has no picture.
        ImportError
            matplotlib is not installed.
        """
        return drawing["plot"](self, ax, label=label)
