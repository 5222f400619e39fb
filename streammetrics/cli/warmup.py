"""`streammetrics warmup`: every metric sees a few rows of every kind, so that all kernels are compiled and cached."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import fields
from typing import Any

import numpy as np

from streammetrics.collection import MetricCollection
from streammetrics.columns import Batch
from streammetrics.compose import Sliced
from streammetrics.ids import Ids
from streammetrics.laws.specimens import fitting, sample
from streammetrics.metric import METRICS, Metric
from streammetrics.metrics.groups import GroupAUC
from streammetrics.metrics.scores import AUC

__all__ = ["warm_up"]


def warm_up() -> None:
    """Compile all kernels, and say how long it took."""
    began = time.perf_counter()
    from streammetrics.kernels._jit import KERNELS

    before = _compiled(KERNELS)
    feed_all()
    made = _compiled(KERNELS)
    cached = sum(sum(k.dispatcher.stats.cache_hits.values()) for k in KERNELS)
    where = next((str(k.dispatcher.stats.cache_path) for k in KERNELS if k.dispatcher.stats.cache_path), None)
    seconds = time.perf_counter() - began
    print(f"{len(KERNELS)} kernels, {made - before} variants in {seconds:.1f} s: {cached} were in the cache")
    print(f"cache: {where}" if where else "no folder can be written for a cache: every process will compile anew")


def feed_all() -> None:
    """Let every metric absorb rows of each dtype, with and without weights and slices."""
    for metric in METRICS.values():
        for made in _variants(metric):
            state = made.make_state()
            apart = {state.together: np.array([1, 2])} if state.together else {}
            for dtype in (np.float32, np.float64):
                for weighted in (False, True):
                    drawn = sample(state.needs(), np.random.default_rng(0), 2, "plain", weighted=weighted)
                    drawn = fitting(state, drawn | apart)
                    columns = {
                        n: c.astype(dtype) if c.dtype.kind == "f" and n != "sample_weight" else c
                        for n, c in drawn.items()
                    }
                    made.reset()
                    for _ in range(2 if made.state.together is None else 1):
                        made._feed(columns).of(made.state)  # some kernels read rows as they came
                        made.state.settle()  # what waits is united, then united with more
                    Sliced(made, by="key").update(columns | {"key": np.array([1, 2])})
                    Sliced(made, by=("key", "text")).update(columns | {"key": [1, 2], "text": ["a", "b"]})
    for dtype in (np.float32, np.float64):
        collection = MetricCollection(AUC())
        for _ in range(2):  # the second time by the shortcut
            collection.update([0, 1], np.array([0, 1], dtype))
    Batch({"text": ["a", "b"]}).column("text", Ids())
    GroupAUC(grouped="sorted").update([0, 1], np.array([0, 1], np.float32), group=[1, 1]).compute()


def _variants(metric: Any) -> Iterator[Metric[Any, Any]]:
    """Yield the metric for every scale it has, with exact scores, and of several classes and labels."""
    declared = {f.name: f.metadata.get("rules", {}) for f in fields(metric)}
    for scale in declared["scale"]["choices"] if "scale" in declared else ():
        yield metric(**(metric.example | {"scale": scale}))
    if "scale" not in declared:
        yield metric(**metric.example)
    if "exact" in declared:
        yield metric(**(metric.example | {"exact": True}))
    for which in {"num_classes", "num_labels"} & set(declared):
        with suppress(ValueError):  # some are of labels alone
            yield metric(**(metric.example | {which: 2}))


def _compiled(kernels: list[Any]) -> int:
    return sum(len(k.dispatcher.overloads) for k in kernels)
