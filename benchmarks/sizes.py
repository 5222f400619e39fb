"""What the README says a state takes: memory, and bytes saved, of ten million rows."""

from __future__ import annotations

from typing import Any

import numpy as np

import streammetrics as sm
from benchmarks.data import cached_clicks
from benchmarks.report import table, verdict
from benchmarks.timing import MIB
from streammetrics.collect.metric_like import states_of

ROWS, BATCH = 10_000_000, 65_536
USERS, CLASSES, LABELS = 700_000, 100, 1_000


def main() -> None:
    """Print a line for each state of the README's table."""
    labels, scores = cached_clicks(ROWS)
    rng = np.random.default_rng(11)
    users = rng.integers(0, USERS, ROWS)
    classes = rng.integers(0, CLASSES, 1_000_000)
    rows: list[list[str]] = []

    def line(name: str, metric: Any, most: float, saved: float | None, *columns: Any, **named: Any) -> None:
        for a in range(0, len(columns[0]), BATCH):
            metric.update(*(c[a : a + BATCH] for c in columns), **{n: c[a : a + BATCH] for n, c in named.items()})
        held, data = sum(s.nbytes for s in states_of(metric)), len(metric.to_bytes())
        memory = verdict(f"memory, {name}", held <= most)
        said = "" if saved is None else verdict(f"bytes, {name}", data <= saved)
        limit = "" if saved is None else f"{saved:,.0f}"
        rows.append([name, f"{held:,}", f"{most:,.0f}", memory, f"{data:,}", limit, said])

    line("histogram, 16 bits", sm.AUC(), MIB, 30_000, labels, scores)
    line("histogram, 12 bits", sm.AUC(bits=12), MIB / 16, 4_000, labels, scores)
    line("exact sums", sm.LogLoss(), 200, 700, labels, scores)
    line("65,536 rows, exact", sm.AUC(), 16 * BATCH, None, labels[:BATCH], scores[:BATCH])
    line("AUC(exact=True), 1,000,000 rows", sm.AUC(exact=True), 16e6, None, labels[:1_000_000], scores[:1_000_000])
    line("sums by group", sm.GroupLogLoss(), 100 * USERS, None, labels, scores, group=users)
    line("decisions", sm.F1(threshold=0.1), 100, 500, labels, scores)
    confusion = sm.ConfusionMatrix(num_classes=CLASSES, threshold=None)
    line("confusion matrix", confusion, 8 * CLASSES**2, None, classes, classes[::-1].copy())
    table(f"Sizes, {ROWS:,} rows", ["state", "memory", "at most", "", "saved", "at most", ""], rows)


if __name__ == "__main__":
    main()
