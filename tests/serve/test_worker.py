"""A process that does what it is asked: errors, its end, that of this one, and what comes after."""

from __future__ import annotations

import inspect
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import streammetrics as sm
from streammetrics import errors
from streammetrics.serve.api.decoder import NoRoomError
from streammetrics.serve.api.worker import EndedError, LateError, WorkerProcess
from streammetrics.serve.store import StoreDownError, StoreFullError


class Clerk:
    """What is asked of the other process."""

    def __init__(self, fails: bool = False) -> None:
        self.asked = 0
        if fails:
            raise StoreDownError("it is away")

    def count(self) -> int:
        """How often it was asked."""
        self.asked += 1
        return self.asked

    def rest(self, seconds: float) -> float:
        """Take its time."""
        time.sleep(seconds)
        return seconds

    def nice(self) -> int:
        """How much it steps back."""
        return os.nice(0)

    def fail(self, error: Exception) -> None:
        """Raise."""
        raise error

    def fail_strangely(self) -> None:
        """Raise what does not come through a pipe."""

        class StrangeError(Exception):
            pass

        raise StrangeError("of here")

    def close(self, path: str = "") -> None:
        """Say that it was asked to."""


@pytest.fixture(scope="module")
def clerk() -> Iterator[WorkerProcess]:
    worker = WorkerProcess("counts", Clerk, nice=1)
    yield worker
    worker.end()


def killed(worker: WorkerProcess) -> None:
    assert worker.pid is not None
    os.kill(worker.pid, signal.SIGKILL)


def gone(pid: int) -> bool:
    """Whether a process has ended, within seconds."""
    for _ in range(500):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state in "ZX":  # nobody has asked what became of it
            return True
        time.sleep(0.02)
    return False


def test_it_answers_and_remembers(clerk: WorkerProcess) -> None:
    clerk.start()
    pid, before = clerk.pid, clerk.call("count")
    assert [clerk.call("count") for _ in range(3)] == [before + 1, before + 2, before + 3]
    assert (clerk.pid, clerk.call("nice")) == (pid, os.nice(0) + 1)


def test_signals_are_for_the_server(clerk: WorkerProcess) -> None:
    before = clerk.call("count")
    for one in (signal.SIGINT, signal.SIGTERM):
        assert clerk.pid is not None
        os.kill(clerk.pid, one)
    assert clerk.call("count") == before + 1


def test_errors_come_as_they_are(clerk: WorkerProcess) -> None:
    kinds = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, Exception)]
    others = [StoreDownError, StoreFullError, NoRoomError, EndedError, LateError, MemoryError, KeyError]
    before = clerk.call("count")
    for kind in [*kinds, *others]:
        given = kind("a", "b", "c") if kind is sm.PartitionConflictError else kind("what is wrong")
        with pytest.raises(kind) as raised:
            clerk.call("fail", given)
        assert type(raised.value) is kind
        assert str(raised.value) == str(given)
    with pytest.raises(sm.StreamMetricsError, match="StrangeError: of here"):
        clerk.call("fail_strangely")
    assert clerk.call("count") == before + 1


def test_where_an_error_was_raised_is_noted(clerk: WorkerProcess) -> None:
    with pytest.raises(KeyError) as raised:
        clerk.call("fail", KeyError("x"))
    assert "in fail" in raised.value.__notes__[0]


@pytest.mark.slow
def test_one_that_is_killed_while_it_works(clerk: WorkerProcess) -> None:
    clerk.start()
    timer = threading.Timer(0.3, killed, [clerk])
    timer.start()
    with pytest.raises(EndedError, match="the process that counts has ended unexpectedly; a new process is started"):
        clerk.call("rest", 60)
    assert clerk.call("count") == 1


@pytest.mark.slow
def test_one_that_is_killed_while_it_rests_is_not_missed(clerk: WorkerProcess) -> None:
    clerk.start()
    killed(clerk)
    assert clerk._child is not None
    clerk._child.process.join(10)
    assert clerk.call("count") == 1


@pytest.mark.slow
def test_one_that_takes_too_long_is_ended(clerk: WorkerProcess) -> None:
    assert clerk.call("rest", 0.01, seconds=5.0) == 0.01
    pid = clerk.pid or 0
    with pytest.raises(LateError, match=r"longer than 0.1 s"):
        clerk.call("rest", 60, seconds=0.1)
    assert gone(pid)
    assert clerk.call("count") == 1


@pytest.mark.slow
def test_one_that_cannot_begin_says_why() -> None:
    worker = WorkerProcess("counts", Clerk, True)
    for _ in range(2):
        with pytest.raises(StoreDownError, match="it is away"):
            worker.call("count")
        assert worker.pid is None


@pytest.mark.slow
def test_it_is_ended_whatever_it_does() -> None:
    worker, found = WorkerProcess("counts", Clerk), list[Any]()

    def ask() -> None:
        try:
            worker.call("rest", 60)
        except EndedError as error:
            found.append(error)

    worker.start()
    pid, asking = worker.pid or 0, threading.Thread(target=ask)
    asking.start()
    time.sleep(0.2)
    worker.end()
    asking.join(10)
    assert (len(found), worker.pid, gone(pid)) == (1, None, True)
    worker.end()
    worker.close("close")  # of none, nothing is asked


PARENT = """
import sys, threading, time
from streammetrics.serve.api.worker import WorkerProcess
worker = WorkerProcess("waits", {made})
worker.start()
print(worker.pid, flush=True)
{then}
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("made", "then"),
    [
        ("threading.Event", "worker.call('wait', 600)"),  # at work
        ("threading.Event", "time.sleep(600)"),  # at rest
    ],
)
def test_it_ends_with_a_parent_that_is_killed(made: str, then: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT.format(made=made, then=then)], stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert Path(f"/proc/{pid}").exists()
        parent.kill()
    assert gone(pid)


@pytest.mark.slow
def test_it_ends_with_a_parent_that_forgot_it() -> None:
    code = PARENT.format(made="threading.Event", then="")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == ""
    assert gone(int(done.stdout))


@pytest.mark.slow
def test_who_is_in_a_hurry_ends_what_is_being_done() -> None:
    worker, ended = WorkerProcess("counts", Clerk), []

    def wait() -> None:
        try:
            worker.call("rest", 600.0)
        except EndedError as error:
            ended.append(error)

    worker.start()
    asking = threading.Thread(target=wait)
    asking.start()
    time.sleep(0.1)
    began = time.monotonic()
    worker.end_after(0.2)
    worker.close("close")
    asking.join()
    assert len(ended) == 1
    assert time.monotonic() - began < 30
    assert worker.pid is None


@pytest.mark.slow
def test_a_hurry_is_over_when_it_is_closed(clerk: WorkerProcess) -> None:
    worker = WorkerProcess("counts", Clerk)
    worker.start()
    worker.end_after(0.3)
    worker.close("close")
    worker.start()
    time.sleep(0.6)
    assert worker.call("count") == 1
    worker.end()
