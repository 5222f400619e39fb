"""Logistic recalibration, P(y = 1) = sigmoid(a + b logit(p)), fitted to the score histogram.

The log-likelihood is concave, so its maximum is near any point with a small gradient. The bound divides the largest
possible gradient at the fit by the least possible curvature around it, for all scores that the buckets allow.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...collect.metric import ScoredLabels, no_weight_reason
from ...numerics.elementary import exp, log, sigmoid, softplus
from ...numerics.settings import setting
from ...reading.about import About
from ...reading.interval import Estimate
from ...reading.reading import OwnReading, Reading
from ...statistics.scores import BITS, ScoreHistogram
from ..standard_errors import WEIGHTED

__all__ = ["CalibrationIntercept", "CalibrationSlope"]

Floats = NDArray[np.float64]

NAN = float("nan")
EPS = 2.0**-23
STEPS = 100
# An upper limit of the relative rounding error of one float64 term, with a safety factor.
ROUNDING = 2.0**-50
# A logit x is off by less than PAD (1 + |x|).
PAD = 2.0**-48


class ScoreRungs(NamedTuple):
    """The occupied buckets of a score histogram: the weight of each label, and the limits and middle of the logits."""

    positives: Floats
    negatives: Floats
    low: Floats
    middle: Floats
    high: Floats

    @property
    def weight(self) -> Floats:
        """The total weight of each bucket: positives plus negatives."""
        return self.positives + self.negatives


class Coefficient(NamedTuple):
    """A coefficient of the fit, its standard error, and its largest distance from the true maximum."""

    value: float
    error: float
    radius: float


class Fit(NamedTuple):
    """The fitted coefficients a and b of a + b x, with x = logit(p), at the maximum of the likelihood."""

    a: Coefficient
    b: Coefficient


UNKNOWN = Coefficient(NAN, NAN, NAN)


def total(values: Floats) -> float:
    """Return the sum in a fixed order, which is the same on every machine."""
    return float(np.cumsum(values)[-1]) if len(values) else 0.0


def find_rungs(state: ScoreHistogram) -> ScoreRungs:
    """Return the occupied buckets of a state of one cell; limits are a little wider than the rounding of logits."""
    a, c = state.positives.to_floats(), state.negatives.to_floats()
    some = a + c > 0
    if state.scale == "logit":
        most = float(log(np.float64((1 - EPS) / EPS)))
        low, _, high = (np.clip(e[some], -most, most) for e in state.value_bounds())
    else:
        inside = [np.clip(e[some], EPS, 1 - EPS) for e in state.value_bounds()]
        low, _, high = (np.asarray(log(p) - log(1 - p)) for p in inside)
    middle = (low + high) / 2
    pad = PAD * (1 + np.abs(middle))
    return ScoreRungs(a[some], c[some], low - pad, middle, high + pad)


def find_reason_without_fit(rows: ScoreRungs, free: bool) -> str | None:
    """Return the reason why there is no finite fit; None if there is one. `free` says whether the slope is fitted."""
    if not len(rows.weight):
        return "no rows"
    yes, no = rows.middle[rows.positives > 0], rows.middle[rows.negatives > 0]
    if not len(yes) or not len(no):
        return "one class"
    apart = free and bool(yes.min() >= no.max() or yes.max() <= no.min())
    return "the scores tell the classes apart: the slope is infinite" if apart else None


def likelihood(rows: ScoreRungs, a: float, b: float) -> float:
    """Return the log-likelihood of the coefficients a and b, where a + b x is the logit of P(y = 1)."""
    t = a + b * rows.middle
    return -total(rows.positives * softplus(-t) + rows.negatives * softplus(t))


def derivatives(rows: ScoreRungs, a: float, b: float) -> tuple[Floats, Floats]:
    """Return the gradient and the curvature of the log-likelihood: sums over rows for the powers x^0, x^1 (and x^2)."""
    t, x = a + b * rows.middle, rows.middle
    p, q = sigmoid(t), sigmoid(-t)
    slope, bend = rows.positives * q - rows.negatives * p, rows.weight * p * q
    return np.array([total(slope), total(slope * x)]), np.array([total(bend), total(bend * x), total(bend * x * x)])


def solve_newton_step(g: Floats, h: Floats, free: bool) -> tuple[float, float]:
    """Return the Newton step for a and b; NaN if the curvature is not positive."""
    determinant = h[0] * h[2] - h[1] * h[1]
    if not (determinant if free else h[0]) > 0:
        return NAN, NAN
    if not free:
        return float(g[0] / h[0]), 0.0
    return float((h[2] * g[0] - h[1] * g[1]) / determinant), float((h[0] * g[1] - h[1] * g[0]) / determinant)


def fit_logistic(rows: ScoreRungs, free: bool, slip: float) -> Fit:
    """Fit a and b by Newton's method, where each step is halved until the likelihood does not fall."""
    # The fit starts at a = 0, b = 1, so logits that are already calibrated need no step.
    a, b = 0.0, 1.0
    best = likelihood(rows, a, b)
    for _ in range(STEPS):
        da, db = solve_newton_step(*derivatives(rows, a, b), free)
        if da != da:
            break
        share, found = 1.0, likelihood(rows, a + da, b + db)
        while not found >= best and share > 1e-9:
            share /= 2
            found = likelihood(rows, a + share * da, b + share * db)
        if not found >= best:
            break
        a, b, best = a + share * da, b + share * db, found
        if abs(da) + abs(db) <= 1e-9 * (1 + abs(a) + abs(b)):
            # Newton's method converges quadratically: the next step would be about the square of this one.
            break
    each = zip((a, b), errors(rows, a, b, free), radius(rows, a, b, free, slip), strict=True)
    return Fit(*(Coefficient(*one) for one in each))


def errors(rows: ScoreRungs, a: float, b: float, free: bool) -> tuple[float, float]:
    """Return the robust standard errors of both coefficients, which hold even if the model is wrong (White 1980).

    Their squares are the diagonal of H^-1 (sum of squared gradients) H^-1.
    """
    t, x = a + b * rows.middle, rows.middle
    squares = rows.positives * sigmoid(-t) ** 2 + rows.negatives * sigmoid(t) ** 2
    h = derivatives(rows, a, b)[1]
    s = [total(squares * x**k) for k in range(3)]
    out = []
    for unit in ((1.0, 0.0), (0.0, 1.0)):
        u, v = solve_newton_step(np.array(unit), h, free)
        out.append(math.sqrt(max(0.0, u * u * s[0] + 2 * u * v * s[1] + v * v * s[2])) if u == u else NAN)
    return out[0], out[1]


def radius(rows: ScoreRungs, a: float, b: float, free: bool, slip: float) -> tuple[float, float]:
    """Return the largest distance of a and b from the maximum for any scores inside the buckets; infinity if unknown.

    Logits z are scaled to mean 0 and standard deviation 1. If the gradient at the fit is smaller than the least curvature
    inside a circle around it times the radius, the likelihood falls outward on the whole circle. A concave function then
    has its maximum inside the circle.
    """
    h = derivatives(rows, a, b)[1]
    if not h[0] > 0:
        return math.inf, math.inf if free else 0.0
    centre = float(h[1] / h[0]) if free else 0.0
    spread = math.sqrt(max(float(h[2] / h[0]) - centre * centre, 1e-30)) if free else 1.0
    low, high = (rows.low - centre) / spread, (rows.high - centre) / spread
    # The two rows of p and of q = 1 - p are their least and largest values for scores inside each bucket.
    t = np.sort(np.stack([a + b * rows.low, a + b * rows.high]), axis=0)
    p, q = sigmoid(t), sigmoid(-t[::-1])
    # `g` is the largest possible size of the gradient at the fit, with the rounding of its sums.
    size = rows.weight * (1 + np.abs(rows.middle))
    rounding = (slip + len(size) * ROUNDING) * total(size) / spread
    g = _reach(rows, p, q, np.ones_like(low), np.ones_like(low)) + rounding
    if free:
        g = math.hypot(g, _reach(rows, p, q, low, high) + rounding)
    # `bend` is the least curvature w p q that each bucket can have at the fit, less the rounding. At a distance r, the
    # linear predictor moves by at most r (1 + |z|), and p q falls by at most the factor exp(-r (1 + |z|)).
    bend = rows.weight * np.minimum(p[0] * q[1], p[1] * q[0]) * (1 - slip - len(size) * ROUNDING)
    far = np.maximum(np.abs(low), np.abs(high)) if free else np.zeros_like(low)
    square = np.where((low < 0) & (high > 0), 0.0, np.minimum(low * low, high * high))
    r = 0.0
    for _ in range(STEPS):
        # `least` is a lower limit of the smallest eigenvalue of the curvature (Gershgorin): diagonal minus off-diagonal.
        near = bend * exp(-r * (1 + far))
        least = total(near)
        if free:
            least = min(least, total(near * square)) - max(abs(total(near * low)), abs(total(near * high)))
        if least <= 0 or r > 1:
            break
        # The circle is large enough. Its radius is converted back from scaled to original coefficients.
        if g < 0.99 * least * r:
            return r * math.hypot(1.0, centre / spread), r / spread if free else 0.0
        r = max(1.05 * r, 1.02 * g / least)
    return math.inf, math.inf if free else 0.0


def _reach(rows: ScoreRungs, p: Floats, q: Floats, low: Floats, high: Floats) -> float:
    """Return the largest possible absolute sum of z (y - p), for z and p between limits."""

    # The extremes of a product of two intervals are among the four products of their ends. A positive row adds z q, a
    # negative row -z p.
    def product(of: Floats) -> Floats:
        return np.sort(np.stack([low * of[0], low * of[1], high * of[0], high * of[1]]), axis=0)

    up, down = product(q), product(p)
    ends = [total(rows.positives * up[i] - rows.negatives * down[-1 - i]) for i in (0, -1)]
    return max(abs(e) for e in ends)


class RecalibrationMetric(ScoredLabels[ScoreHistogram, float]):
    """A coefficient of the logistic recalibration.

    Parameters
    ----------
    scale : {"probability", "logit"}
        Whether the scores are probabilities or logits.
    bits : int, optional
        The logarithm, to base 2, of the number of histogram buckets.
    """

    about = About(
        cost="the histogram of AUC; milliseconds to compute",
        bound="certified: the gradient at the fit, for any scores that the buckets allow, over the curvature about it",
    )

    scale: str = setting(default="probability", choices=("probability", "logit"))
    bits: int | None = setting(default=None, low=8, high=24)

    @property
    def free(self) -> bool:
        """Whether the slope b is fitted; otherwise it is fixed at 1."""
        return True

    def make_state(self) -> ScoreHistogram:
        return ScoreHistogram(scale=self.scale, bits=BITS[self.scale] if self.bits is None else self.bits)

    def read(self, state: ScoreHistogram) -> Reading:
        return OfFit(self, state)

    def estimate(self, reading: Any, method: str) -> Estimate:
        weighted, error = reading.state.has_weights, reading.coefficient.error
        return Estimate(reading.value, reason=WEIGHTED) if weighted else Estimate(reading.value, error)

    def reason(self, state: ScoreHistogram) -> str | None:
        if (nothing := no_weight_reason(state)) is not None:
            return nothing
        return find_reason_without_fit(find_rungs(state), self.free)


class OfFit(OwnReading):
    """Value and bounds of one coefficient of a fit."""

    @property
    def coefficient(self) -> Coefficient:
        """The fitted coefficient. The fit is cached in the state, because several metrics use it."""
        state, free = self.state, self.metric.free
        fits = state.__dict__.setdefault("_recalibrated", {})
        if free not in fits:
            rows = find_rungs(state)
            fits[free] = (
                None
                if find_reason_without_fit(rows, free)
                else fit_logistic(rows, free, 8 * float(state.weight_rounding))
            )
        found: Coefficient = UNKNOWN if fits[free] is None else self.metric.of(fits[free])
        return found

    def _raw_value(self) -> float:
        return self.coefficient.value

    def _bounds(self) -> tuple[float, float]:
        """Return bounds of the true maximum, rounded outward."""
        value, _, off = self.coefficient
        return math.nextafter(value - off, -math.inf), math.nextafter(value + off, math.inf)


class CalibrationSlope(RecalibrationMetric, tag="calibration_slope"):
    """Calibration slope: the factor by which logits must be multiplied to fit the labels; below 1 means overconfidence.

    Formula: b of the logistic regression P(y = 1) = sigmoid(a + b logit(p)), fitted by maximum likelihood.

    Notes
    -----
    This is Cox's recalibration (1958). Probabilities are clipped to [2**-23, 1 - 2**-23]. The fit uses the middle score of
    each histogram bucket. The bound holds for any scores inside the buckets: it is some thousandths of the slope at 16
    bits, as small as rounding for small data, and infinite if the buckets are too coarse.

    `interval()` uses the robust (sandwich) standard error. The value is undefined without rows, for rows of one class, and
    if a threshold separates the classes.

    Examples
    --------
    >>> import streammetrics as sm
    >>> y, p = [0, 0, 1, 0, 1, 1, 0, 1], [0.125, 0.25, 0.25, 0.5, 0.5, 0.625, 0.75, 0.875]
    >>> round(sm.CalibrationSlope().update(y, p).compute(), 6)
    0.632975
    """

    about = About(best=1.0, formula="b of P(y = 1) = sigmoid(a + b logit(p)), by maximum likelihood")

    def of(self, fit: Fit) -> Coefficient:
        return fit.b


class CalibrationIntercept(RecalibrationMetric, tag="calibration_intercept"):
    """Calibration intercept: the constant that must be added to logits to fit the labels; above 0 means under-prediction.

    Formula: a of P(y = 1) = sigmoid(a + logit(p)), or, with `slope="fitted"`, of sigmoid(a + b logit(p)), fitted by
    maximum likelihood.

    Parameters
    ----------
    slope : {"fixed", "fitted"}
        Whether the slope b is fixed at 1, which is calibration in the large (Van Calster et al. 2019), or fitted together
        with the intercept (Cox 1958).

    Notes
    -----
    The state, the cost and the bound are those of CalibrationSlope. The value is undefined without rows, for rows of one
    class, and, with a fitted slope, if a threshold separates the classes.

    Examples
    --------
    >>> import streammetrics as sm
    >>> y, p = [0, 0, 1, 0, 1, 1, 0, 1], [0.125, 0.25, 0.25, 0.5, 0.5, 0.625, 0.75, 0.875]
    >>> round(sm.CalibrationIntercept().update(y, p).compute(), 6)
    0.082416
    """

    about = About(formula="a of P(y = 1) = sigmoid(a + logit(p)), by maximum likelihood")

    slope: str = setting(default="fixed", choices=("fixed", "fitted"))

    @property
    def name(self) -> str:
        return self.about.tag if self.slope == "fixed" else f"{self.about.tag}_fitted"

    @property
    def free(self) -> bool:
        return self.slope == "fitted"

    def of(self, fit: Fit) -> Coefficient:
        return fit.a
