"""Saved states: canonical, small, and safe to read whoever wrote them."""

from __future__ import annotations

import base64
import struct
import threading
import tracemalloc
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from draws import OWN, TIMES, usual
from fuzz_frames import HOLDERS, PREFIX, attack, judge, originals, tag_of, written

import streammetrics as sm
from streammetrics.collect.metric_like import states_of
from streammetrics.format import frame
from streammetrics.laws.specimens import make_consistent, sample

MUTANTS = 20_000
SLACK = 3 << 20
"""The memory of blocks and of the interpreter, in bytes."""


@pytest.mark.parametrize("tag", OWN)
@pytest.mark.parametrize("weighted", [False, True])
def test_bytes_come_back(tag: str, weighted: bool) -> None:
    empty = usual(tag).make_state()
    rows = sample(empty.needs(), np.random.default_rng(1), 9, "plain", weighted=weighted)
    metric = usual(tag).update(make_consistent(empty, rows))
    for thing in (metric, usual(tag)):
        again = sm.from_bytes(thing.to_bytes())
        assert again == thing
        assert type(again) is type(thing)
        assert again.digest() == thing.digest()
        assert again.to_bytes() == thing.to_bytes()
    state = sm.from_bytes(frame.write_frame([metric.state], {"kind": "state"}))
    assert state == metric.state
    assert type(state) is type(metric.state)
    assert frame.compute_digest(state) == frame.compute_digest(metric.state) == frame.Frame(metric.to_bytes()).digest(0)


def test_weights_of_one_are_no_weights() -> None:
    plain = sm.AUC().update([0, 1], [0.1, 0.2])
    assert sm.AUC().update([0, 1], [0.1, 0.2], sample_weight=[1, 1]).to_bytes() == plain.to_bytes()
    assert len(plain.to_bytes()) < 700


@pytest.fixture(scope="module")
def things() -> list[Any]:
    return originals()


FOUND = [line.split() for line in Path(__file__).with_name("mutants.txt").read_text().splitlines()]
"""A mutant of each kind that was accepted once, and answered wrongly, in base 85."""


@pytest.mark.parametrize(("tag", "text"), FOUND, ids=[tag for tag, _ in FOUND])
def test_mutants_that_were_found(tag: str, text: str, things: list[Any]) -> None:
    mutant = sm.from_bytes(base64.b85decode(text))
    with warnings.catch_warnings(action="ignore", category=sm.UndefinedMetricWarning):
        # The bounds of what no rows made may be anything.
        warnings.simplefilter("ignore", sm.WideBoundsWarning)
        for honest in (thing for thing in things if tag_of(thing) == tag):
            judge(mutant, honest)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_mutants(part: int, things: list[Any]) -> None:
    report = attack(int(MUTANTS // 4 * min(TIMES, 1)), part, things)
    assert not report.surprises
    for kind, share in (("content", 0.35), ("section", 0.2)):  # got past the door, and were judged
        assert report.accepted[kind] > share * report.mutants[kind], report
    print(report)


@pytest.mark.parametrize("name", HOLDERS)
def test_every_truncation_and_every_byte_of_the_head(name: str) -> None:
    thing = HOLDERS[name]()
    data = written(thing)
    for size in range(len(data)):
        with pytest.raises(sm.StateFormatError):
            sm.from_bytes(data[:size])
    _, packed = struct.unpack_from("<II", data, 8)
    for at in range(PREFIX + packed):
        for value in range(0, 256, 1 if at < PREFIX or name == "scores" else 23):
            if data[at] == value:
                continue
            raw = bytearray(data[:-4])
            raw[at] = value
            with pytest.raises(sm.StateFormatError):
                sm.from_bytes(bytes(raw) + data[-4:])
            repaired = bytes(raw) + struct.pack("<I", zlib.crc32(raw))
            try:  # deflate has many ways to say the same, and another metric may read the same state
                other = sm.from_bytes(repaired)
            except sm.StateFormatError:
                continue
            assert at >= PREFIX
            judge(other, thing)


def test_what_it_says() -> None:
    data = bytearray(sm.AUC(bits=8).to_bytes())
    for change, words in (
        (lambda d: d[:10], "too few"),
        (lambda d: b"PAR1" + d[4:], "do not begin with SMET"),
        (lambda d: d[:4] + b"\x03" + d[5:], "newer release"),
        (lambda d: d[:4] + b"\x01" + d[5:], "never released"),
        (lambda d: d[:6] + b"\x02" + d[7:], "newer release"),
        (lambda d: d[:50] + b"#" + d[51:], "checksum"),
        (lambda d: d[:-20], "checksum|truncated"),
    ):
        with pytest.raises(sm.StateFormatError, match=words):
            sm.from_bytes(bytes(change(data)))
    with pytest.raises(TypeError, match=r"(expects|takes) bytes"):
        sm.from_bytes("SMET")  # type: ignore[arg-type]


def test_a_bomb_does_not_go_off() -> None:
    big = sm.ConfusionMatrix(num_classes=1000, threshold=None).update(y_true=[1], y_pred=[2]).to_bytes()
    with pytest.raises(sm.StateFormatError, match="max_bytes"):
        sm.from_bytes(big, max_bytes=1 << 20)
    assert len(big) < 5000


def test_saving_is_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = sm.AUC().update([0, 1], [0.1, 0.2]), sm.AUC().update([1, 1], [0.1, 0.2])
    path = sm.save(first, tmp_path / "a.smet")
    assert sm.load(path) == first

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        sm.save(second, path)
    assert sm.load(path) == first
    assert [p.name for p in tmp_path.iterdir()] == ["a.smet"]
    (tmp_path / "b.smet").write_bytes(b"not a state, and long enough to be one, or so it seems")
    with pytest.raises(sm.StateFormatError, match=r"b\.smet"):
        sm.load(tmp_path / "b.smet")


def test_a_metric_of_an_absent_package_merges_and_saves() -> None:
    class Odds(sm.extend.Metric[sm.extend.ScoreSums, float], tag="absent.odds"):
        def make_state(self) -> sm.extend.ScoreSums:
            return sm.extend.ScoreSums(terms=("score",))

        def of(self, state: sm.extend.ScoreSums) -> float:
            return float(state.total("score"))

    parts = [Odds().update([0, 1], [0.1, p]) for p in (0.2, 0.7)]
    data, whole = [p.to_bytes() for p in parts], sm.merge(parts).to_bytes()
    assert type(sm.from_bytes(whole)) is Odds
    del sm.extend.METRICS["absent.odds"]
    try:
        merged, loaded = sm.merge(data), sm.from_bytes(whole)
        assert merged.to_bytes() == loaded.to_bytes() == whole
        for thing in (merged, loaded):
            with pytest.raises(sm.StreamMetricsError, match="import the package"):
                thing.compute()
        loaded._accumulator.definition.metric.settings["other"] = 1
        assert sm.from_bytes(whole) == loaded
    finally:
        sm.extend.METRICS["absent.odds"] = Odds
    assert np.isclose(sm.from_bytes(whole).compute(), 1.1)
    del sm.extend.METRICS["absent.odds"]


@pytest.mark.parametrize("name", HOLDERS)
def test_loaded_objects_do_not_share_rows(name: str) -> None:
    data = written(HOLDERS[name]())
    first, second = sm.from_bytes(data), sm.from_bytes(data)
    before = written(second)
    if not isinstance(first, sm.extend.State):
        first.reset()
    assert written(second) == before == written(sm.from_bytes(data))


def test_a_loaded_metric_counts_on_as_the_saved_one_does() -> None:
    rows = {"y_true": [0, 1, 1], "y_score": [0.1, 0.4, 0.9]}
    for thing in (sm.AUC(), sm.MetricCollection(sm.AUC(), sm.CTR()), sm.Recent(sm.AUC(), steps=1)):
        thing.update(**rows)
        loaded = [sm.from_bytes(thing.to_bytes()) for _ in range(3)]
        copied, counted = loaded[1].copy(), loaded[2].update(**rows)
        assert loaded[0].merge(loaded[1]) == thing.copy().merge(thing)
        assert counted == thing.copy().update(**rows)
        assert copied == loaded[1] == thing
        assert copied.update(**rows) == counted
        assert loaded[1] == thing


def test_a_loaded_metric_counts_the_first_rows_of_several_threads() -> None:
    data = sm.CTR().update([0, 1]).to_bytes()
    for _ in range(20):
        loaded, start = sm.from_bytes(data), threading.Barrier(4)

        def count(loaded: Any = loaded, start: Any = start) -> None:
            start.wait()
            loaded.update([1])

        threads = [threading.Thread(target=count) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert loaded == sm.CTR().update([0, 1, 1, 1, 1, 1])


@pytest.mark.cpu_limit(4)
@pytest.mark.parametrize(
    ("metric", "columns"),
    [(sm.AUC(bits=12), 500), (sm.AUC(exact=True), 20)],
    ids=["buckets", "exact rows"],
)
@pytest.mark.parametrize("weighted", [False, True])
def test_peak_memory_of_reading_and_writing_is_bounded(metric: Any, columns: int, weighted: bool) -> None:
    rng, n = np.random.default_rng(5), 1_000_000
    table = {"y_true": rng.integers(0, 2, n), "y_score": rng.random(n), "slice": rng.integers(0, columns, n)}
    if weighted:
        table["sample_weight"] = rng.random(n) + 0.5
    thing = sm.from_bytes(sm.Sliced(metric, by="slice").update(table).to_bytes())
    kept, data = states_of(thing)[0].nbytes, thing.to_bytes()
    del table
    more = 0.75 if weighted else 0.55
    assert peak_of(thing.to_bytes) < more * kept + SLACK
    assert peak_of(thing.digest) < more * kept + SLACK
    assert peak_of(lambda: sm.from_bytes(data)) < (1 + more) * kept + SLACK


def peak_of(call: Callable[[], Any]) -> int:
    """Return the most memory that a call takes, in bytes, with its result."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
