"""Files elsewhere: URLs such as s3://bucket/log/*.parquet, which fsspec lists and opens."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pyarrow as pa

from streammetrics.errors import StreamMetricsError
from streammetrics.io.sources import LogError, hidden

__all__ = ["Found", "find_urls", "is_url", "missing", "open_file"]

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_STAMPS = ("ETag", "etag", "md5Hash", "generation", "LastModified", "last_modified", "mtime", "updated", "created")


class Found(NamedTuple):
    """A file that was listed: its URL, its size, and what changes when it is written again."""

    url: str
    bytes: int
    stamp: str


def is_url(path: str) -> bool:
    """Whether a path is the URL of something that fsspec opens."""
    return _URL.match(path) is not None


def missing(what: str, package: str, extra: str) -> LogError:
    """The error where a package is not installed."""
    return LogError(f"{what}: reading it needs {package}: pip install 'streammetrics[{extra}]'")


def find_urls(url: str) -> list[Found]:
    """List the files behind a URL: of a file, a folder, or a pattern; in the order of their names.

    Raises
    ------
    LogError
        There is none; fsspec, or what it needs for such URLs, is not installed; or the other side refuses.
    """
    with _asking(url):
        system, path = _system(url)
        if re.search(r"[*?\[]", path) and not system.exists(path):
            base = re.split(r"[*?\[]", path)[0].rpartition("/")[0]
            known = system.glob(path, detail=True)
            listed = {name: info for name, info in known.items() if info["type"] == "file"}
            for name, info in known.items():
                listed |= system.find(name, detail=True) if info["type"] == "directory" else {}
        elif system.isdir(path):
            base, listed = path, system.find(path, detail=True)
        else:
            base, listed = posixpath.dirname(path), {path: system.info(path)}
        if any("/_delta_log/" in f"/{name}" for name in listed):
            raise LogError(
                f"{url}: is a Delta table, whose folder also holds rows that were deleted; name it delta:{url}"
            )
        found = [
            Found(str(system.unstrip_protocol(name)), int(info.get("size") or 0), _stamp(info))
            for name, info in sorted(listed.items())
            if not any(map(hidden, name.removeprefix(base).split("/")))
        ]
    if not found:
        raise LogError(f"{url}: no file matches" if "*" in url else f"{url}: no files in this folder")
    return found


def open_file(file: str, *, ranges: bool = False) -> pa.NativeFile:
    """Open a file on disk, or a URL.

    Parameters
    ----------
    file : str
        A path, or a URL.
    ranges : bool
        Whether so much is asked for at a time that nothing need be read ahead: whole columns of a row group.
    """
    if not is_url(file):
        return pa.OSFile(file)
    with _asking(file):
        system, path = _system(file)
        return pa.PythonFile(system.open(path, "rb", **({"cache_type": "none"} if ranges else {})), "r")


def _system(url: str) -> tuple[Any, str]:
    try:
        from fsspec.core import url_to_fs
    except ModuleNotFoundError:
        raise missing(url, "fsspec", "remote") from None
    found: tuple[Any, str] = url_to_fs(url)
    return found


def _stamp(info: dict[str, Any]) -> str:
    return next((f"{name}={info[name]}" for name in _STAMPS if info.get(name) is not None), "")


@contextmanager
def _asking(url: str) -> Iterator[None]:
    """Say in one line what another side, of which there are many, has against it."""
    try:
        yield
    except (StreamMetricsError, MemoryError):
        raise
    except FileNotFoundError:
        raise LogError(f"{url}: no such file or folder") from None
    except ImportError as error:
        raise LogError(f"{url}: a package is missing: {_line(error)}") from None
    except Exception as error:
        raise LogError(f"{url}: cannot be read: {_line(error)}") from error


def _line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:160]
