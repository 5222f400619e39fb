"""Pictures of results, one function each; matplotlib is imported when one is drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from .metrics.calibration import Reliability

__all__ = ["reliability"]


def axes(ax: Any = None) -> Any:
    """Return these axes, or new ones."""
    if ax is not None:
        return ax
    try:
        from matplotlib import pyplot
    except ImportError:
        raise ImportError('plot() needs matplotlib: pip install "streammetrics[plot]"') from None
    return pyplot.subplots()[1]


def reliability(curve: Reliability, ax: Any = None, label: str | None = None) -> Any:
    """Draw the share of positives over the mean predicted probability, the diagonal, and the weight of each bin."""
    ax = axes(ax)
    held = curve.weight > 0
    p, y, weight = curve.prob_pred[held], curve.prob_true[held], curve.weight[held]
    top = float(max(p.max(), y.max())) * 1.05 if len(p) and max(p.max(), y.max()) > 0 else 1.0
    ax.plot([0, top], [0, top], linestyle=":", color="gray", linewidth=1)
    (line,) = ax.plot(p, y, marker="o", markersize=4, label=label)
    counts = ax.twinx()
    low, high = curve.edges[:-1][held], np.minimum(curve.edges[1:][held], top)
    counts.bar(low, weight, np.maximum(high - low, 0), align="edge", color=line.get_color(), alpha=0.15)
    counts.set_ylim(0, 4 * weight.max() if len(weight) else 1)  # in the lower quarter, below the curve
    counts.set_ylabel("rows")
    ax.set_xlim(0, top)
    ax.set_ylim(0, top)
    ax.set_xlabel("mean predicted probability")
    ax.set_ylabel("share of positives")
    if label is not None:
        ax.legend(loc="upper left")
    return ax
