"""Outcomes limited by the totals of units: as numpy has the percentile and the totals, for all types of columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import streammetrics as sm

ROWS, UNITS = 5000, 1500
rng = np.random.default_rng(0)
UNIT = rng.integers(0, UNITS, ROWS)
OUTCOME = np.where(rng.random(ROWS) < 0.2, 0.0, rng.pareto(1.3, ROWS) * 10.0)
OUTCOME[::50] *= -0.5  # refunds
TOTALS = np.bincount(UNIT, OUTCOME, UNITS)
KINDS: dict[str, Callable[[Any], Any]] = {
    "integers": lambda unit: unit,
    "list of text": lambda unit: [f"u{i}" for i in unit],
    "pandas": lambda unit: pd.Series(unit, index=range(7, ROWS + 7)),
    "polars": lambda unit: pl.Series([f"u{i}" for i in unit]),
    "arrow": lambda unit: pa.array([f"u{i}" for i in unit]),
    "two columns": lambda unit: (unit // 7, unit % 7),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("cap", "share"), [("99%", 0.99), ("99.9 %", 0.999), ("55%", 0.55), (25.0, None)])
def test_totals_are_limited_to_a_percentile_of_units(kind: str, cap: str | float, share: float | None) -> None:
    found = sm.winsorize(OUTCOME, KINDS[kind](UNIT), cap=cap)
    nonzero = TOTALS[TOTALS != 0.0]
    limit = 25.0 if share is None else np.quantile(nonzero, share, method="inverted_cdf")
    assert found.cap == pytest.approx(limit, rel=1e-14)
    np.testing.assert_allclose(
        np.bincount(UNIT, found.outcome, UNITS), np.minimum(TOTALS, limit), rtol=1e-12, atol=1e-12
    )
    assert found.share == np.mean(nonzero > limit)
    # Rows of other units stay as they are.
    below = TOTALS[UNIT] <= limit
    np.testing.assert_array_equal(found.outcome[below], OUTCOME[below])


def test_units_without_outcome_do_not_change_the_cap() -> None:
    alone, both = (
        sm.winsorize(np.append(OUTCOME, np.zeros(n)), np.append(UNIT, UNITS + np.arange(n))) for n in (0, 900)
    )
    assert alone.cap == both.cap
    np.testing.assert_array_equal(both.outcome, np.append(alone.outcome, np.zeros(900)))


def test_revenue_per_user_is_the_mean_of_limited_totals() -> None:
    arm = np.array(["a", "b"])[np.arange(UNITS) % 2]
    found = sm.winsorize(OUTCOME, UNIT, cap="95%")
    metric = sm.Sliced(sm.Sharded(sm.PerUnit("capped", unit="user"), unit="user"), by="arm")
    metric.update(user=np.arange(UNITS), arm=arm, exposed=np.ones(UNITS))
    metric.update(user=UNIT, arm=arm[UNIT], capped=found.outcome)
    expected = np.minimum(TOTALS, found.cap)
    assert metric.compute() == pytest.approx({k: expected[arm == k].mean() for k in "ab"}, rel=1e-12)


@pytest.mark.slow
def test_equal_arms_differ_in_one_of_twenty() -> None:
    """The cap comes from the data, but from both arms together, so intervals keep their coverage."""
    alarms, runs, users = 0, 400, 2000
    for _ in range(runs):
        spent = (rng.random(users) < 0.3) * rng.pareto(1.5, users)
        first = rng.random(users) < 0.5
        a, b = (sm.winsorize(spent, np.arange(users)).outcome[some] for some in (first, ~first))
        error = np.sqrt(a.var(ddof=1) / a.size + b.var(ddof=1) / b.size)
        alarms += abs(a.mean() - b.mean()) > 1.96 * error
    assert alarms / runs == pytest.approx(0.05, abs=0.035)


@pytest.mark.parametrize("cap", ["99", "100%", "0%", 0, -1.0, True, "high", float("inf"), float("nan")])
def test_a_cap_is_a_percentile_or_a_positive_number(cap: Any) -> None:
    with pytest.raises(ValueError, match=r'cap: expected a percentile .* "99%", or a number above 0, found'):
        sm.winsorize(OUTCOME, UNIT, cap=cap)


@pytest.mark.parametrize(
    ("outcome", "unit", "message"),
    [
        ([1.0, np.nan], [1, 2], "outcome: expected a finite number in every row, found nan in row 1; drop"),
        (
            [1.0, 2.0, 3.0],
            ["a", None, None],
            "unit: expected a key in every row, found a missing value in row 1 and 1 more",
        ),
        ([1.0], [1, 2], "unit"),
        ([-1.0, -2.0], [1, 2], "expected a positive 99 % percentile of the totals by unit, found -1 for 2 units"),
        ([], [], "found 0 for 0 units"),
    ],
)
def test_invalid_rows(outcome: Any, unit: Any, message: str) -> None:
    with pytest.raises(sm.InvalidInputError, match=message):
        sm.winsorize(outcome, unit)


def test_a_percentile_of_one_pass_names_the_way() -> None:
    with pytest.raises(
        ValueError, match=r"PerUnit: expected a number as cap=, found '99%'; .*sm.winsorize\(outcome, unit, "
    ):
        sm.PerUnit("revenue", unit="user", cap="99%")  # type: ignore[arg-type]
