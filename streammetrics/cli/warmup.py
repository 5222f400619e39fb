"""`streammetrics warmup`: every metric sees a few rows of every kind, so that all kernels are compiled and cached."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import nullcontext, suppress
from dataclasses import fields
from functools import partial
from itertools import chain
from multiprocessing import get_context
from typing import Any

import numpy as np

from streammetrics.batch.column_binding import PLAIN
from streammetrics.batch.columns import Batch
from streammetrics.batch.ids import Ids
from streammetrics.collect.collection import MetricCollection
from streammetrics.collect.metric import METRICS, Metric
from streammetrics.collect.task import Task
from streammetrics.compose.sharded import Sharded
from streammetrics.compose.sliced import Sliced
from streammetrics.count.batch_updater import Feed
from streammetrics.count.index import Level
from streammetrics.count.reads import Read
from streammetrics.count.tallies import sorted_copy
from streammetrics.laws.specimens import fitting, sample
from streammetrics.metrics.curves.areas import AUC
from streammetrics.metrics.decisions.agreement import Accuracy
from streammetrics.metrics.groups.auc import GroupAUC
from streammetrics.metrics.probabilities.losses import CTR, LogLoss
from streammetrics.metrics.regression.ranks import SpearmanCorrelation
from streammetrics.metrics.values.quantiles import Quantile
from streammetrics.state.axes import Axis

__all__ = ["warm_up"]

NO_FOLDER = "no cache folder can be written, so every process compiles anew; name one in NUMBA_CACHE_DIR"
MOST = 8  # processes; beyond, they wait for each other's kernels


def warm_up() -> None:
    """Compile all kernels, in as many processes as there are processors, and say how long it took."""
    began = time.perf_counter()
    from streammetrics.count.engine import writable_folder

    made, variants = _compiled(min(os.cpu_count() or 1, MOST))
    folder = writable_folder()
    seconds = time.perf_counter() - began
    cached, kernels = max(len(variants) - made, 0), len({name for name, _ in variants})
    print(f"{kernels} kernels, {len(variants)} variants in {seconds:.1f} s: {cached} were in the cache")
    print(f"cache: {folder}" if folder else f"no kernel is kept: {NO_FOLDER}")


def _compiled(processes: int) -> tuple[int, set[tuple[str, str]]]:
    """Do all parts of the work; return how many variants were compiled, and all that there are.

    A part that needs what another process is compiling comes last, as often as there are others to do.
    """
    waiting, running = deque(range(len(parts()))), dict[Future[Any], int]()
    made, variants = 0, set[tuple[str, str]]()
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        while waiting or running:
            while waiting and len(running) < processes:
                part = waiting.popleft()
                running[pool.submit(_compiled_by, part, patient=not waiting)] = part
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                done, misses, found = future.result()
                made, variants, part = made + misses, variants | found, running.pop(future)
                if not done:
                    waiting.append(part)
    return made, variants


def _compiled_by(part: int, *, patient: bool) -> tuple[bool, int, set[tuple[str, str]]]:
    """Do a part of the work in this process; return if it is done, how many variants it compiled, and all that it has."""
    from streammetrics.count.engine import KERNELS, BusyError, compilations, impatient

    before, done = compilations(), True
    try:
        with nullcontext() if patient else impatient():
            parts()[part]()
    except BusyError:  # another process compiles what this part needs: it comes again
        done = False
    held = {(f"{k.function.__module__}.{k.__name__}", str(s)) for k in KERNELS for s in k.dispatcher.overloads}
    return done, compilations() - before, held


def feed_all() -> None:
    """Let every metric absorb rows of each dtype, with and without weights and slices."""
    for part in parts():
        part()


def parts() -> list[Callable[[], None]]:
    """The work, in parts."""
    alike: dict[tuple[str, str], list[Metric[Any, Any]]] = {}  # what counts is the state, and many metrics read one
    for metric in chain.from_iterable(map(_variants, METRICS.values())):
        state = metric.make_state()
        alike.setdefault((state.tag, repr(sorted(state.settings.items()))), []).append(metric)
    fed = [partial(_feed_metrics, *metrics) for metrics in alike.values()]
    return [*fed, *(partial(_feed_scores, dtype) for dtype in (np.float32, np.float64)), _feed_keys, _feed_many_values]


def _feed_metrics(made: Metric[Any, Any], *others: Metric[Any, Any]) -> None:
    """Let a metric absorb rows, and others read its state."""
    state = made.make_state()
    apart = {state.together: np.array([1, 2])} if state.together else {}
    for dtype in (np.float32, np.float64):
        for weighted in (False, True):
            drawn = sample(state.needs(), np.random.default_rng(0), 2, "plain", weighted=weighted)
            drawn = fitting(state, drawn | apart)
            columns = {
                n: c.astype(dtype) if c.dtype.kind == "f" and n != "sample_weight" else c for n, c in drawn.items()
            }
            made.reset()
            for _ in range(2 if state.together is None else 1):  # what waits is united, then united with more
                _read(made.update(columns), made.state)
            if state.together is None:
                _read(made.update(**columns), made.state)  # plain arrays go another way than tables
            Sliced(made, by="key").update(columns | {"key": np.array([1, 2])})
            Sliced(made, by=("key", "text")).update(columns | {"key": [1, 2], "text": ["a", "b"]})
    for other in others:
        _read(other, made.state)


def _read(metric: Metric[Any, Any], state: Any) -> Any:
    """Return the value of a state, without a warning of few rows."""
    return metric.reading(state).value


def _feed_scores(dtype: Any) -> None:
    """Take scores by the ways that few rows of one metric do not go."""
    y, s, w = np.array([0, 1, 1, 0], np.uint8), np.array([0.1, 0.9, 0.4, 0.3], dtype), np.array([1.0, 2.0, 0.5, 1.0])
    for scale in ("probability", "real"):
        for limit in (0, 2):  # counted in buckets, and folded into them; real scores of so few bits at once
            fed = AUC(scale=scale, limit=limit, bits=10 if scale == "real" and limit else None).update(y, s)
            fed.compute()
            fed.update(y, s).update(y, s, sample_weight=w).compute()
        wide = Sliced(AUC(scale=scale, bits=24, limit=0), by="key")  # too many places for a byte each
        wide.update(y, s, key=[2, 1, 2, 1]).compute()
        wide.merge(wide.copy()).update(y, s, key=[0, 1, 0, 1]).compute()
        Sliced(AUC(scale=scale, bits=12), by="key").update(y, s, key=[2, 1, 2, 1]).compute()
        sharded = Sharded(AUC(scale=scale, limit=0), unit="unit")
        for _ in range(2):  # the first batch meets the shards
            sharded.update(y, s, unit=np.arange(4))
        sharded.interval()
        sharded.update(y, s, unit=np.arange(4), sample_weight=w)
    both, apart = np.array([y, 1 - y]).T, np.array([s, 1 - s]).T
    LogLoss(num_labels=2, scale="logit").update(both, apart)
    AUC(num_classes=2, scale="logit").update(y, apart)
    for kept in (0, 2, None):
        for rows in ({"y_true": both, "y_score": apart}, {"y_true": both, "y_score": apart, "sample_weight": w}):
            AUC(num_labels=2, limit=kept).update(rows).update(rows).compute()
            Sliced(AUC(num_labels=2, limit=kept), by="key").update(rows | {"key": np.array([2, 1, 2, 1])}).compute()
    many = AUC(exact=True).update(np.arange(64) % 2, (np.arange(64) / 64).astype(dtype))
    many.compute()
    many.update(y, s).compute()  # few among many
    two = MetricCollection({"a": Task(AUC()), "b": Task(AUC(), y_true="x", y_score="v")})
    two.update(y_true=y, y_score=s, x=y, v=s)
    MetricCollection({"a": Task(AUC()), "b": Task(AUC(), y_score="v")}).update(y_true=y, y_score=s, v=s)
    if dtype is np.float32:  # as half floats are read
        AUC().update(y.astype(np.float16), s.astype(np.float16))
    MetricCollection(Task(AUC(), where="x")).update(y_true=y, y_score=s, x=y)
    for grouped in ({"grouped": "sorted"}, {"sample": True, "sample_rows": 2}):
        metric = GroupAUC(**grouped).update(y, s, group=[1, 2, 2, 2])
        _read(metric.update(y, s, group=[4, 5, 5, 5]), metric.state)
        full = GroupAUC(**grouped).update(np.arange(200) % 2, np.zeros(200, dtype), group=[0, *[1] * 198, 2])
        _read(full, full.state)


def _feed_keys() -> None:
    """Take keys that lie far apart, units of shards, and classes that are predicted."""
    CTR().update([0, 1])
    Sliced(CTR(), by="key").update(y_true=[0, 1], key=[1, 1 << 40])
    Batch({"text": ["a", "b"]}).column("text", Ids())
    shards = CTR().make_state().empty((Axis(("unit",), "shard", 8),))
    for unit in ([1, 2], ["a", "b"]):
        Feed([Read(shards, PLAIN)]).count({"y_true": [0, 1], "unit": unit})
    for known in ({"num_classes": 3, "threshold": None}, {"labels": "discover"}):
        Accuracy(**known).update([0, 1], [1, 1]).update([0, 1], [1, 1], sample_weight=[1.0, 2.0]).compute()
        Sliced(Accuracy(**known), by="key").update(y_true=[0, 1], y_pred=[1, 1], key=[0, 1])
    predicted = np.array([0, 1])
    made = Accuracy(num_classes=3, threshold=None)
    two = MetricCollection({"a": Task(made), "b": Task(made, y_true="x", y_pred="z")})
    two.update(y_true=predicted, y_pred=predicted, x=predicted, z=predicted)
    Level().locate(np.empty(0, np.int64), 1, np.array([0, 1 << 40]))
    sorted_copy(np.arange(4096)[::-1])


def _feed_many_values() -> None:
    """Count more different numbers than a cell keeps exactly, in one cell and in two."""
    values = np.random.default_rng(0).normal(size=1 << 14)
    keys = np.arange(len(values)) % 2
    for made in (Quantile(), Sliced(Quantile(), by="key")):
        made.update({"value": values, "key": keys}).compute()
    pairs = SpearmanCorrelation(limit=0).update(values, values[::-1])
    pairs.merge(pairs.copy()).compute()


def _variants(metric: Any) -> Iterator[Metric[Any, Any]]:
    """Yield the metric for every scale it has, with exact scores, and of several classes and labels."""
    declared = {f.name: f.metadata.get("rules", {}) for f in fields(metric)}
    scales = declared["scale"]["choices"] if "scale" in declared else ()
    given: list[dict[str, Any]] = [{"scale": scale} for scale in scales] or [{}]
    given += [{"exact": True}] if "exact" in declared else []
    given += [{which: 2} for which in sorted({"num_classes", "num_labels"} & set(declared))]
    given += [{"soft_labels": True} | more for more in ({}, {"num_labels": 2})] if "soft_labels" in declared else []
    for settings in given:
        with suppress(ValueError):  # some are of probabilities, of labels, of two classes alone
            yield metric(**{**metric.about.example, **settings})
