"""Merge the parts of an experiment in any order. A metric that is missing from some parts is dropped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ...collect.accumulator import accumulator_of, definition_of
from ...collect.metric_container import MetricContainer
from ...collect.metric_like import MetricLike, object_of_header, states_of, with_states
from ...format.frame import Frame, merge_frames, merge_groups

__all__ = ["merge_parts", "merge_parts_by_group"]


def merge_parts(parts: Iterable[MetricLike | bytes]) -> Any:
    """Merge parts, and return the metrics that all of them contain with the same settings. The parts do not change.

    The order of the parts does not matter. If their metrics differ or are in a different order, the metrics of the
    result are sorted by name.

    Raises
    ------
    IncompatibleStateError
        Two parts have no metric in common; the message names each difference.

    Examples
    --------
    >>> import streammetrics as sm
    >>> old = sm.MetricCollection(sm.CTR()).update(y_true=[0, 1])
    >>> new = sm.MetricCollection(sm.LogLoss(), sm.CTR()).update([1, 1], [0.5, 0.5])
    >>> merge_parts([old, new.to_bytes()]).compute()
    {'ctr': 0.75}
    """
    by_header: dict[Any, list[Any]] = {}
    for part in parts:
        by_header.setdefault(None if isinstance(part, MetricLike) else Frame(part).kind.about, []).append(part)
    objects = by_header.pop(None, [])
    return _merge_objects([*objects, *(object_of_header(*merge_frames(one)) for one in by_header.values())])


def merge_parts_by_group(groups: Sequence[int], parts: Sequence[bytes]) -> dict[int, Any]:
    """Merge the parts of each group, and return the merged metrics by group.

    `groups` contains the group of each part, such as its hour. Parts with the same header (the description of their
    metrics and settings) are read together.

    Examples
    --------
    >>> import streammetrics as sm
    >>> parts = [sm.CTR().update(y_true=[0, 1]).to_bytes(), sm.CTR().update(y_true=[1]).to_bytes()]
    >>> {hour: one.compute() for hour, one in merge_parts_by_group([9, 8], parts).items()}
    {8: 1.0, 9: 0.5}
    """
    by_header: dict[str, list[tuple[int, Frame]]] = {}
    for group, part in zip(groups, parts, strict=True):
        frame = Frame(part)
        by_header.setdefault(frame.kind.about, []).append((group, frame))
    merged_parts: dict[int, list[Any]] = {}
    for frames in by_header.values():
        about, merged = merge_groups(frames)
        for group, states in merged.items():
            merged_parts.setdefault(group, []).append(object_of_header(about, states))
    return {
        group: merged_parts[group][0] if len(merged_parts[group]) == 1 else _merge_objects(merged_parts[group])
        for group in sorted(merged_parts)
    }


def _merge_objects(parts: Sequence[Any]) -> Any:
    first, *others = _select_common_metrics(parts)
    return first.copy().merge(_merge_states(others)) if others else first.copy()


def _select_common_metrics(parts: Sequence[Any]) -> Sequence[Any]:
    """Return all parts, reduced to the metrics that they have in common, in the same order in each part.

    Parts that are not collections of named metrics are returned unchanged.
    """
    first, *others = parts
    if not all(isinstance(one, MetricContainer) for one in parts):
        return parts
    if all(one.names == first.names and not _describe_differences(first, one) for one in others):
        return parts
    shared = sorted(set.intersection(*({*one.names} for one in parts)))
    # The settings of a single shared metric are not compared here, because `PartChecker` has already refused parts with
    # different settings.
    if len(shared) > 1:
        shared = [
            name
            for name in shared
            if not any(_describe_differences(first.ordered([name]), one.ordered([name])) for one in others)
        ] or shared
    return [one.ordered(shared) for one in parts]


def _describe_differences(one: Any, other: Any) -> list[str]:
    """Return a sentence for each difference between the settings of two metrics or collections."""
    differences: list[str] = definition_of(one).differences(definition_of(other))
    return differences


def _merge_states(parts: Sequence[Any]) -> Any:
    """Merge any number of parts with the same metrics.

    One merge of all parts is much faster than one merge after another.
    """
    first, *others = parts
    if not others:
        return first
    fitting = [accumulator_of(first).align(accumulator_of(one)).states for one in others]
    return with_states(first, [mine.merge(*theirs) for mine, *theirs in zip(states_of(first), *fitting, strict=True)])
