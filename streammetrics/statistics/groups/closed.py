"""Sums over closed groups: constant size, exact, whatever the groups weigh."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from ...batch.ids import group
from ...batch.kinds import label, score
from ...errors import IncompatibleStateError, InvalidInputError, StateFormatError
from ...numerics import kernel_registry as compiled
from ...numerics.exact import CHUNK_BASE, CHUNKS, carry_exact, exact_to_fraction
from ...numerics.settings import setting
from ...state.consistency import RowWeight, all_within
from ...state.declare import Flat
from ...state.state import State

__all__ = ["GROUP_WEIGHTS", "ClosedSums", "Groups", "SealedGroups", "exact_sum", "summed"]

GROUP_WEIGHTS = ("impressions", "uniform", "positives", "pairs")
UNIFORM = GROUP_WEIGHTS.index("uniform")
HEAVIEST = 2.0**192  # of a group, by pairs: 2**62 rows of either class, each of a weight below 2**31
MOMENTS = ("squares", "products", "weights", "lone")
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Sums = dict[str, Ints]


class Groups(NamedTuple):
    """Every group: weight of negatives and positives, pairs won by positives (ties one half), all pairs.

    Each is rounded once. So no AUC is beyond 1, and where all pairs are won it is 1, whatever the weights.
    """

    negatives: Floats
    positives: Floats
    wins: Floats
    pairs: Floats

    def auc(self) -> Floats:
        """AUC of every group; NaN for one class."""
        pairs = self.pairs
        auc: Floats = np.divide(self.wins, pairs, out=np.full(len(pairs), np.nan), where=pairs > 0)
        return auc

    def weight(self, by: str) -> Floats:
        """What every group counts."""
        if by == "impressions":
            return self.negatives + self.positives
        if by == "positives":
            return self.positives
        return self.pairs if by == "pairs" else np.ones(len(self.wins))

    @classmethod
    def joined(cls, parts: Iterable[Groups]) -> Groups:
        """Groups of several partitions."""
        held = [cls.none(), *parts]
        return cls(*(np.concatenate([p[i] for p in held]) for i in range(4)))

    @classmethod
    def of_rows(cls, count: int, scan: Callable[..., Any], *rows: Any) -> Groups:
        """Groups that a kernel reads from rows without weights, whose pairs are products of counts."""
        out = cls.none(count)
        scan(*rows, *out[:3])
        np.multiply(out.negatives, out.positives, out=out.pairs)
        return out

    @classmethod
    def none(cls, count: int = 0) -> Groups:
        """Room for groups."""
        return cls(*(np.zeros(count) for _ in range(4)))


class ClosedSums(State):
    """Exact sums over closed groups, whatever they weigh: constant memory."""

    groups = Flat(3, front=True)
    rows = Flat(2, front=True)
    sums = Flat(4, form="exact", front=True)
    weights = Flat(4, form="exact", front=True)
    lone = Flat(4, form="exact", front=True)
    moments = Flat(4, 4, form="exact", front=True)

    def check(self) -> None:
        super().check()
        groups, rows = self.flat("groups"), self.flat("rows")
        sums, weights, lone, moments = (self.flat(n) for n in ("sums", "weights", "lone", "moments"))
        both, one = (RowWeight(groups[:, i, None]) for i in (0, 1))
        squares, products, square_weights, square_lone = (moments[:, i] for i in range(4))
        good = (groups.astype(np.uint64).sum(axis=1) <= rows.astype(np.uint64).sum(axis=1)).all()  # which do not wrap
        good &= not (both.fall_short(weights, HEAVIEST) or one.fall_short(lone, HEAVIEST))
        good &= not (both.fall_short(square_weights, HEAVIEST**2) or one.fall_short(square_lone, HEAVIEST**2))
        ordered = (sums, weights), (squares, products), (products, square_weights)  # by terms: no AUC is beyond 1
        good &= all(all_within(*pair, rounded=False) for pair in ordered)
        for i, counted in ((0, (weights, square_weights)), (1, (lone, square_lone))):
            ones = RowWeight(groups[:, i])
            good &= all(np.array_equal(c[:, UNIFORM], ones.exact()) for c in counted)
        if not good:
            raise StateFormatError(f"{type(self).__name__} holds sums that no groups have")

    def total(self, name: str, by: str) -> Fraction:
        """One of the sums."""
        return exact_to_fraction(getattr(self, name)[GROUP_WEIGHTS.index(by)])

    def moment(self, name: str, by: str) -> Fraction:
        """One of the sums of squares.

        Parameters
        ----------
        name : {"squares", "products", "weights", "lone"}
            Of weight times AUC; of that times the weight; of the weight; of the weight of groups of one class.
        by : str
            What a group weighs.
        """
        return exact_to_fraction(self.moments[MOMENTS.index(name), GROUP_WEIGHTS.index(by)])


class SumsApart(ClosedSums):
    """Sums over closed groups from which those of some can be taken away: nothing says which are there."""

    def needs(self) -> tuple[Any, ...]:
        return label(), score(), group()

    def close_groups(self) -> SumsApart:
        """Return itself: it is closed."""
        return self


class SealedGroups(ClosedSums, tag="sealed_groups"):
    """Closed groups of some partitions.

    Parameters
    ----------
    partitions : int
        How many partitions there are; each is sealed once.
    """

    partitions: int = setting(default=1, low=1)

    sealed = Flat("partitions", form="once", front=True)

    def needs(self) -> tuple[Any, ...]:
        return label(), score(), group()

    @property
    def reasons(self) -> tuple[str, ...]:
        return (*super().reasons, "sample_weight", "sample")  # those of the open state

    def admit_rows(self, columns: Mapping[str, Any], at: Ints) -> None:
        raise InvalidInputError("sealed groups are closed: rows go to the open state, before seal()", column="group")

    def steps(self, like: Any) -> Iterable[Any]:
        return ()

    @cached_property
    def seen(self) -> Ints:
        return np.asarray(self.rows_seen + self.flat("sealed").sum(axis=1))  # of a partition without rows, too

    def alike(self, states: Sequence[Self]) -> Sequence[Self]:
        if not self.axes and (twice := sum(s.flat("sealed").sum(axis=0) for s in states) > 1).any():
            part = int(np.flatnonzero(twice)[0])
            raise IncompatibleStateError(f"partition {part} of {self.partitions} is sealed on both sides")
        return states

    def close_groups(self) -> SealedGroups:
        """Return itself: it is closed."""
        return self

    def apart(self) -> SumsApart:
        flats = {n: a for n, a in self.cells.flats.items() if n not in ("sealed", "dropped")}
        return SumsApart().holding(replace(self.cells, flats=flats))

    def seal(self, partition: tuple[int, int] | None = None) -> SealedGroups:
        """Return these groups as all those of a partition, (0, 1) being all there are."""
        if partition is None:
            return self
        i, parts = partition
        sealed = np.zeros((len(self), parts), np.int64)
        sealed[:, i] = 1
        cells = replace(self.cells, flats={**self.cells.flats, "sealed": sealed})
        return self.with_settings(partitions=parts).holding(cells)

    @property
    def positives_seen(self) -> NDArray[np.int64]:
        return np.asarray(self.flat("rows")[:, 1])

    def facts(self) -> dict[str, Any]:
        return {"rows": int(self.rows.sum()), "positives": int(self.rows[1])}


# -- sums over groups ------------------------------------------------------------------------------------------------


def summed(groups: Groups) -> Sums:
    """Return the sums over some groups, by part."""
    made = {"groups": np.zeros(3, np.int64)}
    made |= {n: np.zeros((*s, CHUNKS), np.int64) for n, s in (("sums", (4,)), ("weights", (4,)), ("lone", (4,)))}
    made["moments"] = np.zeros((4, 4, CHUNKS), np.int64)
    if compiled.loaded():  # by whoever counts; not to be loaded for a merge
        compiled.kernel("group_rows:close")(*groups, *(a.reshape(-1) for a in made.values()))
    else:
        _sum(groups, made)
    return made


def added(a: Sums, b: Sums) -> Sums:
    """Add sums to sums."""
    out = {n: x + b[n] for n, x in a.items()}
    for name in ("sums", "weights", "lone", "moments"):
        carry_exact(out[name])
    return out


def _sum(groups: Groups, made: Sums) -> None:
    """Do in numpy, bit for bit, what the kernel does."""
    held = [g > 0 for g in groups[:2]]
    both, one = held[0] & held[1], held[0] ^ held[1]
    made["groups"][:] = both.sum(), one.sum(), len(both) - both.sum() - one.sum()
    auc = groups.auc()[both]
    for i, by in enumerate(GROUP_WEIGHTS):
        w, lone = groups.weight(by)[both], groups.weight(by)[one]
        x = w * auc
        for name, values in (("sums", x), ("weights", w), ("lone", lone)):
            made[name][i] = chunks_of(exact_sum(values))
        for k, values in enumerate((x * x, x * w, w * w, lone * lone)):
            made["moments"][k, i] = chunks_of(exact_sum(values))


def chunks_of(total: Fraction) -> Ints:
    """A sum of float64 as a superaccumulator."""
    scaled = total * (1 << CHUNK_BASE)
    number = scaled.numerator
    assert scaled.denominator == 1
    words = [(number >> (32 * k)) & 0xFFFFFFFF for k in range(CHUNKS - 1)]
    return np.array([*words, number >> (32 * (CHUNKS - 1))], np.int64)


def exact_sum(values: Floats) -> Fraction:
    """The sum of floats that are not negative, without rounding."""
    if values.max(initial=0.0) < 2.0**31 and np.array_equal(integers := values.astype(np.int64), values):
        return Fraction(int(integers.sum()))
    mantissas, exponents = np.frexp(values)
    whole = (mantissas * 2.0**53).astype(np.int64)
    least = int(exponents.min(initial=0))
    # by exponent, in halves of 27 bits: sums of up to 2**26 of them are exact in float64
    total = Fraction(0)
    for start in range(0, len(values), 1 << 26):
        some = slice(start, start + (1 << 26))
        for half, scale in ((whole[some] >> 27, 1 << 27), (whole[some] & ((1 << 27) - 1), 1)):
            for e, part in enumerate(np.bincount(exponents[some] - least, half)):
                if part:
                    total += int(part) * scale * Fraction(2) ** (e + least - 53)
    return total
