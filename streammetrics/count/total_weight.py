"""The limit on the total weight of all rows, beyond which sums of weights could overflow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from ..batch.prepared_batch import PreparedRows
from ..errors import CounterOverflowError
from ..state.state import State
from .drafts import LiveCounters

__all__ = ["check_mass", "collect_weights", "max_weight", "overflow_error"]

Array = NDArray[Any]


def collect_weights(prepared: Sequence[PreparedRows]) -> list[Array]:
    """Return each distinct weight column once, even if several states read it.

    A column that is a matrix, with a weight for each label, is replaced by the largest weight of each row.
    """
    columns = [r.columns["sample_weight"] for r in prepared if "sample_weight" in r.columns]
    distinct = {id(c): c.values for c in columns}.values()
    return [w if w.ndim == 1 else w.max(axis=1, initial=0.0) for w in distinct]


def check_mass(live: LiveCounters, prepared: Sequence[PreparedRows]) -> None:
    """Raise CounterOverflowError if these rows would increase the total weight of all rows to 2**42 or more."""
    # Because of rounding, the sum may be slightly too small. To be safe, compare a slightly larger value with the
    # limit.
    for w in collect_weights(prepared):
        if len(w) and live.mass[0] + float(w.sum()) * 1.000001 >= 2.0**42:
            raise overflow_error()


def overflow_error() -> CounterOverflowError:
    """Return the error to raise if the total weight would exceed the limit."""
    return CounterOverflowError("the total weight would exceed 2**42; start a new state, or scale the weights down")


def max_weight(states: Sequence[State]) -> float:
    """Return an upper bound on the total weight of any of these states."""
    return max((s.weight_bound() for s in states), default=0.0)
