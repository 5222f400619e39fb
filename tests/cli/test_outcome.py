"""A pass that counted nothing that was asked for ends in an error, not in NaN."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

BASE = ("--label", "click", "--score", "p", "--metrics", "ctr,auc")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (found := tmp_path / "a.csv").write_text("click,p,country\nyes,0.5,br\nno,0.25,de\nno,0.25,br\n")
    return found


def test_a_label_that_no_row_has(run: Any, fails: Any, path: Path, tmp_path: Path) -> None:
    saved = tmp_path / "a.smet"
    said = fails("eval", path, *BASE, "--pos-label", "Yes", "--save", saved)
    assert said == (
        "--pos-label Yes: no row has this label; column 'click' contains no (2 rows), yes (1 row); did you mean "
        "--pos-label yes?"
    )
    assert not saved.exists()
    assert run("eval", path, *BASE, "--pos-label", "yes").code == 0
    ran = run("eval", path, *BASE, "--pos-label", "yes", "--where", "country=de", "--format", "json")
    assert ran.values["ctr"] == 0.0  # the label is there, in rows that do not count


def test_a_condition_that_no_row_meets(run: Any, fails: Any, path: Path) -> None:
    ask = ("eval", path, *BASE, "--pos-label", "yes")
    assert fails(*ask, "--where", "p>3") == "none of the 3 rows meets --where p>3"
    said = fails(*ask, "--where", "country=BR", "--format", "json")
    assert said == "none of the 3 rows meets --where country=BR; column 'country' contains br (2 rows), de (1 row)"
    assert run(*ask, "--where", "country=br").code == 0


def test_one_task_of_several_without_rows(run: Any, path: Path, tmp_path: Path) -> None:
    task = '[tasks.{0}]\nlabel = "click"\npos_label = "yes"\nscore = "p"\nmetrics = ["ctr"]\nwhere = ["country={0}"]\n'
    (tasks := tmp_path / "tasks.toml").write_text(task.format("br") + task.format("us"))
    ran = run("eval", path, "--task", tasks)
    assert ran.code == 0
    said = "none of the 3 rows meets --where country=us; column 'country' contains br (2 rows), de (1 row)"
    assert said in " ".join(ran.out.split())


@pytest.mark.parametrize(("labels", "label"), [(("true", "false"), "true"), (("2.50", "1.50"), "2.5")])
def test_a_label_that_only_rows_left_out_have(run: Any, tmp_path: Path, labels: Any, label: str) -> None:
    (path := tmp_path / "b.csv").write_text("click,p,seg\n{},0.3,a\n{},0.2,b\n".format(*labels))
    ran = run("eval", path, *BASE[:4], "--metrics", "ctr", "--pos-label", label, "--where", "seg=b", "--format", "json")
    assert (ran.code, ran.err) == (0, "")
    assert ran.values == {"ctr": 0.0}


@pytest.mark.cpu_limit(3)  # a process of its own
def test_labels_of_standard_input(in_process: Any, path: Path) -> None:
    ask = ["eval", "-", *BASE, "--pos-label", "yes", "--where", "country=de", "--format", "json"]
    code = "import os, sys; os.dup2(os.open(sys.argv.pop(1), os.O_RDONLY), 0)\n"
    code += "import streammetrics.cli as cli; cli.main(sys.argv[1:])"
    ran = in_process(code, path, *ask)
    assert ran.returncode == 0, ran.stderr


def test_a_label_of_another_type(fails: Any, tmp_path: Path) -> None:
    (path := tmp_path / "a.csv").write_text("click,p\n2,0.5\n3,0.25\n")
    assert fails("eval", path, *BASE, "--pos-label", "yes") == (
        "--pos-label yes: expected a value of type int64, as in column 'click'; --type click=string reads the column as "
        "text"
    )


def test_an_hour_without_positives(run: Any, tmp_path: Path) -> None:
    for labels, label in (("no", "yes"), ("not_click", "click"), ("class_0", "class_1"), ("0.0", "1.0"), ("0", "1")):
        (path := tmp_path / "a.csv").write_text(f"click,p\n{labels},0.5\n{labels},0.25\n")
        saved = tmp_path / "a.smet"
        ran = run("eval", path, *BASE, "--pos-label", label, "--save", saved, "--format", "json")
        assert ran.code == 0, ran.err
        assert ran.err.startswith(f"--pos-label {label}: no row has this label; column 'click' contains ")
        assert ran.err.count("no row has this label") == 1
        saved.unlink()


def test_columns_of_many_values(run: Any, fails: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from streammetrics.io.parts import LogPart

    monkeypatch.setattr("streammetrics.io.parts.BATCH_ROWS", 2000)
    rows = "".join(f"l{i},0.5,u{i}\n" for i in range(20_000))
    (path := tmp_path / "a.csv").write_text("click,p,u\n" + rows)
    batches, read = LogPart.batches, []

    def count(self: LogPart) -> Any:
        for batch in batches(self):
            read.append(batch.num_rows)
            yield batch

    monkeypatch.setattr(LogPart, "batches", count)
    ask = ("eval", path, *BASE[:4], "--metrics", "ctr", "--format", "json")
    assert fails(*ask, "--where", "u=x", "--pos-label", "l1") == "none of the 20,000 rows meets --where u=x"
    assert sum(read) == 22_000
    assert run(*ask, "--pos-label", "yes").err == "--pos-label yes: no counted row has this label\n"
