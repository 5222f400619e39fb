"""How often intervals cover, and how often evidence that may be looked at all day is wrong.

`python -m benchmarks.coverage` runs the full form, 8,000 runs a cell (15 minutes of CPU); `--runs 400` a short one;
`--only cells` (or looks, tables, ratio, steps, decisions, small, shares) a part. Seeds are fixed.

One data set a run serves all cells of users. What 64 shards hold of it is read by `inference` as it reads states, many
runs side by side. Independent rows are in slices, one a run, of `interval()` and `compare(independent=True)` themselves.

The truth of a cell is its value over the rows of all runs together.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

import streammetrics as sm
from benchmarks.decisions import show_decisions
from benchmarks.looks import show_looks, show_ratio, show_tables
from benchmarks.report import failures, table, verdict
from benchmarks.simulated import EDGES, SHARDS, SIDES, SUMS, Held, Q, drawn, fine_histogram, held_of
from benchmarks.small_samples import show_small
from benchmarks.steps import show_steps
from benchmarks.user_shares import show_shares
from streammetrics.inference.differences import compute_differences
from streammetrics.inference.interpretation import ComparisonSettings, interpret
from streammetrics.inference.pairs import Pair
from streammetrics.inference.shard_intervals import compute_shard_intervals
from streammetrics.reading.replicates import Sample, Shards

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Cell = tuple[str, str]
Limits = tuple[Floats, Floats]

USERS = {"even": (1000, None), "g = 0.7": (2000, 0.7), "g = 0.9": (2000, 0.9)}
WITHIN = {"rows": (94.0, 96.0), "even": (94.0, 96.0), "g = 0.7": (92.5, 96.5), "g = 0.9": (92.5, 96.5)}
BATCH = 200  # runs side by side
METRICS: dict[str, Any] = {
    "ctr": sm.CTR(), "auc": sm.AUC(), "log_loss": sm.LogLoss(), "ne": sm.NormalizedEntropy(),
    "calibration": sm.Calibration(), "gauc": sm.GroupAUC(), "ndcg": sm.NDCG(),
    "per_unit": sm.PerUnit("capped", unit="user"), "per_unit, uncapped": sm.PerUnit("revenue", unit="user"),
    "p95": sm.Quantile(q=Q / 100.0),
}  # fmt: skip
OF_MODELS = ("auc", "log_loss", "ne", "calibration", "gauc", "ndcg")  # which two models of the same rows differ in
POSITIVES = ("ctr", *OF_MODELS)  # metrics whose states know them
PAIRS = {
    "same rows": ("b", "all"),
    "arms 10, 50 %": ("arm 10", "arm 50"),
    "users in both": ("y", "x"),
    "before, after": ("after", "before"),
}
SHOWN = ("per_unit, uncapped",)
"""Without a target: the mean of what has next to no variance; it takes a cap for any interval to cover."""
WRONG = ("ctr by rows (wrong)", "alone")


class Sums:
    """Sums of shards by name, of one side; of n runs side by side (64, n), or all runs and shards together."""

    def __init__(self, sums: Floats) -> None:
        self._sums = sums

    def __getitem__(self, name: str) -> Floats:
        found: Floats = self._sums[SUMS.index(name)]
        return found


VALUES: dict[str, Callable[[Sums], Floats]] = {
    "ctr": lambda s: s["clicks"] / s["rows"],
    "log_loss": lambda s: s["loss"] / s["rows"],
    "ne": lambda s: s["loss"] / s["rows"] / entropy(s["clicks"] / s["rows"]),
    "calibration": lambda s: s["chance"] / s["clicks"],
    "gauc": lambda s: s["auc"] / s["auc_rows"],
    "ndcg": lambda s: s["ndcg"] / s["lists"],
    "per_unit": lambda s: s["capped"] / s["users"],
    "per_unit, uncapped": lambda s: s["revenue"] / s["users"],
}


def entropy(p: Floats) -> Floats:
    return -(p * np.log(p) + (1.0 - p) * np.log(1.0 - p))


def weights_of(metric: str, sums: Sums) -> Floats:
    """Rows that the metric reads: of users' totals one each, of exposures and orders both."""
    if metric == "per_unit":
        return sums["users"]
    return sums["users"] + sums["orders"] if metric == "per_unit, uncapped" else sums["rows"]


def sample_of(metric: str, held: list[Held], at: str) -> Sample:
    """What a metric says of one side of each of several runs: as `Sharded` tells it of cells."""
    place = SIDES.index(at)
    each = np.stack([h.sums[place] for h in held], axis=2)  # (sums, 64, runs)
    sums, total = Sums(each), each.sum(axis=1, keepdims=True)
    weights, below = weights_of(metric, sums), None
    lines: list[Callable[[float], float]] = []
    with np.errstate(all="ignore"):  # where nobody clicked there is no value
        if metric == "auc":
            values = np.array([h.area[place] for h in held])
            deleted = np.stack([h.deleted[place] for h in held], axis=1)
        elif metric == "p95":
            lines = [line(h.slow[place]) for h in held]
            values, deleted = np.array([at(Q / 100.0) for at in lines]), np.full(weights.shape, np.nan)
            below = np.stack([h.below[place] for h in held], axis=1)
        else:
            of = VALUES[metric]
            values, deleted = of(Sums(total))[0], of(Sums(total - each))
    events = sums["clicks"] if metric in POSITIVES else weights
    shards = Shards(("user", SHARDS, "integer"), lambda _: deleted, weights, events, below)
    keys, rows = [(i,) for i in range(len(held))], weights.sum(axis=0).astype(np.int64)

    def quantile(cell: int, share: float) -> float:
        return lines[cell](share)

    return Sample(
        metric, METRICS[metric], keys, values, values, values, rows, list, shards, quantile if lines else None
    )


def line(counts: Ints) -> Callable[[float], float]:
    """Share -> value, in proportion within a bucket."""
    upto = np.cumsum(counts)

    def at(share: float) -> float:
        rank = share * upto[-1]
        k = int(np.searchsorted(upto, rank))
        return float(EDGES[k] + (EDGES[k + 1] - EDGES[k]) * ((rank - (upto[k] - counts[k])) / counts[k]))

    return at


def limits_of(held: list[Held]) -> Iterator[tuple[str, str, Limits]]:
    """The limits of every cell: metric, which difference, low and high of each run."""
    for metric in METRICS:
        sides = {at: sample_of(metric, held, at) for at in SIDES if at != "b" or metric in OF_MODELS}
        yield metric, "alone", compute_shard_intervals(sides["all"], 0.95)[:2]
        for pair, (a, b) in PAIRS.items():
            if a in sides:
                found = interpret(compute_differences(Pair(metric, sides[a], sides[b])), ComparisonSettings())
                yield metric, pair, (found.difference.low, found.difference.high)
                yield f"{metric}, relative", pair, (found.relative.low, found.relative.high)
    sums = Sums(np.stack([h.sums[0].sum(axis=1) for h in held], axis=1))
    yield *WRONG, binomial(sums["clicks"], sums["rows"])


def binomial(clicks: Floats, rows: Floats) -> Limits:
    """What is wrong: every row on its own."""
    p = clicks / rows
    half = 1.96 * np.sqrt(p * (1.0 - p) / rows)
    return p - half, p + half


def truths(sums: Floats, fine: Ints, slow: Ints) -> dict[Cell, float]:
    """The values over the rows of all runs."""

    def value(metric: str, at: str) -> float:
        place = SIDES.index(at)
        if metric == "p95":
            return line(slow[place])(Q / 100.0)
        return area(fine[place]) if metric == "auc" else float(VALUES[metric](Sums(sums[place])))

    found = {WRONG: value("ctr", "all")}
    for metric in METRICS:
        found[metric, "alone"] = value(metric, "all")
        for pair, (a, b) in PAIRS.items():
            if a != "b" or metric in OF_MODELS:
                one, two = value(metric, a), value(metric, b)
                found[metric, pair], found[f"{metric}, relative", pair] = one - two, one / two - 1.0
    return found


def area(counts: Ints) -> float:
    """AUC of a histogram (2, buckets)."""
    negatives, positives = counts.astype(float)
    below = np.cumsum(negatives) - 0.5 * negatives
    return float((positives * below).sum() / (positives.sum() * negatives.sum()))


class Coverage:
    """Limits of many runs, by cell, to be held against the truth."""

    def __init__(self) -> None:
        self._limits: dict[Cell, list[Limits]] = defaultdict(list)

    def add(self, metric: str, pair: str, limits: Limits) -> None:
        self._limits[metric, pair].append(limits)

    def found(self, truth: dict[Cell, float]) -> dict[Cell, tuple[float, float]]:
        """Return by cell which part of the intervals given hold the truth, and which part of the runs have none."""
        out = {}
        for cell, parts in self._limits.items():
            low, high = (np.concatenate([np.atleast_1d(p[i]) for p in parts]) for i in (0, 1))
            given = ~np.isnan(low)
            held = (low <= truth[cell]) & (truth[cell] <= high)
            out[cell] = float(held[given].mean()) if given.any() else math.nan, 1.0 - float(given.mean())
        return out


def coverage(kind: str, runs: int, seed: int = 1) -> dict[Cell, tuple[float, float]]:
    """Return by cell how often intervals over shards of users hold the truth, and how often there is none."""
    users, g = USERS[kind]
    cells, fine = Coverage(), fine_histogram()
    sums: Any = 0
    slow: Any = 0
    for first in range(0, runs, BATCH):
        held = []
        for run in range(first, min(first + BATCH, runs)):
            rng = np.random.default_rng([seed, run, users, int(10 * (g or 0))])
            held.append(held_of(drawn(rng, users, g, run * users), fine))
            sums, slow = sums + held[-1].sums.sum(axis=2), slow + held[-1].slow
        for metric, pair, limits in limits_of(held):
            cells.add(metric, pair, limits)
    return cells.found(truths(sums, fine, slow))


# -- independent rows --------------------------------------------------------------------------------------------------

ARMS = {"arm 10": 1000, "arm 50": 5000}  # rows of a run
POOLED = 400  # runs that the truth is the value of


def row_metrics() -> Any:
    """Metrics of rows, users or lists that are independent, run by run; revenue has a row a user."""
    scored = [METRICS[name].copy() for name in (*OF_MODELS, "ctr", "p95")]
    return sm.Sliced(sm.MetricCollection([*scored, sm.Task([sm.Mean(squares=True)], value="revenue")]), by="run")


NAMES = {
    "ctr": "ctr", "auc": "auc", "log_loss": "log_loss", "normalized_entropy": "ne", "calibration": "calibration",
    "group_auc": "gauc", "ndcg": "ndcg", "mean": "per_unit", "quantile@0.95": "p95",
}  # fmt: skip


def independent_rows(rng: np.random.Generator, arm: str, runs: int, first: int) -> dict[str, Any]:
    """Draw the rows of several runs; the smaller arm clicks more, and is slower."""
    n, more = ARMS[arm] * runs, 0.1 * (arm == "arm 10")
    seen = rng.normal(size=n)
    logit = seen - 2.1 + rng.normal(0.0, 0.6, n)
    row = first * ARMS[arm] + np.arange(n)
    return {
        "run": row // ARMS[arm], "group": row // 20, "query": row // 10,
        "y_true": (rng.random(n) < 1.0 / (1.0 + np.exp(2.0 - more - seen))).astype(np.uint8),
        "y_score": 1.0 / (1.0 + np.exp(-logit)),
        "value": np.exp(3.0 + more + rng.normal(0.0, 0.5, n)),
        "revenue": np.minimum(np.exp(rng.normal(0.0, 0.5, n)), 10.0) * (rng.random(n) < 0.1 + 0.1 * more),
    }  # fmt: skip


def row_coverage(runs: int, seed: int = 5, batch: int = 50) -> dict[Cell, tuple[float, float]]:
    """Return the same of independent rows, by `interval()` of metrics alone, and `compare(independent=True)`."""
    cells, pair = Coverage(), "arms 10, 50 %"
    pooled = {arm: row_metrics() for arm in ARMS}
    for first in range(0, runs, batch):
        arms = {arm: row_metrics() for arm in ARMS}
        for arm, metrics in arms.items():
            rng = np.random.default_rng([seed, first, ARMS[arm]])
            rows = independent_rows(rng, arm, min(batch, runs - first), first)
            metrics.update(rows)
            if first < POOLED:
                pooled[arm].update(rows | {"run": np.zeros_like(rows["run"])})
        for found in arms["arm 50"].interval().values():
            for name, limits in found.items():
                cells.add(NAMES[name], "alone", (limits.low, limits.high))
        for found in sm.compare(arms["arm 10"], arms["arm 50"], independent=True).values():
            cells.add(NAMES[found.name], pair, found.difference[:2])
            cells.add(f"{NAMES[found.name]}, relative", pair, found.relative[:2])
    one, two = (pooled[arm].compute()[0] for arm in ARMS)
    truth = {(NAMES[name], "alone"): value for name, value in two.items()}
    truth |= {(NAMES[name], pair): one[name] - two[name] for name in one}
    truth |= {(f"{NAMES[name]}, relative", pair): one[name] / two[name] - 1.0 for name in one}
    return cells.found(truth)


# -- tables ------------------------------------------------------------------------------------------------------------


def show_cells(runs: int, kinds: tuple[str, ...] = (*USERS, "rows")) -> None:
    """Print coverage by kind of users; in the short form with room for chance."""
    found = {kind: row_coverage(runs) if kind == "rows" else coverage(kind, runs) for kind in kinds}
    rows = []
    for cell in dict.fromkeys(cell for kind in kinds for cell in found[kind]):
        texts, good = [], True
        for kind in kinds:
            if cell not in found[kind]:
                texts += ["", ""]
                continue
            part, refused = found[kind][cell]
            texts += [f"{100.0 * part:.1f}", f"{100.0 * refused:.1f}" if refused else ""]
            good &= holds(kind, cell, part, runs * (1.0 - refused))
        told = "" if cell[0].split(", relative")[0] in SHOWN else verdict(", ".join(cell), good)
        rows.append([", ".join(cell), *texts, told])
    head = [text for kind in kinds for text in (kind, "none")]
    table(
        f"coverage of 95 % intervals, {runs:,} runs: % that hold the truth, % of runs with none", ["", *head, ""], rows
    )


def holds(kind: str, cell: Cell, part: float, runs: float) -> bool:
    """Whether coverage is as it must be; fewer runs than 8,000 leave room for four of their errors."""
    if cell == WRONG:
        return part < 0.88
    low, high = WITHIN[kind]
    slack = 4.0 * math.sqrt(0.05 * 0.95 / max(runs, 1.0)) if runs < 4000 else 0.0
    return low / 100.0 - slack <= part <= high / 100.0 + slack


PARTS: dict[str, Callable[[int], None]] = {
    "cells": show_cells,
    "looks": show_looks,
    "tables": show_tables,
    "ratio": show_ratio,
    "steps": show_steps,
    "decisions": show_decisions,
    "small": show_small,
    "shares": show_shares,
}
FULL = {
    "cells": 8000, "looks": 8000, "tables": 500, "ratio": 2000, "steps": 3000, "decisions": 3000, "small": 3000,
    "shares": 3000,
}  # fmt: skip


def main(runs: int | None = None, only: str | None = None, users: str | None = None) -> None:
    """Print coverage and false alarms: the full form by default."""
    for part, show in PARTS.items():
        if only in (None, part):
            count = FULL[part] if runs is None else runs
            if part == "cells" and users is not None:
                show_cells(count, (users,))
            else:
                show(count)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.coverage", description=__doc__)
    parser.add_argument("--runs", type=int, help="8,000 a cell by default")
    parser.add_argument("--only", choices=PARTS)
    parser.add_argument("--users", choices=("rows", *USERS), help="of the cells, those of these users alone")
    given = parser.parse_args()
    main(given.runs, given.only, given.users)
    sys.exit(int(bool(failures())))
