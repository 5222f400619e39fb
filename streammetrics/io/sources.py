"""Which files a log consists of: files, folders and patterns; hive partition keys from their paths."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from streammetrics.errors import StreamMetricsError

__all__ = ["LogError", "PathLike", "Source", "find_files", "find_sources", "key_values"]

PathLike = str | os.PathLike[str]

_COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".zstd": "zstd", ".bz2": "bz2"}
_FORMATS = {
    ".parquet": "parquet",
    ".parq": "parquet",
    ".csv": "text",
    ".tsv": "text",
    ".jsonl": "json",
    ".ndjson": "json",
    ".arrow": "ipc",
    ".feather": "ipc",
    ".ipc": "ipc",
}
_READABLE = ".parquet, .csv, .tsv and .jsonl (also .gz, .zst, .bz2), .arrow, .feather, .ipc"
_COMPRESSED = ("text", "json")
_NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
_INTEGER = re.compile(r"-?[0-9]{1,18}")  # 18 digits always fit an int64


class LogError(StreamMetricsError, ValueError):
    """A log cannot be read as asked: nothing found, unknown or broken file, missing column."""


@dataclass(frozen=True)
class Source:
    """One file of a log: where it lies, how it is written, and what its path says."""

    file: str
    format: str  # "parquet", "text", "json" or "ipc"
    compression: str | None
    delimiter: str
    bytes: int
    keys: Mapping[str, str | None]  # hive partition keys, as spelled; None is the null partition
    pipe: Any = None  # of standard input: what is read, once
    stamp: str = ""  # what changes when the file is written again


def find_sources(paths: Iterable[PathLike]) -> list[Source]:
    """List the files behind files, folders and patterns, in a fixed order.

    Raises
    ------
    LogError
        Nothing matches, a suffix is unknown, a file is named twice, or formats are mixed.
    """
    found: dict[str, Source] = {}
    for path in paths:
        for file in find_files(os.fspath(path)):
            if os.path.normpath(file) in found:
                # Counting rows twice is hardly ever meant and never visible in the result.
                raise LogError(f"{file}: named twice")
            found[os.path.normpath(file)] = _source(file)
    sources = list(found.values())
    if not sources:
        raise LogError("no log file was named")
    _check_one_format(sources)
    return sources


def key_values(sources: Sequence[Source]) -> dict[str, dict[str, int | str | None]]:
    """Value of every hive key by file: integers where all values of that key are."""
    names = dict.fromkeys(name for source in sources for name in source.keys)
    result: dict[str, dict[str, int | str | None]] = {}
    for name in names:
        spelled = {source.file: source.keys[name] for source in sources if name in source.keys}
        texts = [text for text in spelled.values() if text is not None]
        integers = bool(texts) and all(_INTEGER.fullmatch(text) for text in texts)
        result[name] = {
            file: None if text is None else int(text) if integers else text for file, text in spelled.items()
        }
    return result


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
    for entry in entries:
        if _is_hidden(entry.name):
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
        if not any(_is_hidden(part) for part in path.split(os.sep)[plain:] if part)
    ]
    files = {path for path in matches if not os.path.isdir(path)}
    if parts[-1] != "**":  # "**" lists the files of the folders it matches by itself
        files.update(file for path in matches if os.path.isdir(path) for file in _walk(path, frozenset()))
    if not files:
        raise LogError(f"{pattern}: no file matches")
    return sorted(files)


def _is_hidden(name: str) -> bool:
    """Whether a name is left out as Spark and Hive do: `.crc` files, `_SUCCESS`, `_temporary`, but not `_day=3`."""
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def _source(file: str) -> Source:
    stem, suffix = os.path.splitext(file.lower())
    compression = _COMPRESSIONS.get(suffix)
    if compression is not None:
        stem, suffix = os.path.splitext(stem)
    format_ = _FORMATS.get(suffix)
    if format_ is None or (compression is not None and format_ not in _COMPRESSED):
        shown = suffix + (os.path.splitext(file)[1] if compression else "")
        what = f"unknown suffix {shown!r}" if shown else "no suffix"
        raise LogError(f"{file}: {what}; logs are read from {_READABLE}; name the files wanted by a pattern")
    try:
        found = os.stat(file)
    except OSError as error:
        raise LogError(f"{file}: {error.strerror}") from None
    return Source(
        file,
        format_,
        compression,
        "\t" if suffix == ".tsv" else ",",
        found.st_size,
        _hive_keys(file),
        None,
        f"{found.st_mtime_ns}",
    )


def _hive_keys(file: str) -> dict[str, str | None]:
    """Keys from every folder of the path as it was given, `log/day=3` included."""
    keys: dict[str, str | None] = {}
    for part in os.path.dirname(file).split(os.sep):
        name, equals, text = part.partition("=")
        if equals and name:
            value = unquote(text)  # Hive escapes characters that a file name cannot hold
            keys[unquote(name)] = None if value == _NULL_PARTITION else value
    return keys


def _check_one_format(sources: Sequence[Source]) -> None:
    first = sources[0]
    for source in sources:
        if source.format != first.format:
            raise LogError(f"{first.file} and {source.file} are of different formats; name one of them by a pattern")
