"""What is drawn of a collection: new questions to the states that it holds. Nothing is computed here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from streammetrics.collect.collection import MetricCollection
from streammetrics.metrics.calibration import CalibrationCurve
from streammetrics.metrics.curves import GainCurve, PRCurve, ROCCurve
from streammetrics.metrics.scores import AUC, AveragePrecision
from streammetrics.report.page.charts import Series, bars, histogram, lines
from streammetrics.report.page.families import COLOURS, Picture, others
from streammetrics.statistics.by_label import ByLabel, TopLabel
from streammetrics.statistics.scores import ScoreHistogram, ScoresByLabel

__all__ = ["Picture", "pictures"]

BINS = 20
SHADES = 48  # of a distribution
FEW = 0.02  # recall below which precision is that of a handful of rows


class Model(NamedTuple):
    """Scores of one task: its name, its colour, the rows by score, and whether they are of several classes or labels."""

    name: str
    number: int
    state: ScoresByLabel
    pooled: str = ""


def models(collection: MetricCollection) -> list[Model]:
    """Return the models of a collection whose rows are kept by score, one of each task."""
    found: dict[str, tuple[ScoresByLabel, str]] = {}
    for name, _, (state, *_), _ in collection.contents():
        pooled = ""
        if isinstance(state, ByLabel) and isinstance(state, ScoreHistogram):
            state, pooled = state.pooled(), "labels" if state.num_labels else "classes"
        if isinstance(state, ScoresByLabel) and not isinstance(state, TopLabel) and state.facts()["rows"]:
            found.setdefault(name.rpartition("/")[0] or "all rows", (state, pooled))
    return [Model(name, i % COLOURS, *state) for i, (name, state) in enumerate(found.items())]


def pictures(collection: MetricCollection) -> list[Picture]:
    """Return the pictures of a collection."""
    known = models(collection)
    both = [m for m in known if AUC().reason_of(m.state) is None]
    made: list[Picture] = []
    if both:
        made += _curves(both)
        single = [m for m in both if m.pooled != "classes"]  # of classes only the highest probability is looked at
        made += _reliability(single)
        made += [_distribution(m) for m in single]
        if several := next((m.pooled for m in both if m.pooled), ""):
            how = f" All {several} together{', each against the rest' if several == 'classes' else ''}."
            made = [picture._replace(note=picture.note + how) for picture in made]
    return [*made, *others(collection)]


def _curves(known: list[Model]) -> Iterator[Picture]:
    roc = [(m, ROCCurve().of(m.state)) for m in known]
    yield Picture(
        "ROC",
        "True over false positive rate; the dashed line is chance.",
        lines("ROC", [Series(m.name, p.fpr, p.tpr, m.number) for m, p in roc],
              "false positive rate", "true positive rate", diagonal=True),
        [(m.number, f"{m.name} (AUC {AUC().of(m.state):.4f})") for m in known],
    )  # fmt: skip
    pr = [(m, PRCurve().of(m.state)) for m in known]
    top = max(float(np.nanmax(p.precision[p.recall >= FEW], initial=0.0)) for _, p in pr) * 1.1
    yield Picture(
        "Precision and recall",
        "Each point is a threshold.",
        lines("Precision and recall", [Series(m.name, p.recall[::-1], p.precision[::-1], m.number) for m, p in pr],
              "recall", "precision", y=(0.0, min(1.0, top) or 1.0)),
        [(m.number, f"{m.name} (AP {AveragePrecision().of(m.state):.4f})") for m in known],
    )  # fmt: skip
    gain = [(m, GainCurve().of(m.state)) for m in known]
    yield Picture(
        "Cumulative gain",
        "Share of positives among the highest scores; the dashed line is chance.",
        lines("Cumulative gain", [Series(m.name, p.fraction, p.gain, m.number) for m, p in gain],
              "share of rows, highest scores first", "share of positives found", diagonal=True),
        [(m.number, m.name) for m in known],
    )  # fmt: skip


def _reliability(known: list[Model]) -> Iterator[Picture]:
    found = []
    for m in known:
        if isinstance(m.state, ScoreHistogram) and m.state.scale != "real":
            curve = CalibrationCurve(n_bins=BINS, strategy="quantile", scale=m.state.scale).of(m.state)
            held = curve.weight > 0
            found.append((m, curve, held))
    if not found:
        return
    top = max(float(max(c.prob_pred[h].max(), c.prob_true[h].max())) for _, c, h in found) * 1.05 or 1.0
    first = found[0][1]
    yield Picture(
        "Reliability",
        f"{BINS} bins with as many rows each; on the dashed line probabilities are right. Grey: where the scores of"
        f" {found[0][0].name} are.",
        lines("Reliability", [Series(m.name, c.prob_pred[h], c.prob_true[h], m.number) for m, c, h in found],
              "mean predicted probability", "share of positives", x=(0.0, top), y=(0.0, top), diagonal=True, dots=True,
              under=histogram((0.0, top), first.edges, first.weight)),
        [(m.number, m.name) for m, _, _ in found],
    )  # fmt: skip


def _distribution(model: Model) -> Picture:
    """Scores of negatives and positives, each as shares, in steps of equal width between the extremes that matter."""
    counts = model.state.counts
    held = np.flatnonzero(counts.any(axis=0))
    scores = model.state.thresholds(held)
    n = counts[:, held].astype(float)
    order = np.argsort(scores)
    below = np.cumsum(n.sum(axis=0)[order]) / n.sum()
    ends = np.searchsorted(below, [0.001, 0.999]).clip(max=len(below) - 1)
    low, high = scores[order][ends]
    edges = np.linspace(low, high if high > low else low + 1.0, SHADES + 1)
    place = np.clip(np.searchsorted(edges, scores, side="right") - 1, 0, SHADES - 1)
    shares = [np.bincount(place, w / max(w.sum(), 1.0), SHADES) for w in n]
    series = [Series(name, edges, [*share, share[-1]], i) for i, (name, share) in
              enumerate(zip(("negatives", "positives"), shares, strict=True))]  # fmt: skip
    title = f"Scores of {model.name}"
    return Picture(
        title,
        "Share of each class by score; the outermost tenth of a percent lies in the last steps.",
        bars(title, series, "score", "share of the class", x=(float(edges[0]), float(edges[-1]))),
        [(0, "negatives"), (1, "positives")],
    )
