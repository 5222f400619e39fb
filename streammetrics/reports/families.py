"""What is drawn of rankings, regressions and several classes. Nothing is computed here but questions to states."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ..collect.collection import MetricCollection, contents_of
from ..metrics.decisions.agreement import ConfusionMatrix
from ..metrics.probabilities.calibration import CalibrationCurve
from ..metrics.ranking.gains import NDCG
from ..statistics.by_label import TopBins, TopLabel
from ..statistics.classes import PairCounts
from ..statistics.query_sums import parts
from ..statistics.ranking import RankingSums
from ..statistics.values import ValueHistogram
from .charts import Area, Chart, ChartLine, ColourKey, Rule, linear
from .numbers import fixed, share

__all__ = ["COLOURS", "MOST", "MatrixPicture", "matrices", "others"]

COLOURS = 6  # of the page
MOST = 30  # classes whose matrix is shown whole
SHADES = 48  # of a distribution
S = TypeVar("S")


class MatrixPicture(NamedTuple):
    """A confusion matrix as a picture.

    Parameters
    ----------
    title, note : str
        What stands above it.
    names : list of str
        The classes.
    counts, shares : ndarray
        By true class (down) and predicted class (across): weights of rows, and their share of the true class.
    """

    title: str
    note: str
    names: list[str]
    counts: Any
    shares: Any


def others(collection: MetricCollection) -> list[Chart]:
    """Return the pictures of rankings, regressions and classes."""
    return [*_cutoffs(collection), *_residuals(collection), *_errors(collection), *_top(collection)]


def held(collection: MetricCollection, kind: type[S], fits: Any = lambda state: True) -> list[tuple[str, int, S]]:
    """Return name, colour and state of each task that has such a state with rows in it."""
    found: dict[str, S] = {}
    for name, _, (state, *_), *_ in contents_of(collection):
        seen = state.facts() if isinstance(state, kind) else {}
        if isinstance(state, kind) and fits(state) and seen["rows"] and seen.get("weight", 1):
            found.setdefault(name.rpartition("/")[0] or "all rows", state)
    return [(name, i % COLOURS, state) for i, (name, state) in enumerate(found.items())]


def _cutoffs(collection: MetricCollection) -> Iterator[Chart]:
    """NDCG by cut-off, of the cut-offs that were counted."""
    curves: list[Any] = []
    empty: dict[str, Any] = {}
    for full, metric, *_ in contents_of(collection):
        if isinstance(metric, NDCG):  # what queries without a relevant document are worth, as the tables have it
            empty.setdefault(full.rpartition("/")[0] or "all rows", metric.empty)
    for name, number, state in held(collection, RankingSums):
        ks = sorted(k for measure, k, _ in map(parts, state.terms) if measure == "ndcg" and k < 1000)
        if len(ks) > 1:
            curves.append((name, number, ks, [NDCG(k, empty=empty.get(name, 0.0)).reading(state).value for k in ks]))
    if not curves:
        return
    values = [v for _, _, _, found in curves for v in found if v == v] or [0.0]
    low, high = min(values), max(values)
    room = max(0.02, (high - low) * 0.15)
    most = max(max(ks) for _, _, ks, _ in curves)
    at = sorted({k for _, _, ks, _ in curves for k in ks})
    told = [(float(k), f"first {k}: " + ", ".join(f"{n} {fixed(v[ks.index(k)], 4)}" for n, _, ks, v in curves if k in ks))
            for k in at]  # fmt: skip
    ends = "; ".join(f"{n} {fixed(v[0], 4)} at {ks[0]}, {fixed(v[-1], 4)} at {ks[-1]}" for n, _, ks, v in curves)
    yield Chart(
        "NDCG by cut-off",
        "The mean over queries of how good the first k documents are, beside the ideal order.",
        f"{ends}.",
        linear(0.0, most * 1.02), linear(max(0.0, low - room), min(1.0, high + room)), "documents looked at, k", "NDCG@k",
        [ChartLine(ks, found, number, range(len(ks))) for _, number, ks, found in curves],
        [ColourKey(number, f"{name} (at {ks[-1]}: {fixed(found[-1], 4)})") for name, number, ks, found in curves],
        readings=told,
    )  # fmt: skip


def _one(state: ValueHistogram) -> bool:
    return len(state.columns) == 2 and state.outputs == 1


def _residuals(collection: MetricCollection) -> Iterator[Chart]:
    """Shares of rows by error with its sign, in steps of equal width between the extremes that matter."""
    found = held(collection, ValueHistogram, lambda s: _one(s) and s.signed)
    if not found:
        return
    shares = [_shares(state) for _, _, state in found]
    low, high = min(v[0] for v, _ in shares), max(v[-1] for v, _ in shares)
    cuts = [np.interp([0.005, 0.5, 0.995], np.cumsum(w), v) for v, w in shares]
    low, high = max(low, min(c[0] for c in cuts)), min(high, max(c[2] for c in cuts))
    edges = np.linspace(low, high if high > low else low + 1.0, SHADES + 1)
    layers: list[Any] = []
    top = 0.0
    for (_, number, _), (v, w) in zip(found, shares, strict=True):
        place = np.clip(np.searchsorted(edges, v, side="right") - 1, 0, SHADES - 1)
        heights = np.bincount(place, w, SHADES)
        steps = np.r_[heights, heights[-1]]
        layers += [Area(edges, steps, number), ChartLine(edges, steps, number, steps=True)]
        top = max(top, float(heights.max()))
    middles = ", ".join(f"{name} {c[1]:.4g}" for (name, _, _), c in zip(found, cuts, strict=True))
    yield Chart(
        "Errors",
        "Share of rows by prediction less target; the outermost half percent lies in the last steps.",
        f"Medians: {middles}.",
        linear(float(edges[0]), float(edges[-1])), linear(0.0, top * 1.05 or 1.0, percent=True),
        "prediction less target", "share of rows", layers, [ColourKey(number, name) for name, number, _ in found],
    )  # fmt: skip


def _errors(collection: MetricCollection) -> Iterator[Chart]:
    """The absolute error that a share of rows does not pass."""
    found = held(collection, ValueHistogram, lambda s: _one(s) and not s.signed)
    if not found:
        return
    layers: list[Any] = []
    top, told = 0.0, []
    for name, number, state in found:
        v, w = _shares(state)
        upto = np.cumsum(w)
        kept = np.unique(np.searchsorted(upto, np.linspace(0, 1, 200)).clip(max=len(v) - 1))
        layers.append(ChartLine(upto[kept], v[kept], number))
        top = max(top, float(np.interp(0.98, upto, v)))
        told.append(f"{name} {float(np.interp(0.9, upto, v)):.4g}")
    yield Chart(
        "Error quantiles",
        "The absolute error that a share of the rows does not pass: lower is better.",
        f"Nine rows of ten are off by less than: {', '.join(told)}.",
        linear(0, 1, percent=True), linear(0.0, top * 1.05 or 1.0), "share of rows", "absolute error", layers,
        [ColourKey(number, name) for name, number, _ in found],
    )  # fmt: skip


def _shares(state: ValueHistogram) -> tuple[Any, Any]:
    """Values, and the share of rows that has each."""
    mass = state.mass(0).floats()
    some = np.flatnonzero(mass)
    low, high = state.ends()
    return (low[some] + high[some]) / 2, mass[some] / mass.sum()


def _top(collection: MetricCollection) -> Iterator[Chart]:
    """Whether the class with the highest probability is right as often as that says."""
    found: list[tuple[str, int, TopLabel]] = held(collection, TopLabel)
    if not found:
        return
    layers: list[Any] = [Rule([0, 1], [0, 1], "predicted = right")]
    readings = []
    for name, number, state in found:
        strategy = "uniform" if isinstance(state, TopBins) else "quantile"
        n = state.n_bins if isinstance(state, TopBins) else SHADES // 3
        c = CalibrationCurve(n_bins=n, strategy=strategy).reading(state).value  # type: ignore[arg-type]
        some = c.weight > 0
        p, y = c.prob_pred[some], c.prob_true[some]
        layers.append(ChartLine(p, y, number, range(len(p))))
        readings += [(float(a), f"{name}: predicted {share(float(a))}, right {share(float(b))}, {w:,.0f} rows")
                     for a, b, w in zip(p, y, c.weight[some], strict=True)]  # fmt: skip
    yield Chart(
        "Reliability of the class with the highest probability",
        "On the dotted line probabilities are right; below they are too high.",
        "A point is a bin of rows with about the same probability.",
        linear(0, 1, percent=True), linear(0, 1, percent=True), "mean predicted probability", "share predicted rightly",
        layers, [ColourKey(number, name) for name, number, _ in found], readings=sorted(readings),
    )  # fmt: skip


def matrices(collection: MetricCollection) -> Iterator[MatrixPicture]:
    """Yield each confusion matrix that fits a page."""
    for name, _, state in held(collection, PairCounts):
        names = list(map(str, state.names()))
        if 2 <= len(names) <= MOST:
            matrix = ConfusionMatrix(num_classes=len(names))
            shares = ConfusionMatrix(num_classes=len(names), normalize="true").reading(state).value
            title = "Confusion matrix" if name == "all rows" else f"Confusion matrix of {name}"
            note = "Rows by true class (down) and predicted class (across); the shade is the share of the true class."
            yield MatrixPicture(title, note, names, matrix.reading(state).value, shares)
