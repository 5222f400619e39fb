"""Files of a log on disk: folders and patterns; what a path says of format and hive partition keys."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from streammetrics.errors import StreamMetricsError

__all__ = [
    "LogError",
    "LogFile",
    "PathLike",
    "find_files",
    "hidden",
    "is_delta",
    "is_integer",
    "key_values",
    "log_file",
]

PathLike = str | os.PathLike[str]

_COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".zstd": "zstd", ".bz2": "bz2"}
_FORMATS = {
    ".parquet": "parquet",
    ".parq": "parquet",
    ".orc": "orc",
    ".avro": "avro",
    ".csv": "text",
    ".tsv": "text",
    ".jsonl": "json",
    ".ndjson": "json",
    ".json": "json",  # as Spark and BigQuery call JSON lines
    ".arrow": "ipc",
    ".arrows": "ipc",
    ".feather": "ipc",
    ".ipc": "ipc",
}
_READABLE = (
    ".parquet, .orc, .avro, .csv, .tsv, .jsonl and .json (also .gz, .zst, .bz2), .arrow, .arrows, .feather, .ipc"
)
_COMPRESSED = ("text", "json")
_NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
_INTEGER = re.compile(r"-?[0-9]{1,18}")  # 18 digits always fit an int64


class LogError(StreamMetricsError, ValueError):
    """A log cannot be read as asked: nothing found, unknown or broken file, missing column."""


@dataclass(frozen=True)
class LogFile:
    """One file of a log: where it lies, how it is written, and what its path says."""

    file: str
    format: str  # "parquet", "orc", "avro", "text", "json" or "ipc"
    compression: str | None
    delimiter: str
    bytes: int
    keys: Mapping[str, str | None]  # hive partition keys, as spelled; None is the null partition
    pipe: Any = None  # of standard input: what is read, once
    stamp: str = ""  # what changes when the file is written again
    table: str = ""  # of a table or query: what it is called in full


def key_values(sources: Sequence[LogFile]) -> dict[str, dict[str, str | None]]:
    """Value of every hive key by file, as it is spelled."""
    names = dict.fromkeys(name for source in sources for name in source.keys)
    return {name: {source.file: source.keys[name] for source in sources if name in source.keys} for name in names}


def is_integer(text: str) -> bool:
    """Whether a text is an integer that an int64 certainly holds."""
    return _INTEGER.fullmatch(text) is not None


def find_files(path: str) -> Iterator[str]:
    """Yield the files behind a path or pattern, in a fixed order; what exists is taken literally before it is a pattern.

    Raises
    ------
    LogError
        There is none.
    """
    if os.path.isdir(path):
        yield from _in_folder(path)
    elif os.path.exists(path):
        yield path
    elif glob.has_magic(path):
        yield from _matching(path)
    else:
        raise LogError(f"{path}: no such file or folder")


def _in_folder(folder: str) -> list[str]:
    files = sorted(_walk(folder, frozenset()))
    if not files:
        raise LogError(f"{folder}: no files in this folder")
    return files


def _walk(folder: str, above: frozenset[str]) -> Iterator[str]:
    """All files that are not hidden; linked folders are followed, or their rows would be missing silently."""
    real = os.path.realpath(folder)
    if real in above:  # a link to a folder above would go round for ever
        return
    try:
        entries = list(os.scandir(folder))
    except OSError as error:
        raise LogError(f"{folder}: {error.strerror}") from None
    if is_delta(folder):
        raise LogError(
            f"{folder}: is a Delta table, whose folder also holds rows that were deleted; name it delta:{folder}"
        )
    for entry in entries:
        if hidden(entry.name):
            continue
        if entry.is_dir():
            yield from _walk(entry.path, above | {real})
        else:
            yield entry.path


def _matching(pattern: str) -> list[str]:
    """Files that a pattern matches, and those in folders that it matches."""
    parts = pattern.split(os.sep)
    plain = next(i for i, part in enumerate(parts) if glob.has_magic(part))
    matches = [
        path
        for path in glob.iglob(pattern, recursive=True)
        if not any(hidden(part) for part in path.split(os.sep)[plain:] if part)
    ]
    files = {path for path in matches if not os.path.isdir(path)}
    if parts[-1] != "**":  # "**" lists the files of the folders it matches by itself
        files.update(file for path in matches if os.path.isdir(path) for file in _walk(path, frozenset()))
    if not files:
        raise LogError(f"{pattern}: no file matches")
    return sorted(files)


def is_delta(path: str) -> bool:
    """Whether a folder is a Delta table: which of its files count is said by a log of its own."""
    return os.path.isdir(os.path.join(path, "_delta_log"))


def hidden(name: str) -> bool:
    """Whether a name is left out as Spark and Hive do: `.crc` files, `_SUCCESS`, `_temporary`, but not `_day=3`."""
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def log_file(file: str, size: int | None = None, stamp: str = "", *, as_text: bool = False) -> LogFile:
    """Say how a file is written, by its name; one on disk is looked at for its size.

    With `as_text` a file whose suffix is unknown is a text file.

    Raises
    ------
    LogError
        The suffix is unknown, or the file is not there.
    """
    stem, suffix = os.path.splitext(file.lower())
    compression = _COMPRESSIONS.get(suffix)
    if compression is not None:
        stem, suffix = os.path.splitext(stem)
    format_ = _FORMATS.get(suffix, "text" if as_text else None)
    if format_ is None or (compression is not None and format_ not in _COMPRESSED):
        shown = suffix + (os.path.splitext(file)[1] if compression else "")
        what = f"unknown suffix {shown!r}" if shown else "no suffix"
        raise LogError(f"{file}: {what}; logs are read from {_READABLE}; name the files wanted by a pattern")
    if size is None:
        try:
            found = os.stat(file)
        except OSError as error:
            raise LogError(f"{file}: {error.strerror}") from None
        size, stamp = found.st_size, f"{found.st_mtime_ns}"
    delimiter = "\t" if suffix == ".tsv" else ","
    return LogFile(file, format_, compression, delimiter, size, _hive_keys(file), stamp=stamp)


def _hive_keys(file: str) -> dict[str, str | None]:
    """Keys from every folder of the path as it was given, `log/day=3` included."""
    keys: dict[str, str | None] = {}
    for part in os.path.dirname(file).split(os.sep):
        name, equals, text = part.partition("=")
        if equals and name:
            value = unquote(text)  # Hive escapes characters that a file name cannot hold
            keys[unquote(name)] = None if value == _NULL_PARTITION else value
    return keys
