"""Who reads experiments: the same here and in a process of its own, which may die; and what was posted, by source."""

from __future__ import annotations

import json
import os
import signal
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streammetrics.serve.api.reader_process import ReaderProcess
from streammetrics.serve.api.worker import EndedError
from streammetrics.serve.evaluation.experiment_reader import ExperimentReader
from streammetrics.serve.evaluation.part_index import PartIndex
from streammetrics.serve.evaluation.totals import Totals
from streammetrics.serve.experiment_simulation import Simulation
from streammetrics.serve.part_keys import HOUR, PartKey, PostedPart, RowCounts
from streammetrics.serve.store import Store, open_store

SMALL = Simulation(days=2, users=100, rows=20, countries=1, sources=("web",))
HOURS = range(SMALL.start, SMALL.start + 12)


def put(store: Store, hours: Any, name: str = SMALL.id) -> None:
    store.define(name, json.dumps(SMALL.definition() | {"id": name}), by="test", at=0.0)
    parts = [(hour, SMALL.part("web", hour)) for hour in hours]
    store.put([PostedPart(PartKey(name, "web", h), p.to_bytes(), p.digest(), (h + 1.0) * HOUR) for h, p in parts])


@pytest.mark.slow
def test_in_a_process_of_its_own(tmp_path: Path) -> None:
    path, now = str(tmp_path / "a.db"), HOURS[-1] * HOUR + 0.5 * HOUR
    with open_store(path) as store:
        apart, here = ReaderProcess(path), ExperimentReader(store)
        put(store, HOURS[:6])
        assert apart.read(SMALL.id, now) == here.read(SMALL.id, now)
        put(store, HOURS[6:])
        assert apart.read(SMALL.id, now) == here.read(SMALL.id, now)
        assert apart.total(SMALL.id) == here.total(SMALL.id)
        pid = apart.worker.pid
        assert pid != os.getpid()
        os.kill(pid, signal.SIGKILL)
        with suppress(EndedError):  # if it was asked before it was seen that it has ended
            apart.read(SMALL.id, now)
        assert apart.read(SMALL.id, now) == here.read(SMALL.id, now)
        assert store.total(SMALL.id) is not None
        apart.close()
        apart.close()


@pytest.mark.slow
def test_an_error_of_the_other_process_is_that_of_this(tmp_path: Path) -> None:
    path = str(tmp_path / "a.db")
    with open_store(path):
        apart = ReaderProcess(path)
        with pytest.raises(IndexError):  # nobody defined it
            apart.read("nothing", 0.0)
        apart.close()


@pytest.mark.slow
def test_what_was_read_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_store(tmp_path / "a.db") as store:
        reader, now = ExperimentReader(store), (HOURS[-1] + 1.0) * HOUR
        put(store, HOURS[:6])
        first = reader.read(SMALL.id, now).evaluation
        posted, asked = store.load_ledger_since, list[int]()
        monkeypatch.setattr(store, "load_ledger_since", lambda name, after: asked.append(after) or posted(name, after))
        monkeypatch.setattr(store, "frames", lambda name, numbers: pytest.fail("a part was read twice"))
        put(store, HOURS[6:])
        found = reader.read(SMALL.id, now).evaluation
        assert asked == [6]
        monkeypatch.undo()
        assert (first.parts, found.parts) == (6, 12)
        assert found == ExperimentReader(store).read(SMALL.id, now).evaluation


@pytest.mark.slow
def test_a_start_reads_only_days_with_new_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hours = range(SMALL.start, SMALL.start + 30)
    with open_store(tmp_path / "a.db") as store:
        put(store, hours[:29])
        later = SMALL.definition() | {"mature_after": 2.0}
        store.define(SMALL.id, json.dumps(later), by="test", at=0.0)
        reader = ExperimentReader(store)
        reader.read(SMALL.id, (hours[28] + 1.0) * HOUR)
        reader.close()
        part = SMALL.part("web", hours[29])
        key, now = PartKey(SMALL.id, "web", hours[29]), (hours[29] + 1.0) * HOUR
        store.put([PostedPart(key, part.to_bytes(), part.digest(), now)])
        frames, asked = store.frames, list[int]()
        monkeypatch.setattr(store, "frames", lambda name, numbers: asked.extend(numbers) or frames(name, numbers))
        found = ExperimentReader(store).read(SMALL.id, now).evaluation
        assert asked
        assert min(asked) > 24  # the first day has no new parts
        monkeypatch.undo()
        with store.database.write_transaction() as run:
            run("DELETE FROM series")
            run("DELETE FROM totals")
        assert found == ExperimentReader(store).read(SMALL.id, now).evaluation


@pytest.mark.slow
def test_nothing_changes_before_a_deadline(tmp_path: Path) -> None:
    """Beside the day, and by how much a source is overdue."""
    with open_store(tmp_path / "a.db") as store:
        put(store, HOURS[:4])
        end = SMALL.start + 5
        definition = SMALL.definition() | {"mature_after": 3.5, "sources": {"web": 0.3, "app": 1.0}, "end": end}
        store.define(SMALL.id, json.dumps(definition), by="test", at=0.0)
        reader = ExperimentReader(store)
        first = found = reader.read(SMALL.id, HOURS[4] * HOUR).evaluation
        deadlines = []
        while found.due is not None:
            deadlines.append(found.due)
            before = reader.read(SMALL.id, found.due - 1.5).evaluation
            shown = found.advance(before.at)
            shown = replace(shown, sources=[s._replace(behind=round(s.behind, 3)) for s in shown.sources])
            before = replace(before, sources=[s._replace(behind=round(s.behind, 3)) for s in before.sources])
            assert replace(before, day=shown.day) == shown
            found = reader.read(SMALL.id, found.due).evaluation
        assert first.due == (SMALL.start + 1 + 3.5) * HOUR + 1.0  # the first hour is final from then on
        assert (end + 3.5) * HOUR + 1.0 in deadlines
        assert found.state == "ended"
        assert {s.state for s in found.sources} == {"silent"}


@pytest.mark.slow
def test_totals_make_room(tmp_path: Path) -> None:
    names = ["a", "b", "c"]
    with open_store(tmp_path / "a.db") as store:
        for name in names:
            put(store, HOURS[:3], name)
        totals = Totals(store, max_bytes=1)
        digests = [totals.digest(name) for name in names]
        for name in names:
            assert totals.total(name).digest() == digests[0]
        assert len(totals._totals) == 1
        assert {store.total(name) is not None for name in names[:2]} == {True}
        assert len({*digests}) == 1


# -- what was posted ---------------------------------------------------------------------------------------------------


class Entry(NamedTuple):
    key: PartKey
    received_at: float
    state: str
    row_counts: RowCounts = RowCounts(7, '{"y_true": 2}')


ENTRIES = st.builds(
    lambda source, hour, delay, state: Entry(PartKey("e", source, hour), (hour + 1 + delay) * HOUR, state),
    st.sampled_from("ab"),
    st.integers(0, 12),
    st.sampled_from([0.0, 0.5, 3.0]),
    st.sampled_from(["current", "folded", "forgotten", "conflict", "refused"]),
)


@pytest.mark.slow
@given(st.lists(ENTRIES, max_size=30), st.integers(-2, 14), st.integers(-2, 15), st.integers(0, 30))
def test_posted_is_what_a_list_says(entries: list[Entry], first: int, end: int, cut: int) -> None:
    posted = PartIndex().add(entries[:cut]).add(entries[cut:])
    counted = [e for e in entries if e.state in ("current", "folded", "forgotten")]
    hours = [e.key.hour for e in counted]
    assert posted.parts == len(counted)
    assert posted.span == ((min(hours), max(hours)) if hours else None)
    assert sorted(posted.sources) == sorted({e.key.source for e in entries})
    for name, source in posted.sources.items():
        mine = [e for e in counted if e.key.source == name]
        there = {e.key.hour for e in mine}
        assert [*source.hours.find_missing(first, end)] == [h for h in reversed(range(first, end)) if h not in there]
        assert (source.parts, source.rows) == (len(mine), 7 * len(mine))
        assert source.dropped == ({"y_true": 2 * len(mine)} if mine else {})
        assert source.conflicts == sum(e.state == "conflict" for e in entries if e.key.source == name)
        assert source.count_late(0.25) == sum(e.received_at / HOUR > e.key.hour + 1.25 for e in mine)
