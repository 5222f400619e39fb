"""Draw charts with matplotlib, which is imported only when something is drawn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..collect.metric import Metric
from ..collect.metric_like import MetricLike
from ..inference.comparison import Comparison, Comparisons
from ..inference.scorecard import Scorecard
from ..metrics.curves.areas import AUC, AveragePrecision
from ..metrics.curves.points import GainPoints, PRCurve, PRPoints, ROCCurve, ROCPoints
from ..metrics.probabilities.calibration import Reliability
from .assemble import assemble
from .charts import Area, Band, Chart, ChartLine, Rule, Whiskers
from .page_model import MeasureRow, MeasureTable, RowAxis

__all__ = ["draw_chart", "draw_gain", "draw_precision_recall", "draw_reliability", "draw_roc", "draw_rows", "plot"]

QUIET = "#9aa0a6"
INK = "#15181e"
DASHED = (0, (4, 4))
MODELS = ("#0062c4", "#c24a00", "#00755c", "#8434b0", "#7a6000", "#b51d60")  # the colors of models, as on report pages
SIGNS = ("o", "D", "s", "^", "x", "+")
CURVES = ("roc_curve", "pr_curve", "gain_curve", "calibration_curve")
TALL = 60  # the largest number of slices in one plot


def plot(thing: Any, ax: Any = None, *, label: str | None = None) -> Any:
    """Draw curves, intervals, slices or windows with matplotlib.

    Parameters
    ----------
    thing : metric, collection, slices, windows, Comparison, Comparisons or Scorecard
        What to draw. This can also be the value of a curve metric (ROCPoints, PRPoints, GainPoints, Reliability); for
        the metrics `ROCCurve` and `PRCurve` themselves, the legend shows the area under the curve.
    ax : matplotlib axes, optional
        The axes to draw on; by default, those of a new figure.
    label : str, optional
        The name of the curve in the legend.

    Returns
    -------
    matplotlib axes
        The axes, or an array of axes if a new figure contains several plots.

    Raises
    ------
    TypeError
        If there is no plot for the object.
    """
    if isinstance(thing, Metric) and thing.about.tag in CURVES:
        return plot(thing.compute(), ax, label=label or _format_area(thing))
    for kind, draw in DRAW_FUNCTIONS.items():
        if isinstance(thing, kind):
            return draw(thing, ax, label)
    if isinstance(thing, (MetricLike, Comparison, Comparisons, Scorecard)):
        return _draw_report(thing, ax)
    kinds = ", ".join(kind.__name__ for kind in DRAW_FUNCTIONS)
    raise TypeError(
        f"plot() expects {kinds} or an object that report() shows, found an object of class {type(thing).__name__}"
    )


def _draw_report(thing: Any, ax: Any) -> Any:
    """Draw what a report shows about an object: its charts, if any; otherwise, its scorecard or first forest plot."""
    data_of = {part.kind: part.data for part in reversed(assemble(thing, "").parts)}
    if isinstance(thing, MetricLike) and "charts" in data_of and data_of["charts"][0]:
        return _draw_charts(data_of["charts"][0], ax)
    if "scorecard" in data_of:
        card: MeasureTable = data_of["scorecard"]
        return draw_rows(
            [r for g in card.groups for r in g.rows],
            card.axis,
            build_axes(ax),
            "difference" if card.axis else "difference, each on its own scale; better →",
        )
    if "forests" in data_of:
        one = data_of["forests"][0]
        return draw_rows([r for g in one.groups for r in g.rows][:TALL], one.axis, build_axes(ax), one.axis.title)
    raise TypeError(
        f"there is no plot for this object of class {type(thing).__name__}; plots exist for curves such as ROCCurve and "
        f"CalibrationCurve, for metrics of a score histogram such as AUC, and for windows, comparisons and scorecards, if "
        f"they have rows"
    )


def _draw_charts(charts: Sequence[Chart], ax: Any) -> Any:
    if ax is not None or len(charts) == 1:
        return draw_chart(charts[0], build_axes(ax))
    pyplot = _import_pyplot()
    wide = min(3, len(charts))
    tall = -(-len(charts) // wide)
    figure, grid = pyplot.subplots(tall, wide, figsize=(4.4 * wide, 3.8 * tall), layout="constrained", squeeze=False)
    flat = grid.reshape(-1)
    for one, chart in zip(flat, charts, strict=False):
        draw_chart(chart, one)
    for one in flat[len(charts) :]:
        figure.delaxes(one)
    return flat[: len(charts)]


def draw_chart(chart: Chart, ax: Any) -> Any:
    """Draw a chart on the given matplotlib axes, and return the axes."""
    names = {k.number: k.text for k in chart.key}
    for axis, scale in (("x", chart.x), ("y", chart.y)):
        if scale.log:
            getattr(ax, f"set_{axis}scale")("log")
        getattr(ax, f"set_{axis}lim")(scale.low, scale.high)
        getattr(ax, f"set_{axis}ticks")([v for v, _ in scale.ticks], [text for _, text in scale.ticks])
        getattr(ax, f"set_{axis}ticks")([], minor=True)
    for layer in chart.layers:
        _draw_layer(layer, ax, names)
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


def _draw_layer(layer: Any, ax: Any, names: dict[int, str]) -> None:
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


def draw_rows(rows: Sequence[MeasureRow], axis: RowAxis | None, ax: Any, title: str) -> Any:
    """Draw one interval for each metric or slice, with the first row at the top; rows with too little data are pale.

    `axis` contains the ticks; it is None if each row has its own scale. `title` is the label of the axis.
    """
    some = [r for r in rows if r.span is not None]
    for y, row in enumerate(some):
        span = row.span
        assert span is not None
        pale = 0.35 if row.is_too_few else 1.0
        if span.limit is not None:
            ax.plot([span.limit] * 2, [y - 0.4, y + 0.4], color=INK, linewidth=1.5)
        if span.overall is not None:
            ax.plot([span.overall] * 2, [y - 0.5, y + 0.5], color=QUIET, linewidth=1, linestyle=":")
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


def _format_area(metric: Metric[Any, Any]) -> str | None:
    """Return the area under an ROC or precision-recall curve as text, such as "AUC 0.7841"; None for other metrics."""
    if isinstance(metric, ROCCurve):
        return f"AUC {AUC().reading(metric.state).value:.4f}"
    return (
        f"average precision {AveragePrecision().reading(metric.state).value:.4f}"
        if isinstance(metric, PRCurve)
        else None
    )


def build_axes(ax: Any = None) -> Any:
    """Return `ax`, or the axes of a new figure if `ax` is None."""
    return _import_pyplot().subplots(layout="constrained")[1] if ax is None else ax


def _import_pyplot() -> Any:
    try:
        from matplotlib import pyplot
    except ImportError:
        raise ImportError('plot() needs matplotlib: pip install "streammetrics[plot]"') from None
    return pyplot


def build_unit_axes(ax: Any, xlabel: str, ylabel: str) -> Any:
    """Return square axes with the given labels, on which x and y range from 0 to 1."""
    ax = build_axes(ax)
    ax.set_xlim(-0.01, 1.01)
    ax.set_ylim(-0.01, 1.01)
    ax.set_aspect("equal")
    ax.set_xlabel(xlabel)
    ax.set_ylabel(ylabel)
    ax.grid(alpha=0.25, linewidth=0.5)
    return ax


def add_legend(ax: Any, label: str | None, place: str) -> Any:
    """Add a legend at `place`, such as "lower right", unless `label` is None; return the axes."""
    if label is not None:
        ax.legend(loc=place, frameon=False)
    return ax


def draw_roc(points: ROCPoints, ax: Any = None, label: str | None = None) -> Any:
    """Draw an ROC curve, and the diagonal that represents a random classifier."""
    ax = build_unit_axes(ax, "false positive rate", "true positive rate")
    ax.plot([0, 1], [0, 1], color=QUIET, linewidth=1, linestyle=DASHED)
    ax.plot(points.fpr, points.tpr, linewidth=2, label=label)
    return add_legend(ax, label, "lower right")


def draw_precision_recall(points: PRPoints, ax: Any = None, label: str | None = None) -> Any:
    """Draw precision against recall as a step function, and the precision of a random classifier as a dashed line."""
    ax = build_unit_axes(ax, "recall", "precision")
    ax.axhline(points.precision[0], color=QUIET, linewidth=1, linestyle=DASHED)
    ax.plot(points.recall, points.precision, drawstyle="steps-post", linewidth=2, label=label)
    return add_legend(ax, label, "upper right")


def draw_gain(points: GainPoints, ax: Any = None, label: str | None = None) -> Any:
    """Draw cumulative gain, and the diagonal that represents a random ranking."""
    ax = build_unit_axes(ax, "share of rows, highest scores first", "share of positives found")
    ax.plot([0, 1], [0, 1], color=QUIET, linewidth=1, linestyle=DASHED)
    ax.plot(points.fraction, points.gain, linewidth=2, label=label)
    return add_legend(ax, label, "lower right")


def draw_reliability(curve: Reliability, ax: Any = None, label: str | None = None) -> Any:
    """Draw a reliability diagram: the share of positives against the mean prediction, and the diagonal.

    Pale bars show the weight of each bin.
    """
    ax = build_axes(ax)
    occupied = curve.weight > 0
    p, y, weight = curve.prob_pred[occupied], curve.prob_true[occupied], curve.weight[occupied]
    top = float(max(p.max(), y.max())) * 1.05 if len(p) and max(p.max(), y.max()) > 0 else 1.0
    ax.plot([0, top], [0, top], linestyle=":", color="gray", linewidth=1)
    (line,) = ax.plot(p, y, marker="o", markersize=4, label=label)
    counts = ax.twinx()
    low, high = curve.edges[:-1][occupied], np.minimum(curve.edges[1:][occupied], top)
    counts.bar(low, weight, np.maximum(high - low, 0), align="edge", color=line.get_color(), alpha=0.15)
    # Limit the bars to a quarter of the plot height, so that they do not hide the curve.
    counts.set_ylim(0, 4 * weight.max() if len(weight) else 1)
    counts.set_ylabel("rows")
    ax.set_xlim(0, top)
    ax.set_ylim(0, top)
    ax.set_xlabel("mean predicted probability")
    ax.set_ylabel("share of positives")
    return add_legend(ax, label, "upper left")


DRAW_FUNCTIONS: dict[type, Callable[..., Any]] = {
    ROCPoints: draw_roc,
    PRPoints: draw_precision_recall,
    GainPoints: draw_gain,
    Reliability: draw_reliability,
}
