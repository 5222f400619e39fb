"""Parquet through polars gives the rows that Arrow gives, whoever of them has read it."""

from __future__ import annotations

import pickle

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streammetrics.io import polars_reader
from streammetrics.io.logs import Log, LogError
from streammetrics.io.readers import ParquetReader

pytest.importorskip("polars")

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")


def numbers(rows=20_000):
    rng = np.random.default_rng(4)
    columns = {name: rng.integers(0, 100, rows).astype(name) for name in INTEGERS}
    columns |= {"float32": rng.random(rows, np.float32), "float64": rng.random(rows), "a.b": rng.random(rows)}
    return pa.table(columns | {"bool": rng.random(rows) < 0.5}).append_column(
        "missing", pa.array([None if i % 7 == 0 else i / rows for i in range(rows)])
    )


def read(path, columns, keys=(), engine="polars"):
    parts = Log(path, engine=engine).parts(columns, keys)
    return pa.Table.from_batches([b for part in pickle.loads(pickle.dumps(parts)) for b in part.batches()])


@pytest.fixture
def arrow_is_not_asked(monkeypatch):
    monkeypatch.setattr(ParquetReader, "read", lambda *_: pytest.fail("Arrow was asked"))


@pytest.mark.usefixtures("arrow_is_not_asked")
@pytest.mark.parametrize("group", [700, 20_000, 1 << 20])
@pytest.mark.parametrize("name", ["log.parquet", "log [*].parquet", "day=7.parquet"])
def test_numbers(tmp_path, name, group):
    table = numbers()
    pq.write_table(table, tmp_path / name, row_group_size=group)
    assert read(tmp_path, table.schema.names[::-1]).equals(table.select(table.schema.names[::-1]))


@pytest.mark.usefixtures("arrow_is_not_asked")
def test_many_parts_in_order(tmp_path):
    table = pa.table({"x": np.arange(500_000, dtype=np.int32)})
    pq.write_table(table, tmp_path / "log.parquet", row_group_size=140_000)
    assert len(Log(tmp_path / "log.parquet", engine="polars").parts(["x"])) == 4
    assert read(tmp_path / "log.parquet", ["x"]).equals(table)


def test_folders_are_columns(tmp_path):
    (tmp_path / "day=7").mkdir()
    pq.write_table(pa.table({"x": [1.0, 2.0]}), tmp_path / "day=7" / "a.parquet")
    assert read(tmp_path, ["x"], ["day"]).to_pydict() == {"x": [1.0, 2.0], "day": [7, 7]}


@pytest.mark.parametrize("why", ["text", "half", "list", "large"])
def test_what_arrow_reads(tmp_path, monkeypatch, why):
    columns = {
        "text": pa.array(["a", "b", None]),
        "half": pa.array(np.array([0.5, 0.25, 0.125], np.float16)),
        "list": pa.array([[1], [2, 3], []]),
        "large": pa.array([1, 2, 3]),
    }
    if why == "large":
        monkeypatch.setattr(polars_reader, "_LARGEST", 2)
    pq.write_table(pa.table({"x": [0.1, 0.2, 0.3], why: columns[why]}), tmp_path / "log.parquet")
    monkeypatch.setattr("polars.scan_parquet", lambda *_, **__: pytest.fail("polars was asked"))
    found = read(tmp_path / "log.parquet", ["x", why], ["text"] if why == "text" else [])
    assert found.to_pydict() == read(tmp_path / "log.parquet", ["x", why], engine="pyarrow").to_pydict()


@pytest.mark.parametrize("size", [0, 3, 200, -9, -200])
def test_a_file_cut_short_is_explained_by_arrow(tmp_path, size):
    path = tmp_path / "log.parquet"
    pq.write_table(numbers(), path)
    path.write_bytes(path.read_bytes()[:size])
    said = []
    for engine in ("pyarrow", "polars"):
        with pytest.raises(LogError) as caught:
            read(path, ["float32"], engine=engine)
        said.append(str(caught.value))
    assert said[0] == said[1]


def test_damaged_pages_are_explained_by_arrow(tmp_path, capfd):
    path = tmp_path / "log.parquet"
    pq.write_table(numbers(), path, compression="zstd", use_dictionary=False)
    start = pq.read_metadata(path).row_group(0).column(8).data_page_offset
    data = bytearray(path.read_bytes())
    data[start : start + 200] = bytes(200)
    path.write_bytes(data)
    with pytest.raises(LogError, match=r"log\.parquet: "):
        read(path, ["float32"])


def test_a_panic_is_left_to_arrow(tmp_path, monkeypatch):
    class PanicException(BaseException):
        pass

    def panic(*_, **__):
        raise PanicException

    pq.write_table(numbers(), tmp_path / "log.parquet")
    monkeypatch.setattr("polars.scan_parquet", panic)
    assert len(read(tmp_path / "log.parquet", ["float32"])) == 20_000
    monkeypatch.setattr("polars.scan_parquet", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        read(tmp_path / "log.parquet", ["float32"])


def test_engines_that_cannot_be_had(tmp_path, monkeypatch):
    pq.write_table(numbers(10), tmp_path / "log.parquet")
    (tmp_path / "log.csv").write_text("x\n1\n")
    with pytest.raises(LogError, match=r'engine must be "pyarrow" or "polars", not "?\'duckdb\''):
        Log(tmp_path / "log.parquet", engine="duckdb")
    with pytest.raises(LogError, match=r"log\.csv: polars reads Parquet"):
        Log(tmp_path / "log.csv", engine="polars")
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(LogError, match=r'pip install "streammetrics\[polars\]"'):
        Log(tmp_path / "log.parquet", engine="polars")
