"""Spark: metrics by slice beside `groupBy(...).applyInArrow`, and of all rows beside `BinaryClassificationEvaluator`.

`python -m benchmarks.spark 20000000` takes so many rows; 5 million by default, which take some minutes. Without pyspark
there is nothing to run.
"""

from __future__ import annotations

import json
import sys
import time
import urllib.request
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import streammetrics as sm
from benchmarks.data import FOLDER, clicks, complete
from benchmarks.report import table, verdict
from benchmarks.timing import MIB, family_cpu

ROWS = 5_000_000
PIECE = 1_000_000  # rows of a file
EVALUATED = 2_000_000  # rows, of which Spark's evaluator takes half a minute
SLICES = {"by variant and day, 21 slices": (["variant", "day"], 7), "by campaign, 10,000 slices": (["campaign"], 3)}
"""Keys, and how many rounds: where they take seconds, what Java compiles in the first of them is not to decide."""
METRICS = [sm.AUC(), sm.LogLoss()]


def log(rows: int) -> Path:
    """Write a log once: a million rows a file."""
    folder = FOLDER / f"spark-{rows}"
    folder.mkdir(parents=True, exist_ok=True)
    for i in range(max(1, rows // PIECE)):
        path = folder / f"{i:03}.parquet"
        if not path.exists():
            with complete(path) as partial:
                pq.write_table(piece(min(rows, PIECE), i), partial, row_group_size=PIECE // 2)
    return folder


def piece(rows: int, seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    labels, scores = clicks(rows, seed=seed)
    variant = pa.DictionaryArray.from_arrays(rng.integers(0, 3, rows, np.int8), ["control", "red", "green"])
    return pa.table(
        {
            "y_true": labels.astype(np.int32),
            "y_score": scores,
            "variant": variant.cast(pa.string()),
            "day": pa.array(20_000 + rng.integers(0, 7, rows, np.int32), pa.date32()),
            "campaign": rng.integers(0, 10_000, rows),
            "user": rng.integers(0, rows, rows),
        }
    )


class Cost(NamedTuple):
    """What a run took: CPU seconds of the driver, Java and all workers, seconds, and bytes shuffled."""

    cpu: float
    wall: float
    shuffled: int


class Watch:
    """Measures what runs on a session."""

    def __init__(self, context: Any) -> None:
        self.url = f"{context.uiWebUrl}/api/v1/applications/{context.applicationId}/stages"

    def run(self, call: Callable[[], Any]) -> Cost:
        shuffled, cpu, start = self._shuffled(), family_cpu(), time.perf_counter()
        call()
        cpu, wall = family_cpu() - cpu, time.perf_counter() - start
        time.sleep(0.5)  # the page follows
        return Cost(cpu, wall, self._shuffled() - shuffled)

    def _shuffled(self) -> int:
        with urllib.request.urlopen(self.url) as answer:
            return sum(stage["shuffleWriteBytes"] for stage in json.load(answer))


def applied(frame: Any, by: list[str]) -> Any:
    """Compute the same by slice as Spark's guide has it."""

    def one(rows):  # type: ignore[no-untyped-def]
        found = sm.MetricCollection(METRICS).update(rows).compute()
        return pa.table({"auc": [found["auc"]], "log_loss": [found["log_loss"]]})

    chosen = frame.select("y_true", "y_score", *by)
    return chosen.groupBy(*by).applyInArrow(one, "auc double, log_loss double").collect()


def compare(title: str, watch: Watch, sides: dict[str, Callable[[], Any]], *, rounds: int) -> None:
    """Run all sides in turn, and say whether the first is ahead of the last in time, and in bytes."""
    for call in sides.values():
        call()  # starts workers
    costs = [{name: watch.run(call) for name, call in sides.items()} for _ in range(rounds)]
    ours, peer = next(iter(sides)), list(sides)[-1]
    rows = []
    for name in sides:
        cpu, wall, size = (median(c[name][i] for c in costs) for i in range(3))
        rows.append([name, f"{cpu:.2f}", f"{wall:.2f}", f"{size / MIB:.2f}"])
    table(title, ["", "CPU s", "wall s", "MiB shuffled"], rows)
    for name, i in (("CPU", 0), ("bytes", 2)):
        ratio = median(c[ours][i] / c[peer][i] for c in costs)
        print(
            f"{name}: {ratio:.3f} of {peer}, target below 1: {verdict(f'spark {title}: {name}', ratio < 1)}", flush=True
        )


def main(rows: int = ROWS) -> None:
    """Print time and shuffled bytes of every way, and the verdicts."""
    if find_spec("pyspark") is None:
        print("\n## Spark\n\nskipped: pyspark is not installed (pip install 'streammetrics[spark]')\n")
        return
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as f

    from streammetrics.engines import spark

    builder = SparkSession.builder.master("local[2]").config("spark.driver.memory", "4g")
    session = builder.config("spark.log.level", "ERROR").config("spark.ui.showConsoleProgress", "false").getOrCreate()
    try:
        frame, watch = session.read.parquet(str(log(rows))), Watch(session.sparkContext)
        for name, (by, rounds) in SLICES.items():
            ways = {
                f"evaluate, {how}": lambda by=by, how=how: spark.evaluate(
                    frame, METRICS, by, strategy=how
                ).state.compute()
                for how in ("auto", "states", "rows")
            }
            ways["applyInArrow"] = lambda by=by: applied(frame, by)
            compare(f"{rows:,} rows {name}", watch, ways, rounds=rounds)
        from pyspark.ml.evaluation import BinaryClassificationEvaluator

        few, peer = (
            session.read.parquet(str(log(min(rows, EVALUATED)))),
            BinaryClassificationEvaluator(labelCol="y_true"),
        )
        score = f.col("y_score").cast("double").alias("rawPrediction")
        scored = few.select(f.col("y_true").cast("double"), score)
        sides = {
            "evaluate": lambda: spark.evaluate(few, sm.AUC()).state.compute(),
            "Spark's evaluator": lambda: peer.evaluate(scored),
        }
        compare(f"{min(rows, EVALUATED):,} rows, all", watch, sides, rounds=1)
        whole = watch.run(lambda: spark.evaluate(frame, METRICS).state.compute())
        print(f"\n{rows:,} rows, all: {whole.cpu:.2f} CPU s, {whole.wall:.2f} s, {whole.shuffled:,} bytes", flush=True)
    finally:
        session.stop()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
