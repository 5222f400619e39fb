"""The option `--no-new-skips`: a run fails if it skips a test for a reason that allowed_skips.txt does not list."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ALLOWED = Path(__file__).with_name("allowed_skips.txt")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--no-new-skips", action="store_true", help=f"Fail if a test is skipped for a reason that {ALLOWED.name} lacks."
    )


def pytest_configure(config: pytest.Config) -> None:
    # the workers of pytest-xdist send their reports to the process that started them
    if config.getoption("--no-new-skips") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(SkipCheck(read_allowed(ALLOWED.read_text())), "skip-check")


def read_allowed(text: str) -> list[re.Pattern[str]]:
    """Read one regular expression a line; blank lines and lines that begin with # are comments."""
    lines = (line.strip() for line in text.splitlines())
    return [re.compile(line) for line in lines if line and not line.startswith("#")]


class SkipCheck:
    """Collects the skips of a run whose reasons are not allowed.

    Parameters
    ----------
    allowed : list of re.Pattern
        One of them must match the whole reason of a skip.
    """

    def __init__(self, allowed: list[re.Pattern[str]]) -> None:
        self.allowed = allowed
        self.refused: dict[str, list[str]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._check(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._check(report)

    def _check(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        # an expected failure is reported as a skip too, with its reason elsewhere
        if not report.skipped or hasattr(report, "wasxfail"):
            return
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reason = reason.removeprefix("Skipped: ")
        if not any(pattern.fullmatch(reason) for pattern in self.allowed):
            self.refused.setdefault(reason, []).append(report.nodeid)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.refused and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self.refused:
            return
        terminalreporter.section("skips that are not allowed", red=True)
        for reason, tests in sorted(self.refused.items()):
            more = f" and {len(tests) - 1} more" if len(tests) > 1 else ""
            terminalreporter.line(f"{tests[0]}{more}: {reason}")
        terminalreporter.line(f"Install what these tests need, or add the reason to tests/{ALLOWED.name} and say why.")
