"""Reading an experiment: its total, its windows, what was posted and shown before; what was read is remembered."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, Protocol

from ..store import Store
from ..store.part_keys import HOUR
from ..store.parts import DAY
from .evaluate import evaluate
from .evaluation import Evaluation, ShownLook
from .experiment import Experiment, changes
from .look_history import looks_of_json
from .part_index import Posted
from .series import Series
from .totals import Totals
from .windows import asked

__all__ = ["ExperimentReader", "ExperimentReading", "ExperimentSource"]


class ExperimentReading(NamedTuple):
    """What was read of an experiment, and how it was defined then."""

    evaluation: Evaluation
    experiment: Experiment | None = None


class ExperimentSource(Protocol):
    """Who reads experiments, here or in another process."""

    def start(self) -> None:
        """Be there before the first is to be read."""

    def read(self, experiment: str, now: float) -> ExperimentReading:
        """Read one."""

    def tidy(self, experiment: str, now: float) -> None:
        """Fold of one what can no longer be corrected; forget it, if it was kept for as long as was said."""

    def total(self, experiment: str) -> bytes | None:
        """All that was counted, as a frame; None where there is nothing yet."""

    def hurry(self, seconds: float) -> None:
        """Be done in so many seconds, as everything is about to end."""

    def close(self) -> None:
        """Keep what is expensive to make again."""


@dataclass
class _Known:
    """What is remembered of an experiment."""

    series: Series = field(default_factory=Series)
    at: tuple[int, int] = (0, 0)
    posted: Posted = field(default_factory=Posted)
    looked: int = 0
    looks: list[ShownLook] = field(default_factory=list)


class ExperimentReader:
    """Reads experiments of a store: what has come since the last time, and no more; it has no lock.

    Parameters
    ----------
    store : Store
        Where parts, definitions and looks are.

    Examples
    --------
    >>> import os, tempfile
    >>> from streammetrics.serve.simulated import Simulation
    >>> from streammetrics.serve.store import open_store
    >>> definition = json.dumps(Simulation().definition())
    >>> with tempfile.TemporaryDirectory() as folder, open_store(os.path.join(folder, "a.db")) as store:
    ...     version = store.define("checkout", definition, by="ann", at=0.0)
    ...     ExperimentReader(store).read("checkout", now=0.0).evaluation.state
    'no data'
    """

    def __init__(self, store: Store) -> None:
        self.store, self.totals = store, Totals(store)
        self._known: dict[str, _Known] = {}

    def start(self) -> None:
        """Nothing: it is where it is asked."""

    def read(self, experiment: str, now: float) -> ExperimentReading:
        """Read an experiment."""
        return asked(partial(self._read, experiment, now))

    def _read(self, experiment: str, now: float) -> ExperimentReading:
        versions = self.store.history(experiment)
        defined = [Experiment.of_dict(json.loads(version.text)) for version in versions]
        one = defined[-1]
        later = [i for i in range(1, len(defined)) if versions[i].at >= one.start * HOUR]
        known = self._known.setdefault(experiment, _Known())
        self._list(experiment, known)  # first: what it lists is in the total, or in a later one
        total, hours, days = self.totals.whole(experiment)
        found = evaluate(
            one,
            total,
            version=versions[-1].version,
            now=now,
            hours=hours,
            days=days,
            posted=known.posted,
            looks=known.looks,
            changes=[said for i in later for said in changes(defined[i - 1], defined[i])],
            shared_at=[versions[i].at for i in later if defined[i - 1].arms != defined[i].arms],
            series=known.series,
        )
        if found.state == "ended":
            del self._known[experiment]  # it is read seldom from now on, and there will be many
        return ExperimentReading(found, one)

    def _list(self, experiment: str, known: _Known) -> None:
        """Add what was posted and shown since the last time."""
        at, entries = self.store.posted(experiment, known.at[0])
        if at[1] != known.at[1]:  # what became of older parts is another now
            known.posted, (at, entries) = Posted(), self.store.posted(experiment, 0)
        known.posted.add(entries)
        known.at = at
        for number, _, text in self.store.looks_since(experiment, known.looked):
            known.looked = number
            known.looks += looks_of_json(text)

    def tidy(self, experiment: str, now: float) -> None:
        """Fold what can no longer be corrected; forget an experiment that was to be kept so long after its end."""
        one = Experiment.of_dict(json.loads(self.store.history(experiment)[-1].text))
        self.totals.compact(experiment, now=now, correct_within_days=one.correct_within_days)
        if one.retention_days is not None and one.end is not None and now / HOUR >= one.end + one.retention_days * DAY:
            self.store.forget(experiment, int(now // HOUR) + 2 * DAY)

    def total(self, experiment: str) -> bytes | None:
        """All that was counted, as a frame."""
        held = self.totals.total(experiment)
        return None if held is None else bytes(held.to_bytes())

    def hurry(self, seconds: float) -> None:
        """Nothing: whoever asks waits for it."""

    def close(self) -> None:
        """Keep all totals, so that the next start need not add them up."""
        self.totals.close()
