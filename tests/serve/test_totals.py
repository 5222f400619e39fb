"""Totals: one pass over all rows has the same digest, whatever came in which order, was accepted, folded or kept.

The short form tries some sequences of what may happen. ``LAWS=100 pytest -m "" tests/serve/test_totals.py`` tries many.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import draws
import posted
import pytest
from hypothesis import given
from hypothesis import strategies as st

import streammetrics as sm
from streammetrics.errors import IncompatibleStateError, InvalidInputError
from streammetrics.serve.evaluation.merge_parts import merge_parts
from streammetrics.serve.evaluation.totals import Totals
from streammetrics.serve.evaluation.windows import MovedError
from streammetrics.serve.part_keys import HOUR, PartKey, PostedPart
from streammetrics.serve.store import Store, StoreFullError, open_store
from streammetrics.serve.store.parts import DAY

FIRST = posted.FIRST
END = (FIRST + 30 * DAY) * HOUR
"""Long after all: three days and more after the days of these tests."""


def key(hour: int, source: str = "eu", seq: int = 0, experiment: str = "e") -> PartKey:
    return PartKey(experiment, source, FIRST + hour, seq)


def month(days: int = 2) -> list[PostedPart]:
    """A part every six hours from each of two sources."""
    keys = [key(hour, source) for hour in range(0, days * DAY, 6) for source in ("eu", "us")]
    return [posted.part(one, seed) for seed, one in enumerate(keys)]


def digests(windows: dict[int, Any]) -> dict[int, str]:
    return {start - FIRST: window.load().digest() for start, window in windows.items()}


def hours(totals: Totals, name: str = "e") -> dict[int, str]:
    return digests(totals.windows(name)[0])


def days(totals: Totals, name: str = "e") -> dict[int, str]:
    while True:
        with suppress(MovedError):  # as who reads does
            return digests(totals.windows(name)[1])


def expected(seeds: dict[int, list[int]]) -> dict[int, str]:
    return {start: posted.counted(some).digest() for start, some in seeds.items()}


@pytest.mark.slow
def test_one_pass_has_the_same_digest(store: Store) -> None:
    totals, parts = Totals(store), month()
    assert totals.total("e") is None
    assert (totals.digest("e"), hours(totals), days(totals)) == ("", {}, {})
    for part in parts[::-1]:
        store.put([part])
        totals.total("e")
    n = len(parts)
    assert totals.digest("e") == posted.counted(range(n)).digest() == Totals(store).digest("e")
    assert hours(totals) == expected({h: [h // 3, h // 3 + 1] for h in range(0, 48, 6)})
    assert days(totals) == expected({0: list(range(8)), 24: list(range(8, 16))})
    assert store.put(parts) == ["same"] * n
    totals.total("e")
    assert totals.digest("e") == posted.counted(range(n)).digest()


def test_what_was_returned_does_not_change(store: Store) -> None:
    totals, (first, second) = Totals(store), month()[:2]
    store.put([first])
    before = totals.total("e"), totals.windows("e")[0][FIRST].load(), totals.windows("e")[1][FIRST].load()
    store.put([second])
    totals.total("e"), hours(totals), days(totals)
    assert {made.digest() for made in before} == {first.digest}


@pytest.mark.slow
def test_compaction_changes_nothing(store: Store) -> None:
    totals, parts = Totals(store), month()
    store.put(parts)
    whole, by_day = totals.digest("e"), days(totals)
    assert totals.compact("e", now=(FIRST + 4 * DAY) * HOUR - 1) == 0  # three days after the first day: not quite
    assert totals.compact("e", now=(FIRST + 4 * DAY) * HOUR) == 8
    assert [e.state for e in store.ledger("e")] == ["folded"] * 8 + ["current"] * 8
    for some in (totals, Totals(store)):
        assert (some.digest("e"), days(some)) == (whole, by_day)
        assert [*hours(some)] == [24, 30, 36, 42]
    assert totals.compact("e", now=END, correct_within_days=1) == 8
    assert hours(totals) == hours(Totals(store)) == {}
    assert Totals(store).digest("e") == whole
    assert store.put(parts[::-1]) == ["same"] * 16


@pytest.mark.slow
def test_a_late_part_is_added_to_its_day(store: Store) -> None:
    totals, parts = Totals(store), month(1)
    store.put(parts)
    totals.compact("e", now=END)
    late = posted.part(key(3, "late"), 99, received=END + 1.0)
    assert store.put([late, parts[0]]) == ["stored", "same"]
    want = posted.counted([*range(8), 99]).digest()
    for some in (totals, Totals(store)):
        assert (some.digest("e"), days(some), hours(some)) == (want, {0: want}, {})
    assert totals.compact("e", now=END + 2) == 0  # it can be corrected for as long as any
    store.put([posted.part(late.key, 98)])
    store.accept("e", store.conflicts("e")[0].number, by="ann", at=0.0)
    want = posted.counted([*range(8), 98]).digest()
    assert totals.digest("e") == Totals(store).digest("e") == want
    assert totals.compact("e", now=END + 1e7) == 1
    assert (totals.digest("e"), days(totals)) == (want, {0: want})
    assert days(Totals(store)) == {0: want}


@pytest.mark.slow
def test_an_accepted_conflict_folds_its_hour_anew(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    totals = Totals(store)
    store.put(month(1))
    days(totals)
    store.put([posted.part(key(6), 50)])
    assert totals.digest("e") == posted.counted(range(8)).digest()
    store.accept("e", store.conflicts("e")[0].number, by="ann", at=0.0)
    read = counting(store, monkeypatch)
    seeds = [0, 1, 50, *range(3, 8)]
    assert totals.digest("e") == posted.counted(seeds).digest()
    assert hours(totals) == expected({0: [0, 1], 6: [50, 3], 12: [4, 5], 18: [6, 7]})
    assert days(totals) == expected({0: seeds})
    assert read == [2]  # the parts of that hour, once
    assert Totals(store).digest("e") == totals.digest("e")


def counting(store: Store, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many parts are read for hours and days, of each time that some are."""
    read: list[int] = []
    frames = store.frames

    def counted(experiment: str, numbers: Any) -> list[bytes]:
        read.extend([len(numbers)] if numbers else [])
        return frames(experiment, numbers)

    monkeypatch.setattr(store, "frames", counted)
    return read


def test_a_fold_is_added_to(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    totals = Totals(store)
    store.put(month(1))
    days(totals)
    read = counting(store, monkeypatch)
    hours(totals), days(totals), totals.total("e")
    assert read == []
    store.put([posted.part(key(6, "new"), 60)])
    assert hours(totals)[6] == posted.counted([2, 3, 60]).digest()
    assert read == [1]


def test_a_start_reads_what_came_after_the_kept_total(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = month()
    totals = Totals(store, clock=lambda: 0.0)
    store.put(parts[:4])
    totals.total("e")
    store.put(parts[4:6])
    totals.total("e")
    kept = store.total("e")
    assert kept is not None
    assert kept[0] == (4, 0)  # once a minute, of which none has passed
    totals.close()
    store.put(parts[6:])
    asked: list[int] = []
    since = store.load_parts_since
    monkeypatch.setattr(store, "load_parts_since", lambda name, after: (asked.append(after), since(name, after))[1])
    assert Totals(store).digest("e") == posted.counted(range(16)).digest()
    assert asked == [6]


def test_what_comes_while_it_adds_up_is_for_the_next_time(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    totals, parts, since = Totals(store), month(), store.load_parts_since
    store.put(parts[:2])

    def more(name: str, after: int) -> Any:
        found, given = since(name, after), len(store.ledger("e"))
        store.put(parts[given : given + 2])
        return found

    monkeypatch.setattr(store, "load_parts_since", more)
    total, of_hours, of_days = totals.load_snapshot("e")
    monkeypatch.undo()
    want = posted.counted(range(2)).digest()
    assert len(store.ledger("e")) == 4
    assert (total.digest(), digests(of_hours), digests(of_days)) == (want, {0: want}, {0: want})
    total, of_hours, _ = totals.load_snapshot("e")
    assert total.digest() == posted.counted(range(4)).digest()
    assert digests(of_hours) == hours(totals) == expected({0: [0, 1], 6: [2, 3]})


def test_what_is_changed_while_it_is_read_is_read_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    totals, parts, outline = Totals(store), month(), store.outline
    store.put([*parts[:4], posted.part(key(0), 9)])
    totals.total("e")

    def accepted_meanwhile(name: str) -> Any:
        monkeypatch.undo()
        store.accept("e", 5, by="ann", at=0.0)
        return outline(name)

    monkeypatch.setattr(store, "outline", accepted_meanwhile)
    with pytest.raises(MovedError):
        totals.load_snapshot("e")
    total, _, of_days = totals.load_snapshot("e")
    want = posted.counted([9, 1, 2, 3]).digest()
    assert (total.digest(), digests(of_days)) == (want, {0: want})


def test_all_that_was_there_is_added_up(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many pages it is."""
    monkeypatch.setattr("streammetrics.serve.store.parts.PAGE", 3)
    store.put(month())
    totals = Totals(store)
    assert totals.digest("e") == posted.counted(range(16)).digest()


def test_what_an_interrupted_compaction_left_is_deleted(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    totals, parts, sweep, calls = Totals(store), month(), store.delete_obsolete_frames, itertools.count()
    store.put(parts)

    def fails_once(name: str) -> None:
        if next(calls) == 1:
            raise StoreFullError("full")
        sweep(name)

    monkeypatch.setattr(store, "delete_obsolete_frames", fails_once)
    whole, now, everything = totals.digest("e"), (FIRST + 4 * DAY) * HOUR, list(range(1, 17))
    with pytest.raises(StoreFullError):
        totals.compact("e", now=now)
    assert [e.state for e in store.ledger("e")] == ["folded"] * 8 + ["current"] * 8
    assert len(store.frames("e", everything)) == 16
    assert totals.compact("e", now=now) == 0
    assert len(store.frames("e", everything)) == 8
    assert totals.digest("e") == Totals(store).digest("e") == whole


@pytest.mark.slow
def test_keeping_takes_a_small_share_of_time(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes 2 seconds is done every 200."""
    now, kept, keep = [0.0], list[float](), store.save_total

    def slow(*given: Any) -> None:
        kept.append(now[0])
        now[0] += 2.0
        keep(*given)

    monkeypatch.setattr(store, "save_total", slow)
    totals = Totals(store, clock=lambda: now[0])
    for i, part in enumerate(month()):
        now[0] = 50.0 * i
        store.put([part])
        totals.total("e")
    assert kept == [0.0, 250.0, 500.0, 750.0]


def test_a_total_that_cannot_be_kept_is_shown_all_the_same(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise StoreFullError("full")

    monkeypatch.setattr(store, "save_total", full)
    store.put(month(1))
    totals = Totals(store)
    assert totals.digest("e") == posted.counted(range(8)).digest()
    with pytest.raises(StoreFullError):
        totals.save("e")


@pytest.mark.slow
def test_without_room_folds_are_made_again(store: Store) -> None:
    totals = Totals(store, max_bytes=1)
    store.put(month())
    for _ in range(2):
        assert days(totals) == days(Totals(store))
        assert len(totals._windows._cache) == 1
        totals.compact("e", now=(FIRST + 4 * DAY) * HOUR)


@pytest.mark.slow
def test_another_server_puts_accepts_and_folds(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_store(url) as store, open_store(url) as elsewhere:
        here, there, parts = Totals(store), Totals(elsewhere), month()
        store.put(parts[:9])
        days(here)
        elsewhere.put(parts[9:])
        there.compact("e", now=END)  # before it was seen here
        assert here.digest("e") == posted.counted(range(16)).digest()
        outline, moved = store.outline, list[Any]()

        def late(name: str) -> Any:
            found = outline(name)
            if not moved:
                elsewhere.put([posted.part(key(1), 70)])
                moved.append(there.compact("e", now=END))
            return found

        monkeypatch.setattr(store, "outline", late)
        assert days(Totals(store))[0] == posted.counted([*range(8), 70]).digest()
        assert moved == [1]


def test_parts_that_are_not_there_are_said(store: Store) -> None:
    store.put(month(1))
    with store.database.write_transaction() as run:
        run("DELETE FROM frames WHERE number = 3")
    with pytest.raises(MovedError, match="some parts of e are no longer stored"):
        digests(Totals(store).windows("e")[1])


@pytest.mark.slow
def test_forgetting(store: Store) -> None:
    totals = Totals(store)
    store.put(month())
    totals.total("e")
    totals.compact("e", now=(FIRST + 4 * DAY) * HOUR)
    store.forget("e", FIRST + DAY)
    want = posted.counted(range(8, 16)).digest()
    assert totals.digest("e") == Totals(store).digest("e") == want
    assert days(totals) == {24: want}
    store.forget("e", FIRST + 9 * DAY)
    assert (totals.total("e"), totals.digest("e")) == (None, "")


@pytest.mark.slow
def test_many_threads_add_and_read(store: Store) -> None:
    totals, parts = Totals(store), month(4)

    def work(part: PostedPart) -> None:
        store.put([part])
        totals.total("e")
        days(totals), totals.compact("e", now=END)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, parts * 2))
    assert totals.digest("e") == Totals(store).digest("e") == posted.counted(range(32)).digest()


def test_more_metrics_are_left_out() -> None:
    def made(*names: str) -> Any:
        known = {"ctr": sm.CTR(), "log_loss": sm.LogLoss(), "ne": sm.NormalizedEntropy()}
        inner = sm.Sharded(sm.MetricCollection([known[n] for n in names]), unit="user", shards=8)
        return sm.Sliced(inner, by=["arm", "country"]).update(posted.rows(len(names)))

    parts = [made("log_loss", "ctr"), made("ctr", "log_loss"), made("ne", "ctr", "log_loss")]
    want = merge_parts(parts)
    assert want.names == ["ctr", "log_loss"]
    assert want.total.compute() == merge_parts([p.total.ordered(["ctr", "log_loss"]) for p in parts]).compute()
    for order in itertools.permutations(parts):
        assert merge_parts([order[0].to_bytes(), merge_parts(order[1:])]).digest() == want.digest()


def test_metrics_of_other_settings_are_left_out() -> None:
    """Those that an experiment names are alike: only such parts are taken."""

    def made(*metrics: Any) -> Any:
        inner = sm.Sharded(sm.MetricCollection(list(metrics)), unit="user", shards=8)
        return sm.Sliced(inner, by=["arm", "country"]).update(posted.rows(len(metrics)))

    one, other, third = made(sm.CTR(), sm.LogLoss()), made(sm.CTR(), sm.LogLoss(eps=0.1)), made(sm.LogLoss(eps=0.1))
    for parts in ([one, other], [other.to_bytes(), one.to_bytes()], [one, one.copy(), other]):
        whole = merge_parts(parts)
        assert whole.names == ["ctr"]
        assert whole.total.compute()["ctr"] == one.total.compute()["ctr"]
    with pytest.raises(IncompatibleStateError, match="eps of 'log_loss'"):
        merge_parts([made(sm.LogLoss()), third])


# -- against a model -------------------------------------------------------------------------------------------------

KEYS = [key(hour, source) for hour in (0, 5, 30, 60) for source in ("eu", "us")]
STEPS = st.one_of(
    st.tuples(st.just("put"), st.lists(st.tuples(st.sampled_from(KEYS), st.integers(0, 4)), max_size=6)),
    st.tuples(st.just("accept"), st.integers(0, 5)),
    st.tuples(st.just("compact"), st.integers(0, 6)),
    st.tuples(st.just("look"), st.booleans()),
    st.tuples(st.just("restart"), st.booleans()),
)


class Model:
    """What totals are, by a dict of what counts under each key."""

    def __init__(self) -> None:
        self.counted: dict[PartKey, int] = {}
        self.folded: set[PartKey] = set()

    def put(self, one: PartKey, seed: int) -> str:
        held = self.counted.setdefault(one, seed)
        return "same" if held == seed else "conflict"

    def windows(self, width: int) -> dict[int, str]:
        """By hour: of days of which nothing is folded."""
        folded = {one.hour // DAY for one in self.folded} if width == 1 else set()
        seeds: dict[int, list[int]] = {}
        for one, seed in self.counted.items():
            if one.hour // DAY not in folded:
                seeds.setdefault((one.hour - FIRST) // width * width, []).append(seed)
        return expected(seeds)


numbers = itertools.count()


@pytest.fixture
def shared(fresh_url: Callable[[], str]) -> Any:
    with open_store(fresh_url()) as store:
        yield lambda: (store, f"e{next(numbers)}")


@pytest.mark.slow
@draws.short(25)
@given(steps=st.lists(STEPS, max_size=14))
def test_anything_in_any_order(shared: Any, steps: list[Any]) -> None:
    (store, name), model = shared(), Model()
    totals, day = Totals(store), 0
    for what, detail in steps:
        if what == "put":
            answers = store.put([posted.part(k._replace(experiment=name), s) for k, s in detail])
            for (one, seed), answer in zip(detail, answers, strict=True):
                stored = one not in model.counted
                word = answer if answer in ("stored", "same") else "conflict"
                assert model.put(one, seed) == ("same" if answer == "stored" and stored else word)
        elif what == "accept":
            aside = [e for e in store.ledger(name) if e.state in ("conflict", "refused")]
            for entry in aside[detail : detail + 1]:
                one = entry.key._replace(experiment="e")
                if one in model.folded:
                    with pytest.raises(InvalidInputError, match="correct_within"):
                        store.accept(name, entry.number, by="ann", at=0.0)
                else:
                    store.accept(name, entry.number, by="ann", at=0.0)
                    model.counted[one] = next(s for s in range(5) if posted.frame(s)[1] == entry.digest)
        elif what == "compact":
            day = detail
            totals.compact(name, now=(FIRST + (day + 3) * DAY) * HOUR)
            model.folded |= {one for one in model.counted if one.hour < FIRST + day * DAY}
        elif what == "restart":
            if detail:
                totals.close()
            totals = Totals(store)
        else:
            check(totals, name, model)
    check(totals, name, model)
    check(Totals(store), name, model)


def check(totals: Totals, name: str, model: Model) -> None:
    want = posted.counted(model.counted.values()).digest() if model.counted else ""
    assert totals.digest(name) == want
    assert hours(totals, name) == model.windows(1)
    assert days(totals, name) == model.windows(DAY)
