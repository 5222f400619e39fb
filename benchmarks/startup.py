"""Starting: importing the library, and the first update of a process whose kernels are in numba's cache."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from statistics import median

from benchmarks import process
from benchmarks.report import table, verdict

ROUNDS = 7


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
    """Print both, with their targets."""
    rows = []
    for name, job, target in (
        ("import streammetrics, numpy being there", "import_library", 0.2),
        ("first update, import of numba included", "first_update", 1.0),
    ):
        process.run(f"benchmarks.startup:{job}", [], ["now"])  # fills the cache
        runs = [process.run(f"benchmarks.startup:{job}", [], ["now"]) for _ in range(ROUNDS)]
        cpu, wall = median(run.cpu for run in runs), median(run.wall for run in runs)
        rows.append([name, f"{cpu:.2f}", f"{wall:.2f}", f"{target:.2f}", verdict(name, cpu <= target)])
    table("Starting", ["", "CPU s", "wall s", "target, CPU s", ""], rows)


if __name__ == "__main__":
    main()
