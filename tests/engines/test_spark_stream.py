"""A stream whose driver is killed with -9, and started again: the digest of one that never was."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from spark_log import QUIET, ROWS, session, table

import streammetrics as sm

pytest.importorskip("pyspark")

from streammetrics.engines import spark

KILLS = int(os.environ.get("STREAMMETRICS_KILLS", "0"))  # at random moments; 10 take some minutes
FILES = 24 if KILLS else 4
AFTER = 1
METRICS = [sm.AUC(), sm.LogLoss(), sm.CTR()]

PROGRAM = """
import os
import signal
import sys
sys.path.insert(0, {tests!r})
import warnings
warnings.simplefilter("ignore")
from spark_log import session
import streammetrics as sm
from streammetrics.engines import spark

log, state, checkpoint, last = sys.argv[1:]
sink = spark.Sink(state, [sm.AUC(), sm.LogLoss(), sm.CTR()], by=["country", "arm"], strategy="states")

def count(frame, batch):
    sink(frame, batch)
    if str(batch) == last:  # the file has it, and Spark does not know yet
        os.killpg(0, signal.SIGKILL)

started = session()
rows = started.readStream.schema(started.read.parquet(log).schema).option("maxFilesPerTrigger", 1).parquet(log)
print("started", flush=True)
writer = rows.writeStream.foreachBatch(count).option("checkpointLocation", checkpoint)
writer.trigger(availableNow=True).start().awaitTermination()
print("done", flush=True)
"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    folder = tmp_path / "log"
    folder.mkdir()
    step = ROWS // FILES
    for i in range(FILES):
        pq.write_table(table().slice(i * step, step), folder / f"{i:02}.parquet")
    return folder


def start(log: Path, state: Path, killed_after: int | None = None) -> subprocess.Popen[str]:
    code = PROGRAM.format(tests=str(Path(__file__).parent.parent))
    arguments = [
        sys.executable,
        "-c",
        code,
        str(log),
        str(state),
        str(state.with_name("checkpoint")),
        str(killed_after),
    ]
    return subprocess.Popen(  # a group of its own: Java is in it, and Python's workers end with Java
        arguments, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
    )


def kill(process: subprocess.Popen[str]) -> None:
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


def last(state: Path) -> int:
    return int(state.read_bytes().split(b"\n")[0].split()[-1]) if state.exists() else -1


def finish(log: Path, state: Path) -> None:
    """Let the stream run to its end; what it has seen is what one pass sees."""
    process = start(log, state)
    try:
        assert process.communicate(timeout=500)[0].split() == ["started", "done"]
    finally:
        if process.poll() is None:
            kill(process)
    whole = sm.Sliced(METRICS, by=["country", "arm"]).update(table())
    assert sm.from_bytes(state.read_bytes().partition(b"\n")[2]).digest() == whole.digest()


def test_a_batch_that_comes_again_is_not_counted_again(log: Path, tmp_path: Path) -> None:
    state = tmp_path / "auc.stream"
    process = start(log, state, AFTER)
    try:
        assert process.communicate(timeout=500)[0].split() == ["started"]
    finally:
        if process.poll() is None:
            kill(process)
    assert process.returncode == -signal.SIGKILL
    assert last(state) == AFTER
    finish(log, state)


@pytest.mark.skipif(not KILLS, reason="STREAMMETRICS_KILLS=10 kills ten times, at random")
def test_killed_at_any_moment(log: Path, tmp_path: Path) -> None:
    state, chance = tmp_path / "auc.stream", random.Random(13)
    for _ in range(KILLS):
        process, wanted = start(log, state), min(last(state) + chance.randint(1, 2), FILES - 2)
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "started\n"
            while last(state) < wanted and process.poll() is None:
                time.sleep(0.01)
            time.sleep(chance.random())  # anywhere between two batches, and in them
        finally:
            kill(process)
    finish(log, state)


@pytest.mark.parametrize("by", [(), "country"])
def test_groups_of_a_stream_are_refused(by: str | tuple[str, ...], tmp_path: Path) -> None:
    """Rows of one user come in many batches; a sample of whole users needs no end."""
    with pytest.raises(sm.InvalidInputError, match="groups of a stream are never complete"):
        spark.Sink(tmp_path / "state.smet", [sm.AUC(), sm.GroupAUC()], by=by)
    spark.Sink(tmp_path / "state.smet", [sm.AUC(), sm.GroupAUC(sample=True)], by=by)
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def running() -> Iterator[Any]:
    spark_session = session()
    yield spark_session
    spark_session.stop()


@pytest.mark.slow
@pytest.mark.filterwarnings(QUIET)
def test_a_missing_file_is_refused_unless_the_stream_begins(running: Any, tmp_path: Path) -> None:
    frame, path = running.createDataFrame([(1,), (0,)], "y_true long"), tmp_path / "ctr.stream"
    with pytest.raises(sm.InvalidInputError, match=r"does not exist, so expected micro-batch 0, found 13.*start=13"):
        spark.Sink(path, sm.CTR())(frame, 13)
    assert not path.exists()
    sink = spark.Sink(path, sm.CTR(), start=13)
    sink(frame, 13)
    sink(frame, 14)
    assert (sink.last, sink.state.compute(), sink.state.explain()["rows"]) == (14, 0.5, 4)


@pytest.mark.slow
@pytest.mark.filterwarnings(QUIET)
def test_a_micro_batch_with_invalid_rows_stops_the_stream_or_is_set_aside(running: Any, tmp_path: Path) -> None:
    good, bad = (running.createDataFrame(rows, "y_true long") for rows in ([(1,), (0,)], [(1,), (7,)]))
    path, folder = tmp_path / "ctr.stream", tmp_path / "rejected"
    with pytest.raises(sm.InvalidInputError, match=r"^micro-batch 0: y_true: .*found 7 in row") as caught:
        spark.Sink(path, sm.CTR())(bad, 0)
    assert caught.value.__suppress_context__
    assert "\n" not in str(caught.value)
    sink = spark.Sink(path, sm.CTR(), rejected=str(folder))
    for batch, frame in enumerate([bad, good, bad]):
        sink(frame, batch)
    assert (sink.last, sink.state.compute(), sink.state.explain()["rows"]) == (2, 0.5, 2)
    assert sorted(p.name for p in folder.iterdir()) == ["batch=0", "batch=2"]
    assert running.read.parquet(str(folder)).count() == 4
