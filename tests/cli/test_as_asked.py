"""What an option says is what is done, whatever form the log has; what cannot be done is refused."""

from __future__ import annotations

import csv
import datetime as dt
import io
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import streammetrics as sm

BASE = ("--label", "y", "--score", "p")
FORMS = ("csv", "jsonl", "parquet")


def written(path: Path, columns: dict[str, list[Any]]) -> Path:
    """The same columns as CSV, JSON lines or Parquet, by the ending of the path."""
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    if path.suffix == ".parquet":
        kinds = {n: pa.uint64() if 2**64 - 1 in v else None for n, v in columns.items()}
        pq.write_table(pa.table({n: pa.array(v, kinds[n]) for n, v in columns.items()}), path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        with path.open("w", newline="") as file:
            csv.writer(file).writerows([columns, *(row.values() for row in rows)])
    return path


FAR = 179 * 10**16
IDS = [FAR + 1, FAR + 2, FAR + 2, 7, 2**63 - 1]


@pytest.mark.slow
@pytest.mark.parametrize("by", [(), ("--by", "id"), ("--by", "k", "--limit", 1)], ids=["", "by", "limit"])
@pytest.mark.parametrize("form", FORMS)
def test_ids_that_no_float_tells_apart(run: Any, tmp_path: Path, form: str, by: tuple[Any, ...]) -> None:
    columns: dict[str, list[Any]] = {"y": [1, 0, 1, 0, 1], "p": [0.5] * 5, "id": IDS, "k": [*"aabbb"]}
    path = written(tmp_path / f"log.{form}", columns)
    for condition, rows in (
        (f"id={FAR + 1}", [0]),
        (f"id!={FAR + 2}", [0, 3, 4]),
        (f"id>{FAR + 1}", [1, 2, 4]),
        ("id>1.79e18", [0, 1, 2, 4]),
        (f"id<{FAR}.5", [3]),
        (f"id<{2**63}", [0, 1, 2, 3, 4]),
    ):
        ran = run("eval", path, *BASE, "--where", condition, *by, "--metrics", "ctr", "--format", "json")
        assert ran.code == 0, ran.err
        (whole,) = [r for r in ran.records if not r["by"]]
        assert (whole["rows"], whole["value"]) == (len(rows), np.mean([columns["y"][i] for i in rows])), condition


@pytest.mark.parametrize("by", [(), ("--by", "id")], ids=["", "by"])
def test_ids_of_64_bits_without_a_sign(run: Any, fails: Any, tmp_path: Path, by: tuple[Any, ...]) -> None:
    columns: dict[str, list[Any]] = {"y": [1, 0, 1], "p": [0.5] * 3, "id": [2**64 - 1, 2**64 - 2, 5]}
    for form in ("csv", "parquet"):
        ask = ("--metrics", "ctr", "--format", "json", *by)
        ran = run("eval", written(tmp_path / f"log.{form}", columns), *BASE, "--where", f"id={2**64 - 1}", *ask)
        assert (ran.records[0]["rows"], ran.values["ctr"]) == (1, 1.0)
    path = written(tmp_path / "log.jsonl", columns)
    assert "write the integers as JSON strings to compare them exactly" in fails(
        "eval", path, *BASE, "--where", f"id={2**64 - 1}", *by
    )


def test_a_sum_that_is_compared_with_a_large_number(run: Any, tmp_path: Path) -> None:
    """What metrics read stays a number, whatever it is compared with; fractions may come late."""
    rows = [f"{i % 2},{i}" for i in range(60_000)] + ["1,0.5"]
    (path := tmp_path / "log.csv").write_text("y,p\n" + "\n".join(rows) + "\n")
    ask = ("--task-type", "regression", "--label", "y", "--score", "p", "--metrics", "mae", "--format", "json")
    ran = run("eval", path, *ask, "--where", "p<1000000000000000000")
    assert (ran.code, ran.records[0]["rows"]) == (0, 60_001)


def test_nanoseconds(run: Any, tmp_path: Path) -> None:
    at = pa.array([1_700_000_000_123_456_789, 1_700_000_000_123_456_788], pa.int64()).cast(pa.timestamp("ns"))
    pq.write_table(pa.table({"y": [1, 0], "p": [0.5, 0.5], "at": at}), path := tmp_path / "log.parquet")
    ask = ("--where", "at=2023-11-14T22:13:20.123456789", "--metrics", "ctr", "--format", "json")
    assert run("eval", path, *BASE, *ask).values["ctr"] == 1.0


@pytest.mark.parametrize("form", FORMS)
def test_windows_of_steps(run: Any, fails: Any, tmp_path: Path, form: str) -> None:
    columns: dict[str, list[Any]] = {"y": [1, 0, 1], "p": [0.5] * 3, "step": [0, 1, 2]}
    path = written(tmp_path / f"log.{form}", columns)
    ran = run("eval", path, *BASE, "--metrics", "ctr", "--window", 2, "--time", "step", "--format", "json")
    assert [(r["slice"]["step"], r["value"]) for r in ran.records if r["by"]] == [(0, 0.5), (2, 1.0)]
    refused = fails("eval", path, *BASE, "--metrics", "ctr", "--window", "1d", "--time", "step")
    assert "for integers, such as steps or seconds, pass an integer as the width" in refused


@pytest.mark.parametrize("form", FORMS)
def test_labels_that_are_keys(run: Any, tmp_path: Path, form: str) -> None:
    columns: dict[str, list[Any]] = {"y": [True, False, True], "p": [0.5] * 3, "k": [*"aab"]}
    path = written(tmp_path / f"log.{form}", columns)
    ask = ("--metrics", "ctr", "--format", "json")
    for more in ((), ("--pos-label", "true"), ("--where", "y", "--limit", 1)):
        ran = run("eval", path, *BASE, "--by", "y", *more, *ask)
        assert ran.code == 0, ran.err
        found = {r["slice"]["y"]: r["value"] for r in ran.records if r["by"] and r["rows"]}
        assert found == ({True: 1.0} if "--where" in more else {True: 1.0, False: 0.0})


def test_decimals_are_the_nearest_floats(run: Any, tmp_path: Path) -> None:
    columns: dict[str, list[Any]] = {"y": [1, 0, 1], "p": [Decimal("0.10"), Decimal("0.35"), Decimal("0.70")]}
    path = written(tmp_path / "log.parquet", columns | {"w": [Decimal("1.5"), Decimal("2.0"), Decimal("0.1")]})
    ask = ("--weight", "w", "--metrics", "log_loss", "--where", "w>0.05", "--format", "json")
    expected = sm.LogLoss().update([1, 0, 1], [0.10, 0.35, 0.70], sample_weight=[1.5, 2.0, 0.1]).compute()
    assert run("eval", path, *BASE, *ask).values["log_loss"] == expected


@pytest.fixture
def saved(run: Any, tmp_path: Path) -> Path:
    rng = np.random.default_rng(3)
    days = [dt.datetime(2024, 1, 1 + i % 3, tzinfo=dt.UTC) for i in range(300)]
    columns: dict[str, list[Any]] = {"y": rng.integers(0, 2, 300).tolist(), "p": rng.random(300).tolist(), "ts": days}
    columns |= {"c": [*"ab" * 150], "flag": [i % 7 == 0 for i in range(300)]}
    path = written(tmp_path / "log.parquet", columns)
    ask = ("--metrics", "auc,calibration", "--unit", "row", "--window", "1d", "--time", "ts", "--by", "c,flag")
    assert run("eval", path, *BASE, *ask, "--save", tmp_path / "saved.smet").code == 0
    return tmp_path / "saved.smet"


def test_a_roll_up_of_slices_with_windows(run: Any, saved: Path) -> None:
    whole = run("show", saved, "--by", "flag,ts", "--format", "json")
    assert whole.code == 0, whole.err
    table = run("show", saved, "--by", "flag,ts").out
    assert "\nby flag\n" in table
    assert "\nby flag and 1d of ts\n" in table
    rows = [
        (r["slice"]["flag"], r["rows"]) for r in whole.records if r["by"] == ["flag", "ts"] and r["metric"] == "auc"
    ]
    assert sorted(rows) == sorted([(False, n) for n in (86, 86, 85)] + [(True, n) for n in (14, 14, 15)])


def test_what_is_asked_of_slices_where_there_are_none(fails: Any, saved: Path) -> None:
    for option in (("--sort", "nope"), ("--min-rows", 5)):
        assert "expected slices, found none" in fails("show", saved, "--by", "ts", *option)
        assert "expected slices, found none" in fails("compare", saved, saved, *option)
    log = saved.parent / "log.parquet"
    for option in (("--source", "x"), ("--seq", 3)):
        assert "add --push URL" in fails("eval", log, *BASE, "--metrics", "auc", *option)


def test_a_guardrail_on_the_first_metric(run: Any, fails: Any, saved: Path, tmp_path: Path) -> None:
    (other := tmp_path / "other.smet").write_bytes(saved.read_bytes())
    ran = run("compare", saved, other, "--guardrail", "auc=0.02", "--independent", "--format", "json")
    assert ran.code in (0, 3), ran.err
    assert ran.verdicts[0]["metrics"]["calibration"]["role"] == "primary"
    refused = fails("compare", saved, other, "--metrics", "auc", "--guardrail", "auc=0.02", "--independent")
    assert "expected a primary metric, found only guardrails: auc" in refused


def test_files_that_cannot_be_compared(fails: Any, saved: Path, tmp_path: Path) -> None:
    (other := tmp_path / "other.smet").write_bytes(saved.read_bytes())
    assert "or add --independent if no unit" in fails("compare", saved, other)
    sm.save(sm.MetricCollection(sm.LogLoss()).update([0, 1], [0.1, 0.8]), alone := tmp_path / "alone.smet")
    line = fails("compare", saved, alone, "--primary", "calibration", "--independent")
    assert line == "there is no metric 'calibration' in alone; choose from log_loss"


def test_keys_that_read_alike(run: Any, tmp_path: Path) -> None:
    """Null and the text "null", bytes that are no text: each has a name of its own."""
    columns: dict[str, Any] = {"y": [1, 0, 1, 0], "p": [0.5] * 4, "c": [None, "null", "(other)", "x"]}
    columns["b"] = [b"\xff", b"\xfe", b"null", b"x"]
    pq.write_table(pa.table(columns), path := tmp_path / "log.parquet")
    for name, expected in (("c", {"null", '"null"', '"(other)"', "x"}), ("b", {"0xff", "0xfe", '"null"', "x"})):
        out = run("eval", path, *BASE, "--by", name, "--metrics", "ctr", "--format", "csv").out
        assert {line[name] for line in csv.DictReader(io.StringIO(out)) if line["slice"]} == expected


@pytest.mark.slow
def test_messages_speak_of_options(fails: Any, tmp_path: Path) -> None:
    columns: dict[str, list[Any]] = {"y": [1, 0, 1], "p": [0.5] * 3, "flag": [True, None, False], "g": ["a", None, "b"]}
    columns |= {"name": ["cat", "dog", "cat"], "p_cat": [0.5] * 3, "p_dog": [0.5] * 3}
    path = written(tmp_path / "log.parquet", columns)
    assert "labels=" not in fails("eval", path, *BASE, "--where", "flag")
    assert "--metrics group_auc:missing=skip" in fails("eval", path, *BASE, "--group", "g", "--metrics", "group_auc")
    ask = ("--task-type", "multiclass", "--label", "name", "--score", "p_*", "--metrics", "accuracy")
    assert "--classes" in fails("eval", path, *ask)
    assert "--score" in fails("eval", path, "--task-type", "regression", "--label", "y", "--pred", "p")
    one, two = tmp_path / "a.smet", tmp_path / "b.smet"
    sm.save(sm.MetricCollection(sm.MAE()), one)
    sm.save(sm.MetricCollection(sm.AUC()), two)
    assert "no metric in common: a has mae, and b has auc" in fails("compare", one, two, "--independent")


def test_metrics_of_a_task_file_as_one_text(run: Any, tmp_path: Path) -> None:
    written(tmp_path / "log.csv", {"y": [1, 0], "p": [0.6, 0.4]})
    (task := tmp_path / "task.toml").write_text('[tasks.t]\nlabel = "y"\nscore = "p"\nmetrics = "auc, calibration"\n')
    ran = run("eval", tmp_path / "log.csv", "--task", task, "--format", "json")
    assert [name.rpartition("/")[2] for name in ran.values] == ["auc", "calibration"]


def test_weights_that_are_all_zero(run: Any, tmp_path: Path) -> None:
    path = written(tmp_path / "log.csv", {"y": [1, 0, 1], "p": [0.6, 0.4, 0.1], "w": [0, 0, 0]})
    ran = run("eval", path, *BASE, "--weight", "w", "--metrics", "auc,average_precision,ks,ctr", "--format", "json")
    assert {r["reason"] for r in ran.records} == {"the weights are all zero"}
