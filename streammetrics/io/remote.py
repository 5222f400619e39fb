"""Remote files: list and open URLs such as s3://bucket/log/*.parquet with fsspec."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pyarrow as pa

from streammetrics.errors import StreamMetricsError
from streammetrics.io.sources import LogError, is_hidden

__all__ = ["RemoteFile", "find_urls", "is_url", "missing_package_error", "open_file"]

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_STAMPS = ("ETag", "etag", "md5Hash", "generation", "LastModified", "last_modified", "mtime", "updated", "created")


class RemoteFile(NamedTuple):
    """A remote file: its URL, its size in bytes, and a stamp (such as an ETag) that changes when the file does."""

    url: str
    bytes: int
    stamp: str


def is_url(path: str) -> bool:
    """Return whether a path is a URL, such as `s3://bucket/log`."""
    return _URL.match(path) is not None


def missing_package_error(what: str, package: str, extra: str) -> LogError:
    """Return an error that names the package needed to read the log `what`, and the pip extra that installs it."""
    return LogError(f"{what}: reading this log needs {package}: pip install 'streammetrics[{extra}]'")


def find_urls(url: str) -> list[RemoteFile]:
    """Return the files that a URL refers to, sorted by name. The URL names a file or folder, or is a glob pattern.

    Raises
    ------
    LogError
        No file matches, fsspec or a package that it needs is not installed, or the server denies access.
    """
    with _convert_errors(url):
        system, path = _open_filesystem(url)
        if re.search(r"[*?\[]", path) and not system.exists(path):
            base = re.split(r"[*?\[]", path)[0].rpartition("/")[0]
            matches = system.glob(path, detail=True)
            listed = {name: info for name, info in matches.items() if info["type"] == "file"}
            for name, info in matches.items():
                listed |= system.find(name, detail=True) if info["type"] == "directory" else {}
        elif system.isdir(path):
            base, listed = path, system.find(path, detail=True)
        else:
            base, listed = posixpath.dirname(path), {path: system.info(path)}
        if any("/_delta_log/" in f"/{name}" for name in listed):
            raise LogError(
                f"{url}: the folder is a Delta table, whose files also contain deleted rows; to read the table, name it "
                f"delta:{url}"
            )
        files = [
            RemoteFile(str(system.unstrip_protocol(name)), int(info.get("size") or 0), _format_stamp(info))
            for name, info in sorted(listed.items())
            if not any(map(is_hidden, name.removeprefix(base).split("/")))
        ]
    if not files:
        raise LogError(f"{url}: no file matches" if "*" in url else f"{url}: no files in this folder")
    return files


def open_file(file: str, *, ranges: bool = False) -> pa.NativeFile:
    """Open a local or remote file.

    Parameters
    ----------
    file : str
        A path, or a URL.
    ranges : bool
        Whether the caller reads large ranges, such as whole columns of a row group. Remote files are then read without
        read-ahead, because it would be useless.
    """
    if not is_url(file):
        return pa.OSFile(file)
    with _convert_errors(file):
        system, path = _open_filesystem(file)
        return pa.PythonFile(system.open(path, "rb", **({"cache_type": "none"} if ranges else {})), "r")


def _open_filesystem(url: str) -> tuple[Any, str]:
    try:
        from fsspec.core import url_to_fs
    except ModuleNotFoundError:
        raise missing_package_error(url, "fsspec", "remote") from None
    system_and_path: tuple[Any, str] = url_to_fs(url)
    return system_and_path


def _format_stamp(info: dict[str, Any]) -> str:
    return next((f"{name}={info[name]}" for name in _STAMPS if info.get(name) is not None), "")


@contextmanager
def _convert_errors(url: str) -> Iterator[None]:
    """Convert errors of any remote file system to a LogError with a one-line message."""
    try:
        yield
    except (StreamMetricsError, MemoryError):
        raise
    except FileNotFoundError:
        raise LogError(f"{url}: no such file or folder") from None
    except ImportError as error:
        raise LogError(f"{url}: a package for this URL is missing: {_first_line(error)}") from None
    except Exception as error:
        raise LogError(f"{url}: cannot be read: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:160]
