"""Records: the rows of tables, and the explanation, of the reading of one metric."""

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

__all__ = ["badness", "chance", "dropped_of", "explanation_of", "record"]

SATURATED = (
    "most scores that share a bucket are below 2**-33 or above 1 - 2**-33, where more bits= change nothing: give logits, "
    'with scale="logit"'
)


def dropped_of(state: State) -> dict[str, int]:
    """Return how many rows were left out, by reason, without the zeros."""
    if state.dropped is None:
        return {}
    return {reason: int(n) for reason, n in zip(state.reasons, state.dropped.tolist(), strict=True) if n}


def explanation_of(metric: Any, found: Reading) -> dict[str, Any]:
    """Return a metric's value with everything behind it."""
    low, high = found.bounds
    return {
        "metric": metric.name,
        "value": found.value,
        "bounds": (low, high),
        "exact": _equal(low, high),
        "reason": found.reason,
        "formula": metric.about.formula,
        "settings": metric.settings,
        **{k: to_float(v) if isinstance(v, Fraction) else v for k, v in found.state.facts().items()},
        # Of metrics that read probabilities as they are, logits would be other numbers.
        **({"hint": SATURATED} if metric.about.rank_based and getattr(found.state, "saturated", False) else {}),
        **found.details,
        "dropped": dropped_of(found.state),
    }


def record(metric: Any, found: Reading, interval: Interval | None) -> dict[str, Any]:
    """A row for a table, with the statistical interval that was found."""
    known, value = found.state.facts(), found.value
    low, high = found.bounds
    wide = wide_of(metric, metric.name, found)
    certain = isinstance(value, float) and ("off_grid" in known or bool(wide))
    return {
        "metric": metric.name,
        "value": value,
        # only a histogram has something to certify; counts and sums are exact as they stand
        "bound_low": low if certain else None,
        "bound_high": high if certain else None,
        **chance(value, interval),
        "unit": None,
        "rows": known.get("rows"),
        "weight": to_float(known["weight"]) if "weight" in known else None,
        "positives": known.get("positives"),
        "reason": wide[0].sentence if wide else found.reason,
        "wide": wide[0] if wide else None,
        "dropped": dropped_of(found.state),
    }


def chance(value: Any, found: Interval | None) -> dict[str, Any]:
    """The statistical interval as a table has it, and the reason where there is none."""
    if found is None or not isinstance(value, float):
        return {"interval_low": math.nan, "interval_high": math.nan, "interval_reason": None}
    return {"interval_low": found.low, "interval_high": found.high, "interval_reason": found.reason}


def _equal(low: Any, high: Any) -> bool:
    """Whether two values are equal, where a value may be several arrays."""
    if isinstance(low, tuple):
        return all(_equal(a, b) for a, b in zip(low, high, strict=True))
    return bool(np.array_equal(low, high, equal_nan=isinstance(low, np.ndarray) and low.dtype.kind == "f"))


def badness(metric: Any, value: Any) -> float:
    """Return how bad a value is, to sort by; NaN if it is undefined, or nothing says which values are better."""
    best = best_of(metric)
    if best is None or not isinstance(value, float):
        return math.nan
    if isinstance(best, str):
        return value if best == "low" else -value
    ratio = value / best
    return max(ratio, 1 / ratio) if ratio > 0 else math.nan if ratio != ratio else math.inf
