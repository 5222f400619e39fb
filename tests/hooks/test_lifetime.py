"""Window and lifetime values are those of the updates that they speak of."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import faults
import numpy as np
import pytest

import streammetrics as sm
from streammetrics.collect import definition
from streammetrics.hooks.deferred import Deferred
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


@pytest.mark.parametrize("settings", [{"window": 4, "panes": 2}, {}])
def test_it_is_saved_and_goes_on(settings: dict[str, int]) -> None:
    """At every update, also in the middle of a pane, and with the window that has begun."""
    whole, resumed = Lifetime(sm.CTR(), **settings), Lifetime(sm.CTR(), **settings)
    for i, (y, _) in enumerate(BATCHES[:9]):
        whole.update(y)
        resumed = sm.from_bytes(resumed.to_bytes(), Lifetime).update(y)
        if i == 2:
            assert resumed.compute() == whole.compute()
        assert resumed == whole
        assert resumed.digest() == whole.digest()
    assert (resumed.window, resumed.panes) == (whole.window, whole.panes)
    assert pickle.loads(pickle.dumps(whole)) == whole.copy() == whole
    assert resumed.compute() == whole.compute()


def test_updates_of_two_processes_are_merged() -> None:
    parts = [Lifetime(sm.CTR(), window=4, panes=2) for _ in range(2)]
    for i in range(5):
        for part in parts:
            part.update(BATCHES[i][0] if part is parts[0] else [1])
    total = sm.merge([parts[0], parts[1].to_bytes()])
    want = [sm.CTR().update(np.concatenate([y for y, _ in batches] + [[1] * len(batches)])).compute()
            for batches in (BATCHES[2:5], BATCHES[:5])]  # fmt: skip
    assert list(total.compute().values()) == want
    with pytest.raises(sm.IncompatibleStateError, match="window is 4 here and None there"):
        parts[0].merge(Lifetime(sm.CTR()))
    with pytest.raises(sm.IncompatibleStateError, match="CTR"):
        parts[0].merge(sm.CTR())  # type: ignore[arg-type]


def test_it_is_deferred() -> None:
    ours, deferred = Lifetime(metrics(), window=8, panes=4), Deferred(Lifetime(metrics(), window=8, panes=4), every=4)
    for y, p in BATCHES[:11]:
        ours.update(y, p)
        deferred.update(y, p)
    assert deferred.compute() == ours.compute()
    assert deferred.digest() == ours.digest()


def test_bytes_of_a_module_that_is_not_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    data = Lifetime(sm.Mean(), window=6, panes=3).to_bytes()
    monkeypatch.delitem(definition.kinds, "lifetime")
    with pytest.raises(sm.StateFormatError, match="import the module that defines them, such as streammetrics"):
        sm.from_bytes(data)


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
        return [found.to_bytes() for found in thing._accumulator.window_state.parts]

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
