"""What parts hold in short, read together, beside what each says that was read alone."""

from __future__ import annotations

import json
from functools import cache, partial
from itertools import chain
from typing import Any

import numpy as np
import pytest
from draws import short
from hypothesis import given
from hypothesis import strategies as st

import streammetrics as sm
from streammetrics.collect.accumulator import definition_of
from streammetrics.collect.metric_like import columns_of, states_of
from streammetrics.format import frame
from streammetrics.format.frame import Frame
from streammetrics.serve.api.frame_decoding import decode_frames
from streammetrics.serve.api.part_check import find_key_kinds
from streammetrics.serve.api.part_summary import PartSummary, summarize_parts
from streammetrics.serve.experiment_simulation import Simulation

SMALL = Simulation(days=2, users=100, rows=20, countries=1, sources=("web",))
METRICS = {
    "slices": lambda: sm.Sliced([sm.CTR(), sm.AUC()], by=["arm", "country"], on_invalid="drop"),
    "shards": lambda: sm.Sliced(sm.Sharded([sm.CTR(), sm.LogLoss()], unit="user"), by="arm", on_invalid="drop"),
    "slices in slices": lambda: sm.Sliced(sm.Sliced(sm.AUC(), by="country", limit=1), by="arm", on_invalid="drop"),
    "a limit": lambda: sm.Sliced(sm.CTR(), by="arm", limit=1, on_invalid="drop"),
    "cells behind": lambda: sm.Sliced(sm.GroupAUC(), by="arm", on_invalid="drop"),
    "no slices": lambda: sm.MetricCollection(sm.CTR(), sm.LogLoss(), on_invalid="drop"),
}
KEYS = st.one_of(st.none(), st.sampled_from("ab"))
ROW = st.tuples(KEYS, KEYS, st.integers(0, 9), st.integers(0, 1), st.sampled_from([0.1, 0.5, float("nan")]))


@cache
def parts() -> list[sm.Sliced]:
    """Return the states of four simulated hours; made by the first test that reads them, not by the import."""
    return [SMALL.part("web", hour) for hour in range(SMALL.start, SMALL.start + 4)]


def filled(metrics: Any, rows: list[Any]) -> Any:
    if not rows:
        return metrics
    arm, country, user, y, p = (list(column) for column in zip(*rows, strict=True))
    names = [*definition_of(metrics).levels] if isinstance(metrics, sm.Sliced) else []
    given: dict[str, Any] = {name: {"arm": arm, "country": country}[name] for name in names}
    if "user" in columns_of(metrics):
        given["user"] = user
    if "group" in columns_of(metrics):
        given["group"] = user
    return metrics.update(y_true=y, y_score=p, **given)


def naive(part: Any) -> dict[str, Any]:
    """What one part says of itself."""
    dropped: dict[str, int] = {}
    for state in states_of(part):
        for reason, count in zip(
            state.reasons, np.sum(state.read_cells_named("dropped"), axis=0).tolist(), strict=True
        ):
            dropped[reason] = max(dropped.get(reason, 0), count)
    return {
        "keys": {key[0] if isinstance(key, tuple) else key for key in getattr(part, "keys", [])},
        "key_kinds": find_key_kinds(part),
        "rows": max(int(state.row_counts.sum()) for state in states_of(part)),
        "weight": max(float(state.row_weights.sum()) for state in states_of(part)),
        "dropped": {reason: count for reason, count in dropped.items() if count},
        "other_share": part.left if isinstance(part, sm.Sliced) else 0.0,
    }


def told(found: PartSummary) -> dict[str, Any]:
    return {name: value for name, value in found._asdict().items() if name != "metrics"}


@pytest.mark.slow
@short(30)
@given(st.sampled_from([*METRICS]), st.lists(st.lists(ROW, max_size=6), min_size=1, max_size=5))
def test_parts_read_together_are_what_each_says_alone(name: str, batches: list[list[Any]]) -> None:
    parts = [filled(METRICS[name](), rows) for rows in batches]
    for some in (parts, parts[:1]):
        held: dict[int, PartSummary] = {}
        found = decode_frames(
            [p.to_bytes() for p in some], 1 << 24, [partial(held.__setitem__, i) for i in range(len(some))]
        )
        assert [one.digest for one in found] == [part.digest() for part in some]
        assert [told(held[i]) for i in range(len(some))] == [naive(part) for part in some]
        assert not any(list(definition_of(one.metrics).differences(definition_of(parts[0]))) for one in held.values())


@pytest.mark.slow
def test_however_few_are_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    frames = [Frame(part.to_bytes()) for part in parts()]
    together = list(summarize_parts(frames))
    monkeypatch.setattr(frame, "BATCH", 1)
    assert list(map(told, summarize_parts(frames))) == list(map(told, together))


def contradicting() -> bytes:
    """Shards of one part beside the metrics of another."""
    first, second, *_ = parts()
    half = len(states_of(first)) // 2
    states = [*states_of(first)[:half], *states_of(second)[half:]]
    return bytes(frame.write_frame(states, definition_of(first).header()))


@pytest.mark.slow
def test_one_bad_frame_keeps_the_others_from_nothing() -> None:
    frames = [part.to_bytes() for part in parts()]
    other = sm.Sliced(sm.CTR(), by="arm").update([0, 1], arm=["a", "b"])
    bad = frames[1][:-9] + bytes(9)
    given = [
        *frames,
        bad,
        other.to_bytes(),
        b"",
        contradicting(),
        frame.write_frame([sm.CTR().state], {"kind": "state"}),
    ]
    held: dict[int, Any] = {}
    found = decode_frames(given, 1 << 24, [partial(held.__setitem__, i) for i in range(len(given))])
    assert [one.digest for one in found] == [*(p.digest() for p in parts()), "", other.digest(), "", "", ""]
    assert [i for i, one in enumerate(found) if isinstance(one.error, sm.StateFormatError)] == [4, 6, 7, 8]
    assert "the rows of the shards do not add up" in str(found[7].error)
    assert "found a single state" in str(found[8].error)
    assert {i: told(one) for i, one in held.items()} == {i: naive(p) for i, p in [*enumerate(parts()), (5, other)]}
    assert [json.loads(one.row_counts.dropped) for one in found] == [{}] * len(given)
    assert [one.row_counts.rows for one in found] == [*(naive(p)["rows"] for p in parts()), 0, 2, 0, 0, 0]


def test_each_has_its_limit_of_memory() -> None:
    frames = [part.to_bytes() for part in parts()]
    least = next(n for n in chain(range(1 << 12, 1 << 24, 1 << 12)) if decode_frames(frames[:1], n)[0].error is None)
    assert [one.error is None for one in decode_frames([frames[0]] * 8, least)] == [True] * 8
    found = decode_frames([frames[0], *frames], least - (1 << 12))
    assert all("more than max_bytes allows" in str(one.error) for one in found[:2])


def test_one_frame_that_does_not_fit_is_refused_alone() -> None:
    frames = [part.to_bytes() for part in parts()]

    def check(i: int, _: Any) -> None:
        if i == 2:
            raise sm.IncompatibleStateError(f"number {i}")

    found = decode_frames(frames, 1 << 24, [partial(check, i) for i in range(4)])
    assert [one.error is None for one in found] == [True, True, False, True]
    assert str(found[2].error) == "number 2"
    assert [one.digest != "" for one in found] == [True, True, False, True]
