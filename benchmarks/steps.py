"""False alarms of differences of quantiles whose values are few, such as whole seconds, and the width on smooth values.

Both arms have the same quantile, so each difference shown is a false alarm. Shards are drawn as counts of each value, many
runs side by side.
"""

from __future__ import annotations

import math
from collections import defaultdict
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import streammetrics as sm
from benchmarks.report import table, verdict
from benchmarks.simulated import SHARDS
from streammetrics.inference.differences import build_replicates, compute_differences
from streammetrics.inference.estimates import interval
from streammetrics.inference.interpretation import ComparisonSettings, interpret
from streammetrics.inference.jackknife import jackknife, subtract_replicates
from streammetrics.inference.pairs import Pair
from streammetrics.reading.replicates import Sample, Shards
from streammetrics.statistics.value_order import BucketWeights

Floats = NDArray[np.float64]
SECONDS = np.arange(40.0)
FINE = np.arange(-4.0, 4.0, 0.002)
BATCH = 50  # runs side by side
MOST_ALARMS = 0.05
SMOOTH = (0.94, 0.965)


class Arm(NamedTuple):
    """The values of users, each of whom has as many equal rows as `repeats` says."""

    users: int
    shares: Floats
    repeats: int = 1


class Case(NamedTuple):
    """Two arms with the same quantile."""

    q: float
    values: Floats
    a: Arm
    b: Arm


def two(share: float, users: int, repeats: int = 1) -> Arm:
    return Arm(users, np.array([share, 1.0 - share]), repeats)


def seconds(users: int, repeats: int = 1, **shares: float) -> Arm:
    """Exponential seconds, or seconds with given shares, such as s3=0.5."""
    each = np.exp(-SECONDS / 4.0) if not shares else np.zeros(40)
    for name, share in shares.items():
        each[int(name[1:])] = share
    return Arm(users, each / each.sum(), repeats)


def stepped(q: float, users: int) -> Arm:
    """Exponential seconds of which exactly the share q is at or below one of them."""
    shares = seconds(users).shares
    k = int((np.cumsum(shares) >= q).argmax()) + 1
    below, above = shares[:k] / shares[:k].sum(), shares[k:] / shares[k:].sum()
    return Arm(users, np.concatenate([q * below, (1.0 - q) * above]))


def smooth(users: int) -> Arm:
    shares = np.exp(-0.5 * FINE * FINE)
    return Arm(users, shares / shares.sum())


TWO = np.array([1.0, 2.0])
CASES = {
    "1 or 2, step at q": Case(0.5, TWO, two(0.5, 1000), two(0.5, 1000)),
    "1 or 2, step near q": Case(0.5, TWO, two(0.52, 1000), two(0.52, 1000)),
    "1 or 2, small and large arm": Case(0.5, TWO, two(0.52, 300, 5), two(0.52, 20_000, 5)),
    "seconds, median": Case(0.5, SECONDS, seconds(1000), seconds(1000)),
    "seconds, 90 %": Case(0.9, SECONDS, seconds(1000, 3), seconds(1000, 3)),
    "seconds, step at q": Case(0.9, SECONDS, stepped(0.9, 500), stepped(0.9, 5000)),
    "other shapes": Case(
        0.5, SECONDS, seconds(500, s1=0.47, s3=0.06, s4=0.47), seconds(5000, s3=0.55, s9=0.45)
    ),
    "other shapes, one heavy value": Case(
        0.5, SECONDS, seconds(500, s1=0.48, s3=0.5, s4=0.02), seconds(5000, s2=0.1, s3=0.42, s9=0.48)
    ),
    "smooth, median": Case(0.5, FINE, smooth(1000), smooth(1000)),
    "smooth, 90 %": Case(0.9, FINE, smooth(300), smooth(300)),
}  # fmt: skip


def draw(rng: np.random.Generator, q: float, values: Floats, arm: Arm, runs: int) -> Sample:
    """Draw what `Sharded` has of one arm, each run as one cell."""
    users = rng.multinomial(arm.users, np.full(SHARDS, 1.0 / SHARDS), runs)
    counts = arm.repeats * rng.multinomial(users, arm.shares).transpose(1, 0, 2).astype(float)  # (64, runs, values)
    total = counts.sum(axis=0)
    rows, cell = total.sum(axis=1), np.arange(runs)
    upto = np.cumsum(total, axis=1)
    target = np.round(q * rows, 9)[:, None]
    k, following = (upto >= target).argmax(axis=1), (upto > target).argmax(axis=1)
    part = (target[:, 0] - upto[cell, k] + total[cell, k]) / total[cell, k]
    through = np.cumsum(counts, axis=2)[:, cell, k]
    before, weights = through - counts[:, cell, k], counts.sum(axis=2)

    def quantile(i: int, share: float) -> float:
        return float(values[np.searchsorted(upto[i], share * rows[i] - 1e-9)])

    def buckets(i: int) -> BucketWeights:
        some = total[i] > 0.0
        return BucketWeights(values[some], values[some], total[i][some])

    plan = "user", SHARDS, "integer"
    shards = Shards(
        plan, lambda _: np.full(weights.shape, np.nan), weights, weights, before + part * (through - before),
        np.stack([before, through]),
    )  # fmt: skip
    found = 0.5 * (values[k] + values[following])
    keys: Any = [(i,) for i in range(runs)]
    metric = sm.Quantile(q=q)
    return Sample("q", metric, keys, found, found, found, rows.astype(np.int64), list, shards, quantile, buckets)


def step_alarms(case: Case, runs: int, seed: int = 7) -> dict[str, float]:
    """Return the share of false alarms, by the interval, its p-value, and by standard errors; and both mean widths."""
    rng = np.random.default_rng(seed)
    sample = partial(draw, rng, case.q, case.values)
    found: dict[str, list[Floats]] = defaultdict(list)
    for first in range(0, runs, BATCH):
        pair = Pair("q", *(sample(arm, min(BATCH, runs - first)) for arm in (case.a, case.b)))
        shown = interpret(compute_differences(pair), ComparisonSettings())
        replicates = (build_replicates(x) for x in (pair.a, pair.b))
        found["p"].append(shown.p_values < 0.05)
        for name, limits in (
            ("sets", shown.difference),
            ("errors", interval(jackknife(subtract_replicates(*replicates)))),
        ):
            found[name].append((limits.low > 0.0) | (limits.high < 0.0))
            found[f"width of {name}"].append(limits.high - limits.low)
    return {name: float(np.nanmean(np.concatenate(parts))) for name, parts in found.items()}


def show_steps(runs: int, cases: tuple[str, ...] = tuple(CASES)) -> None:
    """Print false alarms and widths by case."""
    rows = []
    for name in cases:
        found = step_alarms(CASES[name], runs)
        slack = 4.0 * math.sqrt(0.05 * 0.95 / runs)
        good = found["sets"] <= MOST_ALARMS + slack and found["p"] <= MOST_ALARMS + slack
        if name.startswith("smooth"):
            least, most = SMOOTH[0] - slack, SMOOTH[1] + slack
            good = least <= 1.0 - found["sets"] <= most and found["width of sets"] <= 1.02 * found["width of errors"]
        shown = [f"{100.0 * found[x]:.1f}" for x in ("sets", "p", "errors")]
        widths = [f"{found[f'width of {x}']:.3f}" for x in ("sets", "errors")]
        rows.append([name, *shown, *widths, verdict(f"quantiles, {name}", good)])
    head = ["", "interval", "p", "standard errors", "width", "of standard errors", ""]
    table(f"false alarms of quantiles of few values, {runs:,} runs: % at 5 %", head, rows)
