"""Parts as workers post them to `serve`: rows, the metrics that count them, and their keys."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

import numpy as np

import streammetrics as sm
from streammetrics.serve.part_keys import HOUR, PartKey, PostedPart

FIRST = 494_520
"""The hour with which 2026-06-01 begins."""


def metrics() -> Any:
    return sm.Sliced(
        sm.Sharded(sm.MetricCollection(sm.CTR(), sm.LogLoss()), unit="user", shards=8), by=["arm", "country"]
    )


def rows(seed: int, n: int = 30) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {
        "y_true": rng.integers(0, 2, n).astype(np.uint8),
        "y_score": rng.random(n).astype(np.float32),
        "user": rng.integers(0, 50, n),
        "arm": rng.choice(["A", "B"], n),
        "country": rng.choice(["at", "be", "ch"], n),
    }


def counted(seeds: Iterable[int]) -> Any:
    """One pass over all rows."""
    several = [rows(seed) for seed in seeds]
    return metrics().update({name: np.concatenate([some[name] for some in several]) for name in several[0]})


@cache
def frame(seed: int) -> tuple[bytes, str]:
    made = metrics().update(rows(seed))
    return made.to_bytes(), made.digest()


def part(key: PartKey, seed: int, received: float | None = None) -> PostedPart:
    """What a worker posts of the rows of a seed, by default when its hour is over."""
    return PostedPart(key, *frame(seed), float((key.hour + 1) * HOUR) if received is None else received)


def plain(key: PartKey, content: int, received: float = 0.0) -> PostedPart:
    """A part whose content nobody adds up."""
    return PostedPart(key, b"%d" % content, f"{content:064x}", received)
