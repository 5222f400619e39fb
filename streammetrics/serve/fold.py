"""Adding up parts: what all of them have of their metrics, in whatever order they came."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from typing import Any

from ..collect.holder import Holder
from ..collect.parted import Parted
from ..collect.saved import merge
from ..state.frame import Frame

__all__ = ["added_up"]


def added_up(parts: Iterable[Holder | bytes]) -> Any:
    """Return the sum of parts, of the metrics that all of them have; they stay as they are.

    The order does not matter, nor that of metrics: where it differs, that of their names is taken.

    Raises
    ------
    IncompatibleStateError
        Two parts answer different questions; the message names each difference.

    Examples
    --------
    >>> import streammetrics as sm
    >>> old = sm.MetricCollection(sm.CTR()).update(y_true=[0, 1])
    >>> new = sm.MetricCollection(sm.LogLoss(), sm.CTR()).update([1, 1], [0.5, 0.5])
    >>> added_up([old, new.to_bytes()]).compute()
    {'ctr': 0.75}
    """
    alike: dict[Any, list[Any]] = {}
    for part in parts:
        alike.setdefault(None if isinstance(part, Holder) else Frame(part).kind.about, []).append(part)
    lone = alike.pop(None, [])
    return reduce(_both, [*lone, *map(merge, alike.values())]).copy()


def _both(a: Any, b: Any) -> Any:
    if isinstance(a, Parted) and isinstance(b, Parted) and a.names != b.names:
        shared = sorted({*a.names} & {*b.names})
        a, b = a.ordered(shared), b.ordered(shared)
    return merge([a, b])
