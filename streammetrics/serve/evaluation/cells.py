"""What was counted of an experiment, by arm, and by arm and slice, as inference reads it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...collect.accumulator import definition_of
from ...collect.metric_like import answer_of
from ...compose.sliced import Sliced
from ...errors import InvalidInputError
from ...inference.compare import samples_of, slices_of
from ...inference.pairs import at_cells
from ...numerics.keys import sort_key
from ...reading.replicates import Sample
from .experiment import Experiment

__all__ = [
    "Samples",
    "by_arm",
    "by_slice",
    "in_phase",
    "last_phase",
    "left_out",
    "narrowed",
    "only",
    "phases",
    "positives",
    "split",
]

Samples = dict[str, list[Sample]]
"""The numbers of each arm, of its cells side by side."""


def last_phase(total: Any, experiment: Experiment) -> Any:
    """Return the key of the last phase of the experiment; None if there are no phases."""
    return max(phases(total, experiment), key=lambda key: sort_key((key,)), default=None)


def phases(total: Any, experiment: Experiment) -> set[Any]:
    """Return the keys of all phases of the experiment."""
    if experiment.phase is None:
        return set()
    at = _place(total, experiment, experiment.phase)
    return {key[at] for key in total.keys if key[at] is not None}


def in_phase(slices: Any, experiment: Experiment, phase: Any) -> Any:
    """Return what was counted in a phase; all of it, if there are none."""
    if experiment.phase is None:
        return slices
    at = _place(slices, experiment, experiment.phase)
    return slices.select(lambda key: key[at] == phase)


def _place(slices: Any, experiment: Experiment, column: str) -> int:
    """Which of the columns in front this is; raise if it is none, or the arm is not."""
    by = slices.by if isinstance(slices, Sliced) else ()
    for name in (experiment.arm, column):
        if name not in by:
            raise InvalidInputError(f"parts are not sliced by {name!r} in front, but by {', '.join(by) or 'nothing'}")
    return by.index(column)


def narrowed(slices: Any, experiment: Experiment, *columns: str) -> Any:
    """Return what was counted by arm and these slice columns alone."""
    _place(slices, experiment, experiment.arm)
    if missing := [name for name in columns if name not in slices_of(slices)]:
        raise InvalidInputError(f"parts are not sliced by {missing[0]!r}")
    names = (experiment.arm, *columns)
    front = tuple(name for name in names if name in slices.by)
    rolled = slices if front == slices.by else slices.rollup(front)
    behind = [name for name in slices_of(rolled.inner) if name not in names]
    return rolled.across(*behind) if behind else rolled


def by_arm(slices: Any, experiment: Experiment) -> Samples:
    """Return every number of each arm."""
    return split(samples_of(narrowed(slices, experiment)))


def by_slice(slices: Any, experiment: Experiment, column: str) -> Samples:
    """Return every number of each arm, by the keys of a slice column."""
    return split(samples_of(narrowed(slices, experiment, column)))


def split(samples: Sequence[Sample]) -> Samples:
    """Return samples by the first column of their keys, written as a text."""
    found: Samples = {}
    for sample in samples:
        places: dict[str, list[int]] = {}
        for i, key in enumerate(sample.keys):
            places.setdefault(str(key[0]), []).append(i)
        for arm, at in places.items():
            mine = at_cells(sample, np.array(at, np.int64))
            found.setdefault(arm, []).append(replace(mine, keys=[key[1:] for key in mine.keys]))
    return found


def only(slices: Any, metric: str) -> Any:
    """Return one metric of slices by arm; raise if there is none of this name."""
    inner = definition_of(slices).inner
    if metric not in inner.names:
        raise InvalidInputError(f"there is no metric {metric!r}; there are {', '.join(inner.names)}")
    return slices if inner.is_single else slices.only([metric])


def positives(arms: Any, metric: str) -> dict[str, int | None]:
    """Return how many positives a metric has seen in each arm, of slices by arm; None of a metric that knows none."""
    (column,) = arms.by
    found = answer_of(only(arms, metric)).records(None)
    return {str(row[column]): row["positives"] for row in found}


def left_out(arms: Any) -> dict[str, int]:
    """Return the rows left out by reason, those of the metric that left out most, of slices by arm."""
    (column,) = arms.by
    most: dict[tuple[str, str], int] = {}
    for row in answer_of(arms).records(None):
        for reason, count in row["dropped"].items():
            key = reason, str(row[column])
            most[key] = max(most.get(key, 0), count)
    found: Counter[str] = Counter()
    for (reason, _), count in most.items():
        found[reason] += count
    return dict(found)
