"""Find the files of a log in folders and patterns; derive format and Hive partition keys from paths."""

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
    "collect_key_values",
    "find_files",
    "is_delta_table",
    "is_hidden",
    "is_integer",
    "make_log_file",
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
    ".json": "json",  # Spark and BigQuery use this suffix for JSON lines
    ".arrow": "ipc",
    ".arrows": "ipc",
    ".feather": "ipc",
    ".ipc": "ipc",
}
_READABLE_SUFFIXES = (
    ".parquet, .orc, .avro, .csv, .tsv, .jsonl and .json (also .gz, .zst, .bz2), .arrow, .arrows, .feather, .ipc"
)
_COMPRESSED_FORMATS = ("text", "json")
_NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
_INTEGER = re.compile(r"-?[0-9]{1,18}")  # 18 digits always fit an int64


class LogError(StreamMetricsError, ValueError):
    """Raised if a log cannot be read: no files, an unknown or broken file, a missing column."""


@dataclass(frozen=True)
class LogFile:
    """One file of a log: its path, its format, and its partition keys."""

    file: str
    format: str  # "parquet", "orc", "avro", "text", "json" or "ipc"
    compression: str | None
    delimiter: str
    bytes: int
    keys: Mapping[str, str | None]  # Hive partition keys as spelled; None is the null partition
    pipe: Any = None  # the `Pipe` of standard input
    stamp: str = ""  # changes when the file is rewritten
    table: str = ""  # full name of a table, or the query


def collect_key_values(sources: Sequence[LogFile]) -> dict[str, dict[str, str | None]]:
    """Return the value of every Hive partition key by file, as spelled."""
    names = dict.fromkeys(name for source in sources for name in source.keys)
    return {name: {source.file: source.keys[name] for source in sources if name in source.keys} for name in names}


def is_integer(text: str) -> bool:
    """Whether a string is an integer of at most 18 digits, which always fits an int64."""
    return _INTEGER.fullmatch(text) is not None


def find_files(path: str) -> Iterator[str]:
    """Yield the files that a path or pattern names, in a fixed order. An existing path is not taken as a pattern.

    Raises
    ------
    LogError
        There are no such files.
    """
    if os.path.isdir(path):
        yield from _list_folder(path)
    elif os.path.exists(path):
        yield path
    elif glob.has_magic(path):
        yield from _list_matches(path)
    else:
        raise LogError(f"{path}: no such file or folder")


def _list_folder(folder: str) -> list[str]:
    files = sorted(_walk_folder(folder, frozenset()))
    if not files:
        raise LogError(f"{folder}: no files in this folder")
    return files


def _walk_folder(folder: str, above: frozenset[str]) -> Iterator[str]:
    """Yield all files that are not hidden. Links to folders are followed, or their rows would be missing silently."""
    real = os.path.realpath(folder)
    # A symbolic link to a parent folder would lead to an endless recursion.
    if real in above:
        return
    try:
        entries = list(os.scandir(folder))
    except OSError as error:
        raise LogError(f"{folder}: {error.strerror}") from None
    if is_delta_table(folder):
        raise LogError(
            f"{folder}: is a Delta table, whose folder also holds rows that were deleted; name it delta:{folder}"
        )
    for entry in entries:
        if is_hidden(entry.name):
            continue
        if entry.is_dir():
            yield from _walk_folder(entry.path, above | {real})
        else:
            yield entry.path


def _list_matches(pattern: str) -> list[str]:
    """Return the files that match a pattern, and the files in folders that match."""
    parts = pattern.split(os.sep)
    first_magic = next(i for i, part in enumerate(parts) if glob.has_magic(part))
    matches = [
        path
        for path in glob.iglob(pattern, recursive=True)
        if not any(is_hidden(part) for part in path.split(os.sep)[first_magic:] if part)
    ]
    files = {path for path in matches if not os.path.isdir(path)}
    # A pattern that ends in "**" already matches the files in folders.
    if parts[-1] != "**":
        files.update(file for path in matches if os.path.isdir(path) for file in _walk_folder(path, frozenset()))
    if not files:
        raise LogError(f"{pattern}: no file matches")
    return sorted(files)


def is_delta_table(path: str) -> bool:
    """Whether a folder is a Delta table. Its transaction log decides which of its files are current."""
    return os.path.isdir(os.path.join(path, "_delta_log"))


def is_hidden(name: str) -> bool:
    """Whether Spark and Hive skip a name: `.crc` files, `_SUCCESS`, `_temporary`, but not `_day=3`."""
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def make_log_file(file: str, size: int | None = None, stamp: str = "", *, as_text: bool = False) -> LogFile:
    """Describe a file: derive its format and partition keys from its path, and read its size unless it is passed.

    With `as_text`, a file with an unknown suffix is a text file.

    Raises
    ------
    LogError
        The suffix is unknown, or the file does not exist.
    """
    stem, suffix = os.path.splitext(file.lower())
    compression = _COMPRESSIONS.get(suffix)
    if compression is not None:
        stem, suffix = os.path.splitext(stem)
    format_ = _FORMATS.get(suffix, "text" if as_text else None)
    if format_ is None or (compression is not None and format_ not in _COMPRESSED_FORMATS):
        full_suffix = suffix + (os.path.splitext(file)[1] if compression else "")
        what = f"unknown suffix {full_suffix!r}" if full_suffix else "no suffix"
        raise LogError(f"{file}: {what}; logs are read from {_READABLE_SUFFIXES}; name the files wanted by a pattern")
    if size is None:
        try:
            status = os.stat(file)
        except OSError as error:
            raise LogError(f"{file}: {error.strerror}") from None
        size, stamp = status.st_size, f"{status.st_mtime_ns}"
    delimiter = "\t" if suffix == ".tsv" else ","
    return LogFile(file, format_, compression, delimiter, size, _parse_hive_keys(file), stamp=stamp)


def _parse_hive_keys(file: str) -> dict[str, str | None]:
    """Return the partition keys in the folders of a path, also of those that the user named, such as `log/day=3`."""
    keys: dict[str, str | None] = {}
    for part in os.path.dirname(file).split(os.sep):
        name, equals, text = part.partition("=")
        if equals and name:
            value = unquote(text)  # Hive escapes characters that a file name cannot hold
            keys[unquote(name)] = None if value == _NULL_PARTITION else value
    return keys
