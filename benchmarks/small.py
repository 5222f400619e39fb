"""Small calls: batches of 256 rows beside those of a plain AUC, reading small states, looking up keys, and intervals."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import streammetrics as sm
from benchmarks.data import clicks
from benchmarks.report import Sheet
from benchmarks.timing import fastest, interleave

ROWS, BATCHES = 256, 128
KEYS, LOOK_UPS = 200_000, 1_000
SHARDS, UNITS = 64, 200


def main() -> None:
    """Print small batches, then small states, keys and intervals, with their limits."""
    show_batches()
    show_answers()


# -- batches -----------------------------------------------------------------------------------------------------------


def show_batches() -> None:
    """Batches of 256 rows of different shapes, beside a plain AUC."""
    import pandas as pd

    y, s = clicks(ROWS * BATCHES)
    rng = np.random.default_rng(2)
    ids = rng.integers(0, 700_000, len(y))
    slices = rng.integers(0, 50, len(y))

    def frames(name: str, column: Any) -> list[Any]:
        whole = pd.DataFrame({"y_true": y, "y_score": s}).assign(**{name: column})
        return [whole.iloc[a : a + ROWS].copy() for a in range(0, len(y), ROWS)]

    def split(**columns: Any) -> list[Any]:
        return [{n: c[a : a + ROWS] for n, c in columns.items()} for a in range(0, len(y), ROWS)]

    words = [f"item {i}" for i in range(100_000)]
    many, few = (pd.Categorical.from_codes(ids % n, words[:n]) for n in (100_000, 100))
    plain = split(y_true=y, y_score=s)
    in_slices = split(y_true=y, y_score=s, k=slices)
    timed = interleave(
        {
            "AUC": build_update(sm.AUC(), plain),
            "AUC(12)": build_update(sm.AUC(bits=12), plain),
            "data frames": build_update(sm.AUC(), frames("x", 0)),
            "GroupAUC": build_update(sm.GroupAUC(), split(y_true=y, y_score=s, group=ids)),
            "12 bits, 50 slices": build_update(sm.Sliced(sm.AUC(bits=12), by="k"), in_slices),
            "16 bits, 50 slices": build_update(sm.Sliced(sm.AUC(), by="k"), in_slices),
            "Int64 labels": build_update(sm.AUC(), split(y_true=pd.Series(y, dtype="Int64"), y_score=s)),
            "category of 100": build_update(sm.Sliced(sm.AUC(bits=12), by="x"), frames("x", few)),
            "category of 100,000": build_update(sm.Sliced(sm.AUC(bits=12), by="x"), frames("x", many)),
        }
    )
    sheet = Sheet()
    for name, beside, limit, asked in (
        ("GroupAUC", "AUC", 10, None), ("12 bits, 50 slices", "AUC(12)", 10, None),
        ("16 bits, 50 slices", "AUC", 10, None), ("Int64 labels", "AUC", 6, 4), ("data frames", "AUC", 15, None),
        ("category of 100,000", "category of 100", 3, None),
    ):  # fmt: skip
        sheet.line(f"{name} / {beside}", timed[name].ratio(timed[beside]), limit, asked=asked)
    sheet.show(f"Batches of {ROWS} rows")


def build_update(metric: Any, parts: list[Any]) -> Callable[[], None]:
    """Return a function that counts all batches."""

    def run() -> None:
        for part in parts:
            metric.update(part)

    return run


# -- answers -----------------------------------------------------------------------------------------------------------


def show_answers() -> None:
    """Reading small states, finding keys, and an interval over shards."""
    sheet = Sheet()
    y, s = clicks(1_000)
    one = sm.AUC(bits=12).update(y, s)
    five = sm.MetricCollection(
        sm.AUC(bits=12), sm.LogLoss(), sm.Calibration(), sm.Accuracy(threshold=0.1), sm.BrierScore()
    )
    five.update(y, s)
    for name, metric, limit in (("one state", one, 100), ("a collection of five", five, 300)):
        seconds = fastest(partial(sm.from_bytes, metric.to_bytes()), 9, 50)
        sheet.line(f"from_bytes of {name}", seconds * 1e6, limit, "us")
    sliced = sm.Sliced(sm.CTR(), by="k").update(np.ones(KEYS), k=np.arange(KEYS))
    first = fastest(lambda: 7 in sliced, 1)
    sheet.line(f"key in sliced, {KEYS:,} keys, the first", first * 1e3, 20, "ms")
    keys = np.random.default_rng(3).integers(0, KEYS, LOOK_UPS).tolist()
    sheet.line("key in sliced", fastest(lambda: [k in sliced for k in keys], 9) / LOOK_UPS * 1e6, 4.5, "us", 2)
    sheet.line(f"interval of six metrics, {SHARDS} shards", interval_seconds(), 0.02, "s")
    sheet.show("Answers of small states")


def interval_seconds() -> float:
    """Return the CPU seconds of the intervals of six metrics over shards of users, which are read for the first time."""
    rng, n = np.random.default_rng(4), 20_000
    y, s = clicks(n)
    inner = [sm.AUC(bits=12), sm.LogLoss(), sm.Calibration(), sm.Accuracy(threshold=0.1), sm.BrierScore(), sm.CTR()]
    sharded = sm.Sharded(inner, unit="user", shards=SHARDS).update(y, s, user=rng.integers(0, UNITS, n))
    data = sharded.to_bytes()
    sm.from_bytes(data).interval()
    return min(fastest(partial(metric.interval), 1) for metric in [sm.from_bytes(data) for _ in range(9)])


if __name__ == "__main__":
    main()
