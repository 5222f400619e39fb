"""GAUC: each group by scikit-learn, whoever holds its rows, in memory, on disk, closed, or sampled."""

from __future__ import annotations

import gc
import itertools
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from oracles_groups import group_auc

import streammetrics as sm
from streammetrics.collect.metric_like import empty_copy, with_states
from streammetrics.statistics.groups.closed_sums import GROUP_WEIGHTS

DATA = Path(os.environ.get("STREAMMETRICS_DATA", Path(__file__).parents[3] / "shared" / "data"))


def log(n: int, seed: int, text: bool = False, dtype: Any = np.float32) -> dict[str, Any]:
    """Users with few and many rows, ties, one class."""
    rng = np.random.default_rng(seed)
    users = np.minimum(rng.zipf(1.5, n), n // 8) * 2654435761
    keys = np.array([f"user-{u}" for u in users]) if text else users
    s = np.round(rng.random(n), 2).astype(dtype)
    return {"group": keys, "y_true": (rng.random(n) < 0.2).astype(np.int64), "y_score": s}


def fed(table: dict[str, Any], rows: Any = slice(None), **settings: Any) -> Any:
    return sm.GroupAUC(**settings).update({k: v[rows] for k, v in table.items()})


@pytest.mark.parametrize("n", [100, pytest.param(3000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("text", [False, True])
def test_every_group_by_scikit_learn(text: bool, dtype: Any, weighted: bool, n: int) -> None:
    table = log(n, 1, text, dtype)
    w = np.random.default_rng(2).integers(0, 9, n) / 2 if weighted else np.ones(n)
    state = fed(table | ({"sample_weight": w} if weighted else {})).state
    for by in GROUP_WEIGHTS:
        for one in ("skip", 0.5):
            expected = group_auc(table["group"], table["y_true"], table["y_score"].astype(float), w, by, one)
            metric = sm.GroupAUC(group_weight=by, one_class=one)
            assert metric.reading(state).value == pytest.approx(expected, rel=1e-13)
            assert (
                metric.reading(sm.from_bytes(with_states(sm.GroupAUC(), [state]).to_bytes()).state).value
                == metric.reading(state).value
            )


@pytest.mark.parametrize("settings", [{}, {"grouped": "sorted"}], ids=["any", "sorted"])
@pytest.mark.parametrize("digits", [1, 6])
def test_groups_of_any_size_and_balance(digits: int, settings: dict[str, Any]) -> None:
    """Rows of few of a label are compared one by one, of many are sorted: pairs are counted to the last."""
    rng = np.random.default_rng(digits)
    for positive, negative in itertools.product((1, 2, 63, 64, 65, 66, 200), repeat=2):
        s = rng.random(positive + negative).round(digits).astype(np.float32)
        y = rng.permutation(np.arange(len(s)) < positive)
        up, down = s[y][:, None], s[~y]
        twice = 2 * int((up > down).sum()) + int((up == down).sum())
        metric = sm.GroupAUC(group_weight="uniform", **settings)
        metric.update(np.r_[0, y, 0], np.r_[s[:1], s, s[:1]], group=np.r_[6, np.full(len(s), 7), 8])
        assert metric.compute() == twice / (2 * positive * negative)


@pytest.mark.parametrize("name", ["ctr_video", "ctr_fashion_men", "binary_flights"])
def test_real_users(name: str) -> None:
    if not (DATA / f"{name}.parquet").exists():
        pytest.skip("the real logs are not here: set STREAMMETRICS_DATA to their folder")
    import pyarrow.parquet as pq

    table = pq.read_table(DATA / f"{name}.parquet")
    u, y = table["user_id"].to_numpy(), table["label"].to_numpy()
    chosen = np.isin(u, np.unique(u)[:: max(1, len(np.unique(u)) // 800)])  # the reference is slow
    for model in ("score_a", "score_b"):
        s = table[model].to_numpy()
        for w in (
            np.ones(len(u)),
            table["weight"].to_numpy().astype(float) if "weight" in table.column_names else None,
        ):
            if w is None:
                continue
            kept = {"group": u[chosen], "y_true": y[chosen], "y_score": s[chosen], "sample_weight": w[chosen]}
            state = fed(kept).state
            for by in GROUP_WEIGHTS:
                expected = group_auc(u[chosen], y[chosen], s[chosen].astype(float), w[chosen], by)
                assert sm.GroupAUC(group_weight=by).reading(state).value == pytest.approx(expected, rel=1e-12)


@pytest.mark.slow
def test_a_perfect_order_is_1_and_a_wrong_one_0_whatever_the_weights() -> None:
    y, s, group = np.arange(6) // 3, np.arange(6) / 8, np.zeros(6, np.int64)
    for seed in range(300):
        w = np.random.default_rng(seed).random(6) + 0.1
        for by in GROUP_WEIGHTS:
            metric = sm.GroupAUC(group_weight=by)
            assert empty_copy(metric).update(y, s, group=group, sample_weight=w).bounds() == (1.0, 1.0)
            assert empty_copy(metric).update(y, s[::-1], group=group, sample_weight=w).bounds() == (0.0, 0.0)


def test_sums_beyond_those_of_weights_are_refused() -> None:
    state = sm.seal(sm.GroupAUC().update([0, 1], [0.25, 0.5], group=[1, 1])).state
    flats = {n: a.copy() for n, a in state.cells.flats.items()}
    flats["sums"][..., 33] += 1  # by 2**-32 of one
    held = with_states(sm.GroupAUC(sealed=1), [state.with_cells(replace(state.cells, flats=flats))])
    with pytest.raises(sm.StateFormatError, match="sums that no groups can have"):
        sm.from_bytes(held.to_bytes())


def test_the_definitions_of_others_on_a_toy_log() -> None:
    """Four users. a: 1 0 0 by 0.9 0.1 0.5, AUC 1; b: 1 0 by 0.2 0.4, AUC 0; c: 1 1 0 by 0.8 0.3 0.5, AUC 1/2; d: 0 0."""
    users = ["a"] * 3 + ["b"] * 2 + ["c"] * 3 + ["d"] * 2
    y = [1, 0, 0, 1, 0, 1, 1, 0, 0, 0]
    s = [0.9, 0.1, 0.5, 0.2, 0.4, 0.8, 0.3, 0.5, 0.6, 0.7]
    state = sm.GroupAUC().update(y, s, group=users).state

    def gauc(**settings: Any) -> float:
        return sm.GroupAUC(**settings).reading(state).value

    din = fuxictr_gauc = (3 * 1 + 2 * 0 + 3 * 0.5) / 8  # by impressions, one class skipped
    easyrec = fuxictr_avgauc = (1 + 0 + 0.5) / 3  # reduction "mean"
    recbole = (1 * 1 + 1 * 0 + 2 * 0.5) / 4  # by positives
    grouped_torchrec = (1 + 0 + 0.5 + 0.5) / 4  # one class counts as 0.5
    assert gauc() == din == fuxictr_gauc
    assert gauc(group_weight="uniform") == easyrec == fuxictr_avgauc
    assert gauc(group_weight="positives") == recbole
    assert gauc(group_weight="uniform", one_class=0.5) == grouped_torchrec
    assert gauc(group_weight="pairs") == (2 * 1 + 1 * 0 + 2 * 0.5) / 5
    assert sm.GroupAUC().reading(state).details["one_class"] == 1


@pytest.mark.slow
@pytest.mark.parametrize("text", [False, True])
def test_whoever_holds_which_rows(text: bool, tmp_path: Path) -> None:
    table = log(6000, 3, text)
    whole, rng = fed(table), np.random.default_rng(1)
    parts = [fed(table, rows) for rows in np.array_split(rng.permutation(6000), 7)]
    merged = sm.merge(parts)
    assert merged.digest() == whole.digest()
    assert merged.compute() == whole.compute()
    assert sm.from_bytes(whole.to_bytes()).compute() == whole.compute()
    owner = sm.group_partition(table["group"], 3)
    closed = [sm.seal(fed(table, owner == i, partition=(i, 3))) for i in range(3)]
    sealed = sm.merge([c.to_bytes() for c in closed])
    assert sealed.compute() == whole.compute()
    assert len(sealed.to_bytes()) < 4000
    with pytest.raises(sm.IncompatibleStateError, match="partition 1 of 3 is sealed in more than one state"):
        sealed.merge(closed[1])
    with pytest.raises(sm.InvalidInputError, match=r"found a group of another partition in row \d+"):
        fed(table, partition=(0, 3))
    with sm.GroupAUC(memory_limit=20_000, spill_dir=str(tmp_path)) as spilled:
        for rows in np.array_split(rng.permutation(6000), 40):
            spilled.update({k: v[rows] for k, v in table.items()})
        assert spilled.explain()["spilled_rows"] > 4000
        assert spilled.compute() == whole.compute()
        other = sm.GroupAUC(memory_limit=2000, spill_dir=str(tmp_path)).update({k: v[:900] for k, v in table.items()})
        both = fed(table).merge(fed(table, slice(900)))
        assert spilled.copy().merge(other).compute() == both.compute()
        with pytest.raises(sm.MemoryLimitError, match=r"partition=\(i, n\)"):
            spilled.to_bytes()
        del other
    gc.collect()
    assert not list(tmp_path.iterdir())


def test_the_limit_says_what_to_do() -> None:
    table = log(3000, 4)
    gauc = sm.GroupAUC(memory_limit=20_000).update({k: v[:1000] for k, v in table.items()})
    before = gauc.digest()
    with pytest.raises(sm.MemoryLimitError, match=r"spill_dir=.*partition=\(i, n\).*sample=True"):
        gauc.update(table)
    assert gauc.digest() == before


def test_samples_are_of_whole_users_in_any_order() -> None:
    table = log(40_000, 5)
    settings = {"sample": True, "memory_limit": 60_000}
    whole = fed(table, **settings)
    rng = np.random.default_rng(2)
    parts = [fed(table, rows, **settings) for rows in np.array_split(rng.permutation(40_000), 9)]
    assert sm.merge(parts).digest() == whole.digest()
    found = whole.explain()
    assert found["memory"] <= 60_000
    assert found["sampled_share"] < 1
    assert found["standard_error"] > 0
    low, high, *_ = whole.interval()
    assert low < whole.compute() < high
    users = np.unique(table["group"])
    kept = {g: (table["group"] == g).sum() for g in users}
    rows = whole.state.facts()["rows"]
    assert rows == sum(n for g, n in kept.items() if g in set(whole.state.cells.inner_keys[:, 1]))


def tastes(users: int, rng: Any) -> tuple[Any, Any, Any]:
    """Users of different tastes, and a model that knows something about all of them."""
    ids = np.repeat(np.arange(users), rng.integers(2, 12, users))
    taste = rng.normal(0, 1, users)[ids]
    s = rng.random(len(ids))
    return rng.random(len(ids)) < 1 / (1 + np.exp(1 - 2 * s - taste)), s, ids


@pytest.mark.slow
def test_the_interval_covers() -> None:
    rng = np.random.default_rng(9)
    y, s, ids = tastes(100_000, rng)
    truth, covered = sm.GroupAUC(group_weight="pairs").update(y, s, group=ids).compute(), 0
    for _ in range(200):
        y, s, ids = tastes(150, rng)
        low, high, *_ = sm.GroupAUC(group_weight="pairs").update(y, s, group=ids).interval(0.9)
        covered += low <= truth <= high
    assert 166 <= covered <= 192, covered  # 180 expected, 4 the standard error


def test_keys_of_every_kind() -> None:
    y, s = [1, 0, 1, 0], [0.5, 0.25, 0.75, 0.9]
    by_two = sm.MetricCollection(sm.Task(sm.GroupAUC(), group=("u", "day")))
    by_two.update({"y_true": y, "y_score": s, "u": [1, 1, 1, 1], "day": ["x", "x", "y", "y"]})
    assert by_two.compute() == {"group_auc": 0.5}
    gauc = sm.GroupAUC().update(y, s, group=[1, 1, 2, 2])
    before = gauc.digest()
    with pytest.raises(sm.InvalidInputError, match="expected keys of kind integer, as in earlier rows"):
        gauc.update(y, s, group=["1", "1", "2", "2"])
    assert gauc.digest() == before
    with pytest.raises(sm.IncompatibleStateError, match="keys of group are of kind integer here and string there"):
        gauc.merge(sm.GroupAUC().update(y, s, group=["1", "1", "2", "2"]))
    with pytest.raises(sm.InvalidInputError, match=r"group: expected a key.* found a null in row 1"):
        sm.GroupAUC().update(y, s, group=pa.array(["a", None, "b", "b"]))
    skipping = sm.GroupAUC(missing="skip", missing_values=("?",)).update(y, s, group=["a", None, "a", "?"])
    assert skipping.explain()["dropped"] == {"group": 2}
    assert skipping.explain()["rows"] == 2


def test_in_slices_and_company() -> None:
    table = log(2000, 6) | {"k": np.random.default_rng(1).integers(0, 3, 2000)}
    sliced = sm.Sliced([sm.GroupAUC(), sm.AUC()], by="k").update(table)
    for key in range(3):
        mine = table["k"] == key
        assert (
            sliced[key]["group_auc"].digest()
            == fed({n: table[n] for n in ("group", "y_true", "y_score")}, mine).digest()
        )
    with pytest.raises(sm.InvalidInputError, match="sliced group metrics do not support"):
        sm.Sliced(sm.GroupAUC(sample=True), by="k").update(table)
    metrics = sm.MetricCollection(*(sm.GroupAUC(group_weight=w) for w in GROUP_WEIGHTS))
    assert len(metrics.plan()) == 1


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_sorted_log_takes_constant_memory(dtype: Any, weighted: bool) -> None:
    rng = np.random.default_rng(8)
    table = log(5000, 8, dtype=dtype)
    table["y_score"] = rng.random(5000).astype(dtype)
    if weighted:
        table["sample_weight"] = rng.integers(0, 9, 5000) / 2
    table = {name: column[np.argsort(table["group"], kind="stable")] for name, column in table.items()}
    whole = fed(table)
    for by in GROUP_WEIGHTS:
        settings = {"grouped": "sorted", "group_weight": by}
        steps = sm.GroupAUC(**settings)
        for rows in np.array_split(np.arange(5000), 60):
            steps.update({k: v[rows] for k, v in table.items()})
        cuts = [0, *np.sort(rng.integers(0, 5000, 5)), 5000]  # anywhere: a group that is cut is put together
        parts = [fed(table, slice(a, b), **settings) for a, b in itertools.pairwise(cuts)]
        merged = sm.merge([p.to_bytes() for p in (parts[i] for i in rng.permutation(6))])
        expected = sm.GroupAUC(group_weight=by).reading(whole.state).value
        assert steps.compute() == merged.compute() == expected
        assert steps.explain()["rows"] == merged.explain()["rows"] == 5000
        assert merged.explain()["parts"] <= 6
        assert sm.seal(merged).compute() == expected
    with pytest.raises(sm.InvalidInputError, match=r"expected ascending keys, found .* in row 0"):
        steps.update({k: v[:10] for k, v in table.items()})
    with pytest.raises(sm.IncompatibleStateError, match="keys overlap"):
        merged.merge(fed(table, slice(0, 4000), **settings))
    with pytest.raises(sm.InvalidInputError, match="expects integer keys"):
        sm.GroupAUC(grouped="sorted").update([0], [0.5], group=["a"])


def test_rows_of_a_sample_are_asked_for_with_a_sample() -> None:
    with pytest.raises(ValueError, match="sample=True"):
        sm.GroupAUC(sample_rows=100)  # which would be an estimate, and not say so
    assert sm.GroupAUC(sample=True, sample_rows=100).state.sample_rows == 100
