"""Compiled kernels on disk: what two processes have mixed up there is not taken for what it is not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

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
