"""Multiplicity corrections: of p-values by Holm or Benjamini and Hochberg, and of e-values by Wang and Ramdas (e-BH).

NaN stands for a missing p-value or e-value. It stays NaN and does not count as a test.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import InvalidInputError

__all__ = ["SLICE_CORRECTION", "adjust_p_values", "benjamini_hochberg", "e_benjamini_hochberg", "holm"]

Floats = NDArray[np.float64]
SLICE_CORRECTION = "bh"
"""The multiplicity correction over slices in the printed output of `eval`, in reports and in JSON."""


def _read_p_values(p: ArrayLike) -> tuple[Floats, NDArray[np.bool_]]:
    """Return the p-values as floats, and a mask of the non-NaN ones; raise an error if any lies outside [0, 1]."""
    values = np.array(p, np.float64)
    present = ~np.isnan(values)
    if not ((values[present] >= 0.0) & (values[present] <= 1.0)).all():
        raise InvalidInputError("p-values must be between 0 and 1")
    return values, present


def holm(p: ArrayLike) -> Floats:
    """Return p-values adjusted by the method of Holm (1979), which controls the family-wise error rate.

    Parameters
    ----------
    p : array_like
        Array of any shape; NaN for comparisons without a p-value.

    Examples
    --------
    >>> holm([0.01, 0.04, 0.03]).tolist()
    [0.03, 0.06, 0.06]
    """
    values, present = _read_p_values(p)
    ordered = values[present]
    # Multiply the smallest of m p-values by m, the next by m - 1, and so on. Each result must be at least as large as
    # the one before it.
    order = np.argsort(ordered, kind="stable")
    remaining = np.arange(ordered.size, 0, -1)
    ordered[order] = np.minimum(np.maximum.accumulate(ordered[order] * remaining), 1.0)
    values[present] = ordered
    return values


def benjamini_hochberg(p: ArrayLike) -> Floats:
    """Return p-values adjusted by the method of Benjamini and Hochberg (1995), which controls the false discovery rate.

    Parameters
    ----------
    p : array_like
        Array of any shape; NaN for comparisons without a p-value. The correction is valid for p-values that are
        independent or positively dependent.

    Examples
    --------
    >>> benjamini_hochberg([0.01, 0.04, 0.03]).tolist()
    [0.03, 0.04, 0.04]
    """
    values, present = _read_p_values(p)
    ordered = values[present]
    # Start from the largest p-value, and multiply the k-th smallest of m p-values by m / k. Each result must be at most
    # as large as the one before it.
    order = np.argsort(-ordered, kind="stable")
    ranks = np.arange(ordered.size, 0, -1)
    ordered[order] = np.minimum.accumulate(np.minimum(ordered[order] * ordered.size / ranks, 1.0))
    values[present] = ordered
    return values


def e_benjamini_hochberg(e: ArrayLike) -> Floats:
    """Convert e-values to adjusted p-values by e-BH (Wang, Ramdas 2022), which controls the false discovery rate.

    e-BH rejects the k largest of m e-values, for the largest k with e_(k) >= m / (alpha * k), where e_(k) is the k-th
    largest e-value. This is the rule of Benjamini and Hochberg for the p-values 1 / e, and it is valid under arbitrary
    dependence between the e-values. All e-values must be from the same look at the data. The maximum of an e-value over
    several looks is not a valid e-value.

    Parameters
    ----------
    e : array_like
        Nonnegative array of any shape; NaN for comparisons without an e-value.

    Examples
    --------
    >>> (e_benjamini_hochberg([100.0, 25.0, 1.0]) <= 0.05).tolist()
    [True, False, False]
    """
    values = np.array(e, np.float64)
    if (values < 0.0).any():
        raise InvalidInputError("e-values must not be negative")
    return benjamini_hochberg(1.0 / np.maximum(values, 1.0))


METHODS: dict[str, Callable[[ArrayLike], Floats]] = {"holm": holm, "bh": benjamini_hochberg}


def adjust_p_values(p: ArrayLike, method: str) -> Floats:
    """Return p-values adjusted by the method "holm" (Holm) or "bh" (Benjamini and Hochberg)."""
    if method not in METHODS:
        raise InvalidInputError(f"adjust must be 'holm' or 'bh', not {method!r}")
    return METHODS[method](p)
