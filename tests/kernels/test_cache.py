"""Compiled kernels on disk: what two processes have mixed up there is not taken for what it is not."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from streammetrics.kernels import reduce

CODE = """
import numpy as np
from streammetrics.kernels import reduce

for dtype in (np.uint32, np.uint64):
    values = np.arange(5, dtype=dtype)
    out = np.zeros(5, dtype)
    reduce.spread(np.arange(5, dtype=np.uint32), values, out)
    assert (out == values).all()
"""


def test_files_that_two_processes_have_mixed_up(tmp_path: Path) -> None:
    """Processes that compile one kernel for two dtypes at once may give both the same file."""
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}

    def run() -> None:
        done = subprocess.run(
            [sys.executable, "-c", CODE], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr

    run()
    one, two = sorted(tmp_path.rglob("reduce.spread*.nbc"))
    mixed = one.read_bytes()
    one.write_bytes(two.read_bytes())
    two.write_bytes(mixed)
    run()


TOGETHER = """
import sys, time
import numpy as np
from streammetrics.kernels import reduce

while time.time() < float(sys.argv[1]):  # all at the same moment
    pass
values = np.arange(5, dtype=np.uint32)
reduce.spread(np.arange(5, dtype=np.uint32), values, np.zeros(5, np.uint32))
print(sum(reduce.spread.dispatcher.stats.cache_misses.values()))
"""


def test_one_process_compiles_for_all(tmp_path: Path) -> None:
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    start = str(time.time() + 5)
    running = [
        subprocess.Popen([sys.executable, "-c", TOGETHER, start], env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    assert sorted(process.communicate(timeout=300)[0].strip() for process in running) == ["0", "0", "1"]
    assert all(process.returncode == 0 for process in running)


BUSY = """
import fcntl
import numpy as np
from streammetrics.kernels import _jit, reduce

def call():
    reduce.spread(np.arange(5, dtype=np.uint32), np.arange(5, dtype=np.uint32), np.zeros(5, np.uint32))

other = reduce.spread._lock_file()  # as another process holds it while it compiles
fcntl.flock(other, fcntl.LOCK_EX)
with _jit.impatient():
    try:
        call()
    except _jit.BusyError as error:
        print(error)
    fcntl.flock(other, fcntl.LOCK_UN)
    call()
fcntl.flock(other, fcntl.LOCK_EX)
with _jit.impatient():
    call()  # what it has needs no lock
print(sum(reduce.spread.dispatcher.stats.cache_misses.values()))
"""


def test_who_has_other_work_does_not_wait(tmp_path: Path) -> None:
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", BUSY], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["spread", "1"]


STOPPED = """
import fcntl
import numpy as np
from streammetrics.kernels import _jit, reduce

_jit.PATIENCE = 1.0
fcntl.flock(other := reduce.spread._lock_file(), fcntl.LOCK_EX)  # and nothing more comes of it
reduce.spread(np.arange(5, dtype=np.uint32), np.arange(5, dtype=np.uint32), np.zeros(5, np.uint32))
print(sum(reduce.spread.dispatcher.stats.cache_misses.values()))
"""


def test_a_process_that_stands_still_holds_nobody_up(tmp_path: Path) -> None:
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", STOPPED]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["1"]


FORKED = """
import os, signal, threading
import numpy as np
from streammetrics.kernels import reduce

def call():
    reduce.spread(np.arange(5, dtype=np.uint32), np.arange(5, dtype=np.uint32), np.zeros(5, np.uint32))

def interrupt(*_):
    if threading.active_count() > 1:  # it is being compiled
        signal.setitimer(signal.ITIMER_REAL, 0)
        raise KeyboardInterrupt

signal.signal(signal.SIGALRM, interrupt)
signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
try:
    call()
except KeyboardInterrupt:
    print(*[t.name for t in threading.enumerate()][1:], sep="")
if (child := os.fork()) == 0:
    call()  # what was being compiled is there
    os._exit(int(sum(reduce.spread.dispatcher.stats.cache_misses.values()) != 1))
print(os.waitpid(child, 0)[1])
"""


def test_a_fork_while_a_kernel_is_compiled(tmp_path: Path) -> None:
    """It waits: a child would have numba's locks as they are, and nobody who releases them."""
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", FORKED]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines() == ["streammetrics: undivided", "0"]


ONCE = """
import sys
import numpy as np
from streammetrics.kernels import _jit

_jit._sources = lambda found=_jit._sources(): found + sys.argv[1]
from streammetrics.kernels import reduce

values = np.arange(5, dtype=np.uint32)
reduce.spread(np.arange(5, dtype=np.uint32), values, np.zeros(5, np.uint32))
print(sum(reduce.spread.dispatcher.stats.cache_misses.values()))
"""


def test_steps_of_another_release_are_not_run(tmp_path: Path) -> None:
    """A kernel has steps in other files, which may change while its own does not."""

    def misses(changed: str) -> int:
        command = [sys.executable, "-c", ONCE, changed]
        environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
        return int(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)

    assert [misses(""), misses(""), misses("changed"), misses("changed")] == [1, 0, 1, 0]


def test_a_call_while_another_thread_compiles_is_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is called with arrays that may be written is found by conversion, unless numba may compile just then."""
    into = np.zeros(5, np.uint32)
    reduce.spread(np.arange(5, dtype=np.uint32), np.arange(5, dtype=np.uint32), into)
    dispatcher, calls = reduce.spread.dispatcher, []

    def compiling(*arguments: object) -> object:
        calls.append(arguments)
        if len(calls) == 1:
            raise RuntimeError("compilation disabled")  # as numba says when it was allowed to a moment ago
        return dispatcher(*arguments)

    monkeypatch.setattr(reduce.spread, "dispatcher", compiling)
    reduce.spread(np.arange(5, dtype=np.uint32), np.arange(5, dtype=np.uint32), into)
    assert into.tolist() == [0, 2, 4, 6, 8]
    assert len(calls) == 2
