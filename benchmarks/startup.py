"""Starting: importing the library, the first update of a process whose kernels are in numba's cache, short commands."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib import import_module
from statistics import median

from benchmarks import process
from benchmarks.data import clicks
from benchmarks.report import Sheet, table, verdict
from benchmarks.timing import pace

ROUNDS = 7
WARM_UP = 90.0
"""Seconds of the clock on two processors: of metrics there are 231, where 60 were asked for there were 87."""


def import_library(arguments: Sequence[str]) -> None:
    """Import numpy; on the run that counts, the library too. numba must stay away."""
    import_module("numpy")
    if arguments:
        import_module("streammetrics")
        assert "numba" not in sys.modules, "importing streammetrics imported numba"


def first_update(arguments: Sequence[str]) -> None:
    """Import the library; on the run that counts, score a row."""
    np, sm = import_module("numpy"), import_module("streammetrics")
    if arguments:
        sm.AUC().update(np.ones(1, np.uint8), np.ones(1, np.float32))


def main() -> None:
    """Print all, with their limits; with bytecode, as pip writes it when it installs."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["PYTHONPYCACHEPREFIX"] = os.path.join(folder, "bytecode")
        imports()
        commands(folder)
        warm_up(folder)


def imports() -> None:
    """Print what importing and the first update take."""
    rows = []
    for name, job, target in (
        ("import streammetrics, numpy being there", "import_library", 0.2),
        ("first update, import of numba included", "first_update", 1.0),
    ):
        process.run(f"benchmarks.startup:{job}", [], ["now"])  # fills the cache
        runs = [process.run(f"benchmarks.startup:{job}", [], ["now"]) for _ in range(ROUNDS)]
        cpu, wall, target = median(run.cpu for run in runs), median(run.wall for run in runs), target * pace()
        rows.append([name, f"{cpu:.2f}", f"{wall:.2f}", f"{target:.2f}", verdict(name, cpu <= target)])
    table("Starting", ["", "CPU s", "wall s", "target, CPU s", ""], rows)


def commands(folder: str) -> None:
    """Print what commands take that only look, and their limits."""
    saved = os.path.join(folder, "saved.smet")
    sm = import_module("streammetrics")
    y, s = clicks(100_000)
    sm.save(sm.MetricCollection(sm.AUC(), sm.LogLoss(), sm.Calibration()).update(y, s), saved)
    rows, most = [], 0.4 * pace()
    for arguments in (["--version"], ["show", saved]):
        call(arguments, folder)  # writes bytecode
        cpu = median(call(arguments, folder)[0] for _ in range(ROUNDS))
        rows.append([arguments[0], f"{cpu:.2f}", f"{most:.2f}", verdict(arguments[0], cpu <= most)])
    table("Short commands", ["streammetrics", "CPU s", "at most", ""], rows)


def warm_up(folder: str) -> None:
    """Print how long it takes to compile every kernel."""
    sheet = Sheet()
    cpu, wall = call(["warmup"], folder)
    sheet.line("warm-up, by the clock", wall, WARM_UP, "s", 60)
    sheet.show(f"From an empty cache, {os.cpu_count()} processors, {cpu:.0f} s of CPU")


def call(arguments: Sequence[str], folder: str) -> tuple[float, float]:
    """Run a command with caches of its own; return seconds of CPU and of the clock."""
    environment = os.environ | {"NUMBA_CACHE_DIR": os.path.join(folder, "kernels")}
    before, began = os.times(), time.perf_counter()
    command = [sys.executable, "-m", "streammetrics", *arguments]
    subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)
    after = os.times()
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    return spent, time.perf_counter() - began


if __name__ == "__main__":
    main()
