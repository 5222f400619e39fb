"""Logistic recalibration, P(y = 1) = sigmoid(a + b logit(p)), fitted to the score histogram: calibration slope, intercept.

The log-likelihood is concave, so where its gradient is small its maximum is near. Over all scores that the buckets allow
the gradient is at most some size, and the curvature about the fit at least some: this is what certifies the result.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...collect.metric import ScoredLabels, nothing_counted
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
ROUNDING = 2.0**-50
PAD = 2.0**-48  # more than a logit is off, relatively to 1 and itself


class ScoreRungs(NamedTuple):
    """What the rungs of a histogram weigh, by label, and their logits, and between which they lie."""

    positives: Floats
    negatives: Floats
    low: Floats
    middle: Floats
    high: Floats

    @property
    def both(self) -> Floats:
        """What a rung weighs."""
        return self.positives + self.negatives


class Coefficient(NamedTuple):
    """A coefficient of the fit, its standard error, and how far it may be from the maximum of the likelihood."""

    value: float
    error: float
    radius: float


class Fit(NamedTuple):
    """The maximum of the likelihood, a + b x."""

    a: Coefficient
    b: Coefficient


UNKNOWN = Coefficient(NAN, NAN, NAN)


def total(values: Floats) -> float:
    """The sum, one after the other on every machine."""
    return float(np.cumsum(values)[-1]) if len(values) else 0.0


def scored(state: ScoreHistogram) -> ScoreRungs:
    """What is known of the logits in a state of one cell; a little more than their rounding apart."""
    a, c = state.positives.floats(), state.negatives.floats()
    some = a + c > 0
    if state.scale == "logit":
        most = float(log(np.float64((1 - EPS) / EPS)))
        low, _, high = (np.clip(e[some], -most, most) for e in state.ends())
    else:
        inside = [np.clip(e[some], EPS, 1 - EPS) for e in state.ends()]
        low, _, high = (np.asarray(log(p) - log(1 - p)) for p in inside)
    middle = (low + high) / 2
    pad = PAD * (1 + np.abs(middle))
    return ScoreRungs(a[some], c[some], low - pad, middle, high + pad)


def undefined(rows: ScoreRungs, free: bool) -> str | None:
    """Why there is no finite fit, with a slope that is free or not, if there is none."""
    if not len(rows.both):
        return "no rows"
    yes, no = rows.middle[rows.positives > 0], rows.middle[rows.negatives > 0]
    if not len(yes) or not len(no):
        return "one class"
    apart = free and bool(yes.min() >= no.max() or yes.max() <= no.min())
    return "the scores tell the classes apart: the slope is infinite" if apart else None


def likelihood(rows: ScoreRungs, a: float, b: float) -> float:
    """The log-likelihood of a + b x."""
    t = a + b * rows.middle
    return -total(rows.positives * softplus(-t) + rows.negatives * softplus(t))


def derivatives(rows: ScoreRungs, a: float, b: float) -> tuple[Floats, Floats]:
    """The sums over rows of the gradient and of the curvature, as powers of x: x^0, x^1 (and x^2)."""
    t, x = a + b * rows.middle, rows.middle
    p, q = sigmoid(t), sigmoid(-t)
    slope, bend = rows.positives * q - rows.negatives * p, rows.both * p * q
    return np.array([total(slope), total(slope * x)]), np.array([total(bend), total(bend * x), total(bend * x * x)])


def solved(g: Floats, h: Floats, free: bool) -> tuple[float, float]:
    """The step of Newton; NaN where nothing bends, or not more than rounding does."""
    determinant = h[0] * h[2] - h[1] * h[1]
    if not (determinant if free else h[0]) > 0:
        return NAN, NAN
    if not free:
        return float(g[0] / h[0]), 0.0
    return float((h[2] * g[0] - h[1] * g[1]) / determinant), float((h[0] * g[1] - h[1] * g[0]) / determinant)


def fitted(rows: ScoreRungs, free: bool, slip: float) -> Fit:
    """Find the maximum by Newton's method, with steps halved while they do not climb."""
    a, b = 0.0, 1.0
    best = likelihood(rows, a, b)
    for _ in range(STEPS):
        da, db = solved(*derivatives(rows, a, b), free)
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
            break  # the next step would be its square
    each = zip((a, b), errors(rows, a, b, free), radius(rows, a, b, free, slip), strict=True)
    return Fit(*(Coefficient(*one) for one in each))


def errors(rows: ScoreRungs, a: float, b: float, free: bool) -> tuple[float, float]:
    """Standard errors of both, whether or not the model is right (White 1980): H^-1 (sum of squared gradients) H^-1."""
    t, x = a + b * rows.middle, rows.middle
    squares = rows.positives * sigmoid(-t) ** 2 + rows.negatives * sigmoid(t) ** 2
    h = derivatives(rows, a, b)[1]
    s = [total(squares * x**k) for k in range(3)]
    out = []
    for unit in ((1.0, 0.0), (0.0, 1.0)):
        u, v = solved(np.array(unit), h, free)
        out.append(math.sqrt(max(0.0, u * u * s[0] + 2 * u * v * s[1] + v * v * s[2])) if u == u else NAN)
    return out[0], out[1]


def radius(rows: ScoreRungs, a: float, b: float, free: bool, slip: float) -> tuple[float, float]:
    """How far a and b are at most from the maximum for any scores between the ends: infinity if that is not shown.

    In logits z of mean 0 and spread 1: on a circle about the fit the likelihood falls outward, if the gradient in its
    middle is smaller than the curvature within, times its radius. So a concave function has its maximum inside.
    """
    h = derivatives(rows, a, b)[1]
    if not h[0] > 0:
        return math.inf, math.inf if free else 0.0
    centre = float(h[1] / h[0]) if free else 0.0
    spread = math.sqrt(max(float(h[2] / h[0]) - centre * centre, 1e-30)) if free else 1.0
    low, high = (rows.low - centre) / spread, (rows.high - centre) / spread
    t = np.sort(np.stack([a + b * rows.low, a + b * rows.high]), axis=0)
    p, q = sigmoid(t), sigmoid(-t[::-1])  # rows: the least and the most
    size = rows.both * (1 + np.abs(rows.middle))
    rounding = (slip + len(size) * ROUNDING) * total(size) / spread
    g = _reach(rows, p, q, np.ones_like(low), np.ones_like(low)) + rounding
    if free:
        g = math.hypot(g, _reach(rows, p, q, low, high) + rounding)
    bend = rows.both * np.minimum(p[0] * q[1], p[1] * q[0]) * (1 - slip - len(size) * ROUNDING)
    far = np.maximum(np.abs(low), np.abs(high)) if free else np.zeros_like(low)
    square = np.where((low < 0) & (high > 0), 0.0, np.minimum(low * low, high * high))
    r = 0.0
    for _ in range(STEPS):
        near = bend * exp(-r * (1 + far))
        least = total(near)
        if free:
            least = min(least, total(near * square)) - max(abs(total(near * low)), abs(total(near * high)))
        if least <= 0 or r > 1:
            break
        if g < 0.99 * least * r:
            return r * math.hypot(1.0, centre / spread), r / spread if free else 0.0
        r = max(1.05 * r, 1.02 * g / least)
    return math.inf, math.inf if free else 0.0


def _reach(rows: ScoreRungs, p: Floats, q: Floats, low: Floats, high: Floats) -> float:
    """The most that the sum of z (y - p) can be in size, with z and p between limits."""

    def product(of: Floats) -> Floats:
        return np.sort(np.stack([low * of[0], low * of[1], high * of[0], high * of[1]]), axis=0)

    up, down = product(q), product(p)
    ends = [total(rows.positives * up[i] - rows.negatives * down[-1 - i]) for i in (0, -1)]
    return max(abs(e) for e in ends)


class Recalibrated(ScoredLabels[ScoreHistogram, float]):
    """A number of the logistic recalibration."""

    about = About(
        cost="the histogram of AUC; milliseconds to compute",
        bound="certified: the gradient at the fit, for any scores that the buckets allow, over the curvature about it",
    )

    scale: str = setting(default="probability", choices=("probability", "logit"))
    bits: int | None = setting(default=None, low=8, high=24)

    @property
    def free(self) -> bool:
        """Whether the slope is fitted, too."""
        return True

    def make_state(self) -> ScoreHistogram:
        return ScoreHistogram(scale=self.scale, bits=BITS[self.scale] if self.bits is None else self.bits)

    def read(self, state: ScoreHistogram) -> Reading:
        return OfFit(self, state)

    def estimate(self, found: Any, method: str) -> Estimate:
        weighted, error = found.state.weighted, found.coefficient.error
        return Estimate(found.value, reason=WEIGHTED) if weighted else Estimate(found.value, error)

    def reason(self, state: ScoreHistogram) -> str | None:
        if (nothing := nothing_counted(state)) is not None:
            return nothing
        return undefined(scored(state), self.free)


class OfFit(OwnReading):
    """The reading of one coefficient of a fit."""

    @property
    def coefficient(self) -> Coefficient:
        """The coefficient; the fit is kept with the state, of which several ask for it."""
        state, free = self.state, self.metric.free
        held = state.__dict__.setdefault("_recalibrated", {})
        if free not in held:
            rows = scored(state)
            held[free] = None if undefined(rows, free) else fitted(rows, free, 8 * float(state.slip))
        found: Coefficient = UNKNOWN if held[free] is None else self.metric.of(held[free])
        return found

    def _found(self) -> float:
        return self.coefficient.value

    def _bounds(self) -> tuple[float, float]:
        """Return how far the value may be from the maximum, rounded outward."""
        value, _, off = self.coefficient
        return math.nextafter(value - off, -math.inf), math.nextafter(value + off, math.inf)


class CalibrationSlope(Recalibrated, tag="calibration_slope"):
    """Calibration slope: by how much logits must be stretched to fit what came; below 1 the model is too sure of itself.

    Formula: b of the logistic regression P(y = 1) = sigmoid(a + b logit(p)), fitted by maximum likelihood.

    Parameters
    ----------
    scale : {"probability", "logit"}
        What the score is.
    bits : int, optional
        Resolution of the score histogram, as for AUC.
    on_invalid : {"raise", "drop"}
        Whether a bad row raises, or is left out and counted.

    Notes
    -----
    Cox's recalibration (1958). Probabilities are kept within [2**-23, 1 - 2**-23]. Buckets count with their middle scores;
    the bound holds whatever they hold, some thousandths of the slope at 16 bits; it is as small as rounding for small
    data, and infinite where buckets are too coarse to show any. `interval()` has the robust standard error. Undefined
    without rows, for one class, and where a threshold tells the classes apart.

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


class CalibrationIntercept(Recalibrated, tag="calibration_intercept"):
    """Calibration intercept: by how much logits must be shifted to fit what came; above 0 the model predicts too little.

    Formula: a of P(y = 1) = sigmoid(a + logit(p)); with `slope="fitted"` of sigmoid(a + b logit(p)); maximum likelihood.

    Parameters
    ----------
    slope : {"fixed", "fitted"}
        1, which makes it calibration in the large (Van Calster et al. 2019), or fitted at once (Cox 1958).
    scale, bits, on_invalid
        As for CalibrationSlope.

    Notes
    -----
    State, cost and bound as CalibrationSlope. Undefined without rows, for one class, and with a fitted slope where a
    threshold tells the classes apart.

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
