"""`streammetrics demo`: write a click log with known true values, and use it to demonstrate the main features."""

from __future__ import annotations

import json
import math
import shutil
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from streammetrics.cli.messages import UsageError
from streammetrics.cli.score import evaluate_with_progress, write_report
from streammetrics.cli.tasks import TaskSpec, make_collection, read_task_file
from streammetrics.collect.files import atomic_write
from streammetrics.io.demo import DemoTruth, write_demo_log
from streammetrics.io.logs import Log
from streammetrics.io.search import SearchTruth, write_search_log
from streammetrics.reports.records import Record, build_records, group_by_task
from streammetrics.reports.tables import build_metric_grid, build_slice_grid, build_task_grid
from streammetrics.reports.text_table import Cell, Grid, print_grid, print_line

__all__ = ["run_demo"]

T = TypeVar("T")
NEGATIVE_RATE = 0.1
# The number of slices by country and device that the demo prints.
SHOWN_SLICES = 6
TRUTH, TASKS, REPORT = "_truth.json", "tasks.toml", "report.html"
# The log of searches has one search for every 100 impressions of the click log.
QUERY_ROWS = 100
METRICS = ("auc", "normalized_entropy", "calibration", "ctr")
SCREEN = ", ".join(f'"{name}"' for name in METRICS)
TASK_FILE_TEXT = f"""\
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

[tasks.convert] # conversions after clicks
label = "convert"
score = "pcvr"
where = "click"
metrics = [{SCREEN}]
"""


def run_demo(folder: str, rows: int) -> None:
    """Write the logs that do not exist yet, score all logs, and print the results and commands to try."""
    root = Path(folder)
    began = time.perf_counter()
    full = _write_missing_logs(root, rows)
    print_line(
        f"{full.rows:,} impressions, scored by two models, and a copy with {NEGATIVE_RATE:.0%} of the negatives: "
        f"{folder}/",
        "bold",
    )
    print_line(
        f"{time.perf_counter() - began:.1f} s; only the first run also compiles kernels, which takes some seconds",
        "dim",
    )
    print_line()
    _show_full(root, full)
    _show_sampled(root)
    _show_search(root, rows // QUERY_ROWS)
    _show_commands(folder)


# -- The logs --------------------------------------------------------------------------------------------------------


def _write_missing_logs(root: Path, rows: int) -> DemoTruth:
    """Write the logs that are missing or incomplete; return the true metric values of the full log."""
    _check_folder(root, rows)
    root.mkdir(parents=True, exist_ok=True)
    # The task file marks the folder as belonging to a demo. It is written first, so an interrupted demo can be resumed.
    _write_text(root / TASKS, TASK_FILE_TEXT.format(folder=root))
    if not (root / "full" / TRUTH).exists():
        print_line(f"Writing a week of impressions to {root}/ ...", "dim")
    _write_missing_log(root / "sampled", rows, NEGATIVE_RATE)
    return _write_missing_log(root / "full", rows, 1.0)


def _check_folder(root: Path, rows: int) -> None:
    """Raise UsageError unless the folder is new, is empty, or contains a demo of the same size.

    In any other folder, the demo might overwrite the user's files.
    """
    if not root.exists() or (root.is_dir() and not any(root.iterdir())):
        return
    tasks = root / TASKS
    is_demo = tasks.is_file() and tasks.read_text(encoding="utf-8", errors="replace").startswith(TASK_FILE_TEXT[:40])
    if not is_demo or any(entry.name not in ("full", "sampled", "search", TASKS, REPORT) for entry in root.iterdir()):
        raise UsageError(
            f"{root}: expected a new folder, an empty one or an earlier demo, found other files; name another folder: "
            f"streammetrics demo DIR"
        )
    truth = root / "full" / TRUTH
    if truth.exists() and (rows_found := _read_truth(truth, DemoTruth).impressions) != rows:
        raise UsageError(
            f"{root}: expected a demo of {rows:,} rows, found {rows_found:,} rows; pass --rows {rows_found}, or name "
            f"another folder: streammetrics demo DIR"
        )


def _write_missing_log(folder: Path, rows: int, rate: float) -> DemoTruth:
    truth = folder / TRUTH
    if truth.exists():
        return _read_truth(truth, DemoTruth)
    if folder.exists():
        # The file with the true values, which is written after the log, is missing. An earlier demo was therefore
        # interrupted and may have left an incomplete log. Delete the log.
        shutil.rmtree(folder)
    truth_of_log = write_demo_log(folder, rows, negative_rate=rate, sampled_scale=False)
    _write_text(truth, json.dumps(asdict(truth_of_log)))
    return truth_of_log


def _write_text(path: Path, text: str) -> None:
    atomic_write(path, lambda file: file.write(text.encode()))


def _read_truth(path: Path, kind: type[T]) -> T:
    try:
        return kind(**json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError):
        raise UsageError(
            f"{path}: expected a file of an earlier demo, found other content; name another folder: streammetrics demo DIR"
        ) from None


# -- The full log ----------------------------------------------------------------------------------------------------


def _show_full(root: Path, truth: DemoTruth) -> None:
    specs, by, _ = read_task_file(str(root / TASKS), None)
    began = time.perf_counter()
    sets = [tuple(names.split(",")) for names in by]
    result = evaluate_with_progress(Log(root / "full"), make_collection(specs, "raise"), sets)
    seconds = time.perf_counter() - began
    table = build_task_grid(
        result.overall, f"Two click models, and conversions after clicks: one pass, {seconds:.1f} s"
    )
    print_grid(_add_truth(table, truth))
    _write_report(root, result.bundle, truth.impressions)
    variants = build_slice_grid(result.slices[sets[0]], title="By variant")
    variants.remarks.append(
        f"truth: expected ctr of A {truth.ctr['A']:.6f}, of B {truth.ctr['B']:.6f}; B differs from A by {truth.lift:+.1%}"
    )
    print_grid(variants)
    crossed = build_slice_grid(
        result.slices[sets[1]],
        SHOWN_SLICES,
        f"By country and device, the {SHOWN_SLICES} largest of {len(result.slices[sets[1]])}",
    )
    crossed.remarks = [r for r in crossed.remarks if not r.startswith("and ")]
    print_grid(crossed)


def _write_report(root: Path, result: Any, rows: int) -> None:
    """Write the report next to the logs, if jinja2 is installed."""
    try:
        write_report(result, str(root / REPORT), f"A demo: {rows:,} impressions")
    except UsageError as error:
        # The report is not essential, so the demo continues without it.
        print_line(str(error), "dim")
    else:
        print_line(f"the same with charts: {root / REPORT}", "bold")
    print_line()


def _add_truth(grid: Grid, truth: DemoTruth) -> Grid:
    """Add a column of true values next to the column of each model."""
    ctr = _overall_ctr(truth)
    truths = {
        "model_a": {"auc": truth.auc["pctr_a"], "calibration": truth.calibration["pctr_a"], "ctr": ctr},
        "model_b": {"auc": truth.auc["pctr_b"], "calibration": truth.calibration["pctr_b"], "ctr": ctr},
    }
    extended = _add_truth_columns(grid, truths)
    extended.remarks.append("truth: the expectation over clicks, given these impressions")
    return extended


def _add_truth_columns(grid: Grid, truths: dict[str, dict[str, float]]) -> Grid:
    """Add a column of true values to the right of the column of each model whose true values are known.

    `truths` maps each model to the true values of its metrics.
    """
    heads, rows = grid.heads[:1], [None if row is None else row[:1] for row in grid.rows]
    for i, name in enumerate(grid.heads[1:], 1):
        heads += [name, "truth"] if name in truths else [name]
        for old, new in zip(grid.rows, rows, strict=True):
            if old is not None and new is not None:
                value = truths.get(name, {}).get(old[0].text, math.nan)
                truth_cells = [Cell("" if math.isnan(value) else f"{value:.4f}", style="dim")] if name in truths else []
                new += [old[i], *truth_cells]
    return Grid(grid.title, heads, rows, remarks=list(grid.remarks))


def _overall_ctr(truth: DemoTruth) -> float:
    """Return the expected overall click-through rate: the mean over both variants, which are about equally large."""
    return sum(truth.ctr.values()) / len(truth.ctr)


# -- The down-sampled log --------------------------------------------------------------------------------------------


def _show_sampled(root: Path) -> None:
    """Show that sampling distorts normalized entropy, calibration and rates, and that a correction removes the bias."""
    spec = TaskSpec("click", ("pctr_b",), metrics=("auc", "average_precision", "log_loss", *METRICS[1:]))
    corrected = TaskSpec("click", ("pctr_b",), metrics=spec.metrics, negative_rate=NEGATIVE_RATE, corrects="rows")
    columns = {
        "full log": _by_variant(root / "full", spec),
        "sample as it is": _by_variant(root / "sampled", spec),
        "sample corrected": _by_variant(root / "sampled", corrected),
    }
    grid = build_metric_grid(columns, title=f"A log that kept {NEGATIVE_RATE:.0%} of the negatives, model_b")
    grid.rows = [_color_errors(row) for row in grid.rows]
    grid.remarks.append(
        f"corrected: --negative-rate {NEGATIVE_RATE} --corrects rows; --corrects both for a model trained on such a sample"
    )
    print_grid(grid)


def _by_variant(folder: Path, spec: TaskSpec) -> dict[str, Record]:
    """Score a log and return its metric values, keyed by name.

    The log is sliced by variant, although the slices are not shown: the demo has already compiled the kernels for
    slices, so it need not compile others.
    """
    result = evaluate_with_progress(Log(folder), make_collection({"": spec}, "raise"), [("variant",)])
    return group_by_task(build_records(result.overall))[""]


def _color_errors(row: list[Cell] | None) -> list[Cell] | None:
    """Color a row of the table that compares the full log, the sample, and the corrected sample.

    A value of the sample is red if it differs from that of the full log by more than 2 %. Next to a red value, the
    corrected value is green if it differs from that of the full log by less than 2 %.
    """
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


# -- The log of searches ---------------------------------------------------------------------------------------------


def _show_search(root: Path, queries: int) -> None:
    """Score two rankers, and show the true values next to the results."""
    folder = root / "search"
    truth = _write_missing_searches(folder, max(queries, 10))
    spec = TaskSpec("grade", ("score_a", "score_b"), task_type="ranking", query="query_id", k=(10,))
    log = Log(folder)
    result = evaluate_with_progress(log, make_collection({"": spec}, "raise", log.schema), [])
    grid = build_task_grid(
        result.overall, f"Two rankers on {truth.queries:,} searches with {truth.rows:,} graded documents"
    )
    print_grid(
        _add_truth_columns(
            grid, {name: {"ndcg@10": truth.ndcg[name], "mrr@10": truth.mrr[name]} for name in truth.ndcg}
        )
    )


def _write_missing_searches(folder: Path, queries: int) -> SearchTruth:
    truth_file = folder / TRUTH
    if truth_file.exists():
        return _read_truth(truth_file, SearchTruth)
    if folder.exists():
        # The file with the true values, which is written after the log, is missing. An earlier demo was therefore
        # interrupted and may have left an incomplete log. Delete the log.
        shutil.rmtree(folder)
    truth = write_search_log(folder, queries)
    _write_text(truth_file, json.dumps(asdict(truth)))
    return truth


# -- Next steps -------------------------------------------------------------------------------------------------


def _show_commands(folder: str) -> None:
    print_line("Try it yourself", "bold cyan")
    for text, command in (
        ("both models side by side", f"streammetrics eval {folder}/full --label click --score pctr_a --score pctr_b"),
        ("the tables above", f"streammetrics eval {folder}/full --task {folder}/{TASKS}"),
        (
            "the sampled log, corrected",
            f"streammetrics eval {folder}/sampled --label click --score pctr_b --negative-rate {NEGATIVE_RATE} "
            f"--corrects rows",
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
        ("a list of all metrics", "streammetrics catalog"),
    ):
        print_line(f"# {text}", "dim")
        for line in command.split("\n"):
            print_line(line)
