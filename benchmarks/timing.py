"""Measuring on a machine that others use too.

Candidates run in turn, round after round, so that noise hits all alike. What counts is process CPU time, of all threads
(immune to being descheduled). What is printed of one is the median of its rounds, the least and the most. A ratio is read
twice, and the lesser counts: noise that hits both readings is rare, what our code does wrong is in both.
"""

from __future__ import annotations

import ctypes
import gc
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parent.parent
MIB = 2**20
STEP = 30e-9
"""CPU seconds of `increment` where limits in seconds were set."""
INCREMENTS = 20_000
LONG = 2.0
"""Seconds of the clock that a comparison takes at least."""


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
        """How many times the CPU of `limit`.

        Of the fastest round of each, as what others do on the machine only adds, but where one alone has met a moment in
        which they were still; of the median of rounds, but where many of them meet a change of pace.
        """
        rounds = zip(self.cpu, limit.cpu, strict=True)
        return min(min(self.cpu) / min(limit.cpu), median(ours / theirs for ours, theirs in rounds))


def interleave(candidates: Mapping[str, Callable[[], object]], rounds: int = 9) -> dict[str, Timing]:
    """Time every candidate once a round, after one round that does not count (compilation, caches).

    Rounds go on for `LONG` at least, as what others do on the machine lasts as long as a short comparison.
    """
    cpu: dict[str, list[float]] = {name: [] for name in candidates}
    wall: dict[str, list[float]] = {name: [] for name in candidates}
    for call in candidates.values():
        call()
    began = time.perf_counter()
    while len(next(iter(cpu.values()))) < rounds or time.perf_counter() - began < LONG:
        for name, call in candidates.items():
            cpu_start, wall_start = time.process_time(), time.perf_counter()
            call()
            cpu[name].append(time.process_time() - cpu_start)
            wall[name].append(time.perf_counter() - wall_start)
    return {name: Timing(tuple(cpu[name]), tuple(wall[name])) for name in candidates}


def fastest(call: Callable[[], object], rounds: int = 3, times: int = 1) -> float:
    """CPU seconds of a call, so many times in a row: the least of some rounds."""
    best = float("inf")
    for _ in range(rounds):
        start = time.process_time()
        for _ in range(times):
            call()
        best = min(best, (time.process_time() - start) / times)
    return best


def increments() -> None:
    """Add one to a number in a dict, again and again: what the interpreter takes for next to nothing."""
    counts, key = {"rows": 0}, "rows"
    for _ in range(INCREMENTS):
        counts[key] += 1


def increment() -> float:
    """CPU seconds of `counts[key] += 1`."""
    return fastest(increments, 9, 10) / INCREMENTS


def pace() -> float:
    """How many times as long this machine takes as that on which limits in seconds were set: not less than once.

    Processors that are sold by the core run at the speed that their neighbours leave them, the same one up to half as fast
    on another day, or a minute later: a limit in seconds is multiplied by this, measured right after what it limits. One
    that is a ratio of two calls in turns need not be.
    """
    return pace_of(increment())


def pace_of(increment: float) -> float:
    """Return the pace of a machine that takes so many seconds for one."""
    return max(1.0, increment / STEP)


def paced(call: Callable[[], object], times: int = 1) -> tuple[float, float]:
    """Return CPU seconds of a short call, so many times in a row, and the pace, measured in turns with it."""

    def repeated() -> None:
        for _ in range(times):
            call()

    timed = interleave({"increments": increments, "call": repeated})
    return min(timed["call"].cpu) / times, pace_of(min(timed["increments"].cpu) / INCREMENTS)


def family_cpu() -> float:
    """Return the CPU seconds of this process and all below it, those that have ended included.

    Those of this process are exact, and those of each other process are counted in ticks of 10 ms.
    """
    parents, ticks = dict[int, int](), dict[int, int]()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            pid = int(path.parent.name)
            parents[pid], ticks[pid] = int(fields[1]), sum(map(int, fields[13 if pid == os.getpid() else 11 : 15]))
    family = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= more
    return time.process_time() + sum(ticks[pid] for pid in family) / os.sysconf("SC_CLK_TCK")


def machine_cpu() -> float:
    """Return the CPU seconds that this machine has spent so far on all processes, in ticks of 10 ms.

    For engines whose workers belong to a server, or end during a job: `family_cpu` loses the time of such workers.
    """
    busy = map(int, Path("/proc/stat").read_text().splitlines()[0].split()[1:])
    user, nice, system, _idle, _waiting, interrupts, soft_interrupts, *_ = busy
    return (user + nice + system + interrupts + soft_interrupts) / os.sysconf("SC_CLK_TCK")


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
