"""Find the time at which an evaluation changes even if no new part arrives."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ..calendar_days import add_days
from ..part_keys import HOUR
from .evaluate import DEFAULT_DELAY, SILENT_SECONDS
from .evaluation import Evaluation
from .experiment import Experiment

__all__ = ["find_deadline"]

SLACK = 1.0
"""Seconds to wait after a deadline, so that it has certainly passed even if times are rounded."""


def find_deadline(experiment: Experiment, evaluation: Evaluation) -> float | None:
    """Return the next time, in seconds since 1970, at which the evaluation must be recomputed; None if there is none.

    At this time, the experiment ends, a new day of the experiment begins, or the outcomes of an hour become complete.
    It can also be the time at which a source becomes late or silent, or another part of a late source becomes overdue.
    """
    later = [at for at in _list_deadlines(experiment, evaluation) if at > evaluation.at]
    return min(later) + SLACK if later else None


def _list_deadlines(experiment: Experiment, evaluation: Evaluation) -> Iterator[float]:
    now = evaluation.at / HOUR
    end = math.inf if experiment.end is None else experiment.end
    if experiment.end is not None:
        yield experiment.end * HOUR
        yield (experiment.end + experiment.mature_after) * HOUR
    if evaluation.state != "ended":
        yield add_days(experiment.start, max(0, math.floor(evaluation.day) + 1), experiment.timezone) * HOUR
    final_before = math.floor(now - experiment.mature_after)
    if evaluation.hours is not None and experiment.mature_after and final_before <= evaluation.hours[1]:
        yield (max(final_before, evaluation.hours[0]) + 1 + experiment.mature_after) * HOUR
    for source in evaluation.sources:
        delay = experiment.sources.get(source.source, DEFAULT_DELAY)
        due = math.floor(now - delay)
        awaited = experiment.start if source.counted_to is None else max(source.counted_to + 1, experiment.start)
        if awaited < end:
            yield (awaited + 1 + delay) * HOUR
            yield (awaited + 1 + delay) * HOUR + SILENT_SECONDS
        # While a source is behind, one more of its parts becomes overdue every hour. The evaluation must show this.
        if source.behind and due < end:
            yield (due + 1 + delay) * HOUR
