"""Metrics by slice: CPU time a row over the number of slices, with and without weights, and memory.

The number of slices must not make a cliff: a point of the map is at most 1.5 times the larger of its two neighbours,
and up to 1,000 slices at most 3 times one slice. Each point is measured in a process of its own, so that none finds
memory that another has freed.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import streammetrics as sm
from benchmarks import logs
from benchmarks.data import cached_clicks
from benchmarks.eval import read_log, score_log
from benchmarks.report import Sheet, table, verdict
from benchmarks.timing import MIB, forget_peak, peak, resident

ROWS, BATCH = 10_000_000, 65_536
SLICES = (1, 4, 12, 36, 100, 300, 1_000, 10_000)
NEIGHBOURS, ONE_SLICE, WEIGHTED = 1.5, 3.0, 2.5
"""Limits of ratios: to the larger neighbour, to one slice, of weighted rows to rows without weights."""
MANY_ROWS = 80_000_000
EXACT_SLICES, EXACT_ROWS = 100, 65_217


def main() -> None:
    """Print the maps, then the memory of exact rows and of `eval`."""
    for bits in (16, 12):
        show_map(bits)
    for weighted in (False, True):
        exact_rows(weighted=weighted)
    by_columns()
    eval_memory()


def apart(call: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a function returns in a process of its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(call, arguments)


# -- the map -----------------------------------------------------------------------------------------------------------


def show_map(bits: int) -> None:
    """Print CPU time and memory by the number of slices, and whether the limits hold."""
    points = {weighted: [apart(count_slices, bits, n, weighted) for n in SLICES] for weighted in (False, True)}
    plain, weighted = ([cpu for cpu, _ in points[w]] for w in (False, True))
    rows = []
    for i, n in enumerate(SLICES):
        hump = 0 < i < len(plain) - 1 and plain[i] > NEIGHBOURS * max(plain[i - 1], plain[i + 1])
        good = not hump and (n > 1_000 or plain[i] <= ONE_SLICE * plain[0])
        ratio = weighted[i] / plain[i]
        passed = verdict(f"{bits} bits, {n:,} slices", good)
        heavy = verdict(f"{bits} bits, {n:,} slices, weighted", ratio <= WEIGHTED)
        memory = [f"{points[w][i][1] / MIB:.0f}" for w in (False, True)]
        rows.append([f"{n:,}", f"{plain[i]:.1f}", passed, f"{weighted[i]:.1f}", f"{ratio:.2f}", heavy, *memory])
    head = ["slices", "ns/row", "", "weighted", "ratio", "", "peak MiB", "weighted"]
    table(f"AUC(bits={bits}) by slice: {ROWS:,} rows in batches of {BATCH:,}, CPU", head, rows)


def count_slices(bits: int, slices: int, weighted: bool) -> tuple[float, int]:
    """Return CPU nanoseconds a row, the fewest of three runs, and the peak of memory over what was held before."""
    labels, scores = cached_clicks(ROWS)
    rng = np.random.default_rng(slices)
    columns = {"y_true": labels, "y_score": scores, "k": rng.integers(0, slices, ROWS)}
    if weighted:
        columns["sample_weight"] = rng.random(ROWS) * 2
    count(bits, {name: c[: 4 * BATCH] for name, c in columns.items()})  # compiles
    seconds, most = [], 0
    for _ in range(3):
        before = resident()
        forget_peak()
        start = time.process_time()
        sliced = count(bits, columns)
        seconds.append(time.process_time() - start)
        most = max(most, peak() - before)
        del sliced
    return min(seconds) / ROWS * 1e9, most


def count(bits: int, columns: dict[str, Any]) -> Any:
    sliced = sm.Sliced(sm.AUC(bits=bits), by="k")
    for a in range(0, len(columns["k"]), BATCH):
        sliced.update({name: c[a : a + BATCH] for name, c in columns.items()})
    return sliced


# -- memory ------------------------------------------------------------------------------------------------------------


def exact_rows(*, weighted: bool) -> None:
    """Slices that all keep their rows exactly: what counting, reading and writing take beside what is kept."""
    kept, counting, reading, writing, smaller = apart(read_exact_rows, weighted)
    sheet = Sheet()
    sheet.line("kept by the state", kept / MIB, 200 if weighted else 100, "MiB")
    sheet.line("peak of counting / kept", counting / kept, 1.5)
    sheet.line("peak of reading / kept", reading / kept, 1.6, asked=1.5)
    sheet.line("peak of to_bytes / kept", writing / kept, 1.9, asked=1.5)
    sheet.line("kept with limit=8192", smaller / MIB, 90 if weighted else 30, "MiB")
    sheet.show(f"{EXACT_SLICES} slices of {EXACT_ROWS:,} exact rows" + (" with weights" if weighted else ""))


def read_exact_rows(weighted: bool) -> tuple[int, ...]:
    from streammetrics.collect.metric_like import states_of

    rows = EXACT_SLICES * EXACT_ROWS
    labels, scores = cached_clicks(ROWS)
    columns = {"y_true": labels[:rows], "y_score": scores[:rows], "k": np.arange(rows) % EXACT_SLICES}
    if weighted:
        columns["sample_weight"] = np.random.default_rng(0).random(rows) * 2
    count(16, {name: c[: 4 * BATCH] for name, c in columns.items()}).to_bytes()
    before, most = resident(), []
    forget_peak()
    sliced = count(16, columns)
    most.append(peak() - before)
    forget_peak()
    kept = sum(s.nbytes for s in states_of(sliced))
    most.append(peak() - before)
    forget_peak()
    sliced.to_bytes()
    most.append(peak() - before)
    small = sm.Sliced(sm.AUC(limit=8192), by="k")
    small.update(columns)
    return kept, *most, sum(s.nbytes for s in states_of(small))


def by_columns() -> None:
    """`eval --by` beside reading the same columns."""
    log = logs.log(ROWS)
    sheet = Sheet()
    for by, limit in ((["country"], 2.4), (["country", "device"], 3.0)):
        crossed = ",".join(by)
        runs = [(score_log([log], [crossed]).cpu, read_log(log, by).cpu) for _ in range(5)]
        ours, theirs = (min(cpu) for cpu in zip(*runs, strict=True))
        name = f"eval --by {crossed}"
        sheet.line(name, ours / ROWS * 1e9, 75, "ns/row")
        sheet.line(f"{name} / reading", ours / theirs, limit, asked=2)
    sheet.show(f"{ROWS:,} rows by 12 and by 36 slices")


def eval_memory() -> None:
    """Peak memory of `eval` by 36 and by 1,000 slices does not grow with the rows."""
    rows = []
    for by, most in (("country,device", 450), ("campaign", 700)):
        for n in (ROWS, MANY_ROWS):
            used = score_log([logs.log(n)], [by])
            passed = verdict(f"memory, {n:,} rows by {by}", used.peak <= most * MIB)
            rows.append([by, f"{n:,}", f"{used.peak / MIB:.0f}", f"{most}", passed])
    table("Peak memory of eval", ["by", "rows", "peak MiB", "at most", ""], rows)


if __name__ == "__main__":
    main()
