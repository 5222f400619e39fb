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
from streammetrics.io.external_sort import PartitionStream
from streammetrics.io.logs import Log


class Queries(sm.extend.State, tag="tests.queries"):
    """Rows and squared sizes of queries: wrong as soon as one is cut."""

    rows = sm.extend.Flat()
    squares = sm.extend.Flat()
    block_column = "query"

    def needs(self) -> tuple[sm.extend.Need, ...]:
        return sm.extend.number(), sm.extend.query()

    def absorb(self, into: Any, at: Any, y_true: sm.extend.Column, query: sm.extend.Column) -> None:  # type: ignore[override]
        ids = query.values.reshape(len(query.values), -1)
        starts = np.flatnonzero(np.r_[True, (ids[1:] != ids[:-1]).any(axis=1)])
        sizes = np.diff(np.r_[starts, len(ids)])
        np.add.at(into["rows"], at[starts], sizes)
        np.add.at(into["squares"], at[starts], sizes**2)


class MeanSize(sm.extend.Metric[Queries, float], tag="tests.mean_size"):
    """Size of the query that a document lies in."""

    def make_state(self) -> Queries:
        return Queries()

    def of(self, state: Queries) -> float:
        return int(state.squares) / int(state.rows) if int(state.rows) else float("nan")


@pytest.fixture(autouse=True)
def _registered() -> Any:
    sm.extend.METRICS[MeanSize.about.tag], sm.extend.State.by_tag[Queries.tag] = MeanSize, Queries
    yield
    del sm.extend.METRICS[MeanSize.about.tag], sm.extend.State.by_tag[Queries.tag]


del (
    sm.extend.METRICS[MeanSize.about.tag],
    sm.extend.State.by_tag[Queries.tag],
)  # the tests of all metrics are not about these


def write(folder: Path, queries: Any, files: int, group: int, rng: Any) -> None:
    cuts = np.sort(rng.integers(0, len(queries), files - 1))
    for i, rows in enumerate(np.split(np.arange(len(queries)), cuts)):
        named = np.array([f"q{q}" for q in queries[rows]], object)
        table = pa.table({"query": pa.array(named, pa.string()), "y_true": rows.astype(float), "k": queries[rows] % 3})
        pq.write_table(table, folder / f"{i:03}.parquet", row_group_size=group)


@pytest.mark.slow
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


class Ordered:
    """A log of rankings whose order within a query counts, and what it is when each query is given in one piece."""

    def __init__(self, folder: Path, key: str, order: Any, rng: Any) -> None:
        queries = np.repeat(np.arange(900), rng.integers(1, 30, 900))[order]
        n = len(queries)
        named = {"integer": queries * 7 - 40, "string": np.char.add("q", queries.astype(str)), "two": queries // 10}[
            key
        ]
        table = {"q": named, "d": queries % 10, "grade": rng.integers(0, 3, n), "s": rng.integers(0, 4, n) / 4}
        table |= {"w": queries % 5 + 0.5, "k": np.array(["x", "y", "z"])[queries % 3]}
        for i, rows in enumerate(np.array_split(np.arange(n), 4)):
            part = {c: v[rows] for c, v in table.items()}
            if i == 2:  # files may have types of their own
                part["s"] = part["s"].astype(np.float32)
            pq.write_table(pa.table(part), folder / f"{i}.parquet", row_group_size=1000)
        self.query: Any = ("q", "d") if key == "two" else "q"
        at = np.argsort(queries, kind="stable")
        self.metrics = sm.MetricCollection(
            sm.Task(
                {"a": sm.NDCG(k=5, ties="order"), "b": sm.MeanReciprocalRank(), "c": sm.NDCG(k=3)},
                y_true="grade", y_score="s", query=self.query, sample_weight="w",
            )
        )  # fmt: skip
        self.whole = self.metrics.copy().update({c: v[at] for c, v in table.items()})
        self.rows = n


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("key", ["integer", "string", "two"])
@pytest.mark.parametrize("how", ["shuffled", "one far away", "edge of a part", "round robin"])
def test_rows_of_a_query_stand_anywhere(
    tmp_path: Path, key: str, how: str, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(11)
    n = int(np.random.default_rng(11).integers(1, 30, 900).sum())
    order = np.arange(n)
    if how == "shuffled":
        order = np.random.default_rng(2).permutation(n)
    elif how == "round robin":
        order = np.argsort(np.arange(n) % 50, kind="stable")
    else:
        first, last = (5, n - 1) if how == "one far away" else (n // 4 - 40, n // 4 + 40)
        order[[first, last]] = order[[last, first]]
    log = Ordered(tmp_path, key, order, rng)
    for size in (1 << 12, 1 << 30):  # many shares, and one
        monkeypatch.setattr("streammetrics.io.external_sort.PARTITION_BYTES", size)
        found = evaluate(Log([tmp_path]), log.metrics, threads=threads)
        assert found.overall.digest() == log.whole.digest()
        assert found.rows == log.rows
    sliced = evaluate(Log([tmp_path]), log.metrics, ["k"], threads=threads)
    assert sliced.overall.digest() == log.whole.digest()


def test_a_bad_row_among_scattered_queries_is_found(tmp_path: Path) -> None:
    for i in range(3):
        rows = np.arange(4.0)
        if i == 1:
            rows[2] = np.nan
        pq.write_table(pa.table({"query": ["a", "b", "c", "b"], "y_true": rows}), tmp_path / f"{i}.parquet")
    with pytest.raises(sm.InvalidInputError, match=r"y_true: .*found nan in row 2 of .*1\.parquet"):
        evaluate(Log([tmp_path]), sm.MetricCollection(MeanSize()))


def test_rows_of_a_query_that_contradict_one_another(tmp_path: Path) -> None:
    table = {"q": [1, 2, 1, 2], "grade": [1, 0, 0, 1], "s": [0.1, 0.2, 0.3, 0.4], "w": [1.0, 2.0, 3.0, 2.0]}
    pq.write_table(pa.table(table), tmp_path / "0.parquet")
    task = sm.Task(sm.NDCG(), y_true="grade", y_score="s", query="q", sample_weight="w")
    with pytest.raises(
        sm.InvalidInputError, match=r"row 2 of .*0\.parquet: the value differs from the value in the previous row"
    ):
        evaluate(Log([tmp_path]), sm.MetricCollection(task))


def test_what_is_put_in_order_on_disk_has_no_name_and_a_checksum(tmp_path: Path) -> None:
    table = pa.table({"query": np.arange(5000), "y_score": np.random.default_rng(0).random(5000)})
    for damage in (0, 5):
        stream = PartitionStream(str(tmp_path))
        with pa.ipc.new_stream(stream, table.schema) as writer:
            writer.write_table(table)
        stream.write_pending()
        assert not list(tmp_path.iterdir())
        if damage:
            stream.file.file.truncate(stream.file.end - damage)
            with pytest.raises(sm.StateFormatError, match=f"spilled to {tmp_path} are damaged"):
                stream.read_table()
        else:
            assert stream.read_table() == table
