"""One line for every metric of curves that others do not have a line for: what it must equal, retyped from the peer.

References take labels, float64 scores and weights; those of uplift a column of treatments, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from oracles import Oracle, best, counted, near
from oracles_classes import averages, each
from scipy import integrate, special
from sklearn import metrics as sk

Array = Any


def rates(y: Array, s: Array, w: Array) -> tuple[Array, Array]:
    """False and true positive rates, from threshold infinity down."""
    tp, fp, _ = counted(y, s, w)
    return fp / fp[-1], tp / tp[-1]


def equal_error(y: Array, s: Array, w: Array) -> float:
    """torchmetrics' EER."""
    tp, fp, _ = counted(y, s, w)
    at = np.argmin(np.abs(fp * tp[-1] - (tp[-1] - tp) * fp[-1]))
    return float(fp[at] / fp[-1] + 1 - tp[at] / tp[-1]) / 2


def found_in(cut: float, y: Array, s: Array, w: Array) -> float:
    """Positives in so much weight of the highest scores, ties by their share."""
    tp, fp, _ = counted(y, s, w)
    return float(np.interp(cut, (tp + fp).astype(float), tp.astype(float)))


def enrichment(fraction: tuple[int, int]) -> Callable[[Array, Array, Array], float]:
    """RDKit's CalcEnrichment, of rows whose weights are counts."""

    def of(y: Array, s: Array, w: Array) -> float:
        cut = min(math.ceil(round(w.sum() * fraction[0] / fraction[1], 9)), w.sum())
        return found_in(cut, y, s, w) / cut / ((w * y).sum() / w.sum())

    return of


def bedroc(alpha: float) -> Callable[[Array, Array, Array], float]:
    """Truchon and Bayly's BEDROC; of equal scores the mean over their places."""

    def of(y: Array, s: Array, w: Array) -> float:
        tp, fp, _ = counted(y, s, w)
        x = ((tp + fp) / (tp + fp)[-1]).astype(float)
        share = float(tp[-1] / (tp + fp)[-1])
        means = -np.exp(-alpha * x[:-1]) * np.expm1(-alpha * np.diff(x)) / np.diff(x)
        rie = (np.diff(tp) / tp[-1] * means).sum() / -np.expm1(-alpha)
        most = -np.expm1(-alpha * share) / share / -np.expm1(-alpha)
        least = np.expm1(alpha * share) / share / np.expm1(alpha)
        return float((rie - least) / (most - least))

    return of


def log_auc(low: float, high: float) -> Callable[[Array, Array, Array], float]:
    """torchmetrics' LogAUC."""

    def of(y: Array, s: Array, w: Array) -> float:
        x, t = (v.astype(float) for v in rates(y, s, w))
        ends = np.array([low, high])
        at = np.clip((ends[:, None] >= x[None]).sum(axis=1) - 1, 0, len(x) - 2)
        with np.errstate(divide="ignore", invalid="ignore"):
            inside = t[at] + (ends - x[at]) * ((t[at + 1] - t[at]) / (x[at + 1] - x[at]))
        inside = np.where(ends >= x[-1], t[-1], inside)
        t, x = np.sort(np.r_[t, inside]), np.sort(np.r_[x, ends])
        first, last = (np.flatnonzero(x == end)[-1] for end in ends)
        part = slice(first, last + 1)
        return float(integrate.trapezoid(t[part], np.log10(x[part])) / (np.log10(high) - np.log10(low)))

    return of


def h_measure(prior: str) -> Callable[[Array, Array, Array], float]:
    """Hand's H by the lower envelope of the losses of all thresholds, and incomplete beta functions."""

    def of(y: Array, s: Array, w: Array) -> float:
        tp, fp, _ = counted(y, s, w)
        P, N = tp[-1], fp[-1]
        share = float(P / (P + N))
        a, b = (2.0, 2.0) if prior == "beta22" else (1 + share, 2 - share)

        def losses(fp: Array, fn: Array, low: Array, high: Array) -> Array:
            first = special.betainc(a + 1, b, high) - special.betainc(a + 1, b, low)  # of c u(c), but for a / (a + b)
            second = special.betainc(a, b + 1, high) - special.betainc(a, b + 1, low)
            return fp * a * first + fn * b * second

        stack: list[int] = []
        for i in range(len(tp)):
            while len(stack) > 1 and (tp[i] - tp[stack[-2]]) * (fp[stack[-1]] - fp[stack[-2]]) >= (
                (tp[stack[-1]] - tp[stack[-2]]) * (fp[i] - fp[stack[-2]])
            ):
                stack.pop()
            stack.append(i)
        tops, falls = tp[stack].astype(float), fp[stack].astype(float)
        costs = np.r_[1.0, np.diff(tops) / (np.diff(tops) + np.diff(falls)), 0.0]
        loss = losses(falls, float(P) - tops, costs[1:], costs[:-1]).sum()
        base = losses(
            np.array([0.0, float(N)]), np.array([float(P), 0.0]), np.array([share, 0]), np.array([1, share])
        ).sum()
        return float(1 - loss / base)

    return of


def keras(n: int, curve: str, how: str) -> Callable[[Array, Array, Array], float]:
    """`keras.metrics.AUC(num_thresholds=n, curve=curve, summation_method=how)` in float64."""

    def divide(a: Array, b: Array) -> Array:
        return np.divide(a, b, out=np.zeros_like(a), where=b != 0)

    def of(y: Array, s: Array, w: Array) -> float:
        thresholds = np.r_[-1e-7, np.arange(1, n - 1) / (n - 1), 1 + 1e-7]
        tp, fp = (np.array([w[(s > t) & (y == c)].sum() for t in thresholds]) for c in (1, 0))
        P, N = w[y == 1].sum(), w[y == 0].sum()
        if curve == "PR" and how == "interpolation":
            found, p = tp[:-1] - tp[1:], tp + fp
            slope = divide(found, np.maximum(p[:-1] - p[1:], 0))
            intercept = tp[1:] - slope * p[1:]
            both = (p[:-1] > 0) & (p[1:] > 0)
            ratio = np.where(both, divide(p[:-1], np.maximum(p[1:], 0)), 1.0)
            return float((slope * (found + intercept * np.log(ratio)) / P).sum())
        x, t = (fp / N, tp / P) if curve == "ROC" else (tp / P, divide(tp, tp + fp))
        heights = {
            "interpolation": (t[:-1] + t[1:]) / 2,
            "minoring": np.minimum(t[:-1], t[1:]),
            "majoring": np.maximum(t[:-1], t[1:]),
        }
        return float(((x[:-1] - x[1:]) * heights[how]).sum())

    return of


def trade_off(y: Array, s: Array, w: Array) -> tuple[Array, ...]:
    """scikit-learn's DET curve."""
    kept = w > 0
    return sk.det_curve(y[kept], s[kept], sample_weight=w[kept], drop_intermediate=False)


# -- uplift ----------------------------------------------------------------------------------------------------------


def curve(kind: str, y: Array, s: Array, w: Array, t: Array) -> tuple[Array, Array]:
    """scikit-uplift's `qini_curve` and `uplift_curve`, with weights."""
    order = np.argsort(-s, kind="mergesort")
    order = order[w[order] > 0]
    y, s, w, t = y[order], s[order], w[order], t[order]
    ends = np.flatnonzero(np.r_[np.diff(s) != 0, True])
    nt, nc, yt, yc = (np.cumsum(w * v)[ends] for v in (t, 1 - t, y * t, y * (1 - t)))

    def share(a: Array, b: Array) -> Array:
        return np.divide(a, b, out=np.zeros(len(a)), where=b != 0)

    values = yt - yc * share(nt, nc) if kind == "qini" else (share(yt, nt) - share(yc, nc)) * (nt + nc)
    return np.r_[0.0, nt + nc], np.r_[0.0, values]


def uplift(kind: str, norm: str = "perfect", *, harm: bool = True) -> Callable[[Array, Array, Array, Array], float]:
    """scikit-uplift's `qini_auc_score` and `uplift_auc_score`; causalml's norm, by trapezoids."""

    def of(y: Array, s: Array, w: Array, t: Array) -> float:
        x, values = curve(kind, y, s, w, t)
        area, chance = integrate.trapezoid(values, x), x[-1] * values[-1] / 2
        if norm == "rows":
            return float((area - (chance if kind == "qini" else 0)) / x[-1] ** 2)
        if norm == "total":
            return float((area - (chance if kind == "qini" else 0)) / x[-1] / abs(values[-1]))
        if kind == "uplift":
            more = y if (w * y * (1 - t)).sum() > (w * (1 - y) * t).sum() else t
            perfect = curve(kind, y, 2 * (y == t) + more, w, t)
        else:
            perfect = curve(kind, y, y * t - y * (1 - t), w, t)
        if not harm:
            gain = values[-1]
            perfect = np.array([0, gain, x[-1]]), np.array([0, gain, gain])
        return float((area - chance) / (integrate.trapezoid(perfect[1], perfect[0]) - chance))

    return of


def per_row(kind: str) -> Callable[[Array, Array, Array, Array], tuple[Array, Array]]:
    """A curve with all rows as one."""

    def of(*columns: Array) -> tuple[Array, Array]:
        x, values = curve(kind, *columns)
        return x / x[-1], values / x[-1]

    return of


def at_sensitivity(least: float) -> Callable[[Array, Array, Array], float]:
    """The best specificity."""
    return best(lambda tp, fp, P, N: np.where(near(tp / P) >= least, 1 - fp / N, np.nan))


SUMS = ("interpolation", "minoring", "majoring")
ORACLES: dict[str, list[Any]] = {
    "specificity_at_sensitivity": [Oracle({"sensitivity": v}, at_sensitivity(v)) for v in (0.0, 0.25, 0.9)],
    "equal_error_rate": [Oracle({}, equal_error)],
    "precision_at_k_rows": [
        Oracle({"k": k}, lambda y, s, w, k=k: found_in(min(k, w.sum()), y, s, w) / min(k, w.sum()))
        for k in (3, 100, 10**6)
    ],
    "enrichment_factor": [Oracle({"fraction": a / b}, enrichment((a, b))) for a, b in ((1, 100), (1, 10), (1, 1))],
    "bedroc": [Oracle({"alpha": a}, bedroc(a)) for a in (0.5, 20.0, 160.9)],
    "log_auc": [
        Oracle({"min_fpr": a, "max_fpr": b}, log_auc(a, b)) for a, b in ((0.001, 0.1), (0.03, 0.5), (0.25, 1.0))
    ],
    "h_measure": [Oracle({"prior": p}, h_measure(p)) for p in ("beta22", "hand2014")],
    "thresholded_auc": [
        Oracle({"num_thresholds": n, "curve": c, "summation_method": m}, keras(n, c, m))
        for n in (2, 3, 200)
        for c in ("ROC", "PR")
        for m in SUMS
    ],
    "det_curve": [Oracle({"tolerance": 0.0}, trade_off)],
    "qini": [
        Oracle({}, uplift("qini")),  # type: ignore[arg-type]
        Oracle({"negative_effect": False}, uplift("qini", harm=False)),  # type: ignore[arg-type]
        *(Oracle({"norm": n}, uplift("qini", n)) for n in ("total", "rows")),  # type: ignore[arg-type]
    ],
    "auuc": [Oracle({"norm": n}, uplift("uplift", n)) for n in ("perfect", "total", "rows")],  # type: ignore[arg-type]
    "uplift_curve": [Oracle({"kind": k, "tolerance": 0.0}, per_row(k)) for k in ("qini", "uplift")],  # type: ignore[arg-type]
}
UPLIFT = ("qini", "auuc", "uplift_curve")

BINARY = {
    "max_fbeta": ({}, best(lambda tp, fp, P, N: 2 * tp / (P + tp + fp))),
    "recall_at_precision": (
        {"precision": 0.5},
        best(lambda tp, fp, P, N: np.where((tp + fp == 0) | (tp / (tp + fp) >= 0.5), tp / P, np.nan)),
    ),
    "precision_at_recall": (
        {"recall": 0.5},
        best(lambda tp, fp, P, N: np.where(tp / P >= 0.5, tp / (tp + fp), np.nan)),
    ),
    "sensitivity_at_specificity": (
        {"specificity": 0.5},
        best(lambda tp, fp, P, N: np.where(1 - fp / N >= 0.5, tp / P, np.nan)),
    ),
    "lift": ({"fraction": 0.25}, lambda y, s, w: found_in(0.25 * w.sum(), y, s, w) / (w * y).sum() / 0.25),
}
SEVERAL: dict[str, Any] = {
    **{tag: (averages(of, **settings), [Oracle(settings, each(of))]) for tag, (settings, of) in BINARY.items()},
    **{
        tag: ([Oracle(lines[-1].settings, each(lines[-1].of))],) * 2
        for tag, lines in ORACLES.items()
        if tag not in (*UPLIFT, "det_curve")
    },
}
"""The same metrics of classes and of labels."""
