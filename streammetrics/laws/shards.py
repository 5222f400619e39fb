"""Laws of shards: values are the metric's, a shard is what its units make, and without it there is what the rest make."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ..batch.columns import Batch
from ..collect.accumulator import definition_of
from ..collect.collection import MetricCollection
from ..collect.definition import coarsened
from ..collect.metric_like import answer_of, columns_of, states_of
from ..compose.sharded import Sharded
from ..compose.sliced import Sliced
from ..compose.windowed import Windowed
from ..count.batch_updater import shard_codes
from ..reading.about import sharded_refusal_of
from ..state.axes import Axis
from ..state.declare import Tally
from ..state.pair_levels import at_levels
from ..state.state import State
from .case import Case, Law, expect, folded, quiet, same, same_value
from .objects import absent_class, bytes_round_trip, merge_leaves_other, merge_with_itself, order, splits
from .specimens import KEYS, Columns, sample_keys

__all__ = ["SHARD_LAWS"]

SHARDS = 8
UNIT = "whose"  # a column that no metric reads for itself


def shards_are_alone(case: Case) -> None:
    """Values are those of the metric alone, to the byte; each shard, at its resolution, is what its units make alone."""
    units = _units(case)
    sharded = sharding(case)().update(case.columns | units)
    alone = case.fed()
    states = states_of(sharded)
    half = len(states) // 2
    for ours, theirs in zip(states[:half], states_of(alone), strict=True):
        expect(ours == theirs, "the state of the metric alone", "another")
    of, bits = shards_of(units[UNIT]), definition_of(sharded).shard_bits
    for k in np.unique(of).tolist():
        mine = case.fed(case.take(np.flatnonzero(of == k)))
        for parts, theirs in zip(states[half:], states_of(mine), strict=True):
            at = np.flatnonzero(parts.cells.words[-1].values[parts.cells.keys[:, -1]] == k)
            expect(parts.under(at, 1) == coarsened(theirs, bits), f"shard {k} to be its units'", "another")


def without_each_shard(case: Case) -> None:
    """What a metric says without a shard is what the other rows make, at the resolution of the shards."""
    metric = case.metric
    if metric is None or sharded_refusal_of(metric):
        return
    if metric.settings.get("q") in (0.0, 1.0):  # extremes are not known once the row that has one may be gone
        return
    units = _units(case)
    sharded = sharding(case)().update(case.columns | units)
    definition = definition_of(sharded)
    found = quiet(partial(definition.samples, states_of(sharded)))
    of, whole = shards_of(units[UNIT]), case.fed()
    for k in range(SHARDS):
        rest = case.fed(case.take(np.flatnonzero(of != k)))
        if folded(rest) != folded(whole):  # so few rows are kept exactly, and have other values
            continue
        bits = definition.shard_bits
        state = _at_levels(coarsened(states_of(rest)[0], bits), coarsened(states_of(whole)[0], bits))
        values = dict(quiet(definition_of(metric).read([state]).numbers))
        for one in found:
            shards = one.shards
            if shards is not None and shards.below is None and one.name in values:
                came = float(shards.deleted[k, 0])
                same_value(values[one.name], came, f"{one.name} without shard {k}")
    for one in found:
        if one.shards is not None:
            expect(one.shards.events.sum() == states_of(whole)[0].positives_seen.sum(), "the positives of all shards")


def _at_levels(state: State, whole: State) -> State:
    """Bring the buckets of a state to the levels of another, which holds more rows: what is left of that stays there."""
    cells = state.cells
    for name, part in state.parts().items():
        if isinstance(part, Tally) and part.level is not None and len(state) and not state.axes:
            old, new = state.flat(part.level), whole.flat(part.level)
            entries = at_levels(part, cells.tallies[name], old, new, getattr(state, part.bits))
            cells = replace(cells, flats={**cells.flats, part.level: new}, tallies={**cells.tallies, name: entries})
    return state.holding(cells)


def shards_in_any_order(case: Case) -> None:
    """Shards split and merged in any order, alone, in slices, windows, both and collections, give one digest."""
    units = _units(case)
    shards = sharding(case)
    wrapped: list[Callable[[], Any]] = [
        shards,
        lambda: Sliced(shards(), by="key", limit=2),
        lambda: Sliced(Windowed(shards(), width=10, time="step", keep=2), by="key"),
        lambda: Windowed(Sliced(shards(), by="key"), width=10, time="step"),
        lambda: MetricCollection({"alone": case.make(), "by unit": shards(), "slices": Sliced(shards(), by="key")}),
    ]
    made = wrapped[int(case.rng.integers(len(wrapped)))]
    keys = {"key": sample_keys(case.rng, case.n, str(case.rng.choice(KEYS)), several=3)[case.blocks]}
    steps = {"step": case.rng.integers(0, 60, case.n)[case.blocks]}
    sharded = case._replace(make=made, columns=case.columns | units | keys | steps)
    sharded = sharded._replace(columns={n: c for n, c in sharded.columns.items() if n in columns_of(made())})
    for law in (splits, order, merge_leaves_other, merge_with_itself, bytes_round_trip, absent_class):
        law(sharded)


def shards_in_slices(case: Case) -> None:
    """A slice of shards is what its rows make alone, with its intervals."""
    units = _units(case)
    key = case.rng.integers(0, 2, case.n)[case.blocks]
    sliced = Sliced(sharding(case)(), by="key").update(case.columns | units | {"key": key})
    for value in np.unique(key).tolist():
        rows = np.flatnonzero(key == value)
        alone = sharding(case)().update(case.take(rows) | {UNIT: units[UNIT][rows]})
        same(alone, sliced[value], f"slice {value} to be what its rows make alone")
        one, other = quiet(alone.interval), quiet(sliced.interval)[value]
        if case.metric is not None:
            same_value(answer_of(alone).value, one.estimate, "the estimate of an interval to be the value")
            expect(repr(one) == repr(other), f"the interval of slice {value} alone, {one}", other)


def sharding(case: Case) -> Callable[[], Sharded]:
    """Return what makes empty shards of a case."""
    return lambda: Sharded(case.make(), unit=UNIT, shards=SHARDS)


def shards_of(units: Any) -> Any:
    """The shard of each unit, as a batch has them."""
    return shard_codes(Batch({UNIT: units}), UNIT, Axis((UNIT,), "shard", SHARDS))


def _units(case: Case) -> Columns:
    units = case.rng.integers(0, 20, case.n)[case.blocks]
    return {UNIT: units.astype(f"U{case.rng.integers(2, 9)}") if case.rng.random() < 0.5 else units}


SHARD_LAWS: list[Law] = [shards_are_alone, without_each_shard, shards_in_any_order, shards_in_slices]
"""What a metric keeps in shards."""
