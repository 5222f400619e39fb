"""Interpret differences between the sides of a comparison: intervals, p-values, the better side, the limiting error."""

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
from .estimates import ScaledEstimate, build_estimate, interval, p_value, split_intervals
from .multiple import adjust_p_values, e_benjamini_hochberg
from .number_format import format_interval
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
    """The intervals and p-values of one metric, as arrays with one element for each cell (slice).

    `differences` contains the estimates from which the intervals and p-values were computed, and `difference` and
    `relative` contain the intervals for a - b and a / b - 1. `effect` contains the estimate that a verdict is based
    on, such as the absolute or the relative difference. `notes` contains a sentence that replaces the p-value in each
    cell where the quantiles of both sides are certainly equal, and None in all other cells.
    """

    differences: MetricDifferences
    difference: Interval
    relative: Interval
    p_values: Floats
    effect: MetricEffect
    notes: Reasons


@dataclass(frozen=True)
class ComparisonSettings:
    """Settings of a comparison between two sides, such as two models or arms.

    Parameters
    ----------
    confidence : float
        Nominal coverage of the intervals.
    look : Look or None
        The current look at a running experiment, for always-valid intervals; None for intervals that are valid at a single
        look.
    relative : bool
        Whether the p-values and the choice of the better side are based on the relative difference.
    adjust : str or None
        Multiplicity correction over all metrics and slices: "holm", "bh" or None.
    """

    confidence: float = 0.95
    look: Look | None = None
    relative: bool = False
    adjust: str | None = None

    def compute_interval(self, estimate: ScaledEstimate) -> Interval:
        """Return the always-valid interval if `look` is set, otherwise the interval for a single look."""
        if self.look is None:
            return interval(estimate, self.confidence)
        return always_valid(estimate, self.look, self.confidence)

    @property
    def progress(self) -> Progress:
        """The current and planned numbers of users, in the form that the functions of the `verdict` module expect."""
        look = self.look
        return (
            Progress()
            if look is None
            else Progress(look.users, look.planned, sequential=True, tuned_confidence=look.confidence)
        )

    def compute_evidence(self, reading: Interpretation, margin: float | None = None) -> Floats:
        """Return the p-value of the effect in each cell (slice) or, for a sequential comparison, the e-value.

        The result is NaN in cells with too little data or where the quantiles of both sides are certainly equal.
        `margin` is the margin of a guardrail, or None for other metrics.
        """
        values = compute_evidence(reading.effect, self.progress, margin)
        return np.where(has_reason(reading.differences.reasons) | has_reason(reading.notes), np.nan, values)

    def adjust_p_values(
        self, readings: Sequence[Interpretation], margins: Sequence[float | None] | None = None
    ) -> list[Floats]:
        """Return the p-values of every metric, corrected over all cells (slices) of all metrics if `adjust` is set.

        Parameters
        ----------
        readings : sequence of Interpretation
            One interpretation for each metric.
        margins : sequence, optional
            The margin of each metric that is a guardrail; None for other metrics.
        """
        if self.adjust is None:
            return [r.p_values for r in readings]
        # Correct over all cells of all metrics together. With a separate correction for each metric, the number of false
        # discoveries would grow with the number of metrics.
        sizes, margin_of = [r.p_values.size for r in readings], margins or [None] * len(readings)
        evidence_values = _concatenate([self.compute_evidence(r, m) for r, m in zip(readings, margin_of, strict=True)])
        # For a sequential comparison, "bh" is e-BH and "holm" uses always-valid p-values. Both are valid under
        # arbitrary dependence between the tests.
        if self.look is not None and self.adjust == "bh":
            p_values = e_benjamini_hochberg(evidence_values)
        else:
            p_values = adjust_p_values(evidence_values if self.look is None else p_from_e(evidence_values), self.adjust)
        ends = [sum(sizes[:i]) for i in range(len(sizes) + 1)]
        return [p_values[a:b] for a, b in pairwise(ends)]


def _concatenate(parts: Sequence[Floats]) -> Floats:
    return np.concatenate([np.zeros(0), *parts])


def interpret(differences: MetricDifferences, settings: ComparisonSettings) -> Interpretation:
    """Return the intervals and p-values for differences; both are NaN in cells (slices) with too little data."""
    difference = _withhold_errors(differences.difference, differences.reasons)
    relative = _withhold_errors(differences.relative, differences.relative_reasons)
    chosen = relative if settings.relative else difference
    p = np.asarray(p_value(chosen) if settings.look is None else p_from_e(e_value(chosen, settings.look)))
    intervals = settings.compute_interval(difference), settings.compute_interval(relative)
    notes = _describe_equal_quantiles(differences, intervals[0], settings)
    effect = build_effect(differences, settings.relative)._replace(note=notes)
    return Interpretation(differences, *intervals, np.where(has_reason(notes), np.nan, p), effect, notes)


def _describe_equal_quantiles(
    differences: MetricDifferences, difference: Interval, settings: ComparisonSettings
) -> Reasons:
    """Return a sentence for each cell (slice) in which a quantile is certainly equal on both sides; None for others.

    The quantile is certainly equal if the intervals of both sides consist of the same single value. In that case, the
    difference is 0 and has no p-value. The sentence says how much the share of weight at or below this value changes,
    because this share can change even though the quantile does not.
    """
    notes = build_reasons(None, differences.reasons.shape)
    if differences.share is None:
        return notes
    pair, shares = differences.pair, list(split_intervals(settings.compute_interval(differences.share)))
    equal = (differences.difference.sets != None) & (difference.low == 0.0) & (difference.high == 0.0)  # noqa: E711

    def describe(i: int) -> str:
        value, change = f"{pair.a.values[i]:g}", format_interval(shares[i], False, settings.look is not None)
        return f"the value is {value} on both sides; the share at or below {value} changes by {change}"

    add_reasons(notes, equal, describe)
    return notes


def is_exact(sample: Any) -> Any:
    """Return whether the value of each cell (slice) is exact, which means that its certified bounds are equal."""
    return sample.low == sample.high


def build_effect(
    differences: MetricDifferences, relative: bool, better: str | None = None, margin: float | None = None
) -> MetricEffect:
    """Return the effect of a treatment on one metric, for a verdict. Its arrays have one element per cell (slice).

    Parameters
    ----------
    differences : MetricDifferences
        The differences of a metric.
    relative : bool
        Whether to use the relative difference.
    better : {"high", "low", "one"}, optional
        Which values are better: high values, low values, or values close to 1. By default, the direction that the
        metric defines or, if it defines none, "high".
    margin : float, optional
        For a guardrail, how much worse the metric may be.
    """
    a, b = differences.pair.a, differences.pair.b
    of_both = differences.contrasts is not None and better in (None, "one")
    change: Any = differences.contrasts if of_both else differences.relative if relative else differences.difference
    side = "one" if of_both else better or ("low" if differences.pair.metric.about.best == "low" else "high")
    # Bucketing scores may make the estimate too high or too low. The certified bounds of both sides limit the error in
    # each direction.
    slack: tuple[Any, ...]
    # Suppress warnings about controls of 0, NaN values and values without a logarithm.
    with np.errstate(all="ignore"):
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
    reasons: Any = differences.relative_reasons if relative and not of_both else differences.reasons
    return MetricEffect(differences.pair.name, change, side, margin, reasons, slack)


def _withhold_errors(estimate: ScaledEstimate, reasons: Reasons) -> ScaledEstimate:
    """Return the estimate with its error set to NaN in each cell (slice) where `reasons` is not None."""
    all_reasons = build_reasons(reasons, reasons.shape)
    own = build_reasons(estimate.reason, reasons.shape)
    add_reasons(all_reasons, has_reason(own), lambda i: str(own[i]))
    built = build_estimate(*estimate[:7], reasons=all_reasons, reduction=estimate.reduction)
    return built._replace(sets=estimate.sets)


def find_better_side(reading: Interpretation, p: Floats, settings: ComparisonSettings) -> NDArray[Any]:
    """Return the better side, "a" or "b", in each cell (slice), or None if neither side is clearly better.

    A side is clearly better if the sampling error and the certified bounds together cannot explain the difference. The
    result is also None for metrics that do not define which values are better.

    Parameters
    ----------
    reading : Interpretation
        The intervals of one metric.
    p : float64 array
        The p-value of each cell after the multiplicity correction.
    settings : ComparisonSettings
        The settings of the comparison.
    """
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
    """Return which error limits the precision in each cell (slice); None in cells without an interval.

    The result is "certified bound" if the total width of both sides' certified bounds exceeds the width of the
    interval, otherwise "sampling".
    """
    a, b = reading.differences.pair.a, reading.differences.pair.b
    difference = reading.difference
    with np.errstate(invalid="ignore"):
        bound = (a.high - a.low) + (b.high - b.low) > difference.high - difference.low
        has_interval = np.isfinite(difference.high - difference.low)
    out = np.full(has_interval.shape, None, object)
    out[has_interval & bound], out[has_interval & ~bound] = BOUND, SAMPLING
    return out
