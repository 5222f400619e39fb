"""Window and lifetime values are those of the updates that they speak of."""

from __future__ import annotations

from typing import Any

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


def test_a_window_of_the_last_updates() -> None:
    ours = Lifetime(metrics(), window=8, panes=4)
    for i, (y, p) in enumerate(BATCHES):
        ours.update(y, p)
        found = ours.compute()
        assert list(found)[:2] == ["ctr/window_auc", "ctr/window_log_loss"]
        assert list(found)[3:] == ["ctr/lifetime_auc", "ctr/lifetime_log_loss", "lifetime_ctr"]
        start = max(0, (i + 1) // 2 * 2 - 6)
        assert i + 1 - start <= 8
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
    assert Lifetime(seen).update([0]).compute() == {"window_ctr": 0.0, "lifetime_ctr": 0.75}
    ours = Lifetime(sm.CTR(), window=2, panes=2)
    with pytest.raises(sm.InvalidInputError):
        ours.update([2])
    assert ours.update([1]).compute() == {"window_ctr": 1.0, "lifetime_ctr": 1.0}
    for bad in ({"window": 1}, {"panes": 1}, {"window": 5}):
        with pytest.raises(ValueError, match="at least"):
            Lifetime(sm.CTR(), **bad)
    with pytest.raises(TypeError, match="not a Sliced"):
        Lifetime(sm.Sliced(sm.CTR(), by="a"))
