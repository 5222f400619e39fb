"""Every block of the README runs; its links lead somewhere."""

from __future__ import annotations

import doctest
import re
import subprocess
import sys
from pathlib import Path

import pytest

import streammetrics as sm
from streammetrics.cli.guide import pages

README = Path(__file__).parent.parent / "README.md"
TEXT = README.read_text() if README.exists() else ""


def blocks(language: str) -> list[str]:
    """The README's blocks of one language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", TEXT, flags=re.M | re.S)


def test_the_first_lines_of_code_run(capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = blocks("python")
    exec(compile(block, str(README), "exec"), {})
    printed = capsys.readouterr().out
    assert printed.startswith("{'auc': 0.875, 'log_loss': 0.4114"), printed


def test_the_sessions_print_what_they_say() -> None:
    source = "\n".join(blocks("pycon"))
    test = doctest.DocTestParser().get_doctest(source, {}, "README", str(README), 0)
    report: list[str] = []
    failed = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=report.append).failed
    assert not failed, "".join(report)


def test_the_commands_run(tmp_path: Path) -> None:
    from streammetrics.io.demo import write_demo_log

    write_demo_log(tmp_path / "log", rows=20_000)
    commands = [line for block in blocks("sh") for line in block.splitlines() if line.startswith("streammetrics ")]
    assert len(commands) == 3
    for command in commands:
        words = [w.strip("'\"") for w in command.split()][1:]
        run(words, tmp_path)
        if words[0] == "eval":
            (tmp_path / "yesterday.smet").write_bytes((tmp_path / "today.smet").read_bytes())


def run(words: list[str], folder: Path) -> None:
    """Run the command line as a user does."""
    done = subprocess.run([sys.executable, "-m", "streammetrics", *words], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"


def test_the_installation_commands_are_those_that_ci_runs() -> None:
    install = [line for block in blocks("sh") for line in block.splitlines() if "venv" in line]
    assert len(install) == 2
    assert install[0].endswith("/streammetrics demo")
    assert re.search(r"\.venv/bin/pytest\S*( \S+)*$", install[1])


def test_links_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)]+)\)", TEXT)
    assert len(links) >= 9
    for link in links:
        assert (README.parent / link).is_file() or (Path(sm.__file__).parent.parent / link).is_file(), link


def test_every_page_of_the_guide_is_linked() -> None:
    assert set(re.findall(r"guide/(\w+)\.md", TEXT)) == set(pages())


def test_it_is_short() -> None:
    assert len(TEXT.splitlines()) <= 120
