"""`streammetrics demo`: a click log with known truth, scored in every way that a first look wants to see."""

from __future__ import annotations

import json
import math
import shutil
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from streammetrics.cli.messages import UsageError
from streammetrics.cli.score import scored, write_report
from streammetrics.cli.tasks import TaskSpec, make_collection, read_task_file
from streammetrics.collect.files import atomic_write
from streammetrics.io.demo import DemoTruth, write_demo_log
from streammetrics.io.logs import Log
from streammetrics.io.search import SearchTruth, write_search_log
from streammetrics.reports.records import Record, overall, tasks_of
from streammetrics.reports.tables import compare, headline, slices
from streammetrics.reports.text_table import Cell, Grid, say, show

__all__ = ["run_demo"]

T = TypeVar("T")
RATE = 0.1
SLICES = 6  # of country and device: enough to see what it looks like
TRUTH, TASKS, REPORT = "_truth.json", "tasks.toml", "report.html"
QUERY_ROWS = 100  # impressions for each search of the log of searches
METRICS = ("auc", "normalized_entropy", "calibration", "ctr")
SCREEN = ", ".join(f'"{name}"' for name in METRICS)
FILE = f"""\
# Three tasks, one pass: streammetrics eval {{folder}}/full --task {{folder}}/{TASKS}
by = ["variant", "country,device"]

[tasks.model_a]
label = "click"
score = "pctr_a"
metrics = [{SCREEN}]

[tasks.model_b]
label = "click"
score = "pctr_b"
metrics = [{SCREEN}]

[tasks.convert] # of those who clicked
label = "convert"
score = "pcvr"
where = "click"
metrics = [{SCREEN}]
"""


def run_demo(folder: str, rows: int) -> None:
    """Write both logs unless they are there, score them, print the tables and the commands that make them."""
    root = Path(folder)
    began = time.perf_counter()
    full = _logs(root, rows)
    say(f"{full.rows:,} impressions of two models, and a copy that kept {RATE:.0%} of the negatives: {folder}/", "bold")
    say(f"{time.perf_counter() - began:.1f} s; the first run also compiles, which takes some seconds once", "dim")
    say()
    _show_full(root, full)
    _show_sampled(root)
    _show_search(root, rows // QUERY_ROWS)
    _show_commands(folder)


# -- the logs --------------------------------------------------------------------------------------------------------


def _logs(root: Path, rows: int) -> DemoTruth:
    """Write the logs that are missing, or whose writing was interrupted; return the truth about the full one."""
    _check_folder(root, rows)
    root.mkdir(parents=True, exist_ok=True)
    _write(root / TASKS, FILE.format(folder=root))  # first: it says whose folder this is
    if not (root / "full" / TRUTH).exists():
        say(f"Writing a week of impressions to {root}/ ...", "dim")
    _log(root / "sampled", rows, RATE)
    return _log(root / "full", rows, 1.0)


def _check_folder(root: Path, rows: int) -> None:
    """Raise unless the folder is new, empty, or of a demo of as many rows: what it holds may be written anew."""
    if not root.exists() or (root.is_dir() and not any(root.iterdir())):
        return
    tasks = root / TASKS
    mine = tasks.is_file() and tasks.read_text(encoding="utf-8", errors="replace").startswith(FILE[:40])
    if not mine or any(entry.name not in ("full", "sampled", "search", TASKS, REPORT) for entry in root.iterdir()):
        raise UsageError(f"{root}: holds something else; name another folder: streammetrics demo DIR")
    truth = root / "full" / TRUTH
    if truth.exists() and (found := _read(truth, DemoTruth).impressions) != rows:
        raise UsageError(f"{root}: holds a demo of {found:,} rows; name another folder, or give --rows {found}")


def _log(folder: Path, rows: int, rate: float) -> DemoTruth:
    truth = folder / TRUTH
    if truth.exists():
        return _read(truth, DemoTruth)
    if folder.exists():
        shutil.rmtree(folder)  # an interrupted demo: the truth is written last
    made = write_demo_log(folder, rows, negative_rate=rate, sampled_scale=False)
    _write(truth, json.dumps(asdict(made)))
    return made


def _write(path: Path, text: str) -> None:
    atomic_write(path, lambda file: file.write(text.encode()))


def _read(path: Path, kind: type[T]) -> T:
    try:
        return kind(**json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError):
        raise UsageError(f"{path}: not what a demo wrote; name another folder: streammetrics demo DIR") from None


# -- the full log ----------------------------------------------------------------------------------------------------


def _show_full(root: Path, truth: DemoTruth) -> None:
    specs, by, _ = read_task_file(str(root / TASKS), None)
    began = time.perf_counter()
    sets = [tuple(names.split(",")) for names in by]
    found = scored(Log(root / "full"), make_collection(specs, "raise"), sets)
    seconds = time.perf_counter() - began
    table = headline(found.overall, f"Two click models, and conversions after clicks: one pass, {seconds:.1f} s")
    show(_with_truth(table, truth))
    _write_report(root, found.saved, truth.impressions)
    variants = slices(found.slices[sets[0]], title="By variant")
    variants.remarks.append(
        f"truth: ctr A {truth.ctr['A']:.6f}, B {truth.ctr['B']:.6f}: B has {truth.lift:+.1%}, before the luck of the draw"
    )
    show(variants)
    crossed = slices(
        found.slices[sets[1]], SLICES, f"By country and device, the {SLICES} largest of {len(found.slices[sets[1]])}"
    )
    crossed.remarks = [r for r in crossed.remarks if not r.startswith("and ")]
    show(crossed)


def _write_report(root: Path, thing: Any, rows: int) -> None:
    """Write the page beside the logs, if jinja2 is installed."""
    try:
        write_report(thing, str(root / REPORT), f"A demo: {rows:,} impressions")
    except UsageError as error:  # a demo goes on without the page
        say(str(error), "dim")
    else:
        say(f"with pictures: {root / REPORT}", "bold")
    say()


def _with_truth(grid: Grid, truth: DemoTruth) -> Grid:
    """Put the truth beside each model's column, where it is known."""
    ctr = _overall_ctr(truth)
    known = {
        "model_a": {"auc": truth.auc["pctr_a"], "calibration": truth.calibration["pctr_a"], "ctr": ctr},
        "model_b": {"auc": truth.auc["pctr_b"], "calibration": truth.calibration["pctr_b"], "ctr": ctr},
    }
    shown = _beside(grid, known)
    shown.remarks.append("truth: the expectation over clicks, given these impressions")
    return shown


def _beside(grid: Grid, known: dict[str, dict[str, float]]) -> Grid:
    """Put a column of what is known beside each column of that name."""
    heads, rows = grid.heads[:1], [None if row is None else row[:1] for row in grid.rows]
    for i, name in enumerate(grid.heads[1:], 1):
        heads += [name, "truth"] if name in known else [name]
        for old, new in zip(grid.rows, rows, strict=True):
            if old is not None and new is not None:
                value = known.get(name, {}).get(old[0].text, math.nan)
                shown = [Cell("" if math.isnan(value) else f"{value:.4f}", style="dim")] if name in known else []
                new += [old[i], *shown]
    return Grid(grid.title, heads, rows, remarks=list(grid.remarks))


def _overall_ctr(truth: DemoTruth) -> float:
    """The expected rate of both variants, which are about as large."""
    return sum(truth.ctr.values()) / len(truth.ctr)


# -- the down-sampled log --------------------------------------------------------------------------------------------


def _show_sampled(root: Path) -> None:
    """Show that NE, calibration and rates of the sample are wrong as they stand, and right once corrected."""
    spec = TaskSpec("click", ("pctr_b",), metrics=("auc", "average_precision", "log_loss", *METRICS[1:]))
    corrected = TaskSpec("click", ("pctr_b",), metrics=spec.metrics, negative_rate=RATE, corrects="rows")
    columns = {
        "full log": _by_variant(root / "full", spec),
        "sample as it is": _by_variant(root / "sampled", spec),
        "sample corrected": _by_variant(root / "sampled", corrected),
    }
    grid = compare(columns, title=f"A log that kept {RATE:.0%} of the negatives, model_b")
    grid.rows = [_marked(row) for row in grid.rows]
    grid.remarks.append(
        f"corrected: --negative-rate {RATE} --corrects rows; --corrects both for a model trained on such a sample"
    )
    show(grid)


def _by_variant(folder: Path, spec: TaskSpec) -> dict[str, Record]:
    """Score a log; by slice, because the first tables have compiled that already."""
    found = scored(Log(folder), make_collection({"": spec}, "raise"), [("variant",)])
    return tasks_of(overall(found.overall))[""]


def _marked(row: list[Cell] | None) -> list[Cell] | None:
    """Mark what the sample gets wrong by more than luck can explain."""
    if row is None or row[0].text in ("rows", "positives"):
        return row
    full, sample, corrected = (float(cell.text) for cell in row[1:])
    wrong = abs(sample - full) > 0.02 * full
    fine = abs(corrected - full) < 0.02 * full
    marked = (
        Cell(row[2].text, row[2].note, "red" if wrong else ""),
        Cell(row[3].text, row[3].note, "green" if wrong and fine else ""),
    )
    return [*row[:2], *marked]


# -- the log of searches ---------------------------------------------------------------------------------------------


def _show_search(root: Path, queries: int) -> None:
    """Score two rankers, the truth beside what was computed by sorting."""
    folder = root / "search"
    truth = _searches(folder, max(queries, 10))
    spec = TaskSpec("grade", ("score_a", "score_b"), task_type="ranking", query="query_id", k=(10,))
    log = Log(folder)
    found = scored(log, make_collection({"": spec}, "raise", log.schema), [])
    grid = headline(found.overall, f"Two rankers of {truth.queries:,} searches, {truth.rows:,} graded documents")
    show(_beside(grid, {name: {"ndcg@10": truth.ndcg[name], "mrr@10": truth.mrr[name]} for name in truth.ndcg}))


def _searches(folder: Path, queries: int) -> SearchTruth:
    known = folder / TRUTH
    if known.exists():
        return _read(known, SearchTruth)
    if folder.exists():
        shutil.rmtree(folder)  # an interrupted demo: the truth is written last
    made = write_search_log(folder, queries)
    _write(known, json.dumps(asdict(made)))
    return made


# -- what to do next -------------------------------------------------------------------------------------------------


def _show_commands(folder: str) -> None:
    say("Try it yourself", "bold cyan")
    for text, command in (
        ("both models side by side", f"streammetrics eval {folder}/full --label click --score pctr_a --score pctr_b"),
        ("the tables above", f"streammetrics eval {folder}/full --task {folder}/{TASKS}"),
        (
            "the sampled log, corrected",
            f"streammetrics eval {folder}/sampled --label click --score pctr_b --negative-rate {RATE} --corrects rows",
        ),
        (
            "one day at a time, merged later",
            f"for day in {folder}/full/day=*; do\n"
            f"    streammetrics eval $day --label click --score pctr_b --by variant --save ${{day##*=}}.smet\n"
            f"  done; streammetrics merge 20*.smet -o week.smet && streammetrics show week.smet",
        ),
        (
            "the two rankers",
            f"streammetrics eval {folder}/search --task-type ranking --label grade --query query_id "
            f"--score score_a --score score_b --by market",
        ),
        ("every metric there is", "streammetrics catalog"),
    ):
        say(f"# {text}", "dim")
        for line in command.split("\n"):
            say(line)
