"""Two sides of a comparison, cell by cell: what both have, joined by the name of the number and the key of the cell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..reading.replicates import Sample, Shards

__all__ = ["Left", "Pair", "at_cells", "joined", "paired"]

Key = tuple[Any, ...]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Pair:
    """A number of both sides, in the cells that both have.

    Parameters
    ----------
    name : str
        Of the number.
    a, b : Sample
        The sides, of the same cells in the same order.
    """

    name: str
    a: Sample
    b: Sample

    @property
    def metric(self) -> Any:
        """Whose scale is read, and which values are better."""
        return self.a.metric

    @property
    def keys(self) -> Sequence[Key]:
        """The key of each cell."""
        return self.a.keys


class Left(NamedTuple):
    """What only one side has.

    Parameters
    ----------
    name : str
        Of the number.
    key : tuple
        Of the cell.
    reason : str
        Which side has it not, or how the two differ.
    """

    name: str
    key: Key
    reason: str


def at_cells(sample: Sample, index: Ints) -> Sample:
    """Return some of the cells of a sample."""
    places = index.tolist()

    def estimates() -> Any:
        known = sample.estimates()
        return [known[i] for i in places]

    def quantile(cell: int, share: float) -> float:
        assert sample.quantile is not None
        return sample.quantile(places[cell], share)

    arrays = {name: getattr(sample, name)[index] for name in ("values", "low", "high", "rows")}
    shards = None if sample.shards is None else _shards_at(sample.shards, index)
    return replace(
        sample,
        keys=[sample.keys[i] for i in places],
        estimates=estimates,
        quantile=None if sample.quantile is None else quantile,
        shards=shards,
        **arrays,
    )


def _shards_at(shards: Shards, index: Ints) -> Shards:
    deleted, weights, events = (
        np.ascontiguousarray(x[:, index]) for x in (shards.deleted, shards.weights, shards.events)
    )
    below = None if shards.below is None else np.ascontiguousarray(shards.below[:, index])
    return Shards(shards.plan, deleted, weights, events, below)


def joined(sample: Sample, keys: Sequence[Key]) -> tuple[Sample, Ints]:
    """Return the cells of a sample with these keys, in their order, and which of the keys it has."""
    if list(sample.keys) == list(keys):
        return sample, np.arange(len(keys))
    at = {key: i for i, key in enumerate(sample.keys)}
    known = [(k, at[key]) for k, key in enumerate(keys) if key in at]
    return at_cells(sample, np.array([i for _, i in known], np.int64)), np.array([k for k, _ in known], np.int64)


def paired(a: Sequence[Sample], b: Sequence[Sample]) -> tuple[list[Pair], list[Left]]:
    """Return what both sides have, and the rest with the reason why it is not compared."""
    ours, theirs = {s.name: s for s in a}, {s.name: s for s in b}
    pairs, left = [], []
    for name in dict.fromkeys([*ours, *theirs]):
        one, two = ours.get(name), theirs.get(name)
        if one is None or two is None:
            there = one or two
            assert there is not None
            left += [
                Left(name, key, f"only the {'second' if one is None else 'first'} side has this metric")
                for key in there.keys
            ]
            continue
        if one.metric.about.tag != two.metric.about.tag:
            why = f"the first side's is {one.metric.about.tag}, the second's {two.metric.about.tag}"
            left += [Left(name, key, why) for key in one.keys]
            continue
        second, at = joined(two, one.keys)
        first, _ = joined(one, second.keys)
        pairs.append(Pair(name, first, second))
        left += [Left(name, key, "only the first side has this slice") for key in _without(one.keys, at)]
        known = set(second.keys)
        left += [Left(name, key, "only the second side has this slice") for key in two.keys if key not in known]
    return pairs, left


def _without(keys: Sequence[Key], at: Ints) -> list[Key]:
    """The keys at other places than these."""
    found = set(at.tolist())
    return [key for i, key in enumerate(keys) if i not in found]
