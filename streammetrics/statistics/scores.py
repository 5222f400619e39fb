"""The score histogram: the state for AUC and all other metrics that depend on 0/1 labels and the order of scores.

It counts rows by label and score, separately in each cell (such as a slice). A cell with few rows keeps exact scores.
In a cell with many rows, scores are counted in buckets (ranges of scores).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from fractions import Fraction
from functools import cached_property, partial
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from ..batch.kinds import Need, label, score, weight
from ..errors import InvalidInputError, StateFormatError
from ..numerics import kernel_registry
from ..numerics.exact import UNIT, Mass, carry_fixed
from ..numerics.negative_sampling import undo_negative_sampling
from ..numerics.score_buckets import (
    are_score_keys,
    bucket_bounds,
    coarsen,
    count_buckets,
    count_exact_bits,
    decode_scores,
    encode_scores,
    find_buckets,
    smallest_scores,
)
from ..numerics.settings import setting
from ..state.declare import Array, Flat, Tally
from ..state.state import State
from ..state.tally import Entries, canonicalize, find_code_type, has_weight, sort_entries
from .score_entries import add_next_buckets, concat_entries, count_distinct, has_negative_weight, high_bits, score_keys
from .step import Like, ShardPart, Step

__all__ = ["BITS", "EXACT", "ScoreHistogram", "ScoresByLabel"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
U4, U8, I8 = np.uint32, np.uint64, np.int64

EXACT = 1 << 16
"""The default number of rows for which a cell keeps exact scores, if the histogram has 2**16 buckets or more."""

# When a state is read from bytes, this many entries are checked at a time, to limit memory use.
BLOCK = 1 << 16
BITS = {"probability": 16, "real": 19, "logit": 19}
"""The default value of `bits` (log2 of the number of buckets) for each scale.

With these values, a bucket keeps ten bits of the mantissa of a score, so half-precision scores are not rounded.
"""

# In a cell (such as a slice) with fewer rows than this, the number of pairs of a positive and a negative fits in an
# int64.
FEW = 1 << 31
ENOUGH_LESS = 8
"""A cell of real scores keeps all of them exactly while they occupy fewer than 2**(bits - ENOUGH_LESS) buckets.

Real scores are scores that need not be probabilities. With 19 bits, two octaves (such as 0.25 to 1) have this many
buckets.
"""
MAX_EXACT_SCORES = 1 << 20
"""A cell with more distinct scores than this is converted to buckets, even if its scores occupy few of them."""


class ScoresByLabel(State):
    """The base class for states that count negatives and positives by score, for binary ranking metrics."""

    @property
    def negatives(self) -> Mass:
        """The weight of the negatives at each score or bucket, in ascending order of the scores."""
        raise NotImplementedError

    @property
    def positives(self) -> Mass:
        """The weight of the positives at each score or bucket, in ascending order of the scores."""
        raise NotImplementedError

    def pairs(self) -> tuple[int, int, int, int]:
        """Return the weights of the negatives, positives, concordant pairs and tied pairs.

        A pair consists of a positive and a negative, and is concordant if the positive has the higher score. The third
        number is twice the weight of the concordant pairs, where ties count one half.
        """
        positives, negatives = self.positives, self.negatives
        return negatives.total(), positives.total(), *positives.count_pairs_above(negatives)

    @property
    def is_exact(self) -> bool:
        """Whether no score was rounded, that is, every bucket contains only one score."""
        raise NotImplementedError

    @property
    def counts(self) -> Ints:
        """The number of negatives (row 0) and positives (row 1) at each score, as an array of shape (2, scores)."""
        raise NotImplementedError

    @property
    def has_weights(self) -> bool:
        """Whether rows have weights other than 1."""
        raise NotImplementedError

    def thresholds(self, index: Ints) -> Floats:
        """Return the thresholds of the scores or buckets with these indices.

        The threshold of a bucket is its smallest score, so `score >= threshold` selects the bucket and all higher
        buckets.
        """
        raise NotImplementedError

    def support(self) -> Fraction:
        """Return the weight of the positive rows."""
        return Fraction(self.positives.total(), UNIT if self.has_weights else 1)

    def facts(self) -> dict[str, Any]:
        counts = self.counts
        total = self.negatives.total() + self.positives.total()
        return {
            "rows": int(counts.sum()),
            "positives": int(counts[1].sum()),
            "weight": Fraction(total, UNIT if self.has_weights else 1),
            "off_grid": not self.is_exact,
        }


class DistinctScores(NamedTuple):
    """The distinct scores of one cell (such as a slice) in ascending order, with row counts by label.

    If rows are in buckets, the elements are the buckets that have rows and, above each of them, the next bucket. If
    this next bucket is empty, it represents all empty buckets up to the next one with rows. A search for the first
    bucket at which a cumulative sum reaches a given number therefore gives the same result as a search of all buckets.

    Parameters
    ----------
    values : array
        The scores, encoded as integers, or the buckets.
    rows : int64 array of shape (2, scores)
        The number of rows of each label.
    excess : int64 array of shape (2, scores, 2), optional
        The sums of (weight - 1), as two integers (high, low) that represent high * 2**-20 + low * 2**-60. None if rows
        have no weights.
    """

    values: Array
    rows: Ints
    excess: Ints | None

    def mass_of(self, label: int) -> Mass:
        """Return the weight of the rows of one label at each score."""
        return Mass.from_rows(self.rows[label], None if self.excess is None else self.excess[label])


class ScoreHistogram(ScoresByLabel, tag="scores"):
    """Counts of negatives and positives by exact score in cells (such as slices) with few rows, else by bucket.

    The leading bits of a score determine its bucket, so buckets are in the order of the scores.

    Parameters
    ----------
    scale : {"probability", "real", "logit"}
        The scale of the scores, which defines the buckets. With `probability`, there are 2**bits + 1 buckets: each of
        32 octaves of p below 1/2, and of 1 - p above 1/2, is divided into buckets, and 1/2 has a bucket of its own.
        With `real` and `logit`, there are 2**bits buckets, one for each combination of the leading bits of a float32.
    bits : int or None
        log2 of the number of buckets. With more bits, each bucket is divided into narrower ones. With None, there are
        no buckets, and every cell keeps all exact scores.
    limit : int, optional
        The largest number of rows for which a cell keeps exact scores. If a cell has more rows, it is folded, that is,
        all of its rows are counted in buckets. The default is 2**16 if `bits` is at least 16, else 0. Cells of real
        scores can keep the exact scores of more rows (see `select_folded_cells`).
    memory_limit : int
        The maximum memory for the scores, in bytes, if `bits` is None. A state that needs more raises MemoryLimitError.

    Notes
    -----
    An exact score takes 16 bytes, no matter how many rows have it. Newly counted rows take 8 bytes each until the state
    is next read. Whether a cell is folded depends only on its set of rows (including rows of weight 0), not on their
    order. A folded cell stays in buckets even if rows are subtracted from it.

    The flag `off_grid` of a cell is 1 if a score was rounded to its bucket or lay beyond the last octave. While it is
    0, every bucket of the cell contains only one score and all results are exact. This is the case for small cells, and
    for float16 and bfloat16 scores.
    """

    scale: str = setting(default="probability", choices=("probability", "real", "logit"))
    bits: int | None = setting(default=16, low=8, high=24)
    limit: int | None = setting(default=None, low=0, high=1 << 31)
    memory_limit: int = setting(default=1 << 32, low=0, operational=True)

    exact = Tally("exact_places")
    rows = Tally("places")
    off_grid = Flat(form="flag")

    row_parts: ClassVar[tuple[str, ...]] = ("exact", "rows")
    folding: ClassVar[tuple[str, str, str] | None] = ("exact", "rows", "off_grid")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bits is None and self.limit is not None:
            raise ValueError(
                f"{type(self).__name__}: bits=None keeps every row exactly; leave limit= out, or pass "
                f"bits= for a histogram"
            )
        if self.limit is not None and self.limit == default_exact_limit(self.bits):
            # Replace a limit that equals the default with None, so that an explicit default yields the same settings
            # and bytes as None.
            object.__setattr__(self, "limit", None)

    @property
    def real(self) -> bool:
        """Whether scores can be any finite numbers; if False, they are probabilities."""
        return self.scale != "probability"

    @property
    def buckets(self) -> int:
        """The number of buckets per cell (such as a slice), or 1 if there are no buckets (`bits` is None)."""
        return 1 if self.bits is None else count_buckets(self.bits, self.real)

    @property
    def places(self) -> int:
        """The number of possible codes of a row in a bucket; the code is twice the bucket's index, plus the label."""
        return 2 * self.buckets

    @property
    def exact_places(self) -> int:
        """The number of possible codes of an exact score; a code is twice the score (as an integer), plus the label."""
        return 1 << count_exact_bits(self.real)

    @property
    def exact_limit(self) -> int | None:
        """The largest number of rows for which a cell (such as a slice) keeps exact scores; None for no limit."""
        return default_exact_limit(self.bits) if self.limit is None else self.limit

    @property
    def exact_rows_limit(self) -> int | None:
        return self.exact_limit

    def needs(self) -> tuple[Need, ...]:
        return label(), score(scale=self.scale), weight()

    def steps(self, like: Like) -> Iterable[Step]:
        own, bits = type(self), self.bits or 8
        rows = "y_true", "y_score"
        if like.lone and "rows" in like.dense:
            if like.has_weights:
                return [
                    Step(
                        "histogram:count_weighted_scores",
                        *rows,
                        "sample_weight",
                        self.real,
                        bits,
                        own.rows,
                        own.off_grid,
                    )
                ]
            kernel = "histogram:count_reals" if self.real else "histogram:count_probabilities"
            return [Step(kernel, *rows, bits, own.rows, own.off_grid, checks=True)]
        if like.lone and self.exact_rows_limit != 0:
            return [Step("exact_rows:buffer_lone_rows", *rows, "sample_weight", self.real, own.exact, checks=True)]
        into = own.exact, own.rows, own.off_grid
        return [Step("histogram:count_scores", *rows, "sample_weight", "at", self.real, bits, *into)]

    def step_with_shards(self, like: Like, shards: Any) -> Step | None:
        if like.has_weights or "rows" not in like.dense or shards.exact_rows_limit != 0:
            return None
        if self.bits is None or shards.bits > self.bits or shards.scale != self.scale:
            return None
        own, theirs = type(self), type(shards)
        into = own.rows, own.off_grid, ShardPart(theirs.rows), ShardPart(theirs.off_grid)
        how = self.real, self.bits, shards.bits
        return Step("histogram:count_with_shards", "y_true", "y_score", "at", *how, *into, checks=True)

    @property
    def folds_by_rows(self) -> bool:
        return not (self.real and self.exact_rows_limit)

    def select_folded_cells(self, exact: Entries, many: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return a mask of the cells (such as slices) whose exact scores must be converted to buckets.

        Parameters
        ----------
        exact : Entries
            The row counts of all cells by exact score.
        many : bool array
            A mask of the cells with more rows than `exact_rows_limit`.

        Notes
        -----
        If a cell must be converted, more rows never undo this decision. Whether a cell is in buckets therefore does not
        depend on how its rows were split into states and merged.
        """
        # If the real scores of a cell lie in a narrow range, such as 0.70 to 0.72, they fall into few buckets, and
        # conversion to buckets would lose much precision. Such a cell stays exact until its scores occupy enough
        # buckets, or until it has too many distinct scores.
        if self.folds_by_rows or not many.any():
            return many
        assert self.bits is not None
        exact = exact.select(many[exact.cells])
        cells, keys = exact.cells, score_keys(exact, self.real)
        place, _ = self._bucket_places(exact)
        buckets = count_distinct(cells, place >> U4(1), len(many))
        return many & (
            (buckets >= 1 << (self.bits - ENOUGH_LESS)) | (count_distinct(cells, keys, len(many)) > MAX_EXACT_SCORES)
        )

    def sample_entries(self, columns: Mapping[str, Any], rows: int) -> Entries | None:
        scores = np.asarray(columns["y_score"].values)[:rows]
        if scores.ndim != 1:
            return None
        keys, shift = encode_scores(scores, self.real), type(self).exact.shift(self)
        return sort_entries(Entries(shift, keys << U8(1), np.ones(len(keys), U4), None, (keys >> U8(63)).astype(U4)))

    def bucket_codes(self, exact: Entries) -> tuple[Array, NDArray[np.bool_]]:
        return self._bucket_places(exact)

    def bucket_entries(self, exact: Entries) -> tuple[Entries, Any]:
        place, lost = self.bucket_codes(exact)
        return self._bucket_entries(exact.cells, place, exact), self.find_flags(exact.select(lost))

    def _bucket_places(self, exact: Entries) -> tuple[Array, Array]:
        """Return the code (2 * bucket + label) of each score, and whether rounding to the bucket changes the score."""
        assert self.bits is not None
        if kernel_registry.has_kernels():
            place, lost = np.empty(len(exact), U4), np.empty(len(exact), np.bool_)
            kernel = kernel_registry.find_kernel("histogram:find_buckets")
            kernel(high_bits(exact), exact.codes, self.real, self.bits, place, lost.view(np.uint8))
        else:
            bucket, lost = find_buckets(decode_scores(score_keys(exact, self.real), self.real), self.real, self.bits)
            place = (bucket.astype(U4) << U4(1)) | (exact.codes & U8(1)).astype(U4)
        return place, lost if exact.excess is None else lost & has_weight(exact)

    def _bucket_entries(self, cells: Ints, place: Array, like: Entries) -> Entries:
        """Return sorted entries with the row count of each combination of cell (such as a slice), bucket and label.

        Parameters
        ----------
        cells : int64 array
            The cell of each entry.
        place : integer array
            For each entry of `like`, its new code: twice the index of its bucket, plus its label.
        like : Entries
            The entries whose row counts and weights are used.
        """
        shift = type(self).rows.shift(self)
        last = int(cells.max(initial=0))
        kind = find_code_type((last + 1) << shift)
        codes: Array = place.astype(kind, copy=False)
        if last:
            codes = (cells.astype(kind) << kind(shift)) | codes
        return sort_entries(Entries(shift, codes, like.counts, like.excess))

    def check(self) -> None:
        exact, rows = (self.cells.tallies[n] for n in ("exact", "rows"))
        name = type(self).__name__
        if any(has_negative_weight(e) for e in (exact, rows)):
            raise StateFormatError(f"the state is corrupt: {name}.excess makes a weight negative")
        blocks = (exact.select(slice(i, i + BLOCK)) for i in range(0, len(exact), BLOCK))
        if not all(are_score_keys(score_keys(e, self.real), self.real) for e in blocks):
            raise StateFormatError(
                f"the state is corrupt: {name}.exact contains a score outside the scale {self.scale}"
            )

    # -- reading a state of one cell ----------------------------------------------------------------------------------

    @property
    def has_buckets(self) -> bool:
        """Whether the rows of a state with one cell (slice) are counted by bucket rather than by exact score."""
        return len(self.rows) > 0

    @property
    def _score_entries(self) -> Entries:
        """The row counts of a state with one cell (slice): by bucket if `has_buckets` is true, else by exact score."""
        entries: Entries = self.rows if self.has_buckets else self.exact
        return entries

    @cached_property
    def distinct_scores(self) -> DistinctScores:
        """The distinct scores or buckets in ascending order, with row counts by label.

        The state must have only one cell (slice).
        """
        entries = self._score_entries
        places: Array
        if not self.has_buckets:
            places = score_keys(entries, self.real)
        else:
            places = (entries.places >> entries.places.dtype.type(1)).astype(I8)
        # Entries are sorted by score, then by label. `first` marks the first entry of each distinct score.
        first = np.ones(len(places), bool)
        np.not_equal(places[1:], places[:-1], out=first[1:])
        at = np.cumsum(first) - 1
        values: Array = places[first]
        if self.has_buckets:
            values, at = add_next_buckets(values, at, self.buckets)
        labels = (entries.codes & entries.codes.dtype.type(1)).astype(I8)
        rows = np.zeros((2, len(values)), I8)
        rows[labels, at] = entries.counts
        excess = None
        if entries.excess is not None:
            excess = np.zeros((2, len(values), 2), I8)
            excess[labels, at] = entries.excess
        return DistinctScores(values, rows, excess)

    @property
    def negatives(self) -> Mass:
        return self.distinct_scores.mass_of(0)

    @property
    def positives(self) -> Mass:
        return self.distinct_scores.mass_of(1)

    @property
    def masses(self) -> Mass:
        """The total weight of both classes at each score, in ascending order of the scores."""
        _, rows, excess = self.distinct_scores
        if excess is None:
            return Mass.from_rows(rows.sum(axis=0))
        both = excess.sum(axis=0)
        carry_fixed(both)
        return Mass.from_rows(rows.sum(axis=0), both)

    def pairs(self) -> tuple[int, int, int, int]:
        entries = self._score_entries
        if (
            entries.excess is not None
            or not kernel_registry.has_kernels()
            or not 0 < int(self.row_counts[0] if len(self) else 0) < FEW
        ):
            return super().pairs()
        found = np.zeros(4, np.int64)
        kernel_registry.find_kernel("exact_rows:count_pair_wins")(
            entries.places, np.array([0, len(entries)]), entries.counts, found
        )
        negatives, positives, twice, ties = found.tolist()
        return negatives, positives, twice, ties

    def value_bounds(self) -> tuple[Floats, Floats, Floats]:
        """Return, for each score or bucket, a lower bound on its scores, a representative score, and an upper bound."""
        values = self.distinct_scores.values
        if self.has_buckets:
            assert self.bits is not None
            return bucket_bounds(values, self.real, self.bits)
        scores = decode_scores(values, self.real)
        return scores, scores, scores

    @property
    def is_exact(self) -> bool:
        return not bool(self.off_grid)

    @property
    def is_saturated(self) -> bool:
        """Whether most tied pairs are in the first or the last bucket.

        The probabilities in these buckets are so close to 0 or 1 that more bits would not separate them.
        """
        if self.real or not self.has_buckets or self.is_exact:
            return False
        at = np.flatnonzero((self.distinct_scores.values == 0) | (self.distinct_scores.values == self.buckets - 1))
        ends = sum(c * a for c, a in zip(self.negatives.cells(at), self.positives.cells(at), strict=True))
        return 2 * ends > self.pairs()[3]

    @property
    def positive_counts(self) -> NDArray[np.int64]:
        out = np.zeros(len(self), I8)
        for name, entries in self.cells.tallies.items():
            begins = self.entry_starts(name)
            has_entries = begins[1:] > begins[:-1]
            if has_entries.any():
                positive = entries.counts * (entries.codes & entries.codes.dtype.type(1)).astype(entries.counts.dtype)
                out[has_entries] += np.add.reduceat(positive, begins[:-1][has_entries], dtype=I8)
        return out

    @property
    def counts(self) -> Ints:
        return self.distinct_scores.rows

    @property
    def has_weights(self) -> bool:
        return self._score_entries.excess is not None

    def thresholds(self, index: Ints) -> Floats:
        values = self.distinct_scores.values[index]
        if not self.has_buckets:
            return self.undo(decode_scores(values, self.real))
        assert self.bits is not None
        return self.undo(smallest_scores(values, self.real, self.bits, exact=self.is_exact))

    def with_sampling_correction(self, negative_rate: float, scale: str) -> Self:
        view = self.with_cells(self.cells)
        object.__setattr__(view, "undo", partial(undo_negative_sampling, rate=negative_rate, scale=scale))
        return view

    @staticmethod
    def undo(scores: Floats) -> Floats:
        """Return the scores unchanged, because they need no correction for the down-sampling of negatives.

        In a state that `with_sampling_correction` returns, this function is replaced with one that corrects the scores.
        """
        return scores

    # -- fewer bits ---------------------------------------------------------------------------------------------------

    def coarsen(self, bits: int, limit: int | None = None) -> Self:
        """Return exactly the histogram that the same rows would produce with a lower value of `bits`.

        Parameters
        ----------
        bits : int
            The new number of bits.
        limit : int, optional
            The largest number of rows for which a cell of the new histogram keeps exact scores. It must not be above
            the current limit. The default is the smaller of the current limit and the default for the new number of
            bits.

        Raises
        ------
        InvalidInputError
            `bits` or `limit` is larger than in this state, which has already discarded the narrower buckets or the
            exact scores that are needed.
        """
        if self.bits is not None and bits > self.bits:
            raise InvalidInputError(
                f"coarsen(): expected at most {self.bits} bits, the resolution of this histogram, found {bits}"
            )
        usual, most = default_exact_limit(bits), self.exact_limit
        assert usual is not None
        if limit is not None and most is not None and limit > most:
            raise InvalidInputError(
                f"coarsen(): expected limit= of at most {most}, the limit of this state, found {limit}"
            )
        if limit is None:
            limit = usual if most is None else min(usual, most)
        new = self.with_settings(bits=bits, limit=limit)
        return self if new.settings == self.settings else self._convert_to(new)

    def _convert_to(self, new: Self) -> Self:
        """Return a state of the same rows with the settings of `new`, which has a lower `bits` or `limit`."""
        assert new.bits is not None
        assert new.exact_rows_limit is not None
        cells, off_grid = self.cells, self.read_cells_named("off_grid").copy()
        rows, exact = cells.tallies["rows"], self._exact_entries()
        if len(rows) and self.bits is not None and new.bits < self.bits:
            rows, lost = self._coarsen_buckets(rows, new)
            off_grid[lost] = 1
        many = self.rows_by_cell("exact") > new.exact_rows_limit if len(exact) else np.zeros(len(cells), bool)
        if many.any():
            many = new.select_folded_cells(exact, many)
        if many.any():
            is_folded = many[exact.cells]
            buckets, lost = new.bucket_entries(exact.select(is_folded))
            off_grid[lost] = 1
            rows = sort_entries(concat_entries(rows, buckets)) if len(rows) else buckets
            exact = canonicalize(exact.select(~is_folded))
        rows = rows if len(rows) else Entries.empty(type(new).rows.shift(new))
        tallies = {n: e for n, e in (("exact", exact), ("rows", rows)) if n in new.parts()}
        return new.with_cells(
            replace(cells, flats={**cells.flats, "off_grid": off_grid}, tallies=tallies)
        ).canonicalize()

    def _exact_entries(self) -> Entries:
        """Return the row counts of all cells (such as slices) by exact score."""
        return self.cells.tallies["exact"]

    def _coarsen_buckets(self, rows: Entries, new: Self) -> tuple[Entries, Any]:
        """Convert row counts by bucket to the wider buckets of `new`.

        Return the new entries, and the cells (such as slices) in which a wider bucket can contain several scores.
        """
        assert self.bits is not None
        assert new.bits is not None
        bucket = (rows.places >> rows.places.dtype.type(1)).astype(I8)
        to, off = coarsen(bucket, self.real, self.bits, self.bits - new.bits)
        place = (to << 1) | (rows.codes & rows.codes.dtype.type(1)).astype(I8)
        return new._bucket_entries(rows.cells, place, rows), rows.cells[off & has_weight(rows)]


def default_exact_limit(bits: int | None) -> int | None:
    """Return the default `limit`: the largest number of rows for which a cell (such as a slice) keeps exact scores.

    The result is None if `bits` is None.
    """
    return None if bits is None else EXACT if bits >= 16 else 0
