"""Exact sums over closed groups, in constant memory. A group is closed once all of its rows have been counted."""

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
# An upper bound on the weight of a group. Among the GROUP_WEIGHTS, "pairs" can become the largest: it is the product of
# the total weights of negatives and positives. A group has fewer than 2**62 negatives and fewer than 2**62 positives,
# and each row has a weight below 2**31, so the product is below 2**186.
HEAVIEST = 2.0**192
MOMENTS = ("squares", "products", "weights", "lone")
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Sums = dict[str, Ints]


class Groups(NamedTuple):
    """The weights of the negatives, positives, concordant pairs (`wins`) and all pairs of every group.

    A pair is a positive and a negative of the same group. It is concordant if the positive has the higher score; a tie
    counts one half. Each number is the exact result, rounded once to float64. Therefore `wins` never exceeds `pairs`, and
    the two are equal if all pairs are concordant.
    """

    negatives: Floats
    positives: Floats
    wins: Floats
    pairs: Floats

    def auc(self) -> Floats:
        """Return the AUC of every group; NaN if the total weight of the group's pairs is 0."""
        pairs = self.pairs
        auc: Floats = np.divide(self.wins, pairs, out=np.full(len(pairs), np.nan), where=pairs > 0)
        return auc

    def weight(self, by: str) -> Floats:
        """Return the weight of every group in an average over groups.

        The weight of a group is that of its rows (`by="impressions"`), its positives ("positives") or its pairs ("pairs"),
        or 1 ("uniform").
        """
        if by == "impressions":
            return self.negatives + self.positives
        if by == "positives":
            return self.positives
        return self.pairs if by == "pairs" else np.ones(len(self.wins))

    @classmethod
    def concat(cls, parts: Iterable[Groups]) -> Groups:
        """Concatenate the groups of several `Groups` objects."""
        chunks = [cls.zeros(), *parts]
        return cls(*(np.concatenate([p[i] for p in chunks]) for i in range(4)))

    @classmethod
    def from_rows(cls, count: int, scan: Callable[..., Any], *rows: Any) -> Groups:
        """Return the groups that the kernel `scan` computes from rows without weights.

        `count` is the number of groups, and `rows` contains the input of the kernel. The kernel fills in negatives,
        positives and concordant pairs. Without weights, the number of pairs in a group is negatives times positives.
        """
        out = cls.zeros(count)
        scan(*rows, *out[:3])
        np.multiply(out.negatives, out.positives, out=out.pairs)
        return out

    @classmethod
    def zeros(cls, count: int = 0) -> Groups:
        """Return `count` groups in which the weights of negatives, positives, concordant pairs and all pairs are 0."""
        return cls(*(np.zeros(count) for _ in range(4)))


class ClosedSums(State):
    """The base class for exact sums over closed (complete) groups, such as the weighted sum of their AUCs.

    There is a separate sum for each way of weighting groups (see GROUP_WEIGHTS). Memory use does not depend on the
    number of groups.
    """

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
        # Every count is below 2**62. A sum of three counts fits in a uint64, but may exceed the range of int64.
        good = (groups.astype(np.uint64).sum(axis=1) <= rows.astype(np.uint64).sum(axis=1)).all()
        good &= not (both.is_exceeded_by(weights, HEAVIEST) or one.is_exceeded_by(lone, HEAVIEST))
        good &= not (both.is_exceeded_by(square_weights, HEAVIEST**2) or one.is_exceeded_by(square_lone, HEAVIEST**2))
        # An AUC is at most 1. In each pair below, the first sum is therefore at most the second one.
        ordered = (sums, weights), (squares, products), (products, square_weights)
        good &= all(are_within(*pair, rounded=False) for pair in ordered)
        for i, counted in ((0, (weights, square_weights)), (1, (lone, square_lone))):
            ones = RowWeight(groups[:, i])
            good &= all(np.array_equal(c[:, UNIFORM], ones.to_superaccumulators()) for c in counted)
        if not good:
            raise StateFormatError(f"the state is corrupt: {type(self).__name__} contains sums that no groups can have")

    def total(self, name: str, by: str) -> Fraction:
        """Return a sum over all groups.

        Parameters
        ----------
        name : {"sums", "weights", "lone"}
            Which sum to return, where w is the weight of a group: the sum of w * AUC ("sums"); the sum of w over groups
            with both classes ("weights"); or the sum of w over groups with only one class ("lone").
        by : str
            The weighting of the groups, one of GROUP_WEIGHTS.
        """
        return exact_to_fraction(getattr(self, name)[GROUP_WEIGHTS.index(by)])

    def moment(self, name: str, by: str) -> Fraction:
        """Return a sum of squares or products over all groups.

        Parameters
        ----------
        name : {"squares", "products", "weights", "lone"}
            Which sum to return, where w is the weight of a group: the sum of (w * AUC)^2 ("squares"), of (w * AUC) * w
            ("products"), of w^2 over groups with both classes ("weights"), or of w^2 over groups with only one class
            ("lone").
        by : str
            The weighting of the groups, one of GROUP_WEIGHTS.
        """
        return exact_to_fraction(self.moments[MOMENTS.index(name), GROUP_WEIGHTS.index(by)])


class SubtractableSums(ClosedSums):
    """Exact sums over closed groups; the sums over some of these groups can be subtracted later.

    Unlike `SealedGroups`, the state does not record which partitions of groups it contains.
    """

    def needs(self) -> tuple[Any, ...]:
        return label(), score(), group()

    def close_groups(self) -> SubtractableSums:
        """Return this state unchanged, because its groups are already closed."""
        return self


class SealedGroups(ClosedSums, tag="sealed_groups"):
    """Sums over the closed groups of some partitions. The partitions are disjoint subsets of all groups.

    Parameters
    ----------
    partitions : int
        The number of partitions into which all groups are divided. The state records which partitions each slice
        contains, so merging two states that contain the same partition of a slice raises an error.
    """

    partitions: int = setting(default=1, low=1)

    sealed = Flat("partitions", form="once", front=True)

    def needs(self) -> tuple[Any, ...]:
        return label(), score(), group()

    @property
    def reasons(self) -> tuple[str, ...]:
        # The counts of dropped rows come from `GroupRows` states, which drop rows for two more reasons: an invalid
        # weight, and a group outside the sample.
        return (*super().reasons, "sample_weight", "sample")

    def check_rows(self, columns: Mapping[str, Any], at: Ints) -> None:
        raise InvalidInputError(
            "sealed groups are closed and accept no more rows; update the metric before you call seal()", column="group"
        )

    def steps(self, like: Any) -> Iterable[Any]:
        return ()

    @cached_property
    def total_row_counts(self) -> Ints:
        # Count each sealed partition as a row, so that a state with a sealed partition is not considered empty, even if
        # the partition has no rows.
        return np.asarray(self.row_counts + self.read_cells_named("sealed").sum(axis=1))

    def unify_parts(self, states: Sequence[Self]) -> Sequence[Self]:
        if not self.axes and (twice := sum(s.read_cells_named("sealed").sum(axis=0) for s in states) > 1).any():
            part = int(np.flatnonzero(twice)[0])
            raise IncompatibleStateError(
                f"partition {part} of {self.partitions} is sealed in more than one state; merge each partition once"
            )
        return states

    def close_groups(self) -> SealedGroups:
        """Return this state unchanged, because its groups are already closed."""
        return self

    def to_subtractable(self) -> SubtractableSums:
        flats = {n: a for n, a in self.cells.flats.items() if n not in ("sealed", "dropped")}
        return SubtractableSums().with_cells(replace(self.cells, flats=flats))

    def seal(self, partition: tuple[int, int] | None = None) -> SealedGroups:
        """Return the same sums, marked as the sums over one partition of the groups.

        Parameters
        ----------
        partition : (i, n), optional
            The index of the partition and the number of partitions; (0, 1) treats all groups as one partition. By
            default, the state is returned unchanged.
        """
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
    """Return the arrays of a `ClosedSums` state for these groups, keyed by name, such as "sums"."""
    sums = {"groups": np.zeros(3, np.int64)}
    sums |= {n: np.zeros((*s, CHUNKS), np.int64) for n, s in (("sums", (4,)), ("weights", (4,)), ("lone", (4,)))}
    sums["moments"] = np.zeros((4, 4, CHUNKS), np.int64)
    # Use the compiled kernel only if kernels are already loaded. Loading them just for a merge would be slow.
    if kernel_registry.has_kernels():
        kernel_registry.find_kernel("group_sums:add_groups")(*groups, *(a.reshape(-1) for a in sums.values()))
    else:
        _sum_in_numpy(groups, sums)
    return sums


def add_sums(a: Sums, b: Sums) -> Sums:
    """Add the sums over two disjoint sets of groups."""
    out = {n: x + b[n] for n, x in a.items()}
    for name in ("sums", "weights", "lone", "moments"):
        carry_exact(out[name])
    return out


def _sum_in_numpy(groups: Groups, sums: Sums) -> None:
    """Fill the arrays in `sums` (see `sum_groups`) with numpy; the results equal those of the kernel bit for bit."""
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
    """Convert an exact sum of float64 numbers to a superaccumulator.

    A superaccumulator is a fixed-point number that is wide enough for every float64. It is stored as 32-bit words, each
    in an int64, from the lowest to the highest word. Only the highest word has a sign.
    """
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
    # Mantissas of numbers with the same exponent are summed with `bincount`, which adds in float64. To keep these sums
    # below 2**53, and therefore exact, each 53-bit mantissa is split into two halves of at most 27 bits, and at most
    # 2**26 halves are added at a time.
    total = Fraction(0)
    for start in range(0, len(values), 1 << 26):
        some = slice(start, start + (1 << 26))
        for half, scale in ((whole[some] >> 27, 1 << 27), (whole[some] & ((1 << 27) - 1), 1)):
            for e, part in enumerate(np.bincount(exponents[some] - least, half)):
                if part:
                    total += int(part) * scale * Fraction(2) ** (e + least - 53)
    return total
