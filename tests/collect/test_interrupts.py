"""Ctrl-C and an end of memory at every instruction of a call: afterwards all of it is done, or nothing, and it goes on.

A signal handler of Python runs between instructions: after a call, at the start of a function, and at the end of a
turn of a loop. A tracer raises at each of these places, one run after the other. ``LAWS=100 pytest
tests/collect/test_interrupts.py`` takes every place, the short form some of each call.
"""

from __future__ import annotations

import dis
import functools
import gc
import itertools
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import draws
import numpy as np
import pytest

import streammetrics as sm

PACKAGE = str(Path(sm.__file__).parent)
PLACES = draws.tries(16)  # of each call
ASKED = ("CALL", "RESUME", "JUMP_BACKWARD")  # after these a handler may run


@functools.cache
def asked(code: Any) -> frozenset[int]:
    """Offsets of the instructions before which a handler may run."""
    steps = list(dis.get_instructions(code))
    here = {b.offset for a, b in itertools.pairwise(steps) if a.opname.startswith(ASKED[:2])}
    return frozenset(here | {s.offset for s in steps if s.opname.startswith(ASKED[2])})


class At:
    """Runs a call, counts the places of the package it passes, and raises at one of them."""

    def __init__(self, stop: int | None, error: type[BaseException]) -> None:
        self.stop, self.error, self.passed = stop, error, 0

    def __call__(self, frame: Any, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode" and frame.f_lasti in asked(frame.f_code):
            self.passed += 1
            if self.passed == self.stop:
                raise self.error
        return self

    def run(self, call: Callable[[], Any]) -> bool:
        """Return whether it was interrupted."""
        before = sys.gettrace()
        sys.settrace(self)
        try:
            call()
        except self.error:
            return True
        finally:
            sys.settrace(before)
        return False


def batch(rows: int, seed: int, names: Sequence[str]) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    drawn = {
        "y_true": rng.integers(0, 2, rows).astype(np.uint8),
        "y_score": rng.random(rows).astype(np.float32),
        "sample_weight": rng.integers(0, 8, rows) / 4,
        "group": rng.integers(0, 9, rows),
        "user": np.sort(rng.integers(0, 9, rows)),
        "country": rng.choice(["at", "be", "ch", "dk"], rows),
        "query": np.sort(rng.integers(0, 9, rows)),
        "day": rng.integers(0, 5, rows),
        "value": rng.integers(0, 30, rows),
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
}


def batches(name: str) -> list[dict[str, Any]]:
    made = [batch(rows, seed, MADE[name][1]) for seed, rows in enumerate((40, 70))]
    for i, b in enumerate(made):
        for role in SORTED & b.keys():
            b[role] = b[role] + 100 * i  # what was met does not return
    return made


def fed(name: str, batches: list[dict[str, Any]]) -> Any:
    thing = MADE[name][0]()
    for b in batches:
        thing.update(**b)
    return thing


CALLS: dict[str, Callable[[Any, str, list[dict[str, Any]]], Callable[[], Any]]] = {
    "plain arrays": lambda thing, name, b: lambda: thing.update(**b[1]),
    "a table": lambda thing, name, b: lambda: thing.update(b[1]),
    "merge": lambda thing, name, b: functools.partial(thing.merge, fed(name, b[1:])),
}


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("name", MADE)
def test_all_or_nothing(name, call, error):
    given = batches(name)
    before = fed(name, given[:1]).to_bytes()

    def fresh() -> Any:
        return sm.from_bytes(before) if call == "merge" else fed(name, given[:1])

    def whole() -> bytes:
        thing = fresh()
        CALLS[call](thing, name, given)()
        return thing.to_bytes()

    after = whole()
    assert before != after == whole()  # compiled now, and not while it is interrupted
    count = At(None, error)
    count.run(CALLS[call](fresh(), name, given))
    assert count.passed > 10
    rng = np.random.default_rng(0)
    every = np.arange(1, count.passed + 1)
    gc.collect()
    gc.disable()  # finalizers would be interrupted, which Python forgets
    try:
        for stop in every if len(every) <= PLACES else np.sort(rng.choice(every, PLACES, replace=False)):
            thing = fresh()
            made = CALLS[call](thing, name, given)
            at = At(int(stop), error)
            interrupted = at.run(made)
            seen = thing.to_bytes()
            assert interrupted or seen == after, f"place {stop} of {count.passed}"
            assert seen in (before, after), f"place {stop} of {count.passed}: torn"
            if seen == before:
                made()
                assert thing.to_bytes() == after, f"place {stop} of {count.passed}: does not go on"
    finally:
        gc.enable()
