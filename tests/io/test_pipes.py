"""Standard input and JSON lines: the same log, whatever it is read from."""

from __future__ import annotations

import gzip
import io
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.ipc as ipc
import pyarrow.parquet as pq
import pytest

import streammetrics as sm
from streammetrics.io.evaluate import evaluate
from streammetrics.io.logs import Log, LogError
from streammetrics.io.pipes import Pipe

N = 60_000
RNG = np.random.default_rng(4)
TABLE = pa.table(
    {
        "click": RNG.integers(0, 2, N),
        "p": RNG.integers(0, 1025, N) / 1024,
        "country": np.array(["br", "de", "a,b"])[np.arange(N) // 7 % 3000 % 3],
        "q": np.arange(N) // 7 % 3000,
        "unused": RNG.random(N),
    }
)


def written(form: str) -> bytes:
    out = io.BytesIO()
    if form == "ipc":
        with ipc.new_stream(out, TABLE.schema) as writer:
            writer.write_table(TABLE, max_chunksize=7000)
    elif form.startswith("json"):
        columns = TABLE.to_pydict()
        for row in zip(*columns.values(), strict=True):
            out.write(json.dumps(dict(zip(columns, row, strict=True))).encode() + b"\n")
    else:
        options = pa.csv.WriteOptions(delimiter="\t" if form.startswith("tsv") else ",")
        pa.csv.write_csv(TABLE, out, options)
    return gzip.compress(out.getvalue()) if form.endswith("gz") else out.getvalue()


class Slow(io.RawIOBase):
    """A pipe that gives few bytes at a time, and cannot seek."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        end = len(self.data) if size < 0 else min(self.at + min(size, 70_001), len(self.data))
        self.at, start = end, self.at
        return self.data[start:end]


class Standard:
    def __init__(self, data: bytes) -> None:
        self.buffer = Slow(data)


METRICS = sm.MetricCollection(
    {
        "ctr": sm.Task([sm.AUC(), sm.LogLoss()], y_true="click", y_score="p"),
        "search": sm.Task(sm.NDCG(k=3), y_true="click", y_score="p", query="q"),
    }
)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("log") / "log.parquet"
    pq.write_table(TABLE, path)
    return evaluate(Log(path), METRICS, ["country"])


def test_a_reader_that_reads_ahead_does_not_move_others() -> None:
    """Arrow reads ahead in its own threads for a reader that guessed types and is closed."""
    pipe = Pipe(io.BytesIO(b"0123456789"))
    guesses, rows = pipe.open_reader(), pipe.open_reader()
    assert guesses.read(3) == b"012"
    assert rows.read(2) == b"01"
    assert (guesses.read(3), rows.read(2)) == (b"345", b"23")
    last = pipe.open_last_reader()
    assert last.read(4) == b"0123"
    assert (guesses.read(3), rows.read()) == (b"", b"")
    assert last.read() == b"456789"


@pytest.mark.slow
@pytest.mark.parametrize("form", ["csv", "tsv", "csv.gz", "ipc", "json", "json.gz"])
def test_standard_input(form: str, expected: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", Standard(written(form)))
    found = evaluate(Log("-"), METRICS, ["country"], threads=2)
    assert found.rows == N
    assert found.bundle.digest() == expected.bundle.digest()


@pytest.mark.slow
@pytest.mark.parametrize("form", ["csv", "json"])
def test_text_that_begins_with_a_mark(
    form: str, expected: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As spreadsheets and PowerShell write it."""
    data = b"\xef\xbb\xbf" + written(form)
    (tmp_path / f"log.{form}").write_bytes(data)
    monkeypatch.setattr(sys, "stdin", Standard(data))
    for log in (Log("-"), Log(tmp_path / f"log.{form}")):
        assert evaluate(log, METRICS, ["country"]).bundle.digest() == expected.bundle.digest()


def test_an_array_is_no_json_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = b' [{"p": 0.5},\n {"p": 0.25}]'
    (tmp_path / "log.json").write_bytes(data)
    monkeypatch.setattr(sys, "stdin", Standard(data))
    for log in (Log("-"), Log(tmp_path / "log.json")):
        with pytest.raises(LogError, match="found a JSON array"):
            evaluate(log, METRICS)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["log.jsonl", "log.ndjson", "log.json", "log.jsonl.gz", "log.json.gz"])
def test_files_of_json_lines(name: str, expected: Any, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(written("json.gz" if name.endswith("gz") else "json"))
    found = evaluate(Log(tmp_path / name), METRICS, ["country"])
    assert found.bundle.digest() == expected.bundle.digest()


def lines(*rows: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def test_json_lines_of_many_kinds(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(
        lines({"y": 1, "p": 1, "k": "a"}, {"p": 0.25, "k": None, "y": 0, "more": {"x": 1}}, {"y": 1, "p": 0.5})[:-1]
    )
    task = sm.MetricCollection(sm.Task(sm.Mean(), value="p"))
    found = evaluate(Log(path), task, ["k"])
    assert found.slices[("k",)].table().to_dict()["k"] == [None, "a"]
    assert found.overall.compute() == {"mean": 1.75 / 3}
    matrix = tmp_path / "m.jsonl"
    matrix.write_bytes(lines({"y": 0, "s": [0.75, 0.25]}, {"y": 1, "s": [0.5, 0.5]}))
    several = sm.MetricCollection(sm.Task(sm.Accuracy(num_classes=2), y_true="y", y_score="s"))
    assert evaluate(Log(matrix), several).overall.compute() == {"accuracy": 0.5}


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (lines(*[{"p": 0.5}] * 60_000, {"p": "high"}), r"row 60,000: .*changed from number to string"),
        (lines({"p": 0.5}) + b"{oops\n", r"row 1: "),
        (b"", "empty"),
        (lines({"q": 0.5}), "no column 'p'"),
        (lines({"p": 0.5}, {"p": None}), r"found a null in row 1 of"),
    ],
)
def test_json_lines_that_are_none(data: bytes, words: str, tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(data)
    with pytest.raises((LogError, sm.InvalidInputError), match=words) as caught:
        evaluate(Log(path), sm.MetricCollection(sm.Task(sm.Mean(), value="p")))
    assert str(path) in str(caught.value)


def test_what_is_no_pipe(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for data, words in (
        (b"PAR1....", "cannot be read from a pipe"),
        (b"ARROW1..", "cannot be read from a pipe"),
        (b"", "empty"),
    ):
        monkeypatch.setattr(sys, "stdin", Standard(data))
        with pytest.raises(LogError, match=words):
            evaluate(Log("-"), METRICS)
    with pytest.raises(LogError, match="alone"):
        Log(["-", tmp_path])
