"""A ledger: retries, duplicates and reordering change nothing, conflicts raise, and nothing is ever half added."""

from __future__ import annotations

import copy
import itertools
import pickle
import random
import threading
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import faults
import fuzz_frames
import numpy as np
import pytest

import streammetrics as sm
from streammetrics.collect.accumulator import definition_of
from streammetrics.collect.metric_like import empty_copy, states_of
from streammetrics.compose.ledger import AXIS, PartitionDigests
from streammetrics.format import frame

THINGS: dict[str, Callable[[], Any]] = {
    "metric": lambda: sm.AUC(bits=12),
    "collection": lambda: sm.MetricCollection(sm.AUC(bits=12), sm.LogLoss()),
    "sliced": lambda: sm.Sliced([sm.CTR(), sm.AUC(bits=12)], by="country"),
    "groups": lambda: sm.GroupAUC(),
    "bundle": lambda: sm.Bundle({"all": sm.AUC(bits=12), "by country": sm.Sliced(sm.CTR(), by="country")}),
}


def rows(seed: int, n: int = 50) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {
        "y_true": rng.integers(0, 2, n).astype(np.uint8),
        "y_score": rng.random(n).astype(np.float32),
        "group": rng.integers(0, 9, n),
        "country": rng.choice(["at", "be", "ch"], n),
    }


def part(name: str, seed: int) -> Any:
    made = THINGS[name]()
    for one in made.values() if isinstance(made, sm.Bundle) else [made]:
        one.update(rows(seed))
    return made


def ledger(name: str, *seeds: int) -> sm.Ledger:
    made = sm.Ledger(THINGS[name]())
    for seed in seeds:
        made.add(f"part-{seed}", part(name, seed))
    return made


@pytest.mark.slow
@pytest.mark.parametrize("name", THINGS)
def test_retries_and_any_order_are_harmless(name: str, tmp_path: Path) -> None:
    whole = sm.merge(part(name, i) for i in range(6))
    given = [*range(6), 0, 3, 3, 5]
    for order in (given, given[::-1], random.Random(0).sample(given, len(given))):
        made = ledger(name, *order)
        assert made.total.digest() == whole.digest()
        assert made.digest() == ledger(name, *range(6)).digest()
        assert dict(made.partitions) == {f"part-{i}": part(name, i).digest() for i in range(6)}
    path = sm.save(part(name, 6), tmp_path / "part")
    by_bytes = sm.Ledger(THINGS[name]()).add("6", part(name, 6).to_bytes())
    assert by_bytes == sm.Ledger(THINGS[name]()).add("6", path) == sm.Ledger(THINGS[name]()).add("6", part(name, 6))


@pytest.mark.parametrize("name", THINGS)
def test_a_conflict_names_id_and_digests(name: str) -> None:
    made = ledger(name, 0, 1)
    before, other = made.to_bytes(), part(name, 2)
    with pytest.raises(sm.PartitionConflictError, match="'part-1'") as caught:
        made.add("part-1", other)
    found = caught.value.partition, caught.value.held, caught.value.given
    assert found == ("part-1", part(name, 1).digest(), other.digest())
    assert part(name, 1).digest()[:12] in str(caught.value)
    assert other.digest()[:12] in str(caught.value)
    assert made.to_bytes() == before


def test_what_is_added_and_the_pattern_stay_as_they_are() -> None:
    seen, given = part("collection", 1), part("collection", 2)
    before = seen.digest(), given.digest()
    made = sm.Ledger(seen).add("a", given)
    made.total.update([1], [0.5])
    given.update([1], [0.5])
    assert made.total.digest() == before[1]
    assert seen.digest() == before[0]
    assert given.digest() != before[1]


@pytest.mark.slow
@pytest.mark.parametrize("name", THINGS)
def test_saved_and_copied(name: str, tmp_path: Path) -> None:
    made = ledger(name, 0, 1, 2)
    again = sm.load(sm.save(made, tmp_path / "ledger"))
    for other in (again, made.copy(), copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert other == made
        assert other.digest() == made.digest()
        assert other.to_bytes() == made.to_bytes()
        assert other.add("part-1", part(name, 1)) == made  # a retry after a restart
        assert other.add("part-3", part(name, 3)) != made
        assert other.total.digest() == ledger(name, 3, 2, 1, 0).total.digest()
    empty = empty_copy(made)
    assert (len(empty), bool(empty), empty.total) == (0, True, THINGS[name]())
    assert sm.from_bytes(empty.to_bytes()) == empty == made.copy().reset()


class TestMerge:
    def test_of_others(self) -> None:
        for a, b in itertools.permutations([ledger("sliced", 0, 1), ledger("sliced", 2)]):
            assert sm.merge([a, b]) == sm.merge([a.to_bytes(), b.to_bytes()]) == ledger("sliced", 0, 1, 2)

    @pytest.mark.slow
    def test_of_itself_and_of_an_older_one(self) -> None:
        older, newer = ledger("sliced", 0, 1), ledger("sliced", 0, 1, 2)
        for parts in itertools.permutations([older, newer.to_bytes(), newer, older.to_bytes(), older.to_bytes()]):
            assert sm.merge(parts) == newer
        assert newer.merge(newer) == newer
        assert sm.merge([newer, empty_copy(newer), empty_copy(newer).to_bytes()]) == newer

    def test_of_one_that_has_some_of_it(self) -> None:
        a, b = ledger("sliced", 0, 1), ledger("sliced", 1, 2)
        before = a.to_bytes(), b.to_bytes()
        with pytest.raises(
            sm.IncompatibleStateError, match=r"1 partition is in both ledgers [(]of 2 here and 2 there[)]"
        ):
            a.merge(b)
        with pytest.raises(sm.PartitionConflictError, match="'part-1'"):
            a.merge(sm.Ledger(THINGS["sliced"]()).add("part-1", part("sliced", 7)))
        assert (a.to_bytes(), b.to_bytes()) == before

    def test_of_other_metrics(self) -> None:
        for other in (ledger("sliced", 0), sm.CTR(), sm.Ledger(sm.AUC(bits=10))):
            with pytest.raises(sm.IncompatibleStateError):
                ledger("metric", 0).merge(other)  # type: ignore[arg-type]

    def test_states_of_ledgers_are_not_added(self) -> None:
        """Frames of one kind are folded together; that would count twice."""
        data = ledger("metric", 0, 1).to_bytes()
        with pytest.raises(sm.IncompatibleStateError):
            frame.merge_frames([data, data])


class TestIds:
    def test_of_every_kind(self) -> None:
        for ids in ([3, -1, 1 << 40], [b"\xff", b""], [date(2026, 1, 2), date(1970, 1, 1)], ["é", ""], [True, False]):
            made = sm.Ledger(sm.CTR())
            for i, one in enumerate(ids):
                made.add(one, sm.CTR().update([0] * i))
            assert sm.from_bytes(made.to_bytes()) == made
            assert set(made.partitions) == set(ids)
            assert all(one in made for one in ids)

    def test_are_of_one_kind(self) -> None:
        made = sm.Ledger(sm.CTR()).add("1", sm.CTR())
        assert 1 not in made
        with pytest.raises(TypeError, match="of kind string, but 1 is of kind integer"):
            made.add(1, sm.CTR())
        with pytest.raises(sm.IncompatibleStateError, match="kind string here and of kind integer there"):
            made.merge(sm.Ledger(sm.CTR()).add(1, sm.CTR()))

    @pytest.mark.parametrize("wrong", [None, 0.5, ("a", 1), [1]])
    def test_are_keys(self, wrong: Any) -> None:
        with pytest.raises(TypeError, match="a partition ID must be a Unicode string"):
            sm.Ledger(sm.CTR()).add(wrong, sm.CTR())


def test_only_what_counts_is_added() -> None:
    made = ledger("metric", 0)
    for wrong in (sm.CTR(), sm.AUC(bits=10), 3, made, sm.extend.ScoreHistogram()):
        with pytest.raises(sm.IncompatibleStateError):
            made.add("x", wrong)
    for nobody in (made, 3, sm.extend.ScoreHistogram()):
        with pytest.raises(TypeError, match="Ledger: expected a metric"):
            sm.Ledger(nobody)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="pass the object that counted"):
        made.update([1], [0.5])
    with pytest.raises(TypeError, match="coarsen the total of the ledger"):
        sm.coarsen(made, 10)
    for holder in (lambda: sm.Bundle({"x": made}), lambda: sm.MetricCollection({"x": made})):
        with pytest.raises(TypeError, match=r"(not|of class) Ledger"):
            holder()
    assert made == ledger("metric", 0)


def test_threads_add() -> None:
    made, parts = sm.Ledger(THINGS["collection"]()), [part("collection", i) for i in range(8)]

    def add(seed: int) -> None:
        for i in random.Random(seed).sample(range(8), 8):
            made.add(f"part-{i}", parts[i])

    threads = [threading.Thread(target=add, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == ledger("collection", *range(8))


@pytest.mark.slow
@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_an_interrupted_add_can_be_repeated(error: type[BaseException]) -> None:
    """At any place: the partition is in it or it is not, and its rows are, or are not."""
    before, after, new = ledger("collection", 0, 1), ledger("collection", 0, 1, 2), part("collection", 2)
    assert before.copy().add("part-2", new) == after  # what is kept is made: from now on all calls pass the same places
    counter, copied = faults.At(None, error), before.copy()
    counter.run(lambda: copied.add("part-2", new))
    last = range(max(counter.passed - 30, 1), counter.passed + 1)  # where it is noted
    for stop in [*faults.places(counter.passed, 40), *last]:
        made = before.copy()
        faults.At(stop, error).run(lambda made=made: made.add("part-2", new))  # type: ignore[misc]
        assert made in (before, after)
        assert made.add("part-2", new) == after


def test_a_disk_that_fails_leaves_the_last_one(tmp_path: Path) -> None:
    sm.save(ledger("sliced", 0), tmp_path / "ledger")
    grown = ledger("sliced", 0, 1)
    for nth in itertools.count(1):
        disk = faults.Disk(tmp_path, nth)
        try:
            with disk.mounted():
                sm.save(grown, tmp_path / "ledger")
        except OSError:
            assert sm.load(tmp_path / "ledger") == ledger("sliced", 0)
        if disk.passed < nth:
            break
    assert sm.load(tmp_path / "ledger") == grown


# -- bytes that nobody vouches for -------------------------------------------------------------------------------------


def test_damaged_bytes_are_a_format_error() -> None:
    data = ledger("sliced", 0, 1).to_bytes()
    for i in range(0, len(data), 7):
        for broken in (data[:i], data[:i] + bytes([data[i] ^ 0x41]) + data[i + 1 :]):
            with pytest.raises(sm.StateFormatError):
                sm.from_bytes(broken)


@pytest.mark.parametrize(
    "change",
    [{"added": np.array([2])}, {"added": np.array([0])}, {"digest": np.full((1, 8), 1 << 32)}],
    ids=["twice", "not at all", "no digest"],
)
def test_what_no_ledger_holds(change: dict[str, Any]) -> None:
    honest = ledger("metric", 0)
    added, total = states_of(honest)
    flats = {**added.cells.flats, **change}
    cells = type(added.cells)(added.cells.axes, added.cells.keys, added.cells.vocabularies, None, None, flats, {})
    with pytest.raises(sm.StateFormatError):
        sm.from_bytes(frame.write_frame([added.with_cells(cells), total], definition_of(honest).header()))


def test_headers_that_do_not_fit() -> None:
    honest = ledger("metric", 0)
    nested = {"kind": "ledger", "total": definition_of(honest).header()}
    for about, states in [
        (definition_of(honest).header(), states_of(honest)[::-1]),
        (definition_of(honest).header(), states_of(honest)[1:]),
        ({"kind": "ledger"}, states_of(honest)),
        (nested, (states_of(honest)[0], *states_of(honest))),
        ({"kind": "bundle", "names": ["a"], "things": [definition_of(honest).header()]}, states_of(honest)),
    ]:
        with pytest.raises(sm.StateFormatError):
            sm.from_bytes(frame.write_frame(states, about))


@pytest.mark.slow
def test_mutants() -> None:
    """Refused, or sound: as for everything else that is read."""
    report = fuzz_frames.attack(600, 1, [ledger("sliced", 0, 1), ledger("metric", 0, 1, 2), sm.Ledger(sm.CTR())])
    assert not report.surprises
    assert sum(report.mutants.values()) > 300


def test_many_partitions_take_little() -> None:
    """Reading takes some times what is kept: 32 bytes and an id each."""
    state = PartitionDigests.of("string", {f"day=2026-01-01/part-{i:06}".encode(): bytes(32) for i in range(50_000)})
    data = frame.write_frame(
        [state, *states_of(sm.CTR())], {"kind": "ledger", "total": definition_of(sm.CTR()).header()}
    )
    assert state.axes == (AXIS,)
    assert len(sm.from_bytes(data)) == 50_000
    assert len(data) < 4 << 20
