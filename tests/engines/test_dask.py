"""Dask: frames, bags and delayed parts, on threads and on a cluster whose workers die."""

from __future__ import annotations

import functools
import os
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import streammetrics as sm

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")
pd = pytest.importorskip("pandas")
pa = pytest.importorskip("pyarrow")

import engine_logs as logs  # noqa: E402
from dask import bag, dataframe  # noqa: E402

from streammetrics.engines.dask import evaluate, states  # noqa: E402
from streammetrics.engines.parts import fold_part  # noqa: E402

TABLE = logs.simple(500)
METRICS = sm.MetricCollection(sm.AUC(), sm.CTR(), {"by": sm.Sliced(sm.CTR(), by="variant")})


@functools.cache
def whole() -> Any:
    return METRICS.copy().update(TABLE)


@pytest.fixture
def frame() -> Any:
    return dataframe.from_pandas(TABLE.to_pandas().assign(unread=1), npartitions=4)


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with (
        distributed.LocalCluster(2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as made,
    ):
        yield made


@pytest.mark.parametrize("scheduler", ["sync", "threads"])
def test_frames_null_keys_among_them(frame: Any, scheduler: str) -> None:
    with dask.config.set(scheduler=scheduler):
        for every in (2, 3, 16):
            assert evaluate(frame, METRICS, split_every=every) == whole()


def test_bags(frame: Any) -> None:
    tables = bag.from_sequence([TABLE.slice(i, 50) for i in range(0, 500, 50)], npartitions=3)
    with dask.config.set(scheduler="sync"):
        assert evaluate(tables, METRICS) == whole()
        by_hand = tables.map_partitions(lambda some: [fold_part(iter(some), METRICS)]).compute()
        assert sm.merge(by_hand) == whole()
        reduced = tables.reduction(
            partial(fold_part, metrics=METRICS), lambda some: sm.merge(some).to_bytes(), split_every=2
        )
        assert sm.from_bytes(reduced.compute()) == whole()


def test_map_partitions(frame: Any) -> None:
    def count(part: Any) -> Any:
        return pd.DataFrame({"state": [fold_part(part, METRICS)]})

    with dask.config.set(scheduler="sync"):
        found = frame.map_partitions(count, meta={"state": object}).compute()
    assert sm.merge(found["state"]) == whole()


def test_states_are_bytes(frame: Any) -> None:
    found = dask.compute(*states(frame, METRICS), scheduler="sync")
    assert {type(state) for state in found} == {bytes}
    assert sm.merge(found) == whole()


def test_on_a_cluster_what_it_holds_stays_as_it_is(client: Any, frame: Any) -> None:
    tables = client.scatter([TABLE.slice(0, 300), TABLE.slice(300)], hash=False)
    counted = client.map(partial(fold_part, metrics=METRICS), tables)
    before = client.gather(counted)
    assert evaluate(tables, METRICS) == whole()
    assert evaluate(frame, METRICS) == whole()
    held = [client.submit(sm.from_bytes, state) for state in counted]
    twice = client.submit(lambda *some: sm.merge(some).to_bytes(), *held).result()
    assert sm.from_bytes(twice) == whole()
    assert client.gather(counted) == before
    assert [one.to_bytes() for one in client.gather(held)] == before


def once_killed(folder: Path, part: Any) -> Any:
    """Die at the first attempt."""
    mark = folder / "died"
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return part


def test_a_worker_that_dies_counts_once(client: Any, tmp_path: Path) -> None:
    parts = [TABLE.slice(0, 200), partial(once_killed, tmp_path, TABLE.slice(200, 200)), TABLE.slice(400)]
    assert evaluate(parts, METRICS) == whole()
    assert (tmp_path / "died").exists()


def test_one_state_at_a_time_is_never_one(frame: Any) -> None:
    with pytest.raises(ValueError, match="split_every must be 2 or more, not 1"):
        evaluate(frame, METRICS, split_every=1)


@pytest.mark.parametrize("in_order", [True, False])
def test_a_frame_is_shuffled_by_query_unless_it_is_grouped(in_order: bool) -> None:
    case = logs.CASES["split queries" if in_order else "scattered queries"]()
    frame = dataframe.from_pandas(pa.concat_tables(case.parts(3)).to_pandas(), npartitions=4, sort=False)
    # By default, Dask shuffles on the workers of the client that other tests have.
    with dask.config.set({"scheduler": "sync", "dataframe.shuffle.method": "tasks"}):
        assert evaluate(frame, case.metrics).digest() == case.digest()
        if in_order:
            assert evaluate(frame, case.metrics, assume_grouped=True).digest() == case.digest()
        else:
            with pytest.raises(sm.InvalidInputError, match="sort the log"):
                evaluate(frame, case.metrics, assume_grouped=True)


@pytest.mark.parametrize("ranked", [False, True])
def test_the_client_receives_one_state(ranked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks merge the states, so that no warning says that the client merges many."""
    case = logs.Case(logs.documents(100), logs.by_session()) if ranked else logs.Case(TABLE, sm.LogLoss())
    tables = [dask.delayed(case.log.slice(start, 40)) for start in range(0, case.log.num_rows, 40)]
    monkeypatch.setattr("streammetrics.engines.parts.DRIVER_BYTES", logs.one_state(case))
    with dask.config.set(scheduler="sync"):
        assert evaluate(tables, case.metrics, split_every=3).digest() == case.digest()


def test_nothing(frame: Any) -> None:
    with dask.config.set(scheduler="sync"):
        assert evaluate([], METRICS) == METRICS
        assert evaluate(frame[frame.y_true > 5], METRICS) == METRICS
        assert evaluate(bag.from_sequence([], npartitions=1), METRICS) == METRICS
        sparse = dataframe.concat([frame[frame.y_true > 5], frame])
        assert evaluate(sparse, METRICS) == whole()


def test_a_bad_row_says_what_and_where(client: Any) -> None:
    tables = logs.spoiled([TABLE.slice(0, 50), TABLE.slice(50, 50)], "y_score", 1, 17)
    frame = dataframe.from_pandas(tables[1].to_pandas(), npartitions=1)
    for log in (tables, [dask.delayed(t) for t in tables], frame):
        with pytest.raises(sm.InvalidInputError, match=r"y_score: .*found 7\.5 in row 17"):
            evaluate(log, METRICS)
    with pytest.raises(sm.InvalidInputError, match=r"no column 'y_score'; the table has 'y_true'"):
        evaluate(frame[["y_true"]], METRICS)


def test_bad_rows_are_dropped_by_workers(client: Any) -> None:
    tables = logs.spoiled([TABLE.slice(0, 50), TABLE.slice(50, 50)], "y_score", 1, 17)
    dropping = sm.MetricCollection(sm.AUC(), on_invalid="drop")
    assert evaluate(tables, dropping)["auc"].explain()["dropped"] == {"y_score": 1}


@pytest.mark.parametrize(
    ("metrics", "found"),
    [(sm.CTR(), "partition 2"), (sm.NDCG(), r"partition \d after the shuffle by query")],
    ids=["rows", "queries"],
)
def test_a_bad_row_names_its_partition(metrics: Any, found: str) -> None:
    rows = pd.DataFrame({"y_true": [0, 1] * 50, "y_score": np.linspace(0, 1, 100), "query": np.repeat(range(20), 5)})
    rows.loc[60, "y_true"] = -1
    parts = dataframe.from_pandas(rows, npartitions=4, sort=False)
    with dask.config.set({"scheduler": "sync", "dataframe.shuffle.method": "tasks"}):
        for data, name in ((parts, found), (parts.to_delayed(), "partition 2")):
            with pytest.raises(sm.InvalidInputError, match=rf"^y_true: .* found -1 in row .*\({name}\)$") as caught:
                evaluate(data, metrics)
            assert caught.value.column == "y_true"
