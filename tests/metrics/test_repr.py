"""What a metric shows of itself: its settings, and once it has seen rows what it says of them."""

from __future__ import annotations

import math
from typing import Any

import draws
import numpy as np
import pytest

import streammetrics as sm
from streammetrics.collect.metric_like import empty_copy
from streammetrics.laws.specimens import make_consistent, sample

N = 24


@pytest.mark.parametrize("metric", draws.VARIANTS, ids=repr)
def test_a_filled_metric_says_what_it_holds(metric: Any) -> None:
    state = metric.make_state()
    columns = make_consistent(state, sample(state.needs(), np.random.default_rng(2), N, "plain", weighted=True))
    settings = repr(metric)
    assert repr(empty_copy(metric).update({r: c[:0] for r, c in columns.items()})) == settings
    filled = empty_copy(metric).update(columns)
    shown = repr(filled)
    assert shown.startswith(settings[:-1] if settings[-2] != "(" else type(metric).__name__ + "(")
    rows = filled.state.facts().get("rows")
    if rows is None:
        assert shown == settings
        return
    assert shown.endswith(f"{rows:,} rows)")
    value = filled.reading(filled.state).value
    if isinstance(value, float) and state.inner_axis is None:
        said = shown.removesuffix(f", {rows:,} rows)").rpartition("(")[2].rpartition(", ")[2].split()
        assert said[0] == ("NaN" if math.isnan(value) else f"{value:.6g}")
    assert repr(filled.reset()) == settings


def test_a_bound_is_a_proof() -> None:
    rng = np.random.default_rng(7)
    scores = rng.beta(1, 40, 100_000)
    clicks = rng.random(100_000) < scores
    for metric in (sm.AUC(), sm.AUC(bits=10), sm.KS(bits=12), sm.AveragePrecision(bits=12)):
        shown = repr(metric.update(clicks, scores))
        value, sign, half, proof = shown.rpartition(", 100,000 rows)")[0].rpartition("(")[2].rpartition(", ")[2].split()
        assert (sign, proof) == ("+-", "proof")
        low, high = metric.bounds()
        assert float(value) - float(half) <= low
        assert high <= float(value) + float(half)
        assert len(half.strip("0.")) == 1
    assert repr(sm.AUC().update(clicks[:100], scores[:100])).endswith(" exact, 100 rows)")
    assert repr(sm.CTR().update([0, 1, 1, 1])) == "CTR(0.75, 4 rows)"
    assert repr(sm.AUC(bits=12, limit=9).update([1], [0.5])) == "AUC(bits=12, limit=9, NaN, 1 row)"
    assert repr(sm.GroupAUC().update([0, 1], [0.1, 0.2], group=[1, 1])) == "GroupAUC(2 rows)"
