"""Laws of `Sharded` metrics, which split units (such as users) into shards and keep a state for each shard.

A sharded metric contains one full-resolution state of all rows, and a state with coarser histograms for each shard.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ..batch.columns import Batch
from ..collect.accumulator import definition_of
from ..collect.collection import MetricCollection
from ..collect.definition import coarsen_state
from ..collect.metric_like import answer_of, columns_of, states_of
from ..compose.leave_one_shard_out import NEED_NEGATIVES
from ..compose.sharded import Sharded
from ..compose.sliced import Sliced
from ..compose.windowed import Windowed
from ..count.drafts import compute_shards
from ..reading.about import sharded_refusal_of
from ..state.axes import Axis
from ..state.declare import Tally
from ..state.pair_levels import raise_part_levels
from ..state.state import State
from .case import Case, Law, expect, expect_same_bytes, expect_same_value, folded_cells, without_warnings
from .objects import absent_class, bytes_round_trip, merge_leaves_other, merge_with_itself, order, splits
from .specimens import KEYS, Columns, sample_keys

__all__ = ["SHARD_LAWS"]

SHARDS = 8
# The name of the unit column in the generated rows. It must differ from the names of all columns that metrics read.
UNIT = "whose"


def shards_equal_metrics(case: Case) -> None:
    """The state of all rows equals that of an unsharded metric; a shard equals a coarsened metric of its rows alone."""
    units = _random_units(case)
    sharded = shards_factory(case)().update(case.columns | units)
    alone = case.build()
    states = states_of(sharded)
    half = len(states) // 2
    for ours, theirs in zip(states[:half], states_of(alone), strict=True):
        expect(ours == theirs, "the state of the metric alone", "another")
    of, bits = shards_of(units[UNIT]), definition_of(sharded).shard_bits
    for k in np.unique(of).tolist():
        mine = case.build(case.take(np.flatnonzero(of == k)))
        for parts, theirs in zip(states[half:], states_of(mine), strict=True):
            at = np.flatnonzero(parts.cells.vocabularies[-1].values[parts.cells.keys[:, -1]] == k)
            expect(
                parts.drop_leading_axes(at, 1) == coarsen_state(theirs, bits),
                f"shard {k} to equal the metric of its units",
                "another",
            )


def without_each_shard(case: Case) -> None:
    """The value without a shard (leave-one-out) equals the value of the other rows in equally coarse histograms."""
    metric = case.metric
    if metric is None or sharded_refusal_of(metric):
        return
    # Skip the minimum and maximum (quantiles 0 and 1). They are unknown without a shard, because that shard may
    # contain the extreme row.
    if metric.settings.get("q") in (0.0, 1.0):
        return
    units = _random_units(case)
    sharded = shards_factory(case)().update(case.columns | units)
    definition = definition_of(sharded)
    samples = without_warnings(partial(definition.samples, states_of(sharded)))
    of, whole = shards_of(units[UNIT]), case.build()
    tables = {
        s.name: without_warnings(partial(getattr, s.shards, "leave_one_out")) for s in samples if s.shards is not None
    }
    for k in range(SHARDS):
        rest = case.build(case.take(np.flatnonzero(of != k)))
        # Without the shard, so few rows may remain that the state keeps them exactly. Their exact value differs
        # slightly from the value of a histogram, so skip this shard.
        if folded_cells(rest) != folded_cells(whole):
            continue
        bits = definition.shard_bits
        state = _at_levels(coarsen_state(states_of(rest)[0], bits), coarsen_state(states_of(whole)[0], bits))
        values = dict(without_warnings(definition_of(metric).read([state]).numbers))
        for one in samples:
            shards = one.shards
            if shards is not None and shards.below is None and one.name in values:
                value = float(tables[one.name][k, 0])
                expect_same_value(values[one.name], value, f"{one.name} without shard {k}")
    counted = states_of(whole)[0]
    events = counted.positive_counts.sum()
    if isinstance(counted, NEED_NEGATIVES):
        events = min(events, counted.row_counts.sum() - events)
    for one in samples:
        if one.shards is not None:
            expect(one.shards.events.sum() == events, "the shards to contain all positives, or all negatives if fewer")


def _at_levels(state: State, whole: State) -> State:
    """Return `state` with its buckets made as wide as those of `whole`, which contains more rows.

    Buckets become wider with more rows, and subtracting a shard does not make them narrower again.
    """
    cells = state.cells
    for name, part in state.parts().items():
        if isinstance(part, Tally) and part.level is not None and len(state) and not state.axes:
            old, new = state.read_cells_named(part.level), whole.read_cells_named(part.level)
            entries = raise_part_levels(part, cells.tallies[name], old, new, getattr(state, part.bits))
            cells = replace(cells, flats={**cells.flats, part.level: new}, tallies={**cells.tallies, name: entries})
    return state.with_cells(cells)


def shards_in_any_order(case: Case) -> None:
    """Sharded metrics, even within slices or windows, give the same bytes for any split of rows and any merge order."""
    units = _random_units(case)
    shards = shards_factory(case)
    wrapped: list[Callable[[], Any]] = [
        shards,
        lambda: Sliced(shards(), by="key", limit=2),
        lambda: Sliced(Windowed(shards(), width=10, time="step", keep=2), by="key"),
        lambda: Windowed(Sliced(shards(), by="key"), width=10, time="step"),
        lambda: MetricCollection({"alone": case.make(), "by unit": shards(), "slices": Sliced(shards(), by="key")}),
    ]
    make = wrapped[int(case.rng.integers(len(wrapped)))]
    keys = {"key": sample_keys(case.rng, case.n, str(case.rng.choice(KEYS)), several=3)[case.blocks]}
    steps = {"step": case.rng.integers(0, 60, case.n)[case.blocks]}
    sharded = case._replace(make=make, columns=case.columns | units | keys | steps)
    sharded = sharded._replace(columns={n: c for n, c in sharded.columns.items() if n in columns_of(make())})
    for law in (splits, order, merge_leaves_other, merge_with_itself, bytes_round_trip, absent_class):
        law(sharded)


def shards_in_slices(case: Case) -> None:
    """A slice of a sharded metric has the state and interval of a sharded metric that counted only the slice's rows."""
    units = _random_units(case)
    key = case.rng.integers(0, 2, case.n)[case.blocks]
    sliced = Sliced(shards_factory(case)(), by="key").update(case.columns | units | {"key": key})
    for value in np.unique(key).tolist():
        rows = np.flatnonzero(key == value)
        alone = shards_factory(case)().update(case.take(rows) | {UNIT: units[UNIT][rows]})
        expect_same_bytes(alone, sliced[value], f"slice {value} to equal the metric of its rows")
        one, other = without_warnings(alone.interval), without_warnings(sliced.interval)[value]
        if case.metric is not None:
            expect_same_value(answer_of(alone).value, one.estimate, "the estimate of an interval to be the value")
            expect(repr(one) == repr(other), f"slice {value} to have the interval of its rows alone, {one}", other)


def shards_factory(case: Case) -> Callable[[], Sharded]:
    """Return a function that creates an empty sharded metric."""
    return lambda: Sharded(case.make(), unit=UNIT, shards=SHARDS)


def shards_of(units: Any) -> Any:
    """Return the shard number of each unit (user ID)."""
    return compute_shards(Batch({UNIT: units}), UNIT, Axis((UNIT,), "shard", SHARDS))


def _random_units(case: Case) -> Columns:
    units = case.rng.integers(0, 20, case.n)[case.blocks]
    return {UNIT: units.astype(f"U{case.rng.integers(2, 9)}") if case.rng.random() < 0.5 else units}


SHARD_LAWS: list[Law] = [shards_equal_metrics, without_each_shard, shards_in_any_order, shards_in_slices]
"""The laws of this module, in the order in which `check_metric` runs them."""
