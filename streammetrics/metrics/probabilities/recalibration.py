"""Logistic recalibration, P(y = 1) = sigmoid(a + b * logit(p)), fitted to the score histogram.

The histogram gives each score only to within the width of its bucket, so the exact coefficients are known only within
bounds. The log-likelihood is concave, so its maximum is near any point where the gradient is small relative to the
curvature. The bounds are computed from the largest gradient at the fit, and the smallest curvature around it, that any
scores inside the buckets can give.
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
# An upper bound on the relative rounding error of one term of a sum over buckets, with a safety factor.
ROUNDING = 2.0**-50
# The rounding error of a logit x is less than PAD * (1 + |x|).
PAD = 2.0**-48


class ScoreRungs(NamedTuple):
    """The buckets of a score histogram that contain rows.

    Parameters
    ----------
    positives, negatives : float64 array
        The weights of the rows with label 1 and of the rows with label 0 in each bucket.
    low, middle, high : float64 array
        The smallest, middle and largest logits of each bucket.
    """

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
    """A coefficient of the logistic regression.

    Parameters
    ----------
    value : float
        The coefficient.
    error : float
        Its standard error.
    radius : float
        An upper bound on the distance between `value` and the coefficient for the exact scores.
    """

    value: float
    error: float
    radius: float


class Fit(NamedTuple):
    """The coefficients a (intercept) and b (slope) of a + b * logit(p), fitted by maximum likelihood."""

    a: Coefficient
    b: Coefficient


UNKNOWN = Coefficient(NAN, NAN, NAN)


def total(values: Floats) -> float:
    """Return the sum of an array.

    Its elements are added in a fixed order, so that the result is the same on every machine, bit for bit.
    """
    return float(np.cumsum(values)[-1]) if len(values) else 0.0


def find_rungs(state: ScoreHistogram) -> ScoreRungs:
    """Return the buckets that contain rows, from a state with one cell (slice).

    The smallest and largest logits of each bucket are moved slightly outward to allow for rounding errors.
    """
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
    """Return the reason why there is no finite fit, or None if there is one. If `free` is false, the slope b is 1."""
    if not len(rows.weight):
        return "no rows"
    yes, no = rows.middle[rows.positives > 0], rows.middle[rows.negatives > 0]
    if not len(yes) or not len(no):
        return "one class"
    apart = free and bool(yes.min() >= no.max() or yes.max() <= no.min())
    return "the scores separate the classes perfectly: the slope is infinite" if apart else None


def likelihood(rows: ScoreRungs, a: float, b: float) -> float:
    """Return the log-likelihood of the coefficients a and b, where a + b * logit(p) is the logit of P(y = 1)."""
    t = a + b * rows.middle
    return -total(rows.positives * softplus(-t) + rows.negatives * softplus(t))


def derivatives(rows: ScoreRungs, a: float, b: float) -> tuple[Floats, Floats]:
    """Return the gradient and the curvature (negative second derivatives) of the log-likelihood at a and b.

    The gradient contains the derivatives with respect to a and b. The curvature contains the entries (a, a), (a, b) and
    (b, b) of the negative Hessian matrix.
    """
    t, x = a + b * rows.middle, rows.middle
    p, q = sigmoid(t), sigmoid(-t)
    slope, bend = rows.positives * q - rows.negatives * p, rows.weight * p * q
    return np.array([total(slope), total(slope * x)]), np.array([total(bend), total(bend * x), total(bend * x * x)])


def solve_newton_step(g: Floats, h: Floats, free: bool) -> tuple[float, float]:
    """Return the Newton step for a and b from gradient `g` and curvature `h` (see `derivatives`).

    The step is NaN if the curvature is not positive. If `free` is false, the slope is fixed, and its step is 0.
    """
    determinant = h[0] * h[2] - h[1] * h[1]
    if not (determinant if free else h[0]) > 0:
        return NAN, NAN
    if not free:
        return float(g[0] / h[0]), 0.0
    return float((h[2] * g[0] - h[1] * g[1]) / determinant), float((h[0] * g[1] - h[1] * g[0]) / determinant)


def fit_logistic(rows: ScoreRungs, free: bool, slip: float) -> Fit:
    """Fit a and b of sigmoid(a + b * logit(p)) by Newton's method, halving each step while it reduces the likelihood.

    If `free` is false, b is fixed at 1. `slip` is the relative error of the weights; the radius of each coefficient
    allows for it.
    """
    # The fit starts at a = 0, b = 1, so no step is needed if the logits are already calibrated.
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
            # Newton's method converges quadratically. The next step would be about the square of this one and thus too
            # small to matter.
            break
    each = zip((a, b), errors(rows, a, b, free), radius(rows, a, b, free, slip), strict=True)
    return Fit(*(Coefficient(*one) for one in each))


def errors(rows: ScoreRungs, a: float, b: float, free: bool) -> tuple[float, float]:
    """Return the robust (sandwich) standard errors of a and b, which are valid even if the model is wrong (White 1980).

    Their squares are the diagonal of H^-1 S H^-1, where H is the curvature of the log-likelihood. S is the sum over
    rows of the outer product of the row's gradient with itself. If `free` is false, only a is fitted.
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
    """Return upper bounds on the errors of a and b that arise because the fit uses buckets instead of exact scores.

    If the function finds no finite bounds, it returns infinity. The proof uses a circle around the fit, after logits
    are scaled to mean 0 and standard deviation 1. If the gradient at the fit is smaller than the radius times the
    smallest curvature inside the circle, the likelihood decreases outward at every point of the circle. As the
    likelihood is concave, its maximum then lies inside the circle. The function therefore searches for a radius that
    meets this condition. If `free` is false, b is fixed and its bound is 0.
    """
    h = derivatives(rows, a, b)[1]
    if not h[0] > 0:
        return math.inf, math.inf if free else 0.0
    centre = float(h[1] / h[0]) if free else 0.0
    spread = math.sqrt(max(float(h[2] / h[0]) - centre * centre, 1e-30)) if free else 1.0
    low, high = (rows.low - centre) / spread, (rows.high - centre) / spread
    # p is the fitted probability and q is 1 - p. Both have two rows: the smallest and largest values for scores inside
    # each bucket.
    t = np.sort(np.stack([a + b * rows.low, a + b * rows.high]), axis=0)
    p, q = sigmoid(t), sigmoid(-t[::-1])
    # `g` is an upper bound on the norm of the gradient at the fit, including the rounding errors of its sums.
    size = rows.weight * (1 + np.abs(rows.middle))
    rounding = (slip + len(size) * ROUNDING) * total(size) / spread
    g = _reach(rows, p, q, np.ones_like(low), np.ones_like(low)) + rounding
    if free:
        g = math.hypot(g, _reach(rows, p, q, low, high) + rounding)
    # `bend` is, for each bucket of weight w, a lower bound on its curvature w * p * q at the fit. At a distance r from
    # the fit, the linear predictor changes by at most r * (1 + |z|), where z is the scaled logit. So within this
    # distance, p * q is at least its value at the fit times exp(-r * (1 + |z|)).
    bend = rows.weight * np.minimum(p[0] * q[1], p[1] * q[0]) * (1 - slip - len(size) * ROUNDING)
    far = np.maximum(np.abs(low), np.abs(high)) if free else np.zeros_like(low)
    square = np.where((low < 0) & (high > 0), 0.0, np.minimum(low * low, high * high))
    r = 0.0
    for _ in range(STEPS):
        # `least` is a lower bound on the smallest eigenvalue of the curvature matrix, by Gershgorin's theorem: the smaller
        # diagonal element minus the absolute value of the off-diagonal element.
        near = bend * exp(-r * (1 + far))
        least = total(near)
        if free:
            least = min(least, total(near * square)) - max(abs(total(near * low)), abs(total(near * high)))
        if least <= 0 or r > 1:
            break
        # If the gradient is smaller than the curvature times the radius, the circle is large enough. Its radius is
        # converted from scaled logits to the original ones.
        if g < 0.99 * least * r:
            return r * math.hypot(1.0, centre / spread), r / spread if free else 0.0
        r = max(1.05 * r, 1.02 * g / least)
    return math.inf, math.inf if free else 0.0


def _reach(rows: ScoreRungs, p: Floats, q: Floats, low: Floats, high: Floats) -> float:
    """Return the largest possible absolute value of a component of the gradient: the sum over rows of z * (y - p).

    y is the label, and z lies between `low` and `high`. `p` has two rows: the smallest and largest possible
    probabilities p. `q` has the same two rows for 1 - p.
    """

    # A positive row adds z * q to the sum, and a negative row adds -z * p. The extremes of a product of two intervals
    # are among the four products of their ends.
    def product(of: Floats) -> Floats:
        return np.sort(np.stack([low * of[0], low * of[1], high * of[0], high * of[1]]), axis=0)

    up, down = product(q), product(p)
    ends = [total(rows.positives * up[i] - rows.negatives * down[-1 - i]) for i in (0, -1)]
    return max(abs(e) for e in ends)


class RecalibrationMetric(ScoredLabels[ScoreHistogram, float]):
    """Base class for metrics whose value is a coefficient of the logistic recalibration: the intercept or the slope.

    Parameters
    ----------
    scale : {"probability", "logit"}
        Whether the scores are probabilities or logits.
    bits : int, optional
        The base-2 logarithm of the number of histogram buckets.
    """

    about = About(
        cost="as for AUC; a few ms to compute",
        bound="allows for every position of a score within its histogram bucket; narrow buckets give narrow bounds",
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
    """The reading (value and bounds) of one coefficient; the bounds hold for any scores inside their buckets."""

    @property
    def coefficient(self) -> Coefficient:
        """The fitted coefficient. The fit is cached in the state, because the slope and the intercept both need it."""
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
        """Return bounds, rounded outward, on the coefficient for the exact scores."""
        value, _, off = self.coefficient
        return math.nextafter(value - off, -math.inf), math.nextafter(value + off, math.inf)


class CalibrationSlope(RecalibrationMetric, tag="calibration_slope"):
    """Calibration slope: the factor by which logits must be multiplied to fit the labels; below 1 means overconfidence.

    Formula: b of the logistic regression P(y = 1) = sigmoid(a + b * logit(p)), fitted by maximum likelihood.

    Notes
    -----
    This is Cox's recalibration (1958). Probabilities are clipped to [2**-23, 1 - 2**-23]. The fit uses the middle of
    each histogram bucket, and the bounds hold for any scores inside the buckets. With 16 bits, the bounds are usually
    within a few tenths of a percent of the value. For small data, whose scores are exact, the bounds differ from the
    value only by rounding errors. The bounds are infinite if the buckets are too coarse.

    `interval()` uses the robust (sandwich) standard error. The value is undefined without rows, if all rows are of one
    class, or if a threshold separates the classes.

    Examples
    --------
    >>> import streammetrics as sm
    >>> y, p = [0, 0, 1, 0, 1, 1, 0, 1], [0.125, 0.25, 0.25, 0.5, 0.5, 0.625, 0.75, 0.875]
    >>> round(sm.CalibrationSlope().update(y, p).compute(), 6)
    0.632975
    """

    about = About(
        best=1.0,
        formula=(
            "b of P(y = 1) = sigmoid(a + b logit(p)), fitted by maximum likelihood for labels y and predictions p"
        ),
    )

    def of(self, fit: Fit) -> Coefficient:
        return fit.b


class CalibrationIntercept(RecalibrationMetric, tag="calibration_intercept"):
    """Calibration intercept: the constant that must be added to logits to fit the labels; above 0 means under-prediction.

    Formula: a of P(y = 1) = sigmoid(a + logit(p)), or, with `slope="fitted"`, of sigmoid(a + b * logit(p)), fitted by
    maximum likelihood.

    Parameters
    ----------
    slope : {"fixed", "fitted"}
        Whether the slope b is fixed at 1, which is calibration in the large (Van Calster et al. 2019), or fitted together
        with the intercept (Cox 1958).

    Notes
    -----
    State, memory, time and bounds are the same as for CalibrationSlope. The value is undefined without rows or if all
    rows are of one class. With a fitted slope, it is also undefined if a threshold separates the classes.

    Examples
    --------
    >>> import streammetrics as sm
    >>> y, p = [0, 0, 1, 0, 1, 1, 0, 1], [0.125, 0.25, 0.25, 0.5, 0.5, 0.625, 0.75, 0.875]
    >>> round(sm.CalibrationIntercept().update(y, p).compute(), 6)
    0.082416
    """

    about = About(
        formula="a of P(y = 1) = sigmoid(a + logit(p)), fitted by maximum likelihood for labels y and predictions p"
    )

    slope: str = setting(default="fixed", choices=("fixed", "fitted"))

    @property
    def name(self) -> str:
        return self.about.tag if self.slope == "fixed" else f"{self.about.tag}_fitted"

    @property
    def free(self) -> bool:
        return self.slope == "fitted"

    def of(self, fit: Fit) -> Coefficient:
        return fit.a
