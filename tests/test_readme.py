"""Every block of the README runs; its tables and figures are those of the code."""

from __future__ import annotations

import doctest
import re
import subprocess
import sys
from pathlib import Path

import pytest

import streammetrics as sm

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


def test_the_tour_prints_what_it_says() -> None:
    source = "\n".join(blocks("pycon"))
    test = doctest.DocTestParser().get_doctest(source, {}, "README", str(README), 0)
    report: list[str] = []
    try:
        failed = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=report.append).failed
    finally:
        sm.METRICS.pop("readme.odds", None)
    assert not failed, "".join(report)


def test_the_commands_run(tmp_path: Path) -> None:
    from streammetrics.io.demo import write_demo_log

    write_demo_log(tmp_path / "log", rows=20_000)
    commands = [line for block in blocks("sh") for line in block.splitlines() if line.startswith("streammetrics ")]
    assert len(commands) >= 4
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


def test_the_metric_table_is_the_registry() -> None:
    inside = re.search(r"<!-- metrics -->\n(.*?)<!-- /metrics -->", TEXT, flags=re.S)
    assert inside is not None
    assert inside.group(1) == metric_table(), "write it anew: python -m tests.test_readme"


def metric_table() -> str:
    """The rows of the README's metric table."""
    own = {t: m for t, m in sm.METRICS.items() if m.__module__.startswith("streammetrics.")}
    order = sorted(own.values(), key=lambda m: (m.__module__ != "streammetrics.metrics.scores", m.__module__, m.tag))
    return "| metric | formula | bound | state |\n|---|---|---|---|\n" + "".join(
        f"| `{m.__name__}` | {m.formula.replace('|', chr(92) + '|')} | {m.bound} | {m(**m.example).make_state().tag} |\n"
        for m in order
    )


if __name__ == "__main__":
    rows = metric_table()
    README.write_text(
        re.sub(r"(<!-- metrics -->\n).*?(<!-- /metrics -->)", lambda m: m[1] + rows + m[2], TEXT, flags=re.S)
    )
