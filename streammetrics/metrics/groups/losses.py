"""Losses and calibration within groups, averaged over groups, so that active users do not dominate."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...collect.metric import Metric
from ...numerics.exact import to_float
from ...numerics.settings import setting
from ...reading.about import About
from ...reading.interval import GROUPS, Estimate
from ...reading.reading import OwnReading, Reading
from ...state.cell_table import MAX_WEIGHT_ROUNDING
from ...statistics.groups.closed_sums import exact_sum
from ...statistics.groups.sums import GroupSums

__all__ = ["GroupCalibrationError", "GroupLogLoss"]

Floats = NDArray[np.float64]


class GroupedMetric(Metric[GroupSums, float]):
    """Base class for weighted means over groups, where the value of each group is computed from sums over its rows.

    Parameters
    ----------
    scale : {"probability", "logit"}
        Whether the scores are probabilities or logits.
    missing : {"raise", "skip"}
        Whether a row without a group raises an error or is left out. `explain()` shows the number of rows left out.
    missing_values : tuple of int, str or bytes
        Keys, such as 0, that stand for a missing group in addition to null values.
    memory_limit : int
        The maximum memory for groups, in bytes (4 GiB by default). An update that would exceed it raises
        MemoryLimitError, and none of its rows are counted.
    """

    about = About(best="low", cost="about 100 bytes per group; 10 ns per row, or 80 ns with very many groups")

    scale: str = setting(default="probability", choices=("probability", "logit"))
    missing: str = setting(default="raise", choices=("raise", "skip"))
    missing_values: tuple[int | str | bytes, ...] = setting(default=(), unordered=True)
    memory_limit: int = setting(default=1 << 32, low=0, operational=True)

    def _sums(self, *terms: str, eps: float | None = None) -> GroupSums:
        return GroupSums(
            terms=terms,
            scale=self.scale,
            eps=eps,
            missing=self.missing,
            missing_values=self.missing_values,
            memory_limit=self.memory_limit,
        )

    def _parts(self, state: GroupSums) -> tuple[Floats, Floats, Floats, NDArray[np.bool_]]:
        """Return the weights, numerators and denominators of the groups that have a value, and a mask of these groups.

        The value of a group is its numerator divided by its denominator. The mask has one element for every group in the
        state.
        """
        raise NotImplementedError

    def _values(self, state: GroupSums) -> tuple[Floats, Floats]:
        """Return the weights and the values of all groups with a defined value, from which the mean is computed."""
        counts, tops, divisors, _ = self._parts(state)
        with np.errstate(over="ignore"):
            return counts, np.minimum(tops / divisors, np.finfo(np.float64).max)

    def of(self, state: GroupSums) -> float:
        return _mean(*self._values(state))

    def reason(self, state: GroupSums) -> str | None:
        if not state.facts()["rows"]:
            return "no rows"
        return None if exact_sum(self._values(state)[0]) else "no group has a value: no positives, or no weight"

    def read(self, state: GroupSums) -> Reading:
        return OfMean(self, state)

    def estimate(self, reading: Any, method: str) -> Estimate:
        value, (counts, values) = reading.value, self._values(reading.state)
        n, total = len(counts), float(exact_sum(counts))
        if n < 2 or not total:
            return Estimate(value, reason="fewer than two groups have a value")
        # The value is a quotient of two sums over independent groups, so its standard error comes from the delta
        # method. Divide values by a power of 2 so that their squares do not overflow.
        far = scale_of(values)
        apart = counts * (values / far - value / far)
        error = math.sqrt(float(exact_sum(np.square(apart))) * n / (n - 1)) / total * far
        return Estimate(value, error, method=method, assumption=GROUPS, degrees=n - 1, within=(0.0, math.inf))


class OfMean(OwnReading):
    """The value and bounds of a mean over groups; the bounds allow for the rounding of weights and weighted terms."""

    def _bounds(self) -> tuple[float, float]:
        value, state = self.value, self.state
        if value != value:
            return value, value
        counts, _, divisors, there = self.metric._parts(state)
        slip = 8 * float(MAX_WEIGHT_ROUNDING) if state.rounded else 0.0
        # Each weight w, and each product w * x with the term x of a row (such as its loss), was rounded to a multiple
        # of 2**-60.
        unit = 2.0**-58 if state.rounded else 2.0**-60
        reach = _mean(counts, state.rows.sum(axis=1)[there] * unit / divisors) + 2 * slip * value
        # The bounds never allow for the rounding error of a row's term (such as its loss), which is up to 2 ulp. They
        # therefore do not allow for the error `reach` either if it is of a similar size.
        if not state.rounded and reach <= 4 * math.ulp(value):
            return value, value
        return max(0.0, value - reach), value + reach

    def _details(self) -> dict[str, Any]:
        return {"used": len(self.metric._values(self.state)[0]), "memory": self.state.nbytes}


def _mean(counts: Floats, values: Floats) -> float:
    """Return the mean of `values`, weighted by `counts`. The sums are exact, and the quotient is rounded once."""
    far = scale_of(values)
    return to_float(exact_sum(counts * (values / far)) * Fraction(far), exact_sum(counts))


def scale_of(values: Floats) -> float:
    """Return a power of two by which to divide values before they are multiplied, so that products do not overflow.

    It is 1 unless a value exceeds about 2**400, as the loss of an extreme logit can.
    """
    return 2.0 ** max(0, math.frexp(float(values.max(initial=0.0)))[1] - 400)


class GroupLogLoss(GroupedMetric, tag="group_log_loss"):
    """Group log-loss: the mean log-loss of each group (such as a user), averaged over groups.

    Formula: sum_g(c_g * L_g) / sum_g(c_g), where L_g = -sum(w * log(q)) / W_g over the rows of group g. W_g is the sum
    of their weights w, and q is the predicted probability of the label.

    Parameters
    ----------
    group_weight : {"uniform", "impressions", "positives"}
        The weight c_g of a group. "uniform": 1, so that all users count equally. "impressions": its number of rows, so
        that the value equals LogLoss. "positives": its number of positives.
    eps : float, optional
        Probabilities are clipped to [eps, 1 - eps]. The default is the machine epsilon of the scores: 2**-23 for float32
        and half precision, 2**-52 for float64 (as in scikit-learn's `log_loss`).

    Notes
    -----
    Sums within groups are exact. Sums over groups are exact sums of the groups' float64 values, rounded once. So the
    value does not depend on how rows are distributed over workers. Memory grows with groups, not with rows: about 100
    bytes per group during updates. Processing a row takes 10 ns, or 80 ns if there are so many groups that each access
    misses the cache.

    `interval()` treats groups as independent. The value is undefined without rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> users = ["a", "a", "a", "b"]
    >>> loss = sm.GroupLogLoss().update([1, 0, 0, 1], [0.5, 0.5, 0.5, 0.25], group=users)
    >>> round(loss.compute(), 6), round(sm.GroupLogLoss(group_weight="impressions").of(loss.state), 6)
    (1.039721, 0.866434)
    """

    about = About(
        formula="(sum over groups g of c_g L_g) / (sum over groups of c_g), L_g the log-loss, c_g the weight of the group"
    )

    group_weight: str = setting(default="uniform", choices=("uniform", "impressions", "positives"))
    eps: float | None = setting(default=None, above=0.0, high=0.25)

    @property
    def name(self) -> str:
        return "group_log_loss" if self.group_weight == "uniform" else f"group_log_loss_{self.group_weight}"

    def make_state(self) -> GroupSums:
        return self._sums("log_loss", eps=self.eps)

    def _parts(self, state: GroupSums) -> tuple[Floats, Floats, Floats, NDArray[np.bool_]]:
        weights = state.weights()
        both = weights.sum(axis=1)
        counted = both > 0
        counts = {"uniform": np.ones(len(both)), "impressions": both, "positives": weights[:, 1]}[self.group_weight]
        return counts[counted], state.totals("log_loss")[counted], both[counted], counted


class GroupCalibrationError(GroupedMetric, tag="group_calibration_error"):
    """Group calibration error: the gap between predicted and observed positives of each group, averaged over groups.

    Formula: (sum over groups of |sum(w * (p - y))|) / (sum of w over all rows), where the inner sum is over the rows of
    a group (Field-ECE). With `relative=True`, the gap of a group is divided by its observed positives: sum_g(W_g *
    |sum(w * (p - y))| / sum(w * y)) / sum_g(W_g) over groups g with positives, where W_g is the total weight of the
    group (Field-RCE).

    Parameters
    ----------
    relative : bool
        Whether gaps are relative to the observed positives. Groups without positives are then left out.

    Notes
    -----
    The value is 0 for a model that is calibrated on average in every group. If there are only a few groups,
    `Sliced(Calibration(), by=...)` shows the calibration of each group. State, cost and exactness are the same as for
    `GroupLogLoss`. Source: Pan et al., "Field-aware calibration" (WWW 2020); this metric does not add their epsilon to
    the denominator. The value is undefined without rows or, with `relative=True`, without positives.

    Examples
    --------
    >>> import streammetrics as sm
    >>> users = ["a", "a", "b", "b"]
    >>> sm.GroupCalibrationError().update([1, 0, 0, 1], [0.5, 0.25, 0.75, 0.75], group=users).compute()
    0.1875
    """

    about = About(formula="(sum over groups of |sum of w (p - y)|) / (sum of w over all rows)")

    relative: bool = setting(default=False)

    @property
    def name(self) -> str:
        return "group_calibration_error" + ("_relative" if self.relative else "")

    def make_state(self) -> GroupSums:
        return self._sums("score")

    def _parts(self, state: GroupSums) -> tuple[Floats, Floats, Floats, NDArray[np.bool_]]:
        weights = state.weights()
        both, observed = weights.sum(axis=1), weights[:, 1]
        counted = observed > 0 if self.relative else both > 0
        gaps = np.abs(state.totals("score") - observed)[counted]
        return both[counted], gaps, (observed if self.relative else both)[counted], counted
