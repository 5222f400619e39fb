"""Evaluate an experiment of a store, reading only what is new since the last time."""

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
from .experiment import Experiment, describe_changes
from .look_history import decode_looks
from .part_index import PartIndex
from .totals import Totals
from .window_series import WindowSeries
from .windows import retry_when_moved

__all__ = ["ExperimentReader", "ExperimentReading", "ExperimentSource"]


class ExperimentReading(NamedTuple):
    """An evaluation, and the definition of the experiment at that time."""

    evaluation: Evaluation
    experiment: Experiment | None = None


class ExperimentSource(Protocol):
    """An object that evaluates experiments, in this process or another one."""

    def start(self) -> None:
        """Get ready before the first call of `read`, for example by starting a process."""

    def read(self, experiment: str, now: float) -> ExperimentReading:
        """Return the evaluation and the definition of an experiment."""

    def compact(self, experiment: str, now: float) -> None:
        """Merge the days that can no longer be corrected; delete the data of an experiment after its retention time."""

    def total(self, experiment: str) -> bytes | None:
        """Return the total of an experiment as bytes (a serialized frame); None without parts."""

    def end_after(self, seconds: float) -> None:
        """Stop after this many seconds, even during a call, because the server stops."""

    def close(self) -> None:
        """Save the totals, which are expensive to compute again."""


@dataclass
class _ReaderCache:
    """The cached data of one experiment: everything that was read from the store so far."""

    series: WindowSeries = field(default_factory=WindowSeries)
    position: tuple[int, int] = (0, 0)
    index: PartIndex = field(default_factory=PartIndex)
    last_look: int = 0
    looks: list[ShownLook] = field(default_factory=list)


class ExperimentReader:
    """Evaluates experiments of a store, reading only the parts since the last time. It is not thread-safe.

    Parameters
    ----------
    store : Store
        The store of parts, definitions and looks.

    Examples
    --------
    >>> import os, tempfile
    >>> from streammetrics.serve.experiment_simulation import Simulation
    >>> from streammetrics.serve.store import open_store
    >>> definition = json.dumps(Simulation().definition())
    >>> with tempfile.TemporaryDirectory() as folder, open_store(os.path.join(folder, "a.db")) as store:
    ...     version = store.define("checkout", definition, by="ann", at=0.0)
    ...     ExperimentReader(store).read("checkout", now=0.0).evaluation.state
    'no data'
    """

    def __init__(self, store: Store) -> None:
        self.store, self.totals = store, Totals(store)
        self._caches: dict[str, _ReaderCache] = {}

    def start(self) -> None:
        """Do nothing: there is no process to start."""

    def read(self, experiment: str, now: float) -> ExperimentReading:
        """Return the evaluation and the definition of an experiment."""
        return retry_when_moved(partial(self._read, experiment, now))

    def _read(self, experiment: str, now: float) -> ExperimentReading:
        versions = self.store.history(experiment)
        definitions = [Experiment.from_dict(json.loads(version.text)) for version in versions]
        experiment_definition = definitions[-1]
        changed_versions = [
            i for i in range(1, len(definitions)) if versions[i].at >= experiment_definition.start * HOUR
        ]
        cache = self._caches.setdefault(experiment, _ReaderCache())
        # The index is read before the total, so every part in the index is also in the total, or in a later one.
        self._update_cache(experiment, cache)
        total, hours, days = self.totals.load_snapshot(experiment)
        evaluation = evaluate(
            experiment_definition,
            total,
            version=versions[-1].version,
            now=now,
            hours=hours,
            days=days,
            index=cache.index,
            looks=cache.looks,
            changes=[
                sentence for i in changed_versions for sentence in describe_changes(definitions[i - 1], definitions[i])
            ],
            shared_at=[versions[i].at for i in changed_versions if definitions[i - 1].arms != definitions[i].arms],
            series=cache.series,
        )
        if evaluation.state == "ended":
            del self._caches[experiment]  # Ended experiments are read rarely, and their number grows.
        return ExperimentReading(evaluation, experiment_definition)

    def _update_cache(self, experiment: str, cache: _ReaderCache) -> None:
        """Add the parts and looks that were stored since the last call to the cache."""
        position, entries = self.store.load_ledger_since(experiment, cache.position[0])
        if position[1] != cache.position[1]:  # older parts have changed: read the whole ledger again
            cache.index, (position, entries) = PartIndex(), self.store.load_ledger_since(experiment, 0)
        cache.index.add(entries)
        cache.position = position
        for number, _, text in self.store.looks_since(experiment, cache.last_look):
            cache.last_look = number
            cache.looks += decode_looks(text)

    def compact(self, experiment: str, now: float) -> None:
        """Merge the days that can no longer be corrected; delete the data of an experiment after its retention time."""
        definition = Experiment.from_dict(json.loads(self.store.history(experiment)[-1].text))
        self.totals.compact(experiment, now=now, correct_within_days=definition.correct_within_days)
        if (
            definition.retention_days is not None
            and definition.end is not None
            and now / HOUR >= definition.end + definition.retention_days * DAY
        ):
            self.store.forget(experiment, int(now // HOUR) + 2 * DAY)

    def total(self, experiment: str) -> bytes | None:
        """Return the total of an experiment as bytes (a serialized frame); None without parts."""
        metrics = self.totals.total(experiment)
        return None if metrics is None else bytes(metrics.to_bytes())

    def end_after(self, seconds: float) -> None:
        """Do nothing: the caller waits for the running call."""

    def close(self) -> None:
        """Save all totals, so that the next start does not merge them again."""
        self.totals.close()
