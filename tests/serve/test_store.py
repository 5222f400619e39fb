"""A store: each key counts once, what is acknowledged is there, and what fails changes nothing. On both databases."""

from __future__ import annotations

import random
import shutil
import sqlite3
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, count
from pathlib import Path
from typing import Any

import posted
import pytest

from streammetrics.errors import InvalidInputError, StreamMetricsError
from streammetrics.serve.part_keys import PartKey
from streammetrics.serve.store import Store, StoreDownError, StoreFullError, open_store, parts
from streammetrics.serve.store.parts import DAY, MAX_CONFLICTS, MergedDay

ONE = PartKey("checkout", "eu", posted.FIRST)


class Oracle:
    """What a store does, by a dict."""

    def __init__(self) -> None:
        self.counted: dict[PartKey, int] = {}
        self.aside: dict[PartKey, set[int]] = {}
        self.replaced: set[tuple[PartKey, int]] = set()

    def put(self, key: PartKey, content: int) -> str:
        if key not in self.counted:
            self.counted[key] = content
            return "stored"
        if self.counted[key] == content:
            return "same"
        aside = self.aside.setdefault(key, set())
        if (key, content) in self.replaced:
            return "rejected"
        if content not in aside and len(aside) >= MAX_CONFLICTS:
            return "excess"
        aside.add(content)
        return "conflict"

    def accept(self, key: PartKey, content: int) -> None:
        self.aside[key] ^= {content, self.counted[key]}
        self.replaced ^= {(key, self.counted[key]), *({(key, content)} & self.replaced)}
        self.counted[key] = content


def posts(n: int) -> Iterator[tuple[PartKey, int]]:
    """Duplicates, reordered and conflicting, of few experiments, sources and hours."""
    rng = random.Random(5)
    for _ in range(n):
        key = PartKey(rng.choice("ab"), rng.choice(["eu", "us"]), posted.FIRST + rng.randrange(20), rng.randrange(3))
        content = 1 + sum(map(ord, "".join(map(str, key)))) * 100 + (rng.randrange(12) if rng.random() < 0.4 else 0)
        yield key, content


def contents(store: Store, experiment: str, *states: str) -> dict[PartKey, set[int]]:
    found: dict[PartKey, set[int]] = {}
    for entry in store.ledger(experiment):
        if entry.state in states:
            found.setdefault(entry.key, set()).add(int(entry.digest, 16))
    return found


@pytest.mark.slow
def test_ten_thousand_posts(store: Store) -> None:
    oracle, rng, todo = Oracle(), random.Random(6), list(posts(10_000))
    while todo:
        some = [todo.pop() for _ in range(min(len(todo), rng.randrange(1, 200)))]
        assert store.put([posted.plain(*one) for one in some]) == [oracle.put(*one) for one in some]
        aside = store.conflicts(rng.choice("ab"))
        for entry in rng.sample(aside, min(len(aside), 2)):
            assert store.accept(entry.key.experiment, entry.number, by="ann", at=1.0) == entry.key
            oracle.accept(entry.key, int(entry.digest, 16))
    for name in "ab":
        assert contents(store, name, "current") == {k: {c} for k, c in oracle.counted.items() if k.experiment == name}
        aside = {k: c for k, c in oracle.aside.items() if k.experiment == name}
        assert contents(store, name, "conflict", "refused") == aside
        assert max(map(len, aside.values())) == MAX_CONFLICTS
        numbers = [entry.number for entry in store.ledger(name)]
        assert numbers == list(range(1, len(numbers) + 1))
        kept = {p.key: int(p.data) for _, p in pages(store, name)}
        assert kept == {k: c for k, c in oracle.counted.items() if k.experiment == name}


def pages(store: Store, experiment: str) -> Iterator[Any]:
    after = 0
    while found := store.parts(experiment, after):
        yield from found
        after = found[-1][0]


@pytest.mark.slow
def test_many_threads_put_at_once(store: Store) -> None:
    """Each content is stored by one of those that bring it."""
    todo = [posted.plain(PartKey("e", "eu", h), h) for h in range(60)] * 4
    random.Random(0).shuffle(todo)
    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(lambda i: store.put(todo[i : i + 5]), range(0, len(todo), 5)))
    assert sorted(chain(*answers)) == ["same"] * 180 + ["stored"] * 60
    assert len(store.ledger("e")) == 60


@pytest.mark.slow
def test_two_stores_on_one_database_are_as_one(url: str) -> None:
    """Two servers: each sees what the other has put, and no number is given twice."""
    with open_store(url) as one, open_store(url) as other, ThreadPoolExecutor(8) as pool:
        shares = [(s, posted.plain(PartKey("e", "eu", h), h)) for h in range(40) for s in (one, other)]
        answers = list(pool.map(lambda given: given[0].put([given[1]]), shares))
        assert sorted(chain(*answers)) == ["same"] * 40 + ["stored"] * 40
        assert one.ledger("e") == other.ledger("e")


@pytest.mark.slow
def test_numbers_come_in_the_order_of_commits(url: str) -> None:
    """Who has read up to a number never misses what is below it."""
    stop, seen = threading.Event(), list[int]()
    with open_store(url) as store, open_store(url) as reader, ThreadPoolExecutor(5) as pool:

        def read() -> None:
            last = False
            while not last:
                last = stop.is_set()
                seen.extend(number for number, _ in reader.parts("e", seen[-1] if seen else 0))

        reading = pool.submit(read)
        list(pool.map(lambda h: store.put([posted.plain(PartKey("e", "eu", h), h)] * 2), range(80)))
        stop.set()
        reading.result(60)
    assert seen == list(range(1, 81))


def test_a_look_is_of_one_moment(url: str) -> None:
    """Or folds and parts would be those of before and after somebody folded."""
    with open_store(url) as one, open_store(url) as other, one.database.read_transaction() as run:
        assert run("SELECT COUNT(*) FROM parts") == [(0,)]
        other.put([posted.plain(ONE, 1)])
        assert run("SELECT COUNT(*) FROM frames") == [(0,)]


def test_accepting(store: Store) -> None:
    store.put([posted.plain(ONE, 1), posted.plain(ONE, 2), posted.plain(ONE, 3)])
    assert [e.number for e in store.conflicts("checkout")] == [2, 3]
    store.accept("checkout", 2, by="ann", at=5.0)
    assert [e.state for e in store.ledger("checkout")] == ["refused", "current", "conflict"]
    assert store.put([posted.plain(ONE, 1), posted.plain(ONE, 2)]) == ["rejected", "same"]
    store.accept("checkout", 1, by="ann", at=6.0)  # a change of mind
    assert [e.state for e in store.ledger("checkout")] == ["current", "refused", "conflict"]
    assert [a.by for a in store.audits("checkout")] == ["ann", "ann"]
    for number in (1, 99):
        with pytest.raises(InvalidInputError, match=f"'checkout' has no conflict {number}"):
            store.accept("checkout", number, by="ann", at=7.0)
    assert len(store.audits("checkout")) == 2


def settle(store: Store, numbers: list[int], before: str | None = None, epoch: int = 0) -> bool:
    merged = MergedDay(posted.FIRST, posted.FIRST + DAY, before, numbers, "digest", b"fold")
    return store.replace_parts("checkout", epoch, merged)


def test_folding_keeps_the_ledger(store: Store) -> None:
    store.put([posted.plain(ONE, 1), posted.plain(ONE, 2), posted.plain(ONE._replace(hour=ONE.hour + DAY), 3)])
    assert not settle(store, [1], before="another")
    assert not settle(store, [1], epoch=1)
    assert not settle(store, [1, 3])
    assert settle(store, [1])
    assert not settle(store, [1], before="digest")
    assert store.put([posted.plain(ONE, 1), posted.plain(ONE, 2), posted.plain(ONE, 4)]) == ["same", "late", "late"]
    assert [e.state for e in store.ledger("checkout")] == ["folded", "conflict", "current", "late"]
    assert store.frames("checkout", [1, 2, 3, 4]) == [b"3"]
    assert store.load_merged_day("checkout", posted.FIRST, "digest") == b"fold"
    assert store.load_merged_day("checkout", posted.FIRST, "that before") is None
    assert store.load_parts_since("checkout", 0).is_complete is False
    assert store.load_parts_since("checkout", 1).is_complete is True
    for number in (2, 4):
        with pytest.raises(InvalidInputError, match=r"06-01T00/eu-0 cannot be accepted any more: .* correct_within"):
            store.accept("checkout", number, by="ann", at=0.0)


def test_conflicts_end_with_the_merge_of_their_day(store: Store) -> None:
    """Or their alert would never end, as nobody can accept them any more."""
    later = ONE._replace(hour=ONE.hour + DAY)
    store.put([posted.plain(key, content) for key in (ONE, later) for content in (1, 2)])
    store.close_conflicts("checkout", at=1.0)
    assert [e.number for e in store.conflicts("checkout")] == [2, 4]
    assert settle(store, [1])
    store.close_conflicts("checkout", at=1.0)
    assert [e.number for e in store.conflicts("checkout")] == [4]
    assert [e.number for e in store.late_parts("checkout")] == [2]
    assert store.load_ledger_since("checkout", 0)[0] == (4, 1)  # readers read the ledger again
    assert store.audits("checkout")[-1].what == "closed 1 conflicts, because the parts of their days are merged"


def test_what_was_folded_is_deleted_some_at_a_time(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """And at last, where that was interrupted."""
    monkeypatch.setattr(parts, "DELETE_BATCH", 3)
    store.put([posted.plain(PartKey("checkout", "eu", posted.FIRST + hour), hour) for hour in range(12)])
    writing, times = store.database.write_transaction, count()

    def writing_thrice() -> Any:
        if next(times) == 3:
            raise StoreFullError("full")
        return writing()

    monkeypatch.setattr(store.database, "write_transaction", writing_thrice)
    with pytest.raises(StoreFullError):
        settle(store, list(range(1, 11)))
    monkeypatch.undo()
    everything = list(range(1, 13))
    assert [e.state for e in store.ledger("checkout")] == ["folded"] * 10 + ["current"] * 2
    assert store.frames("checkout", everything) == [b"%d" % hour for hour in range(6, 12)]
    store.delete_obsolete_frames("checkout")
    assert store.frames("checkout", everything) == [b"10", b"11"]


def test_forgetting(store: Store) -> None:
    later = ONE._replace(hour=ONE.hour + DAY)
    store.put([posted.plain(ONE, 1), posted.plain(ONE, 2), posted.plain(later, 3)])
    settle(store, [1])
    store.save_total("checkout", (3, 0), b"total")
    assert store.forget("checkout", posted.FIRST + DAY - 1) == 0
    assert store.total("checkout") == ((3, 0), b"total")
    assert store.forget("checkout", posted.FIRST + DAY) == 1
    assert store.total("checkout") is None
    outline = store.outline("checkout")
    assert (outline.position, outline.day_digests, [e.number for e in outline.current_parts]) == ((3, 1), {}, [3])
    assert store.put([posted.plain(ONE, 1)]) == ["same"]
    assert store.frames("checkout", [1, 2, 3]) == [b"3"]


def test_totals_are_kept_if_they_are_later(store: Store) -> None:
    for at in [(5, 0), (4, 0), (2, 1), (9, 0), (1, 1)]:
        store.save_total("e", at, b"%d %d" % at)
    assert store.total("e") == ((2, 1), b"2 1")
    assert store.total("other") is None


def test_what_is_noted(store: Store) -> None:
    assert store.define("b", "{1}", by="ann", at=1.0) == 1
    assert store.define("b", "{1}", by="bob", at=2.0) == 1
    assert store.define("b", "{2}", by="bob", at=3.0) == 2
    assert store.define("a", "{}", by="ann", at=4.0) == 1
    assert {i: d[:2] for i, d in store.definitions().items()} == {"a": (1, "{}"), "b": (2, "{2}")}
    assert store.history("b") == [(1, "{1}", "ann", 1.0), (2, "{2}", "bob", 3.0)]
    fence = store.hold_leases("one", 60.0)["b"]
    assert store.evaluation("b") is None
    store.save_evaluation("b", 2.0, "one", "second", fence=fence)
    store.save_evaluation("b", 1.0, "two", "first by its clock", fence=fence)
    store.save_evaluation("b", 1.5, "three", fence=fence)
    assert store.looks("b") == [(2.0, "second"), (1.0, "first by its clock")]
    assert store.evaluation("b") == "three"
    for state in ("bad", "good"):
        store.set_alert_state("b", "ratio", state, fence=fence)
    assert store.alert_state("b") == {"ratio": "good"}
    for hashed in ("1", "2"):
        store.add_token("b", hashed, "worker", by="ann", at=5.0)
    assert store.tokens("b") == [("worker", "2")]
    assert [store.revoke("b", "worker", by="ann", at=6.0) for _ in range(2)] == [True, False]
    assert store.tokens("b") == []
    store.add_audit("b", "logged in", by="eve", at=7.0)
    assert [what for _, _, what in store.audits("b")] == [
        "defined version 1",
        "defined version 2",
        "made token 'worker'",
        "made token 'worker'",
        "revoked token 'worker'",
        "logged in",
    ]


def test_sessions(store: Store) -> None:
    store.add_session("s1", "t1", expires_at=10.0, now=0.0)
    store.add_session("s2", "t1", expires_at=20.0, now=0.0)
    assert [store.find_session(name, 9.0) for name in ("s1", "s2", "s3")] == ["t1", "t1", None]
    assert [store.find_session(name, 10.0) for name in ("s1", "s2")] == [None, "t1"]
    store.delete_session("s2")
    assert store.find_session("s2", 9.0) is None
    store.add_session("s3", "t1", expires_at=99.0, now=11.0)  # those that are over are deleted
    with store.database.read_transaction() as run:
        assert run("SELECT session FROM sessions") == [("s3",)]


def test_what_is_kept_is_there_when_it_is_opened_again(url: str) -> None:
    with open_store(url) as store:
        store.put([posted.plain(ONE, 1)])
    with open_store(url) as store:
        assert store.put([posted.plain(ONE, 1), posted.plain(ONE, 2)]) == ["same", "conflict"]
        with store.database.write_transaction() as run:
            run("UPDATE layout SET version = 2")
    with pytest.raises(StreamMetricsError, match="made by a later release"):
        open_store(url)


def test_what_fails_in_between_changes_nothing(store: Store) -> None:
    store.put([posted.plain(ONE, 1)])
    bad = posted.plain(ONE._replace(seq=3), 3)._replace(data=None)  # type: ignore[arg-type]
    with pytest.raises(Exception, match=r"(?i)not.null"):
        store.put([posted.plain(ONE._replace(seq=2), 2), bad])
    assert [e.key.seq for e in store.ledger("checkout")] == [0]
    assert store.put([posted.plain(ONE._replace(seq=2), 2)]) == ["stored"]
    assert [e.number for e in store.ledger("checkout")] == [1, 2]


def test_urls() -> None:
    for wrong in ("mysql://host/db", "mysql:///db"):
        with pytest.raises(ValueError, match="expected a path"):
            open_store(wrong)
    with pytest.raises(StoreDownError, match="PostgreSQL"):  # which is down, or cannot be spoken to without psycopg
        open_store("postgresql://nobody@/none?host=/nowhere")
    with pytest.raises(StoreDownError, match="unable to open"):
        open_store("/nowhere/store.db")


# -- SQLite alone ----------------------------------------------------------------------------------------------------


def filled(store: Store) -> int:
    """Put until there is no room; return how many parts were taken."""
    for i in range(10_000):
        try:
            assert store.put([large(i)]) == ["stored"]
        except StoreFullError:
            return i
    raise AssertionError("there is room for everything")


def large(i: int) -> Any:
    return posted.plain(ONE._replace(seq=i), i)._replace(data=bytes(20_000))


def test_a_full_disk_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from streammetrics.serve.store import sqlite

    settings = sqlite.SETTINGS
    monkeypatch.setattr(sqlite, "SETTINGS", (*settings, "PRAGMA max_page_count = 100"))
    with open_store(tmp_path / "a.db") as store:
        taken = filled(store)
        with pytest.raises(StoreFullError, match="the disk is full; nothing was written"):
            store.put([posted.plain(ONE._replace(seq=i), i) for i in range(taken, taken + 5000)])
        assert [e.number for e in store.ledger("checkout")] == list(range(1, taken + 1))
        store.database.close()  # connections keep the limit
        monkeypatch.setattr(sqlite, "SETTINGS", settings)
        assert store.put([large(taken), large(0)]) == ["stored", "same"]
        assert store.ledger("checkout")[-1].number == taken + 1


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = shutil.which("mount") or "none"
    if (
        mount == "none"
        or subprocess.run([mount, "-t", "tmpfs", "-o", "size=2m", "tmpfs", folder], capture_output=True).returncode
    ):
        pytest.skip("only who may mount file systems can try this")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def test_a_disk_that_is_really_full(small_disk: Path) -> None:
    """The write-ahead log finds no room, though the file itself has no limit."""
    (small_disk / "other").write_bytes(bytes(1_000_000))
    with open_store(small_disk / "a.db") as store:
        taken = filled(store)
        assert taken > 5
        assert len(store.ledger("checkout")) == taken
        (small_disk / "other").unlink()
        assert store.put([large(taken), large(0)]) == ["stored", "same"]
    with open_store(small_disk / "a.db") as store:
        assert len(store.ledger("checkout")) == taken + 1


def test_a_file_that_is_held_or_none_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from streammetrics.serve.store import sqlite

    monkeypatch.setattr(sqlite, "BUSY", 0.05)
    with open_store(tmp_path / "a.db") as store:
        holder = sqlite3.connect(tmp_path / "a.db", isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreDownError, match="locked"):
            store.put([posted.plain(ONE, 1)])
        assert store.ledger("checkout") == []  # who reads does not wait
        holder.execute("ROLLBACK")
        holder.close()
        assert store.put([posted.plain(ONE, 1)]) == ["stored"]
    (tmp_path / "b.db").write_bytes(b"no database" * 1000)
    with pytest.raises(StoreDownError, match="not a database"):
        open_store(tmp_path / "b.db")


def test_the_file_is_for_who_made_it(tmp_path: Path) -> None:
    with open_store(tmp_path / "a.db") as store:
        store.put([posted.plain(ONE, 1)])
        assert {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {
            "a.db": 0o600, "a.db-shm": 0o600, "a.db-wal": 0o600,
        }  # fmt: skip
    (tmp_path / "a.db").chmod(0o640)
    with open_store(tmp_path / "a.db"):
        assert (tmp_path / "a.db").stat().st_mode & 0o777 == 0o640


def test_writers_do_not_wait_for_each_other_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streammetrics.serve.store.sqlite.QUEUE", 0.05)
    with open_store(tmp_path / "a.db") as store:
        with store.database.write_transaction(), ThreadPoolExecutor(1) as other:
            late = other.submit(store.put, [posted.plain(ONE, 1)])
            with pytest.raises(StoreDownError, match="other writers"):
                late.result()
        store.check_write()
        assert store.put([posted.plain(ONE, 1)]) == ["stored"]


# -- PostgreSQL alone ------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_server_that_is_gone_and_comes_back(postgres: Any) -> None:
    with open_store(postgres.fresh()) as store:
        store.put([posted.plain(ONE, 1)])
        postgres.stop()
        try:
            for ask in (lambda: store.put([posted.plain(ONE, 2)]), lambda: store.ledger("checkout")):
                with pytest.raises(
                    StoreDownError, match="PostgreSQL"
                ):  # which is down, or cannot be spoken to without psycopg
                    ask()
        finally:
            postgres.start()
        assert store.put([posted.plain(ONE, 1), posted.plain(ONE, 2)]) == ["same", "conflict"]
        postgres.stop("fast")
        postgres.start()
        assert len(store.ledger("checkout")) == 2  # by itself, on a connection that is new


def test_a_server_whose_disk_is_full(postgres: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says so by its code for that."""
    with open_store(postgres.fresh()) as store:
        run = store.database.driver.run

        def full(connection: Any, sql: str, *given: Any) -> list[Any]:
            if "INTO frames" in sql:
                return run(
                    connection, "DO $$ BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = '53100'; END $$"
                )
            return run(connection, sql, *given)

        monkeypatch.setattr(store.database.driver, "run", full)
        with pytest.raises(StoreFullError, match="the disk is full; nothing was written"):
            store.put([posted.plain(ONE, 1)])
        monkeypatch.undo()
        assert store.ledger("checkout") == []
        assert store.put([posted.plain(ONE, 1)]) == ["stored"]
