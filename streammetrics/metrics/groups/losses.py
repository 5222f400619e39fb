"""Losses and calibration within groups, averaged over groups: what a model does for each user, not for the most active."""

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
from ...state.cell_table import MOST_SLIP
from ...statistics.groups.closed import exact_sum
from ...statistics.groups.sums import GroupSums

__all__ = ["GroupCalibrationError", "GroupLogLoss"]

Floats = NDArray[np.float64]


class GroupedMetric(Metric[GroupSums, float]):
    """A weighted mean over groups of what their sums say."""

    about = About(best="low", cost="some 100 bytes a group; 10 ns a row, 80 where there are very many groups")

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
        """Return what each group counts, numerator and divisor of its value, and which groups have one: only these."""
        raise NotImplementedError

    def _values(self, state: GroupSums) -> tuple[Floats, Floats]:
        """Return what each group counts, and its value; groups without a value are left out."""
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

    def estimate(self, found: Any, method: str) -> Estimate:
        value, (counts, values) = found.value, self._values(found.state)  # a ratio of sums over groups
        n, total = len(counts), float(exact_sum(counts))
        if n < 2 or not total:
            return Estimate(value, reason="fewer than two groups have a value")
        far = scale_of(values)
        apart = counts * (values / far - value / far)
        error = math.sqrt(float(exact_sum(np.square(apart))) * n / (n - 1)) / total * far
        return Estimate(value, error, method=method, assumption=GROUPS, degrees=n - 1, within=(0.0, math.inf))


class OfMean(OwnReading):
    """The reading of a mean over groups, whose bounds hold rounded weights and terms."""

    def _bounds(self) -> tuple[float, float]:
        value, state = self.value, self.state
        if value != value:
            return value, value
        counts, _, divisors, there = self.metric._parts(state)
        slip = 8 * float(MOST_SLIP) if state.rounded else 0.0
        unit = 2.0**-58 if state.rounded else 2.0**-60  # each w and w x, or x alone, was rounded to 2**-60
        reach = _mean(counts, state.rows.sum(axis=1)[there] * unit / divisors) + 2 * slip * value
        if not state.rounded and reach <= 4 * math.ulp(value):  # the 2 ulp within which terms are
            return value, value
        return max(0.0, value - reach), value + reach

    def _details(self) -> dict[str, Any]:
        return {"used": len(self.metric._values(self.state)[0]), "memory": self.state.nbytes}


def _mean(counts: Floats, values: Floats) -> float:
    """Return the mean of values, each of which counts so much: exact sums, rounded once."""
    far = scale_of(values)
    return to_float(exact_sum(counts * (values / far)) * Fraction(far), exact_sum(counts))


def scale_of(values: Floats) -> float:
    """Return a power of two that values are divided by: losses of logits may be so large that products overflow."""
    return 2.0 ** max(0, math.frexp(float(values.max(initial=0.0)))[1] - 400)


class GroupLogLoss(GroupedMetric, tag="group_log_loss"):
    """Group log-loss: the mean log-loss of every group, such as a user, averaged over groups.

    Formula: sum_g c_g L_g / sum_g c_g, with L_g = -(1/W_g) sum w log(q) over the rows of the group.

    Parameters
    ----------
    group_weight : {"uniform", "impressions", "positives"}
        What a group counts: one, so that each user weighs alike; its rows (which makes it LogLoss); its positives.
    scale : {"probability", "logit"}
        As for LogLoss.
    eps : float, optional
        As for LogLoss.
    missing, missing_values
        Whether a row without a group raises, or is left out and counted; keys that stand for none, such as 0.
    memory_limit : int
        Bytes that groups may take (4 GiB); MemoryLimitError beyond, and nothing was counted.
    on_invalid : {"raise", "drop"}
        Whether a bad row raises, or is left out and counted.

    Notes
    -----
    Sums within a group are exact, those over groups exact sums of float64 values, rounded once: the same whoever holds
    which rows. Memory grows with groups, not with rows: some 100 bytes each while rows come in. 10 ns a row, 80 if
    groups are so many that each is a cache miss.
    `interval()` takes groups as independent. Undefined without rows.

    Examples
    --------
    >>> import streammetrics as sm
    >>> users = ["a", "a", "a", "b"]
    >>> loss = sm.GroupLogLoss().update([1, 0, 0, 1], [0.5, 0.5, 0.5, 0.25], group=users)
    >>> round(loss.compute(), 6), round(sm.GroupLogLoss(group_weight="impressions").of(loss.state), 6)
    (1.039721, 0.866434)
    """

    about = About(formula="sum over groups of c_g L_g / sum of c_g")

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
        held = both > 0
        counts = {"uniform": np.ones(len(both)), "impressions": both, "positives": weights[:, 1]}[self.group_weight]
        return counts[held], state.totals("log_loss")[held], both[held], held


class GroupCalibrationError(GroupedMetric, tag="group_calibration_error"):
    """Group calibration error: how far predicted and observed positives of every group are apart.

    Formula: sum_g |sum_(i in g) w (p - y)| / sum w (Field-ECE); `relative=True` divides by the observed positives of each
    group: sum_g W_g |sum w (p - y)| / sum w y, over the sum of W_g, of groups with positives (Field-RCE).

    Parameters
    ----------
    relative : bool
        Relative to what was observed; groups without positives are left out.
    scale, missing, missing_values, memory_limit, on_invalid
        As for GroupLogLoss.

    Notes
    -----
    0 for a model that is calibrated on average for every group; a slice or field of few values is better looked at with
    `Sliced(Calibration(), by=...)`. State, cost and exactness as GroupLogLoss. Source: Pan et al., "Field-aware
    calibration" (WWW 2020), whose epsilon below the fraction is 0 here. Undefined without rows; relative without
    positives.

    Examples
    --------
    >>> import streammetrics as sm
    >>> users = ["a", "a", "b", "b"]
    >>> sm.GroupCalibrationError().update([1, 0, 0, 1], [0.5, 0.25, 0.75, 0.75], group=users).compute()
    0.1875
    """

    about = About(formula="sum over groups of |sum of w (p - y)| / sum of w")

    relative: bool = setting(default=False)

    @property
    def name(self) -> str:
        return "group_calibration_error" + ("_relative" if self.relative else "")

    def make_state(self) -> GroupSums:
        return self._sums("score")

    def _parts(self, state: GroupSums) -> tuple[Floats, Floats, Floats, NDArray[np.bool_]]:
        weights = state.weights()
        both, observed = weights.sum(axis=1), weights[:, 1]
        held = observed > 0 if self.relative else both > 0
        gaps = np.abs(state.totals("score") - observed)[held]
        return both[held], gaps, (observed if self.relative else both)[held], held
