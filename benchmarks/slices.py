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
from benchmarks.report import NOISE, Sheet, in_time, table, verdict
from benchmarks.timing import MIB, forget_peak, peak, resident

ROWS, BATCH = 10_000_000, 65_536
SCORES = 4_000_000
"""The number of scores for each line of windows, shards, labels and classes."""
SLICES = (1, 4, 12, 36, 100, 300, 1_000, 10_000)
NEIGHBOURS, ONE_SLICE, WEIGHTED = 1.5, 3.0, 2.5
"""Limits of ratios: to the larger neighbour, to one slice, of weighted rows to rows without weights.

`NOISE` is allowed above them, as above all limits of time.
"""
MANY_ROWS = 80_000_000
EXACT_SLICES, EXACT_ROWS = 100, 65_217


def main() -> None:
    """Print the maps, the memory of exact rows, the time of windows, shards and classes, and time and memory of `eval`."""
    for bits in (16, 12):
        show_map(bits)
    for weighted in (False, True):
        exact_rows(weighted=weighted)
    show_other_axes()
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
        hump = 0 < i < len(plain) - 1 and plain[i] > NOISE * NEIGHBOURS * max(plain[i - 1], plain[i + 1])
        good = not hump and (n > 1_000 or plain[i] <= NOISE * ONE_SLICE * plain[0])
        ratio = weighted[i] / plain[i]
        passed = verdict(f"{bits} bits, {n:,} slices", good)
        heavy = verdict(f"{bits} bits, {n:,} slices, weighted", ratio <= NOISE * WEIGHTED)
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


# -- windows, shards, classes, labels ----------------------------------------------------------------------------------


def show_other_axes() -> None:
    """Print the time of windows, shards, labels and classes beside a simpler metric, in ns a row or a score.

    The lines of labels and classes contain moving the exact rows of each to buckets, which happens once.
    """
    pairs = (
        ("windows of 36 hours, in order", window_case(True), "36 slices", slice_case(36), 2.0),
        ("windows of 36 hours, shuffled", window_case(False), "36 slices", slice_case(36), 2.0),
        ("64 shards in 12 slices", shard_case(12), "1,000 slices", slice_case(1_000), 2.0),
        ("20 labels, a score", matrix_case("num_labels", 20), "4 labels", matrix_case("num_labels", 4), 4.5),
        ("50 classes, a score", matrix_case("num_classes", 50), "4 classes", matrix_case("num_classes", 4), 8.0),
    )
    rows = []
    for name, case, beside, other, limit in pairs:
        line = [name, beside]
        for weighted in (False, True):
            cpu, reference = (apart(count_case, *c, weighted) for c in (case, other))
            words = f"{name} / {beside}{', weighted' * weighted}"
            line += [f"{cpu:.1f}", f"{cpu / reference:.2f}", f"{limit:g}", in_time(words, cpu / reference, limit)]
        rows.append(line)
    head = ["", "beside", "ns", "ratio", "limit", "", "weighted", "ratio", "limit", ""]
    table("AUC by windows, shards, labels and classes, CPU", head, rows)


Case = tuple[Any, dict[str, Any], int]
"""A metric, its columns, and the number of scores in a row."""


def slice_case(slices: int) -> Case:
    return sm.Sliced(sm.AUC(), by="k"), one_score() | {"k": draw(0, slices)}, 1


def window_case(in_order: bool) -> Case:
    seconds = draw(0, 36 * 3_600)
    times = (np.sort(seconds) if in_order else seconds).astype("datetime64[s]")
    return sm.Windowed(sm.AUC(), width="1h", time="time"), one_score() | {"time": times}, 1


def shard_case(slices: int) -> Case:
    columns = one_score() | {"k": draw(0, slices), "user": draw(0, 100_000)}
    return sm.Sliced(sm.Sharded(sm.AUC(), unit="user"), by="k"), columns, 1


def matrix_case(setting: str, width: int) -> Case:
    """Return classes or labels; the number of scores is about the same whatever their number is."""
    rng, rows = np.random.default_rng(1), SCORES // width
    scores = rng.random((rows, width), np.float32)
    if setting == "num_labels":
        labels: Any = (rng.random((rows, width)) < 0.1).astype(np.uint8)
    else:
        labels, scores = rng.integers(0, width, rows), scores / scores.sum(axis=1, keepdims=True)
    return sm.AUC(**{setting: width}), {"y_true": labels, "y_score": scores}, width


def one_score() -> dict[str, Any]:
    labels, scores = cached_clicks(ROWS)
    return {"y_true": labels[:SCORES], "y_score": scores[:SCORES]}


def draw(low: int, high: int) -> Any:
    return np.random.default_rng(high).integers(low, high, SCORES)


def count_case(empty: Any, columns: dict[str, Any], width: int, weighted: bool) -> float:
    """Return CPU nanoseconds a score, the fewest of three runs."""
    rows = len(columns["y_true"])
    if weighted:
        columns = columns | {"sample_weight": np.random.default_rng(2).random(rows) * 2}
    seconds = []
    for _ in range(3):
        metric, start = empty.copy(), time.process_time()
        for a in range(0, rows, BATCH):
            metric.update({name: c[a : a + BATCH] for name, c in columns.items()})
        seconds.append(time.process_time() - start)
    return min(seconds) / rows / width * 1e9


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
    for by, limit in ((["country"], 3.0), (["country", "device"], 3.2)):
        crossed = ",".join(by)
        runs = [(score_log([log], [crossed]).cpu, read_log(log, by).cpu) for _ in range(5)]
        ours, theirs = (min(cpu) for cpu in zip(*runs, strict=True))
        name = f"eval --by {crossed}"
        sheet.line(name, ours / ROWS * 1e9, 75, "ns/row")
        sheet.line(f"{name} / reading", ours / theirs, limit, asked=2)
    sheet.show(f"{ROWS:,} rows by 12 and by 36 slices")


def eval_memory() -> None:
    """Print the peak memory of `eval`: by 36 slices it does not grow with the rows, by 1,000 it does.

    By 1,000 slices it is 770 MiB for 10 million rows, and 980 to 1,120 MiB for 80 million, where each slice exceeds 65,536
    rows. Until then, each of two threads keeps the scores of a slice as codes of 4 bytes. These take up to 500 MiB, and
    the histograms of the slices 250 MiB. How the threads share the rows differs from run to run, and the peak with it.
    """
    rows = []
    for by, most in (("country,device", 450), ("campaign", 1300)):
        for n in (ROWS, MANY_ROWS):
            used = score_log([logs.log(n)], [by])
            passed = verdict(f"memory, {n:,} rows by {by}", used.peak <= most * MIB)
            rows.append([by, f"{n:,}", f"{used.peak / MIB:.0f}", f"{most}", passed])
    table("Peak memory of eval", ["by", "rows", "peak MiB", "at most", ""], rows)


if __name__ == "__main__":
    main()
