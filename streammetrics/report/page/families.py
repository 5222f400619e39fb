"""What is drawn of rankings, regressions and several classes. Nothing is computed here but questions to states."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, TypeVar

import numpy as np

from streammetrics.collect.collection import MetricCollection
from streammetrics.metrics.agreement import ConfusionMatrix
from streammetrics.metrics.calibration import CalibrationCurve
from streammetrics.metrics.ranking import NDCG
from streammetrics.report.page.charts import Series, bars, heat, histogram, lines
from streammetrics.statistics.by_label import TopBins, TopLabel
from streammetrics.statistics.classes import PairCounts
from streammetrics.statistics.ranking import RankingSums, parts
from streammetrics.statistics.values import ValueHistogram

__all__ = ["COLOURS", "Picture", "others"]

COLOURS = 6  # of the page
MOST = 30  # classes whose matrix is shown whole
SHADES = 48  # of a distribution
S = TypeVar("S")


class Picture(NamedTuple):
    """A picture with what it shows.

    Parameters
    ----------
    title, note : str
        What stands above it, and in small letters below that.
    svg : str
        The picture.
    legend : list of (number, name)
        The series in it.
    """

    title: str
    note: str
    svg: str
    legend: list[tuple[int, str]]


def others(collection: MetricCollection) -> list[Picture]:
    """Return the pictures of rankings, regressions and classes."""
    return [
        *_cutoffs(collection),
        *_residuals(collection),
        *_errors(collection),
        *_top(collection),
        *_confusions(collection),
    ]


def held(collection: MetricCollection, kind: type[S], fits: Any = lambda state: True) -> list[tuple[str, int, S]]:
    """Return name, colour and state of each task that has such a state with rows in it."""
    found: dict[str, S] = {}
    for name, _, (state, *_), _ in collection.contents():
        if isinstance(state, kind) and fits(state) and state.facts()["rows"]:
            found.setdefault(name.rpartition("/")[0] or "all rows", state)
    return [(name, i % COLOURS, state) for i, (name, state) in enumerate(found.items())]


def _cutoffs(collection: MetricCollection) -> Iterator[Picture]:
    """NDCG by cut-off, of the cut-offs that were counted."""
    curves = []
    for name, number, state in held(collection, RankingSums):
        ks = sorted(k for measure, k, _ in map(parts, state.terms) if measure == "ndcg" and k < 1000)
        if len(ks) > 1:
            curves.append((name, number, ks, [NDCG(k).of(state) for k in ks]))
    if not curves:
        return
    values = [v for _, _, _, found in curves for v in found if v == v] or [0.0]
    low, high = min(values), max(values)
    room = max(0.02, (high - low) * 0.15)
    most = max(max(ks) for _, _, ks, _ in curves)
    yield Picture(
        "NDCG by cut-off",
        "The mean over queries of how good the first k documents are, beside the ideal order.",
        lines("NDCG by cut-off", [Series(name, ks, found, number) for name, number, ks, found in curves],
              "documents looked at, k", "NDCG@k", x=(0.0, most * 1.02), y=(max(0.0, low - room), min(1.0, high + room)),
              dots=True),
        [(number, f"{name} (at {ks[-1]}: {found[-1]:.4f})") for name, number, ks, found in curves],
    )  # fmt: skip


def _one(state: ValueHistogram) -> bool:
    return len(state.columns) == 2 and state.outputs == 1


def _residuals(collection: MetricCollection) -> Iterator[Picture]:
    """Shares of rows by error with its sign, in steps of equal width between the extremes that matter."""
    found = held(collection, ValueHistogram, lambda s: _one(s) and s.signed)
    if not found:
        return
    shares = [_shares(state) for _, _, state in found]
    low, high = min(v[0] for v, _ in shares), max(v[-1] for v, _ in shares)
    cuts = [np.interp([0.005, 0.995], np.cumsum(w), v) for v, w in shares]
    low, high = max(low, min(c[0] for c in cuts)), min(high, max(c[1] for c in cuts))
    edges = np.linspace(low, high if high > low else low + 1.0, SHADES + 1)
    series = []
    for (name, number, _), (v, w) in zip(found, shares, strict=True):
        place = np.clip(np.searchsorted(edges, v, side="right") - 1, 0, SHADES - 1)
        heights = np.bincount(place, w, SHADES)
        series.append(Series(name, edges, [*heights, heights[-1]], number))
    yield Picture(
        "Errors",
        "Share of rows by prediction less target; the outermost half percent lies in the last steps.",
        bars("Errors", series, "prediction less target", "share of rows", x=(float(edges[0]), float(edges[-1]))),
        [(number, name) for name, number, _ in found],
    )


def _errors(collection: MetricCollection) -> Iterator[Picture]:
    """The absolute error that a share of rows does not pass."""
    found = held(collection, ValueHistogram, lambda s: _one(s) and not s.signed)
    if not found:
        return
    series, top = [], 0.0
    for name, number, state in found:
        v, w = _shares(state)
        upto = np.cumsum(w)
        kept = np.unique(np.searchsorted(upto, np.linspace(0, 1, 200)).clip(max=len(v) - 1))
        series.append(Series(name, upto[kept], v[kept], number))
        top = max(top, float(np.interp(0.98, upto, v)))
    yield Picture(
        "Error quantiles",
        "The absolute error that a share of the rows does not pass: lower is better.",
        lines("Error quantiles", series, "share of rows", "absolute error", y=(0.0, top * 1.05 or 1.0)),
        [(number, name) for name, number, _ in found],
    )


def _shares(state: ValueHistogram) -> tuple[Any, Any]:
    """Values, and the share of rows that has each."""
    mass = state.mass(0).floats()
    cells = np.flatnonzero(mass)
    return state.values(cells), mass[cells] / mass.sum()


def _top(collection: MetricCollection) -> Iterator[Picture]:
    """Whether the class with the highest probability is right as often as that says."""
    found: list[tuple[str, int, TopLabel]] = held(collection, TopLabel)
    if not found:
        return
    curves = []
    for name, number, state in found:
        strategy = "uniform" if isinstance(state, TopBins) else "quantile"
        n = state.n_bins if isinstance(state, TopBins) else SHADES // 3
        curves.append((name, number, CalibrationCurve(n_bins=n, strategy=strategy).of(state)))  # type: ignore[arg-type]
    series = [Series(n, c.prob_pred[c.weight > 0], c.prob_true[c.weight > 0], i) for n, i, c in curves]
    first = curves[0][2]
    yield Picture(
        "Reliability of the class with the highest probability",
        f"On the dashed line probabilities are right. Grey: where those of {curves[0][0]} are.",
        lines("Reliability", series, "mean predicted probability", "share predicted rightly", diagonal=True, dots=True,
              under=histogram((0.0, 1.0), first.edges, first.weight)),
        [(number, name) for name, number, _ in curves],
    )  # fmt: skip


def _confusions(collection: MetricCollection) -> Iterator[Picture]:
    """A heat map of each confusion matrix that fits a page."""
    for name, _, state in held(collection, PairCounts):
        names = list(map(str, state.names()))
        if 2 <= len(names) <= MOST:
            matrix = ConfusionMatrix(num_classes=len(names))
            shares = ConfusionMatrix(num_classes=len(names), normalize="true").of(state)
            title = "Confusion matrix" if name == "all rows" else f"Confusion matrix of {name}"
            note = "Rows by true class (down) and predicted class (across); the shade is the share of the true class."
            yield Picture(title, note, heat(title, names, matrix.of(state), shares), [])
