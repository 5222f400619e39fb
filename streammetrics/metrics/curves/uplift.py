"""Uplift metrics: how well a score ranks rows by the effect of a treatment.

This module contains Qini and uplift curves, and metrics of the areas under them.

These metrics compare treated and control rows among the rows with the highest scores. All rows of a bucket (a range of
scores) are counted together, or all rows with equal scores if scores are exact. At a threshold inside a bucket, each
cumulative count is between its values before and after the bucket; the bounds on an area follow from this.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...numerics.exact import BEYOND, Limits
from ...numerics.settings import setting
from ...reading.about import About
from ...reading.reading import NAN
from ...statistics.scores import BITS
from ...statistics.uplift_scores import UpliftScores
from .points import corners
from .scored_metric import ScoredMetric

__all__ = ["AUUC", "QiniCoefficient", "UpliftCurve", "UpliftPoints"]

Floats = NDArray[np.float64]
# An upper bound on the rounding error of an area, which is computed in float64. Both axes are shares of all rows, so areas
# are at most about 1.
ROUNDING = Fraction(1, 1 << 45)


class UpliftPoints(NamedTuple):
    """Points of a Qini or uplift curve, from the highest scores down.

    Parameters
    ----------
    fraction : float64 array
        The share of all rows (or of their weight) that is selected, from the highest scores down.
    gain : float64 array
        The estimated number of additional positives if the selected rows are treated, divided by the total number of rows.
    """

    fraction: Floats
    gain: Floats


class Path(NamedTuple):
    """Cumulative counts at each score, from the highest score down, as shares of all rows.

    `nt` and `nc` are the treated and control rows, and `yt` and `yc` the positives among them. The first element of
    each array is 0.
    """

    nt: Floats
    nc: Floats
    yt: Floats
    yc: Floats

    @classmethod
    def of(cls, steps: Any) -> Path:
        """Build the cumulative counts from `steps`: the counts nt, nc, yt and yc at each score."""
        sums = [np.r_[0.0, np.cumsum(np.asarray(s, np.float64))] for s in steps]
        return cls(*sums)

    @property
    def x(self) -> Floats:
        """The share of all rows, treated and control together, at each point."""
        return self.nt + self.nc

    def values(self, kind: str) -> Floats:
        """Return the height of the curve at each point: the Qini curve for "qini", otherwise the uplift curve."""
        control = _share(self.yc, self.nc)
        return self.yt - self.nt * control if kind == "qini" else (_share(self.yt, self.nt) - control) * self.x

    def area(self, kind: str) -> float:
        """Return the area under the curve, computed by the trapezoidal rule."""
        y = self.values(kind)
        return math.fsum((np.diff(self.x) * (y[1:] + y[:-1]) / 2).tolist())

    def limits(self, kind: str) -> tuple[float, float]:
        """Return the smallest and largest possible areas over all orders of the rows inside each bucket."""
        t, c = _shares(self.yt, self.nt), _shares(self.yc, self.nc)
        if kind == "qini":
            low, high = self.yt[:-1] - self.nt[1:] * c[1], self.yt[1:] - self.nt[:-1] * c[0]
        else:
            least, most = t[0] - c[1], t[1] - c[0]
            low = least * np.where(least < 0, self.x[1:], self.x[:-1])
            high = most * np.where(most > 0, self.x[1:], self.x[:-1])
        width = np.diff(self.x)
        return math.fsum((width * low).tolist()), math.fsum((width * high).tolist())


def _share(part: Floats, whole: Floats) -> Floats:
    """Return `part` / `whole` elementwise, or 0 where `whole` is 0."""
    return np.divide(part, whole, out=np.zeros(len(part)), where=whole > 0)


def _shares(part: Floats, whole: Floats) -> tuple[Floats, Floats]:
    """Return, for each bucket, the smallest and largest possible ratios of cumulative positives to cumulative rows.

    `part` and `whole` are the cumulative positives and rows at the bucket edges. The ratio inside a bucket depends on
    the order of its rows, which is unknown.
    """
    least = _share(part[:-1], whole[1:])
    most = np.divide(part[1:], whole[:-1], out=np.ones(len(part) - 1), where=whole[:-1] > 0)
    return least, np.where(part[1:] > 0, np.minimum(most, 1.0), 0.0)


class UpliftMetric(ScoredMetric[Any]):
    """Base class for metrics whose rows have a score, an outcome (0 or 1) and a treatment (0 or 1)."""

    about = About(cost="24 MiB at 19 bits, mostly unused; about 12 ns per row")

    scale: str = setting(default="real", choices=("probability", "real", "logit"))

    def make_state(self) -> Any:
        if self.exact:
            return UpliftScores(scale=self.scale, bits=None, memory_limit=self.memory_limit)
        bits = self.bits if self.bits is not None else BITS[self.scale]
        return UpliftScores(scale=self.scale, bits=bits, limit=self.limit)

    def reason(self, state: Any) -> str | None:
        arms = state.arms()
        treated, control = arms.treated.total(), arms.control.total()
        if not treated and not control:
            return "no rows"
        return None if treated and control else f"one arm: no {'control' if treated else 'treated'} rows"


def path_of(state: UpliftScores) -> Path:
    """Return the cumulative counts of a state, as shares of all rows."""
    arms = state.arms()
    total = float(arms.treated.total() + arms.control.total())
    return Path(*(np.r_[0.0, mass.sums_through().to_floats()] / total for mass in arms))


class UpliftArea(UpliftMetric):
    """Base class for metrics that divide the area under a Qini or uplift curve by a reference.

    The `norm` setting selects the reference, for example the area for the best possible order ("perfect").
    """

    about = About(bound="the lowest and the highest value over all orders inside each bucket", value_range=(None, None))

    norm: str = setting(default="perfect", choices=("perfect", "total", "rows"))

    kind: ClassVar[str] = "qini"
    above_chance: ClassVar[tuple[str, ...]] = ("perfect", "total", "rows")
    """The values of `norm` for which the area under the line of a random order is subtracted."""

    def _perfect(self, nt: int, nc: int, yt: int, yc: int) -> float:
        """Return the area under the curve of the best possible order of the rows.

        `nt` and `nc` are the numbers of treated and control rows, and `yt` and `yc` the positives among them.
        """
        raise NotImplementedError

    def of(self, state: Any) -> Limits | None:
        if self.reason(state) is not None:
            return None
        path = path_of(state)
        value = path.area(self.kind)
        low, high = (value, value) if state.is_exact else path.limits(self.kind)
        chance, unit = self._unit(state)
        parts = (Fraction(x - chance) / Fraction(unit) for x in (min(low, value), value, max(high, value)))
        # If the treatment does harm, the area that `_perfect` returns can be smaller than that of a random order, so
        # `unit` can be negative. Dividing by it swaps the lower and upper bounds; sorting restores their order.
        return Limits(*sorted(parts)).widen(ROUNDING / abs(Fraction(unit)))

    def _unit(self, state: Any) -> tuple[float, float]:
        """Return the two numbers that turn an area into the value: the number to subtract and the number to divide by.

        A divisor that is so small that it could be a rounding error is returned as 0.
        """
        totals = [mass.total() for mass in state.arms()]
        nt, nc, yt, yc = totals
        rows = Fraction(nt if self.kind == "qini" else nt + nc, nt + nc)
        total = float((Fraction(yt, nt) - Fraction(yc, nc)) * rows)
        chance = total / 2 if self.norm in self.above_chance else 0.0
        if self.norm == "rows":
            return chance, 1.0
        unit = abs(total) if self.norm == "total" else self._perfect(*totals) - chance
        return chance, unit if abs(unit) > 2.0**-46 else 0.0

    def slack(self, state: Any, limits: Limits, rounding: Fraction) -> Fraction:
        off, unit = 64 * rounding, abs(Fraction(self._unit(state)[1]))
        return BEYOND if unit <= off else off * (1 + max(abs(limits.low), abs(limits.high))) / (unit - off)

    def reason(self, state: Any) -> str | None:
        reason = super().reason(state)
        if reason is None and not self._unit(state)[1]:
            return (
                "the whole treatment has no effect"
                if self.norm == "total"
                else "no order of the rows is better than chance"
            )
        return reason

    @property
    def name(self) -> str:
        return self.about.tag if self.norm == "perfect" else f"{self.about.tag}_{self.norm}"


def _area(steps: Sequence[tuple[int, int, int, int]], rows: int, kind: str) -> float:
    """Return the area under a curve that consists of a few line segments; `kind` is "qini" or "uplift".

    Each step contains the counts of one segment: treated rows, control rows, treated positives and control positives.
    `rows` is the total number of rows.
    """
    return Path.of((np.array(steps, np.float64) / float(rows)).T).area(kind)


class QiniCoefficient(UpliftArea, tag="qini"):
    """Qini coefficient: the area between the Qini curve and the line of a random order, relative to the best order.

    Formula: (A - B) / (A* - B). A is the area under the Qini curve y_t - y_c * n_t / n_c. At each point, the rows with
    the highest scores are n_t treated rows (y_t of them positive) and n_c control rows (y_c of them positive). B is the
    area under the straight line from the start to the end of that curve, and A* the area under the curve of the best
    order.

    Parameters
    ----------
    norm : {"perfect", "total", "rows"}
        The divisor of A - B. "perfect": A* - B, as in scikit-uplift's `qini_auc_score`. "total": the absolute value of
        the gain from treating all rows, times the number of rows, as in causalml's `qini_score`. "rows": the square of the
        number of rows.
    negative_effect : bool
        Whether the treatment can do harm. If so, the best order puts the positives of the control group last.
    scale : {"real", "probability", "logit"}
        The scale of the scores: any finite numbers, or numbers in [0, 1] ("probability").

    Notes
    -----
    For each row, pass an outcome, a score, and the column `treatment`, which is 0 or 1. Rows with equal scores are
    counted together, as in scikit-uplift. The library causalml counts them one by one in row order, so its value
    differs by about 1 / (number of rows). Areas are computed by the trapezoidal rule. The bounds hold for any order of
    the rows inside each bucket. The state consists of 3 histograms: 24 MiB at 19 bits, most of which is usually never
    touched.

    Examples
    --------
    >>> import streammetrics as sm
    >>> qini = sm.QiniCoefficient().update([1, 0, 0, 1], [0.9, 0.8, -0.1, -0.3], treatment=[1, 0, 1, 0])
    >>> qini.compute()
    1.0
    """

    about = About(
        formula=(
            "(A - A_random) / (A_best - A_random), areas under the Qini curves of the scores, a random order, and the "
            "best order"
        )
    )

    negative_effect: bool = setting(default=True)

    def _perfect(self, nt: int, nc: int, yt: int, yc: int) -> float:
        if self.negative_effect:
            return _area([(yt, 0, yt, 0), (nt - yt, nc - yc, 0, 0), (0, yc, 0, yc)], nt + nc, self.kind)
        end = float((yt - Fraction(yc * nt, nc)) / (nt + nc))
        return end * (1 - end / 2)

    @property
    def name(self) -> str:
        return super().name + ("" if self.negative_effect else "_no_harm")


class AUUC(UpliftArea, tag="auuc"):
    """Area under the uplift curve: the gain from treating the highest-scoring rows, averaged over all shares of rows.

    Formula: (A - B) / (A* - B). A is the area under the uplift curve (y_t / n_t - y_c / n_c) * n. At each point, the n
    rows with the highest scores are n_t treated rows (y_t of them positive) and n_c control rows (y_c of them
    positive). B is the area under the straight line from the start to the end of that curve, and A* the area under the
    curve of the best order.

    Parameters
    ----------
    norm : {"perfect", "total", "rows"}
        How to scale the area. "perfect": (A - B) / (A* - B), as in scikit-uplift's `uplift_auc_score`. "total": A divided
        by the absolute value of the gain from treating all rows and by the number of rows, as in causalml's `auuc_score`.
        "rows": A divided by the square of the number of rows.

    Notes
    -----
    The columns, the handling of equal scores, the bounds and the state are the same as for QiniCoefficient. At the
    start of the curve, there may be no treated (or no control) rows yet; their share of positives then counts as 0.

    Examples
    --------
    >>> import streammetrics as sm
    >>> auuc = sm.AUUC(norm="rows").update([1, 0, 0, 1], [0.9, 0.8, -0.1, -0.3], treatment=[1, 0, 1, 0])
    >>> auuc.compute()
    0.28125
    """

    about = About(
        formula=(
            "(A - A_random) / (A_best - A_random), areas under the uplift curves of the scores, a random order, and the "
            "best order"
        )
    )

    kind = "uplift"
    above_chance = ("perfect",)

    def _perfect(self, nt: int, nc: int, yt: int, yc: int) -> float:
        last = [(nt - yt, 0, 0, 0), (0, yc, 0, yc)]
        steps = [(yt, 0, yt, 0), (0, nc - yc, 0, 0), *(last[::-1] if yc > nt - yt else last)]
        return _area(steps, nt + nc, self.kind)

    def slack(self, state: Any, limits: Limits, rounding: Fraction) -> Fraction:
        nt, nc, yt, yc = (mass.total() for mass in state.arms())
        # The best order depends on whether the positives of the control group (yc) outnumber the negatives of the
        # treatment group (nt - yt). If the two numbers are equal up to the rounding of weights, the wrong order may
        # have been chosen, so there is no finite bound.
        undecided = self.norm == "perfect" and abs(yc - (nt - yt)) <= 4 * rounding * (nt + nc)
        return BEYOND if undecided else super().slack(state, limits, rounding)


class UpliftCurve(UpliftMetric, tag="uplift_curve"):
    """Qini or uplift curve: the gain from treating the rows with the highest scores, against the share of rows.

    Formula: y_t - y_c * n_t / n_c for "qini", and (y_t / n_t - y_c / n_c) * n for "uplift". Both are divided by the
    total number of rows. At each point, the n rows with the highest scores are n_t treated rows (y_t of them positive)
    and n_c control rows (y_c of them positive).

    Parameters
    ----------
    kind : {"qini", "uplift"}
        The curve to compute.
    tolerance : float
        The largest distance allowed between the curve and the line through the returned points. Points that are not
        needed for this accuracy are left out. 0 keeps all points.

    Notes
    -----
    The points are those of scikit-uplift's `qini_curve` and `uplift_curve`, divided by the number of rows. The first point
    is (0, 0). Each point is at a bucket edge, so it lies on the true curve.

    Examples
    --------
    >>> import streammetrics as sm
    >>> curve = sm.UpliftCurve().update([1, 0, 0, 1], [0.9, 0.8, -0.1, -0.3], treatment=[1, 0, 1, 0])
    >>> curve.compute().gain.tolist()
    [0.0, 0.25, 0.25, 0.0]
    """

    about = About(
        best=None,
        no_interval_reason=(
            "a curve has no single standard error; Sharded(..., unit=) has intervals for QiniCoefficient and AUUC"
        ),
        formula=(
            "points (share of rows, gain), gain = (extra positives if the rows with "
            "the highest scores are treated) / all rows"
        ),
        bound="the points are exact",
    )

    kind: str = setting(default="qini", choices=("qini", "uplift"))
    tolerance: float = setting(default=2.0**-12, low=0.0, high=0.1)

    @property
    def name(self) -> str:
        return f"{self.kind}_curve"

    def of(self, state: Any) -> UpliftPoints:
        if self.reason(state) is not None:
            return UpliftPoints(np.full(1, NAN), np.full(1, NAN))
        path = path_of(state)
        x, y = path.x, path.values(self.kind)
        keep = corners(x, y, self.tolerance)
        return UpliftPoints(x[keep], y[keep])
