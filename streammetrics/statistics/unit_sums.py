"""Exact sums of outcomes and of exposures, for the mean outcome per exposed unit (such as revenue per exposed user).

Outcomes and exposures can come from two tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..batch.columns import Column
from ..batch.ids import group
from ..batch.kinds import FLAG, Need, weight
from ..batch.numbers import Number
from ..errors import StateFormatError
from ..numerics.exact import exact_to_fraction
from ..numerics.settings import setting
from ..state.consistency import read_row_weight
from ..state.declare import Flat
from .step import NO_LIMITS, Like, Step
from .weighted_rows import RESERVED_ROLES, WeightedRows

__all__ = ["UnitSums"]

# An upper bound on the absolute values of inputs. Input checks reject larger values.
LARGEST = 2.0**416
# A kernel argument that lists the products to sum. The number -1 means that a product has no second factor, so the
# first row adds column 0 to sum 0, and the second row adds column 1 to sum 1.
ALONE = np.array([[0, -1, 0], [1, -1, 1]], np.int64)


class UnitSums(WeightedRows, tag="unit_sums"):
    """The exact weighted sums of outcomes and of exposures, which can arrive in separate batches.

    Parameters
    ----------
    outcome, exposed, unit : str
        The names of three columns. `outcome` contains numbers. `exposed` is 1 in a row that exposes its unit (such as a
        user), else 0. `unit` contains the IDs of the units. A batch may lack the column `outcome` or `exposed`, whose
        values then count as 0.
    cap : float, optional
        Outcomes above `cap` count as `cap`. By default, outcomes are not limited.
    missing, missing_values
        How rows with missing unit IDs are treated, and which values count as missing; see `sm.extend.group`.

    Notes
    -----
    A state takes 1.1 kB, regardless of the number of units, because it keeps no separate sums for each unit.
    """

    outcome: str = setting(default="outcome")
    exposed: str = setting(default="exposed")
    unit: str = setting(default="unit")
    cap: float | None = setting(default=None, above=0.0)
    missing: str = setting(default="raise", choices=("raise", "skip"))
    missing_values: tuple[int | str | bytes, ...] = setting(default=(), unordered=True)

    sums = Flat(2, form="exact")

    def __post_init__(self) -> None:
        super().__post_init__()
        if len({self.outcome, self.exposed, self.unit, *RESERVED_ROLES}) != 3 + len(RESERVED_ROLES):
            raise ValueError(
                f"{type(self).__name__}: expected three different columns with names other than "
                f"{', '.join(RESERVED_ROLES)}, found {self.outcome!r}, {self.exposed!r} and {self.unit!r}"
            )

    def needs(self) -> tuple[Need, ...]:
        return (
            group(self.unit, self.missing, self.missing_values),
            Need(self.outcome, Number(), optional=True, either=True),
            Need(self.exposed, FLAG, optional=True, either=True),
            weight(),
        )

    def derive_columns(self, columns: Mapping[str, Any]) -> Mapping[str, Any]:
        none = np.zeros(len(columns[self.unit].values))
        outcome = _values(columns.get(self.outcome), none)
        if self.cap is not None:
            outcome = np.minimum(outcome, self.cap)
        derived = {"outcome": Column(outcome, "float64")}
        derived["exposed"] = Column(_values(columns.get(self.exposed), none), "float64")
        return derived | ({"sample_weight": columns["sample_weight"]} if "sample_weight" in columns else {})

    def steps(self, like: Like) -> Iterable[Step]:
        into = *self.row_arguments(like), type(self).sums
        how = 1, ALONE, NO_LIMITS
        return [Step("row_sums:sum_products", "outcome", "exposed", "sample_weight", "at", *how, *into)]

    def check(self) -> None:
        weight, sums = read_row_weight(self, "rows"), self.read_cells_named("sums")
        if weight.is_exceeded_by(sums[:, 0], LARGEST, signed=True) or weight.is_exceeded_by(sums[:, 1], 1.0):
            raise StateFormatError(
                "the state is corrupt: a sum in UnitSums.sums is impossible for the weight of its rows"
            )

    @property
    def total(self) -> Fraction:
        """The exact weighted sum of the outcomes."""
        return exact_to_fraction(self.sums[0])

    @property
    def exposures(self) -> Fraction:
        """The exact weight of the exposures (rows that expose a unit)."""
        return exact_to_fraction(self.sums[1])

    def facts(self) -> dict[str, Any]:
        return super().facts() | {"exposures": self.exposures}


def _values(column: Column | None, none: NDArray[np.float64]) -> NDArray[np.float64]:
    return none if column is None else np.asarray(column.values, np.float64)
