"""`streammetrics merge`, `show` and `compare`: saved states. No numba here."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from streammetrics.cli.comparison import ComparisonOptions, Versus, check_alike, check_names, in_full, rows_of
from streammetrics.cli.display_options import Shown
from streammetrics.cli.messages import UsageError, nearest
from streammetrics.cli.records import check_order, restricted, rolled
from streammetrics.cli.score import (
    check_apart,
    check_report,
    check_target,
    print_results,
    print_versus,
    read_sets,
    write_report,
)
from streammetrics.collect.accumulator import definition_of
from streammetrics.collect.files import identity
from streammetrics.collect.metric_like import states_of
from streammetrics.collect.serialization import load, merge, save
from streammetrics.compose.axis_wrapper import AxisWrapper
from streammetrics.compose.checkpoint import Checkpoint
from streammetrics.compose.ledger import Ledger
from streammetrics.compose.sliced import Sliced
from streammetrics.errors import IncompatibleStateError, InvalidInputError
from streammetrics.inference.power import power
from streammetrics.io.sources import find_files
from streammetrics.reports.records import contents, pieces, sharded, total
from streammetrics.reports.tables import share
from streammetrics.reports.text_table import Cell, Grid, show

__all__ = ["compare_files", "merge_files", "show_file", "tell_power"]

MOST = 8 << 30  # bytes that a file may unfold to: slices by the thousand, but no bomb


def merge_files(paths: Sequence[str], output: str) -> None:
    """Merge the files behind paths, folders and patterns into one."""
    check_target(output)
    files = _found(paths, output)
    try:
        total = merge(files, max_bytes=MOST)
    except IncompatibleStateError:
        kinds = {file: type(load(file, max_bytes=MOST)) for file in files}
        odd = next((file for file in files if kinds[file] is not kinds[files[0]]), None)
        if odd is None:
            raise
        raise UsageError(f"{odd}: was counted by other options than {files[0]} (--by, --unit, --window)") from None
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
    shown: Shown,
    report: str | None = None,
    *,
    metrics: Sequence[str] | None = None,
    by: Sequence[str] = (),
) -> None:
    """Print what a file holds, or some of it; with intervals where it has shards of units."""
    if report is not None:
        check_report(report)
        check_target(report)
        check_apart({"report": report}, [file], "the file that is shown")
    sets = read_sets(by)
    thing = load(file, max_bytes=MOST)
    title = f"{file}, {_held(thing)}{_rows(thing)}digest {thing.digest()[:16]}"
    chosen = restricted(thing, metrics, sets) if metrics is not None or sets else thing
    found = [piece for _, piece in pieces(chosen)]
    check_idle(shown, slices := [piece for piece in found if isinstance(piece, Sliced)])
    for piece in slices:
        check_order(piece, shown.sort)
    by_unit = any(sharded(piece) for piece in found)
    print_results(chosen, title, replace(shown, confidence=shown.confidence if by_unit else None))
    if report is not None:
        write_report(chosen, report, f"{file}, {_rows(thing).rstrip(', ')}", shown.sort, shown.min_rows)


def check_idle(shown: Shown, slices: Sequence[Any]) -> None:
    """Raise where what is asked of slices has none."""
    given = {"--sort": shown.sort is not None, "--min-rows": shown.min_rows > 0}
    if not slices and (idle := [name for name, some in given.items() if some]):
        raise UsageError(f"{', '.join(idle)}: for slices, and none are shown; windows are in the order of time")


def compare_files(
    files: Sequence[str],
    asked: ComparisonOptions,
    shown: Shown,
    *,
    metrics: Sequence[str] | None = None,
    by: Sequence[str] = (),
) -> int:
    """Compare what files hold with the first of them; return the exit code: 3 if a guardrail is broken."""
    sets = read_sets(by)
    check_idle(shown, sets)
    names = _names(files)
    if asked.control is not None and asked.control not in names:
        raise nearest("file", asked.control, names)
    things = {name: load(file, max_bytes=MOST) for name, file in zip(names, files, strict=True)}
    asked = replace(asked, control=asked.control or names[0])
    chosen = {name: pieces(restricted(thing, metrics, sets)) for name, thing in things.items()}
    whole = {name: _whole(name, found) for name, found in chosen.items()}
    asked = in_full(asked, contents(whole[str(asked.control)]))
    for name, side in whole.items():
        check_names(asked, {n: one.metric for n, one in contents(side).items()}, name)
    check_alike(whole, asked)
    made = [Versus(whole, str(asked.control), asked)]
    for names_of in sets:
        sides = {
            name: rolled([p for _, p in found if isinstance(p, AxisWrapper)], names_of)
            for name, found in chosen.items()
        }
        order = rows_of(sides[str(asked.control)], shown.top, sort=shown.sort, min_rows=shown.min_rows)
        made.append(Versus(sides, str(asked.control), asked, f"by {', '.join(names_of)}", order, made[0]))
    title = "; ".join(f"{name}: {_rows(thing)}digest {thing.digest()[:16]}" for name, thing in things.items())
    print_versus(title, replace(shown, versus=made))
    return made[0].exit_code


def tell_power(file: str, metric: str | None, relative: float, how: dict[str, Any]) -> None:
    """Print how many users show a difference in each metric of a file, or which difference those planned show."""
    found = pieces(load(file, max_bytes=MOST))
    side = _whole(file, found)
    names = [s.name for s in definition_of(side).samples(states_of(side))]
    if metric is not None and metric not in names:
        raise nearest("metric", metric, names)
    rows: list[list[Cell] | None] = []
    refused = []
    for name in names if metric is None else [metric]:
        try:
            plan = power(side, name, relative=relative, **how)
        except InvalidInputError as error:  # it has no error: told below the others
            refused.append(f"{name}: {error}")
            continue
        mean = [Cell(f"{math.ceil(plan.mean_users):,}")] if how["sequential"] else []
        rows.append([Cell(name), Cell(f"{100 * plan.relative:+.3g} %"), Cell(f"{math.ceil(plan.users):,}"), *mean])
    heads = ["metric", "difference", "users", *(["on average"] if how["sequential"] else [])]
    about = f"80 % power, {share(how['confidence'])} intervals{' at all looks' if how['sequential'] else ', one look'}"
    show(Grid("", heads, rows, remarks=[f"users of both arms together, half in each: {about}", *refused]))


def _names(files: Sequence[str]) -> list[str]:
    """What sides are called: files without their folders and endings, where that tells them apart."""
    if len(files) < 2:
        raise UsageError("compare takes two files or more: first the control, then what is compared with it")
    for form in ("stem", "name"):
        names = [str(getattr(Path(file), form)) for file in files]
        if len(set(names)) == len(names):
            return names
    if len(set(files)) < len(files):
        raise UsageError(f"{next(f for f in files if files.count(f) > 1)}: named twice; it does not differ from itself")
    return list(files)


def _whole(name: str, found: Sequence[tuple[str, Any]]) -> Any:
    """All rows of what a file holds."""
    alone = [piece for _, piece in found if not isinstance(piece, AxisWrapper)]
    if len(alone) > 1:
        raise UsageError(f"{name}: holds several collections; compare files of one")
    return alone[0] if alone else total(found[0][1])


def _held(thing: Any) -> str:
    """What a checkpoint or a ledger has added up."""
    if isinstance(thing, Checkpoint):
        return f"{thing.count:,} of {thing.parts:,} parts, "
    return f"{len(thing):,} partition{'s' if len(thing) != 1 else ''}, " if isinstance(thing, Ledger) else ""


def _rows(thing: Any) -> str:
    piece = pieces(thing)[0][1]
    # Every state knows the number of rows, and the smallest one is read fastest.
    state = min(states_of(piece), key=lambda s: s.nbytes)
    rows = state.whole.facts().get("rows")
    return "" if rows is None else f"{rows:,} rows, "
