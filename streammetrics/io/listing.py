"""What a log consists of: files on disk and elsewhere, or tables."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence

from streammetrics.io.remote import find_urls, is_url
from streammetrics.io.sources import LogError, PathLike, Source, find_files, is_delta, log_file
from streammetrics.io.tables import TABLES, shown

__all__ = ["find_sources"]


def find_sources(paths: Iterable[PathLike], as_text: bool = False) -> list[Source]:
    """List the files behind files, folders, patterns and URLs, in a fixed order; or tables.

    Parameters
    ----------
    paths : iterable of path
        What the user named.
    as_text : bool
        Whether files whose suffix says nothing are text files.

    Raises
    ------
    LogError
        Nothing matches, a suffix is unknown, a file is named twice, or formats are mixed.
    """
    sources: list[Source] = []
    before: set[str] = set()
    for path in paths:
        mine = list(_behind(os.fspath(path), as_text))  # links within a folder are partitions of their own
        for source in mine:
            if _place(source) in before:
                # Counting rows twice is hardly ever meant and never visible in the result.
                raise LogError(f"{source.file}: named twice")
        sources += mine
        before.update(map(_place, mine))
    if not sources:
        raise LogError("no log file was named")
    _check_one_format(sources)
    return sources


def _place(source: Source) -> str:
    """Where a file really is, by whatever link and name."""
    return source.file if is_url(source.file) or source.table else os.path.realpath(source.file)


def _behind(path: str, as_text: bool) -> Iterator[Source]:
    """Return what one argument names; what is there is a file, whatever it is called."""
    kind, colon, _ = path.partition(":")
    if colon and kind in TABLES and not os.path.exists(path):
        yield Source(shown(path), kind, None, "", 0, {}, table=path)
    elif is_url(path) and not os.path.exists(path):
        yield from (log_file(*one, as_text=as_text) for one in find_urls(path))
    elif is_delta(path):
        yield Source(f"delta:{path}", "delta", None, "", 0, {}, table=f"delta:{path}")
    else:
        yield from (log_file(file, as_text=as_text) for file in find_files(path))


def _check_one_format(sources: Sequence[Source]) -> None:
    first = sources[0]
    for source in sources:
        if source.format != first.format:
            raise LogError(
                f"{first.file} and {source.file} are of different formats: score each format by itself with --save, then "
                f"merge the files. If a key is an integer in one format, give types={{'KEY': 'string'}} for both."
            )
