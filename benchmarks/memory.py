"""Constant memory: 200 million rows against 2 million, also from a slow disk; and what 10,000 slices hold."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

import streammetrics as sm
from benchmarks import logs
from benchmarks.data import cached_clicks
from benchmarks.eval import score_log
from benchmarks.limits import build
from benchmarks.process import Usage
from benchmarks.report import Sheet, table, verdict
from benchmarks.timing import MIB, forget_peak, peak, resident

FEW, MANY = 2_000_000, 200_000_000
SLACK = 32 * MIB  # allocators keep a few megabytes more or less; a leak of one byte a row would be 190 MiB
SLOW_DISK = 15  # MiB a second: the rows come several times slower than they are scored

SLICES = 10_000
ROWS = 10_000_000
BATCH = 65_536


def main() -> None:
    """Print the memory that rows add, then the memory and time of many slices."""
    constant_memory()
    many_slices()


def constant_memory() -> None:
    slow = {"LD_PRELOAD": str(build(Path(__file__).with_name("slowdisk.c"))), "SLOWDISK_MIB_PER_SECOND": str(SLOW_DISK)}
    rows = []
    for disk, environment in (("cached", {}), (f"{SLOW_DISK} MiB/s", slow)):
        few, many = (score_log([logs.repeated_log(count)], environment=environment) for count in (FEW, MANY))
        passed = many.added <= few.added + SLACK
        rows.append(_row(disk, FEW, few, ""))
        rows.append(_row(disk, MANY, many, verdict(f"constant memory, disk {disk}", passed)))
    title = f"Resident memory that eval adds to its start (target: within {SLACK // MIB} MiB of {FEW:,} rows)"
    table(title, ["disk", "rows", "added MiB", "peak MiB", "wall s", ""], rows)


def _row(disk: str, rows: int, used: Usage, passed: str) -> list[str]:
    return [disk, f"{rows:,}", f"{used.added / MIB:.0f}", f"{used.peak / MIB:.0f}", f"{used.wall:.1f}", passed]


def many_slices() -> None:
    """Count every slice in every batch: keys are uniform, the worst case for a cache."""
    labels, scores = cached_clicks(ROWS)
    keys = np.random.default_rng(0).integers(0, SLICES, ROWS)
    before = resident()
    sliced = sm.Sliced(sm.AUC(bits=12), by="slice")
    start = time.process_time()
    for row in range(0, ROWS, BATCH):
        batch = slice(row, row + BATCH)
        sliced.update(labels[batch], scores[batch], slice=keys[batch])
    updated = time.process_time() - start
    held = resident() - before

    forget_peak()
    start = time.process_time()
    sliced.compute()
    computed = time.process_time() - start
    rows = [
        ["state in memory", f"{held / MIB:.0f} MiB", f"{held / SLICES / 1024:.1f} KiB a slice"],
        ["update", f"{updated:.2f} s", f"{updated / ROWS * 1e9:.1f} ns a row"],
        ["compute", f"{computed:.2f} s", f"{(peak() - before - held) / MIB:.0f} MiB on top"],
    ]
    table(f"{SLICES:,} slices of AUC at 12 bits, {ROWS:,} rows", ["", "in all", "each"], rows)
    sheet = Sheet()
    sheet.line(f"compute of {SLICES:,} slices", computed, 3, "s")
    sheet.show("Limits")


if __name__ == "__main__":
    main()
