"""Logs drawn at random, and what shards of users hold of them: what `benchmarks.coverage` makes its intervals from.

Users have an effect of their own on clicks, on scores and on latency. One log serves all comparisons: two models of the
same rows, separate arms of users (50 and 10 %), users who are in both arms, and the same users before and after.

Rows are counted here by plain loops, as the metrics count them; `tests/inference/test_coverage.py` holds the two together.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from streammetrics.count.drafts import SHARD_SALT
from streammetrics.kernels.cells import find_unit_shards
from streammetrics.numerics.score_buckets import count_buckets, find_buckets

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SHARDS = 64
SIDES = ("all", "arm 50", "arm 10", "x", "y", "before", "after", "b")  # the last is of model b, the others of model a
SUMS = (
    "rows", "clicks", "chance", "loss", "auc", "auc_rows", "ndcg", "lists", "users", "orders", "revenue", "capped",
)  # fmt: skip
BITS, FINE = 10, 16  # of histograms in shards, and of all rows together
QUERY = 8  # rows of a user that make a list
CAP = 10.0  # what a user counts for at most in "capped"
OCTAVES = 12
Q = 95  # the quantile of latency, in hundredths
EDGES = np.ldexp(np.tile(1.0 + np.arange(128) / 128.0, OCTAVES), np.repeat(np.arange(OCTAVES), 128))
EDGES = np.append(EDGES, 2.0**OCTAVES)  # of the buckets of `Quantile`


class Log(NamedTuple):
    """The log of a run, sorted by user; one entry a user, or a row."""

    key: Ints
    start: Ints  # the first row of each user, and the end
    click: NDArray[np.uint8]
    p: Floats  # (2, rows): of models a and b
    latency: Floats
    revenue: Floats
    query: Ints
    sides: NDArray[np.bool_]  # (7, rows)


def rows_of_users(rng: np.random.Generator, users: int, g: float | None) -> Ints:
    if g is None:
        return 1 + rng.poisson(18.5, users)
    return np.minimum(5000.0, np.ceil(3.0 * rng.random(users) ** -g)).astype(np.int64)


def drawn(rng: np.random.Generator, users: int, g: float | None, first: int = 0) -> Log:
    """Draw a log of so many users, whose rows are alike in number, or follow a power law min(5000, 3 u^-g)."""
    count = rows_of_users(rng, users, g)
    user = np.repeat(np.arange(users), count)
    n = user.size
    start = np.append(0, np.cumsum(count))
    index = np.arange(n) - start[user]
    taste, bias = rng.normal(0.0, 1.0, users)[user], rng.normal(0.0, 0.4, users)[user]
    seen = rng.normal(size=n)
    click = (rng.random(n) < 1.0 / (1.0 + np.exp(2.2 - seen - taste))).astype(np.uint8)
    shared = rng.normal(0.0, 0.3, n) + bias
    logits = np.array([seen - 2.1 + shared + rng.normal(0.0, 0.5, n), seen - 2.0 + shared + rng.normal(0.0, 0.4, n)])
    p = np.clip(np.rint(2.0**24 / (1.0 + np.exp(-logits))), 1.0, 2.0**24 - 1.0) * 2.0**-24  # so that sums are exact
    latency = np.exp(3.0 + 0.5 * bias + rng.normal(0.0, 0.5, n))
    revenue = click * (np.ceil(64.0 * np.exp(rng.normal(0.0, 0.5, n))) / 64.0)
    arm, half, change = rng.random(users)[user], rng.random(n) < 0.5, rng.random(users)[user]
    early = index < change * count[user]
    sides = np.array([np.ones(n, bool), arm < 0.5, arm >= 0.9, half, ~half, early, ~early])
    query = np.cumsum(np.append(True, (user[1:] != user[:-1]) | (index[1:] % QUERY == 0))) - 1
    return Log(first + np.arange(users), start, click, p, latency, revenue, query, sides)


def shards_of(keys: Ints) -> Ints:
    """The shard of each user, as `Sharded` has it."""
    out = np.empty(keys.size, np.int64)
    find_unit_shards(keys, np.zeros(0, np.int64), SHARD_SALT, SHARDS, out)
    return out


class Held(NamedTuple):
    """What states of shards hold of a log; the first axis is that of the sides."""

    sums: Floats  # (8, 12, 64)
    area: Floats  # (8,): of scores as they are
    deleted: Floats  # (8, 64): areas of histograms without each shard
    slow: Ints  # (7, buckets): rows by latency
    below: Floats  # (7, 64): rows up to its quantile


def held_of(log: Log, fine: Ints) -> Held:
    """Count a log by shard; rows of all runs go to the fine histogram of scores, (8, 2, buckets)."""
    user = np.repeat(np.arange(log.key.size), np.diff(log.start))
    by_score = np.argsort(log.p, axis=1)
    falling = by_score[:, ::-1]
    by_user = np.array([sorted_by(user, o) for o in by_score])
    by_list = np.array([sorted_by(log.query, o) for o in falling])
    loss = -np.log(np.where(log.click, log.p, 1.0 - log.p))
    coarse, full = (find_buckets(log.p, False, bits)[0] for bits in (BITS, FINE))
    slow = np.clip((log.latency.view(np.int64) >> 45) - (1023 << 7), 0, EDGES.size - 2)
    shape = len(SIDES)
    out = Held(
        np.zeros((shape, len(SUMS), SHARDS)),
        np.full(shape, np.nan),
        np.full((shape, SHARDS), np.nan),
        np.zeros((shape - 1, EDGES.size - 1), np.int64),
        np.zeros((shape - 1, SHARDS)),
    )
    for side in range(shape):
        model, keep = (1, log.sides[0]) if side == shape - 1 else (0, log.sides[side])
        users = log.start, shards_of(log.key)
        sums = out.sums[side]
        add_rows(*users, keep, log.click, log.p[model], loss[model], log.revenue, sums)
        add_areas(*users, keep, log.click, log.p[model], by_user[model], sums)
        add_lists(user, users[1], keep, log.click, log.query, by_list[model], sums)
        out.area[side] = area(keep, log.click, log.p[model], by_score[model])
        delete_areas(user, users[1], keep, log.click, coarse[model], out.deleted[side])
        np.add.at(fine[side], (log.click[keep], full[model][keep]), 1)
        if side < shape - 1:
            add_latency(user, users[1], keep, slow, out.slow[side], out.below[side])
    return out


def sorted_by(keys: Ints, order: Ints) -> Ints:
    """An order, sorted by small keys: by radix."""
    short = keys.astype(np.min_scalar_type(int(keys[-1])))
    return order[np.argsort(short[order], kind="stable")]


@numba.njit(cache=True)
def add_rows(start: Any, shard: Any, keep: Any, click: Any, p: Any, loss: Any, revenue: Any, sums: Any) -> Any:
    for u in range(shard.size):
        k, seen, spent = shard[u], 0, 0.0
        for i in range(start[u], start[u + 1]):
            if keep[i]:
                seen += 1
                spent += revenue[i]
                sums[1, k] += click[i]
                sums[2, k] += p[i]
                sums[3, k] += loss[i]
        sums[0, k] += seen
        sums[8, k] += seen > 0
        sums[10, k] += spent
        sums[11, k] += min(spent, CAP)
    sums[9] = sums[1]


@numba.njit(cache=True)
def area(keep: Any, click: Any, p: Any, order: Any) -> Any:
    """The AUC; ties count one half."""
    twice, negatives, positives, i = 0, 0, 0, 0
    while i < order.size:
        here, up, down = p[order[i]], 0, 0
        while i < order.size and p[order[i]] == here:
            if keep[order[i]]:
                up += click[order[i]]
                down += 1 - click[order[i]]
            i += 1
        twice += up * (2 * negatives + down)
        negatives += down
        positives += up
    return twice / (2 * positives * negatives) if positives * negatives else np.nan


@numba.njit(cache=True)
def add_areas(start: Any, shard: Any, keep: Any, click: Any, p: Any, order: Any, sums: Any) -> Any:
    """The AUC of each user with both labels, times its rows."""
    for u in range(shard.size):
        mine = order[start[u] : start[u + 1]]
        found = area(keep, click, p, mine)
        if not np.isnan(found):
            rows = 0
            for i in mine:
                rows += keep[i]
            sums[4, shard[u]] += found * rows
            sums[5, shard[u]] += rows


@numba.njit(cache=True)
def add_lists(user: Any, shard: Any, keep: Any, click: Any, query: Any, order: Any, sums: Any) -> Any:
    """The NDCG of each list, of rows by list and falling score."""
    i = 0
    while i < order.size:
        here, place, hits, gain, ideal = query[order[i]], 0, 0, 0.0, 0.0
        k = shard[user[order[i]]]
        while i < order.size and query[order[i]] == here:
            if keep[order[i]]:
                if click[order[i]]:
                    gain += 1.0 / np.log2(place + 2.0)
                    ideal += 1.0 / np.log2(hits + 2.0)
                    hits += 1
                place += 1
            i += 1
        if place:
            sums[6, k] += gain / ideal if hits else 0.0
            sums[7, k] += 1


@numba.njit(cache=True)
def delete_areas(user: Any, shard: Any, keep: Any, click: Any, bucket: Any, deleted: Any) -> Any:
    """AUCs of histograms, with each shard deleted."""
    first, last = bucket.min(), bucket.max()
    width = last - first + 1
    each, every = np.zeros((deleted.size, width, 2), np.int32), np.zeros((width, 2), np.int64)
    for i in range(user.size):
        if keep[i]:
            each[shard[user[i]], bucket[i] - first, click[i]] += 1
            every[bucket[i] - first, click[i]] += 1
    for k in range(deleted.size):
        twice, negatives, positives = 0, 0, 0
        for b in range(width):
            down, up = every[b, 0] - each[k, b, 0], every[b, 1] - each[k, b, 1]
            twice += up * (2 * negatives + down)
            negatives += down
            positives += up
        if positives * negatives:
            deleted[k] = twice / (2 * positives * negatives)


@numba.njit(cache=True)
def add_latency(user: Any, shard: Any, keep: Any, slow: Any, every: Any, below: Any) -> Any:
    """Rows by bucket of latency, and those of each shard up to the quantile of all."""
    each = np.zeros((below.size, every.size), np.int32)
    rows = 0
    for i in range(user.size):
        if keep[i]:
            each[shard[user[i]], slow[i]] += 1
            every[slow[i]] += 1
            rows += 1
    upto, bucket = 0, 0
    while 100 * (upto + every[bucket]) < Q * rows:
        upto += every[bucket]
        bucket += 1
    if rows:
        part = (Q * rows - 100 * upto) / (100 * every[bucket])
        for k in range(below.size):
            below[k] = each[k, :bucket].sum() + each[k, bucket] * part


def fine_histogram() -> Ints:
    """An empty histogram of scores for the rows of all runs."""
    return np.zeros((len(SIDES), 2, count_buckets(FINE, False)), np.int64)
