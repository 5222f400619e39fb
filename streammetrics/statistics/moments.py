"""Exact sums of columns and of their powers and products, for means, variances, R2 and correlations."""

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
from ..numerics.exact import exact_to_fraction, to_approximate_floats
from ..numerics.settings import setting, union
from ..state.consistency import read_row_weight
from ..state.declare import Flat
from .covariance import MeanEstimates, estimate_means
from .extremes import check_range, value_of
from .step import NOTHING, Like, Step
from .terms import find_term
from .weighted_rows import WeightedRows, check_columns

__all__ = ["Moments"]

Ints = NDArray[np.int64]

# An upper bound on the absolute values of inputs. Input checks reject larger values.
LARGEST = 2.0**416
# An upper bound on the relative rounding errors of the quick check in float64 (see `_mask_uncertain_cells`).
CLOSE = 2.0**-30
TERMS: Mapping[str, tuple[tuple[int, int], ...]] = {
    "x": ((0, -1),), "y": ((1, -1),), "xx": ((0, 0),), "xy": ((0, 1),), "yy": ((1, 1),),
    "xxx": ((2, 3), (2, 4)), "xxxx": ((3, 3), (3, 5), (4, 4)),
}  # fmt: skip
"""For each term, the pairs of kernel columns whose products are added.

Column 0 is x and column 1 is y; -1 means that there is no second factor. The columns 2 to 5 are powers of x that the
kernel derives, split into parts so that third and fourth powers are exact.
"""
POWER_SCALES = {"xxx": 2**75, "xxxx": 2**100}
"""The factor by which stored third and fourth powers are too large.

The kernel computes them from x times 2**25, because products of powers of x with weights could otherwise have bits
below 2**-1074, the smallest float64.
"""
# Numbers whose third or fourth power is summed must be 0 or between 2**-POWERS and 2**POWERS in absolute value.
POWERS = 200


class Moments(WeightedRows, tag="moments"):
    """Exact weighted sums of one or two columns, x and y, and of their powers and product.

    Parameters
    ----------
    columns : tuple of str
        The name of the column x and, optionally, of the column y.
    terms : tuple of {"x", "y", "xx", "xy", "yy", "xxx", "xxxx"}
        The terms that are summed; a collection keeps the union of the terms that its metrics need. Numbers whose third or
        fourth power is summed must be 0 or between 2**-200 and 2**200 in absolute value.
    num_outputs : int, optional
        The number of values per row in each column.
    ranged : bool
        Whether the state also keeps the smallest and the largest x among the rows with nonzero weight.

    Notes
    -----
    Sums are exact. Every product is split into float64 numbers whose sum is exactly the product, and these are added to a
    superaccumulator (a fixed-point number that is wide enough for every float64). A result is rounded once, so it is
    accurate even if the mean is much larger than the standard deviation. A state takes 544 bytes per term and output.
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
            raise ValueError(f"Moments has no term {sorted(unknown)[0]!r}; choose from {', '.join(known)}")
        super().__post_init__()

    def parts(self) -> Mapping[str, Any]:
        return (
            self.declared_parts
            if self.ranged
            else {n: p for n, p in self.declared_parts.items() if n not in ("low", "high")}
        )

    @property
    def outputs(self) -> int:
        """The number of values per row in each column."""
        return self.num_outputs or 1

    def needs(self) -> tuple[Need, ...]:
        octaves = OCTAVES if POWER_SCALES.keys().isdisjoint(self.terms) else POWERS
        columns = [number(role, octaves=octaves) for role in self.columns]
        if self.num_outputs is not None:
            columns = [matrix(need, self.num_outputs) for need in columns]
        return (*columns, weight())

    def steps(self, like: Like) -> Iterable[Step]:
        x, y = self.columns[0], self.columns[-1]
        pairs = [(*pair, i) for i, t in enumerate(self.terms) for pair in TERMS[t]]
        which = np.array(pairs, np.int64).reshape(-1, 3)
        own, into = type(self), (*self.row_arguments(like), type(self).sums)
        limits = self.value_limits(like, len(self.terms))
        how = self.outputs, which, limits
        calls = [Step("row_sums:sum_products", x, y, "sample_weight", "at", *how, *into, checks=len(limits) > 0)]
        if self.ranged:
            noted = self.outputs, False, NOTHING, own.low, own.high
            calls.append(Step("extremes:update_extremes", x, x, "sample_weight", "at", *noted))
        return calls

    def check(self) -> None:
        if self.ranged:
            check_range(self)
        weight, sums = read_row_weight(self, "rows")[..., None], self.read_cells_named("sums")
        for i, term in enumerate(self.terms):
            most = 2.0**904 if term in POWER_SCALES else LARGEST ** len(term)
            if weight.is_exceeded_by(sums[..., i, :, :], most, signed=term not in ("xx", "yy", "xxxx")):
                raise StateFormatError(
                    f"the state is corrupt: a sum of {term} in Moments.sums is impossible for the weight of its rows"
                )
        nonzero_cells = np.flatnonzero(sums.any(axis=(1, 2, 3)))
        for cell in nonzero_cells[self._mask_uncertain_cells(nonzero_cells)].tolist():
            cell_state = self.read_cell(cell) if self.axes or len(self) > 1 else self
            if any(cell_state._violates_inequalities(i) for i in range(self.outputs)):
                raise StateFormatError(
                    "the state is corrupt: a sum of squares in Moments.sums is smaller than the means allow"
                )

    def _mask_uncertain_cells(self, cells: Ints) -> NDArray[np.bool_]:
        """Return a mask of the cells (such as slices) that need an exact check of their sums of squares.

        The exact check is slow. A quick check in float64 clears most cells, and the mask marks the others.
        """
        # The sums of any rows satisfy two inequalities (Cauchy-Schwarz). First, W * sum(w * x^2) >= sum(w * x)^2, where
        # W is the sum of the weights w. Second, the square of the covariance is at most the product of the two
        # variances. A cell that satisfies both by more than the rounding errors of float64 needs no exact check.
        weight = read_row_weight(self, "rows")[cells,].to_approximate_floats()[:, None]
        sums = {t: to_approximate_floats(self.read_cells_named("sums")[cells, i]) for i, t in enumerate(self.terms)}
        sure = np.ones((len(cells), self.outputs), bool)
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            spread = {t: sums[t + t] * weight - sums[t] ** 2 for t in "xy" if {t, t + t} <= sums.keys()}
            for t, s in spread.items():
                sure &= s > CLOSE * sums[t] ** 2
            if len(spread) == 2 and "xy" in sums:
                product = sums["x"] * sums["y"]
                both = sums["xy"] * weight - product
                sure &= both**2 + CLOSE * product**2 < (1 - CLOSE) * spread["x"] * spread["y"]
        return np.asarray(~sure.all(axis=1))

    def _violates_inequalities(self, output: int) -> bool:
        """Return whether the sums of an output imply a negative variance or a correlation outside [-1, 1]."""
        spread = {t: self.covariance(t, t, output) for t in "xy" if {t, t + t} <= {*self.terms}}
        if min(spread.values(), default=Fraction(0)) < 0:
            return True
        if len(spread) < 2 or "xy" not in self.terms:
            return False
        return self.covariance("x", "y", output) ** 2 > spread["x"] * spread["y"]

    def total(self, term: str, output: int = 0) -> Fraction:
        """Return the exact weighted sum of a term, such as "xy", for one output (position within a row)."""
        return exact_to_fraction(self.sums[find_term(self, term), output]) / POWER_SCALES.get(term, 1)

    def range(self, output: int = 0) -> Fraction | None:
        """Return the largest x minus the smallest x; None if there are no rows."""
        low, high = (value_of(bits[output], form) for bits, form in ((self.low, "low"), (self.high, "high")))
        return None if math.isnan(low) else Fraction(high) - Fraction(low)

    def covariance(self, a: str, b: str, output: int = 0) -> Fraction:
        """Return the exact weighted sum of (a - mean(a)) * (b - mean(b)) for two columns, each "x" or "y".

        The sum is not divided by the total weight. It is 0 if this weight is 0.
        """
        total = self.weight()
        product = a + b if a + b in TERMS else b + a
        shift = self.total(a, output) * self.total(b, output) / total if total else 0
        return self.total(product, output) - shift

    def central_moment(self, power: int, output: int = 0) -> Fraction:
        """Return the exact weighted sum of (x - mean)**power for a power from 2 to 4.

        The sum is not divided by the total weight. It is 0 if this weight is 0.
        """
        weight = self.weight()
        sums = [weight, *(self.total("x" * k, output) for k in range(1, power + 1))]
        mean = sums[1] / weight if weight else Fraction(0)
        return sum((math.comb(power, k) * sums[k] * (-mean) ** (power - k) for k in range(power + 1)), Fraction(0))

    def estimate_means(self, *names: str, output: int = 0) -> MeanEstimates | None:
        """Estimate the means of the columns `names` and the covariances of these means.

        The result is None if rows have weights, or if the product of two of the columns is not a term of the state.
        """
        pairs = {(i, j): a + b for i, a in enumerate(names) for j, b in enumerate(names) if i <= j}
        if self.excess is not None or not set(pairs.values()) <= set(self.terms):
            return None
        sums = [self.total(name, output) for name in names]
        products = {(-1, -1): self.weight()} | {(-1, j): total for j, total in enumerate(sums)}
        return estimate_means(
            self.weight(), sums, products | {at: self.total(term, output) for at, term in pairs.items()}
        )
