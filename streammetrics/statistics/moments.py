"""Exact sums of columns, their squares and products: what means, variances, R2 and correlations are made of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction

import numpy as np

from ..columns.columns import Need, matrix, weight
from ..columns.numbers import number
from ..numerics.exact import exact_to_fraction
from ..numerics.settings import setting, union
from ..state.declare import Flat
from .step import Like, Step
from .weighed import WeighedRows, check_columns

__all__ = ["Moments"]

TERMS: Mapping[str, tuple[int, int]] = {"x": (0, -1), "y": (1, -1), "xx": (0, 0), "xy": (0, 1), "yy": (1, 1)}
"""The columns whose product a term is; -1 for none."""


class Moments(WeighedRows, tag="moments"):
    """Sums over rows of one or two columns, x and y, of their squares and their product: weighted, without rounding.

    Parameters
    ----------
    columns : tuple of str
        The roles of x and, if there are two, y.
    terms : tuple of {"x", "y", "xx", "xy", "yy"}
        What is summed; a collection keeps the union of what its metrics ask for.
    num_outputs : int, optional
        Rows of so many values in each column.

    Notes
    -----
    Every product is split into two float64 that are it exactly, and with a weight into four; all go to a
    superaccumulator. What is read from it is rounded once, whatever the mean is beside the spread. 544 bytes a term and
    output.
    """

    columns: tuple[str, ...] = setting(default=("value",))
    terms: tuple[str, ...] = union(default=())
    num_outputs: int | None = setting(default=None, low=1, high=1 << 20)

    sums = Flat("terms", "outputs", form="exact")

    def __post_init__(self) -> None:
        check_columns(self)
        known = [t for t in TERMS if len(self.columns) == 2 or "y" not in t]
        if unknown := set(self.terms) - set(known):
            raise ValueError(f"Moments has no term {sorted(unknown)[0]!r}; there are {', '.join(known)}")
        super().__post_init__()

    @property
    def outputs(self) -> int:
        """How many values a row has in each column."""
        return self.num_outputs or 1

    def needs(self) -> tuple[Need, ...]:
        columns = [number(role) for role in self.columns]
        if self.num_outputs is not None:
            columns = [matrix(need, self.num_outputs) for need in columns]
        return (*columns, weight())

    def steps(self, like: Like) -> Iterable[Step]:
        x, y = self.columns[0], self.columns[-1]
        left, right = (np.array([TERMS[t][i] for t in self.terms], np.int64) for i in range(2))
        into = *self.counts(like), type(self).sums
        return [Step("row_sums:sum_products", x, y, "sample_weight", "at", self.outputs, left, right, *into)]

    def total(self, term: str, output: int = 0) -> Fraction:
        """The weighted sum of one term of one output; exact."""
        return exact_to_fraction(self.sums[self.terms.index(term), output])

    def covariance(self, a: str, b: str, output: int = 0) -> Fraction:
        """The weighted sum of (a - mean a)(b - mean b); exact. 0 if there is no weight."""
        total = self.weight()
        product = a + b if a + b in TERMS else b + a
        shift = self.total(a, output) * self.total(b, output) / total if total else 0
        return self.total(product, output) - shift
