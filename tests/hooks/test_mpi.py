"""Ranks of MPI that add up what they have seen, under mpirun."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("mpi4py")

from tests.hooks import logs, ranks

MPIRUN = shutil.which("mpirun", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))

pytestmark = pytest.mark.skipif(MPIRUN is None, reason="mpirun is not installed")


def mpirun(size: int, cases: str) -> tuple[int, dict[int, list[str]]]:
    """Run ranks under mpirun; return its status, and what each rank said."""
    command = [str(MPIRUN), "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", str(size)]
    script = [sys.executable, str(ranks.HERE / "mpi_rank.py"), cases]
    environment = os.environ | {"PYTHONPATH": str(ranks.HERE.parents[1]), "OMP_NUM_THREADS": "1"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": environment}
    started = subprocess.Popen([*command, *script], start_new_session=True, **pipes)  # type: ignore[call-overload]
    try:
        out, errors = started.communicate(timeout=ranks.PATIENCE)
    finally:
        if started.poll() is None:
            os.killpg(started.pid, signal.SIGKILL)
            started.wait()
    said: dict[int, list[str]] = {r: [] for r in range(size)}
    for line in out.splitlines():
        if line.startswith("rank "):
            _, rank, text = line.split(" ", 2)
            said[int(rank)].append(text)
    assert started.returncode == 0 or cases == "killed", errors
    return started.returncode, said


def test_what_ranks_that_live_say() -> None:
    _, said = mpirun(3, "things,subset,mismatch,pieces,stuck")
    things = [f"{name} {logs.whole(name).digest()}" for name in logs.THINGS]
    for rank, lines in said.items():
        assert lines[: len(things)] == things
        part, mismatch, _, then, pieces, error, seconds, training, last = lines[len(things) :]
        assert part == ("part 0.5")
        assert mismatch.endswith("rank 2 differs from rank 0: bits is 12 on rank 0 and 14 on rank 2")
        assert pieces == f"pieces {logs.whole('groups').digest()}"
        assert error.startswith("SyncTimeoutError timed out after 2 s while exchanging data with the other ranks"), rank
        assert 1.9 < float(seconds.split()[1]) < 30
        assert training == "training 3"
        assert then == last == "then 0.6666666666666666"


def test_a_killed_rank_ends_the_job() -> None:
    start = time.monotonic()
    status, said = mpirun(2, "killed")
    assert status != 0
    assert said == {0: [], 1: []}
    assert time.monotonic() - start < ranks.PATIENCE
