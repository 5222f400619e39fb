"""The pictures of the page, drawn with matplotlib, which is imported when one is drawn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..collect.metric import Metric
from ..collect.metric_like import MetricLike
from ..collect.plottable import drawing
from ..inference.comparison import Comparison, Comparisons
from ..inference.scorecard import Scorecard
from ..metrics.curves.areas import AUC, AveragePrecision
from ..metrics.curves.points import GainPoints, PRCurve, PRPoints, ROCCurve, ROCPoints
from ..metrics.probabilities.calibration import Reliability
from .assemble import assemble
from .charts import Area, Band, Chart, ChartLine, Rule, Whiskers
from .page_model import Figure, Figures, RowAxis

__all__ = ["drawn", "gain", "plot", "precision_recall", "reliability", "roc", "rows_of"]

QUIET = "#9aa0a6"
INK = "#15181e"
DASHED = (0, (4, 4))
MODELS = ("#0062c4", "#c24a00", "#00755c", "#8434b0", "#7a6000", "#b51d60")  # as the page has them
SIGNS = ("o", "D", "s", "^", "x", "+")
CURVES = ("roc_curve", "pr_curve", "gain_curve", "calibration_curve")
TALL = 60  # slices in one picture


def plot(thing: Any, ax: Any = None, *, label: str | None = None) -> Any:
    """Draw with matplotlib what a report shows: curves, intervals, slices, windows.

    Parameters
    ----------
    thing : metric, collection, slices, windows, Comparison, Comparisons or Scorecard
        What to draw. Or what a metric of a curve has computed (ROCPoints, PRPoints, GainPoints, Reliability); of the
        metric itself, the picture says its area.
    ax : matplotlib axes, optional
        Where; by default in a new figure.
    label : str, optional
        What the curve is called in the legend.

    Returns
    -------
    matplotlib axes
        For more curves, or to be saved; of several pictures in a new figure, an array of them.

    Raises
    ------
    TypeError
        It is something that has no picture.
    """
    if isinstance(thing, Metric) and thing.about.tag in CURVES:
        return plot(thing.compute(), ax, label=label or _area(thing))
    for kind, draw in DRAWN.items():
        if isinstance(thing, kind):
            return draw(thing, ax, label)
    if isinstance(thing, (MetricLike, Comparison, Comparisons, Scorecard)):
        return _of_page(thing, ax)
    raise TypeError(
        f"plot() draws {', '.join(kind.__name__ for kind in DRAWN)} and what reports show, not a {type(thing).__name__}"
    )


def _of_page(thing: Any, ax: Any) -> Any:
    """Draw the first pictures that the page of something has."""
    found = {part.kind: part.data for part in reversed(assemble(thing, "").parts)}
    if isinstance(thing, MetricLike) and "charts" in found and found["charts"][0]:
        return _charts(found["charts"][0], ax)
    if "scorecard" in found:
        card: Figures = found["scorecard"]
        return rows_of(
            [r for g in card.groups for r in g.rows],
            card.axis,
            axes(ax),
            "difference" if card.axis else "difference, each on its own scale; better →",
        )
    if "forests" in found:
        one = found["forests"][0]
        return rows_of([r for g in one.groups for r in g.rows][:TALL], one.axis, axes(ax), one.axis.title)
    raise TypeError(f"this {type(thing).__name__} has no picture: {thing!r}"[:200])


def _charts(charts: Sequence[Chart], ax: Any) -> Any:
    if ax is not None or len(charts) == 1:
        return drawn(charts[0], axes(ax))
    pyplot = _pyplot()
    wide = min(3, len(charts))
    tall = -(-len(charts) // wide)
    figure, grid = pyplot.subplots(tall, wide, figsize=(4.4 * wide, 3.8 * tall), layout="constrained", squeeze=False)
    flat = grid.reshape(-1)
    for one, chart in zip(flat, charts, strict=False):
        drawn(chart, one)
    for one in flat[len(charts) :]:
        figure.delaxes(one)
    return flat[: len(charts)]


def drawn(chart: Chart, ax: Any) -> Any:
    """Draw a picture of the page on axes."""
    names = {k.number: k.text for k in chart.key}
    for axis, scale in (("x", chart.x), ("y", chart.y)):
        if scale.log:
            getattr(ax, f"set_{axis}scale")("log")
        getattr(ax, f"set_{axis}lim")(scale.low, scale.high)
        getattr(ax, f"set_{axis}ticks")([v for v, _ in scale.ticks], [text for _, text in scale.ticks])
        getattr(ax, f"set_{axis}ticks")([], minor=True)
    for layer in chart.layers:
        _layer(layer, ax, names)
    ax.set_title(chart.title, loc="left", fontsize="medium")
    ax.set_xlabel(chart.xlabel)
    ax.set_ylabel(chart.ylabel)
    ax.grid(axis="y", alpha=0.25, linewidth=0.5)
    if chart.right:
        side = ax.secondary_yaxis("right")
        side.set_yticks([v for v, _ in chart.right], [text for _, text in chart.right])
        side.set_yticks([], minor=True)
        side.set_ylabel(chart.rightlabel)
    if chart.key:
        ax.legend(frameon=False, fontsize="small")
    return ax


def _layer(layer: Any, ax: Any, names: dict[int, str]) -> None:
    number = getattr(layer, "number", None)
    colour = INK if number is None else MODELS[number % len(MODELS)]
    if isinstance(layer, ChartLine):
        style = {"drawstyle": "steps-post"} if layer.steps else {}
        dash = DASHED if number in (1, 3, 5) else "-"
        label = None if number is None else names.pop(number, None)
        marks = (
            {"marker": SIGNS[(number or 0) % len(SIGNS)], "markevery": list(layer.marks)} if len(layer.marks) else {}
        )
        ax.plot(layer.x, layer.y, color=colour, linestyle=dash, label=label, **style, **marks)
    elif isinstance(layer, Area):
        ax.fill_between(layer.x, layer.y, step="post", color=colour, alpha=0.2, linewidth=0)
    elif isinstance(layer, Band):
        ax.fill_between(layer.x, layer.low, layer.high, color=colour, alpha=0.15, linewidth=0)
    elif isinstance(layer, Rule):
        ax.plot(layer.x, layer.y, color=QUIET, linewidth=1, linestyle="-" if layer.solid else ":")
    elif isinstance(layer, Whiskers):
        pale = np.zeros(len(layer.x), bool) if layer.quiet is None else np.asarray(layer.quiet, bool)
        x, y, low, high = (np.asarray(v, float) for v in layer[:4])
        for some, tone in ((~pale, 1.0), (pale, 0.4)):
            ax.vlines(x[some], low[some], high[some], color=colour, alpha=0.3 * tone, linewidth=6)
            ax.plot(x[some], y[some], color=colour, alpha=tone, linestyle="", marker=SIGNS[(number or 0) % len(SIGNS)])


def rows_of(rows: Sequence[Figure], axis: RowAxis | None, ax: Any, title: str) -> Any:
    """Draw measures or slices as the page does, the first at the top; those too few are pale."""
    some = [r for r in rows if r.span is not None]
    for y, row in enumerate(some):
        span = row.span
        assert span is not None
        pale = 0.35 if row.few else 1.0
        if span.limit is not None:
            ax.plot([span.limit] * 2, [y - 0.4, y + 0.4], color=INK, linewidth=1.5)
        if span.whole is not None:
            ax.plot([span.whole] * 2, [y - 0.5, y + 0.5], color=QUIET, linewidth=1, linestyle=":")
        ax.plot([span.zero] * 2, [y - 0.5, y + 0.5], color=QUIET, linewidth=1)
        ax.hlines(y, span.low, span.high, color=INK, alpha=0.22 * pale, linewidth=7)
        ax.plot([span.mid], [y], color=INK, alpha=pale, marker="o", markersize=5)
        weight = "bold" if row.bold else "normal"
        ax.annotate(f"{row.change} {row.half}".strip(), (1.02, y), xycoords=("axes fraction", "data"), va="center",
                    fontsize="small", weight=weight, alpha=pale)  # fmt: skip
    ax.set_yticks(range(len(some)), [r.name for r in some])
    ax.set_ylim(len(some) - 0.5, -0.5)
    ax.set_xlim(-2, 102)
    ax.set_xticks(
        [] if axis is None else [at for at, _ in axis.ticks], [] if axis is None else [t for _, t in axis.ticks]
    )
    ax.set_xlabel(title)
    return ax


def _area(metric: Metric[Any, Any]) -> str | None:
    """What the area below a curve is."""
    if isinstance(metric, ROCCurve):
        return f"AUC {AUC().reading(metric.state).value:.4f}"
    return (
        f"average precision {AveragePrecision().reading(metric.state).value:.4f}"
        if isinstance(metric, PRCurve)
        else None
    )


def axes(ax: Any = None) -> Any:
    """Return these axes, or new ones."""
    return _pyplot().subplots(layout="constrained")[1] if ax is None else ax


def _pyplot() -> Any:
    try:
        from matplotlib import pyplot
    except ImportError:
        raise ImportError('plot() needs matplotlib: pip install "streammetrics[plot]"') from None
    return pyplot


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

drawing["plot"] = plot
