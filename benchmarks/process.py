"""A job in a process of its own, which measures itself: what starting took, and what the job took once warm.

`ru_maxrss` of a child counts what its parent held when it forked, so the child reads its own peak instead.
"""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib import import_module

from benchmarks.timing import ROOT, forget_peak, peak, resident


@dataclass(frozen=True)
class Usage:
    """CPU and wall seconds, bytes of memory."""

    start_cpu: float
    start_wall: float
    """Until the interpreter, the imports and a run of the job on almost nothing are behind."""
    cpu: float
    wall: float
    peak: int
    added: int
    """Peak memory over what was resident before the job."""


def run(job: str, warm: Sequence[str], real: Sequence[str], environment: Mapping[str, str] | None = None) -> Usage:
    """Run `job` ("module:function", or "-m module" as Python does) on the arguments `warm`, then measured on `real`.

    What the job prints is dropped; its errors are not, and a failure raises.
    """
    clock = time.clock_gettime(time.CLOCK_MONOTONIC)
    command = [sys.executable, "-m", "benchmarks.process", json.dumps([clock, job, list(warm), list(real)])]
    finished = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **(environment or {})}, stdout=subprocess.PIPE, check=True, text=True
    )
    return Usage(**json.loads(finished.stdout))


def _callable(job: str) -> Callable[[Sequence[str]], object]:
    if not job.startswith("-m "):
        module, _, function = job.partition(":")
        found: Callable[[Sequence[str]], object] = getattr(import_module(module), function)
        return found

    def as_main(arguments: Sequence[str]) -> None:
        sys.argv = [job, *arguments]
        try:
            runpy.run_module(job.removeprefix("-m "), run_name="__main__", alter_sys=True)
        except SystemExit as exit_:
            if exit_.code:
                raise

    return as_main


def _main() -> None:
    began, job, warm, real = json.loads(sys.argv[1])
    answer = os.fdopen(os.dup(1), "w")
    with open(os.devnull, "w") as nothing:
        os.dup2(nothing.fileno(), 1)
    call = _callable(job)
    call(warm)

    start_cpu, start_wall = time.process_time(), time.clock_gettime(time.CLOCK_MONOTONIC) - began
    before = resident()
    with suppress(OSError):  # some sandboxes forbid it; the peak then includes the start
        forget_peak()
    cpu, wall = time.process_time(), time.perf_counter()
    call(real)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    json.dump(asdict(Usage(start_cpu, start_wall, cpu, wall, peak(), peak() - before)), answer)
    answer.close()


if __name__ == "__main__":
    _main()
