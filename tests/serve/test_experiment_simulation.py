"""The simulation has the effects that it says, from the day that it says, and the same rows every time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import streammetrics as sm
from streammetrics.serve.evaluation.experiment import Experiment
from streammetrics.serve.experiment_simulation import METRICS, Simulation

SIMULATED = Simulation(users=4000, days=4, rows=2000, effect=0.5, effect_from=2.0, slow_from=3.0)


def rate(day: int, arm: str, column: str) -> float:
    hours = range(SIMULATED.start + 24 * day, SIMULATED.start + 24 * day + 24, 3)
    logs = [SIMULATED.log(source, hour) for source in SIMULATED.sources for hour in hours]
    return float(np.concatenate([log[column][log["arm"] == arm] for log in logs]).mean())


def test_the_effect_begins_on_its_day() -> None:
    before, after = (rate(day, "treatment", "click") / rate(day, "control", "click") for day in (1, 2))
    assert before == pytest.approx(1.0, abs=0.08)
    assert after == pytest.approx(1.5, abs=0.15)  # of the odds e^0.5 = 1.65, of the rate a little less


def test_latency_breaks_on_its_day_and_else_never() -> None:
    before, after = (rate(day, "treatment", "latency") / rate(day, "control", "latency") for day in (2, 3))
    assert before == pytest.approx(1.0, abs=0.03)
    assert after == pytest.approx(1.4, abs=0.04)


@pytest.mark.slow
def test_every_user_is_exposed_once_in_one_arm_at_one_source() -> None:
    seen: list[int] = []
    arms: dict[int, str] = {}
    for hour in range(SIMULATED.start, SIMULATED.end):
        for source in SIMULATED.sources:
            log = SIMULATED.log(source, hour)
            seen += log["user"][log["exposed"] == 1].tolist()
            for user, arm in zip(log["user"].tolist(), log["arm"].tolist(), strict=True):
                assert arms.setdefault(user, arm) == arm
    assert sorted(seen) == list(range(4000))


def test_parts_are_what_a_dashboard_takes() -> None:
    part = SIMULATED.part("web", SIMULATED.start + 5)
    log = SIMULATED.log("web", SIMULATED.start + 5)
    defined = Experiment.from_dict(SIMULATED.definition())
    assert part.by == (defined.arm, *defined.slices)
    assert {*defined.metrics, defined.counts} <= set(METRICS)
    mine = (log["arm"] == "control") & (log["country"] == "br")
    values = sm.from_bytes(part.to_bytes()).compute()["control", "br"]
    assert tuple(values) == METRICS
    assert values["ctr"] == log["click"][mine].mean()
    assert replace(SIMULATED).part("web", SIMULATED.start + 5).digest() == part.digest()
    assert SIMULATED.part("app", SIMULATED.start + 5).digest() != part.digest()
