"""Coverage and width of the exact interval for the difference of the shares of users with an event.

Rates near 0 and near 1 have too few events for an interval, so a comparison gives this interval in its place.
"""

from __future__ import annotations

import math
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

import streammetrics as sm
from benchmarks.report import table, verdict
from streammetrics.collect.accumulator import definition_of
from streammetrics.collect.metric_like import states_of
from streammetrics.inference.user_shares import difference_limits, limit_users
from streammetrics.reading.replicates import Shards

USERS = (2000, 1000)  # of the treatment and the control
MORE = 0.3  # the probability that another row of a user with an event has one, too
BATCH = 250  # runs side by side


class Case(NamedTuple):
    """A click rate of the control, the rows of each user, and the rarer label of the treatment as a multiple of it."""

    rate: float
    rows: int
    lift: float

    @property
    def shares(self) -> tuple[float, float]:
        """The share of users with the rarer label in the treatment and in the control."""
        rare = min(self.rate, 1.0 - self.rate)
        return self.lift * rare, rare


CASES = {
    f"rate {100.0 * rate:g} %, {rows} row{'s' if rows > 1 else ''} a user{', twice as many' if lift > 1.0 else ''}":
    Case(rate, rows, lift)
    for rate in (0.001, 0.01, 0.999) for rows in (1, 5) for lift in (1.0, 2.0)
}  # fmt: skip


def draw_labels(rng: np.random.Generator, case: Case, side: int, runs: int) -> NDArray[np.uint8]:
    """Return the labels (runs, users, rows) of one side."""
    has = rng.random((runs, USERS[side], 1)) < case.shares[side]
    event = has & (rng.random((runs, USERS[side], case.rows)) < MORE)
    event[:, :, :1] = has
    return (event if case.rate < 0.5 else ~event).astype(np.uint8)


def count_shards(labels: NDArray[np.uint8], first: int) -> Shards:
    """Return the shards of the click rate of each run, as a comparison reads them; users are numbered from `first`."""
    runs, users = labels.shape[:2]
    columns = {"run": np.arange(runs)[:, None, None], "user": first + np.arange(runs * users).reshape(runs, users, 1)}
    clicks = sm.Sliced(sm.Sharded(sm.CTR(), unit="user"), by="run")
    clicks.update(
        y_true=labels.reshape(-1), **{n: np.broadcast_to(c, labels.shape).reshape(-1) for n, c in columns.items()}
    )
    (sample,) = definition_of(clicks).samples(states_of(clicks))
    assert sample.shards is not None
    return sample.shards


@cache
def limits(a: tuple[int, int], b: tuple[int, int]) -> tuple[float, float]:
    return difference_limits(a, b, USERS, 0.95)


def share_coverage(case: Case, runs: int, seed: int = 17) -> tuple[float, float, float]:
    """Return the share of intervals that contain the truth, their mean width, and the share of runs without one."""
    rng = np.random.default_rng(seed)
    truth = case.shares[0] - case.shares[1]
    hits, widths = 0, []
    for first in range(0, runs, BATCH):
        some = min(BATCH, runs - first)
        a, b = (count_shards(draw_labels(rng, case, side, some), side << 40) for side in range(2))
        for run in range(some):
            ranges = [limit_users(shards.events[:, run], users) for shards, users in zip((a, b), USERS, strict=True)]
            if a.events_names[run] == b.events_names[run] and ranges[0] is not None and ranges[1] is not None:
                low, high = limits(ranges[0], ranges[1])
                hits += low <= truth <= high
                widths.append(high - low)
    given = max(len(widths), 1)
    return hits / given, math.fsum(widths) / given, 1.0 - len(widths) / runs


def show_shares(runs: int) -> None:
    """Print the coverage of exact intervals, which is at least 95 %; fewer runs leave room for chance."""
    slack = 4.0 * math.sqrt(0.05 * 0.95 / runs)
    rows = []
    for name, case in CASES.items():
        part, width, none = share_coverage(case, runs)
        good = part >= 0.95 - slack and none <= 0.01
        rows.append([name, f"{100.0 * part:.1f}", f"{100.0 * width:.2f}", f"{100.0 * none:.1f}", verdict(name, good)])
    head = ["", "covers, %", "width, points", "none, %", ""]
    table(f"exact 95 % intervals of the shares of users with an event, {runs:,} runs", head, rows)
