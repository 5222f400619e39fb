"""`streammetrics eval`: from a request to a scored log, printed and saved."""

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

from streammetrics.cli.comparison import ComparisonOptions, Versus, check_names, in_full, versus
from streammetrics.cli.display_options import Shown
from streammetrics.cli.messages import COMMAND, UsageError, as_options, nearest
from streammetrics.cli.outcome import check_outcome
from streammetrics.cli.reading import key_columns
from streammetrics.cli.tasks import TaskSpec, make_collection
from streammetrics.collect.metric_like import columns_of
from streammetrics.errors import InvalidInputError
from streammetrics.reading.table import check_levels

__all__ = [
    "Request",
    "check_report",
    "check_target",
    "no_label",
    "print_results",
    "print_versus",
    "read_sets",
    "score_log",
    "scored",
    "write_report",
]

PATIENCE = 0.5  # seconds before a bar appears
ROW = "row"
"""What --unit calls rows that are units themselves."""
WHOSE = "say whose rows belong together with --unit user_id, or --unit row where every row stands for itself"
NOTHING = ComparisonOptions()


@dataclass(frozen=True)
class Request:
    """What `eval` was asked for.

    Parameters
    ----------
    paths : list of str
        The log.
    specs : dict of str to TaskSpec
        Tasks by name; "" for the one of the options.
    by : list of str
        Slices, as `--by` has them.
    limit, on_invalid, threads, save, printed, top, sort, min_rows, report, keep, checkpoint
        As the options of these names; `printed` is `--format`.
    reading : dict
        How the log is read: arguments of `Log`.
    unit, shards, missing_unit, window, time, arm
        As the options of these names.
    asked : Asked
        How models, or arms, are compared.
    push : Pushed, optional
        Where states are pushed to.
    task_file : str, optional
        The file that tells the tasks.
    """

    paths: Sequence[str]
    specs: dict[str, TaskSpec]
    by: Sequence[str]
    limit: int | None
    on_invalid: str
    threads: int | None
    save: str | None
    printed: str
    top: int
    reading: Mapping[str, Any]
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
    asked: ComparisonOptions = NOTHING
    push: Any = None
    task_file: str | None = None

    def check(self) -> None:
        """Raise UsageError where options contradict one another."""
        if (self.window is None) != (self.time is None):
            raise UsageError("--window needs --time, the column of timestamps (or of steps), and the other way")
        if self.arm is not None and self.asked.control is None:
            raise UsageError(f"--arm {self.arm} needs --control, the arm that the others are compared with")
        if self.unit is None and (named := [f"--{name}" for name, given in self._of_units.items() if given]):
            raise UsageError(f"{', '.join(named)}: {WHOSE}")
        if not self.by and (idle := [f"--{name}" for name, given in self._of_slices.items() if given]):
            raise UsageError(f"{', '.join(idle)}: for slices; name their columns by --by")
        if (self.shards is not None or self.missing_unit != "raise") and self.by_rows is not False:
            raise UsageError("--shards and --missing-unit are about the column that --unit names")
        self.asked.check()

    @property
    def _of_units(self) -> dict[str, bool]:
        """Which options are given that say how sides are compared, and with what confidence."""
        asked = self.asked
        given: dict[str, Any] = {"primary": asked.primary, "guardrail": asked.guardrails, "control": asked.control}
        given |= {"arm": self.arm, "sequential": asked.sequential, "planned-users": asked.planned}
        given |= {"better": asked.better, "users": asked.users, "confidence": asked.confidence != NOTHING.confidence}
        return {name: bool(value) for name, value in given.items()}

    @property
    def _of_slices(self) -> dict[str, bool]:
        """Which options are given that say which slices there are, and which of them are shown."""
        given = {"limit": self.limit is not None, "keep": self.keep is not None}
        return given | {"sort": self.sort is not None, "min-rows": self.min_rows > 0}

    @property
    def by_rows(self) -> bool | None:
        """Whether rows are the units; None where nothing is said of units."""
        return None if self.unit is None else self.unit == ROW


def no_label(paths: Sequence[str], reading: Mapping[str, Any]) -> UsageError:
    """What to say where nobody named the label: which columns there are."""
    from streammetrics.io.logs import Log, listed

    log = Log(paths, **reading)
    hint = f"; {log.delimiter_hint()}" if log.delimiter_hint() else ""
    there = f"there are: {listed(log.columns)}"
    return UsageError(as_options(f"which column is the label? Give --label, or --task FILE.toml; {there}{hint}"))


def score_log(request: Request) -> int:
    """Score a log; print and save what comes of it; return the exit code: 3 if a guardrail is broken."""
    specs = {name: replace(spec, report=request.report is not None) for name, spec in request.specs.items()}
    for spec in specs.values():
        spec.check()
    request.check()
    _check_targets({"save": request.save, "report": request.report, "checkpoint": request.checkpoint})
    check_report(request.report)
    from streammetrics.io.logs import Log  # pyarrow only once the request makes sense

    log = Log(request.paths, **request.reading)
    hint = log.delimiter_hint()
    sets = read_sets(request.by, log.schema.names)
    if request.arm is not None and any(request.arm in names for names in sets):
        raise UsageError(f"--by {request.arm}: --arm makes these slices, and those of other --by within them")
    if request.push is not None:
        request.push.check(request.arm, sets, request.window)
    if hint and not any(spec.label in log.schema.names for spec in specs.values()):
        raise UsageError(as_options(f"{log.files[0]}: {hint}"))
    outputs = {"save": request.save, "report": request.report, "checkpoint": request.checkpoint}
    check_apart(outputs, log.files)
    if request.task_file is not None:
        check_apart(outputs, [request.task_file], "the file of the task")
    metrics = make_collection(specs, request.on_invalid, log.schema)
    for spec in specs.values():
        spec.check_unread(log.schema.names, columns_of(metrics))
    request = replace(request, asked=_checked(request, metrics))
    if request.sort is not None:  # before hours go into the log
        from streammetrics.cli.records import check_order
        from streammetrics.compose.sliced import Sliced

        check_order(Sliced(metrics, by="key"), request.sort)
    where = {f.name: f for spec in specs.values() if (f := spec.filter(log.schema)) is not None}
    keep = request.keep or ("rows" if request.save is None and request.checkpoint is None else "hash")
    if keep == "rows" and request.keep is not None and log.once:
        raise UsageError("--keep rows reads the log twice; standard input can be read once")
    given: dict[str, Any] = {"limit": request.limit, "keep": keep, "threads": request.threads}
    given |= {"arm": request.arm, "window": _window(request, metrics, sets)}
    counted = _with_units(request, metrics)
    try:
        found = scored(log, counted, sets, where=where.values(), checkpoint=request.checkpoint, **given)
    except InvalidInputError as error:
        if error.column != request.unit:
            raise
        raise UsageError(str(error).replace('missing="skip"', "--missing-unit skip")) from None
    spellings = {
        (one.label, one.positive(log.schema)): one.pos_label for one in specs.values() if one.pos_label is not None
    }
    empty = check_outcome(found.overall, log, where.values(), spellings)
    if request.save is not None:
        from streammetrics.collect.serialization import save

        save(found.saved, request.save)
    hints = [*empty, *([] if request.push is None else [request.push.send(found, request.arm, sets)])]
    if request.printed in ("json", "csv"):  # what follows is read by a program
        for hint in hints:
            print(hint, file=sys.stderr)
    files = f"{len(log.files):,} files" if len(log.files) > 1 else log.files[0]
    title = f"{files}, {found.rows:,} rows"
    sides = _sides(request, found.saved)
    if request.report is not None:
        cards = [one.card for one in sides if one.card is not None]
        about = {"files": list(map(str, log.files))}
        write_report([*cards, found.saved], request.report, title, request.sort, request.min_rows, about)
    shown = Shown(request.printed, request.top, request.sort, request.min_rows, _confidence(request), sides)
    print_results(found.saved, title, shown, [*hints, *_hints(request, metrics)])
    return max((one.exit_code for one in sides), default=0)


def _checked(request: Request, metrics: Any) -> ComparisonOptions:
    """Return what is asked, with metrics by their full names; raise where models or metrics are not there."""
    if request.unit is None:
        return request.asked
    from streammetrics.reports.records import contents, rivals

    known = {name: one.metric for name, one in contents(metrics).items()}
    control, groups = request.asked.control, rivals(metrics)
    if request.arm is None:
        models = [name for group in groups for name in group]
        short = [name.rpartition("/")[2] for name in models]
        if control is not None and control not in [*models, *short]:
            raise (
                nearest("model", control, short)
                if models
                else UsageError(
                    f"--control {control}: there is one model; give two by --score, or the column of arms by --arm"
                )
            )
        if request.asked.names and not groups:
            raise UsageError(
                f"{request.asked.names[0]}: there is nothing to compare; give two models by --score, or arms by --arm"
            )
        if request.by_rows and groups and (request.asked.names or request.asked.planned):
            raise UsageError(
                "models are scored on the same rows, and of rows no shards are kept, so nothing is compared: name a --unit"
            )
        known = {name.rpartition("/")[2]: metric for name, metric in known.items()}
    asked = in_full(request.asked, known)
    check_names(replace(asked, experiment=request.arm is not None), known)
    return asked


def _with_units(request: Request, metrics: Any) -> Any:
    """The metrics, with shards of the units that were named."""
    if request.by_rows is not False:
        return metrics
    from streammetrics.compose.sharded import Sharded

    assert request.unit is not None
    try:
        return Sharded(metrics, unit=request.unit, shards=request.shards or 64, missing=request.missing_unit)
    except ValueError as error:
        raise UsageError(str(error)) from None


def _window(request: Request, metrics: Any, sets: Sequence[tuple[str, ...]]) -> Any:
    """The windows asked for."""
    if request.window is None or request.time is None:
        return None
    from streammetrics.compose.windowed import Windowed
    from streammetrics.io.evaluate import WindowOptions

    if request.time == request.arm or any(request.time in names for names in sets):
        raise UsageError(f"--time {request.time}: windows are made of it, and cannot be slices as well")
    width: str | int = int(request.window) if request.window.strip().isdigit() else request.window
    try:
        Windowed(metrics, width=width, time=request.time)
    except ValueError as error:
        raise UsageError(f"--window {request.window}: {str(error).replace('width=', 'it')}") from None
    return WindowOptions(width, request.time)


def _sides(request: Request, saved: Any) -> list[Versus]:
    """What is compared."""
    if request.unit is None or (request.by_rows and request.arm is None):
        return []
    asked = replace(request.asked, independent=bool(request.by_rows))
    return versus(saved, asked, request.arm, request.top, sort=request.sort, min_rows=request.min_rows)


def _confidence(request: Request) -> float | None:
    return None if request.unit is None else request.asked.confidence


def _hints(request: Request, metrics: Any) -> list[str]:
    """What is not shown, and what would show it."""
    from streammetrics.reports.records import rivals

    if request.unit is None:
        return [f"no intervals: {WHOSE}"]
    if request.by_rows and request.arm is None and rivals(metrics):
        return ["no differences: models are scored on the same rows, and of rows no shards are kept: name a --unit"]
    return []


def write_report(
    thing: Any, path: str, title: str, sort: str | None = None, min_rows: int = 0, about: dict[str, Any] | None = None
) -> None:
    """Write results as a page."""
    from streammetrics.reports.page.write import report

    asked = {"command": shlex.join(["streammetrics", *COMMAND.get()])} if COMMAND.get() else {}
    asked["written"] = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    try:
        report(thing, path, title=title, sort=sort, min_rows=min_rows, provenance=asked | (about or {}))
    except ImportError as error:
        raise UsageError(str(error)) from None


def check_report(path: str | None) -> None:
    """Raise where a page is asked for that cannot be made, before hours go into the log."""
    if path is not None and find_spec("jinja2") is None:
        raise UsageError('--report needs jinja2: pip install "streammetrics[report]"')


def read_sets(by: Sequence[str], known: Collection[str] = ()) -> list[tuple[str, ...]]:
    """Read `country,device` as the cross of two columns, unless a known column is called so."""
    sets = [key_columns(one, known) for one in by]
    for names in sets:
        if not names or not all(names) or len(set(names)) != len(names):
            raise UsageError(f"--by takes different columns, such as country,device, not {','.join(names)!r}")
        if sets.count(names) > 1:
            raise UsageError(f"--by {','.join(names)} is there twice")
        check_levels(names)
    return sets


def scored(log: Any, metrics: Any, sets: Sequence[tuple[str, ...]], **options: Any) -> Any:
    """Evaluate a log with a progress bar."""
    from streammetrics.io.evaluate import evaluate

    with _progress(log) as watch:
        return evaluate(log, metrics, sets, watch=watch, **options)


def _check_targets(given: dict[str, str | None]) -> None:
    """Raise where a file cannot be written, or is to be two at once."""
    there: dict[str, str] = {}
    for option, target in given.items():
        if target is None:
            continue
        check_target(target)
        other = there.setdefault(os.path.realpath(target), option)
        if other != option:
            raise UsageError(f"--{other} and --{option} are one file, {target}; the one would replace the other")


def check_apart(given: dict[str, str | None], files: Sequence[object], what: str = "a file of the log") -> None:
    """Raise where a file would replace one that is read."""
    there = {os.path.realpath(str(file)) for file in files}
    for option, target in given.items():
        if target is not None and os.path.realpath(target) in there:
            raise UsageError(f"--{option} {target}: this is {what}; write elsewhere")


def check_target(path: str) -> None:
    """Raise where a file cannot be written, before hours go into what it should hold."""
    target = Path(path)
    if target.is_dir():
        raise UsageError(f"{path}: is a folder; name a file")
    if target.exists() and not target.is_file():
        return  # a pipe
    folder = target.parent if not target.is_symlink() else Path(os.path.realpath(target)).parent
    if not folder.is_dir():
        raise UsageError(f"{path}: there is no folder {folder}")
    if not os.access(folder, os.W_OK):
        raise UsageError(f"{path}: no permission to write in {folder}")


def print_results(thing: Any, title: str, shown: Shown, hints: Sequence[str] = ()) -> None:
    """Print results as a table, JSON or CSV."""
    if shown.printed == "json":
        from streammetrics.cli.records import write_json

        write_json(shown, thing)
    elif shown.printed == "csv":
        from streammetrics.cli.records import write_csv

        write_csv(thing, shown)
    else:
        from streammetrics.reports.tables import grids
        from streammetrics.reports.text_table import say, show

        _say_verdicts(shown, title)
        for grid in grids(thing, shown.top, shown.sort, shown.min_rows, shown.confidence):
            show(grid)
        for hint in hints:
            say(hint, "dim")


def print_versus(title: str, shown: Shown) -> None:
    """Print comparisons as tables, JSON or CSV."""
    if shown.printed == "json":
        from streammetrics.cli.records import write_json

        write_json(shown)
    elif shown.printed == "csv":
        from streammetrics.cli.records import write_comparisons

        write_comparisons(shown.versus)
    else:
        _say_verdicts(shown, title)


def _say_verdicts(shown: Shown, title: str) -> None:
    """Print what comparisons say, and their figures; the title behind the verdict."""
    from streammetrics.reports.text_table import say, show

    verdict = [sentence for one in shown.versus if not one.title for sentence in one.sentences]
    for sentence in verdict:
        say(sentence, "bold")
    if verdict:
        say()
    say(title, "dim")
    say()
    for one in shown.versus:
        for grid in one.grids():
            show(grid)


@contextmanager
def _progress(log: Any) -> Iterator[Any]:
    """Show a bar on stderr if that is a terminal; give what `evaluate` calls, or None."""
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
        if now - began > PATIENCE:
            bar.start()
        first = first or (now if progress.rows else 0.0)  # compiling is not counting
        speed = f"{_short(progress.rows / (now - first))} rows/s" if first and now > first else ""
        done = progress.rows if total is not None else progress.bytes
        bar.update(job, completed=done, rows=f"{progress.rows:,} rows", speed=speed)

    try:
        yield watch
    finally:
        bar.stop()


def _short(number: float) -> str:
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:.1f} {unit}"
    return f"{number:.0f} "
