"""Adding up parts: what all of them have of their metrics, in whatever order they came."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ...collect.accumulator import accumulator_of, definition_of
from ...collect.metric_container import MetricContainer
from ...collect.metric_like import MetricLike, object_of_header, states_of, with_states
from ...collect.serialization import merge
from ...format.frame import Frame, merge_groups

__all__ = ["added_up", "added_up_by"]


def added_up(parts: Iterable[MetricLike | bytes]) -> Any:
    """Return the sum of parts, of the metrics that all of them have with the same settings; they stay as they are.

    The order does not matter, nor that of metrics: where it differs, that of their names is taken.

    Raises
    ------
    IncompatibleStateError
        Two parts have no metric alike; the message names each difference.

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
        alike.setdefault(None if isinstance(part, MetricLike) else Frame(part).kind.about, []).append(part)
    lone = alike.pop(None, [])
    return _sum([*lone, *map(merge, alike.values())])


def added_up_by(groups: Sequence[int], parts: Sequence[bytes]) -> dict[int, Any]:
    """Return the sum of the parts of each group: of frames of one kind all are read in one pass.

    Examples
    --------
    >>> import streammetrics as sm
    >>> parts = [sm.CTR().update(y_true=[0, 1]).to_bytes(), sm.CTR().update(y_true=[1]).to_bytes()]
    >>> {hour: one.compute() for hour, one in added_up_by([9, 8], parts).items()}
    {8: 1.0, 9: 0.5}
    """
    alike: dict[str, list[tuple[int, Frame]]] = {}
    for group, part in zip(groups, parts, strict=True):
        frame = Frame(part)
        alike.setdefault(frame.kind.about, []).append((group, frame))
    found: dict[int, list[Any]] = {}
    for some in alike.values():
        about, merged = merge_groups(some)
        for group, states in merged.items():
            found.setdefault(group, []).append(object_of_header(about, states))
    return {group: found[group][0] if len(found[group]) == 1 else _sum(found[group]) for group in sorted(found)}


def _sum(parts: Sequence[Any]) -> Any:
    first, *others = _alike(parts)
    return first.copy().merge(_together(others)) if others else first.copy()


def _alike(parts: Sequence[Any]) -> Sequence[Any]:
    """Return the parts with the metrics that all have in common, in one order; unchanged if there are none."""
    first, *others = parts
    if not all(isinstance(one, MetricContainer) for one in parts):
        return parts
    if all(one.names == first.names and not _differences(first, one) for one in others):
        return parts
    shared = sorted(set.intersection(*({*one.names} for one in parts)))
    # A single shared metric is not compared: `Checker` has ensured that all parts count it with the same settings.
    if len(shared) > 1:
        shared = [
            name
            for name in shared
            if not any(_differences(first.ordered([name]), one.ordered([name])) for one in others)
        ] or shared
    return [one.ordered(shared) for one in parts]


def _differences(one: Any, other: Any) -> list[str]:
    """Return in words how the settings of two objects differ."""
    found: list[str] = definition_of(one).differences(definition_of(other))
    return found


def _together(parts: Sequence[Any]) -> Any:
    """Return the sum of many parts; all states are merged at once, which takes as long as two or three merges."""
    first, *others = parts
    if not others:
        return first
    fitting = [accumulator_of(first).fitting(accumulator_of(one)).states for one in others]
    return with_states(first, [mine.merge(*theirs) for mine, *theirs in zip(states_of(first), *fitting, strict=True)])
