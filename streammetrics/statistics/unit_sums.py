"""Outcomes and exposures of units: what the mean per exposed unit is made of, from two tables."""

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
from ..state.consistency import weight_of
from ..state.declare import Flat
from .step import NO_LIMITS, Like, Step
from .weighted_rows import TAKEN, WeighedRows

__all__ = ["UnitSums"]

LARGEST = 2.0**416  # more than a number that is taken
ALONE = np.array([[0, -1, 0], [1, -1, 1]], np.int64)  # both columns, each by itself


class UnitSums(WeighedRows, tag="unit_sums"):
    """The sum of outcomes and that of exposures, which may come in batches of their own: weighted, without rounding.

    Parameters
    ----------
    outcome, exposed, unit : str
        The columns: a number; 1 in a row that exposes its unit, else 0; whose row it is. Of the first two a batch may lack
        one, which is 0 then.
    cap : float, optional
        Outcomes beyond count as this.
    missing, missing_values
        As `sm.extend.group` takes them.

    Notes
    -----
    1.1 kB, however many units there are: it does not tell them apart.
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
        if len({self.outcome, self.exposed, self.unit, *TAKEN}) != 3 + len(TAKEN):
            raise ValueError(
                f"{type(self).__name__} reads three different columns, not "
                f"{self.outcome!r}, {self.exposed!r} and {self.unit!r}"
            )

    def needs(self) -> tuple[Need, ...]:
        return (
            group(self.unit, self.missing, self.missing_values),
            Need(self.outcome, Number(), optional=True, either=True),
            Need(self.exposed, FLAG, optional=True, either=True),
            weight(),
        )

    def derive(self, columns: Mapping[str, Any]) -> Mapping[str, Any]:
        none = np.zeros(len(columns[self.unit].values))
        outcome = _values(columns.get(self.outcome), none)
        if self.cap is not None:
            outcome = np.minimum(outcome, self.cap)
        made = {"outcome": Column(outcome, "float64")}
        made["exposed"] = Column(_values(columns.get(self.exposed), none), "float64")
        return made | ({"sample_weight": columns["sample_weight"]} if "sample_weight" in columns else {})

    def steps(self, like: Like) -> Iterable[Step]:
        into = *self.counts(like), type(self).sums
        how = 1, ALONE, NO_LIMITS
        return [Step("row_sums:sum_products", "outcome", "exposed", "sample_weight", "at", *how, *into)]

    def check(self) -> None:
        weight, sums = weight_of(self, "rows"), self.flat("sums")
        if weight.fall_short(sums[:, 0], LARGEST, signed=True) or weight.fall_short(sums[:, 1], 1.0):
            raise StateFormatError("UnitSums.sums holds outcomes or exposures that rows of this weight cannot have")

    @property
    def total(self) -> Fraction:
        """The weighted sum of the outcomes; exact."""
        return exact_to_fraction(self.sums[0])

    @property
    def exposures(self) -> Fraction:
        """How many units were exposed, or what they weigh; exact."""
        return exact_to_fraction(self.sums[1])

    def facts(self) -> dict[str, Any]:
        return super().facts() | {"exposures": self.exposures}


def _values(column: Column | None, none: NDArray[np.float64]) -> NDArray[np.float64]:
    return none if column is None else np.asarray(column.values, np.float64)
