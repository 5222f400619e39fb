"""Users are counted once, in a job of their own; with outcomes of any workers, it is as one pass over all rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import streammetrics as sm
from streammetrics.errors import InvalidInputError
from streammetrics.serve.evaluation.merge_parts import merge_parts

HOURS, USERS, ROWS = 3, 400, 5_000


def make() -> Any:
    clicks = sm.Task([sm.CTR(), sm.AUC(bits=10)], y_true="click", y_score="pctr")
    outcomes = sm.PerUnit("click", unit="user_id"), sm.PerUnit("revenue", unit="user_id", cap=50)
    return sm.Sliced(sm.Sharded(sm.MetricCollection(clicks, *outcomes), unit="user_id"), by=["arm", "country"])


def world() -> tuple[dict[str, Any], dict[str, Any]]:
    """A log of outcomes with its hours and workers, and the table of assignments, in which users come back."""
    rng = np.random.default_rng(3)
    user = rng.integers(0, USERS, ROWS)
    log = {
        "user_id": user,
        "arm": np.array(["old", "new"])[user % 2],
        "country": np.array(["br", "de", "us"])[user % 3],
    }
    log |= {"click": rng.random(ROWS) < 0.2, "pctr": rng.random(ROWS), "revenue": rng.gamma(2, 10, ROWS)}
    log |= {"hour": rng.integers(0, HOURS, ROWS), "worker": rng.integers(0, 2, ROWS)}
    return log, {name: log[name] for name in ("user_id", "arm", "country", "hour")}


def take(table: dict[str, Any], rows: Any) -> dict[str, Any]:
    return {name: values[rows] for name, values in table.items()}


def outcomes_of(log: dict[str, Any], rows: Any) -> dict[str, Any]:
    return {name: values[rows] for name, values in log.items() if name not in ("hour", "worker")}


def first_exposures(assignments: dict[str, Any]) -> dict[str, Any]:
    order = np.argsort(assignments["hour"], kind="stable")
    first = order[np.unique(assignments["user_id"][order], return_index=True)[1]]
    return take(assignments, first) | {"exposed": np.ones(len(first))}


def test_two_hourly_workers_and_a_job_of_exposures_equal_one_pass() -> None:
    log, assignments = world()
    first = first_exposures(assignments)
    parts = []
    for hour in range(HOURS):
        for worker in range(2):
            rows = (log["hour"] == hour) & (log["worker"] == worker)
            parts.append(make().update(outcomes_of(log, rows)).to_bytes())
        new = take(first, first["hour"] == hour)
        parts.append(sm.count_exposures(make(), {k: v for k, v in new.items() if k != "hour"}).to_bytes())
    total = merge_parts(np.random.default_rng(0).permutation(np.array(parts, object)).tolist())
    exposures = {k: v for k, v in first.items() if k != "hour"}
    whole = make().update(outcomes_of(log, np.arange(ROWS))).merge(sm.count_exposures(make(), exposures))
    assert total.digest() == whole.digest()
    # A single table, in which one row of each user is the exposure, gives the same values to the bit.
    flagged = outcomes_of(log, np.arange(ROWS)) | {"exposed": np.zeros(ROWS)}
    flagged["exposed"][np.unique(log["user_id"], return_index=True)[1]] = 1.0
    assert make().update(flagged).compute() == total.compute()
    arms = total.rollup("arm")
    ours = sm.compare(arms["new"], arms["old"])
    theirs = sm.compare(*(make().update(flagged).rollup("arm")[arm] for arm in ("new", "old")))
    assert str(ours) == str(theirs)
    for name in ("click_per_user_id", "revenue_per_user_id_capped"):
        counted = sum(arms[arm].only([name]).explain()[name]["exposures"] for arm in ("old", "new"))
        assert counted == len(np.unique(log["user_id"])) < ROWS


def test_exposures_need_a_metric_that_counts_them_and_change_nothing_else() -> None:
    table = {"user": [1, 2], "arm": ["a", "b"], "exposed": [1, 1]}
    with pytest.raises(InvalidInputError, match=r"add sm\.PerUnit"):
        sm.count_exposures(sm.Sliced(sm.CTR(), by="arm"), table)
    alone = sm.Sliced(sm.PerUnit("buy", unit="user"), by="arm")
    counted = sm.count_exposures(alone, table)
    assert counted.compute() == {"a": 0.0, "b": 0.0}
    assert alone.digest() == sm.Sliced(sm.PerUnit("buy", unit="user"), by="arm").digest() != counted.digest()
    both = sm.Sliced(sm.MetricCollection(sm.Task(sm.CTR(), y_true="buy"), sm.PerUnit("buy", unit="user")), by="arm")
    held = both.copy().update(table | {"buy": [1, 1]})
    assert sm.count_exposures(held, table).compute()["a"]["buy_per_user"] == 0.0
