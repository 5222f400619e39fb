"""Content behind a valid digest that counting could not have made: refused, alone and beside others."""

from __future__ import annotations

import json
import math
import time
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

import streammetrics as sm
from streammetrics.collect.metric_like import columns_of, empty_copy, states_of
from streammetrics.format import frame, section
from streammetrics.format.frame import Frame
from streammetrics.format.schema import build_schema, parse_schema
from streammetrics.format.section import pack_state
from streammetrics.format.unpack import unpack_sections
from streammetrics.numerics.canonical import canonical_json
from streammetrics.state.axes import EXPIRED, OTHER
from streammetrics.state.state import State
from streammetrics.state.tally import Entries


def refused(state: Any, words: str) -> None:
    """Alone, and behind one that is sound."""
    data = frame.write_frame([state], {"kind": "state"})
    for parts in ([data], [frame.write_frame([state.empty_copy(state.axes)], {"kind": "state"}), data]):
        with pytest.raises(sm.StateFormatError, match=words):
            frame.merge_frames(parts)


def flats(state: Any, **arrays: Any) -> Any:
    return state.with_cells(replace(state.cells, flats={**state.cells.flats, **arrays}))


@pytest.mark.parametrize("less", [2**64 - 1, 2**64 - 2, 2**63 - 1, 2**62 - 1])
@pytest.mark.parametrize("metric", [sm.Quantile(), sm.AUC(bits=8), sm.AUC()], ids=repr)
def test_a_place_has_a_row_and_no_more_than_there_are(metric: Any, less: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind another place, whose rows hide it in the sum."""
    roles = (
        {"value": [1.0, 1.0, 1.0, 2.0]}
        if "value" in columns_of(metric)
        else {"y_true": [0, 1] * 2, "y_score": [0.25] * 4}
    )
    state = metric.update(**roles).state
    real = section._Writer._encode_tally

    def lying(writer: Any, tally: Any) -> Any:
        *before, counts = real(writer, tally)
        yield from before
        counts = counts.astype(np.uint64)
        if before:
            wide = writer.layout.places[tally.name][2]
            counts[-1] = less * 2 % 2**64 | 1 if wide else less
        yield counts

    monkeypatch.setattr(section._Writer, "_encode_tally", lying)
    lies = pack_state(state)
    monkeypatch.undo()
    schema = build_schema(state)
    for many in ([lies], [pack_state(state), lies]):
        with pytest.raises(sm.StateFormatError):
            unpack_sections(schema, [*map(section.Section, many)])


@pytest.mark.parametrize("word", [b"1E+999999999", b"1E+999999999999999999", b"NaN", b"0x1", b" 1", b"1_0"])
def test_a_decimal_is_its_digits(word: bytes) -> None:
    """Ten letters are not a gigabyte of them."""
    state = states_of(sm.Sliced(sm.CTR(), by="k").update([1], k=[Decimal("1.5")]))[0]
    words = replace(state.cells.vocabularies[0], values=(word,))
    begin = time.process_time()
    refused(state.with_cells(replace(state.cells, vocabularies=(words,))), "not of kind decimal")
    assert time.process_time() - begin < 1


def test_a_decimal_that_is_pinned_is_its_digits() -> None:
    part = sm.Sliced(sm.CTR(), by="k", limit=1, values=[Decimal("1.5")])
    head = build_schema(states_of(part)[0]).head
    text = canonical_json(head).replace("1.5", "1E+999999999")
    with pytest.raises((sm.StateFormatError, ValueError)):
        parse_schema(json.loads(text))


@pytest.mark.parametrize("mark", [OTHER, EXPIRED])
def test_marks_are_of_axes_that_know_them(mark: int) -> None:
    state = states_of(sm.Sliced(sm.CTR(), by=["j", "k"]).update([1, 0], j=["a", None], k=["b", None]))[0]
    keys = np.sort(np.where(state.cells.keys < 0, mark, state.cells.keys), axis=0)
    refused(state.with_cells(replace(state.cells, keys=keys)), "although it has no limit|although it keeps all epochs")
    limited = states_of(sm.Sliced(sm.CTR(), by=["j", "k"], limit=1).update([1, 0], j=["a", "c"], k=["b", "d"]))[0]
    keys = limited.cells.keys.copy()
    assert (keys[0] == OTHER).all()
    keys[0, 1] = -1
    refused(limited.with_cells(replace(limited.cells, keys=keys)), "although it has no limit")


@pytest.mark.parametrize("said", [{"keep": 3}, {"keep": 1 << 64, "kind": "step", "size": 5}])
def test_only_epochs_are_kept_for_so_long(said: dict[str, Any]) -> None:
    head = build_schema(states_of(sm.Sliced(sm.CTR(), by="k"))[0]).head
    with pytest.raises(sm.StateFormatError, match="an axis has an unknown kind or invalid settings"):
        parse_schema(head | {"axes": [{"names": ["k"]} | said]})


def test_a_part_of_a_sorted_log_has_a_row_of_its_own() -> None:
    state = sm.GroupAUC(grouped="sorted").update([0, 1], [0.25, 0.5], group=[1, 1]).state
    many = np.full_like(state.cells.flats["begins"], 1 << 40)
    refused(flats(state, begins=many, ends=many), "do not form ranges")


def test_what_all_labels_count_does_not_wrap() -> None:
    metric = sm.MatthewsCorrcoef(num_labels=17, average="micro")
    state = metric.update(np.ones((1, 17), int), np.ones((1, 17))).state
    rows = {name: np.where(array, 1 << 61, 0) for name, array in state.cells.flats.items() if array.sum() == 17}
    assert rows
    refused(flats(state, **rows), "2\\*\\*62 rows")


def test_registers_that_are_all_full_are_no_error() -> None:
    state = sm.DistinctCount(precision=4).update(value=range(16)).state
    full = np.full_like(state.cells.flats["registers"], 61)
    read = Frame(frame.write_frame([flats(state, registers=full)], {})).read_state()
    assert sm.DistinctCount(precision=4).reading(read).value > 0
    assert math.isinf(read.estimate())


KEEP_ALL = [
    sm.AUC(exact=True),
    sm.AUC(exact=True, num_labels=2),
    sm.AUC(exact=True, num_classes=2),
    sm.KS(exact=True, scale="real"),
    sm.ROCCurve(exact=True),
    sm.QiniCoefficient(exact=True),
]


@pytest.mark.parametrize("known", [True, False], ids=["known", "absent plug-in"])
@pytest.mark.parametrize("metric", KEEP_ALL, ids=repr)
def test_what_keeps_all_rows_exactly_has_none_in_buckets(
    metric: Any, known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no buckets: to merge such a state, or to read a curve from it, raised AssertionError."""
    metric, several = empty_copy(metric), getattr(metric, "_class_settings", {})
    labels = np.array([[1, 0]]) if several.get("num_labels") else np.array([1])
    scores = np.array([[0.5, 0.5]]) if several else np.array([0.5])
    more = {"treatment": np.array([1])} if "treatment" in columns_of(metric) else {}
    state = metric.update(y_true=labels, y_score=scores, **more).state
    exact, rows, _ = state.folding
    tallies = state.cells.tallies
    label = Entries(tallies[rows].shift, np.zeros(1, tallies[rows].codes.dtype), np.ones(1, np.uint8))
    moved = {**tallies, exact: Entries.empty(tallies[exact].shift, wide=True), rows: label}
    if not known:
        monkeypatch.delitem(State.by_tag, state.tag)
    refused(state.with_cells(replace(state.cells, tallies=moved)), "should keep all rows exactly has buckets")
