"""`streammetrics merge` and `show`: saved states. No numba here."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from streammetrics.cli.messages import UsageError
from streammetrics.cli.records import check_order, restricted
from streammetrics.cli.score import check_target, print_results, read_sets, write_report
from streammetrics.collect.saved import load, save
from streammetrics.compose.sliced import Sliced
from streammetrics.errors import IncompatibleStateError
from streammetrics.report.records import pieces

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
    title = f"{file}, {_rows(thing)}digest {thing.digest()[:16]}"
    shown = restricted(thing, metrics, sets) if metrics is not None or sets else thing
    for _, piece in pieces(shown):
        if isinstance(piece, Sliced):
            check_order(piece, sort)
    print_results(shown, printed, top, title, sort, min_rows)
    if report is not None:
        write_report(shown, report, f"{file}, {_rows(thing).rstrip(', ')}", sort, min_rows)


def _rows(thing: Any) -> str:
    piece = pieces(thing)[0][1]
    state = min(piece.feed.states, key=lambda s: s.nbytes)  # any of them knows
    rows = state.whole.facts().get("rows")
    return "" if rows is None else f"{rows:,} rows, "
