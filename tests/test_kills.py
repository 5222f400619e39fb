"""Ctrl-C while rows are counted, kill -9 while they are saved and spilled: real signals to processes of their own.

The short form sends a few. ``LAWS=100 pytest -m "" tests/test_kills.py`` sends 200 interrupts, many more to each of 50
processes that load their kernels, and kills 50 processes each way.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import draws
import pytest

import streammetrics as sm

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")

INTERRUPTS, KILLS = min(draws.tries(10), 200), min(draws.tries(2), 50)

BATCHES = """
import os, signal, sys, threading, time
import numpy as np
import streammetrics as sm

def batch(k, rows=3000):
    r = np.random.default_rng(k)
    return {"y_true": r.integers(0, 2, rows).astype(np.uint8), "y_score": r.random(rows).astype(np.float32),
            "group": r.integers(0, 50, rows), "country": r.choice(["at", "be", "ch"], rows)}
"""

COUNTED = (
    BATCHES
    + """
def made():
    return [
        sm.MetricCollection([sm.AUC(), sm.LogLoss(), sm.GroupAUC()]),
        sm.Sliced([sm.AUC(bits=12), sm.LogLoss()], by="country"),
        sm.GroupAUC(memory_limit=60_000, spill_dir=sys.argv[1]),
    ]

def content(thing):
    return sm.seal(thing).to_bytes() if isinstance(thing, sm.GroupAUC) else thing.to_bytes()

def rows(thing):
    state = sm.extend.states_of(thing.total if isinstance(thing, sm.Sliced) else thing)[0]
    return int(state.without_axes.facts()["rows"])

def checked(things, counted):
    for i, (thing, again) in enumerate(zip(things, made())):
        for k in counted[i]:
            again.update(batch(k))
        assert content(again) == content(thing), i

def handler(*_):
    global armed
    print("hit" if armed else "missed", flush=True)
    if armed:
        armed = False
        raise KeyboardInterrupt

def count(i, thing, k, one):
    global armed, before, after, all_batches
    all_batches += 1
    try:
        armed = True
        thing.update(one)
        armed = False
        counted[i].append(k)
    except KeyboardInterrupt:
        more = rows(thing) - 3000 * len(counted[i])
        assert more in (0, 3000), more
        before, after = before + (not more), after + (more > 0)
        counted[i] += [k] * (more > 0)

armed, counted, batches = False, [[], [], []], [batch(k) for k in range(20)]
before, after, all_batches = 0, 0, 0
"""
)

COUNTING = (
    COUNTED
    + """
checked(made(), counted)
checked([thing.update(batch(0)) for thing in made()], [[0], [0], [0]])  # what is not compiled yet, is now
signal.signal(signal.SIGINT, handler)
print("ready", flush=True)
things = made()
while not os.path.exists(sys.argv[2]):
    for k, one in enumerate(batches):
        for i, thing in enumerate(things):
            count(i, thing, k, one)
    checked(things, counted)
    things, counted = made(), [[], [], []]
print("whole", before, after, all_batches, flush=True)
"""
)

BEGINNING = (
    COUNTED
    + """
signal.signal(signal.SIGINT, handler)
print("ready", flush=True)
things = made()
while min(map(len, counted)) < 3:  # by then all kernels are loaded, however often that was interrupted
    for i, thing in enumerate(things):
        count(i, thing, all_batches % 20, batches[all_batches % 20])
checked(things, counted)
signal.signal(signal.SIGINT, signal.SIG_IGN)
print("whole", before, after, all_batches, flush=True)
"""
)

SAVED = """
def fresh():
    return sm.Bundle({"all": sm.AUC(), "by group": sm.Sliced(sm.AUC(bits=12), by="group")})

def more(day, k):
    for thing in day.values():
        thing.update({n: c for n, c in batch(k).items() if n in sm.extend.columns_of(thing)})
"""

SAVING = (
    BATCHES
    + SAVED
    + """
day = fresh()
for k in range(10**9):
    more(day, k)
    sm.save(day, sys.argv[1])
    if k == 1: print("ready", flush=True)
"""
)

SPILLING = (
    BATCHES
    + """
groups = sm.GroupAUC(memory_limit=100_000, spill_dir=sys.argv[1])
for k in range(10**9):
    groups.update({n: c for n, c in batch(k).items() if n in sm.extend.columns_of(groups)})
    if k == 20: print("ready", flush=True)
"""
)


def day(batches: int) -> Any:
    """What so many batches make."""
    names: dict[str, Any] = {}
    exec(BATCHES + SAVED, names)
    made = names["fresh"]()
    for k in range(batches):
        names["more"](made, k)
    return made


@contextmanager
def running(code: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """A process that has said that it is ready; one that does not end says where it stands."""
    command = [sys.executable, "-X", "faulthandler", "-c", code, *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        patience = threading.Timer(300, process.send_signal, [signal.SIGABRT])
        patience.start()
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n", process.stderr and process.stderr.read()
            yield process
        finally:
            patience.cancel()
            process.kill()


def interrupted(process: subprocess.Popen[str], rng: random.Random, within: float = 0.02) -> str:
    """What it says of a Ctrl-C that comes within so many seconds: whether that was while it counts."""
    assert process.stdout is not None
    time.sleep(rng.random() * within)
    process.send_signal(signal.SIGINT)
    return process.stdout.readline()


@pytest.mark.slow
def test_interrupts(tmp_path: Path) -> None:
    """After each, a batch is counted or it is not, and the bits are those of the batches that were."""
    spill, stop, rng = tmp_path / "spill", tmp_path / "stop", random.Random(0)
    spill.mkdir()
    with running(COUNTING, spill, stop) as process:
        hits = 0
        while hits < INTERRUPTS:
            said = interrupted(process, rng)
            assert said in ("hit\n", "missed\n"), process.stderr and process.stderr.read()
            hits += said == "hit\n"
        stop.touch()
        said, errors = process.communicate()
    print(said)
    assert said.startswith("whole "), errors  # before, after: how many batches were not counted, and were
    assert process.returncode == 0
    assert not list(spill.iterdir())


@pytest.mark.slow
def test_interrupts_while_kernels_are_loaded(tmp_path: Path) -> None:
    """numba that is interrupted keeps its locks, and registries that are half read."""
    rng = random.Random(3)
    for _ in range(KILLS):
        with running(BEGINNING, tmp_path) as process:
            within = 0.02
            while (said := interrupted(process, rng, within)) in ("hit\n", "missed\n"):
                within *= 1.002  # steps that take longer than the pauses between interrupts would never end
            _, errors = process.communicate()
        print(said)
        assert said.startswith("whole "), errors
        assert process.returncode == 0


@pytest.mark.slow
def test_kill_while_saving(tmp_path: Path) -> None:
    """The file is that of one of the saves, to the bit; beside it lies one without its name, if any."""
    rng, left = random.Random(1), 0
    for i in range(KILLS):
        folder = tmp_path / str(i)
        folder.mkdir()
        with running(SAVING, folder / "day") as process:
            time.sleep(rng.random() * 0.05)
            process.kill()
            process.wait(60)
        found = sm.load(folder / "day")
        batches, none = divmod(found["all"].state.facts()["rows"], 3000)
        assert none == 0
        assert (folder / "day").read_bytes() == day(batches).to_bytes()
        names = [p.name for p in folder.iterdir() if p.name != "day"]
        assert all(name.startswith(".streammetrics-") for name in names)
        left += len(names)
    print(f"{left} hidden files of {KILLS} kills")


@pytest.mark.slow
def test_kill_while_spilling(tmp_path: Path) -> None:
    """The disk is given back."""
    rng = random.Random(2)
    for i in range(KILLS):
        folder = tmp_path / str(i)
        with running(SPILLING, folder) as process:
            time.sleep(rng.random() * 0.05)
            process.kill()
            process.wait(60)
        assert not list(folder.iterdir())
