"""Files are replaced whole: links, permissions, pipes, names of any length, and what an error says."""

from __future__ import annotations

import os
import stat
import sys
import threading
from pathlib import Path

import pytest

import streammetrics as sm
from streammetrics.collect.files import atomic_write, read

POSIX = pytest.mark.skipif(sys.platform == "win32", reason="links, permissions and pipes of POSIX")


@pytest.fixture(scope="module")
def ctr() -> sm.CTR:
    return sm.CTR().update(y_true=[0, 1])


def write(path: Path, data: bytes = b"new") -> None:
    atomic_write(path, lambda file: file.write(data))


@POSIX
@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize("relative", [True, False])
def test_a_link_stays_a_link(there: bool, relative: bool, tmp_path: Path, ctr: sm.CTR) -> None:
    for name in ("links", "states"):
        (tmp_path / name).mkdir()
    target, link = tmp_path / "states" / "day", tmp_path / "links" / "today"
    if there:
        target.write_bytes(b"old")
    link.symlink_to(Path("..") / "states" / "day" if relative else target)
    (tmp_path / "links" / "again").symlink_to("today")
    sm.save(ctr, tmp_path / "links" / "again")
    assert (tmp_path / "links" / "again").readlink() == Path("today")
    assert link.is_symlink()
    assert not target.is_symlink()
    assert sm.load(target) == sm.load(link) == ctr
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["again", "day", "links", "states", "today"]


@POSIX
def test_permissions(tmp_path: Path) -> None:
    mask = os.umask(0o027)
    try:
        write(tmp_path / "new")
        (tmp_path / "old").write_bytes(b"old")
        (tmp_path / "old").chmod(0o604)
        write(tmp_path / "old")
    finally:
        assert os.umask(mask) == 0o027  # other threads create files, too
    assert [stat.S_IMODE((tmp_path / n).stat().st_mode) for n in ("new", "old")] == [0o640, 0o604]


@POSIX
def test_a_pipe_is_written_to(tmp_path: Path, ctr: sm.CTR) -> None:
    pipe, found = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: found.append(pipe.read_bytes()))
    reader.start()
    sm.save(ctr, pipe)
    reader.join()
    assert found == [ctr.to_bytes()]
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    sm.save(ctr, os.devnull)
    assert not Path(os.devnull).is_file()


def test_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ctr: sm.CTR) -> None:
    write(tmp_path / ("n" * 255))
    assert read(tmp_path / ("n" * 255)) == b"new"
    monkeypatch.chdir(tmp_path)
    assert sm.save(ctr, "here") == Path("here")
    assert sm.load("here") == ctr


def test_errors_name_the_file(tmp_path: Path, ctr: sm.CTR) -> None:
    (tmp_path / "folder").mkdir()
    for call in (write, lambda path: sm.save(ctr, path)):
        with pytest.raises(FileNotFoundError, match=r"'.*nowhere/day'$"):
            call(tmp_path / "nowhere" / "day")
        with pytest.raises(IsADirectoryError, match=r"'.*folder'$"):
            call(tmp_path / "folder")
    for get in (read, sm.load, lambda path: sm.merge([path])):
        with pytest.raises(FileNotFoundError, match=r"'.*nowhere'$"):
            get(tmp_path / "nowhere")
    with pytest.raises(TypeError, match=r"bytes-like"):
        write(tmp_path / "day", "text")  # type: ignore[arg-type]
    assert [p.name for p in tmp_path.iterdir()] == ["folder"]
