"""Quantiles of values and of errors, and the largest error.

Quantiles come from a histogram by the leading bits of the number, and carry a certified bound.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..collect.interval import Estimate, reach
from ..collect.metric import Metric
from ..numerics.exact import Limits, Mass, floats_of, to_float
from ..numerics.settings import setting
from ..statistics.extremes import Extremes
from ..statistics.values import ValueHistogram
from .chance import WEIGHTED
from .outputs import OutputMetric

__all__ = ["ErrorQuantile", "MaxError", "MedianAbsoluteError", "Quantile", "ResidualQuantile"]

NAN = float("nan")
FEWEST_BEYOND = 5  # rows beyond a quantile, for its interval
PAIR = ("y_true", "y_pred")
BOUND = "the limits of the bucket, 2**-bits of the value apart; exact for numbers of few bits"


class Quantile(Metric[ValueHistogram, float], tag="quantile"):
    """Quantile of the values, with a certified relative error.

    Formula: the least v with W(values <= v) >= q W; the mean of it and the next value if W(values <= v) = q W.

    Parameters
    ----------
    q : float
        Which quantile, in [0, 1]; 0.5 is the median. Read as it is written: 0.1 is a tenth.
    bits : int
        Of the mantissa, which a bucket shows: the value is within 2**-(bits + 1) of the true one, relatively.
    on_invalid : {"raise", "drop"}
        Whether a bad row raises, or is left out and counted.

    Notes
    -----
    Bound: the limits of the bucket, certain for numbers of both signs, 0 included; 0.4 % at 7 bits. Exact if no number
    had more bits than a bucket shows, such as integers up to 256. About 3 ns a row, 1.7 MiB at 7 bits, mostly untouched,
    half of it for each bit less. Definition as numpy's `quantile(method="averaged_inverted_cdf")`. Undefined without rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.Quantile(q=0.5).update([1, 2, 3, 10]).compute()
    2.5
    >>> sm.Quantile(q=0.9).update([0.1, 0.2, 0.3]).bounds()
    (0.298828125, 0.30078125)
    """

    q: float = setting(default=0.5, low=0.0, high=1.0)
    bits: int = setting(default=7, low=1, high=14)

    formula = "least v with W(values <= v) >= q W"
    cost = "1.7 MiB at 7 bits, mostly untouched; about 3 ns a row; 2 ms to compute"
    bound = BOUND

    @property
    def name(self) -> str:
        return f"quantile@{self.q:g}"

    def make_state(self) -> ValueHistogram:
        return ValueHistogram(columns=("value",), bits=self.bits)

    def of(self, state: ValueHistogram) -> float:
        found = quantile(state, self.q, 0)
        return NAN if found is None else found.rounded()

    def bounds_of(self, state: ValueHistogram) -> tuple[float, float]:
        found = quantile(state, self.q, 0)
        return (NAN, NAN) if found is None else found.outward()

    methods = ("woodruff",)

    def estimate_of(self, state: ValueHistogram, method: str) -> Estimate:
        return woodruff(state, self.q, 0, self.of(state), method)

    def below_of(self, whole: ValueHistogram, shards: Any, at: Any) -> Any:
        return below(whole, shards, at, self.q)

    def value_below(self, state: ValueHistogram, share: float) -> float:
        return value_below(state, share)

    def reason_of(self, state: ValueHistogram) -> str | None:
        facts = state.facts()
        return "no rows" if not facts["rows"] else None if facts["weight"] else "the weights are all zero"


class ErrorQuantile(OutputMetric[ValueHistogram], tag="error_quantile"):
    """Quantile of the absolute errors, with a certified relative error.

    Formula: the q-quantile of |p - y|, as for Quantile.

    Parameters
    ----------
    q : float
        Which quantile, in [0, 1]: 0.9 is the error that nine rows in ten do not pass.
    bits : int
        As for Quantile.
    num_outputs, multioutput, on_invalid
        As for MAE.

    Notes
    -----
    Bound: the limits of the bucket, 2**-bits of the value apart. |p - y| is rounded once. About 3 ns a row, 0.9 MiB an
    output at 7 bits, mostly untouched. Undefined without rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.ErrorQuantile(q=0.75).update([1, 2, 3, 4], [1, 3, 5, 8]).compute()
    3.0
    """

    q: float = setting(default=0.9, low=0.0, high=1.0)
    bits: int = setting(default=7, low=1, high=14)

    signed: ClassVar[bool] = False

    formula = "q-quantile of |p - y|"
    cost = "0.9 MiB an output at 7 bits, mostly untouched; about 3 ns a row; 1 ms to compute"
    bound = BOUND

    @property
    def name(self) -> str:
        return f"error_quantile@{self.q:g}"

    def make_state(self) -> ValueHistogram:
        return ValueHistogram(columns=PAIR, signed=self.signed, bits=self.bits, num_outputs=self.num_outputs)

    methods = ("woodruff",)

    def of_output(self, state: ValueHistogram, output: int) -> Limits | None:
        return quantile(state, self.q, output)

    def below_of(self, whole: ValueHistogram, shards: Any, at: Any) -> Any:
        return below(whole, shards, at, self.q)

    def value_below(self, state: ValueHistogram, share: float) -> float:
        return value_below(state, share)

    def estimate_of_output(self, state: ValueHistogram, output: int, value: float, method: str) -> Estimate:
        return woodruff(state, self.q, output, value, method)

    def bounds_of(self, state: ValueHistogram) -> tuple[Any, Any]:
        found = [quantile(state, self.q, i) for i in range(state.outputs)]
        if self.multioutput == "raw_values":
            low, high = zip(*((NAN, NAN) if f is None else f.outward() for f in found), strict=True)
            return np.array(low), np.array(high)
        mean = Limits.mean(found)
        return (NAN, NAN) if mean is None else mean.outward()


class ResidualQuantile(ErrorQuantile, tag="residual_quantile"):
    """Quantile of the errors with their sign, with a certified relative error: how far predictions are off, and where to.

    Formula: the q-quantile of p - y, as for Quantile.

    Parameters
    ----------
    q : float
        Which quantile, in [0, 1]: between 0.05 and 0.95 lie nine rows in ten.
    bits, num_outputs, multioutput, on_invalid
        As for ErrorQuantile.

    Notes
    -----
    Bound and cost as ErrorQuantile, 1.8 MiB an output at 7 bits. Undefined without rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.ResidualQuantile(q=0.5).update([1, 2, 3], [0, 1, 8]).compute()
    -1.0
    """

    signed = True
    best = None

    formula = "q-quantile of p - y"

    @property
    def name(self) -> str:
        return f"residual_quantile@{self.q:g}"


class MedianAbsoluteError(ErrorQuantile, tag="median_absolute_error"):
    """Median absolute error, with a certified relative error.

    Formula: median of |p - y|; the mean of the two in the middle if they are two.

    Parameters
    ----------
    bits : int
        As for Quantile.
    num_outputs, multioutput, on_invalid
        As for MAE.

    Notes
    -----
    Bound, state and cost as ErrorQuantile. Definition as scikit-learn's `median_absolute_error`. Undefined without rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.MedianAbsoluteError().update([3, -0.5, 2, 7], [2.5, 0.0, 2, 8]).compute()
    0.5
    """

    q: float = setting(default=0.5, choices=(0.5,))

    formula = "median of |p - y|"

    @property
    def name(self) -> str:
        return "median_absolute_error"


class MaxError(OutputMetric[Extremes], tag="max_error"):
    """Largest absolute error, over rows whose weight is not 0.

    Formula: max |p - y|.

    Parameters
    ----------
    num_outputs, multioutput, on_invalid
        As for MAE.

    Notes
    -----
    Exact: |p - y| rounded once. About 1 ns a row, 100 bytes. Definition as scikit-learn's `max_error`. Undefined without
    rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> sm.MaxError().update([3, 2, 7, 1], [4, 2, 7, 1]).compute()
    1.0
    """

    instead = "an extreme has no standard error; ErrorQuantile(q=) near it has one"
    formula = "max |p - y|"
    cost = "100 bytes; about 1 ns a row"
    bound: ClassVar[str] = "exact: the error rounded once"

    def make_state(self) -> Extremes:
        return Extremes(columns=PAIR, num_outputs=self.num_outputs)

    def of_output(self, state: Extremes, output: int) -> Limits | None:
        found = state.largest(output)
        return None if math.isnan(found) else Limits.exactly(Fraction(found))

    def reason_of(self, state: Extremes) -> str | None:
        unseen = math.isnan(state.largest())
        return ("the weights are all zero" if int(state.rows) else "no rows") if unseen else None


def quantile(state: ValueHistogram, q: float, output: int) -> Limits | None:
    """Return a quantile of one output, the middle of where it may be by weights as they were counted; None without.

    Its limits hold by the weights as they were given, too: each was rounded to 2**-60.
    """
    mass = state.mass(output)
    total = mass.total()
    if not total:
        return None
    before, buckets, target = mass.before(), state.occupied(output), Fraction(repr(q)) * total

    def neighbours(slack: int) -> Any:
        """The two values whose mean it is, between limits; sums of weights may be off by so many units."""
        here = _first(mass, before, target - slack, reach=True)
        there = _first(mass, before, target + slack, reach=False)
        return [state.limits(int(buckets[i]), output) for i in (here, there)]

    (a, b), (c, d) = neighbours(0)
    low, high = (a + c) / 2, (b + d) / 2
    value = (low + high) / 2
    if state.rounded:
        (low, _), (_, high) = neighbours(state.facts()["rows"])
    return Limits(low, value, high)


USUAL = 0.95  # the limits that show how dense values are near a quantile


def woodruff(state: ValueHistogram, q: float, output: int, value: float, method: str) -> Estimate:
    """Return a quantile with its error: the values at the shares that q rows of n may be, by chance (Woodruff 1952).

    For differences the error is told, from the limits at 95 %. The m rows between these show the density with a relative
    error of m**-1/2, which is that of an error of m / 2 degrees of freedom: if it were taken as known, 95 % intervals of
    the difference of two 0.95-quantiles, of 1,000 and 5,000 rows, would cover 93 %.
    """
    mass = state.mass(output)
    if state.rows.excess is not None:
        return Estimate(value, reason=WEIGHTED)
    n = mass.total()
    if not 0 < q < 1:
        return Estimate(value, reason="an extreme has no standard error; a quantile near it has one")
    if n * min(q, 1 - q) < FEWEST_BEYOND:
        why = f"fewer than {FEWEST_BEYOND} rows are expected beyond this quantile"
        return Estimate(value, reason=why if n else None)

    share = Estimate(q, 0.0, "wilson", size=n)

    def ends(confidence: float) -> tuple[float, float]:
        low, high = (_value_at(state, mass, s * n, output) for s in share.limits(confidence))
        return low, high

    low, high = ends(USUAL)
    least, most = share.limits(USUAL)
    error = (high - low) / (2.0 * reach(USUAL, math.inf))
    return Estimate(value, error, method=method, degrees=(most - least) * n / 2.0, ends=ends)


def below(whole: ValueHistogram, shards: ValueHistogram, at: NDArray[np.int64], q: float) -> NDArray[np.float64] | None:
    """The weight up to the quantile in each shard: of the bucket in which it lies the part that all shards have there."""
    if whole.num_outputs is not None:
        return None
    cells = max(len(whole), 1)
    bucket, part = np.zeros(cells, np.int64), np.zeros(cells)
    for i, cell in enumerate(whole.coarsen(shards.bits).each_cell() if whole.axes else [whole.coarsen(shards.bits)]):
        mass = cell.mass(0)
        if total := mass.total():
            before, target = mass.before(), Fraction(repr(q)) * total
            k = _first(mass, before, target, reach=True)
            bucket[i] = cell.occupied()[k]
            part[i] = to_float((target - before.cell(k)) / mass.cell(k))
    held = shards.cells.tallies["rows"]
    weight = held.mass + (0.0 if held.excess is None else floats_of(held.excess))
    front, place = at[held.cells], held.places.astype(np.int64)
    inside = np.where(place < bucket[front], 1.0, np.where(place == bucket[front], part[front], 0.0))
    out = np.zeros(len(shards))
    np.add.at(out, held.cells, weight * inside)
    return out


def value_below(state: ValueHistogram, share: float) -> float:
    """The value below which a share of the weight lies, in proportion within a bucket; NaN without weight."""
    mass = state.mass(0)
    total = mass.total()
    return _value_at(state, mass, share * total, 0) if total else NAN


def _value_at(state: ValueHistogram, mass: Mass, rank: float, output: int) -> float:
    """The value that so many rows do not pass, in proportion within a bucket."""
    before = mass.before()
    k = _first(mass, before, Fraction(rank), reach=True)
    low, high = (to_float(x) for x in state.limits(int(state.occupied(output)[k]), output))
    return low + (high - low) * ((rank - before.cell(k)) / mass.cell(k))


def _first(mass: Mass, before: Mass, target: Fraction, *, reach: bool) -> int:
    """Return the first bucket of some weight up to which the weight reaches the target, or passes it."""
    low, high = 0, mass.digits.shape[1] - 1
    total = mass.total()
    while low < high:
        k = (low + high) // 2
        upto = before.cell(k) + mass.cell(k)
        enough = upto > 0 and (upto >= target if reach else upto > target or upto == total)
        low, high = (low, k) if enough else (k + 1, high)
    return low
