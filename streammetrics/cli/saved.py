"""`streammetrics merge` and `show`: saved states. No numba here."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from streammetrics.cli.messages import UsageError
from streammetrics.cli.records import pieces
from streammetrics.cli.score import check_target, print_results, write_report
from streammetrics.collect.saved import load, save
from streammetrics.errors import IncompatibleStateError

__all__ = ["merge_files", "show_file"]

MOST = 8 << 30  # bytes that a file may unfold to: slices by the thousand, but no bomb


def merge_files(files: Sequence[str], output: str) -> None:
    """Merge files into one."""
    check_target(output)
    real = [os.path.realpath(file) for file in files]
    for file in files:
        if real.count(os.path.realpath(file)) > 1:
            raise UsageError(f"{file}: named twice, and its rows would count twice")
    total: Any = None
    for file in files:
        part = load(file, max_bytes=MOST)
        try:
            total = part if total is None else total.merge(part)
        except IncompatibleStateError as error:
            raise UsageError(f"{file}: {error}") from None
    save(total, output)
    print(
        f"{output}: {len(files)} file{'s' if len(files) > 1 else ''} merged, {_rows(total)}digest {total.digest()[:16]}"
    )


def show_file(file: str, printed: str, top: int, report: str | None = None) -> None:
    """Print what a file holds."""
    if report is not None:
        check_target(report)
    thing = load(file, max_bytes=MOST)
    pieces(thing)
    print_results(thing, printed, top, f"{file}, {_rows(thing)}digest {thing.digest()[:16]}")
    if report is not None:
        write_report(thing, report, f"{file}, {_rows(thing).rstrip(', ')}")


def _rows(thing: Any) -> str:
    piece = pieces(thing)[0][1]
    state = min(piece.feed.states, key=lambda s: s.nbytes)  # any of them knows
    rows = state.whole.facts().get("rows")
    return "" if rows is None else f"{rows:,} rows, "
