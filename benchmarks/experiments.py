"""How often a live experiment, looked at every hour, says what is not so; and how soon it finds what is.

`python -m benchmarks.experiments` simulates 500 experiments a cell, two weeks of 336 hours; `python -m
benchmarks.experiments 100` so many. Seeds are fixed.

Users come every hour, each to an arm and to one of 64 shards; those of a shard have rates of their own, so that rows of
one user are alike. What shards hold is read by `inference` as it reads states, many experiments side by side: the changes,
intervals and words are those behind every scorecard, and `tests/serve/test_experiments.py` holds the decisions made here
and those of `evaluate` together. Not covered: states and histograms themselves (see `benchmarks.coverage`), and slices.
With three treatments the users behind a comparison are taken as the half of all that is expected.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

import streammetrics as sm
from benchmarks.report import failures, table, verdict
from streammetrics.inference.differences import MetricDifferences, compute_differences, estimate_sample
from streammetrics.inference.interpretation import build_effect
from streammetrics.inference.pairs import Pair, select_cells
from streammetrics.inference.power import smallest_effect, users_needed
from streammetrics.inference.questions import Question
from streammetrics.inference.reasons import has_reason
from streammetrics.inference.sample_ratio import sample_ratio_mismatch
from streammetrics.inference.verdict import Progress, is_not_worse, is_worse
from streammetrics.reading.replicates import Sample, Shards

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

SHARDS, PLAN = 64, ("user", 64, "integer")
LOOKS, FIRST = 336, 168  # hours of two weeks; verdicts begin after one
HOURLY = 240  # users an hour, in all arms together
ALPHA = 0.05
NARROW, WIDE = 0.01, 0.5  # margins of the guardrail: nearly breached by chance alone; and in nobody's way
CTR, ERRORS = Question("ctr", "primary", "high"), Question("errors", "guardrail", "low")
RATES = {"ctr": 0.05, "errors": 0.04}
SPREAD = 20.0  # a user's rate is as of so many rows


class Hour(NamedTuple):
    """What is counted so far: users (runs, arms), and the numbers of each arm, of which the cells are the runs."""

    look: int
    users: NDArray[np.int64]
    arms: list[dict[str, Sample]]


def hours(runs: int, arms: int, lift: float = 0.0, seed: int = 1, looks: int = LOOKS) -> Iterator[Hour]:
    """Yield what is known after every hour; `lift` is the relative effect of all treatments on the click rate."""
    rng = np.random.default_rng([seed, arms, round(1e6 * (1.0 + lift))])
    sums = {name: np.zeros((runs, arms, SHARDS)) for name in ("rows", *RATES)}
    users = np.zeros((runs, arms), np.int64)
    up = np.where(np.arange(arms) > 0, 1.0 + lift, 1.0)[:, None]
    for look in range(1, looks + 1):
        new = rng.multinomial(HOURLY, np.full(arms, 1.0 / arms), runs)
        users += new
        here = rng.multinomial(new, np.full(SHARDS, 1.0 / SHARDS))
        rows = 8 * here + rng.poisson(2.0 * here)
        sums["rows"] += rows
        for name, rate in RATES.items():
            mean = rate * up if name == "ctr" else rate
            weight = SPREAD * np.maximum(here, 1)
            sums[name] += rng.binomial(rows, rng.beta(weight * mean, weight * (1.0 - mean)))
        yield Hour(look, users, [samples(sums, arm) for arm in range(arms)])


def samples(sums: dict[str, Floats], arm: int) -> dict[str, Sample]:
    """The numbers of an arm, as a sharded rate has them of each run."""
    rows = np.ascontiguousarray(sums["rows"][:, arm].T)
    found = {}
    for name in RATES:
        top = np.ascontiguousarray(sums[name][:, arm].T)
        value = top.sum(0) / rows.sum(0)
        with np.errstate(all="ignore"):  # of the first hours
            deleted = (top.sum(0) - top) / (rows.sum(0) - rows)
        keys = [(run,) for run in range(rows.shape[1])]
        shards = Shards(PLAN, lambda _, deleted=deleted: deleted, rows, top)
        found[name] = Sample(name, sm.CTR(), keys, value, value, value, rows.sum(0).astype(np.int64), list, shards)
    return found


def decided(hour: Hour, arm: int, progress: Progress, treatments: int, margin: float) -> tuple[Bools, Bools]:
    """Return which runs say ship, and which do not, of a treatment."""
    main, guard = (
        compute_differences(Pair(q.name, hour.arms[arm][q.name], hour.arms[0][q.name])) for q in (CTR, ERRORS)
    )
    alpha = ALPHA / treatments
    primary, guardrail = build_effect(main, True, CTR.better), build_effect(guard, True, ERRORS.better)
    better, held = is_not_worse(primary, progress, alpha), is_not_worse(guardrail, progress, alpha, margin)
    bad, breached = is_worse(primary, progress, alpha), is_worse(guardrail, progress, alpha, margin)
    fine, known_guard = there(main), there(guard)
    return better & held & fine & known_guard, (bad & fine) | (breached & known_guard)


def there(changes: MetricDifferences) -> Bools:
    """Which runs have data enough."""
    return ~has_reason(changes.reasons)


def so_far(look: int, arms: int, planned: float) -> Progress:
    """How far the two arms of a comparison are, if users fall as expected."""
    both = 2.0 / arms
    return Progress(HOURLY * look * both, planned * both, sequential=True)


class Watched(NamedTuple):
    """Of each run: whether a verdict was ever shown, also in the first week, and by one look; the hour of the first."""

    shown: Bools
    early: Bools
    peeked: Bools
    alarmed: Bools
    ship: NDArray[np.int64]
    once: Bools


def watched(
    runs: int,
    treatments: int,
    lift: float = 0.0,
    *,
    margin: float = NARROW,
    looks: int = LOOKS,
    first: int = FIRST,
    at: int = 0,
) -> Watched:
    """Watch experiments every hour; `at` is the hour of the only look of a test that has one."""
    shown, early, peeked, alarmed, once = (np.zeros(runs, bool) for _ in range(5))
    ship = np.zeros(runs, np.int64)
    arms = treatments + 1
    for hour in hours(runs, arms, lift, looks=looks):
        for arm in range(1, arms):
            good, bad = decided(hour, arm, so_far(hour.look, arms, HOURLY * looks), treatments, margin)
            early |= good | bad
            if hour.look >= first:
                shown |= good | bad
                ship[good & (ship == 0)] = hour.look
            good, bad = decided(hour, arm, Progress(), treatments, margin)
            peeked |= good | bad
            if hour.look == at:
                once |= good
        alarmed |= [sample_ratio_mismatch(dict(enumerate(row))).alarm for row in hour.users.tolist()]
    return Watched(shown, early, peeked, alarmed, ship, once)


def effect(looks: int = LOOKS) -> tuple[float, int]:
    """Return the lift that such experiments find in 80 %, and the hour at which one look would."""
    *_, last = hours(20, 2, seed=9, looks=looks)
    log_rate = estimate_sample(last.arms[0]["ctr"], "log")
    error = float(np.sqrt(np.mean(np.square(log_rate.standard_error))))
    one = next(estimate_sample(select_cells(last.arms[0]["ctr"], np.array([0])), "log").split_cells())._replace(
        standard_error=error
    )
    users = HOURLY * looks
    found = smallest_effect(one, users / 2.0, users, looks=looks).relative
    once = users_needed(one, users / 2.0, relative=found).users
    return found, math.ceil(once / HOURLY)


def percent(mask: Bools) -> str:
    return f"{100.0 * float(mask.mean()):.1f}"


def show_false(runs: int) -> None:
    """A/A experiments: whatever is shown is false."""
    rows = []
    most = max(
        0.02, 0.01 + 2.6 * math.sqrt(0.01 * 0.99 / runs)
    )  # the bound is 1 %; what chance makes of it in few runs
    for treatments in (1, 3):
        found = watched(runs, treatments)
        name = f"{treatments} treatment{'s' if treatments > 1 else ''}"
        rows += [
            [f"{name}: a verdict ever", percent(found.shown), verdict(name, found.shown.mean() <= ALPHA)],
            ["  also in the first week", percent(found.early), verdict(f"{name} early", found.early.mean() <= ALPHA)],
            ["  by the interval of one look", percent(found.peeked), ""],
            ["  sample ratio alarms", percent(found.alarmed), verdict(f"{name} ratio", found.alarmed.mean() <= most)],
        ]
    table(f"A/A, {LOOKS} looks, {runs:,} experiments", ["shown", "%", ""], rows)


def show_true(runs: int) -> None:
    """A true effect that the planned users are made for."""
    lift, at = effect()
    found = watched(runs, 1, lift, margin=WIDE, first=1, at=at)
    hit = found.ship > 0
    days = f"{float(np.median(found.ship[hit])) / 24.0:.1f}" if hit.any() else "none"
    slack = 2.6 * math.sqrt(0.16 / runs)  # what chance makes of 80 % in 99 of 100 benchmarks
    ratio = LOOKS / at
    rows = [
        ["found at any look, %", percent(hit), verdict("power", abs(hit.mean() - 0.8) <= 0.05 + slack)],
        ["  days until then, median", days, ""],
        [f"found at the one look after {at} hours, %", percent(found.once), ""],
        ["users for 80 %, times those of one look", f"{ratio:.2f}", verdict("users", 1.5 <= ratio <= 1.9)],
    ]
    table(f"true effect of {100.0 * lift:+.2f} %, {runs:,} experiments", ["", "", ""], rows)


def main() -> int:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 500
    show_false(runs)
    show_true(runs)
    if failures():
        print(f"missed: {', '.join(failures())}")
    return int(bool(failures()))


if __name__ == "__main__":
    sys.exit(main())
