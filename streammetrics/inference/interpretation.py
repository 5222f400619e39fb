"""Interpretation of differences: intervals, p-values, the better side, and the error that limits the result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..numerics.elementary import log
from ..reading.interval import Interval, alpha_of
from .differences import BEST_RATIO, MetricDifferences
from .estimates import ScaledEstimate, build_estimate, interval, p_value
from .multiple import adjust_p_values, e_benjamini_hochberg
from .reasons import Reasons, add_reasons, build_reasons, has_reason
from .sequential import Look, always_valid, e_value, p_from_e
from .verdict import MetricEffect, Progress, compute_evidence, is_not_worse, is_worse

__all__ = [
    "BOUND",
    "SAMPLING",
    "ComparisonSettings",
    "Interpretation",
    "build_effect",
    "find_better_side",
    "find_limiting_error",
    "interpret",
]

SAMPLING, BOUND = "sampling", "certified bound"
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Interpretation:
    """The intervals, p-values and effect of one metric, with arrays over its cells."""

    differences: MetricDifferences
    difference: Interval
    relative: Interval
    p_values: Floats
    effect: MetricEffect


@dataclass(frozen=True)
class ComparisonSettings:
    """Settings of a comparison.

    Parameters
    ----------
    confidence : float
        Nominal coverage of the intervals.
    look : Look or None
        The current look, for always-valid intervals; None for one look.
    relative : bool
        Whether p-values and the better side refer to the relative difference.
    adjust : str or None
        Multiplicity correction over all metrics and slices: "holm", "bh" or None.
    """

    confidence: float = 0.95
    look: Look | None = None
    relative: bool = False
    adjust: str | None = None

    def compute_interval(self, estimate: ScaledEstimate) -> Interval:
        """Return the interval for one look, or the always-valid interval of a sequential analysis."""
        if self.look is None:
            return interval(estimate, self.confidence)
        return always_valid(estimate, self.look, self.confidence)

    @property
    def progress(self) -> Progress:
        """The look as a `Progress`, for verdicts."""
        look = self.look
        return (
            Progress()
            if look is None
            else Progress(look.users, look.planned, sequential=True, tuned_confidence=look.confidence)
        )

    def compute_evidence(self, reading: Interpretation, margin: float | None = None) -> Floats:
        """Return the p-value, or e-value, of the effect in each cell; NaN in cells with too little data."""
        values = compute_evidence(reading.effect, self.progress, margin)
        return np.where(has_reason(reading.differences.reasons), np.nan, values)

    def adjust_p_values(
        self, readings: Sequence[Interpretation], margins: Sequence[float | None] | None = None
    ) -> list[Floats]:
        """Return the p-values of every metric, corrected over all metrics and cells if `adjust` is set.

        Parameters
        ----------
        readings : sequence of Interpretation
            One for each metric.
        margins : sequence, optional
            The margin of each guardrail; None for other metrics.
        """
        if self.adjust is None:
            return [r.p_values for r in readings]
        # All cells of all metrics are one family of hypotheses: a correction by metric would let the number of false
        # discoveries grow with the number of metrics.
        sizes, margin_of = [r.p_values.size for r in readings], margins or [None] * len(readings)
        evidence_values = _concatenate([self.compute_evidence(r, m) for r, m in zip(readings, margin_of, strict=True)])
        # e-BH needs no assumption about dependence. Holm on always-valid p-values is valid under any dependence, too.
        if self.look is not None and self.adjust == "bh":
            p_values = e_benjamini_hochberg(evidence_values)
        else:
            p_values = adjust_p_values(evidence_values if self.look is None else p_from_e(evidence_values), self.adjust)
        ends = [sum(sizes[:i]) for i in range(len(sizes) + 1)]
        return [p_values[a:b] for a, b in pairwise(ends)]


def _concatenate(parts: Sequence[Floats]) -> Floats:
    return np.concatenate([np.zeros(0), *parts])


def interpret(differences: MetricDifferences, settings: ComparisonSettings) -> Interpretation:
    """Return the intervals and p-values of differences; NaN in cells with too little data."""
    difference, relative = (
        _withhold_errors(m, differences.reasons) for m in (differences.difference, differences.relative)
    )
    chosen = relative if settings.relative else difference
    p = np.asarray(p_value(chosen) if settings.look is None else p_from_e(e_value(chosen, settings.look)))
    return Interpretation(
        differences,
        settings.compute_interval(difference),
        settings.compute_interval(relative),
        p,
        build_effect(differences, settings.relative),
    )


def is_exact(sample: Any) -> Any:
    """Return whether the values of a sample are exact, cell by cell."""
    return sample.low == sample.high


def build_effect(
    differences: MetricDifferences, relative: bool, better: str | None = None, margin: float | None = None
) -> MetricEffect:
    """Return the effect that a verdict is based on, for all cells.

    Parameters
    ----------
    differences : MetricDifferences
        The differences of a metric.
    relative : bool
        Whether to use the relative difference.
    better : {"high", "low", "one"}, optional
        Which values are better; by default as the metric defines it, or "high".
    margin : float, optional
        The margin of a guardrail.
    """
    a, b = differences.pair.a, differences.pair.b
    of_both = differences.contrasts is not None and better in (None, "one")
    change: Any = differences.contrasts if of_both else differences.relative if relative else differences.difference
    side = "one" if of_both else better or ("low" if differences.pair.metric.about.best == "low" else "high")
    # The slack is how far the certified bounds of both sides may move the estimate, down and up, on the effect's scale.
    slack: tuple[Any, ...]
    with np.errstate(all="ignore"):  # NaN, a control of 0, and values without a logarithm
        if of_both:
            usable = [(s.low > 0.0) & np.isfinite(s.high) for s in (a, b)]
            width = sum(
                log(np.where(h, s.high, 1.0)) - log(np.where(h, s.low, 1.0))
                for h, s in zip(usable, (a, b), strict=True)
            )
            slack = (np.where(usable[0] & usable[1], width, np.inf),) * 2
        elif relative:
            ratio, exact = a.values / b.values, is_exact(a) & is_exact(b)
            has_bounds = (a.low >= 0.0) & (b.low > 0.0)
            ends = ratio - a.low / b.high, a.high / b.low - ratio
            slack = tuple(np.where(has_bounds, end, np.where(exact, 0.0, np.inf)) for end in ends)
        else:
            slack = (a.values - a.low) + (b.high - b.values), (a.high - a.values) + (b.values - b.low)
    return MetricEffect(differences.pair.name, change, side, margin, differences.reasons, slack)  # type: ignore[arg-type]


def _withhold_errors(estimate: ScaledEstimate, reasons: Reasons) -> ScaledEstimate:
    """Return the estimate without errors in the cells that have a reason."""
    all_reasons = build_reasons(reasons, reasons.shape)
    own = build_reasons(estimate.reason, reasons.shape)
    add_reasons(all_reasons, has_reason(own), lambda i: str(own[i]))
    return build_estimate(*estimate[:7], reasons=all_reasons, reduction=estimate.reduction)


def find_better_side(reading: Interpretation, p: Floats, settings: ComparisonSettings) -> NDArray[Any]:
    """Return the better side of each cell, "a" or "b"; None where sampling error or certified bounds leave it open."""
    differences, best = reading.differences, reading.differences.pair.metric.about.best
    out = np.full(p.shape, None, object)
    alpha = alpha_of(settings.confidence)
    if best is None or (best == BEST_RATIO and differences.contrasts is None):
        return out
    progress = settings.progress
    first, second = is_not_worse(reading.effect, progress, alpha), is_worse(reading.effect, progress, alpha)
    readable = ~has_reason(differences.reasons)
    if settings.adjust is not None:
        readable = readable & (p <= alpha)
    out[first & readable], out[second & readable] = "a", "b"
    return out


def find_limiting_error(reading: Interpretation) -> NDArray[Any]:
    """Return which error is larger in each cell: "certified bound" if it is wider than the interval, else "sampling"."""
    a, b = reading.differences.pair.a, reading.differences.pair.b
    difference = reading.difference
    with np.errstate(invalid="ignore"):
        bound = (a.high - a.low) + (b.high - b.low) > difference.high - difference.low
        has_interval = np.isfinite(difference.high - difference.low)
    out = np.full(has_interval.shape, None, object)
    out[has_interval & bound], out[has_interval & ~bound] = BOUND, SAMPLING
    return out
