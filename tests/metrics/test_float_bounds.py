"""Bounds of metrics computed in float64 hold the truth of 60 digits, also of rows whose weights are far apart."""

from __future__ import annotations

import decimal
import itertools
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from weighed_rows import WEIGHTS, Rows, cuts, totals, weights_of

import streammetrics as sm
from streammetrics.collect.metric_like import empty_copy
from streammetrics.laws.case import without_warnings

F = Fraction
D = Decimal
CONTEXT = decimal.Context(prec=80, Emin=-decimal.MAX_EMAX, Emax=decimal.MAX_EMAX)


def d(x: Any) -> Decimal:
    """The nearest of 80 digits."""
    x = F(x)
    return CONTEXT.divide(D(x.numerator), D(x.denominator))


def steps(rows: Rows) -> list[tuple[Fraction, Fraction]]:
    """Positives and negatives of each score, from the highest down."""
    points = [(F(0), F(0)), *((tp, fp) for _, tp, fp in cuts(rows))]
    return [(b[0] - a[0], b[1] - a[1]) for a, b in itertools.pairwise(points)]


# -- the truth -------------------------------------------------------------------------------------------------------


def bedroc(m: Any, rows: Rows) -> Decimal:
    (P, N), alpha, above, total = totals(rows), d(m.alpha), F(0), D(0)
    share = d(P / (P + N))
    for a, c in steps(rows):
        size = d((a + c) / (P + N))
        total += d(a / P) * (-alpha * d(above / (P + N))).exp() * (1 - (-alpha * size).exp()) / (alpha * size)
        above += a + c
    most, least = (1 - (-alpha * share).exp()) / (alpha * share), (-alpha * d(N / (P + N))).exp()
    return (total / most - least) / (1 - least)


def log_auc(m: Any, rows: Rows) -> Decimal:
    P, N = totals(rows)
    low, high, tp, fp, area = F(m.min_fpr), F(m.max_fpr), F(0), F(0), D(0)
    for a, c in steps(rows):
        x, y, t, u = fp / N, (fp + c) / N, tp / P, (tp + a) / P
        begin, end = max(x, low), min(y, high)
        if end > begin:
            heights = (t + (u - t) * (at - x) / (y - x) for at in (begin, end))
            area += (d(end).ln() - d(begin).ln()) * d(sum(heights) / 2)
        tp, fp = tp + a, fp + c
    return area / (d(high).ln() - d(low).ln())


def h_measure(m: Any, rows: Rows) -> Decimal:
    P, N = totals(rows)
    tops: list[tuple[Fraction, Fraction]] = []
    for a, c in steps(rows):
        while tops and a * tops[-1][1] >= tops[-1][0] * c:
            a, c = a + tops[-1][0], c + tops.pop()[1]
        tops.append((a, c))
    share = d(P / (P + N)) if m.prior == "hand2014" else None
    return 1 - sum((loss(a, c, share) for a, c in tops), D(0)) / loss(P, N, share)


def loss(a: Fraction, c: Fraction, share: Decimal | None) -> Decimal:
    """G(a, c), but for a factor."""
    q, r = d(a / (a + c)), d(c / (a + c))
    first, second = (D(2), D(2)) if share is None else (1 + share, 2 - share)
    return d(c) * below(q, first + 1, second) + d(a) * below(r, second + 1, first)


def below(x: Decimal, a: Decimal, b: Decimal) -> Decimal:
    """The integral of t^(a - 1) (1 - t)^(b - 1) from 0 to x, by its series; of a large x the whole less the rest."""
    if x > D("0.5"):
        return below(D("0.5"), a, b) + below(D("0.5"), b, a) - below(1 - x, b, a)
    if not x:
        return D(0)
    term = total = D(1)
    for k in range(300):
        term *= (a + b + k) / (a + 1 + k) * x
        total += term
    return (a * x.ln() + b * (1 - x).ln()).exp() / a * total


def thresholded(m: Any, rows: Rows) -> Decimal:
    n, (P, N) = m.num_thresholds, totals(rows)
    above = [(sum((w for y, s, w in rows if y and s > t), F(0)), sum((w for y, s, w in rows if not y and s > t), F(0)))
             for t in [-1.0, *(np.arange(1, n - 1) / (n - 1)).tolist(), 2.0]]  # fmt: skip
    total = D(0)
    for (tp, fp), (tq, fq) in itertools.pairwise(above):
        x, t, u = (tp - tq) / P, over(tp, tp + fp), over(tq, tq + fq)
        if m.curve == "ROC":
            x, t, u = (fp - fq) / N, tp / P, tq / P
        elif m.summation_method == "interpolation":
            slope = over(tp - tq, tp + fp - tq - fq)
            rest, more = tq - slope * (tq + fq), over(tp + fp, tq + fq)
            total += d(slope / P) * (d(tp - tq) + d(rest) * (d(more).ln() if tp + fp and tq + fq else 0))
            continue
        total += d(x * {"interpolation": (t + u) / 2, "minoring": min(t, u), "majoring": max(t, u)}[m.summation_method])
    return total


def over(a: Fraction, b: Fraction) -> Fraction:
    return a / b if b else F(0)


TRUTHS: list[tuple[Callable[[Any, Rows], Decimal], list[Any]]] = [
    (bedroc, [sm.BEDROC(alpha=a) for a in (1e-3, 0.5, 20.0, 600.0)]),
    (log_auc, [sm.LogAUC(min_fpr=a, max_fpr=b) for a, b in ((1e-3, 0.1), (1e-300, 1.0), (1e-9, 1e-8), (0.5, 0.5000001))]),
    (h_measure, [sm.HMeasure(prior=p) for p in ("beta22", "hand2014")]),
    (thresholded, [sm.ThresholdedAUC(num_thresholds=n, curve=c, summation_method=m) for n in (2, 7, 200)
                   for c in ("ROC", "PR") for m in ("interpolation", "minoring", "majoring")]),
]  # fmt: skip
CASES = [pytest.param(truth, metric, id=repr(metric)) for truth, metrics in TRUTHS for metric in metrics]


def holds(found: Any, truth: Decimal, rows: Any) -> None:
    """Between its bounds, or what these say is exact."""
    value, (low, high) = found.compute(), found.bounds()
    assert low <= value <= high
    low, high = (D(x) for x in (low, high))  # of infinities too
    assert low <= truth <= high or low == high == D(float(truth)), (found, float(truth), low, high, rows)


def scores(rng: np.random.Generator, n: int) -> Any:
    return rng.choice([rng.random(n), rng.integers(0, 9, n) / 8, 0.5 + rng.integers(0, 99, n) * 2.0**-12])


# Some cases have few bits, and the truth has to be within their wide bounds.
@pytest.mark.filterwarnings("ignore::streammetrics.errors.WideBoundsWarning")
@pytest.mark.parametrize(("truth", "metric"), CASES)
@pytest.mark.parametrize("kind", [*WEIGHTS, "one is most"])
def test_the_truth_is_within(truth: Callable[[Any, Rows], Decimal], metric: Any, kind: str) -> None:
    with decimal.localcontext(CONTEXT):
        for seed in range(12):
            rng = np.random.default_rng(seed)
            n = int(rng.integers(2, 25))
            y, s = rng.integers(0, 2, n), scores(rng, n)
            w = None if kind == "none" else weights_of(rng, n, kind)
            if kind == "one is most":
                w = np.where(np.arange(n) == n // 2, 1e6, 1.0)
                y[n // 2] = 1
            rows: Rows = list(zip(y.tolist(), s.tolist(), map(F, [1] * n if w is None else w.tolist()), strict=True))
            for coarse in ({}, {"bits": 8, "limit": 0}):
                found = type(metric)(**(metric.settings | coarse)).update(y, s, sample_weight=w)
                if not all(totals(rows)):
                    assert np.isnan(without_warnings(found.compute))
                    continue
                holds(found, truth(metric, rows), rows)


# -- uplift ----------------------------------------------------------------------------------------------------------


def gained(kind: str, parts: list[Any]) -> tuple[Fraction, Fraction]:
    """The area of a curve, and its last height, of parts of treated and control rows and the positives of both."""
    at, points = [F(0)] * 4, [(F(0), F(0))]
    for part in parts:
        at = [a + b for a, b in zip(at, part, strict=True)]
        nt, nc, yt, yc = at
        height = yt - over(yc * nt, nc) if kind == "qini" else (over(yt, nt) - over(yc, nc)) * (nt + nc)
        points.append((nt + nc, height))
    area = sum(((b[0] - a[0]) * (b[1] + a[1]) / 2 for a, b in itertools.pairwise(points)), F(0))
    return area, points[-1][1]


def uplift(m: Any, y: Any, s: Any, t: Any, w: list[Fraction]) -> Fraction | None:
    def parts(keys: Any) -> list[Any]:
        return [
            [sum((v for z, u, k, v in zip(y, t, keys, w, strict=True) if k == key and u == arm and z >= least), F(0))
             for least in (0, 1) for arm in (1, 0)]
            for key in sorted({k for k, v in zip(keys, w, strict=True) if v}, reverse=True)
        ]  # fmt: skip

    kind = m.kind
    (area, end), rows = gained(kind, parts(s)), sum(w, F(0))
    if m.norm == "rows":
        return (area - (end * rows / 2 if kind == "qini" else 0)) / rows**2
    if m.norm == "total":
        return (area - (end * rows / 2 if kind == "qini" else 0)) / abs(end) / rows if end else None
    if kind == "qini":
        best = gained(kind, parts([z * u - z * (1 - u) for z, u in zip(y, t, strict=True)]))[0]
        if not m.negative_effect:
            best = end * end / 2 + (rows - end) * end
    else:
        control = sum((v for z, u, v in zip(y, t, w, strict=True) if z and not u), F(0))
        harmed = sum((v for z, u, v in zip(y, t, w, strict=True) if u and not z), F(0))
        more = y if control > harmed else t
        best = gained(kind, parts([2 * (z == u) + k for z, u, k in zip(y, t, more, strict=True)]))[0]
    chance = end * rows / 2
    return (area - chance) / (best - chance) if best != chance else None


LIFTS = [
    *(sm.QiniCoefficient(norm=n) for n in ("perfect", "total", "rows")),
    sm.QiniCoefficient(negative_effect=False),
    *(sm.AUUC(norm=n) for n in ("perfect", "total", "rows")),
]


@pytest.mark.slow
@pytest.mark.parametrize("metric", LIFTS, ids=repr)
@pytest.mark.parametrize("kind", WEIGHTS)
def test_the_true_uplift_is_within(metric: Any, kind: str) -> None:
    with decimal.localcontext(CONTEXT):
        for seed in range(40):
            rng = np.random.default_rng(seed)
            n = int(rng.integers(2, 25))
            y, t, s = rng.integers(0, 2, n), rng.integers(0, 2, n), scores(rng, n)
            w = None if kind == "none" else weights_of(rng, n, kind)
            weights = [F(1)] * n if w is None else list(map(F, w.tolist()))
            if len({u for u, v in zip(t.tolist(), weights, strict=True) if v}) < 2:
                continue
            truth = uplift(metric, y.tolist(), s.tolist(), t.tolist(), weights)
            for coarse in ({}, {"bits": 8, "limit": 0}):
                found = type(metric)(**(metric.settings | coarse)).update(y, s, treatment=t, sample_weight=w)
                if truth is None:
                    assert np.isnan(without_warnings(found.compute))
                elif not np.isnan(without_warnings(found.compute)):
                    holds(found, d(truth), (y, s, t, weights))


# -- what labelings tell of each other -------------------------------------------------------------------------------


def surprises(parts: dict[Any, Fraction]) -> Decimal:
    """The entropy of parts."""
    total = sum(parts.values())
    return -sum((d(part / total) * d(part / total).ln() for part in parts.values()), D(0))


def together(rows: list[tuple[Any, Any, Fraction]]) -> tuple[Decimal, Decimal, Decimal]:
    """Mutual information and both entropies."""
    keys = [[row[:2], row[0], row[1]] for row in rows]
    sides: list[dict[Any, Fraction]] = [{}, {}, {}]
    for each, row in zip(keys, rows, strict=True):
        for side, key in zip(sides, each, strict=True):
            side[key] = side.get(key, F(0)) + row[2]
    both, true, predicted = map(surprises, sides)
    return true + predicted - both, true, predicted


SHARES = [
    (sm.MutualInformation(), lambda i, t, p: i),
    (sm.NormalizedMutualInformation(), lambda i, t, p: 2 * i / (t + p)),
    (sm.NormalizedMutualInformation(average_method="geometric"), lambda i, t, p: i / (t * p).sqrt()),
    (sm.Homogeneity(), lambda i, t, p: i / t),
    (sm.Completeness(), lambda i, t, p: i / p),
    (sm.VMeasure(beta=0.5), lambda i, t, p: D("1.5") * i / (D("0.5") * p + t)),
]


@pytest.mark.parametrize(("metric", "share"), SHARES, ids=[repr(m) for m, _ in SHARES])
@pytest.mark.parametrize("kind", ["none", "far apart", "small", "one is nearly all"])
def test_what_labelings_tell(metric: Any, share: Any, kind: str) -> None:
    with decimal.localcontext(CONTEXT):
        for seed in range(12):
            rng = np.random.default_rng(seed)
            n = int(rng.integers(4, 25))
            true, predicted = rng.integers(0, 3, n), rng.integers(0, 3, n)
            w = {
                "none": np.ones(n),
                "far apart": 2.0 ** rng.integers(-36, 20, n),
                "small": 2.0**-36 * (1 + rng.random(n)),
                "one is nearly all": np.where(np.arange(n) == 0, 2.0**30, 2.0**-36 * (1 + rng.random(n))),
            }[kind]
            rows = [(a, b, F(v)) for a, b, v in zip(true.tolist(), predicted.tolist(), w.tolist(), strict=True)]
            mutual = together(rows)
            if not min(mutual[1:]) or mutual[0] < D("1e-60"):
                continue
            found = empty_copy(metric).update(true, predicted, sample_weight=w)
            holds(found, share(*mutual), rows)
            low, high = found.bounds()
            assert high - low < 1e-13 * high or kind in ("small", "one is nearly all")
