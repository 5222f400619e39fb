"""The score histogram: rows by label and score, exact for few rows, in buckets for many.

Every binary ranking metric can be computed from it.
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
from .step import Like, ShardPart, Step

__all__ = ["BITS", "EXACT", "ScoreHistogram", "ScoresByLabel", "has_negative_weight"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
U4, U8, I8 = np.uint32, np.uint64, np.int64

EXACT = 1 << 16
"""The default number of rows that a cell keeps exactly, from 16 bits on."""

# The number of entries that are checked at a time, which limits memory.
BLOCK = 1 << 16
BITS = {"probability": 16, "real": 19, "logit": 19}
"""log2 of the buckets of a scale, by default: ten bits of the mantissa each, so that half-precision scores are exact."""

# With fewer rows than this, the number of pairs fits an int64.
FEW = 1 << 31
ENOUGH_LESS = 8
"""A cell of real scores is folded only if these occupy at least 2**(bits - 8) buckets, two octaves at 19 bits."""
MAX_EXACT_SCORES = 1 << 20
"""A cell with more distinct scores than this goes to buckets, even if it occupies few."""


class ScoresByLabel(State):
    """A state of negatives and positives by score in ascending order, which binary ranking metrics read."""

    @property
    def negatives(self) -> Mass:
        """The weights of negatives by score, in ascending order."""
        raise NotImplementedError

    @property
    def positives(self) -> Mass:
        """The weights of positives by score, in ascending order."""
        raise NotImplementedError

    def pairs(self) -> tuple[int, int, int, int]:
        """Return the weights of negatives, of positives, of concordant pairs (twice; ties half), and of tied pairs."""
        positives, negatives = self.positives, self.negatives
        return negatives.total(), positives.total(), *positives.count_pairs_above(negatives)

    @property
    def is_exact(self) -> bool:
        """Whether every bucket is known to have one score."""
        raise NotImplementedError

    @property
    def counts(self) -> Ints:
        """The numbers of negatives and positives by score, of shape (2, scores)."""
        raise NotImplementedError

    @property
    def has_weights(self) -> bool:
        """Whether rows have weights other than 1."""
        raise NotImplementedError

    def thresholds(self, index: Ints) -> Floats:
        """Return the smallest score of each bucket: `score >= threshold` selects the bucket and all higher buckets."""
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
    """The distinct scores of one cell, or its buckets with rows and the next bucket above each, in ascending order.

    The next bucket stands for a run of empty buckets, of which it is the first: a cumulative sum then crosses a limit at
    the same bucket as if all empty buckets were there.
    """

    values: Array
    rows: Ints
    excess: Ints | None

    def mass_of(self, label: int) -> Mass:
        """Return the weight of the rows of one label at each score."""
        return Mass.from_rows(self.rows[label], None if self.excess is None else self.excess[label])


class ScoreHistogram(ScoresByLabel, tag="scores"):
    """Negatives and positives by score: exact while a cell has few rows, in buckets of the score beyond.

    The bucket of a score is its leading bits, so buckets are in the order of scores.

    Parameters
    ----------
    scale : {"probability", "real", "logit"}
        `probability` has 32 octaves of p below 1/2, the same octaves of 1 - p above, and a bucket for 1/2: 2**bits + 1
        buckets. `real` and `logit` take the leading bits of a float32: 2**bits buckets.
    bits : int or None
        log2 of the number of buckets. Buckets of more bits nest in those of fewer. None for no buckets: every cell keeps
        all rows exactly.
    limit : int, optional
        The number of rows that a cell keeps exactly. A cell with more rows is folded: all its rows go to buckets. By
        default 2**16 from 16 bits on, and 0 below. Real scores in few buckets stay exact for longer: see
        `select_folded_cells`.
    memory_limit : int
        Without buckets: the bytes that scores may take; MemoryLimitError beyond.

    Notes
    -----
    An exact score takes 16 bytes, however many rows have it; while rows are counted, each takes 8 bytes until the next
    read. Whether a cell is folded depends only on its set of rows (including rows of weight 0), not on their order.
    Subtracting rows does not bring exact scores back.

    `off_grid` is 1 if a score was rounded by its bucket or lay beyond the last octave. While it is 0, every bucket has one
    score and all results are exact: for small cells, and for float16 and bfloat16 scores.
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
            raise ValueError(f"{type(self).__name__}: bits=None keeps every row exactly; limit= is for a histogram")
        if self.limit is not None and self.limit == default_exact_limit(self.bits):
            # This limit is the default: clear it, so that equal settings have equal state headers.
            object.__setattr__(self, "limit", None)

    @property
    def real(self) -> bool:
        """Whether scores are finite numbers of any sign, not probabilities."""
        return self.scale != "probability"

    @property
    def buckets(self) -> int:
        """The number of buckets of a cell; 1 if the statistic has no buckets."""
        return 1 if self.bits is None else count_buckets(self.bits, self.real)

    @property
    def places(self) -> int:
        """The number of places for buckets; a place is twice the bucket plus the label."""
        return 2 * self.buckets

    @property
    def exact_places(self) -> int:
        """The number of places for exact scores; a place is twice the score, encoded as an integer, plus the label."""
        return 1 << count_exact_bits(self.real)

    @property
    def exact_limit(self) -> int | None:
        """The number of rows that a cell keeps exactly; None for all."""
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
        """Return a mask of the cells that must go to buckets. Up to 2**20 distinct scores in few buckets stay exact.

        Adding rows never unfolds a cell, so the result does not depend on splits and merges.
        """
        # Real scores in a narrow range share few buckets, which would merge many scores. Such a cell stays exact until its
        # scores occupy enough buckets, or until there are too many of them.
        if self.folds_by_rows or not many.any():
            return many
        assert self.bits is not None
        exact = exact.select(many[exact.cells])
        cells, keys = exact.cells, _score_keys(exact, self.real)
        place, _ = self._bucket_places(exact)
        buckets = _count_distinct(cells, place >> U4(1), len(many))
        return many & (
            (buckets >= 1 << (self.bits - ENOUGH_LESS)) | (_count_distinct(cells, keys, len(many)) > MAX_EXACT_SCORES)
        )

    def sample_entries(self, columns: Mapping[str, Any], rows: int) -> Entries | None:
        scores = np.asarray(columns["y_score"].values)[:rows]
        if scores.ndim != 1:
            return None
        keys, shift = encode_scores(scores, self.real), type(self).exact.shift(self)
        return sort_entries(Entries(shift, keys << U8(1), np.ones(len(keys), U4), None, (keys >> U8(63)).astype(U4)))

    def bucket_entries(self, exact: Entries) -> tuple[Entries, Any]:
        place, lost = self._bucket_places(exact)
        return self._bucket_entries(exact.cells, place, exact), exact.find_cells_with(lost)

    def _bucket_places(self, exact: Entries) -> tuple[Array, Array]:
        """Return the bucket place of each exact entry, and whether the bucket rounds its score."""
        assert self.bits is not None
        if kernel_registry.has_kernels():
            place, lost = np.empty(len(exact), U4), np.empty(len(exact), np.bool_)
            kernel = kernel_registry.find_kernel("histogram:find_buckets")
            kernel(_high_bits(exact), exact.codes, self.real, self.bits, place, lost.view(np.uint8))
        else:
            bucket, lost = find_buckets(decode_scores(_score_keys(exact, self.real), self.real), self.real, self.bits)
            place = (bucket.astype(U4) << U4(1)) | (exact.codes & U8(1)).astype(U4)
        return place, lost & has_weight(exact)

    def _bucket_entries(self, cells: Ints, place: Array, like: Entries) -> Entries:
        """Return bucket entries at these cells and places, with the row counts and weights of the entries `like`."""
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
            raise StateFormatError(f"{name}.excess makes a weight negative")
        blocks = (exact.select(slice(i, i + BLOCK)) for i in range(0, len(exact), BLOCK))
        if not all(are_score_keys(_score_keys(e, self.real), self.real) for e in blocks):
            raise StateFormatError(f"{name}.exact holds a score that is not of scale {self.scale}")

    # -- reading a state of one cell ----------------------------------------------------------------------------------

    @property
    def has_buckets(self) -> bool:
        """Whether the rows of the cell are in buckets."""
        return len(self.rows) > 0

    @property
    def _score_entries(self) -> Entries:
        """The entries of the cell, exact or in buckets."""
        entries: Entries = self.rows if self.has_buckets else self.exact
        return entries

    @cached_property
    def distinct_scores(self) -> DistinctScores:
        """The distinct scores, or the buckets, in ascending order, with the number of rows of each label."""
        entries = self._score_entries
        places: Array
        if not self.has_buckets:
            places = _score_keys(entries, self.real)
        else:
            places = (entries.places >> entries.places.dtype.type(1)).astype(I8)
        # Entries are sorted, so both labels of a score are neighbours.
        first = np.ones(len(places), bool)
        np.not_equal(places[1:], places[:-1], out=first[1:])
        at = np.cumsum(first) - 1
        values: Array = places[first]
        if self.has_buckets:
            values, at = _add_next_buckets(values, at, self.buckets)
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
        """The weight of both classes together, by score."""
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
        """Return, for each bucket, the lower bound of its scores, a representative score, and the upper bound."""
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
        """Whether most tied pairs lie in the first or last bucket, where more bits do not separate probabilities."""
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
        """Return the scores unchanged; `with_sampling_correction` replaces this function by one that corrects them."""
        return scores

    # -- fewer bits ---------------------------------------------------------------------------------------------------

    def coarsen(self, bits: int, limit: int | None = None) -> Self:
        """Return the histogram that the same rows would give with fewer bits, bit for bit.

        Parameters
        ----------
        bits : int
            The new number of bits.
        limit : int, optional
            The number of rows that a cell then keeps exactly, not above the current limit. By default the smaller of the
            current limit and the default of these bits.

        Raises
        ------
        InvalidInputError
            `bits` or `limit` is larger than in this state: neither bits nor exact rows can be restored.
        """
        if self.bits is not None and bits > self.bits:
            raise InvalidInputError(f"a histogram of {self.bits} bits cannot be refined to {bits}; coarsen() goes down")
        usual, most = default_exact_limit(bits), self.exact_limit
        assert usual is not None
        if limit is not None and most is not None and limit > most:
            raise InvalidInputError(
                f"cells with more than {most} rows are folded; limit={limit} cannot bring them back"
            )
        if limit is None:
            limit = usual if most is None else min(usual, most)
        new = self.with_settings(bits=bits, limit=limit)
        return self if new.settings == self.settings else self._convert_to(new)

    def _convert_to(self, new: Self) -> Self:
        """Return a state of the same rows with other, coarser settings."""
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
            rows = sort_entries(_concat_entries(rows, buckets)) if len(rows) else buckets
            exact = canonicalize(exact.select(~is_folded))
        rows = rows if len(rows) else Entries.empty(type(new).rows.shift(new))
        tallies = {n: e for n, e in (("exact", exact), ("rows", rows)) if n in new.parts()}
        return new.with_cells(
            replace(cells, flats={**cells.flats, "off_grid": off_grid}, tallies=tallies)
        ).canonicalize()

    def _exact_entries(self) -> Entries:
        """Return the exact entries of all cells."""
        return self.cells.tallies["exact"]

    def _coarsen_buckets(self, rows: Entries, new: Self) -> tuple[Entries, Any]:
        """Return bucket entries with fewer bits, and the cells in which a bucket rounds a score."""
        assert self.bits is not None
        assert new.bits is not None
        bucket = (rows.places >> rows.places.dtype.type(1)).astype(I8)
        to, off = coarsen(bucket, self.real, self.bits, self.bits - new.bits)
        place = (to << 1) | (rows.codes & rows.codes.dtype.type(1)).astype(I8)
        return new._bucket_entries(rows.cells, place, rows), rows.cells[off & has_weight(rows)]


def default_exact_limit(bits: int | None) -> int | None:
    """Return the default number of rows that a cell keeps exactly."""
    return None if bits is None else EXACT if bits >= 16 else 0


def _count_distinct(cells: Ints, numbers: Array, count: int) -> Ints:
    """Return the number of distinct numbers in each cell; cells and numbers ascend."""
    first = np.ones(len(cells), bool)
    first[1:] = (cells[1:] != cells[:-1]) | (numbers[1:] != numbers[:-1])
    return np.bincount(cells[first], minlength=count)


def _high_bits(exact: Entries) -> Array:
    assert exact.high is not None
    return exact.high


def _score_keys(exact: Entries, real: bool) -> NDArray[np.uint64]:
    """Return the scores of exact entries as integers that sort like the scores.

    A code is 64 bits: 63 bits of the score and the label. The top bit of a real score is in the high word.
    """
    keys = exact.codes >> U8(1)
    if real:
        keys |= (_high_bits(exact) & U4(1)).astype(U8) << U8(63)
    return keys


def _add_next_buckets(occupied: Ints, at: Ints, count: int) -> tuple[Ints, Ints]:
    """Insert the next bucket after each bucket with rows, unless it has rows, too; return also the new index of rows."""
    lacks_next = np.ones(len(occupied), bool)
    lacks_next[:-1] = occupied[1:] != occupied[:-1] + 1
    lacks_next[-1:] &= occupied[-1:] + 1 < count
    new_index = np.arange(len(occupied)) + np.cumsum(lacks_next) - lacks_next
    out = np.empty(len(occupied) + int(lacks_next.sum()), I8)
    out[new_index] = occupied
    out[new_index[lacks_next] + 1] = occupied[lacks_next] + 1
    return out, new_index[at]


def _concat_entries(a: Entries, b: Entries) -> Entries:
    """Return the entries of both arguments, which are of different cells, unsorted."""
    kind = np.result_type(a.codes, b.codes)
    excess = None
    if a.excess is not None or b.excess is not None:
        excess = np.concatenate([np.zeros((len(e), 2), I8) if e.excess is None else e.excess for e in (a, b)])
    codes = np.concatenate([a.codes.astype(kind), b.codes.astype(kind)])
    return Entries(a.shift, codes, np.concatenate([a.int64_counts, b.int64_counts]), excess)


def has_negative_weight(entries: Entries) -> bool:
    """Return whether the weight of any entry (row count + excess weight) is negative."""
    if entries.excess is None:
        return False
    return bool((entries.excess[:, 0].astype(np.float64) / (1 << 20) + entries.int64_counts < -1e-6).any())
