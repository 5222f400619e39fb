"""`streammetrics merge` and `show`: saved states. No numba here."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from streammetrics.cli.messages import UsageError
from streammetrics.cli.records import check_order, restricted
from streammetrics.cli.score import check_target, print_results, read_sets, write_report
from streammetrics.collect.files import identity
from streammetrics.collect.saved import load, merge, save
from streammetrics.compose.checkpoint import Checkpoint
from streammetrics.compose.ledger import Ledger
from streammetrics.compose.sliced import Sliced
from streammetrics.io.sources import find_files
from streammetrics.report.records import pieces

__all__ = ["merge_files", "show_file"]

MOST = 8 << 30  # bytes that a file may unfold to: slices by the thousand, but no bomb


def merge_files(paths: Sequence[str], output: str) -> None:
    """Merge the files behind paths, folders and patterns into one."""
    check_target(output)
    files = _found(paths, output)
    total = merge(files, max_bytes=MOST)
    if isinstance(total, Checkpoint):
        raise UsageError(f"{files[0]}: is a checkpoint, half of a result: finish its pass, and merge what --save wrote")
    save(total, output)
    some = f"{len(files):,} file{'s' if len(files) > 1 else ''} merged"
    print(f"{output}: {some}, {_rows(total)}digest {total.digest()[:16]}")


def _found(paths: Sequence[str], output: str) -> list[str]:
    """The files, each once; one that a folder or pattern found may not be written over, or the next run counts it."""
    named: dict[tuple[int, int], str] = {}
    target = identity(output) if os.path.exists(output) else None
    for path in paths:
        for file in find_files(path):
            which = identity(file)
            if which in named:
                raise UsageError(f"{file}: named twice, and its rows would count twice")
            if which == target and file != path:
                raise UsageError(f"{output}: is among the files of {path}, and would count again; write it elsewhere")
            named[which] = file
    return list(named.values())


def show_file(
    file: str,
    printed: str,
    top: int,
    report: str | None = None,
    *,
    metrics: Sequence[str] | None = None,
    by: Sequence[str] = (),
    sort: str | None = None,
    min_rows: int = 0,
) -> None:
    """Print what a file holds, or some of it."""
    if report is not None:
        check_target(report)
    sets = read_sets(by)
    thing = load(file, max_bytes=MOST)
    title = f"{file}, {_held(thing)}{_rows(thing)}digest {thing.digest()[:16]}"
    shown = restricted(thing, metrics, sets) if metrics is not None or sets else thing
    for _, piece in pieces(shown):
        if isinstance(piece, Sliced):
            check_order(piece, sort)
    print_results(shown, printed, top, title, sort, min_rows)
    if report is not None:
        write_report(shown, report, f"{file}, {_rows(thing).rstrip(', ')}", sort, min_rows)


def _held(thing: Any) -> str:
    """What a checkpoint or a ledger has added up."""
    if isinstance(thing, Checkpoint):
        return f"{thing.count:,} of {thing.parts:,} parts, "
    return f"{len(thing):,} partition{'s' if len(thing) != 1 else ''}, " if isinstance(thing, Ledger) else ""


def _rows(thing: Any) -> str:
    piece = pieces(thing)[0][1]
    state = min(piece.feed.states, key=lambda s: s.nbytes)  # any of them knows
    rows = state.whole.facts().get("rows")
    return "" if rows is None else f"{rows:,} rows, "
