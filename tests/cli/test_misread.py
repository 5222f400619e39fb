"""What used to be read as something else without a word."""

from __future__ import annotations

import os

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
