"""Adding up parts: what all of them have of their metrics, in whatever order they came."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..collect.holder import Holder, made
from ..collect.parted import Parted
from ..collect.saved import merge
from ..state.frame import Frame, merge_groups

__all__ = ["added_up", "added_up_by"]


def added_up(parts: Iterable[Holder | bytes]) -> Any:
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
        alike.setdefault(None if isinstance(part, Holder) else Frame(part).kind.about, []).append(part)
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
            found.setdefault(group, []).append(made(about, states))
    return {group: found[group][0] if len(found[group]) == 1 else _sum(found[group]) for group in sorted(found)}


def _sum(holders: Sequence[Any]) -> Any:
    first, *others = _alike(holders)
    return first.copy().merge(_together(others)) if others else first.copy()


def _alike(holders: Sequence[Any]) -> Sequence[Any]:
    """Holders of the metrics that all of them have with the same settings, in one order; as they are if there are none."""
    first, *others = holders
    if not all(isinstance(one, Parted) for one in holders):
        return holders
    if all(one.names == first.names and not first.differences(one) for one in others):
        return holders
    shared = sorted(set.intersection(*({*one.names} for one in holders)))
    if len(shared) > 1:  # an experiment's own are alike: who checks parts sees to it
        shared = [
            name for name in shared if not any(first.ordered([name]).differences(one.ordered([name])) for one in others)
        ] or shared
    return [one.ordered(shared) for one in holders]


def _together(holders: Sequence[Any]) -> Any:
    """The sum of many in one fold, which takes as long as two or three merges."""
    first, *others = holders
    if not others:
        return first
    whole = first.blank()
    columns = zip(first.states, *(first.fitting(one).states for one in others), strict=True)
    whole.take_states([mine.merge(*theirs) for mine, *theirs in columns])
    return whole
