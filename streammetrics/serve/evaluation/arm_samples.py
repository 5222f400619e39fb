"""Select metrics, phases and slices from the total of an experiment, and collect the samples for inference.

A sample contains the values of one metric for all slices of an arm. For standard errors, it also contains the values of
each shard (a group of units, such as users).
"""

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
from ...inference.compare import collect_sides, collect_slice_columns
from ...inference.pairs import select_cells
from ...numerics.slice_keys import sort_key
from ...reading.replicates import Sample
from .experiment import Experiment

__all__ = [
    "ArmSamples",
    "collect_arm_samples",
    "collect_slice_samples",
    "count_dropped_rows",
    "count_positives",
    "find_last_phase",
    "find_phases",
    "roll_up",
    "select_metric",
    "select_phase",
    "split_by_arm",
]

ArmSamples = dict[str, list[Sample]]
"""The samples of each arm. A sample contains the values of one metric for all slices (cells) of the arm."""


def find_last_phase(total: Any, experiment: Experiment) -> Any:
    """Return the key of the last phase, or None if the experiment has no phases.

    A new phase begins whenever the planned shares of the arms, or the rules for the verdict, change.
    """
    return max(find_phases(total, experiment), key=lambda key: sort_key((key,)), default=None)


def find_phases(total: Any, experiment: Experiment) -> set[Any]:
    """Return the keys of all phases with rows; the set is empty if the experiment has no phases."""
    if experiment.phase is None:
        return set()
    at = _find_column(total, experiment, experiment.phase)
    return {key[at] for key in total.keys if key[at] is not None}


def select_phase(slices: Any, experiment: Experiment, phase: Any) -> Any:
    """Return the slices of a phase, or all slices if the experiment has no phases."""
    if experiment.phase is None:
        return slices
    at = _find_column(slices, experiment, experiment.phase)
    return slices.select(lambda key: key[at] == phase)


def _find_column(slices: Any, experiment: Experiment, column: str) -> int:
    """Return the index of a column among the slice columns of the outer `Sliced` object.

    Raise InvalidInputError if this column or the arm column is missing.
    """
    by = slices.by if isinstance(slices, Sliced) else ()
    for name in (experiment.arm, column):
        if name not in by:
            raise InvalidInputError(
                f"the parts are not sliced by {name!r} at the outer level, but by {', '.join(by) or 'nothing'}; "
                f"add the column to by= of the outer sm.Sliced"
            )
    return by.index(column)


def roll_up(slices: Any, experiment: Experiment, *columns: str) -> Any:
    """Return the slices by arm and the given columns, merged over all other slice columns."""
    _find_column(slices, experiment, experiment.arm)
    if missing := [name for name in columns if name not in collect_slice_columns(slices)]:
        raise InvalidInputError(f"the parts are not sliced by {missing[0]!r}; add the column to by=")
    names = (experiment.arm, *columns)
    outer = tuple(name for name in names if name in slices.by)
    slices_by_names = slices if outer == slices.by else slices.rollup(outer)
    other_columns = [name for name in collect_slice_columns(slices_by_names.inner) if name not in names]
    return slices_by_names.across(*other_columns) if other_columns else slices_by_names


def collect_arm_samples(slices: Any, experiment: Experiment) -> ArmSamples:
    """Return one `Sample` for each arm and metric, over all rows of the arm."""
    return split_by_arm(*collect_sides(roll_up(slices, experiment)))


def collect_slice_samples(slices: Any, experiment: Experiment, column: str) -> ArmSamples:
    """Return one `Sample` for each arm and metric, with one value for each key of a slice column."""
    return split_by_arm(*collect_sides(roll_up(slices, experiment, column)))


def split_by_arm(samples: Sequence[Sample]) -> ArmSamples:
    """Split each sample by arm, and return the samples of each arm.

    The first element of each key of a sample is the arm. It is removed from the returned keys, which identify slices.
    """
    result: ArmSamples = {}
    for sample in samples:
        positions: dict[str, list[int]] = {}
        for i, key in enumerate(sample.keys):
            positions.setdefault(str(key[0]), []).append(i)
        for arm, at in positions.items():
            arm_sample = select_cells(sample, np.array(at, np.int64))
            result.setdefault(arm, []).append(replace(arm_sample, keys=[key[1:] for key in arm_sample.keys]))
    return result


def select_metric(slices: Any, metric: str) -> Any:
    """Return the slices with only the given metric; raise InvalidInputError if there is no such metric."""
    inner = definition_of(slices).inner
    if metric not in inner.names:
        raise InvalidInputError(f"there is no metric {metric!r}; the metrics are {', '.join(inner.names)}")
    return slices if inner.is_single else slices.only([metric])


def count_positives(arms: Any, metric: str) -> dict[str, int | None]:
    """Return each arm's number of positive labels as counted by a metric; None if the metric does not count them."""
    (column,) = arms.by
    records = answer_of(select_metric(arms, metric)).records(None)
    return {str(row[column]): row["positives"] for row in records}


def count_dropped_rows(arms: Any) -> dict[str, int]:
    """Return the number of dropped rows by reason, summed over the arms.

    If the metrics of an arm dropped different numbers of rows, the largest number is used.
    """
    (column,) = arms.by
    largest: dict[tuple[str, str], int] = {}
    for row in answer_of(arms).records(None):
        for reason, count in row["dropped"].items():
            key = reason, str(row[column])
            largest[key] = max(largest.get(key, 0), count)
    dropped: Counter[str] = Counter()
    for (reason, _), count in largest.items():
        dropped[reason] += count
    return dict(dropped)
