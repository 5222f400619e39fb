"""Every block of the README runs; its links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from page_blocks import blocks, check_sessions

import streammetrics as sm
from streammetrics.cli.guide import pages

README = Path(__file__).parent.parent / "README.md"
TEXT = README.read_text() if README.exists() else ""


def test_the_first_lines_of_code_run(capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = blocks(TEXT, "python")
    exec(compile(block, str(README), "exec"), {})
    printed = capsys.readouterr().out
    assert printed.startswith("{'auc': 0.875, 'log_loss': 0.4114"), printed


def test_the_sessions_print_what_they_say() -> None:
    check_sessions(TEXT, "README")


@pytest.mark.cpu_limit(10)
def test_the_commands_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process, which costs less; `.ci/fresh` runs them as a user does."""
    from streammetrics.cli import main
    from streammetrics.io.demo import write_demo_log

    monkeypatch.chdir(tmp_path)
    write_demo_log(tmp_path / "log", rows=2_000)
    commands = [
        line for block in blocks(TEXT, "sh") for line in block.splitlines() if line.startswith("streammetrics ")
    ]
    assert len(commands) == 3
    for command in commands:
        words = [w.strip("'\"") for w in command.split()][1:]
        with pytest.raises(SystemExit) as stop:
            main(words)
        assert stop.value.code == 0, command
        if words[0] == "eval":
            (tmp_path / "yesterday.smet").write_bytes((tmp_path / "today.smet").read_bytes())


def test_the_installation_commands_are_those_that_ci_runs() -> None:
    install = [line for block in blocks(TEXT, "sh") for line in block.splitlines() if "venv" in line]
    assert len(install) == 2
    assert install[0].endswith("/streammetrics demo")
    assert re.search(r"\.venv/bin/pytest\S*( \S+)*$", install[1])


def test_links_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)]+)\)", TEXT)
    assert len(links) >= 9
    for link in links:
        assert (README.parent / link).is_file() or (Path(sm.__file__).parent.parent / link).is_file(), link


def test_every_page_of_the_guide_is_linked() -> None:
    families = set(re.findall(r"\]\((\w+)\.md\)", pages()["metrics"]))  # which are linked by their index
    assert set(re.findall(r"guide/(\w+)\.md", TEXT)) | families == set(pages())


def test_it_is_short() -> None:
    assert len(TEXT.splitlines()) <= 120
