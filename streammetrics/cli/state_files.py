"""`streammetrics merge`, `show` and `compare`: work with files of saved states, without loading numba."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from streammetrics.cli.comparison import (
    ComparisonOptions,
    SideComparison,
    check_metric_names,
    check_same_shards,
    expand_metric_names,
    select_slices,
)
from streammetrics.cli.covariates import load_side_covariates
from streammetrics.cli.display_options import DisplayOptions
from streammetrics.cli.messages import UsageError, unknown_name_error
from streammetrics.cli.records import check_sort, roll_up, select_results
from streammetrics.cli.score import (
    check_not_input,
    check_report,
    check_writable,
    parse_column_sets,
    print_comparisons,
    print_results,
    write_report,
)
from streammetrics.cli.user_split import build_user_split, parse_shares, separate_users
from streammetrics.collect.files import file_identity
from streammetrics.collect.metric_like import states_of
from streammetrics.collect.serialization import load, merge, save
from streammetrics.compose.axis_wrapper import AxisWrapper
from streammetrics.compose.checkpoint import Checkpoint
from streammetrics.compose.ledger import Ledger
from streammetrics.compose.sliced import Sliced
from streammetrics.errors import IncompatibleStateError
from streammetrics.io.sources import find_files
from streammetrics.reports.records import collect_entries, find_sharded, merge_cells, split_pieces

__all__ = ["MAX_BYTES", "compare_files", "find_overall", "merge_files", "show_file"]

# Maximum size of a decompressed file in bytes. The limit allows thousands of slices but rejects small files whose
# decompressed content would exhaust memory.
MAX_BYTES = 8 << 30
# Each thread that merges files gets at least this many bytes. With fewer bytes, merging the results of the threads
# would take more time than the threads save.
THREAD_BYTES = 4 << 20


def merge_files(paths: Sequence[str], output: str, threads: int | None = None) -> None:
    """Merge all files that the paths, folders and patterns refer to, and write the result to `output`.

    `threads` is the number of threads; by default the number of processors.
    """
    check_writable(output)
    files = _list_files(paths, output)
    try:
        total = _merge_in_threads(files, threads or os.cpu_count() or 1)
    except IncompatibleStateError:
        kinds = {file: type(load(file, max_bytes=MAX_BYTES)) for file in files}
        other_kind = next((file for file in files if kinds[file] is not kinds[files[0]]), None)
        if other_kind is None:
            raise
        raise UsageError(
            f"{other_kind}: expected a file that was counted with the same --by, --unit and --window as {files[0]}, found "
            f"different options; count both logs with the same options"
        ) from None
    if isinstance(total, Checkpoint):
        raise UsageError(
            f"{files[0]}: expected saved states, found a checkpoint of an unfinished pass; finish the pass with "
            f"--save, and merge the saved file"
        )
    save(total, output)
    count = f"{len(files):,} file{'s' if len(files) > 1 else ''} merged"
    print(f"{output}: {count}, {_format_rows(total)}digest {total.digest()[:16]}")


def _merge_in_threads(files: Sequence[str], threads: int) -> Any:
    """Merge files in several threads: each thread merges consecutive files, and then their results are merged."""
    threads = max(min(threads, sum(map(os.path.getsize, files)) // THREAD_BYTES), 1)
    size = math.ceil(len(files) / threads)
    chunks = [files[i : i + size] for i in range(0, len(files), size)]
    with ThreadPoolExecutor(threads) as pool:
        return merge(list(pool.map(partial(merge, max_bytes=MAX_BYTES), chunks)))


def _list_files(paths: Sequence[str], output: str) -> list[str]:
    """Return all files that the paths, folders and patterns refer to.

    Raise UsageError if a file is named twice, or if a folder or pattern includes the output.
    """
    files: dict[tuple[int, int], str] = {}
    # If the output were in an input folder, the next run would merge it with the files from which it was made and
    # count their rows twice.
    target = file_identity(output) if os.path.exists(output) else None
    for path in paths:
        for file in find_files(path):
            file_id = file_identity(file)
            if file_id in files:
                raise UsageError(f"{file}: named twice, so its rows would count twice; name the file once")
            if file_id == target and file != path:
                raise UsageError(
                    f"{output}: this output file is also one of the inputs ({path}), so its rows would count twice; "
                    f"write the output to another folder"
                )
            files[file_id] = file
    return list(files.values())


def show_file(
    file: str,
    display: DisplayOptions,
    report: str | None = None,
    *,
    metrics: Sequence[str] | None = None,
    by: Sequence[str] = (),
    planned_shares: Sequence[str] = (),
) -> None:
    """Print the results in a file, with intervals if the states were counted with --unit.

    `metrics` and `by` select metrics and slices. `report` is the path of an HTML report to write as well.
    `planned_shares` contains the values of --shares.
    """
    if report is not None:
        check_report(report)
        check_writable(report)
        check_not_input({"report": report}, [file], "the file that is shown")
    sets = parse_column_sets(by)
    content = load(file, max_bytes=MAX_BYTES)
    title = f"{file}, {_describe_progress(content)}{_format_rows(content)}digest {content.digest()[:16]}"
    content, users, exposed = separate_users(content)
    shares = parse_shares(planned_shares)
    if shares and users is None:
        raise UsageError(f"--shares: {file} contains no users by arm; score the log with --arm, --unit and --save")
    split = None if users is None else build_user_split(users, shares, exposed=exposed, sequential=False)
    selected = select_results(content, metrics, sets) if metrics is not None or sets else content
    selected_pieces = [piece for _, piece in split_pieces(selected)]
    check_slice_options(display, slices := [piece for piece in selected_pieces if isinstance(piece, Sliced)])
    for piece in slices:
        check_sort(piece, display.sort)
    by_unit = any(find_sharded(piece) for piece in selected_pieces)
    print_results(selected, title, replace(display, confidence=display.confidence if by_unit else None, users=split))
    if report is not None:
        write_report(
            [*([split] if split else []), selected],
            report,
            f"{file}, {_format_rows(content).rstrip(', ')}",
            display.sort,
            display.min_rows,
        )


def check_slice_options(display: DisplayOptions, slices: Sequence[Any]) -> None:
    """Raise UsageError if options for slices are set, but there are no slices."""
    is_set = {"--sort": display.sort is not None, "--min-rows": display.min_rows > 0}
    if not slices and (unused := [name for name, some in is_set.items() if some]):
        raise UsageError(
            f"{', '.join(unused)}: expected slices, found none; show slices with --by, or remove the option. Windows are "
            f"always sorted by time"
        )


def compare_files(
    files: Sequence[str],
    options: ComparisonOptions,
    display: DisplayOptions,
    *,
    metrics: Sequence[str] | None = None,
    by: Sequence[str] = (),
    covariates: Sequence[str] = (),
) -> int:
    """Compare the saved states in files with those of the control, by default the first file; print the comparisons.

    Return the exit code: 3 if a guardrail is breached, otherwise 0. `covariates` are the values of --covariate.
    """
    sets = parse_column_sets(by)
    check_slice_options(display, sets)
    names = _name_sides(files)
    if options.control is not None and options.control not in names:
        raise unknown_name_error("file", options.control, names)
    things = {name: load(file, max_bytes=MAX_BYTES) for name, file in zip(names, files, strict=True)}
    results = {name: separate_users(content)[0] for name, content in things.items()}
    before = load_side_covariates(covariates, names, MAX_BYTES)
    options = replace(options, control=options.control or names[0], covariates=before)
    pieces_by_side = {name: split_pieces(select_results(content, metrics, sets)) for name, content in results.items()}
    overall = {name: find_overall(name, named_pieces) for name, named_pieces in pieces_by_side.items()}
    options = expand_metric_names(options, collect_entries(overall[str(options.control)]))
    for name, side in overall.items():
        check_metric_names(options, {n: one.metric for n, one in collect_entries(side).items()}, name)
    check_same_shards(overall, options)
    comparisons = [SideComparison(overall, str(options.control), options)]
    for names_of in sets:
        sides = {
            name: roll_up([p for _, p in named_pieces if isinstance(p, AxisWrapper)], names_of)
            for name, named_pieces in pieces_by_side.items()
        }
        order = select_slices(sides[str(options.control)], display.top, sort=display.sort, min_rows=display.min_rows)
        comparisons.append(
            SideComparison(sides, str(options.control), options, f"by {', '.join(names_of)}", order, comparisons[0])
        )
    title = "; ".join(
        f"{name}: {_format_rows(content)}digest {content.digest()[:16]}" for name, content in things.items()
    )
    print_comparisons(title, replace(display, comparisons=comparisons))
    return comparisons[0].exit_code


def _name_sides(files: Sequence[str]) -> list[str]:
    """Return the name of each side of a comparison, derived from the file paths.

    The names are the first of these that are all different: the file names without suffixes, the full file names, or
    the paths.
    """
    if len(files) < 2:
        raise UsageError(
            f"compare: expected two or more files, found {len(files)}; name the control first, then the files to compare "
            f"with it"
        )
    for form in ("stem", "name"):
        names = [str(getattr(Path(file), form)) for file in files]
        if len(set(names)) == len(names):
            return names
    if len(set(files)) < len(files):
        raise UsageError(
            f"{next(f for f in files if files.count(f) > 1)}: named twice; name different files to compare"
        )
    return list(files)


def find_overall(name: str, named_pieces: Sequence[tuple[str, Any]]) -> Any:
    """Return the metrics of all rows in a file; if the file contains only slices, merge them.

    Raise UsageError if the file contains several metric collections.
    """
    collections = [piece for _, piece in named_pieces if not isinstance(piece, AxisWrapper)]
    if len(collections) > 1:
        raise UsageError(
            f"{name}: expected a file with one collection of metrics, found {len(collections)} collections; save each "
            f"collection in its own file"
        )
    return collections[0] if collections else merge_cells(named_pieces[0][1])


def _describe_progress(content: Any) -> str:
    """Return a note for the title: how many parts of a log a checkpoint covers, or how many partitions a ledger has.

    For other content, the note is empty.
    """
    if isinstance(content, Checkpoint):
        return f"{content.count:,} of {content.parts:,} parts, "
    return f"{len(content):,} partition{'s' if len(content) != 1 else ''}, " if isinstance(content, Ledger) else ""


def _format_rows(content: Any) -> str:
    piece = split_pieces(content)[0][1]
    # States store the number of rows that they have counted. Read it from the smallest state, which takes the least
    # time.
    state = min(states_of(piece), key=lambda s: s.nbytes)
    rows = state.without_axes.facts().get("rows")
    return "" if rows is None else f"{rows:,} rows, "
