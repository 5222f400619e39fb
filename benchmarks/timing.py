"""Measuring on a machine that others use too.

Candidates run in turn, round after round, so that noise hits all alike. What counts is process CPU time (of all
threads; immune to being descheduled) as the median of the rounds, and above all the ratio within a round.
"""

from __future__ import annotations

import ctypes
import gc
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parent.parent
MIB = 2**20


@dataclass(frozen=True)
class Timing:
    """Seconds of each round."""

    cpu: tuple[float, ...]
    wall: tuple[float, ...]

    def nanoseconds(self, rows: int) -> str:
        """Write CPU time a row as median [min..max]."""
        low, middle, high = (seconds / rows * 1e9 for seconds in (min(self.cpu), median(self.cpu), max(self.cpu)))
        return f"{middle:.2f} [{low:.2f}..{high:.2f}]"

    def ratio(self, limit: Timing) -> float:
        """How many times the CPU of `limit`: the median over the rounds of the ratio within the round."""
        return median(ours / theirs for ours, theirs in zip(self.cpu, limit.cpu, strict=True))


def interleave(candidates: Mapping[str, Callable[[], object]], rounds: int = 9) -> dict[str, Timing]:
    """Time every candidate once a round, after one round that does not count (compilation, caches)."""
    cpu: dict[str, list[float]] = {name: [] for name in candidates}
    wall: dict[str, list[float]] = {name: [] for name in candidates}
    for call in candidates.values():
        call()
    for _ in range(rounds):
        for name, call in candidates.items():
            cpu_start, wall_start = time.process_time(), time.perf_counter()
            call()
            cpu[name].append(time.process_time() - cpu_start)
            wall[name].append(time.perf_counter() - wall_start)
    return {name: Timing(tuple(cpu[name]), tuple(wall[name])) for name in candidates}


def resident() -> int:
    """Bytes of memory that this process holds now, what it has freed given back."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def forget_peak() -> None:
    """Let `peak` start again from what is held now."""
    Path("/proc/self/clear_refs").write_text("5")


def peak() -> int:
    """Return the most bytes that this process held since `forget_peak`."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024
