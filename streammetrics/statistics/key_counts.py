"""Exact counts of rows by key, such as campaign, item or country.

Memory use grows with the number of distinct keys, which a setting limits.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ..batch.classes import DiscoveredColumn
from ..batch.discovered_keys import discovered_key
from ..batch.kinds import Need, weight
from ..batch.numbers import number
from ..errors import MemoryLimitError
from ..numerics.elementary import log, log1p
from ..numerics.exact import UNIT, to_float, weights_in_units
from ..numerics.settings import setting
from ..state.axes import Axis, Vocabulary
from ..state.declare import Flat
from ..state.state import State
from .discovered_classes import number_classes
from .step import NOTHING, Like, Step

__all__ = ["KeyCounts", "check_edges", "entropy_term"]

Ints = NDArray[np.int64]


class KeyCounts(State, tag="key_counts"):
    """The number and weight of rows by key. Keys are integers, strings, bytes, booleans, dates, timestamps or decimals.

    Parameters
    ----------
    column : str
        The name of the column of keys.
    limit : int
        The maximum number of distinct keys over all slices. A batch that exceeds it raises MemoryLimitError and is not
        counted.
    missing, missing_values
        How rows with missing keys are treated, and which values count as missing; see `sm.extend.group`.
    edges : tuple of float
        The edges of bins, if the column contains numbers. The keys are then the indices of bins. Bin 0 is below the first
        edge, bin i contains the values v with edges[i - 1] <= v < edges[i], and the last bin is above the last edge. A
        value equal to the last edge belongs to the second-to-last bin.

    Notes
    -----
    A key takes 40 bytes, or 56 bytes if rows have weights, in each slice. The key itself is stored only once.
    """

    column: str = setting(default="value")
    limit: int = setting(default=1 << 20, low=1, high=1 << 28, operational=True)
    missing: str = setting(default="raise", choices=("raise", "skip"))
    missing_values: tuple[int | str | bytes, ...] = setting(default=(), unordered=True)
    edges: tuple[float, ...] = setting(default=())

    counts = Flat()
    excess = Flat(form="fixed", excess_of="counts")

    row_parts = ("counts",)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.edges:
            check_edges(self.edges)

    @property
    def inner_axis(self) -> Axis:  # type: ignore[override] # the column is a setting
        return Axis((self.column,), "class")

    def needs(self) -> tuple[Need, ...]:
        return number(self.column) if self.edges else discovered_key(
            self.column, self.missing, self.missing_values
        ), weight()

    def class_codes(self, columns: Mapping[str, Any], numbers: Any) -> tuple[Ints, ...]:
        column = columns[self.column]
        return (
            number_classes(self.column, self._assign_bins(column.values) if self.edges else column, numbers, "keys"),
        )

    def _assign_bins(self, values: NDArray[Any]) -> DiscoveredColumn:
        """Return the bin index of each number, as a column of integer keys."""
        # Convert numbers to float64 first. Otherwise numpy could round the edges to a narrower dtype, such as float32.
        values = values.astype(np.float64)
        bins = np.searchsorted(self.edges, values, side="right")
        bins[values == self.edges[-1]] -= 1
        return DiscoveredColumn(bins, "integer", np.arange(len(self.edges) + 1))

    def check_class_count(self, count: int) -> None:
        if count > self.limit:
            raise MemoryLimitError(
                f"there are {count:,} different keys, but limit is {self.limit:,}; nothing was counted; pass a larger "
                f"limit="
            )

    def steps(self, like: Like) -> Iterable[Step]:
        own = type(self)
        excess = own.excess if like.has_weights else NOTHING
        return [Step("class_counts:count_cells", "at", "sample_weight", own.counts, excess)]

    def merge(self, *others: Self) -> Self:
        state = super().merge(*others)
        state.check_class_count(len(state.cells.class_vocabulary or ()))
        return state

    # -- reading a state of one cell ----------------------------------------------------------------------------------

    @property
    def unit(self) -> int:
        """The number of units in a weight of 1 (see `masses`): 1, or 2**60 if rows have weights."""
        return 1 if self.excess is None else UNIT

    @cached_property
    def weight_by_key(self) -> dict[Any, int]:
        """A dict that maps each key to its weight in units of 1 / `unit`, sorted by key.

        Keys of weight 0 are left out.
        """
        inner, keys = self.cells.inner_keys, self.cells.class_vocabulary or Vocabulary()
        assert inner is not None
        found = zip(inner[:, 1].tolist(), weights_in_units(self.counts, self.excess).tolist(), strict=True)
        return {keys.read_key(rank): mass for rank, mass in found if mass}

    @cached_property
    def masses(self) -> list[int]:
        """The weights of the keys, sorted from smallest to largest, as Python integers in units of 1 / `unit`.

        Weights of 0 are left out.
        """
        return sorted(mass for mass in weights_in_units(self.counts, self.excess).tolist() if mass)

    @property
    def total(self) -> int:
        """The weight of all rows, in units of 1 / `unit`."""
        return sum(self.masses)

    def weight(self) -> Fraction:
        """Return the exact weight of all rows."""
        return Fraction(self.total, self.unit)

    def mass_of(self, key: Any) -> int:
        """Return the weight of one key, in units of 1 / `unit`; 0 if the key has no rows."""
        return self.weight_by_key.get(key, 0)

    def heaviest_keys(self, k: int) -> list[tuple[Any, int]]:
        """Return the k keys with the largest weights as pairs (key, weight in units of 1 / `unit`), heaviest first.

        Among keys with equal weights, smaller keys come first.
        """
        return sorted(self.weight_by_key.items(), key=lambda pair: -pair[1])[:k]

    def entropy(self) -> float:
        """Return the entropy of the distribution of the weight over the keys, in nats; NaN if the total weight is 0.

        The error is at most a few units in the last place.
        """
        total = self.total
        terms = (n * entropy_term(mass, total) for mass, n in Counter(self.masses).items())
        return math.fsum(terms) if total else math.nan

    def gini(self, keys: int | None = None) -> float:
        """Return the Gini index of the weights of the keys; NaN if the total weight is 0.

        The formula is sum((2 * i - n - 1) * x_i) / (n * sum(x_i)), for weights x_1 <= ... <= x_n. The exact result is
        rounded once.

        Parameters
        ----------
        keys : int, optional
            The number n of possible keys. Keys without rows have weight 0. By default, n is the number of keys with a
            positive weight.
        """
        n = len(self.masses) if keys is None else max(keys, len(self.masses))
        # Keys without rows have weight 0, so they come first in the order. They add nothing to the sum.
        first = n - len(self.masses)
        above = sum((2 * i - n - 1) * mass for i, mass in enumerate(self.masses, first + 1))
        return to_float(above, n * self.total)

    def tail_share(self, k: int) -> float:
        """Return the share of the total weight outside the k heaviest keys; NaN if the total weight is 0."""
        return to_float(sum(self.masses[: max(len(self.masses) - k, 0)]), self.total)

    def facts(self) -> dict[str, Any]:
        return {"rows": int(self.row_counts.sum()), "keys": len(self.masses), "weight": self.weight()}


def check_edges(edges: Any) -> None:
    """Raise ValueError unless `edges` contains at least two numbers in ascending order."""
    if len(edges) < 2 or not all(a < b for a, b in pairwise(edges)):
        raise ValueError(f"edges=: expected at least two numbers in ascending order, found {edges!r}")


def entropy_term(mass: int, total: int) -> float:
    """Return -p * log(p) for the share p = mass / total. The result is accurate even if p is close to 1."""
    rest = log1p(-to_float(total - mass, total)) if 2 * mass > total else log(to_float(mass, total))
    return float(-to_float(mass, total) * rest)
