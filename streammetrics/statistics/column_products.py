"""Exact sums of columns and of the products of all pairs of columns, for correlation matrices."""

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
from ..state.consistency import read_row_weight
from ..state.declare import Flat
from .step import NO_LIMITS, Like, Step
from .weighted_rows import RESERVED_ROLES, WeightedRows

__all__ = ["ColumnProducts"]

# A kernel argument that lists the products to sum. Its only row tells the kernel to multiply column 0 by column 1 and
# to add the product to the sum with index 0.
PRODUCT = np.array([[0, 1, 0]], np.int64)
# A generous upper bound on the absolute value of the product of two inputs. Input checks reject numbers that are
# larger than 2**400 in absolute value.
LARGEST = 2.0**832


class ColumnProducts(WeightedRows, tag="column_products"):
    """Exact weighted sums of columns and of the products of all pairs of columns, including squares.

    Parameters
    ----------
    columns : tuple of str
        The names of the columns, at least two.

    Notes
    -----
    A state of c columns keeps c * (c + 3) / 2 sums: one for each column and one for each pair, including the pair of a
    column with itself. A sum takes 544 bytes, as in `Moments`.
    """

    columns: tuple[str, ...] = setting(default=("x", "y"))

    sums = Flat("products", form="exact")

    def __post_init__(self) -> None:
        if len(self.columns) < 2 or len({*self.columns, *RESERVED_ROLES}) != len(self.columns) + len(RESERVED_ROLES):
            raise ValueError(
                f"expected two or more different columns with names other than {', '.join(RESERVED_ROLES)}, found "
                f"{self.columns!r}"
            )
        super().__post_init__()

    @property
    def factors(self) -> list[tuple[int, int]]:
        """The indices of the two columns of each product.

        The first products are the columns themselves, each times the constant 1, which has the index `len(columns)`.
        The products of all pairs of columns follow.
        """
        count = len(self.columns)
        return [(i, count) for i in range(count)] + list(combinations_with_replacement(range(count), 2))

    @property
    def products(self) -> int:
        """The number of sums that the state keeps."""
        return len(self.factors)

    def needs(self) -> tuple[Need, ...]:
        return *map(number, self.columns), weight()

    def derive_columns(self, columns: Mapping[str, Any]) -> Mapping[str, Any]:
        values = [np.asarray(columns[name].values, np.float64) for name in self.columns]
        table = np.column_stack([*values, np.ones(len(values[0]))])
        derived = {n: c for n, c in columns.items() if n == "sample_weight"}
        for name, at in zip(("first", "second"), np.transpose(self.factors), strict=True):
            derived[name] = Column(np.ascontiguousarray(table[:, at]), "float64")
        return derived

    def steps(self, like: Like) -> Iterable[Step]:
        into = *self.row_arguments(like), type(self).sums
        how = self.products, PRODUCT, NO_LIMITS
        return [Step("row_sums:sum_products", "first", "second", "sample_weight", "at", *how, *into)]

    def check(self) -> None:
        weight, sums = read_row_weight(self, "rows")[..., None], self.read_cells_named("sums")
        squares = [i == j for i, j in self.factors]
        mixed = [not square for square in squares]
        if weight.is_exceeded_by(sums[:, squares], LARGEST) or weight.is_exceeded_by(
            sums[:, mixed], LARGEST, signed=True
        ):
            raise StateFormatError(
                "the state is corrupt: a sum in ColumnProducts.sums is impossible for the weight of its rows"
            )

    def covariances(self) -> list[list[Fraction]]:
        """Return the matrix of the exact weighted sums of (a - mean(a)) * (b - mean(b)) for every pair of columns.

        The sums are not divided by the total weight. They are 0 if this weight is 0.
        """
        count, weight = len(self.columns), self.weight()
        totals = [exact_to_fraction(s) for s in self.sums]
        matrix = [[Fraction(0)] * count for _ in range(count)]
        for (i, j), total in list(zip(self.factors, totals, strict=True))[count:]:
            matrix[i][j] = matrix[j][i] = total - (totals[i] * totals[j] / weight if weight else 0)
        return matrix
