"""Whether the data can be trusted: which sources are fresh, late or silent, and how far scores of arms have drifted."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from ..errors import InvalidInputError
from ..inference.drift import population_stability_index
from .card import number
from .cells import only
from .evaluation import Drift, Source
from .experiment import Experiment
from .keys import HOUR, Key, hour_text

__all__ = ["Entry", "counted_hours", "drift_of", "sources_of"]

COUNTED = ("current", "folded", "forgotten")
UNLISTED = 1.0
"""Hours after its end at which an hour is expected of a source that the definition does not name."""
SILENT = 3 * HOUR
LISTED = 24


class Entry(Protocol):
    """A part as the ledger has it; its state is "current", "folded", "forgotten", "conflict" or "refused"."""

    @property
    def key(self) -> Key:
        """What it is called."""

    @property
    def received(self) -> float:
        """When it came."""

    @property
    def state(self) -> str:
        """What became of it."""


def counted_hours(ledger: Iterable[Entry]) -> tuple[int, int] | None:
    """Return the first and the last hour of the parts that count; None without parts."""
    hours = [entry.key.hour for entry in ledger if entry.state in COUNTED]
    return (min(hours), max(hours)) if hours else None


def sources_of(experiment: Experiment, ledger: Sequence[Entry], now: float) -> list[Source]:
    """Return how every source does that is expected, or has posted, in the order of their names.

    An hour is due its source's delay after its end. A source is late from then on, silent three hours later.
    """
    mine: dict[str, list[Entry]] = {name: [] for name in experiment.sources}
    for entry in ledger:
        mine.setdefault(entry.key.source, []).append(entry)
    return [_source(experiment, name, mine[name], now) for name in sorted(mine)]


def _source(experiment: Experiment, name: str, entries: Sequence[Entry], now: float) -> Source:
    delay = experiment.sources.get(name, UNLISTED)
    parts = [entry for entry in entries if entry.state in COUNTED]
    there = {entry.key.hour for entry in parts}
    first = experiment.start if name in experiment.sources else min(there, default=experiment.start)
    due = math.floor(now / HOUR - delay)  # hours before it have to be there
    if experiment.end is not None:
        due = min(due, experiment.end)
    missing = [hour for hour in range(first, due) if hour not in there]
    counted_to = max(there, default=None)
    awaited = first if counted_to is None else max(counted_to + 1, first)
    behind = max(0.0, now - (awaited + 1 + delay) * HOUR) if awaited < due else 0.0
    return Source(
        name,
        counted_to,
        behind,
        len(parts),
        sum(entry.received > (entry.key.hour + 1 + delay) * HOUR for entry in parts),
        [hour_text(hour) for hour in missing[-LISTED:]],
        sum(entry.state == "conflict" for entry in entries),
        None,
        {},
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
