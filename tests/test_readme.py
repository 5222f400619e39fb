"""Every block of the README runs; its links lead somewhere."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from page_blocks import blocks, check_sessions, run

import streammetrics as sm
from streammetrics.cli.guide import load_pages

README = Path(__file__).parent.parent / "README.md"
TEXT = README.read_text() if README.exists() else ""
HOME = (Path(sm.__file__).parent / "guide" / "index.md").read_text()


def test_the_training_loop_runs(capsys: pytest.CaptureFixture[str]) -> None:
    ours, theirs = blocks(TEXT, "python")
    names: dict[str, object] = {}
    exec(compile(ours, str(README), "exec"), names)
    printed = capsys.readouterr().out
    assert printed.startswith("{'auc': 0.875, 'average_precision': 0.8333333333333334, 'log_loss': 0.4114"), printed
    pytest.importorskip("torchmetrics")
    exec(compile(theirs, str(README), "exec"), names)
    printed = capsys.readouterr().out
    assert printed.startswith("{'auc': tensor(0.8750), 'average_precision': tensor(0.8333)}"), printed


@pytest.mark.cpu_limit(20)
def test_the_sessions_print_what_they_say() -> None:
    check_sessions(TEXT, "README")


def test_the_session_of_the_home_page_prints_what_it_says() -> None:
    check_sessions(HOME, "index")


def test_the_home_page_has_the_table_of_the_readme() -> None:
    table = TEXT.partition("| method |")[2].partition("\n\n")[0]
    assert table
    assert table in HOME


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A directory after the first command: with a virtual environment and what the demo wrote, of fewer rows."""
    binaries = tmp_path / ".venv" / "bin"
    binaries.mkdir(parents=True)
    for name, command in (("python", ""), ("streammetrics", " -m streammetrics")):
        (binaries / name).write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)}{command} "$@"\n')
        (binaries / name).chmod(0o755)
    (binaries / "activate").write_text(f"PATH={shlex.quote(str(binaries))}:$PATH\n")
    run(["demo", "--rows", "20000"], tmp_path)
    return tmp_path


@pytest.mark.cpu_limit(20)
def test_the_commands_run_as_printed(folder: Path) -> None:
    commands = "".join(blocks(TEXT, "sh")[2:])
    assert commands.count("\nstreammetrics ") == 5
    bash(commands, folder)


@pytest.mark.cpu_limit(10)
def test_the_commands_of_sentences_run_as_printed(tmp_path: Path) -> None:
    commands = set(re.findall(r"`(streammetrics [^`]+)`", TEXT))
    # a page, words of the table of pages, and commands that other tests run
    commands -= {"streammetrics guide PAGE", "streammetrics eval", "streammetrics demo --live", "streammetrics warmup"}
    assert len(commands) >= 4
    for command in commands:
        run(shlex.split(command)[1:], tmp_path)


@pytest.mark.slow
def test_the_live_demo_runs_as_printed(tmp_path: Path) -> None:
    assert "`streammetrics demo --live`" in TEXT
    assert "http://127.0.0.1" in run(["demo", "--live", "--seconds", "1"], tmp_path)


def test_set_up_begins_the_readme() -> None:
    demo, tests = (block.splitlines() for block in blocks(TEXT, "sh")[:2])
    assert len(demo) == len(tests) == 1
    assert demo[0].endswith(".venv/bin/streammetrics demo")
    assert tests[0].endswith(".venv/bin/pytest -n 2")
    assert demo[0].partition(".venv/bin/pip")[0] == tests[0].partition(".venv/bin/pip")[0]


@pytest.mark.parametrize(
    ("ensurepip", "sudo", "printed"),
    [
        (True, True, ""),
        (False, False, "apt-get update\napt-get install -y python3-venv\n"),
        (False, True, "sudo\napt-get update\napt-get install -y python3-venv\n"),
    ],
)
def test_set_up_calls_apt_and_sudo_only_where_they_are_needed(
    tmp_path: Path, ensurepip: bool, sudo: bool, printed: str
) -> None:
    """`.ci/fresh` runs the commands on minimal systems; here, scripts stand for the programs of a system."""
    programs = {"python3": "exit 0" if ensurepip else 'test "$1" != -c', "sh": 'exec /bin/sh "$@"'}
    programs["apt-get"] = 'echo apt-get "$@"'
    if sudo:
        programs["sudo"] = 'echo sudo; exec "$@"'
    for name, script in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    set_up = blocks(TEXT, "sh")[0].partition(" && .venv/bin/pip")[0]
    assert bash(set_up, tmp_path, PATH=str(tmp_path)) == printed


def bash(commands: str, folder: Path, **environment: str) -> str:
    done = subprocess.run(
        ["/bin/bash", "-ec", commands],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, f"{commands}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_links_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)]+)\)", TEXT)
    assert len(links) >= 9
    for link in links:
        assert (README.parent / link).is_file() or (Path(sm.__file__).parent.parent / link).is_file(), link


def test_every_page_of_the_guide_is_linked() -> None:
    families = set(re.findall(r"\]\((\w+)\.md\)", load_pages()["metrics"]))  # which are linked by their index
    assert set(re.findall(r"guide/(\w+)\.md", TEXT)) | families == set(load_pages())


def test_it_is_short() -> None:
    assert len(TEXT.splitlines()) <= 150
