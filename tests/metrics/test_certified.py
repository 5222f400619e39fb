"""Every certified bound against the truth in fractions, by naive code, of the scores and weights as they were given.

Where bounds are equal the value is the truth, rounded once; otherwise the truth lies between them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import draws
import numpy as np
import pytest
from oracles_regression import spread
from scipy.special import logsumexp
from weighed_rows import WEIGHTS, Rows, cuts, totals, weights_of

import streammetrics as sm
from streammetrics.collect.metric_like import columns_of, empty_copy
from streammetrics.laws.case import without_warnings
from streammetrics.reading.about import about_of

F = Fraction

# -- the truth -------------------------------------------------------------------------------------------------------


def over(a: Fraction, b: Fraction) -> Fraction | None:
    return a / b if b else None


def root(square: Fraction, sign: int = 1) -> Fraction:
    """The square root, to 400 bits."""
    whole = (square.numerator << 800) // square.denominator
    return F(sign * math.isqrt(whole), 1 << 400)


def auc(m: Any, rows: Rows) -> Fraction | None:
    P, N = totals(rows)
    if not P or not N:
        return None
    if getattr(m, "max_fpr", None) in (None, 1.0) and not getattr(m, "min_fpr", 0):
        wins = sum(
            w * v * (F(1) if s > t else F(1, 2)) for y, s, w in rows for z, t, v in rows if y and not z and s >= t
        )
        return F(wins) / (P * N)
    start, rate, area, tp, fp = F(m.min_fpr), F(m.max_fpr or 1), F(0), F(0), F(0)
    for _, a, b in cuts(rows):
        begin, end = max(fp, start * N), min(b, rate * N)
        if end > begin:
            area += (end - begin) * (tp + (a - tp) * ((begin + end) / 2 - fp) / (b - fp))
        tp, fp = a, max(fp, b)
    least = (rate * rate - start * start) / 2
    return (1 + (area / (P * N) - least) / (rate - start - least)) / 2


def gini(m: Any, rows: Rows) -> Fraction | None:
    found = auc(m, rows)
    return None if found is None else 2 * found - 1


def average_precision(m: Any, rows: Rows) -> Fraction | None:
    P, _ = totals(rows)
    before, total = F(0), F(0)
    for _, tp, fp in cuts(rows) if P else ():
        total += (tp - before) / P * (tp / (tp + fp))
        before = tp
    return total if P else None if math.isnan(m.zero_division) else F(m.zero_division)


def ks(m: Any, rows: Rows) -> Fraction | None:
    P, N = totals(rows)
    return max(abs(tp / P - fp / N) for _, tp, fp in cuts(rows)) if P and N else None


def best(rate: Callable[..., Any], kept: Callable[..., bool]) -> Callable[[Any, Rows], Fraction | None]:
    def of(m: Any, rows: Rows) -> Fraction | None:
        P, N = totals(rows)
        if not P or (m.about.tag in ("sensitivity_at_specificity", "specificity_at_sensitivity") and not N):
            return None
        found = [rate(m, tp, fp, P, N) for tp, fp in [(F(0), F(0)), *((a, b) for _, a, b in cuts(rows))]
                 if kept(m, tp, fp, P, N)]  # fmt: skip
        return max((f for f in found if f is not None), default=None)

    return of


def reaches(a: Fraction, b: Fraction, limit: float) -> bool:
    return not b or float(a / b) >= limit


def lift(m: Any, rows: Rows) -> Fraction | None:
    P, N = totals(rows)
    found = found_in(F(m.fraction) * (P + N), rows)
    return found / P / (F(m.fraction) if m.kind == "lift" else 1) if P else None


def precision_at_rows(m: Any, rows: Rows) -> Fraction | None:
    cut = min(F(m.k), sum(totals(rows)))
    return found_in(cut, rows) / cut if cut else None


def enrichment(m: Any, rows: Rows) -> Fraction | None:
    P, N = totals(rows)
    if not P:
        return None
    cut = min(F(math.ceil(F(str(m.fraction)) * (P + N))), P + N)
    return found_in(cut, rows) / cut / (P / (P + N))


def equal_error(m: Any, rows: Rows) -> Fraction | None:
    P, N = totals(rows)
    if not P or not N:
        return None
    points = [(F(0), F(1)), *((fp / N, 1 - tp / P) for _, tp, fp in cuts(rows))]
    return sum(min(points, key=lambda p: abs(p[0] - p[1]))) / 2


def found_in(cut: Fraction, rows: Rows) -> Fraction:
    tp, fp = F(0), F(0)
    for _, a, b in cuts(rows):
        if a + b >= cut:
            tp += (a - tp) * (cut - tp - fp) / (a + b - tp - fp)
            break
        tp, fp = a, b
    return tp


def table(m: Any, rows: Rows) -> tuple[Fraction, Fraction, Fraction, Fraction]:
    cut = 0.5 if m.threshold is None else m.threshold
    found = [[F(0), F(0)], [F(0), F(0)]]
    for y, s, w in rows:
        found[y][s >= cut] += w
    return found[0][0], found[0][1], found[1][0], found[1][1]


def ratio(top: Callable[..., Any]) -> Callable[[Any, Rows], Fraction | None]:
    def of(m: Any, rows: Rows) -> Fraction | None:
        found = over(*top(m, *table(m, rows)))
        return F(m.zero_division) if found is None and m.zero_division == m.zero_division else found

    return of


def balanced(m: Any, rows: Rows) -> Fraction | None:
    tn, fp, fn, tp = table(m, rows)
    known = [r for r in (over(tn, tn + fp), over(tp, tp + fn)) if r is not None]
    return sum(known, F(0)) / len(known) if known else None


def fowlkes(m: Any, rows: Rows) -> Fraction | None:
    _, fp, fn, tp = table(m, rows)
    both = (tp + fp) * (tp + fn)
    return root(tp * tp / both) if both else None


def prevalence_threshold(m: Any, rows: Rows) -> Fraction | None:
    tn, fp, fn, tp = table(m, rows)
    if not (tn + fp) * (fn + tp) * (fp + tp):
        return None
    if not fp * tp:
        return F(0) if tp else F(1)
    return 1 / (1 + root(tp * (tn + fp) / (fp * (fn + tp))))


def geometric(m: Any, rows: Rows) -> Fraction | None:
    tn, fp, fn, tp = table(m, rows)
    known = [r for r in (over(tn, tn + fp), over(tp, tp + fn)) if r is not None]
    return None if not known else known[0] if len(known) == 1 else root(known[0] * known[1])


def matthews(m: Any, rows: Rows) -> Fraction | None:
    tn, fp, fn, tp = table(m, rows)
    square, less = (tp + fp) * (tp + fn) * (tn + fp) * (tn + fn), tp * tn - fp * fn
    if not square:
        return None if math.isnan(m.zero_division) else F(m.zero_division)
    return root(less * less / square, -1 if less < 0 else 1)


def mean(of: Callable[[int, Fraction], Fraction]) -> Callable[[Any, Rows], Fraction | None]:
    return lambda m, rows: over(sum((w * of(y, F(s)) for y, s, w in rows), F(0)), sum(totals(rows)))  # type: ignore[arg-type]


def calibration(m: Any, rows: Rows) -> Fraction | None:
    p, y = sum((w * F(s) for _, s, w in rows), F(0)), totals(rows)[0]
    return over(y, p) if m.inverse else over(p, y)


def tjur(m: Any, rows: Rows) -> Fraction | None:
    no, yes = ([(w, w * F(s)) for y, s, w in rows if y == label] for label in (0, 1))
    means = [over(sum((p for _, p in side), F(0)), sum((w for w, _ in side), F(0))) for side in (no, yes)]
    if None in means:
        return None
    return over(means[1], means[0]) if m.relative else means[1] - means[0]


def brier_skill(m: Any, rows: Rows) -> Fraction | None:
    P, N = totals(rows)
    rate = getattr(m, "base_rate", None)
    b = over(P, P + N) if rate is None else F(rate)
    lost, reference = (sum((w * (p - y) ** 2 for y, p, w in r), F(0)) for r in (
        [(y, F(s), w) for y, s, w in rows], [(y, b or F(0), w) for y, _, w in rows]
    ))  # fmt: skip
    return 1 - lost / reference if reference else None


def binned(m: Any, rows: Rows) -> Fraction | None:
    bins: dict[int, list[Fraction]] = {}
    for y, s, w in rows:
        here = bins.setdefault(min(int(F(s) * m.n_bins), m.n_bins - 1), [F(0), F(0)])
        here[0], here[1] = here[0] + w, here[1] + w * (F(s) - y)
    filled = [(w, abs(g)) for w, g in bins.values() if w]
    if not filled:
        return None
    if m.about.tag.startswith("maximum"):
        return max(g / w for w, g in filled)
    total = sum(w for w, _ in filled)
    if m.norm == "l1":
        return sum((g for _, g in filled), F(0)) / total
    return root(sum((g * g / w for w, g in filled), F(0)) / total)


ORACLES: dict[str, Callable[[Any, Rows], Fraction | None]] = {
    "auc": auc,
    "gini": gini,
    "average_precision": average_precision,
    "ks": ks,
    "lift": lift,
    "precision_at_k_rows": precision_at_rows,
    "enrichment_factor": enrichment,
    "equal_error_rate": equal_error,
    "specificity_at_sensitivity": best(
        lambda m, tp, fp, P, N: over(N - fp, N), lambda m, tp, fp, P, N: reaches(tp, P, m.sensitivity)
    ),
    "max_fbeta": best(
        lambda m, tp, fp, P, N: (1 + F(m.beta) ** 2) * tp / (F(m.beta) ** 2 * P + tp + fp), lambda *_: True
    ),
    "recall_at_precision": best(
        lambda m, tp, fp, P, N: tp / P, lambda m, tp, fp, P, N: reaches(tp, tp + fp, m.precision)
    ),
    "precision_at_recall": best(
        lambda m, tp, fp, P, N: over(tp, tp + fp), lambda m, tp, fp, P, N: reaches(tp, P, m.recall)
    ),
    "sensitivity_at_specificity": best(
        lambda m, tp, fp, P, N: tp / P, lambda m, tp, fp, P, N: reaches(N - fp, N, m.specificity)
    ),
    "accuracy": ratio(lambda m, tn, fp, fn, tp: (tn + tp, tn + fp + fn + tp)),
    "error_rate": ratio(lambda m, tn, fp, fn, tp: (fn + fp, tn + fp + fn + tp)),
    "hamming_loss": lambda m, rows: over(table(m, rows)[1] + table(m, rows)[2], sum(table(m, rows))),  # type: ignore[arg-type]
    "precision": ratio(lambda m, tn, fp, fn, tp: (tp, tp + fp)),
    "recall": ratio(lambda m, tn, fp, fn, tp: (tp, tp + fn)),
    "f1": ratio(lambda m, tn, fp, fn, tp: (2 * tp, 2 * tp + fp + fn)),
    "fbeta": ratio(
        lambda m, tn, fp, fn, tp: ((1 + F(m.beta) ** 2) * tp, (1 + F(m.beta) ** 2) * tp + F(m.beta) ** 2 * fn + fp)
    ),
    "false_positive_rate": ratio(lambda m, tn, fp, fn, tp: (fp, fp + tn)),
    "specificity": ratio(lambda m, tn, fp, fn, tp: (tn, fp + tn)),
    "jaccard": ratio(lambda m, tn, fp, fn, tp: (tp, tp + fp + fn)),
    "cohen_kappa": ratio(
        lambda m, tn, fp, fn, tp: (2 * (tp * tn - fp * fn), (tp + fp) * (fp + tn) + (tp + fn) * (fn + tn))
    ),
    "balanced_accuracy": balanced,
    "matthews_corrcoef": matthews,
    "ctr": mean(lambda y, s: F(y)),
    "true_positives": lambda m, rows: table(m, rows)[3],
    "false_positives": lambda m, rows: table(m, rows)[1],
    "true_negatives": lambda m, rows: table(m, rows)[0],
    "false_negatives": lambda m, rows: table(m, rows)[2],
    "negative_predictive_value": ratio(lambda m, tn, fp, fn, tp: (tn, tn + fn)),
    "false_discovery_rate": ratio(lambda m, tn, fp, fn, tp: (fp, fp + tp)),
    "false_omission_rate": ratio(lambda m, tn, fp, fn, tp: (fn, fn + tn)),
    "false_negative_rate": ratio(lambda m, tn, fp, fn, tp: (fn, fn + tp)),
    "prevalence": ratio(lambda m, tn, fp, fn, tp: (fn + tp, tn + fp + fn + tp)),
    "selection_rate": ratio(lambda m, tn, fp, fn, tp: (fp + tp, tn + fp + fn + tp)),
    "informedness": ratio(lambda m, tn, fp, fn, tp: (tp * tn - fp * fn, (tp + fn) * (tn + fp))),
    "markedness": ratio(lambda m, tn, fp, fn, tp: (tp * tn - fp * fn, (tp + fp) * (tn + fn))),
    "positive_likelihood_ratio": ratio(lambda m, tn, fp, fn, tp: (tp * (tn + fp), fp * (tp + fn))),
    "negative_likelihood_ratio": ratio(lambda m, tn, fp, fn, tp: (fn * (tn + fp), tn * (tp + fn))),
    "diagnostic_odds_ratio": ratio(lambda m, tn, fp, fn, tp: (tp * tn, fp * fn)),
    "fowlkes_mallows": fowlkes,
    "prevalence_threshold": prevalence_threshold,
    "geometric_mean_score": geometric,
}
TERMS: dict[str, Callable[[Any, Rows], Fraction | None]] = {
    "predicted_ctr": mean(lambda y, s: s),
    "brier_score": mean(lambda y, s: (s - y) ** 2),
    "calibration": calibration,
    "tjur_discrimination": tjur,
    "d2_brier": brier_skill,
    "brier_skill_score": brier_skill,
    "expected_calibration_error": binned,
    "maximum_calibration_error": binned,
}
"""Metrics of sums of terms that are computed in float64: exact where each of these is."""

CURVES = {"roc_curve", "pr_curve", "det_curve", "gain_curve"}
ELSEWHERE = {
    "test_ranking": {"cumulative_gain", "dcg", "ndcg", "precision_at_k", "recall_at_k", "r_precision", "hit_rate", "mrr",
                     "map", "rbp", "err"},
    "test_regression": {"mae", "mse", "rmse", "wmae", "pinball_loss", "huber_loss", "mape", "smape", "wmape", "msle",
                        "rmsle", "poisson_deviance", "gamma_deviance", "tweedie_deviance", "max_error", "r2", "mean_error",
                        "explained_variance", "pearson_correlation"},
    "test_forecasts": {"concordance_correlation", "critical_success_index", "crps_ensemble", "crps_quantiles",
                       "d2_absolute_error", "d2_pinball", "interval_coverage", "interval_score", "interval_width",
                       "log_cosh", "mase", "max_relative_error", "mean_relative_error", "minkowski_distance", "nmse",
                       "nrmse", "quantile_coverage", "relative_squared_error"},
    "test_orders": {"kendall_correlation", "regression_auc", "spearman_correlation", "xauc"},
    "test_probabilities": {"calibration_free_ne", "calibration_intercept", "calibration_slope", "cosine_similarity",
                           "d2_log_loss", "d2_tweedie", "flip_rate", "focal_loss", "hinge_loss", "hosmer_lemeshow",
                           "jensen_shannon_divergence", "kl_divergence", "log_loss_skill_score", "ne_positive",
                           "poisson_log_loss", "prediction_difference", "spiegelhalter_z", "squared_hinge_loss"},
    "test_columns": {"correlation_matrix", "entropy", "geometric_mean", "harmonic_mean", "heavy_hitters", "histogram",
                     "key_frequency", "kurtosis", "skewness", "standard_deviation", "unique_share"},
    "test_sessions": {"group_average_precision", "session_precision_at_k", "session_recall_at_k"},
    "test_ranking_places": {"average_relevance_position", "bpref", "eleven_point_precision", "fall_out_at_k",
                            "fbeta_at_k", "geometric_map", "hits_at_k", "idcg", "inferred_ap",
                            "interpolated_precision", "judged_at_k", "mean_rank", "ordered_pair_accuracy",
                            "precision_recall_at_k", "q_measure", "recall_at_fixed_precision", "relative_precision",
                            "set_average_precision", "geometric_bpref", "original_ndcg", "ndcg_at_relevant",
                            "ndcg_at_levels", "normalized_gain", "binary_gain", "smoothed_ap"},
    "test_ranking_diversity": {"alpha_ndcg", "average_popularity", "catalogue_coverage", "err_ia", "exposure_entropy",
                               "exposure_gini", "intra_list_diversity", "novelty", "personalisation",
                               "subtopic_recall", "tail_share"},
    "test_values": {"mean", "sum", "count", "variance", "ratio", "per_unit", "min", "max", "distinct_count",
                    "distinct_sample", "quantile", "error_quantile", "residual_quantile", "median_absolute_error"},
    "test_groups": {"group_auc", "group_log_loss", "group_calibration_error"},
    "test_calibration": {"calibration_curve", "calibration_table", "bucket_error"},
    "test_classes": {"confusion_matrix", "top_k_accuracy", "subset_accuracy", "coverage_error", "label_ranking_loss",
                     "label_ranking_average_precision"},
    "test_score_curves": {"thresholded_auc", "log_auc", "bedroc", "h_measure", "qini", "auuc", "uplift_curve"},
    "test_decisions": {"cluster_accuracy", "fleiss_kappa", "rand_score",
                       "adjusted_rand_score", "fowlkes_mallows_index", "pair_confusion_matrix",
                       "mutual_information", "expected_mutual_information", "normalized_mutual_information",
                       "adjusted_mutual_information", "homogeneity", "completeness", "v_measure",
                       "cramers_v", "tschuprows_t", "contingency_coefficient",
                       "demographic_parity_ratio", "equal_opportunity_ratio", "equalized_odds_ratio"},
    "logarithms, whose own error is bounded": {"log_loss", "normalized_entropy"},
}  # fmt: skip
"""Metrics whose oracle is in another file, or that no fraction is the truth of."""


def test_every_metric_has_an_oracle() -> None:
    known = {*ORACLES, *TERMS, *CURVES}.union(*ELSEWHERE.values())
    assert known == set(draws.OWN)


# -- rows ------------------------------------------------------------------------------------------------------------

STYLES = ("plain", "ties", "separated", "one a class", "few", "neighbours", "one class")


def scores_of(rng: np.random.Generator, n: int, style: str, real: bool, y: Any) -> Any:
    if style == "separated":
        s = (rng.random(n) + y) / 2 * (1 - 2.0**-20)
    elif style == "ties":
        s = rng.integers(0, 5, n) / 8
    elif style == "neighbours":
        s = np.abs(rng.choice([2.0**-3, 2.0**-127, 0.0, 0.75, 1.0], n) - rng.integers(0, 3, n) * 2.0**-60)
        s = np.nextafter(s, np.where(rng.random(n) < 0.5, 0.5, s))
    else:
        s = rng.random(n)
    return np.round((s - 0.5) * 8, 6) if real and style != "neighbours" else s


def check(metric: Any, value: Any, limits: Any, truth: Fraction | None, *, exact: bool) -> None:
    low, high = limits
    if truth is None:
        assert np.isnan([value, low, high]).all(), (metric, value, limits)
        return
    assert low <= value <= high, (metric, value, limits, float(truth))
    if low == high:
        assert value == float(truth), (metric, value, limits, float(truth))
    else:
        small = value < 2**-10 and high - low < 2**-58  # the state does not say that it had no bits below 2**-60
        assert small or not exact, (metric, value, limits, float(truth))
        assert F(low) <= truth <= F(high), (metric, value, limits, float(truth))
    if not math.isinf(high) and about_of(metric).value_range == (0, 1):
        assert 0 <= min(low, high) <= max(low, high) <= 1


def parts(metric: Any, y: Any, s: Any, w: list[Fraction]) -> list[Rows]:
    """The rows of each label, or of the one that there is."""
    if y.ndim == 1 and s.ndim == 1:
        return [list(zip(y.tolist(), s.tolist(), w, strict=True))]
    if y.ndim == 1:
        y = (y[:, None] == np.arange(s.shape[1])).astype(int)
    return [list(zip(y[:, i].tolist(), s[:, i].tolist(), w, strict=True)) for i in range(y.shape[1])]


def averaged(metric: Any, truths: list[Fraction | None], each: list[Rows]) -> Fraction | None:
    weights = [totals(rows)[0] if metric.average == "weighted" else F(1) for rows in each]
    known = [(t, w) for t, w in zip(truths, weights, strict=True) if t is not None and w]
    return sum((t * w for t, w in known), F(0)) / sum(w for _, w in known) if known else None


CERTIFIED = [
    m for m in draws.VARIANTS
    if (m.about.tag in ORACLES or (m.about.tag in TERMS and getattr(m, "scale", "probability") == "probability"
                             and getattr(m, "strategy", "uniform") == "uniform"))
    and isinstance(getattr(m, "threshold", 0.5), float) and getattr(m, "multi_class", "ovr") == "ovr"
    and m.settings.get("labels") is None and getattr(m, "average", None) != "samples"
    and not any(m.settings.get(n) for n in ("top_k", "num_outputs", "baseline"))
    and not (m.settings.get("num_classes") and (m.about.tag in {*TERMS, "accuracy", "balanced_accuracy", "cohen_kappa",
                                                          "matthews_corrcoef", "hamming_loss", "error_rate",
                                                          "geometric_mean_score"}))
] + [
    cls(**s) for tag, cls in draws.OWN.items() if tag in ORACLES and "bits" in cls.__dataclass_fields__
    for s in ({}, {"scale": "real"})
] + [sm.AUC(num_labels=3, average=a) for a in ("weighted", "micro", None)] + [
    sm.AveragePrecision(num_classes=3, average="weighted"), sm.F1(num_classes=3, average="weighted"),
]  # fmt: skip


def drawn(metric: Any, seed: int, style: str, kind: str) -> tuple[dict[str, Any], list[Rows]]:
    rng = np.random.default_rng(seed)
    n = {"one a class": 2, "few": int(rng.integers(1, 5))}.get(style, int(rng.integers(5, 25)))
    width = metric.settings.get("num_classes") or metric.settings.get("num_labels")
    of_classes, terms = bool(metric.settings.get("num_classes")), metric.about.tag in TERMS
    y = rng.integers(0, width if of_classes else 2, n if of_classes or not width else (n, width))
    if style == "one a class" and not width:
        y = np.array([0, 1])
    if style == "one class":
        y = y * 0 + int(rng.integers(2))
    flat = y if y.ndim == 1 and not of_classes else (y == 1)
    real = getattr(metric, "scale", "probability") != "probability"
    if width and of_classes:
        s = np.stack([scores_of(rng, n, style, real, flat) for _ in range(width)], axis=1)
        if not real:  # of probabilities of classes
            s = rng.integers(1, 64, (n, width)) / 64
            s[:, 0] = np.abs(1 - s[:, 1:].sum(axis=1)) if style == "ties" else s[:, 0]
            s = rng.multinomial(64, np.full(width, 1 / width), n) / 64
    elif width:
        s = np.stack([scores_of(rng, n, style, real, y[:, i]) for i in range(width)], axis=1)
    else:
        s = scores_of(rng, n, style, real, flat)
    given = s
    if of_classes and getattr(metric, "scale", "") == "logit":  # the log-odds of the softmax of the row
        others = [np.delete(s, i, axis=1) for i in range(width)]
        given = s - np.stack([logsumexp(o, axis=1) for o in others], axis=1)
    # The first of the classes with the highest score is predicted.
    if of_classes and metric.about.tag in ORACLES and metric.about.tag not in RANKED:
        given = (np.arange(width) == s.argmax(axis=1)[:, None]).astype(float)
    if terms:
        s = given = np.round(s * 256) / 256
    columns = {"y_true": y} if metric.about.tag == "ctr" and not of_classes else {"y_true": y, "y_score": s}
    if metric.about.tag == "ctr" and of_classes:
        columns = {"y_true": y}
    w = None if kind == "none" else weights_of(rng, n, kind)
    if w is not None:
        columns["sample_weight"] = w
    exact = [F(1)] * n if w is None else [F(x) for x in w.tolist()]
    return columns, parts(metric, y, given, exact)


@pytest.mark.parametrize("metric", CERTIFIED, ids=repr)
def test_the_truth_is_within_and_is_the_value_where_it_is_certain(metric: Any) -> None:
    kinds = ("none", "dyadic") if metric.about.tag in TERMS else WEIGHTS
    small = getattr(metric, "bits", 16) in (None, 16) and not metric.settings.get(
        "num_labels", metric.settings.get("num_classes")
    )
    oracle = {**ORACLES, **TERMS}[metric.about.tag]
    for k in range(max(1, int(draws.TIMES))):
        for i, style in enumerate(STYLES):
            for j, kind in enumerate(kinds):
                columns, each = drawn(metric, 1000 * k + 10 * i + j, style, kind)
                fed = empty_copy(metric).update(**columns)
                value, limits = without_warnings(fed.compute), without_warnings(fed.bounds)
                sure = kind in ("none", "dyadic", "ordinary") and (small or metric.about.tag not in RANKED)
                if len(each) == 1:
                    check(metric, value, limits, oracle(metric, each[0]), exact=sure)
                    continue
                if metric.average == "micro":
                    check(metric, value, limits, oracle(metric, [r for rows in each for r in rows]), exact=sure)
                    continue
                truths = [oracle(metric, rows) for rows in each]
                if metric.average is None:
                    for v, low, high, truth in zip(value, *limits, truths, strict=True):
                        check(metric, v, (low, high), truth, exact=sure)
                else:
                    check(metric, value, limits, averaged(metric, truths, each), exact=sure)


RANKED = {"auc", "gini", "average_precision", "ks", "lift", "max_fbeta", "recall_at_precision", "precision_at_recall",
          "sensitivity_at_specificity", "specificity_at_sensitivity", "equal_error_rate", "precision_at_k_rows",
          "enrichment_factor"}  # fmt: skip


@pytest.mark.parametrize("kind", WEIGHTS)
@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("make", [sm.ROCCurve, sm.PRCurve, sm.GainCurve])
def test_points_of_curves_are_rounded_once(make: Any, style: str, kind: str) -> None:
    metric = make(tolerance=0.0)
    columns, (rows,) = drawn(metric, 3, style, kind)
    P, N = totals(rows)
    fed = metric.update(**columns)
    found, low, high = without_warnings(fed.compute), *without_warnings(fed.bounds)
    steps = [(F(0), F(0)), *((tp, fp) for _, tp, fp in cuts(rows))]
    if make is sm.PRCurve:
        steps = steps[:0:-1]
        expected = [over(tp, tp + fp) for tp, fp in steps] + [F(1)], [over(tp, P) for tp, _ in steps] + [F(0)]
    elif make is sm.ROCCurve:
        expected = [over(fp, N) for _, fp in steps], [over(tp, P) for tp, _ in steps]
    else:
        expected = [over(tp + fp, P + N) for tp, fp in steps], [over(tp, P) for tp, _ in steps]
    for i, truths in enumerate(expected):
        for value, a, b, truth in zip(found[i].tolist(), low[i].tolist(), high[i].tolist(), truths, strict=True):
            if truth is None:
                assert value != value
            elif a == b:
                assert value == float(truth)
            else:
                assert kind in ("small", "wide", "mixed")
                assert a <= truth <= b


def test_what_leaves_float32_is_marked_lost() -> None:
    for exact in ({}, {"limit": 0}):
        low, high = sm.AUC(**exact).update([0, 1], [0.0, 2.0**-127]).bounds()
        assert low <= 1 <= high
    assert sm.AUC().update([0, 1], [0.0, 2.0**-127]).compute() == 1


def test_a_small_weight_is_noted_once_and_for_the_slice_that_has_it() -> None:
    y, s = [0, 1, 0, 1], [0.2, 0.4, 0.3, 0.1]
    w = [2.0**-36 * (1 + 2.0**-50), 1.0, 0.5, 0.25]
    whole = sm.AUC().update(y, s, sample_weight=w)
    assert whole.state.rounded == 1
    assert whole.bounds()[0] < whole.compute() < whole.bounds()[1]
    halves = (
        sm.AUC().update(y[:2], s[:2], sample_weight=w[:2]).merge(sm.AUC().update(y[2:], s[2:], sample_weight=w[2:]))
    )
    assert halves.to_bytes() == whole.to_bytes() == sm.from_bytes(whole.to_bytes()).to_bytes()
    sliced = sm.Sliced(sm.F1(), by="k").update(y_true=y, y_score=s, sample_weight=w, k=[1, 1, 2, 2])
    assert [sliced[k].state.rounded for k in (1, 2)] == [1, None]
    assert sliced.total.state.rounded == 1
    assert sm.AUC().update(y, s, sample_weight=[*w[1:], 2.0**-20]).state.rounded is None


@pytest.mark.parametrize("kind", WEIGHTS)
@pytest.mark.parametrize("n", [2, 3, 20])
def test_numbers_are_rounded_once_at_any_weight(n: int, kind: str) -> None:
    for seed in range(5):
        rng = np.random.default_rng(seed)
        y, p = rng.normal(1e3, 1, n), rng.normal(1e3, 1, n)
        d = np.round(rng.normal(0, 9, n) * 8) / 8  # whose squares are floats
        w = None if kind == "none" else weights_of(rng, n, kind if kind != "mixed" else "wide") + (kind == "dyadic") / 8
        u = [F(1)] * n if w is None else [F(x) for x in w.tolist()]
        a, b, e = ([F(x) for x in v.tolist()] for v in (y, p, d))
        weights = {} if w is None else {"sample_weight": w}
        total = sum(u)
        left = sum(((x - z) ** 2 * v for x, z, v in zip(a, b, u, strict=True)), F(0))
        value, of_errors = spread(a, a, u), sum((x * x * v for x, v in zip(e, u, strict=True)), F(0)) / total
        covariance = spread(a, b, u)
        expected = {
            "r2": 1 - left / value,
            "explained_variance": 1 - spread(*[[x - z for x, z in zip(a, b, strict=True)]] * 2, u) / value,
            "pearson_correlation": root(covariance**2 / (value * spread(b, b, u)), -1 if covariance < 0 else 1),
            "mean_error": sum(((z - x) * v for x, z, v in zip(a, b, u, strict=True)), F(0)) / total,
            "mean": sum((x * v for x, v in zip(a, u, strict=True)), F(0)) / total,
            "variance": value / total,
            "count": total,
        }  # fmt: skip
        for tag, truth in expected.items():
            metric = sm.extend.METRICS[tag]()
            metric.update(**({"value": y} if "value" in columns_of(metric) else {"y_true": y, "y_pred": p}), **weights)
            assert metric.compute() == float(truth), metric
            assert metric.bounds() == (metric.compute(),) * 2
        if kind not in ("none", "dyadic"):
            continue  # each w d^2 is rounded
        for metric, truth in ((sm.MSE(), of_errors), (sm.RMSE(), root(of_errors))) if total else ():
            assert metric.update(d * 0, d, **weights).compute() == float(truth), metric


def test_what_leaves_the_floats_is_within_its_bounds() -> None:
    heavy = sm.D2Pinball(alpha=1e-300, bits=4).update([1.0, 1.05, 3.0], [2.0**300, 1.0, 1.0])
    assert heavy.compute() == heavy.bounds()[0] == -np.inf
    rows = [1] * 40 + [0], np.linspace(0, 1, 41)
    early = sm.BEDROC(alpha=1e-3).update(*rows, sample_weight=[2.0**30] * 40 + [2.0**-36])
    assert early.bounds() == (0, 1)
