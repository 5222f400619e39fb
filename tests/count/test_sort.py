"""Codes are sorted alike by numpy and by digits, whichever is quicker on this machine."""

from __future__ import annotations

import ctypes
import mmap
import sys
import tracemalloc
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streammetrics.count import page_allocator, tallies
from streammetrics.count.counter import _reorder_cells
from streammetrics.count.drafts import load_engine
from streammetrics.kernels import tally_codes
from streammetrics.state import tally

HUGE = Path("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size")
ROUNDED = 2 * (int(HUGE.read_text()) if HUGE.exists() else mmap.PAGESIZE)  # a page at either end


def resident(array: Any) -> int:
    """Bytes of memory that an array holds, with all behind it that nobody else can reach."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    if array.base is None or not sys.platform.startswith("linux"):
        return int(array.nbytes)
    whole = np.frombuffer(array.base, np.uint8)
    pages = (ctypes.c_ubyte * -(-whole.nbytes // mmap.PAGESIZE))()
    assert ctypes.CDLL(None).mincore(ctypes.c_void_p(whole.ctypes.data), ctypes.c_size_t(whole.nbytes), pages) == 0
    return sum(page & 1 for page in pages) * mmap.PAGESIZE


@pytest.mark.parametrize("numpy_is_quicker", [True, False])
@pytest.mark.parametrize("most", [1, 2, 2048, 1 << 20, 1 << 32])
@pytest.mark.parametrize("dtype", [np.uint32, np.uint64])
def test_both_ways_sort(monkeypatch, dtype, most, numpy_is_quicker):
    monkeypatch.setattr(tallies, "numpy_sorts_quicker", lambda: numpy_is_quicker)
    given = np.random.default_rng(most).integers(0, most, 2 * tallies.FEW_CODES).astype(dtype)
    made, codes = tallies.sorted_copy(given), given.copy()
    tallies.sort(codes, codes)
    assert (made == np.sort(given)).all()
    assert (codes == made).all()


def exact_codes(scores: Any, labels: Any) -> Any:
    """The low words of exact rows: 63 bits of the score, all inverted below 0, and the label."""
    words = scores.astype(np.float64).view(np.uint64)
    words = np.where(scores < 0, ~words, words)
    return (words << np.uint64(1)) | labels.astype(np.uint64)


@pytest.mark.parametrize("numpy_is_quicker", [True, False])
@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_codes_of_scores(monkeypatch, dtype, sign, numpy_is_quicker):
    """Of any size a float32 has; one score between two of float32 must not be lost."""
    monkeypatch.setattr(tallies, "numpy_sorts_quicker", lambda: numpy_is_quicker)
    monkeypatch.setattr(tallies, "MANY_CODES", tallies.FEW_CODES)
    rng = np.random.default_rng(1)
    sizes = [np.exp(rng.normal(0, 25, 2 * tallies.FEW_CODES)), rng.random(tallies.FEW_CODES), [1e-45, 3e38, 1.0, 1.0]]
    scores = sign * np.concatenate(sizes).clip(1e-45, 3e38).astype(np.float32).astype(dtype)
    if dtype == np.float64:
        scores[-1] = np.nextafter(scores[-1], 0)
    scores[:100] = scores[100:200]
    codes = exact_codes(scores, rng.integers(0, 2, len(scores)))
    assert (tallies.sorted_copy(codes) == np.sort(codes)).all()
    distinct, counts = tallies.count_codes(codes)
    known = np.unique(codes, return_counts=True)
    assert (distinct == known[0]).all()
    assert (counts == known[1]).all()
    in_place = codes.copy()
    tallies.sort(in_place, in_place)
    assert (in_place == np.sort(codes)).all()
    with_zero = exact_codes(np.append(scores, 0.0).astype(dtype), np.zeros(len(scores) + 1))
    assert (tallies.sorted_copy(with_zero) == np.sort(with_zero)).all()


@pytest.mark.parametrize("bits", [0, 1, 8, 23, 28, 32, 64])
@pytest.mark.parametrize("n", [1, 100, 100_000])
def test_weights_move_with_their_codes(n, bits):
    """The low bits, which are equal in all codes, belong to no digit."""
    rng, low = np.random.default_rng(bits), min(bits, 3)
    codes = rng.integers(0, (1 << bits) - 1, n, np.uint64, endpoint=True) >> np.uint64(low) << np.uint64(low)
    codes = codes.astype(np.uint32 if bits <= 32 else np.uint64)
    moved, weights = codes.copy(), rng.random(n)
    order = np.argsort(codes, kind="stable")
    wanted = weights[order]
    tally_codes.sort_codes(moved, weights, np.empty_like(moved), np.empty(n))
    assert (moved == codes[order]).all()
    assert (weights == wanted).all()


@pytest.mark.parametrize(("cells", "n", "is_sorted"), [(3, 5000, False), (60, 50_000, False), (3000, 5000, True)])
def test_weighted_codes_add_up_like_entries(cells, n, is_sorted, monkeypatch):
    """Rows with and without weights, merged into earlier entries, in the cells of few rows and of many."""
    sort, calls = tally_codes.sort_codes, []
    monkeypatch.setattr(tally_codes, "sort_codes", lambda *a: calls.append(a) or sort(*a))
    rng, whole = np.random.default_rng(cells), tally.Entries.empty(13)
    held = tallies.LiveTally(13, 8192, lone=False)
    held._give_up_byte_counters(whole)
    for weighted in (False, True, True, False, True):
        codes = (rng.integers(0, cells, n) << 13 | rng.integers(0, 300, n)).astype(np.uint32)
        weights = rng.random(n) * 10.0 ** rng.integers(-9, 7, n) if weighted else np.ones(n)
        weights[: n // 3] = rng.integers(0, 3, n // 3)
        held.reserve(cells, n, weighted=True)
        used = int(held.waiting[0])
        held.codes[used : used + n], held.weights[used : used + n], held.waiting[0] = codes, weights, used + n
        excess = tallies.weights_less_one(weights)
        fresh = tally.sort_entries(tally.Entries(13, codes, np.ones(n, np.uint32), excess))
        whole = tally.add_entries(whole, fresh)
        if used:
            assert held.consolidate().equals(whole)
    assert held.consolidate().equals(whole)
    assert bool(calls) == is_sorted


@pytest.mark.parametrize("span", [3, 400, 10_000])
@pytest.mark.parametrize("weighted", [False, True])
def test_entries_are_sorted_as_plain_code_does(span, weighted):
    """Codes of a small range are counted, those of a large one are sorted."""
    load_engine()
    rng, n = np.random.default_rng(span), 900
    codes, counts = rng.integers(0, span, n).astype(np.uint32), rng.integers(1, 1 << 32, n).astype(np.uint32)
    limbs = np.stack([rng.integers(-(1 << 40), 1 << 40, n), rng.integers(0, 1 << 40, n)], 1) if weighted else None
    rows, weights = Counter(), Counter()
    for i, code in enumerate(codes.tolist()):
        rows[code] += int(counts[i])
        weights[code] += (int(limbs[i, 0]) << 40) + int(limbs[i, 1]) if weighted else 0
    found = tally.sort_entries(tally.Entries(5, codes, counts, limbs))
    assert found.codes.tolist() == sorted(rows)
    assert dict(zip(found.codes.tolist(), found.counts.tolist(), strict=True)) == rows
    if weighted:
        assert found.excess[:, 1].min() >= 0
        assert found.excess[:, 1].max() < 1 << 40
        summed = [(high << 40) + low for high, low in found.excess.tolist()]
        assert dict(zip(found.codes.tolist(), summed, strict=True)) == weights


@pytest.mark.parametrize(("groups", "most"), [(1, 1), (7, 1), (7, 3), (7, 9), (400, 1)])
def test_wide_entries_are_sorted_as_plain_code_does(groups, most):
    """Codes of many entries are sorted within each high word, those of few entries, or with many rows, together."""
    rng, n = np.random.default_rng(groups), 900
    high, codes = rng.integers(0, groups, n).astype(np.uint32), rng.choice(rng.integers(0, 1 << 63, 600), n)
    codes, counts = codes.astype(np.uint64) << np.uint64(1), rng.integers(1, most + 1, n).astype(np.uint32)
    rows = Counter()
    for key, count in zip(zip(high.tolist(), codes.tolist(), strict=True), counts.tolist(), strict=True):
        rows[key] += count
    found = tally.sort_entries(tally.Entries(65, codes, counts, None, high))
    assert [*zip(found.high.tolist(), found.codes.tolist(), strict=True)] == sorted(rows)
    assert found.counts.tolist() == [rows[key] for key in sorted(rows)]


@pytest.mark.parametrize("states", [1, 2, 9])
@pytest.mark.parametrize("most", [1, 2])
@pytest.mark.parametrize("kernels", [False, True])
def test_entries_of_several_sorted_states_are_merged(monkeypatch, states, most, kernels):
    """Sorted states form ascending runs, which a stable sort merges; labels within a bucket need not ascend."""
    if kernels:
        load_engine()
    monkeypatch.setattr(tally.kernel_registry, "has_kernels", lambda: kernels)
    rng, n, kinds, rows = np.random.default_rng(states), 1500, [], Counter()
    choose = tally._choose_sort
    monkeypatch.setattr(tally, "_choose_sort", lambda codes: kinds.append(choose(codes)) or kinds[-1])
    wide, narrow = [], []
    for _ in range(states):
        keys = np.unique(rng.integers(0, 40_000, n))
        counts = rng.integers(1, most + 1, len(keys)).astype(np.uint32)
        cells, codes = (keys // 10_000).astype(np.uint32), (keys % 10_000).astype(np.uint64) << np.uint64(50)
        wide.append(tally.Entries(64, codes, counts, None, cells))
        labels = rng.integers(0, 2, len(keys), np.uint32)
        narrow.append(tally.Entries(31, keys.astype(np.uint32) << np.uint32(1) | labels, counts))
        for code, count in zip(narrow[-1].codes.tolist(), counts.tolist(), strict=True):
            rows[code] += count
    found = tally.sort_entries(tally.concatenate(narrow))
    assert found.codes.tolist() == sorted(rows)
    assert found.counts.tolist() == [rows[code] for code in sorted(rows)]
    with monkeypatch.context() as patch:
        patch.setattr(tally, "PIECE", 250)
        assert tally.sum_entries(narrow).equals(found)
    found, places = tally.sort_entries(tally.concatenate(wide)), Counter()
    for code, count in rows.items():
        places[code >> 1] += count
    assert (found.high.astype(int) * 10_000 + (found.codes >> np.uint64(50)).astype(int)).tolist() == sorted(places)
    assert found.counts.tolist() == [places[place] for place in sorted(places)]
    assert set(kinds) == {"stable"}


@pytest.mark.parametrize("weighted", [False, True])
def test_cells_are_reordered_with_one_copy(weighted):
    """Only the entries in the new order take memory."""
    rng, cells, places = np.random.default_rng(4), 40, 10_000
    codes = (np.arange(cells)[:, None] << 14 | np.sort(rng.permutation(1 << 14)[:places])).reshape(-1).astype(np.uint32)
    excess = rng.integers(-(1 << 62), 1 << 62, (len(codes), 2)) if weighted else None
    entries = tally.Entries(14, codes, rng.integers(1, 1 << 32, len(codes)).astype(np.uint32), excess)
    order = rng.permutation(cells)
    wanted = entries.take_cells(order, entries.cell_starts(cells))
    assert _reorder_cells(entries, order).equals(wanted)
    tracemalloc.start()
    try:
        _reorder_cells(entries, order)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1.5 * entries.nbytes


@pytest.mark.slow
@pytest.mark.parametrize("exact", [False, True])
def test_what_is_united_holds_no_more_than_it_says(exact):
    """Half of what waits is there already: a view would hold room for all of it."""
    rng = np.random.default_rng(1)
    held = tallies.LiveExactRows(32, lone=True) if exact else tallies.LiveTally(12, 4096, lone=False)
    for _ in range(4):
        fresh = rng.integers(0, 40_000_000, 2_000_000)
        if exact:
            held.reserve(len(fresh), None, weighted=False)
            held.low[: len(fresh)], held.used[0] = fresh % 600_000, len(fresh)
            held.consolidate()
        else:
            held.reserve(10_000, len(fresh), weighted=False)
            held.codes[: len(fresh)], held.waiting[0] = fresh % 600_000, len(fresh)
            held.consolidate()
    for array in (held.entries.codes, held.entries.counts):
        assert 400_000 < len(array) < 700_000
        assert resident(array) < array.nbytes + ROUNDED


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.uint32, np.uint64])
@pytest.mark.parametrize("size", [0, 1, page_allocator.MIN_MAPPED_BYTES // 8, 4 * page_allocator.MIN_MAPPED_BYTES])
def test_room_is_an_array_like_any_other(size, dtype):
    made = page_allocator.allocate(size, dtype)
    made[:] = np.arange(size)
    assert (made.dtype, len(made), made.flags.writeable) == (dtype, size, True)
    cut = page_allocator.trim(made, size // 3)
    assert (cut == np.arange(size // 3)).all()


@pytest.mark.parametrize("size", [0, 3, page_allocator.MIN_MAPPED_BYTES])
def test_new_counters_are_zeros(size):
    np.full(size, 7, np.int64)  # memory that the next array may get
    made = page_allocator.allocate_zeros(size, np.int64)
    assert (made == np.zeros(size, np.int64)).all()
    assert made.flags.writeable


def test_of_room_only_what_is_written_to_is_held():
    made = page_allocator.allocate(64 << 20, np.uint8)
    assert resident(made) == 0
    made[: 1 << 20] = 1
    # the kernel of the system may use pages of 2 MiB
    assert 1 << 20 <= resident(page_allocator.trim(made, 1 << 20)) <= (2 << 20) + ROUNDED


def test_where_there_is_no_room_it_is_said():
    with pytest.raises(MemoryError, match="not enough memory for an array of 2,305,843,009,213,693,952 bytes"):
        page_allocator.allocate(1 << 58, np.uint64)
