"""Quantiles of values, from a histogram whose buckets fit the values, with certified bounds."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from ...collect.metric import Metric, nothing_counted
from ...numerics.exact import Limits
from ...numerics.settings import setting
from ...reading.about import About
from ...reading.interval import Estimate
from ...reading.reading import Reading
from ...statistics.value_order import quantile_of
from ...statistics.values import ValueHistogram
from ..order import BOUND, woodruff

__all__ = ["Quantile"]


class Quantile(Metric[ValueHistogram, float], tag="quantile"):
    """Quantile of the values, with certified bounds.

    Formula: the least v with W(values <= v) >= q W; the mean of it and the next value if W(values <= v) = q W.

    Parameters
    ----------
    q : float
        Which quantile, in [0, 1]; 0.5 is the median. Read as it is written: 0.1 is a tenth.
    bits : int
        The resolution: the histogram has up to 2**(bits + 6) buckets, and none is wider than 2**-bits of its values.
    on_invalid : {"raise", "drop"}
        Whether a bad row raises, or is left out and counted.

    Notes
    -----
    Bound: the edges of the bucket in which the quantile lies. Exact for up to 32 different values, for up to 8,192
    different integers within 30,000 of each other, and for q = 0 and q = 1. Otherwise buckets have the width that the
    data need: at 7 bits the value is within some 0.001 standard deviations between the 0.1 % and the 99.9 % quantile
    (0.002 of a million rows with heavy tails). About 2 ns a row. At most 16 bytes a bucket; while rows come 2 MiB, and 8
    bytes a row of the largest batch. Definition as numpy's `quantile(method="averaged_inverted_cdf")`. Undefined without
    rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.Quantile(q=0.5).update([1, 2, 3, 10]).compute()
    2.5
    >>> sm.Quantile(q=0.9).update([0.1, 0.2, 0.3]).bounds()
    (0.3, 0.3)
    """

    about = About(
        formula="least v with W(values <= v) >= q W",
        cost="16 bytes a bucket, of which there are up to 8,192 at 7 bits; about 2 ns a row; 1 ms to compute",
        bound=BOUND,
        interval_methods=("woodruff",),
        quantile=About.per_instance(lambda metric: metric.q),
    )

    q: float = setting(default=0.5, low=0.0, high=1.0)
    bits: int = setting(default=7, low=1, high=14)

    @property
    def name(self) -> str:
        return f"quantile@{self.q:g}"

    def make_state(self) -> ValueHistogram:
        return ValueHistogram(columns=("value",), bits=self.bits)

    def of(self, state: ValueHistogram) -> Limits | None:
        return quantile_of(state, self.q, 0)

    def reason(self, state: ValueHistogram) -> str | None:
        return nothing_counted(state)

    def slack(self, state: Any, found: Limits, rounding: Fraction) -> Fraction:
        # The limits hold by the weights as they were given already.
        return Fraction(0)

    def estimate(self, found: Reading, method: str) -> Estimate:
        state: Any = found.state
        return woodruff(state, self.q, 0, found.value, method)
