"""What runs the blocks of a page: of the README and of the guide."""

from __future__ import annotations

import doctest
import re
import subprocess
import sys
from pathlib import Path

import streammetrics as sm


def blocks(text: str, language: str) -> list[str]:
    """The blocks of one language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.M | re.S)


def check_sessions(text: str, name: str) -> None:
    """All sessions of a page, one after the other, print what they say; metrics that they define are forgotten."""
    test = doctest.DocTestParser().get_doctest("\n".join(blocks(text, "pycon")), {}, name, name, 0)
    report: list[str] = []
    before = set(sm.extend.METRICS)
    try:
        failed = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=report.append).failed
    finally:
        for tag in set(sm.extend.METRICS) - before:
            sm.extend.METRICS.pop(tag)
    assert not failed, "".join(report)


def run(words: list[str], folder: Path) -> str:
    """Run the command line as a user does; return what it prints."""
    command = [sys.executable, "-m", "streammetrics", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
    return done.stdout
