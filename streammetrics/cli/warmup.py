"""`streammetrics warmup`: update every metric with rows of every kind, so that all kernels are compiled and cached."""

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
from streammetrics.batch.keys import FEW_TEXTS
from streammetrics.collect.collection import MetricCollection
from streammetrics.collect.metric import METRICS, Metric
from streammetrics.collect.task import Task
from streammetrics.compose.sharded import Sharded
from streammetrics.compose.sliced import Sliced
from streammetrics.count.batch_updater import BatchUpdater
from streammetrics.count.index import Level
from streammetrics.count.key_codes import DictionaryCodes
from streammetrics.count.reads import Read
from streammetrics.count.tallies import MANY_CODES, count_codes, sorted_copy
from streammetrics.laws.specimens import make_consistent, sample
from streammetrics.metrics.curves.areas import AUC
from streammetrics.metrics.decisions.agreement import Accuracy
from streammetrics.metrics.groups.auc import GroupAUC
from streammetrics.metrics.probabilities.losses import CTR, LogLoss
from streammetrics.metrics.regression.ranks import SpearmanCorrelation
from streammetrics.metrics.values.quantiles import Quantile
from streammetrics.numerics.kernel_registry import find_kernel
from streammetrics.state.axes import Axis

__all__ = ["warm_up"]

NO_FOLDER = "no cache folder is writable, so every process compiles again; set NUMBA_CACHE_DIR to a writable folder"
# The maximum number of processes. More processes would only wait for kernels that others are compiling.
MAX_PROCESSES = 8


def warm_up() -> None:
    """Compile all kernels in parallel processes, and print how long this took."""
    began = time.perf_counter()
    from streammetrics.count.engine import writable_folder

    compiled, variants = _compile_all(min(os.cpu_count() or 1, MAX_PROCESSES))
    folder = writable_folder()
    seconds = time.perf_counter() - began
    cached, kernels = max(len(variants) - compiled, 0), len({name for name, _ in variants})
    print(f"{kernels} kernels, {len(variants)} variants in {seconds:.1f} s: {cached} were in the cache")
    print(f"cache: {folder}" if folder else f"kernels are not cached: {NO_FOLDER}")


def _compile_all(processes: int) -> tuple[int, set[tuple[str, str]]]:
    """Run the functions of `list_work` in several processes, so that all kernels are compiled.

    If a function needs a kernel that another process is compiling, the function goes back to the end of the queue.

    Returns
    -------
    compiled : int
        The number of kernel variants that were compiled rather than loaded from the cache.
    variants : set of tuple of str
        The kernel name and argument types of each variant in use.
    """
    waiting, running = deque(range(len(list_work()))), dict[Future[Any], int]()
    compiled, variants = 0, set[tuple[str, str]]()
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        while waiting or running:
            while waiting and len(running) < processes:
                part = waiting.popleft()
                running[pool.submit(_compile_part, part, patient=not waiting)] = part
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                is_done, misses, new_variants = future.result()
                compiled, variants, part = compiled + misses, variants | new_variants, running.pop(future)
                if not is_done:
                    waiting.append(part)
    return compiled, variants


def _compile_part(part: int, *, patient: bool) -> tuple[bool, int, set[tuple[str, str]]]:
    """Run the function at index `part` in the list that `list_work` returns.

    If another process is compiling a kernel that the function needs, wait for it if `patient` is true; otherwise stop.

    Returns
    -------
    is_done : bool
        Whether the function ran to completion.
    compiled : int
        The number of kernel variants that this call compiled.
    variants : set of tuple of str
        The kernel name and argument types of each variant in use in this process.
    """
    from streammetrics.count.engine import KERNELS, BusyError, count_compilations, raise_if_busy

    before, is_done = count_compilations(), True
    try:
        with nullcontext() if patient else raise_if_busy():
            list_work()[part]()
    # Another process is compiling a kernel that the function needs, so the caller will run the function again later.
    except BusyError:
        is_done = False
    variants = {(f"{k.function.__module__}.{k.__name__}", str(s)) for k in KERNELS for s in k.dispatcher.overloads}
    return is_done, count_compilations() - before, variants


def feed_all() -> None:
    """Update every metric with rows of each dtype, with and without weights and slices."""
    for part in list_work():
        part()


def list_work() -> list[Callable[[], None]]:
    """Return functions that update metrics with a few rows. Together, they call all kernels and so compile them."""
    alike: dict[tuple[str, str], list[Metric[Any, Any]]] = {}
    for metric in chain.from_iterable(map(_variants, METRICS.values())):
        state = metric.make_state()
        alike.setdefault((state.tag, repr(sorted(state.settings.items()))), []).append(metric)
    fed = [partial(_feed_metrics, *metrics) for metrics in alike.values()]
    return [*fed, *(partial(_feed_scores, dtype) for dtype in (np.float32, np.float64)), _feed_keys, _feed_many_values]


def _feed_metrics(metric: Metric[Any, Any], *others: Metric[Any, Any]) -> None:
    """Update a metric in every way that calls a different kernel; then compute `others` from the same state."""
    state = metric.make_state()
    block_column = {state.block_column: np.array([1, 2])} if state.block_column else {}
    for dtype in (np.float32, np.float64):
        for weighted in (False, True):
            rows = sample(state.needs(), np.random.default_rng(0), 2, "plain", weighted=weighted)
            rows = make_consistent(state, rows | block_column)
            columns = {
                n: c.astype(dtype) if c.dtype.kind == "f" and n != "sample_weight" else c for n, c in rows.items()
            }
            metric.reset()
            # The second update uses a different kernel, which merges new rows into those already in the state.
            for _ in range(2 if state.block_column is None else 1):
                _read_value(metric.update(columns), metric.state)
            if state.block_column is None:
                # Arrays take a different code path from tables.
                _read_value(metric.update(**columns), metric.state)
            Sliced(metric, by="key").update(columns | {"key": np.array([1, 2])})
            Sliced(metric, by=("key", "text")).update(columns | {"key": [1, 2], "text": ["a", "b"]})
    for other in others:
        _read_value(other, metric.state)


def _read_value(metric: Metric[Any, Any], state: Any) -> Any:
    """Return the value of a state without warning about few rows."""
    return metric.reading(state).value


def _feed_scores(dtype: Any) -> None:
    """Update score metrics in ways that `_feed_metrics` does not, for example in a collection of several tasks."""
    y, s, w = np.array([0, 1, 1, 0], np.uint8), np.array([0.1, 0.9, 0.4, 0.3], dtype), np.array([1.0, 2.0, 0.5, 1.0])
    for scale in ("probability", "real"):
        # With limit=0, all scores are counted in buckets. With limit=2, up to two rows are stored exactly; if there are
        # more, all are converted to buckets.
        for limit in (0, 2):
            auc = AUC(scale=scale, limit=limit, bits=10 if scale == "real" and limit else None).update(y, s)
            auc.compute()
            auc.update(y, s).update(y, s, sample_weight=w).compute()
        # If a histogram has few buckets, an array with a byte for each bucket marks the occupied buckets. With bits=24,
        # there are too many buckets for such an array, so the update takes a different code path.
        wide = Sliced(AUC(scale=scale, bits=24, limit=0), by="key")
        wide.update(y, s, key=[2, 1, 2, 1]).compute()
        wide.merge(wide.copy()).update(y, s, key=[0, 1, 0, 1]).compute()
        Sliced(AUC(scale=scale, bits=12), by="key").update(y, s, key=[2, 1, 2, 1]).compute()
        # With the second batch, the slice has too many rows to stay exact, so its rows are converted to buckets.
        folding = Sliced(AUC(scale=scale, limit=2), by="key")
        folding.update(y[:2], s[:2], key=[1, 1]).update(y[:2], s[:2], key=[1, 1]).compute()
        sharded = Sharded(AUC(scale=scale, limit=0), unit="unit")
        # The first batch creates the shards. The second updates existing shards, which takes a different code path.
        for _ in range(2):
            sharded.update(y, s, unit=np.arange(4))
        sharded.interval()
        sharded.update(y, s, unit=np.arange(4), sample_weight=w)
    label_matrix, score_matrix = np.array([y, 1 - y]).T, np.array([s, 1 - s]).T
    LogLoss(num_labels=2, scale="logit").update(label_matrix, score_matrix)
    AUC(num_classes=2, scale="logit").update(y, score_matrix)
    for row_limit in (0, 2, None):
        for rows in (
            {"y_true": label_matrix, "y_score": score_matrix},
            {"y_true": label_matrix, "y_score": score_matrix, "sample_weight": w},
        ):
            AUC(num_labels=2, limit=row_limit).update(rows).update(rows).compute()
            few = {name: column[:2] for name, column in rows.items()} | {"key": np.array([1, 1])}
            Sliced(AUC(num_labels=2, limit=row_limit), by="key").update(few).update(few).compute()
            Sliced(AUC(num_labels=2, limit=row_limit), by="key").update(
                rows | {"key": np.array([2, 1, 2, 1])}
            ).compute()
    many = AUC(exact=True).update(np.arange(64) % 2, (np.arange(64) / 64).astype(dtype))
    many.compute()
    # This update uses a different kernel, which merges a few new rows into many old ones.
    many.update(y, s).compute()
    two = MetricCollection({"a": Task(AUC()), "b": Task(AUC(), y_true="x", y_score="v")})
    two.update(y_true=y, y_score=s, x=y, v=s)
    MetricCollection({"a": Task(AUC()), "b": Task(AUC(), y_score="v")}).update(y_true=y, y_score=s, v=s)
    # float16 scores are converted to float32, so only the call with float32 as `dtype` needs to update with them.
    if dtype is np.float32:
        AUC().update(y.astype(np.float16), s.astype(np.float16))
    MetricCollection(Task(AUC(), where="x")).update(y_true=y, y_score=s, x=y)
    for grouped in ({"grouped": "sorted"}, {"sample": True, "sample_rows": 2}):
        metric = GroupAUC(**grouped).update(y, s, group=[1, 2, 2, 2])
        _read_value(metric.update(y, s, group=[4, 5, 5, 5]), metric.state)
        full = GroupAUC(**grouped).update(np.arange(200) % 2, np.zeros(200, dtype), group=[0, *[1] * 198, 2])
        _read_value(full, full.state)


def _feed_keys() -> None:
    """Update metrics with integer keys that are far apart, string keys, shards of units, and predicted classes."""
    CTR().update([0, 1])
    sliced = Sliced(CTR(), by="key").update(y_true=[0, 1], key=[1, 1 << 40])
    for _ in range(2):
        sliced.update(y_true=np.array([0, 1]), key=np.array([1, 1]))
    # Nine slices with weights have too many buckets to store a counter for each, so each row is buffered as a code for
    # its slice and bucket. A few codes are sorted; many codes are counted in a table. The two batches cover both cases.
    for rows in (16, 1 << 18):
        key = np.arange(rows) % 9
        Sliced(AUC(limit=0), by="key").update(key % 2, key / 16, sample_weight=key / 16, key=key).compute()
    # A kernel encodes the strings of an array only if there are many of them.
    many = np.arange(2 * FEW_TEXTS)
    for kind in ("U", "S"):
        Sliced(CTR(), by="key").update(y_true=many % 2, key=many.astype(kind))
    # The strings of a polars data frame are read from views of 16 bytes each. Compile the kernel that reads views.
    view = np.frombuffer(bytes(16), np.int32).reshape(1, 4)
    find_kernel("keys:find_view_bounds")(view, 4, 16, *np.empty((2, 1), np.int64))
    Batch({"text": ["a", "b"]}).column("text", Ids())
    shards = CTR().make_state().empty_copy((Axis(("unit",), "shard", 8),))
    for unit in ([1, 2], ["a", "b"]):
        BatchUpdater([Read(shards, PLAIN)]).count({"y_true": [0, 1], "unit": unit})
    for settings in ({"num_classes": 3, "threshold": None}, {"labels": "discover"}):
        Accuracy(**settings).update([0, 1], [1, 1]).update([0, 1], [1, 1], sample_weight=[1.0, 2.0]).compute()
        Sliced(Accuracy(**settings), by="key").update(y_true=[0, 1], y_pred=[1, 1], key=[0, 1])
    predicted = np.array([0, 1])
    accuracy = Accuracy(num_classes=3, threshold=None)
    two = MetricCollection({"a": Task(accuracy), "b": Task(accuracy, y_true="x", y_pred="z")})
    two.update(y_true=predicted, y_pred=predicted, x=predicted, z=predicted)
    for keys in (np.array([0, 1 << 40]), DictionaryCodes(np.array([0, 1]), np.array([0, 1], np.int32))):
        Level().locate(np.empty(0, np.int64), 1, keys)
    for dtype in (np.float32, np.float64):
        codes = np.linspace(1, 0, MANY_CODES, dtype=dtype).astype(np.float64).view(np.uint64) << np.uint64(1)
        count_codes(sorted_copy(codes))


def _feed_many_values() -> None:
    """Update metrics with more distinct values than they store exactly, first without slices, then with two slices."""
    values = np.random.default_rng(0).normal(size=1 << 14)
    keys = np.arange(len(values)) % 2
    for metric in (Quantile(), Sliced(Quantile(), by="key")):
        metric.update({"value": values, "key": keys}).compute()
    pairs = SpearmanCorrelation(limit=0).update(values, values[::-1])
    pairs.merge(pairs.copy()).compute()


def _variants(metric: Any) -> Iterator[Metric[Any, Any]]:
    """Yield the metric once for each setting that changes which kernels it uses.

    These settings are every scale of the scores, exact scores, two classes, two labels, and soft labels; those that the
    metric does not support are skipped.
    """
    declared = {f.name: f.metadata.get("rules", {}) for f in fields(metric)}
    scales = declared["scale"]["choices"] if "scale" in declared else ()
    settings_list: list[dict[str, Any]] = [{"scale": scale} for scale in scales] or [{}]
    settings_list += [{"exact": True}] if "exact" in declared else []
    settings_list += [{setting: 2} for setting in sorted({"num_classes", "num_labels"} & set(declared))]
    settings_list += (
        [{"soft_labels": True} | more for more in ({}, {"num_labels": 2})] if "soft_labels" in declared else []
    )
    for settings in settings_list:
        # Skip a combination of settings that the metric does not support.
        with suppress(ValueError):
            yield metric(**{**metric.about.example, **settings})
