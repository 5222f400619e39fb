"""Compiled kernels on disk: who reads and writes them, and when a kernel is compiled again."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from numba.core import event
from numba.core.caching import NullCache

from streammetrics.kernels import _cache, tally_codes
from streammetrics.kernels._compiler import KernelCompiler, StepCompiler
from streammetrics.kernels._jit import kernel

CODE = """
import numpy as np
from streammetrics.kernels import _jit, tally_codes

for dtype in (np.uint32, np.uint64):
    values = np.arange(5, dtype=dtype)
    out = np.zeros(5, dtype)
    tally_codes.scatter_add(np.arange(5, dtype=np.uint32), values, out)
    assert (out == values).all()
print(_jit.count_compilations())
"""


def compilations(code: str, folder: Path | None, *arguments: str, **settings: str) -> int:
    """Run code in a process of its own, which prints how many kernels it has compiled."""
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"} | settings
    if folder is not None:
        environment["NUMBA_CACHE_DIR"] = str(folder)
    command = [sys.executable, "-W", "ignore", "-c", code, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.slow
def test_a_file_that_is_not_whole_or_not_the_right_one_is_not_run(tmp_path: Path) -> None:
    assert compilations(CODE, tmp_path) == 2
    assert compilations(CODE, tmp_path) == 0
    one, two = sorted(tmp_path.rglob("*tally_codes.scatter_add*.kernel"))
    one.write_bytes(one.read_bytes()[:-100])
    two.write_bytes(b"")
    assert compilations(CODE, tmp_path) == 2
    assert compilations(CODE, tmp_path) == 0


@pytest.mark.slow
def test_a_folder_that_can_only_be_read_is_read(tmp_path: Path) -> None:
    """An image is filled by root and read by others; what it lacks goes to the reader's own folder."""
    full, half, home = tmp_path / "full", tmp_path / "half", tmp_path / "home"
    assert compilations(CODE, full) == 2
    assert compilations(CODE.replace("(np.uint32, np.uint64)", "(np.uint32,)"), half) == 1
    assert compilations(READ_ONLY + CODE, full, HOME="/nonexistent", XDG_CACHE_HOME="") == 0
    assert [compilations(READ_ONLY + CODE, half, XDG_CACHE_HOME=str(home)) for _ in range(2)] == [1, 0]
    assert len(list(home.rglob("*.kernel"))) == 1
    assert len(list(half.rglob("*.kernel"))) == 1


READ_ONLY = """
import os
access = os.access  # root may write anywhere, so what a plain user is told is put in its place
os.access = lambda path, mode: access(path, mode) and not (mode & os.W_OK and str(path).endswith("/streammetrics"))
"""


@pytest.mark.slow
def test_without_any_folder_every_process_compiles(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    assert [compilations(NO_TEMPORARY + CODE, file, XDG_CACHE_HOME=str(file)) for _ in range(2)] == [2, 2]


NO_TEMPORARY = """
import tempfile
tempfile.tempdir = "/proc"  # nobody can create a folder there
"""


@pytest.mark.slow
@pytest.mark.parametrize("home", ["/nonexistent", "/proc"])
def test_processes_without_a_home_share_a_folder_for_temporary_files(tmp_path: Path, home: str) -> None:
    """In a container, the user often has no home, or one that is read-only."""
    settings = {"HOME": home, "XDG_CACHE_HOME": "", "TMPDIR": str(tmp_path)}
    tmp_path.chmod(0o1777)
    code = READ_ONLY.replace("/streammetrics", "/kernels") + CODE
    assert [compilations(code, None, **settings) for _ in range(2)] == [2, 0]
    (folder,) = tmp_path.iterdir()
    assert (folder.name, folder.stat().st_mode & 0o777) == (f"streammetrics-kernels-{os.geteuid()}", 0o700)


def test_a_folder_that_others_can_replace_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_cache.tempfile, "tempdir", str(tmp_path))
    tmp_path.chmod(0o777)
    assert _cache.temporary_folder() is None
    tmp_path.chmod(0o1777)
    folder = _cache.temporary_folder()
    assert folder is not None
    folder.chmod(0o770)
    with pytest.warns(RuntimeWarning, match="other users can write"):
        assert _cache.temporary_folder() is None
    folder.rmdir()
    (tmp_path / "mine").mkdir()
    folder.symlink_to(tmp_path / "mine")
    assert _cache.temporary_folder() is None


def test_the_own_folder_is_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = _cache.user_folder()
    assert folder == tmp_path / "streammetrics" / "kernels"
    assert folder.stat().st_mode & 0o777 == 0o700
    for mode in (0o770, 0o702):
        folder.chmod(mode)
        with pytest.warns(RuntimeWarning, match="other users can write"):
            assert _cache.user_folder() is None
    folder.chmod(0o755)
    assert _cache.user_folder() == folder


def test_a_folder_of_somebody_else_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.warns(RuntimeWarning, match="other users can write"):
        assert _cache.user_folder() is None


@pytest.mark.slow
def test_a_folder_that_the_user_names_may_be_shared(tmp_path: Path) -> None:
    (tmp_path / "streammetrics").mkdir(mode=0o777)
    (tmp_path / "streammetrics").chmod(0o777)
    assert [compilations(CODE, tmp_path) for _ in range(2)] == [2, 0]


@pytest.mark.slow
def test_files_that_nobody_uses_are_deleted_from_the_own_folder(tmp_path: Path) -> None:
    folder = tmp_path / "streammetrics" / "kernels"
    folder.mkdir(mode=0o700, parents=True)
    days = {"old": _cache.UNUSED_DAYS + 1, "used": _cache.UNUSED_DAYS - 1}
    for name, age in days.items():
        (folder / f"{name}.kernel").touch()
        os.utime(folder / f"{name}.kernel", (time.time() - age * _cache.DAY,) * 2)
    assert compilations(CODE, None, XDG_CACHE_HOME=str(tmp_path)) == 2
    assert not (folder / "old.kernel").exists()
    assert (folder / "used.kernel").exists()


@pytest.mark.slow
def test_a_file_that_is_read_counts_as_used(tmp_path: Path) -> None:
    assert compilations(CODE, tmp_path) == 2
    for path in tmp_path.rglob("*.kernel"):
        os.utime(path, (time.time() - 2 * _cache.DAY,) * 2)
    assert compilations(CODE, tmp_path) == 0
    assert all(path.stat().st_mtime > time.time() - _cache.DAY for path in tmp_path.rglob("*.kernel"))


KERNEL_FILES = {
    "acme_steps.py": """
def step(x):
    return x + 1  # one
""",
    "acme_kernels.py": """
from streammetrics.kernels._jit import kernel, outline
from acme_steps import step

step = outline(step)

@kernel(out=())
def first(x):
    return step(x[0])

@kernel(out=())
def second(x):
    return x[0] - 1
""",
}
USES_KERNELS = """
import sys
sys.path.insert(0, sys.argv[1])
import numpy as np
from streammetrics.kernels import _jit
import acme_kernels

acme_kernels.first(np.zeros(1)), acme_kernels.second(np.zeros(1))
print(_jit.count_compilations())
"""


@pytest.mark.slow
def test_a_changed_comment_recompiles_nothing_and_a_changed_step_only_what_calls_it(tmp_path: Path) -> None:
    sources = tmp_path / "sources"
    sources.mkdir()

    def after(old: str = "", new: str = "") -> int:
        for name, text in KERNEL_FILES.items():
            (sources / name).write_text(text.replace(old, new) if old else text)
        return compilations(USES_KERNELS, tmp_path, str(sources), PYTHONDONTWRITEBYTECODE="1")

    assert after() == 2
    assert after() == 0
    assert after("# one", "# a number") == 0
    assert after("x[0] - 1", "x[0] - 2") == 1
    assert after("x + 1", "x + 2") == 1
    assert after() == 0


TOGETHER = """
import sys, time
import numpy as np
from streammetrics.kernels import _jit, tally_codes

while time.time() < float(sys.argv[1]):  # all at the same moment
    pass
values = np.arange(5, dtype=np.uint32)
tally_codes.scatter_add(np.arange(5, dtype=np.uint32), values, np.zeros(5, np.uint32))
print(_jit.count_compilations())
"""


@pytest.mark.slow
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
from streammetrics.kernels import _jit, tally_codes

def call():
    tally_codes.scatter_add(np.arange(5, dtype=np.uint32), np.arange(5, dtype=np.uint32), np.zeros(5, np.uint32))

other = tally_codes.scatter_add._lock_file()  # as another process holds it while it compiles
fcntl.flock(other, fcntl.LOCK_EX)
with _jit.raise_if_busy():
    try:
        call()
    except _jit.BusyError as error:
        print(error)
    fcntl.flock(other, fcntl.LOCK_UN)
    call()
fcntl.flock(other, fcntl.LOCK_EX)
with _jit.raise_if_busy():
    call()  # what it has needs no lock
print(_jit.count_compilations())
"""


@pytest.mark.slow
def test_who_has_other_work_does_not_wait(tmp_path: Path) -> None:
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", BUSY], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["scatter_add", "1"]


STOPPED = """
import fcntl
import numpy as np
from streammetrics.kernels import _jit, tally_codes

_jit.WAIT_SECONDS = 1.0
fcntl.flock(other := tally_codes.scatter_add._lock_file(), fcntl.LOCK_EX)  # and nothing more comes of it
tally_codes.scatter_add(np.arange(5, dtype=np.uint32), np.arange(5, dtype=np.uint32), np.zeros(5, np.uint32))
print(_jit.count_compilations())
"""


@pytest.mark.slow
def test_a_process_that_stands_still_holds_nobody_up(tmp_path: Path) -> None:
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", STOPPED]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["1"]


FORKED = """
import os, signal, threading
import numpy as np
from streammetrics.kernels import _jit, tally_codes

def call():
    tally_codes.scatter_add(np.arange(5, dtype=np.uint32), np.arange(5, dtype=np.uint32), np.zeros(5, np.uint32))

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
    os._exit(int(_jit.count_compilations() != 1))
print(os.waitpid(child, 0)[1])
"""


@pytest.mark.slow
def test_a_fork_while_a_kernel_is_compiled(tmp_path: Path) -> None:
    """It waits: a child would have numba's locks as they are, and nobody who releases them."""
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", FORKED]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines() == ["streammetrics: uninterrupted", "0"]


def test_a_call_while_another_thread_compiles_is_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is called with arrays that may be written is found by conversion, unless numba may compile just then."""
    into = np.zeros(5, np.uint32)
    tally_codes.scatter_add(np.arange(5, dtype=np.uint32), np.arange(5, dtype=np.uint32), into)
    dispatcher, calls = tally_codes.scatter_add.dispatcher, []

    def compiling(*arguments: object) -> object:
        calls.append(arguments)
        if len(calls) == 1:
            raise RuntimeError("compilation disabled")  # as numba says when it was allowed to a moment ago
        return dispatcher(*arguments)

    monkeypatch.setattr(tally_codes.scatter_add, "dispatcher", compiling)
    tally_codes.scatter_add(np.arange(5, dtype=np.uint32), np.arange(5, dtype=np.uint32), into)
    assert into.tolist() == [0, 2, 4, 6, 8]
    assert len(calls) == 2


@kernel(out=("out",))
def write_largest(x: Any, out: Any) -> Any:
    """Write the larger of two numbers."""
    out[0] = max(x[0], x[1])
    return 0


def test_only_kernels_become_machine_code() -> None:
    """numba's own functions, such as `max`, are not optimised again; other code that calls them is compiled as usual."""
    compilers = set()

    class Listener(event.Listener):
        def on_start(self, event: Any) -> None:
            compilers.add(event.data["dispatcher"]._compiler.pipeline_class)

        def on_end(self, event: Any) -> None:
            pass

    # The kernel must be compiled even if an earlier run has cached it.
    write_largest.cache, write_largest.dispatcher._cache = {}, NullCache()
    x, out = np.array([2, 3], np.int16), np.zeros(1, np.int16)
    with event.install_listener("numba:compile", Listener()):
        write_largest(x, out)
    assert out[0] == 3
    # Old versions of numba generate code for `max` directly, so StepCompiler may be absent.
    assert KernelCompiler in compilers
    assert compilers <= {KernelCompiler, StepCompiler}
    assert numba.njit(lambda x: max(x[0], x[1]))(x) == 3
