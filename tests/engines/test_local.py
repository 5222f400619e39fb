"""Threads and processes: what goes wrong in a part, and what a part may be."""

from __future__ import annotations

import itertools
import threading
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import streammetrics as sm
from streammetrics.engines.local import evaluate

pytest.importorskip("pyarrow")
from engine_logs import ROWS, kill, rows


@pytest.mark.slow
@pytest.mark.parametrize("processes", [False, True])
def test_a_part_is_a_table_batches_or_what_returns_them(processes: bool) -> None:
    parts = [rows(0, 3), [rows(3, 4), rows(4, 9)], partial(rows, 9, 15), partial(list, [rows(15, 20)]), [], rows(0, 0)]
    assert evaluate(parts, sm.AUC(), processes=processes, workers=2) == sm.AUC().update(ROWS)


def test_no_parts_are_no_rows() -> None:
    assert evaluate([], sm.AUC()) == sm.AUC()
    assert evaluate([], sm.AUC(), processes=True) == sm.AUC()


@pytest.mark.slow
@pytest.mark.parametrize("processes", [False, True])
def test_a_bad_batch_raises_what_update_raises(processes: bool) -> None:
    bad = rows() | {"y_score": np.where(np.arange(20) == 13, 7.5, 0.5)}
    metrics = sm.AUC()
    with pytest.raises(sm.InvalidInputError, match=r"y_score: .*found 7\.5 in row 13") as caught:
        evaluate([rows(), [rows(), bad], rows()], metrics, processes=processes, workers=2)
    assert (caught.value.column, caught.value.row, caught.value.count) == ("y_score", 13, 1)
    assert metrics == sm.AUC()


def test_many_bytes_of_states_are_reported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [rows(i, i + 2) for i in range(9)]
    size = len(sm.AUC().update(parts[0]).to_bytes())
    monkeypatch.setattr("streammetrics.engines.parts.DRIVER_BYTES", 20 * size)
    assert evaluate(parts, sm.AUC(), workers=1).explain()["rows"] == 18
    monkeypatch.setattr("streammetrics.engines.parts.DRIVER_BYTES", 3 * size)
    with pytest.warns(RuntimeWarning, match="more than .* GiB of states and query IDs to the driver") as caught:
        evaluate(parts, sm.AUC(), workers=1)
    assert len(caught) == 1


def test_ids_of_queries_are_reported_like_states(monkeypatch: pytest.MonkeyPatch) -> None:
    queries = np.arange(1000)
    log = {"query": queries, "y_true": queries % 2, "y_score": queries / 1000}
    monkeypatch.setattr("streammetrics.engines.parts.DRIVER_BYTES", 8 * 900)
    with pytest.warns(RuntimeWarning, match="states and query IDs .* store each query as one row of lists"):
        evaluate([log], sm.MeanReciprocalRank(), workers=1)


def test_after_a_bad_part_those_that_wait_are_left() -> None:
    begun = []
    block = threading.Event()

    def wait(i: int) -> dict[str, Any]:
        begun.append(i)
        block.wait(10)
        return rows()

    def bad() -> dict[str, Any]:
        threading.Timer(0.2, block.set).start()
        return {"y_true": [2], "y_score": [0.1]}

    with pytest.raises(sm.InvalidInputError):
        evaluate([bad, *(partial(wait, i) for i in range(50))], sm.AUC(), workers=2)
    assert len(begun) < 10


@pytest.mark.slow
def test_rows_to_be_dropped_are_dropped_in_other_processes() -> None:
    bad = rows() | {"y_score": np.where(np.arange(20) == 13, 7.5, 0.5)}
    metrics = sm.MetricCollection(sm.AUC(), on_invalid="drop")
    found = evaluate([bad, rows()], metrics, processes=True, workers=1)
    assert found == metrics.copy().update(bad).update(ROWS)
    assert found.on_invalid == "drop"


@pytest.mark.slow
def test_a_killed_process_is_an_error() -> None:
    with pytest.raises(BrokenProcessPool):
        evaluate([rows(), kill, rows()], sm.AUC(), processes=True, workers=2)


@pytest.mark.slow
def test_parts_of_files(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    from streammetrics.io.logs import Log

    pq.write_table(pa.table(ROWS), tmp_path / "log.parquet", row_group_size=7)
    parts = [part.batches for part in Log(tmp_path / "log.parquet").parts(["y_true", "y_score"])]
    for processes in (False, True):
        assert evaluate(parts, sm.AUC(), processes=processes, workers=2) == sm.AUC().update(ROWS)


QUERIES = {
    "query": np.repeat([3, 1, 2, 8], [4, 1, 7, 2]),
    "y_true": np.arange(14) % 3,
    "y_score": np.linspace(0, 1, 14),
}


def cut(start: int, stop: int, kind: str) -> Any:
    table = {name: column[start:stop] for name, column in QUERIES.items()}
    if kind == "lists":
        return {name: column.tolist() for name, column in table.items()}
    return table if kind == "numpy" else pytest.importorskip(kind).__dict__[FRAMES[kind]](table)


FRAMES = {"pyarrow": "table", "pandas": "DataFrame", "polars": "DataFrame"}


@pytest.mark.parametrize("kind", ["numpy", "lists", *FRAMES])
def test_a_query_in_several_parts_and_batches_is_counted_once(kind: str) -> None:
    ndcg, whole = sm.NDCG(k=3), sm.NDCG(k=3).update(QUERIES)
    for edges in ([0, 14], [0, 2, 14], [0, 4, 5, 6, 9, 14], range(15)):
        tables = [cut(a, b, kind) for a, b in itertools.pairwise(edges)]
        assert evaluate(tables, ndcg, workers=2).digest() == whole.digest()
        assert evaluate([tables], ndcg, workers=2).digest() == whole.digest()
        assert evaluate([tables[:2], [], tables[2:]], ndcg, workers=2).digest() == whole.digest()


@pytest.mark.parametrize("order", [[0, 1, 2, 3, 5, 6, 4], [0, 5, 1, 6, 4]])
def test_queries_that_are_not_adjacent_are_refused(order: list[int]) -> None:
    table = {name: np.concatenate([np.arange(7)[order]] * 3) for name in ("query", "y_true", "y_score")}
    with pytest.raises(
        sm.InvalidInputError, match=r"query: expected the rows of each query to be adjacent.*sort the log"
    ):
        evaluate([table, [table]], sm.NDCG(k=3, gain="linear"), workers=1)


def test_the_rows_at_the_end_of_a_part_have_the_same_columns() -> None:
    weighted = {name: column[2:] for name, column in QUERIES.items()} | {"sample_weight": np.ones(12)}
    with pytest.raises(sm.InvalidInputError, match=r"sample_weight: expected this column in all parts of the log"):
        evaluate([cut(0, 2, "numpy"), weighted], sm.NDCG(k=3), workers=1)
