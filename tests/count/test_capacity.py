"""Room for cells: parts of one level have room for as many, as kernels go over all for which there is room."""

from __future__ import annotations

from typing import Any

import draws
import numpy as np
import pytest

import streammetrics as sm
from streammetrics.collect.accumulator import accumulator_of
from streammetrics.collect.metric_like import empty_copy
from streammetrics.laws.specimens import make_consistent, sample

ROWS = 24  # too few for what adds up by cell first, and would write where there is no room


def rooms(thing: Any) -> list[dict[bool, set[int]]]:
    """Of each state, for how many cells the parts in front, and those with all axes behind, have room."""
    found: list[dict[bool, set[int]]] = []
    for counter in accumulator_of(thing).updater._content[1].counters:
        parts, by_level = counter.statistic.parts(), {}
        for name, array in counter.flats.items():
            by_level.setdefault(parts[name].front, set()).add(len(array))
        found.append(by_level)
    return found


@pytest.mark.parametrize("around", ["sliced", "windowed"])
@pytest.mark.parametrize("metric", draws.FIRST, ids=repr)
def test_parts_have_room_for_as_many_cells(metric: Any, around: str) -> None:
    """Cells come one by one, and their first weights when there is room for more than there are."""
    front = (
        sm.Sliced(empty_copy(metric), by="k")
        if around == "sliced"
        else sm.Windowed(empty_copy(metric), width=1, time="k")
    )
    state = metric.make_state()
    rng = np.random.default_rng(5)
    for weighted in (False, True):
        columns = make_consistent(state, sample(state.needs(), rng, ROWS, "plain", weighted=weighted))
        for cell in range(5 + 5 * weighted):
            new = {"query": np.array([f"{weighted}{cell}{q}" for q in columns["query"]])} if "query" in columns else {}
            front.update(columns | new | {"k": np.full(ROWS, cell)})
            for by_level in rooms(front):
                assert all(len(lengths) == 1 for lengths in by_level.values()), by_level
