"""Deviances: losses for counts, amounts and claims, whose variance grows with their mean."""

from __future__ import annotations

from ...numerics.settings import setting
from ...reading.about import About
from .errors import SummedLoss

__all__ = ["GammaDeviance", "PoissonDeviance", "TweedieDeviance"]


class TweedieDeviance(SummedLoss, tag="tweedie_deviance"):
    """Mean Tweedie deviance: squared error at power 0, Poisson at 1, gamma at 2, compound Poisson-gamma between 1 and 2.

    Formula: weighted mean of 2 * (y**(2 - k) / ((1 - k) * (2 - k)) - y * p**(1 - k) / (1 - k) + p**(2 - k) / (2 - k)),
    for targets y, predictions p and the power k; at k = 1 and k = 2, the limit of this formula. If k < 0,
    negative targets count as 0 in the first term.

    Parameters
    ----------
    power : float
        The power k, from -10 to 0 or from 1 to 10. Targets may be negative if k <= 0, must be at least 0 if 1 <= k < 2,
        and must be positive if k >= 2. Predictions must be positive unless k is 0.

    Notes
    -----
    Powers are accurate to a few ulp, and the terms of rows are summed exactly. A term is accurate even if p is close to
    y, where the formula of scikit-learn's `mean_tweedie_deviance` loses all digits. The value is undefined without
    rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> round(sm.TweedieDeviance(power=1.5).update([2, 0, 1, 4], [0.5, 0.5, 2.0, 2.0]).compute(), 6)
    1.778175
    """

    about = About(
        formula="mean of 2 (y^(2-k) / ((1-k) (2-k)) - (y p^(1-k)) / (1-k) + p^(2-k) / (2-k)), k the power",
        cost="550 bytes per output; about 20 ns per row",
    )

    power: float = setting(default=0.0, low=-10.0, high=10.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if 0 < self.power < 1:
            raise ValueError(
                f"{type(self).__name__}: there is no Tweedie distribution of power {self.power!r}; pass a power= of at "
                f"most 0 or at least 1"
            )

    @property
    def name(self) -> str:
        return f"tweedie_deviance@{self.power:g}"

    @property
    def terms(self) -> tuple[str, ...]:
        return (f"tweedie@{self.power!r}",)

    @property
    def domain(self) -> str:  # type: ignore[override]
        """The name of the valid range of targets and predictions, which depends on the power."""
        k = self.power
        return "positive_pred" if k < 0 else "real" if k == 0 else "nonnegative" if k < 2 else "positive"


class PoissonDeviance(SummedLoss, tag="poisson_deviance"):
    """Mean Poisson deviance: a loss for counts and rates, with targets of at least 0 and positive predictions.

    Formula: weighted mean of 2 * (y * log(y / p) - y + p), for targets y and predictions p.

    Notes
    -----
    The term of each row is accurate even if p is close to y, and the sum of the terms is exact. The definition matches
    scikit-learn's `mean_poisson_deviance`. The value is undefined without rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> round(sm.PoissonDeviance().update([2, 0, 1, 4], [0.5, 0.5, 2.0, 2.0]).compute(), 6)
    1.426015
    """

    about = About(formula="mean of 2 (y log(y / p) - y + p)", cost="550 bytes per output; about 10 ns per row")

    domain = "nonnegative"

    @property
    def terms(self) -> tuple[str, ...]:
        return ("tweedie@1.0",)


class GammaDeviance(SummedLoss, tag="gamma_deviance"):
    """Mean gamma deviance: a loss for positive amounts that depends only on the ratio of prediction to target.

    Formula: weighted mean of 2 * (log(p / y) + y / p - 1), for targets y and predictions p.

    Notes
    -----
    A prediction of twice the target has the same loss for targets of any size. The term of each row is accurate even if
    p is close to y, and the sum of the terms is exact. The definition matches scikit-learn's `mean_gamma_deviance`. The
    value is undefined without rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> round(sm.GammaDeviance().update([2, 0.5, 1, 4], [0.5, 0.5, 2.0, 2.0]).compute(), 6)
    1.056853
    """

    about = About(formula="mean of 2 (log(p / y) + y / p - 1)", cost="550 bytes per output; about 10 ns per row")

    domain = "positive"

    @property
    def terms(self) -> tuple[str, ...]:
        return ("tweedie@2.0",)
