"""Keys keep their spelling; the type of a column is the same in every file, and can be named."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import streammetrics as sm
from streammetrics.io.evaluate import evaluate
from streammetrics.io.logs import Log, LogError
from streammetrics.io.row_filter import parse_filter


def keys(log: Log, name: str = "k") -> list[Any]:
    return [value for part in log.parts([], [name]) for batch in part.batches() for value in batch[name].to_pylist()]


def text(path: Path, *lines: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
    return path


def parquet(path: Path, **columns: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)
    return path


def message(call: Any, *arguments: Any) -> str:
    with pytest.raises(LogError) as caught:
        call(*arguments)
    return str(caught.value)


@pytest.mark.parametrize("spelled", [["7", "007"], ["0x1F", "31"], ["7", "B12"], ["-0", "0", "+0"], ["1e3", "1000"]])
def test_keys_of_text_files_are_spelled_as_they_are_there(tmp_path: Path, spelled: list[str]) -> None:
    path = text(tmp_path / "a.csv", "x,k", *(f"1,{k}" for k in spelled))
    assert keys(Log(path)) == spelled
    late = text(
        tmp_path / "late.csv", "x,k", *[f"1,{spelled[0]}"] * 90_000, f"1,{spelled[1]}"
    )  # after the first 256 kB
    assert set(keys(Log(late))) == {*spelled[:2]}
    for i, key in enumerate(spelled):
        text(tmp_path / "two" / f"{i}.csv", "x,k", f"1,{key}")
    assert keys(Log(tmp_path / "two")) == spelled


def test_keys_of_partitions_are_spelled_as_they_are_there(tmp_path: Path) -> None:
    for zip_ in ("02134", "2134"):
        parquet(tmp_path / f"zip={zip_}" / "a.parquet", x=[1.0])
    log = Log(tmp_path)
    assert keys(log, "zip") == ["02134", "2134"]
    assert keys(Log(tmp_path, types={"zip": "int"}), "zip") == [2134, 2134]
    (part, *_) = log.parts(["zip"])  # no key, but a number that a metric reads
    assert next(part.batches())["zip"].to_pylist() == [2134]


def test_conditions_compare_numbers_whose_spelling_is_a_key(tmp_path: Path) -> None:
    for day in (1, 2, 9, 10):
        parquet(tmp_path / f"day={day}" / "a.parquet", y=[1, 0])
    metrics = sm.MetricCollection(sm.Task([sm.CTR()], y_true="y", where="day>2"))
    condition = parse_filter(["day>2"], ["day", "y"])
    assert condition is not None
    scored = evaluate(Log(tmp_path), metrics, ["day"], where=[condition])
    sliced = scored.slices["day",]
    assert {k: sliced[k].compute()["ctr"] for k in ("9", "10")} == {"9": 0.5, "10": 0.5}


def test_integers_are_named(tmp_path: Path) -> None:
    path = text(tmp_path / "a.csv", "x,k", "1,7", "1,007", "1,guest")
    assert keys(Log(path)) == ["7", "007", "guest"]
    log = Log(path, types={"k": "int"})
    expected = (
        f"{path}: row 2: column 'k': expected int, found 'guest'; pass types={{'k': 'string'}} to read the column"
    )
    expected += " as text"
    assert message(keys, log) == expected


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_one_type_in_every_format(tmp_path: Path, form: str) -> None:
    path = tmp_path / f"a.{form}"
    if form == "csv":
        text(path, "k", "5", "6")
    elif form == "jsonl":
        text(path, '{"k": 5}', '{"k": 6}')
    else:
        parquet(path, k=[5, 6])
    assert keys(Log(path, types={"k": "string"})) == ["5", "6"]
    assert keys(Log(path, types={"k": "int"})) == [5, 6]


def test_texts_and_fractions_that_are_no_integers(tmp_path: Path) -> None:
    texts = parquet(tmp_path / "t.parquet", k=["5", None, "guest"])
    assert "t.parquet: row 2: column 'k': expected int, found 'guest'" in message(keys, Log(texts, types={"k": "int"}))
    halves = parquet(tmp_path / "h.parquet", k=[5.0, None, 6.5])
    assert "h.parquet: row 2: column 'k': expected int, found '6.5'" in message(keys, Log(halves, types={"k": "int"}))
    whole = parquet(tmp_path / "w.parquet", k=[5.0, None, 6.0])
    assert keys(Log(whole, types={"k": "int"})) == [5, None, 6]


def test_formats_that_are_mixed_name_the_option(tmp_path: Path) -> None:
    text(tmp_path / "a.csv", "k", "5")
    parquet(tmp_path / "b.parquet", k=[5])
    said = (
        "have different formats; evaluate each format by itself, save the results (--save), and merge the saved files."
    )
    assert said in message(Log, tmp_path)
    assert "types={'KEY': 'string'}" in message(Log, tmp_path)


def test_times_of_json_are_times_from_the_first_fraction(tmp_path: Path) -> None:
    lines = ["2025-06-02 00:00:00.5", "2025-06-02 10:00:00.25", "2025-06-02T09:00:00"]
    path = text(tmp_path / "a.jsonl", *(f'{{"ts": "{line}"}}' for line in lines))
    other = text(tmp_path / "a.csv", "ts", *lines)
    condition = parse_filter(["ts>=2025-06-02T08:00"], ["ts"])
    assert condition is not None
    for one in (path, other):
        (part,) = Log(one).parts(["ts"])
        (batch,) = part.with_filters((condition,)).batches()
        assert batch[condition.name].to_pylist() == [0, 1, 1], one
    nested = text(tmp_path / "n.jsonl", *(f'{{"a": {{"ts": "{line}"}}}}' for line in lines))
    inner = parse_filter(["a.ts>=2025-06-02T08:00"], ["a.ts"])
    assert inner is not None
    (part,) = Log(nested).parts(["a.ts"])
    (batch,) = part.with_filters((inner,)).batches()
    assert batch[inner.name].to_pylist() == [0, 1, 1]
    zones = text(tmp_path / "z.jsonl", '{"ts": "2025-06-02T00:00:00.5Z"}', '{"ts": "2025-06-02T12:00:00.5+02:00"}')
    (part,) = Log(zones).parts(["ts"])
    (batch,) = part.with_filters((condition,)).batches()
    assert batch[condition.name].to_pylist() == [0, 1]


def test_texts_of_json_that_look_like_times(tmp_path: Path) -> None:
    path = text(tmp_path / "a.jsonl", '{"d": "2025-01-01", "t": "2025-01-01 10:00:00.5"}')
    for types in ({}, {"d": "string", "t": "string"}):
        log = Log(path, types=types)
        assert (keys(log, "d"), keys(log, "t")) == (["2025-01-01"], ["2025-01-01 10:00:00.5"])
    times = Log(path, types={"d": "date", "t": "timestamp"})
    assert keys(times, "d") == [dt.date(2025, 1, 1)]
    assert keys(times, "t") == [dt.datetime(2025, 1, 1, 10, 0, 0, 500_000)]
    assert keys(Log(path, types={"t": "date"}), "t") == [dt.date(2025, 1, 1)]
    zoned = Log(path, types={"t": pa.timestamp("us", "UTC")})
    assert keys(zoned, "t") == [dt.datetime(2025, 1, 1, 10, 0, 0, 500_000, tzinfo=dt.UTC)]
    text(path, *['{"d": "2025-01-01"}'] * 50_000, '{"d": "n/a"}')
    assert keys(Log(path, types={"d": "string"}), "d")[-1] == "n/a"
    said = message(keys, Log(path, types={"d": "timestamp"}), "d")
    assert said.startswith(f"{path}: row 50,000: column 'd': expected timestamp, found 'n/a'; ")


@pytest.mark.parametrize("value", ["NA", "N/A", "None", "#N/A", "-", "abc"])
def test_scores_that_are_no_numbers_are_named(tmp_path: Path, value: str) -> None:
    path = text(tmp_path / "a.csv", "y,p", "0,0.5", f"1,{value}", "1,0.25")
    metrics = sm.MetricCollection(sm.Task([sm.AUC()], y_true="y", y_score="p"))
    found = message(evaluate, Log(path), metrics)
    assert found.startswith(f"{path}: row 1: column 'p': expected float, found {value!r}; ")
    assert f"nulls=[*DEFAULT_NULLS, {value!r}]" in found
    assert ("correct the value, or pass nulls=" in found) == (value == "abc")
    assert message(evaluate, Log(path, types={"p": "float"}), metrics) == found
    if value == "abc":
        with pytest.raises(sm.errors.InvalidInputError):  # null is no score: read like any other missing value
            evaluate(Log(path, nulls=["abc"]), metrics)
    label = text(tmp_path / "b.csv", "y,p", "0,0.5", f"{value},0.5", "1,0.25")
    if value != "abc":
        assert f"row 1: column 'y': expected float, found {value!r}" in message(evaluate, Log(label), metrics)


def test_windows_of_partitions_and_of_texts(tmp_path: Path) -> None:
    from streammetrics.io.slice_plan import WindowOptions

    for day in ("2025-06-02", "2025-06-03"):
        parquet(tmp_path / "log" / f"day={day}" / "a.parquet", y=[1, 0], ts=[f"{day}T10:00:00", f"{day}T11:00:00.5Z"])
    metrics = sm.MetricCollection(sm.Task([sm.CTR()], y_true="y"))
    for day in ("20250602", "20250603"):
        parquet(tmp_path / "compact" / f"day={day}" / "a.parquet", y=[1, 0])
    compact = evaluate(Log(tmp_path / "compact"), metrics, window=WindowOptions("1d", "day")).windows
    assert compact is not None
    assert [str(key)[:10] for key in compact.compute()] == ["2025-06-02", "2025-06-03"]
    for time in ("day", "ts"):
        windows = evaluate(Log(tmp_path / "log"), metrics, window=WindowOptions("1d", time)).windows
        assert windows is not None
        assert [str(key)[:10] for key in windows.compute()] == ["2025-06-02", "2025-06-03"]
    parquet(tmp_path / "log" / "day=2025-06-03" / "b.parquet", y=[1, 0], ts=["2025-06-03T10:00:00", "noon"])
    found = message(lambda: evaluate(Log(tmp_path / "log"), metrics, window=WindowOptions("1d", "ts")))
    assert "b.parquet: row 1: column 'ts': expected timestamp, found 'noon'" in found


@pytest.mark.parametrize("form", ["parquet", "jsonl"])
def test_scores_that_are_text_in_typed_formats(tmp_path: Path, form: str) -> None:
    path, scores = tmp_path / f"a.{form}", ["0.5", "0.25", "NA"]
    metrics = sm.MetricCollection(sm.Task([sm.PredictedCTR()], y_true="y", y_score="p"))
    for n in (2, 3):
        if form == "parquet":
            parquet(path, y=[0, 1, 1][:n], p=scores[:n])
        else:
            text(path, *(f'{{"y": 1, "p": "{p}"}}' for p in scores[:n]))
        if n == 2:
            assert evaluate(Log(path), metrics).overall.compute() == {"predicted_ctr": 0.375}
        else:
            assert f"{path}: row 2: column 'p': expected float, found 'NA'" in message(evaluate, Log(path), metrics)


def test_dates_that_turn_out_to_be_times(tmp_path: Path) -> None:
    path = text(tmp_path / "a.csv", "t", *["2025-06-02"] * 30_000, "2025-06-02T10:00:00")
    log = Log(path)
    said = message(lambda: [*log.parts(["t"])[0].batches()])
    assert said.endswith("found '2025-06-02T10:00:00'; pass types={'t': 'timestamp'} to read dates and times")
    assert len([*Log(path, types={"t": "timestamp"}).parts(["t"])[0].batches()]) == 1
