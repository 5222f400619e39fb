"""Old parts become days without changing what is counted; and all is forgotten when it was to be, and not before."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

import streammetrics as sm
from streammetrics.serve.evaluation.experiment import Experiment
from streammetrics.serve.evaluation.experiment_reader import ExperimentReader
from streammetrics.serve.experiment_simulation import DAY, Simulation
from streammetrics.serve.part_keys import HOUR, PartKey, PostedPart
from streammetrics.serve.store import open_store

SMALL = Simulation(days=5, users=100, rows=20, countries=1, sources=("web",))


@pytest.mark.slow
def test_parts_grow_old(tmp_path: Path) -> None:
    parts = {hour: SMALL.part("web", hour) for hour in range(SMALL.start, SMALL.end, 12)}
    whole = sm.merge(parts.values()).digest()
    kept = replace(Experiment.from_dict(SMALL.definition()), retention_days=30.0)
    now = float(SMALL.end * HOUR)
    with open_store(tmp_path / "a.db") as store:
        put = [
            PostedPart(PartKey(SMALL.id, "web", hour), part.to_bytes(), part.digest(), (hour + 1.0) * HOUR)
            for hour, part in parts.items()
        ]
        store.put(put)
        store.define(SMALL.id, json.dumps(kept.to_dict()), by="test", at=now)
        reader = ExperimentReader(store)
        totals = reader.totals

        def states() -> list[str]:
            return [entry.state for entry in store.ledger(SMALL.id)]

        reader.compact(SMALL.id, now)
        assert states() == ["folded"] * 4 + ["current"] * 6
        assert totals.digest(SMALL.id) == whole
        reader.compact(SMALL.id, now + 29 * DAY * HOUR)
        assert states() == ["folded"] * 10
        assert totals.digest(SMALL.id) == whole
        reader.compact(SMALL.id, now + 30 * DAY * HOUR)
        assert states() == ["forgotten"] * 10
        assert totals.total(SMALL.id) is None
