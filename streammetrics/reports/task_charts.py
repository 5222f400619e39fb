"""Build the charts of ranking, regression and multiclass tasks from metric states."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ..collect.collection import CollectionEntry, MetricCollection, contents_of
from ..metrics.decisions.agreement import ConfusionMatrix
from ..metrics.probabilities.calibration import CalibrationCurve
from ..metrics.ranking.gains import NDCG
from ..metrics.regression.quantiles import ErrorQuantile, ResidualQuantile
from ..statistics.by_label import TopBins, TopLabel
from ..statistics.classes import PairCounts
from ..statistics.query_sums import parse_term
from ..statistics.ranking import RankingSums
from ..statistics.values import ValueHistogram
from .charts import Area, Chart, ChartLine, ColourKey, Rule, linear_axis
from .numbers import format_fixed, format_number, format_share

__all__ = [
    "COLOURS",
    "MAX_CLASSES",
    "ChartSource",
    "MatrixChart",
    "build_matrices",
    "build_task_charts",
    "list_entries",
]

COLOURS = 6  # the number of different colors for models on a page
MAX_CLASSES = 30  # the largest number of classes in a confusion matrix
SHADES = 48  # the number of bars in a histogram
S = TypeVar("S")
ChartSource = MetricCollection | Mapping[str, MetricCollection]
"""The metrics of a chart: one collection, or one for each arm of an experiment."""


class MatrixChart(NamedTuple):
    """A confusion matrix for a heat map.

    Parameters
    ----------
    title, note : str
        The title, and a remark below it.
    names : list of str
        The classes.
    counts, shares : ndarray
        The total weight for each true class (rows) and predicted class (columns), and this weight as a share of the
        true class.
    """

    title: str
    note: str
    names: list[str]
    counts: Any
    shares: Any


def list_entries(source: ChartSource) -> list[CollectionEntry]:
    """Return the members of a collection, or of the collections of all arms, with names such as "arm/auc"."""
    if isinstance(source, MetricCollection):
        return contents_of(source)
    return [e._replace(name=f"{arm}/{e.name}") for arm, one in source.items() for e in contents_of(one)]


def build_task_charts(source: ChartSource) -> list[Chart]:
    """Return the charts of ranking, regression and multiclass tasks."""
    return [
        *_build_cutoff_chart(source),
        *_build_residual_chart(source),
        *_build_error_chart(source),
        *_build_top_label_chart(source),
    ]


def find_states(source: ChartSource, kind: type[S], fits: Any = lambda state: True) -> list[tuple[str, int, S]]:
    """Return the name, the color index and a state of each task.

    The state is the first one of the class `kind` that has rows and for which `fits` is true. Tasks without such a
    state are left out.
    """
    states: dict[str, S] = {}
    for name, _, (state, *_), *_ in list_entries(source):
        facts = state.facts() if isinstance(state, kind) else {}
        if isinstance(state, kind) and fits(state) and facts["rows"] and facts.get("weight", 1):
            states.setdefault(name.rpartition("/")[0] or "all rows", state)
    return [(name, i % COLOURS, state) for i, (name, state) in enumerate(states.items())]


def _build_cutoff_chart(source: ChartSource) -> Iterator[Chart]:
    """Yield a chart of NDCG against the cut-off k (the 10 in NDCG@10), if a task has at least two cut-offs."""
    curves: list[Any] = []
    empty: dict[str, Any] = {}
    for full, metric, *_ in list_entries(source):
        # Record how NDCG treats queries without a relevant document, so that the chart treats them as the tables do.
        if isinstance(metric, NDCG):
            empty.setdefault(full.rpartition("/")[0] or "all rows", metric.empty)
    for name, number, state in find_states(source, RankingSums):
        ks = sorted(k for measure, k, _ in map(parse_term, state.terms) if measure == "ndcg" and k < 1000)
        if len(ks) > 1:
            curves.append((name, number, ks, [NDCG(k, empty=empty.get(name, 0.0)).reading(state).value for k in ks]))
    if not curves:
        return
    every = [v for _, _, _, values in curves for v in values if v == v] or [0.0]
    low, high = min(every), max(every)
    room = max(0.02, (high - low) * 0.15)
    most = max(max(ks) for _, _, ks, _ in curves)
    at = sorted({k for _, _, ks, _ in curves for k in ks})
    readings = [
        (
            float(k),
            f"first {k}: " + ", ".join(f"{n} {format_fixed(v[ks.index(k)], 4)}" for n, _, ks, v in curves if k in ks),
        )
        for k in at
    ]
    ends = "; ".join(
        f"{n} {format_fixed(v[0], 4)} at {ks[0]}, {format_fixed(v[-1], 4)} at {ks[-1]}" for n, _, ks, v in curves
    )
    yield Chart(
        "NDCG by cut-off",
        "Mean over queries of the gain of the first k documents, relative to the ideal order.",
        f"{ends}.",
        linear_axis(0.0, most * 1.02), linear_axis(max(0.0, low - room), min(1.0, high + room)), "cut-off k", "NDCG@k",
        [ChartLine(ks, values, number, range(len(ks))) for _, number, ks, values in curves],
        [ColourKey(number, f"{name} (at {ks[-1]}: {format_fixed(values[-1], 4)})") for name, number, ks, values in curves],
        readings=readings,
    )  # fmt: skip


def _has_one_output(state: ValueHistogram) -> bool:
    return len(state.columns) == 2 and state.outputs == 1


def _build_residual_chart(source: ChartSource) -> Iterator[Chart]:
    """Yield a histogram of the errors (prediction minus target). Outliers are counted in the first and last bins."""
    histograms = find_states(source, ValueHistogram, lambda s: _has_one_output(s) and s.signed)
    if not histograms:
        return
    shares = [_read_value_shares(state) for _, _, state in histograms]
    low, high = min(v[0] for v, _ in shares), max(v[-1] for v, _ in shares)
    # Outliers would squeeze the histogram. Its range therefore covers the middle 99 % of the rows of every model.
    cuts = [np.interp([0.005, 0.995], np.cumsum(w), v) for v, w in shares]
    low, high = max(low, min(c[0] for c in cuts)), min(high, max(c[1] for c in cuts))
    edges = np.linspace(low, high if high > low else low + 1.0, SHADES + 1)
    layers: list[Any] = []
    top = 0.0
    for (_, number, _), (v, w) in zip(histograms, shares, strict=True):
        place = np.clip(np.searchsorted(edges, v, side="right") - 1, 0, SHADES - 1)
        heights = np.bincount(place, w, SHADES)
        steps = np.r_[heights, heights[-1]]
        layers += [Area(edges, steps, number), ChartLine(edges, steps, number, steps=True)]
        top = max(top, float(heights.max()))
    medians = [(name, ResidualQuantile(0.5).reading(state).value) for name, _, state in histograms]
    yield Chart(
        "Errors",
        "Share of rows by prediction minus target; the first and last step include the outermost 0.5 %.",
        f"Medians: {_format_values(medians)}.",
        linear_axis(float(edges[0]), float(edges[-1])), linear_axis(0.0, top * 1.05 or 1.0, percent=True),
        "prediction minus target", "share of rows", layers, [ColourKey(number, name) for name, number, _ in histograms],
    )  # fmt: skip


def _build_error_chart(source: ChartSource) -> Iterator[Chart]:
    """Yield a chart of the quantiles of the absolute error, such as the error that 90 % of the rows do not exceed."""
    histograms = find_states(source, ValueHistogram, lambda s: _has_one_output(s) and not s.signed)
    if not histograms:
        return
    layers: list[Any] = []
    top = 0.0
    for _, number, state in histograms:
        v, w = _read_value_shares(state)
        upto = np.cumsum(w)
        points = np.unique(np.searchsorted(upto, np.linspace(0, 1, 200)).clip(max=len(v) - 1))
        layers.append(ChartLine(upto[points], v[points], number))
        top = max(top, float(np.interp(0.98, upto, v)))
    quantiles = [(name, ErrorQuantile(0.9).reading(state).value) for name, _, state in histograms]
    yield Chart(
        "Error quantiles",
        "Quantiles of the absolute error: lower is better.",
        f"The absolute error of 90\u202f% of the rows is at most: {_format_values(quantiles)}.",
        linear_axis(0, 1, percent=True), linear_axis(0.0, top * 1.05 or 1.0), "share of rows", "absolute error", layers,
        [ColourKey(number, name) for name, number, _ in histograms],
    )  # fmt: skip


def _format_values(values: Sequence[tuple[str, float]]) -> str:
    """Return the value of each model as text, such as "a −0.02, b 0.31"; a single value has no name."""
    if len(values) == 1:
        return format_number(values[0][1])
    return ", ".join(f"{name} {format_number(value)}" for name, value in values)


def _read_value_shares(state: ValueHistogram) -> tuple[Any, Any]:
    """Return the midpoint and the share of rows of each nonempty bucket of a histogram."""
    mass = state.mass(0).to_floats()
    some = np.flatnonzero(mass)
    low, high = state.value_bounds()
    return (low[some] + high[some]) / 2, mass[some] / mass.sum()


def _build_top_label_chart(source: ChartSource) -> Iterator[Chart]:
    """Yield a reliability diagram for the predicted class, which is the class with the highest probability."""
    states: list[tuple[str, int, TopLabel]] = find_states(source, TopLabel)
    if not states:
        return
    layers: list[Any] = [Rule([0, 1], [0, 1], "calibrated")]
    readings = []
    for name, number, state in states:
        strategy = "uniform" if isinstance(state, TopBins) else "quantile"
        n = state.n_bins if isinstance(state, TopBins) else SHADES // 3
        c = CalibrationCurve(n_bins=n, strategy=strategy).reading(state).value  # type: ignore[arg-type]
        some = c.weight > 0
        p, y = c.prob_pred[some], c.prob_true[some]
        layers.append(ChartLine(p, y, number, range(len(p))))
        readings += [(a, f"{name}: predicted {format_share(a)}, correct {format_share(b)}, {w:,.0f} rows")
                     for a, b, w in zip(p.tolist(), y.tolist(), c.weight[some].tolist(), strict=True)]  # fmt: skip
    yield Chart(
        "Reliability of the class with the highest probability",
        "Points on the dotted line are calibrated; below it, probabilities are too high.",
        "Each point is a bin of rows with similar probability.",
        linear_axis(0, 1, percent=True), linear_axis(0, 1, percent=True), "mean predicted probability", "accuracy",
        layers, [ColourKey(number, name) for name, number, _ in states], readings=sorted(readings),
    )  # fmt: skip


def build_matrices(source: ChartSource) -> Iterator[MatrixChart]:
    """Yield the confusion matrices with at most MAX_CLASSES classes."""
    for name, _, state in find_states(source, PairCounts):
        names = list(map(str, state.class_names()))
        if 2 <= len(names) <= MAX_CLASSES:
            matrix = ConfusionMatrix(num_classes=len(names))
            shares = ConfusionMatrix(num_classes=len(names), normalize="true").reading(state).value
            title = "Confusion matrix" if name == "all rows" else f"Confusion matrix of {name}"
            note = "Rows by true class (down) and predicted class (across); the shade is the share of the true class."
            yield MatrixChart(title, note, names, matrix.reading(state).value, shares)
