"""The short form of `python -m benchmarks.experiments`, and that its decisions are those of evaluations."""

import math

import numpy as np
import pytest
from experiments import START, experiment

from benchmarks.experiments import HOURLY, LOOKS, NARROW, WIDE, Hour, decided, effect, hours, so_far, watched
from streammetrics.inference.pairs import select_cells
from streammetrics.inference.verdict import Progress
from streammetrics.serve.evaluation.treatment_comparison import TreatmentComparison


def sides(hour: Hour, treatments: int, run: int, progress: Progress, margin: float) -> list[TreatmentComparison]:
    """The sides of one of the runs, as an evaluation makes them."""
    names = ["old", *(f"new{i}" for i in range(treatments))]
    one = experiment(
        arms=dict.fromkeys(names, 1),
        guardrails={"errors": margin},
        better={"ctr": "high", "errors": "low"},
        secondary=[],
        model=[],
        start=START,
    )
    at = np.array([run])
    cells = [[select_cells(s, at) for s in arm.values()] for arm in hour.arms]
    arms = dict(zip(names, cells, strict=True))
    return [TreatmentComparison(one, name, arms, progress) for name in names[1:]]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("treatments", "lift", "margin"), [(1, 0.0, NARROW), (1, 0.3, WIDE), (1, -0.3, WIDE), (3, 0.4, WIDE)]
)
def test_decisions_are_those_of_evaluations(treatments, lift, margin):
    runs, arms, seen = 4, treatments + 1, set()
    for hour in hours(runs, arms, lift, looks=120):
        if hour.look not in (5, 60, 120):
            continue
        progress = so_far(hour.look, arms, HOURLY * 120.0)
        for arm in range(1, arms):
            good, bad = decided(hour, arm, progress, treatments, margin)
            for run in range(runs):
                told = sides(hour, treatments, run, progress, margin)[arm - 1].build_verdict()
                seen.add(told.decision)
                assert bad[run] == (told.decision == "do not")
                assert (good[run] and not bad[run]) == (told.decision == "ship")
    assert len(seen) > 1 or lift == 0.0


@pytest.mark.slow
def test_a_false_verdict_is_seldom_ever_shown():
    for treatments, runs in ((1, 40), (3, 20)):
        found = watched(runs, treatments, looks=48, first=24)
        most = 0.05 * runs + 2.6 * math.sqrt(0.05 * 0.95 * runs)
        assert found.early.sum() <= most
        assert (found.shown <= found.early).all()
        assert found.alarmed.sum() <= max(2, 0.02 * runs)
        assert found.peeked.mean() > 0.15


@pytest.mark.slow
def test_a_true_effect_is_found_with_the_planned_users():
    lift, at = effect(48)
    found = watched(50, 1, lift, margin=WIDE, looks=48, first=1, at=at)
    assert 0.6 < (found.ship > 0).mean() < 0.97
    assert 0.6 < found.once.mean() < 0.97
    assert 1.5 < 48 / at < 1.9
    assert np.median(found.ship[found.ship > 0]) < 48 < LOOKS
