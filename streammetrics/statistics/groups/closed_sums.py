"""Exact sums over closed groups, to which no more rows may be added, in constant memory."""

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
from ...numerics import kernel_registry
from ...numerics.exact import CHUNK_BASE, CHUNKS, carry_exact, exact_to_fraction
from ...numerics.settings import setting
from ...state.consistency import RowWeight, are_within
from ...state.declare import Flat
from ...state.state import State

__all__ = ["GROUP_WEIGHTS", "ClosedSums", "Groups", "SealedGroups", "exact_sum", "sum_groups"]

GROUP_WEIGHTS = ("impressions", "uniform", "positives", "pairs")
UNIFORM = GROUP_WEIGHTS.index("uniform")
# An upper limit of the weight of a group by its pairs: 2**62 rows of either class, each of a weight below 2**31.
HEAVIEST = 2.0**192
MOMENTS = ("squares", "products", "weights", "lone")
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Sums = dict[str, Ints]


class Groups(NamedTuple):
    """The weights of negatives, of positives, of concordant pairs (ties count one half) and of all pairs of every group.

    Each number is rounded once. So an AUC never exceeds 1, and is exactly 1 if all pairs are concordant.
    """

    negatives: Floats
    positives: Floats
    wins: Floats
    pairs: Floats

    def auc(self) -> Floats:
        """Return the AUC of every group; NaN if a class has no rows."""
        pairs = self.pairs
        auc: Floats = np.divide(self.wins, pairs, out=np.full(len(pairs), np.nan), where=pairs > 0)
        return auc

    def weight(self, by: str) -> Floats:
        """Return the weight of every group in an average over groups: its rows ("impressions"), positives, pairs, or 1."""
        if by == "impressions":
            return self.negatives + self.positives
        if by == "positives":
            return self.positives
        return self.pairs if by == "pairs" else np.ones(len(self.wins))

    @classmethod
    def concat(cls, parts: Iterable[Groups]) -> Groups:
        """Return the groups of several partitions as one."""
        chunks = [cls.zeros(), *parts]
        return cls(*(np.concatenate([p[i] for p in chunks]) for i in range(4)))

    @classmethod
    def from_rows(cls, count: int, scan: Callable[..., Any], *rows: Any) -> Groups:
        """Return the groups that a kernel computes from unweighted rows, whose pairs are products of row counts."""
        out = cls.zeros(count)
        scan(*rows, *out[:3])
        np.multiply(out.negatives, out.positives, out=out.pairs)
        return out

    @classmethod
    def zeros(cls, count: int = 0) -> Groups:
        """Return the sums of `count` groups, all zero."""
        return cls(*(np.zeros(count) for _ in range(4)))


class ClosedSums(State):
    """Exact sums over closed groups, for every way to weight groups, in constant memory."""

    groups = Flat(3, front=True)
    rows = Flat(2, front=True)
    sums = Flat(4, form="exact", front=True)
    weights = Flat(4, form="exact", front=True)
    lone = Flat(4, form="exact", front=True)
    moments = Flat(4, 4, form="exact", front=True)

    def check(self) -> None:
        super().check()
        groups, rows = self.read_cells_named("groups"), self.read_cells_named("rows")
        sums, weights, lone, moments = (self.read_cells_named(n) for n in ("sums", "weights", "lone", "moments"))
        both, one = (RowWeight(groups[:, i, None]) for i in (0, 1))
        squares, products, square_weights, square_lone = (moments[:, i] for i in range(4))
        # In uint64, sums of counts below 2**62 do not wrap around.
        good = (groups.astype(np.uint64).sum(axis=1) <= rows.astype(np.uint64).sum(axis=1)).all()
        good &= not (both.is_exceeded_by(weights, HEAVIEST) or one.is_exceeded_by(lone, HEAVIEST))
        good &= not (both.is_exceeded_by(square_weights, HEAVIEST**2) or one.is_exceeded_by(square_lone, HEAVIEST**2))
        # No AUC exceeds 1, so the first sum of each pair below is at most the second, term by term.
        ordered = (sums, weights), (squares, products), (products, square_weights)
        good &= all(are_within(*pair, rounded=False) for pair in ordered)
        for i, counted in ((0, (weights, square_weights)), (1, (lone, square_lone))):
            ones = RowWeight(groups[:, i])
            good &= all(np.array_equal(c[:, UNIFORM], ones.to_superaccumulators()) for c in counted)
        if not good:
            raise StateFormatError(f"{type(self).__name__} holds sums that no groups have")

    def total(self, name: str, by: str) -> Fraction:
        """Return the sum over groups in the part `name`, where each group has the weight `by`."""
        return exact_to_fraction(getattr(self, name)[GROUP_WEIGHTS.index(by)])

    def moment(self, name: str, by: str) -> Fraction:
        """Return the sum over groups of one of four squares or products.

        Parameters
        ----------
        name : {"squares", "products", "weights", "lone"}
            The sum of (w AUC)^2, of (w AUC) w, of w^2, or of w^2 over groups of one class, with w the weight of a group.
        by : str
            The weight of a group, one of GROUP_WEIGHTS.
        """
        return exact_to_fraction(self.moments[MOMENTS.index(name), GROUP_WEIGHTS.index(by)])


class SubtractableSums(ClosedSums):
    """Sums over closed groups that allow subtraction, because they do not record which groups they contain."""

    def needs(self) -> tuple[Any, ...]:
        return label(), score(), group()

    def close_groups(self) -> SubtractableSums:
        """Return the state itself, because its groups are closed already."""
        return self


class SealedGroups(ClosedSums, tag="sealed_groups"):
    """Sums over the closed groups of some partitions.

    Parameters
    ----------
    partitions : int
        The number of partitions; each is sealed once.
    """

    partitions: int = setting(default=1, low=1)

    sealed = Flat("partitions", form="once", front=True)

    def needs(self) -> tuple[Any, ...]:
        return label(), score(), group()

    @property
    def reasons(self) -> tuple[str, ...]:
        # Rows were dropped while groups were open, so the reasons of that state are included.
        return (*super().reasons, "sample_weight", "sample")

    def check_rows(self, columns: Mapping[str, Any], at: Ints) -> None:
        raise InvalidInputError("sealed groups are closed: rows go to the open state, before seal()", column="group")

    def steps(self, like: Any) -> Iterable[Any]:
        return ()

    @cached_property
    def total_row_counts(self) -> Ints:
        # A sealed partition counts as content even if it has no rows.
        return np.asarray(self.row_counts + self.read_cells_named("sealed").sum(axis=1))

    def unify_parts(self, states: Sequence[Self]) -> Sequence[Self]:
        if not self.axes and (twice := sum(s.read_cells_named("sealed").sum(axis=0) for s in states) > 1).any():
            part = int(np.flatnonzero(twice)[0])
            raise IncompatibleStateError(f"partition {part} of {self.partitions} is sealed on both sides")
        return states

    def close_groups(self) -> SealedGroups:
        """Return the state itself, because its groups are closed already."""
        return self

    def to_subtractable(self) -> SubtractableSums:
        flats = {n: a for n, a in self.cells.flats.items() if n not in ("sealed", "dropped")}
        return SubtractableSums().with_cells(replace(self.cells, flats=flats))

    def seal(self, partition: tuple[int, int] | None = None) -> SealedGroups:
        """Return the same sums, recorded as those of partition i of n; (0, 1) stands for all groups."""
        if partition is None:
            return self
        i, parts = partition
        sealed = np.zeros((len(self), parts), np.int64)
        sealed[:, i] = 1
        cells = replace(self.cells, flats={**self.cells.flats, "sealed": sealed})
        return self.with_settings(partitions=parts).with_cells(cells)

    @property
    def positive_counts(self) -> NDArray[np.int64]:
        return np.asarray(self.read_cells_named("rows")[:, 1])

    def facts(self) -> dict[str, Any]:
        return {"rows": int(self.rows.sum()), "positives": int(self.rows[1])}


# -- sums over groups ------------------------------------------------------------------------------------------------


def sum_groups(groups: Groups) -> Sums:
    """Return the sums over some groups, by the name of the part of the state."""
    sums = {"groups": np.zeros(3, np.int64)}
    sums |= {n: np.zeros((*s, CHUNKS), np.int64) for n, s in (("sums", (4,)), ("weights", (4,)), ("lone", (4,)))}
    sums["moments"] = np.zeros((4, 4, CHUNKS), np.int64)
    # If rows were counted, the kernels are loaded. A merge alone must not load them, because that is slow.
    if kernel_registry.has_kernels():
        kernel_registry.find_kernel("group_sums:add_groups")(*groups, *(a.reshape(-1) for a in sums.values()))
    else:
        _sum_in_numpy(groups, sums)
    return sums


def add_sums(a: Sums, b: Sums) -> Sums:
    """Return the sums over two disjoint sets of groups together."""
    out = {n: x + b[n] for n, x in a.items()}
    for name in ("sums", "weights", "lone", "moments"):
        carry_exact(out[name])
    return out


def _sum_in_numpy(groups: Groups, sums: Sums) -> None:
    """Compute the sums in numpy, bit for bit as the kernel does."""
    has_rows = [g > 0 for g in groups[:2]]
    two_classes, one_class = has_rows[0] & has_rows[1], has_rows[0] ^ has_rows[1]
    sums["groups"][:] = two_classes.sum(), one_class.sum(), len(two_classes) - two_classes.sum() - one_class.sum()
    auc = groups.auc()[two_classes]
    for i, by in enumerate(GROUP_WEIGHTS):
        w, lone = groups.weight(by)[two_classes], groups.weight(by)[one_class]
        x = w * auc
        for name, values in (("sums", x), ("weights", w), ("lone", lone)):
            sums[name][i] = chunks_of(exact_sum(values))
        for k, values in enumerate((x * x, x * w, w * w, lone * lone)):
            sums["moments"][k, i] = chunks_of(exact_sum(values))


def chunks_of(total: Fraction) -> Ints:
    """Return an exact sum of float64 as a superaccumulator: 32-bit words of a fixed-point number, signed at the top."""
    scaled = total * (1 << CHUNK_BASE)
    number = scaled.numerator
    assert scaled.denominator == 1
    words = [(number >> (32 * k)) & 0xFFFFFFFF for k in range(CHUNKS - 1)]
    return np.array([*words, number >> (32 * (CHUNKS - 1))], np.int64)


def exact_sum(values: Floats) -> Fraction:
    """Return the exact sum of nonnegative floats as a fraction."""
    if values.max(initial=0.0) < 2.0**31 and np.array_equal(integers := values.astype(np.int64), values):
        return Fraction(int(integers.sum()))
    mantissas, exponents = np.frexp(values)
    whole = (mantissas * 2.0**53).astype(np.int64)
    least = int(exponents.min(initial=0))
    # Mantissas of one exponent are summed by bincount, in halves of 27 bits: sums of up to 2**26 halves are exact in
    # float64.
    total = Fraction(0)
    for start in range(0, len(values), 1 << 26):
        some = slice(start, start + (1 << 26))
        for half, scale in ((whole[some] >> 27, 1 << 27), (whole[some] & ((1 << 27) - 1), 1)):
            for e, part in enumerate(np.bincount(exponents[some] - least, half)):
                if part:
                    total += int(part) * scale * Fraction(2) ** (e + least - 53)
    return total
