"""Notes that accompany the verdict on a comparison: the effect of covariates, and Simpson's paradox."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .differences import BEST_RATIO, MetricDifferences, build_replicates
from .estimates import ScaledEstimate, split_intervals
from .interpretation import ComparisonSettings
from .jackknife import Contrast, jackknife, subtract_replicates, sum_shards
from .number_format import format_interval
from .reasons import has_reason

__all__ = ["Note", "describe_caveats"]

# A metric gets a warning about Simpson's paradox only if the slices that have intervals contain at least this share of
# all rows. Otherwise, the remaining slices could explain the difference over all rows.
LEAST_SHARE = 0.9


class Note(NamedTuple):
    """A sentence about a comparison.

    Parameters
    ----------
    sentence : str
        The text of the note.
    is_warning : bool
        Whether the sentence warns that the comparison may be misleading.
    """

    sentence: str
    is_warning: bool


def describe_caveats(
    whole: Iterable[MetricDifferences],
    parts: Iterable[MetricDifferences],
    by: Sequence[str],
    names: tuple[str, str],
    settings: ComparisonSettings,
) -> list[Note]:
    """Return notes about a comparison of two sides: the effect of covariates, and metrics that show Simpson's paradox.

    Parameters
    ----------
    whole, parts : iterable of MetricDifferences
        The differences of each metric over all rows, and by slice (empty if there are no slices).
    by : sequence of str
        The slice columns.
    names : tuple of str
        The names of the treatment and of the control.
    settings : ComparisonSettings
        The confidence level and, for a sequential experiment, the current interim analysis (look).

    Notes
    -----
    A metric gets a warning (Simpson's paradox) if the interval over all rows and the interval of the average over the
    slices lie on opposite sides of 0. The average weights each slice by its share of the rows of both sides. It
    therefore does not depend on how each side divides its rows among the slices. Both intervals are widened by the
    certified bounds, which limit the error from bucketing scores. The warning is given only if the slices that have
    intervals contain at least 90 % of the rows. If there is no difference, an interval rarely excludes 0, and two
    intervals exclude 0 on opposite sides even more rarely. So false warnings are rarer than differences that are
    wrongly called significant.
    """
    by_metric = {one.pair.name: one for one in parts}
    wholes = list(whole)
    effects = [
        (one.pair.name, float(np.asarray(one.difference.reduction).reshape(-1)[0]))
        for one in wholes
        if len(one.pair.keys)
    ]
    notes = _describe_covariates([(name, share) for name, share in effects if share])
    for one in wholes:
        sliced = by_metric.get(one.pair.name)
        sentence = None if sliced is None else _describe_reversal(one, sliced, by, names, settings)
        notes += [] if sentence is None else [Note(sentence, True)]
    return notes


def _describe_covariates(effects: Sequence[tuple[str, float]]) -> list[Note]:
    """Return a list with a note on how much the covariates narrow or widen the intervals; [] without covariates.

    `effects` contains the name of each metric and the share of its variance that the covariates remove.
    """
    if not effects:
        return []
    texts = []
    for name, share in effects:
        change = 1.0 - math.sqrt(1.0 - share)
        texts.append(
            f"the interval of {name} is {100.0 * abs(change):.0f} % {'narrower' if change >= 0.0 else 'wider'}"
        )
    return [Note(f"With covariates, {', '.join(texts)}.", False)]


def _describe_reversal(
    whole: MetricDifferences,
    parts: MetricDifferences,
    by: Sequence[str],
    names: tuple[str, str],
    settings: ComparisonSettings,
) -> str | None:
    """Return a warning if the interval over all rows and the interval of the slice average lie on opposite sides of 0.

    Otherwise, return None. The parameters are those of `describe_caveats`, for one metric.
    """
    # Skip calibration ratios, because a higher ratio is neither better nor worse (the best value is 1). Skip quantiles
    # too, because an average of quantiles has no meaning.
    if (
        whole.pair.metric.about.best == BEST_RATIO
        or whole.pair.a.buckets is not None
        or has_reason(whole.reasons).any()
    ):
        return None
    average = _average_slices(parts)
    if average is None:
        return None
    estimate, slack, known = average
    total = next(split_intervals(settings.compute_interval(whole.difference)))
    mean = settings.compute_interval(estimate)
    slack_of_whole = float(_half_bounds(whole)[0])
    up = total.low - slack_of_whole > 0.0 and mean.high + slack < 0.0
    down = total.high + slack_of_whole < 0.0 and mean.low - slack > 0.0
    if not (up or down):
        return None
    values = np.asarray(parts.difference.value)[known]
    opposite = int(np.count_nonzero(values < 0.0 if up else values > 0.0))
    always = settings.look is not None
    (first, second), (a, b) = ("higher", "lower") if up else ("lower", "higher"), names
    return (
        f"Simpson's paradox in {whole.pair.name} by {' and '.join(by)}: {a} is {first} than {b} over all rows, "
        f"{format_interval(total, False, always)}, but {second} in {opposite} of {len(values)} slices and on average over "
        f"the slices, {format_interval(mean, False, always)}. The sides probably have different shares of the slices, so "
        f"do not trust the difference over all rows."
    )


def _average_slices(parts: MetricDifferences) -> tuple[ScaledEstimate, float, NDArray[np.bool_]] | None:
    """Return the average difference over slices, a bound on its bucketing error, and a mask of slices with intervals.

    The result is None if fewer than two slices have intervals, or if these slices contain too few of the rows.
    """
    a, b, difference = parts.pair.a, parts.pair.b, parts.difference
    rows = np.asarray(a.rows + b.rows, np.float64)
    value, error = (np.asarray(x, np.float64) for x in (difference.value, difference.standard_error))
    known = ~has_reason(parts.reasons) & np.isfinite(value) & np.isfinite(error)
    if np.count_nonzero(known) < 2 or sum_shards(rows[known]) < LEAST_SHARE * sum_shards(rows):
        return None
    weights = rows[known] / sum_shards(rows[known])
    point, df = (
        float(sum_shards(weights * value[known])),
        float(np.broadcast_to(difference.df, value.shape)[known].min()),
    )
    slack = float(sum_shards(weights * _half_bounds(parts)[known]))
    if a.shards is None or b.shards is None or not a.shards.matches(b.shards):
        # Without common shards, the slices are assumed to be independent, so their variances add up.
        spread = math.sqrt(float(sum_shards(weights * weights * error[known] * error[known])))
        return ScaledEstimate(point, point, spread, df, "natural"), slack, known
    # A user may be in several slices, so the jackknife leaves a shard of users out of all slices at once.
    contrast = subtract_replicates(build_replicates(a), build_replicates(b))
    occupied = contrast.occupied[:, known]
    left_out = np.where(occupied, contrast.leave_one_out[:, known], np.asarray(contrast.point)[known])
    whole = Contrast("natural", point, sum_shards((left_out * weights).T), np.asarray(occupied.any(axis=1)), df)
    return jackknife(whole), slack, known


def _half_bounds(differences: MetricDifferences) -> NDArray[np.float64]:
    """Return the largest error that bucketing causes in each difference: half the total width of both sides' bounds."""
    a, b = differences.pair.a, differences.pair.b
    return np.asarray(0.5 * ((a.high - a.low) + (b.high - b.low)))
