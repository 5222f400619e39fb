"""Score histograms for each pair of classes, from which one-vs-one AUC is computed."""

from __future__ import annotations

import itertools
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..batch.classes import class_label, class_scores
from ..batch.kinds import Need, weight
from ..numerics.exact import UNIT
from ..state.declare import Array
from ..state.state import State
from ..state.tally import Entries, concatenate
from .by_label_scores import LabelScores
from .scores import EXACT

__all__ = ["PAIR_BITS", "PairScores", "default_pair_limit"]

PAIR_BITS = 10
EXACT_PLACES = 1 << 22
"""The default limit on the number of exact scores of a cell. They take 16 bytes each, 64 MiB in total."""
# The maximum number of classes. The number of histograms is the square of the number of classes.
MOST = 256


def default_pair_limit(classes: int) -> int:
    """Return the default maximum number of rows for which a cell (such as a slice) keeps exact scores.

    A row has a score in the histogram of every pair of classes, so the result decreases with the square of the number
    of classes.
    """
    return min(EXACT, EXACT_PLACES // classes**2)


class PairScores(LabelScores, tag="pair_scores"):
    """A score histogram for each ordered pair of classes, including the pair of a class with itself.

    Parameters
    ----------
    num_classes, labels
        The number of classes (at most 256), or the list of classes, as in `KnownClasses`.

    Notes
    -----
    With C classes, histogram C * i + j counts all rows by their score for class j. Its positives are the rows whose
    true class is i. Only buckets that contain rows take memory: 12 bytes each. Counting takes about 4 ns per row and
    pair of classes.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_labels is not None or not 2 <= self.classes <= MOST:
            raise ValueError(
                f'AUC: multi_class="ovo" needs 2 to {MOST} classes, found {self.classes}; pass num_classes= or labels='
            )

    @property
    def classes(self) -> int:
        """The number of classes."""
        return self.declared_classes if isinstance(self.declared_classes, int) else len(self.declared_classes)

    @property
    def width(self) -> int:
        """The number of histograms: one for each ordered pair of classes."""
        return self.classes**2

    def needs(self) -> tuple[Need, ...]:
        return class_label(self.declared_classes), class_scores(self.classes, self.scale), weight()

    def _flatten(self, role: str, values: Array) -> Array:
        if role == "sample_weight":
            return super()._flatten(role, values)
        if role == "y_true":
            table = np.repeat((values[:, None] == np.arange(self.classes)).view(np.uint8), self.classes, axis=1)
        else:
            table = np.tile(values, (1, self.classes))
        return np.ascontiguousarray(table.T if self.in_turn else table).reshape(-1)

    # -- reading ------------------------------------------------------------------------------------------------------

    def split_classes(self) -> list[State]:
        """Return a binary state for each pair (i, j) of different classes.

        The state contains the rows of both classes with their scores for class i, and its positives are the rows of
        class i. In weighted averages over the pairs, its weight (`support`) is the total weight of both classes.
        """
        entries, off_grid = self._entries, self.cells.flats["off_grid"]
        within = self._strip_labels(entries)
        # Keep only the positives of each histogram (the last bit of their code is 1). With C classes, the positives of
        # histogram C * i + j are the rows of class i by their score for class j.
        own = (within.codes & within.codes.dtype.type(1)) == 1
        ends = np.searchsorted(self._labels_of(entries), np.arange(self.width + 1))
        parts = [within.select(np.flatnonzero(own[a:b]) + a) for a, b in itertools.pairwise(ends)]
        n = self.classes
        pairs = [(i, j) for i in range(n) for j in range(n) if i != j]
        return [self._pair_state(parts[n * i + i], parts[n * j + i], off_grid[:, n * i + i]) for i, j in pairs]

    def _pair_state(self, positives: Entries, negatives: Entries, off_grid: NDArray[np.uint8]) -> State:
        below = replace(negatives, codes=negatives.codes & ~negatives.codes.dtype.type(1))
        histogram: Any = self._binary_histogram(concatenate([positives, below]), off_grid)
        total = histogram.positives.total() + histogram.negatives.total()
        object.__setattr__(histogram, "support", lambda: Fraction(total, UNIT if histogram.has_weights else 1))
        result: State = histogram
        return result

    def facts(self) -> dict[str, Any]:
        first = self._first_class().facts()
        off_grid = bool(self.cells.flats["off_grid"].any())
        return {"rows": first["rows"], "weight": first["weight"], "off_grid": off_grid}
