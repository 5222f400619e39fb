"""Buckets whose width follows from the numbers: nested, canonical, and the same by numpy and by kernels."""

from __future__ import annotations

import base64
from bisect import bisect_left
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import streammetrics as sm
from streammetrics.errors import StateFormatError
from streammetrics.format.schema import build_schema
from streammetrics.format.section import Section, pack_state
from streammetrics.format.unpack import unpack_sections
from streammetrics.numerics import kernel_registry
from streammetrics.state import levels, pair_levels
from streammetrics.state.tally import Entries
from streammetrics.statistics.joint import JointHistogram
from streammetrics.statistics.values import ValueHistogram
from tests.statistics.batches import BY, fed

KINDS = {
    "normal": lambda rng, n: rng.normal(size=n),
    "far": lambda rng, n: 1e6 + rng.normal(size=n),
    "very far": lambda rng, n: 1e9 + rng.normal(size=n),
    "negative": lambda rng, n: -rng.lognormal(0, 6, n),
    "counts": lambda rng, n: rng.poisson(5, n).astype(float),
    "many zeros": lambda rng, n: np.where(rng.random(n) < 0.9, 0, rng.normal(size=n)),
    "heavy tails": lambda rng, n: rng.standard_cauchy(n),
    "prices": lambda rng, n: np.round(rng.lognormal(3, 1, n), 2),
    "few values": lambda rng, n: rng.choice(rng.normal(size=40), n),
    "one far zero": lambda rng, n: np.where(np.arange(n) == n // 2, 0, 1e9 + rng.normal(size=n)),
    "any size": lambda rng, n: np.exp(rng.normal(size=n) * 25),
}


def spread_numbers() -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(0)
    sizes = rng.normal(size=2000) * 10.0 ** rng.integers(-100, 100, 2000)
    return np.sort(np.concatenate([sizes, [0.0], -np.arange(50.0), 2.0 ** rng.integers(-400, 400, 200)]))


@pytest.mark.parametrize("bits", [1, 7, 14])
@pytest.mark.parametrize("level", [0, 300, 505, 520, levels.HIGHEST])
def test_buckets_rise_hold_their_numbers_and_lie_in_those_of_higher_levels(bits: int, level: int) -> None:
    numbers = spread_numbers()
    buckets = levels.find_buckets(numbers, level, bits)
    near, far = levels.compute_edges(buckets, level, bits)
    assert (buckets[1:] >= buckets[:-1]).all()
    assert (np.abs(near) <= np.abs(numbers)).all()
    assert ((np.abs(numbers) < np.abs(far)) | (numbers == near)).all()
    assert (np.abs(far - near) <= np.minimum(np.abs(numbers) * 2.0**-bits, 2.0 ** (level - 512))).all()
    assert levels.are_buckets(buckets, level, bits)
    if level == 0:
        assert (near == numbers).all()
    for higher in range(level, levels.HIGHEST, 101):
        assert (levels.rebucket(buckets, level, higher, bits) == levels.find_buckets(numbers, higher, bits)).all()


def naive_level(numbers: np.ndarray[Any, Any], bits: int) -> int:
    """The definition, by trying levels."""
    different = np.unique(numbers)

    def are_few(level: int) -> bool:
        steps = np.sign(different) * np.floor(np.ldexp(np.abs(different), 512 - level))
        return len(np.unique(steps)) <= 32

    def fit(level: int) -> bool:
        return len(np.unique(levels.find_buckets(different, level, bits))) <= 1 << (bits + 6)

    if len(different) <= 32:
        return 0
    every = range(levels.HIGHEST + 1)
    scale, limited = (bisect_left(every, True, key=holds) for holds in (are_few, fit))
    limited = min(limited, levels.HIGHEST)
    level = max(scale - bits - 3, limited, 0)
    near, _ = levels.compute_edges(levels.find_buckets(different, level, bits), level, bits)
    return 0 if (near == different).all() else level


def cut(columns: dict[str, Any], rng: np.random.Generator, n: int) -> list[dict[str, Any]]:
    ends = [0, *np.sort(rng.integers(0, n + 1, 5)).tolist(), n]
    return [{c: v[a:b] for c, v in columns.items()} for a, b in pairwise(ends) if b > a]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("bits", "outputs"), [(7, None), (1, 3)])
def test_values_have_the_level_of_the_definition_however_they_come(kind: str, bits: int, outputs: int | None) -> None:
    rng = np.random.default_rng(1)
    n, like = 3000, ValueHistogram(bits=bits, num_outputs=outputs)
    made = [KINDS[kind](rng, n) for _ in range(outputs or 1)]
    values = made[0] if outputs is None else np.column_stack(made)
    columns = {"value": values, "k": rng.integers(0, 3, n)}
    parts = cut(columns, rng, n)
    alone = [{"value": p["value"]} for p in parts]
    whole = fed(like, *alone)
    assert fed(like, {"value": values}) == whole
    assert fed(like, alone[0]).merge(*(fed(like, p) for p in alone[:0:-1])) == whole
    sliced = fed(like.empty_copy((BY,)), *parts)
    assert sliced.without_axes == whole
    for i in range(3):
        cell, rows = sliced.read_cell(i), values[columns["k"] == i].reshape(-1, outputs or 1)
        for output in range(outputs or 1):
            mine = rows[:, output]
            level = naive_level(mine, bits)
            assert cell.level[output] == level
            buckets, counts = np.unique(levels.find_buckets(mine, level, bits), return_counts=True)
            assert np.array_equal(cell.occupied_buckets(output), buckets)
            assert np.array_equal(cell.rows_per_bucket(output), counts)
            assert cell.extremes(output) == (mine.min(), mine.max())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("limit", [0, 500, 1 << 14])
def test_pairs_are_the_same_however_they_come(kind: str, limit: int) -> None:
    rng = np.random.default_rng(2)
    n, like = 3000, JointHistogram(limit=limit)
    x = KINDS[kind](rng, n)
    columns = {"y_true": x, "y_pred": rng.permutation(x), "k": rng.integers(0, 3, n)}
    parts = cut(columns, rng, n)
    alone = [{c: v for c, v in p.items() if c != "k"} for p in parts]
    whole = fed(like, *alone)
    assert fed(like, alone[0]).merge(*(fed(like, p) for p in alone[:0:-1])) == whole
    assert fed(like.empty_copy((BY,)), *parts).without_axes == whole
    schema = build_schema(whole)
    assert unpack_sections(schema, [Section(pack_state(whole))]).joined == whole
    if limit < n:
        level, looks = whole.read_cells_named("level"), pair_levels.read_views(whole.rows)
        pairs = whole.rows.select(looks == pair_levels.PAIR)
        at = np.broadcast_to(level[:, 2:], (n, 2))
        codes, counts = np.unique(pair_levels.encode_pairs(x, columns["y_pred"], at, 7), return_counts=True)
        assert np.array_equal(pairs.codes, codes)
        assert np.array_equal(pairs.int64_counts, counts)
        if kind != "any size":  # of which octaves of their own are more
            assert max(len(np.unique(codes >> np.uint64(32))), len(np.unique(codes & np.uint64(0xFFFFFFFF)))) <= 1 << 10


def entries_of(values: np.ndarray[Any, Any], cells: np.ndarray[Any, Any]) -> Entries:
    order = np.lexsort((values, cells))
    codes, high = levels.find_buckets(values[order], 0, 7), cells[order].astype(np.uint32)
    return levels._merge_neighbors(Entries(63, codes, np.ones(len(codes), np.uint32), None, high))


def test_numpy_finds_what_kernels_find(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    values = np.concatenate([KINDS[kind](rng, 2000) for kind in KINDS])
    cells = np.repeat(np.arange(len(KINDS)), 2000)
    entries, none = entries_of(values, cells), np.zeros(len(KINDS), np.int64)
    by_kernel = levels.fit_levels(entries, none, 3, 1)
    pairs = {"y_true": values[:4000], "y_pred": values[2000:6000]}
    halves = [fed(JointHistogram(limit=9), {c: v[i::2] for c, v in pairs.items()}) for i in (0, 1)]
    merged = halves[0].merge(halves[1])
    assert kernel_registry.has_kernels()
    monkeypatch.setattr(kernel_registry, "_FIND", [])
    assert not kernel_registry.has_kernels()
    by_numpy = levels.fit_levels(entries, none, 3, 1)
    assert by_numpy[0].equals(by_kernel[0])
    assert np.array_equal(by_numpy[1], by_kernel[1])
    assert by_numpy[1].any()
    assert halves[0].merge(halves[1]) == merged


def test_what_is_taken_away_leaves_the_level_and_forgets_an_extreme() -> None:
    values = np.random.default_rng(4).normal(size=500)
    parts = [fed(ValueHistogram(), {"value": v}) for v in (values[:400], values[400:])]
    rest = parts[0].merge(parts[1]).subtract(parts[1])
    assert rest.facts()["rows"] == 400
    assert (rest.read_cells_named("level") >= parts[0].read_cells_named("level")).all()
    for end, known, mine in zip((0, 1), rest.extremes(), parts[0].extremes(), strict=True):
        came = (values.argmin(), values.argmax())[end] >= 400
        assert known == ((-np.inf, np.inf)[end] if came else mine)
    assert rest.merge(parts[1]).extremes()[0] in (-np.inf, values.min())


@pytest.mark.parametrize("which", ["level", "bucket", "order"])
def test_bytes_of_impossible_buckets_are_refused(which: str) -> None:
    state = fed(ValueHistogram(), {"value": np.random.default_rng(5).normal(size=500)})
    cells, held = state.cells, state.cells.tallies["rows"]
    codes, level = held.codes.copy(), state.read_cells_named("level")
    if which == "level":
        level = np.zeros((1, 1), np.int64)
    elif which == "bucket":  # between 0 and the least number
        codes[np.searchsorted(codes, levels.ZERO + 1)] = levels.ZERO + 1
    else:
        codes[0] = np.uint64(1 << 63)
    entries = Entries(63, codes, held.counts, None, held.high)
    wrong = state.with_cells(replace(cells, flats=cells.flats | {"level": level}, tallies={"rows": entries}))
    with pytest.raises(StateFormatError):
        unpack_sections(build_schema(wrong), [Section(pack_state(wrong))])


EARLIER = {
    "kendall_correlation": (
        "Q%yxw0ssI2Edc-kXaE2J#gp9%fFKM;U#XdM?P(-P%6=5g_os;=U3lO1_!!^W*{9*F)oXhx*=&)@HF&tN$R;cK<jyL#41eGOnvh0D"
        "g%cYx8WgK8k%1Wjj3Oe_2P2nmWcKJowwu3mT+@6Nvhsj(5-qSEc>(|c00000AprmY00000wJ(b#p5^WQF4G!jjpW1W9mc0rSnO7}"
        "jc4<R{9`jTbyBfT!!QtiF)qchAjpJ*;vo_XQ`?0ptjt~b1t!#mIqJedC1$Gwd_*<|ejuKanD_xighZDP=5n=@3Wbwjo^$WrofRhn"
        "5PO^uM}#K!HsqgDDy4RX9PSGdN$fN}3BQEf3M!zt299>jTk5}CV{UkqtrBMEQa`$2Hs*qPG@kMi-E5-=pRG<=x79gwm+$WvbfD<<"
        "hd%9jP{)qZ*uQW*!cqekNOgKe0G)>t^h_ZXKw~e*6wii&O8j^2%dsW+fNn=+U4)BiTXoW(1}t#SQIQ7`t)KhF?O^daA2>335Ybv)"
        "muFe|J;^#nuIqSR9~Lk6NZY%m4$70(d5+ioBRxpoRq`fOP#Wf2f5e=AkB4>!&theTNd}a_FD77s3I"
    ),
    "d2_pinball": (
        "Q%yxw0ssI2(g6SftpET3b(GN#f-nq4|Apt7$dvfXe~@LV(Fk!vf>h(*+in8}gV(ibdv8w{DGXQz+QotvFkKC_hx_5glzDiFT8oB^"
        "z@g(3Sr1?R0fWxt7OnOXN|h4_H>rupD~+2NIg4M4DvJDa+}0#jguuANDhnM-KQH+d@}6sec2gOfUrgHcII}wTOITH6<J8Vv%%E-K"
        "zfuWT)SqlJ%ASYLV_i4z;q~ajvQv#adr2Gp10n$c000000IC20000000B?nVEoV@C8t=#ME=0CV(cZo9F>0{%Ap!x7+CBI0&SPX?"
        "U=Rdi4j|?RVrC%b0b)iFW^}M)VP|0Ab7bcEKjr`b|G^IbK>#Gj22{$#!oUC)08tG88M?&}N=t~ZWG>XQWIZS?D)W@(KL(Iz0D-e-"
        "WWe<Q|NJO?1_lQ(X=JPnmDfj+cUV643=sI_Z~{3G4Mi9Z0FAu=KOX3i0}GjeV&78J()J1Q3xgD!7&{vq8*lyxb|4Tem<a?ZEJg+d"
        "K*)k65L^I8MfdC"
    ),
}
"""States of these metrics from before there were levels, in base 85."""


@pytest.mark.parametrize("tag", EARLIER)
def test_states_of_an_earlier_release_are_refused_by_name(tag: str) -> None:
    with pytest.raises(StateFormatError, match=r"_histogram' is a state of an earlier release.*count the rows again"):
        sm.from_bytes(base64.b85decode(EARLIER[tag]))
