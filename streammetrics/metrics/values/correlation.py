"""Correlations between several numeric columns."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...collect.metric import Metric
from ...numerics.exact import Limits
from ...numerics.settings import setting
from ...reading.about import About
from ...statistics.column_products import ColumnProducts

__all__ = ["CorrelationMatrix"]

NAN = float("nan")


class CorrelationMatrix(Metric[ColumnProducts, NDArray[Any]], tag="correlation_matrix"):
    """Correlation matrix: Pearson's correlation of each pair of columns, in the order of `variables`.

    Formula: Cov(a, b) / sqrt(Var(a) * Var(b)), with weighted covariance and variances.

    Parameters
    ----------
    variables : tuple of str
        The names of two or more columns.
    on_invalid : {"raise", "drop"}
        Whether a row with an invalid value in any of the columns raises an error or is left out. `explain()` shows the
        number of rows left out.

    Notes
    -----
    The square of each correlation is an exact fraction, and its root is rounded once. For c columns, the state takes
    270 * c * (c + 3) bytes, and a row takes about 3 * c * (c + 3) ns. The definition is that of pandas'
    `DataFrame.corr`, and of numpy's `corrcoef` with `rowvar=False`. If all values of a column are equal, its row and
    column in the matrix are NaN.

    Examples
    --------
    >>> import streammetrics as sm
    >>> both = sm.CorrelationMatrix(("price", "clicks", "seconds"))
    >>> both.update(price=[1, 2, 3], clicks=[3, 2, 1], seconds=[1, 2, 4]).compute().round(3)
    array([[ 1.   , -1.   ,  0.982],
           [-1.   ,  1.   , -0.982],
           [ 0.982, -0.982,  1.   ]])
    """

    about = About(
        no_interval_reason=(
            "a matrix has no single standard error; Sharded(PearsonCorrelation(), unit=) has an interval for "
            "two columns"
        ),
        formula="Cov(a, b) / sqrt(Var(a) Var(b)) for each pair of columns a and b",
        cost="270 c (c + 3) bytes for c columns; about 3 c (c + 3) ns per row",
        example={"variables": ("x", "y", "z")},
    )

    variables: tuple[str, ...] = setting(kw_only=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.make_state()

    def make_state(self) -> ColumnProducts:
        return ColumnProducts(columns=self.variables)

    def of(self, state: ColumnProducts) -> NDArray[Any]:
        spreads = state.covariances()
        each = range(len(spreads))
        return np.array([[_correlation(spreads[i][j], spreads[i][i] * spreads[j][j]) for j in each] for i in each])


def _correlation(both: Fraction, spreads: Fraction) -> float:
    if spreads <= 0:
        return NAN
    found = Limits.root(both * both / spreads).to_float()
    return -found if both < 0 else found
