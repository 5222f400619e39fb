"""The score histogram: rows by label and score, exact while they are few, by bucket when they are many.

It is enough for every metric of the ranking of two classes.
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
from ..numerics import kernel_registry as compiled
from ..numerics.buckets import all_scores, bucket_of, buckets, coarser, ends, exact_bits, first_of, key_of, score_of
from ..numerics.exact import UNIT, Mass, carry_fixed
from ..numerics.sampling import undone
from ..numerics.settings import setting
from ..state.declare import Array, Flat, Tally
from ..state.state import State
from ..state.tally import Entries, canonical, code_type, reduce, weighs
from .step import Beside, Like, Step

__all__ = ["BITS", "EXACT", "ScoreHistogram", "ScoresByLabel", "negative_weight"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
U4, U8, I8 = np.uint32, np.uint64, np.int64

EXACT = 1 << 16
"""Rows that a cell keeps exactly, by default, from 16 bits on."""

BLOCK = 1 << 16  # entries that are checked at a time
BITS = {"probability": 16, "real": 19, "logit": 19}
"""log2 of the buckets of a scale, by default: ten bits of the mantissa each, so that half-precision scores are exact."""

FEW = 1 << 31  # rows, of which the pairs fit an int64
ENOUGH_LESS = 8
"""Real scores that occupy at least 2**(bits - 8) buckets, two octaves at 19 bits, are resolved well enough."""
MOST_SCORES = 1 << 20
"""A cell with more different scores than this goes to buckets, even if there are few."""


class ScoresByLabel(State):
    """Rows of negatives and positives in ascending order of score: what every metric of ranking reads."""

    @property
    def negatives(self) -> Mass:
        """Rows (or weight) of negatives by score, in ascending order."""
        raise NotImplementedError

    @property
    def positives(self) -> Mass:
        """Rows (or weight) of positives by score, in ascending order."""
        raise NotImplementedError

    def pairs(self) -> tuple[int, int, int, int]:
        """Return all negatives and positives, twice the pairs that positives win (ties half), and those in one cell."""
        positives, negatives = self.positives, self.negatives
        return negatives.total(), positives.total(), *positives.above(negatives)

    @property
    def is_exact(self) -> bool:
        """Whether every cell is known to hold one score."""
        raise NotImplementedError

    @property
    def counts(self) -> Ints:
        """Rows of negatives and positives, 2 x cells, whatever their weight."""
        raise NotImplementedError

    @property
    def weighted(self) -> bool:
        """Whether a weight other than 1 was seen."""
        raise NotImplementedError

    def thresholds(self, index: Ints) -> Floats:
        """The smallest score of some cells: rows with `score >= threshold` are those of the cell and of all above."""
        raise NotImplementedError

    def support(self) -> Fraction:
        """What the positives weigh."""
        return Fraction(self.positives.total(), UNIT if self.weighted else 1)

    def facts(self) -> dict[str, Any]:
        counts = self.counts
        total = self.negatives.total() + self.positives.total()
        return {
            "rows": int(counts.sum()),
            "positives": int(counts[1].sum()),
            "weight": Fraction(total, UNIT if self.weighted else 1),
            "off_grid": not self.is_exact,
        }


class Ladder(NamedTuple):
    """The scores of a lone cell, or its buckets, ascending: of buckets those that hold rows, and the one above each.

    Those above stand for all that are empty, of which they are the first; so the places where a sum crosses a limit are
    those that all buckets have.
    """

    rungs: Array
    rows: Ints
    excess: Ints | None

    def mass(self, label: int) -> Mass:
        """What the rows of one label weigh."""
        return Mass.of(self.rows[label], None if self.excess is None else self.excess[label])


class ScoreHistogram(ScoresByLabel, tag="scores"):
    """Rows of negatives and positives by score: exactly, while a cell has few of them; by bucket of the score beyond.

    A bucket is the leading bits of the score, truncated: the map never decreases, whatever the scores.

    Parameters
    ----------
    scale : {"probability", "real", "logit"}
        `probability` has 32 octaves of p below 1/2 and of 1 - p above it, mirrored, and a bucket for 1/2 itself:
        2**bits + 1 buckets. `real` and `logit` take the leading bits of the float32: 2**bits buckets.
    bits : int or None
        log2 of the number of buckets. Fewer bits nest in more. None for no buckets: every cell keeps all its rows exactly.
    limit : int, optional
        Rows that a cell keeps exactly; those of a cell with more all go to buckets. By default 2**16 from 16 bits on, and
        none below. Real scores that lie in few buckets stay exact for longer: see `outgrown`.
    memory_limit : int
        Without buckets: bytes that scores may take; MemoryLimitError beyond.

    Notes
    -----
    An exact score takes 16 bytes, however many rows have it, and while rows come 8 a row until somebody reads. Which cells
    are folded to buckets depends on nothing but their rows (those of weight 0 are rows, too), in whatever order they
    come; rows taken away again do not bring scores back.

    `off_grid` is 1 if a score had bits that its bucket does not show, or lay beyond the last octave. While it is 0 every
    bucket holds one value, and what is read from the histogram is exact: so while a cell is small, and for float16 and
    bfloat16 scores.
    """

    scale: str = setting(default="probability", choices=("probability", "real", "logit"))
    bits: int | None = setting(default=16, low=8, high=24)
    limit: int | None = setting(default=None, low=0, high=1 << 31)
    memory_limit: int = setting(default=1 << 32, low=0, operational=True)

    exact = Tally("exact_places")
    rows = Tally("places")
    off_grid = Flat(form="flag")

    counted: ClassVar[tuple[str, ...]] = ("exact", "rows")
    folds: ClassVar[tuple[str, str, str] | None] = ("exact", "rows", "off_grid")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bits is None and self.limit is not None:
            raise ValueError(f"{type(self).__name__}: bits=None keeps every row exactly; limit= is for a histogram")
        if self.limit is not None and self.limit == _usual(self.bits):
            object.__setattr__(self, "limit", None)  # one spelling of what is meant

    @property
    def real(self) -> bool:
        """Whether scores are any finite numbers."""
        return self.scale != "probability"

    @property
    def buckets(self) -> int:
        """The number of buckets."""
        return 1 if self.bits is None else buckets(self.bits, self.real)

    @property
    def places(self) -> int:
        """Twice a bucket, and the label."""
        return 2 * self.buckets

    @property
    def exact_places(self) -> int:
        """All scores that there could be, and the label."""
        return 1 << exact_bits(self.real)

    @property
    def kept(self) -> int | None:
        """Rows that a cell keeps exactly; None for all."""
        return _usual(self.bits) if self.limit is None else self.limit

    @property
    def most(self) -> int | None:
        return self.kept

    def needs(self) -> tuple[Need, ...]:
        return label(), score(scale=self.scale), weight()

    def steps(self, like: Like) -> Iterable[Step]:
        own, bits = type(self), self.bits or 8
        rows = "y_true", "y_score"
        if like.lone and "rows" in like.dense:
            if like.weighted:
                return [Step("histogram:weigh_scores", *rows, "sample_weight", self.real, bits, own.rows, own.off_grid)]
            kernel = "histogram:count_reals" if self.real else "histogram:count_probabilities"
            return [Step(kernel, *rows, bits, own.rows, own.off_grid, checks=True)]
        if like.lone and self.most != 0:
            return [Step("exact_rows:wait_lone", *rows, "sample_weight", self.real, own.exact, checks=True)]
        into = own.exact, own.rows, own.off_grid
        return [Step("histogram:count_scores", *rows, "sample_weight", "at", self.real, bits, *into)]

    def step_with_shards(self, like: Like, shards: Any) -> Step | None:
        if like.weighted or "rows" not in like.dense or shards.most != 0:
            return None
        if self.bits is None or shards.bits > self.bits or shards.scale != self.scale:
            return None
        own, theirs = type(self), type(shards)
        into = own.rows, own.off_grid, Beside(theirs.rows), Beside(theirs.off_grid)
        how = self.real, self.bits, shards.bits
        return Step("histogram:count_with_shards", "y_true", "y_score", "at", *how, *into, checks=True)

    @property
    def folds_by_rows(self) -> bool:
        return not (self.real and self.most)

    def outgrown(self, exact: Entries, many: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return which cells go to buckets: scores that share few buckets stay exact, up to 2**20 different ones.

        More rows never bring a cell back, so that the result does not depend on splits and merges.
        """
        if self.folds_by_rows or not many.any():
            return many
        assert self.bits is not None
        exact = exact.where(many[exact.cells])
        cells, keys = exact.cells, _keys(exact, self.real)
        place, _ = self._bucket_places(exact)
        buckets = _different(cells, place >> U4(1), len(many))
        return many & ((buckets >= 1 << (self.bits - ENOUGH_LESS)) | (_different(cells, keys, len(many)) > MOST_SCORES))

    def sample(self, columns: Mapping[str, Any], rows: int) -> Entries | None:
        scores = np.asarray(columns["y_score"].values)[:rows]
        if scores.ndim != 1:
            return None
        keys, shift = key_of(scores, self.real), type(self).exact.shift(self)
        return reduce(Entries(shift, keys << U8(1), np.ones(len(keys), U4), None, (keys >> U8(63)).astype(U4)))

    def bucketed(self, exact: Entries) -> tuple[Entries, Any]:
        place, lost = self._bucket_places(exact)
        return self._coded(exact.cells, place, exact), exact.cells_with(lost)

    def _bucket_places(self, exact: Entries) -> tuple[Array, Array]:
        """Twice the bucket of each exact entry, and its label; and whether something is lost there."""
        assert self.bits is not None
        if compiled.loaded():
            place, lost = np.empty(len(exact), U4), np.empty(len(exact), np.bool_)
            kernel = compiled.kernel("histogram:buckets_of")
            kernel(_high(exact), exact.codes, self.real, self.bits, place, lost.view(np.uint8))
        else:
            bucket, lost = bucket_of(score_of(_keys(exact, self.real), self.real), self.real, self.bits)
            place = (bucket.astype(U4) << U4(1)) | (exact.codes & U8(1)).astype(U4)
        return place, lost & weighs(exact)

    def _coded(self, cells: Ints, place: Array, like: Entries) -> Entries:
        """Entries with rows and weights like others, at places of buckets."""
        shift = type(self).rows.shift(self)
        last = int(cells.max(initial=0))
        kind = code_type((last + 1) << shift)
        codes: Array = place.astype(kind, copy=False)
        if last:
            codes = (cells.astype(kind) << kind(shift)) | codes
        return reduce(Entries(shift, codes, like.counts, like.excess))

    def check(self) -> None:
        exact, rows = (self.cells.tallies[n] for n in ("exact", "rows"))
        name = type(self).__name__
        if any(negative_weight(e) for e in (exact, rows)):
            raise StateFormatError(f"{name}.excess makes a weight negative")
        blocks = (exact.where(slice(i, i + BLOCK)) for i in range(0, len(exact), BLOCK))
        if not all(all_scores(_keys(e, self.real), self.real) for e in blocks):
            raise StateFormatError(f"{name}.exact holds a score that is not of scale {self.scale}")

    # -- read from a state of one cell --------------------------------------------------------------------------------

    @property
    def folded(self) -> bool:
        """Whether there are buckets."""
        return len(self.rows) > 0

    @property
    def _held(self) -> Entries:
        """The entries, of either form."""
        held: Entries = self.rows if self.folded else self.exact
        return held

    @cached_property
    def ladder(self) -> Ladder:
        """The scores, or the buckets, in ascending order."""
        held = self._held
        places: Array
        if not self.folded:  # noqa: SIM108 - one line would be too long
            places = _keys(held, self.real)
        else:
            places = (held.places >> held.places.dtype.type(1)).astype(I8)
        first = np.ones(len(places), bool)
        np.not_equal(places[1:], places[:-1], out=first[1:])
        at = np.cumsum(first) - 1
        rungs: Array = places[first]
        if self.folded:
            rungs, at = _with_next(rungs, at, self.buckets)
        labels = (held.codes & held.codes.dtype.type(1)).astype(I8)
        rows = np.zeros((2, len(rungs)), I8)
        rows[labels, at] = held.counts
        excess = None
        if held.excess is not None:
            excess = np.zeros((2, len(rungs), 2), I8)
            excess[labels, at] = held.excess
        return Ladder(rungs, rows, excess)

    @property
    def negatives(self) -> Mass:
        return self.ladder.mass(0)

    @property
    def positives(self) -> Mass:
        return self.ladder.mass(1)

    @property
    def masses(self) -> Mass:
        """Rows (or weight) of both classes by score."""
        _, rows, excess = self.ladder
        if excess is None:
            return Mass.of(rows.sum(axis=0))
        both = excess.sum(axis=0)
        carry_fixed(both)
        return Mass.of(rows.sum(axis=0), both)

    def pairs(self) -> tuple[int, int, int, int]:
        held = self._held
        if held.excess is not None or not compiled.loaded() or not 0 < int(self.rows_seen[0] if len(self) else 0) < FEW:
            return super().pairs()
        found = np.zeros(4, np.int64)
        compiled.kernel("exact_rows:pairs")(held.places, np.array([0, len(held)]), held.counts, found)
        negatives, positives, twice, ties = found.tolist()
        return negatives, positives, twice, ties

    def ends(self) -> tuple[Floats, Floats, Floats]:
        """Return a number that no score of a rung is below, the one whose bits it shows, and one that none is above."""
        rungs = self.ladder.rungs
        if self.folded:
            assert self.bits is not None
            return ends(rungs, self.real, self.bits)
        scores = score_of(rungs, self.real)
        return scores, scores, scores

    @property
    def is_exact(self) -> bool:
        return not bool(self.off_grid)

    @property
    def saturated(self) -> bool:
        """Whether most pairs that share a bucket do so at 0 or 1, where more bits tell no more apart."""
        if self.real or not self.folded or self.is_exact:
            return False
        at = np.flatnonzero((self.ladder.rungs == 0) | (self.ladder.rungs == self.buckets - 1))
        ends = sum(c * a for c, a in zip(self.negatives.cells(at), self.positives.cells(at), strict=True))
        return 2 * ends > self.pairs()[3]

    @property
    def positives_seen(self) -> NDArray[np.int64]:
        out = np.zeros(len(self), I8)
        for name, entries in self.cells.tallies.items():
            begins = self.starts(name)
            held = begins[1:] > begins[:-1]  # entries of a cell stand together
            if held.any():
                positive = entries.counts * (entries.codes & entries.codes.dtype.type(1)).astype(entries.counts.dtype)
                out[held] += np.add.reduceat(positive, begins[:-1][held], dtype=I8)
        return out

    @property
    def counts(self) -> Ints:
        return self.ladder.rows

    @property
    def weighted(self) -> bool:
        return self._held.excess is not None

    def thresholds(self, index: Ints) -> Floats:
        rungs = self.ladder.rungs[index]
        if not self.folded:
            return self.undo(score_of(rungs, self.real))
        assert self.bits is not None
        return self.undo(first_of(rungs, self.real, self.bits, exact=self.is_exact))

    def corrected(self, negative_rate: float, scale: str) -> Self:
        view = self.holding(self.cells)
        object.__setattr__(view, "undo", partial(undone, rate=negative_rate, scale=scale))
        return view

    @staticmethod
    def undo(scores: Floats) -> Floats:
        """What scores are read as: see `corrected`."""
        return scores

    # -- fewer bits ---------------------------------------------------------------------------------------------------

    def coarsen(self, bits: int, limit: int | None = None) -> Self:
        """Return the histogram of the same rows with fewer bits: what they would have made there, to the bit.

        Parameters
        ----------
        bits : int
            How many bits are left.
        limit : int, optional
            Rows that a cell then keeps exactly: no more than now. By default as many as is usual with these bits, or as
            now if these are fewer.

        Raises
        ------
        InvalidInputError
            Neither bits nor exact rows come back.
        """
        if self.bits is not None and bits > self.bits:
            raise InvalidInputError(f"a histogram of {self.bits} bits cannot be refined to {bits}; coarsen() goes down")
        usual, most = _usual(bits), self.kept
        assert usual is not None
        if limit is not None and most is not None and limit > most:
            raise InvalidInputError(
                f"cells with more than {most} rows are folded; limit={limit} cannot bring them back"
            )
        if limit is None:
            limit = usual if most is None else min(usual, most)
        new = self.with_settings(bits=bits, limit=limit)
        return self if new.settings == self.settings else self._as(new)

    def _as(self, new: Self) -> Self:
        """The same rows under coarser settings."""
        assert new.bits is not None
        assert new.most is not None
        cells, off_grid = self.cells, self.flat("off_grid").copy()
        rows, exact = cells.tallies["rows"], self._exact_entries()
        if len(rows) and self.bits is not None and new.bits < self.bits:
            rows, lost = self._coarser(rows, new)
            off_grid[lost] = 1
        many = self.by_cell("exact") > new.most if len(exact) else np.zeros(len(cells), bool)
        if many.any():
            many = new.outgrown(exact, many)
        if many.any():
            apart = many[exact.cells]
            made, lost = new.bucketed(exact.where(apart))
            off_grid[lost] = 1
            rows = reduce(_both(rows, made)) if len(rows) else made
            exact = canonical(exact.where(~apart))
        rows = rows if len(rows) else Entries.none(type(new).rows.shift(new))
        tallies = {n: e for n, e in (("exact", exact), ("rows", rows)) if n in new.parts()}
        return new.holding(replace(cells, flats={**cells.flats, "off_grid": off_grid}, tallies=tallies)).present()

    def _exact_entries(self) -> Entries:
        """The exact entries of all cells."""
        return self.cells.tallies["exact"]

    def _coarser(self, rows: Entries, new: Self) -> tuple[Entries, Any]:
        """Bucket entries with fewer bits, and the cells in which something is lost."""
        assert self.bits is not None
        assert new.bits is not None
        bucket = (rows.places >> rows.places.dtype.type(1)).astype(I8)
        to, off = coarser(bucket, self.real, self.bits, self.bits - new.bits)
        place = (to << 1) | (rows.codes & rows.codes.dtype.type(1)).astype(I8)
        return new._coded(rows.cells, place, rows), rows.cells[off & weighs(rows)]


def _usual(bits: int | None) -> int | None:
    """Rows that a cell keeps exactly, if nothing else is said."""
    return None if bits is None else EXACT if bits >= 16 else 0


def _different(cells: Ints, numbers: Array, count: int) -> Ints:
    """Return how many different numbers there are in each cell; they ascend."""
    first = np.ones(len(cells), bool)
    first[1:] = (cells[1:] != cells[:-1]) | (numbers[1:] != numbers[:-1])
    return np.bincount(cells[first], minlength=count)


def _high(exact: Entries) -> Array:
    assert exact.high is not None
    return exact.high


def _keys(exact: Entries, real: bool) -> NDArray[np.uint64]:
    """The order of the scores of exact entries."""
    keys = exact.codes >> U8(1)
    if real:
        keys |= (_high(exact) & U4(1)).astype(U8) << U8(63)
    return keys


def _with_next(rungs: Ints, at: Ints, count: int) -> tuple[Ints, Ints]:
    """Put the bucket above behind each that holds rows, unless it does, too."""
    alone = np.ones(len(rungs), bool)
    alone[:-1] = rungs[1:] != rungs[:-1] + 1
    alone[-1:] &= rungs[-1:] + 1 < count
    where = np.arange(len(rungs)) + np.cumsum(alone) - alone
    out = np.empty(len(rungs) + int(alone.sum()), I8)
    out[where] = rungs
    out[where[alone] + 1] = rungs[alone] + 1
    return out, where[at]


def _both(a: Entries, b: Entries) -> Entries:
    """Entries of different cells, one behind the other."""
    kind = np.result_type(a.codes, b.codes)
    excess = None
    if a.excess is not None or b.excess is not None:
        excess = np.concatenate([np.zeros((len(e), 2), I8) if e.excess is None else e.excess for e in (a, b)])
    codes = np.concatenate([a.codes.astype(kind), b.codes.astype(kind)])
    return Entries(a.shift, codes, np.concatenate([a.mass, b.mass]), excess)


def negative_weight(entries: Entries) -> bool:
    """Whether rows + excess is below zero in some entry."""
    if entries.excess is None:
        return False
    return bool((entries.excess[:, 0].astype(np.float64) / (1 << 20) + entries.mass < -1e-6).any())
