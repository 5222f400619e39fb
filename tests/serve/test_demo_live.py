"""The first command shows a living page: all parts arrive, all of them are shown, and it ends when it is asked to."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import streammetrics as sm
from streammetrics.cli import live
from streammetrics.cli.live import LiveDemo
from streammetrics.serve.evaluation.evaluation import Evaluation
from streammetrics.serve.experiment_simulation import Simulation
from streammetrics.serve.store import open_store

SMALL = Simulation(days=1, users=100, rows=100, countries=1, sources=("web",))


COMMAND = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job of a shell starts with SIGINT ignored
from streammetrics.cli import main
main()
"""


@contextmanager
def started(*words: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The command, and the address that it prints first."""
    command = [sys.executable, "-W", "error", "-c", COMMAND, "demo", "--live", *words]
    running = subprocess.Popen(
        command, env=os.environ | {"PYTHONUNBUFFERED": "1"}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert running.stdout is not None
    try:
        yield running, running.stdout.readline().strip()
    finally:
        running.kill()
        running.communicate()


@pytest.mark.slow
def test_everything_posted_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with open_store(tmp_path / "live.db") as store:
        demo = LiveDemo(SMALL, store, hours_a_second=1e6)
        demo.run(once=True)
        kept = store.evaluation(SMALL.id)
        assert kept is not None
    found = Evaluation.from_json(kept)
    parts = [SMALL.part(source, hour) for source in SMALL.sources for hour in range(SMALL.start, SMALL.end)]
    assert found.parts == len(parts) == 24
    assert found.rows == 2400
    assert found.digest == sm.merge(parts).digest()
    said = capsys.readouterr().out
    assert f"/experiments/{SMALL.id}" in said
    assert "No verdict" in said


@pytest.mark.slow
def test_the_command_says_where_and_the_page_is_there_until_it_is_interrupted() -> None:
    with started() as (running, url):
        with urllib.request.urlopen(url, timeout=30) as answer:
            assert "A new ranker (simulated)" in answer.read().decode()
        running.send_signal(signal.SIGINT)
        assert running.wait(timeout=30) == 130
        assert running.stderr is not None
        assert "Traceback" not in running.stderr.read()


@pytest.mark.slow
def test_it_ends_after_so_many_seconds() -> None:
    with started("--seconds", "0.5") as (running, url):
        assert url.startswith("http://127.0.0.1:")
        assert running.wait(timeout=60) == 0


def test_what_a_server_that_ends_does_not_take_is_not_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_store(tmp_path / "live.db") as store:
        demo = LiveDemo(SMALL, store)

        def too_late(*given: Any, **more: Any) -> None:
            demo.end()
            raise sm.PushError("too late")

        monkeypatch.setattr(live, "push", too_late)
        demo.run()
    assert "too late" not in capsys.readouterr().out


@pytest.mark.slow
def test_a_port_that_is_taken_is_said() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        with started("--port", port) as (running, _):
            assert running.wait(timeout=30) == 2
            assert running.stderr is not None
            said = running.stderr.read()
            assert f"port {port}: Address already in use; choose another --port (0 selects a free one)" in said
