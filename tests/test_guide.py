"""Every block of the guide runs, its tables are those of the code, and its page is what the command prints."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from types import ModuleType
from typing import Any

import metric_pages
import pytest
from page_blocks import blocks, check_sessions, run

import streammetrics as sm
from streammetrics.cli.guide import load_pages
from streammetrics.cli.tasks import TaskSpec
from streammetrics.io.demo import write_demo_log
from streammetrics.metrics.families import FAMILIES

PAGES = load_pages()
PROGRAM = "train.py"
"""The file in which the guide tells readers to save a program that a shell line then runs."""


def sections(text: str) -> list[tuple[str, str]]:
    """The parts of a page, by heading: each is a program of its own."""
    found = re.split(r"^## (.*)$", text, flags=re.M)
    return [("", found[0]), *zip(found[1::2], found[2::2], strict=True)]


def missing(text: str) -> list[str]:
    """The packages that a section names in `<!-- needs: ... -->` and that are not installed."""
    named = re.findall(r"<!-- needs: ([\w ,.]+) -->", text)
    words = [word for line in named for word in re.split(r"[ ,]+", line) if word]
    return [word for word in words if importlib.util.find_spec(word.split(".")[0]) is None]


def parts(*languages: str) -> list[Any]:
    return [
        pytest.param(text, id=f"{page}: {heading or 'beginning'}")
        for page, whole in PAGES.items()
        for heading, text in sections(whole)
        if any(blocks(text, language) for language in languages)
    ]


def skip_without(text: str) -> None:
    if absent := missing(text):
        pytest.skip(f"{', '.join(absent)} is not installed")


@pytest.mark.slow
@pytest.mark.parametrize("page", [p for p, whole in PAGES.items() if blocks(whole, "pycon")])
def test_sessions_print_what_they_say(page: str) -> None:
    check_sessions(PAGES[page], page)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with what the pages work on: a log, and states of other days and workers."""
    write_demo_log(tmp_path / "log", rows=20_000)
    metrics = sm.MetricCollection(sm.AUC(), sm.Calibration())
    (tmp_path / "parts").mkdir()
    for i in range(3):
        sm.save(metrics.copy().update([0, 1, 1], [0.1, 0.2, i / 3]), tmp_path / "parts" / f"{i}.smet")
    (tmp_path / "tasks.toml").write_text("\n".join(blocks(PAGES["logs"], "toml")))
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("text", parts("python"))
def test_programs_run(text: str, folder: Path) -> None:
    skip_without(text)
    program = "\n".join(blocks(text, "python"))
    lines = [line for block in blocks(text, "sh") for line in block.splitlines() if PROGRAM in line]
    if not lines:
        run_program([sys.executable, "-c", program], program, folder)
    (folder / PROGRAM).write_text(program)
    for line in lines:
        run_program(["bash", "-c", line], program, folder)


def run_program(command: list[str], program: str, folder: Path) -> None:
    """Run a program, which prints what the comment after each `print(...)` says."""
    # The programs of this environment, such as python, torchrun and mpirun, come first.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    if "mpirun" in command[-1] and shutil.which("mpirun", path=path) is None:
        pytest.skip("mpirun is not installed")
    # Open MPI refuses to run as root without both variables.
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    environment = os.environ | root | {"PATH": path, "CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, f"{command[-1]}\n{done.stderr[-4000:]}"
    for output in re.findall(r"^ *print\(.*\)  # (.+)$", program, flags=re.M):
        assert output in done.stdout, f"{command[-1]} does not print {output!r}:\n{done.stdout}"


@pytest.mark.slow
@pytest.mark.parametrize("text", parts("sh"))
def test_commands_run(text: str, folder: Path) -> None:
    skip_without(text)
    lines = [line for block in blocks(text, "sh") for line in block.replace("\\\n", "").splitlines()]
    for line in lines:
        words = shlex.split(line, comments=True)
        if words[:1] != ["streammetrics"]:
            continue
        if not (folder / "today.smet").exists() and "today.smet" in words and "--save" not in words:
            run(
                [
                    "eval",
                    "log/",
                    "--label",
                    "click",
                    "--score",
                    "pctr_a",
                    "--by",
                    "country,device",
                    "--save",
                    "today.smet",
                ],
                folder,
            )
        if "yesterday.smet" in words:
            (folder / "yesterday.smet").write_bytes((folder / "today.smet").read_bytes())
        if words[1] == "show" and not (folder / words[2]).exists():
            (folder / words[2]).write_bytes((folder / "today.smet").read_bytes())
        run(words[1:], folder)


def test_every_page_begins_with_its_title_and_what_it_is_about() -> None:
    for page, text in PAGES.items():
        title, _, about, *_ = text.splitlines()
        assert title.startswith("# "), page
        assert about[0].isupper(), page
        assert about.endswith("."), page


def test_pages_that_are_named_exist() -> None:
    for page, text in PAGES.items():
        for name in re.findall(r"streammetrics guide (\w[\w-]*)", text):
            assert name in PAGES, f"{page} names {name}"


def test_what_stands_for_other_libraries_can_be_made() -> None:
    """Every `sm....` of the tables is something that the library has, with settings that it takes."""
    log = {"click": [0, 1], "pctr": [0.1, 0.2]}
    found = {code for text in PAGES.values() for code in re.findall(r"`(sm\.[A-Z]\w+\([^`]*\)|sm\.[A-Z]\w+)`", text)}
    assert len(found) > 15
    for code in sorted(found - {"sm.MetricCollection({...})", "sm.NE"}):  # the latter is asked, not answered
        if "..." not in code and "metrics" not in code:
            eval(code, {"sm": sm, "C": 3, "log": log})


def test_words_that_stand_for_metrics_are_metrics() -> None:
    for name in re.findall(r"\*\*([A-Z]\w+)\*\*", PAGES["choose"]):
        assert hasattr(sm, name) or name in {"Wait", "Replace"}, name


def rows_of(page: str, table: str) -> list[str]:
    """The first column of a table between two marks."""
    inside = re.search(rf"<!-- {table} -->\n(.*?)<!-- /{table} -->", PAGES[page], flags=re.S)
    assert inside is not None
    return [word for line in inside[1].splitlines()[2:] for word in re.findall(r"`(\w+)`", line.split("|")[1])]


def test_the_keys_of_task_files_are_told() -> None:
    assert set(rows_of("logs", "keys")) == {f.name for f in fields(TaskSpec)} - {"report"}


@pytest.mark.slow
def test_the_fields_of_records_are_told(folder: Path) -> None:
    import json

    options = ["--label", "click", "--score", "pctr_a", "--by", "country", "--limit", "2", "--format", "json"]
    records = json.loads(run(["eval", "log/", *options], folder))["values"]
    assert rows_of("logs", "record") == list(records[0])
    assert all(list(record) == list(records[0]) for record in records)


@pytest.mark.parametrize("page", metric_pages.names())
def test_the_pages_of_metrics_are_the_registry(page: str) -> None:
    assert PAGES[page] == metric_pages.pages()[page], "write them anew: python tests/test_guide.py"


def test_every_metric_is_on_one_page() -> None:
    own = sorted(m.__name__ for m in sm.extend.METRICS.values() if m.__module__.startswith("streammetrics."))
    told = [rows for family in FAMILIES for rows in re.findall(r"^\| `(\w+)` \| .* \| .* \|$", page_of(family), re.M)]
    assert sorted(told) == own


def page_of(family: ModuleType) -> str:
    return PAGES[metric_pages.name_of(family)]


@pytest.mark.slow
def test_the_command_prints_a_page(tmp_path: Path) -> None:
    assert run(["guide", "streaming"], tmp_path) == PAGES["streaming"]


@pytest.mark.slow
def test_the_command_lists_the_pages(tmp_path: Path) -> None:
    listed = run(["guide"], tmp_path)
    for name, text in PAGES.items():
        assert re.search(rf"^{name} +{re.escape(text.splitlines()[0][2:])}", listed, flags=re.M), name


@pytest.mark.slow
def test_a_page_that_is_not_there(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "streammetrics", "guide", "trainin"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2
    assert "did you mean 'training'" in done.stderr


def test_programs_are_python() -> None:
    for text in PAGES.values():
        for block in blocks(text, "python"):
            ast.parse(block)


if __name__ == "__main__":
    metric_pages.write()
