"""The same log, split differently over files and row groups, ends in the identical digest on every engine."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import streammetrics as sm
from streammetrics.engines import fold, local

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
logs = pytest.importorskip("engine_logs")


@pytest.fixture(scope="module", autouse=True)
def _engines_end() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONWARNINGS", "ignore")  # of workers, which are not under test's rule
        yield
    if "ray" in sys.modules:
        sys.modules["ray"].shutdown()
    if "pyspark.sql" in sys.modules and (session := sys.modules["pyspark.sql"].SparkSession.getActiveSession()):
        session.stop()


def by_hand(folder: Path, metrics: Any, temporary: Path) -> Any:
    """Each worker saves what it has seen; somebody merges the files."""
    for file in folder.glob("*.parquet"):
        states = fold([pq.read_table(file)], metrics)
        (temporary / f"{file.stem}.smet").write_bytes(states)
    return sm.merge(sorted(temporary.glob("*.smet"), reverse=True))


def threads(folder: Path, metrics: Any, temporary: Path) -> Any:
    return local.evaluate(logs.row_groups(folder), metrics, workers=3)


def processes(folder: Path, metrics: Any, temporary: Path) -> Any:
    return local.evaluate(logs.row_groups(folder), metrics, workers=2, processes=True)


def beam(folder: Path, metrics: Any, temporary: Path) -> Any:
    beam = pytest.importorskip("apache_beam")
    from streammetrics.engines.beam import FoldTables, GroupQueries

    with beam.Pipeline("DirectRunner") as pipeline:
        rows = pipeline | beam.io.ReadFromParquetBatched(f"{folder}/*.parquet")
        grouped = "session" in schema(folder).names
        rows = rows | GroupQueries(metrics) if grouped else rows
        found = rows | beam.CombineGlobally(FoldTables(metrics, assume_grouped=grouped))
        _ = found | beam.Map(lambda total: sm.save(total, temporary / "total.smet"))
    return sm.load(temporary / "total.smet")


def ray_data(folder: Path, metrics: Any, temporary: Path) -> Any:
    data = pytest.importorskip("ray.data")
    from streammetrics.engines.ray import evaluate

    logs.start_ray()
    return evaluate(data.read_parquet(str(folder)), metrics)


def ray_tasks(folder: Path, metrics: Any, temporary: Path) -> Any:
    pytest.importorskip("ray.data")
    from streammetrics.engines.ray import evaluate

    logs.start_ray()
    # Ray's workers do not find the modules of tests, so send them the tables.
    return evaluate([part() for part in logs.row_groups(folder)], metrics)


def dask_delayed(folder: Path, metrics: Any, temporary: Path) -> Any:
    dask = pytest.importorskip("dask")
    from streammetrics.engines.dask import evaluate

    with dask.config.set(scheduler="threads"):
        return evaluate([dask.delayed(part)() for part in logs.row_groups(folder)], metrics, split_every=2)


def dask_frame(folder: Path, metrics: Any, temporary: Path) -> Any:
    dask = pytest.importorskip("dask")
    dataframe = pytest.importorskip("dask.dataframe")
    if any(pa.types.is_list(field.type) for field in schema(folder)):
        pytest.skip("Dask turns lists into text")
    from streammetrics.engines.dask import evaluate

    with dask.config.set(scheduler="threads"):
        return evaluate(dataframe.read_parquet(str(folder), split_row_groups=True), metrics)


def duckdb(folder: Path, metrics: Any, temporary: Path) -> Any:
    duckdb = pytest.importorskip("duckdb")
    from streammetrics.engines.duckdb import evaluate

    with duckdb.connect() as connection:
        return evaluate(connection.read_parquet(f"{folder}/*.parquet"), metrics, rows=900)


def polars(folder: Path, metrics: Any, temporary: Path) -> Any:
    polars = pytest.importorskip("polars")
    from streammetrics.engines.polars import evaluate

    return evaluate(polars.scan_parquet(f"{folder}/*.parquet"), metrics, rows=800)


def spark(folder: Path, metrics: Any, temporary: Path) -> Any:
    pytest.importorskip("pyspark")
    from spark_log import session

    from streammetrics.engines import spark

    return spark.evaluate(session().read.parquet(str(folder)), metrics).state


def flink(folder: Path, metrics: Any, temporary: Path) -> Any:
    """Flink reads no Parquet files without a library in Java, so send it the rows."""
    pytest.importorskip("pyflink")
    if any(pa.types.is_list(field.type) for field in schema(folder)):
        pytest.skip("test_flink.py has a test of lists")
    from streammetrics.engines.flink import evaluate

    frame = pq.read_table(folder).to_pandas()
    frame = frame.astype({name: str for name in frame.columns if frame[name].dtype == "category"})
    return evaluate(logs.start_flink().from_pandas(frame, splits_num=5), metrics, buckets=7)


def torch_distributed(folder: Path, metrics: Any, temporary: Path) -> Any:
    pytest.importorskip("torch")
    from hooks import ranks

    (folder / "metrics").write_bytes(pickle.dumps(metrics))
    ranks.outputs(ranks.run("same_digest_rank.py", 2, temporary / "store", folder))
    return sm.load(folder / "total.smet")


def schema(folder: Path) -> Any:
    return pq.read_schema(next(folder.glob("*.parquet")))


ENGINES: dict[str, Callable[[Path, Any, Path], Any]] = {
    "by hand": by_hand,
    "threads": threads,
    "processes": processes,
    "beam": beam,
    "ray data": ray_data,
    "ray tasks": ray_tasks,
    "dask": dask_delayed,
    "dask frame": dask_frame,
    "duckdb": duckdb,
    "polars": polars,
    "spark": spark,
    "flink": flink,
    "torch.distributed": torch_distributed,
}
"""What counts a folder of files on an engine, with an empty folder beside it. It skips where the engine is absent."""
SEALS = {"spark"}
"""Engines that have all rows of a group in one place, and close it there: what moves has constant size."""
MERGES_STATES = {"by hand", "torch.distributed"}
"""What merges states alone, which know only the first and the last of their queries."""
NEEDS_ORDER = {"threads", "processes", "ray tasks", "dask"}
"""Engines that take parts, which they do not shuffle."""
WARNINGS = {
    "dask frame": ["ignore:The inplace keyword in DataFrame"],  # its own use
    "flink": [  # what it pins, and its gateway, which ends with the process
        "ignore::DeprecationWarning",
        "ignore::ResourceWarning",
        "ignore::pytest.PytestUnraisableExceptionWarning",
        "ignore::pytest.PytestUnhandledThreadExceptionWarning",
    ],
}
"""Warnings that are not ours, by engine."""


def marks(engine: str) -> list[Any]:
    # The engines start servers; "by hand" only imports Arrow.
    speed = pytest.mark.slow if engine != "by hand" else pytest.mark.cpu_limit(3)
    return [speed, *map(pytest.mark.filterwarnings, WARNINGS.get(engine, []))]


@pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")
@pytest.mark.filterwarnings("ignore:`[a-z0-9_]+` is deprecated:DeprecationWarning:ray")  # Ray's own use
@pytest.mark.parametrize("case", logs.CASES)
@pytest.mark.parametrize("engine", [pytest.param(engine, marks=marks(engine)) for engine in ENGINES])
def test_the_digest_is_that_of_one_pass(engine: str, case: str, tmp_path: Path) -> None:
    found = logs.CASES[case]()
    before = found.metrics.digest()
    folder = logs.write_files(found.parts(5, seed=len(engine)), tmp_path / "log")
    if case == "split queries" and engine == "by hand":
        with pytest.raises(sm.IncompatibleStateError, match="is the last of one part and the first of another"):
            by_hand(folder, found.metrics, tmp_path)
        return
    if case.endswith("queries") and engine in MERGES_STATES:
        pytest.skip("states know only the first and the last of their queries")
    if case == "scattered queries" and engine in NEEDS_ORDER:
        with pytest.raises(sm.InvalidInputError, match=r"sort the log by \('day', 'session'\), or store each query"):
            ENGINES[engine](folder, found.metrics, tmp_path)
        return
    total = ENGINES[engine](folder, found.metrics, tmp_path)
    assert total.digest() == found.digest(sealed=engine in SEALS)
    assert found.metrics.digest() == before
