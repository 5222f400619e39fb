"""Window and lifetime values are those of the updates that they speak of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import faults
import numpy as np
import pytest

import streammetrics as sm
from streammetrics.hooks.lifetime import Lifetime

RNG = np.random.default_rng(5)
BATCHES = [((RNG.random(40) < 0.4).astype(int), RNG.random(40)) for _ in range(30)]


def metrics() -> sm.MetricCollection:
    return sm.MetricCollection({"ctr": sm.Task([sm.AUC(), sm.LogLoss()])}, sm.CTR())


def values(batches: Any) -> list[float]:
    made = metrics()
    for y, p in batches:
        made.update(y, p)
    return list(made.compute().values())


@pytest.mark.slow
def test_a_window_of_the_last_updates() -> None:
    ours = Lifetime(metrics(), window=8, panes=4)
    for i, (y, p) in enumerate(BATCHES):
        ours.update(y, p)
        found = ours.compute()
        assert list(found)[:2] == ["ctr/window_auc", "ctr/window_log_loss"]
        assert list(found)[3:] == ["ctr/lifetime_auc", "ctr/lifetime_log_loss", "lifetime_ctr"]
        start = max(0, i // 2 * 2 - 6)
        assert 6 < i + 1 - start <= 8 or not start
        assert list(found.values()) == values(BATCHES[start : i + 1]) + values(BATCHES[: i + 1])


def test_a_window_since_the_last_compute() -> None:
    ours = Lifetime(metrics())
    for start, stop in ((0, 3), (3, 10)):
        for y, p in BATCHES[start:stop]:
            ours.update(y, p)
        assert list(ours.compute().values()) == values(BATCHES[start:stop]) + values(BATCHES[:stop])
    assert list(ours.flat()) == ["ctr/lifetime_auc", "ctr/lifetime_log_loss", "lifetime_ctr"]  # nothing since
    assert list(ours.reset().flat("nan")) == list(ours.compute())
    assert ours.flat() == {}


def test_it_goes_on_from_what_was_seen() -> None:
    seen = sm.CTR().update([1, 1, 1])
    ours = Lifetime(seen)
    assert ours.update([0]).compute() == {"window_ctr": 0.0, "lifetime_ctr": 0.75}
    assert ours.lifetime.compute() == 0.75
    assert seen.compute() == 1.0  # stays as it is
    ours = Lifetime(sm.CTR(), window=2, panes=2)
    with pytest.raises(sm.InvalidInputError):
        ours.update([2])
    assert ours.update([1]).compute() == {"window_ctr": 1.0, "lifetime_ctr": 1.0}
    for bad in ({"window": 1}, {"panes": 1}, {"window": 5}):
        with pytest.raises(ValueError, match="at least"):
            Lifetime(sm.CTR(), **bad)
    with pytest.raises(TypeError, match="an object of class Sliced"):
        Lifetime(sm.Sliced(sm.CTR(), by="a"))


@pytest.mark.slow
@pytest.mark.parametrize("call", ["update", "reset", "flat"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_all_or_nothing(call: str, error: type[BaseException]) -> None:
    """The update is one that begins a pane; and what `flat` tells, of a window since the last one, is told once."""

    def made() -> Lifetime:
        ours = Lifetime(sm.CTR(), window=4, panes=2) if call != "flat" else Lifetime(sm.CTR())
        for label in (1, 1, 0, 0):
            ours.update([label])
        return ours

    def seen(thing: Lifetime) -> list[bytes]:
        return [found.to_bytes() for _, found in thing._values()]

    def calls(thing: Lifetime) -> Callable[[], Any]:
        return {"update": lambda: thing.update([1]), "reset": thing.reset, "flat": thing.flat}[call]

    every = faults.At(None, error)
    every.run(calls(done := made()))
    states = [seen(made()), seen(done)]
    assert states[0] != states[1]
    assert every.passed > 5
    for stop in faults.places(every.passed, 30):
        faults.At(stop, error).run(calls(thing := made()))
        assert seen(thing) in states, f"torn at place {stop} of {every.passed}"
