"""What peers roll: the last updates and rows, as torchmetrics, torcheval and river keep them."""

from __future__ import annotations

import tomllib
from collections import deque
from pathlib import Path

import numpy as np
import pytest

import streammetrics as sm
from streammetrics.collect.metric_like import empty_copy

TABLE = Path(sm.__file__).parent / "guide" / "peers" / "values.toml"
rng = np.random.default_rng(12)
BATCHES = [(rng.integers(0, 2, n), rng.random(n), rng.integers(1, 4, n) / 2) for n in rng.integers(1, 9, 60)]


@pytest.mark.slow
@pytest.mark.parametrize("window", [1, 5, 100])
def test_running_means_and_sums_of_updates(window: int) -> None:
    mean, total = sm.Recent(sm.Mean(), steps=window), sm.Recent(sm.Sum(), steps=window)
    kept: deque = deque(maxlen=window)  # as torchmetrics keeps the states of updates: sum and weight of each
    for _, v, w in BATCHES:
        kept.append(((v * w).sum(), w.sum()))
        mean.update(v, sample_weight=w)
        total.update(v, sample_weight=w)
        tops, bottoms = map(sum, zip(*kept, strict=True))
        assert mean.compute() == pytest.approx(tops / bottoms, rel=1e-12)
        assert total.compute() == pytest.approx(tops, rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("window", [1, 7, 64])
def test_rolling_rows(window: int) -> None:
    rolled = sm.Recent([sm.CTR(), sm.MAE()], rows=window)
    kept: deque = deque(maxlen=window)  # as river's Rolling keeps rows
    for y, p, _ in BATCHES:
        kept.extend(zip(y.tolist(), p.tolist(), strict=True))
        rolled.update(y_true=y, y_pred=p)
        labels, guesses = map(np.array, zip(*kept, strict=True))
        assert rolled.compute() == pytest.approx({"ctr": labels.mean(), "mae": np.abs(labels - guesses).mean()})


def test_the_table_of_peers_names_what_there_is() -> None:
    for peer in tomllib.loads(TABLE.read_text()).values():
        for lines in peer.values():
            for line in lines:
                assert set(line) in (
                    {"why"},
                    *({"ours", "data", *more} for more in ((), ("note",), ("arguments", "note"))),
                )
                if "ours" in line:
                    assert empty_copy(eval(line["ours"], vars(sm))) is not None
