"""Find the files of a log, and derive their formats and Hive partition keys from their paths.

A Hive partition key is a column whose value is part of a folder name, such as `day=2025-06-02`.
"""

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
    # Spark and BigQuery use this suffix for JSON lines.
    ".json": "json",
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
# An integer of at most 18 digits always fits into an int64.
_INTEGER = re.compile(r"-?[0-9]{1,18}")


class LogError(StreamMetricsError, ValueError):
    """Raised if a log cannot be read, for example if no file is found, a file is broken, or a column is missing."""


@dataclass(frozen=True)
class LogFile:
    """Facts about a file or table that are known before it is opened, such as its format, size and partition keys."""

    file: str
    # The format: "parquet", "orc", "avro", "text" (CSV and TSV), "json", "ipc" (Arrow IPC), or the engine of a table,
    # such as "delta".
    format: str
    compression: str | None
    delimiter: str
    bytes: int
    # The values of the Hive partition keys, as spelled in the folder names. None stands for a null.
    keys: Mapping[str, str | None]
    # The `Pipe` of standard input; None for a file.
    pipe: Any = None
    # A string that changes when the file is rewritten, such as its modification time.
    stamp: str = ""
    # The full name of a table, or a SQL query with the prefix "sql:"; empty for a file.
    table: str = ""


def collect_key_values(sources: Sequence[LogFile]) -> dict[str, dict[str, str | None]]:
    """Return, for each Hive partition key, its value in each file, as spelled in the path of the file."""
    names = dict.fromkeys(name for source in sources for name in source.keys)
    return {name: {source.file: source.keys[name] for source in sources if name in source.keys} for name in names}


def is_integer(text: str) -> bool:
    """Return whether a string is an integer of at most 18 digits, which always fits into an int64."""
    return _INTEGER.fullmatch(text) is not None


def find_files(path: str) -> Iterator[str]:
    """Yield the files at a path (a file or a folder), or the files that match a pattern, in a fixed order.

    If a path that contains characters such as `*` exists, it is not treated as a pattern.

    Raises
    ------
    LogError
        No file matches.
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
    """Yield all files in a folder and its subfolders, except hidden ones.

    Symbolic links to folders are followed; otherwise, rows would be silently missing. `above` contains the real paths
    of the folders that contain `folder`.
    """
    real = os.path.realpath(folder)
    # A symbolic link to a parent folder would lead to endless recursion.
    if real in above:
        return
    try:
        entries = list(os.scandir(folder))
    except OSError as error:
        raise LogError(f"{folder}: {error.strerror}") from None
    if is_delta_table(folder):
        raise LogError(
            f"{folder}: the folder is a Delta table, whose files also contain deleted rows; to read the table, name it "
            f"delta:{folder}"
        )
    for entry in entries:
        if is_hidden(entry.name):
            continue
        if entry.is_dir():
            yield from _walk_folder(entry.path, above | {real})
        else:
            yield entry.path


def _list_matches(pattern: str) -> list[str]:
    """Return the files that match a pattern, and all files in folders that match the pattern."""
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
    """Return whether a folder is a Delta table. Only the files listed in its transaction log are current."""
    return os.path.isdir(os.path.join(path, "_delta_log"))


def is_hidden(name: str) -> bool:
    """Return whether a file or folder name is one that Spark and Hive skip, such as `.crc` or `_temporary`.

    Partitions such as `_day=3` are not skipped.
    """
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def make_log_file(file: str, size: int | None = None, stamp: str = "", *, as_text: bool = False) -> LogFile:
    """Describe a file: derive its format and partition keys from its path.

    The size and stamp of a local file are read from disk. With `as_text`, a file with an unknown suffix is treated as a
    text file.

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
        raise LogError(
            f"{file}: {what}; the supported suffixes are {_READABLE_SUFFIXES}; select the log files with a pattern "
            f"such as *.csv, or pass delimiter= to read files of any suffix as text"
        )
    if size is None:
        try:
            status = os.stat(file)
        except OSError as error:
            raise LogError(f"{file}: {error.strerror}") from None
        size, stamp = status.st_size, f"{status.st_mtime_ns}"
    delimiter = "\t" if suffix == ".tsv" else ","
    return LogFile(file, format_, compression, delimiter, size, _parse_hive_keys(file), stamp=stamp)


def _parse_hive_keys(file: str) -> dict[str, str | None]:
    """Return the partition keys in all folder names of a path, even in the part of the path that the user specified."""
    keys: dict[str, str | None] = {}
    for part in os.path.dirname(file).split(os.sep):
        name, equals, text = part.partition("=")
        if equals and name:
            # Hive escapes characters that are not allowed in file names.
            value = unquote(text)
            keys[unquote(name)] = None if value == _NULL_PARTITION else value
    return keys
