"""What was acknowledged is there: kill -9 of a process that puts, folds and keeps, and PostgreSQL restarted under load.

The short form kills a few. ``LAWS=100 pytest -m "" tests/serve/test_kills.py`` kills 50 processes on each database.
"""

from __future__ import annotations

import pickle
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import draws
import posted
import pytest

from streammetrics.serve.evaluation.totals import Totals
from streammetrics.serve.part_keys import PartKey
from streammetrics.serve.store import Store, StoreDownError, open_store

KILLS, RESTARTS = min(draws.tries(3), 50), min(draws.tries(2), 20)
CONTENTS = 97

PUTTING = """
import itertools, os, pickle, random, sys, threading
from streammetrics.serve.part_keys import HOUR, PartKey, PostedPart
from streammetrics.serve.store import open_store
from streammetrics.serve.evaluation.totals import Totals

url, frames, first, hour = sys.argv[1], pickle.load(open(sys.argv[2], "rb")), int(sys.argv[3]), int(sys.argv[4])
store, numbers = open_store(url), itertools.count(first)
totals = Totals(store)

def part(n):
    return PostedPart(PartKey("e", "eu", hour + n % 48, n), *frames[n % len(frames)], 0.0)

def put():
    rng = random.Random()
    while True:
        some = [next(numbers) for _ in range(rng.randrange(1, 6))]
        again = [max(0, n - rng.randrange(40)) for n in some]  # retries, also of what was not acknowledged
        parts = [part(n) for n in (*some, *again)]
        assert "conflict" not in store.put(parts)
        os.write(1, (" ".join(str(p.key.seq) for p in parts) + "\\n").encode())
        totals.total("e")
        if rng.random() < 0.2:
            totals.compact("e", now=(hour + 1000) * HOUR)
        if rng.random() < 0.2:
            totals.save("e")

for _ in range(3):
    threading.Thread(target=put).start()
"""


def frames() -> list[tuple[bytes, str]]:
    return [posted.frame(seed) for seed in range(CONTENTS)]


def check(store: Store, acknowledged: set[int], whole: bool) -> int:
    """Each part is there once, with what it was; return how many there are."""
    entries = store.ledger("e")
    numbers = [entry.key.seq for entry in entries]
    assert len(numbers) == len({*numbers})
    assert acknowledged <= {*numbers}
    assert {entry.state for entry in entries} <= {"current", "folded"}
    assert [entry.digest for entry in entries] == [posted.frame(n % CONTENTS)[1] for n in numbers]
    if whole:
        assert Totals(store).digest("e") == posted.counted(n % CONTENTS for n in numbers).digest()
    return len(numbers)


@contextmanager
def putting(*arguments: object) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", PUTTING, *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.slow
def test_kill_under_load(url: str, tmp_path: Path) -> None:
    """Two processes put the same parts, and go on where those before them may have ended."""
    saved = tmp_path / "frames"
    saved.write_bytes(pickle.dumps(frames()))
    rng, acknowledged, there = random.Random(4), set[int](), 0
    for i in range(KILLS):
        with putting(url, saved, there, posted.FIRST) as one, putting(url, saved, there, posted.FIRST) as other:
            said = [heard(one) for _ in range(rng.randrange(1, 30))] + [heard(other)]
            for process in (one, other):
                process.kill()
                assert process.stdout is not None
                said += process.stdout.read().splitlines()
        acknowledged |= {int(n) for line in said for n in line.split()}
        with open_store(url) as store:
            there = check(store, acknowledged, whole=i == KILLS - 1)
    assert len(acknowledged) > KILLS


def heard(process: subprocess.Popen[str]) -> str:
    """The next line that a process says: lines are written as one, so none is cut."""
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, process.stderr and process.stderr.read()
    return line


@pytest.mark.slow
def test_postgres_restarted_under_load(postgres: Any) -> None:
    stop, acknowledged, down = threading.Event(), list[int](), list[int]()

    def put(first: int) -> None:
        n = first
        while not stop.is_set():
            some = [posted.plain(PartKey("e", "eu", posted.FIRST, n), n)]
            try:
                answers = store.put(some)
            except StoreDownError:
                down.append(n)
                stop.wait(0.01)
                continue  # it may have been put or not: it is put again
            assert answers[0] in ("stored", "same")
            acknowledged.append(n)
            n += 4

    with open_store(postgres.fresh()) as store, ThreadPoolExecutor(4) as pool:
        try:
            working = [pool.submit(put, i) for i in range(4)]
            for mode in ["immediate", "fast"] * RESTARTS:
                wait_for_more(acknowledged, 50)
                postgres.stop(mode)
                try:
                    wait_for_more(down, 1)
                finally:
                    postgres.start()
            wait_for_more(acknowledged, 50)
        finally:
            stop.set()
        for one in working:
            one.result(30)
        numbers = [entry.key.seq for entry in store.ledger("e")]
    assert sorted(numbers) == sorted(acknowledged)
    assert down


def wait_for_more(happened: list[int], n: int) -> None:
    waiting, enough = threading.Event(), len(happened) + n
    for _ in range(3000):
        if len(happened) >= enough:
            return
        waiting.wait(0.01)
    raise AssertionError("it did not happen in half a minute")


@pytest.mark.slow
def test_a_commit_is_one_of_a_disk(tmp_path: Path, postgres: Any) -> None:
    """Kills cannot show what a power cut does: that is up to these settings."""
    with open_store(tmp_path / "a.db") as store, store.database.read_transaction() as run:
        assert (run("PRAGMA journal_mode"), run("PRAGMA synchronous")) == ([("wal",)], [(2,)])
    url = postgres.fresh()
    with open_store(url) as store:
        with store.database.read_transaction() as run:
            ((name,),) = run("SELECT current_database()")
        with store.database.write_transaction() as run:
            run(f"ALTER DATABASE {name} SET synchronous_commit = off")
    with open_store(url) as store, store.database.read_transaction() as run:
        assert run("SHOW synchronous_commit") == [("on",)]
