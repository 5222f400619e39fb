"""Scores of any size that lie far from 0 with a small spread, where few buckets would hold all of them."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

import streammetrics as sm
from streammetrics.collect.metric_like import empty_copy, with_states
from streammetrics.statistics import scores as module
from streammetrics.statistics.scores import ScoreHistogram

N = 70_000
OFFSETS = (1e3, 1e6, -1e6, 1e9, 2.0**20)


def rows(offset: float, n: int = N, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = (rng.random(n) < 0.3).astype(np.uint8)
    return {"y_true": y, "y_score": offset + rng.normal(size=n) + 0.7 * y}


def parts(data: dict[str, np.ndarray], index: np.ndarray) -> dict[str, np.ndarray]:
    return {name: column[index] for name, column in data.items()}


@pytest.mark.parametrize("scale", ["real", "logit"])
@pytest.mark.parametrize("offset", OFFSETS)
def test_they_are_ranked_as_scikit_learn_does(offset, scale):
    data = rows(offset)
    y, s = data["y_true"], data["y_score"]
    fpr, tpr, _ = roc_curve(y, s)
    for metric, value in (
        (sm.AUC(scale=scale), roc_auc_score(y, s)),
        (sm.AveragePrecision(scale=scale), average_precision_score(y, s)),
        (sm.KS(scale=scale), np.max(tpr - fpr)),
    ):
        for piece in np.array_split(np.arange(N), 3):
            metric.update(**parts(data, piece))
        assert metric.compute() == pytest.approx(value, abs=1e-9)
        low, high = metric.bounds()
        assert high - low < 1e-12


def test_float32_far_from_zero_stays_exact_for_any_number_of_rows():
    data = rows(1e6, 300_000)
    data["y_score"] = data["y_score"].astype(np.float32)
    metric = sm.AUC(scale="real").update(**data)
    assert metric.compute() == pytest.approx(roc_auc_score(data["y_true"], data["y_score"]), abs=1e-12)
    assert len(metric.to_bytes()) < 4_000


@pytest.mark.parametrize("offset", [0.0, 1e3, 1e6])
def test_splits_and_merges_change_no_byte(offset, monkeypatch):
    """About 0 they go to buckets; far from it they stay, until there are too many different ones."""
    monkeypatch.setattr(module, "MAX_EXACT_SCORES", 900)
    rng = np.random.default_rng(1)
    for n in (50, 300, 850, 2_000):
        data = rows(offset, n) | {"sample_weight": rng.choice([0.0, 1.0, 0.3], n), "user": rng.integers(0, 3, n)}
        metric = sm.AUC(scale="real", bits=15, limit=40)
        for one in (metric, sm.Sliced(metric, by="user")):
            columns = data if one is not metric else {k: v for k, v in data.items() if k != "user"}
            whole = empty_copy(one).update(columns).to_bytes()
            for many in (2, 7):
                split = [parts(columns, i) for i in np.array_split(rng.permutation(n), many)]
                fed, made = empty_copy(one), [empty_copy(one).update(part) for part in split]
                for part in split:
                    fed.update(part)
                assert fed.to_bytes() == whole
                assert sm.merge(made).to_bytes() == whole
                assert sm.merge([sm.from_bytes(m.to_bytes()) for m in made]).to_bytes() == whole


def test_many_different_scores_go_to_buckets_and_their_bounds_say_so(monkeypatch):
    monkeypatch.setattr(module, "MAX_EXACT_SCORES", 1_000)
    data = rows(1e6, 2_000)
    metric = sm.AUC(scale="real", limit=100).update(**data)
    assert metric.state.has_buckets
    low, high = metric.bounds()
    assert low <= roc_auc_score(data["y_true"], data["y_score"]) <= high
    with pytest.warns(sm.WideBoundsWarning, match="exact=True"):
        metric.compute()


def test_scores_that_should_be_in_buckets_are_refused():
    """Nobody can hand over a state that would differ from what its rows make."""
    near = rows(0.0, 3_000)
    exact = sm.AUC(scale="real", limit=10_000).update(**near).state
    assert not exact.has_buckets
    wrong = ScoreHistogram(scale="real", bits=19, limit=100).with_cells(exact.cells)
    with pytest.raises(sm.StateFormatError, match="too many exact rows"):
        sm.from_bytes(with_states(sm.AUC(scale="real", limit=100), (wrong,)).to_bytes())
