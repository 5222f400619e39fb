"""Score histograms of each class against each other: what one-against-one AUC reads."""

from __future__ import annotations

import itertools
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..batch.classes import class_of, class_scores
from ..batch.kinds import Need, weight
from ..numerics.exact import UNIT
from ..state.declare import Array
from ..state.state import State
from ..state.tally import Entries, joined
from .by_label_scores import LabelScores
from .scores import EXACT

__all__ = ["PAIR_BITS", "PairScores", "pair_limit"]

PAIR_BITS = 10
EXACT_PLACES = 1 << 22
"""Exact scores of a cell by default: 16 bytes each, 64 MiB."""
MOST = 256  # classes


def pair_limit(classes: int) -> int:
    """Return how many rows a cell keeps exactly by default: each has an exact score in every pair of classes."""
    return min(EXACT, EXACT_PLACES // classes**2)


class PairScores(LabelScores, tag="pair_scores"):
    """The rows of each class by the score of each class: a histogram for each pair, also of a class and itself.

    Parameters
    ----------
    num_classes, labels
        As for `KnownClasses`; at most 256.

    Notes
    -----
    Histogram C i + j has every row by its score of class j, and tells those of class i from the rest. Only buckets that
    hold rows take room, 12 bytes each. About 4 ns a row and pair.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_labels is not None or not 2 <= self.classes <= MOST:
            raise ValueError(f"{type(self).__name__}: pairs are of 2 to {MOST} classes, num_classes= or labels=")

    @property
    def classes(self) -> int:
        """How many classes there are."""
        return self.known if isinstance(self.known, int) else len(self.known)

    @property
    def width(self) -> int:
        """How many histograms there are."""
        return self.classes**2

    def needs(self) -> tuple[Need, ...]:
        return class_of(self.known), class_scores(self.classes, self.scale), weight()

    def _flat(self, role: str, values: Array) -> Array:
        if role == "sample_weight":
            return super()._flat(role, values)
        if role == "y_true":
            table = np.repeat((values[:, None] == np.arange(self.classes)).view(np.uint8), self.classes, axis=1)
        else:
            table = np.tile(values, (1, self.classes))
        return np.ascontiguousarray(table.T if self.in_turn else table).reshape(-1)

    # -- reading ------------------------------------------------------------------------------------------------------

    def each(self) -> list[State]:
        """A state of two classes for each pair (i, j): the rows of both by the score of i; it weighs as its rows do."""
        held, off_grid = self._entries, self.cells.flats["off_grid"]
        within = self._within(held)
        own = (within.codes & within.codes.dtype.type(1)) == 1
        ends = np.searchsorted(self._label_of(held), np.arange(self.width + 1))
        parts = [within.where(np.flatnonzero(own[a:b]) + a) for a, b in itertools.pairwise(ends)]
        n = self.classes
        pairs = [(i, j) for i in range(n) for j in range(n) if i != j]
        return [self._pair(parts[n * i + i], parts[n * j + i], off_grid[:, n * i + i]) for i, j in pairs]

    def _pair(self, positives: Entries, negatives: Entries, off_grid: NDArray[np.uint8]) -> State:
        below = replace(negatives, codes=negatives.codes & ~negatives.codes.dtype.type(1))
        made: Any = self._of(joined([positives, below]), off_grid)
        total = made.positives.total() + made.negatives.total()
        object.__setattr__(made, "support", lambda: Fraction(total, UNIT if made.weighted else 1))
        state: State = made
        return state

    def facts(self) -> dict[str, Any]:
        first = self._first().facts()
        off_grid = bool(self.cells.flats["off_grid"].any())
        return {"rows": first["rows"], "weight": first["weight"], "off_grid": off_grid}
