"""Speed of metrics within groups: ten million rows of 700,000 users in memory, with spill, sorted; losses by group.

`STREAMMETRICS_GROUP_ROWS=200000000 python -m benchmarks groups` also spills so many rows and prints the peak of memory.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable

import numpy as np

import streammetrics as sm
from benchmarks.report import in_time, table, verdict
from benchmarks.timing import MIB, forget_peak, interleave, pace, peak

ROWS, USERS = 10_000_000, 700_000
BATCH = 65_536
TARGETS = {"in memory": 28.0, "with spill": 42.0, "sorted": 11.0}


def main() -> None:
    """Print the speed in memory, sorted, and with spill; and what a log beyond memory takes, if that is asked for."""
    speed()
    if many := int(os.environ.get("STREAMMETRICS_GROUP_ROWS", "0")):
        spill(many)


def speed() -> None:
    """Print CPU time a row beside the targets and beside numpy sorting the same rows as one integer each."""
    rng = np.random.default_rng(0)
    users, scores = rng.integers(0, USERS, ROWS), rng.random(ROWS, np.float32)
    clicks = (rng.random(ROWS) < 0.05).astype(np.uint8)
    packed = (users.astype(np.uint64) << np.uint64(33)) | (scores.view(np.uint32).astype(np.uint64) << np.uint64(1))
    order = np.argsort(users, kind="stable")
    ordered = clicks[order], scores[order], users[order]

    def stream(make: Callable[[], sm.extend.Metric], *columns: np.ndarray) -> Callable[[], object]:
        def call() -> object:
            metric = make()
            for a in range(0, ROWS, BATCH):
                y, s, u = (c[a : a + BATCH] for c in columns)
                metric.update(y, s, group=u)
            value = metric.compute()
            if isinstance(metric, sm.GroupAUC):
                metric.close()
            return value

        return call

    rows = clicks, scores, users
    with tempfile.TemporaryDirectory() as folder:
        spilled = stream(lambda: sm.GroupAUC(memory_limit=32 * MIB, spill_dir=folder), *rows)
        calls: dict[str, Callable[[], object]] = {
            "in memory": stream(sm.GroupAUC, *rows),
            "with spill": spilled,
            "sorted": stream(lambda: sm.GroupAUC(grouped="sorted"), *ordered),
            "GroupLogLoss": stream(sm.GroupLogLoss, *rows),
            "np.sort of the rows": lambda: np.sort(packed),
        }
        # one after the other: in turns each would pay for pages that the one before gave back
        timed = {name: interleave({name: call}, rounds=3)[name] for name, call in calls.items()}
    lines, slower = [], pace()
    for name, t in timed.items():
        target, cpu = TARGETS[name] * slower if name in TARGETS else None, sorted(t.cpu)[len(t.cpu) // 2] / ROWS * 1e9
        passed = "" if target is None else in_time(f"GroupAUC {name}", cpu, target)
        lines.append([name, t.nanoseconds(ROWS), f"{target:.0f}" if target else "", passed])
    table(f"GroupAUC: {ROWS:,} rows, {USERS:,} users, CPU", ["", "ns/row", "target", ""], lines)


def spill(many: int) -> None:
    """Print what a log beyond memory takes."""
    rng = np.random.default_rng(1)
    forget_peak()
    with tempfile.TemporaryDirectory() as folder, sm.GroupAUC(memory_limit=512 * MIB, spill_dir=folder) as metric:
        cpu, done = 0.0, 0
        while done < many:
            users, scores = rng.integers(0, many // 14, BATCH * 16), rng.random(BATCH * 16, np.float32)
            clicks = (rng.random(BATCH * 16) < 0.05).astype(np.uint8)
            start = time.process_time()
            metric.update(clicks, scores, group=users)
            cpu, done = cpu + time.process_time() - start, done + len(users)
        start = time.process_time()
        metric.compute()
        read = time.process_time() - start
        most = peak()
    head = ["rows", "update, ns/row", "compute, ns/row", "peak MiB", "target", ""]
    line = [f"{done:,}", f"{cpu / done * 1e9:.1f}", f"{read / done * 1e9:.1f}", f"{most / MIB:,.0f}", "2,048"]
    table("GroupAUC, spilled beyond 512 MiB", head, [[*line, verdict("spill", most < 2048 * MIB)]])


if __name__ == "__main__":
    main()
