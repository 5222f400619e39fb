"""Tables print intervals that were asked for, or the reason why there is none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import streammetrics as sm

Y = np.arange(80) % 2
P = (np.arange(80) % 7 + 1) / 8
KEYS = {"k": np.arange(80) // 40}


def made() -> dict[str, Any]:
    metrics = [sm.AUC(), sm.KS()]
    rows = {"y_true": Y, "y_score": P}
    return {
        "collection": sm.MetricCollection(*metrics).update(rows),
        "slices": sm.Sliced(metrics, by="k").update(rows | KEYS),
        "windows": sm.Windowed(metrics, width=1, time="k").update(rows | KEYS),
        "decayed": sm.Decayed(metrics, half_life=3, time="k").update(rows | KEYS),
    }


@pytest.mark.parametrize("name", ["collection", "slices", "windows", "decayed"])
def test_intervals_or_reasons_are_printed(name: str) -> None:
    thing = made()[name]
    table = thing.table(confidence=0.9)
    auc = next(r for r in table if r["metric"] == "auc")
    ks = next(r for r in table if r["metric"] == "ks")
    assert ks["interval_reason"]
    assert ks["interval_reason"] in repr(table)
    if name == "decayed":  # whose rows are no sample
        assert auc["interval_reason"] in repr(table)
    else:
        assert f"{auc['interval_low']:.6f} to {auc['interval_high']:.6f}" in repr(table)
        assert "Intervals assume independent rows" in repr(table)
        assert "Intervals assume independent rows" in table._repr_html_()
    usual, none = thing.table(), thing.table(confidence=None)
    assert " to " not in repr(usual)
    assert "interval" not in repr(usual) + repr(none)
    assert np.isnan(next(iter(none))["interval_low"])


def test_intervals_are_those_of_the_confidence() -> None:
    slices = made()["slices"]
    for row in slices.table(confidence=0.8):
        if row["metric"] == "auc":
            found = slices[row["k"]]["auc"].interval(0.8)
            assert (row["interval_low"], row["interval_high"]) == (found.low, found.high)


def test_intervals_by_unit_need_no_note() -> None:
    users = sm.Sliced(sm.Sharded(sm.AUC(), unit="u", shards=8), by="k").update(Y, P, u=np.arange(80), **KEYS)
    asked, usual = repr(users.table(confidence=0.95)), repr(users.table())
    assert "Intervals assume" not in asked
    assert " to " in asked
    assert asked == usual
