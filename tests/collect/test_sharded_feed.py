"""Plain batches of sharded metrics are counted as they come: to the bit what the prepared ones make."""

from __future__ import annotations

import numpy as np
import pytest

import streammetrics as sm
from streammetrics.collect.accumulator import accumulator_of, definition_of
from streammetrics.collect.metric_like import columns_of
from streammetrics.count import drafts

INNER = {
    "auc": lambda: sm.AUC(limit=0),
    "exact at first": sm.AUC,
    "as coarse": lambda: sm.AUC(bits=10),
    "real": lambda: sm.AUC(limit=0, scale="real"),
    "logit, few bits": lambda: sm.AUC(bits=8, scale="logit"),
    "several": lambda: [sm.AUC(), sm.LogLoss(), sm.CTR()],
    "tasks": lambda: {
        "a": sm.Task([sm.AUC(limit=0)], y_true="y_true", y_score="y_score"),
        "b": sm.Task([sm.AUC(limit=0), sm.Gini(limit=0)], y_true="other", y_score="y_score"),
    },
}


def rows(rng, n, *, users=1000, dtype="f4", label=bool, grid=False, weighted=False):
    scores = (rng.integers(0, 17, n) / 16.0 if grid else rng.random(n)).astype(dtype)
    made = {"y_true": (rng.random(n) < 0.1).astype(label), "y_score": scores, "u": rng.integers(0, users, n)}
    made["other"] = made["y_true"][::-1].copy()
    return made | ({"sample_weight": rng.random(n) + 0.5} if weighted else {})


def pair(inner, **more):
    """What takes the quick way, and what is given lists, which are prepared."""
    return sm.Sharded(INNER[inner](), unit="u", **more), sm.Sharded(INNER[inner](), unit="u", **more)


def feed_both(quick, slow, batch):
    batch = {n: c for n, c in batch.items() if n in columns_of(quick)}
    quick.update(**batch)
    slow.update(**{n: c.tolist() if c.dtype.kind != "f" else c for n, c in batch.items()})


@pytest.mark.parametrize("inner", INNER)
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("grid", [False, True])
def test_the_quick_way_makes_the_same_bits(inner, dtype, grid):
    rng = np.random.default_rng(0)
    quick, slow = pair(inner)
    for n in (0, 1, 3, 700, 70_000, 257):  # shards are met one after the other; exact rows are folded
        feed_both(quick, slow, rows(rng, n, dtype=dtype, grid=grid, label="i8" if n == 700 else bool))
    assert quick.digest() == slow.digest()
    held = accumulator_of(quick).updater._content[1]
    assert held is not None
    assert any(d.build_arguments is not None for d in held.drafts.values()), "the quick way was not taken"


def test_shards_note_when_scores_leave_the_grid():
    rng = np.random.default_rng(4)
    quick, slow = pair("auc")
    for grid in (True, True, False):
        feed_both(quick, slow, rows(rng, 300, users=20, grid=grid))
    assert quick.digest() == slow.digest()


@pytest.mark.parametrize("inner", INNER)
def test_with_weights_in_some_batches(inner):
    rng = np.random.default_rng(1)
    quick, slow = pair(inner)
    for i, n in enumerate((70_000, 300, 300, 5, 300)):
        feed_both(quick, slow, rows(rng, n, weighted=i % 2 == 1))
    assert quick.digest() == slow.digest()


@pytest.mark.slow
@pytest.mark.parametrize(("bits", "shards"), [(8, 8), (16, 64), (10, 4096), (14, 4096)])
def test_shards_that_are_few_many_or_fine(bits, shards):
    rng = np.random.default_rng(2)
    quick, slow = pair("auc", shard_bits=bits, shards=shards)
    for _ in range(3):
        feed_both(quick, slow, rows(rng, 30_000, users=10**6))
    assert quick.digest() == slow.digest()


@pytest.mark.slow
def test_bytes_that_overflow_again_and_again():
    rng = np.random.default_rng(3)
    quick, slow = pair("auc")
    batch = rows(rng, 5000, grid=True, users=30)
    for _ in range(60):
        feed_both(quick, slow, batch)
    assert quick.digest() == slow.digest()


@pytest.mark.parametrize("inner", INNER)
@pytest.mark.parametrize("where", [0, 300, 2999])
def test_a_bad_batch_changes_nothing(inner, where):
    rng = np.random.default_rng(4)
    metric = sm.Sharded(INNER[inner](), unit="u")
    fed = [{n: c for n, c in rows(rng, 70_000, grid=True).items() if n in columns_of(metric)} for _ in range(2)]
    for batch in fed:
        metric.update(**batch)
    before = metric.digest()
    metric.update(**{n: c[:0] for n, c in fed[0].items()})  # drafts are bound again
    for column, value in (("y_score", np.nan), ("y_true", 3)):
        batch = {n: c for n, c in rows(rng, 3000, label="u1").items() if n in columns_of(metric)}
        batch[column][where] = value
        with pytest.raises(sm.InvalidInputError, match=f"row {where:,}"):
            metric.update(**batch)
    assert metric.digest() == before


def test_units_of_all_integers_and_of_none():
    rng = np.random.default_rng(5)
    batch = {n: c for n, c in rows(rng, 70_000).items() if n != "other"}
    made = {}
    for kind in ("i8", "u8", "i4", "u2", ">i8"):
        made[kind] = sm.Sharded(sm.AUC(), unit="u")
        for _ in range(3):
            made[kind].update(**batch | {"u": batch["u"].astype(kind)})
    assert len({m.digest() for m in made.values()}) == 1
    metric = made["i8"]
    for units in (batch["u"].astype(float), [None] * len(batch["u"])):
        with pytest.raises(sm.InvalidInputError):
            metric.update(**batch | {"u": units})
    with pytest.raises((sm.InvalidInputError, TypeError)):
        metric.update(y_true=batch["y_true"], y_score=batch["y_score"])
    assert metric.digest() == made["u8"].digest()


def test_missing_values_are_looked_for():
    rng = np.random.default_rng(6)
    batch = rows(rng, 5000, users=50)
    metric = sm.Sharded(sm.CTR(), unit="u", missing="skip", missing_values=(0,))
    for _ in range(2):
        metric.update(y_true=batch["y_true"], u=batch["u"])
    kept = batch["u"] != 0
    assert metric.compute() == batch["y_true"][kept].mean()


def test_failed_batches_leave_no_shard_behind():
    rng = np.random.default_rng(7)
    metric = sm.Sharded(sm.AUC(limit=0), unit="u")
    metric.update(y_true=[0, 1], y_score=[0.1, 0.2], u=[1, 2])
    before = metric.digest()
    batch = rows(rng, 1000)
    batch["y_score"][-1] = np.nan
    given = {n: batch[n] for n in ("y_true", "y_score", "u")}
    with pytest.raises(sm.InvalidInputError):
        metric.update(**given)
    assert metric.digest() == before
    again = rows(rng, 300, users=7)
    other = sm.Sharded(sm.AUC(limit=0), unit="u").update(y_true=[0, 1], y_score=[0.1, 0.2], u=[1, 2])
    for m in (metric, other):
        for _ in range(3):
            m.update(**{n: again[n] for n in ("y_true", "y_score", "u")})
    assert metric.digest() == other.digest()


def test_reading_between_batches_loses_no_row():
    """Reading sorts the codes that wait in buffers, which replaces an array to which the draft writes."""
    rng = np.random.default_rng(8)
    for make in (lambda: sm.Sharded(sm.AUC(limit=0), unit="u"), lambda: sm.Sliced(sm.AUC(bits=12), by="u")):
        quick, slow = make(), make()
        for i in range(30):
            feed_both(quick, slow, rows(rng, 3000, users=50, grid=True))
            if i % 3 == 2:
                quick.digest()
        assert quick.digest() == slow.digest()


def test_a_draft_is_made_for_what_it_can_count_alone():
    for inner in (sm.Sharded(sm.AUC(), unit="u"), sm.Sharded(sm.AUC(), unit="u", shard_bits=16)):
        assert all(map(drafts.can_draft, definition_of(inner).reads))
    for inner in (sm.Sliced(sm.Sharded(sm.AUC(), unit="u"), by="k"), sm.Sliced(sm.GroupAUC(), by="k")):
        assert not all(map(drafts.can_draft, definition_of(inner).reads))
