"""Records: the results of one metric as a dict, used as a row of a table or for `explain`."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from ..numerics.exact import to_float
from ..state.state import State
from .about import best_of
from .interval import Interval
from .reading import Reading
from .wide_bounds import wide_of

__all__ = ["badness", "build_record", "dropped_of", "explanation_of", "interval_columns"]

SATURATED = (
    "most scores that share a bucket are below 2**-33 or above 1 - 2**-33, where larger bits= have no effect: pass "
    'logits with scale="logit"'
)


def dropped_of(state: State) -> dict[str, int]:
    """Return the nonzero counts of dropped rows, keyed by reason (such as "y_score" for an invalid score)."""
    if state.dropped is None:
        return {}
    return {reason: int(n) for reason, n in zip(state.reasons, state.dropped.tolist(), strict=True) if n}


def explanation_of(metric: Any, reading: Reading) -> dict[str, Any]:
    """Return the result of `explain` for a metric: a dict with the value, bounds, settings, counts and other details."""
    low, high = reading.bounds
    return {
        "metric": metric.name,
        "value": reading.value,
        "bounds": (low, high),
        "exact": _are_equal(low, high),
        "reason": reading.reason,
        "formula": metric.about.formula,
        "settings": metric.settings,
        **{k: to_float(v) if isinstance(v, Fraction) else v for k, v in reading.state.facts().items()},
        # The hint advises passing logits rather than probabilities. Only rank-based metrics give this hint, because
        # logits would change the values of other metrics.
        **({"hint": SATURATED} if metric.about.rank_based and getattr(reading.state, "is_saturated", False) else {}),
        **reading.details,
        "dropped": dropped_of(reading.state),
    }


def build_record(metric: Any, reading: Reading, interval: Interval | None) -> dict[str, Any]:
    """Return the results of a metric as a row of a table: a dict from column names to values."""
    known, value = reading.state.facts(), reading.value
    low, high = reading.bounds
    wide = wide_of(metric, metric.name, reading)
    certain = isinstance(value, float) and ("off_grid" in known or bool(wide))
    return {
        "metric": metric.name,
        "value": value,
        # Leave the bound columns empty for values computed from counts and sums, because only values computed from
        # histograms can differ from their bounds.
        "bound_low": low if certain else None,
        "bound_high": high if certain else None,
        **interval_columns(value, interval),
        "unit": None,
        "rows": known.get("rows"),
        "weight": to_float(known["weight"]) if "weight" in known else None,
        "positives": known.get("positives"),
        "reason": wide[0].sentence if wide else reading.reason,
        "wide": wide[0] if wide else None,
        "dropped": dropped_of(reading.state),
    }


def interval_columns(value: Any, interval: Interval | None) -> dict[str, Any]:
    """Return the columns of a table row for the confidence interval, or for the reason why there is none."""
    if interval is None or not isinstance(value, float):
        return {"interval_low": math.nan, "interval_high": math.nan, "interval_reason": None}
    return {"interval_low": interval.low, "interval_high": interval.high, "interval_reason": interval.reason}


def _are_equal(low: Any, high: Any) -> bool:
    """Return whether two values are equal; in arrays, NaN equals NaN. A value can be a tuple of arrays."""
    if isinstance(low, tuple):
        return all(_are_equal(a, b) for a, b in zip(low, high, strict=True))
    return bool(np.array_equal(low, high, equal_nan=isinstance(low, np.ndarray) and low.dtype.kind == "f"))


def badness(metric: Any, value: Any) -> float:
    """Return a number that is larger for worse values of a metric, for sorting.

    The result is NaN if the value is undefined, or if neither direction is better.
    """
    best = best_of(metric)
    if best is None or not isinstance(value, float):
        return math.nan
    if isinstance(best, str):
        return value if best == "low" else -value
    ratio = value / best
    return max(ratio, 1 / ratio) if ratio > 0 else math.nan if ratio != ratio else math.inf
