"""Room for pairs of numbers in slices of different sizes, some of which become too large to stay exact."""

from __future__ import annotations

import numpy as np
import pytest

import streammetrics as sm
from streammetrics.count import tallies
from streammetrics.count.pairs import VIEWS, PairCounter


@pytest.mark.parametrize("weighted", [False, True])
def test_there_is_room_when_some_slices_have_become_too_large(weighted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The room was made in rows that had been replaced, and kernels wrote beyond the new ones."""
    rng = np.random.default_rng(7)
    n = 4_000
    columns = {"y_true": rng.random(n), "y_pred": rng.random(n), "k": np.minimum(rng.zipf(1.3, n), 40)}
    columns |= {"sample_weight": rng.integers(1, 1 << 10, n) / 16} if weighted else {}
    whole = sm.Sliced(sm.SpearmanCorrelation(limit=40), by="k").update(columns)
    monkeypatch.setattr(tallies, "WAIT", 300)
    reserve = PairCounter.reserve

    def reserve_and_look(self: PairCounter, rows: int, *, weighted: bool) -> bool:
        changed = reserve(self, rows, weighted=weighted)
        exact = self.tallies["exact"]
        for array in (exact.low, exact.high, *([exact.weights] if weighted else [])):
            assert len(array) - int(exact.used[0]) >= rows * VIEWS
        return changed

    monkeypatch.setattr(PairCounter, "reserve", reserve_and_look)
    sliced = sm.Sliced(sm.SpearmanCorrelation(limit=40), by="k")
    for first in range(0, n, 37):
        sliced.update({name: column[first : first + 37] for name, column in columns.items()})
    assert sliced == whole
