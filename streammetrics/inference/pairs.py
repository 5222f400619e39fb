"""Match the metrics and cells (slices) of the two sides of a comparison by metric name and slice key.

A `Sample` contains the values of one metric in all its cells on one side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..reading.replicates import Sample, Shards
from ..statistics.value_order import BucketWeights

__all__ = ["Pair", "UnmatchedCell", "pair_samples", "select_cells", "select_keys"]

Key = tuple[Any, ...]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Pair:
    """One metric on both sides of a comparison, in the cells (slices) that exist on both sides.

    Parameters
    ----------
    name : str
        Name of the metric.
    a, b : Sample
        The values of the metric on each side, with the same cells in the same order.
    """

    name: str
    a: Sample
    b: Sample

    @property
    def metric(self) -> Any:
        """The metric object of side `a`. It defines the scale of the values and which values are better."""
        return self.a.metric

    @property
    def keys(self) -> Sequence[Key]:
        """The slice key of each cell; without slices, a single empty tuple."""
        return self.a.keys


class UnmatchedCell(NamedTuple):
    """A metric that cannot be compared in one cell (slice), with the reason.

    Parameters
    ----------
    name : str
        Name of the metric.
    key : tuple
        Key of the cell.
    reason : str
        Which side lacks the cell, or how the metrics differ.
    """

    name: str
    key: Key
    reason: str


def select_cells(sample: Sample, index: Ints) -> Sample:
    """Return a sample that contains only the cells (slices) at the positions `index`, in that order."""
    places = index.tolist()

    def estimates() -> Any:
        all_estimates = sample.estimates()
        return [all_estimates[i] for i in places]

    def quantile(cell: int, share: float) -> float:
        assert sample.quantile is not None
        return sample.quantile(places[cell], share)

    def buckets(cell: int) -> BucketWeights:
        assert sample.buckets is not None
        return sample.buckets(places[cell])

    arrays = {name: getattr(sample, name)[index] for name in ("values", "low", "high", "rows")}
    shards = None if sample.shards is None else _select_shard_cells(sample.shards, index)
    return replace(
        sample,
        keys=[sample.keys[i] for i in places],
        estimates=estimates,
        quantile=None if sample.quantile is None else quantile,
        buckets=None if sample.buckets is None else buckets,
        shards=shards,
        **arrays,
    )


def _select_shard_cells(shards: Shards, index: Ints) -> Shards:
    def replicate(count: int) -> NDArray[np.float64]:
        return np.ascontiguousarray(shards.replicate(count)[:, index])

    weights, events = (np.ascontiguousarray(x[:, index]) for x in (shards.weights, shards.events))
    below, edges = (None if x is None else np.ascontiguousarray(x[..., index]) for x in (shards.below, shards.edges))
    names = np.broadcast_to(shards.events_names, shards.weights.shape[1:])[index]
    states = None if shards.states is None else replace(shards.states, bounds=shards.states.bounds[index])
    return Shards(shards.plan, replicate, weights, events, below, edges, names, states)


def select_keys(sample: Sample, keys: Sequence[Key]) -> tuple[Sample, Ints]:
    """Return the cells (slices) of a sample that have the given keys, in the order of `keys`.

    Also return the positions in `keys` of the keys that the sample contains.
    """
    if list(sample.keys) == list(keys):
        return sample, np.arange(len(keys))
    position_of = {key: i for i, key in enumerate(sample.keys)}
    matches = [(k, position_of[key]) for k, key in enumerate(keys) if key in position_of]
    return select_cells(sample, np.array([i for _, i in matches], np.int64)), np.array(
        [k for k, _ in matches], np.int64
    )


def pair_samples(a: Sequence[Sample], b: Sequence[Sample]) -> tuple[list[Pair], list[UnmatchedCell]]:
    """Return a `Pair` for each metric that both sides have, and the cells (slices) that cannot be compared, and why."""
    ours, theirs = {s.name: s for s in a}, {s.name: s for s in b}
    pairs, unmatched = [], []
    for name in dict.fromkeys([*ours, *theirs]):
        first_sample, second_sample = ours.get(name), theirs.get(name)
        if first_sample is None or second_sample is None:
            present = first_sample or second_sample
            assert present is not None
            unmatched += [
                UnmatchedCell(
                    name, key, f"only the {'second' if first_sample is None else 'first'} side has this metric"
                )
                for key in present.keys
            ]
            continue
        if first_sample.metric.about.tag != second_sample.metric.about.tag:
            reason = (
                f"the first side has {first_sample.metric.about.tag} under this name, "
                f"the second side {second_sample.metric.about.tag}"
            )
            unmatched += [UnmatchedCell(name, key, reason) for key in first_sample.keys]
            continue
        second, positions = select_keys(second_sample, first_sample.keys)
        first, _ = select_keys(first_sample, second.keys)
        pairs.append(Pair(name, first, second))
        unmatched += [
            UnmatchedCell(name, key, "only the first side has this slice")
            for key in _drop_positions(first_sample.keys, positions)
        ]
        common_keys = set(second.keys)
        unmatched += [
            UnmatchedCell(name, key, "only the second side has this slice")
            for key in second_sample.keys
            if key not in common_keys
        ]
    return pairs, unmatched


def _drop_positions(keys: Sequence[Key], at: Ints) -> list[Key]:
    """Return the keys except those at the positions `at`."""
    dropped = set(at.tolist())
    return [key for i, key in enumerate(keys) if i not in dropped]
