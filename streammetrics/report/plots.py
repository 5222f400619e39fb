"""Pictures of results, one function each; matplotlib is imported when one is drawn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..collect.metric import Metric
from ..metrics.calibration import Reliability
from ..metrics.curves import GainPoints, PRCurve, PRPoints, ROCCurve, ROCPoints
from ..metrics.scores import AUC, AveragePrecision

__all__ = ["gain", "plot", "precision_recall", "reliability", "roc"]

QUIET = "#9aa0a6"
DASHED = (0, (4, 4))


def plot(curve: Any, ax: Any = None, *, label: str | None = None) -> Any:
    """Draw a curve with matplotlib.

    Parameters
    ----------
    curve : metric, or ROCPoints, PRPoints, GainPoints or Reliability
        What a metric of a curve has computed; or the metric, whose picture says its area.
    ax : matplotlib axes, optional
        Where; by default in a new figure.
    label : str, optional
        What the curve is called in the legend.

    Returns
    -------
    matplotlib axes
        For more curves, or to be saved.

    Raises
    ------
    TypeError
        It is something that has no picture.
    """
    if isinstance(curve, Metric):
        return plot(curve.compute(), ax, label=label or _area(curve))
    for kind, draw in DRAWN.items():
        if isinstance(curve, kind):
            return draw(curve, ax, label)
    raise TypeError(f"plot() draws {', '.join(kind.__name__ for kind in DRAWN)}, not a {type(curve).__name__}")


def _area(metric: Metric[Any, Any]) -> str | None:
    """What the area below a curve is."""
    if isinstance(metric, ROCCurve):
        return f"AUC {AUC().of(metric.state):.4f}"
    return f"average precision {AveragePrecision().of(metric.state):.4f}" if isinstance(metric, PRCurve) else None


def axes(ax: Any = None) -> Any:
    """Return these axes, or new ones."""
    if ax is not None:
        return ax
    try:
        from matplotlib import pyplot
    except ImportError:
        raise ImportError('plot() needs matplotlib: pip install "streammetrics[plot]"') from None
    return pyplot.subplots(layout="constrained")[1]


def unit_square(ax: Any, xlabel: str, ylabel: str) -> Any:
    """Return axes of two shares."""
    ax = axes(ax)
    ax.set_xlim(-0.01, 1.01)
    ax.set_ylim(-0.01, 1.01)
    ax.set_aspect("equal")
    ax.set_xlabel(xlabel)
    ax.set_ylabel(ylabel)
    ax.grid(alpha=0.25, linewidth=0.5)
    return ax


def named(ax: Any, label: str | None, place: str) -> Any:
    """Add a legend if there is a name to show."""
    if label is not None:
        ax.legend(loc=place, frameon=False)
    return ax


def roc(points: ROCPoints, ax: Any = None, label: str | None = None) -> Any:
    """Draw an ROC curve, and the line of chance."""
    ax = unit_square(ax, "false positive rate", "true positive rate")
    ax.plot([0, 1], [0, 1], color=QUIET, linewidth=1, linestyle=DASHED)
    ax.plot(points.fpr, points.tpr, linewidth=2, label=label)
    return named(ax, label, "lower right")


def precision_recall(points: PRPoints, ax: Any = None, label: str | None = None) -> Any:
    """Draw precision over recall as the steps that thresholds reach, and the share of positives."""
    ax = unit_square(ax, "recall", "precision")
    ax.axhline(points.precision[0], color=QUIET, linewidth=1, linestyle=DASHED)
    ax.plot(points.recall, points.precision, drawstyle="steps-post", linewidth=2, label=label)
    return named(ax, label, "upper right")


def gain(points: GainPoints, ax: Any = None, label: str | None = None) -> Any:
    """Draw cumulative gain, and the line of chance."""
    ax = unit_square(ax, "share of rows, highest scores first", "share of positives found")
    ax.plot([0, 1], [0, 1], color=QUIET, linewidth=1, linestyle=DASHED)
    ax.plot(points.fraction, points.gain, linewidth=2, label=label)
    return named(ax, label, "lower right")


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
    return named(ax, label, "upper left")


DRAWN: dict[type, Callable[..., Any]] = {
    ROCPoints: roc,
    PRPoints: precision_recall,
    GainPoints: gain,
    Reliability: reliability,
}
