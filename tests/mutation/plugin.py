"""Pytest plugin: run chosen tests in a chosen order, log each result as it comes, and end a test that hangs.

The study passes everything in environment variables: MUTATION_LOG (the file for results), MUTATION_PICK (a JSON list of
the test IDs to run, in this order; without it all run), MUTATION_TIMES (a JSON object with the usual seconds of tests)
and MUTATION_MEMORY (a limit in bytes).
"""

from __future__ import annotations

import faulthandler
import json
import os
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

PATIENCE = 120.0  # seconds for a test whose usual time is unknown: it may have to compile kernels
SLOWDOWN = 10

_log: Any = None
_times: dict[str, float] = {}


def _read(variable: str) -> Any:
    path = os.environ.get(variable)
    return json.loads(Path(path).read_text()) if path else None


def pytest_configure(config: pytest.Config) -> None:
    global _log
    _times.update(_read("MUTATION_TIMES") or {})
    if memory := int(os.environ.get("MUTATION_MEMORY", "0")):
        resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
    if not hasattr(config, "workerinput"):  # with xdist, only the process that hears from all workers writes
        _log = open(os.environ["MUTATION_LOG"], "a", buffering=1)  # noqa: SIM115


def pytest_unconfigure() -> None:
    if _log is not None:
        _log.close()


def _write(**record: Any) -> None:
    if _log is not None and not _log.closed:
        _log.write(json.dumps(record) + "\n")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    picked = _read("MUTATION_PICK")
    if picked is None:
        return
    place = {test: k for k, test in enumerate(picked)}
    left_out = [i for i in items if i.nodeid not in place]
    items[:] = sorted((i for i in items if i.nodeid in place), key=lambda i: place[i.nodeid])
    config.hook.pytest_deselected(items=left_out)


def pytest_collection_finish(session: pytest.Session) -> None:
    if session.config.option.collectonly:
        for item in session.items:
            _write(test=item.nodeid, outcome="collected")


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.failed:
        _write(test=report.nodeid or "(collection)", outcome="error", message=str(report.longrepr)[-400:])


def pytest_runtest_logstart(nodeid: str) -> None:
    _write(test=nodeid, outcome="started")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[Any]:
    limit = PATIENCE + SLOWDOWN * _times.get(item.nodeid, 0.0)
    with open(os.devnull, "w") as nowhere:
        faulthandler.dump_traceback_later(limit, exit=True, file=nowhere)
        try:
            return (yield)
        finally:
            faulthandler.cancel_dump_traceback_later()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    record: dict[str, Any] = {"test": report.nodeid, "outcome": report.outcome, "when": report.when}
    if report.failed:
        record["message"] = str(report.longrepr)[-400:]
    _write(**record, seconds=round(report.duration, 3))
