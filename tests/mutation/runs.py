"""Checkouts with a mutant in them, and runs of pytest there."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from mutation.changes import Mutant, apply_all

HERE = Path(__file__).resolve().parent
MEMORY = 12 << 30  # bytes that a process may allocate: a mutant may ask for any number
GRACE = 900.0  # seconds that a run may take beyond the usual time of its tests
_RUNNING: dict[int, subprocess.Popen[bytes]] = {}
_LOCK = threading.Lock()
_STOPPED = threading.Event()


class StoppedError(Exception):
    """The study is being stopped, so what a run has logged says nothing."""


@dataclasses.dataclass
class Result:
    """What a run of pytest has logged."""

    outcomes: dict[str, str] = dataclasses.field(default_factory=dict)
    seconds: dict[str, float] = dataclasses.field(default_factory=dict)
    failed: dict[str, str] = dataclasses.field(default_factory=dict)  # with messages, in the order of the run
    unfinished: list[str] = dataclasses.field(default_factory=list)
    status: int = 0
    wall: float = 0.0

    @property
    def killed(self) -> bool:
        """Whether pytest was ended, by a crash, by the time limit of a test or by that of the run."""
        return self.status not in (0, 1, 2, 5) or bool(self.unfinished)

    def first_failure(self) -> tuple[str, str] | None:
        """Return the first test that failed and its message; a test that never ended counts."""
        if self.failed:
            return next(iter(self.failed.items()))
        if self.unfinished:
            return self.unfinished[0], "crash" if self.status < 0 and self.status != -signal.SIGKILL else "hang"
        if self.status in (0, 5):
            return None
        return "(pytest does not start)", f"exit status {self.status}"


def read_log(path: Path) -> Result:
    """Return what the plugin has logged so far."""
    result = Result()
    for line in path.read_text().splitlines() if path.exists() else ():
        record = json.loads(line)
        test, outcome = record["test"], record["outcome"]
        if outcome == "started":
            result.unfinished.append(test)
            continue
        result.seconds[test] = result.seconds.get(test, 0.0) + record.get("seconds", 0.0)
        if outcome in ("failed", "error"):
            result.failed.setdefault(test, record.get("message", ""))
        if result.outcomes.get(test) not in ("failed", "error", "skipped"):
            result.outcomes[test] = outcome
        if record.get("when") in (None, "teardown", "???") and test in result.unfinished:
            result.unfinished.remove(test)
    return result


class Tree:
    """A checkout that is changed and tested; `clean` holds the package as it is without changes."""

    def __init__(self, root: Path, clean: Path, work: Path, cache: Path) -> None:
        self.root, self.clean, self.work, self.cache = root, clean, work, cache

    def restore(self) -> None:
        """Take all changes back."""
        for file in sorted((self.clean / "streammetrics").rglob("*.py")):
            mine = self.root / file.relative_to(self.clean)
            if mine.read_bytes() != file.read_bytes() or mine.stat().st_mtime != file.stat().st_mtime:
                shutil.copy2(file, mine)

    @contextlib.contextmanager
    def changed(self, mutants: Sequence[Mutant]) -> Iterator[None]:
        """Have these mutants in the tree.

        Python compiles a module again if the second of its last change or its size differs, so the changed file gets a
        time of its own.
        """
        self.restore()
        try:
            for path in {m.path for m in mutants}:
                inside = [m for m in mutants if m.path == path]
                file = self.root / path
                file.write_bytes(apply_all(file.read_bytes(), inside))
                stamp = (self.clean / path).stat().st_mtime + 1000 * sum(m.number for m in inside)
                os.utime(file, (stamp, stamp))
            yield
        finally:
            self.restore()

    def pytest(
        self,
        arguments: Sequence[str],
        log: Path,
        *,
        tests: Sequence[str] | None = None,
        times: Path | None = None,
        limit: float,
        environment: dict[str, str] | None = None,
    ) -> Result:
        """Run pytest on these tests, in this order, or on all, and return what it has logged."""
        log.parent.mkdir(parents=True, exist_ok=True)
        temporary = self.work / "tmp" / self.root.name
        shutil.rmtree(temporary, ignore_errors=True)
        shutil.rmtree(self.root / ".hypothesis", ignore_errors=True)  # it would repeat what failed with other mutants
        temporary.mkdir(parents=True)
        variables = os.environ | {
            "PYTHONPATH": os.pathsep.join(map(str, (self.root, plugins(self.work)))),
            "NUMBA_CACHE_DIR": str(self.cache),
            "TMPDIR": str(temporary),
            "MUTATION_LOG": str(log),
            "MUTATION_MEMORY": str(MEMORY),
        }
        variables |= environment or {}
        if times is not None:
            variables["MUTATION_TIMES"] = str(times)
        files: list[str] = []
        if tests is not None:
            pick = log.with_suffix(".pick")
            pick.write_text(json.dumps(list(tests)))
            variables["MUTATION_PICK"] = str(pick)
            files = list(dict.fromkeys(t.partition("::")[0] for t in tests))
        options = ["-q", "-p", "no:cacheprovider", "-p", "mutation_plugin", "--tb=short", "-rN"]
        command = [sys.executable, "-m", "pytest", *options, *arguments, *files]
        began = time.monotonic()
        with log.with_suffix(".out").open("ab") as out:
            process = subprocess.Popen(
                command,
                cwd=self.root,
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
            with _LOCK:
                _RUNNING[process.pid] = process
            try:
                process.wait(limit)
            except subprocess.TimeoutExpired:
                pass
            finally:
                end(process)
        if _STOPPED.is_set():
            raise StoppedError
        result = read_log(log)
        result.status, result.wall = process.returncode, time.monotonic() - began
        return result


def end(process: subprocess.Popen[bytes]) -> None:
    """End a run and everything that its tests have left running."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    with _LOCK:
        _RUNNING.pop(process.pid, None)


def end_all() -> None:
    """End all runs: the study is being stopped."""
    _STOPPED.set()
    for process in [*_RUNNING.values()]:
        end(process)


def plugins(work: Path) -> Path:
    """Return the folder with the modules that tests import: the plugin, and what records reached lines."""
    folder = work / "plugins"
    if not folder.exists():
        folder.mkdir(parents=True)
        for name in ("plugin", "reach"):
            shutil.copy(HERE / f"{name}.py", folder / f"mutation_{name}.py")
    return folder


def make_tree(repository: Path, commit: str, root: Path, package: Path | None = None) -> Path:
    """Check out a commit, with the package of another checkout if one is given."""
    if not (root / ".complete").exists():
        shutil.rmtree(root, ignore_errors=True)
        subprocess.run(["git", "clone", "-q", "--no-checkout", repository, root], check=True)
        subprocess.run(["git", "-C", root, "-c", "advice.detachedHead=false", "checkout", "-q", commit], check=True)
        if package is not None:
            shutil.rmtree(root / "streammetrics")
            shutil.copytree(package / "streammetrics", root / "streammetrics")
        (root / ".complete").touch()
    return root


def copy_tree(source: Path, root: Path) -> Path:
    """Copy a checkout, times of files included."""
    if not (root / ".complete").exists():
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(source, root, symlinks=True, ignore=shutil.ignore_patterns(".complete"))
        (root / ".complete").touch()
    return root


def usual_seconds(tests: Iterable[str], seconds: dict[str, float]) -> float:
    """Return how long these tests should take in one process at most, on a busy machine."""
    return GRACE + 6 * sum(seconds.get(t, 1.0) for t in tests)
