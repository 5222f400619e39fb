"""One line for every metric of decisions beside those of `oracles`: what it must equal, from outside.

`DECISIONS` is of two classes, `LABELINGS` of two labelings of the same rows, `FAIRNESS` of groups, `RATERS` of many
raters. What is of several classes and of labels goes to `oracles_classes.SEVERAL`.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from typing import Any

import numpy as np
from oracles import Oracle
from oracles_classes import SEVERAL, by_cells, decided, one_hot, quiet
from oracles_classes import Oracle as Several
from scipy import stats
from scipy.optimize import linear_sum_assignment
from sklearn import metrics as sk
from sklearn.metrics.cluster import contingency_matrix, expected_mutual_information, pair_confusion_matrix

Array = Any


def cells(y: Array, d: Array, w: Array) -> Array:
    """The confusion matrix of two classes, as weights: tn, fp, fn, tp."""
    return sk.confusion_matrix(y, d, labels=[0, 1], sample_weight=w).astype(float).ravel()


def of_cells(value: Callable[..., Any], **settings: Any) -> list[Oracle]:
    """A function of the cells at the threshold 0.5, and at another."""
    return [
        Oracle(settings | {"threshold": t}, lambda y, s, w, t=t: float(value(*cells(y, s >= t, w))))
        for t in (0.5, 0.25)
    ]


def geometric(y: Array, d: Array, w: Array) -> float:
    """The geometric mean of the recalls of the classes that there are."""
    there = np.unique(y[w > 0])
    recalls = sk.recall_score(y, d, labels=there, average=None, sample_weight=w, zero_division=0)
    return float(np.prod(recalls) ** (1 / len(there)))


RATIOS: dict[str, Callable[..., Any]] = {
    "true_positives": lambda tn, fp, fn, tp: tp,
    "false_positives": lambda tn, fp, fn, tp: fp,
    "true_negatives": lambda tn, fp, fn, tp: tn,
    "false_negatives": lambda tn, fp, fn, tp: fn,
    "negative_predictive_value": lambda tn, fp, fn, tp: quiet(tn, tn + fn),
    "false_discovery_rate": lambda tn, fp, fn, tp: quiet(fp, tp + fp),
    "false_omission_rate": lambda tn, fp, fn, tp: quiet(fn, tn + fn),
    "false_negative_rate": lambda tn, fp, fn, tp: quiet(fn, tp + fn),
    "prevalence": lambda tn, fp, fn, tp: quiet(tp + fn, tn + fp + fn + tp),
    "selection_rate": lambda tn, fp, fn, tp: quiet(tp + fp, tn + fp + fn + tp),
    "informedness": lambda tn, fp, fn, tp: quiet(tp, tp + fn) + quiet(tn, tn + fp) - 1,
    "markedness": lambda tn, fp, fn, tp: quiet(tp, tp + fp) + quiet(tn, tn + fn) - 1,
    "positive_likelihood_ratio": lambda tn, fp, fn, tp: quiet(quiet(tp, tp + fn), quiet(fp, fp + tn)),
    "negative_likelihood_ratio": lambda tn, fp, fn, tp: quiet(quiet(fn, tp + fn), quiet(tn, fp + tn)),
    "diagnostic_odds_ratio": lambda tn, fp, fn, tp: quiet(tp * tn, fp * fn),
    "fowlkes_mallows": lambda tn, fp, fn, tp: np.sqrt(quiet(tp, tp + fp) * quiet(tp, tp + fn)),
    "prevalence_threshold": lambda tn, fp, fn, tp: quiet(
        np.sqrt(quiet(fp, fp + tn)), np.sqrt(quiet(tp, tp + fn)) + np.sqrt(quiet(fp, fp + tn))
    ),
}
"""Functions of the cells of one class against the rest."""

DECISIONS = {tag: of_cells(value) for tag, value in RATIOS.items()} | {
    "geometric_mean_score": [Oracle({}, lambda y, s, w: geometric(y, s >= 0.5, w))],
}


def of_matrices(value: Callable[..., Array]) -> list[Several]:
    """The same of each class or label, and averaged."""
    return by_cells(lambda c: np.asarray(value(c[:, 0, 0], c[:, 0, 1], c[:, 1, 0], c[:, 1, 1])))


def of_labels(value: Callable[..., float]) -> Callable[[Array, Array, Array], float]:
    """The mean over labels."""
    return lambda y, s, w: float(np.nanmean([value(y[:, k], s[:, k] >= 0.5, w) for k in range(s.shape[1])]))


def top(k: int, of: Callable[..., Any], **more: Any) -> Callable[[Array, Array, Array], Any]:
    """A scikit-learn ratio of the k highest scores of each row."""

    def value(y: Array, s: Array, w: Array) -> Any:
        chosen = np.argsort(np.argsort(-s, axis=1, kind="stable"), axis=1) < k
        return of(one_hot(y, s.shape[1]), chosen.astype(int), sample_weight=w, zero_division=0, **more)

    return value


def rows_of(of: Callable[..., Any], zero: float = 0.0, **more: Any) -> Several:
    """The mean over rows of a scikit-learn ratio of labels."""
    return Several(
        {"average": "samples", "zero_division": zero} | more, decided(of, average="samples", zero_division=zero, **more)
    )


def tops(of: Callable[..., Any]) -> list[Several]:
    return [
        Several({"top_k": k, "average": a, "zero_division": 0.0}, top(k, of, average=a))
        for k in (1, 2)
        for a in ("macro", "micro", None)
    ]


TOGETHER = {
    "geometric_mean_score": (
        [Several({}, lambda y, s, w: geometric(y, s.argmax(axis=1), w))],
        [Several({}, of_labels(geometric))],
    ),
}
MORE: dict[str, tuple[list[Several], list[Several]]] = {tag: (of_matrices(value),) * 2 for tag, value in RATIOS.items()}
"""By tag: for classes, and for labels."""

SETTINGS: dict[str, tuple[list[Several], list[Several]]] = {
    "precision": (
        tops(sk.precision_score),
        [*tops(sk.precision_score), *(rows_of(sk.precision_score, z) for z in (0.0, 1.0, np.nan))],
    ),
    "recall": (
        tops(sk.recall_score),
        [*tops(sk.recall_score), *(rows_of(sk.recall_score, z) for z in (0.0, 1.0, np.nan))],
    ),
    "f1": (tops(sk.f1_score), [*tops(sk.f1_score), *(rows_of(sk.f1_score, z) for z in (0.0, 1.0, np.nan))]),
    "fbeta": (
        [
            Several(
                {"beta": 0.0, "zero_division": 0.0}, decided(sk.fbeta_score, beta=0, average="macro", zero_division=0)
            )
        ],
        [rows_of(sk.fbeta_score, beta=b) for b in (0.0, 0.5, 2.0)],
    ),
    "jaccard": (tops(sk.jaccard_score), [*tops(sk.jaccard_score), *(rows_of(sk.jaccard_score, z) for z in (0.0, 1.0))]),
    "cohen_kappa": (
        [Several({"weights": k}, decided(sk.cohen_kappa_score, weights=k)) for k in ("linear", "quadratic")],
        [],
    ),
    "balanced_accuracy": ([Several({"adjusted": True}, decided(sk.balanced_accuracy_score, adjusted=True))], []),
}
"""Settings of metrics that are compared elsewhere without them."""

for _tag, _lists in (MORE | TOGETHER | SETTINGS).items():
    SEVERAL[_tag] = tuple(old + new for old, new in zip(SEVERAL.get(_tag, ([], [])), _lists, strict=True))


def expected(a: Array, b: Array) -> float:
    """The expected mutual information, as scikit-learn has it inside."""
    return expected_mutual_information(contingency_matrix(a, b, sparse=True), len(a))


def averaged(of: Callable[..., float]) -> list[tuple[dict[str, Any], Callable[..., Any]]]:
    return [
        ({"average_method": m}, lambda a, b, m=m: of(a, b, average_method=m))
        for m in ("arithmetic", "geometric", "min", "max")
    ]


def association(method: str) -> Callable[[Array, Array], float]:
    """scipy's; NaN where one side has one class."""

    def of(a: Array, b: Array) -> float:
        table = contingency_matrix(a, b)
        if min(table.shape) == 1:
            return 0.0 if method == "pearson" else np.nan
        return float(stats.contingency.association(table, method=method))

    return of


def corrected(a: Array, b: Array) -> float:
    """Cramer's V after Bergsma, as torchmetrics types it."""
    table = contingency_matrix(a, b)
    n, (r, c) = len(a), table.shape
    if min(r, c) == 1:
        return np.nan
    phi = max(stats.chi2_contingency(table, correction=False).statistic / n - (r - 1) * (c - 1) / (n - 1), 0)
    r, c = (x - (x - 1) ** 2 / (n - 1) for x in (r, c))
    return float(min(np.sqrt(phi / (min(r, c) - 1)), 1.0)) if min(r, c) > 1 else np.nan


def assigned(a: Array, b: Array) -> float:
    """The cluster accuracy, as torchmetrics types it."""
    table = contingency_matrix(a, b)
    return float(table[linear_sum_assignment(table, maximize=True)].sum() / len(a))


LABELINGS: dict[str, list[tuple[dict[str, Any], Callable[[Array, Array], Any]]]] = {
    "rand_score": [({}, sk.rand_score)],
    "cluster_accuracy": [({}, assigned)],
    "adjusted_rand_score": [({}, sk.adjusted_rand_score)],
    "fowlkes_mallows_index": [({}, sk.fowlkes_mallows_score)],
    "pair_confusion_matrix": [({}, pair_confusion_matrix)],
    "mutual_information": [({}, sk.mutual_info_score)],
    "expected_mutual_information": [({}, expected)],
    "normalized_mutual_information": averaged(sk.normalized_mutual_info_score),
    "adjusted_mutual_information": averaged(sk.adjusted_mutual_info_score),
    "cramers_v": [({}, association("cramer")), ({"bias_correction": True}, corrected)],
    "tschuprows_t": [({}, association("tschuprow"))],
    "contingency_coefficient": [({}, association("pearson"))],
    "homogeneity": [({}, sk.homogeneity_score)],
    "completeness": [({}, sk.completeness_score)],
    "v_measure": [({"beta": b}, lambda a, c, b=b: sk.v_measure_score(a, c, beta=b)) for b in (1.0, 0.3, 2.0)],
}


def between(rate: Callable[..., float]) -> Callable[..., float]:
    """The least over the largest of a rate of the cells of each group."""

    def of(y: Array, d: Array, group: Array, w: Array) -> float:
        rates = [rate(*cells(y[group == g], d[group == g], w[group == g])) for g in np.unique(group)]
        return float(quiet(np.nanmin(rates), np.nanmax(rates)))

    return of


SELECTED = between(lambda tn, fp, fn, tp: quiet(tp + fp, tn + fp + fn + tp))
FOUND = between(lambda tn, fp, fn, tp: quiet(tp, tp + fn))
RAISED = between(lambda tn, fp, fn, tp: quiet(fp, fp + tn))
FAIRNESS: dict[str, list[tuple[dict[str, Any], Callable[..., float]]]] = {
    "demographic_parity_ratio": [({}, SELECTED)],
    "equal_opportunity_ratio": [({}, FOUND)],
    "equalized_odds_ratio": [
        ({}, lambda *a: min(FOUND(*a), RAISED(*a))),
        ({"agg": "mean"}, lambda *a: (FOUND(*a) + RAISED(*a)) / 2),
    ],
}


def fleiss(ratings: Array, w: Array) -> float:
    """Every pair of raters of an item, one by one, and every pair of all ratings."""
    chosen = [np.repeat(np.arange(len(row)), row) for row in ratings]
    pairs = [
        (one[i] == one[j], v) for one, v in zip(chosen, w, strict=True) for i, j in permutations(range(len(one)), 2)
    ]
    agreed = sum(v * same for same, v in pairs) / sum(v for _, v in pairs)
    share = np.bincount(np.concatenate(chosen), np.repeat(w, ratings.sum(axis=1))) / (w @ ratings.sum(axis=1))
    return float((agreed - (share**2).sum()) / (1 - (share**2).sum()))


RATERS: dict[str, Any] = {"fleiss_kappa": [({"num_classes": 4}, fleiss)]}

ORACLES: dict[str, Any] = DECISIONS | LABELINGS | FAIRNESS | RATERS
