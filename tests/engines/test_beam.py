"""Beam: its rules for accumulators, keys, rows and bad rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest

import streammetrics as sm

beam = pytest.importorskip("apache_beam")

import engine_logs as logs  # noqa: E402

from streammetrics.engines.beam import FoldRows, FoldTables, Merge  # noqa: E402

TABLE = logs.simple(300)
METRICS = sm.MetricCollection(sm.AUC(), sm.LogLoss())
ROWS = TABLE.to_pylist()


class Row(NamedTuple):
    y_true: int
    y_score: float


def collected(pipe: Any, folder: Path) -> dict[Any, Any]:
    """Run a pipeline of (key, metrics); return these as bytes have brought them here."""
    with beam.Pipeline("DirectRunner") as pipeline:
        _ = pipeline | pipe | beam.MapTuple(lambda k, total: sm.save(total, folder / f"{k}.smet"))
    return {path.stem: sm.load(path) for path in folder.glob("*.smet")}


def test_tables_by_key(tmp_path: Path) -> None:
    keyed = [(str(i % 3), TABLE.slice(i * 20, 20)) for i in range(15)]
    found = collected(beam.Create(keyed) | beam.CombinePerKey(FoldTables(METRICS)), tmp_path)
    for key in "012":
        whole = METRICS.copy()
        for k, table in keyed:
            if k == key:
                whole.update(table)
        assert found[key].digest() == whole.digest()


@pytest.mark.parametrize("buffer", [1, 7, 4096])
def test_rows_by_key_null_among_them(tmp_path: Path, buffer: int) -> None:
    metrics = sm.MetricCollection(METRICS.copy(), {"by": sm.Sliced(sm.CTR(), by="variant")})
    keyed = beam.Create(ROWS) | beam.WithKeys(lambda row: row["variant"])
    found = collected(keyed | beam.CombinePerKey(FoldRows(metrics, buffer=buffer)), tmp_path)
    assert set(found) == {"br", "de", "us", "None"}
    assert sm.merge(found.values()).digest() == metrics.copy().update(TABLE).digest()


@pytest.mark.parametrize("make", [lambda r: beam.Row(**r), lambda r: Row(r["y_true"], r["y_score"])])
def test_rows_of_other_kinds(tmp_path: Path, make: Any) -> None:
    rows = beam.Create([make(row) for row in ROWS])
    found = collected(rows | beam.CombineGlobally(FoldRows(METRICS)) | beam.WithKeys("all"), tmp_path)
    assert found["all"].digest() == METRICS.copy().update(TABLE).digest()


def test_states_of_others_are_merged(tmp_path: Path) -> None:
    states = [METRICS.copy().update(TABLE.slice(i * 100, 100)).to_bytes() for i in range(3)]
    found = collected(beam.Create(states) | beam.CombineGlobally(Merge(METRICS)) | beam.WithKeys("all"), tmp_path)
    assert found["all"].digest() == METRICS.copy().update(TABLE).digest()


@pytest.mark.parametrize("fold", [FoldTables, FoldRows, Merge])
def test_nothing_in_is_nothing_seen(tmp_path: Path, fold: Any) -> None:
    found = collected(beam.Create([]) | beam.CombineGlobally(fold(METRICS)) | beam.WithKeys("all"), tmp_path)
    assert found["all"].digest() == METRICS.digest()


def test_a_bad_row_says_what_and_where() -> None:
    tables = logs.spoiled([TABLE.slice(0, 50), TABLE.slice(50, 50)], "y_score", 1, 17)
    for pipe in (
        beam.Create(tables) | beam.CombineGlobally(FoldTables(METRICS)),
        beam.Create([r for t in tables for r in t.to_pylist()]) | beam.CombineGlobally(FoldRows(METRICS)),
    ):
        with pytest.raises(Exception, match=r"y_score: .*found 7\.5 in row \d+"), beam.Pipeline("DirectRunner") as p:
            _ = p | pipe


def test_accumulators_that_beam_holds_stay_as_they_are() -> None:
    fold = FoldRows(METRICS)
    held = [fold.create_accumulator() for _ in range(3)]
    for i, row in enumerate(ROWS):
        fold.add_input(held[i % 3], row)
    held[2] = fold.compact(held[2])
    before = [(one.metrics.digest(), len(one.rows)) for one in held]
    merged = fold.extract_output(fold.merge_accumulators(iter(held)))
    assert merged.digest() == METRICS.copy().update(TABLE).digest()
    assert [(one.metrics.digest(), len(one.rows)) for one in held] == before
    assert fold.extract_output(fold.merge_accumulators([])).digest() == METRICS.digest()


def test_the_coder_is_deterministic_and_keeps_waiting_rows() -> None:
    fold = FoldRows(METRICS)
    coder = fold.get_accumulator_coder()
    forth, back = fold.create_accumulator(), fold.create_accumulator()
    for one, other in zip(ROWS, reversed(ROWS), strict=True):
        fold.add_input(forth, one)
        fold.add_input(back, other)
    assert coder.is_deterministic()
    assert coder.encode(forth) == coder.encode(back)
    assert coder.decode(coder.encode(forth)).metrics.digest() == METRICS.copy().update(TABLE).digest()
    assert len(forth.rows) == 300


def test_bad_rows_are_dropped_behind_the_coder() -> None:
    fold = FoldTables(sm.AUC(on_invalid="drop"))
    coder = fold.get_accumulator_coder()
    again = coder.decode(coder.encode(fold.create_accumulator()))
    assert fold.add_input(again, {"y_true": [1, 0], "y_score": [7.5, 0.5]}).metrics.explain()["dropped"] == {
        "y_score": 1
    }


def test_rows_that_lack_a_column() -> None:
    fold = FoldRows(sm.MetricCollection(sm.CTR(), {"by": sm.Sliced(sm.CTR(), by="variant")}))
    held = fold.create_accumulator()
    for row in ({"y_true": 1, "variant": "A"}, {"y_true": 0}):
        fold.add_input(held, row)
    assert fold.extract_output(held)["by"].keys == [None, "A"]
    with pytest.raises(sm.InvalidInputError, match="y_true"):
        fold.extract_output(fold.add_input(held, {"variant": "A"}))


def test_a_query_column_is_refused_unless_queries_are_grouped() -> None:
    case = logs.CASES["split queries"]()
    for fold, element in ((FoldTables, case.log), (FoldRows, case.log.slice(0, 1).to_pylist()[0])):
        combine = fold(case.metrics)
        with pytest.raises(sm.InvalidInputError, match=r"day, session: expected one row with lists.*GroupQueries"):
            combine.extract_output(combine.add_input(combine.create_accumulator(), element))
