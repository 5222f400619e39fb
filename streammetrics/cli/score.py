"""`streammetrics eval`: from a request to a scored log, printed and saved."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from streammetrics.cli.messages import UsageError
from streammetrics.cli.tasks import TaskSpec, make_collection

__all__ = ["Request", "check_target", "print_results", "read_sets", "score_log", "scored", "write_report"]

PATIENCE = 0.5  # seconds before a bar appears


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
    limit, on_invalid, threads, save, printed, top, delimiter, sort, min_rows, report, keep, checkpoint
        As the options of these names; `printed` is `--format`.
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
    delimiter: str | None
    sort: str | None = None
    min_rows: int = 0
    report: str | None = None
    keep: str | None = None
    checkpoint: str | None = None


def score_log(request: Request) -> None:
    """Score a log; print and save what comes of it."""
    sets = read_sets(request.by)
    specs = {name: replace(spec, report=request.report is not None) for name, spec in request.specs.items()}
    for spec in specs.values():
        spec.check()
    _check_targets({"save": request.save, "report": request.report, "checkpoint": request.checkpoint})
    from streammetrics.io.logs import Log  # pyarrow only once the request makes sense

    log = Log(request.paths, delimiter=_delimiter(request.delimiter))
    metrics = make_collection(specs, request.on_invalid, log.schema)
    if request.sort is not None:  # before hours go into the log
        from streammetrics.cli.records import check_order
        from streammetrics.compose.sliced import Sliced

        check_order(Sliced(metrics, by="key"), request.sort)
    where = {f.name: f for spec in specs.values() if (f := spec.filter(log.schema)) is not None}
    keep = request.keep or ("rows" if request.save is None and request.checkpoint is None else "hash")
    if keep == "rows" and request.keep is not None and log.once:
        raise UsageError("--keep rows reads the log twice; standard input can be read once")
    given: dict[str, Any] = {"limit": request.limit, "keep": keep, "threads": request.threads}
    found = scored(log, metrics, sets, where=where.values(), checkpoint=request.checkpoint, **given)
    if request.save is not None:
        from streammetrics.collect.saved import save

        save(found.saved, request.save)
    files = f"{len(log.files):,} files" if len(log.files) > 1 else log.files[0]
    title = f"{files}, {found.rows:,} rows"
    if request.report is not None:
        write_report(found.saved, request.report, title, request.sort, request.min_rows)
    print_results(found.saved, request.printed, request.top, title, request.sort, request.min_rows)


def write_report(thing: Any, path: str, title: str, sort: str | None = None, min_rows: int = 0) -> None:
    """Write results as a page."""
    from streammetrics.report.page.render import write_page

    try:
        write_page(thing, path, title=title, sort=sort, min_rows=min_rows)
    except ImportError as error:
        raise UsageError(str(error)) from None


def read_sets(by: Sequence[str]) -> list[tuple[str, ...]]:
    """Read `country,device` as the cross of two columns."""
    sets = [tuple(name.strip() for name in one.split(",")) for one in by]
    for names in sets:
        if not all(names) or len(set(names)) != len(names):
            raise UsageError(f"--by takes different columns, such as country,device, not {','.join(names)!r}")
        if sets.count(names) > 1:
            raise UsageError(f"--by {','.join(names)} is there twice")
    return sets


def scored(log: Any, metrics: Any, sets: Sequence[tuple[str, ...]], **options: Any) -> Any:
    """Evaluate a log with a progress bar."""
    from streammetrics.io.evaluate import evaluate

    with _progress(log) as watch:
        return evaluate(log, metrics, sets, watch=watch, **options)


def _delimiter(given: str | None) -> str | None:
    spelled = {"\\t": "\t", "tab": "\t"}.get(given or "", given)
    if spelled is not None and len(spelled) != 1:
        raise UsageError(f"--delimiter is one character (or tab), not {given!r}")
    return spelled


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


def print_results(thing: Any, printed: str, top: int, title: str, sort: str | None = None, min_rows: int = 0) -> None:
    """Print results as a table, JSON or CSV."""
    if printed == "json":
        from streammetrics.cli.records import write_json

        write_json(thing, sort, min_rows)
    elif printed == "csv":
        from streammetrics.cli.records import write_csv

        write_csv(thing, sort, min_rows)
    else:
        from streammetrics.report.grid import say, show
        from streammetrics.report.tables import grids

        say(title, "dim")
        say()
        for grid in grids(thing, top, sort, min_rows):
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
