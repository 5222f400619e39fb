"""Collections of the same metrics in another order: what is added up is of one name, wherever it stands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import streammetrics as sm

ROWS = {"x": np.array([1, 1, 0]), "y": np.array([0, 0, 1]), "p": np.array([0.2, 0.9, 0.4]), "v": ["a", "b", "b"]}


def tasks(*order: str) -> dict[str, sm.Task]:
    """Two tasks of one metric each, of the same kind, so that their states would fit each other."""
    return {name: sm.Task(sm.CTR(), y_true=name) for name in order}


def sliced(*order: str) -> Any:
    return sm.Sliced(tasks(*order), by="v")


KINDS: dict[str, Callable[..., Any]] = {
    "collection": lambda *order: sm.MetricCollection(tasks(*order)),
    "slices": sliced,
    "shards": lambda *order: sm.Sharded(tasks(*order), unit="v"),
    "around": lambda *order: sm.MetricCollection(
        {name: {"x": sliced("x", "y"), "y": sm.Task(sm.CTR(), y_true="x")}[name] for name in order}
    ),
}


@pytest.fixture(params=KINDS)
def make(request: pytest.FixtureRequest) -> Callable[..., Any]:
    return KINDS[request.param]


def one(make: Callable[..., Any], *order: str) -> Any:
    return make(*order).update(ROWS)


def test_merging(make: Callable[..., Any]) -> None:
    here, there = one(make, "x", "y"), one(make, "y", "x")
    expected = one(make, "x", "y").merge(one(make, "x", "y"))
    assert sm.merge([here, there]).digest() == expected.digest()
    assert sm.merge([here.to_bytes(), there.to_bytes()]).digest() == expected.digest()
    assert here.copy().merge(there).compute() == expected.compute()
    assert there.digest() == one(make, "y", "x").digest()


def test_taking_away(make: Callable[..., Any]) -> None:
    both = one(make, "x", "y").update(ROWS)
    assert both.subtract(one(make, "y", "x")).digest() == one(make, "x", "y").digest()


def test_ledgers_and_corrections(make: Callable[..., Any]) -> None:
    ledger = sm.Ledger(make("x", "y")).add(1, one(make, "y", "x")).add(2, one(make, "x", "y"))
    assert ledger.total.digest() == one(make, "x", "y").update(ROWS).digest()
    assert ledger.add(1, one(make, "x", "y")).total.digest() == one(make, "x", "y").update(ROWS).digest()
    total = sm.Delta(make("y", "x")).update(ROWS).apply_to(one(make, "x", "y"))
    assert total.digest() == one(make, "x", "y").update(ROWS).digest()


def test_what_they_share() -> None:
    here = sm.MetricCollection(sm.CTR(), sm.LogLoss()).update(ROWS["x"], ROWS["p"])
    there = sm.MetricCollection(sm.AUC(), sm.LogLoss(), sm.CTR()).update(ROWS["y"], ROWS["p"])
    expected = sm.MetricCollection(sm.CTR(), sm.LogLoss())
    expected.update(ROWS["x"], ROWS["p"]).update(ROWS["y"], ROWS["p"])
    assert sm.merge([here, there], metrics="common").digest() == expected.digest()


def test_another_order_within_is_refused() -> None:
    """Only the order of what is merged is brought to that of the other."""
    here, there = (sm.MetricCollection({"in": sliced(*order)}).update(ROWS) for order in ("xy", "yx"))
    before = here.digest()
    with pytest.raises(sm.IncompatibleStateError, match="of 'in' is x/ctr, y/ctr here and y/ctr, x/ctr there"):
        here.merge(there)
    assert here.digest() == before
