"""Ctrl-C and an end of memory at every instruction of a call: afterwards all of it is done, or nothing, and it goes on.

A signal handler of Python runs between instructions: after a call, at the start of a function, and at the end of a
turn of a loop. A tracer raises at each of these places, one run after the other. ``LAWS=150 pytest -m ""
tests/collect/test_interrupts.py`` takes every place, the short form some of each call; where the errors take turns.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

import draws
import faults
import numpy as np
import pytest

import streammetrics as sm
from streammetrics.collect.accumulator import definition_of
from streammetrics.collect.metric_like import MetricLike, columns_of, states_of
from streammetrics.numerics import kernel_registry
from streammetrics.numerics.signal_safety import run_uninterrupted

PLACES = 6  # of each call


def batch(rows: int, seed: int, names: Sequence[str]) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    drawn = {
        "y_true": rng.integers(0, 2, rows).astype(np.uint8),
        "y_score": rng.random(rows).astype(np.float32),
        "sample_weight": rng.integers(0, 8, rows) / 4,
        "group": rng.integers(0, 9, rows),
        "user": np.sort(rng.integers(0, 9, rows)),
        "country": rng.choice(["at", "be", "ch", "dk"], rows),
        "query": (query := np.sort(rng.integers(0, 9, rows))),
        "language": np.array(["de", "fr", "nl"])[query % 3],
        "day": rng.integers(0, 5, rows),
        "value": rng.integers(0, 30, rows),
        "class": rng.choice(["u", "v", f"w{seed}"], rows),
        "share": rng.random(rows),
        "relevance": rng.integers(0, 2, (rows, 3)),
        "scores": rng.random((rows, 3)),
        "step": np.full(rows, seed),
        "y_pred": rng.random(rows),
    }
    return {name: drawn[name] for name in names}


SORTED = {"query", "user"}
TWO = ("y_true", "y_score")
THREE = (*TWO, "sample_weight")
MADE: dict[str, tuple[Callable[[], Any], tuple[str, ...]]] = {
    "metric": (sm.AUC, TWO),
    "folds": (lambda: sm.AUC(limit=60), THREE),
    "losses": (sm.LogLoss, THREE),
    "collection": (lambda: sm.MetricCollection([sm.AUC(), sm.LogLoss(), sm.Accuracy(), sm.Calibration()]), THREE),
    "groups": (sm.GroupAUC, (*THREE, "group")),
    "sorted groups": (
        lambda: sm.MetricCollection(sm.Task(sm.GroupAUC(grouped="sorted"), group="user")),
        (*TWO, "user"),
    ),
    "with groups": (lambda: sm.MetricCollection([sm.AUC(), sm.GroupAUC()]), (*TWO, "group")),
    "ranking": (lambda: sm.NDCG(k=3), (*TWO, "query")),
    "slices": (lambda: sm.Sliced(sm.AUC(bits=12), by="country"), (*THREE, "country")),
    "folding slices": (lambda: sm.Sliced(sm.AUC(limit=12), by="country"), (*THREE, "country")),
    "folding slices of pairs": (
        lambda: sm.Sliced(sm.MetricCollection(sm.Task(sm.SpearmanCorrelation(limit=12), y_true="share")), by="country"),
        ("share", "y_pred", "country"),
    ),
    "limited": (lambda: sm.Sliced([sm.AUC(bits=12), sm.LogLoss()], by="group", limit=3), (*TWO, "group")),
    "nested": (lambda: sm.Sliced(sm.Sliced(sm.LogLoss(), by="day", limit=2), by="country"), (*THREE, "country", "day")),
    "distinct": (sm.DistinctCount, ("value",)),
    "distinct, sampled": (lambda: sm.Sliced(sm.DistinctSample(limit=16), by="country"), ("value", "country")),
    "exact": (lambda: sm.AUC(exact=True), THREE),
    "quantile": (lambda: sm.Quantile(q=0.5), ("value",)),
    "found classes": (
        lambda: sm.MetricCollection(sm.Task(sm.ConfusionMatrix(labels="discover"), y_true="class", y_pred="country")),
        ("class", "country"),
    ),
    "slices of groups": (lambda: sm.Sliced(sm.GroupAUC(), by="country"), (*TWO, "group", "country")),
    "slices of rankings": (lambda: sm.Sliced(sm.NDCG(k=3), by="language"), (*TWO, "query", "language")),
    "rows left out": (lambda: sm.MetricCollection([sm.AUC(), sm.GroupAUC()], on_invalid="drop"), (*TWO, "group")),
    "sample": (lambda: sm.GroupAUC(sample=True, sample_rows=20), (*TWO, "group")),
    "windows": (lambda: sm.Windowed([sm.AUC(bits=12), sm.LogLoss()], width=2, time="day", keep=1), (*TWO, "day")),
    "slices of windows": (
        lambda: sm.Sliced(sm.Windowed(sm.LogLoss(), width=2, time="day", keep=2), by="country", limit=2),
        (*THREE, "country", "day"),
    ),
    "corrections": (lambda: sm.Delta(sm.Windowed(sm.AUC(bits=12), width=2, time="day")), (*TWO, "day")),
    "shards": (lambda: sm.Sharded([sm.AUC(bits=12), sm.LogLoss()], unit="group", shards=8), (*THREE, "group")),
    "slices of shards": (
        lambda: sm.Sliced(sm.Sharded(sm.LogLoss(), unit="group", shards=8), by="country", limit=2),
        (*TWO, "group", "country"),
    ),
    "recent steps": (lambda: sm.Recent([sm.AUC(bits=12), sm.LogLoss()], steps=3), THREE),
    "recent rows": (lambda: sm.Recent(sm.Sliced(sm.LogLoss(), by="country"), rows=60), (*TWO, "country")),
    "decayed": (lambda: sm.Decayed([sm.AUC(bits=12), sm.LogLoss()], half_life=2), (*THREE, "step")),
    "soft labels": (
        lambda: sm.MetricCollection(
            sm.Task([sm.LogLoss(soft_labels=True), sm.Calibration(soft_labels=True)], y_true="share")
        ),
        ("share", "y_score"),
    ),
    "several labels": (
        lambda: sm.MetricCollection(
            sm.Task([sm.AUC(num_labels=3), sm.F1(num_labels=3)], y_true="relevance", y_score="scores")
        ),
        ("relevance", "scores"),
    ),
    "regression": (
        lambda: sm.MetricCollection(
            sm.Task([sm.MAE(), sm.R2(), sm.ErrorQuantile(), sm.SpearmanCorrelation()], y_true="share")
        ),
        ("share", "y_pred", "sample_weight"),
    ),
    "heavy hitters": (lambda: sm.HeavyHitters(k=3), ("value",)),
    "losses of groups": (sm.GroupLogLoss, (*TWO, "group")),
    "bundle": (
        lambda: sm.Bundle({"all": sm.AUC(), "sliced": sm.Sliced(sm.LogLoss(), by="country")}),
        (*TWO, "country"),
    ),
    "ledger": (lambda: sm.Ledger(sm.CTR()), ("y_true",)),
}
ONLY_MERGED = ("bundle", "ledger")


def batches(name: str) -> list[dict[str, Any]]:
    made = [batch(rows, seed, MADE[name][1]) for seed, rows in enumerate((40, 70, 50))]
    for i, b in enumerate(made):
        for role in SORTED & b.keys():
            b[role] = b[role] + 100 * i  # what was met does not return
    return made


def fed(name: str, batches: list[dict[str, Any]]) -> Any:
    thing = MADE[name][0]()
    for b in batches:
        count(thing, b)
    return thing


def count(thing: Any, batch: dict[str, Any]) -> None:
    if isinstance(thing, sm.Ledger):
        thing.add(str(len(batch["y_true"])), sm.CTR().update(batch))
        return
    for part in thing.values() if isinstance(thing, sm.Bundle) else [thing]:
        part.update({n: column for n, column in batch.items() if n in columns_of(part)})


CALLS: dict[str, Callable[[Any, str, list[dict[str, Any]]], Callable[[], Any]]] = {
    "plain arrays": lambda thing, name, b: lambda: thing.update(**b[1]),
    "a table": lambda thing, name, b: lambda: thing.update(b[1]),
    "merge": lambda thing, name, b: functools.partial(thing.merge, fed(name, b[1:2])),
    "subtract": lambda thing, name, b: functools.partial(thing.subtract, fed(name, b[:1])),
    "add": lambda thing, name, b: functools.partial(thing.add, "70", sm.CTR().update(b[1])),
    "reset": lambda thing, name, b: thing.reset,
}


def cases() -> list[tuple[str, str]]:
    made = {name: make() for name, (make, _) in MADE.items()}
    return [(name, call) for name in MADE for call in CALLS if takes(made[name], name, call)]


def takes(thing: Any, name: str, call: str) -> bool:
    """Whether there is such a call."""
    if call == "subtract":
        return (
            isinstance(thing, MetricLike)
            and definition_of(thing).adds
            and all(s.can_subtract for s in states_of(thing))
        )
    if name == "recent rows" and call == "merge":
        return False
    return {"add": name == "ledger", "merge": True, "reset": True}.get(call, name not in ONLY_MERGED)


def fresh(name: str, call: str, given: list[dict[str, Any]]) -> Any:
    """What has seen the first batch: as it was counted, or as it was read."""
    thing = fed(name, given[: 2 if call == "subtract" else 1])
    return sm.from_bytes(thing.to_bytes()) if call == "merge" else thing


def outcomes(name: str, call: str, given: list[dict[str, Any]]) -> tuple[bytes, bytes, bytes]:
    """What is seen before, and after, where nothing fails, and one batch later; by then everything is compiled."""
    thing = fresh(name, call, given)
    before = thing.to_bytes()
    CALLS[call](thing, name, given)()
    after = thing.to_bytes()
    count(thing, given[2])
    return before, after, thing.to_bytes()


@pytest.mark.slow
@pytest.mark.parametrize(("name", "call"), cases())
def test_all_or_nothing(name, call):
    given = batches(name)
    before, after, later = outcomes(name, call, given)
    assert before != after
    assert (before, after, later) == outcomes(name, call, given)
    every = faults.At(None, KeyboardInterrupt)
    every.run(CALLS[call](fresh(name, call, given), name, given))
    assert every.passed > 5
    places, errors = faults.places(every.passed, PLACES), (KeyboardInterrupt, MemoryError)
    both = ((stop, error) for stop in places for error in errors)
    turns = zip(places, itertools.cycle(errors), strict=False)
    for stop, error in both if draws.TIMES > 1 else turns:
        thing = fresh(name, call, given)
        made = CALLS[call](thing, name, given)
        at = faults.At(stop, error)  # which keeps what it raised: a handler of it sees this
        interrupted = at.run(made)
        seen, where = thing.to_bytes(), f"{error.__name__} at place {stop} of {every.passed}"
        assert interrupted or seen == after, where
        assert seen in (before, after), f"{where}: torn"
        if seen == before:
            made()
            assert thing.to_bytes() == after, f"{where}: does not go on"
        count(thing, given[2])
        assert thing.to_bytes() == later, f"{where}: goes on with something else"


@pytest.mark.parametrize(("name", "call"), cases())
def test_a_kernel_that_fails(name, call, monkeypatch):
    """Of those that prepare: memory may end there. Those that count need none, which tests/kernels makes sure of."""
    given = batches(name)
    before, after, _ = outcomes(name, call, given)
    real, passed, stop = kernel_registry._FIND[0], 0, 0

    def find(kernel: str) -> Callable[..., Any]:
        found = real(kernel)

        def run(*given: Any) -> Any:
            nonlocal passed
            passed += 1
            if passed == stop:
                raise MemoryError
            return found(*given)

        return run

    for stop in range(1, 1000):
        thing, passed = fresh(name, call, given), 0
        made = CALLS[call](thing, name, given)
        with monkeypatch.context() as patch:
            patch.setattr(kernel_registry, "_FIND", [find])
            passed = 0
            with contextlib.suppress(MemoryError):
                made()
        seen = thing.to_bytes()
        assert seen == (before if passed >= stop else after), f"call {stop}: torn"
        if passed < stop:
            break
        made()
        assert thing.to_bytes() == after, f"call {stop}: does not go on"


INTERRUPTED_IMPORT = """
import signal, sys
import streammetrics as sm

class Finder:
    left = int(sys.argv[1])

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        cls.left -= name.startswith(("numba", "streammetrics."))
        if not cls.left:
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Finder)
auc = sm.AUC()
try:
    auc.update([0, 1, 1], [0.1, 0.5, 0.7])
except KeyboardInterrupt:
    print("interrupted")
print(auc.reset().update([0, 1, 1], [0.1, 0.5, 0.7]).compute())
"""


@pytest.mark.slow
@pytest.mark.parametrize("module", [20, 60, 110])
def test_ctrl_c_while_numba_is_imported(module: int) -> None:
    command = [sys.executable, "-c", INTERRUPTED_IMPORT, str(module)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["interrupted", "1.0"]


def test_ctrl_c_while_a_thread_starts_does_not_run_the_function_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python can replace a KeyboardInterrupt in Thread.start by a RuntimeError about a lock."""
    start, calls = threading.Thread.start, []

    def interrupted_start(thread: threading.Thread) -> None:
        start(thread)
        try:
            raise KeyboardInterrupt
        finally:
            raise RuntimeError("cannot release un-acquired lock")

    monkeypatch.setattr(threading.Thread, "start", interrupted_start)
    with pytest.raises(KeyboardInterrupt):
        run_uninterrupted(lambda: calls.append(threading.current_thread()))
    assert threading.main_thread() not in calls


def test_a_function_is_called_directly_if_no_thread_can_start(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing_start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", failing_start)
    assert run_uninterrupted(threading.current_thread) is threading.main_thread()
