"""The main job: 50 million rows through `streammetrics eval`, beside pyarrow reading the same columns and no more.

Each side is a process of its own; the two run in turn with as many threads, on a warm cache. Starting (interpreter,
imports, the first two million rows) is measured apart: it is seconds once, not nanoseconds a row.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import pyarrow.parquet as pq

from benchmarks import logs, process
from benchmarks.process import Usage
from benchmarks.report import Sheet, table
from benchmarks.timing import MIB, Timing

ROWS, GROUPED = 50_000_000, 10_000_000
WARM_ROWS = 2_000_000
THREADS = 2
ROUNDS = 7
METRICS = ["--metrics", "auc,log_loss,calibration"]


def score_log(paths: Sequence[Path], by: Sequence[str] = (), environment: dict[str, str] | None = None) -> Usage:
    """Score a log as `python -m streammetrics eval` does."""
    return evaluate(paths, [*METRICS, *(word for column in by for word in ("--by", column))], environment)


def evaluate(paths: Sequence[Path], more: Sequence[str], environment: dict[str, str] | None = None) -> Usage:
    """Run it with some more options."""
    options = ["--label", "click", "--score", "pctr", "--threads", str(THREADS), *more]
    warm, real = (["eval", *map(str, some), *options] for some in ([logs.log(WARM_ROWS)], paths))
    return process.run("-m streammetrics", warm, real, environment)


def read_log(path: Path, by: Sequence[str] = ()) -> Usage:
    """Read its columns with pyarrow."""
    columns = ["click", "pctr", *by]
    return process.run("benchmarks.eval:read", [str(logs.log(WARM_ROWS)), *columns], [str(path), *columns])


def read(arguments: Sequence[str]) -> None:
    """Read by the rules that keep memory flat: row groups in threads, a file each, no pre-buffering."""
    path, *columns = arguments
    groups = iter(range(pq.ParquetFile(path).num_row_groups))
    lock = threading.Lock()

    def work() -> None:
        file = pq.ParquetFile(path, pre_buffer=False)
        while True:
            with lock:
                group = next(groups, None)
            if group is None:
                return
            for _ in file.iter_batches(row_groups=[group], columns=columns, use_threads=False):
                pass

    workers = [threading.Thread(target=work) for _ in range(THREADS)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def main() -> None:
    """Print both sides, what scoring adds to reading, and the limits."""
    typed, plain, fewer = logs.log(ROWS), logs.log(ROWS, typed=False), logs.log(GROUPED)
    # the three metrics take 3 of them, from columns in memory; AMD Zen 4 keeps 6, Zen 3 does not
    compare("", typed, [], 7.0, 3.0)
    compare(" as Spark writes them", plain, ["country"], 12.0, 6.0)
    compare(" as Spark writes them", plain, ["variant", "country"], 14.0, 9.0)
    compare(" with dictionaries of Arrow's", typed, ["variant", "country"], 35.0, 9.0)
    grouped = ["--metrics", "group_auc", "--group", "user_id"]
    rounds = [(evaluate([fewer], grouped), read_log(fewer, ["user_id"])) for _ in range(ROUNDS)]
    show(f"{GROUPED:,} rows: eval --group user_id", rounds, GROUPED)
    sheet = Sheet()
    ours, theirs = (Timing(tuple(side.cpu for side in sides), ()) for sides in zip(*rounds, strict=True))
    sheet.line("eval --group / reading", ours.ratio(theirs), 4.6, asked=4)
    sheet.show("Limit")


def compare(kind: str, path: Path, by: list[str], most: float, asked: float) -> None:
    read_log(path, by)  # warms the disk's cache
    rounds = [(score_log([path], by), read_log(path, by)) for _ in range(ROUNDS)]
    sliced = "".join(f" --by {column}" for column in by)
    show(f"{ROWS:,} rows{kind}: eval {' '.join(METRICS)}{sliced}", rounds, ROWS)
    sheet = Sheet()
    ours, theirs = (min(side.cpu for side in sides) / ROWS * 1e9 for sides in zip(*rounds, strict=True))
    sheet.line(f"eval{sliced}{kind}, CPU beyond reading", ours - theirs, most, "ns/row", asked)
    sheet.show("Limit")


def show(title: str, rounds: Sequence[tuple[Usage, Usage]], count: int) -> None:
    names = "eval", "pyarrow reads"
    rows = [_row(name, side, count) for name, side in zip(names, zip(*rounds, strict=True), strict=True)]
    cpu = median(ours.cpu / theirs.cpu for ours, theirs in rounds)
    wall = median(ours.wall / theirs.wall for ours, theirs in rounds)
    whole = median((ours.start_cpu + ours.cpu) / (theirs.start_cpu + theirs.cpu) for ours, theirs in rounds)
    rows.append(["ratio", f"{cpu:.2f}", f"{wall:.2f}", "", f"{whole:.2f}", "", ""])
    head = ["", "CPU s", "wall s", "M rows/s", "CPU s with start", "wall s to start", "peak MiB"]
    table(f"{title}, {THREADS} threads", head, rows)


def _row(name: str, runs: Sequence[Usage], rows: int) -> list[str]:
    cpu, wall, start, peak = (median(getattr(r, f) for r in runs) for f in ("cpu", "wall", "start_wall", "peak"))
    whole = median(r.start_cpu + r.cpu for r in runs)
    speed = f"{rows / wall / 1e6:.0f}"
    return [name, f"{cpu:.2f}", f"{wall:.2f}", speed, f"{whole:.2f}", f"{start:.2f}", f"{peak / MIB:.0f}"]
