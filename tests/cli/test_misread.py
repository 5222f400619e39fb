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
    assert "ends with the class 'robot', found none among p_female, p_male, p_other;" in ran.err


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
    assert "need a column of units; name it with --unit" in ran.err


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


@pytest.mark.slow
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
    ran = run("eval", path, *BASE, "--where", "none=3")
    assert (ran.code, ran.err) == (2, "streammetrics: none of the 3 rows meets --where none=3\n")
    ran = run("eval", path, *BASE, "--where", "at", "--where", "id>0")
    assert ran.code == 2
    assert "expected a column of 0s and 1s, found type timestamp[ms]" in ran.err


def test_results_over_the_log(run, log):
    file = sorted(log.rglob("*.parquet"))[0]
    before = file.read_bytes()
    for option in ("--save", "--report"):
        ran = run("eval", log, *BASE, option, file)
        assert ran.code == 2
        assert "the output would replace a file of the log" in ran.err
    assert file.read_bytes() == before


def test_a_guardrail_with_settings(run, log):
    ask = ("eval", log, "--label", "click", "--score", "pctr_a", "--score", "pctr_b", "--unit", "user_id")
    ran = run(*ask, "--metrics", "auc,log_loss:eps=1e-6", "--guardrail", "log_loss:eps=1e-6=1", "--format", "json")
    assert "expected METRIC=MARGIN" not in ran.err


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
    """A key of a CSV file is text, but it keeps what a condition needs."""
    columns = {"click": [1, 0, 1], "pctr_b": [0.5, 0.2, 0.7], "flag": [True, False, True]}
    for path in (
        _written(tmp_path / "log.csv", "csv", columns),
        _written(tmp_path / "ones.csv", "csv", columns | {"flag": [1, 0, 1]}),
        _written(tmp_path / "log.jsonl", "jsonl", columns),
    ):
        ran = run("eval", path, *BASE, "--where", "flag", "--by", "flag", "--metrics", "ctr", "--format", "json")
        assert ran.values["ctr"] == 1.0


def test_a_condition_on_a_key_that_holds_something_else_later(run, tmp_path):
    rows = [f"{i % 2},0.5,{i % 7}" for i in range(60_000)] + ["1,0.5,none"]
    (path := tmp_path / "late.csv").write_text("click,pctr_b,size\n" + "\n".join(rows) + "\n")
    ran = run("eval", path, *BASE, "--by", "size", "--where", "size>3")
    assert ran.code == 2
    assert "expected values of type double, found 'none'" in ran.err


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


@pytest.mark.slow
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
    assert "found JSON lines; remove --delimiter" in ran.err


def test_a_sign_that_is_spelled_otherwise(run, tmp_path):
    columns = {"click": [1, 0, 1, 0], "pctr_b": [0.5, 0.2, 0.7, 0.1], "country": ["br", "us", "de", "br"]}
    path = _written(tmp_path / "log.csv", "csv", columns)
    for condition in ("country<>br", "country!=br", "country <> br"):
        ran = run("eval", path, *BASE, "--where", condition, "--metrics", "ctr", "--format", "json")
        assert ran.values["ctr"] == 0.5
    for condition in ("country=>br", "country=<br", "country=!br"):
        ran = run("eval", path, *BASE, "--where", condition)
        assert ran.code == 2
        assert "expected one of the operators" in ran.err


def test_keys_that_begin_with_zeros(run, tmp_path):
    """As keys they are texts; as numbers they are numbers, and conditions compare these."""
    columns = {"click": [0, 1, 0], "pctr_b": ["00", "0", "01"], "zip": ["007", "7", "07"]}
    path = _written(tmp_path / "log.csv", "csv", columns)
    ran = run("eval", path, *BASE, "--by", "zip", "--metrics", "ctr", "--format", "json")
    assert {r["slice"]["zip"]: r["value"] for r in ran.records if r["by"]} == {"007": 0.0, "07": 0.0, "7": 1.0}
    ran = run(
        "eval", path, *BASE, "--by", "zip", "--where", "zip=7", "--metrics", "ctr,predicted_ctr", "--format", "json"
    )
    assert ran.values == {"ctr": 1 / 3, "predicted_ctr": 1 / 3}
    other = _written(tmp_path / "other.csv", "csv", columns | {"zip": ["8", "9", "10"]})
    ran = run("eval", other, path, *BASE, "--by", "zip", "--metrics", "ctr", "--format", "json")
    assert {r["slice"]["zip"] for r in ran.records if r["by"]} == {"007", "07", "7", "8", "9", "10"}


def test_a_key_called_slice(run, tmp_path):
    path = _written(tmp_path / "log.parquet", "parquet", {"click": [0, 1], "pctr_b": [0.5, 0.2], "slice": ["a", "b"]})
    ran = run("eval", path, *BASE, "--by", "slice", "--metrics", "ctr")
    assert [line.split()[0] for line in ran.out.splitlines() if line[:2] in ("a ", "b ")] == ["a", "b"]


def test_keys_give_no_orders_to_a_terminal(run, tmp_path):
    keys = ["\x1b[31mred", "a\nb", "\u202etfel", "caf\u00e9"]
    columns = {"click": [0, 1, 1, 0], "pctr_b": [0.5, 0.2, 0.1, 0.3], "k": keys}
    path = _written(tmp_path / "log.parquet", "parquet", columns)
    ran = run("eval", path, *BASE, "--by", "k", "--metrics", "ctr")
    for shown in (r"\x1b[31mred ", r"a\nb ", r"\u202etfel ", "caf\u00e9 "):
        assert any(line.startswith(shown) for line in ran.out.splitlines())
    assert repr(sm.Sliced(sm.CTR(), by="k").update([1], k=["a\nb"]).table()).splitlines()[1].startswith(r"a\nb ")
    ran = run("eval", path, *BASE, "--by", "k", "--metrics", "ctr", "--format", "json")
    assert {r["slice"]["k"] for r in ran.records if r["by"]} == set(keys)


@pytest.mark.parametrize("option", ["--by", "--unit", "--group"])
def test_what_no_key_is(run, tmp_path, option):
    columns = {"click": [0, 1], "pctr_b": [0.5, 0.2], "pair": [{"a": 1}, {"a": 2}], "items": [[1], [2]]}
    path = _written(tmp_path / "log.parquet", "parquet", columns)
    for name, kind in (("pair", "struct"), ("items", "list")):
        ran = run("eval", path, *BASE, option, name)
        assert ran.code == 2
        assert f"{name}: expected keys of one kind (integers, strings" in ran.err
        assert f"found {kind}" in ran.err


def test_rows_of_a_table_that_is_split_keep_their_keys(run, tmp_path):
    """A line is left out where it has no value, and with it the key that stands once above several."""
    text = "".join(
        f'[tasks.{name}]\nlabel = "{label}"\nscore = ["pctr_b"]\nmetrics = [{metrics}]\n'
        for name, label, metrics in (
            ("first", "click", '"auc", "log_loss", "average_precision", "normalized_entropy", "calibration", "ks"'),
            ("other", "buy", '"ctr", "predicted_ctr", "brier_score", "gini"'),
        )
    )
    (tasks := tmp_path / "tasks.toml").write_text(text)
    rng = np.random.default_rng(1)
    columns = {"click": rng.integers(0, 2, 90), "buy": rng.integers(0, 2, 90), "pctr_b": rng.random(90)}
    columns |= {"arm": np.array(["left", "mid", "right"])[np.arange(90) % 3]}
    pq.write_table(pa.table(columns), path := tmp_path / "log.parquet")
    ran = run("eval", path, "--task", tasks, "--by", "arm")
    assert ran.code == 0, ran.err
    lines = ran.out[ran.out.index("by arm") :].splitlines()
    heads = [i for i, line in enumerate(lines) if line.startswith("arm ")]
    assert len(heads) > 1
    for i in heads:
        begun = [line.split()[0] for line in lines[i + 1 : i + 7] if line[:1].strip()]
        assert begun[:3] == ["left", "mid", "right"], "\n".join(lines)


def test_files_that_are_read_are_not_replaced(run, log, tmp_path):
    (tasks := tmp_path / "tasks.toml").write_text('[tasks.a]\nlabel = "click"\nscore = ["pctr_b"]\nmetrics = ["ctr"]\n')
    for option in ("--save", "--report", "--checkpoint"):
        ran = run("eval", log, "--task", tasks, option, tasks)
        assert (ran.code, tasks.read_text()[:7]) == (2, "[tasks."), ran.err
        assert "the output would replace the task file" in ran.err
    run("eval", log, "--task", tasks, "--save", saved := tmp_path / "saved.smet")
    before = saved.read_bytes()
    ran = run("show", saved, "--report", saved)
    assert (ran.code, saved.read_bytes()) == (2, before)
    assert "the output would replace the file that is shown" in ran.err


def test_a_column_of_scores_that_some_files_lack(run, tmp_path):
    """Reading it says which; where no metric reads it, nobody else would."""
    (folder := tmp_path / "log").mkdir()
    _written(folder / "a.csv", "csv", {"click": [1, 0], "pctr_b": [0.5, 0.2]})
    lacking = _written(folder / "b.csv", "csv", {"click": [1, 0], "other": [0.5, 0.2]})
    ran = run("eval", folder, *BASE, "--metrics", "auc")
    assert ran.err.startswith(f"streammetrics: {lacking}: there is no column 'pctr_b' (found in 1 of 2 files)")
    assert "there is no column 'pctr_b'" in run("eval", folder, *BASE, "--metrics", "ctr").err


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        ("0.2 0.7 0.9", "--metrics log_loss:soft_labels=true"),
        ("0 1 2", "use --task-type multiclass"),
        ("-1 1 1", "name the positive label with --pos-label VALUE"),
    ],
)
def test_remedies_are_options(tmp_path, run, labels, said):
    path = tmp_path / "log.csv"
    path.write_text("y,p\n" + "".join(f"{y},{p}\n" for y, p in zip(labels.split(), (0.1, 0.6, 0.7), strict=True)))
    ran = run("eval", path, "--label", "y", "--score", "p", "--metrics", "auc")
    assert ran.code != 0
    assert said in ran.err
    assert "--on-invalid drop" not in ran.err


@pytest.mark.parametrize(
    ("labels", "ask", "remedy"),
    [
        (
            [0, 1, 2, 3],
            ("--task-type", "multiclass", "--score", "p_*"),
            "if there are 4 classes, use --classes 4 and ",
        ),
        ([1, 2, 3, 3], ("--task-type", "multiclass", "--score", "p_*"), "name the classes: --classes 1,2,..."),
        (
            [0, 1, 2, 7],
            ("--task-type", "multiclass", "--score", "p_*", "--classes", "0,1,2"),
            "add the class to --classes",
        ),
        ([0, 1, 0, 1], ("--pred", "p_0"), "if the column holds scores, name it with --score"),
        ([0, 1, 0, 0.5], ("--score", "p_0"), "use --metrics log_loss:soft_labels=true"),
    ],
)
def test_remedies_name_options_that_are_not_there_yet(run, tmp_path, labels, ask, remedy):
    scores = {f"p_{i}": [0.5, 0.25, 0.25, 0.5] for i in range(3)}
    path = _written(tmp_path / "log.parquet", "parquet", {"y": labels} | scores)
    ran = run("eval", path, "--label", "y", *ask)
    assert ran.code == 2
    assert remedy in ran.err
    for python in ("labels=", "num_classes", "ignore_class", "y_score", "its kin"):
        assert python not in ran.err.replace("soft_labels=", "")
