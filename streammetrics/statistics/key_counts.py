"""Rows by key, exactly: how often each campaign, item or country came, in memory that grows with keys up to a limit."""

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

from ..batch.classes import FoundColumn
from ..batch.discovered_keys import found_key
from ..batch.kinds import Need, weight
from ..batch.numbers import number
from ..errors import MemoryLimitError
from ..numerics.elementary import log, log1p
from ..numerics.exact import UNIT, to_float, weights
from ..numerics.settings import setting
from ..state.axes import Axis, Vocabulary
from ..state.declare import Flat
from ..state.state import State
from .found_classes import numbered
from .step import NOTHING, Like, Step

__all__ = ["KeyCounts", "check_edges", "surprise"]

Ints = NDArray[np.int64]


class KeyCounts(State, tag="key_counts"):
    """Rows, and their weight, by key: integers, texts, bytes, booleans, dates, timestamps or decimals.

    Parameters
    ----------
    column : str
        The role of the keys.
    limit : int
        How many different keys there may be, in all slices together: MemoryLimitError beyond, and nothing was counted.
    missing, missing_values
        As `sm.extend.group` takes them.
    edges : tuple of float
        If there are any, the column holds numbers, and keys are their bins: 0 for those below the first edge, i for
        edges[i - 1] <= v < edges[i], the last of these with its upper edge, and one more for those above.

    Notes
    -----
    Keys are kept, so they can be named. 40 bytes a key, 56 with weights, and what the key itself takes, once.
    """

    column: str = setting(default="value")
    limit: int = setting(default=1 << 20, low=1, high=1 << 28, operational=True)
    missing: str = setting(default="raise", choices=("raise", "skip"))
    missing_values: tuple[int | str | bytes, ...] = setting(default=(), unordered=True)
    edges: tuple[float, ...] = setting(default=())

    counts = Flat()
    excess = Flat(form="fixed", beside="counts")

    counted = ("counts",)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.edges:
            check_edges(self.edges)

    @property
    def behind(self) -> Axis:  # type: ignore[override] # the column is a setting
        return Axis((self.column,), "class")

    def needs(self) -> tuple[Need, ...]:
        return number(self.column) if self.edges else found_key(
            self.column, self.missing, self.missing_values
        ), weight()

    def class_codes(self, columns: Mapping[str, Any], numbers: Any) -> tuple[Ints, ...]:
        column = columns[self.column]
        return (numbered(self.column, self._binned(column.values) if self.edges else column, numbers, "keys"),)

    def _binned(self, values: NDArray[Any]) -> FoundColumn:
        """Numbers as the bins that they lie in: as float64, beside which an edge is not rounded to their dtype."""
        values = values.astype(np.float64)
        bins = np.searchsorted(self.edges, values, side="right")
        bins[values == self.edges[-1]] -= 1
        return FoundColumn(bins, "integer", np.arange(len(self.edges) + 1))

    def admit_classes(self, count: int) -> None:
        if count > self.limit:
            raise MemoryLimitError(f"there are {count:,} different keys, limit is {self.limit:,}; nothing was counted")

    def steps(self, like: Like) -> Iterable[Step]:
        own = type(self)
        excess = own.excess if like.weighted else NOTHING
        return [Step("class_counts:count_cells", "at", "sample_weight", own.counts, excess)]

    def merge(self, *others: Self) -> Self:
        made = super().merge(*others)
        made.admit_classes(len(made.cells.behind or ()))
        return made

    # -- reading a state of one cell ----------------------------------------------------------------------------------

    @property
    def unit(self) -> int:
        """What a row of weight 1 counts in `masses`."""
        return 1 if self.excess is None else UNIT

    @cached_property
    def held(self) -> dict[Any, int]:
        """What each key weighs, in units, by key in ascending order; those that weigh nothing are left out."""
        inner, keys = self.cells.inner, self.cells.behind or Vocabulary()
        assert inner is not None
        found = zip(inner[:, 1].tolist(), weights(self.counts, self.excess).tolist(), strict=True)
        return {keys.key(rank): mass for rank, mass in found if mass}

    @cached_property
    def masses(self) -> list[int]:
        """What the keys weigh, in units, ascending: Python's integers, without those of 0."""
        return sorted(mass for mass in weights(self.counts, self.excess).tolist() if mass)

    @property
    def total(self) -> int:
        """What all rows weigh, in units."""
        return sum(self.masses)

    def weight(self) -> Fraction:
        """What all rows weigh; exact."""
        return Fraction(self.total, self.unit)

    def mass_of(self, key: Any) -> int:
        """What one key weighs, in units; 0 if it did not come."""
        return self.held.get(key, 0)

    def heaviest(self, k: int) -> list[tuple[Any, int]]:
        """The k keys that weigh most, and what each does, in units; of equal ones the first in ascending order."""
        return sorted(self.held.items(), key=lambda pair: -pair[1])[:k]

    def entropy(self) -> float:
        """The entropy of the shares of the keys, in nats; NaN without weight. Some ulp from the true one, for ever."""
        total = self.total
        terms = (n * surprise(mass, total) for mass, n in Counter(self.masses).items())
        return math.fsum(terms) if total else math.nan

    def gini(self, keys: int | None = None) -> float:
        """The Gini index of the weights, over so many keys of which the others weigh 0; rounded once, NaN without weight.

        Formula: sum (2 i - n - 1) x_i / (n sum x), of weights x_1 <= ... <= x_n.
        """
        n = len(self.masses) if keys is None else max(keys, len(self.masses))
        first = n - len(self.masses)
        above = sum((2 * i - n - 1) * mass for i, mass in enumerate(self.masses, first + 1))
        return to_float(above, n * self.total)

    def tail_share(self, k: int) -> float:
        """The share of the weight of all keys but the k heaviest; rounded once, NaN without weight."""
        return to_float(sum(self.masses[: max(len(self.masses) - k, 0)]), self.total)

    def facts(self) -> dict[str, Any]:
        return {"rows": int(self.rows_seen.sum()), "keys": len(self.masses), "weight": self.weight()}


def check_edges(edges: Any) -> None:
    """Raise unless these are edges of bins."""
    if len(edges) < 2 or not all(a < b for a, b in pairwise(edges)):
        raise ValueError(f"edges are at least two numbers in ascending order, not {edges!r}")


def surprise(mass: int, total: int) -> float:
    """-p log p of a share p, with few ulp lost where p is close to 1, too."""
    rest = log1p(-to_float(total - mass, total)) if 2 * mass > total else log(to_float(mass, total))
    return float(-to_float(mass, total) * rest)
