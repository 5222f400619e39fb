"""Coverage and width of intervals in small samples of independent rows, and of comparisons of few units.

The width stands beside each coverage, relative to an interval with the normal quantile or, for few units, with 64 shards.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import streammetrics as sm
from benchmarks.report import table, verdict
from benchmarks.simulated import SHARDS
from streammetrics.inference.differences import compute_differences
from streammetrics.inference.interpretation import ComparisonSettings, interpret
from streammetrics.inference.pairs import Pair, select_cells
from streammetrics.inference.shard_counts import choose_count
from streammetrics.reading.interval import FEW
from streammetrics.reading.replicates import Sample, Shards

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Rows = dict[str, Any]
BATCH = 500  # runs side by side
Z = 1.959963984540054


class Case(NamedTuple):
    """A metric of independent rows, and the least coverage that its interval needs without a label.

    `draw` returns the columns of so many runs of n rows each; `truth` is the value of the population.
    """

    metric: Any
    n: int
    truth: float
    draw: Callable[[np.random.Generator, int], Rows]
    least: float


def rates(rate: float, sigma: float) -> Callable[[np.random.Generator, int], Rows]:
    """Clicks with lognormal weights."""

    def draw(rng: np.random.Generator, rows: int) -> Rows:
        weights = np.exp(rng.normal(0.0, sigma, rows))
        return {"y_true": (rng.random(rows) < rate).astype(np.uint8)} | ({"sample_weight": weights} if sigma else {})

    return draw


def losses(a: float, b: float) -> Callable[[np.random.Generator, int], Rows]:
    """Labels with the probability that is predicted, which has a beta distribution."""

    def draw(rng: np.random.Generator, rows: int) -> Rows:
        p = np.clip(rng.beta(a, b, rows), 1e-6, 1.0 - 1e-6)
        return {"y_true": (rng.random(rows) < p).astype(np.uint8), "y_score": p}

    return draw


def entropy(a: float, b: float) -> float:
    """Return the log-loss of all labels that `losses` could draw."""
    p = np.clip(np.random.default_rng(0).beta(a, b, 4_000_000), 1e-6, 1.0 - 1e-6)
    return float(-(p * np.log(p) + (1.0 - p) * np.log1p(-p)).mean())


def values(name: str) -> Callable[[np.random.Generator, int], Rows]:
    return lambda rng, rows: {"value": getattr(rng, name)(size=rows)}


def build_cases() -> dict[str, Case]:
    """Return all cases by name."""
    cases = {}
    for n in (30, 100, 300):
        for rate, sigma in ((0.5, 0.0), (0.3, 0.5), (0.1, 1.0), (0.5, 1.0)):
            weights = f"weights sigma {sigma}" if sigma else "no weights"
            cases[f"rate {rate}, {weights}, n = {n}"] = Case(sm.CTR(), n, rate, rates(rate, sigma), 0.94)
        for a, b in ((2.0, 2.0), (1.0, 3.0)):
            loss = Case(sm.LogLoss(), n, entropy(a, b), losses(a, b), 0.94)
            cases[f"log-loss, beta({a:g}, {b:g}), n = {n}"] = loss
        mean = sm.Mean(squares=True)
        cases[f"mean of exponentials, n = {n}"] = Case(mean, n, 1.0, values("standard_exponential"), 0.93)
        cases[f"mean of uniform values, n = {n}"] = Case(mean, n, 0.5, values("random"), 0.94)
    return cases


def small_coverage(case: Case, runs: int, seed: int = 9) -> tuple[float, float, float]:
    """Return the share of intervals that contain the truth, their relative width, and the share with a label."""
    rng = np.random.default_rng(seed)
    hits = width = usual = labels = 0.0
    for first in range(0, runs, BATCH):
        some = min(BATCH, runs - first)
        rows = case.draw(rng, some * case.n) | {"run": np.repeat(np.arange(some), case.n)}
        for one in sm.Sliced(case.metric.copy(), by="run").update(rows).interval().values():
            hits += one.low <= case.truth <= one.high
            width += one.high - one.low
            usual += 2.0 * Z * one.standard_error
            labels += FEW in one.method
    return hits / runs, width / usual, labels / runs


def show_small(runs: int) -> None:
    """Print the coverage of small samples, then of comparisons of few units; fewer runs leave room for chance."""
    slack = 0.0 if runs >= 3000 else 4.0 * math.sqrt(0.05 * 0.95 / runs)
    rows = []
    for name, case in build_cases().items():
        part, width, label = small_coverage(case, runs)
        # The Monte-Carlo error of 3,000 runs is 0.4 points; the limits leave room for three of them.
        good = label >= 0.9 or case.least - 0.012 - slack <= part
        figures = [f"{100.0 * part:.1f}", f"{width:.2f}", f"{100.0 * label:.0f}"]
        rows.append([name, *figures, verdict(name, good)])
    head = ["", "covers, %", "width / z width", "labelled, %", ""]
    table(f"95 % intervals of small samples, {runs:,} runs", head, rows)
    rows = []
    for name, (units, apart) in UNITS.items():
        part, width, refused, before = unit_coverage(units, apart, runs)
        good = 0.94 - 0.012 - slack <= part <= 0.965 + 0.012 + slack and refused <= 0.01 and width <= 1.06
        figures = [f"{100.0 * part:.1f}", f"{width:.3f}", f"{100.0 * refused:.1f}", f"{100.0 * before:.1f}"]
        rows.append([name, *figures, verdict(name, good)])
    head = ["", "covers, %", "width / 64 shards", "none, %", "none over 64 shards, %", ""]
    table(f"95 % intervals of differences of few units, {runs:,} runs", head, rows)


# -- few units ---------------------------------------------------------------------------------------------------------

UNITS = {
    "two models, 50 queries": (50, False),
    "two models, 100 queries": (100, False),
    "two models, 200 queries": (200, False),
    "two arms of 50 users": (50, True),
    "two arms of 100 users": (100, True),
}
ROWS = 4  # of a unit


def split_shards(rng: np.random.Generator, shards: Ints, tastes: Floats) -> tuple[Floats, Floats]:
    """Return the clicks and the rows in each of 64 shards and run, of units with these shards and probabilities."""
    clicks, rows = (np.zeros((SHARDS, shards.shape[1])) for _ in range(2))
    at = shards, np.broadcast_to(np.arange(shards.shape[1]), shards.shape)
    np.add.at(clicks, at, rng.binomial(ROWS, tastes))
    np.add.at(rows, at, ROWS)
    return clicks, rows


def sample_of(clicks: Floats, rows: Floats) -> Sample:
    """Return the click rate of each run, as `Sharded` has it of slices."""

    def replicate(count: int) -> Floats:
        top, bottom = (x.reshape(count, -1, x.shape[1]).sum(axis=1) for x in (clicks, rows))
        deleted: Floats = (top.sum(axis=0) - top) / (bottom.sum(axis=0) - bottom)
        return deleted

    values = clicks.sum(axis=0) / rows.sum(axis=0)
    keys = [(i,) for i in range(values.size)]
    shards = Shards(("user", SHARDS, "integer"), replicate, rows, rows, events_names="rows")
    return Sample(
        "ctr", sm.CTR(), keys, values, values, values, rows.sum(axis=0).astype(np.int64), list, shards
    )  # fmt: skip


def unit_coverage(units: int, apart: bool, runs: int, seed: int = 11) -> tuple[float, float, float, float]:
    """Compare two sides without a difference, which have the same units, or other units (`apart`).

    Return the share of intervals that contain 0, their width relative to intervals over 64 shards, and the share of runs
    without an interval, with folded shards and with 64.
    """
    rng = np.random.default_rng(seed)
    sides = []
    for side in range(2):
        # Two models have the same units, in the same shards.
        if apart or not side:
            shards, tastes = rng.integers(0, SHARDS, (units, runs)), rng.beta(2.0, 4.0, (units, runs))
        sides.append(split_shards(rng, shards, tastes))
    counts = np.array([choose_count((sides[0][1] + sides[1][1])[:, i] > 0.0) for i in range(runs)])
    low, high = (np.full(runs, np.nan) for _ in range(2))
    samples = [sample_of(*side) for side in sides]
    for count in np.unique(counts).tolist():
        some = np.flatnonzero(counts == count)
        pair = [select_cells(side, some) for side in samples]
        folded = [replace(s, shards=s.shards.fold(count)) for s in pair if s.shards is not None]
        found = interpret(compute_differences(Pair("ctr", *folded)), ComparisonSettings()).difference
        low[some], high[some] = found.low, found.high
    before = interpret(compute_differences(Pair("ctr", *samples)), ComparisonSettings()).difference
    plain = before.high - before.low
    known = np.isfinite(low)
    both = known & np.isfinite(plain)
    covered = float(((low <= 0.0) & (high >= 0.0))[known].mean())
    width = float((high - low)[both].mean() / plain[both].mean()) if both.any() else 1.0
    return covered, width, 1.0 - float(known.mean()), 1.0 - float(np.isfinite(plain).mean())
