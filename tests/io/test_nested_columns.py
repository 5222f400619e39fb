"""Fields of structs by their path, columns that some files lack, ORC and Avro files."""

from __future__ import annotations

import datetime as dt
import json
import sys
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from streammetrics.io.logs import Log, LogError

ROWS: list[dict[str, Any]] = [
    {"y": 0, "prediction": {"score": 0.25, "by": {"model": "a"}}, "a.b": 1},
    {"y": 1, "prediction": {"score": 0.5, "by": {"model": "b"}}, "a.b": 2},
    {"y": 1, "prediction": None, "a.b": 3},
]


def written(path: Path, rows: list[dict[str, Any]]) -> Path:
    table = pa.Table.from_pylist(rows)
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif path.suffix == ".csv":
        names = list(rows[0])
        path.write_text("\n".join([",".join(names), *(",".join(str(row[n]) for n in names) for row in rows)]) + "\n")
    elif path.suffix == ".orc":
        orc.write_table(table, path)
    elif path.suffix == ".arrow":
        pa.feather.write_feather(table, path)
    else:
        pq.write_table(table, path)
    return path


def read(log: Log, columns: list[str], keys: list[str]) -> dict[str, list[Any]]:
    batches = [batch for part in log.parts(columns, keys) for batch in part.batches()]
    return {name: [v for batch in batches for v in batch[name].to_pylist()] for name in [*columns, *keys]}


@pytest.mark.parametrize("name", ["a.parquet", "a.jsonl", "a.arrow", "a.orc"])
def test_fields_by_their_path(tmp_path: Path, name: str) -> None:
    log = Log(written(tmp_path / name, ROWS))
    assert {"prediction.score", "prediction.by.model", "a.b"} <= {*log.columns}
    assert read(log, ["prediction.score", "a.b"], ["prediction.by.model"]) == {
        "prediction.score": [0.25, 0.5, None],
        "a.b": [1, 2, 3],
        "prediction.by.model": ["a", "b", None],
    }
    assert read(log, ["y"], []) == {"y": [0, 1, 1]}
    with pytest.raises(LogError, match=r"no column 'prediction.scores'; did you mean 'prediction.score'?"):
        log.parts(["prediction.scores"])


@pytest.mark.parametrize("form", ["parquet", "jsonl", "csv", "orc", "arrow"])
def test_columns_that_some_files_lack(tmp_path: Path, form: str) -> None:
    written(tmp_path / f"a.{form}", [{"y": 0, "p": 0.25}])
    written(tmp_path / f"b.{form}", [{"y": 1, "p": 0.5, "country": "br", "w": 2.5}])
    with pytest.raises(
        LogError,
        match=r"no column 'country' .found in 1 of 2 files.; pass missing_columns=\"null\" to read nulls instead",
    ):
        Log(tmp_path).parts(["y"], ["country"])
    log = Log(tmp_path, missing_columns="null")
    assert log.columns == ["y", "p", "country", "w"]
    assert read(log, ["y", "w"], ["country"]) == {"y": [0, 1], "w": [None, 2.5], "country": [None, "br"]}
    with pytest.raises(LogError, match="no column 'city'"):
        log.parts(["city"])


def test_stripes_of_orc(tmp_path: Path) -> None:
    table = pa.table({"x": [*range(50_000)], "k": [f"k{i % 7}" for i in range(50_000)]})
    orc.write_table(table, tmp_path / "a.orc", stripe_size=10_000)
    log = Log(tmp_path / "a.orc")
    assert log.rows == 50_000
    (part,) = log.parts(["x"], ["k"])
    batches = list(part.batches())
    assert len(batches) > 1
    assert read(log, ["x"], ["k"]) == table.select(["x", "k"]).to_pydict()
    (tmp_path / "a.orc").write_bytes(b"ORC nothing")
    with pytest.raises(LogError, match=r"a\.orc: expected an ORC file, found other or truncated content"):
        Log(tmp_path / "a.orc").parts(["x"])


AVRO = {
    "type": "record",
    "name": "row",
    "fields": [
        {"name": "y", "type": "int"},
        {"name": "k", "type": ["null", "string"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "arm", "type": {"type": "enum", "name": "arms", "symbols": ["A", "B"]}},
        {"name": "other", "type": "arms"},
        {
            "name": "prediction",
            "type": {"type": "record", "name": "prediction", "fields": [{"name": "score", "type": "double"}]},
        },
        {"name": "tags", "type": {"type": "map", "values": "string"}},
    ],
}


def test_blocks_of_avro(tmp_path: Path) -> None:
    fastavro = pytest.importorskip("fastavro")
    at = dt.datetime(2026, 1, 2, tzinfo=dt.UTC)
    same = {"at": at, "arm": "A", "other": "B", "tags": {"a": "b"}}
    rows = [{"y": i % 2, "k": "br" if i % 3 else None, "prediction": {"score": i / 64}} | same for i in range(64)]
    with (tmp_path / "a.avro").open("wb") as file:
        fastavro.writer(file, AVRO, rows, codec="deflate", sync_interval=100)
    log = Log(tmp_path / "a.avro")
    assert len([*log.parts(["y"])[0].batches()]) > 1
    assert read(log, ["y", "prediction.score", "at"], ["k", "arm", "other"]) == {
        "y": [row["y"] for row in rows],
        "prediction.score": [i / 64 for i in range(64)],
        "at": [at] * 64,
        "k": [row["k"] for row in rows],
        "arm": ["A"] * 64,
        "other": ["B"] * 64,
    }
    with pytest.raises(LogError, match="column 'tags': Avro maps and unions of several types are not supported"):
        read(log, ["tags"], [])
    (tmp_path / "a.avro").write_bytes(b"nothing")
    with pytest.raises(LogError, match=r"a\.avro: expected an Avro file, found other or truncated content"):
        Log(tmp_path / "a.avro").parts(["y"])


def test_fields_of_avro_that_are_not_read(tmp_path: Path) -> None:
    fastavro = pytest.importorskip("fastavro")
    uuid_type = {"type": "string", "logicalType": "uuid"}
    inner = [
        {"name": "p", "type": "double"},
        {"name": "m", "type": {"type": "map", "values": "string"}},
        {"name": "id", "type": uuid_type},
        {"name": "wide", "type": ["null", "string", "int"]},
    ]
    fields = [
        {"name": "s", "type": {"type": "record", "name": "inner", "fields": inner}},
        {"name": "only", "type": {"type": "record", "name": "unreadable", "fields": inner[1:2]}},
        {"name": "u", "type": ["null", uuid_type]},
        {"name": "n", "type": "null"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-nanos"}},
    ]
    ids = [UUID(int=i) for i in range(3)]
    rows = [
        {"s": {"p": i / 4, "m": {}, "id": ids[i], "wide": i}, "only": {"m": {}}, "u": ids[i], "n": None, "at": 1000 * i}
        for i in range(3)
    ]
    with (tmp_path / "a.avro").open("wb") as file:
        fastavro.writer(file, {"type": "record", "name": "row", "fields": fields}, rows)
    log = Log(tmp_path / "a.avro")
    found = read(log, ["s.p", "s.id", "n"], ["u"])
    texts = [str(one) for one in ids]
    assert found == {"s.p": [0.0, 0.25, 0.5], "s.id": texts, "n": [None] * 3, "u": texts}
    assert log.schema.field("at").type == pa.timestamp("ns", "UTC")
    (batch,) = log.parts(["at"])[0].batches()
    assert batch["at"].cast(pa.int64()).to_pylist() == [0, 1000, 2000]
    with pytest.raises(LogError, match="column 'only': Avro maps and unions of several types are not supported"):
        read(log, ["only"], [])


def test_avro_without_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.avro").write_bytes(b"Obj\x01")
    monkeypatch.setitem(sys.modules, "fastavro", None)
    with pytest.raises(
        LogError, match=r"a\.avro: reading this log needs fastavro: pip install 'streammetrics\[avro\]'"
    ):
        Log(tmp_path / "a.avro").parts(["y"])
