"""Logs that every engine counts, and the metrics it counts them with."""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
import warnings
from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import streammetrics as sm


class Case(NamedTuple):
    """A log, where it may be cut anywhere between rows, and what to compute of it."""

    log: pa.Table
    metrics: Any
    in_order: bool = False

    def parts(self, n: int, seed: int = 0) -> list[pa.Table]:
        """Cut the log in n parts of very different sizes, perhaps empty. Rows are drawn at random, or in order."""
        draw = np.random.default_rng(seed)
        order = np.arange(self.log.num_rows) if self.in_order else draw.permutation(self.log.num_rows)
        edges = np.sort(draw.integers(0, self.log.num_rows + 1, n - 1))
        return [self.log.take(piece) for piece in np.split(order, edges)]

    def digest(self, *, sealed: bool = False) -> str:
        """What one pass over the whole log ends in; where groups are closed, in constant size."""
        whole = self.metrics.copy().update(self.log)
        return (sm.seal(whole) if sealed else whole).digest()


def impressions(rows: int, seed: int = 3) -> pa.Table:
    """Impressions of two models: floats of both widths, weights, users, and slices, some of them null."""
    draw = np.random.default_rng(seed)
    p = draw.beta(1, 8, rows)
    click = draw.random(rows) < p
    country = draw.choice(np.array(["br", "de", "us", None], object), rows)
    return pa.table(
        {
            "click": pa.array(click.astype(np.int8)),
            "convert": pa.array(click & (draw.random(rows) < 0.3)),
            "pctr": pa.array(p.astype(np.float32)),
            "pctr_b": pa.array(p**0.9),
            "price": pa.array(draw.integers(1, 40, rows) / 8),
            "user": pa.array(draw.integers(0, max(rows // 20, 1), rows)),
            "country": pa.array(country.tolist(), pa.string()),
            "device": pa.array(draw.choice(["app", "web"], rows).tolist()).dictionary_encode(),
            "unread": pa.array(np.zeros(rows)),
        }
    )


def queries(rows: int, seed: int = 4) -> pa.Table:
    """Queries, a row each, with lists of documents."""
    draw = np.random.default_rng(seed)
    lengths = draw.integers(1, 9, rows)
    return pa.table(
        {
            "y_true": pa.array([draw.integers(0, 3, n).tolist() for n in lengths]),
            "y_score": pa.array([draw.random(n).round(1).tolist() for n in lengths]),
        }
    )


def documents(queries: int, seed: int = 5) -> pa.Table:
    """Queries with a row for each document, sorted by two columns; some of the queries are longer than a batch."""
    draw = np.random.default_rng(seed)
    lengths = np.where(draw.random(queries) < 0.01, 1500, draw.integers(1, 9, queries))
    of_row = np.repeat(np.arange(queries), lengths)
    return pa.table(
        {
            "day": pa.array((of_row // 400).astype(np.int32)),
            "session": pa.array([f"s{q % 400}" for q in of_row.tolist()]),
            "y_true": pa.array(draw.integers(0, 3, len(of_row)).astype(np.int8)),
            "y_score": pa.array(draw.random(len(of_row)).round(3).astype(np.float32)),
        }
    )


def by_session() -> sm.MetricCollection:
    return sm.MetricCollection(sm.Task([sm.NDCG(k=3), sm.MeanReciprocalRank()], query=("day", "session")))


def scored() -> sm.MetricCollection:
    by = ("country", "device")
    return sm.MetricCollection(
        {
            "ctr": sm.Task(
                [sm.AUC(), sm.LogLoss(), sm.Calibration(), sm.ExpectedCalibrationError(), sm.GroupAUC()],
                y_true="click",
                y_score="pctr",
                group="user",
            ),
            "weighted": sm.Task(
                [sm.AUC(bits=12), sm.LogLoss()], y_true="click", y_score="pctr_b", sample_weight="price"
            ),
            "cvr": sm.Task([sm.NormalizedEntropy()], y_true="convert", y_score="pctr", where="click"),
            "slices": sm.Sliced(sm.Task([sm.AUC(bits=10), sm.CTR()], y_true="click", y_score="pctr"), by=by),
        }
    )


def simple(rows: int = 300) -> pa.Table:
    """Labels, scores in float64 and a variant, under the names that metrics read by themselves."""
    table = impressions(rows)
    named = {"y_true": "click", "y_score": "pctr_b", "variant": "country"}
    return pa.table({name: table[column] for name, column in named.items()})


CASES = {
    "scores": lambda: Case(impressions(6000), scored()),
    "rankings": lambda: Case(queries(1500), sm.MetricCollection(sm.NDCG(k=3), sm.MeanReciprocalRank())),
    "split queries": lambda: Case(documents(1000), by_session(), in_order=True),
    "scattered queries": lambda: Case(documents(1000), by_session()),
}


def one_state(case: Case) -> int:
    """Return the bytes that a driver receives at most, if it receives one state and the hashes of all queries."""
    queries = case.log.group_by(["day", "session"]).aggregate([]).num_rows if "session" in case.log.column_names else 0
    return 3 * len(case.metrics.copy().update(case.log).to_bytes()) // 2 + 16 * queries


def spoiled(tables: Sequence[pa.Table], column: str, part: int, row: int) -> list[pa.Table]:
    """The same with a bad value in one row of one part."""
    found = list(tables)
    values = found[part][column].to_numpy().copy()
    values[row] = 7.5
    at = found[part].column_names.index(column)
    found[part] = found[part].set_column(at, column, pa.array(values))
    return found


def write_files(tables: Sequence[pa.Table], folder: Path) -> Path:
    """Write each table as a Parquet file of several row groups; return their folder."""
    folder.mkdir()
    for i, table in enumerate(tables):
        pq.write_table(table, folder / f"{i}.parquet", row_group_size=700)
    return folder


def row_groups(folder: Path) -> list[partial[pa.Table]]:
    """Return a callable for each row group of all files, which reads its rows."""
    files = sorted(folder.glob("*.parquet"))
    return [partial(read_row_group, file, i) for file in files for i in range(pq.read_metadata(file).num_row_groups)]


def read_row_group(file: Path, number: int) -> pa.Table:
    return pq.ParquetFile(file).read_row_group(number)


@cache
def start_flink() -> Any:
    """Start Flink in this process; it ends with the process."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of what Flink pins, and of its own
        from pyflink.java_gateway import get_gateway
        from pyflink.table import EnvironmentSettings, TableEnvironment
    env = TableEnvironment.create(EnvironmentSettings.in_batch_mode())
    for name in ("python.executable", "python.client.executable"):
        env.get_config().set(name, sys.executable)
    env.get_config().set("parallelism.default", "2")
    atexit.register(get_gateway().shutdown)
    return env


def start_ray() -> None:
    """Start Ray in this process, without its page, unless it runs; again where a busy machine was too slow for it."""
    import ray

    for last in (False, False, True):
        if ray.is_initialized():
            return
        try:
            ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
        except Exception:
            if last:
                raise
            ray.shutdown()
            with warnings.catch_warnings(action="ignore"):
                gc.collect()  # processes that it did not wait for


ROWS = {"y_true": np.array([0, 1, 1, 0] * 5), "y_score": np.linspace(0, 1, 20)}


def rows(start: int = 0, stop: int = 20) -> dict[str, Any]:
    """Some rows: here, as processes that are spawned find this module, and no module of tests."""
    return {name: column[start:stop] for name, column in ROWS.items()}


def kill() -> Any:
    """End the process that calls it."""
    os.kill(os.getpid(), signal.SIGKILL)
