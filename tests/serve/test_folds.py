"""Folds in memory: those that were used last as they are, others packed, the oldest forgotten; never another one."""

from __future__ import annotations

import pytest

import streammetrics as sm
from streammetrics.serve.evaluation.windows import READY_FRACTION, MergeCache, WindowTotal

COUNT = 40


def fold(i):
    return WindowTotal(frozenset([i]), sm.AUC().update([0, 1] * 50, [j / (100 + i) for j in range(100)]))


def place(i):
    return "e", "hour", i


@pytest.fixture
def made():
    return [fold(i) for i in range(COUNT)]


def test_as_they_are_then_packed_then_forgotten(made):
    size, packed = sm.nbytes(made[0].metrics), len(made[0].metrics.to_bytes())
    room = READY_FRACTION * 4 * size
    folds = MergeCache(room)
    for i, one in enumerate(made):
        folds.put(place(i), one)
    few = min(COUNT - 4, (room - 4 * size) // packed)
    assert len(folds._ready) == 4
    assert abs(len(folds._packed) - few) <= 1
    for i in reversed(range(COUNT)):
        found = folds.pop(place(i))
        if found is not None:
            assert found.part_ids == made[i].part_ids
            assert found.metrics.digest() == made[i].metrics.digest()
            assert (found.metrics is made[i].metrics) == (i >= COUNT - 4)
            assert folds.pop(place(i)) is None
        else:
            assert i < COUNT - 4 - (few - 1)
    assert len(folds) == folds._ready._size == folds._packed._size == 0


def test_what_is_used_stays(made):
    folds = MergeCache(READY_FRACTION * 2 * sm.nbytes(made[0].metrics))
    folds.put(place(0), made[0])
    for i in range(1, COUNT):
        folds.put(place(i), made[i])
        used = folds.pop(place(0))
        assert used is not None
        assert used.metrics is made[0].metrics
        folds.put(place(0), used)


def test_without_room_the_last_one_is_kept(made):
    folds = MergeCache(1)
    for i, one in enumerate(made[:3]):
        folds.put(place(i), one)
    assert len(folds) == 1
    assert folds.pop(place(0)) is None
    assert folds.pop(place(2)) is made[2]


def test_the_newer_one_is_taken(made):
    """Another thread may make a fold anew while the old one is packed."""
    folds = MergeCache(1 << 26)
    folds._packed.put(place(0), WindowTotal(made[0].part_ids, made[0].metrics.to_bytes()), 1)
    folds.put(place(0), made[1])
    assert folds.pop(place(0)) is made[1]
    assert len(folds) == 0
