"""What is drawn of a collection: new questions to the states that it holds. Nothing is computed here."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..collect.collection import MetricCollection, contents_of
from ..metrics.curves.areas import AUC, AveragePrecision
from ..metrics.curves.points import GainCurve, PRCurve, ROCCurve
from ..metrics.probabilities.calibration import CalibrationCurve
from ..numerics.exact import to_float
from ..statistics.by_label import ByLabel, TopLabel
from ..statistics.scores import ScoreHistogram, ScoresByLabel
from .charts import Area, Chart, ChartAxis, ChartLine, ColourKey, Rule, linear, logarithmic
from .families import COLOURS, others
from .numbers import fixed, share

__all__ = ["Best", "TaskScores", "best_rows", "models", "pictures"]

BINS = 20
SHADES = 64  # of a distribution
RARE = 0.05  # share of positives under which axes are logarithmic
PLACES = 97  # of a curve on a logarithmic axis
SHOWN = (0.001, 0.01, 0.05, 0.1, 0.2, 0.5)  # shares of the best scored rows
MARKED = 5  # markers along a line


class TaskScores(NamedTuple):
    """Scores of one task: its name, its colour, the rows by score, and whether they are of several classes or labels."""

    name: str
    number: int
    state: ScoresByLabel
    pooled: str = ""


class Best(NamedTuple):
    """What the best scored rows of every model hold.

    Parameters
    ----------
    names : list of (number, name)
        The models.
    rows : list of (share, found, precision)
        Of these rows, by model: the share of positives found, and the share of positives among them.
    """

    names: list[ColourKey]
    rows: list[tuple[str, list[str], list[str]]]


def models(collection: MetricCollection) -> list[TaskScores]:
    """Return the models of a collection whose rows are kept by score, one of each task."""
    found: dict[str, tuple[ScoresByLabel, str]] = {}
    for name, _, (state, *_), *_ in contents_of(collection):
        pooled = ""
        if isinstance(state, ByLabel) and isinstance(state, ScoreHistogram):
            state, pooled = state.pooled(), "labels" if state.num_labels else "classes"
        if isinstance(state, ScoresByLabel) and not isinstance(state, TopLabel) and state.facts()["rows"]:
            found.setdefault(name.rpartition("/")[0] or "all rows", (state, pooled))
    return [TaskScores(name, i % COLOURS, *state) for i, (name, state) in enumerate(found.items())]


def pictures(collection: MetricCollection) -> list[Chart]:
    """Return the pictures of a collection."""
    both = drawable(collection)
    made: list[Chart] = []
    if both:
        made += _curves(both)
        single = [m for m in both if m.pooled != "classes"]  # of classes only the highest probability is looked at
        made += _reliability(single)
        made += [_distribution(m) for m in single]
        if several := next((m.pooled for m in both if m.pooled), ""):
            how = f" All {several} together{', each against the rest' if several == 'classes' else ''} (micro)."
            for chart in made:
                chart.note += how
    return [*made, *others(collection)]


def drawable(collection: MetricCollection) -> list[TaskScores]:
    """Return the models that have rows of both classes."""
    return [m for m in models(collection) if AUC().reading(m.state).reason is None]


def rare(known: Sequence[TaskScores]) -> bool:
    """Whether positives of any model are so few that linear axes hide what happens."""
    return any(float(m.state.support()) < RARE * _total(m.state) for m in known)


def _total(state: ScoresByLabel) -> float:
    return to_float(state.facts()["weight"]) or 1.0


def _curves(known: list[TaskScores]) -> Iterator[Chart]:
    yield _roc(known)
    yield _precision_recall(known)


def _marks(n: int) -> list[int]:
    """Places of a line that have a marker."""
    return sorted({round(float(i)) for i in np.linspace(0, n - 1, MARKED + 2)[1:-1]}) if n > 2 else []


def _key(known: Sequence[TaskScores], metric: Any, name: str) -> list[ColourKey]:
    return [ColourKey(m.number, f"{m.name} {name} {fixed(metric.reading(m.state).value, 4)}") for m in known]


def _told(names: Sequence[str], values: Sequence[float]) -> str:
    """Say a share of each model: "a 5.3 %, b 7.7 %"; of one model without its name."""
    if len(names) == 1:
        return share(values[0])
    return ", ".join(f"{n} {share(v)}" for n, v in zip(names, values, strict=True))


def _roc(known: list[TaskScores]) -> Chart:
    curves = [ROCCurve(tolerance=0.0).reading(m.state).value for m in known]
    names = [m.name for m in known]
    key = _key(known, AUC(), "AUC")
    at = [float(np.interp(0.01, c.fpr, c.tpr)) for c in curves]
    says = f"Letting through 1\u202f% of the negatives finds, of the positives: {_told(names, at)}."
    few = min(_total(m.state) - float(m.state.support()) for m in known)
    low = max(10.0 ** math.floor(math.log10(10.0 / max(few, 100.0))), 1e-4)
    x = np.exp(np.linspace(math.log(low), 0.0, PLACES))
    lines = [(m, x, np.interp(x, c.fpr, c.tpr)) for m, c in zip(known, curves, strict=True)]
    floor = min((float(y[y > 0].min()) for _, _, y in lines if (y > 0).any()), default=low)
    down = max(10.0 ** math.floor(math.log10(floor)), 1e-4)
    note = "Above each threshold; dotted: chance."
    both = logarithmic(low, 1.0, percent=True), logarithmic(down, 1.0, percent=True)
    labels = "negatives let through", "positives found"
    log = Chart("ROC", note, says, *both, *labels, [
        Rule([max(low, down), 1.0], [max(low, down), 1.0], "chance"),
        *(ChartLine(x, y, m.number, _marks(len(x))) for m, x, y in lines),
    ], key, readings=[_reading(f"{share(v)} of the negatives", float(v), names, [y[i] for _, _, y in lines])
                      for i, v in enumerate(x) if i % 3 == 0])  # fmt: skip
    grid = np.linspace(0.0, 1.0, PLACES)
    straight = [(m, np.interp(grid, c.fpr, c.tpr)) for m, c in zip(known, curves, strict=True)]
    plain = Chart("ROC", note, says, linear(0, 1, percent=True), linear(0, 1, percent=True), *labels, [
        Rule([0, 1], [0, 1], "chance"),
        *(ChartLine(c.fpr, c.tpr, m.number) for m, c in ((m, ROCCurve().reading(m.state).value) for m in known)),
    ], key, readings=[_reading(f"{share(v)} of the negatives", float(v), names, [y[i] for _, y in straight])
                      for i, v in enumerate(grid) if i % 3 == 0])  # fmt: skip
    first, second = (log, plain) if rare(known) else (plain, log)
    first.other = second
    return first


def _reading(where: str, x: float, names: Sequence[str], values: Sequence[float]) -> tuple[float, str]:
    return x, f"{where}: {_told(names, values)} of the positives found"


def _precision_recall(known: list[TaskScores]) -> Chart:
    curves = [PRCurve(tolerance=0.0).reading(m.state).value for m in known]
    names = [m.name for m in known]
    bases = [float(c.precision[0]) for c in curves]
    base, alike = min(bases), max(bases) <= 1.001 * min(bases)
    key = _key(known, AveragePrecision(), "AP")
    tenth = [float(np.interp(0.1, c.recall[::-1], c.precision[::-1])) for c in curves]
    says = f"To find 10\u202f% of the positives, of the rows shown are positive: {_told(names, tenth)}."
    few = min(float(m.state.support()) for m in known)
    low = max(30.0 / max(few, 300.0), 1e-3)
    x = np.exp(np.linspace(math.log(low), 0.0, PLACES))
    lines = [(m, np.interp(x, c.recall[::-1], c.precision[::-1])) for m, c in zip(known, curves, strict=True)]
    known_y = np.concatenate([y for _, y in lines])
    top = min(1.0, float(np.nanmax(known_y)) * 1.15)
    down = base * 0.8
    note = "Height over the dotted line, all rows, is lift." if alike else "At the right end are all rows of each."
    labels = "positives found", "positives among those shown"
    lifts = tuple((base * k, f"×{k}") for k in (1, 2, 5, 10, 20, 50, 100, 200, 500) if alike and down < base * k <= top)
    told = [(f"{share(v)} of the positives", i) for i, v in enumerate(x)]
    log = Chart("Precision and recall", note, says, logarithmic(low, 1.0, percent=True),
                logarithmic(down, top, percent=True), *labels, [
        *([Rule([low, 1.0], [base, base], "all rows")] if alike else []),
        *(ChartLine(x, y, m.number, _marks(len(x))) for m, y in lines),
    ], key, right=lifts, rightlabel="lift" if lifts else "",
        readings=[(float(x[i]), f"{text}: {_told(names, [y[i] for _, y in lines])} of the rows shown are positive")
                  for text, i in told if i % 3 == 0])  # fmt: skip
    least = max(0.02, low)
    straight = [PRCurve().reading(m.state).value for m in known]
    most = max(float(np.nanmax(c.precision[c.recall >= least], initial=0.0)) for c in straight) * 1.1
    plain = Chart("Precision and recall", note, says, linear(0, 1, percent=True),
                  linear(0, min(1.0, most) or 1.0, percent=True), *labels, [
        *([Rule([0.0, 1.0], [base, base], "all rows")] if alike else []),
        *(ChartLine(c.recall[::-1], c.precision[::-1], m.number) for m, c in zip(known, straight, strict=True)),
    ], key)  # fmt: skip
    first, second = (log, plain) if rare(known) else (plain, log)
    first.other = second
    return first


def best_rows(collection: MetricCollection) -> Best | None:
    """Return what the best scored rows hold, of the models that have rows of both classes; None where there is none."""
    known = drawable(collection)
    if not known:
        return None
    curves = [GainCurve(tolerance=0.0).reading(m.state).value for m in known]
    base = [float(m.state.support()) / _total(m.state) for m in known]
    rows = []
    for part in SHOWN:
        found = [float(np.interp(part, c.fraction, c.gain)) for c in curves]
        rows.append((share(part, 1 if part < 0.01 else 0), [share(v) for v in found],
                     [share(v * b / part) for v, b in zip(found, base, strict=True)]))  # fmt: skip
    return Best([ColourKey(m.number, m.name) for m in known], rows)


def _reliability(known: list[TaskScores]) -> Iterator[Chart]:
    found = []
    for m in known:
        if isinstance(m.state, ScoreHistogram) and m.state.scale != "real":
            curve = CalibrationCurve(n_bins=BINS, strategy="quantile", scale=m.state.scale).reading(m.state).value
            held = curve.weight > 0
            found.append((m, curve, held))
    if found:
        yield _calibration(found)


def _calibration(found: list[tuple[TaskScores, Any, Any]]) -> Chart:
    points = [(m, c.prob_pred[h], c.prob_true[h], c.weight[h]) for m, c, h in found]
    both = np.concatenate([v for _, p, y, _ in points for v in (p, y)])
    title, note = (
        "Reliability",
        f"{BINS} bins of as many rows each. On the dotted line predictions are right; below: too high.",
    )
    key = [ColourKey(m.number, m.name) for m, *_ in points]
    says = "Predicted over observed, by bin: " + "; ".join(
        _span(m.name, p, y, len(points) > 1) for m, p, y, _ in points
    )
    labels = "mean predicted probability", "share of positives"
    readings = [(float(p), f"{m.name}: predicted {share(float(p), 2)}, observed {share(float(y), 2)}, {w:,.0f} rows")
                for m, ps, ys, ws in points for p, y, w in zip(ps, ys, ws, strict=True)]  # fmt: skip
    readings.sort()
    top = float(both.max()) * 1.05 or 1.0
    plain = Chart(title, note, f"{says}.", linear(0, top, percent=True), linear(0, top, percent=True), *labels, [
        Rule([0, top], [0, top], "predicted = observed"),
        *(ChartLine(p, y, m.number, range(len(p))) for m, p, y, _ in points),
    ], key, readings=readings)  # fmt: skip
    some = both[both > 0]
    if not len(some):
        return plain
    low, high = float(some.min()) * 0.85, float(some.max()) * 1.15
    ends = logarithmic(low, high, percent=True)
    log = Chart(title, note, f"{says}.", ends, ends, *labels, [
        Rule([low, high], [low, high], "predicted = observed"),
        *(ChartLine(p, y, m.number, range(len(p))) for m, p, y, _ in points),
    ], key, readings=[(x, text) for x, text in readings if x > 0])  # fmt: skip
    first, second = (log, plain) if rare([m for m, *_ in points]) else (plain, log)
    first.other = second
    return first


def _span(name: str, p: Any, y: Any, several: bool) -> str:
    """How far predictions are off, from bin to bin."""
    some = (y > 0) & (p > 0)
    if not some.any():
        return f"{name}: none" if several else "none"
    ratio = p[some] / y[some]
    text = f"{fixed(float(ratio.min()), 2)} to {fixed(float(ratio.max()), 2)}"
    return f"{name} {text}" if several else text


def _distribution(model: TaskScores) -> Chart:
    """Scores of negatives and positives, each as shares; on a logarithmic axis where positives are few."""
    counts = model.state.counts
    held = np.flatnonzero(counts.any(axis=0))
    scores, n = model.state.thresholds(held), counts[:, held].astype(float)
    order = np.argsort(scores)
    below = np.cumsum(n.sum(axis=0)[order]) / n.sum()
    ends = np.searchsorted(below, [0.001, 0.999]).clip(max=len(below) - 1)
    low, high = (float(v) for v in scores[order][ends])
    high = high if high > low else low + (abs(low) or 1.0)
    log = rare([model]) and low > 0
    edges = (
        np.exp(np.linspace(math.log(low), math.log(high), SHADES + 1)) if log else np.linspace(low, high, SHADES + 1)
    )
    place = np.clip(np.searchsorted(edges, scores, side="right") - 1, 0, SHADES - 1)
    shares = [np.bincount(place, w / max(w.sum(), 1.0), SHADES) for w in n]
    steps = [np.r_[s, s[-1]] for s in shares]
    top = max(float(s.max()) for s in shares) * 1.08 or 1.0
    probable = isinstance(model.state, ScoreHistogram) and model.state.scale == "probability"
    x: ChartAxis = (logarithmic if log else linear)(low, high, percent=probable)
    middles = [float(scores[order][np.searchsorted(np.cumsum(w[order]) / max(w.sum(), 1.0), 0.5).clip(max=len(order) - 1)])
               for w in n]  # fmt: skip
    spelled = [share(v, 2) if probable else f"{v:.4g}" for v in middles]
    return Chart(
        f"Scores of {model.name}",
        "Filled: negatives. Line: positives. The outermost tenth of a percent lies in the last steps.",
        f"Medians: negatives {spelled[0]}, positives {spelled[1]}.",
        x, linear(0, top, percent=True), "score", "share of each class",
        [Area(edges, steps[0], model.number), ChartLine(edges, steps[1], model.number, steps=True)],
        [ColourKey(model.number, model.name)],
    )  # fmt: skip
