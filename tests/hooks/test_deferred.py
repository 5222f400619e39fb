"""Deferred metrics are those of every step, whatever way columns come from a device, and whatever goes wrong there."""

from __future__ import annotations

import pickle
import re
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import faults
import numpy as np
import pytest

import streammetrics as sm
from streammetrics.batch.convert import library_of
from streammetrics.hooks import deferred
from streammetrics.hooks.deferred import CARRIERS, Deferred

RNG = np.random.default_rng(7)


def batch(n: int = 20) -> tuple[np.ndarray, np.ndarray]:
    return (RNG.random(n) < 0.4).astype(np.uint8), RNG.random(n).astype(np.float32)


def metrics() -> sm.MetricCollection:
    return sm.MetricCollection(sm.AUC(), sm.LogLoss(), sm.CTR())


class Far:
    """A column on a device: where it is changed its version moves."""

    def __init__(self, rows: np.ndarray) -> None:
        self.rows, self.version = rows, 0

    def __len__(self) -> int:
        return len(self.rows)

    def change(self) -> None:
        self.rows = self.rows[::-1]
        self.version += 1


class Sent:
    def __init__(self, columns: Sequence[Far]) -> None:
        self.rows, self.here, self.asked, self.broken = np.concatenate([c.rows for c in columns]), False, 0, False

    def is_ready(self) -> bool:
        self.asked += 1
        return self.here

    def to_array(self) -> np.ndarray:
        assert self.here, "asked for before it was here"
        if self.broken:
            raise RuntimeError("the device is gone")
        return self.rows


class Device:
    """A carrier whose copies arrive when the test says so."""

    def __init__(self) -> None:
        self.sent: list[Sent] = []
        self.at_once = False

    def keep(self, column: Far) -> tuple[Far, int]:
        return column, column.version

    def snapshot(self, column: Far) -> Far:
        return Far(column.rows.copy())

    def describe_change(self, column: Far, mark: int | None) -> str:
        return "was changed in place" if mark is not None and mark != column.version else ""

    def find_batch_key(self, column: Far) -> str:
        return str(column.rows.dtype)

    def start_transfer(self, columns: Sequence[Far]) -> Sent:
        self.sent.append(Sent(columns))
        self.sent[-1].here = self.at_once
        return self.sent[-1]

    def arrive(self, *which: int) -> None:
        for i in which or range(len(self.sent)):
            self.sent[i].here = True


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[Device]:
    made = Device()
    monkeypatch.setitem(CARRIERS, library_of(Far), made)
    yield made
    deferred._CARRIER_OF_TYPE.pop(Far, None)


def feed(target: Any, plain: Any, steps: int, **columns: Any) -> None:
    for _ in range(steps):
        y, p = batch()
        target.update(Far(y), Far(p), **columns)
        plain.update(y, p, **columns)


# -- what arrives, and when -----------------------------------------------------------------------------------------------


def test_late_copies_are_counted_when_they_are_here(device: Device) -> None:
    ours, plain = Deferred(metrics(), every=5), metrics()
    feed(ours, plain, 12)
    assert len(device.sent) == 4  # two copies of two columns: five steps as one
    assert {len(s.rows) for s in device.sent} == {100}
    assert ours.pending == 12
    assert ours.metrics.digest() == metrics().digest()
    device.arrive()
    feed(ours, plain, 3)
    assert ours.pending == 5
    device.at_once = True
    device.arrive()
    assert ours.digest() == plain.digest()
    assert ours.pending == 0


def test_copies_that_arrive_out_of_order_are_counted_in_order(device: Device) -> None:
    order: list[int] = []

    class Watching(sm.MetricCollection):
        def update(self, *given: Any, **columns: Any) -> Any:
            order.append(int(given[1][0]))
            return super().update(*given, **columns)

    ours = Deferred(Watching(sm.NDCG(k=3)), every=2)
    for i in range(6):
        ours.update(Far(np.array([1.0, 0, 2])), Far(np.array([i, 2.0, 1.0])), query=Far(np.full(3, i)))
    assert len(device.sent) == 9
    device.arrive(3, 4, 5, 6, 7, 8)  # the second and the third copy, not the first
    ours._advance()
    assert not order
    device.arrive()
    ours.flush()
    assert order == [0, 1, 2, 3, 4, 5]


def test_update_asks_and_never_waits(device: Device) -> None:
    """Copies that never arrive: steps wait up to a limit, and then an update raises, keeping nothing of its step."""
    ours, plain = Deferred(metrics(), every=3, queue=2, timeout=0.05), metrics()
    feed(ours, plain, 12)
    assert len(device.sent) == 4
    assert ours.pending == 12
    with pytest.raises(sm.MemoryLimitError, match="6 steps are waiting, because none of 2 copies"):
        ours.update(*batch())
    with pytest.raises(sm.NotArrivedError, match=r"12 steps are not counted.*within 0.05 s") as raised:
        ours.compute()
    assert isinstance(raised.value, TimeoutError)
    assert ours.pending == 12
    device.arrive()
    feed(ours, plain, 1)
    assert ours.pending == 7
    device.at_once = True
    device.arrive()
    assert ours.digest() == plain.digest()


def test_a_copy_that_arrives_while_compute_waits(device: Device) -> None:
    ours, plain = Deferred(metrics(), every=4, timeout=60), metrics()
    feed(ours, plain, 4)
    timer = threading.Timer(0.05, device.arrive)
    timer.start()
    assert ours.compute() == plain.compute()
    timer.join()
    assert device.sent[0].asked > 2


def test_a_device_that_fails_is_said(device: Device) -> None:
    ours, plain = Deferred(metrics(), every=2), metrics()
    device.at_once = True
    feed(ours, plain, 2)
    device.at_once = False
    feed(ours, metrics(), 2)
    device.sent[-1].broken = True
    device.arrive()
    with pytest.raises(sm.InvalidInputError, match="step 2: the device is gone; step 3 also failed; all other steps"):
        ours.compute()
    assert ours.digest() == plain.digest()


def test_what_the_device_refuses_to_send_is_said(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, plain = Deferred(metrics(), every=2), metrics()
    device.at_once = True
    feed(ours, plain, 2)

    def refuse(columns: Sequence[Far]) -> Sent:
        raise RuntimeError("out of memory")

    with monkeypatch.context() as patched:
        patched.setattr(device, "start_transfer", refuse)
        feed(ours, metrics(), 2)
    feed(ours, plain, 2)
    with pytest.raises(sm.InvalidInputError, match="step 2: out of memory; step 3 also failed; all other steps"):
        ours.flush()
    assert ours.digest() == plain.digest()


def test_other_threads_go_on_while_one_waits(device: Device) -> None:
    ours, plain = Deferred(metrics(), every=2, timeout=60), metrics()
    feed(ours, plain, 2)
    found: list[Any] = []
    waiting = threading.Thread(target=lambda: found.append(ours.flush()))
    waiting.start()
    feed(ours, plain, 1)  # would hang if the one that waits held the lock
    assert waiting.is_alive()
    device.arrive()
    waiting.join()
    assert found == [ours.metrics]
    device.at_once = True
    device.arrive()
    assert ours.digest() == plain.digest()


# -- what is bad --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("far", [True, False])
def test_a_bad_batch_is_named_once_and_the_others_are_counted(device: Device, far: bool) -> None:
    device.at_once = True
    ours, plain = Deferred(metrics(), every=4), metrics()
    wrap = Far if far else np.asarray
    for i in range(11):
        y, p = batch()
        if i in (2, 7):
            ours.update(wrap(y), wrap(np.where(np.arange(20) == 3, np.float32(1.5), p)))
        else:
            ours.update(wrap(y), wrap(p))
            plain.update(y, p)
    with pytest.raises(
        sm.InvalidInputError, match=r"step 2: y_score: .* 1.5 in row 3.*step 7 also failed; all"
    ) as raised:
        ours.compute()
    assert (raised.value.column, raised.value.row) == ("y_score", 3)
    assert ours.compute() == plain.compute()
    assert ours.digest() == plain.digest()


def test_other_errors_keep_their_kind() -> None:
    limited = Deferred(sm.Sliced(sm.CTR(), by="key", memory_limit=20_000), every=2)
    limited.update([1, 0], key=[1, 2]).update([1] * 5_000, key=list(range(5_000))).update([1], key=[1])
    with pytest.raises(sm.MemoryLimitError, match="step 1: "):
        limited.flush()
    assert limited.compute() == {1: 1.0, 2: 0.0}
    many = Deferred(sm.CTR(), every=100)
    for _ in range(30):
        many.update([3])
    with pytest.raises(
        sm.InvalidInputError, match=r"step 0: .*steps 1, 2, 3, 4, 5, 6, 7, 8, 9 and 20 more also failed; all other"
    ):
        many.compute()
    lengths = Deferred(sm.AUC()).update([0, 1], [0.5])
    with pytest.raises(sm.InvalidInputError, match=r"step 0: y_score has 1 row, but y_true has 2"):
        lengths.compute()


def test_a_column_changed_in_place_is_found_and_a_snapshot_is_not_changed(device: Device) -> None:
    device.at_once = True
    for snapshot in (False, True):
        ours, plain = Deferred(metrics(), every=3, snapshot=snapshot), metrics()
        y, p = batch()
        far = Far(p)
        plain.update(y, p)
        ours.update(Far(y), far)
        far.change()
        feed(ours, plain, 1)
        if snapshot:
            assert ours.digest() == plain.digest()
            continue
        with pytest.raises(sm.InvalidInputError, match="step 0: y_score was changed in place after update") as raised:
            ours.flush()
        assert raised.value.column == "y_score"
        assert ours.metrics["ctr"].explain()["rows"] == 20


def test_what_can_change_unseen_is_copied_at_once() -> None:
    import pandas

    ours = Deferred(metrics(), every=9)
    plain = metrics()
    y, p = batch()
    listed, series, texts = y.tolist(), pandas.Series(p), p.astype(object)
    for labels, scores in ((y, p), (listed, p), (listed, series), (y, p.astype(np.float64))):
        plain.update(labels, scores)
        ours.update(labels, scores)
    plain.update({"y_true": y, "y_score": p})
    ours.update({"y_true": y, "y_score": p, "other": texts})
    y[:], p[:] = 1 - y, 0
    listed[:] = [9] * len(listed)
    series[:] = 5
    assert ours.digest() == plain.digest()


def test_misuse_is_said_at_once() -> None:
    ours = Deferred(metrics())
    with pytest.raises(TypeError, match="unknown column 'weight'; the columns are y_true, y_score"):
        ours.update([1], [0.5], weight=[1])
    with pytest.raises(TypeError, match="table or columns"):
        ours.update({"y_true": [1]}, [0.5])
    assert ours.pending == 0
    for bad in (sm.AUC, sm.Bundle({"a": sm.CTR()}), [sm.AUC()]):
        with pytest.raises(TypeError, match="expected a metric"):
            Deferred(bad)
    for bad in ({"every": 0}, {"every": 2.0}, {"queue": 0}):
        with pytest.raises(ValueError, match=f"{next(iter(bad))}= takes a number of"):
            Deferred(sm.AUC(), **bad)


# -- batches that are not alike -----------------------------------------------------------------------------------------


def test_steps_of_other_columns_dtypes_and_tables(device: Device) -> None:
    device.at_once = True
    ours, plain = Deferred(metrics(), every=6), metrics()
    for i in range(25):
        y, p = batch(5 + i % 3)
        w = np.ones(len(y)) if i % 4 else None
        p = p.astype(np.float64 if i % 5 == 0 else np.float32)
        plain.update(y, p, sample_weight=w)
        if i % 3:
            ours.update(Far(y), p if i % 2 else Far(p), sample_weight=w if w is None or i % 2 else Far(w))
        else:
            table = {"y_true": Far(y), "y_score": p} | ({} if w is None else {"sample_weight": w})
            ours.update(table)
    ours.update(Far(y[:0]), Far(p[:0]))
    assert ours.digest() == plain.digest()


def test_queries_are_those_of_each_step(device: Device) -> None:
    """A query that returns in the next step is refused, as it is without Deferred, though both travel as one."""
    device.at_once = True
    ours = Deferred(sm.NDCG(k=2), every=2)
    for _ in range(2):
        ours.update(Far(np.array([1.0, 0])), Far(np.array([0.3, 0.7])), query=Far(np.array([4, 4])))
    with pytest.raises(sm.InvalidInputError, match=r"step 1: query: .*already occurred"):
        ours.compute()


def test_one_metric_and_columns_by_name(device: Device) -> None:
    device.at_once = True
    y, p = batch()
    assert Deferred(sm.AUC()).update(y_score=Far(p), y_true=Far(y)).digest() == sm.AUC().update(y, p).digest()
    assert Deferred(sm.CTR()).update(Far(y)).digest() == sm.CTR().update(y).digest()
    sliced = Deferred(sm.Sliced(sm.CTR(), by="key"), every=1).update(Far(y), key=["a", "b"] * 10)
    assert sliced.digest() == sm.Sliced(sm.CTR(), by="key").update(y, key=["a", "b"] * 10).digest()


# -- copies, bytes, threads -----------------------------------------------------------------------------------------------


def test_copy_merge_bytes_pickle_and_reset(device: Device) -> None:
    device.at_once = True
    ours, plain = Deferred(metrics(), every=4), metrics()
    feed(ours, plain, 6)
    for same in (ours.copy(), pickle.loads(pickle.dumps(ours))):
        assert same.digest() == plain.digest()
        assert same.every == 4
        feed(same, plain.copy(), 1)
        assert same.pending == 1
    assert ours.digest() == plain.digest()
    assert sm.from_bytes(ours.to_bytes()).digest() == plain.digest()
    other = Deferred(metrics(), every=3)
    feed(other, plain, 2)
    assert ours.merge(other).digest() == plain.digest()
    assert ours.merge(metrics()).digest() == plain.digest()
    with pytest.raises(sm.IncompatibleStateError, match="itself"):
        ours.merge(ours)
    feed(ours, plain, 1)
    ours.update([7], [0.5])
    assert ours.reset().pending == 0
    assert ours.digest() == metrics().digest()
    ours.update([7], [0.5])
    with pytest.raises(sm.InvalidInputError, match="step 0"):
        ours.flush()


def test_an_interrupted_step_is_reported_and_never_counted_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted(sm.CTR, tag=""):
        calls = 0

        def update(self, *given: Any, **columns: Any) -> Any:
            type(self).calls += 1
            if self.calls == 2:
                raise KeyboardInterrupt
            return super().update(*given, **columns)

    ours = Deferred(Interrupted(), every=10)
    for label in (1, 0, 1):
        ours.update([label])
    with pytest.raises(KeyboardInterrupt):
        ours.flush()
    with pytest.raises(sm.InvalidInputError, match="step 1: KeyboardInterrupt interrupted the update"):
        ours.flush()
    assert ours.compute() == 1.0
    assert ours.flush().explain()["rows"] == 2


@pytest.mark.slow
def test_a_step_is_kept_or_under_way_or_reported_wherever_an_interrupt_comes(device: Device) -> None:
    def fed() -> tuple[Deferred[sm.Sum], Far]:
        ours = Deferred(sm.Sum(), every=4)
        for i in range(3):
            ours.update(value=(column := Far(np.array([4.0**i]))))
            if i == 1:
                column.change()
        return ours, Far(np.array([64.0]))

    device.at_once = True
    ours, last = fed()
    (count := faults.At(None, KeyboardInterrupt)).run(lambda: ours.update(value=last))
    assert count.passed > 10
    for stop in faults.places(count.passed, 60):
        ours, last = fed()
        faults.At(stop, KeyboardInterrupt).run(lambda ours=ours, last=last: ours.update(value=last))  # type: ignore[misc]
        with pytest.raises(sm.InvalidInputError) as told:
            ours.flush()
        noted = {int(n) for n in re.findall(r"steps? (\d)", str(told.value))}
        times = [int(ours.compute()) // 4**i % 4 for i in range(4)]
        assert times[1] == 0, f"place {stop}: {told.value}"
        assert all(times[i] == 1 for i in (0, 2) if i not in noted), f"place {stop}: {times}, {told.value}"
        assert max(times) == 1, f"place {stop}: {times}"


def test_threads(device: Device) -> None:
    device.at_once = True
    batches = [batch(50) for _ in range(200)]
    ours, plain = Deferred(metrics(), every=7), metrics()
    for y, p in batches:
        plain.update(y, p)

    def work(mine: list[Any]) -> None:
        for i, (y, p) in enumerate(mine):
            ours.update(Far(y), Far(p))
            if i % 20 == 0:
                ours.flush()

    threads = [threading.Thread(target=work, args=(batches[i::4],)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ours.digest() == plain.digest()


def test_nothing_is_held_after_it_was_counted(device: Device) -> None:
    import weakref

    device.at_once = True
    ours = Deferred(metrics(), every=3)
    y, p = batch()
    far = Far(p)
    gone = weakref.ref(far)
    ours.update(Far(y), far)
    del far
    assert gone() is not None
    ours.update(y, p).update(y, p + 5)
    assert gone() is None
    with pytest.raises(sm.InvalidInputError, match="step 2"):
        ours.flush()
