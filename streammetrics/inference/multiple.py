"""Many comparisons at once: p-values by Holm or Benjamini and Hochberg, e-values by Wang and Ramdas.

A NaN is a comparison that was refused: it stays NaN, and is not counted among those made.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import InvalidInputError

__all__ = ["adjusted", "benjamini_hochberg", "e_benjamini_hochberg", "holm"]

Floats = NDArray[np.float64]


def _made(p: ArrayLike) -> tuple[Floats, NDArray[np.bool_]]:
    """The p-values as floats, and which of them are there."""
    values = np.array(p, np.float64)
    made = ~np.isnan(values)
    if not ((values[made] >= 0.0) & (values[made] <= 1.0)).all():
        raise InvalidInputError("p-values must lie between 0 and 1")
    return values, made


def holm(p: ArrayLike) -> Floats:
    """Return p-values adjusted by Holm (1979): rejecting those up to alpha makes any false one with probability alpha.

    Parameters
    ----------
    p : array_like
        Of any shape; NaN where a comparison was refused.

    Examples
    --------
    >>> holm([0.01, 0.04, 0.03]).tolist()
    [0.03, 0.06, 0.06]
    """
    values, made = _made(p)
    given = values[made]
    order = np.argsort(given, kind="stable")
    left = np.arange(given.size, 0, -1)
    given[order] = np.minimum(np.maximum.accumulate(given[order] * left), 1.0)
    values[made] = given
    return values


def benjamini_hochberg(p: ArrayLike) -> Floats:
    """Return p-values adjusted by Benjamini and Hochberg (1995): of those rejected, alpha are false on average.

    Parameters
    ----------
    p : array_like
        Of any shape; NaN where a comparison was refused. Independent, or positively dependent.

    Examples
    --------
    >>> benjamini_hochberg([0.01, 0.04, 0.03]).tolist()
    [0.03, 0.04, 0.04]
    """
    values, made = _made(p)
    given = values[made]
    order = np.argsort(-given, kind="stable")
    ranks = np.arange(given.size, 0, -1)
    given[order] = np.minimum.accumulate(np.minimum(given[order] * given.size / ranks, 1.0))
    values[made] = given
    return values


def e_benjamini_hochberg(e: ArrayLike) -> Floats:
    """Return what to compare with alpha for e-values: those up to it are rejected, alpha of them falsely on average.

    e-BH (Wang, Ramdas 2022) rejects the k largest, the most with e_(k) >= m / (alpha k): that is Benjamini and
    Hochberg's rule on 1 / e, and holds whatever the dependence. The e-values must be of one look, not the largest of
    several.

    Parameters
    ----------
    e : array_like
        Of any shape, not negative; NaN where a comparison was refused.

    Examples
    --------
    >>> (e_benjamini_hochberg([100.0, 25.0, 1.0]) <= 0.05).tolist()
    [True, False, False]
    """
    values = np.array(e, np.float64)
    if (values < 0.0).any():
        raise InvalidInputError("e-values must not be negative")
    return benjamini_hochberg(1.0 / np.maximum(values, 1.0))


ADJUST: dict[str, Callable[[ArrayLike], Floats]] = {"holm": holm, "bh": benjamini_hochberg}


def adjusted(p: ArrayLike, adjust: str) -> Floats:
    """Return p-values adjusted by "holm" or "bh"."""
    if adjust not in ADJUST:
        raise InvalidInputError(f"adjust must be 'holm' or 'bh', not {adjust!r}")
    return ADJUST[adjust](p)
