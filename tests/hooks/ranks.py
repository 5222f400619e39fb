"""Several processes on this machine, each a rank: started, waited for no longer than a while, and ended."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).parent
PATIENCE = 240.0  # seconds for what takes a few on an idle machine


def run(script: str, size: int, *arguments: object, patience: float = PATIENCE) -> list[tuple[int, str, str]]:
    """Run a script of this folder as so many ranks; return what each said: status, output, errors."""
    environment = os.environ | {"PYTHONPATH": str(HERE.parents[1]), "OMP_NUM_THREADS": "1"}
    started = []
    try:
        for rank in range(size):
            command = [sys.executable, str(HERE / script), str(rank), str(size), *map(str, arguments)]
            pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
            started.append(subprocess.Popen(command, env=environment, **pipes))  # type: ignore[call-overload]
        end = time.monotonic() + patience
        said = [one.communicate(timeout=max(end - time.monotonic(), 0.1)) for one in started]
        return [(one.returncode, *s) for one, s in zip(started, said, strict=True)]
    finally:
        for one in started:
            one.kill()
            one.wait()


def outputs(said: Sequence[tuple[int, str, str]]) -> list[list[str]]:
    """The lines that each rank printed; all have to have ended well."""
    assert all(status == 0 for status, _, _ in said), "\n".join(errors for _, _, errors in said)
    return [out.splitlines() for _, out, _ in said]
