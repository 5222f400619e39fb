"""Score histograms of each label, of each class against the rest (one-vs-rest), and of the highest-scoring class."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from ..batch.columns import Column
from ..errors import StateFormatError
from ..numerics.kernel_registry import find_kernel
from ..numerics.score_buckets import coarsen
from ..numerics.settings import setting
from ..state.declare import Array, Tally
from ..state.state import State
from ..state.tally import WIDEST, Entries, has_weight, sort_entries
from .by_label import OWN_SETTINGS, ByLabel, TopLabel, count_distinct_states
from .score_entries import has_negative_weight
from .scores import ScoreHistogram
from .step import Like, Step

__all__ = ["LabelScores", "TopScores"]

Ints = NDArray[np.int64]
U4 = np.uint32

NO_FOLDS = np.zeros(0, np.uint8)
NO_EXACT = (np.zeros(0, np.uint32), np.zeros(0, np.uint64), np.zeros(0), np.zeros(0, np.int64))
"""Empty arrays that are passed to a kernel in place of exact scores if the state keeps none."""

# The maximum number of counters (labels * buckets * outcomes) that a state with one cell keeps in a dense array.
LONE = (1 << 25) + 2


class LabelScores(ByLabel, ScoreHistogram, tag="label_scores"):
    """A score histogram for every label, with exact scores in small cells (such as slices) and buckets in large cells.

    Parameters
    ----------
    bits : int or None
        log2 of the number of buckets per label, as in `ScoreHistogram`. With None, every cell keeps all exact scores.
    limit : int, optional
        A cell with at most this many rows keeps the exact scores of all labels. The scores of a larger cell are counted
        in buckets. The default is that of `ScoreHistogram`. With 0, all scores are counted in buckets.
    softmax : bool
        With classes and `scale="logit"`: whether the scores of a row are logits of a softmax over the classes. The
        histograms then count the log-odds of each class against the rest, that is, the logit of its softmax
        probability.

    Notes
    -----
    The state has the counters of a `ScoreHistogram` for each label. An exact score takes 16 bytes. All labels of a cell
    have the same rows, so either all labels keep exact scores or all are counted in buckets.
    """

    binary: ClassVar[type[State]] = ScoreHistogram

    softmax: bool = setting(default=False)

    exact = Tally("exact_places")

    def derive_columns(self, columns: Mapping[str, Column]) -> Mapping[str, Column]:
        if self.softmax:
            logits = columns["y_score"].values
            odds = np.empty(logits.shape)
            find_kernel("classes:compute_log_odds")(logits, odds)
            columns = {**columns, "y_score": Column(odds, "float64")}
        return super().derive_columns(columns)

    @property
    def keeps_exact_rows(self) -> bool:
        """Whether small cells keep exact scores; if False, all scores are counted in buckets."""
        return self.exact_limit != 0

    def parts(self) -> Mapping[str, Any]:
        return (
            self.declared_parts
            if self.keeps_exact_rows
            else {n: p for n, p in self.declared_parts.items() if n != "exact"}
        )

    @property
    def row_parts(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("exact", "rows") if self.keeps_exact_rows else ("rows",)

    @property
    def folding(self) -> tuple[str, str, str] | None:  # type: ignore[override]
        return ("exact", "rows", "off_grid") if self.keeps_exact_rows else None

    @property
    def exact_rows_limit(self) -> int | None:
        return None if self.exact_limit is None else self.exact_limit * self.width

    @property
    def folds_by_rows(self) -> bool:
        # All labels of a cell are converted to buckets together, as soon as the cell has more than `exact_limit` rows.
        # The number of buckets that the scores of a label would occupy does not matter.
        return True

    @property
    def exact_places(self) -> int:
        """The number of possible codes of a row with an exact score; a code combines label, score and 0/1 outcome."""
        return self.width * WIDEST

    @property
    def empty_binary(self) -> Any:
        ours = {f: v for f, v in self.settings.items() if f not in OWN_SETTINGS}
        return ScoreHistogram(**ours)

    @property
    def places(self) -> int:
        """The number of counters per cell: one for each label, bucket and 0/1 outcome."""
        return self.width * self.places_per_label

    @property
    def places_per_label(self) -> int:
        """The number of counters per label: one for each bucket and 0/1 outcome."""
        return 2 * self.buckets

    @property
    def in_turn(self) -> bool:
        return not self.axes and self.places <= LONE

    def steps(self, like: Like) -> Iterable[Step]:
        own, rows, how = type(self), ("y_true", "y_score"), (self.real, self.bits or 8)
        into = own.rows, own.off_grid
        if not self.in_turn:
            kept: tuple[Any, ...] = (own.exact,) if self.keeps_exact_rows else (NO_FOLDS, *NO_EXACT)
            kernel = "histogram:count_label_scores"
            return [Step(kernel, *rows, "sample_weight", "at", self.width, *how, *kept, *into)]
        if "rows" not in like.dense:
            return [Step("exact_rows:buffer_rows_multilabel", self.width, *rows, "sample_weight", self.real, own.exact)]
        if like.has_weights:
            return [Step("histogram:count_weighted_scores_multilabel", self.width, *rows, "sample_weight", *how, *into)]
        return [Step("histogram:count_scores_multilabel", self.width, *rows, *how, *into)]

    def bucket_codes(self, exact: Entries) -> tuple[Array, NDArray[np.bool_]]:
        place, lost = self._bucket_places(exact)
        return exact_labels(exact) * self.places_per_label + place, lost

    def find_flags(self, exact: Entries) -> Any:
        return exact.cells, exact_labels(exact)

    def check(self) -> None:
        if self.keeps_exact_rows:
            super().check()
            exact = self.cells.tallies["exact"]
            if not self.real and exact.high is not None and (exact.high & U4(1)).any():
                raise StateFormatError(
                    f"the state is corrupt: {type(self).__name__}.exact contains a score outside the scale {self.scale}"
                )
        elif has_negative_weight(self.cells.tallies["rows"]):
            raise StateFormatError(f"the state is corrupt: {type(self).__name__}.excess makes a weight negative")

    # -- reading ------------------------------------------------------------------------------------------------------

    @property
    def _entries(self) -> Entries:
        """The row counts of all labels: by bucket if the state's only cell has buckets, otherwise by exact score."""
        self._check_one_cell()
        entries: Entries = self.rows if self.has_buckets or not self.keeps_exact_rows else self.exact
        return entries

    def split_classes(self) -> list[State]:
        entries, off_grid = self._entries, self.cells.flats["off_grid"]
        ends = np.searchsorted(self._labels_of(entries), np.arange(self.width + 1))
        within = self._strip_labels(entries)
        # Labels with equal counts share one state, so that metrics compute the result of these labels only once.
        has_rows = (np.diff(ends) > 0) | off_grid.any(axis=0)
        none = self._binary_histogram(within.select(slice(0)), np.zeros_like(off_grid[:, 0]))
        states, state_of_content = [none] * self.width, dict[tuple[bytes, ...], State]()
        for i in np.flatnonzero(has_rows).tolist():
            part = slice(ends[i], ends[i + 1])
            content = *(a[part].tobytes() for a in within.arrays), off_grid[:, i].tobytes()
            if content not in state_of_content:
                state_of_content[content] = self._binary_histogram(within.select(part), off_grid[:, i])
            states[i] = state_of_content[content]
        return states

    def _strip_labels(self, entries: Entries) -> Entries:
        """Remove the label from the code of each entry, so that the codes are those of a `ScoreHistogram`."""
        # The code of an exact score has two words. The lowest bit of the high word is the highest bit of the score. The
        # other bits of the high word contain the cell (such as a slice) and the label, and are removed.
        if entries.high is not None:
            one = self.empty_binary
            return replace(entries, shift=type(one).exact.shift(one), high=entries.high & U4(1))
        return replace(entries, codes=entries.places.astype(np.int64) % self.places_per_label)

    def _labels_of(self, entries: Entries) -> Ints:
        """Return the label index of each entry."""
        return exact_labels(entries) if entries.is_wide else entries.places.astype(np.int64) // self.places_per_label

    @property
    def is_saturated(self) -> bool:
        return any(part.is_saturated for part, _ in count_distinct_states(self.split_classes()))

    def _first_class(self) -> State:
        entries = self._entries
        return self._binary_histogram(
            self._strip_labels(entries.select(self._labels_of(entries) == 0)), self.cells.flats["off_grid"][:, 0]
        )

    def pool_classes(self) -> State:
        return self._binary_histogram(
            self._strip_labels(self._entries), self.cells.flats["off_grid"].max(axis=1, initial=0)
        )

    def _binary_histogram(self, within: Entries, off_grid: Array) -> State:
        """Return a `ScoreHistogram` with these entries, whose codes contain no label.

        The row counts of entries with equal codes are added up. `off_grid` contains a flag for each cell: 1 if the
        cell has lost precision.
        """
        one = self.empty_binary
        empty = one.make_empty_cells(())
        tallies = (
            {"exact": sort_entries(within)}
            if within.is_wide
            else {"rows": one._bucket_entries(0 * within.codes, within.codes, within)}
        )
        cells = replace(empty, keys=self.cells.keys, flats={"off_grid": off_grid}, tallies={**empty.tallies, **tallies})
        state: State = one.with_cells(cells).canonicalize()
        return state

    # -- fewer bits ---------------------------------------------------------------------------------------------------

    def _exact_entries(self) -> Entries:
        none = Entries.empty(type(self).exact.shift(self), wide=True)
        return self.cells.tallies.get("exact", none)

    def _coarsen_buckets(self, rows: Entries, new: Self) -> tuple[Entries, Any]:
        assert self.bits is not None
        assert new.bits is not None
        label, place = np.divmod(rows.places.astype(np.int64), self.places_per_label)
        to, off = coarsen(place >> 1, self.real, self.bits, self.bits - new.bits)
        is_lost = off & has_weight(rows)
        coarse = new._bucket_entries(rows.cells, label * new.places_per_label + (to << 1 | place & 1), rows)
        return coarse, (rows.cells[is_lost], label[is_lost])


def exact_labels(exact: Entries) -> Ints:
    """Return the label index of each exact score."""
    assert exact.high is not None
    return ((exact.high & U4((1 << exact.high_place_bits) - 1)) >> U4(1)).astype(np.int64)


class TopScores(TopLabel, ScoreHistogram, tag="top_scores"):
    """The histogram of the highest class probability of each row, with exact probabilities in small cells (slices)."""
