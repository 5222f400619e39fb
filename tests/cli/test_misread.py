"""What used to be read as something else without a word."""

from __future__ import annotations

import json
import os
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import streammetrics as sm

BASE = ("--label", "click", "--score", "pctr_b")


@pytest.fixture
def classes(tmp_path):
    """A log of two classes, one of which ends like the other, and a third that is called like none."""
    rng = np.random.default_rng(1)
    p = rng.random(500)
    columns = {"sex": np.where(rng.random(500) < p, "male", "female"), "p_male": p, "p_female": 1 - p, "p_other": p}
    pq.write_table(pa.table(columns), path := tmp_path / "classes.parquet")
    return path, columns


def test_a_class_that_ends_like_another(run, classes):
    path, columns = classes
    ask = ("eval", path, "--task-type", "multiclass", "--label", "sex", "--score", "p_*male", "--metrics", "log_loss")
    for order in ("male,female", "female,male"):
        ran = run(*ask, "--classes", order, "--format", "json")
        y = columns["sex"] == "male"
        assert ran.values["log_loss"] == pytest.approx(sm.LogLoss().update(y, columns["p_male"]).compute(), rel=1e-12)


def test_some_columns_called_after_classes(run, classes):
    path, _ = classes
    ask = ("eval", path, "--task-type", "multiclass", "--label", "sex", "--metrics", "log_loss")
    ran = run(*ask, "--score", "p_*", "--classes", "male,robot,other")
    assert ran.code == 2
    assert "no column of p_female, p_male, p_other is called after the class 'robot'" in ran.err


def test_patterns_that_begin_alike(run, tmp_path):
    p = np.random.default_rng(2).random((300, 2))
    columns = {f"p_{c}_v{v}": p[:, c] if v == 1 else p[:, 1 - c] for c in range(2) for v in (1, 2)}
    pq.write_table(pa.table({"y": (p[:, 1] > 0.5).astype(int)} | columns), path := tmp_path / "two.parquet")
    ask = ("eval", path, "--task-type", "multiclass", "--label", "y", "--classes", "2", "--metrics", "accuracy")
    values = run(*ask, "--score", "p_*_v1", "--score", "p_*_v2", "--format", "json").values
    assert [*values] == ["p_*_v1/accuracy", "p_*_v2/accuracy"]


def test_the_same_file_by_two_names(run, log, tmp_path, monkeypatch):
    file = sorted(log.rglob("*.parquet"))[0]
    os.symlink(file, tmp_path / "link.parquet")
    monkeypatch.chdir(file.parent)
    for other in (file.resolve(), tmp_path / "link.parquet"):
        ran = run("eval", file.name, other, *BASE)
        assert ran.code == 2
        assert "named twice" in ran.err


def test_a_guardrail_that_nothing_is_compared_with(run, log):
    ask = ("eval", log, "--label", "click", "--score", "pctr_a", "--score", "pctr_b", "--unit", "row")
    assert run(*ask).code == 0
    ran = run(*ask, "--guardrail", "calibration=0")
    assert ran.code == 2
    assert "name a --unit" in ran.err


def test_the_store_of_serve_is_that_of_its_commands(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = run("serve", "--store", "here.db", "token", "--reader", "ann")
    assert made.code == 0
    assert [*map(str, tmp_path.glob("*.db"))] == [str(tmp_path / "here.db")]
    assert "ann" in run("serve", "--store", "here.db", "tokens").out
    run("serve", "--store", "here.db", "token", "--reader", "bob", "--store", "there.db")
    assert (tmp_path / "there.db").exists()


def test_rankings_without_rows(run, tmp_path):
    path = tmp_path / "empty.parquet"
    pq.write_table(
        pa.table({"y": pa.array([], "int64"), "s": pa.array([], "float64"), "q": pa.array([], "int64")}), path
    )
    ask = ("--task-type", "ranking", "--label", "y", "--score", "s", "--query", "q")
    assert run("eval", "--sql", f"select * from '{path}'", *ask).code in (0, 2)
    assert run("eval", path, *ask).code in (0, 2)


def test_numbers_that_no_float_tells_apart(run, tmp_path):
    far = 10**18 + 1
    columns = {"id": [far, far + 1, far - 1], "small": pa.array([1.0, 3e7, 0.5], "float32"), "none": [None] * 3}
    columns |= {"at": pa.array([0, 1, 2], pa.timestamp("s")), "huge": pa.array([1, 2**64 - 1, 2**63], "uint64")}
    path = tmp_path / "numbers.parquet"
    pq.write_table(pa.table({"click": [1, 0, 0], "pctr_b": [0.5, 0.25, 0.125]} | columns), path)

    def mean(condition):
        ran = run("eval", path, *BASE, "--where", condition, "--metrics", "predicted_ctr", "--format", "json")
        assert ran.code == 0, ran.err
        return ran.values["predicted_ctr"]

    assert mean(f"id={far}") == 0.5
    assert mean(f"id>{far}") == 0.25
    assert mean(f"id<{10**30}") == mean(f"id>-{10**30}") == mean(f"id!={2**63}") == 0.875 / 3
    assert mean(f"huge={2**64 - 1}") == mean(f"huge>{2**63}") == mean("small>20000000") == 0.25
    assert mean(f"huge<{2**64}") == 0.875 / 3
    assert mean("none=3") is None
    ran = run("eval", path, *BASE, "--where", "at", "--where", "id>0")
    assert ran.code == 2
    assert "a column of timestamp[ms] is neither 0 nor 1" in ran.err


def test_results_over_the_log(run, log):
    file = sorted(log.rglob("*.parquet"))[0]
    before = file.read_bytes()
    for option in ("--save", "--report"):
        ran = run("eval", log, *BASE, option, file)
        assert ran.code == 2
        assert "this is a file of the log" in ran.err
    assert file.read_bytes() == before


def test_a_guardrail_with_settings(run, log):
    ask = ("eval", log, "--label", "click", "--score", "pctr_a", "--score", "pctr_b", "--unit", "user_id")
    ran = run(*ask, "--metrics", "auc,log_loss:eps=1e-6", "--guardrail", "log_loss:eps=1e-6=1", "--format", "json")
    assert "give the metric and by how much" not in ran.err


def _written(path, text, columns):
    """The same columns as CSV, JSON lines or Parquet."""
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    if text == "parquet":
        pq.write_table(pa.table(columns), path)
    elif text == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        lines = [",".join(columns), *(",".join(str(v) for v in row.values()) for row in rows)]
        path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("text", ["csv", "jsonl", "parquet"])
def test_a_condition_on_a_column_that_is_a_key(run, tmp_path, text):
    """It is compared as what it holds, whatever it is read as to be a key."""
    columns = {"click": [0, 1, 1, 0], "pctr_b": [0.1, 0.9, 0.8, 0.3], "user": ["a", "b", "c", "d"]}
    columns |= {"test": [True, False, True, False], "size": [2, 10, 9, 100], "day": ["2026-01-09", "2026-01-10"] * 2}
    path = _written(tmp_path / f"log.{text}", text, columns)
    for by, condition, left in (
        ("test", "test!=true", {"False", "false"}),
        ("size", "size>9", {"10", "100"}),
        ("day", "day>2026-01-09", {"2026-01-10"}),
    ):
        ran = run("eval", path, *BASE, "--by", by, "--where", condition, "--metrics", "ctr", "--format", "csv")
        assert ran.code == 0, ran.err
        lines = [line.split(",") for line in ran.out.splitlines()[1:]]
        slices = {line[1].rpartition("=")[2] for line in lines if line[3]} - {""}  # others have no rows that count
        assert slices <= left, (condition, ran.out)
        assert slices


def test_a_bare_flag_that_is_a_key(run, tmp_path):
    """As a key it is text, "true"; of 0 and 1, and where it has a type of its own, it is both."""
    columns = {"click": [1, 0, 1], "pctr_b": [0.5, 0.2, 0.7], "flag": [True, False, True]}
    path = _written(tmp_path / "log.csv", "csv", columns)
    ran = run("eval", path, *BASE, "--where", "flag", "--by", "flag")
    assert ran.code == 2
    assert "where flag: a key is read as text; compare it, such as flag=true" in ran.err
    for path in (
        _written(tmp_path / "log.csv", "csv", columns | {"flag": [1, 0, 1]}),
        _written(tmp_path / "log.jsonl", "jsonl", columns),
    ):
        ran = run("eval", path, *BASE, "--where", "flag", "--by", "flag", "--metrics", "ctr", "--format", "json")
        assert ran.values["ctr"] == 1.0


def test_a_condition_on_a_key_that_holds_something_else_later(run, tmp_path):
    rows = [f"{i % 2},0.5,{i % 7}" for i in range(60_000)] + ["1,0.5,none"]
    (path := tmp_path / "late.csv").write_text("click,pctr_b,size\n" + "\n".join(rows) + "\n")
    ran = run("eval", path, *BASE, "--by", "size", "--where", "size>3")
    assert ran.code == 2
    assert "'none'" in ran.err
    assert "not" in ran.err


def test_the_keys_of_most_rows_that_count(run, tmp_path):
    """A key all of whose rows are left out takes no place among those that are kept."""
    key = [*"a" * 50, *"b" * 20, *"c" * 10]
    columns = {"click": [0, 1] * 40, "pctr_b": [0.5] * 80, "k": key, "test": [k == "a" for k in key]}
    path = _written(tmp_path / "log.parquet", "parquet", columns)
    for condition in ("test=false", "k!=a"):
        ask = ("--by", "k", "--limit", "1", "--where", condition, "--metrics", "ctr", "--format", "csv")
        found = run("eval", path, *BASE, *ask)
        assert "k=b" in found.out, found.out + found.err
        assert "k=a" not in found.out


def test_keys_of_many_kinds_in_json(run, tmp_path):
    columns = {"click": [0, 1, 1], "pctr_b": [0.1, 0.9, 0.8], "flag": [True, False, True], "size": [0.5, 2, 3]}
    path = _written(tmp_path / "log.jsonl", "jsonl", columns)
    ran = run("eval", path, *BASE, "--by", "flag", "--metrics", "ctr", "--format", "csv")
    assert ran.code == 0, ran.err
    ran = run("eval", path, *BASE, "--by", "size")
    parquet = run("eval", _written(tmp_path / "log.parquet", "parquet", columns), *BASE, "--by", "size")
    assert (ran.code, ran.err.replace("jsonl", "parquet")) == (parquet.code, parquet.err)


def test_keys_of_two_types_in_two_files(run, tmp_path):
    for i, keys in enumerate(([1, 2], ["a", "b"])):
        columns = {"y": [0, 1], "s": [0.2, 0.7], "q": keys, "click": [0, 1], "pctr_b": [0.2, 0.7]}
        _written(tmp_path / f"{i}.parquet", "parquet", columns)
    files = (tmp_path / "0.parquet", tmp_path / "1.parquet")
    for ask in (
        ("--task-type", "ranking", "--label", "y", "--score", "s", "--query", "q"),
        (*BASE, "--by", "q", "--limit", "1"),
    ):
        ran = run("eval", *files, *ask)
        assert ran.code == 2
        assert "q" in ran.err
        assert ran.err.count("\n") == 1


@pytest.mark.parametrize("text", ["csv", "jsonl"])
def test_slices_by_folders_alone(run, tmp_path, text):
    """The pass that ranks keys reads no column of the files for what it holds."""
    for day in (1, 2):
        (tmp_path / f"day={day}").mkdir()
        columns = {"mixed": [*range(50_000), "text"], "click": [0] * 50_000 + [1], "pctr_b": [0.5] * 50_001}
        _written(
            tmp_path / f"day={day}" / f"log.{text}",
            text,
            columns if text == "csv" else dict(columns, mixed=columns["click"]),
        )
    ran = run("eval", tmp_path, *BASE, "--by", "day", "--limit", "1", "--metrics", "ctr", "--format", "csv")
    assert ran.code == 0, ran.err
    assert "day=1" in ran.out


def test_a_report_that_cannot_be_made_is_refused_at_once(run, log, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    for ask in (("eval", log, *BASE, "--save", tmp_path / "x.smet"), ("show", tmp_path / "none.smet")):
        ran = run(*ask, "--report", tmp_path / "r.html")
        assert ran.code == 2
        assert "--report needs jinja2" in ran.err
    assert not list(tmp_path.iterdir())


def test_json_lines_have_no_delimiter(run, tmp_path):
    path = _written(tmp_path / "log.jsonl", "jsonl", {"click": [0, 1], "pctr_b": [0.1, 0.9]})
    ran = run("eval", path, *BASE, "--delimiter", ";")
    assert ran.code == 2
    assert "JSON lines have none" in ran.err


def test_a_sign_that_is_spelled_otherwise(run, tmp_path):
    columns = {"click": [1, 0, 1, 0], "pctr_b": [0.5, 0.2, 0.7, 0.1], "country": ["br", "us", "de", "br"]}
    path = _written(tmp_path / "log.csv", "csv", columns)
    for condition in ("country<>br", "country!=br", "country <> br"):
        ran = run("eval", path, *BASE, "--where", condition, "--metrics", "ctr", "--format", "json")
        assert ran.values["ctr"] == 0.5
    for condition in ("country=>br", "country=<br", "country=!br"):
        ran = run("eval", path, *BASE, "--where", condition)
        assert ran.code == 2
        assert "which comparison is meant?" in ran.err
