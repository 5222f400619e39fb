"""A value whose certified bounds are too wide is marked everywhere in one sentence, and `compute` warns of it once."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import streammetrics as sm
from streammetrics.collect.metric_like import columns_of, states_of, with_states
from streammetrics.reading.reading import Reading
from streammetrics.reading.wide_bounds import MARK, are_wide, sentence_of
from streammetrics.reports.tables import build_grids

N = 120
KEYS = {"k": np.arange(N) // 40, "u": np.arange(N)}
RANGE = "the certified bounds are wider than 5 % of the metric's range"
VALUE = "the certified bounds are wider than 5 % of the value"
LABELS = np.arange(N) % 2
SHARED = 0.3 + 1e-7 * ((np.arange(N) * 7) % N)
"""Scores of one bucket of 8 bits, where nothing is known of their order."""


def auc(**settings: Any) -> Any:
    return sm.AUC(bits=8, **settings)


def far_targets() -> tuple[Any, Any]:
    rng = np.random.default_rng(1)
    y = 1e7 + rng.uniform(-1, 1, 200)
    return y, y + rng.normal(0, 0.5, 200)


def told(action: Callable[[], Any]) -> list[str]:
    """The warnings of wide bounds that an action makes."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        action()
    assert all(w.category is sm.WideBoundsWarning for w in found)
    assert all(w.filename == __file__ for w in found), "the warning is of the line that called"
    return [str(w.message) for w in found]


OBJECTS: dict[str, Any] = {
    "metric": lambda: auc(),
    "collection": lambda: sm.MetricCollection(auc(), sm.CTR()),
    "slices": lambda: sm.Sliced(auc(), by="k"),
    "slices of a collection": lambda: sm.Sliced([auc(), sm.CTR()], by="k"),
    "slices of a metric that is read cell by cell": lambda: sm.Sliced(sm.BEDROC(bits=8), by="k"),
    "windows": lambda: sm.Windowed(auc(), time="k", width=1),
    "windows of slices": lambda: sm.Windowed(sm.Sliced(auc(), by="k"), time="u", width=200),
    "recent": lambda: sm.Recent(auc(), steps=3),
    "decayed": lambda: sm.Decayed(auc(), time="k", half_life=3),
    "shards": lambda: sm.Sharded(auc(), unit="u"),
    "slices of shards": lambda: sm.Sliced(sm.Sharded(auc(), unit="u"), by="k"),
}


def fed(name: str) -> Any:
    thing = OBJECTS[name]()
    return thing.update(
        {n: c for n, c in {"y_true": LABELS, "y_score": SHARED, **KEYS}.items() if n in columns_of(thing)}
    )


@pytest.mark.parametrize("name", OBJECTS)
def test_an_object_warns_once(name: str) -> None:
    thing = fed(name)
    first = told(thing.compute)
    assert len(first) == 1
    assert RANGE in first[0]
    assert "Count the rows again with the default bits= in place of 8, or with exact=True" in first[0]
    cells = "" if name in ("metric", "collection", "recent", "decayed", "shards") else "for 3 values"
    assert cells in first[0]
    assert told(thing.compute) == []


@pytest.mark.parametrize("name", [n for n in OBJECTS if n != "metric"])
def test_a_table_warns_once_and_says_of_how_many_values(name: str) -> None:
    thing = fed(name)
    tables: list[Any] = []
    (message,) = told(lambda: tables.append(thing.table()))
    records = list(tables[0])
    wide = [r for r in records if r["reason"] == RANGE]
    assert wide
    have = "has" if len(wide) == 1 else "have"
    assert message.startswith(f"{len(wide)} of {len(records)} values of this table {have} wide bounds")
    assert RANGE in repr(tables[0])


def test_the_rule() -> None:
    area, lift, slope, rank = sm.AUC(), sm.Lift(), sm.CalibrationSlope(), sm.SpearmanCorrelation()

    def wide(metric: Any, value: float, half: float) -> bool:
        return bool(are_wide(metric, [value], [value - half], [value + half])[0])

    assert [wide(area, 0.01, half) for half in (0.024, 0.026)] == [False, True]  # 5 % of 0 to 1
    assert [wide(sm.Gini(), 0.01, half) for half in (0.049, 0.051)] == [False, True]  # of -1 to 1
    assert [wide(rank, 0.01, half) for half in (0.049, 0.051)] == [False, True]
    assert [wide(sm.XAUC(), 0.5, half) for half in (0.024, 0.026)] == [False, True]
    assert [wide(lift, 4.0, half) for half in (0.09, 0.11)] == [False, True]  # of the value
    assert [wide(slope, 0.01, half) for half in (0.024, 0.026)] == [False, True]  # of 1, the best slope
    assert wide(lift, 4.0, math.inf)
    assert not wide(lift, math.nan, math.nan)
    assert not wide(sm.QiniCoefficient(), 0.0, 1e-15)  # rounding


def test_infinite_bounds_of_a_metric_without_a_grid() -> None:
    metric = sm.D2Tweedie(power=1.5).update(*far_targets())
    (message,) = told(metric.compute)
    assert RANGE in message
    assert "use R2" in message
    assert RANGE in repr(metric)
    collection = with_states(sm.MetricCollection(metric), states_of(metric))
    with pytest.warns(sm.WideBoundsWarning, match="-inf to"):
        (record,) = collection.table()
    assert record["bound_low"] == -math.inf
    near = sm.D2Tweedie(power=1.5).update([2, 0, 1, 4], [1.5, 0.5, 1.0, 3.0])
    assert told(near.compute) == []
    assert repr(near).endswith("0.556663, 4 rows)")


def test_vectors() -> None:
    rng = np.random.default_rng(2)
    scores = np.column_stack([SHARED, rng.permutation(SHARED), np.arange(N) / N])
    metric = sm.AUC(num_labels=3, average=None, bits=8).update(rng.integers(0, 2, (N, 3)), scores)
    (message,) = told(metric.compute)
    assert message.startswith(f"auc_each: {RANGE} for 2 values, such as 0.5 (0 to 1).")


def test_sketches_are_not_called_wide() -> None:
    distinct = sm.DistinctCount().update(np.arange(200_000) % 70_000)
    assert distinct.bounds()[1] > 1.05 * distinct.compute()
    assert "wide" not in repr(distinct)


def test_exact_values_and_quantiles_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Reading) -> None:
        raise AssertionError("bounds are computed only where they may be wide")

    monkeypatch.setattr(Reading, "bounds", property(refuse))
    halves = SHARED.astype(np.float16)
    assert told(sm.AUC(limit=0).update(LABELS, halves).compute) == []
    assert told(sm.LogLoss().update(LABELS, SHARED).compute) == []
    assert told(sm.F1(threshold=0.3).update(LABELS, SHARED).compute) == []
    assert told(sm.Quantile().update(SHARED).compute) == []
    assert told(sm.SpearmanCorrelation().update(LABELS, SHARED).compute) == []


def test_narrow_bounds_are_not_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    scores = rng.random(5000)
    metric = sm.AUC(bits=12).update(rng.random(5000) < scores, scores)
    assert metric.bounds()[0] < metric.bounds()[1]
    refuse = property(lambda self: pytest.fail("the limits before rounding say enough"))
    monkeypatch.setattr(Reading, "bounds", refuse)
    assert told(metric.compute) == []


def test_a_reading_is_of_one_metric() -> None:
    rng = np.random.default_rng(4)
    y, p = rng.integers(0, 2, 3000), rng.random(3000)
    one = sm.BEDROC(alpha=20.0, bits=10).update(y, p)
    for alpha in (20.0, 5.0, 20.0):
        expected = sm.BEDROC(alpha=alpha, bits=10).update(y, p)
        assert sm.BEDROC(alpha=alpha, bits=10).reading(one.state).value == expected.reading(expected.state).value


def test_one_sentence_everywhere(tmp_path: Path) -> None:
    metrics = sm.MetricCollection(auc(), sm.CTR()).update(LABELS, SHARED)
    assert sentence_of(auc()) == RANGE
    (warning,) = told(metrics.compute)
    assert RANGE in warning
    assert RANGE in repr(metrics["auc"])
    with pytest.warns(sm.WideBoundsWarning):
        assert [r["reason"] for r in metrics.table()] == [RANGE, None]
    (grid,) = build_grids(metrics)
    (row,) = [row for row in grid.rows if row is not None and row[0].text == "auc"]
    assert row[1].text == f"0.500000{MARK}"
    (remark,) = [r for r in grid.remarks if r.startswith(MARK)]
    assert remark.startswith(f"{MARK}: {RANGE} (1 value). Count the rows again with")
    sm.report(metrics, tmp_path / "page.html")
    text = unescape((tmp_path / "page.html").read_text()).replace("\u202f", " ")
    assert remark in text
    assert re.search(rf">0\.500000{re.escape(MARK)}<", text)


def test_terminal_and_page_mark_slices(tmp_path: Path) -> None:
    (grid,) = build_grids(fed("slices of a collection"), confidence=0.95)
    assert [row[3].text.endswith(MARK) for row in grid.rows if row is not None] == [True] * 3
    assert f"{MARK}: {RANGE} (3 values)" in "\n".join(grid.remarks)
    sm.report(fed("slices of a collection"), tmp_path / "page.html")
    assert f"{MARK}: {RANGE} (3 values)" in unescape((tmp_path / "page.html").read_text()).replace("\u202f", " ")


@pytest.mark.parametrize("classes", [3, 10])
def test_one_against_one_is_exact_for_small_data(classes: int) -> None:
    rng = np.random.default_rng(5)
    y = rng.integers(0, classes, 25_000)
    logits = rng.normal(0, 12, (25_000, classes)) + 8 * (y[:, None] == np.arange(classes))
    odds = np.exp(logits - logits.max(axis=1, keepdims=True)).astype(np.float32)
    p = odds / odds.sum(axis=1, keepdims=True)

    def of_pair(i: int, j: int) -> float:
        above, below = p[y == i, i], np.sort(p[y == j, i])
        wins = np.searchsorted(below, above, "left").sum() + np.searchsorted(below, above, "right").sum()
        return float(wins / 2 / len(above) / len(below))

    expected = np.mean([of_pair(i, j) for i in range(classes) for j in range(classes) if i != j])
    metric = sm.AUC(num_classes=classes, multi_class="ovo").update(y, p)
    low, high = metric.bounds()
    assert low == high == metric.compute() == pytest.approx(expected, rel=1e-13)
    assert sm.nbytes(metric) < 100 << 20
