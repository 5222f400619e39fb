"""Ctrl-C and an end of memory at every instruction of a call: afterwards all of it is done, or nothing, and it goes on.

A signal handler of Python runs between instructions: after a call, at the start of a function, and at the end of a
turn of a loop. A tracer raises at each of these places, one run after the other. ``LAWS=150 pytest
tests/collect/test_interrupts.py`` takes every place, the short form some of each call.
"""

from __future__ import annotations

import contextlib
import functools
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

import faults
import numpy as np
import pytest

import streammetrics as sm
from streammetrics.numerics import compiled

PLACES = 8  # of each call and error


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
    "bundle": (
        lambda: sm.Bundle({"all": sm.AUC(), "sliced": sm.Sliced(sm.LogLoss(), by="country")}),
        (*TWO, "country"),
    ),
}
ONLY_MERGED = ("bundle",)


def batches(name: str) -> list[dict[str, Any]]:
    made = [batch(rows, seed, MADE[name][1]) for seed, rows in enumerate((40, 70))]
    for i, b in enumerate(made):
        for role in SORTED & b.keys():
            b[role] = b[role] + 100 * i  # what was met does not return
    return made


def fed(name: str, batches: list[dict[str, Any]]) -> Any:
    thing = MADE[name][0]()
    for b in batches:
        for part in thing.values() if isinstance(thing, sm.Bundle) else [thing]:
            part.update({n: column for n, column in b.items() if n in part.columns})
    return thing


CALLS: dict[str, Callable[[Any, str, list[dict[str, Any]]], Callable[[], Any]]] = {
    "plain arrays": lambda thing, name, b: lambda: thing.update(**b[1]),
    "a table": lambda thing, name, b: lambda: thing.update(b[1]),
    "merge": lambda thing, name, b: functools.partial(thing.merge, fed(name, b[1:])),
}


def cases() -> list[tuple[str, str]]:
    return [(name, call) for name in MADE for call in CALLS if call == "merge" or name not in ONLY_MERGED]


def fresh(name: str, call: str, given: list[dict[str, Any]]) -> Any:
    """What has seen the first batch: as it was counted, or as it was read."""
    thing = fed(name, given[:1])
    return sm.from_bytes(thing.to_bytes()) if call == "merge" else thing


def outcomes(name: str, call: str, given: list[dict[str, Any]]) -> tuple[bytes, bytes]:
    """What is seen before, and after, where nothing fails; by then everything is compiled."""
    thing = fresh(name, call, given)
    before = thing.to_bytes()
    CALLS[call](thing, name, given)()
    return before, thing.to_bytes()


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
@pytest.mark.parametrize(("name", "call"), cases())
def test_all_or_nothing(name, call, error):
    given = batches(name)
    before, after = outcomes(name, call, given)
    assert before != after == outcomes(name, call, given)[1]
    count = faults.At(None, error)
    count.run(CALLS[call](fresh(name, call, given), name, given))
    assert count.passed > 10
    for stop in faults.places(count.passed, PLACES):
        thing = fresh(name, call, given)
        made = CALLS[call](thing, name, given)
        interrupted = faults.At(stop, error).run(made)
        seen = thing.to_bytes()
        assert interrupted or seen == after, f"place {stop} of {count.passed}"
        assert seen in (before, after), f"place {stop} of {count.passed}: torn"
        if seen == before:
            made()
            assert thing.to_bytes() == after, f"place {stop} of {count.passed}: does not go on"


@pytest.mark.parametrize(("name", "call"), cases())
def test_a_kernel_that_fails(name, call, monkeypatch):
    """Of those that prepare: memory may end there. Those that count need none, which tests/kernels makes sure of."""
    given = batches(name)
    before, after = outcomes(name, call, given)
    real, passed, stop = compiled._FIND[0], 0, 0

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
            patch.setattr(compiled, "_FIND", [find])
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


@pytest.mark.parametrize("module", [20, 60, 110])
def test_ctrl_c_while_numba_is_imported(module: int) -> None:
    command = [sys.executable, "-c", INTERRUPTED_IMPORT, str(module)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["interrupted", "1.0"]
