"""The pages of the guide that are generated from the metrics and from the tables of other libraries."""

from __future__ import annotations

import ast
import functools
import textwrap
from pathlib import Path
from types import ModuleType
from typing import Any

import streammetrics as sm
from streammetrics.guide.tables import PEERS, load_lines
from streammetrics.metrics.families import FAMILIES

INDEX = """\
# Metrics by family

This page is for users who want to see all metrics at a glance.
It lists the metrics of the seven families. The page of a family gives the formula and the
[certified bounds](glossary.md#certified-bound) of each metric, and the names of these metrics in other libraries.
To find the metrics that answer a question, see [choose](choose.md).

Each family is a module. `dir()` lists its metrics:

```pycon
>>> import streammetrics as sm
>>> dir(sm.groups)[:4]
['GroupAUC', 'GroupAveragePrecision', 'GroupCalibrationError', 'GroupLogLoss']
>>> metrics = sm.MetricCollection(sm.groups.GroupAUC(), sm.AUC())
>>> metrics.update([1, 0, 1, 0], [0.8, 0.3, 0.2, 0.1], group=["ann", "ann", "bob", "bob"]).compute()
{'group_auc': 1.0, 'auc': 0.75}

```

All metrics work in slices and windows, and can be merged and saved; most accept `sample_weight`. Metrics that need the
same [state](glossary.md#state) share it, so that a further metric costs little.

| command | output |
|---|---|
| `streammetrics catalog` | all metrics, with formula, bounds and cost |
| `streammetrics catalog auc` | the definition, the settings, the cost and the source of one metric |
| `streammetrics catalog --from sklearn roc_auc_score` | the equivalent of a metric from another library |

## All metrics

| page | metrics |
|---|---|
"""

PAGE = """\
# {title}

{about}
This page is for users looking for one of these {number} metrics, or for the equivalent of a metric from another library.

```pycon
{example}
```
{note}
Each table lists the metrics of one kind of [state](glossary.md#state). In a `MetricCollection`, metrics whose settings
need the same state share it. The column of bounds describes the [certified bounds](glossary.md#certified-bound) that
`bounds()` returns. A value is "exact" if rounding is its only error; the text after the colon describes the rounding.
`streammetrics catalog NAME` prints the definition, the settings and the cost of a metric.
"""

EXAMPLES = {
    "decisions": """\
>>> import streammetrics as sm
>>> metrics = sm.MetricCollection(sm.Precision(), sm.Recall(), sm.F1())
>>> metrics.update([0, 1, 1, 0], [0.2, 0.7, 0.4, 0.6]).compute()
{'precision': 0.5, 'recall': 0.5, 'f1': 0.5}
>>> sm.F1(num_classes=3).update([0, 1, 2], [0, 2, 2]).compute()
0.5555555555555556
""",
    "probabilities": """\
>>> import streammetrics as sm
>>> metrics = sm.MetricCollection(sm.LogLoss(), sm.BrierScore(), sm.Calibration())
>>> values = metrics.update([0, 1, 1, 0], [0.2, 0.7, 0.4, 0.6]).compute()
>>> {name: round(value, 4) for name, value in values.items()}
{'log_loss': 0.6031, 'brier_score': 0.2125, 'calibration': 0.95}
""",
    "curves": """\
>>> import streammetrics as sm
>>> metrics = sm.MetricCollection(sm.AUC(), sm.AveragePrecision(), sm.KS())
>>> values = metrics.update([0, 1, 1, 0], [0.2, 0.7, 0.4, 0.6]).compute()
>>> {name: round(value, 4) for name, value in values.items()}
{'auc': 0.75, 'average_precision': 0.8333, 'ks': 0.5}
""",
    "groups": """\
>>> import streammetrics as sm
>>> metric = sm.GroupAUC().update([1, 0, 1, 0], [0.8, 0.3, 0.1, 0.2], group=["ann", "ann", "bob", "bob"])
>>> metric.compute()
0.5
""",
    "regression": """\
>>> import streammetrics as sm
>>> metrics = sm.MetricCollection(sm.MAE(), sm.RMSE(), sm.R2())
>>> metrics.update([1.0, 2.0, 3.0, 6.0], [1.0, 3.0, 3.0, 7.0]).compute()
{'mae': 0.5, 'rmse': 0.7071067811865476, 'r2': 0.8571428571428571}
""",
    "ranking": """\
>>> import streammetrics as sm
>>> metrics = sm.MetricCollection(sm.NDCG(k=2), sm.MeanReciprocalRank(), sm.HitRate(k=1))
>>> values = metrics.update([1, 0, 0, 1], [0.8, 0.3, 0.6, 0.2], query=["shoes", "shoes", "hats", "hats"]).compute()
>>> {name: round(value, 4) for name, value in values.items()}
{'ndcg@2': 0.8155, 'mrr': 0.75, 'hit_rate@1': 0.5}
>>> # Lists of recommended items, best first, and all relevant items of each user:
>>> rows = sm.ranked_lists([["a", "b", "c"], ["d", "e"]], [{"b", "x"}, {"d"}])
>>> sm.RecallAtK(k=20).update(rows).compute()
0.75
""",
    "values": """\
>>> import streammetrics as sm
>>> metrics = sm.MetricCollection(sm.Sum(), sm.Quantile(q=0.5), sm.Max())
>>> metrics.update(value=[5.0, 7.0, 12.0]).compute()
{'sum': 24.0, 'quantile@0.5': 7.0, 'max': 12.0}
>>> round(sm.DistinctCount().update(["ann", "bob", "ann"]).compute())
2
""",
}
"""The example of each family. A test runs it."""

PLOTS = """
Curves have a method `.plot()`: see [tour](tour.md#draw-a-chart).
"""
"""The note of the families that contain curves."""

HEADINGS = {
    ("decisions", "decisions"): "Evaluate decisions or predicted classes",
    ("decisions", "found_pairs"): "Compare two labelings or clusterings",
    ("decisions", "label_rows"): "Evaluate several labels of each row",
    ("decisions", "group_decisions"): "Compare groups for fairness",
    ("decisions", "row_terms"): "Measure the agreement of raters",
    ("decisions", "class_rows"): "Evaluate the classes with the highest scores",
    ("probabilities", "score_sums"): "Measure losses, rates and skill",
    ("probabilities", "score_bins"): "Measure calibration in bins",
    ("probabilities", "scores"): "Measure calibration from a histogram of scores",
    ("probabilities", "row_terms"): "Compare probabilities, scores or vectors row by row",
    ("curves", "scores"): "Measure the ranking of rows, plot curves, and find thresholds",
    ("curves", "uplift_scores"): "Measure the uplift of a treatment",
    ("groups", "group_rows"): "Rank rows within each group",
    ("groups", "group_sums"): "Measure losses and calibration of each group",
    ("regression", "row_terms"): "Evaluate intervals, quantiles and forecasts",
    ("regression", "moments"): "Measure correlation and goodness of fit",
    ("regression", "regression_sums"): "Measure errors and deviances",
    ("regression", "value_buckets"): "Measure quantiles of errors",
    ("regression", "joint_buckets"): "Measure rank correlation",
    ("regression", "extremes"): "Find the largest errors",
    ("ranking", "subtopic_sums"): "Measure diversity",
    ("ranking", "ranking_sums"): "Evaluate ranked lists",
    ("ranking", "listed_keys"): "Measure how recommendations cover the catalogue",
    ("values", "column_products"): "Correlate several columns",
    ("values", "moments"): "Compute totals, means and moments",
    ("values", "distinct"): "Count distinct keys",
    ("values", "key_sample"): "Count distinct keys of several arms",
    ("values", "key_counts"): "Count rows by key or bin",
    ("values", "row_terms"): "Compute geometric and harmonic means",
    ("values", "key_sketch"): "Look up the frequency of a key",
    ("values", "extremes"): "Find the smallest and the largest value",
    ("values", "unit_sums"): "Compute an outcome per user",
    ("values", "value_buckets"): "Compute quantiles",
}
"""The heading of the table of each family and state."""

STATES = {
    "class_rows": "exact sums over rows that have a score for every class",
    "column_products": "exact sums of the columns and of their products",
    "decisions": "the number and the weight of rows by true class and decision",
    "distinct": "the registers of HyperLogLog, an algorithm that estimates the number of distinct keys",
    "extremes": "the smallest and the largest of the values or errors",
    "found_pairs": "the number and the weight of the rows of each pair of classes, which need not be known in advance",
    "group_decisions": "a confusion matrix of each group",
    "group_rows": "the rows of each group, until `seal()` reduces them to sums",
    "group_sums": "exact sums for each group",
    "joint_buckets": "the targets and predictions of all rows, or counts of rows in buckets if there are many rows",
    "key_counts": "the number and the weight of the rows of each key",
    "key_sample": "the hashes of a sample of keys",
    "key_sketch": "a count-min sketch, which estimates the frequencies of keys in constant memory",
    "label_rows": "exact sums over rows that have a score for every label",
    "listed_keys": "the number of lists in which each item occurs",
    "moments": "exact sums of one or two columns, of their powers and of their product",
    "ranking_sums": "exact sums over queries",
    "regression_sums": "exact sums of losses over rows",
    "row_terms": "the terms of a metric's formula, each summed exactly over the rows",
    "score_bins": "the number of negatives and positives and the exact sum of probabilities in each bin",
    "score_sums": "exact sums of losses, labels and probabilities over the rows",
    "scores": "the scores of all positives and negatives, or histograms of these scores if there are many",
    "subtopic_sums": "exact sums over queries",
    "unit_sums": "exact sums of outcomes and of exposures",
    "uplift_scores": "all scores by outcome and treatment, or histograms of these scores if there are many",
    "value_buckets": "a histogram of values, or of errors",
}
"""The content of each state."""

SYMBOLS = {
    ("curves", "scores"): "P: number of positives, N: number of negatives",
    ("groups", "group_sums"): "y: label, p: probability, w: weight",
    (
        "ranking",
        "ranking_sums",
    ): "i: rank, k: cut-off, R: relevant documents, hits@k: relevant documents among the first k",
    ("regression", "row_terms"): "y: target, p: prediction, w: weight",
    ("regression", "moments"): "y: target, p: prediction, w: weight",
    ("regression", "regression_sums"): "y: target, p: prediction, w: weight",
    ("regression", "value_buckets"): "y: target, p: prediction, w: weight",
    ("regression", "joint_buckets"): "y: target, p: prediction",
    ("regression", "extremes"): "y: target, p: prediction",
    ("values", "moments"): "v: value, w: weight",
    ("values", "key_counts"): "v: value, w: weight",
    ("values", "row_terms"): "v: value, w: weight",
    ("values", "extremes"): "v: value",
}
"""The symbols of the formulas of each family and state. The head of the column of formulas defines them."""


@functools.cache
def pages() -> dict[str, str]:
    """Return the text of every generated page by name."""
    return {"metrics": index(), **{name_of(family): page(family) for family in FAMILIES}}


def names() -> list[str]:
    """Return the names of the pages, without generating the pages."""
    return ["metrics", *map(name_of, FAMILIES)]


def name_of(family: ModuleType) -> str:
    return family.__name__.rpartition(".")[2]


def index() -> str:
    names = map(name_of, FAMILIES)
    rows = [f"| [{name}]({name}.md) | {', '.join(f'`{m}`' for m in dir(getattr(sm, name)))} |" for name in names]
    return INDEX + "\n".join(rows) + "\n"


def page(family: ModuleType) -> str:
    """Return the page of a family: a table for each state, and a table of the names in other libraries."""
    title, _, about = (family.__doc__ or "").partition(": ")
    metrics = [getattr(family, name) for name in dir(family)]
    text = PAGE.format(
        title=title,
        about=about[:1].upper() + about[1:],
        number=len(metrics),
        example=EXAMPLES[name_of(family)],
        note=PLOTS if name_of(family) in ("curves", "probabilities") else "",
    )
    by_state: dict[str, list[Any]] = {}
    for metric in metrics:
        by_state.setdefault(state_of(metric), []).append(metric)
    for state, group in sorted(by_state.items(), key=lambda item: -len(item[1])):
        text += f"\n## {HEADINGS[name_of(family), state]}\n\n"
        text += table(group, state, SYMBOLS.get((name_of(family), state), ""))
    names_elsewhere = [(metric.__name__, elsewhere(metric)) for metric in metrics]
    if any(names for _, names in names_elsewhere):
        text += "\n## Names in other libraries\n\n| streammetrics | other libraries |\n|---|---|\n"
        text += "".join(f"| `{name}` | {names} |\n" for name, names in names_elsewhere if names)
    return text


def table(metrics: list[Any], state: str, symbols: str) -> str:
    """Return the table of the metrics of a state, below a sentence about the state."""
    bounds = {metric.about.bound for metric in metrics}
    heads = ["metric", "what it is", f"formula ({symbols})" if symbols else "formula"]
    about = f"The state `{state}` contains {STATES[state]}."
    sentence = exactness(bounds.pop()) if len(bounds) == 1 else ""
    if sentence:
        about += f" {sentence}"
    else:
        heads.append("bounds")
    text = "\n".join(textwrap.wrap(about, 120)) + "\n\n"
    rows = [heads, ["---"] * len(heads)]
    for metric in metrics:
        row = [
            f"`{metric.__name__}`",
            (metric.__doc__ or "").partition("\n")[0],
            metric.about.formula,
            metric.about.bound,
        ]
        rows.append([cell.replace("|", "\\|") for cell in row[: len(heads)]])
    return text + "".join(f"| {' | '.join(row)} |\n" for row in rows).replace("| --- ", "|---").replace("--- |", "---|")


def exactness(bound: str) -> str:
    """Return a sentence about the rounding of values that are otherwise exact, or "" for other values."""
    kind, _, rounding = bound.partition(": ")
    if kind not in ("exact", "exact except for rounding"):
        return ""
    if not rounding:
        return "Each value is exact."
    if rounding == "rounded once":
        return "Each value is computed exactly and then rounded once."
    if rounding.startswith("computed from"):
        return f"Each value is exact except for rounding: it is {rounding.replace(', ', ' and ')}."
    return f"Each value is exact except for rounding: {rounding}."


def state_of(metric: Any) -> str:
    tag: str = metric(**metric.about.example).make_state().tag
    return tag


def elsewhere(metric: Any) -> str:
    """Return the names of the equivalents of a metric, by library."""
    found: dict[str, dict[str, None]] = {}
    for line in load_lines():
        if line.ours and metric.__name__ in named(line.ours):
            found.setdefault(line.peer, {})[line.name] = None
    return "; ".join(f"{PEERS[peer]} {', '.join(f'`{name}`' for name in names)}" for peer, names in found.items())


@functools.cache  # every line is compared with every metric
def named(ours: str) -> set[str]:
    return {node.id for node in ast.walk(ast.parse(ours, mode="eval")) if isinstance(node, ast.Name)}


def write() -> None:
    """Write all pages to the guide."""
    for name, text in pages().items():
        (Path(sm.__file__).parent / "guide" / f"{name}.md").write_text(text, encoding="utf-8")
