"""Exact sums of some columns, and of the products of every two of them: what a correlation matrix is made of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from itertools import combinations_with_replacement
from typing import Any

import numpy as np

from ..batch.columns import Column
from ..batch.kinds import Need, weight
from ..batch.numbers import number
from ..errors import StateFormatError
from ..numerics.exact import exact_to_fraction
from ..numerics.settings import setting
from ..state.consistency import weight_of
from ..state.declare import Flat
from .step import NO_LIMITS, Like, Step
from .weighted_rows import TAKEN, WeighedRows

__all__ = ["ColumnProducts"]

PRODUCT = np.array([[0, 1, 0]], np.int64)  # of both columns
LARGEST = 2.0**832  # more than a product of two numbers that are taken


class ColumnProducts(WeighedRows, tag="column_products"):
    """Sums over rows of columns and of the products of every two, squares among them: weighted, without rounding.

    Parameters
    ----------
    columns : tuple of str
        The roles of the columns, two or more.

    Notes
    -----
    As `Moments`, 544 bytes a sum: of c columns there are c (c + 3) / 2.
    """

    columns: tuple[str, ...] = setting(default=("x", "y"))

    sums = Flat("products", form="exact")

    def __post_init__(self) -> None:
        if len(self.columns) < 2 or len({*self.columns, *TAKEN}) != len(self.columns) + len(TAKEN):
            raise ValueError(f"columns are two or more different ones, not {self.columns!r}")
        super().__post_init__()

    @property
    def factors(self) -> list[tuple[int, int]]:
        """The columns of each product; first each with 1, which is behind them."""
        count = len(self.columns)
        return [(i, count) for i in range(count)] + list(combinations_with_replacement(range(count), 2))

    @property
    def products(self) -> int:
        """How many sums there are."""
        return len(self.factors)

    def needs(self) -> tuple[Need, ...]:
        return *map(number, self.columns), weight()

    def derive(self, columns: Mapping[str, Any]) -> Mapping[str, Any]:
        given = [np.asarray(columns[name].values, np.float64) for name in self.columns]
        table = np.column_stack([*given, np.ones(len(given[0]))])
        made = {n: c for n, c in columns.items() if n == "sample_weight"}
        for name, at in zip(("first", "second"), np.transpose(self.factors), strict=True):
            made[name] = Column(np.ascontiguousarray(table[:, at]), "float64")
        return made

    def steps(self, like: Like) -> Iterable[Step]:
        into = *self.counts(like), type(self).sums
        how = self.products, PRODUCT, NO_LIMITS
        return [Step("row_sums:sum_products", "first", "second", "sample_weight", "at", *how, *into)]

    def check(self) -> None:
        weight, sums = weight_of(self, "rows")[..., None], self.flat("sums")
        squares = [i == j for i, j in self.factors]
        mixed = [not square for square in squares]
        if weight.fall_short(sums[:, squares], LARGEST) or weight.fall_short(sums[:, mixed], LARGEST, signed=True):
            raise StateFormatError("ColumnProducts.sums holds a sum that rows of this weight cannot have")

    def covariances(self) -> list[list[Fraction]]:
        """The weighted sums of (a - mean a)(b - mean b) of every two columns; exact. 0 if there is no weight."""
        count, weight = len(self.columns), self.weight()
        totals = [exact_to_fraction(s) for s in self.sums]
        made = [[Fraction(0)] * count for _ in range(count)]
        for (i, j), total in list(zip(self.factors, totals, strict=True))[count:]:
            made[i][j] = made[j][i] = total - (totals[i] * totals[j] / weight if weight else 0)
        return made
