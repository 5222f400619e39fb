"""The same log, split differently, ends in the identical digest on every engine."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import streammetrics as sm
from streammetrics.engines import fold, local

pa = pytest.importorskip("pyarrow")
logs = pytest.importorskip("engine_logs")

Tables = Sequence[Any]


@pytest.fixture(scope="module", autouse=True)
def _ray_ends() -> Iterator[None]:
    yield
    if "ray" in sys.modules:
        sys.modules["ray"].shutdown()


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
    from streammetrics.engines.beam import Fold

    with beam.Pipeline("DirectRunner") as pipeline:
        found = pipeline | beam.Create(tables) | beam.CombineGlobally(Fold(metrics))
        _ = found | beam.Map(lambda total: sm.save(total, folder / "total.smet"))
    return sm.load(folder / "total.smet")


def ray_data(tables: Tables, metrics: Any, folder: Path) -> Any:
    data = pytest.importorskip("ray.data")
    from streammetrics.engines.ray import evaluate

    return evaluate(data.from_arrow(list(tables)), metrics)


def ray_tasks(tables: Tables, metrics: Any, folder: Path) -> Any:
    pytest.importorskip("ray.data")
    from streammetrics.engines.ray import evaluate

    return evaluate(tables, metrics)


def dask_delayed(tables: Tables, metrics: Any, folder: Path) -> Any:
    dask = pytest.importorskip("dask")
    from streammetrics.engines.dask import evaluate

    with dask.config.set(scheduler="threads"):
        return evaluate([dask.delayed(table) for table in tables], metrics, split_every=2)


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


ENGINES: dict[str, Callable[[Tables, Any, Path], Any]] = {
    "by hand": by_hand,
    "threads": threads,
    "processes": processes,
    "beam": beam,
    "ray data": ray_data,
    "ray tasks": ray_tasks,
    "dask": dask_delayed,
    "duckdb": duckdb,
    "polars": polars,
}
"""What counts tables on an engine: given them, the metrics, and an empty folder. It skips where the engine is absent."""


@pytest.mark.filterwarnings("ignore:`[a-z0-9_]+` is deprecated:DeprecationWarning:ray")  # Ray's own use
@pytest.mark.parametrize("case", logs.CASES)
@pytest.mark.parametrize("engine", ENGINES)
def test_the_digest_is_that_of_one_pass(engine: str, case: str, tmp_path: Path) -> None:
    found = logs.CASES[case]()
    before = found.metrics.digest()
    tables = found.parts(5, seed=len(engine))
    total = ENGINES[engine](tables, found.metrics, tmp_path)
    assert total.digest() == found.digest()
    assert found.metrics.digest() == before
