"""Winsorize an outcome by unit: cap the totals of the few units (such as users) with the largest totals."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..batch.columns import Array, Batch, Kind
from ..batch.ids import Ids
from ..batch.numbers import Number
from ..count.drafts import load_engine
from ..errors import InvalidInputError

__all__ = ["CappedOutcome", "winsorize"]

Floats = NDArray[np.float64]
PERCENTAGE = re.compile(r"(\d+(?:\.\d+)?) ?%")


class CappedOutcome(NamedTuple):
    """An outcome in which the total of each unit is at most a cap.

    Parameters
    ----------
    outcome : array
        The outcome of each row. If the total of a unit exceeds the cap, its rows are scaled down to add up to the cap.
    cap : float
        The largest total that a unit can have.
    share : float
        Among the units with a nonzero total, the share of units whose total was above the cap.
    """

    outcome: Floats
    cap: float
    share: float


def winsorize(outcome: Any, unit: Any, cap: float | str = "99%") -> CappedOutcome:
    """Cap the total outcome of each unit, such as the revenue of a user, at a percentile of the totals or at a number.

    If a total exceeds the cap, all rows of the unit are scaled down by the same factor.

    Pass the rows of all arms together, so that all arms have the same cap.

    Parameters
    ----------
    outcome : column
        The outcome of each row, such as the amount of an order.
    unit : column
        The unit of each row, such as the user ID. A unit may have any number of rows.
    cap : str or float
        A percentile of the nonzero totals, such as "99%" or "99.9%"; or a number, the largest total that a unit may
        have.

    Returns
    -------
    CappedOutcome
        The capped `outcome` of each row, in the same order, the `cap`, and the `share` of units above it.

    Raises
    ------
    InvalidInputError
        If a row has no unit or no valid outcome, or the percentile of the totals is not above 0.

    Notes
    -----
    Units whose total is 0, and units without rows, do not affect the percentile (Statsig uses the same rule). The 99th
    percentile, for example, is the smallest total such that at least 99 % of the units have this total or less.
    Negative totals are not capped.

    Winsorizing changes the estimand to the mean of the capped totals, and hides effects on the few units above the
    cap. If the treatment changes nothing, intervals keep their coverage, because the cap does not depend on the arms.
    If you know a suitable number before the experiment, use it as the cap, so that reports from different days use the
    same cap.

    The function needs all rows at once, and takes about 50 bytes per row. If the log does not fit into memory, first
    sum the outcome by unit in a database, and pass one row per unit.

    Examples
    --------
    >>> import streammetrics as sm
    >>> capped = sm.winsorize([20.0, 40.0, 8.0, 0.0, 900.0], ["ann", "ann", "bob", "cy", "dan"], cap="60%")
    >>> capped.cap
    60.0
    >>> capped.outcome
    array([20., 40.,  8.,  0., 60.])
    """
    percentage = _read_cap(cap)
    # Checking numbers and hashing text use compiled kernels, so load these kernels first.
    load_engine()
    batch = Batch({"outcome": outcome, "unit": unit})
    values = np.asarray(_read_column(batch, "outcome", Number(), "a finite number"), np.float64)
    ids = _read_column(batch, "unit", Ids(), "a key")
    # The first 64 bits of a hash are enough: among a million units, two share these bits with a probability of 3e-8.
    _, position = np.unique(ids if ids.ndim == 1 else ids[:, 0], return_inverse=True)
    totals = np.bincount(position, values)
    nonzero = totals[totals != 0.0]
    limit = float(cap) if percentage is None else _find_percentile(nonzero, percentage)
    scale = np.divide(limit, totals, out=np.full(totals.shape, 1.0), where=totals > limit)
    share = float(np.count_nonzero(totals > limit)) / len(nonzero) if len(nonzero) else 0.0
    return CappedOutcome(values * scale[position], limit, share)


def _read_cap(cap: float | str) -> Fraction | None:
    """Return a percentile such as "99%" as a fraction; None if `cap` is a number."""
    match = PERCENTAGE.fullmatch(cap) if isinstance(cap, str) else None
    share = None if match is None else Fraction(match[1]) / 100
    is_number = not isinstance(cap, str | bool) and 0.0 < cap < math.inf
    if not (is_number if share is None else 0 < share < 1):
        raise ValueError(
            f'cap: expected a percentile of the units between 0 and 100, such as "99%", or a number above 0, found {cap!r}'
        )
    return share


def _read_column(batch: Batch, name: str, kind: Kind, expected: str) -> Array:
    """Return the values of a column; raise InvalidInputError if any value is invalid."""
    column = batch.column(name, kind)
    if len(wrong := np.flatnonzero(kind.bad(column))):
        row, others = int(wrong[0]), f" and {len(wrong) - 1:,} more invalid rows" if len(wrong) > 1 else ""
        raise InvalidInputError(
            f"{name}: expected {expected} in every row, found {kind.describe_row(batch, name, row)}{others}; drop or fill "
            f"these rows in outcome and unit",
            column=name,
            row=row,
            count=len(wrong),
        )
    return column.values


def _find_percentile(totals: Floats, share: Fraction) -> float:
    """Return the smallest total such that at least `share` (such as 99 %) of all totals are no larger."""
    found = float(totals[np.argsort(totals)[math.ceil(share * len(totals)) - 1]]) if len(totals) else 0.0
    if found <= 0.0:
        raise InvalidInputError(
            f"outcome: expected a positive {float(100 * share):g} % percentile of the totals by unit, found {found:g} for "
            f"{len(totals):,} units with a total other than 0; pass a number as cap=",
            column="outcome",
        )
    return found
