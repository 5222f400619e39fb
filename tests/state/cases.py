"""Draws of states for the laws."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st
from state.synthetic import KINDS, STATISTICS, made, with_dropped

from streammetrics.state.axes import Axis
from streammetrics.state.state import State

AXES: list[tuple[Axis, ...]] = [
    (),
    (Axis(("k",)),),
    (Axis(("hour",), "epoch", 3600), Axis(("a", "b"))),
    (Axis(("s",)), Axis(("shard",), "shard", 64), Axis(("t",))),
]
LIMITED: list[tuple[Axis, ...]] = [
    (Axis(("k",), limit=3),),
    (Axis(("hour",), "epoch", 3600, keep=2), Axis(("a", "b"), limit=2)),
    (Axis(("s",), limit=2, pinned=((None,), (7,))), Axis(("hour",), "epoch", 3600, keep=2), Axis(("t",), limit=1)),
    (Axis(("k",)), Axis(("hour",), "epoch", 1, keep=1)),
]


@st.composite
def states(draw: Any, count: int, *, limited: bool = False, statistics: Any = None, rows: int = 14) -> list[State]:
    """Some states of one statistic and axes."""
    statistic = draw(st.sampled_from(statistics or STATISTICS))
    axes = draw(st.sampled_from(LIMITED if limited else AXES))
    kinds = tuple(draw(st.lists(st.sampled_from([*KINDS]), min_size=4, max_size=4)))
    seed = draw(st.integers(0, 1 << 30))
    rng = np.random.default_rng(seed)
    out = []
    for i in range(count):
        one = made(statistic, axes, seed + i, draw(st.integers(0, rows)), weights=draw(st.booleans()), kinds=kinds)
        out.append(with_dropped(one, rng) if draw(st.integers(0, 3)) == 0 else one)
    return out
