"""What a row costs on each engine: reading its columns as the engine does, and computing metrics of them.

CPU time of the driver and of all workers, Java among them, on two cores. For Ray, Spark and Flink it is that of the whole
machine, which must be quiet. The fixed cost of a job is that of a log of 1,000 rows, and is not part of the cost of a
row. An engine that is not installed is left out, so run this file in an environment of each:
`python -m benchmarks.engines 1000000 DuckDB Spark`. Engines with a large fixed cost need 10 million rows.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

import streammetrics as sm
from benchmarks.data import FOLDER, clicks, complete
from benchmarks.report import table
from benchmarks.timing import family_cpu, machine_cpu

ROWS, FEW = 1_000_000, 1_000
PIECE = 250_000  # rows of a file
CORES, ROUNDS = 2, 3
BATCH = 1 << 17
TASK = sm.Task([sm.AUC(), sm.LogLoss(), sm.Calibration()], y_true="click", y_score="pctr")
WORK = {
    "label and score": (["click", "pctr"], sm.MetricCollection(TASK)),
    "label, score, country": (["click", "pctr", "country"], sm.Sliced(TASK, by="country")),
}
"""The columns that are read, and the metrics that are computed of them."""

Read = Callable[[Path, Sequence[str]], object]
Evaluate = Callable[[Path, Sequence[str], Any], Any]
Engine = Callable[[], AbstractContextManager[tuple[Read, Evaluate]]]
Clock = Callable[[], float]


def log(rows: int) -> Path:
    """Write a log once, as Parquet and as CSV; return its folder."""
    folder = FOLDER / f"engines-{rows}"
    for i in range(-(-rows // PIECE)):
        path = folder / f"{i:03}.parquet"
        if path.exists():
            continue
        size, rng = min(PIECE, rows - i * PIECE), np.random.default_rng(i)
        labels, scores = clicks(size, seed=i)
        countries = np.array(["br", "de", "fr", "in", "jp", "us"])[rng.integers(0, 6, size)]
        piece = pa.table({"click": labels.astype(np.int32), "pctr": scores, "country": countries})
        with complete(path) as partial_path:
            pq.write_table(piece, partial_path)
        with complete(folder / "csv" / f"{i:03}.csv") as partial_path:
            pa.csv.write_csv(piece, partial_path, pa.csv.WriteOptions(include_header=False, quoting_style="none"))
    return folder


# -- engines: how each reads columns, and how it computes metrics ------------------------------------------------------


@contextmanager
def duckdb() -> Iterator[tuple[Read, Evaluate]]:
    import duckdb

    from streammetrics.engines.duckdb import evaluate

    with duckdb.connect(config={"threads": CORES}) as connection:

        def read(folder: Path, columns: Sequence[str]) -> None:
            rows = connection.read_parquet(f"{folder}/*.parquet").select(*map(duckdb.ColumnExpression, columns))
            for _ in rows.to_arrow_reader(BATCH):
                pass

        yield (
            read,
            lambda folder, _, metrics: evaluate(connection.read_parquet(f"{folder}/*.parquet"), metrics),
        )


@contextmanager
def polars() -> Iterator[tuple[Read, Evaluate]]:
    import polars as pl

    from streammetrics.engines.polars import evaluate

    def read(folder: Path, columns: Sequence[str]) -> None:
        for _ in pl.scan_parquet(f"{folder}/*.parquet").select(columns).collect_batches(chunk_size=BATCH):
            pass

    yield read, lambda folder, _, metrics: evaluate(pl.scan_parquet(f"{folder}/*.parquet"), metrics)


@contextmanager
def dask() -> Iterator[tuple[Read, Evaluate]]:
    import dask
    import dask.dataframe as dd

    from streammetrics.engines.dask import evaluate

    def read(folder: Path, columns: Sequence[str]) -> None:
        dd.read_parquet(f"{folder}/*.parquet", columns=list(columns)).map_partitions(len).compute()

    with dask.config.set(scheduler="threads", num_workers=CORES):
        yield read, lambda folder, _, metrics: evaluate(dd.read_parquet(f"{folder}/*.parquet"), metrics)


@contextmanager
def threads() -> Iterator[tuple[Read, Evaluate]]:
    from streammetrics.engines.local import evaluate

    def parts(folder: Path, columns: Sequence[str]) -> list[Any]:
        return [partial(batches, file, columns) for file in sorted(folder.glob("*.parquet"))]

    def read(folder: Path, columns: Sequence[str]) -> None:
        with ThreadPoolExecutor(CORES) as pool:
            list(pool.map(lambda part: sum(batch.num_rows for batch in part()), parts(folder, columns)))

    yield read, lambda folder, columns, metrics: evaluate(parts(folder, columns), metrics, workers=CORES)


def batches(file: Path, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    return pq.ParquetFile(file).iter_batches(BATCH, columns=list(columns), use_threads=False)


@contextmanager
def ray() -> Iterator[tuple[Read, Evaluate]]:
    import ray

    from streammetrics.engines.ray import evaluate

    ray.init(num_cpus=CORES, include_dashboard=False, log_to_driver=False)
    ray.data.DataContext.get_current().enable_progress_bars = False

    def count(rows: pa.Table) -> pa.Table:
        return pa.table({"rows": [rows.num_rows]})

    def read(folder: Path, columns: Sequence[str]) -> None:
        rows = ray.data.read_parquet(str(folder), columns=list(columns))
        rows.map_batches(count, batch_size=None, batch_format="pyarrow").take_all()

    yield read, lambda folder, _, metrics: evaluate(ray.data.read_parquet(str(folder)), metrics)
    ray.shutdown()


@contextmanager
def beam() -> Iterator[tuple[Read, Evaluate]]:
    import apache_beam as beam

    from streammetrics.engines.beam import FoldTables

    def run(folder: Path, columns: Sequence[str], *steps: Any) -> None:
        with beam.Pipeline("DirectRunner") as pipeline:
            rows = pipeline | beam.io.ReadFromParquetBatched(f"{folder}/*.parquet", columns=list(columns))
            for step in steps:
                rows = rows | step

    def read(folder: Path, columns: Sequence[str]) -> None:
        run(folder, columns, beam.Map(lambda rows: rows.num_rows), beam.CombineGlobally(sum))

    def evaluate(folder: Path, columns: Sequence[str], metrics: Any) -> Any:
        path = folder / f"{os.getpid()}.smet"
        run(folder, columns, beam.CombineGlobally(FoldTables(metrics)), beam.Map(lambda total: sm.save(total, path)))
        try:
            return sm.load(path)
        finally:
            path.unlink()

    yield read, evaluate


@contextmanager
def spark() -> Iterator[tuple[Read, Evaluate]]:
    from pyspark.sql import SparkSession

    from streammetrics.engines import spark

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(f"local[{CORES}]").config("spark.log.level", "ERROR")
    session = builder.config("spark.ui.enabled", "false").config("spark.ui.showConsoleProgress", "false").getOrCreate()

    def read(folder: Path, columns: Sequence[str]) -> None:
        session.read.parquet(f"{folder}/*.parquet").select(*columns).write.format("noop").mode("overwrite").save()

    yield (
        read,
        lambda folder, _, metrics: spark.evaluate(session.read.parquet(f"{folder}/*.parquet"), metrics).state,
    )
    session.stop()


@contextmanager
def flink() -> Iterator[tuple[Read, Evaluate]]:
    """Flink reads CSV here, because its Parquet needs a library that `pip` does not install."""
    from pyflink.java_gateway import get_gateway
    from pyflink.table import EnvironmentSettings, TableEnvironment

    from streammetrics.engines.flink import evaluate

    env = TableEnvironment.create(EnvironmentSettings.in_batch_mode())
    for name in ("python.executable", "python.client.executable"):
        env.get_config().set(name, sys.executable)
    env.get_config().set("parallelism.default", str(CORES))

    def view(folder: Path) -> str:
        name = folder.name.replace("-", "_")
        env.execute_sql(
            f"CREATE TEMPORARY TABLE IF NOT EXISTS {name} (click INT, pctr FLOAT, country STRING) "
            f"WITH ('connector' = 'filesystem', 'path' = 'file://{folder}/csv', 'format' = 'csv')"
        )
        return name

    def read(folder: Path, columns: Sequence[str]) -> None:
        largest = ", ".join(f"MAX({name})" for name in columns)
        with env.sql_query(f"SELECT {largest} FROM {view(folder)}").execute().collect() as rows:
            list(rows)

    yield read, lambda folder, _, metrics: evaluate(env.from_path(view(folder)), metrics)
    get_gateway().shutdown()


ENGINES: dict[str, tuple[str, Engine, Clock]] = {
    "DuckDB": ("duckdb", duckdb, family_cpu),
    "Polars": ("polars", polars, family_cpu),
    "Dask, threads": ("dask", dask, family_cpu),
    "local.evaluate, threads": ("pyarrow", threads, family_cpu),
    "Ray": ("ray", ray, machine_cpu),
    "Beam, DirectRunner": ("apache_beam", beam, family_cpu),
    "Spark": ("pyspark", spark, machine_cpu),
    "Flink, from CSV": ("pyflink", flink, machine_cpu),
}


# -- measurements ------------------------------------------------------------------------------------------------------


def measure(read: Read, evaluate: Evaluate, clock: Clock, small: Path, large: Path, rows: int) -> list[str]:
    """Return the cells of a line: the seconds of a job, and the nanoseconds a row of each piece of work."""
    jobs: dict[Any, Callable[[], Any]] = {}
    for folder in (small, large):
        for name, (columns, metrics) in WORK.items():
            jobs[folder, name, "read"] = partial(read, folder, columns)
            jobs[folder, name, "compute"] = partial(evaluate, folder, columns, metrics)
    spent: dict[Any, list[float]] = {key: [] for key in jobs}
    for _ in range(1 + ROUNDS):
        for key, job in jobs.items():
            before = clock()
            job()
            spent[key].append(clock() - before)
    # The first round compiles, and starts workers. In the others, what else runs on the machine only adds.
    least = {key: min(seconds[1:]) for key, seconds in spent.items()}
    beyond = [least[large, name, what] - least[small, name, what] for name in WORK for what in ("read", "compute")]
    fixed = least[small, next(iter(WORK)), "compute"]
    return [f"{fixed:.2f}", *(f"{seconds / rows * 1e9:.0f}" for seconds in beyond)]


def check(evaluate: Evaluate, folder: Path) -> None:
    """Raise unless the engine computes what one pass does."""
    for columns, metrics in WORK.values():
        whole = metrics.copy().update(pq.read_table([*folder.glob("*.parquet")], columns=columns))
        assert evaluate(folder, columns, metrics).digest() == whole.digest()


def main(rows: int = ROWS, *names: str) -> None:
    """Print a line for each engine."""
    small, large = log(FEW), log(rows)
    lines = []
    for name, (needed, engine, clock) in ENGINES.items():
        if names and not name.startswith(names):
            continue
        if find_spec(needed) is None:
            print(f"{name}: skipped, as {needed} is not installed", flush=True)
            continue
        with engine() as (read, evaluate):
            check(evaluate, small)
            lines.append([name, *measure(read, evaluate, clock, small, large, rows)])
            print(*lines[-1], flush=True)
    head = ["", "s a job", *(f"{word} {name}" for name in WORK for word in ("read", "compute"))]
    table(f"{rows:,} rows on each engine: CPU seconds of a job, and CPU ns a row beyond them", head, lines)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]), *sys.argv[2:])
