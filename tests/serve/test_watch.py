"""A folder into which parts are dropped: what is taken, what is tried again, what is refused and where that is said."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import fsspec
import pytest
from serve.client import Client
from serve.fakes import HOUR, NOW, World, arms, world

import streammetrics as sm
from streammetrics.serve.api.decoder import ThreadDecoder
from streammetrics.serve.api.ingest import Ingest
from streammetrics.serve.app import create_app
from streammetrics.serve.evaluation.definitions import Definitions
from streammetrics.serve.part_keys import PartKey
from streammetrics.serve.settings import ServerSettings
from streammetrics.serve.store import StoreDownError
from streammetrics.serve.store.folder_watcher import FolderWatcher, parse_path


@pytest.fixture
def here() -> World:
    return world()


@asynccontextmanager
async def watching(here: World, url: str, **given: Any) -> Any:
    settings = ServerSettings(clock=lambda: NOW, **given)
    queue = Ingest(here.store, here.board.mark_changed, settings, ThreadDecoder(here.store))
    task = asyncio.create_task(queue.run())
    yield FolderWatcher(url, queue, Definitions(here.store, settings.clock), here.store, settings)
    task.cancel()


def looks(here: World, folder: Path | str, *between: Any, **given: Any) -> FolderWatcher:
    """Look once, and once more after each thing that is done."""

    async def run() -> FolderWatcher:
        async with watching(here, str(folder), **given) as watch:
            await watch.scan()
            for do in between:
                do()
                await watch.scan()
            return watch

    return asyncio.run(run())


def drop(folder: Path, name: str = f"rank/{HOUR}/job-0.smet", data: bytes | None = None) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(arms().to_bytes() if data is None else data)
    return path


def nothing() -> None:
    pass


def test_parts_are_taken_as_if_posted(here: World, tmp_path: Path) -> None:
    drop(tmp_path)
    drop(tmp_path, f"rank/{HOUR}/spark-job-12.smet", arms(1).to_bytes())
    looks(here, tmp_path, nothing, nothing)
    assert sorted(here.store.kept) == [PartKey("rank", "job", 494529, 0), PartKey("rank", "spark-job", 494529, 12)]
    assert sum(here.store.groups) == 2  # and read once
    looks(here, tmp_path)
    assert len(here.store.kept) == 2
    assert here.store.aside == []


def test_a_file_that_is_written_while_looked_at_is_taken_when_it_is_whole(here: World, tmp_path: Path) -> None:
    data = arms().to_bytes()
    path = drop(tmp_path, data=b"")
    steps = [lambda n=n: path.write_bytes(data[:n]) for n in (10, 100, len(data) // 2, len(data) - 1, len(data))]
    looks(here, tmp_path, *steps)
    assert [part.digest for part in here.store.kept.values()] == [arms().digest()]
    assert not any("refused" in what for _, what, _ in here.store.audited)


def test_what_never_decodes_is_refused_once(here: World, tmp_path: Path) -> None:
    path = drop(tmp_path, data=arms().to_bytes()[:-1])
    watch = looks(here, tmp_path, nothing, nothing, nothing)
    refused = [row for row in here.store.audited if "refused" in row[1]]
    assert refused == [
        (
            "rank",
            f"refused the file rank/{HOUR}/job-0.smet: the state is corrupt: the checksum is wrong, so the bytes are "
            "damaged or truncated",
            "watch",
        )
    ]
    assert [seen.problem[:8] for seen in watch.statuses.values()] == ["the stat"]
    looks(here, tmp_path, nothing, lambda: path.write_bytes(arms().to_bytes()))
    assert len(here.store.kept) == 1  # written again, it is taken


def test_one_look_alone_refuses_nothing(here: World, tmp_path: Path) -> None:
    drop(tmp_path, data=b"half")
    looks(here, tmp_path)
    assert not any("refused" in what for _, what, _ in here.store.audited)


def test_what_decodes_and_does_not_fit_is_refused_at_once(here: World, tmp_path: Path) -> None:
    drop(tmp_path, data=sm.CTR().update([0, 1]).to_bytes())
    looks(here, tmp_path)
    assert "expected metrics sliced by arm" in here.store.audited[-1][1]


@pytest.mark.parametrize(
    ("hour", "words"), [("2062-06-01T09", "in the future"), ("2020-06-01T09", "before the start of the exp")]
)
def test_hours_are_those_of_the_experiment(here: World, tmp_path: Path, hour: str, words: str) -> None:
    drop(tmp_path, f"rank/{hour}/job-0.smet", arms().to_bytes())
    looks(here, tmp_path)
    assert here.store.kept == {}
    assert words in here.store.audited[-1][1]


def test_a_folder_that_may_not_be_read_keeps_no_other_from_being_taken(
    here: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drop(tmp_path, "mine/2026-06-01T09/job-0.smet", b"")
    drop(tmp_path)
    scandir = os.scandir

    def refused(path: str) -> Any:
        if path.endswith("mine"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refused)
    looks(here, tmp_path)
    assert len(here.store.kept) == 1


def test_written_again_with_other_content_it_is_a_conflict(here: World, tmp_path: Path) -> None:
    path = drop(tmp_path)
    looks(here, tmp_path, lambda: path.write_bytes(arms(1).to_bytes()))
    assert [part.digest for part in here.store.kept.values()] == [arms().digest()]
    assert [part.digest for part in here.store.aside] == [arms(1).digest()]


def test_a_store_that_is_away_is_waited_for(here: World, tmp_path: Path) -> None:
    drop(tmp_path)
    here.store.put, put = failing(here.store.put), here.store.put  # type: ignore[method-assign]

    def back() -> None:
        here.store.put = put  # type: ignore[method-assign]

    looks(here, tmp_path, nothing, back)
    assert len(here.store.kept) == 1
    assert not any("refused" in what for _, what, _ in here.store.audited)


def failing(put: Any) -> Any:
    def away(parts: Any) -> Any:
        raise StoreDownError("away")

    return away


def test_files_of_no_experiment_wait_for_it(here: World, tmp_path: Path) -> None:
    drop(tmp_path, f"later/{HOUR}/job-0.smet")
    watch = looks(here, tmp_path, nothing)
    (seen,) = watch.statuses.values()
    assert (seen.is_done, seen.problem) == (False, "there is no experiment 'later'; define it first, or correct its ID")
    assert here.store.audited == [("rank", "defined version 1", "test")]


@pytest.mark.parametrize(
    "name",
    [
        f"rank/{HOUR}/job.smet",
        f"rank/{HOUR}/-0.smet",
        f"rank/{HOUR}/job-x.smet",
        f"rank/{HOUR}/job-0.tmp",
        f"rank/{HOUR}/.job-0.smet",
        f"rank/{HOUR}/deep/job-0.smet",
        "rank/yesterday/job-0.smet",
        f"ra nk/{HOUR}/job-0.smet",
        "rank/job-0.smet",
        "job-0.smet",
        f".rank/{HOUR}/job-0.smet",
        f"rank/{HOUR}/jo\nb-0.smet",
        f"<b>/{HOUR}/job-0.smet",
    ],
)
def test_other_names_are_left_alone(here: World, tmp_path: Path, name: str) -> None:
    path = drop(tmp_path, name)
    looks(here, tmp_path, nothing)
    assert here.store.kept == {}
    assert path.exists()


def test_links_lead_nowhere(here: World, tmp_path: Path) -> None:
    outside, inside = tmp_path / "outside", tmp_path / "inside"
    secret = drop(outside, f"rank/{HOUR}/job-0.smet")
    (inside / "rank" / HOUR).mkdir(parents=True)
    os.symlink(secret, inside / "rank" / HOUR / "linked-0.smet")
    os.symlink(outside / "rank", inside / "rank2")
    os.symlink(outside / "rank" / HOUR, inside / "rank" / "2026-06-01T10")
    os.symlink(inside, inside / "rank" / "2026-06-01T11")
    looks(here, inside, nothing)
    assert here.store.kept == {}


def test_a_file_that_becomes_a_link_or_a_pipe_is_not_followed(here: World, tmp_path: Path) -> None:
    """Between the listing and the reading somebody may put something else there."""
    path = drop(tmp_path, "rank/2026-06-01T08/job-0.smet")
    other = drop(tmp_path, f"rank/{HOUR}/job-0.smet")

    async def run() -> None:
        async with watching(here, str(tmp_path)) as watch:
            listed = list(watch.folder.list_files())
            path.unlink()
            os.symlink(drop(tmp_path, "outside.smet"), path)
            other.unlink()
            os.mkfifo(other)
            watch.folder.files = lambda: iter(listed)
            for _ in range(3):
                await asyncio.wait_for(watch.scan(), 5)

    asyncio.run(run())
    assert here.store.kept == {}


def test_large_files_are_not_read(here: World, tmp_path: Path) -> None:
    path = drop(tmp_path, data=b"")
    with path.open("wb") as file:
        file.truncate(1 << 40)  # it takes no room on the disk
    looks(here, tmp_path, max_bytes=1000)
    assert "more than the limit of 1,000" in here.store.audited[-1][1]


def test_what_is_gone_is_forgotten(here: World, tmp_path: Path) -> None:
    path = drop(tmp_path)
    watch = looks(here, tmp_path, path.unlink)
    assert watch.statuses == {}


def test_a_folder_elsewhere(here: World) -> None:
    system = fsspec.filesystem("memory")
    system.pipe(f"/parts/rank/{HOUR}/job-0.smet", arms().to_bytes())
    system.pipe(f"/parts/rank/{HOUR}/bad-0.smet", b"half")
    system.pipe(f"/parts/rank/{HOUR}/other.txt", b"")
    try:
        looks(here, "memory://parts", nothing)
    finally:
        system.rm("/parts", recursive=True)
    assert [key.source for key in here.store.kept] == ["job"]
    assert "bad-0.smet" in here.store.audited[-1][1]


def test_a_folder_must_be_there(here: World, tmp_path: Path) -> None:
    with pytest.raises(sm.InvalidInputError, match="there is no folder"):
        looks(here, tmp_path / "nothing")


def test_paths_are_keys() -> None:
    assert parse_path(f"rank/{HOUR}/a.b_c-3.smet") == PartKey("rank", "a.b_c", 494529, 3)
    for path in (f"../{HOUR}/a-0.smet", f"rank/{HOUR}/..-0.smet"):
        with pytest.raises(sm.InvalidInputError):
            parse_path(path)


@pytest.fixture
def client(here: World, tmp_path: Path) -> Iterator[Client]:
    settings = ServerSettings(clock=lambda: NOW, watch=str(tmp_path), watch_seconds=0.01)
    with Client(create_app(*here[:2], settings)) as client:
        yield client


def test_the_application_watches(here: World, tmp_path: Path, client: Client) -> None:
    ready = drop(tmp_path, f"rank/{HOUR}/.job-0.smet")
    ready.rename(ready.with_name("job-0.smet"))
    assert here.board.told.wait(5)
    assert here.counted().digest() == arms().digest()
