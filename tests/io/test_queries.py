"""Queries stay whole: cut by batches, row groups, files and threads, the log counts as if it came at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import streammetrics as sm
from streammetrics.io.evaluate import evaluate
from streammetrics.io.logs import Log


class Queries(sm.State, tag="tests.queries"):
    """Rows and squared sizes of queries: wrong as soon as one is cut."""

    rows = sm.Flat()
    squares = sm.Flat()
    together = "query"

    def needs(self) -> tuple[sm.Need, ...]:
        return sm.number(), sm.query()

    def absorb(self, into: Any, at: Any, y_true: sm.Column, query: sm.Column) -> None:  # type: ignore[override]
        ids = query.values.reshape(len(query.values), -1)
        starts = np.flatnonzero(np.r_[True, (ids[1:] != ids[:-1]).any(axis=1)])
        sizes = np.diff(np.r_[starts, len(ids)])
        np.add.at(into["rows"], at[starts], sizes)
        np.add.at(into["squares"], at[starts], sizes**2)


class MeanSize(sm.Metric[Queries, float], tag="tests.mean_size"):
    """Size of the query that a document lies in."""

    def make_state(self) -> Queries:
        return Queries()

    def of(self, state: Queries) -> float:
        return int(state.squares) / int(state.rows) if int(state.rows) else float("nan")


@pytest.fixture(autouse=True)
def _registered() -> Any:
    sm.METRICS[MeanSize.tag], sm.State.by_tag[Queries.tag] = MeanSize, Queries
    yield
    del sm.METRICS[MeanSize.tag], sm.State.by_tag[Queries.tag]


del sm.METRICS[MeanSize.tag], sm.State.by_tag[Queries.tag]  # the tests of all metrics are not about these


def write(folder: Path, queries: Any, files: int, group: int, rng: Any) -> None:
    cuts = np.sort(rng.integers(0, len(queries), files - 1))
    for i, rows in enumerate(np.split(np.arange(len(queries)), cuts)):
        named = np.array([f"q{q}" for q in queries[rows]], object)
        table = pa.table({"query": pa.array(named, pa.string()), "y_true": rows.astype(float), "k": queries[rows] % 3})
        pq.write_table(table, folder / f"{i:03}.parquet", row_group_size=group)


@pytest.mark.parametrize(
    ("sizes", "n"), [((1, 4), 2000), ((1, 2), 3000), ((5000, 90_000), 20), ((400_000, 400_001), 1)]
)
@pytest.mark.parametrize("threads", [1, 3])
def test_queries_stay_whole(tmp_path: Path, sizes: tuple[int, int], n: int, threads: int) -> None:
    rng = np.random.default_rng(n)
    queries = np.repeat(np.arange(n), rng.integers(*sizes, n))
    write(tmp_path, queries, 5, max(len(queries) // 11, 1), rng)
    metrics = sm.MetricCollection(MeanSize())
    whole = sm.MetricCollection(MeanSize()).update({"query": queries, "y_true": queries * 1.0})
    found = evaluate(Log([tmp_path]), metrics, threads=threads)
    assert found.overall.digest() == whole.digest()
    assert found.rows == len(queries)
    sliced = evaluate(Log([tmp_path]), metrics, ["k"], threads=threads)
    assert sliced.overall.digest() == whole.digest()


def test_a_bad_row_of_a_query_that_was_cut_is_found(tmp_path: Path) -> None:
    for i in range(3):
        rows = np.arange(4.0)
        if i == 1:
            rows[3] = np.nan
        pq.write_table(pa.table({"query": ["a", "a", "a", "b"], "y_true": rows}), tmp_path / f"{i}.parquet")
    with pytest.raises(sm.InvalidInputError, match=r"y_true: .*found nan in row 3 of .*1\.parquet"):
        evaluate(Log([tmp_path]), sm.MetricCollection(MeanSize()))
