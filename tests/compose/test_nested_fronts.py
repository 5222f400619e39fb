"""Fronts in fronts: what is asked of a slice is asked of all that it holds; what was refused changes nothing."""

from __future__ import annotations

import numpy as np
import pytest

import streammetrics as sm
from streammetrics.collect.accumulator import accumulate, definition_of

ROWS = {"y_true": [1, 1, 0, 0, 1, 0, 1], "k": [*"aabbbbb"], "ts": [0, 0, 0, 3600, 3600, 3600, 7200]}


def times():
    return ROWS | {"ts": np.array(ROWS["ts"], "datetime64[s]")}


def test_top_of_slices_of_windows():
    windows = sm.Sliced(sm.Windowed(sm.CTR(), width="1h", time="ts"), by="k").update(times())
    assert [*windows.top(1)] == ["b"]
    assert [*windows.top(1, by="ctr")] == ["a"]
    slices = sm.Sliced(sm.Sliced(sm.CTR(), by="ts"), by="k").update(ROWS)
    assert [*slices.top(1)] == ["b"]


@pytest.mark.parametrize(
    ("asked", "keys"), [({"sort": "log_loss"}, "ba"), ({"min_rows": 1}, "ab"), ({"sort": "rows"}, "ab")]
)
def test_tables_of_slices_that_fade(asked, keys):
    fading = sm.Sliced(sm.Decayed(sm.LogLoss(), half_life=5), by="k")
    fading.update([1, 1, 0], [0.9, 0.8, 0.9], k=[*"aab"], step=[0, 1, 1])
    assert [row["k"] for row in fading.table(**asked).records] == [*keys]
    assert [*fading.top(1)] == ["a"]


def test_ledgers_and_checkpoints_are_not_sealed():
    with pytest.raises(TypeError, match="seal the total of the ledger"):
        sm.seal(sm.Ledger(sm.CTR()).add("a", sm.CTR().update([0, 1])))


def test_a_refused_batch_that_would_have_folded():
    """Parts that only that batch would have had are not looked for in the next."""
    both = sm.MetricCollection(sm.AUC(limit=4), sm.GroupAUC(grouped="sorted"))
    y, p = np.arange(10) % 2, np.linspace(0.1, 0.9, 10)
    w, g = np.full(10, 0.5), np.arange(10) // 5
    with pytest.raises(sm.InvalidInputError):
        both.update(y, p, sample_weight=w, group=np.arange(10) % 2)
    assert both.update(y, p, sample_weight=w, group=g).compute() == (
        sm.MetricCollection(sm.AUC(limit=4), sm.GroupAUC(grouped="sorted"))
        .update(y, p, sample_weight=w, group=g)
        .compute()
    )


def test_bytes_of_what_no_constructor_makes():
    slices, fading = (
        definition_of(thing) for thing in (sm.Sliced(sm.CTR(), by="k"), sm.Decayed(sm.CTR(), half_life=5))
    )
    for made in (
        slices.having(inner=definition_of(sm.Recent(sm.CTR(), rows=3))),
        fading.having(inner=definition_of(sm.Count())),
        fading.having(axis=fading.axis._replace(keep=41)),
    ):
        with pytest.raises(sm.StateFormatError):
            sm.from_bytes(accumulate(made).to_bytes())


def test_keys_of_epochs_and_of_what_fades():
    """Of the same states each spells its own."""
    fading = sm.Decayed(sm.CTR(on_invalid="drop"), half_life="1h", time="ts")
    fading.update(y_true=[1, 0], ts=np.array(["2025-01-01", "NaT"], "datetime64[s]"))
    repr(fading)
    assert None not in list(fading.windows)


def _scored(seed=0, n=400):
    rng = np.random.default_rng(seed)
    return {"y_true": rng.integers(0, 2, n), "y_score": rng.random(n), "k": rng.integers(0, 3, n), "u": np.arange(n)}


IN_FRONT = {
    "slices": lambda inner, bits=10: sm.Sliced(inner, by="k"),
    "windows": lambda inner, bits=10: sm.Windowed(inner, width=2, time="k"),
    "fading": lambda inner, bits=10: sm.Decayed(inner, half_life=2, time="k"),
    "shards": lambda inner, bits=10: sm.Sharded(inner, unit="u", shard_bits=bits),
    "slices of shards": lambda inner, bits=10: sm.Sliced(sm.Sharded(inner, unit="u", shard_bits=bits), by="k"),
    "slices in a collection": lambda inner, bits=10: sm.MetricCollection(
        {"by": sm.Sliced(inner, by="k"), "all": sm.CTR()}
    ),
}


@pytest.mark.parametrize("front", IN_FRONT)
@pytest.mark.parametrize("bits", [12, 8])
def test_states_that_fewer_bits_make_one(front, bits):
    """Two histograms of the same scores become one where they have the same bits, under whatever is in front of them."""

    def made(fine, less, shards=10):
        return IN_FRONT[front]([sm.AUC(bits=fine), sm.Gini(bits=less), sm.LogLoss()], shards)

    coarse = sm.coarsen(made(14, 12).update(_scored()), bits)
    direct = made(bits, bits, min(bits, 10))
    assert [r.state.settings for r in definition_of(coarse).reads] == [
        r.state.settings for r in definition_of(direct).reads
    ]
    assert coarse.digest() == direct.update(_scored()).digest()
    assert sm.from_bytes(coarse.update(_scored(1)).to_bytes()).compute() == direct.update(_scored(1)).compute()
