"""The walk of a batch: it goes down through the folders of the package, and comes back to one that it has left seldom."""

from __future__ import annotations

import os
import sys
from typing import Any

import numpy as np
import pytest

import streammetrics as sm

ROOT = os.path.join(os.path.dirname(sm.__file__), "")
MOST_RETURNS = 20


def walk(thing: Any, batch: dict[str, Any]) -> list[str]:
    """The folders in which functions are called for the first time while a batch is counted, in their order."""
    found: dict[tuple[str, str], str] = {}

    def note(frame: Any, event: str, argument: Any) -> None:
        path = frame.f_code.co_filename
        if event == "call" and path.startswith(ROOT):
            found.setdefault((path, frame.f_code.co_name), path[len(ROOT) :].split("/")[0])

    sys.setprofile(note)
    try:
        thing.update(batch)
    finally:
        sys.setprofile(None)
    folders = list(found.values())
    return [name for i, name in enumerate(folders) if not i or folders[i - 1] != name]


@pytest.mark.cpu_limit(4)  # it may compile
def test_a_batch_returns_seldom() -> None:
    rng = np.random.default_rng(0)
    batch = {
        "click": rng.integers(0, 2, 100).astype(np.uint8),
        "p": rng.random(100),
        "country": np.array(["a", "b"])[rng.integers(0, 2, 100)],
    }
    metrics = sm.MetricCollection(sm.Task([sm.AUC(), sm.LogLoss()], y_true="click", y_score="p"))
    sliced = sm.Sliced(metrics, by="country").update(batch)
    # Now and then a batch also brings the cells up to date that earlier batches wrote to. The usual batch does not.
    stops = min((walk(sliced, batch) for _ in range(3)), key=len)
    assert stops[0] == "collect"
    assert len(stops) - len(set(stops)) <= MOST_RETURNS, " > ".join(stops)
