from __future__ import annotations

import numpy as np
import pytest

import streammetrics as sm
from streammetrics.cli.task_types import TASK_TYPES
from streammetrics.io.evaluate import evaluate
from streammetrics.io.logs import Log

FILE = """
by = ["variant", "country,device"]

[tasks.ctr]
label = "click"
score = ["pctr_a", "pctr_b"]
metrics = ["auc", "log_loss"]

[tasks.cvr]
label = "convert"
score = "pcvr"
where = "click"
weight = "weight"
metrics = ["auc", "precision@0.1"]
"""


@pytest.fixture
def toml(tmp_path):
    def write(text: str):
        path = tmp_path / "tasks.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_tasks_in_one_pass(run, log, table, toml):
    ran = run("eval", log, "--task", toml(FILE), "--format", "json")
    names = [
        "ctr/pctr_a/auc",
        "ctr/pctr_a/log_loss",
        "ctr/pctr_b/auc",
        "ctr/pctr_b/log_loss",
        "cvr/auc",
        "cvr/precision@0.1",
    ]
    assert list(ran.values) == names
    assert ran.values["ctr/pctr_b/auc"] == sm.AUC().update(table["click"], table["pctr_b"]).compute()
    task = sm.Task(sm.AUC(), y_true="convert", y_score="pcvr", where="click", sample_weight="weight")
    assert ran.values["cvr/auc"] == sm.MetricCollection(task).update(table).compute()["auc"]
    assert {tuple(r["by"]) for r in ran.records} == {(), ("variant",), ("country", "device")}


def test_tasks_side_by_side(run, log, toml):
    lines = [line.split() for line in run("eval", log, "--task", toml(FILE), "--by", "variant").out.splitlines()]
    assert ["metric", "ctr/pctr_a", "ctr/pctr_b", "cvr"] in lines
    assert ["variant", "task", "rows", "positives", "auc", "log_loss", "precision@0.1"] in lines
    assert ["country", "device"] not in [line[:2] for line in lines]  # --by goes before the file


def test_labels_by_name(run, write, toml):
    path = write(answer=["no", "yes", "yes"], p=[0.1, 0.9, 0.8])
    for how in ('labels = ["no", "yes"]', 'pos_label = "yes"'):
        text = f'[tasks.a]\nlabel = "answer"\nscore = "p"\nmetrics = ["auc"]\n{how}\n'
        assert run("eval", path, "--task", toml(text), "--format", "json").values == {"a/auc": 1.0}


def test_what_the_label_says_of_a_positive(run, write, fails):
    path = write(answer=["no", "yes", "yes"], grade=[0, 2, 1], old=[True, False, False], p=[0.1, 0.9, 0.8])
    for label, said, expected in (
        ("answer", "yes", 1.0),
        ("answer", "no", 0.0),
        ("grade", "2", 1.0),
        ("old", "true", 0.0),
    ):
        given = ("--label", label, "--score", "p", "--pos-label", said, "--metrics", "auc", "--format", "json")
        assert run("eval", path, *given).values == {"auc": expected}
    plain = ("eval", path, "--score", "p", "--metrics", "auc")
    assert "--pos-label x: expected a value of type int64, as in column 'grade'" in fails(
        *plain, "--label", "grade", "--pos-label", "x"
    )
    assert (
        "found an array of strings; convert the strings to numbers, or name the positive label with --pos-label VALUE"
        in fails(*plain, "--label", "answer")
    )


def test_whose_rows_stand_together_is_asked_for(run, write, fails):
    path = write(y=[0, 1], p=[0.1, 0.9], text=["a", "b"])
    plain = ("eval", path, "--label", "y", "--score", "p")
    assert "ndcg: expected a column of queries; name it with --query" in fails(*plain, "--metrics", "auc,ndcg")
    assert "group_auc: expected a column of users; name it with --group" in fails(*plain, "--metrics", "group_auc")
    assert "found a column of text; compare it with a value: 'text=VALUE'" in fails(*plain, "--where", "text")


def test_correction(run, write, toml):
    path = write(click=[0, 1], p=[0.5, 0.5])
    text = '[tasks.a]\nlabel = "click"\nscore = "p"\nmetrics = ["ctr"]\nnegative_rate = 0.1\ncorrects = "both"\n'
    assert run("eval", path, "--task", toml(text), "--format", "json").values["a/ctr"] == pytest.approx(1 / 11)


def test_values_need_no_label(run, write, toml):
    path = write(revenue=[1.0, 2.0, 6.0], click=[0, 1, 1], p=[0.2, 0.3, 0.9])
    assert run("eval", path, "--value", "revenue", "--format", "json").values == {"mean": 3.0}
    both = run(
        "eval", path, "--value", "revenue", "--label", "click", "--metrics", "quantile@0.5,ctr", "--format", "json"
    )
    assert both.values == {"quantile@0.5": 2.0, "ctr": 2 / 3}
    task = toml('[tasks.a]\nvalue = "revenue"\n')
    assert run("eval", path, "--task", task, "--format", "json").values == {"a/mean": 3.0}


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (["--value", "revenue", "--metrics", "mean,auc"], "auc: expected a column of labels; name it with --label"),
        (["--label", "click", "--metrics", "mean"], "mean: expected a column of values; name it with --value"),
        (
            ["--value", "revenue", "--label", "click", "--score", "p"],
            "add a metric of values, such as mean or quantile",
        ),
        (["--value", "revenues"], "there is no column 'revenues'; did you mean 'revenue'?"),
    ],
)
def test_bad_values(fails, write, options, part):
    path = write(revenue=[1.0, 2.0, 6.0], click=[0, 1, 1], p=[0.2, 0.3, 0.9])
    assert part in fails("eval", path, *options)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("tasks = 3", "expected at least one task"),
        ("[tasks]", "expected at least one task"),
        ("by = [", "expected a TOML file"),
        ("bye = 1", "there is no key 'bye'; did you mean 'by'?"),
        ("by = 3\n[tasks.a]\nlabel = 'click'", "by: expected a list"),
        ("[tasks.a]", "task a: expected a column of labels; add label = ..."),
        ("[tasks.a]\nlabel = 'click'\nscor = 'p'", "task a: there is no key 'scor'; did you mean 'score'?"),
        ("[tasks.a]\nlabel = 1", "label: expected a string, found 1"),
        ("[tasks.a]\nlabel = 'click'\nmetrics = 'auc'", "task a: auc: expected a column of scores"),
        ("[tasks.a]\nlabel = 'click'\nmetrics = [1]", "metrics: expected a string or a list of strings"),
        ("[tasks.a]\nlabel = 'click'\nbits = 'x'", "bits: expected a number"),
        ("[tasks.a]\nlabel = 'click'\nlabels = 'x'", "labels: expected a list"),
        ("[tasks.a]\nlabel = 'click'\nlabels = [0]\nmetrics = ['ctr']", "labels must be a tuple (negative, positive)"),
        ("[tasks.a]\nlabel = 'click'\nscore = 'pctr_b'\nmetrics = ['aucc']", "task a: there is no metric 'aucc'"),
        (
            "[tasks.a]\nlabel = 'click'\nscore = 'pctr_b'\ncorrects = 'all'\nnegative_rate = 0.1",
            "corrects: expected score, rows or both, found 'all'",
        ),
    ],
)
def test_mistakes(fails, log, toml, text, part):
    assert part in fails("eval", log, "--task", toml(text))


def test_a_file_that_is_not_there(fails, log):
    assert fails("eval", log, "--task", "nowhere.toml") == "nowhere.toml: No such file or directory"


class TestFromPython:
    def test_as_one_update(self, log, table):
        metrics = sm.MetricCollection(sm.Task([sm.AUC(), sm.LogLoss()], y_true="click", y_score="pctr_a"))
        arms = sm.Sliced(metrics, by="variant")
        seen: list[int] = []
        found = evaluate(Log(log), metrics, ["variant"], threads=2, watch=lambda p: seen.append(p.rows))
        assert found.overall == metrics.copy().update(table)
        assert found.slices[("variant",)] == arms.update(table)
        assert found.rows == len(table)
        assert found.bundle["overall"] is found.overall
        assert found.bundle["by variant"] is found.slices[("variant",)]
        assert metrics["auc"].state.facts()["rows"] == 0

    def test_what_was_seen_before_does_not_count(self, log, table):
        metrics = sm.MetricCollection(sm.Task(sm.CTR(), y_true="click")).update(table)
        assert evaluate(Log(log), metrics).overall.compute() == metrics.compute()
        assert metrics["ctr"].state.facts()["rows"] == len(table)

    def test_no_column_weighs_rows_unasked(self, write):
        path = write(click=[0, 1], p=[0.1, 0.9], sample_weight=[1.0, 2.0])
        plain = sm.Task(sm.CTR(), y_true="click")
        assert evaluate(Log(path), sm.MetricCollection(plain)).overall.compute() == {"ctr": 0.5}
        both = sm.MetricCollection({"a": plain, "b": sm.Task(sm.CTR(), y_true="click", sample_weight="sample_weight")})
        with pytest.raises(sm.InvalidInputError, match="'sample_weight' is read for another purpose"):
            evaluate(Log(path), both)


class TestTypes:
    def test_every_screen_is_of_metrics_that_there_are(self):
        for kind in TASK_TYPES.values():
            names = kind.default_metrics + kind.decision_metrics + kind.report_metrics
            assert {name.partition("@")[0] for name in names} <= set(sm.extend.METRICS)

    def test_regression(self, run, write):
        y, a, b = [3.0, -0.5, 2.0, 7.0], [2.5, 0.0, 2.0, 8.0], [3.0, 0.5, 2.0, 6.0]
        path = write(y=y, a=a, b=b)
        ran = run(
            "eval",
            path,
            "--task-type",
            "regression",
            "--label",
            "y",
            "--score",
            "a",
            "--score",
            "b",
            "--format",
            "json",
        )
        assert ran.code == 0
        assert ran.values["a/r2"] == sm.R2().update(y, a).compute()
        assert ran.values["b/mae"] == sm.MAE().update(y, b).compute()
        assert "a/median_absolute_error" in ran.values

    def test_ranking(self, run, write, fails):
        table = {"q": ["x"] * 3 + ["y"] * 2, "grade": [0.0, 2.0, 1.0, 1.0, 0.0], "s": [0.9, 0.8, 0.1, 0.7, 0.6]}
        path = write(**table)
        options = ("eval", path, "--task-type", "ranking", "--label", "grade", "--score", "s")
        ran = run(*options, "--query", "q", "--k", "1,3", "--format", "json")
        rows = {"query": table["q"], "y_true": table["grade"], "y_score": table["s"]}
        for k in (1, 3):
            assert ran.values[f"ndcg@{k}"] == sm.NDCG(k=k).update(rows).compute()
        assert "--query" in fails(*options)
        assert "positive integer" in fails(*options, "--query", "q", "--k", "0")

    def test_groups_and_decisions(self, run, write, fails):
        table = {
            "click": [0, 1, 0, 1],
            "s": [0.1, 0.4, 0.8, 0.9],
            "d": [0, 1, 1, 1],
            "user": [1, 1, 2, 2],
            "day": [1, 1, 1, 1],
        }
        path = write(**table)
        base = ("eval", path, "--label", "click", "--format", "json")
        for key in ("user", "user,day"):
            found = run(*base, "--score", "s", "--group", key, "--metrics", "auc,group_auc").values
            assert found == {"auc": 0.75, "group_auc": 1.0}
        found = run(*base, "--score", "s", "--group", "user").values
        assert found["group_auc"] == 1.0
        assert list(found)[:-1] == list(run(*base, "--score", "s").values)
        for more in (("--metrics", "auc"), ("--task-type", "regression")):
            assert "--group user: none of" in fails(
                "eval", path, "--label", "click", "--score", "s", "--group", "user", *more
            )
        assert "--query user: none of" in fails("eval", path, "--label", "click", "--score", "s", "--query", "user")
        found = run(*base, "--pred", "d").values
        assert found["precision"] == 2 / 3
        assert found["recall"] == 1.0

    @pytest.mark.slow
    def test_classes(self, run, write, fails):
        animals = ["cat", "dog", "cow", "dog", "cat"]
        p = np.array([[0.5, 0.3, 0.2], [0.1, 0.8, 0.1], [0.3, 0.4, 0.3], [0.6, 0.3, 0.1], [0.7, 0.2, 0.1]])
        columns = {"p_cow": p[:, 2], "p_dog": p[:, 1], "p_cat": p[:, 0]}  # in another order than the classes
        path = write(animal=animals, guess=["cat", "dog", "dog", "cat", "cat"], number=[0, 1, 2, 1, 0], **columns)
        options = ("eval", path, "--task-type", "multiclass", "--format", "json")
        named = run(*options, "--label", "animal", "--score", "p_*", "--classes", "cat,dog,cow").values
        expected = sm.AUC(num_classes=3).update([0, 1, 2, 1, 0], p)
        assert named["auc"] == expected.compute()
        assert named["accuracy"] == 0.6
        assert named["log_loss"] == sm.LogLoss(num_classes=3).update([0, 1, 2, 1, 0], p).compute()
        hard = run(*options, "--label", "animal", "--pred", "guess").values
        assert hard["accuracy"] == 0.6
        assert "log_loss" not in hard
        wrong = (*options, "--label", "animal", "--score", "p_*")
        assert "pass --classes a,b,c" in fails(*wrong)
        assert "expected 4 scores in each row, as --classes says, found 3" in fails(*wrong, "--classes", "4")
        assert "does not support several classes" in fails(*wrong, "--metrics", "group_auc")
        assert "needs scores of all classes" in fails(*options, "--label", "animal")
        assert "expected the number of classes (2 or more)" in fails(*wrong, "--classes", "1")
        assert "needs one label of 0 or 1 in each row" in fails(*wrong, "--negative-rate", "0.1", "--corrects", "rows")
        assert "multiclass or multilabel" in fails("eval", path, "--label", "number", "--classes", "3")

    def test_tables_by_class(self, run, write):
        path = write(y=["a", "b", "b", "c"], p=["a", "b", "c", "c"])
        out = run(
            "eval", path, "--task-type", "multiclass", "--label", "y", "--pred", "p",
            "--metrics", "accuracy,recall:average=none,confusion_matrix",
        ).out  # fmt: skip
        lines = [line.split() for line in out.splitlines()]
        assert ["class", "recall"] in lines
        assert ["b", "0.500000"] in lines
        assert ["b", "0", "1", "1"] in lines
        many = [f"c{i}" for i in range(40)]
        path = write(y=[*many, "c7", "c7"], p=[*many, "c8", "c8"])
        out = run(
            "eval", path, "--task-type", "multiclass", "--label", "y", "--pred", "p", "--metrics", "confusion_matrix"
        ).out
        assert ["c7", "c8", "2"] in [line.split() for line in out.splitlines()]
        assert "most frequent confusions of 40 classes" in out

    def test_labels(self, run, write, fails):
        y, s = [[1, 0], [0, 1], [1, 1]], [[0.9, 0.2], [0.4, 0.6], [0.3, 0.8]]
        options = ("--task-type", "multilabel", "--format", "json")
        lists = write(y=y, s=s)
        one = run("eval", lists, *options, "--label", "y", "--score", "s", "--classes", "2").values
        assert "the number of labels is unknown" in fails("eval", lists, *options, "--label", "y", "--score", "s")
        wide = write(y_hot=[1, 0, 1], y_new=[0, 1, 1], s_hot=[0.9, 0.4, 0.3], s_new=[0.2, 0.6, 0.8])
        two = run("eval", wide, *options, "--label", "y_*", "--score", "s_*").values
        assert one == two
        assert one["auc"] == sm.AUC(num_labels=2).update(y, s).compute()
        assert one["label_ranking_loss"] == sm.LabelRankingLoss(num_labels=2).update(y, s).compute()
        assert "expected the number of labels" in fails(
            "eval", wide, *options, "--label", "y_*", "--score", "s_*", "--classes", "a,b"
        )
        out = run(
            "eval",
            wide,
            "--task-type",
            "multilabel",
            "--label",
            "y_*",
            "--score",
            "s_*",
            "--metrics",
            "auc:average=none",
        ).out
        assert ["new", "1.000000"] in [line.split() for line in out.splitlines()]

    def test_a_task_file_names_classes(self, run, write, tmp_path):
        path = write(y=["a", "b", "b"], p_a=[0.9, 0.2, 0.6], p_b=[0.1, 0.8, 0.4])
        task = tmp_path / "t.toml"
        task.write_text(
            '[tasks.t]\ntask_type="multiclass"\nlabel="y"\nscore="p_*"\nclasses=["a","b"]\nmetrics=["accuracy"]'
        )
        assert run("eval", path, "--task", task, "--format", "json").values == {"t/accuracy": 2 / 3}
