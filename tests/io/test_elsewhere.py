"""Logs elsewhere: URLs of fsspec, Delta and Iceberg tables, queries; all give the digest of the same log on disk."""

from __future__ import annotations

import builtins
import pickle
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest

import streammetrics as sm
from streammetrics.io.evaluate import evaluate
from streammetrics.io.logs import Log, LogError

N = 20_000
RNG = np.random.default_rng(7)
TABLE = pa.table(
    {
        "click": RNG.integers(0, 2, N),
        "p": RNG.integers(0, 1025, N) / 1024,
        "country": pa.array(np.array(["br", "de", None, "fr"], object)[RNG.integers(0, 4, N)], pa.string()),
        "day": RNG.integers(0, 3, N),
        "q": np.arange(N) // 9,
        'od"d name': np.ones(N),
    }
)
METRICS = sm.MetricCollection(sm.Task([sm.AUC(bits=12), sm.LogLoss()], y_true="click", y_score="p"))
BY = ["country", ["country", "day"]]


def digest(log: Log, metrics: Any = METRICS, by: Any = BY, **how: Any) -> str:
    return str(evaluate(log, metrics, by, **how).bundle.digest())


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("log") / "whole.parquet"
    pq.write_table(TABLE, path)
    return digest(Log(path))


def error_of(*given: Any, **how: Any) -> str:
    with pytest.raises(LogError) as caught:
        Log(*given, **how).parts(["click"])
    assert "\n" not in str(caught.value)
    return str(caught.value)


def encoded(form: str, rows: pa.Table) -> bytes:
    out = pa.BufferOutputStream()
    if form == "parquet":
        pq.write_table(rows, out, row_group_size=3000)
    elif form == "csv":
        pa.csv.write_csv(rows, out)
    else:
        with pa.ipc.new_file(out, rows.schema) as writer:
            writer.write_table(rows, max_chunksize=3000)
    data: bytes = out.getvalue().to_pybytes()
    return data


class TestUrls:
    @pytest.fixture
    def memory(self) -> Iterator[Any]:
        fsspec = pytest.importorskip("fsspec")
        system = fsspec.filesystem("memory")
        system.store.clear()
        for form in ("parquet", "csv", "arrow"):
            for i in range(4):
                name = f"/logs/{form}/half={i // 2}/{i}.{form}"
                system.pipe(name, encoded(form, TABLE.slice(i * N // 4, N // 4)))
        system.pipe("/logs/parquet/_SUCCESS", b"")
        system.pipe("/logs/parquet/half=0/.0.parquet.crc", b"crc")
        yield system
        system.store.clear()

    @pytest.mark.slow
    @pytest.mark.parametrize("form", ["parquet", "csv", "arrow"])
    def test_folders_patterns_and_files(self, memory: Any, expected: str, form: str) -> None:
        base = f"memory://logs/{form}"
        for given in (base, f"{base}/*/*.{form}", f"{base}/half=*", [f"{base}/half=0", f"{base}/half=1/*"]):
            log = Log(given, types={"day": "int"} if form == "csv" else {})
            assert digest(log) == expected
            assert len(log.files) == 4
            assert log.bytes == sum(memory.size(f"/logs/{form}/half={i // 2}/{i}.{form}") for i in range(4))
        assert "half" in Log(base).columns
        part = evaluate(Log(f"{base}/half=1/3.{form}"), METRICS)
        assert part.overall == METRICS.copy().update(TABLE.slice(3 * N // 4).to_pydict())
        parts = Log(base).parts(["click", "p"], ["half"])
        assert sum(b.num_rows for p in pickle.loads(pickle.dumps(parts)) for b in p.batches()) == N

    def test_only_wanted_columns_are_read(self, memory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        """And in few requests: the footers, and a column of a row group each."""
        rows = 100_000
        wide = pa.table({"click": np.ones(rows, "i1")} | {f"x{i}": RNG.random(rows) for i in range(20)})
        memory.pipe("/wide.parquet", encoded("parquet", wide))
        from fsspec.implementations.memory import MemoryFile

        asked, real = list[int](), MemoryFile.read
        monkeypatch.setattr(MemoryFile, "read", lambda file, size=-1: asked.append(size) or real(file, size))
        parts = Log("memory://wide.parquet").parts(["click", "x3"])
        assert sum(b.num_rows for p in parts for b in p.batches()) == rows
        assert sum(asked) < memory.size("/wide.parquet") / 5
        assert len(asked) < 2 * -(-rows // 3000) + 20

    def test_a_checkpoint(self, memory: Any, expected: str, tmp_path: Path) -> None:
        path = tmp_path / "x"
        assert digest(Log("memory://logs/parquet"), checkpoint=path) == expected
        assert digest(Log("memory://logs/parquet"), checkpoint=path) == expected
        memory.pipe("/logs/parquet/half=0/0.parquet", encoded("parquet", TABLE.slice(0, N // 4)))  # written again
        with pytest.raises(LogError, match="a file was rewritten"):
            digest(Log("memory://logs/parquet"), checkpoint=path)

    def test_what_is_not_there(self, memory: Any) -> None:
        assert error_of("memory://nowhere/x.parquet") == "memory://nowhere/x.parquet: no such file or folder"
        assert error_of("memory://logs/*.csv") == "memory://logs/*.csv: no file matches"
        assert "named twice" in error_of(["memory://logs/csv", "memory://logs/csv/half=0/*"])
        assert "have different formats" in error_of("memory://logs")
        assert "cannot be read: Protocol not known" in error_of("nothing://logs/x.parquet")
        memory.pipe("/bad.parquet", b"nothing of the kind")
        assert error_of("memory://bad.parquet").startswith("memory:///bad.parquet: ")
        memory.pipe("/table/_delta_log/0.json", b"{}")
        memory.pipe("/table/0.parquet", encoded("parquet", TABLE))
        assert error_of("memory://table").endswith("name it delta:memory://table")

    def test_another_side_that_breaks_off(self, memory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        from fsspec.implementations.memory import MemoryFile

        class BotocoreError(Exception):
            pass

        def read(*_: Any) -> bytes:
            raise BotocoreError("the credentials have expired")

        log = Log("memory://logs/csv")
        log.parts(["click", "p"])
        monkeypatch.setattr(MemoryFile, "read", read)
        with pytest.raises(LogError, match=r"memory:///logs/csv/.*: cannot be read: the credentials have expired"):
            evaluate(log, METRICS)


@pytest.fixture(scope="module")
def s3() -> Iterator[Any]:
    """A bucket of moto's server, in a process of its own."""
    pytest.importorskip("moto")
    pytest.importorskip("s3fs")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            for _ in range(600):
                with socket.socket() as tried:
                    if tried.connect_ex(("127.0.0.1", port)) == 0:
                        break
                time.sleep(0.1)
            with pytest.MonkeyPatch.context() as patch:
                for name, value in {
                    "AWS_ENDPOINT_URL": address, "AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x",
                    "AWS_DEFAULT_REGION": "us-east-1", "AWS_REGION": "us-east-1", "AWS_ALLOW_HTTP": "true",
                    "AWS_S3_ALLOW_UNSAFE_RENAME": "true",
                }.items():  # fmt: skip
                    patch.setenv(name, value)
                import s3fs

                s3fs.S3FileSystem.clear_instance_cache()  # of tests that had no credentials
                system = s3fs.S3FileSystem()
                system.mkdir("bucket")
                for i in range(4):
                    rows = TABLE.slice(i * N // 4, N // 4)
                    system.pipe(f"bucket/log/day={i}/{i}.parquet", encoded("parquet", rows))
                yield system
        finally:
            server.kill()


@pytest.mark.filterwarnings("ignore:datetime.datetime.utcnow:DeprecationWarning")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
class TestS3:
    def test_files(self, s3: Any, expected: str, tmp_path: Path) -> None:
        for given in ("s3://bucket/log", "s3://bucket/log/day=*/*.parquet"):
            assert digest(Log(given), threads=3) == expected
        for _ in range(2):
            assert digest(Log("s3://bucket/log"), checkpoint=tmp_path / "x") == expected
        assert error_of("s3://bucket/nothing").endswith("no such file or folder")
        assert "s3://nobucket/log" in error_of("s3://nobucket/log")

    def test_a_delta_table(self, s3: Any, expected: str) -> None:
        deltalake = pytest.importorskip("deltalake")
        deltalake.write_deltalake("s3://bucket/table", TABLE)
        assert digest(Log("delta:s3://bucket/table")) == expected


class TestDelta:
    @pytest.fixture
    def table(self, tmp_path: Path) -> Any:
        deltalake = pytest.importorskip("deltalake")
        for i in range(3):
            start, end = i * N // 3, (i + 1) * N // 3
            rows = TABLE.slice(start, end - start)
            deltalake.write_deltalake(tmp_path / "table", rows, mode="append", partition_by=["day"])
        return deltalake.DeltaTable(tmp_path / "table")

    def test_rows_that_were_deleted_do_not_count(self, table: Any, tmp_path: Path, expected: str) -> None:
        for given in (tmp_path / "table", f"delta:{tmp_path / 'table'}"):
            assert digest(Log(given)) == expected
        before = Log(tmp_path / "table")
        table.delete("day = 1")
        kept = tmp_path / "kept.parquet"
        pq.write_table(TABLE.filter(pa.compute.not_equal(TABLE["day"], 1)), kept)
        assert digest(Log(tmp_path / "table")) == digest(Log(kept)) != expected
        assert digest(before) == expected  # of the version that it was when it was opened
        assert error_of(tmp_path / "*").endswith(f"name it delta:{tmp_path / 'table'}")

    def test_rankings_whose_rows_come_in_any_order(self, table: Any, tmp_path: Path) -> None:
        ranking = sm.MetricCollection(sm.Task(sm.NDCG(5), y_true="click", y_score="p", query="q"))
        pq.write_table(TABLE, tmp_path / "whole.parquet")
        assert digest(Log(tmp_path / "table"), ranking, ()) == digest(Log(tmp_path / "whole.parquet"), ranking, ())

    def test_what_it_says_of_itself(self, table: Any, tmp_path: Path) -> None:
        log = Log(tmp_path / "table")
        assert set(log.columns) == set(TABLE.column_names)
        assert (log.rows, log.is_stream, log.is_table) == (None, False, True)
        (part,) = pickle.loads(pickle.dumps(log.parts(['od"d name', "click"])))
        assert sum(b.num_rows for b in part.batches()) == N
        assert "did you mean 'click'" in error_of_columns(log, "clicks")
        assert "delta:/no/table: " in error_of("delta:/no/table")
        with pytest.raises(sm.InvalidInputError, match="its pass cannot be resumed"):
            evaluate(log, METRICS, checkpoint=tmp_path / "x")


def error_of_columns(log: Log, name: str) -> str:
    with pytest.raises(LogError) as caught:
        log.parts([name])
    return str(caught.value)


class TestIceberg:
    def test_by_catalog_and_by_metadata(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, expected: str) -> None:
        pytest.importorskip("pyiceberg")
        pytest.importorskip("sqlalchemy")
        from pyiceberg import catalog

        made = catalog.load_catalog(
            "here", type="sql", uri=f"sqlite:///{tmp_path / 'c.db'}", warehouse=f"file://{tmp_path}"
        )
        made.create_namespace("ns")
        table = made.create_table("ns.log", schema=TABLE.schema)
        table.append(TABLE.slice(0, 5000))
        old = Log(f"iceberg:{table.metadata_location}")
        table.append(TABLE.slice(5000))
        monkeypatch.setattr(catalog, "load_catalog", lambda name: {"prod": made}[name])
        assert digest(Log("iceberg:prod/ns.log")) == expected
        assert digest(Log(f"iceberg:{table.metadata_location}")) == expected
        assert evaluate(old, METRICS).rows == 5000
        assert "iceberg:prod/ns.nothing: " in error_of("iceberg:prod/ns.nothing")
        assert "iceberg:/no/v1.metadata.json: " in error_of("iceberg:/no/v1.metadata.json")


class TestSql:
    def test_a_query(self, tmp_path: Path, expected: str) -> None:
        pytest.importorskip("duckdb")
        pq.write_table(TABLE, tmp_path / "a.parquet")
        asked = f"select * from '{tmp_path}/*.parquet';"
        assert digest(Log(f"sql:{asked}")) == expected
        some = evaluate(Log(f"sql:{asked[:-1]} where day = 2 -- only these"), METRICS)
        assert some.rows == int(np.sum(TABLE["day"].to_numpy() == 2))
        joined = f"select click, p + 0 as p, l.country, l.day from '{tmp_path}/a.parquet' l"
        assert digest(Log(f"sql:{joined}")) == expected
        (part,) = pickle.loads(pickle.dumps(Log(f"sql:{asked}").parts(['od"d name'])))
        assert sum(b.num_rows for b in part.batches()) == N
        assert error_of("sql:selec 1").startswith("sql:selec 1: Parser Error")
        long = "sql:select nothing from 'nowhere.parquet' where 1 = 1 and 2 = 2 and 3 = 3 and 4 = 4"
        assert error_of(long).startswith("sql:select nothing from 'nowhere.parquet' where 1 = 1 and 2 ...: IO Error")


@pytest.mark.parametrize(
    ("given", "package", "said"),
    [
        ("s3://bucket/x.parquet", "fsspec", "s3://bucket/x.parquet: reading this log needs fsspec: {}[remote]'"),
        ("delta:x", "deltalake", "delta:x: reading this log needs deltalake: {}[delta]'"),
        ("iceberg:a/b.c", "pyiceberg", "iceberg:a/b.c: reading this log needs pyiceberg: {}[iceberg]'"),
        ("sql:select 1 as click", "duckdb", "sql:select 1 as click: reading this log needs duckdb: {}[sql]'"),
    ],
)
def test_what_is_not_installed(monkeypatch: pytest.MonkeyPatch, given: str, package: str, said: str) -> None:
    real: Callable[..., Any] = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.partition(".")[0] == package:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    assert error_of(given) == said.format("pip install 'streammetrics")
