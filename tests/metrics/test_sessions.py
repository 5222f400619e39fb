"""Average precision within groups, and the first rows of sessions, equal their oracles, however rows wait."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import oracles_sessions as oracles
import pytest

import streammetrics as sm
from streammetrics.collect.metric_like import states_of
from streammetrics.statistics.groups import group_rows

N = 400
rng = np.random.default_rng(13)


def logs() -> dict[str, tuple[Any, ...]]:
    u, y, s = rng.integers(0, 60, N), rng.integers(0, 2, N), rng.random(N)
    ones, w = np.ones(N), rng.integers(0, 9, N) / 4
    return {
        "plain": (u, y, s, ones),
        "ties": (u, y, s.round(1), ones),
        "weighted": (u, y, s.round(1), w),
        "any weights": (u, y, s, rng.random(N) * 10 + 2.0**-30),
        "float32": (u, y, s.astype(np.float32), w),
        "one group": (u * 0, y, s.round(1), w),
        "texts": (u.astype(str), y, s, ones),
    }


LOGS = logs()
WEIGHTS, CUTS = ("uniform", "impressions", "positives"), (1, 3, 50)
METRICS = [
    *((sm.GroupAveragePrecision, "group_average_precision", {"group_weight": b}, {"by": b}) for b in WEIGHTS),
    *((sm.SessionPrecisionAtK, "session_precision_at_k", {"k": k}, {"k": k}) for k in CUTS),
    *((sm.SessionRecallAtK, "session_recall_at_k", {"k": k}, {"k": k}) for k in CUTS),
]


@pytest.mark.parametrize("log", LOGS)
@pytest.mark.parametrize(("cls", "tag", "settings", "more"), METRICS)
def test_oracles(cls: Any, tag: str, settings: Any, more: Any, log: str, monkeypatch: pytest.MonkeyPatch) -> None:
    u, y, s, w = LOGS[log]
    weights = {} if (w == 1).all() else {"sample_weight": w}
    metric = cls(**settings).update(y, s, group=u, **weights)
    want = oracles.ORACLES[tag](u, y, s.astype(np.float64), w, **more)
    value = metric.compute()
    assert value == pytest.approx(want, rel=1e-12)
    read = sm.from_bytes(metric.to_bytes())
    assert read.compute() == value
    monkeypatch.setattr(group_rows, "SAVED", 0)  # as if rows were so many that they are read by partition
    assert cls(**settings).update(y, s, group=u, **weights).compute() == value
    low, high = metric.bounds()
    assert low <= value <= high


def test_first_rows_without_ties_are_those_of_torchrec() -> None:
    u, y, s, w = LOGS["plain"]
    precision, recall = oracles.torchrec_session(u, y, s, w, 3)
    assert sm.SessionPrecisionAtK(3).update(y, s, group=u).compute() == pytest.approx(precision, rel=1e-14)
    assert sm.SessionRecallAtK(3).update(y, s, group=u).compute() == pytest.approx(recall, rel=1e-14)


@pytest.mark.filterwarnings("ignore::streammetrics.errors.UndefinedMetricWarning")
@pytest.mark.parametrize("metric", [sm.GroupAveragePrecision(), sm.SessionPrecisionAtK(2), sm.SessionRecallAtK(2)])
def test_undefined(metric: Any) -> None:
    assert math.isnan(metric.compute())
    assert metric.explain()["reason"] == "no rows"
    zero = metric.copy().update([1, 0], [0.5, 0.5], group=[1, 2], sample_weight=[0.0, 0.0])
    assert math.isnan(zero.compute())
    assert zero.explain()["reason"]
    negatives = metric.copy().update([0, 0], [0.5, 0.5], group=[1, 2])
    assert math.isnan(negatives.compute()) == (type(metric) is not sm.SessionPrecisionAtK)
    assert negatives.compute() == 0 or negatives.explain()["reason"] == "no group has positives"


def test_one_state_with_the_auc_of_groups() -> None:
    u, y, s, _ = LOGS["ties"]
    both = sm.MetricCollection(sm.GroupAUC(), sm.GroupAveragePrecision(), sm.SessionRecallAtK(2)).update(y, s, group=u)
    assert len(states_of(both)) == 1
    assert both["group_average_precision"].compute() == sm.GroupAveragePrecision().update(y, s, group=u).compute()
