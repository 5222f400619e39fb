"""Score histograms of every label, or of each class against the rest; and of the class with the highest score."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from ..batch.columns import Column
from ..errors import StateFormatError
from ..numerics.buckets import coarser
from ..numerics.kernel_registry import kernel
from ..numerics.settings import setting
from ..state.declare import Array, Tally
from ..state.state import State
from ..state.tally import WIDEST, Entries, reduce, weighs
from .by_label import OWN_SETTINGS, ByLabel, TopLabel, counted
from .scores import ScoreHistogram, negative_weight
from .step import Like, Step

__all__ = ["LabelScores", "TopScores"]

Ints = NDArray[np.int64]
U4 = np.uint32

NO_FOLDS = np.zeros(0, np.uint8)
NO_EXACT = (np.zeros(0, np.uint32), np.zeros(0, np.uint64), np.zeros(0), np.zeros(0, np.int64))
"""What a kernel is given where nothing is kept exactly: as of an exact tally, of which there is none."""

LONE = (1 << 25) + 2  # places of which a lone state has a counter each (see `count.tallies`)


class LabelScores(ByLabel, ScoreHistogram, tag="label_scores"):  # type: ignore[misc]
    """The score histogram of every label: exact while a cell is small, by bucket beyond.

    Parameters
    ----------
    bits : int or None
        As for `ScoreHistogram`: None keeps all rows exactly.
    limit : int, optional
        Rows that a cell keeps exactly, with the scores of all labels; those of a cell with more go to buckets. By default
        as for `ScoreHistogram`. With 0 there are buckets alone, and no part for exact rows.
    softmax : bool
        With classes and `scale="logit"`: whether the scores of a row are logits of classes. What is counted is then the
        logit of the softmax, the log-odds of each class against the rest.

    Notes
    -----
    The place of a row in a tally is that of its label, and within it the place that `ScoreHistogram` gives it. An exact
    score takes 16 bytes. All labels of a cell have the same rows, so all of them are exact, or none.
    """

    binary: ClassVar[type[State]] = ScoreHistogram

    softmax: bool = setting(default=False)

    exact = Tally("exact_places")

    def derive(self, columns: Mapping[str, Column]) -> Mapping[str, Column]:
        if self.softmax:
            logits = columns["y_score"].values
            odds = np.empty(logits.shape)
            kernel("classes:log_odds")(logits, odds)
            columns = {**columns, "y_score": Column(odds, "float64")}
        return super().derive(columns)

    @property
    def keeps(self) -> bool:
        """Whether there are exact rows."""
        return self.kept != 0

    def parts(self) -> Mapping[str, Any]:
        return self.declared if self.keeps else {n: p for n, p in self.declared.items() if n != "exact"}

    @property
    def counted(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("exact", "rows") if self.keeps else ("rows",)

    @property
    def folds(self) -> tuple[str, str, str] | None:  # type: ignore[override]
        return ("exact", "rows", "off_grid") if self.keeps else None

    @property
    def most(self) -> int | None:
        return None if self.kept is None else self.kept * self.width

    @property
    def folds_by_rows(self) -> bool:
        return True  # all labels of a cell are exact, or none

    @property
    def exact_places(self) -> int:
        """Those of one label behind those of another."""
        return self.width * WIDEST

    @property
    def one(self) -> Any:
        ours = {f: v for f, v in self.settings.items() if f not in OWN_SETTINGS}
        return ScoreHistogram(**ours)

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
        own, rows, how = type(self), ("y_true", "y_score"), (self.real, self.bits or 8)
        into = own.rows, own.off_grid
        if not self.in_turn:
            kept: tuple[Any, ...] = (own.exact,) if self.keeps else (NO_FOLDS, *NO_EXACT)
            kernel = "histogram:count_label_scores"
            return [Step(kernel, *rows, "sample_weight", "at", self.width, *how, *kept, *into)]
        if "rows" not in like.dense:
            return [Step("exact_rows:each_wait", self.width, *rows, "sample_weight", self.real, own.exact)]
        if like.weighted:
            return [Step("histogram:each_weigh_scores", self.width, *rows, "sample_weight", *how, *into)]
        return [Step("histogram:each_count_scores", self.width, *rows, *how, *into)]

    def bucketed(self, exact: Entries) -> tuple[Entries, Any]:
        place, lost = self._bucket_places(exact)
        cells, label = exact.cells, _labels(exact)
        return self._coded(cells, label * self.each_places + place, exact), (cells[lost], label[lost])

    def check(self) -> None:
        if self.keeps:
            super().check()
            exact = self.cells.tallies["exact"]
            if not self.real and exact.high is not None and (exact.high & U4(1)).any():
                raise StateFormatError(f"{type(self).__name__}.exact holds a score that is not of scale {self.scale}")
        elif negative_weight(self.cells.tallies["rows"]):
            raise StateFormatError(f"{type(self).__name__}.excess makes a weight negative")

    # -- reading ------------------------------------------------------------------------------------------------------

    @property
    def _entries(self) -> Entries:
        """The entries of a lone state, of either form."""
        self._lone()
        held: Entries = self.rows if self.folded or not self.keeps else self.exact
        return held

    def each(self) -> list[State]:
        held, off_grid = self._entries, self.cells.flats["off_grid"]
        ends = np.searchsorted(self._label_of(held), np.arange(self.width + 1))
        within = self._within(held)
        seen = (np.diff(ends) > 0) | off_grid.any(axis=0)
        none = self._of(within.where(slice(0)), np.zeros_like(off_grid[:, 0]))
        made, known = [none] * self.width, dict[tuple[bytes, ...], State]()
        for i in np.flatnonzero(seen).tolist():
            part = slice(ends[i], ends[i + 1])
            content = *(a[part].tobytes() for a in within.arrays), off_grid[:, i].tobytes()
            if content not in known:
                known[content] = self._of(within.where(part), off_grid[:, i])
            made[i] = known[content]
        return made

    def _within(self, held: Entries) -> Entries:
        """Entries at their places within their labels."""
        if held.high is not None:
            one = self.one
            return replace(held, shift=type(one).exact.shift(one), high=held.high & U4(1))
        return replace(held, codes=held.places.astype(np.int64) % self.each_places)

    def _label_of(self, held: Entries) -> Ints:
        """The label of each entry."""
        return _labels(held) if held.wide else held.places.astype(np.int64) // self.each_places

    @property
    def saturated(self) -> bool:
        return any(part.saturated for part, _ in counted(self.each()))

    def _first(self) -> State:
        held = self._entries
        return self._of(self._within(held.where(self._label_of(held) == 0)), self.cells.flats["off_grid"][:, 0])

    def pooled(self) -> State:
        return self._of(self._within(self._entries), self.cells.flats["off_grid"].max(axis=1, initial=0))

    def _of(self, within: Entries, off_grid: Array) -> State:
        """A state of two classes that holds entries, of whatever labels."""
        one = self.one
        empty = one.no_cells(())
        found = (
            {"exact": reduce(within)} if within.wide else {"rows": one._coded(0 * within.codes, within.codes, within)}
        )
        made = replace(empty, keys=self.cells.keys, flats={"off_grid": off_grid}, tallies={**empty.tallies, **found})
        state: State = one.holding(made).present()
        return state

    # -- fewer bits ---------------------------------------------------------------------------------------------------

    def _exact_entries(self) -> Entries:
        none = Entries.none(type(self).exact.shift(self), wide=True)
        return self.cells.tallies.get("exact", none)

    def _coarser(self, rows: Entries, new: Self) -> tuple[Entries, Any]:
        assert self.bits is not None
        assert new.bits is not None
        label, place = np.divmod(rows.places.astype(np.int64), self.each_places)
        to, off = coarser(place >> 1, self.real, self.bits, self.bits - new.bits)
        gone = off & weighs(rows)
        made = new._coded(rows.cells, label * new.each_places + (to << 1 | place & 1), rows)
        return made, (rows.cells[gone], label[gone])


def _labels(exact: Entries) -> Ints:
    """The label of each exact entry."""
    assert exact.high is not None
    return ((exact.high & U4((1 << exact.top) - 1)) >> U4(1)).astype(np.int64)


class TopScores(TopLabel, ScoreHistogram, tag="top_scores"):
    """The histogram of the class with the highest score; exact while a cell is small."""
