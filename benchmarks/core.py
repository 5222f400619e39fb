"""The core through its doors: many slices, saved collections, shards, small batches, columns of every dtype.

A line each with its limit; a ratio is of two calls that take turns in this run. Limits in increments are of
`counts[key] += 1` on a dict, measured in this run, too, so that they hold on a slower machine. Where a limit is not that
of the issue that asked for this core, the line names the other.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas
import pyarrow

import streammetrics as sm
from benchmarks.data import clicks
from benchmarks.report import Sheet
from benchmarks.timing import (
    INCREMENTS,
    MIB,
    Timing,
    fastest,
    forget_peak,
    increment,
    increments,
    interleave,
    peak,
    resident,
)
from streammetrics.batch.column_binding import PLAIN
from streammetrics.collect.metric_like import states_of
from streammetrics.count.batch_updater import BatchUpdater
from streammetrics.count.reads import Read
from streammetrics.state.axes import Axis
from streammetrics.state.state import State
from streammetrics.statistics.scores import ScoreHistogram

ROWS, SLICES, SHARDS = 10_000_000, 10_000, 64
BATCH, SMALL = 65_536, 256
MANY, DISTINCT = 10_000, 400
PARTS = 64

Call = Callable[[], object]
Columns = dict[str, Any]


def main() -> None:
    """Print all lines."""
    many_slices()
    windows()
    shards()
    saved_collections()
    saved_slices()
    one_frame()
    keys()
    groups()
    dtypes()
    weights()
    small_batches()
    one_row()


# -- tools -------------------------------------------------------------------------------------------------------------


def rows_of(n: int, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    return clicks(n, 0.05, seed)


def times(call: Call, n: int) -> Call:
    """A call that calls n times."""

    def loop() -> None:
        for _ in range(n):
            call()

    return loop


def updates(metric: Any, *columns: Any, **named: Any) -> Call:
    """A call that counts a batch, once more each time; past what is kept exactly."""
    wide = rows_of(BATCH + 1)
    if isinstance(metric, sm.AUC):
        metric.update(*wide)  # in buckets from here on, as streams are
    return partial(metric.update, *columns, **named)


def timings(calls: Mapping[str, Call], rows: int, rounds: int = 9) -> dict[str, Timing]:
    """Calls in turn, each repeated as often as makes a round long enough to be measured."""
    n = max(4, min(400, 2_000_000 // max(rows, 1) // 20))
    return interleave({name: times(call, n) for name, call in calls.items()}, rounds)


def ratios(calls: Mapping[str, Call], rows: int, base: str) -> dict[str, float]:
    timed = timings(calls, rows)
    return {name: t.ratio(timed[base]) for name, t in timed.items() if name != base}


# -- many cells --------------------------------------------------------------------------------------------------------


def stream(update: Callable[..., object], columns: Columns, size: int = BATCH) -> list[float]:
    """Count columns in batches; return the CPU time after each."""
    start, out = time.process_time(), []
    for a in range(0, len(next(iter(columns.values()))), size):
        update({name: c[a : a + size] for name, c in columns.items()})
        out.append(time.process_time() - start)
    return out


def many_slices() -> None:
    """Slices of an AUC: rows in, bytes out and in, merge, results of all."""
    sheet = Sheet()
    y, s = rows_of(ROWS)
    rng = np.random.default_rng(2)
    columns = {"y_true": y, "y_score": s, "k": rng.integers(0, SLICES, ROWS)}
    half = {name: c[: ROWS // 2] for name, c in columns.items()}

    def empty() -> Any:
        return sm.Sliced(sm.AUC(bits=12), by="k")

    warm = empty()
    stream(warm.update, {name: c[: 8 * BATCH] for name, c in columns.items()})
    sm.from_bytes(warm.to_bytes()).merge(warm).bounds()
    runs, room = [], 0
    for _ in range(3):
        sliced = empty()
        before = resident()
        forget_peak()
        runs.append(stream(sliced.update, columns))
        room, held = peak() - before, sm.nbytes(sliced)
    first = 4_000_000 // BATCH
    at = min(r[first - 1] for r in runs) / (first * BATCH) * 1e9
    sheet.line("update, the first 4 M rows", at, 18, "ns/row")
    sheet.line("update, all rows", min(r[-1] for r in runs) / ROWS * 1e9, 30, "ns/row")
    sheet.line("memory held while counting", held / MIB, 100, "MiB")
    sheet.line("most memory while counting", room / MIB, 100, "MiB")
    other = empty()
    stream(other.update, half)
    data = sliced.to_bytes()
    states, others = states_of(sliced), states_of(other)
    calls: dict[str, tuple[Callable[[], Any], float]] = {
        "to_bytes": (sliced.to_bytes, states_of(sliced)[0].nbytes),
        "from_bytes": (lambda: states_of(sm.from_bytes(data)), states_of(sliced)[0].nbytes),
        "merge": (lambda: states[0].merge(others[0]), states[0].merge(others[0]).nbytes),
    }
    for name, (call, size) in calls.items():
        before = resident()
        forget_peak()
        made = call()
        most = (peak() - before) / size
        del made
        sheet.line(name, fastest(call), 0.3, "s")
        sheet.line(f"peak of {name} / result", most, 2.5)
    copies = [sliced.copy() for _ in range(3)]
    sheet.line("merge of objects", fastest(lambda: states_of(copies.pop().merge(other))), 0.3, "s")
    fresh = [sm.from_bytes(data) for _ in range(3)]

    def results() -> None:
        one = fresh.pop()
        assert len(one.compute()) == len(one.bounds()) == SLICES

    sheet.line("compute and bounds of all", fastest(results), 0.3, "s")
    sheet.show(
        f"{SLICES:,} slices of AUC(bits=12), {ROWS:,} rows in batches of {BATCH:,}, saved in {len(data):,} bytes"
    )


def windows() -> None:
    """A year of hourly windows, as rows come in time; and the last week kept, with late rows."""
    sheet = Sheet()
    n, hours = ROWS // 2, 8760
    y, s = rows_of(n)
    late = np.where(np.random.default_rng(3).random(n) < 0.01, 3600 * 24 * 9, 0)
    ts = np.datetime64("2023-01-01", "s") + (np.arange(n) * 3600 * hours // n - late).astype("m8[s]")
    columns = {"y_true": y, "y_score": s, "ts": ts}

    def year(keep: int | None = None) -> Any:
        return sm.Windowed(sm.AUC(bits=12), width="1h", time="ts", keep=keep)

    def seconds(make: Callable[[], Any]) -> float:
        return min(stream(make().update, columns)[-1] for _ in range(2))

    stream(year().update, {name: c[: 4 * BATCH] for name, c in columns.items()})
    whole, week = year(), year(keep=168)
    stream(whole.update, columns)
    stream(week.update, columns)
    sheet.line("update, all windows", seconds(year) / n * 1e9, 60, "ns/row")
    sheet.line("update, a week of them kept", seconds(lambda: year(168)) / n * 1e9, 90, "ns/row")
    sheet.line("lifetime", fastest(whole.lifetime), 0.3, "s")
    sheet.line("the last week as one", fastest(lambda: whole.last(168)), 0.05, "s")
    assert whole.lifetime().digest() == week.lifetime().digest()
    sheet.line("memory while counting, a week kept / all", sm.nbytes(week) / sm.nbytes(whole), 0.5)
    sheet.line("state, a week kept / all", states_of(week)[0].nbytes / states_of(whole)[0].nbytes, 0.05)
    sheet.show(f"{len(whole):,} windows of AUC(bits=12), {n:,} rows, 1 % of them nine days late")


def shards() -> None:
    """Slices by shards of users, the axes put in front by hand."""
    sheet = Sheet()
    y, s = rows_of(ROWS)
    rng = np.random.default_rng(3)
    columns = {"y_true": y, "y_score": s, "k": rng.integers(0, SLICES, ROWS), "user": rng.integers(0, 1_000_000, ROWS)}
    axes = (Axis(("k",)), Axis(("user",), "shard", SHARDS))

    def feed() -> BatchUpdater:
        return BatchUpdater([Read(ScoreHistogram(bits=10).empty_copy(axes), PLAIN)], memory_limit=1 << 35)

    def counted(columns: Columns) -> tuple[State, float]:
        made, spent = feed(), 0.0
        spent = stream(made.count, columns)[-1]
        start = time.process_time()
        state = made.states[0]
        settled.append(time.process_time() - start)
        return state, spent

    settled: list[float] = []
    counted({name: c[: 4 * BATCH] for name, c in columns.items()})
    state, seconds = counted(columns)
    again = counted(columns)[1]
    part, _ = counted({name: c[ROWS // 2 :] for name, c in columns.items()})
    entries = len(state.cells.tallies["rows"])
    sheet.line("update", min(seconds, again) / ROWS * 1e9, 40, "ns/row")
    sheet.line("the state of what was counted", min(settled[1:3]), 1.3, "s")
    sheet.line("bytes an entry", state.nbytes / entries, 10, "bytes")
    sheet.line("merge", fastest(lambda: state.merge(part)), 0.5, "s")
    sheet.show(f"{SLICES:,} slices x {SHARDS} shards x 10 bits, {ROWS:,} rows: {entries:,} entries")


# -- frames ------------------------------------------------------------------------------------------------------------


def saved_collections() -> None:
    """Thousands of saved collections, merged into one."""
    sheet = Sheet()
    for bits, limit in ((12, 1.5), (16, 4.0)):
        rng, held = np.random.default_rng(0), []
        for i in range(DISTINCT):
            n = int(np.exp(rng.uniform(np.log(100), np.log(10_000))))
            y, s = rows_of(n, i)
            collection = sm.MetricCollection(
                sm.AUC(bits=bits),
                sm.LogLoss(),
                sm.F1(threshold=0.1),
                sm.ExpectedCalibrationError(),
                sm.Task(sm.MSE(), y_pred="y_score"),
            )
            held.append(collection.update(y, s.astype(np.float64) if i % 2 else s).to_bytes())
        frames = held * (MANY // DISTINCT)
        sheet.line(f"{bits} bits", fastest(partial(sm.merge, frames), 2), limit, "s")
    sheet.show(f"sm.merge of {MANY:,} saved collections of 5 metrics, of 100 to 10,000 rows each")


def saved_slices() -> None:
    """Files of 36 slices of 2,800 rows each, merged into one: most of their slices are in buckets in the end."""
    sheet, rows = Sheet(), 100_000
    metrics = sm.Sliced(sm.MetricCollection(sm.AUC(), sm.LogLoss(), sm.Calibration()), by="slice")
    parts = []
    for i in range(PARTS):
        y, s = rows_of(rows, i)
        columns = {"y_true": y, "y_score": s.astype(np.float64), "slice": np.arange(rows) % 36}
        parts.append(metrics.copy().update(columns).to_bytes())
    sheet.line("bytes a part", len(parts[0]), 700_000, "bytes")
    sheet.line("a part", fastest(partial(sm.merge, parts), 2) / PARTS * 1e3, 11, "ms", 5)
    sheet.show(f"sm.merge of {PARTS} saved parts with 36 slices and {rows:,} rows each")


READ = {0.15: 0.31, 0.5: 0.47}  # by what is asked for: what AMD Zen 3 keeps; Zen 4 keeps 0.2 and 0.43


def one_frame() -> None:
    """One saved AUC: bytes, and the time to read it."""
    sheet = Sheet()
    cases: tuple[tuple[int, Any, int, float, float], ...] = (
        (100, np.float32, 16, 450, 0.15), (100, np.float64, 16, 800, 0.15), (100, np.float32, 12, 250, 0.15),
        (10_000, np.float32, 16, 25_000, 0.5), (10_000, np.float64, 16, 70_000, 0.5),
    )  # fmt: skip
    for n, dtype, bits, most, limit in cases:
        y, s = rows_of(n)
        s = s * (1 - 1e-9 * s.astype(np.float64)) if dtype is np.float64 else s  # with all its bits
        data = sm.AUC(bits=bits).update(y, s).to_bytes()
        name = f"{n:,} rows of {np.dtype(dtype).name}, {bits} bits"
        sheet.line(f"size, {name}", len(data), most, "bytes")
        # of a metric: its state alone takes two thirds
        sheet.short(f"reading, {name}", lambda data=data: states_of(sm.from_bytes(data)), READ[limit], limit)
    y, s = rows_of(BATCH)
    auc = sm.AUC()

    def read_often() -> None:
        auc.reset()
        for a in range(0, BATCH, SMALL):
            auc.update(y[a : a + SMALL], s[a : a + SMALL])
            auc.compute()

    read_often()
    sheet.line("AUC read after every batch of 256 while exact", fastest(read_often) / (BATCH / SMALL) * 1e6, 450, "us")
    sheet.show("One frame of an AUC")


# -- keys, groups ------------------------------------------------------------------------------------------------------


def keys() -> None:
    """Many keys: merging them, and keys that are new all the time."""
    sheet = Sheet()
    rng, n, each = np.random.default_rng(4), 160_000, 40_000
    y, _ = rows_of(n)
    for kind in ("integer", "text"):
        made: list[Any] = []
        spent: list[float] = []
        for _ in range(3):
            pair, seconds = [], 0.0
            for first in (0, each // 2):
                k: Any = np.r_[np.arange(each), rng.integers(0, each, n - each)] + first
                k = rng.permutation(k) if kind == "integer" else np.char.add("key ", rng.permutation(k).astype(str))
                sliced = sm.Sliced(sm.CTR(), by="k")
                seconds += stream(sliced.update, {"y_true": y, "k": k}, 8192)[-1]
                pair.append(sliced)
            spent.append(seconds)
            made.append(pair)
        merged = fastest(lambda made=made: (lambda a, b: states_of(a.merge(b)))(*made.pop()))
        sheet.line(f"merge of 2 x 40,000 {kind} keys / their updates", merged / min(spent), 2)
    batches = [(y[:64], np.arange(a, a + 64)) for a in range(0, 64 * 1000, 64)]

    def arrive(fresh: bool, sliced: Any) -> None:
        known = batches[0][1]
        for label, k in batches:
            sliced.update(label, k=k if fresh else known)

    found = []
    for fresh in (True, False):
        best = float("inf")
        for _ in range(4):
            sliced = sm.Sliced(sm.CTR(), by="k")
            sliced.update(*batches[0][:1], k=batches[0][1])
            best = min(best, fastest(partial(arrive, fresh, sliced), 1))
        found.append(best / (64 * len(batches)) * 1e6)
    sheet.line("new keys in batches of 64, all that a row costs", found[0], 4, "us a key", 1)
    sheet.line("the same, over keys that were there", found[0] - found[1], 1, "us a key")
    sheet.show("Keys")


def groups() -> None:
    """GroupAUC beside others."""
    sheet = Sheet()
    y, s = rows_of(8 * BATCH)
    users = np.random.default_rng(5).integers(0, 700_000, len(y))
    for size, n in ((BATCH, 8), (SMALL, 100)):

        def call(thing: Any, grouped: bool, size: int = size, n: int = n) -> Call:
            def run() -> None:
                thing.reset()
                for a in range(0, size * n, size):
                    named = {"group": users[a : a + size]} if grouped else {}
                    thing.update(y[a : a + size], s[a : a + size], **named)

            return run

        timed = interleave(
            {
                "alone": call(sm.GroupAUC(), True),
                "in a collection": call(sm.MetricCollection(sm.GroupAUC()), True),
                "auc": call(sm.AUC(), False),
                "loss": call(sm.LogLoss(), False),
                "three": call(sm.MetricCollection(sm.AUC(), sm.LogLoss(), sm.GroupAUC()), True),
            }
        )
        ratio = timed["in a collection"].ratio(timed["alone"])
        sheet.line(f"GroupAUC in a collection / alone, {size:,} rows", ratio, 1.3)
        parts = zip(timed["alone"].cpu, timed["auc"].cpu, timed["loss"].cpu, strict=True)
        ratio = timed["three"].ratio(Timing(tuple(map(sum, parts)), ()))
        limit, asked = (1.3, None) if size == BATCH else (1.7, 1.3)
        sheet.line(f"AUC + LogLoss + GroupAUC / sum of parts, {size:,} rows", ratio, limit, asked=asked)
    sheet.show("Groups")


# -- columns -----------------------------------------------------------------------------------------------------------


def columns_of(n: int) -> dict[str, tuple[Any, Any]]:
    """Labels and scores of every dtype and kind."""
    y, s = rows_of(n)
    found: dict[str, tuple[Any, Any]] = {"uint8": (y, s)}
    for dtype in ("bool", "int8", "int32", "int64", "float32", "float64"):
        found[f"{dtype} labels"] = y.astype(dtype), s
    found["float16 scores"] = y, s.astype(np.float16)
    found["strided"] = np.repeat(y, 2)[::2], np.repeat(s, 2)[::2]
    found["pandas"] = pandas.Series(y), pandas.Series(s)
    found["Arrow"] = pyarrow.array(y), pyarrow.array(s)
    return found


def dtypes() -> None:
    """A lone AUC by what its columns are, over uint8 labels and float32 scores."""
    for n, limits in ((SMALL, {"pandas": 4.0, "Arrow": 4.0}),
                      (BATCH, {"bool labels": 1.05, "int8 labels": 1.05} | {
                          f"{d} labels": 1.3 for d in ("int32", "int64", "float32", "float64")})):  # fmt: skip
        sheet = Sheet()
        rest = 2.0 if n == SMALL else 1.3
        calls = {name: updates(sm.AUC(), *c) for name, c in columns_of(n).items()}
        for name, ratio in ratios(calls, n, "uint8").items():
            if n == SMALL or name not in ("strided", "pandas", "Arrow"):
                sheet.line(f"{name}, {n:,} rows", ratio, limits.get(name, rest))
        sheet.show("Lone AUC / the same of uint8 and float32")


def weights() -> None:
    """What weights cost."""
    sheet = Sheet()
    y, s = rows_of(BATCH)
    w = np.random.default_rng(6).random(BATCH) * 3 + 0.1
    cases: tuple[tuple[str, Callable[[], Any], float, float | None], ...]
    # A weighted row takes 2.3 ns, and a row without a weight 0.7 ns.
    cases = ("AUC", sm.AUC, 3.1, None), ("log-loss", sm.LogLoss, 2.3, 1.7)
    for name, make, limit, asked in cases:
        calls = {"none": updates(make(), y, s), "weighted": updates(make(), y, s, sample_weight=w)}
        sheet.line(f"{name}, weighted / unweighted", ratios(calls, BATCH, "none")["weighted"], limit, asked=asked)
    sheet.show(f"Weights, {BATCH:,} rows")


# -- small batches -----------------------------------------------------------------------------------------------------


def collection(*extra: Any) -> Any:
    return sm.MetricCollection(sm.AUC(), sm.LogLoss(), sm.NormalizedEntropy(), sm.Calibration(), *extra)


def small_batches() -> None:
    """256 rows: collections over lone metrics, and metrics over each other."""
    sheet = Sheet()
    y, s = rows_of(SMALL)
    f = s.astype(np.float64)
    wide = rows_of(BATCH + 1)
    calls: dict[str, Call] = {
        "AUC": updates(sm.AUC(), y, s),
        "only": partial(sm.MetricCollection(sm.AUC()).update(*wide).update, y, s),
        "calibration": updates(sm.Calibration(), y, s),
        "Mean": updates(sm.Mean(), f),
        "R2": updates(sm.R2(), f, f),
        "MAE": updates(sm.MAE(), f, f),
        "four": partial(collection().update(*wide).update, y, s),
        "five": partial(collection(sm.CTR()).update(*wide).update, y, s),
    }
    timed = timings(calls, SMALL)
    sheet.line("a collection of only AUC / AUC", timed["only"].ratio(timed["AUC"]), 1.3)
    for name in ("Mean", "R2", "MAE"):
        limit, asked = (2.6, 2.0) if name == "R2" else (2.0, None)
        sheet.line(f"{name} / Calibration", timed[name].ratio(timed["calibration"]), limit, asked=asked)
    sheet.line("CTR beside AUC, LogLoss, NE, calibration / without it", timed["five"].ratio(timed["four"]), 1.3)
    each = min(timed["five"].cpu) / min(400, 100_000 // SMALL) / increment()
    sheet.line("the five", each, FIVE, "increments")
    sheet.show(f"Batches of {SMALL}")


FIVE = 101.0  # 0.4 times what the old core took for the four without CTR


def one_row() -> None:
    """One row at a time, in increments of a number in a dict."""
    sheet = Sheet()
    y, s = rows_of(1)
    w, f = np.ones(1), s.astype(np.float64)
    wide = rows_of(BATCH + 1)
    weighted = sm.AUC().update(*wide, sample_weight=np.ones(BATCH + 1))
    calls: Sequence[tuple[str, Call, float, float | None]] = (
        ("AUC", updates(sm.AUC(), y, s), 39, 20),
        ("AUC while exact", partial(sm.AUC().update, y, s), 39, 20),
        ("a collection of four", partial(collection().update(*wide).update, y, s), 45, None),
        ("Mean", partial(sm.Mean().update, f), 45, None),
        ("weighted AUC", partial(weighted.update, y, s, sample_weight=w), 77, 45),
    )
    n = 2000
    timed = interleave({"": increments} | {name: times(call, n) for name, call, *_ in calls}, 15)
    for name, _, limit, asked in calls:
        sheet.line(name, timed[name].ratio(timed[""]) * INCREMENTS / n, limit, "increments", asked)
    nanoseconds = min(timed[""].cpu) / INCREMENTS * 1e9
    sheet.show(f"Update with one row, in increments of {nanoseconds:.0f} ns")


if __name__ == "__main__":
    main()
