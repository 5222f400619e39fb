"""Uplift: how well a score ranks rows by what a treatment does to them; Qini and uplift curves, and their areas.

Of the rows with the highest scores the treated and the control are compared: what was gained by treating them. Rows of
equal score, and those of one bucket, come together. Inside a bucket every count is between those before and after it.
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
from .scored import ScoredMetric

__all__ = ["AUUC", "QiniCoefficient", "UpliftCurve", "UpliftPoints"]

Floats = NDArray[np.float64]
ROUNDING = Fraction(1, 1 << 45)  # more than float64 steps can lose of an area, as a share of rows times rows


class UpliftPoints(NamedTuple):
    """Points of a Qini or uplift curve, from the highest scores down.

    Parameters
    ----------
    fraction : float64 array
        Share of all rows (or weight) that score as high.
    gain : float64 array
        What treating them gains, for each row of all.
    """

    fraction: Floats
    gain: Floats


class Path(NamedTuple):
    """Counts of the highest rows, from none to all: treated and control, positives among them, as shares of all rows."""

    nt: Floats
    nc: Floats
    yt: Floats
    yc: Floats

    @classmethod
    def of(cls, steps: Any) -> Path:
        """From what is added step by step."""
        sums = [np.r_[0.0, np.cumsum(np.asarray(s, np.float64))] for s in steps]
        return cls(*sums)

    @property
    def x(self) -> Floats:
        """All rows."""
        return self.nt + self.nc

    def values(self, kind: str) -> Floats:
        """The curve."""
        control = _share(self.yc, self.nc)
        return self.yt - self.nt * control if kind == "qini" else (_share(self.yt, self.nt) - control) * self.x

    def area(self, kind: str) -> float:
        """The area below the curve, by trapezoids."""
        y = self.values(kind)
        return math.fsum((np.diff(self.x) * (y[1:] + y[:-1]) / 2).tolist())

    def limits(self, kind: str) -> tuple[float, float]:
        """Limits of that area, whatever the order within each step: each count is between those before and after."""
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
    """Part of the whole; 0 of nothing."""
    return np.divide(part, whole, out=np.zeros(len(part)), where=whole > 0)


def _shares(part: Floats, whole: Floats) -> tuple[Floats, Floats]:
    """Between which values the share of positives lies inside each step."""
    least = _share(part[:-1], whole[1:])
    most = np.divide(part[1:], whole[:-1], out=np.ones(len(part) - 1), where=whole[:-1] > 0)
    return least, np.where(part[1:] > 0, np.minimum(most, 1.0), 0.0)


class UpliftMetric(ScoredMetric[Any]):
    """A metric of rows by score, outcome and treatment."""

    about = About(cost="24 MiB at 19 bits, mostly untouched; about 12 ns a row")

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
    """The counts of a state, as shares of all rows."""
    arms = state.arms()
    total = float(arms.treated.total() + arms.control.total())
    return Path(*(np.r_[0.0, mass.through().floats()] / total for mass in arms))


class UpliftArea(UpliftMetric):
    """An area of a curve, set against something."""

    about = About(bound="every order inside each bucket", value_range=(None, None))

    norm: str = setting(default="perfect", choices=("perfect", "total", "rows"))

    kind: ClassVar[str] = "qini"
    above_chance: ClassVar[tuple[str, ...]] = ("perfect", "total", "rows")
    """The norms for which the area of the straight line is taken away."""

    def _perfect(self, nt: int, nc: int, yt: int, yc: int) -> float:
        """Return the area of the best order of treated and control rows, and the positives of both."""
        raise NotImplementedError

    def of(self, state: Any) -> Limits | None:
        if self.reason(state) is not None:
            return None
        path = path_of(state)
        value = path.area(self.kind)
        low, high = (value, value) if state.is_exact else path.limits(self.kind)
        chance, unit = self._unit(state)
        parts = (Fraction(x - chance) / Fraction(unit) for x in (min(low, value), value, max(high, value)))
        # sorted, as the best order that does no harm can be below chance, where treatment does harm
        return Limits(*sorted(parts)).widened(ROUNDING / abs(Fraction(unit)))

    def _unit(self, state: Any) -> tuple[float, float]:
        """What is taken away from the area, and what it is divided by; 0 if that is lost in rounding."""
        totals = [mass.total() for mass in state.arms()]
        nt, nc, yt, yc = totals
        rows = Fraction(nt if self.kind == "qini" else nt + nc, nt + nc)
        total = float((Fraction(yt, nt) - Fraction(yc, nc)) * rows)
        chance = total / 2 if self.norm in self.above_chance else 0.0
        if self.norm == "rows":
            return chance, 1.0
        unit = abs(total) if self.norm == "total" else self._perfect(*totals) - chance
        return chance, unit if abs(unit) > 2.0**-46 else 0.0

    def slack(self, state: Any, found: Limits, rounding: Fraction) -> Fraction:
        off, unit = 64 * rounding, abs(Fraction(self._unit(state)[1]))
        return BEYOND if unit <= off else off * (1 + max(abs(found.low), abs(found.high))) / (unit - off)

    def reason(self, state: Any) -> str | None:
        reason = super().reason(state)
        if reason is None and not self._unit(state)[1]:
            return "the whole treatment has no effect" if self.norm == "total" else "no order is better than chance"
        return reason

    @property
    def name(self) -> str:
        return self.about.tag if self.norm == "perfect" else f"{self.about.tag}_{self.norm}"


def _area(steps: Sequence[tuple[int, int, int, int]], rows: int, kind: str) -> float:
    """Return the area of a curve of a few steps: treated and control rows, and the positives of both."""
    return Path.of((np.array(steps, np.float64) / float(rows)).T).area(kind)


class QiniCoefficient(UpliftArea, tag="qini"):
    """Qini coefficient: the area between the Qini curve and the straight line of a random order, set against the best.

    Formula: (A - B) / (A* - B); A the area of y_t - y_c n_t / n_c over the highest rows, y positives and n rows, treated
    and control; B that of the straight line to its end, A* that of the best order.

    Parameters
    ----------
    norm : {"perfect", "total", "rows"}
        What A - B is divided by: A* - B, as scikit-uplift's `qini_auc_score`; the gain of treating all, without its sign,
        times all rows, as causalml's `qini_score`; or the square of all rows.
    negative_effect : bool
        Whether the best order has the control positives last, as if treating them did harm; or no harm can be done.
    scale, bits, limit, exact, memory_limit, on_invalid
        As for AUC; scores are any finite numbers here.

    Notes
    -----
    Rows have a 0/1 `treatment` besides outcome and score. Equal scores come together, as in scikit-uplift; causalml
    sums rows in the order they stand, so its value differs by about 1 / rows. Areas by trapezoids. Bound: counts inside
    a bucket are between those before and after it. 3 histograms: 24 MiB at 19 bits, mostly untouched.

    Examples
    --------
    >>> import streammetrics as sm
    >>> qini = sm.QiniCoefficient().update([1, 0, 0, 1], [0.9, 0.8, -0.1, -0.3], treatment=[1, 0, 1, 0])
    >>> qini.compute()
    1.0
    """

    about = About(formula="(area of the Qini curve - that of chance) / (that of the best order - that of chance)")

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
    """Area under the uplift curve: what is gained by treating the highest-scored rows, over all shares of rows.

    Formula: (A - B) / (A* - B); A the area of (y_t / n_t - y_c / n_c) n over the highest n rows, y positives and n rows,
    treated and control; B that of the straight line to its end, A* that of the best order.

    Parameters
    ----------
    norm : {"perfect", "total", "rows"}
        (A - B) / (A* - B), as scikit-uplift's `uplift_auc_score`; A over the gain of treating all, without its sign, times
        all rows, as causalml's `auuc_score`; or A over the square of all rows.
    scale, bits, limit, exact, memory_limit, on_invalid
        As for QiniCoefficient.

    Notes
    -----
    As for QiniCoefficient. An arm without rows has gained nothing yet.

    Examples
    --------
    >>> import streammetrics as sm
    >>> auuc = sm.AUUC(norm="rows").update([1, 0, 0, 1], [0.9, 0.8, -0.1, -0.3], treatment=[1, 0, 1, 0])
    >>> auuc.compute()
    0.28125
    """

    about = About(formula="(area of the uplift curve - that of chance) / (that of the best order - that of chance)")

    kind = "uplift"
    above_chance = ("perfect",)

    def _perfect(self, nt: int, nc: int, yt: int, yc: int) -> float:
        last = [(nt - yt, 0, 0, 0), (0, yc, 0, yc)]
        steps = [(yt, 0, yt, 0), (0, nc - yc, 0, 0), *(last[::-1] if yc > nt - yt else last)]
        return _area(steps, nt + nc, self.kind)

    def slack(self, state: Any, found: Limits, rounding: Fraction) -> Fraction:
        nt, nc, yt, yc = (mass.total() for mass in state.arms())
        # Weights that are off by so much may have another best order.
        undecided = self.norm == "perfect" and abs(yc - (nt - yt)) <= 4 * rounding * (nt + nc)
        return BEYOND if undecided else super().slack(state, found, rounding)


class UpliftCurve(UpliftMetric, tag="uplift_curve"):
    """Qini or uplift curve: what is gained by treating the highest-scored rows, over the share of rows.

    Formula: qini: y_t - y_c n_t / n_c; uplift: (y_t / n_t - y_c / n_c) n, over the highest n rows; both per row of all.

    Parameters
    ----------
    kind : {"qini", "uplift"}
        Which curve.
    tolerance : float
        Points are left out where the line through those that stay passes within this distance; 0 keeps them all.
    scale, bits, limit, exact, memory_limit, on_invalid
        As for QiniCoefficient.

    Notes
    -----
    Points as scikit-uplift's `qini_curve` and `uplift_curve`, from (0, 0), divided by all rows. A point is where a bucket
    ends, so it lies on the true curve.

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
            "a curve has no one standard error; QiniCoefficient and AUUC have intervals by Sharded(..., unit=)"
        ),
        formula="gain over the share of rows, from the highest scores down",
        bound="points exact",
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
