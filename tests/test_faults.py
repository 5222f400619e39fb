"""A disk that fails at any of its calls, memory that ends at any place: things are as before or as after, files too.

As SQLite is tested: the first call of the system fails, then the second, until none does. Of the places at which memory
may end, thousands in a call, the short form takes some; ``LAWS=100 pytest -m "" tests/test_faults.py`` a hundred times as
many.
"""

from __future__ import annotations

import errno
import itertools
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import faults
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import streammetrics as sm
from streammetrics.cli import main

ROWS = 400


def rows(seed: int, n: int = ROWS) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {
        "y_true": rng.integers(0, 2, n).astype(np.uint8),
        "y_score": rng.random(n).astype(np.float32),
        "group": rng.integers(0, 30, n),
        "country": rng.choice(["at", "be", "ch"], n),
    }


def some(seed: int, *names: str) -> dict[str, Any]:
    return {name: column for name, column in rows(seed).items() if name in ("y_true", "y_score", *names)}


def slices(seed: int) -> sm.Sliced:
    return sm.Sliced([sm.AUC(bits=12), sm.LogLoss()], by="country").update(**some(seed, "country"))


def bundle(seed: int) -> sm.Bundle:
    return sm.Bundle({"all": sm.AUC().update(**some(seed)), "by country": slices(seed)})


def groups(folder: Path, *seeds: int) -> sm.GroupAUC:
    """Users on disk."""
    made = sm.GroupAUC(memory_limit=4000, spill_dir=str(folder))
    for seed in seeds:
        made.update(**some(seed, "group"))
    return made


def content(thing: Any) -> bytes:
    """What something has seen, as bytes that are equal where it is."""
    data: bytes = sm.seal(thing).to_bytes() if isinstance(thing, sm.GroupAUC) else thing.to_bytes()
    return data


class Act(NamedTuple):
    """A call, and what can be seen of what it did: objects, files."""

    do: Callable[[], Any]
    seen: Callable[[], Any]


OF_THE_RUN = re.compile(rb"<dt>command</dt><dd>.*?</dd>|\d{4}-\d\d-\d\d \d\d:\d\d UTC", re.DOTALL)


def files(folder: Path) -> dict[str, bytes]:
    """Everything in a folder; of pages, neither the command nor the minute."""
    found = {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}
    return {name: OF_THE_RUN.sub(b"", data) for name, data in found.items()}


def command(*arguments: object) -> Callable[[], Any]:
    """A command, which ends in an error of the system if that is what ended it."""

    def call() -> None:
        with pytest.raises(SystemExit) as stop:
            main([str(a) for a in arguments])
        if stop.value.code:
            raise RefusedError(stop.value.code)

    return call


class RefusedError(Exception):
    """A command that said so."""


def written(folder: Path, seed: int = 0) -> Path:
    """A log."""
    path = folder / "log" / "part.parquet"
    path.parent.mkdir(exist_ok=True)
    if not path.exists():
        pq.write_table(pa.table(rows(seed)), path)
    return path


def saving(folder: Path) -> Act:
    (folder / "out").mkdir()
    sm.save(bundle(1), folder / "out" / "day")
    thing = bundle(2)
    return Act(lambda: sm.save(thing, folder / "out" / "day"), lambda: (content(thing), files(folder / "out")))


def saving_new(folder: Path) -> Act:
    (folder / "out").mkdir()
    thing = sm.AUC().update(**some(1))
    return Act(lambda: sm.save(thing, folder / "out" / "day"), lambda: files(folder / "out"))


def saving_through_a_link(folder: Path) -> Act:
    (folder / "out").mkdir()
    (folder / "links").mkdir()
    sm.save(slices(1), folder / "out" / "day")
    (folder / "links" / "today").symlink_to(folder / "out" / "day")
    thing = slices(2)

    def seen() -> Any:
        assert [p.is_symlink() for p in (folder / "links").iterdir()] == [True]
        return files(folder / "out")

    return Act(lambda: sm.save(thing, folder / "links" / "today"), seen)


def spilling(folder: Path) -> Act:
    thing = groups(folder / "spill", 1)
    return Act(lambda: thing.update(**some(2, "group")), lambda: (content(thing), files(folder / "spill")))


def spilling_more(folder: Path) -> Act:
    thing = groups(folder / "spill", 1, 2)
    return Act(lambda: thing.update(**some(3, "group")), lambda: (content(thing), files(folder / "spill")))


def merging_spills(folder: Path) -> Act:
    thing, other = groups(folder / "spill", 1, 2), groups(folder / "spill", 3)
    return Act(lambda: thing.merge(other), lambda: (content(thing), content(other), files(folder / "spill")))


def reading_a_spill(folder: Path) -> Act:
    thing, found = groups(folder / "spill", 1, 2), []
    whole = sm.GroupAUC().update(**some(1, "group")).update(**some(2, "group"))

    def do() -> None:
        found.append(thing.compute())
        assert found == [whole.compute()]

    return Act(do, lambda: (list(found), content(thing)))


def loading(folder: Path) -> Act:
    names = [sm.save(slices(seed), folder / f"day{seed}") for seed in range(3)]
    found: list[bytes] = []
    return Act(lambda: found.append(content(sm.merge(names).merge(sm.load(names[0])))), lambda: list(found))


def evaluating(folder: Path) -> Act:
    log, out = written(folder.parent), folder / "out"
    out.mkdir()
    for name in ("day", "page"):
        (out / name).write_bytes(b"from before")
    options = ("--label", "y_true", "--score", "y_score", "--by", "country", "--threads", 1, "--format", "json")
    return Act(command("eval", log, *options, "--save", out / "day", "--report", out / "page"), lambda: files(out))


def evaluating_scattered(folder: Path) -> Act:
    """Queries that stand anywhere, put in order on disk."""
    log, out = written(folder.parent), folder / "out"
    out.mkdir()
    options = ("--task-type", "ranking", "--label", "y_true", "--score", "y_score", "--query", "group", "--threads", 1)
    return Act(command("eval", log, *options, "--format", "json", "--save", out / "day"), lambda: files(out))


def merging_files(folder: Path) -> Act:
    names = [sm.save(slices(seed), folder / f"day{seed}") for seed in range(3)]
    out = folder / "out"
    out.mkdir()
    return Act(command("merge", *names, "-o", out / "week"), lambda: files(out))


ON_DISK = [
    saving, saving_new, saving_through_a_link, spilling, spilling_more, merging_spills, reading_a_spill, loading,
    evaluating, evaluating_scattered, merging_files,
]  # fmt: skip
BY_THREADS = [evaluating, evaluating_scattered]


def outcomes(make: Callable[[Path], Act], folder: Path) -> tuple[Any, Any]:
    """What is seen before, and after, where nothing fails."""
    folder.mkdir()
    act = make(folder)
    before = act.seen()
    act.do()
    return before, act.seen()


def allowed(before: Any, after: Any, seen: Any) -> bool:
    """Whether each thing that is seen is as before or as after: of several files some may have been written."""
    if isinstance(before, dict):
        return {**before, **after}.keys() >= seen.keys() and all(
            allowed(before.get(name), after.get(name), seen.get(name)) for name in {*before, *after}
        )
    if isinstance(before, tuple):
        return all(allowed(*three) for three in zip(before, after, seen, strict=True))
    return seen in (before, after)


@pytest.mark.slow
@pytest.mark.parametrize("make", ON_DISK)
def test_a_disk_that_fails(
    make: Callable[[Path], Act], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every call of the system fails once; then the same call does what it should have done."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before, after = outcomes(make, tmp_path / "whole")
    failed = 0
    for n in itertools.count(1):
        folder = tmp_path / str(n)
        folder.mkdir()
        act, disk = make(folder), faults.Disk(tmp_path, n, errno.ENOSPC if n % 2 else errno.EIO)
        capsys.readouterr()
        try:
            with disk.mounted():
                act.do()
        except (OSError, sm.StreamMetricsError, RefusedError) as error:
            failed, said = failed + 1, capsys.readouterr().err or str(error)
            assert str(tmp_path) in said
            assert said.count("\n") <= 1
        seen = act.seen()
        assert allowed(before, after, seen), f"call {n}: torn, or something is left behind"
        if disk.passed < n:
            break
        if seen != after:
            act.do()
            assert act.seen() == after, f"call {n}: does not go on"
        shutil.rmtree(folder)
    assert seen == after
    assert failed >= n - 3 > 0  # what follows the last write may fail unsaid


# memory may end in a thread before its first line: nothing there can say so, and what waits for it does
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # a file that is open, but not yet in the hands of its `with`
@pytest.mark.parametrize("make", ON_DISK)
def test_an_interrupt_or_an_end_of_memory(make: Callable[[Path], Act], tmp_path: Path) -> None:
    """At every place of the call. Of `update` and `merge` in memory, tests/collect/test_interrupts.py has more."""
    before, after = outcomes(make, tmp_path / "whole")
    (tmp_path / "count").mkdir()
    threads = make in BY_THREADS
    count = faults.At(None, MemoryError, threads=threads)
    count.run(make(tmp_path / "count").do)
    for stop in faults.places(count.passed, 12):
        folder = tmp_path / str(stop)
        folder.mkdir()
        act, error = make(folder), (KeyboardInterrupt, MemoryError)[stop % 2]
        try:
            interrupted = faults.At(stop, error, threads=threads).run(act.do)
        except RefusedError as refused:  # a command says so
            interrupted = refused.args[0] in (2, 130)
        seen, where = act.seen(), f"{error.__name__} at place {stop} of {count.passed}"
        assert allowed(before, after, seen), f"{where}: torn, or something is left behind"
        assert interrupted or seen == after, where
        if seen != after:
            act.do()
            assert act.seen() == after, f"{where}: does not go on"
        shutil.rmtree(folder)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="has no such limits")
@pytest.mark.parametrize("make", [saving, saving_new, saving_through_a_link, spilling, spilling_more, merging_spills])
def test_a_file_that_may_grow_no_more(make: Callable[[Path], Act], tmp_path: Path) -> None:
    """No seam here: the system itself writes less than it is asked for, and then nothing."""
    import resource

    before, after = outcomes(make, tmp_path / "whole")
    held = resource.getrlimit(resource.RLIMIT_FSIZE)
    refused = []
    for size in (0, 1, 100, 3000, 1 << 20):
        folder = tmp_path / str(size)
        folder.mkdir()
        act = make(folder)
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, held[1]))
            act.do()
        except (OSError, sm.MemoryLimitError) as error:
            refused.append(f"{folder}" in str(error) and os.strerror(errno.EFBIG) in str(error))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, held)
        assert allowed(before, after, act.seen()), f"{size} bytes: torn, or something is left behind"
        if act.seen() != after:
            act.do()
        assert act.seen() == after, f"{size} bytes"
    assert all(refused)
    assert 2 <= len(refused) < 5
