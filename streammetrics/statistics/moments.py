"""Exact sums of columns, their squares and products: what means, variances, R2 and correlations are made of."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..batch.kinds import Need, matrix, weight
from ..batch.numbers import OCTAVES, number
from ..errors import StateFormatError
from ..numerics.exact import about, exact_to_fraction
from ..numerics.settings import setting, union
from ..state.consistency import weight_of
from ..state.declare import Flat
from .covariance import Spread, spread
from .extremes import check_range, value_of
from .step import NOTHING, Like, Step
from .weighted_rows import WeighedRows, check_columns

__all__ = ["Moments"]

Ints = NDArray[np.int64]

LARGEST = 2.0**416  # more than a number that is taken
CLOSE = 2.0**-30  # relatively: what float64 can tell
TERMS: Mapping[str, tuple[tuple[int, int], ...]] = {
    "x": ((0, -1),), "y": ((1, -1),), "xx": ((0, 0),), "xy": ((0, 1),), "yy": ((1, 1),),
    "xxx": ((2, 3), (2, 4)), "xxxx": ((3, 3), (3, 5), (4, 4)),
}  # fmt: skip
"""The columns whose products make up a term, as the kernel names them; -1 for none."""
SCALED = {"xxx": 2**75, "xxxx": 2**100}
"""What powers are held times: those of x times 2**25."""
POWERS = 200  # octaves of numbers of which the fourth power is summed


class Moments(WeighedRows, tag="moments"):
    """Sums over rows of one or two columns, x and y, of their squares and their product: weighted, without rounding.

    Parameters
    ----------
    columns : tuple of str
        The roles of x and, if there are two, y.
    terms : tuple of {"x", "y", "xx", "xy", "yy", "xxx", "xxxx"}
        What is summed; a collection keeps the union of what its metrics ask for. Numbers whose third or fourth power is
        summed are 0, or between 2**-200 and 2**200 in size.
    num_outputs : int, optional
        Rows of so many values in each column.
    ranged : bool
        Whether the least and the largest x are kept, too, of rows whose weight is not 0.

    Notes
    -----
    Every product is split into two float64 that are it exactly, and with a weight into four; a fourth power into six or
    twelve. All go to a superaccumulator. What is read from it is rounded once, whatever the mean is beside the spread. 544
    bytes a term and output.
    """

    columns: tuple[str, ...] = setting(default=("value",))
    terms: tuple[str, ...] = union(default=())
    num_outputs: int | None = setting(default=None, low=1, high=1 << 16)

    ranged: bool = setting(default=False)

    sums = Flat("terms", "outputs", form="exact")
    low = Flat("outputs", form="low")
    high = Flat("outputs", form="high")

    def __post_init__(self) -> None:
        check_columns(self)
        known = [t for t in TERMS if len(self.columns) == 2 or "y" not in t]
        if unknown := set(self.terms) - set(known):
            raise ValueError(f"Moments has no term {sorted(unknown)[0]!r}; there are {', '.join(known)}")
        super().__post_init__()

    def parts(self) -> Mapping[str, Any]:
        return self.declared if self.ranged else {n: p for n, p in self.declared.items() if n not in ("low", "high")}

    @property
    def outputs(self) -> int:
        """How many values a row has in each column."""
        return self.num_outputs or 1

    def needs(self) -> tuple[Need, ...]:
        octaves = OCTAVES if SCALED.keys().isdisjoint(self.terms) else POWERS
        columns = [number(role, octaves=octaves) for role in self.columns]
        if self.num_outputs is not None:
            columns = [matrix(need, self.num_outputs) for need in columns]
        return (*columns, weight())

    def steps(self, like: Like) -> Iterable[Step]:
        x, y = self.columns[0], self.columns[-1]
        pairs = [(*pair, i) for i, t in enumerate(self.terms) for pair in TERMS[t]]
        which = np.array(pairs, np.int64).reshape(-1, 3)
        own, into = type(self), (*self.counts(like), type(self).sums)
        limits = self.limits(like, len(self.terms))
        how = self.outputs, which, limits
        made = [Step("row_sums:sum_products", x, y, "sample_weight", "at", *how, *into, checks=len(limits) > 0)]
        if self.ranged:
            noted = self.outputs, False, NOTHING, own.low, own.high
            made.append(Step("extremes:note_extremes", x, x, "sample_weight", "at", *noted))
        return made

    def check(self) -> None:
        if self.ranged:
            check_range(self)
        weight, sums = weight_of(self, "rows")[..., None], self.flat("sums")
        for i, term in enumerate(self.terms):
            most = 2.0**904 if term in SCALED else LARGEST ** len(term)
            if weight.fall_short(sums[..., i, :, :], most, signed=term not in ("xx", "yy", "xxxx")):
                raise StateFormatError(f"Moments.sums holds a sum of {term} that rows of this weight cannot have")
        some = np.flatnonzero(sums.any(axis=(1, 2, 3)))
        for cell in some[self._doubtful(some)].tolist():
            one = self.cell(cell) if self.axes or len(self) > 1 else self  # many are read together
            if any(one._contradicts(i) for i in range(self.outputs)):
                raise StateFormatError("Moments.sums holds squares that are less than those of the means")

    def _doubtful(self, cells: Ints) -> NDArray[np.bool_]:
        """Of which cells float64 cannot tell that squares are as large as their sums ask for."""
        weight = about(weight_of(self, "rows")[cells,].exact())[:, None]
        held = {t: about(self.flat("sums")[cells, i]) for i, t in enumerate(self.terms)}
        sure = np.ones((len(cells), self.outputs), bool)
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            spread = {t: held[t + t] * weight - held[t] ** 2 for t in "xy" if {t, t + t} <= held.keys()}
            for t, s in spread.items():
                sure &= s > CLOSE * held[t] ** 2
            if len(spread) == 2 and "xy" in held:
                product = held["x"] * held["y"]
                both = held["xy"] * weight - product
                sure &= both**2 + CLOSE * product**2 < (1 - CLOSE) * spread["x"] * spread["y"]
        return np.asarray(~sure.all(axis=1))

    def _contradicts(self, output: int) -> bool:
        """Whether a variance is negative, or a correlation beyond 1."""
        spread = {t: self.covariance(t, t, output) for t in "xy" if {t, t + t} <= {*self.terms}}
        if min(spread.values(), default=Fraction(0)) < 0:
            return True
        if len(spread) < 2 or "xy" not in self.terms:
            return False
        return self.covariance("x", "y", output) ** 2 > spread["x"] * spread["y"]

    def total(self, term: str, output: int = 0) -> Fraction:
        """The weighted sum of one term of one output; exact."""
        return exact_to_fraction(self.sums[self.terms.index(term), output]) / SCALED.get(term, 1)

    def range(self, output: int = 0) -> Fraction | None:
        """The largest x less the least; None if there is none."""
        low, high = (value_of(held[output], form) for held, form in ((self.low, "low"), (self.high, "high")))
        return None if math.isnan(low) else Fraction(high) - Fraction(low)

    def covariance(self, a: str, b: str, output: int = 0) -> Fraction:
        """The weighted sum of (a - mean a)(b - mean b); exact. 0 if there is no weight."""
        total = self.weight()
        product = a + b if a + b in TERMS else b + a
        shift = self.total(a, output) * self.total(b, output) / total if total else 0
        return self.total(product, output) - shift

    def central(self, power: int, output: int = 0) -> Fraction:
        """The weighted sum of (x - mean)**power, of the second to the fourth; exact. 0 if there is no weight."""
        weight = self.weight()
        sums = [weight, *(self.total("x" * k, output) for k in range(1, power + 1))]
        mean = sums[1] / weight if weight else Fraction(0)
        return sum((math.comb(power, k) * sums[k] * (-mean) ** (power - k) for k in range(power + 1)), Fraction(0))

    def spread_of(self, *names: str, output: int = 0) -> Spread | None:
        """Means of columns and their covariances; None if rows are weighted, or the products are no terms."""
        pairs = {(i, j): a + b for i, a in enumerate(names) for j, b in enumerate(names) if i <= j}
        if self.excess is not None or not set(pairs.values()) <= set(self.terms):
            return None
        sums = [self.total(name, output) for name in names]
        products = {(-1, -1): self.weight()} | {(-1, j): total for j, total in enumerate(sums)}
        return spread(self.weight(), sums, products | {at: self.total(term, output) for at, term in pairs.items()})
