"""The share of a deviance that predictions explain, beyond the mean of the targets."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from ...collect.metric import Metric, nothing_counted
from ...numerics.elementary import log
from ...numerics.elementary import power as raised
from ...numerics.exact import to_float
from ...numerics.settings import setting
from ...statistics.row_terms import RowTerms

__all__ = ["D2Tweedie"]


class D2Tweedie(Metric[RowTerms, float], tag="d2_tweedie"):
    """D2 of a Tweedie deviance: the share of the deviance of predicting the mean that the model saves; 1 is perfect.

    Formula: 1 - mean deviance of predictions / mean deviance of always predicting the weighted mean of the targets.

    Parameters
    ----------
    power : float
        1 is Poisson, 2 gamma, in between compound Poisson-gamma; of power 0 it is `R2`. Targets are at least 0, from
        power 2 on positive; predictions are positive.
    on_invalid : {"raise", "drop"}
        Whether a bad row raises, or is left out and counted.

    Notes
    -----
    Definition as scikit-learn's `d2_tweedie_score`. Sums are exact; the deviance of the mean is a difference of powers,
    rounded like scikit-learn's. Numbers are within 2**-50 and 2**50. 3.3 kB, some 100 ns a row. Undefined without rows,
    and where all targets are the same.

    Examples
    --------
    >>> import streammetrics as sm
    >>> round(sm.D2Tweedie(power=1.5).update([2, 0, 1, 4], [1.5, 0.5, 1.0, 3.0]).compute(), 6)
    0.556663
    """

    power: float = setting(default=1.0, low=1.0, high=10.0)

    best = "high"
    positional = ("y_true", "y_pred")
    formula = "1 - deviance / deviance of the mean"
    cost = "3.3 kB; some 100 ns a row"
    bound = "rows computed in float64, summed exactly; the deviance of the mean rounded a few times"

    @property
    def name(self) -> str:
        return f"{self.tag}@{self.power:g}"

    def make_state(self) -> RowTerms:
        k = self.power
        over = "positive" if k >= 2 else "amounts"
        return RowTerms(terms=("target", f"unit@{k!r}", f"deviance@{k!r}"), over=over)

    def of_mean(self, state: RowTerms) -> float:
        """The mean deviance of always predicting the mean; 0 if all targets are the same."""
        k, weight = self.power, state.weight()
        mean, unit = np.float64(to_float(state.total("target"), weight)), to_float(state.total(f"unit@{k!r}"), weight)
        if not mean > 0:
            return 0.0
        if k == 2.0:
            return 2.0 * (float(log(mean)) - unit)
        if k == 1.0:
            return 2.0 * (unit - float(mean * log(mean)))
        return 2.0 * (unit - float(raised(mean, np.float64(2.0 - k)))) / ((1.0 - k) * (2.0 - k))

    def of(self, state: RowTerms) -> float:
        null = self.of_mean(state)
        total = Fraction(state.total(f"deviance@{self.power!r}"))
        return 1.0 - to_float(total, state.weight()) / null if null > 0 else math.nan

    def reason_of(self, state: RowTerms) -> str | None:
        if (nothing := nothing_counted(state)) is not None:
            return nothing
        return None if self.of_mean(state) > 0 else "all targets are the same"
