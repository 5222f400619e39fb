"""A pass that is broken off, at any part, and goes on from its checkpoint ends in the same bits."""

from __future__ import annotations

import gzip
import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fuzz_frames
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest

import streammetrics as sm
from streammetrics.collect.accumulator import definition_of
from streammetrics.collect.metric_like import empty_copy, states_of
from streammetrics.compose.checkpoint import ranges
from streammetrics.format import frame
from streammetrics.io import checkpoints, readers
from streammetrics.io import evaluate as evaluating
from streammetrics.io.evaluate import evaluate
from streammetrics.io.logs import Log, LogError
from streammetrics.io.parts import LogPart
from streammetrics.io.row_filter import parse_filter

N, GROUP = 6000, 500
FILES = 3


def table(seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    return pa.table(
        {
            "y_true": rng.integers(0, 2, N),
            "y_score": rng.integers(0, 1025, N) / 1024,
            "country": np.array(["at", "be", "ch", "dk"])[rng.integers(0, 4, N)],
            "group": rng.integers(0, 300, N),
        }
    )


def parquet(path: Path, rows: pa.Table) -> Path:
    pq.write_table(rows, path.with_suffix(".parquet"), row_group_size=GROUP)
    return path


def text(path: Path, rows: pa.Table) -> Path:
    pa.csv.write_csv(rows, path.with_suffix(".csv"))
    return path


def packed(path: Path, rows: pa.Table) -> Path:
    out = pa.BufferOutputStream()
    pa.csv.write_csv(rows, out)
    path.with_suffix(".csv.gz").write_bytes(gzip.compress(out.getvalue().to_pybytes(), 1))
    return path


def arrow(path: Path, rows: pa.Table) -> Path:
    with pa.ipc.new_file(path.with_suffix(".arrow"), rows.schema) as writer:
        writer.write_table(rows, max_chunksize=GROUP)
    return path


FORMS = {"parquet": parquet, "text": text, "packed": packed, "arrow": arrow}


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small parts, and a checkpoint after each."""
    monkeypatch.setattr(readers, "_SPAN_ROWS", GROUP)
    monkeypatch.setattr(evaluating, "WATCH_SECONDS", 0.001)
    monkeypatch.setattr(checkpoints, "OVERHEAD_RATIO", 1)


@pytest.fixture
def log(tmp_path: Path) -> Callable[[str], Log]:
    def make(form: str = "parquet") -> Log:
        folder = tmp_path / form
        if not folder.exists():
            folder.mkdir()
            for i in range(FILES):
                FORMS[form](folder / f"{i}", table(i))
        return Log(folder)

    return make


class StoppedError(Exception):
    """As if somebody pulled the plug."""


@pytest.fixture
def stopping(monkeypatch: pytest.MonkeyPatch) -> Callable[[int | None], list[LogPart]]:
    """Let the reading of so many parts more end the pass; tell what was read to its end."""
    real = LogPart.batches

    def after(count: int | None) -> list[LogPart]:
        begun, whole = itertools.count(1), list[LogPart]()

        def batches(part: LogPart) -> Iterator[pa.RecordBatch]:
            if count is not None and next(begun) > count:
                raise StoppedError
            yield from real(part)
            whole.append(part)

        monkeypatch.setattr(LogPart, "batches", batches)
        return whole

    return after


METRICS: dict[str, Callable[[], Any]] = {
    "scores": lambda: sm.MetricCollection(sm.AUC(bits=12), sm.LogLoss(), sm.CTR()),
    "groups": lambda: sm.MetricCollection(sm.GroupAUC(), sm.CTR()),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("form", "metrics", "how"),
    [
        ("parquet", "scores", {}),
        ("parquet", "scores", {"threads": 1, "by": ["country"]}),
        ("parquet", "scores", {"threads": 3, "by": ["country", ["country", "group"]]}),
        ("parquet", "scores", {"by": ["group", "country"], "limit": 7, "keep": "rows", "threads": 1}),
        ("parquet", "scores", {"by": ["group"], "limit": 7}),
        ("parquet", "groups", {"threads": 2, "by": ["country"]}),
        ("arrow", "scores", {"where": [parse_filter(["country!=at"], [])]}),
        ("text", "groups", {"threads": 2}),
        ("packed", "scores", {"threads": 1, "by": ["country"]}),
    ],
)
def test_broken_off_and_gone_on(
    log: Any, stopping: Any, tmp_path: Path, form: str, metrics: str, how: dict[str, Any]
) -> None:
    made, path = METRICS[metrics](), tmp_path / "checkpoint"
    if "where" in how:
        made = sm.MetricCollection(sm.Task(made, where=how["where"][0].name))
    whole = evaluate(log(form), made, **how)
    parts = len(log(form).parts(["y_true"]))
    assert parts == (FILES * N // GROUP if form in ("parquet", "arrow") else FILES)
    counted = 0
    for more in (1, 2, parts // 2) if parts > FILES else (1, 1):
        before = sm.load(path).count if path.exists() else 0
        assert before >= counted
        counted = before
        stopping(more + (parts if how.get("keep") == "rows" and not path.exists() else 0))  # keys are read first
        with pytest.raises(StoppedError):
            evaluate(log(form), made, **how, checkpoint=path)
    before = sm.load(path).count if path.exists() else 0
    assert counted <= before < parts
    read = stopping(None)
    found = evaluate(log(form), made, **how, checkpoint=path)
    assert found.bundle.digest() == whole.bundle.digest()
    assert found.rows == whole.rows == FILES * N
    assert len(read) == parts - before  # what --keep rows has found out is not looked for again
    last = sm.load(path)
    assert (last.finished, last.count, last.parts, last.rows) == (True, parts, parts, FILES * N)
    stopping(0)  # from now on nothing is read
    again = evaluate(log(form), made, **how, checkpoint=path)
    assert (again.bundle.digest(), again.rows) == (whole.bundle.digest(), whole.rows)
    assert sm.load(path) == last


def test_something_was_kept(log: Any, stopping: Any, tmp_path: Path) -> None:
    """What the test above would not see: that passes begin anew every time."""
    whole = stopping(20)
    with pytest.raises(StoppedError):
        evaluate(log(), METRICS["scores"](), checkpoint=tmp_path / "x", threads=1)
    assert len(whole) == 20
    assert sm.load(tmp_path / "x").count == 20


def test_a_bad_row_is_left_out_by_the_next_run(log: Any, stopping: Any, tmp_path: Path) -> None:
    log()
    bad = table(0).set_column(1, "y_score", pa.array(np.r_[np.full(N - 1, 0.5), 7.0]))
    FORMS["parquet"](tmp_path / "parquet" / "1", bad)
    with pytest.raises(sm.InvalidInputError, match=r"row 5,999 of .*1\.parquet"):
        evaluate(log(), METRICS["scores"](), checkpoint=tmp_path / "x", threads=1)
    assert sm.load(tmp_path / "x").count == 23
    read = stopping(None)
    dropping = sm.MetricCollection(sm.AUC(bits=12), sm.LogLoss(), sm.CTR(), on_invalid="drop")
    found = evaluate(log(), dropping, checkpoint=tmp_path / "x", threads=1)
    assert len(read) == 36 - 23
    assert found.bundle.digest() == evaluate(log(), dropping).bundle.digest()


def test_parts_are_written_as_they_are_done_in_little_of_the_time(
    log: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock of our own: a write takes a second, a part a tenth."""
    now, written = [0.0], list[float]()

    class Clock:
        @staticmethod
        def monotonic() -> float:
            return now[0]

    def save(thing: Any, path: Path) -> Path:
        now[0] += 1.0
        written.append(now[0])
        return sm.save(thing, path)

    monkeypatch.setattr(checkpoints, "OVERHEAD_RATIO", 20)
    monkeypatch.setattr(checkpoints, "time", Clock)
    monkeypatch.setattr(checkpoints, "save", save)

    class Worker:
        snapshot: Any = None

    metrics = METRICS["scores"]()
    keeper = checkpoints.CheckpointFile(tmp_path / "x", log(), log().parts(["y_true"]), [])
    keeper.open(metrics)
    one = Worker()
    for i in range(1000):
        now[0] += 0.1
        if keeper.is_due():
            one.snapshot = checkpoints.CountedParts(states_of(metrics), (i,), 1)
        keeper.write([one])
    assert len(written) in (5, 6)
    assert len(written) / now[0] <= 1 / 20 + 0.02
    assert min(np.diff(written)) >= 20


class TestRefuses:
    @pytest.fixture
    def kept(self, log: Any, tmp_path: Path) -> Path:
        path = tmp_path / "kept"
        evaluate(log(), METRICS["scores"](), ["country"], checkpoint=path)
        return path

    @pytest.fixture
    def refused(self, kept: Path) -> Iterator[Callable[..., str]]:
        before = kept.read_bytes()

        def call(*given: Any, **how: Any) -> str:
            with pytest.raises(sm.StreamMetricsError) as caught:
                evaluate(*given, **how, checkpoint=kept)
            return str(caught.value)

        yield call
        assert kept.read_bytes() == before

    def test_another_log(self, log: Any, refused: Any, tmp_path: Path) -> None:
        line = refused(log("arrow"), METRICS["scores"](), ["country"])
        assert line.startswith(f"{tmp_path / 'kept'}: the file is the checkpoint of another log")
        assert line.endswith("or delete this file to start again")
        FORMS["parquet"](tmp_path / "parquet" / "9", table(9))
        assert "4 files" in refused(log(), METRICS["scores"](), ["country"])

    def test_a_log_that_changed(self, log: Any, refused: Any, tmp_path: Path) -> None:
        file = tmp_path / "parquet" / "1.parquet"
        os.utime(file, ns=(0, 0))
        assert "a file was rewritten" in refused(log(), METRICS["scores"](), ["country"])

    def test_other_questions(self, log: Any, refused: Any) -> None:
        assert "has no 'log_loss'" in refused(log(), sm.MetricCollection(sm.AUC(bits=12)), ["country"])
        wider = sm.MetricCollection(sm.AUC(bits=13), sm.LogLoss(), sm.CTR())
        assert "coarsen(" in refused(log(), wider, ["country"])
        assert "with other settings" in refused(log(), METRICS["scores"](), ["group"])
        assert "with other settings" in refused(log(), METRICS["scores"](), ["country"], limit=3)
        assert "with other settings" in refused(log(), METRICS["scores"]())
        where = parse_filter(["group>3"], [])
        task = sm.MetricCollection(sm.Task(METRICS["scores"](), where=where.name))
        assert "with other settings" in refused(log(), task, ["country"], where=[where])

    def test_parts_that_are_cut_otherwise(self, log: Any, refused: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(readers, "_SPAN_ROWS", 2 * GROUP)
        assert "in other parts" in refused(log(), METRICS["scores"](), ["country"])

    def test_what_is_no_checkpoint(self, log: Any, tmp_path: Path) -> None:
        other = sm.save(sm.CTR(), tmp_path / "other")
        with pytest.raises(LogError, match="expected a checkpoint, found a saved object of class CTR"):
            evaluate(log(), METRICS["scores"](), checkpoint=other)
        part = tmp_path / "parquet" / "0.parquet"
        before = part.read_bytes()
        with pytest.raises(sm.StateFormatError, match=r"0\.parquet: these bytes are not a streammetrics state"):
            evaluate(log(), METRICS["scores"](), checkpoint=part)
        assert part.read_bytes() == before

    def test_what_goes_on_across_parts_or_on_disk(self, log: Any, tmp_path: Path) -> None:
        ranking = sm.MetricCollection(sm.Task(sm.NDCG(5), query="group"))
        with pytest.raises(sm.InvalidInputError, match="need all rows of a query together"):
            evaluate(log(), ranking, checkpoint=tmp_path / "x")
        spilled = sm.MetricCollection(sm.GroupAUC(spill_dir=str(tmp_path)))
        with pytest.raises(sm.InvalidInputError, match="spilled to disk are deleted when the process ends"):
            evaluate(log(), spilled, checkpoint=tmp_path / "x")
        assert not (tmp_path / "x").exists()


# -- the file ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def half(log: Any, stopping: Any, tmp_path: Path) -> sm.Checkpoint:
    stopping(9)
    with pytest.raises(StoppedError):
        evaluate(log(), METRICS["scores"](), ["country"], checkpoint=tmp_path / "x", threads=1)
    found = sm.load(tmp_path / "x")
    assert isinstance(found, sm.Checkpoint)
    return found


def test_it_is_half_of_a_result(half: sm.Checkpoint, tmp_path: Path) -> None:
    assert half == half.copy() == sm.from_bytes(half.to_bytes())
    assert repr(half).startswith(f"Checkpoint: {half.count} of 36 parts, {half.rows:,} rows of MetricCollection")
    assert empty_copy(half) == half.copy().reset()
    assert empty_copy(half) != half
    for parts in ([half, half.copy()], [half.to_bytes()] * 2, [tmp_path / "x"] * 2, [half.total, half]):
        with pytest.raises(sm.IncompatibleStateError):
            sm.merge(parts)
    for held in (lambda: sm.Bundle({"x": half}), lambda: sm.Ledger(half), lambda: sm.MetricCollection({"x": half})):
        with pytest.raises(TypeError):
            held()
    with pytest.raises(TypeError, match="a checkpoint cannot be updated"):
        half.update([1], [0.5])


@pytest.mark.parametrize(
    "change",
    [
        {"done": [[0, 99]]}, {"done": [[3, 5], [1, 2]]}, {"done": [[0, 2], [2, 3]]}, {"done": [[0, 0]]}, {"done": [[1]]},
        {"done": [[0, 1.0]]}, {"done": [[-1, 1]]}, {"parts": -1}, {"rows": "x"}, {"rows": 1 << 70}, {"log": []},
        {"log": [1, 2, 3, 4, 5, 6]}, {"total": {}}, {"more": 1},
    ],
    ids=str,
)  # fmt: skip
def test_headers_that_no_pass_writes(half: sm.Checkpoint, change: dict[str, Any]) -> None:
    with pytest.raises(sm.StateFormatError):
        sm.from_bytes(frame.write_frame(states_of(half), definition_of(half).header() | change))


@pytest.mark.slow
def test_mutants(half: sm.Checkpoint) -> None:
    report = fuzz_frames.attack(300, 2, [half])
    assert not report.surprises
    assert sum(report.mutants.values()) > 150


def test_ranges() -> None:
    assert ranges([3, 1, 2, 7, 9, 8, 0]) == [(0, 4), (7, 10)]
    assert ranges([]) == []
