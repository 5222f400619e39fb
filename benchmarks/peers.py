"""Beside what people write by hand with numpy and polars, all our checks and exact sums on; one thread, CPU.

A line each with its limit: how many times the CPU time of the peer, in turns in this run. Where a limit is not what was
asked for, the line names the other: numbers are checked in a pass of their own, from memory, before any is counted.
"""

from __future__ import annotations

import os

os.environ["POLARS_MAX_THREADS"] = "1"  # before it is loaded

from collections.abc import Callable
from typing import Any

import numpy as np
import polars

import streammetrics as sm
from benchmarks.data import clicks
from benchmarks.report import in_time, table
from benchmarks.timing import interleave

ROWS, LONG, BATCH = 4_000_000, 16_000_000, 65_536
KEYED, KEYS = 1_000_000, 1_000
CLASSES, WIDE = 1_000, 50_000

Call = Callable[[], object]
Lines = list[list[str]]


def main() -> None:
    """Print a table of each kind."""
    lines: Lines = []
    for part in (sums, sketches, slices, choices, groups, keys, classes):
        part(lines)
    table("Beside numpy and polars", ["", "ours, ns/row", "theirs", "ratio", "at most", "asked for", ""], lines)


def compare(
    lines: Lines, name: str, ours: Call, theirs: Call, rows: int, limit: float, asked: float | None = None
) -> None:
    """Add a line: both in turns."""
    timed = interleave({"theirs": theirs, "ours": ours}, rounds=7)
    ratio = timed["ours"].ratio(timed["theirs"])
    times = [timed[who].nanoseconds(rows).split()[0] for who in ("ours", "theirs")]
    other = "" if asked is None else f"{asked:g}"
    lines.append([name, *times, f"{ratio:.2f}", f"{limit:g}", other, in_time(name, ratio, limit)])


def stream(make: Callable[[], Any], *columns: Any, batch: int = BATCH, **named: Any) -> Call:
    """Count columns in batches, and compute."""

    def call() -> object:
        metric = make()
        for a in range(0, len(columns[0]), batch):
            rows = slice(a, a + batch)
            metric.update(*(c[rows] for c in columns), **{n: c[rows] for n, c in named.items()})
        return metric.compute()

    return call


def batches(step: Callable[..., Any], *columns: np.ndarray) -> Call:
    """What a hand-written loop does: add what a function makes of each batch."""

    def call() -> object:
        return sum(step(*(c[a : a + BATCH] for c in columns)) for a in range(0, len(columns[0]), BATCH))

    return call


def sums(lines: Lines) -> None:
    rng = np.random.default_rng(3)
    y = rng.lognormal(3, 1, LONG)
    p = y * rng.lognormal(0, 0.3, LONG)

    def squares(y: np.ndarray, p: np.ndarray) -> np.ndarray:
        return np.array([len(y), y.sum(), (y * y).sum(), ((y - p) ** 2).sum()])

    def errors(y: np.ndarray, p: np.ndarray) -> np.ndarray:
        d = y - p
        return np.array([len(y), np.abs(d).sum(), (d * d).sum()])

    compare(lines, "R2 / numpy", stream(sm.R2, y, p), batches(squares, y, p), LONG, 2.1, 1.5)
    compare(lines, "Mean / numpy", stream(sm.Mean, y), batches(np.sum, y), LONG, 1.5, 1.5)
    compare(lines, "Sum / numpy", stream(sm.Sum, y), batches(np.sum, y), LONG, 1.5, 1.5)
    both = stream(lambda: sm.MetricCollection(sm.MAE(), sm.RMSE()), y, p)
    compare(lines, "MAE + RMSE / numpy", both, batches(errors, y, p), LONG, 1.5, 1.0)


def sketches(lines: Lines) -> None:
    rng = np.random.default_rng(4)
    values, ids = rng.lognormal(0, 1, ROWS), rng.integers(0, 1 << 40, ROWS)
    series, users = polars.Series(values), polars.Series(ids)
    ours = stream(lambda: sm.Quantile(q=0.9), values)
    compare(lines, "Quantile / polars", ours, lambda: series.quantile(0.9), ROWS, 1.5, 1.0)
    compare(lines, "DistinctCount / polars", stream(sm.DistinctCount, ids), users.approx_n_unique, ROWS, 1.2, 1.0)
    names = polars.Series([f"user {i}" for i in range(KEYS)]).gather(ids[:KEYED] % KEYS)
    array, objects = names.to_arrow(), names.to_numpy().astype(object)

    def distinct(column: Any) -> Call:
        return lambda: polars.Series(column).approx_n_unique()

    for name, column, limit in (("polars", names, 3.5), ("Arrow", array, 1.4), ("objects", objects, 1.7)):
        ours = stream(sm.DistinctCount, column)
        compare(lines, f"DistinctCount of strings, {name} / polars", ours, distinct(column), KEYED, limit, 1.0)


def slices(lines: Lines) -> None:
    y, s = clicks(ROWS, 0.05, 5)
    k = np.random.default_rng(5).integers(0, 200, ROWS)
    frame = polars.DataFrame({"y": y, "s": s, "k": k})
    rank, p, n = polars.col("s").rank(), polars.col("y").cast(polars.Float64).sum(), polars.len()
    auc = ((rank * polars.col("y")).sum() - p * (p + 1) / 2) / (p * (n - p))
    ours = stream(lambda: sm.Sliced(sm.AUC(), by="k"), y, s, k=k)
    compare(lines, "AUC of 200 slices / polars' rank", ours, lambda: frame.group_by("k").agg(auc), ROWS, 1.0)


def choices(lines: Lines) -> None:
    y, s = clicks(ROWS, 0.05, 6)
    chosen = np.random.default_rng(6).random(ROWS) < 0.5

    def task(**how: Any) -> Callable[[], Any]:
        return lambda: sm.MetricCollection(sm.Task([sm.AUC(), sm.LogLoss()], **how))

    plain = stream(lambda: sm.MetricCollection(sm.AUC(), sm.LogLoss()), y, s)
    where = stream(task(where="chosen"), y, s, chosen=chosen)
    compare(lines, "where= / without", where, plain, ROWS, 2.6, 1.5)
    drop = stream(lambda: sm.MetricCollection(sm.AUC(), sm.LogLoss(), on_invalid="drop"), y, s)
    compare(lines, 'on_invalid="drop" / without', drop, plain, ROWS, 1.7, 1.5)


def groups(lines: Lines) -> None:
    y, s = clicks(KEYED, 0.3, 9)
    k = polars.Series([f"user {i}" for i in range(KEYS)]).gather(np.random.default_rng(9).integers(0, KEYS, KEYED))
    frame = polars.DataFrame({"y": y, "s": s, "k": k})
    rank, p, n = polars.col("s").rank(), polars.col("y").cast(polars.Float64).sum(), polars.len()
    auc = ((rank * polars.col("y")).sum() - p * (p + 1) / 2) / (p * (n - p))
    ours = stream(sm.GroupAUC, y, s, group=k)
    compare(lines, "GroupAUC, strings / polars' rank", ours, lambda: frame.group_by("k").agg(auc), KEYED, 1.0)


def keys(lines: Lines) -> None:
    rng = np.random.default_rng(7)
    y = (rng.random(KEYED) < 0.05).astype(np.uint8)
    numbers = rng.integers(0, KEYS, KEYED)
    texts = np.array([f"key {i}" for i in range(KEYS)])[numbers]
    kinds: dict[str, Any] = {
        "int64": numbers,
        "numpy U": texts,
        "numpy S": texts.astype("S"),
        "numpy object": texts.astype(object),
        "list": texts.tolist(),
        "polars categorical": polars.Series(texts).cast(polars.Categorical),
    }

    def theirs(k: Any) -> Call:
        def call() -> object:
            column = k.astype("U") if getattr(k, "dtype", None) == "S8" else k
            return polars.DataFrame({"y": y, "k": column}).group_by("k").agg(polars.col("y").mean())

        return call

    for name, k in kinds.items():
        ours = stream(lambda: sm.Sliced(sm.CTR(), by="k"), y, k=k)
        limit = {"polars categorical": 2.8, "numpy S": 2.4, "list": 1.4, "numpy object": 1.4}.get(name, 2.0)
        compare(lines, f"keys, {name} / polars' group_by", ours, theirs(k), KEYED, limit, 2.0)


def classes(lines: Lines) -> None:
    rng = np.random.default_rng(8)
    p, y = rng.random((WIDE, CLASSES), np.float32), rng.integers(0, CLASSES, WIDE)
    ours = stream(lambda: sm.Accuracy(num_classes=CLASSES), y, p, batch=2_000)
    top = stream(lambda: sm.TopKAccuracy(num_classes=CLASSES), y, p, batch=2_000)
    compare(lines, "Accuracy of 1,000 classes / argmax", ours, lambda: (p.argmax(axis=1) == y).mean(), WIDE, 2.0, 1.5)
    compare(lines, "TopKAccuracy of 1,000 classes / argmax", top, lambda: (p.argmax(axis=1) == y).mean(), WIDE, 3.5)
