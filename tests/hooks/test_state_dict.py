"""Metrics in a checkpoint: tensors that torch loads without pickle, and any number of ranks to go on with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import streammetrics as sm
from streammetrics.collect.metric_like import empty_copy
from streammetrics.hooks.lifetime import Lifetime

torch = pytest.importorskip("torch")

from streammetrics.hooks.torch import Deferred, load_state_dict, state_dict  # noqa: E402 - only where torch is

RNG = np.random.default_rng(11)


def metrics() -> sm.MetricCollection:
    return sm.MetricCollection(sm.AUC(), sm.CTR())


def fed(thing: Any, n: int = 50) -> Any:
    return thing.update((RNG.random(n) < 0.5).astype(int), RNG.random(n))


@pytest.mark.parametrize(
    "make",
    [metrics, sm.AUC, lambda: Deferred(metrics(), every=3), lambda: Deferred(Lifetime(metrics(), window=4, panes=2))],
)
def test_a_checkpoint_is_resumed(tmp_path: Path, make: Any) -> None:
    ours = fed(make())
    torch.save({"step": 7, "metrics": state_dict(ours)}, tmp_path / "checkpoint.pt")
    saved = torch.load(tmp_path / "checkpoint.pt", weights_only=True)["metrics"]
    assert all(t.dtype == torch.uint8 and t.ndim == 1 for t in saved.values())
    resumed = load_state_dict(fed(make()), saved)
    assert resumed.digest() == ours.digest()
    assert fed(resumed).digest() != ours.digest()
    (one,) = saved.values()
    assert sm.from_bytes(bytes(one.numpy())).digest() == ours.digest()


def test_names() -> None:
    arms = sm.Sliced(sm.CTR(), by="arm").update([0, 1, 1], arm=["a", "a", "b"])
    several = {"train": fed(metrics()), "valid": fed(sm.AUC()), "arms": arms, "all": sm.Bundle({"x": fed(sm.AUC())})}
    saved = state_dict(several)
    assert list(saved) == list(several)
    blank = {n: empty_copy(t) for n, t in several.items()}
    assert load_state_dict(blank, saved) is blank
    assert {n: t.digest() for n, t in blank.items()} == {n: t.digest() for n, t in several.items()}
    assert list(state_dict(sm.AUC())) == ["auc"]
    assert list(state_dict(Deferred(metrics()))) == ["metrics"]


@pytest.mark.parametrize("world", [1, 2, 3, 5])
def test_another_number_of_ranks(monkeypatch: pytest.MonkeyPatch, world: int) -> None:
    """Each saved row is in one rank."""
    old = [fed(metrics(), 10 * (i + 1)) for i in range(3)]
    whole = sm.merge([m.copy() for m in old]).digest()
    saved = [state_dict(m) for m in old]
    assert load_state_dict(metrics(), saved).digest() == whole
    ranks = []
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: world)
    for rank in range(world):
        monkeypatch.setattr(torch.distributed, "get_rank", lambda rank=rank: rank)
        ranks.append(load_state_dict(fed(metrics()), saved))
    assert sm.merge(ranks).digest() == whole
    assert load_state_dict(metrics(), saved[1]).digest() == old[1].digest()


def test_it_is_strict_and_changes_nothing() -> None:
    ours = {"a": fed(sm.AUC()), "b": fed(sm.CTR())}
    before = {n: t.digest() for n, t in ours.items()}
    good = state_dict(ours)
    cases = [
        ({"a": good["a"]}, sm.IncompatibleStateError, "expected a saved state of 'b', found states of a"),
        (good | {"c": good["a"]}, sm.IncompatibleStateError, "saved metrics called c, expected only a, b"),
        (good | {"b": good["a"]}, sm.IncompatibleStateError, r"b: .*AUC"),
        (good | {"b": state_dict(sm.AUC(bits=10))["auc"]}, sm.IncompatibleStateError, "b: "),
        (good | state_dict({"b": sm.MetricCollection(sm.CTR())}), sm.IncompatibleStateError, r"b: .*MetricCollection"),
        (good | {"b": good["b"][:-3]}, sm.StateFormatError, "b: "),
        (good | {"b": good["b"].float()}, sm.StateFormatError, "b: expected a uint8 tensor"),
        (good | {"b": good["b"][:0]}, sm.StateFormatError, "b: "),
        ([good, {"a": good["a"]}], sm.IncompatibleStateError, "expected a saved state of 'b'"),
    ]
    for saved, error, text in cases:
        with pytest.raises(error, match=text):
            load_state_dict(ours, saved)
        assert {n: t.digest() for n, t in ours.items()} == before
    with pytest.raises(sm.IncompatibleStateError, match="bits is None here and 10 there"):
        load_state_dict(sm.AUC(), state_dict(sm.AUC(bits=10)))


def test_a_bad_deferred_step_is_not_saved_silently() -> None:
    ours = fed(Deferred(metrics()))
    ours.update([2], [0.5])
    with pytest.raises(sm.InvalidInputError, match="step 1"):
        state_dict(ours)
    resumed = load_state_dict(fed(Deferred(metrics())), state_dict(ours))
    assert resumed.digest() == ours.digest()
