"""Score histograms of every label, or of each class against the rest; and of the class with the highest score."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidInputError, StateFormatError
from ..numerics.buckets import coarser
from ..state.declare import Array
from ..state.state import State
from ..state.tally import Entries, weighs
from .by_label import ByLabel, TopLabel
from .scores import ScoreHistogram, negative_weight
from .step import Like, Step

__all__ = ["LabelScores", "TopScores"]

Ints = NDArray[np.int64]

LONE = (1 << 25) + 2  # places of which a lone state has a counter each (see `count.tallies`)


class LabelScores(ByLabel, ScoreHistogram, tag="label_scores"):  # type: ignore[misc]
    """The score histogram of every label, by bucket.

    Parameters
    ----------
    limit : int, optional
        Always 0: labels keep no rows exactly. It is written, so that a release in which they do reads these as they are.

    Notes
    -----
    One tally: the place of a row is that of its label, and within it twice the bucket, and whether it is a positive.
    """

    binary: ClassVar[type[State]] = ScoreHistogram
    counted: ClassVar[tuple[str, ...]] = ("rows",)
    folds: ClassVar[tuple[str, str, str] | None] = None

    def __post_init__(self) -> None:
        if self.bits is None:
            raise ValueError(f"{type(self).__name__}: bits=None is for two classes; give bits= for a finer histogram")
        object.__setattr__(self, "limit", 0)
        super().__post_init__()

    @property
    def one(self) -> Any:
        ours = {f: v for f, v in self.settings.items() if f not in ("num_labels", "num_classes", "labels")}
        return ScoreHistogram(**(ours | {"limit": 0}))

    @property
    def most(self) -> int | None:
        return 0

    @property
    def places(self) -> int:
        """Those of one label behind those of another."""
        return self.width * self.each_places

    @property
    def each_places(self) -> int:
        """Places of one label."""
        return 2 * self.buckets

    @property
    def in_turn(self) -> bool:
        return not self.axes and self.places <= LONE

    def steps(self, like: Like) -> Iterable[Step]:
        own, rows, how = type(self), ("y_true", "y_score"), (self.real, self.bits)
        into = own.rows, own.off_grid
        if not self.in_turn:
            kernel = "histogram:count_label_scores"
            return [Step(kernel, *rows, "sample_weight", "at", self.width, *how, *into)]
        if like.weighted:
            return [Step("histogram:each_weigh_scores", self.width, *rows, "sample_weight", *how, *into)]
        return [Step("histogram:each_count_scores", self.width, *rows, *how, *into)]

    def check(self) -> None:
        if negative_weight(self.cells.tallies["rows"]):
            raise StateFormatError(f"{type(self).__name__}.excess makes a weight negative")

    # -- reading ------------------------------------------------------------------------------------------------------

    def each(self) -> list[State]:
        self._lone()
        held, off_grid = self.rows, self.cells.flats["off_grid"]
        places = held.places.astype(np.int64)
        ends = np.searchsorted(places, np.arange(self.width + 1) * self.each_places)
        made, known = list[State](), dict[tuple[bytes, ...], State]()
        for i in range(self.width):
            part = slice(ends[i], ends[i + 1])
            own, at = held.where(part), places[part] - i * self.each_places
            weights = b"" if own.excess is None else own.excess.tobytes()
            content = at.tobytes(), own.counts.tobytes(), weights, off_grid[:, i].tobytes()
            if content not in known:
                known[content] = self._of(own, at, off_grid[:, i])
            made.append(known[content])
        return made

    @property
    def saturated(self) -> bool:
        return any(part.saturated for part in self.each())  # type: ignore[attr-defined]

    def _first(self) -> State:
        self._lone()
        held = self.rows
        part = slice(0, int(np.searchsorted(held.places, self.each_places)))
        return self._of(held.where(part), held.places[part].astype(np.int64), self.cells.flats["off_grid"][:, 0])

    def pooled(self) -> State:
        self._lone()
        places = self.rows.places.astype(np.int64) % self.each_places
        return self._of(self.rows, places, self.cells.flats["off_grid"].max(axis=1, initial=0))

    def _of(self, held: Entries, places: Ints, off_grid: Array) -> State:
        """A state of two classes that holds entries at these places."""
        one = self.one
        empty = one.no_cells(())
        rows = one._coded(np.zeros(len(places), np.int64), places, held)
        tallies = {**empty.tallies, "rows": rows}
        made = replace(empty, keys=self.cells.keys, flats={"off_grid": off_grid}, tallies=tallies)
        found: State = one.holding(made).present()
        return found

    # -- fewer bits ---------------------------------------------------------------------------------------------------

    def coarsen(self, bits: int, limit: int | None = None) -> Self:
        assert self.bits is not None
        if bits > self.bits:
            raise InvalidInputError(f"a histogram of {self.bits} bits cannot be refined to {bits}; coarsen() goes down")
        if limit:
            raise InvalidInputError(f"labels keep no rows exactly; limit={limit} cannot bring them back")
        if bits == self.bits:
            return self
        new = self.with_settings(bits=bits)
        rows, off_grid = self.cells.tallies["rows"], self.cells.flats["off_grid"].copy()
        if len(rows):
            label, place = np.divmod(rows.places.astype(np.int64), self.each_places)
            to, off = coarser(place >> 1, self.real, self.bits, self.bits - bits)
            gone = off & weighs(rows)
            off_grid[rows.cells[gone], label[gone]] = 1
            rows = new._coded(rows.cells, label * new.each_places + (to << 1 | place & 1), rows)
        rows = rows if len(rows) else Entries.none(type(new).rows.shift(new))
        return new.holding(
            replace(self.cells, flats={**self.cells.flats, "off_grid": off_grid}, tallies={"rows": rows})
        )


LabelScores.declared.pop("exact")  # labels keep no rows exactly


class TopScores(TopLabel, ScoreHistogram, tag="top_scores"):
    """The histogram of the class with the highest score; exact while a cell is small."""
