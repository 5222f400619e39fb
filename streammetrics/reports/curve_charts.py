"""Charts for binary classifiers: ROC, precision-recall, reliability, and score distributions.

The charts need only the histograms of scores in the metric states, not the rows of data.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..metrics.curves.areas import AUC, AveragePrecision
from ..metrics.curves.points import GainCurve, PRCurve, ROCCurve
from ..metrics.probabilities.calibration import CalibrationCurve
from ..numerics.exact import to_float
from ..statistics.by_label import ByLabel, TopLabel
from ..statistics.scores import ScoreHistogram, ScoresByLabel
from .charts import Area, Chart, ChartAxis, ChartLine, ColourKey, Rule, linear_axis, logarithmic_axis
from .numbers import format_fixed, format_share
from .task_charts import COLOURS, ChartSource, build_task_charts, list_entries

__all__ = ["CHARTS_NOTE", "TaskScores", "TopRowsTable", "build_charts", "build_top_rows", "collect_task_scores"]

CHARTS_NOTE = "Point at a picture, or focus it and use the arrow keys, to read its values."
BINS = 20
SHADES = 64  # number of bars in a histogram of scores
# Charts have logarithmic axes if the share of positives is smaller than this. On linear axes, the interesting part of
# the curve would be too small to see.
RARE = 0.05
CURVE_POINTS = 97  # number of points of a curve on a logarithmic axis
# The table of the top rows has a line for each of these shares of rows, for example the 1 % with the highest scores.
SHOWN = (0.001, 0.01, 0.05, 0.1, 0.2, 0.5)
MARKED = 5  # number of markers on a line


class TaskScores(NamedTuple):
    """The score histograms of one task (for example, a model), with its name and color index.

    For multiclass or multilabel tasks, the histograms of all classes or labels are added up, and `pooled` is "classes"
    or "labels". Otherwise `pooled` is empty.
    """

    name: str
    number: int
    state: ScoresByLabel
    pooled: str = ""


class TopRowsTable(NamedTuple):
    """Recall and precision when only the highest-scored rows are predicted positive, for several models.

    Parameters
    ----------
    names : list of ColourKey
        The models.
    rows : list of (share, recalls, precisions)
        A share of rows, such as "1 %", and the recall and the precision of every model at this share, as strings.
    """

    names: list[ColourKey]
    rows: list[tuple[str, list[str], list[str]]]


def collect_task_scores(source: ChartSource) -> list[TaskScores]:
    """Return the score histograms of all tasks; tasks without a score histogram are left out."""
    states: dict[str, tuple[ScoresByLabel, str]] = {}
    for name, _, (state, *_), *_ in list_entries(source):
        pooled = ""
        if isinstance(state, ByLabel) and isinstance(state, ScoreHistogram):
            pooled = "labels" if state.num_labels else "classes"
            state = state.pool_classes()
        if isinstance(state, ScoresByLabel) and not isinstance(state, TopLabel) and state.facts()["rows"]:
            states.setdefault(name.rpartition("/")[0] or "all rows", (state, pooled))
    return [TaskScores(name, i % COLOURS, *state) for i, (name, state) in enumerate(states.items())]


def build_charts(source: ChartSource) -> list[Chart]:
    """Return all charts of a collection of metrics, or of the arms of an experiment."""
    tasks = select_drawable(source)
    charts: list[Chart] = []
    if tasks:
        charts += _build_curves(tasks)
        # Leave out multiclass tasks, because a reliability diagram of all classes together would say little. For them,
        # `build_task_charts` draws a diagram of the class with the highest probability.
        single = [m for m in tasks if m.pooled != "classes"]
        charts += _build_reliability_charts(single)
        charts += [_build_score_chart(m) for m in single]
        if several := next((m.pooled for m in tasks if m.pooled), ""):
            how = f" All {several} together{', each against the rest' if several == 'classes' else ''} (micro)."
            for chart in charts:
                chart.note += how
    return [*charts, *build_task_charts(source)]


def select_drawable(source: ChartSource) -> list[TaskScores]:
    """Return the tasks that have positives and negatives; other tasks have no ROC curve."""
    return [m for m in collect_task_scores(source) if AUC().reading(m.state).reason is None]


def has_rare_positives(tasks: Sequence[TaskScores]) -> bool:
    """Return whether the share of positives in any task is so small that charts need logarithmic axes."""
    return any(float(m.state.support()) < RARE * _total_weight(m.state) for m in tasks)


def _total_weight(state: ScoresByLabel) -> float:
    return to_float(state.facts()["weight"]) or 1.0


def _build_curves(tasks: list[TaskScores]) -> Iterator[Chart]:
    yield _build_roc_chart(tasks)
    yield _build_pr_chart(tasks)


def _place_markers(n: int) -> list[int]:
    """Return the evenly spaced indices of the points to mark on a line of `n` points."""
    return sorted({round(float(i)) for i in np.linspace(0, n - 1, MARKED + 2)[1:-1]}) if n > 2 else []


def _build_key(tasks: Sequence[TaskScores], metric: Any, name: str) -> list[ColourKey]:
    return [ColourKey(m.number, f"{m.name} {name} {format_fixed(metric.reading(m.state).value, 4)}") for m in tasks]


def _format_shares(names: Sequence[str], values: Sequence[float]) -> str:
    """Return a share for each model as text, such as "a 5.3 %, b 7.7 %".

    For a single model, the text is the share without the name.
    """
    if len(names) == 1:
        return format_share(values[0])
    return ", ".join(f"{n} {format_share(v)}" for n, v in zip(names, values, strict=True))


def _build_roc_chart(tasks: list[TaskScores]) -> Chart:
    curves = [ROCCurve(tolerance=0.0).reading(m.state).value for m in tasks]
    names = [m.name for m in tasks]
    key = _build_key(tasks, AUC(), "AUC")
    at = [float(np.interp(0.01, c.fpr, c.tpr)) for c in curves]
    summary = f"At a false positive rate of 1\u202f%, the true positive rate is: {_format_shares(names, at)}."
    # The curve begins at the false positive rate that corresponds to about ten negatives. With fewer negatives, it
    # would be mostly noise.
    few = min(_total_weight(m.state) - float(m.state.support()) for m in tasks)
    low = max(10.0 ** math.floor(math.log10(10.0 / max(few, 100.0))), 1e-4)
    x = np.exp(np.linspace(math.log(low), 0.0, CURVE_POINTS))
    lines = [(m, x, np.interp(x, c.fpr, c.tpr)) for m, c in zip(tasks, curves, strict=True)]
    floor = min((float(y[y > 0].min()) for _, _, y in lines if (y > 0).any()), default=low)
    down = max(10.0 ** math.floor(math.log10(floor)), 1e-4)
    note = "Above each threshold; dotted: chance."
    both = logarithmic_axis(low, 1.0, percent=True), logarithmic_axis(down, 1.0, percent=True)
    labels = "false positive rate", "true positive rate"
    log = Chart("ROC", note, summary, *both, *labels, [
        Rule([max(low, down), 1.0], [max(low, down), 1.0], "chance"),
        *(ChartLine(x, y, m.number, _place_markers(len(x))) for m, x, y in lines),
    ], key, readings=[_format_reading(float(v), names, [y[i] for _, _, y in lines])
                      for i, v in enumerate(x) if i % 3 == 0])  # fmt: skip
    grid = np.linspace(0.0, 1.0, CURVE_POINTS)
    straight = [(m, np.interp(grid, c.fpr, c.tpr)) for m, c in zip(tasks, curves, strict=True)]
    plain = Chart("ROC", note, summary, linear_axis(0, 1, percent=True), linear_axis(0, 1, percent=True), *labels, [
        Rule([0, 1], [0, 1], "chance"),
        *(ChartLine(c.fpr, c.tpr, m.number) for m, c in ((m, ROCCurve().reading(m.state).value) for m in tasks)),
    ], key, readings=[_format_reading(float(v), names, [y[i] for _, y in straight])
                      for i, v in enumerate(grid) if i % 3 == 0])  # fmt: skip
    first, second = (log, plain) if has_rare_positives(tasks) else (plain, log)
    first.alternative = second
    return first


def _format_reading(x: float, names: Sequence[str], values: Sequence[float]) -> tuple[float, str]:
    return x, f"false positive rate {format_share(x)}: true positive rate {_format_shares(names, values)}"


def _build_pr_chart(tasks: list[TaskScores]) -> Chart:
    curves = [PRCurve(tolerance=0.0).reading(m.state).value for m in tasks]
    names = [m.name for m in tasks]
    bases = [float(c.precision[0]) for c in curves]
    base, alike = min(bases), max(bases) <= 1.001 * min(bases)
    key = _build_key(tasks, AveragePrecision(), "AP")
    tenth = [float(np.interp(0.1, c.recall[::-1], c.precision[::-1])) for c in curves]
    summary = f"At a recall of 10\u202f%, the precision is: {_format_shares(names, tenth)}."
    # The curve begins at the recall that corresponds to about 30 positives. With fewer positives, the precision would
    # be mostly noise.
    few = min(float(m.state.support()) for m in tasks)
    low = max(30.0 / max(few, 300.0), 1e-3)
    x = np.exp(np.linspace(math.log(low), 0.0, CURVE_POINTS))
    lines = [(m, np.interp(x, c.recall[::-1], c.precision[::-1])) for m, c in zip(tasks, curves, strict=True)]
    known_y = np.concatenate([y for _, y in lines])
    top = min(1.0, float(np.nanmax(known_y)) * 1.15)
    down = base * 0.8
    note = (
        "Dotted: precision of all rows. The lift is the precision divided by it."
        if alike
        else "Recall 100\u202f% includes all rows."
    )
    labels = "recall", "precision"
    lifts = tuple((base * k, f"×{k}") for k in (1, 2, 5, 10, 20, 50, 100, 200, 500) if alike and down < base * k <= top)
    log = Chart("Precision and recall", note, summary, logarithmic_axis(low, 1.0, percent=True),
                logarithmic_axis(down, top, percent=True), *labels, [
        *([Rule([low, 1.0], [base, base], "all rows")] if alike else []),
        *(ChartLine(x, y, m.number, _place_markers(len(x))) for m, y in lines),
    ], key, right=lifts, rightlabel="lift" if lifts else "",
        readings=[(float(v), f"recall {format_share(v)}: precision {_format_shares(names, [y[i] for _, y in lines])}")
                  for i, v in enumerate(x) if i % 3 == 0])  # fmt: skip
    least = max(0.02, low)
    straight = [PRCurve().reading(m.state).value for m in tasks]
    most = max(float(np.nanmax(c.precision[c.recall >= least], initial=0.0)) for c in straight) * 1.1
    plain = Chart("Precision and recall", note, summary, linear_axis(0, 1, percent=True),
                  linear_axis(0, min(1.0, most) or 1.0, percent=True), *labels, [
        *([Rule([0.0, 1.0], [base, base], "all rows")] if alike else []),
        *(ChartLine(c.recall[::-1], c.precision[::-1], m.number) for m, c in zip(tasks, straight, strict=True)),
    ], key)  # fmt: skip
    first, second = (log, plain) if has_rare_positives(tasks) else (plain, log)
    first.alternative = second
    return first


def build_top_rows(source: ChartSource) -> TopRowsTable | None:
    """Return a table of recall and precision for several shares of the highest-scored rows.

    Return None if no task has positives and negatives.
    """
    tasks = select_drawable(source)
    if not tasks:
        return None
    curves = [GainCurve(tolerance=0.0).reading(m.state).value for m in tasks]
    base = [float(m.state.support()) / _total_weight(m.state) for m in tasks]
    rows = []
    for part in SHOWN:
        recalls = [float(np.interp(part, c.fraction, c.gain)) for c in curves]
        rows.append((format_share(part, 1 if part < 0.01 else 0), [format_share(v) for v in recalls],
                     [format_share(v * b / part) for v, b in zip(recalls, base, strict=True)]))  # fmt: skip
    return TopRowsTable([ColourKey(m.number, m.name) for m in tasks], rows)


def _build_reliability_charts(tasks: list[TaskScores]) -> Iterator[Chart]:
    curves = []
    for m in tasks:
        if isinstance(m.state, ScoreHistogram) and m.state.scale != "real":
            curve = CalibrationCurve(n_bins=BINS, strategy="quantile", scale=m.state.scale).reading(m.state).value
            occupied = curve.weight > 0
            curves.append((m, curve, occupied))
    if curves:
        yield _build_reliability_chart(curves)


def _build_reliability_chart(curves: list[tuple[TaskScores, Any, Any]]) -> Chart:
    points = [(m, c.prob_pred[h], c.prob_true[h], c.weight[h]) for m, c, h in curves]
    both = np.concatenate([v for _, p, y, _ in points for v in (p, y)])
    title, note = (
        "Reliability",
        f"{BINS} bins of equal numbers of rows. Dotted: calibrated; below the line, predictions are too high.",
    )
    key = [ColourKey(m.number, m.name) for m, *_ in points]
    summary = "Ratio of predicted to observed, by bin: " + "; ".join(
        _format_ratio_range(m.name, p, y, len(points) > 1) for m, p, y, _ in points
    )
    labels = "mean predicted probability", "share of positives"
    readings = sorted(
        (p, f"{m.name}: predicted {format_share(p, 2)}, observed {format_share(y, 2)}, {w:,.0f} rows")
        for m, *columns in points
        for p, y, w in zip(*(c.tolist() for c in columns), strict=True)
    )
    top = float(both.max()) * 1.05 or 1.0
    axis = linear_axis(0, top, percent=True)
    plain = Chart(title, note, f"{summary}.", axis, axis, *labels, [
        Rule([0, top], [0, top], "predicted = observed"),
        *(ChartLine(p, y, m.number, range(len(p))) for m, p, y, _ in points),
    ], key, readings=readings)  # fmt: skip
    some = both[both > 0]
    if not len(some):
        return plain
    low, high = float(some.min()) * 0.85, float(some.max()) * 1.15
    ends = logarithmic_axis(low, high, percent=True)
    log = Chart(title, note, f"{summary}.", ends, ends, *labels, [
        Rule([low, high], [low, high], "predicted = observed"),
        *(ChartLine(p, y, m.number, range(len(p))) for m, p, y, _ in points),
    ], key, readings=[(x, text) for x, text in readings if x > 0])  # fmt: skip
    first, second = (log, plain) if has_rare_positives([m for m, *_ in points]) else (plain, log)
    first.alternative = second
    return first


def _format_ratio_range(name: str, p: Any, y: Any, several: bool) -> str:
    """Return the range, over all bins, of the ratio of predicted (`p`) to observed (`y`) rates, such as "0.95 to 1.08".

    The text begins with the name of the model if there are several models.
    """
    some = (y > 0) & (p > 0)
    if not some.any():
        return f"{name}: none" if several else "none"
    ratio = p[some] / y[some]
    text = f"{format_fixed(float(ratio.min()), 2)} to {format_fixed(float(ratio.max()), 2)}"
    return f"{name} {text}" if several else text


def _build_score_chart(model: TaskScores) -> Chart:
    """Return a histogram of the scores of negatives and positives. Its score axis is logarithmic if positives are rare."""
    counts = model.state.counts
    occupied = np.flatnonzero(counts.any(axis=0))
    scores, n = model.state.thresholds(occupied), counts[:, occupied].astype(float)
    order = np.argsort(scores)
    below = np.cumsum(n.sum(axis=0)[order]) / n.sum()
    ends = np.searchsorted(below, [0.001, 0.999]).clip(max=len(below) - 1)
    low, high = (float(v) for v in scores[order][ends])
    high = high if high > low else low + (abs(low) or 1.0)
    log = has_rare_positives([model]) and low > 0
    edges = (
        np.exp(np.linspace(math.log(low), math.log(high), SHADES + 1)) if log else np.linspace(low, high, SHADES + 1)
    )
    place = np.clip(np.searchsorted(edges, scores, side="right") - 1, 0, SHADES - 1)
    shares = [np.bincount(place, w / max(w.sum(), 1.0), SHADES) for w in n]
    steps = [np.r_[s, s[-1]] for s in shares]
    top = max(float(s.max()) for s in shares) * 1.08 or 1.0
    probable = isinstance(model.state, ScoreHistogram) and model.state.scale == "probability"
    x: ChartAxis = (logarithmic_axis if log else linear_axis)(low, high, percent=probable)
    middles = [float(scores[order][np.searchsorted(np.cumsum(w[order]) / max(w.sum(), 1.0), 0.5).clip(max=len(order) - 1)])
               for w in n]  # fmt: skip
    spelled = [format_share(v, 2) if probable else f"{v:.4g}" for v in middles]
    return Chart(
        f"Scores of {model.name}",
        "Filled: negatives. Line: positives. The first and last step include the outermost 0.1\u202f%.",
        f"Medians: negatives {spelled[0]}, positives {spelled[1]}.",
        x, linear_axis(0, top, percent=True), "score", "share of each class",
        [Area(edges, steps[0], model.number), ChartLine(edges, steps[1], model.number, steps=True)],
        [ColourKey(model.number, model.name)],
    )  # fmt: skip
