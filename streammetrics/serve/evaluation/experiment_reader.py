"""Evaluate the experiments of a store. Each evaluation reads only the data that is new since the last evaluation."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple, Protocol

from ..part_keys import HOUR
from ..store import Store, StoreDownError, StoreFullError
from ..store.parts import DAY
from .deadlines import find_deadline
from .evaluate import evaluate
from .evaluation import Evaluation, ShownLook
from .experiment import Experiment
from .late_changes import build_definition_history
from .look_history import decode_looks
from .part_index import PartIndex
from .totals import SAVE_INTERVAL, SAVE_RATIO, Totals
from .window_series import WindowSeries
from .windows import retry_when_moved

__all__ = ["ExperimentReader", "ExperimentReading", "ExperimentSource"]


class ExperimentReading(NamedTuple):
    """The result of reading an experiment: its evaluation, and its definition at that time."""

    evaluation: Evaluation
    experiment: Experiment | None = None


class ExperimentSource(Protocol):
    """The interface of objects that evaluate experiments, in this process or in another one."""

    def start(self) -> None:
        """Get ready for the first call to `read`, for example by starting a process."""

    def read(self, experiment: str, now: float) -> ExperimentReading:
        """Return the evaluation and the definition of an experiment."""

    def compact(self, experiment: str, now: float) -> None:
        """Merge parts by day once they can no longer be corrected; delete their data after the retention time."""

    def total(self, experiment: str) -> bytes | None:
        """Return the total of an experiment (all its parts merged) as bytes, or None if it has no parts."""

    def end_after(self, seconds: float) -> None:
        """Stop after the given number of seconds, even during a call. The board calls this method when it stops."""

    def close(self) -> None:
        """Save the totals, which are expensive to recompute."""


@dataclass
class _ReaderCache:
    """The data of one experiment that has already been read from the store.

    `position` is a pair: the number of the last part that was read, and the epoch, which increases when older parts
    change. `last_look` is the number of the last look that was read.
    """

    series: WindowSeries = field(default_factory=WindowSeries)
    position: tuple[int, int] = (0, 0)
    index: PartIndex = field(default_factory=PartIndex)
    last_look: int = 0
    looks: list[ShownLook] = field(default_factory=list)
    next_save: float = float("-inf")


class ExperimentReader:
    """A reader that evaluates the experiments of a store, reading only new parts each time. It is not thread-safe.

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
        self.totals.set_time_zone(experiment, experiment_definition.timezone)
        cache = self._find_cache(experiment)
        # Read the index of parts before the total, so that every part in the index is also in the total.
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
            history=build_definition_history(versions, definitions, cache.index.first_received_at),
            series=cache.series,
        )
        evaluation = replace(evaluation, position=cache.position, due=find_deadline(experiment_definition, evaluation))
        if evaluation.state == "ended" or time.monotonic() >= cache.next_save:
            self._save_series(experiment, cache)
        if evaluation.state == "ended":
            # Ended experiments are rarely read and keep growing in number, so their data is not kept in memory.
            del self._caches[experiment]
        return ExperimentReading(evaluation, experiment_definition)

    def _find_cache(self, experiment: str) -> _ReaderCache:
        """Return the cache of an experiment. A new cache starts with the chart points saved in the store."""
        if experiment not in self._caches:
            saved = self.store.series(experiment)
            series = WindowSeries() if saved is None else WindowSeries.from_saved(*saved)
            self._caches[experiment] = _ReaderCache(series)
        return self._caches[experiment]

    def _save_series(self, experiment: str, cache: _ReaderCache) -> None:
        """Save the chart points, so that a restart need not read all parts again. Store errors are ignored."""
        if not cache.series.is_saved:
            began = time.monotonic()
            with suppress(StoreFullError, StoreDownError):
                self.store.save_series(experiment, *cache.series.serialize())
                cache.series.is_saved = True
            now = time.monotonic()
            cache.next_save = now + max(SAVE_INTERVAL, SAVE_RATIO * (now - began))

    def _update_cache(self, experiment: str, cache: _ReaderCache) -> None:
        """Add to the cache all parts and looks that were stored since the last call."""
        position, entries = self.store.load_ledger_since(experiment, cache.position[0])
        # The second number of a position (the epoch) changes when older parts change. In that case, read all parts
        # again.
        if position[1] != cache.position[1]:
            cache.index, (position, entries) = PartIndex(), self.store.load_ledger_since(experiment, 0)
        cache.index.add(entries)
        cache.position = position
        for number, _, text in self.store.looks_since(experiment, cache.last_look):
            cache.last_look = number
            cache.looks += decode_looks(text)

    def compact(self, experiment: str, now: float) -> None:
        """Merge parts by day once they can no longer be corrected; delete their data after the retention time."""
        definition = Experiment.from_dict(json.loads(self.store.history(experiment)[-1].text))
        self.totals.set_time_zone(experiment, definition.timezone)
        self.totals.compact(experiment, now=now, correct_within_days=definition.correct_within_days)
        self.store.close_conflicts(experiment, now)
        if (
            definition.retention_days is not None
            and definition.end is not None
            and now / HOUR >= definition.end + definition.retention_days * DAY
        ):
            self.store.forget(experiment, int(now // HOUR) + 2 * DAY)

    def total(self, experiment: str) -> bytes | None:
        """Return the total of an experiment (all its parts merged) as bytes, or None if it has no parts."""
        metrics = self.totals.total(experiment)
        return None if metrics is None else bytes(metrics.to_bytes())

    def end_after(self, seconds: float) -> None:
        """Do nothing: a call in this process cannot be interrupted, so the caller waits until it returns."""

    def close(self) -> None:
        """Save all totals and chart points. Otherwise, the next start would read all parts again."""
        for experiment, cache in self._caches.items():
            self._save_series(experiment, cache)
        self.totals.close()
