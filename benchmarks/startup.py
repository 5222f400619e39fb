"""Starting: importing the library, the first update of a process whose kernels are in numba's cache, short commands."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from statistics import median
from typing import Any

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
        first_calls(folder)
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
    sheet = Sheet()
    for arguments, most, asked in ((["--version"], 0.4, 0.15), (["show", saved], 0.5, 0.3)):
        call(arguments, folder)  # writes bytecode
        cpu = median(call(arguments, folder)[0] for _ in range(ROUNDS))
        sheet.line(f"streammetrics {arguments[0]}", cpu, most, "s", asked)
    sheet.show("Short commands, seconds of CPU")


def example(sm: Any, np: Any) -> Iterator[Callable[[], object]]:
    """Yield the steps of a training loop: README's first example, then a batch with weights, then a large batch."""
    metrics = sm.MetricCollection(sm.AUC(), sm.LogLoss(), sm.NormalizedEntropy(), sm.Calibration())
    y, s = clicks(70_000)
    yield lambda: metrics.update([0, 0, 1, 0], [0.1, 0.4, 0.35, 0.2]).compute()
    yield lambda: metrics.update([0, 1], [0.2, 0.3], sample_weight=[1.0, 2.0])
    yield lambda: metrics.update(y, s.astype(np.float64))  # the dtype of the lists before


def slices(sm: Any, np: Any) -> Iterator[Callable[[], object]]:
    """Yield one step: a worker's first sliced state."""
    y, s = clicks(7_000)
    country = np.array(["br", "de", "us"])[np.arange(7_000) % 3]
    yield (
        lambda: (
            sm.Sliced([sm.AUC(), sm.LogLoss(), sm.Calibration()], by="country").update(y, s, country=country).to_bytes()
        )
    )


def compile_kernels(arguments: Sequence[str]) -> list[float]:
    """Return the seconds of CPU that each step takes in a process that has no compiled kernel."""
    np, sm = import_module("numpy"), import_module("streammetrics")
    import_module("numba")
    spent = []
    for step in {"example": example, "slices": slices}[arguments[0]](sm, np):
        began = time.process_time()
        step()
        spent.append(time.process_time() - began)
    return spent


def first_calls(folder: str) -> None:
    """Print what the first calls take that compile kernels, and their limits."""
    sheet = Sheet()
    names = {
        "example": [
            ("README's first example", 2.5, 2.5),
            ("the first weighted update", 1.7, 1.5),
            ("the first large batch", 1.2, 1.2),
        ],
        "slices": [("a first sliced state of AUC, LogLoss and Calibration", 4.6, 4.6)],
    }
    for job, steps in names.items():
        code = f"from benchmarks.startup import compile_kernels; print(*compile_kernels(['{job}']))"
        environment = os.environ | {"NUMBA_CACHE_DIR": os.path.join(folder, f"kernels-{job}")}
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        for (name, limit, asked), seconds in zip(steps, map(float, done.stdout.split()), strict=True):
            sheet.line(name, seconds, limit, "s", asked)
    sheet.show("The first call of a process that has no compiled kernel, seconds of CPU")


def warm_up(folder: str) -> None:
    """Print how long it takes to compile every kernel."""
    sheet = Sheet()
    cpu, wall = call(["warmup"], folder)
    sheet.line("warm-up, CPU", cpu, 110, "s", 110)
    sheet.line("warm-up, by the clock", wall, WARM_UP, "s", 60)
    sheet.show(f"From an empty cache, {os.cpu_count()} processors")


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
