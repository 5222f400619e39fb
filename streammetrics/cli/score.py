"""`streammetrics eval`: score a log, and print, save and report the results."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from streammetrics.cli.comparison import (
    ComparisonOptions,
    SideComparison,
    build_comparisons,
    check_metric_names,
    expand_metric_names,
)
from streammetrics.cli.display_options import DisplayOptions
from streammetrics.cli.log_options import split_columns
from streammetrics.cli.messages import COMMAND, UsageError, convert_keywords, unknown_name_error
from streammetrics.cli.outcome import check_outcome
from streammetrics.cli.tasks import TaskSpec, make_collection
from streammetrics.cli.user_split import (
    add_users,
    build_user_counter,
    build_user_split,
    count_exposures,
    parse_shares,
)
from streammetrics.collect.metric_like import columns_of
from streammetrics.errors import InvalidInputError
from streammetrics.reading.table import check_levels
from streammetrics.reports.user_split import UserSplit

__all__ = [
    "EvalRequest",
    "check_report",
    "check_writable",
    "evaluate_with_progress",
    "parse_column_sets",
    "print_comparisons",
    "print_results",
    "score_log",
    "write_report",
]

# Delay in seconds before a progress bar appears, so that a short pass over the log shows none.
PROGRESS_DELAY = 0.5
ROW_UNIT = "row"
"""The value of --unit with which every row is a unit of its own, so that rows are independent."""
UNIT_HINT = "name the column of units with --unit, such as --unit user_id, or use --unit row if rows are independent"
SIDES_HINT = "name two models with --score, or the column of arms with --arm"
SAME_ROWS_HINT = "models on the same rows need a column of units; name it with --unit, such as --unit user_id"
DEFAULT_OPTIONS = ComparisonOptions()


@dataclass(frozen=True)
class EvalRequest:
    """The options of `streammetrics eval`.

    Parameters
    ----------
    paths : list of str
        The files, folders, patterns or URLs of the log.
    specs : dict of str to TaskSpec
        The tasks, keyed by name. A task defined by command-line options has the name "".
    by : list of str
        The values of `--by`; "country,device", for example, slices by two columns.
    limit, on_invalid, threads, save, output_format, top, sort, min_rows, report, keep, checkpoint
        The command-line options with the same names; `output_format` is `--format`.
    log_arguments : dict
        Further arguments of `Log`, such as the types of columns.
    unit, shards, missing_unit, window, time, arm
        The command-line options with the same names.
    options : ComparisonOptions
        How models or arms are compared.
    planned_shares : list of str
        The values of `--shares`, such as "old=50,new=50".
    exposures : str, optional
        The file, folder or pattern of the exposures, from which the users of each arm are counted.
    push : PushTarget, optional
        The dashboard to which the states are posted; None if there is none.
    task_file : str, optional
        The file that defines the tasks; None if command-line options define the task.
    """

    paths: Sequence[str]
    specs: dict[str, TaskSpec]
    by: Sequence[str]
    limit: int | None
    on_invalid: str
    threads: int | None
    save: str | None
    output_format: str
    top: int
    log_arguments: Mapping[str, Any]
    sort: str | None = None
    min_rows: int = 0
    report: str | None = None
    keep: str | None = None
    checkpoint: str | None = None
    unit: str | None = None
    shards: int | None = None
    missing_unit: str = "raise"
    window: str | None = None
    time: str | None = None
    arm: str | None = None
    options: ComparisonOptions = DEFAULT_OPTIONS
    planned_shares: Sequence[str] = ()
    exposures: str | None = None
    covariates: Sequence[str] = ()
    push: Any = None
    task_file: str | None = None

    def check(self) -> None:
        """Raise UsageError if options contradict each other."""
        if (self.window is None) != (self.time is None):
            raise UsageError(
                "--window needs --time, the column of timestamps (or of steps), and --time needs --window, the width of "
                "the windows"
            )
        if self.arm is not None and self.options.control is None:
            raise UsageError(f"--arm {self.arm} needs --control, the arm that the others are compared with")
        if self.unit is None and (unused := [f"--{name}" for name, is_set in self._interval_options.items() if is_set]):
            raise UsageError(f"{', '.join(unused)}: expected --unit as well; {UNIT_HINT}")
        if not self.by and (
            unused_for_slices := [f"--{name}" for name, is_set in self._slice_options.items() if is_set]
        ):
            raise UsageError(
                f"{', '.join(unused_for_slices)}: expected --by as well; name the columns to slice by, such as --by "
                f"country"
            )
        if (self.shards is not None or self.missing_unit != "raise") and self.rows_are_units is not False:
            raise UsageError(
                "--shards and --missing-unit need a column of units; name it with --unit, such as --unit user_id"
            )
        counts_users = self.arm is not None and self.rows_are_units is False
        if not counts_users and (parse_shares(self.planned_shares) or self.exposures is not None):
            raise UsageError(
                "--shares and --exposures need --arm, the column of arms, and --unit, a column of units such as user_id, "
                "to count the users of each arm"
            )
        if not counts_users and self.covariates:
            raise UsageError(
                "--covariate needs --arm, the column of randomised arms, and --unit, a column of units such as user_id; "
                "models on one log have the same users, so covariates would not be valid for their differences"
            )
        self.options.check(counts_users=counts_users)

    @property
    def _interval_options(self) -> dict[str, bool]:
        """For each option that has no effect without `--unit`, whether the user has set it."""
        options = self.options
        values: dict[str, Any] = {
            "primary": options.primary,
            "guardrail": options.guardrails,
            "control": options.control,
        }
        values |= {
            "arm": self.arm,
            "planned": options.planned,
            "final": options.final,
            "sequential": options.sequential,
        }
        values |= {
            "better": options.better,
            "users": options.users,
            "confidence": options.confidence != DEFAULT_OPTIONS.confidence,
        }
        return {name: bool(value) for name, value in values.items()}

    @property
    def _slice_options(self) -> dict[str, bool]:
        """For each option that has no effect without `--by`, whether the user has set it."""
        is_set = {"limit": self.limit is not None, "keep": self.keep is not None}
        return is_set | {"sort": self.sort is not None, "min-rows": self.min_rows > 0}

    @property
    def rows_are_units(self) -> bool | None:
        """Whether every row is a unit of its own (`--unit row`); None if there is no `--unit`."""
        return None if self.unit is None else self.unit == ROW_UNIT


def score_log(request: EvalRequest) -> int:
    """Score a log, and print and save the results; return the exit code (3 if a guardrail is breached)."""
    specs = {name: replace(spec, report=request.report is not None) for name, spec in request.specs.items()}
    for spec in specs.values():
        spec.check()
    request.check()
    _check_outputs({"save": request.save, "report": request.report, "checkpoint": request.checkpoint})
    check_report(request.report)
    # This import loads pyarrow, which is slow, so it comes after the options are checked.
    from streammetrics.io.logs import Log

    log = Log(request.paths, **request.log_arguments)
    hint = log.suggest_delimiter()
    sets = parse_column_sets(request.by, log.schema.names)
    if request.arm is not None and any(request.arm in names for names in sets):
        raise UsageError(
            f"--by {request.arm}: --arm already slices by this column, in total and in each slice of --by; remove the "
            f"column from --by"
        )
    if request.push is not None:
        request.push.check(request.arm, sets, request.window)
    if hint and not any((spec.label or spec.value) in log.schema.names for spec in specs.values()):
        raise UsageError(convert_keywords(f"{log.files[0]}: {hint}"))
    outputs = {"save": request.save, "report": request.report, "checkpoint": request.checkpoint}
    check_not_input(outputs, log.files)
    if request.task_file is not None:
        check_not_input(outputs, [request.task_file], "the task file")
    if request.exposures is not None:
        check_not_input(outputs, [request.exposures], "the file of exposures")
    metrics = make_collection(specs, request.on_invalid, log.schema)
    for spec in specs.values():
        spec.check_unread_columns(log.schema.names, columns_of(metrics))
    request = replace(request, options=_resolve_options(request, metrics))
    # Check the column of --sort now, because reading the log may take a long time.
    if request.sort is not None:
        from streammetrics.cli.records import check_sort
        from streammetrics.compose.sliced import Sliced

        check_sort(Sliced(metrics, by="key"), request.sort)
    filters = {f.name: f for spec in specs.values() if (f := spec.filter(log.schema)) is not None}
    keep = request.keep or ("rows" if request.save is None and request.checkpoint is None else "hash")
    if keep == "rows" and request.keep is not None and log.is_stream:
        raise UsageError(
            "--keep rows reads the log twice, and standard input can be read only once; use --keep hash, or a file"
        )
    evaluate_options: dict[str, Any] = {"limit": request.limit, "keep": keep, "threads": request.threads}
    evaluate_options |= {"arm": request.arm, "window": _parse_window(request, metrics, sets)}
    sharded_metrics = _add_row_shards(request, metrics)
    counter = build_user_counter(sharded_metrics, request.arm)
    exposed = None if request.exposures is None else count_exposures(request.exposures, counter, request.threads)
    evaluate_options["users"] = counter if exposed is None else None
    covariates = _load_covariates(request, sharded_metrics, exposed, log.schema.names)
    try:
        result = evaluate_with_progress(
            log, sharded_metrics, sets, where=filters.values(), checkpoint=request.checkpoint, **evaluate_options
        )
    except InvalidInputError as error:
        if error.column != request.unit:
            raise
        raise UsageError(str(error).replace('missing="skip"', "--missing-unit skip")) from None
    spellings = {
        (one.label, one.convert_pos_label(log.schema)): one.pos_label
        for one in specs.values()
        if one.pos_label is not None and one.label is not None
    }
    empty = check_outcome(result.overall, log, filters.values(), spellings)
    users = result.users if exposed is None else exposed
    if request.save is not None:
        from streammetrics.collect.serialization import save

        save(add_users(result.bundle, users, request.exposures is not None), request.save)
    hints = [*empty, *([] if request.push is None else [request.push.send(result, request.arm, sets)])]
    files = f"{len(log.files):,} files" if len(log.files) > 1 else log.files[0]
    title = f"{files}, {result.rows:,} rows"
    request = replace(request, options=replace(request.options, covariates=covariates))
    split = _split_users(request, users)
    sides = _compare_sides(request, result.bundle, split)
    hints += _describe_disbelief(request.options, sides)
    if request.output_format in ("json", "csv"):
        for hint in hints:
            print(hint, file=sys.stderr)
    if request.report is not None:
        compared = [each for one in sides for each in one.list_report_objects()]
        provenance = {"files": list(map(str, log.files))}
        shown = [*([split] if split else []), *compared, result.bundle]
        write_report(shown, request.report, title, request.sort, request.min_rows, provenance,
                     request.options.confidence)  # fmt: skip
    display = DisplayOptions(
        request.output_format, request.top, request.sort, request.min_rows, _confidence(request), sides, split
    )
    print_results(result.bundle, title, display, [*hints, *_collect_hints(request, metrics)])
    return max((one.exit_code for one in sides), default=0)


def _resolve_options(request: EvalRequest, metrics: Any) -> ComparisonOptions:
    """Return the comparison options with full metric names; raise UsageError if a model or metric is unknown."""
    if request.unit is None:
        return request.options
    from streammetrics.reports.records import collect_entries, group_comparable_tasks

    known_metrics = {name: one.metric for name, one in collect_entries(metrics).items()}
    control, groups = request.options.control, group_comparable_tasks(metrics)
    if request.arm is None:
        models = [name for group in groups for name in group]
        short = [name.rpartition("/")[2] for name in models]
        if control is not None and control not in [*models, *short]:
            raise (
                unknown_name_error("model", control, short)
                if models
                else UsageError(f"--control {control}: expected two models or arms to compare; {SIDES_HINT}")
            )
        if request.options.names and not groups:
            raise UsageError(f"{request.options.names[0]}: expected two models or arms to compare; {SIDES_HINT}")
        if request.rows_are_units and groups and (request.options.names or request.options.has_scorecard):
            raise UsageError(f"--unit row: {SAME_ROWS_HINT}")
        known_metrics = {name.rpartition("/")[2]: metric for name, metric in known_metrics.items()}
    options = expand_metric_names(request.options, known_metrics)
    check_metric_names(replace(options, experiment=request.arm is not None), known_metrics)
    return options


def _add_row_shards(request: EvalRequest, metrics: Any) -> Any:
    """Return the metrics, wrapped in `Sharded` if `--unit` names a column, because intervals need shards of units."""
    if request.rows_are_units is not False:
        return metrics
    from streammetrics.compose.sharded import Sharded

    assert request.unit is not None
    try:
        return Sharded(metrics, unit=request.unit, shards=request.shards or 64, missing=request.missing_unit)
    except ValueError as error:
        raise UsageError(str(error)) from None


def _parse_window(request: EvalRequest, metrics: Any, sets: Sequence[tuple[str, ...]]) -> Any:
    """Return the time windows that `--window` and `--time` define; None without these options.

    Raise UsageError if the width is invalid, or if the time column is also a slicing column.
    """
    if request.window is None or request.time is None:
        return None
    from streammetrics.compose.windowed import Windowed
    from streammetrics.io.slice_plan import WindowOptions

    if request.time == request.arm or any(request.time in names for names in sets):
        raise UsageError(
            f"--time {request.time}: the column of --time cannot define slices or arms as well; leave it out of --by and "
            f"--arm"
        )
    width: str | int = int(request.window) if request.window.strip().isdigit() else request.window
    try:
        Windowed(metrics, width=width, time=request.time)
    except ValueError:
        raise UsageError(
            f'--window {request.window}: expected a duration, such as "15m", "1h" or "1d", or a positive number of steps'
        ) from None
    return WindowOptions(width, request.time)


def _split_users(request: EvalRequest, users: Any) -> UserSplit | None:
    """Return the number of users in each arm and the test of the planned shares; None if users were not counted."""
    if users is None:
        return None
    shares = parse_shares(request.planned_shares)
    exposed, sequential = request.exposures is not None, request.options.sequential
    return build_user_split(users, shares, exposed=exposed, sequential=sequential)


def _load_covariates(request: EvalRequest, metrics: Any, users: Any, columns: Sequence[str]) -> Any:
    """Return the covariates by arm. They are loaded before the pass over the log, so that errors appear early."""
    if not request.covariates:
        return ()
    from streammetrics.cli.covariates import load_arm_covariates
    from streammetrics.cli.state_files import MAX_BYTES

    where: dict[str, Any] = {"exposures": request.exposures, "users": users, "columns": columns}
    return load_arm_covariates(request.covariates, metrics, str(request.arm), **where, max_bytes=MAX_BYTES)


def _compare_sides(request: EvalRequest, saved: Any, split: UserSplit | None) -> list[SideComparison]:
    """Return the comparisons of models or arms; an empty list if their differences would have no valid intervals."""
    if request.unit is None or (request.rows_are_units and request.arm is None):
        return []
    ratio = split.ratio if split is not None and split.is_tested else None
    counted = {} if split is None else split.ratio.users
    options = replace(request.options, independent=bool(request.rows_are_units), ratio=ratio, counted=counted)
    return build_comparisons(saved, options, request.arm, request.top, sort=request.sort, min_rows=request.min_rows)


def _describe_disbelief(options: ComparisonOptions, sides: Sequence[SideComparison]) -> list[str]:
    """Return a list with a warning if --users is ignored because the log has more users; otherwise an empty list."""
    if options.users is None or not sides or sides[0].users == options.users:
        return []
    counted = ", ".join(f"{users:,.0f} in {arm}" for arm, users in sides[0].options.counted.items())
    return [
        f"--users {options.users:,.0f} is not used, because the log has more users: {counted}; leave out this option"
    ]


def _confidence(request: EvalRequest) -> float | None:
    return None if request.unit is None else request.options.confidence


def _collect_hints(request: EvalRequest, metrics: Any) -> list[str]:
    """Return messages that explain why the result has no intervals or differences, and which option adds them."""
    from streammetrics.reports.records import group_comparable_tasks

    if request.unit is None:
        return [f"no intervals: {UNIT_HINT}"]
    if request.rows_are_units and request.arm is None and group_comparable_tasks(metrics):
        return [f"no differences: {SAME_ROWS_HINT}"]
    return []


def write_report(
    result: Any,
    path: str,
    title: str,
    sort: str | None = None,
    min_rows: int = 0,
    details: dict[str, Any] | None = None,
    confidence: float = 0.95,
) -> None:
    """Write results as an HTML page."""
    from streammetrics.reports.page.write import report

    provenance = {"command": shlex.join(["streammetrics", *COMMAND.get()])} if COMMAND.get() else {}
    provenance["written"] = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    try:
        report(result, path, title=title, sort=sort, min_rows=min_rows, provenance=provenance | (details or {}),
               confidence=confidence)  # fmt: skip
    except ImportError as error:
        raise UsageError(str(error)) from None


def check_report(path: str | None) -> None:
    """Raise UsageError if a report is requested but jinja2 is missing. Commands call this before they read the log."""
    if path is not None and find_spec("jinja2") is None:
        raise UsageError('--report needs jinja2: pip install "streammetrics[report]"')


def parse_column_sets(by: Sequence[str], columns: Collection[str] = ()) -> list[tuple[str, ...]]:
    """Parse the values of --by. `country,device` slices by two columns, unless one column has this name."""
    sets = [split_columns(one, columns) for one in by]
    for names in sets:
        if not names or not all(names) or len(set(names)) != len(names):
            raise UsageError(
                f"--by: expected each column once, such as country,device, found {','.join(names)!r}; remove the "
                f"repeated column"
            )
        if sets.count(names) > 1:
            raise UsageError(f"--by {','.join(names)}: these slices are named twice; remove one of the options")
        check_levels(names)
    return sets


def evaluate_with_progress(log: Any, metrics: Any, sets: Sequence[tuple[str, ...]], **options: Any) -> Any:
    """Evaluate metrics over a log, in total and by each set of columns in `sets`, and show a progress bar."""
    from streammetrics.io.evaluate import evaluate

    with _show_progress(log) as watch:
        return evaluate(log, metrics, sets, watch=watch, **options)


def _check_outputs(outputs: dict[str, str | None]) -> None:
    """Raise UsageError if an output cannot be written, or if two outputs are the same file."""
    option_by_path: dict[str, str] = {}
    for option, target in outputs.items():
        if target is None:
            continue
        check_writable(target)
        other = option_by_path.setdefault(os.path.realpath(target), option)
        if other != option:
            raise UsageError(f"--{other} and --{option}: expected two different files, found {target} twice")


def check_not_input(outputs: dict[str, str | None], files: Sequence[object], what: str = "a file of the log") -> None:
    """Raise UsageError if an output would replace an input file."""
    inputs = {os.path.realpath(str(file)) for file in files}
    for option, target in outputs.items():
        if target is not None and os.path.realpath(target) in inputs:
            raise UsageError(f"--{option} {target}: the output would replace {what}; name another file")


def check_writable(path: str) -> None:
    """Raise UsageError if a file cannot be written. Commands check this before any slow work."""
    target = Path(path)
    if "://" in path:
        raise UsageError(f"{path}: expected a path on this machine, found a URL; copy the file after this command")
    if target.is_dir():
        raise UsageError(f"{path}: expected a file to write, found a folder; add the name of a file")
    if target.exists() and not target.is_file():
        # The path is a pipe or a device. Writing does not create or replace it, so skip the folder checks.
        return
    folder = target.parent if not target.is_symlink() else Path(os.path.realpath(target)).parent
    if not folder.is_dir():
        raise UsageError(f"{path}: there is no folder {folder}; create it first")
    if not os.access(folder, os.W_OK):
        raise UsageError(f"{path}: no permission to write in {folder}; name a file in another folder")


def print_results(result: Any, title: str, display: DisplayOptions, hints: Sequence[str] = ()) -> None:
    """Print results as a table, JSON or CSV."""
    if display.output_format == "json":
        from streammetrics.cli.records import write_json

        write_json(display, result)
    elif display.output_format == "csv":
        from streammetrics.cli.records import write_csv

        write_csv(result, display)
    else:
        from streammetrics.reports.tables import build_grids
        from streammetrics.reports.text_table import print_grid, print_line

        _print_verdicts(display, title)
        for grid in build_grids(result, display.top, display.sort, display.min_rows, display.confidence):
            print_grid(grid)
        for hint in hints:
            print_line(hint, "dim")


def print_comparisons(title: str, display: DisplayOptions) -> None:
    """Print comparisons as tables, JSON or CSV."""
    if display.output_format == "json":
        from streammetrics.cli.records import write_json

        write_json(display)
    elif display.output_format == "csv":
        from streammetrics.cli.records import write_comparisons

        write_comparisons(display.comparisons)
    else:
        _print_verdicts(display, title)


def _print_verdicts(display: DisplayOptions, title: str) -> None:
    """Print the verdicts with their notes, the title, the users of each arm, and the differences."""
    from streammetrics.reports.text_table import print_grid, print_line

    sentences = [sentence for one in display.comparisons if not one.title for sentence in one.sentences]
    for sentence in sentences:
        print_line(sentence, "bold")
    notes = [note.sentence for one in display.comparisons for some in one.notes.values() for note in some]
    for note in dict.fromkeys(notes):
        print_line(note)
    if sentences or notes:
        print_line()
    print_line(title, "dim")
    print_line()
    if display.users is not None:
        print_grid(display.users.build_grid())
    for one in display.comparisons:
        for grid in one.grids():
            print_grid(grid)


@contextmanager
def _show_progress(log: Any) -> Iterator[Any]:
    """Show a progress bar on stderr during a `with` block, if stderr is a terminal.

    Yield the function through which `evaluate` reports progress (`watch`), or None if there is no progress bar.
    """
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (BarColumn(), TextColumn("{task.percentage:>3.0f} %  {task.fields[rows]}  {task.fields[speed]}"))
    bar = Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True)
    total, began, first = log.rows, time.monotonic(), 0.0
    job = bar.add_task("", total=total if total is not None else log.bytes or None, rows="", speed="")

    def watch(progress: Any) -> None:
        nonlocal first
        now = time.monotonic()
        if now - began > PROGRESS_DELAY:
            bar.start()
        # Start measuring the speed when the first row is counted, to exclude compilation time.
        first = first or (now if progress.rows else 0.0)
        speed = f"{_format_rate(progress.rows / (now - first))} rows/s" if first and now > first else ""
        done = progress.rows if total is not None else progress.bytes
        bar.update(job, completed=done, rows=f"{progress.rows:,} rows", speed=speed)

    try:
        yield watch
    finally:
        bar.stop()


def _format_rate(number: float) -> str:
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:.1f} {unit}"
    return f"{number:.0f} "
