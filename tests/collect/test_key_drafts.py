"""Batches in slices by integers, and batches of groups, take the fast path and give the states of prepared batches."""

from __future__ import annotations

import numpy as np
import pytest
from counting import count_prepared

import streammetrics as sm
from streammetrics.collect.accumulator import accumulator_of
from streammetrics.collect.metric_like import columns_of, empty_copy
from streammetrics.count import batch_updater
from streammetrics.count.counter import Counter

METRICS = {
    "slices": lambda: sm.Sliced(sm.AUC(bits=12), by="k"),
    "real scores": lambda: sm.Sliced(sm.AUC(bits=12, scale="real"), by="k"),
    "exact": lambda: sm.Sliced({"a": sm.AUC(limit=1000), "b": sm.AUC(limit=1000, scale="real")}, by="k"),
    "quantiles": lambda: sm.Sliced(sm.Quantile(0.5), by="k"),
    "limited": lambda: sm.Sliced(sm.LogLoss(), by="k", limit=5),
    "two columns": lambda: sm.Sliced(sm.AUC(bits=10), by=["k", "arm"]),
    "nested": lambda: sm.Sliced(sm.Sliced([sm.AUC(bits=10), sm.CTR()], by="arm"), by="k"),
    "with totals": lambda: sm.MetricCollection(
        {"all": [sm.AUC(), sm.LogLoss()], "k": sm.Sliced(sm.AUC(bits=12), by="k"), "arm": sm.Sliced(sm.CTR(), by="arm")}
    ),
    "groups": sm.GroupAUC,
    "groups with others": lambda: sm.MetricCollection(sm.AUC(), sm.GroupAUC(scale="real"), sm.LogLoss()),
}


def rows(rng, n, *, keys="i8", low=0, high=20, weighted=False):
    table = {
        "y_true": (rng.random(n) < 0.3).astype(np.uint8),
        "y_score": rng.random(n).astype(np.float32),
        "k": rng.integers(low, high, n).astype(keys),
        "value": rng.normal(size=n),
        "arm": rng.integers(0, 3, n).astype(np.int16),
        "group": rng.integers(0, 9, n).astype(keys if keys != "?" else "i8"),
    }
    return table | ({"sample_weight": rng.random(n) + 0.01} if weighted else {})


def read_columns(metric, table):
    return {name: column for name, column in table.items() if name in columns_of(metric)}


def update_both(fast, slow, table):
    """Count a batch on the fast path if it can take it, and the same batch on the general path."""
    fast.update(**read_columns(fast, table))
    count_prepared(slow, read_columns(slow, table))


@pytest.fixture
def forbid_preparation(monkeypatch):
    def forbid():
        monkeypatch.setattr(batch_updater, "prepare", lambda *_, **__: pytest.fail("rows were prepared"))

    yield forbid
    monkeypatch.undo()


@pytest.mark.parametrize("name", METRICS)
def test_batches_with_known_keys_are_not_prepared(name, forbid_preparation):
    rng = np.random.default_rng(0)
    metric = METRICS[name]()
    metric.update(**read_columns(metric, rows(rng, 900)))
    forbid_preparation()
    for n in (256, 1, 0, 700, 256):
        metric.update(**read_columns(metric, rows(rng, n)))


@pytest.mark.parametrize("name", METRICS)
@pytest.mark.parametrize("keys", ["i8", "i1", "u2", "u8", "?", ">i4"])
@pytest.mark.parametrize("weighted", [False, True])
def test_states_equal_those_of_prepared_batches(name, keys, weighted):
    rng = np.random.default_rng(1)
    fast, slow = METRICS[name](), METRICS[name]()
    low = 0 if keys in ("?", "u2", "u8") else -9
    for i, n in enumerate((300, 256, 256, 0, 1, 2000, 256)):
        high = 2 if keys == "?" else 10 + 15 * i
        update_both(fast, slow, rows(rng, n, keys=keys, low=low, high=high, weighted=weighted and i % 2 == 1))
    assert fast.digest() == slow.digest()


@pytest.mark.parametrize("name", METRICS)
def test_merged_states_and_new_keys_in_between(name):
    rng = np.random.default_rng(2)
    fast, slow = METRICS[name](), METRICS[name]()
    for i in range(12):
        update_both(fast, slow, rows(rng, 256, high=12))
        if i % 4 == 1:
            update_both(fast, slow, rows(rng, 256, low=8, high=30 + i))
        if i % 4 == 2:
            other = empty_copy(fast)
            other.update(**read_columns(other, rows(rng, 100, low=20, high=60)))
            fast.merge(other)
            slow.merge(other)
        if i % 4 == 3:
            assert fast.digest() == slow.digest()
    assert fast.digest() == slow.digest()


@pytest.mark.parametrize("scale", ["probability", "real"])
@pytest.mark.parametrize("reads", [1, 3, 100])
def test_cells_that_become_too_large_for_exact_rows(scale, reads):
    rng = np.random.default_rng(7)
    fast, slow = (sm.Sliced(sm.AUC(limit=600, scale=scale), by="k") for _ in range(2))
    for i in range(25):
        table = rows(rng, 1000 if i == 20 else 256, high=1 + i % 7)
        table["y_score"] **= 1 + i
        update_both(fast, slow, table)
        if i % reads == reads - 1:
            assert fast.digest() == slow.digest()
    assert fast.digest() == slow.digest()
    assert not fast.explain()[0]["exact"]


def test_large_unsigned_integers_are_not_negative_ones():
    """As int64 numbers, the keys 2**64 - 1 and -1 have the same bits."""
    y, s = np.array([0, 1], np.uint8), np.array([0.2, 0.7], np.float32)
    fast, slow = (sm.Sliced(sm.AUC(bits=12), by="k") for _ in range(2))
    for keys in (
        np.array([-1, 5]),
        np.array([-1, 5]),
        np.array([5, 5], np.uint64),
        np.array([2**64 - 1, 5], np.uint64),
    ):
        update_both(fast, slow, {"y_true": y, "y_score": s, "k": keys})
    assert fast.digest() == slow.digest()
    assert set(fast) == {-1, 5, 2**64 - 1}


@pytest.mark.parametrize("name", METRICS)
@pytest.mark.parametrize(("column", "value"), [("y_true", 2), ("y_score", np.nan), ("sample_weight", -1.0)])
def test_an_invalid_value_changes_nothing(name, column, value):
    rng = np.random.default_rng(3)
    metric = METRICS[name]()
    for _ in range(3):
        metric.update(**read_columns(metric, rows(rng, 300, weighted=True)))
    before = metric.digest()
    table = rows(rng, 300, weighted=True)
    if column not in columns_of(metric):
        column, value = "value", np.nan
    table[column][255] = value
    with pytest.raises(sm.InvalidInputError, match=f"^{column}: .* in row 255"):
        metric.update(**read_columns(metric, table))
    assert metric.digest() == before
    metric.update(**read_columns(metric, rows(rng, 300, weighted=True)))
    assert metric.digest() != before


@pytest.mark.parametrize("name", METRICS)
def test_keys_of_another_kind_are_refused(name):
    rng = np.random.default_rng(4)
    metric = METRICS[name]()
    for _ in range(2):
        metric.update(**read_columns(metric, rows(rng, 300)))
    before, table = metric.digest(), read_columns(metric, rows(rng, 300))
    key = "k" if "k" in table else "group"
    for keys in (table[key] > 3, table[key].astype("U3"), table[key].astype("M8[D]")):
        with pytest.raises(sm.InvalidInputError, match=f"{key}: expected keys of kind integer"):
            metric.update(**table | {key: keys})
    with pytest.raises(sm.InvalidInputError, match="rows"):
        metric.update(**table | {key: table[key][:299]})
    assert metric.digest() == before


def test_codes_of_a_refused_batch_are_not_taken_for_those_of_another_kind():
    """A batch that fails may leave codes of integers behind. If strings follow, equal codes stand for other keys."""
    rest = {"y_true": np.array([0, 1], np.uint8), "y_score": np.array([0.2, 0.7], np.float32), "arm": np.array([1, 1])}
    metric = sm.Sliced(sm.AUC(bits=12), by=["k", "arm"])
    with pytest.raises(sm.InvalidInputError, match="arm: expected keys"):
        metric.update(**rest | {"arm": np.array([0.5, 1.5])}, k=np.array([4, 7]))
    for keys in (np.array(["a", "b"]), np.array(["b", "a"])):
        metric.update(**rest, k=keys)
    for _ in range(2):
        with pytest.raises(sm.InvalidInputError, match="expected keys of kind string"):
            metric.update(**rest, k=np.array([4, 7]))
    assert set(metric) == {("a", 1), ("b", 1)}


def test_a_large_batch_folds_its_cells_before_it_is_counted():
    rng = np.random.default_rng(8)
    metric = sm.Sliced(sm.AUC(limit=600), by="k")
    for n in (200, 200, 5000):
        metric.update(**read_columns(metric, rows(rng, n, high=2)))
    counter = accumulator_of(metric).updater._content[1].counters[0]
    assert counter.folded[:2].all()
    # Only rows of earlier batches are still exact; they are moved to buckets later.
    assert counter.tallies["exact"].count_rows().sum() <= 400


def test_the_memory_limit_of_groups_holds():
    rng = np.random.default_rng(5)
    metric = sm.GroupAUC(memory_limit=13 * 2000)
    for _ in range(7):
        metric.update(**read_columns(metric, rows(rng, 256)))
    before = metric.digest()
    with pytest.raises(sm.MemoryLimitError):
        metric.update(**read_columns(metric, rows(rng, 256)))
    assert metric.digest() == before
    metric.update(**read_columns(metric, rows(rng, 200)))


def test_rows_of_groups_are_written_to_disk_beyond_the_memory_limit(tmp_path):
    rng = np.random.default_rng(6)
    fast, slow = (sm.GroupAUC(memory_limit=13 * 2000, spill_dir=str(tmp_path)) for _ in range(2))
    for _ in range(20):
        update_both(fast, slow, rows(rng, 256))
    assert fast.compute() == slow.compute()


def test_small_batches_of_large_slices_are_counted_in_buckets():
    """Drafts prepare nothing, so a cell that has become too large must send its next batch along the general path."""
    rng = np.random.default_rng(3)
    sliced = sm.Sliced(sm.AUC(limit=1000), by="k")
    for _ in range(400):
        sliced.update(rng.random(256) < 0.5, rng.random(256), k=rng.integers(0, 2, 256))
    (counter,) = accumulator_of(sliced).updater._content[1].counters  # type: ignore[union-attr]
    exact = counter.tallies["exact"]
    assert exact.count_rows().sum() < 10_000


@pytest.mark.parametrize("limit", [0, 1 << 16])
@pytest.mark.parametrize("weighted", [False, True])
def test_memory_is_not_reserved_for_each_batch(limit, weighted, monkeypatch):
    rng = np.random.default_rng(9)
    metric = sm.Sliced(sm.AUC(limit=limit), by="k")
    reserve, calls = Counter.reserve, []
    monkeypatch.setattr(
        Counter, "reserve", lambda counter, rows, **how: calls.append(rows) or reserve(counter, rows, **how)
    )
    for _ in range(100):
        metric.update(**read_columns(metric, rows(rng, 256, weighted=weighted)))
    assert len(calls) < 20


def test_memory_is_reserved_once_for_a_batch_with_new_keys(monkeypatch):
    rng = np.random.default_rng(9)
    metric = sm.Sliced(sm.AUC(bits=10), by="k")
    reserve, calls = Counter.reserve, []
    monkeypatch.setattr(
        Counter, "reserve", lambda counter, rows, **how: calls.append(rows) or reserve(counter, rows, **how)
    )
    for i in range(100):
        metric.update(**read_columns(metric, rows(rng, 64, low=64 * i, high=64 * i + 64)))
    assert len(calls) < 110
