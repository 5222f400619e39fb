"""What hypothesis draws for the laws: metrics at several settings, rows, keys of slices.

The short form always draws the same. The long form draws anew, and `LAWS` times as much; the option ``-m ""`` includes
the tests that the fast level leaves out (see `levels`)::

    LAWS=100 pytest -m "" tests/laws tests/test_golden_bits.py -n auto

With LAWS=0.5, as CI runs the tests with the oldest dependencies, proofs that are made of many tries are half as long.
"""

from __future__ import annotations

import os
from dataclasses import fields, replace

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

import streammetrics as sm
from streammetrics.batch.classes import Classes, DiscoveredClasses, Distribution
from streammetrics.batch.ids import Ids, Names
from streammetrics.batch.kinds import CountKind, Grade, Label, LabelWeight, Matrix, Score, Target, Weight
from streammetrics.batch.numbers import Number
from streammetrics.laws import metric_case
from streammetrics.laws.specimens import KEYS, PROBABILITIES, REALS, WEIGHTS, clip_to_kind, names

TIMES = float(os.environ.get("LAWS", "1"))

OWN = {tag: cls for tag, cls in sm.extend.METRICS.items() if cls.__module__.startswith("streammetrics.")}

RANKING = [
    {"bits": 8},
    {"bits": 9, "scale": "real"},
    {"bits": 8, "scale": "logit"},
]
MATRIX = {"num_outputs": 2, "multioutput": "raw_values"}
DECISIONS = [{}, {"threshold": 0.3}]
GAINS = [{}, {"k": 2, "gain": "exponential"}]
RELEVANCE = [{}, {"k": 2, "relevance_level": 2, "empty": "skip"}, {"k": 3, "ties": "order"}]
CLASSES, NAMED, LABELS = {"num_classes": 3}, {"labels": ("b", "a")}, {"num_labels": 2}
FOUND, SOFT = {"labels": "discover"}, {"soft_labels": True}
EACH, MICRO, WEIGHTED, SAMPLES = ({"average": a} for a in (None, "micro", "weighted", "samples"))
SETTINGS: dict[str, list[dict[str, object]]] = {
    "auc": [
        *RANKING,
        {"bits": 8, "max_fpr": 0.1},
        {"bits": 12},
        {"exact": True},
        {"bits": 8, **CLASSES},
        {"bits": 16, **LABELS},
        {"bits": 16, "scale": "real", **NAMED, **WEIGHTED},
        {"bits": 8, "scale": "real", **NAMED, **WEIGHTED},
        {"bits": 9, **LABELS, **EACH},
        {"bits": 8, "min_fpr": 0.2, "max_fpr": 0.7},
        {"min_fpr": 0.5},
        {"exact": True, **LABELS},
        {"multi_class": "ovo", **CLASSES},
        {"scale": "logit", "bits": 8, **CLASSES},
        {"multi_class": "ovo", "exact": True, "scale": "real", **NAMED, **WEIGHTED},
        {"average": "samples", **LABELS},
    ],
    "gini": [*RANKING[:2], {"bits": 8, **LABELS, **MICRO}],
    "average_precision": [
        *RANKING,
        {"exact": True, "scale": "logit"},
        {"bits": 8, **CLASSES, **MICRO},
        {"bits": 8, "zero_division": 1.0},
        {"average": "samples", "zero_division": 0.0, **LABELS},
    ],
    "ks": [*RANKING, {"exact": True, "scale": "real"}, {"bits": 8, **LABELS}],
    "roc_curve": [{"bits": 8}, {"exact": True, "tolerance": 0.0}, {"bits": 8, **CLASSES}],
    "det_curve": [{"bits": 8}, {"exact": True, "tolerance": 0.0}, LABELS],
    "pr_curve": [{"bits": 8}, {"exact": True, "scale": "real"}, {"scale": "logit", **NAMED}],
    "gain_curve": [{"bits": 8, "scale": "logit"}],
    "max_fbeta": [{"bits": 8}, {"beta": 2.0, "exact": True}],
    "recall_at_precision": [{"bits": 8, "precision": 0.5}],
    "precision_at_recall": [{"bits": 8, "recall": 0.5}],
    "sensitivity_at_specificity": [{"bits": 8, "specificity": 0.5}],
    "specificity_at_sensitivity": [{"bits": 8, "sensitivity": 0.5}, {"bits": 8, **LABELS, **EACH}],
    "equal_error_rate": [{"bits": 8}, {"exact": True, "scale": "real"}, {"bits": 8, **CLASSES}],
    "precision_at_k_rows": [{"bits": 8, "k": 5}],
    "enrichment_factor": [{"bits": 8, "fraction": 0.3}],
    "bedroc": [{"bits": 8}, {"alpha": 1.0, **LABELS}],
    "log_auc": [{"bits": 8}, {"min_fpr": 0.2, "max_fpr": 1.0, **CLASSES}],
    "h_measure": [{"bits": 8}, {"prior": "hand2014"}],
    "thresholded_auc": [{"bits": 8, "num_thresholds": 9}, {"curve": "PR", "bits": 8, "summation_method": "majoring"}],
    "qini": [{"bits": 8}, {"exact": True, "norm": "rows"}],
    "auuc": [{"bits": 8, "scale": "probability"}, {"norm": "total"}],
    "uplift_curve": [{"bits": 8}, {"kind": "uplift"}],
    "lift": [{"bits": 8}, {"bits": 8, "kind": "gain", "fraction": 0.4}, {"exact": True}],
    "group_log_loss": [{}, {"group_weight": "positives", "scale": "logit"}, {"missing": "skip", "eps": 0.01}],
    "group_calibration_error": [{}, {"relative": True}, {"scale": "logit"}],
    "group_average_precision": [{}, {"group_weight": "positives", "missing": "skip"}, {"scale": "real"}],
    "session_precision_at_k": [{"k": 1}, {"k": 3, "scale": "real"}],
    "session_recall_at_k": [{"k": 2}],
    "group_auc": [{}, {"group_weight": "pairs", "one_class": 0.5, "missing": "skip"}, {"scale": "real"}],
    "log_loss": [
        {},
        {"eps": 0.01},
        {"eps": 0.0},
        {"scale": "logit"},
        CLASSES,
        {"scale": "logit", **NAMED},
        {"eps": 0.0, **CLASSES},
        LABELS | {"scale": "logit"},
        SOFT,
        SOFT | {"scale": "logit"},
        SOFT | {"eps": 0.0},
        SOFT | LABELS | EACH,
        {"label_smoothing": 0.1},
        {"label_smoothing": 0.1, "scale": "logit", **CLASSES},
        {"label_smoothing": 0.25, **LABELS},
    ],
    "focal_loss": [
        {},
        {"gamma": 0.5, "alpha": 0.25, "scale": "logit"},
        CLASSES,
        {"scale": "logit", "alpha": 0.3, **NAMED},
    ],
    "hinge_loss": [{}, CLASSES, {"multiclass": "one-vs-rest", **NAMED, **EACH}],
    "squared_hinge_loss": [{}, {"multiclass": "one-vs-rest", **CLASSES}],
    "poisson_log_loss": [{}, {"log_input": True}, {"full": True, "eps": 1e-7}],
    "d2_log_loss": [{}, CLASSES, LABELS | EACH, SOFT],
    "d2_brier": [{"scale": "logit"}, CLASSES, LABELS | MICRO],
    "log_loss_skill_score": [{"base_rate": 0.1}, {"baseline": True}, SOFT],
    "brier_skill_score": [{"base_rate": 0.1}, {"baseline": True, "scale": "logit"}],
    "ne_positive": [{}, {"scale": "logit", "base_rate": 0.1}],
    "calibration_free_ne": [{}, {"scale": "logit"}, SOFT],
    "tjur_discrimination": [{}, {"relative": True}, CLASSES | EACH],
    "d2_tweedie": [{}, {"power": 2.0}, {"power": 2.5}],
    "prediction_difference": [{}, {"kind": "signed", "scale": "real"}, {"kind": "symmetric"}],
    "flip_rate": [{}, {"threshold": 0.3, "direction": "up"}, {"direction": "neither", "scale": "real"}],
    "spiegelhalter_z": [{}, {"scale": "logit"}],
    "hosmer_lemeshow": [{"bits": 8}, {"n_bins": 3, "strategy": "uniform"}],
    "calibration_slope": [{}, {"bits": 9, "scale": "logit"}],
    "calibration_intercept": [{}, {"bits": 8, "slope": "fitted"}],
    "kl_divergence": [{"width": 3}, {"width": 2, "eps": 0.01}],
    "normalized_entropy": [{}, {"base_rate": 0.1}, {"scale": "logit"}, LABELS, SOFT],
    "brier_score": [
        {},
        {"scale": "logit"},
        CLASSES,
        {"scale": "logit", **CLASSES},
        LABELS | MICRO,
        SOFT,
        SOFT | LABELS | MICRO | {"scale": "logit"},
    ],
    "calibration": [{}, {"inverse": True}, {"scale": "logit"}, LABELS | EACH, CLASSES | MICRO, SOFT],
    "ctr": [{}, CLASSES | EACH, LABELS, SOFT, SOFT | LABELS | WEIGHTED],
    "expected_calibration_error": [
        {},
        {"n_bins": 3, "norm": "l2", "scale": "logit"},
        *({"strategy": s, "bits": 8, "norm": n} for s, n in (("quantile", "l2"), ("log", "l1"))),
        {"strategy": "quantile", "bits": 9, "scale": "logit"},
        CLASSES,
        {"scale": "logit", "strategy": "quantile", "bits": 8, **NAMED},
        LABELS | EACH,
        {"strategy": "log", "bits": 8, **LABELS},
    ],
    "maximum_calibration_error": [{}, {"strategy": "quantile", "bits": 8}, {"strategy": "log", "n_bins": 40}],
    "calibration_curve": [{"n_bins": 1}, {"strategy": "log", "bits": 10, "scale": "logit"}, CLASSES],
    "calibration_table": [{}, {"n_bins": 3, "bits": 8}],
    "bucket_error": [{"n_bins": 50}, {"n_bins": 1000, "scale": "logit"}],
    "predicted_ctr": [{}, {"scale": "logit"}, LABELS | WEIGHTED, SOFT],
    "confusion_matrix": [
        {},
        {"threshold": None},
        {"threshold": -1.0, "normalize": "true"},
        {"normalize": "all"},
        CLASSES,
        {"threshold": None, **NAMED},
        FOUND,
        LABELS | {"normalize": "true"},
    ],
    "accuracy": [
        {},
        {"threshold": None},
        {"threshold": 0.1, "zero_division": 1.0},
        FOUND,
        LABELS,
        {"ignore_class": 1, **CLASSES},
        {"ignore_class": "c", **NAMED},
    ],
    "precision": [
        *DECISIONS,
        {"threshold": 0.9, "zero_division": 0.0},
        CLASSES | EACH,
        LABELS | MICRO,
        LABELS | SAMPLES | {"threshold": (0.2, 0.5)},
        {"top_k": 2, **CLASSES, **EACH},
    ],
    "recall": [
        {},
        FOUND | WEIGHTED,
        {"threshold": None, **CLASSES},
        LABELS | {"threshold": None},
        {"threshold": (0.9, 0.1)},
        LABELS | SAMPLES | {"top_k": 1, "zero_division": 1.0},
        LABELS | EACH | {"top_k": 1, "threshold": (0.5, 0.25)},
        FOUND | {"ignore_class": "b"},
    ],
    "fbeta": [{"beta": 2.0}, {"beta": 0.5, "threshold": 0.3}, LABELS | MICRO, {"beta": 0.0}, LABELS | SAMPLES],
    "f1": [
        {},
        NAMED,
        {"threshold": 0.2, "zero_division": 0.0, **LABELS},
        LABELS | EACH | {"threshold": (0.5, 0.25)},
        LABELS | {"top_k": 1},
    ],
    "jaccard": [{}, LABELS | SAMPLES | {"threshold": None}],
    "matthews_corrcoef": [{}, {"zero_division": 0.0}, CLASSES, FOUND, LABELS, {"threshold": (0.3, 0.6)}],
    "cohen_kappa": [
        {},
        {"threshold": None, **CLASSES},
        LABELS | EACH,
        {"weights": "linear", **CLASSES},
        {"weights": "quadratic", **FOUND},
    ],
    "balanced_accuracy": [{}, NAMED, LABELS, {"adjusted": True, **CLASSES}],
    "geometric_mean_score": [{}, CLASSES, LABELS | EACH],
    "true_positives": [{}, CLASSES | MICRO, {"threshold": (0.1, 0.5)}, LABELS | EACH],
    "informedness": [{}, CLASSES, {"threshold": 0.3, "zero_division": 0.0}],
    "positive_likelihood_ratio": [{}, {"zero_division": 1.0, **LABELS}],
    "fowlkes_mallows": [{}, CLASSES | MICRO],
    "prevalence_threshold": [{}, LABELS | EACH],
    "demographic_parity_ratio": [{}, {"threshold": None}],
    "equalized_odds_ratio": [{}, {"agg": "mean", "threshold": 0.3, "zero_division": 1.0}],
    "normalized_mutual_information": [{}, {"average_method": "geometric"}, {"average_method": "min"}],
    "adjusted_mutual_information": [{}, {"average_method": "max"}],
    "v_measure": [{}, {"beta": 0.5}],
    "cramers_v": [{}, {"bias_correction": True}],
    "hamming_loss": [{}, CLASSES, LABELS, CLASSES | {"num_outputs": 2}],
    "top_k_accuracy": [{"k": 2, **CLASSES}, {"k": 1, "num_classes": 2}, {"k": 2, "ignore_class": 1, **CLASSES}],
    "subset_accuracy": [
        LABELS,
        {"threshold": None, **LABELS},
        {"criteria": "overlap", **LABELS},
        {"criteria": "contain", "top_k": 1, **LABELS},
        {"top_k": 1, "threshold": 0.5, **LABELS},
        {"num_labels": None, "num_outputs": 2, **CLASSES},
    ],
    "mae": [{}, MATRIX, {"squares": True}, MATRIX | {"squares": True}],
    "rmse": [{}, {"num_outputs": 1}, {"squares": True}],
    "mape": [{}, {"zero": "epsilon", "percent": True}, MATRIX, {"squares": True}],
    "pinball_loss": [{}, {"alpha": 0.9}],
    "huber_loss": [{}, {"delta": 0.3}],
    "tweedie_deviance": [{}, {"power": 1.5}, {"power": 1.5, "squares": True}, {"power": -1.0}, {"power": 3.0}],
    "log_cosh": [{}, MATRIX, {"squares": True}],
    "minkowski_distance": [{}, {"p": 1.0, **MATRIX}, {"p": 3.5}],
    "critical_success_index": [{}, {"threshold": -1.0, **MATRIX}],
    "mean_relative_error": [{}, {"percent": True, "squares": True}],
    "nrmse": [{}, *({"normalization": n} for n in ("range", "std", "l2")), MATRIX | {"normalization": "range"}],
    "nmse": [{}, {"normalization": "means"}, {"normalization": "constant"}],
    "relative_squared_error": [{}, {"squared": False, **MATRIX}],
    "concordance_correlation": [{}, {"ddof": 1.0}],
    "explained_variance": [{}, {"force_finite": True, **MATRIX}],
    "d2_pinball": [{"bits": 2}, {"alpha": 0.9, "bits": 4, **MATRIX}],
    "d2_absolute_error": [{"bits": 3}],
    "crps_quantiles": [{}, {"quantiles": (0.5,)}],
    "crps_ensemble": [{"members": 3}, {"members": 2, "estimator": "fair"}],
    "r2": [
        {},
        {"force_finite": True},
        {"num_outputs": 2, "multioutput": "variance_weighted", "force_finite": True},
        MATRIX,
        {"num_outputs": 2, "multioutput": "variance_weighted"},
    ],
    "quantile": [{"bits": 3}, {"q": 1.0, "bits": 1}],
    "error_quantile": [{"bits": 1}, {"bits": 3, "q": 0.0, **MATRIX}, {"bits": 2, "num_outputs": 2}],
    "residual_quantile": [{"bits": 2}, {"bits": 1, "q": 0.05, **MATRIX}],
    "median_absolute_error": [{"bits": 2}],
    "max_error": [{}, MATRIX],
    "mean": [{}, {"squares": True}],
    "mean_error": [{}, {"squares": True}],
    "variance": [{}, {"ddof": 1.0}, {"ddof": 0.5}],
    "standard_deviation": [{"ddof": 1.0}],
    "skewness": [{}, {"bias": False}],
    "kurtosis": [{}, {"bias": False, "fisher": False}],
    "entropy": [{}, {"base": 2, "missing": "skip"}],
    "heavy_hitters": [{"k": 2}],
    "histogram": [{"edges": (-1.0, 0.0, 0.5, 3.0)}, {"edges": (0.0, 1.0), "density": True}],
    "key_frequency": [{"key": "a", "bits": 4, "depth": 2}],
    "ratio": [{}, {"squares": True}, {"numerator": "clicks", "denominator": "views"}],
    "per_unit": [{}, {"outcome": "revenue", "unit": "user", "cap": 2.0, "missing": "skip"}],
    "distinct_sample": [{"limit": 16}, {"missing": "skip"}],
    "distinct_count": [{"precision": 4}, {"precision": 10}],
    "pearson_correlation": [{}, {"num_outputs": 2}],
    "cumulative_gain": [*GAINS, {"ties": "order"}],
    "dcg": [*GAINS, {"ties": "document"}],
    "ndcg": [*GAINS, {"ties": "document", "k": 3}, {"ties": "order", "empty": "skip"}],
    "precision_at_k": [*RELEVANCE, {"ties": "document", "k": 1}],
    "recall_at_k": RELEVANCE,
    "r_precision": [{}, {"relevance_level": 2}, {"multiple": 2.4, "empty": "skip"}],
    "hit_rate": [*RELEVANCE, {"average": "pooled", "k": 3}],
    "mrr": RELEVANCE,
    "map": [*RELEVANCE, *({"denominator": d, "k": 2} for d in ("relevant", "hits"))],
    "err": [{"max_grade": 300}, {"max_grade": 300, "k": 3, "ties": "order"}],
    "rbp": [*RELEVANCE, {"p": 0.5}],
    "alpha_ndcg": [{"k": 3}, {"k": 2, "alpha": 1.0, "ideal": "bound", "empty": "skip", "relevance_level": 2}],
    "err_ia": [{"k": 3}, {"norm": "ideal", "k": 2}, {"norm": "none", "empty": 1.0}],
    "subtopic_recall": [{"k": 2}],
    "intra_list_diversity": [{"k": 3}],
    "average_popularity": [{"k": 2}, {"ties": "order"}],
    "novelty": [{"k": 2}, {"missing": "unjudged"}],
    "catalogue_coverage": [{"n_items": 5, "k": 2}],
    "exposure_gini": [{}, {"k": 2, "n_items": 9}],
    "exposure_entropy": [{"k": 1, "base": 2}],
    "tail_share": [{}, {"k": 2, "head": 0.5, "n_items": 9}],
    "personalisation": [{"k": 2}],
    "hits_at_k": [{"k": 2, "relevance_level": 2}, {"ties": "optimistic"}],
    "relative_precision": RELEVANCE,
    "fbeta_at_k": [*RELEVANCE, {"k": 2, "beta": 2.0, "missing": "unjudged"}],
    "set_average_precision": [{}, {"empty": "skip", "ties": "document"}],
    "fall_out_at_k": [{"k": 2}, {"k": 3, "empty": 1.0, "ties": "pessimistic"}],
    "idcg": [*GAINS, {"ties": "order"}],
    "mean_rank": [{}, {"ties": "order", "relevance_level": 2}],
    "average_relevance_position": [{}, {"average": "queries", "ties": "optimistic"}],
    "ordered_pair_accuracy": [
        {},
        {"average": "queries"},
        {"ties": "pessimistic"},
        {"unreturned": "below"},
        {"unreturned": "wrong", "average": "queries"},
    ],
    "judged_at_k": [{}, {"k": 2, "missing": "raise"}],
    "bpref": [{}, {"ties": "document", "empty": "skip", "relevance_level": 2}],
    "inferred_ap": [{}, {"ties": "order", "missing": "raise"}],
    "interpolated_precision": [{}, {"recall": 0.0, "ties": "optimistic"}],
    "eleven_point_precision": [{}, {"empty": 1.0}],
    "q_measure": [{}, {"k": 2, "beta": 0.5, "empty": "skip"}],
    "geometric_map": [{}, {"k": 2, "floor": 0.01, "empty": "skip"}],
    "geometric_bpref": [{}, {"ties": "order", "floor": 0.01, "empty": "skip"}],
    "original_ndcg": [{}, {"k": 2, "empty": "skip"}],
    "ndcg_at_relevant": [{}, {"ties": "optimistic", "empty": "skip", "missing": "unjudged"}],
    "ndcg_at_levels": [{}, {"ties": "document"}],
    "normalized_gain": [{}, {"ties": "order", "empty": 1.0}],
    "binary_gain": [{}, {"relevance_level": 2, "empty": "skip"}],
    "smoothed_ap": [{}, {"relevance_level": 2, "empty": "skip", "ties": "optimistic"}],
    "precision_recall_at_k": [{"k": 3}],
    "recall_at_fixed_precision": [{"k": 3, "precision": 0.2, "empty": "skip"}],
}
"""Settings to try, by tag; a metric that is missing here is tried at its defaults."""

VARIANTS = [cls(**{**cls.about.example, **s}) for tag, cls in OWN.items() for s in SETTINGS.get(tag, [{}])]


def usual(tag: str):
    """A metric at its defaults; those without a default as in its `example`."""
    return OWN[tag](**OWN[tag].about.example)


def _is_binary(tag: str) -> bool:
    """Whether a metric reads nothing but a 0/1 label, a score of the row, and a weight."""
    kinds = {n.role: type(n.kind) for n in usual(tag).make_state().needs()}
    return (
        kinds.get("y_true") is Label
        and set(kinds) <= {"y_true", "y_score", "y_pred", "sample_weight"}
        and (kinds.get("y_score", Score) is Score)
    )


BINARY = sorted(tag for tag in OWN if _is_binary(tag))
OTHERS = sorted(set(OWN) - set(BINARY))


def kind_of(state):
    """What a state counts, whatever list of terms it is asked for: how it is held does not depend on the list."""
    lists = {f.name for f in fields(state) if f.metadata.get("union")}
    return state.tag, repr(sorted((name, value) for name, value in state.settings.items() if name not in lists))


def first_of_each_statistic(metrics):
    """Return the first of some metrics that reads each statistic."""
    found = {}
    for metric in metrics:
        found.setdefault((*kind_of(metric.make_state()), metric.about.positional_columns), metric)
    return list(found.values())


FIRST = first_of_each_statistic(VARIANTS)
"""A metric for each statistic: enough for what depends on how rows are counted, and on no formula."""

FIRST_BINARY = [metric.about.tag for metric in first_of_each_statistic(map(usual, BINARY))]
"""The same of metrics that read nothing but a 0/1 label, a score of the row, and a weight, at their defaults."""


def tries(examples: int) -> int:
    """How many that are in the normal run make in this one."""
    return max(1, int(examples * TIMES))


def short(examples: int, **more):
    """So many examples in the normal run, and many more in the long form."""
    return settings(
        max_examples=tries(examples),
        deadline=None,
        database=None,
        derandomize=TIMES <= 1,
        suppress_health_check=list(HealthCheck),
        **more,
    )


def scores(scale: str):
    """Scores that a scale takes: ties, saturation, neighbours, anything."""
    if scale in ("grade", "count"):
        return st.sampled_from([0.0, 0.0, 1.0, 2.0, 4.0] + ([0.5, 300.0] if scale == "grade" else []))
    narrow = scale == "probability"
    low, high = (0.0, 1.0) if narrow else (-(2.0**100), 2.0**100)
    edges = st.sampled_from(PROBABILITIES if narrow else REALS)
    few = st.sampled_from([0.25, 0.5, 0.75] if narrow else [-1.0, 0.0, 0.5])
    return st.one_of(few, edges, st.floats(low, high), st.floats(max(low, -6e4), min(high, 6e4), width=16))


def values(kind):
    """Good values of a column."""
    if isinstance(kind, (Classes, DiscoveredClasses)):
        return st.sampled_from(names(kind).tolist())
    if isinstance(kind, Distribution):
        shares = st.lists(st.sampled_from([0.0, 1.0, 1.0, 2.0, 1e-9, 0.3]), min_size=kind.width, max_size=kind.width)
        return shares.filter(lambda row: sum(row) > 0).map(lambda row: tuple(v / sum(row) for v in row))
    if isinstance(kind, Matrix):
        return st.tuples(*[values(kind.kind)] * kind.width)
    if isinstance(kind, Ids):
        return st.integers(-2, 2)
    if isinstance(kind, Label):
        return st.booleans()
    if isinstance(kind, Number):
        return scores("real").map(lambda v: float(clip_to_kind(kind, np.array([v]))[0]))
    return scores(kind.scale) if isinstance(kind, Score) else st.sampled_from(WEIGHTS)


@st.composite
def rows(draw, needs, most=30):
    """Good rows of the columns that a state needs, with weights or without."""
    weighted = draw(st.booleans())
    wanted = [n for n in needs if weighted or not n.optional or n.either or n.derived]
    if any(isinstance(n.kind, LabelWeight) for n in wanted) and draw(st.booleans()):
        wanted = [_by_label(n) for n in wanted]
    one_class = draw(st.sampled_from([None, None, None, True, False]))
    kinds = [
        st.just(one_class) if isinstance(n.kind, Label) and one_class is not None else values(n.kind) for n in wanted
    ]
    drawn = draw(st.lists(st.tuples(*kinds), max_size=most))
    if "query" in [n.role for n in wanted]:  # rows of one query stand side by side
        at = [n.role for n in wanted].index("query")
        drawn.sort(key=lambda row: row[at])
    return {n.role: _column(n.kind, [row[i] for row in drawn], draw) for i, n in enumerate(wanted)}


def _by_label(need):
    """A weight for each label of a row, where one is welcome."""
    wide = isinstance(need.kind, LabelWeight)
    return replace(need, kind=Matrix(need.kind, need.kind.width)) if wide else need


_DTYPES = {
    Label: ("u1", "?", "i8", "f4"),
    Score: ("f4", "f8"),
    Target: ("f4", "f8"),
    Number: ("f4", "f8"),
    Weight: ("f8",),
    Ids: ("i8", "i2"),
    Grade: ("f4", "f8"),
    CountKind: ("f8", "i4"),
    Names: ("i8",),
    Classes: ("i8", "i2", "f4"),
}


def _column(kind, drawn, draw):
    cell = kind.kind if isinstance(kind, Matrix) else kind
    if isinstance(cell, DiscoveredClasses) or (isinstance(cell, Classes) and not isinstance(cell.names, int)):
        return np.array(drawn, "U1")
    made = clip_to_kind(cell, np.array(drawn, draw(st.sampled_from(_DTYPES.get(type(cell), ("f8",))))))
    return made.reshape(len(drawn), kind.width) if isinstance(kind, Matrix) else made


@st.composite
def cases(draw, metric, most=30):
    """A metric and rows to try it on."""
    columns = draw(rows(metric.make_state().needs(), most))
    return metric_case(metric, columns, np.random.default_rng(draw(st.integers(0, 2**32))))


ATOMS = {
    "integer": st.one_of(st.integers(-2, 3), st.integers(-(2**63), 2**63 - 1)),
    "wide": st.one_of(st.integers(0, 2), st.integers(2**63, 2**64 - 1)),
    "string": st.one_of(st.sampled_from(["", "a", "b"]), st.text(st.characters(exclude_categories=["Cs"]), max_size=9)),
    "bytes": st.one_of(st.sampled_from([b"", b"a", b"\x00"]), st.binary(max_size=9)),
}


@st.composite
def keys(draw, n, names=("key",)):
    """Keys of slices by one or more columns: few different ones and nulls, of one kind a column."""
    out = {}
    for name in names:
        some = [*draw(st.lists(ATOMS[draw(st.sampled_from(KEYS))], min_size=1, max_size=4)), None]
        column = np.empty(n, object)
        column[:] = [draw(st.sampled_from(some)) for _ in range(n)]
        out[name] = column
    return out
