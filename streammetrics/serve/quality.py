"""Whether the data can be trusted: which sources are fresh, late or silent, and how far scores of arms have drifted."""

from __future__ import annotations

import math
from itertools import islice
from typing import Any

from ..errors import InvalidInputError
from ..inference.drift import population_stability_index
from .card import number
from .cells import only
from .evaluation import Drift, Source
from .experiment import Experiment
from .keys import HOUR, hour_text
from .posted import OfSource, Posted

__all__ = ["drift_of", "sources_of"]

UNLISTED = 1.0
"""Hours after its end at which an hour is expected of a source that the definition does not name."""
SILENT = 3 * HOUR
LISTED = 24


def sources_of(experiment: Experiment, posted: Posted, now: float) -> list[Source]:
    """Return how every source does that is expected, or has posted, in the order of their names.

    An hour is due its source's delay after its end. A source is late from then on, silent three hours later.
    """
    names = sorted({*experiment.sources, *posted.sources})
    return [_source(experiment, name, posted.sources.get(name, OfSource()), now) for name in names]


def _source(experiment: Experiment, name: str, mine: OfSource, now: float) -> Source:
    delay = experiment.sources.get(name, UNLISTED)
    span = mine.hours.span
    first = experiment.start if name in experiment.sources or span is None else span[0]
    due = math.floor(now / HOUR - delay)  # hours before it have to be there
    if experiment.end is not None:
        due = min(due, experiment.end)
    awaited = first if span is None else max(span[1] + 1, first)
    behind = max(0.0, now - (awaited + 1 + delay) * HOUR) if awaited < due else 0.0
    return Source(
        name,
        None if span is None else span[1],
        behind,
        mine.parts,
        mine.later_than(delay),
        [hour_text(hour) for hour in islice(mine.hours.lacking(first, due), LISTED)][::-1],
        mine.conflicts,
        mine.rows,
        dict(mine.dropped),
        "fresh" if not behind else "late" if behind < SILENT else "silent",
    )


def drift_of(experiment: Experiment, arms: Any) -> list[Drift]:
    """Return how far the scores of each treatment are from those of the control, of slices by arm.

    Metrics of the same scores are told once, by the first of them.
    """
    keys = {str(key): key for key in arms}
    if experiment.control not in keys:
        return []
    found: dict[Any, Drift] = {}
    for metric in experiment.metrics:
        try:
            scores = only(arms, metric)
            reference = scores[keys[experiment.control]]
            for arm in experiment.treatments:
                if arm in keys:
                    one = population_stability_index(scores[keys[arm]], reference)
                    same = arm, one.shares, one.reference, one.edges
                    found.setdefault(same, Drift(metric, arm, number(one.value), one.word))
        except InvalidInputError:  # no metric of scores
            continue
    return list(found.values())
