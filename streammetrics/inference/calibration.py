"""Contrasts that show which of two calibration ratios is closer to 1.

Let a = ln c_a and b = ln c_b. Then |b| > |a| exactly if b - a and b + a have the same sign, so two ordinary intervals
decide. An interval for |ln c| itself is unreliable: its distribution has an edge at c = 1, and its jackknife interval
covers 71 to 93 % at a nominal 95 %.
"""

from __future__ import annotations

from typing import NamedTuple

from .estimates import ScaledEstimate
from .jackknife import Replicates, add_replicates, jackknife, subtract_replicates

__all__ = ["CalibrationContrasts", "calibration_contrasts"]


class CalibrationContrasts(NamedTuple):
    """The two contrasts of two calibration ratios.

    Parameters
    ----------
    log_difference : ScaledEstimate
        ln c_a - ln c_b, reported as c_a / c_b - 1.
    log_sum : ScaledEstimate
        ln c_a + ln c_b, reported as c_a c_b - 1.
    """

    log_difference: ScaledEstimate
    log_sum: ScaledEstimate


def calibration_contrasts(a: Replicates, b: Replicates) -> CalibrationContrasts:
    """Return both contrasts of `a` and `b`, computed shard by shard.

    Parameters
    ----------
    a, b : Replicates
        Replicates of the ratio sum p / sum y, or of its inverse, for one cell or several.

    Examples
    --------
    >>> import numpy as np
    >>> weights = np.full(20, 100.0)
    >>> a = Replicates(1.20, 1.20 + np.arange(-9.5, 10.0) / 1e4, weights)
    >>> b = Replicates(0.98, 0.98 + np.arange(-9.5, 10.0) / 1e4, weights)
    >>> [round(e.value, 3) for e in calibration_contrasts(a, b)]
    [0.224, 0.176]
    """
    return CalibrationContrasts(jackknife(subtract_replicates(a, b, relative=True)), jackknife(add_replicates(a, b)))
