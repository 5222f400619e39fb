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
        "--pos-label Yes: no row has this label; click holds no (2 rows), yes (1 row); did you mean --pos-label yes?"
    )
    assert not saved.exists()
    assert "no row has this label; click holds" in fails("eval", path, *BASE, "--pos-label", "7")
    assert run("eval", path, *BASE, "--pos-label", "yes").code == 0
    ran = run("eval", path, *BASE, "--pos-label", "yes", "--where", "country=de", "--format", "json")
    assert ran.values["ctr"] == 0.0  # the label is there, in rows that do not count


def test_a_condition_that_no_row_meets(run: Any, fails: Any, path: Path) -> None:
    ask = ("eval", path, *BASE, "--pos-label", "yes")
    assert fails(*ask, "--where", "p>3") == "no row of 3 meets --where p>3"
    said = fails(*ask, "--where", "country=BR", "--format", "json")
    assert said == "no row of 3 meets --where country=BR; country holds br (2 rows), de (1 row)"
    assert run(*ask, "--where", "country=br").code == 0


def test_one_task_of_several_without_rows(run: Any, path: Path, tmp_path: Path) -> None:
    task = '[tasks.{0}]\nlabel = "click"\npos_label = "yes"\nscore = "p"\nmetrics = ["ctr"]\nwhere = ["country={0}"]\n'
    (tasks := tmp_path / "tasks.toml").write_text(task.format("br") + task.format("us"))
    ran = run("eval", path, "--task", tasks)
    assert ran.code == 0
    assert "no row of 3 meets --where country=us; country holds br (2 rows), de (1 row)" in " ".join(ran.out.split())
