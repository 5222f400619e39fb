"""The same log, split differently, ends in the identical digest on every engine."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import streammetrics as sm
from streammetrics.engines import fold, local

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
logs = pytest.importorskip("engine_logs")

Tables = Sequence[Any]


@pytest.fixture(scope="module", autouse=True)
def _engines_end() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONWARNINGS", "ignore")  # of workers, which are not under test's rule
        yield
    if "ray" in sys.modules:
        sys.modules["ray"].shutdown()
    if "pyspark.sql" in sys.modules and (session := sys.modules["pyspark.sql"].SparkSession.getActiveSession()):
        session.stop()


def by_hand(tables: Tables, metrics: Any, folder: Path) -> Any:
    """Each worker saves what it has seen; somebody merges the files."""
    for i, table in enumerate(tables):
        (folder / f"{i}.smet").write_bytes(fold(table.to_batches(max_chunksize=700), metrics))
    return sm.merge(sorted(folder.glob("*.smet"), reverse=True))


def threads(tables: Tables, metrics: Any, folder: Path) -> Any:
    return local.evaluate(tables, metrics, workers=3)


def processes(tables: Tables, metrics: Any, folder: Path) -> Any:
    return local.evaluate(tables, metrics, workers=2, processes=True)


def beam(tables: Tables, metrics: Any, folder: Path) -> Any:
    beam = pytest.importorskip("apache_beam")
    from streammetrics.engines.beam import FoldTables, GroupQueries

    with beam.Pipeline("DirectRunner") as pipeline:
        rows, grouped = pipeline | beam.Create(tables), "session" in tables[0].column_names
        rows = rows | GroupQueries(metrics) if grouped else rows
        found = rows | beam.CombineGlobally(FoldTables(metrics, assume_grouped=grouped))
        _ = found | beam.Map(lambda total: sm.save(total, folder / "total.smet"))
    return sm.load(folder / "total.smet")


def ray_data(tables: Tables, metrics: Any, folder: Path) -> Any:
    data = pytest.importorskip("ray.data")
    from streammetrics.engines.ray import evaluate

    logs.start_ray()
    return evaluate(data.from_arrow(list(tables)), metrics)


def ray_tasks(tables: Tables, metrics: Any, folder: Path) -> Any:
    pytest.importorskip("ray.data")
    from streammetrics.engines.ray import evaluate

    logs.start_ray()
    return evaluate(tables, metrics)


def dask_delayed(tables: Tables, metrics: Any, folder: Path) -> Any:
    dask = pytest.importorskip("dask")
    from streammetrics.engines.dask import evaluate

    with dask.config.set(scheduler="threads"):
        return evaluate([dask.delayed(table) for table in tables], metrics, split_every=2)


def dask_frame(tables: Tables, metrics: Any, folder: Path) -> Any:
    dask = pytest.importorskip("dask")
    dataframe = pytest.importorskip("dask.dataframe")
    if "y_score" in tables[0].column_names and pa.types.is_list(tables[0].schema.field("y_score").type):
        pytest.skip("Dask turns lists into text")
    from streammetrics.engines.dask import evaluate

    with dask.config.set(scheduler="threads"):
        return evaluate(dataframe.from_pandas(pa.concat_tables(tables).to_pandas(), npartitions=5, sort=False), metrics)


def duckdb(tables: Tables, metrics: Any, folder: Path) -> Any:
    duckdb = pytest.importorskip("duckdb")
    from streammetrics.engines.duckdb import evaluate

    log = pa.concat_tables(tables).unify_dictionaries()
    with duckdb.connect() as connection:
        return evaluate(connection.from_arrow(log), metrics, rows=900)


def polars(tables: Tables, metrics: Any, folder: Path) -> Any:
    polars = pytest.importorskip("polars")
    from streammetrics.engines.polars import evaluate

    return evaluate(polars.concat([polars.from_arrow(table).lazy() for table in tables]), metrics, rows=800)


def spark(tables: Tables, metrics: Any, folder: Path) -> Any:
    pytest.importorskip("pyspark")
    from spark_log import session

    from streammetrics.engines import spark

    return spark.evaluate(session().read.parquet(str(written(tables, folder))), metrics).state


def torch_distributed(tables: Tables, metrics: Any, folder: Path) -> Any:
    pytest.importorskip("torch")
    from hooks import ranks

    parts = written(tables, folder)
    (parts / "metrics").write_bytes(pickle.dumps(metrics))
    ranks.outputs(ranks.run("same_digest_rank.py", 2, folder / "store", parts))
    return sm.load(parts / "total.smet")


def written(tables: Tables, folder: Path) -> Path:
    """Write each table as a file; return where they are."""
    parts = folder / "parts"
    parts.mkdir()
    for i, table in enumerate(tables):
        pq.write_table(table, parts / f"{i}.parquet")
    return parts


ENGINES: dict[str, Callable[[Tables, Any, Path], Any]] = {
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
    "torch.distributed": torch_distributed,
}
"""What counts tables on an engine: given them, the metrics, and an empty folder. It skips where the engine is absent."""
SEALS = {"spark"}
"""Engines that have all rows of a group in one place, and close it there: what moves has constant size."""
BLIND = {"by hand", "torch.distributed"}
"""Engines that merge states alone, so that they cannot know that two states have parts of one query."""
NEEDS_ORDER = {"threads", "processes", "ray tasks", "dask"}
"""Engines that take parts, which they do not shuffle."""


@pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")
@pytest.mark.filterwarnings("ignore:`[a-z0-9_]+` is deprecated:DeprecationWarning:ray")  # Ray's own use
@pytest.mark.parametrize("case", logs.CASES)
@pytest.mark.parametrize("engine", [pytest.param(e, marks=[pytest.mark.slow] * (e != "by hand")) for e in ENGINES])
def test_the_digest_is_that_of_one_pass(engine: str, case: str, tmp_path: Path) -> None:
    found = logs.CASES[case]()
    before = found.metrics.digest()
    tables = found.parts(5, seed=len(engine))
    if case.endswith("queries") and engine in BLIND:
        pytest.skip("states alone do not say which queries they have")
    if case == "scattered queries" and engine in NEEDS_ORDER:
        with pytest.raises(sm.InvalidInputError, match=r"sort the log by \('day', 'session'\), or store each query"):
            ENGINES[engine](tables, found.metrics, tmp_path)
        return
    total = ENGINES[engine](tables, found.metrics, tmp_path)
    assert total.digest() == found.digest(sealed=engine in SEALS)
    assert found.metrics.digest() == before
